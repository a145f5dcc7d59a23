//! Requests on their way: whom they go to, how each attempt ends, and whether there is another.

use std::sync::Arc;
use std::time::Duration;

use super::agenda::Item;
use super::origin::Reply;
use super::world::World;
use super::{Truth, bin_of};
use crate::config::{self, Passive};
use crate::health::Standing;
use crate::pool::{Answer, Judged, Lease, Member, Pick};
use crate::proxy::blame::{Blame, Fault, Stage};
use crate::proxy::evidence::{self, Came, Evidence};
use crate::proxy::left::Left;
use crate::proxy::retry::{self, Next, RESCUES, Replay, Spent};
use crate::telemetry::AttemptResult;

/// Clients, for pools that go by a key.
const CLIENTS: u64 = 1000;

/// Requests that are under way at most; one more is turned away, as by a proxy whose `max_connections` are all in use.
const AT_ONCE: usize = 65_536;

/// One request.
pub(super) struct Request {
    arrived: Duration,
    traffic: usize,
    /// The pool it went to last.
    pool: usize,
    replay: Replay,
    key: u64,
    left: Left,
    spent: Spent,
    under_way: Option<Attempt>,
}

/// One attempt on its way.
struct Attempt {
    /// Counted over all requests.
    number: u64,
    lease: Lease,
    end: End,
    stays: Stays,
}

/// Whether an attempt leaves a member that turns out not to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stays {
    UntilRescued,
    ToItsEnd,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Answer(u16),
    Fault(Fault),
    /// The request's own time is over.
    Deadline,
}

impl End {
    /// By the member's doing.
    fn fault(stage: Stage, result: AttemptResult) -> End {
        End::Fault(Fault { blame: Blame::Member, stage, result, refusal: None })
    }

    /// What it says of the member. A connection that went stale is none that a scenario has.
    fn says(self) -> Evidence {
        match self {
            End::Answer(status) => evidence::of_answer(status),
            End::Fault(fault) => evidence::of_failure(fault, Came::Short),
            End::Deadline => Evidence::Nothing,
        }
    }
}

impl World<'_> {
    /// The next request of this kind comes.
    pub(super) fn request(&mut self, traffic: usize) {
        let from = &self.scenario.traffic[traffic];
        let draw = fastrand::u32(0..100);
        let replay = Replay {
            idempotent: draw >= u32::from(from.post_percent),
            whole_body: true,
            answer_begun: false,
            whole_request: true,
            idle_race: false,
        };
        let key = fastrand::u64(0..CLIENTS);
        let request = Request {
            arrived: self.now,
            traffic,
            pool: 0,
            replay,
            key,
            left: Left::default(),
            spent: Spent::default(),
            under_way: None,
        };
        let place = self.requests.take(request);
        self.enter(place, Comes::Now);
    }

    /// Those who wait for a first verdict look again.
    pub(super) fn look_again(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            self.enter(request, Comes::Again);
        }
    }

    /// The attempt with this number ends, where it still is.
    pub(super) fn attempt_ends(&mut self, place: usize, number: u64) {
        if let Some(attempt) = self.requests.attempt(place, |attempt| attempt.number == number) {
            self.attempt_ended(place, attempt.lease, attempt.end);
        }
    }

    /// Whoever waits for a member that turned out not to answer goes elsewhere, as soon as somebody does answer.
    pub(super) fn rescue(&mut self, pool: usize) {
        let stand = &self.stands[pool];
        let fallen = if stand.config().rescue { stand.live().take_fallen() } else { Vec::new() };
        if fallen.is_empty() {
            return;
        }
        let mut fallen: Vec<*const Member> = fallen.iter().map(Arc::as_ptr).collect();
        fallen.sort_unstable();
        let leaves = |attempt: &Attempt| {
            attempt.stays == Stays::UntilRescued && fallen.binary_search(&Arc::as_ptr(attempt.lease.member())).is_ok()
        };
        for place in 0..self.requests.all.len() {
            if let Some(attempt) = self.requests.attempt(place, leaves) {
                self.attempt_ended(place, attempt.lease, End::fault(Stage::Exchange, AttemptResult::Rescued));
            }
        }
    }

    fn attempt_ended(&mut self, place: usize, mut lease: Lease, end: End) {
        let (member, pool) = (lease.member().id(), self.requests.of(place).pool);
        let said = end.says();
        match end {
            End::Answer(status) => lease.is_answered(self.now, Answer::of(status)),
            End::Fault(_) if matches!(said, Evidence::Failure(_)) => lease.fails(),
            End::Fault(_) | End::Deadline => {}
        }
        lease.is_over(self.now);
        self.testify(pool, &lease, said);
        drop(lease);
        let fault = match end {
            End::Answer(status) if status < 500 => return self.leave(place, Fate::Answered),
            End::Answer(_) | End::Deadline => return self.leave(place, Fate::Failed),
            End::Fault(fault) => fault,
        };
        let (request, stand) = (self.requests.of(place), &self.stands[pool]);
        match fault.stage {
            _ if fault.result == AttemptResult::Rescued => request.spent.rescues += 1,
            Stage::Connect => request.spent.dials += 1,
            Stage::Exchange => request.spent.attempts += 1,
        }
        let budget = || stand.live().budget().spend();
        match retry::decide(fault, request.replay, request.spent, stand.config().retries, budget) {
            Next::Stop => self.leave(place, Fate::Failed),
            Next::Another | Next::SameAfresh => {
                request.left.note(member, fault);
                self.attempt(place);
            }
        }
    }

    /// The pool hears what an attempt says of its member, and whatever comes of that is seen to.
    fn testify(&mut self, pool: usize, lease: &Lease, said: Evidence) {
        let stand = &mut self.stands[pool];
        evidence::testify(self.now, &stand.served, lease, said);
        if matches!(said, Evidence::Failure(_)) && stand.config().passive != Passive::Off {
            stand.look_into(self.now, lease.member().id(), &mut self.agenda);
        }
        let judged = Judged::of(stand.config());
        let may_change = match said {
            Evidence::Failure(_) => true,
            // Only the end of a fallback, in force or tried: the pool is not asked after each of millions.
            Evidence::Success => lease.standing() == Standing::Fallback || judged.tried.is_some(),
            Evidence::Nothing => false,
        };
        if may_change && judged.by_traffic() {
            self.settle(pool);
        }
    }

    /// It finds its pool.
    fn enter(&mut self, place: usize, comes: Comes) {
        let is_crowded = self.requests.count() > AT_ONCE;
        let request = self.requests.of(place);
        let ways = &self.ways[self.routes[request.traffic]];
        let rank = self.snapshot.ways[self.routes[request.traffic]].rank();
        request.pool = ways.get(rank).copied().unwrap_or_default();
        if comes == Comes::Now {
            if is_crowded {
                return self.leave(place, Fate::Failed);
            }
            self.stands[request.pool].live().budget().earn();
            // Others may be in use by it too: whoever stands by for its pool, and what its composites are made of.
            self.snapshot.ways[self.routes[request.traffic]].mark_use();
            self.stands.iter_mut().for_each(|stand| stand.wake(self.now, &mut self.agenda));
        }
        self.attempt(place);
    }

    /// It asks its pool for a member, and goes there.
    fn attempt(&mut self, place: usize) {
        let request = self.requests.of(place);
        let stand = &mut self.stands[request.pool];
        let key = request.key.to_ne_bytes();
        let key = stand.config().hash_key.is_some().then_some(&key[..]);
        stand.live().tell_time(|| self.now);
        let avoided = request.left.avoided(|left| stand.live().roster().has_others(left));
        match stand.live().pick(avoided, key) {
            Pick::Member(mut lease) => {
                lease.await_begins(|| self.now);
                let config = stand.config();
                let origin = stand.origin(lease.member().id());
                let (reply, took) = origin.reply(self.now);
                let truth = origin.truth(self.now, config.probe.as_deref());
                let is_connected = !matches!(reply, Reply::Refusal | Reply::Nothing);
                let (end, took) = exchange(reply, took, config, self.now - request.arrived);
                let stays = match is_connected && may_leave(config, request) {
                    true => Stays::UntilRescued,
                    false => Stays::ToItsEnd,
                };
                stand.totals.retries += u64::from(!request.left.all().is_empty());
                if truth == Truth::Ill {
                    stand.totals.to_ill += 1;
                    stand.bins[bin_of(self.now, self.scenario.duration)].to_ill += 1;
                }
                let number = self.requests.begin(place, lease, end, stays);
                self.agenda.note(self.now + took, Item::Attempt { request: place, number });
            }
            Pick::Wait => {
                stand.totals.waited += u64::from(request.arrived == self.now);
                self.waiting.push(place);
            }
            Pick::Full | Pick::AllUnhealthy | Pick::Nobody => self.leave(place, Fate::Failed),
        }
    }

    fn leave(&mut self, place: usize, fate: Fate) {
        let request = self.requests.give_back(place);
        let stand = &mut self.stands[request.pool];
        let took = self.now - request.arrived;
        stand.totals.requests += 1;
        stand.totals.times.add(took);
        if fate == Fate::Failed {
            stand.totals.failed += 1;
            stand.bins[bin_of(self.now, self.scenario.duration)].failed += 1;
        }
    }
}

/// Whether a request has been seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    Now,
    Again,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Failed,
}

/// Whether a request that waits for a member can be called away from it, should it turn out not to answer (docs/requests.md).
fn may_leave(pool: &config::Pool, request: &Request) -> bool {
    let is_allowed = pool.rescue && pool.retries.attempts > 1 && request.spent.rescues < RESCUES;
    is_allowed && request.replay.idempotent
}

/// How an attempt ends and after how long, where a reply would take `took` and the request has been here for `already`.
fn exchange(reply: Reply, took: Duration, pool: &config::Pool, already: Duration) -> (End, Duration) {
    let patience = pool.upstream.read_timeout.min(pool.retries.per_try_timeout.unwrap_or(Duration::MAX));
    let (end, took) = match reply {
        Reply::Refusal => (End::fault(Stage::Connect, AttemptResult::ConnectFailed), took),
        Reply::Nothing => (End::fault(Stage::Connect, AttemptResult::ConnectTimeout), pool.upstream.connect_timeout),
        Reply::Reset => (End::fault(Stage::Exchange, AttemptResult::Reset), took),
        Reply::Status(status) if took <= patience => (End::Answer(status), took),
        Reply::Status(_) | Reply::Silence => (End::fault(Stage::Exchange, AttemptResult::Timeout), patience),
    };
    match pool.deadline.map(|deadline| deadline.saturating_sub(already)) {
        Some(left) if left < took => (End::Deadline, left),
        _ => (end, took),
    }
}

/// All requests that are here, each at a place it keeps.
#[derive(Default)]
pub(super) struct Requests {
    all: Vec<Option<Request>>,
    free: Vec<usize>,
    /// Attempts so far.
    attempts: u64,
}

impl Requests {
    fn take(&mut self, request: Request) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.all[place] = Some(request);
                place
            }
            None => {
                self.all.push(Some(request));
                self.all.len() - 1
            }
        }
    }

    fn count(&self) -> usize {
        self.all.len() - self.free.len()
    }

    fn of(&mut self, place: usize) -> &mut Request {
        self.all[place].as_mut().expect("it is here")
    }

    /// Notes that an attempt begins, and gives its number.
    fn begin(&mut self, place: usize, lease: Lease, end: End, stays: Stays) -> u64 {
        self.attempts += 1;
        let number = self.attempts;
        self.of(place).under_way = Some(Attempt { number, lease, end, stays });
        number
    }

    /// Takes the attempt on its way there, where it is the one that `is_meant`.
    fn attempt(&mut self, place: usize, is_meant: impl Fn(&Attempt) -> bool) -> Option<Attempt> {
        self.all[place].as_mut()?.under_way.take_if(|attempt| is_meant(attempt))
    }

    fn give_back(&mut self, place: usize) -> Request {
        self.free.push(place);
        self.all[place].take().expect("it is here")
    }
}
