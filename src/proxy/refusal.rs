//! Every answer we give ourselves: its status, its words, and what the log calls it.

use bytes::Bytes;
use http::{Method, StatusCode, header};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;

use super::published;
use crate::telemetry::{Outcome, Why};

/// Seconds after which a client may try again: about when a probe may have found a member.
const RETRY_AFTER: &str = "1";

/// Methods that we know of and take; others are the members' to judge, but TRACE and CONNECT are refused.
pub const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Why a request is answered by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No route matches.
    NoRoute,
    /// The pool has nobody who may take traffic.
    NoMember,
    /// Nobody is healthy and the pool is to fail.
    AllUnhealthy,
    /// Too many wait already, or we are out of descriptors.
    Overloaded,
    /// Malformed.
    BadRequest,
    /// A method that a proxy of this kind does not take.
    MethodNotAllowed,
    /// A method other than GET and HEAD, where a composite is published.
    OnlyReading,
    /// The target is too long.
    UriTooLong,
    /// The header has too many bytes or fields.
    HeaderTooLarge,
    /// The client took too long over its body.
    BodyTimeout,
    /// No connection to a member.
    ConnectFailed,
    /// No connection to a member in time.
    ConnectTimeout,
    /// No TLS with a member.
    UpstreamTls,
    /// The member closed before it answered.
    UpstreamReset,
    /// The member took too long.
    UpstreamTimeout,
    /// The member's answer is not HTTP.
    UpstreamProtocol,
    /// The request's own time is over.
    Deadline,
    /// A fault of ours.
    Internal,
}

impl Refusal {
    /// The answer's status (RFC 9110 section 15).
    pub fn status(self) -> StatusCode {
        match self {
            Refusal::BadRequest => StatusCode::BAD_REQUEST,
            Refusal::NoRoute => StatusCode::NOT_FOUND,
            Refusal::MethodNotAllowed | Refusal::OnlyReading => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Refusal::UriTooLong => StatusCode::URI_TOO_LONG,
            Refusal::HeaderTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::ConnectFailed | Refusal::UpstreamTls | Refusal::UpstreamReset | Refusal::UpstreamProtocol => {
                StatusCode::BAD_GATEWAY
            }
            Refusal::NoMember | Refusal::AllUnhealthy | Refusal::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::ConnectTimeout | Refusal::UpstreamTimeout | Refusal::Deadline => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The word in the access log.
    pub fn why(self) -> Why {
        match self {
            Refusal::NoRoute => Why::NoRoute,
            Refusal::NoMember => Why::NoMember,
            Refusal::AllUnhealthy => Why::AllUnhealthy,
            Refusal::Overloaded => Why::Overloaded,
            Refusal::BadRequest => Why::BadRequest,
            Refusal::MethodNotAllowed | Refusal::OnlyReading => Why::Denied,
            Refusal::UriTooLong => Why::UriTooLong,
            Refusal::HeaderTooLarge => Why::HeaderTooLarge,
            Refusal::BodyTimeout => Why::BodyTimeout,
            Refusal::ConnectFailed => Why::ConnectFailed,
            Refusal::UpstreamTls => Why::UpstreamTls,
            Refusal::UpstreamReset => Why::UpstreamReset,
            Refusal::ConnectTimeout | Refusal::UpstreamTimeout => Why::UpstreamTimeout,
            Refusal::UpstreamProtocol => Why::UpstreamProtocol,
            Refusal::Deadline => Why::Deadline,
            Refusal::Internal => Why::Internal,
        }
    }

    /// How the log says such a request ended.
    pub fn outcome(self) -> Outcome {
        match self {
            Refusal::NoRoute
            | Refusal::NoMember
            | Refusal::AllUnhealthy
            | Refusal::BadRequest
            | Refusal::MethodNotAllowed
            | Refusal::OnlyReading
            | Refusal::UriTooLong
            | Refusal::HeaderTooLarge
            | Refusal::Internal => Outcome::Refused,
            Refusal::Overloaded => Outcome::Limited,
            Refusal::BodyTimeout | Refusal::ConnectTimeout | Refusal::UpstreamTimeout | Refusal::Deadline => {
                Outcome::Timeout
            }
            Refusal::ConnectFailed | Refusal::UpstreamTls | Refusal::UpstreamReset | Refusal::UpstreamProtocol => {
                Outcome::UpstreamError
            }
        }
    }

    /// What `Proxy-Status` says: that the answer is ours, and why (RFC 9209 section 2.3).
    fn proxy_status(self) -> &'static str {
        match self {
            Refusal::NoRoute => "pulsegate; error=destination_not_found",
            Refusal::NoMember | Refusal::AllUnhealthy => "pulsegate; error=destination_unavailable",
            Refusal::Overloaded => "pulsegate; error=connection_limit_reached",
            Refusal::BadRequest | Refusal::UriTooLong | Refusal::HeaderTooLarge | Refusal::BodyTimeout => {
                "pulsegate; error=http_request_error"
            }
            Refusal::MethodNotAllowed | Refusal::OnlyReading => "pulsegate; error=http_request_denied",
            Refusal::ConnectFailed => "pulsegate; error=connection_refused",
            Refusal::ConnectTimeout => "pulsegate; error=connection_timeout",
            Refusal::UpstreamTls => "pulsegate; error=tls_protocol_error",
            Refusal::UpstreamReset => "pulsegate; error=connection_terminated",
            Refusal::UpstreamTimeout | Refusal::Deadline => "pulsegate; error=http_response_timeout",
            Refusal::UpstreamProtocol => "pulsegate; error=http_protocol_error",
            Refusal::Internal => "pulsegate; error=proxy_internal_error",
        }
    }
}

/// The whole answer, the connection's last, where nothing is left that could send it; and how long its body is.
pub fn raw(refusal: Refusal, request_id: &str) -> (String, u64) {
    let words = words(refusal.status());
    let id = if request_id.is_empty() { String::new() } else { format!("X-Request-Id: {request_id}\r\n") };
    let answer = format!(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Proxy-Status: {}\r\n{id}Connection: close\r\n\r\n{words}",
        words.trim_end(),
        words.len(),
        refusal.proxy_status(),
    );
    (answer, words.len() as u64)
}

fn words(status: StatusCode) -> String {
    format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or("Error"))
}

/// Sends the answer; the body is for people, and a HEAD gets none.
///
/// # Errors
/// The client is gone.
pub async fn send(session: &mut ServerSession, refusal: Refusal, request_id: &str) -> pingora::Result<()> {
    let status = refusal.status();
    let words = words(status);
    let mut answer = ResponseHeader::build(status, Some(8))?;
    answer.insert_header(header::CONTENT_TYPE, "text/plain; charset=utf-8")?;
    answer.insert_header(header::CONTENT_LENGTH, words.len())?;
    answer.insert_header(header::CACHE_CONTROL, "no-store")?;
    answer.insert_header("Proxy-Status", refusal.proxy_status())?;
    if !request_id.is_empty() {
        answer.insert_header("X-Request-Id", request_id)?;
    }
    match refusal {
        Refusal::MethodNotAllowed => answer.insert_header(header::ALLOW, METHODS)?,
        Refusal::OnlyReading => answer.insert_header(header::ALLOW, published::METHODS)?,
        _ => {}
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.insert_header("Retry-After", RETRY_AFTER)?;
    }
    let bodyless = session.req_header().method == Method::HEAD;
    session.write_response_header(Box::new(answer)).await?;
    if !bodyless {
        session.write_response_body(Bytes::from(words), true).await?;
    }
    Ok(())
}
