//! Who is due for replacement right now, for whoever tells others of it.
//!
//! The list of who waits is as old as the last look: who has passed since is not due, whatever it says. Whose replacement has
//! failed is due until it passes, though for want of a new chance it does not wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::desk::{By, Concern};
use super::{Remediator, judges};
use crate::clock;
use crate::health::replacement::Who;
use crate::health::{Member, Verdict};
use crate::snapshot::Snapshot;

impl Remediator {
    /// Who is due for replacement or being replaced: pool and member, as the pool shows it. An event that tells of a change
    /// comes after it. `None`: the process is ending, and nobody is looked at any more.
    pub fn due(&self) -> Option<BTreeSet<(Arc<str>, Arc<str>)>> {
        if self.is_ending.load(Relaxed) {
            return None;
        }
        let (snapshot, concerned) = (self.snapshot.load(), self.desk().concerned());
        let concerned: Vec<(Who, Concern)> = concerned.into_iter().collect();
        let by_pool = concerned.chunk_by(|((one, _), _), ((other, _), _)| one == other);
        Some(by_pool.flat_map(|of_one| due_in(&snapshot, of_one)).collect())
    }
}

/// Of these members of one pool.
fn due_in(snapshot: &Snapshot, concerned: &[(Who, Concern)]) -> Vec<(Arc<str>, Arc<str>)> {
    let pool = concerned.first().and_then(|((pool, _), _)| snapshot.pools.get(&**pool));
    let Some(served) = pool.filter(|served| judges(served)) else { return Vec::new() };
    let Some(remediation) = &served.config.remediation else { return Vec::new() };
    let now = clock::monotonic();
    served.live.read(|health, members| {
        let of = |((pool, id), concern): &(Who, Concern)| {
            let index = health.index_of(*id)?;
            let is_due = is_due(now, &health.members()[index], *concern, remediation.after);
            is_due.then(|| (pool.clone(), members[index].label().clone()))
        };
        concerned.iter().filter_map(of).collect()
    })
}

fn is_due(now: Duration, member: &Member, concern: Concern, after: Duration) -> bool {
    let is_healthy = member.judged() == Verdict::Healthy;
    match concern {
        Concern::Waits => now >= member.unpassed_since().saturating_add(after),
        // An operator wants it however it is.
        Concern::Runs(by) => by == By::Hand || !is_healthy,
        Concern::Failed(began) => !is_healthy && member.unpassed_since() <= began,
    }
}
