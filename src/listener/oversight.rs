//! Looks after a request whose client nobody reads from.
//!
//! While a member takes no more of an upload, or is being dialled, Pingora waits for the member alone. The client's
//! [`stream`](super::stream), which keeps the request's deadline and sees the client leave, is not polled then. So both are
//! seen to from outside of Pingora's future: it is dropped, and who is owed an answer gets it here.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::alarm::Alarm;
use super::connection::{Connection, Cut, Phase};
use crate::clock;

/// How long after its deadline a request is left to the stream, which ends it in order where it is polled.
const GRACE: Duration = Duration::from_millis(100);

/// A client that was not read from for so long is watched.
const UNREAD: Duration = Duration::from_secs(1);

/// How long a client that has its answer, or is let go, may go on sending.
const LINGER: Duration = Duration::from_secs(1);

/// What `serving` comes to; `None` where it was given up, for its deadline or since the client has left.
pub async fn oversee<F: Future>(serving: F, connection: &Connection) -> Option<F::Output> {
    let mut serving = pin!(serving);
    let mut sight = Sight::default();
    poll_fn(|cx| match serving.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => sight.poll(cx, connection).map(|()| None),
    })
    .await
}

/// Gives the client of a request that was given up the answer that was left for it, and a moment to see that it need not go
/// on (RFC 9112 section 9.6).
pub async fn dismiss(connection: &Connection) {
    if let (Some(answer), Some(handle)) = (connection.last_word(), connection.let_go()) {
        // An error means that the client has gone.
        let _ = timeout(LINGER, last_words(handle, answer)).await;
    }
}

/// Says to a client that was let go while it asked for nothing that this is the end. Its next request may be under way: that is
/// not answered, but a reset would tell the client less than an end in order.
pub async fn see_off(connection: &Connection) {
    if matches!(connection.phase(), Phase::Fresh | Phase::Idle)
        && let Some(handle) = connection.let_go()
    {
        let _ = timeout(LINGER, last_words(handle, "")).await;
    }
}

async fn last_words(handle: Arc<OwnedFd>, answer: &str) -> io::Result<()> {
    let mut stream = twin(&handle)?;
    drop(handle);
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut scrap = [0; 4096];
    while stream.read(&mut scrap).await? > 0 {}
    Ok(())
}

#[derive(Default)]
struct Sight {
    overtime: Alarm,
    look: Alarm,
    /// When to look next whether the client is read from.
    look_at: Option<Duration>,
    watched: Option<TcpStream>,
    /// The client of a request that waits for a dial.
    dial: Option<TcpStream>,
}

impl Sight {
    /// Ready once the request is to be given up: it is cut short then.
    fn poll(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Poll<()> {
        if self.poll_dial(cx, connection).is_ready() {
            connection.cut_short(Cut::Left);
            return Poll::Ready(());
        }
        let is_upload = connection.phase() == Phase::Request && !connection.request_is_whole();
        if !is_upload || connection.tunnel().terms().is_some() {
            (self.look_at, self.watched) = (None, None);
            return Poll::Pending;
        }
        if let Some(deadline) = connection.deadline()
            && self.overtime.poll(cx, deadline + GRACE).is_ready()
        {
            connection.expire();
            return Poll::Ready(());
        }
        self.poll_look(cx, connection);
        if poll_left(self.watched.as_ref(), cx).is_ready() {
            connection.cut_short(Cut::Left);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Ready when the client leaves whose request waits for a dial. The driver of plain requests sees to that itself, and keeps
    /// no handle.
    fn poll_dial(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Poll<()> {
        if !connection.is_dialling() {
            self.dial = None;
            return Poll::Pending;
        }
        if self.dial.is_none() {
            self.dial = connection.handle_for_dial().and_then(|handle| watched(handle).ok());
        }
        poll_left(self.dial.as_ref(), cx)
    }

    /// Watches a client that nobody reads from, and no other.
    fn poll_look(&mut self, cx: &mut Context<'_>, connection: &Connection) {
        loop {
            let at = *self.look_at.get_or_insert_with(|| clock::monotonic() + UNREAD);
            if self.look.poll(cx, at).is_pending() {
                return;
            }
            self.look_at = None;
            if connection.was_read_from() {
                self.watched = None;
            } else if self.watched.is_none() {
                self.watched = connection.handle().and_then(|handle| twin(&handle).ok());
            }
        }
    }
}

/// Ready when the client sends no more; its unread bytes do not matter.
fn poll_left(client: Option<&TcpStream>, cx: &mut Context<'_>) -> Poll<()> {
    let Some(client) = client else { return Poll::Pending };
    loop {
        if ready!(client.poll_read_ready(cx)).is_err() {
            return Poll::Ready(());
        }
        match ready!(pin!(client.ready(Interest::READABLE)).poll(cx)) {
            Ok(ready) if !ready.is_read_closed() => {
                // Bytes that nobody reads: what comes next is news again, to this descriptor alone.
                let _ = client.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
            }
            _ => return Poll::Ready(()),
        }
    }
}

/// The socket of `handle`, by that descriptor unless somebody else has it too: while members do not answer dials, many requests
/// may have one.
fn watched(handle: Arc<OwnedFd>) -> io::Result<TcpStream> {
    match Arc::try_unwrap(handle) {
        Ok(only) => TcpStream::from_std(net::TcpStream::from(only)),
        Err(shared) => twin(&shared),
    }
}

/// The socket of `handle` by another descriptor.
fn twin(handle: &OwnedFd) -> io::Result<TcpStream> {
    TcpStream::from_std(net::TcpStream::from(handle.try_clone()?))
}
