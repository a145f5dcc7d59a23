//! Replacement: how it stands, and a member replaced by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::Path;
use super::pools::find;
use super::problem::Problem;
use super::views::time_of;
use crate::clock;
use crate::config::{Action, Remediation};
use crate::control::Control;
use crate::health::replacement::{Ledger, Limit, Wait, Who};
use crate::remediate::{Ending, Finished, Overview, Refused, Running};
use crate::snapshot::{Served, Snapshot};

/// How replacement stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct RemediationView {
    /// Where it is kept what was replaced; null: in memory, and a restart forgets it.
    state_dir: Option<String>,
    /// Since when it is known that an earlier record is lost: for 24 hours every limit counts as used up. Null: none is.
    #[schema(format = DateTime)]
    lost_at: Option<String>,
    /// All pools together, within 12 hours.
    global: LimitView,
    /// Those that replace members, by name.
    pools: Vec<PoolRemediationView>,
    /// Those whose `remediation` only observes, by name, with what would count and wait if it did more.
    observed: Vec<PoolRemediationView>,
    /// What is under way.
    running: Vec<RunningView>,
    /// What is decided and waits until fewer are under way, in the order of their turns.
    queued: Vec<RunningView>,
    /// What is over, newest first; the last 100 since the start.
    finished: Vec<FinishedView>,
}

/// A limit, and what of it is used.
#[derive(Debug, Serialize, ToSchema)]
pub struct LimitView {
    /// How many it allows.
    limit: u32,
    /// How many it counts now; all of them while an earlier record is lost.
    used: usize,
    /// The window's length.
    window_ms: f64,
    /// When there is room for another one; null where there is now, or never is.
    #[schema(format = DateTime)]
    room_at: Option<String>,
}

/// A pool that replaces members.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoolRemediationView {
    /// Its name.
    pool: String,
    /// Without a pass for so long a member is due.
    after_ms: f64,
    /// `command` or `webhook`.
    action: &'static str,
    /// Within an hour.
    hour: LimitView,
    /// Within a day.
    day: LimitView,
    /// Who is due and waits, oldest first.
    waiting: Vec<WaitingView>,
}

/// A member that is due and waits.
#[derive(Debug, Serialize, ToSchema)]
pub struct WaitingView {
    /// Its address.
    member: String,
    /// Its name.
    name: String,
    /// Since when no probe of it has passed.
    #[schema(format = DateTime)]
    unpassed_since: String,
    /// What it waits for: `hour`, `day` or `global`, a limit; `lost`, since an earlier record is, and every limit counts as used
    /// up; `shared`, another pool of its machine; `unnoted`, the disk.
    reason: &'static str,
    /// The pool whose limit it is, or where its machine does not fail; null where it is none's.
    of: Option<String>,
}

/// A replacement that is under way.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunningView {
    /// Of this one alone.
    id: String,
    /// Whose member.
    pool: String,
    /// Its address.
    member: String,
    /// Who wanted it: `rule` or `hand`.
    by: &'static str,
    /// When it began.
    #[schema(format = DateTime)]
    since: String,
}

/// A replacement that is over.
#[derive(Debug, Serialize, ToSchema)]
pub struct FinishedView {
    /// Of this one alone.
    id: String,
    /// Whose member.
    pool: String,
    /// Its address.
    member: String,
    /// Who wanted it: `rule` or `hand`.
    by: &'static str,
    /// When it was begun.
    #[schema(format = DateTime)]
    at: String,
    /// How long it took.
    took_ms: f64,
    /// `done` or `failed`.
    result: &'static str,
    /// Why it failed, in a word; null where it did not.
    reason: Option<&'static str>,
    /// What was printed, answered, or went wrong.
    detail: String,
}

/// A replacement that has begun by hand.
#[derive(Debug, Serialize, ToSchema)]
pub struct BegunView {
    /// Of this one alone: it is in the list of what is under way, and then of what is over.
    id: String,
    /// Whose member.
    pool: String,
    /// Its address.
    member: String,
    /// `started`, or `queued` while as many are under way as may be: how it goes on is told by events and by the list.
    decision: &'static str,
    /// The pools whose limits it counts under.
    counts_for: Vec<String>,
    /// Other pools that its machine serves.
    shared_with: Vec<String>,
}

/// What was replaced, what waits, and what the limits leave.
#[utoipa::path(
    get, path = "/api/v1/remediation", tag = "remediation",
    responses((status = 200, description = "As it stands", body = RemediationView)),
)]
pub async fn remediation(State(control): State<Arc<Control>>) -> Json<RemediationView> {
    Json(RemediationView::new(&control))
}

/// Has a member replaced now, however it is; the limits hold all the same.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/members/{member}/replace", tag = "remediation",
    params(
        ("pool" = String, Path, description = "The pool's name", example = "web"),
        ("member" = String, Path, description = "The member's address or its name where no other member has it, or both \
            with a blank between them",
            example = "127.0.0.1:9001"),
    ),
    responses(
        (status = 200, description = "It has begun", body = BegunView),
        (status = 400, description = "The path is no text", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such pool or member", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "A limit is used up, the pool has no `remediation`, it is being replaced already, or the \
            name or address is several members", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "What is done cannot be noted down, or the process is ending", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn replace(
    State(control): State<Arc<Control>>,
    Path((pool, member)): Path<(String, String)>,
) -> Result<Json<BegunView>, Problem> {
    let snapshot = control.snapshot();
    let live = find(&snapshot, &pool, &member)?;
    let refused = |refused: Refused| {
        let status = match refused {
            Refused::Gone => StatusCode::NOT_FOUND,
            Refused::Ending | Refused::Unnoted(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refused::OnlyObserves(_) => StatusCode::CONFLICT,
            Refused::NoAction(_) | Refused::NoAddress | Refused::Running | Refused::Full(_) => StatusCode::CONFLICT,
        };
        Problem::new(status, format!("member {member:?} is not replaced: {refused}"))
    };
    let begun = control.remediator().by_hand(&pool, live.id()).await.map_err(refused)?;
    let texts = |pools: Vec<Arc<str>>| pools.iter().map(|pool| pool.to_string()).collect();
    Ok(Json(BegunView {
        id: begun.id,
        pool,
        member: live.label().to_string(),
        decision: if begun.is_queued { "queued" } else { "started" },
        counts_for: texts(begun.counts_for),
        shared_with: texts(begun.shared_with),
    }))
}

impl RemediationView {
    fn new(control: &Control) -> RemediationView {
        let (snapshot, remediator) = (control.snapshot(), control.remediator());
        let overview = remediator.overview();
        let pools: BTreeMap<&String, (&Arc<Served>, &Remediation)> = snapshot
            .pools
            .iter()
            .filter_map(|(name, served)| Some((name, (served, served.config.remediation.as_ref()?))))
            .collect();
        let ledger = &overview.ledger;
        RemediationView {
            state_dir: remediator.store().dir().map(|dir| dir.path().display().to_string()),
            lost_at: ledger.lost_at().map(|at| ago(ledger.now().counted.saturating_sub(at.counted))),
            global: LimitView::new(ledger, Limit::Global, "", snapshot.config.max_global),
            pools: pools.values().map(|(served, rule)| PoolRemediationView::new(served, rule, &overview)).collect(),
            observed: observed(&snapshot, &overview),
            running: overview.running.iter().map(RunningView::new).collect(),
            queued: overview.queued.iter().map(RunningView::new).collect(),
            finished: overview.finished.iter().map(|finished| FinishedView::new(finished)).collect(),
        }
    }
}

/// The pools whose remediation only observes, as the trial has them.
fn observed(snapshot: &Snapshot, overview: &Overview) -> Vec<PoolRemediationView> {
    let Some(trial) = &overview.trial else { return Vec::new() };
    let (ledger, waiting) = (trial.ledger().clone(), trial.waiting().clone());
    let tried = Overview { ledger, waiting, running: vec![], queued: vec![], finished: vec![], trial: None };
    let pools: BTreeMap<&String, &Arc<Served>> = snapshot.pools.iter().collect();
    let view = |served: &&Arc<Served>| {
        Some(PoolRemediationView::new(served, served.config.observed_remediation.as_ref()?, &tried))
    };
    pools.values().filter_map(view).collect()
}

impl LimitView {
    fn new(ledger: &Ledger, limit: Limit, pool: &str, most: u32) -> LimitView {
        let room_in = ledger.free_in(limit, pool, most).filter(|room_in| !room_in.is_zero());
        LimitView {
            limit: most,
            used: ledger.spent(limit, pool, most),
            window_ms: millis(limit.span()),
            room_at: room_in.map(|room_in| time_of(clock::monotonic() + room_in)),
        }
    }
}

impl PoolRemediationView {
    fn new(served: &Served, rule: &Remediation, overview: &Overview) -> PoolRemediationView {
        let pool = &served.config.name;
        let mut waiting: Vec<(Duration, WaitingView)> = served.live.read(|health, members| {
            let view = |((_, id), wait): (&Who, &Wait)| {
                let (member, live) = (health.member(*id)?, members.get(health.index_of(*id)?)?);
                let since = member.unpassed_since();
                let of = match wait {
                    Wait::Shared(pool) => Some(pool.to_string()),
                    Wait::Full(full) if full.is_lost => None,
                    Wait::Full(full) => Some(full.pool.to_string()).filter(|pool| !pool.is_empty()),
                    Wait::Unnoted => None,
                };
                let (label, name) = (live.label().to_string(), live.key().name.clone());
                let unpassed_since = time_of(since);
                Some((since, WaitingView { member: label, name, unpassed_since, reason: wait.as_str(), of }))
            };
            overview.waiting_in(served.live.name()).filter_map(view).collect()
        });
        waiting.sort_by_key(|(since, _)| *since);
        let limits = rule.limits;
        PoolRemediationView {
            pool: pool.clone(),
            after_ms: millis(rule.after),
            action: match rule.action {
                Action::Command { .. } => "command",
                Action::Webhook(_) => "webhook",
            },
            hour: LimitView::new(&overview.ledger, Limit::Hour, pool, limits.per_hour),
            day: LimitView::new(&overview.ledger, Limit::Day, pool, limits.per_day),
            waiting: waiting.into_iter().map(|(_, view)| view).collect(),
        }
    }
}

impl RunningView {
    fn new(running: &Running) -> RunningView {
        let Running { id, who, member, by, since, .. } = running;
        RunningView {
            id: id.clone(),
            pool: who.0.to_string(),
            member: member.to_string(),
            by: by.as_str(),
            since: time_of(*since),
        }
    }
}

impl FinishedView {
    fn new(finished: &Finished) -> FinishedView {
        let Finished { id, pool, member, by, began, took, result, detail } = finished;
        let (result, reason) = match result {
            Ending::Done => ("done", None),
            Ending::Failed(word) => ("failed", Some(*word)),
        };
        FinishedView {
            id: id.clone(),
            pool: pool.to_string(),
            member: member.to_string(),
            by: by.as_str(),
            at: time_of(*began),
            took_ms: millis(*took),
            result,
            reason,
            detail: detail.clone(),
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

/// The time of day so long ago, which may be before this process began.
fn ago(ago: Duration) -> String {
    humantime::format_rfc3339_millis(clock::wall_ago(ago)).to_string()
}
