//! What is known of replacements at one moment: decided, under way, over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::health::MemberId;
use crate::health::replacement::{Ledger, Order, Stamp, Wait, Ward, Who};
use crate::snapshot::Snapshot;

/// Replacements that are over and still shown.
const KEPT: usize = 100;

/// Failed ones that are kept in mind.
const MOST_FAILED: usize = 1000;

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

/// One that is under way, or waits for a place.
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
    /// Since when, in monotonic time: begun, or decided.
    pub since: Duration,
    /// It has not begun: as many are being carried out as may be at once.
    pub is_queued: bool,
    /// What is to be done.
    pub(super) order: Order,
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
    /// Decided, and made to wait for a place.
    pub queued: u64,
    /// Decided, and given up before it began.
    pub dropped: u64,
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
    /// What waits for a place, in the order of their turns.
    pub queued: Vec<Running>,
    /// What is over, newest first.
    pub finished: Vec<Arc<Finished>>,
    /// What would count, and who would wait, if nobody only observed; `None`: nobody does.
    pub trial: Option<Ward>,
}

impl Overview {
    /// Who of a pool is due and waits.
    pub fn waiting_in(&self, pool: &Arc<str>) -> impl Iterator<Item = (&Who, &Wait)> {
        self.waiting.range((pool.clone(), MemberId(0))..=(pool.clone(), MemberId(u64::MAX)))
    }
}

/// Why a member is, or may be, due for replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// It was when it was last looked at.
    Waits,
    /// It is being replaced, or will be when there is a place.
    Runs(By),
    /// What began then has failed.
    Failed(Duration),
}

/// What is known.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) ward: Ward,
    /// Who does not wait any more and is about to be taken in hand, since the last look.
    pub(super) deciding: BTreeSet<Who>,
    /// Whose last replacement has failed, and when that began.
    failed: BTreeMap<Who, Duration>,
    /// What would be decided if nobody only observed; `None`: nobody does.
    pub(super) trial: Option<Ward>,
    running: BTreeMap<Who, Running>,
    finished: VecDeque<Arc<Finished>>,
    tallies: BTreeMap<Arc<str>, Tally>,
    /// When the ledger was written down as it stands; `None`: it has to be.
    pub(super) written: Option<Stamp>,
    /// By how much a ceiling on probes stretches their intervals, in this generation.
    stretch: (u64, f64),
}

impl Desk {
    pub(super) fn new(ward: Ward) -> Desk {
        let written = Some(ward.ledger().now());
        Desk {
            ward,
            deciding: BTreeSet::new(),
            failed: BTreeMap::new(),
            trial: None,
            running: BTreeMap::new(),
            finished: VecDeque::new(),
            tallies: BTreeMap::new(),
            written,
            stretch: (0, 1.0),
        }
    }

    pub(super) fn overview(&self) -> Overview {
        let mut queued = self.queued();
        queued.sort_by_key(|one| one.since);
        Overview {
            ledger: self.ward.ledger().clone(),
            waiting: self.ward.waiting().clone(),
            running: self.running.values().filter(|one| !one.is_queued).cloned().collect(),
            queued,
            finished: self.finished.iter().cloned().collect(),
            trial: self.trial.clone(),
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

    /// Whom replacement is about, each once.
    pub(super) fn concerned(&self) -> BTreeMap<Who, Concern> {
        let failed = self.failed.iter().map(|(who, began)| (who, Concern::Failed(*began)));
        let waiting = self.ward.waiting().keys().chain(&self.deciding).map(|who| (who, Concern::Waits));
        let running = self.running.values().map(|one| (&one.who, Concern::Runs(one.by)));
        failed.chain(waiting).chain(running).map(|(who, concern)| (who.clone(), concern)).collect()
    }

    /// Nobody waits who would have to be told that it is over.
    pub(super) fn is_at_rest(&self) -> bool {
        self.ward.waiting().is_empty()
    }

    /// Who is being replaced right now.
    pub(super) fn running(&self) -> Vec<&Running> {
        self.running.values().filter(|one| !one.is_queued).collect()
    }

    /// Whose replacement has not begun.
    pub(super) fn queued(&self) -> Vec<Running> {
        self.running.values().filter(|one| one.is_queued).cloned().collect()
    }

    /// One that waited begins now.
    pub(super) fn start_queued(&mut self, who: &Who, now: Duration) {
        if let Some(running) = self.running.get_mut(who) {
            (running.is_queued, running.since) = (false, now);
        }
        self.count(&who.0, |tally| tally.started += 1);
    }

    /// Nothing comes of one that has not begun; false: nothing has already.
    pub(super) fn give_up(&mut self, one: &Running) -> bool {
        let is_here = self.has(&one.who, &one.id);
        if is_here {
            self.end(&one.who, &one.id);
            self.ward.give_up(&one.order);
            self.written = None;
            self.count(&one.who.0, |tally| tally.dropped += 1);
        }
        is_here
    }

    /// An operator wants one that waits for a place: it is done whether or not the member is due by then. Returned is who had
    /// wanted it before; `None`: it does not wait.
    pub(super) fn insist(&mut self, who: &Who) -> Option<(Running, By)> {
        let one = self.running.get_mut(who).filter(|one| one.is_queued)?;
        let before = std::mem::replace(&mut one.by, By::Hand);
        one.order.insist();
        Some((one.clone(), before))
    }

    /// Whether this very one is still to be carried out.
    pub(super) fn has(&self, who: &Who, id: &str) -> bool {
        self.present(who, id).is_some()
    }

    /// This very one as it is wanted by now, where it is still to be carried out.
    pub(super) fn present(&self, who: &Who, id: &str) -> Option<&Running> {
        self.running.get(who).filter(|running| running.id == id)
    }

    pub(super) fn is_running(&self, who: &Who) -> bool {
        self.running.contains_key(who)
    }

    pub(super) fn start(&mut self, running: Running) {
        self.deciding.remove(&running.who);
        self.failed.remove(&running.who);
        self.running.insert(running.who.clone(), running);
    }

    pub(super) fn end(&mut self, who: &Who, id: &str) {
        if self.has(who, id) {
            self.running.remove(who);
        }
    }

    /// It is over, and so not under way any more.
    pub(super) fn finish(&mut self, who: &Who, finished: Finished) {
        self.end(who, &finished.id);
        if finished.result != Result::Done {
            self.failed.insert(who.clone(), finished.began);
            if self.failed.len() > MOST_FAILED {
                let oldest = self.failed.values().min().copied();
                self.failed.retain(|_, began| Some(*began) != oldest);
            }
        }
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
