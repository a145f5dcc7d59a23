//! Signals, and the end in order.
//!
//! TERM: `/readyz` goes 503 while connections are still accepted for `lame_duck`, so that a balancer in front has time to
//! notice; then the listeners close, what is in flight finishes, and the process ends as soon as it is empty. INT has no
//! lame duck, and cuts one short; a second INT ends it at once. HUP reloads, USR1 opens log files again; USR2,
//! which is an upgrade elsewhere, does nothing but say so.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::control::{Control, Floor};
use crate::reload::{Cause, Reloader};

/// Between closing the listeners and closing connections that ask for nothing.
const LAST_CALL: Duration = Duration::from_millis(100);

/// How often an ending process looks whether it is empty.
const LOOK: Duration = Duration::from_millis(10);

/// SIGXFSZ, on every architecture of Linux but MIPS.
const XFSZ: i32 = 25;

struct Signals {
    hup: Signal,
    term: Signal,
    int: Signal,
    usr1: Signal,
    usr2: Signal,
}

/// Listens for signals: before anything is served, or an early one would kill the process.
pub struct Ears(Signals);

impl Ears {
    /// Takes over HUP, TERM, INT, USR1 and USR2. A log file that may not grow is an error of writing, not the end of us.
    pub fn new() -> std::io::Result<Ears> {
        drop(signal(SignalKind::from_raw(XFSZ))?);
        Ok(Ears(Signals {
            hup: signal(SignalKind::hangup())?,
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            usr1: signal(SignalKind::user_defined1())?,
            usr2: signal(SignalKind::user_defined2())?,
        }))
    }

    /// TERM or INT before anything is served; others are kept for later.
    pub async fn end(&mut self) {
        tokio::select! {
            _ = self.0.term.recv() => {}
            _ = self.0.int.recv() => {}
        }
    }
}

/// Serves what signals ask for; returns when the process may exit.
pub async fn until_the_end(
    ears: Ears,
    limit: Option<Duration>,
    control: &Arc<Control>,
    floor: &Arc<Floor>,
    reloader: &Arc<Reloader>,
) {
    let mut signals = ears.0;
    let mut over = std::pin::pin!(async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    });
    // Signals that come while one is being served are served together by one more.
    let wanted = Arc::new(Notify::new());
    let reloader = tokio::spawn(reload(wanted.clone(), reloader.clone()));
    let (lame_duck, ints) = loop {
        tokio::select! {
            _ = signals.hup.recv() => wanted.notify_one(),
            _ = signals.usr1.recv() => control.log().reopen(),
            _ = signals.usr2.recv() => refuse_upgrade(),
            _ = signals.term.recv() => break (control.snapshot().config.lame_duck, 0),
            _ = signals.int.recv() => break (Duration::ZERO, 1),
            () = &mut over => break (Duration::ZERO, 0),
        }
    };
    tracing::info!(target: "server", lame_duck_ms = lame_duck.as_millis() as u64, "ending");
    control.drain();
    reloader.abort();
    let enough = Notify::new();
    tokio::select! {
        () = wind_up(lame_duck, &enough, control, floor) => {}
        () = impatience(&mut signals, ints, &enough, control) => tracing::warn!(target: "server", "ending at once"),
    }
}

/// Left alone the signal would end the process, and it is nginx's for an upgrade.
fn refuse_upgrade() {
    tracing::warn!(target: "server", "SIGUSR2 does nothing: there is no upgrade without a restart yet");
}

async fn reload(wanted: Arc<Notify>, reloader: Arc<Reloader>) {
    loop {
        wanted.notified().await;
        // It logs what came of it.
        let _ = reloader.by_hand(Cause::Signal).await;
    }
}

async fn wind_up(lame_duck: Duration, enough: &Notify, control: &Control, floor: &Floor) {
    let _ = timeout(lame_duck, enough.notified()).await;
    floor.close_all();
    // Who connected just before is given the time to say what for.
    sleep(LAST_CALL).await;
    floor.end_idle();
    let drain_timeout = control.snapshot().config.drain_timeout;
    let (requests, connections) = (control.traffic().requests(), control.traffic().connections());
    if connections > 0 {
        let limit_ms = drain_timeout.as_millis() as u64;
        tracing::info!(target: "server", requests, connections, limit_ms, "what runs may finish");
    }
    let limit = Instant::now() + drain_timeout;
    let mut too_late = std::pin::pin!(sleep_until(limit));
    while control.traffic().connections() > 0 {
        tokio::select! {
            () = sleep(LOOK) => {}
            () = &mut too_late => {
                let (requests, connections) = (control.traffic().requests(), control.traffic().connections());
                tracing::warn!(target: "server", requests, connections, "the drain timeout cuts what is left");
                return;
            }
        }
    }
}

/// Ready at the second INT; the first is `enough` of a lame duck. TERM does not insist: managers send it more than once. A
/// drain may take long, and logs are rotated meanwhile.
async fn impatience(signals: &mut Signals, mut ints: usize, enough: &Notify, control: &Control) {
    loop {
        tokio::select! {
            _ = signals.int.recv() => {
                ints += 1;
                if ints == 1 {
                    // Where the lame duck is over already nothing else shows that it was heard.
                    tracing::info!(target: "server", "INT; one more INT ends at once");
                }
            }
            _ = signals.usr1.recv() => control.log().reopen(),
            _ = signals.usr2.recv() => refuse_upgrade(),
            _ = signals.hup.recv() => tracing::warn!(target: "server", "ending; the configuration is not read again"),
        }
        match ints {
            0 => {}
            1 => enough.notify_one(),
            _ => return,
        }
    }
}
