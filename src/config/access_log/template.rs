//! `$client "$method $path" $status`: a line's own text, with fields in it.
//!
//! A field is `$name`, or `$(name)` where a letter follows; `$$` is a dollar. Braces are not used: in every value of
//! the file they are the environment's.

use super::field::{Field, SYNONYMS};
use crate::config::spelling::{likely, shown};

/// Longer templates are no line any more.
const MAX_BYTES: usize = 4 << 10;

/// A compiled template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

/// What a template is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Written as it is.
    Text(String),
    /// A field's value.
    Field {
        /// Which.
        field: Field,
        /// The sign that follows in the template, by which a reader knows the value's end: a value may not hold it.
        /// `None`: the end of the line, a letter or a digit.
        end: Option<u8>,
    },
}

impl Template {
    /// As written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// In their order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

/// Reads a template, or says everything that is wrong with it.
pub(super) fn compile(text: &str) -> Result<Template, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("this template has {} bytes; at most {MAX_BYTES} are taken", text.len()));
    }
    if text.contains(['\n', '\r']) {
        return Err("the template holds a line break; a line is ended without it (`>-` in yaml leaves none)".to_owned());
    }
    if text.contains(|c: char| c.is_control() && c != '\t') {
        return Err("the template holds a control character; write none but tabs".to_owned());
    }
    let (mut pieces, mut faults) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        push_text(&mut pieces, &rest[..dollar]);
        let (token, after) = token(&rest[dollar + 1..]);
        match token {
            Ok(Token::Dollar) => push_text(&mut pieces, "$"),
            Ok(Token::Field(field)) => pieces.push(Piece::Field { field, end: None }),
            Err(fault) => faults.push(fault),
        }
        rest = after;
    }
    push_text(&mut pieces, rest);
    if !faults.is_empty() {
        return Err(faults.join("; also: "));
    }
    if !pieces.iter().any(|piece| matches!(piece, Piece::Field { .. })) {
        return Err(format!("`{}` has no `$field`; write `json`, `combined` or a template with some", shown(text)));
    }
    note_ends(&mut pieces);
    Ok(Template { text: text.to_owned(), pieces })
}

/// What a dollar begins.
enum Token {
    Dollar,
    Field(Field),
}

/// What follows a dollar, and the rest behind it.
fn token(after: &str) -> (Result<Token, String>, &str) {
    if let Some(rest) = after.strip_prefix('$') {
        return (Ok(Token::Dollar), rest);
    }
    if let Some(rest) = after.strip_prefix('(') {
        return match rest.split_once(')') {
            Some((name, rest)) => (named(name), rest),
            None => (Err("`$(` has no closing `)`".to_owned()), ""),
        };
    }
    if let Some(rest) = after.strip_prefix('{') {
        return (Err("a field is written `$status` or `$(status)`; a dollar is `$$`".to_owned()), rest);
    }
    let word = word(after);
    if word.is_empty() {
        return (Err("a `$` with no field behind it; a dollar is written `$$`".to_owned()), after);
    }
    // `$host.log` is the host and a text: a dot belongs to the name only where there is such a name.
    let nested = after[word.len()..].strip_prefix('.').map_or("", self::word);
    let dotted = if nested.is_empty() { word } else { &after[..word.len() + 1 + nested.len()] };
    match Field::named(dotted) {
        Some(field) => (Ok(Token::Field(field)), &after[dotted.len()..]),
        None if Field::named(word).is_some() => (named(word), &after[word.len()..]),
        None => (named(dotted), &after[dotted.len()..]),
    }
}

/// The letters, digits and underlines that `text` begins with.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

fn named(name: &str) -> Result<Token, String> {
    if let Some(field) = Field::named(name) {
        return Ok(Token::Field(field));
    }
    let shown = shown(name);
    let synonym = SYNONYMS.iter().any(|(other, ..)| *other == name);
    Err(match meant(name) {
        Some((here, but)) if synonym => format!("unknown field `${shown}`; here it is `${here}`{but}"),
        Some((here, _)) => format!("unknown field `${shown}`; did you mean `${here}`?"),
        None => format!(
            "unknown field `${shown}`; the fields are those of the json line, `$time` to `$attempts.observed`, and \
             `$request`, `$target`, `$time_local`"
        ),
    })
}

/// The field that somebody who wrote `name` may have meant, and what to say of it further: `, in milliseconds`.
pub(super) fn meant(name: &str) -> Option<(&'static str, String)> {
    if let Some((_, here, but)) = SYNONYMS.iter().find(|(other, ..)| *other == name) {
        let but = if but.is_empty() { String::new() } else { format!(", {but}") };
        return Some((*here, but));
    }
    let names: Vec<&'static str> = Field::names().collect();
    likely(name, &names).map(|here| (here, String::new()))
}

fn push_text(pieces: &mut Vec<Piece>, more: &str) {
    match pieces.last_mut() {
        _ if more.is_empty() => {}
        Some(Piece::Text(text)) => text.push_str(more),
        _ => pieces.push(Piece::Text(more.to_owned())),
    }
}

/// Gives each field the sign that follows it, over other fields where they touch.
fn note_ends(pieces: &mut [Piece]) {
    let mut following = None;
    for piece in pieces.iter_mut().rev() {
        match piece {
            Piece::Text(text) => following = text.bytes().next().filter(|b| b.is_ascii() && !b.is_ascii_alphanumeric()),
            Piece::Field { end, .. } => *end = following,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::{AttemptField, LbField};
    use super::*;

    fn field(field: Field, end: Option<u8>) -> Piece {
        Piece::Field { field, end }
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    #[test]
    fn a_template_is_fields_and_text() {
        use Field::{Client, Host, Path, Pool, Status};
        let rows: [(&str, Vec<Piece>); 11] = [
            ("$status", vec![field(Status, None)]),
            ("$client $status", vec![field(Client, Some(b' ')), text(" "), field(Status, None)]),
            ("[$status]", vec![text("["), field(Status, Some(b']')), text("]")]),
            ("$(status)ms", vec![field(Status, None), text("ms")]),
            ("$host$path|", vec![field(Host, Some(b'|')), field(Path, Some(b'|')), text("|")]),
            ("$$ $$$status$$", vec![text("$ $"), field(Status, Some(b'$')), text("$")]),
            ("$host.log", vec![field(Host, Some(b'.')), text(".log")]),
            ("$status.", vec![field(Status, Some(b'.')), text(".")]),
            ("$lb.mode,", vec![field(Field::Lb(LbField::Mode), Some(b',')), text(",")]),
            ("$(attempts.member)é", vec![field(Field::Attempts(AttemptField::Member), None), text("é")]),
            ("\t$pool\t", vec![text("\t"), field(Pool, Some(b'\t')), text("\t")]),
        ];
        for (template, pieces) in rows {
            let compiled = compile(template).unwrap_or_else(|fault| panic!("{template}: {fault}"));
            assert_eq!((compiled.pieces(), compiled.text()), (pieces.as_slice(), template));
        }
    }

    #[test]
    fn every_field_can_be_named_in_both_ways() {
        for (name, wanted) in Field::ALL.iter().chain(Field::TEXT_ALONE) {
            for template in [format!("${name}"), format!("$({name})"), format!("x${name}.")] {
                let compiled = compile(&template).unwrap_or_else(|fault| panic!("{template}: {fault}"));
                let found = compiled.pieces().iter().find_map(|piece| match piece {
                    Piece::Field { field, .. } => Some(field),
                    Piece::Text(_) => None,
                });
                assert_eq!(found, Some(wanted), "{template}");
            }
        }
        for (other, here, _) in SYNONYMS {
            assert!(Field::named(other).is_none(), "{other} is a field");
            assert!(compile(&format!("${here}")).is_ok(), "{here} is none");
        }
    }

    #[test]
    fn what_is_wrong_is_said_at_once_with_what_to_write() {
        let rows = [
            ("$stauts", "unknown field `$stauts`; did you mean `$status`?"),
            ("$lb.mod", "unknown field `$lb.mod`; did you mean `$lb.mode`?"),
            ("$attempt.member", "unknown field `$attempt.member`; did you mean `$attempts.member`?"),
            ("$lb", "unknown field `$lb`; here it is `$lb.mode`"),
            ("$remote_addr", "unknown field `$remote_addr`; here it is `$client`"),
            ("$request_uri", "unknown field `$request_uri`; here it is `$target`"),
            ("$request_time", "unknown field `$request_time`; here it is `$duration_ms`, in milliseconds"),
            ("$reqeust", "unknown field `$reqeust`; did you mean `$request`?"),
            ("$(nothing like it)", "unknown field `$nothing like it`; the fields are those of the json line"),
            ("$status $", "a `$` with no field behind it; a dollar is written `$$`"),
            ("$ $status", "a `$` with no field behind it"),
            ("$(status", "`$(` has no closing `)`"),
            ("${status}", "a field is written `$status` or `$(status)`"),
            (
                "$foo $status $bar",
                "unknown field `$foo`; the fields are those of the json line, `$time` to `$attempts.observed`, and `$request`, \
                 `$target`, `$time_local`; also: ",
            ),
            ("5 $$", "has no `$field`"),
            ("$status\n", "line break"),
            ("$status\u{1b}[0m", "control character"),
            ("$status\u{85}", "control character"),
        ];
        for (template, part) in rows {
            let fault = compile(template).expect_err(template);
            assert!(fault.contains(part), "{template}: {fault}");
        }
        assert!(compile(&"$status ".repeat(1 << 10)).expect_err("long").contains("at most 4096"));
    }
}
