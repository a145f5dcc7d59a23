//! How many probes a second there may be, and who gives way where more are wanted.
//!
//! PURE: times and rates in, times and factors out. Two things keep the promise. Intervals are stretched so that what is
//! planned fits, by one factor for all who are steady: their rates stay in proportion. And each start takes its turn at a
//! [`Bucket`], which holds whatever comes in between to the ceiling.
//!
//! A probe that a verdict waits for comes before a steady one. Those that are steady keep a quarter of the turns all the same:
//! with everybody in doubt at once somebody must still notice the next one who dies.

use std::time::Duration;

use crate::config::PLANNED;

/// What is caught up where a start was late, such as a timer is.
const SLACK: Duration = Duration::from_millis(10);
/// Of so many turns one is a steady probe's, where one waits: see [`Turns`] and [`Stretch::of`].
const STEADY_TURN: u32 = 4;

/// Which queue a probe stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// A verdict waits for it: the first of a member, one in doubt, or one that was asked for.
    Urgent,
    /// It is due.
    Steady,
}

/// Lets so many starts through a second that no second, wherever it begins, sees more than the ceiling and one.
#[derive(Debug)]
pub(super) struct Bucket {
    ceiling: u32,
    every: Duration,
    next: Duration,
}

impl Bucket {
    pub(super) fn new(ceiling: u32) -> Bucket {
        // In a second there is room for one, and for as many as the second and what may be caught up hold.
        let every = (Duration::from_secs(1) + SLACK) / ceiling.max(1);
        Bucket { ceiling, every, next: Duration::ZERO }
    }

    pub(super) fn ceiling(&self) -> u32 {
        self.ceiling
    }

    /// When the next may start.
    pub(super) fn next(&self) -> Duration {
        self.next
    }

    /// One starts at `now`, if it may.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let may = now >= self.next;
        if may {
            self.next = self.next.max(now.saturating_sub(SLACK)) + self.every;
        }
        may
    }
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    urgent_in_a_row: u32,
}

impl Turns {
    /// Who is next of those who wait; `None`: nobody does.
    pub(super) fn next(&mut self, urgent: bool, steady: bool) -> Option<Lane> {
        let lane = match (urgent, steady) {
            (false, false) => return None,
            (true, false) => Lane::Urgent,
            (false, true) => Lane::Steady,
            (true, true) if self.urgent_in_a_row + 1 < STEADY_TURN => Lane::Urgent,
            (true, true) => Lane::Steady,
        };
        self.urgent_in_a_row = if lane == Lane::Urgent && steady { self.urgent_in_a_row + 1 } else { 0 };
        Some(lane)
    }
}

/// What is asked for, in probes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Of those whose verdict is settled, each at its interval.
    pub steady: f64,
    /// Of those in doubt, each at its fast interval.
    pub doubt: f64,
}

impl Demand {
    /// All of it.
    pub fn sum(&self) -> f64 {
        self.steady + self.doubt
    }
}

/// By what intervals are multiplied, each at least 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Of those whose verdict is settled.
    pub steady: f64,
    /// Of those in doubt.
    pub doubt: f64,
}

impl Stretch {
    /// Nobody waits longer than asked.
    pub const NONE: Stretch = Stretch { steady: 1.0, doubt: 1.0 };

    /// What makes `demand` fit under a ceiling.
    pub(super) fn of(demand: Demand, ceiling: Option<u32>) -> Stretch {
        let Some(ceiling) = ceiling else { return Stretch::NONE };
        let room = f64::from(ceiling) * PLANNED;
        if demand.sum() <= room {
            return Stretch::NONE;
        }
        // The steady keep their quarter, but are never stretched less than those in doubt.
        let even = room * demand.steady / demand.sum();
        let kept = demand.steady.min(room / f64::from(STEADY_TURN)).min(even);
        let doubt = demand.doubt.min(room - kept);
        let steady = (room - doubt).min(demand.steady);
        let factor = |asked: f64, got: f64| if got > 0.0 { (asked / got).max(1.0) } else { 1.0 };
        Stretch { steady: factor(demand.steady, steady), doubt: factor(demand.doubt, doubt) }
    }

    /// Whether anybody waits longer than asked.
    pub fn is_felt(&self) -> bool {
        *self != Stretch::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts of those who come at random times, each at most `late` after it may.
    fn starts(bucket: &mut Bucket, random: &mut fastrand::Rng, crowd: u64, late: Duration) -> Vec<Duration> {
        let (mut now, mut starts) = (Duration::ZERO, Vec::new());
        for _ in 0..3000 {
            // Sometimes nobody comes for a while, mostly somebody waits already.
            now += if random.u64(..crowd) == 0 { Duration::from_millis(random.u64(..3000)) } else { Duration::ZERO };
            // Whoever lets them out is late, and then lets out all who may go.
            if bucket.next() > now {
                now = bucket.next() + Duration::from_micros(random.u64(..=late.as_micros() as u64));
            }
            assert!(bucket.take(now));
            starts.push(now);
        }
        starts
    }

    #[test]
    fn no_second_sees_more_than_the_ceiling_and_one() {
        let mut random = fastrand::Rng::with_seed(4);
        for ceiling in [1, 2, 7, 100, 1000] {
            for late in [Duration::ZERO, Duration::from_millis(2), Duration::from_millis(50)] {
                for crowd in [2, 100, 10_000] {
                    let starts = starts(&mut Bucket::new(ceiling), &mut random, crowd, late);
                    let most = |begin: &Duration| {
                        let first = starts.partition_point(|start| start < begin);
                        starts.partition_point(|start| *start < *begin + Duration::from_secs(1)) - first
                    };
                    let most = starts.iter().map(most).max().unwrap_or_default();
                    assert!(most <= ceiling as usize + 1, "{most} in a second of {ceiling}, {late:?} late");
                }
            }
        }
    }

    #[test]
    fn timers_that_are_late_cost_nothing() {
        let mut random = fastrand::Rng::with_seed(5);
        for ceiling in [50, 1000, 5000] {
            let starts = starts(&mut Bucket::new(ceiling), &mut random, u64::MAX, Duration::from_millis(2));
            let rate = starts.len() as f64 / starts.last().unwrap().as_secs_f64();
            assert!(rate >= f64::from(ceiling) * 0.96, "{rate} of {ceiling}");
        }
    }

    #[test]
    fn whoever_a_verdict_waits_for_comes_first_and_nobody_starves() {
        let mut turns = Turns::default();
        assert_eq!(turns.next(false, false), None);
        let lanes: Vec<_> = (0..400).filter_map(|_| turns.next(true, true)).collect();
        assert_eq!(lanes[0], Lane::Urgent);
        assert_eq!(lanes.iter().filter(|lane| **lane == Lane::Steady).count(), 100);
        assert_eq!(turns.next(true, false), Some(Lane::Urgent));
        assert_eq!(turns.next(false, true), Some(Lane::Steady));
    }

    #[test]
    fn those_in_doubt_are_stretched_last() {
        let demand = |steady, doubt| Demand { steady, doubt };
        // Asked for at a ceiling of 100, of which 95 are planned; and the factors.
        let rows = [
            (demand(95.0, 0.0), 1.0, 1.0),
            (demand(190.0, 0.0), 2.0, 1.0),
            (demand(90.0, 50.0), 2.0, 1.0),
            (demand(95.0, 285.0), 4.0, 4.0),
            (demand(0.0, 190.0), 1.0, 2.0),
            (demand(4.75, 185.25), 2.0, 2.0),
        ];
        for (demand, steady, doubt) in rows {
            let stretch = Stretch::of(demand, Some(100));
            assert!(
                (stretch.steady - steady).abs() < 1e-9 && (stretch.doubt - doubt).abs() < 1e-9,
                "{demand:?} {stretch:?}"
            );
            assert_eq!(Stretch::of(demand, None), Stretch::NONE);
        }
    }

    #[test]
    fn what_is_stretched_fits_whatever_is_asked() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..10_000 {
            let demand = Demand { steady: random.f64() * 300.0, doubt: random.f64() * 300.0 };
            let ceiling = random.u32(1..=300);
            let stretch = Stretch::of(demand, Some(ceiling));
            let planned = demand.steady / stretch.steady + demand.doubt / stretch.doubt;
            assert!(planned <= f64::from(ceiling) * PLANNED + 1e-6, "{demand:?} {ceiling} {stretch:?}");
            assert!(
                demand.doubt == 0.0 || stretch.doubt <= stretch.steady + 1e-9 || demand.steady == 0.0,
                "{demand:?} {stretch:?}"
            );
        }
    }
}
