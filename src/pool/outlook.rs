//! What the next request would meet here, without any of it happening.
//!
//! The same functions as for a request, over the same roster: the turn is a copy, a seat is looked at and not taken, nobody
//! is counted and nobody woken. Not here: what is said of it (`admin`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::bonds::Bond;
use super::roster::{Bound, Gate, LeftOut};
use super::{Choice, Member, Pool, Roster, WAITERS};
use crate::health::Standing;

/// A pool as the next request would find it.
#[derive(Debug)]
pub struct Outlook {
    /// The roster it would go by.
    pub roster: Arc<Roster>,
    /// What it would get.
    pub foreseen: Foreseen,
    /// Its client is bound to a member that may serve it, if that has room.
    pub bond_holds: bool,
    /// Of each member, whether it may be picked, and with which part of all first picks.
    pub prospects: Vec<Option<Prospect>>,
}

/// What a request would get of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreseen {
    /// A seat on the member at this index.
    Member(usize, Choice),
    /// A seat on one of these, by a draw: nobody can say on which.
    OneOf(Vec<usize>),
    /// A wait for a first verdict.
    Wait,
    /// Nothing: too many wait for a first verdict.
    Crowded,
    /// Everyone who may be picked is full, or the pool is, or others wait for that already.
    Full,
    /// Nothing: nobody is healthy, and the pool fails then.
    AllUnhealthy,
    /// Nothing: there is nobody to pick.
    Nobody,
}

/// What a member that may be picked can expect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prospect {
    /// The part of first picks in the long run, without a key; `None` where loads decide.
    pub share: Option<f64>,
    /// Whether it has a seat left.
    pub has_room: bool,
}

impl Pool {
    /// What a request that comes now, goes by `key` and has tried nobody would meet.
    pub fn foresee(&self, key: Option<&[u8]>) -> Outlook {
        self.foresee_bound(key, None)
    }

    /// The same for a request of a client with this bond.
    pub fn foresee_bound(&self, key: Option<&[u8]>, bond: Option<Bond>) -> Outlook {
        let roster = self.roster.load_full();
        let bound = bond.and_then(|bond| roster.bound(bond));
        let own = bound.and_then(|bound| self.foresee_own(&roster, bound));
        let foreseen = own.unwrap_or_else(|| match roster.gate() {
            Gate::Waiting if self.waiters.load(Relaxed) >= WAITERS => Foreseen::Crowded,
            Gate::Waiting => Foreseen::Wait,
            Gate::AllUnhealthy => Foreseen::AllUnhealthy,
            Gate::Open => self.foresee_pick(&roster, key, bound),
        });
        let prospects = prospects(&roster);
        Outlook { roster, foreseen, bond_holds: bound.is_some(), prospects }
    }

    /// What comes of a bond; `None`: its member is full.
    fn foresee_own(&self, roster: &Roster, bound: Bound) -> Option<Foreseen> {
        if !bound.is_apart && self.hall.queue.is_in_the_way_of(&[]) || !self.hall.has_room() {
            return Some(Foreseen::Full);
        }
        let has_room = roster.members()[bound.index].has_room();
        has_room.then_some(Foreseen::Member(bound.index, Choice::ByCookie))
    }

    fn foresee_pick(&self, roster: &Roster, key: Option<&[u8]>, bound: Option<Bound>) -> Foreseen {
        let nobody = || if bound.is_some() || roster.has_others(&[]) { Foreseen::Full } else { Foreseen::Nobody };
        if self.hall.queue.is_in_the_way_of(&[]) || !self.hall.has_room() {
            return nobody();
        }
        let turn = || AtomicUsize::new(self.turn.load(Relaxed));
        let Some(index) = roster.pick_by(Member::has_room, &turn(), || 0, key, &[]) else { return nobody() };
        let candidates = || roster.balancer().candidates().iter().map(|candidate| candidate.index);
        let mut with_room: Vec<usize> = candidates().filter(|index| roster.members()[*index].has_room()).collect();
        if roster.balancer().goes_by_form() && with_room.iter().any(|index| roster.standing(*index) != Standing::Kept) {
            with_room.retain(|index| roster.standing(*index) != Standing::Kept);
        }
        let by_key = key.is_some() && roster.goes_by_key();
        let is_determined = match with_room.len() {
            0 | 1 => true,
            // Whoever is full is walked past in the order of the ring, as long as they can be told apart.
            some if by_key => candidates().count() - some <= LeftOut::MOST,
            // After a full one the next is drawn.
            _ => roster.is_settled(&turn()) && roster.pick_beside(&turn(), 0, key, &[]) == Some(index),
        };
        match is_determined {
            true => Foreseen::Member(index, roster.choice(key, bound)),
            false => Foreseen::OneOf(with_room),
        }
    }
}

fn prospects(roster: &Roster) -> Vec<Option<Prospect>> {
    let mut prospects = vec![None; roster.members().len()];
    let shares = roster.balancer().shares();
    for (place, candidate) in roster.balancer().candidates().iter().enumerate() {
        let share = shares.as_ref().map(|shares| shares[place]);
        prospects[candidate.index] = Some(Prospect { share, has_room: roster.members()[candidate.index].has_room() });
    }
    prospects
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::super::tests::{ids, plan, pool};
    use super::super::{Answer, Limits, Pick, Plan};
    use super::*;
    use crate::balance::{Memory, Policy};
    use crate::config::Capacity;
    use crate::health::Admin;

    const MEMORY: Memory = Memory { decay: Duration::from_secs(1), sensitivity: Duration::from_millis(50) };

    fn hash() -> Policy {
        Policy::ConsistentHash { bounded_load_percent: Some(125) }
    }

    /// What is foreseen, then what a request gets; the seat is kept.
    fn agree(pool: &Pool, key: Option<&[u8]>, held: &mut Vec<super::super::Lease>) {
        let outlook = pool.foresee(key);
        let again = pool.foresee(key);
        assert_eq!(outlook.foreseen, again.foreseen, "a look changes nothing");
        match (outlook.foreseen, pool.pick(&[], key)) {
            (Foreseen::Member(index, choice), Pick::Member(lease)) => {
                assert_eq!((lease.member().id(), lease.choice()), (ids(pool)[index], choice));
                held.push(lease);
            }
            (Foreseen::OneOf(some), Pick::Member(lease)) => {
                assert!(some.len() > 1 && some.iter().any(|index| ids(pool)[*index] == lease.member().id()));
                held.push(lease);
            }
            (Foreseen::Wait, Pick::Wait) | (Foreseen::Full, Pick::Full) => {}
            (Foreseen::AllUnhealthy, Pick::AllUnhealthy) | (Foreseen::Nobody, Pick::Nobody) => {}
            (foreseen, _) => panic!("{foreseen:?} did not come"),
        }
    }

    #[test]
    fn what_is_foreseen_is_what_the_next_request_gets_whatever_the_policy_and_the_room() {
        let fastest = Policy::Fastest { sensitivity: Duration::ZERO };
        let peak_ewma = Policy::PeakEwma(MEMORY);
        let policies =
            [Policy::RoundRobin, Policy::LeastRequests { choices: 2 }, Policy::Random, fastest, peak_ewma, hash()];
        for policy in policies {
            for members in [1_u8, 3, 12] {
                let most = Capacity { max_in_flight: Some(3), max_connections: None };
                let limits = Limits { members: vec![most; members.into()], ..Limits::default() };
                let pool = pool(Plan { policy: policy.clone(), limits, ..plan(members) });
                let (mut held, everyone) = (Vec::new(), ids(&pool));
                for step in 0..400_u32 {
                    let key = step.to_le_bytes();
                    let key = (step % 3 > 0).then_some(key.as_slice());
                    pool.tell_time(|| Duration::from_millis(u64::from(step)));
                    agree(&pool, key, &mut held);
                    if let Some(lease) = held.last_mut().filter(|_| step % 5 > 0) {
                        // Every fifth one never answers; some members are slow, and some fail.
                        let slow = lease.member().id().0 % 3 == 0;
                        let began = u64::from(step).saturating_sub(if slow { 400 } else { 3 });
                        lease.await_begins(|| Duration::from_millis(began));
                        let answer = if step % 7 == 0 { Answer::Failure } else { Answer::Success };
                        lease.is_answered(Duration::from_millis(u64::from(step)), answer);
                    }
                    let one = everyone[step as usize % everyone.len()];
                    match step % 11 {
                        3 => assert!(pool.administer(Duration::ZERO, one, Admin::Draining)),
                        5 => assert!(everyone.iter().all(|id| pool.administer(Duration::ZERO, *id, Admin::Enabled))),
                        7 | 8 if !held.is_empty() => drop(held.swap_remove(step as usize % held.len())),
                        _ => {}
                    }
                }
            }
        }
    }

    #[test]
    fn a_pool_that_is_full_says_so_and_one_that_waits_is_stood_behind() {
        let limits =
            Limits { capacity: Capacity { max_in_flight: Some(2), max_connections: None }, ..Limits::default() };
        let pool = pool(Plan { limits, ..plan(2) });
        let mut held = Vec::new();
        (0..4).for_each(|_| agree(&pool, None, &mut held));
        assert_eq!((held.len(), pool.foresee(None).foreseen), (2, Foreseen::Full));
    }

    #[test]
    fn a_draw_leaves_it_open_and_turns_do_not() {
        let open = pool(Plan { policy: Policy::Random, ..plan(3) });
        assert_eq!(open.foresee(None).foreseen, Foreseen::OneOf(vec![0, 1, 2]));
        let turns = pool(plan(3));
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            let Foreseen::Member(index, Choice::ByPolicy) = turns.foresee(None).foreseen else {
                panic!("it is its turn")
            };
            assert!(matches!(turns.pick(&[], None), Pick::Member(_)));
            seen.insert(index);
        }
        assert_eq!(seen.len(), 3);
        let shares: Vec<f64> =
            turns.foresee(None).prospects.iter().filter_map(|p| p.and_then(|prospect| prospect.share)).collect();
        assert!(shares.iter().all(|share| (share - 1.0 / 3.0).abs() < 1e-9) && shares.len() == 3, "{shares:?}");
    }
}
