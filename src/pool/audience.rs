//! Whom a pool tells of its changes: people (the event log), and what in this program follows from how a pool stands.
//!
//! One for the process, handed to every pool when it is made. Not here: what follows (`composite`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Roster;
use crate::telemetry::EventLog;

/// Who is told, at the moment it happens, of everything that changes how a pool stands.
///
/// The call is part of the change: the pool's new roster is stored and its own events are announced, and the pool does
/// nothing else until it returns. So an onlooker sees every change of a pool, each once and in order, and whoever caused the
/// change (a probe's report, an operator's word, a reload) returns only when all that follows from it is in force.
///
/// The pool's lock is held meanwhile, and other pools may be calling from other threads. So an onlooker
/// - reads rosters ([`Roster::state`], [`Roster::has_healthy`], [`Pool::roster`](super::Pool::roster) of any pool) and
///   atomics, and calls nothing of a pool that locks it (`read`, `report`, `administer`, `advance`);
/// - has a short lock of its own where it must, compares with what it knew, and waits for nothing;
/// - is told nothing of pools that a reload brings or takes out: whoever adopts the next generation asks it to look again.
pub trait Onlooker: Send + Sync {
    /// The pool called `pool` stands as `roster` shows since `now`.
    fn pool_changed(&self, now: Duration, pool: &str, roster: &Roster);
}

/// All that are told.
#[derive(Default)]
pub struct Audience {
    /// Tells people.
    pub events: Arc<EventLog>,
    /// In the order in which they are told: one that goes by what another works out is behind it.
    pub onlookers: Vec<Arc<dyn Onlooker>>,
}

impl Audience {
    /// People alone.
    pub fn of(events: Arc<EventLog>) -> Audience {
        Audience { events, onlookers: Vec::new() }
    }

    /// Has everyone look at a pool that stands as `roster` shows.
    pub(super) fn look(&self, now: Duration, pool: &str, roster: &Roster) {
        self.onlookers.iter().for_each(|onlooker| onlooker.pool_changed(now, pool, roster));
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience").field("onlookers", &self.onlookers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, Weak};

    use super::super::Pool;
    use super::super::tests::{ids, ms, plan, report};
    use super::*;
    use crate::health::{Admin, Aggregate, Reason, Rules, Sample, State};

    /// Notes what it is told, and whether the pool itself shows it by then.
    #[derive(Default)]
    struct Notes {
        pool: Mutex<Weak<Pool>>,
        told: Mutex<Vec<(Duration, String, State, usize)>>,
        events: Arc<EventLog>,
    }

    impl Onlooker for Notes {
        fn pool_changed(&self, now: Duration, pool: &str, roster: &Roster) {
            let live = self.pool.lock().expect("no panic").upgrade().expect("it lives");
            assert!(std::ptr::eq(&*live.roster(), roster), "requests see it already");
            let told = (now, pool.to_owned(), roster.state(), roster.census().healthy);
            self.told.lock().expect("no panic").push(told);
            assert!(self.events.last_id() > 0, "people are told first");
        }
    }

    #[test]
    fn onlookers_are_told_of_every_change_once_and_when_it_is_in_force() {
        let notes = Arc::new(Notes::default());
        let audience = Audience { events: notes.events.clone(), onlookers: vec![notes.clone()] };
        let pool = Arc::new(Pool::new("web", ms(0), plan(4), Arc::new(audience)));
        *notes.pool.lock().unwrap() = Arc::downgrade(&pool);
        let told = || std::mem::take(&mut *notes.told.lock().unwrap());
        let ids = ids(&pool);
        assert_eq!((told(), pool.roster().state()), (vec![], State::Healthy), "nothing has changed");
        let web = |at, state, healthy| vec![(ms(at), "web".to_owned(), state, healthy)];
        report(&pool, ms(1), ids[0], Sample::fail(Reason::Status, ms(1)));
        assert_eq!(told(), web(1, State::Healthy, 3));
        report(&pool, ms(2), ids[0], Sample::fail(Reason::Status, ms(1)));
        report(&pool, ms(2), ids[1], Sample::pass(ms(1)));
        pool.advance(ms(2));
        assert_eq!(told(), [], "no verdict flipped");
        report(&pool, ms(3), ids[1], Sample::fail(Reason::Status, ms(1)));
        assert_eq!(told(), web(3, State::Unhealthy, 2));
        assert!(pool.administer(ms(4), ids[0], Admin::Draining));
        assert_eq!(told(), web(4, State::Healthy, 2), "2 of 3");
        let all = Some(Aggregate { min_healthy_percent: 100, min_healthy: 1 });
        let plan = super::super::Plan { rules: Rules { aggregate: all, ..plan(4).rules }, ..plan(4) };
        pool.reshape(ms(5), plan);
        assert_eq!(told(), web(5, State::Unhealthy, 2));
        assert!(pool.roster().has_healthy() && pool.roster().aggregate() == all);
    }
}
