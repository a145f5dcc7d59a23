//! What is to happen, in the order of time; of the same time, in the order it was noted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// The next turn of the story.
    Turn,
    /// A member that flaps turns from well to ill, or back.
    Flap { pool: usize, member: usize, round: u32 },
    /// A probe begins, unless another round has begun.
    Probe { pool: usize, member: usize, round: u32 },
    /// It is over.
    Sample { pool: usize, member: usize, round: u32 },
    /// Time itself changes something in a pool.
    Deadline { pool: usize },
    /// The same in a route.
    Failback,
    /// The next request of this kind comes.
    Request { traffic: usize },
    /// An attempt ends, unless it was called away.
    Attempt { request: usize, number: u64 },
}

/// The list of it.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    items: BinaryHeap<Reverse<(Duration, u64, Item)>>,
    noted: u64,
}

impl Agenda {
    pub(super) fn note(&mut self, at: Duration, item: Item) {
        self.noted += 1;
        self.items.push(Reverse((at, self.noted, item)));
    }

    pub(super) fn next(&mut self) -> Option<(Duration, Item)> {
        self.items.pop().map(|Reverse((at, _, item))| (at, item))
    }
}
