//! A reload: other rules, other members, and health that stays with whom it belongs to (health.md §9).
//!
//! Not here: what a changed probe or judge means for one member (`member`, `judge`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Change, Key, Member, PoolHealth, Rules, Spec, Standing, Verdict};

impl PoolHealth {
    /// Other rules, other members. State is kept by [`Key`]; a key that is new starts fresh, one that is gone is forgotten.
    /// But a member that its name or its file of members has lost is remembered for [`Rules::memory`]: when it is there
    /// again, it is the member it was (case C65).
    pub fn reshape(&mut self, now: Duration, rules: Rules, members: Vec<Spec>) -> Vec<Change> {
        let mut changes = Vec::new();
        self.lapse(now, &mut changes);
        let had_proven = self.has_proven();
        let newest = self.next_id;
        let probes_stopped = self.rules.probed && !rules.probed;
        self.rules = rules;

        let mut known = self.by_key();
        let mut departed = std::mem::take(&mut self.departed);
        departed.forget(now);
        let mut standings = Vec::with_capacity(members.len());
        for spec in members {
            let stayed = known.remove(&spec.key);
            // Who returns meets whatever has changed meanwhile, at once.
            let unprobed = if stayed.is_some() { probes_stopped } else { !self.rules.probed };
            let remembered = || Some((departed.recall(&spec.key)?, Standing::Unknown));
            let (member, standing) = match stayed.or_else(remembered) {
                Some((mut member, standing)) => {
                    let before = member.state();
                    member.reload(now, &self.rules, spec);
                    if unprobed && member.judged() != Verdict::Healthy {
                        // Nobody is left to say that it is healthy.
                        member.restart(now, &self.rules);
                    }
                    changes.extend(member.changes_since(before));
                    (member, standing)
                }
                None => {
                    let mut newcomer = self.newcomer(now, spec);
                    newcomer.is_of_the_start = !had_proven;
                    (newcomer, Standing::Unknown)
                }
            };
            self.index.insert(member.id(), self.members.len());
            self.members.push(member);
            standings.push(standing);
        }
        self.picture.standings = standings;
        let gone = known.into_values().map(|(member, _)| member).collect();
        departed.remember(now.saturating_add(self.rules.memory), self.lost_by_their_sources(gone));
        self.departed = departed;

        // Not at every reload of a pool where nobody has ever passed: its fallback must not stall for each.
        let begins_anew = had_proven || self.next_id > newest;
        if begins_anew && !self.has_proven() {
            self.deadline = now.saturating_add(self.rules.initial_wait);
        }
        self.settle(now, changes)
    }

    /// Takes all members out, each with how it stood.
    fn by_key(&mut self) -> HashMap<Key, (Member, Standing)> {
        self.index.clear();
        let standings = std::mem::take(&mut self.picture.standings);
        let members = std::mem::take(&mut self.members).into_iter();
        members.zip(standings).map(|(member, standing)| (member.spec().key.clone(), (member, standing))).collect()
    }

    /// Those of `gone` whose name or file is still in the pool: it is the resolver, or who writes the file, that took them
    /// away.
    pub(super) fn lost_by_their_sources(&self, mut gone: Vec<Member>) -> Vec<Member> {
        let sources = self.members.iter().filter_map(|member| member.spec().source.as_ref());
        let sources: HashSet<&Arc<str>> = if gone.is_empty() { HashSet::new() } else { sources.collect() };
        gone.retain(|member| {
            let Spec { source, roll, .. } = member.spec();
            source.as_ref().is_some_and(|source| sources.contains(source))
                || roll.as_ref().is_some_and(|roll| self.rules.rolls.contains(roll))
        });
        gone
    }

    /// Whether anyone who may serve has ever been healthy.
    pub(super) fn has_proven(&self) -> bool {
        self.members.iter().any(|member| member.counts() && member.proven())
    }
}

impl Member {
    /// What a reload means for one member that stays.
    pub(super) fn reload(&mut self, now: Duration, rules: &Rules, spec: Spec) {
        let file_says = (spec.admin != self.spec.admin).then_some(spec.admin);
        let has_other_probe = spec.fingerprint != self.spec.fingerprint;
        self.spec = spec;
        if has_other_probe {
            self.unverify(now);
        }
        self.settle_mark(rules);
        self.rejudge(now, rules.judge);
        self.rule(now, rules.eject.as_ref());
        if let Some(admin) = file_says {
            self.admit(now, rules, admin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, fail_as, ms, pass, pass_in, rules, spec, specs};
    use super::super::{Admin, Gates, Initial, Judge, OnAllUnhealthy, Pace, Reason, Window};
    use super::*;

    /// Three members: the first ejected with one pass towards coming back, the second with one fail, the third well.
    fn busy() -> Trial {
        let mut trial = Trial::new(Rules { judge: Judge::Consecutive { failures: 2, passes: 2 }, ..rules() }, specs(3));
        for (at, act) in
            [(1, fail(1)), (2, fail_as(1, Reason::Refused)), (3, pass(1)), (4, fail(2)), (5, pass_in(3, 40))]
        {
            trial.at(at, act);
        }
        assert_eq!(trial.standings(), "EHH");
        trial
    }

    #[test]
    fn what_does_not_shape_a_probe_changes_no_verdict() {
        // Health.md §9, second to last column of the table; cases C03 and C52 d to g.
        type Edit = fn(&mut Rules, &mut Vec<Spec>);
        let edits: [(&str, Edit, &str); 8] = [
            ("nothing", |_, _| {}, "EHH"),
            ("order", |_, members| members.reverse(), "HHE"),
            ("weights", |_, members| members.iter_mut().for_each(|member| member.weight = 9), "EHH"),
            ("split", |_, members| members[0].split = 2, "EHH"),
            ("initial", |rules, _| rules.initial = Initial::Unhealthy, "EHH"),
            ("wait", |rules, _| rules.initial_wait = ms(9_000), "EHH"),
            ("gates", |rules, _| rules.gates.max_latency = Some(ms(1)), "EHH"),
            ("fail", |rules, _| rules.on_all_unhealthy = OnAllUnhealthy::Fail, "EHH"),
        ];
        for (what, edit, expected) in edits {
            let mut trial = busy();
            for _ in 0..20 {
                let (mut rules, mut members) = (trial.pool.rules().clone(), specs(3));
                edit(&mut rules, &mut members);
                assert_eq!(trial.at(9, Act::Reload(rules, members)), expected, "{what}");
            }
            let of = |name: &str| trial.pool.members().iter().find(|member| member.spec().key.name == name);
            let (bad, shaky, well) = (of("10.0.0.1:80"), of("10.0.0.2:80"), of("10.0.0.3:80"));
            let bad = bad.expect("still there");
            assert_eq!((bad.since(), bad.cause(), bad.streak()), (ms(2), Some(Reason::Refused), 1), "{what}");
            assert_eq!(bad.pace(), Pace::Fast, "{what}");
            assert_eq!(shaky.map(Member::streak), Some(-1), "{what}");
            assert_eq!(well.and_then(Member::latency), Some(ms(40)), "{what}");
            assert!(!bad.unverified(), "{what}");
            // the evidence counts on: one more is enough for each
            let position = |name: &str| trial.pool.members().iter().position(|member| member.spec().key.name == name);
            let [bad, shaky] = ["10.0.0.1:80", "10.0.0.2:80"].map(|name| position(name).expect("still there") + 1);
            trial.pool.rules.gates = Gates::default();
            assert!(trial.at(10, pass(bad)).contains("unhealthy -> healthy"), "{what}");
            assert!(trial.at(11, fail(shaky)).contains("healthy -> unhealthy"), "{what}");
        }
    }

    #[test]
    fn another_identity_starts_fresh_and_the_old_one_is_forgotten() {
        // Case C52 a and b.
        type Edit = fn(&mut Key);
        let edits: [Edit; 3] = [
            |key| key.tls = true,
            |key| key.name = "other:80".to_owned(),
            |key| key.address = "10.0.0.1:81".parse().ok(),
        ];
        for edit in edits {
            let mut trial = busy();
            let old = trial.member(1).id();
            let mut members = specs(3);
            edit(&mut members[0].key);
            let reload = Act::Reload(Rules { initial: Initial::Probe, ..trial.pool.rules().clone() }, members);
            assert_eq!(trial.at(9, reload), "?HH");
            assert_eq!(trial.pool.member(old).map(Member::id), None);
            assert!(trial.member(1).id() > trial.member(3).id(), "an id is never given twice");
            assert_eq!((trial.member(1).since(), trial.member(1).streak()), (ms(9), 0));
            assert_eq!(trial.pool.index_of(trial.member(3).id()), Some(2));
        }
    }

    #[test]
    fn another_probe_leaves_the_verdict_until_it_has_spoken() {
        // Case C52 c.
        let judge = Judge::Window { size: 4, required: 3 };
        let mut trial = Trial::new(Rules { judge, ..rules() }, specs(4));
        for (at, act) in [(1, fail_as(1, Reason::Tls)), (2, fail_as(1, Reason::Tls)), (3, fail(2)), (4, pass_in(2, 70))]
        {
            trial.at(at, act);
        }
        assert_eq!(trial.member(2).pace(), Pace::Fast);
        let new_probe = || specs(4).into_iter().map(|spec| Spec { fingerprint: 8, ..spec }).collect();
        assert_eq!(trial.at(5, Act::Reload(trial.pool.rules().clone(), new_probe())), "EHHH");
        assert!(trial.pool.members().iter().all(Member::unverified));
        let second = trial.member(2);
        assert_eq!(second.window(), Window { passes: 0, shown: 0, size: 4, required: Some(3) });
        assert_eq!((second.streak(), second.latency(), second.pace()), (0, None, Pace::Steady));
        assert_eq!((trial.member(1).cause(), trial.member(1).since()), (Some(Reason::Tls), ms(2)));
        assert_eq!(trial.pool.observe(ms(6), trial.member(1).id(), 7, super::super::Sample::pass(ms(1))), []);
        trial.play([
            (7, pass(1), "EHHH"),
            (8, pass(1), "EHHH"),
            (9, pass(1), "HHHH m1 unhealthy -> healthy"),
            (10, fail(2), "HHHH"),
            (11, fail(2), "HEHH m2 healthy -> unhealthy"),
        ]);
        let marks: Vec<bool> = trial.pool.members().iter().map(Member::unverified).collect();
        assert_eq!(marks, [false, false, true, true]);
    }

    #[test]
    fn other_numbers_judge_what_is_known() {
        let window = |size, required| Rules { judge: Judge::Window { size, required }, ..rules() };
        let mut trial = Trial::new(window(4, 2), specs(4));
        for (at, member) in [(1, 1), (2, 1), (3, 2)] {
            trial.at(at, fail_as(member, Reason::Body));
        }
        assert_eq!(trial.standings(), "HHHH");
        trial.play([
            (5, Act::Reload(window(4, 3), specs(4)), "EHHH m1 healthy -> unhealthy"),
            (6, Act::Reload(window(4, 4), specs(4)), "EEHH m2 healthy -> unhealthy"),
            (7, Act::Reload(window(4, 2), specs(4)), "HHHH m1 unhealthy -> healthy, m2 unhealthy -> healthy"),
            (8, Act::Reload(window(2, 2), specs(4)), "EEHH m1 healthy -> unhealthy, m2 healthy -> unhealthy"),
        ]);
        let first = trial.member(1);
        assert_eq!((first.cause(), first.since()), (Some(Reason::Body), ms(8)));
        assert_eq!(first.window(), Window { passes: 0, shown: 2, size: 2, required: Some(2) });
        let mut trial = Trial::new(window(4, 2), specs(1));
        [10, 10, 90, 90].iter().for_each(|total| drop(trial.at(9, pass_in(1, *total))));
        assert_eq!(trial.member(1).latency(), Some(ms(10)));
        trial.at(10, Act::Reload(window(2, 1), specs(1)));
        assert_eq!(trial.member(1).latency(), Some(ms(90)));
    }

    #[test]
    fn an_operators_word_holds_until_the_file_changes_that_key() {
        let state = |admin| vec![spec(1), Spec { admin, ..spec(2) }];
        let mut trial = Trial::new(rules(), state(Admin::Enabled));
        trial.play([
            (1, admin(2, Admin::Draining), "HD m2 enabled -> draining"),
            (2, Act::Reload(rules(), state(Admin::Enabled)), "HD"),
            (3, Act::Reload(rules(), state(Admin::Disabled)), "HX m2 draining -> disabled"),
            (4, admin(2, Admin::Draining), "HD m2 healthy -> unknown, m2 disabled -> draining"),
            (5, Act::Reload(rules(), state(Admin::Disabled)), "HD"),
            (6, Act::Reload(rules(), state(Admin::Draining)), "HD"),
            (7, Act::Reload(rules(), state(Admin::Enabled)), "H? m2 draining -> enabled"),
        ]);
    }

    #[test]
    fn the_wait_begins_again_when_the_last_proven_member_goes() {
        let probe = || Rules { initial: Initial::Probe, ..rules() };
        let mut trial = Trial::new(rules(), specs(1));
        let swapped = vec![spec(2)];
        trial.play([
            (5_000, Act::Reload(probe(), swapped), "? tier 0 -> none, normal -> waiting"),
            (5_999, Act::Wait, "?"),
            (6_000, Act::Wait, "F fallback begins, waiting -> fallback"),
            // an unrelated reload does not stall the fallback of a pool that never passed
            (7_000, Act::Reload(probe(), vec![spec(2)]), "F"),
            (8_000, Act::Reload(probe(), vec![spec(2), spec(3)]), "?? fallback ends, fallback -> waiting"),
            (8_001, pass(2), "?H m2 unknown -> healthy, tier none -> 0, waiting -> normal"),
            // one that is drained is nobody to rely on
            (
                9_000,
                Act::Reload(probe(), vec![spec(2), Spec { weight: 0, ..spec(3) }]),
                "?D tier 0 -> none, normal -> waiting",
            ),
        ]);
        assert_eq!(trial.pool.next_deadline(), Some(ms(10_000)));
    }

    #[test]
    fn a_pool_that_is_no_longer_probed_holds_nothing_against_anyone() {
        let mut trial = busy();
        let unprobed = || Rules { probed: false, ..rules() };
        trial.play([
            (9, Act::Reload(unprobed(), specs(3)), "HHH m1 unhealthy -> healthy"),
            (10, fail(1), "HHH"),
            (11, Act::Reload(unprobed(), specs(3)), "HHH"),
            (12, Act::Reload(rules(), specs(3)), "HHH"),
            (13, fail(1), "EHH m1 healthy -> unhealthy"),
        ]);
        let other_probe = |rules: Rules| {
            let specs = specs(3).into_iter().map(|spec| Spec { fingerprint: 9, ..spec });
            Act::Reload(rules, specs.collect())
        };
        trial.at(14, other_probe(rules()));
        assert!(trial.member(1).unverified());
        trial.at(15, other_probe(unprobed()));
        trial.at(16, Act::Reload(unprobed(), specs(3)));
        assert!(!trial.pool.members().iter().any(Member::unverified), "there is nothing to verify without a probe");
        assert_eq!(trial.member(3).since(), ms(0), "nothing changed for one that was healthy");
    }

    #[test]
    fn members_that_go_take_their_places_with_them() {
        let mut trial = Trial::new(rules(), specs(4));
        for member in 1..=3 {
            trial.at(member as u64, fail(member));
        }
        assert_eq!(trial.standings(), "EEKH");
        trial.play([
            (4, Act::Reload(rules(), vec![spec(2), spec(3), spec(4)]), "EKH"),
            (5, Act::Reload(rules(), vec![spec(3), spec(4)]), "EH m1 kept -> ejected, capped -> normal"),
        ]);
    }
}
