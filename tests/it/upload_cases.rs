//! Clients that stall while they upload, and clients that are answered before they are done.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::Accept;
use crate::harness::script::chunk_of;
use crate::harness::wait::PATIENCE;
use crate::harness::{Answer, Origin, Step, eventually};

/// Listener keys and one unprobed pool `web` of these with `keys`.
fn unprobed(members: &[&Origin], listener: &str, keys: &str) -> Proxy {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\", name: web, {listener} }}]\n");
    Proxy::start(&(listeners + &config_of(&members, &format!("probe: off\n{keys}"))))
}

#[test]
fn stalled_upload_is_the_clients_fault_and_tried_once() {
    let (a, b) = (Origin::start(), Origin::start());
    let keys = "upstream: { read_timeout: 300ms }\nretries: { attempts: 3, budget: 100%, per_try_timeout: 300ms }";
    let proxy = unprobed(&[&a, &b], "body_timeout: 1s", keys);
    for method in ["POST", "PUT"] {
        for (name, field, part) in [
            ("sized", "Content-Length: 1000", b"part".to_vec()),
            ("chunked", "Transfer-Encoding: chunked", chunk_of("part")),
            ("sized-nothing", "Content-Length: 1000", vec![]),
            ("chunked-nothing", "Transfer-Encoding: chunked", vec![]),
        ] {
            let path = format!("/{method}/{name}");
            let mut client = proxy.connect();
            client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n")).send(part);
            let reply = client.reply();
            assert_eq!((reply.status, reply.complete), (408, true), "{path}");
            assert!(client.is_closed(), "{path}");
            let line = proxy.access(&path);
            assert!(line.has(&[("reason", "body_timeout"), ("outcome", "timeout")]), "{}", line.raw);
            let results: Vec<_> = line.attempts().iter().map(|attempt| attempt["result"].as_str()).collect();
            assert_eq!(results, [Some("abandoned")], "{}", line.raw);
            let seen = [a.traffic(), b.traffic()].concat();
            let sent: Vec<bool> = seen.iter().filter(|s| s.target == path).map(|s| s.complete).collect();
            assert_eq!(sent, [false], "{path} was sent again, or completed");
        }
    }
    assert!(proxy.events(&[("to", "unhealthy")]).is_empty());
}

#[test]
fn slow_upload_is_not_held_to_the_members_time() {
    let origin = Origin::start();
    let proxy = unprobed(&[&origin], "body_timeout: 20s", "retries: { per_try_timeout: 300ms }");
    let mut client = proxy.connect();
    client.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n").send("half");
    let came = || origin.traffic().first().is_some_and(|seen| seen.body == b"half");
    eventually("the first half is through", came);
    // A client that takes longer than the member may, were it the member's turn.
    assert!(client.stray(Duration::from_millis(900)).is_empty());
    assert_eq!(client.send("half").reply().status, 200);
}

const UPLOAD: usize = 5_000_000;

/// Asks, goes on sending when it has the answer's header, and reads the rest of the answer only then; says whether all of the
/// upload was taken in and the connection ended in order.
fn answered_early(proxy: &Proxy, path: &str, status: u16, body: &str) -> bool {
    let mut client = proxy.connect();
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n")).send([b'x'; 1000]);
    let head = client.head().expect("an early answer");
    assert_eq!(head.status, status, "{path}");
    assert_eq!(head.field("connection").map(str::to_ascii_lowercase).as_deref(), Some("close"), "{path}");
    let sent = client.try_send(vec![b'x'; UPLOAD - 1000]).is_ok();
    assert_eq!(client.take(body.len()), body, "{path}");
    sent && client.rest().is_ok_and(|rest| rest.is_empty())
}

#[test]
fn own_answer_reaches_a_client_that_goes_on_sending() {
    let origin = Origin::start();
    let config = config_of(&[origin.to_string()], "probe: off");
    let proxy = Proxy::start(&config.replace("{ pool: web }", "{ path: /here, pool: web }"));
    // A client may be cut a second after its answer, which on a busy machine it may not have been done by.
    eventually("the upload is taken in and the end is in order", || {
        answered_early(&proxy, "/elsewhere", 404, "404 Not Found\n")
    });
    assert_eq!(origin.traffic_count(), 0);
}

#[test]
fn members_early_answer_reaches_a_client_that_goes_on_sending() {
    // It reads on, as servers do that close in order, or it does not.
    for (path, end) in [("/orderly", Step::Hang), ("/close", Step::Close), ("/reset", Step::Reset)] {
        let origin = Origin::start();
        let steps = vec![Step::Bytes(b"too large".to_vec()), end];
        let early = Answer::status(413).field("Connection: close").field("Content-Length: 9").steps(steps);
        origin.answer(early.early());
        let proxy = unprobed(&[&origin], "body_timeout: 20s", "");
        eventually("the upload is taken in and the end is in order", || answered_early(&proxy, path, 413, "too large"));
        let line = proxy.access(path);
        assert_eq!((&line.json["status"], line.attempts().len()), (&413.into(), 1), "{}", line.raw);
    }
}

#[test]
fn client_that_falls_silent_over_a_whole_answer_is_let_go_and_was_served() {
    let origin = Origin::start();
    let steps = vec![Step::Bytes(b"too large".to_vec()), Step::Hang];
    origin.answer(Answer::status(413).field("Content-Length: 9").steps(steps).early());
    // Were it for the client's body to come, it would be there for ten minutes.
    let proxy = unprobed(&[&origin], "body_timeout: 10m", "");
    for (path, leaves) in [("/silent", false), ("/leaves", true)] {
        let mut client = proxy.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\npart"));
        assert_eq!((client.head().expect("an answer").status, client.take(9).as_str()), (413, "too large"));
        if !leaves {
            assert!(client.rest().is_ok_and(|rest| rest.is_empty()), "{path}");
        }
        drop(client);
        let line = proxy.access(path);
        assert!(line.has(&[("outcome", "ok"), ("reason", "-")]), "{}", line.raw);
        assert_eq!(line.attempts()[0]["result"], "ok", "{}", line.raw);
    }
}

/// A client with an upload under way of which nobody takes any more.
fn stalled(proxy: &Proxy, path: &str, field: &str) -> TcpStream {
    let mut client = TcpStream::connect(proxy.address()).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    write!(client, "POST {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n").expect("the header is taken");
    let part = chunk_of(&"x".repeat(1 << 16));
    while client.write_all(&part).is_ok() {}
    client
}

const LENGTH: &str = "Content-Length: 1000000000";
const CHUNKED: &str = "Transfer-Encoding: chunked";

#[test]
fn upload_that_the_member_does_not_take_is_the_members_fault() {
    let origin = Origin::start();
    origin.accept(Accept::Ignore);
    for counted in ["", "\neach_member: { max_connections: 4 }"] {
        let keys = format!("upstream: {{ write_timeout: 1s, read_timeout: 1s }}{counted}");
        let proxy = unprobed(&[&origin], "body_timeout: 10m", &keys);
        for (path, field) in [("/sized", LENGTH), ("/chunked", CHUNKED)] {
            let mut client = stalled(&proxy, path, field);
            let mut answer = vec![];
            // Where the client does not read on before it is let go, the end is a reset.
            let _ = client.read_to_end(&mut answer);
            assert!(answer.starts_with(b"HTTP/1.1 504 "), "{path}: {}", String::from_utf8_lossy(&answer));
            let line = proxy.access(path);
            assert!(line.has(&[("outcome", "timeout"), ("reason", "upstream_timeout")]), "{}", line.raw);
            assert_eq!(line.attempts()[0]["result"], "timeout", "{}", line.raw);
        }
    }
}

#[test]
fn deadline_holds_while_the_member_does_not_take_the_body() {
    let origin = Origin::start();
    origin.accept(Accept::Ignore);
    let rows = [
        ("/write-waits", LENGTH, "write_timeout: 1h, read_timeout: 1h"),
        ("/write-failed", CHUNKED, "write_timeout: 500ms, read_timeout: 1h"),
    ];
    for (path, field, upstream) in rows {
        let keys = format!("deadline: 2s\nupstream: {{ {upstream} }}");
        let proxy = unprobed(&[&origin], "body_timeout: 10m", &keys);
        let mut client = stalled(&proxy, path, field);
        let mut answer = vec![];
        let _ = client.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        assert!(answer.starts_with("http/1.1 504 ") && answer.ends_with("\r\n\r\n504 gateway timeout\n"), "{answer}");
        let line = proxy.access(path);
        let id = format!("\r\nx-request-id: {}\r\n", line.text("request_id"));
        assert!(answer.contains(&id) && answer.contains("\r\nproxy-status: pulsegate; error="), "{answer}");
        assert!(line.has(&[("outcome", "timeout"), ("reason", "deadline")]), "{}", line.raw);
        assert_eq!((&line.json["status"], &line.json["response_bytes"]), (&504.into(), &20.into()), "{}", line.raw);
        assert_eq!(line.attempts()[0]["result"], "abandoned", "{}", line.raw);
        assert!(line.json["request_bytes"].as_u64() > Some(1 << 16), "{}", line.raw);
        // Were each timeout cut to what was left at the beginning, it would be twice as long.
        assert!(line.json["duration_ms"].as_f64() >= Some(2000.0), "before its time: {}", line.raw);
        assert_eq!(proxy.pool("web")["in_flight"], 0);
    }
}

#[test]
fn client_that_leaves_while_the_member_does_not_take_its_body_has_left() {
    let origin = Origin::start();
    origin.accept(Accept::Ignore);
    // A write that waits, and one that failed.
    for write in ["1h", "500ms"] {
        let keys = format!("upstream: {{ write_timeout: {write}, read_timeout: 1h }}");
        let proxy = unprobed(&[&origin], "body_timeout: 10m", &keys);
        // It resets: to close in order would say nothing, behind bytes for which there is no room.
        for (path, field) in [("/sized", LENGTH), ("/chunked", CHUNKED)] {
            let client = stalled(&proxy, path, field);
            let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
            drop(client);
            let line = proxy.access(path);
            assert!(line.has(&[("outcome", "client_aborted"), ("reason", "client_aborted")]), "{}", line.raw);
            assert_eq!((&line.json["status"], line.attempts().len()), (&499.into(), 1), "{}", line.raw);
            assert_eq!(line.attempts()[0]["result"], "client_aborted", "{}", line.raw);
            eventually("its seat is free", || proxy.pool("web")["in_flight"] == 0);
        }
    }
}
