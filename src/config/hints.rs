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
            Some(Step::Key(key)) => with_example(&format!("`{}` takes {expected}, not {found}", shown(key)), path),
            _ => format!("expected {expected}, found {found}"),
        });
    }
    Complaint::Value(with_example(message, path))
}

/// What a mapping looks like that stands beside `off`, by its key.
const MAPPINGS: &[(&str, &str)] = &[
    ("admin", "{ address: \"127.0.0.1:9900\" }"),
    ("access_log", "{ path: /var/log/pulsegate/access.log }"),
    ("diagnostics", "{ path: /var/lib/pulsegate/diagnostics }"),
    ("remediation", "{ after: 1h, command: [/usr/local/bin/replace] }"),
    ("sticky", "{ secret: \"${STICKY_SECRET}\" }"),
    ("idle", "{ after: 10m, interval: 1m }"),
];

/// The same complaint about the value at `path`, with a mapping to copy where it asks for one.
fn with_example(message: &str, path: &[Step]) -> String {
    const ASKED_FOR: &str = "`off` or a mapping";
    let (Some((before, after)), Some(Step::Key(key))) = (message.split_once(ASKED_FOR), path.last()) else {
        return message.to_owned();
    };
    let written = message.strip_prefix('`').and_then(|rest| rest.split_once('`')).map_or("", |(written, _)| written);
    if written.starts_with('/') && matches!(key.as_str(), "access_log" | "diagnostics") {
        return format!("write `{{ path: {written} }}`");
    }
    match MAPPINGS.iter().find(|(of, _)| of == key) {
        Some((_, example)) => format!("{before}`off` or `{example}`{after}"),
        None => message.to_owned(),
    }
}

/// Keys of the sketch that are still to come, by where they are written.
const LATER: &[(&str, &[&str])] = &[
    ("listeners[]", &["redirect_https", "tls", "protocols", "proxy_protocol"]),
    ("pools.*.upstream", &["http2"]),
    ("routes[]", &["strip_prefix"]),
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
            "expect",
            "window",
            "consecutive",
            "max_latency",
            "max_latency_ratio",
            "latency_floor",
            "max_body",
            "headers",
            "auth",
        ],
        "under `probe`",
    ),
    ("pools.*", &["connect_timeout", "read_timeout", "write_timeout", "idle_timeout", "tls"], "under `upstream`"),
    ("pools.*", TLS_KEYS, "as `upstream: { tls: { … } }`"),
    ("pools.*.upstream", TLS_KEYS, "under `tls`"),
    ("pools.*", &["attempts", "budget", "per_try_timeout"], "under `retries`"),
    ("pools.*.members[]", &["queue"], "in the pool: its members share it"),
    ("pools.*.each_member", &["queue", "size", "timeout"], "in the pool, as `queue: { size: 100, timeout: 5s }`"),
    ("pools.*.upstream", &["max_in_flight", "max_connections", "queue"], "in the pool, beside `upstream`"),
    ("pools.*", &["latency_sensitivity"], "as `balance: { fastest: { latency_sensitivity: … } }`"),
    ("pools.*", &["decay"], "as `balance: { peak_ewma: { decay: … } }`"),
    ("pools.*", &["dns_grace", "grace"], "as `grace` under `resolver`, at the top of the file"),
    ("pools.*", &["resolver", "servers_dns"], "at the top of the file"),
    ("pools.*", &["srv", "file"], "under `members`, as in `members: [{ srv: _http._tcp.app.internal }]`"),
    ("pools.*.probe", &["status", "body"], "under `expect`"),
    ("pools.*.probe", &["secret", "secret_file"], "under `auth`"),
    ("pools.*", &["cookie", "same_site", "http_only", "ttl"], "under `sticky`"),
    ("pools.*.balance", &["sticky", "cookie"], "in the pool, as `sticky: { cookie: NAME }` beside `balance`"),
    ("pools.*.sticky", &["drain"], "in the pool, beside `sticky`"),
    ("routes[]", &["sticky"], "in the pool"),
    (
        "pools.*.probe",
        &["max_unhealthy_percent", "min_ejected", "on_all_unhealthy", "initial", "initial_wait", "slow_start", "drain"],
        "in the pool, beside `probe`",
    ),
    ("pools.*.aggregate", &["observe"], "in the pool, as `observe: { aggregate: { … } }`"),
    ("pools.*", &["observed", "dry_run", "shadow", "trial"], "as `observe: { … }`, with the rules to try"),
    ("pools.*.observe", &["remediation", "probe"], "as `observe: true` in there: all of it then only observes"),
    ("pools.*.probe", TLS_KEYS, "under `tls`"),
    ("pools.*.probe", &["failures", "passes"], "under `consecutive`"),
    ("pools.*.probe", &["size", "required"], "under `window`"),
    ("pools.*.probe", &["user_agent"], "as `headers: { User-Agent: … }`"),
    ("pools.*", &["state_dir"], "at the top of the file"),
    ("pools.*", &["alerts", "alert"], "at the top of the file, as `alerts: [{ webhook: …, pools: [ … ] }]`"),
    ("alerts[]", &["url", "secret", "secret_file", "timeout", "retries"], "under `webhook`"),
    ("pools.*", &["command", "webhook", "max_per_hour", "max_per_day", "after"], "under `remediation`"),
    ("pools.*", &["max_global"], "at the top of the file, as `remediation: { max_global: 10 }`"),
    ("pools.*.remediation", &["max_global"], "at the top of the file, as `remediation: { max_global: 10 }`"),
    ("pools.*.remediation", &["url", "secret", "secret_file", "retries"], "under `webhook`"),
    (
        "remediation",
        &["after", "command", "webhook", "max_per_hour", "max_per_day", "timeout"],
        "in each pool, under its own `remediation`",
    ),
    ("listeners[]", &["trusted_proxies", "access_log"], "at the top of the file"),
    ("routes[]", &["when"], "beside the pool, as in `pools: [{ pool: web, when: region }, web-us]`"),
    ("routes[].pools[]", &["failback_delay", "no_failback"], "in the route, beside `pools`"),
    ("access_log", &["status", "min_duration", "sample"], "under `filter`"),
    ("access_log.filter", &["path", "format"], "beside `filter`"),
];

const TLS_KEYS: &[&str] = &["sni", "verify", "ca", "client_cert", "client_key", "alpn"];

/// Keys of other products: where, which, and what they are here.
const SYNONYMS: &[(&str, &[&str], &str)] = &[
    ("", &["frontends", "entrypoints", "servers", "bind", "listen"], "`listeners`"),
    ("", &["backends", "upstreams", "upstream", "clusters", "services"], "`pools`"),
    ("", &["rules", "locations", "virtual_hosts"], "`routes`"),
    (
        "",
        &["composite", "composite_health_checks", "composite_health", "health_composites", "composite_checks"],
        "`composites: { region: { sources: [web] } }`",
    ),
    (
        "composites.*",
        &["health_sources", "healthSources", "pools", "members", "of", "source", "pool", "composites"],
        "`sources`",
    ),
    (
        "composites.*",
        &["path", "health_destination", "healthDestination", "endpoint", "url", "published"],
        "`publish: { path: /.well-known/region-health }`",
    ),
    (
        "composites.*",
        &["aggregate", "min_healthy", "min_healthy_percent", "health_aggregation_policy"],
        "the `aggregate` of each pool that is a source; a composite is healthy if all of them are",
    ),
    ("composites.*.publish", &["uri", "url", "endpoint", "location", "route", "prefix"], "`path`"),
    ("composites.*.publish", &["listeners", "port", "address", "bind", "listen", "on"], "`listener`, by its name"),
    ("composites.*.publish", &["hosts", "domain", "server_name", "hostname"], "`host`"),
    ("", &["api", "dashboard"], "`admin`"),
    ("", &["log", "logs", "logging", "accesslog", "access_logs"], "`access_log`"),
    ("", &["log_format", "logformat"], "`access_log: { format: … }`"),
    ("access_log", &["file", "filename", "filepath", "output", "target", "destination", "sink"], "`path`"),
    ("access_log", &["log_format", "logformat", "template", "pattern", "text_format", "encoder", "type"], "`format`"),
    (
        "access_log",
        &["sampling", "sample_rate", "rate", "ratio", "percent"],
        "`filter: { sample: 1% }`, the share that is written",
    ),
    (
        "access_log",
        &["exclude", "ignore", "skip", "omit", "filters", "if", "condition", "when", "only", "status_codes"],
        "`filter: { status: \"400-599\" }`, which says what is written",
    ),
    ("access_log", &["fields"], "`format`, a template of `$field`s"),
    ("access_log.filter", &["statuses", "status_codes", "status_code", "codes", "code"], "`status`"),
    (
        "access_log.filter",
        &["duration", "latency", "min_latency", "slow", "slower_than", "threshold", "minduration"],
        "`min_duration`",
    ),
    ("access_log.filter", &["sampling", "sample_rate", "rate", "ratio", "percent", "random"], "`sample`"),
    ("", &["dns", "resolvers", "nameserver", "nameservers", "resolv"], "`resolver`"),
    ("resolver", &["nameserver", "nameservers", "addresses", "address", "server"], "`servers`"),
    (
        "resolver",
        &["valid", "ttl", "min_ttl", "interval", "refresh", "refresh_rate"],
        "`min_refresh` and `max_refresh`",
    ),
    ("resolver", &["max_ttl"], "`max_refresh`"),
    (
        "",
        &["watch", "watch_config", "auto_reload", "autoreload", "live_reload", "hot_reload", "reload_on_change"],
        "`reload: { watch: true }`, which is the default",
    ),
    ("reload", &["enabled", "enable", "auto", "on_change", "live"], "`watch`"),
    ("reload", &["interval", "poll", "poll_interval", "period", "refresh", "check_interval"], "`every`"),
    ("resolver", &["hold", "hold_nx", "hold_valid", "stale", "dns_grace"], "`grace`"),
    ("listeners[]", &["bind", "listen", "port", "host"], "`address: \"0.0.0.0:8080\"`"),
    (
        "pools.*",
        &["servers", "server", "backends", "targets", "nodes", "hosts", "endpoints", "origins", "upstreams"],
        "`members`",
    ),
    (
        "pools.*",
        &["health_check", "healthcheck", "health_checks", "healthchecks", "health", "check", "health_probe"],
        "`probe`",
    ),
    ("pools.*", &["lb", "lb_policy", "policy", "algorithm", "strategy", "load_balancing", "lb_method"], "`balance`"),
    ("pools.*", &["cap", "max_ejected", "max_ejected_percent", "max_ejection_percent"], "`max_unhealthy_percent`"),
    (
        "pools.*",
        &["aggregation", "health_aggregation", "health_aggregation_policy", "min_healthy", "min_healthy_percent"],
        "`aggregate: { min_healthy_percent: 60, min_healthy: 1 }`",
    ),
    (
        "pools.*.aggregate",
        &["percent", "healthy_percent", "healthy_percent_threshold", "healthyPercentThreshold", "percentage"],
        "`min_healthy_percent`",
    ),
    (
        "pools.*.aggregate",
        &["min", "minimum", "count", "least", "min_healthy_threshold", "minHealthyThreshold", "min_members"],
        "`min_healthy`",
    ),
    ("pools.*", &["panic_threshold", "fallback", "fail_open"], "`on_all_unhealthy`"),
    (
        "pools.*",
        &["tunnel", "tunnel_timeout", "websocket", "websockets", "upgrade", "upgrades", "stream_timeout"],
        "`tunnels: { idle: 1h, drain: 30s }`",
    ),
    (
        "pools.*",
        &["slowstart", "slow_start_config", "slow_start_window", "warmup", "warm_up", "ramp_up", "ramp"],
        "`slow_start: 30s`",
    ),
    ("pools.*.members[]", &["slow_start", "slowstart"], "the pool's `slow_start`, for all members alike"),
    (
        "pools.*",
        &["deregistration_delay", "connection_draining", "draining_timeout", "drain_time", "drain_duration"],
        "`drain: 10m`",
    ),
    ("pools.*.tunnels", &["timeout", "idle_timeout", "max_idle"], "`idle`"),
    ("pools.*.tunnels", &["grace", "drain_timeout", "close_delay", "stream_close_delay"], "`drain`"),
    ("pools.*", &["threshold", "unhealthy_threshold", "healthy_threshold", "rise", "fall"], JUDGE_IN_PROBE),
    ("pools.*", BY_TRAFFIC, "`passive: { eject: { consecutive: 5, base: 30s } }`"),
    ("pools.*.passive", BY_TRAFFIC, "`eject: { consecutive: 5, base: 30s }`"),
    ("pools.*.passive.eject", &["max_fails", "consecutive_5xx", "error_limit", "failures"], "`consecutive`"),
    ("pools.*.passive.eject", &["fail_timeout", "base_ejection_time"], "`base`"),
    ("pools.*", &["maxconn", "max_conns", "max_connections_per_host"], EACH_CONNECTIONS),
    ("pools.*", &["max_requests", "max_concurrent_requests", "max_concurrency", "concurrency", "slots"], EACH_REQUESTS),
    (
        "pools.*",
        &["maxqueue", "max_queue", "max_pending_requests", "max_pending", "queue_size", "queue_timeout"],
        QUEUE,
    ),
    ("pools.*.members[]", CONNECTIONS_ELSEWHERE, "`max_connections`"),
    ("pools.*.members[]", REQUESTS_ELSEWHERE, "`max_in_flight`"),
    (
        "pools.*.members[]",
        &["maxqueue", "max_queue", "max_pending_requests"],
        "the pool's `queue`, for all members together",
    ),
    ("pools.*.each_member", CONNECTIONS_ELSEWHERE, "`max_connections`"),
    ("pools.*.each_member", REQUESTS_ELSEWHERE, "`max_in_flight`"),
    ("pools.*", REPLACEMENT, "`remediation: { after: 1h, command: [\"/usr/local/bin/replace\"] }`"),
    ("pools.*", STICKY, "`sticky: { cookie: NAME, ttl: 1h }`"),
    ("pools.*.sticky", &["name", "cookie_name", "affinity_cookie_name", "insert"], "`cookie`"),
    (
        "pools.*.sticky",
        &["max_age", "maxage", "expires", "expiry", "maxidle", "maxlife", "lifetime", "timeout", "duration"],
        "`ttl`",
    ),
    ("pools.*.sticky", &["samesite", "sameSite"], "`same_site`"),
    ("pools.*.sticky", &["httponly", "httpOnly"], "`http_only`"),
    ("pools.*.sticky", &["key", "signing_key", "encryption_key", "password", "hash_secret"], "`secret`"),
    ("pools.*.sticky", &["file", "key_file"], "`secret_file`"),
    (
        "pools.*.sticky",
        &["old_secret", "secrets", "previous", "next_secret"],
        "`previous_secret`, which is accepted too",
    ),
    ("pools.*.remediation", &["exec", "cmd", "script", "run", "program", "argv", "action"], "`command`, a list"),
    ("pools.*.remediation", &["hook", "http", "post", "endpoint", "notify"], "`webhook: { url: … }`"),
    ("pools.*.remediation", &["failing_for", "unhealthy_for", "delay", "for", "threshold"], "`after: 1h`"),
    ("pools.*.remediation", &["per_hour", "hourly", "max_hourly"], "`max_per_hour`"),
    ("pools.*.remediation", &["per_day", "daily", "max_daily"], "`max_per_day`"),
    (
        "",
        &["alert", "alerting", "notifications", "notify", "webhooks", "alertmanager"],
        "`alerts: [{ webhook: { … } }]`",
    ),
    ("alerts[]", &["events", "when", "triggers", "occasions", "rules", "if"], "`on`, a list"),
    ("alerts[]", &["hook", "http", "post", "endpoint", "notify", "to"], "`webhook: { url: … }`"),
    ("alerts[]", &["for", "delay", "after"], "beside the word, as `on: [capped for 5m]`"),
    ("alerts[]", &["pool"], "`pools`, a list"),
    ("alerts[].webhook", &["uri", "endpoint", "address"], "`url`"),
    ("alerts[].webhook", &["key", "token", "signing_key", "signing_secret", "hmac"], "`secret`"),
    ("alerts[].webhook", &["attempts", "tries", "max_retries"], "`retries`"),
    ("pools.*.remediation.webhook", &["uri", "endpoint", "address"], "`url`"),
    ("pools.*.remediation.webhook", &["key", "token", "signing_key", "signing_secret", "hmac"], "`secret`"),
    ("pools.*.remediation.webhook", &["attempts", "tries", "max_retries"], "`retries`"),
    (
        "",
        &["data_dir", "state", "state_path", "data_directory", "server_state_base"],
        "`state_dir: /var/lib/pulsegate`",
    ),
    ("pools.*.queue", &["max", "length", "limit", "max_size"], "`size`"),
    ("pools.*.queue", &["wait", "max_wait"], "`timeout`"),
    ("pools.*.members[]", &["ip", "url", "server", "target", "port"], "`address: \"10.0.0.1:8080\"`"),
    ("pools.*.members[]", &["service", "dns", "dns_srv", "srv_name"], "`srv: _http._tcp.app.internal`"),
    ("pools.*.members[]", &["path", "include", "files", "file_sd"], "`file: members.yaml`"),
    ("pools.*.members[]", SERVER_NAMES, "`host`"),
    (
        "pools.*.members[]",
        &["tls", "ssl", "https", "scheme", "verify", "ca"],
        "the pool's `upstream: { tls: … }`, for all members alike",
    ),
    ("pools.*.members[]", &["backup"], "`tier: 1`"),
    ("pools.*.members[]", &["priority"], "`tier`, 0 first"),
    ("pools.*.members[]", &["down", "disabled", "enabled", "disable"], "`state: disabled`"),
    ("pools.*.members[]", &["drain", "draining"], "`state: draining`"),
    ("pools.*.members[]", &["rise", "fall"], "the pool's `probe`, for all members alike"),
    (
        "pools.*.members[]",
        BY_TRAFFIC,
        "the pool's `passive: { eject: { consecutive: 5, base: 30s } }`, for all members alike",
    ),
    ("pools.*", &["ssl", "https", "scheme", "protocol"], "`upstream: { tls: true }`"),
    ("pools.*.upstream", &["ssl", "https", "scheme", "protocol"], "`tls: true`"),
    ("pools.*.upstream", SERVER_NAMES, "`tls: { sni: … }`"),
    ("pools.*.upstream", SKIP_VERIFY, "`tls: { verify: false }`"),
    ("pools.*.upstream", AUTHORITIES, "`tls: { ca: FILE }`"),
    ("pools.*.upstream", CERTIFICATES, "`tls: { client_cert: FILE, client_key: FILE }`"),
    ("pools.*.upstream", PRIVATE_KEYS, "`tls: { client_cert: FILE, client_key: FILE }`"),
    ("pools.*.upstream.tls", SERVER_NAMES, "`sni`"),
    ("pools.*.upstream.tls", SKIP_VERIFY, "`verify: false`"),
    ("pools.*.upstream.tls", AUTHORITIES, "`ca`"),
    ("pools.*.upstream.tls", CERTIFICATES, "`client_cert`"),
    ("pools.*.upstream.tls", PRIVATE_KEYS, "`client_key`"),
    ("pools.*.upstream.tls", PROTOCOLS, "`alpn: [http/1.1]`"),
    ("pools.*.probe", &["grpc_service", "grpc_service_name", "service_name"], "`kind: grpc` and `service`"),
    ("pools.*.probe", &["grpc", "grpc_health_check", "grpc_check"], "`kind: grpc`"),
    ("pools.*.probe", &["authority"], "`host_header`"),
    ("pools.*.probe", HTTP2, "`http2: true`"),
    ("pools.*.probe", REUSE, "`reuse: true`"),
    ("pools.*.upstream", HTTP2, "`probe: { http2: true }`, for probes; requests cannot go over HTTP/2 yet"),
    ("pools.*.probe", &["ssl", "https"], "`scheme: https`"),
    ("pools.*.probe", &["source", "source_ip", "source_address", "local_address", "from"], "`bind`"),
    ("pools.*.probe", &["authentication", "identity", "proof", "auth_header"], "`auth: { header: …, secret: … }`"),
    ("pools.*.probe.auth", &["key", "token", "password", "encryption_key"], "`secret`"),
    ("pools.*.probe.auth", &["file", "path", "key_file", "token_file"], "`secret_file`"),
    ("pools.*.probe.auth", &["name", "field", "header_name"], "`header`"),
    ("pools.*.probe.expect", &["header", "response_headers", "fields"], "`headers: { x-state: ready }`"),
    ("pools.*.probe.expect", &["code", "codes", "statuses", "status_codes"], "`status`"),
    ("pools.*.probe.expect", &["text", "contains", "substring", "string", "match"], "`body`"),
    ("diagnostics", &["dir", "directory", "folder", "state_dir"], "`path`"),
    ("diagnostics", &["max", "keep", "count", "files"], "`max_files`"),
    ("diagnostics", &["size", "max_size", "bytes"], "`max_bytes`"),
    ("pools.*.probe", SERVER_NAMES, "`tls: { sni: … }`"),
    ("pools.*.probe", SKIP_VERIFY, "`tls: { verify: false }`"),
    ("pools.*.probe", AUTHORITIES, "`tls: { ca: FILE }`"),
    ("pools.*.probe.tls", SERVER_NAMES, "`sni`"),
    ("pools.*.probe.tls", SKIP_VERIFY, "`verify: false`"),
    ("pools.*.probe.tls", AUTHORITIES, "`ca`"),
    ("pools.*.probe.tls", CERTIFICATES, "`client_cert`"),
    ("pools.*.probe.tls", PRIVATE_KEYS, "`client_key`"),
    ("pools.*.probe.tls", PROTOCOLS, "`alpn: [http/1.1]`"),
    ("pools.*.probe", &["url", "uri", "endpoint"], "`path`"),
    ("pools.*.probe", &["period", "every", "frequency"], "`interval`"),
    ("pools.*.probe", &["type", "protocol"], "`kind`"),
    ("pools.*.probe", &["expected_status", "expected_codes", "codes", "match"], "`expect: { status: \"200-299\" }`"),
    (
        "pools.*.probe",
        &["threshold", "unhealthy_threshold", "healthy_threshold", "failure_threshold", "rise", "fall", "retries"],
        JUDGE,
    ),
    ("routes[]", &["fallback", "backup", "backups", "failover", "failover_pool", "secondary"], IN_ORDER),
    (
        "routes[]",
        &["failback", "failback_after", "failback_wait", "fallback_delay", "recovery_delay", "restore_delay"],
        "`failback_delay: 60s`",
    ),
    ("routes[]", &["nofailback", "sticky_failover", "manual_failback"], "`no_failback: true`"),
    ("routes[].pools[]", &["name", "backend", "upstream", "target", "service", "cluster"], "`pool`"),
    ("routes[].pools[]", &["if", "condition", "composite", "health", "health_check"], "`when: COMPOSITE`"),
    ("routes[]", &["prefix", "path_prefix", "location", "uri", "match"], "`path`"),
    ("routes[]", &["backend", "upstream", "target", "service", "cluster"], "`pool`"),
    ("routes[]", &["hosts", "domain", "server_name", "hostname"], "`host`, one a route"),
];

/// Keys of other products for what is so anyway: where, which, and how it is.
const NEEDLESS: &[(&str, &[&str], &str)] = &[
    (
        "",
        &["pid_file", "pidfile", "pid"],
        "no file is written: the service manager knows the process (`systemctl kill -s USR1 pulsegate`); remove it",
    ),
    (
        "",
        &["daemon", "daemonize", "daemonise", "background"],
        "it stays in the foreground, as service managers want it; remove it",
    ),
    (
        "",
        &["error_log", "errorlog", "log_level", "loglevel", "log_file", "logfile"],
        "the program's own log is on standard error, by `--log` or `PULSEGATE_LOG`; requests go to `access_log`",
    ),
    (
        "pools.*",
        &["timeout", "timeouts", "request_timeout", "timeout_server", "proxy_read_timeout"],
        "for requests write `upstream: { read_timeout: 60s }`, or `deadline: 60s` for all of one; for probes \
         `probe: { timeout: 2s }`",
    ),
    ("pools.*.sticky", &["domain"], "the cookie is for the host alone that the client asks for; remove it"),
    (
        "pools.*.sticky",
        &["nocache", "no_cache", "indirect", "postonly"],
        "an answer that sets the cookie is `private` to caches, and members do not see it; remove it",
    ),
    (
        "routes[].pools[]",
        &["weight", "priority", "tier", "rank", "backup"],
        "the order of `pools` is the order of preference; remove it",
    ),
    ("access_log", &["ignore_empty", "dontlognull"], "a connection that sends nothing has no line; remove it"),
    ("access_log", &["buffer", "buffering_size", "flush"], "lines never hold a request up; remove it"),
    (
        "access_log",
        &["rotate", "rotation", "max_size", "retention"],
        "move the file and send SIGUSR1, as logrotate does",
    ),
    (
        "access_log.filter",
        &["exclude", "ignore", "skip", "ignore_empty", "not"],
        "a filter says what is written, with `status`, `min_duration` and `sample`",
    ),
    (
        "access_log.filter",
        &["outcome", "errors", "retry_attempts", "reason"],
        "failures of ours and of members are always written; remove it",
    ),
];
const REPLACEMENT: &[&str] = &[
    "replace",
    "replacement",
    "auto_heal",
    "autoheal",
    "auto_healing",
    "auto_replace",
    "self_healing",
    "auto_repair",
    "heal",
];
const STICKY: &[&str] = &[
    "affinity",
    "session_affinity",
    "sessionAffinity",
    "cookie_based_affinity",
    "stickiness",
    "sticky_session",
    "sticky_sessions",
    "sticky_cookie",
    "stick",
    "persistence",
    "session_persistence",
    "stateful_session",
];
const CONNECTIONS_ELSEWHERE: &[&str] = &["maxconn", "max_conns", "max_conn"];
const REQUESTS_ELSEWHERE: &[&str] = &["max_requests", "max_concurrent_requests", "max_concurrency", "slots"];
const EACH_CONNECTIONS: &str =
    "`max_connections` for all members together, or `each_member: { max_connections: … }` for each";
const EACH_REQUESTS: &str = "`max_in_flight` for all members together, or `each_member: { max_in_flight: … }` for each";
const QUEUE: &str = "`queue: { size: 100, timeout: 5s }`";
const IN_ORDER: &str = "`pools: [web, web-us]`, in the order of preference";
const JUDGE: &str = "`window: { size: 5, required: 3 }`, or `consecutive: { failures: 3, passes: 1 }`";
const JUDGE_IN_PROBE: &str = "`window: { size: 5, required: 3 }` under `probe`, or `consecutive`";

/// Others' words for a member that is put out by the requests that fail there.
const BY_TRAFFIC: &[&str] = &[
    "max_fails",
    "fail_timeout",
    "outlier_detection",
    "consecutive_5xx",
    "base_ejection_time",
    "error_limit",
    "on_error",
    "passive_health_check",
];

const SERVER_NAMES: &[&str] = &[
    "server_name",
    "servername",
    "tls_server_name",
    "ssl_server_name",
    "proxy_ssl_name",
    "hostname",
    "domain",
    "vhost",
    "name",
    "verify_name",
];
const SKIP_VERIFY: &[&str] = &[
    "insecure_skip_verify",
    "tls_insecure_skip_verify",
    "insecureSkipVerify",
    "skip_verify",
    "insecure",
    "proxy_ssl_verify",
    "ssl_verify",
    "verify_peer",
    "verify_cert",
    "verify_certificate",
];
const AUTHORITIES: &[&str] = &[
    "cafile",
    "ca_file",
    "ca-file",
    "ca_cert",
    "cacert",
    "ca_certs",
    "ca_bundle",
    "root_ca",
    "root_cas",
    "rootCAs",
    "trusted_ca",
    "trusted_certificate",
    "proxy_ssl_trusted_certificate",
];
const CERTIFICATES: &[&str] =
    &["cert", "crt", "certificate", "cert_file", "certificate_chain", "tls_client_auth", "proxy_ssl_certificate"];
const PRIVATE_KEYS: &[&str] = &["key", "key_file", "private_key", "certificate_key", "proxy_ssl_certificate_key"];
const HTTP2: &[&str] =
    &["h2", "h2c", "use_http2", "codec_client_type", "http_version", "prior_knowledge", "http2_protocol"];
const REUSE: &[&str] = &["keepalive", "keep_alive", "keepalives", "reuse_connection", "persistent", "connection_reuse"];
const PROTOCOLS: &[&str] = &["protocols", "alpn_protocols", "next_protos"];

/// Whether somebody who wrote `other` may have meant `key`.
pub(super) fn may_mean(other: &str, key: &str) -> bool {
    let means = |here: &str| here.strip_prefix('`').is_some_and(|h| h.starts_with(key));
    SYNONYMS.iter().any(|(_, others, here)| others.contains(&other) && means(here))
}

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
    if let Some((_, _, here)) = SYNONYMS.iter().find(|(at, keys, _)| *at == place && keys.contains(&key)) {
        return format!("unknown key `{key}`; here it is {here}");
    }
    if let Some((_, _, how)) = NEEDLESS.iter().find(|(at, keys, _)| *at == place && keys.contains(&key)) {
        return format!("unknown key `{key}`; {how}");
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
            // A file that is a list is one of members.
            Step::Item(_) if pattern.is_empty() => pattern.push_str("pools.*.members[]"),
            Step::Item(_) => pattern.push_str("[]"),
            Step::Key(_) if pattern == "pools" || pattern == "composites" => pattern.push_str(".*"),
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
