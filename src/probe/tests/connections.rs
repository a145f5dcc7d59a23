//! What the connection decides, before there is an answer.

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::origin::{Origin, Step, ok};
use super::*;

fn tcp(address: SocketAddr) -> Check {
    Check::single(&probe(ProbeKind::Tcp), "app1.test", address).unwrap()
}

/// An address nobody listens on. It is bound, so that nobody else can come to listen there meanwhile.
fn nobody() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[tokio::test]
async fn a_connection_is_all_a_tcp_probe_asks_for() {
    let origin = Origin::playing(vec![Step::Hang]).await;
    let sample = tcp(origin.address).run().await;
    assert_pass(&sample);
    assert!(sample.phases.connect.is_some() && sample.phases.first_byte.is_none() && sample.status.is_none());
    assert!(sample.phases.total >= sample.phases.connect.unwrap());
}

#[tokio::test]
async fn a_port_without_a_listener_refuses() {
    let (_kept, address) = nobody();
    for check in [tcp(address), check(http_probe(), address)] {
        let sample = check.run().await;
        assert_eq!(sample.outcome, Outcome::Fail(Reason::Refused), "{sample:?}");
        assert_eq!(sample.phases.connect, None);
    }
}

#[tokio::test]
async fn a_dial_that_does_not_end_is_a_connect_timeout() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    // One waits to be accepted and is not; there is no room for another.
    let _waiting = TcpStream::connect(address).await.unwrap();
    let sample = impatient(http_probe(), address).run().await;
    assert_fail(&sample, Reason::ConnectTimeout, "no connection within 300ms");
    assert_eq!(sample.phases.connect, None);
    assert!(sample.phases.total >= Duration::from_millis(300));
}

#[tokio::test]
async fn silence_after_the_connection_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sample = impatient(http_probe(), listener.local_addr().unwrap()).run().await;
    assert_fail(&sample, Reason::Timeout, "no answer within 300ms");
    assert!(sample.phases.connect.is_some());
}

#[tokio::test]
async fn half_a_header_is_a_timeout() {
    let origin = Origin::answering_and_staying(&["HTTP/1.1 200 OK\r\nContent-"]).await;
    assert_fail(&impatient(http_probe(), origin.address).run().await, Reason::Timeout, "no answer within 300ms");
}

#[tokio::test]
async fn a_close_or_reset_before_the_answer_is_a_reset() {
    let half = b"HTTP/1.1 200 OK\r\nContent-".to_vec();
    let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nALIVE".to_vec();
    let rows = [
        (vec![], "closed without an answer"),
        (vec![Step::Read], "closed without an answer"),
        (vec![Step::Read, Step::Reset], "closed before an answer"),
        (vec![Step::Read, Step::Write(half.clone())], "closed within the answer's header"),
        (vec![Step::Read, Step::Write(half), Step::Reset], "closed"),
        (vec![Step::Read, Step::Write(sized), Step::Reset], "closed before the answer was complete"),
    ];
    for (script, detail) in rows {
        let origin = Origin::playing(script).await;
        assert_fail(&check(http_probe(), origin.address).run().await, Reason::Reset, detail);
    }
}

#[tokio::test]
async fn every_probe_has_a_connection_of_its_own() {
    let mut origin = Origin::answering_and_staying(&[ok("")]).await;
    let check = check(http_probe(), origin.address);
    for _ in 0..3 {
        assert_pass(&check.run().await);
        // The script reads one request a connection: the next could not be answered on the same.
        origin.request().await;
    }
}
