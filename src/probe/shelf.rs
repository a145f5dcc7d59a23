//! What the limit on descriptors leaves to probes, and which of them may keep their connection.
//!
//! A connection that is kept has a descriptor for good: as many as there are members would leave none for clients, for
//! logs, or for whoever wants to undo it. So there are only so many; a probe that is not among them dials each time.
//!
//! Not here: what is kept (`session`), how many probes are in flight (`places`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Counters;

/// What the limit on descriptors leaves to probes.
#[derive(Clone)]
pub struct Allowance {
    /// Probes in flight at most, whatever the configuration says.
    pub in_flight: usize,
    /// Connections at most that are kept between two probes.
    pub kept: usize,
    /// Whether there are enough for everybody with those that `counters` say are taken.
    pub is_enough: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Where it is counted what they have.
    pub counters: Arc<Counters>,
}

impl Allowance {
    /// As many as anybody wants.
    pub fn unbounded() -> Allowance {
        let is_enough = Arc::new(|| true);
        Allowance { in_flight: usize::MAX, kept: usize::MAX, is_enough, counters: Arc::default() }
    }
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Allowance { in_flight, kept, .. } = self;
        f.debug_struct("Allowance").field("in_flight", in_flight).field("kept", kept).finish_non_exhaustive()
    }
}

/// Where connections are kept.
#[derive(Debug)]
pub(super) struct Shelf(Allowance);

/// Room for one of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Spot(Arc<Shelf>);

impl Shelf {
    pub(super) fn new(allowance: Allowance) -> Arc<Shelf> {
        Arc::new(Shelf(allowance))
    }

    /// How many there is room for.
    pub(super) fn room(&self) -> usize {
        self.0.kept
    }

    /// Room for one more.
    pub(super) fn spot(self: &Arc<Self>) -> Option<Spot> {
        let Allowance { kept, is_enough, counters, .. } = &self.0;
        let more = |taken: u64| (taken < *kept as u64).then_some(taken + 1);
        counters.kept.fetch_update(Relaxed, Relaxed, more).ok()?;
        let spot = Spot(self.clone());
        // With this one: of two that come at once neither may overlook the other.
        is_enough().then_some(spot)
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        self.0.0.counters.kept.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_as_many_as_are_allowed_while_there_are_enough() {
        let counters = Arc::<Counters>::default();
        let seen = counters.clone();
        let is_enough = Arc::new(move || seen.descriptors() <= 2);
        // Allowed, and had where two are enough for everybody.
        for (kept, expected) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
            let allowance =
                Allowance { kept, is_enough: is_enough.clone(), counters: counters.clone(), ..Allowance::unbounded() };
            let shelf = Shelf::new(allowance);
            let spots: Vec<_> = (0..5).filter_map(|_| shelf.spot()).collect();
            assert_eq!((spots.len(), counters.descriptors()), (expected, expected), "{kept}");
            drop(spots);
            assert_eq!(counters.descriptors(), 0);
        }
    }
}
