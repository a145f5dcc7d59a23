//! A request's way through the proxy, as plain functions over Pingora's header types and our own context.
//!
//! [`hooks`] is the only `ProxyHttp`; it calls the steps and holds no decision. The steps: [`admit`] (limits, client,
//! route; [`authority`], [`framing`] and [`nominations`] say what is well formed), [`key`] (what it goes by), [`pick`] (a member, or a wait for one), [`peer`], [`connector`] and [`dial`] (how
//! Pingora is told to reach it), [`headers`] (what goes up and what comes down), [`upgrade`] (who may have another protocol,
//! and [`member_end`] the stream to a member for it), [`failure`] (what follows a failed attempt: [`blame`] says whose fault it
//! was, [`evidence`] what an attempt says of its member, [`retry`] whether to try again), [`refusal`] and [`published`] (answers
//! of our own), [`ctx`] (what a request knows of itself), [`line`](mod@line) (what the log will say of it).
//! [`foresee`](mod@foresee) goes the same steps for a request that nobody has sent.
//!
//! Not here: who is healthy (`pool`), sockets (`listener`), how an answer is framed (Pingora).

mod admit;
mod authority;
pub(crate) mod blame;
mod connector;
mod ctx;
mod dial;
mod evidence;
mod failure;
mod follow;
mod foresee;
mod framing;
mod headers;
mod hooks;
mod key;
mod line;
mod max_forwards;
mod member_end;
mod nominations;
mod peer;
mod pick;
mod published;
mod refusal;
pub(crate) mod retry;
mod upgrade;

use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora::proxy::HttpProxy;
use pingora::server::configuration::ServerConf;
use tokio::sync::watch;

pub use connector::Connector;
pub use foresee::{Described, End, Fate, Led, foresee, reason};
pub use hooks::Hooks;
pub use published::{CompositeView, HEALTH_STATE};

use crate::composite::Composites;
use crate::listener::Traffic;
use crate::snapshot::Snapshot;
use crate::telemetry::AccessLog;

/// Pooled upstream connections of one thread, over all members.
const KEEPALIVE_PER_THREAD: usize = 128;

/// Pingora's own ceiling on attempts; 0 would mean no answer at all. The decision is `retry`'s.
const ATTEMPTS_CEILING: usize = 64;

/// What every request needs.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// The present generation.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// What pools add up to, for whoever asks.
    pub composites: Arc<Composites>,
    /// Where lines go.
    pub log: AccessLog,
    /// What is going on.
    pub traffic: Arc<Traffic>,
    /// True once the process wants to end.
    pub ending: watch::Receiver<bool>,
}

/// Pingora's proxy with our hooks.
pub type Engine = HttpProxy<Hooks>;

/// Pingora's engine around our hooks, for one thread.
///
/// Each thread has its own, and with it its own pooled connections. Where threads shared them, a connection was taken while
/// the thread that had watched it was still letting go, and the request dialled anew: one in five did, on two threads.
pub fn engine(proxy: Proxy) -> Engine {
    let conf = ServerConf {
        threads: 1,
        max_retries: ATTEMPTS_CEILING,
        upstream_keepalive_pool_size: KEEPALIVE_PER_THREAD,
        ..ServerConf::default()
    };
    pingora::proxy::http_proxy(&Arc::new(conf), Hooks::new(proxy))
}
