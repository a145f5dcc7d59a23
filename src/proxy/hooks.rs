//! The only `ProxyHttp`: each hook takes a step and holds no decision of its own.
//!
//! Hooks run inside their connection's task (`listener`), which is how a new context finds its connection.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, Result};

use super::Proxy;
use super::ctx::{Again, Answer, Ctx};
use super::failure::{self, Sent};
use super::leaving;
use super::line::Told;
use super::steps::{self, Admitted, Farewell};
use crate::clock;
use crate::listener::keep_for_dial;

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
}

#[async_trait]
impl ProxyHttp for Hooks {
    /// Boxed: Pingora moves it from future to future.
    type CTX = Box<Ctx>;

    fn new_ctx(&self) -> Box<Ctx> {
        steps::begin(&self.proxy)
    }

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {
        // Pingora's compression module costs every request a little and is never switched on.
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<bool> {
        let admitted = steps::admit(&self.proxy, &mut session.downstream_session, ctx).await?;
        Ok(admitted == Admitted::Answered)
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<Box<HttpPeer>> {
        let mut peer = steps::attempt(&self.proxy, &mut session.downstream_session, ctx).await?;
        leaving::may_leave(&mut peer, &ctx.connection);
        // While Pingora dials it does not look at the client.
        keep_for_dial(&session.downstream_session, &ctx.connection);
        Ok(peer)
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        ctx.passed_on += body.as_ref().map_or(0, Bytes::len) as u64;
        if end && !ctx.is_tunnel() && !ctx.connection.request_is_whole() {
            ctx.connection.set_request_whole(true);
            let is_awaited = !ctx.attempt_has_answer();
            if let Some(lease) = ctx.lease.as_mut().filter(|_| is_awaited) {
                lease.await_begins(clock::monotonic);
            }
            // Until now it was for the client to hurry.
            ctx.limit_attempt(if ctx.answer_has_begun() { Answer::Begun } else { Answer::Awaited });
            if !ctx.attempt_has_answer() {
                ctx.awaits_rescue(again(session));
            }
        }
        Ok(())
    }

    async fn connected_to_upstream(
        &self,
        session: &mut Session,
        reused: bool,
        _peer: &HttpPeer,
        _fd: std::os::fd::RawFd,
        digest: Option<&Digest>,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        steps::connected(ctx, reused, digest.and_then(|digest| digest.proxy_digest.as_deref()), again(session))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        up: &mut RequestHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        steps::upward(ctx, session.req_header(), up)
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        answer: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        steps::answered(&mut session.downstream_session, ctx, answer)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        answer: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        steps::downward(&self.proxy, &mut session.downstream_session, ctx, answer);
        Ok(())
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Box<Ctx>,
    ) -> Result<Option<Duration>> {
        ctx.handed_back += body.as_ref().map_or(0, Bytes::len) as u64;
        if end && !ctx.is_tunnel() {
            ctx.answer_ends();
        }
        Ok(None)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Box<Ctx>,
        e: Box<Error>,
    ) -> Box<Error> {
        failure::connecting(ctx, e)
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        e: Box<Error>,
        ctx: &mut Box<Ctx>,
        reused: bool,
    ) -> Box<Error> {
        let sent = Sent {
            idempotent: session.req_header().method.is_idempotent(),
            whole_body: !session.as_ref().retry_buffer_truncated(),
            received: session.upstream_body_bytes_received() as u64,
        };
        failure::exchanging(ctx, sent, e, reused)
    }

    async fn fail_to_proxy(&self, session: &mut Session, e: &Error, ctx: &mut Box<Ctx>) -> FailToProxy {
        match steps::give_up(&self.proxy, &mut session.downstream_session, e, ctx).await {
            // Any status will do: it is for Pingora's own log.
            Farewell::Stay => FailToProxy { error_code: 0, can_reuse_downstream: true },
            Farewell::Leave(error_code) => FailToProxy { error_code, can_reuse_downstream: false },
        }
    }

    async fn logging(&self, session: &mut Session, _e: Option<&Error>, ctx: &mut Box<Ctx>) {
        let received = session.upstream_body_bytes_received() as u64;
        ctx.finish(Told {
            request: session.req_header(),
            received,
            read: session.body_bytes_read() as u64,
            sent: session.body_bytes_sent() as u64,
            upgraded: session.was_upgraded(),
        });
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Box<Ctx>, _error: &Error) -> bool {
        true // the access log says it, with the attempts
    }

    fn suppress_proxy_warn_log(&self, _: &Session, _: &Box<Ctx>, _: &Error, _: ProxyWarnLogContext) -> bool {
        true
    }
}

/// Whether what was sent of the request may be sent once more.
fn again(session: &Session) -> Again {
    let kept = !session.as_ref().retry_buffer_truncated();
    if kept && session.req_header().method.is_idempotent() { Again::May } else { Again::MayNot }
}
