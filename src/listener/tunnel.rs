//! What a tunnel knows of itself: what passed each way, and which ways have come to their end.
//!
//! Pingora passes a tunnel's bytes between two streams, and ends both as soon as one has no more. Both are ours (the
//! [`Conduit`](super::stream::Conduit) to the client, `proxy`'s to the member), so an end of one way can be kept from it:
//! it is passed on when all that came before it has gone out, and Pingora hears of an end once both ways have ended.
//!
//! Pure but for its atomics: one task writes, whoever asks reads. Not here: how long a tunnel may last (`tunnel_limits`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::header_end::HeaderEnd;
use crate::config::Tunnels;
use crate::pool::Member;

/// A connection as the tunnel it is, or may become.
#[derive(Debug, Default)]
pub struct Tunnel {
    terms: OnceLock<Terms>,
    /// When a byte passed last, either way; monotonic microseconds.
    active_at: AtomicU64,
    half_since: OnceLock<Duration>,
    drain_by: OnceLock<Duration>,
    /// The member's switch passed through a stream of ours, which can keep an end to itself.
    ends_apart: AtomicBool,
    /// From the client to the member.
    pub up: Way,
    /// From the member to the client.
    pub down: Way,
}

/// What holds for a tunnel.
#[derive(Debug)]
pub struct Terms {
    /// Whom it leads to.
    pub member: Arc<Member>,
    /// How long it may last.
    pub limits: Tunnels,
}

/// One way through a tunnel.
#[derive(Debug, Default)]
pub struct Way {
    came: AtomicU64,
    went: AtomicU64,
    has_ended: AtomicBool,
    end_is_passed_on: AtomicBool,
}

impl Tunnel {
    /// The switch was accepted at `now`; says nothing where it was before.
    pub fn open(&self, terms: Terms, now: Duration) {
        self.passed(now);
        let _ = self.terms.set(terms);
    }

    /// Something passes at `now`.
    pub fn passed(&self, now: Duration) {
        self.active_at.store(now.as_micros() as u64, Relaxed);
    }

    /// When something passed last, in monotonic time.
    pub fn active_at(&self) -> Duration {
        Duration::from_micros(self.active_at.load(Relaxed))
    }

    /// Since when one way has been at its end: `now`, where it was not said before.
    pub fn half_since(&self, now: Duration) -> Duration {
        *self.half_since.get_or_init(|| now)
    }

    /// Its member is seen to have left at `now`: from then on it has its time to drain.
    pub fn member_is_removed(&self, now: Duration) {
        if let Some(terms) = self.terms() {
            let _ = self.drain_by.set(now + terms.limits.drain);
        }
    }

    /// By when it must end, once its member has left.
    pub fn drain_by(&self) -> Option<Duration> {
        self.drain_by.get().copied()
    }

    /// What holds for it; `None` while it is none.
    pub fn terms(&self) -> Option<&Terms> {
        self.terms.get()
    }

    /// The stream to the member has seen its switch, and will keep an end to itself.
    pub fn may_end_apart(&self) {
        self.ends_apart.store(true, Relaxed);
    }

    /// Whether one way can end before the other.
    pub fn ends_apart(&self) -> bool {
        self.ends_apart.load(Relaxed)
    }

    /// Whether one way has ended.
    pub fn is_half(&self) -> bool {
        self.up.has_ended() || self.down.has_ended()
    }

    /// Whether both have, and both ends know.
    pub fn is_over(&self) -> bool {
        self.up.end_is_passed_on.load(Relaxed) && self.down.end_is_passed_on.load(Relaxed)
    }

    /// An end has gone that had no more to say: there is nobody left to pass anything to.
    pub fn give_up(&self) {
        for way in [&self.up, &self.down] {
            way.ends();
            way.end_passed_on();
        }
    }
}

impl Way {
    /// So many bytes were read from its sender.
    pub fn came(&self, bytes: usize) {
        self.came.fetch_add(bytes as u64, Relaxed);
    }

    /// So many bytes were taken over for its receiver.
    pub fn went(&self, bytes: usize) {
        self.went.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes read from its sender.
    pub fn bytes_in(&self) -> u64 {
        self.came.load(Relaxed)
    }

    /// Bytes taken over for its receiver.
    pub fn bytes_out(&self) -> u64 {
        self.went.load(Relaxed)
    }

    /// Its sender will send no more.
    pub fn ends(&self) {
        self.has_ended.store(true, Relaxed);
    }

    /// Whether its sender will send no more.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// Whether its receiver is to be told of the end now: everything before it has gone out.
    pub fn end_is_due(&self) -> bool {
        self.has_ended() && !self.end_is_passed_on.load(Relaxed) && self.bytes_out() >= self.bytes_in()
    }

    /// Its receiver was told.
    pub fn end_passed_on(&self) {
        self.end_is_passed_on.store(true, Relaxed);
    }
}

/// Finds, in what a member sends, where its switch (101) ends and the tunnel begins. Pure.
#[derive(Debug, Default)]
pub struct Switch {
    header: HeaderEnd,
    /// `HTTP/1.1 101`, as far as it is here.
    line: Vec<u8>,
    then: Then,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Then {
    #[default]
    Header,
    Tunnel,
    /// It answered in HTTP.
    Body,
}

/// As much of a header as tells its status.
const STATUS_ENDS: usize = "HTTP/1.1 101".len();

impl Switch {
    /// How many of the next bytes, always the last of them, are the tunnel's.
    pub fn tunnelled(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while self.then == Then::Header {
            let end = self.header.find(rest);
            let header = &rest[..end.unwrap_or(rest.len())];
            let first = self.line.is_empty();
            let begun = header.iter().skip_while(|b| first && matches!(b, b'\r' | b'\n'));
            let missing = STATUS_ENDS - self.line.len();
            self.line.extend(begun.take(missing));
            let Some(end) = end else { return 0 };
            rest = &rest[end..];
            self.then = match self.line.get(9..) {
                Some(b"101") => Then::Tunnel,
                Some([b'1', ..]) => Then::Header,
                _ => Then::Body,
            };
            self.line.clear();
        }
        if self.then == Then::Tunnel { rest.len() } else { 0 }
    }

    /// Whether the switch is behind.
    pub fn is_behind(&self) -> bool {
        self.then == Then::Tunnel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_begins_behind_the_switch_however_it_comes() {
        let rows: &[(&str, usize)] = &[
            ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", 0),
            ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nhello\r\n\r\n", 9),
            ("HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 101 S\r\n\r\nab", 2),
            ("\r\nHTTP/1.1 101 S\r\n\r\nabc", 3),
            ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 S\r\n\r\nabc", 0),
            ("HTTP/1.1 101 Switching\r\nUpgrade", 0),
            ("x\r\n\r\nabc", 0),
        ];
        for (bytes, expected) in rows {
            for cut in 0..bytes.len() {
                let mut switch = Switch::default();
                let (first, second) = bytes.as_bytes().split_at(cut);
                let found = switch.tunnelled(first) + switch.tunnelled(second);
                assert_eq!(found, *expected, "{bytes:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn an_end_is_passed_on_behind_all_that_came_before_it() {
        let tunnel = Tunnel::default();
        tunnel.up.came(10);
        tunnel.up.went(4);
        tunnel.up.ends();
        assert!(!tunnel.up.end_is_due(), "six bytes are under way");
        tunnel.up.went(6);
        assert!(tunnel.up.end_is_due() && tunnel.is_half());
        tunnel.up.end_passed_on();
        assert!(!tunnel.up.end_is_due() && !tunnel.is_over(), "once, and the other way is open");
        tunnel.down.ends();
        tunnel.down.end_passed_on();
        assert!(tunnel.is_over());
    }
}
