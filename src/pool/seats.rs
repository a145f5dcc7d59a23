//! Seats under a limit that may change while they are taken: a lock-free count that is never over its limit.
//!
//! Several counts may add to one [`Sum`], each for as long as it is wanted: whether it does is a bit of the count itself, so
//! that each seat is in the sum or not, and leaves it as it came, whatever changes at the same moment.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};

/// No limit.
const UNLIMITED: u32 = u32::MAX;

/// The bit of a count that adds to a sum. There are never so many seats.
const SUMMED: u32 = 1 << 31;

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
        self.taken.load(SeqCst) & !SUMMED
    }

    /// Whether one could be taken where `others` are taken beside those counted here.
    pub(super) fn has_room_beside(&self, others: u32) -> bool {
        self.limit().is_none_or(|limit| self.taken().saturating_add(others) < limit)
    }

    /// Takes one; false when all are taken.
    pub(super) fn take(&self) -> bool {
        self.take_beside(0)
    }

    /// Takes one where `others` are taken beside those counted here.
    pub(super) fn take_beside(&self, others: u32) -> bool {
        self.try_take(others).is_some()
    }

    /// The same, and adds it to the sum if these seats are in it.
    pub(super) fn take_into(&self, sum: &Sum, others: u32) -> bool {
        let before = self.try_take(others);
        if before.is_some_and(|before| before & SUMMED != 0) {
            sum.0.fetch_add(1, SeqCst);
        }
        before.is_some()
    }

    /// The count before, with its bit; `None` when all are taken.
    fn try_take(&self, others: u32) -> Option<u32> {
        let limit = self.limit.load(SeqCst);
        if limit == UNLIMITED {
            return Some(self.taken.fetch_add(1, SeqCst));
        }
        // Never over the limit, not even for a moment: whoever came meanwhile would be refused for nothing.
        let one_more = |taken: u32| ((taken & !SUMMED).saturating_add(others) < limit).then(|| taken + 1);
        self.taken.fetch_update(SeqCst, SeqCst, one_more).ok()
    }

    /// Gives one back that was taken.
    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, SeqCst);
    }

    /// The same for seats that may be in the sum.
    pub(super) fn give_back_from(&self, sum: &Sum) {
        if self.taken.fetch_sub(1, SeqCst) & SUMMED != 0 {
            sum.0.fetch_sub(1, SeqCst);
        }
    }

    /// From now on they are in the sum, with those that are taken.
    pub(super) fn join(&self, sum: &Sum) {
        let before = self.taken.fetch_or(SUMMED, SeqCst);
        if before & SUMMED == 0 {
            sum.0.fetch_add(before.into(), SeqCst);
        }
    }

    /// From now on they are not.
    pub(super) fn part_from(&self, sum: &Sum) {
        let before = self.taken.fetch_and(!SUMMED, SeqCst);
        if before & SUMMED != 0 {
            sum.0.fetch_sub((before & !SUMMED).into(), SeqCst);
        }
    }
}

/// How many seats are taken of all that are in it, without looking at each. Right once nothing moves; while something does
/// it may be behind by as much.
#[derive(Debug, Default)]
pub(super) struct Sum(AtomicI64);

impl Sum {
    /// So many.
    pub(super) fn taken(&self) -> u64 {
        // A seat may be taken out before the count it was part of has been added.
        self.0.load(SeqCst).max(0) as u64
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
    fn a_sum_is_of_those_that_are_in_it() {
        let (sum, seats) = (Sum::default(), [Seats::unlimited(), Seats::unlimited()]);
        seats[1].set_limit(Some(2));
        seats[0].join(&sum);
        assert!(seats.iter().all(|seats| seats.take_into(&sum, 0)));
        assert_eq!((sum.taken(), seats[0].taken(), seats[1].taken()), (1, 1, 1));
        // Twice is once.
        seats.iter().for_each(|seats| (0..2).for_each(|_| seats.join(&sum)));
        assert_eq!((sum.taken(), seats[1].taken()), (2, 1));
        assert!(seats[1].take_into(&sum, 0) && !seats[1].take_into(&sum, 0), "the limit is what it was");
        assert_eq!((sum.taken(), seats[1].taken()), (3, 2));
        (0..2).for_each(|_| seats[1].part_from(&sum));
        seats[1].give_back_from(&sum);
        assert_eq!((sum.taken(), seats[1].taken()), (1, 1));
        seats[0].give_back_from(&sum);
        assert_eq!(sum.taken(), 0);
    }

    #[test]
    fn a_sum_is_right_in_the_end_whoever_joins_and_parts_meanwhile() {
        let (sum, seats, over) = (Sum::default(), Seats::unlimited(), AtomicBool::new(false));
        thread::scope(|scope| {
            let takers = [(); 3].map(|()| {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        assert!(seats.take_into(&sum, 0));
                        seats.give_back_from(&sum);
                    }
                    assert!(seats.take_into(&sum, 0));
                })
            });
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    seats.join(&sum);
                    seats.part_from(&sum);
                }
            });
            takers.into_iter().for_each(|taker| taker.join().expect("no taker fails"));
            over.store(true, SeqCst);
        });
        assert_eq!((sum.taken(), seats.taken()), (0, 3));
        seats.join(&sum);
        assert_eq!(sum.taken(), 3);
    }

    #[test]
    fn seats_taken_elsewhere_leave_fewer() {
        let seats = Seats::unlimited();
        seats.set_limit(Some(3));
        assert!(seats.take_beside(2) && !seats.take_beside(2) && seats.take_beside(1));
    }
}
