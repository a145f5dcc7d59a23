//! A pool's state as a whole: whether enough of its members are healthy for others to build on it (health.md §8).
//!
//! It says nothing about who serves: a pool that is `unhealthy` here may serve well with the few it has, and one whose cap
//! keeps failing members is no healthier for it. What follows from it is for composites and failover routes to say.
//!
//! Not here: who counts and who is healthy (`member`), what several states add up to (`composite`).

use super::{Member, Verdict};

/// How many of a pool's members have to be healthy: both must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregate {
    /// So many in a hundred of the enabled ones: 0 to 100. Default 60.
    pub min_healthy_percent: u8,
    /// So many in all: at least 1, so that a pool with nobody healthy never is. Default 1.
    pub min_healthy: u32,
}

impl Default for Aggregate {
    fn default() -> Aggregate {
        Aggregate { min_healthy_percent: 60, min_healthy: 1 }
    }
}

/// The state of a pool as a whole, of a source of a composite, and of a composite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Fit to be relied on.
    Healthy,
    /// Not fit.
    Unhealthy,
    /// First verdicts that are still to come decide.
    Unknown,
}

/// The members of a pool, counted for its state.
///
/// A member is counted while it is enabled and of weight > 0: one that drains, is disabled or has weight 0 is none of those
/// of whom a share is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Those that count.
    pub enabled: usize,
    /// Of those, healthy by every cause.
    pub healthy: usize,
    /// Of those, of whom a first verdict is still to come. One without an address is not: nobody probes it.
    pub unknown: usize,
}

impl Aggregate {
    /// The state of a pool whose members are these.
    pub fn state(self, census: Census) -> State {
        let Census { enabled, healthy, unknown } = census;
        if self.holds(healthy, enabled) {
            State::Healthy
        } else if self.holds(healthy + unknown, enabled) {
            State::Unknown
        } else {
            State::Unhealthy
        }
    }

    fn holds(self, healthy: usize, enabled: usize) -> bool {
        let is_share = healthy * 100 >= usize::from(self.min_healthy_percent) * enabled;
        // Nobody is no pool to rely on, whatever the numbers.
        is_share && healthy >= (self.min_healthy as usize).max(1)
    }
}

impl Census {
    /// Of these members.
    pub(super) fn of(members: &[Member]) -> Census {
        let mut census = Census::default();
        for member in members.iter().filter(|member| member.counts()) {
            census.enabled += 1;
            census.healthy += usize::from(member.healthy());
            census.unknown += usize::from(member.reachable() && member.verdict() == Verdict::Unknown);
        }
        census
    }
}

impl State {
    /// Every state.
    pub const ALL: [State; 3] = [State::Healthy, State::Unhealthy, State::Unknown];

    /// The word used in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Healthy => "healthy",
            State::Unhealthy => "unhealthy",
            State::Unknown => "unknown",
        }
    }

    /// The word in `x-health-state` and wherever a composite is published.
    pub fn published(self) -> &'static str {
        match self {
            State::Healthy => "HEALTHY",
            State::Unhealthy => "UNHEALTHY",
            State::Unknown => "UNKNOWN",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, pass, rules, spec, specs};
    use super::super::{Admin, Initial, Rules, Spec};
    use super::*;

    fn state(percent: u8, least: u32, enabled: usize, healthy: usize, unknown: usize) -> State {
        let aggregate = Aggregate { min_healthy_percent: percent, min_healthy: least };
        aggregate.state(Census { enabled, healthy, unknown })
    }

    #[test]
    fn both_numbers_must_hold() {
        use State::{Healthy, Unhealthy};
        let rows = [
            // Example 9: 3 of 4 meet 60 %, 2 do not.
            ((60, 1, 4, 3), Healthy),
            ((60, 1, 4, 2), Unhealthy),
            // `min_healthy: 3` of 4 with 75 % holds at 3.
            ((75, 3, 4, 3), Healthy),
            ((75, 3, 4, 2), Unhealthy),
            ((75, 4, 4, 3), Unhealthy),
            // Exactly the share is enough; a share is not rounded.
            ((60, 1, 5, 3), Healthy),
            ((61, 1, 5, 3), Unhealthy),
            ((34, 1, 3, 1), Unhealthy),
            ((33, 1, 3, 1), Healthy),
            ((100, 1, 3, 2), Unhealthy),
            ((100, 1, 3, 3), Healthy),
            // Only the number counts with 0 %, and never none.
            ((0, 2, 9, 2), Healthy),
            ((0, 2, 9, 1), Unhealthy),
            ((0, 0, 9, 0), Unhealthy),
            ((0, 0, 9, 1), Healthy),
            // More than there are is never reached.
            ((60, 5, 4, 4), Unhealthy),
            // None enabled.
            ((60, 1, 0, 0), Unhealthy),
            ((0, 0, 0, 0), Unhealthy),
        ];
        for ((percent, least, enabled, healthy), expected) in rows {
            assert_eq!(
                state(percent, least, enabled, healthy, 0),
                expected,
                "{percent} % {least}: {healthy}/{enabled}"
            );
        }
    }

    #[test]
    fn unknown_only_while_what_is_unknown_could_decide() {
        use State::{Healthy, Unhealthy, Unknown};
        // Of 4: healthy, unknown.
        let rows = [
            ((1, 3), Unknown),
            ((1, 2), Unknown),
            ((1, 1), Unhealthy),
            ((3, 1), Healthy),
            ((0, 4), Unknown),
            ((0, 0), Unhealthy),
        ];
        for ((healthy, unknown), expected) in rows {
            assert_eq!(state(60, 1, 4, healthy, unknown), expected, "{healthy} healthy, {unknown} unknown");
        }
        // The share could hold, the number could not.
        assert_eq!(state(50, 5, 4, 1, 3), Unhealthy);
    }

    fn shown(trial: &Trial) -> (State, [usize; 3]) {
        let Census { enabled, healthy, unknown } = trial.pool.picture().census;
        (trial.pool.picture().state, [healthy, unknown, enabled])
    }

    #[test]
    fn a_pool_is_unknown_until_first_verdicts_decide() {
        let mut trial = Trial::new(Rules { initial: Initial::Probe, ..rules() }, specs(4));
        assert_eq!(shown(&trial), (State::Unknown, [0, 4, 4]));
        // Example 9: at start, 1 of 4 known and healthy.
        trial.at(1, pass(1));
        assert_eq!(shown(&trial), (State::Unknown, [1, 3, 4]));
        trial.at(2, fail(2));
        assert_eq!(shown(&trial), (State::Unknown, [1, 2, 4]));
        trial.at(3, fail(3));
        assert_eq!(shown(&trial), (State::Unhealthy, [1, 1, 4]), "a newcomer that fails is known");
        trial.at(4, pass(4));
        trial.at(5, pass(3));
        assert_eq!(shown(&trial), (State::Healthy, [3, 0, 4]));
    }

    #[test]
    fn who_takes_no_part_is_not_asked_for() {
        let mut trial = Trial::new(rules(), specs(4));
        trial.at(1, fail(1));
        trial.at(1, fail(2));
        assert_eq!(shown(&trial), (State::Unhealthy, [2, 0, 4]));
        trial.at(2, admin(1, Admin::Draining));
        assert_eq!(shown(&trial), (State::Healthy, [2, 0, 3]), "2 of 3");
        trial.at(3, admin(2, Admin::Disabled));
        assert_eq!(shown(&trial), (State::Healthy, [2, 0, 2]));
        trial.at(4, admin(3, Admin::Draining));
        trial.at(4, admin(4, Admin::Draining));
        assert_eq!(shown(&trial), (State::Unhealthy, [0, 0, 0]), "none enabled");
        // Weight 0 drains.
        let light = vec![Spec { weight: 0, ..spec(1) }, spec(2), spec(3)];
        let mut trial = Trial::new(rules(), light);
        assert_eq!(shown(&trial), (State::Healthy, [2, 0, 2]));
        trial.at(1, fail(2));
        assert_eq!(shown(&trial), (State::Unhealthy, [1, 0, 2]));
    }

    #[test]
    fn the_cap_and_the_fallback_make_nobody_healthier() {
        let mut trial = Trial::new(rules(), specs(4));
        (1..=3).for_each(|member| drop(trial.at(1, fail(member))));
        assert_eq!((trial.standings().as_str(), shown(&trial)), ("EEKH", (State::Unhealthy, [1, 0, 4])));
        trial.at(2, fail(4));
        assert_eq!((trial.standings().as_str(), shown(&trial)), ("FFFF", (State::Unhealthy, [0, 0, 4])));
    }

    #[test]
    fn every_tier_counts_and_who_has_no_address_is_not_healthy() {
        let mut homeless = spec(3);
        homeless.key.address = None;
        let specs = vec![spec(1), Spec { tier: 1, ..spec(2) }, homeless];
        let trial = Trial::new(Rules { initial: Initial::Probe, ..rules() }, specs.clone());
        assert_eq!(shown(&trial), (State::Unknown, [0, 2, 3]));
        assert_eq!(shown(&Trial::new(rules(), specs)), (State::Healthy, [2, 0, 3]));
    }

    #[test]
    fn a_reload_may_ask_for_another_share() {
        let of =
            |percent| Rules { aggregate: Some(Aggregate { min_healthy_percent: percent, min_healthy: 1 }), ..rules() };
        let mut trial = Trial::new(of(75), specs(4));
        trial.at(1, fail(1));
        assert_eq!(shown(&trial).0, State::Healthy);
        trial.at(2, Act::Reload(of(76), specs(4)));
        assert_eq!(shown(&trial).0, State::Unhealthy);
    }
}
