//! The last call of a thread that ends: connections that ask for nothing are let go, and no others.
//!
//! Pingora has a call of its own (`http_cleanup`), which also drops a connection of which half a header has come.
//! Here each stream decides for itself, as it alone knows where its connection stands.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// One for each thread; its connections hear it.
#[derive(Debug, Default)]
pub struct LastCall {
    is_given: AtomicBool,
    given: Notify,
}

impl LastCall {
    /// From now on a connection ends when it asks for nothing.
    pub fn give(&self) {
        self.is_given.store(true, Relaxed);
        self.given.notify_waiters();
    }

    /// Whether it was given.
    pub fn is_given(&self) -> bool {
        self.is_given.load(Relaxed)
    }

    /// What wakes a connection's task when it is given.
    pub fn heard(&self) -> Notified<'_> {
        self.given.notified()
    }
}

/// Has this task woken by `heard` for as long as that lives: once is enough, since a task's waker stays the same. Where it was
/// given before, the task sees so at its next read.
pub async fn listen(mut heard: Pin<&mut Notified<'_>>) {
    poll_fn(|cx| {
        let _ = heard.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_task_that_listens_is_woken_once_it_is_given() {
        let call = Arc::new(LastCall::default());
        let heard = call.clone();
        let task = tokio::spawn(async move {
            let mut waking = pin!(heard.heard());
            listen(waking.as_mut()).await;
            // Never polled again: only the waker from before can end this.
            poll_fn(|_| if heard.is_given() { Poll::Ready(()) } else { Poll::Pending }).await;
        });
        tokio::task::yield_now().await;
        assert!(!task.is_finished() && !call.is_given());
        call.give();
        task.await.expect("it was woken");
    }
}
