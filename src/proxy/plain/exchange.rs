//! One attempt at a member: the request to it, and its answer from it to the client.

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Version};
use pingora::connectors::TransportConnector;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v1::client::HttpSession as Member;
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType, Result};

use super::super::ctx::{Again, Ctx};
use super::super::failure::{self, Sent};
use super::super::{Proxy, headers, steps};
use super::{body, left};

/// Tries a member. `received` is then how much came of the answer's body.
///
/// # Errors
/// No answer was passed on, or not all of one; the error says whether to try again.
pub async fn attempt(
    proxy: &Proxy,
    members: &TransportConnector,
    session: &mut ServerSession,
    ctx: &mut Ctx,
    received: &mut u64,
) -> Result<()> {
    let peer = steps::attempt(proxy, session, ctx).await?;
    let connected = tokio::select! {
        biased;
        connected = members.get_stream(&*peer) => connected.map_err(Error::into_up),
        error = left(session) => Err(error),
    };
    let (stream, reused) = match connected {
        Ok(connected) => connected,
        Err(error) => return Err(failure::connecting(ctx, error)),
    };
    let mut member = member(stream, &peer);
    let exchanged = exchange(proxy, session, ctx, &mut member, reused).await;
    *received = member.body_bytes_received() as u64;
    let Err(error) = exchanged else {
        member.respect_keepalive();
        if let Some(stream) = member.reuse().await {
            members.release_stream(stream, peer.reuse_hash(), peer.idle_timeout());
        }
        return Ok(());
    };
    // The member sees its connection end before its seat is free.
    drop(member);
    let idempotent = session.req_header().method.is_idempotent();
    let sent = Sent { idempotent, whole_body: true, received: *received };
    Err(failure::exchanging(ctx, sent, error, reused))
}

fn member(stream: Stream, peer: &HttpPeer) -> Member {
    let mut member = Member::new_with_options(stream, peer);
    member.read_timeout = peer.options.read_timeout;
    member.write_timeout = peer.options.write_timeout;
    member
}

async fn exchange(
    proxy: &Proxy,
    session: &mut ServerSession,
    ctx: &mut Ctx,
    member: &mut Member,
    reused: bool,
) -> Result<()> {
    let again = if session.req_header().method.is_idempotent() { Again::May } else { Again::MayNot };
    steps::connected(ctx, reused, member.digest().proxy_digest.as_deref(), again)?;
    let up = request(ctx, session.req_header())?;
    member.write_request_header(up).await.map_err(Error::into_up)?;
    while !header_passes(proxy, session, ctx, member).await? {}
    body::passes(session, ctx, member).await?;
    ctx.answer_ends();
    session.finish_body().await.map_err(Error::into_down)
}

/// The request as the member gets it.
fn request(ctx: &Ctx, client: &RequestHeader) -> Result<Box<RequestHeader>> {
    let mut up = Box::new(client.clone());
    up.set_version(Version::HTTP_11);
    // Of what belongs to one hop a plain request has no more. Where Pingora takes it out, so that fields keep their order.
    up.remove_header(&CONNECTION);
    steps::upward(ctx, client, &mut up)?;
    Ok(up)
}

/// Passes the next header of the answer on; says whether it was the last.
async fn header_passes(proxy: &Proxy, session: &mut ServerSession, ctx: &mut Ctx, member: &mut Member) -> Result<bool> {
    tokio::select! {
        biased;
        read = member.read_response() => drop(read.map_err(Error::into_up)?),
        error = left(session) => return Err(error),
    }
    let is_whole = member.is_body_done();
    let Some(came) = member.resp_header() else {
        return Error::e_explain(ErrorType::InternalError, "an answer without a header");
    };
    let mut answer = Box::new(came.clone());
    steps::answered(session, ctx, &mut answer)?;
    if !is_whole {
        chunk(&mut answer, &session.req_header().method)?;
    }
    steps::downward(proxy, session, ctx, &mut answer);
    let is_last = !answer.status.is_informational();
    session.write_response_header(answer).await.map_err(Error::into_down)?;
    Ok(is_last)
}

/// Where only the end of its connection tells the end of a body, that goes on in chunks, so that the client's connection need
/// not end with it.
fn chunk(answer: &mut ResponseHeader, method: &Method) -> Result<()> {
    let is_framed = answer.headers.contains_key(TRANSFER_ENCODING) || answer.headers.contains_key(CONTENT_LENGTH);
    if !is_framed && headers::has_body(answer, method) {
        answer.set_version(Version::HTTP_11);
        answer.insert_header(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
    }
    Ok(())
}
