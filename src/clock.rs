//! The only reading of a clock, so that everything else can take time as an argument.
//!
//! Monotonic time is a `Duration` since the process first asked: small, ordered, and what the heart counts in. Wall
//! time is for people and is derived from it, so that a clock set back never makes a log line run backwards by itself.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Time since the process began to count; never goes back, and stops for nothing.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub fn monotonic() -> Duration {
    ORIGIN.get_or_init(Instant::now).elapsed()
}

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// The time of day at a moment given as [`monotonic`] time, by today's reading of both clocks.
pub fn wall_at(moment: Duration) -> SystemTime {
    wall_of(moment, monotonic())
}

/// The same for whoever knows that it is `now`.
pub fn wall_of(moment: Duration, now: Duration) -> SystemTime {
    let wall = wall();
    if moment > now { wall + (moment - now) } else { wall.checked_sub(now - moment).unwrap_or(wall) }
}
