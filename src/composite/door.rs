//! Where composites are answered for on clients' listeners: before any route is asked.
//!
//! Not here: what the answer is (`proxy`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::{Composite, Publish};
use crate::pool::Pool;
use crate::telemetry::metrics::RouteCounts;

/// One place at which a composite is published.
#[derive(Debug)]
pub struct Door {
    /// Whose.
    pub composite: Arc<str>,
    /// Of the requests that came by it, older than this generation maybe. It goes by the place, as a route does, whichever
    /// composite is there, and leads to no pool. Several listeners may have different composites at one place, which share it.
    pub counts: Arc<RouteCounts>,
    publish: Publish,
    /// Those beneath the composite that are probed more rarely while nobody uses them.
    dozing: Box<[Arc<Pool>]>,
}

impl Door {
    /// A request asks here: the verdicts that the answer goes by must not grow old.
    pub fn mark_use(&self) {
        self.dozing.iter().for_each(|pool| pool.usage().mark());
    }
}

/// All of one generation.
#[derive(Debug, Default)]
pub struct Doors {
    all: Vec<Arc<Door>>,
    /// Places in the list, by path; of one path the most exact host first, as with routes.
    by_path: HashMap<String, Vec<usize>>,
}

impl Doors {
    /// Of these composites, `dozing` being the pools beneath each that are probed more rarely while nobody uses them; a place
    /// that was there keeps its counts.
    pub fn next(old: Option<&Doors>, composites: &[Composite], dozing: impl Fn(&str) -> Vec<Arc<Pool>>) -> Doors {
        let before = old.into_iter().flat_map(|old| &old.all).map(|door| &door.counts);
        let mut counts: HashMap<String, _> = before.map(|counts| (counts.route().to_owned(), counts.clone())).collect();
        let mut doors = Doors::default();
        for composite in composites {
            let Some(publish) = &composite.publish else { continue };
            let new = || Arc::new(RouteCounts::new(publish.place().into(), "".into()));
            let counts = counts.entry(publish.place()).or_insert_with(new).clone();
            doors.by_path.entry(publish.path.clone()).or_default().push(doors.all.len());
            let dozing = dozing(&composite.name).into();
            let (composite, publish) = (composite.name.clone(), publish.clone());
            doors.all.push(Arc::new(Door { composite, counts, publish, dozing }));
        }
        for places in doors.by_path.values_mut() {
            places.sort_by_key(|place| std::cmp::Reverse(doors.all[*place].publish.host.rank()));
        }
        doors
    }

    /// The one that a request comes by: on the listener of this name, to `host` as the client sent it, for exactly `path`.
    pub fn find(&self, listener: &str, host: &str, path: &str) -> Option<&Arc<Door>> {
        if self.by_path.is_empty() {
            return None;
        }
        let fits = |door: &&Arc<Door>| {
            let here = door.publish.listener.as_ref().is_none_or(|name| name == listener);
            here && door.publish.host.takes(host)
        };
        self.by_path.get(path)?.iter().map(|place| &self.all[*place]).find(fits)
    }

    /// What is counted of them, by place: each once, however many composites are there.
    pub fn counts(&self) -> impl Iterator<Item = &Arc<RouteCounts>> {
        let mut seen = HashSet::new();
        self.all.iter().map(|door| &door.counts).filter(move |counts| seen.insert(counts.route()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Host;

    fn composite(name: &str, path: &str, host: Host, listener: Option<&str>) -> Composite {
        let publish = Publish { path: path.to_owned(), host, listener: listener.map(str::to_owned) };
        Composite { name: name.into(), sources: Vec::new(), publish: Some(publish), only_observes: false }
    }

    fn next(old: Option<&Doors>, composites: &[Composite]) -> Doors {
        Doors::next(old, composites, |_| Vec::new())
    }

    #[test]
    fn a_door_is_one_path_and_the_most_exact_host_has_it() {
        let composites = [
            composite("any", "/health", Host::Any, None),
            composite("wild", "/health", Host::Wildcard("shop.test".to_owned()), None),
            composite("exact", "/health", Host::Exact("a.shop.test".to_owned()), None),
            composite("inside", "/inside", Host::Any, Some("inside")),
            Composite { publish: None, ..composite("silent", "/silent", Host::Any, None) },
        ];
        let doors = next(None, &composites);
        let found =
            |listener: &str, host: &str, path: &str| doors.find(listener, host, path).map(|d| d.composite.to_string());
        let rows = [
            ("public", "b.test", "/health", Some("any")),
            ("public", "", "/health", Some("any")),
            ("public", "b.shop.test:8080", "/health", Some("wild")),
            ("public", "A.Shop.Test.", "/health", Some("exact")),
            ("public", "shop.test", "/health", Some("any")),
            ("public", "b.test", "/health/", None),
            ("public", "b.test", "/health/x", None),
            ("public", "b.test", "/Health", None),
            ("public", "b.test", "/", None),
            ("public", "b.test", "/inside", None),
            ("inside", "b.test", "/inside", Some("inside")),
            ("inside", "b.test", "/silent", None),
        ];
        for (listener, host, path, expected) in rows {
            assert_eq!(found(listener, host, path).as_deref(), expected, "{listener} {host} {path}");
        }
    }

    #[test]
    fn a_place_keeps_its_counts_whichever_composite_is_there_and_has_them_once() {
        let one = next(None, &[composite("a", "/a", Host::Any, None), composite("b", "/b", Host::Any, None)]);
        let two = next(Some(&one), &[composite("a", "/a", Host::Any, None), composite("b", "/c", Host::Any, None)]);
        let same = |place: usize| Arc::ptr_eq(&one.all[place].counts, &two.all[place].counts);
        assert_eq!((same(0), same(1)), (true, false));
        // Another composite at the place, by another listener: its requests add up with those before it.
        let shared = [composite("c", "/a", Host::Any, Some("main")), composite("a", "/a", Host::Any, Some("two"))];
        let three = next(Some(&two), &shared);
        assert!(three.all.iter().all(|door| Arc::ptr_eq(&door.counts, &one.all[0].counts)));
        assert_eq!(three.counts().map(|counts| counts.route()).collect::<Vec<_>>(), ["/a"]);
    }
}
