//! Where probes wait for their turn under the ceiling, and the sum of what all of them ask for.
//!
//! Without a ceiling nobody waits, and nothing is locked. With one, those who wait are in two queues, and one task lets them
//! out: a probe that is called off while it waits costs nobody a turn.
//!
//! Not here: how many a second, and whose turn it is (`ceiling`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::ceiling::{Bucket, Demand, Lane, Stretch, Turns};
use super::schedule::Tempo;
use crate::clock;

/// That probes are held back is said at most once in this time: doubt comes and goes.
const QUIET: Duration = Duration::from_secs(10);
/// Parts of a probe a second in which demands are added up: whole numbers leave no rest.
const PARTS: f64 = 1e6;

/// The ceiling, and who waits under it.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// 0: none.
    ceiling: AtomicU32,
    steady: AtomicI64,
    doubt: AtomicI64,
    queues: Mutex<Queues>,
    came: Notify,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Queues {
    bucket: Option<Bucket>,
    urgent: VecDeque<oneshot::Sender<()>>,
    steady: VecDeque<oneshot::Sender<()>>,
    turns: Turns,
}

/// What was last said of it.
#[derive(Debug, Default)]
struct Told {
    felt: bool,
    at: Option<Duration>,
}

/// What one of those who probe asks for, for as long as it probes.
#[derive(Debug)]
pub(super) struct Claim {
    gate: Arc<Gate>,
    steady: i64,
    doubt: i64,
}

impl Gate {
    /// Another ceiling; without one whoever waits goes.
    pub(super) fn set_ceiling(&self, ceiling: Option<u32>) {
        self.ceiling.store(ceiling.unwrap_or_default(), Relaxed);
        let mut queues = self.queues();
        match (ceiling, &queues.bucket) {
            (Some(same), Some(bucket)) if bucket.ceiling() == same => {}
            (ceiling, _) => queues.bucket = ceiling.map(Bucket::new),
        }
        drop(queues);
        self.came.notify_one();
    }

    /// Probes a second at most.
    pub(super) fn ceiling(&self) -> Option<u32> {
        Some(self.ceiling.load(Relaxed)).filter(|ceiling| *ceiling > 0)
    }

    /// What all ask for.
    pub(super) fn demand(&self) -> Demand {
        let of = |sum: &AtomicI64| sum.load(Relaxed).max(0) as f64 / PARTS;
        Demand { steady: of(&self.steady), doubt: of(&self.doubt) }
    }

    /// What comes of that.
    pub(super) fn stretch(&self) -> Stretch {
        // Without a ceiling the sums are nobody's business.
        self.ceiling().map_or(Stretch::NONE, |ceiling| Stretch::of(self.demand(), Some(ceiling)))
    }

    /// Says so where probes begin to be held back, or are no longer.
    pub(super) fn tell(&self, now: Duration) {
        let stretch = self.stretch();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let too_soon = stretch.is_felt() && told.at.is_some_and(|at| now < at + QUIET);
        if told.felt == stretch.is_felt() || too_soon {
            return;
        }
        *told = Told { felt: stretch.is_felt(), at: Some(now) };
        drop(told);
        let (asked, ceiling) = (self.demand().sum(), self.ceiling().unwrap_or_default());
        let (steady, doubt) = (stretch.steady, stretch.doubt);
        if stretch.is_felt() {
            tracing::warn!(
                target: "probe", asked, max_probes_per_second = ceiling, steady, doubt,
                "probes are held back: {asked:.1} a second are asked for, of {ceiling}; intervals are {steady:.2} times as long"
            );
        } else {
            tracing::info!(target: "probe", asked, max_probes_per_second = ceiling, "probes are no longer held back");
        }
    }

    /// Waits for a turn.
    pub(super) async fn pass(&self, lane: Lane) {
        if self.ceiling().is_none() {
            return;
        }
        let goes = self.stand_in(lane);
        self.came.notify_one();
        // Nobody is left to let it out: the prober ends, and so does this.
        let _ = goes.await;
    }

    fn stand_in(&self, lane: Lane) -> oneshot::Receiver<()> {
        let (go, goes) = oneshot::channel();
        let mut queues = self.queues();
        match lane {
            Lane::Urgent => queues.urgent.push_back(go),
            Lane::Steady => queues.steady.push_back(go),
        }
        goes
    }

    /// Lets out who waits, for as long as the prober lives.
    pub(super) async fn attend(&self) {
        loop {
            let next = self.let_out(clock::monotonic());
            let came = self.came.notified();
            match next {
                None => came.await,
                Some(at) => {
                    let at = Instant::now() + at.saturating_sub(clock::monotonic());
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        // Another ceiling may be why.
                        () = came => {}
                    }
                }
            }
        }
    }

    /// Lets out as many as may go now; when the next may, where more wait.
    fn let_out(&self, now: Duration) -> Option<Duration> {
        let mut queues = self.queues();
        let Queues { bucket, urgent, steady, turns } = &mut *queues;
        loop {
            // Called off meanwhile.
            while urgent.front().is_some_and(oneshot::Sender::is_closed) {
                urgent.pop_front();
            }
            while steady.front().is_some_and(oneshot::Sender::is_closed) {
                steady.pop_front();
            }
            if urgent.is_empty() && steady.is_empty() {
                return None;
            }
            if let Some(bucket) = bucket
                && !bucket.take(now)
            {
                return Some(bucket.next());
            }
            let out = match turns.next(!urgent.is_empty(), !steady.is_empty())? {
                Lane::Urgent => urgent.pop_front(),
                Lane::Steady => steady.pop_front(),
            };
            // Whoever was called off this very moment has had the turn: it is not worth a second look.
            let _ = out.map(|go| go.send(()));
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Nothing is asked for yet.
    pub(super) fn new(gate: Arc<Gate>) -> Claim {
        Claim { gate, steady: 0, doubt: 0 }
    }

    /// This is asked for from now on; `None`: nothing.
    pub(super) fn set(&mut self, tempo: Option<Tempo>) {
        let parts = tempo.map_or(0, |tempo| (tempo.rate() * PARTS) as i64);
        let (steady, doubt) = if tempo.is_some_and(|tempo| tempo.in_doubt) { (0, parts) } else { (parts, 0) };
        if (steady, doubt) != (self.steady, self.doubt) {
            self.gate.steady.fetch_add(steady - self.steady, Relaxed);
            self.gate.doubt.fetch_add(doubt - self.doubt, Relaxed);
            (self.steady, self.doubt) = (steady, doubt);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.set(None);
    }
}
