//! Tests of the heart as rows: when, what happens, what comes of it.
//!
//! An outcome reads `EHHK m1 healthy -> unhealthy, normal -> capped`: how everyone stands after the step, a letter a
//! member, then what was announced. Members are `m1`, `m2`, … in the order of the configuration.

use std::time::Duration;

use super::{
    Admin, Broken, Change, Charge, Failure, Initial, Judge, Key, Member, MemberId, Outcome, PoolHealth, Reason, Rules,
    Sample, Spec, Standing,
};

/// A pool under test.
pub(super) struct Trial {
    pub(super) pool: PoolHealth,
}

/// Something that happens to a pool.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Sample(usize, Sample),
    Admin(usize, Admin),
    Charge(usize, Charge),
    Vouch(usize),
    Reload(Rules, Vec<Spec>),
    Wait,
}

pub(super) fn pass(member: usize) -> Act {
    pass_in(member, 10)
}

pub(super) fn pass_in(member: usize, total: u64) -> Act {
    Act::Sample(member, Sample::pass(ms(total)))
}

/// A fail of class *wrong*.
pub(super) fn fail(member: usize) -> Act {
    fail_as(member, Reason::Status)
}

pub(super) fn fail_as(member: usize, reason: Reason) -> Act {
    Act::Sample(member, Sample::fail(reason, ms(1)))
}

pub(super) fn inconclusive(member: usize) -> Act {
    Act::Sample(member, Sample { outcome: Outcome::Inconclusive, ..Sample::pass(ms(1)) })
}

pub(super) fn admin(member: usize, admin: Admin) -> Act {
    Act::Admin(member, admin)
}

pub(super) fn charge(member: usize, reason: Reason) -> Act {
    Act::Charge(member, Charge { last: Failure { reason, status: None }, by: Broken::InARow(5) })
}

pub(super) fn vouch(member: usize) -> Act {
    Act::Vouch(member)
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One fail is enough, one pass is enough, everyone starts proven and healthy, 50 %.
pub(super) fn rules() -> Rules {
    Rules { judge: Judge::Consecutive { failures: 1, passes: 1 }, initial: Initial::Healthy, ..Rules::default() }
}

/// Member `m<number>` of tier 0.
pub(super) fn spec(number: usize) -> Spec {
    let name = format!("10.0.0.{number}:80");
    let address = name.parse().ok();
    let key = Key { name, address, tls: false };
    Spec { key, weight: 1, split: 1, tier: 0, admin: Admin::Enabled, source: None, roll: None, fingerprint: 7 }
}

/// `m1` to `m<count>` of tier 0.
pub(super) fn specs(count: usize) -> Vec<Spec> {
    (1..=count).map(spec).collect()
}

/// `counts[t]` members in tier `t`.
pub(super) fn tiers(counts: &[usize]) -> Vec<Spec> {
    let ranks = counts.iter().enumerate().flat_map(|(tier, count)| std::iter::repeat_n(tier as u8, *count));
    ranks.enumerate().map(|(index, tier)| Spec { tier, ..spec(index + 1) }).collect()
}

impl Trial {
    /// A pool that starts at 0.
    pub(super) fn new(rules: Rules, specs: Vec<Spec>) -> Trial {
        Trial { pool: PoolHealth::new(Duration::ZERO, rules, specs) }
    }

    /// Lets something happen, and says what came of it.
    pub(super) fn at(&mut self, at: u64, act: Act) -> String {
        let now = ms(at);
        let changes = match act {
            Act::Sample(member, sample) => {
                let (id, fingerprint) = (self.member(member).id(), self.member(member).spec().fingerprint);
                self.pool.observe(now, id, fingerprint, sample)
            }
            Act::Admin(member, admin) => self.pool.administer(now, self.member(member).id(), admin),
            Act::Charge(member, charge) => self.pool.charge(now, self.member(member).id(), charge),
            Act::Vouch(member) => self.pool.vouch(now, self.member(member).id()),
            Act::Reload(rules, specs) => self.pool.reshape(now, rules, specs),
            Act::Wait => self.pool.advance(now),
        };
        let words: Vec<String> = changes.iter().map(|change| self.words(change)).collect();
        format!("{} {}", self.standings(), words.join(", ")).trim_end().to_owned()
    }

    /// Plays rows of (when in ms, what happens, what comes of it).
    pub(super) fn play<const N: usize>(&mut self, rows: [(u64, Act, &str); N]) {
        for (row, (at, act, expected)) in rows.into_iter().enumerate() {
            let said = format!("row {row} at {at}: {act:?}");
            assert_eq!(self.at(at, act), expected, "{said}");
        }
    }

    /// `m<number>`.
    pub(super) fn member(&self, number: usize) -> &Member {
        &self.pool.members()[number - 1]
    }

    /// How everyone stands, a letter a member.
    pub(super) fn standings(&self) -> String {
        self.pool.picture().standings.iter().map(|standing| letter(*standing)).collect()
    }

    fn words(&self, change: &Change) -> String {
        let tier = |tier: Option<u8>| tier.map_or("none".to_owned(), |tier| tier.to_string());
        match *change {
            Change::Verdict { member, from, to } => {
                format!("{} {} -> {}", self.name(member), from.as_str(), to.as_str())
            }
            Change::Admin { member, from, to } => format!("{} {} -> {}", self.name(member), from.as_str(), to.as_str()),
            Change::Place { member, from, to } => format!("{} {} -> {}", self.name(member), from.as_str(), to.as_str()),
            Change::Fallback { entered: true } => "fallback begins".to_owned(),
            Change::Fallback { entered: false } => "fallback ends".to_owned(),
            Change::Tier { from, to } => format!("tier {} -> {}", tier(from), tier(to)),
            Change::Mode { from, to } => format!("{} -> {}", from.as_str(), to.as_str()),
        }
    }

    fn name(&self, id: MemberId) -> String {
        self.pool.index_of(id).map_or("nobody".to_owned(), |index| format!("m{}", index + 1))
    }
}

/// One letter a standing.
pub(super) fn letter(standing: Standing) -> char {
    match standing {
        Standing::Healthy => 'H',
        Standing::Kept => 'K',
        Standing::Ejected => 'E',
        Standing::Unknown => '?',
        Standing::Fallback => 'F',
        Standing::Standby => 'S',
        Standing::Draining => 'D',
        Standing::Disabled => 'X',
    }
}
