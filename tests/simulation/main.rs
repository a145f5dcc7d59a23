//! The heart against a naive model of itself, over random histories.
//!
//! Each seed is one pool's life: random rules, members, evidence, orders, reloads, late evidence and time. After every
//! event everything observable is compared with what the model works out anew from the text (docs/health.md), what was
//! announced is compared with what changed, and the invariants are checked on the heart's own words. A history that
//! fails is made as short as it can be before it is printed.
//!
//! `PULSEGATE_SIM_SEED=17` replays one seed; `PULSEGATE_SIM_SEEDS=2000` plays that many instead of the usual ones.
//!
//! Not here: what is evidence and how traffic is counted, probes on a wire, time that passes by itself.

mod banned;
mod dice;
mod facts;
mod fit;
mod invariants;
mod model;
mod stand;
mod tried;
mod world;

use facts::{Facts, MemberFacts};
use model::Model;
use pulsegate::health::{Broken, Charge, Failure, MemberId, PoolHealth, Rules, Spec, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use world::{Event, World};

/// Seeds in the ordinary suite, and events in each.
const SEEDS: u64 = 400;
const STEPS: usize = 80;

#[test]
fn heart_and_naive_model_agree_after_every_event() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("PULSEGATE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PULSEGATE_SIM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Err(history) = live(seed, &mut Seen::new()) {
            panic!("{}", report(seed, history.shortened()));
        }
    }
}

/// A simulation that never gets anywhere agrees with everything.
#[test]
fn histories_reach_every_mode_standing_cause_and_change() {
    let mut seen = Seen::new();
    for seed in 0..60 {
        let _ = live(seed, &mut seen);
    }
    let rare: Vec<&&str> = facts::WORDS.iter().filter(|word| seen.get(**word).copied().unwrap_or(0) < 5).collect();
    assert!(rare.is_empty(), "seen less than five times: {rare:?} of {seen:#?}");
}

/// A pool's life, as told from outside.
#[derive(Debug, Clone)]
struct History {
    rules: Rules,
    specs: Vec<Spec>,
    events: Vec<(Duration, Event)>,
}

/// Heart and model side by side.
struct Pair {
    heart: PoolHealth,
    model: Model,
    /// The heart's ids of the model's identities, in the order they began.
    ids: Vec<MemberId>,
    facts: Facts,
    /// How everybody stood when last observed, whoever has left included.
    seen: BTreeMap<MemberId, MemberFacts>,
}

/// How often each thing was seen to happen.
type Seen = BTreeMap<String, usize>;

/// Plays a seed to its end, or to the first event after which heart and model disagree.
fn live(seed: u64, seen: &mut Seen) -> Result<(), Box<History>> {
    let mut world = World::new(seed);
    let mut history = History { rules: world.rules.clone(), specs: world.specs.clone(), events: vec![] };
    let mut now = Duration::from_millis(world.dice.below(2000) as u64);
    history.events.push((now, Event::Time));
    let mut pair = Pair::new(now, &history).map_err(|_| Box::new(history.clone()))?;
    for _ in 0..STEPS {
        let members: Vec<usize> = pair.model.lives.iter().map(|life| life.id).collect();
        world.saw(&members);
        now += world.pause(pair.model.deadline, now);
        let event = world.event(&members);
        history.events.push((now, event.clone()));
        let news = pair.step(now, &event).map_err(|_| Box::new(history.clone()))?;
        for thing in news.into_iter().chain(facts::words(&pair.facts)) {
            *seen.entry(thing).or_default() += 1;
        }
    }
    Ok(())
}

impl Pair {
    fn new(now: Duration, history: &History) -> Result<Pair, Vec<String>> {
        guarded(|| {
            let heart = PoolHealth::new(now, history.rules.clone(), history.specs.clone());
            let model = Model::new(now, history.rules.clone(), history.specs.clone());
            let mut pair = Pair { facts: facts::told(&heart), heart, model, ids: vec![], seen: BTreeMap::new() };
            pair.check()?;
            pair.look();
            Ok(pair)
        })
    }

    fn step(&mut self, now: Duration, event: &Event) -> Result<Vec<String>, Vec<String>> {
        guarded(|| {
            let before = self.facts.clone();
            let told = self.happen(now, event);
            self.check()?;
            let returned: Vec<MemberId> = self.model.returned.iter().map(|life| self.ids[*life]).collect();
            if !told.iter().map(facts::rank).is_sorted() {
                return Err(vec![format!("announced out of order: {told:?}")]);
            }
            let expected = facts::news(&before, &self.seen, &self.facts, &returned);
            let told = facts::in_order(&told);
            self.look();
            // Who left in this step was back for the moment before.
            for member in returned {
                if !self.facts.members.iter().any(|m| m.id == member)
                    && let Some(left) = self.seen.get_mut(&member)
                {
                    left.verdict = Verdict::Healthy;
                }
            }
            if told == expected {
                Ok(facts::kinds(&told))
            } else {
                Err(vec![format!("announced {told:?} / changed {expected:?}")])
            }
        })
    }

    fn happen(&mut self, now: Duration, event: &Event) -> Vec<pulsegate::health::Change> {
        let (heart, model) = (&mut self.heart, &mut self.model);
        model.returned.clear();
        let id = |who: usize| self.ids.get(who).copied().unwrap_or(MemberId(u64::MAX));
        match event {
            Event::Sample { who, fingerprint, sample } => {
                model.observe(now, *who, *fingerprint, sample);
                heart.observe(now, id(*who), *fingerprint, sample.clone())
            }
            Event::Order { who, admin } => {
                model.administer(now, *who, *admin);
                heart.administer(now, id(*who), *admin)
            }
            Event::Reload { rules, specs } => {
                model.reshape(now, rules.clone(), specs.clone());
                heart.reshape(now, rules.clone(), specs.clone())
            }
            Event::Charge { who, reason } => {
                model.charge(now, *who, *reason);
                let last = Failure { reason: *reason, status: None };
                heart.charge(now, id(*who), Charge { last, by: Broken::InARow(5) })
            }
            Event::Vouch { who } => {
                model.vouch(now, *who);
                heart.vouch(now, id(*who))
            }
            Event::Time => {
                model.advance(now);
                heart.advance(now)
            }
        }
    }

    fn look(&mut self) {
        self.seen.extend(self.facts.members.iter().map(|member| (member.id, member.clone())));
    }

    /// Compares everything observable.
    fn check(&mut self) -> Result<(), Vec<String>> {
        for (life, member) in self.model.lives.iter().zip(self.heart.members()) {
            if life.id == self.ids.len() {
                if self.ids.contains(&member.id()) {
                    return Err(vec![format!("{:?} was given to a second member", member.id())]);
                }
                self.ids.push(member.id());
            }
        }
        self.facts = facts::told(&self.heart);
        let model = facts::reckoned(&self.model, &self.ids);
        if self.facts != model {
            return Err(facts::differences(&self.facts, &model));
        }
        invariants::check(&self.heart)
    }
}

/// A panic is a disagreement like any other.
fn guarded<T>(play: impl FnOnce() -> Result<T, Vec<String>>) -> Result<T, Vec<String>> {
    catch_unwind(AssertUnwindSafe(play)).unwrap_or_else(|_| Err(vec!["panicked (see above)".to_owned()]))
}

impl History {
    /// The first step at which heart and model disagree, and how.
    fn failure(&self) -> Option<(usize, Vec<String>)> {
        let mut pair = match Pair::new(self.events[0].0, self) {
            Ok(pair) => pair,
            Err(differences) => return Some((0, differences)),
        };
        (self.events.iter().enumerate().skip(1))
            .find_map(|(step, (now, event))| pair.step(*now, event).err().map(|differences| (step, differences)))
    }

    /// The same failure with fewer events and fewer members: whatever can go without the failure going, goes.
    fn shortened(mut self) -> History {
        loop {
            let size = (self.events.len(), self.specs.len());
            for at in (1..self.events.len()).rev() {
                let mut shorter = self.clone();
                shorter.events.remove(at);
                if shorter.failure().is_some() {
                    self = shorter;
                }
            }
            for name in self.specs.iter().map(|spec| spec.key.clone()).collect::<Vec<_>>() {
                let mut shorter = self.clone();
                shorter.specs.retain(|spec| spec.key != name);
                for (_, event) in &mut shorter.events {
                    if let Event::Reload { specs, .. } = event {
                        specs.retain(|spec| spec.key != name);
                    }
                }
                if shorter.failure().is_some() {
                    self = shorter;
                }
            }
            if size == (self.events.len(), self.specs.len()) {
                return self;
            }
        }
    }
}

fn report(seed: u64, history: History) -> String {
    let mut text = format!("seed {seed} disagrees; replay it with PULSEGATE_SIM_SEED={seed}\n");
    let _ = writeln!(text, "rules {:?}\nmembers at {:?}:", history.rules, history.events[0].0);
    let tell = |text: &mut String, specs: &[Spec]| {
        for spec in specs {
            let Spec { key, weight, tier, admin, fingerprint, .. } = spec;
            let (name, tls) = (&key.name, key.tls);
            let _ = writeln!(
                text,
                "    {name} {:?} tls {tls} weight {weight} tier {tier} {admin:?} fingerprint {fingerprint}",
                key.address
            );
        }
    };
    tell(&mut text, &history.specs);
    for (step, (now, event)) in history.events.iter().enumerate().skip(1) {
        let _ = match event {
            Event::Sample { who, fingerprint, sample } => writeln!(
                text,
                "{step:3} {now:?} sample of identity {who}, fingerprint {fingerprint}: {:?} {:?}",
                sample.outcome, sample.phases.total
            ),
            Event::Reload { rules, specs } => {
                let _ = writeln!(text, "{step:3} {now:?} reload {rules:?}");
                tell(&mut text, specs);
                Ok(())
            }
            other => writeln!(text, "{step:3} {now:?} {other:?}"),
        };
    }
    let (step, differences) = history.failure().unwrap_or((0, vec!["does not fail again".to_owned()]));
    let _ = writeln!(text, "after event {step}:\n    {}", differences.join("\n    "));
    text
}
