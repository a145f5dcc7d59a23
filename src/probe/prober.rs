//! Makes every member's probes at their times, for as long as the member is followed.
//!
//! Pools that ask one address the same question are told of the same probes (product.md, F6): an endpoint in ten pools is
//! not asked ten times, but once, at the shortest interval. Each judges for itself.
//!
//! Its tasks, one a question, run on a runtime of their own, so that traffic cannot make a member look slow, and on two
//! threads: a handshake takes a millisecond of a processor, and must not be what another probe's clock measures.
//!
//! Not here: what a task does (`task`), when a probe is due (`schedule`), what a sample means (`health`).

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::Check;
use super::ceiling::{Demand, Stretch};
use super::schedule;
use super::task::{Desk, Notes, Task};
use crate::clock;
use crate::health::{MemberId, Pace, Sample};
use crate::telemetry::metrics::{LATENESS_BUCKETS, Times};

/// Takes a sample, at its (monotonic) time, and says how soon the next is wanted; `None`: the member is gone.
pub type Report = Arc<dyn Fn(Duration, Sample) -> Option<Pace> + Send + Sync>;

/// A member to follow, on behalf of one pool.
#[derive(Clone)]
pub struct Target {
    /// The pool's name.
    pub pool: Arc<str>,
    /// The member's identity in that pool.
    pub member: MemberId,
    /// Of the member's probe, as its pool knows it: with another one a sample is wanted now.
    pub fingerprint: u64,
    /// Of what is asked and expected. Who has the same, of the same address, by the same name and with the same timeout, is
    /// told of the same probes.
    pub definition: u64,
    /// The member's address, for the log.
    pub label: Arc<str>,
    /// The probe.
    pub check: Arc<Check>,
    /// From start to start.
    pub interval: Duration,
    /// From start to start while in doubt; at most `interval`.
    pub fast_interval: Duration,
    /// How rarely it is probed while nobody uses it; `None`: no matter.
    pub idle: Option<Idle>,
    /// Who is told.
    pub report: Report,
    /// Where the start of the next probe is written, in microseconds of monotonic time; 0: none is planned.
    pub next_probe_at: Arc<AtomicU64>,
}

/// A pace for what nobody uses (F9).
#[derive(Clone)]
pub struct Idle {
    /// From start to start while nobody does; at least the target's own interval.
    pub interval: Duration,
    /// Whether nobody does, at a monotonic time.
    pub is_idle: Arc<dyn Fn(Duration) -> bool + Send + Sync>,
}

/// What the prober has done since it began.
#[derive(Debug)]
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
    /// By how much probes began after they were due, of those that were planned.
    pub lateness: Times,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            started: AtomicU64::default(),
            passed: AtomicU64::default(),
            failed: AtomicU64::default(),
            unreachable: AtomicU64::default(),
            inconclusive: AtomicU64::default(),
            late: AtomicU64::default(),
            panics: AtomicU64::default(),
            lateness: Times::new(LATENESS_BUCKETS),
        }
    }
}

/// One probe that is made again and again, for all who share it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Who is dialled.
    pub peer: SocketAddr,
    /// From start to start, as it is now: in doubt, idle, or held back by the ceiling.
    pub interval: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// Somebody's verdict may be about to change, and so it is quicker.
    pub in_doubt: bool,
    /// Nobody uses any of the pools, and so it is slower.
    pub idle: bool,
    /// When the last one began, in monotonic time.
    pub started: Option<Duration>,
    /// When the next one begins.
    pub next: Option<Duration>,
    /// How many began more than a quarter of a second after they were due.
    pub late: u64,
    /// Pools with their members, as the log calls them, in the order in which they are told; and the interval each asks for.
    pub members: Vec<(Arc<str>, Arc<str>, Duration)>,
}

impl Counters {
    /// Probes that were due and had to wait for a place.
    pub fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }

    /// Probes under way.
    pub fn in_flight(&self) -> u64 {
        let landed = [&self.passed, &self.failed, &self.inconclusive].map(|count| count.load(Relaxed));
        self.started.load(Relaxed).saturating_sub(landed.iter().sum())
    }

    /// Probes that panicked.
    pub fn panicked(&self) -> u64 {
        self.panics.load(Relaxed)
    }
}

/// The prober. Dropping it ends all probes at once.
pub struct Prober {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    desk: Arc<Desk>,
    posts: Mutex<Posts>,
    /// Phases given out so far.
    phases: AtomicU64,
    /// Where this process begins to give them out, so that two of them do not probe in step.
    offset: f64,
}

/// Who is followed.
#[derive(Default)]
struct Posts {
    by_question: HashMap<Question, Post>,
    by_member: HashMap<(Arc<str>, MemberId), Question>,
    /// When a probe of a member was last hastened.
    hastened: HashMap<(Arc<str>, MemberId), Duration>,
}

/// What is asked of whom: one task each. How often is not part of it: the shortest interval holds for all. The timeout is:
/// an answer that takes two seconds passes for one who waits three, and fails for one who waits one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    definition: u64,
    peer: SocketAddr,
    /// It goes into the request.
    host: String,
    timeout: Duration,
}

/// One task, from outside.
struct Post {
    targets: watch::Sender<Vec<Target>>,
    now: Arc<Notify>,
    notes: Arc<Notes>,
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
        let desk = Arc::new(Desk::new(places));
        let gate = desk.gate().clone();
        runtime.spawn(async move { gate.attend().await });
        Ok(Prober {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            desk,
            posts: Mutex::default(),
            phases: AtomicU64::new(0),
            offset: fastrand::f64(),
        })
    }

    /// Follows exactly these members from now on. Those followed already keep their times (another interval or timeout
    /// re-times them, and so does one who joins or leaves a probe that others share), new ones are probed at once, and the
    /// probes of all others end, those in flight without a word.
    pub fn follow(&self, targets: Vec<Target>) {
        let asked = by_question(targets);
        let mut posts = self.posts();
        let mut before = std::mem::take(&mut *posts);
        let mut kept: Vec<_> = asked.iter().map(|(question, _)| before.by_question.remove(question)).collect();
        for (post, (_, targets)) in kept.iter_mut().zip(&asked).filter(|(post, _)| post.is_none()) {
            *post = before.retimed(targets);
        }
        // These first: whoever goes on at another post has its next probe planned there.
        before.by_question.values().for_each(Post::leave);
        for (post, (question, targets)) in kept.into_iter().zip(asked) {
            let members = targets.iter().map(|target| (target.key(), question.clone()));
            posts.by_member.extend(members);
            let post = match post.filter(|post| !post.task.is_finished()) {
                Some(post) => post.serve(targets),
                None => self.begin(targets),
            };
            posts.by_question.insert(question, post);
        }
        before.hastened.retain(|member, _| posts.by_member.contains_key(member));
        posts.hastened = before.hastened;
        drop(posts);
        self.desk.gate().tell(clock::monotonic());
    }

    /// Another limit on probes a second; `None`: as many as are asked for. Whoever is followed next is planned by it.
    pub fn set_ceiling(&self, ceiling: Option<u32>) {
        self.desk.gate().set_ceiling(ceiling);
    }

    /// Probes a second at most.
    pub fn ceiling(&self) -> Option<u32> {
        self.desk.gate().ceiling()
    }

    /// Probes a second that are asked for now.
    pub fn demand(&self) -> Demand {
        self.desk.gate().demand()
    }

    /// How much longer intervals are than asked for, to stay under the ceiling.
    pub fn stretch(&self) -> Stretch {
        self.desk.gate().stretch()
    }

    /// Every probe that is made, in no order.
    pub fn listed(&self) -> Vec<Listed> {
        self.posts().by_question.iter().map(|(question, post)| post.listed(question)).collect()
    }

    /// Another limit on probes in flight; those that are stay in flight.
    pub fn set_places(&self, places: usize) {
        self.desk.set_places(places);
    }

    /// Probes a member now, or as soon as the probe in flight is over; false: nobody follows it.
    pub fn probe_now(&self, pool: &str, member: MemberId) -> bool {
        let posts = self.posts();
        let post = posts.of(&(pool.into(), member));
        post.inspect(|post| post.now.notify_one()).is_some()
    }

    /// Probes every member of a pool now: somebody uses it again.
    pub fn wake(&self, pool: &str) {
        let posts = self.posts();
        let members = posts.by_member.keys().filter(|(of, _)| **of == *pool);
        members.filter_map(|member| posts.of(member)).for_each(|post| post.now.notify_one());
    }

    /// Like [`Prober::probe_now`], for evidence that may come with every request: at most once per member and interval
    /// (health.md §6). True: a probe was asked for.
    pub fn hasten(&self, pool: &str, member: MemberId) -> bool {
        let (now, member) = (clock::monotonic(), (pool.into(), member));
        let mut posts = self.posts();
        let Some(interval) = posts.of(&member).and_then(|post| post.interval_of(&member)) else {
            return false;
        };
        if posts.hastened.get(&member).is_some_and(|&at| now < at + interval) {
            return false;
        }
        posts.of(&member).into_iter().for_each(|post| post.now.notify_one());
        posts.hastened.insert(member, now);
        true
    }

    /// When the next probe of a member starts, in monotonic time.
    pub fn next_probe_at(&self, pool: &str, member: MemberId) -> Option<Duration> {
        let posts = self.posts();
        let member = (pool.into(), member);
        let targets = posts.of(&member)?.targets.borrow();
        let us = targets.iter().find(|target| target.key() == member)?.next_probe_at.load(Relaxed);
        (us > 0).then(|| Duration::from_micros(us))
    }

    /// What was done so far.
    pub fn counters(&self) -> &Arc<Counters> {
        self.desk.counters()
    }

    /// Ends all probes; those in flight report nothing. There is no way back.
    pub fn stop(&self) {
        self.follow(Vec::new());
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not waited for: the one who stops us may be on a runtime itself, where waiting is not allowed.
        runtime.into_iter().for_each(Runtime::shutdown_background);
    }

    fn begin(&self, targets: Vec<Target>) -> Post {
        let share = schedule::share(self.offset, self.phases.fetch_add(1, Relaxed));
        let now = Arc::new(Notify::new());
        let (sender, receiver) = watch::channel(targets);
        let notes = Arc::<Notes>::default();
        let task = Task::new(self.desk.clone(), receiver, now.clone(), notes.clone(), share);
        let task = self.handle.spawn(task.attend()).abort_handle();
        Post { targets: sender, now, notes, task }
    }

    fn posts(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Who asks the same. Pools take turns: the first member of each comes before the second of any, so that in a first round
/// that takes its time no pool is without a verdict until all others have theirs.
fn by_question(targets: Vec<Target>) -> Vec<(Question, Vec<Target>)> {
    let mut met: HashMap<Arc<str>, usize> = HashMap::new();
    let mut rank = |target: &Target| {
        let met = met.entry(target.pool.clone()).or_default();
        *met += 1;
        *met
    };
    let mut targets: Vec<_> = targets.into_iter().map(|target| (rank(&target), target)).collect();
    targets.sort_by_key(|(rank, _)| *rank);
    let mut places = HashMap::new();
    let mut asked: Vec<(Question, Vec<Target>)> = Vec::new();
    for (_, target) in targets {
        let question = Question::of(&target);
        let place = *places.entry(question.clone()).or_insert(asked.len());
        match asked.get_mut(place) {
            Some((_, others)) => others.push(target),
            None => asked.push((question, vec![target])),
        }
    }
    asked
}

impl Posts {
    fn of(&self, member: &(Arc<str>, MemberId)) -> Option<&Post> {
        self.by_question.get(self.by_member.get(member)?)
    }

    /// Takes out the post that asks one of these members the same question with another timeout.
    fn retimed(&mut self, targets: &[Target]) -> Option<Post> {
        let same = |target: &Target| {
            let before = self.by_member.get(&target.key())?;
            let now = Question::of(target);
            let timed_alike = Question { timeout: now.timeout, ..before.clone() };
            (timed_alike == now && self.by_question.contains_key(before)).then(|| before.clone())
        };
        let before = targets.iter().find_map(same)?;
        self.by_question.remove(&before)
    }
}

impl Question {
    fn of(target: &Target) -> Question {
        Question {
            definition: target.definition,
            peer: target.check.peer(),
            host: target.check.host().to_owned(),
            timeout: target.check.timeout(),
        }
    }
}

impl Target {
    pub(super) fn key(&self) -> (Arc<str>, MemberId) {
        (self.pool.clone(), self.member)
    }

    fn forget(&self) {
        self.next_probe_at.store(0, Relaxed);
    }
}

impl Post {
    /// The same task for these targets from now on; one who has just come wants a probe.
    fn serve(self, targets: Vec<Target>) -> Post {
        let before = self.targets.send_replace(targets);
        let targets = self.targets.borrow();
        let is_same = |one: &Target, other: &Target| one.member == other.member && one.pool == other.pool;
        let stays = |old: &&Target| targets.iter().any(|new| is_same(new, old));
        before.iter().filter(|old| !stays(old)).for_each(Target::forget);
        let is_known = |new: &Target| before.iter().any(|old| is_same(new, old) && new.fingerprint == old.fingerprint);
        if !targets.iter().all(is_known) {
            self.now.notify_one();
        }
        drop(targets);
        self
    }

    fn interval_of(&self, (pool, member): &(Arc<str>, MemberId)) -> Option<Duration> {
        let targets = self.targets.borrow();
        targets.iter().find(|target| target.member == *member && target.pool == *pool).map(|target| target.interval)
    }

    fn listed(&self, question: &Question) -> Listed {
        let time = |us: u64| (us > 0).then(|| Duration::from_micros(us));
        let targets = self.targets.borrow();
        let asked = targets.iter().map(|target| target.interval).min().unwrap_or_default();
        Listed {
            peer: question.peer,
            // Before the first one has ended nothing is planned yet.
            interval: time(self.notes.every.load(Relaxed)).unwrap_or(asked),
            timeout: question.timeout,
            in_doubt: self.notes.in_doubt.load(Relaxed),
            idle: self.notes.idle.load(Relaxed),
            started: time(self.notes.started.load(Relaxed)),
            next: targets.first().and_then(|target| time(target.next_probe_at.load(Relaxed))),
            late: self.notes.late.load(Relaxed),
            members: targets
                .iter()
                .map(|target| (target.pool.clone(), target.label.clone(), target.interval))
                .collect(),
        }
    }

    fn leave(&self) {
        self.task.abort();
        self.targets.borrow().iter().for_each(Target::forget);
    }
}
