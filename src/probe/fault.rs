//! Gives what went wrong its reason: the one place where errors become words of the closed list (health.md §1).
//!
//! PURE. The first question is whose fault it is: a proxy that is out of descriptors must not conclude that its members
//! are dead, so local faults teach nothing.

use std::error::Error;
use std::io;
use std::time::Duration;

use rustls::AlertDescription;

use super::mask::Mask;
use super::way::Version;
use crate::health::{Outcome, Reason};
use crate::tls;

/// How far a probe has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// No connection yet.
    Dialling,
    /// The TLS handshake is under way.
    Securing,
    /// The request is on its way, or sent; no complete header yet.
    Waiting,
    /// The header is in, the body is not.
    Reading,
}

/// Why there is no right answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is wrong.
    Answer(Failure),
    /// There is none that can be read.
    Http(hyper::Error),
}

impl From<hyper::Error> for Trouble {
    fn from(error: hyper::Error) -> Trouble {
        Trouble::Http(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Answer(failure)
    }
}

impl Trouble {
    /// Whether the connection went away before the member had said anything: where the connection had been idle, it may
    /// have been closed before the request came.
    pub(super) fn is_hangup(&self) -> bool {
        let Trouble::Http(error) = self else { return false };
        if let Some(error) = io_within(error) {
            return reason_of(error.kind(), Stage::Waiting) == Reason::Reset;
        }
        match Frame::behind(error) {
            Some(Frame::Goodbye(_)) => true,
            // The member has not looked at the request (RFC 9113 section 8.7).
            Some(Frame::Reset(why)) => why.starts_with("refused stream"),
            Some(Frame::Wrong(_)) => false,
            None => error.is_incomplete_message() || error.is_canceled() || error.is_closed(),
        }
    }
}

/// What ended a stream of HTTP/2, in h2's words. hyper keeps the type of its errors to itself, so it is told by the
/// beginnings of their texts; the tests of `tests::h2` meet each.
enum Frame {
    /// RST_STREAM.
    Reset(String),
    /// GOAWAY.
    Goodbye(String),
    /// What came breaks the rules.
    Wrong(String),
}

impl Frame {
    fn behind(error: &(dyn Error + 'static)) -> Option<Frame> {
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            let after = |start: &str| text.strip_prefix(start).map(str::to_owned);
            let found = after("stream error received: ").map(Frame::Reset);
            let found = found.or_else(|| after("connection error received: ").map(Frame::Goodbye));
            let wrong = || after("stream error detected: ").or_else(|| after("connection error detected: "));
            if let Some(frame) = found.or_else(|| wrong().map(Frame::Wrong)) {
                return Some(frame);
            }
            cause = error.source();
        }
        None
    }
}

/// Why a probe did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// A fail with its reason, or nothing learnt.
    pub(super) outcome: Outcome,
    /// For people.
    pub(super) detail: String,
}

impl Failure {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::Fail(reason), detail: detail.into() }
    }

    /// The probe's timeout ended it at `stage`.
    pub(super) fn timeout(stage: Stage, timeout: Duration) -> Failure {
        let (reason, what) = match stage {
            Stage::Dialling => (Reason::ConnectTimeout, "no connection"),
            Stage::Securing => (Reason::Timeout, "TLS handshake not complete"),
            Stage::Waiting => (Reason::Timeout, "no answer"),
            Stage::Reading => (Reason::Timeout, "answer not complete"),
        };
        Failure::new(reason, format!("{what} within {}", humantime::format_duration(timeout)))
    }

    /// The socket, or TLS over it, failed at `stage`.
    pub(super) fn io(error: &io::Error, stage: Stage) -> Failure {
        if is_local(error) {
            return Failure { outcome: Outcome::Inconclusive, detail: format!("local fault: {error}") };
        }
        if let Some(error) = tls::error_within(error) {
            return Failure::tls(error);
        }
        let reason = reason_of(error.kind(), stage);
        let detail = match (reason, stage) {
            (Reason::Reset, Stage::Securing) => "closed during the TLS handshake".to_string(),
            (Reason::Reset, Stage::Reading) => "closed before the answer was complete".to_string(),
            // The words of whoever noticed are of TLS, and for its users.
            (Reason::Reset, _) if error.kind() == io::ErrorKind::UnexpectedEof => {
                "closed without an answer".to_string()
            }
            (Reason::Reset, _) => format!("closed before an answer: {error}"),
            _ => error.to_string(),
        };
        Failure::new(reason, detail)
    }

    /// It began to answer.
    fn within_header() -> Failure {
        Failure::new(Reason::Reset, "closed within the answer's header")
    }

    /// TLS failed.
    pub(super) fn tls(error: &rustls::Error) -> Failure {
        match error {
            rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => Failure::no_protocol(),
            error => Failure::new(Reason::Tls, tls::explain(error)),
        }
    }

    /// The member does not agree to what the probe would speak.
    pub(super) fn no_protocol() -> Failure {
        Failure::new(Reason::Protocol, "the member does not agree to the protocol that TLS offers it (ALPN)")
    }

    /// The exchange of HTTP messages failed at `stage`; `began` is the beginning of what came, which may repeat a secret.
    pub(super) fn http(error: &hyper::Error, version: Version, stage: Stage, (began, mask): (&[u8], &Mask)) -> Failure {
        if let Some(error) = io_within(error) {
            // Where TLS ends without a word, hyper sees an error and not the end.
            let has_ended = error.kind() == io::ErrorKind::UnexpectedEof && tls::error_within(error).is_none();
            let is_within = has_ended && stage == Stage::Waiting && version == Version::Http1 && !began.is_empty();
            return if is_within { Failure::within_header() } else { Failure::io(error, stage) };
        }
        if version == Version::Http2
            && let Some(failure) = Failure::http2(error, began, mask)
        {
            return failure;
        }
        // Once the header is in, everything that is wrong with the body is an error of reading it.
        if stage == Stage::Reading || error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            let detail = match (stage, began) {
                (Stage::Reading, _) => "closed before the answer was complete",
                (_, []) => "closed without an answer",
                _ => return Failure::within_header(),
            };
            return Failure::new(Reason::Reset, detail);
        }
        if error.is_parse_too_large() {
            return Failure::new(Reason::Protocol, "answer's header over 64 KiB or 100 fields");
        }
        Failure::new(Reason::Protocol, format!("not HTTP/1 ({error}): began {}", mask.quote(began)))
    }

    /// A frame of HTTP/2 said so, or was none.
    fn http2(error: &hyper::Error, began: &[u8], mask: &Mask) -> Option<Failure> {
        Some(match Frame::behind(error)? {
            Frame::Reset(why) => Failure::new(Reason::Reset, format!("the member reset the stream: {why}")),
            Frame::Goodbye(why) => Failure::new(Reason::Reset, format!("the member said GOAWAY: {why}")),
            Frame::Wrong(_) if !began.is_empty() && !is_http2(began) => {
                Failure::new(Reason::Protocol, format!("not HTTP/2: began {}", mask.quote(began)))
            }
            Frame::Wrong(why) => Failure::new(Reason::Protocol, format!("wrong HTTP/2: {why}")),
        })
    }
}

/// Whether what came is at least framed as HTTP/2: its first frame is of SETTINGS (RFC 9113 section 3.4).
pub(super) fn is_http2(began: &[u8]) -> bool {
    const SETTINGS: u8 = 4;
    began.get(3) == Some(&SETTINGS)
}

/// A fault of this machine and not of the member: out of descriptors, ports, buffers or memory.
fn is_local(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = if cfg!(target_os = "linux") { 105 } else { 55 };
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOBUFS))
}

fn reason_of(kind: io::ErrorKind, stage: Stage) -> Reason {
    use io::ErrorKind::*;
    match kind {
        ConnectionRefused => Reason::Refused,
        HostUnreachable | NetworkUnreachable | NetworkDown => Reason::Unreachable,
        // The kernel gave up before the probe did.
        TimedOut if stage == Stage::Dialling => Reason::ConnectTimeout,
        TimedOut => Reason::Timeout,
        ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof | NotConnected | WriteZero => Reason::Reset,
        // A local firewall's word (EPERM, EACCES), an address no one can dial: there is no way to the member.
        _ if stage == Stage::Dialling => Reason::Unreachable,
        _ => Reason::Protocol,
    }
}

fn io_within<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref() {
            return Some(io);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that closes TLS without a word, in the words of rustls.
    #[test]
    fn an_end_without_an_answer_is_told_in_our_words() {
        let words = "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls/";
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, words);
        let failure = Failure::io(&error, Stage::Waiting);
        assert_eq!(failure, Failure::new(Reason::Reset, "closed without an answer"));
    }

    #[test]
    fn local_faults_teach_nothing_at_any_stage() {
        for code in [23, 24, 99, 105, 12] {
            for stage in [Stage::Dialling, Stage::Securing, Stage::Waiting, Stage::Reading] {
                let failure = Failure::io(&io::Error::from_raw_os_error(code), stage);
                assert_eq!(failure.outcome, Outcome::Inconclusive, "errno {code} while {stage:?}");
                assert!(failure.detail.starts_with("local fault: "), "{}", failure.detail);
            }
        }
    }

    #[test]
    fn every_other_errno_has_a_reason() {
        let rows = [
            (111, Stage::Dialling, Reason::Refused),
            (113, Stage::Dialling, Reason::Unreachable),
            (101, Stage::Dialling, Reason::Unreachable),
            (100, Stage::Dialling, Reason::Unreachable),
            (1, Stage::Dialling, Reason::Unreachable),
            (13, Stage::Dialling, Reason::Unreachable),
            (110, Stage::Dialling, Reason::ConnectTimeout),
            (104, Stage::Dialling, Reason::Reset),
            (104, Stage::Securing, Reason::Reset),
            (104, Stage::Waiting, Reason::Reset),
            (104, Stage::Reading, Reason::Reset),
            (32, Stage::Waiting, Reason::Reset),
            (110, Stage::Waiting, Reason::Timeout),
            (113, Stage::Waiting, Reason::Unreachable),
        ];
        for (code, stage, reason) in rows {
            let failure = Failure::io(&io::Error::from_raw_os_error(code), stage);
            assert_eq!(failure.outcome, Outcome::Fail(reason), "errno {code} while {stage:?}");
        }
    }

    #[test]
    fn a_timeout_is_of_the_dial_only_while_dialling() {
        let timeout = |stage| Failure::timeout(stage, Duration::from_millis(1500));
        assert_eq!(timeout(Stage::Dialling).outcome, Outcome::Fail(Reason::ConnectTimeout));
        assert_eq!(timeout(Stage::Dialling).detail, "no connection within 1s 500ms");
        for stage in [Stage::Securing, Stage::Waiting, Stage::Reading] {
            assert_eq!(timeout(stage).outcome, Outcome::Fail(Reason::Timeout));
        }
    }
}
