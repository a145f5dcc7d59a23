//! Requests on their way: whom they go to, how each attempt ends, and whether there is another.

use std::time::Duration;

use super::agenda::Item;
use super::origin::Reply;
use super::world::World;
use super::{Truth, bin_of};
use crate::config;
use crate::health::MemberId;
use crate::pool::{Answer, Lease, Pick};
use crate::proxy::blame::{Blame, Fault, Stage};
use crate::proxy::retry::{self, Next, Replay, Spent};
use crate::telemetry::AttemptResult;

/// Clients, for pools that go by a key.
const CLIENTS: u64 = 1000;

/// One request.
pub(super) struct Request {
    arrived: Duration,
    traffic: usize,
    /// The pool it went to last.
    pool: usize,
    replay: Replay,
    key: u64,
    tried: Vec<MemberId>,
    spent: Spent,
    under_way: Option<(Lease, End)>,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Answer(u16),
    Fault(Stage, AttemptResult),
    /// The request's own time is over.
    Deadline,
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
            idle_race: false,
        };
        let key = fastrand::u64(0..CLIENTS);
        let request = Request {
            arrived: self.now,
            traffic,
            pool: 0,
            replay,
            key,
            tried: Vec::new(),
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

    /// An attempt of it has ended.
    pub(super) fn attempt_ended(&mut self, place: usize) {
        let request = self.requests.of(place);
        let Some((mut lease, end)) = request.under_way.take() else { return };
        let member = lease.member().id();
        match end {
            End::Answer(status) => lease.is_answered(self.now, Answer::of(status)),
            End::Fault(..) => lease.fails(),
            End::Deadline => {}
        }
        lease.is_over(self.now);
        drop(lease);
        let (stage, result) = match end {
            End::Answer(status) if status < 500 => return self.leave(place, Fate::Answered),
            End::Answer(_) | End::Deadline => return self.leave(place, Fate::Failed),
            End::Fault(stage, result) => (stage, result),
        };
        match stage {
            Stage::Connect => request.spent.dials += 1,
            Stage::Exchange => request.spent.attempts += 1,
        }
        let stand = &self.stands[request.pool];
        let fault = Fault { blame: Blame::Member, stage, result, refusal: None };
        let budget = || stand.live().budget().spend();
        match retry::decide(fault, request.replay, request.spent, stand.config().retries, budget) {
            Next::Stop => self.leave(place, Fate::Failed),
            Next::Another | Next::SameAfresh => {
                request.tried.push(member);
                self.attempt(place);
            }
        }
    }

    /// It finds its pool.
    fn enter(&mut self, place: usize, comes: Comes) {
        let request = self.requests.of(place);
        let ways = &self.ways[self.routes[request.traffic]];
        let rank = self.snapshot.ways[self.routes[request.traffic]].rank();
        request.pool = ways.get(rank).copied().unwrap_or_default();
        if comes == Comes::Now {
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
        match stand.live().pick(&request.tried, key) {
            Pick::Member(mut lease) => {
                lease.await_begins(|| self.now);
                let config = stand.config();
                let origin = stand.origin(lease.member().id());
                let (reply, took) = origin.reply(self.now);
                let truth = origin.truth(self.now, config.probe.as_deref());
                let (end, took) = exchange(reply, took, config, self.now - request.arrived);
                stand.totals.retries += u64::from(!request.tried.is_empty());
                if truth == Truth::Ill {
                    stand.totals.to_ill += 1;
                    stand.bins[bin_of(self.now, self.scenario.duration)].to_ill += 1;
                }
                request.under_way = Some((lease, end));
                self.agenda.note(self.now + took, Item::Attempt { request: place });
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

/// How an attempt ends and after how long, where a reply would take `took` and the request has been here for `already`.
fn exchange(reply: Reply, took: Duration, pool: &config::Pool, already: Duration) -> (End, Duration) {
    let patience = pool.upstream.read_timeout.min(pool.retries.per_try_timeout.unwrap_or(Duration::MAX));
    let (end, took) = match reply {
        Reply::Refusal => (End::Fault(Stage::Connect, AttemptResult::ConnectFailed), took),
        Reply::Nothing => (End::Fault(Stage::Connect, AttemptResult::ConnectTimeout), pool.upstream.connect_timeout),
        Reply::Reset => (End::Fault(Stage::Exchange, AttemptResult::Reset), took),
        Reply::Status(status) if took <= patience => (End::Answer(status), took),
        Reply::Status(_) | Reply::Silence => (End::Fault(Stage::Exchange, AttemptResult::Timeout), patience),
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

    fn of(&mut self, place: usize) -> &mut Request {
        self.all[place].as_mut().expect("it is here")
    }

    fn give_back(&mut self, place: usize) -> Request {
        self.free.push(place);
        self.all[place].take().expect("it is here")
    }
}
