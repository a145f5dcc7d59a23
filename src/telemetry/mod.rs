//! What the program says about itself: one line per request, one event per change of health, and its own log.
//!
//! Everything here hands its line to a bounded queue and goes on: a full disk, a stuck reader or a closed terminal costs
//! lines, which are counted, and never a request. Whatever a client or a member sends comes out as one line that a
//! program can parse and a terminal can show.
//!
//! Not here: who changed and why (`health`), when a request is over (`proxy`), what the admin API answers (`admin`).

mod access_log;
#[cfg(test)]
mod child;
mod escape;
mod events;
mod filter;
mod json;
mod json_line;
mod lines;
mod logging;
pub mod metrics;
mod ncsa;
mod panics;
mod plain;
mod record;
mod value;
mod words;

pub use access_log::{AccessLog, Change};
pub use events::{Counters, Event, EventLog, Glance, Kind, Moves, Severity, Trial, mark};
pub use json::is_deceptive;
pub use logging::{Format, InitError, Logging, init};
pub use panics::{log_panics, panics};
pub use record::{Attempt, Pick, Record, Text};
pub use words::{AttemptResult, Outcome, PickReason, Why};

/// Text of somebody else's, for a message: on one line, with every character escaped that could deceive a terminal.
pub fn shown(text: &str) -> String {
    json::Shown(text).to_string()
}

/// The `tracing` target of the event log.
pub const HEALTH: &str = "health";
