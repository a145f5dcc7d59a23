//! What sources say while a generation lasts, into its pools: only those that it concerns, and only their members.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{Control, prepare};
use crate::clock;
use crate::discovery::supervised;
use crate::snapshot::{Found, Snapshot};

/// Answers that come together are taken together.
const GATHER: Duration = Duration::from_millis(20);

/// Has the pools keep up with their sources, for as long as the process serves.
pub fn keep_up(control: &Arc<Control>) -> tokio::task::AbortHandle {
    let (watched, restarts): (_, Arc<AtomicU64>) = (Arc::downgrade(control), control.desk.restarts().clone());
    supervised("the members of pools".to_owned(), restarts, move || {
        let watched = watched.clone();
        async move {
            let Some(mut learnt) = watched.upgrade().map(|control| control.desk.learnt()) else { return };
            // What was learnt before the look began is seen by the first one.
            loop {
                match watched.upgrade() {
                    Some(control) if !control.is_draining() => control.look().await,
                    _ => return,
                }
                if learnt.changed().await.is_err() {
                    return;
                }
                tokio::time::sleep(GATHER).await;
                learnt.mark_unchanged();
            }
        }
    })
}

impl Control {
    /// Takes what sources say now. Where a reload comes between looking and taking, it looks again.
    async fn look(&self) {
        loop {
            let seen = self.snapshot();
            let before = self.following().prepared.found.clone();
            let found = self.desk.found_again(&seen.config, &before).await;
            if self.readdress(&seen, found) {
                return;
            }
        }
    }

    /// Takes who is a member now, unless the generation is not the one `seen` any more.
    fn readdress(&self, seen: &Snapshot, found: Found) -> bool {
        let mut following = self.following();
        let snapshot = self.snapshot();
        if snapshot.generation != seen.generation {
            return false;
        }
        let before = std::mem::replace(&mut following.prepared.found, found);
        let found = &following.prepared.found;
        let now = clock::monotonic();
        let concerned = snapshot.pools.iter().filter(|(name, _)| !found.agrees(&before, name));
        let mut changed = false;
        for (name, served) in concerned {
            tell(name, found, &before);
            prepare::tell_of_odd(&served.config, &following.prepared, &before);
            served.readdress(now, found.of(name));
            changed = true;
        }
        if changed {
            self.follow(&mut following);
        }
        true
    }
}

/// One line for a pool: who has come, and who has gone.
fn tell(pool: &str, now: &Found, before: &Found) {
    let labels = |found: &Found| found.of(pool).iter().map(|located| located.label()).collect::<BTreeSet<String>>();
    let (now, before) = (labels(now), labels(before));
    let less = |one: &BTreeSet<String>, other: &BTreeSet<String>| -> String {
        one.difference(other).cloned().collect::<Vec<_>>().join(", ")
    };
    let (added, removed, members) = (less(&now, &before), less(&before, &now), now.len());
    let words = match (added.is_empty(), removed.is_empty()) {
        (false, false) => format!("{added} added, {removed} removed"),
        (false, true) => format!("{added} added"),
        (true, false) => format!("{removed} removed"),
        (true, true) => "weights, tiers or states".to_owned(),
    };
    tracing::info!(target: "discovery", kind = "pool", pool, added, removed, members, "members of {pool} changed: {words}");
}
