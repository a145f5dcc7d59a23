//! How names are resolved.

use std::collections::HashSet;
use std::time::Duration;

use super::address::NameServer;
use super::domain::Resolver;
use super::file::ResolverKeys;
use super::reading::{DAY, Reading};
use super::spelling::{Spelled, spell_duration};

/// Names are not asked for more often than this, whatever is written.
const OFTEN: Duration = Duration::from_millis(100);
/// More servers than anybody has; each may take its part of a question's time.
const MAX_SERVERS: usize = 8;

/// The top-level key `resolver`.
pub(super) fn resolver(keys: Option<&ResolverKeys>, top: &mut Reading<'_>) -> Resolver {
    let base = Resolver::default();
    let Some(keys) = keys else { return base };
    let mut read = top.under("resolver");
    let timeout = read.span("timeout", &keys.timeout, OFTEN..=Duration::from_secs(60));
    let min_refresh = read.span("min_refresh", &keys.min_refresh, OFTEN..=DAY);
    let max_refresh = read.span("max_refresh", &keys.max_refresh, OFTEN..=DAY);
    let grace = read.span("grace", &keys.grace, Duration::ZERO..=DAY);
    let servers = servers(keys.servers.as_deref(), &mut read);
    let least = min_refresh.unwrap_or(base.min_refresh);
    if let Some(most) = max_refresh
        && most < least
    {
        let least = spell_duration(least);
        read.error("max_refresh", format!("`max_refresh` is under `min_refresh`; write at least `{least}`"));
    }
    Resolver {
        servers,
        timeout: timeout.unwrap_or(base.timeout),
        min_refresh: least,
        max_refresh: max_refresh.unwrap_or(base.max_refresh).max(least),
        grace: grace.unwrap_or(base.grace),
    }
}

fn servers(written: Option<&[Spelled<NameServer>]>, read: &mut Reading<'_>) -> Vec<std::net::SocketAddr> {
    let Some(list) = written else { return Vec::new() };
    let at = read.at.key("servers");
    if list.is_empty() && !at.damaged() {
        read.error("servers", "no server is named; remove the key to ask those of /etc/resolv.conf");
    }
    if list.len() > MAX_SERVERS {
        read.error("servers", format!("{} servers are too many; write at most {MAX_SERVERS}", list.len()));
    }
    let mut seen = HashSet::new();
    for (index, Spelled(NameServer(server))) in list.iter().enumerate() {
        if !seen.insert(*server) {
            read.problems.error(at.item(index), format!("{server} is listed twice"));
        }
    }
    list.iter().map(|Spelled(NameServer(server))| *server).collect()
}
