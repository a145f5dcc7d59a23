//! Replaces members that fail for long: looks when one may be due, notes down what is decided, and has it done.
//!
//! It looks at the moments that the heart names and when somebody has changed something, never in between. What is to be done
//! is on the disk before it is begun. What is done takes place beside everything else, some at once at most, and is
//! waited for by nobody.
//!
//! Not here: who is due and how many may be (`health::replacement`), what operators see (`admin`).

mod command;
mod desk;
mod due;
mod notice;
mod store;
mod trial;
mod words;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

pub use desk::{By, Finished, Overview, Result as Ending, Running, Tally};
pub use store::Store;

use crate::clock;
use crate::config::{Action, Remediation, Webhook};
use crate::discovery::supervised;
use crate::health::MemberId;
use crate::health::replacement::{Against, Answer, Ledger, Order, Patient, Rule, Turn, Wait, Ward, Who};
use crate::snapshot::{Served, Snapshot};
use crate::telemetry::EventLog;
use crate::webhook;
use desk::Desk;
use notice::Subject;

/// Replacements that are carried out at once.
const AT_ONCE: usize = 8;

/// Of those who are told at the end by name.
const NAMED: usize = 10;

/// A wall clock that was set is seen within so long, and written down.
const TICK: Duration = Duration::from_secs(5);

/// At the end the disk has so long.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Told at once; then whoever else has something to do on this thread does it.
const TOLD_AT_ONCE: usize = 32;

/// Looks that follow each other take at least so long.
const LEAST: Duration = Duration::from_millis(50);

/// Why a member is not replaced that somebody wants replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The pool or the member is not there.
    #[error("it is not there any more")]
    Gone,
    /// What is configured only observes.
    #[error("the `remediation` of pool {0:?} only observes")]
    OnlyObserves(String),
    /// Nothing is configured that would do it.
    #[error("pool {0:?} has no `remediation`, so there is nobody to replace it")]
    NoAction(String),
    /// Its name has no address.
    #[error("its name has no address, so there is nobody to replace")]
    NoAddress,
    /// Somebody is about it already.
    #[error("it is being replaced already")]
    Running,
    /// The process is about to end.
    #[error("the process is ending")]
    Ending,
    /// A limit.
    #[error("{0}")]
    Full(String),
    /// It cannot be noted down.
    #[error("what is done cannot be noted down in `state_dir`, so nothing is: {0}")]
    Unnoted(String),
}

/// A replacement that has begun, or will.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// Of this one alone; whoever carries it out is told the same.
    pub id: String,
    /// It waits for a place: as many are being carried out as may be at once.
    pub is_queued: bool,
    /// The pools it counts for.
    pub counts_for: Vec<Arc<str>>,
    /// Other probed pools that its machine serves.
    pub shared_with: Vec<Arc<str>>,
}

/// Replaces members.
#[derive(Debug)]
pub struct Remediator {
    snapshot: Arc<ArcSwap<Snapshot>>,
    events: Arc<EventLog>,
    store: Store,
    desk: Mutex<Desk>,
    /// One decision after the other, and each on the disk before the next.
    turn: tokio::sync::Mutex<()>,
    wake: Notify,
    places: Arc<Semaphore>,
    is_ending: AtomicBool,
    restarts: Arc<AtomicU64>,
}

impl Remediator {
    /// For the present generation and all that follow; nothing is looked at yet.
    pub fn new(snapshot: Arc<ArcSwap<Snapshot>>, events: Arc<EventLog>, store: Store) -> Arc<Remediator> {
        let ledger = store.load(clock::monotonic(), wall());
        Arc::new(Remediator {
            snapshot,
            events,
            store,
            desk: Mutex::new(Desk::new(Ward::new(ledger))),
            turn: tokio::sync::Mutex::new(()),
            wake: Notify::new(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            is_ending: AtomicBool::new(false),
            restarts: Arc::new(AtomicU64::new(0)),
        })
    }

    /// Looks from now on, for as long as the process serves.
    pub fn follow(self: &Arc<Self>) -> AbortHandle {
        let remediator = self.clone();
        supervised("the replacement of members".to_owned(), self.restarts.clone(), move || remediator.clone().attend())
    }

    /// Somebody has changed something: who is there, what is wanted of them, or the rules.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Begins nothing more: what waits for a place is given up. Commands that run go on without us; what webhooks still
    /// wait for is given up.
    pub fn stop(&self) {
        if self.is_ending.swap(true, Relaxed) {
            return;
        }
        let (running, queued) = {
            let desk = self.desk();
            (desk.running().iter().map(|one| words::whose(one)).collect::<Vec<_>>(), desk.queued())
        };
        self.places.close();
        if !running.is_empty() {
            let (count, members) = (running.len(), words::some(&running, NAMED));
            tracing::warn!(
                target: "remediate", running = count,
                "{count} replacements are not over: commands go on, webhooks are not tried again: {members}"
            );
        }
        if !queued.is_empty() {
            let of: Vec<String> = queued.iter().map(words::whose).collect();
            let (count, members) = (of.len(), words::some(&of, NAMED));
            tracing::warn!(target: "remediate", queued = count, "{count} replacements never began: {members}");
        }
        for one in &queued {
            self.give_up(one);
        }
    }

    /// Where the ledger is kept.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How it stands.
    pub fn overview(&self) -> Overview {
        let mut desk = self.desk();
        desk.ward.advance(clock::monotonic(), wall());
        desk.overview()
    }

    /// What became of a pool's members so far.
    pub fn tally(&self, pool: &str) -> Tally {
        self.desk().tally(pool)
    }

    /// Replaces a member now, however it is: the limits hold all the same.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn by_hand(self: &Arc<Self>, pool: &str, id: MemberId) -> std::result::Result<Begun, Refused> {
        let (remediator, pool) = (self.clone(), pool.to_owned());
        // Who asked may go away in the middle of it, and what is noted down is done.
        let task = tokio::spawn(async move { remediator.at_once(&pool, id).await });
        task.await.unwrap_or(Err(Refused::Ending))
    }

    async fn at_once(self: &Arc<Self>, pool: &str, id: MemberId) -> std::result::Result<Begun, Refused> {
        let _turn = self.turn.lock().await;
        let snapshot = self.snapshot.load_full();
        let served = snapshot.pools.get(pool).ok_or(Refused::Gone)?;
        if served.config.observed_remediation.is_some() {
            return Err(Refused::OnlyObserves(pool.to_owned()));
        }
        if served.config.remediation.is_none() {
            return Err(Refused::NoAction(pool.to_owned()));
        }
        if self.is_ending.load(Relaxed) {
            return Err(Refused::Ending);
        }
        let subject = Subject::of(served, id).ok_or(Refused::Gone)?;
        let who: Who = (served.live.name().clone(), id);
        let answer = {
            let mut desk = self.desk();
            if let Some((one, before)) = desk.insist(&who) {
                if before == By::Rule {
                    self.events.publish(words::queued(&subject, By::Hand, AT_ONCE));
                }
                return Ok(Begun::of(&one));
            }
            if desk.is_running(&who) {
                return Err(Refused::Running);
            }
            let patients = patients(&snapshot, &mut desk, None);
            let max_global = snapshot.config.max_global;
            if desk.ward.waiting().contains_key(&who) {
                desk.deciding.insert(who.clone());
            }
            desk.ward.by_hand(clock::monotonic(), wall(), &patients, &who, max_global).ok_or(Refused::NoAddress)?
        };
        let order = match answer {
            Answer::Start(order) => order,
            Answer::Wait(wait) => {
                self.desk().count(pool, |tally| tally.refused += 1);
                self.events.publish(words::refused(&subject, &wait));
                return Err(Refused::Full(words::why(&wait)));
            }
        };
        if let Err(cause) = self.note(std::slice::from_ref(&order), By::Hand).await {
            return Err(Refused::Unnoted(cause));
        }
        self.begin(&subject, order, By::Hand).await
    }

    async fn attend(self: Arc<Self>) {
        loop {
            let next = self.look().await;
            self.keep().await;
            let mut rest = std::pin::pin!(async {
                match next {
                    Some(at) => tokio::time::sleep(at.saturating_sub(clock::monotonic()).max(LEAST)).await,
                    None => std::future::pending().await,
                }
            });
            loop {
                tokio::select! {
                    () = self.wake.notified() => break,
                    () = &mut rest => break,
                    () = tokio::time::sleep(TICK), if self.keeps() => self.keep().await,
                }
            }
        }
    }

    /// Looks at everyone, has done what is due, and says when to look again.
    async fn look(self: &Arc<Self>) -> Option<Duration> {
        let _turn = self.turn.lock().await;
        if self.is_ending.load(Relaxed) {
            return None;
        }
        let snapshot = self.snapshot.load_full();
        let observed = self.look_on(&snapshot).await;
        if snapshot.pools.values().all(|pool| pool.config.remediation.is_none()) && self.desk().is_at_rest() {
            return observed;
        }
        let (turns, next) = {
            let mut desk = self.desk();
            let patients = patients(&snapshot, &mut desk, None);
            let (turns, next) = desk.ward.look(clock::monotonic(), wall(), &patients, snapshot.config.max_global);
            let started = turns.iter().filter(|turn| matches!(turn, Turn::Start(_)));
            desk.deciding = started.map(|turn| turn.who().clone()).collect();
            (turns, next)
        };
        let (orders, rest): (Vec<Turn>, Vec<Turn>) = turns.into_iter().partition(|turn| matches!(turn, Turn::Start(_)));
        let order = |turn| if let Turn::Start(order) = turn { Some(order) } else { None };
        let orders: Vec<Order> = orders.into_iter().filter_map(order).collect();
        // What cannot be noted down is told, and tried again at the next look.
        if self.note(&orders, By::Rule).await.is_ok() {
            for order in orders {
                let served = snapshot.pools.get(&*order.who.0);
                if let Some(subject) = served.and_then(|served| Subject::of(served, order.who.1)) {
                    // What speaks against it is told.
                    let _ = self.begin(&subject, order, By::Rule).await;
                } else {
                    self.desk().ward.give_up(&order);
                }
            }
        }
        self.tell(&snapshot, rest).await;
        next.into_iter().chain(observed).min()
    }

    /// Whether there is something that the next process has to know.
    fn keeps(&self) -> bool {
        let desk = self.desk();
        self.store.dir().is_some() && (desk.written.is_none() || !desk.ward.ledger().is_empty())
    }

    /// Writes the ledger down where the last one would mislead the next process; where that fails, at the next look.
    async fn keep(&self) {
        if !self.keeps() {
            return;
        }
        let _turn = self.turn.lock().await;
        let ledger = {
            let mut desk = self.desk();
            desk.ward.advance(clock::monotonic(), wall());
            let ledger = desk.ward.ledger();
            if desk.written.is_some_and(|written| !ledger.is_stale(written)) {
                return;
            }
            ledger.clone()
        };
        let _ = self.write(&ledger).await;
    }

    /// Writes the ledger down for the next process, at the end; not for ever.
    pub async fn close(&self) {
        if !self.keeps() {
            return;
        }
        let write = async {
            let _turn = self.turn.lock().await;
            let ledger = {
                let mut desk = self.desk();
                desk.ward.advance(clock::monotonic(), wall());
                desk.ward.ledger().clone()
            };
            self.write(&ledger).await
        };
        let written = tokio::time::timeout(LAST_WRITE, write).await;
        if let Err(cause) = written.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
            tracing::warn!(target: "remediate", cause, "what was replaced could not be written down at the end");
        }
    }

    /// The turn is ours: one ledger after the other.
    async fn write(&self, ledger: &Ledger) -> std::result::Result<(), String> {
        self.store.save(ledger).await?;
        self.desk().written = Some(ledger.now());
        Ok(())
    }

    /// Writes down what is about to be done. Where that fails it is taken back.
    async fn note(&self, orders: &[Order], by: By) -> std::result::Result<(), String> {
        if orders.is_empty() {
            return Ok(());
        }
        let ledger = self.desk().ward.ledger().clone();
        let Err(cause) = self.write(&ledger).await else { return Ok(()) };
        for order in orders.iter().rev() {
            let is_news = {
                let mut desk = self.desk();
                let is_news = desk.ward.take_back(order);
                desk.count(&order.who.0, |tally| match by {
                    By::Rule => tally.deferred += u64::from(is_news),
                    By::Hand => tally.refused += 1,
                });
                is_news
            };
            let snapshot = self.snapshot.load();
            let served = snapshot.pools.get(&*order.who.0);
            if let Some(subject) = served.and_then(|served| Subject::of(served, order.who.1)).filter(|_| is_news) {
                self.events.publish(words::unnoted(&subject, by, &cause));
            }
        }
        Err(cause)
    }

    /// Has a member replaced, at once or when there is a place; the turn is ours.
    ///
    /// # Errors
    /// It is not wanted any more: writing it down may have taken its time.
    async fn begin(self: &Arc<Self>, subject: &Subject, order: Order, by: By) -> std::result::Result<Begun, Refused> {
        let place = self.places.clone().try_acquire_owned().ok();
        let one = Running {
            id: format!("{:032x}", fastrand::u128(..)),
            who: order.who.clone(),
            member: subject.member().clone(),
            by,
            since: order.decided,
            is_queued: true,
            order,
        };
        let under = Under { remediator: self.clone(), who: one.who.clone(), id: one.id.clone() };
        self.desk().start(one.clone());
        let begun = Begun { is_queued: place.is_none(), ..Begun::of(&one) };
        let task = match place {
            Some(place) => match self.take_up(&one) {
                Ok((one, subject, rule)) => self.clone().carry_out(under, place, one, subject, rule),
                Err(against) => {
                    self.give_up(&one);
                    self.note_dropped().await;
                    return Err(against.map_or(Refused::Ending, |against| Refused::of(&against, &one)));
                }
            },
            None if self.is_ending.load(Relaxed) => {
                self.give_up(&one);
                self.note_dropped().await;
                return Err(Refused::Ending);
            }
            None => {
                self.desk().count(&one.who.0, |tally| tally.queued += 1);
                self.events.publish(words::queued(subject, by, AT_ONCE));
                tokio::spawn(self.clone().wait_for_place(under, one));
                return Ok(begun);
            }
        };
        tokio::spawn(task);
        Ok(begun)
    }

    async fn wait_for_place(self: Arc<Self>, under: Under, one: Running) {
        let Ok(place) = self.places.clone().acquire_owned().await else {
            // The end, which may not have come to this one yet.
            return self.give_up(&one);
        };
        match self.take_up(&one) {
            Ok((one, subject, rule)) => self.carry_out(under, place, one, subject, rule).await,
            Err(_) => {
                self.give_up(&one);
                drop(place);
                let _turn = self.turn.lock().await;
                self.note_dropped().await;
            }
        }
    }

    /// Begins what may have waited, as it is wanted by now; where something speaks against it, gives it up. An error of nothing is
    /// the end of the process.
    fn take_up(&self, one: &Running) -> std::result::Result<(Running, Subject, Remediation), Option<Against>> {
        let snapshot = self.snapshot.load_full();
        let taken = {
            let mut desk = self.desk();
            let present = desk.present(&one.who, &one.id).filter(|_| !self.is_ending.load(Relaxed));
            let Some(one) = present.cloned() else { return Err(None) };
            let patients = patients(&snapshot, &mut desk, Some(&one.who));
            let (now, max_global) = (clock::monotonic(), snapshot.config.max_global);
            let against = desk.ward.against(now, wall(), &patients, &one.order, max_global);
            let served = snapshot.pools.get(&*one.who.0);
            let found = served.and_then(|pool| Some((Subject::of(pool, one.who.1)?, pool.config.remediation.clone()?)));
            match (against, found) {
                (None, Some((subject, rule))) => {
                    desk.start_queued(&one.who, now);
                    let used = words::used(&desk.ward, &one.who.0, &rule);
                    self.events.publish(words::started(&subject, &one.order, one.by, &used, now));
                    Ok((one, subject, rule))
                }
                // Before anybody else is looked at: it does not count.
                (against, _) => {
                    desk.give_up(&one);
                    Err(against.unwrap_or(Against::Gone))
                }
            }
        };
        taken.map_err(|against| {
            self.tell_dropped(one, Some(&against));
            Some(against)
        })
    }

    /// Gives up what has not begun, since the process ends, where nobody has.
    fn give_up(&self, one: &Running) {
        let is_ours = self.desk().give_up(one);
        if is_ours {
            self.tell_dropped(one, None);
        }
    }

    fn tell_dropped(&self, one: &Running, against: Option<&Against>) {
        let snapshot = self.snapshot.load();
        let subject = snapshot.pools.get(&*one.who.0).and_then(|served| Subject::of(served, one.who.1));
        self.events.publish(words::dropped(subject.as_ref(), one, against));
    }

    /// Has the record say what it does not count any more; the turn is ours. Where that fails it counts for the next process,
    /// as if it had been done.
    async fn note_dropped(&self) {
        let ledger = self.desk().ward.ledger().clone();
        let _ = self.write(&ledger).await;
    }

    async fn carry_out(
        self: Arc<Self>,
        _under: Under,
        _place: OwnedSemaphorePermit,
        one: Running,
        subject: Subject,
        rule: Remediation,
    ) {
        let Running { id, order, by, .. } = one.clone();
        let began = clock::monotonic();
        let notice = notice::notice(&id, by, &order, &subject, &rule);
        let result = match &rule.action {
            Action::Command { argv, timeout } => command::run(argv, &notice, *timeout).await,
            Action::Webhook(webhook) => {
                let (this, one) = (&self, &one);
                let again = |pause| async move {
                    tokio::time::sleep(pause).await;
                    this.still_asks(one)
                };
                webhook::call(webhook, &id, Bytes::from(notice), again).await.map_err(|untaken| untaken.failed)
            }
        };
        let took = clock::monotonic().saturating_sub(began);
        let finished = Finished {
            id,
            pool: subject.pool().clone(),
            member: subject.member().clone(),
            by,
            began,
            took,
            result: match &result {
                Ok(_) => Ending::Done,
                Err(failed) => Ending::Failed(failed.word),
            },
            detail: match result {
                Ok(said) => crate::telemetry::shown(&said),
                Err(failed) => crate::telemetry::shown(&failed.detail),
            },
        };
        let now_stands = self.snapshot.load().pools.get(&*order.who.0).and_then(|now| Subject::of(now, order.who.1));
        let told = words::finished(now_stands.as_ref().unwrap_or(&subject), &finished);
        // Both at once: whoever hears that it is over finds it so.
        let mut desk = self.desk();
        desk.finish(&one.who, finished);
        self.events.publish(told);
    }

    /// Whom to ask once more for a replacement that is under way, as the file has it by now.
    ///
    /// # Errors
    /// What speaks against it: what does so for one that has not begun.
    fn still_asks(&self, one: &Running) -> std::result::Result<Webhook, String> {
        let snapshot = self.snapshot.load();
        let against = {
            let mut desk = self.desk();
            let patients = patients(&snapshot, &mut desk, Some(&one.who));
            desk.ward.against(clock::monotonic(), wall(), &patients, &one.order, snapshot.config.max_global)
        };
        let served = snapshot.pools.get(&*one.who.0);
        let action = served.and_then(|served| Some(&served.config.remediation.as_ref()?.action));
        match (against, action) {
            (Some(against), _) => Err(words::objection(&against)),
            (None, Some(Action::Webhook(webhook))) => Ok(webhook.clone()),
            (None, Some(Action::Command { .. })) => Err("its pool has a command for that by now".to_owned()),
            (None, None) => Err(words::objection(&Against::Off)),
        }
    }

    /// Tells of who waits and who does not any more; of many that are alike only the first are named.
    async fn tell(&self, snapshot: &Snapshot, turns: Vec<Turn>) {
        let (mut crowd, mut pauses) = (words::Crowd::default(), Pauses::default());
        for turn in turns {
            let who = turn.who();
            if let Turn::Wait(_, wait) = &turn {
                self.desk().count(&who.0, |tally| match wait {
                    Wait::Shared(_) => tally.spared += 1,
                    _ => tally.deferred += 1,
                });
            }
            if !crowd.names(&turn) {
                continue;
            }
            if let Some(subject) = snapshot.pools.get(&*who.0).and_then(|served| Subject::of(served, who.1)) {
                self.events.publish(words::turn(&subject, &turn));
                pauses.told().await;
            }
        }
        crowd.rest().for_each(|event| drop(self.events.publish(event)));
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who tells much lets others have their turn in between.
#[derive(Debug, Default)]
struct Pauses(usize);

impl Pauses {
    async fn told(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(TOLD_AT_ONCE) {
            tokio::task::yield_now().await;
        }
    }
}

/// A replacement that is under way; over when dropped, whatever became of it.
struct Under {
    remediator: Arc<Remediator>,
    who: Who,
    id: String,
}

impl Drop for Under {
    fn drop(&mut self) {
        self.remediator.desk().end(&self.who, &self.id);
        // It may be due again already.
        self.remediator.wake();
    }
}

impl Begun {
    fn of(one: &Running) -> Begun {
        let Order { counts_for, shared_with, .. } = one.order.clone();
        Begun { id: one.id.clone(), is_queued: one.is_queued, counts_for, shared_with }
    }
}

impl Refused {
    fn of(against: &Against, one: &Running) -> Refused {
        match against {
            Against::Gone | Against::Over => Refused::Gone,
            Against::Off => Refused::NoAction(one.who.0.to_string()),
            Against::Wait(wait) => Refused::Full(words::why(wait)),
        }
    }
}

/// Every member of a pool with probes. Whoever is being replaced is in somebody's hands, but for `its_own`.
fn patients(snapshot: &Snapshot, desk: &mut Desk, its_own: Option<&Who>) -> Vec<Patient> {
    let (mut patients, stretch) = (Vec::new(), desk.stretch(snapshot));
    for served in snapshot.pools.values() {
        let rule = rule(served, served.config.remediation.as_ref(), stretch);
        if !judges(served) {
            continue;
        }
        served.live.read(|health, _| {
            let members = health.members().iter();
            patients.extend(members.filter_map(|member| Patient::of(served.live.name(), member, rule)));
        });
    }
    for patient in &mut patients {
        patient.is_in_hand |= its_own != Some(&patient.who) && desk.is_running(&patient.who);
    }
    patients
}

/// Whether the pool has a probe that says of its members how they are: one that only observes does not.
fn judges(served: &Served) -> bool {
    served.config.probe.is_some() && served.config.rules.probed
}

fn rule(served: &Served, remediation: Option<&Remediation>, stretch: f64) -> Option<Rule> {
    let (remediation, probe) = (remediation?, served.config.probe.as_ref()?);
    Some(Rule { after: remediation.after, pace: probe.pace().mul_f64(stretch), limits: remediation.limits })
}

/// Since 1970.
fn wall() -> Duration {
    clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default()
}
