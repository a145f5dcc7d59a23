//! Connections of the admin listener, few and none for long but those that are listened to: a client that is slow, or many,
//! cannot take the descriptors that traffic needs.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::seats::{Seat, Seats};
use super::tied::tied;
use crate::clock;

/// Connections at once; for one more another one goes that asks for nothing.
const CONNECTIONS: usize = 128;

/// For the header of a request; until the next one comes, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

const SPAN: Span = Span { lifetime: Duration::from_secs(60), last_request: Duration::from_secs(5) };

/// How long what was sent may go unread, where the kernel has no room for more; a stream has no other end than this one.
const UNREAD: Duration = Duration::from_secs(30);

/// What one connection holds of answers that nobody has read yet, and of a request's header, in bytes. The kernel holds twice
/// as much again, where it would hold megabytes.
const BUFFER: usize = 64 * 1024;

/// How often one that wants a place looks for another to go.
const LOOK: Duration = Duration::from_millis(50);

/// How long to leave the kernel alone when it has no descriptor for a new connection.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a connection lasts that nothing stays on.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// Before it ends with the request it has.
    lifetime: Duration,
    /// How long that request may take then: nobody reads an answer for ever.
    last_request: Duration,
}

/// Held by an answer that goes on for as long as its client listens: its connection stays meanwhile. Each request brings the
/// one of its connection.
#[derive(Debug, Clone, Default)]
pub struct Stay(Arc<()>);

/// Accepts and answers as long as the process lives.
pub async fn accept(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let seats = Arc::new(Seats::default());
    let mut starving = false;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                starving = false;
                let place = place(&places, &seats).await;
                let (router, seated) = (router.clone(), seats.take(clock::monotonic()));
                tokio::spawn(async move {
                    tokio::select! {
                        () = serve(stream, router, seated.seat.clone(), SPAN) => {}
                        () = seated.seat.wanted() => {}
                    }
                    drop(place);
                });
            }
            // The client went away while it was queued.
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
            Err(error) => {
                if !std::mem::replace(&mut starving, true) {
                    tracing::error!(target: "server", listener = "admin", %error, "cannot accept; trying on");
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// A place for who has connected already; others go for it, one after the other.
async fn place(places: &Arc<Semaphore>, seats: &Seats) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = places.clone().try_acquire_owned() {
        return Some(place);
    }
    loop {
        seats.free_one();
        if let Ok(place) = timeout(LOOK, places.clone().acquire_owned()).await {
            // The semaphore is never closed.
            return place.ok();
        }
    }
}

/// Whatever ends a connection is its client's business.
async fn serve(stream: TcpStream, router: Router, seat: Arc<Seat>, span: Span) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(&stream);
    let _ = socket.set_tcp_user_timeout(Some(UNREAD));
    let _ = socket.set_send_buffer_size(BUFFER);
    let (stay, router) = (Stay::default(), TowerToHyperService::new(router));
    let stays = Arc::downgrade(&stay.0);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(stay.clone());
        let (busy, answer) = (seat.asked(clock::monotonic), router.call(request));
        async move { answer.await.map(|answer| tied(answer, busy)) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    while timeout(span.lifetime, connection.as_mut()).await.is_err() {
        // The service itself holds one.
        if stays.strong_count() <= 1 {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(span.last_request, connection).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::Extension;
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures_util::{StreamExt, stream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const TICK: Duration = Duration::from_millis(20);
    const TICKS: usize = 20;

    /// Ticks that go on for four lives of a connection; they keep what they are given.
    fn ticks(kept: Option<Stay>) -> Body {
        let ticks = stream::unfold((0, kept), |(count, kept)| async move {
            sleep(TICK).await;
            (count < TICKS).then_some((Ok::<_, Infallible>(Bytes::from_static(b"tick")), (count + 1, kept)))
        });
        Body::from_stream(ticks.boxed())
    }

    async fn received(path: &str) -> usize {
        let router = Router::new()
            .route("/stays", get(|Extension(stay): Extension<Stay>| async { ticks(Some(stay)) }))
            .route("/goes", get(|| async { ticks(None) }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let span = Span { lifetime: TICK * 4, last_request: TICK };
        let serving = async {
            let (stream, _) = listener.accept().await.expect("a client");
            let seated = Arc::new(Seats::default()).take(Duration::ZERO);
            serve(stream, router, seated.seat.clone(), span).await;
        };
        let reading = async {
            let mut client = TcpStream::connect(address).await.expect("the listener");
            client.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.expect("sent");
            let mut answer = Vec::new();
            // One that is cut may end with a reset.
            let _ = client.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).matches("tick").count()
        };
        tokio::join!(serving, reading).1
    }

    #[test]
    fn a_connection_lasts_as_long_as_something_stays_on_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        assert_eq!(runtime.block_on(received("/stays")), TICKS);
        assert!(runtime.block_on(received("/goes")) < TICKS);
    }
}
