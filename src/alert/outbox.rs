//! Whoever sends what one alert owes, one after the other, so that no end is told before its beginning.
//!
//! Not here: what is owed (`owed`), what is told (`notice`), how a request is sent and tried again (`webhook`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::owed::{Ledger, Letter, Sent};
use crate::config::Webhook;
use crate::snapshot::Snapshot;
use crate::{clock, webhook};

/// What became of letters since the start.
#[derive(Debug, Default)]
pub struct Tally {
    waiting: AtomicU64,
    sent: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

/// One alert's.
#[derive(Debug)]
pub struct Outbox {
    post: Arc<Post>,
    task: Option<JoinHandle<()>>,
}

/// What the outbox and who sends have in common.
#[derive(Debug)]
struct Post {
    name: Arc<str>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    ledger: Mutex<Ledger>,
    tally: Arc<Tally>,
    changed: Notify,
    is_closed: AtomicBool,
}

impl Tally {
    /// Taken by the other side.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Not taken after all its retries, each time.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Given up: there was no room, nobody has taken it for a day, or the alert was taken out meanwhile.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// How many wait, the one included that is being tried.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }
}

impl Outbox {
    /// Of the alert called `name`, by whatever `snapshot` says of it when a letter's turn comes.
    pub fn open(name: Arc<str>, snapshot: Arc<ArcSwap<Snapshot>>, tally: Arc<Tally>) -> Outbox {
        let (ledger, changed, is_closed) = (Mutex::default(), Notify::new(), AtomicBool::new(false));
        let post = Arc::new(Post { name, snapshot, ledger, tally, changed, is_closed });
        let task = tokio::spawn(deliver(post.clone()));
        Outbox { post, task: Some(task) }
    }

    /// Has it sent where it is owed; false: there is no room, and it is dropped.
    pub fn send(&self, letter: Letter) -> bool {
        let is_noted = self.post.with(|ledger| ledger.note(clock::monotonic(), letter));
        if !is_noted {
            self.post.tally.dropped.fetch_add(1, Relaxed);
        }
        self.post.changed.notify_one();
        is_noted
    }

    /// Tries again at once what was not taken.
    pub fn hasten(&self) {
        self.post.with(Ledger::hasten);
        self.post.changed.notify_one();
    }

    /// Takes no more; what waits is still sent, until this returns or is given up.
    pub async fn close(mut self) {
        self.post.close();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // Taken out: what is owed is not sent, even if one of the same name comes before it is noticed.
        if self.task.is_some() {
            self.post.abandon();
        }
        self.post.close();
    }
}

impl Post {
    fn with<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut ledger);
        self.tally.waiting.store(ledger.waiting(), Relaxed);
        result
    }

    fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.changed.notify_one();
    }

    fn webhook(&self) -> Option<Webhook> {
        let snapshot = self.snapshot.load();
        snapshot.config.alerts.iter().find(|alert| alert.name == self.name).map(|alert| alert.webhook.clone())
    }

    /// The alert is not there any more: nothing of it is owed.
    fn abandon(&self) {
        let left = self.with(|ledger| std::mem::take(ledger).waiting());
        self.tally.dropped.fetch_add(left, Relaxed);
    }
}

async fn deliver(post: Arc<Post>) {
    loop {
        // Before, so that one that is closed has nothing noted later.
        let is_closed = post.is_closed.load(Relaxed);
        let (letter, next_at) = post.with(|ledger| (ledger.next(clock::monotonic()), ledger.next_at()));
        let Some(letter) = letter else {
            if is_closed {
                return;
            }
            let later = async {
                match next_at {
                    Some(at) => sleep(at.saturating_sub(clock::monotonic())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = post.changed.notified() => {}
                () = later => {}
            }
            continue;
        };
        let Some(first) = post.webhook() else {
            post.abandon();
            continue;
        };
        send(&post, &first, letter).await;
    }
}

async fn send(post: &Post, webhook: &Webhook, letter: Letter) {
    let (name, tally) = (&*post.name, &post.tally);
    let Letter { id, key, about, text, .. } = letter;
    let again = || post.webhook().ok_or_else(|| "the alert is not there any more".to_owned());
    let sent = match webhook::call(webhook, &id, text, again).await {
        Ok(_) => {
            tally.sent.fetch_add(1, Relaxed);
            tracing::info!(target: "alert", name, about, "{name} is told: {about}");
            Sent::Taken
        }
        Err(failed) => {
            tally.failed.fetch_add(1, Relaxed);
            let (reason, detail) = (failed.word, crate::telemetry::shown(&failed.detail));
            tracing::error!(target: "alert", name, about, reason, detail, "{name} could not be told: {about}");
            if matches!(reason, "timeout" | "protocol") { Sent::Unclear } else { Sent::Refused }
        }
    };
    let given_up = post.with(|ledger| ledger.done(clock::monotonic(), &key, sent));
    if given_up > 0 {
        tally.dropped.fetch_add(given_up, Relaxed);
        tracing::error!(target: "alert", name, about, "{name} is not told any more: {about}");
    }
}
