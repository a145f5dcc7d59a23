//! One request's access-log line: its data, and their JSON (interfaces.md, Access log).
//!
//! A record borrows what it logs and is rendered where the request ended, into a buffer that is used again. That costs
//! about as much as copying the strings for another thread would, and leaves nothing to free over there. The order of
//! the fields here is the order in the line.
//!
//! Not here: where the line goes (`access_log`), what the words mean (`words`), lines that are no JSON (`plain`).

use std::fmt::{self, Display};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use super::json::{self, Lossy};
use super::plain;
use super::words::{AttemptResult, Outcome, PickReason, Why};
use crate::config::LogFormat;
use crate::health::{Mode, Standing, Window};

/// Everything that is logged about one request. What is unknown is null; `..Record::default()` fills it in.
#[derive(Debug, Clone, Serialize)]
pub struct Record<'a> {
    /// When the request's first byte arrived.
    #[serde(serialize_with = "wall_time")]
    pub time: SystemTime,
    /// What the request was sent on with as `X-Request-Id`.
    pub request_id: Option<Text<'a>>,
    /// The right-most address that is not a trusted proxy's.
    #[serde(serialize_with = "canonical_address")]
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
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: Duration,
    /// From the request's first byte until the answer's.
    #[serde(rename = "ttfb_ms", serialize_with = "optional_millis")]
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
    #[serde(serialize_with = "word_or_dash")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pick {
    /// The pool's mode.
    #[serde(serialize_with = "mode_word")]
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
    #[serde(rename = "waited_ms", serialize_with = "millis")]
    pub waited: Duration,
}

/// One attempt at one member. A request keeps its attempts until its line is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// Its address as the pool shows it.
    #[serde(serialize_with = "shared_text")]
    pub member: Arc<str>,
    /// How it stood when it was picked.
    #[serde(serialize_with = "standing_word")]
    pub standing: Standing,
    /// Its last samples when it was picked, as passes of samples shown (`3/4`); null before the first.
    #[serde(serialize_with = "passes_of_shown")]
    pub window: Option<Window>,
    /// Its probe latency when it was picked.
    #[serde(rename = "probe_ms", serialize_with = "optional_millis")]
    pub probe: Option<Duration>,
    /// What it answered; null where no answer came.
    pub status: Option<u16>,
    /// How the attempt ended.
    pub result: AttemptResult,
    /// The dial, TLS included; null on a reused connection or where none came about.
    #[serde(rename = "connect_ms", serialize_with = "optional_millis")]
    pub connect: Option<Duration>,
    /// From the attempt's start until the first byte of the answer.
    #[serde(rename = "ttfb_ms", serialize_with = "optional_millis")]
    pub ttfb: Option<Duration>,
    /// From the attempt's start until it was over.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: Duration,
    /// Of the answer's body, as received.
    pub bytes: u64,
    /// Whether a pooled connection was used.
    pub reused: bool,
}

/// Text from the network: any bytes. What is not UTF-8 is logged as U+FFFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a>(&'a [u8]);

impl Record<'_> {
    /// Appends the line, its newline included.
    ///
    /// The error is `serde_json`'s; nothing in a record causes one.
    pub fn render(&self, format: &LogFormat, line: &mut Vec<u8>) -> serde_json::Result<()> {
        match format {
            LogFormat::Json => {
                json::append(line, self)?;
                line.push(b'\n');
            }
            LogFormat::Combined => plain::combined(line, self),
            LogFormat::Template(template) => plain::template(line, template, self),
        }
        Ok(())
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

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Lossy(self.0).serialize(serializer)
    }
}

/// The last second that RFC 3339 can write, 9999-12-31T23:59:59Z.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// `2026-01-01T00:00:00.000Z`. A clock far astray is clamped: a formatter that gives up would cost the line.
pub(super) struct Rfc3339(pub SystemTime);

impl Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since_epoch = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().min(LAST_SECOND);
        humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since_epoch).fmt(f)
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

pub(super) fn wall_time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    Rfc3339(*time).serialize(serializer)
}

/// Milliseconds with at most three decimals; exact up to 285 years.
pub(super) fn in_millis(duration: Duration) -> f64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX) as f64 / 1000.0
}

fn millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_millis(*duration))
}

fn optional_millis<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(in_millis).serialize(serializer)
}

/// An IPv4 client of a dual-stack listener is logged as what it is, not as `::ffff:192.0.2.1`.
fn canonical_address<S: Serializer>(address: &Option<IpAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    address.map(|address| address.to_canonical()).serialize(serializer)
}

fn word_or_dash<S: Serializer>(why: &Option<Why>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(why.map_or("-", Why::as_str))
}

fn mode_word<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mode.as_str())
}

fn standing_word<S: Serializer>(standing: &Standing, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(standing.as_str())
}

fn shared_text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn passes_of_shown<S: Serializer>(window: &Option<Window>, serializer: S) -> Result<S::Ok, S::Error> {
    match window {
        Some(window) if window.shown > 0 => serializer.collect_str(&format_args!("{}/{}", window.passes, window.shown)),
        _ => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests;
