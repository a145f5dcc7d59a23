//! The families of pools.

use super::facts::PoolFacts;
use super::{count, flag};
use crate::health::{Mode, State};
use crate::telemetry::metrics::{self, Metric, Page};

/// How pools stand.
pub fn modes(page: &mut Page, pools: &[PoolFacts]) {
    page.family(&metrics::POOL_MODE, |series| {
        for pool in pools {
            for mode in Mode::ALL {
                series.add(&[pool.name(), mode.as_str()], flag(pool.headline.mode == mode));
            }
        }
    });
    page.family(&metrics::POOL_STATE, |series| {
        for pool in pools {
            for state in State::ALL {
                series.add(&[pool.name(), state.as_str()], flag(pool.state == state));
            }
        }
    });
    each(page, &metrics::POOL_IN_ROTATION, pools, |pool| Some(pool.headline.in_rotation as f64));
    each(page, &metrics::POOL_TIER_MEMBERS, pools, |pool| Some(pool.headline.total as f64));
    each(page, &metrics::POOL_MEMBERS, pools, |pool| Some(pool.members.len() as f64));
    each(page, &metrics::POOL_UNRESOLVED, pools, |pool| {
        Some(pool.members.iter().filter(|member| member.live.address().is_none()).count() as f64)
    });
    each(page, &metrics::POOL_TROUBLED, pools, |pool| Some(pool.troubled as f64));
    each(page, &metrics::POOL_TROUBLED_SOURCES, pools, |pool| Some(pool.troubled_sources as f64));
    each(page, &metrics::POOL_EJECTABLE, pools, |pool| Some(pool.ejectable as f64));
    each(page, &metrics::POOL_EJECTED, pools, |pool| Some(pool.ejected as f64));
    each(page, &metrics::POOL_FALLBACKS, pools, |pool| Some(count(pool.live.tally().fallbacks())));
}

/// What pools take on.
pub fn room(page: &mut Page, pools: &[PoolFacts]) {
    let queue = |pool: &PoolFacts| {
        let queue = pool.live.queue();
        let (length, size) = (queue.length(), queue.size());
        (size > 0 || length > 0).then_some((length as f64, size as f64))
    };
    each(page, &metrics::POOL_IN_FLIGHT, pools, |pool| Some(pool.live.in_flight().into()));
    each(page, &metrics::POOL_MAX_IN_FLIGHT, pools, |pool| pool.live.capacity().max_in_flight.map(Into::into));
    each(page, &metrics::POOL_CONNECTIONS, pools, |pool| pool.live.connections().map(Into::into));
    each(page, &metrics::POOL_MAX_CONNECTIONS, pools, |pool| pool.live.capacity().max_connections.map(Into::into));
    each(page, &metrics::POOL_QUEUE_LENGTH, pools, |pool| queue(pool).map(|(length, _)| length));
    each(page, &metrics::POOL_QUEUE_SIZE, pools, |pool| queue(pool).map(|(_, size)| size));
    each(page, &metrics::POOL_TURNED_AWAY, pools, |pool| Some(count(pool.live.turned_away())));
    each(page, &metrics::POOL_TUNNELS, pools, |pool| {
        Some(pool.members.iter().map(|member| member.live.tunnels()).sum::<u32>().into())
    });
}

/// One series of each pool that has such a value.
fn each(page: &mut Page, metric: &Metric, pools: &[PoolFacts], value: impl Fn(&PoolFacts) -> Option<f64>) {
    page.family(metric, |series| {
        for pool in pools {
            if let Some(value) = value(pool) {
                series.add(&[pool.name()], value);
            }
        }
    });
}
