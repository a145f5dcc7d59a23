//! Answers of the proxy's own: which they are, what they carry, and what becomes of the connection.

use crate::harness::proxy::{Proxy, config_of, pool_config};
use crate::harness::{Answer, Gate, Origin, When, eventually};

#[test]
fn deadline_ends_a_cold_start_before_any_attempt() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::probe(), Answer::status(200).held_by(&gate));
    let probe = "probe: { path: /healthz, interval: 60s, timeout: 60s }\ninitial_wait: 60s\ndeadline: 500ms";
    let proxy = Proxy::start(&config_of(&[origin.to_string()], probe));
    eventually("the first probe is out", || gate.waiting() == 1);
    let mut client = proxy.connect();
    for path in ["/cold/1", "/cold/2"] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.complete), (504, true), "{path}");
        let line = proxy.access(path);
        assert!(line.has(&[("reason", "deadline"), ("outcome", "timeout")]), "{}", line.raw);
        assert!(line.attempts().is_empty() && line.json["status"] == 504, "{}", line.raw);
        let waited = line.json["lb"]["waited_ms"].as_f64().expect("a number");
        assert!(line.json["lb"]["mode"] == "waiting" && waited > 0.0, "{}", line.raw);
    }
    gate.open();
    proxy.await_standing(&origin, "healthy");
    assert_eq!(client.get("/warm").status, 200, "on the same connection");
    assert!(proxy.log().iter().all(|line| !line.is_error() && !line.raw.contains("panicked")), "an error was logged");
}

#[test]
fn unavailable_pool_costs_nobody_a_connection() {
    let (bad, good) = (Origin::start(), Origin::start());
    bad.when(When::probe(), Answer::status(503));
    let pools = [
        format!("  bad: {{ members: [{bad}], on_all_unhealthy: fail, PROBE }}\n"),
        format!("  off: {{ members: [{{ address: {bad}, state: disabled }}], probe: off }}\n"),
        format!("  good: {{ members: [{good}], probe: off }}\n"),
    ];
    let probe = "probe: { path: /healthz, interval: 500ms, timeout: 500ms, consecutive: { failures: 1, passes: 1 } }";
    let routes = ["bad", "off", "good"].map(|name| format!("  - {{ path: /{name}, pool: {name} }}\n")).concat();
    let proxy = Proxy::start(&format!("pools:\n{}routes:\n{routes}", pools.concat().replace("PROBE", probe)));
    let failing = || proxy.pool("bad")["members"][0]["verdict"] == "unhealthy";
    eventually("the bad one is known to be", failing);
    let mut client = proxy.connect();
    for (path, reason) in [("/bad", "all_unhealthy"), ("/off", "no_member")] {
        for round in 0..2 {
            let path = format!("{path}/{round}");
            let reply = client.get(&path);
            assert_eq!((reply.status, reply.complete), (503, true), "{path}");
            let closes = reply.fields("connection").iter().any(|value| value.eq_ignore_ascii_case("close"));
            assert!(!closes && reply.field("retry-after").is_some(), "{path}: {:?}", reply.lines);
            let line = proxy.access(&path);
            assert!(line.has(&[("reason", reason), ("outcome", "refused")]), "{}", line.raw);
            assert!(line.attempts().is_empty(), "{}", line.raw);
        }
        assert_eq!(client.get(&format!("/good{path}")).status, 200, "after {reason}");
    }
    proxy.settle_access_log("/good/sentinel");
    let lines = proxy.access_log();
    let on =
        |connection: &serde_json::Value| lines.iter().filter(|line| line.json["connection"] == *connection).count();
    assert_eq!(on(&lines[0].json["connection"]), 6, "all on one connection");
}

#[test]
fn own_answers_say_whose_they_are_and_name_no_server() {
    let origin = Origin::start();
    let limits = "max_header_bytes: 2KiB, max_uri_bytes: 1KiB, header_timeout: 1s, body_timeout: 500ms";
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\", name: web, {limits} }}]\n");
    let config = config_of(&[origin.to_string()], "probe: off").replace("{ pool: web }", "{ path: /here, pool: web }");
    let proxy = Proxy::start(&(listeners + &config));
    let field = |bytes: usize| format!("X-Big: {}", "x".repeat(bytes));
    let get = |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let rows: [(&str, String, u16, &str); 11] = [
        ("garbage", "\x16\x03\r\n\r\n".into(), 400, "http_request_error"),
        ("no host", "GET / HTTP/1.1\r\n\r\n".into(), 400, "http_request_error"),
        ("pipelined garbage", format!("{}\x16\x03\r\n\r\n", get("/here", "")), 400, "http_request_error"),
        ("no route", get("/elsewhere", ""), 404, "destination_not_found"),
        ("connect", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".into(), 405, "http_request_denied"),
        ("half a header", "GET /here HTTP/1.1\r\nHost".into(), 408, "http_request_error"),
        ("half a second header", format!("{}GET /he", get("/here", "")), 408, "http_request_error"),
        ("half a body", get("/here", "Content-Length: 9\r\n").replace("GET", "POST"), 408, "http_request_error"),
        ("long target", get(&format!("/{}", "u".repeat(1500)), ""), 414, "http_request_error"),
        ("large header", get("/here", &format!("{}\r\n", field(3000))), 431, "http_request_error"),
        ("endless header", format!("GET /here HTTP/1.1\r\nHost: a\r\n{}", field(100_000)), 431, "http_request_error"),
    ];
    for (name, bytes, status, word) in rows {
        let mut client = proxy.connect();
        let (first, second) =
            if name.contains("second") { bytes.split_at(bytes.len() - 7) } else { (bytes.as_str(), "") };
        client.send(first);
        if name.contains("pipelined") || !second.is_empty() {
            assert_eq!(client.reply().status, 200, "{name}");
            client.send(second);
        }
        let reply = client.try_reply("GET").unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((reply.status, reply.version.as_str(), reply.complete), (status, "HTTP/1.1", true), "{name}");
        assert!(reply.text().starts_with(&format!("{status} ")), "{name}: {}", reply.text());
        let told = format!("pulsegate; error={word}");
        assert_eq!(reply.fields("proxy-status"), [told.as_str()], "{name}: {:?}", reply.lines);
        assert_eq!(reply.field("server"), None, "{name}: {:?}", reply.lines);
    }
    // What a member says of itself is its own.
    origin.answer(Answer::status(404).field("Server: theirs"));
    let reply = proxy.get("/here");
    assert_eq!((reply.field("server"), reply.field("proxy-status")), (Some("theirs"), None), "{:?}", reply.lines);
}

#[test]
fn connect_is_refused_with_a_line_that_says_what_was_asked_for_and_ends_its_connection() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config_of(&[origin.to_string()], "probe: off"));
    let hoped_for = "GET /tunnelled HTTP/1.1\r\nHost: a\r\n\r\n";
    // (its target, its other fields, what follows)
    let rows = [
        ("first.example:443", "", ""),
        ("then.example:443", "", ""),
        ("hopes.example:80", "", hoped_for),
        ("[::1]:443", "Proxy-Connection: keep-alive\r\nUser-Agent: x\r\n", ""),
        ("body.example:443", "Content-Length: 3\r\n", "abc"),
    ];
    for (target, fields, more) in rows {
        let mut client = proxy.connect();
        if target.starts_with("then") {
            assert_eq!(client.get("/before").status, 200);
        }
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{fields}\r\n{more}"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.field("connection")), (405, Some("close")), "{target}");
        assert!(reply.field("allow").is_some_and(|allow| allow.contains("GET")), "{:?}", reply.lines);
        assert!(client.is_closed(), "{target}");
        let line = proxy.access(target);
        let asked = [("method", "CONNECT"), ("host", target), ("path", target), ("proto", "HTTP/1.1")];
        assert!(line.has(&asked), "{}", line.raw);
        assert!(line.has(&[("outcome", "refused"), ("reason", "denied")]), "{}", line.raw);
        assert_eq!(line.json["status"], 405, "{}", line.raw);
        assert_eq!(reply.field("x-request-id"), line.json["request_id"].as_str(), "{}", line.raw);
        assert!(line.json["pool"].is_null() && line.attempts().is_empty(), "{}", line.raw);
    }
    assert!(origin.traffic().iter().all(|seen| seen.target == "/before"), "what follows is no request");
}

#[test]
fn member_that_cannot_be_dialled_leaves_an_answer_that_says_so() {
    let dead = Origin::stopped();
    let proxy = Proxy::start(&pool_config(&[&dead], ""));
    proxy.await_mode("fallback");
    let reply = proxy.get("/dead");
    assert_eq!((reply.status, reply.field("server")), (502, None), "{:?}", reply.lines);
    assert_eq!(reply.fields("proxy-status"), ["pulsegate; error=connection_refused"]);
}
