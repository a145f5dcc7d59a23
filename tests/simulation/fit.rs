//! What one member's whole life adds up to: health.md §2, and §6 as far as a verdict goes, read aloud.

use crate::model::Turn;
use pulsegate::health::{Class, Initial, Judge, Outcome, Pace, Reason, Verdict};
use std::time::Duration;

/// A member's fitness, worked out from its whole life.
#[derive(Debug, Clone)]
pub struct Fit {
    /// By every cause, in the end; on the way there the judge's alone.
    pub verdict: Verdict,
    /// The judge's.
    pub judged: Verdict,
    /// What traffic put it out for.
    pub out: Option<Reason>,
    /// Has been healthy at least once.
    pub proven: bool,
    /// The verdict is of another probe than the present one.
    pub unverified: bool,
    /// The window judge's places, virtual ones too, oldest first.
    pub places: Vec<bool>,
    /// Real samples since the window was last emptied, oldest first.
    pub real: Vec<bool>,
    /// Totals of right answers, oldest first.
    pub rights: Vec<Duration>,
    /// Passes, or fails as a negative number, in a row.
    pub streak: i64,
    pub cause: Option<Reason>,
    /// When the verdict last changed.
    pub since: Duration,
    pub last: Option<(Outcome, Duration)>,
    pub pace: Pace,
    pub judge: Judge,
    last_fail: Option<Reason>,
    first_pass_decides: bool,
}

/// The sum of a life: (order in the pool, time, what happened).
pub fn fit(turns: &[(usize, Duration, Turn)]) -> Fit {
    let (_, began, Turn::Born(initial, judge)) = turns[0] else { panic!("a life begins with a birth") };
    let mut f = Fit::born(began, initial, judge);
    for (_, at, turn) in &turns[1..] {
        let (before, united) = (f.verdict, f.united());
        match turn {
            Turn::Born(initial, judge) => f = Fit { last: f.last, ..Fit::born(*at, *initial, *judge) },
            Turn::Judged { outcome, right } => f.judged(*at, *outcome, *right),
            Turn::Blank { probed } => f.blank(*probed),
            // "`probe: off`: members start `initial: healthy`": no sample could ever end another verdict or the mark.
            Turn::Unprobed if f.verdict == Verdict::Healthy => f.unverified = false,
            Turn::Unprobed => f = Fit { last: f.last, ..Fit::born(*at, Initial::Healthy, f.judge) },
            Turn::Judge(judge) => f.judged_by(*judge),
            Turn::Out(reason) => f.out = Some(*reason),
            Turn::Back => f.out = None,
        }
        f.proven |= f.verdict == Verdict::Healthy;
        if f.united() != united {
            f.since = *at;
        }
        if f.verdict != before {
            f.pace = Pace::Steady;
            // "the fail that made it unhealthy, until it is healthy again"
            f.cause = f.last_fail.filter(|_| f.verdict == Verdict::Unhealthy);
        }
    }
    Fit { verdict: f.united(), judged: f.verdict, cause: f.worst(), ..f }
}

impl Fit {
    fn born(at: Duration, initial: Initial, judge: Judge) -> Fit {
        let verdict = match initial {
            Initial::Probe => Verdict::Unknown,
            Initial::Healthy => Verdict::Healthy,
            Initial::Unhealthy => Verdict::Unhealthy,
        };
        Fit {
            verdict,
            judged: verdict,
            out: None,
            proven: verdict == Verdict::Healthy,
            unverified: false,
            places: vec![initial != Initial::Unhealthy; size(judge)],
            real: vec![],
            rights: vec![],
            streak: 0,
            cause: None,
            since: at,
            last: None,
            pace: Pace::Steady,
            judge,
            last_fail: None,
            first_pass_decides: initial == Initial::Probe,
        }
    }

    /// "a member is unhealthy once, whoever said so".
    fn united(&self) -> Verdict {
        if self.verdict == Verdict::Healthy && self.out.is_some() { Verdict::Unhealthy } else { self.verdict }
    }

    /// "several causes: the worst".
    fn worst(&self) -> Option<Reason> {
        let by_class = |reason: &Reason| match reason.class() {
            Class::Unreachable => 0,
            Class::Wrong => 1,
            Class::Slow => 2,
        };
        [self.cause, self.out].into_iter().flatten().min_by_key(by_class)
    }

    fn judged(&mut self, at: Duration, outcome: Outcome, right: Option<Duration>) {
        let pass = outcome == Outcome::Pass;
        self.last = Some((outcome, at));
        self.unverified = false;
        self.rights.extend(right);
        self.real.push(pass);
        self.streak = if pass { self.streak.max(0) + 1 } else { self.streak.min(0) - 1 };
        self.places.push(pass);
        if let Outcome::Fail(reason) = outcome {
            self.last_fail = Some(reason);
        }
        if pass && self.first_pass_decides {
            self.first_pass_decides = false;
            self.places = vec![true; size(self.judge)];
            self.verdict = Verdict::Healthy;
        } else {
            self.verdict = self.by_the_judge();
        }
        self.quicken(outcome);
    }

    /// The judge's own rule on the places or the streak as they are now.
    fn by_the_judge(&self) -> Verdict {
        let (up, down) = match self.judge {
            Judge::Consecutive { failures, passes } => {
                (self.streak >= i64::from(passes), -self.streak >= i64::from(failures))
            }
            Judge::Window { size, required } => {
                let passed = last(&self.places, size as usize).iter().filter(|&&p| p).count();
                (passed >= required as usize, passed < required as usize)
            }
        };
        match self.verdict {
            _ if down => Verdict::Unhealthy,
            Verdict::Unhealthy if up && !self.first_pass_decides => Verdict::Healthy,
            // A judge that changed no longer finds enough fails in a newcomer: without a pass it is unknown at best.
            Verdict::Unhealthy if up => Verdict::Unknown,
            same => same,
        }
    }

    /// health.md §2, Pace.
    fn quicken(&mut self, outcome: Outcome) {
        let (up, down) = match self.judge {
            Judge::Consecutive { failures, passes } => (passes, failures),
            Judge::Window { size, .. } => (size, size),
        };
        let contrary_fail = matches!(outcome, Outcome::Fail(reason) if reason != Reason::Slow);
        match self.verdict {
            Verdict::Unhealthy if outcome == Outcome::Pass => self.pace = Pace::Fast,
            Verdict::Unknown | Verdict::Healthy if contrary_fail => self.pace = Pace::Fast,
            Verdict::Healthy if self.streak >= i64::from(up) => self.pace = Pace::Steady,
            Verdict::Unhealthy if -self.streak >= i64::from(down) => self.pace = Pace::Steady,
            _ => {}
        }
    }

    /// "verdict kept, marked `unverified`, window emptied (missing places count as the kept verdict)".
    fn blank(&mut self, probed: bool) {
        self.unverified = probed;
        self.places = vec![self.verdict != Verdict::Unhealthy; size(self.judge)];
        (self.real, self.rights, self.streak, self.pace) = (vec![], vec![], 0, Pace::Steady);
    }

    /// "the judge's places kept, virtual ones too, missing ones as the kept verdict; verdict recomputed. Consecutive:
    /// verdict and streak kept".
    fn judged_by(&mut self, judge: Judge) {
        let kept = self.verdict != Verdict::Unhealthy;
        let known = if matches!(self.judge, Judge::Window { .. }) { last(&self.places, size(self.judge)) } else { &[] };
        let known = last(known, size(judge));
        self.places = [vec![kept; size(judge) - known.len()], known.to_vec()].concat();
        self.real = last(&self.real, size(self.judge)).to_vec();
        self.rights = last(&self.rights, size(self.judge)).to_vec();
        self.judge = judge;
        if matches!(judge, Judge::Window { .. }) {
            self.verdict = self.by_the_judge();
        }
    }

    /// The window as shown: (passes, samples, size, required), real samples only.
    pub fn window(&self) -> (u32, u32, u32, Option<u32>) {
        let shown = last(&self.real, size(self.judge));
        let required = if let Judge::Window { required, .. } = self.judge { Some(required) } else { None };
        let passes = shown.iter().filter(|&&p| p).count();
        (passes as u32, shown.len() as u32, size(self.judge) as u32, required)
    }

    /// "median (lower middle) `total` of its last right answers (window size; 5 for the consecutive judge)".
    pub fn latency(&self) -> Option<Duration> {
        let mut totals = last(&self.rights, size(self.judge)).to_vec();
        totals.sort();
        totals.get(totals.len().saturating_sub(1) / 2).copied()
    }

    /// "fewest passes in the window, or longest fail streak": the smaller, the worse.
    pub fn worth(&self) -> i64 {
        match self.judge {
            Judge::Consecutive { .. } => self.streak.min(0),
            Judge::Window { size, .. } => last(&self.places, size as usize).iter().filter(|&&p| p).count() as i64,
        }
    }
}

/// How many samples a judge's window shows.
fn size(judge: Judge) -> usize {
    match judge {
        Judge::Consecutive { .. } => 5,
        Judge::Window { size, .. } => size as usize,
    }
}

fn last<T>(list: &[T], n: usize) -> &[T] {
    &list[list.len().saturating_sub(n)..]
}
