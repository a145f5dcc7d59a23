//! All routes with several pools of the present generation: told of pools, and let time pass in.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::switch::Concern;
use super::{Composites, Switch};
use crate::health::State;
use crate::pool::{Onlooker, Roster};

/// One for the process; the switches it knows are those of the present generation.
pub struct Switchboard {
    composites: Box<dyn Fn(&str) -> State + Send + Sync>,
    present: ArcSwap<Lines>,
    stirred: Notify,
}

/// The switches, and who of them looks at a pool.
#[derive(Debug, Default)]
struct Lines {
    all: Vec<Arc<Switch>>,
    by_pool: HashMap<Arc<str>, Vec<Arc<Switch>>>,
    /// They look at every change: they go by composites.
    by_any: Vec<Arc<Switch>>,
}

impl Switchboard {
    /// Without any switch; `composites` says how the composite of a name stands, without a lock.
    pub fn new(composites: impl Fn(&str) -> State + Send + Sync + 'static) -> Switchboard {
        Switchboard { composites: Box::new(composites), present: ArcSwap::default(), stirred: Notify::new() }
    }

    /// How the composite of this name stands.
    pub fn composites(&self) -> Composites<'_> {
        &*self.composites
    }

    /// From now on these are the switches. Each looks once more: something may have changed since it was made. Those without
    /// a choice have nothing to look at later.
    pub fn follow(&self, now: Duration, switches: Vec<Arc<Switch>>) {
        let mut lines = Lines::default();
        let (choices, alone): (Vec<_>, Vec<_>) = switches.into_iter().partition(|switch| switch.is_choice());
        for switch in &choices {
            match switch.concern() {
                Concern::All => lines.by_any.push(switch.clone()),
                Concern::Pools(mut pools) => {
                    pools.sort_unstable();
                    pools.dedup();
                    pools.into_iter().for_each(|pool| lines.by_pool.entry(pool).or_default().push(switch.clone()));
                }
            }
        }
        let lines = Arc::new(Lines { all: choices, ..lines });
        self.present.store(lines.clone());
        for switch in lines.all.iter().chain(&alone) {
            switch.look(now, self.composites());
        }
        self.stirred.notify_one();
    }

    /// Lets time pass.
    pub fn advance(&self, now: Duration) {
        self.present.load().all.iter().for_each(|switch| switch.advance(now, self.composites()));
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

impl fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switchboard").field("present", &self.present).finish_non_exhaustive()
    }
}

impl Onlooker for Switchboard {
    fn pool_changed(&self, now: Duration, pool: &str, _roster: &Roster) {
        let lines = self.present.load();
        let concerned = lines.by_pool.get(pool).map_or(&[][..], Vec::as_slice);
        let mut stirred = false;
        for switch in concerned.iter().chain(&lines.by_any) {
            stirred |= switch.look(now, self.composites());
        }
        if stirred {
            self.stirred.notify_one();
        }
    }
}
