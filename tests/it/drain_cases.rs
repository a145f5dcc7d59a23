//! The end in order, sentence by sentence (interfaces.md, Signals; cases C49 and C71): what is announced, what is still
//! served, what is waited for, and who may hurry it.

use std::net::SocketAddr;

use crate::harness::client::{Reply, try_request};
use crate::harness::dns::{NameServer, Said};
use crate::harness::process::Process;
use crate::harness::proxy::{PROBE, Proxy, config_of, write_config};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Connection, Gate, Origin, Step, When, eventually};

/// Beyond the suite's patience: what only ends with it does not end.
const NEVER: &str = "10m";

const HELD: &str = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n";

/// One pool `web` of this origin with `keys`, in a process with these limits of its end.
fn proxy(lame_duck: &str, drain_timeout: &str, origin: &Origin, keys: &str) -> Proxy {
    let config = config_of(&[origin.to_string()], keys);
    Proxy::start(&format!("lame_duck: {lame_duck}\ndrain_timeout: {drain_timeout}\n{config}"))
}

/// An origin that holds what is asked for below `/held`.
fn holding() -> (Origin, Gate) {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    (origin, gate)
}

/// A request that the origin holds.
fn held(proxy: &Proxy, gate: &Gate) -> Connection {
    let (mut client, before) = (proxy.connect(), gate.waiting());
    client.send(HELD);
    eventually("the member has it", || gate.waiting() == before + 1);
    client
}

fn readiness(admin: SocketAddr) -> u16 {
    try_request(admin, "GET", "/readyz", &[&format!("Host: {admin}")], "").map_or(0, |reply| reply.status)
}

fn await_refusal(proxy: &Proxy) {
    eventually("new connections are refused", || Connection::try_open(proxy.address()).is_err());
}

fn closes(reply: &Reply) -> bool {
    reply.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
}

#[test]
fn c71_balancer_in_front_that_looks_at_readiness_loses_nothing() {
    let origin = Origin::start();
    let mut proxy = proxy(NEVER, NEVER, &origin, "probe: off");
    let mut idle = proxy.connect();
    assert!(!closes(&idle.get("/before")));
    let (mut sent, mut ending) = (0, false);
    // It sends as long as the last look said ready; the signal comes between a look and a request.
    while readiness(proxy.admin()) == 200 {
        if sent == 5 {
            proxy.signal("TERM");
            ending = true;
        }
        let reply = proxy.get("/from-the-front");
        assert!(reply.status == 200 && reply.complete, "{reply:?}");
        sent += 1;
        assert!(!ending || sent < 1_000, "readiness never went down");
    }
    // Whoever has not noticed yet is served too, and asked to go.
    let mut late = proxy.connect();
    let reply = late.get("/late");
    assert!(reply.status == 200 && closes(&reply), "{reply:?}");
    assert_eq!(late.rest().as_deref(), Ok(&[][..]));
    let reply = idle.get("/idle");
    assert!(reply.status == 200 && closes(&reply), "{reply:?}");
    assert_eq!((readiness(proxy.admin()), proxy.admin_get("/livez").status), (503, 200));
    // The rest of the lame duck is more than anybody wants to wait for.
    proxy.signal("INT");
    assert_eq!(proxy.wait().code(), Some(0));
    let lines = proxy.access_log();
    assert_eq!((lines.len(), origin.traffic_count()), (sent + 3, sent + 3));
    assert!(lines.iter().all(|line| line.json["status"] == 200 && line.text("reason") == "-"), "{lines:?}");
}

#[test]
fn idle_connections_stay_for_the_lame_duck_and_then_end_in_order() {
    let origin = Origin::start();
    let mut proxy = proxy(NEVER, NEVER, &origin, "probe: off");
    let (mut fresh, mut idle) = (proxy.connect(), proxy.connect());
    idle.get("/before");
    proxy.signal("TERM");
    eventually("the end has begun", || readiness(proxy.admin()) == 503);
    assert_eq!(proxy.get("/meanwhile").status, 200);
    assert!(!fresh.has_ended() && !idle.has_ended());
    proxy.signal("INT");
    for client in [&mut fresh, &mut idle] {
        assert_eq!(client.rest().as_deref(), Ok(&[][..]));
    }
    drop((fresh, idle));
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn request_of_which_half_the_header_has_come_is_served_to_its_end() {
    let (origin, _) = holding();
    let mut proxy = proxy("0s", NEVER, &origin, "probe: off");
    let (mut idle, mut fresh, mut kept) = (proxy.connect(), proxy.connect(), proxy.connect());
    idle.get("/idle");
    kept.get("/kept");
    for client in [&mut fresh, &mut kept] {
        client.send("GET /half HTTP/1.1\r\nHo");
    }
    // Lines of these two would come if their connections ended.
    proxy.settle_access_log("/sentinel");
    proxy.signal("TERM");
    await_refusal(&proxy);
    assert!(idle.is_closed(), "the last call was given");
    for client in [&mut fresh, &mut kept] {
        let reply = client.send("st: a\r\n\r\n").reply();
        assert!(reply.status == 200 && closes(&reply), "{reply:?}");
        assert_eq!(client.rest().as_deref(), Ok(&[][..]));
    }
    drop((idle, fresh, kept));
    assert_eq!(proxy.wait().code(), Some(0));
    assert!(proxy.access_log().iter().all(|line| line.json["status"] == 200));
}

#[test]
fn what_a_client_sent_behind_its_last_request_does_not_reset_the_answer() {
    let (origin, gate) = holding();
    let body = "x".repeat(100_000);
    origin.when(When::path("/held"), Answer::status(200).body(body.clone()).held_by(&gate));
    let mut proxy = proxy("0s", NEVER, &origin, "probe: off");
    let mut client = held(&proxy, &gate);
    client.send("GET /behind HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.signal("TERM");
    await_refusal(&proxy);
    gate.open();
    let reply = client.reply();
    assert!(closes(&reply) && reply.text() == body, "{:?}", reply.lines);
    assert_eq!(client.rest().as_deref(), Ok(&[][..]), "an end in order");
    drop(client);
    assert_eq!(proxy.wait().code(), Some(0));
    assert_eq!(origin.traffic_count(), 1, "the next one is the client's to send again");
}

#[test]
fn requests_that_wait_for_a_place_are_served_before_the_end() {
    let (origin, gate) = holding();
    let mut proxy = proxy("0s", NEVER, &origin, "probe: off\nmax_in_flight: 1\nqueue: { size: 5, timeout: 10m }");
    let mut first = held(&proxy, &gate);
    let mut waiting: Vec<Connection> = (0..3).map(|_| proxy.connect()).collect();
    waiting.iter_mut().for_each(|client| client.try_send(HELD).expect("it is open"));
    eventually("three wait", || proxy.pool("web")["queue"]["length"] == 3);
    proxy.signal("TERM");
    await_refusal(&proxy);
    gate.open();
    assert_eq!(first.reply().status, 200);
    for client in &mut waiting {
        let reply = client.reply();
        assert!(reply.status == 200 && closes(&reply), "{reply:?}");
    }
    drop((first, waiting));
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn readiness_stays_down_and_probes_go_on_as_long_as_the_drain_lasts() {
    let (origin, gate) = holding();
    let other = Origin::start();
    let config = config_of(&[origin.to_string(), other.to_string()], PROBE);
    let mut proxy = Proxy::start(&format!("lame_duck: 0s\ndrain_timeout: {NEVER}\n{config}"));
    proxy.await_all_healthy();
    // Round-robin: one of two that follow each other meets the first.
    let mut clients: Vec<Connection> = (0..2).map(|_| proxy.connect()).collect();
    clients.iter_mut().for_each(|client| client.try_send(HELD).expect("it is open"));
    eventually("the member has one", || gate.waiting() == 1);
    proxy.signal("TERM");
    await_refusal(&proxy);
    let mark = proxy.mark();
    other.when(When::probe(), Answer::status(503));
    proxy.await_event(mark, &[("kind", "member"), ("member", &other.address()), ("to", "unhealthy")]);
    origin.await_probes(2);
    assert_eq!((readiness(proxy.admin()), proxy.admin_get("/livez").status), (503, 200));
    assert_eq!(proxy.admin_get("/readyz").text(), "ending\n");
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().status, 200));
    drop(clients);
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn event_stream_may_go_on_and_is_then_cut_with_its_line() {
    let (origin, gate) = (Origin::start(), Gate::new());
    let event = |text: &str| Step::Bytes(chunk_of(&format!("data: {text}\n\n")));
    let steps = vec![event("one"), Step::Hold(gate.clone()), event("two"), Step::Hang];
    let fields = Answer::status(200).field("Content-Type: text/event-stream").field("Transfer-Encoding: chunked");
    origin.when(When::path("/events"), fields.steps(steps));
    let mut proxy = proxy("0s", "1s", &origin, "probe: off");
    let mut client = proxy.connect();
    client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the first event was sent", || gate.waiting() == 1);
    client.head().expect("a header");
    client.take(chunk_of("data: one\n\n").len());
    proxy.signal("TERM");
    await_refusal(&proxy);
    gate.open();
    let two = client.take(chunk_of("data: two\n\n").len());
    assert!(two.contains("data: two"), "{two}");
    assert_eq!(proxy.wait().code(), Some(0));
    let line = proxy.access("/events");
    assert!(line.has(&[("outcome", "refused"), ("reason", "shutdown")]), "{}", line.raw);
    assert_eq!((&line.json["status"], &line.json["response_bytes"]), (&200.into(), &22.into()), "{}", line.raw);
}

#[test]
fn second_term_changes_nothing_and_a_second_int_ends_at_once() {
    let (origin, gate) = holding();
    let mut proxy = proxy(NEVER, NEVER, &origin, "probe: off");
    let mut client = held(&proxy, &gate);
    for _ in 0..3 {
        proxy.signal("TERM");
    }
    eventually("the end has begun", || readiness(proxy.admin()) == 503);
    // What is asked for meanwhile is told, and is no reason to end either.
    let mark = proxy.mark();
    proxy.signal("HUP");
    proxy.await_log("what becomes of it", mark, |line| line.text("message").contains("not read again"));
    assert_eq!(proxy.get("/lame-duck").status, 200, "three TERM are one");
    let mark = proxy.mark();
    proxy.signal("INT");
    proxy.await_log("what the next one does", mark, |line| line.text("message").contains("one more INT ends at once"));
    await_refusal(&proxy);
    assert!(proxy.is_running() && gate.waiting() == 1, "one INT only cuts the lame duck short");
    proxy.signal("INT");
    assert_eq!(proxy.wait().code(), Some(0));
    assert!(client.is_closed());
    let line = proxy.access("/held");
    assert!(line.has(&[("outcome", "refused"), ("reason", "shutdown")]), "{}", line.raw);
    gate.open();
}

/// A configuration whose member's name is asked of a server that says nothing.
fn nameless(server: &NameServer) -> String {
    server.says("app.test", "A", Said::Silence);
    server.says("app.test", "AAAA", Said::Silence);
    let config = config_of(&["\"app.test:80\"".to_owned()], "probe: off");
    format!("{}{config}", server.resolver(""))
}

#[test]
fn end_comes_during_a_start_that_waits_for_a_name() {
    let (server, folder) = (NameServer::start(), tempfile::tempdir().expect("a temporary folder"));
    let path = write_config(folder.path(), &nameless(&server));
    for signal in ["TERM", "INT"] {
        let asked = server.asked("app.test", "A");
        let mut process = Process::start(folder.path(), &["run", "--config", &path.to_string_lossy()], &[]);
        eventually("the name is asked for", || server.asked("app.test", "A") > asked);
        process.signal(signal);
        assert_eq!(process.wait().code(), Some(0), "{signal}");
        process.stderr.find("why", 0, |line| line.text("message") == "ended before it served");
    }
}

#[test]
fn end_comes_during_a_reload_that_waits_for_a_name() {
    let (origin, gate) = holding();
    let server = NameServer::start();
    let mut proxy = proxy("0s", NEVER, &origin, "probe: off");
    let mut client = held(&proxy, &gate);
    proxy.rewrite(&nameless(&server));
    proxy.signal("HUP");
    server.await_asked("app.test", "A", 1);
    proxy.signal("TERM");
    await_refusal(&proxy);
    gate.open();
    assert_eq!(client.reply().status, 200);
    drop(client);
    assert_eq!(proxy.wait().code(), Some(0));
}
