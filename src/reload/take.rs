//! A configuration into the running program: whole, or not at all.
//!
//! Everything that can be refused is tried first: meaning, files, probes, the log, sockets of new listeners. What follows
//! cannot fail: pools take their new shape with all they know, the generation is swapped in one store, the prober follows.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use super::{Before, Refused, Report};
use crate::config::{AdminListener, Config, Loaded, Places, Problem, Sink};
use crate::control::{self, Bound, Control, Floor, Prepared, SetupError};
use crate::disk;
use crate::listener::Listening;
use crate::snapshot::Snapshot;
use crate::telemetry::{AccessLog, Change};
use crate::tls::Files;

/// Has the program serve by `loaded`, whose files hold what `files` do, from here on, unless it does already.
///
/// # Errors
/// Why everything stays as it was.
pub(super) async fn take(control: &Control, floor: &Floor, loaded: Loaded, files: Files) -> Result<Report, Refused> {
    let places = loaded.places().clone();
    let Loaded { mut config, advice, .. } = loaded;
    let old = control.snapshot();
    let needs_restart = hold_till_restart(&old.config, &mut config);
    let config = Arc::new(config);
    control.desk().prepare(&config).await.map_err(Refused::Config)?;
    let found = control.desk().found(&config).await;
    // That may have taken seconds.
    if control.is_draining() {
        return Err(Refused::Ending);
    }
    let prepared = Prepared::new(&config, &places, found, files).map_err(Refused::Config)?;
    if control.is_in_force(&config, &prepared) {
        return Ok(Report { needs_restart, advice, ..Report::unchanged(&old) });
    }
    refuse_two_unprobed(&old, &config, &places, &prepared).map_err(Refused::Config)?;
    let open = floor.listening();
    let bound = bound(&config, &places, floor.threads(), &open)?;
    // Last: sockets that are not taken leave nothing behind, and a log would leave its file.
    let log = opened(control.log(), &config, &places).await?;
    // From here on nothing can be refused any more.
    for (listening, sockets) in bound {
        floor.open(listening, sockets);
    }
    let mut leaving = Vec::new();
    for listening in open {
        match config.listeners.iter().find(|l| listening.is(l)) {
            Some(kept) => listening.set(kept),
            None => leaving.push(listening),
        }
    }
    let before = Before::of(&old);
    let adopted = control.adopt(config, prepared);
    control.log().adopt(log);
    floor.close(&leaving).await;
    Ok(Report { needs_restart, advice, ..Report::of(&old, &before, &adopted) })
}

/// Front Door has no pool without probes in which two origins are enabled. The file alone has been looked at before; operators'
/// words that hold on were not.
fn refuse_two_unprobed(
    old: &Snapshot,
    config: &Config,
    places: &Places,
    prepared: &Prepared,
) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    for pool in config.pools.values().filter(|pool| pool.only_one_enabled) {
        let enabled = old.enabled_under(pool, prepared.found.of(&pool.name));
        if enabled.len() > 1 {
            let message = format!(
                "preset front_door needs probes: with what operators have said of members of pool {:?} {} would be enabled; \
                 disable or drain all but one first",
                pool.name,
                enabled.join(" and ")
            );
            problems.push(places.probe_error(&pool.name, message));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// The sockets of listeners that are not open yet: all of them.
fn bound(config: &Config, places: &Places, threads: usize, open: &[Arc<Listening>]) -> Result<Vec<Bound>, Refused> {
    let (mut bound, mut problems) = (Vec::new(), Vec::new());
    for wanted in &config.listeners {
        if open.iter().any(|listening| listening.is(wanted)) {
            continue;
        }
        match control::bind(slice::from_ref(wanted), threads) {
            Ok(one) => bound.extend(one),
            Err(error) => problems.push(places.listener_error(wanted.address, explained(&error, open))),
        }
    }
    if problems.is_empty() { Ok(bound) } else { Err(Refused::Config(problems)) }
}

/// The access log as `config` wants it, open.
async fn opened(log: &AccessLog, config: &Arc<Config>, places: &Places) -> Result<Change, Refused> {
    let (log, config) = (log.clone(), config.clone());
    let refused = |cause: &dyn std::fmt::Display| {
        Refused::Config(vec![places.access_log_error(format!("cannot open the access log: {cause}"))])
    };
    let path = match &config.access_log.sink {
        Sink::File(path) => path.clone(),
        Sink::Stdout | Sink::Off => PathBuf::new(),
    };
    let opened = disk::read(&path, move || log.prepare(&config.access_log)).await;
    opened.map_err(|unread| refused(&unread))?.map_err(|error| refused(&error))
}

/// An address in use may be in use by ourselves.
fn explained(error: &SetupError, open: &[Arc<Listening>]) -> String {
    let SetupError::Bind { address: wanted, cause } = error else { return error.to_string() };
    let in_the_way = open.iter().map(|listening| listening.address()).find(|open| overlap(*wanted, *open));
    match in_the_way {
        Some(open) if cause.kind() == ErrorKind::AddrInUse => format!(
            "cannot listen on {wanted} while {open} is open: new listeners open before old ones close; leave {open} out in one \
             reload and add {wanted} in the next, or restart"
        ),
        _ => error.to_string(),
    }
}

/// Whether the kernel would not have both: one is the other's port on all addresses. Families do not meet (`listener`).
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let one_is_all = one.ip().is_unspecified() || other.ip().is_unspecified();
    one_is_all && one.port() == other.port() && one.is_ipv4() == other.is_ipv4()
}

/// Leaves as they are the parts of `new` that only a start can change, and names them.
fn hold_till_restart(old: &Config, new: &mut Config) -> Vec<String> {
    let mut held = Vec::new();
    if old.admin.as_ref().map(|a| a.address) != new.admin.as_ref().map(|a| a.address) {
        held.push("admin.address".to_owned());
    }
    if old.threads != new.threads {
        held.push("threads".to_owned());
    }
    if old.state_dir != new.state_dir {
        held.push("state_dir".to_owned());
    }
    new.state_dir.clone_from(&old.state_dir);
    new.admin = in_force(old.admin.as_ref(), new.admin.as_ref());
    new.threads = old.threads;
    held
}

/// The admin section as it holds until a restart: the socket stays where it is, so the token that guards it there stays too
/// where the file has none, be it `off` or an address that needs none.
fn in_force(old: Option<&AdminListener>, new: Option<&AdminListener>) -> Option<AdminListener> {
    let AdminListener { address, token } = old?.clone();
    let token = match new {
        Some(new) if new.token.is_some() || address.ip().is_loopback() => new.token.clone(),
        _ => token,
    };
    Some(AdminListener { address, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_listener_keeps_its_place_and_is_never_opened() {
        const LOOPBACK: &str = "127.0.0.1:9900";
        const PUBLIC: &str = "0.0.0.0:9900";
        type Section = Option<(&'static str, Option<&'static str>)>;
        let rows: [(Section, Section, Section); 11] = [
            (Some((PUBLIC, Some("a"))), Some((PUBLIC, Some("b"))), Some((PUBLIC, Some("b")))),
            (Some((PUBLIC, Some("a"))), Some((LOOPBACK, Some("b"))), Some((PUBLIC, Some("b")))),
            (Some((PUBLIC, Some("a"))), Some((LOOPBACK, None)), Some((PUBLIC, Some("a")))),
            (Some((PUBLIC, Some("a"))), None, Some((PUBLIC, Some("a")))),
            (Some((LOOPBACK, None)), Some((LOOPBACK, Some("b"))), Some((LOOPBACK, Some("b")))),
            (Some((LOOPBACK, None)), Some((PUBLIC, Some("b"))), Some((LOOPBACK, Some("b")))),
            (Some((LOOPBACK, Some("a"))), Some((LOOPBACK, None)), Some((LOOPBACK, None))),
            (Some((LOOPBACK, Some("a"))), None, Some((LOOPBACK, Some("a")))),
            (Some((LOOPBACK, None)), None, Some((LOOPBACK, None))),
            (None, Some((PUBLIC, Some("b"))), None),
            (None, None, None),
        ];
        let admin = |section: Section| {
            section.map(|(address, token)| AdminListener {
                address: address.parse().expect("an address"),
                token: token.map(str::to_owned),
            })
        };
        for (old, new, expected) in rows {
            assert_eq!(in_force(admin(old).as_ref(), admin(new).as_ref()), admin(expected), "{old:?} {new:?}");
        }
    }

    #[test]
    fn all_addresses_overlap_with_each_of_their_family() {
        for (one, other, expected) in [
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "10.0.0.1:80", true),
            ("0.0.0.0:80", "10.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("[::]:80", "[::1]:80", true),
            ("[::]:80", "127.0.0.1:80", false),
        ] {
            let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
            assert_eq!(overlap(address(one), address(other)), expected, "{one} {other}");
        }
    }
}
