//! The only `ProxyHttp`: each hook calls a step and holds no decision of its own.
//!
//! Hooks run inside their connection's task (`listener`), which is how a new context finds its connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::protocols::http::ServerSession;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result, RetryType};

use super::blame::{self, Blame, Fault, Stage};
use super::ctx::Ctx;
use super::headers::{self, Hop};
use super::peer::{self, Connection};
use super::pick::{self, Picked};
use super::refusal::{self, Refusal};
use super::retry::{self, Next, Replay};
use super::{Proxy, admit};
use crate::clock;
use crate::listener::{CONNECTION, Cut};
use crate::telemetry::AttemptResult;

/// Pingora's view of the proxy.
#[derive(Debug)]
pub struct Hooks {
    proxy: Proxy,
}

impl Hooks {
    /// Hooks around what every request needs.
    pub fn new(proxy: Proxy) -> Hooks {
        Hooks { proxy }
    }

    fn is_ending(&self) -> bool {
        *self.proxy.ending.borrow()
    }
}

#[async_trait]
impl ProxyHttp for Hooks {
    type CTX = Ctx;

    fn new_ctx(&self) -> Ctx {
        let connection = CONNECTION.with(Arc::clone);
        connection.request_begins(clock::monotonic());
        Ctx::new(connection, self.proxy.snapshot.load_full(), self.proxy.log.clone(), self.proxy.traffic.request())
    }

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {
        // Pingora's compression module costs every request a little and is never switched on.
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Ctx) -> Result<bool> {
        let limits = ctx.connection.listening().limits();
        session.set_read_timeout(Some(limits.body_timeout));
        session.set_total_drain_timeout(Some(limits.body_timeout));
        if let ServerSession::H1(h1) = session.as_downstream() {
            ctx.keep_raw(h1.get_headers_raw_bytes());
        }
        match admit::admit(ctx, session.req_header(), limits) {
            Ok(()) => Ok(false),
            Err(refusal) => Err(refuse(ctx, refusal)),
        }
    }

    async fn upstream_peer(&self, _session: &mut Session, ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
        let Some(pool) = ctx.pool.clone() else { return Err(refuse(ctx, Refusal::Internal)) };
        let (picked, connection) = match ctx.again.take() {
            Some(lease) => (Picked { lease, waited: Duration::ZERO }, Connection::Fresh),
            None => match pick::pick(&pool.live, ctx.avoided()).await {
                Ok(picked) => (picked, Connection::Any),
                Err(refusal) => {
                    ctx.nobody_picked();
                    return Err(refuse(ctx, refusal));
                }
            },
        };
        let Some(address) = picked.lease.member().address() else { return Err(refuse(ctx, Refusal::NoMember)) };
        ctx.attempt_begins(picked);
        ctx.limit_attempt(pool.config.retries.per_try_timeout);
        Ok(peer::peer(&pool, address, ctx.remaining(), connection))
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        reused: bool,
        _peer: &HttpPeer,
        _fd: std::os::fd::RawFd,
        _digest: Option<&Digest>,
        ctx: &mut Ctx,
    ) -> Result<()> {
        ctx.attempt_connected(reused);
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        up: &mut RequestHeader,
        ctx: &mut Ctx,
    ) -> Result<()> {
        let client = session.req_header();
        let (Some(pool), Some(lease)) = (&ctx.pool, &ctx.lease) else { return Ok(()) };
        let hop = Hop {
            peer: ctx.connection.client().ip().to_canonical(),
            peer_is_trusted: ctx.peer_is_trusted,
            client: ctx.client,
            scheme: "http",
            host: admit::host(client),
            request_id: &ctx.request_id,
        };
        headers::upward(up, client, hop, &pool.config.upstream.host, &lease.member().key().name)
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        answer: &mut ResponseHeader,
        ctx: &mut Ctx,
    ) -> Result<()> {
        if !answer.status.is_informational() || answer.status == http::StatusCode::SWITCHING_PROTOCOLS {
            ctx.attempt_answered(answer.status.as_u16());
            ctx.limit_attempt(None);
        }
        headers::downward(answer);
        Ok(())
    }

    async fn response_filter(&self, session: &mut Session, answer: &mut ResponseHeader, ctx: &mut Ctx) -> Result<()> {
        if !answer.status.is_informational() || answer.status == http::StatusCode::SWITCHING_PROTOCOLS {
            ctx.answering(answer.status.as_u16());
        }
        if self.is_ending() {
            session.set_keepalive(None);
        }
        Ok(())
    }

    fn fail_to_connect(&self, session: &mut Session, _peer: &HttpPeer, ctx: &mut Ctx, e: Box<Error>) -> Box<Error> {
        ctx.spent.dials += 1;
        let fault = judge(ctx, &e, Stage::Connect);
        let whole_body = !session.as_ref().retry_buffer_truncated();
        after_failure(
            ctx,
            session,
            e,
            fault,
            Replay { idempotent: false, whole_body, answer_begun: false, idle_race: false },
        )
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        e: Box<Error>,
        ctx: &mut Ctx,
        reused: bool,
    ) -> Box<Error> {
        let idle_race = reused && matches!(e.retry, RetryType::ReusedOnly);
        if idle_race {
            ctx.spent.races += 1;
        } else {
            ctx.spent.attempts += 1;
        }
        let fault = judge(ctx, &e, Stage::Exchange);
        let replay = Replay {
            idempotent: session.req_header().method.is_idempotent(),
            whole_body: !session.as_ref().retry_buffer_truncated(),
            answer_begun: ctx.answer_has_begun(),
            idle_race,
        };
        after_failure(ctx, session, e, fault, replay)
    }

    async fn fail_to_proxy(&self, session: &mut Session, e: &Error, ctx: &mut Ctx) -> FailToProxy {
        let silent = FailToProxy { error_code: 0, can_reuse_downstream: false };
        if ctx.answer_has_begun() {
            return silent;
        }
        if ctx.refusal.is_none() && ctx.fault.is_none() {
            // A filter or Pingora itself gave up outside an attempt.
            let fault = judge(ctx, e, Stage::Exchange);
            ctx.fault = Some(fault);
            ctx.refusal = fault.refusal;
        }
        let Some(refusal) = ctx.refusal else { return silent };
        // Pingora keeps a connection only if the request was refused before a pool was asked. An answer over an unread
        // body ends it too; so does the end of the process.
        let early = ctx.pool.is_none() && refusal != Refusal::BadRequest;
        let reuse = early && session.is_body_done() && !self.is_ending();
        if !reuse {
            session.set_keepalive(None);
        }
        match refusal::send(session, refusal, &ctx.request_id).await {
            Ok(()) => {
                ctx.answering(refusal.status().as_u16());
                FailToProxy { error_code: refusal.status().as_u16(), can_reuse_downstream: reuse }
            }
            Err(_) => silent,
        }
    }

    async fn logging(&self, session: &mut Session, _e: Option<&Error>, ctx: &mut Ctx) {
        ctx.finish(session);
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Ctx, _error: &Error) -> bool {
        true // the access log says it, with the attempts
    }

    fn suppress_proxy_warn_log(&self, _: &Session, _: &Ctx, _: &Error, _: ProxyWarnLogContext) -> bool {
        true
    }
}

/// Marks the request as refused and makes the error that takes it to `fail_to_proxy`.
fn refuse(ctx: &mut Ctx, refusal: Refusal) -> Box<Error> {
    // A retry that finds nobody leaves the request with what failed it first.
    ctx.refusal.get_or_insert(refusal);
    Error::new_in(ErrorType::HTTPStatus(refusal.status().as_u16()))
}

fn judge(ctx: &Ctx, error: &Error, stage: Stage) -> Fault {
    if ctx.remaining().is_some_and(|left| left.is_zero()) {
        return blame::judge(error, stage, Cut::Deadline);
    }
    match ctx.connection.cut() {
        // The alarm rang for this attempt alone.
        Cut::Deadline => Fault {
            blame: Blame::Member,
            stage,
            result: AttemptResult::Timeout,
            refusal: Some(Refusal::UpstreamTimeout),
        },
        cut => blame::judge(error, stage, cut),
    }
}

/// The attempt failed: what follows.
fn after_failure(ctx: &mut Ctx, session: &Session, mut e: Box<Error>, fault: Fault, replay: Replay) -> Box<Error> {
    let lease = ctx.attempt_ended(fault.result, session.upstream_body_bytes_received() as u64);
    let next = match &ctx.pool {
        Some(pool) => {
            let budget = || pool.live.budget().spend();
            retry::decide(fault, replay, ctx.spent, pool.config.retries, budget)
        }
        None => Next::Stop,
    };
    ctx.fault = Some(fault);
    ctx.refusal = fault.refusal.filter(|_| !ctx.answer_has_begun());
    match next {
        Next::Stop => {}
        Next::Another => ctx.tried.extend(lease.map(|lease| lease.member().id())),
        Next::SameAfresh => ctx.again = lease,
    }
    e.set_retry(next != Next::Stop);
    e
}
