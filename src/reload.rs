//! A new configuration into the running program: whole, or not at all.
//!
//! Everything that can be refused is tried first: reading, meaning, probes, sockets of new listeners. What follows cannot
//! fail: pools take their new shape with all they know, the generation is swapped in one store, the prober follows.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::{self, AdminListener, Config, Places, Problem, Severity};
use crate::control::{self, Bound, Control, Floor, Prepared, SetupError};
use crate::listener::Listening;
use crate::snapshot::Snapshot;
use crate::telemetry::{AccessLog, Change, HEALTH};

const REFUSED: &str = "reload refused; everything stays as it was";

/// A reload that was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The file has errors.
    #[error("the configuration has errors")]
    Config(Vec<Problem>),
    /// The system does not do what it takes.
    #[error(transparent)]
    Start(#[from] SetupError),
    /// The process is about to end.
    #[error("the process is ending")]
    Ending,
}

/// Reads the file again and takes it, and logs what came of it.
///
/// # Errors
/// Why everything stays as it was.
pub async fn reload(control: &Control, floor: &Floor) -> Result<Arc<Snapshot>, Refused> {
    // One at a time: the second sees what the first has done.
    let _turn = control.turn_to_reload().await;
    let taken = take(control, floor).await;
    control.reloads().count(&taken);
    // What a refused file wanted to know is not asked for any more.
    control.desk().follow(&control.snapshot().config);
    match &taken {
        Ok(snapshot) => {
            let (to, pools) = (snapshot.generation, snapshot.pools.len());
            tracing::info!(target: HEALTH, kind = "reload", from = to - 1, to, pools, observed = false, "reloaded");
        }
        Err(Refused::Config(problems)) => {
            let errors = problems.iter().filter(|p| p.severity == Severity::Error);
            let count = errors.clone().count();
            errors.for_each(|problem| tracing::error!(target: "config", "{problem}"));
            tracing::error!(target: HEALTH, kind = "reload", errors = count, "{REFUSED}");
        }
        // The reason is in the words too: a terminal shows nothing else of these lines.
        Err(refused) => tracing::error!(target: HEALTH, kind = "reload", reason = %refused, "{REFUSED}: {refused}"),
    }
    taken
}

async fn take(control: &Control, floor: &Floor) -> Result<Arc<Snapshot>, Refused> {
    if control.is_draining() {
        return Err(Refused::Ending);
    }
    let path = control.path().to_owned();
    // Reading may take long, and thousands of members take their time: not on the runtime that answers operators.
    let reading = tokio::task::spawn_blocking(move || config::load(&path, &config::environment));
    let loaded = reading.await.map_err(|e| SetupError::System(e.into()))?.map_err(Refused::Config)?;
    let places = loaded.places().clone();
    let (mut config, old) = (loaded.config, control.snapshot());
    let restart = needs_restart(&old.config, &config);
    config.admin = in_force(old.config.admin.as_ref(), config.admin.as_ref());
    let config = Arc::new(config);
    control.desk().prepare(&config).await.map_err(Refused::Config)?;
    let found = control.desk().found(&config).await;
    // That may have taken seconds.
    if control.is_draining() {
        return Err(Refused::Ending);
    }
    let prepared = Prepared::new(&config, &places, found).map_err(Refused::Config)?;
    let open = floor.listening();
    let bound = bound(&config, &open, floor.threads(), &places)?;
    let log = opened(control.log(), &config, &places).await?;
    // From here on nothing can be refused any more.
    for advice in &loaded.advice {
        tracing::warn!(target: "config", "{advice}");
    }
    for what in restart {
        tracing::warn!(target: "reload", "{what} changes only with a restart");
    }
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
    let adopted = control.adopt(config, prepared);
    control.log().adopt(log);
    floor.close(&leaving).await;
    Ok(adopted)
}

/// The access log as `config` wants it, open.
async fn opened(log: &AccessLog, config: &Arc<Config>, places: &Places) -> Result<Change, Refused> {
    let (log, config) = (log.clone(), config.clone());
    // A disk may keep us waiting.
    let opening = tokio::task::spawn_blocking(move || log.prepare(&config.access_log));
    let opened = opening.await.map_err(|e| SetupError::System(e.into()))?;
    opened.map_err(|e| Refused::Config(vec![places.access_log_error(format!("cannot open the access log: {e}"))]))
}

/// The sockets of listeners that are not `open` yet, or every one that cannot be had.
fn bound(config: &Config, open: &[Arc<Listening>], threads: usize, places: &Places) -> Result<Vec<Bound>, Refused> {
    let (mut bound, mut problems) = (Vec::new(), Vec::new());
    for new in config.listeners.iter().filter(|listener| find(open, listener).is_none()) {
        match control::bind(std::slice::from_ref(new), threads) {
            Ok(sockets) => bound.extend(sockets),
            Err(error) => problems.push(places.listener_error(new.address, explained(&error, open))),
        }
    }
    if problems.is_empty() { Ok(bound) } else { Err(Refused::Config(problems)) }
}

/// An address in use may be in use by ourselves.
fn explained(error: &SetupError, open: &[Arc<Listening>]) -> String {
    let in_the_way = |wanted| open.iter().map(|listening| listening.address()).find(|open| overlap(wanted, *open));
    match error {
        SetupError::Bind { address: wanted, cause } if cause.kind() == ErrorKind::AddrInUse => {
            match in_the_way(*wanted) {
                Some(open) => format!(
                    "cannot listen on {wanted} while {open} is open: new listeners open before old ones close; leave {open} out in \
                 one reload and add {wanted} in the next, or restart"
                ),
                None => error.to_string(),
            }
        }
        _ => error.to_string(),
    }
}

/// Whether the kernel would not have both: one is the other's port on all addresses. Families do not meet (`listener`).
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let one_is_all = one.ip().is_unspecified() || other.ip().is_unspecified();
    one_is_all && one.port() == other.port() && one.is_ipv4() == other.is_ipv4()
}

fn find<'a>(open: &'a [Arc<Listening>], wanted: &config::Listener) -> Option<&'a Arc<Listening>> {
    open.iter().find(|listening| listening.is(wanted))
}

fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let mut what = Vec::new();
    if old.admin.as_ref().map(|a| a.address) != new.admin.as_ref().map(|a| a.address) {
        what.push("admin.address");
    }
    if old.threads != new.threads {
        what.push("threads");
    }
    what
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
