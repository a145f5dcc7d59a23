//! Where the routes of one generation lead.

use std::sync::Arc;
use std::time::Duration;

use super::Served;
use crate::failover::{Place, Standby, Switch};
use crate::health::failover::Failback;
use crate::pool::Audience;
use crate::route::Route;
use crate::telemetry::metrics::RouteCounts;

/// Where one route leads.
#[derive(Debug)]
pub struct Way {
    stops: Box<[Stop]>,
    switch: Option<Arc<Switch>>,
}

/// One of the pools that a route leads to.
#[derive(Debug)]
pub struct Stop {
    /// Of the route's requests that came here: older than this generation maybe.
    pub counts: Arc<RouteCounts>,
    /// The pool.
    pub served: Arc<Served>,
}

impl Way {
    /// The rank that serves now.
    pub fn rank(&self) -> usize {
        self.switch.as_ref().map_or(0, |switch| switch.rank())
    }

    /// The pool of this rank.
    pub fn stop(&self, rank: usize) -> Option<&Stop> {
        self.stops.get(rank)
    }

    /// All of them, by rank.
    pub fn stops(&self) -> &[Stop] {
        &self.stops
    }

    /// What is counted of it, by pool: each once, however many ranks a pool has.
    pub fn counts(&self) -> impl Iterator<Item = &Arc<RouteCounts>> {
        let is_first = |rank: usize| {
            let before = &self.stops[..rank];
            !before.iter().any(|stop| Arc::ptr_eq(&stop.counts, &self.stops[rank].counts))
        };
        self.stops.iter().enumerate().filter(move |(rank, _)| is_first(*rank)).map(|(_, stop)| &stop.counts)
    }

    /// Who chooses; `None` where there is one pool.
    pub fn switch(&self) -> Option<&Arc<Switch>> {
        self.switch.as_ref()
    }

    /// Where `route` leads among the pools that `served` finds. It goes on from `before`, its way in the
    /// generation before, which decides no more.
    pub(super) fn new(
        before: Option<&Way>,
        now: Duration,
        route: &Route,
        served: impl Fn(&str) -> Option<Arc<Served>>,
        audience: &Audience,
    ) -> Way {
        let mut stops: Vec<Stop> = Vec::with_capacity(route.pools.len());
        let mut places = Vec::with_capacity(route.pools.len());
        for rank in &route.pools {
            // The configuration has seen to it that there is one.
            let Some(served) = served(&rank.pool) else { continue };
            let is_it = |stop: &&Stop| stop.counts.pool() == &*rank.pool;
            let counted = stops.iter().find(is_it).or_else(|| before?.stops.iter().find(is_it));
            let counts = counted.map(|stop| stop.counts.clone());
            let counts = counts.unwrap_or_else(|| Arc::new(RouteCounts::new(route.name.clone(), rank.pool.clone())));
            places.push(Place {
                standby: Standby { pool: served.live.clone(), when: rank.when.clone() },
                wait: served.config.rules.initial_wait,
            });
            stops.push(Stop { counts, served });
        }
        let failback = route.failback.map_or(Failback::Never, Failback::After);
        let switch = (stops.len() > 1).then(|| {
            let before = before.and_then(|before| before.switch.as_deref());
            Arc::new(Switch::new(before, now, route.name.clone(), failback, places, audience.events.clone()))
        });
        Way { stops: stops.into(), switch }
    }
}
