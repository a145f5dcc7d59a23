//! What can be used as it is, and is probably not what its author wants.
//!
//! Each advice names a place, what will happen, and what to write instead; one that an operator would shrug at does
//! not belong here. Only files without errors are advised on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::access_log::Sample;
use super::alert::Occasion;
use super::cost::PLANNED;
use super::domain::{Action, Capacity, Config, Listener, Member, Pool, Probe, ProbeKind, Publish, Source};
use super::effective::{sounds_secret, without_secrets};
use super::file::{File, PoolKeys};
use super::member::places;
use super::places::At;
use super::preset::Preset;
use super::problem::Problems;
use super::proof::Secret;
use super::spelling::{Spelled, shown, spell_duration, spell_range};
use super::sticky;
use crate::balance::Policy;
use crate::health::{Admin, Initial, Judge, OnAllUnhealthy};

/// Other members of a tier that the relative gate needs to compare with (health.md §5).
const RATIO_NEEDS: usize = 3;

/// Characters of a token that others may try to guess.
const LONG_ENOUGH: usize = 16;

/// Of a secret that is in the file itself.
const IN_THE_FILE: &str = "the secret stands in this file, for all who read it; write `secret: \"${NAME}\"` and set that \
                           in the environment, or `secret_file: FILE`";

/// Notes advice on `config`, which is what `file` means.
pub(super) fn advise(config: &Config, file: &File, at: At<'_>, problems: &mut Problems) {
    let sources =
        config.written_composites().iter().flat_map(|composite| &composite.sources).map(|source| &**source.name());
    let ranks = config.routes.iter().flat_map(|route| &route.pools).map(|rank| &*rank.pool);
    let used: BTreeSet<&str> = ranks.chain(sources).collect();
    for (name, pool) in &config.pools {
        let at = at.key("pools").key(name);
        let Some(keys) = file.pools.as_ref().and_then(|pools| pools.get(name)) else { continue };
        if !used.contains(name.as_str()) {
            problems.warn(at, format!("no route uses pool \"{name}\""));
        }
        members(pool, config, at, problems);
        cap(pool, at, problems);
        tiers(pool, keys, at, problems);
        aggregate(pool, at, problems);
        slow_start(pool, keys, at, problems);
        ejection(pool, config, at.key("passive").key("eject"), problems);
        match &pool.probe {
            None => unprobed(pool, keys, at, problems),
            Some(probe) => probed(pool, probe, keys, at, problems),
        }
        observed(pool, at, problems);
        tls(pool, at, problems);
        retries(pool, keys, at, problems);
        sticky::advise(pool, config, at.key("sticky"), problems);
        room(pool, at, problems);
    }
    ceiling(config, at, problems);
    remediation(config, file, at, problems);
    alerts(config, at, problems);
    routes(config, at, problems);
    failover(config, at, problems);
    published(config, at, problems);
    observing(config, at, problems);
    access_log(config, at, problems);
    admin(config, at, problems);
}

/// The same of what outlives the process, which a scenario does not.
pub(super) fn advise_on_state(config: &Config, at: At<'_>, problems: &mut Problems) {
    let replacing = config.pools.iter().find(|(_, pool)| pool.remediation.is_some());
    if let (Some((name, _)), None) = (replacing, &config.state_dir) {
        let message = "without `state_dir` a restart forgets what was replaced, and as many may be again; write \
                       `state_dir: /var/lib/pulsegate` at the top of the file";
        problems.warn(at.key("pools").key(name).key("remediation"), message);
    }
}

/// A ceiling on probes that they do not fit under: everybody is found out later than the intervals say.
fn ceiling(config: &Config, at: At<'_>, problems: &mut Problems) {
    let (cost, Some(ceiling)) = (config.cost(), config.max_probes_per_second) else { return };
    if cost.stretch <= 1.0 {
        return;
    }
    // Whose dead members are found last; one whose probes are all shared may be probed more often than it asks for.
    let all_shared = |name: &str| cost.pools.iter().any(|pool| pool.name == name && pool.shared == pool.members);
    let probed = config.pools.values().filter_map(|pool| Some((pool, pool.probe.as_ref()?)));
    let found = probed.map(|(pool, probe)| (found_within(pool, probe, cost.stretch), pool, probe));
    let slowest = found.max_by_key(|(found, pool, _)| (!all_shared(&pool.name), *found));
    let Some((found, pool, probe)) = slowest else { return };
    let message = format!(
        "{:.1} probes a second are asked for, so intervals become {:.1} times as long: pool \"{}\" is probed every {} instead \
         of every {}, and a member that dies is out after at most {} instead of {}; write at least {}, or longer intervals",
        cost.probes_per_second,
        cost.stretch,
        pool.name,
        coarse(probe.interval.mul_f64(cost.stretch)),
        spell_duration(probe.interval),
        coarse(found),
        coarse(found_within(pool, probe, 1.0)),
        (cost.probes_per_second / PLANNED).ceil().max(f64::from(ceiling) + 1.0),
    );
    problems.warn(at.key("max_probes_per_second"), message);
}

/// From a death to the verdict at most, where the dead do not answer (health.md §2).
fn found_within(pool: &Pool, probe: &Probe, stretch: f64) -> Duration {
    let fails = match pool.rules.judge {
        Judge::Consecutive { failures, .. } => failures,
        Judge::Window { size, required } => size - required + 1,
    };
    let again = probe.fast_interval.max(probe.timeout);
    probe.interval.mul_f64(stretch) + again * fails.saturating_sub(1) + probe.timeout
}

/// A time in whole milliseconds, or, where it is long, in tenths of a second.
fn coarse(time: Duration) -> String {
    let step = if time < Duration::from_secs(10) { 1 } else { 100 };
    let steps = (time.as_secs_f64() * 1000.0 / f64::from(step)).ceil() as u64;
    spell_duration(Duration::from_millis(steps * u64::from(step as u32)))
}

fn members(pool: &Pool, config: &Config, at: At<'_>, problems: &mut Problems) {
    if !pool.members.iter().any(takes_traffic) && !pool.is_discovered() {
        let mut routes = config.routes.iter();
        let alone = routes.any(|route| route.pools.iter().all(|rank| *rank.pool == *pool.name));
        let so = if alone { "every request gets 503" } else { "it serves no request" };
        let message = format!("pool \"{}\": no member is enabled with a weight over 0, so {so}", pool.name);
        problems.warn(at.key("members"), message);
    }
}

/// The cap rounds down; one that rounds to nobody surprises (health.md §3).
fn cap(pool: &Pool, at: At<'_>, problems: &mut Problems) {
    let percent = usize::from(pool.rules.max_unhealthy_percent);
    let nobody_judges = !pool.rules.probed && pool.rules.eject.is_none();
    if percent == 0 || pool.rules.min_ejected > 0 || nobody_judges || pool.is_discovered() {
        return;
    }
    let sizes = tier_sizes(pool);
    for (tier, size) in &sizes {
        if *size > 1 && size * percent / 100 == 0 {
            let whose =
                if sizes.len() > 1 { format!("the {size} members of tier {tier}") } else { format!("{size} members") };
            let enough = 100_usize.div_ceil(*size);
            let message = format!(
                "pool \"{}\": {percent} % of {whose} is 0, so none is ever ejected; write {enough} for one, or `min_ejected: 1`",
                pool.name
            );
            problems.warn(at.key("max_unhealthy_percent"), message);
        }
    }
}

fn tiers(pool: &Pool, keys: &PoolKeys, at: At<'_>, problems: &mut Problems) {
    if keys.tier_min_healthy_percent.is_some() && tier_sizes(pool).len() < 2 && !pool.is_discovered() {
        problems.warn(
            at.key("tier_min_healthy_percent"),
            "`tier_min_healthy_percent` has no effect in a pool with one tier; give some members `tier: 1`",
        );
    }
}

fn aggregate(pool: &Pool, at: At<'_>, problems: &mut Problems) {
    let Some(aggregate) = pool.rules.aggregate.filter(|_| !pool.is_discovered() && !has_names(pool)) else { return };
    let enabled = pool.members.iter().filter(|m| takes_traffic(m)).count();
    if aggregate.min_healthy as usize > enabled {
        let enabled = match enabled {
            0 => "none of its members is enabled".to_owned(),
            1 => "1 of its members is enabled".to_owned(),
            many => format!("{many} of its members are enabled"),
        };
        let message = format!(
            "pool \"{}\": it is never healthy as a whole: `min_healthy` is {}, and {enabled}",
            pool.name, aggregate.min_healthy
        );
        problems.warn(at.key("aggregate").key("min_healthy"), message);
    }
}

fn slow_start(pool: &Pool, keys: &PoolKeys, at: At<'_>, problems: &mut Problems) {
    let is_wanted = keys.slow_start.is_some_and(|Spelled(time)| !time.is_zero());
    if is_wanted && matches!(pool.balance, Policy::ConsistentHash { .. }) {
        let message =
            "`slow_start` has no effect with `balance: consistent_hash`: a key goes to its member or to another";
        problems.warn(at.key("slow_start"), message);
    } else if is_wanted && !pool.rules.probed && pool.rules.eject.is_none() {
        let message = match pool.probe {
            None => {
                "`slow_start` has no effect with `probe: off` and without `passive: { eject: {} }`: nobody is ever out"
            }
            Some(_) => {
                "`slow_start` has no effect with a probe that only observes and without `passive: { eject: {} }`: nobody is ever out"
            }
        };
        problems.warn(at.key("slow_start"), message);
    }
}

/// Ejection by traffic that takes nobody out, and passes that nobody sees.
fn ejection(pool: &Pool, config: &Config, at: At<'_>, problems: &mut Problems) {
    let Some(eject) = pool.rules.eject.filter(|_| at.exists()) else { return };
    if eject.probe_clears && !pool.rules.probed {
        let why = if pool.probe.is_none() { "`probe: off`" } else { "a probe that only observes" };
        let message = format!("`probe_clears` has no effect with {why}: no pass counts, so each is out for its time");
        problems.warn(at.key("probe_clears"), message);
    }
    if pool.rules.max_unhealthy_percent == 0 && !health_decides(pool, config) {
        let message = "nobody is ever ejected with `max_unhealthy_percent: 0`: who fails is called unhealthy and keeps its share; \
                       write a percentage such as 50, or `passive: hasten`";
        problems.warn(at, message);
    }
}

/// Whether something else goes by who is healthy, where nobody may be ejected.
fn health_decides(pool: &Pool, config: &Config) -> bool {
    let is_source = config.composites.iter().flat_map(|c| &c.sources).any(|source| **source.name() == *pool.name);
    let mut shared = config.routes.iter().filter(|route| route.pools.len() > 1).flat_map(|route| &route.pools);
    let by_latency = matches!(pool.balance, Policy::Fastest { .. } | Policy::PeakEwma(_));
    let fails = pool.rules.on_all_unhealthy == OnAllUnhealthy::Fail;
    // The members of a source may be of any tier.
    let tiers = pool.is_discovered() || tier_sizes(pool).len() > 1;
    is_source || shared.any(|rank| *rank.pool == *pool.name) || by_latency || fails || tiers
}

fn unprobed(pool: &Pool, keys: &PoolKeys, at: At<'_>, problems: &mut Problems) {
    let name = &pool.name;
    let serving = pool.members.iter().filter(|member| member.state != Admin::Disabled).count();
    if serving > 1 || pool.is_discovered() {
        let who = match serving {
            count if !pool.is_discovered() => format!("its {count} members are"),
            _ => "whoever its sources name is".to_owned(),
        };
        if pool.rules.eject.is_none() {
            problems.warn(
                at.key("probe"),
                format!("pool \"{name}\": {who} not probed, so a dead one keeps its share of the traffic"),
            );
        }
        if let Policy::Fastest { .. } = pool.balance {
            problems.warn(at.key("balance"), format!("pool \"{name}\": without probes `fastest` knows no latency"));
        }
    }
    if keys.initial.is_some_and(|Spelled(initial)| initial != Initial::Healthy) {
        problems.warn(at.key("initial"), "`initial` has no effect with `probe: off`: members start healthy");
    }
}

fn probed(pool: &Pool, probe: &Probe, keys: &PoolKeys, at: At<'_>, problems: &mut Problems) {
    if keys.probe.is_none() && keys.preset.is_none() {
        let message = format!(
            "pool \"{}\" has no `probe`, so its members are only asked for a connection, every {}; write `probe: {{ path: /healthz }}`",
            pool.name,
            spell_duration(probe.interval)
        );
        problems.warn(at, message);
    }
    let at = at.key("probe");
    if probe.reuse && keys.preset == Some(Spelled(Preset::FrontDoor)) {
        let message = "preset front_door takes its latency from the dial on, which `reuse` leaves out; remove `reuse`";
        problems.warn(at.key("reuse"), message);
    }
    if let ProbeKind::Http(http) = &probe.kind
        && let Some(range) = http.expect.status.iter().find(|(from, _)| *from < 200)
    {
        let message = format!(
            "{} is partly or wholly 1xx, which no answer ends with (RFC 9110 section 15.2)",
            spell_range(*range)
        );
        problems.warn(at.key("expect").key("status"), message);
    }
    proof(probe, at.key("auth"), problems);
    let watched = pool.observed.as_ref().filter(|observed| observed.has_probe());
    let gates = &watched.map_or(&pool.rules, |observed| &observed.rules).gates;
    if gates.max_latency.is_some_and(|gate| gate >= probe.timeout) {
        let message =
            format!("`max_latency` has no effect: the timeout, {}, comes first", spell_duration(probe.timeout));
        problems.warn(at.key("max_latency"), message);
    }
    let largest = tier_sizes(pool).into_values().max().unwrap_or_default();
    if gates.max_latency_ratio.is_some() && largest <= RATIO_NEEDS && !pool.is_discovered() {
        let message =
            format!("`max_latency_ratio` has no effect with fewer than {} members in a tier", RATIO_NEEDS + 1);
        problems.warn(at.key("max_latency_ratio"), message);
    }
    if gates.max_latency_ratio.is_none() && at.key("latency_floor").exists() {
        problems.warn(at.key("latency_floor"), "`latency_floor` has no effect without `max_latency_ratio`");
    }
}

/// Rules that are tried, and what their number cannot show.
fn observed(pool: &Pool, at: At<'_>, problems: &mut Problems) {
    let (Some(observed), name) = (&pool.observed, &pool.name) else { return };
    let serving = pool.members.iter().filter(|member| member.state != Admin::Disabled).count();
    if observed.has_probe() {
        // Traffic may judge all the same.
        let nobody_judges = pool.rules.eject.is_none();
        if nobody_judges && (serving > 1 || pool.is_discovered()) {
            let message = format!(
                "pool \"{name}\": its probe only observes and nobody is judged, so a dead member keeps its share of the traffic"
            );
            problems.warn(at.key("probe").key("observe"), message);
        }
        return;
    }
    let at = at.key("observe");
    if observed.rules == pool.rules {
        problems.warn(at, "what `observe` tries is in force already, so there is nothing to tell; write other numbers");
        return;
    }
    let gates = &observed.rules.gates;
    if let Some(probe) = &pool.probe
        && at.key("max_latency").exists()
        && gates.max_latency.is_some_and(|gate| gate >= probe.timeout)
    {
        let message =
            format!("`max_latency` would have no effect: the timeout, {}, comes first", spell_duration(probe.timeout));
        problems.warn(at.key("max_latency"), message);
    }
    let largest = tier_sizes(pool).into_values().max().unwrap_or_default();
    if at.key("max_latency_ratio").exists() && largest <= RATIO_NEEDS && !pool.is_discovered() {
        let message =
            format!("`max_latency_ratio` would have no effect with fewer than {} members in a tier", RATIO_NEEDS + 1);
        problems.warn(at.key("max_latency_ratio"), message);
    }
    if gates.max_latency_ratio.is_none() && at.key("latency_floor").exists() {
        problems.warn(at.key("latency_floor"), "`latency_floor` has no effect without `max_latency_ratio`");
    }
}

/// A secret that others read, or can find out from what is sent.
fn proof(probe: &Probe, at: At<'_>, problems: &mut Problems) {
    let Some(proof) = &probe.auth else { return };
    weak_secret(&proof.secret, "whoever sees what is sent", at.key("secret"), problems);
}

/// A secret at `place` that others read, or that `whoever` has what is made with it can find out.
pub(super) fn weak_secret(secret: &Secret, whoever: &str, place: At<'_>, problems: &mut Problems) {
    let Secret::Text(secret) = secret else { return };
    if problems.hidden().is_literal(place.mark()) {
        problems.warn(place, IN_THE_FILE);
    }
    if secret.chars().count() < LONG_ENOUGH {
        let message = format!(
            "{whoever} can find out a secret under {LONG_ENOUGH} characters by trying; write a long one, such as \
             `openssl rand -hex 32` makes"
        );
        problems.warn(place, message);
    }
}

/// What is written once for traffic and probe alike is advised on once.
fn tls(pool: &Pool, at: At<'_>, problems: &mut Problems) {
    let probe = pool.probe.as_ref().and_then(|probe| probe.kind.tls());
    let traffic = (pool.upstream.tls.as_ref(), at.key("upstream").key("tls"), "gets the requests");
    for (tls, at, then) in [traffic, (probe, at.key("probe").key("tls"), "passes")] {
        let Some(tls) = tls.filter(|tls| !tls.verify) else { continue };
        if at.key("verify").exists() {
            let message = format!(
                "`verify: false` takes any certificate: whoever answers at that address {then}; write `ca` instead"
            );
            problems.warn(at.key("verify"), message);
        }
        if tls.ca.is_some() && at.key("ca").exists() {
            problems.warn(at.key("ca"), "`ca` has no effect with `verify: false`; remove one of them");
        }
    }
}

fn retries(pool: &Pool, keys: &PoolKeys, at: At<'_>, problems: &mut Problems) {
    let at_retries = at.key("retries");
    let Some(written) = &keys.retries else { return };
    let tries = pool.retries;
    let wanted = |key: &Option<Spelled<u64>>| key.is_some_and(|Spelled(count)| count > 1);
    if pool.members.iter().filter(|m| takes_traffic(m)).count() == 1
        && !pool.is_discovered()
        && (wanted(&written.attempts) || wanted(&written.connect))
    {
        let message = format!("pool \"{}\" has one member, so there is nobody to try next", pool.name);
        problems.warn(at_retries, message);
    } else if tries.budget_percent == 0 && wanted(&written.attempts) {
        problems
            .warn(at_retries.key("budget"), "a budget of 0% allows no second attempt; write `20%`, or `attempts: 1`");
    }
    if let (Some(one), Some(all)) = (tries.per_try_timeout, pool.deadline)
        && one >= all
    {
        let message = format!("`per_try_timeout` has no effect: the deadline, {}, comes first", spell_duration(all));
        problems.warn(at_retries.key("per_try_timeout"), message);
    }
}

/// Who is replaced, how often, and who remembers.
fn remediation(config: &Config, file: &File, at: At<'_>, problems: &mut Problems) {
    let replacing = config.pools.iter().filter_map(|(name, pool)| Some((name, pool.remediation.as_ref()?)));
    let at_pool = |name: &str| at.key("pools").key(name);
    let observing = config.pools.iter().filter_map(|(name, pool)| Some((name, pool.observed_remediation.as_ref()?)));
    for (name, remediation) in replacing.clone().chain(observing.clone()) {
        let limits = remediation.limits;
        if limits.per_hour > limits.per_day {
            let message = format!("`max_per_hour` has no effect over `max_per_day`, {}", limits.per_day);
            problems.warn(at_pool(name).key("remediation").key("max_per_hour"), message);
        }
        shown_secrets(&remediation.action, at_pool(name).key("remediation"), problems);
    }
    if replacing.chain(observing).count() == 0
        && file.remediation.as_ref().is_some_and(|keys| keys.max_global.is_some())
    {
        problems.warn(at.key("remediation"), "`max_global` has no effect: no pool has a `remediation`");
    }
    let keys = |name: &str| file.pools.as_ref().and_then(|pools| pools.get(name));
    for name in config.pools.keys() {
        let keys = keys(name).filter(|keys| keys.remediation.is_none());
        if let Some(Spelled(preset @ Preset::AppService)) = keys.and_then(|keys| keys.preset.as_ref()) {
            let message = format!(
                "pool \"{name}\": {} also replaces members that fail for an hour; write `remediation` to say how, or \
                 `remediation: off`",
                preset.as_str()
            );
            problems.warn(at_pool(name).key("preset"), message);
        }
    }
}

/// What can never be told.
fn alerts(config: &Config, at: At<'_>, problems: &mut Problems) {
    for (index, alert) in config.alerts.iter().enumerate() {
        let at = at.key("alerts").item(index);
        shown_secrets(&Action::Webhook(alert.webhook.clone()), at, problems);
        let about = |name: &str| alert.pools.as_ref().is_none_or(|pools| pools.contains(name));
        let replaces = config.pools.iter().any(|(name, pool)| about(name) && pool.remediation.is_some());
        for (place, trigger) in alert.on.iter().enumerate() {
            let message = match trigger.occasion {
                // Whoever writes nothing means what there is.
                _ if !at.key("on").exists() => continue,
                Occasion::Replacement if !replaces => {
                    "`replacement` is never told: none of these pools has a `remediation`"
                }
                Occasion::Composite if config.composites.is_empty() && !config.tried_composites.is_empty() => {
                    "`composite` is never told: all `composites` only observe"
                }
                Occasion::Composite if config.composites.is_empty() => {
                    "`composite` is never told: there are no `composites`"
                }
                _ => continue,
            };
            problems.warn(at.key("on").item(place), message);
        }
    }
}

/// Who may read the configuration in force is shown all of an address and of a program's arguments; what a webhook is signed
/// with may be known otherwise.
fn shown_secrets(action: &Action, at: At<'_>, problems: &mut Problems) {
    let (texts, instead): (Vec<(At<'_>, String)>, _) = match action {
        Action::Command { argv, .. } => {
            let at = |index| at.key("command").item(index);
            (
                argv.iter().enumerate().map(|(index, text)| (at(index), text.clone())).collect(),
                "let the program read it from a file",
            )
        }
        Action::Webhook(webhook) => {
            let shown = without_secrets(&webhook.url.to_string());
            weak_secret(&webhook.secret, "whoever sees what is sent", at.key("webhook").key("secret"), problems);
            (
                vec![(at.key("webhook").key("url"), shown)],
                "write it as a parameter such as `?token=…`, which is covered",
            )
        }
    };
    for (place, text) in texts {
        let written = problems.hidden().shown_at(place.mark(), &text).find(|written| sounds_secret(written));
        if let Some(written) = written.map(str::to_owned) {
            let message = format!(
                "what `{written}` says is shown here by `check --format json` and `GET /api/v1/config`; {instead}"
            );
            problems.warn(place, message);
        }
    }
}

/// Limits that never bite.
fn room(pool: &Pool, at: At<'_>, problems: &mut Problems) {
    let is_limited = |limits: Capacity| limits != Capacity::default();
    let shared = is_limited(pool.capacity) || is_limited(pool.each_member) || !pool.files.is_empty();
    let limited = shared
        || pool.members.iter().any(|m| is_limited(m.capacity))
        || pool.services.iter().any(|s| is_limited(s.capacity));
    if pool.queue.is_some() && !limited {
        let message = "`queue` has no effect without a limit; write one such as `each_member: { max_in_flight: 100 }`";
        problems.warn(at.key("queue"), message);
    }
    let members = places(at).zip(pool.members.iter().map(|m| m.capacity));
    let (own, inherited): (Vec<_>, Vec<_>) = members.partition(|(at, _)| at.key("max_in_flight").exists());
    let inherited = inherited.first().map(|(_, limits)| (at.key("each_member"), *limits));
    let members: Vec<_> = own.into_iter().chain(inherited).collect();
    for (at, limits) in members.iter().copied().chain([(at, pool.capacity)]) {
        if let Some(connections) = more_requests_than_connections(limits) {
            let message = format!(
                "`max_in_flight` has no effect over `max_connections`, {connections}: each request has a connection of its own"
            );
            problems.warn(at.key("max_in_flight"), message);
        }
    }
    let shared = pool.capacity;
    for (at, own) in members {
        let requests = own.max_in_flight.filter(|_| more_requests_than_connections(own).is_none());
        let rows = [
            ("max_in_flight", requests, shared.max_in_flight),
            ("max_connections", own.max_connections, shared.max_connections),
        ];
        for (key, own, shared) in rows {
            if let (Some(own), Some(shared)) = (own, shared)
                && own > shared
                && at.key(key).exists()
            {
                let message = format!("`{key}` has no effect over the pool's own, {shared}, for all members together");
                problems.warn(at.key(key), message);
            }
        }
    }
    let at = at.key("queue").key("timeout");
    if let (Some(queue), Some(deadline)) = (pool.queue, pool.deadline)
        && queue.timeout >= deadline
        && at.exists()
    {
        let message = format!("`timeout` has no effect: the deadline, {}, comes first", spell_duration(deadline));
        problems.warn(at, message);
    }
}

/// The limit on connections where it makes the one on requests pointless.
fn more_requests_than_connections(limits: Capacity) -> Option<u32> {
    limits.max_connections.filter(|connections| limits.max_in_flight.is_some_and(|requests| requests > *connections))
}

fn routes(config: &Config, at: At<'_>, problems: &mut Problems) {
    let longest = config.listeners.iter().map(|l| l.limits.max_uri_bytes).max().unwrap_or_default();
    for (index, route) in config.routes.iter().enumerate() {
        let at = at.key("routes").item(index).key("path");
        if route.path.split('/').any(|segment| segment == "." || segment == "..") {
            let message =
                format!("`{}` never matches: clients resolve `.` and `..` before they ask", shown(&route.path));
            problems.warn(at, message);
        } else if route.path.len() > longest {
            problems.warn(at, format!("this never matches: no listener takes more than {longest} bytes of target"));
        }
    }
}

/// Keys of a route with several pools that have no effect, and pools that are never used.
fn failover(config: &Config, at: At<'_>, problems: &mut Problems) {
    for (index, route) in config.routes.iter().enumerate() {
        let at = at.key("routes").item(index);
        let (pools, alone) = (at.key("pools"), route.pools.len() < 2);
        for key in ["failback_delay", "no_failback"] {
            if alone && at.key(key).exists() {
                problems
                    .warn(at.key(key), format!("`{key}` has no effect with one pool; write `pools: [web, web-us]`"));
            }
        }
        if !alone && route.failback.is_none() && at.key("failback_delay").exists() {
            let message = "`failback_delay` has no effect with `no_failback: true`; remove one of them";
            problems.warn(at.key("failback_delay"), message);
        }
        for (place, rank) in route.pools.iter().enumerate() {
            let before = &route.pools[..place];
            let hidden =
                before.iter().any(|other| other.pool == rank.pool && (other.when.is_none() || other.when == rank.when));
            if hidden {
                let message =
                    format!("pool \"{}\" stands before this one already, so this place is never used", rank.pool);
                problems.warn(pools.item(place), message);
            }
        }
        let Some((last, when)) = route.pools.last().and_then(|last| Some((last, last.when.as_ref()?))) else {
            continue;
        };
        let message = match route.pools.first().filter(|_| !alone) {
            None => "`when` has no effect with one pool: it serves in any case".to_owned(),
            Some(first) => format!(
                "`when` on the last pool: while \"{when}\" is not healthy either, \"{}\" comes before \"{}\" again; without it \"{}\" serves as long as one of its members is healthy",
                first.pool, last.pool, last.pool
            ),
        };
        problems.warn(pools.item(route.pools.len() - 1).key("when"), message);
    }
}

/// What is published comes before every route.
fn published(config: &Config, at: At<'_>, problems: &mut Problems) {
    for (index, route) in config.routes.iter().enumerate() {
        let published = config.composites.iter().filter_map(|c| Some((&*c.name, c.publish.as_ref()?)));
        let is_there = |publish: &Publish| publish.path == route.path && publish.host.covers(&route.host);
        let there: Vec<(&str, &Publish)> = published.filter(|(_, publish)| is_there(publish)).collect();
        // A route is for every listener: by one without them it has the path as well.
        let by = |listener: &Listener| {
            let is_by = |publish: &Publish| publish.listener.as_ref().is_none_or(|name| *name == listener.name);
            there.iter().find(|(_, publish)| is_by(publish)).map(|(name, _)| *name)
        };
        let Some(names) = config.listeners.iter().map(by).collect::<Option<BTreeSet<&str>>>() else { continue };
        let names: Vec<String> = names.into_iter().map(|name| format!("\"{name}\"")).collect();
        let published = match names.as_slice() {
            [name] => format!("composite {name} is published"),
            names => format!("composites {} are published", names.join(" and ")),
        };
        let message = format!("`{}` itself is where {published}: this route has only what lies under it", route.path);
        problems.warn(at.key("routes").item(index).key("path"), message);
    }
}

/// What is written of a composite that only observes, and that nothing comes of yet.
fn observing(config: &Config, at: At<'_>, problems: &mut Problems) {
    for one in config.tried_composites.iter().filter(|one| one.only_observes && one.publish.is_some()) {
        let message = format!("nobody is answered: composite \"{}\" only observes", one.name);
        problems.warn(at.key("composites").key(&one.name).key("publish"), message);
    }
    for one in config.tried_composites.iter().filter(|one| !one.only_observes) {
        let in_force = config.composites.iter().find(|other| other.name == one.name);
        let left_out = |source: &&Source| in_force.is_some_and(|in_force| !in_force.sources.contains(source));
        for source in one.sources.iter().filter(left_out) {
            let place = one.sources.iter().position(|other| other == source).unwrap_or_default();
            let at = at.key("composites").key(&one.name).key("sources").item(place);
            problems.warn(at, format!("\"{}\" only observes, so it is as if it were not written here", source.name()));
        }
    }
    for (index, route) in config.routes.iter().enumerate() {
        for (place, rank) in route.pools.iter().enumerate() {
            let Some(when) = &rank.tried_when else { continue };
            let message = format!(
                "composite \"{when}\" only observes, so this `when` is as if it were not written: \"{}\" serves as long as it can",
                rank.pool
            );
            problems.warn(at.key("routes").item(index).key("pools").item(place).key("when"), message);
        }
    }
}

/// Whoever reaches the listener can try tokens as fast as it answers.
fn admin(config: &Config, at: At<'_>, problems: &mut Problems) {
    let Some(admin) = &config.admin else { return };
    let place = at.key("admin").key("token");
    if admin.token.is_some() && problems.hidden().is_literal(place.mark()) {
        let message = "the token stands in this file, for all who read it; write `token: \"${ADMIN_TOKEN}\"` and set that in the \
                       environment";
        problems.warn(place, message);
    }
    if !admin.address.ip().is_loopback()
        && admin.token.as_ref().is_some_and(|token| token.chars().count() < LONG_ENOUGH)
    {
        let message = format!(
            "a token under {LONG_ENOUGH} characters can be guessed where others reach it; write a long one, such as \
             `openssl rand -hex 16` makes"
        );
        problems.warn(place, message);
    }
}

/// What is paged for must not be left to chance by surprise.
fn access_log(config: &Config, at: At<'_>, problems: &mut Problems) {
    let Some(filter) = &config.access_log.filter else { return };
    let at = at.key("access_log").key("filter");
    let covered = |code: u16| filter.status.iter().any(|(from, to)| (*from..=*to).contains(&code));
    if filter.sample >= Sample::ALL {
        problems.warn(at, "a filter with `sample: 100%` leaves nothing out; remove it");
    } else if !(500..=599).all(covered) {
        let message =
            "most lines of members' own errors are left out; to have them all write `500-599` in `status` too";
        problems.warn(at, message);
    }
}

/// Whether a name may turn out to be several members.
fn has_names(pool: &Pool) -> bool {
    pool.members.iter().any(|member| member.host.parse::<std::net::IpAddr>().is_err())
}

fn takes_traffic(member: &Member) -> bool {
    member.state == Admin::Enabled && member.weight > 0
}

/// Members of each tier that the cap counts, if all are proven.
fn tier_sizes(pool: &Pool) -> BTreeMap<u8, usize> {
    let mut sizes = BTreeMap::new();
    for member in pool.members.iter().filter(|m| takes_traffic(m)) {
        *sizes.entry(member.tier).or_insert(0) += 1;
    }
    sizes
}
