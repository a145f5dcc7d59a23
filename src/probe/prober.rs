//! Makes every member's probes at their times, for as long as the member is followed.
//!
//! Pools that ask one address the same question are told of the same probes (product.md, F6): an endpoint in ten pools is
//! not asked ten times, but once, at the shortest interval. Each judges for itself.
//!
//! Its tasks, one a question, run on a runtime of their own, so that traffic cannot make a member look slow, and on two
//! threads: a handshake takes a millisecond of a processor, and must not be what another probe's clock measures.
//!
//! Not here: what a task does (`task`), when a probe is due (`schedule`), what a sample means (`health`).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};

use super::ceiling::{Demand, Stretch};
use super::posts::{Post, Posts, by_question};
use super::task::{Desk, Notes, Task};
use super::{Allowance, Counters, Listed, Taping, Target, schedule};
use crate::clock;
use crate::health::MemberId;

/// The prober. Dropping it ends all probes at once.
pub struct Prober {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    desk: Arc<Desk>,
    posts: Mutex<Posts>,
    /// Probes in flight at most, as configured.
    wanted: AtomicUsize,
    /// More probes want to keep their connection than there is room for.
    is_crowded: AtomicBool,
    /// Phases given out so far.
    phases: AtomicU64,
    /// Where this process begins to give them out, so that two of them do not probe in step.
    offset: f64,
}

/// What came of the wish to hasten a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// One was asked for.
    Made {
        /// When another one can be.
        next: Duration,
    },
    /// The last one was less than an interval ago.
    TooSoon {
        /// When another one can be.
        before: Duration,
    },
}

impl Haste {
    /// What comes of the wish at `now`, where a probe was hastened `last`: one of them in each `interval` is enough.
    pub(crate) fn after(last: Option<Duration>, interval: Duration, now: Duration) -> Haste {
        match last.map(|last| last + interval).filter(|before| now < *before) {
            Some(before) => Haste::TooSoon { before },
            None => Haste::Made { next: now + interval },
        }
    }
}

impl Prober {
    /// A prober that follows nobody yet; at most `places` probes are in flight at once, and no more than are allowed.
    pub fn start(places: usize, allowance: Allowance) -> io::Result<Prober> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("probe")
            .enable_io()
            .enable_time()
            .build()?;
        let desk = Arc::new(Desk::new(places, allowance));
        tell_of_places(places, desk.most());
        let gate = desk.gate().clone();
        runtime.spawn(async move { gate.attend().await });
        Ok(Prober {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            desk,
            posts: Mutex::default(),
            wanted: AtomicUsize::new(places),
            is_crowded: AtomicBool::new(false),
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
        self.tell_of_kept(&posts);
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

    /// Another limit on probes in flight; those that are stay in flight, and count.
    pub fn set_places(&self, places: usize) {
        self.desk.set_places(places);
        if self.wanted.swap(places, Relaxed) != places {
            tell_of_places(places, self.desk.most());
        }
    }

    /// Whether probes to come leave tracks.
    pub fn set_taping(&self, taping: Taping) {
        self.desk.set_taping(taping);
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
    /// (health.md §6). `None`: nobody follows it.
    pub fn hasten(&self, pool: &str, member: MemberId) -> Option<Haste> {
        let (now, member) = (clock::monotonic(), (pool.into(), member));
        let mut posts = self.posts();
        let interval = posts.of(&member)?.interval_of(&member)?;
        let haste = Haste::after(posts.hastened.get(&member).copied(), interval, now);
        if let Haste::Made { .. } = haste {
            posts.of(&member)?.now.notify_one();
            posts.hastened.insert(member, now);
        }
        Some(haste)
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

    /// Warns once where more probes want to keep their connection than there is room for.
    fn tell_of_kept(&self, posts: &Posts) {
        let (keeping, room) = (posts.keeping(), self.desk.shelf().room());
        let is_crowded = keeping > room;
        if is_crowded && !self.is_crowded.load(Relaxed) {
            tracing::warn!(
                target: "server", keeping, room,
                "{keeping} probes are to keep their connection (`reuse`), and the limit on descriptors leaves room for \
                 {room}; the others dial each time"
            );
        }
        self.is_crowded.store(is_crowded, Relaxed);
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

fn tell_of_places(wanted: usize, allowed: usize) {
    if wanted > allowed {
        tracing::info!(
            target: "server", max_concurrent_probes = wanted, allowed,
            "the limit on descriptors leaves {allowed} probes at once, of `max_concurrent_probes` {wanted}"
        );
    }
}
