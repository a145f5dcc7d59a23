//! What a run comes to, in numbers.

use std::time::Duration;

use super::{MemberRun, Truth};
use crate::config::scenario::Policy;
use crate::health::{Mode, Standing};
use crate::simulate::chronicle::Track;

/// The numbers of one pool, or of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests whose end was seen.
    pub requests: u64,
    /// Those that got no answer, or one from 500 on.
    pub failed: u64,
    /// Attempts on members that were ill.
    pub to_ill: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Requests that waited for a first verdict.
    pub waited: u64,
    /// Probes that were made.
    pub probes: u64,
    /// How often a member was ejected.
    pub ejections: u64,
    /// How often somebody was kept in the rotation by the cap.
    pub capped: u64,
    /// For how long.
    pub capped_time: Duration,
    /// How often the pool fell back to everybody.
    pub fallbacks: u64,
    /// For how long.
    pub fallback_time: Duration,
    /// How often a worse tier or pool came to serve.
    pub failovers: u64,
    /// Time of members that were ill and took traffic, added up.
    pub ill_serving: Duration,
    /// Time of members that were well and ejected, added up.
    pub well_ejected: Duration,
    /// How long requests took.
    pub times: Times,
}

/// How long requests took, to within a sixteenth.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Times {
    counts: Vec<u64>,
}

/// Buckets in each power of two.
const STEPS: u32 = 16;

impl Totals {
    /// What the tracks of a pool come to is filled in.
    pub(super) fn complete(&mut self, end: Duration, modes: &Track<Mode>, members: &[MemberRun]) {
        let is_out = |standing: Option<Standing>| standing == Some(Standing::Ejected);
        let serves = |standing: Option<Standing>| standing.is_some_and(Standing::takes_traffic);
        self.fallbacks = modes.times(|mode| mode == Mode::Fallback);
        self.fallback_time = modes.time(end, |mode| mode == Mode::Fallback);
        for MemberRun { standings, ills, .. } in members {
            self.ejections += standings.times(is_out);
            self.ill_serving +=
                standings.time_with(ills, end, |standing, truth| serves(standing) && truth == Truth::Ill);
            self.well_ejected +=
                standings.time_with(ills, end, |standing, truth| is_out(standing) && truth == Truth::Well);
        }
        let kept = kept(end, members);
        self.capped = kept.times(|count| count > 0);
        self.capped_time = kept.time(end, |count| count > 0);
    }

    /// Of several pools.
    pub fn of<'t>(all: impl Iterator<Item = &'t Totals>) -> Totals {
        all.fold(Totals::default(), |sum, one| Totals {
            requests: sum.requests + one.requests,
            failed: sum.failed + one.failed,
            to_ill: sum.to_ill + one.to_ill,
            retries: sum.retries + one.retries,
            waited: sum.waited + one.waited,
            probes: sum.probes + one.probes,
            ejections: sum.ejections + one.ejections,
            capped: sum.capped + one.capped,
            capped_time: sum.capped_time + one.capped_time,
            fallbacks: sum.fallbacks + one.fallbacks,
            fallback_time: sum.fallback_time + one.fallback_time,
            failovers: sum.failovers + one.failovers,
            ill_serving: sum.ill_serving + one.ill_serving,
            well_ejected: sum.well_ejected + one.well_ejected,
            times: sum.times.with(&one.times),
        })
    }
}

impl Times {
    pub(super) fn add(&mut self, took: Duration) {
        let bucket = bucket(took);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
    }

    /// So many of a thousand took no longer; `None` where there was none.
    pub fn quantile(&self, per_mille: u64) -> Option<Duration> {
        let all: u64 = self.counts.iter().sum();
        let rank = (all * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map(ceiling)
    }

    fn with(mut self, other: &Times) -> Times {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self
    }
}

/// How many were kept at once, over time.
fn kept(end: Duration, members: &[MemberRun]) -> Track<i64> {
    let is_kept = |(_, _, standing): &(Duration, Duration, Option<Standing>)| *standing == Some(Standing::Kept);
    let spans = members.iter().flat_map(|member| member.standings.spans(end).filter(is_kept));
    let mut steps: Vec<(Duration, i64)> = spans.flat_map(|(from, to, _)| [(from, 1), (to, -1)]).collect();
    // Who comes at the moment when another goes was there with it.
    steps.sort_by_key(|(at, step)| (*at, -step));
    let (mut track, mut count) = (Track::new(0), 0);
    for (at, step) in steps {
        count += step;
        track.turn(at, count);
    }
    track
}

/// The names of the policies that are compared.
pub(super) fn names(policies: &[Policy]) -> Vec<&str> {
    policies.iter().map(|policy| policy.name.as_str()).collect()
}

fn bucket(took: Duration) -> usize {
    let us = (took.as_micros() as u64).max(u64::from(STEPS));
    let power = us.ilog2() - STEPS.ilog2();
    ((power * STEPS) as u64 + (us >> power) - u64::from(STEPS)) as usize
}

/// The greatest that is in a bucket.
fn ceiling(bucket: usize) -> Duration {
    let (power, step) = (bucket as u32 / STEPS, bucket as u64 % u64::from(STEPS));
    Duration::from_micros(((u64::from(STEPS) + step + 1) << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_sixteenth() {
        let mut times = Times::default();
        assert_eq!(times.quantile(500), None);
        (1..=1000).for_each(|ms| times.add(Duration::from_millis(ms)));
        for per_mille in [1, 10, 500, 990, 1000] {
            let (is, found) = (per_mille as f64, times.quantile(per_mille).map_or(0.0, |q| q.as_secs_f64() * 1000.0));
            assert!(found >= is && found < is * 17.0 / 16.0 + 0.1, "{per_mille}: {found}");
        }
    }
}
