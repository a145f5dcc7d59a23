//! Transitions as server-sent events: resumed without a gap, and held up by nobody.

use crate::event_cases::turn;
use crate::harness::client::Connection;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Gate, Origin, When, eventually};

/// A stream; HTTP/1.0 has no chunks, so what comes is the events themselves.
fn open(proxy: &Proxy, query: &str, fields: &str) -> Connection {
    let mut connection = Connection::open(proxy.admin());
    let host = proxy.admin();
    connection.send(format!("GET /api/v1/events/stream{query} HTTP/1.0\r\nHost: {host}\r\n{fields}\r\n"));
    let head = connection.head().expect("a header");
    assert_eq!((head.status, head.field("content-type")), (200, Some("text/event-stream")), "{:?}", head.lines);
    assert!(connection.until("\n\n").starts_with(": "), "something is sent at once");
    connection
}

/// The id and the message of the next event.
fn next(stream: &mut Connection) -> (String, String) {
    let event = stream.until("\n\n");
    let field =
        |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{event}"));
    let data: serde_json::Value = serde_json::from_str(field("data: ")).expect("json");
    (field("id: ").to_owned(), data["message"].as_str().unwrap_or_default().to_owned())
}

fn pair() -> (Origin, Origin, Proxy) {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config_of(&[a.to_string(), b.to_string()], "probe: off"));
    (a, b, proxy)
}

/// The number of an id.
fn number(id: &str) -> u64 {
    id.rsplit('-').next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn a_stream_tells_what_comes_and_is_resumed_without_a_gap_or_a_double() {
    let (a, _b, proxy) = pair();
    turn(&proxy, &a.address(), 4);
    let mut stream = open(&proxy, "", "");
    turn(&proxy, &a.address(), 4);
    let (first, message) = next(&mut stream);
    assert_eq!(number(&first), 5, "only what comes after it began");
    assert!(message.contains("draining now"), "{message}");
    let (last, _) = next(&mut stream);
    // The connection is cut, and things go on.
    stream.reset();
    turn(&proxy, &a.address(), 4);
    let mut resumed = open(&proxy, "?since=0", &format!("Last-Event-ID: {last}\r\n"));
    turn(&proxy, &a.address(), 2);
    let ids: Vec<u64> = (0..8).map(|_| number(&next(&mut resumed).0)).collect();
    assert_eq!(ids, (7..=14).collect::<Vec<_>>());
    let mut from_the_first = open(&proxy, "?since=0&kind=member", "");
    assert_eq!(number(&next(&mut from_the_first).0), 1);
    // The same events as in the list, and its cursor goes here too.
    let list = proxy.admin_get("/api/v1/events?since=0&limit=3").json();
    let mut on = open(&proxy, &format!("?since={}", list["next"].as_str().expect("a cursor")), "");
    assert_eq!(number(&next(&mut on).0), 4);
}

#[test]
fn one_that_comes_back_to_another_process_is_told() {
    let (a, _b, proxy) = pair();
    turn(&proxy, &a.address(), 2);
    let mut stream = open(&proxy, "", "Last-Event-ID: 00000000-1\r\n");
    let greeting = stream.until("\n\n");
    assert!(greeting.starts_with("event: missed\n") && greeting.contains("\"restarted\":true"), "{greeting}");
    assert_eq!([number(&next(&mut stream).0), number(&next(&mut stream).0)], [1, 2]);
}

#[test]
fn readers_that_read_nothing_hold_nobody_up_and_leave_room_for_others() {
    let (a, _b, proxy) = pair();
    let mut reading = open(&proxy, "", "");
    let mut silent: Vec<Connection> = (0..31).map(|_| open(&proxy, "", "")).collect();
    let one_more = proxy.admin_get("/api/v1/events/stream");
    assert_eq!((one_more.status, &one_more.json()["title"]), (503, &"Service Unavailable".into()));
    turn(&proxy, &a.address(), 500);
    let ids: Vec<u64> = (0..500).map(|_| number(&next(&mut reading).0)).collect();
    assert_eq!(ids, (1..=500).collect::<Vec<_>>());
    assert_eq!(proxy.admin_get("/api/v1/pools").status, 200);
    // A place that is left is free again.
    silent.pop();
    eventually("a place for one more", || {
        let mut connection = Connection::open(proxy.admin());
        let host = proxy.admin();
        connection.send(format!("GET /api/v1/events/stream HTTP/1.0\r\nHost: {host}\r\n\r\n"));
        connection.head().is_ok_and(|head| head.status == 200)
    });
}

#[test]
fn a_stream_ends_in_order_when_the_process_wants_to_end() {
    let (a, b, proxy) = pair();
    let gate = Gate::new();
    [&a, &b].iter().for_each(|origin| origin.when(When::path("/held"), Answer::status(200).held_by(&gate)));
    let mut held = proxy.connect();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("a request is in flight", || gate.waiting() == 1);
    let mut stream = open(&proxy, "", "");
    proxy.signal("TERM");
    assert_eq!(stream.rest(), Ok(Vec::new()), "while the process waits for its last request");
    let refused = proxy.admin_get("/api/v1/events/stream");
    assert_eq!((refused.status, &refused.json()["detail"]), (503, &"the process is ending".into()));
    gate.open();
    assert_eq!(held.reply().status, 200);
}
