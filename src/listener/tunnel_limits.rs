//! How long a tunnel may last: until nothing has passed for too long, or its member has left and the time to drain is over.
//!
//! Both ends keep these limits, each where it waits: while one end takes nothing, Pingora asks the other for nothing, and
//! only the stream that cannot write is polled. What is known is the tunnel's; the timers are an end's own.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::alarm::Alarm;
use super::connection::{Connection, Cut};
use crate::clock;

/// How long a tunnel may be silent once one way through it has ended: the other end is given the time to end too.
const HALF_IDLE: Duration = Duration::from_secs(60);

/// The limits of a tunnel, as one of its ends waits for them.
#[derive(Default)]
pub struct TunnelLimits {
    /// Resolves once the member is no longer configured; made when it is first waited for.
    removal: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    alarm: Alarm,
}

impl TunnelLimits {
    /// Ready once the tunnel of `connection` has been silent for too long, or its member gone: it is cut short then. Pending
    /// where it is no tunnel.
    pub fn poll(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Poll<()> {
        let tunnel = connection.tunnel();
        let Some(terms) = tunnel.terms() else { return Poll::Pending };
        if was_cut(connection) {
            return Poll::Ready(());
        }
        if tunnel.drain_by().is_none() {
            let member = &terms.member;
            let removal = self.removal.get_or_insert_with(|| {
                let member = member.clone();
                Box::pin(async move { member.removed().await })
            });
            if removal.as_mut().poll(cx).is_ready() {
                tunnel.member_is_removed(clock::monotonic());
            }
        }
        let half_since = tunnel.is_half().then(|| tunnel.half_since(clock::monotonic()));
        let idle_at = idle_at(terms.limits.idle, tunnel.active_at(), half_since);
        let drain_by = tunnel.drain_by().filter(|drain_by| *drain_by <= idle_at);
        ready!(self.alarm.poll(cx, drain_by.unwrap_or(idle_at)));
        connection.cut_short(if drain_by.is_some() { Cut::TunnelDrained } else { Cut::TunnelIdle });
        Poll::Ready(())
    }
}

/// Whether a limit has ended the tunnel of `connection`. One that is never silent is looked after here.
pub fn was_cut(connection: &Connection) -> bool {
    let tunnel = connection.tunnel();
    let Some(terms) = tunnel.terms() else { return false };
    if tunnel.drain_by().is_none() && terms.member.is_removed() {
        tunnel.member_is_removed(clock::monotonic());
    }
    if tunnel.drain_by().is_some_and(|drain_by| drain_by <= clock::monotonic()) {
        connection.cut_short(Cut::TunnelDrained);
    }
    matches!(connection.cut(), Cut::TunnelIdle | Cut::TunnelDrained)
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
