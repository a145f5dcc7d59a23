//! How many probes are in flight at once, whatever the limit is changed to meanwhile.
//!
//! Not here: who waits for a place and why (`task`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for probes in flight.
#[derive(Debug)]
pub(super) struct Places {
    semaphore: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    /// Places that are taken and were taken away: who gives one back gives it to nobody.
    surplus: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// So many.
    pub(super) fn new(limit: usize) -> Arc<Places> {
        let limit = within(limit);
        Arc::new(Places { semaphore: Arc::new(Semaphore::new(limit)), state: Mutex::new(State { limit, surplus: 0 }) })
    }

    /// So many from now on, those that are taken included.
    pub(super) fn set(&self, limit: usize) {
        let limit = within(limit);
        let mut state = self.state();
        if limit > state.limit {
            let more = limit - state.limit;
            let kept = more.min(state.surplus);
            state.surplus -= kept;
            self.semaphore.add_permits(more - kept);
        } else {
            state.surplus += state.limit - limit;
            self.collect(&mut state);
        }
        state.limit = limit;
    }

    /// A place that is free now.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let permit = self.semaphore.clone().try_acquire_owned().ok()?;
        Some(Place { places: self.clone(), permit: Some(permit) })
    }

    /// A place as soon as there is one; who came first has it first.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Place> {
        let permit = self.semaphore.clone().acquire_owned().await.ok()?;
        Some(Place { places: self.clone(), permit: Some(permit) })
    }

    fn collect(&self, state: &mut State) {
        state.surplus -= self.semaphore.forget_permits(state.surplus);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        let Some(permit) = self.permit.take() else { return };
        if state.surplus > 0 {
            state.surplus -= 1;
            permit.forget();
            // One that was handed to somebody who left while he waited is free, and was not asked for.
            self.places.collect(&mut state);
        }
    }
}

fn within(limit: usize) -> usize {
    limit.clamp(1, Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn taken(places: &Arc<Places>) -> Vec<Place> {
        std::iter::from_fn(|| places.try_take()).collect()
    }

    #[test]
    fn the_same_limit_again_gives_nobody_a_place() {
        let places = Places::new(3);
        let first = taken(&places);
        assert_eq!(first.len(), 3);
        (0..10).for_each(|_| places.set(3));
        assert!(places.try_take().is_none());
        drop(first);
        assert_eq!(taken(&places).len(), 3);
    }

    #[test]
    fn another_limit_counts_those_in_flight() {
        // From, to, and how many more may begin at once; then those that are over end, and the limit holds.
        let rows = [(3, 5, 2), (5, 3, 0), (3, 1, 0), (4, 4, 0)];
        for (from, to, more) in rows {
            let places = Places::new(from);
            let first = taken(&places);
            places.set(to);
            let second = taken(&places);
            assert_eq!(second.len(), more, "{from} to {to}");
            drop((first, second));
            assert_eq!(taken(&places).len(), to, "{from} to {to}");
        }
    }

    #[test]
    fn a_limit_that_was_lowered_and_raised_again_is_what_it_was() {
        let places = Places::new(4);
        let mut first = taken(&places);
        places.set(1);
        drop(first.pop());
        places.set(4);
        assert_eq!(taken(&places).len(), 1);
        drop(first);
        assert_eq!(taken(&places).len(), 4);
    }

    #[tokio::test]
    async fn who_waits_gets_a_place_only_when_few_enough_are_taken() {
        let places = Places::new(2);
        let (one, other) = (places.try_take(), places.try_take());
        let mut waiting = Box::pin(places.take());
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
        places.set(1);
        drop(one);
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
        drop(other);
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_ok());
    }
}
