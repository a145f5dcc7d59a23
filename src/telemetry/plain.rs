//! A line as text: the combined format, and templates.
//!
//! Not here: what a template is made of (`config`), how a field is written (`value`).

use std::io::Write;
use std::time::SystemTime;

use super::record::{Record, Rfc3339};
use super::value::Value;
use crate::config::{Field, Piece, Template};

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Appends a line in the combined format of NCSA's and Apache's servers:
/// `client - - [time] "request" status bytes "referer" "user agent"`.
pub(super) fn combined(line: &mut Vec<u8>, record: &Record<'_>) {
    let field = |line: &mut Vec<u8>, field, end| Value::of(field, record).append(line, end);
    field(line, Field::Client, None);
    // Who it was by ident and by password: nobody asks.
    line.extend_from_slice(b" - - [");
    clf_time(line, record.time);
    line.extend_from_slice(b"] \"");
    if record.method.is_none() && record.path.is_none() && record.proto.is_none() {
        // It never became a request.
        line.push(b'-');
    } else {
        field(line, Field::Method, Some(b' '));
        line.push(b' ');
        field(line, Field::Path, Some(b' '));
        if let Some(query) = record.query {
            line.push(b'?');
            if !query.bytes().is_empty() {
                field(line, Field::Query, Some(b' '));
            }
        }
        line.push(b' ');
        field(line, Field::Proto, None);
    }
    line.extend_from_slice(b"\" ");
    field(line, Field::Status, None);
    line.push(b' ');
    field(line, Field::ResponseBytes, None);
    line.extend_from_slice(b" \"");
    field(line, Field::Referer, None);
    line.extend_from_slice(b"\" \"");
    field(line, Field::UserAgent, None);
    line.extend_from_slice(b"\"\n");
}

/// Appends a line by a template.
pub(super) fn template(line: &mut Vec<u8>, template: &Template, record: &Record<'_>) {
    for piece in template.pieces() {
        match piece {
            Piece::Text(text) => line.extend_from_slice(text.as_bytes()),
            Piece::Field { field, end } => Value::of(*field, record).append(line, *end),
        }
    }
    line.push(b'\n');
}

/// `02/Jan/2006:15:04:05 +0000`, made of `2006-01-02T15:04:05.000Z`.
fn clf_time(line: &mut Vec<u8>, time: SystemTime) {
    let mut text = [b'0'; 24];
    // It fits: the year is clamped to four digits.
    let _ = write!(text.as_mut_slice(), "{}", Rfc3339(time));
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

#[cfg(test)]
mod tests;
