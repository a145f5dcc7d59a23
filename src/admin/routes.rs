//! Routes: where each leads, and which of its pools serves.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::views::{millis, time_of};
use super::words;
use crate::clock;
use crate::composite::Composites;
use crate::control::Control;
use crate::failover::Standby;
use crate::health::{self, failover::Ability};
use crate::route::{Host, Rank, Route};
use crate::snapshot::{Stop, Way};

/// One route.
#[derive(Debug, Serialize, ToSchema)]
pub struct RouteView {
    /// Host and path, as logs and metrics have it.
    name: String,
    /// The host, or `*.suffix`; null for every host.
    host: Option<String>,
    /// The prefix of paths.
    path: String,
    /// The pool that serves now.
    pool: String,
    /// Its rank, 0 first.
    rank: usize,
    /// Since when it serves: since the start, a reload, or the last failover or failback of this route.
    #[schema(format = DateTime)]
    since: String,
    /// How long a better pool must have been able to serve, in milliseconds; null where the route never goes back by itself.
    failback_delay_ms: Option<f64>,
    /// How often another pool came to serve, while the process has had this route.
    failovers: u64,
    /// All of its pools, in the order of preference.
    pools: Vec<RankView>,
}

/// One of a route's pools.
#[derive(Debug, Serialize, ToSchema)]
struct RankView {
    /// The pool's name.
    pool: String,
    /// The composite that says whether it can serve; null where the pool itself does.
    when: Option<String>,
    /// The composite that is written for that and only observes, so that the pool itself says it; null where there is none.
    observed_when: Option<String>,
    /// Whether it can serve.
    #[schema(schema_with = words::ability)]
    ability: &'static str,
    /// Why it is so, for people.
    because: String,
    /// When the route goes back to it, if nothing changes until then; null where it does not.
    #[schema(format = DateTime)]
    failback_at: Option<String>,
}

/// All routes, in the order of the file.
#[utoipa::path(
    get, path = "/api/v1/routes", tag = "routes",
    responses((status = 200, description = "As they stand", body = Vec<RouteView>)),
)]
pub async fn routes(State(control): State<Arc<Control>>) -> Json<Vec<RouteView>> {
    let snapshot = control.snapshot();
    control.switchboard().advance(clock::monotonic());
    let both = snapshot.config.routes.iter().zip(&snapshot.ways);
    Json(both.map(|(route, way)| RouteView::new(&control, route, way)).collect())
}

/// How a route stands: the rank that serves, since when, how often it changed, and each pool.
pub(super) struct Standing {
    rank: usize,
    since: Duration,
    failovers: u64,
    /// Whether each can serve, why, and when the route goes back to it.
    pub(super) pools: Vec<(Ability, String, Option<Duration>)>,
}

impl Standing {
    pub(super) fn of(control: &Control, route: &Route, way: &Way) -> Standing {
        let composites = control.switchboard().composites();
        let mut standing = match way.switch() {
            Some(switch) => {
                let shown = switch.shown(composites);
                Standing { rank: shown.rank, since: shown.since, failovers: switch.all_moves(), pools: shown.pools }
            }
            None => {
                let pool = |(stop, rank): (&Stop, &Rank)| {
                    let standby = Standby { pool: stop.served.live.clone(), when: rank.when.clone() };
                    (standby.ability(composites), standby.because(composites), None)
                };
                let pools = way.stops().iter().zip(&route.pools).map(pool).collect();
                let memory = way.memory();
                Standing { rank: 0, since: memory.since(), failovers: memory.all_moves(), pools }
            }
        };
        for ((_, because, _), rank) in standing.pools.iter_mut().zip(&route.pools) {
            because.push_str(&passed_over(control.composites(), rank));
        }
        standing
    }
}

/// That a `when` is not looked at, and what it would say; nothing where there is none that only observes.
fn passed_over(composites: &Composites, rank: &Rank) -> String {
    let Some(when) = &rank.tried_when else { return String::new() };
    // A reload may have come between.
    let would = composites.would_be(when).map_or("unknown", health::State::as_str);
    format!("; composite {when} only observes, so its `when` is not looked at (it is {would})")
}

impl RouteView {
    fn new(control: &Control, route: &Route, way: &Way) -> RouteView {
        let Standing { rank, since, failovers, pools } = Standing::of(control, route, way);
        let pools = route.pools.iter().zip(pools).map(|(rank, stands)| RankView::new(rank, stands)).collect();
        RouteView {
            name: route.name.to_string(),
            host: match &route.host {
                Host::Any => None,
                Host::Exact(host) => Some(host.clone()),
                Host::Wildcard(suffix) => Some(format!("*.{suffix}")),
            },
            path: route.path.clone(),
            pool: route.pools.get(rank).map(|rank| rank.pool.to_string()).unwrap_or_default(),
            rank,
            since: time_of(since),
            failback_delay_ms: route.failback.filter(|_| route.pools.len() > 1).map(millis),
            failovers,
            pools,
        }
    }
}

impl RankView {
    fn new(rank: &Rank, (ability, because, failback_at): (Ability, String, Option<Duration>)) -> RankView {
        RankView {
            pool: rank.pool.to_string(),
            when: rank.when.as_ref().map(ToString::to_string),
            observed_when: rank.tried_when.as_ref().map(ToString::to_string),
            ability: ability.as_str(),
            because,
            failback_at: failback_at.map(time_of),
        }
    }
}
