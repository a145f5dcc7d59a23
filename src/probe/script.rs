//! Messages of HTTP/2 as lines, for people: of its frames they could read nothing.
//!
//! They look like those of HTTP/1.1, with the fields that HTTP/2 has instead of a Host under its own name for them.

use http::{HeaderMap, Request, Response};

/// What was said over one connection of HTTP/2.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// The header of the request, and what follows it.
    pub(super) sent: Vec<u8>,
    /// The header of the answer.
    pub(super) head: Vec<u8>,
    /// The fields after the answer's body.
    pub(super) trailers: Vec<u8>,
}

impl Script {
    /// The request is on its way.
    pub(super) fn asks<B>(&mut self, message: &Request<B>) {
        let (uri, path) = (message.uri(), message.uri().path_and_query().map_or("/", |path| path.as_str()));
        self.sent = format!("{} {path} HTTP/2\r\n", message.method()).into_bytes();
        for (name, value) in [(":scheme", uri.scheme_str()), (":authority", uri.authority().map(|a| a.as_str()))] {
            line(name, value.unwrap_or_default().as_bytes(), &mut self.sent);
        }
        fields(message.headers(), &mut self.sent);
        self.sent.extend_from_slice(b"\r\n");
    }

    /// The header of the answer is there.
    pub(super) fn answers<B>(&mut self, answer: &Response<B>) {
        self.head = format!("HTTP/2 {}\r\n", answer.status().as_u16()).into_bytes();
        fields(answer.headers(), &mut self.head);
        self.head.extend_from_slice(b"\r\n");
    }

    /// So are its trailers.
    pub(super) fn ends(&mut self, trailers: &HeaderMap) {
        fields(trailers, &mut self.trailers);
    }
}

fn fields(map: &HeaderMap, out: &mut Vec<u8>) {
    map.iter().for_each(|(name, value)| line(name.as_str(), value.as_bytes(), out));
}

fn line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    [name.as_bytes(), b": ", value, b"\r\n"].into_iter().for_each(|part| out.extend_from_slice(part));
}
