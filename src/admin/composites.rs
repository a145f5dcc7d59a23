//! Composites, as they are published on clients' listeners.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::Path;
use super::problem::Problem;
use crate::composite::Report;
use crate::control::{Control, Few};
use crate::proxy::{CompositeView, HEALTH_STATE};

/// All composites, by name.
#[utoipa::path(
    get, path = "/api/v1/composites", tag = "composites",
    responses((status = 200, description = "As they stand", body = Vec<ListedComposite>)),
)]
pub async fn composites(State(control): State<Arc<Control>>) -> Json<Vec<ListedComposite>> {
    let (in_force, observing) = control.composites().all();
    let in_force = in_force.into_iter().map(|report| (report, false));
    let mut all: Vec<_> = in_force.chain(observing.into_iter().map(|report| (report, true))).collect();
    all.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let listed =
        |(report, observed): (Arc<Report>, bool)| ListedComposite { composite: view(&control, &report), observed };
    Json(all.into_iter().map(listed).collect())
}

/// A composite in the list of all.
#[derive(Debug, Serialize, ToSchema)]
pub struct ListedComposite {
    /// How it stands.
    #[serde(flatten)]
    composite: CompositeView,
    /// It only observes: nothing goes by it, and nobody is answered for it.
    observed: bool,
}

/// One composite: its state is the status too.
#[utoipa::path(
    get, path = "/api/v1/composites/{composite}", tag = "composites",
    params(("composite" = String, Path, description = "Its name", example = "region-eu")),
    responses(
        (status = 200, description = "It is healthy", body = CompositeView,
            headers(("x-health-state" = String, description = "HEALTHY"))),
        (status = 503, description = "It is not, or that is not known yet, or the process ends", body = CompositeView,
            headers(("x-health-state" = String, description = "UNHEALTHY or UNKNOWN"))),
        (status = 400, description = "The path is no text", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such composite, or it only observes", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn composite(State(control): State<Arc<Control>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let report = control.composites().report(&name).ok_or_else(|| {
        if control.composites().would_be(&name).is_some() {
            let detail = format!(
                "composite {name:?} only observes, so nobody is answered for it; GET /api/v1/composites says how it would stand"
            );
            return Problem::new(StatusCode::NOT_FOUND, detail);
        }
        let known: Vec<String> = control.composites().reports().iter().map(|report| report.name.to_string()).collect();
        let there_are = Few::of(known.iter()).there_are();
        Problem::new(StatusCode::NOT_FOUND, format!("no composite {name:?}; {there_are}"))
    })?;
    let view = view(&control, &report);
    let state = (HeaderName::from_static(HEALTH_STATE), HeaderValue::from_static(view.state()));
    Ok((view.status(), [state], Json(view)).into_response())
}

fn view(control: &Control, report: &Report) -> CompositeView {
    match control.is_draining() {
        true => CompositeView::of_ending(report),
        false => CompositeView::new(report),
    }
}
