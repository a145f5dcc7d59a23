//! The routes, and where they lead.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::domain::Pool;
use super::file::RouteKeys;
use super::parse::filled;
use super::places::At;
use super::problem::Problems;
use super::reading::{DAY, Reading};
use super::spelling::{Spelled, Text, likely, shown};
use super::words::{Or, PoolWord};
use crate::route::{Host, Rank, Route};

/// Until when a better pool has proved itself where nothing is written: long enough for a region that comes and goes.
const FAILBACK_DELAY: Duration = Duration::from_secs(60);

/// Far more than anybody falls back through; logs have a small number for each.
const MOST_POOLS: usize = 100;

/// What a route may name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// Pools, by name.
    pub(super) pools: &'a BTreeMap<String, Arc<Pool>>,
    /// Names of composites.
    pub(super) composites: &'a [&'a str],
    /// Those of them that only observe.
    pub(super) observing: &'a [&'a str],
    /// The top of the file.
    pub(super) top: At<'a>,
}

/// The routes written at the top of the file that `top` stands on.
pub(super) fn routes(written: Option<&[RouteKeys]>, known: Known<'_>, top: &mut Reading<'_>) -> Vec<Route> {
    let list = written.unwrap_or_default();
    if list.is_empty() && !top.at.key("routes").damaged() {
        let pool = known.pools.keys().next().map_or("web", String::as_str);
        top.missing(
            "routes",
            format!("no route, so every request would get 404; write `routes: [{{ pool: {pool} }}]`"),
        );
    }
    let mut routes = Vec::with_capacity(list.len());
    let mut first_lines: HashMap<(Host, String), u32> = HashMap::with_capacity(list.len());
    for (index, keys) in list.iter().enumerate() {
        let at = top.at.key("routes").item(index);
        let mut read = Reading::new(at, top.problems);
        let path = read.text("path", &keys.path, route_path);
        // A wrong host or path was taken out: this route cannot be called the twin of another.
        let sound = !at.damaged() && path.is_some() == keys.path.is_some();
        let path = path.unwrap_or_else(|| "/".to_owned());
        let host = keys.host.as_ref().map_or(Host::Any, |Spelled(host)| host.clone());
        let Some(pools) = ranks(keys, known, &mut read) else { continue };
        // With one pool there is nowhere to go back to.
        let failback = failback(keys, &mut read).filter(|_| pools.len() > 1);
        let route = Route { name: name(&host, &path).into(), host, path, pools, failback };
        if sound && let Some(line) = first_lines.insert((route.host.clone(), route.path.clone()), at.mark().line) {
            let message = format!("{} has a route already, on line {line}", route.name);
            top.problems.error(at, message);
        }
        routes.push(route);
    }
    routes
}

/// Where a route leads; `None` where nothing is written that could be used.
fn ranks(keys: &RouteKeys, known: Known<'_>, read: &mut Reading<'_>) -> Option<Vec<Rank>> {
    let at = read.at.key("pools");
    if at.exists() && keys.pool.is_some() {
        read.problems.error_at(at.name(), "a route has `pool` or `pools`, not both; write all of them in `pools`");
    }
    let Some(list) = keys.pools.as_deref() else {
        let Some(pool) = filled(&keys.pool) else {
            if !read.at.may_have_lost("pools") {
                read.missing("pool", "a route needs a pool, such as `{ path: /, pool: web }`");
            }
            return None;
        };
        known.check_pool(pool, read.at.key("pool"), read.problems);
        return Some(vec![Rank::of(pool)]);
    };
    if list.is_empty() && !at.damaged() {
        read.error("pools", "`pools` is empty; write them in the order of preference, such as `[web, web-us]`");
    }
    if list.len() > MOST_POOLS {
        read.error("pools", format!("a route has at most {MOST_POOLS} pools"));
    }
    let mut ranks = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        let mut read = Reading::new(at.item(index), read.problems);
        let (pool, when) = match item {
            Or::Word(PoolWord(pool)) => (Some(pool.as_str()).filter(|pool| !pool.is_empty()), None),
            Or::Keys(keys) => (filled(&keys.pool), keys.when.as_ref().map(|Spelled(Text(when))| when.as_str())),
        };
        if let Some(when) = when {
            known.check_composite(when, read.at.key("when"), read.problems);
        }
        let Some(pool) = pool else {
            read.missing("pool", "a pool is missing here; write its name, or `{ pool: web, when: region }`");
            continue;
        };
        let at = if read.at.key("pool").exists() { read.at.key("pool") } else { read.at };
        known.check_pool(pool, at, read.problems);
        let (tried_when, when) = when.map(Into::into).map_or((None, None), |when: std::sync::Arc<str>| {
            if known.observing.contains(&&*when) { (Some(when), None) } else { (None, Some(when)) }
        });
        ranks.push(Rank { when, tried_when, ..Rank::of(pool) });
    }
    (!ranks.is_empty()).then_some(ranks)
}

fn failback(keys: &RouteKeys, read: &mut Reading<'_>) -> Option<Duration> {
    let delay = read.span("failback_delay", &keys.failback_delay, Duration::ZERO..=DAY).unwrap_or(FAILBACK_DELAY);
    let never = matches!(keys.no_failback, Some(Spelled(true)));
    (!never).then_some(delay)
}

impl Known<'_> {
    /// Says of a pool that it is not there, unless it, or all of them, were written and taken out as wrong.
    fn check_pool(self, pool: &str, at: At<'_>, problems: &mut Problems) {
        let refused = !self.top.key("pools").exists() || self.top.key("pools").lost(pool);
        if !self.pools.contains_key(pool) && !refused {
            let names: Vec<&str> = self.pools.keys().map(String::as_str).collect();
            problems.error(at, unknown("pool", pool, &names));
        }
    }

    /// The same of a composite.
    fn check_composite(self, composite: &str, at: At<'_>, problems: &mut Problems) {
        let all = self.top.key("composites");
        if self.composites.contains(&composite) || all.lost(composite) || self.top.lost("composites") {
            return;
        }
        let message = match self.pools.contains_key(composite) {
            true => format!("\"{}\" is a pool; `when` takes a composite", shown(composite)),
            false => unknown("composite", composite, self.composites),
        };
        problems.error(at, message);
    }
}

fn unknown(what: &str, name: &str, names: &[&str]) -> String {
    match likely(name, names) {
        Some(other) => format!("there is no {what} \"{}\"; did you mean \"{other}\"?", shown(name)),
        None => format!("there is no {what} \"{}\"", shown(name)),
    }
}

fn route_path(path: &str) -> Result<String, String> {
    let text = shown(path);
    if path.is_empty() {
        return Err("the path is empty; write `/`".to_owned());
    }
    if path.starts_with(['~', '^']) {
        return Err(format!("`{text}`: regular expressions are not supported; write a prefix such as `/api`"));
    }
    if path.contains(['?', '#']) {
        return Err(format!("`{text}`: a route looks at the path alone, without `?` and `#`"));
    }
    if let Some(prefix) = path.strip_suffix('*') {
        let prefix = shown(prefix.trim_end_matches(['/', '*']).trim_start_matches('/'));
        return Err(format!("`{text}`: a path is a prefix already; write `/{prefix}`"));
    }
    rooted(sendable(path)?)
}

/// The path of one thing: `/health` is that and not `/health/x`.
pub(super) fn exact_path(path: &str) -> Result<String, String> {
    let text = shown(path);
    if path.is_empty() {
        return Err("the path is empty; write one such as `/.well-known/region-health`".to_owned());
    }
    if path.contains(['?', '#', '*']) {
        return Err(format!("`{text}`: it is one path, without `?`, `#` and `*`"));
    }
    rooted(sendable(path)?)
}

/// Last, so that what is to be written instead is taken.
fn rooted(path: String) -> Result<String, String> {
    if path.starts_with('/') {
        return Ok(path);
    }
    Err(format!("`{0}` does not begin with `/`; write `/{0}`", shown(&path)))
}

fn sendable(path: &str) -> Result<String, String> {
    match path.chars().find(|c| !c.is_ascii_graphic()) {
        None => Ok(path.to_owned()),
        Some(c) => Err(format!(
            "`{}` holds `{}`, which cannot be in a request; write it percent-encoded",
            shown(path),
            shown(&c.to_string())
        )),
    }
}

/// What was written, for logs: `shop.example.com/api/`.
pub(super) fn name(host: &Host, path: &str) -> String {
    match host {
        Host::Any => path.to_owned(),
        Host::Exact(host) => format!("{host}{path}"),
        Host::Wildcard(suffix) => format!("*.{suffix}{path}"),
    }
}
