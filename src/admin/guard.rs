//! Who may read, and who may change something.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use crate::control::Control;

/// What access is decided by: the token as the present generation has it, and where the socket really is. The file may
/// say another address already, which holds from the next start.
#[derive(Debug, Clone)]
pub struct Guard {
    /// Has the token.
    pub control: Arc<Control>,
    /// Where we listen.
    pub bound: SocketAddr,
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Token,
    OtherSite,
}

/// Reading: open on loopback; elsewhere with the token. Probes of a balancer in front may always ask for liveness and
/// readiness.
pub async fn reading(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if matches!(request.uri().path(), "/livez" | "/readyz") {
        return next.run(request).await;
    }
    match may_read(guard.bound, guard.token().as_deref(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Writing: with the token where there is one, and never on another site's behalf. Reading was asked for before.
pub async fn writing(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match may_write(guard.token().as_deref(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

impl Guard {
    fn token(&self) -> Option<String> {
        self.control.snapshot().config.admin.as_ref()?.token.clone()
    }
}

fn may_read(bound: SocketAddr, token: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    if bound.ip().is_loopback() || token.is_some_and(|token| bears(headers, token)) {
        return Ok(());
    }
    // Without a token too: a socket that others reach is never open.
    Err(Refusal::Token)
}

fn may_write(token: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    if is_cross_site(headers) {
        return Err(Refusal::OtherSite);
    }
    if token.is_none_or(|token| bears(headers, token)) { Ok(()) } else { Err(Refusal::Token) }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::Token => {
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
                let problem = Problem::new(StatusCode::UNAUTHORIZED, "send the token: `Authorization: Bearer …`");
                (challenge, problem).into_response()
            }
            Refusal::OtherSite => {
                Problem::new(StatusCode::FORBIDDEN, "refused: sent by a page of another site").into_response()
            }
        }
    }
}

/// Whether the request bears `token`.
fn bears(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    let (scheme, given) = given.split_at_checked(7).unwrap_or((b"", b""));
    // Every byte is looked at, wherever the first difference is.
    let differences = given.iter().zip(token.as_bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    scheme.eq_ignore_ascii_case(b"bearer ") && given.len() == token.len() && differences == 0
}

/// What a browser says when a page of another site sends a request (Fetch metadata, and Origin for older ones).
fn is_cross_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => origin.split_once("://").map(|(_, host)| host) != text("host"),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn only_the_token_opens() {
        let bearing = |value| headers(&[("authorization", value)]);
        assert!(bears(&bearing("Bearer s3cret"), "s3cret"));
        assert!(bears(&bearing("bearer s3cret"), "s3cret"));
        for wrong in ["Bearer s3cre", "Bearer s3cretX", "Bearer x3cret", "Basic s3cret", "s3cret", "", "Bearer "] {
            assert!(!bears(&bearing(wrong), "s3cret"), "{wrong}");
        }
        assert!(!bears(&headers(&[]), "s3cret"));
    }

    #[test]
    fn what_is_open_depends_on_where_we_listen() {
        let (nothing, bearing) = (headers(&[]), headers(&[("authorization", "Bearer s3cret")]));
        let refused = Err(Refusal::Token);
        // Bound address and token; then reading and writing without the token, and with it.
        let rows = [
            ("127.0.0.1:9900", None, [Ok(()), Ok(()), Ok(()), Ok(())]),
            ("[::1]:9900", Some("s3cret"), [Ok(()), refused, Ok(()), Ok(())]),
            ("0.0.0.0:9900", Some("s3cret"), [refused, refused, Ok(()), Ok(())]),
            // The checker asks for a token there; nothing opens it all the same.
            ("10.0.0.1:9900", None, [refused, refused, refused, refused]),
        ];
        for (bound, token, expected) in rows {
            let bound: SocketAddr = bound.parse().expect("an address");
            let read = |headers| may_read(bound, token, headers);
            let write = |headers| read(headers).and_then(|()| may_write(token, headers));
            let found = [read(&nothing), write(&nothing), read(&bearing), write(&bearing)];
            assert_eq!(found, expected, "{bound} {token:?}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_told_apart() {
        assert!(!is_cross_site(&headers(&[])));
        assert!(!is_cross_site(&headers(&[("sec-fetch-site", "same-origin")])));
        assert!(!is_cross_site(&headers(&[("origin", "http://127.0.0.1:9900"), ("host", "127.0.0.1:9900")])));
        assert!(is_cross_site(&headers(&[("sec-fetch-site", "cross-site")])));
        assert!(is_cross_site(&headers(&[("sec-fetch-site", "same-site")])));
        assert!(is_cross_site(&headers(&[("origin", "http://evil.test"), ("host", "127.0.0.1:9900")])));
        assert!(is_cross_site(&headers(&[("origin", "null"), ("host", "127.0.0.1:9900")])));
    }
}
