//! By how the answers of late were: turns as by `round_robin`, most of which one that is slow passes on (health.md §5).
//!
//! Whose turn it is takes it, if its peak is within the sensitivity of the fastest; else it keeps the part of its turns by
//! which that is faster. So equals share evenly, and by weight, however their times move to and fro; nobody is chased by
//! all at once; and one that is slow, or hangs, keeps a few requests, by which it is seen that it has recovered.
//! Who passes a turn on passes it to any of those that are fast, by weight.
//!
//! Without a peak of its own a member counts as the slowest; and so far as its answers fail it has none: answering 500 in a
//! millisecond attracts nothing. One that is merely kept has no turns while anyone is healthy.
//! Compared are all of a few, or some of many: those drawn besides cost less than all would, and in a large pool somebody
//! fast is among them.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::form::Form;
use super::random::{Few, again};
use super::roster::Roster;
use super::round_robin::Order;

/// Up to so many members all are looked at.
const LOOK_AT_ALL: usize = 8;

/// Else whose turn it is, and so many more.
const DRAWN: usize = 3;

/// From an eighth of failing answers on a member counts as the slowest.
const NO_ADVANTAGE: f32 = 8.0;

/// The policy, ready for its candidates.
#[derive(Debug)]
pub(super) struct PeakEwma {
    sensitivity: f32,
    /// The ranks of those that have turns: the healthy, or, without any, the kept.
    group: Range<usize>,
    /// Their places, ascending.
    places: Box<[u32]>,
    order: Order,
}

impl PeakEwma {
    /// For these candidates with their units.
    pub(super) fn new(sensitivity: Duration, roster: &Roster, units: &[u64]) -> PeakEwma {
        let group = roster.groups().into_iter().find(|group| !group.is_empty()).unwrap_or_default();
        let mut places: Box<[u32]> = group.clone().map(|rank| roster.place(rank) as u32).collect();
        places.sort_unstable();
        let order = Order::new(&places.iter().map(|&place| units[place as usize]).collect::<Vec<_>>());
        PeakEwma { sensitivity: sensitivity.as_micros() as f32, group, places, order }
    }

    /// The places of those that have turns, ascending.
    pub(super) fn places(&self) -> &[u32] {
        &self.places
    }

    /// Whether the next turn is taken by whose it is, whatever is drawn.
    pub(super) fn is_settled(&self, roster: &Roster, turn: &AtomicUsize, form: impl Fn(usize) -> Form) -> bool {
        let looks_at_all = self.places.len() <= LOOK_AT_ALL;
        looks_at_all && self.field(roster, turn, 0, form).turn_is_of_a_fast_one()
    }

    /// The place of the first attempt's member.
    pub(super) fn first(&self, roster: &Roster, turn: &AtomicUsize, draw: u64, form: impl Fn(usize) -> Form) -> usize {
        let field = self.field(roster, turn, draw, form);
        if field.keeps_turn(draw) { field.seen[0].place as usize } else { field.any_fast(1, draw) }
    }

    /// Whose turn it is, and whom that one is compared with.
    fn field<'a, F: Fn(usize) -> Form>(
        &self,
        roster: &'a Roster,
        turn: &AtomicUsize,
        draw: u64,
        form: F,
    ) -> Field<'a, F> {
        let whose_turn = self.places[self.order.next(turn)] as usize;
        let mut field = Field::of(roster, form);
        field.look_at(whose_turn, 1);
        let mut seen = Few::none();
        seen.add(roster.rank(whose_turn));
        field.look_round(self.group.clone(), &mut seen, draw);
        field.compare(self.sensitivity);
        field
    }

    /// The place of another attempt's member, by the draw alone.
    pub(super) fn other(
        &self,
        roster: &Roster,
        draw: u64,
        form: impl Fn(usize) -> Form,
        tried: &mut Few,
    ) -> Option<usize> {
        let group = roster.groups().into_iter().find(|group| tried.first_missing(group.clone()).is_some())?;
        let mut field = Field::of(roster, form);
        field.look_round(group, tried, draw);
        field.compare(self.sensitivity);
        Some(field.any_fast(0, draw))
    }
}

/// Those that are compared.
struct Field<'a, F> {
    roster: &'a Roster,
    form: F,
    seen: [Seen; LOOK_AT_ALL],
    len: usize,
    /// Up to here one is fast.
    limit: f32,
}

/// One of them.
#[derive(Clone, Copy, Default)]
struct Seen {
    place: u32,
    /// How often it is meant, against the others.
    weight: u64,
    /// What it counts with, in microseconds; until they are compared its own, if it has one.
    us: Option<f32>,
    failing: f32,
}

impl<'a, F: Fn(usize) -> Form> Field<'a, F> {
    fn of(roster: &'a Roster, form: F) -> Field<'a, F> {
        Field { roster, form, seen: [Seen::default(); LOOK_AT_ALL], len: 0, limit: 0.0 }
    }

    fn look_at(&mut self, place: usize, weight: u64) {
        let form = (self.form)(self.roster.candidates()[place].index);
        self.seen[self.len] = Seen { place: place as u32, weight, us: form.us(), failing: form.failing() };
        self.len += 1;
    }

    /// Looks at those of these ranks that were not `seen`: all, or some, drawn by weight.
    fn look_round(&mut self, group: Range<usize>, seen: &mut Few, mut draw: u64) {
        let roster = self.roster;
        if group.len() <= LOOK_AT_ALL {
            let left = group.filter(|rank| !seen.contains(*rank));
            return left.for_each(|rank| self.look_at(roster.place(rank), roster.wheel().width(rank)));
        }
        for _ in 0..DRAWN {
            draw = again(draw);
            let Some(rank) = roster.wheel().at_without(group.clone(), draw, seen) else { return };
            self.look_at(roster.place(rank), 1);
            seen.add(rank);
        }
    }

    /// Says what each counts with.
    fn compare(&mut self, sensitivity: f32) {
        let seen = &mut self.seen[..self.len];
        let slowest = seen.iter().filter_map(|one| one.us).fold(0.0, f32::max);
        let mut fastest = f32::INFINITY;
        for one in seen {
            let own = one.us.unwrap_or(slowest);
            let counts = own + (slowest - own) * (one.failing * NO_ADVANTAGE).min(1.0);
            one.us = Some(counts);
            fastest = fastest.min(counts);
        }
        self.limit = fastest + sensitivity;
    }

    /// Whether the first of them, whose turn it is, is fast.
    fn turn_is_of_a_fast_one(&self) -> bool {
        self.seen[0].us.is_some_and(|us| us <= self.limit)
    }

    /// Whether that one takes it: always if it is fast, else now and then.
    fn keeps_turn(&self, draw: u64) -> bool {
        // Bits that no other draw of this pick begins with.
        self.turn_is_of_a_fast_one() || part(again(!draw)) * self.seen[0].us.unwrap_or(0.0) < self.limit
    }

    /// The place of one that is fast, of those from `start` on, by weight. There is one: the fastest is never at the start of
    /// a turn that is passed on.
    fn any_fast(&self, start: usize, draw: u64) -> usize {
        let fast = || self.seen[start..self.len].iter().filter(|one| one.us.is_some_and(|us| us <= self.limit));
        let all: u64 = fast().map(|one| one.weight).sum();
        let mut left = ((u128::from(again(draw ^ 1)) * u128::from(all)) >> 64) as u64;
        for one in fast() {
            if left < one.weight {
                return one.place as usize;
            }
            left -= one.weight;
        }
        self.seen[0].place as usize
    }
}

/// A number from 0 to just under 1.
fn part(draw: u64) -> f32 {
    (draw >> 40) as f32 / (1 << 24) as f32
}

#[cfg(test)]
mod tests;
