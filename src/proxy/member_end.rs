//! The stream to a member that may become a tunnel's end.
//!
//! Pingora would end a tunnel as soon as the member sends no more; this stream keeps that to itself while the client still
//! may, and passes the client's end on (see `listener`'s tunnel). It also keeps the member's `read_timeout` until then:
//! Pingora's would go on inside the tunnel.
//!
//! And it keeps the `write_timeout`, and the tunnel's own limits while a write waits: Pingora polls nothing else meanwhile,
//! and over a write that failed it still waits for the member to speak, so a read fails from then on, too.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use pingora::Result;
use pingora::connectors::L4Connect;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::dial;
use crate::clock;
use crate::listener::{Alarm, Connection, Switch, TunnelLimits};

/// For whom such a stream is made, and within which limits.
#[derive(Debug)]
pub struct Switchable {
    /// The client's connection.
    pub connection: Arc<Connection>,
    /// How long the member may be silent before the tunnel.
    pub read_timeout: Duration,
    /// How long the member may take nothing.
    pub write_timeout: Duration,
}

impl Switchable {
    /// The stream over a connection to the member.
    pub fn over(&self, io: TcpStream) -> Stream {
        Stream::from(VirtualSocketStream::new(Box::new(MemberEnd {
            io,
            connection: self.connection.clone(),
            read_timeout: self.read_timeout,
            read_alarm: Alarm::default(),
            silent_since: None,
            write_timeout: self.write_timeout,
            write_alarm: Alarm::default(),
            blocked_since: None,
            limits: TunnelLimits::default(),
            given_up: false,
            switch: Switch::default(),
        })))
    }
}

#[async_trait]
impl L4Connect for Switchable {
    async fn connect(&self, address: &SocketAddr) -> Result<Stream> {
        dial::open(address).await.map(|io| self.over(io))
    }
}

/// The member's end of what may become a tunnel.
struct MemberEnd {
    io: TcpStream,
    connection: Arc<Connection>,
    read_timeout: Duration,
    read_alarm: Alarm,
    /// Since when a read has been waiting.
    silent_since: Option<Duration>,
    write_timeout: Duration,
    write_alarm: Alarm,
    /// Since when a write has been waiting.
    blocked_since: Option<Duration>,
    limits: TunnelLimits,
    /// A write has failed.
    given_up: bool,
    switch: Switch,
}

impl MemberEnd {
    /// Tells the member that the client will send no more, once it has all that the client sent.
    fn poll_pass_end_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.switch.is_behind() || !self.connection.tunnel().up.end_is_due() {
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        self.connection.tunnel().up.end_passed_on();
        // Pingora polls both ends in one task: the other may have waited for this alone.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(()))
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Under TLS the switch itself cannot be seen here.
        if self.switch.is_behind() || self.connection.tunnel().terms().is_some() {
            return Poll::Pending;
        }
        let since = *self.silent_since.get_or_insert_with(clock::monotonic);
        ready!(self.read_alarm.poll(cx, since + self.read_timeout));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the member is silent")))
    }

    /// The member takes nothing: that has its limit, and so has the tunnel.
    fn poll_blocked(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let since = *self.blocked_since.get_or_insert_with(clock::monotonic);
        if self.limits.poll(cx, &self.connection).is_ready() {
            return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the tunnel's time is over"));
        }
        ready!(self.write_alarm.poll(cx, since + self.write_timeout));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the member takes nothing"))
    }

    fn fail<T>(&mut self, error: io::Error) -> Poll<io::Result<T>> {
        self.given_up = true;
        Poll::Ready(Err(error))
    }
}

impl AsyncRead for MemberEnd {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.given_up && this.connection.tunnel().terms().is_some() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, "a write has failed")));
        }
        ready!(this.poll_pass_end_on(cx))?;
        let tunnel = this.connection.tunnel();
        if tunnel.down.has_ended() {
            return if tunnel.is_over() { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let before = buf.filled().len();
        if Pin::new(&mut this.io).poll_read(cx, buf)?.is_pending() {
            return this.poll_silence(cx);
        }
        this.silent_since = None;
        let came = &buf.filled()[before..];
        if !came.is_empty() {
            tunnel.down.came(this.switch.tunnelled(came));
            if this.switch.is_behind() {
                tunnel.may_end_apart();
            }
            return Poll::Ready(Ok(()));
        }
        if !this.switch.is_behind() {
            return Poll::Ready(Ok(()));
        }
        tunnel.down.ends();
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl AsyncWrite for MemberEnd {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let tunnel = this.connection.tunnel();
        let written = match Pin::new(&mut this.io).poll_write(cx, buf) {
            Poll::Pending => {
                let error = ready!(this.poll_blocked(cx));
                return this.fail(error);
            }
            Poll::Ready(Ok(written)) => written,
            // It had nothing more to say, and does not listen either: that is an end like any other.
            Poll::Ready(Err(_)) if tunnel.down.has_ended() => {
                tunnel.give_up();
                cx.waker().wake_by_ref();
                buf.len()
            }
            Poll::Ready(Err(error)) => return this.fail(error),
        };
        this.blocked_since = None;
        if tunnel.terms().is_some() {
            tunnel.passed(clock::monotonic());
        }
        if this.switch.is_behind() {
            tunnel.up.went(written);
            // Where it cannot be done at once, the next read does it.
            let _ = this.poll_pass_end_on(cx);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl VirtualSocket for MemberEnd {
    fn set_socket_option(&self, option: VirtualSockOpt) -> io::Result<()> {
        match option {
            VirtualSockOpt::NoDelay => self.io.set_nodelay(true),
            // Not asked for by any peer of ours.
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for MemberEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemberEnd").field("connection", &self.connection.id()).finish_non_exhaustive()
    }
}
