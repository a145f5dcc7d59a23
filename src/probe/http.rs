//! HTTP and HTTPS probes: what is asked, and what answer is right.
//!
//! One request on a connection that serves nothing else. What the answer says is judged in the order it comes: status,
//! then encoding, then body, and the first thing that is wrong decides at once; only a right answer is read to its end.
//!
//! Not here: redirects are never followed, proxies of the environment never asked.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};

use super::CheckError;
use super::check::Trail;
use super::fault::{Failure, Stage};
use super::needle::{Found, Search};
use super::tape::Taped;
use crate::config::{Expect, HttpProbe, ProbeMethod, Tls, authority};
use crate::health::Reason;
use crate::tls::{self, Files, Material, TlsError};

/// A header larger than this is not read to its end.
const MAX_HEADER: usize = 64 * 1024;
/// Fields by which an answer is framed, or its body readable; they are not the operator's.
const OURS: [&str; 6] = ["accept-encoding", "connection", "content-length", "transfer-encoding", "upgrade", "trailer"];

/// What is asked of every member of a pool, and what answer is right.
#[derive(Debug)]
pub(super) struct Question {
    method: Method,
    path: PathAndQuery,
    /// Without Host.
    headers: HeaderMap,
    host: Option<String>,
    host_header: Option<String>,
    tls: Option<Security>,
    expect: Expect,
    max_body: usize,
}

/// TLS of the probes of a pool.
#[derive(Debug)]
pub(super) struct Security {
    pub(super) client: Arc<ClientConfig>,
    /// Of the files' contents.
    pub(super) seal: u64,
    pub(super) verified: bool,
    pub(super) client_certificate: bool,
    /// Else the member's own name.
    sni: Option<String>,
}

impl Security {
    fn new(tls: &Tls, files: &mut Files) -> Result<Security, TlsError> {
        let material = Material::read(tls, files)?;
        Ok(Security {
            client: tls::client(tls, &material)?,
            seal: material.seal(),
            verified: tls.verify,
            client_certificate: material.client.is_some(),
            sni: tls.sni.clone(),
        })
    }
}

/// What is particular to one member.
#[derive(Debug)]
pub(super) struct Request {
    host: HeaderValue,
    server_name: Option<ServerName<'static>>,
}

impl Request {
    /// The name or address the certificate is verified for; an address is not sent (RFC 6066 section 3).
    pub(super) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }
}

impl Question {
    pub(super) fn new(probe: &HttpProbe, files: &mut Files) -> Result<Question, CheckError> {
        let path: PathAndQuery = probe.path.parse().map_err(|_| CheckError::Path(probe.path.clone()))?;
        if path.as_str() != probe.path {
            // The parser leaves out a fragment.
            return Err(CheckError::Path(probe.path.clone()));
        }
        Ok(Question {
            method: match probe.method {
                ProbeMethod::Get => Method::GET,
                ProbeMethod::Head => Method::HEAD,
            },
            path,
            headers: headers(&probe.headers)?,
            host: probe.host.clone(),
            host_header: probe.host_header.clone(),
            tls: probe.tls.as_ref().map(|tls| Security::new(tls, files)).transpose()?,
            expect: probe.expect.clone(),
            max_body: probe.max_body,
        })
    }

    /// `None` for plain HTTP.
    pub(super) fn tls(&self) -> Option<&Security> {
        self.tls.as_ref()
    }

    /// Host field and server name for the member whose own name is `member` and that is probed on `port`.
    pub(super) fn to_member(&self, member: &str, port: u16) -> Result<Request, CheckError> {
        let wrong = |host: &str| CheckError::Host(host.to_string());
        let host = match (&self.host_header, &self.host) {
            (Some(written), _) | (None, Some(written)) => written.clone(),
            (None, None) => authority(member, port, if self.tls.is_some() { 443 } else { 80 }),
        };
        let server_name = self.tls.as_ref().map(|tls| tls::server_name(tls.sni.as_deref().unwrap_or(member)));
        let server_name = server_name.transpose()?;
        Ok(Request { host: HeaderValue::from_str(&host).map_err(|_| wrong(&host))?, server_name })
    }

    /// Sends the request over `stream` and judges the answer.
    pub(super) async fn ask<S>(&self, request: &Request, stream: S, trail: &mut Trail) -> Result<(), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        trail.stage = Stage::Waiting;
        let tape = trail.tape.clone();
        let io = TokioIo::new(Taped::new(stream, tape.clone()));
        let (sender, connection) = http1::Builder::new()
            .title_case_headers(true)
            // The first bounds a header that does not end, the second one that does.
            .max_buf_size(MAX_HEADER)
            .max_header_size(MAX_HEADER)
            .handshake::<_, Empty<Bytes>>(io)
            .await
            .map_err(|error| Failure::http(&error, Stage::Waiting, &[]))?;
        let result = {
            let talk = self.talk(request, sender, &mut *trail);
            tokio::pin!(talk, connection);
            tokio::select! {
                biased;
                result = &mut talk => result,
                // It is over when all it had to give is handed on, what it died of included.
                _ = &mut connection => talk.await,
            }
        };
        result.map_err(|trouble| match trouble {
            Trouble::Answer(failure) => failure,
            Trouble::Http(error) => Failure::http(&error, trail.stage, &tape.received()),
        })
    }

    async fn talk(
        &self,
        request: &Request,
        mut sender: http1::SendRequest<Empty<Bytes>>,
        trail: &mut Trail,
    ) -> Result<(), Trouble> {
        let answer = sender.send_request(self.message(request, trail)).await?;
        trail.phases.first_byte = trail.tape.first_byte().map(|at| at - trail.started);
        trail.status = Some(answer.status().as_u16());
        trail.stage = Stage::Reading;
        let (head, body) = answer.into_parts();
        if let Err(failure) = self.judge_head(&head) {
            trail.decide(failure.clone());
            show(body, trail).await;
            return Err(Trouble::Answer(failure));
        }
        self.judge_body(body, trail).await
    }

    fn message(&self, request: &Request, trail: &Trail) -> http::Request<Empty<Bytes>> {
        let mut message = http::Request::new(Empty::new());
        *message.method_mut() = self.method.clone();
        *message.uri_mut() = self.path.clone().into();
        let headers = message.headers_mut();
        headers.reserve(self.headers.len() + 1);
        headers.insert(HOST, request.host.clone());
        headers.extend(self.headers.clone());
        let tape = trail.tape.clone();
        hyper::ext::on_informational(&mut message, move |_| tape.rewind());
        message
    }

    fn judge_head(&self, head: &response::Parts) -> Result<(), Failure> {
        let code = head.status.as_u16();
        if !self.expect.status.iter().any(|&(low, high)| (low..=high).contains(&code)) {
            return Err(Failure::new(Reason::Status, self.explain_status(head)));
        }
        if self.expect.body.is_some()
            && let Some(encoding) = encoding(&head.headers)
        {
            let detail = format!("body is encoded ({encoding}) although `Accept-Encoding: identity` was sent");
            return Err(Failure::new(Reason::Body, detail));
        }
        Ok(())
    }

    /// `302 to /login, expected 200-299`.
    fn explain_status(&self, head: &response::Parts) -> String {
        let ranges: Vec<String> = self
            .expect
            .status
            .iter()
            .map(|&(low, high)| if low == high { low.to_string() } else { format!("{low}-{high}") })
            .collect();
        let location = match head.headers.get(LOCATION) {
            Some(location) if head.status.is_redirection() => {
                format!(" to {}", short(&String::from_utf8_lossy(location.as_bytes())))
            }
            _ => String::new(),
        };
        let hint = match head.status {
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED if self.method == Method::HEAD => {
                " (HEAD not supported? use GET)"
            }
            _ => "",
        };
        format!("{}{location}, expected {}{hint}", head.status.as_u16(), ranges.join(","))
    }

    /// Reads the body to its end, which is when the answer is complete, or until it is known to be wrong.
    async fn judge_body(&self, mut body: Incoming, trail: &mut Trail) -> Result<(), Trouble> {
        let needle = self.expect.body.as_deref().unwrap_or_default();
        let mut search = Search::new(needle, self.max_body);
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            let Some(piece) = frame.data_ref() else { continue };
            trail.keep(piece);
            if search.feed(piece) == Found::NotWithinLimit {
                let detail = format!("{:?} not within the first {} bytes", short(needle), self.max_body);
                return Err(Trouble::Answer(Failure::new(Reason::TooLarge, detail)));
            }
        }
        if search.found() {
            return Ok(());
        }
        let detail = format!("body ended after {} bytes without {:?}", search.seen(), short(needle));
        Err(Trouble::Answer(Failure::new(Reason::Body, detail)))
    }
}

/// Why the talk ended: the answer was wrong, or there was none that can be read.
enum Trouble {
    Answer(Failure),
    Http(hyper::Error),
}

impl From<hyper::Error> for Trouble {
    fn from(error: hyper::Error) -> Trouble {
        Trouble::Http(error)
    }
}

/// Keeps the beginning of a body that decides nothing any more, where somebody wants to see it.
async fn show(mut body: Incoming, trail: &mut Trail) {
    while trail.body.len() < trail.keep {
        match body.frame().await {
            Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|piece| trail.keep(piece)),
            _ => return,
        }
    }
}

/// The fields of the request but Host: ours, unless the operator wrote the same.
fn headers(written: &[(String, String)]) -> Result<HeaderMap, CheckError> {
    let mut headers = HeaderMap::new();
    for (name, value) in written {
        let wrong = |why| CheckError::Header(name.clone(), why);
        let field: HeaderName = name.parse().map_err(|_| wrong("not a field name"))?;
        if OURS.contains(&field.as_str()) {
            return Err(wrong("the probe needs its own"));
        }
        if field == HOST {
            return Err(wrong("use `host`"));
        }
        headers.append(field, HeaderValue::from_str(value).map_err(|_| wrong("not a field value"))?);
    }
    let ours = [
        (USER_AGENT, concat!("pulsegate/", env!("CARGO_PKG_VERSION"), " (health probe)")),
        (ACCEPT, "*/*"),
        (ACCEPT_ENCODING, "identity"),
        (CONNECTION, "close"),
    ];
    for (name, value) in ours {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    Ok(headers)
}

/// The encoding of a body that is not as it is.
fn encoding(headers: &HeaderMap) -> Option<String> {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(|coding| String::from_utf8_lossy(coding).trim().to_ascii_lowercase())
        .find(|coding| !coding.is_empty() && coding != "identity")
        .map(|coding| short(&coding))
}

/// At most so much of what others wrote goes into a detail.
fn short(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}
