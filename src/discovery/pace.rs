//! When a name is asked for again: pure.

use std::time::Duration;

use crate::config::Resolver;

/// Who has no answer is asked again at least so often, within the bounds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Share of a wait that chance takes off, so that names that were asked for together do not stay together.
const JITTER: f64 = 0.1;

/// What the last asking brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// An answer that holds so long.
    Answered(Duration),
    /// Nothing that could be used, so many times in a row: at least 1.
    Unanswered(u32),
}

/// How long to wait before asking again; `chance` is from 0 to 1.
pub fn wait(outcome: Outcome, bounds: &Resolver, chance: f64) -> Duration {
    let (least, most) = (bounds.min_refresh, bounds.max_refresh.max(bounds.min_refresh));
    let wanted = match outcome {
        Outcome::Answered(ttl) => ttl,
        Outcome::Unanswered(times) => {
            let doubled = least.saturating_mul(1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX));
            doubled.min(PATIENCE)
        }
    };
    let wanted = wanted.clamp(least, most);
    let sooner = wanted.mul_f64(1.0 - JITTER * chance);
    // At the lower bound chance adds, or all that are asked for as often as possible would stay in step.
    if sooner >= least { sooner } else { least.mul_f64(1.0 + JITTER * chance) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(least: u64, most: u64) -> Resolver {
        let [min_refresh, max_refresh] = [least, most].map(Duration::from_secs);
        Resolver { min_refresh, max_refresh, ..Resolver::default() }
    }

    #[test]
    fn the_ttl_counts_within_the_bounds() {
        let of = |ttl| wait(Outcome::Answered(Duration::from_secs(ttl)), &bounds(2, 60), 0.0).as_secs();
        assert_eq!([0, 1, 2, 30, 60, 86_400].map(of), [2, 2, 2, 30, 60, 60]);
    }

    #[test]
    fn who_has_no_answer_is_asked_again_ever_more_slowly_but_never_rarely() {
        let of = |times| wait(Outcome::Unanswered(times), &bounds(1, 300), 0.0).as_secs();
        assert_eq!([1, 2, 3, 4, 5, 6, 40, u32::MAX].map(of), [1, 2, 4, 8, 16, 30, 30, 30]);
        let narrow = |times| wait(Outcome::Unanswered(times), &bounds(1, 5), 0.0).as_secs();
        assert_eq!([1, 2, 3, 4, 9].map(narrow), [1, 2, 4, 5, 5]);
        let wide = |times| wait(Outcome::Unanswered(times), &bounds(60, 300), 0.0).as_secs();
        assert_eq!([1, 2, 9].map(wide), [60, 60, 60], "never before the lower bound");
    }

    #[test]
    fn chance_parts_those_who_were_asked_together_within_the_bounds() {
        let of = |ttl, chance| wait(Outcome::Answered(Duration::from_secs(ttl)), &bounds(10, 60), chance).as_secs_f64();
        for (ttl, chance, expected) in
            [(60, 1.0, 54.0), (60, 0.5, 57.0), (0, 0.0, 10.0), (0, 1.0, 11.0), (10, 0.5, 10.5), (600, 0.0, 60.0)]
        {
            assert!((of(ttl, chance) - expected).abs() < 1e-9, "{ttl} {chance}: {}", of(ttl, chance));
        }
    }
}
