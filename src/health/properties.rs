//! What must hold at every instant of every history: random rules, samples, words of operators and reloads.
//!
//! Nothing here repeats the rules; it is what follows from them, checked from outside. Which verdict and standing is
//! the right one is for the examples, and for the independent model in `tests/simulation`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proptest::prelude::*;

use super::histories::{Act, Step, any_rules, any_specs, steps};
use super::trial::ms;
use super::{
    Admin, Change, Judge, Key, Member, MemberId, Mode, Picture, PoolHealth, Rules, Spec, Standing, State, Verdict,
};

/// A pool, and what its changes have told so far.
struct Watch {
    pool: PoolHealth,
    now: Duration,
    told: BTreeMap<MemberId, (Verdict, Admin)>,
    ever: BTreeMap<MemberId, Key>,
}

impl Watch {
    fn new(rules: Rules, specs: Vec<Spec>) -> Watch {
        let pool = PoolHealth::new(Duration::ZERO, rules, specs);
        let told = told(&pool);
        let ever = pool.members().iter().map(|member| (member.id(), member.spec().key.clone())).collect();
        Watch { pool, now: Duration::ZERO, told, ever }
    }

    fn take(&mut self, step: &Step) {
        self.now += ms(step.after);
        let before = self.pool.clone();
        let changes = self.apply(&step.act);
        if let Act::Reload(..) = step.act {
            self.meet_newcomers(&before);
        }
        if matches!(step.act, Act::Sample(..)) {
            streaks_decide(&before, &self.pool);
        }
        self.verdicts_alternate(&changes);
        self.places_are_told_once(&before, &changes);
        the_pool_is_told_once(before.picture(), self.pool.picture(), &changes);
        agrees_with_itself(&self.pool);
        the_cap_holds(&self.pool);
        the_state_follows(&self.pool);
        only_the_fit_serve(&self.pool);
        whoever_drains_serves_its_own(&self.pool, &before, self.now);
        let mut settled = self.pool.clone();
        settled.advance(self.now);
        who_comes_back_ramps(&settled, &before, self.now);
        assert!(self.pool.clone().advance(self.now).is_empty() || matches!(step.act, Act::Sample(..) | Act::Late(..)));
    }

    fn apply(&mut self, act: &Act) -> Vec<Change> {
        let (now, count) = (self.now, self.pool.members().len());
        let nth = |nth: usize| nth.checked_rem(count).map(|nth| &self.pool.members()[nth]);
        match act {
            Act::Sample(member, sample) => {
                let Some((id, fingerprint)) = nth(*member).map(|member| (member.id(), member.spec().fingerprint))
                else {
                    return Vec::new();
                };
                self.pool.observe(now, id, fingerprint, sample.clone())
            }
            Act::Late(member, sample) => {
                let picture = self.pool.picture().clone();
                let gone = MemberId(u64::MAX);
                let (id, stale) = nth(*member).map_or((gone, 0), |member| (member.id(), member.spec().fingerprint + 1));
                let changes = self.pool.observe(now, id, stale, sample.clone());
                assert_eq!((changes.as_slice(), self.pool.picture()), (&[][..], &picture));
                changes
            }
            Act::Admin(member, admin) => {
                let Some(id) = nth(*member).map(Member::id) else { return Vec::new() };
                self.pool.administer(now, id, *admin)
            }
            Act::Charge(member, charge) => {
                let Some(id) = nth(*member).map(Member::id) else { return Vec::new() };
                self.pool.charge(now, id, *charge)
            }
            Act::Vouch(member) => {
                let Some(id) = nth(*member).map(Member::id) else { return Vec::new() };
                self.pool.vouch(now, id)
            }
            Act::Advance => self.pool.advance(now),
            Act::Reload(rules, specs) => self.pool.reshape(now, rules.clone(), specs.clone()),
            Act::SameAgain => {
                let mut settled = self.pool.advance(now);
                let before = self.pool.clone();
                let specs = self.pool.members().iter().map(|member| member.spec().clone()).collect();
                settled.extend(self.pool.reshape(now, self.pool.rules().clone(), specs));
                same_pool(&before, &self.pool);
                settled
            }
        }
    }

    /// A reload forgets no one, and gives no id to two.
    fn meet_newcomers(&mut self, before: &PoolHealth) {
        let known: HashMap<&Key, &Member> = before.members().iter().map(|old| (&old.spec().key, old)).collect();
        for member in self.pool.members() {
            match known.get(&member.spec().key) {
                Some(old) => {
                    assert_eq!(member.id(), old.id());
                    let restarted =
                        old.admin() == Admin::Disabled || before.rules().probed && !self.pool.rules().probed;
                    assert!(member.proven() || !old.proven() || restarted, "{member:?} was proven");
                }
                None => {
                    // Who returns is who it was; anyone else is new.
                    let key = self.ever.entry(member.id()).or_insert_with(|| member.spec().key.clone());
                    assert_eq!(*key, member.spec().key, "{:?} was another's", member.id());
                    self.told.entry(member.id()).or_insert((member.verdict(), member.admin()));
                }
            }
        }
    }

    /// Each verdict and admin change starts where the last one ended, and together they tell the whole story.
    fn verdicts_alternate(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Verdict { member, from, to } => {
                    let told = &mut self.told.get_mut(member).expect("of a present member").0;
                    assert!(told == from && from != to, "{change:?} after {told:?}");
                    *told = *to;
                }
                Change::Admin { member, from, to } => {
                    let told = &mut self.told.get_mut(member).expect("of a present member").1;
                    assert!(told == from && from != to, "{change:?} after {told:?}");
                    *told = *to;
                }
                _ => {}
            }
        }
        for (id, state) in told(&self.pool) {
            assert_eq!(self.told[&id], state, "{id:?}");
        }
    }

    /// Whoever moved between kept and ejected is told, once, and nobody whose verdict changed in the same step.
    fn places_are_told_once(&self, before: &PoolHealth, changes: &[Change]) {
        let mut expected = Vec::new();
        for (member, to) in self.pool.members().iter().zip(&self.pool.picture().standings) {
            let Some(index) = before.index_of(member.id()) else { continue };
            let from = before.picture().standings[index];
            // Time has brought it back, and a sample turned it again.
            let has_turned =
                |change: &Change| matches!(change, Change::Verdict { .. }) && change.member() == Some(member.id());
            if changes.iter().any(has_turned) {
                continue;
            }
            if matches!((from, to), (Standing::Kept, Standing::Ejected) | (Standing::Ejected, Standing::Kept)) {
                assert_eq!(before.members()[index].verdict(), member.verdict());
                expected.push(Change::Place { member: member.id(), from, to: *to });
            }
        }
        let places: Vec<Change> =
            changes.iter().filter(|change| matches!(change, Change::Place { .. })).cloned().collect();
        assert_eq!(places, expected);
    }
}

fn told(pool: &PoolHealth) -> BTreeMap<MemberId, (Verdict, Admin)> {
    pool.members().iter().map(|member| (member.id(), (member.verdict(), member.admin()))).collect()
}

/// A sample that makes a streak long enough for the consecutive judge decides, whatever rules the pool had before.
fn streaks_decide(before: &PoolHealth, after: &PoolHealth) {
    let Judge::Consecutive { failures, passes } = after.rules().judge else { return };
    for (old, new) in before.members().iter().zip(after.members()) {
        match new.streak() {
            streak if streak == old.streak() => {}
            streak if streak <= -i64::from(failures) => assert_eq!(new.verdict(), Verdict::Unhealthy, "{new:?}"),
            streak if streak >= i64::from(passes) => assert_eq!(new.judged(), Verdict::Healthy, "{new:?}"),
            _ => {}
        }
    }
}

/// An unrelated reload is as if it had not been.
fn same_pool(before: &PoolHealth, after: &PoolHealth) {
    assert_eq!(before.picture(), after.picture());
    assert_eq!(before.next_deadline(), after.next_deadline());
    assert_eq!(format!("{:?}", before.members()), format!("{:?}", after.members()));
}

/// Mode, tier and fallback are told exactly when they are others than before.
fn the_pool_is_told_once(before: &Picture, after: &Picture, changes: &[Change]) {
    let told = |wanted: fn(&Change) -> bool| changes.iter().filter(|change| wanted(change)).collect::<Vec<_>>();
    let mode = (before.mode != after.mode).then_some(Change::Mode { from: before.mode, to: after.mode });
    assert_eq!(told(|change| matches!(change, Change::Mode { .. })), Vec::from_iter(&mode));
    let tier = (before.tier != after.tier).then_some(Change::Tier { from: before.tier, to: after.tier });
    assert_eq!(told(|change| matches!(change, Change::Tier { .. })), Vec::from_iter(&tier));
    let entered = after.mode == Mode::Fallback;
    let fallback = ((before.mode == Mode::Fallback) != entered).then_some(Change::Fallback { entered });
    assert_eq!(told(|change| matches!(change, Change::Fallback { .. })), Vec::from_iter(&fallback));
}

/// The numbers of a picture are those of its standings, and ids lead to their members.
fn agrees_with_itself(pool: &PoolHealth) {
    let picture = pool.picture();
    assert_eq!(picture.standings.len(), pool.members().len());
    for (index, member) in pool.members().iter().enumerate() {
        assert_eq!(pool.index_of(member.id()), Some(index));
        assert!(member.proven() || member.verdict() != Verdict::Healthy, "{member:?}");
        assert!(member.cause().is_none() || member.verdict() == Verdict::Unhealthy, "{member:?}");
        let window = member.window();
        assert!(window.passes <= window.shown && window.shown <= window.size, "{window:?}");
    }
    let serving = picture.standings.iter().filter(|standing| standing.takes_traffic()).count();
    assert_eq!(picture.in_rotation, serving);
    let nobody_serves = matches!(picture.mode, Mode::Down | Mode::Waiting);
    assert_eq!(serving == 0, nobody_serves, "{picture:?}");
    assert_eq!(picture.tier.is_none(), nobody_serves || picture.mode == Mode::Fallback);
    let awaits_pass = picture.mode == Mode::Fallback && pool.rules().probed;
    let someone_returns = !awaits_pass && pool.members().iter().any(|member| member.ban().is_some());
    let someone_ramps = pool.members().iter().any(|member| member.back_since().is_some());
    assert_eq!(pool.next_deadline().is_some(), picture.mode == Mode::Waiting || someone_returns || someone_ramps);
    if let Some(tier) = picture.tier {
        let of_tier = pool.members().iter().filter(|member| member.spec().tier == tier).count();
        assert_eq!(picture.total, of_tier);
        assert!(picture.standings.contains(&Standing::Healthy), "a tier serves only with a healthy member");
    }
}

/// Counted over, not asked from the code under test.
fn the_cap_holds(pool: &PoolHealth) {
    let picture = pool.picture();
    let ejected = picture.standings.iter().filter(|standing| **standing == Standing::Ejected).count();
    let Some(tier) = picture.tier else {
        assert_eq!((picture.ejected, picture.ejectable), (0, 0));
        assert!(ejected == 0 || picture.mode == Mode::Down, "{picture:?}");
        return;
    };
    let in_n = |member: &&Member| {
        let spec = member.spec();
        let enabled = member.admin() == Admin::Enabled && spec.weight > 0 && spec.key.address.is_some();
        spec.tier == tier && enabled && member.proven()
    };
    let n = pool.members().iter().filter(in_n).count();
    let unhealthy = pool.members().iter().filter(in_n).filter(|member| member.verdict() != Verdict::Healthy).count();
    let percent = usize::from(pool.rules().max_unhealthy_percent);
    assert_eq!((picture.ejected, ejected), (ejected, picture.ejectable.min(unhealthy)));
    assert!(ejected < n, "never the last: {picture:?}");
    let lets_one_go = pool.rules().min_ejected == 1 && percent > 0 && ejected == 1;
    assert!(ejected * 100 <= percent * n || lets_one_go, "{ejected} of {n} at {percent} %");
}

/// Of whoever is healthy, and of whoever could still turn out to be: for every way the unknown could turn out.
fn the_state_follows(pool: &PoolHealth) {
    let picture = pool.picture();
    let asked = |member: &&Member| member.admin() == Admin::Enabled && member.spec().weight > 0;
    let found = |member: &&Member| member.spec().key.address.is_some();
    let said = |verdict| {
        let members = pool.members().iter().filter(asked).filter(found);
        members.filter(|member| member.verdict() == verdict).count()
    };
    let (asked, healthy, unknown) =
        (pool.members().iter().filter(asked).count(), said(Verdict::Healthy), said(Verdict::Unknown));
    let wanted = pool.rules().aggregate.unwrap_or_default();
    let is_enough = |healthy: usize| {
        let share = 100.0 * healthy as f64 / asked as f64;
        healthy >= wanted.min_healthy as usize && share >= f64::from(wanted.min_healthy_percent)
    };
    let outcomes: Vec<bool> = (healthy..=healthy + unknown).map(is_enough).collect();
    let expected = match (outcomes[0], outcomes.contains(&true)) {
        (true, _) => State::Healthy,
        (false, true) => State::Unknown,
        (false, false) => State::Unhealthy,
    };
    assert_eq!((picture.state, picture.census.healthy), (expected, healthy), "{picture:?}");
}

fn only_the_fit_serve(pool: &PoolHealth) {
    let picture = pool.picture();
    for (member, standing) in pool.members().iter().zip(&picture.standings) {
        let spec = member.spec();
        let wanted = member.admin() == Admin::Enabled && spec.weight > 0;
        let fit = wanted && spec.key.address.is_some() && (member.proven() || picture.mode == Mode::Fallback);
        assert!(fit || !standing.takes_traffic(), "{standing:?}: {member:?}");
        let in_tier = picture.tier.is_none_or(|tier| tier == spec.tier);
        assert!(in_tier || !standing.takes_traffic(), "{standing:?}: {member:?}");
        let expected = match (*standing, picture.mode) {
            (Standing::Fallback, mode) => mode == Mode::Fallback,
            (Standing::Healthy, _) => member.verdict() == Verdict::Healthy,
            (Standing::Kept, _) => member.verdict() == Verdict::Unhealthy,
            (Standing::Ejected, Mode::Down) => true,
            (Standing::Ejected, _) => member.verdict() == Verdict::Unhealthy && member.proven(),
            (Standing::Draining | Standing::Disabled, _) => !wanted,
            (Standing::Unknown, _) => wanted && !(member.proven() && spec.key.address.is_some()),
            (Standing::Standby, _) => wanted && member.proven(),
        };
        assert!(expected, "{standing:?} in {:?}: {member:?}", picture.mode);
    }
}

/// Beside those who serve nobody but a healthy one that drains serves whoever is bound to it, and no longer than it may.
fn whoever_drains_serves_its_own(pool: &PoolHealth, before: &PoolHealth, now: Duration) {
    for (index, member) in pool.members().iter().enumerate() {
        let standing = pool.picture().standings[index];
        assert_eq!(member.draining_since().is_some(), standing == Standing::Draining, "{member:?}");
        if let (Some(since), Some(old)) = (member.draining_since(), before.member(member.id())) {
            assert_eq!(since, old.draining_since().unwrap_or(now), "nothing but its end begins it anew");
        }
        let drains = standing == Standing::Draining && member.verdict() == Verdict::Healthy;
        let end = pool.picture().leaves_at(index);
        assert!(end.is_none() || drains && end == pool.drains_until(member), "{member:?}");
        assert_eq!(
            pool.picture().takes_bound(index, now),
            standing.takes_traffic() || end.is_some_and(|end| now < end)
        );
    }
}

/// A ramp begins with a recovery and nothing else, runs by its own time, and counts only beside others, of whom not all have
/// come up with the pool.
fn who_comes_back_ramps(pool: &PoolHealth, before: &PoolHealth, now: Duration) {
    let (picture, whole) = (pool.picture(), pool.rules().slow_start);
    for (index, member) in pool.members().iter().enumerate() {
        if let (Some(begun), Some(old)) = (member.back_since(), before.index_of(member.id()))
            && before.members()[old].back_since() != Some(begun)
        {
            let stood = before.picture().standings[old];
            let was_out = matches!(stood, Standing::Ejected | Standing::Unknown);
            assert!(begun == now && was_out && member.verdict() == Verdict::Healthy, "{stood:?} {member:?}");
        }
        if let Some(begun) = member.back_since() {
            assert!(now < begun + whole, "{member:?}");
            assert!(pool.next_deadline().is_some_and(|next| next > now && next <= begun + whole), "{member:?}");
        }
        if let Some(ramp) = picture.ramp(index) {
            let begun = member.back_since().expect("it comes back");
            assert_eq!((now - begun).as_nanos() * 10 / whole.as_nanos() + 1, u128::from(ramp.tenths()));
            assert!(picture.standings[index] == Standing::Healthy && !picture.standings.contains(&Standing::Kept));
        }
    }
    let serving: Vec<usize> =
        (0..pool.members().len()).filter(|index| picture.standings[*index].takes_traffic()).collect();
    let all_ramp = !serving.is_empty() && serving.iter().all(|index| picture.ramp(*index).is_some());
    let returned = |index: &usize| !pool.members()[*index].is_of_the_start;
    assert!(!all_ramp || serving.len() > 1 && serving.iter().any(returned), "all ramp: {picture:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_at_every_instant(rules in any_rules(), specs in any_specs(), steps in steps()) {
        let mut watch = Watch::new(rules, specs);
        agrees_with_itself(&watch.pool);
        the_cap_holds(&watch.pool);
        only_the_fit_serve(&watch.pool);
        steps.iter().for_each(|step| watch.take(step));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_history_gives_the_same_pool(rules in any_rules(), specs in any_specs(), steps in steps()) {
        let [mut one, mut other] = [(); 2].map(|()| Watch::new(rules.clone(), specs.clone()));
        for step in &steps {
            one.now += ms(step.after);
            other.now += ms(step.after);
            prop_assert_eq!(one.apply(&step.act), other.apply(&step.act));
            same_pool(&one.pool, &other.pool);
        }
    }
}
