//! A member for the next attempt, or a wait for one: for a first verdict at a cold start, or for room.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::refusal::Refusal;
use crate::clock;
use crate::health::{MemberId, Mode, Standing};
use crate::pool::{Bond, Choice, Lease, Pick, Place, Pool, Turn};
use crate::telemetry::PickReason;

/// How long a waiter that nothing wakes waits before it looks again.
const PATIENCE: Duration = if cfg!(test) { NEVER } else { Duration::from_millis(250) };
/// So that a test sees whether somebody is not woken.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// None of these.
    pub avoided: &'a [MemberId],
    /// What the request goes by, where keys count.
    pub key: Option<&'a [u8]>,
    /// The member that its client is bound to.
    pub bound_to: Option<MemberId>,
    /// Within this time, which is the request's own.
    pub limit: Option<Duration>,
    /// So long it has waited in the queue before, for attempts that never reached a member.
    pub queued: Duration,
    /// What to do where everyone is full.
    pub when_full: WhenFull,
}

impl Wish<'_> {
    /// The bond as it is now; nobody asks for the time without one.
    fn bond(self) -> Option<Bond> {
        self.bound_to.map(|member| Bond { member, now: clock::monotonic() })
    }
}

/// What to do where everyone is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Stand in line, if the pool has a queue.
    Queue,
    /// Do without.
    GiveUp,
}

/// A picked member and how long it was waited for.
#[derive(Debug)]
pub struct Picked {
    /// The seat on it.
    pub lease: Lease,
    /// Zero but at a cold start, or where everyone was full.
    pub waited: Duration,
    /// Of that, in the queue.
    pub queued: Duration,
}

/// Nobody was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nobody {
    /// Why.
    pub refusal: Refusal,
    /// How long somebody was waited for.
    pub waited: Duration,
}

/// Picks a member of `pool`; `None` where that has to be waited for.
pub fn now(pool: &Pool, wish: Wish<'_>) -> Option<Result<Picked, Nobody>> {
    let waited = Duration::ZERO;
    pool.tell_time(clock::monotonic);
    match choose(pool.pick_bound(wish.avoided, wish.key, wish.bond())) {
        Answer::Member(lease) => Some(Ok(Picked { lease, waited, queued: Duration::ZERO })),
        Answer::Refuse(refusal) => Some(Err(Nobody { refusal, waited })),
        Answer::Full if wish.when_full == WhenFull::GiveUp || pool.queue().size() == 0 => {
            Some(Err(Nobody { refusal: Refusal::Overloaded, waited }))
        }
        Answer::Full | Answer::Wait => None,
    }
}

/// Picks a member of `pool` that has to be waited for.
///
/// At a cold start that is for a first healthy member until the pool's deadline (health.md §2), where everyone is full for
/// room, in the pool's queue.
///
/// # Errors
/// Nobody can serve, all have been tried, too many wait already or for too long, or the request's own time is over.
pub async fn later(pool: &Pool, wish: Wish<'_>) -> Result<Picked, Nobody> {
    let wait = Wait { pool, wish, since: clock::monotonic() };
    let first = wait.for_verdicts().await;
    let for_verdicts = wait.waited();
    let picked = match first {
        Ok(Some(lease)) => Ok(lease),
        Ok(None) => wait.for_room().await,
        Err(refusal) => Err(refusal),
    };
    let waited = wait.waited();
    match picked {
        Ok(lease) => Ok(Picked { lease, waited, queued: waited.saturating_sub(for_verdicts) }),
        Err(refusal) => Err(Nobody { refusal, waited }),
    }
}

/// Why this member, for the log; `rank` says which of the route's pools serves.
pub fn reason(lease: &Lease, attempt: usize, rank: usize) -> PickReason {
    if attempt > 0 {
        return PickReason::Retry;
    }
    first_reason(lease.headline().mode, lease.standing(), lease.choice(), rank)
}

/// The same of a first attempt, in a pool of this mode, at a member that stands so.
pub fn first_reason(mode: Mode, standing: Standing, choice: Choice, rank: usize) -> PickReason {
    match (mode, standing) {
        // Whatever the others do.
        _ if choice == Choice::ByCookie => PickReason::Sticky,
        (Mode::Fallback, _) => PickReason::Fallback,
        (_, Standing::Kept) => PickReason::Kept,
        (Mode::Failover, _) => PickReason::Failover,
        _ if rank > 0 => PickReason::Failover,
        _ if choice == Choice::ByKey => PickReason::Hash,
        _ => PickReason::Balanced,
    }
}

enum Answer {
    Member(Lease),
    Refuse(Refusal),
    Wait,
    Full,
}

fn choose(pick: Pick) -> Answer {
    match pick {
        Pick::Member(lease) => Answer::Member(lease),
        Pick::Wait => Answer::Wait,
        Pick::Full => Answer::Full,
        Pick::AllUnhealthy => Answer::Refuse(Refusal::AllUnhealthy),
        Pick::Nobody => Answer::Refuse(Refusal::NoMember),
    }
}

/// One request's wait.
struct Wait<'a> {
    pool: &'a Pool,
    wish: Wish<'a>,
    since: Duration,
}

impl Wait<'_> {
    /// Until there is somebody to pick; `None` where they are full.
    async fn for_verdicts(&self) -> Result<Option<Lease>, Refusal> {
        let pool = self.pool;
        let mut seat = None;
        let mut patience = pool.waits_until().map_or(PATIENCE, |deadline| deadline.saturating_sub(self.since));
        loop {
            let mut changed = pin!(pool.changed());
            // From here on a change is not missed.
            changed.as_mut().enable();
            pool.tell_time(clock::monotonic);
            match choose(pool.pick_bound(self.wish.avoided, self.wish.key, self.wish.bond())) {
                Answer::Member(lease) => return Ok(Some(lease)),
                Answer::Refuse(refusal) => return Err(refusal),
                Answer::Full => return Ok(None),
                Answer::Wait => {}
            }
            if seat.is_none() {
                seat = Some(pool.waiter().ok_or(Refusal::Overloaded)?);
            }
            let left = self.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Refusal::Deadline);
            }
            if timeout(left.map_or(patience, |left| left.min(patience)), changed).await.is_err() {
                pool.advance(clock::monotonic());
                patience = PATIENCE;
            }
        }
    }

    /// In the queue, until it has its turn and there is room.
    async fn for_room(&self) -> Result<Lease, Refusal> {
        if self.wish.when_full == WhenFull::GiveUp {
            return Err(Refusal::Overloaded);
        }
        let place = self.pool.join_queue(self.wish.avoided).ok_or(Refusal::Overloaded)?;
        let patience = self.pool.queue().timeout().saturating_sub(self.wish.queued);
        let (limit, refusal) = match self.left() {
            Some(left) if left < patience => (left, Refusal::Deadline),
            _ => (patience, Refusal::Overloaded),
        };
        timeout(limit, self.in_turn(&place)).await.unwrap_or(Err(refusal))
    }

    async fn in_turn(&self, place: &Place<'_>) -> Result<Lease, Refusal> {
        loop {
            self.pool.tell_time(clock::monotonic);
            match place.turn() {
                Turn::Look => match choose(self.look(place)) {
                    Answer::Member(lease) => return Ok(lease),
                    Answer::Refuse(refusal) => return Err(refusal),
                    Answer::Full | Answer::Wait => place.finds_nothing(),
                },
                Turn::First => {
                    if timeout(PATIENCE, place.called()).await.is_err() {
                        // A cold start may have come meanwhile, which only time ends.
                        self.pool.advance(clock::monotonic());
                        place.look_again();
                    }
                }
                Turn::Behind => place.called().await,
            }
        }
    }

    fn look(&self, place: &Place<'_>) -> Pick {
        self.pool.pick_in_turn(place, self.wish.avoided, self.wish.key, self.wish.bond())
    }

    fn waited(&self) -> Duration {
        clock::monotonic().saturating_sub(self.since)
    }

    /// Of the request's own time.
    fn left(&self) -> Option<Duration> {
        self.wish.limit.map(|limit| limit.saturating_sub(self.waited()))
    }
}

#[cfg(test)]
mod tests;
