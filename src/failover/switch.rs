//! One route's choice among its pools, in one generation.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::{Composites, Standby};
use crate::health::failover::{self, Ability, Cause, Failback, Move};
use crate::telemetry::{Event, EventLog, Kind, Severity};

/// One route's choice. Of one with a single pool it only remembers what a later generation goes on from.
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
    /// The pool that served in the generation before and is none of the route's any more, until that is told.
    gone: Option<Arc<str>>,
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
        let mut before = old.map(Switch::board);
        let heart = match &mut before {
            Some(before) => before.hand_on(now, failback, &places),
            None => failover::Switch::new(now, failback, places.iter().map(|place| place.wait)),
        };
        let served = before.as_ref().and_then(|before| before.serving());
        let serves = places.get(heart.present());
        let stays = served.zip(serves).is_some_and(|(served, serves)| served.standby.is(&serves.standby));
        let is_choice = places.len() > 1 || before.as_ref().is_some_and(|before| before.is_choice());
        let gone = served.filter(|_| !stays && is_choice).map(|served| served.standby.pool.name().clone());
        let since = before.as_ref().filter(|_| stays).map_or(now, |before| before.since);
        drop(before);
        let tally = old.map_or_else(Arc::default, |old| old.tally.clone());
        let rank = AtomicUsize::new(heart.present());
        let board = Mutex::new(Board { heart, places, since, gone, retired: false });
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

    /// Since when the present pool serves.
    pub fn since(&self) -> Duration {
        self.board().since
    }

    /// Whether there is anything to choose.
    pub(super) fn is_choice(&self) -> bool {
        self.board().is_choice()
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
        let before = board.next_deadline();
        let is_choice = board.is_choice();
        let Board { heart, places, .. } = &mut *board;
        let mut step = if is_choice { take(heart, places, now) } else { None };
        let present = heart.present();
        // Under the lock, so that what is told has the order of what happened.
        if let Some(gone) = board.gone.take() {
            self.tell(&board, &Past { pool: &gone, rank: None }, present, Cause::Removed, composites);
            // Where it began was no pool that served.
            step = step.filter(|step| step.cause == Cause::NoneAble).map(|step| Move { from: present, ..step });
        }
        if self.rank.swap(present, Relaxed) != present {
            board.since = now;
            self.moved.notify_waiters();
        }
        if let Some(Move { from, to, cause }) = step {
            let pool = board.places[from].standby.pool.name();
            self.tell(&board, &Past { pool, rank: Some(from) }, to, cause, composites);
        }
        board.next_deadline() != before
    }

    /// Counts where it is another pool that serves, and tells people.
    fn tell(&self, board: &Board, past: &Past<'_>, to: usize, cause: Cause, composites: Composites<'_>) {
        if past.rank != Some(to) {
            self.tally.of(cause).fetch_add(1, Relaxed);
        }
        self.events.publish(event(&self.route, &board.places, past, to, cause, composites));
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        // The heart's steps do not unwind half-way on purpose.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who served before.
struct Past<'a> {
    pool: &'a str,
    /// `None`: it is none of the route's any more.
    rank: Option<usize>,
}

impl Board {
    fn next_deadline(&self) -> Option<Duration> {
        self.heart.next_deadline().filter(|_| !self.retired && self.is_choice())
    }

    fn is_choice(&self) -> bool {
        self.places.len() > 1
    }

    fn serving(&self) -> Option<&Place> {
        self.places.get(self.heart.present())
    }

    /// Decides no more; the next generation, which leads to `places`, goes on from here.
    fn hand_on(&mut self, now: Duration, failback: Failback, places: &[Place]) -> failover::Switch {
        self.retired = true;
        let waits = places.iter().map(|place| place.wait);
        let kept = self.find(places);
        let present = kept.iter().position(|was| *was == Some(self.heart.present()));
        match present {
            // How it stands nobody has followed: it had no choice.
            Some(present) if !self.is_choice() => failover::Switch::widened(now, failback, waits, present),
            _ => failover::Switch::reshaped(&self.heart, now, failback, kept.into_iter().zip(waits)),
        }
    }

    /// Of each of the next generation's `places`, which of these it was: the same pool, and if that has several ranks the
    /// one that goes by the same; the one that serves is found if its pool is still there.
    fn find(&self, places: &[Place]) -> Vec<Option<usize>> {
        let mut kept: Vec<Option<usize>> = vec![None; places.len()];
        for by_the_same in [true, false] {
            for (rank, Place { standby, .. }) in places.iter().enumerate() {
                let was = |(before, place): (usize, &Place)| {
                    let is = place.standby.is(standby) && (!by_the_same || place.standby.when == standby.when);
                    (is && !kept.contains(&Some(before))).then_some(before)
                };
                kept[rank] = kept[rank].or_else(|| self.places.iter().enumerate().find_map(was));
            }
        }
        let present = self.heart.present();
        if !kept.contains(&Some(present))
            && let Some(serving) = self.serving()
            && let Some(rank) = places.iter().position(|place| place.standby.is(&serving.standby))
        {
            kept[rank] = Some(present);
        }
        kept
    }
}

impl Tally {
    fn of(&self, cause: Cause) -> &AtomicU64 {
        &self.0[cause as usize]
    }
}

/// What is told, with the pool that serves now as it stands.
fn event(route: &str, places: &[Place], past: &Past<'_>, to: usize, cause: Cause, composites: Composites<'_>) -> Event {
    let (was, is) = (past.pool, &places[to].standby);
    let before = || past.rank.map(|rank| places[rank].standby.because(composites)).unwrap_or_default();
    let (level, why) = match cause {
        Cause::Unable => (Severity::Warn, format!("pool {was} cannot: {}", before())),
        Cause::NoneAble => (Severity::Warn, format!("none of its pools can: {}", before())),
        Cause::Start => (Severity::Warn, format!("pool {was} cannot at the start: {}", before())),
        Cause::Failback => (Severity::Info, format!("it can again: {}", is.because(composites))),
        Cause::Relief => (Severity::Info, format!("it can, as none could: {}", is.because(composites))),
        Cause::Removed => (Severity::Info, format!("pool {was} is none of its pools any more")),
    };
    // To a better one is good news, but where it is only the better of the bad.
    let is_better = past.rank.is_some_and(|rank| to < rank) && cause != Cause::NoneAble;
    let level = if is_better { Severity::Info } else { level };
    let is = &is.pool;
    let message = if past.rank == Some(to) {
        format!("route {route}: pool {} serves on: {why}", is.name())
    } else {
        format!("route {route}: pool {} serves, before it was {was}: {why}", is.name())
    };
    let roster = is.roster();
    let headline = roster.headline();
    Event {
        route: Some(route.to_owned()),
        pool: Some(is.name().to_string()),
        from: Some(was.to_owned()),
        to: Some(is.name().to_string()),
        reason: Some(cause.as_str()),
        detail: Some(why),
        in_rotation: Some(headline.in_rotation),
        total: Some(headline.total),
        mode: Some(headline.mode.as_str()),
        ..Event::new(Kind::Failover, level, message)
    }
}
