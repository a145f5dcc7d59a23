//! The families of replacement: pools that replace members, or have.

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
    page.family(&metrics::REMEDIATION, |series| {
        for pool in pools {
            let tally = remediator.tally(pool.name());
            if tally == Tally::default() && rules.iter().all(|(name, _)| *name != pool.name()) {
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
    page.family(&metrics::REMEDIATION_WAITING, |series| {
        for (pool, _) in &rules {
            let waiting = overview.waiting.keys().filter(|(of, _)| **of == **pool).count();
            series.add(&[*pool], waiting as f64);
        }
    });
    page.family(&metrics::REMEDIATION_RUNNING, |series| {
        for (pool, _) in &rules {
            let running = overview.running.iter().filter(|running| *running.who.0 == **pool).count();
            series.add(&[*pool], running as f64);
        }
    });
    page.family(&metrics::REMEDIATION_QUEUED, |series| {
        for (pool, _) in &rules {
            let queued = overview.queued.iter().filter(|one| *one.who.0 == **pool).count();
            series.add(&[*pool], queued as f64);
        }
    });
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
