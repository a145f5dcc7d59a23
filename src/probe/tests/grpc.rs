//! gRPC's health protocol: what is asked, and what is taken for an answer.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::frames::{Frame, Frames, data, end, goaway, head, last, reset};
use super::*;
use crate::config::GrpcProbe;

fn grpc(service: &str) -> GrpcProbe {
    GrpcProbe { tls: None, service: service.to_string(), host: None, host_header: None, headers: Vec::new() }
}

fn asking(probe: GrpcProbe, address: SocketAddr) -> Check {
    Check::single(&super::probe(ProbeKind::Grpc(probe)), "app1.test", address).unwrap()
}

const HEAD: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/grpc")];
const FINE: &[(&str, &str)] = &[("grpc-status", "0")];

/// A message with its prefix.
fn message(bytes: &[u8]) -> Vec<u8> {
    [&[0][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// An answer of this status, by the numbers of the protocol.
fn says(status: u8) -> Vec<Frame> {
    vec![head(HEAD), data(&message(&[8, status])), last(FINE)]
}

/// No message, and this status in the header.
fn refuses(fields: &[(&str, &str)]) -> Vec<Frame> {
    vec![last(&[HEAD, fields].concat())]
}

#[tokio::test]
async fn the_request_is_that_of_the_protocol() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let service = service_fn(move |request: http::Request<Incoming>| {
                let sender = sender.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let _ = sender.send((head, body.collect().await.unwrap().to_bytes()));
                    Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
                }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    let headers = vec![("x-tenant".to_string(), "blue".to_string())];
    let check = asking(GrpcProbe { headers, host: Some("api.internal".to_string()), ..grpc("shop.Cart") }, address);
    assert_fail(&check.run().await, Reason::Protocol, "not gRPC: no content-type");
    let (head, body) = requests.recv().await.unwrap();
    assert_eq!((head.method, head.version), (http::Method::POST, http::Version::HTTP_2));
    assert_eq!(head.uri.to_string(), "http://api.internal/grpc.health.v1.Health/Check");
    let field = |name: &str| head.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap();
    assert_eq!((field("te"), field("content-type"), field("x-tenant")), ("trailers", "application/grpc", "blue"));
    assert!(field("user-agent").starts_with("pulsegate/"));
    let timeout: u128 = field("grpc-timeout").strip_suffix('m').unwrap().parse().unwrap();
    assert!(timeout > 0 && timeout <= PATIENCE.as_millis(), "{timeout}");
    assert_eq!(body, message(b"\x0a\x09shop.Cart"));
}

#[tokio::test]
async fn serving_alone_passes() {
    let rows = [
        ("", says(1), None),
        ("shop.Cart", says(1), None),
        ("shop.Cart", says(2), Some("service \"shop.Cart\" is NOT_SERVING")),
        ("", says(2), Some("the server is NOT_SERVING")),
        ("shop.Cart", says(0), Some("service \"shop.Cart\" is UNKNOWN")),
        ("", vec![head(HEAD), data(&message(&[])), last(FINE)], Some("the server is UNKNOWN")),
        ("shop.Cart", says(3), Some("service \"shop.Cart\" is SERVICE_UNKNOWN")),
    ];
    for (service, answer, wrong) in rows {
        let origin = Frames::answering(vec![answer]).await;
        let sample = asking(grpc(service), origin.address).run().await;
        match wrong {
            None => assert_pass(&sample),
            Some(detail) => assert_fail(&sample, Reason::Status, detail),
        }
        assert_eq!(sample.status, Some(200));
        assert!(sample.phases.first_byte.unwrap() <= sample.phases.total);
    }
}

#[tokio::test]
async fn a_status_of_grpc_is_told_with_its_word_and_message() {
    let rows = [
        (
            refuses(&[("grpc-status", "12"), ("grpc-message", "no%20such method")]),
            Reason::Status,
            "grpc-status 12 UNIMPLEMENTED: no such method (no health service, grpc.health.v1, there?)",
        ),
        (
            refuses(&[("grpc-status", "5")]),
            Reason::Status,
            "grpc-status 5 NOT_FOUND (service \"x\" is not known to its health service)",
        ),
        (refuses(&[("grpc-status", "14"), ("grpc-message", "50%")]), Reason::Status, "grpc-status 14 UNAVAILABLE: 50%"),
        (refuses(&[("grpc-status", "4")]), Reason::Timeout, "grpc-status 4 DEADLINE_EXCEEDED"),
        (refuses(&[("grpc-status", "99")]), Reason::Protocol, "grpc-status \"99\" is none"),
        (refuses(&[]), Reason::Protocol, "ended without a grpc-status"),
        (vec![head(HEAD), last(&[("grpc-status", "13")])], Reason::Status, "grpc-status 13 INTERNAL"),
        (
            vec![head(HEAD), data(&message(&[8, 1])), last(&[("grpc-status", "16")])],
            Reason::Status,
            "grpc-status 16 UNAUTHENTICATED",
        ),
    ];
    for (answer, reason, detail) in rows {
        let origin = Frames::answering(vec![answer]).await;
        let sample = asking(grpc("x"), origin.address).run().await;
        assert_fail(&sample, reason, detail);
        assert_eq!(sample.detail, *sample.detail.trim_end());
    }
}

#[tokio::test]
async fn what_is_not_grpc_is_told_as_what_it_is() {
    let html = &[(":status", "200"), ("content-type", "text/html")];
    let proxy = &[(":status", "503"), ("content-type", "text/html")];
    let proto = &[(":status", "200"), ("content-type", "application/grpc+proto")];
    let wrong = |bytes: &[u8]| vec![head(HEAD), data(bytes), last(FINE)];
    let two = [message(&[8, 1]), message(&[8, 1])].concat();
    let mut packed = message(&[8, 1]);
    packed[0] = 1;
    let rows = [
        (vec![head(html), end(b"<html>")], Reason::Protocol, "not gRPC: content-type \"text/html\""),
        (vec![last(OK)], Reason::Protocol, "not gRPC: no content-type"),
        (vec![head(proxy), end(b"<html>")], Reason::Status, "HTTP status 503, expected 200 of gRPC"),
        (vec![head(HEAD), last(FINE)], Reason::Protocol, "no message"),
        (vec![head(HEAD), end(&message(&[8, 1]))], Reason::Protocol, "ended without a grpc-status"),
        (wrong(&[0, 0, 0]), Reason::Protocol, "a message breaks off"),
        (wrong(&[0, 0, 0, 0, 9, 8, 1]), Reason::Protocol, "a message breaks off"),
        (wrong(&two), Reason::Protocol, "more than one message"),
        (wrong(&packed), Reason::Protocol, "a compressed message"),
        (wrong(&message(&[0xff, 0xff])), Reason::Protocol, "not of the health protocol"),
        (wrong(&message(&[8, 77])), Reason::Protocol, "status 77 is none"),
        (
            vec![
                head(HEAD),
                data(&[0; 16_000]),
                data(&[0; 16_000]),
                data(&[0; 16_000]),
                data(&[0; 16_000]),
                data(&[0; 16_000]),
                last(FINE),
            ],
            Reason::TooLarge,
            "over 65536 bytes",
        ),
        (vec![reset(2)], Reason::Reset, "the member reset the stream"),
        (vec![head(HEAD), reset(8)], Reason::Reset, "the member reset the stream"),
        (vec![goaway(0, 0), Frame::Close], Reason::Reset, "GOAWAY"),
        (vec![Frame::Close], Reason::Reset, "closed"),
        (vec![Frame::Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())], Reason::Protocol, "wrong HTTP/2"),
    ];
    for (answer, reason, detail) in rows {
        let origin = Frames::answering(vec![answer]).await;
        assert_fail(&asking(grpc("x"), origin.address).run().await, reason, detail);
    }
    let origin = Frames::answering(vec![vec![head(proto), data(&message(&[8, 1])), last(FINE)]]).await;
    assert_pass(&asking(grpc("x"), origin.address).run().await);
}

const OK: &[(&str, &str)] = &[(":status", "200")];

#[tokio::test]
async fn what_passed_is_shown_in_words() {
    let origin = Frames::answering(vec![says(2)]).await;
    let (sample, exchange) = asking(grpc("shop.Cart"), origin.address).record().await;
    assert_fail(&sample, Reason::Status, "NOT_SERVING");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let sent = text(&exchange.sent);
    assert!(
        sent.starts_with("POST /grpc.health.v1.Health/Check HTTP/2\r\n:scheme: http\r\n:authority: app1.test:"),
        "{sent}"
    );
    assert!(sent.ends_with("\r\n\r\nservice: \"shop.Cart\"\r\n"), "{sent}");
    assert_eq!(text(exchange.answer_head()), "HTTP/2 200\r\ncontent-type: application/grpc\r\n\r\n");
    assert_eq!(text(&exchange.body), "status: NOT_SERVING\n");
    assert_eq!(text(&exchange.trailers), "grpc-status: 0\r\n");
}
