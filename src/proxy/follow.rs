//! Requests that wait and have been sent nowhere go along with their route (health.md §8): to another of its pools once that
//! serves, and over a reload into the generation that has it so.
//!
//! A pool that cannot serve is not waited for while another one can. The choice is that of the present generation, since the
//! one a request began under decides no more once there is a next. A request whose route is gone stays where it is.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use pingora::http::RequestHeader;

use super::admit;
use super::ctx::Ctx;
use super::refusal::Refusal;
use crate::clock;
use crate::pool::Pool;
use crate::snapshot::{Snapshot, Way};

/// Which route a waiting request follows, and from where.
#[derive(Debug)]
pub struct Trail {
    /// The generation that it lives under.
    own: Arc<Snapshot>,
    /// Its route's place in that.
    place: usize,
    /// The pool that it waits in.
    pool: Arc<Pool>,
}

impl Trail {
    /// Of a request that has been sent nowhere; `None`: it stays in its pool.
    pub fn of(ctx: &Ctx) -> Option<Trail> {
        let own = ctx.snapshot.clone().filter(|_| ctx.has_no_attempts())?;
        Some(Trail { own, place: ctx.place, pool: ctx.pool.as_ref()?.live.clone() })
    }

    /// Resolves when the route leads to another pool, in whichever generation is the present one by then.
    pub async fn parts(&self, present: &ArcSwap<Snapshot>) {
        loop {
            let snapshot = present.load_full();
            let mut succeeded = pin!(snapshot.succeeded());
            // From here on a reload is not missed.
            succeeded.as_mut().enable();
            if !Arc::ptr_eq(&snapshot, &present.load()) {
                continue;
            }
            match self.find(&snapshot) {
                Some((_, way)) => tokio::select! {
                    () = self.leads_elsewhere(way) => return,
                    () = succeeded => {}
                },
                None => succeeded.await,
            }
        }
    }

    async fn leads_elsewhere(&self, way: &Way) {
        loop {
            let Some(switch) = way.switch() else {
                if self.leads(way) {
                    std::future::pending().await
                }
                return;
            };
            let mut moved = pin!(switch.moved());
            // From here on a move is not missed.
            moved.as_mut().enable();
            if !self.leads(way) {
                return;
            }
            moved.await;
        }
    }

    /// Whether this way leads where the request is.
    fn leads(&self, way: &Way) -> bool {
        way.stop(way.rank()).is_none_or(|stop| Arc::ptr_eq(&stop.served.live, &self.pool))
    }

    /// The route's place and way in the present generation; `None`: it is gone.
    fn find<'a>(&self, present: &'a Arc<Snapshot>) -> Option<(usize, &'a Way)> {
        if Arc::ptr_eq(present, &self.own) {
            return Some((self.place, present.ways.get(self.place)?));
        }
        present.way_of(&self.own.config.routes.get(self.place)?.name)
    }
}

/// If another of its route's pools serves by now, the request goes there, and lives under the `present` generation from then
/// on. Says whether.
///
/// # Errors
/// The refusal that ends it here.
pub fn follow(ctx: &mut Ctx, request: &RequestHeader, present: Arc<Snapshot>) -> Result<bool, Refusal> {
    let Some(trail) = Trail::of(ctx) else { return Ok(false) };
    let Some((place, way)) = trail.find(&present) else { return Ok(false) };
    if trail.leads(way) || ctx.is_over() {
        return Ok(false);
    }
    let before = ctx.deadline;
    admit::enter(ctx, request, way, way.rank())?;
    let limit = ctx.pool.as_ref().and_then(|pool| pool.config.deadline);
    ctx.deadline = limit.map(|limit| deadline(ctx.connection.began(), clock::monotonic(), before, limit));
    (ctx.place, ctx.snapshot) = (place, Some(present));
    Ok(true)
}

/// By when a request must be over that comes `now` to a pool with this `limit`, and had to be by `before` where it was.
///
/// The limit counts from now: what was waited for elsewhere is none of this pool's doing, and no attempt is made that has
/// no time. In all it is no longer than the longer of both limits, so that a promise that both make is kept.
fn deadline(began: Duration, now: Duration, before: Option<Duration>, limit: Duration) -> Duration {
    let from_now = now + limit;
    before.map_or(from_now, |before| from_now.min(before.max(began + limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_request_that_comes_late_has_the_pools_own_time_and_never_more_than_both_allow() {
        for (now, before, limit, expected) in [
            // The pool before had no limit, or a far one.
            (103, None, 1, 104),
            (103, Some(108), 1, 104),
            (107, Some(108), 5, 108),
            // Both promise the same.
            (104, Some(105), 5, 105),
            // This one allows for more.
            (101, Some(102), 10, 110),
        ] {
            let by = deadline(s(100), s(now), before.map(s), s(limit));
            assert_eq!(by, s(expected), "at {now}, {before:?} before, with {limit}");
            assert!(by > s(now));
        }
    }
}
