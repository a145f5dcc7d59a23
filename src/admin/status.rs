//! Liveness and readiness: plain text, for balancers and supervisors in front.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::control::Control;

/// Whether the process runs.
pub async fn livez() -> &'static str {
    "ok\n"
}

/// Whether it should get traffic.
pub async fn readyz(State(control): State<Arc<Control>>) -> Response {
    match control.readiness() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}
