//! What a probe sends, what it takes for an answer, and how often it asks.

use std::time::Duration;

use crate::harness::origin::Seen;
use crate::harness::proxy::{PROBE, config_of, pool_config};
use crate::harness::script::Accept;
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Gate, Origin, Proxy, Step, When, eventually};

/// Members of one origin, `127.0.2.1` and on, one for each row.
fn members_of(origin: &Origin, rows: usize) -> Vec<String> {
    (1..=rows).map(|i| format!("127.0.2.{i}:{}", origin.port())).collect()
}

fn quoted(members: &[String]) -> Vec<String> {
    members.iter().map(|member| format!("\"{member}\"")).collect()
}

/// Gives each row's answer to the probes of its own member and checks what the first samples say.
#[track_caller]
pub fn samples(probe: &str, rows: Vec<(&str, Answer, &str, &str)>) -> Origin {
    let origin = Origin::start_everywhere();
    let members = members_of(&origin, rows.len());
    for (member, (_, answer, _, _)) in members.iter().zip(&rows) {
        let ip = member.split(':').next().expect("host:port");
        origin.when(When::local(ip), answer.clone());
    }
    let proxy = Proxy::start(&config_of(&quoted(&members), probe));
    for (member, (name, _, reason, detail)) in members.iter().zip(&rows) {
        let shown = || proxy.member("web", member);
        eventually("a probe has an answer", || !shown()["last_probe"]["result"].is_null());
        let last = shown()["last_probe"].clone();
        let result = if *reason == "-" { "pass" } else { "fail" };
        assert_eq!(last["result"], result, "{name}: {last}");
        assert_eq!(last["reason"].as_str().unwrap_or("-"), *reason, "{name}: {last}");
        assert!(last["detail"].as_str().unwrap_or_default().contains(detail), "{name}: {last}");
    }
    origin
}

/// In two segments, each flushed on its own.
fn split(first: &str, second: &str) -> Vec<Step> {
    let bytes = |text: &str| Step::Bytes(text.as_bytes().to_vec());
    vec![bytes(first), Step::Pause(Duration::from_millis(20)), bytes(second)]
}

/// "hello" as gzip wrote it.
const GZIP: &[u8] =
    &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6, 0x10, 0x36, 5, 0, 0, 0];

#[test]
fn body_match_sees_the_message_and_not_its_framing() {
    const LIMIT: usize = 64 * 1024;
    let at = |place: usize| format!("{}ALIVE and more", ".".repeat(place));
    let chunks = |steps| Answer::status(200).field("Transfer-Encoding: chunked").steps(steps);
    let end = || Step::Bytes(b"0\r\n\r\n".to_vec());
    let open = Answer::status(200).field("Content-Length: 100");
    let until_close = Answer::status(200).steps([split("THROT", "TLED"), vec![Step::Close]].concat());
    let rows = vec![
        ("whole", Answer::status(200).body("ALIVE"), "-", ""),
        ("two chunks", Answer::chunked(&["xxAL", "IVExx"]), "-", ""),
        ("a byte each", Answer::chunked(&["A", "L", "I", "V", "E"]), "-", ""),
        ("two segments", Answer::status(200).field("Content-Length: 7").steps(split("xALI", "VEx")), "-", ""),
        ("chunk extension", chunks(vec![Step::Bytes(b"5;a=b\r\nALIVE\r\n".to_vec()), end()]), "-", ""),
        ("chunk torn", chunks([split("5\r\nAL", "IVE\r\n"), vec![end()]].concat()), "-", ""),
        ("last place", Answer::status(200).body(at(LIMIT - 5)), "-", ""),
        ("over the edge", Answer::status(200).body(at(LIMIT - 4)), "too_large", ""),
        ("behind the limit", Answer::status(200).body(at(LIMIT)), "too_large", ""),
        ("far behind", Answer::status(200).body(at(5_000_000)), "too_large", ""),
        ("empty", Answer::status(200).body(""), "body", ""),
        ("no content", Answer::status(204), "body", ""),
        ("encoded", Answer::status(200).field("Content-Encoding: gzip").body(GZIP), "body", "gzip"),
        ("another word", Answer::status(200).body("THROTTLED"), "body", ""),
        ("another word, chunked", Answer::chunked(&["THROT", "TLED"]), "body", ""),
        ("another word, until close", until_close, "body", ""),
        ("never ends", open.clone().steps([split("THROT", "TLED"), vec![Step::Hang]].concat()), "timeout", ""),
        ("breaks off", open.steps(vec![Step::Bytes(b"THROT".to_vec()), Step::Reset]), "reset", ""),
        ("status before body", Answer::status(500).body("ALIVE"), "status", "500"),
    ];
    let probe = r#"probe: { path: /healthz, interval: 2s, timeout: 2s, expect: { body: "ALIVE" } }"#;
    let origin = samples(probe, rows);
    let seen = origin.probes();
    assert!(seen.iter().all(|seen| seen.field("accept-encoding") == Some("identity")), "{:?}", seen[0].lines);
}

#[test]
fn any_status_outside_the_expected_is_a_fail_that_says_so() {
    let moved = |status, to: &str| Answer::status(status).field(&format!("Location: {to}"));
    let loops = moved(302, "/healthz");
    let rows = vec![
        ("200", Answer::status(200), "-", ""),
        ("299", Answer::status(299), "-", ""),
        ("426", Answer::status(426), "status", "426"),
        ("426 names what was expected", Answer::status(426), "status", "200-299"),
        ("404", Answer::status(404), "status", "404"),
        ("to https", moved(301, "https://same.example/healthz"), "status", "https://same.example/healthz"),
        ("to a login page", moved(302, "/login"), "status", "/login"),
        ("to another host", moved(302, "http://other.example/"), "status", "http://other.example/"),
        ("relative", moved(307, "up"), "status", "up"),
        ("loop", loops, "status", "/healthz"),
        ("308", moved(308, "/x"), "status", "308"),
        ("interim answers do not count", Answer::bytes(INTERIM), "-", ""),
        ("garbage", Answer::raw(vec![Step::Bytes(b"nonsense\r\n\r\n".to_vec()), Step::Close]), "protocol", ""),
        ("closes", Answer::close(), "reset", ""),
        ("resets", Answer::reset(), "reset", ""),
    ];
    let origin = samples("probe: { path: /healthz, interval: 2s, timeout: 2s }", rows);
    let targets: Vec<String> = origin.probes().into_iter().map(|seen| seen.target).collect();
    assert!(targets.iter().all(|target| target == "/healthz"), "a redirect was followed: {targets:?}");
}

const INTERIM: &str = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Also where HEAD asks, which has no body to search.
#[test]
fn an_answer_has_the_fields_that_are_expected() {
    let with = |lines: &[&str]| lines.iter().fold(Answer::status(200), |answer, line| answer.field(line));
    let expected = "expected ready";
    let rows = || {
        vec![
            ("both", with(&["X-State: ready", "X-Build: 7"]), "-", ""),
            ("blanks around it", with(&["x-state:  ready ", "x-build: 7"]), "-", ""),
            ("one of two lines", with(&["X-State: starting", "X-State: ready", "X-Build: 7"]), "-", ""),
            (
                "another value",
                with(&["X-State: starting", "X-Build: 7"]),
                "header",
                "header x-state: starting, expected ready",
            ),
            ("other letters", with(&["X-State: Ready", "X-Build: 7"]), "header", expected),
            ("a part of a list", with(&["X-State: ready, set", "X-Build: 7"]), "header", expected),
            ("no bytes of a text", with(&["X-State: \u{e9}", "X-Build: 7"]), "header", expected),
            ("one is not there", with(&["X-State: ready"]), "header", "no header x-build"),
            ("none is there", with(&[]), "header", "no header x-build"),
            ("status first", Answer::status(503), "status", "503"),
        ]
    };
    for method in ["GET", "HEAD"] {
        let expect = r#"expect: { headers: { X-State: ready, x-build: "*" } }"#;
        let probe = format!("probe: {{ path: /healthz, method: {method}, interval: 2s, timeout: 2s, {expect} }}");
        let origin = samples(&probe, rows());
        assert!(origin.probes().iter().all(|seen| seen.method == method));
    }
}

#[test]
fn redirect_passes_where_it_is_expected() {
    let moved = Answer::status(302).field("Location: /login");
    let probe = r#"probe: { path: /healthz, interval: 2s, timeout: 2s, expect: { status: "200-399" } }"#;
    samples(probe, vec![("302", moved, "-", ""), ("404", Answer::status(404), "status", "200-399")]);
}

#[test]
fn head_probe_passes_whatever_length_is_promised() {
    let only_head = |fields: &str| Answer::bytes(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
    let rows = vec![
        ("length 4", only_head("Content-Length: 4\r\n"), "-", ""),
        ("length 0", only_head("Content-Length: 0\r\n"), "-", ""),
        ("chunked", only_head("Transfer-Encoding: chunked\r\n"), "-", ""),
        ("no length", only_head(""), "-", ""),
        ("405", Answer::status(405), "status", "GET"),
        ("501", Answer::status(501), "status", "GET"),
    ];
    let origin = samples("probe: { method: HEAD, path: /healthz, interval: 2s, timeout: 2s }", rows);
    assert!(origin.probes().iter().all(|seen| seen.method == "HEAD"));
}

#[test]
fn probe_is_http_1_1_with_the_members_name_and_a_connection_of_its_own() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    origin.await_probes(3);
    let seen = origin.probes();
    let first = &seen[0];
    assert_eq!((first.version.as_str(), first.method.as_str(), first.target.as_str()), ("HTTP/1.1", "GET", "/healthz"));
    assert_eq!(first.field("host"), Some(origin.address().as_str()));
    assert!(first.field("user-agent").is_some_and(|agent| agent.starts_with("pulsegate/")), "{:?}", first.lines);
    assert!(seen.iter().all(|seen| seen.nth == 0), "a probe reused a connection");
    proxy.settle_access_log("/sentinel");
    assert_eq!(proxy.access_log().len(), 1, "probes never appear in the access log");
}

#[test]
fn probe_carries_its_own_host_and_fields() {
    let origin = Origin::start();
    let probe = "probe: { path: \"/ready?full=1\", host: app.internal, headers: { X-Token: abc }, interval: 500ms }";
    let _proxy = Proxy::start(&config_of(&[origin.to_string()], probe));
    eventually("a probe came", || origin.seen().len() > 1);
    let seen = &origin.seen()[0];
    assert_eq!((seen.target.as_str(), seen.field("host")), ("/ready?full=1", Some("app.internal")));
    assert_eq!(seen.field("x-token"), Some("abc"));
}

#[test]
fn members_that_do_not_answer_say_how() {
    let (refuses, frozen, resets, good) = (Origin::stopped(), Origin::start(), Origin::start(), Origin::start());
    frozen.accept(Accept::Ignore);
    resets.accept(Accept::Reset);
    let proxy = Proxy::of(&[&refuses, &frozen, &resets, &good], "");
    let reason = |origin: &Origin| proxy.member("web", &origin.address())["last_probe"]["reason"].clone();
    let reasons = || (reason(&refuses), reason(&frozen), reason(&resets));
    eventually("each says why", || reasons() == ("refused".into(), "timeout".into(), "reset".into()));
    proxy.await_standing(&good, "healthy");
    // Never proven, so none is ejected: they stand unknown and get nothing.
    assert!(proxy.sample("/only", 9).iter().all(|line| line.tried() == [good.address()]));
}

#[test]
fn tcp_probe_asks_for_no_more_than_a_connection() {
    let (a, b) = (Origin::start(), Origin::start());
    let keys = "probe: { kind: tcp, interval: 300ms, consecutive: { failures: 2, passes: 1 } }";
    let proxy = Proxy::start(&config_of(&[a.to_string(), b.to_string()], keys));
    proxy.await_all_healthy();
    a.answer(Answer::status(503));
    eventually("it is probed on", || a.accepted() >= 4);
    assert_eq!((a.seen().len(), proxy.member("web", &a.address())["verdict"] == "healthy"), (0, true));
    b.stop();
    proxy.await_standing(&b, "ejected");
    b.start_again();
    proxy.await_standing(&b, "healthy");
}

#[test]
fn detection_is_fast_after_the_first_fail_and_cheap_before() {
    let (clock, watched) = (Origin::start(), Origin::start());
    let probe = "probe: { path: /healthz, interval: 1s, fast_interval: 50ms, timeout: 1s, consecutive: { failures: 6, passes: 6 } }";
    let proxy = Proxy::start(&config_of(&[clock.to_string(), watched.to_string()], probe));
    proxy.await_standing(&watched, "healthy");
    // No traffic at all. The other member's probes, one interval apart, are the clock.
    let since = |answer: Answer, to: &str| {
        watched.answer(answer);
        let first = watched.probe_count();
        eventually("the first contrary probe came", || watched.probe_count() > first);
        let (before, mark) = (clock.probe_count(), proxy.mark().saturating_sub(1));
        proxy.await_event(mark, &[("member", &watched.address()), ("to", to)]);
        clock.probe_count() - before
    };
    let intervals = since(Answer::status(503), "unhealthy");
    assert!(intervals <= 3, "six fails took {intervals} intervals");
    let intervals = since(Answer::status(200), "healthy");
    assert!(intervals <= 3, "six passes took {intervals} intervals");
}

#[test]
fn slow_answers_do_not_stretch_the_interval() {
    let (quick, slow) = (Origin::start(), Origin::start());
    slow.answer(Answer::status(200).after(Duration::from_millis(300)));
    let probe = "probe: { path: /healthz, interval: 500ms, fast_interval: 500ms, timeout: 500ms }";
    let _proxy = Proxy::start(&config_of(&[quick.to_string(), slow.to_string()], probe));
    slow.await_probes(1);
    let (quick_before, slow_before) = (quick.probe_count(), slow.probe_count());
    quick.await_probes(8);
    let (quick, slow) = (quick.probe_count() - quick_before, slow.probe_count() - slow_before);
    assert!(slow + 2 >= quick, "{slow} probes of the slow member against {quick} of the quick one");
}

#[test]
fn first_round_is_immediate_and_the_rest_is_spread() {
    const MEMBERS: u8 = 60;
    let origin = Origin::start_everywhere();
    let members = quoted(&members_of(&origin, MEMBERS.into())).join(", ");
    let probe = "probe: { path: /healthz, interval: 3s, timeout: 2s, fast_interval: 3s }";
    let pool = |name: &str| format!("  {name}:\n    members: [{members}]\n    {}\n", probe.replace("healthz", name));
    let config = format!("pools:\n{}{}{}routes: [{{ pool: a }}]\n", pool("a"), pool("b"), pool("c"));
    let proxy = Proxy::start(&config);
    let all = 3 * usize::from(MEMBERS);
    eventually("five rounds", || origin.probe_count() >= 5 * all);
    drop(proxy);
    let seen: Vec<Seen> = origin.probes().into_iter().take(5 * all).collect();
    let mut first: Vec<_> = seen[..all].iter().map(|seen| (seen.local, seen.target.clone())).collect();
    first.sort();
    first.dedup();
    // A check whose place on its grid comes soon is made again before the last of the first round, the more so where the
    // machine is slow to make it.
    assert!(first.len() >= all / 2, "only {} of {all} checks are in the first round", first.len());
    // One checker for each pair: nobody is probed twice as often as the others.
    for key in &first {
        let count = seen.iter().filter(|seen| (seen.local, seen.target.clone()) == *key).count();
        assert!((3..=7).contains(&count), "{key:?} was probed {count} times in 5 rounds");
    }
    // Later rounds are no bursts: no quarter of an interval holds most of a round.
    let late: Vec<_> = seen[2 * all..].iter().map(|seen| seen.at).collect();
    let quarter = Duration::from_millis(750);
    let busiest = late.iter().map(|start| late.iter().filter(|at| **at >= *start && **at < *start + quarter).count());
    let busiest = busiest.max().unwrap_or_default();
    assert!(busiest < all * 3 / 4, "{busiest} of {all} probes within a quarter of the interval");
}

#[test]
fn pool_that_nobody_uses_is_probed_rarely_until_its_first_request() {
    let (clock, quiet) = (Origin::start(), Origin::start());
    let pool = |name: &str, origin: &Origin, more: &str| {
        format!("  {name}:\n    members: [{origin}]\n    probe: {{ path: /healthz, interval: 200ms{more} }}\n")
    };
    let pools = pool("clock", &clock, "") + &pool("quiet", &quiet, ", idle: { after: 1s, interval: 24h }");
    let proxy = Proxy::start(&format!("pools:\n{pools}routes: [{{ pool: quiet }}]\n"));
    eventually("it is left in peace", || {
        let before = quiet.probe_count();
        clock.await_probes(5);
        quiet.probe_count() == before
    });
    assert_eq!(proxy.get("/first").status, 200);
    quiet.await_probes(3);
}

#[test]
fn every_kind_of_pool_is_probed_without_traffic() {
    let (fixed, named, added) = (Origin::start(), Origin::start(), Origin::start());
    let pool = |name: &str, member: &str| format!("  {name}:\n    members: [\"{member}\"]\n    {PROBE}\n");
    let by_name = format!("localhost:{}", named.port());
    let two = format!("pools:\n{}{}", pool("fixed", &fixed.address()), pool("named", &by_name));
    let proxy = Proxy::start(&format!("{two}routes: [{{ pool: fixed }}]\n"));
    fixed.await_probes(4);
    named.await_probes(4);
    proxy.reload(&format!("{two}{}routes: [{{ pool: fixed }}]\n", pool("added", &added.address())));
    added.await_probes(4);
    fixed.await_probes(4);
    named.await_probes(4);
}

#[test]
fn never_probed_is_a_state_of_its_own() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.answer(Answer::status(200).held_by(&gate));
    let config = pool_config(&[&origin], "initial_wait: 20s").replace("500ms", "20s");
    let proxy = Proxy::start(&config);
    eventually("the first probe is under way", || gate.waiting() == 1);
    let shown = proxy.member("web", &origin.address());
    assert_eq!((&shown["verdict"], &shown["standing"]), (&"unknown".into(), &"unknown".into()), "{shown}");
    assert!(shown["last_probe"].is_null(), "{shown}");
    assert_eq!(proxy.pool("web")["mode"], "waiting");
    assert_eq!(proxy.admin_get("/readyz").status, 503);
    assert_eq!(proxy.admin_get("/livez").status, 200);
    gate.open();
    proxy.await_standing(&origin, "healthy");
    assert_eq!(proxy.admin_get("/readyz").status, 200);
}

#[test]
fn chunk_helper_writes_what_the_rfc_says() {
    assert_eq!(chunk_of("abcdefghijklmnop"), b"10\r\nabcdefghijklmnop\r\n");
}
