//! What operators may do while it runs, whoever asks: signals, the admin API, a reload.
//!
//! [`Control`] is the running program from their side, [`Floor`] the threads and listeners that serve, [`Prepared`] a
//! configuration whose fallible parts are done.
//!
//! Not here: how operators ask (`admin`, `server`).

mod floor;
mod prepare;
mod reloads;
mod update;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use floor::{Bound, Floor, bind, threads};
pub use prepare::Prepared;
pub use reloads::{End, Reloads, Status};
pub use update::{Few, keep_up};

use crate::alert::Alerter;
use crate::carry::Carrier;
use crate::clock;
use crate::composite::Composites;
use crate::config::{Config, Passive, Probe, Problem};
use crate::diagnostics::Diagnostics;
use crate::discovery::Desk;
use crate::failover::Switchboard;
use crate::health::{Admin, MemberId, Mode};
use crate::listener::Traffic;
use crate::pool::{Audience, Judged, Member, Pool};
use crate::probe::{Allowance, Check, Haste, Idle, Prober, Recipe, Report, Taping, Target};
use crate::remediate::Remediator;
use crate::snapshot::{Found, Located, Served, Snapshot};
use crate::state_dir::StateDirError;
use crate::telemetry::{AccessLog, EventLog, Logging};
use crate::tls::TlsError;

/// Why a configuration cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The file has errors.
    #[error("{} {} in the configuration; nothing was started", .0.len(), if .0.len() == 1 { "error" } else { "errors" })]
    Config(Vec<Problem>),
    /// A listening address cannot be had.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// As configured.
        address: SocketAddr,
        /// What the kernel says.
        cause: io::Error,
    },
    /// The access log cannot be opened; the cause names the file.
    #[error("cannot open the access log: {0}")]
    Log(io::Error),
    /// The machine's authorities cannot be read.
    #[error("cannot start: {0}")]
    Authorities(#[from] TlsError),
    /// The directory of what is kept cannot be had.
    #[error("cannot start: {0}")]
    State(#[from] StateDirError),
    /// Threads or their reactors cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// What a [`Control`] is made of.
#[derive(Debug)]
pub struct Parts {
    /// The configuration file.
    pub path: PathBuf,
    /// The present generation.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// Whom transitions are told.
    pub audience: Arc<Audience>,
    /// Those of the present generation.
    pub composites: Arc<Composites>,
    /// The routes with several pools; of the audience too.
    pub switchboard: Arc<Switchboard>,
    /// Of the present generation.
    pub prepared: Prepared,
    /// Who asks for the members of the present generation.
    pub desk: Arc<Desk>,
    /// Says that the process wants to end.
    pub ending: watch::Sender<bool>,
    /// The access log.
    pub log: AccessLog,
    /// The program's own log.
    pub logging: Logging,
    /// What is going on.
    pub traffic: Arc<Traffic>,
    /// What becomes of reloads.
    pub reloads: Reloads,
    /// Who replaces members.
    pub remediator: Arc<Remediator>,
    /// Who tells others what is wrong.
    pub alerter: Arc<Alerter>,
    /// Who writes down what is known of members; `None`: there is no `state_dir`.
    pub carrier: Option<Arc<Carrier>>,
    /// What the limit on descriptors leaves to probes.
    pub allowance: Allowance,
}

/// The running program, as operators see it.
pub struct Control {
    path: PathBuf,
    snapshot: Arc<ArcSwap<Snapshot>>,
    audience: Arc<Audience>,
    composites: Arc<Composites>,
    switchboard: Arc<Switchboard>,
    following: Mutex<Following>,
    desk: Arc<Desk>,
    ending: watch::Sender<bool>,
    log: AccessLog,
    logging: Logging,
    traffic: Arc<Traffic>,
    prober: Arc<Prober>,
    diagnostics: Arc<Diagnostics>,
    draining: AtomicBool,
    reloading: tokio::sync::Mutex<()>,
    reloads: Reloads,
    remediator: Arc<Remediator>,
    alerter: Arc<Alerter>,
    carrier: Option<Arc<Carrier>>,
}

/// What the prober and the errands follow. Who makes them follow holds it from the look at the present generation to the
/// end, so that the last to do so has seen the latest, and a generation is never seen with another one's recipes.
struct Following {
    prepared: Prepared,
    /// What is done for pools meanwhile: waking them at their deadlines, and their members' probes at their use.
    errands: Vec<AbortHandle>,
}

/// The turn to reload; the next comes when it is dropped.
#[must_use]
pub struct Turn<'a>(#[expect(dead_code, reason = "held, not looked at")] tokio::sync::MutexGuard<'a, ()>);

impl Control {
    /// Starts probing what the present generation has.
    pub fn start(parts: Parts) -> io::Result<Control> {
        let Parts {
            path,
            snapshot,
            audience,
            composites,
            switchboard,
            prepared,
            desk,
            ending,
            log,
            logging,
            traffic,
            reloads,
            remediator,
            alerter,
            carrier,
            allowance,
        } = parts;
        let prober = Arc::new(Prober::start(snapshot.load().config.max_concurrent_probes, allowance)?);
        prober.set_ceiling(snapshot.load().config.max_probes_per_second);
        let control = Control {
            path,
            snapshot,
            audience,
            composites,
            switchboard,
            following: Mutex::new(Following { prepared, errands: Vec::new() }),
            desk,
            ending,
            log,
            logging,
            traffic,
            prober,
            diagnostics: Arc::default(),
            draining: AtomicBool::new(false),
            reloading: tokio::sync::Mutex::new(()),
            reloads,
            remediator,
            alerter,
            carrier,
        };
        let (mut following, nobody) = (control.following(), Found::default());
        let pools = control.snapshot();
        for (name, served) in &pools.pools {
            update::tell_of_shared(name, &following.prepared.found, &nobody);
            prepare::tell_of_odd(&served.config, &following.prepared, &nobody);
        }
        control.diagnose(&pools.config);
        control.switchboard.follow(clock::monotonic(), pools.memories());
        control.follow(&mut following);
        drop(following);
        Ok(control)
    }

    /// The present generation.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Transitions so far.
    pub fn events(&self) -> &Arc<EventLog> {
        &self.audience.events
    }

    /// What pools add up to.
    pub fn composites(&self) -> &Composites {
        &self.composites
    }

    /// The routes with several pools.
    pub fn switchboard(&self) -> &Switchboard {
        &self.switchboard
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Turns true when the process is about to end.
    pub fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// Ready for traffic: first verdicts are in or were waited for, every required pool can serve, and it is not ending.
    /// Otherwise says why not. Looking lets time pass in each pool, so that a wait that is over counts as over even where its
    /// timer is late.
    pub fn readiness(&self) -> Result<(), String> {
        if self.is_draining() {
            return Err("ending".to_owned());
        }
        let now = clock::monotonic();
        for (name, pool) in &self.snapshot().pools {
            pool.live.advance(now);
            let mode = pool.live.roster().mode();
            if !pool.live.is_settled(now) || mode == Mode::Waiting {
                return Err(format!("pool {name:?}: first verdicts are not in"));
            }
            if pool.config.required && mode == Mode::Down {
                return Err(format!("pool {name:?} is required and cannot serve"));
            }
        }
        Ok(())
    }

    /// An operator's word on a member; `None`: no such pool or member.
    pub fn administer(&self, pool: &str, id: MemberId, admin: Admin) -> Option<()> {
        self.snapshot().pools.get(pool)?.live.administer(clock::monotonic(), id, admin).then_some(())?;
        // One that was disabled is probed again, one that is now is not.
        self.follow(&mut self.following());
        Some(())
    }

    /// Probes a member now. `None`: no such pool; false: it is not probed at all.
    pub fn probe_now(&self, pool: &str, id: MemberId) -> Option<bool> {
        Some(self.prober.probe_now(self.snapshot().pools.get(pool)?.live.name(), id))
    }

    /// When a member's next probe starts, in monotonic time.
    pub fn next_probe_at(&self, pool: &Pool, id: MemberId) -> Option<Duration> {
        self.prober.next_probe_at(pool.name(), id)
    }

    /// The configuration file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The access log.
    pub fn log(&self) -> &AccessLog {
        &self.log
    }

    /// The program's own log.
    pub fn logging(&self) -> &Logging {
        &self.logging
    }

    /// The prober.
    pub fn prober(&self) -> &Prober {
        &self.prober
    }

    /// What is kept of members that became unhealthy.
    pub fn diagnostics(&self) -> &Arc<Diagnostics> {
        &self.diagnostics
    }

    /// What is going on.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Who replaces members.
    pub fn remediator(&self) -> &Arc<Remediator> {
        &self.remediator
    }

    /// Who tells others what is wrong.
    pub fn alerter(&self) -> &Arc<Alerter> {
        &self.alerter
    }

    /// Who writes down what is known of members; `None`: there is no `state_dir`.
    pub fn carrier(&self) -> Option<&Carrier> {
        self.carrier.as_deref()
    }

    /// Who asks for members.
    pub fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// Who is a member of a pool by its sources.
    pub fn located(&self, pool: &str) -> Option<Arc<[Located]>> {
        self.following().prepared.found.shared(pool)
    }

    /// Waits for the turn to reload: one at a time, and the next sees what the one before has done.
    pub async fn turn_to_reload(&self) -> Turn<'_> {
        Turn(self.reloading.lock().await)
    }

    /// What became of reloads so far.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// Whether to take this would change nothing: the same configuration, files that hold the same, and the same members.
    pub fn is_in_force(&self, config: &Config, prepared: &Prepared) -> bool {
        let (following, snapshot) = (self.following(), self.snapshot());
        let found = &following.prepared.found;
        snapshot.is_of(config, &prepared.outfits) && config.pools.keys().all(|name| prepared.found.agrees(found, name))
    }

    /// Takes a configuration that was prepared: the next generation serves from here on. Cannot fail.
    pub fn adopt(&self, config: Arc<Config>, prepared: Prepared) -> Arc<Snapshot> {
        let mut following = self.following();
        let old = self.snapshot();
        let Prepared { found, outfits, .. } = &prepared;
        let now = clock::monotonic();
        self.composites.hold();
        let next = Arc::new(Snapshot::next(Some(&old), now, config, found, outfits, &self.audience));
        // Before anybody is served by it, who might ask for one of them; routes go by composites.
        next.look_again(now, &self.composites);
        self.switchboard.follow(clock::monotonic(), next.memories());
        self.snapshot.store(next.clone());
        old.make_way();
        let before = std::mem::replace(&mut following.prepared, prepared).found;
        // A reload may be the first to see what a source says.
        let stayed =
            next.pools.iter().filter(|(name, pool)| pool.config.is_discovered() && old.pools.contains_key(*name));
        stayed.for_each(|(name, _)| update::tell(name, &following.prepared.found, &before));
        for (name, served) in &next.pools {
            update::tell_of_shared(name, &following.prepared.found, &before);
            prepare::tell_of_odd(&served.config, &following.prepared, &before);
        }
        self.prober.set_places(next.config.max_concurrent_probes);
        self.prober.set_ceiling(next.config.max_probes_per_second);
        self.diagnose(&next.config);
        self.follow(&mut following);
        next
    }

    /// Ends probing, and asking for names, and sends nobody who waits for room on their way any more.
    pub fn stop(&self) {
        self.snapshot.load().pools.values().for_each(|pool| pool.live.queue().close());
        self.desk.stop();
        self.following().errands.drain(..).for_each(|errand| errand.abort());
        self.prober.stop();
    }

    /// Says that the process wants to end: readiness is gone, answers close their connection.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.remediator.stop();
        self.ending.send_replace(true);
    }

    fn following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what probes see of members that become unhealthy, as `config` wants it.
    fn diagnose(&self, config: &Config) {
        self.prober.set_taping(if config.diagnostics.is_some() { Taping::On } else { Taping::Off });
        self.diagnostics.set(config.diagnostics.clone());
    }

    /// Makes the prober follow exactly the members that are to be probed, and wakes pools at their deadlines.
    fn follow(&self, following: &mut Following) {
        let snapshot = self.snapshot();
        let recipes = &following.prepared.recipes;
        let recipe_of = |pool: &Arc<Served>| recipes.get(&pool.config.name);
        let targets = snapshot.pools.values().filter_map(|pool| targets(self, pool, recipe_of(pool)?));
        self.prober.follow(targets.flatten().collect());
        following.errands.drain(..).for_each(|errand| errand.abort());
        following.errands.extend(alarm(&snapshot));
        following.errands.extend(steps(&snapshot));
        following.errands.extend(self.wakers(&snapshot));
        following.errands.extend(self.attendants(&snapshot));
        following.errands.push(tokio::spawn(fail_back(self.switchboard.clone())).abort_handle());
        self.remediator.wake();
    }

    /// Tells a pool of its member's samples, and keeps what was seen where it has become unhealthy.
    fn report(&self, pool: &Arc<Pool>, id: MemberId, fingerprint: u64) -> Report {
        let (pool, events, diagnostics) = (pool.clone(), self.events().clone(), self.diagnostics.clone());
        Arc::new(move |now, sample, tracks| {
            let seen = (sample.status, sample.phases);
            let heard = pool.report(now, id, fingerprint, sample)?;
            if let (Some(fall), Some(tracks)) = (&heard.fall, tracks) {
                diagnostics.keep(&events.cursor(fall.id), fall, seen, || tracks.exchange());
            }
            Some(heard.pace)
        })
    }

    /// One task for each pool whose traffic may call for probes, or may be called away, or eject: it sees to all that.
    fn attendants(&self, snapshot: &Snapshot) -> Vec<AbortHandle> {
        let listens = |pool: &&Arc<Served>| {
            let config = &pool.config;
            config.passive != Passive::Off || config.rescue || Judged::of(config).by_traffic()
        };
        let attend = async |pool: Arc<Pool>, prober: Arc<Prober>, traffic: Arc<Traffic>| loop {
            traffic.call_away(&pool.take_fallen());
            for member in pool.take_doubted() {
                match prober.hasten(pool.name(), member.id()) {
                    Some(Haste::Made { next }) => {
                        member.tally().probe_is_hastened();
                        member.rest_until(next);
                    }
                    Some(Haste::TooSoon { before }) => member.rest_until(before),
                    None => {}
                }
            }
            match pool.next_deadline() {
                Some(deadline) => {
                    let wait = deadline.saturating_sub(clock::monotonic());
                    if tokio::time::timeout(wait, pool.calls()).await.is_err() {
                        pool.advance(clock::monotonic());
                    }
                }
                None => pool.calls().await,
            }
        };
        let pools = snapshot.pools.values().filter(listens).map(|pool| pool.live.clone());
        pools.map(|pool| tokio::spawn(attend(pool, self.prober.clone(), self.traffic.clone())).abort_handle()).collect()
    }

    /// One task for each pool that is probed more rarely while nobody uses it: it has the pool probed when somebody does.
    fn wakers(&self, snapshot: &Snapshot) -> Vec<AbortHandle> {
        let watch = async |pool: Arc<Pool>, prober: Arc<Prober>| loop {
            pool.usage().woken().await;
            prober.wake(pool.name());
        };
        let dozing = snapshot.pools.values().filter(|served| served.dozes()).map(|pool| pool.live.clone());
        dozing.map(|pool| tokio::spawn(watch(pool, self.prober.clone())).abort_handle()).collect()
    }
}

/// The members of a pool that are to be probed; `None`: it has no probe.
fn targets(control: &Control, served: &Served, recipe: &Arc<Recipe>) -> Option<Vec<Target>> {
    let (pool, probe) = (&served.live, served.config.probe.as_ref()?);
    // Under the pool's lock only what is needed is noted down; reports wait meanwhile.
    let probed: Vec<_> = pool.read(|health, members| {
        let both = health.members().iter().zip(members);
        let probed = both.filter(|(member, _)| member.admin() != Admin::Disabled);
        probed.map(|(member, live)| (member.spec().fingerprint, live.clone())).collect()
    });
    let definition = definition(probe, recipe);
    let target = |(fingerprint, live): (u64, Arc<Member>)| {
        let id = live.id();
        let mut address = live.address()?;
        address.set_port(probe.port.unwrap_or(address.port()));
        // It could be made when the configuration was prepared.
        let check = Check::new(recipe, &served.host_of(&live.key().name), address).ok()?;
        Some(Target {
            pool: pool.name().clone(),
            member: id,
            fingerprint,
            definition,
            label: live.label().clone(),
            check: Arc::new(check),
            interval: probe.interval,
            fast_interval: probe.fast_interval,
            idle: probe.idle.map(|idle| {
                let used = pool.clone();
                Idle { interval: idle.interval, is_idle: Arc::new(move |now| used.usage().is_idle(now, idle.after)) }
            }),
            report: control.report(pool, id, fingerprint),
            next_probe_at: live.next_probe_at().clone(),
        })
    };
    Some(probed.into_iter().filter_map(target).collect())
}

/// Of what is asked and expected, with what the files hold that it names.
fn definition(probe: &Probe, recipe: &Recipe) -> u64 {
    let mut hasher = DefaultHasher::new();
    (probe.definition(), recipe.seal()).hash(&mut hasher);
    hasher.finish()
}

/// Lets time pass in the pools that wait for it, each at its deadline; one task for all.
fn alarm(snapshot: &Snapshot) -> Option<AbortHandle> {
    let pools = snapshot.pools.values().map(|pool| &pool.live);
    let mut waiting: Vec<(Duration, Arc<Pool>)> =
        pools.filter_map(|pool| Some((pool.next_deadline()?, pool.clone()))).collect();
    waiting.sort_by_key(|(deadline, _)| *deadline);
    let ring = async |waiting: Vec<(Duration, Arc<Pool>)>| {
        for (deadline, pool) in waiting {
            tokio::time::sleep(deadline.saturating_sub(clock::monotonic())).await;
            pool.advance(clock::monotonic());
        }
    };
    (!waiting.is_empty()).then(|| tokio::spawn(ring(waiting)).abort_handle())
}

/// One task for each pool with a slow start: it takes the steps of whoever comes back, each at its time.
fn steps(snapshot: &Snapshot) -> Vec<AbortHandle> {
    let take = async |pool: Arc<Pool>| loop {
        let rest = async {
            match pool.next_deadline() {
                Some(deadline) => tokio::time::sleep(deadline.saturating_sub(clock::monotonic())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = pool.retimed() => {}
            () = rest => pool.advance(clock::monotonic()),
        }
    };
    let starts_slowly = snapshot.pools.values().filter(|served| !served.config.rules.slow_start.is_zero());
    starts_slowly.map(|served| tokio::spawn(take(served.live.clone())).abort_handle()).collect()
}

/// Lets time pass for the routes with several pools, whenever it brings one back to a better pool.
async fn fail_back(switchboard: Arc<Switchboard>) {
    loop {
        let rest = async {
            match switchboard.next_deadline() {
                Some(deadline) => tokio::time::sleep(deadline.saturating_sub(clock::monotonic())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = switchboard.stirred() => {}
            () = rest => switchboard.advance(clock::monotonic()),
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("path", &self.path).finish_non_exhaustive()
    }
}
