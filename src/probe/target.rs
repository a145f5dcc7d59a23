//! Whom the prober follows, on whose behalf, and what it tells of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{Asked, Check, Tracks};
use crate::health::{MemberId, Pace, Sample};

/// Takes a sample, at its (monotonic) time, with what its probe left where that is taped, and says how soon the next is
/// wanted; `None`: the member is gone.
pub type Report = Arc<dyn Fn(Duration, Sample, Option<&Tracks<'_>>) -> Option<Pace> + Send + Sync>;

/// A member of a pool, by the pool's name.
pub(super) type MemberOf = (Arc<str>, MemberId);

/// A member to follow, on behalf of one pool.
#[derive(Clone)]
pub struct Target {
    /// The pool's name.
    pub pool: Arc<str>,
    /// The member's identity in that pool.
    pub member: MemberId,
    /// Of the member's probe, as its pool knows it: with another one a sample is wanted now.
    pub fingerprint: u64,
    /// Of what is asked and expected. Who has the same, of the same address, by the same name and with the same timeout, is
    /// told of the same probes.
    pub definition: u64,
    /// The member's address, for the log.
    pub label: Arc<str>,
    /// The probe.
    pub check: Arc<Check>,
    /// From start to start.
    pub interval: Duration,
    /// From start to start while in doubt; at most `interval`.
    pub fast_interval: Duration,
    /// How rarely it is probed while nobody uses it; `None`: no matter.
    pub idle: Option<Idle>,
    /// Who is told.
    pub report: Report,
    /// Where the start of the next probe is written, in microseconds of monotonic time; 0: none is planned.
    pub next_probe_at: Arc<AtomicU64>,
}

/// Whether a little of what passes is kept while a probe lasts, for its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taping {
    /// For whoever may want to see what a fail was like.
    On,
    /// Nobody does.
    Off,
}

/// A pace for what nobody uses (F9).
#[derive(Clone)]
pub struct Idle {
    /// From start to start while nobody does; at least the target's own interval.
    pub interval: Duration,
    /// Whether nobody does, at a monotonic time.
    pub is_idle: Arc<dyn Fn(Duration) -> bool + Send + Sync>,
}

/// One probe that is made again and again, for all who share it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Who is dialled.
    pub peer: SocketAddr,
    /// What is asked.
    pub asked: Asked,
    /// From start to start, as it is now: in doubt, idle, or held back by the ceiling.
    pub interval: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// Somebody's verdict may be about to change, and so it is quicker.
    pub in_doubt: bool,
    /// Nobody uses any of the pools, and so it is slower.
    pub idle: bool,
    /// When the last one began, in monotonic time.
    pub started: Option<Duration>,
    /// When the next one begins.
    pub next: Option<Duration>,
    /// How many began more than a quarter of a second after they were due.
    pub late: u64,
    /// Pools with their members, as the log calls them, in the order in which they are told; and the interval each asks for.
    pub members: Vec<(Arc<str>, Arc<str>, Duration)>,
}

impl Target {
    pub(super) fn key(&self) -> MemberOf {
        (self.pool.clone(), self.member)
    }

    pub(super) fn forget(&self) {
        self.next_probe_at.store(0, Relaxed);
    }
}
