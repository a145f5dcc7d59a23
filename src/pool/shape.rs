//! A pool's shape, by a configuration and by who is there: how it begins, becomes another, and is taken out.
//!
//! What is known of members that stay is kept (health.md §9); whoever leaves is told of, and what still runs there counts on.
//!
//! Not here: what is known (`health`), who reads it (`roster`).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::board::{Board, in_effect, wanted};
use super::bonds::Badges;
use super::calls::Calls;
use super::hall::{Hall, Limits};
use super::shadow::Would;
use super::{Audience, Budget, Member, Pool, PoolTally, Roster, Shadow, Usage, is_unreachable, missed_its_last_probe};
use crate::balance::{Policy, Rings, Seat};
use crate::config::Observed;
use crate::health::{self, Carried, Change, MemberId, Mode, PoolHealth, Rules, Spec, Standing};
use crate::telemetry::Moves;

/// What a configuration wants of a pool.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How members are judged.
    pub rules: Rules,
    /// What is tried beside that, and changes nothing.
    pub observed: Option<Arc<Observed>>,
    /// How requests are shared.
    pub policy: Policy,
    /// Retries after bytes were sent, in percent of requests.
    pub budget_percent: u32,
    /// Who is in it.
    pub members: Vec<Spec>,
    /// What it takes on at once.
    pub limits: Limits,
}

impl Pool {
    /// A pool that starts at `now`. Its first turn is at random, so that restarts do not favour the first member.
    pub fn new(name: &str, now: Duration, plan: Plan, audience: Arc<Audience>) -> Pool {
        let pool = Pool::made(name, now, plan, audience);
        let board = pool.board();
        if board.health.picture().mode == Mode::Down {
            // From its first moment: nothing else would ever tell.
            pool.audience.events.announce(name, &board.health, &[Change::Mode { from: Mode::Waiting, to: Mode::Down }]);
        }
        drop(board);
        pool
    }

    /// The same for a pool that a reload brings: it is told of, with how it begins.
    pub fn added(name: &str, now: Duration, plan: Plan, audience: Arc<Audience>) -> Pool {
        let pool = Pool::made(name, now, plan, audience);
        pool.audience.events.announce_new(name, &pool.board().health);
        pool
    }

    fn made(name: &str, now: Duration, plan: Plan, audience: Arc<Audience>) -> Pool {
        let Plan { rules, observed, policy, budget_percent, members: specs, limits } = plan;
        let settles_at = now + rules.initial_wait;
        let rings = rings(&policy, &specs, None);
        let shadow = observed.map(|tried| Box::new(Shadow::new(now, &tried, specs.clone())));
        let health = PoolHealth::new(now, rules, specs);
        let hall = Arc::new(Hall::new(&limits));
        hall.memory.set(&policy);
        let members: Vec<_> = health.members().iter().map(|m| Arc::new(Member::new(m, &hall, &[]))).collect();
        limit(&members, &limits);
        let roster = Roster::new(&health, &policy, rings.as_deref(), &members);
        roster.count_candidates(None);
        let badges = Badges::new(members.iter().map(|member| (member.key(), member.id())));
        let former = Vec::new();
        let (roster_at, roster_is_stale) = (now, false);
        let board = Board { health, shadow, policy, rings, members, former, settles_at, roster_at, roster_is_stale };
        board.show_would();
        Pool {
            name: name.into(),
            board: Mutex::new(board),
            roster: ArcSwap::from_pointee(roster),
            badges: ArcSwap::from_pointee(badges),
            turn: AtomicUsize::new(fastrand::usize(..)),
            changed: Notify::new(),
            retimed: Notify::new(),
            waiters: AtomicUsize::new(0),
            hall,
            budget: Budget::new(budget_percent),
            usage: Usage::new(now),
            tally: PoolTally::new(),
            calls: Calls::default(),
            audience,
        }
    }

    /// Takes over what the process before knew, before anything is served, and says of how many members.
    pub fn resume(&self, now: Duration, carried: Vec<Carried>) -> usize {
        let mut board = self.board();
        if let Some(shadow) = &mut board.shadow {
            shadow.resume(now, carried.clone());
        }
        let was = board.health.picture().mode;
        let taken = board.health.resume(now, carried);
        let is = board.health.picture().mode;
        for (index, live) in board.members.iter().enumerate() {
            live.learn(board.shown(index));
        }
        board.show_would();
        self.show(&mut board, now);
        if was != is && [was, is].contains(&Mode::Down) {
            self.audience.events.announce(&self.name, &board.health, &[Change::Mode { from: was, to: is }]);
        }
        taken
    }

    /// A reload: other rules and members; what is known of those that stay is kept.
    pub fn reshape(&self, now: Duration, plan: Plan) {
        let Plan { rules, observed, policy, budget_percent, members: specs, limits } = plan;
        // Before the lock is taken: a large ring takes its time.
        let rings_before = self.board().rings.clone();
        let rings = rings(&policy, &specs, rings_before);
        let mut board = self.board();
        let was_settled = board.is_settled(now);
        let wanted = wanted(&board.health);
        let present = standings(&board.health);
        let silent = silent(&board.health);
        // Before the real one is another: one that begins to try has seen what that has seen.
        let shadow = observed.as_ref().map(|tried| match board.shadow.take() {
            Some(shadow) => shadow,
            None => {
                board.members.iter().for_each(|member| member.begin_trial());
                Box::new(Shadow::of(&board.health, tried))
            }
        });
        board.shadow = shadow;
        let would =
            board.shadow.as_mut().zip(observed).map(|(shadow, tried)| shadow.reshape(now, &tried, specs.clone()));
        let changes = board.health.reshape(now, rules, specs);
        let changes = in_effect(changes, &wanted, &board.health);
        let moves = moves(present, &board.health);
        let former = board.former();
        self.hall.set(&limits, board.in_flight());
        self.hall.memory.set(&policy);
        let mut before: HashMap<MemberId, Arc<Member>> = board.members.drain(..).map(|m| (m.id(), m)).collect();
        let mut by_key: HashMap<&health::Key, Vec<&Arc<Member>>> = HashMap::new();
        former.iter().for_each(|member| by_key.entry(member.key()).or_default().push(member));
        let shown = (0..board.health.members().len()).map(|index| board.shown(index));
        let members = shown.map(|m| keep_or_make(&before, m, &self.hall, &by_key));
        let members: Vec<_> = members.collect();
        limit(&members, &limits);
        if members.iter().any(|m| !before.contains_key(&m.id())) {
            // Turns that stay in step with reloads would favour a member for ever (case C44).
            self.turn.store(fastrand::usize(..), Relaxed);
        }
        board.settles_at = match board.health.first_verdicts_by() {
            Some(deadline) => deadline,
            // A newcomer beside those who serve is no reason to be taken out of service, nor is any reload.
            None if was_settled => now,
            None => board.settles_at,
        };
        members.iter().for_each(|member| drop(before.remove(&member.id())));
        before.values().for_each(|gone| gone.remove());
        board.former = former.iter().chain(before.values()).map(Arc::downgrade).collect();
        board.members = members;
        board.policy = policy;
        board.rings = rings;
        self.badges.store(Arc::new(Badges::new(board.members.iter().map(|member| (member.key(), member.id())))));
        self.budget.set_percent(budget_percent);
        board.show_would();
        let would = would.filter(Would::is_something).map(|would| (would, self.roster.load().state()));
        self.show(&mut board, now);
        self.audience.events.announce_moves(&self.name, &board.health, &moves);
        let told = self.tell(&board, now, &changes);
        self.tell_observed(&board, would, &told);
        self.leave_silent(&board, &silent, before.values());
        self.wake();
    }

    /// Nobody probes those who are gone or disabled now: requests leave them by what was `silent` before.
    fn leave_silent<'a>(&self, board: &Board, silent: &[MemberId], gone: impl Iterator<Item = &'a Arc<Member>>) {
        silent.iter().for_each(|id| self.look_for_fall(board, *id));
        for member in gone.filter(|member| silent.contains(&member.id())) {
            member.set_fallen(true);
            self.call_away_from(member);
        }
    }

    /// A reload took the whole pool out: so are its members.
    pub fn remove(&self) {
        let board = self.board();
        board.members.iter().for_each(|member| member.remove());
        self.audience.events.announce_gone(&self.name, board.health.picture().mode);
    }
}

/// The rings that `policy` needs for these members: the present ones, if they are for the same.
fn rings(policy: &Policy, specs: &[Spec], present: Option<Arc<Rings>>) -> Option<Arc<Rings>> {
    if !matches!(policy, Policy::ConsistentHash { .. }) {
        return None;
    }
    let seat = |(index, spec): (usize, &Spec)| {
        let Spec { weight, split, tier, ref source, .. } = *spec;
        Some(Seat { index, address: spec.key.address?, weight, split, tier, source: source.clone() })
    };
    let seats: Vec<Seat> = specs.iter().enumerate().filter_map(seat).collect();
    present.filter(|rings| rings.are_for(&seats)).or_else(|| Some(Arc::new(Rings::new(seats))))
}

/// Those who are known not to answer, or whose last probe had no answer.
fn silent(health: &PoolHealth) -> Vec<MemberId> {
    let silent = health.members().iter().filter(|member| is_unreachable(member) || missed_its_last_probe(member));
    silent.map(health::Member::id).collect()
}

/// Everyone in the pool, with what would be told if they left.
fn standings(health: &PoolHealth) -> Vec<(MemberId, health::Key, Standing)> {
    let standings = health.picture().standings.iter();
    health.members().iter().zip(standings).map(|(m, s)| (m.id(), m.spec().key.clone(), *s)).collect()
}

/// Who has left since `before`, and who has joined.
fn moves(before: Vec<(MemberId, health::Key, Standing)>, health: &PoolHealth) -> Moves {
    let known: HashSet<MemberId> = before.iter().map(|(id, ..)| *id).collect();
    let joined = health.members().iter().map(health::Member::id).filter(|id| !known.contains(id));
    let left = before.into_iter().filter(|(id, ..)| health.index_of(*id).is_none());
    Moves { joined: joined.collect(), left: left.map(|(_, key, standing)| (key, standing)).collect() }
}

/// The live part of a member: the one it has, if it is no newcomer.
fn keep_or_make(
    present: &HashMap<MemberId, Arc<Member>>,
    member: &health::Member,
    hall: &Arc<Hall>,
    former: &HashMap<&health::Key, Vec<&Arc<Member>>>,
) -> Arc<Member> {
    match present.get(&member.id()) {
        Some(live) => {
            live.learn(member);
            live.clone()
        }
        None => {
            let same = former.get(&member.spec().key).map_or(&[][..], Vec::as_slice);
            Arc::new(Member::new(member, hall, same))
        }
    }
}

/// Gives each member its limits.
fn limit(members: &[Arc<Member>], limits: &Limits) {
    for (index, member) in members.iter().enumerate() {
        member.set_capacity(limits.members.get(index).copied().unwrap_or_default());
    }
}
