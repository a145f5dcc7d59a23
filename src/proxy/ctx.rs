//! One request while it is served, and the one line it leaves behind.
//!
//! The line is written by `logging`, Pingora's last hook, or, where that never comes (the task was cut at the drain
//! limit, or a hook panicked), when the context is dropped: every path ends in exactly one of the two.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{REFERER, USER_AGENT};
use pingora::http::RequestHeader;
use pingora::proxy::Session;

use super::admit;
use super::blame::{Blame, Fault};
use super::pick::{self, Picked};
use super::refusal::Refusal;
use super::retry::Spent;
use crate::clock;
use crate::health::{MemberId, Window};
use crate::listener::{Connection, InFlight};
use crate::pool::Lease;
use crate::snapshot::{Served, Snapshot};
use crate::telemetry::{AccessLog, Attempt, AttemptResult, Outcome, Pick, Record, Why};

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

/// What one request knows of itself.
#[derive(Debug)]
pub struct Ctx {
    /// The client's connection.
    pub connection: Arc<Connection>,
    /// The generation it lives under, all its life.
    pub snapshot: Arc<Snapshot>,
    /// Who it is from, once admitted.
    pub client: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub peer_is_trusted: bool,
    /// Its id, once admitted.
    pub request_id: String,
    /// The route's name.
    pub route: Option<Arc<str>>,
    /// The pool that serves it.
    pub pool: Option<Arc<Served>>,
    /// By when it must be over.
    pub deadline: Option<Duration>,
    /// The seat on the member of the present attempt.
    pub lease: Option<Lease>,
    /// The member that lost an idle race is dialled afresh.
    pub again: Option<Lease>,
    /// The first pick, made before the first attempt.
    pub picked: Option<Picked>,
    /// Members that failed it.
    pub tried: Vec<MemberId>,
    /// Of those, the ones that could not be dialled.
    pub refused: Vec<MemberId>,
    /// What retries have used up.
    pub spent: Spent,
    /// What was answered by us, or should be.
    pub refusal: Option<Refusal>,
    /// What ended the last attempt.
    pub fault: Option<Fault>,
    attempts: Vec<Attempt>,
    attempt_began: Duration,
    lb: Option<Pick>,
    ttfb: Option<Duration>,
    status: Option<u16>,
    interim_answers: u32,
    /// How long it had taken when we answered it ourselves; what follows is the client's farewell.
    answered_after: Option<Duration>,
    /// The header as it came, for the line of a request that is cut.
    raw: Bytes,
    log: AccessLog,
    logged: bool,
    _in_flight: InFlight,
}

impl Ctx {
    /// A request on `connection` whose header is complete.
    pub fn new(connection: Arc<Connection>, snapshot: Arc<Snapshot>, log: AccessLog, in_flight: InFlight) -> Ctx {
        Ctx {
            client: connection.client().ip(),
            connection,
            snapshot,
            peer_is_trusted: false,
            request_id: String::new(),
            route: None,
            pool: None,
            deadline: None,
            lease: None,
            again: None,
            picked: None,
            tried: Vec::new(),
            refused: Vec::new(),
            spent: Spent::default(),
            refusal: None,
            fault: None,
            attempts: Vec::new(),
            attempt_began: Duration::ZERO,
            lb: None,
            ttfb: None,
            status: None,
            interim_answers: 0,
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

    /// Bytes of the header, request line included.
    pub fn header_bytes(&self) -> usize {
        self.raw.len()
    }

    /// Time since the request's first byte.
    pub fn age(&self) -> Duration {
        clock::monotonic().saturating_sub(self.connection.began())
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
    pub fn limit_attempt(&self, answer: Answer) {
        let limit = self.pool.as_ref().and_then(|pool| pool.config.retries.per_try_timeout);
        let attempt = limit.filter(|_| answer == Answer::Awaited && self.connection.request_is_whole());
        let attempt = attempt.map(|limit| clock::monotonic() + limit);
        let deadline = self.deadline.filter(|_| answer != Answer::Tunnel);
        self.connection.request_must_end_by([attempt, deadline].into_iter().flatten().min());
        if answer == Answer::Tunnel {
            self.connection.set_request_whole(false);
        }
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
        self.lb = Some(Pick {
            mode: picture.mode,
            reason: Some(pick::reason(lease, self.attempts.len())),
            in_rotation: picture.in_rotation,
            total: picture.total,
            tier: picture.tier,
            rank: 0,
            waited,
        });
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
        });
        self.attempt_began = clock::monotonic();
        self.lease = Some(picked.lease);
    }

    /// Whom the next pick leaves out: those that failed this request. Where they are all there is, one that answered badly
    /// may be asked again (whether to was decided before); one that cannot be dialled may not: nothing changes so fast.
    pub fn avoided(&self) -> &[MemberId] {
        let others = |pool: &Arc<Served>| pool.live.roster().has_others(&self.tried);
        if self.tried.is_empty() || self.pool.as_ref().is_some_and(others) { &self.tried } else { &self.refused }
    }

    /// Nobody could be picked: the line says how the pool stood, unless it has attempts to tell of.
    pub fn nobody_picked(&mut self, waited: Duration) {
        let Some(pool) = self.pool.as_ref().filter(|_| self.attempts.is_empty()) else { return };
        let roster = pool.live.roster();
        let picture = roster.picture();
        self.lb = Some(Pick {
            mode: picture.mode,
            reason: None,
            in_rotation: picture.in_rotation,
            total: picture.total,
            tier: picture.tier,
            rank: 0,
            waited,
        });
    }

    /// The attempt has its connection.
    pub fn attempt_connected(&mut self, reused: bool) {
        let since = clock::monotonic().saturating_sub(self.attempt_began);
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.reused = reused;
            attempt.connect = (!reused).then_some(since);
        }
    }

    /// The attempt's answer has begun: `status` is final.
    pub fn attempt_answered(&mut self, status: u16) {
        let since = clock::monotonic().saturating_sub(self.attempt_began);
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.status = Some(status);
            attempt.ttfb = Some(since);
        }
    }

    /// Counts another interim answer, and says how many there were.
    pub fn one_more_interim_answer(&mut self) -> u32 {
        self.interim_answers += 1;
        self.interim_answers
    }

    /// The attempt is over; its seat is given back.
    pub fn attempt_ended(&mut self, result: AttemptResult, bytes: u64) -> Option<Lease> {
        let since = clock::monotonic().saturating_sub(self.attempt_began);
        let lease = self.lease.take()?;
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
        self.ttfb = Some(self.age());
    }

    /// The client has been answered by us with `status`.
    pub fn answered(&mut self, status: u16) {
        self.answering(status);
        self.answered_after = Some(self.age());
    }

    /// Whether the client has got part of an answer.
    pub fn answer_has_begun(&self) -> bool {
        self.status.is_some()
    }

    /// The request is over: writes its line.
    pub fn finish(&mut self, session: &mut Session) {
        let bytes = session.upstream_body_bytes_received() as u64;
        self.attempt_ended(AttemptResult::Ok, bytes);
        self.logged = true;
        if !self.log.is_on() {
            return;
        }
        let (read, sent) = (session.body_bytes_read() as u64, session.body_bytes_sent() as u64);
        let upgraded = session.was_upgraded();
        let request = session.req_header();
        let (outcome, reason) = self.end();
        let listener = self.connection.listening().wanted();
        let record = Record {
            listener: &listener.name,
            proto: Some(protocol(request)),
            method: Some(request.method.as_str().into()),
            host: Some(admit::host(request)).filter(|h| !h.is_empty()).map(Into::into),
            path: Some(path(request.raw_path()).into()),
            query: query(request.raw_path()).map(Into::into),
            status: self.final_status(outcome),
            request_bytes: read,
            response_bytes: if request.method == Method::HEAD { 0 } else { sent },
            user_agent: request.headers.get(USER_AGENT).map(|v| v.as_bytes().into()),
            referer: request.headers.get(REFERER).map(|v| v.as_bytes().into()),
            outcome,
            reason,
            upgraded,
            ..self.record()
        };
        self.log.write(&record);
    }

    /// How it ended, and why not well.
    fn end(&self) -> (Outcome, Option<Why>) {
        let by_client = (Outcome::ClientAborted, Some(Why::ClientAborted));
        match (self.refusal, self.fault) {
            // Part of an answer went out, and then it broke.
            (_, Some(fault)) if self.answer_has_begun() && self.refusal.is_none() => match fault.refusal {
                Some(refusal) => (refusal.outcome(), Some(refusal.why())),
                None => by_client,
            },
            (Some(refusal), Some(fault)) if self.attempts.len() > 1 && fault.blame == Blame::Member => {
                (refusal.outcome(), Some(Why::RetriesSpent))
            }
            (Some(refusal), _) => (refusal.outcome(), Some(refusal.why())),
            (None, Some(_)) => by_client,
            (None, None) => (Outcome::Ok, None),
        }
    }

    /// A client that left before it was answered has no status of its own; 499 is what nginx made customary for it.
    fn final_status(&self, outcome: Outcome) -> Option<u16> {
        self.status.or((outcome == Outcome::ClientAborted).then_some(499))
    }

    fn record(&self) -> Record<'_> {
        Record {
            time: clock::wall_at(self.connection.began()),
            request_id: (!self.request_id.is_empty()).then(|| self.request_id.as_str().into()),
            client: Some(self.client),
            scheme: Some("http"),
            status: self.status,
            duration: self.answered_after.unwrap_or_else(|| self.age()),
            ttfb: self.ttfb,
            route: self.route.as_deref(),
            pool: self.pool.as_ref().map(|pool| pool.config.name.as_str()),
            connection: self.connection.id(),
            lb: self.lb,
            attempts: &self.attempts,
            ..Record::default()
        }
    }
}

impl Drop for Ctx {
    fn drop(&mut self) {
        if self.logged || !self.log.is_on() {
            return;
        }
        self.attempt_ended(AttemptResult::Abandoned, 0);
        // Not finished and yet gone: a panic unwinds, or the runtime ends with its tasks.
        let reason = if std::thread::panicking() { Why::Internal } else { Why::Shutdown };
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut request = httparse::Request::new(&mut fields);
        // What it can make out is logged; that it was whole once, Pingora has checked.
        let _ = request.parse(&self.raw);
        let field = |name: &str| request.headers.iter().find(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value);
        let target = request.path.unwrap_or("").as_bytes();
        let listener = self.connection.listening().wanted();
        let record = Record {
            listener: &listener.name,
            method: request.method.map(Into::into),
            host: field("host").map(Into::into),
            path: (!target.is_empty()).then(|| path(target).into()),
            query: query(target).map(Into::into),
            user_agent: field("user-agent").map(Into::into),
            referer: field("referer").map(Into::into),
            outcome: Outcome::Refused,
            reason: Some(reason),
            ..self.record()
        };
        self.log.write(&record);
    }
}

fn protocol(request: &RequestHeader) -> &'static str {
    match request.version {
        http::Version::HTTP_10 => "HTTP/1.0",
        http::Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}

/// The path of a target, which may be in absolute form (RFC 9112 section 3.2.2).
fn path(target: &[u8]) -> &[u8] {
    let target = target.split(|b| *b == b'?').next().unwrap_or(target);
    let Some(scheme) = target.windows(3).position(|w| w == b"://").filter(|_| !target.starts_with(b"/")) else {
        return target;
    };
    let rest = &target[scheme + 3..];
    rest.iter().position(|b| *b == b'/').map_or(b"/", |at| &rest[at..])
}

fn query(target: &[u8]) -> Option<&[u8]> {
    target.iter().position(|b| *b == b'?').map(|at| &target[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_split_in_path_and_query() {
        let rows: &[(&str, &str, Option<&str>)] = &[
            ("/a/b", "/a/b", None),
            ("/a?x=1&y=/z", "/a", Some("x=1&y=/z")),
            ("/a?", "/a", Some("")),
            ("http://h/a?x", "/a", Some("x")),
            ("http://h", "/", None),
            ("/redirect://h/a", "/redirect://h/a", None),
            ("*", "*", None),
        ];
        for (target, p, q) in rows {
            assert_eq!(path(target.as_bytes()), p.as_bytes(), "{target}");
            assert_eq!(query(target.as_bytes()), q.map(str::as_bytes), "{target}");
        }
    }
}
