//! When the next probe of a member starts.
//!
//! PURE: times and a draw in, a time out. A member has a grid of its own, `interval` apart at a phase it keeps, so that
//! neither a slow answer nor a late start moves the following ones, and hundreds of members do not ask in step. Each
//! cell of the grid sees one start: the rate is 1/`interval` however the answers come.
//!
//! While a verdict is in doubt the next start is `fast` after the last one. Only there a draw shortens the time, by up to
//! a tenth: on the steady grid a start that is early would leave more than `interval` until the one after it, and a death
//! in that gap would be found later than health.md §2 promises. What keeps members apart there is their phase.

use std::time::Duration;

use crate::health::Pace;

/// The times one member may be probed at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Grid {
    interval: Duration,
    fast: Duration,
    offset: Duration,
}

/// The last probe of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Last {
    /// When it was dialled.
    pub(super) started: Duration,
    /// When its sample was there.
    pub(super) ended: Duration,
}

impl Grid {
    /// A grid at `share` (from 0, below 1) of its interval.
    pub(super) fn new(interval: Duration, fast: Duration, share: f64) -> Grid {
        let interval = interval.max(Duration::from_millis(1));
        Grid { interval, fast: fast.min(interval), offset: interval.mul_f64(share) }
    }

    /// When the probe after `last` starts; `draw` is from 0, below 1. Never before the end of the last.
    pub(super) fn next(&self, last: Last, pace: Pace, draw: f64) -> Duration {
        let start = match pace {
            // Without a fast interval of its own a member in doubt stays on its grid.
            Pace::Fast if self.fast < self.interval => last.started + self.fast - self.fast.mul_f64(draw / 10.0),
            Pace::Fast | Pace::Steady => self.point_after(last.started),
        };
        start.max(last.ended)
    }

    fn point_after(&self, time: Duration) -> Duration {
        let Some(since) = time.checked_sub(self.offset) else {
            return self.offset;
        };
        let interval = self.interval.as_nanos();
        let into_cell = (since.as_nanos() % interval) as u64;
        time + self.interval - Duration::from_nanos(into_cell)
    }
}

/// The share of its interval that the `nth` member followed has as its phase: from `offset` on in steps of the golden
/// ratio, so that any run of members, such as those of one pool, is spread evenly.
pub(super) fn share(offset: f64, nth: u64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    // Taken modulo a large number first: far out, the fraction of a product would lose its digits.
    (offset + (nth % 1_000_000) as f64 * GOLDEN).fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn last(started: u64, ended: u64) -> Last {
        Last { started: ms(started), ended: ms(ended) }
    }

    #[test]
    fn next_start() {
        use Pace::{Fast, Steady};
        // Interval 10 s at a phase of 3 s, fast 1 s: the points are 3, 13, 23 ...
        let grid = Grid::new(ms(10_000), ms(1000), 0.3);
        let rows = [
            ("from the first probe to the first point", last(0, 5), Steady, 0.0, 3000),
            ("from a point to the next", last(3000, 3005), Steady, 0.9, 13_000),
            ("a late start does not move the grid", last(3900, 3950), Steady, 0.0, 13_000),
            ("an answer takes as long as it takes", last(3000, 9999), Steady, 0.0, 13_000),
            ("a frozen member, timeout equal to interval", last(3001, 13_001), Steady, 0.0, 13_001),
            ("the point passed while the first probe waited", last(0, 4000), Steady, 0.0, 4000),
            ("in doubt, soon after the last start", last(3000, 3005), Fast, 0.0, 4000),
            ("in doubt, with a draw", last(3000, 3005), Fast, 0.5, 3950),
            ("in doubt and slower than the fast interval", last(3000, 4600), Fast, 0.5, 4600),
            ("back on the grid", last(14_700, 14_705), Steady, 0.0, 23_000),
        ];
        for (name, last, pace, draw, expected) in rows {
            assert_eq!(grid.next(last, pace, draw), ms(expected), "{name}");
        }
    }

    #[test]
    fn without_a_fast_interval_doubt_changes_nothing() {
        let grid = Grid::new(ms(60_000), ms(60_000), 0.5);
        for at in [0, 29_999, 30_000, 45_000] {
            let last = last(at, at + 5);
            assert_eq!(grid.next(last, Pace::Fast, 0.7), grid.next(last, Pace::Steady, 0.0));
        }
    }

    #[test]
    fn a_probe_never_starts_before_the_last_has_ended() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let interval = random.u64(1..60_000);
            let grid = Grid::new(ms(interval), ms(random.u64(1..=interval)), random.f64());
            let started = random.u64(0..1_000_000);
            let last = last(started, started + random.u64(0..2 * interval));
            let pace = if random.bool() { Pace::Fast } else { Pace::Steady };
            let next = grid.next(last, pace, random.f64());
            assert!(next >= last.ended && next > last.started, "{grid:?} {last:?} {pace:?}");
        }
    }

    #[test]
    fn the_rate_is_one_over_the_interval_whatever_the_answers_take() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..100 {
            let interval = random.u64(100..20_000);
            let grid = Grid::new(ms(interval), ms(interval.min(50)), random.f64());
            let cells = 10_000;
            let end = ms(interval) * cells;
            let (mut start, mut count) = (Duration::ZERO, 0);
            while start < end {
                count += 1;
                let late = ms(random.u64(0..2));
                let took = ms(random.u64(0..=interval)).min(ms(interval) - ms(2));
                start =
                    grid.next(Last { started: start + late, ended: start + late + took }, Pace::Steady, random.f64());
            }
            assert!((cells..=cells + 1).contains(&count), "{count} probes in {cells} intervals of {interval} ms");
        }
    }

    /// From a death at any moment to the end of the k-th fail: at most interval + (k - 1) x max(fast, d) + d.
    #[test]
    fn a_death_is_found_within_the_promised_time() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2000 {
            let interval = random.u64(10..30_000);
            let fast = random.u64(1..=interval);
            let fail = ms(random.u64(0..=interval));
            let needed = random.u32(1..=10);
            let grid = Grid::new(ms(interval), ms(fast), random.f64());
            let death = ms(random.u64(0..10 * interval));
            let mut start = Duration::ZERO;
            while start < death {
                let ended = start + ms(random.u64(0..=interval));
                start = grid.next(Last { started: start, ended }, Pace::Steady, random.f64());
            }
            for _ in 1..needed {
                start = grid.next(Last { started: start, ended: start + fail }, Pace::Fast, random.f64());
            }
            let found = start + fail - death;
            let promised = ms(interval) + ms(fast).max(fail) * (needed - 1) + fail;
            assert!(
                found <= promised,
                "{found:?} > {promised:?}: {grid:?}, {needed} fails of {fail:?}, death at {death:?}"
            );
        }
    }

    #[test]
    fn two_hundred_members_of_three_pools_do_not_probe_in_step() {
        let interval = ms(10_000);
        for offset in [0.0, 0.123, 0.777] {
            let mut seconds = [0; 60];
            for nth in 0..600 {
                let grid = Grid::new(interval, ms(1000), share(offset, nth));
                let mut start = Duration::ZERO;
                while start < ms(60_000) {
                    start = grid.next(Last { started: start, ended: start + ms(5) }, Pace::Steady, 0.0);
                    if start < ms(60_000) {
                        seconds[start.as_secs() as usize] += 1;
                    }
                }
            }
            assert!(seconds.iter().all(|count| (55..=65).contains(count)), "60 a second on average: {seconds:?}");
        }
    }

    #[test]
    fn the_members_of_one_pool_are_spread_whichever_they_are() {
        for first in [0, 17, 999_990, 123_456_789] {
            let mut shares: Vec<f64> = (first..first + 10).map(|nth| share(0.4, nth)).collect();
            shares.sort_by(f64::total_cmp);
            let gap = shares.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MAX, f64::min);
            assert!(gap > 0.03, "the nearest two of ten are {gap} of an interval apart");
        }
    }
}
