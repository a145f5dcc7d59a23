//! One probe of one member: dial, ask, judge the answer.
//!
//! Everything that can be wrong with a probe's configuration is found when it is built; running it cannot fail, it only
//! gives a [`Sample`]. The whole of it stands under one timeout that starts at the dial, so waiting for anything of our
//! own never makes a member late.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::fault::{Failure, Stage};
use super::http::{Question, Request};
use super::tape::Tape;
use super::tcp;
use crate::config::{Probe, ProbeKind};
use crate::health::{Outcome, Phases, Sample};
use crate::tls::{Files, TlsError};

/// Bytes of each direction, and of the body, that an [`Exchange`] shows at most.
const SHOWN: usize = 64 * 1024;
/// Of what came, so many bytes are kept in any case, to say what it began with where it is not HTTP.
const QUOTED: usize = 64;

/// Why a probe cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// There can be no TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Not fit for the Host field.
    #[error("host {0:?} cannot be sent")]
    Host(String),
    /// Not a path.
    #[error("path {0:?} is not a path")]
    Path(String),
    /// A header that cannot be sent.
    #[error("header {0:?} cannot be sent: {1}")]
    Header(String, &'static str),
}

/// What the probes of all members of a pool share: read and checked once.
#[derive(Debug)]
pub struct Recipe {
    timeout: Duration,
    question: Option<Question>,
}

impl Recipe {
    /// Takes what the probe needs out of `files` and checks the rest.
    pub fn new(probe: &Probe, files: &mut Files) -> Result<Recipe, CheckError> {
        let question = match &probe.kind {
            ProbeKind::Tcp => None,
            ProbeKind::Http(http) => Some(Question::new(http, files)?),
        };
        Ok(Recipe { timeout: probe.timeout, question })
    }

    /// Of what the files held: part of the probe's fingerprint (health.md §9), since another authority may judge otherwise.
    /// `None`: it needs none.
    pub fn seal(&self) -> Option<u64> {
        self.question.as_ref()?.tls().map(|tls| tls.seal)
    }
}

/// One member's probe, ready to be made again and again.
#[derive(Debug)]
pub struct Check {
    recipe: Arc<Recipe>,
    host: String,
    peer: SocketAddr,
    /// `None`: a connection is all that is asked for.
    request: Option<Request>,
}

/// What passed between the prober and the member, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Who was dialled.
    pub peer: SocketAddr,
    /// How the connection was secured; `None` without TLS.
    pub tls: Option<Secured>,
    /// The beginning of what was sent.
    pub sent: Vec<u8>,
    /// The beginning of what came, header, framing and body, as it came.
    pub received: Vec<u8>,
    /// The beginning of the body, decoded.
    pub body: Vec<u8>,
}

/// What was asked of a connection's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secured {
    /// The name that was asked for, or the address, which is not sent.
    pub server_name: String,
    /// Whether the certificate had to be for it, and from an authority that is trusted.
    pub verified: bool,
    /// Whether the member could have a certificate of ours.
    pub client_certificate: bool,
}

impl Exchange {
    /// The header of the answer as it came, with those of interim answers before it; empty: what came is no answer.
    pub fn answer_head(&self) -> &[u8] {
        let mut end = 0;
        while let Some(length) = self.received[end..].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = &self.received[end..end + length];
            end += length + 4;
            let code = head.strip_prefix(b"HTTP/1.1 ").unwrap_or_default();
            if !code.starts_with(b"1") || code.starts_with(b"101") {
                break;
            }
        }
        &self.received[..end]
    }
}

impl Check {
    /// The probe of the member whose own name is `host` (without port; an IPv6 literal without brackets). `address` is where
    /// it is now, with the port that is probed.
    pub fn new(recipe: &Arc<Recipe>, host: &str, address: SocketAddr) -> Result<Check, CheckError> {
        let request = recipe.question.as_ref().map(|question| question.to_member(host, address.port())).transpose()?;
        Ok(Check { recipe: recipe.clone(), host: host.to_owned(), peer: address, request })
    }

    /// The probe of one member by itself; where there are several, share a [`Recipe`].
    pub fn single(probe: &Probe, host: &str, address: SocketAddr) -> Result<Check, CheckError> {
        Check::new(&Arc::new(Recipe::new(probe, &mut Files::default())?), host, address)
    }

    /// Who is dialled.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The member's own name, without port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// How long the probe may take, from the dial to the last byte.
    pub fn timeout(&self) -> Duration {
        self.recipe.timeout
    }

    /// Makes the probe.
    pub async fn run(&self) -> Sample {
        let mut trail = Trail::new(0);
        self.perform(&mut trail).await
    }

    /// Makes the probe and keeps what passed. Where the answer's header decides, the body is read all the same.
    pub async fn record(&self) -> (Sample, Exchange) {
        let mut trail = Trail::new(SHOWN);
        let sample = self.perform(&mut trail).await;
        let exchange = Exchange {
            peer: self.peer,
            tls: self.secured(),
            sent: trail.tape.sent(),
            received: trail.tape.received(),
            body: trail.body,
        };
        (sample, exchange)
    }

    fn secured(&self) -> Option<Secured> {
        let tls = self.recipe.question.as_ref()?.tls()?;
        let server_name = self.request.as_ref()?.server_name()?.to_str().into_owned();
        Some(Secured { server_name, verified: tls.verified, client_certificate: tls.client_certificate })
    }

    async fn perform(&self, trail: &mut Trail) -> Sample {
        let timeout = self.recipe.timeout;
        let result = match tokio::time::timeout(timeout, self.converse(trail)).await {
            Ok(result) => result,
            Err(_) => Err(trail.decided.take().unwrap_or_else(|| Failure::timeout(trail.stage, timeout))),
        };
        trail.sample(result)
    }

    async fn converse(&self, trail: &mut Trail) -> Result<(), Failure> {
        let stream = tcp::dial(self.peer).await.map_err(|error| Failure::io(&error, Stage::Dialling))?;
        trail.phases.connect = Some(trail.started.elapsed());
        let (Some(request), Some(question)) = (&self.request, &self.recipe.question) else {
            return Ok(());
        };
        let (Some(tls), Some(name)) = (question.tls(), request.server_name()) else {
            return question.ask(request, stream, trail).await;
        };
        trail.stage = Stage::Securing;
        let securing = Instant::now();
        let stream = TlsConnector::from(tls.client.clone())
            .connect(name.clone(), stream)
            .await
            .map_err(|error| Failure::io(&error, Stage::Securing))?;
        trail.phases.tls = Some(securing.elapsed());
        question.ask(request, stream, trail).await
    }
}

/// What is known of a probe while it runs, and stays known when its time is over.
#[derive(Debug)]
pub(super) struct Trail {
    pub(super) started: Instant,
    pub(super) stage: Stage,
    pub(super) phases: Phases,
    pub(super) status: Option<u16>,
    pub(super) tape: Tape,
    /// Bytes of the body to keep.
    pub(super) keep: usize,
    pub(super) body: Vec<u8>,
    /// The probe has failed already, and what still runs only shows more of the answer.
    decided: Option<Failure>,
    decided_at: Option<Instant>,
}

impl Trail {
    fn new(keep: usize) -> Trail {
        Trail {
            started: Instant::now(),
            stage: Stage::Dialling,
            phases: Phases::default(),
            status: None,
            tape: Tape::new(keep.max(QUOTED)),
            keep,
            body: Vec::new(),
            decided: None,
            decided_at: None,
        }
    }

    /// The answer is wrong; anything that follows is only looked at.
    pub(super) fn decide(&mut self, failure: Failure) {
        self.decided = Some(failure);
        self.decided_at = Some(Instant::now());
    }

    /// Keeps a piece of the body, where somebody wants to see it.
    pub(super) fn keep(&mut self, piece: &[u8]) {
        let room = self.keep.saturating_sub(self.body.len());
        self.body.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn sample(&self, result: Result<(), Failure>) -> Sample {
        let ended = self.decided_at.unwrap_or_else(Instant::now);
        let phases = Phases { total: ended - self.started, ..self.phases };
        let (outcome, detail) = match result {
            Ok(()) => (Outcome::Pass, String::new()),
            Err(failure) => (failure.outcome, failure.detail),
        };
        Sample { outcome, detail, status: self.status, phases }
    }
}
