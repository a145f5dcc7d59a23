//! The retry budget: how many requests may be sent a second time.
//!
//! Each request earns a fraction of a retry, each retry spends a whole one, and what is saved up is bounded: a pool
//! whose members all fail gets at most that share of traffic on top, however long it lasts (case C42).

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

/// One retry, in the units the budget counts in: a request earns `percent` of them.
const RETRY: i64 = 100;
/// At most this many retries are saved up, and a new pool begins with as many.
const SAVED: i64 = 10;

/// Retries left. Readers and writers are requests; no lock.
#[derive(Debug)]
pub struct Budget {
    percent: AtomicU32,
    credit: AtomicI64,
}

impl Budget {
    /// A full budget that earns `percent` of a retry with each request.
    pub fn new(percent: u32) -> Budget {
        let credit = if percent == 0 { 0 } else { SAVED * RETRY };
        Budget { percent: AtomicU32::new(percent), credit: AtomicI64::new(credit) }
    }

    /// Another percentage, from a reload.
    pub fn set_percent(&self, percent: u32) {
        self.percent.store(percent, Relaxed);
    }

    /// A request came.
    pub fn earn(&self) {
        let percent = i64::from(self.percent.load(Relaxed));
        if self.credit.load(Relaxed) < SAVED * RETRY {
            self.credit.fetch_add(percent, Relaxed);
        }
    }

    /// Takes one retry out; false when there is none left.
    pub fn spend(&self) -> bool {
        if self.percent.load(Relaxed) == 0 {
            return false;
        }
        self.credit.fetch_update(Relaxed, Relaxed, |credit| (credit >= RETRY).then_some(credit - RETRY)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_stay_within_their_share_of_requests() {
        let budget = Budget::new(20);
        let retries = (0..1000).filter(|_| {
            budget.earn();
            budget.spend()
        });
        assert_eq!(retries.count(), 10 + 200 - 1, "what was saved, and a fifth of the requests");
    }

    #[test]
    fn savings_are_bounded() {
        let budget = Budget::new(50);
        (0..10_000).for_each(|_| budget.earn());
        assert_eq!((0..1000).filter(|_| budget.spend()).count() as i64, SAVED);
    }

    #[test]
    fn no_percentage_means_no_retry() {
        let budget = Budget::new(0);
        budget.earn();
        assert!(!budget.spend());
    }
}
