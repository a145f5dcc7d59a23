//! Rules that are tried: whatever they say, the pool is as it would be without them; and what they say is what would be.

use crate::dice::Dice;
use crate::facts::{self, Facts};
use crate::world::{Event, World, rules};
use pulsegate::balance::Policy;
use pulsegate::config::Observed;
use pulsegate::health::{Broken, Charge, Eject, Failure, MemberId, Reason, Rules, Spec};
use pulsegate::pool::{Audience, Charges, Judged, Limits, Pick, Plan, Pool, Side};
use pulsegate::telemetry::Event as Told;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 300;
const STEPS: usize = 80;

/// A pool and whom it tells.
struct Stage {
    audience: Arc<Audience>,
    pool: Pool,
}

impl Stage {
    fn new(now: Duration, rules: &Rules, tried: Option<&Rules>, specs: &[Spec]) -> Stage {
        let audience = Arc::new(Audience::default());
        Stage { pool: Pool::new("web", now, plan(rules, tried, specs), audience.clone()), audience }
    }

    fn happens(&self, now: Duration, event: &Event, tried: Option<&Rules>) {
        match event {
            Event::Sample { who, fingerprint, sample } => {
                self.pool.report(now, MemberId(*who as u64), *fingerprint, sample.clone());
            }
            Event::Order { who, admin } => drop(self.pool.administer(now, MemberId(*who as u64), *admin)),
            Event::Reload { rules, specs } => self.pool.reshape(now, plan(rules, tried, specs)),
            Event::Charge { who, reason } => {
                let last = Failure { reason: *reason, status: None };
                let charge = Some(Charge { last, by: Broken::InARow(5) });
                self.pool.charge(now, MemberId(*who as u64), Charges { in_force: charge, tried: charge });
            }
            Event::Vouch { who } => self.pool.vouch(now, MemberId(*who as u64), Side::Both),
            Event::Time => self.pool.advance(now),
        }
    }

    /// A request to that member ends so; false where it would not come there.
    fn request(&self, now: Duration, traffic: Traffic, judged: Judged<'_>) -> bool {
        let roster = self.pool.roster();
        let others = roster.members().iter().map(|member| member.id()).filter(|id| id.0 != traffic.who as u64);
        let Pick::Member(lease) = self.pool.pick(&others.collect::<Vec<_>>(), None) else { return false };
        if traffic.fails {
            self.pool.fails(now, &lease, Failure { reason: Reason::Reset, status: None }, judged);
        } else {
            self.pool.succeeds(now, &lease, judged);
        }
        true
    }

    fn is(&self) -> Facts {
        self.pool.read(|health, _| facts::told(health))
    }

    fn would_be(&self) -> Option<Facts> {
        self.pool.read_both(|_, shadow, _| shadow.map(|shadow| facts::told(shadow.health())))
    }

    /// What was told of it, without what was told as observed.
    fn told(&self) -> Vec<String> {
        let words = |event: &Arc<Told>| format!("{} {:?} {}", event.kind.as_str(), event.level, event.message);
        self.events().iter().filter(|event| !event.observed).map(words).collect()
    }

    fn events(&self) -> Vec<Arc<Told>> {
        self.audience.events.since(0, usize::MAX)
    }
}

/// What comes to a member.
#[derive(Debug, Clone, Copy)]
struct Traffic {
    who: usize,
    count: usize,
    fails: bool,
}

impl Traffic {
    fn to(dice: &mut Dice, members: &[usize]) -> Traffic {
        Traffic { who: dice.one_of(members), count: 1 + dice.below(6), fails: dice.chance(70) }
    }
}

fn plan(rules: &Rules, tried: Option<&Rules>, specs: &[Spec]) -> Plan {
    let observed = tried.map(|rules| Arc::new(Observed { rules: rules.clone(), keys: vec!["something"] }));
    let (policy, limits) = (Policy::RoundRobin, Limits::default());
    Plan { rules: rules.clone(), observed, policy, budget_percent: 20, members: specs.to_vec(), limits }
}

/// Who is in the pool, by the order in which they began.
fn identities(stage: &Stage) -> Vec<usize> {
    stage.pool.roster().members().iter().map(|member| member.id().0 as usize).collect()
}

/// What is tried: another judge, cap, gate or anything; what a pool remembers is never tried.
fn trial(dice: &mut Dice, present: &Rules) -> Rules {
    let Rules { memory, rolls, .. } = present.clone();
    let tried = rules(dice);
    let eject = tried.eject.map(|eject| Eject {
        consecutive: dice.one_of(&[1, 2, 3, 5]),
        min_requests: dice.one_of(&[3, 20]),
        window: Duration::from_millis(dice.one_of(&[1_000, 10_000])),
        ..eject
    });
    Rules { memory, rolls, eject, ..tried }
}

#[test]
fn whatever_is_tried_the_pool_is_as_without_it_at_every_step() {
    let mut observed = 0;
    for seed in 0..SEEDS {
        let (mut world, mut dice) = (World::new(seed), Dice::new(seed ^ 0x7e57));
        let mut now = Duration::from_millis(world.dice.below(2000) as u64);
        let mut tried = dice.chance(80).then(|| trial(&mut dice, &world.rules));
        let plain = Stage::new(now, &world.rules, None, &world.specs);
        let trying = Stage::new(now, &world.rules, tried.as_ref(), &world.specs);
        for step in 0..STEPS {
            let members = identities(&plain);
            world.saw(&members);
            now += world.pause(plain.pool.next_deadline().unwrap_or_default(), now);
            let event = world.event(&members);
            if matches!(event, Event::Reload { .. }) {
                tried = dice.chance(80).then(|| trial(&mut dice, &world.rules));
            }
            plain.happens(now, &event, None);
            trying.happens(now, &event, tried.as_ref());
            if dice.chance(30) {
                let traffic = Traffic::to(&mut dice, &identities(&plain));
                for _ in 0..traffic.count {
                    plain.request(now, traffic, Judged { in_force: &world.rules, tried: None });
                    trying.request(now, traffic, Judged { in_force: &world.rules, tried: tried.as_ref() });
                }
            }
            assert_eq!(trying.is(), plain.is(), "seed {seed}, step {step}: {event:?} at {now:?}");
            assert_eq!(trying.pool.roster().picture(), plain.pool.roster().picture(), "seed {seed}, step {step}");
            assert_eq!(trying.pool.waits_until(), plain.pool.waits_until(), "seed {seed}, step {step}");
            let would = trying.would_be();
            assert_eq!(would.is_some(), tried.is_some(), "seed {seed}, step {step}");
            let ids = |facts: &Facts| facts.members.iter().map(|member| member.id).collect::<Vec<_>>();
            assert!(would.is_none_or(|would| ids(&would) == ids(&trying.is())), "seed {seed}, step {step}");
        }
        assert_eq!(trying.told(), plain.told(), "seed {seed}");
        observed += trying.events().iter().filter(|event| event.observed).count();
        assert!(plain.events().iter().all(|event| !event.observed));
    }
    assert!(observed > 1000, "hardly anything was observed: {observed}");
}

#[test]
fn what_is_tried_is_told_as_it_is_once_it_is_in_force() {
    for seed in 0..SEEDS {
        let (mut world, mut dice) = (World::new(seed), Dice::new(seed ^ 0x7e57));
        let mut now = Duration::from_millis(world.dice.below(2000) as u64);
        let mut tried = trial(&mut dice, &world.rules);
        let trying = Stage::new(now, &world.rules, Some(&tried), &world.specs);
        let in_force = Stage::new(now, &tried, None, &world.specs);
        for step in 0..STEPS {
            let members = identities(&trying);
            world.saw(&members);
            now += world.pause(trying.pool.next_deadline().unwrap_or_default(), now);
            let event = world.event(&members);
            let really = match &event {
                Event::Reload { specs, .. } => {
                    tried = trial(&mut dice, &world.rules);
                    Event::Reload { rules: tried.clone(), specs: specs.clone() }
                }
                other => other.clone(),
            };
            trying.happens(now, &event, Some(&tried));
            in_force.happens(now, &really, None);
            if dice.chance(30) {
                let traffic = Traffic::to(&mut dice, &identities(&trying));
                for _ in 0..traffic.count {
                    // Whoever would be out has nothing of what comes to it all the same.
                    if trying.request(now, traffic, Judged { in_force: &world.rules, tried: Some(&tried) }) {
                        in_force.request(now, traffic, Judged { in_force: &tried, tried: None });
                    }
                }
            }
            let would = trying.would_be().expect("something is tried");
            assert_eq!(would, in_force.is(), "seed {seed}, step {step}: {really:?} at {now:?}");
        }
    }
}
