//! One task: it waits for its time, makes its probe, reports to all who asked for it, and comes back when the schedule says.
//!
//! Nothing it does ends it but its members' leaving: a round that panics is counted, and another follows. Waiting for a
//! place comes before the dial, so a probe that had to wait is late and not slow.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::schedule::{Grid, Last};
use super::{Counters, Kept, Target};
use crate::clock;
use crate::health::{Class, Outcome, Pace, Reason, Sample};

/// First probes in flight at once: all members of a restarted proxy are due in the same instant (health.md §2).
const FIRST_ROUND: usize = 256;
/// A probe that panicked is made again after this, doubled each time, up to its interval.
const BACKOFF: Duration = Duration::from_millis(100);

/// What the tasks share.
pub(super) struct Desk {
    places: Mutex<Arc<Semaphore>>,
    first_round: Semaphore,
    counters: Arc<Counters>,
}

impl Desk {
    /// A desk with so many places.
    pub(super) fn new(places: usize) -> Desk {
        Desk {
            places: Mutex::new(semaphore(places)),
            first_round: Semaphore::new(FIRST_ROUND),
            counters: Arc::default(),
        }
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// So many places from now on. Who has one of the old keeps it, and who waits for one gets it as they are given back.
    pub(super) fn set_places(&self, places: usize) {
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = semaphore(places);
    }

    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Ok(place) = places.clone().try_acquire_owned() {
            return Some(place);
        }
        self.counters.late.fetch_add(1, Relaxed);
        places.acquire_owned().await.ok()
    }
}

fn semaphore(places: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)))
}

/// One task, from inside.
pub(super) struct Task {
    desk: Arc<Desk>,
    targets: watch::Receiver<Vec<Target>>,
    now: Arc<Notify>,
    share: f64,
    /// What the last probe failed of, where it did.
    failing: Option<Reason>,
    /// The connection of the last probe, where it is to be used again.
    kept: Kept,
}

/// What one round found.
struct Round {
    last: Last,
    pace: Pace,
}

impl Task {
    /// The task that asks for `targets`, on a grid at `share` of its interval; `now` asks for a probe.
    pub(super) fn new(desk: Arc<Desk>, targets: watch::Receiver<Vec<Target>>, now: Arc<Notify>, share: f64) -> Task {
        Task { desk, targets, now, share, failing: None, kept: Kept::default() }
    }

    /// Runs for as long as anybody wants it.
    pub(super) async fn attend(mut self) {
        let mut due = clock::monotonic();
        let mut known: Option<Round> = None;
        let mut first = true;
        let mut panics = 0;
        loop {
            if !self.wait(due, known.as_ref()).await {
                return;
            }
            match caught(self.round(first)).await.and_then(|round| round) {
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

    /// Waits until the next probe is due, or wanted now; false: nobody wants one any more.
    async fn wait(&mut self, mut due: Duration, known: Option<&Round>) -> bool {
        loop {
            self.plan(due);
            let at = Instant::now() + due.saturating_sub(clock::monotonic());
            tokio::select! {
                // One that is wanted now and due now is one.
                biased;
                () = self.now.notified() => return true,
                () = tokio::time::sleep_until(at) => return true,
                changed = self.targets.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    due = known.map_or(due, |round| self.next(round));
                }
            }
        }
    }

    /// Nobody's member any more: waits for others to probe it for; false: nobody wants it.
    ///
    /// It does not end by itself: whoever hands over members meanwhile has to find somebody who takes them.
    async fn is_handed_over(&mut self) -> bool {
        self.kept = Kept::default();
        self.plan(Duration::ZERO);
        self.targets.changed().await.is_ok()
    }

    /// One probe and its reports; `None`: the member is gone, whoever asked for it.
    async fn round(&mut self, first: bool) -> Result<Option<Round>, Panic> {
        let seat = if first { self.desk.first_round.acquire().await.ok() } else { None };
        let place = self.desk.place().await;
        let Some(check) = self.targets.borrow().first().map(|target| target.check.clone()) else {
            return Ok(None);
        };
        let flight = Flight::begin(&self.desk.counters);
        let started = clock::monotonic();
        let sample = check.run_again(&mut self.kept).await;
        let ended = clock::monotonic();
        flight.land(&sample);
        drop((place, seat));
        self.tell_of_a_new_failure(&sample);
        let pace = self.report(ended, &sample)?;
        Ok(pace.map(|pace| Round { last: Last { started, ended }, pace }))
    }

    /// Tells everyone, also those after one who panics. Who is told may be others than when the probe began: a reload
    /// brings its own.
    fn report(&self, now: Duration, sample: &Sample) -> Result<Option<Pace>, Panic> {
        let targets = self.targets.borrow().clone();
        let tell = |target: &Target| {
            catch_unwind(AssertUnwindSafe(|| (target.report)(now, sample.clone()))).map_err(Panic::new)
        };
        let told: Vec<_> = targets.iter().map(tell).collect();
        let paces: Vec<_> = told.into_iter().collect::<Result<_, _>>()?;
        let paces = paces.into_iter().flatten();
        // In doubt for one is in doubt.
        Ok(paces.reduce(|one, other| if one == Pace::Fast { one } else { other }))
    }

    /// The first fail of a row, and the first of another kind in it: whoever looks for the cause need not wait for a verdict.
    fn tell_of_a_new_failure(&mut self, sample: &Sample) {
        let reason = match sample.outcome {
            Outcome::Inconclusive => return,
            Outcome::Pass => None,
            Outcome::Fail(reason) => Some(reason),
        };
        let before = std::mem::replace(&mut self.failing, reason);
        let Some(reason) = reason.filter(|reason| before != Some(*reason)) else { return };
        let (reason, detail) = (reason.as_str(), &sample.detail);
        for Target { pool, label: member, .. } in self.targets.borrow().iter() {
            tracing::info!(target: "probe", %pool, %member, reason, detail, "pool {pool}, {member}: a probe failed, {reason}: {detail}");
        }
    }

    fn next(&self, round: &Round) -> Duration {
        let targets = self.targets.borrow();
        let Some(target) = targets.first() else { return round.last.ended };
        let interval = idle_interval(&targets, round).unwrap_or(target.interval);
        Grid::new(interval, target.fast_interval, self.share).next(round.last, round.pace, fastrand::f64())
    }

    fn interval(&self) -> Duration {
        self.targets.borrow().first().map_or(Duration::ZERO, |target| target.interval)
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

/// The interval of a member that is no cause for doubt and that nobody uses, in any of the pools that probe it.
fn idle_interval(targets: &[Target], round: &Round) -> Option<Duration> {
    let idle = |target: &Target| target.idle.as_ref().is_some_and(|idle| (idle.is_idle)(round.last.ended));
    // Each is asked: it is the asking that wipes off the marks of use.
    let idle = targets.iter().filter(|target| idle(target)).count() == targets.len();
    (idle && round.pace == Pace::Steady).then(|| targets.first()?.idle.as_ref().map(|idle| idle.interval)).flatten()
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
