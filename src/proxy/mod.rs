//! A request's way through the proxy, as plain functions over Pingora's header types and our own context.
//!
//! Two drivers take the steps and hold no decision: [`plain`], our own, and Pingora's, by [`hooks`], the only `ProxyHttp`;
//! [`engine`] says which. What they take are [`steps`], and those call the others: [`admit`] (limits, client,
//! route; [`authority`], [`framing`] and [`nominations`] say what is well formed), [`key`] (what it goes by), [`sticky`] (whom its client is bound to; [`cookies`] finds that), [`choose`] and [`pick`] (a member, or a wait for one), [`peer`], [`connector`] and [`dial`] (how
//! Pingora is told to reach it), [`headers`] (what goes up and what comes down), [`upgrade`] (who may have another protocol,
//! and [`member_end`] the stream to a member for it), [`failure`] (what follows a failed attempt: [`blame`] says whose fault it
//! was, [`evidence`] what an attempt says of its member, [`retry`] whether to try again, [`left`] whom not to ask again), [`refusal`] and [`published`] (answers
//! of our own), [`ctx`] (what a request knows of itself), [`line`](mod@line) (what the log will say of it).
//! [`foresee`](mod@foresee) goes the same steps for a request that nobody has sent.
//!
//! Not here: who is healthy (`pool`), sockets (`listener`), how an answer is framed (Pingora).

mod admit;
mod authority;
pub(crate) mod blame;
mod choose;
mod connector;
mod cookies;
mod ctx;
mod dial;
mod engine;
pub(crate) mod evidence;
mod failure;
mod follow;
mod foresee;
mod framing;
mod headers;
mod hooks;
mod key;
mod leaving;
pub(crate) mod left;
mod line;
mod max_forwards;
mod member_end;
mod nominations;
mod peer;
mod pick;
mod plain;
mod published;
mod refusal;
pub(crate) mod retry;
mod steps;
mod sticky;
mod upgrade;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

pub use connector::Connector;
pub use engine::Engine;
pub use foresee::{Described, End, Fate, Led, foresee, reason};
use hooks::Hooks;
pub use published::{CompositeView, HEALTH_STATE};
pub use sticky::{Claim, Signer, SignerError};

use crate::composite::Composites;
use crate::listener::Traffic;
use crate::snapshot::Snapshot;
use crate::telemetry::AccessLog;

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

impl Proxy {
    fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }
}
