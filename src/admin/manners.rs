//! What holds for every request and answer, whatever it is about.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// The largest body, in bytes: no endpoint needs one.
const MAX_BODY: u64 = 64 * 1024;

/// No answer is kept by anybody or taken for another type than it is, and no large body is waited for.
pub async fn manners(request: Request, next: Next) -> Response {
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut response = if declared.is_some_and(|length: u64| length > MAX_BODY) {
        let why = format!("the body is over {MAX_BODY} bytes; no request here needs one");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why).into_response()
    } else {
        next.run(request).await
    };
    let fields = response.headers_mut();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
