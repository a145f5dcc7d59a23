//! Where requests wait for room, first come, first served.
//!
//! All stand in one line and only the first of them looks for a seat: so a seat that is given back wakes one request and
//! not a herd, and nobody passes another. A place is given up by dropping it, whatever the reason.
//!
//! Not here: how long somebody waits (`proxy`, which has the clock), what is waited for (`hall`, `roster`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::config;

/// The line of a pool.
#[derive(Debug)]
pub struct Queue {
    /// Places taken.
    length: AtomicUsize,
    /// Places there are; 0: there is no queue.
    size: AtomicUsize,
    timeout_us: AtomicU64,
    /// The first holds it; the others wait for it in the order they came.
    front: Semaphore,
    /// There may be room: for the first to look.
    room: Notify,
}

/// A place in the line.
#[derive(Debug)]
pub struct Place<'a> {
    queue: &'a Queue,
    /// It is the first place.
    front: Option<SemaphorePermit<'a>>,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue {
            length: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            timeout_us: AtomicU64::new(0),
            front: Semaphore::new(1),
            room: Notify::new(),
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

    /// The last place; `None` when all are taken.
    pub(super) fn join(&self) -> Option<Place<'_>> {
        let size = self.size();
        let one_more = |length: usize| (length < size).then_some(length + 1);
        self.length.fetch_update(SeqCst, SeqCst, one_more).ok()?;
        Some(Place { queue: self, front: None })
    }

    /// There may be room: the first looks.
    pub(super) fn wake(&self) {
        if self.length() > 0 {
            self.room.notify_one();
        }
    }
}

impl Place<'_> {
    /// Waits until nobody is before it.
    pub async fn reach_front(&mut self) {
        if self.front.is_none() {
            // An error would mean that the line is closed, which it never is.
            self.front = self.queue.front.acquire().await.ok();
        }
    }

    /// Resolves when there may be room. To miss none, enable it before looking; for the first in the line alone.
    pub fn room(&self) -> Notified<'_> {
        self.queue.room.notified()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.length.fetch_sub(1, SeqCst);
    }
}
