//! Which of a route's pools serves: leave at once, come back late (health.md §8).
//!
//! Pure, like all of the heart: whether each pool can serve goes in with the time, the rank that serves comes out. The
//! first pool that can serve is wanted; going back to a better one waits until that has been able for a while without a
//! break, so that a region that comes and goes does not take the traffic with it each time.
//!
//! What is *unknown* is waited for, but not for long: a pool whose first verdicts are not in is neither passed over at
//! the start nor left for a newcomer's sake, within its `initial_wait`. After that it counts as one that cannot serve.
//!
//! Not here: what makes a pool able (`failover`), what a pool does with requests that it cannot serve well (`picture`).

use std::time::Duration;

/// Whether a pool can serve, as far as its route is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ability {
    /// It can.
    Able,
    /// Nobody knows yet.
    Unknown,
    /// It cannot.
    Unable,
}

/// What is known of one of a route's pools at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Whether it can serve.
    pub ability: Ability,
    /// How good it is where none can serve.
    pub resort: Resort,
}

/// What a request gets of a pool that cannot serve, the better first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resort {
    /// Somebody in it is healthy.
    Healthy,
    /// Nobody is, and it tries those it has, or waits for them: its fallback, or a cold start.
    Tries,
    /// It refuses everything.
    Down,
}

/// When a route goes back to a better pool while the present one can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failback {
    /// Once that has been able to serve for so long without a break.
    After(Duration),
    /// Never.
    Never,
}

/// Why another pool serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The one before cannot serve.
    Unable,
    /// A better one has been able to for long enough.
    Failback,
    /// None could serve, and one can now.
    Relief,
    /// None can serve, and another one is the better of the bad.
    NoneAble,
    /// The first verdicts are in, or have been waited for long enough.
    Start,
    /// The one before is none of the route's any more.
    Removed,
}

/// Another pool serves; or the same one, where from now on none can serve, or one can again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The rank that served.
    pub from: usize,
    /// The rank that serves.
    pub to: usize,
    /// Why.
    pub cause: Cause,
}

/// One route's choice among its pools, over time.
#[derive(Debug, Clone)]
pub struct Switch {
    failback: Failback,
    ranks: Vec<Rank>,
    present: usize,
    phase: Phase,
    now: Duration,
}

/// What the present pool serves as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No pool has been able to serve yet: the present one is waited for.
    Start,
    /// It can serve, or could until a moment ago.
    Serving,
    /// None can serve: it is the better of the bad.
    NoneAble,
}

/// One of the pools.
#[derive(Debug, Clone, Copy)]
struct Rank {
    /// How long it is waited for while it is unknown.
    wait: Duration,
    report: Report,
    /// Since when it has been as able as it is.
    since: Duration,
}

impl Switch {
    /// A route that begins at `now`; `waits` says of each pool how long it is waited for while it is unknown. The first
    /// is the present one until [`Switch::observe`] has been told more.
    pub fn new(now: Duration, failback: Failback, waits: impl IntoIterator<Item = Duration>) -> Switch {
        let unknown = Report { ability: Ability::Unknown, resort: Resort::Tries };
        let rank = |wait| Rank { wait, report: unknown, since: now };
        Switch { failback, ranks: waits.into_iter().map(rank).collect(), present: 0, phase: Phase::Start, now }
    }

    /// The same route after a reload: `kept` says of each of its pools which of `old`'s it was, with the wait it has now.
    /// A pool that stays keeps its times, and the present one stays if it is still there; if it is not, there is a new
    /// start.
    pub fn reshaped(
        old: &Switch,
        now: Duration,
        failback: Failback,
        kept: impl IntoIterator<Item = (Option<usize>, Duration)>,
    ) -> Switch {
        let kept: Vec<(Option<usize>, Duration)> = kept.into_iter().collect();
        let mut next = Switch::new(now.max(old.now), failback, kept.iter().map(|(_, wait)| *wait));
        for (rank, (was, wait)) in next.ranks.iter_mut().zip(&kept) {
            if let Some(before) = was.and_then(|was| old.ranks.get(was)) {
                *rank = Rank { wait: *wait, ..*before };
            }
        }
        if let Some(present) = kept.iter().position(|(was, _)| *was == Some(old.present)) {
            (next.present, next.phase) = (present, old.phase);
        }
        next
    }

    /// A route that had one pool, and has several from `now` on: that one is at rank `present` and serves on, whatever
    /// is better and new.
    pub fn widened(
        now: Duration,
        failback: Failback,
        waits: impl IntoIterator<Item = Duration>,
        present: usize,
    ) -> Switch {
        Switch { present, phase: Phase::Serving, ..Switch::new(now, failback, waits) }
    }

    /// The rank that serves, 0 first.
    pub fn present(&self) -> usize {
        self.present
    }

    /// How each pool is now, in their order, and that it is `now`. Says whether another one serves, or on other
    /// terms. A time before the
    /// latest one counts as that.
    pub fn observe(&mut self, now: Duration, reports: impl IntoIterator<Item = Report>) -> Option<Move> {
        self.now = self.now.max(now);
        for (rank, report) in self.ranks.iter_mut().zip(reports) {
            if rank.report.ability != report.ability {
                rank.since = self.now;
            }
            rank.report = report;
        }
        self.settle()
    }

    /// Lets time pass: the end of a wait and of a delay are what time alone decides.
    pub fn advance(&mut self, now: Duration) -> Option<Move> {
        self.now = self.now.max(now);
        self.settle()
    }

    /// When [`Switch::advance`] will next have something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        let present = self.ranks.get(self.present)?;
        if self.phase == Phase::NoneAble {
            return None;
        }
        let wait = (present.report.ability == Ability::Unknown).then(|| present.since.saturating_add(present.wait));
        (0..self.present).filter_map(|rank| self.failback_at(rank)).chain(wait).min()
    }

    /// Whether the pool of this rank can serve, by what was told last.
    pub fn ability(&self, rank: usize) -> Ability {
        self.ranks.get(rank).map_or(Ability::Unknown, |rank| rank.report.ability)
    }

    /// When the route goes back to this rank, if everything stays as it is; `None` where it does not.
    pub fn failback_at(&self, rank: usize) -> Option<Duration> {
        let Failback::After(delay) = self.failback else { return None };
        let better = self.ranks.get(rank).filter(|_| rank < self.present)?;
        let able = better.report.ability == Ability::Able && self.phase == Phase::Serving;
        able.then(|| better.since.saturating_add(delay))
    }

    fn settle(&mut self) -> Option<Move> {
        let (from, before) = (self.present, self.phase);
        let able = self.ranks.iter().position(|rank| rank.report.ability == Ability::Able);
        let holds = self.ranks.get(from).is_some_and(|present| self.is_able_or_awaited(present));
        let cause = match (before, able) {
            (Phase::Serving, _) if holds => {
                self.present = self.first_to_go_back_to().unwrap_or(from);
                Cause::Failback
            }
            (Phase::Start, _) if self.first_awaited_before(able).is_some() => {
                self.present = self.first_awaited_before(able).unwrap_or(from);
                Cause::Start
            }
            (_, Some(able)) => {
                (self.present, self.phase) = (able, Phase::Serving);
                match before {
                    Phase::Start => Cause::Start,
                    Phase::Serving => Cause::Unable,
                    Phase::NoneAble => Cause::Relief,
                }
            }
            (_, None) => {
                // The first of the best.
                let best = (0..self.ranks.len()).min_by_key(|rank| self.ranks[*rank].report.resort);
                (self.present, self.phase) = (best.unwrap_or(0), Phase::NoneAble);
                Cause::NoneAble
            }
        };
        let turns = (before == Phase::NoneAble) != (self.phase == Phase::NoneAble);
        (turns || self.present != from).then_some(Move { from, to: self.present, cause })
    }

    /// At the start: the first that is waited for, of those that come before the first that is able.
    fn first_awaited_before(&self, able: Option<usize>) -> Option<usize> {
        let better = &self.ranks[..able.unwrap_or(self.ranks.len())];
        better.iter().position(|rank| self.is_able_or_awaited(rank))
    }

    fn first_to_go_back_to(&self) -> Option<usize> {
        (0..self.present).find(|rank| self.failback_at(*rank).is_some_and(|at| self.now >= at))
    }

    fn is_able_or_awaited(&self, rank: &Rank) -> bool {
        match rank.report.ability {
            Ability::Able => true,
            Ability::Unknown => self.now < rank.since.saturating_add(rank.wait),
            Ability::Unable => false,
        }
    }
}

impl Ability {
    /// The word used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Ability::Able => "able",
            Ability::Unknown => "unknown",
            Ability::Unable => "unable",
        }
    }
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 6] =
        [Cause::Unable, Cause::Failback, Cause::Relief, Cause::NoneAble, Cause::Start, Cause::Removed];

    /// The word used in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Unable => "unable",
            Cause::Failback => "failback",
            Cause::Relief => "relief",
            Cause::NoneAble => "none_able",
            Cause::Start => "start",
            Cause::Removed => "removed",
        }
    }
}

#[cfg(test)]
mod tests;
