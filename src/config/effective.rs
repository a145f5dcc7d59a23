//! The whole configuration as it is in force, every default written out: in proxy.yaml's own language, so that it can
//! be read back once what is null is left out. Secrets are masked: the token, what webhooks and cookies are signed with, and fields and query parameters of probes whose name sounds like one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::access_log::{AccessLog, LogFilter, LogFormat, Sink, spell_sample};
use super::alert::{Alert, Trigger};
use super::diagnostics::Diagnostics;
use super::domain::{
    Action, Alpn, Capacity, Composite, Config, GrpcProbe, HashKey, HttpProbe, Idle, Limits, Listener, Member, Observed,
    Passive, Pool, Probe, ProbeKind, ProbeMethod, Publish, Queue, Remediation, Resolver, Retries, Service, Tls,
    Tunnels, Upstream, UpstreamHost, Webhook,
};
use super::probe::ANY;
use super::proof::{Proof, Secret};
use super::reading::spell_bytes;
use super::spelling::{spell_duration, spell_range};
use super::sticky::{Secure, Sticky};
use crate::balance::{Memory, Policy};
use crate::health::{Admin, Aggregate, Eject, Initial, Judge, OnAllUnhealthy, Rules};
use crate::route::{Host, Rank, Route};

/// Stands where a secret is.
const MASK: &str = "********";

impl Config {
    /// Every key with the value in force, as proxy.yaml would write it; a secret is masked. A key that is null leaves the
    /// matter to the machine or means nothing; one that is missing is off or without limit.
    pub fn effective(&self) -> Value {
        let admin = match &self.admin {
            None => json!("off"),
            Some(admin) => object([
                ("address", Some(json!(admin.address.to_string()))),
                ("token", admin.token.as_ref().map(|_| json!(MASK))),
            ]),
        };
        let pools: Map<String, Value> = self.pools.iter().map(|(name, p)| (name.clone(), pool(p))).collect();
        let composites: Map<String, Value> =
            self.written_composites().iter().map(|one| (one.name.to_string(), composite(one))).collect();
        object([
            ("version", Some(json!(1))),
            ("listeners", Some(json!(self.listeners.iter().map(listener).collect::<Vec<_>>()))),
            ("admin", Some(json!(admin))),
            ("access_log", Some(access_log(&self.access_log))),
            ("trusted_proxies", Some(json!(self.trusted_proxies.iter().map(|r| r.to_string()).collect::<Vec<_>>()))),
            ("lame_duck", Some(json!(span(self.lame_duck)))),
            ("drain_timeout", Some(json!(span(self.drain_timeout)))),
            ("max_concurrent_probes", Some(json!(self.max_concurrent_probes))),
            ("max_probes_per_second", self.max_probes_per_second.map(|most| json!(most))),
            ("diagnostics", self.diagnostics.as_ref().map(diagnostics)),
            ("threads", Some(json!(self.threads))),
            ("resolver", Some(resolver(&self.resolver))),
            ("reload", Some(json!({ "watch": self.reload.watch, "every": span(self.reload.every) }))),
            ("state_dir", self.state_dir.as_ref().map(|path| json!(escape(&path.display().to_string())))),
            ("remediation", Some(json!({ "max_global": self.max_global }))),
            ("alerts", (!self.alerts.is_empty()).then(|| self.alerts.iter().map(alert).collect())),
            ("pools", Some(json!(pools))),
            ("composites", (!composites.is_empty()).then(|| json!(composites))),
            ("routes", Some(json!(self.routes.iter().map(route).collect::<Vec<_>>()))),
        ])
    }
}

impl Pool {
    /// The keys in which it differs from `other`, secrets included.
    pub fn differing_keys(&self, other: &Pool) -> Vec<String> {
        let keys = |pool| match self::pool(pool) {
            Value::Object(keys) => keys,
            _ => Map::new(),
        };
        let (mut mine, theirs) = (keys(self), keys(other));
        // A secret is masked in both.
        let mut differing: BTreeSet<String> = BTreeSet::new();
        if self.probe != other.probe {
            differing.insert("probe".to_owned());
        }
        if self.remediation != other.remediation {
            differing.insert("remediation".to_owned());
        }
        if self.sticky != other.sticky {
            differing.insert("sticky".to_owned());
        }
        for (key, value) in theirs {
            if mine.remove(&key).as_ref() != Some(&value) {
                differing.insert(key);
            }
        }
        differing.extend(mine.into_iter().map(|(key, _)| key));
        differing.into_iter().collect()
    }
}

fn diagnostics(diagnostics: &Diagnostics) -> Value {
    let Diagnostics { path, max_files, max_bytes } = diagnostics;
    json!({
        "path": escape(&path.display().to_string()),
        "max_files": max_files,
        "max_bytes": spell_bytes(*max_bytes),
    })
}

fn access_log(log: &AccessLog) -> Value {
    let path = match &log.sink {
        Sink::Off => return json!("off"),
        Sink::Stdout => "stdout".to_owned(),
        Sink::File(path) => escape(&path.display().to_string()),
    };
    let format = match &log.format {
        LogFormat::Json => "json".to_owned(),
        LogFormat::Combined => "combined".to_owned(),
        LogFormat::Template(template) => escape(template.text()),
    };
    object([
        ("path", Some(json!(path))),
        ("format", Some(json!(format))),
        ("filter", Some(json!(log.filter.as_ref().map(filter)))),
    ])
}

fn filter(filter: &LogFilter) -> Value {
    let status = statuses(&filter.status);
    object([
        ("status", (!filter.status.is_empty()).then(|| json!(status))),
        ("min_duration", filter.min_duration.map(span)),
        ("sample", Some(json!(spell_sample(filter.sample)))),
    ])
}

/// As `200-299,403`.
fn statuses(ranges: &[(u16, u16)]) -> String {
    ranges.iter().map(|range| spell_range(*range)).collect::<Vec<_>>().join(",")
}

fn listener(listener: &Listener) -> Value {
    let Limits {
        max_connections,
        header_timeout,
        keepalive_timeout,
        keepalive_requests,
        body_timeout,
        write_timeout,
        max_header_bytes,
        max_header_fields,
        max_uri_bytes,
    } = listener.limits;
    json!({
        "address": listener.address.to_string(),
        "name": listener.name,
        "max_connections": max_connections,
        "header_timeout": span(header_timeout),
        "keepalive_timeout": span(keepalive_timeout),
        "keepalive_requests": keepalive_requests,
        "body_timeout": span(body_timeout),
        "write_timeout": span(write_timeout),
        "max_header_bytes": spell_bytes(max_header_bytes as u64),
        "max_header_fields": max_header_fields,
        "max_uri_bytes": spell_bytes(max_uri_bytes as u64),
    })
}

fn pool(pool: &Pool) -> Value {
    // As it is written: a probe that only observes has a judge and an `initial` all the same.
    let watched = pool.observed.as_ref().filter(|observed| observed.has_probe());
    let of_probe = watched.map_or(&pool.rules, |observed| &observed.rules);
    let initial = of_probe.initial;
    let Rules {
        judge: _,
        initial: _,
        initial_wait,
        max_unhealthy_percent,
        min_ejected,
        on_all_unhealthy,
        tier_min_healthy_percent,
        aggregate,
        gates: _,
        slow_start,
        drain,
        eject: _,
        probed: _,
        memory: _,
        rolls: _,
    } = pool.rules;
    object([
        ("members", Some(members(pool))),
        ("each_member", each_member(pool.each_member)),
        ("balance", Some(balance(&pool.balance, pool.hash_key.as_ref()))),
        ("max_unhealthy_percent", Some(json!(max_unhealthy_percent))),
        ("min_ejected", Some(json!(min_ejected))),
        ("on_all_unhealthy", Some(json!(on_all_unhealthy_word(on_all_unhealthy)))),
        ("tier_min_healthy_percent", tier_min_healthy_percent.map(|percent| json!(percent))),
        ("aggregate", aggregate.map(self::aggregate)),
        ("initial", Some(json!(initial_word(initial)))),
        ("initial_wait", Some(span(initial_wait))),
        ("slow_start", Some(span(slow_start))),
        ("drain", Some(span(drain))),
        ("probe", Some(pool.probe.as_ref().map_or(json!("off"), |p| probe(p, of_probe, watched.is_some())))),
        ("upstream", Some(upstream(&pool.upstream))),
        ("retries", Some(retries(pool.retries))),
        ("passive", Some(passive(pool))),
        ("rescue", Some(json!(pool.rescue))),
        ("tunnels", Some(tunnels(pool.tunnels))),
        ("deadline", pool.deadline.map(span)),
        // Every key is written out, but for what only this one says.
        ("preset", pool.only_one_enabled.then_some(json!("front_door"))),
        ("required", Some(json!(pool.required))),
        ("max_in_flight", pool.capacity.max_in_flight.map(|most| json!(most))),
        ("max_connections", pool.capacity.max_connections.map(|most| json!(most))),
        ("queue", pool.queue.map(queue)),
        ("sticky", pool.sticky.as_ref().map(sticky)),
        ("remediation", Some(remediation(pool))),
        ("observe", pool.observed.as_deref().and_then(observe)),
    ])
}

fn sticky(sticky: &Sticky) -> Value {
    let Sticky { cookie, ttl, secret, previous, same_site, secure, http_only, path } = sticky;
    let text = |secret: &Option<Secret>| matches!(secret, Some(Secret::Text(_))).then(|| json!(MASK));
    let file = |secret: &Option<Secret>| {
        let path = secret.as_ref().and_then(Secret::file);
        path.map(|path| json!(escape(&path.display().to_string())))
    };
    let secure = match secure {
        Secure::Auto => json!("auto"),
        Secure::Always => json!(true),
        Secure::Never => json!(false),
    };
    object([
        ("cookie", Some(json!(cookie))),
        ("ttl", Some(span(*ttl))),
        ("secret", text(secret)),
        ("secret_file", file(secret)),
        ("previous_secret", text(previous)),
        ("previous_secret_file", file(previous)),
        ("same_site", Some(json!(same_site.as_str()))),
        ("secure", Some(secure)),
        ("http_only", Some(json!(http_only))),
        ("path", Some(json!(path))),
    ])
}

/// The rules that are tried, and only those.
fn observe(observed: &Observed) -> Option<Value> {
    let rules = &observed.rules;
    let value = |key: &str| match key {
        "max_unhealthy_percent" => Some(json!(rules.max_unhealthy_percent)),
        "min_ejected" => Some(json!(rules.min_ejected)),
        "on_all_unhealthy" => Some(json!(on_all_unhealthy_word(rules.on_all_unhealthy))),
        "tier_min_healthy_percent" => rules.tier_min_healthy_percent.map(|percent| json!(percent)),
        "aggregate" => rules.aggregate.map(aggregate),
        "window" | "consecutive" => Some(judge(rules.judge).1),
        "max_latency" => rules.gates.max_latency.map(span),
        "max_latency_ratio" => rules.gates.max_latency_ratio.map(|ratio| json!(ratio)),
        "latency_floor" => Some(span(rules.gates.latency_floor)),
        "passive" => rules.eject.map(|rules| json!({ "eject": eject(rules) })),
        _ => None,
    };
    let keys: Map<String, Value> =
        observed.keys.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect();
    (!keys.is_empty()).then_some(Value::Object(keys))
}

/// The judge's key and its numbers.
fn judge(judge: Judge) -> (&'static str, Value) {
    match judge {
        Judge::Window { size, required } => ("window", json!({ "size": size, "required": required })),
        Judge::Consecutive { failures, passes } => ("consecutive", json!({ "failures": failures, "passes": passes })),
    }
}

fn remediation(pool: &Pool) -> Value {
    let Some(remediation) = pool.remediation.as_ref().or(pool.observed_remediation.as_ref()) else {
        return json!("off");
    };
    let Remediation { after, action, limits } = remediation;
    let (command, timeout, webhook) = match action {
        Action::Command { argv, timeout } => {
            let argv: Vec<String> = argv.iter().map(|argument| escape(argument)).collect();
            (Some(json!(argv)), Some(span(*timeout)), None)
        }
        Action::Webhook(webhook) => (None, None, Some(self::webhook(webhook))),
    };
    object([
        ("after", Some(span(*after))),
        ("command", command),
        ("timeout", timeout),
        ("webhook", webhook),
        ("max_per_hour", Some(json!(limits.per_hour))),
        ("max_per_day", Some(json!(limits.per_day))),
        ("observe", pool.observed_remediation.is_some().then_some(json!(true))),
    ])
}

fn alert(alert: &Alert) -> Value {
    let Alert { name, webhook, on, pools } = alert;
    object([
        ("name", Some(json!(**name))),
        ("webhook", Some(self::webhook(webhook))),
        ("on", Some(on.iter().map(Trigger::spelled).collect())),
        ("pools", pools.as_ref().map(|pools| json!(pools))),
    ])
}

fn webhook(webhook: &Webhook) -> Value {
    let Webhook { url, secret, timeout, retries } = webhook;
    let (secret, file) = match secret {
        Secret::Text(_) => (Some(json!(MASK)), None),
        Secret::File(path) => (None, Some(json!(escape(&path.display().to_string())))),
    };
    object([
        ("url", Some(json!(escape(&without_secrets(&url.to_string()))))),
        ("secret", secret),
        ("secret_file", file),
        ("timeout", Some(span(*timeout))),
        ("retries", Some(json!(retries))),
    ])
}

/// Sources are told, not what they say now.
fn members(pool: &Pool) -> Value {
    let service = |service: &Service| {
        let Service { name, known_as, weight, tier, state, capacity } = service;
        object([
            ("srv", Some(json!(name))),
            ("host", known_as.as_ref().map(|host| json!(host))),
            ("weight", Some(json!(weight))),
            ("tier", Some(json!(tier))),
            ("state", Some(json!(state.as_str()))),
            ("max_in_flight", capacity.max_in_flight.map(|most| json!(most))),
            ("max_connections", capacity.max_connections.map(|most| json!(most))),
        ])
    };
    let file = |path: &PathBuf| json!({ "file": escape(&path.display().to_string()) });
    let members = pool.members.iter().map(member).chain(pool.services.iter().map(service));
    members.chain(pool.files.iter().map(file)).collect()
}

fn member(member: &Member) -> Value {
    let state = match member.state {
        Admin::Enabled => "enabled",
        Admin::Draining => "draining",
        Admin::Disabled => "disabled",
    };
    object([
        ("address", Some(json!(member.name))),
        ("host", member.known_as.as_ref().map(|host| json!(host))),
        ("weight", Some(json!(member.weight))),
        ("tier", Some(json!(member.tier))),
        ("state", Some(json!(state))),
        ("max_in_flight", member.capacity.max_in_flight.map(|most| json!(most))),
        ("max_connections", member.capacity.max_connections.map(|most| json!(most))),
    ])
}

fn each_member(each: Capacity) -> Option<Value> {
    let keys = object([
        ("max_in_flight", each.max_in_flight.map(|most| json!(most))),
        ("max_connections", each.max_connections.map(|most| json!(most))),
    ]);
    (each != Capacity::default()).then_some(keys)
}

fn resolver(resolver: &Resolver) -> Value {
    let Resolver { servers, timeout, min_refresh, max_refresh, grace } = resolver;
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    object([
        ("servers", Some(json!((!servers.is_empty()).then_some(servers)))),
        ("timeout", Some(span(*timeout))),
        ("min_refresh", Some(span(*min_refresh))),
        ("max_refresh", Some(span(*max_refresh))),
        ("grace", Some(span(*grace))),
    ])
}

fn aggregate(aggregate: Aggregate) -> Value {
    let Aggregate { min_healthy_percent, min_healthy } = aggregate;
    json!({ "min_healthy_percent": min_healthy_percent, "min_healthy": min_healthy })
}

fn composite(composite: &Composite) -> Value {
    let Composite { name: _, sources, publish, only_observes } = composite;
    let sources: Vec<&str> = sources.iter().map(|source| &**source.name()).collect();
    object([
        ("sources", Some(json!(sources))),
        ("publish", publish.as_ref().map(self::publish)),
        ("observe", only_observes.then_some(json!(true))),
    ])
}

fn publish(publish: &Publish) -> Value {
    let Publish { path, host, listener } = publish;
    object([
        ("path", Some(json!(escape(path)))),
        ("host", host_text(host).map(|host| json!(host))),
        ("listener", listener.as_ref().map(|listener| json!(escape(listener)))),
    ])
}

fn passive(pool: &Pool) -> Value {
    match (pool.passive, pool.rules.eject) {
        (Passive::Off, _) => json!("off"),
        (Passive::Hasten, _) | (Passive::Eject, None) => json!("hasten"),
        (Passive::Eject, Some(eject)) => json!({ "eject": self::eject(eject) }),
    }
}

fn eject(eject: Eject) -> Value {
    let Eject { consecutive, ratio_percent, window, min_requests, base, max, probe_clears } = eject;
    json!({
        "consecutive": consecutive,
        "ratio": format!("{ratio_percent}%"),
        "window": span(window),
        "min_requests": min_requests,
        "base": span(base),
        "max": span(max),
        "probe_clears": probe_clears,
    })
}

fn queue(queue: Queue) -> Value {
    json!({ "size": queue.size, "timeout": span(queue.timeout) })
}

fn balance(policy: &Policy, hash_key: Option<&HashKey>) -> Value {
    match policy {
        Policy::ConsistentHash { bounded_load_percent } => {
            let keys = object([
                ("key", hash_key.map(|key| json!(key.to_string()))),
                ("bounded_load_percent", bounded_load_percent.map(|percent| json!(percent))),
            ]);
            json!({ "consistent_hash": keys })
        }
        Policy::RoundRobin => json!("round_robin"),
        Policy::Random => json!("random"),
        Policy::LeastRequests { choices } => json!({ "least_requests": { "choices": choices } }),
        Policy::Fastest { sensitivity } => json!({ "fastest": { "latency_sensitivity": span(*sensitivity) } }),
        Policy::PeakEwma(Memory { decay, sensitivity }) => {
            json!({ "peak_ewma": { "decay": span(*decay), "latency_sensitivity": span(*sensitivity) } })
        }
    }
}

fn probe(probe: &Probe, rules: &Rules, only_observes: bool) -> Value {
    let kind = match &probe.kind {
        ProbeKind::Tcp => object([("kind", Some(json!("tcp")))]),
        ProbeKind::Http(http) => self::http(http),
        ProbeKind::Grpc(grpc) => self::grpc(grpc),
    };
    let (judge, numbers) = judge(rules.judge);
    let pace = object([
        ("port", probe.port.map(|port| json!(port))),
        ("reuse", probe.reuse.then_some(json!(true))),
        ("bind", probe.bind.map(|bind| json!(bind.to_string()))),
        ("auth", probe.auth.as_ref().map(auth)),
        ("interval", Some(span(probe.interval))),
        ("fast_interval", Some(span(probe.fast_interval))),
        ("timeout", Some(span(probe.timeout))),
        ("idle", Some(probe.idle.map_or_else(|| json!("off"), idle))),
        (judge, Some(numbers)),
        ("max_latency", rules.gates.max_latency.map(span)),
        ("max_latency_ratio", rules.gates.max_latency_ratio.map(|ratio| json!(ratio))),
        ("latency_floor", Some(span(rules.gates.latency_floor))),
        ("observe", only_observes.then_some(json!(true))),
    ]);
    let merged: Map<String, Value> =
        [kind, pace].into_iter().filter_map(|part| part.as_object().cloned()).flatten().collect();
    Value::Object(merged)
}

fn auth(proof: &Proof) -> Value {
    let Proof { header, secret } = proof;
    let (text, file) = match secret {
        Secret::Text(_) => (Some(json!(MASK)), None),
        Secret::File(path) => (None, Some(json!(escape(&path.display().to_string())))),
    };
    object([("header", Some(json!(header))), ("secret", text), ("secret_file", file)])
}

fn idle(idle: Idle) -> Value {
    json!({ "after": span(idle.after), "interval": span(idle.interval) })
}

fn http(http: &HttpProbe) -> Value {
    let method = match http.method {
        ProbeMethod::Get => "GET",
        ProbeMethod::Head => "HEAD",
    };
    let headers: Map<String, Value> = http.headers.iter().map(field).collect();
    object([
        ("kind", Some(json!("http"))),
        ("method", Some(json!(method))),
        ("path", Some(json!(escape(&without_secrets(&http.path))))),
        ("host", http.host.as_ref().map(|host| json!(host))),
        ("host_header", http.host_header.as_ref().map(|host| json!(host))),
        ("scheme", Some(json!(if http.tls.is_some() { "https" } else { "http" }))),
        ("tls", http.tls.as_ref().map(tls)),
        ("http2", http.http2.then_some(json!(true))),
        ("headers", (!headers.is_empty()).then_some(Value::Object(headers))),
        (
            "expect",
            Some(object([
                ("status", Some(json!(statuses(&http.expect.status)))),
                ("headers", expected(&http.expect.headers)),
                ("body", http.expect.body.as_ref().map(|body| json!(escape(body)))),
            ])),
        ),
        ("max_body", Some(json!(spell_bytes(http.max_body as u64)))),
    ])
}

fn grpc(grpc: &GrpcProbe) -> Value {
    let headers: Map<String, Value> = grpc.headers.iter().map(field).collect();
    object([
        ("kind", Some(json!("grpc"))),
        ("service", Some(json!(escape(&grpc.service)))),
        ("host", grpc.host.as_ref().map(|host| json!(host))),
        ("host_header", grpc.host_header.as_ref().map(|host| json!(host))),
        ("scheme", Some(json!(if grpc.tls.is_some() { "https" } else { "http" }))),
        ("tls", grpc.tls.as_ref().map(tls)),
        ("headers", (!headers.is_empty()).then_some(Value::Object(headers))),
    ])
}

fn expected(headers: &[(String, Option<String>)]) -> Option<Value> {
    let any = |value: &Option<String>| value.clone().unwrap_or_else(|| ANY.to_owned());
    let fields: Map<String, Value> = headers.iter().map(|(name, value)| field(&(name.clone(), any(value)))).collect();
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// What the traffic has and the probe has not is written too: left out, it would be taken over.
fn tls(tls: &Tls) -> Value {
    let path = |path: &Path| json!(escape(&path.display().to_string()));
    let alpn = match tls.alpn {
        Alpn::Http1 => json!(["http/1.1"]),
        Alpn::Http2 => json!(["h2"]),
        Alpn::Off => json!("off"),
    };
    object([
        ("sni", Some(tls.sni.as_ref().map_or(json!("member"), |name| json!(name)))),
        ("verify", Some(json!(tls.verify))),
        ("ca", Some(tls.ca.as_ref().map_or(json!("system"), |ca| path(ca)))),
        ("client_cert", Some(tls.client.as_ref().map_or(json!("off"), |client| path(&client.cert)))),
        ("client_key", tls.client.as_ref().map(|client| path(&client.key))),
        ("alpn", Some(alpn)),
    ])
}

fn field((name, value): &(String, String)) -> (String, Value) {
    (name.clone(), json!(if sounds_secret(name) { MASK.to_owned() } else { escape(value) }))
}

/// A path, with the values of its query's parameters covered whose names sound like a secret.
pub fn without_secrets(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let shown = |pair: &str| {
        let (pair, end) = match pair.strip_suffix(['&', ';']) {
            Some(bare) => (bare, &pair[bare.len()..]),
            None => (pair, ""),
        };
        match pair.split_once('=') {
            Some((name, _)) if sounds_secret(&percent_decoded(name)) => format!("{name}={MASK}{end}"),
            _ => format!("{pair}{end}"),
        }
    };
    format!("{path}?{}", query.split_inclusive(['&', ';']).map(shown).collect::<String>())
}

/// A text as whoever reads it sees it (RFC 3986 section 2.1); what is no `%XX` stays.
pub fn percent_decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.first_chunk::<2>().filter(|_| *first == b'%').and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &others[2..]),
            None => (bytes.push(*first), rest = others),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl ProbeKind {
    /// What must not be shown of its request, and of the answer that is expected: values of fields and of query parameters
    /// whose names sound like a secret.
    pub fn secrets(&self) -> Vec<&str> {
        let (headers, path): (&[(String, String)], &str) = match self {
            ProbeKind::Tcp => (&[], ""),
            ProbeKind::Http(http) => (&http.headers, &http.path),
            ProbeKind::Grpc(grpc) => (&grpc.headers, ""),
        };
        let expected = match self {
            ProbeKind::Http(http) => &http.expect.headers[..],
            ProbeKind::Tcp | ProbeKind::Grpc(_) => &[],
        };
        let expected =
            expected.iter().filter(|(name, _)| sounds_secret(name)).filter_map(|(_, value)| value.as_deref());
        let fields =
            headers.iter().filter(|(name, _)| sounds_secret(name)).flat_map(|(_, value)| with_its_parts(value));
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let pairs = query.split(['&', ';']).filter_map(|pair| pair.split_once('='));
        let parameters = pairs.filter(|(name, _)| sounds_secret(&percent_decoded(name))).map(|(_, value)| value);
        fields.chain(parameters).chain(expected).collect()
    }
}

/// A field, and what of it says everything by itself: what follows `Bearer` or another scheme, and the values of cookies and
/// parameters.
fn with_its_parts(value: &str) -> impl Iterator<Item = &str> {
    let after_scheme = value.trim().split_once(' ').map(|(_, rest)| rest.trim());
    let pairs = value.split([';', ',']).filter_map(|pair| pair.split_once('='));
    let values = pairs.map(|(_, value)| value.trim().trim_matches('"'));
    std::iter::once(value).chain(after_scheme).chain(values)
}

/// Whether what goes by this name may be a secret: a field, a parameter.
pub fn sounds_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let secret = [
        "auth",
        "token",
        "key",
        "secret",
        "pass",
        "cookie",
        "credential",
        "sig",
        "pwd",
        "code",
        "jwt",
        "session",
        "bearer",
    ];
    secret.iter().any(|word| lower.contains(word))
}

fn upstream(upstream: &Upstream) -> Value {
    let host = match &upstream.host {
        UpstreamHost::PassThrough => "pass",
        UpstreamHost::Member => "member",
        UpstreamHost::Fixed(host) => host,
    };
    json!({
        "connect_timeout": span(upstream.connect_timeout),
        "read_timeout": span(upstream.read_timeout),
        "write_timeout": span(upstream.write_timeout),
        "idle_timeout": span(upstream.idle_timeout),
        "host": host,
        "tls": upstream.tls.as_ref().map_or(json!(false), tls),
    })
}

fn tunnels(tunnels: Tunnels) -> Value {
    json!({ "idle": span(tunnels.idle), "drain": span(tunnels.drain) })
}

fn retries(retries: Retries) -> Value {
    object([
        ("attempts", Some(json!(retries.attempts))),
        ("connect", Some(json!(retries.connect))),
        ("budget", Some(json!(format!("{}%", retries.budget_percent)))),
        ("per_try_timeout", retries.per_try_timeout.map(span)),
    ])
}

fn host_text(host: &Host) -> Option<String> {
    match host {
        Host::Any => None,
        Host::Exact(host) => Some(host.clone()),
        Host::Wildcard(suffix) => Some(format!("*.{suffix}")),
    }
}

fn route(route: &Route) -> Value {
    let host = host_text(&route.host).map(|host| json!(host));
    let several = route.pools.len() > 1 || route.pools.iter().any(|rank| rank.written_when().is_some());
    let failback = match route.failback {
        Some(delay) => ("failback_delay", Some(span(delay))),
        None => ("no_failback", Some(json!(true))),
    };
    object([
        ("host", host),
        ("path", Some(json!(escape(&route.path)))),
        ("pool", route.pools.first().filter(|_| !several).map(|rank| json!(&*rank.pool))),
        ("pools", several.then(|| route.pools.iter().map(rank).collect())),
        if route.pools.len() > 1 { failback } else { ("failback_delay", None) },
    ])
}

fn rank(rank: &Rank) -> Value {
    match rank.written_when() {
        None => json!(&*rank.pool),
        Some(when) => json!({ "pool": &*rank.pool, "when": &**when }),
    }
}

fn on_all_unhealthy_word(word: OnAllUnhealthy) -> &'static str {
    match word {
        OnAllUnhealthy::RoundRobin => "round_robin",
        OnAllUnhealthy::Fail => "fail",
    }
}

fn initial_word(word: Initial) -> &'static str {
    match word {
        Initial::Probe => "probe",
        Initial::Healthy => "healthy",
        Initial::Unhealthy => "unhealthy",
    }
}

fn span(duration: Duration) -> Value {
    json!(spell_duration(duration))
}

/// A literal `${` must not be taken for a name of the environment when the file is read back.
fn escape(text: &str) -> String {
    text.replace("${", "$${")
}

/// The keys that have a value.
fn object<const N: usize>(keys: [(&str, Option<Value>); N]) -> Value {
    keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_a_field_says_everything_by_itself_is_secret_too() {
        let rows: [(&str, &[&str]); 5] = [
            ("letmein", &["letmein"]),
            ("Bearer abc.def==", &["Bearer abc.def==", "abc.def==", "="]),
            ("Basic dTpw", &["Basic dTpw", "dTpw"]),
            ("sid=s3cret", &["sid=s3cret", "s3cret"]),
            ("sid=\"s3cret\"; theme=dark", &["sid=\"s3cret\"; theme=dark", "theme=dark", "s3cret", "dark"]),
        ];
        for (value, parts) in rows {
            assert_eq!(with_its_parts(value).collect::<Vec<_>>(), parts, "{value}");
        }
    }

    #[test]
    fn a_parameter_that_sounds_secret_is_masked_however_it_is_written() {
        let rows = [
            ("/h", "/h"),
            ("/h?a=1&sig=S&b", "/h?a=1&sig=********&b"),
            ("/h?to%6Ben=S", "/h?to%6Ben=********"),
            ("/h?a=1;token=S;b=2", "/h?a=1;token=********;b=2"),
            (
                "/h?PWD=S&jwt=S&code=S&session_id=S&bearer=S",
                "/h?PWD=********&jwt=********&code=********&session_id=********&bearer=********",
            ),
            ("/h?a=%6&b=%zz&%=1", "/h?a=%6&b=%zz&%=1"),
        ];
        for (path, shown) in rows {
            assert_eq!(without_secrets(path), shown);
        }
    }
}
