//! Seats that are given back on every path: a request's on its member, a waiter's in its pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::hall::Entry;
use super::{Headline, Member, Roster};
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
    entry: Entry,
}

/// How a member was chosen among those who may serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// By the pool's policy.
    ByPolicy,
    /// The request's key said so.
    ByKey,
}

impl Lease {
    /// Of a request that came in by `entry` and has a seat on the member at `index`.
    pub(super) fn new(roster: &Roster, index: usize, choice: Choice, entry: Entry) -> Lease {
        let member = roster.members()[index].clone();
        Lease { member, headline: roster.headline(), standing: roster.standing(index), choice, is_tunnel: false, entry }
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

    /// How it stood when it was picked.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// How the pool stood when it was picked.
    pub fn headline(&self) -> Headline {
        self.headline
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
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
