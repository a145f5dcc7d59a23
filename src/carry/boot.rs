//! How much time has passed since another process looked: by the machine's own count where it has not begun anew since, which
//! nobody can set; else by the time of day.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When it is, for another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// In milliseconds since 1970.
    pub wall_ms: u64,
    /// Which start of the machine it is; `None` where it does not say.
    pub boot: Option<Boot>,
}

/// A start of the machine, and how long ago it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// Of this start alone.
    pub id: String,
    /// How long ago it was, in milliseconds.
    pub up_ms: u64,
}

impl Stamp {
    /// That it is now, `wall` since 1970.
    pub fn now(wall: Duration) -> Stamp {
        Stamp { wall_ms: wall.as_millis() as u64, boot: boot() }
    }

    /// How long ago `self` is at `now`; `None`: it is not past, so a clock was set.
    pub fn age(&self, now: &Stamp) -> Option<Duration> {
        let ms = match (&self.boot, &now.boot) {
            (Some(then), Some(now)) if then.id == now.id => now.up_ms.checked_sub(then.up_ms)?,
            _ => now.wall_ms.checked_sub(self.wall_ms)?,
        };
        Some(Duration::from_millis(ms))
    }
}

fn boot() -> Option<Boot> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
    let up: f64 = fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    Some(Boot { id, up_ms: (up * 1000.0) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(wall_ms: u64, boot: Option<(&str, u64)>) -> Stamp {
        Stamp { wall_ms, boot: boot.map(|(id, up_ms)| Boot { id: id.to_owned(), up_ms }) }
    }

    #[test]
    fn a_clock_that_was_set_does_not_matter_where_the_machine_counts() {
        let then = stamp(1_000_000, Some(("a", 500)));
        let rows = [
            ("nothing was set", stamp(1_004_000, Some(("a", 4_500))), Some(4)),
            ("set back", stamp(5, Some(("a", 4_500))), Some(4)),
            ("set forward", stamp(9_000_000, Some(("a", 4_500))), Some(4)),
            ("the machine has begun anew", stamp(1_060_000, Some(("b", 20))), Some(60)),
            ("and its clock was set back", stamp(5, Some(("b", 20))), None),
            ("it does not count", stamp(1_002_000, None), Some(2)),
            ("nor say", stamp(5, None), None),
        ];
        for (what, now, age) in rows {
            assert_eq!(then.age(&now), age.map(Duration::from_secs), "{what}");
        }
    }

    #[test]
    fn this_machine_goes_on() {
        let (one, other) = (Stamp::now(Duration::from_secs(9)), Stamp::now(Duration::from_secs(9)));
        assert!(one.age(&other).is_some_and(|age| age < Duration::from_secs(60)), "{one:?} {other:?}");
    }
}
