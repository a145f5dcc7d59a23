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
use crate::telemetry::EventLog;
use tree::Tree;

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

/// By name, and in the order of the names.
type Shown = HashMap<Arc<str>, Arc<Report>>;

/// What only one writer at a time may touch.
#[derive(Default)]
struct Board {
    tree: Tree,
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
        self.shown.load().get(name).cloned()
    }

    /// How it stands; `None`: there is none.
    pub fn state(&self, name: &str) -> Option<State> {
        self.shown.load().get(name).map(|report| report.state)
    }

    /// Of all, by name.
    pub fn reports(&self) -> Vec<Arc<Report>> {
        let mut reports: Vec<_> = self.shown.load().values().cloned().collect();
        reports.sort_by(|one, other| one.name.cmp(&other.name));
        reports
    }

    /// A reload begins: until [`Composites::follow`] nothing is concluded from pools that change.
    pub fn hold(&self) {
        self.board().is_held = true;
    }

    /// From now on these are the composites, each behind its sources, over pools that stand as `roster` says. Those that
    /// stay keep their state until it is another; one that goes leaves nothing behind.
    pub fn follow<R: AsRef<Roster>>(
        &self,
        now: Duration,
        composites: &[config::Composite],
        roster: impl Fn(&str) -> Option<R>,
    ) {
        let mut board = self.board();
        let mut tree = Tree::new(now, composites, |pool| roster(pool).as_ref().map(|roster| standing(roster.as_ref())));
        let changes = tree.inherit(&board.tree);
        board.tree = tree;
        board.is_held = false;
        // Of those that are there from the start nobody knew anything else.
        let is_reload = std::mem::replace(&mut board.has_begun, true);
        self.show(&board);
        let told = changes.iter().filter(|change| is_reload || change.from.is_some());
        told.for_each(|change| drop(self.events.publish(words::event(change))));
    }

    /// Lets everybody see how they stand.
    fn show(&self, board: &Board) {
        let reports = board.tree.reports().map(|report| (report.name.clone(), Arc::new(report)));
        self.shown.store(Arc::new(reports.collect()));
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
        let Some(changes) = board.tree.pool_changed(now, pool, standing(roster)) else { return };
        self.show(&board);
        changes.iter().for_each(|change| drop(self.events.publish(words::event(change))));
    }
}

fn standing(roster: &Roster) -> (State, Count) {
    let census = roster.census();
    (roster.state(), Count { healthy: census.healthy, unknown: census.unknown, total: census.enabled })
}

impl std::fmt::Debug for Composites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Composites").field("names", &self.shown.load().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
