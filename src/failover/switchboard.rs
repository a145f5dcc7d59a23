//! All routes with several pools of the present generation: told of pools, and let time pass in.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Switch;
use crate::pool::{Onlooker, Roster};

/// One for the process; the switches it knows are those of the present generation.
#[derive(Debug, Default)]
pub struct Switchboard {
    present: ArcSwap<Lines>,
    stirred: Notify,
}

/// The switches, and who of them looks at a pool.
#[derive(Debug, Default)]
struct Lines {
    all: Vec<Arc<Switch>>,
    by_pool: HashMap<Arc<str>, Vec<Arc<Switch>>>,
}

impl Switchboard {
    /// From now on these are the switches. Each looks once more: something may have changed since it was made.
    pub fn follow(&self, now: Duration, switches: Vec<Arc<Switch>>) {
        let mut by_pool: HashMap<Arc<str>, Vec<Arc<Switch>>> = HashMap::new();
        for switch in &switches {
            let mut pools = switch.pools();
            pools.sort_unstable();
            pools.dedup();
            pools.into_iter().for_each(|pool| by_pool.entry(pool).or_default().push(switch.clone()));
        }
        let lines = Arc::new(Lines { all: switches, by_pool });
        self.present.store(lines.clone());
        for switch in &lines.all {
            switch.look(now);
        }
        self.stirred.notify_one();
    }

    /// Lets time pass.
    pub fn advance(&self, now: Duration) {
        self.present.load().all.iter().for_each(|switch| switch.advance(now));
    }

    /// When [`Switchboard::advance`] will next have something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.present.load().all.iter().filter_map(|switch| switch.next_deadline()).min()
    }

    /// Resolves when [`Switchboard::next_deadline`] may be another than it was; once for all that happened before.
    pub fn stirred(&self) -> Notified<'_> {
        self.stirred.notified()
    }
}

impl Onlooker for Switchboard {
    fn pool_changed(&self, now: Duration, pool: &str, _roster: &Roster) {
        let lines = self.present.load();
        let concerned = lines.by_pool.get(pool).map_or(&[][..], Vec::as_slice);
        let mut stirred = false;
        concerned.iter().for_each(|switch| stirred |= switch.look(now));
        if stirred {
            self.stirred.notify_one();
        }
    }
}
