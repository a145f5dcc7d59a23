//! Panics: contained to their task by tokio, told and counted here.

use std::panic;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// From now on a panic is an error in the log, on one line, instead of several on stderr.
pub fn log_panics() {
    panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Relaxed);
        let message = panic.payload_as_str().unwrap_or("no message");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        tracing::error!(target: "panic", thread = thread.name().unwrap_or("-"), place, "panicked: {message}");
    }));
}

/// Panics since the start.
pub fn panics() -> u64 {
    PANICS.load(Relaxed)
}
