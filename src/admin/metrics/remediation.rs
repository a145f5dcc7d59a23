//! The families of replacement: pools that replace members, or have.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::count;
use super::facts::PoolFacts;
use crate::control::Control;
use crate::health::replacement::Limit;
use crate::remediate::Tally;
use crate::telemetry::metrics::{self, Page};

/// What was decided, what waits, and how much of the limits is used.
pub fn remediation(page: &mut Page, control: &Control, pools: &[PoolFacts]) {
    let (snapshot, remediator) = (control.snapshot(), control.remediator());
    let overview = remediator.overview();
    let rules: Vec<_> = pools
        .iter()
        .filter_map(|pool| Some((pool.name(), snapshot.pools.get(pool.name())?.config.remediation.as_ref()?.limits)))
        .collect();
    let replacing: HashSet<&str> = rules.iter().map(|(pool, _)| *pool).collect();
    let waiting = by_pool(overview.waiting.keys().map(|who| &who.0));
    let running = by_pool(overview.running.iter().map(|one| &one.who.0));
    let queued = by_pool(overview.queued.iter().map(|one| &one.who.0));
    page.family(&metrics::REMEDIATION, |series| {
        for pool in pools {
            let tally = remediator.tally(pool.name());
            if tally == Tally::default() && !replacing.contains(pool.name()) {
                continue;
            }
            let Tally { started, done, failed, deferred, spared, refused, queued, dropped } = tally;
            let rows = [
                ("started", started),
                ("done", done),
                ("failed", failed),
                ("deferred", deferred),
                ("spared", spared),
                ("refused", refused),
                ("queued", queued),
                ("dropped", dropped),
            ];
            rows.into_iter().for_each(|(result, value)| series.add(&[pool.name(), result], count(value)));
        }
    });
    for (family, of) in [
        (&metrics::REMEDIATION_WAITING, &waiting),
        (&metrics::REMEDIATION_RUNNING, &running),
        (&metrics::REMEDIATION_QUEUED, &queued),
    ] {
        page.family(family, |series| {
            for (pool, _) in &rules {
                series.add(&[*pool], of.get(*pool).copied().unwrap_or_default() as f64);
            }
        });
    }
    page.family(&metrics::REMEDIATION_USED, |series| {
        for (pool, limits) in &rules {
            for (limit, most) in [(Limit::Hour, limits.per_hour), (Limit::Day, limits.per_day)] {
                series.add(&[*pool, limit.as_str()], overview.ledger.spent(limit, pool, most) as f64);
            }
        }
    });
    page.family(&metrics::REMEDIATION_LIMIT, |series| {
        for (pool, limits) in &rules {
            series.add(&[*pool, Limit::Hour.as_str()], limits.per_hour.into());
            series.add(&[*pool, Limit::Day.as_str()], limits.per_day.into());
        }
    });
    let max_global = snapshot.config.max_global;
    page.single(&metrics::REMEDIATION_GLOBAL_USED, overview.ledger.spent(Limit::Global, "", max_global) as f64);
    page.single(&metrics::REMEDIATION_GLOBAL_LIMIT, max_global.into());
    page.single(&metrics::REMEDIATION_LOST, u8::from(overview.ledger.lost_at().is_some()).into());
}

/// How many of these there are of each.
fn by_pool<'a>(pools: impl Iterator<Item = &'a Arc<str>>) -> HashMap<&'a str, usize> {
    let mut by_pool = HashMap::new();
    pools.for_each(|pool| *by_pool.entry(&**pool).or_default() += 1);
    by_pool
}
