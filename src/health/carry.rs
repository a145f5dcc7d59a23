//! What one process knows of a pool's members, for the next: as plain values, that can be written down (health.md §9).
//!
//! To take it over is a reload: who was carried meets the rules, the probe and the states of the file as they are now, by
//! the same table.
//!
//! Not here: how it is written and read, and what is too old to be believed (`carry`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Admin, Judge, Key, Member, PoolHealth, Reason, Sample, Spec, Standing, Verdict};

/// A member as the process before knew it.
#[derive(Debug, Clone, PartialEq)]
pub struct Carried {
    /// Whose it is.
    pub key: Key,
    /// The name whose answer had brought it.
    pub source: Option<Arc<str>>,
    /// The file of members that listed it.
    pub roll: Option<Arc<str>>,
    /// Of the probe that has taught it.
    pub fingerprint: u64,
    /// What the file wanted of it.
    pub written: Admin,
    /// What was wanted of it: an operator's word, or else the file's.
    pub admin: Admin,
    /// Since when.
    pub admin_since: Duration,
    /// Since when it drained, by that word or a weight of 0.
    pub draining_since: Option<Duration>,
    /// What its probes have shown; `None`: nothing, or nothing that is to be believed.
    pub evidence: Option<Evidence>,
}

/// What probes have shown of a member.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What its judge holds.
    pub held: Held,
    /// Whether it has ever been healthy.
    pub proven: bool,
    /// Its probe had become another one, and no sample had come since.
    pub unverified: bool,
    /// Its last samples, the newest in bit 0.
    pub bits: u64,
    /// How many of them are shown.
    pub shown: u32,
    /// Passes (positive) or fails (negative) in a row.
    pub streak: i64,
    /// The totals of its last right answers, oldest first.
    pub totals: Vec<Duration>,
    /// When the verdict last changed.
    pub since: Duration,
    /// The reason of the fail that made it unhealthy.
    pub cause: Option<Reason>,
    /// Of its last fail.
    pub last_fail: Option<Reason>,
    /// Its last conclusive sample.
    pub last_sample: Sample,
    /// When that came: how old all of this is.
    pub sampled_at: Duration,
    /// The cap's place outside the rotation.
    pub out: bool,
}

/// What a judge holds of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// By which numbers.
    pub judge: Judge,
    /// It has never passed, and its first pass decides alone.
    pub newcomer: bool,
    /// What it says.
    pub verdict: Verdict,
    /// Of the consecutive judge: results in a row against that.
    pub against: u32,
    /// Of a window: its places, virtual ones too, the newest in bit 0.
    pub places: u64,
}

impl PoolHealth {
    /// What is known of its members, in their order.
    pub fn carried(&self) -> Vec<Carried> {
        self.members().iter().map(Member::carried).collect()
    }

    /// Takes over what the process before knew, at the start of this one, and says of how many members that are there. Of
    /// others of its names and files it is remembered for as long as of those that they have lost: a name may not have
    /// answered yet.
    pub fn resume(&mut self, now: Duration, carried: Vec<Carried>) -> usize {
        let index: HashMap<Key, usize> =
            self.members().iter().enumerate().map(|(index, m)| (m.spec().key.clone(), index)).collect();
        let (mut taken, mut absent) = (0, Vec::new());
        for one in carried {
            let place = index.get(&one.key).copied();
            let id = match place {
                Some(place) => self.members()[place].id(),
                None => self.next_id(),
            };
            let mut member = Member::resumed(id, now, self.rules(), one);
            match place {
                Some(place) => {
                    let spec = self.members()[place].spec().clone();
                    member.reload(now, &self.rules, spec);
                    if !self.rules.probed && member.verdict() != Verdict::Healthy {
                        // Nobody is left to say that it is healthy.
                        member.restart(now, &self.rules);
                    }
                    taken += 1;
                    self.members[place] = member;
                }
                None => absent.push(member),
            }
        }
        let lost = self.lost_by_their_sources(absent);
        self.departed.remember(now.saturating_add(self.rules.memory), lost);
        // Nothing has changed for anybody: it is so from the start.
        self.picture.standings = vec![Standing::Unknown; self.members().len()];
        let _ = self.settle(now, Vec::new());
        taken
    }
}

impl Member {
    /// What is known of it.
    fn carried(&self) -> Carried {
        let evidence = self.evidence();
        let Spec { key, source, roll, fingerprint, admin: written, .. } = self.spec().clone();
        Carried {
            key,
            source,
            roll,
            fingerprint,
            written,
            admin: self.admin(),
            admin_since: self.admin_since(),
            draining_since: self.draining_since(),
            evidence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, fail_as, letter, ms, pass, pass_in, rules, spec, specs};
    use super::super::{Initial, Judge, Rules};
    use super::*;

    /// The first is ejected, the second has one fail, the third is well; the fourth was drained by hand.
    fn known() -> Vec<Carried> {
        let mut trial = Trial::new(by_two(), specs(4));
        for (at, act) in
            [(1, fail(1)), (2, fail_as(1, Reason::Refused)), (3, fail(2)), (4, pass_in(3, 40)), (5, pass(4))]
        {
            trial.at(at, act);
        }
        trial.at(6, admin(4, Admin::Draining));
        assert_eq!(trial.standings(), "EHHD");
        trial.pool.carried()
    }

    fn by_two() -> Rules {
        Rules { judge: Judge::Consecutive { failures: 2, passes: 2 }, ..rules() }
    }

    /// A pool of these that begins with what was known.
    fn resumed(rules: Rules, specs: Vec<Spec>) -> Trial {
        let mut trial = Trial::new(Rules { initial: Initial::Probe, ..rules }, specs);
        assert!(
            trial.standings().chars().all(|letter| letter == '?' || "XD".contains(letter)),
            "{}",
            trial.standings()
        );
        trial.pool.resume(ms(100), known());
        trial
    }

    #[test]
    fn everybody_goes_on_where_they_were() {
        let mut trial = resumed(by_two(), specs(4));
        assert_eq!(trial.standings(), "EHHD");
        assert_eq!(trial.pool.resume(ms(100), known()), 4);
        let first = trial.member(1);
        assert_eq!((first.cause(), first.streak(), first.since()), (Some(Reason::Refused), -2, ms(2)));
        assert_eq!((first.proven(), first.unverified(), first.window().shown), (true, false, 2));
        assert_eq!(trial.member(3).latency(), Some(ms(40)));
        assert_eq!((trial.member(4).admin(), trial.member(4).admin_since()), (Admin::Draining, ms(6)));
        assert_eq!(first.unpassed_since(), ms(100), "nobody is replaced by what another process has seen");
        trial.play([
            (101, fail(2), "EKHD m2 healthy -> unhealthy, normal -> capped"),
            (102, pass(1), "EKHD"),
            (103, pass(1), "HEHD m1 unhealthy -> healthy, m2 kept -> ejected, capped -> normal"),
        ]);
    }

    #[test]
    fn it_is_met_by_the_file_as_a_reload_would_be() {
        type Edit = fn(&mut Rules, &mut Vec<Spec>);
        let rows: [(&str, Edit, &str); 8] = [
            ("another order", |_, specs| specs.reverse(), "DHHE"),
            ("weight and tier", |_, specs| specs[1].weight = 9, "EHHD"),
            ("another probe", |_, specs| specs[0].fingerprint = 8, "EHHD"),
            ("another judge", |rules, _| rules.judge = Judge::Window { size: 4, required: 2 }, "EHHD"),
            ("a member less", |_, specs| drop(specs.remove(1)), "EHD"),
            ("another address", |_, specs| specs[0].key.address = "10.9.9.9:80".parse().ok(), "?HHD"),
            ("the file's word", |_, specs| specs[3].admin = Admin::Disabled, "EHHX"),
            ("no probes", |rules, _| rules.probed = false, "HHHD"),
        ];
        for (what, edit, expected) in rows {
            let (mut rules, mut members) = (Rules { initial: Initial::Unhealthy, ..by_two() }, specs(4));
            edit(&mut rules, &mut members);
            let mut trial = Trial::new(rules, members);
            trial.pool.resume(ms(100), known());
            assert_eq!(trial.standings(), expected, "{what}");
            assert_eq!(trial.member(1).unverified(), what == "another probe", "{what}");
        }
    }

    #[test]
    fn the_cap_holds_from_the_first_moment() {
        let mut trial = Trial::new(Rules { max_unhealthy_percent: 100, ..rules() }, specs(4));
        for (at, member) in [(1, 1), (2, 2), (3, 3)] {
            trial.at(at, fail(member));
        }
        assert_eq!(trial.standings(), "EEEH");
        let carried = trial.pool.carried();
        let mut next = Trial::new(rules(), specs(4));
        next.pool.resume(ms(100), carried);
        let standings = next.pool.picture().standings.iter().map(|standing| letter(*standing)).collect::<String>();
        assert_eq!((standings.matches('E').count(), standings.matches('K').count()), (2, 1), "{standings}");
    }

    #[test]
    fn whose_name_has_not_answered_yet_is_remembered_for_a_while() {
        let named = |number: usize| Spec { source: Some("app:80".into()), ..spec(number) };
        let nobody = || Spec { key: Key { name: "app:80".to_owned(), address: None, tls: false }, ..named(9) };
        let rules = || Rules { memory: ms(1_000), initial: Initial::Probe, ..rules() };
        let mut before = Trial::new(rules(), vec![named(1), named(2), spec(3)]);
        (1..=3).for_each(|member| drop(before.at(1, fail(member))));
        before.at(2, pass(2));
        before.at(3, admin(1, Admin::Disabled));
        let carried = before.pool.carried();
        for (at, expected) in [(1_099, "XH"), (1_101, "??")] {
            let mut trial = Trial::new(rules(), vec![nobody()]);
            assert_eq!(trial.pool.resume(ms(100), carried.clone()), 0);
            trial.at(at, Act::Reload(rules(), vec![named(1), named(2)]));
            assert_eq!(trial.standings(), expected, "at {at}");
        }
        // Whom the file has dropped is forgotten.
        let mut trial = Trial::new(rules(), vec![named(1)]);
        trial.pool.resume(ms(100), carried);
        trial.at(101, Act::Reload(rules(), vec![named(1), spec(3)]));
        assert_eq!(trial.member(2).verdict(), Verdict::Unknown);
    }

    #[test]
    fn what_is_not_believed_leaves_the_operators_word() {
        let carried: Vec<Carried> = known().into_iter().map(|one| Carried { evidence: None, ..one }).collect();
        let mut trial = Trial::new(Rules { initial: Initial::Probe, ..by_two() }, specs(4));
        trial.pool.resume(ms(100), carried);
        assert_eq!(trial.standings(), "???D");
        assert_eq!(trial.at(101, pass(1)), "H??D m1 unknown -> healthy, tier none -> 0, waiting -> normal");
    }

    #[test]
    fn nonsense_in_the_file_breaks_nothing() {
        for judge in [Judge::Window { size: 0, required: 99 }, Judge::Consecutive { failures: 0, passes: 0 }] {
            let mut carried = known();
            for evidence in carried.iter_mut().filter_map(|one| one.evidence.as_mut()) {
                evidence.held = Held { judge, against: u32::MAX, places: u64::MAX, ..evidence.held };
                (evidence.shown, evidence.streak, evidence.bits) = (u32::MAX, i64::MIN, u64::MAX);
                evidence.totals = vec![ms(1); 1_000];
            }
            let mut trial = Trial::new(by_two(), specs(4));
            trial.pool.resume(ms(100), carried);
            for at in 101..110 {
                (1..=4).for_each(|member| drop(trial.at(at, if at % 2 == 0 { pass(member) } else { fail(member) })));
            }
            assert!(trial.pool.members().iter().all(|member| member.window().shown <= 64));
        }
    }
}
