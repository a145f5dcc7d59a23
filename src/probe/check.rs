//! One probe of one member: dial, ask, judge the answer.
//!
//! Everything that can be wrong with a probe's configuration is found when it is built; running it cannot fail, it only
//! gives a [`Sample`]. The whole of it stands under one timeout that starts at the dial, so waiting for anything of our
//! own never makes a member late.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::fault::{Failure, Stage, Trouble, is_http2};
use super::mask::Mask;
use super::proof::Proof;
use super::script::Script;
use super::session::{Kept, Sender, Session};
use super::tape::Tape;
use super::way::{Request, Version, Way};
use super::{grpc, http, tcp};
use crate::config::{Lasting, Probe, ProbeKind, without_secrets};
use crate::health::{Outcome, Phases, Sample};
use crate::tls::{Files, TlsError};

/// Bytes of each direction, and of the body, that an [`Exchange`] shows at most.
const SHOWN: usize = 64 * 1024;
/// Bytes of each direction that are taped while somebody may want to see them afterwards: a request and an answer's header.
const TAPED: usize = 8 * 1024;
/// The same of the body.
const TAPED_BODY: usize = 4 * 1024;
/// How long the body of a wrong answer is waited for then: mostly it has come with the header.
const MOMENT: Duration = Duration::from_millis(50);
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
    /// The file of a secret that cannot be used.
    #[error("{}: {cause}", path.display())]
    Secret {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// A header that cannot be sent.
    #[error("header {0:?} cannot be sent: {1}")]
    Header(String, &'static str),
}

/// What the probes of all members of a pool share: read and checked once.
#[derive(Debug)]
pub struct Recipe {
    timeout: Duration,
    bind: Option<IpAddr>,
    /// A connection is kept for the next probe.
    reuse: bool,
    /// `None`: a connection is all that is asked for.
    question: Option<Question>,
    /// Of what the files held.
    seal: Option<u64>,
    mask: Arc<Mask>,
}

/// What is asked of every member of a pool, and what answer is right.
#[derive(Debug)]
enum Question {
    Http(http::Question),
    Grpc(grpc::Question),
}

impl Recipe {
    /// Takes what the probe needs out of `files` and checks the rest.
    pub fn new(probe: &Probe, files: &mut Files) -> Result<Recipe, CheckError> {
        let proof = probe.auth.as_ref().map(|proof| Proof::new(proof, files)).transpose()?;
        let question = match &probe.kind {
            ProbeKind::Tcp => None,
            ProbeKind::Http(http) => Some(Question::Http(http::Question::new(probe, http, proof.as_ref(), files)?)),
            ProbeKind::Grpc(grpc) => Some(Question::Grpc(grpc::Question::new(grpc, proof.as_ref(), files)?)),
        };
        let tls = question.as_ref().and_then(|question| question.way().tls.as_ref()).map(|tls| tls.seal);
        let seals = [tls, proof.as_ref().map(Proof::seal)];
        let proven = proof.as_ref().and_then(|proof| proof.value.to_str().ok());
        Ok(Recipe {
            timeout: probe.timeout,
            bind: probe.bind,
            reuse: probe.reuse,
            question,
            seal: seals.iter().any(Option::is_some).then(|| together(seals)),
            mask: Arc::new(Mask::of(probe.kind.secrets().into_iter().chain(proven))),
        })
    }

    /// Of what the files held: part of the probe's fingerprint (health.md §9), since another authority may judge otherwise.
    /// `None`: it needs none.
    pub fn seal(&self) -> Option<u64> {
        self.seal
    }
}

impl Question {
    fn way(&self) -> &Way {
        match self {
            Question::Http(http) => http.way(),
            Question::Grpc(grpc) => grpc.way(),
        }
    }

    /// Sends the request and judges the answer.
    async fn talk(&self, request: &Request, sender: &mut Sender, trail: &mut Trail) -> Result<(), Trouble> {
        let message = match self {
            Question::Http(http) => http.message(request, trail),
            Question::Grpc(grpc) => grpc.message(request, trail),
        };
        trail.asks(self.way().version, &message);
        if let Question::Grpc(grpc) = self {
            grpc.show(trail);
        }
        let answer = sender.send(message).await?;
        trail.is_answered(self.way().version, &answer);
        match self {
            Question::Http(http) => http.judge(answer, trail).await,
            Question::Grpc(grpc) => grpc.judge(answer, trail).await,
        }
    }
}

fn together(seals: [Option<u64>; 2]) -> u64 {
    let mut hasher = Lasting::default();
    seals.hash(&mut hasher);
    hasher.finish()
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

/// What passed between the prober and the member, for people: its secrets are covered, where the answer repeats them too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Who was dialled.
    pub peer: SocketAddr,
    /// How the connection was secured; `None` without TLS.
    pub tls: Option<Secured>,
    /// The beginning of what was sent; over HTTP/2 the request's header in the lines of HTTP/1.1, for gRPC with its message.
    pub sent: Vec<u8>,
    /// The beginning of what came, header, framing and body, as it came; over HTTP/2 the answer's header alone, in lines.
    pub received: Vec<u8>,
    /// The beginning of the body, decoded; for gRPC its message in words.
    pub body: Vec<u8>,
    /// The fields after the body, over HTTP/2, in lines.
    pub trailers: Vec<u8>,
}

/// What a probe asks, for those who tell probes apart. TCP has no more than a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// `tcp`, `http` or `grpc`.
    pub kind: &'static str,
    /// `http` or `https`.
    pub scheme: Option<&'static str>,
    /// Of the request.
    pub method: Option<String>,
    /// The Host field, or what HTTP/2 has in its place.
    pub host: Option<String>,
    /// The request's path, with its query, in which secrets are covered as in the configuration that is shown.
    pub path: Option<String>,
    /// The service that gRPC is asked for; empty: the whole server.
    pub service: Option<String>,
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
        let request = |question: &Question| question.way().to_member(host, address.port());
        let request = recipe.question.as_ref().map(request).transpose()?;
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

    /// What it asks.
    pub fn asked(&self) -> Asked {
        let (Some(request), Some(question)) = (&self.request, &self.recipe.question) else {
            return Asked { kind: "tcp", ..Asked::default() };
        };
        let (kind, method, path, service) = match question {
            Question::Http(http) => ("http", http.method(), http.path(), None),
            Question::Grpc(grpc) => ("grpc", "POST", grpc::METHOD, Some(grpc.service().to_owned())),
        };
        Asked {
            kind,
            scheme: Some(if question.way().tls.is_some() { "https" } else { "http" }),
            method: Some(method.to_owned()),
            host: Some(String::from_utf8_lossy(request.host.as_bytes()).into_owned()),
            path: Some(without_secrets(path)),
            service,
        }
    }

    /// Whether its connection is to be kept for the next one.
    pub fn keeps(&self) -> bool {
        self.recipe.reuse && self.request.is_some()
    }

    /// How long the probe may take, from the dial to the last byte.
    pub fn timeout(&self) -> Duration {
        self.recipe.timeout
    }

    /// Makes the probe, on a connection of its own.
    pub async fn run(&self) -> Sample {
        self.run_again(&mut Kept::default()).await
    }

    /// Makes the probe, on the connection of the one before where these probes keep theirs and it still stands.
    pub async fn run_again(&self, kept: &mut Kept) -> Sample {
        self.perform(kept, &mut Trail::new(Keep::NOTHING, &self.recipe)).await
    }

    /// The same, and keeps a little of what passed, in case that somebody wants to see it afterwards.
    pub async fn run_taped(&self, kept: &mut Kept) -> (Sample, Tracks<'_>) {
        let mut trail = Trail::new(Keep::A_LITTLE, &self.recipe);
        (self.perform(kept, &mut trail).await, Tracks { check: self, trail })
    }

    /// Makes the probe and keeps what passed. Where the answer's header decides, the body is read all the same.
    pub async fn record(&self) -> (Sample, Exchange) {
        let mut trail = Trail::new(Keep::MUCH, &self.recipe);
        let sample = self.perform(&mut Kept::default(), &mut trail).await;
        (sample, Tracks { check: self, trail }.exchange())
    }

    fn secured(&self) -> Option<Secured> {
        let tls = self.recipe.question.as_ref()?.way().tls.as_ref()?;
        let server_name = self.request.as_ref()?.server_name()?.to_str().into_owned();
        Some(Secured { server_name, verified: tls.verified, client_certificate: tls.client_certificate })
    }

    async fn perform(&self, kept: &mut Kept, trail: &mut Trail) -> Sample {
        let timeout = self.recipe.timeout;
        let result = match tokio::time::timeout(timeout, self.converse(kept, trail)).await {
            Ok(result) => result,
            Err(_) => Err(trail.decided.take().unwrap_or_else(|| Failure::timeout(trail.stage, timeout))),
        };
        kept.settle();
        // An answer may repeat what it was sent, and a detail that.
        let covered = |failure: Failure| Failure { detail: self.recipe.mask.covered_text(failure.detail), ..failure };
        trail.sample(result.map_err(covered))
    }

    async fn converse(&self, kept: &mut Kept, trail: &mut Trail) -> Result<(), Failure> {
        let (Some(request), Some(question)) = (&self.request, &self.recipe.question) else {
            return self.dial(trail).await.map(drop);
        };
        if let Some(session) = kept.take().await {
            trail.resume(&session.tape);
            match self.ask(request, question, session, kept, trail).await {
                // It was closed while the request was on its way: nothing is learnt of the member, so it is asked again.
                Err(trouble) if trail.is_unanswered(question.way().version) && trouble.is_hangup() => trail.restart(),
                result => return result.map_err(|trouble| trail.explain(question.way().version, trouble)),
            }
        }
        let session = self.open(request, question.way(), trail).await?;
        let result = self.ask(request, question, session, kept, trail).await;
        result.map_err(|trouble| trail.explain(question.way().version, trouble))
    }

    async fn ask(
        &self,
        request: &Request,
        question: &Question,
        mut session: Session,
        kept: &mut Kept,
        trail: &mut Trail,
    ) -> Result<(), Trouble> {
        trail.stage = Stage::Waiting;
        let result = session.driver.along(question.talk(request, &mut session.sender, trail)).await;
        // What is still to come of an answer would be taken for the beginning of the next one.
        if self.recipe.reuse && trail.complete {
            kept.keep(session);
        } else {
            session.part();
        }
        result
    }

    async fn dial(&self, trail: &mut Trail) -> Result<TcpStream, Failure> {
        let stream =
            tcp::dial(self.peer, self.recipe.bind).await.map_err(|error| Failure::io(&error, Stage::Dialling))?;
        trail.phases.connect = Some(trail.started.elapsed());
        Ok(stream)
    }

    async fn open(&self, request: &Request, way: &Way, trail: &mut Trail) -> Result<Session, Failure> {
        let stream = self.dial(trail).await?;
        let unopened =
            |error: hyper::Error| Failure::http(&error, way.version, Stage::Waiting, (&[], &self.recipe.mask));
        let (Some(tls), Some(name)) = (&way.tls, request.server_name()) else {
            return Session::open(stream, way.version, &trail.tape).await.map_err(unopened);
        };
        trail.stage = Stage::Securing;
        let securing = Instant::now();
        let stream = TlsConnector::from(tls.client.clone())
            .connect(name.clone(), stream)
            .await
            .map_err(|error| Failure::io(&error, Stage::Securing))?;
        trail.phases.tls = Some(securing.elapsed());
        if way.version == Version::Http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Failure::no_protocol());
        }
        Session::open(stream, way.version, &trail.tape).await.map_err(unopened)
    }
}

/// What came instead of HTTP/2; nothing where it was that, since people cannot read it.
fn unframed(tape: &Tape) -> Vec<u8> {
    let received = tape.received();
    if is_http2(&received) { Vec::new() } else { received }
}

/// What a probe that is over has left, of which an [`Exchange`] can be made.
#[derive(Debug)]
pub struct Tracks<'a> {
    check: &'a Check,
    trail: Trail,
}

impl Tracks<'_> {
    /// What passed.
    pub fn exchange(&self) -> Exchange {
        let (recipe, trail) = (&self.check.recipe, &self.trail);
        let some = |lines: &Vec<u8>| lines[..lines.len().min(trail.keep.tape)].to_vec();
        let version = recipe.question.as_ref().map(|question| question.way().version);
        let (sent, received) = match version {
            Some(Version::Http2) if trail.script.head.is_empty() => (some(&trail.script.sent), unframed(&trail.tape)),
            Some(Version::Http2) => (some(&trail.script.sent), some(&trail.script.head)),
            _ => (trail.tape.sent(), trail.tape.received()),
        };
        Exchange {
            peer: self.check.peer,
            tls: self.check.secured(),
            sent: recipe.mask.covered_head(sent),
            received: recipe.mask.covered_head(received),
            body: recipe.mask.covered(trail.body.clone()),
            trailers: recipe.mask.covered_head(some(&trail.script.trailers)),
        }
    }
}

/// How much of an exchange is kept, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    /// Of each direction.
    tape: usize,
    /// Of the body.
    body: usize,
    /// How long the rest of an answer that is wrong already is waited for.
    patience: Duration,
}

impl Keep {
    const NOTHING: Keep = Keep { tape: QUOTED, body: 0, patience: Duration::ZERO };
    const A_LITTLE: Keep = Keep { tape: TAPED, body: TAPED_BODY, patience: MOMENT };
    const MUCH: Keep = Keep { tape: SHOWN, body: SHOWN, patience: Duration::MAX };
}

/// What is known of a probe while it runs, and stays known when its time is over.
#[derive(Debug)]
pub(super) struct Trail {
    pub(super) started: Instant,
    /// When its time is over.
    pub(super) deadline: Instant,
    pub(super) stage: Stage,
    pub(super) phases: Phases,
    pub(super) status: Option<u16>,
    pub(super) tape: Tape,
    /// What passed over HTTP/2, where somebody wants to see it.
    pub(super) script: Script,
    /// The answer has been read to its end.
    pub(super) complete: bool,
    keep: Keep,
    /// What must not be shown of the answer.
    pub(super) mask: Arc<Mask>,
    pub(super) body: Vec<u8>,
    /// The probe has failed already, and what still runs only shows more of the answer.
    decided: Option<Failure>,
    decided_at: Option<Instant>,
}

impl Trail {
    fn new(keep: Keep, recipe: &Recipe) -> Trail {
        let started = Instant::now();
        Trail {
            started,
            deadline: started + recipe.timeout,
            stage: Stage::Dialling,
            phases: Phases::default(),
            status: None,
            tape: Tape::new(keep.tape),
            script: Script::default(),
            complete: false,
            keep,
            mask: recipe.mask.clone(),
            body: Vec::new(),
            decided: None,
            decided_at: None,
        }
    }

    /// The next request on a connection that stands, with this tape.
    fn resume(&mut self, tape: &Tape) {
        tape.restart(self.keep.tape);
        self.tape = tape.clone();
        self.started = Instant::now();
    }

    /// Nothing has happened: another connection is tried, in what time is left.
    fn restart(&mut self) {
        self.tape = Tape::new(self.keep.tape);
        self.started = Instant::now();
        self.stage = Stage::Dialling;
    }

    fn asks<B>(&mut self, version: Version, message: &::http::Request<B>) {
        if version == Version::Http2 && self.shows() {
            self.script.asks(message);
        }
    }

    /// The header of the answer is there.
    fn is_answered(&mut self, version: Version, answer: &::http::Response<Incoming>) {
        let first = match version {
            Version::Http1 => self.tape.first_byte(),
            // Frames that are no answer come before it; its header comes in one of its own.
            Version::Http2 => self.tape.last_read(),
        };
        if version == Version::Http2 && self.shows() {
            self.script.answers(answer);
        }
        self.phases.first_byte = first.map(|at| at.saturating_duration_since(self.started));
        self.status = Some(answer.status().as_u16());
        self.stage = Stage::Reading;
    }

    /// The fields after the body are there.
    pub(super) fn ends(&mut self, trailers: &::http::HeaderMap) {
        if self.shows() {
            self.script.ends(trailers);
        }
    }

    /// Nothing of an answer came; over HTTP/2 other frames may have.
    fn is_unanswered(&self, version: Version) -> bool {
        self.stage == Stage::Waiting && (version == Version::Http2 || self.tape.received().is_empty())
    }

    fn explain(&self, version: Version, trouble: Trouble) -> Failure {
        match (trouble, self.tape.tls_error()) {
            (Trouble::Answer(failure), _) => failure,
            (Trouble::Http(_), Some(error)) => Failure::tls(&error),
            (Trouble::Http(error), None) => {
                Failure::http(&error, version, self.stage, (&self.tape.received(), &self.mask))
            }
        }
    }

    /// The answer is wrong; anything that follows is only looked at.
    pub(super) fn decide(&mut self, failure: Failure) {
        self.decided = Some(failure);
        self.decided_at = Some(Instant::now());
    }

    /// Keeps a piece of the body, where somebody wants to see it.
    pub(super) fn keep(&mut self, piece: &[u8]) {
        let piece = &piece[..piece.len().min(self.room())];
        self.body.extend_from_slice(piece);
    }

    /// Somebody may want to see what passed.
    pub(super) fn shows(&self) -> bool {
        self.keep.body > 0
    }

    /// How much more of the body may be kept.
    pub(super) fn room(&self) -> usize {
        self.keep.body.saturating_sub(self.body.len())
    }

    /// How long the rest of an answer that is wrong already is waited for.
    pub(super) fn patience(&self) -> Duration {
        self.keep.patience
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
