//! A member's last results, real ones only: what people are shown.
//!
//! Not here: the places a judge fills in where no result has come yet (`judge`).

use super::Judge;
use super::judge::Mark;

/// A member's last samples, real ones only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Passes among those shown.
    pub passes: u32,
    /// How many are shown: fewer than `size` until as many have come.
    pub shown: u32,
    /// The judge's window; 5 for the consecutive judge.
    pub size: u32,
    /// Passes the judge asks for; `None` for the consecutive judge.
    pub required: Option<u32>,
}

/// The last results, the newest in bit 0, and how many in a row were alike.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct History {
    bits: u64,
    shown: u32,
    streak: i64,
}

impl History {
    /// One more result; the last `span` are shown.
    pub(super) fn push(&mut self, mark: Mark, span: u32) {
        self.bits = self.bits << 1 | u64::from(mark == Mark::Pass);
        self.shown = (self.shown + 1).min(span);
        self.streak = match mark {
            Mark::Pass => self.streak.max(0).saturating_add(1),
            Mark::Fail => self.streak.min(0).saturating_sub(1),
        };
    }

    /// Only the last `span` are shown from now on.
    pub(super) fn shorten(&mut self, span: u32) {
        self.shown = self.shown.min(span);
    }

    /// As it was left.
    pub(super) fn resumed(bits: u64, shown: u32, streak: i64) -> History {
        History { bits, shown: shown.min(64), streak }
    }

    /// The last results, the newest in bit 0, and how many of them are shown.
    pub(super) fn places(self) -> (u64, u32) {
        (self.bits, self.shown)
    }

    /// Passes (positive) or fails (negative) in a row.
    pub(super) fn streak(self) -> i64 {
        self.streak
    }

    /// As shown beside the numbers of `judge`.
    pub(super) fn window(self, judge: Judge) -> Window {
        let required = match judge {
            Judge::Window { required, .. } => Some(required),
            Judge::Consecutive { .. } => None,
        };
        let passes = self.bits.checked_shl(64 - self.shown).unwrap_or(0).count_ones();
        Window { passes, shown: self.shown, size: judge.span(), required }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, fail_as, inconclusive, pass, rules, specs};
    use super::super::{Initial, Reason, Rules};
    use super::*;

    fn act(result: char) -> Act {
        match result {
            'P' => pass(1),
            'F' => fail_as(1, Reason::Refused),
            'S' => fail_as(1, Reason::Slow),
            _ => inconclusive(1),
        }
    }

    #[test]
    fn windows_and_streaks_show_real_samples_only() {
        let window = Judge::Window { size: 4, required: 3 };
        let consecutive = Judge::Consecutive { failures: 3, passes: 1 };
        let rows = [
            (window, Initial::Probe, "", (0, 0, 4, Some(3)), 0),
            (window, Initial::Probe, "P", (1, 1, 4, Some(3)), 1),
            (window, Initial::Probe, "FFP", (1, 3, 4, Some(3)), 1),
            (window, Initial::Healthy, "PFPFF", (1, 4, 4, Some(3)), -2),
            (window, Initial::Healthy, "P.P", (2, 2, 4, Some(3)), 2),
            (Judge::Window { size: 64, required: 1 }, Initial::Probe, "PP", (2, 2, 64, Some(1)), 2),
            (consecutive, Initial::Probe, "PPPPPPF", (4, 5, 5, None), -1),
            (consecutive, Initial::Healthy, "SS", (0, 2, 5, None), -2),
        ];
        for (judge, initial, results, (passes, shown, size, required), streak) in rows {
            let mut trial = Trial::new(Rules { judge, initial, ..rules() }, specs(1));
            results.chars().for_each(|result| drop(trial.at(1, act(result))));
            assert_eq!(trial.member(1).window(), Window { passes, shown, size, required }, "{judge:?} {results}");
            assert_eq!(trial.member(1).streak(), streak, "{judge:?} {results}");
        }
    }

    #[test]
    fn a_full_window_of_64_is_counted_whole() {
        let judge = Judge::Window { size: 64, required: 1 };
        let mut trial = Trial::new(Rules { judge, ..rules() }, specs(1));
        (0..100).for_each(|_| drop(trial.at(1, pass(1))));
        assert_eq!(trial.member(1).window(), Window { passes: 64, shown: 64, size: 64, required: Some(1) });
    }
}
