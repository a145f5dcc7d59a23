//! What the pool may rely on, whatever the policy. What one policy promises beyond that is tested in its room.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::random::again;
use super::*;

/// As `peak_ewma` has it by default.
pub(super) const MEMORY: Memory = Memory { decay: Duration::from_secs(10), sensitivity: Duration::from_millis(50) };

const POLICIES: [Policy; 5] = [
    Policy::RoundRobin,
    Policy::LeastRequests { choices: 2 },
    Policy::Random,
    Policy::Fastest { sensitivity: Duration::from_millis(20) },
    Policy::PeakEwma(MEMORY),
];

/// A healthy member of weight 1.
pub(super) fn member(index: usize) -> Candidate {
    Candidate { index, weight: 1, split: 1, kept: false, latency: None }
}

/// Healthy members of these weights.
pub(super) fn weighted(weights: &[u32]) -> Vec<Candidate> {
    weights.iter().enumerate().map(|(index, &weight)| Candidate { weight, ..member(index) }).collect()
}

/// How often each index is picked. Random numbers are drawn anew for each pick, from a seed.
pub(super) fn hits(balancer: &Balancer, picks: u32, load: impl Fn(usize) -> u32, tried: &[usize]) -> Vec<u32> {
    let highest = balancer.candidates().last().map_or(0, |candidate| candidate.index);
    let mut hits = vec![0; highest + 1];
    let turn = AtomicUsize::new(again(11) as usize);
    let mut draw = 17;
    for _ in 0..picks {
        draw = again(draw);
        if let Some(index) = balancer.pick(&turn, draw, &load, tried) {
            hits[index] += 1;
        }
    }
    hits
}

/// The sequence of round robin, from turn 0.
fn sequence(candidates: Vec<Candidate>, picks: usize) -> Vec<usize> {
    let balancer = Balancer::new(&Policy::RoundRobin, candidates);
    let turn = AtomicUsize::new(0);
    (0..picks).filter_map(|_| balancer.pick(&turn, 0, |_| 0, &[])).collect()
}

/// Example 4 of health.md §11, and case C44: 25 % ± 1 % each, not one neighbour 40 %.
#[test]
fn an_ejected_members_share_goes_to_all_others() {
    let candidates: Vec<Candidate> = [0, 1, 3, 4].map(member).into();
    for policy in &POLICIES {
        let hits = hits(&Balancer::new(policy, candidates.clone()), 10_000, |_| 0, &[]);
        assert_eq!(hits[2], 0, "{policy:?}");
        for index in [0, 1, 3, 4] {
            assert!((2_400..=2_600).contains(&hits[index]), "{policy:?}: {hits:?}");
        }
    }
}

#[test]
fn a_failing_members_retries_go_to_all_others() {
    for policy in &POLICIES {
        let balancer = Balancer::new(policy, weighted(&[1; 5]));
        let turn = AtomicUsize::new(0);
        let (mut draw, mut served, mut failed) = (5, [0; 5], 0);
        for _ in 0..10_000 {
            draw = again(draw);
            let mut index = balancer.pick(&turn, draw, |_| 0, &[]).unwrap();
            if index == 2 {
                failed += 1;
                draw = again(draw);
                index = balancer.pick(&turn, draw, |_| 0, &[2]).unwrap();
            }
            served[index] += 1;
        }
        assert_eq!(served[2], 0);
        for index in [0, 1, 3, 4] {
            assert!((2_400..=2_600).contains(&served[index]), "{policy:?}: {served:?}");
        }
        assert!((1_900..=2_100).contains(&failed), "{policy:?}: retries take turns: {failed}");
    }
}

/// A retry that took a turn would make the failing one of two the first choice of every request.
#[test]
fn a_failing_member_of_two_is_the_first_choice_of_half_the_requests() {
    for policy in &POLICIES {
        let balancer = Balancer::new(policy, weighted(&[1, 1]));
        let turn = AtomicUsize::new(0);
        let mut firsts = [0u32; 2];
        for request in 0..2_000u64 {
            let first = balancer.pick(&turn, again(request), |_| 0, &[]).unwrap();
            firsts[first] += 1;
            if first == 0 {
                assert_eq!(balancer.pick(&turn, again(!request), |_| 0, &[0]), Some(1));
            }
        }
        assert!(firsts[0].abs_diff(1_000) < 100, "{policy:?}: {firsts:?}");
    }
}

/// Case C43.
#[test]
fn heavy_unhealthy_hosts_do_not_hide_a_light_healthy_one() {
    for policy in &POLICIES {
        let alone = Balancer::new(policy, vec![member(700)]);
        assert_eq!(hits(&alone, 1_000, |_| 9, &[])[700], 1_000, "{policy:?}");
        // The heavy ones tried, or kept: a retry still finds the light one at once.
        let light = Balancer::new(policy, weighted(&[100, 1]));
        assert_eq!(hits(&light, 1_000, |_| 0, &[0]), [0, 1_000], "{policy:?}");
        let mut crowd = weighted(&[100; 1_000]);
        crowd.iter_mut().for_each(|candidate| candidate.kept = true);
        (crowd[700].kept, crowd[700].weight) = (false, 1);
        assert_eq!(hits(&Balancer::new(policy, crowd), 1_000, |_| 0, &[3])[700], 1_000, "{policy:?}");
    }
}

/// Case C44: the recorded sequences.
#[test]
fn weighted_turns_are_smooth() {
    assert_eq!(sequence(weighted(&[5, 1, 1]), 7), [0, 0, 1, 0, 2, 0, 0]);
    assert_eq!(sequence(weighted(&[500, 100, 100]), 7), [0, 0, 1, 0, 2, 0, 0]);
    let two_to_one = sequence(weighted(&[21, 11]), 32);
    assert_eq!(two_to_one.iter().filter(|&&index| index == 0).count(), 21);
    assert!(two_to_one.windows(3).all(|three| three != [0, 0, 0]) && !two_to_one.windows(2).any(|two| two == [1, 1]));
    assert_eq!(sequence(weighted(&[1, 1, 1]), 6), [0, 1, 2, 0, 1, 2]);
}

/// Case C44: a reload about every 10 requests, with the same members and with one that comes and goes.
#[test]
fn frequent_reloads_favour_no_host() {
    for (one, other) in [([1, 1, 1, 1, 1], 5), ([1, 1, 1, 1, 1], 4), ([3, 1, 1, 1, 1], 4), ([5, 3, 2, 1, 7], 5)] {
        let rosters = [&one[..], &one[..other]].map(weighted);
        let expected = |index: usize| {
            let share = |weights: &[u32]| {
                let weight = weights.get(index).map_or(0.0, |&weight| f64::from(weight));
                weight / f64::from(weights.iter().sum::<u32>())
            };
            5_000.0 * (share(&one) + share(&one[..other]))
        };
        let turn = AtomicUsize::new(0);
        let mut hits = [0u32; 5];
        for reload in 0..1_000 {
            let balancer = Balancer::new(&Policy::RoundRobin, rosters[reload % 2].clone());
            // 7 to 13; the same members are reloaded exactly every 10. (Two rosters that alternate in lockstep with
            // the number of requests would each see the same few turns of their schedule: traffic is not like that.)
            let requests = if other == 5 { 10 } else { 7 + again(reload as u64 / 2) % 7 };
            (0..requests).for_each(|_| hits[balancer.pick(&turn, 0, |_| 0, &[]).unwrap()] += 1);
        }
        for (index, &hits) in hits.iter().enumerate() {
            assert!((f64::from(hits) - expected(index)).abs() <= 200.0, "{one:?}/{other} member {index}: {hits}");
        }
    }
}

#[test]
fn names_of_equal_weight_get_equal_shares_whatever_they_resolve_to() {
    // Two names of weight 1: one has two addresses, the other three; then two of weight 7 with 4 and 1.
    for (split, weight) in [([2, 2, 3, 3, 3], 1), ([4, 4, 4, 4, 1], 7)] {
        let addresses = split.iter().enumerate().map(|(index, &split)| Candidate { split, weight, ..member(index) });
        for policy in [Policy::RoundRobin, Policy::Random] {
            let hits = hits(&Balancer::new(&policy, addresses.clone().collect()), 12_000, |_| 0, &[]);
            for (hits, split) in hits.iter().zip(split) {
                assert!(hits.abs_diff(6_000 / split) < 250, "{policy:?}: {hits} of 12000 for a split of {split}");
            }
        }
    }
}

#[test]
fn ten_thousand_of_any_weights_all_get_their_share() {
    let weights: Vec<u32> = (0..10_000).map(|index| 1 + (again(index) % 1_000) as u32).collect();
    let total: u32 = weights.iter().sum();
    let hits = hits(&Balancer::new(&Policy::RoundRobin, weighted(&weights)), 2 * total, |_| 0, &[]);
    for (hits, weight) in hits.iter().zip(weights) {
        assert!(*hits > 0 && hits.abs_diff(2 * weight) <= 4, "{hits} picks for twice a weight of {weight}");
    }
}

#[test]
fn what_cannot_be_a_candidate_is_left_out() {
    let odd = vec![
        Candidate { weight: 0, ..member(4) },
        Candidate { split: 0, weight: 1_000_000_000, ..member(2) },
        Candidate { weight: 9, ..member(2) },
        member(1),
    ];
    for policy in &POLICIES {
        let balancer = Balancer::new(policy, odd.clone());
        let indices: Vec<usize> = balancer.candidates().iter().map(|candidate| candidate.index).collect();
        assert_eq!(indices, [1, 2], "{policy:?}");
        assert!(hits(&balancer, 50, |_| 0, &[])[..].iter().sum::<u32>() == 50);
        let nobody = Balancer::new(policy, vec![Candidate { weight: 0, ..member(0) }]);
        assert_eq!(nobody.pick(&AtomicUsize::new(0), 0, |_| 0, &[]), None);
        assert_eq!(nobody.pick(&AtomicUsize::new(0), 0, |_| 0, &[0]), None);
    }
}

#[test]
fn however_many_are_tried_the_last_one_left_is_found() {
    let tried: Vec<usize> = (0..40).filter(|&index| index != 35).collect();
    for policy in &POLICIES {
        let balancer = Balancer::new(policy, weighted(&[1; 40]));
        assert_eq!(hits(&balancer, 200, |_| 0, &tried)[35], 200, "{policy:?}");
    }
}

#[test]
fn a_retry_takes_no_turn() {
    for policy in &POLICIES {
        let turn = AtomicUsize::new(3);
        let balancer = Balancer::new(policy, weighted(&[1; 20]));
        assert!(balancer.pick(&turn, 5, |_| 0, &[1]).is_some());
        assert_eq!(turn.load(Ordering::Relaxed), 3, "{policy:?}");
    }
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::RoundRobin),
        any::<u8>().prop_map(|choices| Policy::LeastRequests { choices }),
        Just(Policy::Random),
        (0u64..100).prop_map(|ms| Policy::Fastest { sensitivity: Duration::from_millis(ms) }),
        Just(Policy::PeakEwma(MEMORY)),
    ]
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let weight = prop_oneof![8 => 0u32..1_001, 1 => any::<u32>()];
    let split = prop_oneof![8 => 1u32..7, 1 => any::<u32>()];
    let latency = prop::option::of((0u64..200).prop_map(Duration::from_millis));
    let parts = (0usize..40, weight, split, any::<bool>(), latency);
    parts.prop_map(|(index, weight, split, kept, latency)| Candidate { index, weight, split, kept, latency })
}

proptest! {
    #[test]
    fn a_pick_is_a_candidate_not_tried_and_healthy_if_it_can_be(
        policy in policy(),
        candidates in prop::collection::vec(candidate(), 0..45),
        tried in prop_oneof![3 => prop::collection::vec(0usize..40, 0..6), 1 => prop::collection::vec(0usize..40, 0..60)],
        (turn, draw, loads) in (any::<usize>(), any::<u64>(), prop::collection::vec(prop_oneof![0u32..5, any::<u32>()], 40)),
    ) {
        let balancer = Balancer::new(&policy, candidates);
        let left = || balancer.candidates().iter().filter(|candidate| !tried.contains(&candidate.index));
        let picked = balancer.pick(&AtomicUsize::new(turn), draw, |index| loads[index], &tried);
        prop_assert_eq!(picked, balancer.pick(&AtomicUsize::new(turn), draw, |index| loads[index], &tried));
        let Some(picked) = picked else {
            prop_assert_eq!(left().count(), 0);
            return Ok(());
        };
        let picked = left().find(|candidate| candidate.index == picked);
        prop_assert!(picked.is_some(), "not a candidate, or tried");
        if !tried.is_empty() && left().any(|candidate| !candidate.kept) {
            prop_assert!(picked.is_some_and(|candidate| !candidate.kept));
        }
    }

    #[test]
    fn shares_are_exact_over_a_whole_schedule(
        members in prop::collection::vec((1u32..12, 1u32..5), 1..12),
        start: u32,
    ) {
        let candidates = members.iter().enumerate();
        let candidates = candidates.map(|(index, &(weight, split))| Candidate { weight, split, ..member(index) });
        let units = shares::units(&candidates.clone().collect::<Vec<_>>());
        let balancer = Balancer::new(&Policy::RoundRobin, candidates.collect());
        let turn = AtomicUsize::new(start as usize);
        let mut hits = vec![0u64; units.len()];
        (0..units.iter().sum()).for_each(|_: u64| hits[balancer.pick(&turn, 0, |_| 0, &[]).unwrap()] += 1);
        prop_assert_eq!(&hits, &units);
    }
}
