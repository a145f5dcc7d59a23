//! The configuration in force.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::views::time_of;
use crate::control::Control;

/// The configuration that is in force, and since when.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConfigView {
    /// Counts up from 1; each reload that is taken is one.
    generation: u64,
    /// The file, as it was given.
    path: String,
    /// Since when this generation serves.
    #[schema(format = DateTime)]
    since: String,
    /// Every key with its value in force, as proxy.yaml would write it; secrets are masked.
    #[schema(value_type = Object)]
    config: Value,
}

/// The configuration in force, every default written out and every secret masked.
#[utoipa::path(
    get, path = "/api/v1/config", tag = "configuration",
    responses((status = 200, description = "As `check --format json` shows it", body = ConfigView)),
)]
pub async fn config(State(control): State<Arc<Control>>) -> Json<ConfigView> {
    let snapshot = control.snapshot();
    Json(ConfigView {
        generation: snapshot.generation,
        path: control.path().display().to_string(),
        since: time_of(snapshot.since),
        config: snapshot.config.effective(),
    })
}
