//! Which pools a composite comes down to, through whatever composites are between.

use std::collections::{HashMap, HashSet};

use crate::config::{Composite, Source};

/// The composites of one configuration, to be asked what is beneath them.
#[derive(Debug)]
pub struct Beneath<'a> {
    by_name: HashMap<&'a str, &'a Composite>,
}

impl<'a> Beneath<'a> {
    /// Beneath these.
    pub fn new(composites: &'a [Composite]) -> Beneath<'a> {
        Beneath { by_name: composites.iter().map(|composite| (&*composite.name, composite)).collect() }
    }

    /// The names of its pools, each once; none where there is no such composite.
    pub fn pools(&self, composite: &str) -> Vec<&'a str> {
        let (mut pools, mut seen) = (Vec::new(), HashSet::new());
        // A list and no recursion: a file may nest them deeper than a stack is.
        let mut left: Vec<&Composite> = self.by_name.get(composite).copied().into_iter().collect();
        while let Some(here) = left.pop() {
            // No pool has the name of a composite.
            for source in here.sources.iter().filter(|source| seen.insert(&**source.name())) {
                match source {
                    Source::Pool(name) => pools.push(&**name),
                    Source::Composite(name) => left.extend(self.by_name.get(&**name)),
                }
            }
        }
        pools
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_found_through_other_composites_and_each_once() {
        let one = |name: &str, sources: Vec<Source>| Composite {
            name: name.into(),
            sources,
            publish: None,
            only_observes: false,
        };
        let pool = |name: &str| Source::Pool(name.into());
        let all = [
            one("front", vec![pool("web"), pool("static")]),
            one("back", vec![pool("api"), pool("web")]),
            one("region", vec![pool("api"), Source::Composite("front".into()), Source::Composite("back".into())]),
            one("world", vec![Source::Composite("region".into()), Source::Composite("front".into())]),
        ];
        let beneath = Beneath::new(&all);
        let sorted = |composite: &str| {
            let mut pools = beneath.pools(composite);
            pools.sort_unstable();
            pools
        };
        assert_eq!(sorted("front"), ["static", "web"]);
        assert_eq!(sorted("region"), ["api", "static", "web"]);
        assert_eq!(sorted("world"), ["api", "static", "web"]);
        assert!(sorted("nowhere").is_empty());
    }
}
