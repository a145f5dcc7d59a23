//! What one alert still has to tell: a short queue, and whoever takes from it, one after the other, so that no end is told
//! before its beginning.
//!
//! Not here: what is told (`notice`), how a request is sent and tried again (`webhook`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use crate::snapshot::Snapshot;
use crate::webhook;

/// So much waits; one more is dropped.
pub const ROOM: usize = 100;

/// What is told, ready to be sent.
#[derive(Debug)]
pub struct Letter {
    /// Of this one alone.
    pub id: String,
    /// For the log: `fallback/pool/web firing`.
    pub about: String,
    /// What it says.
    pub text: Bytes,
}

/// What became of letters since the start.
#[derive(Debug, Default)]
pub struct Tally {
    accepted: AtomicU64,
    sent: AtomicU64,
    failed: AtomicU64,
    /// Accepted, and there was nobody to send it to by then.
    discarded: AtomicU64,
    /// There was no room.
    refused: AtomicU64,
}

/// One alert's.
#[derive(Debug)]
pub struct Outbox {
    letters: Sender<Letter>,
    tally: Arc<Tally>,
    task: JoinHandle<()>,
}

impl Tally {
    /// Taken by the other side.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Not taken, however often it was tried.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Never tried: too many waited, or the alert was taken out meanwhile.
    pub fn dropped(&self) -> u64 {
        self.refused.load(Relaxed) + self.discarded.load(Relaxed)
    }

    /// How many wait, the one included that is being tried.
    pub fn waiting(&self) -> u64 {
        let over = self.sent() + self.failed() + self.discarded.load(Relaxed);
        self.accepted.load(Relaxed).saturating_sub(over)
    }
}

impl Outbox {
    /// Of the alert called `name`, by whatever `snapshot` says of it when a letter's turn comes.
    pub fn open(name: Arc<str>, snapshot: Arc<ArcSwap<Snapshot>>, tally: Arc<Tally>) -> Outbox {
        let (letters, waiting) = channel(ROOM);
        let task = tokio::spawn(deliver(name, snapshot, waiting, tally.clone()));
        Outbox { letters, tally, task }
    }

    /// Has it sent; false: too many wait, and it is dropped.
    pub fn send(&self, letter: Letter) -> bool {
        // Before, so that nobody sees one sent that was not accepted.
        self.tally.accepted.fetch_add(1, Relaxed);
        let is_taken = self.letters.try_send(letter).is_ok();
        if !is_taken {
            self.tally.accepted.fetch_sub(1, Relaxed);
            self.tally.refused.fetch_add(1, Relaxed);
        }
        is_taken
    }

    /// Takes no more; what waits is still sent, until this returns or is given up.
    pub async fn close(self) {
        drop(self.letters);
        let _ = self.task.await;
    }
}

async fn deliver(name: Arc<str>, snapshot: Arc<ArcSwap<Snapshot>>, mut waiting: Receiver<Letter>, tally: Arc<Tally>) {
    while let Some(Letter { id, about, text }) = waiting.recv().await {
        let webhook = || {
            let snapshot = snapshot.load();
            snapshot.config.alerts.iter().find(|alert| alert.name == name).map(|alert| alert.webhook.clone())
        };
        let Some(first) = webhook() else {
            tally.discarded.fetch_add(1, Relaxed);
            continue;
        };
        let again = || webhook().ok_or_else(|| "the alert is not there any more".to_owned());
        match webhook::call(&first, &id, text, again).await {
            Ok(_) => {
                tally.sent.fetch_add(1, Relaxed);
                tracing::info!(target: "alert", name = &*name, about, "{name} is told: {about}");
            }
            Err(failed) => {
                tally.failed.fetch_add(1, Relaxed);
                let (reason, detail) = (failed.word, crate::telemetry::shown(&failed.detail));
                tracing::error!(target: "alert", name = &*name, about, reason, detail, "{name} could not be told: {about}");
            }
        }
    }
}
