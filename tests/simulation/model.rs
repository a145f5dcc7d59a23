//! The naive model: health.md read aloud.
//!
//! It keeps every event since the pool began and works out each member anew from its whole life at every step. Slow
//! and plain on purpose, and written from the text alone: it shares no rule with the heart, only its words (types).
//! The one thing carried from step to step is who was ejected, because the text itself asks for it ("those already
//! ejected keep their place").

use crate::banned::Banned;
use crate::fit::{Fit, fit};
use crate::stand::{Stand, stand};
use pulsegate::health::{Admin, Initial, Judge, Mode, Outcome, Reason, Rules, Sample, Spec, Standing, Verdict};
use std::time::Duration;

/// What happened to one member, in order.
#[derive(Debug, Clone)]
pub enum Turn {
    /// Its identity began, or it was enabled after having been disabled.
    Born(Initial, Judge),
    /// A conclusive sample, as judged by the gates; `right` is its total when it was a right answer.
    Judged { outcome: Outcome, right: Option<Duration> },
    /// Its probe's fingerprint changed; `probed` says whether there is a probe at all.
    Blank { probed: bool },
    /// Nobody probes it any more.
    Unprobed,
    /// The pool's judge changed to this one.
    Judge(Judge),
    /// Traffic put it out for this.
    Out(Reason),
    /// Its time out is over.
    Back,
}

/// One member: who it is and everything that happened to it.
#[derive(Debug, Clone)]
pub struct Life {
    /// The model's own number for the identity, never used twice.
    pub id: usize,
    pub spec: Spec,
    pub admin: Admin,
    /// (order among all events of the pool, time, what).
    pub turns: Vec<(usize, Duration, Turn)>,
    /// What traffic holds against it.
    pub banned: Banned,
    /// Whether its last sample was over the relative gate.
    over: bool,
    /// Since when it drains.
    draining: Option<Duration>,
    /// Since when it comes back, until it has come back.
    pub back: Option<Duration>,
    /// It came when nobody had been healthy yet, and has not fallen since.
    first: bool,
}

/// A pool, and everything that happened to it.
pub struct Model {
    pub rules: Rules,
    pub lives: Vec<Life>,
    pub stand: Stand,
    pub deadline: Duration,
    /// Who became healthy because time had passed, before whatever else the last step was.
    pub returned: Vec<usize>,
    /// Who has left, until when it is remembered, and the judge it left under.
    departed: Vec<(Duration, Judge, Life)>,
    /// When it was last worked out how everybody stands.
    settled: Duration,
    /// Who stood how until now, and whether it was a healthy member.
    before: Vec<(usize, Standing, bool)>,
    /// The tenths of its weight that each has who serves; `None`: all of it.
    pub ramps: Vec<Option<u32>>,
    events: usize,
    born: usize,
}

impl Model {
    pub fn new(now: Duration, rules: Rules, specs: Vec<Spec>) -> Model {
        let stand = stand(&rules, &[], &[], &[], true);
        let deadline = now + rules.initial_wait;
        let mut model = Model {
            rules: rules.clone(),
            lives: vec![],
            stand,
            deadline,
            returned: vec![],
            departed: vec![],
            settled: now,
            before: vec![],
            ramps: vec![],
            events: 0,
            born: 0,
        };
        model.reshape(now, rules, specs);
        model
    }

    pub fn observe(&mut self, now: Duration, id: usize, fingerprint: u64, sample: &Sample) {
        self.events += 1;
        if let Some(at) = self.lives.iter().position(|l| l.id == id && l.spec.fingerprint == fingerprint)
            && self.rules.probed
            && sample.outcome != Outcome::Inconclusive
            && self.lives[at].admin != Admin::Disabled
        {
            self.time_passes(now);
            let (outcome, over) = self.gated(at, sample);
            let total = sample.phases.total;
            let right = matches!(sample.outcome, Outcome::Pass | Outcome::Fail(Reason::Slow)).then_some(total);
            self.lives[at].over = over;
            self.lives[at].turns.push((self.events, now, Turn::Judged { outcome, right }));
            if self.lives[at].banned.is_ended_by(now, outcome) {
                self.back(now, at);
            }
            self.settle(now);
        }
    }

    /// health.md §6: traffic charges a member.
    pub fn charge(&mut self, now: Duration, id: usize, reason: Reason) {
        self.events += 1;
        self.time_passes(now);
        if let Some(at) = self.lives.iter().position(|l| l.id == id)
            && let Some(rules) = self.rules.eject
            && self.lives[at].admin != Admin::Disabled
            && fit(&self.lives[at].turns).proven
            // "passive evidence seen in fallback adds no offence"
            && self.stand.mode != Mode::Fallback
            && self.lives[at].banned.until().is_none()
        {
            self.lives[at].banned.begins(now, &rules, self.rules.judge);
            self.lives[at].turns.push((self.events, now, Turn::Out(reason)));
        }
        self.settle(now);
    }

    /// "in a pool without probes, the first successful request" ends the fallback.
    pub fn vouch(&mut self, now: Duration, id: usize) {
        self.events += 1;
        self.time_passes(now);
        if let Some(at) = self.lives.iter().position(|l| l.id == id)
            && !self.rules.probed
            && self.stand.mode == Mode::Fallback
        {
            self.back(now, at);
        }
        self.settle(now);
    }

    pub fn administer(&mut self, now: Duration, id: usize, admin: Admin) {
        self.events += 1;
        if let Some(at) = self.lives.iter().position(|l| l.id == id) {
            self.time_passes(now);
            let active = |l: &Life| l.admin == Admin::Enabled && l.spec.weight > 0;
            let was_active = active(&self.lives[at]);
            self.order(now, at, admin);
            // "An operator who brings one in that was not probed since starts it likewise."
            let fit = fit(&self.lives[at].turns);
            let untried = active(&self.lives[at]) && !fit.proven && fit.window().1 == 0;
            if untried && !was_active && !self.any_proven() {
                self.deadline = now + self.rules.initial_wait;
            }
            self.settle(now);
        }
    }

    pub fn advance(&mut self, now: Duration) {
        self.time_passes(now);
        self.settle(now);
    }

    /// health.md §9.
    pub fn reshape(&mut self, now: Duration, rules: Rules, specs: Vec<Spec>) {
        self.events += 1;
        self.time_passes(now);
        let had_proven = self.any_proven();
        let old = std::mem::take(&mut self.lives);
        let (left_under, born) = (self.rules.judge, self.born);
        let judge = (rules.judge != self.rules.judge).then_some(rules.judge);
        let unprobed = self.rules.probed && !rules.probed;
        self.rules = rules;
        self.departed.retain(|(until, ..)| *until > now);
        for spec in specs {
            let stayed = old.iter().find(|l| l.spec.key == spec.key).cloned();
            let away = self.departed.iter().position(|(_, _, l)| l.spec.key == spec.key);
            let (mut life, judge, unprobed) = match (stayed, away) {
                (Some(life), _) => (life, judge, unprobed),
                (None, Some(at)) => {
                    let (_, judge, life) = self.departed.remove(at);
                    (life, (judge != self.rules.judge).then_some(self.rules.judge), !self.rules.probed)
                }
                (None, None) => {
                    let turns = vec![(self.events, now, Turn::Born(self.initial(), self.rules.judge))];
                    let (id, banned) = (self.born, Banned::default());
                    self.lives.push(Life {
                        id,
                        admin: spec.admin,
                        spec,
                        turns,
                        banned,
                        over: false,
                        draining: None,
                        back: None,
                        first: !had_proven,
                    });
                    self.born += 1;
                    continue;
                }
            };
            if life.spec.fingerprint != spec.fingerprint {
                life.turns.push((self.events, now, Turn::Blank { probed: self.rules.probed }));
                life.over = false;
                life.banned.is_heard_anew(self.rules.judge);
            }
            life.turns.extend(judge.map(|j| (self.events, now, Turn::Judge(j))));
            if life.banned.is_ruled_by(self.rules.eject.as_ref(), self.rules.judge) {
                life.turns.push((self.events, now, Turn::Back));
            }
            if unprobed {
                let is_well = fit(&life.turns).judged == Verdict::Healthy;
                life.turns.push((self.events, now, Turn::Unprobed));
                life.banned = if is_well { life.banned } else { Banned::default() };
            }
            let word = (life.spec.admin != spec.admin).then_some(spec.admin);
            life.spec = spec;
            self.lives.push(life);
            if let Some(admin) = word {
                self.order(now, self.lives.len() - 1, admin);
            }
        }
        let until = now + self.rules.memory;
        let sources: Vec<_> = self.lives.iter().filter_map(|l| l.spec.source.clone()).collect();
        let lost =
            |o: &Life| o.spec.source.as_ref().is_some_and(|s| sources.contains(s)) && o.spec.key.address.is_some();
        let leavers = old.into_iter().filter(|o| lost(o) && !self.lives.iter().any(|l| l.id == o.id));
        let leavers: Vec<_> = leavers.map(|life| (until, left_under, Life { first: false, ..life })).collect();
        self.departed.extend(leavers);
        let newcomers = self.born > born;
        if !self.any_proven() && (had_proven || newcomers) {
            self.deadline = now + self.rules.initial_wait;
        }
        self.settle(now);
    }

    fn any_proven(&self) -> bool {
        let active = |l: &&Life| l.admin == Admin::Enabled && l.spec.weight > 0;
        self.lives.iter().filter(active).any(|l| fit(&l.turns).proven)
    }

    /// "`probe: off`: members start `initial: healthy`".
    fn initial(&self) -> Initial {
        if self.rules.probed { self.rules.initial } else { Initial::Healthy }
    }

    /// "disabled ones are not [probed], and start `unknown` when enabled".
    fn order(&mut self, now: Duration, at: usize, admin: Admin) {
        let life = &mut self.lives[at];
        if life.admin == Admin::Disabled && admin != Admin::Disabled {
            let initial = match self.rules.initial {
                _ if !self.rules.probed => Initial::Healthy,
                Initial::Unhealthy => Initial::Unhealthy,
                Initial::Probe | Initial::Healthy => Initial::Probe,
            };
            life.turns.push((self.events, now, Turn::Born(initial, self.rules.judge)));
            life.banned = Banned::default();
            life.over = false;
            life.back = None;
        }
        life.admin = admin;
    }

    /// health.md §5: what the gates make of a sample, and whether it was over the relative one.
    fn gated(&self, at: usize, sample: &Sample) -> (Outcome, bool) {
        let (me, gates, total) = (&self.lives[at], self.rules.gates, sample.phases.total);
        if !matches!(sample.outcome, Outcome::Pass | Outcome::Fail(Reason::Slow)) {
            return (sample.outcome, false);
        }
        let previous = by_this_probe(me).map(|(order, _)| order).next().unwrap_or(0);
        let mut others: Vec<Duration> = (self.lives.iter())
            .filter(|l| l.id != me.id && l.admin == Admin::Enabled && l.spec.tier == me.spec.tier)
            .filter_map(|l| by_this_probe(l).take_while(|(order, _)| *order > previous).find_map(|(_, right)| right))
            .collect();
        others.sort();
        let over = others.len() >= 3
            && gates
                .max_latency_ratio
                .is_some_and(|ratio| total > others[(others.len() - 1) / 2].mul_f64(ratio).max(gates.latency_floor));
        let slow = gates.max_latency.is_some_and(|max| total > max) || (over && me.over);
        (if slow { Outcome::Fail(Reason::Slow) } else { sample.outcome }, over)
    }

    /// health.md §7: "until `drain` is over", of a healthy member whose tier, if any, serves.
    pub fn leaves_at(&self, life: &Life, fit: &Fit) -> Option<Duration> {
        let serves = self.stand.tier.is_none_or(|tier| tier == life.spec.tier) && life.spec.key.address.is_some();
        life.draining.filter(|_| serves && fit.verdict == Verdict::Healthy).map(|since| since + self.rules.drain)
    }

    /// Everything again from every member's whole life, the time, and who was ejected before. Where that ends a fallback, time
    /// counts again for those whose own was over.
    fn settle(&mut self, now: Duration) {
        for life in &mut self.lives {
            // "0 stands as `draining`".
            let drains = life.admin == Admin::Draining || life.admin == Admin::Enabled && life.spec.weight == 0;
            life.draining = if drains { life.draining.or(Some(now)) } else { None };
        }
        let before = self.stand.out.clone();
        self.stand = stand(&self.rules, &self.lives, &self.fits(), &before, now >= self.deadline);
        if self.release(now) {
            let between = self.stand.out.clone();
            self.stand = stand(&self.rules, &self.lives, &self.fits(), &between, now >= self.deadline);
        }
        self.settled = now;
        self.come_back(now, &self.fits());
    }

    /// Before anything else happens.
    fn time_passes(&mut self, now: Duration) {
        let was: Vec<Fit> = self.fits();
        self.release(now);
        let is_back = |(was, is): (&Fit, &Fit)| was.verdict != is.verdict;
        let back = was.iter().zip(&self.fits()).map(is_back).collect::<Vec<_>>();
        self.returned = self.lives.iter().zip(back).filter(|(_, back)| *back).map(|(life, _)| life.id).collect();
    }

    /// Ends what is over; "a passive timer that runs out counts [in the fallback] only at that member's next passing probe", where
    /// probes judge.
    fn release(&mut self, now: Duration) -> bool {
        let over = |life: &Life| life.banned.until().is_some_and(|until| until <= now);
        let released: Vec<usize> = match self.stand.mode {
            Mode::Fallback if self.rules.probed => vec![],
            _ => (0..self.lives.len()).filter(|at| over(&self.lives[*at])).collect(),
        };
        released.iter().for_each(|at| self.back(now, *at));
        !released.is_empty()
    }

    fn back(&mut self, now: Duration, at: usize) {
        self.lives[at].banned.ends();
        self.lives[at].turns.push((self.events, now, Turn::Back));
    }

    /// When time alone changes something next.
    pub fn next_deadline(&self) -> Option<Duration> {
        let waits = (self.stand.mode == Mode::Waiting).then_some(self.deadline);
        let returns = self.lives.iter().filter_map(|life| life.banned.until());
        let returns = returns.filter(|_| self.stand.mode != Mode::Fallback || !self.rules.probed);
        returns.chain(waits).chain(self.next_step()).min()
    }

    /// health.md §7, slow start.
    fn come_back(&mut self, now: Duration, fits: &[Fit]) {
        let whole = self.rules.slow_start;
        let ramp = |life: &Life| {
            let step = whole / 10;
            let tenths = 1 + (now - life.back?).as_millis().checked_div(step.as_millis())?;
            (tenths < 10).then_some(tenths as u32)
        };
        let is_healthy = |life: &Life, fit: &Fit| {
            let active = life.admin == Admin::Enabled && life.spec.weight > 0 && life.spec.key.address.is_some();
            active && fit.verdict == Verdict::Healthy
        };
        let was_healthy = |life: &Life| self.before.iter().any(|(id, _, healthy)| *id == life.id && *healthy);
        let somebody_warm = self.lives.iter().zip(fits).any(|(life, fit)| {
            let young = life.back.is_some_and(|back| now - back <= self.rules.initial_wait);
            was_healthy(life) && is_healthy(life, fit) && !young
        });
        let mut now_so = vec![];
        for ((life, fit), standing) in self.lives.iter_mut().zip(fits).zip(&self.stand.standings) {
            let healthy = is_healthy(life, fit);
            let was = self.before.iter().find(|(id, ..)| *id == life.id);
            // "turns healthy from ejected or unknown", "not from kept or fallback".
            if healthy && matches!(was, Some((_, Standing::Ejected | Standing::Unknown, false))) {
                life.back = Some(now);
                life.first &= !somebody_warm;
            }
            if fit.verdict != Verdict::Healthy || ramp(life).is_none() {
                life.back = None;
            }
            life.first &= healthy || !matches!(was, Some((.., true)));
            now_so.push((life.id, *standing, healthy));
        }
        self.before = now_so;
        let stands = |standing: Standing| self.stand.standings.contains(&standing);
        let of_healthy = self.lives.iter().zip(&self.stand.standings).map(|(life, standing)| match standing {
            Standing::Healthy => ramp(life),
            _ => None,
        });
        let ramps: Vec<Option<u32>> = of_healthy.collect();
        // "nobody ramps while anyone is kept". "If all ramp the pool serves normally": where all have come up with it, or there
        // is one; of those who come back one after the other each has its part.
        let lives = self.lives.iter().zip(&ramps).zip(&self.stand.standings);
        let serving: Vec<_> =
            lives.filter(|(_, standing)| **standing == Standing::Healthy).map(|(one, _)| one).collect();
        let together = serving.iter().all(|(life, ramp)| life.first && ramp.is_some());
        let none = stands(Standing::Kept) || together || serving.len() < 2;
        self.ramps = if none { vec![None; ramps.len()] } else { ramps };
    }

    /// When the next step of a slow start begins.
    fn next_step(&self) -> Option<Duration> {
        let step = self.rules.slow_start / 10;
        let next =
            |life: &Life| (1..10).map(|n| life.back.map(|back| back + step * n)).find(|at| *at > Some(self.settled))?;
        self.lives.iter().filter_map(next).min()
    }

    /// What each member's life adds up to.
    pub fn fits(&self) -> Vec<Fit> {
        self.lives.iter().map(|l| fit(&l.turns)).collect()
    }
}

/// A member's samples by its present probe, newest first: (order among all events, total if it was a right answer).
fn by_this_probe(life: &Life) -> impl Iterator<Item = (usize, Option<Duration>)> {
    life.turns.iter().rev().take_while(|(_, _, turn)| !matches!(turn, Turn::Blank { .. } | Turn::Born(..))).filter_map(
        |(order, _, turn)| if let Turn::Judged { right, .. } = turn { Some((*order, *right)) } else { None },
    )
}
