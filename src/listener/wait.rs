//! A request that waits for a member's first byte, and is called away when the member is known not to answer (rescue,
//! health.md §6).
//!
//! To begin and to end a wait is an atomic each. Who calls looks through all connections instead: that a member falls is
//! rare, and it is not the requests that pay for it.
//!
//! Not here: whether the request may be sent again (`proxy`), who has fallen (`health`).

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::Connection;
use crate::pool::Member;

/// It waits for nobody.
const NOBODY: usize = 0;
/// It is to go elsewhere.
const CALLED: usize = 1;

/// It has no end of its own.
const NEVER: u64 = u64::MAX;

/// So many connections that come and go at once need not wait for each other.
const SHARDS: usize = 16;

/// What a connection's request waits for.
#[derive(Debug, Default)]
pub struct Wait {
    /// The member, by its place in memory: whoever waits holds it.
    member: AtomicUsize,
    /// When it goes elsewhere by itself, in microseconds of monotonic time. Only its own task asks.
    until: AtomicU64,
    /// Of the connection's task, which stays the same.
    waker: OnceLock<Waker>,
}

impl Wait {
    /// This task is to be woken by a call.
    pub(super) fn is_of(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// The request waits for this member. One that fell a moment before is not called away any more: look whether it has
    /// after this.
    pub fn begins(&self, member: &Arc<Member>) {
        self.until.store(NEVER, Relaxed);
        self.member.store(place(member), SeqCst);
    }

    /// The member was known not to answer when it was picked: the request leaves by itself then.
    pub fn ends_by(&self, moment: Duration) {
        self.until.store(moment.as_micros() as u64, Relaxed);
    }

    /// When it leaves by itself; `None`: it waits for nobody, or until it is called away.
    pub fn until(&self) -> Option<Duration> {
        let waits = !matches!(self.member.load(SeqCst), NOBODY | CALLED);
        Some(self.until.load(Relaxed)).filter(|until| waits && *until != NEVER).map(Duration::from_micros)
    }

    /// It waits no more.
    pub fn ends(&self) {
        self.member.store(NOBODY, SeqCst);
    }

    /// Whether it is to go elsewhere.
    pub fn is_called_away(&self) -> bool {
        self.member.load(SeqCst) == CALLED
    }

    /// Calls it away from the member, if it still waits for that.
    pub fn call_away(&self, member: &Arc<Member>) {
        self.leave(place(member));
    }

    /// Calls it away from whichever of these members, sorted, it still waits for.
    fn call_away_from(&self, places: &[usize]) {
        let present = self.member.load(SeqCst);
        if places.binary_search(&present).is_ok() {
            self.leave(present);
        }
    }

    fn leave(&self, member: usize) {
        if self.member.compare_exchange(member, CALLED, SeqCst, SeqCst).is_ok() {
            self.waker.get().into_iter().for_each(Waker::wake_by_ref);
        }
    }
}

fn place(member: &Arc<Member>) -> usize {
    Arc::as_ptr(member) as usize
}

/// All open connections.
#[derive(Debug, Default)]
pub(super) struct Guests([Mutex<HashMap<u64, Arc<Connection>>>; SHARDS]);

impl Guests {
    pub(super) fn come(&self, connection: &Arc<Connection>) {
        self.shard(connection.id()).insert(connection.id(), connection.clone());
    }

    pub(super) fn go(&self, id: u64) {
        self.shard(id).remove(&id);
    }

    /// Calls every request away that waits for one of these members.
    pub(super) fn call_away(&self, members: &[Arc<Member>]) {
        if members.is_empty() {
            return;
        }
        let mut places: Vec<usize> = members.iter().map(place).collect();
        places.sort_unstable();
        for shard in &self.0 {
            lock(shard).values().for_each(|connection| connection.wait().call_away_from(&places));
        }
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        lock(&self.0[(id % SHARDS as u64) as usize])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
