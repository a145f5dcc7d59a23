//! Connections that are kept from one probe to the next, and those that are not.

use super::frames::{Frame, Frames, end, goaway, head, reset};
use super::origin::{Origin, Step, ok};
use super::*;
use crate::probe::Kept;

fn keeping(http: HttpProbe, address: SocketAddr) -> Check {
    Check::single(&Probe { reuse: true, ..probe(ProbeKind::Http(http)) }, "app1.test", address).unwrap()
}

/// Whether the probe dialled.
#[track_caller]
fn dialled(sample: &Sample) -> bool {
    sample.phases.connect.is_some()
}

fn twice(answer: &str) -> Vec<Step> {
    let answer = || Step::Write(answer.as_bytes().to_vec());
    vec![Step::Read, answer(), Step::Read, answer(), Step::Hang]
}

#[tokio::test]
async fn a_connection_is_kept_and_its_phases_are_those_of_the_request() {
    let mut origin = Origin::playing(twice(&ok("fine"))).await;
    let check = keeping(http_probe(), origin.address);
    let mut kept = Kept::default();
    let first = check.run_again(&mut kept).await;
    let second = check.run_again(&mut kept).await;
    assert_pass(&first);
    assert_pass(&second);
    assert!(dialled(&first) && !dialled(&second));
    assert!(second.phases.tls.is_none() && second.phases.first_byte.unwrap() <= second.phases.total);
    for _ in 0..2 {
        assert!(!origin.request().await.contains("Connection"), "HTTP/1.1 keeps connections unless told otherwise");
    }
}

#[tokio::test]
async fn answers_after_which_a_connection_is_of_no_use() {
    let rows = [
        ("the member says so", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        ("of HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("more than was promised", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nfine and more"),
        ("a body that nobody reads", "HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy"),
        ("wrong framing", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        ("no answer", "nonsense\r\n\r\n"),
    ];
    for (what, answer) in rows {
        let origin = Origin::playing(twice(answer)).await;
        let check = keeping(http_probe(), origin.address);
        let mut kept = Kept::default();
        check.run_again(&mut kept).await;
        assert!(dialled(&check.run_again(&mut kept).await), "{what}");
    }
}

#[tokio::test]
async fn a_wrong_answer_that_is_complete_costs_no_connection() {
    let origin = Origin::playing(twice("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")).await;
    let check = keeping(http_probe(), origin.address);
    let mut kept = Kept::default();
    assert_fail(&check.run_again(&mut kept).await, Reason::Status, "503");
    let second = check.run_again(&mut kept).await;
    assert_fail(&second, Reason::Status, "503");
    assert!(!dialled(&second));
}

#[tokio::test]
async fn a_timeout_costs_the_connection() {
    let script = vec![Step::Read, Step::Write(ok("").into_bytes()), Step::Hang];
    let origin = Origin::playing(script).await;
    let timeout = Duration::from_millis(300);
    let probe = Probe { reuse: true, timeout, ..probe(ProbeKind::Http(http_probe())) };
    let check = Check::single(&probe, "app1.test", origin.address).unwrap();
    let mut kept = Kept::default();
    assert_pass(&check.run_again(&mut kept).await);
    let silent = check.run_again(&mut kept).await;
    assert_fail(&silent, Reason::Timeout, "no answer within");
    assert!(!dialled(&silent));
    let next = check.run_again(&mut kept).await;
    assert_pass(&next);
    assert!(dialled(&next));
}

#[tokio::test]
async fn a_close_that_crosses_the_request_is_tried_once_more_and_not_counted() {
    // The second request of a connection is read, and the connection closed, or reset, without a word.
    for end in [vec![], vec![Step::Reset]] {
        let script = [vec![Step::Read, Step::Write(ok("").into_bytes()), Step::Read], end].concat();
        let mut origin = Origin::playing(script).await;
        let check = keeping(http_probe(), origin.address);
        let mut kept = Kept::default();
        assert_pass(&check.run_again(&mut kept).await);
        let second = check.run_again(&mut kept).await;
        assert_pass(&second);
        assert!(dialled(&second));
        for _ in 0..3 {
            origin.request().await;
        }
    }
}

#[tokio::test]
async fn a_new_connection_that_closes_is_a_fail_and_not_tried_again() {
    let mut origin = Origin::playing(vec![Step::Read]).await;
    let check = keeping(http_probe(), origin.address);
    assert_fail(&check.run_again(&mut Kept::default()).await, Reason::Reset, "closed without an answer");
    origin.request().await;
    assert_fail(&check.run_again(&mut Kept::default()).await, Reason::Reset, "closed without an answer");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_counted_on_a_kept_connection_too() {
    let half = Step::Write(b"HTTP/1.1 200 OK\r\nContent-".to_vec());
    let origin = Origin::playing(vec![Step::Read, Step::Write(ok("").into_bytes()), Step::Read, half]).await;
    let check = keeping(http_probe(), origin.address);
    let mut kept = Kept::default();
    assert_pass(&check.run_again(&mut kept).await);
    assert_fail(&check.run_again(&mut kept).await, Reason::Reset, "closed within the answer's header");
}

#[tokio::test]
async fn http_2_keeps_its_connection_until_the_member_says_goodbye() {
    let http2 = || HttpProbe { http2: true, ..http_probe() };
    let fine = || vec![head(&[(":status", "200")]), end(b"fine")];
    let goodbye = [fine(), vec![goaway(1, 0)]].concat();
    // What the second request meets, and whether it is answered on the first connection.
    let rows = [
        ("nothing special", vec![fine()], 1, Outcome::Pass),
        ("GOAWAY after the first answer", vec![goodbye], 2, Outcome::Pass),
        ("GOAWAY that crosses the request", vec![fine(), vec![goaway(1, 0), Frame::Close]], 2, Outcome::Pass),
        ("a close that crosses it", vec![fine(), vec![Frame::Close]], 2, Outcome::Pass),
        ("a stream refused", vec![fine(), vec![reset(7)]], 2, Outcome::Pass),
        ("an error of the member's", vec![fine(), vec![reset(2)]], 1, Outcome::Fail(Reason::Reset)),
        (
            "a body that breaks off",
            vec![fine(), vec![head(&[(":status", "200")]), Frame::Close]],
            1,
            Outcome::Fail(Reason::Reset),
        ),
    ];
    for (what, answers, connections, outcome) in rows {
        let origin = Frames::answering(answers).await;
        let check = keeping(http2(), origin.address);
        let mut kept = Kept::default();
        assert_pass(&check.run_again(&mut kept).await);
        let second = check.run_again(&mut kept).await;
        assert_eq!(second.outcome, outcome, "{what}: {second:?}");
        assert_eq!(origin.accepted(), connections, "{what}");
    }
}

#[tokio::test]
async fn http_2_without_reuse_says_goodbye() {
    let origin = Frames::answering(vec![vec![head(&[(":status", "200")]), end(b"fine")]]).await;
    let check = check(HttpProbe { http2: true, ..http_probe() }, origin.address);
    let mut kept = Kept::default();
    for connections in 1..=3 {
        assert_pass(&check.run_again(&mut kept).await);
        assert_eq!(origin.accepted(), connections);
    }
}
