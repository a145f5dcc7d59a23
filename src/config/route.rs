//! The routes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::domain::Pool;
use super::file::RouteKeys;
use super::parse::filled;
use super::places::At;
use super::reading::Reading;
use super::spelling::{Spelled, likely, shown};
use crate::route::{Host, Route};

/// The routes written at the top of the file that `top` stands on.
pub(super) fn routes(
    written: Option<&[RouteKeys]>,
    pools: &BTreeMap<String, Arc<Pool>>,
    top: &mut Reading<'_>,
) -> Vec<Route> {
    let list = written.unwrap_or_default();
    if list.is_empty() && !top.at.key("routes").damaged() {
        let pool = pools.keys().next().map_or("web", String::as_str);
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
        let Some(pool) = filled(&keys.pool) else {
            read.missing("pool", "a route needs a pool, such as `{ path: /, pool: web }`");
            continue;
        };
        if !pools.contains_key(pool) && !refused(pool, top.at) {
            top.problems.error(at.key("pool"), unknown_pool(pool, pools));
        }
        let route = Route { name: name(&host, &path).into(), host, path, pool: pool.into() };
        if sound && let Some(line) = first_lines.insert((route.host.clone(), route.path.clone()), at.mark().line) {
            let message = format!("{} has a route already, on line {line}", route.name);
            top.problems.error(at, message);
        }
        routes.push(route);
    }
    routes
}

/// The pool, or all of them, were written and taken out as wrong, or the lack of any was reported.
fn refused(pool: &str, top: At<'_>) -> bool {
    !top.key("pools").exists() || top.key("pools").lost(pool)
}

fn unknown_pool(name: &str, pools: &BTreeMap<String, Arc<Pool>>) -> String {
    let names: Vec<&str> = pools.keys().map(String::as_str).collect();
    match likely(name, &names) {
        Some(other) => format!("there is no pool \"{}\"; did you mean \"{other}\"?", shown(name)),
        None => format!("there is no pool \"{}\"", shown(name)),
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
    if !path.starts_with('/') {
        return Err(format!("`{text}` does not begin with `/`; write `/{text}`"));
    }
    if path.contains(['?', '#']) {
        return Err(format!("`{text}`: a route looks at the path alone, without `?` and `#`"));
    }
    if let Some(prefix) = path.strip_suffix('*') {
        let prefix = match prefix.trim_end_matches(['/', '*']) {
            "" => "/".to_owned(),
            prefix => shown(prefix),
        };
        return Err(format!("`{text}`: a path is a prefix already; write `{prefix}`"));
    }
    if let Some(c) = path.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(format!(
            "`{text}` holds `{}`, which cannot be in a request; write it percent-encoded",
            shown(&c.to_string())
        ));
    }
    Ok(path.to_owned())
}

/// What was written, for logs: `shop.example.com/api/`.
fn name(host: &Host, path: &str) -> String {
    match host {
        Host::Any => path.to_owned(),
        Host::Exact(host) => format!("{host}{path}"),
        Host::Wildcard(suffix) => format!("*.{suffix}{path}"),
    }
}
