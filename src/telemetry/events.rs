//! The one place that tells of changes in health: each becomes one line of the log (target `health`), one count, and one
//! entry of the list that the admin API reads.
//!
//! A step of the heart may return several changes that are one thing to a reader. The fallback that begins also changes
//! tier and mode; a member that is ejected may make the mode `capped`. Such a change is not told again: the line that
//! is written carries the pool's mode and counts after the step. So a flip is a line (health.md §4).
//!
//! Not here: what changed (`health`), how a line reaches standard error (`logging`).

mod observed;
mod words;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;

use super::record::Rfc3339;
use crate::clock;
use crate::health::{Change, Key, MemberId, Mode, PoolHealth, Standing, State};
pub use observed::{Trial, mark};

/// Events kept for the admin API.
const KEPT: usize = 1000;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As it should be.
    Info,
    /// Somebody may want to look.
    Warn,
    /// What somebody wanted was not done.
    Error,
}

/// One transition. Absent fields are null in the API and left out of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Counts up from 1 in one process.
    pub id: u64,
    /// When it was announced.
    pub time: SystemTime,
    /// What it is about.
    pub kind: Kind,
    /// How loud it is.
    pub level: Severity,
    /// The route's name, where it is about one.
    pub route: Option<String>,
    /// The pool's name.
    pub pool: Option<String>,
    /// The composite's name.
    pub composite: Option<String>,
    /// The member as the pool shows it.
    pub member: Option<String>,
    /// How many further members it is about, where it names none: of many that change alike in one step, only the first
    /// have an event each.
    pub count: Option<usize>,
    /// What it was: a verdict, admin state, standing, mode, tier or pool, by kind; `added` of what was not there, `observed` of a
    /// composite that only observed until now.
    pub from: Option<String>,
    /// What it is now; `removed` of what is not there any more.
    pub to: Option<String>,
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
    pub in_rotation: Option<usize>,
    /// Members of the serving tier.
    pub total: Option<usize>,
    /// The pool's mode after the step.
    pub mode: Option<&'static str>,
    /// True: what an `observe` rule would have done.
    pub observed: bool,
    /// The whole of it in a sentence.
    pub message: String,
}

/// Counts of events since the start.
#[derive(Debug, Default)]
pub struct Counters {
    by_kind: [AtomicU64; Kind::ALL.len()],
    observed: [AtomicU64; Kind::ALL.len()],
    fallbacks: AtomicU64,
}

/// Tells of changes, and remembers the latest. One for the process, shared.
#[derive(Debug)]
pub struct EventLog {
    instance: String,
    counters: Counters,
    recent: Mutex<Recent>,
    last_id: watch::Sender<u64>,
}

/// Who has left a pool in a step, with the standing of each before it, and who has joined.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    /// In the order they had.
    pub left: Vec<(Key, Standing)>,
    /// In the order they have.
    pub joined: Vec<MemberId>,
}

/// A look at the remembered events from one id on.
#[derive(Debug, Clone)]
pub struct Glance {
    /// Oldest first.
    pub events: Vec<Arc<Event>>,
    /// How many after that id are not remembered any more.
    pub missed: u64,
    /// Of the oldest remembered; the next one's where there is none.
    pub first_id: u64,
    /// Of the latest; 0 before the first.
    pub last_id: u64,
}

#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<Arc<Event>>,
    last_id: u64,
}

impl Event {
    /// An event of now, of which nothing is known but this.
    pub fn new(kind: Kind, level: Severity, message: String) -> Event {
        Event {
            id: 0,
            time: clock::wall(),
            kind,
            level,
            route: None,
            pool: None,
            composite: None,
            member: None,
            count: None,
            from: None,
            to: None,
            reason: None,
            detail: None,
            standing: None,
            window: None,
            latency_ms: None,
            in_rotation: None,
            total: None,
            mode: None,
            observed: false,
            message,
        }
    }

    /// When it was announced, as RFC 3339.
    pub fn rfc3339(&self) -> String {
        Rfc3339(self.time).to_string()
    }
}

impl EventLog {
    /// Announces what one step of `health` returned, with the pool as it stands after that step. Returns the events, for
    /// who counts by more labels than this does.
    pub fn announce(&self, pool: &str, health: &PoolHealth, changes: &[Change]) -> Vec<Arc<Event>> {
        words::describe(pool, health, changes).into_iter().map(|event| self.publish(event)).collect()
    }

    /// Announces what a step of a pool's shadow returned, beside what was `told` of the same step of the pool itself: what
    /// would be all the same is not told again. `state_before` is how the pool stood as a whole, where that has changed.
    pub fn announce_observed(
        &self,
        trial: &Trial<'_>,
        changes: &[Change],
        state_before: Option<State>,
        told: &[Arc<Event>],
    ) {
        for event in observed::describe(trial, changes, state_before, told) {
            self.publish(event);
        }
    }

    /// Announces who has left a pool and who has joined it, with the pool as it stands now.
    pub fn announce_moves(&self, pool: &str, health: &PoolHealth, moves: &Moves) {
        for event in words::describe_moves(pool, health, moves) {
            self.publish(event);
        }
    }

    /// Announces a pool that a reload brings.
    pub fn announce_new(&self, pool: &str, health: &PoolHealth) {
        self.publish(words::new_pool(pool, health));
    }

    /// Announces that a reload has taken a pool out, which served in this mode.
    pub fn announce_gone(&self, pool: &str, mode: Mode) {
        self.publish(words::gone_pool(pool, mode));
    }

    /// Announces one event that did not come from a pool's health: a reload, a composite, a route's failover.
    pub fn publish(&self, mut event: Event) -> Arc<Event> {
        self.counters.count(&event);
        let mut recent = self.recent();
        recent.last_id += 1;
        event.id = recent.last_id;
        let event = Arc::new(event);
        if recent.events.len() == KEPT {
            recent.events.pop_front();
        }
        recent.events.push_back(Arc::clone(&event));
        // Under the lock, so that the log has the order of the ids; the log never waits.
        log(&event);
        self.last_id.send_replace(event.id);
        event
    }

    /// The first `limit` of the remembered events with an id over `id`, oldest first.
    pub fn since(&self, id: u64, limit: usize) -> Vec<Arc<Event>> {
        self.glance(id, limit).events
    }

    /// The same, with what cannot be had any more.
    pub fn glance(&self, id: u64, limit: usize) -> Glance {
        let recent = self.recent();
        let from = recent.events.partition_point(|event| event.id <= id);
        let first_id = recent.events.front().map_or(recent.last_id + 1, |event| event.id);
        Glance {
            events: recent.events.range(from..).take(limit).cloned().collect(),
            missed: (first_id - 1).saturating_sub(id),
            first_id,
            last_id: recent.last_id,
        }
    }

    /// The id of the latest event; 0 before the first.
    pub fn last_id(&self) -> u64 {
        self.recent().last_id
    }

    /// Whose ids these are: another process counts anew.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The id of an event that no other process gives.
    pub fn cursor(&self, id: u64) -> String {
        format!("{}-{id}", self.instance)
    }

    /// The id of the latest event, to be waited on. Whoever is late loses nothing but what is not remembered any more.
    pub fn latest(&self) -> watch::Receiver<u64> {
        self.last_id.subscribe()
    }

    /// Counts since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog {
            instance: format!("{:08x}", fastrand::u32(..)),
            counters: Counters::default(),
            recent: Mutex::default(),
            last_id: watch::Sender::new(0),
        }
    }
}

impl Counters {
    /// Events of this kind; observed ones are apart.
    pub fn of(&self, kind: Kind) -> u64 {
        self.by_kind[kind as usize].load(Ordering::Relaxed)
    }

    /// Events of this kind that tell what rules that are tried would have done.
    pub fn observed(&self, kind: Kind) -> u64 {
        self.observed[kind as usize].load(Ordering::Relaxed)
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
        if event.observed {
            self.observed[event.kind as usize].fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.by_kind[event.kind as usize].fetch_add(1, Ordering::Relaxed);
        if event.kind == Kind::Fallback && event.to.as_deref() == Some("fallback") {
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

impl Severity {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warn => "warn",
            Severity::Error => "error",
        }
    }
}

/// The one line. `tracing` fixes an event's level where it is written, hence three.
fn log(event: &Event) {
    let Event { id, kind, reason, standing, latency_ms, mode, observed, message, .. } = event;
    let (kind, route, pool) = (kind.as_str(), event.route.as_deref(), event.pool.as_deref());
    let member = event.member.as_deref();
    let composite = event.composite.as_deref();
    let (from, to) = (event.from.as_deref(), event.to.as_deref());
    let (detail, window) = (event.detail.as_deref(), event.window.as_deref());
    let number = |number: Option<usize>| number.map(|number| number as u64);
    let (count, in_rotation, total) = (number(event.count), number(event.in_rotation), number(event.total));
    match event.level {
        Severity::Info => tracing::info!(
            target: super::HEALTH, id, kind, route, pool, composite, member, count, from, to, reason, detail, standing,
            window, latency_ms, in_rotation, total, mode, observed, "{message}"
        ),
        Severity::Warn => tracing::warn!(
            target: super::HEALTH, id, kind, route, pool, composite, member, count, from, to, reason, detail, standing,
            window, latency_ms, in_rotation, total, mode, observed, "{message}"
        ),
        Severity::Error => tracing::error!(
            target: super::HEALTH, id, kind, route, pool, composite, member, count, from, to, reason, detail, standing,
            window, latency_ms, in_rotation, total, mode, observed, "{message}"
        ),
    }
}

#[cfg(test)]
mod tests;
