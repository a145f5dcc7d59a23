//! What the prober has done since it began, and how late it was.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::telemetry::metrics::{LATENESS_BUCKETS, Times};

/// What the prober has done since it began.
#[derive(Debug)]
pub struct Counters {
    /// Probes started.
    pub started: AtomicU64,
    /// Samples that passed.
    pub passed: AtomicU64,
    /// Samples that failed.
    pub failed: AtomicU64,
    /// Of the failed ones, those of members that did not answer at all.
    pub unreachable: AtomicU64,
    /// Probes that taught nothing: cancelled, or failed by a fault of this machine.
    pub inconclusive: AtomicU64,
    /// Probes that were due and had to wait for a place.
    pub late: AtomicU64,
    /// Probes that panicked.
    pub panics: AtomicU64,
    /// Connections that are kept, or in use and will be.
    pub kept: AtomicU64,
    /// By how much probes began after they were due, of those that were planned.
    pub lateness: Times,
}

impl Counters {
    /// Probes that were due and had to wait for a place.
    pub fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }

    /// Probes under way.
    pub fn in_flight(&self) -> u64 {
        let landed = [&self.passed, &self.failed, &self.inconclusive].map(|count| count.load(Relaxed));
        self.started.load(Relaxed).saturating_sub(landed.iter().sum())
    }

    /// Descriptors that probes have, at most: of those in flight some use a connection that is kept.
    pub fn descriptors(&self) -> usize {
        usize::try_from(self.in_flight() + self.kept.load(Relaxed)).unwrap_or(usize::MAX)
    }

    /// Probes that panicked.
    pub fn panicked(&self) -> u64 {
        self.panics.load(Relaxed)
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            started: AtomicU64::default(),
            passed: AtomicU64::default(),
            failed: AtomicU64::default(),
            unreachable: AtomicU64::default(),
            inconclusive: AtomicU64::default(),
            late: AtomicU64::default(),
            panics: AtomicU64::default(),
            kept: AtomicU64::default(),
            lateness: Times::new(LATENESS_BUCKETS),
        }
    }
}
