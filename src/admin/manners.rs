//! What holds for every request and answer, whatever it is about.

use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::problem::Problem;

/// The field that every answer of ours has: whoever is told `pulsegate reload` knows by it that it is us.
pub const KNOWN_BY: &str = "pulsegate-api";

/// The largest body, in bytes: no endpoint needs one.
const MAX_BODY: usize = 64 * 1024;

/// How long a body may take whose length is not said.
const PATIENCE: Duration = Duration::from_secs(5);

/// No answer is kept by anybody or taken for another type than it is, and no large body is waited for.
pub async fn manners(request: Request, next: Next) -> Response {
    let mut response = match without_large_body(request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let fields = response.headers_mut();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(KNOWN_BY, HeaderValue::from_static("1"));
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A body whose length is not said is read to know it, and thrown away.
async fn without_large_body(request: Request) -> Result<Request, Problem> {
    let size = request.body().size_hint();
    let too_large = || {
        let why = format!("the body is over {MAX_BODY} bytes; no request here needs one");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    if size.lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    if size.exact().is_some() {
        return Ok(request);
    }
    let (head, body) = request.into_parts();
    match timeout(PATIENCE, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(_)) => Ok(Request::from_parts(head, Body::empty())),
        // Or it is no body at all: then nobody is there who would read this.
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time; none is needed")),
    }
}
