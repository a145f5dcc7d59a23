//! A pool: its rules, its way to the members, its retries.

use std::sync::Arc;
use std::time::Duration;

use super::address::host_field;
use super::capacity::{capacity, queue};
use super::domain::{Capacity, HashKey, Member, Pool, Retries, Tunnels, Upstream, UpstreamHost};
use super::file::{AggregateKeys, PoolKeys, RetryKeys, TunnelKeys, UpstreamKeys};
use super::member::{Listed, listed};
use super::observe::{observed, unjudged};
use super::passive;
use super::preset::{Base, Preset};
use super::probe::{self, Probing};
use super::reading::{DAY, Reading, TICK};
use super::remediation::remediation;
use super::spelling::{Share, Spelled};
use super::sticky::sticky;
use super::tls;
use super::words::{BalanceWord, DEFAULT_CHOICES, DEFAULT_MEMORY, DEFAULT_SENSITIVITY, Or};
use crate::balance::{Memory, Policy};
use crate::health::{Aggregate, Initial, OnAllUnhealthy, Rules};

/// Attempts and dials that one request may cause; beyond this retries are a load of their own.
const MAX_ATTEMPTS: u32 = 10;

/// A peak that falls faster than its clock ticks is none, and one that takes longer keeps members out for good.
const DECAYS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// The pool `name` as `keys` describe it; addresses that its names have lost are remembered for `memory`.
pub(super) fn pool(name: &str, keys: &PoolKeys, memory: Duration, mut read: Reading<'_>) -> Pool {
    let preset = keys.preset.map(|Spelled(preset)| preset);
    let base = Base::of(preset);
    let each_member = keys.each_member.as_ref().map_or_else(Capacity::default, |each| {
        capacity(&each.max_in_flight, &each.max_connections, &mut read.under("each_member"))
    });
    let listed = listed(name, keys.members.as_deref(), each_member, &mut read);
    let upstream = upstream(keys.upstream.as_ref(), &listed.members, &mut read);
    let probing = probe::probing(name, keys.probe.as_ref(), preset, &base, &listed, &upstream, &mut read);
    let Listed { members, services, files } = listed;
    let (balance, hash_key) = balance(keys, &base, &mut read);
    let slow_start = slow_start(keys, &balance, &mut read);
    let (remediation, observed_remediation) = remediation(name, keys.remediation.as_ref(), &probing, &mut read);
    let sticky = sticky(name, keys.sticky.as_ref(), &mut read);
    let (passive, eject) = passive::passive(keys.passive.as_ref(), &base, &mut read);
    let rolls = files.iter().map(|path| path.display().to_string().into()).collect();
    let judged = Rules { memory, rolls, eject, ..rules(keys, preset, &base, &probing, &mut read) };
    let observed = observed(name, keys, preset, &base, &probing, &judged, &mut read).map(Arc::new);
    Pool {
        name: name.to_owned(),
        // What is tried has no traffic to give back step by step.
        rules: Rules { slow_start, ..if probing.only_observes { unjudged(judged) } else { judged } },
        observed,
        balance,
        hash_key,
        retries: keys.retries.as_ref().map_or_else(Retries::default, |r| retries(r, read.under("retries"))),
        rescue: keys.rescue.is_none_or(|Spelled(rescue)| rescue),
        passive,
        tunnels: keys.tunnels.as_ref().map_or_else(Tunnels::default, |t| tunnels(t, read.under("tunnels"))),
        required: keys.required.is_some_and(|Spelled(required)| required),
        deadline: read.span("deadline", &keys.deadline, TICK..=DAY),
        capacity: capacity(&keys.max_in_flight, &keys.max_connections, &mut read),
        queue: keys.queue.as_ref().and_then(|keys| queue(keys, read.under("queue"))),
        remediation,
        observed_remediation,
        sticky,
        only_one_enabled: preset == Some(Preset::FrontDoor) && (probing.probe.is_none() || probing.only_observes),
        probe: probing.probe.map(Arc::new),
        upstream,
        each_member,
        members,
        services,
        files,
    }
}

fn rules(keys: &PoolKeys, preset: Option<Preset>, base: &Base, probing: &Probing, read: &mut Reading<'_>) -> Rules {
    let on_all_unhealthy = keys.on_all_unhealthy.map_or(OnAllUnhealthy::RoundRobin, |Spelled(word)| word);
    let least = if preset == Some(Preset::AppService) { 1 } else { 0 };
    let cap = read.count("max_unhealthy_percent", &keys.max_unhealthy_percent, least..=100);
    let default_cap = match on_all_unhealthy {
        // A pool where by design only one passes: the others must be able to go.
        OnAllUnhealthy::Fail => 100,
        OnAllUnhealthy::RoundRobin => base.max_unhealthy_percent,
    };
    let probed = probing.probe.is_some();
    let initial = match keys.initial {
        _ if !probed => Initial::Healthy,
        Some(Spelled(initial)) => initial,
        None => Initial::Probe,
    };
    Rules {
        judge: probing.judge,
        initial,
        initial_wait: read
            .span("initial_wait", &keys.initial_wait, Duration::ZERO..=Duration::from_secs(600))
            .unwrap_or(Duration::from_secs(1)),
        max_unhealthy_percent: cap.unwrap_or(default_cap),
        min_ejected: read.count("min_ejected", &keys.min_ejected, 0..=1).unwrap_or(0),
        on_all_unhealthy,
        tier_min_healthy_percent: read.count("tier_min_healthy_percent", &keys.tier_min_healthy_percent, 0..=100),
        aggregate: keys.aggregate.as_ref().map(|keys| aggregate(keys, read.under("aggregate"))),
        gates: probing.gates,
        slow_start: Duration::ZERO,
        drain: read.span("drain", &keys.drain, Duration::ZERO..=DAY).unwrap_or(Rules::default().drain),
        eject: None,
        probed,
        memory: Duration::ZERO,
        rolls: Vec::new(),
    }
}

/// None where a key says who gets a request: it goes there at once or not at all (health.md §7).
fn slow_start(keys: &PoolKeys, balance: &Policy, read: &mut Reading<'_>) -> Duration {
    let written = read.span("slow_start", &keys.slow_start, Duration::ZERO..=DAY).unwrap_or_default();
    if matches!(balance, Policy::ConsistentHash { .. }) { Duration::ZERO } else { written }
}

pub(super) fn aggregate(keys: &AggregateKeys, mut read: Reading<'_>) -> Aggregate {
    let base = Aggregate::default();
    if keys.min_healthy == Some(Spelled(0)) {
        read.error("min_healthy", "`min_healthy: 0` would call a pool healthy in which nobody is; write at least 1");
        return base;
    }
    Aggregate {
        min_healthy_percent: read
            .count("min_healthy_percent", &keys.min_healthy_percent, 0..=100)
            .unwrap_or(base.min_healthy_percent),
        min_healthy: read.count("min_healthy", &keys.min_healthy, 1..=1_000_000).unwrap_or(base.min_healthy),
    }
}

/// The policy, and for hashing what it goes by.
fn balance(keys: &PoolKeys, base: &Base, read: &mut Reading<'_>) -> (Policy, Option<HashKey>) {
    let written = match &keys.balance {
        None => return (base.balance.clone(), None),
        Some(Or::Word(BalanceWord(policy))) => {
            let hashes = matches!(policy, Policy::ConsistentHash { .. });
            return (policy.clone(), hashes.then_some(HashKey::Client));
        }
        Some(Or::Keys(written)) => written,
    };
    let mut at = read.under("balance");
    let named = [
        ("least_requests", written.least_requests.is_some()),
        ("fastest", written.fastest.is_some()),
        ("peak_ewma", written.peak_ewma.is_some()),
        ("consistent_hash", written.consistent_hash.is_some()),
    ];
    let mut named = named.into_iter().filter(|(_, is_written)| *is_written).map(|(name, _)| name);
    if let (Some(_), Some(second)) = (named.next(), named.next()) {
        at.error(second, "`balance` names two policies; keep one");
        return (base.balance.clone(), None);
    }
    if let Some(keys) = &written.least_requests {
        let choices = at.under("least_requests").count("choices", &keys.choices, 2..=32);
        (Policy::LeastRequests { choices: choices.unwrap_or(DEFAULT_CHOICES) }, None)
    } else if let Some(keys) = &written.fastest {
        let sensitivity =
            at.under("fastest").span("latency_sensitivity", &keys.latency_sensitivity, Duration::ZERO..=DAY);
        (Policy::Fastest { sensitivity: sensitivity.unwrap_or(DEFAULT_SENSITIVITY) }, None)
    } else if let Some(keys) = &written.peak_ewma {
        let mut at = at.under("peak_ewma");
        let decay = at.span("decay", &keys.decay, DECAYS);
        let sensitivity = at.span("latency_sensitivity", &keys.latency_sensitivity, Duration::ZERO..=DAY);
        let base = DEFAULT_MEMORY;
        let (decay, sensitivity) = (decay.unwrap_or(base.decay), sensitivity.unwrap_or(base.sensitivity));
        (Policy::PeakEwma(Memory { decay, sensitivity }), None)
    } else if let Some(keys) = &written.consistent_hash {
        let bound = at.under("consistent_hash").count("bounded_load_percent", &keys.bounded_load_percent, 101..=1000);
        let key = keys.key.clone().map_or(HashKey::Client, |Spelled(key)| key);
        (Policy::ConsistentHash { bounded_load_percent: bound }, Some(key))
    } else {
        if !at.at.damaged() {
            at.problems.error(at.at, "`balance` names no policy; write one such as `round_robin`");
        }
        (base.balance.clone(), None)
    }
}

fn upstream(keys: Option<&UpstreamKeys>, members: &[Member], pool: &mut Reading<'_>) -> Upstream {
    let base = Upstream::default();
    let Some(keys) = keys else { return base };
    let at = pool.at;
    let mut read = pool.under("upstream");
    let host = read.text("host", &keys.host, |text| match text {
        "pass" => Ok(UpstreamHost::PassThrough),
        "member" => Ok(UpstreamHost::Member),
        name => host_field(name).map(UpstreamHost::Fixed).map_err(|e| format!("{e}; write `pass`, `member` or a host")),
    });
    Upstream {
        connect_timeout: read
            .span("connect_timeout", &keys.connect_timeout, TICK..=DAY)
            .unwrap_or(base.connect_timeout),
        read_timeout: read.span("read_timeout", &keys.read_timeout, TICK..=DAY).unwrap_or(base.read_timeout),
        write_timeout: read.span("write_timeout", &keys.write_timeout, TICK..=DAY).unwrap_or(base.write_timeout),
        idle_timeout: read.span("idle_timeout", &keys.idle_timeout, TICK..=DAY).unwrap_or(base.idle_timeout),
        host: host.unwrap_or(base.host),
        tls: tls::of_traffic(keys.tls.as_ref(), members, at, &mut read),
    }
}

fn retries(keys: &RetryKeys, mut read: Reading<'_>) -> Retries {
    let base = Retries::default();
    let mut tries = |key: &str, written, what: &str| {
        if written == &Some(Spelled(0)) {
            read.error(key, format!("`{key}` counts the first {what} too; write 1 to switch retries off"));
            return None;
        }
        read.count(key, written, 1..=MAX_ATTEMPTS)
    };
    Retries {
        attempts: tries("attempts", &keys.attempts, "attempt").unwrap_or(base.attempts),
        connect: tries("connect", &keys.connect, "dial").unwrap_or(base.connect),
        budget_percent: keys.budget.map_or(base.budget_percent, |Spelled(Share(percent))| percent),
        per_try_timeout: read.span("per_try_timeout", &keys.per_try_timeout, TICK..=DAY),
    }
}

fn tunnels(keys: &TunnelKeys, mut read: Reading<'_>) -> Tunnels {
    let base = Tunnels::default();
    Tunnels {
        idle: read.span("idle", &keys.idle, TICK..=DAY).unwrap_or(base.idle),
        drain: read.span("drain", &keys.drain, Duration::ZERO..=DAY).unwrap_or(base.drain),
    }
}
