//! The program while it runs: everything is read, resolved and bound before anything is served, and it ends when the
//! last request has.
//!
//! This file reads as a table of contents; the chapters: `floor` (threads and listeners), `control` (what admin API
//! and signals may do), `signals`.

mod control;
mod floor;
mod prepare;
mod signals;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

pub use control::Control;
pub use floor::{Floor, bind};
pub use prepare::Prepared;

use crate::config::{AccessLog as LogTo, Config, Problem};
use crate::listener::{Lobby, Traffic};
use crate::proxy::{self, Proxy};
use crate::snapshot::Snapshot;
use crate::telemetry::{AccessLog, EventLog, Sink};
use crate::{admin, clock, config, discovery};
use control::Parts;

/// How long the last log lines may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file has errors; they have been printed.
    #[error("{} {} in the configuration; nothing was started", .0.len(), if .0.len() == 1 { "error" } else { "errors" })]
    Config(Vec<Problem>),
    /// A listening address cannot be had.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// As configured.
        address: SocketAddr,
        /// What the kernel says.
        cause: io::Error,
    },
    /// The access log cannot be opened; the cause names the file.
    #[error("cannot open the access log: {0}")]
    Log(io::Error),
    /// Threads or their reactors cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Serves until a signal ends it.
///
/// # Errors
/// Whatever keeps it from serving; once it serves it ends in order.
pub fn run(path: PathBuf) -> Result<(), StartError> {
    let loaded = config::load(&path, &environment).map_err(StartError::Config)?;
    for advice in &loaded.advice {
        tracing::warn!(target: "config", "{advice}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()?;
    runtime.block_on(serve(path, Arc::new(loaded.config)))
}

/// Asks the process's environment; what is not UTF-8 counts as not set.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

async fn serve(path: PathBuf, config: Arc<Config>) -> Result<(), StartError> {
    let ears = signals::Ears::new()?;
    let addresses = discovery::resolve(&config).await;
    let prepared = Prepared::new(&config, addresses).map_err(StartError::Config)?;
    let sockets = bind(&config.listeners)?;
    let admin = match &config.admin {
        Some(admin) => Some(admin::bind(admin.address).map_err(|e| bind_error(admin.address, e))?),
        None => None,
    };
    let log = AccessLog::start(sink(&config.access_log)).map_err(StartError::Log)?;
    // From here on nothing can be refused any more.
    let events = Arc::new(EventLog::default());
    let first = Snapshot::next(None, clock::monotonic(), config.clone(), &prepared.addresses, &events);
    let snapshot = Arc::new(ArcSwap::from_pointee(first));
    let (ending, is_ending) = watch::channel(false);
    let traffic = Arc::new(Traffic::default());
    let proxy = Proxy {
        snapshot: snapshot.clone(),
        log: log.clone(),
        traffic: traffic.clone(),
        ending: is_ending.clone(),
    };
    let app = Arc::new(proxy::engine(proxy, floor::threads()));
    let lobby = Arc::new(Lobby { app: app.clone(), ending: is_ending, log: log.clone(), traffic: traffic.clone() });
    let floor = Arc::new(Floor::start(lobby)?);
    let control = Arc::new(Control::start(Parts { path, snapshot, events, prepared, ending, log: log.clone(), traffic })?);
    for (listening, sockets) in sockets {
        floor.open(listening, sockets);
    }
    if let Some(admin) = admin {
        admin::serve(admin, control.clone());
    }
    tracing::info!(target: "server", version = env!("CARGO_PKG_VERSION"), threads = floor::threads(), "serving");
    signals::until_the_end(ears, &control, &floor, &app).await;
    control.stop();
    floor.stop();
    let left = log.close(LAST_LINES);
    tracing::info!(target: "server", log_lines_lost = left, "ended");
    Ok(())
}

fn bind_error(address: SocketAddr, cause: io::Error) -> StartError {
    StartError::Bind { address, cause }
}

/// Where the configuration wants the access log.
pub fn sink(to: &LogTo) -> Sink {
    match to {
        LogTo::Off => Sink::Off,
        LogTo::Stdout => Sink::Stdout,
        LogTo::File(path) => Sink::File(path.clone()),
    }
}
