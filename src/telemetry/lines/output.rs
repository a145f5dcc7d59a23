//! Writing batches of lines to a file, and what happens when that fails.
//!
//! An error (disk full, reader gone) costs the rest of its batch, which is counted; the next batch tries again, so
//! writing resumes by itself. Half a line that made it to the disk is owed its other half, which goes first then: no
//! line is ever torn in the middle of a file. A file that ends in half a line, by a crash say, is given the end of it
//! before anything is added. A FIFO without a reader is waited for in small steps, so that a change of file or the end
//! can come through. Trouble is told once per episode, and its end with what it cost.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Change, Episode, Interrupt, KEPT_CAPACITY, Shared, is_time_to_tell};
use crate::config::O_NONBLOCK;

/// Between two tries at a reader that takes nothing: from this, doubling, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// Tries at a stuck reader once the queue is closing: three seconds of them.
const LAST_TRIES: u32 = 50;

/// Where lines go.
#[derive(Debug)]
pub(in super::super) struct Output {
    file: File,
    /// `None`: it cannot be opened again.
    path: Option<PathBuf>,
    /// Of the thread that writes here.
    name: &'static str,
    told: Told,
    /// The file's last line had no end when it was opened.
    torn: bool,
}

/// Who hears of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Told {
    /// The program's own log.
    Log,
    /// The log that is in trouble itself, as it is the program's own: only afterwards.
    Itself,
}

impl Output {
    /// Appends to the file at `path`; the error names the path.
    pub(in super::super) fn file(name: &'static str, path: PathBuf) -> io::Result<Output> {
        let file = open(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let torn = file.metadata().is_ok_and(|metadata| is_torn(&path, &metadata));
        Ok(Output { file, path: Some(path), name, told: Told::Log, torn })
    }

    /// Writes to a descriptor that is open already, standard output say, without std's buffer in between.
    pub(in super::super) fn descriptor(name: &'static str, fd: impl AsFd, told: Told) -> io::Result<Output> {
        Ok(Output { file: File::from(fd.as_fd().try_clone_to_owned()?), path: None, name, told, torn: false })
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
    /// Changes of file that the present batch has not reached yet.
    due: VecDeque<Change>,
    /// Tries left at a stuck reader once the queue is closing.
    last_tries: u32,
    /// While writes fail, and until that is told.
    trouble: Option<Episode>,
    /// The last write failed.
    failing: bool,
    /// When trouble was last told.
    told_at: Option<Duration>,
}

/// The second half of a line whose first half is written; empty: none is.
#[derive(Default)]
struct Owed {
    bytes: Vec<u8>,
    /// The file's length when the first half was its end.
    length: u64,
    /// Lines that are lost with it: none where it only ends what somebody else left.
    lines: u64,
}

impl Writer {
    pub(super) fn new(output: Output, shared: Arc<Shared>) -> Writer {
        Writer {
            output,
            shared,
            owed: Owed::default(),
            due: VecDeque::new(),
            last_tries: LAST_TRIES,
            trouble: None,
            failing: false,
            told_at: None,
        }
    }

    pub(super) fn thread_name(&self) -> String {
        self.output.name.to_owned()
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut batch = Vec::new();
        self.mend();
        while let Some(turn) = self.shared.take(&mut batch) {
            let mut from = 0;
            self.due = turn.changes;
            while let Some(at) = self.due.front().map(|change| change.at) {
                self.deliver(&batch[from..at]);
                from = at;
                // Unless it came early, since the old file took nothing.
                if let Some(change) = self.due.pop_front_if(|change| change.at == at) {
                    self.change(change);
                }
            }
            self.deliver(&batch[from..]);
            batch.clear();
            batch.shrink_to(KEPT_CAPACITY);
            self.tell_what_is_over();
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
        let Owed { bytes: owed, lines: owed_lines, .. } = mem::take(&mut self.owed);
        let bytes = if owed.is_empty() { Cow::Borrowed(lines) } else { Cow::Owned([owed.as_slice(), lines].concat()) };
        let mut at = 0;
        let mut pause = FIRST_PAUSE;
        while at < bytes.len() {
            match self.output.file.write(&bytes[at..]) {
                Ok(0) => return self.fail(&bytes, at, (owed.len(), owed_lines), &ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written;
                    pause = FIRST_PAUSE;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.wait(pause) {
                    Stuck::Waited => pause = (pause * 2).min(LONGEST_PAUSE),
                    Stuck::Elsewhere => at = self.resume_at(&bytes, at, (owed.len(), owed_lines)),
                    Stuck::GaveUp => return self.shared.drop_lines(count_lines(&bytes[at..])),
                },
                Err(error) => return self.fail(&bytes, at, (owed.len(), owed_lines), &error),
            }
        }
        self.failing &= bytes.is_empty();
    }

    /// Gives up what is left of a batch, but for the rest of a line that is begun. The batch begins with `owed`: so many
    /// bytes, which are so many lines.
    fn fail(&mut self, bytes: &[u8], at: usize, owed: (usize, u64), error: &io::Error) {
        let dropped_before = self.shared.dropped_now();
        let (half, whole) = split(bytes, at, owed.0);
        let lines = if at < owed.0 { owed.1 } else { 1 };
        self.owed = Owed { bytes: half.to_vec(), length: self.length(), lines };
        self.shared.drop_lines(count_lines(whole));
        self.failing = true;
        let trouble = self.trouble.get_or_insert(Episode { dropped_before, told: false });
        if !trouble.told && is_time_to_tell(&mut self.told_at) {
            trouble.told = true;
            if self.output.told == Told::Log {
                tracing::error!(target: "access_log", "lines are dropped and counted: cannot write: {error}");
            }
        }
    }

    /// Says what was lost, once lines are written again.
    fn tell_what_is_over(&mut self) {
        if self.failing {
            return;
        }
        let trouble = self.trouble.take_if(|trouble| trouble.told);
        let began = trouble.into_iter().chain(self.shared.overflow_over()).map(|episode| episode.dropped_before).min();
        if let Some(dropped_before) = began {
            let dropped = self.shared.dropped_now();
            let lost = dropped - dropped_before;
            match self.output.told {
                Told::Log => {
                    tracing::info!(target: "access_log", lost, dropped, "lines are written again, {lost} were lost");
                }
                Told::Itself => tracing::warn!(target: "log", lost, dropped, "{lost} lines of this log were lost"),
            }
        }
    }

    /// The reader takes nothing at present.
    fn wait(&mut self, pause: Duration) -> Stuck {
        let due = self.due.pop_front();
        let interrupt = due.map_or_else(|| self.shared.pause(pause), Interrupt::Change);
        match interrupt {
            Interrupt::Change(change) => {
                if self.change(change) {
                    Stuck::Elsewhere
                } else {
                    Stuck::Waited
                }
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
    fn resume_at(&self, bytes: &[u8], at: usize, owed: (usize, u64)) -> usize {
        if at < owed.0 {
            self.shared.drop_lines(owed.1);
            return owed.0;
        }
        bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1)
    }

    /// Takes another file; true when there is one now.
    fn change(&mut self, change: Change) -> bool {
        let mut elsewhere = change.output.is_some_and(|output| self.go_on_in(output));
        if change.reopen
            && let Some(output) = self.reopened()
        {
            let is_new = self.go_on_in(output);
            self.tell_of_reopening(is_new);
            elsewhere |= is_new;
        }
        elsewhere
    }

    /// Whoever rotates wants to know that it has worked. He hears it from this log too where he signals before he moves.
    fn tell_of_reopening(&self, is_new: bool) {
        let path = self.output.path.as_deref().unwrap_or(Path::new("-")).display();
        let found = if is_new { "a new one" } else { "the same one, nobody has moved it" };
        tracing::info!(target: "access_log", %path, "the file is opened again: {found}");
    }

    /// The path, opened again. Where that fails the old file stays.
    fn reopened(&self) -> Option<Output> {
        let Output { name, path, .. } = &self.output;
        let path = path.as_ref()?;
        match Output::file(name, path.clone()) {
            Ok(output) => Some(output),
            Err(error) => {
                tracing::error!(target: "access_log", "cannot open again, the old file stays: {error}");
                None
            }
        }
    }

    /// Writes to `output` from now on; false where that is the same file as before.
    fn go_on_in(&mut self, output: Output) -> bool {
        let old = mem::replace(&mut self.output, output);
        let (old, new) = (old.file.metadata(), self.output.file.metadata());
        if matches!((old, new), (Ok(old), Ok(new)) if identity(&old) == identity(&new)) {
            return false;
        }
        self.forgive();
        self.mend();
        true
    }

    /// Ends the half of a line that the file ends in.
    fn mend(&mut self) {
        if self.output.torn && !matches!(self.output.file.write(b"\n"), Ok(1)) {
            self.owed = Owed { bytes: b"\n".to_vec(), length: self.length(), lines: 0 };
        }
    }

    /// Gives up the second half of a line: its first half is no longer where this would be written.
    fn forgive(&mut self) {
        let Owed { bytes, lines, .. } = mem::take(&mut self.owed);
        if !bytes.is_empty() {
            self.shared.drop_lines(lines);
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

/// Whether the last line of the file at `path` has no end. One that we may not read is taken to be whole.
fn is_torn(path: &Path, metadata: &Metadata) -> bool {
    let mut last = [b'\n'];
    if !metadata.is_file() || metadata.len() == 0 {
        return false;
    }
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut last, metadata.len() - 1));
    read.is_ok() && last != [b'\n']
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
