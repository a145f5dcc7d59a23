//! The ledger on disk: written before anything is done, so that no end of the process makes room for more.
//!
//! One that cannot be read is put aside, and another one takes its place in which everything is used up: who does not know
//! what was done does nothing (health.md §10).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::disk;
use crate::health::replacement::{Entry, Ledger, Stamp};
use crate::state_dir::StateDir;

const FILE: &str = "remediation.json";

/// The form that is written and read.
const VERSION: u32 = 1;

/// Where the ledger is kept.
#[derive(Debug, Default)]
pub struct Store(Option<Arc<StateDir>>);

#[derive(Debug, Serialize, Deserialize)]
struct File {
    version: u32,
    left: Moment,
    lost_at: Option<Moment>,
    replacements: Vec<Replacement>,
}

/// In milliseconds since 1970.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Moment {
    counted_ms: u64,
    wall_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Replacement {
    at: Moment,
    pools: Vec<String>,
}

impl Store {
    /// The file of it in a directory, and the one that is renamed to that, where they are none.
    pub fn odd_files(dir: &Path) -> Vec<PathBuf> {
        let paths = [dir.join(FILE), dir.join(format!("{FILE}.part"))];
        paths.into_iter().filter(|path| std::fs::metadata(path).is_ok_and(|meta| !meta.is_file())).collect()
    }

    /// Keeps it there, or with `None` nowhere.
    pub fn new(dir: Option<Arc<StateDir>>) -> Store {
        Store(dir)
    }

    /// The directory.
    pub fn dir(&self) -> Option<&StateDir> {
        self.0.as_deref()
    }

    /// The ledger as the process before has left it.
    pub fn load(&self, now: Duration, wall: Duration) -> Ledger {
        let Some(dir) = &self.0 else { return Ledger::new(now, wall) };
        let read = dir.read(FILE).map_err(|error| error.to_string());
        match read.and_then(|bytes| bytes.map(|bytes| read_file(&bytes)).transpose()) {
            Ok(None) => Ledger::new(now, wall),
            Ok(Some(File { left, lost_at, replacements, .. })) => {
                let entry = |Replacement { at, pools }| Entry {
                    at: Stamp::from(at),
                    pools: pools.into_iter().map(Arc::from).collect(),
                };
                let entries = replacements.into_iter().map(entry).collect();
                Ledger::resumed(now, wall, left.into(), entries, lost_at.map(Stamp::from))
            }
            Err(cause) => lost(dir, &cause, now, wall),
        }
    }

    /// Writes it down, off the runtime.
    ///
    /// # Errors
    /// It is not, or not known to be, on the disk.
    pub async fn save(&self, ledger: &Ledger) -> Result<(), String> {
        let Some(dir) = self.0.clone() else { return Ok(()) };
        let bytes = text(ledger);
        let path = dir.path().join(FILE);
        match disk::read(&path, move || dir.write(FILE, &bytes)).await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(unread) => Err(unread.to_string()),
        }
    }
}

/// It is not to be overlooked, nor to be got round by another start.
fn lost(dir: &StateDir, cause: &str, now: Duration, wall: Duration) -> Ledger {
    let ledger = Ledger::lost(now, wall);
    let kept = dir.set_aside(FILE).and_then(|()| dir.write(FILE, &text(&ledger)));
    let (path, error) = (dir.path().display(), kept.err().map(|error| error.to_string()));
    tracing::error!(
        target: "remediate", cause, error,
        "{path}/{FILE} cannot be read, so nobody is replaced until 24 hours are over; it is kept as {FILE}.damaged. To \
         begin anew before, end pulsegate and remove {FILE}"
    );
    ledger
}

fn read_file(bytes: &[u8]) -> Result<File, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match file.version {
        VERSION => Ok(file),
        other => Err(format!("it is of version {other}, this release knows {VERSION}")),
    }
}

fn text(ledger: &Ledger) -> Vec<u8> {
    let replacement = |entry: &Entry| Replacement {
        at: entry.at.into(),
        pools: entry.pools.iter().map(|pool| pool.to_string()).collect(),
    };
    let file = File {
        version: VERSION,
        left: ledger.now().into(),
        lost_at: ledger.lost_at().map(Moment::from),
        replacements: ledger.entries().iter().map(replacement).collect(),
    };
    serde_json::to_vec_pretty(&file).unwrap_or_default()
}

impl From<Stamp> for Moment {
    fn from(stamp: Stamp) -> Moment {
        Moment { counted_ms: stamp.counted.as_millis() as u64, wall_ms: stamp.wall.as_millis() as u64 }
    }
}

impl From<Moment> for Stamp {
    fn from(moment: Moment) -> Stamp {
        Stamp { counted: Duration::from_millis(moment.counted_ms), wall: Duration::from_millis(moment.wall_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::replacement::Limit;

    const NOON: Duration = Duration::from_secs(1_800_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn store(path: &std::path::Path) -> Store {
        Store::new(Some(Arc::new(StateDir::open(path).unwrap())))
    }

    #[tokio::test]
    async fn the_next_process_goes_on_where_this_one_ended() {
        let folder = tempfile::tempdir().unwrap();
        let before = store(folder.path());
        let mut ledger = before.load(Duration::ZERO, NOON);
        ledger.enter(vec!["web".into(), "api".into()]);
        before.save(&ledger).await.unwrap();
        drop(before);
        let after = store(folder.path()).load(HOUR * 9, NOON + HOUR / 2);
        let free_in = |pool| after.free_in(Limit::Hour, pool, 1);
        assert_eq!(
            [free_in("web"), free_in("api"), free_in("old")],
            [Some(HOUR / 2), Some(HOUR / 2), Some(Duration::ZERO)]
        );
        assert_eq!(Store::default().save(&ledger).await, Ok(()), "nowhere is always there");
    }

    #[test]
    fn one_that_cannot_be_read_counts_as_used_up_over_starts_too() {
        for damaged in [
            "",
            "{",
            "{\"version\":1}",
            "{\"version\":2,\"left\":{\"counted_ms\":0,\"wall_ms\":0},\"lost_at\":null,\"replacements\":[]}",
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(FILE), damaged).unwrap();
            for hours in [0, 1] {
                let ledger = store(folder.path()).load(Duration::ZERO, NOON + HOUR * hours);
                let left = ledger.free_in(Limit::Day, "web", 3);
                assert_eq!(left, Some(HOUR * (24 - hours)), "{damaged:?}, {hours} h later");
            }
            assert_eq!(std::fs::read_to_string(folder.path().join("remediation.json.damaged")).unwrap(), damaged);
        }
    }
}
