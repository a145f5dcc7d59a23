//! How single values are spelt: durations, sizes, percentages, words, addresses.
//!
//! Every scalar arrives here as its text, whatever YAML took it for, so that `5` where `5s` is meant gets an answer
//! that helps instead of "invalid type".
//!
//! Not here: which range a key allows (`parse` and its neighbours).

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// A scalar that has a spelling of its own.
pub(super) trait Spelling: Sized {
    /// What belongs here, for "expected …".
    const EXPECTED: &'static str;

    /// Reads a text.
    fn read(text: &str) -> Result<Self, String>;

    /// Reads what YAML took for a number, `true` or `false`.
    fn read_unquoted(text: &str) -> Result<Self, String> {
        Self::read(text)
    }
}

/// A scalar as read by its [`Spelling`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spelled<T>(pub(super) T);

/// A key that may be written or not.
pub(super) type Written<T> = Option<Spelled<T>>;

impl<'de, T: Spelling> Deserialize<'de> for Spelled<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Spelled<T>, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(PhantomData)).map(Spelled)
    }
}

struct ScalarVisitor<T>(PhantomData<T>);

impl<T: Spelling> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(E::custom)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        T::read_unquoted(&value.to_string()).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        T::read_unquoted(&value.to_string()).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        T::read_unquoted(&value.to_string()).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        T::read_unquoted(&value.to_string()).map_err(E::custom)
    }
}

/// Chooses by word; the mistake names all of them, or the likely one.
pub(super) fn word<T: Clone>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(value.clone());
    }
    let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    match likely(text, &names) {
        Some(word) => Err(format!("`{}` is not known here; did you mean `{word}`?", shown(text))),
        None => Err(format!("`{}` is not known here; write {}", shown(text), one_of(&names))),
    }
}

/// The candidate that `text` is probably a slip of.
pub(super) fn likely<'a>(text: &str, candidates: &[&'a str]) -> Option<&'a str> {
    // Beyond this nothing is a slip, and the comparison is quadratic.
    if text.len() > 60 {
        return None;
    }
    let text = text.to_lowercase();
    let score = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        // The first measure does not see two letters exchanged in a short word.
        let one_slip = candidate.len() > 2 && strsim::osa_distance(&text, &candidate) == 1;
        strsim::jaro_winkler(&text, &candidate).max(if one_slip { 0.9 } else { 0.0 })
    };
    let scored = candidates.iter().map(|c| (score(c), *c));
    scored.filter(|(score, _)| *score > 0.82).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, c)| c)
}

/// "`a`, `b` or `c`".
pub(super) fn one_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => format!("`{only}`"),
        [init @ .., last] => {
            let init: Vec<String> = init.iter().map(|n| format!("`{n}`")).collect();
            format!("{} or `{last}`", init.join(", "))
        }
    }
}

/// A text fit for a message: on one line, and short.
pub(super) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

/// A duration as this file writes it: `5s`, `250ms`, `1m 30s`.
pub(super) fn spell_duration(duration: Duration) -> String {
    let (days, words) = (duration.as_secs() / (24 * 3600), humantime::format_duration(duration).to_string());
    // 31 days are not "1month 13h 26m 24s" to anybody.
    let is_odd = words.contains("month ") || words.contains("months ");
    if is_odd && duration == Duration::from_secs(days * 24 * 3600) { format!("{days}days") } else { words }
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(f64::is_finite)
}

impl Spelling for Duration {
    const EXPECTED: &'static str = "a duration such as `5s` or `250ms`";

    fn read(text: &str) -> Result<Duration, String> {
        if is_number(text) {
            return Err(format!("`{0}` has no unit; write `{0}s` or `{0}ms`", shown(text)));
        }
        humantime::parse_duration(text)
            .map_err(|_| format!("`{}` is not a duration; write one such as `5s`, `250ms` or `2m`", shown(text)))
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) u64);

impl Spelling for Bytes {
    const EXPECTED: &'static str = "a size such as `64KiB`";

    fn read(text: &str) -> Result<Bytes, String> {
        if is_number(text) {
            return Err(format!("`{0}` has no unit; write `{0}B` or `{0}KiB`", shown(text)));
        }
        let bad = || format!("`{}` is not a size; write one such as `512B`, `64KiB` or `1MiB`", shown(text));
        if !text.ends_with(['b', 'B']) {
            return Err(bad());
        }
        text.parse::<bytesize::ByteSize>().map(|size| Bytes(size.0)).map_err(|_| bad())
    }
}

impl Spelling for u64 {
    const EXPECTED: &'static str = "a whole number";

    fn read(text: &str) -> Result<u64, String> {
        if let Some(number) = text.strip_suffix('%').map(str::trim).filter(|n| is_number(n)) {
            return Err(format!("this key counts in percent already; write `{number}`"));
        }
        text.parse().map_err(|_| format!("`{}` is not a whole number, 0 or more", shown(text)))
    }
}

impl Spelling for f64 {
    const EXPECTED: &'static str = "a number";

    fn read(text: &str) -> Result<f64, String> {
        let number: Option<f64> = text.parse().ok().filter(|n: &f64| n.is_finite());
        number.ok_or_else(|| format!("`{}` is not a number", shown(text)))
    }
}

impl Spelling for bool {
    const EXPECTED: &'static str = "`true` or `false`";

    fn read(text: &str) -> Result<bool, String> {
        match text {
            "yes" | "on" => Err(format!("`{text}` is not known here; write `true`")),
            "no" | "off" => Err(format!("`{text}` is not known here; write `false`")),
            _ => word(text, &[("true", true), ("false", false)]),
        }
    }
}

/// A share of a whole, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share(pub(super) u32);

impl Spelling for Share {
    const EXPECTED: &'static str = "a share such as `20%`";

    fn read(text: &str) -> Result<Share, String> {
        if is_number(text) {
            return Err(format!("`{0}` has no unit; write `{0}%`", shown(text)));
        }
        let percent = text.strip_suffix('%').and_then(|n| n.parse().ok());
        match percent {
            Some(percent) if percent <= 100 => Ok(Share(percent)),
            Some(percent) => Err(format!("{percent}% is more than all; write `0%` to `100%`")),
            None => Err(format!("`{}` is not a share; write one such as `20%`, without a fraction", shown(text))),
        }
    }
}

/// Free text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

impl Spelling for Text {
    const EXPECTED: &'static str = "text";

    fn read(text: &str) -> Result<Text, String> {
        Ok(Text(text.to_owned()))
    }

    fn read_unquoted(text: &str) -> Result<Text, String> {
        Err(format!("`{text}` is read as a number or a truth value; put it in quotes: \"{text}\""))
    }
}

impl Spelling for SocketAddr {
    const EXPECTED: &'static str = "an address such as `127.0.0.1:8080`";

    fn read(text: &str) -> Result<SocketAddr, String> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let text = shown(text);
        if text.parse::<u16>().is_ok() {
            return Err(format!("`{text}` is only a port; write `0.0.0.0:{text}` for every interface"));
        }
        if let Some(meant) = bracketed(&text) {
            return Err(format!("`{text}`: an IPv6 address with a port stands in brackets; write `{meant}`"));
        }
        if let Some(port) = text.strip_prefix(':').or(text.strip_prefix("*:")) {
            return Err(format!("`{text}` is not an address; write `0.0.0.0:{port}` for every interface"));
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            return Err(format!("`{text}` is a name; write the address, `127.0.0.1:{port}`"));
        }
        if text.parse::<std::net::IpAddr>().is_ok() {
            return Err(format!("`{text}` has no port; write an address such as `127.0.0.1:8080` or `[::1]:8080`"));
        }
        Err(format!("`{text}` is not an address; write one such as `127.0.0.1:8080` or `[::1]:8080`"))
    }
}

impl Spelling for IpAddr {
    const EXPECTED: &'static str = "an address such as `10.0.0.5` or `fd00::5`";

    fn read(text: &str) -> Result<IpAddr, String> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Some(address) = bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip())) {
            return Err(format!("`{}` is not an address alone; write `{}`", shown(text), IpAddr::to_string(&address)));
        }
        Err(format!("`{}` is not an address; write one such as `10.0.0.5` or `fd00::5`", shown(text)))
    }
}

/// `[::1]:80` for `::1:80`, which is an IPv6 address too, but hardly the one that is meant.
pub(super) fn bracketed(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let is_port = port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    (is_port && host.parse::<std::net::Ipv6Addr>().is_ok()).then(|| format!("[{host}]:{port}"))
}

impl Spelling for IpNet {
    const EXPECTED: &'static str = "a range such as `10.0.0.0/8`, or an address";

    fn read(text: &str) -> Result<IpNet, String> {
        let address = std::net::IpAddr::from_str(text).map(IpNet::from);
        text.parse().or(address).map_err(|_| {
            format!("`{}` is neither a range nor an address; write one such as `10.0.0.0/8` or `::1`", shown(text))
        })
    }
}

/// Status codes: single ones and ranges, sorted, as in `200-299,403`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statuses(pub(super) Vec<(u16, u16)>);

impl Spelling for Statuses {
    const EXPECTED: &'static str = "status codes such as `200-299,403`";

    fn read(text: &str) -> Result<Statuses, String> {
        let (mut ranges, mut faults) = (Vec::new(), Vec::new());
        for part in text.split(',').map(str::trim) {
            match status_range(part) {
                Ok(range) => ranges.push(range),
                Err(fault) => faults.push(fault),
            }
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let ((a, b), (c, d)) = (pair[0], pair[1]);
            if c <= b {
                let both = spell_range((a, b.max(d)));
                faults.push(format!("{} and {} overlap; write `{both}`", spell_range((a, b)), spell_range((c, d))));
            }
        }
        if faults.is_empty() { Ok(Statuses(ranges)) } else { Err(faults.join("; also: ")) }
    }
}

fn status_range(part: &str) -> Result<(u16, u16), String> {
    let code = |text: &str| -> Result<u16, String> {
        let code: u16 = text.trim().parse().map_err(|_| {
            format!("`{}` is not a status code; write codes and ranges such as `200-299,403`", shown(text.trim()))
        })?;
        if (100..=599).contains(&code) {
            Ok(code)
        } else {
            Err(format!("{code} is no status code; they go from 100 to 599"))
        }
    };
    let (from, to) = match part.split_once('-') {
        Some((from, to)) => (code(from)?, code(to)?),
        None => (code(part)?, code(part)?),
    };
    if from > to {
        return Err(format!("the range {from}-{to} is empty; write `{to}-{from}`"));
    }
    Ok((from, to))
}

/// `200-299`, or `403` for a range of one.
pub(super) fn spell_range((from, to): (u16, u16)) -> String {
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}
