//! What only one writer of a pool at a time may touch.
//!
//! Not here: what is written (`shape` a new shape, `Pool` itself evidence and orders).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Member, Shadow};
use crate::balance::{Policy, Rings};
use crate::health::{self, Admin, Change, MemberId, PoolHealth, Verdict};

/// A new roster for no other reason than latency comes at most once in this much for each member: building it takes about
/// a hundredth of that, and in a large pool the next sample, which brings it, is never far.
pub(super) const REST_PER_MEMBER: Duration = Duration::from_micros(10);
/// Smaller pools never rest: it costs little, and who is probed rarely would be shown late.
const TOO_SMALL_TO_REST: usize = 100;

/// What only one writer at a time may touch.
pub(super) struct Board {
    pub(super) health: PoolHealth,
    /// How it would be; `None`: no rule is tried.
    pub(super) shadow: Option<Box<Shadow>>,
    pub(super) policy: Policy,
    /// Of the members, where requests go by a key: for as long as the members are the same.
    pub(super) rings: Option<Arc<Rings>>,
    /// Parallel to the heart's members; a member's live part stays the same over rosters.
    pub(super) members: Vec<Arc<Member>>,
    /// Members that have left and whose last requests and connections are not over: one that returns has them too.
    pub(super) former: Vec<Weak<Member>>,
    /// Until when first verdicts are waited for before the pool counts as settled.
    pub(super) settles_at: Duration,
    /// When the present roster was made.
    pub(super) roster_at: Duration,
    /// A latency has moved since then that the policy goes by.
    pub(super) roster_is_stale: bool,
}

impl Board {
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        let is_known = |m: &health::Member| m.verdict() != Verdict::Unknown || m.last_sample().is_some();
        now >= self.settles_at || self.health.members().iter().all(|m| m.admin() == Admin::Disabled || is_known(m))
    }

    /// Members that have left and of whom something goes on.
    pub(super) fn former(&self) -> Vec<Arc<Member>> {
        self.former.iter().filter_map(Weak::upgrade).filter(|member| member.is_in_use()).collect()
    }

    /// The member at `index` as its samples show it: of a pool whose probe only observes, they come to the shadow alone.
    pub(super) fn shown(&self, index: usize) -> &health::Member {
        shown(&self.health, self.shadow.as_deref(), index)
    }

    /// Has members know how they would stand: what traffic says of them goes by it, and requests are told with it.
    pub(super) fn show_would(&self) {
        let standings = self.shadow.as_ref().map(|shadow| &shadow.health().picture().standings);
        for (index, member) in self.members.iter().enumerate() {
            member.hearsay().stand(standings.and_then(|standings| standings.get(index).copied()));
        }
    }

    /// Requests on its members, those that have left included.
    pub(super) fn in_flight(&self) -> u32 {
        let former = self.former();
        self.members.iter().chain(&former).map(|member| member.own_in_flight()).sum()
    }

    /// Whether latencies alone ask for a new roster, and the last one is old enough.
    pub(super) fn new_roster_is_due(&self, now: Duration) -> bool {
        let members = self.members.len();
        let rest = if members < TOO_SMALL_TO_REST { Duration::ZERO } else { REST_PER_MEMBER * members as u32 };
        self.roster_is_stale && now >= self.roster_at.saturating_add(rest)
    }
}

/// The member at `index` of `health` as its samples show it.
pub fn shown<'a>(health: &'a PoolHealth, shadow: Option<&'a Shadow>, index: usize) -> &'a health::Member {
    let shadow = shadow.filter(|_| !health.rules().probed).and_then(|shadow| shadow.health().members().get(index));
    shadow.unwrap_or(&health.members()[index])
}

/// What is wanted of each member in effect: a weight of 0 is a wish to drain it (health.md §7).
pub(super) fn wanted(health: &PoolHealth) -> HashMap<MemberId, Admin> {
    let wish = |m: &health::Member| match m.admin() {
        Admin::Enabled if m.spec().weight == 0 => Admin::Draining,
        admin => admin,
    };
    health.members().iter().map(|m| (m.id(), wish(m))).collect()
}

/// What a step changed, with the orders as they are in effect and before what came of them: a weight may have given one,
/// or have given it already.
pub(super) fn in_effect(changes: Vec<Change>, before: &HashMap<MemberId, Admin>, health: &PoolHealth) -> Vec<Change> {
    let now = wanted(health);
    let orders = health.members().iter().filter_map(|m| {
        let (from, to) = (*before.get(&m.id())?, *now.get(&m.id())?);
        (from != to).then_some(Change::Admin { member: m.id(), from, to })
    });
    let rest = changes.into_iter().filter(|change| !matches!(change, Change::Admin { .. }));
    orders.chain(rest).collect()
}
