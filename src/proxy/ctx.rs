//! One request while it is served: what it knows of itself, and of its attempts.
//!
//! Not here: what is decided from it (`pick`, `failure`), what the log says of it (`line`).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::blame::Fault;
use super::evidence::{self, Evidence};
use super::left::Left;
use super::pick::{self, Picked};
use super::refusal::Refusal;
use super::retry::{RESCUES, Spent};
use super::sticky::Claim;
use crate::clock;
use crate::composite::Door;
use crate::health::{MemberId, Standing, Window};
use crate::listener::{Connection, InFlight, Terms};
use crate::pool::{self, InUse, Lease};
use crate::snapshot::{Served, Snapshot};
use crate::telemetry::metrics::RouteCounts;
use crate::telemetry::{AccessLog, Attempt, AttemptResult, Pick};

/// How long a client may go on with a request that has been answered whole.
const FAREWELL: Duration = Duration::from_secs(5);

/// How far the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// None has come.
    Awaited,
    /// Its header has come.
    Begun,
    /// It made the connection a tunnel.
    Tunnel,
}

/// Whether a request may be sent again after it was sent once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It is idempotent, and all of its body is kept.
    May,
    /// It may not.
    MayNot,
}

/// What one request knows of itself.
#[derive(Debug)]
pub struct Ctx {
    /// The client's connection.
    pub connection: Arc<Connection>,
    /// The generation it lives under; a tunnel lets go of it, since it may outlive many.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Who it is from, once admitted.
    pub client: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub peer_is_trusted: bool,
    /// Its id, once admitted.
    pub request_id: String,
    /// Its route, with the counts of that by its pool.
    pub route: Option<Arc<RouteCounts>>,
    /// The composite it asks for, and not for anything of a pool's.
    pub door: Option<Arc<Door>>,
    /// The place of that in its generation, once it has one.
    pub place: usize,
    /// Which of the route's pools serves it, 0 first.
    pub rank: usize,
    /// The pool that serves it.
    pub pool: Option<Arc<Served>>,
    /// What it goes by, where that counts.
    pub hash_key: Option<Vec<u8>>,
    /// What its cookie says, where clients are bound.
    pub claim: Claim,
    /// By when it must be over.
    pub deadline: Option<Duration>,
    /// The present attempt's connection, where connections are counted; before the seat, which whoever gets next may need it.
    pub link: Option<InUse>,
    /// The present attempt's connection was given up before anything was sent on it.
    pub link_was_given_up: bool,
    /// The seat on the member of the present attempt.
    pub lease: Option<Lease>,
    /// The member that lost an idle race is dialled afresh.
    pub again: Option<Lease>,
    /// The first pick, made before the first attempt.
    pub picked: Option<Picked>,
    /// Since when it is being picked for: what it waits for may never come.
    pub waits_since: Option<Duration>,
    /// How long it has waited in the queue.
    pub queued: Duration,
    /// Whether it asks for another protocol.
    pub asks_for_tunnel: bool,
    /// Members that failed it.
    pub left: Left,
    /// What retries have used up.
    pub spent: Spent,
    /// What was answered by us, or should be.
    pub refusal: Option<Refusal>,
    /// What ended the last attempt.
    pub fault: Option<Fault>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) attempt_began: Duration,
    /// When the present attempt's answer came, until it is passed on.
    answer_came: Option<Duration>,
    pub(super) lb: Option<Pick>,
    pub(super) ttfb: Option<Duration>,
    pub(super) status: Option<u16>,
    /// Bytes of its body that went on to the present attempt's member.
    pub(super) passed_on: u64,
    /// Bytes of the answer's body that were handed to the client's stream.
    pub(super) handed_back: u64,
    interim_answers: u32,
    /// A header of the present attempt's answer has come, be it an interim one.
    pub(super) attempt_is_heard: bool,
    /// All of the member's answer has been passed on.
    pub(super) answer_is_whole: bool,
    /// How long it had taken when we answered it ourselves; what follows is the client's farewell.
    pub(super) answered_after: Option<Duration>,
    /// The header as it came, for the line of a request that is cut.
    pub(super) raw: Bytes,
    pub(super) log: AccessLog,
    pub(super) logged: bool,
    _in_flight: InFlight,
}

impl Ctx {
    /// A request on `connection` whose header is complete.
    pub fn new(connection: Arc<Connection>, snapshot: Arc<Snapshot>, log: AccessLog, in_flight: InFlight) -> Ctx {
        Ctx {
            client: connection.client().ip(),
            connection,
            snapshot: Some(snapshot),
            peer_is_trusted: false,
            request_id: String::new(),
            route: None,
            door: None,
            place: 0,
            rank: 0,
            pool: None,
            hash_key: None,
            claim: Claim::None,
            deadline: None,
            link: None,
            link_was_given_up: false,
            lease: None,
            again: None,
            picked: None,
            waits_since: None,
            queued: Duration::ZERO,
            asks_for_tunnel: false,
            left: Left::default(),
            spent: Spent::default(),
            refusal: None,
            fault: None,
            attempts: Vec::new(),
            attempt_began: Duration::ZERO,
            answer_came: None,
            lb: None,
            ttfb: None,
            status: None,
            passed_on: 0,
            handed_back: 0,
            interim_answers: 0,
            attempt_is_heard: false,
            answer_is_whole: false,
            answered_after: None,
            raw: Bytes::new(),
            log,
            logged: false,
            _in_flight: in_flight,
        }
    }

    /// Keeps the header as it came, which costs no copy.
    pub fn keep_raw(&mut self, raw: Bytes) {
        self.raw = raw;
    }

    /// Time from the request's first byte until `now`.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.connection.began())
    }

    /// What is left of the request's own time.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub(clock::monotonic()))
    }

    /// Whether the request's own time is over.
    pub fn is_over(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// Sets the alarm: while an answer to a whole request is awaited the attempt has its own limit, within the request's; a
    /// tunnel has none.
    pub fn limit_attempt(&mut self, answer: Answer) {
        if answer == Answer::Tunnel {
            self.tunnel_opens();
        }
        let limit = self.pool.as_ref().and_then(|pool| pool.config.retries.per_try_timeout);
        let attempt = limit.filter(|_| answer == Answer::Awaited && self.connection.request_is_whole());
        let attempt = attempt.map(|limit| clock::monotonic() + limit);
        self.connection.request_must_end_by([attempt, self.deadline].into_iter().flatten().min());
    }

    fn tunnel_opens(&mut self) {
        self.deadline = None;
        self.snapshot = None;
        let (Some(pool), Some(lease)) = (&self.pool, &mut self.lease) else { return };
        lease.becomes_tunnel();
        self.connection.become_tunnel(Terms { member: lease.member().clone(), limits: pool.config.tunnels });
    }

    /// Whether it has become a tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.connection.tunnel().terms().is_some()
    }

    /// Whether no member has been tried.
    pub fn has_no_attempts(&self) -> bool {
        self.attempts.is_empty()
    }

    /// An attempt at the picked member begins: what failed before is history.
    pub fn attempt_begins(&mut self, picked: Picked) {
        self.refusal = None;
        self.fault = None;
        let lease = &picked.lease;
        let picture = lease.headline();
        let waited = self.lb.map_or(Duration::ZERO, |lb| lb.waited) + picked.waited;
        self.queued += picked.queued;
        self.lb = Some(Pick {
            mode: picture.mode,
            reason: Some(pick::reason(lease, self.attempts.len(), self.rank)),
            in_rotation: picture.in_rotation,
            total: picture.total,
            tier: picture.tier,
            rank: self.short_rank(),
            waited,
        });
        if let (Some(before), Some(pool)) = (self.attempts.last(), &self.pool) {
            pool.live.tally().retries_after(before.result);
        }
        let (passes, shown) = lease.member().window();
        self.attempts.push(Attempt {
            member: lease.member().label().clone(),
            standing: lease.standing(),
            window: (shown > 0).then_some(Window { passes, shown, size: shown, required: None }),
            probe: lease.member().latency(),
            status: None,
            result: AttemptResult::Abandoned,
            connect: None,
            ttfb: None,
            duration: Duration::ZERO,
            bytes: 0,
            reused: false,
            observed: lease.would_stand(),
        });
        self.passed_on = 0;
        self.attempt_is_heard = false;
        self.answer_came = None;
        self.attempt_began = clock::monotonic();
        let mut lease = picked.lease;
        if self.connection.request_is_whole() {
            lease.await_begins(|| self.attempt_began);
        }
        self.lease = Some(lease);
    }

    /// The attempt dials its member, and can be called away from it whatever the request is, since nothing was sent; where its
    /// pool would dial another one.
    pub fn dial_begins(&self) {
        self.connection.dial_begins();
        let (Some(pool), Some(lease)) = (&self.pool, &self.lease) else { return };
        if !pool.config.rescue || self.spent.dials + 1 >= pool.config.retries.connect {
            return;
        }
        let (wait, member) = (self.connection.wait(), lease.member());
        wait.begins(member);
        // It may have fallen between the pick and now. Who was picked in spite of that has as long as any dial.
        let fell = lease.standing() == Standing::Healthy && member.has_fallen();
        if fell && pool.live.roster().somebody_answers() {
            wait.call_away(member);
        }
    }

    /// The attempt has its connection.
    pub fn dial_ends(&self) {
        self.connection.wait().ends();
        self.connection.dial_ends();
    }

    /// The attempt waits for its answer, and can be called away from its member: a request that may be sent `again`, whole,
    /// where the pool retries at all. Whether somebody else may serve it is asked when the member falls: who stands by may
    /// serve by then, or somebody be back.
    pub fn awaits_rescue(&self, again: Again) {
        let (Some(pool), Some(lease)) = (&self.pool, &self.lease) else { return };
        let may = again == Again::May && self.connection.request_is_whole() && !self.asks_for_tunnel;
        let allowed = pool.config.rescue && pool.config.retries.attempts > 1 && self.spent.rescues < RESCUES;
        let member = lease.member();
        if !may || !allowed {
            return;
        }
        let wait = self.connection.wait();
        wait.begins(member);
        if !member.has_fallen() || !pool.live.roster().somebody_answers() {
            return;
        }
        if lease.standing() == Standing::Healthy {
            // It fell between the pick and now.
            wait.call_away(member);
        } else if let Some(probe) = pool.config.probe.as_ref().filter(|_| pool.config.rules.probed) {
            // It was picked in spite of that, kept by the cap perhaps, and may answer requests all the same. It has as long
            // as its probe has.
            wait.ends_by(clock::monotonic() + probe.timeout);
        }
    }

    /// Whom the next pick leaves out.
    pub fn avoided(&self) -> &[MemberId] {
        self.left.avoided(|left| self.pool.as_ref().is_some_and(|pool| pool.live.roster().has_others(left)))
    }

    /// Nobody could be picked: the line says how the pool stood, unless it has attempts to tell of.
    pub fn nobody_picked(&mut self, waited: Duration) {
        if let Some(lb) = &mut self.lb {
            lb.waited += waited;
        }
        let Some(pool) = self.pool.as_ref().filter(|_| self.attempts.is_empty()) else { return };
        let roster = pool.live.roster();
        let picture = roster.picture();
        self.lb = Some(Pick {
            mode: picture.mode,
            reason: None,
            in_rotation: picture.in_rotation,
            total: picture.total,
            tier: picture.tier,
            rank: self.short_rank(),
            waited,
        });
    }

    /// The configuration allows for no more than a byte.
    fn short_rank(&self) -> u8 {
        u8::try_from(self.rank).unwrap_or(u8::MAX)
    }

    /// The attempt has its connection.
    pub fn attempt_connected(&mut self, reused: bool) {
        let dial = (!reused).then(|| clock::monotonic().saturating_sub(self.attempt_began));
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.reused = reused;
            attempt.connect = dial;
        }
        if let (Some(pool), Some(dial)) = (&self.pool, dial) {
            pool.live.tally().dials.add(dial);
        }
    }

    /// The attempt's answer has begun: `status` is final.
    pub fn attempt_answered(&mut self, status: u16) {
        self.connection.wait().ends();
        let now = clock::monotonic();
        self.answer_came = Some(now);
        if let Some(lease) = &mut self.lease {
            lease.is_answered(now, pool::Answer::of(status));
        }
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.status = Some(status);
            attempt.ttfb = Some(now.saturating_sub(self.attempt_began));
        }
        if let Some(lease) = &self.lease {
            self.testify(now, lease, evidence::of_answer(status));
        }
    }

    /// Tells the pool what the attempt that has `lease` says of its member.
    pub fn testify(&self, now: Duration, lease: &Lease, evidence: Evidence) {
        if let Some(pool) = &self.pool {
            evidence::testify(now, pool, lease, evidence);
        }
    }

    /// Whether something may have been sent to a member.
    pub fn was_sent(&self) -> bool {
        self.spent.attempts + self.spent.races > 0
    }

    /// The client has left while nothing was being sent: that is how the request ends, whatever failed before.
    pub fn hung_up(&mut self, waited: Duration) {
        self.waits_since = None;
        self.nobody_picked(waited);
        (self.refusal, self.fault) = (None, None);
    }

    /// All of the answer has been passed on. Where the client still sends its request, it has a little time to see that
    /// it need not.
    pub fn answer_ends(&mut self) {
        self.answer_is_whole = true;
        if !self.connection.request_is_whole() {
            self.connection.request_must_end_by(Some(clock::monotonic() + FAREWELL));
        }
    }

    /// Whether the present attempt's answer has begun.
    pub fn attempt_has_answer(&self) -> bool {
        self.attempts.last().is_some_and(|attempt| attempt.status.is_some())
    }

    /// Counts another interim answer, and says how many there were.
    pub fn one_more_interim_answer(&mut self) -> u32 {
        self.interim_answers += 1;
        self.interim_answers
    }

    /// The attempt is over; its seat is given back.
    pub fn attempt_ended(&mut self, result: AttemptResult, bytes: u64) -> Option<Lease> {
        self.attempt_ended_at(clock::monotonic(), result, bytes)
    }

    /// The same for whoever knows that it is `now`.
    pub fn attempt_ended_at(&mut self, now: Duration, result: AttemptResult, bytes: u64) -> Option<Lease> {
        let since = now.saturating_sub(self.attempt_began);
        self.connection.wait().ends();
        self.link = None;
        let mut lease = self.lease.take()?;
        lease.is_over(now);
        lease.member().tally().attempt_ends(result);
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.result = result;
            attempt.duration = since;
            attempt.bytes = bytes;
        }
        Some(lease)
    }

    /// The client is being answered.
    pub fn answering(&mut self, status: u16) {
        self.status = Some(status);
        // A member's answer goes on as it comes.
        let now = self.answer_came.take().unwrap_or_else(clock::monotonic);
        self.ttfb = Some(now.saturating_sub(self.connection.began()));
    }

    /// The client has been answered by us with `status`.
    pub fn answered(&mut self, status: u16) {
        // Not a member's: what came of one is of no account.
        self.answer_came = None;
        self.answering(status);
        self.answered_after = Some(self.age(clock::monotonic()));
    }

    /// Whether the client has got part of an answer.
    pub fn answer_has_begun(&self) -> bool {
        self.status.is_some()
    }
}
