//! Latency: a member's own, and the gates that make a right answer a slow one (health.md §5).
//!
//! Not here: who counts as "the others" (`pool`), and routing by latency (`balance`).

use std::collections::VecDeque;
use std::time::Duration;

use super::Gates;

/// Fewer others than this cannot say what is normal.
const QUORUM: usize = 3;

/// The totals of a member's last right answers.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    last: VecDeque<Duration>,
    median: Option<Duration>,
}

impl Totals {
    /// One more right answer; the last `keep` count.
    pub(super) fn push(&mut self, total: Duration, keep: usize) {
        if self.last.len() >= keep {
            self.last.drain(..=self.last.len() - keep);
        } else if self.last.is_empty() {
            self.last.reserve_exact(keep);
        }
        self.last.push_back(total);
        self.median = lower_median(self.last.make_contiguous());
    }

    /// Only the last `keep` count from now on.
    pub(super) fn shorten(&mut self, keep: usize) {
        if self.last.len() > keep {
            self.last.drain(..self.last.len() - keep);
            self.median = lower_median(self.last.make_contiguous());
        }
    }

    /// Another probe's totals say nothing about this one's.
    pub(super) fn clear(&mut self) {
        *self = Totals::default();
    }

    /// As it was left.
    pub(super) fn resumed(totals: Vec<Duration>) -> Totals {
        let median = if totals.is_empty() { None } else { lower_median(&totals) };
        Totals { last: totals.into(), median }
    }

    /// All of them, oldest first.
    pub(super) fn all(&self) -> Vec<Duration> {
        self.last.iter().copied().collect()
    }

    /// The lower middle one.
    pub(super) fn median(&self) -> Option<Duration> {
        self.median
    }
}

/// The absolute gate, if `total` is over it.
pub(super) fn over_absolute(gates: &Gates, total: Duration) -> Option<Duration> {
    gates.max_latency.filter(|gate| total > *gate)
}

/// Whether `total` is over `max_latency_ratio` × the lower median of the `others`.
///
/// Counts instead of sorting: the median is under a limit exactly when the lower half is. So a probe of a pool of 10,000
/// costs one walk, without an allocation, and nothing at all while it is under the floor.
pub(super) fn over_relative(gates: &Gates, total: Duration, others: impl Iterator<Item = Duration>) -> bool {
    let Some(ratio) = gates.max_latency_ratio else { return false };
    if total <= gates.latency_floor {
        return false;
    }
    let (mut all, mut under) = (0, 0);
    for other in others {
        all += 1;
        under += usize::from(nanos(total) > ratio * nanos(other));
    }
    all >= QUORUM && under > (all - 1) / 2
}

/// What the relative gate came to, for the words of a sample that is over it.
pub(super) fn relative_gate(gates: &Gates, others: impl Iterator<Item = Duration>) -> Duration {
    let mut totals: Vec<Duration> = others.collect();
    let Some(middle) = totals.len().checked_sub(1).map(|last| last / 2) else { return gates.latency_floor };
    let gate = gates.max_latency_ratio.unwrap_or(1.0) * nanos(*totals.select_nth_unstable(middle).1);
    gates.latency_floor.max(Duration::from_nanos(gate as u64))
}

/// Why a right answer failed, for people.
pub(super) fn over(total: Duration, gate: Duration, key: &str) -> String {
    let ms = |duration: Duration| duration.as_micros() as f64 / 1000.0;
    format!("answered in {} ms, {key} allows {} ms", ms(total), ms(gate))
}

/// Nanoseconds are exact in a double up to 104 days, and unlike `Duration::mul_f64` their product cannot panic.
fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

/// The lower middle; a window has at most 64 places.
fn lower_median(totals: &[Duration]) -> Option<Duration> {
    let mut sorted = [Duration::ZERO; 64];
    let count = totals.len().min(sorted.len());
    sorted[..count].copy_from_slice(&totals[..count]);
    let middle = count.checked_sub(1)? / 2;
    Some(*sorted[..count].select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_median_is_the_lower_middle_of_the_last_few() {
        let rows: [(&[u64], usize, Option<u64>); 7] = [
            (&[], 5, None),
            (&[7], 5, Some(7)),
            (&[7, 9], 5, Some(7)),
            (&[9, 7, 8], 5, Some(8)),
            (&[4, 1, 3, 2], 5, Some(2)),
            (&[100, 100, 100, 1, 2, 3, 4, 5], 5, Some(3)),
            (&[9, 5], 1, Some(5)),
        ];
        for (totals, keep, expected) in rows {
            let mut kept = Totals::default();
            totals.iter().for_each(|total| kept.push(ms(*total), keep));
            assert_eq!(kept.median(), expected.map(ms), "{totals:?} keep {keep}");
        }
    }

    #[test]
    fn a_shorter_window_keeps_the_newest() {
        let mut kept = Totals::default();
        [1, 2, 3, 40, 50].iter().for_each(|total| kept.push(ms(*total), 5));
        kept.shorten(2);
        assert_eq!(kept.median(), Some(ms(40)));
        kept.shorten(64);
        assert_eq!(kept.median(), Some(ms(40)));
        kept.push(ms(60), 2);
        assert_eq!(kept.median(), Some(ms(50)));
        kept.clear();
        assert_eq!(kept.median(), None);
    }

    #[test]
    fn a_gate_bites_over_and_not_at() {
        let gates = Gates { max_latency: Some(ms(500)), ..Gates::default() };
        assert_eq!(over_absolute(&gates, ms(500)), None);
        assert_eq!(over_absolute(&gates, ms(501)), Some(ms(500)));
        assert_eq!(over_absolute(&Gates::default(), ms(60_000)), None);
    }

    #[test]
    fn the_relative_gate_needs_three_others_and_leaves_the_floor_alone() {
        let gates = Gates { max_latency_ratio: Some(3.0), ..Gates::default() };
        let rows: [(u64, &[u64], bool); 9] = [
            (180, &[60, 60, 60, 60], false),
            (181, &[60, 60, 60, 60], true),
            (181, &[60, 60], false),
            (181, &[], false),
            // the lower middle of an even number
            (240, &[60, 60, 240, 240], true),
            (240, &[60, 240, 240, 240], false),
            // never under 50 ms
            (50, &[1, 1, 1], false),
            (51, &[1, 1, 1], true),
            (51, &[0, 0, 0], true),
        ];
        for (total, others, expected) in rows {
            let over = over_relative(&gates, ms(total), others.iter().map(|other| ms(*other)));
            assert_eq!(over, expected, "{total} of {others:?}");
        }
        assert!(!over_relative(&Gates::default(), ms(9_000), [1, 1, 1].map(ms).into_iter()));
    }
}
