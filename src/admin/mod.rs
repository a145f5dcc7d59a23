//! The admin listener: liveness, readiness, and the API (interfaces.md, Admin listener).
//!
//! It runs on the control runtime, so that traffic cannot starve it. Reading is open on a loopback address and needs
//! the token on any other; writing needs the token where there is one, and refuses what a browser sends on another
//! site's behalf.
//!
//! Not here: what the answers mean (`views`), what is done (`control`).

mod accept;
mod guard;
mod problem;
mod views;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};

use crate::control::{Control, SetupError};
use crate::health::Admin;
use crate::snapshot::Served;
use guard::Guard;
use problem::Problem;
use views::{MemberView, PoolView};

/// Binds the admin address; nothing is answered yet.
///
/// # Errors
/// It cannot be had.
pub fn bind(address: SocketAddr) -> Result<TcpListener, SetupError> {
    let sockets = crate::listener::bind(address, 1).map(|mut sockets| sockets.pop());
    let refused = |cause| SetupError::Bind { address, cause };
    sockets.map_err(refused)?.ok_or_else(|| refused(std::io::ErrorKind::AddrNotAvailable.into()))
}

/// Answers on `socket` until the process ends.
pub fn serve(socket: TcpListener, control: Arc<Control>) {
    let listening = tokio::net::TcpListener::from_std(socket).and_then(|l| Ok((l.local_addr()?, l)));
    let (address, listener) = match listening {
        Ok(listening) => listening,
        Err(error) => return tracing::error!(target: "server", %error, "no admin listener"),
    };
    tracing::info!(target: "server", kind = "admin", listener = "admin", address = %address, "listening");
    tokio::spawn(accept::accept(listener, router(control, address)));
}

fn router(control: Arc<Control>, bound: SocketAddr) -> Router {
    let guard = Guard { control: control.clone(), bound };
    let writing = Router::new()
        .route("/api/v1/pools/{pool}/members/{member}/{action}", post(act))
        .route_layer(middleware::from_fn_with_state(guard.clone(), guard::writing));
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/api/v1/pools", get(pools))
        .route("/api/v1/pools/{pool}", get(pool))
        .merge(writing)
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is nothing here") })
        .method_not_allowed_fallback(|| async { Problem::new(StatusCode::METHOD_NOT_ALLOWED, "not with this method") })
        .layer(middleware::from_fn_with_state(guard, guard::reading))
        .with_state(control)
}

async fn readyz(State(control): State<Arc<Control>>) -> Response {
    match control.readiness() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn pools(State(control): State<Arc<Control>>) -> Json<Vec<PoolView>> {
    let snapshot = control.snapshot();
    let mut views: Vec<_> = snapshot.pools.values().map(|pool| PoolView::new(&control, pool)).collect();
    views.sort_by(|a, b| a.name.cmp(&b.name));
    Json(views)
}

async fn pool(State(control): State<Arc<Control>>, Path(name): Path<String>) -> Result<Json<PoolView>, Problem> {
    let snapshot = control.snapshot();
    let pool = snapshot.pools.get(&name).ok_or_else(|| no_pool(&name))?;
    Ok(Json(PoolView::new(&control, pool)))
}

async fn act(
    State(control): State<Arc<Control>>,
    Path((pool, member, action)): Path<(String, String, String)>,
) -> Result<Json<MemberView>, Problem> {
    let snapshot = control.snapshot();
    let served = snapshot.pools.get(&pool).ok_or_else(|| no_pool(&pool))?;
    let member = only_one(served, &pool, &member)?;
    let no_member = || Problem::new(StatusCode::NOT_FOUND, format!("pool {pool:?} has no member {member:?}"));
    let administer = |admin| control.administer(&pool, &member, admin).ok_or_else(no_member);
    match action.as_str() {
        "enable" => administer(Admin::Enabled)?,
        "drain" => administer(Admin::Draining)?,
        "disable" => administer(Admin::Disabled)?,
        "probe" => {
            if !control.probe_now(&pool, &member).ok_or_else(no_member)? {
                let why = "it is not probed: the pool has no probe, or the member is disabled or has no address";
                return Err(Problem::new(StatusCode::CONFLICT, format!("member {member:?}: {why}")));
            }
        }
        _ => {
            let known = "enable, drain, disable and probe";
            return Err(Problem::new(StatusCode::NOT_FOUND, format!("no action {action:?}; there are {known}")));
        }
    }
    MemberView::find(&control, served, &member).map(Json).ok_or_else(no_member)
}

/// The address of the member that is called `wanted`, which is its address or a name that no other has.
fn only_one(served: &Served, pool: &str, wanted: &str) -> Result<String, Problem> {
    let roster = served.live.roster();
    if roster.members().iter().any(|member| **member.label() == *wanted) {
        return Ok(wanted.to_owned());
    }
    let named = roster.members().iter().filter(|member| member.key().name == wanted);
    match named.map(|member| &**member.label()).collect::<Vec<_>>().as_slice() {
        [] => Err(Problem::new(StatusCode::NOT_FOUND, format!("pool {pool:?} has no member {wanted:?}"))),
        [one] => Ok((*one).to_owned()),
        several => {
            let why = format!("{wanted:?} is {} members; name one: {}", several.len(), several.join(", "));
            Err(Problem::new(StatusCode::CONFLICT, why))
        }
    }
}

fn no_pool(name: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("no pool {name:?}"))
}
