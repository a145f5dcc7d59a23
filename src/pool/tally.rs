//! What a pool and each of its members have been through, in numbers: for the metrics, which read them at a scrape.
//!
//! They belong to whom they are about, survive reloads as that does, and are gone with it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Binding;
use crate::health::{Outcome, Reason, Verdict};
use crate::telemetry::AttemptResult;
use crate::telemetry::metrics::{DIAL_BUCKETS, REQUEST_BUCKETS, Rare, Times};

/// Of a pool.
#[derive(Debug)]
pub struct PoolTally {
    /// What requests took.
    pub requests: Times,
    /// What new connections took.
    pub dials: Times,
    retries: Rare<{ AttemptResult::ALL.len() }>,
    fallbacks: AtomicU64,
    bindings: Rare<{ Binding::ALL.len() }>,
}

impl PoolTally {
    pub(super) fn new() -> PoolTally {
        PoolTally {
            requests: Times::new(REQUEST_BUCKETS),
            dials: Times::new(DIAL_BUCKETS),
            retries: Rare::default(),
            fallbacks: AtomicU64::new(0),
            bindings: Rare::default(),
        }
    }

    /// Another attempt follows one that ended so.
    pub fn retries_after(&self, result: AttemptResult) {
        self.retries.count(result as usize);
    }

    /// Attempts that followed one that ended so.
    pub fn retries(&self, after: AttemptResult) -> u64 {
        self.retries.read(after as usize)
    }

    /// A client was told whom it is bound to, for this reason.
    pub fn binds(&self, why: Binding) {
        self.bindings.count(why as usize);
    }

    /// Cookies that were set for this reason.
    pub fn bindings(&self, why: Binding) -> u64 {
        self.bindings.read(why as usize)
    }

    pub(super) fn falls_back(&self) {
        self.fallbacks.fetch_add(1, Relaxed);
    }

    /// How often it entered the fallback.
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Relaxed)
    }
}

/// Of a member. What is usual has its place at once, everything else once it happens.
#[derive(Debug, Default)]
pub struct MemberTally {
    attempts_ok: AtomicU64,
    attempts: Rare<{ AttemptResult::ALL.len() }>,
    passes: AtomicU64,
    inconclusive: AtomicU64,
    fails: Rare<{ Reason::ALL.len() }>,
    recoveries: AtomicU64,
    /// By reason, and one more for none.
    failures: Rare<{ Reason::ALL.len() + 1 }>,
    resets: AtomicU64,
    hastened: AtomicU64,
    bans: AtomicU64,
}

impl MemberTally {
    /// An attempt at it is over.
    pub fn attempt_ends(&self, result: AttemptResult) {
        match result {
            AttemptResult::Ok => drop(self.attempts_ok.fetch_add(1, Relaxed)),
            other => self.attempts.count(other as usize),
        }
    }

    /// Attempts that ended so.
    pub fn attempts(&self, result: AttemptResult) -> u64 {
        match result {
            AttemptResult::Ok => self.attempts_ok.load(Relaxed),
            other => self.attempts.read(other as usize),
        }
    }

    /// A probe of it was asked for, since traffic had met it failing.
    pub fn probe_is_hastened(&self) {
        self.hastened.fetch_add(1, Relaxed);
    }

    /// Traffic has put it out.
    pub(super) fn is_banned(&self) {
        self.bans.fetch_add(1, Relaxed);
    }

    /// How often traffic has put it out.
    pub fn bans(&self) -> u64 {
        self.bans.load(Relaxed)
    }

    /// Probes that were asked for so.
    pub fn hastened(&self) -> u64 {
        self.hastened.load(Relaxed)
    }

    pub(super) fn probe_ends(&self, outcome: Outcome) {
        match outcome {
            Outcome::Pass => drop(self.passes.fetch_add(1, Relaxed)),
            Outcome::Inconclusive => drop(self.inconclusive.fetch_add(1, Relaxed)),
            Outcome::Fail(reason) => self.fails.count(reason as usize),
        }
    }

    /// Probes that ended so.
    pub fn probes(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Pass => self.passes.load(Relaxed),
            Outcome::Inconclusive => self.inconclusive.load(Relaxed),
            Outcome::Fail(reason) => self.fails.read(reason as usize),
        }
    }

    pub(super) fn verdict_becomes(&self, to: Verdict, cause: Option<Reason>) {
        match to {
            Verdict::Healthy => drop(self.recoveries.fetch_add(1, Relaxed)),
            Verdict::Unknown => drop(self.resets.fetch_add(1, Relaxed)),
            Verdict::Unhealthy => self.failures.count(place(cause)),
        }
    }

    /// How often its verdict became this one; of the unhealthy ones, for this reason.
    pub fn verdicts(&self, to: Verdict, cause: Option<Reason>) -> u64 {
        match to {
            Verdict::Healthy => self.recoveries.load(Relaxed),
            Verdict::Unknown => self.resets.load(Relaxed),
            Verdict::Unhealthy => self.failures.read(place(cause)),
        }
    }
}

fn place(cause: Option<Reason>) -> usize {
    cause.map_or(Reason::ALL.len(), |reason| reason as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_happens_has_a_count_of_its_own() {
        let member = MemberTally::default();
        let outcomes: Vec<Outcome> =
            Reason::ALL.into_iter().map(Outcome::Fail).chain([Outcome::Pass, Outcome::Inconclusive]).collect();
        let causes: Vec<_> = Reason::ALL.into_iter().map(Some).chain([None]).collect();
        for (n, result) in AttemptResult::ALL.into_iter().enumerate() {
            (0..n).for_each(|_| member.attempt_ends(result));
        }
        for (n, outcome) in outcomes.iter().enumerate() {
            (0..n).for_each(|_| member.probe_ends(*outcome));
        }
        for (n, cause) in causes.iter().enumerate() {
            (0..n).for_each(|_| member.verdict_becomes(Verdict::Unhealthy, *cause));
        }
        member.verdict_becomes(Verdict::Healthy, None);
        assert!(
            AttemptResult::ALL.into_iter().map(|result| member.attempts(result)).eq(0..AttemptResult::ALL.len() as u64)
        );
        assert!(outcomes.iter().map(|outcome| member.probes(*outcome)).eq(0..outcomes.len() as u64));
        assert!(causes.iter().map(|cause| member.verdicts(Verdict::Unhealthy, *cause)).eq(0..causes.len() as u64));
        assert_eq!((member.verdicts(Verdict::Healthy, None), member.verdicts(Verdict::Unknown, None)), (1, 0));
    }
}
