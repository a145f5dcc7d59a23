//! Decisions on replacement in words: one event each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::desk::{By, Finished, Result, Running};
use super::notice::Subject;
use crate::config::Remediation;
use crate::health::replacement::{Against, Full, Limit, Order, Turn, Wait, Ward};
use crate::telemetry::{Event, Kind, Severity};

/// Of the members that wait alike after one look, so many have an event each; one more counts the rest.
const NAMED: usize = 10;

const STARTED: &str = "started";
const QUEUED: &str = "queued";
const DROPPED: &str = "dropped";
const DEFERRED: &str = "deferred";
const SPARED: &str = "spared";
const OVER: &str = "over";
const REFUSED: &str = "refused";

/// It begins.
pub fn started(subject: &Subject, order: &Order, by: By, used: &str, now: Duration) -> Event {
    let (member, pool) = (subject.member(), subject.pool());
    let why = match by {
        By::Rule => format!("no probe of it has passed for {}", spell(now.saturating_sub(order.since))),
        By::Hand => "an operator wants it".to_owned(),
    };
    let shared = match order.shared_with.is_empty() {
        true => String::new(),
        false => format!("; {} runs there too", order.shared_with.join(", ")),
    };
    let mut event =
        about(subject, Severity::Warn, format!("member {member} of {pool} is being replaced: {why}; {used}{shared}"));
    (event.to, event.reason) = (Some(STARTED.to_owned()), Some(by.as_str()));
    event
}

/// It waits for a place.
pub fn queued(subject: &Subject, by: By, at_once: usize) -> Event {
    let (member, pool) = (subject.member(), subject.pool());
    let message =
        format!("member {member} of {pool} is to be replaced and waits for its turn: {at_once} are being replaced");
    let mut event = about(subject, Severity::Warn, message);
    (event.to, event.reason) = (Some(QUEUED.to_owned()), Some(by.as_str()));
    event
}

/// It has not begun and will not, for this reason or because the process ends.
pub fn dropped(subject: Option<&Subject>, one: &Running, against: Option<&Against>) -> Event {
    let (member, pool) = (&one.member, &one.who.0);
    let (why, reason) = match against {
        None => ("the process is ending".to_owned(), "ending"),
        Some(against) => (objection(against), against.as_str()),
    };
    let mut event = Event::new(
        Kind::Remediation,
        Severity::Warn,
        format!("member {member} of {pool} is not replaced after all: {why}"),
    );
    (event.pool, event.member) = (Some(pool.to_string()), Some(member.to_string()));
    if let Some(subject) = subject {
        subject.stand(&mut event);
    }
    (event.to, event.reason) = (Some(DROPPED.to_owned()), Some(reason));
    event
}

/// What speaks against it by now.
pub fn objection(against: &Against) -> String {
    match against {
        Against::Gone => "it is not there any more".to_owned(),
        Against::Off => "its pool replaces nobody any more".to_owned(),
        Against::Over => "it is not due any more".to_owned(),
        Against::Wait(wait) => why(wait),
    }
}

/// Whose replacement it is.
pub fn whose(one: &Running) -> String {
    format!("{} of {}", one.member, one.who.0)
}

/// The first of them, and how many more there are.
pub fn some(all: &[String], most: usize) -> String {
    let named = all[..all.len().min(most)].join(", ");
    match all.len().saturating_sub(most) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// It is over.
pub fn finished(subject: &Subject, finished: &Finished) -> Event {
    let Finished { member, pool, took, detail, .. } = finished;
    let said = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    let took = spell(*took);
    let (level, message, to, reason) = match finished.result {
        Result::Done => {
            (Severity::Info, format!("member {member} of {pool} is replaced, after {took}{said}"), "done", None)
        }
        Result::Failed(word) => {
            let message = format!("member {member} of {pool} could not be replaced, after {took}{said}");
            (Severity::Error, message, "failed", Some(word))
        }
    };
    let mut event = about(subject, level, message);
    event.member = Some(member.to_string());
    (event.from, event.to, event.reason) = (Some(STARTED.to_owned()), Some(to.to_owned()), reason);
    event.detail = Some(detail.clone()).filter(|detail| !detail.is_empty());
    event
}

/// It waits, or does not any more.
pub fn turn(subject: &Subject, turn: &Turn) -> Event {
    let (member, pool) = (subject.member(), subject.pool());
    let (level, message) = match turn {
        Turn::Wait(_, wait @ Wait::Shared(_)) => {
            (Severity::Warn, format!("member {member} of {pool} is due for replacement and spared: {}", why(wait)))
        }
        Turn::Wait(_, wait) => {
            (Severity::Warn, format!("member {member} of {pool} is due for replacement and deferred: {}", why(wait)))
        }
        Turn::Start(_) | Turn::Over(_) => {
            (Severity::Info, format!("member {member} of {pool} is not due for replacement any more"))
        }
    };
    let mut event = about(subject, level, message);
    let (to, reason) = word(turn);
    (event.to, event.reason) = (Some(to.to_owned()), reason);
    event
}

/// An operator wanted it.
pub fn refused(subject: &Subject, wait: &Wait) -> Event {
    let (member, pool) = (subject.member(), subject.pool());
    let mut event = about(
        subject,
        Severity::Warn,
        format!("member {member} of {pool} is not replaced, though an operator wants it: {}", why(wait)),
    );
    (event.to, event.reason) = (Some(REFUSED.to_owned()), Some(wait.as_str()));
    event
}

/// It could not be noted down.
pub fn unnoted(subject: &Subject, by: By, cause: &str) -> Event {
    let (member, pool) = (subject.member(), subject.pool());
    let (how, to) = match by {
        By::Rule => ("is due for replacement and deferred", DEFERRED),
        By::Hand => ("is not replaced, though an operator wants it", REFUSED),
    };
    let message = format!("member {member} of {pool} {how}: that cannot be noted down in `state_dir`: {cause}");
    let mut event = about(subject, Severity::Error, message);
    (event.to, event.reason) = (Some(to.to_owned()), Some(Wait::Unnoted.as_str()));
    event.detail = Some(cause.to_owned());
    event
}

/// Why it waits.
pub fn why(wait: &Wait) -> String {
    match wait {
        Wait::Shared(pool) => format!("its machine serves pool {pool} too, and does not fail there"),
        Wait::Unnoted => "what is done cannot be noted down".to_owned(),
        Wait::Full(Full { free_in, is_lost: true, .. }) => {
            let until = free_in.map_or_else(String::new, |free_in| format!("; the next one in {}", spell(free_in)));
            format!("an earlier record of what was replaced is lost, so every limit counts as used up{until}")
        }
        Wait::Full(Full { limit, pool, most, free_in, .. }) => {
            let room = match free_in {
                Some(free_in) => format!("the next one in {}", spell(*free_in)),
                None => "nobody is".to_owned(),
            };
            match limit {
                Limit::Hour => format!("pool {pool} may have {most} replaced within an hour; {room}"),
                Limit::Day => format!("pool {pool} may have {most} replaced within a day; {room}"),
                Limit::Global => format!("all pools together may have {most} replaced within 12 hours; {room}"),
            }
        }
    }
}

/// How much of a pool's own limits is used.
pub fn used(ward: &Ward, pool: &str, rule: &Remediation) -> String {
    let (per_hour, per_day) = (rule.limits.per_hour, rule.limits.per_day);
    let spent = |limit, most| ward.ledger().spent(limit, pool, most);
    let (hour, day) = (spent(Limit::Hour, per_hour), spent(Limit::Day, per_day));
    format!("{hour} of {per_hour} within an hour, {day} of {per_day} within a day")
}

/// How many have come to wait in each way.
#[derive(Debug, Default)]
pub struct Crowd(BTreeMap<(Arc<str>, &'static str, Option<&'static str>), usize>);

impl Crowd {
    /// Counts one more, and says whether it is one of the first.
    pub fn names(&mut self, turn: &Turn) -> bool {
        let (to, reason) = word(turn);
        let count = self.0.entry((turn.who().0.clone(), to, reason)).or_default();
        *count += 1;
        *count <= NAMED
    }

    /// One event for all further ones of each way.
    pub fn rest(&self) -> impl Iterator<Item = Event> + '_ {
        let many = self.0.iter().filter(|(_, count)| **count > NAMED);
        many.map(|((pool, to, reason), count)| {
            let count = count - NAMED;
            let further = if count == 1 { "1 more member".to_owned() } else { format!("{count} more members") };
            let (level, message) = match *to {
                OVER => (Severity::Info, format!("{further} of {pool} are not due for replacement any more")),
                to => (Severity::Warn, format!("{further} of {pool} are due for replacement and {to}")),
            };
            let mut event = Event::new(Kind::Remediation, level, message);
            event.pool = Some(pool.to_string());
            (event.to, event.reason, event.count) = (Some((*to).to_owned()), *reason, Some(count));
            event
        })
    }
}

fn word(turn: &Turn) -> (&'static str, Option<&'static str>) {
    match turn {
        Turn::Start(_) => (STARTED, None),
        Turn::Wait(_, wait @ Wait::Shared(_)) => (SPARED, Some(wait.as_str())),
        Turn::Wait(_, wait) => (DEFERRED, Some(wait.as_str())),
        Turn::Over(_) => (OVER, None),
    }
}

fn about(subject: &Subject, level: Severity, message: String) -> Event {
    let mut event = Event::new(Kind::Remediation, level, message);
    (event.pool, event.member) = (Some(subject.pool().to_string()), Some(subject.member().to_string()));
    subject.stand(&mut event);
    event
}

/// To the second, or finer where that would be nothing.
fn spell(duration: Duration) -> String {
    let coarse = match duration.as_secs() {
        0 => Duration::from_millis(duration.as_millis() as u64),
        seconds => Duration::from_secs(seconds),
    };
    humantime::format_duration(coarse).to_string()
}
