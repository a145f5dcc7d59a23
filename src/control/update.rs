//! What sources say while a generation lasts, into its pools: only those that it concerns, and only their members.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::{Control, prepare};
use crate::clock;
use crate::discovery::supervised;
use crate::snapshot::{Found, Located, Snapshot};

/// Answers that come together are taken together.
const GATHER: Duration = Duration::from_millis(20);

/// Members of each kind that a line names.
const SHOWN: usize = 10;

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
            tell_of_shared(name, found, &before);
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

/// One line for a pool whose members are others: how many have come and gone, and who the first of them are.
pub(super) fn tell(pool: &str, now: &Found, before: &Found) {
    if now.agrees(before, pool) {
        return;
    }
    let (now, before) = (now.of(pool), before.of(pool));
    // Two names of one address are told apart; who has an address alone is called by it.
    let mut names: HashMap<String, BTreeSet<&str>> = HashMap::new();
    for located in now.iter().chain(before) {
        names.entry(located.label()).or_default().insert(&located.member.name);
    }
    let called = |located: &Located| {
        let label = located.label();
        if names[&label].len() > 1 { format!("{label} {}", located.member.name) } else { label }
    };
    let called = |found: &[Located]| found.iter().map(called).collect::<BTreeSet<String>>();
    let (now, before) = (called(now), called(before));
    let (added, removed) = (Few::of(now.difference(&before)), Few::of(before.difference(&now)));
    let words = match (added.count, removed.count) {
        (0, 0) => "weights, tiers or states".to_owned(),
        (_, 0) => format!("{added} added"),
        (0, _) => format!("{removed} removed"),
        _ => format!("{added} added, {removed} removed"),
    };
    tracing::info!(
        target: "discovery", kind = "pool", pool, added = %added, added_count = added.count, removed = %removed,
        removed_count = removed.count, members = now.len(), "members of {pool} changed: {words}"
    );
}

/// Warns where several names of a pool lead to one address now, and none did before: it is one server with the share, the
/// probes and the limits of several.
pub(super) fn tell_of_shared(pool: &str, now: &Found, before: &Found) {
    let shared = now.shared_addresses(pool);
    if shared.is_empty() || !before.shared_addresses(pool).is_empty() {
        return;
    }
    let shown: Vec<_> = shared.iter().map(|(address, names)| format!("{address} ({})", names.join(" and "))).collect();
    let shown = Few::of(shown.iter());
    tracing::warn!(
        target: "discovery", pool, shared = %shown, shared_count = shown.count,
        "names of {pool} lead to the same address: {shown}; each is a member with a share, probes and limits of its own"
    );
}

/// The first of many: a line must stay one that somebody can read.
#[derive(Debug)]
pub struct Few<'a> {
    first: Vec<&'a str>,
    count: usize,
}

impl<'a> Few<'a> {
    /// The first of `all`; how many more there are is told with them.
    pub fn of(all: impl Iterator<Item = &'a String>) -> Few<'a> {
        let mut few = Few { first: Vec::new(), count: 0 };
        for one in all {
            if few.count < SHOWN {
                few.first.push(one);
            }
            few.count += 1;
        }
        few
    }

    /// `there are web, api`, for who asked for another one.
    pub fn there_are(&self) -> String {
        match self.count {
            0 => "there is none".to_owned(),
            1 => format!("there is {self}"),
            _ => format!("there are {self}"),
        }
    }
}

impl std::fmt::Display for Few<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_only_the_first_are_named() {
        let labels: Vec<String> = (0..30_000).map(|n| format!("m{n}")).collect();
        let shown = |count: usize| Few::of(labels[..count].iter()).to_string();
        assert_eq!([shown(0), shown(1), shown(2)], ["", "m0", "m0, m1"]);
        assert!(shown(SHOWN).ends_with("m9") && shown(SHOWN + 1).ends_with("m9 and 1 more"));
        assert!(shown(30_000).ends_with("m9 and 29990 more"));
        let there = |count: usize| Few::of(labels[..count].iter()).there_are();
        assert_eq!([there(0), there(1), there(2)], ["there is none", "there is m0", "there are m0, m1"]);
    }
}
