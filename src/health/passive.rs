//! Passive ejection: when what traffic meets puts a member out, for how long, and what ends that (health.md §6).
//!
//! It is a cause beside the judge's, and the two never touch: a failing probe cannot bring back whom traffic has put out
//! (case C12), nor a green one unless the rules say so. What is counted here is told, not seen: the counting is the pool's.
//!
//! Not here: what is evidence (`proxy`), who of the unhealthy leaves the rotation (`cap`).

use std::time::Duration;

use super::judge::{Judgement, Mark};
use super::{Initial, Judge, Reason, Verdict};

/// When traffic ejects, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eject {
    /// Failures in a row that are an offence; at least 1.
    pub consecutive: u32,
    /// The share of failures within `window` that is one: 1 to 100 percent.
    pub ratio_percent: u32,
    /// Over how long the share is taken.
    pub window: Duration,
    /// Requests within it below which the share says nothing.
    pub min_requests: u32,
    /// How long a first offence puts a member out; a second one twice as long, and so on.
    pub base: Duration,
    /// No longer than this; and one offence is forgotten in as long without a new one.
    pub max: Duration,
    /// Whether as many passes as make an unhealthy member healthy end it early.
    pub probe_clears: bool,
}

impl Default for Eject {
    fn default() -> Eject {
        Eject {
            consecutive: 5,
            ratio_percent: 50,
            window: Duration::from_secs(10),
            min_requests: 20,
            base: Duration::from_secs(30),
            max: Duration::from_secs(300),
            probe_clears: false,
        }
    }
}

/// What traffic has seen of a member when another request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Failures in a row, this one included.
    pub in_a_row: u32,
    /// Requests within the window.
    pub requests: u32,
    /// Of those, failures.
    pub failures: u32,
}

/// How a request has failed by its member's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// In the words of a probe.
    pub reason: Reason,
    /// Of the answer, where that was the failure.
    pub status: Option<u16>,
}

/// What a member is charged with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// What the last request met.
    pub last: Failure,
    /// The rule that was broken.
    pub by: Broken,
}

/// Which of the two limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// So many failures in a row.
    InARow(u32),
    /// So many failures of so many requests within the window.
    Share(u32, u32),
}

/// A passive ejection in force.
#[derive(Debug, Clone)]
pub struct Ban {
    /// What for.
    pub charge: Charge,
    /// Offences, those that are remembered included.
    pub offences: u32,
    /// Since when it is out.
    pub since: Duration,
    /// When its time is over.
    pub until: Duration,
    /// With `probe_clears`: the judge's view of the probes since, starting from unhealthy.
    appeal: Option<Judgement>,
}

/// A member's offences.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    offences: u32,
    /// When the last one was.
    at: Duration,
    ban: Option<Ban>,
}

impl Ban {
    /// For how long it is out.
    pub fn term(&self) -> Duration {
        self.until.saturating_sub(self.since)
    }
}

impl Charge {
    /// What was seen, for people: `5 failures in a row, last: 503`.
    pub fn words(&self) -> String {
        let seen = match self.by {
            Broken::InARow(1) => "a failure".to_owned(),
            Broken::InARow(count) => format!("{count} failures in a row"),
            Broken::Share(failures, requests) => format!("{failures} failures of {requests} requests"),
        };
        match self.last {
            Failure { status: Some(status), .. } => format!("{seen}, last: {status}"),
            Failure { reason, status: None } => format!("{seen}, last: {}", reason.as_str()),
        }
    }
}

impl Eject {
    /// Whether what was `seen` is an offence.
    pub fn is_broken(&self, seen: Seen) -> Option<Broken> {
        let Seen { in_a_row, requests, failures } = seen;
        if in_a_row >= self.consecutive {
            return Some(Broken::InARow(in_a_row));
        }
        let share = u64::from(failures) * 100 >= u64::from(self.ratio_percent) * u64::from(requests);
        (requests >= self.min_requests.max(1) && share).then_some(Broken::Share(failures, requests))
    }

    fn term(&self, offences: u32) -> Duration {
        self.base.saturating_mul(offences).min(self.max)
    }

    /// What is remembered of `offences` after so long without another.
    fn remembered(&self, offences: u32, after: Duration) -> u32 {
        let forgotten = after.as_nanos() / self.max.as_nanos().max(1);
        offences.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
    }
}

impl Record {
    /// The ejection in force.
    pub(super) fn ban(&self) -> Option<&Ban> {
        self.ban.as_ref()
    }

    /// A new offence, of one who is not out.
    pub(super) fn offend(&mut self, now: Duration, rules: &Eject, judge: Judge, charge: Charge) {
        self.offences = rules.remembered(self.offences, now.saturating_sub(self.at)).saturating_add(1);
        self.at = now;
        let until = now.saturating_add(rules.term(self.offences));
        let appeal = rules.probe_clears.then(|| Judgement::new(judge, Initial::Unhealthy));
        self.ban = Some(Ban { charge, offences: self.offences, since: now, until, appeal });
    }

    /// A probe's result. A pass ends what time has ended already; a fail ends nothing.
    pub(super) fn hear(&mut self, now: Duration, mark: Mark) {
        let Some(ban) = &mut self.ban else { return };
        ban.appeal.iter_mut().for_each(|appeal| appeal.record(mark));
        let is_heard = ban.appeal.as_ref().is_some_and(|appeal| appeal.verdict() == Verdict::Healthy);
        if is_heard || mark == Mark::Pass && ban.until <= now {
            self.ban = None;
        }
    }

    /// Its time is over, or somebody vouches for the member.
    pub(super) fn end(&mut self) {
        self.ban = None;
    }

    /// Another probe: what the old one passed says nothing.
    pub(super) fn hear_anew(&mut self, judge: Judge) {
        for appeal in self.ban.iter_mut().filter_map(|ban| ban.appeal.as_mut()) {
            *appeal = Judgement::new(judge, Initial::Unhealthy);
        }
    }

    /// Other rules: the present term is as long as they say. Without any nobody stays out.
    pub(super) fn rule(&mut self, rules: Option<&Eject>, judge: Judge) {
        let Some(rules) = rules else {
            *self = Record::default();
            return;
        };
        let Some(ban) = &mut self.ban else { return };
        ban.until = self.at.saturating_add(rules.term(ban.offences));
        match (&mut ban.appeal, rules.probe_clears) {
            (appeal, false) => *appeal = None,
            (Some(appeal), true) if appeal.judge() == judge => {}
            (appeal, true) => *appeal = Some(Judgement::new(judge, Initial::Unhealthy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, charge, fail, ms, pass, rules, specs, vouch};
    use super::super::{Admin, Class, OnAllUnhealthy, Rules};
    use super::*;

    fn eject() -> Eject {
        Eject { base: ms(100), max: ms(250), ..Eject::default() }
    }

    fn ejecting() -> Rules {
        Rules { eject: Some(eject()), ..rules() }
    }

    #[test]
    fn a_row_or_a_share_of_enough_requests_is_an_offence() {
        let rows = [
            ((4, 4, 4), None),
            ((5, 5, 5), Some(Broken::InARow(5))),
            ((1, 19, 19), None),
            ((1, 20, 9), None),
            ((1, 20, 10), Some(Broken::Share(10, 20))),
            ((1, 4_000_000_000, 2_000_000_000), Some(Broken::Share(2_000_000_000, 4_000_000_000))),
        ];
        for ((in_a_row, requests, failures), expected) in rows {
            assert_eq!(
                eject().is_broken(Seen { in_a_row, requests, failures }),
                expected,
                "{in_a_row} {failures}/{requests}"
            );
        }
    }

    #[test]
    fn each_offence_takes_longer_up_to_the_longest_and_time_forgets_one_by_one() {
        let mut record = Record::default();
        let last = Failure { reason: Reason::Reset, status: None };
        let charge = Charge { last, by: Broken::InARow(5) };
        let judge = Judge::Consecutive { failures: 1, passes: 1 };
        // (when, offences, until)
        let rows = [
            (0, 1, 100),
            (100, 2, 300),
            (300, 3, 550),
            (550, 3, 800),
            // two are forgotten, and this is one more
            (1_050, 2, 1_250),
            (5_000, 1, 5_100),
        ];
        for (at, offences, until) in rows {
            record.offend(ms(at), &eject(), judge, charge);
            let ban = record.ban().expect("out");
            assert_eq!((ban.offences, ban.until), (offences, ms(until)), "at {at}");
            record.end();
        }
    }

    #[test]
    fn a_failing_probe_does_not_end_it_nor_does_a_passing_one_before_its_time() {
        // Case C12
        let mut trial = Trial::new(ejecting(), specs(3));
        trial.play([
            (0, charge(1, Reason::Reset), "EHH m1 healthy -> unhealthy"),
            (10, pass(1), "EHH"),
            (20, fail(1), "EHH"),
            (30, pass(1), "EHH"),
            (99, Act::Wait, "EHH"),
            (100, Act::Wait, "HHH m1 unhealthy -> healthy"),
            (110, charge(1, Reason::Status), "EHH m1 healthy -> unhealthy"),
            (309, pass(1), "EHH"),
            (310, pass(1), "HHH m1 unhealthy -> healthy"),
        ]);
        assert_eq!(trial.pool.next_deadline(), None);
    }

    #[test]
    fn with_probe_clears_as_many_passes_as_the_judge_wants_end_it() {
        let eject = Some(Eject { probe_clears: true, ..eject() });
        let judge = Judge::Consecutive { failures: 3, passes: 2 };
        let mut trial = Trial::new(Rules { eject, judge, ..rules() }, specs(3));
        trial.play([
            (0, pass(1), "HHH"),
            (1, pass(1), "HHH"),
            (2, charge(1, Reason::Reset), "EHH m1 healthy -> unhealthy"),
            (3, pass(1), "EHH"),
            (4, fail(1), "EHH"),
            (5, pass(1), "EHH"),
            (6, pass(1), "HHH m1 unhealthy -> healthy"),
        ]);
        let mut trial = Trial::new(Rules { eject, judge: Judge::Window { size: 4, required: 3 }, ..rules() }, specs(3));
        trial.at(0, charge(1, Reason::Reset));
        trial.play([
            (1, pass(1), "EHH"),
            (2, fail(1), "EHH"),
            (3, pass(1), "EHH"),
            (4, pass(1), "HHH m1 unhealthy -> healthy"),
        ]);
    }

    #[test]
    fn one_cap_holds_over_all_causes_and_a_member_is_unhealthy_once() {
        let mut trial = Trial::new(ejecting(), specs(4));
        trial.play([
            (0, charge(1, Reason::Status), "EHHH m1 healthy -> unhealthy"),
            (1, fail(2), "EEHH m2 healthy -> unhealthy"),
            // the worse class goes, whoever said so
            (2, charge(3, Reason::Timeout), "KEEH m3 healthy -> unhealthy, m1 ejected -> kept, normal -> capped"),
            // said twice, counted once; the worst class is what counts
            (3, charge(2, Reason::Refused), "KEEH"),
            (4, fail(1), "KEEH"),
            (5, pass(2), "KEEH"),
            // m1's time is over, and its probe still fails; m3 goes on
            (100, Act::Wait, "KEEH"),
            (102, Act::Wait, "EEHH m3 unhealthy -> healthy, m1 kept -> ejected, capped -> normal"),
            (103, Act::Wait, "EHHH m2 unhealthy -> healthy"),
        ]);
        assert_eq!(trial.member(1).cause().map(Reason::class), Some(Class::Wrong));
    }

    #[test]
    fn who_is_out_offends_no_more_and_nobody_does_in_the_fallback() {
        let mut trial = Trial::new(ejecting(), specs(2));
        trial.at(0, charge(1, Reason::Reset));
        trial.at(10, charge(1, Reason::Reset));
        assert_eq!(trial.member(1).ban().map(|ban| (ban.offences, ban.until)), Some((1, ms(100))));
        assert_eq!(
            trial.at(20, charge(2, Reason::Reset)),
            "FF m2 healthy -> unhealthy, fallback begins, tier 0 -> none, normal -> fallback"
        );
        trial.at(30, charge(1, Reason::Reset));
        trial.play([
            // its time alone brings nobody back from there: its next pass does
            (150, Act::Wait, "FF"),
            (151, charge(1, Reason::Reset), "FF"),
            (152, fail(2), "FF"),
            // then the other's counts too, for its own part
            (153, pass(1), "HE m1 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> normal"),
            (154, pass(2), "HH m2 unhealthy -> healthy"),
        ]);
    }

    #[test]
    fn time_that_ran_out_in_the_fallback_counts_when_that_is_over() {
        let mut trial = Trial::new(ejecting(), specs(3));
        (1..=3).for_each(|member| drop(trial.at(0, charge(member, Reason::Reset))));
        assert_eq!((trial.standings().as_str(), trial.pool.next_deadline()), ("FFF", None));
        let expected = "HHH m1 unhealthy -> healthy, m2 unhealthy -> healthy, m3 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> normal";
        assert_eq!(trial.at(200, pass(1)), expected);
    }

    #[test]
    fn without_probes_the_first_success_ends_the_fallback() {
        let mut trial = Trial::new(Rules { probed: false, ..ejecting() }, specs(2));
        trial.at(0, charge(1, Reason::Reset));
        // elsewhere nobody's word counts
        assert_eq!(trial.at(1, vouch(1)), "EH");
        trial.at(2, charge(2, Reason::Reset));
        trial.play([
            (99, Act::Wait, "FF"),
            // the other's time runs on
            (99, vouch(2), "EH m2 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> normal"),
            (100, Act::Wait, "HH m1 unhealthy -> healthy"),
        ]);
        // nor where probes can tell
        let mut trial = Trial::new(ejecting(), specs(1));
        trial.at(0, charge(1, Reason::Reset));
        assert_eq!(trial.at(1, vouch(1)), "F");
    }

    #[test]
    fn without_probes_time_alone_ends_the_fallback() {
        // Who gets no request is vouched for by nobody: its traffic may have gone elsewhere.
        let unprobed = Rules { probed: false, ..ejecting() };
        let mut trial = Trial::new(unprobed.clone(), specs(2));
        trial.at(0, charge(1, Reason::Reset));
        trial.at(5, charge(2, Reason::Reset));
        assert_eq!((trial.standings().as_str(), trial.pool.next_deadline()), ("FF", Some(ms(100))));
        trial.play([
            (99, Act::Wait, "FF"),
            (100, Act::Wait, "HE m1 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> normal"),
            (105, Act::Wait, "HH m2 unhealthy -> healthy"),
        ]);
        // nor is there anyone to pass once probes have been taken away
        let mut trial = Trial::new(ejecting(), specs(1));
        trial.at(0, charge(1, Reason::Reset));
        assert_eq!(trial.at(150, Act::Wait), "F");
        let expected = "H m1 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> normal";
        assert_eq!(trial.at(160, Act::Reload(unprobed, specs(1))), expected);
    }

    #[test]
    fn a_pool_that_fails_has_no_traffic_to_wait_for_and_time_alone_is_enough() {
        let fails = Rules { on_all_unhealthy: OnAllUnhealthy::Fail, max_unhealthy_percent: 100, ..ejecting() };
        let mut trial = Trial::new(Rules { probed: false, ..fails }, specs(1));
        assert_eq!(trial.at(0, charge(1, Reason::Reset)), "E m1 healthy -> unhealthy, tier 0 -> none, normal -> down");
        assert_eq!(trial.at(100, Act::Wait), "H m1 unhealthy -> healthy, tier none -> 0, down -> normal");
    }

    #[test]
    fn a_reload_keeps_it_and_without_the_rule_nobody_stays_out() {
        let mut trial = Trial::new(ejecting(), specs(3));
        trial.at(0, charge(1, Reason::Reset));
        assert_eq!(trial.at(1, Act::Reload(ejecting(), specs(3))), "EHH");
        let longer = Rules { eject: Some(Eject { base: ms(200), ..eject() }), ..rules() };
        assert_eq!(trial.at(2, Act::Reload(longer, specs(3))), "EHH");
        assert_eq!(trial.pool.next_deadline(), Some(ms(200)));
        assert_eq!(trial.at(3, Act::Reload(rules(), specs(3))), "HHH m1 unhealthy -> healthy");
        assert_eq!(trial.at(4, charge(1, Reason::Reset)), "HHH");
    }

    #[test]
    fn who_is_enabled_again_starts_with_a_clean_record() {
        let mut trial = Trial::new(Rules { probed: false, ..ejecting() }, specs(3));
        trial.at(0, charge(1, Reason::Reset));
        trial.at(1, admin(1, Admin::Disabled));
        assert_eq!(trial.at(2, charge(1, Reason::Reset)), "XHH");
        trial.at(3, admin(1, Admin::Enabled));
        assert_eq!(trial.standings(), "HHH");
        trial.at(4, charge(1, Reason::Reset));
        assert_eq!(trial.member(1).ban().map(|ban| ban.offences), Some(1));
    }
}
