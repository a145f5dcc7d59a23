//! What a pick costs, and a new balancer, for each policy at 10 and at 10,000 members.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pulsegate::balance::{Balancer, Candidate, Form, Memory, Peak, Policy, Ring, Rings, Seat};

const POLICIES: [(&str, Policy); 5] = [
    ("round_robin", Policy::RoundRobin),
    ("least_requests", Policy::LeastRequests { choices: 2 }),
    ("random", Policy::Random),
    ("fastest", Policy::Fastest { sensitivity: Duration::from_millis(50) }),
    ("peak_ewma", Policy::PeakEwma(MEMORY)),
];

const MEMORY: Memory = Memory { decay: Duration::from_secs(10), sensitivity: Duration::from_millis(50) };

type Weight = fn(usize) -> u32;

/// How weights are laid over the members. `few` has exact schedules, the longest that are written; `any` has none.
const WEIGHTS: [(&str, Weight); 3] = [
    ("equal", |_| 1),
    ("few", |index| 1 + (scramble(index as u64) % 10) as u32),
    ("any", |index| 1 + (scramble(index as u64) % 1_000) as u32),
];

fn main_benches(criterion: &mut Criterion) {
    for (policy_name, policy) in POLICIES {
        for (weights, weight) in WEIGHTS {
            for members in [10, 10_000] {
                let name = format!("{policy_name}/{weights}/{members}");
                bench_build(criterion, &name, &policy, candidates(members, weight));
                bench_pick(criterion, &name, &Balancer::new(&policy, candidates(members, weight)));
            }
        }
    }
}

/// The ring of a set of members, and picks by a key with all eligible and with every second walked past.
fn hash_benches(criterion: &mut Criterion) {
    for members in [10, 10_000] {
        let seat = |index: usize| Seat {
            index,
            address: SocketAddr::from(([10, 0, (index >> 8) as u8, index as u8], 8080)),
            weight: 1,
            split: 1,
            tier: 0,
            source: None,
        };
        let seats: Vec<Seat> = (0..members).map(seat).collect();
        criterion.bench_function(&format!("build/rings/{members}"), |bencher| {
            bencher.iter_batched(|| seats.clone(), Rings::new, BatchSize::SmallInput);
        });
        let rings = Rings::new(seats);
        for (kind, share) in [("all", 1), ("half", 2)] {
            let eligible = candidates(members, |_| 1).into_iter().filter(|candidate| candidate.index % share == 0);
            let Some(ring) = rings.of(0) else { continue };
            let balancer = Balancer::with_ring(ring.clone(), None, eligible.collect());
            let mut draw = 1;
            criterion.bench_function(&format!("pick_for/consistent_hash/{kind}/{members}"), |bencher| {
                bencher.iter(|| {
                    draw = scramble(draw);
                    balancer.pick_for(&draw.to_le_bytes(), |_| 0, || 0, black_box(&[]))
                });
            });
        }
        if let Some(ring) = rings.of(0) {
            bench_bounded(criterion, ring, members);
        }
    }
}

/// Picks by a key where nobody may carry more than a quarter over the average.
fn bench_bounded(criterion: &mut Criterion, ring: &Arc<Ring>, members: usize) {
    let balancer = Balancer::with_ring(ring.clone(), Some(125), candidates(members, |_| 1));
    let load = |index: usize| (scramble(index as u64) % 5) as u32;
    let total = (0..members).map(|index| u64::from(load(index))).sum();
    let mut draw = 1;
    criterion.bench_function(&format!("pick_for/consistent_hash/bounded/{members}"), |bencher| {
        bencher.iter(|| {
            draw = scramble(draw);
            balancer.pick_for(&draw.to_le_bytes(), load, || total, black_box(&[]))
        });
    });
}

fn bench_build(criterion: &mut Criterion, name: &str, policy: &Policy, candidates: Vec<Candidate>) {
    criterion.bench_function(&format!("build/{name}"), |bencher| {
        let build = |candidates| Balancer::new(policy, candidates);
        bencher.iter_batched(|| candidates.clone(), build, BatchSize::SmallInput);
    });
}

fn bench_pick(criterion: &mut Criterion, name: &str, balancer: &Balancer) {
    let turn = AtomicUsize::new(scramble(3) as usize);
    let loads: Vec<u32> = (0..balancer.candidates().len()).map(|index| (scramble(index as u64) % 5) as u32).collect();
    // As a member keeps it, and some time later, so that reading it costs what it does in a pool.
    let peak =
        |index: u64| Peak::NONE.answered(Duration::ZERO, Duration::from_micros(scramble(index) % 200_000), MEMORY);
    let peaks: Vec<u64> = (0..loads.len() as u64).map(|index| peak(index).to_bits()).collect();
    let as_of = MEMORY.as_of(Duration::from_secs(1));
    let form = |index: usize| Form::of(Peak::from_bits(peaks[index]), Some(3_000.0), 0.0, as_of);
    for (kind, tried) in [("first", &[][..]), ("retry", &[3, 7])] {
        let mut draw = 1;
        criterion.bench_function(&format!("pick_{kind}/{name}"), |bencher| {
            bencher.iter(|| {
                draw = scramble(draw);
                match balancer.goes_by_form() {
                    true => balancer.pick_by_form(&turn, draw, form, black_box(tried)),
                    false => balancer.pick(&turn, draw, |index| loads[index], black_box(tried)),
                }
            });
        });
    }
}

/// One in ten is kept; latencies are spread over 0 to 200 ms.
fn candidates(members: usize, weight: Weight) -> Vec<Candidate> {
    let candidate = |index| Candidate {
        index,
        weight: weight(index),
        split: 1,
        kept: index % 10 == 9,
        latency: Some(Duration::from_micros(scramble(!(index as u64)) % 200_000)),
    };
    (0..members).map(candidate).collect()
}

/// SplitMix64.
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

criterion_group!(benches, main_benches, hash_benches);
criterion_main!(benches);
