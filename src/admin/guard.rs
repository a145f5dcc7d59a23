//! Who may read, and who may change something.
//!
//! On a loopback address a browser is the danger: pages of other sites send requests from the same machine, and one whose
//! name is made to point at it (DNS rebinding) is of the same site for the browser. So a request without the token must
//! name us in a way that no other site can: by an IP address, or as `localhost`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
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
    NoToken,
    WrongToken,
    OtherName,
    OtherSite,
}

/// Reading: on loopback for whoever calls us by our name; elsewhere with the token. Probes of a balancer in front may always ask for liveness and
/// readiness.
pub async fn reading(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if matches!(request.uri().path(), "/livez" | "/readyz") {
        return next.run(request).await;
    }
    match may_read(guard.bound, guard.token().as_deref(), request.uri(), request.headers()) {
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

fn may_read(bound: SocketAddr, token: Option<&str>, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    if token.is_some_and(|token| bears(headers, token)) {
        return Ok(());
    }
    if !bound.ip().is_loopback() {
        // Without a token too: a socket that others reach is never open.
        return Err(without_token(headers));
    }
    if names_us(uri, headers) { Ok(()) } else { Err(Refusal::OtherName) }
}

fn may_write(token: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    if is_cross_site(headers) {
        return Err(Refusal::OtherSite);
    }
    if token.is_none_or(|token| bears(headers, token)) { Ok(()) } else { Err(without_token(headers)) }
}

/// Why a request that does not bear the token is refused: who sent another one looks for it in another place.
fn without_token(headers: &HeaderMap) -> Refusal {
    match bearer(headers) {
        Some(_) => Refusal::WrongToken,
        None => Refusal::NoToken,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::NoToken => {
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
                let problem = Problem::new(StatusCode::UNAUTHORIZED, "send the token: `Authorization: Bearer …`");
                (challenge, problem).into_response()
            }
            Refusal::WrongToken => {
                // RFC 6750 section 3.1.
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer error=\"invalid_token\"")];
                let problem = Problem::new(StatusCode::UNAUTHORIZED, "the token is not the proxy's");
                (challenge, problem).into_response()
            }
            Refusal::OtherName => {
                let why = "refused: asked for by a name that may be another site's; use an IP address or `localhost`, or \
                           send the token";
                Problem::new(StatusCode::MISDIRECTED_REQUEST, why).into_response()
            }
            Refusal::OtherSite => {
                Problem::new(StatusCode::FORBIDDEN, "refused: sent by a page of another site").into_response()
            }
        }
    }
}

/// Whether the request bears `token`.
fn bears(headers: &HeaderMap, token: &str) -> bool {
    let Some(given) = bearer(headers) else { return false };
    // Every byte is looked at, wherever the first difference is.
    let differences = given.iter().zip(token.as_bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differences == 0
}

/// The token that the request bears, whatever it is.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, given) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    (scheme.eq_ignore_ascii_case(b"bearer ") && !given.is_empty()).then_some(given)
}

/// Whether every name the request has for us is an IP address or `localhost`. No browser sends a request without one.
fn names_us(uri: &Uri, headers: &HeaderMap) -> bool {
    let asked = uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut names = headers.get_all(header::HOST).iter().map(|value| value.as_bytes()).chain(asked);
    names.all(|name| Authority::try_from(name).is_ok_and(|authority| is_ours(authority.host())))
}

fn is_ours(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
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
            headers.append(*name, value.parse().expect("a value"));
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
        let refused = Err(Refusal::NoToken);
        // Bound address and token; then reading and writing without the token, and with it.
        let rows = [
            ("127.0.0.1:9900", None, [Ok(()), Ok(()), Ok(()), Ok(())]),
            ("[::1]:9900", Some("s3cret"), [Ok(()), refused, Ok(()), Ok(())]),
            ("0.0.0.0:9900", Some("s3cret"), [refused, refused, Ok(()), Ok(())]),
            // The checker asks for a token there; nothing opens it all the same.
            ("10.0.0.1:9900", None, [refused, refused, Err(Refusal::WrongToken), Err(Refusal::WrongToken)]),
        ];
        for (bound, token, expected) in rows {
            let bound: SocketAddr = bound.parse().expect("an address");
            let read = |headers| may_read(bound, token, &Uri::from_static("/"), headers);
            let write = |headers| read(headers).and_then(|()| may_write(token, headers));
            let found = [read(&nothing), write(&nothing), read(&bearing), write(&bearing)];
            assert_eq!(found, expected, "{bound} {token:?}");
        }
    }

    #[test]
    fn a_wrong_token_and_none_are_told_apart() {
        let write = |fields: &[(&'static str, &'static str)]| may_write(Some("s3cret"), &headers(fields));
        assert_eq!(write(&[("authorization", "Bearer s3cret")]), Ok(()));
        assert_eq!(write(&[("authorization", "bearer other")]), Err(Refusal::WrongToken));
        for none in [&[][..], &[("authorization", "Bearer ")], &[("authorization", "Basic s3cret")]] {
            assert_eq!(write(none), Err(Refusal::NoToken), "{none:?}");
        }
    }

    #[test]
    fn without_the_token_only_a_name_no_site_can_have_opens() {
        let bound = SocketAddr::from(([127, 0, 0, 1], 9900));
        let asked = |uri: &'static str, fields: &[(&'static str, &'static str)]| {
            may_read(bound, Some("s3cret"), &Uri::from_static(uri), &headers(fields))
        };
        for ours in ["127.0.0.1", "127.0.0.1:9900", "[::1]:9900", "10.1.2.3:80", "localhost", "LocalHost:9900"] {
            assert_eq!(asked("/", &[("host", ours)]), Ok(()), "{ours}");
        }
        assert_eq!(asked("/", &[]), Ok(()));
        let others =
            ["evil.test", "evil.test:9900", "localhost.evil.test", "127.0.0.1.evil.test:9900", "", "a b", "[::1"];
        for other in others {
            let refused = Err(Refusal::OtherName);
            assert_eq!(asked("/", &[("host", other)]), refused, "{other}");
            assert_eq!(asked("/", &[("host", "127.0.0.1"), ("host", other)]), refused, "{other}");
            assert_eq!(asked("/", &[("host", other), ("authorization", "Bearer wrong")]), refused, "{other}");
            assert_eq!(asked("/", &[("host", other), ("authorization", "Bearer s3cret")]), Ok(()), "{other}");
        }
        assert_eq!(asked("http://evil.test/", &[("host", "127.0.0.1")]), Err(Refusal::OtherName));
        assert_eq!(asked("http://127.0.0.1:9900/", &[("host", "127.0.0.1:9900")]), Ok(()));
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
