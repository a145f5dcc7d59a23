//! A bounded queue of lines in front of a file that may be slow, full or gone: whoever logs never waits for it.
//!
//! Lines are appended to one buffer under a short lock; a thread swaps the buffer for an empty one and writes it whole.
//! So a line costs a copy and no allocation, memory is bounded in bytes, and the busier it is the larger the writes.
//! After a write the thread lingers a little before it looks again: a quiet log shows a line at once, a busy one does
//! not wake a thread for every line. What does not fit is dropped and counted.
//!
//! Not here: what writing does when it fails (`output`, below this module), what a line says.

mod output;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use output::Writer;
pub(super) use output::{Output, Told};

use crate::clock;

/// The longest a line waits for company.
const LINGER: Duration = Duration::from_millis(5);

/// Trouble that comes and goes is told no more often than this.
const QUIET: Duration = Duration::from_secs(10);

/// Changes of file that may be due at once: only a stuck reader makes so many gather, and each may hold a file open.
const CHANGES: usize = 16;

/// A buffer that has grown beyond this by a burst is given back after it.
const KEPT_CAPACITY: usize = 1 << 20;

/// The queue. Its thread ends, once everything queued is written, when this is closed or dropped.
#[derive(Debug)]
pub(super) struct Lines {
    shared: Arc<Shared>,
}

/// What the queue and its thread share.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Told when the thread has something to do.
    work: Condvar,
    /// Told when the thread has dealt with a batch.
    settled: Condvar,
    /// Bytes that may wait.
    capacity: usize,
    /// Lines that were accepted or not, and will not be read by anyone.
    dropped: AtomicU64,
    told: Told,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Lines ever accepted.
    accepted: u64,
    /// Of those, how many were written or given up.
    settled: u64,
    /// The changes of file that are due, in their order; at most [`CHANGES`].
    changes: VecDeque<Change>,
    /// The thread waits without a time limit: it must be told.
    asleep: bool,
    /// While lines do not fit, and until that is told.
    overflow: Option<Episode>,
    /// When it was last told that lines do not fit.
    told_at: Option<Duration>,
    closing: bool,
    /// The thread has gone.
    ended: bool,
}

/// A change of file, behind some of the lines queued.
#[derive(Debug)]
struct Change {
    /// Where in the queue's bytes.
    at: usize,
    /// The new file, open already.
    output: Option<Output>,
    /// Then the path is to be opened again: it may have been moved since.
    reopen: bool,
}

/// A time in which lines are lost.
#[derive(Debug, Clone, Copy)]
struct Episode {
    /// Lines dropped since the start when it began.
    dropped_before: u64,
    /// Somebody was told that it began, and is to be told of its end. Others are told together with a later one.
    told: bool,
}

/// What the thread takes in one turn, beside the bytes.
struct Turn {
    changes: VecDeque<Change>,
    /// Lines accepted up to the end of these bytes.
    accepted: u64,
}

impl Lines {
    /// Starts the thread. `capacity` is in bytes.
    pub(super) fn start(output: Output, capacity: usize) -> io::Result<Lines> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            settled: Condvar::new(),
            capacity,
            dropped: AtomicU64::new(0),
            told: output.told(),
        });
        let writer = Writer::new(output, Arc::clone(&shared));
        thread::Builder::new().name(writer.thread_name()).spawn(move || writer.run())?;
        Ok(Lines { shared })
    }

    /// Queues a line, which must end in a newline, or counts it as dropped.
    pub(super) fn push(&self, line: &[u8]) {
        let mut queue = self.shared.lock();
        let before = queue.bytes.len();
        let after = before + line.len();
        if after > self.shared.capacity || queue.ended {
            return self.shared.overflow(queue);
        }
        queue.bytes.extend_from_slice(line);
        queue.accepted += 1;
        let half = self.shared.capacity / 2;
        let wake = mem::take(&mut queue.asleep) || (before < half && after >= half);
        drop(queue);
        if wake {
            self.shared.work.notify_one();
        }
    }

    /// Lines nobody will read, since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped_now()
    }

    /// Opens the file again behind the lines queued so far. Does not wait for it.
    pub(super) fn reopen(&self) {
        self.shared.change(|change| change.reopen = true);
    }

    /// Writes to `output` from here on. Does not wait for it.
    pub(super) fn redirect(&self, output: Output) {
        self.shared.change(|change| change.output = Some(output));
    }

    /// Waits until every line queued before is dealt with; false when that takes longer than `within`.
    pub(super) fn flush(&self, within: Duration) -> bool {
        let queue = self.shared.lock();
        let goal = queue.accepted;
        let waited = self.shared.settled.wait_timeout_while(queue, within, |queue| queue.settled < goal);
        waited.unwrap_or_else(PoisonError::into_inner).0.settled >= goal
    }

    /// Lets the thread write what is queued and end, and waits for that up to `within`. Returns how many lines were left
    /// behind, which count as dropped.
    pub(super) fn close(&self, within: Duration) -> u64 {
        self.shared.begin_close();
        let queue = self.shared.lock();
        let waited = self.shared.settled.wait_timeout_while(queue, within, |queue| !queue.ended);
        let queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        let left = queue.accepted - queue.settled;
        drop(queue);
        self.shared.drop_lines(left);
        left
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.shared.begin_close();
    }
}

impl Shared {
    /// A panic elsewhere must not end the log: every change of the queue is complete before anything can panic.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_lines(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    fn dropped_now(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn change(&self, note: impl FnOnce(&mut Change)) {
        let mut queue = self.lock();
        let at = queue.bytes.len();
        let full = queue.changes.len() >= CHANGES;
        match queue.changes.back_mut().filter(|last| last.at == at || full) {
            Some(last) => note(last),
            None => {
                let mut change = Change { at, output: None, reopen: false };
                note(&mut change);
                queue.changes.push_back(change);
            }
        }
        queue.asleep = false;
        drop(queue);
        self.work.notify_one();
    }

    fn overflow(&self, mut queue: MutexGuard<'_, Queue>) {
        let dropped_before = self.dropped_now();
        self.drop_lines(1);
        let tell = is_time_to_tell(&mut queue.told_at);
        queue.overflow.get_or_insert(Episode { dropped_before, told: false }).told |= tell;
        drop(queue);
        if tell && self.told == Told::Log {
            tracing::warn!(target: "access_log", "lines are dropped and counted: they come faster than they are written");
        }
    }

    /// The overflow that is over: it was told, and there is room again.
    fn overflow_over(&self) -> Option<Episode> {
        let mut queue = self.lock();
        let half = self.capacity / 2;
        if queue.bytes.len() < half { queue.overflow.take_if(|overflow| overflow.told) } else { None }
    }

    fn begin_close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// Swaps the queued bytes into `batch`, which is empty, as soon as there is something to do; `None` once the queue is
    /// closed and empty.
    fn take(&self, batch: &mut Vec<u8>) -> Option<Turn> {
        let mut queue = self.lock();
        loop {
            if !queue.bytes.is_empty() || !queue.changes.is_empty() {
                mem::swap(batch, &mut queue.bytes);
                return Some(Turn { changes: mem::take(&mut queue.changes), accepted: queue.accepted });
            }
            if queue.closing {
                return None;
            }
            queue.asleep = true;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.asleep = false;
        }
    }

    /// Marks everything up to `accepted` as dealt with, then lets lines gather for a moment.
    fn settle(&self, accepted: u64) {
        let mut queue = self.lock();
        queue.settled = accepted;
        self.settled.notify_all();
        let half = self.capacity / 2;
        let gathering = |queue: &mut Queue| queue.bytes.len() < half && queue.changes.is_empty() && !queue.closing;
        drop(self.work.wait_timeout_while(queue, LINGER, gathering));
    }

    /// Waits for `pause`, or less when there is to be another file.
    fn pause(&self, pause: Duration) -> Interrupt {
        let queue = self.lock();
        let waited = self.work.wait_timeout_while(queue, pause, |queue| queue.changes.is_empty());
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        match queue.changes.pop_front() {
            Some(change) => Interrupt::Change(change),
            None if queue.closing => Interrupt::Closing,
            None => Interrupt::None,
        }
    }

    fn end(&self) {
        let mut queue = self.lock();
        queue.ended = true;
        drop(queue);
        self.settled.notify_all();
    }
}

/// Whether trouble was not told for long enough; if so it is taken as told now.
fn is_time_to_tell(told_at: &mut Option<Duration>) -> bool {
    let now = clock::monotonic();
    if told_at.is_some_and(|at| now < at + QUIET) {
        return false;
    }
    *told_at = Some(now);
    true
}

/// What happened during a pause.
enum Interrupt {
    None,
    Change(Change),
    Closing,
}
