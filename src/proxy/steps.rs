//! The steps of a request at the client's session and the member's answer, for whichever driver takes them.
//!
//! Two do: Pingora's, by the hooks, and our own for plain requests ([`plain`](super::plain)). What is decided is decided here
//! or further down, so that the two cannot differ.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::ServerSession;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};

use super::choose::choose;
use super::ctx::{Again, Answer, Ctx};
use super::headers::{self, Hop};
use super::peer::{self, Connection, Purpose};
use super::pick::Picked;
use super::published::CompositeView;
use super::refusal::{self, Refusal};
use super::{Proxy, admit, dial, failure, max_forwards, published, sticky, upgrade};
use crate::listener::CONNECTION;
use crate::pool::Member;
use crate::snapshot::Served;

/// Interim answers (1xx) passed on for one request; a member that sends more never comes to an end.
const INTERIM_ANSWERS: u32 = 100;

/// Where a request stands that was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// It has its answer, by us.
    Answered,
    /// A member is picked for it.
    Picked,
}

/// What becomes of the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// The next request may come.
    Stay,
    /// It ends, with the answer of this status; 0 where there was none.
    Leave(u16),
}

/// A request's header is whole.
pub fn begin(proxy: &Proxy) -> Box<Ctx> {
    let connection = CONNECTION.with(Arc::clone);
    connection.request_begins();
    let in_flight = proxy.traffic.request(&connection);
    Box::new(Ctx::new(connection, proxy.snapshot.load_full(), proxy.log.clone(), in_flight))
}

/// Admits the request, and answers it or picks the first member for it.
///
/// # Errors
/// It is refused, or its client is gone.
pub async fn admit(proxy: &Proxy, session: &mut ServerSession, ctx: &mut Ctx) -> Result<Admitted> {
    let limits = ctx.connection.listening().limits();
    session.set_read_timeout(Some(limits.body_timeout));
    session.set_total_drain_timeout(Some(limits.body_timeout));
    if let ServerSession::H1(h1) = session {
        ctx.keep_raw(h1.get_headers_raw_bytes());
    }
    ctx.connection.set_request_whole(session.is_body_done());
    if let Some(length) = headers::body_length(session.req_header()) {
        ctx.connection.expect_body(length);
    } else if session.req_header().headers.contains_key(header::TRANSFER_ENCODING) {
        ctx.connection.expect_chunks();
    }
    // To an HTTP/1.0 client no interim answer may be sent (RFC 9110 section 15.2).
    let old_client = session.req_header().version == Version::HTTP_10;
    session.set_ignore_info_resp(old_client);
    // What follows a CONNECT may be bytes for the tunnel that its client hoped for.
    if headers::asks_to_close(session.req_header()) || session.req_header().method == Method::CONNECT {
        session.set_keepalive(None);
    }
    if let Err(refusal) = admit::admit(ctx, session.req_header(), limits) {
        return Err(refuse(ctx, refusal));
    }
    if let Some(door) = ctx.door.clone() {
        if proxy.is_ending() || !ctx.connection.request_is_whole() {
            session.set_keepalive(None);
        }
        let report = proxy.composites.report(&door.composite);
        // None: a reload has just taken it out.
        let report = report.ok_or_else(|| refuse(ctx, Refusal::NoRoute))?;
        let view = match proxy.is_ending() {
            true => CompositeView::of_ending(&report),
            false => CompositeView::new(&report),
        };
        let status = published::answer(session, &view, &ctx.request_id).await?;
        ctx.answered(status.as_u16());
        return Ok(Admitted::Answered);
    }
    if max_forwards::left(session.req_header()) == Some(0) {
        if proxy.is_ending() || !ctx.connection.request_is_whole() {
            session.set_keepalive(None);
        }
        let status = max_forwards::answer(session, &ctx.request_id).await?;
        ctx.answered(status.as_u16());
        return Ok(Admitted::Answered);
    }
    // The first pick is made here: Pingora keeps the client's connection over a refusal only this early.
    ctx.picked = Some(choose(proxy, session, ctx).await?);
    Ok(Admitted::Picked)
}

/// An attempt begins: whom it is made at, and how.
///
/// # Errors
/// There is nobody, or the client is gone.
pub async fn attempt(proxy: &Proxy, session: &mut ServerSession, ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
    ctx.asks_for_tunnel = upgrade::is_asked_for(session.req_header());
    let (picked, connection) = match (ctx.again.take(), ctx.picked.take()) {
        (Some(lease), _) => (Picked { lease, waited: Duration::ZERO, queued: Duration::ZERO }, Connection::Fresh),
        (None, Some(picked)) => (picked, Connection::Any),
        (None, None) => (choose(proxy, session, ctx).await?, Connection::Any),
    };
    let Some(pool) = ctx.pool.clone() else { return Err(refuse(ctx, Refusal::Internal)) };
    let purpose = if ctx.asks_for_tunnel { Purpose::Tunnel(ctx.connection.clone()) } else { Purpose::Exchange };
    let Some(peer) = way_to(proxy, picked.lease.member(), &pool, ctx.remaining(), connection, purpose) else {
        return Err(refuse(ctx, Refusal::NoMember));
    };
    ctx.attempt_begins(picked);
    ctx.limit_attempt(Answer::Awaited);
    ctx.dial_begins();
    Ok(peer)
}

/// The attempt has its connection, of which `digest` was kept, and may be made `again`.
///
/// # Errors
/// Another request needed its place.
pub fn connected(ctx: &mut Ctx, reused: bool, digest: Option<&ProxyDigest>, again: Again) -> Result<()> {
    ctx.dial_ends();
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
    ctx.awaits_rescue(again);
    Ok(())
}

/// Makes of the `client`'s request what the member gets.
///
/// # Errors
/// A value that cannot be sent.
pub fn upward(ctx: &Ctx, client: &RequestHeader, up: &mut RequestHeader) -> Result<()> {
    let (Some(pool), Some(lease)) = (&ctx.pool, &ctx.lease) else { return Ok(()) };
    let hop = Hop {
        peer_text: ctx.connection.peer(),
        peer_is_trusted: ctx.peer_is_trusted,
        client: ctx.client,
        scheme: "http",
        host: admit::host(client),
        request_id: &ctx.request_id,
    };
    sticky::upward(pool, up)?;
    headers::upward(up, client, hop, &pool.config.upstream.host, || pool.authority_of(&lease.member().key().name))
}

/// Takes a member's answer, interim or final.
///
/// # Errors
/// It is none that could be passed on.
pub fn answered(session: &mut ServerSession, ctx: &mut Ctx, answer: &mut ResponseHeader) -> Result<()> {
    ctx.attempt_is_heard = true;
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
        sticky::downward(ctx, session.req_header(), answer)?;
        ctx.attempt_answered(answer.status.as_u16());
        ctx.limit_attempt(if switches { Answer::Tunnel } else { Answer::Begun });
        if switches {
            // The stream keeps the limits of a tunnel: a timeout here would count one way alone.
            session.set_read_timeout(None);
        }
    }
    Ok(())
}

/// Makes of a member's answer what the client gets.
pub fn downward(proxy: &Proxy, session: &mut ServerSession, ctx: &mut Ctx, answer: &mut ResponseHeader) {
    if answer.status == StatusCode::SWITCHING_PROTOCOLS || !answer.status.is_informational() {
        ctx.answering(answer.status.as_u16());
    }
    // Over an interim answer the rest of the request is only to come; Pingora would close the connection for it.
    let interim = answer.status.is_informational() && answer.status != StatusCode::SWITCHING_PROTOCOLS;
    session.set_close_on_response_before_downstream_finish(!interim);
    if session.req_header().version == Version::HTTP_10 {
        // Such a client knows no chunks: the end of the connection is the end of the answer (RFC 9112 section 6.1), and it is
        // told so, whatever it has asked for.
        answer.remove_header(&header::TRANSFER_ENCODING);
        if !answer.headers.contains_key(header::CONTENT_LENGTH)
            && headers::has_body(answer, &session.req_header().method)
        {
            session.set_keepalive(None);
        }
    }
    if proxy.is_ending() {
        session.set_keepalive(None);
    }
}

/// Nothing more is tried: the client gets an answer of ours, unless it has part of one or is gone.
pub async fn give_up(proxy: &Proxy, session: &mut ServerSession, error: &Error, ctx: &mut Ctx) -> Farewell {
    let silent = Farewell::Leave(0);
    if ctx.answer_has_begun() {
        return silent;
    }
    failure::elsewhere(ctx, error);
    let Some(refusal) = ctx.refusal else { return silent };
    let keep = ctx.has_no_attempts() && ctx.connection.request_is_whole() && refusal != Refusal::BadRequest;
    if !keep || proxy.is_ending() {
        session.set_keepalive(None);
    }
    if refusal::send(session, refusal, &ctx.request_id).await.is_err() {
        return silent;
    }
    ctx.answered(refusal.status().as_u16());
    if keep {
        return Farewell::Stay;
    }
    // The request is over; what the client still sends has a limit of its own.
    ctx.connection.request_must_end_by(None);
    // Pingora would drop the connection as it is; over an unread body that may take the answer back.
    session.shutdown().await;
    Farewell::Leave(refusal.status().as_u16())
}

/// Marks the request as refused and makes the error that takes it to [`give_up`].
pub fn refuse(ctx: &mut Ctx, refusal: Refusal) -> Box<Error> {
    // A retry that finds nobody leaves the request with what failed it first.
    ctx.refusal.get_or_insert(refusal);
    Error::new_in(ErrorType::HTTPStatus(refusal.status().as_u16()))
}

/// How the member is reached by its pool as this request knows it, or, where a reload has brought the member since, as it
/// is now.
fn way_to(
    proxy: &Proxy,
    member: &Arc<Member>,
    pool: &Served,
    remaining: Option<Duration>,
    connection: Connection,
    purpose: Purpose,
) -> Option<Box<HttpPeer>> {
    peer::peer(pool, member, remaining, connection, purpose.clone()).or_else(|| {
        let present = proxy.snapshot.load();
        peer::peer(present.pools.get(&pool.config.name)?, member, remaining, connection, purpose)
    })
}
