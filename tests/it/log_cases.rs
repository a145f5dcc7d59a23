//! The access log: one line for every request, whatever became of it.

use std::collections::BTreeSet;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Gate, Line, Origin, When, eventually, eventually_some};

/// Every field of interfaces.md.
const FIELDS: &[&str] = &[
    "time",
    "request_id",
    "client",
    "listener",
    "proto",
    "tls",
    "method",
    "scheme",
    "host",
    "path",
    "query",
    "status",
    "request_bytes",
    "response_bytes",
    "duration_ms",
    "ttfb_ms",
    "grpc_status",
    "user_agent",
    "referer",
    "route",
    "pool",
    "outcome",
    "reason",
    "upgraded",
    "connection",
    "lb",
    "attempts",
];

fn unprobed(origin: &Origin, listener: &str) -> Proxy {
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\", name: web, {listener} }}]\n");
    Proxy::start(&(listeners + &config_of(&[origin.to_string()], "probe: off")))
}

/// The lines so far once those of all requests that are over are there.
fn lines_after(proxy: &Proxy, sentinel: &str) -> Vec<Line> {
    proxy.settle_access_log(sentinel);
    proxy.access_log().into_iter().filter(|line| line.text("path") != sentinel).collect()
}

#[test]
fn line_says_all_that_the_contract_lists() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    proxy.await_standing(&origin, "healthy");
    origin.await_probes(3);
    let fields = ["Host: shop.example", "User-Agent: curl/8 \"x\"", "Referer: http://r.example/"];
    proxy.request("POST", "/a%20b?q=1&r", &fields, "hello");
    let line = proxy.access("/a%20b");
    for field in FIELDS {
        assert!(line.json.get(field).is_some(), "no {field}: {}", line.raw);
    }
    let texts = [
        ("client", "127.0.0.1"),
        ("listener", "web"),
        ("proto", "HTTP/1.1"),
        ("method", "POST"),
        ("scheme", "http"),
        ("host", "shop.example"),
        ("query", "q=1&r"),
        ("user_agent", "curl/8 \"x\""),
        ("referer", "http://r.example/"),
        ("pool", "web"),
        ("outcome", "ok"),
        ("reason", "-"),
    ];
    assert!(line.has(&texts), "{}", line.raw);
    let numbers = (&line.json["status"], &line.json["request_bytes"], &line.json["response_bytes"]);
    assert_eq!(numbers, (&200.into(), &5.into(), &3.into()), "{}", line.raw);
    let lb = &line.json["lb"];
    assert_eq!(
        (&lb["mode"], &lb["reason"], &lb["in_rotation"], &lb["total"]),
        (&"normal".into(), &"balanced".into(), &1.into(), &1.into())
    );
    let attempt = &line.attempts()[0];
    assert_eq!((&attempt["member"], &attempt["standing"]), (&origin.address().into(), &"healthy".into()));
    let window = attempt["window"].as_str().unwrap_or_default();
    let (passes, shown) = window.split_once('/').unwrap_or_else(|| panic!("window {window:?}"));
    assert!(passes == shown && passes != "0", "all probes passed: {window}");
    assert!(attempt["probe_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{}", line.raw);
    assert_eq!((&attempt["status"], &attempt["bytes"], &attempt["reused"]), (&200.into(), &3.into(), &false.into()));
    assert!(line.text("time").ends_with('Z') && line.text("time").len() == 24, "{}", line.raw);
}

#[test]
fn every_request_has_exactly_one_line() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    for i in 0..10 {
        proxy.get(&format!("/single/{i}"));
    }
    let mut kept = proxy.connect();
    for i in 0..10 {
        kept.get(&format!("/kept/{i}"));
    }
    let lines = lines_after(&proxy, "/sentinel");
    let paths: BTreeSet<&str> = lines.iter().map(|line| line.text("path")).collect();
    assert_eq!((lines.len(), paths.len()), (20, 20));
    let connections: BTreeSet<String> = lines
        .iter()
        .filter(|line| line.text("path").starts_with("/kept"))
        .map(|line| line.json["connection"].to_string())
        .collect();
    assert_eq!(connections.len(), 1, "one connection has one id");
    let mine: Vec<usize> = lines.iter().map(|line| line.attempts().len()).collect();
    assert!(mine.iter().all(|attempts| *attempts == 1));
    assert_eq!(origin.traffic_count(), 21, "client, log and member agree");
}

#[test]
fn bytes_that_are_no_request_are_a_400_with_one_line() {
    let rows: [(&str, &[u8]); 7] = [
        ("garbage", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"),
        ("no version", b"GET /x\r\n\r\n"),
        ("bad field", b"GET /bad HTTP/1.1\r\nHost: a\r\nbad field: 1\r\n\r\n"),
        ("two lengths", b"POST /two HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        ("bad length", b"POST /len HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"),
        ("nul", b"GET /nul HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n"),
        ("escape sequence", b"\x1b[31mGET\xff \"\\ / HTTP/1.1\r\n\r\n"),
    ];
    for (name, bytes) in rows {
        let origin = Origin::start();
        let proxy = unprobed(&origin, "");
        let mut client = proxy.connect();
        client.send(bytes);
        if let Ok(reply) = client.try_reply("GET") {
            assert_eq!(reply.status, 400, "{name}");
        }
        assert!(client.is_closed(), "{name}");
        let line = proxy.await_access(name, |_| true);
        assert!(
            line.has(&[("reason", "bad_request"), ("outcome", "refused"), ("listener", "web")]),
            "{name}: {}",
            line.raw
        );
        assert!(line.attempts().is_empty() && line.json["attempts"].is_array(), "{name}: {}", line.raw);
        let lines = lines_after(&proxy, "/sentinel");
        assert_eq!(lines.len(), 1, "{name}: {:?}", lines.iter().map(|line| &line.raw).collect::<Vec<_>>());
        assert_eq!(origin.traffic().iter().filter(|seen| seen.target != "/sentinel").count(), 0, "{name}");
    }
}

#[test]
fn any_bytes_a_client_sends_come_out_as_json() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    let agents: [&[u8]; 4] =
        [b"quote \" back \\ slash", b"tab \t end", b"\xff\xfe\xc3\x28", "ünï \u{1f600}".as_bytes()];
    for (i, agent) in agents.iter().enumerate() {
        let mut client = proxy.connect();
        client
            .send(format!("GET /json/{i} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nUser-Agent: "))
            .send(agent)
            .send("\r\n\r\n");
        let status = client.reply().status;
        let line = proxy.await_access("a line", |line| line.text("path") == format!("/json/{i}") || status == 400);
        assert!(line.json.is_object(), "{}", line.raw);
    }
    assert!(proxy.access_log().iter().all(|line| line.json.is_object()), "a line is not JSON");
}

#[test]
fn header_that_does_not_come_in_time_has_its_line_and_silence_has_none() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "header_timeout: 400ms");
    let mut silent = proxy.connect();
    assert!(silent.is_closed());
    let mut half = proxy.connect();
    half.send("GET /half HTTP/1.1\r\nHost");
    assert!(half.is_closed());
    let mut second = proxy.connect();
    second.get("/whole");
    second.send("GET /ha");
    assert!(second.is_closed());
    eventually("both halves have lines", || proxy.access_log().len() >= 3);
    let lines = lines_after(&proxy, "/sentinel");
    let timeouts =
        lines.iter().filter(|line| line.has(&[("reason", "header_timeout"), ("outcome", "timeout")])).count();
    assert_eq!((lines.len(), timeouts), (3, 2), "{:?}", lines.iter().map(|line| &line.raw).collect::<Vec<_>>());
}

#[test]
fn client_that_leaves_is_logged_as_such_and_held_against_nobody() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/waits"), Answer::status(200).held_by(&gate));
    let proxy = Proxy::of(&[&origin], "");
    proxy.await_standing(&origin, "healthy");
    let mut waits = proxy.connect();
    waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the member has it", || gate.waiting() == 1);
    waits.reset();
    let line = proxy.access("/waits");
    assert!(line.has(&[("outcome", "client_aborted"), ("reason", "client_aborted")]), "{}", line.raw);
    assert_eq!(line.tried(), [origin.address()]);
    gate.open();

    let mut uploads = proxy.connect();
    uploads.send("POST /uploads HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n").send("part");
    eventually("the upload has begun", || origin.traffic().iter().any(|seen| seen.target == "/uploads"));
    uploads.reset();
    let line = proxy.access("/uploads");
    assert!(line.has(&[("outcome", "client_aborted")]), "{}", line.raw);

    let lines = lines_after(&proxy, "/sentinel");
    assert_eq!(lines.len(), 2, "one line each");
    assert_eq!(proxy.member("web", &origin.address())["standing"], "healthy");
}

#[test]
fn own_answers_have_no_attempts() {
    let origin = Origin::start();
    let pool =
        |name: &str, more: &str| format!("  {name}: {{ members: [{{ address: {origin}, {more} }}], probe: off }}\n");
    let pools = [pool("up", ""), pool("off", "state: disabled")].concat();
    let proxy = Proxy::start(&format!(
        "pools:\n{pools}routes:\n  - {{ path: /up, pool: up }}\n  - {{ path: /off, pool: off }}\n"
    ));
    assert_eq!((proxy.get("/none").status, proxy.get("/off").status), (404, 503));
    for (path, reason, pool) in [("/none", "no_route", None), ("/off", "no_member", Some("off"))] {
        let line = proxy.access(path);
        assert_eq!((line.text("reason"), line.json["pool"].as_str()), (reason, pool), "{}", line.raw);
        assert!(line.json["attempts"].as_array().is_some_and(Vec::is_empty), "{}", line.raw);
    }
}

#[test]
fn log_file_is_reopened_on_usr1_and_loses_no_line() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let config = config_of(&[origin.to_string()], "probe: off");
    let proxy = Proxy::start(&format!("access_log: {{ path: \"{}\" }}\n{config}", path.display()));
    let paths = |file: &std::path::Path| -> Vec<String> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let path =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["path"].as_str().map(str::to_owned);
        text.lines().filter_map(path).collect()
    };
    proxy.get("/before");
    eventually("the line is written", || paths(&path) == ["/before"]);
    std::fs::rename(&path, &moved).expect("ours");
    proxy.get("/moved");
    eventually("it goes to the old file still", || paths(&moved) == ["/before", "/moved"]);
    proxy.signal("USR1");
    eventually("a new file is there", || path.exists());
    proxy.get("/after");
    let after = eventually_some("the line is in the new file", || Some(paths(&path)).filter(|paths| !paths.is_empty()));
    assert_eq!((after, paths(&moved)), (vec!["/after".to_owned()], vec!["/before".to_owned(), "/moved".to_owned()]));
    assert!(proxy.access_log().is_empty(), "nothing on stdout");
}

#[test]
fn log_can_be_switched_off() {
    let origin = Origin::start();
    let proxy = Proxy::start(&format!("access_log: off\n{}", config_of(&[origin.to_string()], "probe: off")));
    assert_eq!(proxy.get("/quiet").status, 200);
    assert!(proxy.access_log().is_empty());
}
