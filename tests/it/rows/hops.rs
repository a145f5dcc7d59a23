//! C: what belongs to one hop, and what counts them.

use super::{POST, Rig};
use crate::harness::{Answer, eventually};

#[test]
fn c08_via_is_added_to_a_request() {
    let rig = Rig::new();
    let rows = [
        ("GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "1.1 pulsegate"),
        ("GET /x HTTP/1.0\r\nHost: a\r\n\r\n", "1.0 pulsegate"),
        ("GET /x HTTP/1.1\r\nHost: a\r\nVia: 1.0 far\r\nVia: 1.1 near\r\n\r\n", "1.0 far, 1.1 near, 1.1 pulsegate"),
    ];
    for (bytes, via) in rows {
        assert_eq!(rig.send(bytes).reply().status, 200);
        let seen = rig.origin.traffic().pop().expect("it was asked");
        assert_eq!(seen.fields("via"), [via], "{bytes:?}");
    }
}

#[test]
fn c09_options_with_no_hop_left_is_answered_here() {
    let rig = Rig::new();
    let ask = |method: &str, left: &str| {
        format!("{method} /x HTTP/1.1\r\nHost: a\r\nMax-Forwards: {left}\r\nCookie: secret=1\r\n\r\n")
    };
    let mut client = rig.send(ask("OPTIONS", "0"));
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("content-length"), reply.complete), (200, Some("0"), true));
    assert!(reply.field("allow").is_some_and(|allow| allow.contains("GET") && !allow.contains("TRACE")));
    assert!(!reply.lines.join("\n").contains("secret"), "{:?}", reply.lines);
    assert_eq!(rig.origin.traffic_count(), 0, "it was sent on");
    let line = rig.proxy.access("/x");
    assert!(line.has(&[("outcome", "ok"), ("reason", "-")]) && line.json["status"] == 200, "{}", line.raw);
    assert!(line.attempts().is_empty(), "{}", line.raw);
    // (method, what came, what goes on), on the same connection.
    let rows = [
        ("OPTIONS", "1", "0"),
        ("OPTIONS", "10", "9"),
        ("OPTIONS", "99999999999999999999", "18446744073709551614"),
        ("OPTIONS", "many", "many"),
        ("GET", "0", "0"),
    ];
    for (method, came, goes) in rows {
        assert_eq!(client.send(ask(method, came)).reply().status, 200, "{method} {came}");
        let seen = rig.origin.traffic().pop().expect("it was asked");
        assert_eq!(seen.fields("max-forwards"), [goes], "{method} {came}");
    }
    eventually("all are logged", || rig.proxy.access_log().len() == 1 + rows.len());
    rig.refuses("TRACE", ask("TRACE", "0"), 405);
}

#[test]
fn c10_trace_is_405_and_echoes_nothing() {
    let rig = Rig::new();
    let bytes = "TRACE /x HTTP/1.1\r\nHost: a\r\nCookie: secret=1\r\nAuthorization: Basic c2VjcmV0\r\n\r\n";
    rig.refuses("C10", bytes, 405);
    let reply = rig.send(bytes).reply();
    assert!(reply.field("allow").is_some_and(|allow| allow.contains("GET") && !allow.contains("TRACE")));
    let said = reply.lines.join("\n") + &reply.text();
    assert!(!said.contains("secret") && !said.contains("c2Vj"), "{said}");
    let line = rig.proxy.access("/x");
    assert!(line.has(&[("reason", "denied"), ("method", "TRACE")]), "{}", line.raw);
}

#[test]
fn c12_c13_unknown_expectations_and_early_hints_pass() {
    let rig = Rig::new();
    let reply = rig.send(format!("{POST}Content-Length: 4\r\nExpect: foo\r\n\r\nbody")).reply();
    assert!([200, 417].contains(&reply.status), "C12: {}", reply.status);
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    rig.origin.answer(Answer::bytes(hints));
    let reply = rig.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    assert_eq!((reply.status, reply.interim), (200, vec![103]), "C13");
}

#[test]
fn what_must_not_be_taken_out_is_refused_before_anybody_is_picked() {
    let rig = Rig::new();
    let nominating = |names: &str| format!("GET /x HTTP/1.1\r\nHost: a\r\nConnection: {names}\r\n\r\n");
    assert_eq!(rig.send(nominating("a,b,c,d,e,f,g,h,i")).reply().status, 200);
    rig.proxy.access("/x");
    for names in ["x-forwarded-for", "close, Host", "forwarded", "a,b,c,d,e,f,g,h,i,j", ":authority", "\"host\"", "a b"]
    {
        rig.refuses(names, nominating(names), 400);
    }
}
