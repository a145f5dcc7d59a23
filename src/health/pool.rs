//! A pool's health: evidence and time in, changes out, and a picture of how everyone stands.
//!
//! A sample that flips no verdict touches its member alone; everything else draws the picture anew, once a step.
//! Not here: reloads (`reshape`), and how a picture is drawn (`picture`).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::departed::Departed;
use super::picture::Patience;
use super::{
    Admin, Change, Charge, Member, MemberId, Mode, Outcome, Picture, Reason, Rules, Sample, Spec, Standing, Verdict,
    latency, ramp,
};

/// The health of one pool.
#[derive(Debug, Clone)]
pub struct PoolHealth {
    pub(super) rules: Rules,
    pub(super) members: Vec<Member>,
    pub(super) index: HashMap<MemberId, usize>,
    pub(super) picture: Picture,
    /// Until when requests may wait for first verdicts.
    pub(super) deadline: Duration,
    pub(super) next_id: u64,
    /// Who has left, and when.
    pub(super) departed: Departed,
    /// When the first passive ejection is over.
    next_return: Option<Duration>,
    /// When the next step of somebody's slow start begins.
    next_step: Option<Duration>,
    /// Conclusive samples so far: their order, where two may have come at the same time.
    turns: u64,
}

impl PoolHealth {
    /// A pool that starts at `now`. Ids are given in the order of `members`, whose keys are distinct.
    pub fn new(now: Duration, rules: Rules, members: Vec<Spec>) -> PoolHealth {
        let deadline = now.saturating_add(rules.initial_wait);
        let mut pool = PoolHealth {
            picture: Picture::draw(&rules, &mut [], Patience::Left),
            rules,
            members: Vec::with_capacity(members.len()),
            index: HashMap::with_capacity(members.len()),
            deadline,
            next_id: 0,
            departed: Departed::default(),
            next_return: None,
            next_step: None,
            turns: 0,
        };
        for spec in members {
            let mut member = pool.newcomer(now, spec);
            member.is_of_the_start = true;
            pool.index.insert(member.id(), pool.members.len());
            pool.members.push(member);
        }
        pool.redraw(now);
        pool.ramp(now, &[]);
        pool
    }

    /// A probe's sample. Ignored (no change) when the member is gone or disabled, or `fingerprint` is not its present one.
    pub fn observe(&mut self, now: Duration, member: MemberId, fingerprint: u64, sample: Sample) -> Vec<Change> {
        let Some(index) = self.index_of(member) else { return Vec::new() };
        let present = &self.members[index];
        let is_late = present.admin() == Admin::Disabled || present.spec().fingerprint != fingerprint;
        if is_late || !self.rules.probed {
            return Vec::new();
        }
        if sample.outcome == Outcome::Inconclusive {
            self.members[index].note_unsure(now, sample);
            return Vec::new();
        }
        let mut changes = Vec::new();
        let lapsed = self.lapse(now, &mut changes);
        let (sample, over_relative) = self.gated(index, sample);
        self.turns += 1;
        let present = &mut self.members[index];
        let place = |member: &Member| (member.ban().is_some(), member.class());
        let (before, had) = (present.state(), place(present));
        present.record(now, self.turns, sample, over_relative);
        changes.extend(present.changes_since(before));
        // A second cause may be a worse one.
        let has_moved = present.state() != before || place(present) != had;
        if has_moved || lapsed { self.settle(now, changes) } else { self.advance(now) }
    }

    /// What traffic charges a member with. Ignored when it is gone, disabled, never was healthy, or out by such a charge
    /// already; where no rule says that traffic may eject; and in the fallback, where whoever is unfit has its traffic all the
    /// same.
    pub fn charge(&mut self, now: Duration, member: MemberId, charge: Charge) -> Vec<Change> {
        let (Some(index), Some(rules)) = (self.index_of(member), self.rules.eject) else { return self.advance(now) };
        let mut changes = Vec::new();
        self.lapse(now, &mut changes);
        let present = &mut self.members[index];
        let is_known = present.proven() && present.admin() != Admin::Disabled;
        if is_known && self.picture.mode != Mode::Fallback {
            let before = present.state();
            present.offend(now, &rules, charge);
            changes.extend(present.changes_since(before));
        }
        self.settle(now, changes)
    }

    /// A request to the member has succeeded. Where no probe judges, nobody else could say before its time that it is fit:
    /// there it ends the fallback (health.md §4).
    pub fn vouch(&mut self, now: Duration, member: MemberId) -> Vec<Change> {
        let Some(index) = self.index_of(member) else { return self.advance(now) };
        if self.rules.probed || self.picture.mode != Mode::Fallback {
            return self.advance(now);
        }
        let mut changes = Vec::new();
        self.lapse(now, &mut changes);
        let present = &mut self.members[index];
        let before = present.state();
        present.pardon(now);
        changes.extend(present.changes_since(before));
        self.settle(now, changes)
    }

    /// An operator's word; holds until the file changes that key of that member.
    pub fn administer(&mut self, now: Duration, member: MemberId, admin: Admin) -> Vec<Change> {
        let Some(index) = self.index_of(member) else { return Vec::new() };
        let mut changes = Vec::new();
        self.lapse(now, &mut changes);
        let member = &mut self.members[index];
        let (before, counted) = (member.state(), member.counts());
        member.admit(now, &self.rules, admin);
        changes.extend(member.changes_since(before));
        // One that nobody has looked at since is as good as new, and a pool of such is as at its start.
        if !counted && member.is_untried() && !self.has_proven() {
            self.deadline = now.saturating_add(self.rules.initial_wait);
        }
        self.settle(now, changes)
    }

    /// Lets time pass: the wait for first verdicts ends, and so do passive ejections; who comes back has more of its weight.
    pub fn advance(&mut self, now: Duration) -> Vec<Change> {
        if !self.is_due(now) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        self.lapse(now, &mut changes);
        self.settle(now, changes)
    }

    /// Until when requests wait for first verdicts; `None`: they do not.
    pub fn first_verdicts_by(&self) -> Option<Duration> {
        (self.picture.mode == Mode::Waiting).then_some(self.deadline)
    }

    /// When `advance` would next change something.
    pub fn next_deadline(&self) -> Option<Duration> {
        let next_return = self.next_return.filter(|_| !self.awaits_pass());
        [self.first_verdicts_by(), next_return, self.next_step].into_iter().flatten().min()
    }

    /// Whether time alone brings nobody back: in a fallback where probes judge, who is fit is for them to say.
    fn awaits_pass(&self) -> bool {
        self.rules.probed && self.picture.mode == Mode::Fallback
    }

    fn is_due(&self, now: Duration) -> bool {
        self.next_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// What the pool is judged by.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How everyone stands.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// Until when a member that drains serves the clients bound to it; `None` where it does not drain.
    pub fn drains_until(&self, member: &Member) -> Option<Duration> {
        member.drains_until(&self.rules)
    }

    /// In the order of the configuration.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// A member by its id.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.index_of(id).map(|index| &self.members[index])
    }

    /// A member's place in [`PoolHealth::members`].
    pub fn index_of(&self, id: MemberId) -> Option<usize> {
        self.index.get(&id).copied()
    }

    /// An id that nobody has had.
    pub(super) fn next_id(&mut self) -> MemberId {
        let id = MemberId(self.next_id);
        self.next_id += 1;
        id
    }

    pub(super) fn newcomer(&mut self, now: Duration, spec: Spec) -> Member {
        let id = self.next_id();
        Member::new(id, now, &self.rules, spec)
    }

    /// Draws the picture anew and adds what it shows to the changes that led to it.
    pub(super) fn settle(&mut self, now: Duration, mut changes: Vec<Change>) -> Vec<Change> {
        let before = self.redraw(now);
        if self.lapse(now, &mut changes) {
            // A fallback has just ended, in which time had run out for some.
            self.redraw(now);
        }
        self.ramp(now, &before.standings);
        let after = &self.picture;
        let moves = self.members.iter().zip(before.standings.iter().zip(&after.standings));
        // Only the unhealthy are kept or ejected, so whoever moved between the two has the verdict it had; but for one that
        // time has brought back in this very step, and a sample turned again.
        let turned: HashSet<MemberId> = changes.iter().filter_map(turned_unhealthy).collect();
        let places = moves.filter_map(|(member, (from, to))| match (from, to) {
            (Standing::Kept, Standing::Ejected) | (Standing::Ejected, Standing::Kept) => {
                Some(Change::Place { member: member.id(), from: *from, to: *to })
            }
            _ => None,
        });
        changes.extend(places.filter(|place| place.member().is_none_or(|member| !turned.contains(&member))));
        let (was, is) = (before.mode, after.mode);
        if (was == Mode::Fallback) != (is == Mode::Fallback) {
            changes.push(Change::Fallback { entered: is == Mode::Fallback });
        }
        if before.tier != after.tier {
            changes.push(Change::Tier { from: before.tier, to: after.tier });
        }
        if was != is {
            changes.push(Change::Mode { from: was, to: is });
        }
        changes
    }

    /// Draws the picture anew; the old one is returned.
    fn redraw(&mut self, now: Duration) -> Picture {
        self.members.iter_mut().for_each(|member| member.note_drain(now));
        let patience = if now < self.deadline { Patience::Left } else { Patience::Over };
        let picture = Picture::draw(&self.rules, &mut self.members, patience);
        self.next_return = self.members.iter().filter_map(|member| Some(member.ban()?.until)).min();
        std::mem::replace(&mut self.picture, picture)
    }

    /// Adds to the picture who comes back step by step, by how each stood `before`.
    fn ramp(&mut self, now: Duration, before: &[Standing]) {
        ramp::follow(&self.rules, &mut self.members, before, now);
        (self.picture.ramps, self.next_step) = ramp::ramps(&self.rules, &self.members, &self.picture.standings, now);
    }

    /// Ends the passive ejections whose time is over, and says whether there were any. It ends none where a member's next
    /// pass does.
    pub(super) fn lapse(&mut self, now: Duration, changes: &mut Vec<Change>) -> bool {
        if self.awaits_pass() || self.next_return.is_none_or(|until| now < until) {
            return false;
        }
        let over = |member: &&mut Member| member.ban().is_some_and(|ban| ban.until <= now);
        for member in self.members.iter_mut().filter(over) {
            let before = member.state();
            member.pardon(now);
            changes.extend(member.changes_since(before));
        }
        // Until the picture is drawn anew.
        self.next_return = None;
        true
    }

    /// The sample as the latency gates see it, and whether it is over the relative one.
    ///
    /// One sample over the relative gate is not enough: when all turn slow at once, the first to be probed is compared
    /// with what the others were before (health.md §5).
    fn gated(&self, index: usize, sample: Sample) -> (Sample, bool) {
        let answered = matches!(sample.outcome, Outcome::Pass | Outcome::Fail(Reason::Slow));
        if !answered {
            return (sample, false);
        }
        let member = &self.members[index];
        let total = sample.phases.total;
        let peers = || self.peers(index);
        let over_relative = latency::over_relative(&self.rules.gates, total, peers());
        let words = match latency::over_absolute(&self.rules.gates, total) {
            Some(gate) => latency::over(total, gate, "max_latency"),
            None if over_relative && member.turn.over => {
                let gate = latency::relative_gate(&self.rules.gates, peers());
                let key = if gate > self.rules.gates.latency_floor { "max_latency_ratio" } else { "latency_floor" };
                latency::over(total, gate, key)
            }
            None => return (sample, over_relative),
        };
        (Sample { outcome: Outcome::Fail(Reason::Slow), detail: words, ..sample }, over_relative)
    }

    /// The latest totals of the others of its tier that answered rightly since its own last sample: so never its own.
    fn peers(&self, index: usize) -> impl Iterator<Item = Duration> {
        let (tier, sampled) = (self.members[index].spec().tier, self.members[index].turn.sampled);
        let heard = self.members.iter().filter(move |peer| peer.turn.answered > sampled);
        heard.filter(move |peer| peer.spec().tier == tier && peer.admin() == Admin::Enabled).map(|peer| peer.turn.total)
    }
}

/// Who became unhealthy by this change.
fn turned_unhealthy(change: &Change) -> Option<MemberId> {
    match change {
        Change::Verdict { member, to: Verdict::Unhealthy, .. } => Some(*member),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, fail_as, inconclusive, ms, pass_in, rules, spec, specs};
    use super::super::{Admin, Gates, Judge, Spec};
    use super::*;

    /// Ratio 3, 2 fails in a row, 1 pass; everyone has answered in 60 ms twice.
    fn steady_at_60(specs: Vec<Spec>) -> Trial {
        let gates = Gates { max_latency_ratio: Some(3.0), ..Gates::default() };
        let count = specs.len();
        let mut trial =
            Trial::new(Rules { gates, judge: Judge::Consecutive { failures: 2, passes: 1 }, ..rules() }, specs);
        for at in [1, 2] {
            (1..=count).for_each(|member| drop(trial.at(at, pass_in(member, 60))));
        }
        trial
    }

    /// Every order of five.
    fn orders() -> Vec<[usize; 5]> {
        let mut orders = Vec::new();
        for code in 0..5_usize.pow(5) {
            let order = [0, 1, 2, 3, 4].map(|place| code / 5_usize.pow(place) % 5 + 1);
            if (1..=5).all(|member| order.contains(&member)) {
                orders.push(order);
            }
        }
        orders
    }

    #[test]
    fn when_all_turn_slow_nobody_is_slow() {
        // Example 12, in any order of the first round and in some of the second.
        let orders = orders();
        assert_eq!(orders.len(), 120);
        for first in &orders {
            for second in orders.iter().step_by(7) {
                let mut trial = steady_at_60(specs(5));
                for member in first.iter().chain(second).chain(first) {
                    trial.at(3, pass_in(*member, 240));
                    assert_eq!(trial.member(*member).streak().signum(), 1, "m{member} in {first:?} {second:?}");
                }
                assert_eq!(trial.standings(), "HHHHH");
            }
        }
    }

    #[test]
    fn one_that_turns_slow_alone_is_ejected_within_the_cap() {
        for slow in 1..=5 {
            let mut trial = steady_at_60(specs(5));
            let mut after = Vec::new();
            for round in 3..=5 {
                (1..=5)
                    .for_each(|member| drop(trial.at(round, pass_in(member, if member == slow { 240 } else { 60 }))));
                after.push(trial.member(slow).streak());
            }
            // the first is not counted: everyone may have turned slow
            assert_eq!(after, [3, -1, -2]);
            assert_eq!(trial.member(slow).cause(), Some(Reason::Slow));
            assert_eq!(trial.standings().matches('E').count(), 1);
            assert_eq!(trial.pool.picture().standings[slow - 1], Standing::Ejected);
            let detail = trial.member(slow).last_sample().map(|(sample, _)| sample.detail.as_str());
            assert_eq!(detail, Some("answered in 240 ms, max_latency_ratio allows 180 ms"));
        }
    }

    #[test]
    fn the_ratio_is_silent_without_three_others_that_answered_since() {
        // too few in the pool, in the tier, enabled, or heard of since
        let elsewhere = |tier| vec![spec(1), spec(2), spec(3), Spec { tier, ..spec(4) }];
        for (specs, expected) in [(specs(3), 5), (elsewhere(1), 5), (elsewhere(0), -2)] {
            let mut trial = steady_at_60(specs.clone());
            for at in 3..=5 {
                (1..=specs.len())
                    .rev()
                    .for_each(|member| drop(trial.at(at, pass_in(member, if member == 1 { 900 } else { 60 }))));
            }
            assert_eq!(trial.member(1).streak(), expected);
        }
        let mut trial = steady_at_60(specs(5));
        trial.at(3, admin(5, Admin::Draining));
        trial.at(3, admin(4, Admin::Disabled));
        for at in 4..=6 {
            (1..=5).rev().for_each(|member| drop(trial.at(at, pass_in(member, if member == 1 { 900 } else { 60 }))));
        }
        assert_eq!(trial.member(1).streak(), 5);
        // nobody else is heard of between its own samples, or they only fail
        let mut trial = steady_at_60(specs(5));
        (4..=9).for_each(|at| drop(trial.at(at, pass_in(1, 900))));
        assert_eq!(trial.member(1).streak(), 8);
        for at in 10..=12 {
            (2..=5).for_each(|member| drop(trial.at(at, fail_as(member, Reason::Reset))));
            trial.at(at, pass_in(1, 900));
        }
        assert_eq!(trial.member(1).streak(), 11);
    }

    #[test]
    fn one_sample_over_the_ratio_must_follow_another() {
        let mut trial = steady_at_60(specs(5));
        let mut round = |at, act: Act| {
            (2..=5).for_each(|member| drop(trial.at(at, pass_in(member, 60))));
            trial.at(at, act);
            trial.member(1).streak()
        };
        let rows = [
            (3, pass_in(1, 900), 3),
            (4, pass_in(1, 60), 4),
            (5, pass_in(1, 900), 5),
            // a fail is not an answer over the gate
            (6, fail(1), -1),
            (7, pass_in(1, 900), 1),
            (8, pass_in(1, 900), -1),
            (9, pass_in(1, 180), 1),
            (10, pass_in(1, 900), 2),
        ];
        for (at, act, streak) in rows {
            assert_eq!(round(at, act), streak, "at {at}");
        }
        // nor is one of another probe
        let other_probe = specs(5).into_iter().map(|spec| Spec { fingerprint: 8, ..spec }).collect();
        trial.at(11, Act::Reload(trial.pool.rules().clone(), other_probe));
        (2..=5).for_each(|member| drop(trial.at(12, pass_in(member, 60))));
        trial.at(12, pass_in(1, 900));
        assert_eq!(trial.member(1).streak(), 1);
    }

    #[test]
    fn the_absolute_gate_bites_at_once_and_slow_is_a_class_of_its_own() {
        let gates = Gates { max_latency: Some(ms(500)), ..Gates::default() };
        let mut trial = Trial::new(Rules { gates, ..rules() }, specs(3));
        trial.play([
            (1, pass_in(1, 500), "HHH"),
            (2, pass_in(1, 501), "EHH m1 healthy -> unhealthy"),
            (3, fail(2), "KEH m2 healthy -> unhealthy, m1 ejected -> kept, normal -> capped"),
            (4, pass_in(1, 499), "HEH m1 unhealthy -> healthy, capped -> normal"),
        ]);
    }

    #[test]
    fn a_probe_that_taught_nothing_is_shown_and_moves_nothing() {
        let mut trial = Trial::new(rules(), specs(2));
        let shown = |trial: &Trial| trial.member(1).last_probe().map(|(sample, at)| (sample.outcome, at));
        assert_eq!(shown(&trial), None);
        let before = trial.member(1).since();
        trial.at(5, inconclusive(1));
        assert_eq!(shown(&trial), Some((Outcome::Inconclusive, ms(5))));
        let member = trial.member(1);
        assert_eq!((member.last_sample().is_none(), member.streak(), member.since()), (true, 0, before));
        trial.at(6, fail(1));
        assert_eq!(shown(&trial).map(|(_, at)| at), Some(ms(6)));
        trial.at(7, inconclusive(1));
        assert_eq!(shown(&trial), Some((Outcome::Inconclusive, ms(7))));
        assert_eq!(trial.member(1).last_sample().map(|(_, at)| at), Some(ms(6)));
    }

    #[test]
    fn ids_find_their_members() {
        let trial = Trial::new(rules(), specs(100));
        for (index, member) in trial.pool.members().iter().enumerate() {
            assert_eq!(trial.pool.index_of(member.id()), Some(index));
            assert_eq!(trial.pool.member(member.id()).map(Member::spec), Some(member.spec()));
        }
        assert_eq!(trial.pool.index_of(MemberId(100)), None);
    }
}
