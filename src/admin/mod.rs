//! The admin listener: liveness, readiness, and the API (interfaces.md, Admin listener).
//!
//! It runs on the control runtime, so that traffic cannot starve it. Reading is open on a loopback address and needs
//! the token on any other; writing needs the token where there is one, and refuses what a browser sends on another
//! site's behalf.
//!
//! Not here: what the answers mean (`views`), what is done (`control`).

mod accept;
mod alerts;
mod composites;
mod config;
mod diagnostics;
mod events;
mod explain;
mod extract;
mod guard;
mod manners;
mod metrics;
mod openapi;
mod pools;
mod probes;
mod problem;
mod query;
mod reload;
mod remediation;
mod routes;
mod seats;
mod status;
mod stream;
mod tied;
mod views;
mod words;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{MethodRouter, get, post};
use tokio::sync::Semaphore;

pub use manners::KNOWN_BY;

use crate::control::{Control, SetupError};
use crate::reload::Reloader;
use guard::Guard;
use problem::Problem;

/// What handlers reach; each takes the part it needs.
#[derive(Debug, Clone)]
struct Reach {
    control: Arc<Control>,
    /// One for each stream that may be open.
    streams: Arc<Semaphore>,
    pages: metrics::Places,
    reloader: Arc<Reloader>,
}

/// A path and what answers there, method by method.
type Endpoint = (&'static str, MethodRouter<Reach>);

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
pub fn serve(socket: TcpListener, control: Arc<Control>, reloader: Arc<Reloader>) {
    let listening = tokio::net::TcpListener::from_std(socket).and_then(|l| Ok((l.local_addr()?, l)));
    let (address, listener) = match listening {
        Ok(listening) => listening,
        Err(error) => return tracing::error!(target: "server", %error, "no admin listener"),
    };
    tracing::info!(target: "server", kind = "admin", listener = "admin", address = %address, "listening");
    let (streams, pages) = (Arc::new(Semaphore::new(stream::STREAMS)), metrics::Places::default());
    let reach = Reach { control, reloader, streams, pages };
    tokio::spawn(accept::accept(listener, router(reach, address)));
}

/// What only looks.
fn reading() -> Vec<Endpoint> {
    vec![
        ("/livez", get(status::livez)),
        ("/readyz", get(status::readyz)),
        ("/metrics", get(metrics::metrics)),
        ("/api/v1/pools", get(pools::pools)),
        ("/api/v1/pools/{pool}", get(pools::pool)),
        ("/api/v1/composites", get(composites::composites)),
        ("/api/v1/composites/{composite}", get(composites::composite)),
        ("/api/v1/probes", get(probes::probes)),
        ("/api/v1/routes", get(routes::routes)),
        ("/api/v1/explain", get(explain::explain)),
        ("/api/v1/events", get(events::events)),
        ("/api/v1/events/stream", get(stream::stream)),
        ("/api/v1/diagnostics", get(diagnostics::diagnostics)),
        ("/api/v1/diagnostics/{id}", get(diagnostics::diagnosis)),
        ("/api/v1/config", get(config::config)),
        ("/api/v1/openapi.json", get(openapi::document)),
        ("/api/v1/reload", get(reload::last)),
        ("/api/v1/remediation", get(remediation::remediation)),
        ("/api/v1/alerts", get(alerts::alerts)),
    ]
}

/// What changes something.
fn writing() -> Vec<Endpoint> {
    vec![
        ("/api/v1/pools/{pool}/members/{member}/{action}", post(pools::act)),
        ("/api/v1/pools/{pool}/members/{member}/replace", post(remediation::replace)),
        ("/api/v1/reload", post(reload::reload)),
    ]
}

fn router(reach: Reach, bound: SocketAddr) -> Router {
    let guard = Guard { control: reach.control.clone(), bound };
    let routes = |endpoints: Vec<Endpoint>| {
        endpoints.into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods))
    };
    let routes = |endpoints| routes(endpoints).route_layer(middleware::from_fn(query::none));
    let writing = routes(writing()).route_layer(middleware::from_fn_with_state(guard.clone(), guard::writing));
    routes(reading())
        .merge(writing)
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is nothing here") })
        .method_not_allowed_fallback(|| async { Problem::new(StatusCode::METHOD_NOT_ALLOWED, "not with this method") })
        .layer(middleware::from_fn_with_state(guard, guard::reading))
        .layer(middleware::from_fn(manners::manners))
        .with_state(reach)
}

impl FromRef<Reach> for Arc<Reloader> {
    fn from_ref(reach: &Reach) -> Arc<Reloader> {
        reach.reloader.clone()
    }
}

impl FromRef<Reach> for Arc<Control> {
    fn from_ref(reach: &Reach) -> Arc<Control> {
        reach.control.clone()
    }
}

impl FromRef<Reach> for metrics::Places {
    fn from_ref(reach: &Reach) -> metrics::Places {
        reach.pages.clone()
    }
}

impl FromRef<Reach> for Arc<Semaphore> {
    fn from_ref(reach: &Reach) -> Arc<Semaphore> {
        reach.streams.clone()
    }
}
