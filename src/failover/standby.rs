//! One of a route's pools, and whether it can serve (health.md §8).

use std::sync::Arc;

use crate::health::failover::{Ability, Report, Resort};
use crate::health::{Aggregate, Census, Mode, State};
use crate::pool::{Pool, Roster};

/// One member healthy is enough where nothing else is written.
const ANYBODY: Aggregate = Aggregate { min_healthy_percent: 0, min_healthy: 1 };

/// Says how the composite of a name stands.
pub type Composites<'a> = &'a dyn Fn(&str) -> State;

/// One of a route's pools.
#[derive(Debug, Clone)]
pub struct Standby {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The composite that says whether it can serve; `None`: the pool itself does.
    pub when: Option<Arc<str>>,
}

impl Standby {
    /// What its route goes by now.
    pub(super) fn report(&self, composites: Composites<'_>) -> Report {
        let roster = self.pool.roster();
        let ability = match self.state(&roster, composites) {
            State::Healthy => Ability::Able,
            State::Unhealthy => Ability::Unable,
            State::Unknown => Ability::Unknown,
        };
        let resort = match roster.mode() {
            Mode::Down => Resort::Down,
            _ if roster.has_healthy() => Resort::Healthy,
            _ => Resort::Tries,
        };
        Report { ability, resort }
    }

    /// Whether it can serve now.
    pub fn ability(&self, composites: Composites<'_>) -> Ability {
        self.report(composites).ability
    }

    /// Why it is as able as it is, for people.
    pub fn because(&self, composites: Composites<'_>) -> String {
        if let Some(when) = &self.when {
            return format!("composite {when} is {}", composites(when).as_str());
        }
        let roster = self.pool.roster();
        let Census { enabled, healthy, unknown } = roster.census();
        let members = if enabled == 1 { "member" } else { "members" };
        let waits = if unknown > 0 { format!(", {unknown} unknown yet") } else { String::new() };
        match roster.aggregate() {
            _ if enabled == 0 => "no member is enabled".to_owned(),
            Some(Aggregate { min_healthy_percent, min_healthy }) => format!(
                "{healthy} of {enabled} {members} healthy{waits}; its aggregate wants {min_healthy_percent} % and {min_healthy}"
            ),
            None => format!("{healthy} of {enabled} {members} healthy{waits}"),
        }
    }

    /// Whether it is the same pool as `other` of another generation. What it goes by may be another: that only changes its
    /// ability.
    pub(super) fn is(&self, other: &Standby) -> bool {
        Arc::ptr_eq(&self.pool, &other.pool)
    }

    fn state(&self, roster: &Roster, composites: Composites<'_>) -> State {
        if let Some(when) = &self.when {
            return composites(when);
        }
        roster.aggregate().map_or_else(|| ANYBODY.state(roster.census()), |_| roster.state())
    }
}
