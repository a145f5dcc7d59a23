//! The only reading of a clock, so that everything else can take time as an argument.
//!
//! Monotonic time is a `Duration`: ordered, and what the heart counts in. Wall
//! time is for people and is derived from it, so that a clock set back never makes a log line run backwards by itself.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// What the count begins with, so that what was before the process can be told too.
const BEGINNING: Duration = Duration::from_secs(400 * 86_400);

/// Time, counted from somewhere before the process began; never goes back, and stops for nothing.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub fn monotonic() -> Duration {
    BEGINNING + ORIGIN.get_or_init(Instant::now).elapsed()
}

/// The last second that RFC 3339 can write, 9999-12-31T23:59:59Z.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// The time of day, of the years 1970 to 9999: a clock far astray is clamped, since what cannot be written as a date would
/// cost the line or the answer that it stands in.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall() -> SystemTime {
    within(SystemTime::now())
}

/// The time of day at a moment given as [`monotonic`] time, by today's reading of both clocks.
pub fn wall_at(moment: Duration) -> SystemTime {
    wall_of(moment, monotonic())
}

/// The same for whoever knows that it is `now`.
pub fn wall_of(moment: Duration, now: Duration) -> SystemTime {
    if moment > now { after(wall(), moment - now) } else { before(wall(), now - moment) }
}

/// The time of day so long ago, which may be before this process began.
pub fn wall_ago(ago: Duration) -> SystemTime {
    before(wall(), ago)
}

fn after(wall: SystemTime, span: Duration) -> SystemTime {
    within(wall.checked_add(span).unwrap_or(wall))
}

fn before(wall: SystemTime, span: Duration) -> SystemTime {
    within(wall.checked_sub(span).unwrap_or(wall))
}

fn within(time: SystemTime) -> SystemTime {
    time.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_can_be_written() {
        let (epoch, year) = (SystemTime::UNIX_EPOCH, Duration::from_secs(365 * 86_400));
        let far = epoch + LAST_SECOND;
        let rows = [
            (within(epoch - year), "1970-01-01T00:00:00.000Z"),
            (within(far + year), "9999-12-31T23:59:59.000Z"),
            (before(epoch + Duration::from_secs(1), year), "1970-01-01T00:00:00.000Z"),
            (after(far, year), "9999-12-31T23:59:59.000Z"),
            (after(epoch, Duration::MAX), "1970-01-01T00:00:00.000Z"),
            (before(epoch + year, Duration::from_millis(1)), "1970-12-31T23:59:59.999Z"),
        ];
        for (time, written) in rows {
            assert_eq!(humantime::format_rfc3339_millis(time).to_string(), written);
        }
    }
}
