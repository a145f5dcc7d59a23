//! A: where a request ends.

use super::{POST, Rig};

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
        ("no size", "\r\n\r\n"),
        ("no size behind a chunk", "5\r\nhello\r\n\r\n\r\n"),
        ("no size but an extension", ";a\r\n\r\n"),
        ("no size but white space", "\t\r\n\r\n"),
        ("a line feed in an extension", "2;\nxx\r\nAB\r\n0\r\n\r\n"),
        ("another", "5;a\nb\r\nhello\r\n0\r\n\r\n"),
    ];
    for (row, body) in rows {
        let mut client = rig.send(format!("{POST}Transfer-Encoding: chunked\r\n\r\n{body}{SMUGGLED}"));
        if let Ok(reply) = client.try_reply("POST") {
            assert_eq!(reply.status, 400, "{row}");
        }
        assert!(client.is_closed(), "{row}");
        // As it may come: the wrong byte alone.
        let mut client = rig.send(format!("{POST}Transfer-Encoding: chunked\r\n\r\n"));
        let mut parts = body.bytes().map(|byte| char::from(byte).to_string()).chain([SMUGGLED.to_owned()]);
        if parts.all(|part| client.try_send(&part).is_ok())
            && let Ok(reply) = client.try_reply("POST")
        {
            assert_eq!(reply.status, 400, "{row} in parts");
        }
        assert!(client.is_closed(), "{row} in parts");
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
        ("A45", "GET /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("A46", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("A47", "\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("A49", "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ];
    for (row, bytes) in rows {
        let mut client = rig.send(bytes);
        assert_eq!((client.reply().status, client.reply().status), (200, 200), "{row}");
        let targets: Vec<String> = rig.origin.traffic().into_iter().map(|seen| seen.target).collect();
        assert!(targets.ends_with(&["/1".to_owned(), "/2".to_owned()]), "{row}: {targets:?}");
    }
}
