//! Starting and ending: what refuses to start says why and is gone; what ends finishes what it began.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::harness::client::try_request;
use crate::harness::process::{Ended, run};
use crate::harness::proxy::{Proxy, completed, config_of, write_config};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Connection, Gate, Load, Origin, Step, When, eventually};

/// A configuration that is right, with nobody behind it.
const RIGHT: &str = "pools:\n  web: { members: [\"127.0.0.1:1\"], probe: off }\nroutes: [{ pool: web }]\n";

/// Runs `pulsegate run` on this text to its end.
#[track_caller]
fn start_that_fails(config: &str) -> Ended {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = write_config(folder.path(), config);
    run_on(folder.path(), &path.to_string_lossy())
}

#[track_caller]
fn run_on(folder: &Path, config: &str) -> Ended {
    run(folder, &["run", "--config", config], &[])
}

/// It failed with the reason on the last line of stderr, and never served.
#[track_caller]
fn assert_failed(ended: &Ended, word: &str) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.reason().contains(word), "no {word:?} in the last line: {:?}\n{}", ended.reason(), ended.stderr);
    assert!(!ended.stderr.contains("\"serving\""), "it served first: {}", ended.stderr);
}

fn on(port: u16) -> String {
    format!("listeners: [{{ address: \"127.0.0.1:{port}\", name: web }}]\n{RIGHT}")
}

#[test]
fn used_port_ends_the_start_with_the_reason() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    assert_failed(&start_that_fails(&on(port)), &format!("127.0.0.1:{port}"));
    let admin = format!("admin: {{ address: \"127.0.0.1:{port}\" }}\n{RIGHT}");
    assert_failed(&start_that_fails(&admin), &format!("127.0.0.1:{port}"));
}

#[test]
fn port_of_another_pulsegate_is_used_too() {
    let origin = Origin::start();
    let first = Proxy::start(&config_of(&[origin.to_string()], "probe: off"));
    let port = first.address().port();
    assert_failed(&start_that_fails(&on(port)), &format!("127.0.0.1:{port}"));
    assert!((0..20).all(|_| first.get("/still-mine").status == 200), "the second took a share of the port");
}

#[test]
fn second_listener_that_cannot_be_bound_ends_the_start() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let listeners =
        format!(r#"listeners: [{{ address: "127.0.0.1:0", name: a }}, {{ address: "{address}", name: b }}]"#);
    assert_failed(&start_that_fails(&format!("{listeners}\n{RIGHT}")), &address);
}

#[test]
fn unreadable_file_ends_the_start_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("bytes.yaml"), b"\xff\xfe\x00").expect("ours");
    for file in ["missing.yaml", "bytes.yaml", "."] {
        let ended = run_on(folder.path(), file);
        // The problem has a line of its own, with its place; the last line sums up.
        assert_failed(&ended, "error");
        assert!(ended.stderr.contains(file), "{file}: {}", ended.stderr);
    }
}

#[test]
fn log_file_that_cannot_be_opened_ends_the_start() {
    let config = format!("access_log: {{ path: /nowhere/at/all/access.log }}\n{RIGHT}");
    assert_failed(&start_that_fails(&config), "/nowhere/at/all/access.log");
}

#[test]
fn broken_configs_end_the_start_with_every_problem() {
    let keys = |keys: &str| config_of(&["\"127.0.0.1:1\"".to_owned()], keys);
    // (what is wrong, the text, words of which each must stand in what is printed)
    let rows: &[(&str, String, &[&str])] = &[
        ("not yaml", "pools: [".to_owned(), &["proxy.yaml"]),
        ("unknown key", keys("blance: random"), &["blance", "balance"]),
        ("unknown pool", RIGHT.replace("{ pool: web }", "{ pool: wep }"), &["wep", "web"]),
        ("timeout over interval", keys("probe: { path: /, interval: 1s, timeout: 10s }"), &["timeout", "interval"]),
        ("head with a body", keys("probe: { method: HEAD, path: /, expect: { body: x } }"), &["HEAD", "body"]),
        ("overlapping ranges", keys("probe: { path: /, expect: { status: \"200-299,250\" } }"), &["250"]),
        ("empty range", keys("probe: { path: /, expect: { status: \"299-200\" } }"), &["299-200"]),
        (
            "member twice",
            config_of(&["\"127.0.0.1:1\"".into(), "\"127.0.0.1:1\"".into()], ""),
            &["127.0.0.1:1", "twice"],
        ),
        ("unset variable", RIGHT.replace("127.0.0.1:1", "${NOBODY_SET_THIS}:1"), &["NOBODY_SET_THIS"]),
        ("two at once", keys("blance: random\nretires: {}"), &["blance", "retires"]),
    ];
    for (name, config, words) in rows {
        let ended = start_that_fails(config);
        assert_eq!(ended.code, Some(1), "{name}: {ended:?}");
        for word in *words {
            assert!(ended.stderr.contains(word), "{name}: no {word:?} in {}", ended.stderr);
        }
        assert!(!ended.reason().is_empty() && !ended.stderr.contains("\"serving\""), "{name}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{name}: {}", ended.stderr);
    }
}

#[test]
fn problems_have_their_place_in_check_as_in_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = completed(&config_of(&["\"127.0.0.1:1\"".to_owned()], "blance: random"));
    let line = config.lines().position(|line| line.contains("blance")).expect("written") + 1;
    std::fs::write(folder.path().join("proxy.yaml"), &config).expect("ours");
    let place = format!("proxy.yaml:{line}:5: error:");
    let checked = run(folder.path(), &["check", "--config", "proxy.yaml"], &[]);
    assert_eq!(checked.code, Some(1));
    assert!(format!("{}{}", checked.stdout, checked.stderr).contains(&place), "no {place}: {checked:?}");
    let ran = run_on(folder.path(), "proxy.yaml");
    assert!(ran.stderr.contains(&format!("proxy.yaml:{line}:5")), "{}", ran.stderr);
}

#[test]
fn check_warns_of_a_cap_that_rounds_to_nobody() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let members = ["\"127.0.0.1:1\"".to_owned(), "\"127.0.0.1:2\"".to_owned(), "\"127.0.0.1:3\"".to_owned()];
    let check = |config: &str, more: &[&str]| {
        write_config(folder.path(), config);
        run(folder.path(), &[&["check", "--config", "proxy.yaml"], more].concat(), &[])
    };
    let ended = check(&config_of(&members, "max_unhealthy_percent: 10"), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said = format!("{}{}", ended.stdout, ended.stderr);
    let warned = said.lines().any(|line| line.contains("warning:") && line.contains("10 % of 3"));
    assert!(warned, "no warning of the cap: {said}");
    assert_eq!(check(&config_of(&members, "max_unhealthy_percent: 10"), &["--strict"]).code, Some(1));
    let ended = check(&config_of(&members[..1], "max_unhealthy_percent: 10\nprobe: { path: /up }"), &[]);
    assert!(!format!("{}{}", ended.stdout, ended.stderr).contains("10 %"), "a pool of one needs no warning");
}

#[test]
fn wrong_usage_is_exit_2() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    assert_eq!(run(folder.path(), &["run", "--no-such-flag"], &[]).code, Some(2));
    assert_eq!(run(folder.path(), &["no-such-command"], &[]).code, Some(2));
    let help = run(folder.path(), &["--help"], &[]);
    assert!(help.code == Some(0) && help.stdout.contains("check"), "{help:?}");
}

#[test]
fn sigterm_lets_requests_in_flight_finish_and_ends_when_empty() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).body("whole").held_by(&gate));
    let part = |text: &str| Step::Bytes(chunk_of(text));
    let steps = vec![part("one"), Step::Hold(gate.clone()), part("two"), Step::Bytes(b"0\r\n\r\n".to_vec())];
    origin.when(When::path("/download"), Answer::status(200).field("Transfer-Encoding: chunked").steps(steps));
    let config = config_of(&[origin.to_string()], "probe: off");
    // Longer than the suite's patience: an end that only comes after a fixed time is no end.
    let mut proxy = Proxy::start(&format!("drain_timeout: 10m\n{config}"));
    let mut idle = proxy.connect();
    assert_eq!(idle.get("/idle").status, 200);
    let (mut held, mut download, mut upload) = (proxy.connect(), proxy.connect(), proxy.connect());
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    download.send("GET /download HTTP/1.1\r\nHost: a\r\n\r\n");
    upload.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n").send("half");
    eventually("all three are under way", || gate.waiting() == 2 && origin.traffic_count() == 4);

    proxy.signal("TERM");
    eventually("new connections are refused", || Connection::try_open(proxy.address()).is_err());
    assert!(idle.is_closed(), "idle connections are closed");
    assert!(proxy.is_running(), "requests are in flight");
    assert_eq!(upload.send("half").reply().status, 200);
    gate.open();
    let reply = held.reply();
    assert_eq!((reply.status, reply.text().as_str()), (200, "whole"));
    assert_eq!(reply.field("connection").map(str::to_ascii_lowercase).as_deref(), Some("close"), "{:?}", reply.lines);
    let reply = download.reply();
    assert!(reply.complete && reply.text() == "onetwo");
    assert_eq!(proxy.wait().code(), Some(0));
    let paths: Vec<String> = proxy.access_log().iter().map(|line| line.text("path").to_owned()).collect();
    assert!(
        ["/idle", "/held", "/download", "/upload"].iter().all(|path| paths.contains(&(*path).to_owned())),
        "{paths:?}"
    );
    assert_eq!(paths.len(), 4, "{paths:?}");
}

#[test]
fn sigterm_with_nothing_in_flight_ends_at_once() {
    let origin = Origin::start();
    let mut proxy = Proxy::of(&[&origin], "");
    proxy.await_standing(&origin, "healthy");
    let mut idle = proxy.connect();
    idle.get("/idle");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    assert!(idle.is_closed());
}

#[test]
fn lame_duck_fails_readiness_first_and_serves_on() {
    let origin = Origin::start();
    let config = config_of(&[origin.to_string()], "probe: off");
    let mut proxy = Proxy::start(&format!("lame_duck: 2s\n{config}"));
    assert_eq!(proxy.admin_get("/readyz").status, 200);
    proxy.signal("TERM");
    eventually("readiness is down", || {
        try_request(proxy.admin(), "GET", "/readyz", &[], "").is_ok_and(|r| r.status == 503)
    });
    assert_eq!(proxy.get("/lame-duck").status, 200, "new connections are served meanwhile");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn sigint_skips_the_lame_duck() {
    let origin = Origin::start();
    let config = config_of(&[origin.to_string()], "probe: off");
    // A lame duck beyond the suite's patience.
    let mut proxy = Proxy::start(&format!("lame_duck: 10m\n{config}"));
    proxy.signal("INT");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn drain_is_cut_at_its_limit_and_the_cut_request_has_its_line() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.answer(Answer::status(200).held_by(&gate));
    let keys = "probe: off\nmax_in_flight: 1\nqueue: { size: 1, timeout: 10m }";
    let config = config_of(&[origin.to_string()], keys);
    let mut proxy = Proxy::start(&format!("drain_timeout: 500ms\n{config}"));
    let (mut client, mut waiting) = (proxy.connect(), proxy.connect());
    client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is under way", || gate.waiting() == 1);
    waiting.send("GET /waiting HTTP/1.0\r\nHost: a\r\n\r\n");
    eventually("the next one waits", || proxy.pool("web")["queue"]["length"] == 1);
    proxy.signal("TERM");
    proxy.wait();
    assert!(client.is_closed() && waiting.is_closed());
    let line = proxy.access("/endless");
    assert!(line.has(&[("reason", "shutdown"), ("proto", "HTTP/1.1")]), "{}", line.raw);
    let line = proxy.access("/waiting");
    assert!(line.has(&[("reason", "shutdown"), ("proto", "HTTP/1.0")]) && line.attempts().is_empty(), "{}", line.raw);
    assert!(line.json["lb"]["waited_ms"].as_f64().is_some_and(|waited| waited > 0.0), "{}", line.raw);
    gate.open();
}

#[test]
fn load_through_a_graceful_end_loses_no_request_that_was_answered() {
    let origin = Origin::start();
    let config = config_of(&[origin.to_string()], "probe: off");
    let mut proxy = Proxy::start(&config);
    let load = Load::start(proxy.address(), 4, "/steady");
    load.await_each(20);
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    let tally = load.finish();
    // Once the listener is closed connections are refused; nothing breaks off, and no answer is anything but a 200.
    assert!(tally.statuses.keys().all(|status| *status == 200), "{:?}", tally.statuses);
    let broken = tally.failures.iter().filter(|why| why.contains("broke off") || why.contains("framing")).count();
    assert_eq!(broken, 0, "{:?}", tally.failures);
}

/// Elsewhere it is an upgrade; unheard it would be the end.
#[test]
fn a_signal_for_an_upgrade_is_a_warning() {
    let origin = Origin::start();
    let mut proxy = Proxy::of(&[&origin], "");
    let mark = proxy.mark();
    proxy.signal("USR2");
    let line = proxy.await_log("the warning", mark, |line| line.raw.contains("SIGUSR2 does nothing"));
    assert!(line.has(&[("level", "warn"), ("target", "server")]), "{}", line.raw);
    assert!(proxy.is_running());
    assert_eq!(proxy.get("/after").status, 200);
}
