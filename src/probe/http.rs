//! HTTP and HTTPS probes: what is asked, and what answer is right.
//!
//! One request, in either version of HTTP, on a connection that serves nothing else. What the answer says is judged in the order it comes: status,
//! then encoding, then body, and the first thing that is wrong decides at once; only a right answer is read to its end.
//!
//! Not here: the connection (`session`); redirects are never followed, proxies of the environment never asked.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};

use super::CheckError;
use super::check::Trail;
use super::fault::{Failure, Trouble};
use super::mask::Mask;
use super::needle::{Found, Search};
use super::proof::Proof;
use super::way::{Request, Version, Way};
use crate::config::{Expect, HttpProbe, Probe, ProbeMethod, sounds_secret, without_secrets};
use crate::health::Reason;
use crate::tls::Files;

/// Who asks, where the operator has not written another name.
pub(super) const AGENT: &str = concat!("pulsegate/", env!("CARGO_PKG_VERSION"), " (health probe)");
/// Fields by which an answer is framed, or its body readable; they are not the operator's.
const OURS: [&str; 6] = ["accept-encoding", "connection", "content-length", "transfer-encoding", "upgrade", "trailer"];

/// What is asked of every member of a pool, and what answer is right.
#[derive(Debug)]
pub(super) struct Question {
    method: Method,
    path: PathAndQuery,
    /// Without Host.
    headers: HeaderMap,
    way: Way,
    expect: Expect,
    max_body: usize,
}

impl Question {
    /// What the HTTP of a `whole` probe asks.
    pub(super) fn new(
        whole: &Probe,
        probe: &HttpProbe,
        proof: Option<&Proof>,
        files: &mut Files,
    ) -> Result<Question, CheckError> {
        let version = if probe.http2 { Version::Http2 } else { Version::Http1 };
        let mut ours = vec![(USER_AGENT, AGENT), (ACCEPT, "*/*"), (ACCEPT_ENCODING, "identity")];
        if version == Version::Http1 && !whole.reuse {
            ours.push((CONNECTION, "close"));
        }
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
            headers: fields(&probe.headers, proof, ours)?,
            way: Way::new(version, probe.tls.as_ref(), (&probe.host, &probe.host_header), files)?,
            expect: probe.expect.clone(),
            max_body: probe.max_body,
        })
    }

    pub(super) fn method(&self) -> &str {
        self.method.as_str()
    }

    pub(super) fn path(&self) -> &str {
        self.path.as_str()
    }

    /// How its members are reached.
    pub(super) fn way(&self) -> &Way {
        &self.way
    }

    /// What is sent.
    pub(super) fn message(&self, request: &Request, trail: &Trail) -> http::Request<Full<Bytes>> {
        let mut message = http::Request::new(Full::default());
        *message.method_mut() = self.method.clone();
        *message.uri_mut() = self.way.target(request, &self.path);
        let headers = message.headers_mut();
        headers.reserve(self.headers.len() + 1);
        if self.way.version == Version::Http1 {
            headers.insert(HOST, request.host.clone());
        }
        headers.extend(self.headers.clone());
        let tape = trail.tape.clone();
        hyper::ext::on_informational(&mut message, move |_| tape.rewind());
        message
    }

    /// Whether the answer is right. Where its header decides, the body is read only for those who want to see it.
    pub(super) async fn judge(&self, answer: http::Response<Incoming>, trail: &mut Trail) -> Result<(), Trouble> {
        let (head, body) = answer.into_parts();
        if let Err(failure) = self.judge_head(&head, &trail.mask) {
            trail.complete = body.is_end_stream();
            trail.decide(failure.clone());
            show(body, trail).await;
            return Err(failure.into());
        }
        self.judge_body(body, trail).await
    }

    fn judge_head(&self, head: &response::Parts, mask: &Mask) -> Result<(), Failure> {
        let code = head.status.as_u16();
        if !self.expect.status.iter().any(|&(low, high)| (low..=high).contains(&code)) {
            return Err(Failure::new(Reason::Status, self.explain_status(head, mask)));
        }
        let mut odd =
            self.expect.headers.iter().filter_map(|(name, value)| unexpected(head, (name, value.as_deref()), mask));
        if let Some(detail) = odd.next() {
            return Err(Failure::new(Reason::Header, detail));
        }
        if self.expect.body.is_some()
            && let Some(encoding) = encoding(&head.headers, mask)
        {
            let detail = format!("body is encoded ({encoding}) although `Accept-Encoding: identity` was sent");
            return Err(Failure::new(Reason::Body, detail));
        }
        Ok(())
    }

    /// `302 to /login, expected 200-299`.
    fn explain_status(&self, head: &response::Parts, mask: &Mask) -> String {
        let ranges: Vec<String> = self
            .expect
            .status
            .iter()
            .map(|&(low, high)| if low == high { low.to_string() } else { format!("{low}-{high}") })
            .collect();
        let location = match head.headers.get(LOCATION) {
            Some(location) if head.status.is_redirection() => {
                format!(" to {}", mask.short(&without_secrets(&String::from_utf8_lossy(location.as_bytes()))))
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
            frame.trailers_ref().into_iter().for_each(|trailers| trail.ends(trailers));
            let Some(piece) = frame.data_ref() else { continue };
            trail.keep(piece);
            if search.feed(piece) == Found::NotWithinLimit {
                let detail = format!("{:?} not within the first {} bytes", trail.mask.short(needle), self.max_body);
                return Err(Failure::new(Reason::TooLarge, detail).into());
            }
        }
        trail.complete = true;
        if search.found() {
            return Ok(());
        }
        let detail = format!("body ended after {} bytes without {:?}", search.seen(), trail.mask.short(needle));
        Err(Failure::new(Reason::Body, detail).into())
    }
}

/// Keeps the beginning of a body that decides nothing any more, where somebody wants to see it.
pub(super) async fn show(mut body: Incoming, trail: &mut Trail) {
    let patience = trail.patience();
    let rest = async {
        while trail.room() > 0 {
            match body.frame().await {
                Some(Ok(frame)) => {
                    frame.data_ref().into_iter().for_each(|piece| trail.keep(piece));
                    frame.trailers_ref().into_iter().for_each(|trailers| trail.ends(trailers));
                }
                _ => return,
            }
        }
    };
    // What did not come in time is not shown, and that is all.
    let _ = tokio::time::timeout(patience, rest).await;
}

/// The fields of a request but Host: `ours`, unless the operator wrote the same, and the proof.
pub(super) fn fields(
    written: &[(String, String)],
    proof: Option<&Proof>,
    ours: Vec<(HeaderName, &'static str)>,
) -> Result<HeaderMap, CheckError> {
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
    if let Some(Proof { name, value }) = proof {
        headers.insert(name, value.clone());
    }
    for (name, value) in ours {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    Ok(headers)
}

/// What is other than expected of the field `name`; of several lines one has to have the value, whole.
fn unexpected(head: &response::Parts, (name, value): (&str, Option<&str>), mask: &Mask) -> Option<String> {
    let mut lines = head.headers.get_all(name).iter().map(HeaderValue::as_bytes).peekable();
    let Some(first) = lines.peek().map(|line| String::from_utf8_lossy(line)) else {
        return Some(format!("no header {name}"));
    };
    let value = value.filter(|value| !lines.any(|line| line == value.as_bytes()))?;
    Some(match sounds_secret(name) {
        true => format!("header {name} has another value than expected"),
        false => format!("header {name}: {}, expected {}", mask.short(&first), mask.short(value)),
    })
}

/// The encoding of a body that is not as it is.
fn encoding(headers: &HeaderMap, mask: &Mask) -> Option<String> {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(|coding| String::from_utf8_lossy(coding).trim().to_ascii_lowercase())
        .find(|coding| !coding.is_empty() && coding != "identity")
        .map(|coding| mask.short(&coding))
}
