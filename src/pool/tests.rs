//! Random histories of a pool, and what requests see of them.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use proptest::prelude::*;

use super::board::REST_PER_MEMBER;
use super::*;
use crate::health::{self, Initial, Judge, Key, Mode, OnAllUnhealthy, Reason, Rules, Spec, Standing};
use crate::telemetry::EventLog;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn spec(number: u8) -> Spec {
    let name = format!("10.0.0.{number}:80");
    let key = Key { address: name.parse().ok(), name, tls: false };
    Spec { key, weight: 1, split: 1, tier: 0, admin: Admin::Enabled, source: None, roll: None, fingerprint: 7 }
}

/// `count` members, healthy from the start; one sample is enough, half may be ejected.
pub(super) fn plan(count: u8) -> Plan {
    let rules =
        Rules { judge: Judge::Consecutive { failures: 1, passes: 1 }, initial: Initial::Healthy, ..Rules::default() };
    Plan {
        rules,
        observed: None,
        policy: Policy::RoundRobin,
        budget_percent: 20,
        members: (1..=count).map(spec).collect(),
        limits: Limits::default(),
    }
}

fn unproven(plan: Plan) -> Plan {
    Plan { rules: Rules { initial: Initial::Probe, ..plan.rules }, ..plan }
}

fn fastest(plan: Plan) -> Plan {
    Plan { policy: Policy::Fastest { sensitivity: Duration::ZERO }, ..plan }
}

pub(super) fn pool(plan: Plan) -> Pool {
    Pool::new("web", Duration::ZERO, plan, Arc::default())
}

pub(super) fn ids(pool: &Pool) -> Vec<MemberId> {
    pool.roster().members().iter().map(|member| member.id()).collect()
}

fn pass(total_ms: u64) -> Sample {
    Sample::pass(ms(total_ms))
}

fn fail() -> Sample {
    Sample::fail(Reason::Status, ms(1))
}

pub(super) fn report(pool: &Pool, now: Duration, member: MemberId, sample: Sample) {
    pool.report(now, member, 7, sample);
}

pub(super) fn picked(pool: &Pool) -> MemberId {
    match pool.pick(&[], None) {
        Pick::Member(lease) => lease.member().id(),
        _ => panic!("nobody was picked"),
    }
}

#[test]
fn a_lease_gives_its_seat_back() {
    let pool = pool(plan(1));
    let member = pool.roster().members()[0].clone();
    let (Pick::Member(one), Pick::Member(other)) = (pool.pick(&[], None), pool.pick(&[], None)) else {
        panic!("a member")
    };
    assert_eq!(member.in_flight(), 2);
    drop(one);
    assert_eq!(member.in_flight(), 1);
    // A reload in between makes no difference: the member is the same one.
    pool.reshape(ms(1), plan(2));
    drop(other);
    assert_eq!(pool.roster().members()[0].in_flight(), 0);
}

#[test]
fn a_tunnel_counts_until_its_seat_is_given_back_and_hears_of_its_members_end() {
    let pool = pool(plan(2));
    let Pick::Member(mut lease) = pool.pick(&[], None) else { panic!("a member") };
    let member = lease.member().clone();
    lease.becomes_tunnel();
    lease.becomes_tunnel();
    assert_eq!((member.in_flight(), member.tunnels()), (1, 1));
    let mut removed = pin!(member.removed());
    let context = &mut Context::from_waker(Waker::noop());
    pool.reshape(ms(1), plan(2));
    assert!(removed.as_mut().poll(context).is_pending(), "a reload that keeps it");
    pool.reshape(ms(2), plan(0));
    assert!(removed.as_mut().poll(context).is_ready());
    assert!(pin!(member.removed()).poll(context).is_ready(), "also for who asks later");
    drop(lease);
    assert_eq!((member.in_flight(), member.tunnels()), (0, 0));
}

#[test]
fn a_bound_client_may_go_to_who_serves_and_for_a_while_to_who_drains() {
    let pool = pool(Plan { rules: Rules { drain: ms(100), ..plan(0).rules }, ..plan(3) });
    let ids = ids(&pool);
    pool.administer(ms(1), ids[0], Admin::Draining);
    pool.administer(ms(1), ids[1], Admin::Disabled);
    let bound = |at| ids.iter().map(|id| pool.roster().takes_bound(ms(at), *id)).collect::<Vec<_>>();
    assert_eq!((bound(100), bound(101)), (vec![true, false, true], vec![false, false, true]));
    assert!(!pool.roster().takes_bound(ms(1), MemberId(u64::MAX)), "one that has left");
    pool.report(ms(2), ids[2], 7, fail());
    assert_eq!((picked(&pool), bound(50)), (ids[2], vec![true, false, true]), "nothing new goes there, in no fallback");
}

/// A request that lasted pinned the whole roster it was picked from.
#[test]
fn a_lease_keeps_no_roster() {
    let pool = pool(plan(2));
    let before = Arc::downgrade(&pool.roster());
    let Pick::Member(lease) = pool.pick(&[], None) else { panic!("a member") };
    pool.report(ms(1), ids(&pool)[0], 7, fail());
    assert!(before.upgrade().is_none(), "a lease holds the roster before");
    assert_eq!((lease.headline().mode, lease.headline().in_rotation), (Mode::Normal, 2), "as it was when picked");
}

#[test]
fn the_first_pass_wakes_those_who_wait() {
    let pool = pool(unproven(plan(3)));
    let _seat = pool.waiter().expect("a seat");
    let mut changed = pin!(pool.changed());
    changed.as_mut().enable();
    assert!(matches!(pool.pick(&[], None), Pick::Wait));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(changed.as_mut().poll(context).is_pending());
    let second = ids(&pool)[1];
    pool.report(ms(5), second, 7, pass(5));
    assert!(changed.as_mut().poll(context).is_ready(), "the waiter sleeps on");
    assert_eq!(picked(&pool), second);
}

#[test]
fn the_deadline_of_a_cold_start_wakes_those_who_wait() {
    let pool = pool(unproven(plan(2)));
    let mut changed = pin!(pool.changed());
    changed.as_mut().enable();
    let deadline = pool.next_deadline().expect("it waits");
    let context = &mut Context::from_waker(Waker::noop());
    pool.advance(deadline - ms(1));
    assert!(changed.as_mut().poll(context).is_pending());
    pool.advance(deadline);
    assert!(changed.as_mut().poll(context).is_ready(), "the waiter sleeps on");
    assert!(pool.next_deadline().is_none() && matches!(pool.pick(&[], None), Pick::Member(_)));
}

#[test]
fn a_reload_reshapes_the_budget() {
    let with = |budget_percent| Plan { budget_percent, ..plan(1) };
    let pool = pool(with(0));
    pool.budget().earn();
    assert!(!pool.budget().spend());
    pool.reshape(ms(1), with(50));
    let retries = (0..100).filter(|_| {
        pool.budget().earn();
        pool.budget().spend()
    });
    assert_eq!(retries.count(), 50);
    pool.reshape(ms(2), with(0));
    (0..100).for_each(|_| pool.budget().earn());
    assert!(!pool.budget().spend());
}

#[test]
fn fastest_goes_by_the_latest_probe() {
    let judge = Judge::Consecutive { failures: 1, passes: 1 };
    let rules = Rules { judge, initial: Initial::Probe, ..plan(0).rules };
    let pool = pool(fastest(Plan { rules, ..plan(2) }));
    let (one, other) = (ids(&pool)[0], ids(&pool)[1]);
    for (member, total_ms, fastest) in [(one, 50, one), (other, 40, other), (one, 30, one), (other, 20, other)] {
        // All in one instant, and until the latency (a median) is what was sent last.
        (0..5).for_each(|_| report(&pool, ms(1), member, pass(total_ms)));
        assert!((0..4).all(|_| picked(&pool) == fastest), "after {total_ms} ms of {member:?}");
    }
}

/// Each probe of a large pool made a new roster.
#[test]
fn a_large_pool_follows_latency_now_and_then() {
    let pool = pool(fastest(plan(200)));
    let members = ids(&pool);
    let rest = REST_PER_MEMBER * 200;
    let inconclusive = || Sample { outcome: health::Outcome::Inconclusive, ..pass(1) };
    members.iter().zip(50..).for_each(|(member, total_ms)| report(&pool, ms(0), *member, pass(total_ms)));
    pool.report(rest, members[0], 7, inconclusive());
    assert_eq!(picked(&pool), members[0]);
    let roster = pool.roster();
    for member in members.iter().rev() {
        (0..5).for_each(|_| report(&pool, rest * 3 / 2, *member, pass(10 + 300 - member.0)));
    }
    assert!(Arc::ptr_eq(&roster, &pool.roster()), "a roster for every probe");
    pool.report(rest * 2, members[0], 7, inconclusive());
    assert_eq!(picked(&pool), members[199], "what moved meanwhile is seen with the next sample, whoever's it is");
    let roster = pool.roster();
    pool.report(rest * 9, members[0], 7, inconclusive());
    assert!(Arc::ptr_eq(&roster, &pool.roster()), "a roster though nothing had moved");
    // Who may be picked at all is not put off.
    pool.report(rest * 9, members[199], 7, fail());
    assert_eq!(picked(&pool), members[198]);
    pool.report(rest * 9, members[198], 7, fail());
    assert_eq!(picked(&pool), members[197]);
}

#[derive(Debug, Clone)]
enum Act {
    /// Of the nth member.
    Sample(usize, Sample),
    Admin(usize, Admin),
    Advance,
    Reload(Box<Plan>),
}

fn admins() -> impl Strategy<Value = Admin> {
    prop_oneof![4 => Just(Admin::Enabled), 1 => Just(Admin::Draining), 1 => Just(Admin::Disabled)]
}

fn samples() -> impl Strategy<Value = Sample> {
    prop_oneof![(1_u64..100).prop_map(pass), Just(fail())]
}

prop_compose! {
    fn any_spec(number: u8)(
        weight in prop::sample::select(vec![1, 1, 3, 0]),
        tier in prop::sample::select(vec![0_u8, 0, 1]),
        admin in admins(),
        is_resolved in prop::bool::weighted(0.9),
    ) -> Spec {
        let plain = spec(number);
        let address = plain.key.address.filter(|_| is_resolved);
        Spec { key: Key { address, ..plain.key }, weight, tier, admin, ..plain }
    }
}

prop_compose! {
    fn any_plan()(
        specs in (1..=6).map(any_spec).collect::<Vec<_>>(),
        count in 0_usize..7,
        policy in prop::sample::select(vec![
            Policy::RoundRobin,
            Policy::Random,
            Policy::LeastRequests { choices: 2 },
            Policy::Fastest { sensitivity: ms(20) },
        ]),
        initial in prop::sample::select(vec![Initial::Probe, Initial::Healthy, Initial::Unhealthy]),
        percent in prop::sample::select(vec![0, 34, 50, 100]),
        fails in any::<bool>(),
    ) -> Plan {
        let on_all_unhealthy = if fails { OnAllUnhealthy::Fail } else { OnAllUnhealthy::RoundRobin };
        let rules = Rules { initial, max_unhealthy_percent: percent, on_all_unhealthy, ..plan(0).rules };
        Plan { rules, observed: None, policy, budget_percent: 20, members: specs.into_iter().take(count).collect(), limits: Limits::default() }
    }
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let act = prop_oneof![
        40 => (0_usize..6, samples()).prop_map(|(member, sample)| Act::Sample(member, sample)),
        6 => (0_usize..6, admins()).prop_map(|(member, admin)| Act::Admin(member, admin)),
        2 => Just(Act::Advance),
        2 => any_plan().prop_map(|plan| Act::Reload(Box::new(plan))),
    ];
    prop::collection::vec((prop::sample::select(vec![0, 1, 400]), act), 1..60)
}

fn play(pool: &Pool, now: Duration, act: Act) {
    let nth = |n: usize| ids(pool).get(n).copied();
    match act {
        Act::Sample(n, sample) => nth(n).into_iter().for_each(|id| report(pool, now, id, sample.clone())),
        Act::Admin(n, admin) => nth(n).into_iter().for_each(|id| assert!(pool.administer(now, id, admin))),
        Act::Advance => pool.advance(now),
        Act::Reload(plan) => pool.reshape(now, *plan),
    }
}

/// Picks until everyone has been tried: each once, each fit.
fn only_the_fit_are_picked(pool: &Pool) {
    let mut tried = Vec::new();
    let mut leases = Vec::new();
    let end = loop {
        match pool.pick(&tried, None) {
            Pick::Member(lease) => {
                assert_fit(pool, &lease);
                assert!(!tried.contains(&lease.member().id()), "picked again: {lease:?} after {tried:?}");
                tried.push(lease.member().id());
                leases.push(lease);
            }
            end => break end,
        }
    };
    let (mode, fails, in_rotation) = pool.read(|health, _| {
        let picture = health.picture();
        (picture.mode, health.rules().on_all_unhealthy == OnAllUnhealthy::Fail, picture.in_rotation)
    });
    let as_it_should = match end {
        Pick::Wait => mode == Mode::Waiting,
        Pick::AllUnhealthy => mode == Mode::Down && fails,
        Pick::Nobody => !matches!(mode, Mode::Waiting),
        Pick::Member(_) | Pick::Full => false,
    };
    assert!(as_it_should && leases.len() == in_rotation, "{} of {in_rotation} were picked in {mode:?}", leases.len());
    let in_flight = || pool.roster().members().iter().map(|member| member.in_flight()).sum::<u32>();
    assert_eq!(in_flight() as usize, leases.len());
    drop(leases);
    assert_eq!(in_flight(), 0);
}

fn assert_fit(pool: &Pool, lease: &Lease) {
    pool.read(|health, _| {
        let member = health.member(lease.member().id()).expect("it is in the pool");
        let standing = health.picture().standings[health.index_of(member.id()).expect("it is")];
        assert_eq!((standing, health.picture().mode), (lease.standing(), lease.headline().mode));
        let wanted =
            member.admin() == Admin::Enabled && member.spec().weight > 0 && member.spec().key.address.is_some();
        assert!(wanted, "not wanted: {member:?}");
        let fit = match lease.headline().mode {
            Mode::Fallback => standing == Standing::Fallback,
            _ => member.proven() && matches!(standing, Standing::Healthy | Standing::Kept),
        };
        assert!(fit, "{standing:?} in {:?}: {member:?}", lease.headline());
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn only_the_fit_are_picked_at_every_instant(plan in any_plan(), acts in acts()) {
        let pool = pool(plan);
        only_the_fit_are_picked(&pool);
        let mut now = Duration::ZERO;
        for (after, act) in acts {
            now += ms(after);
            play(&pool, now, act);
            only_the_fit_are_picked(&pool);
        }
    }
}

#[test]
fn a_weight_that_becomes_zero_is_told_like_an_order_to_drain() {
    let events = Arc::new(EventLog::default());
    let member = |weight: u32| Spec { weight, ..spec(1) };
    let plan = |weight: u32| Plan { members: vec![member(weight), spec(2)], ..plan(2) };
    let pool = Pool::new("web", ms(0), plan(1), Arc::new(Audience::of(events.clone())));
    let told = || {
        let last = events.since(0, 100);
        last.iter()
            .filter(|e| e.member.is_some())
            .map(|e| format!("{} -> {}", e.from.as_deref().unwrap_or("-"), e.to.as_deref().unwrap_or("-")))
            .collect::<Vec<_>>()
    };
    pool.reshape(ms(1), plan(0));
    assert_eq!(told(), ["enabled -> draining"]);
    pool.reshape(ms(2), plan(0));
    pool.reshape(ms(3), plan(3));
    assert_eq!(told(), ["enabled -> draining", "draining -> enabled"]);
}

/// Requests on all who may be picked, added up.
fn on_candidates(roster: &Roster) -> u64 {
    let may = |index: &usize| matches!(roster.standing(*index), Standing::Healthy | Standing::Kept);
    (0..roster.members().len()).filter(may).map(|index| u64::from(roster.members()[index].in_flight())).sum()
}

#[test]
fn what_all_candidates_carry_is_known_whatever_happens() {
    let mut random = fastrand::Rng::with_seed(7);
    let policy = |percent| Policy::ConsistentHash { bounded_load_percent: percent };
    let pool = pool(Plan { policy: policy(Some(150)), ..plan(6) });
    let (mut leases, mut most) = (Vec::new(), 0);
    let mut bounded = true;
    for step in 0..5_000 {
        let members = pool.roster().members().to_vec();
        match random.u8(..100) {
            0..55 => match pool.pick(&[], Some(&random.u64(..).to_le_bytes())) {
                Pick::Member(lease) => leases.push(lease),
                _ => panic!("there is room"),
            },
            55..90 if !leases.is_empty() => drop(leases.swap_remove(random.usize(..leases.len()))),
            90..95 => report(&pool, ms(step), random.choice(&members).expect("one").id(), fail()),
            95..98 => members.iter().for_each(|member| report(&pool, ms(step), member.id(), pass(1))),
            // Some leave with all they carry, and some of those come back; now and then nobody asks.
            98.. => {
                bounded = random.u8(..4) > 0;
                let policy = policy(bounded.then_some(150));
                pool.reshape(ms(step), Plan { policy, ..plan(random.u8(2..8)) });
            }
            _ => {}
        }
        let roster = pool.roster();
        if bounded && roster.mode() != Mode::Fallback {
            assert_eq!(roster.in_flight(), on_candidates(&roster), "after step {step}");
            most = most.max(roster.in_flight());
        }
    }
    assert!(most > 20, "{most}");
    leases.clear();
    pool.reshape(ms(6_000), Plan { policy: policy(Some(150)), ..plan(3) });
    assert_eq!(pool.roster().in_flight(), 0);
}

#[test]
fn a_retry_finds_its_members_in_whatever_order_they_are() {
    let pool = pool(plan(4));
    let [first, second, third, fourth] = ids(&pool)[..] else { panic!("four") };
    let mut turned = plan(5);
    turned.members.reverse();
    pool.reshape(ms(1), turned);
    let newcomer = ids(&pool)[0];
    for left in [first, second, third, fourth, newcomer] {
        let tried: Vec<MemberId> = ids(&pool).into_iter().filter(|id| *id != left).collect();
        let Pick::Member(lease) = pool.pick(&tried, None) else { panic!("one is left") };
        assert_eq!(lease.member().id(), left);
    }
    assert!(matches!(pool.pick(&ids(&pool), None), Pick::Nobody));
}
