//! The program while it runs: everything is read, resolved and bound before anything is served, and it ends when the
//! last request has.
//!
//! This file reads as a table of contents: read, resolve, prepare, bind; then nothing can be refused any more; serve
//! until a signal ends it.

pub mod descriptors;
mod signals;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::alert::Alerter;
use crate::carry::{self, Carrier};
use crate::composite::Composites;
use crate::config::{Limits, Listener, Loaded};
use crate::control::{self, Control, Floor, Parts, Prepared, Reloads, SetupError};
use crate::discovery::Desk;
use crate::failover::Switchboard;
use crate::health::State;
use crate::listener::{LastCall, Lobby, Traffic};
use crate::pool::Audience;
use crate::probe::{Allowance, Counters};
use crate::proxy::{Engine, Proxy};
use crate::reload::{self, Reloader, Seen};
use crate::remediate::{Remediator, Store};
use crate::snapshot::Snapshot;
use crate::state_dir::StateDir;
use crate::telemetry::{AccessLog, EventLog, Logging};
use crate::{admin, clock, config, tls};

/// How long the last log lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Serves by the file at `path` until a signal ends it, or `limit` does; `logging` tells what it lost in the end.
///
/// # Errors
/// Whatever keeps it from serving; once it serves it ends in order.
pub fn run(path: PathBuf, limit: Option<Duration>, logging: &Logging) -> Result<(), SetupError> {
    let loaded = config::load(&path, &config::environment).map_err(SetupError::Config)?;
    for advice in &loaded.advice {
        tracing::warn!(target: "config", "{advice}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("control").enable_all().build()?;
    let Some(log) = to_the_end(runtime, serve(path, loaded, limit, logging.clone()))? else {
        tracing::info!(target: "server", own_lines_lost = logging.dropped(), "ended before it served");
        return Ok(());
    };
    tracing::info!(
        target: "server", log_lines_lost = log.dropped(), log_lines_filtered = log.filtered(),
        own_lines_lost = logging.dropped(), "ended"
    );
    Ok(())
}

/// Runs to the end of `main` and waits for nothing else: a look-up of a name that was given up goes on in its thread for as
/// long as the resolver likes, and dropping a runtime would wait for it.
fn to_the_end<T>(runtime: Runtime, main: impl Future<Output = T>) -> T {
    let end = runtime.block_on(main);
    runtime.shutdown_background();
    end
}

/// Serves to the end; nothing where a signal ended it before it had begun.
async fn serve(
    path: PathBuf,
    loaded: Loaded,
    limit: Option<Duration>,
    logging: Logging,
) -> Result<Option<AccessLog>, SetupError> {
    let mut ears = signals::Ears::new()?;
    let descriptors = descriptors::raise_limit();
    let (places, digest) = (loaded.places().clone(), loaded.digest);
    // A disk may take its time, and the end may come meanwhile.
    let named = loaded.config.named_files().into_iter().map(Path::to_owned).collect();
    let files = tokio::select! {
        files = tls::Files::at(named) => files,
        () = ears.end() => return Ok(None),
    };
    let seen = Seen::at_start(&loaded, &files);
    let config = Arc::new(loaded.config);
    let desk = Desk::new(&config);
    let asking = async {
        desk.prepare(&config).await?;
        Ok(desk.found(&config).await)
    };
    // Names may take as long as their resolver does.
    let found = tokio::select! {
        found = asking => found.map_err(SetupError::Config)?,
        () = ears.end() => return Ok(None),
    };
    let prepared = Prepared::new(&config, &places, found, files).map_err(SetupError::Config)?;
    tls::try_system().map_err(SetupError::Authorities)?;
    let threads = control::threads(config.threads);
    let sockets = control::bind(&config.listeners, threads)?;
    let admin = match &config.admin {
        Some(admin) => Some(admin::bind(admin.address)?),
        None => None,
    };
    let state = config.state_dir.as_deref().map(StateDir::open).transpose()?.map(Arc::new);
    let wanted = config.clone();
    let opening = tokio::task::spawn_blocking(move || AccessLog::start(&wanted.access_log));
    let log = tokio::select! {
        log = opening => log.map_err(std::io::Error::other)?.map_err(SetupError::Log)?,
        () = ears.end() => return Ok(None),
    };
    tell_of_room(&config.listeners, descriptors::room(descriptors, 0), descriptors);
    // From here on nothing can be refused any more.
    let events = Arc::new(EventLog::default());
    let composites = Arc::new(Composites::new(events.clone()));
    let known = composites.clone();
    let switchboard = Arc::new(Switchboard::new(move |name| known.state(name).unwrap_or(State::Unknown)));
    // Routes go by composites, and are told after them.
    let audience = Arc::new(Audience { events, onlookers: vec![composites.clone(), switchboard.clone()] });
    let Prepared { found, outfits, .. } = &prepared;
    let now = clock::monotonic();
    let first = Snapshot::next(None, now, config.clone(), found, outfits, &audience);
    let left = state.as_ref().map(|dir| carry::left(dir, &config)).unwrap_or_default();
    carry::resume(&first, left.pools);
    first.look_again(now, &composites);
    let snapshot = Arc::new(ArcSwap::from_pointee(first));
    let carrier = state.clone().map(|dir| Carrier::new(dir, left.age, snapshot.clone(), audience.events.clone()));
    let remediator = Remediator::new(snapshot.clone(), audience.events.clone(), Store::new(state));
    let known = remediator.clone();
    let due = Box::new(move || known.due());
    let alerter = Alerter::new(snapshot.clone(), composites.clone(), audience.events.clone(), due);
    let (ending, is_ending) = watch::channel(false);
    let traffic = Arc::new(Traffic::default());
    let proxy = Proxy {
        snapshot: snapshot.clone(),
        composites: composites.clone(),
        log: log.clone(),
        traffic: traffic.clone(),
        ending: is_ending.clone(),
    };
    let (room, allowance) = shares(descriptors, &traffic);
    let lobby = || Lobby {
        app: Arc::new(Engine::new(proxy.clone())),
        ending: is_ending.clone(),
        last_call: Arc::new(LastCall::default()),
        log: log.clone(),
        traffic: traffic.clone(),
        room: room.clone(),
    };
    let floor = Arc::new(Floor::start(threads, lobby)?);
    let control = Arc::new(Control::start(Parts {
        path,
        snapshot,
        audience,
        composites,
        switchboard,
        prepared,
        desk,
        ending,
        log: log.clone(),
        logging,
        traffic: traffic.clone(),
        reloads: Reloads::new(clock::monotonic(), digest),
        remediator: remediator.clone(),
        alerter: alerter.clone(),
        carrier: carrier.clone(),
        allowance,
    })?);
    let reloader = Arc::new(Reloader::new(control.clone(), floor.clone(), seen));
    let keeping_up = control::keep_up(&control);
    for (listening, sockets) in sockets {
        floor.open(listening, sockets);
    }
    if let Some(admin) = admin {
        admin::serve(admin, control.clone(), reloader.clone());
    }
    let following = reload::follow(&reloader);
    let replacing = remediator.follow();
    let telling = alerter.follow();
    let carrying = carrier.as_ref().map(Carrier::follow);
    tracing::info!(target: "server", version = env!("CARGO_PKG_VERSION"), threads, descriptors, "serving");
    signals::until_the_end(ears, limit, &control, &floor, &reloader).await;
    following.abort();
    replacing.abort();
    telling.abort();
    carrying.iter().for_each(tokio::task::AbortHandle::abort);
    // At the same time: each has a moment, and no more.
    let carried = async {
        if let Some(carrier) = &carrier {
            carrier.close().await;
        }
    };
    tokio::join!(remediator.close(), alerter.close(), carried);
    keeping_up.abort();
    control.stop();
    floor.stop();
    log.close(LAST_LINES);
    Ok(Some(log))
}

/// How many clients there is room for, which the descriptors of probes lessen, and what probes may have.
fn shares(descriptors: u64, traffic: &Arc<Traffic>) -> (Arc<dyn Fn() -> usize + Send + Sync>, Allowance) {
    let counters = Arc::<Counters>::default();
    let taken = counters.clone();
    let room = Arc::new(move || descriptors::room(descriptors, taken.descriptors()));
    let (clients, left) = (traffic.clone(), room.clone());
    let allowance = Allowance {
        in_flight: descriptors::probes_in_flight(descriptors),
        kept: descriptors::kept_by_probes(descriptors),
        is_enough: Arc::new(move || clients.connections() <= left()),
        counters,
    };
    (room, allowance)
}

/// Warns where descriptors leave less room for clients than somebody wrote, or little where nobody wrote anything.
fn tell_of_room(listeners: &[Listener], room: usize, descriptors: u64) {
    // The default is as much as comes, and no wish of anybody's.
    let written = |listener: &&Listener| listener.limits.max_connections != Limits::default().max_connections;
    let mut wide = listeners.iter().filter(written).filter(|listener| listener.limits.max_connections > room);
    if let Some(wide) = wide.next() {
        let (listener, wanted) = (&wide.name, wide.limits.max_connections);
        tracing::warn!(target: "server", listener, wanted, room, descriptors, "the limit on descriptors leaves less room");
    } else if descriptors::is_little(room) && !listeners.iter().all(|listener| written(&listener)) {
        tracing::warn!(
            target: "server", room, descriptors,
            "the limit on descriptors leaves room for {room} clients at once; raise it (`ulimit -Hn`, `LimitNOFILE=`)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start that was refused, or an end, hung for as long as the resolver did.
    #[test]
    fn a_look_up_that_was_given_up_does_not_delay_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (resolver, answer) = std::sync::mpsc::channel::<()>();
        let end = to_the_end(runtime, async move {
            drop(tokio::task::spawn_blocking(move || answer.recv_timeout(Duration::from_secs(20))));
            "refused"
        });
        assert_eq!(end, "refused");
        assert!(resolver.send(()).is_ok(), "the look-up was waited for");
    }
}
