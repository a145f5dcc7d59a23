//! What commands print: it is whole or said not to be, and nothing in it is obeyed by a terminal.
//!
//! What a member, a file or a client said may hold anything. In a text it is escaped, value by value before lines are made of
//! it: a line feed of a value must not begin a line. In JSON it is escaped as JSON has it, so that it parses back unchanged.
//!
//! A reader that has gone away, as in `pulsegate check | head`, is no failure; a full disk is one.

use std::fmt::Display;
use std::io::{self, Stdout, Write};
use std::process::ExitCode;

use serde_json::Value;

use crate::telemetry::{is_deceptive, shown};

/// Standard output, which takes whatever nobody reads any more.
pub struct Output {
    stdout: Stdout,
    is_read: bool,
}

impl Output {
    /// The program's own.
    pub fn new() -> Output {
        Output { stdout: io::stdout(), is_read: true }
    }

    fn unless_gone<T>(&mut self, gone: T, done: io::Result<T>) -> io::Result<T> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_read = false;
                Ok(gone)
            }
            done => done,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_read {
            return Ok(bytes.len());
        }
        let written = self.stdout.write(bytes);
        self.unless_gone(bytes.len(), written)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.is_read {
            return Ok(());
        }
        let flushed = self.stdout.flush();
        self.unless_gone((), flushed)
    }
}

/// Prints all of `text`.
///
/// # Errors
/// It cannot be written, such as to a disk that is full.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = Output::new();
    output.write_all(text.as_bytes()).and_then(|()| output.flush())
}

/// Prints all of `text` and ends with `code`, or in failure where it cannot be written.
pub fn end(text: &str, code: ExitCode) -> ExitCode {
    match print(text) {
        Ok(()) => code,
        Err(error) => unwritten(&error),
    }
}

/// Says that the output is not whole.
pub fn unwritten(error: &io::Error) -> ExitCode {
    tell(format_args!("pulsegate: the output cannot be written: {error}"));
    ExitCode::FAILURE
}

/// A line of its own on standard error; several, where there are line feeds. Where that cannot be written either, nobody can be
/// told.
pub fn tell(words: impl Display) {
    let _ = writeln!(io::stderr(), "{}", lines(&words.to_string()));
}

/// Lines with everything in them escaped that a terminal obeys or that reorders what is shown.
pub fn lines(text: &str) -> String {
    let whole = text.split('\n').map(|line| line.split('\t').map(shown).collect::<Vec<_>>().join("\t"));
    whole.collect::<Vec<_>>().join("\n")
}

/// JSON of somebody else's, with the same escaped.
pub fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside of its texts JSON has line feeds and blanks, and in them no control characters of ASCII.
        if is_deceptive(c) && !matches!(c, '\n' | '\r' | '\t') {
            safe.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// The same value, with each of its texts fit to stand in a line.
pub fn fit(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(shown(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(fit).collect()),
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(name, value)| (name, fit(value))).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "\u{1b}[31mRED\nFAKE \u{9b}1m\u{202e}\u{200f}\u{feff}";

    #[test]
    fn no_word_of_a_member_begins_a_line_or_is_obeyed() {
        let fit = fit(serde_json::json!({ "members": [{ "why": WORDS, "share": 0.5 }] }));
        let why = "\\u{1b}[31mRED\\nFAKE \\u{9b}1m\\u{202e}\\u{200f}\\u{feff}";
        assert_eq!(fit, serde_json::json!({ "members": [{ "why": why, "share": 0.5 }] }));
        assert_eq!(lines(&format!("\t{WORDS}")), "\t\\u{1b}[31mRED\nFAKE \\u{9b}1m\\u{202e}\\u{200f}\\u{feff}");
        assert_eq!(lines(why), why, "once is enough");
        assert_eq!(lines("grüße, 日本 …\n"), "grüße, 日本 …\n");
    }

    #[test]
    fn json_means_what_it_meant() {
        let value = serde_json::json!({ "detail": WORDS, "tag": "\u{e0041}" });
        for text in [value.to_string(), format!("{value:#}")] {
            let safe = json(&text);
            assert_eq!(safe.find(|c| is_deceptive(c) && c != '\n'), None, "{safe}");
            assert_eq!(serde_json::from_str::<Value>(&safe).expect("json"), value);
        }
    }
}
