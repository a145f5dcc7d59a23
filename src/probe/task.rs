//! One task: it waits for its time, makes its probe, reports to all who asked for it, and comes back when the schedule says.
//!
//! Nothing it does ends it but its members' leaving: a round that panics is counted, and another follows. Waiting for a
//! place comes before the dial, so a probe that had to wait is late and not slow.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use super::ceiling::Lane;
use super::gate::{Claim, Gate};
use super::places::{Place, Places};
use super::schedule::{Ask, Last, Tempo, Timetable};
use super::shelf::Shelf;
use super::target::MemberOf;
use super::{Allowance, Counters, Idle, Kept, Taping, Target, Tracks};
use crate::clock;
use crate::health::{Class, Outcome, Pace, Reason, Sample};

/// First probes in flight at once: all members of a restarted proxy are due in the same instant (health.md §2).
const FIRST_ROUND: usize = 256;
/// A probe that panicked is made again after this, doubled each time, up to its interval.
const BACKOFF: Duration = Duration::from_millis(100);
/// A start that is later than this counts as late.
const LATE: Duration = Duration::from_millis(250);

/// What the tasks share.
pub(super) struct Desk {
    places: Arc<Places>,
    /// Of the places, those that the limit on descriptors leaves.
    most: usize,
    shelf: Arc<Shelf>,
    first_round: Semaphore,
    gate: Arc<Gate>,
    is_taping: AtomicBool,
    counters: Arc<Counters>,
}

impl Desk {
    /// A desk with so many places, or as many as are allowed.
    pub(super) fn new(places: usize, allowance: Allowance) -> Desk {
        let (most, counters) = (allowance.in_flight, allowance.counters.clone());
        Desk {
            places: Places::new(places.min(most)),
            most,
            shelf: Shelf::new(allowance),
            first_round: Semaphore::new(FIRST_ROUND),
            gate: Arc::default(),
            is_taping: AtomicBool::new(false),
            counters,
        }
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Where probes wait for their turn under the ceiling.
    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// So many places from now on, or as many as are allowed. Who has one keeps it, and counts.
    pub(super) fn set_places(&self, places: usize) {
        self.places.set(places.min(self.most));
    }

    /// As many places as are allowed.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Where connections are kept.
    pub(super) fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// Whether probes leave tracks from now on.
    pub(super) fn set_taping(&self, taping: Taping) {
        self.is_taping.store(taping == Taping::On, Relaxed);
    }

    async fn place(&self) -> Option<Place> {
        if let Some(place) = self.places.try_take() {
            return Some(place);
        }
        self.counters.late.fetch_add(1, Relaxed);
        self.places.take().await
    }
}

/// What a task does, for those who look.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// When its last probe began, in microseconds of monotonic time; 0: none has.
    pub(super) started: AtomicU64,
    /// Its interval as it is now, in microseconds.
    pub(super) every: AtomicU64,
    /// Probes that began more than a quarter of a second after they were due.
    pub(super) late: AtomicU64,
    pub(super) in_doubt: AtomicBool,
    pub(super) idle: AtomicBool,
}

/// One task, from inside.
pub(super) struct Task {
    desk: Arc<Desk>,
    targets: watch::Receiver<Vec<Target>>,
    now: Arc<Notify>,
    notes: Arc<Notes>,
    timetable: Timetable,
    claim: Claim,
    /// What the last probe failed of, where it did.
    failing: Option<Reason>,
    /// The connection of the last probe, where it is to be used again.
    kept: Kept,
    /// Why the last probe taught nothing, where it did not.
    unsure: String,
}

/// What one round found.
struct Round {
    last: Last,
    /// Those who doubt their verdict.
    doubting: Vec<MemberOf>,
}

/// Why it is time for a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// It is the first.
    First,
    /// Somebody wants one.
    Wanted,
    /// It was to begin at this time.
    Due(Duration),
}

impl Task {
    /// The task that asks for `targets`, with its grid at `share` of its interval; `now` asks for a probe.
    pub(super) fn new(
        desk: Arc<Desk>,
        targets: watch::Receiver<Vec<Target>>,
        now: Arc<Notify>,
        notes: Arc<Notes>,
        share: f64,
    ) -> Task {
        let mut claim = Claim::new(desk.gate.clone());
        // Before it runs: whoever comes next has to know how many there are.
        claim.set(tempo(&targets.borrow(), &[], None));
        let kept = Kept::on(desk.shelf.clone());
        Task {
            desk,
            targets,
            now,
            notes,
            timetable: Timetable::new(share),
            claim,
            failing: None,
            unsure: String::new(),
            kept,
        }
    }

    /// Runs for as long as anybody wants it.
    pub(super) async fn attend(mut self) {
        let mut due = clock::monotonic();
        let mut known: Option<Round> = None;
        let mut first = true;
        let mut panics = 0;
        loop {
            let Some(call) = self.wait(due, known.as_ref()).await else { return };
            let call = if first { Call::First } else { call };
            let urgent = known.as_ref().is_none_or(|round| !round.doubting.is_empty());
            match caught(self.round(call, urgent)).await.and_then(|round| round) {
                Ok(Some(round)) => {
                    panics = 0;
                    due = self.next(&round);
                    known = Some(round);
                }
                Ok(None) => {
                    if !self.is_handed_over().await {
                        return;
                    }
                    due = clock::monotonic();
                    known = None;
                }
                Err(panic) => {
                    self.mourn(&panic);
                    due = clock::monotonic() + self.interval().min(BACKOFF * 2u32.saturating_pow(panics));
                    panics += 1;
                    known = None;
                }
            }
            first = false;
        }
    }

    /// Waits until the next probe is due, or wanted now; `None`: nobody wants one any more.
    async fn wait(&mut self, mut due: Duration, known: Option<&Round>) -> Option<Call> {
        loop {
            self.plan(due);
            let at = Instant::now() + due.saturating_sub(clock::monotonic());
            tokio::select! {
                // One that is wanted now and due now is one.
                biased;
                () = self.now.notified() => return Some(Call::Wanted),
                () = tokio::time::sleep_until(at) => return Some(Call::Due(due)),
                changed = self.targets.changed() => {
                    changed.ok()?;
                    due = known.map_or(due, |round| self.again(round, due));
                }
            }
        }
    }

    /// Nobody's member any more: waits for others to probe it for; false: nobody wants it.
    ///
    /// It does not end by itself: whoever hands over members meanwhile has to find somebody who takes them.
    async fn is_handed_over(&mut self) -> bool {
        self.kept.clear();
        self.plan(Duration::ZERO);
        self.claim.set(None);
        self.targets.changed().await.is_ok()
    }

    /// One probe and its reports; `None`: the member is gone, whoever asked for it.
    async fn round(&mut self, call: Call, urgent: bool) -> Result<Option<Round>, Panic> {
        let seat = if call == Call::First { self.desk.first_round.acquire().await.ok() } else { None };
        let place = self.desk.place().await;
        let is_steady = matches!(call, Call::Due(_)) && !urgent;
        // Last of all, since whoever has had a turn has to begin: the ceiling is on beginnings.
        self.desk.gate.pass(if is_steady { Lane::Steady } else { Lane::Urgent }).await;
        let Some(check) = self.targets.borrow().first().map(|target| target.check.clone()) else {
            return Ok(None);
        };
        let flight = Flight::begin(&self.desk.counters);
        let started = clock::monotonic();
        self.note(call, started);
        // On the heap while it runs: ten thousand tasks that only wait would have room for it otherwise.
        let (sample, tracks) = match self.desk.is_taping.load(Relaxed) {
            true => {
                let (sample, tracks) = Box::pin(check.run_taped(&mut self.kept)).await;
                (sample, Some(tracks))
            }
            false => (Box::pin(check.run_again(&mut self.kept)).await, None),
        };
        let ended = clock::monotonic();
        flight.land(&sample);
        drop((place, seat));
        self.tell_of_a_new_failure(&sample);
        let planned = if let Call::Due(due) = call { due.min(started) } else { started };
        let doubting = self.report(ended, &sample, tracks.as_ref())?;
        Ok(doubting.map(|doubting| Round { last: Last { planned, started, ended }, doubting }))
    }

    /// Tells everyone, also those after one who panics. Who is told may be others than when the probe began: a reload
    /// brings its own. Answers with those who doubt; `None`: nobody knows the member any more.
    fn report(
        &self,
        now: Duration,
        sample: &Sample,
        tracks: Option<&Tracks<'_>>,
    ) -> Result<Option<Vec<MemberOf>>, Panic> {
        let targets = self.targets.borrow().clone();
        let tell = |target: &Target| {
            catch_unwind(AssertUnwindSafe(|| (target.report)(now, sample.clone(), tracks))).map_err(Panic::new)
        };
        let told: Vec<_> = targets.iter().map(tell).collect();
        let paces: Vec<_> = told.into_iter().collect::<Result<_, _>>()?;
        let doubting = targets.iter().zip(&paces).filter(|(_, pace)| **pace == Some(Pace::Fast));
        let doubting = doubting.map(|(target, _)| target.key()).collect();
        Ok(paces.iter().any(Option::is_some).then_some(doubting))
    }

    /// The first fail of a row, and the first of another kind in it: whoever looks for the cause need not wait for a verdict.
    fn tell_of_a_new_failure(&mut self, sample: &Sample) {
        let reason = match sample.outcome {
            Outcome::Inconclusive => return self.tell_of_new_doubt(sample),
            Outcome::Pass => None,
            Outcome::Fail(reason) => Some(reason),
        };
        self.unsure.clear();
        let before = std::mem::replace(&mut self.failing, reason);
        let Some(reason) = reason.filter(|reason| before != Some(*reason)) else { return };
        let (reason, detail) = (reason.as_str(), &sample.detail);
        for Target { pool, label: member, .. } in self.targets.borrow().iter() {
            tracing::info!(target: "probe", %pool, %member, reason, detail, "pool {pool}, {member}: a probe failed, {reason}: {detail}");
        }
    }

    /// The first probe of a row that taught nothing, since a fault of this machine is nobody's verdict and seen nowhere else.
    fn tell_of_new_doubt(&mut self, sample: &Sample) {
        let detail = &sample.detail;
        if self.unsure == *detail {
            return;
        }
        self.unsure.clone_from(detail);
        for Target { pool, label: member, .. } in self.targets.borrow().iter() {
            tracing::warn!(target: "probe", %pool, %member, detail, "pool {pool}, {member}: a probe taught nothing: {detail}");
        }
    }

    fn next(&mut self, round: &Round) -> Duration {
        let Some((tempo, factor)) = self.asked(round) else { return round.last.ended };
        self.timetable.next(tempo, round.last, factor, fastrand::f64())
    }

    /// The same where others ask, or the same ones something else, while the next is planned for `due`.
    fn again(&mut self, round: &Round, due: Duration) -> Duration {
        let Some((tempo, factor)) = self.asked(round) else { return due };
        self.timetable.again(tempo, round.last, factor, clock::monotonic(), due)
    }

    /// What is asked for now, and how many times as long its intervals are.
    fn asked(&mut self, round: &Round) -> Option<(Tempo, f64)> {
        let tempo = tempo(&self.targets.borrow(), &round.doubting, Some(clock::monotonic()));
        self.claim.set(tempo);
        let (tempo, stretch) = (tempo?, self.desk.gate.stretch());
        let factor = if tempo.in_doubt { stretch.doubt } else { stretch.steady };
        self.notes.every.store(tempo.step().mul_f64(factor).as_micros() as u64, Relaxed);
        self.notes.in_doubt.store(tempo.in_doubt, Relaxed);
        self.notes.idle.store(tempo.idle, Relaxed);
        Some((tempo, factor))
    }

    fn note(&self, call: Call, started: Duration) {
        self.notes.started.store(started.as_micros() as u64, Relaxed);
        self.desk.gate.tell(started);
        if let Call::Due(due) = call {
            let late = started.saturating_sub(due);
            self.desk.counters.lateness.add(late);
            self.notes.late.fetch_add(u64::from(late > LATE), Relaxed);
        }
    }

    fn interval(&self) -> Duration {
        self.targets.borrow().iter().map(|target| target.interval).min().unwrap_or_default()
    }

    fn plan(&self, due: Duration) {
        let us = due.as_micros() as u64;
        self.targets.borrow().iter().for_each(|target| target.next_probe_at.store(us, Relaxed));
    }

    fn mourn(&self, panic: &Panic) {
        self.desk.counters.panics.fetch_add(1, Relaxed);
        let targets = self.targets.borrow();
        let Some(target) = targets.first() else { return };
        let (pool, member, panic) = (&target.pool, &target.label, &panic.0);
        tracing::error!(target: "probe", %pool, %member, %panic, "a probe panicked; it is made again");
    }
}

/// What those who share a probe ask for together; without a `now`, as if all were in use.
fn tempo(targets: &[Target], doubting: &[MemberOf], now: Option<Duration>) -> Option<Tempo> {
    let is_idle = |idle: &Idle| now.is_some_and(|now| (idle.is_idle)(now));
    let ask = |target: &Target| Ask {
        interval: target.interval,
        fast: target.fast_interval,
        idle: target.idle.as_ref().filter(|idle| is_idle(idle)).map(|idle| idle.interval),
        doubts: doubting.iter().any(|(pool, member)| *member == target.member && *pool == target.pool),
    };
    // Each is asked once whether it is idle: it is the asking that wipes off the marks of use.
    let asks: Vec<Ask> = targets.iter().map(ask).collect();
    Tempo::of(asks.iter().copied())
}

/// A probe under way: one that is dropped before it lands taught nothing.
struct Flight<'a> {
    counters: &'a Counters,
    landed: bool,
}

impl<'a> Flight<'a> {
    fn begin(counters: &'a Counters) -> Flight<'a> {
        counters.started.fetch_add(1, Relaxed);
        Flight { counters, landed: false }
    }

    fn land(mut self, sample: &Sample) {
        self.landed = true;
        let counter = match sample.outcome {
            Outcome::Pass => &self.counters.passed,
            Outcome::Fail(_) => &self.counters.failed,
            Outcome::Inconclusive => &self.counters.inconclusive,
        };
        counter.fetch_add(1, Relaxed);
        if matches!(sample.outcome, Outcome::Fail(reason) if reason.class() == Class::Unreachable) {
            self.counters.unreachable.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.landed {
            self.counters.inconclusive.fetch_add(1, Relaxed);
        }
    }
}

/// What somebody said who panicked.
struct Panic(String);

impl Panic {
    fn new(payload: Box<dyn Any + Send>) -> Panic {
        let message = payload.downcast_ref::<&str>().map(|text| text.to_string());
        Panic(message.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default())
    }
}

/// Runs a future whose panic is an answer too.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Panic> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Err(payload) => Poll::Ready(Err(Panic::new(payload))),
    })
    .await
}
