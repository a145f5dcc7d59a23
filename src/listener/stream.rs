//! The stream between a client and Pingora's HTTP/1 parser.
//!
//! It buffers small writes, so that an answer's header and body leave in one packet; it ends a connection whose
//! deadline is over or whose header outgrew its limit, with the answer that belongs to it; and it tells the
//! [`Connection`] what passes. Pingora's own stream buffer cannot be set from outside, and its timeouts are per read.
//!
//! Not here: what it does while it is a tunnel's end (`tunnelled`).

mod tunnelled;

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use pingora::protocols::http::ServerSession;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::alarm::Alarm;
use super::chunk_end::{ChunkEnd, Found};
use super::connection::{Connection, Cut, Phase};
use super::header_end::HeaderEnd;
use super::last_call::LastCall;
use super::request_line::RequestLine;
use super::tunnel::Switch;
use super::tunnel_limits::TunnelLimits;
use super::whole_target::WholeTarget;
use crate::clock;

/// An answer's header and a small body fit; what is larger goes out as it comes.
const WRITE_BUFFER: usize = 4096;

/// What a line cannot go on with in Pingora's reading of a chunked body: a carriage return, and another.
const NO_FEED: u8 = b'\r';

/// How long a client whose request was answered early may go on sending before it is cut.
const LINGER: Duration = Duration::from_secs(1);

/// A client's byte stream with deadlines, limits and a write buffer.
pub struct Conduit {
    io: TcpStream,
    connection: Arc<Connection>,
    last_call: Arc<LastCall>,
    out: Vec<u8>,
    /// How much of `out` is written already.
    sent: usize,
    read_alarm: Alarm,
    write_alarm: Alarm,
    /// Came with a header or a body, and belongs behind it.
    ahead: Vec<u8>,
    header_end: HeaderEnd,
    chunk_end: ChunkEnd,
    request_line: RequestLine,
    /// What is left of a write that was done in part.
    rest: usize,
    whole_target: WholeTarget,
    /// Was seen already, and is to be read before all else.
    due: Vec<u8>,
    /// Since when a write has been waiting for the client.
    stalled_since: Option<Duration>,
    /// Until when a client's further bytes are read and thrown away.
    linger_until: Option<Duration>,
    /// Between a member's switch and the tunnel, in what is written.
    switch: Switch,
    tunnel_limits: TunnelLimits,
    digest: Arc<SocketDigest>,
}

/// Where bytes that come begin in what they are read into, and when they came.
#[derive(Clone, Copy)]
struct Came {
    behind: usize,
    at: Duration,
}

/// The client of `session` can be watched from outside while a member is dialled for it: keeps a handle of its socket, if
/// there is none. Without one its leaving is seen when the dial is over.
pub fn keep_for_dial(session: &ServerSession, connection: &Connection) {
    if connection.handle().is_none()
        && let Some(stream) = session.stream()
        && let Some(conduit) = (**stream).as_any().downcast_ref::<Conduit>()
        && let Ok(handle) = conduit.io.as_fd().try_clone_to_owned()
    {
        connection.keep(handle);
    }
}

impl Conduit {
    /// The stream of `connection` over `io`.
    pub fn new(io: TcpStream, connection: Arc<Connection>, last_call: Arc<LastCall>) -> Conduit {
        let digest = SocketDigest::from_raw_fd(io.as_raw_fd());
        // Known already: no system call when somebody asks.
        let _ = digest.peer_addr.set(Some(connection.client().into()));
        Conduit {
            io,
            connection,
            last_call,
            out: Vec::new(),
            sent: 0,
            rest: 0,
            read_alarm: Alarm::default(),
            write_alarm: Alarm::default(),
            ahead: Vec::new(),
            header_end: HeaderEnd::default(),
            chunk_end: ChunkEnd::default(),
            request_line: RequestLine::default(),
            whole_target: WholeTarget::default(),
            due: Vec::new(),
            stalled_since: None,
            linger_until: None,
            switch: Switch::default(),
            tunnel_limits: TunnelLimits::default(),
            digest: Arc::new(digest),
        }
    }

    /// Writes what is buffered; waits for a slow client no longer than its limit.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            match Pin::new(&mut self.io).poll_write(cx, &self.out[self.sent..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    self.sent += n;
                    self.stalled_since = None;
                }
                Poll::Ready(Err(_)) if self.tunnel_is_deserted() => break,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return self.poll_stalled(cx),
            }
        }
        self.out.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// So much of a write is done. Pingora counts whole ones alone; of one that is never whole the log is to know the part.
    fn wrote(&mut self, whole: usize, written: usize) {
        if written == whole && self.rest == 0 {
            return;
        }
        let before = if whole == self.rest { self.connection.part_written() } else { 0 };
        self.rest = whole - written;
        self.connection.set_part_written(if self.rest == 0 { 0 } else { before + written as u64 });
    }

    fn poll_stalled<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.tunnel_limits.poll(cx, &self.connection).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the tunnel's time is over")));
        }
        let since = *self.stalled_since.get_or_insert_with(clock::monotonic);
        let patience = since + self.connection.listening().limits().write_timeout;
        let deadline = self.connection.deadline().filter(|_| self.connection.phase() == Phase::Request);
        ready!(self.write_alarm.poll(cx, deadline.map_or(patience, |deadline| deadline.min(patience))));
        match deadline {
            Some(deadline) if deadline <= patience => self.connection.expire(),
            _ => self.connection.cut_short(Cut::WriteTimeout),
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no answer")))
    }

    /// Takes what came. Where all of it is held back, the stream is read again: to read nothing is its end.
    fn poll_received(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, came: Came) -> Poll<io::Result<()>> {
        let before = came.behind;
        let is_end = buf.filled().len() == before;
        self.received(buf, came);
        self.put_due(buf);
        if !is_end && buf.filled().len() == before {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn put_due(&mut self, buf: &mut ReadBuf<'_>) {
        let fit = self.due.len().min(buf.remaining());
        buf.put_slice(&self.due[..fit]);
        self.due.drain(..fit);
    }

    /// Tells of what came, and gives a header or a body alone: what comes with it stays here
    /// until it is asked for. Pingora would keep it to itself, and neither deadline nor log would know of it.
    fn received(&mut self, buf: &mut ReadBuf<'_>, Came { behind: before, at: now }: Came) {
        let came = &buf.filled()[before..];
        if came.is_empty() {
            return;
        }
        let (mut given, mut no_size) = (came.len(), None);
        let end = if self.connection.phase() == Phase::Request {
            let (own, from) = self.own_share(came);
            no_size = from;
            if self.connection.uploaded(own)
                && let Ok(handle) = self.io.as_fd().try_clone_to_owned()
            {
                self.connection.keep(handle);
            }
            own
        } else {
            let target = self.request_line.whole_target_in(came);
            let found = self.header_end.find(came);
            let end = found.unwrap_or(came.len());
            self.connection.received(&came[..end], now);
            if !self.request_line.may_be(&came[..end]) {
                self.connection.cut_short(Cut::Malformed);
                // The next read is refused. To fail over nothing at all is to Pingora no request, and to need no answer.
                buf.set_filled(before + 1);
                return;
            }
            if let Some(begins) = if self.whole_target.is_held() { Some(0) } else { target } {
                self.whole_target.hold(&came[begins..end]);
                given = begins;
            }
            if found.is_some() {
                self.request_line = RequestLine::default();
                self.chunk_end = ChunkEnd::default();
                self.due = self.whole_target.take();
            }
            end
        };
        if end < came.len() {
            let behind = came[end..].to_vec();
            self.ahead.splice(..0, behind);
        }
        if let Some(from) = no_size {
            buf.filled_mut()[before + from..].fill(NO_FEED);
        }
        buf.set_filled(before + given.min(end));
    }

    /// Of what came while a request is served, how many bytes are its own; and from which on they are no chunked body,
    /// though Pingora would take them for one.
    fn own_share(&mut self, came: &[u8]) -> (usize, Option<usize>) {
        if !self.connection.awaits_chunks() {
            return (self.connection.own_share(came.len()), None);
        }
        match self.chunk_end.find(came) {
            Found::NoEnd => (came.len(), None),
            Found::NoSize(from) => (came.len(), Some(from)),
            Found::End(end) => {
                self.connection.expect_body(0);
                (end, None)
            }
        }
    }

    /// While a whole request is served the stream is only watched. What a client sends then is its next request, which
    /// stays in the kernel: Pingora would take one byte of it and never look at the stream again, and with it would go
    /// the deadline and the news that the client has left.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.wait().is_called_away() {
            return Poll::Ready(Err(self.leave_member()));
        }
        let mut byte = [0];
        match self.io.poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Ok(0)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            // A dial has its own limit, and tells what it comes to.
            Poll::Ready(Ok(_)) | Poll::Pending if self.connection.is_dialling() => Poll::Pending,
            Poll::Ready(Ok(_)) | Poll::Pending => self.poll_limits(cx),
        }
    }

    /// Where a member is waited for that was known not to answer, that may end before the request's time does.
    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let deadline = self.connection.deadline();
        let until = self.connection.wait().until();
        let Some(until) = until.filter(|until| deadline.is_none_or(|deadline| *until < deadline)) else {
            return self.poll_deadline(cx);
        };
        ready!(self.read_alarm.poll(cx, until));
        Poll::Ready(Err(self.leave_member()))
    }

    fn leave_member(&self) -> io::Error {
        self.connection.cut_short(Cut::CalledAway);
        io::Error::new(io::ErrorKind::TimedOut, "called away")
    }

    /// Nothing to read: the moment to send what is buffered. Pingora flushes an answer of known length only when it is
    /// complete, and a member may pause in the middle of one.
    fn send_meanwhile(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.poll_drain(cx) {
            Poll::Ready(Err(e)) => Err(e),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// After the last call a client that asks for nothing is let go: to Pingora that is one that has left.
    fn is_let_go(&self) -> bool {
        let asks_for_nothing = matches!(self.connection.phase(), Phase::Fresh | Phase::Idle);
        if !asks_for_nothing || !self.last_call.is_given() || self.has_more() {
            return false;
        }
        if let Ok(handle) = self.io.as_fd().try_clone_to_owned() {
            self.connection.keep(handle);
        }
        true
    }

    /// Whether the client has sent what nobody has read. The kernel is asked: the reactor may not have heard of it yet.
    fn has_more(&self) -> bool {
        !self.ahead.is_empty()
            || SockRef::from(&self.io).peek(&mut [MaybeUninit::uninit()]).is_ok_and(|bytes| bytes > 0)
    }

    /// Closing over unread bytes resets the connection, and the reset may overtake the answer: so what a client still sends
    /// of a request that was answered early, or behind the connection's last, is read for a while (RFC 9112 section 9.6).
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(until) = self.linger_until else { return Poll::Ready(Ok(())) };
        let mut scrap = [0; 4096];
        loop {
            if self.read_alarm.poll(cx, until).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut scrap = ReadBuf::new(&mut scrap);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut scrap))?;
            if scrap.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(deadline) = self.connection.deadline() else { return Poll::Pending };
        ready!(self.read_alarm.poll(cx, deadline));
        self.connection.expire();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "deadline")))
    }
}

impl AsyncRead for Conduit {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.connection.reads();
        if this.connection.header_is_too_large() {
            this.connection.cut_short(Cut::HeaderTooLarge);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "header too large")));
        }
        if this.connection.cut() == Cut::Malformed {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "not a request")));
        }
        if this.connection.tunnel().terms().is_some() {
            return this.poll_tunnel(cx, buf);
        }
        let only_watched = this.connection.awaits_nothing() || this.connection.is_watched();
        if this.connection.phase() == Phase::Request && only_watched {
            this.send_meanwhile(cx)?;
            return this.poll_watch(cx);
        }
        let came = Came { behind: buf.filled().len(), at: clock::monotonic() };
        if this.connection.deadline().is_some_and(|deadline| deadline <= came.at) {
            // Also where there is always something to read.
            return this.poll_deadline(cx);
        }
        if !this.due.is_empty() {
            this.put_due(buf);
            return Poll::Ready(Ok(()));
        }
        if !this.ahead.is_empty() {
            let fit = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead[..fit]);
            this.ahead.drain(..fit);
            return this.poll_received(cx, buf, came);
        }
        match Pin::new(&mut this.io).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => this.poll_received(cx, buf, came),
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => {
                this.send_meanwhile(cx)?;
                if this.is_let_go() {
                    return Poll::Ready(Ok(()));
                }
                this.poll_deadline(cx)
            }
        }
    }
}

impl AsyncWrite for Conduit {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if let Some(own) = this.connection.sent_instead() {
            this.out.extend_from_slice(own.as_bytes());
            this.linger_until.get_or_insert_with(|| clock::monotonic() + LINGER);
            return Poll::Ready(Ok(buf.len()));
        }
        // Not the rest of a write that is done in part: it would be done then, and while it waits the log could not tell the part.
        if this.rest == 0 && this.out.len() + buf.len() <= WRITE_BUFFER {
            this.out.extend_from_slice(buf);
            this.passed_down(buf);
            this.wrote(buf.len(), buf.len());
            return Poll::Ready(Ok(buf.len()));
        }
        ready!(this.poll_drain(cx))?;
        match Pin::new(&mut this.io).poll_write(cx, buf) {
            Poll::Pending => this.poll_stalled(cx),
            Poll::Ready(Err(_)) if this.tunnel_is_deserted() => Poll::Ready(Ok(buf.len())),
            done => {
                this.stalled_since = None;
                if let Poll::Ready(Ok(written)) = &done {
                    this.passed_down(&buf[..*written]);
                    this.wrote(buf.len(), *written);
                }
                done
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Pingora ends a connection here; where the stream itself refused a header, the client still gets its answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(answer) = this.connection.take_answer() {
            this.out.extend_from_slice(answer.as_bytes());
            this.linger_until = Some(clock::monotonic() + LINGER);
        }
        if this.connection.phase() == Phase::Request && (!this.connection.request_is_whole() || this.has_more()) {
            this.linger_until.get_or_insert_with(|| clock::monotonic() + LINGER);
        }
        ready!(this.poll_drain(cx))?;
        ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
        this.poll_linger(cx)
    }
}

#[async_trait]
impl Shutdown for Conduit {
    async fn shutdown(&mut self) {
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for Conduit {
    fn id(&self) -> UniqueIDType {
        self.io.as_raw_fd()
    }
}

impl Ssl for Conduit {}

impl Peek for Conduit {}

impl GetTimingDigest for Conduit {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Conduit {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Conduit {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(self.digest.clone())
    }
}

impl Drop for Conduit {
    /// What is buffered when an answer breaks off still belongs to the client.
    fn drop(&mut self) {
        if self.sent < self.out.len() {
            let _ = self.io.try_write(&self.out[self.sent..]);
        }
    }
}

impl fmt::Debug for Conduit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conduit").field("connection", &self.connection.id()).finish_non_exhaustive()
    }
}
