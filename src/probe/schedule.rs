//! When the next probe of a member starts.
//!
//! PURE: times and a draw in, a time out. Who shares a probe puts together what each asks for: the shortest interval holds
//! for all, whoever is in doubt quickens it, and it is slowed only where nobody uses any of them.
//! A member has a grid of its own, `interval` apart at a phase it keeps, so that
//! neither a slow answer nor a late start moves the following ones, and hundreds of members do not ask in step. Each
//! cell of the grid sees one start: the rate is 1/`interval` however the answers come.
//!
//! While a verdict is in doubt the next start is `fast` after the last one. Only there a draw shortens the time, by up to
//! a tenth: on the steady grid a start that is early would leave more than `interval` until the one after it, and a death
//! in that gap would be found later than health.md §2 promises. What keeps members apart there is their phase.

use std::time::Duration;

use crate::health::Pace;

/// No interval is shorter.
const TICK: Duration = Duration::from_millis(1);

/// What one of those who share a probe asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    /// From start to start.
    pub(crate) interval: Duration,
    /// The same in doubt.
    pub(crate) fast: Duration,
    /// The same while nobody uses it; `None`: somebody does, or it makes no difference.
    pub(crate) idle: Option<Duration>,
    /// Its verdict may be about to change.
    pub(crate) doubts: bool,
}

/// What all of them together ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tempo {
    /// From start to start on the grid.
    pub(crate) every: Duration,
    /// From start to start in doubt, where that is sooner.
    pub(crate) fast: Option<Duration>,
    /// Somebody's verdict may be about to change.
    pub(crate) in_doubt: bool,
    /// Nobody uses any of them.
    pub(crate) idle: bool,
}

impl Tempo {
    /// The shortest interval anybody asks for; in doubt, the shortest fast one of those who doubt. `None`: nobody asks.
    pub(crate) fn of(asks: impl Iterator<Item = Ask> + Clone) -> Option<Tempo> {
        let interval = asks.clone().map(|ask| ask.interval).min()?;
        let in_doubt = asks.clone().any(|ask| ask.doubts);
        let fast = asks.clone().filter(|ask| ask.doubts).map(|ask| ask.fast).min().filter(|fast| *fast < interval);
        // Doubt is settled at the usual pace, used or not.
        let idle = if in_doubt { None } else { asks.map(|ask| ask.idle).collect::<Option<Vec<_>>>() };
        let idle = idle.and_then(|intervals| intervals.into_iter().min());
        Some(Tempo { every: idle.unwrap_or(interval).max(interval), fast, in_doubt, idle: idle.is_some() })
    }

    /// Probes a second.
    pub(crate) fn rate(&self) -> f64 {
        1.0 / self.step().max(TICK).as_secs_f64()
    }

    /// From start to start.
    pub(crate) fn step(&self) -> Duration {
        self.fast.unwrap_or(self.every)
    }

    fn pace(&self) -> Pace {
        if self.fast.is_some() { Pace::Fast } else { Pace::Steady }
    }
}

/// When the probes of one post start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timetable {
    /// Its phase, as a share of its interval.
    share: f64,
}

impl Timetable {
    /// One at `share` (from 0, below 1) of its intervals.
    pub(crate) fn new(share: f64) -> Timetable {
        Timetable { share }
    }

    /// When the probe after `last` starts, where intervals are `factor` times as long as is asked for.
    pub(crate) fn next(&self, tempo: Tempo, last: Last, factor: f64, draw: f64) -> Duration {
        if factor <= 1.0 {
            return self.grid(tempo, 1.0).next(last, tempo.pace(), draw);
        }
        let step = tempo.step().mul_f64(factor);
        // A start that was late delays no other, but for one so late that the next would follow on its heels.
        let planned = last.planned.max(last.started.saturating_sub(step / 2));
        (planned + step).max(last.ended)
    }

    /// The same at `now`, where what is asked for has changed and the next was planned for `due`: never later than that, so
    /// that nobody's promise is broken; and where it would have been due before, at the next point of the new grid, so that
    /// a reload that shortens ten thousand intervals makes no ten thousand probes at once.
    pub(crate) fn again(&self, tempo: Tempo, last: Last, factor: f64, now: Duration, due: Duration) -> Duration {
        let next = self.next(tempo, last, factor, 0.0);
        let missed = next < now && tempo.pace() == Pace::Steady;
        if missed { self.grid(tempo, factor).point_after(now).min(due) } else { next.min(due) }
    }

    fn grid(&self, tempo: Tempo, factor: f64) -> Grid {
        Grid::new(tempo.every.mul_f64(factor.max(1.0)), tempo.step(), self.share)
    }
}

/// The times one member may be probed at.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Grid {
    interval: Duration,
    fast: Duration,
    offset: Duration,
}

/// The last probe of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Last {
    /// When it was to be dialled, or was, where nobody had planned it.
    pub(crate) planned: Duration,
    /// When it was dialled.
    pub(crate) started: Duration,
    /// When its sample was there.
    pub(crate) ended: Duration,
}

impl Grid {
    /// A grid at `share` (from 0, below 1) of its interval.
    fn new(interval: Duration, fast: Duration, share: f64) -> Grid {
        let interval = interval.max(TICK);
        Grid { interval, fast: fast.min(interval), offset: interval.mul_f64(share) }
    }

    /// When the probe after `last` starts; `draw` is from 0, below 1. Never before the end of the last.
    fn next(&self, last: Last, pace: Pace, draw: f64) -> Duration {
        let start = match pace {
            // Without a fast interval of its own a member in doubt stays on its grid.
            Pace::Fast if self.fast < self.interval => last.started + self.fast - self.fast.mul_f64(draw / 10.0),
            Pace::Fast | Pace::Steady => self.point_after(last.started),
        };
        start.max(last.ended)
    }

    fn point_after(&self, time: Duration) -> Duration {
        let Some(since) = time.checked_sub(self.offset) else {
            return self.offset;
        };
        let interval = self.interval.as_nanos();
        let into_cell = (since.as_nanos() % interval) as u64;
        time + self.interval - Duration::from_nanos(into_cell)
    }
}

/// The share of its interval that the `nth` member followed has as its phase: from `offset` on in steps of the golden
/// ratio, so that any run of members, such as those of one pool, is spread evenly.
pub(crate) fn share(offset: f64, nth: u64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    // Taken modulo a large number first: far out, the fraction of a product would lose its digits.
    (offset + (nth % 1_000_000) as f64 * GOLDEN).fract()
}

#[cfg(test)]
mod tests;
