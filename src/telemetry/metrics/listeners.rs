//! Counts of listeners, and of the requests that came in by them.
//!
//! A listener is known by its name: one that moves to another address in a reload, while connections to the old one go
//! on, is the same for its counts. They live for as long as anybody has that name.
//!
//! A request is counted by listener, route, pool and status. A route's counts know their pool; by listener they are a
//! list that only grows, one entry for each of the few listeners, so that a request finds its own by comparing numbers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::codes::Codes;

/// Whoever has a name now. Asked for at the start, by reloads and by scrapes.
static LISTENERS: Mutex<Vec<Weak<ListenerCounts>>> = Mutex::new(Vec::new());
static IDS: AtomicU64 = AtomicU64::new(0);

/// What is counted of one listener.
#[derive(Debug)]
pub struct ListenerCounts {
    id: u64,
    name: String,
    /// Requests that ended before they had a route.
    pub unrouted: Codes,
    /// Connections that were taken.
    pub accepted: AtomicU64,
    /// Connections over a limit, closed at once.
    pub refused: AtomicU64,
    /// Connections open now.
    pub open: AtomicUsize,
    /// Of those, the ones with a request, or that are tunnels.
    pub active: AtomicUsize,
}

impl ListenerCounts {
    /// The counts of the listener of this name.
    pub fn of(name: &str) -> Arc<ListenerCounts> {
        let mut all = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().filter_map(Weak::upgrade).find(|known| known.name == name) {
            return known;
        }
        let counts = Arc::new(ListenerCounts {
            id: IDS.fetch_add(1, Relaxed),
            name: name.to_owned(),
            unrouted: Codes::default(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
        });
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&counts));
        counts
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The listeners that are open or still have connections, by name.
pub fn listeners() -> Vec<Arc<ListenerCounts>> {
    let all = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut listeners: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    listeners.sort_by(|one, other| one.name.cmp(&other.name));
    listeners
}

/// Requests of one route, for as long as it leads to the same pool.
#[derive(Debug)]
pub struct RouteCounts {
    route: Arc<str>,
    pool: Arc<str>,
    first: OnceLock<Box<Entry>>,
}

#[derive(Debug)]
struct Entry {
    listener: u64,
    codes: Codes,
    next: OnceLock<Box<Entry>>,
}

impl RouteCounts {
    /// None so far.
    pub fn new(route: Arc<str>, pool: Arc<str>) -> RouteCounts {
        RouteCounts { route, pool, first: OnceLock::new() }
    }

    /// The route's name.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// Where it leads.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// One more request is over that came in by `listener`; `None`: its client got no answer.
    pub fn count(&self, listener: &ListenerCounts, status: Option<u16>) {
        let mut place = &self.first;
        loop {
            let begin = || Box::new(Entry { listener: listener.id, codes: Codes::default(), next: OnceLock::new() });
            let entry = place.get_or_init(begin);
            if entry.listener == listener.id {
                return entry.codes.count(status);
            }
            place = &entry.next;
        }
    }

    /// What was counted of `listener`; `None`: no request so far.
    pub fn of(&self, listener: &ListenerCounts) -> Option<&Codes> {
        let mut entry = self.first.get();
        while let Some(this) = entry {
            if this.listener == listener.id {
                return Some(&this.codes);
            }
            entry = this.next.get();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::Code;
    use super::*;

    #[test]
    fn counts_live_as_long_as_somebody_has_the_name() {
        let named = |name: &str| listeners().iter().filter(|counts| counts.name() == name).count();
        let (one, same) = (ListenerCounts::of("same name"), ListenerCounts::of("same name"));
        one.accepted.fetch_add(1, Relaxed);
        drop(one);
        assert_eq!((same.accepted.load(Relaxed), named("same name")), (1, 1));
        drop(same);
        assert_eq!(named("same name"), 0);
        assert_eq!(ListenerCounts::of("same name").accepted.load(Relaxed), 0, "another one by that name");
    }

    #[test]
    fn requests_are_told_apart_by_listener() {
        let listeners: Vec<_> = (0..5).map(|n| ListenerCounts::of(&format!("told apart {n}"))).collect();
        let route = RouteCounts::new("r".into(), "p".into());
        std::thread::scope(|scope| {
            for offset in 0..4 {
                let (route, listeners) = (&route, &listeners);
                let counted = move |n: usize| route.count(&listeners[(n + offset) % 4], Some(200 + (n % 2) as u16));
                scope.spawn(move || (0..1000).for_each(counted));
            }
        });
        for listener in &listeners[..4] {
            let total: u64 = route.of(listener).expect("counted").read().map(|(_, count)| count).sum();
            assert_eq!(total, 1000);
        }
        assert!(route.of(&listeners[4]).is_none());
        let seen: Vec<Code> = route.of(&listeners[0]).expect("counted").read().map(|(code, _)| code).collect();
        assert_eq!(seen, [Code::Status(200), Code::Status(201)]);
    }
}
