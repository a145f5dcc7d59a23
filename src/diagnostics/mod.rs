//! What was seen of a member that became unhealthy: kept as a file each, in a bounded directory, for whoever is paged.
//!
//! A fall is handed to a thread of its own through a bounded queue, so that a slow disk, a full one or thousands of falls at
//! once cost files, which are counted, and never a probe. The bound holds over restarts: files of earlier runs are under it
//! too, and the oldest go first. The oldest is what was written first, and not what bears the earliest time: a clock that was
//! ahead for a while must not cost the falls that come after it.
//!
//! Not here: what a probe records (`probe`), when a member is unhealthy (`health`), who may read it (`admin`).

mod archive;
mod case;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub use case::{Case, Shown, Summary};

use crate::config;
use crate::disk;
use crate::health::Phases;
use crate::probe::Exchange;
use crate::telemetry::Event;

/// Falls that wait to be written; one too many is not.
const QUEUE: usize = 256;

/// Keeps what was seen of falls; one for the process.
#[derive(Debug, Default)]
pub struct Diagnostics {
    shared: Arc<Shared>,
    /// Of the writer, from the first time that anything is to be kept.
    orders: OnceLock<SyncSender<writer::Order>>,
}

/// What became of falls so far.
#[derive(Debug, Default)]
pub struct Counters {
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// What the writer shares with those who ask.
#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Option<config::Diagnostics>>,
    /// The files there are, by the ids that they are called by.
    files: Mutex<BTreeMap<String, Kept>>,
    queued: AtomicUsize,
    counters: Counters,
}

/// A file that is there.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Whatever is written later has a higher one.
    turn: u64,
    /// Its length.
    pub bytes: u64,
    /// What it is about; `None` where it cannot be read.
    pub summary: Option<Summary>,
}

impl Diagnostics {
    /// Keeps falls like this from now on; `None`: none. What is there stays.
    pub fn set(&self, wanted: Option<config::Diagnostics>) {
        let is_wanted = wanted.is_some();
        *lock(&self.shared.wanted) = wanted;
        if is_wanted || self.orders.get().is_some() {
            // A queue that is full is looked at soon, and the wish with it.
            let _ = self.orders().try_send(writer::Order::Look);
        }
    }

    /// Whether anything is kept, and where.
    pub fn wanted(&self) -> Option<config::Diagnostics> {
        lock(&self.shared.wanted).clone()
    }

    /// Keeps what is known of a fall: its event, known by `cursor`, what the probe that decided took, and what passed. Never
    /// waits.
    pub fn keep(
        &self,
        cursor: &str,
        event: &Event,
        (status, phases): (Option<u16>, Phases),
        exchange: impl FnOnce() -> Exchange,
    ) {
        if lock(&self.shared.wanted).is_none() {
            return;
        }
        let counters = &self.shared.counters;
        if self.shared.queued.fetch_add(1, Relaxed) >= QUEUE {
            self.shared.queued.fetch_sub(1, Relaxed);
            counters.dropped.fetch_add(1, Relaxed);
            return;
        }
        let case = Case::new(cursor, event, (status, phases), &exchange());
        if self.orders().try_send(writer::Order::Write(Box::new(case))).is_err() {
            self.shared.queued.fetch_sub(1, Relaxed);
            counters.dropped.fetch_add(1, Relaxed);
        }
    }

    /// What is kept; what was written last comes first.
    pub fn list(&self) -> Vec<(String, Kept)> {
        let files = lock(&self.shared.files).clone();
        let mut files: Vec<(String, Kept)> = files.into_iter().collect();
        files.sort_unstable_by_key(|(_, kept)| std::cmp::Reverse(kept.turn));
        files
    }

    /// The file of this id, as it is; `None`: there is none.
    ///
    /// # Errors
    /// Why it cannot be read now.
    pub async fn read(&self, id: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(path) = self.path_of(id) else { return Ok(None) };
        let owned = path.clone();
        let read = disk::read(&path, move || archive::read(&owned)).await.map_err(|unread| unread.to_string())?;
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            // Somebody else has removed it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                lock(&self.shared.files).remove(id);
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// What became of falls so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Only what is known to be there has a path: nobody is led out of the directory.
    fn path_of(&self, id: &str) -> Option<PathBuf> {
        let wanted = self.wanted()?;
        lock(&self.shared.files).contains_key(id).then(|| archive::path(&wanted.path, id))
    }

    fn orders(&self) -> &SyncSender<writer::Order> {
        self.orders.get_or_init(|| writer::start(&self.shared))
    }
}

impl Counters {
    /// Files written.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Falls of which nothing was kept, since too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Falls of which nothing was kept, since it could not be written.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
