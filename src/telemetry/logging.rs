//! The program's own log, on standard error: `tracing` events and what libraries say through `log`.
//!
//! A line goes through a bounded queue like the access log's, so that a terminal in scroll lock or a log collector that
//! stopped reading holds nothing up. JSON lines keep the types of the fields; text is for people, and there no
//! field is repeated that the message says, and the events of `health` are their message alone. Lines queued but not written are lost in a
//! crash (5 ms at most); an orderly end calls [`Logging::close`].
//!
//! Not here: the filter's source (`PULSEGATE_LOG` is read by `main`), the access log, which is not a log of this kind.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_log::{AsLog, LogTracer, NormalizeEvent};
use tracing_subscriber::filter::{EnvFilter, LevelFilter, ParseError};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use super::json::{self, Shown};
use super::lines::{Lines, Output, Told};
use super::record::Rfc3339;
use crate::clock;

/// Everything of ours from `info` on. Pingora's lines about single requests are in the access log, better; its other
/// errors stay, accepting above all. `notify` warns whenever a file that was watched is replaced, as each save by an editor
/// or `mv` does; what it cannot watch is told as ours.
const DEFAULT_FILTER: &str = "info,pingora=warn,pingora_core=error,pingora_core::apps=off,pingora_core::connectors=off,\
                              pingora_proxy=off,notify=error";

/// Bytes of lines that may wait.
const CAPACITY: usize = 1 << 20;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people; in colour on a terminal, unless `NO_COLOR` is set.
    Text,
    /// One JSON object a line: `time`, `level`, `target`, `message`, then the event's own fields.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The filter is not one.
    #[error("log filter {filter:?}: {error}")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        error: ParseError,
    },
    /// Standard error cannot be duplicated, or no thread can be started.
    #[error("cannot start the log: {0}")]
    Start(#[from] io::Error),
    /// It is set up already.
    #[error("the log is set up already")]
    Twice,
}

/// A handle on the log.
#[derive(Debug, Clone)]
pub struct Logging {
    lines: Arc<Lines>,
}

/// Sends `tracing` and `log` to standard error, for the life of the process. `filter` is in the syntax of `tracing`'s
/// `EnvFilter`; none or an empty one means the default.
pub fn init(filter: Option<&str>, format: Format) -> Result<Logging, InitError> {
    let filter = parse_filter(filter)?;
    let level = filter.max_level_hint().unwrap_or(LevelFilter::TRACE);
    let lines = Arc::new(Lines::start(Output::descriptor("log", io::stderr(), Told::Itself)?, CAPACITY)?);
    let style = match format {
        Format::Json => Style::Json,
        Format::Text if wants_colour() => Style::Colour,
        Format::Text => Style::Plain,
    };
    let layer = ToLines { lines: Arc::clone(&lines), style };
    let subscriber = Registry::default().with(filter).with(layer);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| InitError::Twice)?;
    LogTracer::builder().with_max_level(level.as_log()).init().map_err(|_| InitError::Twice)?;
    Ok(Logging { lines })
}

impl Logging {
    /// Lines that were not and will not be written, since the start.
    pub fn dropped(&self) -> u64 {
        self.lines.dropped()
    }

    /// Waits until the lines logged so far are written, at most `within`; false: they are not.
    pub fn flush(&self, within: Duration) -> bool {
        self.lines.flush(within)
    }

    /// Ends the log: writes what is queued, for `within` at most, and returns how many lines were left behind.
    pub fn close(&self, within: Duration) -> u64 {
        self.lines.close(within)
    }
}

fn parse_filter(filter: Option<&str>) -> Result<EnvFilter, InitError> {
    let filter = filter.filter(|filter| !filter.trim().is_empty()).unwrap_or(DEFAULT_FILTER);
    EnvFilter::try_new(filter).map_err(|error| InitError::Filter { filter: filter.to_owned(), error })
}

/// <https://no-color.org>: any value but the empty one.
fn wants_colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Json,
    Plain,
    Colour,
}

/// The layer that turns events into lines. Spans are not used in this program and not shown.
struct ToLines {
    lines: Arc<Lines>,
    style: Style,
}

thread_local! {
    /// Taken out while in use: a field's `Debug` may log, too.
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<S: Subscriber> Layer<S> for ToLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = LINE.try_with(Cell::take).unwrap_or_default();
        render(&mut line, self.style, clock::wall(), event);
        self.lines.push(&line);
        line.clear();
        line.shrink_to(16 << 10);
        // In a thread that is ending the buffer is gone already.
        let _ = LINE.try_with(|kept| kept.set(line));
    }
}

fn render(line: &mut Vec<u8>, style: Style, time: SystemTime, event: &Event<'_>) {
    // What came through `log` has its real target and level in fields.
    let normalized = event.normalized_metadata();
    let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
    let mut parts = Parts { style, message: String::new(), fields: Vec::new(), texts: Vec::new() };
    event.record(&mut parts);
    match style {
        Style::Json => {
            line.extend_from_slice(b"{\"time\":");
            put(line, &Rfc3339(time));
            line.extend_from_slice(b",\"level\":");
            put(line, level_word(*metadata.level()));
            line.extend_from_slice(b",\"target\":");
            put(line, metadata.target());
            line.extend_from_slice(b",\"message\":");
            put(line, parts.message.as_str());
            line.extend_from_slice(&parts.fields);
            line.push(b'}');
        }
        Style::Plain | Style::Colour => {
            let (dim, colour, reset) = match style {
                Style::Colour => ("\x1b[2m", level_colour(*metadata.level()), "\x1b[0m"),
                _ => ("", "", ""),
            };
            let (time, level, target) = (Rfc3339(time), metadata.level(), metadata.target());
            let message = Shown(&parts.message);
            // Writing to a vector cannot fail.
            let _ = write!(line, "{dim}{time}{reset} {colour}{level:>5}{reset} {dim}{target}:{reset} {message}");
            if target != super::HEALTH {
                parts.unsaid().for_each(|fields| line.extend_from_slice(fields));
            }
        }
    }
    line.push(b'\n');
}

/// An event's message, and its other fields as they go into the line.
struct Parts {
    style: Style,
    message: String,
    fields: Vec<u8>,
    /// In a line for people, where in `fields` a text is, and which.
    texts: Vec<(Range<usize>, String)>,
}

impl Parts {
    /// The fields without the texts that the message says already.
    fn unsaid(&self) -> impl Iterator<Item = &[u8]> {
        let said = self.texts.iter().filter(|(_, text)| says(&self.message, text)).map(|(range, _)| range.clone());
        let end = self.fields.len();
        let mut from = 0;
        said.chain(std::iter::once(end..end))
            .map(move |range| &self.fields[std::mem::replace(&mut from, range.end)..range.start])
    }

    fn add_text(&mut self, field: &Field, text: &str) {
        let from = self.fields.len();
        self.add(field, text);
        if self.style != Style::Json {
            self.texts.push((from..self.fields.len(), text.to_owned()));
        }
    }

    fn add(&mut self, field: &Field, value: &(impl Serialize + ?Sized)) {
        let name = field.name();
        if name.starts_with("log.") {
            return;
        }
        match self.style {
            Style::Json => {
                self.fields.push(b',');
                if matches!(name, "time" | "level" | "target") {
                    put(&mut self.fields, &format_args!("event.{name}"));
                } else {
                    put(&mut self.fields, name);
                }
                self.fields.push(b':');
            }
            Style::Plain | Style::Colour => {
                self.fields.push(b' ');
                self.fields.extend_from_slice(name.as_bytes());
                self.fields.push(b'=');
            }
        }
        put(&mut self.fields, value);
    }
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.add_text(field, &format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add_text(field, value);
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, &value);
    }
}

/// Whether `message` has `text` as a word or some, not as a part of one.
fn says(message: &str, text: &str) -> bool {
    let is_apart = |neighbour: Option<char>| neighbour.is_none_or(|c| !c.is_alphanumeric());
    !text.is_empty()
        && message.match_indices(text).any(|(at, _)| {
            is_apart(message[..at].chars().next_back()) && is_apart(message[at + text.len()..].chars().next())
        })
}

fn put(line: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    if json::append(line, value).is_err() {
        line.extend_from_slice(b"null");
    }
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

fn level_colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG | Level::TRACE => "\x1b[34m",
    }
}

#[cfg(test)]
mod tests;
