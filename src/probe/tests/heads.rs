//! What the answer's header decides.

use super::origin::{Origin, Step, ok};
use super::*;

async fn sample(http: HttpProbe, answer: &str) -> Sample {
    let origin = Origin::answering(&[answer]).await;
    check(http, origin.address).run().await
}

fn expecting(status: &[(u16, u16)]) -> HttpProbe {
    HttpProbe { expect: Expect { status: status.to_vec(), headers: Vec::new(), body: None }, ..http_probe() }
}

fn head() -> HttpProbe {
    HttpProbe { method: ProbeMethod::Head, ..http_probe() }
}

#[tokio::test]
async fn every_status_outside_the_expected_ones_fails() {
    let ok: &[(u16, u16)] = &[(200, 299)];
    let rows = [
        (ok, 200, None),
        (ok, 299, None),
        (ok, 204, None),
        (ok, 300, Some("300, expected 200-299")),
        (ok, 426, Some("426, expected 200-299")),
        (ok, 503, Some("503, expected 200-299")),
        (&[(200, 200)], 204, Some("204, expected 200")),
        (&[(200, 399)], 302, None),
        (&[(200, 299), (403, 403)], 403, None),
        (&[(200, 299), (403, 403)], 404, Some("404, expected 200-299,403")),
    ];
    for (expected, code, detail) in rows {
        let answer = format!("HTTP/1.1 {code} x\r\nContent-Length: 0\r\n\r\n");
        let sample = sample(expecting(expected), &answer).await;
        assert_eq!(sample.status, Some(code));
        match detail {
            None => assert_pass(&sample),
            Some(detail) => assert_fail(&sample, Reason::Status, detail),
        }
    }
}

#[tokio::test]
async fn redirects_are_not_followed_and_their_target_is_told() {
    let rows = [
        (301, "https://app1.test/healthz", "301 to https://app1.test/healthz, expected 200-299"),
        (302, "/login", "302 to /login, expected 200-299"),
        (302, "http://other.test/", "302 to http://other.test/, expected 200-299"),
        (307, "/healthz", "307 to /healthz, expected 200-299"),
        (308, "relative?x", "308 to relative?x, expected 200-299"),
    ];
    for (code, location, detail) in rows {
        let answer = format!("HTTP/1.1 {code} x\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        let mut origin = Origin::answering(&[answer]).await;
        let sample = check(http_probe(), origin.address).run().await;
        assert_eq!(sample.outcome, Outcome::Fail(Reason::Status));
        assert_eq!(sample.detail, detail);
        origin.request().await;
    }
}

#[tokio::test]
async fn a_redirect_that_is_expected_passes() {
    let answer = "HTTP/1.1 301 x\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n";
    assert_pass(&sample(expecting(&[(200, 399)]), answer).await);
}

#[tokio::test]
async fn a_location_that_redirects_nobody_is_not_told() {
    let answer = "HTTP/1.1 503 x\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(sample(http_probe(), answer).await.detail, "503, expected 200-299");
}

#[tokio::test]
async fn a_location_of_any_length_or_bytes_fits_the_detail() {
    let answer = format!("HTTP/1.1 302 x\r\nLocation: /{}\u{e9}\r\nContent-Length: 0\r\n\r\n", "a".repeat(5000));
    let sample = sample(http_probe(), &answer).await;
    assert_fail(&sample, Reason::Status, "302 to /aaa");
    assert!(sample.detail.len() < 300);
}

#[tokio::test]
async fn head_passes_whatever_the_answer_says_of_a_body() {
    for fields in ["Content-Length: 4\r\n", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n", ""] {
        for staying in [false, true] {
            let answer = [format!("HTTP/1.1 200 OK\r\n{fields}\r\n")];
            let origin = match staying {
                true => Origin::answering_and_staying(&answer).await,
                false => Origin::answering(&answer).await,
            };
            let sample = check(head(), origin.address).run().await;
            assert_eq!(sample.outcome, Outcome::Pass, "{fields:?}, staying: {staying}: {sample:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_head_comes_with_a_hint() {
    for code in [405, 501] {
        let answer = format!("HTTP/1.1 {code} x\r\nContent-Length: 0\r\n\r\n");
        let refused = sample(head(), &answer).await;
        assert_fail(&refused, Reason::Status, &format!("{code}, expected 200-299 (HEAD not supported? use GET)"));
        let refused = sample(http_probe(), &answer).await;
        assert_eq!(refused.detail, format!("{code}, expected 200-299"), "a GET needs no hint");
    }
}

#[tokio::test]
async fn interim_answers_are_skipped() {
    for interim in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"] {
        let apart = Origin::answering(&[interim.to_string(), interim.to_string(), ok("fine")]).await;
        let together = Origin::answering(&[format!("{interim}{interim}{}", ok("fine"))]).await;
        for origin in [apart, together] {
            let sample = check(http_probe(), origin.address).run().await;
            assert_pass(&sample);
            assert_eq!(sample.status, Some(200));
            assert!(sample.phases.first_byte.is_some());
        }
    }
}

#[tokio::test]
async fn interim_answers_without_end_are_a_timeout() {
    let origin = Origin::playing(vec![Step::Read, Step::Flood(b"HTTP/1.1 102 Processing\r\n\r\n".to_vec())]).await;
    let sample = impatient(http_probe(), origin.address).run().await;
    assert_fail(&sample, Reason::Timeout, "no answer within 300ms");
}

#[tokio::test]
async fn an_answer_of_http_1_0_is_an_answer() {
    assert_pass(&sample(http_probe(), "HTTP/1.0 200 OK\r\n\r\nfine").await);
}

#[tokio::test]
async fn switching_protocols_unasked_is_a_wrong_status() {
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    assert_fail(&sample(http_probe(), answer).await, Reason::Status, "101, expected 200-299");
}

#[tokio::test]
async fn a_header_without_end_is_not_read_without_end() {
    for (start, more) in [("HTTP/1.1 200 OK\r\n", "X-Filler: a\r\n"), ("HTTP/1.1 200 OK\r\nX-Filler: ", "aaaaaaaaaa")] {
        let (start, more) = (start.as_bytes().to_vec(), more.repeat(100).into_bytes());
        let origin = Origin::playing(vec![Step::Read, Step::Write(start), Step::Flood(more)]).await;
        let sample = check(http_probe(), origin.address).run().await;
        assert_fail(&sample, Reason::Protocol, "header over 64 KiB or 100 fields");
    }
}

#[tokio::test]
async fn a_large_header_passes_and_a_huge_one_is_not_read_to_its_end() {
    let answer = |size: usize| format!("HTTP/1.1 200 OK\r\nX-Filler: {}\r\n\r\n", "a".repeat(size));
    assert_pass(&sample(http_probe(), &answer(48 << 10)).await);
    for size in [80 << 10, 8 << 20] {
        assert_fail(&sample(http_probe(), &answer(size)).await, Reason::Protocol, "header over 64 KiB or 100 fields");
    }
}

#[tokio::test]
async fn what_is_not_http_is_a_protocol_failure_and_quoted() {
    let rows = [
        ("SSH-2.0-OpenSSH_9.6\r\n", "began \"SSH-2.0-OpenSSH_9.6"),
        ("\x15\x03\x01\x00\x02", "began \"\\x15\\x03\\x01"),
        ("<html>hello</html>", "began \"<html>"),
        ("HTTP/1.1 2xx OK\r\n\r\n", "began \"HTTP/1.1 2xx"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nfine", "not HTTP/1"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nfine", "not HTTP/1"),
        ("HTTP/1.1 200 OK\r\nno colon here\r\n\r\n", "not HTTP/1"),
    ];
    for (answer, detail) in rows {
        assert_fail(&sample(http_probe(), answer).await, Reason::Protocol, detail);
    }
}

#[tokio::test]
async fn one_who_speaks_first_is_quoted_too() {
    let origin = Origin::playing(vec![Step::Write(b"220 mail.test ESMTP\r\n".to_vec()), Step::Hang]).await;
    assert_fail(&check(http_probe(), origin.address).run().await, Reason::Protocol, "began \"220 mail.test");
}

#[tokio::test]
async fn an_answer_given_before_the_question_counts() {
    let answer = b"HTTP/1.1 503 Overloaded\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec();
    let origin = Origin::playing(vec![Step::Write(answer)]).await;
    for _ in 0..20 {
        assert_fail(&check(http_probe(), origin.address).run().await, Reason::Status, "503, expected 200-299");
    }
}
