//! The composites as they would be if none of them only observed: a tree of its own, that nothing goes by.
//!
//! Not here: who is told (`Composites`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::tree::{Change, Count, Report, Tree};
use crate::config::{Composite, Source};
use crate::health::State;

/// All composites, as they are written.
#[derive(Debug)]
pub struct Trial {
    pub(super) tree: Tree,
    /// Of each composite and each source, those that only observe and are why it would be otherwise.
    rules: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Those that only observe.
    observing: BTreeSet<Arc<str>>,
}

impl Trial {
    /// The trial of `tried`, and what would be otherwise than `before`, which had all that was written then. `None`: nobody
    /// observes.
    pub(super) fn follow(
        before: &Tree,
        now: Duration,
        tried: &[Composite],
        standing: impl Fn(&str) -> Option<(State, Count)>,
    ) -> (Option<Trial>, Vec<Change>) {
        if tried.is_empty() {
            return (None, Vec::new());
        }
        let mut tree = Tree::new(now, tried, standing);
        let would = tree.inherit(before, None);
        let observing = tried.iter().filter(|one| one.only_observes).map(|one| one.name.clone()).collect();
        (Some(Trial { tree, rules: rules(tried), observing }), would)
    }

    /// Those that only observe and are why a composite, or a pool that is a source, would be otherwise.
    pub(super) fn rules(&self, name: &str) -> Vec<&str> {
        self.rules.get(name).into_iter().flatten().map(|rule| &**rule).collect()
    }

    /// Of those that only observe, by name.
    pub(super) fn reports(&self) -> Vec<Arc<Report>> {
        let observes = |report: &Report| self.observing.contains(&report.name);
        let mut reports: Vec<_> = self.tree.reports().filter(observes).map(Arc::new).collect();
        reports.sort_by(|one, other| one.name.cmp(&other.name));
        reports
    }
}

/// Who observes is named itself, one in force for those nearest beneath it, and a pool for those it is a source of.
fn rules(tried: &[Composite]) -> HashMap<Arc<str>, BTreeSet<Arc<str>>> {
    let mut rules: HashMap<Arc<str>, BTreeSet<Arc<str>>> = HashMap::with_capacity(tried.len());
    // Each is behind its sources.
    for one in tried {
        let mut own = BTreeSet::new();
        for source in &one.sources {
            match source {
                Source::Pool(pool) if one.only_observes => {
                    rules.entry(pool.clone()).or_default().insert(one.name.clone());
                }
                Source::Composite(name) if !one.only_observes => {
                    own.extend(rules.get(name).into_iter().flatten().cloned())
                }
                _ => {}
            }
        }
        if one.only_observes {
            own.insert(one.name.clone());
        }
        rules.insert(one.name.clone(), own);
    }
    rules
}
