//! The families of members: the most of a page, so of what is rare only what has happened has a series.

use std::time::Duration;

use super::facts::{MemberFacts, PoolFacts, all};
use super::{count, flag, words};
use crate::health::{Outcome, Ramp, Reason, Verdict};
use crate::telemetry::metrics::{self, Metric, Page};

/// How members stand.
pub fn standings(page: &mut Page, pools: &[PoolFacts]) {
    each(page, &metrics::MEMBER_UP, pools, |member| Some(flag(member.verdict == Verdict::Healthy)));
    // One, and not one for each of the eight: they would be half of the page of a large pool, and one that is not there is
    // as good as 0 for an alert.
    page.family(&metrics::MEMBER_STANDING, |series| {
        all(pools).for_each(|(pool, member)| series.add(&[pool, member.name(), member.standing.as_str()], 1.0));
    });
    each(page, &metrics::MEMBER_WEIGHT, pools, |member| Some(member.weight.into()));
    each(page, &metrics::MEMBER_RAMP, pools, |member| member.ramp.map(Ramp::part));
    each(page, &metrics::MEMBER_TIER, pools, |member| Some(member.tier.into()));
}

/// What members take on.
pub fn room(page: &mut Page, pools: &[PoolFacts], now: Duration) {
    each(page, &metrics::MEMBER_IN_FLIGHT, pools, |member| Some(member.live.in_flight().into()));
    each(page, &metrics::MEMBER_MAX_IN_FLIGHT, pools, |member| member.live.capacity().max_in_flight.map(Into::into));
    each(page, &metrics::MEMBER_CONNECTIONS, pools, |member| member.live.connections().map(Into::into));
    each(page, &metrics::MEMBER_MAX_CONNECTIONS, pools, |member| {
        member.live.capacity().max_connections.map(Into::into)
    });
    each(page, &metrics::MEMBER_LATENCY, pools, |member| member.live.latency().map(|latency| latency.as_secs_f64()));
    each(page, &metrics::MEMBER_PEAK, pools, |member| {
        member.live.form(now).and_then(|form| form.peak()).map(|peak| peak.as_secs_f64())
    });
}

/// What their verdicts were.
pub fn verdicts(page: &mut Page, pools: &[PoolFacts]) {
    let failures = Reason::ALL.into_iter().map(Some).chain([None]).map(|cause| (Verdict::Unhealthy, cause));
    let verdicts: Vec<_> = [(Verdict::Unknown, None), (Verdict::Healthy, None)].into_iter().chain(failures).collect();
    page.family(&metrics::MEMBER_TRANSITIONS, |series| {
        for (pool, member) in all(pools) {
            for (to, cause) in &verdicts {
                let seen = member.live.tally().verdicts(*to, *cause);
                if seen > 0 || *to == Verdict::Healthy {
                    series.add(&[pool, member.name(), to.as_str(), cause.map_or("", Reason::as_str)], count(seen));
                }
            }
        }
    });
}

/// What their probes were.
pub fn probes(page: &mut Page, pools: &[PoolFacts], now: Duration) {
    let fails = Reason::ALL.into_iter().map(Outcome::Fail);
    let outcomes: Vec<_> = [Outcome::Pass, Outcome::Inconclusive].into_iter().chain(fails).collect();
    page.family(&metrics::PROBES, |series| {
        for (pool, member) in all(pools) {
            for outcome in &outcomes {
                let (seen, (result, reason)) = (member.live.tally().probes(*outcome), words(*outcome));
                if seen > 0 || *outcome == Outcome::Pass {
                    series.add(&[pool, member.name(), result, reason], count(seen));
                }
            }
        }
    });
    page.family(&metrics::PROBE_DURATION, |series| {
        for (pool, member) in all(pools) {
            let Some((phases, _)) = member.probe else { continue };
            let total = ("total", Some(phases.total));
            let phases = [("connect", phases.connect), ("tls", phases.tls), ("first_byte", phases.first_byte), total];
            for (phase, took) in phases {
                if let Some(took) = took {
                    series.add(&[pool, member.name(), phase], took.as_secs_f64());
                }
            }
        }
    });
    each(page, &metrics::PASSIVE_EJECTIONS, pools, |member| {
        Some(member.live.tally().bans()).filter(|bans| *bans > 0).map(count)
    });
    each(page, &metrics::PROBES_HASTENED, pools, |member| {
        Some(member.live.tally().hastened()).filter(|hastened| *hastened > 0).map(count)
    });
    each(page, &metrics::PROBE_AGE, pools, |member| member.probe.map(|(_, at)| now.saturating_sub(at).as_secs_f64()));
}

/// One series of each member that has such a value.
fn each(page: &mut Page, metric: &Metric, pools: &[PoolFacts], value: impl Fn(&MemberFacts) -> Option<f64>) {
    page.family(metric, |series| {
        for (pool, member) in all(pools) {
            if let Some(value) = value(member) {
                series.add(&[pool, member.name()], value);
            }
        }
    });
}
