//! Those who have left the pool and may return: a name's addresses and the lines of a file come and go, and who was
//! unhealthy when it went is not to come back as a newcomer (health.md §9, case C65).

use std::collections::HashMap;
use std::time::Duration;

use super::{Key, Member};

/// As many are remembered; of more, those who would be forgotten first are. A name that changes its addresses all the time
/// must not fill the memory.
const MOST: usize = 1_000;

/// Members out of the pool, each until when it is remembered.
#[derive(Debug, Clone, Default)]
pub(super) struct Departed(HashMap<Key, (Duration, Member)>);

impl Departed {
    /// Takes the members that leave; those without an address were nobody.
    pub(super) fn remember(&mut self, until: Duration, members: Vec<Member>) {
        let leaving = members.into_iter().filter(|member| member.spec().key.address.is_some());
        self.0.extend(leaving.map(|member| (member.spec().key.clone(), (until, member))));
        if self.0.len() > MOST {
            let mut ends: Vec<(Duration, Key)> = self.0.iter().map(|(key, (until, _))| (*until, key.clone())).collect();
            ends.sort_unstable();
            for (_, key) in &ends[..ends.len() - MOST] {
                self.0.remove(key);
            }
        }
    }

    /// Forgets those who left too long ago.
    pub(super) fn forget(&mut self, now: Duration) {
        self.0.retain(|_, (until, _)| *until > now);
    }

    /// The member with this key, if it is remembered.
    pub(super) fn recall(&mut self, key: &Key) -> Option<Member> {
        // Who returns healthy has not turned so: it is the member it was.
        self.0.remove(key).map(|(_, mut member)| {
            member.was_healthy = true;
            member.is_of_the_start = false;
            member
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, ms, pass, rules, spec, specs};
    use super::super::{Admin, Initial, Judge, MemberId, Rules, Spec, Verdict};
    use super::*;

    fn remembering() -> Rules {
        Rules { memory: ms(1_000), initial: Initial::Probe, ..rules() }
    }

    /// Addresses of one name.
    fn named(number: usize) -> Spec {
        Spec { source: Some("app:80".into()), ..spec(number) }
    }

    fn all() -> Vec<Spec> {
        (1..=4).map(named).collect()
    }

    fn but_the_first() -> Vec<Spec> {
        all().split_off(1)
    }

    /// Four members, the first two unhealthy and out; then the first goes.
    fn without_the_first() -> Trial {
        let mut trial = Trial::new(rules(), all());
        trial.at(1, fail(1));
        trial.at(2, fail(2));
        assert_eq!(trial.standings(), "EEHH");
        trial.at(10, Act::Reload(remembering(), but_the_first()));
        trial
    }

    #[test]
    fn who_was_ejected_returns_ejected() {
        let mut trial = without_the_first();
        assert_eq!(trial.standings(), "EHH");
        let id = MemberId(0);
        assert_eq!(trial.at(500, Act::Reload(remembering(), all())), "EEHH", "nothing has changed for anyone");
        let back = trial.member(1);
        assert_eq!((back.id(), back.streak(), back.since()), (id, -1, ms(1)));
        trial.play([(501, pass(1), "HEHH m1 unhealthy -> healthy")]);
    }

    #[test]
    fn who_is_away_too_long_returns_as_a_newcomer() {
        for (at, expected) in [(11, "EEHH"), (1_009, "EEHH"), (1_010, "?EHH")] {
            let mut trial = without_the_first();
            assert_eq!(trial.at(at, Act::Reload(remembering(), all())), expected, "back at {at}");
        }
    }

    #[test]
    fn what_has_changed_meanwhile_is_met_at_the_return() {
        let back = |rules: Rules, spec: Spec| {
            let mut trial = without_the_first();
            trial.at(20, Act::Reload(rules.clone(), but_the_first()));
            trial.at(30, Act::Reload(rules, [vec![spec], but_the_first()].concat()));
            trial
        };
        let other_probe = back(remembering(), Spec { fingerprint: 8, ..named(1) });
        assert!(other_probe.member(1).unverified() && other_probe.standings() == "EEHH");
        let unprobed = back(Rules { probed: false, ..remembering() }, named(1));
        assert_eq!(unprobed.standings(), "HHHH", "nobody is left to say that it is healthy");
        let drained = back(remembering(), Spec { admin: Admin::Draining, ..named(1) });
        assert_eq!(drained.standings(), "DEHH");
        let generous = back(Rules { judge: Judge::Window { size: 4, required: 1 }, ..remembering() }, named(1));
        assert_eq!(generous.member(1).window().size, 4);
    }

    #[test]
    fn an_operators_word_is_remembered_too() {
        let mut trial = Trial::new(remembering(), all());
        trial.at(1, pass(1));
        trial.at(2, admin(1, Admin::Draining));
        trial.at(3, Act::Reload(remembering(), but_the_first()));
        trial.at(4, Act::Reload(remembering(), all()));
        assert_eq!(trial.member(1).admin(), Admin::Draining);
    }

    #[test]
    fn whom_a_file_of_members_has_lost_is_remembered_while_the_pool_has_the_file() {
        let listed = || Spec { roll: Some("members.yaml".into()), ..spec(1) };
        let of = |rolls: &[&str]| Rules { rolls: rolls.iter().map(|&roll| roll.into()).collect(), ..remembering() };
        for (rolls, expected) in [(&["members.yaml"][..], "E"), (&[], "?"), (&["more.yaml"], "?")] {
            let mut trial =
                Trial::new(Rules { rolls: vec!["members.yaml".into()], ..rules() }, vec![listed(), spec(2)]);
            trial.at(1, fail(1));
            // The file lists nobody any more.
            trial.at(2, Act::Reload(of(rolls), vec![spec(2)]));
            let shown = trial.at(3, Act::Reload(of(&["members.yaml"]), vec![listed(), spec(2)]));
            assert_eq!(shown, format!("{expected}H"), "{rolls:?}");
        }
    }

    #[test]
    fn a_name_that_changes_all_the_time_fills_no_memory() {
        let mut departed = Departed::default();
        let pool = Trial::new(rules(), specs(3));
        for round in 0..2_000_u64 {
            let moved = |member: &Member| {
                let mut member = member.clone();
                member.spec.key.name = format!("{round}-{}", member.spec.key.name);
                member
            };
            departed.remember(ms(round), pool.pool.members().iter().map(moved).collect());
        }
        assert_eq!(departed.0.len(), MOST);
        let key = |round: u64| Key { name: format!("{round}-10.0.0.2:80"), ..spec(2).key };
        assert!(departed.recall(&key(1_999)).is_some() && departed.recall(&key(0)).is_none());
        departed.forget(ms(1_998));
        assert_eq!(departed.0.len(), 2);
    }

    #[test]
    fn whom_the_file_has_dropped_is_forgotten() {
        for (others, back) in [(specs(4), spec(1)), (specs(4), named(1)), (all(), spec(1))] {
            let mut trial = Trial::new(remembering(), [vec![back.clone()], others[1..].to_vec()].concat());
            trial.at(1, pass(1));
            trial.at(2, Act::Reload(remembering(), others[1..].to_vec()));
            trial.at(3, Act::Reload(remembering(), [vec![back], others[1..].to_vec()].concat()));
            assert_eq!(trial.member(1).verdict(), Verdict::Unknown);
        }
    }

    #[test]
    fn a_name_without_an_address_was_nobody() {
        let nobody = || Spec { key: Key { address: None, ..spec(9).key }, ..named(9) };
        let mut trial = Trial::new(remembering(), vec![named(1), nobody()]);
        trial.at(1, Act::Reload(remembering(), vec![named(1)]));
        trial.at(2, Act::Reload(remembering(), vec![named(1), nobody()]));
        assert_ne!(trial.member(2).id(), MemberId(1));
    }
}
