//! Whether anybody uses a pool: one that is idle may be probed more rarely, and its first request wakes it (F9).
//!
//! A request only leaves a mark, and mostly finds one; whoever asks wipes it off and remembers when. So nothing on the
//! request path reads a clock or writes to memory that others read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;

/// What is known of a pool's use.
#[derive(Debug)]
pub struct Usage {
    /// Used since it was last asked.
    used: AtomicBool,
    /// When it was last found to have been used, in microseconds.
    last: AtomicU64,
    /// It was last found idle: the next request has to say so.
    dozing: AtomicBool,
    woken: Notify,
}

impl Usage {
    /// A pool that begins at `now` counts as used until then.
    pub fn new(now: Duration) -> Usage {
        Usage {
            used: AtomicBool::new(false),
            last: AtomicU64::new(now.as_micros() as u64),
            dozing: AtomicBool::new(false),
            woken: Notify::new(),
        }
    }

    /// A request came.
    pub fn mark(&self) {
        // Either this sees that the pool dozes, or whoever finds it dozing sees this mark: both orders are total.
        if !self.used.load(SeqCst) && !self.used.swap(true, SeqCst) && self.dozing.swap(false, SeqCst) {
            self.woken.notify_one();
        }
    }

    /// Whether no request has come for `after`, to within the time since it was last asked.
    pub fn is_idle(&self, now: Duration, after: Duration) -> bool {
        self.dozing.store(true, SeqCst);
        if self.used.swap(false, SeqCst) {
            self.last.fetch_max(now.as_micros() as u64, SeqCst);
        }
        let last = Duration::from_micros(self.last.load(SeqCst));
        let idle = now.saturating_sub(last) >= after;
        if !idle {
            self.dozing.store(false, SeqCst);
        }
        idle
    }

    /// Resolves when a request comes to a pool that was found idle.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(300);

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn is_woken(usage: &Usage) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(usage.woken()).poll(&mut context).is_ready()
    }

    #[test]
    fn a_pool_is_idle_when_nobody_came_for_long_enough() {
        let usage = Usage::new(s(100));
        assert!(!usage.is_idle(s(399), AFTER));
        assert!(usage.is_idle(s(400), AFTER));
        usage.mark();
        assert!(!usage.is_idle(s(430), AFTER), "used since");
        assert!(!usage.is_idle(s(729), AFTER));
        assert!(usage.is_idle(s(730), AFTER));
    }

    #[test]
    fn only_the_first_request_to_an_idle_pool_wakes_it() {
        let usage = Usage::new(s(0));
        usage.mark();
        assert!(!is_woken(&usage), "it was not idle");
        assert!(!usage.is_idle(s(1), AFTER) && usage.is_idle(s(301), AFTER));
        usage.mark();
        usage.mark();
        assert!(is_woken(&usage));
        assert!(!is_woken(&usage), "once");
    }
}
