//! Changes in words: which of a step's changes are told, and the sentence for each.
//!
//! Pure. What comes from a member (a status line, a Location, a name in a certificate) is shown with its control
//! characters escaped.

use super::{Event, Kind, Moves, Severity};
use crate::health::{Admin, Ban, Change, Key, Member, MemberId, Mode, Picture, PoolHealth, Standing, Verdict};
use crate::telemetry::json::Shown;
use crate::telemetry::record::in_millis;

/// Of the members that change alike in one step, so many have an event each; one more counts the rest. A step that moves
/// thousands, as a reload or a name may, must not wash everything else out of the list.
const NAMED: usize = 10;

/// The events of one step, in the order of its changes. Their ids are not given yet.
pub(super) fn describe(pool: &str, health: &PoolHealth, changes: &[Change]) -> Vec<Event> {
    let step = Step { pool, health, picture: health.picture(), changes };
    let (mut events, mut crowd) = (Vec::new(), Crowd::default());
    let of_members = changes.iter().take_while(|change| is_of_a_member(change)).count();
    for change in &changes[..of_members] {
        if step.is_named(change, &mut crowd) {
            events.extend(step.event(change, events.len()));
        }
    }
    events.extend(step.rest(&crowd));
    for change in &changes[of_members..] {
        events.extend(step.event(change, events.len()));
    }
    events
}

/// The events of who has left and who has joined.
pub(super) fn describe_moves(pool: &str, health: &PoolHealth, moves: &Moves) -> Vec<Event> {
    let step = Step { pool, health, picture: health.picture(), changes: &[] };
    let (mut events, mut crowd) = (Vec::new(), Crowd::default());
    for (key, was) in &moves.left {
        if crowd.names(Kind::Member, was.as_str(), REMOVED) {
            events.push(step.leaver(key, *was, moves));
        }
    }
    for id in &moves.joined {
        let Some((member, standing)) = step.subject(*id) else { continue };
        if crowd.names(Kind::Member, ADDED, standing.as_str()) {
            events.push(step.joiner(member, standing, moves));
        }
    }
    events.extend(step.rest(&crowd));
    events
}

/// The event of a pool that was not there before.
pub(super) fn new_pool(pool: &str, health: &PoolHealth) -> Event {
    let step = Step { pool, health, picture: health.picture(), changes: &[] };
    let mut event = step.about_pool(Kind::Pool);
    let (mode, count) = (step.picture.mode, members(health.members().len()));
    if mode == Mode::Down {
        event.level = Severity::Warn;
    }
    (event.from, event.to) = words(ADDED, mode.as_str());
    event.message = format!("pool {pool} is new, with {count}: it is {}", mode.as_str());
    event
}

/// The event of a pool that is not there any more.
pub(super) fn gone_pool(pool: &str, mode: Mode) -> Event {
    let (from, to) = words(mode.as_str(), REMOVED);
    let message = format!("pool {pool} is no longer configured, it was {}", mode.as_str());
    Event { pool: Some(pool.to_owned()), from, to, ..Event::new(Kind::Pool, Severity::Info, message) }
}

/// What somebody was who was not there before.
const ADDED: &str = "added";
/// What somebody is who is not there any more.
const REMOVED: &str = "removed";

struct Step<'a> {
    pool: &'a str,
    health: &'a PoolHealth,
    picture: &'a Picture,
    changes: &'a [Change],
}

/// How many members have changed in each way: kind, from, to. There are few ways.
#[derive(Default)]
struct Crowd(Vec<(Kind, &'static str, &'static str, usize)>);

impl Crowd {
    /// Counts one more, and says whether it is one of the first.
    fn names(&mut self, kind: Kind, from: &'static str, to: &'static str) -> bool {
        match self.0.iter_mut().find(|(k, f, t, _)| (*k, *f, *t) == (kind, from, to)) {
            Some((.., count)) => {
                *count += 1;
                *count <= NAMED
            }
            None => {
                self.0.push((kind, from, to, 1));
                true
            }
        }
    }
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

    /// Whether a member's change is one of the first of its way.
    fn is_named(&self, change: &Change, crowd: &mut Crowd) -> bool {
        let (member, kind, from, to) = match *change {
            Change::Verdict { member, from, to } => (member, Kind::Member, from.as_str(), to.as_str()),
            Change::Admin { member, from, to } => (member, Kind::Member, from.as_str(), to.as_str()),
            Change::Place { member, from, to } => (member, Kind::Cap, from.as_str(), to.as_str()),
            Change::Tier { .. } | Change::Fallback { .. } | Change::Mode { .. } => return true,
        };
        self.health.index_of(member).is_some() && crowd.names(kind, from, to)
    }

    /// One event for all further members that have changed in one way.
    fn rest<'c>(&'c self, crowd: &'c Crowd) -> impl Iterator<Item = Event> + 'c {
        let many = crowd.0.iter().filter(|(.., count)| *count > NAMED);
        many.map(|&(kind, from, to, count)| {
            let (count, pool) = (count - NAMED, self.pool);
            let mut event = self.about_pool(kind);
            let further = if count == 1 { "1 more member".to_owned() } else { format!("{count} more members") };
            event.message = match (from, to) {
                (_, REMOVED) => format!("{further} left {pool}, {from} before; {}", self.shares()),
                (ADDED, _) => format!("{further} joined {pool}, {to} now; {}", self.shares()),
                _ => format!("{further} of {pool} turned from {from} to {to}; {}", self.shares()),
            };
            if to == Verdict::Unhealthy.as_str() || to == Standing::Kept.as_str() {
                event.level = Severity::Warn;
            }
            event.count = Some(count);
            (event.from, event.to) = words(from, to);
            event
        })
    }

    /// What was told last of a member that has left is not to stand for ever. One without an address stands for a name, and
    /// leaves when that has addresses.
    fn leaver(&self, key: &Key, was: Standing, moves: &Moves) -> Event {
        let (pool, mut event) = (self.pool, self.about_pool(Kind::Member));
        let name = label(key);
        let found = key.address.is_none() && self.joiners(moves).any(|joiner| joiner.name == key.name);
        event.message = match (found, was.as_str()) {
            (true, _) => format!("{name} of {pool} has an address now"),
            (false, was) => format!("member {name} of {pool} has left, it was {was}"),
        };
        (event.member, event.standing) = (Some(name), None);
        (event.from, event.to) = words(was.as_str(), REMOVED);
        event
    }

    fn joiner(&self, member: &Member, standing: Standing, moves: &Moves) -> Event {
        let (pool, mut event) = (self.pool, self.about_member(Kind::Member, member, standing));
        let (key, name) = (&member.spec().key, label(&member.spec().key));
        let lost = key.address.is_none() && moves.left.iter().any(|(left, _)| left.name == key.name);
        event.message = match (key.address, standing) {
            (None, _) if lost => format!("{name} of {pool} has no address any more; it gets nothing"),
            (None, _) => format!("member {name} of {pool} joins, its name has no address; it gets nothing"),
            (Some(_), Standing::Unknown) => format!("member {name} of {pool} joins, its health is not known yet"),
            (Some(_), standing) => format!("member {name} of {pool} joins, it is {}", standing.as_str()),
        };
        (event.from, event.to) = words(ADDED, standing.as_str());
        event
    }

    fn joiners<'s>(&'s self, moves: &'s Moves) -> impl Iterator<Item = &'s Key> + 's {
        moves.joined.iter().filter_map(|id| Some(&self.health.member(*id)?.spec().key))
    }

    fn verdict(&self, member: MemberId, from: Verdict, to: Verdict) -> Option<Event> {
        let (subject, standing) = self.subject(member)?;
        let name = label(&subject.spec().key);
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
        (event.from, event.to) = words(from.as_str(), to.as_str());
        Some(event)
    }

    fn admin(&self, member: MemberId, from: Admin, to: Admin) -> Option<Event> {
        let (subject, standing) = self.subject(member)?;
        let mut event = self.about_member(Kind::Member, subject, standing);
        let (name, pool, shares) = (label(&subject.spec().key), self.pool, self.shares());
        let (was, is) = (from.as_str(), to.as_str());
        event.message = format!("member {name} of {pool} is {is} now, it was {was}; {shares}");
        (event.from, event.to) = words(was, is);
        Some(event)
    }

    fn place(&self, member: MemberId, from: Standing, to: Standing) -> Option<Event> {
        let (subject, standing) = self.subject(member)?;
        let mut event = self.about_member(Kind::Cap, subject, standing);
        let (name, pool, place) = (label(&subject.spec().key), self.pool, self.consequence(to));
        event.message = format!("member {name} of {pool}, unhealthy as before, is now {place}");
        (event.from, event.to) = words(from.as_str(), to.as_str());
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
        (event.from, event.to) = (Some(was), Some(format!("tier {to}")));
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
        (event.from, event.to) = words(self.mode_before().as_str(), self.picture.mode.as_str());
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
        (event.from, event.to) = words(from.as_str(), to.as_str());
        let pool = self.pool;
        event.message = match to {
            Mode::Down => {
                event.level = Severity::Warn;
                format!("pool {pool} is down: nobody may serve, requests that come to it are answered 503")
            }
            Mode::Waiting => format!("pool {pool}: requests wait for a first verdict"),
            // The tier that serves is the same; a better one has come that cannot.
            Mode::Failover => {
                (event.kind, event.level) = (Kind::Failover, Severity::Warn);
                format!("pool {pool}: failover: a better tier cannot serve; {}", self.shares())
            }
            _ => format!("pool {pool} is {} now, it was {}; {}", to.as_str(), from.as_str(), self.shares()),
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
            Standing::Unknown => "not healthy yet, it gets nothing".to_owned(),
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
            member: Some(label(&member.spec().key)),
            standing: Some(standing.as_str()),
            window: (window.shown > 0).then(|| format!("{}/{}", window.passes, window.shown)),
            latency_ms: member.latency().map(in_millis),
            ..self.about_pool(kind)
        }
    }

    fn about_pool(&self, kind: Kind) -> Event {
        Event {
            pool: Some(self.pool.to_owned()),
            in_rotation: Some(self.picture.in_rotation),
            total: Some(self.picture.total),
            mode: Some(self.picture.mode.as_str()),
            ..Event::new(kind, Severity::Info, String::new())
        }
    }
}

fn is_of_a_member(change: &Change) -> bool {
    matches!(change, Change::Verdict { .. } | Change::Admin { .. } | Change::Place { .. })
}

fn words(from: &str, to: &str) -> (Option<String>, Option<String>) {
    (Some(from.to_owned()), Some(to.to_owned()))
}

/// The member as logs, API and metrics show it: its address, or its name while that has none.
fn label(key: &Key) -> String {
    key.address.map_or_else(|| key.name.clone(), |address| address.to_string())
}

/// Why a member is unhealthy: the word, and the words of its last sample where that is the fail that made it so.
fn cause(member: &Member) -> (Option<&'static str>, Option<String>) {
    let Some(reason) = member.cause() else { return (None, None) };
    if let Some(ban) = member.ban().filter(|_| member.judged() == Verdict::Healthy) {
        return (Some(reason.as_str()), Some(by_traffic(ban)));
    }
    let detail = member.last_sample().filter(|(sample, _)| sample.outcome == crate::health::Outcome::Fail(reason));
    let detail = detail.map(|(sample, _)| Shown(&sample.detail).to_string()).filter(|detail| !detail.is_empty());
    (Some(reason.as_str()), detail)
}

/// `traffic: 5 failures in a row, last: 503; offence 1, out for 30 s`.
fn by_traffic(ban: &Ban) -> String {
    let (seen, term) = (ban.charge.words(), ban.term().as_secs_f64());
    format!("traffic: {seen}; offence {}, out for {term} s", ban.offences)
}

fn members(count: usize) -> String {
    if count == 1 { "1 member".to_owned() } else { format!("{count} members") }
}
