//! A record as its line of JSON.
//!
//! It is written by hand, key by key: by serde, which is asked for each key and each number anew, it took a sixth of all
//! that a request costs. What is not plain text is left to `json`, so that there is one way to escape.
//!
//! Not here: what the fields mean (`record`).

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::json::{self, Lossy};
use super::record::{Attempt, Pick, Record, Text, rfc3339};
use super::value::{address, decimal};
use super::words::{AttemptResult, Outcome, PickReason};
use crate::health::{Mode, Standing, Window};

/// Appends the record without a newline.
pub(super) fn append(line: &mut Vec<u8>, record: &Record<'_>) {
    // Room for most lines at once.
    line.reserve(1024);
    put(line, "{\"time\":", record.time);
    put(line, ",\"request_id\":", record.request_id);
    put(line, ",\"client\":", record.client);
    put(line, ",\"listener\":", record.listener);
    put(line, ",\"proto\":", record.proto);
    put(line, ",\"tls\":", record.tls);
    put(line, ",\"method\":", record.method);
    put(line, ",\"scheme\":", record.scheme);
    put(line, ",\"host\":", record.host);
    put(line, ",\"path\":", record.path);
    put(line, ",\"query\":", record.query);
    put(line, ",\"status\":", record.status);
    put(line, ",\"request_bytes\":", record.request_bytes);
    put(line, ",\"response_bytes\":", record.response_bytes);
    put(line, ",\"duration_ms\":", record.duration);
    put(line, ",\"ttfb_ms\":", record.ttfb);
    put(line, ",\"grpc_status\":", record.grpc_status);
    put(line, ",\"user_agent\":", record.user_agent);
    put(line, ",\"referer\":", record.referer);
    put(line, ",\"route\":", record.route);
    put(line, ",\"pool\":", record.pool);
    put(line, ",\"outcome\":", record.outcome);
    put(line, ",\"reason\":", Word(record.reason.map_or("-", |why| why.as_str())));
    put(line, ",\"upgraded\":", record.upgraded);
    put(line, ",\"connection\":", record.connection);
    put(line, ",\"lb\":", record.lb);
    put(line, ",\"attempts\":", record.attempts);
    line.push(b'}');
}

// Where it is inlined the key is a constant, and its copy a few moves.
#[inline(always)]
fn put(line: &mut Vec<u8>, key: &'static str, value: impl Value) {
    line.extend_from_slice(key.as_bytes());
    value.append(line);
}

/// What a field of a line can be.
trait Value {
    fn append(self, line: &mut Vec<u8>);
}

/// Of a closed list: nothing in it is to be escaped.
struct Word(&'static str);

impl<T: Value> Value for Option<T> {
    fn append(self, line: &mut Vec<u8>) {
        match self {
            Some(value) => value.append(line),
            None => line.extend_from_slice(b"null"),
        }
    }
}

impl Value for Text<'_> {
    fn append(self, line: &mut Vec<u8>) {
        let text = self.bytes();
        if text.iter().all(|b| matches!(b, b' '..=b'~' if !matches!(b, b'"' | b'\\'))) {
            line.push(b'"');
            line.extend_from_slice(text);
            line.push(b'"');
            return;
        }
        // A text has nothing that could fail; if it did, the line would be JSON all the same.
        if json::append(line, &Lossy(text)).is_err() {
            line.extend_from_slice(b"null");
        }
    }
}

impl Value for &str {
    fn append(self, line: &mut Vec<u8>) {
        Text::from(self).append(line);
    }
}

impl Value for Word {
    fn append(self, line: &mut Vec<u8>) {
        line.push(b'"');
        line.extend_from_slice(self.0.as_bytes());
        line.push(b'"');
    }
}

impl Value for bool {
    fn append(self, line: &mut Vec<u8>) {
        line.extend_from_slice(if self { b"true" } else { b"false" });
    }
}

impl Value for u64 {
    fn append(self, line: &mut Vec<u8>) {
        decimal(line, self);
    }
}

impl Value for usize {
    fn append(self, line: &mut Vec<u8>) {
        decimal(line, self as u64);
    }
}

impl Value for u32 {
    fn append(self, line: &mut Vec<u8>) {
        decimal(line, self.into());
    }
}

impl Value for u16 {
    fn append(self, line: &mut Vec<u8>) {
        decimal(line, self.into());
    }
}

impl Value for u8 {
    fn append(self, line: &mut Vec<u8>) {
        decimal(line, self.into());
    }
}

/// Milliseconds with at most three decimals, and at least one, as of a number with a fraction.
impl Value for Duration {
    fn append(self, line: &mut Vec<u8>) {
        let micros = u64::try_from(self.as_micros()).unwrap_or(u64::MAX);
        decimal(line, micros / 1000);
        let fraction = (micros % 1000) as u16;
        let digits =
            [b'.', b'0' + (fraction / 100) as u8, b'0' + (fraction / 10 % 10) as u8, b'0' + (fraction % 10) as u8];
        let shown = match fraction {
            _ if fraction.is_multiple_of(100) => 2,
            _ if fraction.is_multiple_of(10) => 3,
            _ => 4,
        };
        line.extend_from_slice(&digits[..shown]);
    }
}

impl Value for SystemTime {
    fn append(self, line: &mut Vec<u8>) {
        line.push(b'"');
        line.extend_from_slice(&rfc3339(self));
        line.push(b'"');
    }
}

/// An IPv4 client of a dual-stack listener is logged as what it is, not as `::ffff:192.0.2.1`.
impl Value for IpAddr {
    fn append(self, line: &mut Vec<u8>) {
        line.push(b'"');
        address(line, self.to_canonical());
        line.push(b'"');
    }
}

impl Value for Outcome {
    fn append(self, line: &mut Vec<u8>) {
        Word(self.as_str()).append(line);
    }
}

impl Value for Mode {
    fn append(self, line: &mut Vec<u8>) {
        Word(self.as_str()).append(line);
    }
}

impl Value for PickReason {
    fn append(self, line: &mut Vec<u8>) {
        Word(self.as_str()).append(line);
    }
}

impl Value for Standing {
    fn append(self, line: &mut Vec<u8>) {
        Word(self.as_str()).append(line);
    }
}

impl Value for AttemptResult {
    fn append(self, line: &mut Vec<u8>) {
        Word(self.as_str()).append(line);
    }
}

/// Passes of samples shown, as `3/4`.
impl Value for Window {
    fn append(self, line: &mut Vec<u8>) {
        line.push(b'"');
        decimal(line, self.passes.into());
        line.push(b'/');
        decimal(line, self.shown.into());
        line.push(b'"');
    }
}

impl Value for Pick {
    fn append(self, line: &mut Vec<u8>) {
        put(line, "{\"mode\":", self.mode);
        put(line, ",\"reason\":", self.reason);
        put(line, ",\"in_rotation\":", self.in_rotation);
        put(line, ",\"total\":", self.total);
        put(line, ",\"tier\":", self.tier);
        put(line, ",\"rank\":", self.rank);
        put(line, ",\"waited_ms\":", self.waited);
        line.push(b'}');
    }
}

impl Value for &Attempt {
    fn append(self, line: &mut Vec<u8>) {
        put(line, "{\"member\":", &*self.member);
        put(line, ",\"standing\":", self.standing);
        put(line, ",\"window\":", self.window.filter(|window| window.shown > 0));
        put(line, ",\"probe_ms\":", self.probe);
        put(line, ",\"status\":", self.status);
        put(line, ",\"result\":", self.result);
        put(line, ",\"connect_ms\":", self.connect);
        put(line, ",\"ttfb_ms\":", self.ttfb);
        put(line, ",\"duration_ms\":", self.duration);
        put(line, ",\"bytes\":", self.bytes);
        put(line, ",\"reused\":", self.reused);
        // Left out and not null: a trial is the exception, and lasts for days.
        if let Some(would) = self.observed {
            put(line, ",\"observed\":", would);
        }
        line.push(b'}');
    }
}

impl Value for &[Attempt] {
    fn append(self, line: &mut Vec<u8>) {
        line.push(b'[');
        for (nth, attempt) in self.iter().enumerate() {
            if nth > 0 {
                line.push(b',');
            }
            attempt.append(line);
        }
        line.push(b']');
    }
}
