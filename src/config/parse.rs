//! From what was written to what is meant: the top of the file and its listeners.
//!
//! Everything is read to the end whatever is wrong, with defaults standing in, so that all problems are reported at once.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::access_log::access_log;
use super::alert::alerts;
use super::composite::{apart, composites};
use super::diagnostics::diagnostics;
use super::domain::{AdminListener, Config, Limits, Listener, Pool, Reload};
use super::file::{AdminKeys, File, ListenerKeys, ReloadKeys};
use super::places::At;
use super::pool::pool;
use super::problem::Problems;
use super::reading::{DAY, Reading, TICK};
use super::remediation::{max_global, state_dir};
use super::resolver::resolver;
use super::route::{Known, routes};
use super::spelling::{Spelled, Text, Written, shown};
use super::words::{Off, Or};

/// Port of the admin listener where none is written.
const ADMIN_PORT: u16 = 9900;

/// The meaning of `file`, whose root is at `at`. Of use only if no error was noted.
pub(super) fn config(file: &File, at: At<'_>, problems: &mut Problems) -> Config {
    let mut top = Reading::new(at, problems);
    if let Some(Spelled(version)) = file.version
        && version != 1
    {
        top.error("version", format!("version {version} is not known; this is version 1"));
    }
    let max_concurrent_probes = top.count("max_concurrent_probes", &file.max_concurrent_probes, 1..=1_000_000);
    let max_probes_per_second = top.count("max_probes_per_second", &file.max_probes_per_second, 1..=1_000_000);
    let resolver = resolver(file.resolver.as_ref(), &mut top);
    let reload = reload(file.reload.as_ref(), &mut top);
    let diagnostics = diagnostics(file.diagnostics.as_ref(), &mut top);
    let state_dir = top.text("state_dir", &file.state_dir, state_dir);
    let max_global = max_global(file.remediation.as_ref(), &mut top);
    let threads = top.count("threads", &file.threads, 1..=1024);
    let lame_duck = top.span("lame_duck", &file.lame_duck, Duration::ZERO..=DAY);
    let drain_timeout = top.span("drain_timeout", &file.drain_timeout, Duration::ZERO..=DAY);
    let listeners = listeners(file.listeners.as_deref(), &mut top);
    let admin = admin(file.admin.as_ref(), &listeners, &mut top);
    let access_log = access_log(file.access_log.as_ref(), &mut top);
    let trusted_proxies = trusted_proxies(file.trusted_proxies.as_deref(), &mut top);
    let pools = pools(file, resolver.grace, &mut top);
    let written = composites(file.composites.as_ref(), &pools, &listeners, &mut top);
    let (composites, tried_composites) = apart(written, &mut top);
    let alerts = alerts(file.alerts.as_deref(), &pools, &mut top);
    let names: Vec<&str> = file.composites.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
    let observing: Vec<&str> = tried_composites.iter().filter(|one| one.only_observes).map(|one| &*one.name).collect();
    let known = Known { pools: &pools, composites: &names, observing: &observing, top: at };
    let routes = routes(file.routes.as_deref(), known, &mut top);
    Config {
        listeners,
        admin,
        access_log,
        trusted_proxies,
        lame_duck: lame_duck.unwrap_or(Duration::from_secs(5)),
        drain_timeout: drain_timeout.unwrap_or(Duration::from_secs(30)),
        pools,
        composites,
        tried_composites,
        routes,
        max_concurrent_probes: max_concurrent_probes.unwrap_or(8192),
        max_probes_per_second,
        diagnostics,
        threads,
        resolver,
        reload,
        state_dir,
        max_global,
        alerts,
    }
}

fn reload(keys: Option<&ReloadKeys>, top: &mut Reading<'_>) -> Reload {
    let base = Reload::default();
    let Some(keys) = keys else { return base };
    let mut read = top.under("reload");
    let every = read.span("every", &keys.every, Duration::from_secs(1)..=Duration::from_secs(3600));
    let watch = keys.watch.map_or(base.watch, |Spelled(watch)| watch);
    Reload { watch, every: every.unwrap_or(base.every) }
}

fn listeners(written: Option<&[ListenerKeys]>, top: &mut Reading<'_>) -> Vec<Listener> {
    let list = written.unwrap_or_default();
    if list.is_empty() && !top.at.key("listeners").damaged() {
        top.missing("listeners", "no listener; write `listeners: [{ address: \"0.0.0.0:8080\" }]`");
    }
    let mut read: Vec<Listener> = Vec::new();
    for (index, keys) in list.iter().enumerate() {
        let at = top.at.key("listeners").item(index);
        let Some(listener) = listener(keys, Reading::new(at, top.problems)) else { continue };
        if listener.address.port() != 0 && read.iter().any(|l| l.address == listener.address) {
            top.problems.error(at.key("address"), format!("{} is listened on twice", listener.address));
        } else if read.iter().any(|l| l.name == listener.name && l.address.port() != 0) {
            top.problems.error(at.key("name"), format!("two listeners are called \"{}\"", listener.name));
        }
        read.push(listener);
    }
    read
}

fn listener(keys: &ListenerKeys, mut read: Reading<'_>) -> Option<Listener> {
    let limits = limits(keys, &mut read);
    let name = read.text("name", &keys.name, |name| {
        let fits = !name.is_empty() && name.len() <= 100 && !name.chars().any(char::is_control);
        if fits { Ok(name.to_owned()) } else { Err("a listener's name has 1 to 100 printable characters".to_owned()) }
    });
    let Some(Spelled(address)) = keys.address else {
        read.missing("address", "a listener needs an address, such as `{ address: \"0.0.0.0:8080\" }`");
        return None;
    };
    Some(Listener { address, name: name.unwrap_or_else(|| address.to_string()), limits })
}

fn limits(keys: &ListenerKeys, read: &mut Reading<'_>) -> Limits {
    let base = Limits::default();
    let max_header_bytes =
        read.bytes("max_header_bytes", &keys.max_header_bytes, 1024..=1 << 20).unwrap_or(base.max_header_bytes);
    let max_uri_bytes = read.bytes("max_uri_bytes", &keys.max_uri_bytes, 64..=1 << 20);
    if max_uri_bytes.is_some_and(|uri| uri > max_header_bytes) {
        read.error("max_uri_bytes", "`max_uri_bytes` is more than `max_header_bytes`, of which the target is a part");
    }
    Limits {
        max_connections: read
            .count("max_connections", &keys.max_connections, 1..=10_000_000)
            .unwrap_or(base.max_connections),
        header_timeout: read.span("header_timeout", &keys.header_timeout, TICK..=DAY).unwrap_or(base.header_timeout),
        keepalive_timeout: read
            .span("keepalive_timeout", &keys.keepalive_timeout, TICK..=DAY)
            .unwrap_or(base.keepalive_timeout),
        keepalive_requests: read
            .count("keepalive_requests", &keys.keepalive_requests, 1..=u32::MAX)
            .unwrap_or(base.keepalive_requests),
        body_timeout: read.span("body_timeout", &keys.body_timeout, TICK..=DAY).unwrap_or(base.body_timeout),
        write_timeout: read.span("write_timeout", &keys.write_timeout, TICK..=DAY).unwrap_or(base.write_timeout),
        max_header_bytes,
        max_header_fields: read
            .count("max_header_fields", &keys.max_header_fields, 1..=256)
            .unwrap_or(base.max_header_fields),
        max_uri_bytes: max_uri_bytes.unwrap_or(base.max_uri_bytes.min(max_header_bytes)),
    }
}

fn admin(written: Option<&Or<Off, AdminKeys>>, listeners: &[Listener], top: &mut Reading<'_>) -> Option<AdminListener> {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT));
    let keys = match written {
        Some(Or::Word(_)) => return None,
        Some(Or::Keys(keys)) => Some(keys),
        None => None,
    };
    let address = keys.and_then(|k| k.address).map_or(default, |Spelled(address)| address);
    let mut read = top.under("admin");
    let written = keys.and_then(|k| k.token.as_ref());
    let token =
        written.and_then(|Spelled(written)| token(written.text()).map_err(|message| read.error("token", message)).ok());
    let token_was_written = keys.is_some_and(|k| k.token.is_some()) || read.at.lost("token");
    if !address.ip().is_loopback() && !token_was_written {
        let place = read.at.key("address");
        read.problems.error(
            place,
            format!(
                "the admin address {address} is not loopback; write a `token` beside it, or `127.0.0.1:{ADMIN_PORT}`"
            ),
        );
    }
    if address.port() != 0 && listeners.iter().any(|l| l.address == address) {
        let place = read.at.key("address");
        read.problems.error(place, format!("{address} is both a listener and the admin listener; choose another port"));
    }
    Some(AdminListener { address, token })
}

/// The token is sent as `Authorization: Bearer`, so it is made of what can stand there.
fn token(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the token is empty".to_owned());
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("the token holds a character that cannot be sent; use letters, digits and ASCII signs".to_owned());
    }
    Ok(text.to_owned())
}

fn trusted_proxies(written: Option<&[Spelled<IpNet>]>, top: &mut Reading<'_>) -> Vec<IpNet> {
    let list = written.unwrap_or_default();
    for (index, Spelled(range)) in list.iter().enumerate() {
        let at = top.at.key("trusted_proxies").item(index);
        if range.prefix_len() == 0 {
            top.problems.warn(at, format!("{range} trusts every client to say who it is"));
        } else if *range != range.trunc() {
            top.problems.warn(at, format!("{range} means all of {}; write that, or the address alone", range.trunc()));
        }
    }
    list.iter().map(|Spelled(range)| range.trunc()).collect()
}

fn pools(file: &File, memory: Duration, top: &mut Reading<'_>) -> BTreeMap<String, Arc<Pool>> {
    let empty = BTreeMap::new();
    let written = file.pools.as_ref().unwrap_or(&empty);
    if written.is_empty() && !top.at.key("pools").damaged() {
        top.missing("pools", "no pool; write `pools: { web: { members: [\"10.0.0.1:8080\"] } }`");
    }
    let mut pools = BTreeMap::new();
    for (name, keys) in written {
        let at = top.at.key("pools").key(name);
        if let Err(message) = fit_name(name, "a pool") {
            top.problems.error_at(at.name(), message);
        }
        pools.insert(name.clone(), Arc::new(pool(name, keys, memory, Reading::new(at, top.problems))));
    }
    pools
}

/// Names of pools and composites stand in URLs, logs and metrics; `what` has one of these.
pub(super) fn fit_name(name: &str, what: &str) -> Result<(), String> {
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if fits && !name.is_empty() && name.len() <= 100 && name != "." && name != ".." {
        return Ok(());
    }
    let shown = shown(name);
    Err(format!("\"{shown}\" cannot be {what}'s name; use 1 to 100 letters, digits, `-`, `_` and `.`"))
}

/// A text that is not empty.
pub(super) fn filled(written: &Written<Text>) -> Option<&str> {
    written.as_ref().map(|Spelled(Text(text))| text.as_str())
}
