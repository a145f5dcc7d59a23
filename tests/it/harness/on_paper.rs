//! A pool by a configuration's own numbers in virtual time: what takes minutes is over at once.
//!
//! Judge, cap, fallback and balance are the program's, and their numbers are what it reads; what probes teach is what the
//! case says. Not here: how probes are made and timed, which the real program shows.

use std::sync::Arc;
use std::time::Duration;

use pulsegate::config::{self, Config, HttpProbe, Loaded, ProbeKind, Problem};
use pulsegate::health::replacement::{Patient, Rule};
use pulsegate::health::{Key, MemberId, Reason, Sample, Spec};
use pulsegate::pool::{Limits, Pick, Plan, Pool};

use super::proxy::completed;

/// The pool `web` of a configuration, from its first moment.
pub struct OnPaper {
    pool: Pool,
    config: Arc<config::Pool>,
    /// When the last round was.
    pub now: Duration,
}

impl OnPaper {
    /// Members have to be addresses.
    #[track_caller]
    pub fn of(config: &str) -> OnPaper {
        OnPaper::of_pool(pool_of(config))
    }

    /// The same for a pool that is one of several.
    pub fn of_pool(pool: Arc<config::Pool>) -> OnPaper {
        let spec = |member: &config::Member| Spec {
            key: Key { name: member.name.clone(), address: member.name.parse().ok(), tls: false },
            weight: member.weight,
            split: 1,
            tier: member.tier,
            admin: member.state,
            source: None,
            roll: None,
            fingerprint: 0,
        };
        let plan = Plan {
            observed: None,
            rules: pool.rules.clone(),
            policy: pool.balance.clone(),
            budget_percent: 20,
            members: pool.members.iter().map(spec).collect(),
            limits: Limits::default(),
        };
        OnPaper { pool: Pool::new(&pool.name, Duration::ZERO, plan, Arc::default()), config: pool, now: Duration::ZERO }
    }

    /// An interval later every member is probed, and this is what comes of it; says how they stand then.
    pub fn round(&mut self, samples: &[Sample]) -> Vec<&'static str> {
        self.now += self.config.probe.as_ref().expect("it probes").interval;
        for (member, sample) in self.ids().into_iter().zip(samples) {
            self.pool.report(self.now, member, 0, sample.clone());
        }
        self.standings()
    }

    /// How everyone stands, in the order of the configuration.
    pub fn standings(&self) -> Vec<&'static str> {
        self.pool.read(|health, _| health.picture().standings.iter().map(|standing| standing.as_str()).collect())
    }

    /// The pool's mode.
    pub fn mode(&self) -> &'static str {
        self.pool.read(|health, _| health.picture().mode.as_str())
    }

    /// How many of so many requests each member gets.
    pub fn shares(&self, requests: usize) -> Vec<usize> {
        let ids = self.ids();
        let mut shares = vec![0; ids.len()];
        for _ in 0..requests {
            let Pick::Member(lease) = self.pool.pick(&[], None) else { continue };
            let at = ids.iter().position(|id| *id == lease.member().id());
            shares[at.expect("one of them")] += 1;
        }
        shares
    }

    /// Its members, as far as their replacement goes, by the pool's own rule.
    pub fn patients(&self) -> Vec<Patient> {
        let rule = self.config.remediation.as_ref().zip(self.config.probe.as_ref());
        let rule = rule.map(|(r, probe)| Rule { after: r.after, pace: probe.pace(), limits: r.limits });
        self.pool.read(|health, _| {
            health.members().iter().filter_map(|member| Patient::of(self.pool.name(), member, rule)).collect()
        })
    }

    fn ids(&self) -> Vec<MemberId> {
        self.pool.read(|health, _| health.members().iter().map(|member| member.id()).collect())
    }
}

/// A probe that passed within so many milliseconds.
pub fn passed(ms: u64) -> Sample {
    Sample::pass(Duration::from_millis(ms))
}

/// A probe whose answer was wrong.
pub fn failed() -> Sample {
    Sample::fail(Reason::Status, Duration::from_millis(1))
}

/// The pool `web` of a configuration, as it is understood.
#[track_caller]
pub fn pool_of(config: &str) -> Arc<config::Pool> {
    understood(config).pools["web"].clone()
}

/// A whole configuration, as it is understood.
#[track_caller]
pub fn understood(config: &str) -> Config {
    parsed(config).unwrap_or_else(|problems| panic!("{}", lines(&problems))).config
}

/// The HTTP probe of a pool.
#[track_caller]
pub fn http_probe(pool: &config::Pool) -> &HttpProbe {
    match pool.probe.as_ref().map(|probe| &probe.kind) {
        Some(ProbeKind::Http(http)) => http,
        other => panic!("no probe over HTTP: {other:?}"),
    }
}

/// What is wrong with a configuration, as lines.
#[track_caller]
pub fn problems(config: &str) -> String {
    match parsed(config) {
        Ok(_) => panic!("taken:\n{config}"),
        Err(problems) => lines(&problems),
    }
}

fn parsed(config: &str) -> Result<Loaded, Vec<Problem>> {
    config::parse("proxy.yaml", &completed(config), &|_| None)
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}
