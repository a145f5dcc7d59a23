//! What one alert still owes: of each occasion and subject what the other side has heard, and so what it is to be told next.
//!
//! Pure: letters and time go in. It is no queue of messages: an episode that is over before its beginning was taken needs
//! neither, so that it never grows beyond what may be wrong at once. What was not taken stays owed while it is so, behind
//! what nobody has tried yet: news are not kept by what was refused.
//!
//! An end goes before the next beginning of its key, and is not waited for: what was not taken by then goes with the end of
//! that one. Between the two it would say to whoever goes by the key that all is well.
//!
//! Not here: how it is sent (`outbox`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::conditions::Key;
use super::episodes::Phase;

/// Of so many things something may be open or owed; one more is dropped.
const ROOM: usize = 20_000;

/// Of one thing so many ends may be owed; of more the oldest is given up.
const MOST_ENDS: usize = 8;

/// What was not taken is tried again after so long, and sooner where something else is taken.
const AGAIN: Duration = Duration::from_secs(120);

/// An end that nobody has taken for so long is given up.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What is told, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Letter {
    /// Of this one alone.
    pub id: String,
    /// What, and with whom.
    pub key: Key,
    /// Which end of it.
    pub phase: Phase,
    /// For the log: `fallback/pool/web firing`.
    pub about: String,
    /// What it says.
    pub text: Bytes,
}

/// A letter whose turn it is.
#[derive(Debug, PartialEq)]
pub struct Due {
    /// What is to be sent.
    pub letter: Letter,
    /// It was not taken before: others may be waiting that are news.
    pub was_tried: bool,
}

/// How sending a letter went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It was taken.
    Taken,
    /// It was not, as far as is known.
    Missed {
        /// It may have been taken all the same.
        may_be_known: bool,
        /// Sent again it would be refused again.
        is_for_good: bool,
    },
}

/// Something that nobody is told any more.
#[derive(Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// As the letter's.
    pub about: String,
    /// For people.
    pub why: &'static str,
}

/// One alert's.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<Key, Account>,
    turns: u64,
    given_up: Vec<GivenUp>,
}

/// What is owed of one occasion and subject.
#[derive(Debug, Default)]
struct Account {
    /// The episode that is not over.
    begun: Option<Begun>,
    /// The ends of those before, oldest first.
    ended: VecDeque<End>,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
enum Begun {
    Owed { owed: Owed, may_be_known: bool },
    Told,
}

#[derive(Debug)]
struct End {
    owed: Owed,
    /// Since when it is.
    since: Duration,
    /// The id of its beginning, where that was under way: it is owed only if that may have been taken.
    on_condition: Option<String>,
}

#[derive(Debug)]
struct Owed {
    letter: Letter,
    /// The least is next.
    turn: u64,
    was_tried: bool,
    not_before: Duration,
}

#[derive(Debug)]
struct UnderWay {
    id: String,
    phase: Phase,
}

impl Ledger {
    /// Something has begun, or is over. False: there is no room, and nothing of it is owed.
    pub fn note(&mut self, now: Duration, letter: Letter) -> bool {
        if letter.phase == Phase::Firing && self.accounts.len() >= ROOM && !self.accounts.contains_key(&letter.key) {
            return false;
        }
        self.turns += 1;
        let (key, phase) = (letter.key.clone(), letter.phase);
        let owed = Owed { letter, turn: self.turns, was_tried: false, not_before: Duration::ZERO };
        let account = self.accounts.entry(key.clone()).or_default();
        account.hasten();
        match phase {
            Phase::Firing => account.begun = Some(Begun::Owed { owed, may_be_known: false }),
            Phase::Resolved => self.given_up.extend(account.end(owed, now)),
        }
        self.tidy(&key);
        true
    }

    /// What is to be sent now, news first; until [`Ledger::done`] nothing else of it is.
    pub fn next(&mut self, now: Duration) -> Option<Due> {
        let ranked = self.accounts.values_mut().filter_map(|account| Some((account.rank(now)?, account)));
        let (_, account) = ranked.min_by_key(|(rank, _)| *rank)?;
        let due = account.due(now).map(|owed| Due { letter: owed.letter.clone(), was_tried: owed.was_tried })?;
        account.under_way = Some(UnderWay { id: due.letter.id.clone(), phase: due.letter.phase });
        Some(due)
    }

    /// When there will be something to be sent if nothing is noted.
    pub fn next_at(&self) -> Option<Duration> {
        self.accounts.values().flat_map(Account::sendable).map(|owed| owed.not_before).min()
    }

    /// What was to be sent of `key` was sent, or not.
    pub fn done(&mut self, now: Duration, key: &Key, sent: Sent) {
        self.turns += 1;
        let Some(account) = self.accounts.get_mut(key) else { return };
        let Some(under_way) = account.under_way.take() else { return };
        match under_way.phase {
            Phase::Firing => account.began(&under_way, sent, self.turns, now + AGAIN),
            Phase::Resolved => self.given_up.extend(account.ended(&under_way, sent, self.turns, now)),
        }
        if sent == Sent::Taken {
            self.hasten_one(now);
        }
        self.tidy(key);
    }

    /// What was not taken may be tried again at once: somebody else is asked, or nobody later.
    pub fn hasten(&mut self) {
        self.accounts.values_mut().for_each(Account::hasten);
    }

    /// The alert is not there any more: nothing of it is owed but what is under way. Returned is what was, as the log has it.
    pub fn abandon(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for account in self.accounts.values_mut() {
            let under_way = account.under_way.as_ref().map(|one| one.id.clone());
            let waits = |owed: &&mut Owed| Some(&owed.letter.id) != under_way.as_ref();
            left.extend(account.owed_mut().filter(waits).map(|owed| owed.letter.about.clone()));
            (account.begun, account.ended) = (None, VecDeque::new());
        }
        self.accounts.retain(|_, account| account.under_way.is_some());
        left
    }

    /// What was given up since this was last asked for.
    pub fn given_up(&mut self) -> Vec<GivenUp> {
        std::mem::take(&mut self.given_up)
    }

    /// Whose beginning was taken, and is not over.
    pub fn told(&self) -> BTreeSet<Key> {
        let told = self.accounts.iter().filter(|(_, account)| matches!(account.begun, Some(Begun::Told)));
        told.map(|(key, _)| key.clone()).collect()
    }

    /// How many messages are owed, the one included that is under way.
    pub fn waiting(&self) -> u64 {
        self.accounts.values().map(Account::waiting).sum()
    }

    /// What is owed, as the log has it.
    pub fn abouts(&mut self) -> Vec<String> {
        self.accounts.values_mut().flat_map(Account::owed_mut).map(|owed| owed.letter.about.clone()).collect()
    }

    /// Somebody listens: of what was not taken the one that has waited longest may be tried again, and the next where that
    /// is taken. All at once they would be refused all at once by whoever takes other things.
    fn hasten_one(&mut self, now: Duration) {
        let waits = |owed: &&Owed| owed.was_tried && owed.not_before > now;
        let waiting = self.accounts.values().flat_map(Account::sendable).filter(waits);
        let Some(letter) = waiting.min_by_key(|owed| owed.turn).map(|owed| owed.letter.clone()) else { return };
        let account = self.accounts.get_mut(&letter.key).into_iter();
        let mut found = account.flat_map(Account::owed_mut).filter(|owed| owed.letter.id == letter.id);
        found.by_ref().for_each(|owed| owed.not_before = Duration::ZERO);
    }

    fn tidy(&mut self, key: &Key) {
        let is_idle =
            |account: &Account| account.begun.is_none() && account.ended.is_empty() && account.under_way.is_none();
        if self.accounts.get(key).is_some_and(is_idle) {
            self.accounts.remove(key);
        }
    }
}

impl Account {
    /// What may be sent before anything else is heard, in this order. No end is between the beginning of another and that
    /// one's end.
    fn sendable(&self) -> impl Iterator<Item = &Owed> {
        let (do_ends_go, beginning) = match &self.begun {
            None => (true, None),
            Some(Begun::Owed { owed, may_be_known }) => (!may_be_known, Some(owed)),
            Some(Begun::Told) => (false, None),
        };
        let is_free = self.under_way.is_none();
        let ends = self.ended.iter().filter(move |_| do_ends_go).map(|end| &end.owed);
        ends.chain(beginning).filter(move |_| is_free)
    }

    fn due(&self, now: Duration) -> Option<&Owed> {
        self.sendable().find(|owed| owed.not_before <= now)
    }

    /// The least is next: by what there is of news, though an end may have to go before it. `None`: nothing is due.
    fn rank(&self, now: Duration) -> Option<(bool, u64)> {
        self.sendable().filter(|owed| owed.not_before <= now).map(|owed| (owed.was_tried, owed.turn)).min()
    }

    fn owed_mut(&mut self) -> impl Iterator<Item = &mut Owed> {
        let beginning = match &mut self.begun {
            Some(Begun::Owed { owed, .. }) => Some(owed),
            _ => None,
        };
        self.ended.iter_mut().map(|end| &mut end.owed).chain(beginning)
    }

    fn hasten(&mut self) {
        self.owed_mut().for_each(|owed| owed.not_before = Duration::ZERO);
    }

    /// The episode is over: whoever may know of it is told so. Returned is what is given up for that.
    fn end(&mut self, owed: Owed, now: Duration) -> Option<GivenUp> {
        let is_under_way = |first: &Letter| self.under_way.as_ref().is_some_and(|one| one.id == first.id);
        let (may_be_known, on_condition) = match self.begun.take() {
            Some(Begun::Told) => (true, None),
            Some(Begun::Owed { owed, may_be_known }) => match is_under_way(&owed.letter) {
                true => (true, Some(owed.letter.id).filter(|_| !may_be_known)),
                false => (may_be_known, None),
            },
            None => (false, None),
        };
        if !may_be_known {
            return None;
        }
        self.ended.push_back(End { owed, since: now, on_condition });
        let oldest = if self.ended.len() > MOST_ENDS { self.ended.pop_front() } else { None };
        oldest.map(|end| end.owed.give_up("later ones of it are owed"))
    }

    /// A beginning was sent, of what may be over by now.
    fn began(&mut self, under_way: &UnderWay, sent: Sent, turn: u64, again: Duration) {
        match (&mut self.begun, sent) {
            (Some(Begun::Owed { owed, .. }), Sent::Taken) if owed.letter.id == under_way.id => {
                self.begun = Some(Begun::Told);
            }
            (Some(Begun::Owed { owed, may_be_known }), Sent::Missed { may_be_known: may, .. })
                if owed.letter.id == under_way.id =>
            {
                *may_be_known |= may;
                owed.miss(turn, again);
            }
            (_, Sent::Missed { may_be_known: false, .. }) => {
                self.ended.retain(|end| end.on_condition.as_ref() != Some(&under_way.id));
            }
            _ => {}
        }
    }

    /// An end was sent. Returned is what is given up by that.
    fn ended(&mut self, under_way: &UnderWay, sent: Sent, turn: u64, now: Duration) -> Option<GivenUp> {
        let place = self.ended.iter().position(|end| end.owed.letter.id == under_way.id)?;
        let why = match sent {
            Sent::Taken => {
                self.ended.remove(place);
                return None;
            }
            Sent::Missed { is_for_good: true, .. } => "it is refused",
            Sent::Missed { .. } if now >= self.ended[place].since + LONGEST => "nobody has taken it for a day",
            Sent::Missed { .. } => {
                self.ended[place].owed.miss(turn, now + AGAIN);
                return None;
            }
        };
        self.ended.remove(place).map(|end| end.owed.give_up(why))
    }

    fn waiting(&self) -> u64 {
        let ends = self.ended.iter().map(|end| &end.owed);
        let beginning = match &self.begun {
            Some(Begun::Owed { owed, .. }) => Some(owed),
            _ => None,
        };
        let is_other = |one: &&UnderWay| ends.clone().chain(beginning).all(|owed| owed.letter.id != one.id);
        let apart = self.under_way.as_ref().filter(is_other);
        self.ended.len() as u64 + u64::from(beginning.is_some()) + u64::from(apart.is_some())
    }
}

impl Owed {
    /// Behind the others, which may fare better.
    fn miss(&mut self, turn: u64, again: Duration) {
        (self.turn, self.was_tried, self.not_before) = (turn, true, again);
    }

    fn give_up(self, why: &'static str) -> GivenUp {
        GivenUp { about: self.letter.about, why }
    }
}

#[cfg(test)]
mod tests;
