//! Every probe that is made, with those who share it (product.md G2), and what all of them come to.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::views::time_of;
use crate::control::Control;
use crate::probe::Listed;

/// The prober as it works now.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProbesView {
    /// Probes a second that are asked for now: of members in doubt at their fast interval, of idle pools at theirs. What
    /// several pools share counts once.
    probes_per_second: f64,
    /// The ceiling; null where there is none.
    max_probes_per_second: Option<u32>,
    /// By what intervals are multiplied to stay under it; 1: they are as written.
    stretch: f64,
    /// Probes under way.
    in_flight: u64,
    /// One for each probe that is made again and again, by address.
    probes: Vec<ProbedView>,
}

/// One probe, for all who share it.
#[derive(Debug, Serialize, ToSchema)]
struct ProbedView {
    /// Who is asked.
    address: String,
    /// What is asked: `tcp`, `http` or `grpc`; that of TCP has nothing of the rest.
    #[schema(schema_with = super::words::probe_kind)]
    kind: &'static str,
    /// `http` or `https`.
    scheme: Option<&'static str>,
    /// Of the request.
    method: Option<String>,
    /// Its Host field, or `:authority`.
    host: Option<String>,
    /// Its path, with the query.
    path: Option<String>,
    /// The service that gRPC is asked for; empty: the whole server.
    service: Option<String>,
    /// `steady`; `fast` while a verdict may be about to change; `idle` while nobody uses the pools.
    #[schema(schema_with = super::words::pace)]
    pace: &'static str,
    /// From start to start, at that pace and under the ceiling.
    interval_ms: f64,
    /// The same as a rate.
    probes_per_second: f64,
    /// How long it may take.
    timeout_ms: f64,
    /// When the last one began; null before the first.
    #[schema(format = DateTime)]
    last_probe_at: Option<String>,
    /// When the next one is planned.
    #[schema(format = DateTime)]
    next_probe_at: Option<String>,
    /// How many began more than 250 ms after they were due.
    late: u64,
    /// Who is told of it.
    members: Vec<SharerView>,
}

/// A member whose probe it is.
#[derive(Debug, Serialize, ToSchema)]
struct SharerView {
    /// Its pool.
    pool: String,
    /// The member, by its address.
    member: String,
    /// What its pool asks for.
    interval_ms: f64,
}

/// Every probe that is made.
#[utoipa::path(
    get, path = "/api/v1/probes", tag = "pools",
    responses((status = 200, description = "As they are made now", body = ProbesView)),
)]
pub async fn probes(State(control): State<Arc<Control>>) -> Json<ProbesView> {
    let prober = control.prober();
    let mut listed = prober.listed();
    listed.sort_by(|one, other| (one.peer, &one.members).cmp(&(other.peer, &other.members)));
    Json(ProbesView {
        probes_per_second: prober.demand().sum(),
        max_probes_per_second: prober.ceiling(),
        stretch: prober.stretch().steady,
        in_flight: prober.counters().in_flight(),
        probes: listed.into_iter().map(ProbedView::new).collect(),
    })
}

impl ProbedView {
    fn new(listed: Listed) -> ProbedView {
        let Listed { peer, asked, interval, timeout, in_doubt, idle, started, next, late, members } = listed;
        let sharer = |(pool, member, interval): (Arc<str>, Arc<str>, Duration)| SharerView {
            pool: pool.to_string(),
            member: member.to_string(),
            interval_ms: millis(interval),
        };
        ProbedView {
            address: peer.to_string(),
            kind: asked.kind,
            scheme: asked.scheme,
            method: asked.method,
            host: asked.host,
            path: asked.path,
            service: asked.service,
            pace: if in_doubt { "fast" } else { ["steady", "idle"][usize::from(idle)] },
            interval_ms: millis(interval),
            probes_per_second: 1.0 / interval.as_secs_f64().max(0.001),
            timeout_ms: millis(timeout),
            last_probe_at: started.map(time_of),
            next_probe_at: next.map(time_of),
            late,
            members: members.into_iter().map(sharer).collect(),
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
