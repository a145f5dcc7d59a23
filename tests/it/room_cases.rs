//! What members and pools take on at once: who is let in, who waits, who is turned away, and what the member sees of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use serde_json::Value;

use crate::harness::client::{Reply, request};
use crate::harness::proxy::{PROBE, Proxy, config_of};
use crate::harness::{Answer, Gate, Load, Origin, Step, When, eventually};

/// A configuration of one pool `web` of these members with `keys`, probed.
fn limited(members: &[&Origin], keys: &str) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    config_of(&members, &format!("{PROBE}\n{keys}"))
}

#[track_caller]
fn start(members: &[&Origin], keys: &str) -> Proxy {
    let proxy = Proxy::start(&limited(members, keys));
    proxy.await_all_healthy();
    proxy
}

/// A request in a thread of its own.
fn ask(proxy: &Proxy, method: &'static str, path: &str) -> JoinHandle<Reply> {
    let (address, path) = (proxy.address(), path.to_owned());
    thread::spawn(move || request(address, method, &path, &[], if method == "POST" { "body" } else { "" }))
}

#[track_caller]
fn await_queue(proxy: &Proxy, length: usize) {
    eventually(&format!("{length} requests wait"), || proxy.pool("web")["queue"]["length"] == length);
}

#[track_caller]
fn await_in_flight(proxy: &Proxy, count: usize) {
    eventually(&format!("{count} requests are served"), || proxy.pool("web")["in_flight"] == count);
}

fn waited(line: &crate::harness::Line) -> f64 {
    line.json["lb"]["waited_ms"].as_f64().expect("a number")
}

#[test]
fn two_members_of_one_seat_each_serve_twenty_requests_one_at_a_time() {
    let (a, b) = (Origin::start(), Origin::start());
    let gates: Vec<Gate> = (0..20).map(|_| Gate::new()).collect();
    for (number, gate) in gates.iter().enumerate() {
        for origin in [&a, &b] {
            origin.when(When::path(&format!("/n{number:02}")), Answer::status(200).held_by(gate));
        }
    }
    let proxy = start(&[&a, &b], "each_member: { max_in_flight: 1 }\nqueue: { size: 20, timeout: 60s }");
    let clients: Vec<_> = (0..20).map(|number| ask(&proxy, "GET", &format!("/n{number:02}"))).collect();
    let waiting = || gates.iter().map(Gate::waiting).sum::<usize>();
    await_queue(&proxy, 18);
    let pool = proxy.pool("web");
    assert_eq!((pool["in_flight"].as_u64(), pool["queue"]["size"].as_u64()), (Some(2), Some(20)), "{pool}");
    for member in pool["members"].as_array().expect("members") {
        assert_eq!((&member["in_flight"], &member["max_in_flight"]), (&Value::from(1), &Value::from(1)), "{member}");
        assert_eq!((&member["standing"], &member["connections"]), (&Value::from("healthy"), &Value::Null), "{member}");
    }
    assert_eq!(pool["mode"], "normal", "full is not unhealthy");
    for served in 0..20 {
        let room = 2.min(20 - served);
        eventually("the seats are taken", || {
            waiting() == room && a.traffic_count() + b.traffic_count() == served + room
        });
        gates.iter().find(|gate| gate.waiting() > 0).expect("one is held").open();
    }
    for client in clients {
        assert_eq!(client.join().expect("no panic").status, 200);
    }
    let lines = (0..20).map(|number| proxy.access(&format!("/n{number:02}")));
    assert_eq!(lines.filter(|line| waited(line) > 0.0).count(), 18, "all but the first two have waited");
    assert!(proxy.events(&[("to", "unhealthy")]).is_empty());
    await_in_flight(&proxy, 0);
}

#[test]
fn those_who_wait_are_served_in_the_order_they_came() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::traffic(), Answer::status(200).held_by(&gate));
    let proxy = start(&[&origin], "max_in_flight: 1\nqueue: { size: 12, timeout: 60s }");
    let mut clients = vec![ask(&proxy, "GET", "/00")];
    eventually("the first is served", || gate.waiting() == 1);
    for number in 1..=12 {
        clients.push(ask(&proxy, if number % 2 == 0 { "POST" } else { "GET" }, &format!("/{number:02}")));
        await_queue(&proxy, number);
    }
    gate.open();
    assert!(clients.into_iter().all(|client| client.join().expect("no panic").status == 200));
    let order: Vec<String> = origin.traffic().into_iter().map(|seen| seen.target).collect();
    assert_eq!(order, (0..=12).map(|number| format!("/{number:02}")).collect::<Vec<_>>());
}

#[test]
fn a_full_pool_turns_away_at_once_without_a_queue() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let proxy = start(&[&origin], "each_member: { max_in_flight: 1 }");
    let held = ask(&proxy, "GET", "/held");
    eventually("the seat is taken", || gate.waiting() == 1);
    let mut client = proxy.connect();
    let reply = client.get("/none");
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    assert_eq!(reply.field("proxy-status"), Some("pulsegate; error=connection_limit_reached"));
    assert_eq!(proxy.request("POST", "/post", &[], "body").status, 503);
    for path in ["/none", "/post"] {
        let line = proxy.access(path);
        assert!(line.has(&[("outcome", "limited"), ("reason", "overloaded")]), "{}", line.raw);
        assert!(line.attempts().is_empty() && line.json["lb"]["mode"] == "normal", "{}", line.raw);
        assert_eq!(waited(&line), 0.0, "{}", line.raw);
    }
    assert_eq!(proxy.pool("web")["turned_away"], 2);
    assert_eq!(proxy.pool("web")["queue"], Value::Null);
    assert_eq!(proxy.member("web", &origin.address())["standing"], "healthy");
    gate.open();
    assert_eq!(held.join().expect("no panic").status, 200);
    await_in_flight(&proxy, 0);
    assert_eq!(client.get("/room").status, 200, "on the connection that was refused before");
}

#[test]
fn queue_that_is_full_or_waited_in_for_too_long_turns_away() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let keys = "each_member: { max_in_flight: 1 }\nqueue: { size: 1, timeout: 500ms }";
    let proxy = start(&[&origin], keys);
    let held = ask(&proxy, "GET", "/held");
    eventually("the seat is taken", || gate.waiting() == 1);
    let patient = ask(&proxy, "GET", "/patient");
    await_queue(&proxy, 1);
    assert_eq!(proxy.get("/over").status, 503);
    let reply = patient.join().expect("no panic");
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    let (over, patient) = (proxy.access("/over"), proxy.access("/patient"));
    for line in [&over, &patient] {
        assert!(line.has(&[("outcome", "limited"), ("reason", "overloaded")]), "{}", line.raw);
    }
    assert!(waited(&over) < 500.0 && waited(&patient) >= 500.0, "{}\n{}", over.raw, patient.raw);
    await_queue(&proxy, 0);
    assert_eq!(proxy.pool("web")["turned_away"], 2);
    gate.open();
    assert_eq!(held.join().expect("no panic").status, 200);
}

#[test]
fn client_that_leaves_while_it_waits_frees_its_place() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let proxy = start(&[&origin], "each_member: { max_in_flight: 1 }\nqueue: { size: 2, timeout: 600s }");
    let held = ask(&proxy, "GET", "/held");
    eventually("the seat is taken", || gate.waiting() == 1);
    for (method, length, body) in [("GET", 0, ""), ("POST", 4, "body"), ("PUT", 400, "the beginning of a body")] {
        let come = |place: &str, waiting: usize| {
            let mut client = proxy.connect();
            let path = format!("/{method}/{place}");
            client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"));
            await_queue(&proxy, waiting);
            (client, path)
        };
        let (first, second) = (come("first", 1), come("second", 2));
        for ((client, path), waiting) in [(second, 1), (first, 0)] {
            match waiting {
                0 => client.reset(),
                _ => drop(client),
            }
            await_queue(&proxy, waiting);
            let line = proxy.access(&path);
            assert!(line.has(&[("outcome", "client_aborted"), ("reason", "client_aborted")]), "{}", line.raw);
            assert!(line.json["status"] == 499 && waited(&line) > 0.0 && line.attempts().is_empty(), "{}", line.raw);
        }
    }
    gate.open();
    assert_eq!(held.join().expect("no panic").status, 200);
    await_in_flight(&proxy, 0);
    assert_eq!(origin.traffic_count(), 1, "nothing of theirs was sent");
}

/// What a client sends while it waits is its own, or the next request's; nothing of it is lost.
#[test]
fn what_is_sent_during_a_wait_is_read_after_it() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let proxy = start(&[&origin], "each_member: { max_in_flight: 1 }\nqueue: { size: 9, timeout: 60s }");
    let held = ask(&proxy, "GET", "/held");
    eventually("the seat is taken", || gate.waiting() == 1);
    let (mut upload, mut pipelined) = (proxy.connect(), proxy.connect());
    upload.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    await_queue(&proxy, 1);
    pipelined.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    await_queue(&proxy, 2);
    upload.send("-way");
    pipelined.send("GET /two HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.open();
    assert_eq!(held.join().expect("no panic").status, 200);
    assert_eq!(upload.reply().status, 200);
    assert_eq!((pipelined.reply().status, pipelined.reply().status), (200, 200));
    let seen = origin.traffic();
    let body = seen.iter().find(|seen| seen.target == "/upload").map(|seen| seen.body.clone());
    assert_eq!(body.as_deref(), Some(&b"half-way"[..]));
}

#[test]
fn tunnel_holds_its_seat_until_it_ends() {
    let origin = Origin::start();
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    origin.when(When::path("/socket"), Answer::raw(vec![Step::Bytes(head.as_bytes().to_vec()), Step::Hang]));
    let proxy = start(&[&origin], "each_member: { max_in_flight: 1 }");
    let mut tunnel = proxy.connect();
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==";
    tunnel.send(format!("GET /socket HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
    assert_eq!(tunnel.head().expect("an answer").status, 101);
    assert_eq!(proxy.get("/full").status, 503);
    drop(tunnel);
    await_in_flight(&proxy, 0);
    assert_eq!(proxy.get("/room").status, 200);
}

#[test]
fn reload_changes_limits_at_once_and_those_who_wait_stay() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let config =
        |limit: usize, queue: &str| limited(&[&origin], &format!("each_member: {{ max_in_flight: {limit} }}\n{queue}"));
    let proxy = Proxy::start(&config(2, "queue: { size: 9, timeout: 600s }"));
    proxy.await_all_healthy();
    let mut clients: Vec<_> = (0..4).map(|_| ask(&proxy, "GET", "/held")).collect();
    await_queue(&proxy, 2);
    // Lower: nobody is cut, nobody is let in, and who waits stays though there is no queue any more.
    proxy.reload(&config(1, ""));
    assert_eq!(proxy.get("/over").status, 503, "no queue any more");
    let pool = proxy.pool("web");
    assert_eq!(
        (&pool["in_flight"], &pool["queue"]["length"], &pool["queue"]["size"]),
        (&2.into(), &2.into(), &0.into())
    );
    assert_eq!(gate.waiting(), 2);
    // Higher: room for all of them, and one more.
    proxy.reload(&config(5, ""));
    eventually("those who waited are served", || gate.waiting() == 4);
    clients.push(ask(&proxy, "GET", "/held"));
    eventually("there is room for one more", || gate.waiting() == 5);
    assert_eq!(proxy.get("/over").status, 503);
    gate.open();
    assert!(clients.into_iter().all(|client| client.join().expect("no panic").status == 200));
    proxy.reload(&limited(&[&origin], ""));
    assert_eq!(proxy.member("web", &origin.address())["max_in_flight"], Value::Null);
}

#[test]
fn member_that_comes_back_or_is_added_serves_those_who_wait() {
    let (a, b, c, gate) = (Origin::start(), Origin::start(), Origin::start(), Gate::new());
    for origin in [&a, &b, &c] {
        origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    }
    b.when(When::probe(), Answer::status(503));
    let keys = "each_member: { max_in_flight: 1 }\nqueue: { size: 9, timeout: 600s }";
    let proxy = Proxy::start(&limited(&[&a, &b], keys));
    proxy.await_standing(&a, "healthy");
    proxy.await_standing(&b, "unknown");
    let clients: Vec<_> = (0..3).map(|_| ask(&proxy, "GET", "/held")).collect();
    await_queue(&proxy, 2);
    b.when(When::probe(), Answer::status(200));
    await_queue(&proxy, 1);
    proxy.reload(&limited(&[&a, &b, &c], keys));
    eventually("all are served", || gate.waiting() == 3);
    assert_eq!([&a, &b, &c].map(Origin::traffic_count), [1, 1, 1]);
    gate.open();
    assert!(clients.into_iter().all(|client| client.join().expect("no panic").status == 200));
}

#[test]
fn member_that_leaves_the_file_and_returns_is_as_full_as_it_was() {
    for limit in ["max_in_flight", "max_connections"] {
        let (origin, other, gate) = (Origin::start(), Origin::start(), Gate::new());
        origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
        let config = |origin: &Origin| {
            let keys = format!("probe: off\neach_member: {{ {limit}: 1 }}\nqueue: {{ size: 9, timeout: 600s }}");
            config_of(&[origin.to_string()], &keys)
        };
        let proxy = Proxy::start(&config(&origin));
        let held = ask(&proxy, "GET", "/held");
        eventually("the seat is taken", || gate.waiting() == 1);
        proxy.reload(&config(&other));
        assert_eq!(proxy.pool("web")["in_flight"], 1, "it is served on");
        assert_eq!(proxy.get("/elsewhere").status, 200);
        proxy.reload(&config(&origin));
        assert_eq!(proxy.member("web", &origin.address())["in_flight"], 1);
        let waits = ask(&proxy, "GET", "/waits");
        await_queue(&proxy, 1);
        gate.open();
        assert!([held, waits].into_iter().all(|client| client.join().expect("no panic").status == 200));
        await_in_flight(&proxy, 0);
    }
}

#[test]
fn request_that_found_no_connection_waits_and_one_that_was_sent_does_not() {
    let (full, broken, gate) = (Origin::start(), Origin::start(), Gate::new());
    full.when(When::path("/held"), Answer::status(200).held_by(&gate));
    broken.answer(Answer::reset());
    let members = [format!("{{ address: {full}, max_in_flight: 1 }}"), broken.to_string()];
    let keys = "probe: off\nqueue: { size: 9, timeout: 600s }\nretries: { budget: 100% }";
    let proxy = Proxy::start(&config_of(&members, keys));
    // Turns are plain: one of two requests goes to the full one first.
    let mut held = Vec::new();
    while gate.waiting() == 0 {
        held.push(ask(&proxy, "GET", "/held"));
        eventually("it is somewhere", || gate.waiting() == 1 || held.iter().all(JoinHandle::is_finished));
    }
    assert_eq!(proxy.get("/sent").status, 502, "the failure it had is its answer");
    let line = proxy.access("/sent");
    assert_eq!((line.attempts().len(), waited(&line)), (1, 0.0), "{}", line.raw);
    assert_eq!(proxy.pool("web")["turned_away"], 0, "no line says that it was");
    broken.stop();
    let unsent = ask(&proxy, "POST", "/unsent");
    await_queue(&proxy, 1);
    gate.open();
    assert_eq!(unsent.join().expect("no panic").status, 200);
    let line = proxy.access("/unsent");
    assert_eq!(line.attempts().len(), 2, "{}", line.raw);
    assert!(waited(&line) > 0.0, "{}", line.raw);
    drop(held);
}

/// Each of two threads keeps idle connections that the other cannot use.
#[test]
fn member_never_sees_more_connections_than_it_may_have() {
    for most in [1, 2] {
        for keys in [format!("each_member: {{ max_connections: {most} }}"), format!("max_connections: {most}")] {
            let origin = Origin::start();
            let queue = "queue: { size: 100, timeout: 60s }";
            let config = config_of(&[origin.to_string()], &format!("probe: off\n{keys}\n{queue}"));
            let proxy = Proxy::start(&format!("threads: 2\n{config}"));
            let load = Load::start(proxy.address(), 12, "/get");
            let posts: Vec<_> = (0..4).map(|_| posts(&proxy, 40)).collect();
            assert!(posts.into_iter().all(|client| client.join().expect("no panic")), "a POST was lost");
            load.await_each(20);
            load.finish().assert_all_ok();
            assert_eq!(origin.most_open(), most, "{keys}");
            assert!(origin.accepted() > most, "one thread had them all: {} connections", origin.accepted());
            let line = proxy.access_log();
            let refused = line.iter().filter(|line| line.text("outcome") != "ok").count();
            assert_eq!(refused, 0);
            let member = proxy.member("web", &origin.address());
            assert!(member["connections"].as_u64().is_some_and(|open| open <= most as u64), "{member}");
            assert_eq!(member["in_flight"], 0, "{member}");
        }
    }
}

/// So many POSTs, each on a connection of its own; true when all were answered, and each was sent once.
fn posts(proxy: &Proxy, count: usize) -> JoinHandle<bool> {
    let address = proxy.address();
    thread::spawn(move || (0..count).all(|_| request(address, "POST", "/post", &[], "body").status == 200))
}

#[test]
fn connections_of_a_limited_member_are_used_again() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config_of(&[origin.to_string()], "probe: off\neach_member: { max_connections: 3 }"));
    let mut client = proxy.connect();
    assert!((0..20).all(|_| client.get("/again").status == 200));
    assert_eq!(origin.accepted(), 1);
    assert_eq!(proxy.member("web", &origin.address())["connections"], 1);
    // The member closes it: its place is free.
    origin.close_after(0);
    client.get("/last");
    eventually("the connection is gone", || proxy.member("web", &origin.address())["connections"] == 0);
}

/// A member that answers each GET and does not close when it is asked to: its side stays open until it is reset.
fn never_closes() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            kept.push(stream.try_clone().expect("a handle"));
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            });
        }
    });
    address
}

/// Its idle connections are closed for others' requests, each of which has to wait until the member has had its time.
#[test]
fn member_that_never_closes_costs_time_and_no_request() {
    let keys = "probe: off\nmax_connections: 1\nqueue: { size: 9, timeout: 60s }\nupstream: { connect_timeout: 50ms }\nretries: { per_try_timeout: 60ms }";
    let config = config_of(&[format!("\"{}\"", never_closes())], keys);
    let proxy = Proxy::start(&format!("threads: 4\n{config}"));
    for number in 0..30 {
        let path = format!("/{number}");
        let reply = proxy.get(&path);
        assert_eq!(reply.status, 200, "{}", proxy.access(&path).raw);
    }
    let line = proxy.access_log();
    let dialled = line.iter().filter(|line| line.attempts()[0]["reused"] == false).count();
    assert!(dialled > 1, "one thread had them all");
}

/// The request that asked for a place is over before the place is free: the next one finds it.
#[test]
fn place_that_was_asked_for_comes_free_though_nobody_waits_for_it() {
    let keys = "probe: off\nmax_connections: 1\ndeadline: 40ms\nupstream: { idle_timeout: 1h }";
    let config = config_of(&[format!("\"{}\"", never_closes())], keys);
    let proxy = Proxy::start(&format!("threads: 4\n{config}"));
    for _ in 0..3 {
        eventually("a request gives up while it waits for a place", || proxy.get("/gives-up").status == 504);
        eventually("the place is free", || proxy.get("/finds").status == 200);
    }
    let lines = proxy.access_log();
    for line in lines.iter().filter(|line| line.json["status"] == 504) {
        let last = line.attempts().last().expect("an attempt");
        assert!(line.has(&[("reason", "deadline")]) && last["result"] == "abandoned", "{}", line.raw);
    }
}
