//! What a probe sends.

use super::origin::{Origin, ok};
use super::*;
use crate::probe::{CheckError, Kept};

/// The request's line and fields as the origin sees them.
async fn sent(http: HttpProbe, host: &str) -> Vec<String> {
    let mut origin = Origin::answering(&[ok("")]).await;
    let check = Check::single(&probe(ProbeKind::Http(http)), host, origin.address).unwrap();
    assert_pass(&check.run().await);
    let port = origin.address.port().to_string();
    origin.request().await.trim_end().split("\r\n").map(|line| line.replace(&port, "PORT")).collect()
}

#[tokio::test]
async fn the_request_names_the_member_and_the_prober_and_closes() {
    let version = env!("CARGO_PKG_VERSION");
    let expected = [
        "GET /healthz HTTP/1.1".to_string(),
        "Host: app1.test:PORT".to_string(),
        format!("User-Agent: pulsegate/{version} (health probe)"),
        "Accept: */*".to_string(),
        "Accept-Encoding: identity".to_string(),
        "Connection: close".to_string(),
    ];
    assert_eq!(sent(http_probe(), "app1.test").await, expected);
}

#[tokio::test]
async fn fields_of_the_operator_replace_ours_and_join_them() {
    let fields = [("user-agent", "mine/1"), ("accept", "text/plain"), ("X-Token", "a"), ("x-token", "b")];
    let headers = fields.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
    let lines = sent(HttpProbe { headers, method: ProbeMethod::Head, ..http_probe() }, "app1.test").await;
    assert_eq!(lines[0], "HEAD /healthz HTTP/1.1");
    for field in ["User-Agent: mine/1", "Accept: text/plain", "X-Token: a", "X-Token: b", "Connection: close"] {
        assert_eq!(lines.iter().filter(|line| *line == field).count(), 1, "{field}: {lines:?}");
    }
    assert_eq!(lines.iter().filter(|line| line.starts_with("User-Agent")).count(), 1);
}

#[tokio::test]
async fn a_query_is_part_of_the_path() {
    let lines = sent(HttpProbe { path: "/ready?deep=1&x=%20".to_string(), ..http_probe() }, "app1.test").await;
    assert_eq!(lines[0], "GET /ready?deep=1&x=%20 HTTP/1.1");
}

#[tokio::test]
async fn host_field() {
    let text = |text: &str| Some(text.to_string());
    // host_header, host, the member's name, and what is sent.
    let rows = [
        (None, None, "app1.test", "Host: app1.test:PORT"),
        (None, None, "127.0.0.1", "Host: 127.0.0.1:PORT"),
        (None, None, "::1", "Host: [::1]:PORT"),
        (None, text("api.internal"), "app1.test", "Host: api.internal"),
        (None, text("api.internal:8443"), "app1.test", "Host: api.internal:8443"),
        (text("127.0.0.1"), None, "app1.test", "Host: 127.0.0.1"),
        (text("127.0.0.1"), text("api.internal"), "app1.test", "Host: 127.0.0.1"),
    ];
    for (host_header, host, member, expected) in rows {
        let lines = sent(HttpProbe { host_header, host, ..http_probe() }, member).await;
        assert_eq!(lines[1], expected);
    }
}

#[test]
fn a_probe_that_cannot_be_sent_is_refused_when_it_is_built() {
    let header = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
    let rows = [
        (HttpProbe { path: "/with space".to_string(), ..http_probe() }, "path \"/with space\""),
        (HttpProbe { path: "/a#b".to_string(), ..http_probe() }, "path \"/a#b\""),
        (HttpProbe { headers: header("x token", "a"), ..http_probe() }, "header \"x token\""),
        (HttpProbe { headers: header("x-token", "a\r\nb: c"), ..http_probe() }, "not a field value"),
        (HttpProbe { headers: header("Content-Length", "5"), ..http_probe() }, "needs its own"),
        (HttpProbe { headers: header("Transfer-Encoding", "chunked"), ..http_probe() }, "needs its own"),
        (HttpProbe { headers: header("Host", "a"), ..http_probe() }, "use `host`"),
        (HttpProbe { host: Some("a\nb".to_string()), ..http_probe() }, "host \"a\\nb\""),
    ];
    for (http, expected) in rows {
        let address = "127.0.0.1:80".parse().unwrap();
        let error: CheckError = Check::single(&probe(ProbeKind::Http(http)), "app1.test", address).unwrap_err();
        assert!(error.to_string().contains(expected), "{error} is not about {expected}");
    }
}

#[tokio::test]
async fn a_record_shows_what_was_sent_and_what_came() {
    let origin =
        Origin::answering(&["HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nbad\r\n0\r\n\r\n"]).await;
    let (sample, exchange) = check(http_probe(), origin.address).record().await;
    assert_fail(&sample, Reason::Status, "503, expected 200-299");
    assert_eq!(exchange.peer, origin.address);
    assert!(exchange.sent.starts_with(b"GET /healthz HTTP/1.1\r\nHost: "));
    assert!(exchange.sent.ends_with(b"\r\n\r\n"));
    assert!(exchange.received.starts_with(b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n"));
    assert_eq!(exchange.body, b"bad");
    assert_eq!(exchange.tls, None);
}

#[tokio::test]
async fn the_header_of_an_answer_is_shown_with_those_before_it() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n";
    let rows = [
        (format!("{interim}{last}ab\r\n\r\ncd"), format!("{interim}{last}")),
        (format!("{last}ab\r\n\r\ncd"), last.to_string()),
        ("SSH-2.0-OpenSSH_9.6\r\n".to_string(), String::new()),
    ];
    for (answer, head) in rows {
        let origin = Origin::answering(&[answer]).await;
        let (_, exchange) = check(http_probe(), origin.address).record().await;
        assert_eq!(String::from_utf8_lossy(exchange.answer_head()), head);
    }
}

#[tokio::test]
async fn what_is_taped_for_later_is_little_and_shows_no_secret() {
    let large = "x".repeat(20_000);
    let answer = format!("HTTP/1.1 503 No\r\nX-Seen: Bearer-123\r\nContent-Length: 20009\r\n\r\n{large}");
    let origin = Origin::answering(&[answer]).await;
    let headers = vec![("Authorization".to_string(), "Bearer-123".to_string())];
    let check = check(HttpProbe { headers, ..http_probe() }, origin.address);
    let (sample, tracks) = check.run_taped(&mut Kept::default()).await;
    assert_fail(&sample, Reason::Status, "503");
    let exchange = tracks.exchange();
    let head = String::from_utf8_lossy(exchange.answer_head()).into_owned();
    assert_eq!(head, "HTTP/1.1 503 No\r\nX-Seen: ********\r\nContent-Length: 20009\r\n\r\n");
    assert!(String::from_utf8_lossy(&exchange.sent).contains("Authorization: ********\r\n"), "{exchange:?}");
    assert_eq!((exchange.body.len(), exchange.received.len() <= 8 * 1024), (4 * 1024, true));
}
