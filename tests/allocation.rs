//! That choosing a member allocates nothing: not by any policy, not on a retry, not with limits, and not on the whole way
//! through a pool, from the pick to the seat that is given back.
//!
//! A test binary of its own: counting replaces the allocator of the binary that names it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use pulsegate::balance::{Balancer, Candidate, Form, Memory, Policy, Rings, Seat};
use pulsegate::config::{self, Capacity};
use pulsegate::health::{Admin, Initial, Judge, Key, MemberId, Reason, Rules, Sample, Spec};
use pulsegate::pool::{Answer, Lease, Limits, Pick, Plan, Pool};

const SIZES: [u32; 2] = [10, 10_000];

const MEMORY: Memory = Memory { decay: Duration::from_secs(10), sensitivity: Duration::from_millis(50) };

fn policies() -> [Policy; 8] {
    [
        Policy::RoundRobin,
        Policy::LeastRequests { choices: 2 },
        Policy::LeastRequests { choices: 16 },
        Policy::Random,
        Policy::Fastest { sensitivity: Duration::from_millis(50) },
        Policy::PeakEwma(MEMORY),
        Policy::ConsistentHash { bounded_load_percent: None },
        Policy::ConsistentHash { bounded_load_percent: Some(125) },
    ]
}

/// How many allocations `work` makes, the first time left out, in which a thread sets up what it keeps.
fn allocations(mut work: impl FnMut()) -> u64 {
    work();
    allocation_counter::measure(work).count_total
}

#[test]
fn an_allocation_is_seen() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1_u32)))), 1);
}

#[test]
fn a_pick_allocates_nothing() {
    for policy in policies() {
        for members in SIZES {
            let balancer = balancer(&policy, members);
            let turn = AtomicUsize::new(3);
            let load = |index: usize| (index % 5) as u32;
            let form = |index: usize| Form::new(Some(Duration::from_millis(index as u64 % 200)), 0.0);
            let total = u64::from(members) * 2;
            let most: Vec<usize> = (0..20).collect();
            for tried in [&[][..], &[3, 7], &most[..]] {
                let picks = || {
                    for draw in 0..200_u64 {
                        let (key, draw) = (draw.to_le_bytes(), draw << 48 | draw);
                        let picked = match (balancer.goes_by_key(), balancer.goes_by_form()) {
                            (true, _) => balancer.pick_for(&key, load, || total, tried),
                            (_, true) => balancer.pick_by_form(&turn, draw, form, tried),
                            _ => balancer.pick(&turn, draw, load, tried),
                        };
                        assert_eq!(picked.is_none(), tried.len() >= members as usize);
                    }
                };
                assert_eq!(allocations(picks), 0, "{policy:?} of {members} beside {}", tried.len());
            }
        }
    }
}

#[test]
fn a_lease_allocates_nothing() {
    for policy in policies() {
        for members in SIZES {
            let pool = pool(policy.clone(), members, Limits::default());
            assert_eq!(allocations(|| leases(&pool, &[])), 0, "{policy:?} of {members}");
            let tried = tried(&pool);
            assert_eq!(allocations(|| leases(&pool, &tried)), 0, "{policy:?} of {members}, a retry");
        }
    }
}

#[test]
fn a_lease_under_limits_allocates_nothing() {
    let each = Capacity { max_in_flight: Some(1), max_connections: None };
    let limits = Limits {
        capacity: Capacity { max_in_flight: Some(1_000), max_connections: None },
        members: vec![each; 10],
        queue: Some(config::Queue { size: 10, timeout: Duration::from_secs(1) }),
    };
    for policy in policies() {
        let pool = pool(policy.clone(), 10, limits.clone());
        // Of ten members seven are full: picks meet them, and look on.
        let taken: Vec<Lease> = (0..7).map(|number| lease(&pool, number, &[])).collect();
        assert_eq!(allocations(|| leases(&pool, &[])), 0, "{policy:?}");
        drop(taken);
        let all: Vec<Lease> = (0..10).map(|number| lease(&pool, number, &[])).collect();
        let refused = || assert!(matches!(pool.pick(&[], Some(b"key")), Pick::Full));
        assert_eq!(allocations(refused), 0, "{policy:?}, all full");
        drop(all);
    }
}

#[test]
fn a_lease_beside_the_sick_allocates_nothing() {
    for policy in policies() {
        let pool = pool(policy.clone(), 10, Limits::default());
        let ids: Vec<MemberId> = pool.roster().members().iter().map(|member| member.id()).collect();
        for (sick, id) in ids.iter().enumerate() {
            pool.report(Duration::from_secs(1), *id, 0, Sample::fail(Reason::Refused, Duration::from_millis(1)));
            let tried = tried(&pool);
            assert_eq!(allocations(|| leases(&pool, &tried)), 0, "{policy:?}, {} sick", sick + 1);
        }
    }
}

/// 200 requests, each with a key, one after the other.
fn leases(pool: &Pool, tried: &[MemberId]) {
    for number in 0..200 {
        pool.tell_time(|| Duration::from_millis(number));
        let mut lease = lease(pool, number, tried);
        lease.await_begins(|| Duration::from_millis(number));
        let answer = if number % 7 == 0 { Answer::Failure } else { Answer::Success };
        lease.is_answered(Duration::from_millis(2 * number), answer);
    }
}

fn lease(pool: &Pool, number: u64, tried: &[MemberId]) -> Lease {
    match pool.pick(tried, Some(&number.to_le_bytes())) {
        Pick::Member(lease) => lease,
        _ => panic!("there is room"),
    }
}

fn tried(pool: &Pool) -> Vec<MemberId> {
    [3, 7].map(|index: usize| pool.roster().members()[index].id()).to_vec()
}

fn address(number: u32) -> SocketAddr {
    (Ipv4Addr::from(0x0a00_0000 + number), 80).into()
}

fn balancer(policy: &Policy, members: u32) -> Balancer {
    let latency = |number: u32| Some(Duration::from_millis(u64::from(number % 200)));
    let candidate = |number: u32| Candidate {
        index: number as usize,
        weight: 1 + number % 3,
        split: 1,
        kept: number % 10 == 9,
        latency: latency(number),
    };
    let candidates = (0..members).map(candidate).collect();
    let Policy::ConsistentHash { bounded_load_percent } = policy else { return Balancer::new(policy, candidates) };
    let seat = |number: u32| Seat {
        index: number as usize,
        address: address(number),
        weight: 1 + number % 3,
        split: 1,
        tier: 0,
        source: None,
    };
    let rings = Rings::new((0..members).map(seat).collect());
    Balancer::with_ring(rings.of(0).expect("they have weight").clone(), *bounded_load_percent, candidates)
}

fn pool(policy: Policy, members: u32, limits: Limits) -> Pool {
    let rules = Rules {
        judge: Judge::Consecutive { failures: 1, passes: 1 },
        initial: Initial::Healthy,
        initial_wait: Duration::ZERO,
        ..Rules::default()
    };
    let member = |number: u32| Spec {
        key: Key { name: address(number).to_string(), address: Some(address(number)), tls: false },
        weight: 1 + number % 3,
        split: 1,
        tier: 0,
        admin: Admin::Enabled,
        source: None,
        roll: None,
        fingerprint: 0,
    };
    let members = (0..members).map(member).collect();
    let plan = Plan { rules, observed: None, policy, budget_percent: 20, members, limits };
    Pool::new("web", Duration::ZERO, plan, Arc::default())
}
