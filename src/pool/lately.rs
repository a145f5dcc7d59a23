//! What traffic has seen of a member lately: failures in a row, and requests and failures within a window.
//!
//! Atomics alone: a success takes no lock. The window is a ring of slots, each counting for a tenth of it.
//! Not here: how many are too many (`health`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::health::Seen;

/// Parts of the window: what is shown reaches back for nine to ten of them.
const SLOTS: u64 = 10;

/// Bits of a slot: failures lowest, then requests, then which tenth they are of.
const BITS: u32 = 20;
const MOST: u64 = (1 << BITS) - 1;
const TIMES: u64 = (1 << 24) - 1;

/// Of one member.
#[derive(Debug, Default)]
pub(super) struct Lately {
    in_a_row: AtomicU32,
    slots: [AtomicU64; SLOTS as usize],
}

impl Lately {
    pub(super) fn succeeds(&self, now: Duration, window: Duration) {
        // Read first: a line that many write to is dear.
        if self.in_a_row.load(Relaxed) > 0 {
            self.in_a_row.store(0, Relaxed);
        }
        self.count(time(now, window), 0);
    }

    /// Answers with what was seen, this failure included.
    pub(super) fn fails(&self, now: Duration, window: Duration) -> Seen {
        let in_a_row = self.in_a_row.fetch_add(1, Relaxed).saturating_add(1);
        let present = time(now, window);
        self.count(present, 1);
        let (mut requests, mut failures) = (0, 0);
        for slot in &self.slots {
            let (of, seen, failed) = unpacked(slot.load(Relaxed));
            if present.wrapping_sub(of) & TIMES < SLOTS {
                requests += seen as u32;
                failures += failed as u32;
            }
        }
        Seen { in_a_row, requests, failures }
    }

    /// It begins anew.
    pub(super) fn forget(&self) {
        self.in_a_row.store(0, Relaxed);
        self.slots.iter().for_each(|slot| slot.store(0, Relaxed));
    }

    /// It goes on from where the `other` is.
    pub(super) fn follow(&self, other: &Lately) {
        self.in_a_row.store(other.in_a_row.load(Relaxed), Relaxed);
        let both = self.slots.iter().zip(&other.slots);
        both.for_each(|(slot, other)| slot.store(other.load(Relaxed), Relaxed));
    }

    fn count(&self, present: u64, failures: u64) {
        let counted = |slot: u64| {
            let (of, seen, failed) = unpacked(slot);
            let (seen, failed) = if of == present & TIMES { (seen, failed) } else { (0, 0) };
            Some(packed(present & TIMES, (seen + 1).min(MOST), (failed + failures).min(MOST)))
        };
        let _ = self.slots[(present % SLOTS) as usize].fetch_update(Relaxed, Relaxed, counted);
    }
}

/// Which tenth of a window it is, counted from 1 so that an empty slot is of none.
fn time(now: Duration, window: Duration) -> u64 {
    let slot = (window.as_micros() as u64 / SLOTS).max(1);
    now.as_micros() as u64 / slot + SLOTS
}

fn packed(of: u64, seen: u64, failed: u64) -> u64 {
    of << (2 * BITS) | seen << BITS | failed
}

fn unpacked(slot: u64) -> (u64, u64, u64) {
    (slot >> (2 * BITS), slot >> BITS & MOST, slot & MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_success_ends_the_row_and_not_the_share() {
        let lately = Lately::default();
        assert_eq!(lately.fails(seconds(0), WINDOW), Seen { in_a_row: 1, requests: 1, failures: 1 });
        assert_eq!(lately.fails(seconds(1), WINDOW), Seen { in_a_row: 2, requests: 2, failures: 2 });
        lately.succeeds(seconds(2), WINDOW);
        assert_eq!(lately.fails(seconds(3), WINDOW), Seen { in_a_row: 1, requests: 4, failures: 3 });
        let other = Lately::default();
        other.follow(&lately);
        lately.forget();
        assert_eq!(lately.fails(seconds(3), WINDOW), Seen { in_a_row: 1, requests: 1, failures: 1 });
        assert_eq!(other.fails(seconds(3), WINDOW), Seen { in_a_row: 2, requests: 5, failures: 4 });
    }

    #[test]
    fn what_is_older_than_the_window_is_not_seen_however_long_ago() {
        for later in [10, 11, 1_000, 1_000_000, 20_000_000] {
            let lately = Lately::default();
            (0..100).for_each(|_| lately.succeeds(seconds(5), WINDOW));
            assert_eq!(lately.fails(seconds(14), WINDOW).requests, 101);
            assert_eq!(lately.fails(seconds(14 + later), WINDOW).requests, 1, "{later} s later");
        }
    }

    #[test]
    fn many_at_once_are_all_counted() {
        let lately = Lately::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| lately.succeeds(seconds(1), WINDOW)));
            }
        });
        assert_eq!(lately.fails(seconds(1), WINDOW).requests, 40_001);
    }
}
