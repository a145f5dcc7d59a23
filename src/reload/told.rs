//! A reload in words: one event, and before it what is wrong with the file, or could be better.

use super::{Cause, Outcome, Refused, Report};
use crate::config::{Problem, Severity};
use crate::control::Control;
use crate::telemetry::{self, Event, Kind};

/// Problems that have a line each; the rest is counted.
const SHOWN: usize = 10;

/// Tells of how a reload has ended.
pub(super) fn tell(control: &Control, cause: Cause, outcome: &Outcome) {
    let now = control.snapshot().generation;
    let event = match outcome {
        Ok(report) => {
            report.advice.iter().for_each(|advice| tracing::warn!(target: "config", "{advice}"));
            for what in &report.needs_restart {
                tracing::warn!(target: "reload", "{what} changes only with a restart");
            }
            taken(report)
        }
        Err(refused) => {
            let errors: Vec<_> = refused.problems().iter().filter(|p| p.severity == Severity::Error).collect();
            errors.iter().take(SHOWN).for_each(|problem| tracing::error!(target: "config", "{problem}"));
            if errors.len() > SHOWN {
                let more = errors.len() - SHOWN;
                let words = if more == 1 { "error" } else { "errors" };
                tracing::error!(target: "config", more, "and {more} more {words}");
            }
            let (cause, detail) = (cause.as_str(), detail(refused, &errors));
            let message = match errors.len() {
                0 => format!("reload refused ({cause}): {detail}; everything stays as it was"),
                1 => format!("reload refused ({cause}): 1 error; everything stays as it was"),
                many => format!("reload refused ({cause}): {many} errors; everything stays as it was"),
            };
            Event {
                from: Some(now.to_string()),
                to: Some(now.to_string()),
                reason: Some("refused"),
                detail: Some(detail),
                ..Event::new(Kind::Reload, telemetry::Severity::Error, message)
            }
        }
    };
    control.events().publish(event);
}

fn taken(report: &Report) -> Event {
    let Report { generation, unchanged, .. } = report;
    let (from, reason, words) = match unchanged {
        true => (*generation, "unchanged", "reloaded, still"),
        false => (generation - 1, "taken", "reloaded,"),
    };
    let message = format!("{words} generation {generation}: {report}");
    Event {
        from: Some(from.to_string()),
        to: Some(generation.to_string()),
        reason: Some(reason),
        detail: Some(report.to_string()),
        ..Event::new(Kind::Reload, telemetry::Severity::Info, message)
    }
}

/// The first error; the others are counted.
fn detail(refused: &Refused, errors: &[&Problem]) -> String {
    match errors {
        [] => refused.to_string(),
        [one] => one.to_string(),
        [first, others @ ..] => format!("{first}, and {} more", others.len()),
    }
}
