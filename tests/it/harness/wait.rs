//! Waiting for a condition with a deadline; the only file of the suite that reads a clock or pauses.

use std::time::{Duration, Instant};

/// How long anything that must happen may take: generous, since machines are slow and a passing case never waits for it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A point in time after which waiting is over.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// [`PATIENCE`] from now.
    pub fn new() -> Deadline {
        Deadline(now() + PATIENCE)
    }

    /// What is left of it; `None` once it is over.
    pub fn left(self) -> Option<Duration> {
        self.0.checked_duration_since(now()).filter(|left| !left.is_zero())
    }
}

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "deadlines of tests, and arrival times at an origin, are real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Lets other threads run for a while: between two looks at a condition, or as the pace of a load or a slow peer.
/// Never to wait for something to have happened.
#[expect(clippy::disallowed_methods, reason = "the pace of polling, of a load, of a slow peer")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Polls until `condition` holds; panics with `what` when it does not within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    eventually_some(what, || condition().then_some(()));
}

/// Polls until `look` sees something; panics with `what` when it does not within [`PATIENCE`].
#[track_caller]
pub fn eventually_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::new();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(deadline.left().is_some(), "did not happen within {PATIENCE:?}: {what}");
        pause(Duration::from_millis(5));
    }
}
