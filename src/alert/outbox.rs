//! Whoever sends what one alert owes, one after the other, so that no end is told before its beginning.
//!
//! What was not taken before is tried once at its turn, so that news behind it do not wait for its retries. At the end of
//! the process everything owed has one more chance, several at once: who waits for one that hangs would miss it.
//!
//! Not here: what is owed (`owed`), what is told (`notice`), how a request is sent and tried again (`webhook`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::conditions::Key;
use super::owed::{Due, Ledger, Letter, Sent};
use crate::config::Webhook;
use crate::snapshot::Snapshot;
use crate::{clock, webhook};

/// At the end of the process so many more send.
const MORE_HANDS: usize = 7;

/// Of what is left so much is named in the log.
const NAMED: usize = 10;

/// What became of letters since the start.
#[derive(Debug, Default)]
pub struct Tally {
    sent: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

/// One alert's.
#[derive(Debug)]
pub struct Outbox {
    post: Arc<Post>,
    /// `None` once somebody waits for it to end.
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
    is_closed: watch::Sender<bool>,
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

    /// Given up: there was no room, its end was refused or taken by nobody for a day, or the alert was taken out meanwhile.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

impl Outbox {
    /// Of the alert called `name`, by whatever `snapshot` says of it when a letter's turn comes.
    pub fn open(name: Arc<str>, snapshot: Arc<ArcSwap<Snapshot>>, tally: Arc<Tally>) -> Outbox {
        let (ledger, changed, is_closed) = (Mutex::default(), Notify::new(), watch::Sender::new(false));
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

    /// How many wait, the one included that is being tried.
    pub fn waiting(&self) -> u64 {
        self.post.with(|ledger| ledger.waiting())
    }

    /// Of whom it has told that something is wrong, as far as that was taken and is not over.
    pub fn told(&self) -> BTreeSet<Key> {
        self.post.with(|ledger| ledger.told())
    }

    /// Takes no more; each of what waits, whatever for, has one more chance, until this returns or is given up.
    pub async fn close(&mut self) {
        let Some(task) = self.task.take() else { return };
        self.post.with(Ledger::hasten);
        self.post.close();
        let more = (0..MORE_HANDS).map(|_| tokio::spawn(deliver(self.post.clone())));
        join_all(more.chain([task])).await;
    }

    /// Says what was not told when the process ends.
    pub fn say_what_is_left(&self) {
        let (left, of) = self.post.with(|ledger| (ledger.waiting(), ledger.abouts()));
        if left > 0 {
            let (name, of) = (&*self.post.name, some(&of));
            tracing::warn!(
                target: "alert", name, left,
                "the end came before {left} alerts that waited could be told to {name}: {of}"
            );
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
        let (result, given_up) = {
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            (change(&mut ledger), ledger.given_up())
        };
        for one in given_up {
            self.tally.dropped.fetch_add(1, Relaxed);
            let (name, about, why) = (&*self.name, one.about, one.why);
            tracing::error!(target: "alert", name, about, "{name} is not told any more: {about}: {why}");
        }
        result
    }

    fn close(&self) {
        self.is_closed.send_replace(true);
        self.changed.notify_one();
    }

    fn webhook(&self) -> Option<Webhook> {
        let snapshot = self.snapshot.load();
        snapshot.config.alerts.iter().find(|alert| alert.name == self.name).map(|alert| alert.webhook.clone())
    }

    /// The alert is not there any more: nothing of it is owed.
    fn abandon(&self) {
        let left = self.with(Ledger::abandon);
        if !left.is_empty() {
            let (name, count) = (&*self.name, left.len());
            self.tally.dropped.fetch_add(count as u64, Relaxed);
            let of = some(&left);
            tracing::error!(
                target: "alert", name, count,
                "{name} is taken out, and is not told any more what it was still owed: {of}"
            );
        }
    }

    /// Lets a pause between two tries pass, which the end of the process cuts short.
    async fn rest(&self, pause: Duration) {
        let mut is_closed = self.is_closed.subscribe();
        if *is_closed.borrow() {
            return sleep(pause).await;
        }
        tokio::select! {
            () = sleep(pause) => {}
            _ = is_closed.wait_for(|is_closed| *is_closed) => {}
        }
    }
}

async fn deliver(post: Arc<Post>) {
    loop {
        // Before, so that one that is closed has nothing noted later.
        let is_closed = *post.is_closed.borrow();
        let (due, next_at) = post.with(|ledger| (ledger.next(clock::monotonic()), ledger.next_at()));
        let Some(due) = due else {
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
        match post.webhook() {
            Some(first) => send(&post, first, due).await,
            None => {
                post.with(|ledger| ledger.done(clock::monotonic(), &due.letter.key, NOT_TRIED));
                post.abandon();
            }
        }
    }
}

/// Nobody was asked.
const NOT_TRIED: Sent = Sent::Missed { may_be_known: false, is_for_good: false };

async fn send(post: &Post, first: Webhook, due: Due) {
    let (name, tally) = (&*post.name, &post.tally);
    let Due { letter: Letter { id, key, about, text, .. }, was_tried } = due;
    let first = if was_tried { Webhook { retries: 0, ..first } } else { first };
    let again = |pause| async move {
        post.rest(pause).await;
        post.webhook().ok_or_else(|| "the alert is not there any more".to_owned())
    };
    let sent = match webhook::call(&first, &id, text, again).await {
        Ok(_) => {
            tally.sent.fetch_add(1, Relaxed);
            tracing::info!(target: "alert", name, about, "{name} is told: {about}");
            Sent::Taken
        }
        Err(untaken) => {
            tally.failed.fetch_add(1, Relaxed);
            let (reason, detail) = (untaken.failed.word, crate::telemetry::shown(&untaken.failed.detail));
            tracing::error!(target: "alert", name, about, reason, detail, "{name} could not be told: {about}");
            Sent::Missed { may_be_known: untaken.may_be_known, is_for_good: untaken.is_for_good }
        }
    };
    post.with(|ledger| ledger.done(clock::monotonic(), &key, sent));
}

/// The first of them, and how many more there are.
fn some(all: &[String]) -> String {
    let named = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
