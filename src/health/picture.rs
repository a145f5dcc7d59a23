//! How a pool and each of its members stand, drawn anew from the members whenever something changed.
//!
//! Drawn whole rather than patched, so that it cannot drift from what it shows. Not here: time, and what to announce.

use std::time::Duration;

use super::{Admin, Census, Member, Mode, OnAllUnhealthy, Ramp, Rules, Standing, State, cap, drain, tier};

/// How the pool and each member stand now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// How the pool serves.
    pub mode: Mode,
    /// The tier that serves; `None` in the fallback, while waiting and when down.
    pub tier: Option<u8>,
    /// How many of the serving tier may be ejected.
    pub ejectable: usize,
    /// How many of the serving tier are.
    pub ejected: usize,
    /// Members of the serving tier that take traffic (in the fallback: all that do).
    pub in_rotation: usize,
    /// Members of the serving tier (where none serves: of the pool).
    pub total: usize,
    /// How the pool stands as a whole, of all its tiers: for composites and failover routes.
    pub state: State,
    /// The members counted for that.
    pub census: Census,
    /// Parallel to [`PoolHealth::members`](super::PoolHealth::members).
    pub standings: Vec<Standing>,
    /// Those who drain and serve the clients bound to them meanwhile, by their place, and until when each does.
    leaving: Vec<(usize, Duration)>,
    /// Parallel to `standings`, or empty where nobody ramps.
    pub(super) ramps: Vec<Option<Ramp>>,
}

/// Whether requests may still wait for first verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    Left,
    Over,
}

impl Picture {
    /// Draws the picture, and settles who of the members holds a place outside the rotation.
    pub(super) fn draw(rules: &Rules, members: &mut [Member], patience: Patience) -> Picture {
        let tallies = tier::tally(members);
        let caps = assign_places(rules, members, tallies.len());
        let elected = tier::elect(rules, &tallies);
        let someone_healthy = elected.is_some();
        let someone_reachable = tallies.iter().any(|tally| tally.reachable > 0);
        // A cold start waits whatever the pool does when nobody is healthy: nobody knows yet that nobody is.
        let waiting = someone_reachable && patience == Patience::Left && tier::undecided(rules, &tallies, elected);
        let fails = rules.on_all_unhealthy == OnAllUnhealthy::Fail && !someone_healthy && !waiting;
        let down = !someone_reachable || fails;
        let serving = elected.filter(|_| !down && !waiting);

        let scene = match serving {
            _ if down => Scene::Down,
            _ if waiting => Scene::Waiting,
            None => Scene::Fallback,
            Some(tier) => Scene::Serving(tier),
        };
        let standings: Vec<_> = members.iter().map(|member| scene.standing(member)).collect();
        let first = tallies.iter().position(|tally| tally.members > 0);
        let mode = match scene {
            Scene::Down => Mode::Down,
            Scene::Waiting => Mode::Waiting,
            Scene::Fallback => Mode::Fallback,
            Scene::Serving(_) if serving != first => Mode::Failover,
            Scene::Serving(_) if standings.contains(&Standing::Kept) => Mode::Capped,
            Scene::Serving(_) => Mode::Normal,
        };
        let census = Census::of(members);
        Picture {
            mode,
            state: rules.aggregate.unwrap_or_default().state(census),
            census,
            tier: serving.map(|tier| tier as u8),
            ejectable: serving.map_or(0, |tier| caps[tier].ejectable),
            ejected: serving.map_or(0, |tier| caps[tier].ejected),
            in_rotation: standings.iter().filter(|standing| standing.takes_traffic()).count(),
            total: serving.map_or(members.len(), |tier| tallies[tier].members),
            leaving: drain::leaving(rules, members, serving),
            ramps: Vec::new(),
            standings,
        }
    }

    /// What part of its weight the member at `index` has while it comes back; `None`: all of it.
    pub fn ramp(&self, index: usize) -> Option<Ramp> {
        self.ramps.get(index).copied().flatten()
    }

    /// Whether everybody has the part of their weight that they have in `other`.
    pub fn ramps_as(&self, other: &Picture) -> bool {
        self.ramps == other.ramps
    }

    /// Whether a client that is bound to the member at `index` may go there at `now`: whoever serves serves it, and so does a
    /// member that drains, until its time is over (health.md §7). Room is another matter.
    pub fn takes_bound(&self, index: usize, now: Duration) -> bool {
        let serves = self.standings.get(index).is_some_and(|standing| standing.takes_traffic());
        serves || self.leaves_at(index).is_some_and(|end| now < end)
    }

    /// When the member at `index` stops to serve the clients bound to it; `None` where it does not drain, or serves nobody.
    pub fn leaves_at(&self, index: usize) -> Option<Duration> {
        let found = self.leaving.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(self.leaving[found].1)
    }
}

/// What a member's standing depends on beside the member.
#[derive(Debug, Clone, Copy)]
enum Scene {
    Down,
    Waiting,
    Fallback,
    Serving(usize),
}

impl Scene {
    fn standing(self, member: &Member) -> Standing {
        match member.admin() {
            Admin::Disabled => return Standing::Disabled,
            Admin::Draining => return Standing::Draining,
            Admin::Enabled if member.spec().weight == 0 => return Standing::Draining,
            Admin::Enabled if !member.reachable() => return Standing::Unknown,
            Admin::Enabled => {}
        }
        match self {
            // Someone is reachable and the pool is down all the same: it fails when nobody is healthy.
            Scene::Down => Standing::Ejected,
            Scene::Fallback => Standing::Fallback,
            _ if !member.proven() => Standing::Unknown,
            Scene::Serving(tier) if usize::from(member.spec().tier) != tier => Standing::Standby,
            Scene::Serving(_) if member.healthy() => Standing::Healthy,
            Scene::Serving(_) if member.out => Standing::Ejected,
            Scene::Serving(_) => Standing::Kept,
            Scene::Waiting => Standing::Standby,
        }
    }
}

/// A tier's cap and how much of it is used.
#[derive(Debug, Clone, Copy)]
struct Cap {
    ejectable: usize,
    ejected: usize,
}

/// Gives the places outside the rotation to the worst of each tier, also of those that stand by.
fn assign_places(rules: &Rules, members: &mut [Member], tiers: usize) -> Vec<Cap> {
    let mut proven = vec![0; tiers];
    let mut unhealthy = vec![Vec::new(); tiers];
    for (index, member) in members.iter().enumerate() {
        if member.reachable() && member.proven() {
            let tier = usize::from(member.spec().tier);
            proven[tier] += 1;
            if !member.healthy() {
                unhealthy[tier].push(index);
            }
        }
    }
    let mut caps = Vec::with_capacity(tiers);
    for (n, unhealthy) in proven.into_iter().zip(&mut unhealthy) {
        let ejectable = cap::ejectable(rules, n, unhealthy.len());
        let ejected = ejectable.min(unhealthy.len());
        cap::worst_first(members, unhealthy, ejected);
        caps.push(Cap { ejectable, ejected });
    }
    members.iter_mut().for_each(|member| member.out = false);
    for (cap, unhealthy) in caps.iter().zip(&unhealthy) {
        unhealthy[..cap.ejected].iter().for_each(|index| members[*index].out = true);
    }
    caps
}
