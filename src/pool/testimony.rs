//! What traffic says of members, to the rules in force and to those that are tried, each by a count of its own.
//!
//! Rules that are tried count what they would have seen: nothing of what goes to a member that they would have taken out
//! of the rotation. A success takes no lock, nor does a failure that is no offence yet.
//!
//! Not here: what is evidence (`proxy`), the counts themselves (`lately`), what becomes of a charge (`health`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use super::board::Board;
use super::lately::Lately;
use super::{Lease, Pool};
use crate::config;
use crate::health::{Charge, Eject, Failure, MemberId, Rules, Standing};

/// By what a pool is judged.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'a> {
    /// In earnest.
    pub in_force: &'a Rules,
    /// Beside that, where rules are tried.
    pub tried: Option<&'a Rules>,
}

/// What traffic charges a member with.
#[derive(Debug, Clone, Copy)]
pub struct Charges {
    /// By the rules in force.
    pub in_force: Option<Charge>,
    /// By those that are tried.
    pub tried: Option<Charge>,
}

/// To whom something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// To the rules in force.
    InForce,
    /// To those that are tried.
    Tried,
    /// To both.
    Both,
}

/// Of a member: what traffic says of it to the rules that are tried.
#[derive(Debug, Default)]
pub(super) struct Hearsay {
    /// How it would stand: a place in [`Standing::ALL`] and one more; 0 where no rule is tried.
    stands: AtomicU8,
    /// Only where traffic would eject.
    lately: OnceLock<Box<Lately>>,
}

/// What a member would get of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gets {
    /// Its share, as ever.
    Share,
    /// None at all.
    Nothing,
    /// A share since nobody would be healthy.
    Fallback,
}

impl<'a> Judged<'a> {
    /// As the file says.
    pub fn of(pool: &'a config::Pool) -> Judged<'a> {
        Judged { in_force: &pool.rules, tried: pool.observed.as_deref().map(|observed| &observed.rules) }
    }

    /// Whether traffic may eject, or would.
    pub fn by_traffic(self) -> bool {
        self.in_force.eject.is_some() || self.tried_eject().is_some()
    }

    fn tried_eject(self) -> Option<&'a Eject> {
        self.tried?.eject.as_ref()
    }
}

impl Hearsay {
    /// It would stand so; `None`: no rule is tried.
    pub(super) fn stand(&self, standing: Option<Standing>) {
        let place = standing.and_then(|standing| Standing::ALL.iter().position(|other| *other == standing));
        self.stands.store(place.map_or(0, |place| place as u8 + 1), Relaxed);
    }

    /// How it would stand; `None`: no rule is tried.
    pub(super) fn stands(&self) -> Option<Standing> {
        usize::from(self.stands.load(Relaxed)).checked_sub(1).and_then(|place| Standing::ALL.get(place).copied())
    }

    /// Rules begin to be tried, and those in force have counted this much.
    pub(super) fn begin(&self, in_force: Option<&Lately>) {
        match (in_force, self.lately.get()) {
            (Some(in_force), _) => self.lately().follow(in_force),
            (None, Some(former)) => former.forget(),
            (None, None) => {}
        }
    }

    fn lately(&self) -> &Lately {
        self.lately.get_or_init(Box::default)
    }

    fn gets(&self) -> Gets {
        match self.stands() {
            Some(Standing::Fallback) => Gets::Fallback,
            Some(Standing::Ejected | Standing::Standby | Standing::Unknown) => Gets::Nothing,
            // Those too, from clients that are bound to it.
            Some(Standing::Healthy | Standing::Kept | Standing::Draining | Standing::Disabled) | None => Gets::Share,
        }
    }
}

impl Pool {
    /// A request that has `lease` has failed by its member's doing. What was sent in the fallback charges nobody: there
    /// whoever is unfit has its share all the same (health.md §4).
    pub fn fails(&self, now: Duration, lease: &Lease, failure: Failure, judged: Judged<'_>) {
        let (member, hearsay) = (lease.member(), lease.member().hearsay());
        let in_force = judged.in_force.eject.as_ref().filter(|_| lease.standing() != Standing::Fallback);
        let in_force = in_force.and_then(|rules| offence(member.lately(), now, failure, rules));
        let tried = judged.tried_eject().filter(|_| hearsay.gets() == Gets::Share);
        let tried = tried.and_then(|rules| offence(hearsay.lately(), now, failure, rules));
        if in_force.is_some() || tried.is_some() {
            self.charge(now, member.id(), Charges { in_force, tried });
        }
    }

    /// One has succeeded. Where no probe judges, nobody else can say that a member is fit: there it ends the fallback.
    pub fn succeeds(&self, now: Duration, lease: &Lease, judged: Judged<'_>) {
        let (member, hearsay) = (lease.member(), lease.member().hearsay());
        let (mut in_force, mut tried) = (false, false);
        if let Some(eject) = &judged.in_force.eject {
            member.lately().succeeds(now, eject.window);
            in_force = lease.standing() == Standing::Fallback && !judged.in_force.probed;
        }
        if let Some((rules, eject)) = judged.tried.zip(judged.tried_eject())
            && hearsay.gets() != Gets::Nothing
        {
            hearsay.lately().succeeds(now, eject.window);
            tried = hearsay.gets() == Gets::Fallback && !rules.probed;
        }
        match (in_force, tried) {
            (false, false) => {}
            (true, false) => self.vouch(now, member.id(), Side::InForce),
            (false, true) => self.vouch(now, member.id(), Side::Tried),
            (true, true) => self.vouch(now, member.id(), Side::Both),
        }
    }

    /// Traffic charges a member.
    pub fn charge(&self, now: Duration, id: MemberId, charges: Charges) {
        let mut board = self.board();
        let is_out = |board: &Board| board.health.member(id).is_some_and(|member| member.ban().is_some());
        let was_out = is_out(&board);
        let tried = board.shadow.as_mut().zip(charges.tried);
        let would = tried.map(|(shadow, charge)| shadow.step(|health| health.charge(now, id, charge)));
        let changes = charges.in_force.map_or_else(Vec::new, |charge| board.health.charge(now, id, charge));
        if is_out(&board) && !was_out {
            let live = board.health.index_of(id).map(|index| &board.members[index]);
            live.into_iter().for_each(|member| member.tally().is_banned());
        }
        let is_due = charges.in_force.is_some() && board.new_roster_is_due(now);
        self.publish(&mut board, now, &changes, would, is_due);
        self.look_for_fall(&board, id);
        // The time of one that was unhealthy already runs too.
        self.calls.stir();
    }

    /// A request to a member has succeeded, in a pool that no probe judges.
    pub fn vouch(&self, now: Duration, id: MemberId, side: Side) {
        let mut board = self.board();
        let shadow = board.shadow.as_mut().filter(|_| side != Side::InForce);
        let would = shadow.map(|shadow| shadow.step(|health| health.vouch(now, id)));
        let is_in_force = side != Side::Tried;
        let changes = if is_in_force { board.health.vouch(now, id) } else { Vec::new() };
        let is_due = is_in_force && board.new_roster_is_due(now);
        self.publish(&mut board, now, &changes, would, is_due);
    }
}

/// Counts another failure, and says whether it is one too many.
fn offence(lately: &Lately, now: Duration, failure: Failure, rules: &Eject) -> Option<Charge> {
    let by = rules.is_broken(lately.fails(now, rules.window))?;
    lately.forget();
    Some(Charge { last: failure, by })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_member_would_stand_is_told_as_it_was_noted() {
        let hearsay = Hearsay::default();
        assert_eq!((hearsay.stands(), hearsay.gets()), (None, Gets::Share), "nothing is tried");
        for (standing, gets) in [
            (Standing::Healthy, Gets::Share),
            (Standing::Kept, Gets::Share),
            (Standing::Draining, Gets::Share),
            (Standing::Disabled, Gets::Share),
            (Standing::Ejected, Gets::Nothing),
            (Standing::Unknown, Gets::Nothing),
            (Standing::Standby, Gets::Nothing),
            (Standing::Fallback, Gets::Fallback),
        ] {
            hearsay.stand(Some(standing));
            assert_eq!((hearsay.stands(), hearsay.gets()), (Some(standing), gets));
        }
        hearsay.stand(None);
        assert_eq!(hearsay.stands(), None, "the trial is over");
    }
}
