//! The composites of one configuration over their pools, with what is known of each.
//!
//! Not here: who is told (`Composites`), in which words (`words`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config;
use crate::health::{Source, State, states};

/// Pools that are sources, and composites, each behind its sources.
#[derive(Debug, Default)]
pub struct Tree {
    pools: Vec<Leaf>,
    /// The place of each pool.
    places: HashMap<Arc<str>, usize>,
    composites: Vec<Node>,
    /// Parallel to the composites.
    sources: Vec<Vec<Source>>,
}

#[derive(Debug)]
struct Leaf {
    name: Arc<str>,
    state: State,
    since: Duration,
    count: Count,
}

#[derive(Debug)]
struct Node {
    name: Arc<str>,
    state: State,
    since: Duration,
}

/// How many of what a source, or a composite, is made of are healthy: members of a pool, sources of a composite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Healthy ones.
    pub healthy: usize,
    /// Those of whom it is not known yet.
    pub unknown: usize,
    /// All that are asked for: of a pool, the enabled members of weight > 0.
    pub total: usize,
}

/// How a composite stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its name.
    pub name: Arc<str>,
    /// What its sources add up to.
    pub state: State,
    /// Since when, in monotonic time.
    pub since: Duration,
    /// In the order of the configuration.
    pub sources: Vec<SourceReport>,
}

/// How a source stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceReport {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it is a pool or a composite.
    pub kind: SourceKind,
    /// How it stands.
    pub state: State,
    /// Since when, in monotonic time.
    pub since: Duration,
    /// Why.
    pub count: Count,
}

/// What a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A pool: its members are counted.
    Pool,
    /// A composite: its sources are counted.
    Composite,
}

impl SourceKind {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            SourceKind::Pool => "pool",
            SourceKind::Composite => "composite",
        }
    }
}

/// A state that became another.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// Of a source's pool, or of a composite.
    pub kind: SourceKind,
    /// Whose.
    pub name: Arc<str>,
    /// What it was.
    pub from: Before,
    /// What it is now.
    pub to: State,
    /// What it is made of.
    pub count: Count,
    /// Of a composite: its sources that are not healthy.
    pub unfit: Vec<SourceReport>,
}

/// What something was that is now what a [`Change`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// There was none.
    New,
    /// A composite that nothing went by: it only observed.
    Observed,
    /// It stood so.
    Was(State),
}

impl Change {
    /// Whether the other one has come to the same; from where does not matter.
    pub fn is_like(&self, other: &Change) -> bool {
        (self.kind, &self.name, self.to) == (other.kind, &other.name, other.to)
    }
}

impl Tree {
    /// Composites, each behind its sources, over pools that stand as `standing` says.
    pub fn new(
        now: Duration,
        composites: &[config::Composite],
        standing: impl Fn(&str) -> Option<(State, Count)>,
    ) -> Tree {
        let mut tree = Tree::default();
        let mut known: HashMap<&str, usize> = HashMap::with_capacity(composites.len());
        for composite in composites {
            let sources = composite.sources.iter().filter_map(|source| match source {
                config::Source::Composite(name) => known.get(&**name).copied().map(Source::Composite),
                config::Source::Pool(name) => {
                    Some(Source::Pool(*tree.places.entry(name.clone()).or_insert_with(|| {
                        let (state, count) = standing(name).unwrap_or((State::Unknown, Count::default()));
                        tree.pools.push(Leaf { name: name.clone(), state, since: now, count });
                        tree.pools.len() - 1
                    })))
                }
            });
            let sources = sources.collect();
            known.insert(&composite.name, tree.composites.len());
            tree.composites.push(Node { name: composite.name.clone(), state: State::Unknown, since: now });
            tree.sources.push(sources);
        }
        for (node, state) in tree.composites.iter_mut().zip(states(&tree.sources, &states_of(&tree.pools))) {
            node.state = state;
        }
        tree
    }

    /// Takes over from `old` since when those stand as they do that were there, and says what is another. What is not there
    /// is looked for in `tried`: a composite that only observed has known its state all along, and begins to count now.
    pub fn inherit(&mut self, old: &Tree, tried: Option<&Tree>) -> Vec<Change> {
        let mut changes = Vec::new();
        for leaf in &mut self.pools {
            let Some(was) = old.leaf(&leaf.name).or_else(|| tried?.leaf(&leaf.name)) else { continue };
            match was.state == leaf.state {
                true => leaf.since = was.since,
                false => changes.push(leaf.change(was.state)),
            }
        }
        let (before, observed) = (old.nodes(), tried.map(Tree::nodes).unwrap_or_default());
        let mut changed = Vec::new();
        for (place, node) in self.composites.iter_mut().enumerate() {
            let was = before.get(&*node.name).copied();
            let would = observed.get(&*node.name).copied().filter(|_| was.is_none());
            if let Some(known) = was.or(would).filter(|known| known.state == node.state) {
                node.since = known.since;
            }
            match (was, would) {
                (Some(was), _) if was.state == node.state => {}
                (Some(was), _) => changed.push((place, Before::Was(was.state))),
                (None, Some(_)) => changed.push((place, Before::Observed)),
                (None, None) => changed.push((place, Before::New)),
            }
        }
        changes.extend(changed.into_iter().map(|(place, from)| self.change(place, from)));
        changes
    }

    /// A pool stands so since `now`: what follows, the pool first, each composite behind its sources. `None`: nothing is
    /// another, or it is nobody's source.
    pub fn pool_changed(&mut self, now: Duration, pool: &str, (state, count): (State, Count)) -> Option<Vec<Change>> {
        let leaf = self.places.get(pool).map(|place| &mut self.pools[*place])?;
        let (was, counted) = (leaf.state, leaf.count);
        if (was, counted) == (state, count) {
            return None;
        }
        leaf.count = count;
        if was == state {
            return Some(Vec::new());
        }
        (leaf.state, leaf.since) = (state, now);
        let mut changes = vec![leaf.change(was)];
        let mut changed = Vec::new();
        let states = states(&self.sources, &states_of(&self.pools));
        for (place, (node, state)) in self.composites.iter_mut().zip(states).enumerate() {
            if node.state != state {
                changed.push((place, node.state));
                (node.state, node.since) = (state, now);
            }
        }
        changes.extend(changed.into_iter().map(|(place, was)| self.change(place, Before::Was(was))));
        Some(changes)
    }

    /// How each composite stands.
    pub fn reports(&self) -> impl Iterator<Item = Report> {
        self.composites.iter().enumerate().map(|(place, node)| Report {
            name: node.name.clone(),
            state: node.state,
            since: node.since,
            sources: self.sources[place].iter().map(|source| self.source(*source)).collect(),
        })
    }

    fn leaf(&self, pool: &str) -> Option<&Leaf> {
        self.places.get(pool).map(|place| &self.pools[*place])
    }

    fn nodes(&self) -> HashMap<&str, &Node> {
        self.composites.iter().map(|node| (&*node.name, node)).collect()
    }

    fn source(&self, source: Source) -> SourceReport {
        match source {
            Source::Pool(place) => {
                let Leaf { ref name, state, since, count } = self.pools[place];
                SourceReport { name: name.clone(), kind: SourceKind::Pool, state, since, count }
            }
            Source::Composite(place) => {
                let Node { ref name, state, since } = self.composites[place];
                let count = self.count(place);
                SourceReport { name: name.clone(), kind: SourceKind::Composite, state, since, count }
            }
        }
    }

    /// The sources of the composite at `place`.
    fn count(&self, place: usize) -> Count {
        let mut count = Count { total: self.sources[place].len(), ..Count::default() };
        for source in &self.sources[place] {
            let state = match *source {
                Source::Pool(place) => self.pools[place].state,
                Source::Composite(place) => self.composites[place].state,
            };
            count.healthy += usize::from(state == State::Healthy);
            count.unknown += usize::from(state == State::Unknown);
        }
        count
    }

    fn change(&self, place: usize, from: Before) -> Change {
        let sources = self.sources[place].iter().map(|source| self.source(*source));
        Change {
            kind: SourceKind::Composite,
            name: self.composites[place].name.clone(),
            from,
            to: self.composites[place].state,
            count: self.count(place),
            unfit: sources.filter(|source| source.state != State::Healthy).collect(),
        }
    }
}

impl Leaf {
    fn change(&self, from: State) -> Change {
        Change {
            kind: SourceKind::Pool,
            name: self.name.clone(),
            from: Before::Was(from),
            to: self.state,
            count: self.count,
            unfit: Vec::new(),
        }
    }
}

fn states_of(pools: &[Leaf]) -> Vec<State> {
    pools.iter().map(|leaf| leaf.state).collect()
}
