//! The directory of falls: written whole or not at all, and never over its bound.
//!
//! Waits for the disk, so only the writer's thread and those who may wait come here.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::case::{Case, Summary, is_id, stamp};
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
    /// Makes the directory where there is none, notes the files of earlier runs and drops what is over the bound. It is
    /// `now`: of those files, any that bear a later time are of a clock that was ahead, and count as the oldest.
    pub(super) fn open(settings: config::Diagnostics, now: SystemTime, shared: &Shared) -> io::Result<Archive> {
        let of_directory = |error| named(&settings.path, error);
        DirBuilder::new().recursive(true).mode(0o700).create(&settings.path).map_err(of_directory)?;
        let (mut found, now) = (Vec::new(), stamp(now));
        for entry in fs::read_dir(&settings.path).map_err(of_directory)? {
            let entry = entry.map_err(of_directory)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let (id, is_whole) = match (name.strip_suffix(END), name.strip_suffix(UNDER_WAY)) {
                (Some(id), _) => (id, true),
                (None, Some(id)) => (id, false),
                (None, None) => continue,
            };
            let path = entry.path();
            let metadata = entry.metadata().map_err(|error| named(&path, error))?;
            // We make no directories: one is somebody else's, whatever its name.
            if !is_id(id) || metadata.is_dir() {
                continue;
            }
            if is_whole {
                let summary = read(&path).ok().and_then(|bytes| serde_json::from_slice::<Summary>(&bytes).ok());
                found.push((id.to_owned(), Kept { turn: 0, bytes: metadata.len(), summary }));
            } else {
                gone(&path)?;
            }
        }
        found.sort_by_cached_key(|(id, _)| (*id <= now, id.clone()));
        let in_turn = (0..).zip(found).map(|(turn, (id, kept))| (id, Kept { turn, ..kept }));
        *lock(&shared.files) = in_turn.collect();
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
        let whole = path(&self.settings.path, &case.id);
        let length = bytes.len() as u64;
        let written = write(&under_way, &bytes)
            // Only once it is written: a disk that is full costs nothing that is there.
            .and_then(|()| self.make_room(1, length, shared))
            .and_then(|()| fs::rename(&under_way, &whole).map_err(|error| named(&whole, error)));
        if written.is_err() {
            let _ = fs::remove_file(&under_way);
        }
        written?;
        let mut files = lock(&shared.files);
        let turn = files.values().map(|kept| kept.turn + 1).max().unwrap_or_default();
        files.insert(case.id.clone(), Kept { turn, bytes: length, summary: Some(case.summary()) });
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
                let oldest = kept.iter().min_by_key(|(_, kept)| kept.turn);
                oldest.filter(|_| is_over(kept.len(), sum)).map(|(id, _)| id.clone())
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
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.and_then(|mut file: File| file.write_all(bytes)).map_err(|error| named(path, error))
}

/// The error with the path that it is about.
fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn gone(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(named(path, error)),
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

    /// After all of the falls here.
    fn later() -> SystemTime {
        humantime::parse_rfc3339("2026-02-01T00:00:00Z").expect("a time")
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
        let archive = Archive::open(settings(&path, 3, 1 << 20), later(), &shared).expect("a new directory");
        (1..=5).for_each(|n| archive.put(&fall(n, "ok"), &shared).expect("written"));
        assert_eq!(names(&path), [3, 4, 5].map(|n| format!("{}.json", fall(n, "").id)));
        fs::write(path.join("notes.json"), "mine").expect("written");
        fs::write(path.join(format!("{}.json", fall(1, "").id)), "torn").expect("written");
        fs::write(path.join(format!("{}.json.tmp", fall(9, "").id)), "half").expect("written");
        let shared = Shared::default();
        let archive = Archive::open(settings(&path, 3, 1 << 20), later(), &shared).expect("the same directory");
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
        let archive = Archive::open(settings(folder.path(), 100, 10_000), later(), &shared).expect("a directory");
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
        let archive = Archive::open(settings(folder.path(), 1, 1 << 20), later(), &shared).expect("a directory");
        archive.put(&fall(1, "ok"), &shared).expect("written");
        // A directory in its place: it cannot be written, whoever runs this.
        fs::create_dir(folder.path().join(format!("{}.json.tmp", fall(2, "").id))).expect("made");
        let refused = archive.put(&fall(2, "ok"), &shared).expect_err("refused").to_string();
        assert!(refused.contains(&format!("{}.json.tmp: ", fall(2, "").id)), "{refused}");
        assert!(path(folder.path(), &fall(1, "").id).exists());
        archive.put(&fall(3, "ok"), &shared).expect("the next is");
    }

    #[test]
    fn a_directory_is_somebody_else_s_whatever_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        for end in [END, UNDER_WAY] {
            fs::create_dir(folder.path().join(format!("{}{end}", fall(1, "").id))).expect("made");
        }
        let shared = Shared::default();
        let archive = Archive::open(settings(folder.path(), 1, 1 << 20), later(), &shared).expect("a directory");
        (2..=4).for_each(|n| archive.put(&fall(n, "ok"), &shared).expect("written"));
        assert_eq!(names(folder.path()).len(), 3, "{:?}", names(folder.path()));
    }

    #[test]
    fn what_a_clock_that_was_ahead_has_dated_is_the_first_to_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let ahead = |n: u64| {
            let mut case = fall(n, "ok");
            case.id = case.id.replacen("2026", "2027", 1);
            case
        };
        let listed = |shared: Shared| -> Vec<String> {
            let shared = std::sync::Arc::new(shared);
            let diagnostics = super::super::Diagnostics { shared, ..Default::default() };
            diagnostics.list().into_iter().map(|(id, _)| id).collect()
        };
        let shared = Shared::default();
        let archive = Archive::open(settings(folder.path(), 4, 1 << 20), later(), &shared).expect("a directory");
        (1..=3).for_each(|n| archive.put(&ahead(n), &shared).expect("written"));
        (4..=5).for_each(|n| archive.put(&fall(n, "ok"), &shared).expect("written"));
        let kept = [fall(5, ""), fall(4, ""), ahead(3), ahead(2)].map(|case| case.id);
        assert_eq!(listed(shared), kept, "within one run");
        let shared = Shared::default();
        let archive = Archive::open(settings(folder.path(), 4, 1 << 20), later(), &shared).expect("the same");
        (6..=7).for_each(|n| archive.put(&fall(n, "ok"), &shared).expect("written"));
        assert_eq!(listed(shared), [7, 6, 5, 4].map(|n| fall(n, "").id), "and over a restart");
    }
}
