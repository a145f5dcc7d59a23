//! The families of what is tried: how pools and members would be. A pool that tries nothing has no series here.

use super::facts::{Observed, PoolFacts, all};
use super::{count, flag};
use crate::health::{Mode, State, Verdict};
use crate::telemetry::metrics::{self, Metric, Page};
use crate::telemetry::{Counters, Kind};

/// How everyone would stand, and what was told of it.
pub fn observed(page: &mut Page, pools: &[PoolFacts], events: &Counters) {
    page.family(&metrics::OBSERVED_EVENTS, |series| {
        Kind::ALL.into_iter().for_each(|kind| series.add(&[kind.as_str()], count(events.observed(kind))));
    });
    let trying = || pools.iter().filter_map(|pool| Some((pool.name(), pool.observed.as_ref()?)));
    page.family(&metrics::OBSERVED_POOL_MODE, |series| {
        for (pool, observed) in trying() {
            Mode::ALL.into_iter().for_each(|mode| series.add(&[pool, mode.as_str()], flag(observed.mode == mode)));
        }
    });
    page.family(&metrics::OBSERVED_POOL_STATE, |series| {
        for (pool, observed) in trying() {
            State::ALL.into_iter().for_each(|state| series.add(&[pool, state.as_str()], flag(observed.state == state)));
        }
    });
    let mut each = |metric: &Metric, value: fn(&Observed) -> usize| {
        page.family(metric, |series| {
            trying().for_each(|(pool, observed)| series.add(&[pool], value(observed) as f64));
        });
    };
    each(&metrics::OBSERVED_POOL_IN_ROTATION, |observed| observed.in_rotation);
    each(&metrics::OBSERVED_POOL_EJECTABLE, |observed| observed.ejectable);
    each(&metrics::OBSERVED_POOL_EJECTED, |observed| observed.ejected);
    let members = || all(pools).filter_map(|(pool, member)| Some((pool, member.name(), member.observed?)));
    page.family(&metrics::OBSERVED_MEMBER_UP, |series| {
        members().for_each(|(pool, member, (verdict, _))| {
            series.add(&[pool, member], flag(verdict == Verdict::Healthy));
        });
    });
    page.family(&metrics::OBSERVED_MEMBER_STANDING, |series| {
        members().for_each(|(pool, member, (_, standing))| series.add(&[pool, member, standing.as_str()], 1.0));
    });
}
