//! The composites: which pools, and which other composites, each of them stands for, and where it is published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::domain::{Composite, Listener, Pool, Publish, Source};
use super::file::{CompositeKeys, PublishKeys};
use super::parse::{filled, fit_name};
use super::places::{At, Mark};
use super::reading::Reading;
use super::route::exact_path;
use super::spelling::{Spelled, Text, likely, shown};
use crate::route::Host;

/// Circles that are told of at once: whoever has more is told of the others when these are gone.
const MOST_CIRCLES: usize = 20;

/// Of one circle so many names are spelled out.
const MOST_NAMES: usize = 12;

/// The composites written at the top of the file that `top` stands on, each behind its sources.
pub(super) fn composites(
    written: Option<&BTreeMap<String, CompositeKeys>>,
    pools: &BTreeMap<String, Arc<Pool>>,
    listeners: &[Listener],
    top: &mut Reading<'_>,
) -> Vec<Composite> {
    let empty = BTreeMap::new();
    let written = written.unwrap_or(&empty);
    let all = top.at.key("composites");
    let names = Names { pools, composites: written.keys().map(String::as_str).collect(), top: top.at };
    let mut read = Vec::with_capacity(written.len());
    for (name, keys) in written {
        let at = all.key(name);
        if let Err(message) = fit_name(name, "a composite") {
            top.problems.error_at(at.name(), message);
        } else if pools.contains_key(name) {
            let line = top.at.key("pools").key(name).name().line;
            let message =
                format!("\"{name}\" is a pool too, on line {line}: a source must be one of them; call it otherwise");
            top.problems.error_at(at.name(), message);
        }
        let mut read_one = Reading::new(at, top.problems);
        let sources = sources(keys.sources.as_deref(), &names, &mut read_one);
        let publish = keys.publish.as_ref().and_then(|keys| publish(keys, listeners, read_one.under("publish")));
        let only_observes = keys.observe.is_some_and(|Spelled(observe)| observe);
        read.push(Composite { name: name.as_str().into(), sources, publish, only_observes });
    }
    told_apart(&read, top);
    sorted(read, top)
}

/// Of the composites that are `written` those that something goes by, and all of them where one only observes: what
/// observes is a source of those alone that do so too.
pub(super) fn apart(written: Vec<Composite>, top: &mut Reading<'_>) -> (Vec<Composite>, Vec<Composite>) {
    let observing: BTreeSet<&str> = written.iter().filter(|one| one.only_observes).map(|one| &*one.name).collect();
    if observing.is_empty() {
        return (written, Vec::new());
    }
    let is_in_force = |source: &Source| matches!(source, Source::Pool(_)) || !observing.contains(&**source.name());
    let mut in_force = Vec::with_capacity(written.len());
    for one in written.iter().filter(|one| !one.only_observes) {
        let sources: Vec<Source> = one.sources.iter().filter(|source| is_in_force(source)).cloned().collect();
        if sources.is_empty() && !one.sources.is_empty() {
            let place = top.at.key("composites").key(&one.name).key("sources");
            top.problems.error(place, "all of these only observe; write `observe: true` here too, or name another one");
        }
        in_force.push(Composite { sources, ..one.clone() });
    }
    (in_force, written)
}

/// What a source may be.
struct Names<'a> {
    pools: &'a BTreeMap<String, Arc<Pool>>,
    composites: BTreeSet<&'a str>,
    top: At<'a>,
}

impl Names<'_> {
    /// # Errors
    /// There is nothing of that name; empty where that was said already.
    fn source(&self, name: &str) -> Result<Source, String> {
        if self.pools.contains_key(name) {
            return Ok(Source::Pool(name.into()));
        }
        if self.composites.contains(name) {
            return Ok(Source::Composite(name.into()));
        }
        let lost = |key: &str| self.top.key(key).lost(name) || self.top.lost(key);
        if lost("pools") || lost("composites") || !self.top.key("pools").exists() {
            return Err(String::new());
        }
        let known: Vec<&str> = self.pools.keys().map(String::as_str).chain(self.composites.iter().copied()).collect();
        Err(match likely(name, &known) {
            Some(other) => format!("there is no pool or composite \"{}\"; did you mean \"{other}\"?", shown(name)),
            None => format!("there is no pool or composite \"{}\"", shown(name)),
        })
    }
}

fn sources(written: Option<&[Spelled<Text>]>, names: &Names<'_>, read: &mut Reading<'_>) -> Vec<Source> {
    let list = written.unwrap_or_default();
    if list.is_empty() && !read.at.key("sources").damaged() {
        let pool = names.pools.keys().next().map_or("web", String::as_str);
        read.missing("sources", format!("a composite needs sources, such as `sources: [{pool}]`"));
    }
    let mut sources = Vec::with_capacity(list.len());
    for (index, Spelled(Text(name))) in list.iter().enumerate() {
        let at = read.at.key("sources").item(index);
        match names.source(name) {
            Ok(source) if sources.contains(&source) => {
                read.problems.error(at, format!("\"{name}\" is a source already; once is enough"));
            }
            Ok(source) => sources.push(source),
            Err(message) if message.is_empty() => {}
            Err(message) => read.problems.error(at, message),
        }
    }
    sources
}

fn publish(keys: &PublishKeys, listeners: &[Listener], mut read: Reading<'_>) -> Option<Publish> {
    let listener = filled(&keys.listener);
    if let Some(name) = listener
        && !listeners.iter().any(|listener| listener.name == name)
    {
        let names: Vec<&str> = listeners.iter().map(|listener| listener.name.as_str()).collect();
        let message = match likely(name, &names) {
            Some(other) => format!("there is no listener \"{}\"; did you mean \"{other}\"?", shown(name)),
            None => format!("there is no listener \"{}\"", shown(name)),
        };
        if !names.is_empty() {
            read.error("listener", message);
        }
    }
    if keys.path.is_none() {
        read.missing("path", "`publish` needs a path, such as `publish: { path: /.well-known/region-health }`");
        return None;
    }
    Some(Publish {
        path: read.text("path", &keys.path, exact_path)?,
        host: keys.host.as_ref().map_or(Host::Any, |Spelled(host)| host.clone()),
        listener: listener.map(str::to_owned),
    })
}

/// Notes those that are published where another one is.
fn told_apart(composites: &[Composite], top: &mut Reading<'_>) {
    let published = |composite: &Composite| composite.publish.clone().map(|publish| (composite.name.clone(), publish));
    let mut published: Vec<_> = composites.iter().filter_map(published).collect();
    let place = |name: &str| top.at.key("composites").key(name).key("publish").key("path");
    published.sort_by_key(|(name, _)| place(name).mark());
    for (index, (name, this)) in published.iter().enumerate() {
        let is_there = |other: &Publish| {
            let apart = matches!((&this.listener, &other.listener), (Some(one), Some(other)) if one != other);
            this.path == other.path && this.host == other.host && !apart
        };
        if let Some((other, _)) = published[..index].iter().find(|(_, other)| is_there(other)) {
            let where_ = this.place();
            let message =
                format!("{where_} is where composite \"{other}\" is published, on line {}", place(other).mark().line);
            top.problems.error(place(name), message);
        }
    }
}

/// Each behind its sources, by name where that leaves a choice; those that lead back to themselves are an error.
fn sorted(composites: Vec<Composite>, top: &mut Reading<'_>) -> Vec<Composite> {
    let by_name: BTreeMap<&str, &Composite> = composites.iter().map(|c| (&*c.name, c)).collect();
    let Sorted { order, circles } = sort(&by_name);
    for circle in circles {
        let (mark, message) = circle_error(&circle, &by_name, top.at.key("composites"));
        top.problems.error_at(mark, message);
    }
    order.into_iter().map(|name| by_name[name].clone()).collect()
}

#[derive(Default)]
struct Sorted<'a> {
    order: Vec<&'a str>,
    /// Each named once, from any of them on.
    circles: Vec<Vec<&'a str>>,
}

/// From each downwards as far as it goes, without recursion: a file may nest them deeper than a stack is.
fn sort<'a>(by_name: &BTreeMap<&'a str, &'a Composite>) -> Sorted<'a> {
    let mut sorted = Sorted::default();
    let mut done = BTreeSet::new();
    for name in by_name.keys() {
        // On the way: whom we look at, and how many of its sources were looked at.
        let mut way: Vec<(&str, usize)> = vec![(name, 0)];
        let mut places: BTreeMap<&str, usize> = BTreeMap::from([(*name, 0)]);
        while let Some((here, seen)) = way.last_mut() {
            let sources = by_name.get(here).filter(|_| !done.contains(here)).map_or(&[][..], |one| &one.sources);
            let Some(source) = sources.get(*seen) else {
                places.remove(here);
                if done.insert(*here) {
                    sorted.order.push(here);
                }
                way.pop();
                continue;
            };
            *seen += 1;
            let Source::Composite(next) = source else { continue };
            match places.get(&**next) {
                Some(begin) if sorted.circles.len() < MOST_CIRCLES => {
                    sorted.circles.push(way[*begin..].iter().map(|(name, _)| *name).collect());
                }
                Some(_) => {}
                None => {
                    places.insert(next, way.len());
                    way.push((next, 0));
                }
            }
        }
    }
    sorted
}

/// Told where the first of them in the file names the next.
fn circle_error(circle: &[&str], by_name: &BTreeMap<&str, &Composite>, all: At<'_>) -> (Mark, String) {
    let first = (0..circle.len()).min_by_key(|place| all.key(circle[*place]).name()).unwrap_or_default();
    let mut way: Vec<&str> = circle[first..].iter().chain(&circle[..first]).copied().collect();
    way.push(way[0]);
    let is_next = |source: &Source| matches!(source, Source::Composite(name) if **name == *way[1]);
    let item = by_name.get(way[0]).and_then(|composite| composite.sources.iter().position(is_next)).unwrap_or_default();
    let message = match way.as_slice() {
        [name, _] => format!("composite \"{name}\" is a source of itself; take it out"),
        way => {
            let mut shown: Vec<&str> = way.iter().take(MOST_NAMES).copied().collect();
            if way.len() > MOST_NAMES {
                shown.extend(["…", way[0]]);
            }
            format!("composite \"{}\" is a source of itself: {}; take one of these out", way[0], shown.join(" -> "))
        }
    };
    (all.key(way[0]).key("sources").item(item).mark(), message)
}
