//! The families of requests, attempts and clients' connections.

use std::sync::atomic::Ordering::Relaxed;

use super::count;
use super::facts::{PoolFacts, all};
use crate::pool::Binding;
use crate::snapshot::{Snapshot, Way};
use crate::telemetry::AttemptResult;
use crate::telemetry::metrics::{self, Codes, Page, Series, listeners};

/// Requests by what they came to: of every listener, those without a route, and those of each route there is now.
pub fn requests(page: &mut Page, snapshot: &Snapshot) {
    page.family(&metrics::REQUESTS, |series| {
        for listener in listeners() {
            add(series, [listener.name(), "", ""], &listener.unrouted);
            for route in snapshot.ways.iter().flat_map(Way::counts).chain(snapshot.doors.counts()) {
                if let Some(codes) = route.of(&listener) {
                    add(series, [listener.name(), route.route(), route.pool()], codes);
                }
            }
        }
    });
}

fn add(series: &mut Series<'_>, [listener, route, pool]: [&str; 3], codes: &Codes) {
    for (code, seen) in codes.read() {
        series.add(&[listener, route, pool, &code.to_string()], count(seen));
    }
}

/// What pools and their members made of them.
pub fn attempts(page: &mut Page, pools: &[PoolFacts]) {
    page.family(&metrics::REQUEST_DURATION, |series| {
        pools.iter().for_each(|pool| series.add_times(&[pool.name()], &pool.live.tally().requests));
    });
    page.family(&metrics::ATTEMPTS, |series| {
        for (pool, member) in all(pools) {
            for result in AttemptResult::ALL {
                let seen = member.live.tally().attempts(result);
                if seen > 0 || result == AttemptResult::Ok {
                    series.add(&[pool, member.name(), result.as_str()], count(seen));
                }
            }
        }
    });
    page.family(&metrics::CONNECT_DURATION, |series| {
        pools.iter().for_each(|pool| series.add_times(&[pool.name()], &pool.live.tally().dials));
    });
    page.family(&metrics::STICKY_COOKIES, |series| {
        for pool in pools.iter().filter(|pool| pool.is_sticky) {
            for why in Binding::ALL {
                series.add(&[pool.name(), why.as_str()], count(pool.live.tally().bindings(why)));
            }
        }
    });
    page.family(&metrics::RETRIES, |series| {
        for pool in pools {
            // One after an attempt that went well is none.
            for result in AttemptResult::ALL.into_iter().filter(|result| *result != AttemptResult::Ok) {
                series.add(&[pool.name(), result.as_str()], count(pool.live.tally().retries(result)));
            }
        }
    });
}

/// Clients.
pub fn connections(page: &mut Page) {
    let all = listeners();
    page.family(&metrics::CONNECTIONS, |series| {
        for listener in &all {
            let (open, active) = (listener.open.load(Relaxed), listener.active.load(Relaxed));
            series.add(&[listener.name(), "active"], active as f64);
            // The two are read one after the other.
            series.add(&[listener.name(), "idle"], open.saturating_sub(active) as f64);
        }
    });
    page.family(&metrics::CONNECTIONS_ACCEPTED, |series| {
        all.iter().for_each(|listener| series.add(&[listener.name()], count(listener.accepted.load(Relaxed))));
    });
    page.family(&metrics::CONNECTIONS_REFUSED, |series| {
        all.iter().for_each(|listener| series.add(&[listener.name()], count(listener.refused.load(Relaxed))));
    });
}
