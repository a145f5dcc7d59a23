//! A member for the next attempt, or a wait for one.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::refusal::Refusal;
use crate::clock;
use crate::health::{MemberId, Mode, Standing};
use crate::pool::{Choice, Lease, Pick, Pool};
use crate::telemetry::PickReason;

/// How long a waiter that nothing wakes waits before it looks again.
const PATIENCE: Duration = Duration::from_millis(250);

/// A picked member and how long it was waited for.
#[derive(Debug)]
pub struct Picked {
    /// The seat on it.
    pub lease: Lease,
    /// Zero but at a cold start.
    pub waited: Duration,
}

/// Nobody was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nobody {
    /// Why.
    pub refusal: Refusal,
    /// How long somebody was waited for.
    pub waited: Duration,
}

/// Who is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// None of these.
    pub avoided: &'a [MemberId],
    /// What the request goes by, where keys count.
    pub key: Option<&'a [u8]>,
    /// Within this time.
    pub limit: Option<Duration>,
}

/// Picks a member of `pool` as wished.
///
/// At a cold start it waits for a first healthy member until the pool's deadline (health.md §2).
///
/// # Errors
/// Nobody can serve, all have been tried, too many wait already, or the request's own time is over.
pub async fn pick(pool: &Pool, wish: Wish<'_>) -> Result<Picked, Nobody> {
    match choose(pool, wish) {
        Answer::Member(lease) => Ok(Picked { lease, waited: Duration::ZERO }),
        Answer::Refuse(refusal) => Err(Nobody { refusal, waited: Duration::ZERO }),
        Answer::Wait => wait(pool, wish).await,
    }
}

/// Why this member, for the log.
pub fn reason(lease: &Lease, attempt: usize) -> PickReason {
    match (lease.headline().mode, lease.standing()) {
        _ if attempt > 0 => PickReason::Retry,
        (Mode::Fallback, _) => PickReason::Fallback,
        (_, Standing::Kept) => PickReason::Kept,
        (Mode::Failover, _) => PickReason::Failover,
        _ if lease.choice() == Choice::ByKey => PickReason::Hash,
        _ => PickReason::Balanced,
    }
}

enum Answer {
    Member(Lease),
    Refuse(Refusal),
    Wait,
}

fn choose(pool: &Pool, wish: Wish<'_>) -> Answer {
    match pool.pick(wish.avoided, wish.key) {
        Pick::Member(lease) => Answer::Member(lease),
        Pick::Wait => Answer::Wait,
        Pick::AllUnhealthy => Answer::Refuse(Refusal::AllUnhealthy),
        Pick::Nobody => Answer::Refuse(Refusal::NoMember),
    }
}

async fn wait(pool: &Pool, wish: Wish<'_>) -> Result<Picked, Nobody> {
    let since = clock::monotonic();
    let nobody = |refusal| Nobody { refusal, waited: clock::monotonic().saturating_sub(since) };
    let _seat = pool.waiter().ok_or_else(|| nobody(Refusal::Overloaded))?;
    let mut patience = pool.next_deadline().map_or(PATIENCE, |deadline| deadline.saturating_sub(since));
    loop {
        let mut changed = pin!(pool.changed());
        // From here on a change is not missed.
        changed.as_mut().enable();
        match choose(pool, wish) {
            Answer::Member(lease) => return Ok(Picked { lease, waited: nobody(Refusal::NoMember).waited }),
            Answer::Refuse(refusal) => return Err(nobody(refusal)),
            Answer::Wait => {}
        }
        let left = wish.limit.map(|limit| limit.saturating_sub(nobody(Refusal::Deadline).waited));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(nobody(Refusal::Deadline));
        }
        if timeout(left.map_or(patience, |left| left.min(patience)), changed).await.is_err() {
            pool.advance(clock::monotonic());
            patience = PATIENCE;
        }
    }
}
