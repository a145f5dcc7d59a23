//! One route's choice among its pools, in one generation.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::{Composites, Standby};
use crate::health::failover::{self, Ability, Cause, Failback, Move};
use crate::telemetry::{Event, EventLog, Kind, Severity};

/// One route that leads to several pools.
#[derive(Debug)]
pub struct Switch {
    route: Arc<str>,
    /// What requests read: the heart's word.
    rank: AtomicUsize,
    board: Mutex<Board>,
    moved: Notify,
    /// Handed on from generation to generation.
    tally: Arc<Tally>,
    events: Arc<EventLog>,
}

/// What only one at a time may touch.
#[derive(Debug)]
struct Board {
    heart: failover::Switch,
    places: Vec<Place>,
    /// Since when the present pool serves.
    since: Duration,
    /// The next generation has taken over, and decides.
    retired: bool,
}

/// One of a route's pools at its place.
#[derive(Debug, Clone)]
pub struct Place {
    /// The pool.
    pub standby: Standby,
    /// For how long it is waited for while it is unknown.
    pub wait: Duration,
}

/// Whose changes concern a switch.
#[derive(Debug)]
pub(super) enum Concern {
    /// Of these pools.
    Pools(Vec<Arc<str>>),
    /// Of any: which pools a composite is made of is not known here.
    All,
}

/// How a route stands, for people.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The rank that serves.
    pub rank: usize,
    /// Since when.
    pub since: Duration,
    /// Of each pool: whether it can serve, why it is so, and when the route goes back to it if nothing changes.
    pub pools: Vec<(Ability, String, Option<Duration>)>,
}

/// How often another pool came to serve, by cause.
#[derive(Debug, Default)]
struct Tally([AtomicU64; Cause::ALL.len()]);

impl Switch {
    /// A route's choice among `places` from `now` on; `old` is the one of the generation before, which decides no more. How
    /// its pools stand it knows from its first look on.
    pub fn new(
        old: Option<&Switch>,
        now: Duration,
        route: Arc<str>,
        failback: Failback,
        places: Vec<Place>,
        events: Arc<EventLog>,
    ) -> Switch {
        let (heart, since, tally) = match old {
            Some(old) => {
                let mut board = old.board();
                board.retired = true;
                let kept = places.iter().map(|place| (board.find(&place.standby), place.wait));
                let heart = failover::Switch::reshaped(&board.heart, now, failback, kept);
                let stays = board.places.get(board.heart.present()).map(|place| &place.standby);
                let stays = stays.is_some_and(|before| places[heart.present()].standby.is(before));
                (heart, if stays { board.since } else { now }, old.tally.clone())
            }
            None => {
                let waits = places.iter().map(|place| place.wait);
                (failover::Switch::new(now, failback, waits), now, Arc::default())
            }
        };
        let rank = AtomicUsize::new(heart.present());
        let board = Mutex::new(Board { heart, places, since, retired: false });
        Switch { route, rank, board, moved: Notify::new(), tally, events }
    }

    /// The route's name.
    pub fn route(&self) -> &Arc<str> {
        &self.route
    }

    /// The rank that serves now.
    pub fn rank(&self) -> usize {
        self.rank.load(Relaxed)
    }

    /// Resolves when another pool serves. To miss nothing, enable it before looking at the rank.
    pub fn moved(&self) -> Notified<'_> {
        self.moved.notified()
    }

    /// How often another pool came to serve for this cause.
    pub fn moves(&self, cause: Cause) -> u64 {
        self.tally.of(cause).load(Relaxed)
    }

    /// How often another pool came to serve.
    pub fn all_moves(&self) -> u64 {
        Cause::ALL.into_iter().map(|cause| self.moves(cause)).sum()
    }

    /// Looks at its pools as they stand `now`. Says whether [`Switch::next_deadline`] is another.
    pub fn look(&self, now: Duration, composites: Composites<'_>) -> bool {
        self.step(now, composites, |heart, places, now| {
            let reports = places.iter().map(|place| place.standby.report(composites));
            heart.observe(now, reports)
        })
    }

    /// Lets time pass.
    pub fn advance(&self, now: Duration, composites: Composites<'_>) {
        self.step(now, composites, |heart, _, now| heart.advance(now));
    }

    /// When [`Switch::advance`] will next have something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.board().next_deadline()
    }

    /// How it stands, for people.
    pub fn shown(&self, composites: Composites<'_>) -> Shown {
        let board = self.board();
        let pool = |(rank, place): (usize, &Place)| {
            let Place { standby, .. } = place;
            (board.heart.ability(rank), standby.because(composites), board.heart.failback_at(rank))
        };
        let pools = board.places.iter().enumerate().map(pool).collect();
        Shown { rank: board.heart.present(), since: board.since, pools }
    }

    /// Whose changes concern it: these pools, or, where it goes by a composite, all.
    pub(super) fn concern(&self) -> Concern {
        let board = self.board();
        if board.places.iter().any(|place| place.standby.when.is_some()) {
            return Concern::All;
        }
        Concern::Pools(board.places.iter().map(|place| place.standby.pool.name().clone()).collect())
    }

    fn step(
        &self,
        now: Duration,
        composites: Composites<'_>,
        take: impl FnOnce(&mut failover::Switch, &[Place], Duration) -> Option<Move>,
    ) -> bool {
        let mut board = self.board();
        if board.retired {
            return false;
        }
        let before = board.heart.next_deadline();
        let Board { heart, places, .. } = &mut *board;
        if let Some(step) = take(heart, places, now) {
            board.since = now;
            self.rank.store(step.to, Relaxed);
            self.moved.notify_waiters();
            self.tally.of(step.cause).fetch_add(1, Relaxed);
            // Under the lock, so that what is told has the order of what happened.
            self.events.publish(event(&self.route, &board.places, step, composites));
        }
        board.heart.next_deadline() != before
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        // The heart's steps do not unwind half-way on purpose.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    fn next_deadline(&self) -> Option<Duration> {
        self.heart.next_deadline().filter(|_| !self.retired)
    }

    fn find(&self, standby: &Standby) -> Option<usize> {
        self.places.iter().position(|place| place.standby.is(standby))
    }
}

impl Tally {
    fn of(&self, cause: Cause) -> &AtomicU64 {
        &self.0[cause as usize]
    }
}

/// What is told of a move, with the pool that serves now as it stands.
fn event(route: &str, places: &[Place], step: Move, composites: Composites<'_>) -> Event {
    let (from, to) = (&places[step.from].standby, &places[step.to].standby);
    let (was, is) = (from.pool.name(), to.pool.name());
    let (level, why) = match step.cause {
        Cause::Unable => (Severity::Warn, format!("pool {was} cannot: {}", from.because(composites))),
        Cause::NoneAble => (Severity::Warn, format!("none of its pools can: {}", from.because(composites))),
        Cause::Start => (Severity::Warn, format!("pool {was} cannot at the start: {}", from.because(composites))),
        Cause::Failback => (Severity::Info, format!("it can again: {}", to.because(composites))),
        Cause::Relief => (Severity::Info, format!("it can, as none could: {}", to.because(composites))),
    };
    let level = if step.to < step.from { Severity::Info } else { level };
    let message = format!("route {route}: pool {is} serves, before it was {was}: {why}");
    let roster = to.pool.roster();
    let headline = roster.headline();
    Event {
        route: Some(route.to_owned()),
        pool: Some(is.to_string()),
        from: Some(was.to_string()),
        to: Some(is.to_string()),
        reason: Some(step.cause.as_str()),
        detail: Some(why),
        in_rotation: Some(headline.in_rotation),
        total: Some(headline.total),
        mode: Some(headline.mode.as_str()),
        ..Event::new(Kind::Failover, level, message)
    }
}
