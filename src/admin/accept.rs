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
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections at once; one more waits in the kernel's queue.
const CONNECTIONS: usize = 128;

/// For the header of a request; until the next one comes, too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may go on before it ends with the request it has.
const LIFETIME: Duration = Duration::from_secs(60);

/// How long that request may take then: nobody reads an answer for ever.
const LAST_REQUEST: Duration = Duration::from_secs(5);

/// How long what was sent may go unread, where the kernel has no room for more; a stream has no other end than this one.
const UNREAD: Duration = Duration::from_secs(30);

/// What one connection holds of answers that nobody has read yet, and of a request's header, in bytes.
const BUFFER: usize = 64 * 1024;

/// How long to leave the kernel alone when it has no descriptor for a new connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Held by an answer that goes on for as long as its client listens: its connection stays meanwhile. Each request brings the
/// one of its connection.
#[derive(Debug, Clone, Default)]
pub struct Stay(Arc<()>);

/// Accepts and answers as long as the process lives.
pub async fn accept(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut starving = false;
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                starving = false;
                let router = router.clone();
                tokio::spawn(async move {
                    serve(stream, router).await;
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

/// Whatever ends a connection is its client's business.
async fn serve(stream: TcpStream, router: Router) {
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
    let (stay, router) = (Stay::default(), TowerToHyperService::new(router));
    let stays = Arc::downgrade(&stay.0);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(stay.clone());
        router.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    while timeout(LIFETIME, connection.as_mut()).await.is_err() {
        // The service itself holds one.
        if stays.strong_count() <= 1 {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(LAST_REQUEST, connection).await;
            return;
        }
    }
}
