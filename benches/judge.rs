//! What one probe's result costs the heart, for each judge at 10 and at 10,000 members: one that changes nothing, and one
//! that makes a member sick or well again, with the standings of all others.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use pulsegate::health::{Admin, Initial, Judge, Key, MemberId, PoolHealth, Reason, Rules, Sample, Spec};

const JUDGES: [(&str, Judge); 3] = [
    ("window of 5", Judge::Window { size: 5, required: 3 }),
    ("window of 64", Judge::Window { size: 64, required: 33 }),
    ("consecutive", Judge::Consecutive { failures: 3, passes: 1 }),
];

const TOOK: Duration = Duration::from_millis(1);

fn main_benches(criterion: &mut Criterion) {
    for members in [10, 10_000] {
        for (name, judge) in JUDGES {
            let mut group = criterion.benchmark_group(format!("judge/{name}/{members}"));
            let mut pool = Observed::new(judge, members);
            group.bench_function("pass", |bencher| bencher.iter(|| pool.next(Sample::pass(TOOK))));
            // Every fourth result is a fail: evidence against it that is never enough.
            let mut count = 0_u32;
            group.bench_function("mixed", |bencher| {
                bencher.iter(|| {
                    count = count.wrapping_add(1);
                    let fails = count.is_multiple_of(4);
                    pool.of_first(if fails { Sample::fail(Reason::Refused, TOOK) } else { Sample::pass(TOOK) })
                });
            });
        }
        let mut group = criterion.benchmark_group(format!("judge/transition/{members}"));
        let mut pool = Observed::new(Judge::Consecutive { failures: 1, passes: 1 }, members);
        let mut is_sick = false;
        group.bench_function("one member", |bencher| {
            bencher.iter(|| {
                is_sick = !is_sick;
                let changes =
                    pool.of_first(if is_sick { Sample::fail(Reason::Refused, TOOK) } else { Sample::pass(TOOK) });
                assert_ne!(changes, 0, "the verdict is another now");
            });
        });
    }
}

/// A pool whose members report in turn.
struct Observed {
    health: PoolHealth,
    ids: Vec<MemberId>,
    turn: usize,
    now: Duration,
}

impl Observed {
    fn new(judge: Judge, members: u32) -> Observed {
        let rules = Rules { judge, initial: Initial::Healthy, initial_wait: Duration::ZERO, ..Rules::default() };
        let health = PoolHealth::new(Duration::ZERO, rules, (0..members).map(spec).collect());
        let ids = health.members().iter().map(|member| member.id()).collect();
        Observed { health, ids, turn: 0, now: Duration::ZERO }
    }

    /// The next member in turn has a result: how much it changed.
    fn next(&mut self, sample: Sample) -> usize {
        self.turn = (self.turn + 1) % self.ids.len();
        self.observe(self.turn, sample)
    }

    fn of_first(&mut self, sample: Sample) -> usize {
        self.observe(0, sample)
    }

    fn observe(&mut self, index: usize, sample: Sample) -> usize {
        self.now += Duration::from_millis(1);
        self.health.observe(self.now, self.ids[index], 0, black_box(sample)).len()
    }
}

fn spec(number: u32) -> Spec {
    let address = SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + number), 80));
    let key = Key { name: address.to_string(), address: Some(address), tls: false };
    Spec { key, weight: 1, split: 1, tier: 0, admin: Admin::Enabled, source: None, roll: None, fingerprint: 0 }
}

criterion_group!(benches, main_benches);
criterion_main!(benches);
