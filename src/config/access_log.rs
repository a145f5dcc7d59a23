//! Where requests are logged, how a line looks, and which lines are written.
//!
//! A format is compiled here, once: what is wrong with a template is an error of the file, and a line only walks its
//! pieces.
//!
//! Not here: how a piece is written (`telemetry`), what a line has (`field`).

mod field;
mod template;

use std::path::PathBuf;
use std::time::Duration;

pub use field::{AttemptField, Field, LbField};
pub use template::{Piece, Template};

use super::env;
use super::file::{AccessLogKeys, FilterKeys};
use super::places::Step;
use super::reading::{DAY, Reading, TICK};
use super::spelling::{Spelled, Spelling, Statuses, shown};
use super::words::{Off, Or};

/// The access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines go.
    pub sink: Sink,
    /// How they look.
    pub format: LogFormat,
    /// Which are written; `None`: all.
    pub filter: Option<LogFilter>,
}

/// Where the lines of the access log go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// Nowhere: `access_log: off`.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to this file, which is created when it does not exist and reopened on USR1; a FIFO will do.
    File(PathBuf),
}

/// How a line of the access log looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object.
    Json,
    /// The combined format of NCSA's and Apache's servers.
    Combined,
    /// Fields in a text of the author's own.
    Template(Template),
}

/// Which lines are written. Some always are, whatever stands here (docs/access-log.md).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter {
    /// Lines with these statuses are: inclusive ranges, sorted; empty: none.
    pub status: Vec<(u16, u16)>,
    /// Lines of requests that took at least this long are.
    pub min_duration: Option<Duration>,
    /// The share of all others that is.
    pub sample: Sample,
}

/// A share in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample(pub u32);

impl Sample {
    /// Nothing.
    pub const NONE: Sample = Sample(0);
    /// Everything.
    pub const ALL: Sample = Sample(1_000_000);
}

impl Default for AccessLog {
    fn default() -> AccessLog {
        AccessLog { sink: Sink::Stdout, format: LogFormat::Json, filter: None }
    }
}

/// What `access_log:` means in the file that `top` stands on.
pub(super) fn access_log(written: Option<&Or<Off, AccessLogKeys>>, top: &mut Reading<'_>) -> AccessLog {
    let keys = match written {
        None => return AccessLog::default(),
        Some(Or::Word(_)) => return AccessLog { sink: Sink::Off, ..AccessLog::default() },
        Some(Or::Keys(keys)) => keys,
    };
    let mut read = top.under("access_log");
    let sink = read.text("path", &keys.path, |path| match path {
        "" => Err("the path is empty; write `stdout` or a file".to_owned()),
        "-" => Err("`-` is not known here; write `stdout`".to_owned()),
        "stderr" => Err("`stderr` is for the program's own log; write `stdout` or a file".to_owned()),
        path if path.contains('\0') => Err("the path holds a NUL character".to_owned()),
        "stdout" => Ok(Sink::Stdout),
        path => Ok(Sink::File(PathBuf::from(path))),
    });
    let format = keys.format.as_ref().map_or(LogFormat::Json, |Spelled(format)| format.clone());
    let filter = keys.filter.as_ref().map(|keys| filter(keys, read.under("filter")));
    AccessLog { sink: sink.unwrap_or(Sink::Stdout), format, filter }
}

fn filter(keys: &FilterKeys, mut read: Reading<'_>) -> LogFilter {
    if keys.status.is_none() && keys.min_duration.is_none() && keys.sample.is_none() && !read.at.damaged() {
        let place = read.at.name();
        read.problems.error_at(
            place,
            "this filter keeps nothing; write one such as `{ status: \"400-599\", sample: 1% }`, or remove it",
        );
    }
    LogFilter {
        status: keys.status.as_ref().map(|Spelled(Statuses(ranges))| ranges.clone()).unwrap_or_default(),
        min_duration: read.span("min_duration", &keys.min_duration, TICK..=DAY),
        sample: keys.sample.map_or(Sample::NONE, |Spelled(sample)| sample),
    }
}

/// Why the text at `path` cannot be expanded from the environment, if it is a format in which a field is written as a name
/// of the environment is: always where it is a field's name, else where the environment has none of that name.
pub(super) fn braced_field(path: &[Step], text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let [Step::Key(log), Step::Key(format)] = path else { return None };
    if log != "access_log" || format != "format" {
        return None;
    }
    let expanded = text.replace("$${", "");
    let names = expanded.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name);
    let faults: Vec<String> = names.filter_map(|name| braced(name, environment)).collect();
    (!faults.is_empty()).then(|| faults.join("; also: "))
}

fn braced(name: &str, environment: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    if Field::named(name).is_some() {
        return Some(format!(
            "`${{{name}}}` would be the environment's; a field of the line is written `${name}` or `$({name})`"
        ));
    }
    if environment(name).is_some() {
        return None;
    }
    let field = match template::meant(name) {
        Some((here, but)) => format!("`${here}` or `$({here})`{but}"),
        // Which is told where it is expanded.
        None if !env::is_name(name) => return None,
        None => "`$status` or `$(status)`".to_owned(),
    };
    let name = shown(name);
    Some(format!("`${{{name}}}` is the environment's, which has none: set it, or write a field of the line as {field}"))
}

impl Spelling for LogFormat {
    const EXPECTED: &'static str = "`json`, `combined`, or a template such as `$time $client $status`";

    fn read(text: &str) -> Result<LogFormat, String> {
        match text {
            "json" => Ok(LogFormat::Json),
            "combined" => Ok(LogFormat::Combined),
            "common" | "clf" | "ncsa" | "apache" | "nginx" | "main" => {
                Err(format!("format `{text}` is not known here; write `combined`, or a template of `$field`s"))
            }
            "text" | "plain" | "logfmt" => {
                Err(format!("format `{text}` is not known here; write `combined`, `json` or a template of `$field`s"))
            }
            _ if text.contains('$') => template::compile(text).map(LogFormat::Template),
            _ => Err(word(text)),
        }
    }
}

fn word(text: &str) -> String {
    match super::spelling::likely(text, &["json", "combined"]) {
        Some(word) => format!("`{}` is not known here; did you mean `{word}`?", shown(text)),
        None => format!("`{}` has no `$field`; write `json`, `combined` or a template with some", shown(text)),
    }
}

impl Spelling for Sample {
    const EXPECTED: &'static str = "a share such as `1%`";

    fn read(text: &str) -> Result<Sample, String> {
        let Some(number) = text.strip_suffix('%') else {
            return Err(format!("`{}` is not a share; write one with its sign, such as `1%`", shown(text)));
        };
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) {
            return Err(format!("`{}` is not a share; write one such as `1%` or `0.5%`", shown(text)));
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > 4 {
            return Err(format!("`{}` is too fine; write at most four decimals", shown(text)));
        }
        // Four decimals of a percent are millionths.
        let parts = format!("{whole}{decimals:0<4}").parse().ok().map(Sample);
        match parts {
            Some(sample) if sample <= Sample::ALL => Ok(sample),
            _ => Err(format!("{}% is more than all; write `0%` to `100%`", shown(number))),
        }
    }
}

/// A share as this file writes it: `1%`, `0.25%`.
pub(super) fn spell_sample(Sample(parts): Sample) -> String {
    let (whole, decimals) = (parts / 10_000, format!("{:04}", parts % 10_000));
    match decimals.trim_end_matches('0') {
        "" => format!("{whole}%"),
        decimals => format!("{whole}.{decimals}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_a_share_down_to_a_millionth() {
        for (text, parts) in [
            ("0%", 0),
            ("1%", 10_000),
            ("0.5%", 5_000),
            ("0.0001%", 1),
            ("12.25%", 122_500),
            ("1.50000%", 15_000),
            ("100%", 1_000_000),
        ] {
            assert_eq!(Sample::read(text), Ok(Sample(parts)), "{text}");
            assert_eq!(Sample::read(&spell_sample(Sample(parts))), Ok(Sample(parts)), "{text}");
        }
        for (text, part) in [
            ("0.01", "with its sign"),
            ("100.0001%", "more than all"),
            ("101%", "more than all"),
            ("99999999999%", "more than all"),
            ("0.00001%", "too fine"),
            ("-1%", "not a share"),
            (".5%", "not a share"),
            ("1.%", "not a share"),
            ("%", "not a share"),
            ("one%", "not a share"),
        ] {
            let message = Sample::read(text).expect_err(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_field_in_braces_is_not_left_to_the_environment() {
        let format = [Step::Key("access_log".to_owned()), Step::Key("format".to_owned())];
        let env = |name: &str| ["REGION", "member", "status"].contains(&name).then(|| "x".to_owned());
        for (text, part) in [
            ("$time ${status}", Some("written `$status` or `$(status)`")),
            ("${REGION} ${lb.mode}", Some("written `$lb.mode` or `$(lb.mode)`")),
            ("${request}", Some("written `$request` or `$(request)`")),
            ("${body_bytes_sent}", Some("set it, or write a field of the line as `$response_bytes` or")),
            ("${request_time}", Some("as `$duration_ms` or `$(duration_ms)`, in milliseconds")),
            ("${stauts}", Some("as `$status` or `$(status)`")),
            ("${GONE}", Some("has none: set it, or write a field of the line as `$status`")),
            ("${GONE} ${uri}", Some("`$(status)`; also: `${uri}` is the")),
            ("${member}", None),
            ("${REGION:-eu}", None),
            ("${}", None),
            ("$$${status}", None),
            ("$${status}", None),
            ("${REGION} $status", None),
            ("${status", None),
        ] {
            let fault = braced_field(&format, text, &env);
            match part {
                Some(part) => assert!(fault.as_ref().is_some_and(|fault| fault.contains(part)), "{text}: {fault:?}"),
                None => assert_eq!(fault, None, "{text}"),
            }
        }
        let elsewhere = [Step::Key("access_log".to_owned()), Step::Key("path".to_owned())];
        for path in [&format[..1], &elsewhere] {
            assert_eq!(braced_field(path, "${status}", &env), None);
        }
    }
}
