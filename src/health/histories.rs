//! Random pools and what happens to them, for `properties`.

use proptest::prelude::*;

use super::trial::{ms, spec};
use super::{
    Admin, Aggregate, Broken, Charge, Eject, Failure, Gates, Initial, Judge, Key, OnAllUnhealthy, Outcome, Reason,
    Rules, Sample, Spec,
};

/// One thing that happens, `after` ms from the one before.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) after: u64,
    pub(super) act: Act,
}

#[derive(Debug, Clone)]
pub(super) enum Act {
    /// Of the nth member (modulo how many there are).
    Sample(usize, Sample),
    /// As a sample, of a probe that is no longer the member's.
    Late(usize, Sample),
    Admin(usize, Admin),
    /// Traffic charges the nth member.
    Charge(usize, Charge),
    /// A request to the nth member has succeeded.
    Vouch(usize),
    Advance,
    Reload(Rules, Vec<Spec>),
    /// A reload that changes nothing.
    SameAgain,
}

fn judges() -> impl Strategy<Value = Judge> {
    prop_oneof![
        (1_u32..4, 1_u32..4).prop_map(|(failures, passes)| Judge::Consecutive { failures, passes }),
        (1_u32..7, 1_u32..7).prop_map(|(a, b)| Judge::Window { size: a.max(b), required: a.min(b) }),
        Just(Judge::Window { size: 64, required: 63 }),
    ]
}

prop_compose! {
    pub(super) fn any_rules()(
        judge in judges(),
        initial in prop::sample::select(vec![Initial::Probe, Initial::Healthy, Initial::Unhealthy]),
        initial_wait in prop::sample::select(vec![0, 50, 1_000]),
        percent in prop::sample::select(vec![0, 10, 33, 34, 50, 67, 99, 100]),
        min_ejected in 0_u8..2,
        fails in prop::bool::weighted(0.25),
        tier_min in prop::option::of(0_u8..101),
        aggregate in prop::option::of((0_u8..101, 1_u32..5)),
        max_latency in prop::option::weighted(0.3, Just(ms(100))),
        ratio in prop::option::weighted(0.5, Just(3.0)),
        slow_start in prop::sample::select(vec![0, 100, 1_000]),
        drain in prop::sample::select(vec![0, 50, 1_000]),
        eject in prop::option::weighted(0.6, (1_u32..5, prop::bool::ANY)),
        probed in prop::bool::weighted(0.9),
    ) -> Rules {
        Rules {
            judge,
            initial,
            initial_wait: ms(initial_wait),
            max_unhealthy_percent: percent,
            min_ejected,
            on_all_unhealthy: if fails { OnAllUnhealthy::Fail } else { OnAllUnhealthy::RoundRobin },
            tier_min_healthy_percent: tier_min,
            aggregate: aggregate
                .map(|(min_healthy_percent, min_healthy)| Aggregate { min_healthy_percent, min_healthy }),
            gates: Gates { max_latency, max_latency_ratio: ratio, ..Gates::default() },
            slow_start: ms(slow_start),
            drain: ms(drain),
            eject: eject.map(|(consecutive, probe_clears)| Eject { consecutive, base: ms(30), max: ms(100), probe_clears, ..Eject::default() }),
            probed,
            memory: std::time::Duration::from_secs(1),
            rolls: Vec::new(),
        }
    }
}

fn admins() -> impl Strategy<Value = Admin> {
    prop_oneof![4 => Just(Admin::Enabled), 1 => Just(Admin::Draining), 1 => Just(Admin::Disabled)]
}

prop_compose! {
    fn any_spec(number: usize)(
        weight in prop::sample::select(vec![1, 1, 1, 5, 0]),
        tier in prop::sample::select(vec![0_u8, 0, 0, 1, 4]),
        admin in admins(),
        fingerprint in prop::sample::select(vec![7, 7, 7, 8]),
        is_resolved in prop::bool::weighted(0.9),
    ) -> Spec {
        let plain = spec(number);
        let address = plain.key.address.filter(|_| is_resolved);
        let source = (number > 3).then(|| if number < 6 { "one".into() } else { "other".into() });
        Spec { key: Key { address, ..plain.key }, weight, tier, admin, source, fingerprint, ..plain }
    }
}

/// Some of eight members, in any order.
pub(super) fn any_specs() -> impl Strategy<Value = Vec<Spec>> {
    let all: Vec<_> = (1..=8).map(any_spec).collect();
    (all, 0_usize..9).prop_flat_map(|(specs, count)| prop::sample::subsequence(specs, count).prop_shuffle())
}

fn samples() -> impl Strategy<Value = Sample> {
    let reasons = vec![Reason::Refused, Reason::Timeout, Reason::Status, Reason::Body, Reason::Slow];
    prop_oneof![
        5 => (1_u64..400).prop_map(|total| Sample::pass(ms(total))),
        4 => prop::sample::select(reasons).prop_map(|reason| Sample::fail(reason, ms(1))),
        1 => Just(Sample { outcome: Outcome::Inconclusive, ..Sample::pass(ms(1)) }),
    ]
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let act = prop_oneof![
        40 => (0_usize..8, samples()).prop_map(|(member, sample)| Act::Sample(member, sample)),
        2 => (0_usize..8, samples()).prop_map(|(member, sample)| Act::Late(member, sample)),
        4 => (0_usize..8, admins()).prop_map(|(member, admin)| Act::Admin(member, admin)),
        10 => (0_usize..8, prop::sample::select(vec![Reason::Reset, Reason::Status])).prop_map(|(member, reason)| {
            Act::Charge(member, Charge { last: Failure { reason, status: None }, by: Broken::InARow(5) })
        }),
        3 => (0_usize..8).prop_map(Act::Vouch),
        4 => Just(Act::Advance),
        2 => (any_rules(), any_specs()).prop_map(|(rules, specs)| Act::Reload(rules, specs)),
        1 => Just(Act::SameAgain),
    ];
    let step = (prop::sample::select(vec![0, 1, 20, 400]), act).prop_map(|(after, act)| Step { after, act });
    prop::collection::vec(step, 1..120)
}
