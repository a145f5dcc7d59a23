//! A timer for deadlines that mostly move later.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::clock;

/// A timer that is seldom touched: deadlines mostly move later, and one that rings early is just wound again.
#[derive(Default)]
pub struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    rings_at: Duration,
}

impl Alarm {
    /// Ready once `deadline` (monotonic) has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: Duration) -> Poll<()> {
        // Before the clock is read, which costs more: what has not rung by then need not be looked at again.
        if let Some(sleep) = self.sleep.as_mut().filter(|_| self.rings_at <= deadline) {
            ready!(sleep.as_mut().poll(cx));
        }
        loop {
            let now = clock::monotonic();
            if deadline <= now {
                return Poll::Ready(());
            }
            self.wind(now, deadline);
            let Some(sleep) = self.sleep.as_mut() else { return Poll::Pending };
            ready!(sleep.as_mut().poll(cx));
        }
    }

    fn wind(&mut self, now: Duration, deadline: Duration) {
        // Rounded up to the timer's own millisecond, or it would ring just before the deadline and be wound again.
        let at = Instant::now() + deadline.saturating_sub(now) + Duration::from_millis(1);
        self.rings_at = deadline;
        match self.sleep.as_mut() {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(sleep_until(at))),
        }
    }
}
