//! What became of reloads so far, in numbers: for whoever watches over the process.
//!
//! Not here: what a reload changed (`reload`), when one is due (`reload`).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// How reloads have ended; shared.
#[derive(Debug)]
pub struct Reloads {
    status: Mutex<Status>,
    /// Counts the ends.
    ended: watch::Sender<u64>,
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Whether the file, as it was read last, is in force.
    pub good: bool,
    /// Since when that is so, in monotonic time.
    pub since: Duration,
    /// When the present generation was taken, in monotonic time.
    pub taken_at: Duration,
    /// Of the text in force (`config::digest`).
    pub digest: u64,
    /// Reloads that made a generation.
    pub taken: u64,
    /// Reloads that were refused, each as often as it was told of.
    pub refused: u64,
    /// Reloads that had nothing to change.
    pub unchanged: u64,
}

/// How one reload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// There is a new generation, of this text.
    Taken(u64),
    /// All is as this text wants it already.
    Unchanged(u64),
    /// Everything stays as it was.
    Refused,
}

impl Reloads {
    /// The text of this digest is in force since `now`.
    pub fn new(now: Duration, digest: u64) -> Reloads {
        let status = Status { good: true, since: now, taken_at: now, digest, taken: 0, refused: 0, unchanged: 0 };
        Reloads { status: Mutex::new(status), ended: watch::Sender::new(0) }
    }

    /// How it stands now.
    pub fn status(&self) -> Status {
        *self.lock()
    }

    /// Notes how a reload has ended.
    pub fn note(&self, now: Duration, end: End) {
        let mut status = self.lock();
        let was_good = status.good;
        match end {
            End::Taken(digest) => {
                status.taken += 1;
                (status.good, status.taken_at, status.digest) = (true, now, digest);
            }
            End::Unchanged(digest) => {
                status.unchanged += 1;
                (status.good, status.digest) = (true, digest);
            }
            End::Refused => {
                status.refused += 1;
                status.good = false;
            }
        }
        if status.good != was_good {
            status.since = now;
        }
        drop(status);
        self.ended.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Told of every end from now on.
    pub fn ended(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_is_what_is_in_force_as_it_was_read_last() {
        let reloads = Reloads::new(Duration::ZERO, 1);
        // The end; then good, since when, taken at, of which text.
        let rows = [
            (End::Unchanged(1), (true, 0, 0, 1)),
            (End::Refused, (false, 2, 0, 1)),
            (End::Refused, (false, 2, 0, 1)),
            (End::Unchanged(1), (true, 4, 0, 1)),
            (End::Taken(2), (true, 4, 5, 2)),
            (End::Refused, (false, 6, 5, 2)),
            (End::Taken(3), (true, 7, 7, 3)),
        ];
        for (second, (end, expected)) in (1..).zip(rows) {
            reloads.note(Duration::from_secs(second), end);
            let status = reloads.status();
            let found = (status.good, status.since.as_secs(), status.taken_at.as_secs(), status.digest);
            assert_eq!(found, expected, "after {end:?} at {second} s");
        }
        let status = reloads.status();
        assert_eq!((status.taken, status.refused, status.unchanged), (2, 3, 2));
    }
}
