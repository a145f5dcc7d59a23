//! The alerts: who is told of what, and about which pools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::domain::{Pool, Webhook};
use super::file::AlertKeys;
use super::parse::fit_name;
use super::reading::{DAY, Reading};
use super::spelling::{Spelled, Spelling, Text, likely, shown, spell_duration, word};
use super::webhook::webhook;

/// Of `capped`, where nothing is written: a deploy has members come and go.
const CAPPED_FOR: Duration = Duration::from_secs(300);
/// Of `flapping`, where nothing is written: as the rule in docs/metrics.md.
const FLAPS: (u32, Duration) = (6, Duration::from_secs(3600));
/// More changes than this are not remembered.
pub const MOST_FLAPS: u32 = 100;

/// One that is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Of this one alone: its episodes and its counts go by it.
    pub name: Arc<str>,
    /// How.
    pub webhook: Webhook,
    /// Of what, in the order written; each occasion once.
    pub on: Vec<Trigger>,
    /// About these pools; `None`: about all.
    pub pools: Option<BTreeSet<String>>,
}

/// What is told, and when it is worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger {
    /// What it is.
    pub occasion: Occasion,
    /// It lasts for so long.
    pub hold: Duration,
    /// Of `flapping`: so many changes of verdict within so long.
    pub flaps: (u32, Duration),
}

/// What may be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occasion {
    /// A pool answers 503 at once.
    Down,
    /// Nobody of a pool is healthy, and everybody serves.
    Fallback,
    /// A pool has unhealthy members in the rotation, by its cap.
    Capped,
    /// Another tier than a pool's first serves, or another pool than a route's.
    Failover,
    /// A composite is not healthy any more.
    Composite,
    /// A member's verdict changes again and again.
    Flapping,
    /// A member is due for replacement, and what becomes of it.
    Replacement,
}

impl Occasion {
    /// All, in the order of the documents.
    pub const ALL: [Occasion; 7] = [
        Occasion::Down,
        Occasion::Fallback,
        Occasion::Capped,
        Occasion::Failover,
        Occasion::Composite,
        Occasion::Flapping,
        Occasion::Replacement,
    ];

    /// The word in the configuration, in what is told, in API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Occasion::Down => "down",
            Occasion::Fallback => "fallback",
            Occasion::Capped => "capped",
            Occasion::Failover => "failover",
            Occasion::Composite => "composite",
            Occasion::Flapping => "flapping",
            Occasion::Replacement => "replacement",
        }
    }
}

impl Trigger {
    /// Of this occasion, where nothing more is written.
    fn of(occasion: Occasion) -> Trigger {
        let hold = if occasion == Occasion::Capped { CAPPED_FOR } else { Duration::ZERO };
        Trigger { occasion, hold, flaps: FLAPS }
    }

    /// As it is written, everything spelled out.
    pub(super) fn spelled(&self) -> String {
        let occasion = self.occasion.as_str();
        match self.occasion {
            Occasion::Flapping => format!("{occasion} {} in {}", self.flaps.0, spell_duration(self.flaps.1)),
            Occasion::Replacement => occasion.to_owned(),
            _ => format!("{occasion} for {}", spell_duration(self.hold)),
        }
    }
}

/// The alerts written at the top of the file that `top` stands on.
pub(super) fn alerts(
    written: Option<&[AlertKeys]>,
    pools: &BTreeMap<String, Arc<Pool>>,
    top: &mut Reading<'_>,
) -> Vec<Alert> {
    let mut read: Vec<Alert> = Vec::new();
    for (index, keys) in written.unwrap_or_default().iter().enumerate() {
        let at = top.at.key("alerts").item(index);
        let Some(mut alert) = alert(keys, pools, Reading::new(at, top.problems)) else { continue };
        if read.iter().any(|other| other.name == alert.name) {
            if keys.name.is_some() {
                let message = format!("two alerts are called \"{}\"; give each a name of its own", alert.name);
                top.problems.error(at.key("name"), message);
            } else {
                alert.name = format!("{}-{}", alert.name, index + 1).into();
            }
        }
        read.push(alert);
    }
    read
}

fn alert(keys: &AlertKeys, pools: &BTreeMap<String, Arc<Pool>>, mut read: Reading<'_>) -> Option<Alert> {
    let name = read.text("name", &keys.name, |name| fit_name(name, "an alert").map(|()| Arc::<str>::from(name)));
    let on = triggers(keys.on.as_deref(), &mut read);
    let about = about(keys.pools.as_deref(), pools, &mut read);
    let Some(keys) = &keys.webhook else {
        let message = "an alert needs somebody who is told; write `webhook: { url: …, secret: … }`";
        read.missing("webhook", message);
        return None;
    };
    let webhook = webhook(keys, &mut read.under("webhook"))?;
    let host = || webhook.url.host().unwrap_or_default().trim_matches(['[', ']']).replace(':', "_");
    Some(Alert { name: name.unwrap_or_else(|| host().into()), webhook, on, pools: about })
}

fn triggers(written: Option<&[Spelled<Text>]>, read: &mut Reading<'_>) -> Vec<Trigger> {
    let Some(list) = written else { return Occasion::ALL.map(Trigger::of).into() };
    if list.is_empty() && !read.at.key("on").damaged() {
        read.error("on", "`on` is empty, so nobody is told; write `on: [fallback]`, or leave it out for everything");
    }
    let mut triggers: Vec<Trigger> = Vec::new();
    for (index, Spelled(Text(text))) in list.iter().enumerate() {
        let at = read.at.key("on").item(index);
        match trigger(text) {
            Ok(trigger) if triggers.iter().any(|other| other.occasion == trigger.occasion) => {
                let word = trigger.occasion.as_str();
                read.problems.error(at, format!("`{word}` is in the list already; an alert tells of it once"));
            }
            Ok(trigger) => triggers.push(trigger),
            Err(message) => read.problems.error(at, message),
        }
    }
    triggers
}

/// `fallback`, `capped for 5m`, `flapping 6 in 1h`.
fn trigger(text: &str) -> Result<Trigger, String> {
    let mut words = text.split_whitespace();
    let known = Occasion::ALL.map(|occasion| (occasion.as_str(), occasion));
    let occasion = word(words.next().unwrap_or_default(), &known)?;
    let mut trigger = Trigger::of(occasion);
    let (name, rest) = (occasion.as_str(), words.collect::<Vec<_>>());
    match (occasion, rest.as_slice()) {
        (_, []) => {}
        (Occasion::Flapping, [times, "in", within @ ..]) if !within.is_empty() => {
            let times = times.parse().ok().filter(|times| (2..=MOST_FLAPS).contains(times));
            let refused = || format!("`{}`: write 2 to {MOST_FLAPS} changes of verdict", shown(text));
            trigger.flaps = (times.ok_or_else(refused)?, span(&within.join(" "), Duration::from_secs(1))?);
        }
        (Occasion::Flapping, _) => {
            return Err(format!("`{}`: write `flapping`, or `flapping 6 in 1h`", shown(text)));
        }
        (Occasion::Replacement, _) => {
            return Err(format!("`{}`: a replacement is told of at once; write `replacement`", shown(text)));
        }
        (_, ["for", hold @ ..]) if !hold.is_empty() => trigger.hold = span(&hold.join(" "), Duration::ZERO)?,
        _ => return Err(format!("`{}`: write `{name}`, or `{name} for 5m`", shown(text))),
    }
    Ok(trigger)
}

fn span(text: &str, least: Duration) -> Result<Duration, String> {
    let span = <Duration as Spelling>::read(text)?;
    match span {
        span if span < least => {
            Err(format!("`{}` is too short; write at least `{}`", shown(text), spell_duration(least)))
        }
        span if span > DAY => Err(format!("`{}` is too long; write at most `{}`", shown(text), spell_duration(DAY))),
        span => Ok(span),
    }
}

fn about(
    written: Option<&[Spelled<Text>]>,
    pools: &BTreeMap<String, Arc<Pool>>,
    read: &mut Reading<'_>,
) -> Option<BTreeSet<String>> {
    let list = written?;
    if list.is_empty() && !read.at.key("pools").damaged() {
        read.error("pools", "`pools` is empty, so nobody is told of any; leave it out for all of them");
    }
    let mut about = BTreeSet::new();
    let known: Vec<&str> = pools.keys().map(String::as_str).collect();
    for (index, Spelled(Text(name))) in list.iter().enumerate() {
        let at = read.at.key("pools").item(index);
        if !pools.contains_key(name) {
            let message = match likely(name, &known) {
                Some(other) => format!("there is no pool \"{}\"; did you mean \"{other}\"?", shown(name)),
                None => format!("there is no pool \"{}\"", shown(name)),
            };
            if !known.is_empty() {
                read.problems.error(at, message);
            }
        } else if !about.insert(name.clone()) {
            read.problems.error(at, format!("pool \"{}\" is in the list already", shown(name)));
        }
    }
    Some(about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_reads_as_a_sentence() {
        let rows = [
            ("fallback", Ok("fallback for 0s")),
            ("capped", Ok("capped for 5m")),
            ("capped  for 1h 30m", Ok("capped for 1h 30m")),
            ("composite for 0s", Ok("composite for 0s")),
            ("flapping", Ok("flapping 6 in 1h")),
            ("flapping 4 in 10m", Ok("flapping 4 in 10m")),
            ("replacement", Ok("replacement")),
            ("replacement for 5m", Err("told of at once")),
            ("flapping for 5m", Err("`flapping 6 in 1h`")),
            ("flapping 1 in 5m", Err("write 2 to 100")),
            ("flapping 4 in 1ms", Err("at least `1s`")),
            ("down for", Err("`down for 5m`")),
            ("down 5m", Err("`down for 5m`")),
            ("down for 5", Err("no unit")),
            ("down for 2d", Err("too long")),
            ("falback", Err("did you mean `fallback`?")),
            ("", Err("not known here")),
        ];
        for (text, expected) in rows {
            match (trigger(text), expected) {
                (Ok(trigger), Ok(spelled)) => {
                    assert_eq!(trigger.spelled(), spelled, "{text}");
                    assert_eq!(super::trigger(spelled), Ok(trigger), "{text}");
                }
                (Err(message), Err(words)) => assert!(message.contains(words), "{text}: {message}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }
}
