//! From host and path to the pools that serve them.
//!
//! Pure. A host is exact or `*.suffix`; a path is a prefix on segment boundaries. The exact host is asked first, then
//! the wildcards from the longest suffix to the shortest, then the routes for any host; each answers with its longest
//! path that matches, and one that has none passes the request on to the next. So `shop.example.com/api/` beside a
//! plain `/` takes over only what is under `/api/`. No match is a 404.
//!
//! A prefix means what is written: `/api` matches `/api` and `/api/x`; `/api/` matches `/api/` and `/api/x`, but not
//! `/api` (as in nginx). Paths are compared as bytes, in their case: percent-encoding, `..` and `//` are the caller's
//! to settle before, with the same bytes it sends on.
//! Not here: what a host or a path may look like (`config`), and which pool of several serves (`health`).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// One route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// For logs: what was written, `shop.example.com/api/`.
    pub name: Arc<str>,
    /// Which hosts.
    pub host: Host,
    /// A prefix beginning with `/`, on segment boundaries: `/api` matches `/api` and `/api/x`, not `/apis`.
    pub path: String,
    /// Where it leads, the first that can serve being used; at least one.
    pub pools: Vec<Rank>,
    /// How long a better pool must have been able to serve before the route goes back to it; `None`: it does not, as long
    /// as the present one can, or there is one alone.
    pub failback: Option<Duration>,
}

/// One of the pools that a route leads to; its place in their row is its rank, 0 first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// The pool's name.
    pub pool: Arc<str>,
    /// The composite that says whether it can serve; `None`: the pool itself does.
    pub when: Option<Arc<str>>,
    /// One that would, if it did more than observe.
    pub tried_when: Option<Arc<str>>,
}

impl Rank {
    /// A pool that itself says whether it can serve.
    pub fn of(pool: &str) -> Rank {
        Rank { pool: pool.into(), when: None, tried_when: None }
    }

    /// The composite as it is written, whether it says so or only observes.
    pub fn written_when(&self) -> Option<&Arc<str>> {
        self.when.as_ref().or(self.tried_when.as_ref())
    }
}

/// Which hosts a route is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// Every host.
    Any,
    /// This one, in lower case, without port and final dot. An IPv6 literal with or without its brackets.
    Exact(String),
    /// Every host that ends in `.suffix` (with at least one label before it); holds `suffix`, in lower case.
    Wildcard(String),
}

impl Host {
    /// Whether a request to `host`, as the client sent it, is meant.
    pub fn takes(&self, host: &str) -> bool {
        match self {
            Host::Any => true,
            Host::Exact(name) => normal(name) == normal(host),
            Host::Wildcard(suffix) => {
                let (suffix, host) = (normal(suffix), normal(host));
                let label = host.strip_suffix(&*suffix).and_then(|rest| rest.strip_suffix('.'));
                label.is_some_and(|label| !label.is_empty())
            }
        }
    }

    /// Whether every host of `other` is one of these too.
    pub fn covers(&self, other: &Host) -> bool {
        match (self, other) {
            (Host::Any, _) => true,
            (_, Host::Any) => false,
            (Host::Exact(_), Host::Wildcard(_)) => false,
            (_, Host::Exact(name)) => self.takes(name),
            // What ends in the longer suffix ends in the shorter.
            (Host::Wildcard(suffix), Host::Wildcard(longer)) => normal(suffix) == normal(longer) || self.takes(longer),
        }
    }

    /// Which of those that take a host is asked first: the one of the greatest rank.
    pub fn rank(&self) -> usize {
        match self {
            Host::Any => 0,
            Host::Wildcard(suffix) => suffix.len(),
            Host::Exact(_) => usize::MAX,
        }
    }
}

/// All routes, ready to be searched.
#[derive(Debug, Default)]
pub struct Table {
    routes: Vec<Route>,
    exact: HashMap<String, Paths>,
    wildcard: HashMap<String, Paths>,
    any: Paths,
    /// In bytes. Longer ends of a host are not looked up, so that a host of a thousand dots costs no more than another.
    longest_suffix: usize,
}

impl Table {
    /// Builds the table. Equal host and path twice is refused by the config before; here the first would win.
    pub fn new(routes: Vec<Route>) -> Table {
        let mut table = Table::default();
        for (at, route) in routes.iter().enumerate() {
            let paths = match &route.host {
                Host::Any => &mut table.any,
                Host::Exact(host) => table.exact.entry(normal(host).into_owned()).or_default(),
                Host::Wildcard(suffix) => {
                    table.longest_suffix = table.longest_suffix.max(suffix.len());
                    table.wildcard.entry(normal(suffix).into_owned()).or_default()
                }
            };
            paths.sorted.push(Prefix { route: at, shorter: None });
        }
        let hosts = table.exact.values_mut().chain(table.wildcard.values_mut());
        hosts.chain([&mut table.any]).for_each(|paths| paths.arrange(&routes));
        table.routes = routes;
        table
    }

    /// The route for a request: `host` as the client sent it (any case, maybe with port or final dot), empty where
    /// there is none; `path` without the query. Allocates only where the host has a capital letter.
    pub fn find(&self, host: &str, path: &str) -> Option<&Route> {
        self.find_place(host, path).map(|place| &self.routes[place])
    }

    /// The same, as its place among [`Table::routes`].
    pub fn find_place(&self, host: &str, path: &str) -> Option<usize> {
        let host = normal(host);
        let exact = self.exact.get(&*host).and_then(|paths| paths.longest(&self.routes, path));
        exact.or_else(|| self.find_wildcard(&host, path)).or_else(|| self.any.longest(&self.routes, path))
    }

    /// The routes, in the order they were given.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    fn find_wildcard(&self, host: &str, path: &str) -> Option<usize> {
        if self.wildcard.is_empty() {
            return None;
        }
        // No suffix can begin before this byte, and none at the very first: a label must stand before the dot.
        let begin = host.len().saturating_sub(self.longest_suffix + 1).max(1);
        let dots = host.bytes().enumerate().skip(begin).filter(|&(_, byte)| byte == b'.');
        let mut suffixes = dots.map(|(dot, _)| &host[dot + 1..]);
        suffixes.find_map(|suffix| self.wildcard.get(suffix)?.longest(&self.routes, path))
    }
}

/// The form in which hosts are compared: lower case, without port, brackets and one final dot.
pub fn normal(host: &str) -> Cow<'_, str> {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        // RFC 3986 section 3.2.2; only a port may follow.
        Some((literal, rest)) if rest.is_empty() || is_port(rest) => literal,
        _ => match host.split_once(':') {
            Some((name, _)) if is_port(&host[name.len()..]) => name,
            _ => host,
        },
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(name.to_ascii_lowercase());
    }
    Cow::Borrowed(name)
}

/// `:8080`, or the bare colon that RFC 3986 section 3.2.3 allows. Other text is no port, and such a host fits no name.
fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The paths of one host, sorted, so that the greatest one not after a request's path leads to all that match it:
/// what lies between a prefix and the path begins with that prefix too, so every prefix of the path is a prefix of its
/// predecessor, or that one itself.
#[derive(Debug, Default)]
struct Paths {
    sorted: Vec<Prefix>,
}

#[derive(Debug)]
struct Prefix {
    /// Its index in the routes.
    route: usize,
    /// The next shorter one this begins with, as a position in the list.
    shorter: Option<usize>,
}

impl Paths {
    fn arrange(&mut self, routes: &[Route]) {
        let path = |prefix: &Prefix| routes[prefix.route].path.as_str();
        // A stable sort: of equals the first given stays.
        self.sorted.sort_by(|one, other| path(one).cmp(path(other)));
        self.sorted.dedup_by(|later, first| path(later) == path(first));
        for at in 1..self.sorted.len() {
            let mut candidate = Some(at - 1);
            while let Some(shorter) = candidate
                && !path(&self.sorted[at]).starts_with(path(&self.sorted[shorter]))
            {
                candidate = self.sorted[shorter].shorter;
            }
            self.sorted[at].shorter = candidate;
        }
    }

    fn longest(&self, routes: &[Route], path: &str) -> Option<usize> {
        let not_after = |prefix: &Prefix| routes[prefix.route].path.as_str().cmp(path) != Ordering::Greater;
        let mut candidate = self.sorted.partition_point(not_after).checked_sub(1);
        while let Some(at) = candidate {
            let place = self.sorted[at].route;
            if is_under(path, &routes[place].path) {
                return Some(place);
            }
            candidate = self.sorted[at].shorter;
        }
        None
    }
}

/// Whether the path is the prefix or goes on from it with a new segment.
fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rank(pool: &str) -> Rank {
        Rank::of(pool)
    }

    /// `shop.example.com/api/`, `*.example.com/`, `/`: the pool is called as what was written.
    fn route(written: &str) -> Route {
        let (host, path) = written.split_at(written.find('/').unwrap());
        let host = match host.strip_prefix("*.") {
            Some(suffix) => Host::Wildcard(suffix.into()),
            None if host.is_empty() => Host::Any,
            None => Host::Exact(host.into()),
        };
        Route { name: written.into(), host, path: path.into(), pools: vec![rank(written)], failback: None }
    }

    fn table(written: &[&str]) -> Table {
        Table::new(written.iter().map(|written| route(written)).collect())
    }

    fn found<'a>(table: &'a Table, host: &str, path: &str) -> &'a str {
        table.find(host, path).map_or("404", |route| &route.pools[0].pool)
    }

    #[test]
    fn the_most_specific_host_then_the_longest_path_wins() {
        let table = table(&[
            "/",
            "/static",
            "shop.example.com/api/",
            "shop.example.com/api/v2",
            "*.example.com/",
            "*.eu.example.com/api",
            "*.com/com",
        ]);
        for (host, path, expected) in [
            ("shop.example.com", "/api/x", "shop.example.com/api/"),
            ("shop.example.com", "/api/v2/x", "shop.example.com/api/v2"),
            ("shop.example.com", "/api/v22", "shop.example.com/api/"),
            ("shop.example.com", "/api/", "shop.example.com/api/"),
            // Nothing of the exact host matches: the wildcard is asked, then any host.
            ("shop.example.com", "/api", "*.example.com/"),
            ("shop.example.com", "/static/a", "*.example.com/"),
            ("a.b.example.com", "/", "*.example.com/"),
            ("a.eu.example.com", "/api", "*.eu.example.com/api"),
            ("a.eu.example.com", "/apis", "*.example.com/"),
            // A wildcard wants a label before it.
            ("eu.example.com", "/api", "*.example.com/"),
            ("example.com", "/", "/"),
            ("example.com", "/com/x", "*.com/com"),
            (".example.com", "/", "/"),
            ("notexample.com", "/static", "/static"),
            ("notexample.com", "/statics", "/"),
            ("", "/static/", "/static"),
            ("com", "/com", "/"),
        ] {
            assert_eq!(found(&table, host, path), expected, "{host}{path}");
        }
    }

    #[test]
    fn nothing_that_matches_is_none() {
        let table = table(&["shop.example.com/api", "*.example.com/x/"]);
        for (host, path) in [
            ("shop.example.com", "/"),
            ("shop.example.com", ""),
            ("shop.example.com", "*"),
            ("shop.example.com", "/API"),
            ("shop.example.com", "/apis"),
            ("www.example.com", "/x"),
            ("other", "/api"),
        ] {
            assert_eq!(found(&table, host, path), "404", "{host}{path}");
        }
        assert_eq!(Table::new(Vec::new()).find("a", "/"), None);
    }

    #[test]
    fn hosts_are_compared_without_case_port_brackets_and_one_final_dot() {
        for (sent, expected, borrowed) in [
            ("shop.example.com", "shop.example.com", true),
            ("shop.example.com:8080", "shop.example.com", true),
            ("shop.example.com:", "shop.example.com", true),
            ("shop.example.com.", "shop.example.com", true),
            ("shop.example.com.:443", "shop.example.com", true),
            ("shop.example.com..", "shop.example.com.", true),
            ("Shop.EXAMPLE.com:80", "shop.example.com", false),
            ("10.0.0.1:80", "10.0.0.1", true),
            ("[::1]", "::1", true),
            ("[2001:DB8::1]:8443", "2001:db8::1", false),
            ("::1", "::1", true),
            ("[::1]x", "[::1]x", true),
            ("[::1", "[::1", true),
            ("shop.example.com:80x", "shop.example.com:80x", true),
            ("", "", true),
            (":80", "", true),
        ] {
            let normal = normal(sent);
            assert_eq!((&*normal, matches!(normal, Cow::Borrowed(_))), (expected, borrowed), "{sent}");
        }
        let table = table(&["[::1]/", "Straße.Example/a"]);
        assert_eq!(found(&table, "[::1]:9000", "/"), "[::1]/");
        assert_eq!(found(&table, "straße.example.:1", "/a/b"), "Straße.Example/a");
    }

    #[test]
    fn hosts_cover_others_that_are_all_among_them() {
        let exact = |host: &str| Host::Exact(host.to_owned());
        let wild = |suffix: &str| Host::Wildcard(suffix.to_owned());
        let rows = [
            (Host::Any, Host::Any, true),
            (Host::Any, wild("test"), true),
            (wild("test"), Host::Any, false),
            (exact("a.test"), Host::Any, false),
            (exact("a.test"), exact("a.test"), true),
            (exact("a.test"), exact("b.test"), false),
            (exact("a.test"), wild("a.test"), false),
            (wild("test"), exact("a.test"), true),
            (wild("a.test"), exact("a.test"), false),
            (wild("test"), wild("test"), true),
            (wild("test"), wild("a.test"), true),
            (wild("a.test"), wild("test"), false),
            (wild("a.test"), wild("ba.test"), false),
        ];
        for (these, others, expected) in rows {
            assert_eq!(these.covers(&others), expected, "{these:?} {others:?}");
        }
    }

    #[test]
    fn of_equal_routes_the_first_wins() {
        let mut routes = vec![route("a/x"), route("a/x"), route("a/")];
        routes[1].pools = vec![rank("second")];
        let table = Table::new(routes);
        assert_eq!(found(&table, "a", "/x"), "a/x");
        assert_eq!(table.routes().len(), 3);
    }

    /// What `find` means, said as plainly as possible.
    fn naive<'a>(routes: &'a [Route], host: &str, path: &str) -> Option<&'a Route> {
        let host_rank = |route: &Route| match &route.host {
            Host::Any => Some(0),
            Host::Exact(name) => (name == host).then_some(usize::MAX),
            Host::Wildcard(suffix) => {
                let label = host.strip_suffix(suffix.as_str())?.strip_suffix('.')?;
                (!label.is_empty()).then_some(suffix.len())
            }
        };
        let path_rank = |route: &Route| {
            let whole = path == route.path || path.starts_with(&format!("{}/", route.path));
            (whole || (route.path.ends_with('/') && path.starts_with(&route.path))).then_some(route.path.len())
        };
        let rank = |route: &&Route| Some((host_rank(route)?, path_rank(route)?));
        // `max_by_key` gives the last of equals, the table the first.
        routes.iter().rev().filter(|route| rank(route).is_some()).max_by_key(rank)
    }

    fn host() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "ab", ""]), 1..5).prop_map(|labels| labels.join("."))
    }

    fn path() -> impl Strategy<Value = String> {
        let segment = prop::sample::select(vec!["x", "y", "xy", "x-", "x0", ""]);
        prop::collection::vec(segment, 0..5).prop_map(|segments| format!("/{}", segments.join("/")))
    }

    fn any_route() -> impl Strategy<Value = Route> {
        let ends_in_dot = |host: &String| host.ends_with('.');
        let kind =
            |host: String| prop_oneof![Just(Host::Any), Just(Host::Exact(host.clone())), Just(Host::Wildcard(host))];
        let host = host().prop_filter("not in normal form", move |host| !ends_in_dot(host)).prop_flat_map(kind);
        (host, path()).prop_map(|(host, path)| Route { name: "".into(), host, path, pools: vec![], failback: None })
    }

    proptest! {
        #[test]
        fn the_table_finds_what_a_search_through_all_finds(
            routes in prop::collection::vec(any_route(), 0..40),
            requests in prop::collection::vec((host(), path()), 50),
        ) {
            let table = Table::new(routes.clone());
            for (host, path) in requests.iter().filter(|(host, _)| !host.ends_with('.')) {
                let expected = naive(&routes, host, path);
                let found = table.find(host, path);
                prop_assert_eq!(found, expected, "{} {}", host, path);
            }
        }
    }
}
