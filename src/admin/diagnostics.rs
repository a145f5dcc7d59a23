//! What was seen of members that became unhealthy: the list, and each file.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::Path;
use super::problem::Problem;
use super::query::Query;
use crate::control::Control;
use crate::diagnostics::{Case, Kept, Summary};

/// The most entries in an answer: all that can be kept.
const MOST: usize = 10_000;
/// How many there are where the request does not say.
const USUAL: usize = 100;

/// What is kept, and what became of the rest.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiagnosticsView {
    /// The directory; null where nothing is kept.
    path: Option<String>,
    /// Files that are there.
    files: usize,
    /// Bytes of all of them.
    bytes: u64,
    /// Files written since the start.
    written: u64,
    /// Falls of which nothing was kept, since too many waited to be written.
    dropped: u64,
    /// Falls of which nothing was kept, since it could not be written.
    failed: u64,
    /// Newest first.
    diagnostics: Vec<DiagnosisView>,
}

/// One file, in short.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiagnosisView {
    /// What it is called by.
    id: String,
    /// When it was announced.
    #[schema(format = DateTime)]
    time: String,
    /// The event that announced it: its `id`, with the process that gave it.
    event: String,
    /// Whose pool.
    pool: String,
    /// The member as its pool shows it.
    member: String,
    /// The verdict before.
    from: Option<String>,
    /// The word of the fail that decided.
    reason: Option<String>,
    /// Why, for people.
    detail: Option<String>,
    /// The answer's status, where one came.
    status: Option<u16>,
    /// The file's length.
    bytes: u64,
}

/// What was kept of members that became unhealthy.
#[utoipa::path(
    get, path = "/api/v1/diagnostics", tag = "diagnostics",
    params(
        ("pool" = Option<String>, Query, description = "Only those of this pool"),
        ("member" = Option<String>, Query, description = "Only those of this member, as its pool shows it"),
        ("limit" = Option<u64>, Query, description = "At most so many, the newest; 100 where it is not given", minimum = 1,
            maximum = 10000),
    ),
    responses(
        (status = 200, description = "What is there; of a file that cannot be read nothing is listed", body = DiagnosticsView),
        (status = 400, description = "A parameter is unknown, or not what it should be", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn diagnostics(State(control): State<Arc<Control>>, uri: Uri) -> Result<Json<DiagnosticsView>, Problem> {
    let query = Query::of(&uri, &["pool", "member", "limit"])?;
    let limit = query.number("limit", 1..=MOST)?.unwrap_or(USUAL);
    let is = |name: &str, value: &str| query.text(name).is_none_or(|wanted| wanted == value);
    let (kept, counters) = (control.diagnostics().list(), control.diagnostics().counters());
    let wanted = |view: &DiagnosisView| is("pool", &view.pool) && is("member", &view.member);
    Ok(Json(DiagnosticsView {
        path: control.diagnostics().wanted().map(|wanted| wanted.path.display().to_string()),
        files: kept.len(),
        bytes: kept.iter().map(|(_, kept)| kept.bytes).sum(),
        written: counters.written(),
        dropped: counters.dropped(),
        failed: counters.failed(),
        diagnostics: kept
            .into_iter()
            .filter_map(|(_, kept)| DiagnosisView::of(kept))
            .filter(wanted)
            .take(limit)
            .collect(),
    }))
}

/// One of them: the request, the answer, what the probe took, and how the member stood.
#[utoipa::path(
    get, path = "/api/v1/diagnostics/{id}", tag = "diagnostics",
    params(("id" = String, Path, description = "As the list has it", example = "20260101T000000.000Z-1a2b3c4d-00000017")),
    responses(
        (status = 200, description = "The file as it is", body = Case),
        (status = 400, description = "The path is no text", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none of this id, or none any more", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "It cannot be read now", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn diagnosis(State(control): State<Arc<Control>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let diagnostics = control.diagnostics();
    let unread = |error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{id:?} cannot be read: {error}"));
    match diagnostics.read(&id).await.map_err(unread)? {
        Some(bytes) => Ok(([(header::CONTENT_TYPE, "application/json")], bytes).into_response()),
        None if diagnostics.wanted().is_none() => {
            let why = "nothing is kept; write `diagnostics: { path: DIRECTORY }` in the configuration";
            Err(Problem::new(StatusCode::NOT_FOUND, why))
        }
        None => Err(Problem::new(StatusCode::NOT_FOUND, format!("no diagnostics {id:?}; the oldest are dropped"))),
    }
}

impl DiagnosisView {
    fn of(kept: Kept) -> Option<DiagnosisView> {
        let Summary { id, time, event, pool, member, from, reason, detail, status } = kept.summary?;
        Some(DiagnosisView { id, time, event, pool, member, from, reason, detail, status, bytes: kept.bytes })
    }
}
