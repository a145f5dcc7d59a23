//! What keys mean, where a golden file would not show it.

use std::sync::Arc;
use std::time::Duration;

use pulsegate::config::{
    Action, Config, HttpProbe, Limits, Pool, Probe, ProbeKind, Problem, Proof, Retries, Secret, Severity, Upstream,
    load, parse,
};
use pulsegate::health::Rules;
use serde_json::Value;

use super::{around, config, env, files, lines, pool, root};

const PROBE: &str = r#"members: ["10.0.0.1:80"], probe: { path: / }"#;

#[test]
fn the_ten_line_file_and_the_demo_are_free_of_warnings() {
    for file in [root().join("tests/config/good/ten_lines.yaml"), root().join("proxy.yaml")] {
        let loaded = load(&file, &env).unwrap_or_else(|problems| panic!("{}", lines(&problems)));
        assert_eq!(lines(&loaded.advice), "");
    }
}

#[test]
fn the_effective_file_can_be_read_back_and_means_the_same() {
    for file in files("good") {
        let loaded = load(&file, &env).unwrap_or_else(|problems| panic!("{}", lines(&problems)));
        let text = serde_json::to_string_pretty(&written(loaded.config.effective())).expect("json");
        for secret in ["s3cret", "secret-of-the-tests", "stands-in-the-file-itself"] {
            assert!(!text.contains(secret), "{text}");
        }
        let again = parse("effective.yaml", &text, &|_| None)
            .unwrap_or_else(|p| panic!("{}:\n{}\n{text}", file.display(), lines(&p)));
        assert!(unmasked(again.config, &loaded.config) == loaded.config, "{}:\n{text}", file.display());
    }
}

/// Without what is null, which stands for a key that is not written.
fn written(mut value: Value) -> Value {
    match &mut value {
        Value::Object(keys) => {
            keys.retain(|_, value| !value.is_null());
            keys.values_mut().for_each(|value| *value = written(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| *value = written(value.take())),
        _ => {}
    }
    value
}

/// With the secrets of `original`, the only things that are not told.
fn unmasked(mut config: Config, original: &Config) -> Config {
    if let (Some(admin), Some(original)) = (&mut config.admin, &original.admin) {
        admin.token.clone_from(&original.token);
    }
    for (alert, original) in config.alerts.iter_mut().zip(&original.alerts) {
        alert.webhook.clone_from(&original.webhook);
    }
    for (name, pool) in &mut config.pools {
        let mut whole = Pool::clone(pool);
        if whole.probe.as_deref().is_some_and(has_masked_field) {
            whole.probe.clone_from(&original.pools[name].probe);
        }
        if whole.remediation.as_ref().is_some_and(|remediation| matches!(remediation.action, Action::Webhook(_))) {
            whole.remediation.clone_from(&original.pools[name].remediation);
        }
        if let (Some(sticky), Some(original)) = (&mut whole.sticky, &original.pools[name].sticky) {
            for (masked, secret) in [(&mut sticky.secret, &original.secret), (&mut sticky.previous, &original.previous)]
            {
                if matches!(masked, Some(Secret::Text(text)) if text == "********") {
                    masked.clone_from(secret);
                }
            }
        }
        *pool = Arc::new(whole);
    }
    config
}

fn has_masked_field(probe: &Probe) -> bool {
    let is_masked = |value: &str| value == "********";
    let in_auth = matches!(&probe.auth, Some(Proof { secret: Secret::Text(text), .. }) if is_masked(text));
    let expected =
        |http: &HttpProbe| http.expect.headers.iter().any(|(_, value)| value.as_deref().is_some_and(is_masked));
    in_auth
        || matches!(&probe.kind, ProbeKind::Http(http)
            if expected(http) || http.headers.iter().any(|(_, value)| is_masked(value)))
}

#[test]
fn what_is_not_written_has_the_documented_value() {
    let read = config(&around(PROBE));
    let limits = Limits::default();
    assert_eq!(read.listeners[0].limits, limits);
    assert_eq!(read.listeners[0].name, "0.0.0.0:8080");
    let seconds = [limits.header_timeout, limits.keepalive_timeout, limits.body_timeout, limits.write_timeout];
    assert_eq!(seconds.map(|s| s.as_secs()), [10, 60, 60, 60]);
    assert_eq!((limits.max_connections, limits.keepalive_requests), (65_536, 10_000));
    assert_eq!((limits.max_header_bytes, limits.max_header_fields, limits.max_uri_bytes), (32_768, 100, 8_192));
    assert_eq!(read.admin.expect("a default").address.to_string(), "127.0.0.1:9900");
    assert_eq!((read.lame_duck.as_secs(), read.drain_timeout.as_secs(), read.max_concurrent_probes), (5, 30, 8192));
    let upstream = Upstream::default();
    let seconds = [upstream.connect_timeout, upstream.read_timeout, upstream.write_timeout, upstream.idle_timeout];
    assert_eq!(seconds.map(|s| s.as_secs()), [3, 60, 30, 55]);
    let retries = Retries { attempts: 2, connect: 3, budget_percent: 20, per_try_timeout: None };
    assert_eq!((pool(PROBE).upstream, pool(PROBE).retries), (upstream, retries));
    assert_eq!(pool(PROBE).rules, Rules::default());
}

#[test]
fn a_fingerprint_changes_with_the_request_the_connection_and_the_expectation_and_with_nothing_else() {
    let of = |probe: &str| {
        let pool = pool(&format!(r#"members: ["10.0.0.1:80"], probe: {probe}"#));
        pool.probe.as_ref().expect("a probe").fingerprint()
    };
    let base = of("{ path: / }");
    let same = [
        "{ path: /, tls: false }",
        "{ path: /, http2: false, reuse: false }",
        "{ path: /, method: GET, scheme: http, expect: { status: 200-299 }, max_body: 64KiB }",
        "{ path: /, interval: 1s, fast_interval: 100ms, timeout: 200ms }",
        "{ path: /, consecutive: { failures: 2 } }",
        "{ path: /, max_latency: 1s, max_latency_ratio: 2, latency_floor: 1ms }",
    ];
    for probe in same {
        assert_eq!(of(probe), base, "{probe}");
    }
    let mut seen = vec![base];
    let other = [
        "tcp",
        "{ kind: tcp, port: 81 }",
        "{ path: /a }",
        "{ path: /, method: HEAD }",
        "{ path: /, host: a }",
        "{ path: /, host_header: a }",
        "{ path: /, port: 80 }",
        "{ path: /, scheme: https }",
        "{ path: /, tls: { ca: /ca.pem } }",
        "{ path: /, tls: { verify: false } }",
        "{ path: /, tls: { sni: a } }",
        "{ path: /, tls: { client_cert: /a.pem, client_key: /a.key } }",
        "{ path: /, tls: { alpn: off } }",
        "{ path: /, headers: { A: b } }",
        "{ path: /, headers: { A: c } }",
        "{ path: /, expect: { status: 200 } }",
        "{ path: /, expect: { body: ok } }",
        "{ path: /, max_body: 1KiB }",
        "{ path: /, http2: true }",
        "{ path: /, http2: true, reuse: true }",
        "{ path: /, http2: true, scheme: https }",
        "{ path: /, reuse: true }",
        "grpc",
        "{ kind: grpc, service: a }",
        "{ kind: grpc, service: b }",
        "{ kind: grpc, reuse: true }",
        "{ kind: grpc, scheme: https }",
        "{ kind: grpc, tls: { verify: false } }",
        "{ kind: grpc, host: a }",
        "{ kind: grpc, host_header: a }",
        "{ kind: grpc, headers: { A: b } }",
        "{ kind: grpc, port: 80 }",
    ];
    for probe in other {
        let print = of(probe);
        assert!(!seen.contains(&print), "{probe}");
        seen.push(print);
    }
}

#[test]
fn probes_per_second_counts_what_is_probed() {
    let text = around(
        r#"members: ["a:80", { address: "b:80", state: draining }, { address: "c:80", state: disabled }, { address: "d:80", weight: 0 }], probe: { path: /, interval: 2s }"#,
    );
    assert_eq!(config(&text).probes_per_second(), 1.5);
    assert_eq!(config(&around(r#"members: ["a:80"], probe: off"#)).probes_per_second(), 0.0);
}

#[test]
fn a_problem_reads_as_file_line_column_severity_message() {
    let problems = parse("a/b.yaml", "listeners: 5\npools: {}\n", &|_| None).expect_err("wrong");
    assert!(
        lines(&problems).contains("\na/b.yaml:1:12: error: `listeners` takes a list, not `5`\n"),
        "{}",
        lines(&problems)
    );
    let problem = Problem { severity: Severity::Warning, file: "f".into(), line: 3, column: 7, message: "m".into() };
    assert_eq!(problem.to_string(), "f:3:7: warning: m");
    let json = serde_json::to_string(&problem).expect("json");
    assert_eq!(json, r#"{"severity":"warning","file":"f","line":3,"column":7,"message":"m"}"#);
}

#[test]
fn an_unreadable_file_is_one_problem() {
    let directory = tempfile::tempdir().expect("a directory");
    for path in [directory.path().join("gone.yaml"), directory.path().to_owned()] {
        let problems = load(&path, &env).expect_err("nothing to read");
        assert_eq!(problems.len(), 1);
        assert_eq!((problems[0].line, problems[0].column), (1, 1));
        let message = &problems[0].message;
        assert!(message.starts_with("the file cannot be read: ") || message == "not a regular file", "{message}");
    }
}

#[test]
fn secrets_of_the_environment_are_not_repeated_in_messages() {
    let text = "admin: { token: \"${T} \" }\nlisteners: [{ address: \"0.0.0.0:80\" }]\npools: { web: { members: [\"a:80\"], probe: { path: /, headers: { X: \"${T}\" } } } }\nroutes: [{ pool: web }]\n";
    let problems = parse("f", text, &|_| Some("hush\nhush".to_owned())).expect_err("a newline cannot be sent");
    assert_eq!(problems.len(), 2, "{}", lines(&problems));
    assert!(!lines(&problems).contains("hush"), "{}", lines(&problems));
}

#[test]
fn durations_take_several_units() {
    for (written, millis) in
        [("250ms", 250), ("1m 30s", 90_000), ("1m30s", 90_000), ("2min", 120_000), ("1h", 3_600_000)]
    {
        let read = pool(&format!("{PROBE}, deadline: {written}"));
        assert_eq!(read.deadline, Some(Duration::from_millis(millis)), "{written}");
    }
}
