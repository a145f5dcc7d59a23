//! Tasks that must not end: one that panics is told of, counted, and started again (case C45).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinHandle};

/// Between the end of a task and its next beginning, so that one that always panics does nothing else.
const PAUSE: Duration = Duration::from_secs(1);

/// Ends the task when dropped.
struct Leash(JoinHandle<()>);

/// Runs what `begin` begins, again whenever it panics. `what` it is stands in the log.
pub fn supervised<F>(what: String, restarts: Arc<AtomicU64>, begin: impl Fn() -> F + Send + 'static) -> AbortHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    let watch = async move {
        loop {
            let mut task = Leash(tokio::spawn(begin()));
            match (&mut task.0).await {
                Err(end) if end.is_panic() => {
                    let restarts = restarts.fetch_add(1, Relaxed) + 1;
                    tracing::error!(target: "discovery", what, restarts, "what follows {what} has panicked and begins anew");
                }
                _ => return,
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::spawn(watch).abort_handle()
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_begins_anew_and_is_counted() {
        let (restarts, (sender, mut began)) = (Arc::new(AtomicU64::new(0)), tokio::sync::mpsc::channel(8));
        let task = supervised("a name".to_owned(), restarts.clone(), move || {
            let sender = sender.clone();
            async move {
                sender.send(()).await.expect("somebody listens");
                assert!(sender.capacity() == 0, "the first ones panic");
                std::future::pending::<()>().await;
            }
        });
        for n in 0..3 {
            assert_eq!(restarts.load(Relaxed), n);
            began.recv().await.expect("it begins");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        task.abort();
    }

    #[tokio::test]
    async fn who_ends_the_supervision_ends_the_task() {
        let (alive, mut ended) = tokio::sync::mpsc::channel::<()>(1);
        let (began, mut begun) = tokio::sync::mpsc::channel(1);
        let task = supervised("a name".to_owned(), Arc::default(), move || {
            let (alive, began) = (alive.clone(), began.clone());
            async move {
                let _alive = alive;
                began.send(()).await.expect("somebody listens");
                std::future::pending::<()>().await;
            }
        });
        begun.recv().await.expect("it begins");
        task.abort();
        assert_eq!(ended.recv().await, None);
    }
}
