//! Alerts: who is told of what, and what is not over.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::alert::{Open, Overview};
use crate::control::Control;

/// Every alert, in the order of the configuration.
#[derive(Debug, Serialize, ToSchema)]
pub struct AlertsView {
    /// One each.
    alerts: Vec<AlertView>,
}

/// One alert.
#[derive(Debug, Serialize, ToSchema)]
pub struct AlertView {
    /// Its name.
    name: String,
    /// What it has told of, as far as that was taken and is not over.
    open: Vec<EpisodeView>,
    /// How much waits to be sent, what is being tried included.
    waiting: u64,
    /// Taken by the other side, since the start.
    sent: u64,
    /// Not taken after all its retries; it is tried again later.
    failed: u64,
    /// Given up: an end that was refused, or taken by nobody for a day, too much open, or the alert was taken out.
    dropped: u64,
}

/// Something that is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub struct EpisodeView {
    /// Of this one alone; what is told of it has the same.
    episode: String,
    /// What, and with whom.
    #[schema(example = "fallback/pool/web")]
    key: String,
    /// The same in a sentence.
    message: String,
    /// Since when.
    #[schema(format = DateTime)]
    since: String,
}

/// What was told and is not over, and what became of what was told.
#[utoipa::path(
    get, path = "/api/v1/alerts", tag = "alerts",
    responses((status = 200, description = "As it stands", body = AlertsView)),
)]
pub async fn alerts(State(control): State<Arc<Control>>) -> Json<AlertsView> {
    Json(AlertsView { alerts: control.alerter().overview().into_iter().map(AlertView::of).collect() })
}

impl AlertView {
    fn of(overview: Overview) -> AlertView {
        let Overview { name, open, waiting, tally } = overview;
        let episode = |Open { episode, key, message, since }| {
            let since = humantime::format_rfc3339_millis(since).to_string();
            EpisodeView { episode, key, message, since }
        };
        AlertView {
            name: name.to_string(),
            open: open.into_iter().map(episode).collect(),
            waiting,
            sent: tally.sent(),
            failed: tally.failed(),
            dropped: tally.dropped(),
        }
    }
}
