//! Rules that are tried: what a pool would be judged by if its `observe` were in force.
//!
//! A rule that is tried stands beside the one in force, and not in its place: so another number of a rule that is in force
//! already can be tried too, and it is put in force by moving its line. Not here: a remediation or a composite that only
//! observes, which says so itself (`remediation`, `composite`).

use super::domain::Observed;
use super::file::{ObserveKeys, PoolKeys, ProbeKeys};
use super::judge::{gates, hasty, judge};
use super::passive::ejecting;
use super::pool::aggregate;
use super::preset::{Base, Preset};
use super::probe::Probing;
use super::reading::Reading;
use super::spelling::Spelled;
use crate::health::{Gates, Initial, Judge, OnAllUnhealthy, Rules};

/// What the pool that `pool` stands on tries beside `judged`, by which it is judged, or would be if its probe did more than
/// observe; `None`: nothing.
pub(super) fn observed(
    name: &str,
    keys: &PoolKeys,
    preset: Option<Preset>,
    base: &Base,
    probing: &Probing,
    judged: &Rules,
    pool: &mut Reading<'_>,
) -> Option<Observed> {
    let probe = probing.only_observes.then_some(Observed::PROBE);
    let Some(written) = &keys.observe else {
        return probe.map(|probe| Observed { rules: judged.clone(), keys: vec![probe] });
    };
    let mut names = written.names();
    let is_unprobed = probing.probe.is_none() && !pool.at.lost("probe");
    if is_unprobed && judged.eject.is_none() && written.passive.is_none() {
        let message = format!("pool \"{name}\" has no probes, so nobody is judged by any rule; remove `observe`");
        pool.problems.error_at(pool.at.key("observe").name(), message);
        return None;
    }
    let mut read = pool.under("observe");
    if names.is_empty() && !read.at.damaged() {
        read.problems
            .error(read.at, "`observe` names no rule to try; write one, as in `observe: { max_latency: 500ms }`");
    }
    let of_probe = ["window", "consecutive", "max_latency", "max_latency_ratio", "latency_floor"];
    for key in names.iter().filter(|key| probing.only_observes && of_probe.contains(*key)) {
        let message = format!("the whole probe only observes, and `{key}` with it; write it under `probe`");
        read.problems.error_at(read.at.key(key).name(), message);
    }
    for key in names.iter().filter(|key| is_unprobed && of_probe.contains(*key)) {
        let message = format!("pool \"{name}\" has no probes, and `{key}` judges by them; remove it");
        read.problems.error_at(read.at.key(key).name(), message);
    }
    let rules = Rules {
        eject: written.passive.as_ref().and_then(|keys| ejecting(keys, &mut read)).or(judged.eject),
        judge: tried_judge(written, preset, judged, &mut read),
        ..cap_and_more(written, keys, preset, base, judged, &mut read)
    };
    let rules = Rules { gates: tried_gates(written, &rules, &mut read), ..rules };
    let cap = "max_unhealthy_percent";
    if rules.max_unhealthy_percent != judged.max_unhealthy_percent && !names.contains(&cap) {
        // It follows from another one, and is tried all the same.
        names.insert(0, cap);
    }
    let keys = probe.into_iter().chain(names).collect();
    Some(Observed { rules, keys })
}

/// The rules of a pool whose probe only observes: as with `probe: off`.
pub(super) fn unjudged(judged: Rules) -> Rules {
    let judge = Base::of(None).judge;
    Rules { judge, initial: Initial::Healthy, gates: Gates::default(), probed: false, ..judged }
}

fn cap_and_more(
    written: &ObserveKeys,
    keys: &PoolKeys,
    preset: Option<Preset>,
    base: &Base,
    judged: &Rules,
    read: &mut Reading<'_>,
) -> Rules {
    let least = if preset == Some(Preset::AppService) { 1 } else { 0 };
    let cap = read.count("max_unhealthy_percent", &written.max_unhealthy_percent, least..=100);
    let on_all_unhealthy = written.on_all_unhealthy.map_or(judged.on_all_unhealthy, |Spelled(word)| word);
    // What nobody has written follows from what the pool does when nobody is healthy.
    let cap_in_force = match (keys.max_unhealthy_percent, on_all_unhealthy) {
        (None, OnAllUnhealthy::Fail) => 100,
        (None, OnAllUnhealthy::RoundRobin) => base.max_unhealthy_percent,
        (Some(_), _) => judged.max_unhealthy_percent,
    };
    Rules {
        max_unhealthy_percent: cap.unwrap_or(cap_in_force),
        min_ejected: read.count("min_ejected", &written.min_ejected, 0..=1).unwrap_or(judged.min_ejected),
        on_all_unhealthy,
        tier_min_healthy_percent: read
            .count("tier_min_healthy_percent", &written.tier_min_healthy_percent, 0..=100)
            .or(judged.tier_min_healthy_percent),
        aggregate: written.aggregate.as_ref().map(|keys| aggregate(keys, read.under("aggregate"))).or(judged.aggregate),
        ..judged.clone()
    }
}

fn tried_judge(written: &ObserveKeys, preset: Option<Preset>, judged: &Rules, read: &mut Reading<'_>) -> Judge {
    if written.window.is_none() && written.consecutive.is_none() {
        return judged.judge;
    }
    let keys = ProbeKeys { window: written.window, consecutive: written.consecutive, ..ProbeKeys::default() };
    // A number that is not written is the one in force.
    let tried = judge(&keys, preset, &Base { judge: judged.judge, ..Base::of(preset) }, read);
    if let Some(why) = hasty(tried).filter(|_| judged.gates.max_latency_ratio.is_some()) {
        let key = if written.window.is_some() { "window" } else { "consecutive" };
        read.error(key, why);
    }
    tried
}

fn tried_gates(written: &ObserveKeys, rules: &Rules, read: &mut Reading<'_>) -> Gates {
    let keys = ProbeKeys {
        max_latency: written.max_latency,
        max_latency_ratio: written.max_latency_ratio,
        latency_floor: written.latency_floor,
        ..ProbeKeys::default()
    };
    let tried = gates(&keys, rules.judge, read);
    Gates {
        max_latency: tried.max_latency.or(rules.gates.max_latency),
        max_latency_ratio: tried.max_latency_ratio.or(rules.gates.max_latency_ratio),
        latency_floor: if written.latency_floor.is_some() { tried.latency_floor } else { rules.gates.latency_floor },
    }
}

impl ObserveKeys {
    /// Those that are written.
    fn names(&self) -> Vec<&'static str> {
        let keys = [
            ("max_unhealthy_percent", self.max_unhealthy_percent.is_some()),
            ("min_ejected", self.min_ejected.is_some()),
            ("on_all_unhealthy", self.on_all_unhealthy.is_some()),
            ("tier_min_healthy_percent", self.tier_min_healthy_percent.is_some()),
            ("aggregate", self.aggregate.is_some()),
            ("window", self.window.is_some()),
            ("consecutive", self.consecutive.is_some()),
            ("max_latency", self.max_latency.is_some()),
            ("max_latency_ratio", self.max_latency_ratio.is_some()),
            ("latency_floor", self.latency_floor.is_some()),
            ("passive", self.passive.is_some()),
        ];
        keys.into_iter().filter(|(_, is_written)| *is_written).map(|(key, _)| key).collect()
    }
}
