//! The one place that tells of changes in health: each becomes one line of the log (target `health`), one count, and one
//! entry of the list that the admin API reads.
//!
//! A step of the heart may return several changes that are one thing to a reader. The fallback that begins also changes
//! tier and mode; a member that is ejected may make the mode `capped`. Such a change is not told again: the line that
//! is written carries the pool's mode and counts after the step. So a flip is a line (health.md §4).
//!
//! Not here: what changed (`health`), how a line reaches standard error (`logging`).

mod words;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::Serialize;

use super::record::wall_time;
use crate::clock;
use crate::health::{Change, PoolHealth};

/// Events kept for the admin API.
const KEPT: usize = 4096;

/// What an event is about (interfaces.md, Event log).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// One member's verdict or admin state.
    Member,
    /// A pool's mode, where nothing else in the step tells it.
    Pool,
    /// A composite's state.
    Composite,
    /// A place under the cap moved on.
    Cap,
    /// The fallback began or ended.
    Fallback,
    /// Another tier or another pool of a route serves.
    Failover,
    /// A member was, or would have been, replaced.
    Remediation,
    /// The configuration was read again.
    Reload,
}

/// How loud an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Info,
    /// Somebody may want to look.
    Warn,
}

/// One transition. Absent fields are null in the API and left out of the log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Counts up from 1 in one process.
    pub id: u64,
    /// When it was announced.
    #[serde(serialize_with = "wall_time")]
    pub time: SystemTime,
    /// What it is about.
    pub kind: Kind,
    /// How loud it is.
    pub level: Severity,
    /// The pool's name.
    pub pool: String,
    /// The member as the pool shows it.
    pub member: Option<String>,
    /// What it was: a verdict, admin state, standing, mode or tier, by kind.
    pub from: String,
    /// What it is now.
    pub to: String,
    /// Why: the word of the fail that made a member unhealthy.
    pub reason: Option<&'static str>,
    /// Why, for people: `503, expected 200-299`.
    pub detail: Option<String>,
    /// How the member stands after the step.
    pub standing: Option<&'static str>,
    /// Its last samples, as passes of samples shown: `3/4`.
    pub window: Option<String>,
    /// Its probe latency.
    pub latency_ms: Option<f64>,
    /// Members of the serving tier that take traffic.
    pub in_rotation: usize,
    /// Members of the serving tier.
    pub total: usize,
    /// The pool's mode after the step.
    pub mode: &'static str,
    /// True: what an `observe` rule would have done.
    pub observed: bool,
    /// The whole of it in a sentence.
    pub message: String,
}

/// Counts of events since the start.
#[derive(Debug, Default)]
pub struct Counters {
    by_kind: [AtomicU64; Kind::ALL.len()],
    fallbacks: AtomicU64,
}

/// Tells of changes, and remembers the latest. One for the process, shared.
#[derive(Debug, Default)]
pub struct EventLog {
    counters: Counters,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<Arc<Event>>,
    last_id: u64,
}

impl EventLog {
    /// Announces what one step of `health` returned, with the pool as it stands after that step. Returns the events, for
    /// who counts by more labels than this does.
    pub fn announce(&self, pool: &str, health: &PoolHealth, changes: &[Change]) -> Vec<Arc<Event>> {
        words::describe(clock::wall(), pool, health, changes).into_iter().map(|event| self.publish(event)).collect()
    }

    /// Announces one event that did not come from a pool's health: a reload, a composite, a route's failover.
    pub fn publish(&self, mut event: Event) -> Arc<Event> {
        self.counters.count(&event);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.last_id += 1;
        event.id = recent.last_id;
        let event = Arc::new(event);
        if recent.events.len() == KEPT {
            recent.events.pop_front();
        }
        recent.events.push_back(Arc::clone(&event));
        // Under the lock, so that the log has the order of the ids; the log never waits.
        log(&event);
        event
    }

    /// The first `limit` of the remembered events with an id over `id`, oldest first.
    pub fn since(&self, id: u64, limit: usize) -> Vec<Arc<Event>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let first = recent.events.partition_point(|event| event.id <= id);
        recent.events.range(first..).take(limit).cloned().collect()
    }

    /// The id of the latest event; 0 before the first.
    pub fn last_id(&self) -> u64 {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).last_id
    }

    /// Counts since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Counters {
    /// Events of this kind, observed ones included.
    pub fn of(&self, kind: Kind) -> u64 {
        self.by_kind[kind as usize].load(Ordering::Relaxed)
    }

    /// Events of every kind.
    pub fn total(&self) -> u64 {
        Kind::ALL.into_iter().map(|kind| self.of(kind)).sum()
    }

    /// How often a pool entered the fallback.
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    fn count(&self, event: &Event) {
        self.by_kind[event.kind as usize].fetch_add(1, Ordering::Relaxed);
        if event.kind == Kind::Fallback && event.to == "fallback" && !event.observed {
            self.fallbacks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Kind {
    /// Every kind, in the order of interfaces.md.
    pub const ALL: [Kind; 8] = [
        Kind::Member,
        Kind::Pool,
        Kind::Composite,
        Kind::Cap,
        Kind::Fallback,
        Kind::Failover,
        Kind::Remediation,
        Kind::Reload,
    ];

    /// The word in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Member => "member",
            Kind::Pool => "pool",
            Kind::Composite => "composite",
            Kind::Cap => "cap",
            Kind::Fallback => "fallback",
            Kind::Failover => "failover",
            Kind::Remediation => "remediation",
            Kind::Reload => "reload",
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The one line. `tracing` fixes an event's level where it is written, hence two.
fn log(event: &Event) {
    let Event { kind, pool, from, to, reason, standing, latency_ms, mode, observed, message, .. } = event;
    let (kind, in_rotation, total) = (kind.as_str(), event.in_rotation as u64, event.total as u64);
    let (member, detail, window) = (event.member.as_deref(), event.detail.as_deref(), event.window.as_deref());
    match event.level {
        Severity::Info => tracing::info!(
            target: super::HEALTH, kind, pool, member, from, to, reason, detail, standing, window, latency_ms, in_rotation,
            total, mode, observed, "{message}"
        ),
        Severity::Warn => tracing::warn!(
            target: super::HEALTH, kind, pool, member, from, to, reason, detail, standing, window, latency_ms, in_rotation,
            total, mode, observed, "{message}"
        ),
    }
}

#[cfg(test)]
mod tests;
