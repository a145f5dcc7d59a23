//! How a pool's members are probed, and judged by what the probes teach.

use std::net::IpAddr;
use std::time::Duration;

use super::address::{host_field, host_name};
use super::domain::{Alpn, Expect, GrpcProbe, HttpProbe, Idle, Probe, ProbeKind, ProbeMethod, Upstream};
use super::file::{ExpectKeys, ProbeKeys};
use super::judge::{gates, judge};
use super::member::Listed;
use super::parse::filled;
use super::preset::{Base, Preset};
use super::proof::{Proof, proof};
use super::reading::{DAY, Reading, TICK};
use super::spelling::{Spelled, Statuses, shown, spell_duration};
use super::tls;
use super::words::{Headers, Kind, Or, ProbeWord};
use crate::health::{Admin, Gates, Judge};

/// Shorter intervals would be an attack on the member.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// What `idle: {}` leaves open, where no preset says otherwise.
const IDLE: Idle = Idle { after: Duration::from_secs(5 * 60), interval: Duration::from_secs(2 * 60) };
/// Bytes of a probe's body that are kept, unless `max_body` is written.
const MAX_BODY: usize = 64 << 10;
/// Longest body match of Application Gateway, in characters (product.md G7).
const GATEWAY_NEEDLE: usize = 4090;

/// A pool's probe and how its samples are judged.
pub(super) struct Probing {
    /// `None` with `probe: off`.
    pub(super) probe: Option<Probe>,
    pub(super) judge: Judge,
    pub(super) gates: Gates,
    /// It judges nothing, and its samples are only shown.
    pub(super) only_observes: bool,
}

/// What `probe:` means in the pool that `pool` stands on.
pub(super) fn probing(
    name: &str,
    written: Option<&Or<ProbeWord, ProbeKeys>>,
    preset: Option<Preset>,
    base: &Base,
    listed: &Listed,
    upstream: &Upstream,
    pool: &mut Reading<'_>,
) -> Probing {
    let bare = ProbeKeys::default();
    // Nobody is judged; our own judge stands in, whatever the preset.
    let unprobed = Probing { probe: None, judge: Base::of(None).judge, gates: Gates::default(), only_observes: false };
    let bare_kind = if preset.is_none() { Kind::Tcp } else { Kind::Http };
    let (keys, kind) = match written {
        // The probe was written and refused: say nothing of what it lacks.
        None if pool.at.lost("probe") => return unprobed,
        None => (&bare, bare_kind),
        Some(Or::Word(ProbeWord::Off)) => {
            if let Some(why) = needs_probes(name, preset, listed) {
                pool.error("probe", why);
            }
            return unprobed;
        }
        Some(Or::Word(ProbeWord::Tcp)) => (&bare, Kind::Tcp),
        Some(Or::Word(ProbeWord::Grpc)) => (&bare, Kind::Grpc),
        Some(Or::Keys(keys)) => (keys, keys.kind.map_or(Kind::Http, |Spelled(kind)| kind)),
    };
    if let Some(preset) = preset
        && kind != Kind::Http
    {
        let (preset, kind) = (preset.as_str(), kind.as_str());
        pool.error("probe", format!("preset {preset} probes over http; remove `preset`, or `{kind}`"));
    }
    let mut read = pool.under("probe");
    let (interval, fast_interval, timeout) = pace(keys, base, &mut read);
    let idle = idle(keys, base, interval, &mut read);
    refuse_keys_of_others(keys, kind, &mut read);
    let kind = match kind {
        Kind::Tcp => ProbeKind::Tcp,
        Kind::Http => ProbeKind::Http(http(name, keys, preset, base, upstream, &mut read)),
        Kind::Grpc => ProbeKind::Grpc(grpc(keys, upstream, &mut read)),
    };
    let auth = auth(keys, preset, &kind, &mut read);
    let bind = bind(keys, listed, &mut read);
    let port = read.count("port", &keys.port, 1..=u16::MAX);
    let judge = judge(keys, preset, base, &mut read);
    let gates = gates(keys, judge, &mut read);
    let only_observes = keys.observe.is_some_and(|Spelled(observe)| observe);
    if let Some(why) = needs_probes(name, preset, listed).filter(|_| only_observes) {
        read.error("observe", format!("{why}, and this one would judge nobody"));
    }
    let reuse = keys.reuse.is_some_and(|Spelled(reuse)| reuse) && kind != ProbeKind::Tcp;
    Probing {
        probe: Some(Probe { kind, port, reuse, bind, auth, interval, fast_interval, timeout, idle }),
        judge,
        gates,
        only_observes,
    }
}

/// Why the members of the pool have to be judged by probes.
fn needs_probes(name: &str, preset: Option<Preset>, listed: &Listed) -> Option<String> {
    let enabled = listed.members.iter().filter(|m| m.state == Admin::Enabled).count();
    let has = match listed.services.is_empty() && listed.files.is_empty() {
        true => (enabled > 1).then(|| format!("has {enabled} enabled members")),
        false => Some("takes as many members as its sources name".to_owned()),
    };
    let has = has.filter(|_| preset == Some(Preset::FrontDoor))?;
    Some(format!("preset front_door needs probes: pool \"{name}\" {has}"))
}

/// Interval, fast interval and timeout: what is not written is at most the interval, what is written must be.
fn pace(keys: &ProbeKeys, base: &Base, read: &mut Reading<'_>) -> (Duration, Duration, Duration) {
    let interval = read.span("interval", &keys.interval, MIN_INTERVAL..=DAY);
    let named = match interval {
        Some(interval) => format!("the interval, {}", spell_duration(interval)),
        None => format!("the interval, {} unless written", spell_duration(base.interval)),
    };
    // No comparison with a default where another interval was meant.
    let wrong = keys.interval.is_some() && interval.is_none() || read.at.lost("interval");
    let interval = interval.unwrap_or(base.interval);
    let mut within = |key: &str, written, least, default: Duration| {
        let value = read.span(key, written, least..=DAY).unwrap_or(default.min(interval));
        if value > interval && !wrong {
            read.error(
                key,
                format!(
                    "`{key}`, {}, is longer than {named}; shorten it or lengthen `interval`",
                    spell_duration(value)
                ),
            );
        }
        value
    };
    let fast_interval =
        within("fast_interval", &keys.fast_interval, MIN_INTERVAL, base.fast_interval.unwrap_or(interval));
    let timeout = within("timeout", &keys.timeout, TICK, base.timeout);
    (interval, fast_interval, timeout)
}

/// How a pool without traffic is probed. A preset's own interval gives way to a longer one that is written.
fn idle(keys: &ProbeKeys, base: &Base, interval: Duration, read: &mut Reading<'_>) -> Option<Idle> {
    let default = base.idle.unwrap_or(IDLE);
    let keys = match &keys.idle {
        Some(Or::Word(_)) => return None,
        Some(Or::Keys(keys)) => keys,
        None => return base.idle.map(|idle| Idle { interval: idle.interval.max(interval), ..idle }),
    };
    let mut read = read.under("idle");
    let after = read.span("after", &keys.after, Duration::from_secs(1)..=DAY).unwrap_or(default.after);
    let wanted = read.span("interval", &keys.interval, MIN_INTERVAL..=DAY);
    if wanted.is_some_and(|wanted| wanted < interval) {
        let message = format!(
            "an idle pool would be probed more often than one in use; write at least the interval, {}",
            spell_duration(interval)
        );
        read.error("interval", message);
    }
    Some(Idle { after, interval: wanted.unwrap_or(default.interval).max(interval) })
}

/// Keys that only other kinds of probe have.
fn refuse_keys_of_others(keys: &ProbeKeys, kind: Kind, read: &mut Reading<'_>) {
    let http: &[Kind] = &[Kind::Http];
    let both: &[Kind] = &[Kind::Http, Kind::Grpc];
    let written = [
        ("service", keys.service.is_some(), &[Kind::Grpc][..]),
        ("method", keys.method.is_some(), http),
        ("path", keys.path.is_some(), http),
        ("host", keys.host.is_some(), both),
        ("host_header", keys.host_header.is_some(), both),
        ("scheme", keys.scheme.is_some(), both),
        ("tls", keys.tls.is_some(), both),
        ("http2", keys.http2.is_some(), http),
        ("reuse", keys.reuse.is_some(), both),
        ("headers", keys.headers.is_some(), both),
        ("auth", keys.auth.is_some(), both),
        ("expect", keys.expect.is_some(), http),
        ("max_body", keys.max_body.is_some(), http),
    ];
    for (key, _, kinds) in written.iter().filter(|(_, written, kinds)| *written && !kinds.contains(&kind)) {
        let place = read.at.key(key).name();
        let (kind, its) = (kind.as_str(), kinds.first().map_or("", |kind| kind.as_str()));
        let message = match kind {
            "http" => format!("an http probe has no `{key}`; remove it, or write `kind: {its}`"),
            "grpc" if *key == "http2" => "a grpc probe speaks HTTP/2 anyway; remove `http2`".to_owned(),
            _ => format!("a {kind} probe has no `{key}`; remove it, or `kind: {kind}`"),
        };
        read.problems.error_at(place, message);
    }
}

fn grpc(keys: &ProbeKeys, upstream: &Upstream, read: &mut Reading<'_>) -> GrpcProbe {
    let service = read.text("service", &keys.service, |text| match text.chars().any(char::is_control) {
        true => Err("the name of a service has no control characters".to_owned()),
        false => Ok(text.to_owned()),
    });
    let (host, host_header) = hosts(keys, read);
    GrpcProbe {
        tls: tls::of_probe(keys, Alpn::Http2, host.as_deref(), upstream.tls.as_ref(), read),
        service: service.unwrap_or_default(),
        host,
        host_header,
        headers: keys.headers.as_ref().map_or_else(Vec::new, |h| headers(h, Kind::Grpc, read.under("headers"))),
    }
}

/// `host` and `host_header`.
fn hosts(keys: &ProbeKeys, read: &mut Reading<'_>) -> (Option<String>, Option<String>) {
    let host = read.text("host", &keys.host, |text| {
        host_name(text).map_err(|e| format!("{e}; `host` is a name or an address, a port goes into `host_header`"))
    });
    (host, read.text("host_header", &keys.host_header, host_field))
}

fn http(
    pool: &str,
    keys: &ProbeKeys,
    preset: Option<Preset>,
    base: &Base,
    upstream: &Upstream,
    read: &mut Reading<'_>,
) -> HttpProbe {
    let method = keys.method.map_or(base.method, |Spelled(method)| method);
    let path = match (&keys.path, base.path) {
        (Some(_), _) => read.text("path", &keys.path, probe_path),
        (None, Some(path)) => Some(path.to_owned()),
        // Which kind was meant is not known.
        (None, None) if read.at.lost("kind") => None,
        (None, None) => {
            let message = match preset {
                Some(preset) => {
                    format!(
                        "preset {} has no default path; write `probe: {{ path: /healthz }}` in pool \"{pool}\"",
                        preset.as_str()
                    )
                }
                None => format!(
                    "the probe of pool \"{pool}\" has no path; write `path: /healthz`, or `kind: tcp` for a connection alone"
                ),
            };
            read.missing("path", message);
            None
        }
    };
    let (host, host_header) = hosts(keys, read);
    let http2 = keys.http2.is_some_and(|Spelled(http2)| http2);
    let spoken = if http2 { Alpn::Http2 } else { Alpn::Http1 };
    let default_header = if keys.host.is_some() { None } else { base.host_header.map(str::to_owned) };
    let max_body = read.bytes("max_body", &keys.max_body, 1..=16 << 20).unwrap_or(MAX_BODY);
    HttpProbe {
        tls: tls::of_probe(keys, spoken, host.as_deref(), upstream.tls.as_ref(), read),
        http2,
        method,
        path: path.unwrap_or_else(|| "/".to_owned()),
        host,
        host_header: host_header.or(default_header),
        headers: keys.headers.as_ref().map_or_else(Vec::new, |h| headers(h, Kind::Http, read.under("headers"))),
        expect: expect(keys.expect.as_ref(), method, max_body, preset, base, read),
        max_body,
    }
}

fn probe_path(path: &str) -> Result<String, String> {
    let text = shown(path);
    if path.is_empty() {
        return Err("the path is empty; write `/`, or better one that tests the application".to_owned());
    }
    if !path.starts_with('/') {
        return Err(format!("`{text}` does not begin with `/`; write `/{}`", shown(path.trim_start())));
    }
    if path.contains('#') {
        return Err(format!("`{text}`: what follows `#` is never sent; remove it"));
    }
    if let Some(c) = path.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(format!(
            "`{text}` holds `{}`, which cannot be in a request; write it percent-encoded",
            shown(&c.to_string())
        ));
    }
    Ok(path.to_owned())
}

/// Fields that the probe needs to set itself.
const OWN_FIELDS: &[(&str, &str)] = &[
    ("host", "write `host`, or `host_header` for the field alone"),
    ("accept-encoding", "`identity` is always sent, so that the body can be searched"),
    ("content-length", "a probe has no body"),
    ("transfer-encoding", "a probe has no body"),
    ("connection", "each probe has a connection of its own, or with `reuse: true` keeps it"),
    ("keep-alive", "each probe has a connection of its own, or with `reuse: true` keeps it"),
    ("proxy-connection", "each probe has a connection of its own, or with `reuse: true` keeps it"),
    ("te", "gRPC needs its own, and nobody else one"),
    ("trailer", "a probe has no body"),
    ("upgrade", "a probe speaks HTTP/1.1, or with `http2: true` HTTP/2"),
    ("expect", "a probe has no body"),
];

/// Why the probe sets this field itself; `None`: it does not.
pub(super) fn own_field(name: &str) -> Option<&'static str> {
    OWN_FIELDS.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, why)| *why)
}

fn auth(keys: &ProbeKeys, preset: Option<Preset>, kind: &ProbeKind, read: &mut Reading<'_>) -> Option<Proof> {
    let headers = match kind {
        ProbeKind::Tcp => return None,
        ProbeKind::Http(http) => &http.headers,
        ProbeKind::Grpc(grpc) => &grpc.headers,
    };
    proof(keys.auth.as_ref()?, preset, headers, read)
}

/// Where probes come from. A name may have addresses of both families; a literal is of one.
fn bind(keys: &ProbeKeys, listed: &Listed, read: &mut Reading<'_>) -> Option<IpAddr> {
    let Spelled(bind) = keys.bind?;
    if bind.is_unspecified() || bind.is_multicast() {
        read.error("bind", format!("`{bind}` is not an address of this machine; write one, or remove `bind`"));
    }
    let is_other = |ip: IpAddr| ip.is_ipv4() != bind.is_ipv4();
    let other = listed.members.iter().find(|member| member.host.parse().is_ok_and(is_other));
    if let Some(member) = other {
        let message = format!("member {} cannot be reached from {bind}: one is IPv4, the other IPv6", member.name);
        read.error("bind", message);
    }
    Some(bind)
}

fn headers(written: &Headers, kind: Kind, mut read: Reading<'_>) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for (name, value) in &written.0 {
        let (place, lower) = (read.at.key(name).name(), name.to_ascii_lowercase());
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            read.problems.error_at(
                place,
                format!("`{}` cannot be the name of a field; use letters, digits and `-`", shown(name)),
            );
        } else if let Some(why) = own_field(name) {
            read.problems.error_at(place, format!("`{name}` is the probe's own: {why}"));
        } else if kind == Kind::Grpc && (lower == "content-type" || lower.starts_with("grpc-")) {
            read.problems.error_at(place, format!("`{name}` is the probe's own: gRPC needs it"));
        } else if fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            read.problems.error_at(place, format!("field `{name}` is written twice"));
        } else if !is_field_value(value) {
            // The value is not shown: it may be a secret from the environment.
            read.error(
                name,
                format!("the value of `{name}` can hold printable ASCII only, without blanks at its ends"),
            );
        } else {
            fields.push((name.clone(), value.clone()));
        }
    }
    fields
}

/// RFC 9110 section 5.6.2.
pub(super) fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// RFC 9110 section 5.5, without the obsolete bytes above 127.
fn is_field_value(value: &str) -> bool {
    value.bytes().all(|b| b == b'\t' || (0x20..0x7f).contains(&b)) && value.trim_matches([' ', '\t']) == value
}

fn expect(
    written: Option<&ExpectKeys>,
    method: ProbeMethod,
    max_body: usize,
    preset: Option<Preset>,
    base: &Base,
    probe: &mut Reading<'_>,
) -> Expect {
    let head_is_written = probe.at.key("method").exists();
    let mut read = probe.under("expect");
    let status = written.and_then(|e| e.status.clone()).map_or_else(|| vec![base.status], |Spelled(Statuses(s))| s);
    let body = written.and_then(|e| filled(&e.body));
    if let Some(body) = body {
        if body.is_empty() {
            read.error("body", "`body` is empty and would match anything; remove it");
        }
        if method == ProbeMethod::Head {
            let whose = if head_is_written { "the probe's method" } else { "the preset's method" };
            read.error("body", format!("an answer to HEAD, {whose}, has no body to search; write `method: GET`"));
        }
        if preset == Some(Preset::ApplicationGateway) && body.chars().count() > GATEWAY_NEEDLE {
            read.error("body", format!("preset application_gateway matches at most {GATEWAY_NEEDLE} characters"));
        }
        if body.len() > max_body {
            read.error(
                "body",
                format!("`body` is longer than the {max_body} bytes that are searched; raise `max_body`"),
            );
        }
    }
    let headers =
        written.and_then(|e| e.headers.as_ref()).map_or_else(Vec::new, |h| expected(h, read.under("headers")));
    Expect { status, headers, body: body.map(str::to_owned) }
}

/// What stands for any value of an expected field.
pub(super) const ANY: &str = "*";

/// The fields that an answer must have. Of several lines of a name one has to fit, whole.
fn expected(written: &Headers, mut read: Reading<'_>) -> Vec<(String, Option<String>)> {
    let mut fields: Vec<(String, Option<String>)> = Vec::new();
    for (name, value) in &written.0 {
        let (place, lower) = (read.at.key(name).name(), name.to_ascii_lowercase());
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            read.problems.error_at(place, format!("`{}` cannot be the name of a field", shown(name)));
        } else if fields.iter().any(|(other, _)| *other == lower) {
            read.problems.error_at(place, format!("field `{name}` is written twice"));
        } else if !is_field_value(value) {
            read.error(name, format!("the value of `{name}` can be printable ASCII only, without blanks at its ends"));
        } else {
            fields.push((lower, Some(value.clone()).filter(|value| value != ANY)));
        }
    }
    // Their order means nothing, and must not be taken for another probe.
    fields.sort();
    fields
}
