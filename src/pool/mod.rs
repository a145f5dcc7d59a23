//! A pool while it lives: the meeting point of probes, requests and operators.
//!
//! Evidence goes to the heart under a short lock, by one writer at a time; whatever changed becomes a new [`Roster`],
//! stored in one swap before it is announced. Requests read the roster and take no lock. A pool outlives the
//! configuration that named it: a reload reshapes it and what it knows stays (health.md §9).
//!
//! Not here: how a probe is made (`probe`), how a request is sent (`proxy`), which request comes here (`route`).

mod audience;
mod board;
mod bonds;
mod budget;
mod calls;
mod form;
#[cfg(test)]
mod full;
mod hall;
mod lately;
mod lease;
mod link;
mod member;
mod outlook;
mod queue;
mod roster;
mod seats;
#[cfg(test)]
mod settled;
mod shadow;
mod shape;
mod tally;
mod testimony;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tried;
mod usage;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

pub use audience::{Audience, Onlooker};
pub use board::shown;
pub use bonds::{Binding, Bond};
pub use budget::Budget;
pub use hall::Limits;
pub use lease::{Answer, Choice, Lease, Waiting};
pub use link::{Berth, Crowded, HangUp, InUse, Link, Manner};
pub use member::Member;
pub use outlook::{Foreseen, Outlook, Prospect};
pub use queue::{Place, Queue, Turn};
pub use roster::{Headline, Roster};
pub use shadow::Shadow;
pub use shape::Plan;
pub use tally::{MemberTally, PoolTally};
pub use testimony::{Charges, Judged, Side};
pub use usage::Usage;

use board::{Board, in_effect, wanted};
use bonds::Badges;
use calls::Calls;
use hall::{Entry, Hall};
use roster::Gate;
use shadow::Would;

use crate::balance::Policy;
use crate::config::Capacity;
use crate::health::{self, Admin, Change, Class, MemberId, Outcome, Pace, PoolHealth, Sample, State, Verdict};
use crate::telemetry::{Event, Kind, Trial};

/// Requests that may wait for a first verdict at once; one too many is refused (health.md §2).
const WAITERS: usize = 10_000;

/// One pool, alive.
pub struct Pool {
    name: Arc<str>,
    board: Mutex<Board>,
    roster: ArcSwap<Roster>,
    badges: ArcSwap<Badges>,
    turn: AtomicUsize,
    changed: Notify,
    /// There may be another deadline than before.
    retimed: Notify,
    waiters: AtomicUsize,
    hall: Arc<Hall>,
    budget: Budget,
    usage: Usage,
    tally: PoolTally,
    calls: Calls,
    audience: Arc<Audience>,
}

/// What came of a probe's sample.
#[derive(Debug)]
pub struct Heard {
    /// How soon the next is wanted.
    pub pace: Pace,
    /// What was announced where the member has become unhealthy by it.
    pub fall: Option<Arc<Event>>,
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

    /// Tells it the time before a pick, where its policy goes by how members do of late; else `now` is not asked.
    pub fn tell_time(&self, now: impl FnOnce() -> Duration) {
        if self.hall.memory.read().is_some() {
            self.hall.memory.tell_time(now());
        }
    }

    /// Picks a member for a request that has tried `tried` already; `key` is what it goes by, where keys count.
    pub fn pick(&self, tried: &[MemberId], key: Option<&[u8]>) -> Pick {
        self.pick_bound(tried, key, None)
    }

    /// The same for a request of a client with this bond: its member is picked as long as it may serve and has room.
    pub fn pick_bound(&self, tried: &[MemberId], key: Option<&[u8]>, bond: Option<Bond>) -> Pick {
        self.take_seat(Comes::Now, tried, key, bond)
    }

    /// The same for the one of those who wait whose turn it is to look.
    pub fn pick_in_turn(
        &self,
        _looker: &Place<'_>,
        tried: &[MemberId],
        key: Option<&[u8]>,
        bond: Option<Bond>,
    ) -> Pick {
        self.take_seat(Comes::InTurn, tried, key, bond)
    }

    fn take_seat(&self, comes: Comes, tried: &[MemberId], key: Option<&[u8]>, bond: Option<Bond>) -> Pick {
        let roster = self.roster.load();
        let bound = bond.filter(|bond| !tried.contains(&bond.member)).and_then(|bond| roster.bound(bond));
        // Whoever serves those alone who are bound to it does so however the others stand.
        let shut = match roster.gate() {
            Gate::Open => None,
            Gate::Waiting => Some(Pick::Wait),
            Gate::AllUnhealthy => Some(Pick::AllUnhealthy),
        };
        if bound.is_none()
            && let Some(pick) = shut
        {
            return pick;
        }
        let nobody = || if bound.is_some() || roster.has_others(tried) { Pick::Full } else { Pick::Nobody };
        // Whoever comes now stands behind those who wait, unless they cannot use what it can.
        let is_apart = bound.is_some_and(|bound| bound.is_apart);
        let entry = match comes {
            Comes::Now if !is_apart && self.hall.queue.is_in_the_way_of(tried) => Entry::Full,
            Comes::Now | Comes::InTurn => self.hall.enter(),
        };
        if entry == Entry::Full {
            return nobody();
        }
        if let Some(bound) = bound
            && roster.members()[bound.index].enter()
        {
            return Pick::Member(Lease::new(&roster, bound.index, Choice::ByCookie, entry));
        }
        let pick = if shut.is_some() { None } else { roster.pick(&self.turn, || fastrand::u64(..), key, tried) };
        if let Some(index) = pick {
            let choice = roster.choice(key, bound);
            return Pick::Member(Lease::new(&roster, index, choice, entry));
        }
        self.hall.give_back(entry);
        if comes == Comes::Now && entry == Entry::Counted {
            // It may have held the pool's last seat for a moment, in the way of one who waits by now.
            self.hall.queue.wake();
        }
        shut.unwrap_or_else(nobody)
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
    pub fn report(&self, now: Duration, id: MemberId, fingerprint: u64, sample: Sample) -> Option<Heard> {
        let mut board = self.board();
        board.health.member(id).filter(|m| m.spec().fingerprint == fingerprint)?;
        let index = board.health.index_of(id).filter(|index| !board.members[*index].is_removed())?;
        let outcome = sample.outcome;
        let would = board.shadow.as_mut().map(|shadow| {
            let sample = sample.clone();
            shadow.step(|health| health.observe(now, id, fingerprint, sample))
        });
        let changes = board.health.observe(now, id, fingerprint, sample);
        let member = board.shown(index);
        board.members[index].tally().probe_ends(outcome);
        let pace = member.pace();
        let latency_changed = board.members[index].learn(member);
        board.roster_is_stale |= latency_changed && matches!(board.policy, Policy::Fastest { .. });
        let is_due = board.new_roster_is_due(now);
        let told = self.publish(&mut board, now, &changes, would, is_due);
        self.look_for_fall(&board, id);
        let fell =
            |change: &Change| matches!(change, Change::Verdict { member, to: Verdict::Unhealthy, .. } if *member == id);
        let is_of_it =
            |event: &Arc<Event>| event.kind == Kind::Member && event.to.as_deref() == Some(Verdict::Unhealthy.as_str());
        // A probe turns one verdict to unhealthy.
        let fall = told.into_iter().find(is_of_it).filter(|_| changes.iter().any(fell));
        Some(Heard { pace, fall })
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
        let would = board.shadow.as_mut().map(|shadow| shadow.step(|health| health.administer(now, id, admin)));
        board.show_would();
        self.publish(&mut board, now, &changes, would, true);
        self.look_for_fall(&board, id);
        true
    }

    /// Lets time pass: ends the wait of a cold start once its deadline is over, and passive ejections likewise; takes the steps
    /// of slow starts.
    pub fn advance(&self, now: Duration) {
        let mut board = self.board();
        let changes = board.health.advance(now);
        let would = board.shadow.as_mut().map(|shadow| shadow.step(|health| health.advance(now)));
        let is_due = board.new_roster_is_due(now);
        self.publish(&mut board, now, &changes, would, is_due);
    }

    /// When [`Pool::advance`] will next have something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        let board = self.board();
        let would = board.shadow.as_ref().and_then(|shadow| shadow.health().next_deadline());
        board.health.next_deadline().into_iter().chain(would).min()
    }

    /// Until when requests wait that come now; `None`: they do not.
    pub fn waits_until(&self) -> Option<Duration> {
        self.board().health.first_verdicts_by()
    }

    /// Resolves when [`Pool::next_deadline`] may be another than it was; once for all that happened before.
    pub fn retimed(&self) -> tokio::sync::futures::Notified<'_> {
        self.retimed.notified()
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

    /// The same, with how it would be where rules are tried.
    pub fn read_both<T>(&self, look: impl FnOnce(&PoolHealth, Option<&Shadow>, &[Arc<Member>]) -> T) -> T {
        let board = self.board();
        look(&board.health, board.shadow.as_deref(), &board.members)
    }

    /// Makes what changed visible to requests first, then to people and to whoever goes by it; only then are those woken who
    /// wait, so that one whose route leads elsewhere by now sees that.
    fn publish(
        &self,
        board: &mut Board,
        now: Duration,
        changes: &[Change],
        would: Option<Would>,
        rebuild: bool,
    ) -> Vec<Arc<Event>> {
        let would = would.filter(Would::is_something).map(|would| (would, self.roster.load().state()));
        if would.is_some() {
            board.show_would();
        }
        let returns = |health: &PoolHealth| health.next_deadline().is_some();
        let would_return = would.is_some() && board.shadow.as_ref().is_some_and(|shadow| returns(shadow.health()));
        if would_return || !changes.is_empty() && returns(&board.health) {
            // With the fallback ends that time brings nobody back.
            self.calls.stir();
        }
        let ramps_as_before = board.health.picture().ramps_as(self.roster.load().picture());
        if changes.is_empty() && !rebuild && ramps_as_before {
            self.tell_observed(board, would, &[]);
            return Vec::new();
        }
        self.show(board, now);
        // A latency or a step of a slow start alone changes who is picked, and nothing that anyone else goes by.
        let told = if changes.is_empty() { Vec::new() } else { self.tell(board, now, changes) };
        self.tell_observed(board, would, &told);
        self.wake();
        told
    }

    /// Makes what changed visible to requests.
    fn show(&self, board: &mut Board, now: Duration) {
        board.roster_at = now;
        board.roster_is_stale = false;
        let next = Roster::new(&board.health, &board.policy, board.rings.as_deref(), &board.members);
        let last = self.roster.load_full();
        next.count_candidates(Some(&last));
        let next = Arc::new(next);
        self.roster.store(next.clone());
        // Their requests were sent to them although they had fallen, and are called away like the others now.
        next.left_behind(&last).for_each(|member| self.call_away_from(member));
        if board.health.next_deadline().is_some() {
            self.retimed.notify_one();
        }
    }

    /// Has those look again who wait, for a verdict or for room.
    fn wake(&self) {
        self.changed.notify_waiters();
        self.hall.queue.wake();
    }

    /// Counts, tells people, and has everyone look who goes by how the pool stands.
    fn tell(&self, board: &Board, now: Duration, changes: &[Change]) -> Vec<Arc<Event>> {
        changes.iter().for_each(|change| self.count(board, change));
        let told = self.audience.events.announce(&self.name, &board.health, changes);
        self.audience.look(now, &self.name, &self.roster.load());
        told
    }

    /// Tells people what would have changed, beside what has and was `told` already. The state is that of the pool as a
    /// whole before the step.
    fn tell_observed(&self, board: &Board, would: Option<(Would, State)>, told: &[Arc<Event>]) {
        let (Some((would, state_before)), Some(shadow)) = (would, &board.shadow) else { return };
        let real = (state_before, board.health.picture().state);
        let trial = Trial { pool: &self.name, rules: shadow.keys(), health: shadow.health(), real };
        self.audience.events.announce_observed(&trial, &would.changes, would.state_before, told);
    }

    fn count(&self, board: &Board, change: &Change) {
        match *change {
            Change::Fallback { entered: true } => self.tally.falls_back(),
            Change::Verdict { member, to, .. } => {
                let Some(index) = board.health.index_of(member) else { return };
                let (judged, live) = (&board.health.members()[index], &board.members[index]);
                live.tally().verdict_becomes(to, judged.cause());
                self.look_for_fall(board, member);
                if to == Verdict::Healthy {
                    self.calls.stir();
                }
            }
            Change::Admin { to: Admin::Enabled, .. } => self.calls.stir(),
            _ => {}
        }
    }

    /// Has requests leave a member that is known not to answer, once: it may be unhealthy for another reason already when it
    /// becomes that.
    fn look_for_fall(&self, board: &Board, id: MemberId) {
        let Some(index) = board.health.index_of(id) else { return };
        let (judged, live) = (&board.health.members()[index], &board.members[index]);
        let disabled = judged.admin() == Admin::Disabled;
        let falls = is_unreachable(judged) || disabled && missed_its_last_probe(judged);
        match (live.set_fallen(falls), falls) {
            (false, true) => self.call_away_from(live),
            // Requests may have waited for anyone who answers.
            (true, false) => self.calls.stir(),
            (true, true) | (false, false) => {}
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        // A panic while the lock was held leaves a heart that is whole: its steps do not unwind half-way on purpose.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether its verdict says that it does not answer.
fn is_unreachable(judged: &health::Member) -> bool {
    judged.verdict() == Verdict::Unhealthy && judged.class() == Some(Class::Unreachable)
}

/// Whether its last probe had no answer: where it is not probed any more, no verdict will say so.
fn missed_its_last_probe(judged: &health::Member) -> bool {
    let last = judged.last_sample().map(|(sample, _)| sample.outcome);
    matches!(last, Some(Outcome::Fail(reason)) if reason.class() == Class::Unreachable)
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).field("waiters", &self.waiters.load(Relaxed)).finish()
    }
}
