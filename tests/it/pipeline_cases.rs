//! Clients that send their next request before they have the answer to the present one, and what is none at all.

use std::time::Duration;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Gate, Line, Origin, Step, When, eventually};

/// One unprobed pool `web` of these with `keys`.
fn unprobed(members: &[&Origin], keys: &str) -> Proxy {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    Proxy::start(&config_of(&members, &format!("probe: off\n{keys}")))
}

/// One unprobed pool `web` of this origin behind a listener with these limits.
fn timed(origin: &Origin, limits: &str) -> Proxy {
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\", name: web, {limits} }}]\n");
    Proxy::start(&(listeners + &config_of(&[origin.to_string()], "probe: off")))
}

/// The lines so far once those of all requests that are over are there.
fn lines_after(proxy: &Proxy, sentinel: &str) -> Vec<Line> {
    proxy.settle_access_log(sentinel);
    proxy.access_log().into_iter().filter(|line| line.text("path") != sentinel).collect()
}

/// A request whose end only its last chunk tells.
const CHUNKED: &str = "POST /whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";

const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn deadline_holds_for_a_client_that_has_sent_its_next_request() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/stuck"), Answer::status(200).held_by(&gate));
    let proxy = unprobed(&[&origin], "deadline: 700ms");
    let mut client = proxy.connect();
    client.send("GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the member has it", || gate.waiting() == 1);
    assert_eq!(client.send(NEXT).reply().status, 504);
    // The next one is served, or the connection ends: never a wrong answer, nor none at all.
    match client.try_reply("GET") {
        Ok(next) => assert_eq!(next.status, 200),
        Err(_) => assert!(client.is_closed()),
    }
    let line = proxy.access("/stuck");
    assert!(line.has(&[("reason", "deadline"), ("outcome", "timeout")]), "{}", line.raw);
    gate.open();
}

#[test]
fn deadline_cuts_an_answer_that_drips_although_the_next_request_is_there() {
    let origin = Origin::start();
    // Never silent for long: no timeout between two reads ends it.
    let bit = || [Step::Bytes(chunk_of("x")), Step::Pause(Duration::from_millis(50))];
    let steps = (0..400).flat_map(|_| bit()).collect();
    origin.when(When::path("/drips"), Answer::status(200).field("Transfer-Encoding: chunked").steps(steps));
    let proxy = unprobed(&[&origin], "deadline: 700ms");
    let mut client = proxy.connect();
    assert_eq!(client.send("GET /drips HTTP/1.1\r\nHost: a\r\n\r\n").head().expect("a header").status, 200);
    client.send(NEXT);
    assert_eq!(client.take(6), "1\r\nx\r\n");
    assert!(client.is_closed());
    let line = proxy.access("/drips");
    assert!(line.has(&[("reason", "deadline"), ("outcome", "timeout")]), "{}", line.raw);
    let came = line.json["response_bytes"].as_u64().expect("a number");
    assert!(came < 400, "cut only when all had come: {}", line.raw);
}

#[test]
fn per_try_timeout_holds_for_a_client_that_has_sent_its_next_request() {
    let (stuck, good, gate) = (Origin::start(), Origin::start(), Gate::new());
    stuck.when(When::path("/first"), Answer::status(200).held_by(&gate));
    let keys = "retries: { attempts: 2, budget: 100%, per_try_timeout: 700ms }";
    let proxy = unprobed(&[&stuck, &good], keys);
    let mut client = proxy.connect();
    let came = |path: &str| [stuck.traffic(), good.traffic()].concat().iter().any(|seen| seen.target == path);
    // The balancer takes turns: with three requests a round, the first goes to each in turn.
    let met = (0..10).map(|round| format!("/first/{round}")).find(|path| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        eventually("a member has it", || came(path));
        client.send(NEXT);
        assert_eq!((client.reply().status, client.reply().status), (200, 200), "{path}");
        assert_eq!(client.get("/third").status, 200, "{path}");
        proxy.access(path).tried() == [stuck.address(), good.address()]
    });
    let line = proxy.access(&met.expect("one that meets the stuck member first"));
    assert_eq!(line.attempts()[0]["result"], "timeout", "{}", line.raw);
    gate.open();
}

#[test]
fn next_request_waits_for_its_turn_and_is_served() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/slow"), Answer::status(200).body("slow").held_by(&gate));
    origin.when(When::path("/next"), Answer::status(200).body("next"));
    let proxy = unprobed(&[&origin], "");
    let mut client = proxy.connect();
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the member has it", || gate.waiting() == 1);
    client.send(&NEXT[..1]).send(&NEXT[1..]);
    gate.open();
    assert_eq!((client.reply().text().as_str(), client.reply().text().as_str()), ("slow", "next"));
    assert_eq!(client.get("/next").text(), "next");
    assert_eq!(lines_after(&proxy, "/sentinel").len(), 3);
}

#[test]
fn follow_up_that_is_no_request_is_answered_and_has_one_line() {
    let rows: [(&str, &[u8], u16, &str); 5] = [
        ("garbage", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "bad_request"),
        ("no version", b"GET /x\r\n\r\n", 400, "bad_request"),
        ("bad field", b"GET /x HTTP/1.1\r\nHost: a\r\nbad field: 1\r\n\r\n", 400, "bad_request"),
        (
            "two lengths",
            b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            400,
            "bad_request",
        ),
        ("connect", b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", 405, "denied"),
    ];
    let origin = Origin::start();
    let proxy = unprobed(&[&origin], "");
    for (nth, (name, bytes, status, reason)) in rows.into_iter().enumerate() {
        let path = format!("/before/{nth}");
        let first = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut client = proxy.connect();
        client.send([first.as_bytes(), bytes].concat());
        assert_eq!(client.reply().status, 200, "{name}");
        let reply = client.reply();
        assert_eq!((reply.status, reply.complete), (status, true), "{name}");
        assert!(client.is_closed(), "{name}");
        drop(client);
        let connection = proxy.access(&path).json["connection"].clone();
        proxy.await_access(name, |line| line.json["connection"] == connection && line.text("path") != path);
        let lines = lines_after(&proxy, &format!("/sentinel/{nth}"));
        let mine: Vec<&Line> = lines.iter().filter(|line| line.json["connection"] == connection).collect();
        let raws: Vec<&str> = mine.iter().map(|line| line.raw.as_str()).collect();
        assert_eq!(mine.len(), 2, "{name}: {raws:?}");
        assert!(mine[1].has(&[("reason", reason), ("outcome", "refused")]), "{name}: {raws:?}");
        assert_eq!(mine[1].json["status"], status, "{name}: {raws:?}");
    }
    assert!(origin.traffic().iter().all(|seen| seen.target != "/x"), "a half request reached the member");
}

#[test]
fn empty_lines_before_and_between_requests_are_none() {
    let origin = Origin::start();
    let proxy = timed(&origin, "header_timeout: 2s, keepalive_timeout: 2s");
    let (mut only, mut before, mut between) = (proxy.connect(), proxy.connect(), proxy.connect());
    only.send("\r\n\r\n");
    before.send("\r\n");
    assert_eq!(before.send("\r\nGET /before HTTP/1.1\r\nHost: a\r\n\r\n").reply().status, 200);
    assert_eq!(between.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\r\n").reply().status, 200);
    assert_eq!(between.send("\r\n").send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").reply().status, 200);
    between.send("\r\n\r\n");
    for client in [&mut only, &mut before, &mut between] {
        assert_eq!(client.rest().as_deref(), Ok(&[][..]), "closed without a word");
    }
    let lines = lines_after(&proxy, "/sentinel");
    let mut paths: Vec<&str> = lines.iter().map(|line| line.text("path")).collect();
    // Of two connections the lines come in any order.
    paths.sort_unstable();
    assert_eq!(paths, ["/1", "/2", "/before"]);
}

#[test]
fn half_a_header_behind_a_request_is_cut_like_any_other() {
    let origin = Origin::start();
    let proxy = timed(&origin, "header_timeout: 500ms, keepalive_timeout: 10m");
    let whole = [
        "GET /whole HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        CHUNKED,
    ];
    for request in whole {
        let mut client = proxy.connect();
        client.send(format!("{request}GET /ha"));
        assert_eq!(client.reply().status, 200, "{request}");
        assert_eq!(client.try_reply("GET").map(|reply| reply.status), Ok(408), "{request}");
    }
    let is_cut = |line: &Line| line.has(&[("outcome", "timeout"), ("reason", "header_timeout")]);
    eventually("each has its line", || proxy.access_log().iter().filter(|line| is_cut(line)).count() == 3);
    assert_eq!(lines_after(&proxy, "/sentinel").len(), 6);
}

#[test]
fn request_behind_a_chunked_body_is_read_wherever_the_packets_end() {
    let origin = Origin::start();
    let proxy = unprobed(&[&origin], "");
    let trailers = CHUNKED.replace("0\r\n\r\n", "0\r\nA: b\r\n\r\n");
    let sized = "POST /sized HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    for (first, second) in [(CHUNKED, NEXT), (&trailers, NEXT), (CHUNKED, CHUNKED), (CHUNKED, sized), (sized, CHUNKED)]
    {
        let all = format!("{first}{second}{NEXT}");
        // At once, then cut behind each byte that follows the first header.
        let from = first.find("\r\n\r\n").expect("a header") + 4;
        for cut in (from..all.len()).chain([all.len()]) {
            let mut client = proxy.connect();
            client.send(&all[..cut]);
            if cut > first.len() {
                // The first is answered, so what came behind it in the same packet was read long ago.
                assert_eq!(client.reply().status, 200, "the first of {all:?} cut at {cut}");
            }
            client.send(&all[cut..]);
            let left = if cut > first.len() { 2 } else { 3 };
            for nth in 0..left {
                assert_eq!(client.reply().status, 200, "{nth} of the last {left} of {all:?} cut at {cut}");
            }
        }
    }
    let seen = origin.traffic();
    assert!(seen.iter().all(|seen| ["/whole", "/sized", "/next"].contains(&seen.target.as_str())), "a torn request");
}

#[test]
fn target_behind_a_chunked_body_is_checked_like_any_other() {
    let origin = Origin::start();
    let proxy = unprobed(&[&origin], "");
    for target in ["/a#b", "/a b", "/a\u{1}", "/a\tb", "/a<b"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let alone = proxy.connect().send(&request).reply().status;
        let mut client = proxy.connect();
        client.send(format!("{CHUNKED}{request}"));
        assert_eq!(client.reply().status, 200, "{target:?}");
        assert_eq!(client.reply().status, alone, "{target:?}");
    }
    let mut client = proxy.connect();
    client.send(format!("{CHUNKED}GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!((client.reply().status, client.reply().status), (200, 400));
    assert!(origin.traffic().iter().all(|seen| !seen.target.contains("#") && !seen.target.contains("%23")));
}

#[test]
fn broken_chunks_end_the_connection_with_what_is_behind_them() {
    let origin = Origin::start();
    let proxy = unprobed(&[&origin], "");
    for body in ["x\r\n0\r\n\r\n", "1\r\nab\r\n0\r\n\r\n", "0\n\n", "0\r\nA: b\n\r\n"] {
        let mut client = proxy.connect();
        client.send(format!("POST /broken HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{NEXT}"));
        assert_eq!(client.reply().status, 400, "{body:?}");
        assert!(client.is_closed(), "{body:?}");
    }
    assert!(origin.traffic().iter().all(|seen| seen.target != "/next"), "what is behind them was served");
}
