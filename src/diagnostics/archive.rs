//! The directory of falls: written whole or not at all, and never over its bound.
//!
//! Waits for the disk, so only the writer's thread and those who may wait come here.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::case::{Case, Summary, is_id};
use super::{Kept, Shared, lock};
use crate::config::{self, open_regular};

/// A larger file is not one of ours, whatever its name.
const MAX_BYTES: u64 = 1 << 20;
const END: &str = ".json";
/// Of a file that is not whole yet.
const UNDER_WAY: &str = ".json.tmp";

/// A directory that was looked through.
#[derive(Debug)]
pub(super) struct Archive {
    settings: config::Diagnostics,
}

impl Archive {
    /// Makes the directory where there is none, notes the files of earlier runs and drops what is over the bound.
    pub(super) fn open(settings: config::Diagnostics, shared: &Shared) -> io::Result<Archive> {
        DirBuilder::new().recursive(true).mode(0o700).create(&settings.path)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&settings.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.strip_suffix(UNDER_WAY).is_some_and(is_id) {
                gone(&entry.path())?;
            } else if let Some(id) = name.strip_suffix(END).filter(|id| is_id(id)) {
                let summary = read(&entry.path()).ok().and_then(|bytes| serde_json::from_slice::<Summary>(&bytes).ok());
                found.push((id.to_owned(), Kept { bytes: entry.metadata()?.len(), summary }));
            }
        }
        *lock(&shared.files) = found.into_iter().collect();
        let archive = Archive { settings };
        archive.make_room(0, 0, shared)?;
        Ok(archive)
    }

    /// What it was opened with.
    pub(super) fn settings(&self) -> &config::Diagnostics {
        &self.settings
    }

    /// Writes a case, and drops the oldest ones for it.
    pub(super) fn put(&self, case: &Case, shared: &Shared) -> io::Result<()> {
        let bytes = serde_json::to_vec(case).map_err(io::Error::other)?;
        let under_way = self.settings.path.join(format!("{}{UNDER_WAY}", case.id));
        let length = bytes.len() as u64;
        let written = write(&under_way, &bytes)
            // Only once it is written: a disk that is full costs nothing that is there.
            .and_then(|()| self.make_room(1, length, shared))
            .and_then(|()| fs::rename(&under_way, path(&self.settings.path, &case.id)));
        if written.is_err() {
            let _ = fs::remove_file(&under_way);
        }
        written?;
        lock(&shared.files).insert(case.id.clone(), Kept { bytes: length, summary: Some(case.summary()) });
        Ok(())
    }

    /// Drops the oldest until so many more files and bytes are within the bound.
    fn make_room(&self, files: usize, bytes: u64, shared: &Shared) -> io::Result<()> {
        let is_over = |count: usize, sum: u64| {
            count + files > self.settings.max_files || sum.saturating_add(bytes) > self.settings.max_bytes
        };
        loop {
            let oldest = {
                let kept = lock(&shared.files);
                let sum = kept.values().map(|kept| kept.bytes).sum();
                kept.first_key_value().filter(|_| is_over(kept.len(), sum)).map(|(id, _)| id.clone())
            };
            let Some(oldest) = oldest else { return Ok(()) };
            gone(&path(&self.settings.path, &oldest))?;
            lock(&shared.files).remove(&oldest);
        }
    }
}

/// Where the file of this id is.
pub(super) fn path(directory: &Path, id: &str) -> PathBuf {
    directory.join(format!("{id}{END}"))
}

/// What a file holds, unless it is too large to be one of ours.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?.ok_or_else(|| io::Error::other("not a regular file"))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES { Err(io::Error::other("too large")) } else { Ok(bytes) }
}

/// Answers may hold what is not for everyone.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    gone(path)?;
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::tests::fall;
    use super::*;

    fn settings(path: &Path, max_files: usize, max_bytes: u64) -> config::Diagnostics {
        config::Diagnostics { path: path.to_owned(), max_files, max_bytes }
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_are_dropped_also_those_of_earlier_runs_and_nobody_else_s() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b");
        let shared = Shared::default();
        let archive = Archive::open(settings(&path, 3, 1 << 20), &shared).expect("a new directory");
        (1..=5).for_each(|n| archive.put(&fall(n, "ok"), &shared).expect("written"));
        assert_eq!(names(&path), [3, 4, 5].map(|n| format!("{}.json", fall(n, "").id)));
        fs::write(path.join("notes.json"), "mine").expect("written");
        fs::write(path.join(format!("{}.json", fall(1, "").id)), "torn").expect("written");
        fs::write(path.join(format!("{}.json.tmp", fall(9, "").id)), "half").expect("written");
        let shared = Shared::default();
        let archive = Archive::open(settings(&path, 3, 1 << 20), &shared).expect("the same directory");
        let listed: Vec<_> = lock(&shared.files).values().map(|kept| kept.summary.clone()).collect();
        assert_eq!(listed, [3, 4, 5].map(|n| Some(fall(n, "ok").summary())), "the torn one was the oldest");
        archive.put(&fall(6, "ok"), &shared).expect("written");
        let expected = [4, 5, 6].map(|n| format!("{}.json", fall(n, "").id));
        assert_eq!(names(&path), [&expected[..], &["notes.json".to_owned()]].concat());
    }

    #[test]
    fn bytes_are_bounded_as_well() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = Shared::default();
        let archive = Archive::open(settings(folder.path(), 100, 10_000), &shared).expect("a directory");
        let large = "x".repeat(3_000);
        for n in 1..=9 {
            archive.put(&fall(n, &large), &shared).expect("written");
            let sum: u64 = lock(&shared.files).values().map(|kept| kept.bytes).sum();
            assert!(sum <= 10_000, "{sum}");
        }
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn what_cannot_be_written_leaves_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = Shared::default();
        let archive = Archive::open(settings(folder.path(), 1, 1 << 20), &shared).expect("a directory");
        archive.put(&fall(1, "ok"), &shared).expect("written");
        // A directory in its place: it cannot be written, whoever runs this.
        fs::create_dir(folder.path().join(format!("{}.json.tmp", fall(2, "").id))).expect("made");
        archive.put(&fall(2, "ok"), &shared).expect_err("refused");
        assert!(path(folder.path(), &fall(1, "").id).exists());
        archive.put(&fall(3, "ok"), &shared).expect("the next is");
    }
}
