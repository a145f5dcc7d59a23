//! Probes that keep their connection (`probe: { reuse: true }`), seen by the members.

use crate::harness::proxy::config_of;
use crate::harness::{Answer, Origin, Proxy, When, eventually};

fn probe(path: &str, more: &str) -> String {
    format!(
        "probe: {{ path: {path}, interval: 300ms, fast_interval: 50ms, timeout: 300ms, reuse: true, consecutive: {{ failures: 2, passes: 1 }} }}{more}"
    )
}

fn config(origin: &Origin, path: &str) -> String {
    config_of(&[origin.to_string()], &probe(path, ""))
}

/// Waits until one connection has carried so many probes of `path`.
#[track_caller]
fn await_kept(origin: &Origin, path: &str, probes: usize) {
    eventually("a connection is kept", || {
        origin.seen().iter().any(|seen| seen.target == path && seen.nth + 1 >= probes)
    });
}

/// Fails of probes that the log tells of.
fn failed(proxy: &Proxy) -> usize {
    proxy.log().iter().filter(|line| line.text("target") == "probe").count()
}

#[test]
fn one_connection_carries_all_probes_of_a_member() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config(&origin, "/healthz"));
    await_kept(&origin, "/healthz", 5);
    assert_eq!(origin.accepted(), 1);
    let last = proxy.member("web", &origin.address())["last_probe"].clone();
    assert!(last["connect_ms"].is_null() && last["first_byte_ms"].is_number(), "{last}");
    assert!(origin.probes().iter().all(|seen| seen.field("connection").is_none()));
}

#[test]
fn reload_keeps_the_connection_of_a_probe_that_stays_and_closes_that_of_one_that_does_not() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config(&origin, "/healthz"));
    await_kept(&origin, "/healthz", 3);
    // Nothing that the probe is made of.
    proxy.reload(&config(&origin, "/healthz").replace("interval: 300ms", "interval: 350ms"));
    await_kept(&origin, "/healthz", 6);
    assert_eq!(origin.accepted(), 1);

    proxy.reload(&config(&origin, "/other"));
    await_kept(&origin, "/other", 2);
    assert_eq!(origin.accepted(), 2, "another probe has a connection of its own");
    eventually("the old one is closed", || origin.open() == 1);
}

#[test]
fn connection_goes_with_the_member_and_with_the_proxy() {
    let (origin, other) = (Origin::start(), Origin::start());
    let both = config_of(&[origin.to_string(), other.to_string()], &probe("/healthz", ""));
    let mut proxy = Proxy::start(&both);
    await_kept(&origin, "/healthz", 2);
    await_kept(&other, "/healthz", 2);
    proxy.reload(&config(&other, "/healthz"));
    eventually("the member that is gone is left alone", || origin.open() == 0);
    proxy.signal("TERM");
    proxy.wait();
    eventually("so is everybody", || other.open() == 0);
}

#[test]
fn member_that_closes_what_is_idle_never_fails() {
    let origin = Origin::start();
    origin.close_after(2);
    let proxy = Proxy::start(&config(&origin, "/healthz"));
    eventually("many connections", || origin.accepted() >= 5);
    assert_eq!(failed(&proxy), 0);
}

#[test]
fn close_that_crosses_the_request_is_tried_once_more_and_not_counted() {
    let origin = Origin::start();
    // The second request of each connection is read, and the connection closed without a word.
    origin.when(When::reused(), Answer::close());
    let proxy = Proxy::start(&config(&origin, "/healthz"));
    eventually("many connections", || origin.accepted() >= 5);
    assert!(origin.probes().iter().any(|seen| seen.nth == 1));
    assert_eq!(failed(&proxy), 0);
    // The first request of one is the member's answer.
    origin.when(When::probe(), Answer::close());
    eventually("now it fails", || failed(&proxy) > 0);
}

#[test]
fn member_that_dies_is_noticed_on_a_kept_connection() {
    let (origin, other) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config_of(&[origin.to_string(), other.to_string()], &probe("/healthz", "")));
    await_kept(&origin, "/healthz", 2);
    origin.stop();
    proxy.await_standing(&origin, "ejected");
    assert_eq!(proxy.member("web", &origin.address())["last_probe"]["reason"], "refused");
    origin.start_again();
    proxy.await_standing(&origin, "healthy");
    origin.answer(Answer::status(503));
    proxy.await_standing(&origin, "ejected");
}

/// Their connections took every descriptor: no client, operator or reload got through any more.
#[test]
fn more_members_than_descriptors_leave_some_for_clients_and_operators() {
    let crowd = Origin::start_everywhere();
    let members: Vec<String> = (1..=200).map(|n| format!("127.3.0.{n}:{}", crowd.port())).collect();
    let kept = config_of(&members, &probe("/healthz", ""));
    let proxy = Proxy::start_with_descriptors(&kept, 128);
    proxy.await_log("little room", 0, |line| line.text("message").contains("room for 32; the others dial each time"));
    proxy.await_log("few places", 0, |line| line.text("message").contains("leaves 16 probes at once"));
    crowd.await_probes(800);
    // What is kept, and what is in flight.
    assert!(crowd.most_open() <= 32 + 16 + 8, "{} connections at once", crowd.most_open());
    assert!(crowd.probes().iter().any(|seen| seen.nth > 1), "none is kept");
    let no_word = |line: &&crate::harness::Line| line.text("message").contains("taught nothing");
    assert_eq!(proxy.log().iter().filter(no_word).count(), 0);
    assert_eq!((proxy.get("/").status, proxy.admin_get("/livez").status), (200, 200));
    proxy.reload(&kept.replace("reuse: true", "reuse: false"));
    eventually("they are given back", || crowd.open() <= 16 + 8);
}
