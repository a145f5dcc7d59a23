//! gRPC probes: `grpc.health.v1.Health/Check`, the health protocol that gRPC's own servers bring.
//!
//! One message each way. A whole gRPC client would have connections, retries and deadlines of its own and hide what a
//! sample is made of; what is needed of gRPC here is five bytes before a message and a status behind it.
//!
//! Reasons: a member that says it does not serve, or whose gRPC says no, has answered wrongly (`status`); what is not gRPC
//! at all is `protocol`.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use prost::Message;
use tokio::time::Instant;

use super::CheckError;
use super::check::Trail;
use super::fault::{Failure, Trouble};
use super::http::{AGENT, fields, show};
use super::mask::Mask;
use super::proof::Proof;
use super::way::{Request, Version, Way};
use crate::config::{GrpcProbe, percent_decoded};
use crate::health::Reason;
use crate::tls::Files;

pub(super) const METHOD: &str = "/grpc.health.v1.Health/Check";
/// The answer is of two bytes; whoever sends more than this is not asked further.
const MAX_ANSWER: usize = 64 * 1024;
/// Before each message: a flag for compression, and the length.
const PREFIX: usize = 5;
/// The longest timeout that gRPC can write in milliseconds: eight digits.
const MAX_TIMEOUT: u128 = 99_999_999;

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

/// What is asked of every member of a pool.
#[derive(Debug)]
pub(super) struct Question {
    way: Way,
    headers: HeaderMap,
    service: String,
    message: Bytes,
}

impl Question {
    pub(super) fn new(probe: &GrpcProbe, proof: Option<&Proof>, files: &mut Files) -> Result<Question, CheckError> {
        let ours = vec![(USER_AGENT, AGENT), (TE, "trailers"), (CONTENT_TYPE, "application/grpc")];
        Ok(Question {
            way: Way::new(Version::Http2, probe.tls.as_ref(), (&probe.host, &probe.host_header), files)?,
            headers: fields(&probe.headers, proof, ours)?,
            message: framed(&HealthCheckRequest { service: probe.service.clone() }),
            service: probe.service.clone(),
        })
    }

    /// The service whose health is asked for; empty: the whole server.
    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// How its members are reached.
    pub(super) fn way(&self) -> &Way {
        &self.way
    }

    /// What is sent: the member is told how long the answer is of use.
    pub(super) fn message(&self, request: &Request, trail: &Trail) -> http::Request<Full<Bytes>> {
        let mut message = http::Request::new(Full::new(self.message.clone()));
        *message.method_mut() = Method::POST;
        *message.uri_mut() = self.way.target(request, &PathAndQuery::from_static(METHOD));
        *message.headers_mut() = self.headers.clone();
        let left = trail.deadline.saturating_duration_since(Instant::now());
        if let Ok(timeout) = timeout(left).parse() {
            message.headers_mut().insert("grpc-timeout", timeout);
        }
        message
    }

    /// The request's message, for people.
    pub(super) fn show(&self, trail: &mut Trail) {
        if trail.shows() {
            trail.script.sent.extend_from_slice(format!("service: {:?}\r\n", self.service).as_bytes());
        }
    }

    /// Whether the answer is right.
    pub(super) async fn judge(&self, answer: http::Response<Incoming>, trail: &mut Trail) -> Result<(), Trouble> {
        let (head, mut body) = answer.into_parts();
        if let Err(failure) = judge_head(head.status, &head.headers, &trail.mask) {
            trail.complete = body.is_end_stream();
            trail.decide(failure.clone());
            show(body, trail).await;
            return Err(failure.into());
        }
        let (mut message, mut trailers) = (BytesMut::new(), None);
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(piece) if message.len() + piece.len() > MAX_ANSWER => {
                    let detail = format!("an answer of over {MAX_ANSWER} bytes");
                    return Err(Failure::new(Reason::TooLarge, detail).into());
                }
                Ok(piece) => message.extend_from_slice(&piece),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        trail.complete = true;
        trailers.iter().for_each(|trailers| trail.ends(trailers));
        // An answer without a message may have its status in the header, and nothing else.
        let last = trailers.as_ref().or(message.is_empty().then_some(&head.headers));
        let verdict = self.judge_status(last, &trail.mask).and_then(|()| served(&message));
        match &verdict {
            Ok(status) => trail.keep(format!("status: {}\n", status.word()).as_bytes()),
            Err(_) => trail.keep(&message),
        }
        Ok(self.judge_service(verdict?)?)
    }

    fn judge_status(&self, last: Option<&HeaderMap>, mask: &Mask) -> Result<(), Failure> {
        let field =
            |name| last.and_then(|fields| fields.get(name)).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let Some(code) = field("grpc-status") else {
            return Err(Failure::new(Reason::Protocol, "the answer ended without a grpc-status"));
        };
        if code == "0" {
            return Ok(());
        }
        let Some(word) = code.parse::<usize>().ok().and_then(|code| CODES.get(code)) else {
            return Err(Failure::new(Reason::Protocol, format!("grpc-status {:?} is none", mask.short(&code))));
        };
        let said = field("grpc-message").map(|message| mask.short(&percent_decoded(&message))).unwrap_or_default();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let hint = match *word {
            "NOT_FOUND" => format!(" ({} is not known to its health service)", self.asked()),
            "UNIMPLEMENTED" => " (no health service, grpc.health.v1, there?)".to_owned(),
            _ => String::new(),
        };
        // Its deadline is our timeout: whoever sees it first, it is the same.
        let reason = if *word == "DEADLINE_EXCEEDED" { Reason::Timeout } else { Reason::Status };
        Err(Failure::new(reason, format!("grpc-status {code} {word}{said}{hint}")))
    }

    fn judge_service(&self, status: ServingStatus) -> Result<(), Failure> {
        match status {
            ServingStatus::Serving => Ok(()),
            other => Err(Failure::new(Reason::Status, format!("{} is {}", self.asked(), other.word()))),
        }
    }

    /// `service "shop.Cart"`, or the server where no service is named.
    fn asked(&self) -> String {
        if self.service.is_empty() { "the server".to_owned() } else { format!("service {:?}", self.service) }
    }
}

impl ServingStatus {
    /// As the protocol writes it.
    fn word(self) -> &'static str {
        match self {
            ServingStatus::Unknown => "UNKNOWN",
            ServingStatus::Serving => "SERVING",
            ServingStatus::NotServing => "NOT_SERVING",
            ServingStatus::ServiceUnknown => "SERVICE_UNKNOWN",
        }
    }
}

/// The words of gRPC's codes, from 0.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// gRPC answers 200, whatever it says; anything else comes from something before it.
fn judge_head(status: StatusCode, headers: &HeaderMap, mask: &Mask) -> Result<(), Failure> {
    if status != StatusCode::OK {
        return Err(Failure::new(Reason::Status, format!("HTTP status {}, expected 200 of gRPC", status.as_u16())));
    }
    let kind = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let rest = kind.as_deref().and_then(|kind| kind.strip_prefix("application/grpc"));
    match (rest, &kind) {
        (Some(rest), _) if rest.is_empty() || rest.starts_with(['+', ';']) => Ok(()),
        (_, Some(kind)) => {
            Err(Failure::new(Reason::Protocol, format!("not gRPC: content-type {:?}", mask.short(kind))))
        }
        (_, None) => Err(Failure::new(Reason::Protocol, "not gRPC: no content-type")),
    }
}

/// What the one message of an answer says.
fn served(mut bytes: &[u8]) -> Result<ServingStatus, Failure> {
    let wrong = |what: &str| Failure::new(Reason::Protocol, format!("wrong gRPC: {what}"));
    if bytes.is_empty() {
        return Err(wrong("no message"));
    }
    if bytes.len() < PREFIX {
        return Err(wrong("a message breaks off"));
    }
    let (compressed, length) = (bytes.get_u8(), bytes.get_u32() as usize);
    if compressed != 0 {
        return Err(wrong("a compressed message, which was not asked for"));
    }
    if bytes.len() < length {
        return Err(wrong("a message breaks off"));
    }
    if bytes.len() > length {
        return Err(wrong("more than one message"));
    }
    let answer = HealthCheckResponse::decode(bytes).map_err(|_| wrong("the message is not of the health protocol"))?;
    ServingStatus::try_from(answer.status).map_err(|_| wrong(&format!("status {} is none", answer.status)))
}

fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// As gRPC writes it: at most eight digits and a unit.
fn timeout(left: Duration) -> String {
    format!("{}m", left.as_millis().clamp(1, MAX_TIMEOUT))
}
