//! One picture of a pool for everyone: immutable, swapped whole.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::bonds::Bond;
use super::{Choice, Member};
use crate::balance::{Balancer, Candidate, Form, Policy, Rings};
use crate::health::{Aggregate, Census, MemberId, Mode, OnAllUnhealthy, Picture, PoolHealth, Ramp, Standing, State};

/// Who is in the pool, how each one stands, and who may be picked.
#[derive(Debug)]
pub struct Roster {
    picture: Picture,
    members: Vec<Arc<Member>>,
    /// The places of the members, in the order of their ids.
    by_id: Box<[(MemberId, u32)]>,
    balancer: Balancer,
    fails_when_unhealthy: bool,
    aggregate: Option<Aggregate>,
}

/// A member that a client is bound to, and may go to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    /// Its place.
    pub(super) index: usize,
    /// Nobody else may go there.
    pub(super) is_apart: bool,
}

/// How a pool stands, in few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headline {
    /// How it serves.
    pub mode: Mode,
    /// The tier that serves.
    pub tier: Option<u8>,
    /// Members of the serving tier that take traffic.
    pub in_rotation: usize,
    /// Members of the serving tier.
    pub total: usize,
}

/// Whether a pool picks for anybody as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Whoever may be picked is.
    Open,
    /// Nobody is proven yet.
    Waiting,
    /// Nobody is healthy, and it fails then.
    AllUnhealthy,
}

impl Roster {
    /// The roster of `health` as it stands; `members` are the live parts, in the heart's order.
    pub fn new(health: &PoolHealth, policy: &Policy, rings: Option<&Rings>, members: &[Arc<Member>]) -> Roster {
        let picture = health.picture().clone();
        let candidates = candidates(health, &picture.standings);
        let ring = picture.tier.and_then(|tier| rings?.of(tier));
        let balancer = match (policy, ring) {
            // Over everything, verdicts, latencies and keys mean nothing: plain turns (health.md §4).
            _ if picture.mode == Mode::Fallback => Balancer::new(&Policy::RoundRobin, candidates),
            (Policy::ConsistentHash { bounded_load_percent }, Some(ring)) => {
                Balancer::with_ring(ring.clone(), *bounded_load_percent, candidates)
            }
            _ => Balancer::new(policy, candidates),
        };
        let mut by_id: Box<[_]> = members.iter().enumerate().map(|(index, m)| (m.id(), index as u32)).collect();
        by_id.sort_unstable();
        Roster {
            balancer,
            by_id,
            members: members.to_vec(),
            fails_when_unhealthy: health.rules().on_all_unhealthy == OnAllUnhealthy::Fail,
            aggregate: health.rules().aggregate,
            picture,
        }
    }

    /// Mode, tier and counts.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// Mode, tier and counts, to keep.
    pub fn headline(&self) -> Headline {
        let Picture { mode, tier, in_rotation, total, .. } = self.picture;
        Headline { mode, tier, in_rotation, total }
    }

    /// How the pool serves.
    pub fn mode(&self) -> Mode {
        self.picture.mode
    }

    /// Whether anybody is picked at all.
    pub(super) fn gate(&self) -> Gate {
        match self.mode() {
            Mode::Waiting => Gate::Waiting,
            Mode::Down if self.fails_when_unhealthy => Gate::AllUnhealthy,
            _ => Gate::Open,
        }
    }

    /// How the pool stands as a whole, by its aggregate (health.md §8): what composites go by.
    pub fn state(&self) -> State {
        self.picture.state
    }

    /// The members counted for that: how many are healthy, and of how many.
    pub fn census(&self) -> Census {
        self.picture.census
    }

    /// Whether anybody is healthy, in whichever tier.
    pub fn has_healthy(&self) -> bool {
        self.picture.census.healthy > 0
    }

    /// The aggregate, where one is written: a failover route then goes by [`Roster::state`], else by
    /// [`Roster::has_healthy`] (health.md §8).
    pub fn aggregate(&self) -> Option<Aggregate> {
        self.aggregate
    }

    /// Every member, in the order of the configuration.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// How the member at `index` stands.
    pub fn standing(&self, index: usize) -> Standing {
        self.picture.standings[index]
    }

    /// Whether a client that is bound to this member may go there at `now`: to one that serves, and to one that drains until
    /// its pool's `drain` is over (health.md §7). It asks nothing of the pool's mode: also where nobody takes new requests,
    /// whoever drains serves its own. Whether the member has room is another matter.
    pub fn takes_bound(&self, now: Duration, id: MemberId) -> bool {
        self.bound(Bond { member: id, now }).is_some()
    }

    /// Whether the pool answers 503 when nobody is healthy.
    pub fn fails_when_unhealthy(&self) -> bool {
        self.fails_when_unhealthy
    }

    /// Whether anyone may be picked beside `tried`.
    pub fn has_others(&self, tried: &[MemberId]) -> bool {
        self.balancer.candidates().iter().any(|c| !tried.contains(&self.members[c.index].id()))
    }

    /// Whether anyone may be picked who is not known not to answer.
    pub fn somebody_answers(&self) -> bool {
        self.balancer.candidates().iter().any(|c| !self.members[c.index].has_fallen())
    }

    /// Members that took traffic in the roster before this one though they were known not to answer, and take none any more.
    pub(super) fn left_behind<'a>(&'a self, last: &'a Roster) -> impl Iterator<Item = &'a Arc<Member>> {
        let took = |id| last.index_of(id).is_some_and(|index| last.standing(index).takes_traffic());
        let idle = self.members.iter().zip(&self.picture.standings).filter(|(_, standing)| !standing.takes_traffic());
        idle.map(|(member, _)| member).filter(move |member| member.has_fallen() && took(member.id()))
    }

    /// From now on the pool knows how many requests all have together who may be picked here, if that is asked for. `last`
    /// is the roster before this one.
    pub(super) fn count_candidates(&self, last: Option<&Roster>) {
        let asked = self.balancer.bounds_load();
        if !asked && !last.is_some_and(|last| last.balancer.bounds_load()) {
            return;
        }
        let mut candidates = self.balancer.candidates().iter().map(|candidate| candidate.index).peekable();
        for (index, member) in self.members.iter().enumerate() {
            let is_candidate = candidates.next_if_eq(&index).is_some();
            if asked && is_candidate { member.join_candidates() } else { member.part_from_candidates() }
        }
    }

    fn index_of(&self, id: MemberId) -> Option<usize> {
        let found = self.by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.by_id[found].1 as usize)
    }

    /// The member of this bond, if its clients may go there now.
    pub(super) fn bound(&self, bond: Bond) -> Option<Bound> {
        let index = self.index_of(bond.member)?;
        let is_apart = !self.standing(index).takes_traffic();
        self.picture.takes_bound(index, bond.now).then_some(Bound { index, is_apart })
    }

    /// How one is chosen that the client is not bound to, for a request that goes by `key`.
    pub(super) fn choice(&self, key: Option<&[u8]>, bound: Option<Bound>) -> Choice {
        match bound {
            Some(_) => Choice::Instead,
            None if key.is_some() && self.goes_by_key() => Choice::ByKey,
            None => Choice::ByPolicy,
        }
    }

    /// Whether keys say where requests go.
    pub fn goes_by_key(&self) -> bool {
        self.balancer.goes_by_key()
    }

    /// Takes a seat on a member beside `tried`: its index. Every call of `draw` is another random number.
    ///
    /// `None` when everyone is full, or was tried ([`Roster::has_others`]).
    pub(super) fn pick(
        &self,
        turn: &AtomicUsize,
        draw: impl Fn() -> u64,
        key: Option<&[u8]>,
        tried: &[MemberId],
    ) -> Option<usize> {
        self.pick_by(Member::enter, turn, draw, key, tried)
    }

    /// The same where `enter` says whether a member has a seat, and takes it or not.
    pub(super) fn pick_by(
        &self,
        enter: impl Fn(&Member) -> bool,
        turn: &AtomicUsize,
        draw: impl Fn() -> u64,
        key: Option<&[u8]>,
        tried: &[MemberId],
    ) -> Option<usize> {
        let choose = |out: &[usize]| self.pick_beside(turn, draw(), key, out);
        if !tried.is_empty() {
            return self.pick_another(enter, choose, &draw, tried, None);
        }
        let index = choose(&[])?;
        if enter(&self.members[index]) {
            Some(index)
        } else {
            self.pick_another(enter, choose, &draw, tried, Some(index))
        }
    }

    /// Only a retry, or who has met a full member, comes here.
    #[cold]
    fn pick_another(
        &self,
        enter: impl Fn(&Member) -> bool,
        choose: impl Fn(&[usize]) -> Option<usize>,
        draw: impl Fn() -> u64,
        tried: &[MemberId],
        full: Option<usize>,
    ) -> Option<usize> {
        let mut out = LeftOut::default();
        full.into_iter().for_each(|index| out.add(index));
        tried.iter().filter_map(|id| self.index_of(*id)).for_each(|index| out.add(index));
        while !out.is_over() {
            let index = choose(out.as_slice())?;
            if enter(&self.members[index]) {
                return Some(index);
            }
            out.add(index);
        }
        self.scan(enter, draw() as usize, tried)
    }

    /// One after another, from some place on: the healthy first.
    fn scan(&self, enter: impl Fn(&Member) -> bool, start: usize, tried: &[MemberId]) -> Option<usize> {
        let candidates = self.balancer.candidates();
        let (behind, ahead) = candidates.split_at(start % candidates.len().max(1));
        let all = || ahead.iter().chain(behind);
        let healthy_first = all().filter(|c| !c.kept).chain(all().filter(|c| c.kept));
        let mut indices = healthy_first.map(|candidate| candidate.index);
        indices.find(|index| !tried.contains(&self.members[*index].id()) && enter(&self.members[*index]))
    }

    /// How it picks among those who may be picked.
    pub(super) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// The first choice, whether or not that one has a seat left.
    pub(super) fn pick_beside(
        &self,
        turn: &AtomicUsize,
        draw: u64,
        key: Option<&[u8]>,
        out: &[usize],
    ) -> Option<usize> {
        let load = |index: usize| self.members[index].in_flight();
        if self.balancer.goes_by_form() {
            return self.balancer.pick_by_form(turn, draw, self.form(), out);
        }
        match key.filter(|_| self.balancer.goes_by_key()) {
            Some(key) => self.balancer.pick_for(key, load, || self.in_flight(), out),
            None => self.balancer.pick(turn, draw, load, out),
        }
    }

    /// How each member does of late, as of the time that was told last.
    fn form(&self) -> impl Fn(usize) -> Form {
        let known = self.members.first().and_then(|member| {
            let memory = &member.hall.memory;
            memory.read().map(|terms| terms.as_of(memory.now()))
        });
        // A reload to another policy may have come just before: then nothing is known of anybody.
        move |index| known.map_or_else(Form::default, |as_of| self.members[index].form.at(as_of))
    }

    /// Whether no draw has a say in who is picked first, in this turn.
    pub(super) fn is_settled(&self, turn: &AtomicUsize) -> bool {
        self.balancer.is_settled(turn, self.form())
    }

    /// Requests on all who may be picked, known only where that is asked for.
    pub(super) fn in_flight(&self) -> u64 {
        self.members.first().map_or(0, |member| member.hall.candidates.taken())
    }
}

/// Members that a pick leaves out, on the stack: tried before, or full.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    indices: [usize; LeftOut::MOST],
    len: usize,
}

impl LeftOut {
    /// As many as the balancer tells apart in its fast way; beyond that one looks at each member anyway.
    pub(super) const MOST: usize = 16;

    fn add(&mut self, index: usize) {
        if let Some(place) = self.indices.get_mut(self.len) {
            *place = index;
        }
        self.len += 1;
    }

    /// Whether some did not fit.
    fn is_over(&self) -> bool {
        self.len > LeftOut::MOST
    }

    fn as_slice(&self) -> &[usize] {
        &self.indices[..self.len.min(LeftOut::MOST)]
    }
}

fn candidates(health: &PoolHealth, standings: &[Standing]) -> Vec<Candidate> {
    let eligible = |standing: &Standing| matches!(standing, Standing::Healthy | Standing::Kept | Standing::Fallback);
    let members = health.members().iter().zip(standings).enumerate();
    members
        .filter(|(_, (member, standing))| eligible(standing) && member.spec().key.address.is_some())
        .map(|(index, (member, standing))| {
            // A part of a weight is a weight that is divided by more.
            let (tenths, whole) = health.picture().ramp(index).map_or((1, 1), |ramp| (ramp.tenths(), Ramp::WHOLE));
            Candidate {
                index,
                weight: member.spec().weight.max(1).saturating_mul(tenths),
                split: member.spec().split.max(1).saturating_mul(whole),
                kept: *standing == Standing::Kept,
                latency: member.latency(),
            }
        })
        .collect()
}
