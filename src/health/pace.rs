//! How soon a member is probed next: detect fast, probe cheap (health.md §2).
//!
//! Not here: how long the intervals are and when the next point of a grid is (`probe`).

use super::{Outcome, Reason, Verdict};

/// How soon the next probe is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At `interval`.
    Steady,
    /// At `fast_interval`: something may be changing.
    Fast,
}

/// Whether a sample has spoken against the verdict: then the agreeing ones in a row since.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unrest(Option<u32>);

impl Unrest {
    pub(super) fn pace(self) -> Pace {
        if self.0.is_some() { Pace::Fast } else { Pace::Steady }
    }

    /// A contrary sample begins it and `confirmation` agreeing ones in a row end it. Slowness does neither: probing what
    /// is slow more often does not make it faster.
    pub(super) fn record(&mut self, verdict: Verdict, outcome: Outcome, confirmation: u32) {
        let agrees = (verdict == Verdict::Unhealthy) != (outcome == Outcome::Pass);
        self.0 = match self.0 {
            None if agrees || outcome == Outcome::Fail(Reason::Slow) => None,
            Some(agreeing) if agrees => Some(agreeing + 1).filter(|agreeing| *agreeing < confirmation),
            _ => Some(0),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, fail_as, inconclusive, pass, rules, specs};
    use super::super::{Initial, Judge, Rules};
    use super::*;

    /// Plays `P` (pass), `F` (fail), `S` (slow) and `.` (inconclusive); answers with the pace after each: `s` or `F`.
    fn paces(rules: Rules, results: &str) -> String {
        let mut trial = Trial::new(rules, specs(1));
        let after = |result| {
            trial.at(1, act(result));
            if trial.member(1).pace() == Pace::Fast { 'F' } else { 's' }
        };
        results.chars().map(after).collect()
    }

    fn act(result: char) -> Act {
        match result {
            'P' => pass(1),
            'F' => fail_as(1, Reason::Refused),
            'S' => fail_as(1, Reason::Slow),
            _ => inconclusive(1),
        }
    }

    #[test]
    fn the_pace_quickens_until_the_verdict_flips_or_is_confirmed() {
        // health.md §2, case C36
        let consecutive = Judge::Consecutive { failures: 3, passes: 2 };
        let window = Judge::Window { size: 4, required: 3 };
        let rows = [
            // healthy, one contrary: confirmed by P passes, or flipped
            (consecutive, Initial::Healthy, "PFPPP", "sFFss"),
            (consecutive, Initial::Healthy, "FPFPP", "FFFFs"),
            (consecutive, Initial::Healthy, "FFFFF", "FFsss"),
            // unhealthy, one contrary: confirmed by F fails, or flipped
            (consecutive, Initial::Healthy, "FFFPFFF", "FFsFFFs"),
            (consecutive, Initial::Healthy, "FFFPFPP", "FFsFFFs"),
            // unknown: after a fail
            (consecutive, Initial::Probe, "FFF", "FFs"),
            (consecutive, Initial::Probe, "FP", "Fs"),
            (consecutive, Initial::Probe, "P", "s"),
            (consecutive, Initial::Unhealthy, "FPFFF", "sFFFs"),
            // window: n in a row
            (window, Initial::Healthy, "FPPPPP", "FFFFss"),
            (window, Initial::Healthy, "FFFPFPFPP", "FssFFFFFs"),
            (window, Initial::Healthy, "FFPFFFF", "FsFFFFs"),
            // slowness does not quicken, nor calm what is quick
            (consecutive, Initial::Healthy, "SSS", "sss"),
            (consecutive, Initial::Probe, "SSS", "sss"),
            (consecutive, Initial::Healthy, "FPSPP", "FFFFs"),
            // nothing learnt, nothing changed
            (consecutive, Initial::Healthy, ".F.P.P.", "sFFFFss"),
        ];
        for (judge, initial, results, expected) in rows {
            let rules = Rules { judge, initial, ..rules() };
            assert_eq!(paces(rules, results), expected, "{judge:?} {initial:?} {results}");
        }
    }
}
