//! `GET /metrics`: a walk over whoever is there now, and the page of it.
//!
//! Of ten thousand members that takes some hundredths of a second and megabytes of text. So it is not done on the thread
//! that answers operators, few pages exist at once, and a pool's lock is held only while its numbers are copied.
//!
//! Not here: what the metrics are called and how a page is written (`telemetry::metrics`), who counts.

mod alerts;
mod composites;
mod facts;
mod members;
mod observed;
mod pools;
mod process;
mod remediation;
mod routes;
mod shelf;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::problem::Problem;
use crate::clock;
use crate::control::Control;
use crate::health::Outcome;
use crate::telemetry::metrics::{self, CONTENT_TYPE, Page};
use crate::telemetry::{Kind, panics};
use facts::PoolFacts;
use shelf::Shelf;

/// Pages that are made at once, and that are read at once.
const PAGES: usize = 4;

/// How long a scrape waits for its place; Prometheus gives up after 10 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// Room for pages.
#[derive(Debug, Clone)]
pub struct Places {
    making: Arc<Semaphore>,
    shelf: Arc<Shelf>,
}

impl Default for Places {
    fn default() -> Places {
        Places { making: Arc::new(Semaphore::new(PAGES)), shelf: Shelf::new(PAGES) }
    }
}

/// Every metric, as Prometheus reads it.
#[utoipa::path(
    get, path = "/metrics", tag = "status",
    responses(
        (status = 200, description = "The text format 0.0.4 of Prometheus", content_type = "text/plain", body = String),
        (status = 503, description = "Too many scrapes are under way", content_type = "application/problem+json", body = Problem),
    ),
)]
pub async fn metrics(State(control): State<Arc<Control>>, State(places): State<Places>) -> Response {
    let Ok(Ok(place)) = timeout(PATIENCE, places.making.acquire_owned()).await else {
        let why = format!("{PAGES} scrapes are under way already");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let made = tokio::task::spawn_blocking(move || {
        let text = page(&control);
        drop(place);
        text
    });
    match made.await {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], places.shelf.body(text)).into_response(),
        // It panicked, or the process ends.
        Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made").into_response(),
    }
}

fn page(control: &Control) -> String {
    let (now, snapshot) = (clock::monotonic(), control.snapshot());
    let mut pools: Vec<PoolFacts> = snapshot.pools.values().map(|served| PoolFacts::of(control, served, now)).collect();
    pools.sort_by(|one, other| one.name().cmp(other.name()));
    let mut page = Page::default();
    traffic::requests(&mut page, &snapshot);
    traffic::attempts(&mut page, &pools);
    traffic::connections(&mut page);
    routes::failovers(&mut page, &snapshot, control.switchboard());
    pools::modes(&mut page, &pools);
    pools::room(&mut page, &pools);
    remediation::remediation(&mut page, control, &pools);
    alerts::alerts(&mut page, control);
    let (composites, observing) = control.composites().all();
    composites::states(&mut page, &metrics::COMPOSITE_STATE, composites.iter().map(AsRef::as_ref));
    composites::states(&mut page, &metrics::OBSERVED_COMPOSITE_STATE, observing.iter().map(AsRef::as_ref));
    members::standings(&mut page, &pools);
    members::room(&mut page, &pools, now);
    members::verdicts(&mut page, &pools);
    members::probes(&mut page, &pools, now);
    observed::observed(&mut page, &pools, control.events().counters());
    state(&mut page, control, now);
    prober(&mut page, control);
    itself(&mut page, control);
    process::process(&mut page);
    page.into_text()
}

/// Of what the next process will know.
fn state(page: &mut Page, control: &Control, now: Duration) {
    let Some(carrier) = control.carrier() else { return };
    page.single(&metrics::STATE_AGE, carrier.age(now).as_secs_f64());
    page.single(&metrics::STATE_FAILURES, count(carrier.failures()));
}

fn prober(page: &mut Page, control: &Control) {
    let counters = control.prober().counters();
    page.single(&metrics::PROBES_LATE, count(counters.late()));
    page.single(&metrics::PROBES_IN_FLIGHT, count(counters.in_flight()));
    page.family(&metrics::PROBE_LATENESS, |series| series.add_times(&[], &counters.lateness));
    page.single(&metrics::PROBES_ASKED, control.prober().demand().sum());
    if let Some(ceiling) = control.prober().ceiling() {
        page.single(&metrics::PROBES_CEILING, f64::from(ceiling));
    }
    page.single(&metrics::PROBES_STRETCH, control.prober().stretch().steady);
    page.single(&metrics::PROBE_PANICS, count(counters.panicked()));
}

fn itself(page: &mut Page, control: &Control) {
    let (reloads, log, events) = (control.reloads().status(), control.log(), control.events().counters());
    page.family(&metrics::EVENTS, |series| {
        Kind::ALL.into_iter().for_each(|kind| series.add(&[kind.as_str()], count(events.of(kind))));
    });
    let kept = control.diagnostics().counters();
    page.family(&metrics::DIAGNOSTICS, |series| {
        series.add(&["written"], count(kept.written()));
        series.add(&["dropped"], count(kept.dropped()));
        series.add(&["failed"], count(kept.failed()));
    });
    page.single(&metrics::CONFIG_GENERATION, count(control.snapshot().generation));
    page.family(&metrics::CONFIG_RELOADS, |series| {
        series.add(&["taken"], count(reloads.taken));
        series.add(&["refused"], count(reloads.refused));
        series.add(&["unchanged"], count(reloads.unchanged));
    });
    page.single(&metrics::CONFIG_LAST_RELOAD_SUCCESS, flag(reloads.good));
    page.single(&metrics::DISCOVERY_RESTARTS, count(control.desk().restarted()));
    page.family(&metrics::LOG_DROPPED, |series| {
        series.add(&["access"], count(log.dropped()));
        series.add(&["own"], count(control.logging().dropped()));
    });
    page.family(&metrics::LOG_FILTERED, |series| series.add(&["access"], count(log.filtered())));
    page.single(&metrics::PANICS, count(panics()));
    page.single(&metrics::READY, flag(control.readiness().is_ok()));
    page.family(&metrics::BUILD_INFO, |series| series.add(&[env!("CARGO_PKG_VERSION")], 1.0));
}

/// Exact up to 2^53.
fn count(count: u64) -> f64 {
    count as f64
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// A probe's result and reason, as words.
fn words(outcome: Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Pass => ("pass", ""),
        Outcome::Fail(reason) => ("fail", reason.as_str()),
        Outcome::Inconclusive => ("inconclusive", ""),
    }
}
