//! The only `ProxyHttp`: each hook calls a step and holds no decision of its own.
//!
//! Hooks run inside their connection's task (`listener`), which is how a new context finds its connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::protocols::http::ServerSession;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};

use super::ctx::{Again, Answer, Ctx};
use super::follow::{self, Trail};
use super::headers::{self, Hop};
use super::peer::{self, Connection, Purpose};
use super::pick::{self, Picked, WhenFull, Wish};
use super::published::CompositeView;
use super::refusal::{self, Refusal};
use super::{Proxy, admit, dial, failure, max_forwards, published, upgrade};
use crate::clock;
use crate::listener::{self, CONNECTION};
use crate::pool::Member;
use crate::snapshot::Served;

/// Interim answers (1xx) passed on for one request; a member that sends more never comes to an end.
const INTERIM_ANSWERS: u32 = 100;

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

    /// How the member is reached by its pool as this request knows it, or, where a reload has brought the member since, as it
    /// is now.
    fn way_to(
        &self,
        member: &Arc<Member>,
        pool: &Served,
        remaining: Option<Duration>,
        connection: Connection,
        purpose: Purpose,
    ) -> Option<Box<HttpPeer>> {
        peer::peer(pool, member, remaining, connection, purpose.clone()).or_else(|| {
            let present = self.proxy.snapshot.load();
            peer::peer(present.pools.get(&pool.config.name)?, member, remaining, connection, purpose)
        })
    }
}

#[async_trait]
impl ProxyHttp for Hooks {
    /// Boxed: Pingora moves it from future to future.
    type CTX = Box<Ctx>;

    fn new_ctx(&self) -> Box<Ctx> {
        let connection = CONNECTION.with(Arc::clone);
        connection.request_begins();
        let in_flight = self.proxy.traffic.request(&connection);
        Box::new(Ctx::new(connection, self.proxy.snapshot.load_full(), self.proxy.log.clone(), in_flight))
    }

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {
        // Pingora's compression module costs every request a little and is never switched on.
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<bool> {
        let limits = ctx.connection.listening().limits();
        session.set_read_timeout(Some(limits.body_timeout));
        session.set_total_drain_timeout(Some(limits.body_timeout));
        if let ServerSession::H1(h1) = session.as_downstream() {
            ctx.keep_raw(h1.get_headers_raw_bytes());
        }
        ctx.connection.set_request_whole(session.is_body_done());
        if let Some(length) = headers::body_length(session.req_header()) {
            ctx.connection.expect_body(length);
        }
        // To an HTTP/1.0 client no interim answer may be sent (RFC 9110 section 15.2).
        let old_client = session.req_header().version == Version::HTTP_10;
        session.set_ignore_info_resp(old_client);
        if let Err(refusal) = admit::admit(ctx, session.req_header(), limits) {
            return Err(refuse(ctx, refusal));
        }
        if let Some(door) = ctx.door.clone() {
            if self.is_ending() || !ctx.connection.request_is_whole() {
                session.set_keepalive(None);
            }
            let report = self.proxy.composites.report(&door.composite);
            // None: a reload has just taken it out.
            let report = report.ok_or_else(|| refuse(ctx, Refusal::NoRoute))?;
            let view = match self.is_ending() {
                true => CompositeView::of_ending(&report),
                false => CompositeView::new(&report),
            };
            let status = published::answer(session, &view, &ctx.request_id).await?;
            ctx.answered(status.as_u16());
            return Ok(true);
        }
        if max_forwards::left(session.req_header()) == Some(0) {
            if self.is_ending() || !ctx.connection.request_is_whole() {
                session.set_keepalive(None);
            }
            let status = max_forwards::answer(session, &ctx.request_id).await?;
            ctx.answered(status.as_u16());
            return Ok(true);
        }
        // The first pick is made here: Pingora keeps the client's connection over a refusal only this early.
        ctx.picked = Some(pick(&self.proxy, session, ctx).await?);
        Ok(false)
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<Box<HttpPeer>> {
        ctx.asks_for_tunnel = upgrade::is_asked_for(session.req_header());
        let (picked, connection) = match (ctx.again.take(), ctx.picked.take()) {
            (Some(lease), _) => (Picked { lease, waited: Duration::ZERO, queued: Duration::ZERO }, Connection::Fresh),
            (None, Some(picked)) => (picked, Connection::Any),
            (None, None) => (pick(&self.proxy, session, ctx).await?, Connection::Any),
        };
        let Some(pool) = ctx.pool.clone() else { return Err(refuse(ctx, Refusal::Internal)) };
        let purpose = if ctx.asks_for_tunnel { Purpose::Tunnel(ctx.connection.clone()) } else { Purpose::Exchange };
        let Some(peer) = self.way_to(picked.lease.member(), &pool, ctx.remaining(), connection, purpose) else {
            return Err(refuse(ctx, Refusal::NoMember));
        };
        ctx.attempt_begins(picked);
        ctx.limit_attempt(Answer::Awaited);
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
        ctx.attempt_connected(reused);
        if let Some(counted) = digest.and_then(dial::counted) {
            ctx.link = counted.link.take_up();
            ctx.link_was_given_up = ctx.link.is_none();
            if counted.has_waited && !reused {
                // The member has not been asked for anything before this.
                ctx.limit_attempt(Answer::Awaited);
            }
        }
        if ctx.link_was_given_up {
            return Err(Error::new_up(ErrorType::ConnectionClosed));
        }
        ctx.awaits_rescue(again(session));
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        up: &mut RequestHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        let client = session.req_header();
        let (Some(pool), Some(lease)) = (&ctx.pool, &ctx.lease) else { return Ok(()) };
        let hop = Hop {
            peer_text: ctx.connection.peer(),
            peer_is_trusted: ctx.peer_is_trusted,
            client: ctx.client,
            scheme: "http",
            host: admit::host(client),
            request_id: &ctx.request_id,
        };
        headers::upward(up, client, hop, &pool.config.upstream.host, || pool.authority_of(&lease.member().key().name))
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        answer: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        let switches = answer.status == StatusCode::SWITCHING_PROTOCOLS;
        if switches && !upgrade::is_answered(session.req_header(), answer) {
            // A server must not switch to what nobody asked for (RFC 9110 section 7.8).
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "unsolicited 101").into_up());
        }
        if answer.status.is_informational() && !switches && ctx.one_more_interim_answer() > INTERIM_ANSWERS {
            return Err(Error::explain(ErrorType::H1Error, "too many interim answers").into_up());
        }
        if headers::promises_what_cannot_be(answer)
            && let Some(lease) = &ctx.lease
        {
            lease.member().leave_connections();
        }
        headers::downward(answer)?;
        if switches || !answer.status.is_informational() {
            ctx.attempt_answered(answer.status.as_u16());
            ctx.limit_attempt(if switches { Answer::Tunnel } else { Answer::Begun });
            if switches {
                // The stream keeps the limits of a tunnel: a timeout here would count one way alone.
                session.set_read_timeout(None);
            }
        }
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        answer: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        if answer.status == StatusCode::SWITCHING_PROTOCOLS || !answer.status.is_informational() {
            ctx.answering(answer.status.as_u16());
        }
        // Over an interim answer the rest of the request is only to come; Pingora would close the connection for it.
        let interim = answer.status.is_informational() && answer.status != StatusCode::SWITCHING_PROTOCOLS;
        session.set_close_on_response_before_downstream_finish(!interim);
        if session.req_header().version == Version::HTTP_10 {
            // Such a client knows no chunks: the end of the connection is the end of the answer (RFC 9112 section 6.1).
            answer.remove_header(&header::TRANSFER_ENCODING);
        }
        if self.is_ending() {
            session.set_keepalive(None);
        }
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
        failure::exchanging(ctx, session, e, reused)
    }

    async fn fail_to_proxy(&self, session: &mut Session, e: &Error, ctx: &mut Box<Ctx>) -> FailToProxy {
        let silent = FailToProxy { error_code: 0, can_reuse_downstream: false };
        if ctx.answer_has_begun() {
            return silent;
        }
        failure::elsewhere(ctx, e);
        let Some(refusal) = ctx.refusal else { return silent };
        let keep = ctx.has_no_attempts() && ctx.connection.request_is_whole() && refusal != Refusal::BadRequest;
        if !keep || self.is_ending() {
            session.set_keepalive(None);
        }
        if refusal::send(session, refusal, &ctx.request_id).await.is_err() {
            return silent;
        }
        ctx.answered(refusal.status().as_u16());
        if !keep {
            // The request is over; what the client still sends has a limit of its own.
            ctx.connection.request_must_end_by(None);
            // Pingora would drop the connection as it is; over an unread body that may take the answer back.
            session.as_downstream_mut().shutdown().await;
        }
        FailToProxy { error_code: refusal.status().as_u16(), can_reuse_downstream: keep }
    }

    async fn logging(&self, session: &mut Session, _e: Option<&Error>, ctx: &mut Box<Ctx>) {
        ctx.finish(session);
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Box<Ctx>, _error: &Error) -> bool {
        true // the access log says it, with the attempts
    }

    fn suppress_proxy_warn_log(&self, _: &Session, _: &Box<Ctx>, _: &Error, _: ProxyWarnLogContext) -> bool {
        true
    }
}

/// Picks a member for the next attempt, within the request's own time and as long as the client is there.
///
/// One that waits and has been sent nowhere goes where its route leads meanwhile: a pool that cannot serve is not waited
/// for while another one can (health.md §8). A retry stays in its pool.
async fn pick(proxy: &Proxy, session: &mut Session, ctx: &mut Ctx) -> Result<Picked> {
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
    session: &mut Session,
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
    Wish { avoided: ctx.avoided(), key, limit: ctx.remaining(), queued: ctx.queued, when_full }
}

/// Resolves when the client has left. What it sends stays where it is.
async fn left(session: &mut Session, connection: &listener::Connection) {
    let _watch = connection.watch();
    if let ServerSession::H1(h1) = session.as_downstream_mut() {
        match h1.idle().await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    std::future::pending().await
}

/// Whether what was sent of the request may be sent once more.
fn again(session: &Session) -> Again {
    let kept = !session.as_ref().retry_buffer_truncated();
    if kept && session.req_header().method.is_idempotent() { Again::May } else { Again::MayNot }
}

/// Marks the request as refused and makes the error that takes it to `fail_to_proxy`.
fn refuse(ctx: &mut Ctx, refusal: Refusal) -> Box<Error> {
    // A retry that finds nobody leaves the request with what failed it first.
    ctx.refusal.get_or_insert(refusal);
    Error::new_in(ErrorType::HTTPStatus(refusal.status().as_u16()))
}
