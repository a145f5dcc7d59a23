//! What an answer means for what was known before: pure, with time as an argument (case C65).
//!
//! Trouble erases nothing. A name that is gone keeps what it had for a grace, since whoever deletes a record by mistake
//! wants it back; a record that left an answer that is otherwise good is gone at once, since somebody took it out.

use std::collections::BTreeSet;
use std::time::Duration;

/// What came of a question for records of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    /// These, in no order. None at all is said on purpose, as by a target `.` (RFC 2782).
    Records(BTreeSet<T>, Duration),
    /// There are none: the name does not exist, or has none of this kind. With the time for which that holds, if it was
    /// said (RFC 2308).
    Nothing(&'static str, Option<Duration>),
    /// Nobody knows: no answer, or one that says nothing.
    Trouble(String),
}

/// The records of one kind that a name has, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records<T> {
    kept: BTreeSet<T>,
    /// Since when answers say that there are none of those kept.
    gone_since: Option<Duration>,
}

/// Whether other records make a name that has none of these a good one all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// It has some of another kind: what is not said is not there.
    There,
    /// It has none, or nobody knows.
    Missing,
}

/// What an answer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It says what was known.
    Same,
    /// There are other records now.
    Changed,
    /// The records are kept, and are gone when the grace is over.
    Leaving,
    /// The grace was over.
    Expired,
}

impl<T> Default for Records<T> {
    fn default() -> Records<T> {
        Records { kept: BTreeSet::new(), gone_since: None }
    }
}

impl<T: Ord> Records<T> {
    /// What is known.
    pub fn kept(&self) -> &BTreeSet<T> {
        &self.kept
    }

    /// When records that are leaving will be gone.
    pub fn ends_at(&self, grace: Duration) -> Option<Duration> {
        self.gone_since.map(|since| since.saturating_add(grace))
    }

    /// Takes an answer.
    pub fn learn(&mut self, now: Duration, answer: Answer<T>, others: Others, grace: Duration) -> Step {
        match answer {
            Answer::Trouble(_) => Step::Same,
            Answer::Records(records, _) => {
                self.gone_since = None;
                self.replace(records, Step::Changed)
            }
            Answer::Nothing(..) if others == Others::There => {
                self.gone_since = None;
                self.replace(BTreeSet::new(), Step::Changed)
            }
            Answer::Nothing(..) if self.kept.is_empty() => Step::Same,
            Answer::Nothing(..) => {
                let first = self.gone_since.is_none();
                let since = *self.gone_since.get_or_insert(now);
                if now >= since.saturating_add(grace) {
                    self.gone_since = None;
                    return self.replace(BTreeSet::new(), Step::Expired);
                }
                if first { Step::Leaving } else { Step::Same }
            }
        }
    }

    fn replace(&mut self, records: BTreeSet<T>, step: Step) -> Step {
        if self.kept == records {
            return Step::Same;
        }
        self.kept = records;
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(300);

    fn records(text: &str) -> Answer<u8> {
        Answer::Records(text.bytes().collect(), Duration::from_secs(1))
    }

    fn none() -> Answer<u8> {
        Answer::Nothing("no such name", None)
    }

    fn trouble() -> Answer<u8> {
        Answer::Trouble("server failure".to_owned())
    }

    fn kept(known: &Records<u8>) -> String {
        known.kept().iter().map(|&byte| char::from(byte)).collect()
    }

    /// Seconds, the answer, what it did, what is known afterwards.
    type Row = (u64, Answer<u8>, Step, &'static str);

    fn play(rows: &[Row]) {
        let mut known = Records::default();
        for (at, answer, step, after) in rows {
            let now = Duration::from_secs(*at);
            assert_eq!(known.learn(now, answer.clone(), Others::Missing, GRACE), *step, "at {at}");
            assert_eq!(kept(&known), *after, "at {at}");
        }
    }

    #[test]
    fn trouble_erases_nothing_for_as_long_as_it_takes() {
        play(&[
            (0, trouble(), Step::Same, ""),
            (1, records("ab"), Step::Changed, "ab"),
            (2, trouble(), Step::Same, "ab"),
            (100_000, trouble(), Step::Same, "ab"),
            (100_001, records("ab"), Step::Same, "ab"),
        ]);
    }

    #[test]
    fn order_means_nothing_and_who_left_a_good_answer_is_gone_at_once() {
        play(&[
            (0, records("ab"), Step::Changed, "ab"),
            (1, records("ba"), Step::Same, "ab"),
            (2, records("bab"), Step::Same, "ab"),
            (3, records("b"), Step::Changed, "b"),
            (4, records("bc"), Step::Changed, "bc"),
            (5, records(""), Step::Changed, ""),
        ]);
    }

    #[test]
    fn a_name_that_is_gone_keeps_what_it_had_for_the_grace() {
        play(&[
            (0, none(), Step::Same, ""),
            (1, records("a"), Step::Changed, "a"),
            (10, none(), Step::Leaving, "a"),
            (309, none(), Step::Same, "a"),
            (310, none(), Step::Expired, ""),
            (311, none(), Step::Same, ""),
            (312, records("a"), Step::Changed, "a"),
            // Back in time: it begins anew at the next loss.
            (320, none(), Step::Leaving, "a"),
            (600, records("a"), Step::Same, "a"),
            (610, none(), Step::Leaving, "a"),
            (909, none(), Step::Same, "a"),
            // Trouble meanwhile neither takes away nor gives time.
            (1_000, trouble(), Step::Same, "a"),
            (1_001, none(), Step::Expired, ""),
        ]);
    }

    #[test]
    fn what_a_name_with_other_records_does_not_have_is_not_there() {
        let mut known = Records::default();
        known.learn(Duration::ZERO, records("a"), Others::Missing, GRACE);
        assert_eq!(known.learn(Duration::ZERO, trouble(), Others::There, GRACE), Step::Same);
        assert_eq!(kept(&known), "a", "one family in trouble is kept while the other answers");
        assert_eq!(known.learn(Duration::ZERO, none(), Others::There, GRACE), Step::Changed);
        assert_eq!(kept(&known), "");
    }

    #[test]
    fn without_a_grace_a_name_that_is_gone_takes_all_with_it() {
        let mut known = Records::default();
        known.learn(Duration::ZERO, records("a"), Others::Missing, Duration::ZERO);
        assert_eq!(known.learn(Duration::ZERO, none(), Others::Missing, Duration::ZERO), Step::Expired);
    }
}
