//! The closed lists of words in an access-log line (interfaces.md, Access log).
//!
//! A word is a contract: dashboards and alerts are written against it. Each list is one exhaustive match, and metrics
//! take their label values from the same place.

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Outcome {
    /// The client got a whole answer, whoever made it and whatever its status.
    #[default]
    Ok,
    /// The client left before it had its answer.
    ClientAborted,
    /// A member failed: no connection, a reset, an answer that is not HTTP.
    UpstreamError,
    /// A time limit was reached: a member's, the client's, or the request's own.
    Timeout,
    /// We declined: no route, no member, a malformed or oversized request, no permission, shutdown.
    Refused,
    /// A rate or concurrency limit declined.
    Limited,
}

/// Why a request did not go well; an absent one is logged as `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// No route matches host and path.
    NoRoute,
    /// The pool has no member that may take traffic.
    NoMember,
    /// Nobody is healthy and the pool says `on_all_unhealthy: fail`.
    AllUnhealthy,
    /// No connection to the member.
    ConnectFailed,
    /// The TLS handshake with the member failed.
    UpstreamTls,
    /// The member closed before its answer was complete.
    UpstreamReset,
    /// The member did not answer in time.
    UpstreamTimeout,
    /// What the member sent is not valid HTTP.
    UpstreamProtocol,
    /// Every attempt that was allowed has failed.
    RetriesSpent,
    /// The request's own deadline passed.
    Deadline,
    /// The client left.
    ClientAborted,
    /// The request is malformed or ambiguous.
    BadRequest,
    /// The request's header is over the limit.
    HeaderTooLarge,
    /// The request's target is over the limit.
    UriTooLong,
    /// The request's body is over the limit.
    BodyTooLarge,
    /// The request's header did not come in time.
    HeaderTimeout,
    /// The request's body did not come in time.
    BodyTimeout,
    /// Over a rate.
    RateLimited,
    /// Over a bound of our own: connections, waiters, requests in flight.
    Overloaded,
    /// Denied by rule.
    Denied,
    /// No or wrong credentials.
    Unauthorized,
    /// The host does not belong to this listener or connection (RFC 9110 section 15.5.20).
    Misdirected,
    /// Nothing passed through the tunnel for too long.
    TunnelIdle,
    /// The tunnel's member has left the pool, and the time it had then is over.
    TunnelDrained,
    /// Cut by our own shutdown.
    Shutdown,
    /// A fault of ours.
    Internal,
}

/// Why this member: what decided the last pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PickReason {
    /// The policy's choice among healthy members.
    Balanced,
    /// A cookie names it.
    Sticky,
    /// The policy's choice, and the member is unhealthy and in the rotation only by the cap.
    Kept,
    /// Nobody is healthy: round-robin over everyone.
    Fallback,
    /// A lower tier or a later pool of the route serves.
    Failover,
    /// Another member has failed this request before.
    Retry,
    /// Consistent hashing names it.
    Hash,
}

/// How one attempt at one member ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptResult {
    /// A whole answer came, whatever its status.
    Ok,
    /// The dial was refused or found no way.
    ConnectFailed,
    /// The dial took longer than `connect_timeout`.
    ConnectTimeout,
    /// The TLS handshake failed.
    Tls,
    /// Closed or reset before the answer was complete; with `reused: true` and no status, the usual idle race.
    Reset,
    /// A read, write or per-try timeout.
    Timeout,
    /// What came is not valid HTTP.
    Protocol,
    /// We left it, because the member turned unhealthy as unreachable while no byte of the answer had come.
    Rescued,
    /// The client left during it.
    ClientAborted,
    /// We ended it for a reason of our own, which the line's `reason` names: deadline, drain limit, a limit on the body.
    Abandoned,
}

impl Outcome {
    /// The word in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::ClientAborted => "client_aborted",
            Outcome::UpstreamError => "upstream_error",
            Outcome::Timeout => "timeout",
            Outcome::Refused => "refused",
            Outcome::Limited => "limited",
        }
    }
}

impl Why {
    /// The word in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::NoRoute => "no_route",
            Why::NoMember => "no_member",
            Why::AllUnhealthy => "all_unhealthy",
            Why::ConnectFailed => "connect_failed",
            Why::UpstreamTls => "upstream_tls",
            Why::UpstreamReset => "upstream_reset",
            Why::UpstreamTimeout => "upstream_timeout",
            Why::UpstreamProtocol => "upstream_protocol",
            Why::RetriesSpent => "retries_spent",
            Why::Deadline => "deadline",
            Why::ClientAborted => "client_aborted",
            Why::BadRequest => "bad_request",
            Why::HeaderTooLarge => "header_too_large",
            Why::UriTooLong => "uri_too_long",
            Why::BodyTooLarge => "body_too_large",
            Why::HeaderTimeout => "header_timeout",
            Why::BodyTimeout => "body_timeout",
            Why::RateLimited => "rate_limited",
            Why::Overloaded => "overloaded",
            Why::Denied => "denied",
            Why::Unauthorized => "unauthorized",
            Why::Misdirected => "misdirected",
            Why::TunnelIdle => "tunnel_idle",
            Why::TunnelDrained => "tunnel_drained",
            Why::Shutdown => "shutdown",
            Why::Internal => "internal",
        }
    }
}

impl PickReason {
    /// The word in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            PickReason::Balanced => "balanced",
            PickReason::Sticky => "sticky",
            PickReason::Kept => "kept",
            PickReason::Fallback => "fallback",
            PickReason::Failover => "failover",
            PickReason::Retry => "retry",
            PickReason::Hash => "hash",
        }
    }
}

impl AttemptResult {
    /// Every result.
    pub const ALL: [AttemptResult; 10] = [
        AttemptResult::Ok,
        AttemptResult::ConnectFailed,
        AttemptResult::ConnectTimeout,
        AttemptResult::Tls,
        AttemptResult::Reset,
        AttemptResult::Timeout,
        AttemptResult::Protocol,
        AttemptResult::Rescued,
        AttemptResult::ClientAborted,
        AttemptResult::Abandoned,
    ];

    /// The word in logs and the label value in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptResult::Ok => "ok",
            AttemptResult::ConnectFailed => "connect_failed",
            AttemptResult::ConnectTimeout => "connect_timeout",
            AttemptResult::Tls => "tls",
            AttemptResult::Reset => "reset",
            AttemptResult::Timeout => "timeout",
            AttemptResult::Protocol => "protocol",
            AttemptResult::Rescued => "rescued",
            AttemptResult::ClientAborted => "client_aborted",
            AttemptResult::Abandoned => "abandoned",
        }
    }
}
