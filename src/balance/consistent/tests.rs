//! Who moves and who does not, when members come, go, and are walked past.

use super::*;
use crate::balance::tests::member;
use crate::balance::{Balancer, Candidate};

const KEYS: usize = 20_000;

fn seat(number: usize) -> Seat {
    let address = SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 8080));
    Seat { index: number, address, weight: 1, split: 1, tier: 0, source: None }
}

fn seats(count: usize) -> Vec<Seat> {
    (0..count).map(seat).collect()
}

/// The picker over these seats, of which those that `may` serve are candidates.
fn balancer(seats: &[Seat], may: impl Fn(usize) -> bool) -> Balancer {
    let rings = Rings::new(seats.to_vec());
    let candidate = |seat: &Seat| Candidate { weight: seat.weight, split: seat.split, ..member(seat.index) };
    let candidates = seats.iter().filter(|seat| may(seat.index)).map(candidate).collect();
    Balancer::with_ring(rings.of(0).expect("a ring").clone(), None, candidates)
}

fn key(number: usize) -> Vec<u8> {
    format!("client-{number}").into_bytes()
}

fn pick(balancer: &Balancer, number: usize, tried: &[usize]) -> usize {
    balancer.pick_for(&key(number), |_| 0, || 0, tried).expect("somebody")
}

fn owners(balancer: &Balancer) -> Vec<usize> {
    (0..KEYS).map(|number| pick(balancer, number, &[])).collect()
}

fn share(owners: &[usize], index: usize) -> f64 {
    owners.iter().filter(|owner| **owner == index).count() as f64 / owners.len() as f64
}

fn moved(before: &[usize], after: &[usize]) -> f64 {
    before.iter().zip(after).filter(|(before, after)| before != after).count() as f64 / before.len() as f64
}

#[test]
fn removing_one_of_n_moves_its_own_keys_alone() {
    for count in [2, 5, 10, 50] {
        let before = owners(&balancer(&seats(count), |_| true));
        let after = owners(&balancer(&seats(count - 1), |_| true));
        let gone = count - 1;
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == gone), "of {count}");
        let expected = 1.0 / count as f64;
        assert!((0.6..1.5).contains(&(moved(&before, &after) / expected)), "of {count}: {}", moved(&before, &after));
    }
}

#[test]
fn the_keys_of_an_ejected_one_return_with_it() {
    let all = seats(10);
    let before = owners(&balancer(&all, |_| true));
    let without = owners(&balancer(&all, |index| index != 3));
    assert!(before.iter().zip(&without).all(|(before, after)| (before == after) != (*before == 3)));
    // They spread over the others: nobody inherits them all.
    let heirs: BTreeSet<usize> = before.iter().zip(&without).filter(|(b, _)| **b == 3).map(|(_, heir)| *heir).collect();
    assert_eq!(heirs.len(), 9);
    assert_eq!(owners(&balancer(&all, |_| true)), before);
}

#[test]
fn an_ejected_ones_keys_go_where_a_removed_ones_would() {
    let ejected = owners(&balancer(&seats(10), |index| index != 9));
    assert_eq!(ejected, owners(&balancer(&seats(9), |_| true)));
}

#[test]
fn the_ring_is_the_same_in_any_order_and_only_addresses_count() {
    let forwards = balancer(&seats(7), |_| true);
    let mut turned: Vec<Seat> = seats(7);
    turned.reverse();
    (0..7).for_each(|index| turned[index].index = index);
    let backwards = balancer(&turned, |_| true);
    for number in 0..500 {
        assert_eq!(pick(&forwards, number, &[]), 6 - pick(&backwards, number, &[]));
    }
}

#[test]
fn shares_go_by_weight() {
    let weighted = |weights: &[u32]| -> Vec<Seat> {
        weights.iter().enumerate().map(|(index, weight)| Seat { weight: *weight, ..seat(index) }).collect()
    };
    for weights in [&[1, 1, 1, 1][..], &[1, 2, 5], &[1000, 500, 500], &[0, 3, 1]] {
        let owners = owners(&balancer(&weighted(weights), |index| weights[index] > 0));
        let sum: u32 = weights.iter().sum();
        for (index, weight) in weights.iter().enumerate() {
            let (is, expected) = (share(&owners, index), f64::from(*weight) / f64::from(sum));
            assert!((is - expected).abs() <= 0.25 * expected, "{weights:?}: {index} has {is}, expected {expected}");
        }
    }
}

#[test]
fn a_name_shares_its_weight_among_its_addresses() {
    let of = |name: &str, split, numbers: std::ops::Range<usize>| -> Vec<Seat> {
        numbers.map(|number| Seat { split, source: Some(name.into()), ..seat(number) }).collect()
    };
    let owners_of = |seats: Vec<Seat>| owners(&balancer(&seats, |_| true));
    let both = owners_of([of("a", 4, 0..4), of("b", 1, 4..5)].concat());
    assert!((share(&both, 4) - 0.5).abs() < 0.1, "{}", share(&both, 4));
    // One name alone: an address less moves its own keys and no others.
    let (five, four) = (owners_of(of("a", 5, 0..5)), owners_of(of("a", 4, 0..4)));
    assert!(five.iter().zip(&four).all(|(five, four)| five == four || *five == 4));
}

#[test]
fn a_retry_goes_on_round_the_ring_and_prefers_the_healthy() {
    let all = seats(6);
    let rings = Rings::new(all.clone());
    let candidate = |seat: &Seat| Candidate { kept: seat.index >= 4, ..member(seat.index) };
    let balancer = Balancer::with_ring(rings.of(0).expect("a ring").clone(), None, all.iter().map(candidate).collect());
    for number in 0..2_000 {
        let mut tried = Vec::new();
        for attempt in 0..6 {
            let next = pick(&balancer, number, &tried);
            assert!(!tried.contains(&next));
            let healthy_left = (0..4).any(|index| !tried.contains(&index));
            assert!(attempt == 0 || next < 4 || !healthy_left, "{next} after {tried:?}");
            tried.push(next);
        }
        assert_eq!(balancer.pick_for(&key(number), |_| 0, || 0, &tried), None);
    }
    let firsts = owners(&balancer);
    assert!(share(&firsts, 4) > 0.05, "kept ones keep their keys: only a retry looks for a better one");
}

#[test]
fn nobody_carries_more_than_the_bound() {
    for percent in [101, 125, 200] {
        let all = seats(8);
        let rings = Rings::new(all.clone());
        let candidates = all.iter().map(|seat| member(seat.index)).collect();
        let balancer = Balancer::with_ring(rings.of(0).expect("a ring").clone(), Some(percent), candidates);
        let mut load = [0_u32; 8];
        for number in 0..4_000_u64 {
            // Two keys make nearly all of the load.
            let hot = key((number % 2) as usize);
            let picked = balancer.pick_for(&hot, |index| load[index], || number, &[]).expect("somebody");
            load[picked] += 1;
            let most = (f64::from(percent) / 100.0 * (number + 1) as f64 / 8.0).ceil();
            assert!(f64::from(load[picked]) <= most, "{load:?} after {number} at {percent} %");
        }
    }
}

#[test]
fn with_room_everywhere_a_bound_moves_nothing() {
    let all = seats(8);
    let rings = Rings::new(all.clone());
    let bounded = |percent| {
        let candidates = all.iter().map(|seat| member(seat.index)).collect();
        Balancer::with_ring(rings.of(0).expect("a ring").clone(), percent, candidates)
    };
    assert_eq!(owners(&bounded(Some(125))), owners(&bounded(None)));
}

#[test]
fn where_next_to_nobody_may_serve_a_key_still_finds_its_own() {
    let all = seats(3_000);
    let sparse = balancer(&all, |index| index == 17 || index == 1_717);
    let owners = owners(&sparse);
    assert!(owners.iter().all(|owner| [17, 1_717].contains(owner)));
    assert!((0.3..0.7).contains(&share(&owners, 17)), "{}", share(&owners, 17));
    assert_eq!(pick(&sparse, 5, &[17]), 1_717);
}

/// Case C45.
#[test]
fn weights_of_nothing_and_of_far_too_much_stop_nobody() {
    for weights in [[0, 0, 0], [0, 1, 0], [u32::MAX, 1, 1], [u32::MAX, u32::MAX, u32::MAX]] {
        let seats: Vec<Seat> = (0..3).map(|index| Seat { weight: weights[index], ..seat(index) }).collect();
        let rings = Rings::new(seats);
        assert_eq!(rings.of(0).is_some(), weights != [0, 0, 0], "{weights:?}");
    }
    assert!(Rings::new(Vec::new()).of(0).is_none());
}

#[test]
fn two_members_at_one_address_stand_in_for_each_other() {
    let twins = vec![seat(0), Seat { index: 1, ..seat(0) }, Seat { index: 2, ..seat(2) }];
    let both = owners(&balancer(&twins, |_| true));
    let second = owners(&balancer(&twins, |index| index != 0));
    assert!(both.iter().zip(&second).all(|(both, second)| (*both, *second) == (2, 2) || (*both, *second) == (0, 1)));
}

#[test]
fn each_tier_has_its_own_ring() {
    let two = vec![seat(0), Seat { tier: 3, ..seat(1) }];
    let rings = Rings::new(two.clone());
    assert!(rings.of(0).is_some() && rings.of(3).is_some() && rings.of(1).is_none());
    assert!(rings.are_for(&two) && !rings.are_for(&two[..1]));
}
