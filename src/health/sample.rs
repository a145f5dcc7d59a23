//! What one probe taught.

use std::time::Duration;

/// Why a probe failed: a closed list (health.md §1). The words are a contract: logs, API and metrics use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The member's name has no address.
    Dns,
    /// The connection was refused.
    Refused,
    /// No route, or the host or network is unreachable.
    Unreachable,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// The TLS handshake failed; the detail has the name, date or issuer that failed.
    Tls,
    /// No complete answer within the probe's timeout.
    Timeout,
    /// The connection was reset or closed before a complete answer.
    Reset,
    /// What came is not valid HTTP.
    Protocol,
    /// A status outside the expected ones.
    Status,
    /// A field of the answer's header is not there, or has another value than the expected one.
    Header,
    /// The body ended without the expected text.
    Body,
    /// The expected text is not within the part of the body that is kept.
    TooLarge,
    /// Answered rightly, over the latency gate.
    Slow,
}

/// How bad a reason is, mildest first, so that the greatest is ejected first (health.md §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Right but late.
    Slow,
    /// Answers, but wrongly.
    Wrong,
    /// Does not answer.
    Unreachable,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 13] = [
        Reason::Dns,
        Reason::Refused,
        Reason::Unreachable,
        Reason::ConnectTimeout,
        Reason::Tls,
        Reason::Timeout,
        Reason::Reset,
        Reason::Protocol,
        Reason::Status,
        Reason::Header,
        Reason::Body,
        Reason::TooLarge,
        Reason::Slow,
    ];

    /// The class the reason belongs to.
    pub fn class(self) -> Class {
        match self {
            Reason::Slow => Class::Slow,
            Reason::Status | Reason::Header | Reason::Body | Reason::TooLarge => Class::Wrong,
            _ => Class::Unreachable,
        }
    }

    /// The word used in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Dns => "dns",
            Reason::Refused => "refused",
            Reason::Unreachable => "unreachable",
            Reason::ConnectTimeout => "connect_timeout",
            Reason::Tls => "tls",
            Reason::Timeout => "timeout",
            Reason::Reset => "reset",
            Reason::Protocol => "protocol",
            Reason::Status => "status",
            Reason::Header => "header",
            Reason::Body => "body",
            Reason::TooLarge => "too_large",
            Reason::Slow => "slow",
        }
    }
}

/// What a sample says of the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The expected answer came.
    Pass,
    /// It did not, for this reason.
    Fail(Reason),
    /// Nothing was learnt: the probe was cancelled, or the fault is local (descriptors, ports, buffers).
    Inconclusive,
}

/// How long each phase of a probe took; `None` where the phase was not reached or does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases {
    /// Dialling, until the connection stood.
    pub connect: Option<Duration>,
    /// The TLS handshake alone.
    pub tls: Option<Duration>,
    /// From just before dialling to the first byte of the final answer.
    pub first_byte: Option<Duration>,
    /// From just before dialling to the last byte of the body, or to the failure.
    pub total: Duration,
}

/// What one probe taught: an outcome, the words that explain it and the phase times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Pass, fail or nothing learnt.
    pub outcome: Outcome,
    /// For people: `503, expected 200-299`; empty for a pass that needs no words.
    pub detail: String,
    /// The final status of the answer, where there was one.
    pub status: Option<u16>,
    /// Phase times.
    pub phases: Phases,
}

impl Sample {
    /// A pass that took `total`.
    pub fn pass(total: Duration) -> Sample {
        Sample {
            outcome: Outcome::Pass,
            detail: String::new(),
            status: None,
            phases: Phases { total, ..Phases::default() },
        }
    }

    /// A fail for `reason` after `total`.
    pub fn fail(reason: Reason, total: Duration) -> Sample {
        Sample {
            outcome: Outcome::Fail(reason),
            detail: String::new(),
            status: None,
            phases: Phases { total, ..Phases::default() },
        }
    }
}
