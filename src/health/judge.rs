//! How results become a verdict: two judges, and what one of them holds of one member.
//!
//! The evidence lives inside the state it counts towards leaving, and the verdict is read off it, so that the two
//! cannot disagree. Not here: why a probe failed, when it did, and who is told (`member`).

use super::carry::Held;
use super::{Initial, Judge, Verdict};

/// A conclusive result, as a judge counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Pass,
    Fail,
}

/// What the pool's judge holds of one member.
#[derive(Debug, Clone)]
pub(super) struct Judgement {
    /// Born under `initial: probe` and never passed: its first pass decides alone, whatever came before.
    newcomer: bool,
    bench: Bench,
}

#[derive(Debug, Clone)]
enum Bench {
    Consecutive {
        failures: u32,
        passes: u32,
        run: Run,
    },
    /// The newest place is bit 0. All `size` places are filled: those without a result count as the verdict they began with.
    Window {
        size: u32,
        required: u32,
        places: u64,
    },
}

/// A verdict, with the results in a row against it.
#[derive(Debug, Clone, Copy)]
enum Run {
    Unknown { fails: u32 },
    Healthy { fails: u32 },
    Unhealthy { passes: u32 },
}

impl Judgement {
    /// A member's beginning.
    pub(super) fn new(judge: Judge, initial: Initial) -> Judgement {
        let verdict = match initial {
            Initial::Probe => Verdict::Unknown,
            Initial::Healthy => Verdict::Healthy,
            Initial::Unhealthy => Verdict::Unhealthy,
        };
        Judgement { newcomer: initial == Initial::Probe, bench: Bench::seated(judge, verdict) }
    }

    /// As it was left.
    pub(super) fn resumed(held: &Held) -> Judgement {
        let Held { judge, newcomer, verdict, against, places } = *held;
        let bench = match judge {
            Judge::Consecutive { failures, passes } => {
                let run = match verdict {
                    Verdict::Unknown => Run::Unknown { fails: against },
                    Verdict::Healthy => Run::Healthy { fails: against },
                    Verdict::Unhealthy => Run::Unhealthy { passes: against },
                };
                Bench::Consecutive { failures, passes, run }
            }
            Judge::Window { size, required } => Bench::Window { size, required, places: places & every_place(size) },
        };
        Judgement { newcomer, bench }
    }

    /// All that it holds.
    pub(super) fn held(&self) -> Held {
        let (against, places) = match self.bench {
            Bench::Consecutive { run: Run::Unknown { fails } | Run::Healthy { fails }, .. } => (fails, 0),
            Bench::Consecutive { run: Run::Unhealthy { passes }, .. } => (passes, 0),
            Bench::Window { places, .. } => (0, places),
        };
        Held { judge: self.judge(), newcomer: self.newcomer, verdict: self.verdict(), against, places }
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.bench {
            Bench::Consecutive { run: Run::Unknown { .. }, .. } => Verdict::Unknown,
            Bench::Consecutive { run: Run::Healthy { .. }, .. } => Verdict::Healthy,
            Bench::Consecutive { run: Run::Unhealthy { .. }, .. } => Verdict::Unhealthy,
            Bench::Window { required, places, .. } if places.count_ones() < required => Verdict::Unhealthy,
            // The places that hold up a newcomer are virtual: they can keep it from being unhealthy, not make it healthy.
            Bench::Window { .. } if self.newcomer => Verdict::Unknown,
            Bench::Window { .. } => Verdict::Healthy,
        }
    }

    pub(super) fn record(&mut self, mark: Mark) {
        if self.newcomer && mark == Mark::Pass {
            // Earlier fails go with it: were they to stay in the window, a second pass could make it unhealthy.
            *self = Judgement { newcomer: false, bench: Bench::seated(self.judge(), Verdict::Healthy) };
            return;
        }
        match &mut self.bench {
            Bench::Consecutive { failures, passes, run } => *run = run.after(mark, *failures, *passes),
            Bench::Window { size, places, .. } => {
                *places = (*places << 1 | u64::from(mark == Mark::Pass)) & every_place(*size);
            }
        }
    }

    /// The numbers it judges by.
    pub(super) fn judge(&self) -> Judge {
        match self.bench {
            Bench::Consecutive { failures, passes, .. } => Judge::Consecutive { failures, passes },
            Bench::Window { size, required, .. } => Judge::Window { size, required },
        }
    }

    /// Passes among the judge's places, virtual ones too; `None` for the consecutive judge.
    pub(super) fn passes(&self) -> Option<u32> {
        match self.bench {
            Bench::Consecutive { .. } => None,
            Bench::Window { places, .. } => Some(places.count_ones()),
        }
    }

    /// How many results in a row that agree with the verdict confirm it after a contrary one (health.md §2, pace).
    pub(super) fn confirmation(&self) -> u32 {
        match (self.judge(), self.verdict()) {
            (Judge::Window { size, .. }, _) => size,
            (Judge::Consecutive { failures, .. }, Verdict::Unhealthy) => failures,
            (Judge::Consecutive { passes, .. }, _) => passes,
        }
    }

    /// Keeps the verdict and drops the evidence: what another probe found says nothing about this one.
    pub(super) fn forget(&mut self) {
        self.bench = Bench::seated(self.judge(), self.verdict());
    }

    /// Other numbers. A window keeps its places, the missing ones count as the verdict, and the verdict is read anew; the
    /// consecutive judge keeps verdict and streak (health.md §9), also when it takes over from a window: `streak` is the
    /// real one, passes positive. The other way round only the verdict carries over: a window cannot hold a long streak
    /// without turning it into a verdict.
    pub(super) fn rejudge(&mut self, judge: Judge, streak: i64) {
        let verdict = self.verdict();
        self.bench = match (&self.bench, judge) {
            (Bench::Consecutive { run, .. }, Judge::Consecutive { failures, passes }) => {
                Bench::Consecutive { failures, passes, run: *run }
            }
            (Bench::Window { size: known, places, .. }, Judge::Window { size, required }) => {
                let missing = every_place(size) & !every_place(*known);
                let fill = if verdict == Verdict::Unhealthy { 0 } else { missing };
                Bench::Window { size, required, places: (places | fill) & every_place(size) }
            }
            (Bench::Window { .. }, Judge::Consecutive { failures, passes }) => {
                let run = match (verdict, against(verdict, streak)) {
                    (Verdict::Unknown, fails) => Run::Unknown { fails },
                    (Verdict::Healthy, fails) => Run::Healthy { fails },
                    (Verdict::Unhealthy, passes) => Run::Unhealthy { passes },
                };
                Bench::Consecutive { failures, passes, run }
            }
            (Bench::Consecutive { .. }, Judge::Window { .. }) => Bench::seated(judge, verdict),
        };
    }
}

impl Bench {
    /// A verdict without evidence against it.
    fn seated(judge: Judge, verdict: Verdict) -> Bench {
        match judge {
            Judge::Consecutive { failures, passes } => {
                let run = match verdict {
                    Verdict::Unknown => Run::Unknown { fails: 0 },
                    Verdict::Healthy => Run::Healthy { fails: 0 },
                    Verdict::Unhealthy => Run::Unhealthy { passes: 0 },
                };
                Bench::Consecutive { failures, passes, run }
            }
            Judge::Window { size, required } => {
                let places = if verdict == Verdict::Unhealthy { 0 } else { every_place(size) };
                Bench::Window { size, required, places }
            }
        }
    }
}

impl Run {
    fn after(self, mark: Mark, failures: u32, passes: u32) -> Run {
        let failed = |fails: u32, stay: fn(u32) -> Run| match fails.saturating_add(1) {
            fails if fails >= failures => Run::Unhealthy { passes: 0 },
            fails => stay(fails),
        };
        match (self, mark) {
            (Run::Unknown { fails }, Mark::Fail) => failed(fails, |fails| Run::Unknown { fails }),
            (Run::Healthy { fails }, Mark::Fail) => failed(fails, |fails| Run::Healthy { fails }),
            (Run::Unhealthy { .. }, Mark::Fail) => Run::Unhealthy { passes: 0 },
            (Run::Unhealthy { passes: seen }, Mark::Pass) => match seen.saturating_add(1) {
                seen if seen >= passes => Run::Healthy { fails: 0 },
                seen => Run::Unhealthy { passes: seen },
            },
            (Run::Unknown { .. } | Run::Healthy { .. }, Mark::Pass) => Run::Healthy { fails: 0 },
        }
    }
}

/// How many results in a row speak against a verdict.
fn against(verdict: Verdict, streak: i64) -> u32 {
    let contrary = if verdict == Verdict::Unhealthy { streak } else { streak.saturating_neg() };
    u32::try_from(contrary.max(0)).unwrap_or(u32::MAX)
}

/// Sizes outside 1 to 64 are the configuration's to refuse; here they must only not overflow.
fn every_place(size: u32) -> u64 {
    u64::MAX >> (64 - size.clamp(1, 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE_TWO: Judge = Judge::Consecutive { failures: 3, passes: 2 };
    const THREE_OF_FOUR: Judge = Judge::Window { size: 4, required: 3 };

    /// Feeds `F` and `P`, and answers with the verdict after each: `?`, `h` or `u`.
    fn verdicts(judgement: &mut Judgement, results: &str) -> String {
        let after = |result| {
            judgement.record(if result == 'P' { Mark::Pass } else { Mark::Fail });
            letter(judgement)
        };
        results.chars().map(after).collect()
    }

    fn letter(judgement: &Judgement) -> char {
        match judgement.verdict() {
            Verdict::Unknown => '?',
            Verdict::Healthy => 'h',
            Verdict::Unhealthy => 'u',
        }
    }

    fn streak(results: &str) -> i64 {
        let Some(last) = results.chars().last() else { return 0 };
        let alike = results.chars().rev().take_while(|result| *result == last).count() as i64;
        if last == 'P' { alike } else { -alike }
    }

    #[test]
    fn a_judge_flips_exactly_at_its_threshold() {
        let consecutive = |failures, passes| Judge::Consecutive { failures, passes };
        let window = |size, required| Judge::Window { size, required };
        let rows = [
            // health.md §11, examples 2 and 3; cases C04 and C09
            (window(4, 3), Initial::Probe, "PPPFFFPPP", "hhhhuuuuh"),
            (THREE_TWO, Initial::Healthy, "FPFPFP", "hhhhhh"),
            (THREE_TWO, Initial::Healthy, "FFFPFPP", "hhuuuuh"),
            (THREE_TWO, Initial::Healthy, "FFPFFPFFF", "hhhhhhhhu"),
            (THREE_TWO, Initial::Probe, "FFF", "??u"),
            // the first pass decides alone, whenever it comes
            (THREE_TWO, Initial::Probe, "FP", "?h"),
            (THREE_TWO, Initial::Probe, "FFFFPFFF", "??uuhhhu"),
            (window(4, 3), Initial::Probe, "FFFFFPP", "?uuuuhh"),
            (window(4, 3), Initial::Probe, "FPFF", "?hhu"),
            (window(4, 4), Initial::Probe, "FPPF", "uhhu"),
            (window(4, 1), Initial::Probe, "FFFFP", "???uh"),
            // `initial: unhealthy` needs the full number
            (THREE_TWO, Initial::Unhealthy, "PFPP", "uuuh"),
            (window(4, 3), Initial::Unhealthy, "PPP", "uuh"),
            (window(4, 3), Initial::Unhealthy, "PFPPF", "uuuhu"),
            // `initial: healthy`: the missing places passed
            (window(4, 3), Initial::Healthy, "FF", "hu"),
            (consecutive(1, 1), Initial::Healthy, "FPFP", "uhuh"),
            (window(1, 1), Initial::Healthy, "FPFP", "uhuh"),
        ];
        for (judge, initial, results, expected) in rows {
            let mut judgement = Judgement::new(judge, initial);
            assert_eq!(verdicts(&mut judgement, results), expected, "{judge:?} {initial:?} {results}");
        }
    }

    #[test]
    fn a_window_of_64_places_uses_them_all() {
        let mut judgement = Judgement::new(Judge::Window { size: 64, required: 1 }, Initial::Healthy);
        assert_eq!(verdicts(&mut judgement, &"F".repeat(64)), format!("{}u", "h".repeat(63)));
        assert_eq!(verdicts(&mut judgement, "P"), "h");
        assert_eq!(verdicts(&mut judgement, &"F".repeat(64)), format!("{}u", "h".repeat(63)));
    }

    #[test]
    fn other_numbers_are_judged_by_the_evidence_there_is() {
        let window = |size, required| Judge::Window { size, required };
        let consecutive = |failures| Judge::Consecutive { failures, passes: 2 };
        let rows = [
            // places kept, virtual ones too; verdict read anew
            (window(4, 3), Initial::Healthy, "F", window(4, 4), "u", "FPPPP", "uuuuh"),
            (window(4, 4), Initial::Healthy, "F", window(4, 3), "h", "F", "u"),
            (window(4, 3), Initial::Healthy, "FPPP", window(3, 3), "h", "F", "u"),
            (window(4, 3), Initial::Healthy, "PPPF", window(2, 2), "u", "PP", "uh"),
            // missing places count as the verdict
            (window(4, 3), Initial::Healthy, "FPPP", window(6, 5), "h", "F", "u"),
            (window(4, 3), Initial::Healthy, "FFPP", window(6, 3), "u", "P", "h"),
            // virtual places alone make nobody healthy
            (window(4, 4), Initial::Probe, "F", window(4, 1), "?", "P", "h"),
            (window(4, 3), Initial::Probe, "F", window(4, 4), "u", "P", "h"),
            (window(4, 3), Initial::Unhealthy, "PP", window(4, 2), "h", "PF", "hh"),
            // consecutive: verdict and streak kept, the next result counts
            (consecutive(5), Initial::Healthy, "FFF", consecutive(2), "h", "F", "u"),
            (consecutive(5), Initial::Healthy, "FFF", consecutive(2), "h", "PF", "hh"),
            (consecutive(2), Initial::Healthy, "FF", consecutive(5), "u", "PP", "uh"),
            (consecutive(2), Initial::Probe, "FF", consecutive(5), "u", "P", "h"),
            // another kind of judge: the verdict, and the streak where the consecutive one takes over
            (consecutive(5), Initial::Healthy, "FFFF", window(4, 3), "h", "FF", "hu"),
            (window(4, 3), Initial::Healthy, "FF", consecutive(3), "u", "PP", "uh"),
            (window(4, 3), Initial::Healthy, "FFP", consecutive(3), "u", "P", "h"),
            (window(6, 2), Initial::Healthy, "FPFF", consecutive(3), "h", "F", "u"),
            (window(6, 2), Initial::Healthy, "FFFF", consecutive(3), "h", "PF", "hh"),
            (window(6, 1), Initial::Probe, "FF", consecutive(3), "?", "F", "u"),
            (window(4, 3), Initial::Probe, "F", consecutive(3), "?", "FF", "?u"),
        ];
        for (judge, initial, results, then, at_once, more, expected) in rows {
            let mut judgement = Judgement::new(judge, initial);
            verdicts(&mut judgement, results);
            judgement.rejudge(then, streak(results));
            let what = format!("{judge:?} {initial:?} {results} -> {then:?} {more}");
            assert_eq!(letter(&judgement).to_string(), at_once, "{what}");
            assert_eq!(verdicts(&mut judgement, more), expected, "{what}");
        }
    }

    #[test]
    fn forgetting_keeps_the_verdict_and_nothing_else() {
        let rows = [
            (THREE_TWO, Initial::Healthy, "FF", "FFF", "hhu"),
            (THREE_TWO, Initial::Healthy, "FFFP", "PP", "uh"),
            (THREE_TWO, Initial::Probe, "FF", "FFF", "??u"),
            (THREE_TWO, Initial::Probe, "FFF", "P", "h"),
            (THREE_OF_FOUR, Initial::Healthy, "F", "FF", "hu"),
            (THREE_OF_FOUR, Initial::Healthy, "FFPP", "PPP", "uuh"),
        ];
        for (judge, initial, results, more, expected) in rows {
            let mut judgement = Judgement::new(judge, initial);
            verdicts(&mut judgement, results);
            judgement.forget();
            assert_eq!(verdicts(&mut judgement, more), expected, "{judge:?} {initial:?} {results} | {more}");
        }
    }
}
