//! A plain request is served by a driver of our own (`proxy/plain`), any other by Pingora's: whichever it is, the member, the
//! client and the log see the same.
//!
//! An `Upgrade` that `Connection` does not name asks for nothing and is taken out on the way, and a request that has one is not
//! plain. So each exchange here is made twice, once without and once with it.

use serde_json::Value;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Connection, Gate, Origin, Step, When, eventually};

/// Has a request served by Pingora's driver.
const GENERAL: &str = "Upgrade: nothing\r\n";

/// What was seen of one exchange, without what differs from request to request.
#[derive(Debug, PartialEq)]
struct Sight {
    /// Each request that came to a member: its first line and its fields in order.
    members: Vec<Vec<String>>,
    /// The answer, or why there is none, and the status of another one on the same connection.
    client: (String, Option<u16>),
    line: Value,
}

/// Two members, unprobed, of which one is always tried first.
struct Case {
    proxy: Proxy,
    origins: [Origin; 2],
}

impl Case {
    fn start(keys: &str) -> Case {
        let origins = [Origin::start(), Origin::start()];
        let members = origins.each_ref().map(Origin::to_string);
        let keys = format!("probe: off\nbalance: {{ consistent_hash: {{ key: client }} }}\n{keys}");
        // Each thread has connections of its own to the members.
        Case { proxy: Proxy::start(&format!("threads: 1\n{}", config_of(&members, &keys))), origins }
    }

    /// The exchange that begins with `head`, in which `{}` is the path, made both ways.
    #[track_caller]
    fn same(&self, what: &str, head: &str, answer: Option<Answer>) -> Sight {
        let name = what.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let [plain, other] = [("plain", ""), ("other", GENERAL)].map(|(folder, way)| {
            let path = format!("/{folder}/{name}");
            if let Some(answer) = &answer {
                self.origins.iter().for_each(|origin| origin.when(When::path(&path), answer.clone()));
            }
            self.exchange(&head.replace("{}", &path), way, &path)
        });
        assert_eq!(plain, other, "{what}");
        plain
    }

    fn exchange(&self, head: &str, way: &str, path: &str) -> Sight {
        // Each driver keeps connections of its own, and has one at hand from here on.
        let warm = format!("GET /warm HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{way}\r\n");
        let _ = self.proxy.connect().send(warm).try_reply("GET");
        let before = self.origins.each_ref().map(Origin::traffic_count);
        let method = head.split(' ').next().unwrap_or_default();
        let mut client = self.proxy.connect();
        let first = client.send(format!("{head}{way}\r\n")).try_reply(method);
        let line = self.proxy.access(path);
        let came = self.origins.iter().zip(before).flat_map(|(origin, before)| origin.traffic().split_off(before));
        let members = came.map(|seen| {
            let first = format!("{} {} {}", seen.method, seen.target, seen.version);
            let fields = seen.lines.iter().map(|line| without_id(line));
            std::iter::once(first).chain(fields).map(|line| line.replace(path, "/path")).collect()
        });
        let members = members.collect();
        let answer = first.map(|mut reply| {
            reply.lines = reply.lines.iter().map(|line| without_id(line)).collect();
            format!("{reply:?}")
        });
        let again = client.send(format!("GET /again HTTP/1.1\r\nHost: shop.example\r\n{way}\r\n")).try_reply("GET");
        let client = (answer.unwrap_or_else(|error| error), again.ok().map(|reply| reply.status));
        Sight { members, client, line: timeless(line.json, path) }
    }
}

/// A field without what differs from request to request.
fn without_id(line: &str) -> String {
    let varies = line.split_once(": ").filter(|(name, _)| ["Date", "X-Request-Id"].contains(name));
    varies.map_or_else(|| line.to_owned(), |(name, _)| name.to_owned())
}

/// A line without what tells one request from another; of a time, whether there is one.
fn timeless(line: Value, path: &str) -> Value {
    match line {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let varies = name.ends_with("_ms") || ["time", "request_id", "connection"].contains(&name.as_str());
                let value = if varies { Value::Bool(!value.is_null()) } else { timeless(value, path) };
                (name, value)
            })
            .collect(),
        Value::Array(values) => values.into_iter().map(|value| timeless(value, path)).collect(),
        Value::String(text) => Value::String(text.replace(path, "/path")),
        other => other,
    }
}

fn raw(head: &str, then: Vec<Step>) -> Option<Answer> {
    Some(Answer::raw([vec![Step::Bytes(head.as_bytes().to_vec())], then].concat()))
}

fn bytes(text: &str) -> Step {
    Step::Bytes(text.as_bytes().to_vec())
}

const GET: &str = "GET {} HTTP/1.1\r\nHost: shop.example\r\n";
const HEAD: &str = "HEAD {} HTTP/1.1\r\nHost: shop.example\r\n";
const OLD: &str = "GET {} HTTP/1.0\r\n";
const OLD_KEPT: &str = "GET {} HTTP/1.0\r\nHost: shop.example\r\nConnection: keep-alive\r\n";

#[test]
fn requests_are_the_same_to_members_whichever_way_they_go() {
    let case = Case::start("");
    let rows = [
        ("a GET", GET, 200),
        ("a HEAD", HEAD, 200),
        ("a DELETE", "DELETE {} HTTP/1.1\r\nHost: shop.example\r\n", 200),
        ("a POST of nothing", "POST {} HTTP/1.1\r\nHost: shop.example\r\n", 200),
        ("a method of their own", "PURGE {} HTTP/1.1\r\nHost: shop.example\r\n", 200),
        ("a query", "GET {}?a=1&b=%20 HTTP/1.1\r\nHost: shop.example:8080\r\n", 200),
        ("an old client", OLD, 200),
        ("an old client that stays", OLD_KEPT, 200),
        ("a client that closes", "GET {} HTTP/1.1\r\nHost: shop.example\r\nConnection: Close\r\n", 200),
        (
            "a browser",
            "GET {} HTTP/1.1\r\nhost: shop.example\r\nConnection: keep-alive\r\naccept: */*\r\nCookie: a=b; c=d\r\n\
             User-AGENT: x\r\nX-Requested-With: XMLHttpRequest\r\nReferer: http://a/\r\nRange: bytes=0-1\r\n\
             If-None-Match: \"x\"\r\nAccept: text/html\r\n",
            200,
        ),
        (
            "claims",
            "GET {} HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
             X-Real-IP: 6.6.6.6\r\nX_Forwarded_Proto: https\r\nX-Forwarded-Port: 1\r\nVia: 1.0 a, 1.1 b\r\nProxy: http://a/\r\n\
             X-Request-Id: mine\r\n",
            200,
        ),
        ("a few hops left", "OPTIONS {} HTTP/1.1\r\nHost: shop.example\r\nMax-Forwards: 5\r\n", 200),
        ("the last hop", "OPTIONS {} HTTP/1.1\r\nHost: shop.example\r\nMax-Forwards: 0\r\n", 200),
        ("bytes that are no text", "GET {} HTTP/1.1\r\nHost: shop.example\r\nX-Name: \u{e9}\r\n", 200),
        ("lines that end in LF", "GET {} HTTP/1.1\nHost: shop.example\nX-Name: b\n", 200),
        ("TRACE", "TRACE {} HTTP/1.1\r\nHost: shop.example\r\n", 405),
        ("no Host", "GET {} HTTP/1.1\r\n", 400),
        ("a Host that is none", "GET {} HTTP/1.1\r\nHost: a b\r\n", 400),
    ];
    for (what, head, status) in rows {
        let sight = case.same(what, head, None);
        assert_eq!(sight.line["status"], status, "{what}: {sight:?}");
    }
}

#[test]
fn answers_are_the_same_to_clients_whichever_way_they_come() {
    let case = Case::start("retries: { attempts: 1 }");
    let big = "x".repeat(300_000);
    let chunks = |steps: Vec<Step>| Some(Answer::status(200).field("Transfer-Encoding: chunked").steps(steps));
    let last = || bytes("0\r\n\r\n");
    let many: String =
        (0..2000).map(|n| String::from_utf8_lossy(&chunk_of(&format!("part {n},"))).into_owned()).collect();
    let many = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{many}0\r\n\r\n");
    let rows: Vec<(&str, &str, Option<Answer>)> = vec![
        ("a small one", GET, Some(Answer::status(200).body("small"))),
        ("an empty one", GET, Some(Answer::status(200).body(""))),
        ("a big one", GET, Some(Answer::status(200).body(big.clone()))),
        ("a big one for an old client", OLD_KEPT, Some(Answer::status(200).body(big.clone()))),
        ("of an error", GET, Some(Answer::status(503).field("Retry-After: 1").body("no"))),
        ("chunks", GET, chunks(vec![Step::Bytes(chunk_of("one")), Step::Bytes(chunk_of("two")), last()])),
        ("many chunks at once", GET, Some(Answer::bytes(&many))),
        ("a big chunk", GET, chunks(vec![Step::Bytes(chunk_of(&big)), last()])),
        ("no chunk", GET, chunks(vec![last()])),
        ("trailers", GET, chunks(vec![Step::Bytes(chunk_of("one")), bytes("0\r\nX-Sum: 1\r\n\r\n")])),
        ("chunks for an old client", OLD, chunks(vec![Step::Bytes(chunk_of("one")), last()])),
        ("chunks for an old client that stays", OLD_KEPT, chunks(vec![Step::Bytes(chunk_of("one")), last()])),
        ("until it closes", GET, raw("HTTP/1.1 200 OK\r\n\r\nall of it", vec![Step::Close])),
        ("until it closes for HEAD", HEAD, raw("HTTP/1.1 200 OK\r\n\r\n", vec![Step::Close])),
        ("until it closes for an old client", OLD, raw("HTTP/1.1 200 OK\r\n\r\nall of it", vec![Step::Close])),
        ("HTTP 1 0", GET, raw("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold", vec![Step::Close])),
        ("a HEAD with a length", HEAD, Some(Answer::bytes("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"))),
        ("a HEAD with chunks", HEAD, Some(Answer::bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))),
        ("a HEAD with a body", HEAD, Some(Answer::bytes("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"))),
        ("204", GET, Some(Answer::status(204))),
        ("204 with a length", GET, Some(Answer::bytes("HTTP/1.1 204 No\r\nContent-Length: 4\r\n\r\nbody"))),
        ("304", GET, Some(Answer::bytes("HTTP/1.1 304 Not Modified\r\nContent-Length: 999\r\nETag: \"x\"\r\n\r\n"))),
        ("too much", GET, Some(Answer::bytes("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nmore than that"))),
        (
            "a hint first",
            GET,
            Some(Answer::bytes(
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            )),
        ),
        ("100 that nobody waits for", GET, Some(Answer::bytes("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n"))),
        (
            "a hint for an old client",
            OLD,
            raw("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", vec![]),
        ),
        ("hints without end", GET, Some(Answer::bytes(&"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(200)))),
        (
            "a switch",
            GET,
            Some(Answer::bytes("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: nothing\r\n\r\n")),
        ),
        (
            "hop by hop",
            GET,
            Some(
                Answer::status(200)
                    .field("Connection: x-own, close")
                    .field("X-Own: 1")
                    .field("Keep-Alive: timeout=1")
                    .field("X-Kept: 1"),
            ),
        ),
        ("two lengths", GET, Some(Answer::bytes("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na"))),
        (
            "two other lengths",
            GET,
            Some(Answer::bytes("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na")),
        ),
        (
            "a length and chunks",
            GET,
            Some(Answer::bytes("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ),
        (
            "another coding",
            GET,
            Some(Answer::bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")),
        ),
        ("no HTTP", GET, Some(Answer::bytes("SSH-2.0-x\r\n\r\n"))),
        ("nothing", GET, Some(Answer::close())),
        ("a reset", GET, Some(Answer::reset())),
        ("half a header", GET, raw("HTTP/1.1 200 OK\r\nContent-", vec![Step::Close])),
        ("half a body", GET, raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", vec![Step::Close])),
        ("half a chunk", GET, raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", vec![Step::Close])),
        (
            "no last chunk",
            GET,
            raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", vec![Step::Close]),
        ),
        (
            "a chunk that is none",
            GET,
            raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n", vec![Step::Close]),
        ),
    ];
    for (what, head, answer) in rows {
        case.same(what, head, answer);
    }
}

#[test]
fn members_that_fail_are_blamed_and_left_alike() {
    let case = Case::start("retries: { attempts: 2 }");
    for (what, answer) in
        [("closes", Answer::close()), ("resets", Answer::reset()), ("babbles", Answer::bytes("no\r\n\r\n"))]
    {
        for head in [GET, HEAD, "POST {} HTTP/1.1\r\nHost: shop.example\r\n"] {
            let sight = case.same(&format!("{what} {}", &head[..3]), head, Some(answer.clone()));
            assert_eq!(sight.members.len() == 1, head.starts_with("POST"), "{what}: {sight:?}");
        }
    }
    let sight = case.same("both answer", GET, Some(Answer::status(200)));
    let (first, second) = match sight.line["attempts"][0]["member"] == case.origins[0].address().as_str() {
        true => (&case.origins[0], &case.origins[1]),
        false => (&case.origins[1], &case.origins[0]),
    };
    first.stop();
    let sight = case.same("one refuses", GET, Some(Answer::status(200)));
    assert_eq!(sight.line["attempts"][0]["result"], "connect_failed", "{sight:?}");
    second.stop();
    assert_eq!(case.same("both refuse", GET, None).line["status"], 502);
}

#[test]
fn member_that_breaks_off_what_it_began_on_a_pooled_connection_has_failed_and_lost_no_race() {
    const HALF: &str = "HTTP/1.1 200 OK\r\nContent-";
    const HINT: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let both = format!("{HINT}{HALF}");
    let rows = [("half-a-header", HALF), ("a-hint", HINT), ("both", both.as_str())];
    let case = Case::start("retries: { attempts: 2, budget: 100% }");
    for (what, said) in rows {
        let answer = Answer::raw(vec![bytes(said), Step::Close]);
        for (folder, way) in [("plain", ""), ("other", GENERAL)] {
            for (method, attempts) in [("GET", 2), ("POST", 1)] {
                let path = format!("/{folder}/{method}/{what}");
                case.origins.iter().for_each(|origin| origin.when(When::path(&path), answer.clone()));
                let head = format!("{method} {path} HTTP/1.1\r\nHost: shop.example\r\n");
                let Sight { members, line, .. } = case.exchange(&head, way, &path);
                let tried = line["attempts"].as_array().expect("a list");
                assert_eq!((members.len(), tried.len()), (attempts, attempts), "{path}: {line}");
                assert_eq!(tried[0]["reused"], true, "{path}: {line}");
                assert!(tried.iter().all(|attempt| attempt["result"] == "reset"), "{path}: {line}");
                assert!(attempts == 1 || tried[0]["member"] != tried[1]["member"], "{path}: {line}");
                assert_eq!(line["status"], 502, "{path}: {line}");
            }
        }
    }
}

#[test]
fn member_that_breaks_off_on_a_pooled_connection_is_held_to_account_by_both() {
    for (folder, way) in [("plain", ""), ("other", GENERAL)] {
        let case = Case::start("passive: { eject: { consecutive: 1 } }\nretries: { attempts: 1 }");
        let path = format!("/{folder}/half");
        let answer = Answer::raw(vec![bytes("HTTP/1.1 200 OK\r\n"), Step::Close]);
        case.origins.iter().for_each(|origin| origin.when(When::path(&path), answer.clone()));
        let line = case.exchange(&GET.replace("{}", &path), way, &path).line;
        assert_eq!(line["attempts"][0]["reused"], true, "{line}");
        let first = line["attempts"][0]["member"].as_str().expect("a member").to_owned();
        eventually("it is out", || case.proxy.member("web", &first)["ejected_because"] == "passive");
    }
}

#[test]
fn limits_in_time_are_the_same() {
    let case = Case::start(
        "retries: { attempts: 2, per_try_timeout: 100ms }\ndeadline: 250ms\nupstream: { read_timeout: 80ms }",
    );
    assert_eq!(case.same("silent", GET, Some(Answer::hang())).line["status"], 504);
    let stalls = raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", vec![Step::Hang]);
    assert_eq!(case.same("silent in its body", GET, stalls).line["reason"], "upstream_timeout");
}

#[test]
fn clients_that_leave_are_noticed_alike_and_nobody_else_is_blamed() {
    let case = Case::start("");
    for (folder, way) in [("plain", ""), ("other", GENERAL)] {
        let gate = Gate::new();
        let begun = vec![bytes("half"), Step::Hold(gate.clone())];
        let answers = [
            ("before", Answer::status(200).held_by(&gate), 0),
            ("within", Answer::status(200).field("Content-Length: 9").steps(begun), 4),
        ];
        for (when, answer, bytes) in answers {
            let path = format!("/{folder}/{when}");
            case.origins.iter().for_each(|origin| origin.when(When::path(&path), answer.clone()));
            let mut client = case.proxy.connect();
            client.send(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{way}\r\n"));
            if bytes > 0 {
                client.until("half");
            }
            eventually("the member works on it", || gate.waiting() > 0);
            drop(client);
            let line = case.proxy.access(&path);
            assert!(line.has(&[("outcome", "client_aborted"), ("reason", "client_aborted")]), "{}", line.raw);
            assert_eq!(line.attempts()[0]["result"], "client_aborted", "{}", line.raw);
            assert_eq!(line.json["response_bytes"], bytes, "{}", line.raw);
        }
        gate.open();
    }
}

/// As nginx has it, and not HAProxy.
#[test]
fn clients_that_only_end_their_sending_half_have_left_alike() {
    // More than all buffers on the way have room for.
    const SIZE: usize = 16 << 20;
    let case = Case::start("");
    let big = "x".repeat(SIZE);
    for (folder, way) in [("plain", ""), ("other", GENERAL)] {
        let gate = Gate::new();
        let begun = vec![bytes("half"), Step::Hold(gate.clone())];
        let answers = [
            ("before", Answer::status(200).held_by(&gate), 499),
            ("in-a-pause", Answer::status(200).field("Content-Length: 9").steps(begun), 200),
            ("with-a-length", Answer::status(200).body(big.as_str()), 200),
            ("in-chunks", raw("HTTP/1.1 200 OK\r\n\r\n", vec![bytes(&big), Step::Close]).expect("an answer"), 200),
        ];
        for (when, answer, status) in answers {
            let path = format!("/{folder}/{when}");
            case.origins.iter().for_each(|origin| origin.when(When::path(&path), answer.clone()));
            let mut client = case.proxy.connect();
            client.send(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{way}\r\n"));
            match status {
                200 => drop(client.until("\r\n\r\n")),
                _ => eventually("the member works on it", || gate.waiting() > 0),
            }
            let rest = client.end().rest();
            assert!(rest.map_or(true, |rest| rest.len() < SIZE), "{path}: all of it came");
            let line = case.proxy.access(&path);
            assert!(line.has(&[("outcome", "client_aborted"), ("reason", "client_aborted")]), "{}", line.raw);
            assert_eq!(line.json["status"], status, "{}", line.raw);
            assert_eq!(line.attempts()[0]["result"], "client_aborted", "{}", line.raw);
        }
        gate.open();
    }
}

#[test]
fn old_clients_are_told_when_the_end_of_their_connection_is_the_end_of_the_answer() {
    let case = Case::start("");
    let until_it_closes = || raw("HTTP/1.1 200 OK\r\n\r\nall of it", vec![Step::Close]);
    let chunks = || Answer::status(200).field("Transfer-Encoding: chunked").steps(vec![bytes("3\r\nall\r\n0\r\n\r\n")]);
    let head = OLD_KEPT.replace("GET", "HEAD");
    // (what, the request, the answer, whether the connection stays)
    let rows = [
        ("kept until it closes", OLD_KEPT, until_it_closes(), false),
        ("kept with chunks", OLD_KEPT, Some(chunks()), false),
        ("kept with a length", OLD_KEPT, Some(Answer::status(200).body("all of it")), true),
        ("kept without a body", OLD_KEPT, Some(Answer::status(204)), true),
        ("kept with a HEAD", &head, until_it_closes(), true),
        ("not kept until it closes", OLD, until_it_closes(), false),
        ("a new one until it closes", GET, until_it_closes(), true),
    ];
    for (what, head, answer, stays) in rows {
        let (answer, again) = case.same(what, head, answer).client;
        let told = if stays { "Connection: keep-alive" } else { "Connection: close" };
        assert!(answer.contains(told), "{what}: {answer}");
        assert_eq!(again.is_some(), stays, "{what}: {answer}");
    }
}

#[test]
fn requests_in_one_packet_are_answered_in_turn_by_both() {
    let case = Case::start("");
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{more}\r\n");
    let post = "POST /5 HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 4\r\n\r\nbody";
    let chunked = "POST /7 HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
    let all = [
        get("/1", ""),
        get("/2", ""),
        get("/3", GENERAL),
        get("/4", ""),
        post.to_owned(),
        get("/6", ""),
        chunked.to_owned(),
        post.replace("/5", "/8"),
        get("/9", "Connection: close\r\n"),
    ];
    let paths = ["/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9"];
    for path in paths {
        case.origins.iter().for_each(|origin| origin.when(When::path(path), Answer::status(200).body(path)));
    }
    let mut client: Connection = case.proxy.connect();
    client.send(all.concat());
    let bodies: Vec<String> = paths.iter().map(|_| client.reply().text()).collect();
    assert_eq!(bodies, paths);
    assert!(client.is_closed());
    let bodies: Vec<_> = case
        .origins
        .iter()
        .flat_map(Origin::traffic)
        .map(|seen| String::from_utf8_lossy(&seen.body).into_owned())
        .collect();
    assert_eq!(bodies, ["", "", "", "", "body", "", "body", "body", ""]);
}
