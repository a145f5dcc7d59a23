//! Seats under a limit that may change while they are taken: a lock-free count that is never over its limit.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// No limit.
const UNLIMITED: u32 = u32::MAX;

/// So many are taken, so many there are.
///
/// A seat given back and a request that begins to wait for one must not miss each other: whoever gives back looks for those
/// who wait after it, whoever waits looks for a seat after it said so. Hence the one order of all these.
#[derive(Debug)]
pub(super) struct Seats {
    taken: AtomicU32,
    limit: AtomicU32,
}

impl Seats {
    /// As many as are asked for.
    pub(super) fn unlimited() -> Seats {
        Seats { taken: AtomicU32::new(0), limit: AtomicU32::new(UNLIMITED) }
    }

    /// From now on no seat over `limit` is given; those that are taken stay taken.
    pub(super) fn set_limit(&self, limit: Option<u32>) {
        self.limit.store(limit.unwrap_or(UNLIMITED), SeqCst);
    }

    /// The limit, if there is one.
    pub(super) fn limit(&self) -> Option<u32> {
        Some(self.limit.load(SeqCst)).filter(|limit| *limit != UNLIMITED)
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(SeqCst)
    }

    /// Takes one; false when all are taken.
    pub(super) fn take(&self) -> bool {
        self.take_beside(0)
    }

    /// Takes one where `others` are taken beside those counted here.
    pub(super) fn take_beside(&self, others: u32) -> bool {
        let limit = self.limit.load(SeqCst);
        if limit == UNLIMITED {
            self.taken.fetch_add(1, SeqCst);
            return true;
        }
        // Never over the limit, not even for a moment: whoever came meanwhile would be refused for nothing.
        let one_more = |taken: u32| (taken.saturating_add(others) < limit).then(|| taken + 1);
        self.taken.fetch_update(SeqCst, SeqCst, one_more).is_ok()
    }

    /// Gives one back that was taken.
    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn seats_are_never_over_the_limit_and_all_come_back() {
        let (seats, over) = (Seats::unlimited(), AtomicBool::new(false));
        seats.set_limit(Some(3));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if seats.take() {
                            over.fetch_or(seats.taken() > 3, SeqCst);
                            seats.give_back();
                        }
                    }
                });
            }
        });
        assert!(!over.load(SeqCst));
        assert_eq!(seats.taken(), 0);
    }

    #[test]
    fn a_lower_limit_takes_nobody_s_seat_and_gives_none() {
        let seats = Seats::unlimited();
        assert!((0..5).all(|_| seats.take()));
        seats.set_limit(Some(2));
        (0..4).for_each(|_| {
            assert!(!seats.take());
            seats.give_back();
        });
        assert!(seats.take() && !seats.take());
        seats.set_limit(None);
        assert!(seats.take());
        assert_eq!((seats.taken(), seats.limit()), (3, None));
    }

    #[test]
    fn seats_taken_elsewhere_leave_fewer() {
        let seats = Seats::unlimited();
        seats.set_limit(Some(3));
        assert!(seats.take_beside(2) && !seats.take_beside(2) && seats.take_beside(1));
    }
}
