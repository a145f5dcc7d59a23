//! What the combined format writes in a way of its own, and templates with it: its time, and the line of the request.
//!
//! JSON has neither: it has their parts, one by one.

use std::time::SystemTime;

use super::escape;
use super::record::{Record, Text, rfc3339};

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The first line of a request: method, target and protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    method: Option<Text<'a>>,
    path: Option<Text<'a>>,
    query: Option<Text<'a>>,
    proto: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// `None`: it never became a request.
    pub(super) fn of(record: &Record<'a>) -> Option<Request<'a>> {
        let Record { method, path, query, proto, .. } = *record;
        let is_known = method.is_some() || path.is_some() || proto.is_some();
        is_known.then_some(Request { method, path, query, proto })
    }

    /// Appends it: three parts with a blank between them, and no other blank. Where its end is told by `end` that is written
    /// as in any other field, even by us: `$request $status` has one blank, `"$request"` has three words.
    pub(super) fn append(self, line: &mut Vec<u8>, end: Option<u8>) {
        let (both, blank) = ([b' ', end.unwrap_or(b' ')], end.as_slice());
        part(line, self.method, &both);
        escape::append(line, b" ", blank);
        target(line, self.path.unwrap_or(b"".as_slice().into()), self.query, &both);
        escape::append(line, b" ", blank);
        part(line, self.proto.map(Text::from), &both);
    }
}

/// Appends path and query as they came, `signs` escaped.
pub(super) fn target(line: &mut Vec<u8>, path: Text<'_>, query: Option<Text<'_>>, signs: &[u8]) {
    part(line, Some(path), signs);
    if let Some(query) = query {
        escape::append(line, b"?", signs);
        escape::append(line, query.bytes(), signs);
    }
}

/// Appends `02/Jan/2006:15:04:05 +0000`, made of `2006-01-02T15:04:05.000Z`.
pub(super) fn time(line: &mut Vec<u8>, time: SystemTime) {
    let text = rfc3339(time);
    let digit = |at: usize| usize::from(text[at].wrapping_sub(b'0'));
    let month = (digit(5) * 10 + digit(6)).saturating_sub(1);
    line.extend_from_slice(&text[8..10]);
    line.push(b'/');
    line.extend_from_slice(MONTHS.get(month).copied().unwrap_or(b"-"));
    line.push(b'/');
    line.extend_from_slice(&text[..4]);
    line.push(b':');
    line.extend_from_slice(&text[11..19]);
    line.extend_from_slice(b" +0000");
}

fn part(line: &mut Vec<u8>, text: Option<Text<'_>>, signs: &[u8]) {
    match text.map(Text::bytes) {
        None | Some([]) => line.push(b'-'),
        Some(text) => escape::append(line, text, signs),
    }
}
