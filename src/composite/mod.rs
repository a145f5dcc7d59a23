//! Composites while they run: what several pools add up to, at every moment (health.md §8).
//!
//! Nobody polls. A pool that changes tells, and by the time whoever changed it goes on, every composite above it stands as
//! it must, each change of a source and of a composite has been announced once, and whoever reads sees all of it or
//! nothing. They outlive generations: a reload asks them to look again, and what they knew stays.
//!
//! Not here: the rules (`health`), how a composite is answered for (`proxy`, `admin`).

mod beneath;
mod door;
mod tree;
mod trial;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

pub use beneath::Beneath;
pub use door::{Door, Doors};
pub use tree::{Count, Report, SourceKind, SourceReport};

use crate::config;
use crate::health::State;
use crate::pool::{Onlooker, Roster};
use crate::telemetry::{EventLog, mark};
use tree::{Before, Change, Tree};
use trial::Trial;

/// All composites.
///
/// The request path and other onlookers read [`Composites::report`] and [`Composites::state`], which take no lock. An
/// onlooker that goes by composites stands behind this one in the [`Audience`](crate::pool::Audience): when it is told of a
/// pool, they stand as they must already.
pub struct Composites {
    events: Arc<EventLog>,
    board: Mutex<Board>,
    shown: ArcSwap<Shown>,
}

/// What everybody sees.
#[derive(Debug, Default)]
struct Shown {
    in_force: HashMap<Arc<str>, Arc<Report>>,
    /// By name.
    observed: Vec<Arc<Report>>,
}

/// What only one writer at a time may touch.
#[derive(Default)]
struct Board {
    tree: Tree,
    /// As it would be if nobody only observed.
    trial: Option<Trial>,
    /// A reload is under way: pools change one by one, and half of a configuration is none.
    is_held: bool,
    /// The first configuration is taken.
    has_begun: bool,
}

impl Composites {
    /// None yet; `events` is told of what changes.
    pub fn new(events: Arc<EventLog>) -> Composites {
        Composites { events, board: Mutex::default(), shown: ArcSwap::default() }
    }

    /// What is known of the composite called `name`; `None`: there is none.
    pub fn report(&self, name: &str) -> Option<Arc<Report>> {
        self.shown.load().in_force.get(name).cloned()
    }

    /// How it stands; `None`: there is none.
    pub fn state(&self, name: &str) -> Option<State> {
        self.shown.load().in_force.get(name).map(|report| report.state)
    }

    /// Of all that do more than observe, by name.
    pub fn reports(&self) -> Vec<Arc<Report>> {
        self.all().0
    }

    /// Of those that do more than observe, and of those that only observe, at one moment; both by name.
    pub fn all(&self) -> (Vec<Arc<Report>>, Vec<Arc<Report>>) {
        let shown = self.shown.load();
        let mut reports: Vec<_> = shown.in_force.values().cloned().collect();
        reports.sort_by(|one, other| one.name.cmp(&other.name));
        (reports, shown.observed.clone())
    }

    /// How one that only observes would stand; `None`: none of this name does.
    pub fn would_be(&self, name: &str) -> Option<State> {
        let shown = self.shown.load();
        let place = shown.observed.binary_search_by(|report| (*report.name).cmp(name)).ok()?;
        Some(shown.observed[place].state)
    }

    /// A reload begins: until [`Composites::follow`] nothing is concluded from pools that change.
    pub fn hold(&self) {
        self.board().is_held = true;
    }

    /// From now on these are the composites, each behind its sources, over pools that stand as `roster` says. Those that
    /// stay keep their state until it is another; one that goes leaves nothing behind. `tried` is all of them as they are
    /// written, where one only observes. One that begins to count, or ends, is as its sources are from the first moment on.
    pub fn follow<R: AsRef<Roster>>(
        &self,
        now: Duration,
        composites: &[config::Composite],
        tried: &[config::Composite],
        roster: impl Fn(&str) -> Option<R>,
    ) {
        let mut board = self.board();
        let standing = |pool: &str| roster(pool).as_ref().map(|roster| standing(roster.as_ref()));
        let mut tree = Tree::new(now, composites, standing);
        // As all of them were that were written.
        let (before, tried_before) = (&board.tree, board.trial.as_ref().map(|trial| &trial.tree));
        let (trial, mut would) = Trial::follow(tried_before.unwrap_or(before), now, tried, standing);
        let mut changes = tree.inherit(before, tried_before);
        (board.tree, board.trial, board.is_held) = (tree, trial, false);
        if !std::mem::replace(&mut board.has_begun, true) {
            // Of those that are there from the start nobody knew anything else.
            [&mut changes, &mut would].into_iter().for_each(|all| all.retain(|change| change.from != Before::New));
        }
        self.show(&board);
        self.tell(&board, &changes, &would);
    }

    /// Tells of what is another, and of what would be and is not all the same.
    fn tell(&self, board: &Board, changes: &[Change], would: &[Change]) {
        changes.iter().for_each(|change| drop(self.events.publish(words::event(change))));
        let Some(trial) = &board.trial else { return };
        for change in would.iter().filter(|would| !changes.iter().any(|change| change.is_like(would))) {
            self.events.publish(mark(words::event(change), &trial.rules(&change.name)));
        }
    }

    /// Lets everybody see how they stand.
    fn show(&self, board: &Board) {
        let in_force = board.tree.reports().map(|report| (report.name.clone(), Arc::new(report))).collect();
        let observed = board.trial.as_ref().map_or_else(Vec::new, Trial::reports);
        self.shown.store(Arc::new(Shown { in_force, observed }));
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        // What was written is whole: a state is noted together with its time.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Onlooker for Composites {
    fn pool_changed(&self, now: Duration, pool: &str, roster: &Roster) {
        let mut board = self.board();
        if board.is_held {
            return;
        }
        let would = board.trial.as_mut().and_then(|trial| trial.tree.pool_changed(now, pool, standing(roster)));
        let changes = board.tree.pool_changed(now, pool, standing(roster));
        if changes.is_none() && would.is_none() {
            return;
        }
        self.show(&board);
        self.tell(&board, &changes.unwrap_or_default(), &would.unwrap_or_default());
    }
}

fn standing(roster: &Roster) -> (State, Count) {
    let census = roster.census();
    (roster.state(), Count { healthy: census.healthy, unknown: census.unknown, total: census.enabled })
}

impl std::fmt::Debug for Composites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Composites").field("shown", &self.shown.load()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
