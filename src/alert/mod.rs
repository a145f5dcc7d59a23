//! Tells others what is wrong, and when it is over: in a pool, a route, a composite, with a member.
//!
//! It listens to the events, one after the other, and looks at how everything stands where it may have missed some. Each
//! episode is told once and its end once, whatever is reloaded meanwhile. What is owed waits in its alert's ledger;
//! nobody waits for it.
//!
//! Not here: how a request is sent (`webhook`), who replaces members (`remediate`).

mod conditions;
mod episodes;
mod notice;
mod outbox;
mod owed;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::clock;
use crate::composite::{Beneath, Composites};
use crate::config::Alert;
use crate::discovery::supervised;
use crate::snapshot::{Snapshot, Way};
use crate::telemetry::{Event, EventLog};
use conditions::{Conditions, Key, Moment, Roll, Standings, Subject};
use episodes::{Episodes, Phase, Step, Telling};
use notice::Standing;
use outbox::Outbox;
use owed::Letter;

pub use outbox::Tally;

/// At the end what waits has so long.
const LAST_LETTERS: Duration = Duration::from_secs(3);

/// Looks that follow each other take at least so long.
const LEAST: Duration = Duration::from_millis(10);

/// What is remembered is looked through so often, and forgotten where it is old.
const SWEEP: Duration = Duration::from_secs(60);

/// Events that are taken in at once.
const AT_ONCE: usize = 100;

/// Who is due for replacement right now: pool and member, as the pool shows it. `None`: nobody knows any more.
pub type WhoIsDue = Box<dyn Fn() -> Option<BTreeSet<(Arc<str>, Arc<str>)>> + Send + Sync>;

/// Tells others what is wrong.
pub struct Alerter {
    snapshot: Arc<ArcSwap<Snapshot>>,
    composites: Arc<Composites>,
    events: Arc<EventLog>,
    who_is_due: WhoIsDue,
    desk: Mutex<Desk>,
    restarts: Arc<AtomicU64>,
}

/// What is known at one moment.
#[derive(Debug, Default)]
struct Desk {
    conditions: Conditions,
    episodes: Episodes,
    outboxes: BTreeMap<Arc<str>, Outbox>,
    /// Of those also that are not configured any more, so that counts do not go back when they return.
    tallies: BTreeMap<Arc<str>, Arc<Tally>>,
    /// The last event that was heard.
    heard: u64,
    /// The generation that was looked at; 0: none was.
    generation: u64,
    /// When all of it was last looked at, in monotonic time.
    swept_at: Duration,
    is_ending: bool,
}

/// One alert, for who shows it.
#[derive(Debug, Clone)]
pub struct Overview {
    /// Its name.
    pub name: Arc<str>,
    /// What it has told of, as far as that was taken and is not over, by occasion and subject.
    pub open: Vec<Open>,
    /// How much is still to be sent, what is being tried included.
    pub waiting: u64,
    /// What became of what was told.
    pub tally: Arc<Tally>,
}

/// One episode that was told of.
#[derive(Debug, Clone)]
pub struct Open {
    /// Of this one alone.
    pub episode: String,
    /// As `fallback/pool/web`.
    pub key: String,
    /// In a sentence.
    pub message: String,
    /// Since when.
    pub since: SystemTime,
}

impl Alerter {
    /// For the present generation and all that follow; nothing is told yet.
    pub fn new(
        snapshot: Arc<ArcSwap<Snapshot>>,
        composites: Arc<Composites>,
        events: Arc<EventLog>,
        who_is_due: WhoIsDue,
    ) -> Arc<Alerter> {
        Arc::new(Alerter { snapshot, composites, events, who_is_due, desk: Mutex::default(), restarts: Arc::default() })
    }

    /// Listens from now on, for as long as the process serves.
    pub fn follow(self: &Arc<Self>) -> AbortHandle {
        let alerter = self.clone();
        supervised("the alerts".to_owned(), self.restarts.clone(), move || alerter.clone().attend())
    }

    /// How each alert of the present generation stands, in the order written.
    pub fn overview(&self) -> Vec<Overview> {
        let (snapshot, desk) = (self.snapshot.load(), self.desk());
        let of = |alert: &Alert| {
            let (name, outbox) = (alert.name.clone(), desk.outboxes.get(&alert.name));
            let told = outbox.map(Outbox::told).unwrap_or_default();
            Overview {
                open: desk.episodes.open(&name).filter(|episode| told.contains(&episode.key)).map(open).collect(),
                waiting: outbox.map_or(0, Outbox::waiting),
                tally: desk.tallies.get(&name).cloned().unwrap_or_default(),
                name,
            }
        };
        snapshot.config.alerts.iter().map(of).collect()
    }

    /// What became of what alerts were told that are not configured any more, since the start.
    pub fn former(&self) -> Vec<(Arc<str>, Arc<Tally>)> {
        let (snapshot, desk) = (self.snapshot.load(), self.desk());
        let is_there = |name: &Arc<str>| snapshot.config.alerts.iter().any(|alert| alert.name == *name);
        let former = desk.tallies.iter().filter(|(name, _)| !is_there(name));
        former.map(|(name, tally)| (name.clone(), tally.clone())).collect()
    }

    /// Tells what is still to be told, and waits for that; not for ever.
    pub async fn close(&self) {
        self.look();
        let mut outboxes = {
            let mut desk = self.desk();
            desk.is_ending = true;
            std::mem::take(&mut desk.outboxes)
        };
        let closing = futures_util::future::join_all(outboxes.values_mut().map(Outbox::close));
        // What is left is said, whatever the reason.
        let _ = timeout(LAST_LETTERS, closing).await;
        outboxes.values().for_each(Outbox::say_what_is_left);
    }

    async fn attend(self: Arc<Self>) {
        let mut latest = self.events.latest();
        loop {
            latest.mark_unchanged();
            let next = self.look();
            let rest = async {
                match next {
                    Some(at) => tokio::time::sleep(at.saturating_sub(clock::monotonic()).max(LEAST)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = latest.changed() => if changed.is_err() { return },
                () = rest => {}
            }
        }
    }

    /// Hears what is new, has told what is due, and says when to look again.
    fn look(&self) -> Option<Duration> {
        let mut desk = self.desk();
        let snapshot = self.snapshot.load_full();
        if desk.is_ending || (snapshot.config.alerts.is_empty() && desk.outboxes.is_empty()) {
            // Whoever is asked for later looks at everything then.
            desk.generation = 0;
            return None;
        }
        if desk.generation == 0 {
            // Nobody was told of what came before; how it stands now is looked at.
            desk.heard = self.events.last_id();
        }
        if desk.generation != snapshot.generation {
            self.staff(&mut desk, &snapshot);
        }
        let (mut is_all_seen, mut has_looked) = (desk.generation == snapshot.generation, false);
        loop {
            let glance = self.events.glance(desk.heard, AT_ONCE);
            if glance.missed > 0 {
                (desk.heard, is_all_seen) = (glance.last_id, false);
            } else if !glance.events.is_empty() {
                glance.events.iter().for_each(|event| self.hear(&mut desk, &snapshot, event));
            } else if is_all_seen && desk.conditions.is_in_doubt() {
                let roll = self.roll(&snapshot, &desk);
                if self.events.last_id() == desk.heard {
                    self.call(&mut desk, &snapshot, &roll);
                }
            } else if is_all_seen {
                break;
            } else {
                // What is heard after that and was seen already is nothing new; what is heard before would be.
                let standings = self.standings(&snapshot, &desk);
                if self.events.last_id() == desk.heard {
                    desk.conditions.look(now(), &standings);
                    (is_all_seen, has_looked) = (true, true);
                }
            }
        }
        let (now, alerts) = (now(), &snapshot.config.alerts);
        // Not at each event: of ten thousand members that change one after the other each is looked at once.
        let is_due = desk.next_sweep(alerts).is_some_and(|at| at <= now.monotonic);
        if has_looked || is_due {
            let triggers = alerts.iter().flat_map(|alert| &alert.on);
            desk.conditions.forget(now, triggers.map(|trigger| trigger.flaps.1).max().unwrap_or_default());
            self.settle(&mut desk, &snapshot, now, None);
            (desk.generation, desk.swept_at) = (snapshot.generation, now.monotonic);
        }
        desk.next_sweep(alerts)
    }

    fn hear(&self, desk: &mut Desk, snapshot: &Snapshot, event: &Event) {
        desk.heard = event.id;
        let is_first = |route: &str, pool: &str| {
            let found = snapshot.config.routes.iter().find(|other| *other.name == *route);
            found.and_then(|route| route.pools.first()).is_none_or(|first| *first.pool == *pool)
        };
        let now = now();
        let touched = desk.conditions.hear(now, event, is_first);
        if !touched.is_empty() {
            self.settle(desk, snapshot, now, Some((&touched, Some(&event.message))));
        }
    }

    /// Goes by who is there and who is due.
    fn call(&self, desk: &mut Desk, snapshot: &Snapshot, roll: &Roll) {
        let now = now();
        for (key, because) in desk.conditions.call(now, roll) {
            self.settle(desk, snapshot, now, Some((&[key], because.as_deref())));
        }
    }

    fn roll(&self, snapshot: &Snapshot, desk: &Desk) -> Roll {
        let members = desk.conditions.members();
        let mut there = BTreeSet::new();
        let pools: BTreeSet<&String> = members.iter().filter_map(pool_of).collect();
        for (name, pool) in pools.into_iter().filter_map(|name| Some((name, snapshot.pools.get(name)?))) {
            pool.live.read(|_, of_it| {
                there.extend(of_it.iter().map(|one| Subject::Member(name.clone(), one.label().to_string())));
            });
        }
        there.retain(|member| members.contains(member));
        let subject = |(pool, member): (Arc<str>, Arc<str>)| Subject::Member(pool.to_string(), member.to_string());
        Roll { there, due: (self.who_is_due)().map(|due| due.into_iter().map(subject).collect()) }
    }

    fn standings(&self, snapshot: &Snapshot, desk: &Desk) -> Standings {
        let ways = snapshot.config.routes.iter().zip(&snapshot.ways);
        let serving = |way: &Way| {
            let rank = way.switch().map_or(0, |switch| switch.rank());
            way.stop(rank).filter(|_| rank > 0).map(|stop| stop.served.config.name.clone())
        };
        Standings {
            modes: snapshot.pools.iter().map(|(name, pool)| (name.clone(), pool.live.roster().mode())).collect(),
            failed_over: ways.map(|(route, way)| (route.name.to_string(), serving(way))).collect(),
            composites: self.composites.reports().iter().map(|one| (one.name.to_string(), one.state)).collect(),
            roll: self.roll(snapshot, desk),
        }
    }

    /// Has an outbox for each alert that there is, and for no other.
    fn staff(&self, desk: &mut Desk, snapshot: &Snapshot) {
        let is_there = |name: &Arc<str>| snapshot.config.alerts.iter().any(|alert| alert.name == *name);
        // One that is taken out sends nothing more.
        desk.outboxes.retain(|name, _| is_there(name));
        for alert in &snapshot.config.alerts {
            let name = &alert.name;
            if let Some(outbox) = desk.outboxes.get(name) {
                // It may be somebody else who is asked now.
                outbox.hasten();
            } else {
                let tally = desk.tallies.entry(name.clone()).or_default().clone();
                desk.outboxes.insert(name.clone(), Outbox::open(name.clone(), self.snapshot.clone(), tally));
            }
        }
    }

    /// Has told what is due, of these or of all.
    fn settle(&self, desk: &mut Desk, snapshot: &Snapshot, now: Moment, heard: Option<(&[Key], Option<&str>)>) {
        let Desk { conditions, episodes, outboxes, .. } = desk;
        let is_about = |alert: &Alert, subject: &Subject| is_about(snapshot, alert, subject);
        let alerts = &snapshot.config.alerts;
        let step =
            Step { now, alerts, conditions, is_about: &is_about, because: heard.and_then(|(_, because)| because) };
        let new_id = || format!("{:032x}", fastrand::u128(..));
        let tellings = match heard {
            Some((keys, _)) => episodes.settle(&step, keys, new_id),
            None => episodes.settle_all(&step, new_id),
        };
        for telling in tellings {
            let standing = standing(snapshot, &telling.episode.key.1);
            let letter = Letter {
                id: notice::id_of(&telling),
                key: telling.episode.key.clone(),
                phase: telling.phase,
                about: format!("{} {}", notice::key_of(&telling.episode.key), telling.phase.as_str()),
                text: Bytes::from(notice::notice(&telling, &standing, self.events.instance())),
            };
            let is_sent = outboxes.get(&telling.alert).is_some_and(|outbox| outbox.send(letter));
            if !is_sent {
                dropped(episodes, &telling);
            }
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Alerter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alerter").field("desk", &self.desk).finish_non_exhaustive()
    }
}

impl Desk {
    /// When all of it is to be looked at if nothing is heard.
    fn next_sweep(&self, alerts: &[Alert]) -> Option<Duration> {
        let sweep = self.conditions.remembers().then(|| self.swept_at + SWEEP);
        self.episodes.next_deadline(alerts, &self.conditions).into_iter().chain(sweep).min()
    }
}

/// A beginning that could not be told is tried again when it is looked at next.
fn dropped(episodes: &mut Episodes, telling: &Telling) {
    let (name, about) = (&*telling.alert, notice::key_of(&telling.episode.key));
    let phase = telling.phase.as_str();
    tracing::error!(target: "alert", name, about, phase, "{name} cannot be told of {about}: too much is open already");
    if telling.phase == Phase::Firing {
        episodes.lose(telling);
    }
}

/// Whether an alert is about somebody: a route is by its pools, a composite by those beneath it.
fn is_about(snapshot: &Snapshot, alert: &Alert, subject: &Subject) -> bool {
    let Some(pools) = &alert.pools else { return true };
    match subject {
        Subject::Pool(pool) | Subject::Member(pool, _) => pools.contains(pool),
        Subject::Route(name) => {
            let route = snapshot.config.routes.iter().find(|route| *route.name == **name);
            route.is_some_and(|route| route.pools.iter().any(|rank| pools.contains(&*rank.pool)))
        }
        Subject::Composite(name) => {
            Beneath::new(&snapshot.config.composites).pools(name).into_iter().any(|pool| pools.contains(pool))
        }
    }
}

fn pool_of(subject: &Subject) -> Option<&String> {
    match subject {
        Subject::Pool(pool) | Subject::Member(pool, _) => Some(pool),
        Subject::Route(_) | Subject::Composite(_) => None,
    }
}

fn standing(snapshot: &Snapshot, subject: &Subject) -> Standing {
    let Some(pool) = pool_of(subject).and_then(|name| snapshot.pools.get(name)) else { return Standing::default() };
    let roster = pool.live.roster();
    let headline = roster.headline();
    Standing {
        mode: Some(headline.mode.as_str()),
        in_rotation: Some(headline.in_rotation),
        total: Some(headline.total),
    }
}

fn open(episode: &episodes::Episode) -> Open {
    Open {
        episode: episode.id.clone(),
        key: notice::key_of(&episode.key),
        message: notice::sentence(&episode.key),
        since: episode.since.wall,
    }
}

fn now() -> Moment {
    Moment { monotonic: clock::monotonic(), wall: clock::wall() }
}
