//! Where clients come in: sockets, connections, their deadlines and limits, and the end of them.
//!
//! Pingora's own listening service can neither count what it serves nor end when that is done, so the accept loops
//! are ours and hand each connection to the proxy's engine (any [`HttpServerApp`] will do).
//!
//! Not here: what a request means (`proxy`), which listeners there are (`server`).

mod accept;
mod alarm;
mod bind;
mod chunk_end;
pub mod connection;
mod header_end;
mod last_call;
mod oversight;
mod request_line;
mod stream;
mod tunnel;
mod tunnel_limits;
mod wait;
mod whole_target;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::{ArcSwap, Guard};
use pingora::apps::HttpServerApp;
use tokio::sync::watch;

pub use accept::accept;
pub use alarm::Alarm;
pub use bind::bind;
pub use connection::{CONNECTION, Connection, Cut, Phase};
pub use last_call::LastCall;
pub use stream::keep_for_dial;
pub use tunnel::{Switch, Terms, Tunnel, Way};
pub use tunnel_limits::TunnelLimits;
pub use wait::Wait;

use wait::Guests;

use crate::config::{self, Limits};
use crate::pool::Member;
use crate::telemetry::AccessLog;
use crate::telemetry::metrics::ListenerCounts;

/// One listener while it is open.
#[derive(Debug)]
pub struct Listening {
    /// As configured; name and limits may change while it is open.
    wanted: ArcSwap<config::Listener>,
    /// As it was really bound.
    address: SocketAddr,
    connections: AtomicUsize,
    refused: AtomicU64,
    /// Those of its name.
    counts: ArcSwap<ListenerCounts>,
    open: watch::Sender<bool>,
}

impl Listening {
    /// The listener that was `wanted`, on `address` as it was really bound.
    pub fn new(wanted: &config::Listener, address: SocketAddr) -> Listening {
        Listening {
            wanted: ArcSwap::from_pointee(wanted.clone()),
            address,
            connections: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            counts: ArcSwap::new(ListenerCounts::of(&wanted.name)),
            open: watch::Sender::new(true),
        }
    }

    /// How it is configured now.
    pub fn wanted(&self) -> Guard<Arc<config::Listener>> {
        self.wanted.load()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether this is what `listener` asks for: its socket is, whatever else changes. Free ports are told apart by name.
    pub fn is(&self, listener: &config::Listener) -> bool {
        let wanted = self.wanted();
        wanted.address == listener.address && (wanted.address.port() != 0 || wanted.name == listener.name)
    }

    /// What a connection may cost.
    pub fn limits(&self) -> Limits {
        self.wanted().limits
    }

    /// Another name or other limits, from a reload; connections that are open have them at once.
    pub fn set(&self, wanted: &config::Listener) {
        self.counts.store(ListenerCounts::of(&wanted.name));
        self.wanted.store(Arc::new(wanted.clone()));
    }

    /// What is counted of it.
    pub fn counts(&self) -> Guard<Arc<ListenerCounts>> {
        self.counts.load()
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
    /// Given when connections that ask for nothing are to end.
    pub last_call: Arc<LastCall>,
    /// For requests that never became one.
    pub log: AccessLog,
    /// Connections and requests now.
    pub traffic: Arc<Traffic>,
    /// Connections there is room for now over all listeners, so that descriptors are left for members, probes, logs and
    /// operators.
    pub room: Arc<dyn Fn() -> usize + Send + Sync>,
}

/// What is going on now, over all listeners.
#[derive(Debug, Default)]
pub struct Traffic {
    connections: AtomicUsize,
    requests: AtomicUsize,
    next_connection: AtomicU64,
    guests: Guests,
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

    /// Calls every request away that waits for one of `members`. Where there are any it looks through all connections.
    pub fn call_away(&self, members: &[Arc<Member>]) {
        self.guests.call_away(members);
    }

    /// Counts one request on `connection` until the guard is dropped.
    pub fn request(self: &Arc<Self>, connection: &Arc<Connection>) -> InFlight {
        self.requests.fetch_add(1, Relaxed);
        connection.counts().active.fetch_add(1, Relaxed);
        InFlight { traffic: self.clone(), connection: connection.clone() }
    }
}

/// One request among those being served.
#[derive(Debug)]
pub struct InFlight {
    traffic: Arc<Traffic>,
    connection: Arc<Connection>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.traffic.requests.fetch_sub(1, Relaxed);
        self.connection.counts().active.fetch_sub(1, Relaxed);
    }
}

impl<A: HttpServerApp> std::fmt::Debug for Lobby<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lobby").field("traffic", &self.traffic).finish_non_exhaustive()
    }
}
