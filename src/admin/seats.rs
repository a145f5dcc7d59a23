//! Who is connected to the admin listener, and who is to go where somebody else wants a place.
//!
//! Clients that keep their connections and ask slowly must not keep others out. So when all places are taken the connection
//! goes that has waited longest for its next request, and one that is being answered never does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Nothing is asked for since then, in microseconds of monotonic time; this where something is.
const ASKED: u64 = u64::MAX;

/// All that are connected; shared.
#[derive(Debug, Default)]
pub struct Seats(Mutex<Vec<Arc<Seat>>>);

/// One connection.
#[derive(Debug)]
pub struct Seat {
    idle_since: AtomicU64,
    wanted: Notify,
}

/// A seat for as long as its connection lasts.
#[derive(Debug)]
pub struct Seated {
    seats: Arc<Seats>,
    /// What its requests and answers tell.
    pub seat: Arc<Seat>,
}

/// A connection is asked or answers for as long as this lives.
#[derive(Debug)]
pub struct Busy {
    seat: Arc<Seat>,
    now: fn() -> Duration,
}

impl Seats {
    /// A seat for one more, whoever else is there.
    pub fn take(self: &Arc<Seats>, now: Duration) -> Seated {
        let seat = Arc::new(Seat { idle_since: AtomicU64::new(micros(now)), wanted: Notify::new() });
        self.lock().push(seat.clone());
        Seated { seats: self.clone(), seat }
    }

    /// Has the one go that has been idle longest; nobody where all are being answered.
    pub fn free_one(&self) {
        let seats = self.lock();
        let idle = seats.iter().map(|seat| (seat.idle_since.load(Relaxed), seat));
        if let Some((_, seat)) = idle.filter(|(since, _)| *since != ASKED).min_by_key(|(since, _)| *since) {
            seat.wanted.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Ready when somebody else is to have the place.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// A request has come; `now` is asked for the time when its answer is over.
    pub fn asked(self: &Arc<Seat>, now: fn() -> Duration) -> Busy {
        self.idle_since.store(ASKED, Relaxed);
        Busy { seat: self.clone(), now }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.seat.idle_since.store(micros((self.now)()), Relaxed);
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.seats.lock().retain(|seat| !Arc::ptr_eq(seat, &self.seat));
    }
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn who_has_been_idle_longest_goes_and_nobody_who_is_answered() {
        let seats = Arc::new(Seats::default());
        let seated: Vec<Seated> = (1..=4).map(|second| seats.take(Duration::from_secs(second))).collect();
        let goes = |n: usize| seated[n].seat.wanted().now_or_never().is_some();
        let busy = seated[0].seat.asked(|| Duration::from_secs(9));
        seats.free_one();
        assert_eq!([0, 1, 2, 3].map(goes), [false, true, false, false]);
        drop(busy);
        let others = [1, 2, 3].map(|n| seated[n].seat.asked(|| Duration::ZERO));
        seats.free_one();
        assert_eq!([0, 1, 2, 3].map(goes), [true, false, false, false]);
        let last = seated[0].seat.asked(|| Duration::ZERO);
        seats.free_one();
        assert_eq!([0, 1, 2, 3].map(goes), [false; 4]);
        drop((others, last));
        drop(seated);
        assert_eq!(seats.lock().len(), 0);
    }
}
