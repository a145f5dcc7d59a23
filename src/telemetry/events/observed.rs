//! What rules that are tried would have done, in the words of what is done: marked, named for the rules, and never loud.
//!
//! Only what would be otherwise is told. A member that fails for every rule has its own event already.

use std::sync::Arc;

use super::{Event, Kind, Severity, words};
use crate::health::{Census, Change, PoolHealth, State};

/// A pool that tries rules.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// Its name.
    pub pool: &'a str,
    /// The rules that are tried, as they are written.
    pub rules: &'a [&'static str],
    /// How it would be, after the step.
    pub health: &'a PoolHealth,
    /// How it stands as a whole, before the step and after it.
    pub real: (State, State),
}

/// The events of one step of what would be, without those that were told of what is.
pub(super) fn describe(
    trial: &Trial<'_>,
    changes: &[Change],
    state_before: Option<State>,
    told: &[Arc<Event>],
) -> Vec<Event> {
    let mut events = words::describe(trial.pool, trial.health, changes);
    events.retain(|event| !told.iter().any(|other| is_alike(event, other)));
    events.extend(state_before.and_then(|before| state(trial, before)));
    events.into_iter().map(|event| mark(event, trial.rules)).collect()
}

/// The event of something that would have happened if `rules` were in force.
pub fn mark(event: Event, rules: &[&str]) -> Event {
    let message = format!("observed ({}): {}", rules.join(", "), event.message);
    Event { observed: true, level: Severity::Info, message, ..event }
}

fn is_alike(one: &Event, other: &Event) -> bool {
    // Where the pool has come to what was tried all along, it has come there once: from where does not matter.
    let is_of_pool = matches!(one.kind, Kind::Pool | Kind::Fallback | Kind::Failover);
    let key = |event: &Event| (event.kind, event.standing, event.count);
    key(one) == key(other)
        && (&one.member, &one.to) == (&other.member, &other.to)
        && (is_of_pool || one.from == other.from)
}

/// The pool as a whole would stand otherwise than before, and it has not come to the same itself.
fn state(trial: &Trial<'_>, before: State) -> Option<Event> {
    let picture = trial.health.picture();
    let state = picture.state;
    let (was, is) = trial.real;
    if is == state && was != state {
        return None;
    }
    let Census { healthy, enabled, .. } = picture.census;
    let pool = trial.pool;
    let message = format!("pool {pool} as a whole is {}: {healthy} of {enabled} are healthy", state.as_str());
    Some(Event {
        pool: Some(pool.to_owned()),
        from: Some(before.as_str().to_owned()),
        to: Some(state.as_str().to_owned()),
        in_rotation: Some(picture.in_rotation),
        total: Some(picture.total),
        mode: Some(picture.mode.as_str()),
        ..Event::new(Kind::Pool, Severity::Info, message)
    })
}
