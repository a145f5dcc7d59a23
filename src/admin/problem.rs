//! Errors as RFC 9457 has them.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An answer of `application/problem+json`.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    /// A problem with this status; `detail` is for people.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem { status, detail: detail.into() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let body = json!({ "title": title, "status": self.status.as_u16(), "detail": self.detail }).to_string();
        (self.status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}
