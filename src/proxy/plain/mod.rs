//! Plain requests, served by a driver of our own over Pingora's pieces: no body goes up, and the answer comes down.
//!
//! Pingora's `HttpProxy` serves everything, and so has two sides that talk over a channel, hooks that are boxed, and a cache to
//! ask. Most requests need none of it: the member is written to, its answer read and passed on as it comes, and all the
//! while the client is only watched. That is what is here, and it decides nothing: the steps are those that the hooks take,
//! in the same order, and Pingora's sessions read and write the HTTP, as there. A test sends the same to both drivers and
//! compares.
//!
//! Not here: requests with a body, and those that ask for another protocol.

mod body;
mod exchange;

use http::header::CONNECTION;
use pingora::apps::{HttpPersistentSettings, ReusedHttpStream};
use pingora::connectors::TransportConnector;
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorType};

use super::ctx::Ctx;
use super::line::Told;
use super::steps::{self, Admitted, Farewell};
use super::{ATTEMPTS_CEILING, Proxy};

/// Whether a request is plain: it has neither a body nor a wish to be told to send one, asks for a path and for no other
/// protocol, and has nothing for this hop alone but whether the connection is to stay.
///
/// What goes to Pingora's driver without need costs more and is served all the same. So whatever asks for a thought goes there.
pub fn is_plain(request: &RequestHeader) -> bool {
    let is_path = matches!(request.raw_path(), [b'/', ..] | b"*");
    let mut connection = request.headers.get_all(CONNECTION).iter();
    is_path
        && request.headers.keys().all(|name| goes_on(name.as_str()) || *name == CONNECTION)
        && connection
            .all(|value| [&b"keep-alive"[..], b"close"].iter().any(|word| value.as_bytes().eq_ignore_ascii_case(word)))
}

/// Whether a field of this name goes on to the member, whatever it says. `close` would be taken out where `Connection` says so.
fn goes_on(name: &str) -> bool {
    let stays = matches!(
        name,
        "transfer-encoding"
            | "content-length"
            | "expect"
            | "upgrade"
            | "connection"
            | "close"
            | "keep-alive"
            | "te"
            | "trailer"
            | "http2-settings"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
    );
    !stays
}

/// Serves a plain request, or a CONNECT, which is refused; its header was read. Returns the connection where it can have another.
pub async fn serve(
    proxy: &Proxy,
    members: &TransportConnector,
    mut session: ServerSession,
) -> Option<ReusedHttpStream> {
    let mut ctx = steps::begin(proxy);
    let mut received = 0;
    let farewell = match steps::admit(proxy, &mut session, &mut ctx).await {
        Ok(Admitted::Answered) => Farewell::Stay,
        Ok(Admitted::Picked) => attempts(proxy, members, &mut session, &mut ctx, &mut received).await,
        Err(error) => steps::give_up(proxy, &mut session, &error, &mut ctx).await,
    };
    ctx.finish(Told {
        request: session.req_header(),
        received,
        read: session.body_bytes_read() as u64,
        sent: session.body_bytes_sent() as u64,
        upgraded: false,
    });
    if farewell != Farewell::Stay {
        return None;
    }
    let settings = HttpPersistentSettings::for_session(&session);
    let stream = session.finish().await.ok().flatten()?;
    Some(ReusedHttpStream::from_reusable_stream(stream, settings))
}

/// Tries until an answer is passed on or nothing more is to be tried.
async fn attempts(
    proxy: &Proxy,
    members: &TransportConnector,
    session: &mut ServerSession,
    ctx: &mut Ctx,
    received: &mut u64,
) -> Farewell {
    let mut attempts = 0;
    loop {
        let Err(error) = exchange::attempt(proxy, members, session, ctx, received).await else { return Farewell::Stay };
        attempts += 1;
        if !error.retry() || attempts == ATTEMPTS_CEILING {
            // An attempt that failed is the connection's last, as it is with Pingora.
            return match steps::give_up(proxy, session, &error, ctx).await {
                Farewell::Stay => Farewell::Leave(0),
                leave => leave,
            };
        }
    }
}

/// Resolves when the client has left, or its time is over. What it sends stays where it is: its next request.
async fn left(session: &mut ServerSession) -> Box<Error> {
    let ServerSession::H1(client) = session else { return std::future::pending().await };
    match client.idle().await {
        Ok(0) => Error::explain(ErrorType::ConnectionClosed, "the client has left").into_down(),
        // Of a request that is whole the stream gives nothing more.
        Ok(_) => std::future::pending().await,
        Err(error) => error.into_down(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_a_thought_is_not_plain() {
        // (the target, the fields, whether it is plain)
        type Row<'a> = (&'a str, &'a [(&'static str, &'a str)], bool);
        let rows: &[Row<'_>] = &[
            ("/", &[], true),
            ("*", &[("host", "a")], true),
            ("/a?b", &[("host", "a"), ("cookie", "b"), ("connection", "keep-alive")], true),
            ("/", &[("connection", "Close")], true),
            ("/", &[("connection", "close"), ("connection", "keep-alive")], true),
            ("/", &[("connection", "close, keep-alive")], false),
            ("/", &[("connection", "close"), ("close", "b")], false),
            ("/", &[("connection", "cookie")], false),
            ("/", &[("connection", "")], false),
            ("http://a/", &[], false),
            ("a", &[], false),
            ("/", &[("content-length", "0")], false),
            ("/", &[("transfer-encoding", "chunked")], false),
            ("/", &[("expect", "100-continue")], false),
            ("/", &[("upgrade", "websocket")], false),
            ("/", &[("te", "trailers")], false),
            ("/", &[("trailer", "a")], false),
            ("/", &[("keep-alive", "timeout=5")], false),
            ("/", &[("proxy-connection", "close")], false),
            ("/", &[("proxy-authorization", "a")], false),
            ("/", &[("http2-settings", "a")], false),
        ];
        for (target, fields, expected) in rows {
            let mut request = RequestHeader::build("GET", target.as_bytes(), None).expect("a request");
            for (name, value) in *fields {
                request.append_header(*name, *value).expect("a field");
            }
            assert_eq!(is_plain(&request), *expected, "{target} {fields:?}");
        }
    }
}
