//! A reload by the API, and how the last one ended.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::{Problem, answer};
use super::views::time_of;
use crate::config;
use crate::control::{Control, Status};
use crate::reload::{Cause, Ended, Refused, Reloader, Report};

/// How it stands with the file, and what became of it last.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReloadView {
    /// That is in force.
    generation: u64,
    /// Whether the file, as it was read last, is in force.
    good: bool,
    /// Since when that is so.
    #[schema(format = DateTime)]
    since: String,
    /// When the present generation was taken.
    #[schema(format = DateTime)]
    taken_at: String,
    /// Of the text in force: 16 hexadecimal digits, the same wherever this release reads the same text.
    digest: String,
    /// Reloads that made a generation.
    taken: u64,
    /// Reloads that were refused.
    refused: u64,
    /// Reloads that had nothing to change.
    unchanged: u64,
    /// Whether the file is taken when it changes.
    watch: bool,
    /// How often it is looked at then, at least.
    every_ms: f64,
    /// Null before the first.
    last: Option<LastView>,
}

/// A reload that is over.
#[derive(Debug, Serialize, ToSchema)]
pub struct LastView {
    /// When it ended.
    #[schema(format = DateTime)]
    at: String,
    /// Who wanted it: `signal`, `api` or `file`.
    cause: &'static str,
    /// `taken`, `unchanged` or `refused`.
    result: &'static str,
    /// In a sentence.
    detail: String,
    /// What has changed; null where it was refused.
    report: Option<Report>,
    /// Everything that is wrong with the configuration, where it was refused.
    #[schema(value_type = Vec<Object>)]
    problems: Vec<config::Problem>,
}

/// A configuration that is not taken (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub struct RefusedProblem {
    /// No more than the status says.
    r#type: &'static str,
    /// The status in words.
    title: &'static str,
    /// As in the status line.
    status: u16,
    /// How many errors there are.
    detail: String,
    /// Everything that is wrong with the configuration, warnings too.
    #[schema(value_type = Vec<Object>)]
    problems: Vec<config::Problem>,
}

/// How it stands with the file, and how the last reload ended.
#[utoipa::path(
    get, path = "/api/v1/reload", tag = "configuration",
    responses((status = 200, description = "As it stands", body = ReloadView)),
)]
pub async fn last(State(reloader): State<Arc<Reloader>>) -> Json<ReloadView> {
    Json(ReloadView::new(reloader.control(), reloader.last()))
}

/// The file, and what it names, is read again and taken, all of it or nothing.
#[utoipa::path(
    post, path = "/api/v1/reload", tag = "configuration",
    responses(
        (status = 200, description = "What has changed", body = Report),
        (status = 422, description = "The configuration has errors; nothing has changed", body = RefusedProblem,
            content_type = "application/problem+json"),
        (status = 500, description = "A fault of the proxy; nothing has changed", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "The process is ending", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn reload(State(reloader): State<Arc<Reloader>>) -> Result<Json<Report>, Response> {
    let outcome = reloader.by_hand(Cause::Api).await;
    outcome.map(|report| Json(Report::clone(&report))).map_err(|refused| problem(&refused))
}

fn problem(refused: &Refused) -> Response {
    let status = match refused {
        Refused::Config(problems) => return refusal(problems),
        Refused::Ending => StatusCode::SERVICE_UNAVAILABLE,
        Refused::Broken(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::new(status, refused.to_string()).into_response()
}

fn refusal(problems: &[config::Problem]) -> Response {
    let errors = problems.iter().filter(|problem| problem.severity == config::Severity::Error).count();
    let errors = if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") };
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    let problem = RefusedProblem {
        r#type: "about:blank",
        title: status.canonical_reason().unwrap_or("Error"),
        status: status.as_u16(),
        detail: format!("reload refused, {errors} in the configuration; everything stays as it was"),
        problems: problems.to_vec(),
    };
    answer(status.as_u16(), problem)
}

impl ReloadView {
    fn new(control: &Control, last: Option<Ended>) -> ReloadView {
        let Status { good, since, taken_at, digest, taken, refused, unchanged } = control.reloads().status();
        let snapshot = control.snapshot();
        ReloadView {
            generation: snapshot.generation,
            good,
            since: time_of(since),
            taken_at: time_of(taken_at),
            digest: format!("{digest:016x}"),
            taken,
            refused,
            unchanged,
            watch: snapshot.config.reload.watch,
            every_ms: snapshot.config.reload.every.as_secs_f64() * 1e3,
            last: last.map(LastView::new),
        }
    }
}

impl LastView {
    fn new(ended: Ended) -> LastView {
        let (at, cause) = (time_of(ended.at), ended.cause.as_str());
        match ended.outcome {
            Ok(report) => LastView {
                at,
                cause,
                result: if report.unchanged { "unchanged" } else { "taken" },
                detail: report.to_string(),
                problems: Vec::new(),
                report: Some(Report::clone(&report)),
            },
            Err(refused) => LastView {
                at,
                cause,
                result: "refused",
                detail: refused.to_string(),
                problems: refused.problems().to_vec(),
                report: None,
            },
        }
    }
}
