//! An origin that can be well, slow, failing or dead, and changes between them on a word.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How much longer a slow origin takes.
const SLOW: Duration = Duration::from_millis(250);

/// How an origin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// 200 at once.
    Well,
    /// 200, late.
    Slow,
    /// 503.
    Failing,
    /// Nobody listens.
    Dead,
}

/// One origin on a port of its own.
#[derive(Debug)]
pub struct Origin {
    /// Where it listens, when it lives.
    pub address: SocketAddr,
    mood: watch::Sender<Mood>,
}

impl Origin {
    /// Starts a healthy origin on `address`.
    ///
    /// # Errors
    /// The port is in use.
    pub fn start(address: SocketAddr) -> io::Result<Origin> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        let (mood, moods) = watch::channel(Mood::Well);
        tokio::spawn(live(address, listener, moods));
        Ok(Origin { address, mood })
    }

    /// Changes how it is.
    pub fn turn(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }
}

async fn live(address: SocketAddr, first: TcpListener, mut moods: watch::Receiver<Mood>) {
    let mut listener = Some(first);
    loop {
        match listener.take().map_or_else(|| listen(address), Ok) {
            Ok(listener) => serve(&listener, &mut moods).await,
            Err(error) => tracing::warn!(target: "demo", %address, %error, "an origin cannot come back"),
        }
        // Dead: the listener and all its connections are gone.
        if moods.wait_for(|mood| *mood != Mood::Dead).await.is_err() {
            return;
        }
    }
}

async fn serve(listener: &TcpListener, moods: &mut watch::Receiver<Mood>) {
    let mut connections = JoinSet::new();
    let at_work = moods.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(converse(stream, at_work.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
            dead = moods.wait_for(|mood| *mood == Mood::Dead) => {
                drop(dead);
                return;
            }
        }
    }
}

async fn converse(stream: TcpStream, moods: watch::Receiver<Mood>) {
    let name: Arc<str> = stream.local_addr().map(|a| a.port().to_string()).unwrap_or_default().into();
    let answer = service_fn(move |request: Request<Incoming>| {
        let (mood, name) = (*moods.borrow(), name.clone());
        async move { Ok::<_, Infallible>(respond(&request, mood, &name).await) }
    });
    // A client that leaves is no news.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

async fn respond(request: &Request<Incoming>, mood: Mood, name: &str) -> Response<Full<Bytes>> {
    if mood == Mood::Slow {
        tokio::time::sleep(SLOW).await;
    }
    let (status, words) = match mood {
        Mood::Failing => (StatusCode::SERVICE_UNAVAILABLE, "is not well"),
        _ => (StatusCode::OK, "is well"),
    };
    let body = format!("origin {name} {words}; you asked for {}\n", request.uri().path());
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    if let Ok(name) = name.parse() {
        response.headers_mut().insert("x-origin", name);
    }
    response
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(128)
}
