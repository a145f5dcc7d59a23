//! Liveness and readiness: plain text, for balancers and supervisors in front.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::control::Control;

/// Whether the process runs.
#[utoipa::path(
    get, path = "/livez", tag = "status", security(()),
    responses((status = 200, description = "It does", body = String, content_type = "text/plain")),
)]
pub async fn livez() -> &'static str {
    "ok\n"
}

/// Whether it should get traffic.
#[utoipa::path(
    get, path = "/readyz", tag = "status", security(()),
    responses(
        (status = 200, description = "It should", body = String, content_type = "text/plain"),
        (status = 503, description = "It should not, and why: first verdicts are not in, it is ending, or a required pool \
            cannot serve", body = String, content_type = "text/plain"),
    ),
)]
pub async fn readyz(State(control): State<Arc<Control>>) -> Response {
    match control.readiness() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}
