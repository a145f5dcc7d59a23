//! HTTP/2: the same question and the same judgement, in frames.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::frames::{Frame, Frames, data, end, goaway, head, last, reset};
use super::origin::{Origin, Step, ok};
use super::*;

fn http2() -> HttpProbe {
    HttpProbe { http2: true, ..http_probe() }
}

fn alive() -> HttpProbe {
    HttpProbe {
        expect: Expect { status: vec![(200, 299)], headers: Vec::new(), body: Some("ALIVE".to_string()) },
        max_body: 100,
        ..http2()
    }
}

const OK: &[(&str, &str)] = &[(":status", "200")];

/// An origin of hyper's that answers 200 and tells of each request.
async fn hyper_origin() -> (SocketAddr, mpsc::UnboundedReceiver<http::request::Parts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let service = service_fn(move |request: http::Request<Incoming>| {
                let request = request.into_parts().0;
                let body = if request.method == http::Method::HEAD { "" } else { "fine" };
                let _ = sender.send(request);
                async move { Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from_static(body.as_bytes())))) }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, requests)
}

#[tokio::test]
async fn the_request_is_that_of_http_1_with_an_authority_for_its_host() {
    let (address, mut requests) = hyper_origin().await;
    let headers = vec![("X-Token".to_string(), "a".to_string())];
    let probe = HttpProbe { path: "/ready?full=1".to_string(), headers, method: ProbeMethod::Head, ..http2() };
    let sample = check(probe, address).run().await;
    assert_pass(&sample);
    assert_eq!(sample.status, Some(200));
    let phases = sample.phases;
    assert!(phases.connect.unwrap() <= phases.first_byte.unwrap() && phases.first_byte.unwrap() <= phases.total);
    let request = requests.recv().await.unwrap();
    assert_eq!((request.version, request.method), (http::Version::HTTP_2, http::Method::HEAD));
    assert_eq!(request.uri.to_string(), format!("http://app1.test:{}/ready?full=1", address.port()));
    let fields: Vec<_> = request.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    let agent = format!("pulsegate/{} (health probe)", env!("CARGO_PKG_VERSION"));
    let expected =
        [("x-token", "a"), ("user-agent", agent.as_str()), ("accept", "*/*"), ("accept-encoding", "identity")];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn the_authority_is_the_host_that_is_written() {
    let (address, mut requests) = hyper_origin().await;
    let text = |text: &str| Some(text.to_string());
    let rows = [(None, text("api.internal"), "api.internal"), (text("127.0.0.1:8"), text("x"), "127.0.0.1:8")];
    for (host_header, host, expected) in rows {
        assert_pass(&check(HttpProbe { host_header, host, ..http2() }, address).run().await);
        assert_eq!(requests.recv().await.unwrap().uri.authority().unwrap(), expected);
    }
}

#[tokio::test]
async fn answers_are_judged_as_those_of_http_1() {
    let gzip = &[(":status", "200"), ("content-encoding", "gzip")];
    let moved = &[(":status", "302"), ("location", "/login")];
    let far = [b".".repeat(200), b"ALIVE".to_vec()].concat();
    let rows = [
        ("in one piece", vec![head(OK), end(b"ALIVE")], None),
        ("across pieces", vec![head(OK), data(b"xxAL"), end(b"IVE")], None),
        ("before trailers", vec![head(OK), data(b"ALIVE"), last(&[("x-sum", "1")])], None),
        ("after interim answers", vec![head(&[(":status", "103")]), head(OK), end(b"ALIVE")], None),
        ("a reset when all is said", vec![head(OK), end(b"ALIVE"), reset(0)], None),
        ("another body", vec![head(OK), end(b"THROTTLED")], Some((Reason::Body, "without \"ALIVE\""))),
        ("no body", vec![last(OK)], Some((Reason::Body, "after 0 bytes"))),
        ("too far off", vec![head(OK), end(&far)], Some((Reason::TooLarge, "first 100 bytes"))),
        ("encoded", vec![head(gzip), end(b"x")], Some((Reason::Body, "gzip"))),
        ("a redirect", vec![last(moved)], Some((Reason::Status, "302 to /login, expected 200-299"))),
        ("an error", vec![head(&[(":status", "500")]), end(b"ALIVE")], Some((Reason::Status, "500"))),
    ];
    for (what, answer, wrong) in rows {
        let origin = Frames::answering(vec![answer]).await;
        let sample = check(alive(), origin.address).run().await;
        match wrong {
            None => assert_eq!(sample.outcome, Outcome::Pass, "{what}: {sample:?}"),
            Some((reason, detail)) => assert_fail(&sample, reason, detail),
        }
    }
}

#[tokio::test]
async fn a_header_alone_is_an_answer_to_head() {
    let head = HttpProbe { method: ProbeMethod::Head, ..http2() };
    let origin = Frames::answering(vec![vec![last(&[(":status", "200"), ("content-length", "4")])]]).await;
    assert_pass(&check(head, origin.address).run().await);
}

#[tokio::test]
async fn what_ends_an_exchange_before_its_time_has_its_reason() {
    let settings_of_odd_length = Frame::Connection(4, 0, vec![0; 5]);
    let unpackable = Frame::Stream(1, 5, vec![0xff; 8]);
    let rows = [
        ("RST_STREAM", vec![reset(2)], Reason::Reset, "the member reset the stream: unexpected internal error"),
        ("refused", vec![reset(7)], Reason::Reset, "refused stream"),
        ("within the body", vec![head(OK), data(b"AL"), reset(2)], Reason::Reset, "the member reset the stream"),
        ("GOAWAY", vec![goaway(0, 0), Frame::Close], Reason::Reset, "the member said GOAWAY"),
        ("GOAWAY, angry", vec![goaway(0, 11), Frame::Close], Reason::Reset, "the member said GOAWAY"),
        ("closed", vec![Frame::Close], Reason::Reset, "closed"),
        (
            "closed within the body",
            vec![head(OK), data(b"AL"), Frame::Close],
            Reason::Reset,
            "closed before the answer was complete",
        ),
        ("a wrong frame", vec![settings_of_odd_length], Reason::Protocol, "wrong HTTP/2"),
        ("a wrong header", vec![unpackable], Reason::Protocol, "wrong HTTP/2"),
        ("no status", vec![last(&[("x", "y")])], Reason::Protocol, "wrong HTTP/2"),
        ("silence", vec![Frame::Hang], Reason::Timeout, "no answer within"),
        ("silence in the body", vec![head(OK), Frame::Hang], Reason::Timeout, "answer not complete within"),
    ];
    for (what, answer, reason, detail) in rows {
        let origin = Frames::answering(vec![answer]).await;
        let patience = if reason == Reason::Timeout { Duration::from_millis(300) } else { PATIENCE };
        let sample = giving_up_after(patience, alive(), origin.address).run().await;
        assert_eq!(sample.outcome, Outcome::Fail(reason), "{what}: {sample:?}");
        assert_fail(&sample, reason, detail);
    }
}

#[tokio::test]
async fn a_member_of_http_1_says_so() {
    let origin = Origin::playing(vec![Step::Write(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), Step::Hang]).await;
    let check = check(http2(), origin.address);
    let (sample, exchange) = check.record().await;
    assert_fail(&sample, Reason::Protocol, "not HTTP/2: began \"HTTP/1.1 400 Bad Request");
    assert_eq!(exchange.received, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let closing = Origin::playing(vec![Step::Read, Step::Write(ok("").into_bytes())]).await;
    let sample = giving_up_after(PATIENCE, http2(), closing.address).run().await;
    assert!(matches!(sample.outcome, Outcome::Fail(Reason::Protocol | Reason::Reset)), "{sample:?}");
}

#[tokio::test]
async fn what_passed_is_shown_in_lines() {
    let answer = vec![head(&[(":status", "503"), ("retry-after", "5")]), data(b"busy"), last(&[("x-sum", "1")])];
    let origin = Frames::answering(vec![answer]).await;
    let (sample, exchange) = check(http2(), origin.address).record().await;
    assert_fail(&sample, Reason::Status, "503");
    let text =
        |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(&origin.address.port().to_string(), "PORT");
    let sent = format!(
        "GET /healthz HTTP/2\r\n:scheme: http\r\n:authority: app1.test:PORT\r\n\
         user-agent: pulsegate/{} (health probe)\r\naccept: */*\r\naccept-encoding: identity\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text(&exchange.sent), sent);
    assert_eq!(text(exchange.answer_head()), "HTTP/2 503\r\nretry-after: 5\r\n\r\n");
    assert_eq!((text(&exchange.body), text(&exchange.trailers)), ("busy".to_string(), "x-sum: 1\r\n".to_string()));
}
