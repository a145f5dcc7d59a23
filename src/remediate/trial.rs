//! Remediations that only observe: what they would have done is decided by a ward of its own, and told.
//!
//! Nothing is sent, nothing written down, and no limit of what is done is used. The ward begins with what was replaced by
//! then, and decides for all pools, as if everybody meant it: what others replace counts under the limit of all. A restart
//! forgets it.

use std::time::Duration;

use super::desk::{By, Desk};
use super::{Pauses, Remediator, Subject, judges, rule, wall, words};
use crate::clock;
use crate::health::replacement::{Patient, Turn, Ward};
use crate::pool;
use crate::snapshot::{Served, Snapshot};
use crate::telemetry::mark;

/// What events are marked with.
const RULE: &[&str] = &["remediation"];

impl Remediator {
    /// Looks at everyone in whose pool the remediation only observes, tells what would be done, and says when to look again.
    pub(super) async fn look_on(&self, snapshot: &Snapshot) -> Option<Duration> {
        let (now, trying) = (clock::monotonic(), snapshot.pools.values().any(|served| observes(served)));
        let (turns, next) = {
            let mut desk = self.desk();
            if !trying {
                desk.trial = None;
                return None;
            }
            let patients = patients(snapshot, &mut desk);
            let mut ward = desk.trial.take().unwrap_or_else(|| Ward::new(desk.ward.ledger().clone()));
            let (turns, next) = ward.look(now, wall(), &patients, snapshot.config.max_global);
            let turns: Vec<(Turn, String)> = turns.into_iter().map(|turn| with_used(turn, &ward, snapshot)).collect();
            desk.trial = Some(ward);
            (turns, next)
        };
        let (mut crowd, mut pauses) = (words::Crowd::default(), Pauses::default());
        for (turn, used) in &turns {
            let who = turn.who();
            let Some(served) = snapshot.pools.get(&*who.0).filter(|served| observes(served)) else { continue };
            let is_start = matches!(turn, Turn::Start(_));
            if !is_start && !crowd.names(turn) {
                continue;
            }
            let Some(subject) = Subject::of(served, who.1) else { continue };
            let event = match turn {
                Turn::Start(order) => words::started(&subject, order, By::Rule, used, now),
                turn => words::turn(&subject, turn),
            };
            self.events.publish(mark(event, RULE));
            pauses.told().await;
        }
        crowd.rest().for_each(|event| drop(self.events.publish(mark(event, RULE))));
        next
    }
}

/// How much of its pool's limits is used where one begins.
fn with_used(turn: Turn, ward: &Ward, snapshot: &Snapshot) -> (Turn, String) {
    let pool = &turn.who().0;
    let rule = snapshot.pools.get(&**pool).and_then(|served| served.config.observed_remediation.as_ref());
    let used = match (&turn, rule) {
        (Turn::Start(_), Some(rule)) => words::used(ward, pool, rule),
        _ => String::new(),
    };
    (turn, used)
}

fn observes(served: &Served) -> bool {
    served.config.observed_remediation.is_some()
}

/// Every member of a pool with probes, as if no remediation only observed. Where the probe does so too, its samples count.
fn patients(snapshot: &Snapshot, desk: &mut Desk) -> Vec<Patient> {
    let (mut patients, stretch) = (Vec::new(), desk.stretch(snapshot));
    for served in snapshot.pools.values() {
        let config = &served.config;
        if !judges(served) && !observes(served) {
            continue;
        }
        let rule = rule(served, config.remediation.as_ref().or(config.observed_remediation.as_ref()), stretch);
        served.live.read_both(|health, shadow, members| {
            let shown = (0..members.len()).map(|index| pool::shown(health, shadow, index));
            patients.extend(shown.filter_map(|member| Patient::of(served.live.name(), member, rule)));
        });
    }
    patients.iter_mut().for_each(|patient| patient.is_in_hand |= desk.is_running(&patient.who));
    patients
}
