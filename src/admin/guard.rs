//! Who may read, and who may change something.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use crate::control::Control;

/// Reading: open on loopback; elsewhere (the checker asks for a token there) with the token. Probes of a balancer in
/// front may always ask for liveness and readiness.
pub async fn reading(State(control): State<Arc<Control>>, request: Request, next: Next) -> Response {
    let open = matches!(request.uri().path(), "/livez" | "/readyz");
    let config = control.snapshot().config.clone();
    let guarded = config.admin.as_ref().filter(|admin| !open && !admin.address.ip().is_loopback());
    if guarded.is_some_and(|admin| !bears(request.headers(), admin.token.as_deref())) {
        return unauthorized();
    }
    next.run(request).await
}

/// Writing: with the token where there is one, and never on another site's behalf.
pub async fn writing(State(control): State<Arc<Control>>, request: Request, next: Next) -> Response {
    if is_cross_site(request.headers()) {
        return Problem::new(StatusCode::FORBIDDEN, "refused: sent by a page of another site").into_response();
    }
    let config = control.snapshot().config.clone();
    let token = config.admin.as_ref().and_then(|admin| admin.token.as_deref());
    if !bears(request.headers(), token) {
        return unauthorized();
    }
    next.run(request).await
}

fn unauthorized() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (challenge, Problem::new(StatusCode::UNAUTHORIZED, "send the token: `Authorization: Bearer …`")).into_response()
}

/// Whether the request bears `token`; where none is set every request does.
fn bears(headers: &HeaderMap, token: Option<&str>) -> bool {
    let Some(token) = token else { return true };
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
        assert!(bears(&headers(&[]), None));
        assert!(bears(&bearing("Bearer s3cret"), Some("s3cret")));
        assert!(bears(&bearing("bearer s3cret"), Some("s3cret")));
        for wrong in ["Bearer s3cre", "Bearer s3cretX", "Bearer x3cret", "Basic s3cret", "s3cret", "", "Bearer "] {
            assert!(!bears(&bearing(wrong), Some("s3cret")), "{wrong}");
        }
        assert!(!bears(&headers(&[]), Some("s3cret")));
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
