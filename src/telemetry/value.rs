//! One field of a line that is no JSON: what it says, and how that is written.
//!
//! What is not known or empty is `-`. Numbers and words are those of the JSON line; times have three decimals, always.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::escape;
use super::ncsa;
use super::record::{Attempt, Pick, Record, Text, rfc3339};
use crate::config::{AttemptField, Field, LbField};
use crate::health::Window;

/// What a field says.
pub(super) enum Value<'a> {
    /// Not known.
    Nothing,
    /// From the network: any bytes.
    Client(&'a [u8]),
    /// From the configuration.
    Name(&'a str),
    /// Of a closed list.
    Word(&'static str),
    Number(u64),
    Flag(bool),
    Span(Duration),
    Wall(SystemTime),
    /// A time as NCSA's servers wrote it.
    Local(SystemTime),
    /// What was asked for: the path, and the query where there is one.
    Target(Text<'a>, Option<Text<'a>>),
    /// The first line of the request.
    Request(ncsa::Request<'a>),
    Address(IpAddr),
    Passes(Window),
    /// One value for each attempt.
    Each(&'a [Attempt], AttemptField),
}

impl<'a> Value<'a> {
    /// What `field` says in `record`.
    pub(super) fn of(field: Field, record: &Record<'a>) -> Value<'a> {
        match field {
            Field::Time => Value::Wall(record.time),
            Field::RequestId => client(record.request_id),
            Field::Client => known(record.client, Value::Address),
            Field::Listener => Value::Name(record.listener),
            Field::Proto => known(record.proto, Value::Name),
            Field::Tls => known(record.tls, Value::Name),
            Field::Method => client(record.method),
            Field::Scheme => known(record.scheme, Value::Name),
            Field::Host => client(record.host),
            Field::Path => client(record.path),
            Field::Query => client(record.query),
            Field::Status => number(record.status),
            Field::RequestBytes => Value::Number(record.request_bytes),
            Field::ResponseBytes => Value::Number(record.response_bytes),
            Field::DurationMs => Value::Span(record.duration),
            Field::TtfbMs => known(record.ttfb, Value::Span),
            Field::GrpcStatus => number(record.grpc_status),
            Field::UserAgent => client(record.user_agent),
            Field::Referer => client(record.referer),
            Field::Route => known(record.route, Value::Name),
            Field::Pool => known(record.pool, Value::Name),
            Field::Outcome => Value::Word(record.outcome.as_str()),
            Field::Reason => known(record.reason, |why| Value::Word(why.as_str())),
            Field::Upgraded => Value::Flag(record.upgraded),
            Field::Connection => Value::Number(record.connection),
            Field::Lb(field) => known(record.lb, |pick| Value::of_pick(field, pick)),
            Field::Attempts(field) => Value::Each(record.attempts, field),
            Field::Request => known(ncsa::Request::of(record), Value::Request),
            Field::Target => known(record.path, |path| Value::Target(path, record.query)),
            Field::TimeLocal => Value::Local(record.time),
        }
    }

    fn of_pick(field: LbField, pick: Pick) -> Value<'a> {
        match field {
            LbField::Mode => Value::Word(pick.mode.as_str()),
            LbField::Reason => known(pick.reason, |reason| Value::Word(reason.as_str())),
            LbField::InRotation => Value::Number(pick.in_rotation as u64),
            LbField::Total => Value::Number(pick.total as u64),
            LbField::Tier => number(pick.tier),
            LbField::Rank => Value::Number(pick.rank.into()),
            LbField::WaitedMs => Value::Span(pick.waited),
        }
    }

    fn of_attempt(field: AttemptField, attempt: &'a Attempt) -> Value<'a> {
        match field {
            AttemptField::Member => Value::Name(&attempt.member),
            AttemptField::Standing => Value::Word(attempt.standing.as_str()),
            AttemptField::Window => known(attempt.window.filter(|window| window.shown > 0), Value::Passes),
            AttemptField::ProbeMs => known(attempt.probe, Value::Span),
            AttemptField::Status => number(attempt.status),
            AttemptField::Result => Value::Word(attempt.result.as_str()),
            AttemptField::ConnectMs => known(attempt.connect, Value::Span),
            AttemptField::TtfbMs => known(attempt.ttfb, Value::Span),
            AttemptField::DurationMs => Value::Span(attempt.duration),
            AttemptField::Bytes => Value::Number(attempt.bytes),
            AttemptField::Reused => Value::Flag(attempt.reused),
            AttemptField::Observed => known(attempt.observed, |standing| Value::Word(standing.as_str())),
        }
    }

    /// Appends it; nothing in it can be taken for the sign `end`, a quote or the end of the line.
    pub(super) fn append(&self, line: &mut Vec<u8>, end: Option<u8>) {
        match *self {
            Value::Nothing | Value::Client([]) | Value::Name("") => line.push(b'-'),
            Value::Client(text) => escape::append(line, text, end.as_slice()),
            Value::Name(text) => escape::append(line, text.as_bytes(), b""),
            Value::Word(word) => line.extend_from_slice(word.as_bytes()),
            Value::Number(number) => decimal(line, number),
            Value::Flag(flag) => line.extend_from_slice(if flag { b"true" } else { b"false" }),
            Value::Span(span) => millis(line, span),
            Value::Wall(time) => line.extend_from_slice(&rfc3339(time)),
            Value::Local(time) => ncsa::time(line, time),
            Value::Target(path, query) => ncsa::target(line, path, query, end.as_slice()),
            Value::Request(request) => request.append(line, end),
            // An IPv4 client of a dual-stack listener is shown as what it is.
            Value::Address(client) => address(line, client.to_canonical()),
            Value::Passes(window) => {
                decimal(line, u64::from(window.passes));
                line.push(b'/');
                decimal(line, u64::from(window.shown));
            }
            Value::Each([], _) => line.push(b'-'),
            Value::Each(attempts, field) => {
                for (index, attempt) in attempts.iter().enumerate() {
                    if index > 0 {
                        line.push(b',');
                    }
                    Value::of_attempt(field, attempt).append(line, end);
                }
            }
        }
    }
}

fn client<'a>(text: Option<Text<'a>>) -> Value<'a> {
    text.map_or(Value::Nothing, |text| Value::Client(text.bytes()))
}

fn known<'a, T>(value: Option<T>, say: impl FnOnce(T) -> Value<'a>) -> Value<'a> {
    value.map_or(Value::Nothing, say)
}

fn number<'a>(value: Option<impl Into<u64>>) -> Value<'a> {
    value.map_or(Value::Nothing, |number| Value::Number(number.into()))
}

/// An address; an IPv4 one, as most are, without the machinery of formatting.
pub(super) fn address(line: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (nth, octet) in v4.octets().into_iter().enumerate() {
                if nth > 0 {
                    line.push(b'.');
                }
                decimal(line, octet.into());
            }
        }
        // Writing to memory does not fail.
        IpAddr::V6(v6) => drop(write!(line, "{v6}")),
    }
}

/// Milliseconds with three decimals.
fn millis(line: &mut Vec<u8>, span: Duration) {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    decimal(line, micros / 1000);
    let rest = micros % 1000;
    line.extend([b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

/// A number without the machinery of formatting, which costs more than all the rest of a field.
pub(super) fn decimal(line: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = digit(number);
        number /= 10;
        if number == 0 {
            return line.extend_from_slice(&digits[first..]);
        }
    }
}

/// The last digit of a number.
fn digit(number: u64) -> u8 {
    b'0' + (number % 10) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_spans_are_plain_decimals() {
        let shown = |append: &dyn Fn(&mut Vec<u8>)| {
            let mut line = Vec::new();
            append(&mut line);
            String::from_utf8(line).expect("digits")
        };
        for number in [0, 7, 10, 4_096, u64::MAX] {
            assert_eq!(shown(&|line| decimal(line, number)), number.to_string());
        }
        for (micros, expected) in [(0, "0.000"), (7, "0.007"), (4_131, "4.131"), (1_006_500, "1006.500")] {
            assert_eq!(shown(&|line| millis(line, Duration::from_micros(micros))), expected);
        }
        assert_eq!(shown(&|line| millis(line, Duration::MAX)), "18446744073709551.615");
    }
}
