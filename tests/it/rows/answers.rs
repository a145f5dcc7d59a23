//! C and D: what members answer.

use std::time::Duration;

use super::{POST, Rig};
use crate::harness::{Answer, Step, When, eventually};

#[test]
fn interim_answer_that_nobody_waits_for_costs_no_connection() {
    let rig = Rig::new();
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    rig.origin.answer(Answer::bytes(answer));
    let mut client = rig.proxy.connect();
    for nth in 0..3 {
        let reply = client.get(&format!("/{nth}"));
        assert_eq!((reply.status, reply.text().as_str()), (200, "ok"));
        assert_eq!(client.send(format!("{POST}Content-Length: 4\r\n\r\nbody")).reply().text(), "ok");
    }
    let lines = || rig.proxy.access_log();
    eventually("all are logged", || lines().len() == 6);
    assert!(lines().iter().all(|line| line.json["connection"] == lines()[0].json["connection"]));
    assert!(lines().iter().all(|line| line.text("outcome") == "ok" && line.json["status"] == 200));
}

#[test]
fn c15_c17_answers_without_a_body_leave_the_connection_in_order() {
    let rig = Rig::new();
    let stray = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret";
    let rows = [
        ("/length", "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\n".to_owned(), 204),
        ("/body", "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nsecret".to_owned(), 204),
        (
            "/chunks",
            "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecret\r\n0\r\n\r\n".to_owned(),
            204,
        ),
        ("/stray", format!("HTTP/1.1 204 No Content\r\n\r\n{stray}"), 204),
        ("/304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\nETag: \"x\"\r\n\r\n".to_owned(), 304),
        ("/304-body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\nsecret".to_owned(), 304),
        ("/304-chunks", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 304),
    ];
    let mut client = rig.proxy.connect();
    for (path, answer, status) in rows {
        rig.origin.when(When::path(path), Answer::bytes(&answer));
        let reply = client.get(path);
        assert_eq!((reply.status, reply.body.len()), (status, 0), "{path}");
        assert_eq!(reply.field("transfer-encoding"), None, "{path}: {:?}", reply.lines);
        assert!(status == 304 || reply.field("content-length").is_none(), "{path}: {:?}", reply.lines);
        let next = client.get("/next");
        assert_eq!((next.status, next.text().as_str()), (200, "ok\n"), "behind {path}");
        assert_eq!(rig.proxy.access(path).text("outcome"), "ok");
    }
    // Where what was spoken of comes late, it is not the next one's answer.
    for (path, fields) in [("/late", "Content-Length: 47"), ("/late-chunks", "Transfer-Encoding: chunked")] {
        let first = format!("HTTP/1.1 204 No Content\r\n{fields}\r\n\r\n").into_bytes();
        let steps = vec![Step::Bytes(first), Step::Pause(Duration::from_millis(100)), Step::Bytes(stray.into())];
        rig.origin.when(When::path(path), Answer::raw(steps));
        assert_eq!((client.get(path).status, client.get("/next").text().as_str()), (204, "ok\n"), "behind {path}");
    }
    let head = client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n").try_reply("HEAD").expect("an answer");
    assert_eq!((head.status, client.get("/next").status), (200, 200), "C15");
}

#[test]
fn interim_answers_say_nothing_of_a_body_nor_of_their_hop() {
    let rig = Rig::new();
    let interim = [
        "HTTP/1.1 102 Processing\r\nContent-Length: 3\r\nConnection: x-h\r\nX-H: 1\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5\r\nLink: </x>\r\n\r\n",
    ];
    rig.origin.answer(Answer::bytes(&format!("{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", interim.concat())));
    let mut client = rig.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let said = client.rest().expect("an answer");
    let said = String::from_utf8_lossy(&said).into_owned();
    let first = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert!(said.starts_with(first) && said.ends_with("\r\n\r\nok"), "{said}");
}

#[test]
fn answers_with_two_readings_of_their_end_are_502_and_their_connection_is_not_reused() {
    let rig = Rig::new();
    let codings = [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity\r\nContent-Length: 13",
    ];
    for (nth, coding) in codings.iter().enumerate() {
        let path = format!("/coding-{nth}");
        let answer = format!("HTTP/1.1 200 OK\r\n{coding}\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        rig.origin.when(When::path(&path), Answer::bytes(&answer));
        assert_eq!(rig.proxy.get(&path).status, 502, "{coding}");
        let line = rig.proxy.access(&path);
        assert!(line.has(&[("reason", "upstream_protocol"), ("outcome", "upstream_error")]), "{}", line.raw);
        assert_eq!(line.attempts()[0]["result"], "protocol", "{}", line.raw);
        for _ in 0..4 {
            assert_eq!(rig.proxy.get("/after").status, 200);
        }
        let traffic = rig.origin.traffic();
        let odd = traffic.iter().rfind(|seen| seen.target == path).expect("it was asked");
        let later = traffic.iter().filter(|seen| seen.connection == odd.connection && seen.nth > odd.nth).count();
        assert_eq!(later, 0, "{coding}: the connection was used again");
    }
    for (path, lengths) in [("/twice", "Content-Length: 3\r\nContent-Length: 3"), ("/list", "Content-Length: 3, 3")] {
        rig.origin.when(When::path(path), Answer::bytes(&format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\nabc")));
        let reply = rig.proxy.get(path);
        assert_eq!((reply.status, reply.text().as_str()), (200, "abc"), "{path}");
        assert_eq!(reply.fields("content-length"), ["3"], "{path}");
    }
}

#[test]
fn d_answers_that_are_none_are_502_and_what_is_odd_is_put_right() {
    let rig = Rig::new();
    let refused = [
        ("/D05", "HTTP/1.1 200 OK\r\nContent-Le"),
        ("/D06", "this is no answer at all\r\n\r\n"),
        ("/D09", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        ("/D11", "HTTP/1.1 2x0 OK\r\nContent-Length: 3\r\n\r\nabc"),
        ("/D14", "HTTP/1.1 200 OK\r\nX-Nul: a\0b\r\nContent-Length: 3\r\n\r\nabc"),
        ("/none", ""),
    ];
    for (path, answer) in refused {
        rig.origin.when(When::path(path), Answer::raw(vec![Step::Bytes(answer.as_bytes().to_vec()), Step::Close]));
        let reply = rig.proxy.get(path);
        assert_eq!(reply.status, 502, "{path}: {:?}", reply.lines);
        assert_eq!(rig.proxy.access(path).text("outcome"), "upstream_error", "{path}");
    }
    let either = [
        ("/D08", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        ("/D13", "HTTP/1.1 200 OK\nContent-Length: 3\nX-One: 1\n\nabc"),
        ("/D16", "HTTP/1.1 200 OK\r\nX-One: 1\r\n 2\r\nContent-Length: 3\r\n\r\nabc"),
        ("/D25", "HTTP/1.0 200 OK\r\n\r\nabc"),
    ];
    for (path, answer) in either {
        rig.origin.when(When::path(path), Answer::raw(vec![Step::Bytes(answer.as_bytes().to_vec()), Step::Close]));
        let reply = rig.proxy.get(path);
        assert!(reply.status == 502 || (reply.status, reply.text().as_str()) == (200, "abc"), "{path}: {reply:?}");
        assert!(reply.complete && reply.fields("x-one").iter().all(|value| !value.contains('\n')), "{path}");
        let framed = reply.fields("content-length").len() + reply.fields("transfer-encoding").len();
        assert_eq!(framed, 1, "{path}: {:?}", reply.lines);
    }
}

#[test]
fn d04_post_without_an_answer_is_sent_once() {
    let rig = Rig::with("retries: { attempts: 5, budget: 100% }");
    rig.origin.answer(Answer::close());
    assert_eq!(rig.proxy.request("POST", "/x", &[], "body").status, 502);
    rig.proxy.access("/x");
    assert_eq!(rig.origin.traffic_count(), 1);
}

#[test]
fn d18_d19_early_answers_reach_a_client_that_still_uploads() {
    let rig = Rig::new();
    rig.origin.when(When::path("/D18"), Answer::status(413).field("Connection: close").early());
    rig.origin.when(When::path("/D19"), Answer::status(401).early());
    for (path, status) in [("/D18", 413), ("/D19", 401)] {
        let mut client = rig.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n"));
        client.send(vec![b'x'; 1 << 16]);
        assert_eq!(client.reply().status, status, "{path}");
    }
}

#[test]
fn d24_connection_that_the_member_closes_at_any_time_costs_no_get() {
    let rig = Rig::with("");
    rig.origin.close_after(1);
    let mut client = rig.proxy.connect();
    assert!((0..20).all(|nth| client.get(&format!("/{nth}")).status == 200));
}
