//! What may happen to a pool, thrown by the dice: rules, members, evidence, orders, reloads and the passing of time.

use crate::dice::Dice;
use pulsegate::health::{
    Admin, Eject, Gates, Initial, Judge, Key, OnAllUnhealthy, Outcome, Phases, Reason, Rules, Sample, Spec,
};
use std::net::SocketAddr;
use std::time::Duration;

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Event {
    /// Evidence about the identity that was the `who`-th to begin, by a probe of this fingerprint.
    Sample { who: usize, fingerprint: u64, sample: Sample },
    /// An operator's word.
    Order { who: usize, admin: Admin },
    /// Traffic has met the member failing too often.
    Charge { who: usize, reason: Reason },
    /// A request to the member has succeeded.
    Vouch { who: usize },
    /// A reload.
    Reload { rules: Rules, specs: Vec<Spec> },
    /// Nothing but time.
    Time,
}

/// The dice and what a history needs to know to go on: the configuration, and every fingerprint a probe may carry.
pub struct World {
    pub dice: Dice,
    pub rules: Rules,
    pub specs: Vec<Spec>,
    /// (identity, fingerprint) of members of now and of before, for evidence that comes late.
    pub probes: Vec<(usize, u64)>,
    /// Percent of samples that pass, member by name: some are good, some are bad, and it changes.
    luck: Vec<usize>,
    next_fingerprint: u64,
    /// A pool of equals with little administration, where the cap has most to do.
    calm: bool,
}

/// Names there are in the world; pools have 1 to 8 of them.
const NAMES: usize = 10;

impl World {
    pub fn new(seed: u64) -> World {
        let mut dice = Dice::new(seed);
        let rules = rules(&mut dice);
        let luck = (0..NAMES).map(|_| dice.one_of(&LUCK)).collect();
        let calm = dice.chance(50);
        let mut world = World { dice, rules, specs: vec![], probes: vec![], luck, next_fingerprint: 1, calm };
        for _ in 0..=world.dice.below(8).max(world.dice.below(8)) {
            world.add_member();
        }
        world
    }

    /// The pool as it is now: identities in the order of the configuration.
    pub fn saw(&mut self, identities: &[usize]) {
        for (who, spec) in identities.iter().zip(&self.specs) {
            if !self.probes.contains(&(*who, spec.fingerprint)) {
                self.probes.push((*who, spec.fingerprint));
            }
        }
    }

    /// How much time passes before the next event.
    pub fn pause(&mut self, deadline: Duration, now: Duration) -> Duration {
        match self.dice.below(40) {
            0 => deadline.saturating_sub(now),
            1 => deadline.saturating_sub(now + Duration::from_millis(1)),
            2..=22 => Duration::ZERO,
            23..=34 => Duration::from_millis(self.dice.below(400) as u64),
            _ => Duration::from_millis(self.dice.below(3000) as u64),
        }
    }

    /// What happens next; `members` are the identities of now.
    pub fn event(&mut self, members: &[usize]) -> Event {
        if self.dice.chance(4) {
            let name = self.dice.below(NAMES);
            self.luck[name] = self.dice.one_of(&LUCK);
        }
        let throw = if self.calm && self.dice.chance(70) { self.dice.below(83) } else { self.dice.below(100) };
        if self.rules.eject.is_some() && self.dice.chance(15) {
            let who = if self.dice.chance(3) { self.dice.one_of(&self.probes).0 } else { self.dice.one_of(members) };
            return match self.dice.below(4) {
                0 => Event::Vouch { who },
                _ => Event::Charge { who, reason: self.dice.one_of(&CHARGES) },
            };
        }
        match throw {
            0..=82 if self.rules.probed => self.sample(members),
            83..=87 => Event::Order {
                who: if self.dice.chance(3) { self.dice.one_of(&self.probes).0 } else { self.dice.one_of(members) },
                admin: self.dice.one_of(&ORDERS),
            },
            88..=93 => self.reload(),
            _ => Event::Time,
        }
    }

    fn sample(&mut self, members: &[usize]) -> Event {
        let at = self.dice.below(members.len());
        let late = self.dice.chance(6);
        let (who, fingerprint) =
            if late { self.dice.one_of(&self.probes) } else { (members[at], self.specs[at].fingerprint) };
        let total = Duration::from_millis(self.dice.one_of(&[1, 20, 30, 40, 60, 90, 130, 200, 300, 700]));
        let name: usize = self.specs[at].key.name[1..2].parse().unwrap_or(0);
        let outcome = match self.dice.below(100) {
            0..=4 => Outcome::Inconclusive,
            _ if self.dice.chance(self.luck[name]) => Outcome::Pass,
            _ => Outcome::Fail(self.dice.one_of(&REASONS)),
        };
        let phases = Phases { total, ..Phases::default() };
        Event::Sample { who, fingerprint, sample: Sample { outcome, detail: String::new(), status: None, phases } }
    }

    /// Zero to three changes of any kind; now and then a new configuration altogether.
    fn reload(&mut self) -> Event {
        let changes = if self.dice.chance(10) { 12 } else { self.dice.below(4) };
        for _ in 0..changes {
            let at = self.dice.below(self.specs.len());
            match self.dice.below(12) {
                0 | 1 => self.add_member(),
                2 if self.specs.len() > 1 => drop(self.specs.remove(at)),
                3 => self.specs[at].key = self.free_key(),
                4 => self.specs[at].weight = self.dice.one_of(&WEIGHTS),
                5 => self.specs[at].tier = self.dice.one_of(&TIERS),
                6 => self.specs[at].admin = self.dice.one_of(&ADMINS),
                7 => self.specs[at].fingerprint = self.fingerprint(),
                8 => self.rules.judge = judge(&mut self.dice),
                9 => self.specs.rotate_left(at),
                _ => self.exchange_a_rule(),
            }
        }
        Event::Reload { rules: self.rules.clone(), specs: self.specs.clone() }
    }

    fn exchange_a_rule(&mut self) {
        let other = rules(&mut self.dice);
        match self.dice.below(9) {
            0 => self.rules.initial = other.initial,
            1 => self.rules.initial_wait = other.initial_wait,
            2 => self.rules.max_unhealthy_percent = other.max_unhealthy_percent,
            3 => self.rules.min_ejected = other.min_ejected,
            4 => self.rules.on_all_unhealthy = other.on_all_unhealthy,
            5 => self.rules.probed = other.probed,
            6 => self.rules.eject = other.eject,
            7 => self.rules.tier_min_healthy_percent = other.tier_min_healthy_percent,
            _ => self.rules.gates = other.gates,
        }
    }

    fn fingerprint(&mut self) -> u64 {
        self.next_fingerprint += 1;
        self.next_fingerprint
    }

    fn add_member(&mut self) {
        if self.specs.len() == 8 {
            return;
        }
        let key = self.free_key();
        let number: usize = key.name[1..2].parse().unwrap_or(0);
        let spec = Spec {
            key,
            source: (number > 2).then(|| format!("source{}", number % 2).into()),
            roll: None,
            weight: if self.calm { 1 } else { self.dice.one_of(&WEIGHTS) },
            split: self.dice.one_of(&[1, 1, 3]),
            tier: if self.calm { 0 } else { self.dice.one_of(&TIERS) },
            admin: if self.calm { Admin::Enabled } else { self.dice.one_of(&ADMINS) },
            fingerprint: self.fingerprint(),
        };
        let at = self.dice.below(self.specs.len() + 1);
        self.specs.insert(at, spec);
    }

    /// A key that no member has; addresses run against names, so that the two orders differ.
    fn free_key(&mut self) -> Key {
        loop {
            let name = self.dice.below(NAMES);
            let port = 9000 + (NAMES - name) as u16 * 10 + self.dice.below(2) as u16;
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let address = (!self.dice.chance(5)).then_some(address);
            let key = Key { name: format!("m{name}:80"), address, tls: self.dice.chance(20) };
            let taken = |s: &Spec| s.key == key || (address.is_some() && s.key.address == address);
            if !self.specs.iter().any(taken) {
                return key;
            }
        }
    }
}

const REASONS: [Reason; 13] = [
    Reason::Dns,
    Reason::Refused,
    Reason::Unreachable,
    Reason::ConnectTimeout,
    Reason::Tls,
    Reason::Timeout,
    Reason::Reset,
    Reason::Protocol,
    Reason::Status,
    Reason::Header,
    Reason::Body,
    Reason::TooLarge,
    Reason::Slow,
];
const CHARGES: [Reason; 3] = [Reason::Reset, Reason::Status, Reason::Timeout];
const LUCK: [usize; 5] = [0, 10, 60, 100, 100];
const WEIGHTS: [u32; 12] = [1, 1, 1, 1, 1, 1, 1, 1, 2, 100, 1000, 0];
const TIERS: [u8; 7] = [0, 0, 0, 0, 1, 1, 2];
const ORDERS: [Admin; 5] = [Admin::Enabled, Admin::Enabled, Admin::Enabled, Admin::Draining, Admin::Disabled];
/// What a file says: mostly nothing, which is `enabled`.
const ADMINS: [Admin; 12] = {
    let mut admins = [Admin::Enabled; 12];
    admins[0] = Admin::Draining;
    admins[1] = Admin::Disabled;
    admins
};

fn judge(dice: &mut Dice) -> Judge {
    if dice.chance(50) {
        return Judge::Consecutive { failures: 1 + dice.below(4) as u32, passes: 1 + dice.below(3) as u32 };
    }
    let size = 1 + dice.below(6) as u32;
    Judge::Window { size, required: 1 + dice.below(size as usize) as u32 }
}

/// Any rules.
pub fn rules(dice: &mut Dice) -> Rules {
    let gates = Gates {
        max_latency: dice.one_of(&[None, None, Some(Duration::from_millis(200))]),
        max_latency_ratio: dice.one_of(&[None, None, Some(2.0), Some(3.0)]),
        latency_floor: Duration::from_millis(dice.one_of(&[0, 50, 50, 120])),
    };
    Rules {
        judge: judge(dice),
        initial: dice.one_of(&[Initial::Probe, Initial::Probe, Initial::Probe, Initial::Healthy, Initial::Unhealthy]),
        initial_wait: Duration::from_millis(dice.one_of(&[0, 500, 1000, 5000, 20_000, 20_000])),
        max_unhealthy_percent: dice.one_of(&[0, 10, 25, 33, 34, 50, 50, 50, 66, 67, 99, 100]),
        min_ejected: dice.one_of(&[0, 0, 1]),
        on_all_unhealthy: dice.one_of(&[OnAllUnhealthy::RoundRobin, OnAllUnhealthy::RoundRobin, OnAllUnhealthy::Fail]),
        tier_min_healthy_percent: dice.one_of(&[None, None, Some(0), Some(34), Some(50), Some(100)]),
        aggregate: None,
        gates,
        slow_start: Duration::from_millis(dice.one_of(&[0, 1_000, 1_000, 30_000])),
        drain: Duration::from_millis(dice.one_of(&[0, 400, 5_000])),
        eject: dice.chance(50).then(|| Eject {
            base: Duration::from_millis(dice.one_of(&[50, 300, 1000])),
            max: Duration::from_millis(dice.one_of(&[1000, 2000, 10_000])),
            probe_clears: dice.chance(30),
            ..Eject::default()
        }),
        probed: !dice.chance(5),
        memory: Duration::from_millis(dice.one_of(&[0, 400, 5_000, 60_000])),
        rolls: Vec::new(),
    }
}
