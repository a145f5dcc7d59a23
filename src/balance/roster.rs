//! The candidates, and which of them a retry prefers.
//!
//! Two orders of the same members: a *place* is where one stands in the list (by index), a *rank* is where it stands
//! in preference: healthy before kept, and for `fastest` by latency within each. Preference in rank order makes every
//! group a retry may choose from a plain range of the [`Wheel`].

use std::ops::Range;
use std::time::Duration;

use super::Candidate;
use super::random::{Few, Wheel};

/// As many tried members are told apart in the fast way; more are never expected (a request has a few attempts).
const FEW_TRIED: usize = 16;

/// The candidates of a balancer.
#[derive(Debug)]
pub(super) struct Roster {
    candidates: Vec<Candidate>,
    /// Rank to place.
    places: Box<[u32]>,
    /// Place to rank.
    ranks: Box<[u32]>,
    /// The latency each counts with, by rank.
    latencies: Box<[Duration]>,
    /// The healthy have the ranks below this.
    healthy: usize,
    /// Arcs by rank.
    wheel: Wheel,
}

/// In the order of index, each once, those of weight 0 left out, no split of 0.
pub(super) fn tidy(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.retain_mut(|candidate| {
        candidate.split = candidate.split.max(1);
        candidate.weight > 0
    });
    candidates.sort_by_key(|candidate| candidate.index);
    candidates.dedup_by_key(|candidate| candidate.index);
    candidates
}

impl Roster {
    /// Of tidy candidates with their units, ranked by health, then by latency, then by place. `reckoned` says with which
    /// latency a candidate counts, given the largest known one; a policy that does not care returns always the same.
    pub(super) fn new(
        candidates: Vec<Candidate>,
        units: &[u64],
        reckoned: impl Fn(&Candidate, Duration) -> Duration,
    ) -> Roster {
        let largest_known = candidates.iter().filter_map(|candidate| candidate.latency).max().unwrap_or_default();
        let ranked = |(place, candidate): (usize, &Candidate)| {
            (candidate.kept, reckoned(candidate, largest_known), place as u32)
        };
        let mut ranked: Vec<(bool, Duration, u32)> = candidates.iter().enumerate().map(ranked).collect();
        ranked.sort_unstable();
        let mut ranks = vec![0; ranked.len()].into_boxed_slice();
        for (rank, &(.., place)) in ranked.iter().enumerate() {
            ranks[place as usize] = rank as u32;
        }
        Roster {
            places: ranked.iter().map(|&(.., place)| place).collect(),
            ranks,
            latencies: ranked.iter().map(|&(_, latency, _)| latency).collect(),
            healthy: ranked.partition_point(|&(kept, ..)| !kept),
            wheel: Wheel::new(ranked.iter().map(|&(.., place)| units[place as usize])),
            candidates,
        }
    }

    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    pub(super) fn len(&self) -> usize {
        self.candidates.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// The ranks of the healthy, then those of the kept: the order in which a retry looks.
    pub(super) fn groups(&self) -> [Range<usize>; 2] {
        [0..self.healthy, self.healthy..self.len()]
    }

    pub(super) fn place(&self, rank: usize) -> usize {
        self.places[rank] as usize
    }

    pub(super) fn rank(&self, place: usize) -> usize {
        self.ranks[place] as usize
    }

    /// The place of the candidate with this index. It is the index itself, less the members before it that are out: so where
    /// few are there is next to nothing to search.
    pub(super) fn place_of(&self, index: usize) -> Option<usize> {
        let out = self.candidates.last()?.index - (self.len() - 1);
        let (low, high) = (index.saturating_sub(out), index.saturating_add(1).min(self.len()));
        let found = self.candidates.get(low..high)?.binary_search_by_key(&index, |candidate| candidate.index);
        found.ok().map(|steps| low + steps)
    }

    /// The latencies they count with, by rank: ascending among the healthy, and again among the kept.
    pub(super) fn latencies(&self) -> &[Duration] {
        &self.latencies
    }

    /// The wheel of all, by rank.
    pub(super) fn wheel(&self) -> &Wheel {
        &self.wheel
    }

    /// The place of any one, by weight.
    pub(super) fn any(&self, draw: u64) -> usize {
        self.place(self.wheel.at(draw))
    }

    /// The place of one not tried, by weight: a healthy one while there is one.
    pub(super) fn other(&self, draw: u64, tried: &Few) -> Option<usize> {
        let rank = self.groups().into_iter().find_map(|group| self.wheel.at_without(group, draw, tried))?;
        Some(self.place(rank))
    }

    /// The ranks of the tried members that are candidates; `None` if they are more than a few.
    pub(super) fn ranks(&self, tried: &[usize]) -> Option<Few> {
        if tried.len() > FEW_TRIED {
            return None;
        }
        let mut ranks = Few::none();
        for place in tried.iter().filter_map(|&index| self.place_of(index)) {
            ranks.add(self.rank(place));
        }
        Some(ranks)
    }

    /// The place of the most preferred that is not tried, for requests that have tried more than a few.
    pub(super) fn first_untried(&self, tried: &[usize]) -> Option<usize> {
        self.places.iter().map(|&place| place as usize).find(|&place| !tried.contains(&self.candidates[place].index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::tests::member;

    #[test]
    fn everyone_is_found_by_index_and_nobody_else_whoever_is_out() {
        let gaps: [&dyn Fn(usize) -> bool; 6] = [
            &|_| false,
            &|index| index < 7,
            &|index| index > 30,
            &|index| index % 3 == 1,
            &|index| index == 20,
            &|_| true,
        ];
        for (number, is_out) in gaps.iter().enumerate() {
            let there: Vec<usize> = (0..40).filter(|index| !is_out(*index)).collect();
            let candidates: Vec<Candidate> = there.iter().map(|index| member(*index)).collect();
            let roster = Roster::new(candidates, &vec![1; there.len()], |_, _| Duration::ZERO);
            for index in (0..50).chain([usize::MAX]) {
                let expected = there.iter().position(|one| *one == index);
                assert_eq!(roster.place_of(index), expected, "{index} in gaps {number}");
            }
        }
    }
}
