//! Another configuration into the running program, whoever wants it: a signal, the API, or the file by changing.
//!
//! One at a time: read (`seen`), take or refuse (`take`), say what it was (`report`), tell everybody (`told`). By hand it
//! answers each time; the file itself is heard once for each content (`follow`).
//!
//! Not here: what a configuration means (`config`), how what it needs is had (`control`).

mod follow;
mod report;
mod seen;
mod take;
mod told;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use follow::follow;
pub use report::{Before, ChangedPool, Changes, LastChange, MemberChanges, Members, Pools, Report};
pub use seen::Seen;

use crate::clock;
use crate::config::Problem;
use crate::control::{Control, End, Floor};

/// Reloads the running program.
#[derive(Debug)]
pub struct Reloader {
    control: Arc<Control>,
    floor: Arc<Floor>,
    last: Mutex<Last>,
}

/// Who wants a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// SIGHUP.
    Signal,
    /// The admin API.
    Api,
    /// The file has changed.
    File,
}

/// Why everything stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The file has errors, or what it needs cannot be had: each in its place.
    #[error("the configuration has errors")]
    Config(Vec<Problem>),
    /// The process is about to end.
    #[error("the process is ending")]
    Ending,
    /// A fault of ours.
    #[error("the reload has failed: {0}")]
    Broken(String),
}

/// How a reload ended.
pub type Outcome = Result<Arc<Report>, Arc<Refused>>;

/// The reload before.
#[derive(Debug)]
struct Last {
    /// What was read.
    seen: Seen,
    /// Refused over something that may change without the file: an address in use, a file of members.
    may_mend: bool,
    /// Nothing before the first.
    ended: Option<Ended>,
    /// The one that made the present generation; nothing where the start did.
    taken: Option<Ended>,
}

/// A reload that is over.
#[derive(Debug, Clone)]
pub struct Ended {
    /// In monotonic time.
    pub at: Duration,
    /// Who wanted it.
    pub cause: Cause,
    /// How it ended.
    pub outcome: Outcome,
}

impl Reloader {
    /// For a program that was started with what was `seen`.
    pub fn new(control: Arc<Control>, floor: Arc<Floor>, seen: Seen) -> Reloader {
        Reloader { control, floor, last: Mutex::new(Last { seen, may_mend: false, ended: None, taken: None }) }
    }

    /// Reads the file, and whatever it names, again and takes it. Names are asked for again too; their answers are taken
    /// as they come.
    ///
    /// # Errors
    /// Why everything stays as it was.
    pub async fn by_hand(self: &Arc<Self>, cause: Cause) -> Outcome {
        let reloader = self.clone();
        // Who asked may go away in the middle of it, and a reload is done whole.
        let task = tokio::spawn(async move { reloader.turn(cause).await });
        match task.await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(Arc::new(Refused::Broken("it came to nothing".to_owned()))),
            Err(error) => Err(Arc::new(Refused::Broken(error.to_string()))),
        }
    }

    /// The program that it reloads.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The reload before; `None` before the first.
    pub fn last(&self) -> Option<Ended> {
        self.lock().ended.clone()
    }

    /// `None`: the file says what it said the last time.
    async fn turn(&self, cause: Cause) -> Option<Outcome> {
        // One at a time: the second sees what the first has done.
        let _turn = self.control.turn_to_reload().await;
        if self.control.is_draining() {
            return Some(Err(Arc::new(Refused::Ending)));
        }
        let (path, before) = (self.control.path().to_owned(), self.lock().seen.clone());
        let read = seen::read(&path, &before).await;
        let is_known = read.seen == self.lock().seen;
        if cause == Cause::File && is_known && !self.lock().may_mend {
            return None;
        }
        let (may_mend, digest) = (read.loaded.is_ok(), read.loaded.as_ref().map_or(0, |loaded| loaded.digest));
        let taken = match read.loaded {
            Ok(loaded) => take::take(&self.control, &self.floor, loaded, read.files).await,
            Err(problems) => Err(Refused::Config(problems)),
        };
        // What a refused file wanted to know is not asked for any more.
        self.control.desk().follow(&self.control.snapshot().config);
        if cause != Cause::File {
            self.control.desk().ask_again();
        }
        let at = clock::monotonic();
        let outcome = taken.map(|report| Arc::new(self.lock().dated(at, report))).map_err(Arc::new);
        // What was told of once is not told of at each look.
        let is_old = cause == Cause::File && is_known && self.lock().is_refused_like(&outcome);
        let mut last = self.lock();
        (last.seen, last.may_mend) = (read.seen, may_mend && outcome.is_err());
        if is_old {
            return None;
        }
        let ended = Ended { at, cause, outcome: outcome.clone() };
        if outcome.as_ref().is_ok_and(|report| !report.unchanged) {
            last.taken = Some(ended.clone());
        }
        last.ended = Some(ended);
        drop(last);
        self.control.reloads().note(at, end(&outcome, digest));
        told::tell(&self.control, cause, &outcome);
        Some(outcome)
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(outcome: &Outcome, digest: u64) -> End {
    match outcome {
        Ok(report) if report.unchanged => End::Unchanged(digest),
        Ok(_) => End::Taken(digest),
        Err(_) => End::Refused,
    }
}

impl Last {
    /// `report` of a reload that ended at `at`, with the one before that counts where it changed nothing.
    fn dated(&self, at: Duration, report: Report) -> Report {
        let last_change = self.taken.as_ref().filter(|_| report.unchanged).and_then(|taken| {
            let detail = taken.outcome.as_ref().ok()?.to_string();
            let ago_ms = at.saturating_sub(taken.at).as_millis() as f64;
            Some(LastChange { ago_ms, cause: taken.cause.as_str().to_owned(), detail })
        });
        Report { last_change, ..report }
    }

    fn is_refused_like(&self, outcome: &Outcome) -> bool {
        let before = self.ended.as_ref().and_then(|ended| ended.outcome.as_ref().err());
        match (before, outcome) {
            (Some(before), Err(now)) => before.problems() == now.problems() && before.to_string() == now.to_string(),
            _ => false,
        }
    }
}

impl Refused {
    /// Everything that is wrong, warnings too.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Refused::Config(problems) => problems,
            Refused::Ending | Refused::Broken(_) => &[],
        }
    }
}

impl Cause {
    /// The word in logs and API.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Signal => "signal",
            Cause::Api => "api",
            Cause::File => "file",
        }
    }
}
