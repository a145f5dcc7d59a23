//! Probes against scripted origins, over real sockets.

mod bodies;
mod connections;
mod frames;
mod grpc;
mod h2;
mod heads;
mod origin;
mod prober;
mod requests;
mod reuse;
mod rounds;
mod scene;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use super::Check;
use crate::config::{Expect, HttpProbe, Probe, ProbeKind, ProbeMethod};
use crate::health::{Outcome, Reason, Sample};

/// Long enough never to end a test that works.
const PATIENCE: Duration = Duration::from_secs(20);

/// `GET /healthz`, 200-299, nothing asked of the body.
fn http_probe() -> HttpProbe {
    HttpProbe {
        tls: None,
        http2: false,
        method: ProbeMethod::Get,
        path: "/healthz".to_string(),
        host: None,
        host_header: None,
        headers: Vec::new(),
        expect: Expect { status: vec![(200, 299)], headers: Vec::new(), body: None },
        max_body: 64 * 1024,
    }
}

fn probe(kind: ProbeKind) -> Probe {
    Probe {
        kind,
        port: None,
        reuse: false,
        bind: None,
        auth: None,
        interval: PATIENCE,
        fast_interval: PATIENCE,
        timeout: PATIENCE,
        idle: None,
    }
}

fn check(http: HttpProbe, origin: SocketAddr) -> Check {
    Check::single(&probe(ProbeKind::Http(http)), "app1.test", origin).unwrap()
}

/// A check that gives up soon (after 300 ms): for origins that never answer.
fn impatient(http: HttpProbe, origin: SocketAddr) -> Check {
    giving_up_after(Duration::from_millis(300), http, origin)
}

fn giving_up_after(timeout: Duration, http: HttpProbe, origin: SocketAddr) -> Check {
    Check::single(&Probe { timeout, ..probe(ProbeKind::Http(http)) }, "app1.test", origin).unwrap()
}

#[track_caller]
fn assert_fail(sample: &Sample, reason: Reason, detail: &str) {
    assert_eq!(sample.outcome, Outcome::Fail(reason), "{sample:?}");
    assert!(sample.detail.contains(detail), "{detail:?} is not in {sample:?}");
}

#[track_caller]
fn assert_pass(sample: &Sample) {
    assert_eq!(sample.outcome, Outcome::Pass, "{sample:?}");
}
