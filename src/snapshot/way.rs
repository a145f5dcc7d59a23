//! Where the routes of one generation lead.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Served;
use crate::failover::{Place, Standby, Switch};
use crate::health::failover::Failback;
use crate::pool::{Audience, Pool};
use crate::route::Route;
use crate::telemetry::metrics::RouteCounts;

/// Where one route leads.
#[derive(Debug)]
pub struct Way {
    stops: Box<[Stop]>,
    switch: Arc<Switch>,
    /// Whoever it goes by, each once.
    in_use: Box<[Arc<Pool>]>,
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
        self.switch.rank()
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

    /// A request comes. Whoever stands by for its pool is in use too, and so is whoever says which of them serves: no verdict
    /// of theirs must be old when it is needed.
    pub fn mark_use(&self) {
        self.in_use.iter().for_each(|pool| pool.usage().mark());
    }

    /// Who chooses; `None` where there is one pool.
    pub fn switch(&self) -> Option<&Arc<Switch>> {
        Some(&self.switch).filter(|_| self.stops.len() > 1)
    }

    /// The same, also where there is nothing to choose.
    pub fn memory(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// Where `route` leads among the pools that `served` finds. It goes on from `before`, its way in the
    /// generation before, which decides no more; `dozing` are the pools beneath a composite that are probed more rarely
    /// while nobody uses them.
    pub(super) fn new(
        before: Option<&Way>,
        now: Duration,
        route: &Route,
        served: impl Fn(&str) -> Option<Arc<Served>>,
        dozing: impl Fn(&str) -> Vec<Arc<Pool>>,
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
        let before = before.map(|before| &*before.switch);
        let switch = Switch::new(before, now, route.name.clone(), failback, places, audience.events.clone());
        let beneath = route.pools.iter().filter_map(|rank| rank.when.as_deref()).flat_map(dozing);
        let in_use = once_each(stops.iter().map(|stop| stop.served.live.clone()).chain(beneath));
        Way { stops: stops.into(), switch: Arc::new(switch), in_use }
    }
}

fn once_each(pools: impl Iterator<Item = Arc<Pool>>) -> Box<[Arc<Pool>]> {
    let mut seen = HashSet::new();
    pools.filter(|pool| seen.insert(pool.name().clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config;
    use crate::failover::Switchboard;
    use crate::health::{Reason, Sample, State};
    use crate::snapshot::{Found, Located, Snapshot, Source};
    use crate::telemetry::Kind;

    const TEXT: &str = "listeners: [{ address: \"127.0.0.1:80\" }]\npools:\n  web: { members: [\"10.0.0.1:80\"], initial: healthy, probe: { path: /, consecutive: { failures: 1, passes: 1 } } }\n  us: { members: [\"10.0.0.2:80\"], initial: healthy, probe: { path: /, consecutive: { failures: 1, passes: 1 } } }\nroutes: [{ pools: [web, us], failback_delay: 60s }, { path: /one, pool: web }]\n";

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn next(old: Option<&Snapshot>, now: Duration, text: &str, audience: &Arc<Audience>) -> Snapshot {
        let config = Arc::new(config::parse("a.yaml", text, &|_| None).expect("a good file").config);
        let mut found = Found::default();
        for (name, pool) in &config.pools {
            let ip = pool.members[0].host.parse().expect("an address");
            found.insert(name, Located::all(&pool.members[0], &[ip], &Source::Written(0), None));
        }
        Snapshot::next(old, now, config, &found, &HashMap::new(), audience)
    }

    fn probed(snapshot: &Snapshot, now: Duration, pool: &str, sample: Sample) {
        let live = &snapshot.pools[pool].live;
        let (id, fingerprint) =
            live.read(|health, _| (health.members()[0].id(), health.members()[0].spec().fingerprint));
        live.report(now, id, fingerprint, sample);
    }

    #[test]
    fn a_route_goes_on_over_generations_and_only_the_present_one_decides() {
        let board = Arc::new(Switchboard::new(|_| State::Unknown));
        let audience = Arc::new(Audience { events: Arc::default(), onlookers: vec![board.clone()] });
        let told = || audience.events.counters().of(Kind::Failover);
        let first = next(None, s(0), TEXT, &audience);
        board.follow(s(0), first.memories());
        assert_eq!((first.ways[0].rank(), first.ways[1].rank(), first.switches().len()), (0, 0, 1));
        probed(&first, s(1), "web", Sample::fail(Reason::Status, s(0)));
        assert_eq!((first.ways[0].rank(), told()), (1, 1), "at once");

        let second = next(Some(&first), s(2), TEXT, &audience);
        // It has not been told of yet, and the first decides no more: what happens now is seen when it is.
        probed(&second, s(3), "web", Sample::pass(s(0)));
        board.follow(s(4), second.memories());
        assert_eq!((second.ways[0].rank(), board.next_deadline()), (1, Some(s(64))));
        board.advance(s(63));
        assert_eq!(second.ways[0].rank(), 1);
        board.advance(s(64));
        assert_eq!((second.ways[0].rank(), first.ways[0].rank(), told()), (0, 1, 2));
        let shared = |rank: usize| {
            let counts = |snapshot: &Snapshot| snapshot.ways[0].stop(rank).map(|stop| stop.counts.clone());
            counts(&first).zip(counts(&second)).is_some_and(|(one, other)| Arc::ptr_eq(&one, &other))
        };
        assert!(shared(0) && shared(1), "its counts go on too");

        // A pool that stands twice is counted once.
        let third = next(Some(&second), s(70), &TEXT.replace("[web, us]", "[web, us, web]"), &audience);
        assert_eq!((third.ways[0].stops().len(), third.ways[0].counts().count()), (3, 2));
    }

    /// Generation after generation of `TEXT` with other pools in its first route, and what is told of failovers.
    struct Life {
        board: Arc<Switchboard>,
        audience: Arc<Audience>,
        present: Option<Snapshot>,
    }

    impl Life {
        fn new(now: Duration, pools: &str) -> Life {
            let board = Arc::new(Switchboard::new(|_| State::Healthy));
            let audience = Arc::new(Audience { events: Arc::default(), onlookers: vec![board.clone()] });
            let mut life = Life { board, audience, present: None };
            life.reload(now, pools);
            life
        }

        fn reload(&mut self, now: Duration, pools: &str) {
            let text =
                TEXT.replace("[web, us]", pools).replace("routes:", "composites: { x: { sources: [us] } }\nroutes:");
            let text = text.replace(
                "  us:",
                "  new: { members: [\"10.0.0.3:80\"], initial_wait: 30s, probe: { path: / } }\n  us:",
            );
            let snapshot = next(self.present.as_ref(), now, &text, &self.audience);
            self.board.follow(now, snapshot.memories());
            self.present = Some(snapshot);
        }

        fn probed(&self, now: Duration, pool: &str, sample: Sample) {
            probed(self.present.as_ref().expect("a generation"), now, pool, sample);
        }

        /// The pool that serves, how often that changed, and how much was told.
        fn stands(&self) -> (String, u64, u64) {
            let way = &self.present.as_ref().expect("a generation").ways[0];
            let pool = way.stop(way.rank()).expect("a pool").counts.pool().to_owned();
            (pool, way.memory().all_moves(), self.audience.events.counters().of(Kind::Failover))
        }
    }

    fn stood(pool: &str, moves: u64, told: u64) -> (String, u64, u64) {
        (pool.to_owned(), moves, told)
    }

    #[test]
    fn the_pool_that_serves_is_known_by_its_name_whatever_it_goes_by() {
        let mut life = Life::new(s(0), "[web, us]");
        life.probed(s(1), "web", Sample::fail(Reason::Status, s(0)));
        life.probed(s(2), "web", Sample::pass(s(0)));
        for (now, pools) in [(3, "[web, { pool: us, when: x }]"), (4, "[{ pool: web, when: x }, us]"), (5, "[us, web]")]
        {
            life.reload(s(now), pools);
            assert_eq!(life.stands(), stood("us", 1, 1), "{pools}");
        }
        // At two ranks, of which one goes.
        life.reload(s(6), "[web, us, { pool: us, when: x }]");
        life.reload(s(7), "[web, { pool: us, when: x }]");
        assert_eq!(life.stands(), stood("us", 1, 1));
        life.board.advance(s(61));
        assert_eq!(life.stands(), stood("us", 1, 1), "its delay goes on");
        life.board.advance(s(62));
        assert_eq!(life.stands(), stood("web", 2, 2));
    }

    #[test]
    fn that_the_pool_that_serves_is_taken_from_its_route_is_told_and_counted() {
        let mut life = Life::new(s(0), "[web, us]");
        life.probed(s(1), "web", Sample::fail(Reason::Status, s(0)));
        life.probed(s(2), "web", Sample::pass(s(0)));
        life.reload(s(3), "[new, web]");
        assert_eq!(life.stands(), stood("new", 2, 2), "a new start: what is better is waited for");
        life.board.advance(s(33));
        assert_eq!(life.stands(), stood("web", 3, 3));
        life.reload(s(40), "[us]");
        assert_eq!(life.stands(), stood("us", 4, 4), "to one pool");
        life.reload(s(50), "[web]");
        assert_eq!(life.stands(), stood("web", 4, 4), "a route with one pool has no failover");
    }

    #[test]
    fn a_pool_that_was_alone_serves_on_when_better_ones_come() {
        let mut life = Life::new(s(0), "[us]");
        life.reload(s(1), "[new, us]");
        assert_eq!(life.stands(), stood("us", 0, 0), "it is not waited for what is new");
        life.probed(s(2), "new", Sample::pass(s(0)));
        life.board.advance(s(61));
        assert_eq!(life.stands(), stood("us", 0, 0));
        life.board.advance(s(62));
        assert_eq!(life.stands(), stood("new", 1, 1));
        life.reload(s(63), "[new]");
        life.reload(s(64), "[new, us]");
        assert_eq!(life.stands(), stood("new", 1, 1), "what was counted is not forgotten meanwhile");
    }

    #[test]
    fn that_none_can_serve_is_told_of_where_no_other_pool_serves_too() {
        let life = Life::new(s(0), "[web, us]");
        life.probed(s(1), "us", Sample::fail(Reason::Status, s(0)));
        life.probed(s(2), "web", Sample::fail(Reason::Status, s(0)));
        assert_eq!(life.stands(), stood("web", 0, 1), "no other pool came to serve");
        life.probed(s(3), "web", Sample::pass(s(0)));
        assert_eq!(life.stands(), stood("web", 0, 2), "nor at its end");
    }
}
