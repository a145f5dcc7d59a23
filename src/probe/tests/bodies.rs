//! What the answer's body decides.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::origin::{Origin, Step, ok};
use super::*;

const LIMIT: usize = 4096;

fn alive() -> HttpProbe {
    HttpProbe {
        expect: Expect { status: vec![(200, 299)], headers: Vec::new(), body: Some("ALIVE".to_string()) },
        max_body: LIMIT,
        ..http_probe()
    }
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The same body in every framing HTTP/1 has, whole and in two pieces that part the text.
fn framings(body: &str) -> Vec<(&'static str, Vec<String>)> {
    let (one, two) = body.split_at(body.find("ALIVE").map_or(body.len() / 2, |at| at + 2));
    let chunk =
        |piece: &str| if piece.is_empty() { String::new() } else { format!("{:x}\r\n{piece}\r\n", piece.len()) };
    let sized = ok(body);
    let (sized_one, sized_two) = sized.split_at(sized.len() - two.len());
    vec![
        ("sized", vec![sized.clone()]),
        ("sized, two segments", vec![sized_one.to_string(), sized_two.to_string()]),
        ("chunked", vec![format!("{CHUNKED}{}{}0\r\n\r\n", chunk(one), chunk(two))]),
        ("chunked, two segments", vec![format!("{CHUNKED}{}", chunk(one)), format!("{}0\r\n\r\n", chunk(two))]),
        (
            "chunked with extensions and trailers",
            vec![format!("{CHUNKED}{}0;last\r\nX-Sum: 1\r\n\r\n", chunk(body).replacen("\r\n", ";a=\"b c\"\r\n", 1))],
        ),
        ("to the close", vec![format!("HTTP/1.1 200 OK\r\n\r\n{one}"), two.to_string()]),
        ("HTTP/1.0", vec![format!("HTTP/1.0 200 OK\r\n\r\n{body}")]),
    ]
}

#[tokio::test]
async fn the_place_of_the_text_decides_whatever_the_framing() {
    let rows = [
        (0, 5, Ok(())),
        (LIMIT - 6, LIMIT, Ok(())),
        (LIMIT - 5, LIMIT, Ok(())),
        (LIMIT - 5, LIMIT + 100, Ok(())),
        (LIMIT - 4, LIMIT + 1, Err(())),
        (LIMIT, LIMIT + 5, Err(())),
        (5_000_000, 5_000_005, Err(())),
        (0, 5_000_000, Ok(())),
    ];
    for (at, length, expected) in rows {
        let body = format!("{}ALIVE{}", "a".repeat(at), "z".repeat(length - at - 5));
        for (framing, pieces) in framings(&body) {
            let origin = Origin::answering(&pieces).await;
            let sample = check(alive(), origin.address).run().await;
            match expected {
                Ok(()) => assert_eq!(sample.outcome, Outcome::Pass, "at {at} of {length}, {framing}: {sample:?}"),
                Err(()) => assert_fail(&sample, Reason::TooLarge, "\"ALIVE\" not within the first 4096 bytes"),
            }
        }
    }
}

#[tokio::test]
async fn a_body_without_the_text_fails_at_its_end() {
    for (framing, pieces) in framings("THROTTLED") {
        // Those that tell their end need no close to be at it.
        let origin = match framing {
            "to the close" | "HTTP/1.0" => Origin::answering(&pieces).await,
            _ => Origin::answering_and_staying(&pieces).await,
        };
        let sample = check(alive(), origin.address).run().await;
        assert_fail(&sample, Reason::Body, "body ended after 9 bytes without \"ALIVE\"");
        assert_eq!(sample.status, Some(200));
    }
}

#[tokio::test]
async fn an_empty_body_is_without_the_text() {
    for (_, pieces) in framings("") {
        let origin = Origin::answering(&pieces).await;
        assert_fail(&check(alive(), origin.address).run().await, Reason::Body, "after 0 bytes");
    }
}

#[tokio::test]
async fn a_body_that_never_ends_is_a_timeout() {
    let never = [
        ("sized", "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nTHROTTLED".to_string()),
        ("chunked", format!("{CHUNKED}9\r\nTHROTTLED\r\n")),
        ("to the close", "HTTP/1.1 200 OK\r\n\r\nTHROTTLED".to_string()),
        ("with the text", "HTTP/1.1 200 OK\r\n\r\nALIVE".to_string()),
    ];
    for (framing, answer) in never {
        let origin = Origin::answering_and_staying(&[answer]).await;
        let sample = impatient(alive(), origin.address).run().await;
        assert_fail(&sample, Reason::Timeout, "answer not complete within 300ms");
        assert_eq!(sample.status, Some(200), "{framing}");
    }
}

#[tokio::test]
async fn a_flood_without_the_text_is_not_read_for_ever() {
    let script = vec![Step::Read, Step::Write(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()), Step::Flood(vec![b'a'; 1000])];
    let origin = Origin::playing(script).await;
    assert_fail(&check(alive(), origin.address).run().await, Reason::TooLarge, "not within the first 4096 bytes");
}

#[tokio::test]
async fn a_flood_nobody_searches_ends_with_the_timeout() {
    let script = vec![Step::Read, Step::Write(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()), Step::Flood(vec![b'a'; 1000])];
    let origin = Origin::playing(script).await;
    assert_fail(&impatient(http_probe(), origin.address).run().await, Reason::Timeout, "answer not complete");
}

#[tokio::test]
async fn an_encoded_body_is_not_searched() {
    let rows = [
        ("Content-Encoding: gzip", Err("encoded (gzip)")),
        ("Content-Encoding: identity, BR", Err("encoded (br)")),
        ("Content-Encoding: identity", Ok(())),
        ("Content-Encoding: ", Ok(())),
    ];
    for (field, expected) in rows {
        let answer = format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 5\r\n\r\nALIVE");
        let origin = Origin::answering(&[answer]).await;
        let sample = check(alive(), origin.address).run().await;
        match expected {
            Ok(()) => assert_pass(&sample),
            Err(detail) => assert_fail(&sample, Reason::Body, detail),
        }
        assert_pass(&check(http_probe(), origin.address).run().await);
    }
}

#[tokio::test]
async fn a_wrong_status_is_told_before_a_wrong_body() {
    let origin = Origin::answering(&["HTTP/1.1 500 x\r\nContent-Length: 9\r\n\r\nTHROTTLED"]).await;
    assert_fail(&check(alive(), origin.address).run().await, Reason::Status, "500, expected 200-299");
}

#[tokio::test]
async fn an_answer_cut_short_is_no_answer() {
    let cut = [
        "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nALIVE".to_string(),
        format!("{CHUNKED}5\r\nALIVE\r\n"),
        format!("{CHUNKED}9\r\nALIVE"),
    ];
    for answer in cut {
        for http in [alive(), http_probe()] {
            let origin = Origin::answering(&[&answer]).await;
            let sample = check(http, origin.address).run().await;
            assert_fail(&sample, Reason::Reset, "closed before the answer was complete");
        }
    }
}

#[tokio::test]
async fn broken_chunks_are_a_protocol_failure() {
    for chunks in ["zz\r\nALIVE\r\n0\r\n\r\n", "5\r\nALIVEALIVE\r\n0\r\n\r\n", "fffffffffffffffff\r\nALIVE"] {
        let origin = Origin::answering(&[format!("{CHUNKED}{chunks}")]).await;
        let sample = check(http_probe(), origin.address).run().await;
        assert_eq!(sample.outcome, Outcome::Fail(Reason::Protocol), "{chunks:?}: {sample:?}");
    }
}

/// An origin that answers in two parts, the second 50 ms after the first.
async fn in_two_parts(first: &'static str, second: &'static str) -> Sample {
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let check = check(alive(), listener.local_addr().unwrap());
    let origin = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(first.as_bytes()).await.unwrap();
        released.await.unwrap();
        stream.write_all(second.as_bytes()).await.unwrap();
        stream
    });
    let (sample, ()) = tokio::join!(check.run(), async {
        tokio::time::sleep(GAP).await;
        release.send(()).unwrap();
    });
    origin.await.unwrap();
    assert_pass(&sample);
    sample
}

const GAP: Duration = Duration::from_millis(50);

#[tokio::test]
async fn the_total_ends_with_the_last_byte_of_the_body() {
    let phases = in_two_parts("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nALI", "VE").await.phases;
    assert!(phases.connect <= phases.first_byte && phases.first_byte.unwrap() < phases.total, "{phases:?}");
    assert!(phases.total >= GAP, "{phases:?}");
}

#[tokio::test]
async fn the_first_byte_is_that_of_the_final_answer() {
    let phases =
        in_two_parts("HTTP/1.1 102 Processing\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nALIVE").await;
    assert!(phases.phases.first_byte.unwrap() >= GAP, "{phases:?}");
    let phases = in_two_parts("HTTP/1.1 200 OK\r\nContent-", "Length: 5\r\n\r\nALIVE").await;
    assert!(phases.phases.total >= GAP && phases.phases.first_byte.unwrap() < phases.phases.total, "{phases:?}");
}

#[tokio::test]
async fn a_record_waits_for_the_body_of_a_wrong_answer_and_the_sample_does_not() {
    let origin = Origin::answering_and_staying(&["HTTP/1.1 503 x\r\nContent-Length: 20\r\n\r\nTHROTTLED"]).await;
    let (sample, exchange) = impatient(alive(), origin.address).record().await;
    assert_fail(&sample, Reason::Status, "503, expected 200-299");
    assert!(sample.phases.total < Duration::from_millis(300), "{sample:?}");
    assert_eq!(exchange.body, b"THROTTLED");
}
