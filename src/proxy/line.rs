//! The one line a request leaves behind.
//!
//! It is written by `logging`, Pingora's last hook, or, where that never comes (the task was cut at the drain limit, or a
//! hook panicked), when the context is dropped: every path ends in exactly one of the two.

use std::time::Duration;

use http::Method;
use http::header::{REFERER, USER_AGENT};
use pingora::http::RequestHeader;

use super::admit;
use super::blame::Blame;
use super::ctx::Ctx;
use super::refusal::{self, Refusal};
use crate::clock;
use crate::listener::Cut;
use crate::telemetry::metrics::RouteCounts;
use crate::telemetry::{AttemptResult, Outcome, Record, Why};

/// What the driver of a request has counted, and the header that it read.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The client's request.
    pub request: &'a RequestHeader,
    /// Bytes of the member's body, of the last attempt.
    pub received: u64,
    /// Bytes of the client's body.
    pub read: u64,
    /// Bytes of a body that were sent to the client.
    pub sent: u64,
    /// It has become a tunnel.
    pub upgraded: bool,
}

impl Ctx {
    /// The request is over: writes its line.
    pub fn finish(&mut self, Told { request, received, read, sent, upgraded }: Told<'_>) {
        let cut = self.tunnel_cut();
        let now = clock::monotonic();
        let result = if cut.is_some() { AttemptResult::Abandoned } else { AttemptResult::Ok };
        self.attempt_ended_at(now, result, received);
        self.logged = true;
        let (outcome, reason) = self.end();
        let (status, duration) = (self.final_status(outcome), self.duration(now));
        self.count(status, duration);
        if !self.log.is_on() {
            return;
        }
        let sent = sent + self.connection.part_written();
        let listener = self.connection.listening().wanted();
        let record = Record {
            listener: &listener.name,
            proto: Some(protocol(request)),
            method: Some(request.method.as_str().into()),
            host: Some(admit::host(request)).filter(|h| !h.is_empty()).map(Into::into),
            path: Some(path(request.raw_path()).into()),
            query: query(request.raw_path()).map(Into::into),
            status,
            request_bytes: read,
            response_bytes: if request.method == Method::HEAD { 0 } else { sent },
            user_agent: request.headers.get(USER_AGENT).map(|v| v.as_bytes().into()),
            referer: request.headers.get(REFERER).map(|v| v.as_bytes().into()),
            outcome,
            reason,
            upgraded,
            duration,
            ..self.record(now)
        };
        self.log.write(&record);
    }

    /// Counts it, once, whether a line is written or not. The time of a tunnel says nothing of whoever answered it.
    fn count(&self, status: Option<u16>, duration: Duration) {
        let counts = self.connection.listening().counts();
        match &self.route {
            Some(route) => route.count(&counts, status),
            None => counts.unrouted.count(status),
        }
        if let Some(pool) = self.pool.as_ref().filter(|_| !self.is_tunnel()) {
            pool.live.tally().requests.add(duration);
        }
    }

    /// How long it took, where it is over `now`.
    fn duration(&self, now: Duration) -> Duration {
        self.answered_after.unwrap_or_else(|| self.age(now))
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
            (None, None) => self.tunnel_cut().map_or((Outcome::Ok, None), |why| (Outcome::Timeout, Some(why))),
        }
    }

    /// How it ended that was not finished and yet is gone: given up from outside, or a panic unwinds, or the runtime ends with
    /// its tasks.
    fn given_up(&self) -> (AttemptResult, Outcome, Option<Why>) {
        match self.connection.cut() {
            _ if std::thread::panicking() => (AttemptResult::Abandoned, Outcome::Refused, Some(Why::Internal)),
            _ if self.answered_after.is_some() => {
                // All that was left was the client's farewell.
                let (outcome, reason) = self.end();
                (AttemptResult::Abandoned, outcome, reason)
            }
            Cut::Deadline | Cut::Left if self.answer_is_whole => (AttemptResult::Ok, Outcome::Ok, None),
            Cut::Deadline => (AttemptResult::Abandoned, Outcome::Timeout, Some(Why::Deadline)),
            Cut::Left => (AttemptResult::ClientAborted, Outcome::ClientAborted, Some(Why::ClientAborted)),
            _ => (AttemptResult::Abandoned, Outcome::Refused, Some(Why::Shutdown)),
        }
    }

    /// Which limit ended the tunnel, if one did.
    pub(super) fn tunnel_cut(&self) -> Option<Why> {
        match self.connection.cut() {
            Cut::TunnelIdle => Some(Why::TunnelIdle),
            Cut::TunnelDrained => Some(Why::TunnelDrained),
            _ => None,
        }
    }

    /// A client that left before it was answered has no status of its own; 499 is what nginx made customary for it.
    fn final_status(&self, outcome: Outcome) -> Option<u16> {
        self.status.or((outcome == Outcome::ClientAborted).then_some(499))
    }

    fn record(&self, now: Duration) -> Record<'_> {
        Record {
            time: clock::wall_of(self.connection.began(), now),
            request_id: (!self.request_id.is_empty()).then(|| self.request_id.as_str().into()),
            client: Some(self.client),
            scheme: Some("http"),
            status: self.status,
            ttfb: self.ttfb,
            route: self.route.as_deref().map(RouteCounts::route),
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
        if self.logged {
            return;
        }
        let (result, outcome, reason) = self.given_up();
        let mut own = 0;
        if reason == Some(Why::Deadline) && !self.answer_has_begun() {
            let (answer, bytes) = refusal::raw(Refusal::Deadline, &self.request_id);
            self.connection.leave_word(answer);
            self.answered(Refusal::Deadline.status().as_u16());
            own = bytes;
        }
        let now = clock::monotonic();
        let (status, duration) = (self.final_status(outcome), self.duration(now));
        self.count(status, duration);
        let tunnel = self.connection.tunnel();
        // The session, which counts, is gone: of a body it is known what was handed on.
        let (up, down, came) = if self.is_tunnel() {
            (tunnel.up.bytes_in(), tunnel.down.bytes_out(), tunnel.down.bytes_in())
        } else {
            (self.passed_on, self.handed_back + own, self.handed_back)
        };
        self.attempt_ended_at(now, result, came);
        if !self.log.is_on() {
            return;
        }
        if let Some(since) = self.waits_since.take() {
            self.nobody_picked(now.saturating_sub(since));
        }
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut request = httparse::Request::new(&mut fields);
        // What it can make out is logged; that it was whole once, Pingora has checked.
        let _ = request.parse(&self.raw);
        let field = |name: &str| request.headers.iter().find(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value);
        let target = request.path.unwrap_or("").as_bytes();
        let listener = self.connection.listening().wanted();
        let record = Record {
            listener: &listener.name,
            proto: request.version.map(|minor| if minor == 0 { "HTTP/1.0" } else { "HTTP/1.1" }),
            method: request.method.map(Into::into),
            host: field("host").map(Into::into),
            path: (!target.is_empty()).then(|| path(target).into()),
            query: query(target).map(Into::into),
            user_agent: field("user-agent").map(Into::into),
            referer: field("referer").map(Into::into),
            request_bytes: up,
            response_bytes: down,
            upgraded: self.is_tunnel(),
            status,
            duration,
            outcome,
            reason,
            ..self.record(now)
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
