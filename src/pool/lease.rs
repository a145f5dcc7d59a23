//! Seats that are given back on every path: a request's on its member, a waiter's in its pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::hall::Entry;
use super::{Headline, Member, Roster};
use crate::balance::Memory;
use crate::health::Standing;

/// One request's seat on a member; dropping it gives it back.
///
/// It keeps no roster: a download of an hour would hold one of a version that is long gone.
#[derive(Debug)]
pub struct Lease {
    member: Arc<Member>,
    headline: Headline,
    standing: Standing,
    choice: Choice,
    is_tunnel: bool,
    /// Since when its answer is awaited, where that counts.
    awaited_since: Option<Duration>,
    entry: Entry,
}

/// How a member was chosen among those who may serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// By the pool's policy.
    ByPolicy,
    /// The request's key said so.
    ByKey,
    /// Its client is bound to it.
    ByCookie,
    /// Its client is bound to another one that may serve, and is full.
    Instead,
}

/// What an answer says of how fast its member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It did what was asked: its time counts.
    Success,
    /// It failed: its time counts only where it is long.
    Failure,
    /// Nothing: the client asked for what is not there, or for a tunnel.
    Other,
}

impl Answer {
    /// Of an answer with this status (RFC 9110 section 15).
    pub fn of(status: u16) -> Answer {
        match status {
            200..400 => Answer::Success,
            500.. => Answer::Failure,
            _ => Answer::Other,
        }
    }
}

impl Lease {
    /// Of a request that came in by `entry` and has a seat on the member at `index`.
    pub(super) fn new(roster: &Roster, index: usize, choice: Choice, entry: Entry) -> Lease {
        let member = roster.members()[index].clone();
        let (headline, standing) = (roster.headline(), roster.standing(index));
        Lease { member, headline, standing, choice, is_tunnel: false, awaited_since: None, entry }
    }

    /// How it was chosen.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// Who was picked.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// The request became a tunnel: its seat counts as one too, until it is given back.
    pub fn becomes_tunnel(&mut self) {
        if !std::mem::replace(&mut self.is_tunnel, true) {
            self.member.tunnel_opens();
        }
    }

    /// All of the request is there: from `now` on, which is asked only where that counts, the member is awaited.
    pub fn await_begins(&mut self, now: impl FnOnce() -> Duration) {
        if self.awaited_since.is_none() && self.member.hall.memory.read().is_some() {
            let now = now();
            self.member.form.await_begins(now);
            self.awaited_since = Some(now);
        }
    }

    /// The answer's first byte has come at `now`.
    pub fn is_answered(&mut self, now: Duration, answer: Answer) {
        if answer == Answer::Failure {
            self.fails();
        }
        let Some((since, memory)) = self.await_ends() else { return };
        let took = now.saturating_sub(since);
        match answer {
            Answer::Success => self.member.form.answers(now, took, memory),
            Answer::Failure => self.member.form.gives_nothing(now, took, memory),
            Answer::Other => {}
        }
    }

    /// The attempt is over at `now`. If an answer was still awaited, then in vain.
    pub fn is_over(&mut self, now: Duration) {
        if let Some((since, memory)) = self.await_ends() {
            self.member.form.gives_nothing(now, now.saturating_sub(since), memory);
        }
    }

    /// The member is to blame for an attempt that failed.
    pub fn fails(&self) {
        if self.member.hall.memory.read().is_some() {
            self.member.form.fails();
        }
    }

    /// Since when it was awaited, and how that counts now.
    fn await_ends(&mut self) -> Option<(Duration, Memory)> {
        let since = self.awaited_since.take()?;
        self.member.form.await_ends(since);
        Some((since, self.member.hall.memory.read()?))
    }

    /// How it stood when it was picked.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// How its member would stand with the rules that are tried, where that is otherwise than it stood when it was picked.
    pub fn would_stand(&self) -> Option<Standing> {
        self.member.hearsay().stands().filter(|would| *would != self.standing)
    }

    /// How the pool stood when it was picked.
    pub fn headline(&self) -> Headline {
        self.headline
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.await_ends();
        self.member.leave();
        if self.is_tunnel {
            self.member.tunnel_closes();
        }
        // After it: who is woken by this finds the seat.
        self.member.hall.leave(self.entry);
    }
}

/// One waiting request's seat; dropping it gives it back.
#[derive(Debug)]
pub struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    pub(super) fn new(taken: &'a AtomicUsize, limit: usize) -> Option<Waiting<'a>> {
        if taken.fetch_add(1, Relaxed) >= limit {
            taken.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Waiting(taken))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_too_many_gets_no_seat_and_takes_none() {
        let taken = AtomicUsize::new(0);
        let first = Waiting::new(&taken, 1);
        assert!(first.is_some());
        assert!(Waiting::new(&taken, 1).is_none());
        drop(first);
        assert!(Waiting::new(&taken, 1).is_some());
        assert_eq!(taken.load(Relaxed), 0);
    }
}
