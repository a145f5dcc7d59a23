//! Where clients come in: sockets, connections, their deadlines and limits, and the end of them.
//!
//! Pingora's own listening service can neither count what it serves nor end when that is done, so the accept loops
//! are ours and hand each connection to Pingora's `HttpProxy` (any [`HttpServerApp`] will do).
//!
//! Not here: what a request means (`proxy`), which listeners there are (`server`).

mod accept;
mod bind;
pub mod connection;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use pingora::apps::HttpServerApp;
use tokio::sync::watch;

pub use accept::accept;
pub use bind::bind;
pub use connection::{CONNECTION, Connection, Cut, Phase};

use crate::config::{self, Limits};
use crate::telemetry::AccessLog;

/// One listener while it is open.
#[derive(Debug)]
pub struct Listening {
    name: Arc<str>,
    /// As configured: port 0 stays 0.
    wanted: SocketAddr,
    address: SocketAddr,
    limits: ArcSwap<Limits>,
    connections: AtomicUsize,
    refused: AtomicU64,
    open: watch::Sender<bool>,
}

impl Listening {
    /// The listener that was `wanted`, on `address` as it was really bound.
    pub fn new(wanted: &config::Listener, address: SocketAddr) -> Listening {
        Listening {
            name: wanted.name.as_str().into(),
            wanted: wanted.address,
            address,
            limits: ArcSwap::from_pointee(wanted.limits),
            connections: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            open: watch::Sender::new(true),
        }
    }

    /// Its name in the log.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether this is what `listener` asks for.
    pub fn is(&self, listener: &config::Listener) -> bool {
        self.wanted == listener.address && *self.name == *listener.name
    }

    /// What a connection may cost.
    pub fn limits(&self) -> Limits {
        **self.limits.load()
    }

    /// Other limits, from a reload; connections that are open have them at once.
    pub fn set_limits(&self, limits: Limits) {
        self.limits.store(Arc::new(limits));
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// No more connections; those that are open go on.
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    fn is_open(&self) -> watch::Receiver<bool> {
        self.open.subscribe()
    }
}

/// What all listeners of a process share.
pub struct Lobby<A> {
    /// Who serves the connections.
    pub app: Arc<A>,
    /// Turns true when the process wants to end: answers then close their connection.
    pub ending: watch::Receiver<bool>,
    /// For requests that never became one.
    pub log: AccessLog,
    /// Connections and requests now.
    pub traffic: Arc<Traffic>,
}

/// What is going on now, over all listeners.
#[derive(Debug, Default)]
pub struct Traffic {
    connections: AtomicUsize,
    requests: AtomicUsize,
    next_connection: AtomicU64,
}

impl Traffic {
    /// Open client connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Requests being served.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Counts one request until the guard is dropped.
    pub fn request(self: &Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        InFlight(self.clone())
    }
}

/// One request among those being served.
#[derive(Debug)]
pub struct InFlight(Arc<Traffic>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

impl<A: HttpServerApp> std::fmt::Debug for Lobby<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lobby").field("traffic", &self.traffic).finish_non_exhaustive()
    }
}
