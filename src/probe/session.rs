//! A connection to a member on which HTTP is spoken, and what is kept of it between two probes (`reuse: true`).
//!
//! During a probe its connection is driven by the probe's own task, which costs nobody a wake-up and tells what it died
//! of. Between probes it is driven by a task of its own: a member's PING is answered, and a member's close is seen when it
//! comes and not when the next request has been sent into it.
//!
//! Not here: whether an answer leaves the connection fit for another (`check`).

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::fault::Trouble;
use super::shelf::{Shelf, Spot};
use super::tape::{Tape, Taped};
use super::way::Version;

/// A header larger than this is not read to its end.
const MAX_HEADER: u32 = 64 * 1024;
/// What a member may send over HTTP/2 ahead of our reading it.
const WINDOW: u32 = 1 << 20;
/// How long a connection of HTTP/2 may take to say goodbye.
const PARTING: Duration = Duration::from_secs(1);
/// A kept connection that is not ready by then is not used: it owes something still.
const SETTLING: Duration = Duration::from_millis(20);

/// A connection on which HTTP is spoken.
pub(super) struct Session {
    pub(super) sender: Sender,
    pub(super) driver: Driver,
    pub(super) tape: Tape,
    /// Dropped, it ends the tasks of HTTP/2; closed, they have ended.
    crew: Option<watch::Sender<()>>,
}

/// Where requests go in.
pub(super) enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// What moves the bytes.
pub(super) enum Driver {
    /// The connection itself, to be polled along.
    Here(Connection),
    /// A task.
    Away(AbortHandle),
    /// It has ended.
    Over,
}

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

impl Session {
    /// Speaks `version` on `stream`.
    pub(super) async fn open<S>(stream: S, version: Version, tape: &Tape) -> hyper::Result<Session>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(Taped::new(stream, tape.clone()));
        let (sender, driver, crew): (_, Connection, _) = match version {
            Version::Http1 => {
                let (sender, connection) = http1::Builder::new()
                    .title_case_headers(true)
                    // The first bounds a header that does not end, the second one that does.
                    .max_buf_size(MAX_HEADER as usize)
                    .max_header_size(MAX_HEADER as usize)
                    .handshake(io)
                    .await?;
                (Sender::Http1(sender), Box::pin(connection), None)
            }
            Version::Http2 => {
                let (alive, over) = watch::channel(());
                let (sender, connection) = http2::Builder::new(Crew { over })
                    .initial_stream_window_size(WINDOW)
                    .initial_connection_window_size(WINDOW)
                    .max_header_list_size(MAX_HEADER)
                    .handshake(io)
                    .await?;
                (Sender::Http2(sender), Box::pin(connection), Some(alive))
            }
        };
        Ok(Session { sender, driver: Driver::Here(driver), tape: tape.clone(), crew })
    }

    /// Ends it in good order, for as long as that takes a moment only; dropping it ends it at once.
    pub(super) fn part(mut self) {
        // HTTP/1.1 has no word for it.
        let Some(crew) = self.crew.take() else { return };
        let driver = mem::replace(&mut self.driver, Driver::Over);
        tokio::spawn(tokio::time::timeout(PARTING, async move {
            drop(self);
            if let Driver::Here(connection) = driver {
                let _ = connection.await;
            }
            crew.closed().await;
        }));
    }
}

impl Sender {
    pub(super) async fn send(&mut self, message: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Sender::Http1(sender) => sender.send_request(message).await,
            Sender::Http2(sender) => sender.send_request(message).await,
        }
    }

    async fn ready(&mut self) -> bool {
        let ready = async {
            match self {
                Sender::Http1(sender) => sender.ready().await.is_ok(),
                Sender::Http2(sender) => sender.ready().await.is_ok(),
            }
        };
        tokio::time::timeout(SETTLING, ready).await.unwrap_or(false)
    }
}

impl Driver {
    /// Runs `talk` to its end, and moves its bytes meanwhile.
    pub(super) async fn along<T>(&mut self, talk: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let Driver::Here(connection) = self else { return talk.await };
        tokio::pin!(talk);
        let ended = tokio::select! {
            biased;
            result = &mut talk => return result,
            // It is over when all it had to give is handed on, what it died of included.
            ended = connection => ended,
        };
        *self = Driver::Over;
        match (talk.await, ended) {
            // The one who asked was only told that there would be no answer.
            (Err(Trouble::Http(told)), Err(cause)) if told.is_canceled() || told.is_closed() => Err(cause.into()),
            (result, _) => result,
        }
    }

    fn go_away(&mut self) {
        *self = match mem::replace(self, Driver::Over) {
            Driver::Here(connection) => Driver::Away(tokio::spawn(connection).abort_handle()),
            other => other,
        };
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Driver::Away(task) = &self.driver {
            task.abort();
        }
    }
}

/// What a probe leaves for the next one of the same member: its connection, where the pool's probes keep theirs. Dropped,
/// the connection is closed.
#[derive(Default)]
pub struct Kept {
    session: Option<Session>,
    /// Where it has room; it stays while the connection is in use.
    spot: Option<Spot>,
    /// Where there may be none; `None`: there always is.
    shelf: Option<Arc<Shelf>>,
}

impl Kept {
    /// What has room on `shelf`, or is not kept.
    pub(super) fn on(shelf: Arc<Shelf>) -> Kept {
        Kept { shelf: Some(shelf), ..Kept::default() }
    }

    /// Ends it.
    pub(super) fn clear(&mut self) {
        self.session = None;
        self.settle();
    }

    /// The connection, where it still stands.
    pub(super) async fn take(&mut self) -> Option<Session> {
        let mut session = self.session.take()?;
        session.sender.ready().await.then_some(session)
    }

    /// Keeps it for the next probe, or ends it where there is no room for one more.
    pub(super) fn keep(&mut self, mut session: Session) {
        if let (None, Some(shelf)) = (&self.spot, &self.shelf) {
            self.spot = shelf.spot();
            if self.spot.is_none() {
                return session.part();
            }
        }
        session.driver.go_away();
        self.session = Some(session);
    }

    /// The probe is over: where it left no connection, another member's may have the room.
    pub(super) fn settle(&mut self) {
        if self.session.is_none() {
            self.spot = None;
        }
    }
}

/// Runs what HTTP/2 has beside its connection, for no longer than the session lives.
#[derive(Clone)]
struct Crew {
    over: watch::Receiver<()>,
}

impl<F> Executor<F> for Crew
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut over = self.over.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = future => {}
                _ = over.changed() => {}
            }
        });
    }
}
