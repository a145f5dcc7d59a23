//! What traffic holds against a member: health.md §6, read aloud.
//!
//! Not here: what a ban does to the verdict (`fit`), and when time counts (`model`).

use crate::fit::fit;
use crate::model::Turn;
use pulsegate::health::{Eject, Initial, Judge, Outcome, Verdict};
use std::time::Duration;

/// Of one member.
#[derive(Debug, Clone, Default)]
pub struct Banned {
    /// Offences as counted at the last one, and when that was.
    offences: Option<(u32, Duration)>,
    /// Until when it is out, if it is.
    until: Option<Duration>,
    /// "with `probe_clears: true` the judge's healthy streak does": the life it leads as far as that is concerned, unhealthy
    /// from the beginning.
    since: Option<Vec<(usize, Duration, Turn)>>,
}

impl Banned {
    /// When it is over.
    pub fn until(&self) -> Option<Duration> {
        self.until
    }

    /// "out for base × offences up to max; one offence is forgotten per `max` without a new one".
    pub fn begins(&mut self, now: Duration, rules: &Eject, judge: Judge) {
        let mut offences = 1;
        if let Some((before, at)) = self.offences {
            let mut forgotten = 0;
            while at + rules.max * (forgotten + 1) <= now && forgotten < before {
                forgotten += 1;
            }
            offences += before - forgotten;
        }
        self.offences = Some((offences, now));
        self.until = Some(now + term(rules, offences));
        self.since = rules.probe_clears.then(|| vec![unhealthy(judge)]);
    }

    /// It is over.
    pub fn ends(&mut self) {
        (self.until, self.since) = (None, None);
    }

    /// Whether a sample ends it: "a failing probe never ends a passive ejection"; a pass does where the time is over already,
    /// and with `probe_clears` enough of them.
    pub fn is_ended_by(&mut self, now: Duration, outcome: Outcome) -> bool {
        let Some(until) = self.until else { return false };
        let cleared = self.since.as_mut().is_some_and(|turns| {
            turns.push((0, now, Turn::Judged { outcome, right: None }));
            fit(turns).verdict == Verdict::Healthy
        });
        cleared || (outcome == Outcome::Pass && until <= now)
    }

    /// Another probe, or another judge: what was passed before says nothing.
    pub fn is_heard_anew(&mut self, judge: Judge) {
        self.since.iter_mut().for_each(|turns| *turns = vec![unhealthy(judge)]);
    }

    /// Other rules; true where nobody stays out by them.
    pub fn is_ruled_by(&mut self, rules: Option<&Eject>, judge: Judge) -> bool {
        let Some(rules) = rules else {
            let was_out = self.until.is_some();
            *self = Banned::default();
            return was_out;
        };
        let Some((offences, at)) = self.offences.filter(|_| self.until.is_some()) else { return false };
        self.until = Some(at + term(rules, offences));
        if !rules.probe_clears {
            self.since = None;
        } else if self.since.as_ref().is_none_or(|turns| !matches!(turns[0].2, Turn::Born(_, of) if of == judge)) {
            self.since = Some(vec![unhealthy(judge)]);
        }
        false
    }
}

fn term(rules: &Eject, offences: u32) -> Duration {
    (rules.base * offences).min(rules.max)
}

fn unhealthy(judge: Judge) -> (usize, Duration, Turn) {
    (0, Duration::ZERO, Turn::Born(Initial::Unhealthy, judge))
}
