//! A member for the next attempt, or a wait for one.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::refusal::Refusal;
use crate::clock;
use crate::health::{MemberId, Mode, Standing};
use crate::pool::{Lease, Pick, Pool};
use crate::telemetry::PickReason;

/// Looked at again after this, should nothing else wake a waiter.
const PATIENCE: Duration = Duration::from_millis(250);

/// A picked member and how long it was waited for.
#[derive(Debug)]
pub struct Picked {
    /// The seat on it.
    pub lease: Lease,
    /// Zero but at a cold start.
    pub waited: Duration,
}

/// Picks a member of `pool` for a request that has tried `tried`.
///
/// At a cold start it waits for a first healthy member until the pool's deadline (health.md §2).
///
/// # Errors
/// Nobody can serve, all have been tried, or too many wait already.
pub async fn pick(pool: &Pool, tried: &[MemberId]) -> Result<Picked, Refusal> {
    match choose(pool, tried) {
        Choice::Member(lease) => Ok(Picked { lease, waited: Duration::ZERO }),
        Choice::Refuse(refusal) => Err(refusal),
        Choice::Wait => wait(pool, tried).await,
    }
}

/// Why this member, for the log.
pub fn reason(lease: &Lease, attempt: usize) -> PickReason {
    match (lease.roster().mode(), lease.standing()) {
        _ if attempt > 0 => PickReason::Retry,
        (Mode::Fallback, _) => PickReason::Fallback,
        (_, Standing::Kept) => PickReason::Kept,
        (Mode::Failover, _) => PickReason::Failover,
        _ => PickReason::Balanced,
    }
}

enum Choice {
    Member(Lease),
    Refuse(Refusal),
    Wait,
}

fn choose(pool: &Pool, tried: &[MemberId]) -> Choice {
    match pool.pick(tried) {
        Pick::Member(lease) => Choice::Member(lease),
        Pick::Wait => Choice::Wait,
        Pick::AllUnhealthy => Choice::Refuse(Refusal::AllUnhealthy),
        Pick::Nobody => Choice::Refuse(Refusal::NoMember),
    }
}

async fn wait(pool: &Pool, tried: &[MemberId]) -> Result<Picked, Refusal> {
    let since = clock::monotonic();
    let _seat = pool.waiter().ok_or(Refusal::Overloaded)?;
    loop {
        let mut changed = pin!(pool.changed());
        // From here on a change is not missed.
        changed.as_mut().enable();
        let now = clock::monotonic();
        match choose(pool, tried) {
            Choice::Member(lease) => return Ok(Picked { lease, waited: now.saturating_sub(since) }),
            Choice::Refuse(refusal) => return Err(refusal),
            Choice::Wait => {}
        }
        let left = pool.next_deadline().map_or(PATIENCE, |deadline| deadline.saturating_sub(now));
        if timeout(left.min(PATIENCE), changed).await.is_err() {
            pool.advance(clock::monotonic());
        }
    }
}
