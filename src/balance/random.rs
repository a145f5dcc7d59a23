//! Weighted at random: a wheel on which every member has an arc as wide as its weight.
//!
//! Where it stops is an argument. Arcs can be left out of a turn of the wheel without building another, which gives
//! every retry the true shares among those not tried yet.

use std::ops::Range;

/// Arcs one after another.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Where each arc ends, in units; it begins where the one before ends. Strictly ascending.
    ends: Box<[u64]>,
    /// The wheel cut into equal parts, one to two for each arc: the arc in which each part begins, so that nearly all of
    /// a search is done beforehand.
    guide: Box<[u32]>,
    /// A part has 2^`part` units.
    part: u32,
}

impl Wheel {
    /// A wheel with an arc of each width, all at least 1.
    pub(super) fn new(widths: impl Iterator<Item = u64>) -> Wheel {
        let mut end = 0;
        let ends = widths.map(|width| {
            end += width;
            end
        });
        let ends: Box<[u64]> = ends.collect();
        let part = (0..u64::BITS).find(|part| end >> part <= 2 * ends.len() as u64).unwrap_or(0);
        let mut arc = 0;
        let begins_in = |number: u64| {
            while ends.get(arc).is_some_and(|&end| end <= number << part) {
                arc += 1;
            }
            arc as u32
        };
        Wheel { guide: (0..=end >> part).map(begins_in).collect(), ends, part }
    }

    /// The arc at `point`, where the whole wheel has 2^64 points. There must be an arc.
    pub(super) fn at(&self, point: u64) -> usize {
        self.arc(scale(point, self.start(self.ends.len())))
    }

    /// The same on the part of the wheel that is in `range` and not in `without`; `None` if that is nothing.
    pub(super) fn at_without(&self, range: Range<usize>, point: u64, without: &Few) -> Option<usize> {
        let without = without.within(&range);
        let begin = self.start(range.start);
        let left_out: u64 = without.iter().map(|&arc| self.width(arc as usize)).sum();
        let room = self.start(range.end) - begin - left_out;
        if room == 0 {
            return None;
        }
        // Each gap that lies before the place moves it on by the gap's width; ascending, so each is met once.
        let mut place = begin + scale(point, room);
        for &arc in without {
            if place < self.start(arc as usize) {
                break;
            }
            place += self.width(arc as usize);
        }
        Some(self.arc(place))
    }

    fn arc(&self, place: u64) -> usize {
        let number = (place >> self.part) as usize;
        let first = self.guide[number] as usize;
        // Where the next part begins, or this one is the last, the search ends at the latest.
        let last = self.guide.get(number + 1).map_or(self.ends.len(), |&arc| arc as usize);
        first + self.ends[first..last].partition_point(|&end| end <= place)
    }

    fn start(&self, arc: usize) -> u64 {
        if arc == 0 { 0 } else { self.ends[arc - 1] }
    }

    /// How wide an arc is, in units.
    pub(super) fn width(&self, arc: usize) -> u64 {
        self.start(arc + 1) - self.start(arc)
    }
}

/// A point of 2^64 becomes one of `room`.
fn scale(point: u64, room: u64) -> u64 {
    ((u128::from(point) * u128::from(room)) >> 64) as u64
}

/// Another random number out of one: the finish of SplitMix64, so that a pick which needs several asks for one.
pub(super) fn again(draw: u64) -> u64 {
    let mut mixed = draw.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A few numbers in ascending order, each once, on the stack.
#[derive(Debug, Clone)]
pub(super) struct Few {
    numbers: [u32; Few::MOST],
    len: usize,
}

impl Few {
    /// How many there may be.
    pub(super) const MOST: usize = 32;

    pub(super) fn none() -> Few {
        Few { numbers: [0; Few::MOST], len: 0 }
    }

    /// Adds a number, if it is new and there is room.
    pub(super) fn add(&mut self, number: usize) {
        let number = number as u32;
        if let Err(at) = self.as_slice().binary_search(&number)
            && self.len < Few::MOST
        {
            self.numbers.copy_within(at..self.len, at + 1);
            self.numbers[at] = number;
            self.len += 1;
        }
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        self.as_slice().binary_search(&(number as u32)).is_ok()
    }

    /// The smallest number of `range` that is not among these.
    pub(super) fn first_missing(&self, range: Range<usize>) -> Option<usize> {
        let mut missing = range.start;
        for &number in self.within(&range) {
            if number as usize != missing {
                break;
            }
            missing += 1;
        }
        (missing < range.end).then_some(missing)
    }

    fn within(&self, range: &Range<usize>) -> &[u32] {
        let numbers = self.as_slice();
        let below = |bound: usize| numbers.partition_point(|&number| (number as usize) < bound);
        &numbers[below(range.start)..below(range.end)]
    }

    fn as_slice(&self) -> &[u32] {
        &self.numbers[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `count` points evenly over the wheel.
    fn evenly(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |step| (u64::MAX / count) * step + (u64::MAX / count) / 2)
    }

    fn few(numbers: &[usize]) -> Few {
        let mut few = Few::none();
        numbers.iter().for_each(|&number| few.add(number));
        few
    }

    proptest! {
        /// The law of the room: what is left out gets nothing, and the others keep their proportion.
        #[test]
        fn arcs_left_out_give_their_share_to_all_others(
            widths in prop::collection::vec(1u64..20, 1..12),
            left_out in prop::collection::vec(0usize..12, 0..6),
            bounds in (0usize..13, 0usize..13),
        ) {
            let range = bounds.0.min(bounds.1).min(widths.len())..bounds.1.max(bounds.0).min(widths.len());
            let wheel = Wheel::new(widths.iter().copied());
            let open = |arc: &usize| range.contains(arc) && !left_out.contains(arc);
            let room: u64 = (0..widths.len()).filter(open).map(|arc| widths[arc]).sum();
            let mut hits = vec![0; widths.len()];
            for point in evenly(room) {
                hits[wheel.at_without(range.clone(), point, &few(&left_out)).unwrap()] += 1;
            }
            let expected: Vec<u64> =
                widths.iter().enumerate().map(|(arc, &width)| if open(&arc) { width } else { 0 }).collect();
            prop_assert_eq!(hits, expected);
            if room == 0 {
                prop_assert_eq!(wheel.at_without(range, 7, &few(&left_out)), None);
            }
        }

        #[test]
        fn few_are_sorted_and_unique(numbers in prop::collection::vec(0usize..40, 0..Few::MOST)) {
            let few = few(&numbers);
            let mut expected: Vec<u32> = numbers.iter().map(|&number| number as u32).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(few.as_slice(), &expected[..]);
            let missing = (3..9).find(|number| !numbers.contains(number));
            prop_assert_eq!(few.first_missing(3..9), missing);
            prop_assert!((0..40).all(|number| few.contains(number) == numbers.contains(&number)));
        }
    }

    #[test]
    fn every_place_is_found_however_uneven_the_arcs_are() {
        let heavy_first = [1 << 40].into_iter().chain([1; 300]).collect::<Vec<u64>>();
        let heavy_last = heavy_first.iter().copied().rev().collect();
        let mixed = (0..300).map(|arc| 1 + again(arc) % (1 << (arc % 30))).collect();
        for widths in [vec![1], vec![7], vec![1; 9], vec![5; 64], heavy_first, heavy_last, mixed] {
            let wheel = Wheel::new(widths.iter().copied());
            for arc in 0..widths.len() {
                let (first, next) = (wheel.start(arc), wheel.start(arc + 1));
                assert_eq!((wheel.arc(first), wheel.arc(next - 1)), (arc, arc), "{widths:?}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_wheel_are_the_first_and_the_last_arc() {
        let wheel = Wheel::new([3, 1 << 40, 1].into_iter());
        assert_eq!(wheel.at(0), 0);
        assert_eq!(wheel.at(u64::MAX / 2), 1);
        assert_eq!(wheel.at(u64::MAX), 2);
    }
}
