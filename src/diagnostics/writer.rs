//! The thread that writes: one case after the other, and whatever fails is counted and told of once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::archive::Archive;
use super::case::Case;
use super::{QUEUE, Shared, lock};
use crate::clock;

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Order {
    /// To keep this.
    Write(Box<Case>),
    /// To see whether something else is wanted now.
    Look,
}

/// Starts the thread; it ends when nobody can give it orders any more. Without a thread nothing is kept, which is counted.
pub(super) fn start(shared: &Arc<Shared>) -> SyncSender<Order> {
    // One more, for who only wants it to look.
    let (orders, inbox) = sync_channel(QUEUE + 1);
    let shared = shared.clone();
    let started = thread::Builder::new().name("diagnostics".to_owned()).spawn(move || work(&shared, &inbox));
    if let Err(error) = started {
        tracing::error!(target: "diagnostics", %error, "nothing is kept: there is no thread for it");
    }
    orders
}

fn work(shared: &Shared, inbox: &Receiver<Order>) {
    let (mut archive, mut told) = (None, String::new());
    for order in inbox {
        let done = take(order, &mut archive, shared);
        let trouble = done.as_ref().err().map(ToString::to_string).unwrap_or_default();
        if !trouble.is_empty() && trouble != told {
            tracing::warn!(
                target: "diagnostics", error = %trouble,
                "what failing probes saw cannot be kept: {trouble}; it is tried again with the next"
            );
        }
        told = trouble;
    }
}

fn take(order: Order, archive: &mut Option<Archive>, shared: &Shared) -> io::Result<()> {
    let kept = follow(archive, shared).and_then(|()| match (&order, &*archive) {
        (Order::Write(case), Some(archive)) => archive.put(case, shared).map(|()| true),
        _ => Ok(false),
    });
    if kept.is_err() {
        // The directory may be gone: it is looked through again before the next.
        *archive = None;
    }
    if let Order::Write(_) = order {
        shared.queued.fetch_sub(1, Relaxed);
        match kept {
            Ok(true) => drop(shared.counters.written.fetch_add(1, Relaxed)),
            // It was switched off meanwhile.
            Ok(false) => {}
            Err(_) => drop(shared.counters.failed.fetch_add(1, Relaxed)),
        }
    }
    kept.map(|_| ())
}

/// Opens what is wanted now, where that is another directory or bound, or could not be opened yet.
fn follow(archive: &mut Option<Archive>, shared: &Shared) -> io::Result<()> {
    let wanted = lock(&shared.wanted).clone();
    if archive.as_ref().map(Archive::settings) == wanted.as_ref() {
        return Ok(());
    }
    *archive = None;
    lock(&shared.files).clear();
    if let Some(wanted) = wanted {
        *archive = Some(Archive::open(wanted, clock::wall(), shared)?);
    }
    Ok(())
}
