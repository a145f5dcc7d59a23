//! Pools and their members: to look at, and to act on.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa::ToSchema;

use super::extract::Path;
use super::problem::Problem;
use super::views::{MemberView, PoolView};
use crate::control::{Control, Few};
use crate::health::{Admin, MemberId};
use crate::pool::Member;
use crate::snapshot::{Served, Snapshot};

/// What can be done with a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Action {
    /// It takes part again.
    Enable,
    /// Nothing new; what runs may finish.
    Drain,
    /// No traffic and no probes.
    Disable,
    /// A probe is made at once; its result comes later.
    Probe,
}

/// All pools, by name.
#[utoipa::path(
    get, path = "/api/v1/pools", tag = "pools",
    responses((status = 200, description = "As they stand", body = Vec<PoolView>)),
)]
pub async fn pools(State(control): State<Arc<Control>>) -> Json<Vec<PoolView>> {
    let snapshot = control.snapshot();
    let mut views: Vec<_> = snapshot.pools.values().map(|pool| PoolView::new(&control, pool)).collect();
    views.sort_by(|a, b| a.name.cmp(&b.name));
    Json(views)
}

/// One pool.
#[utoipa::path(
    get, path = "/api/v1/pools/{pool}", tag = "pools",
    params(("pool" = String, Path, description = "Its name", example = "web")),
    responses(
        (status = 200, description = "As it stands", body = PoolView),
        (status = 400, description = "The path is no text", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such pool", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn pool(State(control): State<Arc<Control>>, Path(name): Path<String>) -> Result<Json<PoolView>, Problem> {
    let snapshot = control.snapshot();
    let pool = snapshot.pools.get(&name).ok_or_else(|| no_pool(&name, &snapshot))?;
    Ok(Json(PoolView::new(&control, pool)))
}

/// An operator's word on a member, or a probe of it now.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/members/{member}/{action}", tag = "pools",
    params(
        ("pool" = String, Path, description = "The pool's name", example = "web"),
        ("member" = String, Path, description = "The member's address or its name where no other member has it, or both \
            with a blank between them",
            example = "127.0.0.1:9001"),
        ("action" = Action, Path, description = "What to do with it"),
    ),
    responses(
        (status = 200, description = "The member as it then stands", body = MemberView),
        (status = 400, description = "The path is no text", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such pool, member or action", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The name or address is several members, the member is not probed, or it may not be enabled beside another", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn act(
    State(control): State<Arc<Control>>,
    Path((pool, member, action)): Path<(String, String, String)>,
) -> Result<Json<MemberView>, Problem> {
    let snapshot = control.snapshot();
    let id = find(&snapshot, &pool, &member)?.id();
    let served = snapshot.pools.get(&pool).ok_or_else(|| no_pool(&pool, &snapshot))?;
    let no_member = || no_member(served, &pool, &member);
    let administer = |admin| control.administer(&pool, id, admin).ok_or_else(no_member);
    match Action::read(&action)? {
        Action::Enable => {
            if let Some(other) = enabled_beside(served, id) {
                let why = "preset front_door has no pool without probes in which two members are enabled";
                let how = format!("disable or drain {other} first, or remove `probe: off`");
                return Err(Problem::new(StatusCode::CONFLICT, format!("member {member:?}: {why}; {how}")));
            }
            administer(Admin::Enabled)?;
        }
        Action::Drain => administer(Admin::Draining)?,
        Action::Disable => administer(Admin::Disabled)?,
        Action::Probe => {
            if !control.probe_now(&pool, id).ok_or_else(no_member)? {
                let why = "it is not probed: the pool has no probe, or the member is disabled or has no address";
                return Err(Problem::new(StatusCode::CONFLICT, format!("member {member:?}: {why}")));
            }
        }
    }
    MemberView::find(&control, served, id).map(Json).ok_or_else(no_member)
}

/// Who is enabled beside the member `id`, where nobody may be.
fn enabled_beside(served: &Served, id: MemberId) -> Option<Arc<str>> {
    if !served.config.only_one_enabled {
        return None;
    }
    served.live.read(|health, members| {
        let both = health.members().iter().zip(members);
        let mut enabled = both.filter(|(member, _)| member.id() != id && member.admin() == Admin::Enabled);
        enabled.next().map(|(_, live)| live.label().clone())
    })
}

/// The one member of `pool` that `member` names.
///
/// # Errors
/// There is no such pool or member, or several are called so.
pub fn find(snapshot: &Snapshot, pool: &str, member: &str) -> Result<Arc<Member>, Problem> {
    let served = snapshot.pools.get(pool).ok_or_else(|| no_pool(pool, snapshot))?;
    let roster = served.live.roster();
    match named(roster.members(), member).as_slice() {
        [] => Err(no_member(served, pool, member)),
        [one] => Ok((*one).clone()),
        several => Err(ambiguous(member, several, roster.members())),
    }
}

impl Action {
    fn read(word: &str) -> Result<Action, Problem> {
        match word {
            "enable" => Ok(Action::Enable),
            "drain" => Ok(Action::Drain),
            "disable" => Ok(Action::Disable),
            "probe" => Ok(Action::Probe),
            _ => {
                let known = "enable, drain, disable, probe and replace";
                Err(Problem::new(StatusCode::NOT_FOUND, format!("no action {word:?}; there are {known}")))
            }
        }
    }
}

/// The members that `wanted` is the address or the name of, or both with a blank between them, as metrics have it: that is
/// never more than one.
fn named<'a>(members: &'a [Arc<Member>], wanted: &str) -> Vec<&'a Arc<Member>> {
    let both = |member: &Member| wanted.strip_prefix(&**member.label()).and_then(|rest| rest.strip_prefix(' '));
    let is_it = |member: &Member| {
        let name = &member.key().name;
        **member.label() == *wanted || name == wanted || both(member) == Some(name)
    };
    members.iter().filter(|member| is_it(member)).collect()
}

/// Nobody is acted on where it might be somebody else: what each of them alone is called is listed instead.
fn ambiguous(wanted: &str, several: &[&Arc<Member>], members: &[Arc<Member>]) -> Problem {
    let called = |member: &&Arc<Member>| {
        let (address, name) = (member.label(), &member.key().name);
        let is_alone = |called: &&str| named(members, called).len() == 1;
        let short = [&**address, name.as_str()].into_iter().find(is_alone).map(str::to_owned);
        short.unwrap_or_else(|| format!("{address} {name}"))
    };
    let called: Vec<String> = several.iter().map(called).collect();
    let why = format!("{wanted:?} is {} members; name one: {}", several.len(), Few::of(called.iter()));
    Problem::new(StatusCode::CONFLICT, why)
}

fn no_pool(name: &str, snapshot: &Snapshot) -> Problem {
    let mut known: Vec<String> = snapshot.pools.keys().cloned().collect();
    known.sort();
    Problem::new(StatusCode::NOT_FOUND, format!("no pool {name:?}; {}", Few::of(known.iter()).there_are()))
}

fn no_member(served: &Served, pool: &str, wanted: &str) -> Problem {
    let roster = served.live.roster();
    let known: Vec<String> = roster.members().iter().map(|member| member.label().to_string()).collect();
    let there_are = Few::of(known.iter()).there_are();
    Problem::new(StatusCode::NOT_FOUND, format!("pool {pool:?} has no member {wanted:?}; {there_are}"))
}
