//! A pool of 10,000 members: its beginning, a transition with its new roster, a sample that changes nothing, and what
//! `fastest` makes of latencies. And at 10 and at 10,000 what a request takes of it: a lease, from the pick to the seat
//! that is given back, for each policy, at the first attempt and on a retry.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use pulsegate::balance::{Memory, Policy};
use pulsegate::health::{Admin, Initial, Judge, Key, MemberId, Reason, Rules, Sample, Spec};
use pulsegate::pool::{Audience, Limits, Pick, Plan, Pool};

const MEMBERS: u32 = 10_000;
const NOW: Duration = Duration::from_secs(1);

/// As the benches name them.
const POLICIES: [(&str, Policy); 7] = [
    ("round_robin", Policy::RoundRobin),
    ("least_requests", Policy::LeastRequests { choices: 2 }),
    ("random", Policy::Random),
    ("fastest", Policy::Fastest { sensitivity: Duration::from_millis(50) }),
    ("peak_ewma", Policy::PeakEwma(Memory { decay: Duration::from_secs(10), sensitivity: Duration::from_millis(50) })),
    ("consistent_hash", Policy::ConsistentHash { bounded_load_percent: None }),
    ("consistent_hash, bounded", Policy::ConsistentHash { bounded_load_percent: Some(125) }),
];

fn plan() -> Plan {
    plan_of(MEMBERS, Policy::RoundRobin)
}

fn plan_of(members: u32, policy: Policy) -> Plan {
    let rules =
        Rules { judge: Judge::Consecutive { failures: 1, passes: 1 }, initial: Initial::Healthy, ..Rules::default() };
    let member = |n: u32| {
        let address = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + n), 80));
        let key = Key { name: address.to_string(), address: Some(address), tls: false };
        Spec { key, weight: 1, split: 1, tier: 0, admin: Admin::Enabled, source: None, roll: None, fingerprint: 0 }
    };
    Plan {
        rules,
        observed: None,
        policy,
        budget_percent: 20,
        members: (0..members).map(member).collect(),
        limits: Limits::default(),
    }
}

fn pool(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool of 10,000");
    let audience: Arc<Audience> = Arc::default();
    let new = |plan: Plan| Pool::new("web", Duration::ZERO, plan, audience.clone());
    let (pass, fail) =
        (Sample::pass(Duration::from_millis(1)), Sample::fail(Reason::Refused, Duration::from_millis(1)));

    group.sample_size(10);
    group.bench_function("load", |b| b.iter_with_large_drop(|| new(plan())));
    let live = new(plan());
    group.bench_function("reload, unchanged", |b| b.iter(|| live.reshape(NOW, plan())));

    let first: MemberId = live.roster().members()[0].id();
    group.sample_size(50);
    group.bench_function("transition", |b| {
        let mut sick = false;
        b.iter(|| {
            sick = !sick;
            live.report(NOW, first, 0, if sick { fail.clone() } else { pass.clone() })
        });
    });
    group.bench_function("sample without a transition", |b| b.iter(|| live.report(NOW, first, 0, pass.clone())));

    let live = new(plan_of(MEMBERS, Policy::Fastest { sensitivity: Duration::from_millis(20) }));
    let mut sent = 0;
    let mut latency_moves = |now: Duration| {
        sent += 1;
        live.report(now, first, 0, Sample::pass(Duration::from_micros(sent)))
    };
    group.bench_function("fastest: latencies that move", |b| b.iter(|| latency_moves(NOW)));
    let mut now = NOW;
    group.bench_function("fastest: a roster for them, now and then", |b| {
        b.iter(|| {
            now += Duration::from_secs(1);
            latency_moves(now)
        });
    });
    group.finish();
}

fn leases(criterion: &mut Criterion) {
    for (name, policy) in POLICIES {
        for members in [10, MEMBERS] {
            let pool = Pool::new("web", Duration::ZERO, plan_of(members, policy.clone()), Arc::default());
            let tried = [3, 7].map(|index: usize| pool.roster().members()[index].id());
            let mut number = 0_u64;
            let mut lease = |tried: &[MemberId]| {
                // Another key each time.
                number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
                match pool.pick(black_box(tried), Some(&number.to_le_bytes())) {
                    Pick::Member(lease) => lease,
                    _ => unreachable!("everyone is healthy"),
                }
            };
            criterion.bench_function(&format!("lease_first/{name}/{members}"), |b| b.iter(|| lease(&[])));
            criterion.bench_function(&format!("lease_retry/{name}/{members}"), |b| b.iter(|| lease(&tried)));
        }
    }
}

criterion_group!(benches, pool, leases);
criterion_main!(benches);
