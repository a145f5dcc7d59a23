//! What the members of a pool share: its limits, its queue, its open connections.
//!
//! HTTP/1.1 has one request at a time on a connection. So a limit on connections is one on requests too, and while it is
//! kept a request that has its seat can always get a connection: who is over is idle, and can be closed ([`links`](super::link)).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::link::Link;
use super::queue::Queue;
use super::seats::{Seats, Sum};
use crate::balance::{Memory, Policy};
use crate::config::{self, Capacity};

/// What a pool and its members take on at once, and how many wait for room. Default: as much as comes, and nobody waits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// All members together.
    pub capacity: Capacity,
    /// Each member, in the order of [`Plan::members`](super::Plan::members); one that is missing has no limit.
    pub members: Vec<Capacity>,
    /// Where requests wait for room.
    pub queue: Option<config::Queue>,
}

/// One for each pool, for as long as it lives.
#[derive(Debug)]
pub(super) struct Hall {
    capacity: PackedCapacity,
    /// Requests of all members, counted only while there is a limit: without one, a pick has nothing to share.
    pub(super) in_flight: Seats,
    /// Requests on all who may be picked, counted only while the policy bounds what each carries by their average.
    pub(super) candidates: Sum,
    /// Requests in flight that began before there was a limit.
    uncounted: AtomicU32,
    /// Connections to all members that have a limit, be it the pool's.
    pub(super) connections: Seats,
    pub(super) queue: Queue,
    pub(super) memory: LiveMemory,
    /// A connection was closed, or is idle now.
    pub(super) freed: Notify,
    links: Mutex<Vec<Arc<Link>>>,
    /// Requests that found no room, not even after a wait.
    turned_away: AtomicU64,
}

/// How answers of the past count, where the policy goes by them; and the time for its picks, which read no clock.
#[derive(Debug, Default)]
pub(super) struct LiveMemory {
    /// In microseconds; 0: the policy does not.
    decay: AtomicU64,
    sensitivity: AtomicU64,
    now: AtomicU64,
}

impl LiveMemory {
    pub(super) fn set(&self, policy: &Policy) {
        let Policy::PeakEwma(memory) = policy else { return self.decay.store(0, Relaxed) };
        self.sensitivity.store(memory.sensitivity.as_micros() as u64, Relaxed);
        self.decay.store(memory.decay.as_micros() as u64, Relaxed);
    }

    pub(super) fn read(&self) -> Option<Memory> {
        let decay = self.decay.load(Relaxed);
        let sensitivity = || Duration::from_micros(self.sensitivity.load(Relaxed));
        (decay > 0).then(|| Memory { decay: Duration::from_micros(decay), sensitivity: sensitivity() })
    }

    pub(super) fn tell_time(&self, now: Duration) {
        self.now.store(now.as_micros() as u64, Relaxed);
    }

    pub(super) fn now(&self) -> Duration {
        Duration::from_micros(self.now.load(Relaxed))
    }
}

/// Whether a request may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// There is no limit, and it is not counted.
    Free,
    /// It has a seat.
    Counted,
    /// There is no seat left.
    Full,
}

impl Hall {
    pub(super) fn new(limits: &Limits) -> Hall {
        let hall = Hall {
            capacity: PackedCapacity::default(),
            in_flight: Seats::unlimited(),
            candidates: Sum::default(),
            uncounted: AtomicU32::new(0),
            connections: Seats::unlimited(),
            queue: Queue::new(),
            memory: LiveMemory::default(),
            freed: Notify::new(),
            links: Mutex::default(),
            turned_away: AtomicU64::new(0),
        };
        hall.set(limits, 0);
        hall
    }

    /// New limits, while `in_flight` requests are served.
    pub(super) fn set(&self, limits: &Limits, in_flight: u32) {
        let requests = requests(limits.capacity);
        if self.in_flight.limit().is_none() && requests.is_some() {
            self.uncounted.store(in_flight.saturating_sub(self.in_flight.taken()), SeqCst);
        }
        self.capacity.set(limits.capacity);
        self.in_flight.set_limit(requests);
        self.connections.set_limit(limits.capacity.max_connections);
        self.queue.set(limits.queue);
    }

    /// The limits as configured.
    pub(super) fn capacity(&self) -> Capacity {
        self.capacity.read()
    }

    /// A request comes in.
    pub(super) fn enter(&self) -> Entry {
        match self.in_flight.limit() {
            None => Entry::Free,
            Some(_) if self.in_flight.take_beside(self.uncounted.load(SeqCst)) => Entry::Counted,
            Some(_) => Entry::Full,
        }
    }

    /// Whether a request could come in.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.has_room_beside(self.uncounted.load(SeqCst))
    }

    /// A request that came in by `entry` is over.
    pub(super) fn leave(&self, entry: Entry) {
        self.give_back(entry);
        self.queue.wake();
    }

    /// The seat that came with `entry` is not used.
    pub(super) fn give_back(&self, entry: Entry) {
        match entry {
            Entry::Counted => self.in_flight.give_back(),
            Entry::Free if self.uncounted.load(Relaxed) > 0 => {
                let _ = self.uncounted.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
            }
            Entry::Free | Entry::Full => {}
        }
    }

    pub(super) fn turned_away(&self) -> u64 {
        self.turned_away.load(Relaxed)
    }

    pub(super) fn turn_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }

    /// The open connections to members with a limit.
    pub(super) fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many requests such a limit allows at once.
pub(super) fn requests(capacity: Capacity) -> Option<u32> {
    [capacity.max_in_flight, capacity.max_connections].into_iter().flatten().min()
}

/// A capacity that may change while it is read.
#[derive(Debug)]
pub(super) struct PackedCapacity(AtomicU64);

/// No limit, in either half.
const NONE: u32 = u32::MAX;

impl PackedCapacity {
    pub(super) fn set(&self, Capacity { max_in_flight, max_connections }: Capacity) {
        let half = |limit: Option<u32>| u64::from(limit.unwrap_or(NONE));
        self.0.store(half(max_in_flight) << 32 | half(max_connections), Relaxed);
    }

    pub(super) fn read(&self) -> Capacity {
        let packed = self.0.load(Relaxed);
        let half = |limit: u64| Some(limit as u32).filter(|limit| *limit != NONE);
        Capacity { max_in_flight: half(packed >> 32), max_connections: half(packed) }
    }
}

impl Default for PackedCapacity {
    fn default() -> PackedCapacity {
        PackedCapacity(AtomicU64::new(u64::MAX))
    }
}
