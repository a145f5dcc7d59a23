//! One member: who it is, what is wanted of it, and what its probes have shown.
//!
//! Not here: anything that depends on the other members. Whether an unhealthy member is out of the rotation is for
//! `cap` to say, and how it stands for `picture`.

use std::time::Duration;

use super::carry::{Carried, Evidence};
use super::history::History;
use super::judge::{Judgement, Mark};
use super::latency::Times;
use super::pace::Unrest;
use super::passive::Record;
use super::{
    Admin, Ban, Change, Charge, Class, Eject, Initial, Judge, MemberId, Outcome, Pace, Phases, Reason, Rules, Sample,
    Spec, Verdict, Window,
};

/// A member of a pool, with its health.
#[derive(Debug, Clone)]
pub struct Member {
    id: MemberId,
    pub(super) spec: Spec,
    pub(super) admin: Admin,
    admin_since: Duration,
    /// Since when it stands as draining.
    draining_since: Option<Duration>,
    judgement: Judgement,
    record: Record,
    proven: bool,
    unverified: bool,
    history: History,
    times: Times,
    since: Duration,
    unpassed_since: Duration,
    cause: Option<Reason>,
    last_fail: Option<Reason>,
    last_sample: Option<(Sample, Duration)>,
    /// One that taught nothing, where it came after that.
    unsure: Option<(Sample, Duration)>,
    unrest: Unrest,
    pub(super) turn: Turn,
    /// The cap's place outside the rotation, kept also while the tier does not serve.
    pub(super) out: bool,
    /// Whether it was a healthy member when the picture was drawn last.
    pub(super) was_healthy: bool,
    /// When its slow start began, until that is over.
    pub(super) back_since: Option<Duration>,
    /// It came when nobody had been healthy yet, and has come up with those that were first; it has not fallen since.
    pub(super) is_of_the_start: bool,
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
        let mut member = Member {
            id,
            admin: spec.admin,
            admin_since: now,
            draining_since: None,
            spec,
            proven: judgement.verdict() == Verdict::Healthy,
            judgement,
            record: Record::default(),
            unverified: false,
            history: History::default(),
            times: Times::default(),
            since: now,
            unpassed_since: now,
            cause: None,
            last_fail: None,
            last_sample: None,
            unsure: None,
            unrest: Unrest::default(),
            turn: Turn::default(),
            out: false,
            was_healthy: false,
            back_since: None,
            is_of_the_start: false,
        };
        // Who begins healthy has not turned so.
        member.was_healthy = member.healthy();
        member
    }

    /// One that the process before knew, as its file had it; what is too old to be believed is not there.
    pub(super) fn resumed(id: MemberId, now: Duration, rules: &Rules, carried: Carried) -> Member {
        let Carried { key, source, roll, fingerprint, written, admin, admin_since, draining_since, evidence } = carried;
        // The rest is the configuration's to say, which comes next.
        let spec = Spec { key, weight: 1, split: 1, tier: 0, admin: written, source, roll, fingerprint };
        let fresh = Member { admin, admin_since, draining_since, ..Member::new(id, now, rules, spec) };
        let Some(evidence) = evidence else { return fresh };
        Member {
            judgement: Judgement::resumed(&evidence.held),
            proven: evidence.proven,
            unverified: evidence.unverified,
            history: History::resumed(evidence.bits, evidence.shown, evidence.streak),
            times: Times::resumed(evidence.totals),
            since: evidence.since,
            cause: evidence.cause,
            last_fail: evidence.last_fail,
            last_sample: Some((evidence.last_sample, evidence.sampled_at)),
            out: evidence.out,
            // How long it has failed begins anew: nobody is replaced by what another process has seen.
            ..fresh
        }
    }

    /// What its probes have shown; `None` before the first conclusive sample.
    pub(super) fn evidence(&self) -> Option<Evidence> {
        let (last_sample, sampled_at) = self.last_sample.clone()?;
        let (bits, shown) = self.history.places();
        Some(Evidence {
            held: self.judgement.held(),
            proven: self.proven,
            unverified: self.unverified,
            bits,
            shown,
            streak: self.streak(),
            totals: self.times.all(),
            since: self.since,
            cause: self.cause,
            last_fail: self.last_fail,
            last_sample,
            sampled_at,
            out: self.out,
        })
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

    /// Since when that is wanted of it.
    pub fn admin_since(&self) -> Duration {
        self.admin_since
    }

    /// Since when it drains, by an operator's word or a weight of 0; `None` where it does not.
    pub fn draining_since(&self) -> Option<Duration> {
        self.draining_since
    }

    /// When its slow start began; `None` where it has none, or it is over.
    pub fn back_since(&self) -> Option<Duration> {
        self.back_since
    }

    /// What the judge says, and traffic: unhealthy if either does.
    pub fn verdict(&self) -> Verdict {
        match self.judged() {
            Verdict::Healthy if self.record.ban().is_some() => Verdict::Unhealthy,
            judged => judged,
        }
    }

    /// What the judge says.
    pub fn judged(&self) -> Verdict {
        self.judgement.verdict()
    }

    /// The passive ejection in force; whether the member is out of the rotation is the cap's matter.
    pub fn ban(&self) -> Option<&Ban> {
        self.record.ban()
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
        self.history.window(self.judgement.judge())
    }

    /// Passes (positive) or fails (negative) in a row, real ones only.
    pub fn streak(&self) -> i64 {
        self.history.streak()
    }

    /// The lower median of the totals of its last right answers, slow ones included (health.md §5).
    pub fn latency(&self) -> Option<Duration> {
        self.times.median()
    }

    /// The same for each phase, among the answers that came to it.
    pub fn medians(&self) -> Option<Phases> {
        self.times.medians()
    }

    /// When the verdict last changed, or the member began; again after it was disabled.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Since when no probe of it has passed: its last pass, or later when its probe became another one or an operator
    /// enabled it.
    pub fn unpassed_since(&self) -> Duration {
        self.unpassed_since
    }

    /// Whether its last sample is a fail and its judge does not call it healthy, be it that it never did.
    pub fn is_failing(&self) -> bool {
        self.judged() != Verdict::Healthy && self.streak() < 0
    }

    /// The reason of the fail that made it unhealthy, until it is healthy again; of several causes the worst.
    pub fn cause(&self) -> Option<Reason> {
        let (judged, by_traffic) = (self.cause, self.record.ban().map(|ban| ban.charge.last.reason));
        match (judged, by_traffic) {
            (Some(judged), Some(by_traffic)) if by_traffic.class() > judged.class() => Some(by_traffic),
            (None, by_traffic) => by_traffic,
            _ => judged,
        }
    }

    /// The last conclusive sample as judged (a right answer over a gate is a fail here), and when it came.
    pub fn last_sample(&self) -> Option<(&Sample, Duration)> {
        self.last_sample.as_ref().map(|(sample, at)| (sample, *at))
    }

    /// The last sample, one that taught nothing included, and when it came.
    pub fn last_probe(&self) -> Option<(&Sample, Duration)> {
        self.unsure.as_ref().map(|(sample, at)| (sample, *at)).or(self.last_sample())
    }

    /// How soon its next probe is due.
    pub fn pace(&self) -> Pace {
        self.unrest.pace()
    }

    /// Enabled and of weight > 0: one that counts in its tier.
    pub(super) fn counts(&self) -> bool {
        self.admin == Admin::Enabled && self.spec.weight > 0
    }

    /// One that counts and of which nothing is known yet.
    pub(super) fn is_untried(&self) -> bool {
        self.counts() && !self.proven && self.window().shown == 0
    }

    /// One that counts and can be reached.
    pub(super) fn reachable(&self) -> bool {
        self.counts() && self.spec.key.address.is_some()
    }

    /// Whether it takes nothing new, by an operator's word or a weight of 0.
    pub(super) fn drains(&self) -> bool {
        match self.admin {
            Admin::Enabled => self.spec.weight == 0,
            Admin::Draining => true,
            Admin::Disabled => false,
        }
    }

    /// Until when it serves the clients bound to it, where it drains.
    pub(super) fn drains_until(&self, rules: &Rules) -> Option<Duration> {
        Some(self.draining_since?.saturating_add(rules.drain))
    }

    /// Notes since when it drains: an operator's word on top of a weight of 0 begins nothing anew, nor does a reload.
    pub(super) fn note_drain(&mut self, now: Duration) {
        self.draining_since = self.drains().then(|| self.draining_since.unwrap_or(now));
    }

    /// A healthy member in the sense of health.md: by every cause. Without an address nobody is.
    pub(super) fn healthy(&self) -> bool {
        self.reachable() && self.verdict() == Verdict::Healthy
    }

    /// The worst class of what makes it unhealthy; `None` where no fail did (`initial: unhealthy`).
    pub fn class(&self) -> Option<Class> {
        self.cause().map(Reason::class)
    }

    /// How bad it is among its class, greatest first: fewest passes in the window, or longest fail streak.
    pub(super) fn badness(&self) -> u64 {
        match self.judgement.passes() {
            Some(passes) => u64::from(u32::MAX - passes),
            None => self.streak().min(0).unsigned_abs(),
        }
    }

    /// Takes a conclusive sample, the `turn`th of the pool.
    pub(super) fn record(&mut self, now: Duration, turn: u64, sample: Sample, over_relative: bool) {
        let (mark, answered) = match sample.outcome {
            Outcome::Inconclusive => return,
            Outcome::Pass => {
                self.unpassed_since = now;
                (Mark::Pass, true)
            }
            Outcome::Fail(reason) => {
                self.last_fail = Some(reason);
                (Mark::Fail, reason == Reason::Slow)
            }
        };
        let (before, judged) = (self.verdict(), self.judged());
        let span = self.judgement.judge().span();
        self.judgement.record(mark);
        self.record.hear(now, mark);
        self.history.push(mark, span);
        self.unverified = false;
        self.turn.sampled = turn;
        self.turn.over = over_relative;
        if answered {
            self.turn.answered = turn;
            self.turn.total = sample.phases.total;
            self.times.push(sample.phases, span as usize);
        }
        self.unrest.record(judged, sample.outcome, self.judgement.confirmation());
        self.note_judged(judged);
        self.note_verdict(now, before);
        self.last_sample = Some((sample, now));
        self.unsure = None;
    }

    /// Notes a sample that taught nothing, for those who wonder why there is no verdict; it moves nothing.
    pub(super) fn note_unsure(&mut self, now: Duration, sample: Sample) {
        self.unsure = Some((sample, now));
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
        if was != admin {
            self.admin_since = now;
        }
        if was == Admin::Disabled && admin != Admin::Disabled {
            self.restart(now, rules);
            self.back_since = None;
        }
        if was != Admin::Enabled && admin == Admin::Enabled {
            // Whoever had it in hand has just let go of it.
            self.unpassed_since = now;
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
        let (admin, admin_since, draining_since) = (self.admin, self.admin_since, self.draining_since);
        let (was_healthy, back_since, last_sample) = (self.was_healthy, self.back_since, self.last_sample.take());
        *self = Member { admin, admin_since, draining_since, last_sample, was_healthy, back_since, ..fresh };
    }

    /// Another probe: the verdict stands unverified, the evidence is gone (health.md §9).
    pub(super) fn unverify(&mut self, now: Duration) {
        self.unpassed_since = now;
        self.judgement.forget();
        self.record.hear_anew(self.judgement.judge());
        self.history = History::default();
        self.times.clear();
        self.turn = Turn::default();
        self.unrest = Unrest::default();
        self.unverified = true;
    }

    /// Without probes there is nothing to verify, and nobody who ever could.
    pub(super) fn settle_mark(&mut self, rules: &Rules) {
        self.unverified &= rules.probed;
    }

    /// Other numbers for the judge.
    pub(super) fn rejudge(&mut self, now: Duration, judge: Judge) {
        if judge == self.judgement.judge() {
            return;
        }
        let (before, judged) = (self.verdict(), self.judged());
        self.judgement.rejudge(judge, self.streak());
        self.history.shorten(judge.span());
        self.times.shorten(judge.span() as usize);
        self.note_judged(judged);
        self.note_verdict(now, before);
    }

    /// Traffic charges it. Nothing comes of that while it is out already.
    pub(super) fn offend(&mut self, now: Duration, rules: &Eject, charge: Charge) {
        let before = self.verdict();
        if self.record.ban().is_none() {
            self.record.offend(now, rules, self.judgement.judge(), charge);
        }
        self.note_verdict(now, before);
    }

    /// What traffic has put out is out no longer.
    pub(super) fn pardon(&mut self, now: Duration) {
        let before = self.verdict();
        self.record.end();
        self.note_verdict(now, before);
    }

    /// Other rules for what traffic may do.
    pub(super) fn rule(&mut self, now: Duration, rules: Option<&Eject>) {
        let before = self.verdict();
        self.record.rule(rules, self.judgement.judge());
        self.note_verdict(now, before);
    }

    /// What follows where the judge no longer says what it said `before`.
    fn note_judged(&mut self, before: Verdict) {
        let judged = self.judged();
        if judged == before {
            return;
        }
        self.unrest = Unrest::default();
        self.proven |= judged == Verdict::Healthy;
        self.cause = if judged == Verdict::Unhealthy { self.last_fail } else { None };
    }

    /// What follows from a verdict that is no longer the one `before`.
    fn note_verdict(&mut self, now: Duration, before: Verdict) {
        if self.verdict() != before {
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Trial, fail_as, inconclusive, pass, pass_in, rules, specs};
    use super::*;

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
