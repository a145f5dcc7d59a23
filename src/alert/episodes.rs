//! What is told of what is wrong: each episode once, and its end once.
//!
//! Pure: conditions, time and ids go in, what is to be told comes out. An episode belongs to an alert's name, an occasion and a
//! subject, so that it outlives reloads; what an alert does not ask for any more is over for it.
//!
//! Not here: how it is told (`outbox`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::conditions::{Conditions, Key, Moment, Subject};
use crate::config::{Alert, Occasion, Trigger};

/// Something that is wrong, as one alert sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// Of this one alone.
    pub id: String,
    /// What, and with whom.
    pub key: Key,
    /// Since when.
    pub since: Moment,
    /// Its beginning was told.
    pub is_told: bool,
    /// What has told of it, in a sentence.
    pub because: String,
}

/// Which end of an episode is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has begun, and lasted for as long as it had to.
    Firing,
    /// It is over.
    Resolved,
}

/// Something to be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Telling {
    /// The alert's name.
    pub alert: Arc<str>,
    /// Which end of it.
    pub phase: Phase,
    /// As it was at that moment.
    pub episode: Episode,
    /// When that was.
    pub at: SystemTime,
}

/// All episodes that are not over, by alert.
#[derive(Debug, Default)]
pub struct Episodes(BTreeMap<(Arc<str>, Key), Episode>);

/// What a step is made of.
pub struct Step<'a> {
    /// When it is.
    pub now: Moment,
    /// Those of the present configuration.
    pub alerts: &'a [Alert],
    /// What is wrong.
    pub conditions: &'a Conditions,
    /// Whether an alert is about somebody: its `pools` say so.
    pub is_about: &'a dyn Fn(&Alert, &Subject) -> bool,
    /// What this step was heard of by.
    pub because: Option<&'a str>,
}

impl Episodes {
    /// Looks at these, which may be others than before; `new_id` makes ids.
    pub fn settle(&mut self, step: &Step<'_>, keys: &[Key], mut new_id: impl FnMut() -> String) -> Vec<Telling> {
        let mut tellings = Vec::new();
        for alert in step.alerts {
            for key in keys {
                let trigger = alert.on.iter().find(|trigger| trigger.occasion == key.0);
                let wanted = trigger.filter(|_| (step.is_about)(alert, &key.1));
                tellings.extend(self.settle_one(step, alert, key, wanted, &mut new_id));
            }
        }
        tellings
    }

    /// The same for all there are.
    pub fn settle_all(&mut self, step: &Step<'_>, new_id: impl FnMut() -> String) -> Vec<Telling> {
        // Whoever would be told is not there any more.
        self.0.retain(|(name, _), _| step.alerts.iter().any(|alert| alert.name == *name));
        let mut keys: Vec<Key> = self.0.keys().map(|(_, key)| key.clone()).chain(step.conditions.keys()).collect();
        keys.sort();
        keys.dedup();
        self.settle(step, &keys, new_id)
    }

    /// When [`Episodes::settle_all`] will next have something to do if nothing is heard.
    pub fn next_deadline(&self, alerts: &[Alert], conditions: &Conditions) -> Option<Duration> {
        let deadline = |((name, key), episode): (&(Arc<str>, Key), &Episode)| {
            let alert = alerts.iter().find(|alert| alert.name == *name)?;
            let trigger = alert.on.iter().find(|trigger| trigger.occasion == key.0)?;
            match episode.is_told {
                false => Some(episode.since.monotonic + trigger.hold),
                true => conditions.ends_at(key, trigger),
            }
        };
        self.0.iter().filter_map(deadline).min()
    }

    /// The beginning of this one could not be told: nor is its end.
    pub fn lose(&mut self, telling: &Telling) {
        self.0.remove(&(telling.alert.clone(), telling.episode.key.clone()));
    }

    /// Those of an alert that were told of.
    pub fn open<'a>(&'a self, alert: &'a str) -> impl Iterator<Item = &'a Episode> {
        let of_it = self.0.iter().filter(move |((name, _), _)| **name == *alert);
        of_it.map(|(_, episode)| episode).filter(|episode| episode.is_told)
    }

    fn settle_one(
        &mut self,
        step: &Step<'_>,
        alert: &Alert,
        key: &Key,
        wanted: Option<&Trigger>,
        new_id: &mut impl FnMut() -> String,
    ) -> Option<Telling> {
        let place = (alert.name.clone(), key.clone());
        let is_open = self.0.contains_key(&place);
        let since = wanted.and_then(|trigger| step.conditions.since(step.now, key, trigger, is_open));
        let telling = |phase, episode: &Episode| Telling {
            alert: alert.name.clone(),
            phase,
            episode: episode.clone(),
            at: step.now.wall,
        };
        let (Some(trigger), Some(since)) = (wanted, since) else {
            let mut over = self.0.remove(&place).filter(|episode| episode.is_told)?;
            over.because = match step.because {
                Some(because) => because.to_owned(),
                None if wanted.is_none() => "it is not watched any more".to_owned(),
                None if key.0 == Occasion::Flapping => "its verdict has stayed".to_owned(),
                None => "it is over, or not there any more".to_owned(),
            };
            return Some(telling(Phase::Resolved, &over));
        };
        let because = || step.conditions.because(key).or(step.because).unwrap_or_default().to_owned();
        let episode = self.0.entry(place).or_insert_with(|| Episode {
            id: new_id(),
            key: key.clone(),
            since,
            is_told: false,
            because: because(),
        });
        if episode.is_told || step.now.monotonic < episode.since.monotonic + trigger.hold {
            return None;
        }
        episode.is_told = true;
        Some(telling(Phase::Firing, episode))
    }
}

#[cfg(test)]
mod tests;
