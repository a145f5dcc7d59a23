//! Smooth weighted round-robin: the order in which members take turns.
//!
//! The order is a function of the turn alone, so a pick is one atomic add, the position survives a new roster, and a
//! member's turns come evenly spread and never in bursts (5:1:1 is `a a b a c a a`, as in nginx).
//!
//! Three forms, by what the weights allow:
//! - equal weights: plain turns, nothing is stored;
//! - a sum of up to 65,536 units, if they are not of too many kinds: nginx's order, exact over every full schedule;
//! - more (10,000 members of weights 1 to 1,000 sum up to five million): a schedule would be too long to write at every
//!   transition, and a shortened one would give the lightest many times their share. There the turn is multiplied by
//!   the golden ratio and its fraction is a point on the [`Wheel`]. This has the exact shares in the long run, is at
//!   every moment off by a few picks only (under ten in a million: the fractions are the most evenly spread sequence
//!   there is), and a member with the share `p` is met at least once in any `2 / p` turns.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::random::Wheel;
use super::shares;

/// The longest schedule, in slots of 4 bytes.
const MOST_SLOTS: u64 = 1 << 16;

/// Slots × distinct weights a schedule may cost: about a millisecond.
const MOST_STEPS: u64 = 1 << 20;

/// 2^64 / the golden ratio; odd, so that all turns together meet every point once.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The order of turns over a list of members.
#[derive(Debug)]
pub(super) enum Order {
    /// So many members, one after another.
    Plain(usize),
    /// A schedule, again and again.
    Slots(Box<[u32]>),
    /// Spread over the wheel by the golden ratio.
    Spread(Wheel),
}

impl Order {
    /// The order for members of these units.
    pub(super) fn new(units: &[u64]) -> Order {
        let mut units = units.to_vec();
        shares::reduce(&mut units);
        if units.iter().all(|&unit| unit == 1) {
            return Order::Plain(units.len());
        }
        // The sum of units fits: `shares` sees to that.
        let total: u64 = units.iter().sum();
        if total <= MOST_SLOTS {
            let classes = classes(&units);
            if total * classes.len() as u64 <= MOST_STEPS {
                return Order::Slots(smooth(classes, total));
            }
        }
        Order::Spread(Wheel::new(units.into_iter()))
    }

    /// All members have the same weight.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Order::Plain(_))
    }

    /// Takes a turn: a position in the list, which is not empty.
    pub(super) fn next(&self, turn: &AtomicUsize) -> usize {
        self.at(turn.fetch_add(1, Ordering::Relaxed))
    }

    fn at(&self, turn: usize) -> usize {
        match self {
            Order::Plain(len) => turn % len,
            Order::Slots(slots) => slots[turn % slots.len()] as usize,
            Order::Spread(wheel) => wheel.at((turn as u64).wrapping_mul(GOLDEN)),
        }
    }
}

/// Members of the same weight. In nginx's order they take plain turns among themselves, so only the next of each class
/// has to be compared, which makes a schedule cost slots × distinct weights instead of slots × members.
struct Class {
    weight: i64,
    /// What the next member has saved up: `weight` a slot, less the total for each time it was chosen.
    credit: i64,
    members: Vec<u32>,
    next: usize,
}

impl Class {
    /// Credit first, then the place in the list.
    fn is_before(&self, other: &Class) -> bool {
        self.credit > other.credit || (self.credit == other.credit && self.head() < other.head())
    }

    fn head(&self) -> u32 {
        self.members[self.next]
    }

    /// The next member is chosen. The one after it was chosen once less, and so has the credit this one had, unless
    /// the round is over.
    fn choose(&mut self, total: i64) -> u32 {
        let member = self.head();
        self.next += 1;
        if self.next == self.members.len() {
            self.next = 0;
            self.credit -= total;
        }
        member
    }
}

fn classes(units: &[u64]) -> Vec<Class> {
    let mut members: Vec<u32> = (0..units.len() as u32).collect();
    members.sort_by_key(|&member| units[member as usize]);
    let equal = |a: &u32, b: &u32| units[*a as usize] == units[*b as usize];
    let class = |members: &[u32]| Class {
        weight: units[members[0] as usize] as i64,
        credit: 0,
        members: members.to_vec(),
        next: 0,
    };
    members.chunk_by(equal).map(class).collect()
}

/// nginx's order: every slot, each member gains its weight, the one with the most credit is chosen (the first of the
/// list among equals) and pays the total.
fn smooth(mut classes: Vec<Class>, total: u64) -> Box<[u32]> {
    let slot = |_| {
        let mut best = 0;
        for at in 0..classes.len() {
            classes[at].credit += classes[at].weight;
            if classes[at].is_before(&classes[best]) {
                best = at;
            }
        }
        classes[best].choose(total as i64)
    };
    (0..total).map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sequence(units: &[u64], turns: usize) -> Vec<usize> {
        let order = Order::new(units);
        (0..turns).map(|turn| order.at(turn)).collect()
    }

    /// nginx's `ngx_http_upstream_get_peer`, word for word.
    fn as_nginx(units: &[u64]) -> Vec<usize> {
        let total: i64 = units.iter().sum::<u64>() as i64;
        let mut current = vec![0; units.len()];
        let slot = |_| {
            let mut best = 0;
            for (member, &unit) in units.iter().enumerate() {
                current[member] += unit as i64;
                if current[member] > current[best] {
                    best = member;
                }
            }
            current[best] -= total;
            best
        };
        (0..total).map(slot).collect()
    }

    #[test]
    fn five_to_one_to_one_is_a_a_b_a_c_a_a() {
        assert_eq!(sequence(&[5, 1, 1], 14), [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn twenty_one_to_eleven_never_repeats_more_than_needed() {
        let turns = sequence(&[21, 11], 64);
        assert_eq!(turns.iter().filter(|&&member| member == 1).count(), 22);
        // 21 : 11 is just under 2 : 1, so never three of the first in a row, and never two of the second.
        assert!(turns.windows(3).all(|three| three != [0, 0, 0]), "{turns:?}");
        assert!(turns.windows(2).all(|two| two != [1, 1]), "{turns:?}");
    }

    #[test]
    fn equal_weights_take_plain_turns_and_store_nothing() {
        assert_eq!(sequence(&[700, 700, 700], 7), [0, 1, 2, 0, 1, 2, 0]);
        assert!(matches!(Order::new(&vec![3; 100_000]), Order::Plain(100_000)));
    }

    proptest! {
        #[test]
        fn schedules_are_those_of_nginx(mut units in prop::collection::vec(1u64..30, 1..24)) {
            shares::reduce(&mut units);
            let expected = as_nginx(&units);
            prop_assert_eq!(sequence(&units, expected.len()), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// From wherever it starts: every stretch of turns gives each member its share but for a few picks, also where
        /// no schedule is written. The lightest of them has a share of one in hundreds of thousands.
        #[test]
        fn spread_turns_are_off_by_a_few_picks_only(
            mut units in prop::collection::vec(1u64..1000, 400..500),
            start: usize,
        ) {
            units.extend([1, 999]);
            let total: u64 = units.iter().sum();
            let order = Order::new(&units);
            prop_assert!(matches!(order, Order::Spread(_)));
            let mut hits = vec![0u64; units.len()];
            for step in 1..=3 * total {
                hits[order.at(start.wrapping_add(step as usize))] += 1;
                if step % (total / 7) == 0 {
                    let share = |unit: u64| (unit * step) as f64 / total as f64;
                    let off = hits.iter().zip(&units).map(|(&hits, &unit)| (hits as f64 - share(unit)).abs());
                    let off = off.fold(0.0, f64::max);
                    // The discrepancy of the golden ratio is at most about 0.31 ln n, at either end of an arc.
                    prop_assert!(off <= 2.0 + 0.63 * (step as f64).ln(), "off by {off} after {step} turns");
                }
            }
            prop_assert!(hits.iter().all(|&hits| hits > 0));
        }
    }

    #[test]
    fn many_members_of_few_weights_have_an_exact_schedule() {
        let units: Vec<u64> = (0..10_000).map(|member| 1 + member % 10).collect();
        let order = Order::new(&units);
        assert!(matches!(order, Order::Slots(_)));
        let mut hits = vec![0u64; units.len()];
        (0..55_000).for_each(|turn| hits[order.at(turn)] += 1);
        assert_eq!(hits, units);
    }

    #[test]
    fn the_counter_may_wrap() {
        let turn = AtomicUsize::new(usize::MAX);
        for units in [&[1, 1, 1][..], &[5, 1, 1], &[65_536, 1, 65_537]] {
            turn.store(usize::MAX, Ordering::Relaxed);
            let order = Order::new(units);
            assert!((0..3).all(|_| order.next(&turn) < units.len()));
        }
    }
}
