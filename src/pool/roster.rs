//! One picture of a pool for everyone: immutable, swapped whole.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::Member;
use crate::balance::{Balancer, Candidate, Policy, Rings};
use crate::health::{MemberId, Mode, OnAllUnhealthy, Picture, PoolHealth, Standing};

/// Who is in the pool, how each one stands, and who may be picked.
#[derive(Debug)]
pub struct Roster {
    picture: Picture,
    members: Vec<Arc<Member>>,
    balancer: Balancer,
    fails_when_unhealthy: bool,
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
        Roster {
            balancer,
            members: members.to_vec(),
            fails_when_unhealthy: health.rules().on_all_unhealthy == OnAllUnhealthy::Fail,
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

    /// Every member, in the order of the configuration.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// How the member at `index` stands.
    pub fn standing(&self, index: usize) -> Standing {
        self.picture.standings[index]
    }

    /// Whether the pool answers 503 when nobody is healthy.
    pub fn fails_when_unhealthy(&self) -> bool {
        self.fails_when_unhealthy
    }

    /// Whether anyone may be picked beside `tried`.
    pub fn has_others(&self, tried: &[MemberId]) -> bool {
        self.balancer.candidates().iter().any(|c| !tried.contains(&self.members[c.index].id()))
    }

    /// Whether keys say where requests go.
    pub fn goes_by_key(&self) -> bool {
        self.balancer.goes_by_key()
    }

    pub(super) fn pick(&self, turn: &AtomicUsize, draw: u64, key: Option<&[u8]>, tried: &[MemberId]) -> Option<usize> {
        if tried.is_empty() {
            return self.pick_beside(turn, draw, key, &[]);
        }
        // Only a retry comes here, so it may look for its few members by hand.
        let tried: Vec<usize> =
            self.members.iter().enumerate().filter(|(_, m)| tried.contains(&m.id())).map(|(i, _)| i).collect();
        self.pick_beside(turn, draw, key, &tried)
    }

    fn pick_beside(&self, turn: &AtomicUsize, draw: u64, key: Option<&[u8]>, tried: &[usize]) -> Option<usize> {
        let load = |index: usize| self.members[index].in_flight();
        match key.filter(|_| self.balancer.goes_by_key()) {
            Some(key) => self.balancer.pick_for(key, load, || self.in_flight(), tried),
            None => self.balancer.pick(turn, draw, load, tried),
        }
    }

    /// Requests on all who may be picked.
    fn in_flight(&self) -> u64 {
        self.balancer.candidates().iter().map(|c| u64::from(self.members[c.index].in_flight())).sum()
    }
}

fn candidates(health: &PoolHealth, standings: &[Standing]) -> Vec<Candidate> {
    let eligible = |standing: &Standing| matches!(standing, Standing::Healthy | Standing::Kept | Standing::Fallback);
    let members = health.members().iter().zip(standings).enumerate();
    members
        .filter(|(_, (member, standing))| eligible(standing) && member.spec().key.address.is_some())
        .map(|(index, (member, standing))| Candidate {
            index,
            weight: member.spec().weight.max(1),
            split: member.spec().split.max(1),
            kept: *standing == Standing::Kept,
            latency: member.latency(),
        })
        .collect()
}
