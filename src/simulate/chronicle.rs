//! What is written down while time passes: what was told, and what held from when to when.

use std::sync::Arc;
use std::time::Duration;

use crate::telemetry::{Event, EventLog};

/// Something that was told.
#[derive(Debug, Clone)]
pub struct Entry {
    /// When.
    pub at: Duration,
    /// What, as the event log has it; its own time is that of the simulation's run and means nothing.
    pub event: Arc<Event>,
}

/// What held from when on: the first from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track<T> {
    turns: Vec<(Duration, T)>,
}

impl<T: Copy + PartialEq> Track<T> {
    /// It holds from the beginning.
    pub(super) fn new(first: T) -> Track<T> {
        Track { turns: vec![(Duration::ZERO, first)] }
    }

    /// It holds from `at` on, which is not before anything noted already. True where it is another than before.
    pub(super) fn turn(&mut self, at: Duration, next: T) -> bool {
        match self.turns.last_mut() {
            Some((_, last)) if *last == next => return false,
            Some((since, last)) if *since == at => *last = next,
            _ => self.turns.push((at, next)),
        }
        true
    }

    /// What holds at the end.
    pub fn last(&self) -> T {
        // There is always a first.
        self.turns[self.turns.len() - 1].1
    }

    /// From when to when what held, until `end`.
    pub fn spans(&self, end: Duration) -> impl Iterator<Item = (Duration, Duration, T)> + '_ {
        let ends = self.turns.iter().skip(1).map(|(at, _)| *at).chain([end]);
        self.turns.iter().zip(ends).map(|((from, held), to)| (*from, to, *held)).filter(|(from, to, _)| from < to)
    }

    /// For how long something held that `is_meant`.
    pub fn time(&self, end: Duration, is_meant: impl Fn(T) -> bool) -> Duration {
        self.spans(end).filter(|(.., held)| is_meant(*held)).map(|(from, to, _)| to - from).sum()
    }

    /// How often it began.
    pub fn times(&self, is_meant: impl Fn(T) -> bool) -> u64 {
        let is_before = |index: usize| index > 0 && is_meant(self.turns[index - 1].1);
        (0..self.turns.len()).filter(|index| is_meant(self.turns[*index].1) && !is_before(*index)).count() as u64
    }

    /// For how long both held at once.
    pub fn time_with<U: Copy + PartialEq>(
        &self,
        other: &Track<U>,
        end: Duration,
        is_meant: impl Fn(T, U) -> bool,
    ) -> Duration {
        let (mut time, mut others) = (Duration::ZERO, other.spans(end).peekable());
        for (from, to, held) in self.spans(end) {
            while let Some((start, stop, with)) = others.peek().copied() {
                if is_meant(held, with) {
                    time += to.min(stop).saturating_sub(from.max(start));
                }
                if stop > to {
                    break;
                }
                others.next();
            }
        }
        time
    }
}

/// What the event log tells, with virtual times.
#[derive(Debug)]
pub(super) struct Chronicle {
    events: Arc<EventLog>,
    heard: u64,
    entries: Vec<Entry>,
}

impl Chronicle {
    pub(super) fn new(events: Arc<EventLog>) -> Chronicle {
        Chronicle { events, heard: 0, entries: Vec::new() }
    }

    /// Writes down what was told since it last listened, as told at `now`.
    pub(super) fn listen(&mut self, now: Duration) {
        let last = self.events.last_id();
        if last == self.heard {
            return;
        }
        let told = self.events.since(self.heard, usize::MAX);
        self.entries.extend(told.into_iter().map(|event| Entry { at: now, event }));
        self.heard = last;
    }

    pub(super) fn entries(self) -> Vec<Entry> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_track_knows_what_held_when_and_how_long_with_another() {
        let mut track = Track::new('a');
        let turns = [(1, 'b'), (1, 'c'), (2, 'c'), (5, 'a'), (9, 'c')];
        let new: Vec<bool> = turns.map(|(at, next)| track.turn(s(at), next)).to_vec();
        assert_eq!(new, [true, true, false, true, true]);
        let spans: Vec<_> = track.spans(s(10)).map(|(from, to, held)| (from.as_secs(), to.as_secs(), held)).collect();
        assert_eq!(spans, [(0, 1, 'a'), (1, 5, 'c'), (5, 9, 'a'), (9, 10, 'c')]);
        assert_eq!((track.time(s(10), |c| c == 'c'), track.times(|c| c == 'c'), track.last()), (s(5), 2, 'c'));
        let mut other = Track::new(1);
        [(4, 2), (6, 1), (9, 2)].into_iter().for_each(|(at, next)| {
            other.turn(s(at), next);
        });
        assert_eq!(track.time_with(&other, s(10), |c, n| c == 'c' && n == 2), s(2));
        assert_eq!(other.time_with(&track, s(10), |n, c| c == 'a' && n == 1), s(4));
    }
}
