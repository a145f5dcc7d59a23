//! What the states of several pools add up to (health.md §8).
//!
//! A composite is unhealthy if any of its sources is, else unknown if any is, else healthy. A source is a pool or another
//! composite; that they lead to no circle is for the configuration to see to, which puts each behind its sources.
//!
//! Not here: how a pool comes to its state (`aggregate`), who is told.

use super::State;

/// What a composite looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The pool at this place.
    Pool(usize),
    /// The composite at this place, which is before its own.
    Composite(usize),
}

/// What states add up to; of none, [`State::Unknown`]: nothing speaks for it.
pub fn combine(states: impl IntoIterator<Item = State>) -> State {
    let worse = |one: State, other: State| match (one, other) {
        (State::Unhealthy, _) | (_, State::Unhealthy) => State::Unhealthy,
        (State::Unknown, _) | (_, State::Unknown) => State::Unknown,
        (State::Healthy, State::Healthy) => State::Healthy,
    };
    states.into_iter().reduce(worse).unwrap_or(State::Unknown)
}

/// The state of each composite, by its sources, where those of the pools are `pools`.
///
/// A source that is not there, or not before its composite, is unknown.
pub fn states(composites: &[impl AsRef<[Source]>], pools: &[State]) -> Vec<State> {
    let mut states: Vec<State> = Vec::with_capacity(composites.len());
    for sources in composites {
        let state = |source: &Source| match *source {
            Source::Pool(place) => pools.get(place).copied().unwrap_or(State::Unknown),
            Source::Composite(place) => states.get(place).copied().unwrap_or(State::Unknown),
        };
        let state = combine(sources.as_ref().iter().map(state));
        states.push(state);
    }
    states
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::State::{Healthy, Unhealthy, Unknown};
    use super::*;

    #[test]
    fn the_worst_source_decides() {
        // Example 9.
        let rows: [(&[State], State); 8] = [
            (&[Healthy, Unknown], Unknown),
            (&[Unhealthy, Unknown], Unhealthy),
            (&[Unknown, Unhealthy], Unhealthy),
            (&[Healthy, Healthy], Healthy),
            (&[Healthy, Unhealthy, Unknown], Unhealthy),
            (&[Healthy], Healthy),
            (&[Unknown], Unknown),
            (&[], Unknown),
        ];
        for (sources, expected) in rows {
            assert_eq!(combine(sources.iter().copied()), expected, "{sources:?}");
        }
    }

    #[test]
    fn composites_are_sources_of_those_behind_them() {
        let tree = [
            vec![Source::Pool(0), Source::Pool(1)],
            vec![Source::Pool(2)],
            vec![Source::Composite(0), Source::Composite(1)],
            vec![Source::Composite(2), Source::Pool(0)],
        ];
        let rows = [
            ([Healthy, Healthy, Healthy], [Healthy, Healthy, Healthy, Healthy]),
            ([Healthy, Unhealthy, Healthy], [Unhealthy, Healthy, Unhealthy, Unhealthy]),
            ([Healthy, Healthy, Unknown], [Healthy, Unknown, Unknown, Unknown]),
            ([Unknown, Unhealthy, Unknown], [Unhealthy, Unknown, Unhealthy, Unhealthy]),
        ];
        for (pools, expected) in rows {
            assert_eq!(states(&tree, &pools), expected, "{pools:?}");
        }
        assert_eq!(states(&[vec![Source::Pool(9), Source::Composite(0)]], &[Healthy]), [Unknown]);
    }

    fn any_state() -> impl Strategy<Value = State> {
        prop::sample::select(State::ALL.to_vec())
    }

    /// What each composite rests on: the pools at the ends of all ways down.
    fn pools_under(tree: &[Vec<Source>], place: usize) -> Vec<usize> {
        let down = |source: &Source| match *source {
            Source::Pool(pool) => vec![pool],
            Source::Composite(other) => pools_under(tree, other),
        };
        tree[place].iter().flat_map(down).collect()
    }

    proptest! {
        #[test]
        fn a_composite_is_never_healthy_over_one_that_is_not(
            pools in prop::collection::vec(any_state(), 1..6),
            seeds in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 1..4), 1..6),
        ) {
            let source = |index: &prop::sample::Index, place: usize| {
                let at = index.index(pools.len() + place);
                if at < pools.len() { Source::Pool(at) } else { Source::Composite(at - pools.len()) }
            };
            let tree: Vec<Vec<Source>> = seeds
                .iter()
                .enumerate()
                .map(|(place, indices)| indices.iter().map(|index| source(index, place)).collect())
                .collect();
            for (place, state) in states(&tree, &pools).into_iter().enumerate() {
                let under: Vec<State> = pools_under(&tree, place).into_iter().map(|pool| pools[pool]).collect();
                prop_assert_eq!(state == Healthy, under.iter().all(|state| *state == Healthy));
                prop_assert_eq!(state == Unhealthy, under.contains(&Unhealthy));
            }
        }
    }
}
