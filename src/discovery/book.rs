//! What is known of each name, and what an answer did to it.
//!
//! Under one short lock; nothing is awaited here. What happened is told by the lines of this file and no other.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ask::{Question, Reply};
use super::meaning::{Answer, Others, Records, Step};
use super::pace::{self, Outcome};
use super::service::Target;
use crate::config::Resolver;

/// All that is known.
#[derive(Debug, Default)]
pub struct Book(Mutex<HashMap<Question, Entry>>);

/// What is known of one name.
#[derive(Debug, Clone, Default)]
struct Entry {
    v4: Records<IpAddr>,
    v6: Records<IpAddr>,
    targets: Records<Target>,
    /// It has been asked for to the end, whatever came of it.
    asked: bool,
    /// Why the last answer could not be used, or says that there is nothing.
    trouble: Option<Arc<str>>,
    /// How much of the name that concerns.
    extent: Extent,
    /// In a row.
    unanswered: u32,
    /// Nobody wants to know since then.
    unwanted_since: Option<Duration>,
}

/// How much of a name is in trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Extent {
    /// Nothing that it had is known to be there.
    #[default]
    Whole,
    /// One family; the other one has answered.
    Part,
}

/// What a name means now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known<T> {
    /// Sorted.
    pub records: Vec<T>,
    /// What is wrong with the last answer.
    pub trouble: Option<Arc<str>>,
}

/// What has to be done after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// Something else is known now.
    pub changed: bool,
    /// Until the next question.
    pub wait: Duration,
}

impl Book {
    /// The addresses of a name.
    pub fn addresses(&self, host: &str) -> Known<IpAddr> {
        let entries = self.entries();
        let Some(entry) = entries.get(&Question::Host(host.to_owned())) else { return Known::nothing() };
        let records = entry.v4.kept().iter().chain(entry.v6.kept()).copied().collect();
        Known { records, trouble: entry.trouble() }
    }

    /// The targets of a service.
    pub fn targets(&self, service: &str) -> Known<Target> {
        let entries = self.entries();
        let Some(entry) = entries.get(&Question::Service(service.to_owned())) else { return Known::nothing() };
        Known { records: entry.targets.kept().iter().cloned().collect(), trouble: entry.trouble() }
    }

    /// Whether all of these have been asked for to the end.
    pub fn has_asked<'a>(&self, mut questions: impl Iterator<Item = &'a Question>) -> bool {
        let entries = self.entries();
        questions.all(|question| entries.get(question).is_some_and(|entry| entry.asked))
    }

    /// Keeps what is `wanted`, and of what is not anything that was wanted within the grace: who comes back soon has what
    /// was known.
    pub fn keep(&self, now: Duration, wanted: &HashSet<Question>, grace: Duration) {
        let mut entries = self.entries();
        for question in wanted {
            let entry = entries.entry(question.clone()).or_default();
            // It is asked for anew, and waited for like one that is new.
            entry.asked &= entry.unwanted_since.take().is_none();
        }
        entries.retain(|question, entry| {
            let since = match wanted.contains(question) {
                true => return true,
                false => *entry.unwanted_since.get_or_insert(now),
            };
            entry.asked && now < since.saturating_add(grace)
        });
    }

    /// Takes an answer; `chance` is from 0 to 1. One that nobody waits for any more is not taken.
    pub fn learn(&self, now: Duration, question: &Question, reply: Reply, bounds: &Resolver, chance: f64) -> Next {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(question) else {
            return Next { changed: false, wait: bounds.max_refresh };
        };
        let (before, was_trouble, was) = (entry.labels(), entry.trouble.clone(), entry.extent);
        let Judged { trouble, extent, hold } = troubles(&reply);
        let steps = entry.take(now, reply, bounds.grace);
        entry.asked = true;
        entry.trouble = trouble;
        entry.extent = extent;
        let is_answered = hold.is_some() && extent == Extent::Whole;
        entry.unanswered = if is_answered { 0 } else { entry.unanswered.saturating_add(1) };
        let told =
            Told { name: question.name(), steps: &steps, before, after: entry.labels(), was_trouble, was, extent };
        told.tell(entry.trouble.as_deref(), bounds);
        let outcomes = [
            hold.map(Outcome::Answered),
            // One family that answers is followed at its own pace, and the other is not asked for more rarely for that.
            (!is_answered).then_some(Outcome::Unanswered(entry.unanswered)),
        ];
        let waits = outcomes.into_iter().flatten().map(|outcome| pace::wait(outcome, bounds, chance));
        let mut wait = waits.min().unwrap_or(bounds.min_refresh);
        if let Some(end) = entry.ends_at(bounds.grace) {
            // Its removal needs one more answer, as soon as the grace is over.
            wait = wait.min(end.saturating_sub(now)).max(bounds.min_refresh);
        }
        Next { changed: told.before != told.after || told.was_trouble.as_deref() != entry.trouble.as_deref(), wait }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Question, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Known<T> {
    fn nothing() -> Known<T> {
        Known { records: Vec::new(), trouble: None }
    }
}

impl Entry {
    fn take(&mut self, now: Duration, reply: Reply, grace: Duration) -> Vec<Step> {
        match reply {
            Reply::Host(v4, v6) => {
                let there = |answer: &Answer<IpAddr>| match answer {
                    Answer::Records(records, _) if !records.is_empty() => Others::There,
                    _ => Others::Missing,
                };
                let (for_v4, for_v6) = (there(&v6), there(&v4));
                vec![self.v4.learn(now, v4, for_v4, grace), self.v6.learn(now, v6, for_v6, grace)]
            }
            Reply::Service(answer) => vec![self.targets.learn(now, answer, Others::Missing, grace)],
        }
    }

    /// What is wrong; at first that nobody has answered.
    fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.clone().or_else(|| (!self.asked).then(|| "not answered yet".into()))
    }

    fn ends_at(&self, grace: Duration) -> Option<Duration> {
        [self.v4.ends_at(grace), self.v6.ends_at(grace), self.targets.ends_at(grace)].into_iter().flatten().min()
    }

    /// All that is known, as people read it.
    fn labels(&self) -> Vec<String> {
        let addresses = self.v4.kept().iter().chain(self.v6.kept()).map(ToString::to_string);
        let target = |t: &Target| format!("{}:{} (priority {}, weight {})", t.host, t.port, t.priority, t.weight);
        addresses.chain(self.targets.kept().iter().map(target)).collect()
    }
}

/// An answer, as it bears on the name.
struct Judged {
    /// What is wrong with it.
    trouble: Option<Arc<str>>,
    /// How much of the name that concerns.
    extent: Extent,
    /// For how long what it says holds; `None`: it says nothing that could be used.
    hold: Option<Duration>,
}

fn troubles(reply: &Reply) -> Judged {
    let whole =
        |trouble: Option<String>, hold| Judged { trouble: trouble.map(Into::into), extent: Extent::Whole, hold };
    let part = |trouble: String, hold| Judged { trouble: Some(trouble.into()), extent: Extent::Part, hold };
    match reply {
        Reply::Host(v4, v6) => match (of(v4), of(v6)) {
            ((None, hold), (None, other)) => whole(None, hold.min(other)),
            // One family is enough; the other one is asked for with it.
            ((None, hold), (Some(_), _)) if !is_trouble(v6) => whole(None, hold),
            ((Some(_), _), (None, hold)) if !is_trouble(v4) => whole(None, hold),
            ((None, hold), (Some(trouble), _)) => part(format!("IPv6: {trouble}"), hold),
            ((Some(trouble), _), (None, hold)) => part(format!("IPv4: {trouble}"), hold),
            ((Some(one), _), (Some(other), _)) => {
                let worse = if is_trouble(v6) && !is_trouble(v4) { other } else { one };
                whole(Some(worse), None)
            }
        },
        Reply::Service(answer) => {
            let (trouble, hold) = of(answer);
            whole(trouble, hold)
        }
    }
}

fn of<T>(answer: &Answer<T>) -> (Option<String>, Option<Duration>) {
    match answer {
        Answer::Records(_, ttl) => (None, Some(*ttl)),
        Answer::Nothing(why, _) => (Some((*why).to_owned()), None),
        Answer::Trouble(why) => (Some(why.clone()), None),
    }
}

fn is_trouble<T>(answer: &Answer<T>) -> bool {
    matches!(answer, Answer::Trouble(_))
}

/// What an answer did, for people.
struct Told<'a> {
    name: &'a str,
    steps: &'a [Step],
    before: Vec<String>,
    after: Vec<String>,
    was_trouble: Option<Arc<str>>,
    was: Extent,
    extent: Extent,
}

impl Told<'_> {
    /// A line where something is other than before. A trouble that stays is told of once, whatever its words.
    fn tell(&self, trouble: Option<&str>, bounds: &Resolver) {
        let (host, kept) = (self.name, self.after.len());
        let less = |one: &[String], other: &[String]| -> String {
            let other: HashSet<&String> = other.iter().collect();
            let left: Vec<&str> = one.iter().filter(|label| !other.contains(label)).map(String::as_str).collect();
            left.join(", ")
        };
        let (added, removed) = (less(&self.after, &self.before), less(&self.before, &self.after));
        if self.steps.contains(&Step::Expired) {
            let error = trouble.unwrap_or_default();
            tracing::warn!(
                target: "discovery", %host, removed, error,
                "{host} has had no answer to show for {:?}: removed {removed}", bounds.grace
            );
        } else if self.before != self.after {
            // Pools tell of their members that come and go, to those who want to know.
            tracing::debug!(target: "discovery", %host, added, removed, "{host} is {} now", self.after.join(", "));
        }
        match (trouble, &self.was_trouble) {
            (Some(error), _) if self.steps.contains(&Step::Leaving) => tracing::warn!(
                target: "discovery", %host, error, kept,
                "{host} does not resolve any more: {error}; {kept} kept for {:?}", bounds.grace
            ),
            (Some(error), was) if self.extent == Extent::Part && (was.is_none() || self.was == Extent::Whole) => {
                tracing::warn!(
                    target: "discovery", %host, error, kept,
                    "{host} has an answer for one family alone: {error}; what is known of the other is kept"
                );
            }
            // Told already.
            (Some(_), _) if self.extent == Extent::Part => {}
            (Some(error), was) if kept > 0 && (was.is_none() || self.was == Extent::Part) => tracing::warn!(
                target: "discovery", %host, error, kept, "{host} does not resolve now: {error}; {kept} kept"
            ),
            (Some(error), None) => {
                tracing::warn!(target: "discovery", %host, error, kept, "{host} does not resolve: {error}");
            }
            (None, Some(_)) => tracing::info!(target: "discovery", %host, "{host} resolves again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn bounds() -> Resolver {
        Resolver { grace: Duration::from_secs(100), ..Resolver::default() }
    }

    fn found(texts: &[&str]) -> Answer<IpAddr> {
        let records: BTreeSet<IpAddr> = texts.iter().map(|text| text.parse().expect("an address")).collect();
        Answer::Records(records, TTL)
    }

    fn none() -> Answer<IpAddr> {
        Answer::Nothing("no such name", Some(TTL))
    }

    fn trouble() -> Answer<IpAddr> {
        Answer::Trouble("server failure".to_owned())
    }

    fn app() -> Question {
        Question::Host("app.internal".to_owned())
    }

    fn book() -> Book {
        let book = Book::default();
        book.keep(Duration::ZERO, &[app()].into(), bounds().grace);
        book
    }

    #[test]
    fn both_families_make_the_answer() {
        type Row<'a> = (Answer<IpAddr>, Answer<IpAddr>, &'a [&'a str], Option<&'a str>, u64);
        let rows: [Row<'_>; 7] = [
            (found(&["10.0.0.2", "10.0.0.1"]), found(&["fd00::1"]), &["10.0.0.1", "10.0.0.2", "fd00::1"], None, 60),
            // A family in trouble keeps what it had, and is asked for soon; the other's TTL counts on.
            (trouble(), found(&["fd00::1"]), &["10.0.0.1", "10.0.0.2", "fd00::1"], Some("IPv4: server failure"), 1),
            (found(&["10.0.0.1"]), trouble(), &["10.0.0.1", "fd00::1"], Some("IPv6: server failure"), 2),
            // One that is not there any more while the other is goes at once.
            (found(&["10.0.0.1"]), none(), &["10.0.0.1"], None, 60),
            (trouble(), trouble(), &["10.0.0.1"], Some("server failure"), 1),
            // Trouble says more than nothing: it is not known whether there is something.
            (none(), trouble(), &["10.0.0.1"], Some("server failure"), 2),
            (none(), none(), &["10.0.0.1"], Some("no such name"), 4),
        ];
        let book = book();
        for (n, (v4, v6, expected, trouble, wait)) in rows.into_iter().enumerate() {
            let next = book.learn(Duration::ZERO, &app(), Reply::Host(v4, v6), &bounds(), 0.0);
            let known = book.addresses("app.internal");
            let records: Vec<String> = known.records.iter().map(ToString::to_string).collect();
            assert_eq!(
                (records, known.trouble.as_deref()),
                (expected.iter().map(ToString::to_string).collect(), trouble),
                "{n}"
            );
            assert_eq!(next.wait, Duration::from_secs(wait), "{n}");
        }
    }

    #[test]
    fn a_family_that_answers_is_followed_at_its_ttl_whatever_the_other_does() {
        let book = book();
        let brief = |text: &str| Answer::Records([text.parse().expect("an address")].into(), Duration::from_secs(3));
        let waits = |reply: &dyn Fn() -> Reply| {
            let ask = |_| book.learn(Duration::ZERO, &app(), reply(), &bounds(), 0.0).wait.as_secs();
            (0..6).map(ask).collect::<Vec<_>>()
        };
        assert_eq!(waits(&|| Reply::Host(brief("10.0.0.1"), trouble())), [1, 2, 3, 3, 3, 3]);
        book.learn(Duration::ZERO, &app(), Reply::Host(brief("10.0.0.1"), none()), &bounds(), 0.0);
        assert_eq!(waits(&|| Reply::Host(trouble(), brief("fd00::1"))), [1, 2, 3, 3, 3, 3]);
    }

    #[test]
    fn only_a_difference_is_a_change() {
        let book = book();
        let learn = |at: u64, reply| book.learn(Duration::from_secs(at), &app(), reply, &bounds(), 0.0).changed;
        assert!(learn(0, Reply::Host(found(&["10.0.0.1", "10.0.0.2"]), none())));
        assert!(!learn(1, Reply::Host(found(&["10.0.0.2", "10.0.0.1"]), none())));
        assert!(learn(2, Reply::Host(trouble(), trouble())), "the trouble is shown");
        assert!(!learn(3, Reply::Host(trouble(), trouble())));
        assert!(learn(4, Reply::Host(found(&["10.0.0.1", "10.0.0.2"]), none())));
    }

    #[test]
    fn a_name_that_is_gone_is_asked_for_when_its_grace_ends() {
        let book = book();
        let learn = |at: u64, v4| {
            let next = book.learn(Duration::from_secs(at), &app(), Reply::Host(v4, none()), &bounds(), 0.0);
            (next.wait.as_secs(), book.addresses("app.internal").records.len())
        };
        assert_eq!(learn(0, found(&["10.0.0.1"])), (60, 1));
        for (at, wait) in [(10, 1), (11, 2), (13, 4), (17, 8), (25, 16), (41, 30), (71, 30), (101, 9)] {
            assert_eq!(learn(at, none()), (wait, 1), "at {at}");
        }
        assert_eq!(learn(110, none()), (30, 0));
    }

    #[test]
    fn what_nobody_wants_is_remembered_for_the_grace() {
        let (book, nobody) = (book(), HashSet::new());
        let seconds = Duration::from_secs;
        book.learn(seconds(0), &app(), Reply::Host(found(&["10.0.0.1"]), none()), &bounds(), 0.0);
        book.keep(seconds(1), &nobody, bounds().grace);
        book.keep(seconds(100), &[app()].into(), bounds().grace);
        assert_eq!(book.addresses("app.internal").records.len(), 1);
        assert!(!book.has_asked([app()].iter()), "it is asked for anew");
        book.keep(seconds(200), &nobody, bounds().grace);
        book.learn(seconds(200), &app(), Reply::Host(found(&["10.0.0.1"]), none()), &bounds(), 0.0);
        book.keep(seconds(300), &nobody, bounds().grace);
        book.keep(seconds(300), &[app()].into(), bounds().grace);
        assert_eq!(book.addresses("app.internal").records.len(), 0);
    }
}
