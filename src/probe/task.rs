//! One member's task: it waits for its time, makes its probe, reports, and asks the schedule when to come back.
//!
//! Nothing it does ends it but its member's leaving: a round that panics is counted, and another follows. Waiting for a
//! place comes before the dial, so a probe that had to wait is late and not slow.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use super::schedule::{Grid, Last};
use super::{Counters, Target};
use crate::clock;
use crate::health::{Class, Outcome, Pace, Sample};

/// First probes in flight at once: all members of a restarted proxy are due in the same instant (health.md §2).
const FIRST_ROUND: usize = 256;
/// A task that panicked is back after this, doubled each time it does so again.
const BACKOFF: Duration = Duration::from_millis(100);
/// But no later than after this.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// What the tasks share.
pub(super) struct Desk {
    places: Semaphore,
    first_round: Semaphore,
    counters: Arc<Counters>,
}

impl Desk {
    /// A desk with so many places.
    pub(super) fn new(places: usize) -> Desk {
        Desk {
            places: Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)),
            first_round: Semaphore::new(FIRST_ROUND),
            counters: Arc::default(),
        }
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Some(place);
        }
        self.counters.late.fetch_add(1, Relaxed);
        self.places.acquire().await.ok()
    }
}

/// One member's task, from inside.
pub(super) struct Task {
    desk: Arc<Desk>,
    target: watch::Receiver<Target>,
    now: Arc<Notify>,
    share: f64,
}

/// What one round found.
struct Round {
    last: Last,
    pace: Pace,
}

impl Task {
    /// The task of the member in `target`, on a grid at `share` of its interval; `now` asks for a probe.
    pub(super) fn new(desk: Arc<Desk>, target: watch::Receiver<Target>, now: Arc<Notify>, share: f64) -> Task {
        Task { desk, target, now, share }
    }

    /// Runs for as long as the member is followed.
    pub(super) async fn attend(mut self) {
        let mut due = clock::monotonic();
        let mut known: Option<Round> = None;
        let mut first = true;
        let mut panics = 0;
        loop {
            if !self.wait(due, known.as_ref()).await {
                return;
            }
            match caught(self.round(first)).await {
                Ok(Some(round)) => {
                    panics = 0;
                    due = self.next(&round);
                    known = Some(round);
                }
                // The member is gone.
                Ok(None) => return self.plan(Duration::ZERO),
                Err(what) => {
                    self.mourn(&what);
                    due = clock::monotonic() + MAX_BACKOFF.min(BACKOFF * 2u32.saturating_pow(panics));
                    panics += 1;
                    known = None;
                }
            }
            first = false;
        }
    }

    /// Waits until the next probe is due, or wanted now; false: nobody follows this member any more.
    async fn wait(&mut self, mut due: Duration, known: Option<&Round>) -> bool {
        loop {
            self.plan(due);
            let at = Instant::now() + due.saturating_sub(clock::monotonic());
            tokio::select! {
                () = tokio::time::sleep_until(at) => return true,
                () = self.now.notified() => return true,
                changed = self.target.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    due = known.map_or(due, |round| self.next(round));
                }
            }
        }
    }

    /// One probe and its report; `None`: the member is gone.
    async fn round(&self, first: bool) -> Option<Round> {
        let seat = if first { self.desk.first_round.acquire().await.ok() } else { None };
        let place = self.desk.place().await;
        let check = self.target.borrow().check.clone();
        let flight = Flight::begin(&self.desk.counters);
        let started = clock::monotonic();
        let sample = check.run().await;
        let ended = clock::monotonic();
        flight.land(&sample);
        drop((place, seat));
        // Who is told may be another than when the probe began: a reload brings its own.
        let report = self.target.borrow().report.clone();
        let pace = report(ended, sample)?;
        Some(Round { last: Last { started, ended }, pace })
    }

    fn next(&self, round: &Round) -> Duration {
        let target = self.target.borrow();
        Grid::new(target.interval, target.fast_interval, self.share).next(round.last, round.pace, fastrand::f64())
    }

    fn plan(&self, due: Duration) {
        self.target.borrow().next_probe_at.store(due.as_micros() as u64, Relaxed);
    }

    fn mourn(&self, what: &str) {
        self.desk.counters.panics.fetch_add(1, Relaxed);
        let target = self.target.borrow();
        tracing::error!(target: "probe", pool = %target.pool, member = %target.name, panic = what, "probe panicked; it starts again");
    }
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

/// Runs a future whose panic is an answer too: its message.
async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Err(panic) => {
            let message = panic.downcast_ref::<&str>().map(|text| text.to_string());
            Poll::Ready(Err(message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()))
        }
    })
    .await
}
