//! A client that asks for another protocol, and a member that switches to it (RFC 9110 section 7.8).
//!
//! Any protocol may be asked for, a WebSocket or one we know nothing of: what passes then is for the two ends alone. But
//! not one that carries HTTP, with or without TLS: requests would pass that nobody routed, counted or logged. Such
//! an offer is left out, as a server may, and the request is served as it is.

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, StatusCode, Version};
use pingora::http::{RequestHeader, ResponseHeader};

use super::headers::{names, tokens};

/// Names under which HTTP would be spoken behind our back.
const HTTP_ITSELF: [&str; 4] = ["h2c", "h2", "http", "tls"];

/// Whether a client asks for another protocol that it may have.
///
/// The request has no body: where one does, a switch in its midst would leave open what its bytes are.
pub fn is_asked_for(request: &RequestHeader) -> bool {
    request.version == Version::HTTP_11
        && request.headers.contains_key(UPGRADE)
        && names(&request.headers, &CONNECTION, "upgrade")
        && !request.headers.contains_key(TRANSFER_ENCODING)
        && request.headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0")
        && offers(&request.headers).next().is_some()
}

/// Whether `answer` switches to one of the protocols that were asked for.
pub fn is_answered(request: &RequestHeader, answer: &ResponseHeader) -> bool {
    let is_offered = |protocol: &str| offers(&request.headers).any(|offer| offer.eq_ignore_ascii_case(protocol));
    answer.version == Version::HTTP_11
        && is_asked_for(request)
        && answer.headers.contains_key(UPGRADE)
        && tokens(&answer.headers, &UPGRADE).all(is_offered)
}

/// Puts into the request for a member what the client asks for; Pingora leaves WebSockets alone in it, and those on their
/// own field, even where `Connection` does not name it.
///
/// # Errors
/// A value that cannot be sent.
pub fn upward(up: &mut RequestHeader, client: &RequestHeader) -> pingora::Result<()> {
    up.remove_header(&CONNECTION);
    up.remove_header(&UPGRADE);
    if !is_asked_for(client) {
        return Ok(());
    }
    up.insert_header(CONNECTION, "Upgrade")?;
    up.insert_header(UPGRADE, offers(&client.headers).collect::<Vec<_>>().join(", "))
}

/// The protocol that a 101 switches to.
pub fn switch(answer: &ResponseHeader) -> Option<String> {
    let switches = answer.status == StatusCode::SWITCHING_PROTOCOLS;
    switches.then(|| tokens(&answer.headers, &UPGRADE).collect::<Vec<_>>().join(", "))
}

/// Puts into a 101 what it switches to, in our own words.
///
/// # Errors
/// A value that cannot be sent.
pub fn downward(answer: &mut ResponseHeader, protocol: String) -> pingora::Result<()> {
    answer.insert_header(CONNECTION, "Upgrade")?;
    answer.insert_header(UPGRADE, protocol)
}

fn offers(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&b);
    tokens(headers, &UPGRADE).filter(move |offer| {
        let name = offer.split('/').next().unwrap_or_default();
        !name.is_empty() && offer.bytes().all(is_name) && !HTTP_ITSELF.iter().any(|own| own.eq_ignore_ascii_case(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&'static str, &str)]) -> RequestHeader {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        for (name, value) in fields {
            request.append_header(*name, *value).expect("a field");
        }
        request
    }

    #[test]
    fn what_may_be_asked_for_is_passed_on_and_nothing_else() {
        const UP: (&str, &str) = ("connection", "Upgrade");
        // (what the client sends, the protocols that the member is asked for)
        type Row<'a> = (&'a [(&'static str, &'a str)], Option<&'a str>);
        let rows: &[Row<'_>] = &[
            (&[UP, ("upgrade", "websocket")], Some("websocket")),
            (&[("connection", "keep-alive, upgrade"), ("upgrade", "WebSocket")], Some("WebSocket")),
            (&[UP, ("upgrade", "foo/2")], Some("foo/2")),
            (&[UP, ("upgrade", "h2c, foo"), ("upgrade", "TLS/1.0,bar")], Some("foo, bar")),
            (&[UP, ("upgrade", "foo"), ("content-length", "0")], Some("foo")),
            (&[UP, ("upgrade", "foo"), ("content-length", "3")], None),
            (&[UP, ("upgrade", "foo"), ("transfer-encoding", "chunked")], None),
            (&[UP, ("upgrade", "h2c")], None),
            (&[UP, ("upgrade", "H2C")], None),
            (&[UP, ("upgrade", "HTTP/2.0")], None),
            (&[UP, ("upgrade", "TLS/1.2, HTTP/1.1")], None),
            (&[UP, ("upgrade", "")], None),
            (&[UP, ("upgrade", "a b")], None),
            (&[UP], None),
            (&[("upgrade", "websocket")], None),
            (&[("connection", "close"), ("upgrade", "websocket")], None),
        ];
        for (fields, asked) in rows {
            let client = request(fields);
            let mut up = client.clone();
            upward(&mut up, &client).expect("it can be sent");
            let sent = up.headers.get(UPGRADE).map(|value| value.to_str().expect("ASCII"));
            assert_eq!(sent, *asked, "{fields:?}");
            assert_eq!(up.headers.contains_key(CONNECTION), asked.is_some(), "{fields:?}");
        }
    }

    #[test]
    fn only_what_was_asked_for_is_switched_to() {
        let client = request(&[("connection", "upgrade"), ("upgrade", "foo, websocket")]);
        let answered = |version: Version, protocol: Option<&str>| {
            let mut answer = ResponseHeader::build(101, None).expect("an answer");
            answer.set_version(version);
            if let Some(protocol) = protocol {
                answer.insert_header(UPGRADE, protocol).expect("a field");
            }
            is_answered(&client, &answer)
        };
        let rows = [
            (Version::HTTP_11, Some("websocket"), true),
            (Version::HTTP_11, Some("FOO"), true),
            (Version::HTTP_11, Some("bar"), false),
            (Version::HTTP_11, Some("h2c"), false),
            (Version::HTTP_11, None, false),
            (Version::HTTP_10, Some("foo"), false),
        ];
        for (version, protocol, expected) in rows {
            assert_eq!(answered(version, protocol), expected, "{version:?} {protocol:?}");
        }
    }
}
