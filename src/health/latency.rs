//! Latency: a member's own, and the gates that make a right answer a slow one (health.md §5).
//!
//! Not here: who counts as "the others" (`pool`), and routing by latency (`balance`).

use std::collections::VecDeque;
use std::time::Duration;

use super::{Gates, Phases};

/// Fewer others than this cannot say what is normal.
const QUORUM: usize = 3;

/// The times of a member's last right answers.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    last: VecDeque<Duration>,
    median: Option<Duration>,
    /// Of the same answers, the phases before the total: shown to people, so no median of them is kept.
    phases: VecDeque<[Short; 3]>,
}

/// A time in microseconds, of which a pool of 10,000 has many; [`Short::MAX`]: it did not come to that.
type Short = u32;

impl Times {
    /// One more right answer; the last `keep` count.
    pub(super) fn push(&mut self, took: Phases, keep: usize) {
        if self.last.len() >= keep {
            self.drop_oldest(self.last.len() - keep + 1);
        } else if self.last.is_empty() {
            self.last.reserve_exact(keep);
            self.phases.reserve_exact(keep);
        }
        self.last.push_back(took.total);
        self.phases.push_back([took.connect, took.tls, took.first_byte].map(short));
        self.median = lower_median(self.last.make_contiguous());
    }

    fn drop_oldest(&mut self, count: usize) {
        self.last.drain(..count);
        self.phases.drain(..count);
    }

    /// Only the last `keep` count from now on.
    pub(super) fn shorten(&mut self, keep: usize) {
        if self.last.len() > keep {
            self.drop_oldest(self.last.len() - keep);
            self.median = lower_median(self.last.make_contiguous());
        }
    }

    /// Another probe's totals say nothing about this one's.
    pub(super) fn clear(&mut self) {
        *self = Times::default();
    }

    /// As it was left, without the phases, which nobody has kept.
    pub(super) fn resumed(totals: Vec<Duration>) -> Times {
        let median = if totals.is_empty() { None } else { lower_median(&totals) };
        let phases = totals.iter().map(|_| [Short::MAX; 3]).collect();
        Times { last: totals.into(), median, phases }
    }

    /// All of them, oldest first.
    pub(super) fn all(&self) -> Vec<Duration> {
        self.last.iter().copied().collect()
    }

    /// The lower middle one.
    pub(super) fn median(&self) -> Option<Duration> {
        self.median
    }

    /// The same for each phase, among the answers that came to it: with a connection that is kept, few dial.
    pub(super) fn medians(&self) -> Option<Phases> {
        let of = |phase: usize| {
            let known = self.phases.iter().map(|phases| phases[phase]).filter(|took| *took != Short::MAX);
            let known: Vec<Duration> = known.map(|took| Duration::from_micros(took.into())).collect();
            lower_median(&known)
        };
        self.median.map(|total| Phases { connect: of(0), tls: of(1), first_byte: of(2), total })
    }
}

fn short(took: Option<Duration>) -> Short {
    took.map_or(Short::MAX, |took| took.as_micros().min(u128::from(Short::MAX - 1)) as Short)
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

    fn whole(total_ms: u64) -> Phases {
        Phases { total: ms(total_ms), ..Phases::default() }
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
            let mut kept = Times::default();
            totals.iter().for_each(|total| kept.push(whole(*total), keep));
            assert_eq!(kept.median(), expected.map(ms), "{totals:?} keep {keep}");
        }
    }

    /// An answer on a connection that stood already has neither of the first two.
    #[test]
    fn each_phase_has_a_median_of_the_answers_that_came_to_it() {
        let mut kept = Times::default();
        assert_eq!(kept.medians(), None);
        let dialled = |connect, tls, first_byte, total| Phases {
            connect: Some(ms(connect)),
            tls: Some(ms(tls)),
            first_byte: Some(ms(first_byte)),
            total: ms(total),
        };
        let reused = |total| Phases { first_byte: Some(ms(total)), ..whole(total) };
        [dialled(900, 900, 900, 900), dialled(1, 4, 6, 9), reused(2), reused(3), dialled(3, 2, 8, 9)]
            .into_iter()
            .for_each(|took| kept.push(took, 4));
        assert_eq!(
            kept.medians(),
            Some(Phases { connect: Some(ms(1)), tls: Some(ms(2)), first_byte: Some(ms(3)), total: ms(3) })
        );
        kept.shorten(1);
        assert_eq!(kept.medians(), Some(dialled(3, 2, 8, 9)));
        let day = Duration::from_secs(86_400);
        kept.push(Phases { connect: Some(day), total: day, ..Phases::default() }, 1);
        let medians = kept.medians().expect("an answer");
        assert!(medians.connect.is_some_and(|took| took > ms(4_000_000)) && medians.tls.is_none());
        assert_eq!(medians.total, day);
    }

    #[test]
    fn a_shorter_window_keeps_the_newest() {
        let mut kept = Times::default();
        [1, 2, 3, 40, 50].iter().for_each(|total| kept.push(whole(*total), 5));
        kept.shorten(2);
        assert_eq!(kept.median(), Some(ms(40)));
        kept.shorten(64);
        assert_eq!(kept.median(), Some(ms(40)));
        kept.push(whole(60), 2);
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
