//! Changes in words: which of a step's changes are told, and the sentence for each.
//!
//! Pure. What comes from a member (a status line, a Location, a name in a certificate) is shown with its control
//! characters escaped.

use std::time::SystemTime;

use super::{Event, Kind, Severity};
use crate::health::{Admin, Change, Member, MemberId, Mode, Picture, PoolHealth, Standing, Verdict};
use crate::telemetry::json::Shown;
use crate::telemetry::record::in_millis;

/// The events of one step, in the order of its changes. Their ids are not given yet.
pub(super) fn describe(time: SystemTime, pool: &str, health: &PoolHealth, changes: &[Change]) -> Vec<Event> {
    let step = Step { time, pool, health, picture: health.picture(), changes };
    let mut events = Vec::new();
    for change in changes {
        events.extend(step.event(change, events.len()));
    }
    events
}

struct Step<'a> {
    time: SystemTime,
    pool: &'a str,
    health: &'a PoolHealth,
    picture: &'a Picture,
    changes: &'a [Change],
}

impl Step<'_> {
    /// `told` is the number of events that the changes before this one have made; the mode's comes last.
    fn event(&self, change: &Change, told: usize) -> Option<Event> {
        match *change {
            Change::Verdict { member, from, to } => self.verdict(member, from, to),
            Change::Admin { member, from, to } => self.admin(member, from, to),
            Change::Place { member, from, to } => self.place(member, from, to),
            Change::Tier { from, to } => self.tier(from, to),
            Change::Fallback { entered } => Some(self.fallback(entered)),
            Change::Mode { from, to } => self.mode(from, to, told),
        }
    }

    fn verdict(&self, member: MemberId, from: Verdict, to: Verdict) -> Option<Event> {
        let (subject, standing) = self.subject(member)?;
        let name = label(subject);
        let pool = self.pool;
        let place = self.consequence(standing);
        let mut event = self.about_member(Kind::Member, subject, standing);
        event.message = match to {
            Verdict::Unhealthy => {
                let (reason, detail) = cause(subject);
                event.level = Severity::Warn;
                let why = detail.as_deref().or(reason).unwrap_or("by its samples").to_owned();
                (event.reason, event.detail) = (reason, detail);
                format!("member {name} of {pool} is unhealthy: {why}; {place}")
            }
            Verdict::Healthy if !self.health.rules().probed => {
                format!("member {name} of {pool} is not probed and taken for healthy; {place}")
            }
            Verdict::Healthy => format!("member {name} of {pool} is healthy; {place}"),
            Verdict::Unknown => format!("member {name} of {pool} starts anew, its health is unknown; {place}"),
        };
        (event.from, event.to) = (from.as_str().to_owned(), to.as_str().to_owned());
        Some(event)
    }

    fn admin(&self, member: MemberId, from: Admin, to: Admin) -> Option<Event> {
        let (subject, standing) = self.subject(member)?;
        let mut event = self.about_member(Kind::Member, subject, standing);
        (event.from, event.to) = (from.as_str().to_owned(), to.as_str().to_owned());
        event.message = format!(
            "member {} of {} is {} now, it was {}; {}",
            label(subject),
            self.pool,
            event.to,
            event.from,
            self.shares()
        );
        Some(event)
    }

    fn place(&self, member: MemberId, from: Standing, to: Standing) -> Option<Event> {
        let (subject, standing) = self.subject(member)?;
        let mut event = self.about_member(Kind::Cap, subject, standing);
        let (name, pool, place) = (label(subject), self.pool, self.consequence(to));
        event.message = format!("member {name} of {pool}, unhealthy as before, is now {place}");
        (event.from, event.to) = (from.as_str().to_owned(), to.as_str().to_owned());
        (event.reason, event.detail) = cause(subject);
        if to == Standing::Kept {
            event.level = Severity::Warn;
        }
        Some(event)
    }

    /// Another tier serves. From none to the pool's first is a beginning or the end of a fallback, and told as such; so is
    /// one to none. What counts is the pool's first tier, not its number: a reload may give tiers other ranks.
    fn tier(&self, from: Option<u8>, to: Option<u8>) -> Option<Event> {
        let to = to?;
        let is_failover = self.picture.mode == Mode::Failover;
        let was_failover = self.mode_before() == Mode::Failover;
        let was = match from {
            Some(from) => format!("tier {from}"),
            None if is_failover => "none".to_owned(),
            None => return None,
        };
        let further = from.is_none_or(|from| from < to);
        let mut event = self.about_pool(Kind::Failover);
        let (pool, shares) = (self.pool, self.shares());
        event.message = match (is_failover, was_failover) {
            (true, _) if further || !was_failover => {
                event.level = Severity::Warn;
                format!("pool {pool}: failover: tier {to} serves, before it was {was}; {shares}")
            }
            (false, false) => format!("pool {pool}: its first tier is {to} now, before it was {was}; {shares}"),
            _ => format!("pool {pool}: failback: tier {to} serves again, before it was {was}; {shares}"),
        };
        (event.from, event.to) = (was, format!("tier {to}"));
        Some(event)
    }

    /// The pool's mode before the step.
    fn mode_before(&self) -> Mode {
        let changed = self.changes.iter().find_map(|change| match change {
            Change::Mode { from, .. } => Some(*from),
            _ => None,
        });
        changed.unwrap_or(self.picture.mode)
    }

    fn fallback(&self, entered: bool) -> Event {
        let mut event = self.about_pool(Kind::Fallback);
        event.from = self.mode_before().as_str().to_owned();
        event.to = self.picture.mode.as_str().to_owned();
        event.message = if entered {
            event.level = Severity::Warn;
            let (pool, members) = (self.pool, members(self.picture.in_rotation));
            format!("pool {pool}: fallback: nobody is healthy, round-robin over {members}")
        } else {
            format!("pool {}: fallback over; {}", self.pool, self.shares())
        };
        event
    }

    /// A mode is told where nothing else in the step tells it, and always when the pool stops to answer at once, or starts to.
    fn mode(&self, from: Mode, to: Mode, told: usize) -> Option<Event> {
        // Whoever waits for an answer will ask why, and whoever was told of it waits for its end.
        let is_grave = [from, to].iter().any(|mode| matches!(mode, Mode::Down | Mode::Waiting));
        if told > 0 && !is_grave {
            return None;
        }
        let mut event = self.about_pool(Kind::Pool);
        (event.from, event.to) = (from.as_str().to_owned(), to.as_str().to_owned());
        let pool = self.pool;
        event.message = match to {
            Mode::Down => {
                event.level = Severity::Warn;
                format!("pool {pool} is down: nobody may serve, requests are answered 503")
            }
            Mode::Waiting => format!("pool {pool}: requests wait for a first verdict"),
            // The tier that serves is the same; a better one has come that cannot.
            Mode::Failover => {
                (event.kind, event.level) = (Kind::Failover, Severity::Warn);
                format!("pool {pool}: failover: a better tier cannot serve; {}", self.shares())
            }
            _ => format!("pool {pool} is {} now, it was {}; {}", event.to, event.from, self.shares()),
        };
        Some(event)
    }

    /// A change of a member that is gone by now has nobody to be told of.
    fn subject(&self, id: MemberId) -> Option<(&Member, Standing)> {
        let index = self.health.index_of(id)?;
        Some((self.health.members().get(index)?, *self.picture.standings.get(index)?))
    }

    /// What a standing means for the traffic, with the numbers that explain it.
    fn consequence(&self, standing: Standing) -> String {
        let Picture { ejected, ejectable, .. } = self.picture;
        match standing {
            Standing::Healthy => {
                let Picture { in_rotation, total, .. } = self.picture;
                format!("in rotation ({in_rotation} of {})", members(*total))
            }
            Standing::Kept => format!("kept in rotation by the cap ({ejected} of {ejectable} allowed are ejected)"),
            Standing::Ejected if self.picture.mode == Mode::Down => "ejected, nobody is left".to_owned(),
            Standing::Ejected => format!("ejected ({ejected} of {ejectable} allowed)"),
            Standing::Unknown => "never healthy so far, it gets nothing".to_owned(),
            Standing::Fallback => "serving all the same, nobody is healthy".to_owned(),
            Standing::Standby if self.picture.mode == Mode::Waiting => "nobody serves until a first verdict".to_owned(),
            Standing::Standby => "its tier stands by".to_owned(),
            Standing::Draining => "draining".to_owned(),
            Standing::Disabled => "disabled".to_owned(),
        }
    }

    fn shares(&self) -> String {
        format!("{} of {} in rotation", self.picture.in_rotation, members(self.picture.total))
    }

    fn about_member(&self, kind: Kind, member: &Member, standing: Standing) -> Event {
        let window = member.window();
        Event {
            member: Some(label(member)),
            standing: Some(standing.as_str()),
            window: (window.shown > 0).then(|| format!("{}/{}", window.passes, window.shown)),
            latency_ms: member.latency().map(in_millis),
            ..self.about_pool(kind)
        }
    }

    fn about_pool(&self, kind: Kind) -> Event {
        Event {
            id: 0,
            time: self.time,
            kind,
            level: Severity::Info,
            pool: self.pool.to_owned(),
            member: None,
            from: String::new(),
            to: String::new(),
            reason: None,
            detail: None,
            standing: None,
            window: None,
            latency_ms: None,
            in_rotation: self.picture.in_rotation,
            total: self.picture.total,
            mode: self.picture.mode.as_str(),
            observed: false,
            message: String::new(),
        }
    }
}

/// The member as logs, API and metrics show it: its address, or its name while that has none.
fn label(member: &Member) -> String {
    let key = &member.spec().key;
    key.address.map_or_else(|| key.name.clone(), |address| address.to_string())
}

/// Why a member is unhealthy: the word, and the words of its last sample where that is the fail that made it so.
fn cause(member: &Member) -> (Option<&'static str>, Option<String>) {
    let Some(reason) = member.cause() else { return (None, None) };
    let detail = member.last_sample().filter(|(sample, _)| sample.outcome == crate::health::Outcome::Fail(reason));
    let detail = detail.map(|(sample, _)| Shown(&sample.detail).to_string()).filter(|detail| !detail.is_empty());
    (Some(reason.as_str()), detail)
}

fn members(count: usize) -> String {
    if count == 1 { "1 member".to_owned() } else { format!("{count} members") }
}
