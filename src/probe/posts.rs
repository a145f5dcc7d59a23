//! Who is followed, by whom it is asked for and by what is asked: one post, with a task of its own, for each question.
//!
//! Not here: what a task does (`task`), who asks for what when (`prober`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::target::MemberOf;
use super::task::Notes;
use super::{Listed, Target};

/// Who is followed.
#[derive(Default)]
pub(super) struct Posts {
    pub(super) by_question: HashMap<Question, Post>,
    pub(super) by_member: HashMap<MemberOf, Question>,
    /// When a probe of a member was last hastened.
    pub(super) hastened: HashMap<MemberOf, Duration>,
}

/// What is asked of whom: one task each. How often is not part of it: the shortest interval holds for all. The timeout is:
/// an answer that takes two seconds passes for one who waits three, and fails for one who waits one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    definition: u64,
    peer: SocketAddr,
    /// It goes into the request.
    host: String,
    timeout: Duration,
}

/// One task, from outside.
pub(super) struct Post {
    pub(super) targets: watch::Sender<Vec<Target>>,
    pub(super) now: Arc<Notify>,
    pub(super) notes: Arc<Notes>,
    pub(super) task: AbortHandle,
}

/// Who asks the same. Pools take turns: the first member of each comes before the second of any, so that in a first round
/// that takes its time no pool is without a verdict until all others have theirs.
pub(super) fn by_question(targets: Vec<Target>) -> Vec<(Question, Vec<Target>)> {
    let mut met: HashMap<Arc<str>, usize> = HashMap::new();
    let mut rank = |target: &Target| {
        let met = met.entry(target.pool.clone()).or_default();
        *met += 1;
        *met
    };
    let mut targets: Vec<_> = targets.into_iter().map(|target| (rank(&target), target)).collect();
    targets.sort_by_key(|(rank, _)| *rank);
    let mut places = HashMap::new();
    let mut asked: Vec<(Question, Vec<Target>)> = Vec::new();
    for (_, target) in targets {
        let question = Question::of(&target);
        let place = *places.entry(question.clone()).or_insert(asked.len());
        match asked.get_mut(place) {
            Some((_, others)) => others.push(target),
            None => asked.push((question, vec![target])),
        }
    }
    asked
}

impl Posts {
    pub(super) fn of(&self, member: &MemberOf) -> Option<&Post> {
        self.by_question.get(self.by_member.get(member)?)
    }

    /// How many probes are to keep their connection.
    pub(super) fn keeping(&self) -> usize {
        let keeps = |post: &&Post| post.targets.borrow().first().is_some_and(|target| target.check.keeps());
        self.by_question.values().filter(keeps).count()
    }

    /// Takes out the post that asks one of these members the same question with another timeout.
    pub(super) fn retimed(&mut self, targets: &[Target]) -> Option<Post> {
        let same = |target: &Target| {
            let before = self.by_member.get(&target.key())?;
            let now = Question::of(target);
            let timed_alike = Question { timeout: now.timeout, ..before.clone() };
            (timed_alike == now && self.by_question.contains_key(before)).then(|| before.clone())
        };
        let before = targets.iter().find_map(same)?;
        self.by_question.remove(&before)
    }
}

impl Question {
    fn of(target: &Target) -> Question {
        Question {
            definition: target.definition,
            peer: target.check.peer(),
            host: target.check.host().to_owned(),
            timeout: target.check.timeout(),
        }
    }
}

impl Post {
    /// The same task for these targets from now on; one who has just come wants a probe.
    pub(super) fn serve(self, targets: Vec<Target>) -> Post {
        let before = self.targets.send_replace(targets);
        let targets = self.targets.borrow();
        let is_same = |one: &Target, other: &Target| one.member == other.member && one.pool == other.pool;
        let stays = |old: &&Target| targets.iter().any(|new| is_same(new, old));
        before.iter().filter(|old| !stays(old)).for_each(Target::forget);
        let is_known = |new: &Target| before.iter().any(|old| is_same(new, old) && new.fingerprint == old.fingerprint);
        if !targets.iter().all(is_known) {
            self.now.notify_one();
        }
        drop(targets);
        self
    }

    pub(super) fn interval_of(&self, (pool, member): &MemberOf) -> Option<Duration> {
        let targets = self.targets.borrow();
        targets.iter().find(|target| target.member == *member && target.pool == *pool).map(|target| target.interval)
    }

    pub(super) fn listed(&self, question: &Question) -> Listed {
        let time = |us: u64| (us > 0).then(|| Duration::from_micros(us));
        let targets = self.targets.borrow();
        let asked = targets.iter().map(|target| target.interval).min().unwrap_or_default();
        Listed {
            peer: question.peer,
            asked: targets.first().map(|target| target.check.asked()).unwrap_or_default(),
            // Before the first one has ended nothing is planned yet.
            interval: time(self.notes.every.load(Relaxed)).unwrap_or(asked),
            timeout: question.timeout,
            in_doubt: self.notes.in_doubt.load(Relaxed),
            idle: self.notes.idle.load(Relaxed),
            started: time(self.notes.started.load(Relaxed)),
            next: targets.first().and_then(|target| time(target.next_probe_at.load(Relaxed))),
            late: self.notes.late.load(Relaxed),
            members: targets
                .iter()
                .map(|target| (target.pool.clone(), target.label.clone(), target.interval))
                .collect(),
        }
    }

    pub(super) fn leave(&self) {
        self.task.abort();
        self.targets.borrow().iter().for_each(Target::forget);
    }
}
