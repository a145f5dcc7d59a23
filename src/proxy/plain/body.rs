//! The body of an answer, passed on as it comes: no more is read before the client has taken what was, nor once it has left.

use bytes::BytesMut;
use futures_util::FutureExt;
use http::header::CONTENT_LENGTH;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v1::client::HttpSession as Member;
use pingora::{Error, Result};
use tokio::task::unconstrained;

use super::super::ctx::Ctx;
use super::left;

/// Chunks that are here together go on together, up to about so many bytes: each by itself would be a packet.
const TOGETHER: usize = 16 << 10;

/// Passes the body on, all of it but its end.
///
/// # Errors
/// The member broke off or was silent for too long, or the client has left, or the request's time is over.
pub async fn passes(session: &mut ServerSession, ctx: &mut Ctx, member: &mut Member) -> Result<()> {
    let in_chunks = member.resp_header().is_some_and(|answer| !answer.headers.contains_key(CONTENT_LENGTH));
    let mut together = BytesMut::new();
    let mut has_begun = false;
    while !member.is_body_done() {
        if std::mem::replace(&mut has_begun, true) {
            // Where a body comes without a pause nothing is waited for, and nobody else would look at the client.
            still_wanted(session)?;
        }
        let read = tokio::select! {
            // First, or what is buffered of the answer would be sent before its body is looked for.
            biased;
            read = member.read_body_ref() => read,
            error = left(session) => return Err(error),
        };
        let Some(bytes) = read.map_err(Error::into_up)? else { break };
        if !in_chunks {
            write(session, ctx, bytes).await?;
            continue;
        }
        together.extend_from_slice(bytes);
        let gathered = gather(member, &mut together);
        write(session, ctx, &together).await?;
        together.clear();
        gathered.map_err(Error::into_up)?;
    }
    Ok(())
}

/// Adds what is here already.
fn gather(member: &mut Member, together: &mut BytesMut) -> Result<()> {
    while together.len() < TOGETHER && !member.is_body_done() {
        match unconstrained(member.read_body_ref()).now_or_never() {
            Some(read) => match read? {
                Some(bytes) => together.extend_from_slice(bytes),
                None => break,
            },
            None => break,
        }
    }
    Ok(())
}

async fn write(session: &mut ServerSession, ctx: &mut Ctx, bytes: &[u8]) -> Result<()> {
    ctx.handed_back += bytes.len() as u64;
    match session {
        // An empty chunk would be the last.
        ServerSession::H1(client) if !bytes.is_empty() => {
            client.write_body(bytes).await.map(drop).map_err(Error::into_down)
        }
        _ => Ok(()),
    }
}

/// The client is there, and its time is not over.
fn still_wanted(session: &mut ServerSession) -> Result<()> {
    unconstrained(left(session)).now_or_never().map_or(Ok(()), Err)
}
