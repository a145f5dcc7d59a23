//! What an answer may be on its second hop: switched protocols, interim answers, and clients and members of HTTP/1.0.

use std::time::Duration;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Connection, Origin, Step, When};

/// One unprobed pool `web` of this origin with `keys`.
fn unprobed(origin: &Origin, keys: &str) -> Proxy {
    Proxy::start(&config_of(&[origin.to_string()], &format!("probe: off\n{keys}")))
}

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn c21_switch_that_nobody_asked_for_is_a_502() {
    let origin = Origin::start();
    origin.answer(Answer::raw(vec![Step::Bytes(format!("{SWITCHING}hello").into_bytes()), Step::Hang]));
    let proxy = unprobed(&origin, "retries: { attempts: 1 }");
    // `Upgrade` alone, which `Connection` does not name, asks for nothing (RFC 9110 section 7.8).
    for (path, fields) in [("/plain", vec![]), ("/half", vec!["Upgrade: websocket", "Connection: close"])] {
        let reply = proxy.request("GET", path, &fields, "");
        assert_eq!(reply.status, 502, "{path}: {:?}", reply.lines);
        let line = proxy.access(path);
        assert!(line.has(&[("reason", "upstream_protocol"), ("outcome", "upstream_error")]), "{}", line.raw);
        assert!(line.attempts().iter().all(|attempt| attempt["result"] == "protocol"), "{}", line.raw);
        assert!(line.attempts().iter().all(|attempt| attempt["bytes"] == 0), "no body came: {}", line.raw);
        assert_eq!(line.json["upgraded"], false, "{}", line.raw);
    }
}

#[test]
fn offers_between_member_and_proxy_do_not_reach_the_client() {
    let origin = Origin::start();
    let answer = || Answer::status(200).field("Upgrade: h2c").field("Trailer: X-Sum").field("X-End: 1");
    origin.when(When::path("/sized"), answer().field("Connection: Upgrade"));
    let end = b"0\r\nX-Sum: 1\r\n\r\n".to_vec();
    let steps = vec![Step::Bytes(chunk_of("body")), Step::Bytes(end)];
    origin.when(When::path("/chunked"), answer().field("Transfer-Encoding: chunked").steps(steps));
    let proxy = unprobed(&origin, "");
    for (path, body) in [("/sized", "ok\n"), ("/chunked", "body")] {
        let reply = proxy.get(path);
        assert_eq!((reply.status, reply.text().as_str(), reply.complete), (200, body, true), "{path}");
        for gone in ["upgrade", "trailer"] {
            assert_eq!(reply.field(gone), None, "{path}: {:?}", reply.lines);
        }
        let named = reply.fields("connection").join(",").to_lowercase();
        assert!(!named.contains("upgrade"), "{path}: {:?}", reply.lines);
        assert_eq!(reply.field("x-end"), Some("1"), "{path}: {:?}", reply.lines);
    }
}

/// Opens a tunnel through a pool with `deadline: 500ms` to a member that sends these steps in it.
fn tunnel(origin: &Origin, steps: Vec<Step>) -> (Proxy, Connection) {
    origin.answer(Answer::raw([vec![Step::Bytes(SWITCHING.as_bytes().to_vec())], steps, vec![Step::Close]].concat()));
    let proxy = unprobed(origin, "deadline: 500ms\nretries: { per_try_timeout: 300ms }");
    let mut client = proxy.connect();
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==";
    let head = client.send(format!("GET /socket HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n")).head().expect("a header");
    assert_eq!(head.status, 101);
    (proxy, client)
}

#[test]
fn tunnel_outlives_the_deadline_of_its_request() {
    let origin = Origin::start();
    let beat = || [Step::Pause(Duration::from_millis(150)), Step::Bytes(b"beat".to_vec())];
    let (proxy, mut client) = tunnel(&origin, (0..10).flat_map(|_| beat()).collect());
    assert_eq!(client.take(40), "beat".repeat(10), "three deadlines long");
    drop(client);
    let line = proxy.access("/socket");
    assert!(line.json["upgraded"] == true && line.json["status"] == 101, "{}", line.raw);
    assert!(!line.has(&[("reason", "deadline")]), "{}", line.raw);
}

#[test]
fn tunnel_may_be_silent_for_longer_than_the_deadline_of_its_request() {
    let origin = Origin::start();
    let (proxy, mut client) =
        tunnel(&origin, vec![Step::Pause(Duration::from_millis(1500)), Step::Bytes(b"late".to_vec())]);
    assert_eq!(client.take(4), "late", "three deadlines later");
    drop(client);
    let line = proxy.access("/socket");
    assert!(!line.has(&[("reason", "deadline")]), "{}", line.raw);
}

#[test]
fn c14_c22_http_1_0_client_gets_no_chunks_and_no_interim_answer() {
    let origin = Origin::start();
    origin.when(When::path("/chunks"), Answer::chunked(&["ab", "cde", "f"]));
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let hints = format!("{early}{early}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef");
    origin.when(When::path("/hints"), Answer::bytes(&hints));
    let until_close = Answer::status(200).steps(vec![Step::Bytes(b"abcdef".to_vec()), Step::Close]);
    origin.when(When::path("/until-close"), until_close);
    let proxy = unprobed(&origin, "");
    for path in ["/chunks", "/hints", "/until-close"] {
        for fields in ["", "Host: a\r\n", "Host: a\r\nConnection: keep-alive\r\n"] {
            let mut client = proxy.connect();
            let reply = client.send(format!("GET {path} HTTP/1.0\r\n{fields}\r\n")).reply();
            assert_eq!((reply.status, reply.interim.len(), reply.text().as_str()), (200, 0, "abcdef"), "{path}");
            assert!(reply.complete && reply.field("transfer-encoding").is_none(), "{path}: {:?}", reply.lines);
        }
        // One that knows both gets both.
        let reply = proxy.get(path);
        assert_eq!((reply.status, reply.text().as_str(), reply.complete), (200, "abcdef", true), "{path}");
        assert_eq!(reply.interim.len(), if path == "/hints" { 2 } else { 0 }, "{path}");
    }
}

#[test]
fn http_1_0_client_that_expects_gets_no_interim_answer() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    let mut client = proxy.connect();
    client.send("POST /expects HTTP/1.0\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody");
    let reply = client.reply();
    assert_eq!((reply.status, reply.interim.len()), (200, 0));
    assert_eq!(origin.traffic()[0].body, b"body");
}

#[test]
fn answer_of_an_http_1_0_member_goes_out_as_http_1_1() {
    let origin = Origin::start();
    let raw = |text: &str| vec![Step::Bytes(text.as_bytes().to_vec()), Step::Close];
    origin.when(When::path("/sized"), Answer::raw(raw("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold")));
    origin.when(When::path("/open"), Answer::raw(raw("HTTP/1.0 200 OK\r\n\r\nold")));
    origin.when(When::path("/empty"), Answer::raw(raw("HTTP/1.0 204 No Content\r\n\r\n")));
    let proxy = unprobed(&origin, "");
    let mut client = proxy.connect();
    for (path, status, body) in [("/sized", 200, "old"), ("/open", 200, "old"), ("/empty", 204, "")] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.text().as_str(), reply.complete), (status, body, true), "{path}");
        assert_eq!(reply.version, "HTTP/1.1", "{path}");
        let framed = reply.fields("content-length").len() + reply.fields("transfer-encoding").len();
        assert_eq!(framed, usize::from(status == 200), "framed once: {path}: {:?}", reply.lines);
        assert!(
            reply.fields("connection").iter().all(|c| !c.eq_ignore_ascii_case("close")),
            "{path}: {:?}",
            reply.lines
        );
    }
    assert!(origin.traffic().iter().all(|seen| seen.version == "HTTP/1.1"), "what we speak");
}

#[test]
fn d22_interim_answers_pass_up_to_a_hundred() {
    let origin = Origin::start();
    let interim = |count: usize| "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(count);
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend";
    origin.when(When::path("/hundred"), Answer::bytes(&format!("{}{last}", interim(100))));
    let endless = vec![Step::Bytes(interim(150).into_bytes()), Step::Hang];
    for path in ["/endless", "/endless-upload"] {
        origin.when(When::path(path), Answer::raw(endless.clone()));
    }
    let proxy = unprobed(&origin, "retries: { attempts: 1 }");
    let reply = proxy.get("/hundred");
    assert_eq!((reply.status, reply.interim.len(), reply.text().as_str()), (200, 100, "end"));
    // By each of the two drivers.
    for (method, path, body) in [("GET", "/endless", ""), ("PUT", "/endless-upload", "body")] {
        let reply = proxy.request(method, path, &[], body);
        assert_eq!((reply.status, reply.interim.len()), (502, 100), "{path}");
        let line = proxy.access(path);
        assert!(line.has(&[("reason", "upstream_protocol"), ("outcome", "upstream_error")]), "{}", line.raw);
        assert!(line.attempts().iter().all(|attempt| attempt["bytes"] == 0), "no body came: {}", line.raw);
    }
}
