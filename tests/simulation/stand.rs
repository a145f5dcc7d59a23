//! How a pool stands: health.md §3 and §4, read aloud.
//!
//! Not here: what makes one member healthy (`fit`).

use crate::fit::Fit;
use crate::model::Life;
use pulsegate::health::{Admin, Mode, OnAllUnhealthy, Rules, Standing, Verdict};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The pool as the text says it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Stand {
    pub mode: Mode,
    pub tier: Option<u8>,
    pub ejectable: usize,
    pub ejected: usize,
    pub in_rotation: usize,
    pub total: usize,
    pub standings: Vec<Standing>,
    /// Identities that have a place outside, of every tier: they keep it.
    pub out: Vec<usize>,
}

/// Everything about the pool; `before` are the identities that were out until now.
pub fn stand(rules: &Rules, lives: &[Life], fits: &[Fit], before: &[usize], deadline_is_over: bool) -> Stand {
    let pool = Pool { rules, seats: lives.iter().zip(fits).map(|(life, fit)| Seat { life, fit }).collect() };
    let elected = pool.elect(None);
    let nowhere = !pool.seats.iter().any(|s| s.active() && s.addressed());
    let waiting = !nowhere && !deadline_is_over && pool.awaits_better_than(elected);
    let fail = rules.on_all_unhealthy == OnAllUnhealthy::Fail && elected.is_none() && !waiting;
    let down = nowhere || fail;
    let tier = elected.filter(|_| !down && !waiting);
    // The cap is per tier, and places are kept in a tier that stands by too.
    let out: Vec<usize> = pool.tiers().iter().flat_map(|t| pool.worst(*t, before)).collect();

    let standing = |s: &Seat| match s.life.admin {
        Admin::Disabled => Standing::Disabled,
        Admin::Draining => Standing::Draining,
        Admin::Enabled if !s.active() => Standing::Draining,
        Admin::Enabled if !s.addressed() => Standing::Unknown,
        Admin::Enabled if fail => Standing::Ejected,
        Admin::Enabled if !down && !waiting && tier.is_none() => Standing::Fallback,
        Admin::Enabled if !s.fit.proven => Standing::Unknown,
        Admin::Enabled if tier != Some(s.life.spec.tier) => Standing::Standby,
        Admin::Enabled if s.healthy() => Standing::Healthy,
        Admin::Enabled if out.contains(&s.life.id) => Standing::Ejected,
        Admin::Enabled => Standing::Kept,
    };
    let standings: Vec<Standing> = pool.seats.iter().map(standing).collect();
    let mode = match tier {
        _ if down => Mode::Down,
        _ if waiting => Mode::Waiting,
        None => Mode::Fallback,
        Some(_) if tier != pool.tiers().first().copied() => Mode::Failover,
        Some(_) if standings.contains(&Standing::Kept) => Mode::Capped,
        Some(_) => Mode::Normal,
    };
    let serves = |s: &&Standing| matches!(s, Standing::Healthy | Standing::Kept | Standing::Fallback);
    Stand {
        mode,
        tier,
        ejectable: tier.map_or(0, |t| pool.ejectable(t)),
        ejected: tier.map_or(0, |t| pool.of(t).filter(|s| out.contains(&s.life.id)).count()),
        in_rotation: standings.iter().filter(serves).count(),
        total: tier.map_or(lives.len(), |t| pool.of(t).count()),
        standings,
        out,
    }
}

struct Pool<'a> {
    rules: &'a Rules,
    seats: Vec<Seat<'a>>,
}

/// One member with what its life adds up to.
struct Seat<'a> {
    life: &'a Life,
    fit: &'a Fit,
}

impl Seat<'_> {
    /// Enabled and of weight > 0.
    fn active(&self) -> bool {
        self.life.admin == Admin::Enabled && self.life.spec.weight > 0
    }

    fn addressed(&self) -> bool {
        self.life.spec.key.address.is_some()
    }

    /// "enabled, of weight > 0, healthy by every cause"; nobody can be without an address.
    fn healthy(&self) -> bool {
        self.active() && self.addressed() && self.fit.verdict == Verdict::Healthy
    }

    /// May yet turn out to be healthy for the first time.
    fn hoped_for(&self) -> bool {
        self.active() && !self.fit.proven
    }

    /// "N = members that are enabled, of weight > 0, proven, and have an address".
    fn counts(&self) -> bool {
        self.active() && self.addressed() && self.fit.proven
    }
}

impl Pool<'_> {
    fn tiers(&self) -> BTreeSet<u8> {
        self.seats.iter().map(|s| s.life.spec.tier).collect()
    }

    fn of(&self, tier: u8) -> impl Iterator<Item = &Seat<'_>> {
        self.seats.iter().filter(move |s| s.life.spec.tier == tier)
    }

    /// "The highest tier serves whose share of healthy members ...; if none meets it, the highest with a healthy member",
    /// taking the members of tier `hoped` that were never healthy for healthy.
    fn elect(&self, hoped: Option<u8>) -> Option<u8> {
        let tiers = self.tiers();
        let good = |t: u8| self.of(t).filter(|s| s.healthy() || (hoped == Some(t) && s.hoped_for())).count();
        let meets = |t: u8| {
            let asked = match self.rules.tier_min_healthy_percent {
                Some(percent) => percent,
                None if tiers.last() == Some(&t) => 0,
                None => 100 - self.rules.max_unhealthy_percent,
            };
            good(t) > 0 && good(t) * 100 >= usize::from(asked) * self.of(t).filter(|s| s.active()).count()
        };
        tiers.iter().find(|t| meets(**t)).or(tiers.iter().find(|t| good(**t) > 0)).copied()
    }

    /// "while nobody is healthy and some enabled member has never been healthy, requests wait ...; a better tier still
    /// unknown is waited for likewise".
    fn awaits_better_than(&self, elected: Option<u8>) -> bool {
        let better = |t: u8| elected.is_none_or(|e| t < e);
        let hopes = self.seats.iter().filter(|s| s.hoped_for()).map(|s| s.life.spec.tier);
        hopes.filter(|t| better(*t)).any(|t| self.elect(Some(t)) == Some(t))
    }

    /// "`min(floor(N × max_unhealthy_percent / 100), N − 1)`; 0 if all N are unhealthy, never below 0 ... `min_ejected: 1`
    /// lets one go where the percentage rounds to 0 (not with 0 %, never the last)".
    fn ejectable(&self, tier: u8) -> usize {
        let n = self.of(tier).filter(|s| s.counts()).count();
        let percent = usize::from(self.rules.max_unhealthy_percent);
        if percent == 0 || !self.of(tier).any(|s| s.healthy()) {
            return 0;
        }
        (n * percent / 100).max(usize::from(self.rules.min_ejected)).min(n - 1)
    }

    /// "by class ...; within a class those already ejected keep their place, then the worst (fewest passes in the window,
    /// or longest fail streak; then earliest to fail; then address)": as many as may go.
    fn worst(&self, tier: u8, before: &[usize]) -> Vec<usize> {
        let mut bad: Vec<&Seat> = self.of(tier).filter(|s| s.counts() && !s.healthy()).collect();
        bad.sort_by_key(|s| {
            let class = s.fit.cause.map(|reason| reason.class());
            let already_out = before.contains(&s.life.id);
            (Reverse(class), Reverse(already_out), s.fit.worth(), s.fit.since, s.life.spec.key.address)
        });
        bad.iter().take(self.ejectable(tier)).map(|s| s.life.id).collect()
    }
}
