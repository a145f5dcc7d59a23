//! The client's stream while it is a tunnel's end: which limits it keeps, and how an end is passed on (see `tunnel`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Conduit;
use crate::clock;
use crate::config::Tunnels;
use crate::listener::connection::Cut;
use crate::listener::tunnel::{Switch, Terms};
use crate::pool::Member;

/// How long a tunnel may be silent once one way through it has ended: the other end is given the time to end too.
const HALF_IDLE: Duration = Duration::from_secs(60);

/// What a stream has to know while it is a tunnel's end.
pub(super) struct Passage {
    member: Option<Arc<Member>>,
    limits: Tunnels,
    /// Between the switch and the tunnel, in what is written.
    switch: Switch,
    /// When a byte passed last, either way.
    active_at: Duration,
    /// Since when one way has been at its end.
    half_since: Option<Duration>,
    /// Resolves once the member is no longer configured.
    removal: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// By when it must end, from then on.
    drain_by: Option<Duration>,
}

impl Conduit {
    /// Reads from the client of a tunnel. That it will send no more is kept to ourselves while the member still may: to
    /// Pingora the end of one way is the end of both.
    pub(super) fn poll_tunnel(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.passage();
        if self.tunnel_was_cut() {
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
                self.passage().active_at = clock::monotonic();
                return Poll::Ready(Ok(()));
            }
        }
        self.send_meanwhile(cx)?;
        ready!(self.poll_pass_end_on(cx))?;
        if self.connection.tunnel().is_over() {
            return Poll::Ready(Ok(()));
        }
        self.poll_tunnel_limits(cx).map(Ok)
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

    /// Ready once the tunnel has been silent for too long, or its member gone.
    fn poll_tunnel_limits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_half = self.connection.tunnel().is_half();
        let passage = self.passage();
        if passage.drain_by.is_none() && passage.removal.as_mut().poll(cx).is_ready() {
            passage.member_is_removed();
        }
        if is_half {
            passage.half_since.get_or_insert_with(clock::monotonic);
        }
        let idle_at = idle_at(passage.limits.idle, passage.active_at, passage.half_since);
        let drain_by = passage.drain_by.filter(|drain_by| *drain_by <= idle_at);
        ready!(self.read_alarm.poll(cx, drain_by.unwrap_or(idle_at)));
        self.connection.cut_short(if drain_by.is_some() { Cut::TunnelDrained } else { Cut::TunnelIdle });
        Poll::Ready(())
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

    /// Whether a limit of the tunnel's has ended it. One that is never silent is looked after here.
    fn tunnel_was_cut(&mut self) -> bool {
        let passage = self.passage();
        if passage.drain_by.is_none() && passage.member.as_ref().is_some_and(|member| member.is_removed()) {
            passage.member_is_removed();
        }
        if passage.drain_by.is_some_and(|drain_by| drain_by <= clock::monotonic()) {
            self.connection.cut_short(Cut::TunnelDrained);
        }
        matches!(self.connection.cut(), Cut::TunnelIdle | Cut::TunnelDrained)
    }

    /// What was written belongs to a tunnel, or to the switch before it.
    pub(super) fn passed_down(&mut self, bytes: &[u8]) {
        if self.connection.tunnel().terms().is_some() {
            let passage = self.passage();
            passage.active_at = clock::monotonic();
            let tunnelled = passage.switch.tunnelled(bytes);
            self.connection.tunnel().down.went(tunnelled);
        }
    }

    fn passage(&mut self) -> &mut Passage {
        let connection = &self.connection;
        self.passage.get_or_insert_with(|| Passage::new(connection.tunnel().terms()))
    }
}

impl Passage {
    fn new(terms: Option<&Terms>) -> Passage {
        let member = terms.map(|terms| terms.member.clone());
        let told = member.clone();
        let removal = async move {
            match told {
                Some(member) => member.removed().await,
                None => std::future::pending().await,
            }
        };
        Passage {
            member,
            limits: terms.map_or_else(Tunnels::default, |terms| terms.limits),
            switch: Switch::default(),
            active_at: clock::monotonic(),
            half_since: None,
            removal: Box::pin(removal),
            drain_by: None,
        }
    }

    fn member_is_removed(&mut self) {
        self.drain_by = Some(clock::monotonic() + self.limits.drain);
    }
}

/// When a tunnel has been silent for too long.
fn idle_at(idle: Duration, active_at: Duration, half_since: Option<Duration>) -> Duration {
    match half_since {
        None => active_at + idle,
        Some(since) => active_at.max(since) + idle.min(HALF_IDLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_tunnel_has_its_own_time_from_when_it_became_one() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let rows = [
            ("both ways open", minutes(60), minutes(10), None, minutes(70)),
            ("half open after a long silence", minutes(60), minutes(10), Some(minutes(50)), minutes(51)),
            ("half open, and the other way is used", minutes(60), minutes(55), Some(minutes(50)), minutes(56)),
            ("a limit that is shorter anyway", minutes(0), minutes(10), Some(minutes(10)), minutes(10)),
        ];
        for (what, idle, active_at, half_since, expected) in rows {
            assert_eq!(idle_at(idle, active_at, half_since), expected, "{what}");
        }
    }
}
