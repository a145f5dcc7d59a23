//! The directory where a process keeps what the next one has to know: small files, each written whole or not at all.
//!
//! It belongs to one process at a time, by a lock that the kernel takes away when the process ends, however it does.
//!
//! Not here: what is in the files (`remediate`).

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::config::{O_NONBLOCK, open_regular};

/// A larger file is none of ours.
const MAX_BYTES: u64 = 64 << 20;

/// The lock's file.
const LOCK: &str = "lock";

/// A directory that is ours.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    #[expect(dead_code, reason = "held, not looked at: the lock goes with it")]
    lock: File,
}

/// Why it cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// Another process has it.
    #[error("`state_dir` {} belongs to another running pulsegate; give each its own", .0.display())]
    Taken(PathBuf),
    /// It cannot be made, or nothing can be written there.
    #[error("`state_dir` {} cannot be used: {cause}", path.display())]
    Unusable {
        /// As configured.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

impl StateDir {
    /// Takes the directory at `path`, which is made where it is not there.
    ///
    /// # Errors
    /// It belongs to another process, or nothing can be written there.
    pub fn open(path: &Path) -> Result<StateDir, StateDirError> {
        let unusable = |cause| StateDirError::Unusable { path: path.to_owned(), cause };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let lock = ours(&path.join(LOCK), OpenOptions::new().truncate(false)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(StateDir { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(StateDirError::Taken(path.to_owned())),
            Err(TryLockError::Error(cause)) => Err(unusable(cause)),
        }
    }

    /// Why [`StateDir::open`] would refuse the directory at `path` for its lock, which may be there already.
    pub fn lock_trouble(path: &Path) -> Option<io::Error> {
        let lock = path.join(LOCK);
        let is_odd = fs::metadata(&lock).is_ok_and(|meta| !meta.is_file());
        is_odd.then(|| odd(&lock))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file `name` holds; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read, or is larger than any of ours.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        let file = match open_regular(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?.ok_or_else(|| odd(&path))?,
        };
        // Before any of it is read: a large one costs as much memory.
        let mut bytes = Vec::new();
        if file.metadata()?.len() <= MAX_BYTES {
            file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 <= MAX_BYTES {
                return Ok(Some(bytes));
            }
        }
        Err(io::Error::other(format!("{} has more than {} MiB", path.display(), MAX_BYTES >> 20)))
    }

    /// Makes `bytes` what the file `name` holds. Whatever happens, it holds that or what it held before; it is on the disk
    /// when this returns.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, part) = (self.path.join(name), self.path.join(format!("{name}.part")));
        let mut file = ours(&part, OpenOptions::new().truncate(true))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(&self.path)?.sync_all()
    }

    /// Puts the file `name` aside, for somebody to look at: as `name.damaged`.
    ///
    /// # Errors
    /// It cannot be moved.
    pub fn set_aside(&self, name: &str) -> io::Result<()> {
        fs::rename(self.path.join(name), self.path.join(format!("{name}.damaged")))
    }
}

/// Opens the file at `path` to be written, and makes it where it is not there. Does not wait for a pipe's other end.
fn ours(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Before it is opened, which a pipe would notice; and again, since another one may have come in its place.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(odd(path));
    }
    let file = options.write(true).create(true).mode(0o600).custom_flags(O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(odd(path)) }
}

fn odd(path: &Path) -> io::Error {
    io::Error::other(format!("{} is not a regular file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_belongs_to_one_at_a_time_and_is_made_where_it_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib/pulsegate");
        let first = StateDir::open(&path).unwrap();
        let second = StateDir::open(&path).unwrap_err().to_string();
        assert!(second.contains("belongs to another running pulsegate"), "{second}");
        drop(first);
        assert!(StateDir::open(&path).is_ok());
        fs::write(folder.path().join("file"), "").unwrap();
        let error = StateDir::open(&folder.path().join("file")).unwrap_err().to_string();
        assert!(error.contains("cannot be used"), "{error}");
    }

    #[test]
    fn a_pipe_in_place_of_a_file_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = |name: &str| {
            let path = folder.path().join(name);
            assert!(std::process::Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()));
            path
        };
        let lock = pipe(LOCK);
        let error = StateDir::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("lock is not a regular file"), "{error}");
        fs::remove_file(lock).unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        pipe("a");
        assert!(dir.read("a").unwrap_err().to_string().contains("is not a regular file"));
        dir.set_aside("a").unwrap();
        pipe("a.part");
        assert!(dir.write("a", b"one").unwrap_err().to_string().contains("is not a regular file"));
    }

    #[test]
    fn a_file_holds_what_was_written_last() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        assert_eq!(dir.read("a").unwrap(), None);
        dir.write("a", b"one").unwrap();
        dir.write("a", b"two").unwrap();
        assert_eq!(dir.read("a").unwrap().as_deref(), Some(&b"two"[..]));
        dir.set_aside("a").unwrap();
        let sparse = File::create(folder.path().join("b")).unwrap();
        sparse.set_len(MAX_BYTES + 1).unwrap();
        assert!(dir.read("b").unwrap_err().to_string().contains("has more than 64 MiB"));
        sparse.set_len(MAX_BYTES).unwrap();
        assert_eq!(dir.read("b").unwrap().map(|bytes| bytes.len() as u64), Some(MAX_BYTES));
        assert_eq!(
            (dir.read("a").unwrap(), fs::read(folder.path().join("a.damaged")).unwrap()),
            (None, b"two".to_vec())
        );
    }
}
