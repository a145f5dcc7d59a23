//! What a template can name: every field of the JSON line, dotted where it is nested, and a few that are made of several.
//!
//! A test of `telemetry` keeps [`Field::ALL`] and the JSON line the same. Those of [`Field::TEXT_ALONE`] it does not have: a
//! program puts together what it needs of their parts.

/// One field of a line of the access log. Its meaning is that of the JSON line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is its name in the lists of `Field`, and docs/access-log.md says what that means"
)]
pub enum Field {
    Time,
    RequestId,
    Client,
    Listener,
    Proto,
    Tls,
    Method,
    Scheme,
    Host,
    Path,
    Query,
    Status,
    RequestBytes,
    ResponseBytes,
    DurationMs,
    TtfbMs,
    GrpcStatus,
    UserAgent,
    Referer,
    Route,
    Pool,
    Outcome,
    Reason,
    Upgraded,
    Connection,
    Lb(LbField),
    Attempts(AttemptField),
    Request,
    Target,
    TimeLocal,
}

/// One field of `lb`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "as `Field`")]
pub enum LbField {
    Mode,
    Reason,
    InRotation,
    Total,
    Tier,
    Rank,
    WaitedMs,
}

/// One field of each of `attempts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "as `Field`")]
pub enum AttemptField {
    Member,
    Standing,
    Window,
    ProbeMs,
    Status,
    Result,
    ConnectMs,
    TtfbMs,
    DurationMs,
    Bytes,
    Reused,
    Observed,
}

impl Field {
    /// Those of the JSON line by name, in its order.
    pub const ALL: &[(&str, Field)] = &[
        ("time", Field::Time),
        ("request_id", Field::RequestId),
        ("client", Field::Client),
        ("listener", Field::Listener),
        ("proto", Field::Proto),
        ("tls", Field::Tls),
        ("method", Field::Method),
        ("scheme", Field::Scheme),
        ("host", Field::Host),
        ("path", Field::Path),
        ("query", Field::Query),
        ("status", Field::Status),
        ("request_bytes", Field::RequestBytes),
        ("response_bytes", Field::ResponseBytes),
        ("duration_ms", Field::DurationMs),
        ("ttfb_ms", Field::TtfbMs),
        ("grpc_status", Field::GrpcStatus),
        ("user_agent", Field::UserAgent),
        ("referer", Field::Referer),
        ("route", Field::Route),
        ("pool", Field::Pool),
        ("outcome", Field::Outcome),
        ("reason", Field::Reason),
        ("upgraded", Field::Upgraded),
        ("connection", Field::Connection),
        ("lb.mode", Field::Lb(LbField::Mode)),
        ("lb.reason", Field::Lb(LbField::Reason)),
        ("lb.in_rotation", Field::Lb(LbField::InRotation)),
        ("lb.total", Field::Lb(LbField::Total)),
        ("lb.tier", Field::Lb(LbField::Tier)),
        ("lb.rank", Field::Lb(LbField::Rank)),
        ("lb.waited_ms", Field::Lb(LbField::WaitedMs)),
        ("attempts.member", Field::Attempts(AttemptField::Member)),
        ("attempts.standing", Field::Attempts(AttemptField::Standing)),
        ("attempts.window", Field::Attempts(AttemptField::Window)),
        ("attempts.probe_ms", Field::Attempts(AttemptField::ProbeMs)),
        ("attempts.status", Field::Attempts(AttemptField::Status)),
        ("attempts.result", Field::Attempts(AttemptField::Result)),
        ("attempts.connect_ms", Field::Attempts(AttemptField::ConnectMs)),
        ("attempts.ttfb_ms", Field::Attempts(AttemptField::TtfbMs)),
        ("attempts.duration_ms", Field::Attempts(AttemptField::DurationMs)),
        ("attempts.bytes", Field::Attempts(AttemptField::Bytes)),
        ("attempts.reused", Field::Attempts(AttemptField::Reused)),
        ("attempts.observed", Field::Attempts(AttemptField::Observed)),
    ];

    /// Those of lines of text alone, as the combined format writes them.
    pub const TEXT_ALONE: &[(&str, Field)] =
        &[("request", Field::Request), ("target", Field::Target), ("time_local", Field::TimeLocal)];

    /// The names of all of them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Field::ALL.iter().chain(Field::TEXT_ALONE).map(|(name, _)| *name)
    }

    /// The field of this name.
    pub fn named(name: &str) -> Option<Field> {
        Field::ALL.iter().chain(Field::TEXT_ALONE).find(|(known, _)| *known == name).map(|(_, field)| *field)
    }
}

/// What other products call a field: nginx, and what is close to it. First theirs, then ours, then what is different about
/// ours.
pub(super) const SYNONYMS: &[(&str, &str, &str)] = &[
    ("remote_addr", "client", ""),
    ("binary_remote_addr", "client", ""),
    ("http_x_forwarded_for", "client", "one address, found by `trusted_proxies`"),
    ("time_iso8601", "time", ""),
    ("date", "time", ""),
    ("timestamp", "time", "in ISO 8601"),
    ("msec", "time", "in ISO 8601"),
    ("request_line", "request", ""),
    ("request_method", "method", ""),
    ("request_uri", "target", ""),
    ("uri", "path", "and `$target` with the query"),
    ("url", "target", ""),
    ("args", "query", ""),
    ("query_string", "query", ""),
    ("server_protocol", "proto", ""),
    ("protocol", "proto", ""),
    ("ssl_protocol", "tls", ""),
    ("http_host", "host", ""),
    ("server_name", "host", "as the client sent it"),
    ("http_user_agent", "user_agent", ""),
    ("http_referer", "referer", ""),
    ("request_length", "request_bytes", "the body alone"),
    ("bytes_sent", "response_bytes", "the body alone"),
    ("body_bytes_sent", "response_bytes", ""),
    ("bytes", "response_bytes", ""),
    ("request_time", "duration_ms", "in milliseconds"),
    ("duration", "duration_ms", "in milliseconds"),
    ("ttfb", "ttfb_ms", "in milliseconds"),
    ("lb", "lb.mode", ""),
    ("attempts", "attempts.member", ""),
    ("upstream_addr", "attempts.member", ""),
    ("member", "attempts.member", ""),
    ("upstream_status", "attempts.status", ""),
    ("upstream_connect_time", "attempts.connect_ms", "in milliseconds"),
    ("upstream_header_time", "attempts.ttfb_ms", "in milliseconds"),
    ("upstream_response_time", "attempts.duration_ms", "in milliseconds"),
    ("upstream_bytes_received", "attempts.bytes", "the body alone"),
];
