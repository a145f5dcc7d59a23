//! What one alert still owes: of each occasion and subject what the other side has heard, and so what it is to be told next.
//!
//! Pure: letters and time go in. It is no queue of messages: an episode that is over before its beginning was taken needs
//! neither, so that it never grows beyond what may be wrong at once. What was not taken stays owed while it is so.
//!
//! Not here: how it is sent (`outbox`).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::conditions::Key;
use super::episodes::Phase;

/// Of so many things something may be open or owed; one more is dropped.
const ROOM: usize = 20_000;

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

/// How sending a letter went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It was taken.
    Taken,
    /// It was not.
    Refused,
    /// Nobody has said so, and it may have been.
    Unclear,
}

/// One alert's.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<Key, Account>,
    turns: u64,
}

/// What is owed of one occasion and subject.
#[derive(Debug, Default)]
struct Account {
    /// The episode that is not over.
    begun: Option<Begun>,
    /// The end of the one before, and since when it is owed.
    ended: Option<(Letter, Duration)>,
    under_way: Option<UnderWay>,
    /// The least is next.
    turn: u64,
    not_before: Duration,
}

#[derive(Debug)]
enum Begun {
    Owed { letter: Letter, may_be_known: bool },
    Told,
}

#[derive(Debug)]
struct UnderWay {
    id: String,
    phase: Phase,
    /// An earlier try may have been taken.
    may_be_known: bool,
}

impl Ledger {
    /// Something has begun, or is over. False: there is no room, and nothing of it is owed.
    pub fn note(&mut self, now: Duration, letter: Letter) -> bool {
        if letter.phase == Phase::Firing && self.accounts.len() >= ROOM && !self.accounts.contains_key(&letter.key) {
            return false;
        }
        self.turns += 1;
        let (key, turn) = (letter.key.clone(), self.turns);
        let account = self.accounts.entry(key.clone()).or_default();
        if account.owed().is_none() {
            account.turn = turn;
        }
        account.not_before = Duration::ZERO;
        match letter.phase {
            Phase::Firing => account.begun = Some(Begun::Owed { letter, may_be_known: false }),
            Phase::Resolved => account.end(letter, now),
        }
        self.tidy(&key);
        true
    }

    /// What is to be sent now; until [`Ledger::done`] nothing else of it is.
    pub fn next(&mut self, now: Duration) -> Option<Letter> {
        let due = |account: &&mut Account| account.not_before <= now && account.owed().is_some();
        let account = self.accounts.values_mut().filter(due).min_by_key(|account| account.turn)?;
        let letter = account.owed()?.clone();
        let may_be_known = matches!(account.begun, Some(Begun::Owed { may_be_known: true, .. }));
        account.under_way = Some(UnderWay { id: letter.id.clone(), phase: letter.phase, may_be_known });
        Some(letter)
    }

    /// When there will be something to be sent if nothing is noted.
    pub fn next_at(&self) -> Option<Duration> {
        let owing = self.accounts.values().filter(|account| account.owed().is_some());
        owing.map(|account| account.not_before).min()
    }

    /// What was to be sent of `key` was sent, or not; how many are given up by that.
    pub fn done(&mut self, now: Duration, key: &Key, sent: Sent) -> u64 {
        self.turns += 1;
        let Some(account) = self.accounts.get_mut(key) else { return 0 };
        let Some(under_way) = account.under_way.take() else { return 0 };
        let was_owed = account.ended.is_some();
        match under_way.phase {
            Phase::Firing => account.began(&under_way, sent),
            Phase::Resolved if sent == Sent::Taken => account.ended = None,
            Phase::Resolved => account.ended = account.ended.take().filter(|(_, since)| now < *since + LONGEST),
        }
        let is_given_up = under_way.phase == Phase::Resolved && sent != Sent::Taken && account.ended.is_none();
        // Behind the others, which may fare better.
        account.turn = self.turns;
        if sent == Sent::Taken {
            self.hasten();
        } else if under_way.phase == Phase::Resolved || !was_owed {
            account.not_before = now + AGAIN;
        }
        self.tidy(key);
        u64::from(is_given_up)
    }

    /// What was not taken may be tried again at once: somebody listens, or somebody else is asked.
    pub fn hasten(&mut self) {
        self.accounts.values_mut().for_each(|account| account.not_before = Duration::ZERO);
    }

    /// How many messages are owed, the one included that is under way.
    pub fn waiting(&self) -> u64 {
        self.accounts.values().map(Account::waiting).sum()
    }

    fn tidy(&mut self, key: &Key) {
        let is_idle =
            |account: &Account| account.begun.is_none() && account.ended.is_none() && account.under_way.is_none();
        if self.accounts.get(key).is_some_and(is_idle) {
            self.accounts.remove(key);
        }
    }
}

impl Account {
    /// What is to be sent next: no end after the beginning of another.
    fn owed(&self) -> Option<&Letter> {
        match (&self.under_way, &self.ended, &self.begun) {
            (Some(_), ..) => None,
            (None, Some((letter, _)), _) | (None, None, Some(Begun::Owed { letter, .. })) => Some(letter),
            _ => None,
        }
    }

    /// The episode is over: whoever may know of it is told so.
    fn end(&mut self, letter: Letter, now: Duration) {
        let is_under_way = |first: &Letter| self.under_way.as_ref().is_some_and(|one| one.id == first.id);
        let may_be_known = match &self.begun {
            Some(Begun::Told) => true,
            Some(Begun::Owed { letter, may_be_known }) => *may_be_known || is_under_way(letter),
            None => false,
        };
        self.begun = None;
        if may_be_known {
            self.ended = Some((letter, now));
        }
    }

    /// A beginning was sent, of what may be over by now.
    fn began(&mut self, under_way: &UnderWay, sent: Sent) {
        match &mut self.begun {
            Some(Begun::Owed { letter, may_be_known }) if letter.id == under_way.id => match sent {
                Sent::Taken => self.begun = Some(Begun::Told),
                Sent::Unclear => *may_be_known = true,
                Sent::Refused => {}
            },
            _ if sent == Sent::Refused && !under_way.may_be_known => self.ended = None,
            _ => {}
        }
    }

    fn waiting(&self) -> u64 {
        let owed = match &self.begun {
            Some(Begun::Owed { letter, .. }) => Some(&letter.id),
            _ => None,
        };
        let ended = self.ended.as_ref().map(|(letter, _)| &letter.id);
        let apart = self.under_way.as_ref().filter(|one| ![owed, ended].contains(&Some(&one.id)));
        u64::from(owed.is_some()) + u64::from(ended.is_some()) + u64::from(apart.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::conditions::Subject;
    use crate::config::Occasion;

    const ZERO: Duration = Duration::ZERO;

    fn key(pool: &str) -> Key {
        (Occasion::Fallback, Subject::Pool(pool.to_owned()))
    }

    fn letter(pool: &str, episode: u32, phase: Phase) -> Letter {
        let id = format!("{pool}{episode} {}", phase.as_str());
        Letter { id, key: key(pool), phase, about: String::new(), text: Bytes::new() }
    }

    /// Notes these: `+a1` has begun, `-a1` is over.
    fn noted(ledger: &mut Ledger, all: &str) {
        for one in all.split_whitespace() {
            let phase = if one.starts_with('+') { Phase::Firing } else { Phase::Resolved };
            assert!(ledger.note(ZERO, letter(&one[1..2], one[2..].parse().unwrap(), phase)), "{one}");
        }
    }

    /// Sends what is owed until nothing is, and says what.
    fn drained(ledger: &mut Ledger, now: Duration, sent: Sent) -> Vec<String> {
        let one = |ledger: &mut Ledger| {
            let letter = ledger.next(now)?;
            ledger.done(now, &letter.key, sent);
            Some(letter.id)
        };
        std::iter::from_fn(|| one(ledger)).collect()
    }

    #[test]
    fn what_is_over_before_it_was_told_needs_neither_and_what_was_told_is_told_to_be_over() {
        let rows: [(&str, &str, &[&str]); 5] = [
            ("", "+a1 +b2", &["a1 firing", "b2 firing"]),
            ("", "+a1 -a1 +b2", &["b2 firing"]),
            ("+a1", "-a1", &["a1 resolved"]),
            ("+a1 +b2", "-b2 -a1", &["b2 resolved", "a1 resolved"]),
            ("+a1", "-a1 +a2 -a2 +a3", &["a1 resolved", "a3 firing"]),
        ];
        for (before, then, told) in rows {
            let mut ledger = Ledger::default();
            noted(&mut ledger, before);
            drained(&mut ledger, ZERO, Sent::Taken);
            noted(&mut ledger, then);
            assert_eq!(ledger.waiting(), told.len() as u64, "{before}, {then}");
            assert_eq!(drained(&mut ledger, ZERO, Sent::Taken), told, "{before}, {then}");
            assert_eq!((ledger.waiting(), ledger.next_at()), (0, None));
        }
    }

    #[test]
    fn what_ends_while_its_beginning_is_under_way_is_told_where_that_may_have_been_taken() {
        for (sent, told) in [(Sent::Taken, 1), (Sent::Unclear, 1), (Sent::Refused, 0)] {
            let mut ledger = Ledger::default();
            noted(&mut ledger, "+a1");
            assert_eq!(ledger.next(ZERO).unwrap().id, "a1 firing");
            noted(&mut ledger, "-a1");
            assert_eq!((ledger.waiting(), ledger.next(ZERO)), (2, None));
            ledger.done(ZERO, &key("a"), sent);
            assert_eq!(drained(&mut ledger, ZERO, Sent::Taken).len(), told, "{sent:?}");
            assert!(ledger.accounts.is_empty(), "{sent:?}");
        }
    }

    #[test]
    fn what_is_not_taken_is_tried_again_while_it_lasts() {
        let mut ledger = Ledger::default();
        noted(&mut ledger, "+a1");
        assert_eq!(drained(&mut ledger, ZERO, Sent::Refused), ["a1 firing"]);
        assert_eq!((ledger.waiting(), ledger.next_at()), (1, Some(AGAIN)));
        assert_eq!(drained(&mut ledger, AGAIN, Sent::Refused), ["a1 firing"]);
        // Another one is taken, so somebody listens.
        noted(&mut ledger, "+b2");
        assert_eq!(drained(&mut ledger, AGAIN, Sent::Taken), ["b2 firing", "a1 firing"]);
        noted(&mut ledger, "+c3");
        drained(&mut ledger, ZERO, Sent::Refused);
        noted(&mut ledger, "-c3 +d4");
        assert_eq!(drained(&mut ledger, ZERO, Sent::Unclear), ["d4 firing"]);
        noted(&mut ledger, "-d4");
        assert_eq!(drained(&mut ledger, ZERO, Sent::Refused), ["d4 resolved"]);
        assert_eq!(ledger.next(LONGEST).unwrap().id, "d4 resolved");
        assert_eq!(ledger.done(LONGEST, &key("d"), Sent::Refused), 1, "given up");
        assert_eq!(ledger.waiting(), 0);
    }

    #[test]
    fn hundreds_at_once_are_all_told_and_there_is_a_limit() {
        let mut ledger = Ledger::default();
        let name = |number: usize| format!("p{number}");
        for number in 0..ROOM {
            assert!(ledger.note(ZERO, letter(&name(number), 1, Phase::Firing)));
        }
        assert!(!ledger.note(ZERO, letter("more", 1, Phase::Firing)));
        assert!(ledger.note(ZERO, letter("more", 1, Phase::Resolved)));
        for number in 0..ROOM {
            assert!(ledger.note(ZERO, letter(&name(number), 1, Phase::Resolved)));
        }
        assert!(ledger.accounts.is_empty());
    }
}
