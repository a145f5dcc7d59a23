//! What is wrong right now, as the events tell it.
//!
//! Pure: events and time go in. An event carries its pool's mode after the step, so that going through events in their order
//! misses nothing, however short it was; where some are missed, or another generation serves, one looks at how everything
//! stands. Of many members that change alike only the first have an event each: who is due for replacement is looked at
//! whenever there may be others than before.
//!
//! Not here: whether that is worth telling, and to whom (`episodes`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

use crate::config::{MOST_FLAPS, Occasion, Trigger};
use crate::health::{Mode, State, Verdict};
use crate::telemetry::{Event, Kind};

/// Whom something is wrong with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A pool.
    Pool(String),
    /// A route.
    Route(String),
    /// A composite.
    Composite(String),
    /// A member of this pool, as the pool shows it.
    Member(String, String),
}

/// What, and with whom.
pub type Key = (Occasion, Subject);

/// Since when something is so, by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// What is counted by.
    pub monotonic: Duration,
    /// What people are told.
    pub wall: SystemTime,
}

/// How everything stands at one moment.
#[derive(Debug, Default)]
pub struct Standings {
    /// Of every pool.
    pub modes: BTreeMap<String, Mode>,
    /// Of every route: the pool that serves, where it is not the first.
    pub failed_over: BTreeMap<String, Option<String>>,
    /// Of every composite.
    pub composites: BTreeMap<String, State>,
    /// Of members.
    pub roll: Roll,
}

/// Which members there are.
#[derive(Debug, Default)]
pub struct Roll {
    /// Of those of [`Conditions::members`] those that are still there.
    pub there: BTreeSet<Subject>,
    /// Who is due for replacement, or being replaced. `None`: nobody knows any more.
    pub due: Option<BTreeSet<Subject>>,
}

/// What is wrong.
#[derive(Debug, Default)]
pub struct Conditions {
    present: BTreeMap<Key, Condition>,
    /// When a member's verdict changed, oldest first.
    flips: BTreeMap<Subject, VecDeque<Duration>>,
    /// What was heard of replacements that may have begun, and of those that may be over, since they were looked at: of a
    /// member, or of a pool's that have no event of their own.
    begun: BTreeMap<Subject, String>,
    over: BTreeMap<Subject, String>,
    is_in_doubt: bool,
}

#[derive(Debug, Clone)]
struct Condition {
    since: Moment,
    /// What has told of it, in a sentence.
    because: String,
}

/// The modes that something is wrong in.
const MODES: [(Mode, Occasion); 4] = [
    (Mode::Down, Occasion::Down),
    (Mode::Fallback, Occasion::Fallback),
    (Mode::Capped, Occasion::Capped),
    (Mode::Failover, Occasion::Failover),
];

impl Conditions {
    /// Takes in an event, heard `at`; `is_first` says of a route and a pool whether that is the route's first. Returns what
    /// may be another now.
    pub fn hear(&mut self, at: Moment, event: &Event, is_first: impl Fn(&str, &str) -> bool) -> Vec<Key> {
        if event.observed {
            return Vec::new();
        }
        let mut touched = Vec::new();
        if let (Some(pool), Some(mode)) = (&event.pool, event.mode) {
            for (wrong, occasion) in MODES {
                let is_so = wrong.as_str() == mode;
                self.set(at, (occasion, Subject::Pool(pool.clone())), is_so, &event.message, &mut touched);
            }
        }
        match event.kind {
            Kind::Failover => {
                if let (Some(route), Some(pool)) = (&event.route, &event.pool) {
                    let key = (Occasion::Failover, Subject::Route(route.clone()));
                    self.set(at, key, !is_first(route, pool), &event.message, &mut touched);
                }
            }
            Kind::Composite => {
                let (Some(composite), Some(to)) = (&event.composite, event.to.as_deref()) else { return touched };
                let is = |state: State| to == state.published();
                // What is unknown is as it was.
                if is(State::Healthy) || is(State::Unhealthy) {
                    let key = (Occasion::Composite, Subject::Composite(composite.clone()));
                    self.set(at, key, is(State::Unhealthy), &event.message, &mut touched);
                }
            }
            Kind::Member => self.hear_of_member(at, event, &mut touched),
            Kind::Remediation => self.hear_of_replacement(at, event, &mut touched),
            Kind::Pool | Kind::Cap | Kind::Fallback | Kind::Reload => {}
        }
        touched
    }

    fn hear_of_replacement(&mut self, at: Moment, event: &Event, touched: &mut Vec<Key>) {
        // What never began for the end of the process is as wrong as it was.
        if event.reason == Some("ending") {
            return;
        }
        self.is_in_doubt = true;
        let is_so = match event.to.as_deref() {
            Some("queued" | "started" | "deferred" | "spared") => true,
            Some("done" | "over" | "dropped") => false,
            // One that failed is not over: the member is as it was.
            _ => return,
        };
        if let Some(member) = member_of(event) {
            self.set(at, (Occasion::Replacement, member), is_so, &event.message, touched);
        } else if let Some(pool) = &event.pool {
            let heard = if is_so { &mut self.begun } else { &mut self.over };
            heard.insert(Subject::Pool(pool.clone()), event.message.clone());
        }
    }

    fn hear_of_member(&mut self, at: Moment, event: &Event, touched: &mut Vec<Key>) {
        let Some(member) = member_of(event) else {
            // More of them than are named.
            self.is_in_doubt |= event.to.as_deref() == Some("removed");
            return;
        };
        let (from, to) = (event.from.as_deref().unwrap_or_default(), event.to.as_deref().unwrap_or_default());
        let (healthy, unhealthy) = (Verdict::Healthy.as_str(), Verdict::Unhealthy.as_str());
        let is_due = self.present.contains_key(&(Occasion::Replacement, member.clone()));
        if is_due && (to == healthy || to == "removed") {
            // Unless an operator wants it replaced all the same.
            self.over.insert(member.clone(), event.message.clone());
            self.is_in_doubt = true;
        }
        if to == "removed" {
            self.flips.remove(&member);
            touched.push((Occasion::Flapping, member));
        } else if [(healthy, unhealthy), (unhealthy, healthy)].contains(&(from, to)) {
            let flips = self.flips.entry(member.clone()).or_default();
            if flips.len() == MOST_FLAPS as usize {
                flips.pop_front();
            }
            flips.push_back(at.monotonic);
            touched.push((Occasion::Flapping, member));
        }
    }

    /// Looks at how everything stands: `now` is what it is, whatever was heard. Who is not there any more is forgotten.
    pub fn look(&mut self, at: Moment, now: &Standings) {
        self.present.retain(|(_, subject), _| is_there(subject, now));
        // It is settled with all the rest.
        self.call(at, &now.roll);
        let mut touched = Vec::new();
        for (pool, mode) in &now.modes {
            for (wrong, occasion) in MODES {
                let message = format!("pool {pool} is {}", mode.as_str());
                self.set(at, (occasion, Subject::Pool(pool.clone())), wrong == *mode, &message, &mut touched);
            }
        }
        for (route, pool) in &now.failed_over {
            let key = (Occasion::Failover, Subject::Route(route.clone()));
            let message = format!("pool {} serves", pool.as_deref().unwrap_or_default());
            self.set(at, key, pool.is_some(), &message, &mut touched);
        }
        for (composite, state) in now.composites.iter().filter(|(_, state)| **state != State::Unknown) {
            let key = (Occasion::Composite, Subject::Composite(composite.clone()));
            let message = format!("composite {composite} is {}", state.published());
            self.set(at, key, *state == State::Unhealthy, &message, &mut touched);
        }
    }

    /// The members that something is, or may be, wrong with.
    pub fn members(&self) -> BTreeSet<Subject> {
        let present = self.present.keys().map(|(_, subject)| subject);
        let members = present.filter(|subject| matches!(subject, Subject::Member(..)));
        members.chain(self.flips.keys()).cloned().collect()
    }

    /// Whether there may be others due for replacement, or gone, than was heard: the roll is to be called.
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Goes by who is there and who is due for replacement now. Returns what may be another, and what was heard of it.
    pub fn call(&mut self, at: Moment, roll: &Roll) -> Vec<(Key, Option<String>)> {
        let (begun, over) = (std::mem::take(&mut self.begun), std::mem::take(&mut self.over));
        self.is_in_doubt = false;
        let gone: Vec<Subject> = self.flips.keys().filter(|member| !roll.there.contains(*member)).cloned().collect();
        gone.iter().for_each(|member| drop(self.flips.remove(member)));
        let mut touched: Vec<(Key, Option<String>)> =
            gone.into_iter().map(|member| ((Occasion::Flapping, member), None)).collect();
        let Some(due) = &roll.due else { return touched };
        let present = self.present.keys().filter(|(occasion, _)| *occasion == Occasion::Replacement);
        let ended: Vec<Key> = present.filter(|(_, member)| !due.contains(member)).cloned().collect();
        for key in ended {
            self.present.remove(&key);
            let because = heard_of(&over, &key.1);
            touched.push((key, because));
        }
        for member in due {
            let key = (Occasion::Replacement, member.clone());
            if self.present.contains_key(&key) {
                continue;
            }
            let because = heard_of(&begun, member).unwrap_or_else(|| "it is due for replacement".to_owned());
            self.present.insert(key.clone(), Condition { since: at, because });
            touched.push((key, None));
        }
        touched
    }

    /// Since when this is so, by the numbers of `trigger`; `None`: it is not. What `is_open` ends later than it begins.
    pub fn since(&self, now: Moment, key: &Key, trigger: &Trigger, is_open: bool) -> Option<Moment> {
        if key.0 != Occasion::Flapping {
            return self.present.get(key).map(|condition| condition.since);
        }
        let (flips, (times, within)) = (self.flips.get(&key.1)?, trigger.flaps);
        let recent = flips.iter().filter(|flip| **flip + within > now.monotonic).count();
        (recent >= if is_open { 1 } else { times as usize }).then_some(now)
    }

    /// When this is over if nothing more is heard.
    pub fn ends_at(&self, key: &Key, trigger: &Trigger) -> Option<Duration> {
        let flips = self.flips.get(&key.1).filter(|_| key.0 == Occasion::Flapping)?;
        flips.back().map(|last| *last + trigger.flaps.1)
    }

    /// What has told of it.
    pub fn because(&self, key: &Key) -> Option<&str> {
        self.present.get(key).map(|condition| condition.because.as_str())
    }

    /// Everything that is wrong, or may be.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let flapping = self.flips.keys().map(|subject| (Occasion::Flapping, subject.clone()));
        self.present.keys().cloned().chain(flapping)
    }

    /// Whether there is anything to be forgotten some time.
    pub fn remembers(&self) -> bool {
        !self.flips.is_empty()
    }

    /// Forgets changes of verdict that are older than any trigger looks back.
    pub fn forget(&mut self, now: Moment, longest: Duration) {
        self.flips.retain(|_, flips| flips.back().is_some_and(|last| *last + longest > now.monotonic));
    }

    fn set(&mut self, at: Moment, key: Key, is_so: bool, because: &str, touched: &mut Vec<Key>) {
        if is_so == self.present.contains_key(&key) {
            return;
        }
        touched.push(key.clone());
        if is_so {
            self.present.insert(key, Condition { since: at, because: because.to_owned() });
        } else {
            self.present.remove(&key);
        }
    }
}

fn is_there(subject: &Subject, now: &Standings) -> bool {
    match subject {
        Subject::Pool(pool) => now.modes.contains_key(pool),
        Subject::Member(..) => now.roll.there.contains(subject),
        Subject::Route(route) => now.failed_over.contains_key(route),
        Subject::Composite(composite) => now.composites.contains_key(composite),
    }
}

/// What was heard of a member, or of many of its pool.
fn heard_of(heard: &BTreeMap<Subject, String>, member: &Subject) -> Option<String> {
    let Subject::Member(pool, _) = member else { return None };
    heard.get(member).or_else(|| heard.get(&Subject::Pool(pool.clone()))).cloned()
}

fn member_of(event: &Event) -> Option<Subject> {
    Some(Subject::Member(event.pool.clone()?, event.member.clone()?))
}
