//! What a pool asks of others: that a member be probed now, since traffic has met it failing, and that requests leave one
//! that no longer answers.
//!
//! Evidence may come with every request, so a member is called for once, by an atomic, until somebody has looked into it.
//! Not here: what is evidence (`proxy`), how often a probe may be hastened (`probe`), who looks (`control`).

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Member, Pool};

/// Of a pool: whom it calls for.
#[derive(Debug, Default)]
pub(super) struct Calls {
    stirred: Notify,
    /// Members that requests are to leave; each is there once.
    fallen: Mutex<Vec<Arc<Member>>>,
    /// Some had nowhere to go, and nobody has been there since.
    stranded: AtomicBool,
}

/// Of a member: whether traffic doubts it.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    is_called_for: AtomicBool,
    /// Until then a probe can be hastened no more, in microseconds of monotonic time.
    rests_until: AtomicU64,
}

impl Calls {
    /// Somebody is to look.
    pub(super) fn stir(&self) {
        self.stirred.notify_one();
    }
}

impl Doubt {
    /// True where nobody was called for it yet and a probe can be had.
    fn rises(&self, now: Duration) -> bool {
        self.rests_until.load(Relaxed) <= now.as_micros() as u64 && !self.is_called_for.swap(true, Relaxed)
    }
}

impl Pool {
    /// Traffic has met `member` failing: it is to be probed now.
    pub fn doubt(&self, now: Duration, member: &Member) {
        if member.doubt().rises(now) {
            self.calls.stirred.notify_one();
        }
    }

    /// The members that are in doubt since this was asked last.
    pub fn take_doubted(&self) -> Vec<Arc<Member>> {
        let roster = self.roster();
        let doubted = roster.members().iter().filter(|member| member.doubt().is_called_for.swap(false, Relaxed));
        doubted.cloned().collect()
    }

    /// Requests are to leave this member.
    pub(super) fn call_away_from(&self, member: &Arc<Member>) {
        let mut fallen = self.calls.fallen.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody looks where rescue is off: who has left the pool is not to stay for that.
        fallen.retain(|other| !other.is_removed() || other.is_in_use());
        if !fallen.iter().any(|other| Arc::ptr_eq(other, member)) {
            fallen.push(member.clone());
        }
        drop(fallen);
        self.calls.stirred.notify_one();
    }

    /// The members that requests are to leave since this was asked last. Where nobody else answers they stay where they are;
    /// once somebody does again, all are to leave whose member does not, also those that were sent there meanwhile.
    pub fn take_fallen(&self) -> Vec<Arc<Member>> {
        let mut fallen = self.calls.fallen.lock().unwrap_or_else(PoisonError::into_inner);
        // Only now: who fell was shown first.
        let roster = self.roster();
        if !roster.somebody_answers() {
            self.calls.stranded.fetch_or(!fallen.is_empty(), SeqCst);
            return Vec::new();
        }
        let mut fallen = std::mem::take(&mut *fallen);
        if self.calls.stranded.swap(false, SeqCst) {
            fallen.extend(roster.members().iter().filter(|member| member.has_fallen()).cloned());
        }
        // One that answers again by now is not left.
        fallen.retain(|member| member.has_fallen());
        fallen
    }

    /// Resolves when there may be someone to take; at once where there was since the last time.
    pub async fn calls(&self) {
        self.calls.stirred.notified().await;
    }
}

impl Member {
    /// Its probe was hastened: none is until then. Nothing that traffic says meanwhile calls for one.
    pub fn rest_until(&self, moment: Duration) {
        self.doubt().rests_until.store(moment.as_micros() as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_who_doubt_call_once_and_not_again_before_the_next_probe_can_be_had() {
        let doubt = Doubt::default();
        let at = Duration::from_millis;
        assert!(doubt.rises(at(1)));
        assert!((1..100).all(|ms| !doubt.rises(at(ms))), "nobody has looked yet");
        doubt.is_called_for.store(false, Relaxed);
        doubt.rests_until.store(at(500).as_micros() as u64, Relaxed);
        assert_eq!([499, 500, 501].map(|ms| doubt.rises(at(ms))), [false, true, false]);
    }
}
