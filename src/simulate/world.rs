//! The world: one generation of real pools and routes, and time that goes from one thing to the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Run;
use super::agenda::{Agenda, Item};
use super::chronicle::Chronicle;
use super::requests::Requests;
use super::stand::{Attendance, Stand, located};
use crate::composite::Composites;
use crate::config::scenario::{Deed, Policy, Scenario, Turn};
use crate::failover::Switchboard;
use crate::health::State;
use crate::pool::Audience;
use crate::probe::schedule::{Timetable, share};
use crate::snapshot::{Found, Snapshot};
use crate::telemetry::{EventLog, Kind, Severity};

/// All of it.
pub(super) struct World<'s> {
    pub(super) scenario: &'s Scenario,
    policy: &'s Policy,
    pub(super) now: Duration,
    pub(super) agenda: Agenda,
    pub(super) snapshot: Snapshot,
    /// The pools of each route, by rank.
    pub(super) ways: Vec<Vec<usize>>,
    /// The route of each kind of traffic.
    pub(super) routes: Vec<usize>,
    pub(super) stands: Vec<Stand>,
    pub(super) requests: Requests,
    /// Those that wait for a first verdict.
    pub(super) waiting: Vec<usize>,
    /// How many of each kind of traffic have come.
    come: Vec<u64>,
    told: usize,
    board: Arc<Switchboard>,
    failback: Option<Duration>,
    chronicle: Chronicle,
}

impl<'s> World<'s> {
    /// The world at its beginning.
    pub(super) fn new(scenario: &'s Scenario, policy: &'s Policy) -> World<'s> {
        let events: Arc<EventLog> = Arc::default();
        let composites = Arc::new(Composites::new(events.clone()));
        let known = composites.clone();
        let board = Arc::new(Switchboard::new(move |name| known.state(name).unwrap_or(State::Unknown)));
        // Routes go by composites, and are told after them.
        let audience = Arc::new(Audience { events, onlookers: vec![composites.clone(), board.clone()] });
        let mut found = Found::default();
        for (place, (name, pool)) in policy.config.pools.iter().enumerate() {
            found.insert(name, located(place, pool, |member| attends(scenario, name, member)));
        }
        let snapshot = Snapshot::next(None, Duration::ZERO, policy.config.clone(), &found, &HashMap::new(), &audience);
        snapshot.look_again(Duration::ZERO, &composites);
        board.follow(Duration::ZERO, snapshot.switches());
        let offset = fastrand::f64();
        let mut posts = 0;
        let mut timetable = || {
            posts += 1;
            Timetable::new(share(offset, posts - 1))
        };
        let names: Vec<&String> = policy.config.pools.keys().collect();
        let stand = |(place, name): (usize, &&String)| {
            let served = snapshot.pools[*name].clone();
            Stand::new(place, served, scenario, |member| attends(scenario, name, member), &mut timetable)
        };
        let stands = names.iter().enumerate().map(stand).collect();
        let place = |pool: &str| names.iter().position(|name| *name == pool);
        let way = |way: &crate::snapshot::Way| {
            way.stops().iter().filter_map(|stop| place(&stop.served.config.name)).collect()
        };
        let routes = scenario.traffic.iter().map(|one| snapshot.routes.find_place(&one.host, &one.path));
        let routes = routes.map(|route| route.unwrap_or_default()).collect();
        let mut world = World {
            scenario,
            policy,
            now: Duration::ZERO,
            agenda: Agenda::default(),
            ways: snapshot.ways.iter().map(way).collect(),
            routes,
            stands,
            requests: Requests::default(),
            waiting: Vec::new(),
            come: vec![0; scenario.traffic.len()],
            told: 0,
            failback: None,
            board,
            chronicle: Chronicle::new(audience.events.clone()),
            snapshot,
        };
        world.begin();
        world
    }

    /// Lets everything happen until the end.
    pub(super) fn go_on(&mut self) {
        while let Some((at, item)) = self.agenda.next() {
            if at >= self.scenario.duration {
                break;
            }
            self.now = at;
            self.happens(item);
        }
        self.now = self.scenario.duration;
    }

    /// What came of it.
    pub(super) fn end(self) -> Run {
        let end = self.scenario.duration;
        let timeline = self.chronicle.entries();
        let mut pools: Vec<_> = self.stands.into_iter().map(|stand| stand.run(end)).collect();
        for pool in &mut pools {
            let is_failover = |entry: &&super::Entry| {
                let event = &entry.event;
                event.kind == Kind::Failover
                    && event.level == Severity::Warn
                    && !event.observed
                    && event.pool.as_deref() == Some(&pool.name)
            };
            pool.totals.failovers = timeline.iter().filter(is_failover).count() as u64;
        }
        Run { policy: self.policy.name.clone(), timeline, pools }
    }

    fn begin(&mut self) {
        // The story first: what is so from the beginning is so for the first probe.
        if let Some(turn) = self.scenario.story.first() {
            self.agenda.note(turn.at, Item::Turn);
        }
        self.stands.iter_mut().for_each(|stand| stand.begin(Duration::ZERO, &mut self.agenda));
        for (traffic, one) in self.scenario.traffic.iter().enumerate() {
            if one.from < one.until {
                self.agenda.note(one.from, Item::Request { traffic });
            }
        }
        (0..self.stands.len()).for_each(|pool| self.settle(pool));
    }

    fn happens(&mut self, item: Item) {
        let (now, agenda) = (self.now, &mut self.agenda);
        match item {
            Item::Turn => self.turns(),
            Item::Flap { pool, member, round } => self.stands[pool].flap(now, member, round, agenda),
            Item::Probe { pool, member, round } => self.stands[pool].probe(now, member, round, agenda),
            Item::Sample { pool, member, round } => {
                self.stands[pool].sample(now, member, round, agenda);
                self.settle(pool);
            }
            Item::Deadline { pool } => {
                self.stands[pool].live().advance(now);
                self.settle(pool);
            }
            Item::Failback => {
                self.board.advance(now);
                self.failback = None;
                self.settle(0);
            }
            Item::Request { traffic } => {
                self.note_next(traffic);
                self.request(traffic);
            }
            Item::Attempt { request, number } => self.attempt_ends(request, number),
        }
    }

    /// All turns of the story that are of now.
    fn turns(&mut self) {
        while let Some(turn) = self.scenario.story.get(self.told) {
            if turn.at > self.now {
                self.agenda.note(turn.at, Item::Turn);
                break;
            }
            self.told += 1;
            self.turn(turn);
        }
    }

    fn turn(&mut self, turn: &Turn) {
        let Some(pool) = self.policy.config.pools.keys().position(|name| *name == turn.pool) else { return };
        let (stand, now, agenda) = (&mut self.stands[pool], self.now, &mut self.agenda);
        match turn.deed {
            Deed::Answers(manner) => stand.behaves(now, turn.member, manner, agenda),
            Deed::TakesLonger(latency) => stand.takes(now, turn.member, latency),
            Deed::Joins => stand.attend(now, turn.member, Attendance::Present, agenda),
            Deed::Leaves => stand.attend(now, turn.member, Attendance::Absent, agenda),
            Deed::Ordered(admin) => stand.order(now, turn.member, admin, agenda),
        }
        self.settle(pool);
    }

    /// The request after this one.
    fn note_next(&mut self, traffic: usize) {
        let one = &self.scenario.traffic[traffic];
        self.come[traffic] += 1;
        let since = one.rate.between.as_nanos() * u128::from(self.come[traffic]);
        let next = one.from + Duration::from_nanos(since as u64);
        if next < one.until {
            self.agenda.note(next, Item::Request { traffic });
        }
    }

    /// Something may have changed in a pool: it is written down, and whoever waited looks.
    pub(super) fn settle(&mut self, pool: usize) {
        self.chronicle.listen(self.now);
        let stand = &mut self.stands[pool];
        if stand.is_other() {
            stand.write_down(self.now);
        }
        stand.note_deadline(&mut self.agenda);
        let failback = self.board.next_deadline();
        if let Some(at) = failback.filter(|_| failback != self.failback) {
            self.agenda.note(at, Item::Failback);
        }
        self.failback = failback;
        self.rescue(pool);
        if !self.waiting.is_empty() {
            self.look_again();
        }
    }
}

/// Whether a member is one from the beginning: whoever joins first, was none before.
fn attends(scenario: &Scenario, pool: &str, member: usize) -> Attendance {
    let its = scenario.story.iter().filter(|turn| turn.pool == pool && turn.member == member);
    let mut moves = its.filter(|turn| matches!(turn.deed, Deed::Joins | Deed::Leaves));
    match moves.next().map(|turn| turn.deed) {
        Some(Deed::Joins) => Attendance::Absent,
        _ => Attendance::Present,
    }
}
