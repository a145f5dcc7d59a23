//! What of a `sticky` can be used as it is, and is probably not what its author wants.

use crate::config::advice::weak_secret;
use crate::config::domain::{Config, Pool};
use crate::config::places::At;
use crate::config::problem::Problems;
use crate::route::{Host, Route};

/// Clients that are bound anew more often than their author thinks, or by whoever can find the secret out.
pub(in crate::config) fn advise(pool: &Pool, config: &Config, at: At<'_>, problems: &mut Problems) {
    let Some(sticky) = &pool.sticky else { return };
    let name = &pool.name;
    if sticky.secret.is_none() {
        let message = format!(
            "pool \"{name}\": without a `secret` cookies are signed with one that is made at each start: a restart binds clients \
             anew, and of several instances each takes the others' cookies for none; write `secret: \"${{STICKY_SECRET}}\"`"
        );
        problems.warn(at, message);
    }
    for (key, secret) in [("secret", &sticky.secret), ("previous_secret", &sticky.previous)] {
        if let Some(secret) = secret {
            weak_secret(secret, "whoever has a cookie", at.key(key), problems);
        }
    }
    if sticky.secret.is_some() && sticky.secret == sticky.previous {
        let key = if at.key("previous_secret").exists() { "previous_secret" } else { "previous_secret_file" };
        problems.warn(at.key(key), format!("both secrets are the same; remove `{key}`"));
    }
    let routes = config.routes.iter().filter(|route| route.pools.iter().any(|rank| *rank.pool == *name));
    for route in routes.filter(|route| !paths_meet(&sticky.path, &route.path)) {
        let message = format!(
            "pool \"{name}\": a cookie for `{}` never comes with requests for {}; write `path: {}`, or none",
            sticky.path, route.name, route.path
        );
        problems.warn(at.key("path"), message);
    }
    if let Some(other) =
        config.pools.values().take_while(|other| other.name != *name).find(|other| rivals(pool, other, config))
    {
        let message = format!(
            "pools \"{}\" and \"{name}\" have the same cookie `{}`, and a client that has one loses the other; give each its own",
            other.name, sticky.cookie
        );
        problems.warn(if at.key("cookie").exists() { at.key("cookie") } else { at }, message);
    }
}

/// Whether a request for some path under `route` carries a cookie for `cookie` (RFC 6265 section 5.1.4).
fn paths_meet(cookie: &str, route: &str) -> bool {
    let under = route
        .strip_prefix(cookie)
        .is_some_and(|rest| cookie.ends_with('/') || rest.is_empty() || rest.starts_with('/'));
    under || cookie.starts_with(route)
}

/// Whether both pools set a cookie of the same name for some host: the later one replaces the other.
fn rivals(pool: &Pool, other: &Pool, config: &Config) -> bool {
    let (Some(one), Some(two)) = (&pool.sticky, &other.sticky) else { return false };
    let hosts = |pool: &Pool| -> Vec<&Host> {
        let leads = |route: &&Route| route.pools.iter().any(|rank| *rank.pool == *pool.name);
        config.routes.iter().filter(leads).map(|route| &route.host).collect()
    };
    let (mine, theirs) = (hosts(pool), hosts(other));
    one.cookie == two.cookie
        && one.path == two.path
        && mine.iter().any(|one| theirs.iter().any(|two| hosts_meet(one, two)))
}

fn hosts_meet(one: &Host, two: &Host) -> bool {
    match (one, two) {
        (Host::Any, _) | (_, Host::Any) => true,
        (Host::Exact(one), Host::Exact(two)) => one == two,
        (Host::Wildcard(suffix), Host::Exact(host)) | (Host::Exact(host), Host::Wildcard(suffix)) => {
            is_below(host, suffix)
        }
        (Host::Wildcard(one), Host::Wildcard(two)) => one == two || is_below(one, two) || is_below(two, one),
    }
}

fn is_below(host: &str, suffix: &str) -> bool {
    host.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_comes_back_only_under_its_path() {
        let rows = [
            ("/", "/shop", true),
            ("/shop", "/shop", true),
            ("/shop", "/shop/", true),
            ("/shop/", "/shop/x", true),
            ("/shop/cart", "/shop", true),
            ("/shop", "/shopping", false),
            ("/admin", "/shop", false),
        ];
        for (cookie, route, expected) in rows {
            assert_eq!(paths_meet(cookie, route), expected, "{cookie} {route}");
        }
    }

    #[test]
    fn hosts_meet_where_some_host_is_of_both() {
        let (any, exact, wild) = (Host::Any, |h: &str| Host::Exact(h.into()), |h: &str| Host::Wildcard(h.into()));
        let rows = [
            (any, exact("a.test"), true),
            (exact("a.test"), exact("a.test"), true),
            (exact("a.test"), exact("b.test"), false),
            (wild("test"), exact("a.test"), true),
            (wild("a.test"), exact("a.test"), false),
            (wild("a.test"), exact("ba.test"), false),
            (wild("a.test"), wild("test"), true),
            (wild("a.test"), wild("b.test"), false),
            (wild("a.test"), wild("ba.test"), false),
        ];
        for (one, two, expected) in rows {
            assert_eq!((hosts_meet(&one, &two), hosts_meet(&two, &one)), (expected, expected), "{one:?} {two:?}");
        }
    }
}
