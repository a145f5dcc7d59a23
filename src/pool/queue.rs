//! Where requests wait for room, first come, first served.
//!
//! All stand in one line. When there may be room, one of them is told to look, the first; so a seat that is given back wakes
//! one request and not a herd. One that finds nothing may have failed only for whom it avoids, having been failed by them:
//! then the next one looks that avoids others, and so on down the line, up to one that finds nothing though it avoids nobody
//! whom those behind it would take. Such a round is one at a time, and begins again when there is room meanwhile: nobody is
//! passed by somebody who came later and could have used no other seat. A place is given up by dropping it, whatever the
//! reason, and the round goes on behind it.
//!
//! Not here: how long somebody waits (`proxy`, which has the clock), what is waited for (`hall`, `roster`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config;
use crate::health::MemberId;

/// The line of a pool.
#[derive(Debug)]
pub struct Queue {
    /// Places taken.
    length: AtomicUsize,
    /// Of those, the ones of requests that avoid nobody: where there is one, nobody who comes can use what it cannot.
    easy: AtomicUsize,
    /// Places there are; 0: there is no queue.
    size: AtomicUsize,
    timeout_us: AtomicU64,
    line: Mutex<Line>,
}

/// Who waits, in the order they came.
#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Waiter>,
    /// The number of the next one who comes.
    next: u64,
    /// `None`: since there may have been room, everyone has looked, or somebody in the line for whom it was easier.
    round: Option<Round>,
    /// Nobody looks any more.
    is_closed: bool,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    avoided: Arc<[MemberId]>,
    called: Arc<Notify>,
}

/// One after another looks.
#[derive(Debug)]
struct Round {
    /// Whose turn it is.
    looker: u64,
    /// There may be room again.
    again: bool,
    /// Whom those avoid who have found nothing.
    in_vain: Vec<Arc<[MemberId]>>,
}

/// A place in the line.
#[derive(Debug)]
pub struct Place<'a> {
    queue: &'a Queue,
    number: u64,
    avoided: Arc<[MemberId]>,
    called: Arc<Notify>,
}

/// What one in the line is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Look for a seat, and leave or say that there is [none](Place::finds_nothing).
    Look,
    /// Wait, as the first: nobody else sees to it that time passes.
    First,
    /// Wait.
    Behind,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue {
            length: AtomicUsize::new(0),
            easy: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            timeout_us: AtomicU64::new(0),
            line: Mutex::default(),
        }
    }

    /// Who waits already stays, however short the line has become.
    pub(super) fn set(&self, queue: Option<config::Queue>) {
        let timeout = queue.map_or(Duration::ZERO, |queue| queue.timeout);
        self.timeout_us.store(timeout.as_micros() as u64, SeqCst);
        self.size.store(queue.map_or(0, |queue| queue.size), SeqCst);
    }

    /// How many wait.
    pub fn length(&self) -> usize {
        self.length.load(SeqCst)
    }

    /// How many may; 0: there is no queue.
    pub fn size(&self) -> usize {
        self.size.load(SeqCst)
    }

    /// How long each may.
    pub fn timeout(&self) -> Duration {
        Duration::from_micros(self.timeout_us.load(SeqCst))
    }

    /// The last place, for a request that avoids these members; `None` when all are taken.
    pub(super) fn join(&self, avoided: &[MemberId]) -> Option<Place<'_>> {
        let size = self.size();
        let one_more = |length: usize| (length < size).then_some(length + 1);
        self.length.fetch_update(SeqCst, SeqCst, one_more).ok()?;
        if avoided.is_empty() {
            self.easy.fetch_add(1, SeqCst);
        }
        let (number, avoided, called) = self.line().join(avoided.into());
        Some(Place { queue: self, number, avoided, called })
    }

    /// Whether somebody waits whom a request that comes now, and avoids these members, must not pass.
    pub(super) fn is_in_the_way_of(&self, avoided: &[MemberId]) -> bool {
        // Without a lock where nobody waits, and where the line is what it mostly is.
        self.length() > 0 && (self.easy.load(SeqCst) > 0 || self.line().is_in_the_way_of(avoided))
    }

    /// The process ends: a seat that is given back from now on is nobody's, or requests that are cut short would send others
    /// on their way who are cut a moment later.
    pub fn close(&self) {
        let mut line = self.line();
        (line.is_closed, line.round) = (true, None);
    }

    /// There may be room: the first looks.
    pub(super) fn wake(&self) {
        if self.length() > 0 {
            self.line().wake();
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn join(&mut self, avoided: Arc<[MemberId]>) -> (u64, Arc<[MemberId]>, Arc<Notify>) {
        let (number, called) = (self.next, Arc::new(Notify::new()));
        self.next += 1;
        let must_look = !self.is_closed && !self.is_in_the_way_of(&avoided);
        self.waiters.push_back(Waiter { number, avoided: avoided.clone(), called: called.clone() });
        if must_look {
            self.call(Round { looker: number, again: false, in_vain: Vec::new() });
        }
        (number, avoided, called)
    }

    /// A round comes to everyone by itself; without one, whoever avoids no others has found nothing.
    fn is_in_the_way_of(&self, avoided: &[MemberId]) -> bool {
        self.round.is_some() || self.waiters.iter().any(|waiter| is_no_harder(&waiter.avoided, avoided))
    }

    fn wake(&mut self) {
        match &mut self.round {
            Some(round) => round.again = true,
            None => self.begin(),
        }
    }

    fn begin(&mut self) {
        self.round = None;
        if let Some(first) = self.waiters.front().filter(|_| !self.is_closed) {
            self.call(Round { looker: first.number, again: false, in_vain: Vec::new() });
        }
    }

    /// The looker is done.
    fn go_on(&mut self) {
        let Some(round) = self.round.take() else { return };
        if round.again {
            return self.begin();
        }
        let behind = self.position(round.looker + 1);
        let has_a_chance =
            |waiter: &&Waiter| !round.in_vain.iter().any(|avoided| is_no_harder(avoided, &waiter.avoided));
        if let Some(next) = self.waiters.range(behind..).find(has_a_chance) {
            self.call(Round { looker: next.number, ..round });
        }
    }

    fn call(&mut self, round: Round) {
        if let Some(looker) = self.waiters.get(self.position(round.looker)) {
            looker.called.notify_one();
        }
        self.round = Some(round);
    }

    fn leave(&mut self, number: u64) {
        let position = self.position(number);
        self.waiters.remove(position);
        if self.round.as_ref().is_some_and(|round| round.looker == number) {
            self.go_on();
        }
        if let Some(first) = self.waiters.front().filter(|_| position == 0) {
            // It has something to see to now.
            first.called.notify_one();
        }
    }

    /// Where the first one is who came with this number or later.
    fn position(&self, number: u64) -> usize {
        self.waiters.partition_point(|waiter| waiter.number < number)
    }
}

/// Whether whoever avoids `these` can use every seat that one can use who avoids `those`.
fn is_no_harder(these: &[MemberId], those: &[MemberId]) -> bool {
    these.iter().all(|member| those.contains(member))
}

impl Place<'_> {
    /// What is to be done now. It changes only with a [call](Place::called), but that a looker stays one.
    pub fn turn(&self) -> Turn {
        let line = self.queue.line();
        let is = |number: u64| number == self.number;
        match &line.round {
            Some(round) if is(round.looker) => Turn::Look,
            _ if line.waiters.front().is_some_and(|first| is(first.number)) => Turn::First,
            _ => Turn::Behind,
        }
    }

    /// Resolves when it may have another turn; one that came before it was waited for is not missed.
    pub async fn called(&self) {
        self.called.notified().await;
    }

    /// It has looked, and there is nothing for it: the next one may look.
    pub fn finds_nothing(&self) {
        let mut line = self.queue.line();
        if let Some(round) = line.round.as_mut().filter(|round| round.looker == self.number) {
            round.in_vain.push(self.avoided.clone());
            line.go_on();
        }
    }

    /// There may be room for reasons that nobody tells of.
    pub fn look_again(&self) {
        self.queue.wake();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.line().leave(self.number);
        if self.avoided.is_empty() {
            self.queue.easy.fetch_sub(1, SeqCst);
        }
        self.queue.length.fetch_sub(1, SeqCst);
    }
}
