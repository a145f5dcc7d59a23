//! serde's complaints in words that say what to write instead.

use super::places::Step;
use super::spelling::{likely, one_of, shown};

/// What a complaint is about, and its words.
pub(super) enum Complaint {
    /// The key's name.
    Key(String),
    /// The key's value.
    Value(String),
}

/// Rewords serde's `message` about the value at `path`.
pub(super) fn reword(message: &str, path: &[Step]) -> Complaint {
    if let Some((key, known)) = unknown_field(message) {
        return Complaint::Key(unknown_key(&key, &known, &pattern(path)));
    }
    if let Some(rest) = message.strip_prefix("invalid type: ")
        && let Some((found, expected)) = rest.split_once(", expected ")
    {
        let (expected, found) = (plain(expected), plain_found(found));
        return Complaint::Value(match path.last() {
            Some(Step::Key(key)) => format!("`{}` takes {expected}, not {found}", shown(key)),
            _ => format!("expected {expected}, found {found}"),
        });
    }
    Complaint::Value(message.to_owned())
}

/// Keys of the sketch that are still to come, by where they are written.
const LATER: &[(&str, &[&str])] = &[
    ("", &["state_dir", "composites", "remediation"]),
    ("listeners[]", &["redirect_https", "tls", "protocols", "proxy_protocol"]),
    ("access_log", &["filter"]),
    ("pools.*", &["passive", "slow_start", "aggregate", "drain", "rescue", "dns_grace", "replace", "sticky"]),
    ("pools.*.probe", &["reuse", "bind", "sni", "alpn"]),
    ("pools.*.balance", &["peak_ewma", "consistent_hash"]),
    ("pools.*.upstream", &["tls", "sni", "verify", "ca", "http2"]),
    ("routes[]", &["pools", "strip_prefix", "failback_delay", "no_failback"]),
];

/// Keys that are often written one level too high or too low: where, which, and where they belong.
const ELSEWHERE: &[(&str, &[&str], &str)] = &[
    (
        "pools.*",
        &[
            "path",
            "method",
            "interval",
            "fast_interval",
            "timeout",
            "expect",
            "window",
            "consecutive",
            "max_latency",
            "max_latency_ratio",
            "latency_floor",
            "max_body",
            "scheme",
            "headers",
        ],
        "under `probe`",
    ),
    ("pools.*", &["connect_timeout", "read_timeout", "write_timeout", "idle_timeout"], "under `upstream`"),
    ("pools.*", &["attempts", "budget", "per_try_timeout"], "under `retries`"),
    ("pools.*", &["latency_sensitivity"], "as `balance: { fastest: { latency_sensitivity: … } }`"),
    ("pools.*.probe", &["status", "body"], "under `expect`"),
    (
        "pools.*.probe",
        &["max_unhealthy_percent", "min_ejected", "on_all_unhealthy", "initial", "initial_wait"],
        "in the pool, beside `probe`",
    ),
    ("pools.*.probe", &["ca", "verify"], "under `tls`"),
    ("pools.*.probe", &["failures", "passes"], "under `consecutive`"),
    ("pools.*.probe", &["size", "required"], "under `window`"),
    ("pools.*.probe", &["user_agent"], "as `headers: { User-Agent: … }`"),
    ("listeners[]", &["trusted_proxies", "access_log"], "at the top of the file"),
];

fn unknown_key(key: &str, known: &[&str], place: &str) -> String {
    if key == "<<" {
        return "unknown key `<<`; merging is not part of this language; write the keys out".to_owned();
    }
    if LATER.iter().any(|(at, keys)| *at == place && keys.contains(&key)) {
        return format!("`{key}` is not supported yet; remove it");
    }
    if let Some((_, _, home)) = ELSEWHERE.iter().find(|(at, keys, _)| *at == place && keys.contains(&key)) {
        return format!("unknown key `{key}`; write it {home}");
    }
    match likely(key, known) {
        Some(name) => format!("unknown key `{}`; did you mean `{name}`?", shown(key)),
        None => format!("unknown key `{}`; known here: {}", shown(key), one_of(known)),
    }
}

/// The key, and the keys that are known, of "unknown field `x`, expected one of `a`, `b`".
fn unknown_field(message: &str) -> Option<(String, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, known) = rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no fields"))?;
    Some((key.to_owned(), known.split('`').skip(1).step_by(2).collect()))
}

/// Where the parent of `path` is: `pools.*.probe`, `listeners[]`.
fn pattern(path: &[Step]) -> String {
    let mut pattern = String::new();
    let parent = path.split_last().map_or(path, |(_, parent)| parent);
    for step in parent {
        match step {
            Step::Item(_) => pattern.push_str("[]"),
            Step::Key(_) if pattern == "pools" => pattern.push_str(".*"),
            Step::Key(key) if pattern.is_empty() => pattern.push_str(key),
            Step::Key(key) => {
                pattern.push('.');
                pattern.push_str(key);
            }
        }
    }
    pattern
}

/// serde's names for shapes, in YAML's words.
fn plain(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "a mapping",
        "a string" => "text",
        other => other,
    }
}

fn plain_found(found: &str) -> String {
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a mapping".to_owned(),
        "unit value" | "Option value" => "nothing".to_owned(),
        other => match other.split_once(' ') {
            Some(("string", text)) => shown(&text.replace('"', "`")),
            Some(("integer" | "boolean", text)) => shown(text),
            Some(("floating", text)) => shown(text.trim_start_matches("point ")),
            _ => shown(other),
        },
    }
}
