//! Those nearly as fast as the fastest, shared by weight in smooth turns (health.md §5).
//!
//! Latency is the probe's, so it changes with the roster and not with every answer: the band is worked out once. A
//! member without a latency of its own counts with the largest known, and a kept one is in the band only when nobody
//! is healthy: answering 500 in a millisecond attracts no traffic.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::Candidate;
use super::random::Few;
use super::roster::Roster;
use super::round_robin::Order;

/// The policy, ready for its candidates.
#[derive(Debug)]
pub(super) struct Fastest {
    sensitivity: Duration,
    /// The places of those within the band, ascending.
    places: Box<[u32]>,
    order: Order,
}

/// The latency a candidate counts with.
pub(super) fn reckoned(candidate: &Candidate, largest_known: Duration) -> Duration {
    candidate.latency.unwrap_or(largest_known)
}

impl Fastest {
    /// For a roster ranked by [`reckoned`].
    pub(super) fn new(sensitivity: Duration, roster: &Roster, units: &[u64]) -> Fastest {
        let group = roster.groups().into_iter().find(|group| !group.is_empty()).unwrap_or_default();
        let ranks = band(roster, group, sensitivity);
        let mut places: Box<[u32]> = ranks.map(|rank| roster.place(rank) as u32).collect();
        places.sort_unstable();
        let order = Order::new(&places.iter().map(|&place| units[place as usize]).collect::<Vec<_>>());
        Fastest { sensitivity, places, order }
    }

    /// The places of those within the band, ascending: who shares the first attempts.
    pub(super) fn places(&self) -> &[u32] {
        &self.places
    }

    /// The place of the first attempt's member.
    pub(super) fn first(&self, turn: &AtomicUsize) -> usize {
        self.places[self.order.next(turn)] as usize
    }

    /// The place of another attempt's member: by weight among those in the band of the fastest one not tried.
    pub(super) fn other(&self, roster: &Roster, draw: u64, tried: &Few) -> Option<usize> {
        let in_group = |group: Range<usize>| {
            let left = tried.first_missing(group.clone())?..group.end;
            roster.wheel().at_without(band(roster, left, self.sensitivity), draw, tried)
        };
        Some(roster.place(roster.groups().into_iter().find_map(in_group)?))
    }
}

/// The first of these ranks and those within the sensitivity of it; nothing of nothing.
fn band(roster: &Roster, ranks: Range<usize>, sensitivity: Duration) -> Range<usize> {
    let latencies = &roster.latencies()[ranks.clone()];
    let limit = latencies.first().map_or(Duration::ZERO, |fastest| fastest.saturating_add(sensitivity));
    ranks.start..ranks.start + latencies.partition_point(|&latency| latency <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::tests::{hits, member};
    use crate::balance::{Balancer, Policy};

    fn ms(latency_ms: u64) -> Duration {
        Duration::from_millis(latency_ms)
    }

    fn of(latencies_ms: &[Option<u64>]) -> Vec<Candidate> {
        let timed =
            |(index, latency_ms): (usize, &Option<u64>)| Candidate { latency: latency_ms.map(ms), ..member(index) };
        latencies_ms.iter().enumerate().map(timed).collect()
    }

    fn shares(sensitivity: Duration, candidates: Vec<Candidate>, tried: &[usize]) -> Vec<u32> {
        hits(&Balancer::new(&Policy::Fastest { sensitivity }, candidates), 600, |_| 0, tried)
    }

    #[test]
    fn those_within_the_sensitivity_of_the_fastest_share() {
        for (latencies_ms, sensitivity, expected) in [
            // Example 5 of health.md §11.
            (&[Some(50), Some(60), Some(75)][..], ms(20), &[300, 300, 0][..]),
            (&[Some(50), Some(60), Some(75)], ms(0), &[600, 0, 0]),
            (&[Some(50), Some(60), Some(75)], ms(5), &[600, 0, 0]),
            // Within is up to and including.
            (&[Some(60), Some(50), Some(75)], ms(25), &[200, 200, 200]),
            // The fastest share, however strict.
            (&[Some(75), Some(50), Some(50)], ms(0), &[0, 300, 300]),
            // Without a latency of its own: as slow as the slowest known.
            (&[Some(50), None, Some(75)], ms(20), &[600, 0, 0]),
            (&[Some(50), None, Some(60)], ms(20), &[200, 200, 200]),
            (&[None, None, None], ms(0), &[200, 200, 200]),
            (&[Some(50), Some(9_000)], Duration::MAX, &[300, 300]),
        ] {
            assert_eq!(shares(sensitivity, of(latencies_ms), &[]), expected, "{latencies_ms:?} {sensitivity:?}");
        }
    }

    #[test]
    fn the_band_shares_by_weight_in_smooth_turns() {
        let mut candidates = of(&[Some(50), Some(90), Some(51), Some(49)]);
        candidates[0].weight = 5;
        let balancer = Balancer::new(&Policy::Fastest { sensitivity: ms(5) }, candidates);
        let turn = AtomicUsize::new(0);
        let sequence: Vec<usize> = (0..7).filter_map(|_| balancer.pick(&turn, 0, |_| 0, &[])).collect();
        assert_eq!(sequence, [0, 0, 2, 0, 3, 0, 0]);
    }

    /// Two equals whose latencies move to and fro within the sensitivity: whatever a roster brings, turns go on.
    #[test]
    fn two_equals_stay_between_40_and_60_percent_of_any_stretch() {
        let turn = AtomicUsize::new(5);
        let mut picks = Vec::new();
        for roster in 0..2_000_u64 {
            let latency = |member: u64| Some(50 + crate::balance::random::again(roster * 2 + member) % 20);
            let balancer = Balancer::new(&Policy::Fastest { sensitivity: ms(20) }, of(&[latency(0), latency(1)]));
            let requests = 1 + crate::balance::random::again(roster) % 9;
            picks.extend((0..requests).filter_map(|_| balancer.pick(&turn, 0, |_| 0, &[])));
        }
        for stretch in picks.windows(20) {
            let of_one = stretch.iter().filter(|picked| **picked == 0).count();
            assert!((8..=12).contains(&of_one), "{of_one} of 20");
        }
    }

    /// Example 15 of health.md §11: three of four fail in 1 ms, two are ejected, one is kept.
    #[test]
    fn a_kept_member_that_fails_fast_attracts_nothing() {
        let mut candidates = of(&[Some(50), Some(1)]);
        candidates[1].kept = true;
        assert_eq!(shares(ms(50), candidates.clone(), &[]), [600, 0]);
        assert_eq!(shares(ms(50), candidates.clone(), &[0]), [0, 600]);
        candidates[0].kept = true;
        assert_eq!(shares(ms(48), candidates, &[]), [0, 600]);
    }

    #[test]
    fn a_retry_goes_on_to_the_next_fastest_when_the_band_is_exhausted() {
        let mut candidates = of(&[Some(10), Some(12), Some(50), Some(55), Some(90), Some(1)]);
        candidates[5].kept = true;
        for (tried, expected) in [
            (&[0][..], &[1][..]),
            (&[0, 1], &[2, 3]),
            (&[1, 2, 0], &[3]),
            (&[0, 1, 2, 3], &[4]),
            (&[4, 3, 2, 1, 0], &[5]),
            (&[0, 1, 2, 3, 4, 5], &[]),
        ] {
            let shares = shares(ms(5), candidates.clone(), tried);
            let picked: Vec<usize> = (0..6).filter(|&index| shares[index] > 0).collect();
            assert_eq!(picked, expected, "after {tried:?}");
        }
    }
}
