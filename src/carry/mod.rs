//! What is known of members, from one process to the next: written into `state_dir` while this one runs, and given to the
//! pools before the next one serves (health.md §9).
//!
//! It is written a moment after anything has changed, now and then so that it does not grow old, and at the end; off the way
//! of requests and probes. A file that cannot be read costs a line of the log, and everybody starts fresh.
//!
//! Not here: what it means for a member (`health::carry`), the directory (`state_dir`).

mod boot;
mod file;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::task::AbortHandle;

use crate::config::Config;
use crate::discovery::supervised;
use crate::health::Carried;
use crate::snapshot::Snapshot;
use crate::state_dir::StateDir;
use crate::telemetry::EventLog;
use crate::{clock, disk};
use boot::Stamp;
use file::{File, MemberRecord};

const FILE: &str = "health.json";

/// Changes that come together are written together.
const GATHER: Duration = Duration::from_millis(100);

/// What is older than so many intervals of its probe is not believed.
const INTERVALS: u32 = 10;

/// It is written again so often while nothing changes: at a third of the shortest interval's limit, within these.
const PACE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Of its time writing takes no more than one part in so many.
const SHARE: u32 = 50;

/// At the end the disk has so long.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Writes down what is known.
#[derive(Debug)]
pub struct Carrier {
    dir: Arc<StateDir>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    events: Arc<EventLog>,
    /// One write after the other.
    turn: tokio::sync::Mutex<()>,
    is_failing: AtomicBool,
    /// When what is there was written, in milliseconds of monotonic time; where nothing is, the start.
    written_at: AtomicI64,
    failures: AtomicU64,
    restarts: Arc<AtomicU64>,
}

/// What a process has left for the next one.
#[derive(Debug, Default)]
pub struct Left {
    /// By pool.
    pub pools: HashMap<String, Vec<Carried>>,
    /// How long ago it was written; zero: nothing is there that could be read.
    pub age: Duration,
}

/// What the process before has left of the pools that `config` has.
pub fn left(dir: &StateDir, config: &Config) -> Left {
    let read = dir.read(FILE).map_err(|error| error.to_string());
    let read = read.and_then(|bytes| bytes.map(|bytes| File::read(&bytes)).transpose());
    let path = dir.path().display();
    let file = match read {
        Ok(None) => return Left::default(),
        Ok(Some(file)) => file,
        Err(cause) => {
            let error = dir.set_aside(FILE).err().map(|error| error.to_string());
            tracing::warn!(
                target: "state", cause, error,
                "{path}/{FILE} cannot be read, so everybody starts fresh; it is kept as {FILE}.damaged"
            );
            return Left::default();
        }
    };
    let (now, here) = (clock::monotonic(), Stamp::now(wall()));
    let age = file.left.age(&here);
    if age.is_none() {
        tracing::warn!(
            target: "state",
            "{path}/{FILE} is of a time that has not come yet, so everybody starts fresh: the clock was set back"
        );
    }
    let stretch = config.max_probes_per_second.map_or(1.0, |_| config.cost().stretch).max(1.0);
    let mut pools = HashMap::new();
    for (name, members) in file.pools {
        let Some(pool) = config.pools.get(&name) else { continue };
        let interval = pool.probe.as_ref().map(|probe| probe.idle.map_or(probe.interval, |idle| idle.interval));
        let most = interval.map_or(Duration::ZERO, |interval| interval.mul_f64(stretch) * INTERVALS);
        let member = |record: MemberRecord| match age {
            Some(age) => record.carried(now, age, most),
            // An operator's word has no age.
            None => record.carried(now, Duration::ZERO, Duration::ZERO).map(|one| Carried { evidence: None, ..one }),
        };
        pools.insert(name, members.into_iter().filter_map(member).collect());
    }
    Left { pools, age: age.unwrap_or_default() }
}

/// Gives the pools of the first generation what was left, before anything is served.
pub fn resume(snapshot: &Snapshot, mut left: HashMap<String, Vec<Carried>>) {
    let (now, mut taken, mut believed) = (clock::monotonic(), 0, 0);
    for (name, served) in &snapshot.pools {
        let Some(carried) = left.remove(name) else { continue };
        believed += carried.iter().filter(|one| one.evidence.is_some()).count();
        taken += served.live.resume(now, carried);
    }
    if taken > 0 {
        tracing::info!(
            target: "state", members = taken, believed,
            "{taken} members are known from the process before; of {believed} it is believed what their probes had shown"
        );
    }
}

impl Carrier {
    /// Writes into `dir`, from whatever generation is present; nothing is written yet, and what is there is as old as `age`.
    pub fn new(
        dir: Arc<StateDir>,
        age: Duration,
        snapshot: Arc<ArcSwap<Snapshot>>,
        events: Arc<EventLog>,
    ) -> Arc<Carrier> {
        let written_at = AtomicI64::new(millis(clock::monotonic()).saturating_sub(millis(age)));
        Arc::new(Carrier {
            dir,
            snapshot,
            events,
            turn: tokio::sync::Mutex::default(),
            is_failing: AtomicBool::new(false),
            written_at,
            failures: AtomicU64::new(0),
            restarts: Arc::default(),
        })
    }

    /// Writes from now on, for as long as the process serves.
    pub fn follow(self: &Arc<Self>) -> AbortHandle {
        let carrier = self.clone();
        supervised("what is known of members".to_owned(), self.restarts.clone(), move || carrier.clone().attend())
    }

    /// How old is what is written; where nothing is, how long nothing was.
    pub fn age(&self, now: Duration) -> Duration {
        let age = millis(now).saturating_sub(self.written_at.load(Relaxed));
        Duration::from_millis(age.max(0) as u64)
    }

    /// How often it could not be written.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Writes once more, at the end; not for ever.
    pub async fn close(&self) {
        if tokio::time::timeout(LAST_WRITE, self.write()).await.is_err() {
            tracing::warn!(target: "state", "what is known of members could not be written down at the end: it takes too long");
        }
    }

    async fn attend(self: Arc<Self>) {
        let mut latest = self.events.latest();
        loop {
            latest.mark_unchanged();
            let began = clock::monotonic();
            self.write().await;
            let rest = (clock::monotonic().saturating_sub(began) * SHARE).max(GATHER);
            tokio::time::sleep(rest).await;
            let again = tokio::time::sleep(self.pace().saturating_sub(rest));
            tokio::select! {
                changed = latest.changed() => if changed.is_err() { return },
                () = again => {}
            }
        }
    }

    /// How often it is written while nothing changes: often enough for the pool that is probed most often.
    fn pace(&self) -> Duration {
        let snapshot = self.snapshot.load();
        let probes = snapshot.pools.values().filter_map(|pool| pool.config.probe.as_ref());
        let shortest = probes.map(|probe| probe.interval).min().unwrap_or(PACE.1);
        (shortest * INTERVALS / 3).clamp(PACE.0, PACE.1)
    }

    async fn write(&self) {
        let _turn = self.turn.lock().await;
        let snapshot = self.snapshot.load_full();
        let dir = self.dir.clone();
        // The text of ten thousand members takes its time, and so may the disk.
        let path = self.dir.path().join(FILE);
        let written = disk::read(&path, move || {
            let pools = snapshot.pools.iter();
            let known: BTreeMap<String, Vec<Carried>> =
                pools.map(|(name, pool)| (name.clone(), pool.live.read(|health, _| health.carried()))).collect();
            let file = File::new(clock::monotonic(), Stamp::now(wall()), known);
            dir.write(FILE, &file.text())
        });
        let cause = match written.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(unread) => Some(unread.to_string()),
        };
        match cause {
            None => self.written_at.store(millis(clock::monotonic()), Relaxed),
            Some(_) => drop(self.failures.fetch_add(1, Relaxed)),
        }
        let was_failing = self.is_failing.swap(cause.is_some(), Relaxed);
        let path = self.dir.path().display();
        match cause {
            Some(cause) if !was_failing => {
                tracing::error!(target: "state", cause, "{path}/{FILE} cannot be written: a restart would know nothing of now");
            }
            None if was_failing => tracing::info!(target: "state", "{path}/{FILE} is written again"),
            _ => {}
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Since 1970.
fn wall() -> Duration {
    clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default()
}
