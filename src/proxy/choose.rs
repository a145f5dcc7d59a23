//! A member for the next attempt, and the wait for one while the client is there.
//!
//! Not here: who can be picked (`pick`), where a request that waits may go (`follow`).

use std::time::Duration;

use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorType, Result};

use super::Proxy;
use super::ctx::Ctx;
use super::follow::{self, Trail};
use super::pick::{self, Picked, WhenFull, Wish};
use super::refusal::Refusal;
use super::steps::refuse;
use crate::clock;
use crate::listener;
use crate::snapshot::Served;

/// Picks a member for the next attempt, within the request's own time and as long as the client is there.
///
/// One that waits and has been sent nowhere goes where its route leads meanwhile: a pool that cannot serve is not waited
/// for while another one can (health.md §8). A retry stays in its pool.
pub async fn choose(proxy: &Proxy, session: &mut ServerSession, ctx: &mut Ctx) -> Result<Picked> {
    // Whatever was sent may be processed already: such a request is answered, and not kept waiting for room.
    let when_full = if ctx.was_sent() { WhenFull::GiveUp } else { WhenFull::Queue };
    let mut before = Duration::ZERO;
    loop {
        let Some(pool) = ctx.pool.clone() else { return Err(refuse(ctx, Refusal::Internal)) };
        let picked = match pick::now(&pool.live, wish(ctx, when_full)) {
            Some(picked) => picked,
            None => {
                let waited = wait(proxy, session, ctx, &pool, when_full).await?;
                let present = proxy.snapshot.load_full();
                if follow::follow(ctx, session.req_header(), present).map_err(|r| refuse(ctx, r))? {
                    // What was picked, if anything, is given back.
                    before += waited.time();
                    continue;
                }
                match waited {
                    Waited::Picked(picked) => picked,
                    // Nobody would wait for an answer.
                    Waited::Moved(waited) if ctx.is_over() => Err(pick::Nobody { refusal: Refusal::Deadline, waited }),
                    Waited::Moved(waited) => {
                        before += waited;
                        continue;
                    }
                }
            }
        };
        ctx.waits_since = None;
        return match picked {
            Ok(picked) => Ok(Picked { waited: picked.waited + before, ..picked }),
            Err(pick::Nobody { refusal, waited }) => {
                ctx.nobody_picked(waited + before);
                if refusal == Refusal::Overloaded && ctx.refusal.is_none() {
                    pool.live.turn_away();
                }
                Err(refuse(ctx, refusal))
            }
        };
    }
}

/// How a wait ended.
enum Waited {
    /// By what was waited for, or by its impossibility.
    Picked(std::result::Result<Picked, pick::Nobody>),
    /// The route leads elsewhere, after so long.
    Moved(Duration),
}

impl Waited {
    fn time(&self) -> Duration {
        match self {
            Waited::Picked(Ok(picked)) => picked.waited,
            Waited::Picked(Err(nobody)) => nobody.waited,
            Waited::Moved(waited) => *waited,
        }
    }
}

async fn wait(
    proxy: &Proxy,
    session: &mut ServerSession,
    ctx: &mut Ctx,
    pool: &Served,
    when_full: WhenFull,
) -> Result<Waited> {
    let began = clock::monotonic();
    ctx.waits_since.get_or_insert(began);
    let waited = || clock::monotonic().saturating_sub(began);
    let trail = Trail::of(ctx);
    let parts = async {
        match &trail {
            Some(trail) => trail.parts(&proxy.snapshot).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        picked = pick::later(&pool.live, wish(ctx, when_full)) => Ok(Waited::Picked(picked)),
        () = left(session, &ctx.connection) => {
            ctx.hung_up(waited());
            Err(Error::new_down(ErrorType::ConnectionClosed))
        }
        () = parts => Ok(Waited::Moved(waited())),
    }
}

fn wish(ctx: &Ctx, when_full: WhenFull) -> Wish<'_> {
    let key = ctx.hash_key.as_deref();
    let bound_to = ctx.claim.member();
    Wish { avoided: ctx.avoided(), key, bound_to, limit: ctx.remaining(), queued: ctx.queued, when_full }
}

/// Resolves when the client has left. What it sends stays where it is.
async fn left(session: &mut ServerSession, connection: &listener::Connection) {
    let _watch = connection.watch();
    if let ServerSession::H1(h1) = session {
        match h1.idle().await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    std::future::pending().await
}
