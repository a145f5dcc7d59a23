//! The access log: one line per finished request, to standard output or a file, without ever holding a request up.
//!
//! A line is rendered where the request ended, into a buffer of that thread, and copied into a bounded queue (`lines`).
//! What cannot be written, because the disk is full or nobody reads, is dropped and counted in [`AccessLog::dropped`].
//!
//! Not here: what is in a line (`record`).

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::lines::{Lines, Output, Told};
use super::record::Record;

/// Bytes of lines that may wait: some 10,000 lines.
const CAPACITY: usize = 8 << 20;

/// A line's buffer that has grown beyond this is given back.
const KEPT_CAPACITY: usize = 16 << 10;

/// Where the lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to this file, which is created when it does not exist; a FIFO will do.
    File(PathBuf),
}

/// A handle on the access log; clones share it.
#[derive(Debug, Clone)]
pub struct AccessLog {
    /// `None`: off.
    lines: Option<Arc<Lines>>,
}

thread_local! {
    /// The buffer of the line being rendered. Taken out for that time, so that nothing can find it half full.
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl AccessLog {
    /// Opens the sink and starts the thread that writes to it. The error names the file.
    pub fn start(sink: Sink) -> io::Result<AccessLog> {
        AccessLog::with_capacity(sink, CAPACITY)
    }

    fn with_capacity(sink: Sink, capacity: usize) -> io::Result<AccessLog> {
        const NAME: &str = "access-log";
        let output = match sink {
            Sink::Off => return Ok(AccessLog { lines: None }),
            Sink::Stdout => Output::descriptor(NAME, io::stdout(), Told::Log)?,
            Sink::File(path) => Output::file(NAME, path)?,
        };
        Ok(AccessLog { lines: Some(Arc::new(Lines::start(output, capacity)?)) })
    }

    /// False when lines go nowhere, so that a record need not be made.
    pub fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Queues one line, or counts it as dropped. Never waits for the sink.
    pub fn write(&self, record: &Record<'_>) {
        let Some(lines) = &self.lines else { return };
        let mut line = LINE.try_with(Cell::take).unwrap_or_default();
        match record.render(&mut line) {
            Ok(()) => lines.push(&line),
            Err(_) => lines.count_dropped(),
        }
        line.clear();
        line.shrink_to(KEPT_CAPACITY);
        // In a thread that is ending the buffer is gone already.
        let _ = LINE.try_with(|kept| kept.set(line));
    }

    /// Lines that were not and will not be written, since the start.
    pub fn dropped(&self) -> u64 {
        self.lines.as_ref().map_or(0, |lines| lines.dropped())
    }

    /// Opens the file again, after a rotation has moved it (SIGUSR1). Lines queued before still go to the old file. Where
    /// the path cannot be opened the old file stays and an error is logged. Does not wait.
    pub fn reopen(&self) {
        if let Some(lines) = &self.lines {
            lines.reopen();
        }
    }

    /// Waits until the lines queued so far are dealt with, at most `within`; false: they are not.
    pub fn flush(&self, within: Duration) -> bool {
        self.lines.as_ref().is_none_or(|lines| lines.flush(within))
    }

    /// Ends the log at shutdown: writes what is queued, for `within` at most, and returns how many lines were left
    /// behind. Lines written later count as dropped.
    pub fn close(&self, within: Duration) -> u64 {
        self.lines.as_ref().map_or(0, |lines| lines.close(within))
    }
}

#[cfg(test)]
mod tests;
