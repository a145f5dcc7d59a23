//! The least loaded of a few.
//!
//! Looking at all members costs more with every member; looking at two is nearly as even (the power of two choices).
//! One is the member whose turn it is, the others are drawn by weight: so equally loaded members simply take turns,
//! and a heavy member is looked at as often as its weight says. Up to 8 members all are looked at. Whoever is idle when its
//! turn comes is taken without a look at others: while there is little to do a light member has its share too, where it
//! would have none for as long as a heavier one is idle.
//! A ramp (`slow_start`) comes in as a weight: seven tenths of 3 are `weight: 21, split: 10`.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Candidate;
use super::random::{Few, again};
use super::roster::Roster;
use super::round_robin::Order;

/// Up to so many members all are looked at, whatever `choices` says.
const LOOK_AT_ALL: usize = 8;

/// `choices` ends here; what more would find is not worth its cost.
const MOST_CHOICES: usize = 16;

/// The policy, ready for its candidates.
#[derive(Debug)]
pub(super) struct LeastRequests {
    choices: usize,
    order: Order,
}

impl LeastRequests {
    pub(super) fn new(choices: u8, units: &[u64]) -> LeastRequests {
        LeastRequests { choices: usize::from(choices).clamp(2, MOST_CHOICES), order: Order::new(units) }
    }

    /// The place of the first attempt's member.
    pub(super) fn first(&self, roster: &Roster, turn: &AtomicUsize, draw: u64, load: impl Fn(usize) -> u32) -> usize {
        let looks_at_all = self.looks_at_all(roster.len());
        if looks_at_all && self.order.is_plain() {
            let mut lightest = Lightest::of(roster, load);
            (0..roster.len()).for_each(|place| lightest.look_at(place));
            // A turn is taken only where there is a tie: else ties that come at every second pick all go one way.
            return lightest.choose(|| turn.fetch_add(1, Ordering::Relaxed));
        }
        let whose_turn = self.order.next(turn);
        if load(roster.candidates()[whose_turn].index) == 0 {
            return whose_turn;
        }
        let mut lightest = Lightest::of(roster, load);
        lightest.look_at(whose_turn);
        if looks_at_all {
            (0..roster.len()).filter(|place| *place != whose_turn).for_each(|place| lightest.look_at(place));
        } else {
            let mut seen = Few::none();
            seen.add(roster.rank(whose_turn));
            look_at_drawn(self.choices - 1, roster, 0..roster.len(), draw, &mut seen, &mut lightest);
        }
        lightest.choose(|| 0)
    }

    /// The place of another attempt's member.
    pub(super) fn other(
        &self,
        roster: &Roster,
        draw: u64,
        load: impl Fn(usize) -> u32,
        tried: &mut Few,
    ) -> Option<usize> {
        let group = roster.groups().into_iter().find(|group| tried.first_missing(group.clone()).is_some())?;
        let mut lightest = Lightest::of(roster, load);
        if self.looks_at_all(group.len()) {
            group.filter(|&rank| !tried.contains(rank)).for_each(|rank| lightest.look_at(roster.place(rank)));
            return Some(lightest.choose(|| (draw >> 32) as usize));
        }
        look_at_drawn(self.choices, roster, group, draw, tried, &mut lightest);
        Some(lightest.choose(|| 0))
    }

    /// Whether all of so many members are looked at, and none is drawn.
    pub(super) fn looks_at_all(&self, members: usize) -> bool {
        members <= LOOK_AT_ALL.max(self.choices)
    }
}

/// Draws `count` members of a range of ranks, none twice and none of those `seen`.
fn look_at_drawn<L: Fn(usize) -> u32>(
    count: usize,
    roster: &Roster,
    range: Range<usize>,
    mut draw: u64,
    seen: &mut Few,
    lightest: &mut Lightest<'_, L>,
) {
    for left in (0..count).rev() {
        let Some(rank) = roster.wheel().at_without(range.clone(), draw, seen) else { return };
        lightest.look_at(roster.place(rank));
        if left > 0 {
            seen.add(rank);
            draw = again(draw);
        }
    }
}

/// The lightest of those looked at, and who equals it.
struct Lightest<'a, L> {
    roster: &'a Roster,
    load: L,
    score: Option<Score>,
    /// The places of the equals, in the order they were looked at.
    equals: [u32; MOST_CHOICES],
    len: usize,
}

impl<'a, L: Fn(usize) -> u32> Lightest<'a, L> {
    fn of(roster: &'a Roster, load: L) -> Lightest<'a, L> {
        Lightest { roster, load, score: None, equals: [0; MOST_CHOICES], len: 0 }
    }

    fn look_at(&mut self, place: usize) {
        let candidate = &self.roster.candidates()[place];
        let score = Score::of(candidate, (self.load)(candidate.index));
        match self.score.map_or(std::cmp::Ordering::Less, |lightest| score.cmp(lightest)) {
            std::cmp::Ordering::Less => (self.score, self.len) = (Some(score), 0),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => return,
        }
        self.equals[self.len] = place as u32;
        self.len += 1;
    }

    /// One of the equals; `which` is asked only where there are several. At least one was looked at.
    fn choose(&self, which: impl FnOnce() -> usize) -> usize {
        let chosen = if self.len > 1 { which() % self.len } else { 0 };
        self.equals[chosen] as usize
    }
}

/// (in flight + 1) / (weight / split), compared without rounding. The one more is this request.
#[derive(Debug, Clone, Copy)]
struct Score {
    requests: u64,
    weight: u32,
}

impl Score {
    fn of(candidate: &Candidate, in_flight: u32) -> Score {
        Score { requests: (u64::from(in_flight) + 1) * u64::from(candidate.split), weight: candidate.weight }
    }

    fn cmp(self, other: Score) -> std::cmp::Ordering {
        let ours = u128::from(self.requests) * u128::from(other.weight);
        ours.cmp(&(u128::from(other.requests) * u128::from(self.weight)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::tests::{hits, member, weighted};
    use crate::balance::{Balancer, Policy};

    fn balancer(choices: u8, candidates: Vec<Candidate>) -> Balancer {
        Balancer::new(&Policy::LeastRequests { choices }, candidates)
    }

    /// Requests that stay: each pick sees what the ones before have left on the members.
    fn fill(balancer: &Balancer, members: usize, requests: u32) -> Vec<u32> {
        let turn = AtomicUsize::new(0);
        let mut in_flight = vec![0; members];
        let mut draw = 1;
        for _ in 0..requests {
            draw = again(draw);
            let picked = balancer.pick(&turn, draw, |index| in_flight[index], &[]).unwrap();
            in_flight[picked] += 1;
        }
        in_flight
    }

    #[test]
    fn up_to_eight_members_the_least_loaded_of_all_is_picked() {
        let balancer = balancer(2, weighted(&[1, 1, 2, 4, 1, 1, 1, 1]));
        for (load, expected) in [
            ([3, 3, 3, 9, 3, 3, 3, 2], 2), // 4/2 before 10/4 and 3/1
            ([3, 3, 3, 6, 3, 3, 3, 2], 3), // 7/4
            ([9, 0, 9, 9, 9, 9, 9, 9], 1),
            ([u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX, 5, u32::MAX, u32::MAX], 5),
        ] {
            for draw in 0..20 {
                let picked = balancer.pick(&AtomicUsize::new(draw), again(draw as u64), |index| load[index], &[]);
                assert_eq!(picked, Some(expected), "{load:?}");
            }
        }
    }

    #[test]
    fn equals_take_turns() {
        // 1 and 3 are equal, the others loaded: no neighbour gets more.
        let load = |index| [7, 1, 7, 1, 7][index];
        assert_eq!(hits(&balancer(2, weighted(&[1; 5])), 1000, load, &[]), [0, 500, 0, 500, 0]);
        // As many as there may be: all idle, in a pool too large to look at all.
        assert_eq!(hits(&balancer(2, weighted(&[1; 40])), 4000, |_| 0, &[]), [100; 40]);
    }

    #[test]
    fn one_after_the_other_members_get_their_share_by_weight() {
        // A tenth of a weight, as in a slow start; and in a pool too large to look at all.
        let ramps = |members| {
            let candidate = |index| Candidate { split: if index == 0 { 10 } else { 1 }, ..member(index) };
            (0..members).map(candidate).collect()
        };
        assert_eq!(hits(&balancer(2, weighted(&[1, 2])), 300, |_| 0, &[]), [100, 200]);
        assert_eq!(hits(&balancer(2, ramps(3)), 210, |_| 0, &[]), [10, 100, 100]);
        assert_eq!(hits(&balancer(2, ramps(31)), 301, |_| 0, &[])[..3], [1, 10, 10]);
    }

    #[test]
    fn of_a_light_member_no_more_is_wanted_than_its_share_while_others_are_busy() {
        let balancer = balancer(2, vec![Candidate { split: 10, ..member(0) }, member(1), member(2)]);
        // Idle among those who have one each it is not the lightest: 10 to 2.
        assert_eq!(hits(&balancer, 210, |index| u32::from(index > 0), &[]), [10, 100, 100]);
        assert_eq!(hits(&balancer, 210, |_| 1, &[])[0], 0);
    }

    #[test]
    fn ties_at_every_second_pick_do_not_all_go_to_the_same() {
        let balancer = balancer(2, weighted(&[1, 1]));
        let turn = AtomicUsize::new(0);
        let mut firsts = [0; 2];
        for draw in 0..100 {
            let first = balancer.pick(&turn, draw, |_| 0, &[]).unwrap();
            let second = balancer.pick(&turn, draw, |index| u32::from(index == first), &[]).unwrap();
            assert_ne!(first, second);
            firsts[first] += 1;
        }
        assert_eq!(firsts, [50, 50]);
    }

    #[test]
    fn requests_in_flight_settle_in_the_proportion_of_weights() {
        assert_eq!(fill(&balancer(2, weighted(&[1, 2, 5])), 3, 800), [100, 200, 500]);
        let weights: Vec<u32> = (0..100).map(|member| 1 + member % 4).collect();
        for choices in [0, 2, 5, 255] {
            let in_flight = fill(&balancer(choices, weighted(&weights)), 100, 25_000);
            for (load, weight) in in_flight.iter().zip(&weights) {
                assert!(load.abs_diff(100 * weight) <= 20 * weight, "{choices}: {load} on a weight of {weight}");
            }
        }
    }

    #[test]
    fn a_member_that_hangs_is_left_alone_in_a_large_pool() {
        let balancer = balancer(2, weighted(&[1; 50]));
        let hits = hits(&balancer, 5_000, |index| if index == 7 { 500 } else { 1 }, &[]);
        assert_eq!(hits[7], 0, "{hits:?}");
    }

    #[test]
    fn the_choices_are_distinct() {
        // 16 of 17 are looked at, so of two idle ones at least one always is; were some looked at twice, it would not.
        let balancer = balancer(16, weighted(&[1; 17]));
        let hits = hits(&balancer, 2_000, |index| if index < 2 { 0 } else { 3 }, &[]);
        assert_eq!(hits[0] + hits[1], 2_000, "{hits:?}");
    }

    #[test]
    fn the_choices_of_a_retry_are_independent() {
        // One half is loaded, side by side: two draws both fall into it in a quarter of the cases, neighbours in half.
        let balancer = balancer(2, weighted(&[1; 41]));
        let hits = hits(&balancer, 10_000, |index| u32::from(index < 20), &[40]);
        assert!(hits[..20].iter().sum::<u32>().abs_diff(2_436) < 200, "{hits:?}");
    }

    #[test]
    fn a_retry_takes_the_lightest_healthy_one_not_tried() {
        let mut candidates = weighted(&[1; 5]);
        candidates[0].kept = true;
        let load = |index| [0, 1, 2, 2, 9][index];
        let few = balancer(2, candidates);
        assert_eq!(hits(&few, 100, load, &[1])[..2], [0, 0]);
        let equals = &hits(&few, 10_000, load, &[1])[2..];
        assert!(equals[0].abs_diff(5_000) < 200 && equals[2] == 0, "{equals:?}");
        assert_eq!(hits(&few, 10, load, &[1, 2, 3]), [0, 0, 0, 0, 10]);
        assert_eq!(hits(&few, 10, load, &[4, 1, 2, 3]), [10, 0, 0, 0, 0]);

        let many = balancer(2, (0..30).map(|index| Candidate { kept: index % 2 == 0, ..member(index) }).collect());
        let hits = hits(&many, 3_000, |index| u32::from(index == 5) * 9, &[1, 3]);
        let healthy = |index: usize| index % 2 == 1 && index > 5;
        assert!(hits.iter().enumerate().all(|(index, &hits)| (hits > 150) == healthy(index)), "{hits:?}");
    }

    fn score(weight: u32, split: u32, in_flight: u32) -> Score {
        Score::of(&Candidate { index: 0, weight, split, kept: false, latency: None }, in_flight)
    }

    #[test]
    fn scores_compare_as_exact_fractions() {
        use std::cmp::Ordering::{Equal, Greater, Less};
        for (one, other, expected) in [
            (score(1, 1, 0), score(1, 1, 0), Equal),
            (score(2, 1, 0), score(1, 1, 0), Less),
            (score(2, 1, 1), score(1, 1, 0), Equal),
            (score(2, 1, 2), score(1, 1, 0), Greater),
            (score(1, 3, 0), score(1, 1, 2), Equal),
            (score(3, 7, 2), score(1, 1, 6), Equal),
            (score(1, 1, u32::MAX), score(1, u32::MAX, 0), Greater),
            (score(1, u32::MAX, u32::MAX), score(u32::MAX, u32::MAX, u32::MAX), Greater),
            (score(1_000_000_007, 1, 1_000_000_006), score(1_000_000_009, 1, 1_000_000_008), Equal),
        ] {
            assert_eq!(one.cmp(other), expected, "{one:?} {other:?}");
        }
    }
}
