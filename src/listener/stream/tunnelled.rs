//! The client's stream while it is a tunnel's end: how its limits are kept (see `tunnel_limits`), and how an end is passed on
//! (see `tunnel`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Conduit;
use crate::clock;
use crate::listener::tunnel_limits;

impl Conduit {
    /// Reads from the client of a tunnel. That it will send no more is kept to ourselves while the member still may: to
    /// Pingora the end of one way is the end of both.
    pub(super) fn poll_tunnel(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if tunnel_limits::was_cut(&self.connection) {
            return Poll::Ready(Ok(()));
        }
        if !self.connection.tunnel().up.has_ended() {
            let before = buf.filled().len();
            if !self.ahead.is_empty() {
                let fit = self.ahead.len().min(buf.remaining());
                buf.put_slice(&self.ahead[..fit]);
                self.ahead.drain(..fit);
            } else if let Poll::Ready(read) = Pin::new(&mut self.io).poll_read(cx, buf) {
                read?;
                if buf.filled().len() == before && !self.client_ends(cx) {
                    return Poll::Ready(Ok(()));
                }
            }
            let came = buf.filled().len() - before;
            if came > 0 {
                self.connection.tunnel().up.came(came);
                self.connection.tunnel().passed(clock::monotonic());
                return Poll::Ready(Ok(()));
            }
        }
        self.send_meanwhile(cx)?;
        ready!(self.poll_pass_end_on(cx))?;
        if self.connection.tunnel().is_over() {
            return Poll::Ready(Ok(()));
        }
        self.tunnel_limits.poll(cx, &self.connection).map(Ok)
    }

    /// The client will send no more; false where the member's end cannot be told apart from Pingora's.
    fn client_ends(&mut self, cx: &mut Context<'_>) -> bool {
        let tunnel = self.connection.tunnel();
        if tunnel.ends_apart() {
            tunnel.up.ends();
            // Pingora polls both ends in one task: this wakes the other, which may have to pass the end on.
            cx.waker().wake_by_ref();
        }
        tunnel.ends_apart()
    }

    /// Tells the client that the member will send no more, once it has all that the member sent.
    fn poll_pass_end_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.connection.tunnel().down.end_is_due() || !self.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        self.connection.tunnel().down.end_passed_on();
        Poll::Ready(Ok(()))
    }

    /// Whether a write failed since the client, which had nothing more to say, does not listen either. That is an end like
    /// any other.
    pub(super) fn tunnel_is_deserted(&self) -> bool {
        let tunnel = self.connection.tunnel();
        let deserted = tunnel.up.has_ended();
        if deserted {
            tunnel.give_up();
        }
        deserted
    }

    /// What was written belongs to a tunnel, or to the switch before it.
    pub(super) fn passed_down(&mut self, bytes: &[u8]) {
        if self.connection.tunnel().terms().is_some() {
            self.connection.tunnel().passed(clock::monotonic());
            let tunnelled = self.switch.tunnelled(bytes);
            self.connection.tunnel().down.went(tunnelled);
        }
    }
}
