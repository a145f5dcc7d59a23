//! A line as text: the combined format, and templates.
//!
//! Not here: what a template is made of (`config`), how a field is written (`value`, and `ncsa` for two of them).

use super::record::Record;
use super::value::Value;
use crate::config::{Field, Piece, Template};

/// Appends a line in the combined format of NCSA's and Apache's servers:
/// `client - - [time] "request" status bytes "referer" "user agent"`.
pub(super) fn combined(line: &mut Vec<u8>, record: &Record<'_>) {
    let field = |line: &mut Vec<u8>, field, end| Value::of(field, record).append(line, end);
    field(line, Field::Client, None);
    // Who it was by ident and by password: nobody asks.
    line.extend_from_slice(b" - - [");
    field(line, Field::TimeLocal, None);
    line.extend_from_slice(b"] \"");
    field(line, Field::Request, None);
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

#[cfg(test)]
mod tests;
