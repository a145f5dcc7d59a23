//! Files read or opened off the runtime, and not for ever: a network file system may keep its readers until it comes back.
//!
//! A thread that waits for a disk cannot be ended, only left. So that no more of them are left at each look, a file that has
//! kept one is not read again before it lets go.
//!
//! Not here: what is read (`config`, `tls`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// How long a file may take to be read.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Why a file was not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The disk does not answer.
    #[error("it takes longer than {} s", PATIENCE.as_secs())]
    Slow,
    /// A fault of ours.
    #[error("{0}")]
    Broken(String),
}

/// Those who read a file: one after the other.
#[derive(Debug, Default)]
struct Readers {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// One of them was left.
    is_stuck: AtomicBool,
}

/// What `read` finds in the file at `path`, where it comes to an end in time.
///
/// # Errors
/// It does not.
pub async fn read<T: Send + 'static>(path: &Path, read: impl FnOnce() -> T + Send + 'static) -> Result<T, Unread> {
    within(PATIENCE, path, read).await
}

async fn within<T: Send + 'static>(
    patience: Duration,
    path: &Path,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unread> {
    let (readers, until) = (readers(path), Instant::now() + patience);
    let turn = match readers.turn.clone().try_lock_owned() {
        Ok(turn) => turn,
        Err(_) if readers.is_stuck.load(Relaxed) => return Err(Unread::Slow),
        Err(_) => match timeout_at(until, readers.turn.clone().lock_owned()).await {
            Ok(turn) => turn,
            Err(_) => return Err(readers.left()),
        },
    };
    readers.is_stuck.store(false, Relaxed);
    let kept = readers.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let (_turn, _kept) = (turn, kept);
        read()
    });
    match timeout_at(until, reading).await {
        Ok(found) => found.map_err(|error| Unread::Broken(error.to_string())),
        Err(_) => Err(readers.left()),
    }
}

impl Readers {
    fn left(&self) -> Unread {
        self.is_stuck.store(true, Relaxed);
        Unread::Slow
    }
}

fn readers(path: &Path) -> Arc<Readers> {
    static ALL: LazyLock<Mutex<HashMap<PathBuf, Arc<Readers>>>> = LazyLock::new(Mutex::default);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, readers| Arc::strong_count(readers) > 1);
    all.entry(path.to_owned()).or_default().clone()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_file_that_keeps_a_reader_is_given_up_and_keeps_no_second_one() {
        let (path, other) = (Path::new("/no/such/kept"), Path::new("/no/such/other"));
        let (let_go, kept) = mpsc::channel::<()>();
        let (leaving, left) = mpsc::channel();
        let wait = move || {
            let _ = kept.recv();
            leaving.send(()).expect("waited for");
        };
        assert_eq!(within(SOON, path, wait).await, Err(Unread::Slow));
        let (sender, receiver) = mpsc::channel();
        let second = move || sender.send(()).expect("wanted");
        assert_eq!(within(PATIENCE, path, second).await, Err(Unread::Slow), "at once, or this test takes its time");
        assert!(receiver.recv().is_err(), "a second reader is kept");
        assert_eq!(within(PATIENCE, other, || 1).await, Ok(1), "others are read");
        let_go.send(()).expect("a reader");
        left.recv().expect("it ends");
        // Its turn ends a moment later.
        while within(PATIENCE, path, || 2).await != Ok(2) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn who_comes_second_waits_for_the_first() {
        let path = Path::new("/no/such/shared");
        let both = tokio::join!(within(PATIENCE, path, || 1), within(PATIENCE, path, || 2));
        assert_eq!(both, (Ok(1), Ok(2)));
        assert!(matches!(within(PATIENCE, path, || panic!("ours")).await, Err(Unread::Broken(_))));
        assert_eq!(within(PATIENCE, path, || 3).await, Ok(3));
    }
}
