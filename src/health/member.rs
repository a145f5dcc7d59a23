//! One member: who it is, what is wanted of it, and what its probes have shown.
//!
//! Not here: anything that depends on the other members. Whether an unhealthy member is out of the rotation is for
//! `cap` to say, and how it stands for `picture`.

use std::time::Duration;

use super::judge::{Judgement, Mark};
use super::latency::Totals;
use super::{Admin, Change, Class, Initial, Judge, MemberId, Outcome, Pace, Reason, Rules, Sample, Spec, Verdict};

/// A member of a pool, with its health.
#[derive(Debug, Clone)]
pub struct Member {
    id: MemberId,
    pub(super) spec: Spec,
    pub(super) admin: Admin,
    judgement: Judgement,
    proven: bool,
    unverified: bool,
    history: History,
    totals: Totals,
    since: Duration,
    cause: Option<Reason>,
    last_fail: Option<Reason>,
    last_sample: Option<(Sample, Duration)>,
    /// While a contrary sample is neither confirmed nor refuted: the agreeing ones in a row since.
    unrest: Option<u32>,
    pub(super) turn: Turn,
    /// The cap's place outside the rotation, kept also while the tier does not serve.
    pub(super) out: bool,
}

/// A member's last samples, real ones only: what people are shown.
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

/// What the relative latency gate needs to know, in the order in which the pool's samples came (0: never).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turn {
    /// Of the last sample.
    pub(super) sampled: u64,
    /// Of the last right answer, and its total.
    pub(super) answered: u64,
    pub(super) total: Duration,
    /// The last sample was over the relative gate.
    pub(super) over: bool,
}

impl Member {
    pub(super) fn new(id: MemberId, now: Duration, rules: &Rules, spec: Spec) -> Member {
        let initial = if rules.probed { rules.initial } else { Initial::Healthy };
        let judgement = Judgement::new(rules.judge, initial);
        Member {
            id,
            admin: spec.admin,
            spec,
            proven: judgement.verdict() == Verdict::Healthy,
            judgement,
            unverified: false,
            history: History::default(),
            totals: Totals::default(),
            since: now,
            cause: None,
            last_fail: None,
            last_sample: None,
            unrest: None,
            turn: Turn::default(),
            out: false,
        }
    }

    /// Its identity.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// As configured.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// What is wanted of it: an operator's word, or else the file's.
    pub fn admin(&self) -> Admin {
        self.admin
    }

    /// What the judge says.
    pub fn verdict(&self) -> Verdict {
        self.judgement.verdict()
    }

    /// Whether it has been healthy at least once since its identity began.
    pub fn proven(&self) -> bool {
        self.proven
    }

    /// Whether its probe changed and no sample of the new one has come yet.
    pub fn unverified(&self) -> bool {
        self.unverified
    }

    /// Its last samples, real ones only.
    pub fn window(&self) -> Window {
        let judge = self.judgement.judge();
        let required = match judge {
            Judge::Window { required, .. } => Some(required),
            Judge::Consecutive { .. } => None,
        };
        Window { passes: self.history.passes(), shown: self.history.shown, size: judge.span(), required }
    }

    /// Passes (positive) or fails (negative) in a row, real ones only.
    pub fn streak(&self) -> i64 {
        self.history.streak
    }

    /// The lower median of the totals of its last right answers, slow ones included (health.md §5).
    pub fn latency(&self) -> Option<Duration> {
        self.totals.median()
    }

    /// When the verdict last changed, or the member began.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// The reason of the fail that made it unhealthy, until it is healthy again.
    pub fn cause(&self) -> Option<Reason> {
        self.cause
    }

    /// The last conclusive sample as judged (a right answer over a gate is a fail here), and when it came.
    pub fn last_sample(&self) -> Option<(&Sample, Duration)> {
        self.last_sample.as_ref().map(|(sample, at)| (sample, *at))
    }

    /// How soon its next probe is due.
    pub fn pace(&self) -> Pace {
        if self.unrest.is_some() { Pace::Fast } else { Pace::Steady }
    }

    /// Enabled and of weight > 0: one that counts in its tier.
    pub(super) fn counts(&self) -> bool {
        self.admin == Admin::Enabled && self.spec.weight > 0
    }

    /// One that counts and can be reached.
    pub(super) fn reachable(&self) -> bool {
        self.counts() && self.spec.key.address.is_some()
    }

    /// A healthy member in the sense of health.md: by every cause. Without an address nobody is.
    pub(super) fn healthy(&self) -> bool {
        self.reachable() && self.verdict() == Verdict::Healthy
    }

    /// The worst class of what makes it unhealthy; `None` where no fail did (`initial: unhealthy`).
    pub(super) fn class(&self) -> Option<Class> {
        self.cause.map(Reason::class)
    }

    /// How bad it is among its class, greatest first: fewest passes in the window, or longest fail streak.
    pub(super) fn badness(&self) -> u64 {
        match self.judgement.passes() {
            Some(passes) => u64::from(u32::MAX - passes),
            None => self.history.streak.min(0).unsigned_abs(),
        }
    }

    /// Takes a conclusive sample, the `turn`th of the pool.
    pub(super) fn record(&mut self, now: Duration, turn: u64, sample: Sample, over_relative: bool) {
        let (mark, answered) = match sample.outcome {
            Outcome::Inconclusive => return,
            Outcome::Pass => (Mark::Pass, true),
            Outcome::Fail(reason) => {
                self.last_fail = Some(reason);
                (Mark::Fail, reason == Reason::Slow)
            }
        };
        let before = self.verdict();
        let span = self.judgement.judge().span();
        self.judgement.record(mark);
        self.history.push(mark, span);
        self.unverified = false;
        self.turn.sampled = turn;
        self.turn.over = over_relative;
        if answered {
            self.turn.answered = turn;
            self.turn.total = sample.phases.total;
            self.totals.push(sample.phases.total, span as usize);
        }
        self.unrest = self.unrest_after(before, sample.outcome);
        self.note_verdict(now, before);
        self.last_sample = Some((sample, now));
    }

    /// What is announced when it changes.
    pub(super) fn state(&self) -> (Verdict, Admin) {
        (self.verdict(), self.admin)
    }

    /// What became of the state it had `before`.
    pub(super) fn changes_since(&self, before: (Verdict, Admin)) -> impl Iterator<Item = Change> + use<> {
        let ((verdict, admin), member) = (self.state(), self.id);
        let verdict = (verdict != before.0).then_some(Change::Verdict { member, from: before.0, to: verdict });
        let admin = (admin != before.1).then_some(Change::Admin { member, from: before.1, to: admin });
        verdict.into_iter().chain(admin)
    }

    /// Another word on what is wanted of it. One that was not probed begins again.
    pub(super) fn admit(&mut self, now: Duration, rules: &Rules, admin: Admin) {
        let was = std::mem::replace(&mut self.admin, admin);
        if was == Admin::Disabled && admin != Admin::Disabled {
            self.restart(now, rules);
        }
    }

    /// Begins again after a time without probes: what it once was says nothing about what it is.
    pub(super) fn restart(&mut self, now: Duration, rules: &Rules) {
        // "Start unknown when enabled" (health.md §1), also where a new member would start healthy.
        let initial = match rules.initial {
            _ if !rules.probed => Initial::Healthy,
            Initial::Unhealthy => Initial::Unhealthy,
            Initial::Probe | Initial::Healthy => Initial::Probe,
        };
        let fresh = Member::new(self.id, now, &Rules { initial, ..rules.clone() }, self.spec.clone());
        *self = Member { admin: self.admin, last_sample: self.last_sample.take(), ..fresh };
    }

    /// Another probe: the verdict stands unverified, the evidence is gone (health.md §9).
    pub(super) fn unverify(&mut self) {
        self.judgement.forget();
        self.history = History::default();
        self.totals.clear();
        self.turn = Turn::default();
        self.unrest = None;
        self.unverified = true;
    }

    /// Other numbers for the judge.
    pub(super) fn rejudge(&mut self, now: Duration, judge: Judge) {
        if judge == self.judgement.judge() {
            return;
        }
        let before = self.verdict();
        self.judgement.rejudge(judge, self.history.streak);
        self.history.shorten(judge.span());
        self.totals.shorten(judge.span() as usize);
        self.note_verdict(now, before);
    }

    /// What follows from a verdict that is no longer the one `before`.
    fn note_verdict(&mut self, now: Duration, before: Verdict) {
        let verdict = self.verdict();
        if verdict == before {
            return;
        }
        self.since = now;
        self.unrest = None;
        self.proven |= verdict == Verdict::Healthy;
        self.cause = if verdict == Verdict::Unhealthy { self.last_fail } else { None };
    }

    /// The pace (health.md §2): a contrary sample quickens, enough agreeing ones in a row calm, slowness does neither.
    fn unrest_after(&self, before: Verdict, outcome: Outcome) -> Option<u32> {
        let contrary = match before {
            Verdict::Unhealthy => outcome == Outcome::Pass,
            Verdict::Unknown | Verdict::Healthy => outcome != Outcome::Pass,
        };
        match self.unrest {
            _ if contrary && outcome != Outcome::Fail(Reason::Slow) => Some(0),
            Some(_) if contrary => Some(0),
            Some(agreeing) => Some(agreeing + 1).filter(|agreeing| *agreeing < self.judgement.confirmation()),
            None => None,
        }
    }
}

/// The last results, the newest in bit 0, and how many in a row were alike.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    bits: u64,
    shown: u32,
    streak: i64,
}

impl History {
    fn push(&mut self, mark: Mark, span: u32) {
        self.bits = self.bits << 1 | u64::from(mark == Mark::Pass);
        self.shown = (self.shown + 1).min(span);
        self.streak = match mark {
            Mark::Pass => self.streak.max(0).saturating_add(1),
            Mark::Fail => self.streak.min(0).saturating_sub(1),
        };
    }

    fn shorten(&mut self, span: u32) {
        self.shown = self.shown.min(span);
    }

    fn passes(&self) -> u32 {
        self.bits.checked_shl(64 - self.shown).unwrap_or(0).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Trial, fail_as, inconclusive, pass, pass_in, rules, specs};
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

    fn act(result: char) -> super::super::trial::Act {
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

    #[test]
    fn a_cause_lasts_until_the_member_is_healthy_again() {
        let judge = Judge::Consecutive { failures: 2, passes: 2 };
        let mut trial = Trial::new(Rules { judge, ..rules() }, specs(2));
        let rows =
            [(Reason::Body, None), (Reason::Timeout, Some(Reason::Timeout)), (Reason::Status, Some(Reason::Timeout))];
        for (reason, expected) in rows {
            trial.at(1, fail_as(1, reason));
            assert_eq!(trial.member(1).cause(), expected);
        }
        trial.at(2, pass(1));
        assert_eq!(trial.member(1).cause(), Some(Reason::Timeout));
        trial.at(3, pass(1));
        assert_eq!(trial.member(1).cause(), None);
        assert_eq!(trial.member(1).since(), Duration::from_millis(3));
    }

    #[test]
    fn the_latency_is_of_right_answers_slow_ones_included() {
        let mut trial = Trial::new(rules(), specs(1));
        trial.pool.rules.gates.max_latency = Some(Duration::from_millis(50));
        for (total, latency, streak) in [(40, 40, 1), (90, 40, -1), (60, 60, -2), (10, 40, 1)] {
            trial.at(1, pass_in(1, total));
            trial.at(1, inconclusive(1));
            assert_eq!(trial.member(1).latency(), Some(Duration::from_millis(latency)));
            assert_eq!(trial.member(1).streak(), streak);
        }
        trial.at(1, fail_as(1, Reason::Status));
        assert_eq!(trial.member(1).latency(), Some(Duration::from_millis(40)));
        let last = trial.member(1).last_sample().map(|(sample, at)| (sample.outcome, at));
        assert_eq!(last, Some((Outcome::Fail(Reason::Status), Duration::from_millis(1))));
    }
}
