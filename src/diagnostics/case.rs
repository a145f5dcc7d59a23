//! One fall as its file has it.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::health::Phases;
use crate::probe::{Exchange, Secured};
use crate::telemetry::Event;

/// A member that became unhealthy, and what its last probe saw.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Case {
    /// What it is called by.
    pub id: String,
    /// When it was announced.
    #[schema(format = DateTime)]
    time: String,
    /// The event that announced it: its `id`, with the process that gave it.
    event: String,
    /// Whose pool.
    pool: String,
    /// The member as its pool shows it.
    member: String,
    /// The verdict before.
    from: Option<String>,
    /// The word of the fail that decided.
    reason: Option<String>,
    /// Why, for people.
    detail: Option<String>,
    /// The answer's status, where one came.
    status: Option<u16>,
    /// The member's last samples, as passes of samples shown.
    window: Option<String>,
    /// How the member stands after it.
    standing: Option<String>,
    /// The pool's mode after it.
    mode: Option<String>,
    /// Members of the serving tier that take traffic after it.
    in_rotation: Option<usize>,
    /// Members of the serving tier.
    total: Option<usize>,
    /// The probe.
    probe: DecidingProbe,
    /// The beginning of what was sent. Secrets are covered, here and in the answer.
    request: Shown,
    /// The answer's header, with those of interim answers before it; where what came is no answer, its beginning.
    head: Shown,
    /// The beginning of the answer's body, decoded; of gRPC its message in words.
    body: Shown,
    /// The fields after the body, over HTTP/2.
    trailers: Shown,
}

/// The probe that decided.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct DecidingProbe {
    /// Who was dialled.
    peer: String,
    /// The name or address that TLS asked for; null without TLS.
    server_name: Option<String>,
    /// Whether its certificate had to be for that, and from somebody who is trusted.
    verified: Option<bool>,
    /// Until the connection stood.
    connect_ms: Option<f64>,
    /// The handshake of TLS alone.
    tls_ms: Option<f64>,
    /// From the dial to the first byte of the answer.
    first_byte_ms: Option<f64>,
    /// From the dial to the end.
    total_ms: f64,
}

/// Bytes, of which none is lost: as a text where they are one, else in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Shown {
    /// The bytes, where they are UTF-8.
    text: Option<String>,
    /// The bytes, where they are not.
    base64: Option<String>,
}

/// What a list shows of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// What it is called by.
    pub id: String,
    /// When it was announced.
    #[schema(format = DateTime)]
    pub time: String,
    /// The event that announced it: its `id`, with the process that gave it.
    pub event: String,
    /// Whose pool.
    pub pool: String,
    /// The member as its pool shows it.
    pub member: String,
    /// The verdict before.
    pub from: Option<String>,
    /// The word of the fail that decided.
    pub reason: Option<String>,
    /// Why, for people.
    pub detail: Option<String>,
    /// The answer's status, where one came.
    pub status: Option<u16>,
}

impl Case {
    /// The fall that `event` tells of.
    pub(super) fn new(
        cursor: &str,
        event: &Event,
        (status, phases): (Option<u16>, Phases),
        exchange: &Exchange,
    ) -> Case {
        let text = |word: Option<&str>| word.map(str::to_owned);
        let head = exchange.answer_head();
        Case {
            id: id(&event.rfc3339(), cursor),
            time: event.rfc3339(),
            event: cursor.to_owned(),
            pool: event.pool.clone().unwrap_or_default(),
            member: event.member.clone().unwrap_or_default(),
            from: event.from.clone(),
            reason: text(event.reason),
            detail: event.detail.clone(),
            status,
            window: event.window.clone(),
            standing: text(event.standing),
            mode: text(event.mode),
            in_rotation: event.in_rotation,
            total: event.total,
            probe: DecidingProbe::of(exchange.peer, exchange.tls.as_ref(), phases),
            request: Shown::of(&exchange.sent),
            head: Shown::of(if head.is_empty() { &exchange.received } else { head }),
            body: Shown::of(&exchange.body),
            trailers: Shown::of(&exchange.trailers),
        }
    }

    /// What a list shows of it.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            id: self.id.clone(),
            time: self.time.clone(),
            event: self.event.clone(),
            pool: self.pool.clone(),
            member: self.member.clone(),
            from: self.from.clone(),
            reason: self.reason.clone(),
            detail: self.detail.clone(),
            status: self.status,
        }
    }
}

impl DecidingProbe {
    fn of(peer: SocketAddr, tls: Option<&Secured>, phases: Phases) -> DecidingProbe {
        DecidingProbe {
            peer: peer.to_string(),
            server_name: tls.map(|tls| tls.server_name.clone()),
            verified: tls.map(|tls| tls.verified),
            connect_ms: phases.connect.map(ms),
            tls_ms: phases.tls.map(ms),
            first_byte_ms: phases.first_byte.map(ms),
            total_ms: ms(phases.total),
        }
    }
}

impl Shown {
    fn of(bytes: &[u8]) -> Shown {
        match std::str::from_utf8(bytes) {
            Ok(text) => Shown { text: Some(text.to_owned()), base64: None },
            Err(_) => Shown { text: None, base64: Some(STANDARD.encode(bytes)) },
        }
    }
}

/// A name for any file system, in the order of time: `20260101T000000.000Z-1a2b3c4d-00000017`.
fn id(time: &str, cursor: &str) -> String {
    let time = compact(time);
    let (instance, number) = cursor.split_once('-').unwrap_or((cursor, "0"));
    format!("{time}-{instance}-{number:0>8}")
}

/// What ids of this time begin with: they come after it in order.
pub(super) fn stamp(time: SystemTime) -> String {
    compact(&humantime::format_rfc3339_millis(time).to_string())
}

fn compact(rfc3339: &str) -> String {
    rfc3339.chars().filter(|c| !matches!(c, '-' | ':')).collect()
}

/// Whether it can be one of ours; nobody else's file is touched.
pub(super) fn is_id(text: &str) -> bool {
    let mut parts = text.split('-');
    let (Some(time), Some(instance), Some(number), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = time.len() == 20
        && time.bytes().zip("dddddddd.dddddd.ddd.".bytes()).all(|(byte, kind)| match kind {
            b'd' => byte.is_ascii_digit(),
            _ => matches!(byte, b'T' | b'.' | b'Z'),
        });
    is_time
        && instance.len() == 8
        && instance.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        && digits(number)
        && (8..=20).contains(&number.len())
}

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::clock;
    use crate::telemetry::{Kind, Severity};

    /// The fall that is the event of this number, with this body.
    pub(in super::super) fn fall(number: u64, body: &str) -> Case {
        let event = Event {
            id: number,
            time: clock::wall_at(Duration::ZERO),
            pool: Some("web".to_owned()),
            ..Event::new(Kind::Member, Severity::Warn, String::new())
        };
        let exchange = Exchange {
            peer: SocketAddr::from(([127, 0, 0, 1], 80)),
            tls: None,
            sent: b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            received: Vec::new(),
            body: body.as_bytes().to_vec(),
            trailers: Vec::new(),
        };
        Case {
            time: "2026-01-02T03:04:05.678Z".to_owned(),
            id: id("2026-01-02T03:04:05.678Z", &format!("1a2b3c4d-{number}")),
            ..Case::new("1a2b3c4d-1", &event, (None, Phases::default()), &exchange)
        }
    }

    #[test]
    fn an_id_is_known_again_and_nothing_else_is() {
        let ours = id("2026-01-02T03:04:05.678Z", "1a2b3c4d-17");
        assert_eq!(ours, "20260102T030405.678Z-1a2b3c4d-00000017");
        assert!(is_id(&ours));
        for other in
            ["", "notes", "20260102T030405.678Z", "20260102T030405.678Z-1a2b3c4d-", "20260102T030405.678Z-..-00000017"]
        {
            assert!(!is_id(other), "{other}");
        }
        assert!(!is_id(&format!("../{ours}")) && !is_id(&format!("{ours}-1")) && !is_id(&ours[1..]));
    }

    #[test]
    fn no_byte_is_lost() {
        let rows: [(&[u8], Option<&str>, Option<&str>); 3] = [
            (b"a\r\n\x00\xc3\xa9", Some("a\r\n\0\u{e9}"), None),
            (b"\xff\x00a", None, Some("/wBh")),
            (b"", Some(""), None),
        ];
        for (bytes, text, base64) in rows {
            let shown = Shown::of(bytes);
            assert_eq!((shown.text.as_deref(), shown.base64.as_deref()), (text, base64), "{bytes:?}");
        }
    }
}
