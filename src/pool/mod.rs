//! A pool while it lives: the meeting point of probes, requests and operators.
//!
//! Evidence goes to the heart under a short lock, by one writer at a time; whatever changed becomes a new [`Roster`],
//! stored in one swap before it is announced. Requests read the roster and take no lock. A pool outlives the
//! configuration that named it: a reload reshapes it and what it knows stays (health.md §9).
//!
//! Not here: how a probe is made (`probe`), how a request is sent (`proxy`), which request comes here (`route`).

mod budget;
#[cfg(test)]
mod full;
mod hall;
mod lease;
mod link;
mod member;
mod queue;
mod roster;
mod seats;
#[cfg(test)]
mod settled;
mod tally;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

pub use budget::Budget;
pub use hall::Limits;
pub use lease::{Choice, Lease, Waiting};
pub use link::{Berth, Crowded, HangUp, InUse, Link, Manner};
pub use member::Member;
pub use queue::{Place, Queue, Turn};
pub use roster::{Headline, Roster};
pub use tally::{MemberTally, PoolTally};
pub use usage::Usage;

use hall::{Entry, Hall};

use crate::balance::{Policy, Rings, Seat};
use crate::config::Capacity;
use crate::health::{self, Admin, Change, MemberId, Mode, Pace, PoolHealth, Rules, Sample, Spec, Standing, Verdict};
use crate::telemetry::{EventLog, Moves};

/// Requests that may wait for a first verdict at once; one too many is refused (health.md §2).
const WAITERS: usize = 10_000;

/// A new roster for no other reason than latency comes at most once in this much for each member: building it takes about
/// a hundredth of that, and in a large pool the next sample, which brings it, is never far.
const REST_PER_MEMBER: Duration = Duration::from_micros(10);
/// Smaller pools never rest: it costs little, and who is probed rarely would be shown late.
const TOO_SMALL_TO_REST: usize = 100;

/// One pool, alive.
pub struct Pool {
    name: Arc<str>,
    board: Mutex<Board>,
    roster: ArcSwap<Roster>,
    turn: AtomicUsize,
    changed: Notify,
    waiters: AtomicUsize,
    hall: Arc<Hall>,
    budget: Budget,
    usage: Usage,
    tally: PoolTally,
    events: Arc<EventLog>,
}

/// What only one writer at a time may touch.
struct Board {
    health: PoolHealth,
    policy: Policy,
    /// Of the members, where requests go by a key: for as long as the members are the same.
    rings: Option<Arc<Rings>>,
    /// Parallel to the heart's members; a member's live part stays the same over rosters.
    members: Vec<Arc<Member>>,
    /// Members that have left and whose last requests and connections are not over: one that returns has them too.
    former: Vec<Weak<Member>>,
    /// Until when first verdicts are waited for before the pool counts as settled.
    settles_at: Duration,
    /// When the present roster was made.
    roster_at: Duration,
    /// A latency has moved since then that the policy goes by.
    roster_is_stale: bool,
}

/// What a configuration wants of a pool.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How members are judged.
    pub rules: Rules,
    /// How requests are shared.
    pub policy: Policy,
    /// Retries after bytes were sent, in percent of requests.
    pub budget_percent: u32,
    /// Who is in it.
    pub members: Vec<Spec>,
    /// What it takes on at once.
    pub limits: Limits,
}

/// Who asks for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// A request that has not waited.
    Now,
    /// One in the queue whose turn it is.
    InTurn,
}

/// What a pool says when asked for a member.
pub enum Pick {
    /// This one.
    Member(Lease),
    /// Nobody is proven yet: wait for a change of the roster, but no longer than until then.
    Wait,
    /// Everyone who may be picked has as many requests as they may, or the pool has, or others wait for that already.
    Full,
    /// Nobody is healthy, and the pool's rule is to fail.
    AllUnhealthy,
    /// There is nobody to pick: no enabled member with an address, or all of them have been tried.
    Nobody,
}

impl Pool {
    /// A pool that starts at `now`. Its first turn is at random, so that restarts do not favour the first member.
    pub fn new(name: &str, now: Duration, plan: Plan, events: Arc<EventLog>) -> Pool {
        let pool = Pool::made(name, now, plan, events);
        let board = pool.board();
        if board.health.picture().mode == Mode::Down {
            // From its first moment: nothing else would ever tell.
            pool.events.announce(name, &board.health, &[Change::Mode { from: Mode::Waiting, to: Mode::Down }]);
        }
        drop(board);
        pool
    }

    /// The same for a pool that a reload brings: it is told of, with how it begins.
    pub fn added(name: &str, now: Duration, plan: Plan, events: Arc<EventLog>) -> Pool {
        let pool = Pool::made(name, now, plan, events);
        pool.events.announce_new(name, &pool.board().health);
        pool
    }

    fn made(name: &str, now: Duration, plan: Plan, events: Arc<EventLog>) -> Pool {
        let Plan { rules, policy, budget_percent, members: specs, limits } = plan;
        let settles_at = now + rules.initial_wait;
        let rings = rings(&policy, &specs, None);
        let health = PoolHealth::new(now, rules, specs);
        let hall = Arc::new(Hall::new(&limits));
        let members: Vec<_> = health.members().iter().map(|m| Arc::new(Member::new(m, &hall, &[]))).collect();
        limit(&members, &limits);
        let roster = Roster::new(&health, &policy, rings.as_deref(), &members);
        roster.count_candidates(None);
        Pool {
            name: name.into(),
            board: Mutex::new(Board {
                health,
                policy,
                rings,
                members,
                former: Vec::new(),
                settles_at,
                roster_at: now,
                roster_is_stale: false,
            }),
            roster: ArcSwap::from_pointee(roster),
            turn: AtomicUsize::new(fastrand::usize(..)),
            changed: Notify::new(),
            waiters: AtomicUsize::new(0),
            hall,
            budget: Budget::new(budget_percent),
            usage: Usage::new(now),
            tally: PoolTally::new(),
            events,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The present roster.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.load_full()
    }

    /// Whether anybody uses it.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What it has been through.
    pub fn tally(&self) -> &PoolTally {
        &self.tally
    }

    /// The retry budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Picks a member for a request that has tried `tried` already; `key` is what it goes by, where keys count.
    pub fn pick(&self, tried: &[MemberId], key: Option<&[u8]>) -> Pick {
        self.take_seat(Comes::Now, tried, key)
    }

    /// The same for the one of those who wait whose turn it is to look.
    pub fn pick_in_turn(&self, _looker: &Place<'_>, tried: &[MemberId], key: Option<&[u8]>) -> Pick {
        self.take_seat(Comes::InTurn, tried, key)
    }

    fn take_seat(&self, comes: Comes, tried: &[MemberId], key: Option<&[u8]>) -> Pick {
        let roster = self.roster.load();
        match roster.mode() {
            Mode::Waiting => return Pick::Wait,
            Mode::Down if roster.fails_when_unhealthy() => return Pick::AllUnhealthy,
            _ => {}
        }
        // Whoever comes now stands behind those who wait, unless they cannot use what it can.
        let entry = match comes {
            Comes::Now if self.hall.queue.is_in_the_way_of(tried) => Entry::Full,
            Comes::Now | Comes::InTurn => self.hall.enter(),
        };
        if entry == Entry::Full {
            return if roster.has_others(tried) { Pick::Full } else { Pick::Nobody };
        }
        if let Some(index) = roster.pick(&self.turn, || fastrand::u64(..), key, tried) {
            let choice = if key.is_some() && roster.goes_by_key() { Choice::ByKey } else { Choice::ByPolicy };
            return Pick::Member(Lease::new(&roster, index, choice, entry));
        }
        self.hall.give_back(entry);
        if comes == Comes::Now && entry == Entry::Counted {
            // It may have held the pool's last seat for a moment, in the way of one who waits by now.
            self.hall.queue.wake();
        }
        if roster.has_others(tried) { Pick::Full } else { Pick::Nobody }
    }

    /// A place among those who wait for room, for a request that has tried `tried`; `None` where there is no queue, or it is
    /// full.
    pub fn join_queue(&self, tried: &[MemberId]) -> Option<Place<'_>> {
        self.hall.queue.join(tried)
    }

    /// Where requests wait for room.
    pub fn queue(&self) -> &Queue {
        &self.hall.queue
    }

    /// What all members take on together, as configured.
    pub fn capacity(&self) -> Capacity {
        self.hall.capacity()
    }

    /// Requests on all members, on those too that are no longer configured: they count under the pool's limit.
    pub fn in_flight(&self) -> u32 {
        self.board().in_flight()
    }

    /// Open connections to all members; `None` where they are not counted, for want of a limit.
    pub fn connections(&self) -> Option<u32> {
        self.hall.connections.limit().map(|_| self.hall.connections.taken())
    }

    /// How many requests found no room, not even after a wait.
    pub fn turned_away(&self) -> u64 {
        self.hall.turned_away()
    }

    /// One more found no room.
    pub fn turn_away(&self) {
        self.hall.turn_away();
    }

    /// A seat among the requests that wait for a first verdict; `None` when all are taken.
    pub fn waiter(&self) -> Option<Waiting<'_>> {
        Waiting::new(&self.waiters, WAITERS)
    }

    /// Resolves at the next change of the roster. To miss none, enable it before looking at the roster.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// A probe's sample. `None`: the member is gone or another, or the pool is, and nothing was learnt.
    pub fn report(&self, now: Duration, id: MemberId, fingerprint: u64, sample: Sample) -> Option<Pace> {
        let mut board = self.board();
        board.health.member(id).filter(|m| m.spec().fingerprint == fingerprint)?;
        let index = board.health.index_of(id).filter(|index| !board.members[*index].is_removed())?;
        let outcome = sample.outcome;
        let changes = board.health.observe(now, id, fingerprint, sample);
        let member = &board.health.members()[index];
        board.members[index].tally().probe_ends(outcome);
        let pace = member.pace();
        let latency_changed = board.members[index].learn(member);
        board.roster_is_stale |= latency_changed && matches!(board.policy, Policy::Fastest { .. });
        let is_due = board.new_roster_is_due(now);
        self.publish(&mut board, now, &changes, is_due);
        Some(pace)
    }

    /// An operator's word on a member; false when there is no such member.
    pub fn administer(&self, now: Duration, id: MemberId, admin: Admin) -> bool {
        let mut board = self.board();
        if board.health.member(id).is_none() {
            return false;
        }
        let wanted = wanted(&board.health);
        let changes = board.health.administer(now, id, admin);
        let changes = in_effect(changes, &wanted, &board.health);
        self.publish(&mut board, now, &changes, true);
        true
    }

    /// Lets time pass: ends the wait of a cold start once its deadline is over.
    pub fn advance(&self, now: Duration) {
        let mut board = self.board();
        let changes = board.health.advance(now);
        let is_due = board.new_roster_is_due(now);
        self.publish(&mut board, now, &changes, is_due);
    }

    /// When [`Pool::advance`] will next have something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.board().health.next_deadline()
    }

    /// A reload: other rules and members; what is known of those that stay is kept.
    pub fn reshape(&self, now: Duration, plan: Plan) {
        let Plan { rules, policy, budget_percent, members: specs, limits } = plan;
        // Before the lock is taken: a large ring takes its time.
        let rings_before = self.board().rings.clone();
        let rings = rings(&policy, &specs, rings_before);
        let mut board = self.board();
        let was_settled = board.is_settled(now);
        let wanted = wanted(&board.health);
        let present = standings(&board.health);
        let changes = board.health.reshape(now, rules, specs);
        let changes = in_effect(changes, &wanted, &board.health);
        let moves = moves(present, &board.health);
        let former = board.former();
        self.hall.set(&limits, board.in_flight());
        let mut before: HashMap<MemberId, Arc<Member>> = board.members.drain(..).map(|m| (m.id(), m)).collect();
        let mut by_key: HashMap<&health::Key, Vec<&Arc<Member>>> = HashMap::new();
        former.iter().for_each(|member| by_key.entry(member.key()).or_default().push(member));
        let members = board.health.members().iter().map(|m| keep_or_make(&before, m, &self.hall, &by_key));
        let members: Vec<_> = members.collect();
        limit(&members, &limits);
        if members.iter().any(|m| !before.contains_key(&m.id())) {
            // Turns that stay in step with reloads would favour a member for ever (case C44).
            self.turn.store(fastrand::usize(..), Relaxed);
        }
        board.settles_at = match board.health.next_deadline() {
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
        self.budget.set_percent(budget_percent);
        self.show(&mut board, now);
        self.events.announce_moves(&self.name, &board.health, &moves);
        self.tell(&board, &changes);
    }

    /// A reload took the whole pool out: so are its members.
    pub fn remove(&self) {
        let board = self.board();
        board.members.iter().for_each(|member| member.remove());
        self.events.announce_gone(&self.name, board.health.picture().mode);
    }

    /// Whether the first verdicts are in, or have been waited for long enough. It stays so over reloads, unless one leaves
    /// nobody who has ever passed and requests wait again.
    pub fn is_settled(&self, now: Duration) -> bool {
        self.board().is_settled(now)
    }

    /// Reads the heart, for the API and for those who follow its members. Keep it short: writers wait meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&PoolHealth, &[Arc<Member>]) -> T) -> T {
        let board = self.board();
        look(&board.health, &board.members)
    }

    /// Makes what changed visible to requests first, and then to people.
    fn publish(&self, board: &mut Board, now: Duration, changes: &[Change], rebuild: bool) {
        if changes.is_empty() && !rebuild {
            return;
        }
        self.show(board, now);
        self.tell(board, changes);
    }

    /// Makes what changed visible to requests.
    fn show(&self, board: &mut Board, now: Duration) {
        board.roster_at = now;
        board.roster_is_stale = false;
        let next = Roster::new(&board.health, &board.policy, board.rings.as_deref(), &board.members);
        next.count_candidates(Some(&self.roster.load()));
        self.roster.store(Arc::new(next));
        self.changed.notify_waiters();
        self.hall.queue.wake();
    }

    /// Tells people and counts.
    fn tell(&self, board: &Board, changes: &[Change]) {
        changes.iter().for_each(|change| self.count(board, change));
        self.events.announce(&self.name, &board.health, changes);
    }

    fn count(&self, board: &Board, change: &Change) {
        match *change {
            Change::Fallback { entered: true } => self.tally.falls_back(),
            Change::Verdict { member, to, .. } => {
                let Some(index) = board.health.index_of(member) else { return };
                board.members[index].tally().verdict_becomes(to, board.health.members()[index].cause());
            }
            _ => {}
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        // A panic while the lock was held leaves a heart that is whole: its steps do not unwind half-way on purpose.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    fn is_settled(&self, now: Duration) -> bool {
        let is_known = |m: &health::Member| m.verdict() != Verdict::Unknown || m.last_sample().is_some();
        now >= self.settles_at || self.health.members().iter().all(|m| m.admin() == Admin::Disabled || is_known(m))
    }

    /// Members that have left and of whom something goes on.
    fn former(&self) -> Vec<Arc<Member>> {
        self.former.iter().filter_map(Weak::upgrade).filter(|member| member.is_in_use()).collect()
    }

    /// Requests on its members, those that have left included.
    fn in_flight(&self) -> u32 {
        let former = self.former();
        self.members.iter().chain(&former).map(|member| member.own_in_flight()).sum()
    }

    /// Whether latencies alone ask for a new roster, and the last one is old enough.
    fn new_roster_is_due(&self, now: Duration) -> bool {
        let members = self.members.len();
        let rest = if members < TOO_SMALL_TO_REST { Duration::ZERO } else { REST_PER_MEMBER * members as u32 };
        self.roster_is_stale && now >= self.roster_at.saturating_add(rest)
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

/// What is wanted of each member in effect: a weight of 0 is a wish to drain it (health.md §7).
fn wanted(health: &PoolHealth) -> HashMap<MemberId, Admin> {
    let wish = |m: &health::Member| match m.admin() {
        Admin::Enabled if m.spec().weight == 0 => Admin::Draining,
        admin => admin,
    };
    health.members().iter().map(|m| (m.id(), wish(m))).collect()
}

/// What a step changed, with the orders as they are in effect and before what came of them: a weight may have given one,
/// or have given it already.
fn in_effect(changes: Vec<Change>, before: &HashMap<MemberId, Admin>, health: &PoolHealth) -> Vec<Change> {
    let now = wanted(health);
    let orders = health.members().iter().filter_map(|m| {
        let (from, to) = (*before.get(&m.id())?, *now.get(&m.id())?);
        (from != to).then_some(Change::Admin { member: m.id(), from, to })
    });
    let rest = changes.into_iter().filter(|change| !matches!(change, Change::Admin { .. }));
    orders.chain(rest).collect()
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

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).field("waiters", &self.waiters.load(Relaxed)).finish()
    }
}
