//! Makes every member's probes at their times, for as long as the member is followed.
//!
//! Its tasks, one a member, run on a runtime of their own, so that traffic cannot make a member look slow, and on two
//! threads: a handshake takes a millisecond of a processor, and must not be what another probe's clock measures.
//!
//! Not here: what a task does (`task`), when a probe is due (`schedule`), what a sample means (`health`).

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::Check;
use super::schedule;
use super::task::{Desk, Task};
use crate::clock;
use crate::health::{MemberId, Pace, Sample};

/// Takes a sample, at its (monotonic) time, and says how soon the next is wanted; `None`: the member is gone.
pub type Report = Arc<dyn Fn(Duration, Sample) -> Option<Pace> + Send + Sync>;

/// A member to follow.
#[derive(Clone)]
pub struct Target {
    /// The pool's name.
    pub pool: Arc<str>,
    /// The member's identity in that pool.
    pub member: MemberId,
    /// Of the probe: another one is another probe, and starts anew.
    pub fingerprint: u64,
    /// The member's name, for the log.
    pub name: String,
    /// The probe.
    pub check: Arc<Check>,
    /// From start to start.
    pub interval: Duration,
    /// From start to start while in doubt; at most `interval`.
    pub fast_interval: Duration,
    /// Who is told.
    pub report: Report,
    /// Where the start of the next probe is written, in microseconds of monotonic time; 0: none is planned.
    pub next_probe_at: Arc<AtomicU64>,
}

/// What the prober has done since it began.
#[derive(Debug, Default)]
pub struct Counters {
    /// Probes started.
    pub started: AtomicU64,
    /// Samples that passed.
    pub passed: AtomicU64,
    /// Samples that failed.
    pub failed: AtomicU64,
    /// Of the failed ones, those of members that did not answer at all.
    pub unreachable: AtomicU64,
    /// Probes that taught nothing: cancelled, or failed by a fault of this machine.
    pub inconclusive: AtomicU64,
    /// Probes that were due and had to wait for a place.
    pub late: AtomicU64,
    /// Probes that panicked.
    pub panics: AtomicU64,
}

/// The prober. Dropping it ends all probes at once.
pub struct Prober {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    desk: Arc<Desk>,
    followed: Mutex<HashMap<(Arc<str>, MemberId), Followed>>,
    /// Phases given out so far.
    phases: AtomicU64,
    /// Where this process begins to give them out, so that two of them do not probe in step.
    offset: f64,
}

/// One member's task, from outside.
struct Followed {
    fingerprint: u64,
    target: watch::Sender<Target>,
    now: Arc<Notify>,
    /// When a probe was last hastened.
    hastened: Option<Duration>,
    task: AbortHandle,
}

impl Prober {
    /// A prober that follows nobody yet; later than in the first round at most `places` probes are in flight at once.
    pub fn start(places: usize) -> io::Result<Prober> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("probe")
            .enable_io()
            .enable_time()
            .build()?;
        Ok(Prober {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            desk: Arc::new(Desk::new(places)),
            followed: Mutex::default(),
            phases: AtomicU64::new(0),
            offset: fastrand::f64(),
        })
    }

    /// Follows exactly these members from now on. Those followed already keep their times (another interval re-times
    /// them), new ones are probed at once, and the probes of all others end, those in flight without a word.
    pub fn follow(&self, targets: Vec<Target>) {
        let mut followed = self.followed();
        let mut before = std::mem::take(&mut *followed);
        for target in targets {
            let key = (target.pool.clone(), target.member);
            let entry = match before.remove(&key) {
                Some(known) if known.fingerprint == target.fingerprint => {
                    known.target.send_replace(target);
                    known
                }
                other => {
                    other.inspect(Followed::leave);
                    self.begin(target)
                }
            };
            if let Some(twice) = followed.insert(key, entry) {
                twice.leave();
            }
        }
        before.values().for_each(Followed::leave);
    }

    /// Probes a member now, or as soon as the probe in flight is over; false: nobody follows it.
    pub fn probe_now(&self, pool: &str, member: MemberId) -> bool {
        match self.followed().get(&(pool.into(), member)) {
            Some(followed) => {
                followed.now.notify_one();
                true
            }
            None => false,
        }
    }

    /// Like [`Prober::probe_now`], for evidence that may come with every request: at most once per member and interval
    /// (health.md §6). True: a probe was asked for.
    pub fn hasten(&self, pool: &str, member: MemberId) -> bool {
        let now = clock::monotonic();
        let mut all = self.followed();
        let Some(followed) = all.get_mut(&(pool.into(), member)) else {
            return false;
        };
        let interval = followed.target.borrow().interval;
        if followed.hastened.is_some_and(|at| now < at + interval) {
            return false;
        }
        followed.hastened = Some(now);
        followed.now.notify_one();
        true
    }

    /// When the next probe of a member starts, in monotonic time.
    pub fn next_probe_at(&self, pool: &str, member: MemberId) -> Option<Duration> {
        let all = self.followed();
        let us = all.get(&(pool.into(), member))?.target.borrow().next_probe_at.load(Relaxed);
        (us > 0).then(|| Duration::from_micros(us))
    }

    /// What was done so far.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.desk.counters()
    }

    /// Ends all probes; those in flight report nothing. There is no way back.
    pub fn stop(&self) {
        self.follow(Vec::new());
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not waited for: the one who stops us may be on a runtime itself, where waiting is not allowed.
        runtime.into_iter().for_each(Runtime::shutdown_background);
    }

    fn begin(&self, target: Target) -> Followed {
        let share = schedule::share(self.offset, self.phases.fetch_add(1, Relaxed));
        let fingerprint = target.fingerprint;
        let now = Arc::new(Notify::new());
        let (sender, receiver) = watch::channel(target);
        let task = Task::new(self.desk.clone(), receiver, now.clone(), share);
        let task = self.handle.spawn(task.attend()).abort_handle();
        Followed { fingerprint, target: sender, now, hastened: None, task }
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<(Arc<str>, MemberId), Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Followed {
    fn leave(&self) {
        self.task.abort();
        self.target.borrow().next_probe_at.store(0, Relaxed);
    }
}
