//! One request's access-log line: its data (interfaces.md, Access log).
//!
//! A record borrows what it logs and is rendered where the request ended, into a buffer that is used again. That costs
//! about as much as copying the strings for another thread would, and leaves nothing to free over there.
//!
//! Not here: where the line goes (`access_log`), what the words mean (`words`), how it is written (`json_line`, `plain`).

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use super::json_line;
use super::plain;
use super::words::{AttemptResult, Outcome, PickReason, Why};
use crate::config::LogFormat;
use crate::health::{Mode, Standing, Window};

/// Everything that is logged about one request. What is unknown is null; `..Record::default()` fills it in.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// When the request's first byte arrived.
    pub time: SystemTime,
    /// What the request was sent on with as `X-Request-Id`.
    pub request_id: Option<Text<'a>>,
    /// The right-most address that is not a trusted proxy's.
    pub client: Option<IpAddr>,
    /// The listener's name.
    pub listener: &'a str,
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`.
    pub proto: Option<&'a str>,
    /// The version of TLS between client and us (`TLSv1.3`); null without TLS.
    pub tls: Option<&'a str>,
    /// As received.
    pub method: Option<Text<'a>>,
    /// `http` or `https`.
    pub scheme: Option<&'a str>,
    /// Host or authority, as received.
    pub host: Option<Text<'a>>,
    /// As received, not decoded.
    pub path: Option<Text<'a>>,
    /// Without its `?`; null where there is none.
    pub query: Option<Text<'a>>,
    /// What the client was answered; null where it got no answer.
    pub status: Option<u16>,
    /// Of the request's body.
    pub request_bytes: u64,
    /// Of the answer's body.
    pub response_bytes: u64,
    /// From the request's first byte until it was over.
    pub duration: Duration,
    /// From the request's first byte until the answer's.
    pub ttfb: Option<Duration>,
    /// From the answer's trailers or header.
    pub grpc_status: Option<u32>,
    /// As received.
    pub user_agent: Option<Text<'a>>,
    /// As received.
    pub referer: Option<Text<'a>>,
    /// The route's name.
    pub route: Option<&'a str>,
    /// The pool that was used, or would have been.
    pub pool: Option<&'a str>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not go well; `-` when it did.
    pub reason: Option<Why>,
    /// Whether the connection was handed over to another protocol.
    pub upgraded: bool,
    /// Of the client's connection, unique in one process.
    pub connection: u64,
    /// How the pool stood and what decided the last pick; null where no pool was asked.
    pub lb: Option<Pick>,
    /// In order; empty for answers of our own.
    pub attempts: &'a [Attempt],
}

/// How the pool stood when the last pick was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// The pool's mode.
    pub mode: Mode,
    /// What decided; null where nobody could be picked.
    pub reason: Option<PickReason>,
    /// Members of the serving tier that took traffic.
    pub in_rotation: usize,
    /// Members of the serving tier.
    pub total: usize,
    /// The tier of the member that was picked; null in the fallback.
    pub tier: Option<u8>,
    /// Which of the route's pools, 0 first.
    pub rank: u8,
    /// How long the request waited for a first healthy member.
    pub waited: Duration,
}

/// One attempt at one member. A request keeps its attempts until its line is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its address as the pool shows it.
    pub member: Arc<str>,
    /// How it stood when it was picked.
    pub standing: Standing,
    /// Its last samples when it was picked, as passes of samples shown (`3/4`); null before the first.
    pub window: Option<Window>,
    /// Its probe latency when it was picked.
    pub probe: Option<Duration>,
    /// What it answered; null where no answer came.
    pub status: Option<u16>,
    /// How the attempt ended.
    pub result: AttemptResult,
    /// The dial, TLS included; null on a reused connection or where none came about.
    pub connect: Option<Duration>,
    /// From the attempt's start until the first byte of the answer.
    pub ttfb: Option<Duration>,
    /// From the attempt's start until it was over.
    pub duration: Duration,
    /// Of the answer's body, as received.
    pub bytes: u64,
    /// Whether a pooled connection was used.
    pub reused: bool,
    /// How it would have stood with the rules that its pool tries; `None` where it would have stood as it did.
    pub observed: Option<Standing>,
}

/// Text from the network: any bytes. What is not UTF-8 is logged as U+FFFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a>(&'a [u8]);

impl Record<'_> {
    /// Appends the line, its newline included.
    pub fn render(&self, format: &LogFormat, line: &mut Vec<u8>) {
        match format {
            LogFormat::Json => {
                json_line::append(line, self);
                line.push(b'\n');
            }
            LogFormat::Combined => plain::combined(line, self),
            LogFormat::Template(template) => plain::template(line, template, self),
        }
    }
}

impl Default for Record<'_> {
    fn default() -> Self {
        Record {
            time: SystemTime::UNIX_EPOCH,
            request_id: None,
            client: None,
            listener: "",
            proto: None,
            tls: None,
            method: None,
            scheme: None,
            host: None,
            path: None,
            query: None,
            status: None,
            request_bytes: 0,
            response_bytes: 0,
            duration: Duration::ZERO,
            ttfb: None,
            grpc_status: None,
            user_agent: None,
            referer: None,
            route: None,
            pool: None,
            outcome: Outcome::Ok,
            reason: None,
            upgraded: false,
            connection: 0,
            lb: None,
            attempts: &[],
        }
    }
}

impl<'a> Text<'a> {
    pub(super) fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> From<&'a [u8]> for Text<'a> {
    fn from(bytes: &'a [u8]) -> Text<'a> {
        Text(bytes)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Text<'a> {
        Text(text.as_bytes())
    }
}

/// The last second that RFC 3339 can write, 9999-12-31T23:59:59Z.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// `2026-01-01T00:00:00.000Z`. A clock far astray is clamped: a formatter that gives up would cost the line.
pub(super) struct Rfc3339(pub SystemTime);

impl Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&rfc3339(self.0)).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text of [`Rfc3339`].
pub(super) fn rfc3339(time: SystemTime) -> [u8; 24] {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().min(LAST_SECOND);
    let (seconds, millis) = (since_epoch.as_secs(), u64::from(since_epoch.subsec_millis()));
    let (year, month, day) = date(seconds / 86_400);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let parts = [
        (0, 4, year),
        (5, 2, month),
        (8, 2, day),
        (11, 2, seconds / 3600 % 24),
        (14, 2, seconds / 60 % 60),
        (17, 2, seconds % 60),
        (20, 3, millis),
    ];
    for (at, len, mut number) in parts {
        for digit in text[at..at + len].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    text
}

/// Year, month and day of a day since 1970, in years that begin in March, so that a leap day is the last.
fn date(day: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // 0000-03-01 is so many days before 1970.
    let day = day + 719_468;
    let in_era = day % DAYS_OF_400_YEARS;
    let year = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let in_month = in_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + 400 * (day / DAYS_OF_400_YEARS) + later, month, in_month)
}

/// Milliseconds with at most three decimals; exact up to 285 years.
pub(super) fn in_millis(duration: Duration) -> f64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX) as f64 / 1000.0
}

#[cfg(test)]
mod tests;
