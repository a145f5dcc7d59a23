//! The heart: from samples and time to verdicts and standings.
//!
//! A pure function of (rules, evidence, time): nothing here reads a clock, takes a lock, logs, or can fail. Time is a
//! `Duration` since an origin of the caller's choosing that never goes back. Evidence goes in, [`Change`]s come out,
//! and [`PoolHealth::picture`] says how each member stands now.
//!
//! Not here: who gets the next request (`balance`), how a probe is made (`probe`), who is told of a change (`telemetry`).

mod aggregate;
mod cap;
mod carry;
mod composite;
mod departed;
mod drain;
pub mod failover;
mod history;
mod judge;
mod latency;
mod member;
mod pace;
mod passive;
mod picture;
mod pool;
mod ramp;
pub mod replacement;
mod reshape;
mod rules;
mod sample;
mod tier;

#[cfg(test)]
mod examples;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod trial;

pub use aggregate::{Aggregate, Census, State};
pub use carry::{Carried, Evidence, Held};
pub use composite::{Source, combine, states};
pub use history::Window;
pub use member::Member;
pub use pace::Pace;
pub use passive::{Ban, Broken, Charge, Eject, Failure, Seen};
pub use picture::Picture;
pub use pool::PoolHealth;
pub use ramp::Ramp;
pub use rules::{Admin, Gates, Initial, Judge, Key, OnAllUnhealthy, Rules, Spec};
pub use sample::{Class, Outcome, Phases, Reason, Sample};

/// One member's identity for the life of a pool's health: never used again once its member is gone, so late evidence
/// finds nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u64);

/// What the judge says of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nothing is decided yet.
    Unknown,
    /// Fit to serve.
    Healthy,
    /// Not fit to serve; whether it does is the cap's matter.
    Unhealthy,
}

/// What verdict, cap, tier, fallback and administration add up to for one member (health.md, Words).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Serves.
    Healthy,
    /// Unhealthy, and serves because the cap lets no more go.
    Kept,
    /// Unhealthy and out of the rotation; in a pool that fails when nobody is healthy, everyone then.
    Ejected,
    /// Never been healthy, or without an address: gets nothing outside the fallback.
    Unknown,
    /// Serves because nobody is healthy.
    Fallback,
    /// Its tier does not serve.
    Standby,
    /// Gets no new requests, by an operator's word or a weight of 0.
    Draining,
    /// Gets nothing and is not probed.
    Disabled,
}

/// How a pool serves: the first that applies (health.md §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Answers 503: nobody may serve.
    Down,
    /// Requests wait for a first verdict.
    Waiting,
    /// Nobody is healthy, and everyone serves.
    Fallback,
    /// Another tier than the pool's first serves.
    Failover,
    /// Someone unhealthy serves because of the cap.
    Capped,
    /// None of these.
    Normal,
}

/// Something that changed in a step, to be announced exactly once.
///
/// A step's changes come in this order: `Verdict` and `Admin`, member by member; `Place`; `Fallback`; `Tier`; `Mode`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A verdict flipped.
    Verdict {
        /// Whose.
        member: MemberId,
        /// What it was.
        from: Verdict,
        /// What it is.
        to: Verdict,
    },
    /// An operator or a reload changed what is wanted of a member.
    Admin {
        /// Of whom.
        member: MemberId,
        /// What was wanted.
        from: Admin,
        /// What is wanted.
        to: Admin,
    },
    /// The cap moved a member whose verdict did not change in this step: kept → ejected or ejected → kept.
    Place {
        /// Whom.
        member: MemberId,
        /// Kept or ejected.
        from: Standing,
        /// The other of the two.
        to: Standing,
    },
    /// The fallback began or ended.
    Fallback {
        /// Whether it began.
        entered: bool,
    },
    /// Another tier serves (`None`: none does, as in the fallback).
    Tier {
        /// The one that served.
        from: Option<u8>,
        /// The one that serves.
        to: Option<u8>,
    },
    /// The pool's mode changed.
    Mode {
        /// What it was.
        from: Mode,
        /// What it is.
        to: Mode,
    },
}

impl Change {
    /// Whom it is about; `None`: the pool.
    pub fn member(&self) -> Option<MemberId> {
        match *self {
            Change::Verdict { member, .. } | Change::Admin { member, .. } | Change::Place { member, .. } => {
                Some(member)
            }
            Change::Fallback { .. } | Change::Tier { .. } | Change::Mode { .. } => None,
        }
    }
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Verdict; 3] = [Verdict::Unknown, Verdict::Healthy, Verdict::Unhealthy];

    /// The word used in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Unknown => "unknown",
            Verdict::Healthy => "healthy",
            Verdict::Unhealthy => "unhealthy",
        }
    }
}

impl Standing {
    /// Every standing, in the order in which they are listed for people.
    pub const ALL: [Standing; 8] = [
        Standing::Healthy,
        Standing::Kept,
        Standing::Ejected,
        Standing::Unknown,
        Standing::Fallback,
        Standing::Standby,
        Standing::Draining,
        Standing::Disabled,
    ];

    /// The word used in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Healthy => "healthy",
            Standing::Kept => "kept",
            Standing::Ejected => "ejected",
            Standing::Unknown => "unknown",
            Standing::Fallback => "fallback",
            Standing::Standby => "standby",
            Standing::Draining => "draining",
            Standing::Disabled => "disabled",
        }
    }

    /// Whether new requests may go to a member that stands so.
    pub fn takes_traffic(self) -> bool {
        matches!(self, Standing::Healthy | Standing::Kept | Standing::Fallback)
    }
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 6] = [Mode::Down, Mode::Waiting, Mode::Fallback, Mode::Failover, Mode::Capped, Mode::Normal];

    /// The word used in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Down => "down",
            Mode::Waiting => "waiting",
            Mode::Fallback => "fallback",
            Mode::Failover => "failover",
            Mode::Capped => "capped",
            Mode::Normal => "normal",
        }
    }
}
