//! What is known of replacements at one moment: decided, under way, over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::health::replacement::{Ledger, Wait, Ward, Who};
use crate::snapshot::Snapshot;

/// Replacements that are over and still shown.
const KEPT: usize = 100;

/// Who wants a member replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The pool's own rule.
    Rule,
    /// An operator.
    Hand,
}

impl By {
    /// The word in notices, events and API.
    pub fn as_str(self) -> &'static str {
        match self {
            By::Rule => "rule",
            By::Hand => "hand",
        }
    }
}

/// One that is under way.
#[derive(Debug, Clone)]
pub struct Running {
    /// Of this one alone.
    pub id: String,
    /// Whom it is about.
    pub who: Who,
    /// As the pool shows it.
    pub member: Arc<str>,
    /// Who wanted it.
    pub by: By,
    /// Since when, in monotonic time.
    pub since: Duration,
}

/// How one ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Result {
    /// As it should.
    Done,
    /// Otherwise, for this reason. It counts all the same: it may have been done.
    Failed(&'static str),
}

/// One that is over.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Of this one alone.
    pub id: String,
    /// Whose member.
    pub pool: Arc<str>,
    /// As the pool showed it.
    pub member: Arc<str>,
    /// Who wanted it.
    pub by: By,
    /// When it began, in monotonic time.
    pub began: Duration,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub result: Result,
    /// What was printed, answered, or went wrong.
    pub detail: String,
}

/// Decisions on a pool's members since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Begun.
    pub started: u64,
    /// Over, as they should be.
    pub done: u64,
    /// Over otherwise.
    pub failed: u64,
    /// Due, and made to wait by a limit.
    pub deferred: u64,
    /// Due, and spared for another pool.
    pub spared: u64,
    /// Wanted by an operator, and not done.
    pub refused: u64,
}

/// A copy of it all, for who shows it.
#[derive(Debug, Clone)]
pub struct Overview {
    /// What counts.
    pub ledger: Ledger,
    /// Who is due and waits.
    pub waiting: BTreeMap<Who, Wait>,
    /// What is under way.
    pub running: Vec<Running>,
    /// What is over, newest first.
    pub finished: Vec<Arc<Finished>>,
}

/// What is known.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) ward: Ward,
    running: BTreeMap<Who, Running>,
    finished: VecDeque<Arc<Finished>>,
    tallies: BTreeMap<Arc<str>, Tally>,
    /// By how much a ceiling on probes stretches their intervals, in this generation.
    stretch: (u64, f64),
}

impl Desk {
    pub(super) fn new(ward: Ward) -> Desk {
        Desk { ward, running: BTreeMap::new(), finished: VecDeque::new(), tallies: BTreeMap::new(), stretch: (0, 1.0) }
    }

    pub(super) fn overview(&self) -> Overview {
        Overview {
            ledger: self.ward.ledger().clone(),
            waiting: self.ward.waiting().clone(),
            running: self.running.values().cloned().collect(),
            finished: self.finished.iter().cloned().collect(),
        }
    }

    /// By how much a ceiling on probes stretches their intervals, worked out once for each generation.
    pub(super) fn stretch(&mut self, snapshot: &Snapshot) -> f64 {
        if self.stretch.0 != snapshot.generation {
            let stretch = snapshot.config.max_probes_per_second.map_or(1.0, |_| snapshot.config.cost().stretch);
            self.stretch = (snapshot.generation, stretch.max(1.0));
        }
        self.stretch.1
    }

    /// Nobody waits who would have to be told that it is over.
    pub(super) fn is_at_rest(&self) -> bool {
        self.ward.waiting().is_empty()
    }

    pub(super) fn running(&self) -> &BTreeMap<Who, Running> {
        &self.running
    }

    pub(super) fn is_running(&self, who: &Who) -> bool {
        self.running.contains_key(who)
    }

    pub(super) fn start(&mut self, running: Running) {
        self.running.insert(running.who.clone(), running);
    }

    pub(super) fn end(&mut self, who: &Who) {
        self.running.remove(who);
    }

    pub(super) fn finish(&mut self, finished: Finished) {
        self.count(&finished.pool, |tally| match finished.result {
            Result::Done => tally.done += 1,
            Result::Failed(_) => tally.failed += 1,
        });
        self.finished.truncate(KEPT - 1);
        self.finished.push_front(Arc::new(finished));
    }

    pub(super) fn count(&mut self, pool: &str, count: impl FnOnce(&mut Tally)) {
        count(self.tallies.entry(pool.into()).or_default());
    }

    pub(super) fn tally(&self, pool: &str) -> Tally {
        self.tallies.get(pool).copied().unwrap_or_default()
    }
}
