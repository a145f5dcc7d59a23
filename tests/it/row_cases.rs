//! HTTP/1.1 that nobody should speak, byte by byte: what the client is answered, and what reaches the member.
//!
//! The names begin with the rows' numbers: A framing, B request line and host, C hop by hop, D what members answer.

use std::time::Duration;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Connection, Line, Origin, Step, When, eventually};

/// A proxy with one unprobed member.
struct Rig {
    origin: Origin,
    proxy: Proxy,
}

impl Rig {
    fn new() -> Rig {
        Rig::with("retries: { attempts: 1 }")
    }

    fn with(keys: &str) -> Rig {
        let origin = Origin::start();
        let proxy = Proxy::start(&config_of(&[origin.to_string()], &format!("probe: off\n{keys}")));
        Rig { origin, proxy }
    }

    fn send(&self, bytes: impl AsRef<[u8]>) -> Connection {
        let mut client = self.proxy.connect();
        client.send(bytes);
        client
    }

    /// These bytes are refused with this status, the member sees nothing of them, and one line says so. Over what is malformed
    /// the connection is closed.
    #[track_caller]
    fn refuses(&self, row: &str, bytes: impl AsRef<[u8]>, status: u16) {
        let (logged, asked) = (self.proxy.access_log().len(), self.origin.traffic_count());
        let mut client = self.send(bytes);
        let reply = client.try_reply("GET").unwrap_or_else(|e| panic!("{row}: no answer: {e}"));
        assert_eq!((reply.status, reply.complete), (status, true), "{row}: {:?}", reply.lines);
        assert!(reply.field("proxy-status").is_some(), "{row}: not our own: {:?}", reply.lines);
        let closes = reply.field("connection") == Some("close");
        assert!(closes || status != 400, "{row}: {:?}", reply.lines);
        assert!(!closes || client.rest().is_ok_and(|rest| rest.is_empty()), "{row}: more, or no end in order");
        // Whoever is refused may go on sending for a while; the line comes when that is over.
        drop(client);
        eventually(&format!("{row} has its line"), || self.proxy.access_log().len() > logged);
        let line: Line = self.proxy.access_log().swap_remove(logged);
        assert!(line.text("outcome") == "refused" && line.json["status"] == status, "{row}: {}", line.raw);
        assert!(line.attempts().is_empty(), "{row}: {}", line.raw);
        assert_eq!((self.origin.traffic_count(), self.proxy.access_log().len()), (asked, logged + 1), "{row}");
    }
}

const POST: &str = "POST /x HTTP/1.1\r\nHost: a\r\n";
/// What would be a request of its own if a length were misread.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_lengths_and_codings_that_have_two_readings_are_400() {
    let rig = Rig::new();
    let rows = [
        ("A01", format!("{POST}Content-Length: 39\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}")),
        ("A02", format!("{POST}Transfer-Encoding: chunked\r\nContent-Length: 39\r\n\r\n0\r\n\r\n{SMUGGLED}")),
        ("A03", format!("{POST}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello")),
        ("A06", format!("{POST}Content-Length: +5\r\n\r\nhello")),
        ("A07", format!("{POST}Content-Length: -5\r\n\r\nhello")),
        ("A08", format!("{POST}Content-Length: 0x5\r\n\r\nhello")),
        ("A10", format!("{POST}Content-Length: 99999999999999999999\r\n\r\nhello")),
        ("A11", format!("{POST}Content-Length: \r\n\r\nhello")),
        ("A13", format!("{POST}Content-Length: \x0b5\r\n\r\nhello")),
        ("A14", format!("{POST}Transfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")),
        ("A16", format!("{POST}Transfer-Encoding: identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n")),
        ("A18", format!("{POST}Transfer-Encoding: \x0bchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")),
        (
            "A20",
            format!("{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ),
        ("A21", format!("{POST}Transfer-Encoding : chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")),
        ("A25", "POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned()),
    ];
    for (row, bytes) in rows {
        rig.refuses(row, bytes, 400);
    }
}

#[test]
fn a04_two_identical_content_lengths_are_400() {
    let rig = Rig::new();
    rig.refuses("two lines", format!("{POST}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), 400);
    rig.refuses("a list", format!("{POST}Content-Length: 5, 5\r\n\r\nhello"), 400);
    rig.refuses("an empty one", format!("{POST}Content-Length: 5\r\nContent-Length:\r\n\r\nhello"), 400);
}

#[test]
fn a17_chunked_applied_twice_is_400() {
    let rig = Rig::new();
    let body = "5\r\nhello\r\n0\r\n\r\n";
    let codings = [
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked \t,\t chunked",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: , chunked",
        "Transfer-Encoding: chunked;x=y",
    ];
    for coding in codings {
        rig.refuses(coding, format!("{POST}{coding}\r\n\r\n{body}"), 400);
    }
    // And what is one coding, however it is spelt.
    for coding in ["Transfer-Encoding: chunked", "transfer-encoding:CHUNKED \t"] {
        assert_eq!(rig.send(format!("{POST}{coding}\r\n\r\n{body}")).reply().status, 200, "{coding}");
        assert_eq!(rig.origin.traffic().pop().map(|seen| seen.body), Some(b"hello".to_vec()), "{coding}");
    }
}

#[test]
fn a_fields_that_are_none_are_400() {
    let rig = Rig::new();
    let rows: [(&str, &[u8]); 7] = [
        ("A23", b"GET /x HTTP/1.1\r\nHost: a\r\nX-Fold: 1\r\n 2\r\n\r\n"),
        ("A26", b"GET /x HTTP/1.1\r\nHost: a\r\nX-Nul: a\0b\r\n\r\n"),
        ("A30", b"GET /x HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n"),
        ("A31", b"GET /x HTTP/1.1\r\nHost: a\r\nX(y: x\r\n\r\n"),
        ("A32", b"GET /x HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n"),
        ("bare CR", b"GET /x HTTP/1.1\r\nHost: a\r\nX-Cr: a\rb\r\n\r\n"),
        ("blank first", b"GET /x HTTP/1.1\r\n Host: a\r\n\r\n"),
    ];
    for (row, bytes) in rows {
        rig.refuses(row, bytes, 400);
    }
}

#[test]
fn a28_a29_bare_line_feeds_are_normalised() {
    let rig = Rig::new();
    for bytes in ["GET /x HTTP/1.1\r\nHost: a\nX-One: 1\r\n\r\n", "GET /x HTTP/1.1\nHost: a\nX-One: 1\n\n"] {
        assert_eq!(rig.send(bytes).reply().status, 200, "{bytes:?}");
        let seen = rig.origin.traffic().pop().expect("it was asked");
        assert_eq!((seen.fields("host"), seen.fields("x-one")), (vec!["a"], vec!["1"]), "{bytes:?}");
    }
}

#[test]
fn a_chunks_that_are_none_never_complete_a_body() {
    let rig = Rig::new();
    let rows = [
        ("A33", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("A34", "+5\r\nhello\r\n0\r\n\r\n"),
        ("A36", " 5\r\nhello\r\n0\r\n\r\n"),
        ("A39", "-1\r\nhello\r\n0\r\n\r\n"),
        ("A42", "3\r\nhello\r\n0\r\n\r\n"),
    ];
    for (row, body) in rows {
        let mut client = rig.send(format!("{POST}Transfer-Encoding: chunked\r\n\r\n{body}{SMUGGLED}"));
        if let Ok(reply) = client.try_reply("POST") {
            assert_eq!(reply.status, 400, "{row}");
        }
        assert!(client.is_closed(), "{row}");
    }
    rig.proxy.settle_access_log("/sentinel");
    let seen = rig.origin.traffic();
    assert!(seen.iter().all(|seen| seen.target == "/sentinel" || !seen.complete), "{seen:?}");
}

#[test]
fn a44_trailers_are_never_fields() {
    let rig = Rig::new();
    let trailers = "Host: evil.example\r\nContent-Length: 9\r\nX-Late: 1\r\n";
    let bytes = format!("{POST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n");
    assert_eq!(rig.send(bytes).reply().status, 200);
    let seen = &rig.origin.traffic()[0];
    assert_eq!((seen.fields("host"), seen.field("x-late"), seen.body.as_slice()), (vec!["a"], None, &b"hello"[..]));
    assert_eq!(seen.field("content-length"), None, "{:?}", seen.lines);
}

#[test]
fn a45_to_a49_what_follows_a_body_is_the_next_request() {
    let rig = Rig::new();
    let rows = [
        (
            "A45",
            format!("GET /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ),
        ("A46", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("A47", "\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (
            "A49",
            format!("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ),
    ];
    for (row, bytes) in rows {
        let mut client = rig.send(bytes);
        assert_eq!((client.reply().status, client.reply().status), (200, 200), "{row}");
        let targets: Vec<String> = rig.origin.traffic().into_iter().map(|seen| seen.target).collect();
        assert!(targets.ends_with(&["/1".to_owned(), "/2".to_owned()]), "{row}: {targets:?}");
    }
}

#[test]
fn b01_http_1_1_without_host_is_400() {
    Rig::new().refuses("B01", "GET /x HTTP/1.1\r\n\r\n", 400);
}

#[test]
fn b02_b03_b05_hosts_that_are_none_or_two_are_400() {
    let rig = Rig::new();
    rig.refuses("B02", "GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    rig.refuses("B03", "GET /x HTTP/1.1\r\nHost: a b\r\n\r\n", 400);
    rig.refuses("a list", "GET /x HTTP/1.1\r\nHost: a, b\r\n\r\n", 400);
    rig.refuses("B05", "GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn b08_connect_is_405() {
    Rig::new().refuses("B08", "CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n", 405);
}

#[test]
fn b09_options_of_everything_is_sent_as_it_came() {
    let rig = Rig::new();
    assert_eq!(rig.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").reply().status, 200);
    assert_eq!(rig.origin.traffic()[0].target, "*");
}

#[test]
fn b11_raw_blank_in_the_target_is_400() {
    let rig = Rig::new();
    for target in ["/a b", "/a\tb", " /a", "/a ", "/a  b", "/?q=a b"] {
        rig.refuses(target, format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    }
    // As the second of a connection too, and a byte at a time.
    let mut client = rig.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /a b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.reply().status, client.reply().status), (200, 400));
    assert!(client.is_closed());
    let mut client = rig.proxy.connect();
    for byte in "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n".bytes() {
        client.send([byte]);
    }
    assert_eq!(client.reply().status, 400);
    assert_eq!(rig.origin.traffic_count(), 1);
}

#[test]
fn b12_control_character_in_the_target_is_400() {
    let rig = Rig::new();
    for byte in (0..0x20).chain([0x7f]).filter(|byte| *byte != b'\n') {
        let bytes = [b"GET /a", &[byte][..], b"b HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        rig.refuses(&format!("{byte:#x}"), bytes, 400);
    }
    rig.refuses("a line feed", "GET /a\nb HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn b14_target_goes_on_byte_for_byte_or_not_at_all() {
    let rig = Rig::new();
    let odd = (0x21..=0xff).filter(|byte| *byte != 0x7f).flat_map(|byte: u8| [vec![byte], vec![b'?', byte]]);
    let words = ["\u{fc}/\u{20ac}", "a?q=\u{20ac}", "%61/%2e%2e/%2F%00", "{a|b}\\^[]?x={\"y\":1}|`"];
    for raw in odd.chain(words.map(|word| word.as_bytes().to_vec())) {
        let mut client = rig.send([b"GET /", raw.as_slice(), b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        let shown = raw.escape_ascii().to_string();
        match client.reply().status {
            200 => {
                let seen = rig.origin.traffic().pop().expect("it was asked");
                assert_eq!(seen.target, format!("/{}", String::from_utf8_lossy(&raw)), "{shown} was repaired");
            }
            400 => assert!(!raw.is_ascii() || raw.iter().any(|b| b"#<>`\"".contains(b)), "{shown}"),
            other => panic!("{shown}: {other}"),
        }
    }
    for word in words.iter().take(3) {
        let sent = rig.origin.traffic().iter().any(|seen| seen.target == format!("/{word}"));
        assert!(sent, "{word} was refused");
    }
    // What is behind it would be dropped on the way.
    for target in ["/a#b", "/#", "/?#", "http://a/#x"] {
        assert_eq!(rig.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).reply().status, 400, "{target}");
    }
}

#[test]
fn b16_dot_segments_go_on_as_they_were_routed() {
    let (inside, outside) = (Origin::start(), Origin::start());
    let pool = |name: &str, origin: &Origin| format!("  {name}: {{ members: [{origin}], probe: off }}\n");
    let routes = "routes: [{ path: /b, pool: inside }, { pool: outside }]\n";
    let proxy = Proxy::start(&format!("pools:\n{}{}{routes}", pool("inside", &inside), pool("outside", &outside)));
    let mut client = proxy.connect();
    assert_eq!(client.get("/x/../b/ok").status, 200);
    assert_eq!((outside.traffic()[0].target.as_str(), inside.traffic_count()), ("/x/../b/ok", 0));
}

#[test]
fn b17_b18_methods_nobody_knows_go_on_and_what_is_none_is_400() {
    let rig = Rig::new();
    assert_eq!(rig.send("FOO /x HTTP/1.1\r\nHost: a\r\n\r\n").reply().status, 200);
    assert_eq!(rig.origin.traffic()[0].method, "FOO");
    rig.proxy.access("/x");
    rig.refuses("B18", "G@T /x HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    rig.refuses("none", " /x HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn b20_b21_other_versions_are_never_sent() {
    let rig = Rig::new();
    rig.refuses("B20", "GET /b/ok HTTP/2.0\r\nHost: a\r\n\r\n", 400);
    rig.refuses("preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400);
    rig.refuses("B21", "GET /b/ok\r\n", 400);
    rig.refuses("lower case", "GET /b/ok http/1.1\r\nHost: a\r\n\r\n", 400);
    rig.refuses("a third digit", "GET /b/ok HTTP/1.10\r\nHost: a\r\n\r\n", 400);
    rig.refuses("a TLS client", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400);
}

#[test]
fn b22_target_of_64_kib_is_414_or_431() {
    let rig = Rig::new();
    rig.refuses("over the target's limit", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "u".repeat(16 << 10)), 414);
    rig.refuses("over the header's too", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "u".repeat(64 << 10)), 431);
}

#[test]
fn b23_b24_b26_headers_without_measure_are_431() {
    let rig = Rig::new();
    let field = |bytes: usize| format!("GET /x HTTP/1.1\r\nHost: a\r\nX-Big: {}\r\n\r\n", "x".repeat(bytes));
    rig.refuses("B23", field(256 << 10), 431);
    let many: String = (0..200).map(|i| format!("X-{i}: 1\r\n")).collect();
    rig.refuses("B24", format!("GET /x HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431);
    // Without an end: cut long before all of it is here.
    let mut client = rig.send("GET /x HTTP/1.1\r\nHost: a\r\nX-Big: ");
    let mut sent = 0;
    while sent < 2 << 20 && client.try_send(vec![b'x'; 1 << 14]).is_ok() {
        sent += 1 << 14;
    }
    if let Ok(reply) = client.try_reply("GET") {
        assert_eq!(reply.status, 431);
    }
    assert!(client.is_closed() && rig.origin.traffic_count() == 0, "B26");
}

#[test]
fn c01_c02_c04_c06_fields_of_the_hop_are_not_sent_on() {
    let rig = Rig::new();
    let fields =
        "Connection: close, X-Foo\r\nX-Foo: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\n";
    let mut client = rig.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("connection")), (200, Some("close")), "{:?}", reply.lines);
    assert!(client.is_closed());
    let seen = &rig.origin.traffic()[0];
    for gone in ["x-foo", "keep-alive", "proxy-connection", "te", "connection"] {
        assert_eq!(seen.field(gone), None, "{:?}", seen.lines);
    }
}

#[test]
fn c07_fields_of_the_members_hop_are_not_sent_on() {
    let rig = Rig::new();
    let answer = Answer::status(200).field("Connection: X-Inner, keep-alive").field("X-Inner: 1").field("X-End: 1");
    rig.origin.answer(answer.field("Keep-Alive: timeout=9").field("Proxy-Connection: x").field("TE: x"));
    let mut client = rig.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply = client.reply();
    for gone in ["x-inner", "keep-alive", "proxy-connection", "te"] {
        assert_eq!(reply.field(gone), None, "{:?}", reply.lines);
    }
    assert_eq!((reply.status, reply.field("x-end")), (200, Some("1")));
    assert!(reply.fields("connection").iter().all(|value| *value == "keep-alive"), "{:?}", reply.lines);
    assert_eq!(client.get("/again").status, 200, "the client's connection is another matter");
}

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
fn c11_to_c13_interim_answers_reach_those_who_know_them() {
    let rig = Rig::new();
    let mut client = rig.send(format!("{POST}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"));
    assert_eq!(client.head().expect("an interim answer").status, 100, "C11");
    assert_eq!(client.send("body").reply().status, 200);
    let reply = rig.send(format!("{POST}Content-Length: 4\r\nExpect: foo\r\n\r\nbody")).reply();
    assert!([200, 417].contains(&reply.status), "C12: {}", reply.status);
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    rig.origin.answer(Answer::bytes(hints));
    let reply = rig.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    assert_eq!((reply.status, reply.interim), (200, vec![103]), "C13");
}

#[test]
fn c14_http_1_0_client_gets_no_interim_answer() {
    let rig = Rig::new();
    let interim = ["100 Continue", "102 Processing", "103 Early Hints"].map(|line| format!("HTTP/1.1 {line}\r\n\r\n"));
    rig.origin.answer(Answer::bytes(&format!("{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", interim.concat())));
    for fields in ["", "Connection: keep-alive\r\n", "Content-Length: 0\r\nExpect: 100-continue\r\n"] {
        let reply = rig.send(format!("GET /x HTTP/1.0\r\nHost: a\r\n{fields}\r\n")).reply();
        assert_eq!((reply.status, reply.interim.clone(), reply.text().as_str()), (200, vec![], "ok"), "{fields}");
    }
}

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
        assert_eq!(proxy_line(&rig, path).text("outcome"), "ok");
    }
    let head = client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n").try_reply("HEAD").expect("an answer");
    assert_eq!((head.status, client.get("/next").status), (200, 200), "C15");
}

#[track_caller]
fn proxy_line(rig: &Rig, path: &str) -> Line {
    rig.proxy.access(path)
}

#[test]
fn c21_unsolicited_switch_is_a_502() {
    let rig = Rig::new();
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
    rig.origin.answer(Answer::raw(vec![Step::Bytes(head.as_bytes().to_vec()), Step::Hang]));
    let mut client = rig.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().status, 502);
    let rest = client.rest().expect("an end in order");
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    assert!(rig.proxy.access("/x").has(&[("reason", "upstream_protocol")]));
}

#[test]
fn c22_http_1_0_client_gets_no_chunks() {
    let rig = Rig::new();
    rig.origin.answer(Answer::chunked(&["ab", "c"]));
    let mut client = rig.send("GET /x HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.text().as_str(), reply.field("transfer-encoding")), (200, "abc", None));
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
fn d01_d02_answers_that_break_off_are_never_whole() {
    let rig = Rig::new();
    let sized =
        Answer::status(200).field("Content-Length: 100").steps(vec![Step::Bytes(b"half".to_vec()), Step::Close]);
    let chunks = vec![Step::Bytes(chunk_of("half")), Step::Close];
    rig.origin.when(When::path("/D01"), sized);
    rig.origin.when(When::path("/D02"), Answer::status(200).field("Transfer-Encoding: chunked").steps(chunks));
    for path in ["/D01", "/D02"] {
        let reply = rig.proxy.get(path);
        assert_eq!((reply.status, reply.complete, reply.text().as_str()), (200, false, "half"), "{path}");
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
fn d18_d19_early_answers_reach_the_client() {
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
fn d23_member_that_hangs_is_a_504() {
    let rig = Rig::with("upstream: { read_timeout: 500ms }\nretries: { attempts: 1 }");
    rig.origin.answer(Answer::hang());
    assert_eq!(rig.proxy.get("/x").status, 504);
    assert!(rig.proxy.access("/x").has(&[("reason", "upstream_timeout"), ("outcome", "timeout")]));
}

#[test]
fn d24_connection_that_the_member_closes_at_any_time_costs_no_get() {
    let rig = Rig::with("");
    rig.origin.close_after(1);
    let mut client = rig.proxy.connect();
    assert!((0..20).all(|nth| client.get(&format!("/{nth}")).status == 200));
    let _ = client.stray(Duration::from_millis(1));
}
