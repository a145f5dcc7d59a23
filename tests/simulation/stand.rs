//! How a pool stands: health.md §3 and §4, read aloud.

use crate::fit::Fit;
use crate::model::Life;
use pulsegate::health::{Admin, Mode, OnAllUnhealthy, Rules, Standing, Verdict};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Ids of those ejected, of every tier, who keep their place.
    pub out: Vec<usize>,
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

    fn healthy(&self) -> bool {
        self.active() && self.addressed() && self.fit.verdict == Verdict::Healthy
    }

    /// May still turn out to be healthy for the first time.
    fn hoped_for(&self) -> bool {
        self.active() && !self.fit.proven
    }

    fn counts(&self) -> bool {
        self.active() && self.addressed() && self.fit.proven
    }
}

/// Everything about the pool; `before` are the ids ejected until now, `early` is true before the deadline.
pub fn stand(rules: &Rules, lives: &[Life], fits: &[Fit], before: &[usize], early: bool) -> Stand {
    let seats: Vec<Seat> = lives.iter().zip(fits).map(|(life, fit)| Seat { life, fit }).collect();
    let tiers: BTreeSet<u8> = lives.iter().map(|l| l.spec.tier).collect();
    let of = |t: u8| seats.iter().filter(move |s| s.life.spec.tier == t);
    // The tier that serves if members of tier `hoped` that were never healthy are taken for healthy.
    let elect = |hoped: Option<u8>| {
        let good = |t: u8| of(t).filter(|s| s.healthy() || (hoped == Some(t) && s.hoped_for())).count();
        let meets = |t: u8| {
            let asked = match rules.tier_min_healthy_percent {
                Some(percent) => percent,
                None if tiers.last() == Some(&t) => 0,
                None => 100 - rules.max_unhealthy_percent,
            };
            good(t) > 0 && good(t) * 100 >= usize::from(asked) * of(t).filter(|s| s.active()).count()
        };
        tiers.iter().find(|t| meets(**t)).or(tiers.iter().find(|t| good(**t) > 0)).copied()
    };
    let elected = elect(None);
    let awaited = match elected {
        None => seats.iter().any(|s| s.hoped_for()),
        Some(e) => tiers.iter().any(|t| *t < e && of(*t).any(|s| s.hoped_for()) && elect(Some(*t)) == Some(*t)),
    };
    let fail = rules.on_all_unhealthy == OnAllUnhealthy::Fail && elected.is_none();
    let down = fail || !seats.iter().any(|s| s.active() && s.addressed());
    let waiting = !down && early && awaited;
    let tier = elected.filter(|_| !down && !waiting);

    // The cap is per tier, and places are kept in a tier that stands by too.
    let mut out: Vec<usize> = vec![];
    let mut ejectable_of = BTreeMap::new();
    for t in &tiers {
        let counted: Vec<&Seat> = of(*t).filter(|s| s.counts()).collect();
        let mut bad: Vec<&Seat> = counted.iter().copied().filter(|s| !s.healthy()).collect();
        let ejectable = ejectable(rules, counted.len(), bad.len());
        bad.sort_by_key(|s| {
            let class = s.fit.cause.map(|reason| reason.class());
            let out_already = before.contains(&s.life.id);
            (Reverse(class), Reverse(out_already), s.fit.worth(), s.fit.since, s.life.spec.key.address)
        });
        out.extend(bad.iter().take(ejectable).map(|s| s.life.id));
        ejectable_of.insert(*t, ejectable);
    }

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
    let standings: Vec<Standing> = seats.iter().map(standing).collect();
    let serves = |s: &&Standing| matches!(s, Standing::Healthy | Standing::Kept | Standing::Fallback);
    let mode = match tier {
        _ if down => Mode::Down,
        _ if waiting => Mode::Waiting,
        None => Mode::Fallback,
        Some(_) if tier != tiers.first().copied() => Mode::Failover,
        Some(_) if standings.contains(&Standing::Kept) => Mode::Capped,
        Some(_) => Mode::Normal,
    };
    Stand {
        mode,
        tier,
        ejectable: tier.map_or(0, |t| ejectable_of[&t]),
        ejected: tier.map_or(0, |t| of(t).filter(|s| out.contains(&s.life.id)).count()),
        in_rotation: if down || waiting { 0 } else { standings.iter().filter(serves).count() },
        total: tier.map_or(seats.len(), |t| of(t).count()),
        standings,
        out,
    }
}

/// "`min(floor(N × max_unhealthy_percent / 100), N − 1)`; 0 if all N are unhealthy, never below 0 ... `min_ejected: 1`
/// lets one go where the percentage rounds to 0 (not with 0 %, never the last)".
fn ejectable(rules: &Rules, n: usize, unhealthy: usize) -> usize {
    let percent = usize::from(rules.max_unhealthy_percent);
    if percent == 0 || unhealthy == n {
        return 0;
    }
    (n * percent / 100).max(usize::from(rules.min_ejected)).min(n - 1)
}
