//! The access log: one line per finished request, to standard output or a file, without ever holding a request up.
//!
//! A line is rendered where the request ended, into a buffer of that thread, and copied into a bounded queue (`lines`).
//! What cannot be written, because the disk is full or nobody reads, is dropped and counted in [`AccessLog::dropped`];
//! what is not to be written is counted in [`AccessLog::filtered`]. Sink, format and filter change while it runs.
//!
//! Not here: what is in a line (`record`), which lines are left out (`filter`).

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::filter;
use super::lines::{Lines, Output, Told};
use super::record::Record;
use crate::config::{AccessLog as Wanted, Sample, Sink};

/// Bytes of lines that may wait: some 10,000 lines.
const CAPACITY: usize = 8 << 20;

/// A line's buffer that has grown beyond this is given back.
const KEPT_CAPACITY: usize = 16 << 10;

/// The log's thread, and its name in messages.
const NAME: &str = "access-log";

/// A handle on the access log; clones share it.
#[derive(Debug, Clone)]
pub struct AccessLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lines: Lines,
    /// Sink, format and filter as they are in force.
    wanted: ArcSwap<Wanted>,
    filtered: AtomicU64,
}

/// What a new configuration makes of the log, its file already open; see [`AccessLog::prepare`].
#[derive(Debug)]
pub struct Change {
    wanted: Wanted,
    /// `None`: the sink stays.
    output: Option<Output>,
}

thread_local! {
    /// The buffer of the line being rendered. Taken out for that time, so that nothing can find it half full.
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl AccessLog {
    /// Opens the sink and starts the thread that writes to it. The error names the file.
    pub fn start(wanted: &Wanted) -> io::Result<AccessLog> {
        AccessLog::with_capacity(wanted, CAPACITY)
    }

    fn with_capacity(wanted: &Wanted, capacity: usize) -> io::Result<AccessLog> {
        Ok(AccessLog::of(Lines::start(open(&wanted.sink)?, capacity)?, wanted))
    }

    fn of(lines: Lines, wanted: &Wanted) -> AccessLog {
        let wanted = ArcSwap::from_pointee(wanted.clone());
        AccessLog(Arc::new(Shared { lines, wanted, filtered: AtomicU64::new(0) }))
    }

    /// False when lines go nowhere, so that a record need not be made.
    pub fn is_on(&self) -> bool {
        self.0.wanted.load().sink != Sink::Off
    }

    /// Queues one line, or counts it as dropped; one that the filter leaves out is counted as filtered and not rendered.
    /// Never waits for the sink.
    pub fn write(&self, record: &Record<'_>) {
        let Shared { lines, wanted, filtered } = &*self.0;
        let wanted = wanted.load();
        if wanted.sink == Sink::Off {
            return;
        }
        let draw = || fastrand::u32(..Sample::ALL.0);
        if wanted.filter.as_ref().is_some_and(|filter| !filter::passes(filter, record, draw)) {
            filtered.fetch_add(1, Relaxed);
            return;
        }
        let mut line = LINE.try_with(Cell::take).unwrap_or_default();
        record.render(&wanted.format, &mut line);
        lines.push(&line);
        line.clear();
        line.shrink_to(KEPT_CAPACITY);
        // In a thread that is ending the buffer is gone already.
        let _ = LINE.try_with(|kept| kept.set(line));
    }

    /// Lines that should have been and will not be written, since the start.
    pub fn dropped(&self) -> u64 {
        self.0.lines.dropped()
    }

    /// Lines that the filter left out, since the start.
    pub fn filtered(&self) -> u64 {
        self.0.filtered.load(Relaxed)
    }

    /// Opens the file again, after a rotation has moved it (SIGUSR1). Lines queued before still go to the old file. Where
    /// the path cannot be opened the old file stays and an error is logged. Does not wait.
    pub fn reopen(&self) {
        self.0.lines.reopen();
    }

    /// Opens what a new configuration wants; nothing changes yet. The error names the file. May wait for a disk.
    pub fn prepare(&self, wanted: &Wanted) -> io::Result<Change> {
        let stays = self.0.wanted.load().sink == wanted.sink;
        let output = if stays { None } else { Some(open(&wanted.sink)?) };
        Ok(Change { wanted: wanted.clone(), output })
    }

    /// Logs by a new configuration from now on. Lines queued before go where they were to go, whole; a request that ends at
    /// this moment may still leave a line of the old form. Does not wait.
    pub fn adopt(&self, change: Change) {
        let Change { wanted, output } = change;
        // First, or the first lines of a log that was off would follow the others to nowhere.
        if let Some(output) = output {
            self.0.lines.redirect(output);
        }
        self.0.wanted.store(Arc::new(wanted));
    }

    /// Waits until the lines queued so far are dealt with, at most `within`; false: they are not.
    pub fn flush(&self, within: Duration) -> bool {
        self.0.lines.flush(within)
    }

    /// Ends the log at shutdown: writes what is queued, for `within` at most, and returns how many lines were left
    /// behind. Lines written later count as dropped.
    pub fn close(&self, within: Duration) -> u64 {
        self.0.lines.close(within)
    }
}

fn open(sink: &Sink) -> io::Result<Output> {
    match sink {
        Sink::Off => {
            let nowhere = OpenOptions::new().write(true).open("/dev/null");
            let named = |error: io::Error| io::Error::new(error.kind(), format!("/dev/null: {error}"));
            Output::descriptor(NAME, nowhere.map_err(named)?, Told::Log)
        }
        Sink::Stdout => Output::descriptor(NAME, io::stdout(), Told::Log),
        Sink::File(path) => Output::file(NAME, path.clone()),
    }
}

#[cfg(test)]
mod tests;
