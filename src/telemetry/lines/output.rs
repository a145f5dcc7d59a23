//! Writing batches of lines to a file, and what happens when that fails.
//!
//! An error (disk full, reader gone) costs the rest of its batch, which is counted; the next batch tries again, so
//! writing resumes by itself. Half a line that made it to the disk is owed its other half, which goes first then: no
//! line is ever torn in the middle of a file. A FIFO without a reader is waited for in small steps, so that a reopen or
//! the end can come through. Trouble is told once per episode.

use std::borrow::Cow;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Interrupt, KEPT_CAPACITY, Shared, is_time_to_tell};

/// Between two tries at a reader that takes nothing: from this, doubling, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// Tries at a stuck reader once the queue is closing: three seconds of them.
const LAST_TRIES: u32 = 50;

/// `O_NONBLOCK`, which std does not name: asm-generic of Linux, and the BSDs.
const O_NONBLOCK: i32 = if cfg!(target_os = "linux") { 0o4000 } else { 0x4 };

/// Where lines go.
#[derive(Debug)]
pub(in super::super) struct Output {
    file: File,
    /// `None`: it cannot be opened again.
    path: Option<PathBuf>,
    /// Of the thread that writes here.
    name: &'static str,
    told: Told,
}

/// Who hears of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Told {
    /// The program's own log.
    Log,
    /// Nobody: this is the program's own log.
    Nobody,
}

impl Output {
    /// Appends to the file at `path`; the error names the path.
    pub(in super::super) fn file(name: &'static str, path: PathBuf) -> io::Result<Output> {
        let file = open(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Output { file, path: Some(path), name, told: Told::Log })
    }

    /// Writes to a descriptor that is open already, standard output say, without std's buffer in between.
    pub(in super::super) fn descriptor(name: &'static str, fd: impl AsFd, told: Told) -> io::Result<Output> {
        Ok(Output { file: File::from(fd.as_fd().try_clone_to_owned()?), path: None, name, told })
    }

    pub(super) fn told(&self) -> Told {
        self.told
    }
}

/// The thread's side of a queue.
pub(super) struct Writer {
    output: Output,
    shared: Arc<Shared>,
    owed: Owed,
    /// A reopen that the present batch has not reached yet.
    reopen_due: bool,
    /// Tries left at a stuck reader once the queue is closing.
    last_tries: u32,
    trouble: Option<Trouble>,
    /// When trouble was last told.
    told_at: Option<Duration>,
}

/// The second half of a line whose first half is written; empty: none is.
#[derive(Default)]
struct Owed {
    bytes: Vec<u8>,
    /// The file's length when the first half was its end.
    length: u64,
}

/// An episode of failing writes.
struct Trouble {
    /// Lines dropped since the start when it began.
    dropped_before: u64,
    told: bool,
}

impl Writer {
    pub(super) fn new(output: Output, shared: Arc<Shared>) -> Writer {
        Writer {
            output,
            shared,
            owed: Owed::default(),
            reopen_due: false,
            last_tries: LAST_TRIES,
            trouble: None,
            told_at: None,
        }
    }

    pub(super) fn thread_name(&self) -> String {
        self.output.name.to_owned()
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut batch = Vec::new();
        while let Some(turn) = self.shared.take(&mut batch) {
            match turn.reopen_at {
                Some(at) => {
                    self.reopen_due = true;
                    self.deliver(&batch[..at]);
                    if mem::take(&mut self.reopen_due) {
                        self.reopen();
                    }
                    self.deliver(&batch[at..]);
                }
                None => self.deliver(&batch),
            }
            batch.clear();
            batch.shrink_to(KEPT_CAPACITY);
            self.shared.settle(turn.accepted);
        }
        self.forgive();
        self.shared.end();
    }

    /// Writes whole lines, or accounts for them.
    fn deliver(&mut self, lines: &[u8]) {
        if !self.owed.bytes.is_empty() && self.length() < self.owed.length {
            // Somebody made room by truncating the log, and the first half went with it.
            self.forgive();
        }
        let owed = mem::take(&mut self.owed).bytes;
        let bytes = if owed.is_empty() { Cow::Borrowed(lines) } else { Cow::Owned([owed.as_slice(), lines].concat()) };
        let mut at = 0;
        let mut pause = FIRST_PAUSE;
        while at < bytes.len() {
            match self.output.file.write(&bytes[at..]) {
                Ok(0) => return self.fail(&bytes, at, owed.len(), &ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written;
                    pause = FIRST_PAUSE;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.wait(pause) {
                    Stuck::Waited => pause = (pause * 2).min(LONGEST_PAUSE),
                    Stuck::Elsewhere => at = self.resume_at(&bytes, at, owed.len()),
                    Stuck::GaveUp => return self.shared.drop_lines(count_lines(&bytes[at..])),
                },
                Err(error) => return self.fail(&bytes, at, owed.len(), &error),
            }
        }
        if !bytes.is_empty() {
            self.recovered();
        }
    }

    /// Gives up what is left of a batch, but for the rest of a line that is begun.
    fn fail(&mut self, bytes: &[u8], at: usize, owed: usize, error: &io::Error) {
        let dropped_before = self.shared.dropped_now();
        let (half, whole) = split(bytes, at, owed);
        self.owed = Owed { bytes: half.to_vec(), length: self.length() };
        self.shared.drop_lines(count_lines(whole));
        if self.trouble.is_none() {
            let told = self.output.told == Told::Log && is_time_to_tell(&mut self.told_at);
            if told {
                tracing::error!(target: "access_log", "lines are dropped and counted: cannot write: {error}");
            }
            self.trouble = Some(Trouble { dropped_before, told });
        }
    }

    fn recovered(&mut self) {
        if let Some(trouble) = self.trouble.take()
            && trouble.told
        {
            let lost = self.shared.dropped_now() - trouble.dropped_before;
            tracing::info!(target: "access_log", "lines are written again, {lost} were lost");
        }
    }

    /// The reader takes nothing at present.
    fn wait(&mut self, pause: Duration) -> Stuck {
        let interrupt = if self.reopen_due { Interrupt::Reopen } else { self.shared.pause(pause) };
        match interrupt {
            Interrupt::Reopen => {
                self.reopen_due = false;
                if self.reopen() { Stuck::Elsewhere } else { Stuck::Waited }
            }
            Interrupt::Closing => match self.last_tries.checked_sub(1) {
                Some(left) => {
                    self.last_tries = left;
                    Stuck::Waited
                }
                None => Stuck::GaveUp,
            },
            Interrupt::None => Stuck::Waited,
        }
    }

    /// Where to go on in another file: the line that was begun in the old one is written whole, unless its beginning is
    /// gone with the batch before.
    fn resume_at(&self, bytes: &[u8], at: usize, owed: usize) -> usize {
        if at < owed {
            self.shared.drop_lines(1);
            return owed;
        }
        bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)
    }

    /// Opens the path again; true when another file is there now. Where that fails the old file stays.
    fn reopen(&mut self) -> bool {
        let Some(path) = &self.output.path else { return false };
        let file = match open(path) {
            Ok(file) => file,
            Err(error) => {
                let path = path.display();
                tracing::error!(target: "access_log", "cannot open again, the old file stays: {path}: {error}");
                return false;
            }
        };
        let old = mem::replace(&mut self.output.file, file);
        let same =
            matches!((old.metadata(), self.output.file.metadata()), (Ok(a), Ok(b)) if identity(&a) == identity(&b));
        if !same {
            self.forgive();
        }
        !same
    }

    /// Gives up the second half of a line: its first half is no longer where this would be written.
    fn forgive(&mut self) {
        if !mem::take(&mut self.owed).bytes.is_empty() {
            self.shared.drop_lines(1);
        }
    }

    fn length(&self) -> u64 {
        self.output.file.metadata().map_or(0, |metadata| metadata.len())
    }
}

/// What came of waiting for a stuck reader.
enum Stuck {
    Waited,
    /// There is another file to write to.
    Elsewhere,
    GaveUp,
}

/// Opens for appending. A FIFO is opened for both ends, which needs no reader and outlives one that leaves, and without
/// blocking, so that a reader that stops reading does not hold the thread.
fn open(path: &Path) -> io::Result<File> {
    match path.metadata() {
        Ok(metadata) if metadata.file_type().is_fifo() => {
            OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open(path)
        }
        _ => OpenOptions::new().append(true).create(true).open(path),
    }
}

/// What is left of a batch whose first `at` bytes are written: the rest of a line that is begun, and whole lines. The
/// first `owed` bytes of the batch are the rest of a line that was begun before.
fn split(bytes: &[u8], at: usize, owed: usize) -> (&[u8], &[u8]) {
    let rest = &bytes[at..];
    let begun = if at == 0 { owed > 0 } else { bytes[at - 1] != b'\n' };
    let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |newline| newline + 1);
    rest.split_at(if begun { end } else { 0 })
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_begun_is_owed_its_rest_and_the_others_are_given_up() {
        let rows: [(&str, usize, usize, &str, &str); 7] = [
            // bytes, written, owed from before → owed now, given up
            ("aa\nbb\ncc\n", 0, 0, "", "aa\nbb\ncc\n"),
            ("aa\nbb\ncc\n", 1, 0, "a\n", "bb\ncc\n"),
            ("aa\nbb\ncc\n", 2, 0, "\n", "bb\ncc\n"),
            ("aa\nbb\ncc\n", 3, 0, "", "bb\ncc\n"),
            ("aa\nbb\ncc\n", 7, 0, "c\n", ""),
            ("aa\nbb\ncc\n", 0, 3, "aa\n", "bb\ncc\n"),
            ("aa\nbb\ncc\n", 2, 3, "\n", "bb\ncc\n"),
        ];
        for (bytes, at, owed, half, whole) in rows {
            assert_eq!(split(bytes.as_bytes(), at, owed), (half.as_bytes(), whole.as_bytes()), "{at} {owed}");
        }
    }
}
