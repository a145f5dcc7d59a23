//! The accept loop, and the life of one connection.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::connection::{CONNECTION, Connection, Cut, Phase};
use super::last_call;
use super::oversight;
use super::stream::Conduit;
use super::{Listening, Lobby};
use crate::clock;
use crate::telemetry::metrics::ListenerCounts;
use crate::telemetry::{AccessLog, Outcome, Record, Why};

/// How long to leave the kernel alone when it has no descriptor or buffer for a new connection.
const OUT_OF_RESOURCES_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of an answer that may wait in the kernel, beyond what is on its way.
const UNSENT: u32 = 128 << 10;

/// Connections taken out of the kernel's queue when a listener closes, at most.
const LAST_CALL: usize = 4096;

/// Accepts on `socket` until the listener closes. Connections that were accepted live on.
pub async fn accept<A: HttpServerApp + Send + Sync + 'static>(
    lobby: Arc<Lobby<A>>,
    listening: Arc<Listening>,
    socket: TcpListener,
) {
    let mut open = listening.is_open();
    let mut starving = false;
    loop {
        let accepted = tokio::select! {
            // First, or a listener that is never without a client, or without a descriptor for one, would not close.
            biased;
            _ = open.wait_for(|open| !open) => break,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                starving = false;
                admit(&lobby, &listening, stream, client);
            }
            // The client went away while it was queued.
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
            Err(e) => {
                if !std::mem::replace(&mut starving, true) {
                    let listener = &listening.wanted().name;
                    tracing::error!(target: "server", %listener, error = %e, "cannot accept; trying on");
                }
                tokio::time::sleep(OUT_OF_RESOURCES_PAUSE).await;
            }
        }
    }
    // Whoever is queued in the kernel believes to be connected. The kernel is asked: the reactor may not have heard yet.
    let Ok(socket) = socket.into_std() else { return };
    for _ in 0..LAST_CALL {
        match socket.accept().and_then(|(stream, client)| Ok((adopted(stream)?, client))) {
            Ok((stream, client)) => admit(&lobby, &listening, stream, client),
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(_) => break,
        }
    }
}

fn adopted(stream: std::net::TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

fn admit<A: HttpServerApp + Send + Sync + 'static>(
    lobby: &Arc<Lobby<A>>,
    listening: &Arc<Listening>,
    stream: TcpStream,
    client: SocketAddr,
) {
    let visit = Visit::new(lobby.clone(), listening.clone());
    if listening.connections() > listening.limits().max_connections || lobby.traffic.connections() > (lobby.room)() {
        visit.counts.refused.fetch_add(1, Relaxed);
        let refused = listening.refused.fetch_add(1, Relaxed);
        if refused.is_power_of_two() || refused == 0 {
            let listener = &listening.wanted().name;
            tracing::warn!(target: "server", %listener, refused = refused + 1, "too many connections");
        }
        return;
    }
    visit.counts.accepted.fetch_add(1, Relaxed);
    let id = lobby.traffic.next_connection.fetch_add(1, Relaxed) + 1;
    let connection = Connection::new(id, client, listening.clone(), visit.counts.clone(), clock::monotonic());
    let connection = Arc::new(connection);
    let visit = visit.of(&connection);
    tokio::spawn(CONNECTION.scope(connection.clone(), serve(visit, connection, stream)));
}

/// Serves one connection's requests, one after the other.
async fn serve<A: HttpServerApp + Send + Sync + 'static>(
    visit: Visit<A>,
    connection: Arc<Connection>,
    stream: TcpStream,
) {
    let _unseen =
        Unseen { connection: connection.clone(), log: visit.lobby.log.clone(), ending: visit.lobby.ending.clone() };
    // Of an answer that a slow client has yet to take, little waits in the kernel: less memory, and a write that makes no
    // progress then says something of the client, not of the size of a buffer.
    let tuned = stream.set_nodelay(true).and_then(|()| SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT));
    if let Err(error) = tuned {
        tracing::debug!(target: "server", %error, "cannot tune a connection");
    }
    let last_call = visit.lobby.last_call.clone();
    let mut heard = pin!(last_call.heard());
    last_call::listen(heard.as_mut()).await;
    poll_fn(|cx| {
        connection.wait().is_of(cx.waker());
        Poll::Ready(())
    })
    .await;
    let limits = connection.listening().limits();
    let conduit = Conduit::new(stream, connection.clone(), last_call.clone());
    let mut session = ServerSession::new_http1(Box::new(conduit));
    session.set_keepalive_reuses_remaining(Some(limits.keepalive_requests.saturating_sub(1)));
    // No pipelining in Pingora's sense: the stream gives one request at a time. What Pingora has beyond one all the same, since
    // it sees a body's end elsewhere, is nobody's, and the connection ends.
    loop {
        // The stream keeps the header's deadline; Pingora's is per read.
        session.set_read_timeout(None);
        let serving = visit.lobby.app.process_new_http(session, &visit.lobby.ending);
        let Some(served) = oversight::oversee(serving, &connection).await else {
            return oversight::dismiss(&connection).await;
        };
        let Some(reused) = served else { return oversight::see_off(&connection).await };
        connection.request_ended(clock::monotonic());
        let (stream, settings) = reused.consume();
        session = ServerSession::new_http1(stream);
        if let Some(settings) = settings {
            settings.apply_to_session(&mut session);
        }
    }
}

/// Counts a connection for as long as it is here.
struct Visit<A> {
    lobby: Arc<Lobby<A>>,
    listening: Arc<Listening>,
    counts: Arc<ListenerCounts>,
    guest: Option<u64>,
}

impl<A> Visit<A> {
    fn new(lobby: Arc<Lobby<A>>, listening: Arc<Listening>) -> Visit<A> {
        lobby.traffic.connections.fetch_add(1, Relaxed);
        listening.connections.fetch_add(1, Relaxed);
        let counts = listening.counts.load_full();
        counts.open.fetch_add(1, Relaxed);
        Visit { lobby, listening, counts, guest: None }
    }

    /// Of this connection, which can be found for as long.
    fn of(mut self, connection: &Arc<Connection>) -> Visit<A> {
        self.lobby.traffic.guests.come(connection);
        self.guest = Some(connection.id());
        self
    }
}

impl<A> Drop for Visit<A> {
    fn drop(&mut self) {
        self.guest.into_iter().for_each(|id| self.lobby.traffic.guests.go(id));
        self.counts.open.fetch_sub(1, Relaxed);
        self.listening.connections.fetch_sub(1, Relaxed);
        self.lobby.traffic.connections.fetch_sub(1, Relaxed);
    }
}

/// Writes the line of a request that ended while its header was being read: no hook of Pingora's ever sees those.
struct Unseen {
    connection: Arc<Connection>,
    log: AccessLog,
    ending: watch::Receiver<bool>,
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let answered = self.connection.phase() == Phase::Idle && self.connection.own_status() != 0;
        if self.connection.phase() == Phase::Header || answered {
            let listening = self.connection.listening();
            let listener = listening.wanted();
            let record = unseen(&self.connection, &listener.name, *self.ending.borrow());
            listening.counts().unrouted.count(record.status);
            self.log.write(&record);
        }
    }
}

fn unseen<'a>(connection: &Connection, listener: &'a str, ending: bool) -> Record<'a> {
    let status = connection.own_status();
    let (outcome, why) = match (connection.cut(), status) {
        (Cut::HeaderTimeout, _) => (Outcome::Timeout, Why::HeaderTimeout),
        (Cut::HeaderTooLarge, _) => (Outcome::Refused, Why::HeaderTooLarge),
        (_, 400..) => (Outcome::Refused, Why::BadRequest),
        _ if std::thread::panicking() => (Outcome::Refused, Why::Internal),
        _ if ending => (Outcome::Refused, Why::Shutdown),
        _ => (Outcome::ClientAborted, Why::ClientAborted),
    };
    // A client that left before it was answered: nginx made 499 customary for it.
    let status = if outcome == Outcome::ClientAborted { 499 } else { status };
    Record {
        time: clock::wall_at(connection.began()),
        client: Some(connection.client().ip()),
        listener,
        scheme: Some("http"),
        connection: connection.id(),
        status: (status != 0).then_some(status),
        response_bytes: connection.own_bytes(),
        duration: connection.over().saturating_sub(connection.began()),
        outcome,
        reason: Some(why),
        ..Record::default()
    }
}
