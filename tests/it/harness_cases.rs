//! The harness's own checks: an origin that lies about what it did would make every case worthless.

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::client::{Connection, get, request, try_request};
use crate::harness::load::Load;
use crate::harness::nginx::Nginx;
use crate::harness::origin::Origin;
use crate::harness::script::{Accept, Answer, Gate, Step, When};
use crate::harness::wait::eventually;

fn at(origin: &Origin) -> SocketAddr {
    origin.address().parse().expect("an address")
}

#[test]
fn origin_records_requests_as_they_came() {
    let origin = Origin::start();
    request(at(&origin), "POST", "/a?b", &["x-One: 1", "X-one: 2"], "hello");
    let seen = &origin.traffic()[0];
    assert_eq!((seen.method.as_str(), seen.target.as_str(), seen.body.as_slice()), ("POST", "/a?b", &b"hello"[..]));
    assert!(seen.complete);
    assert_eq!(seen.fields("X-ONE"), ["1", "2"]);
    get_as(&origin, "pulsegate/0.1.0 (health probe)");
    assert_eq!((origin.probe_count(), origin.traffic_count()), (1, 1));
}

fn get_as(origin: &Origin, agent: &str) {
    request(at(origin), "GET", "/", &[&format!("User-Agent: {agent}")], "");
}

#[test]
fn origin_reads_chunked_bodies_and_keeps_connections() {
    let origin = Origin::start();
    let mut connection = Connection::open(at(&origin));
    let head = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(connection.send(head).send("3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").reply().status, 200);
    assert_eq!(connection.get("/d").status, 200);
    let seen = origin.seen();
    assert_eq!(seen[0].body, b"abcde");
    assert_eq!((seen[1].connection, seen[1].nth), (0, 1));
}

#[test]
fn origin_applies_the_latest_rule_that_holds() {
    let origin = Origin::start();
    origin.when(When::path("/a"), Answer::status(503));
    origin.when(When::path("/a").method("POST"), Answer::status(201));
    origin.when(When::host("h.example"), Answer::status(204));
    assert_eq!(get(at(&origin), "/a").status, 503);
    assert_eq!(request(at(&origin), "POST", "/a", &[], "").status, 201);
    assert_eq!(request(at(&origin), "GET", "/a", &["Host: h.example"], "").status, 204);
    origin.answer(Answer::status(200));
    assert_eq!(get(at(&origin), "/a").status, 200);
}

#[test]
fn origin_gives_scripted_probes_one_each() {
    let origin = Origin::start();
    origin.next_probes([Answer::status(503), Answer::status(500)]);
    let probe = || request(at(&origin), "GET", "/", &["User-Agent: pulsegate/1 (health probe)"], "").status;
    assert_eq!(get(at(&origin), "/").status, 200);
    assert_eq!([probe(), probe(), probe()], [503, 500, 200]);
}

#[test]
fn stopped_origin_refuses_and_starts_on_the_same_port() {
    let origin = Origin::start();
    let mut connection = Connection::open(at(&origin));
    assert_eq!(connection.get("/").status, 200);
    origin.stop();
    assert!(connection.is_closed());
    assert!(Connection::try_open(at(&origin)).is_err());
    origin.start_again();
    assert_eq!(get(at(&origin), "/").status, 200);
    assert!(Connection::try_open(at(&Origin::stopped())).is_err());
}

#[test]
fn gate_holds_until_opened() {
    let origin = Origin::start();
    let gate = Gate::new();
    origin.answer(Answer::status(200).held_by(&gate));
    let mut connection = Connection::open(at(&origin));
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request is held", || gate.waiting() == 1);
    assert!(connection.stray(Duration::from_millis(50)).is_empty());
    gate.open();
    assert_eq!(connection.reply().status, 200);
    assert_eq!((gate.waiting(), gate.came()), (0, 1));
}

#[test]
fn answers_break_as_scripted() {
    let origin = Origin::start();
    let part = Answer::status(200).field("Content-Length: 9").steps(vec![Step::Bytes(b"half".to_vec()), Step::Reset]);
    origin.when(When::path("/cut"), part);
    origin.when(When::path("/close"), Answer::close());
    origin.when(When::path("/reset"), Answer::reset());
    origin.when(When::path("/chunks"), Answer::chunked(&["a", "bc"]));
    let cut = get(at(&origin), "/cut");
    assert_eq!((cut.status, cut.complete), (200, false));
    assert!(try_request(at(&origin), "GET", "/close", &[], "").is_err());
    assert!(try_request(at(&origin), "GET", "/reset", &[], "").unwrap_err().contains("reset"));
    assert_eq!(get(at(&origin), "/chunks").text(), "abc");
    origin.accept(Accept::Reset);
    assert!(try_request(at(&origin), "GET", "/", &[], "").is_err());
}

#[test]
fn head_is_answered_without_a_body() {
    let origin = Origin::start();
    let mut connection = Connection::open(at(&origin));
    let reply = connection.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").try_reply("HEAD").unwrap();
    assert_eq!(reply.field("content-length"), Some("3"));
    assert_eq!(connection.get("/").text(), "ok\n");
}

#[test]
fn origin_closes_in_silence_after_n() {
    let origin = Origin::start();
    origin.close_after(1);
    let mut connection = Connection::open(at(&origin));
    assert_eq!(connection.get("/").field("connection"), None);
    assert!(connection.is_closed());
}

#[test]
fn one_worker_serves_one_at_a_time() {
    let origin = Origin::start();
    origin.one_worker();
    let gate = Gate::new();
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let mut first = Connection::open(at(&origin));
    first.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the worker is busy", || gate.waiting() == 1);
    let mut second = Connection::open(at(&origin));
    second.send("GET /free HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the second request came", || origin.traffic_count() == 2);
    assert!(second.stray(Duration::from_millis(50)).is_empty());
    gate.open();
    assert_eq!((first.reply().status, second.reply().status), (200, 200));
}

#[test]
fn v6_and_many_addresses_are_served() {
    let six = Origin::start_v6();
    assert_eq!(get(at(&six), "/").status, 200);
    let many = Origin::start_everywhere();
    many.when(When::local("127.0.3.9"), Answer::status(503));
    assert_eq!(get(SocketAddr::new("127.0.3.9".parse().unwrap(), many.port()), "/").status, 503);
    assert_eq!(get(SocketAddr::new("127.0.3.8".parse().unwrap(), many.port()), "/").status, 200);
}

#[test]
fn load_counts_what_comes_back() {
    let origin = Origin::start();
    let load = Load::start(at(&origin), 3, "/load");
    load.await_each(5);
    origin.answer(Answer::status(503));
    load.fence();
    load.await_each(2);
    origin.answer(Answer::close());
    load.await_each(2);
    let tally = load.finish();
    assert!(tally.statuses[&200] >= 12 && tally.statuses[&503] >= 6, "{tally:?}");
    assert!(!tally.failures.is_empty());
    assert_eq!(tally.total(), origin.traffic_count());
}

#[test]
fn nginx_is_killed_and_comes_back() {
    let mut nginx = Nginx::start();
    let address: SocketAddr = nginx.address().parse().unwrap();
    assert_eq!(get(address, "/x").status, 200);
    eventually("nginx logs the request", || nginx.traffic_count() > 0);
    nginx.kill();
    assert!(Connection::try_open(address).is_err());
    nginx.start_again();
    assert_eq!(get(address, "/x").text(), format!("nginx {address} /x\n"));
}
