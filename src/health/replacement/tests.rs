//! Replacement in virtual time: what the rules say, and what must hold in every history.

mod model;

use std::cell::Cell;

use proptest::prelude::*;

use super::super::trial::{ms, rules};
use super::super::{Initial, Judge, Key, PoolHealth, Reason, Rules, Sample, Spec};
use super::*;

thread_local! {
    /// Taken so far.
    pub(super) static STEPS: Cell<u64> = const { Cell::new(0) };
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// A time of day.
const NOON: Duration = Duration::from_secs(1_800_000_000);

/// Pools that are probed once a minute, and who is replaced in them.
struct Ground {
    now: Duration,
    wall: Duration,
    pools: Vec<(Arc<str>, PoolHealth, Option<Rule>)>,
    ward: Ward,
    max_global: u32,
    next: Option<Duration>,
}

const RULE: Rule = Rule { after: HOUR, pace: MINUTE, limits: Limits { per_hour: 1, per_day: 3 } };

/// A pool: its name, machine and port of each member, and its rule.
type Described<'a> = (&'a str, &'a [(u8, u16)], Option<Rule>);

fn spec(machine: u8, port: u16) -> Spec {
    let name = format!("10.0.0.{machine}:{port}");
    let key = Key { address: name.parse().ok(), name, tls: false };
    Spec { key, weight: 1, split: 1, tier: 0, admin: Admin::Enabled, source: None, roll: None, fingerprint: 7 }
}

impl Ground {
    /// Pools of these members, machine and port each; all of them start healthy.
    fn of(pools: &[Described<'_>]) -> Ground {
        let judged = Rules { judge: Judge::Consecutive { failures: 10, passes: 1 }, ..rules() };
        let pool = |(name, members, rule): &Described<'_>| {
            let specs = members.iter().map(|(machine, port)| spec(*machine, *port)).collect();
            (Arc::from(*name), PoolHealth::new(Duration::ZERO, judged.clone(), specs), *rule)
        };
        let ward = Ward::new(Ledger::new(Duration::ZERO, NOON));
        let pools = pools.iter().map(pool).collect();
        Ground { now: Duration::ZERO, wall: NOON, pools, ward, max_global: 10, next: None }
    }

    /// One pool `web` of so many machines.
    fn web(machines: u8) -> Ground {
        let members: Vec<(u8, u16)> = (1..=machines).map(|machine| (machine, 80)).collect();
        Ground::of(&[("web", &members, Some(RULE))])
    }

    fn sample(&mut self, pool: usize, machine: u8, sample: Sample) {
        let (now, health) = (self.now, &mut self.pools[pool].1);
        let of_machine = |m: &&Member| m.spec().key.name.starts_with(&format!("10.0.0.{machine}:"));
        let ids: Vec<(MemberId, u64)> =
            health.members().iter().filter(of_machine).map(|m| (m.id(), m.spec().fingerprint)).collect();
        for (id, fingerprint) in ids {
            health.observe(now, id, fingerprint, sample.clone());
        }
    }

    fn patients(&self) -> Vec<Patient> {
        let of = |(name, health, rule): &(Arc<str>, PoolHealth, Option<Rule>)| {
            health.members().iter().filter_map(|member| Patient::of(name, member, *rule)).collect::<Vec<_>>()
        };
        self.pools.iter().flat_map(of).collect()
    }

    /// What is decided now, in words: `web/10.0.0.1:80 start`.
    fn look(&mut self) -> Vec<String> {
        let (turns, next) = self.ward.look(self.now, self.wall, &self.patients(), self.max_global);
        self.next = next;
        let name = |(pool, id): &Who| {
            let health = &self.pools.iter().find(|(name, ..)| name == pool).unwrap().1;
            let member = health.member(*id).map_or("gone", |member| &member.spec().key.name);
            format!("{pool}/{member}")
        };
        let words = |turn: &Turn| match turn {
            Turn::Start(order) => format!("{} start", name(&order.who)),
            Turn::Wait(who, wait) => format!("{} {}", name(who), wait.as_str()),
            Turn::Over(who) => format!("{} over", name(who)),
        };
        turns.iter().map(words).collect()
    }

    /// Minutes go by, with a probe of each member in each; `is_well` says of pool and machine how it ends. What is decided,
    /// with its minute.
    fn minutes(&mut self, minutes: u32, is_well: impl Fn(&str, u8) -> bool) -> Vec<String> {
        let mut said = Vec::new();
        for _ in 0..minutes {
            self.now += MINUTE;
            self.wall += MINUTE;
            for pool in 0..self.pools.len() {
                for machine in 1..=9 {
                    let well = is_well(&self.pools[pool].0.clone(), machine);
                    let sample = if well { Sample::pass(ms(1)) } else { Sample::fail(Reason::Refused, ms(1)) };
                    self.sample(pool, machine, sample);
                }
            }
            let minute = self.now.as_secs() / 60;
            said.extend(self.look().into_iter().map(|words| format!("{minute} {words}")));
        }
        said
    }

    fn admin(&mut self, pool: usize, member: usize, admin: Admin) {
        let (now, health) = (self.now, &mut self.pools[pool].1);
        let id = health.members()[member].id();
        health.administer(now, id, admin);
    }
}

/// Worked example 10 (health.md §11).
#[test]
fn one_an_hour_and_three_a_day_after_an_hour_without_a_pass() {
    let mut ground = Ground::web(5);
    let mut said = ground.minutes(10, |_, machine| machine != 1);
    said.extend(ground.minutes(49, |_, machine| machine > 2));
    assert_eq!(said, [""; 0], "not before the hour is over");
    said.extend(ground.minutes(11, |_, machine| machine > 2));
    // The second is due 10 minutes later, and waits for the rest of the hour.
    assert_eq!(said, ["60 web/10.0.0.1:80 start", "70 web/10.0.0.2:80 hour"]);
    let said = ground.minutes(60, |_, machine| machine != 2);
    assert_eq!(said, ["120 web/10.0.0.2:80 start"], "the first one is well again");
    let said = ground.minutes(100, |_, machine| !(3..=4).contains(&machine));
    assert_eq!(said, ["190 web/10.0.0.3:80 start", "190 web/10.0.0.4:80 day"], "the fourth within a day waits");
    let said = ground.minutes(24 * 60, |_, machine| machine != 4);
    assert_eq!(said[0], "1500 web/10.0.0.4:80 start", "24 hours after the first: {said:?}");
}

#[test]
fn when_everything_fails_the_oldest_comes_first_and_everybody_gets_a_turn() {
    let mut ground = Ground::web(3);
    ground.pools[0].2 = Some(Rule { limits: Limits { per_hour: 1, per_day: 9 }, ..RULE });
    ground.minutes(1, |_, machine| machine == 1);
    ground.minutes(1, |_, machine| machine == 2);
    let said: Vec<String> = ground.minutes(260, |_, _| false);
    let started: Vec<&String> = said.iter().filter(|words| words.ends_with("start")).collect();
    // The third one never passed after the start; then the first again, an hour after it was replaced.
    assert_eq!(
        started,
        [
            "60 web/10.0.0.3:80 start",
            "120 web/10.0.0.1:80 start",
            "180 web/10.0.0.2:80 start",
            "240 web/10.0.0.3:80 start"
        ]
    );
    let waits: Vec<&String> = said.iter().filter(|words| words.ends_with("hour")).collect();
    assert_eq!(waits.len(), 5, "each wait is told once: {waits:?}");
}

#[test]
fn a_pass_begins_the_hour_anew_and_ends_a_wait() {
    let mut ground = Ground::web(2);
    ground.pools[0].2 = Some(Rule { limits: Limits { per_hour: 0, per_day: 3 }, ..RULE });
    assert_eq!(ground.minutes(59, |_, machine| machine == 2), [""; 0]);
    ground.minutes(1, |_, _| true);
    assert_eq!(ground.minutes(59, |_, machine| machine == 2), [""; 0]);
    assert_eq!(ground.minutes(100, |_, machine| machine == 2), ["120 web/10.0.0.1:80 hour"]);
    assert_eq!(ground.minutes(1, |_, _| true), ["220 web/10.0.0.1:80 over"]);
}

#[test]
fn a_machine_is_replaced_only_when_it_fails_in_every_pool_that_probes_it_and_then_once() {
    let rule = Some(RULE);
    let members: &[(u8, u16)] = &[(1, 80), (2, 80)];
    let mut ground =
        Ground::of(&[("api", &[(1, 81), (3, 81)], rule), ("old", &[(1, 82)], None), ("web", members, rule)]);
    let said = ground.minutes(70, |pool, machine| machine != 1 || pool == "old");
    assert_eq!(said, ["60 api/10.0.0.1:81 shared", "60 web/10.0.0.1:80 shared"]);
    // There it fails too, by that pool's own judge: 10 in a row.
    let said = ground.minutes(20, |_, machine| machine != 1);
    assert_eq!(said, ["80 api/10.0.0.1:81 start", "80 web/10.0.0.1:80 over"]);
    // It counted for both: whoever else is due in either waits.
    let said = ground.minutes(70, |_, machine| machine == 1);
    assert_eq!(said, ["150 api/10.0.0.3:81 start", "150 web/10.0.0.2:80 start"], "an hour after their last pass");
    let pools = |ground: &Ground, pool: &str| ground.ward.ledger().used(Limit::Day, pool);
    assert_eq!((pools(&ground, "api"), pools(&ground, "web"), pools(&ground, "old")), (2, 2, 0));
    assert_eq!(ground.ward.ledger().used(Limit::Global, ""), 3, "once over all");
}

#[test]
fn neighbours_in_one_pool_are_members_by_themselves() {
    let mut ground = Ground::of(&[("web", &[(1, 80), (1, 81)], Some(RULE))]);
    ground.minutes(1, |_, _| true);
    for _ in 0..60 {
        ground.now += MINUTE;
        ground.wall += MINUTE;
        let (now, health) = (ground.now, &mut ground.pools[0].1);
        health.observe(now, MemberId(0), 7, Sample::fail(Reason::Refused, ms(1)));
        health.observe(now, MemberId(1), 7, Sample::pass(ms(1)));
    }
    assert_eq!(ground.look(), ["web/10.0.0.1:80 start"]);
}

#[test]
fn whoever_is_in_somebodys_hands_is_not_due_and_begins_anew_when_let_go() {
    for hand in [Admin::Draining, Admin::Disabled] {
        let mut ground = Ground::web(2);
        ground.minutes(30, |_, machine| machine == 2);
        ground.admin(0, 0, hand);
        assert_eq!(ground.minutes(60, |_, machine| machine == 2), [""; 0], "{hand:?}");
        ground.admin(0, 0, Admin::Enabled);
        assert_eq!(ground.minutes(60, |_, machine| machine == 2), ["150 web/10.0.0.1:80 start"], "{hand:?}");
    }
}

#[test]
fn who_was_not_probed_is_not_concluded_of() {
    let mut ground = Ground::web(1);
    ground.minutes(1, |_, _| false);
    ground.now += HOUR * 2;
    ground.wall += HOUR * 2;
    assert_eq!(ground.look(), [""; 0], "its last sample is two hours old");
    assert_eq!(ground.next, Some(ground.now + MINUTE));
    assert_eq!(ground.minutes(1, |_, _| false), ["122 web/10.0.0.1:80 start"]);
}

#[test]
fn one_that_never_passed_is_due_like_any_other() {
    let mut ground = Ground::web(2);
    let fresh = Rules { initial: Initial::Probe, ..ground.pools[0].1.rules().clone() };
    ground.pools[0].1 = PoolHealth::new(Duration::ZERO, fresh, vec![spec(1, 80), spec(2, 80)]);
    assert_eq!(ground.minutes(60, |_, machine| machine == 2), ["60 web/10.0.0.1:80 start"]);
}

#[test]
fn the_next_look_is_when_something_may_become_due() {
    let mut ground = Ground::web(2);
    ground.minutes(1, |_, _| true);
    assert_eq!(ground.next, Some(MINUTE + HOUR), "while all is well, an hour after the last pass");
    ground.minutes(60, |_, _| false);
    assert_eq!(ground.next, Some(ground.now + MINUTE), "one waits, and may pass");
    let mut free = Ground::of(&[("web", &[(1, 80)], None)]);
    free.minutes(70, |_, _| false);
    assert_eq!((free.next, free.ward.ledger().entries().len()), (None, 0), "nobody is replaced here");
}

#[test]
fn by_hand_the_limits_hold_and_nothing_else() {
    let mut ground = Ground::of(&[("api", &[(1, 81)], None), ("web", &[(1, 80), (2, 80)], Some(RULE))]);
    ground.minutes(1, |_, _| true);
    let web: Arc<str> = Arc::from("web");
    let ask = |ground: &mut Ground, id| {
        let patients = ground.patients();
        ground.ward.by_hand(ground.now, ground.wall, &patients, &(web.clone(), MemberId(id)), 10)
    };
    let Some(Answer::Start(order)) = ask(&mut ground, 0) else { panic!("refused") };
    assert_eq!((order.counts_for, order.shared_with), (vec![Arc::from("web")], vec![Arc::from("api")]));
    assert!(matches!(ask(&mut ground, 1), Some(Answer::Wait(Wait::Full(Full { limit: Limit::Hour, .. })))));
    assert_eq!(ask(&mut ground, 9), None);
}

#[test]
fn what_could_not_be_noted_down_is_not_done_and_told_once() {
    let mut ground = Ground::web(1);
    ground.minutes(59, |_, _| false);
    ground.now += MINUTE;
    for tells in [true, false] {
        let (turns, _) = ground.ward.look(ground.now, ground.wall, &ground.patients(), 10);
        let [Turn::Start(order)] = &turns[..] else { panic!("{turns:?}") };
        assert_eq!(ground.ward.take_back(order), tells);
        assert_eq!(ground.ward.ledger().entries().len(), 0);
    }
    assert_eq!(ground.look(), ["web/10.0.0.1:80 start"]);
}

/// A member that fails for an hour, and the order for it.
fn ordered(per_hour: u32) -> (Ground, Order) {
    let mut ground = Ground::of(&[("api", &[(1, 81)], None), ("web", &[(1, 80), (2, 80)], Some(RULE))]);
    ground.pools[1].2 = Some(Rule { limits: Limits { per_hour, per_day: 9 }, ..RULE });
    ground.minutes(59, |_, machine| machine != 1);
    ground.now += MINUTE;
    let (turns, _) = ground.ward.look(ground.now, ground.wall, &ground.patients(), 10);
    let [Turn::Start(order)] = &turns[..] else { panic!("{turns:?}") };
    let order = order.clone();
    (ground, order)
}

#[test]
fn an_order_that_has_not_begun_is_looked_at_again() {
    type Change = fn(&mut Ground);
    let limit = |ground: &mut Ground, per_hour| {
        ground.pools[1].2 = Some(Rule { limits: Limits { per_hour, per_day: 9 }, ..RULE });
    };
    let rows: [(&str, Change, Option<&str>); 9] = [
        ("nothing", |_| {}, None),
        ("it fails on", |ground| ground.sample(1, 1, Sample::fail(Reason::Refused, ms(1))), None),
        ("it has passed", |ground| ground.sample(1, 1, Sample::pass(ms(1))), Some("over")),
        ("it drains", |ground| ground.admin(1, 0, Admin::Draining), Some("over")),
        ("its machine is well elsewhere", |ground| ground.sample(0, 1, Sample::pass(ms(1))), Some("shared")),
        ("off", |ground| ground.pools[1].2 = None, Some("off")),
        ("its pool is gone", |ground| drop(ground.pools.remove(1)), Some("gone")),
        ("all pools together", |ground| ground.max_global = 0, Some("global")),
        ("nobody probed", |ground| ground.now += HOUR, Some("over")),
    ];
    for (what, change, expected) in rows {
        let (mut ground, order) = ordered(1);
        ground.now += MINUTE / 2;
        change(&mut ground);
        let patients = ground.patients();
        let against = ground.ward.against(ground.now, ground.wall, &patients, &order, ground.max_global);
        assert_eq!(against.as_ref().map(Against::as_str), expected, "{what}");
    }
    for (per_hour, expected) in [(0, Some("hour")), (1, None)] {
        let (mut ground, order) = ordered(2);
        limit(&mut ground, per_hour);
        let patients = ground.patients();
        let against = ground.ward.against(ground.now, ground.wall, &patients, &order, 10);
        assert_eq!(against.as_ref().map(Against::as_str), expected, "{per_hour} an hour");
    }
}

#[test]
fn an_order_that_is_given_up_does_not_count() {
    let (mut ground, order) = ordered(1);
    ground.ward.give_up(&order);
    assert_eq!(ground.ward.ledger().entries().len(), 0);
    assert_eq!(ground.look(), ["web/10.0.0.1:80 start"], "it is as due as before");
}

/// What may happen between two looks: how long it takes, how far the wall clock is off, who is well.
#[derive(Debug, Clone)]
struct Beat {
    minutes: u64,
    jump: i64,
    well: [bool; 6],
}

fn beats() -> impl Strategy<Value = Vec<Beat>> {
    let jump = prop_oneof![8 => Just(0_i64), 1 => -2_000..2_000_i64];
    let well = proptest::array::uniform6(proptest::bool::weighted(0.2));
    let beat = (1..40_u64, jump, well).prop_map(|(minutes, jump, well)| Beat { minutes, jump, well });
    proptest::collection::vec(beat, 1..120)
}

proptest! {
    /// A naive model: all that was ever started, counted anew for every window, by a clock that nobody sets.
    #[test]
    fn no_window_ever_holds_more_than_its_limit(
        beats in beats(), per_hour in 1..4_u32, per_day in 1..6_u32, max_global in 1..8_u32,
    ) {
        let limits = Limits { per_hour, per_day };
        let rule = Some(Rule { after: HOUR, pace: HOUR, limits });
        let mut ground = Ground::of(&[
            ("a", &[(1, 80), (2, 80), (3, 80)], rule),
            ("b", &[(3, 81), (4, 80), (5, 80)], rule),
        ]);
        ground.max_global = max_global;
        let mut started: Vec<(Duration, Order)> = Vec::new();
        for beat in &beats {
            ground.now += MINUTE * beat.minutes as u32;
            let wall = (ground.wall.as_secs() + beat.minutes * 60) as i64 + beat.jump * 60;
            ground.wall = Duration::from_secs(wall.unsigned_abs());
            for (index, well) in beat.well.iter().enumerate() {
                let sample = if *well { Sample::pass(ms(1)) } else { Sample::fail(Reason::Refused, ms(1)) };
                ground.sample(index / 3, [1, 2, 3, 3, 4, 5][index], sample);
            }
            let waited = ground.ward.waiting().clone();
            let (turns, _) = ground.ward.look(ground.now, ground.wall, &ground.patients(), max_global);
            let orders: Vec<&Order> =
                turns.iter().filter_map(|turn| if let Turn::Start(order) = turn { Some(order) } else { None }).collect();
            // The oldest first: nobody of the same pools alone who is older waits for a limit meanwhile.
            for order in &orders {
                for (who, wait) in ground.ward.waiting() {
                    let older = ground.patients().into_iter().find(|p| p.who == *who).unwrap();
                    let alike = order.shared_with.is_empty() && who.0 == order.who.0;
                    if alike && matches!(wait, Wait::Full(full) if *full.pool == *who.0) {
                        let since = ground.ward.since(&older);
                        let shares = ground.patients().iter().filter(|p| p.machine == older.machine).count() > 1;
                        prop_assert!(shares || since >= order.since, "{order:?} before {older:?}");
                    }
                }
                prop_assert!(order.since + HOUR <= ground.now, "too early: {order:?}");
            }
            // Told when it is another decision, and only then.
            for turn in &turns {
                if let Turn::Wait(who, wait) = turn {
                    prop_assert!(!waited.get(who).is_some_and(|before| before.is_like(wait)), "told twice: {turn:?}");
                }
            }
            started.extend(orders.into_iter().map(|order| (ground.now, order.clone())));
        }
        for (at, _) in &started {
            let within = |span: Duration, pool: Option<&str>| {
                let counted = started.iter().filter(|(when, _)| when <= at && *at - *when < span);
                counted.filter(|(_, order)| pool.is_none_or(|p| order.counts_for.iter().any(|of| **of == *p))).count()
            };
            for pool in ["a", "b"] {
                prop_assert!(within(HOUR, Some(pool)) <= per_hour as usize);
                prop_assert!(within(HOUR * 24, Some(pool)) <= per_day as usize);
            }
            prop_assert!(within(HOUR * 12, None) <= max_global as usize);
        }
    }

    /// With a wall clock that nobody sets, whoever is due and has room is replaced: nothing is held back for nothing.
    #[test]
    fn whatever_has_room_is_replaced(beats in beats(), per_hour in 1..4_u32) {
        let limits = Limits { per_hour, per_day: 1_000 };
        let members: Vec<(u8, u16)> = (1..=6).map(|machine| (machine, 80)).collect();
        let mut ground = Ground::of(&[("a", &members, Some(Rule { after: HOUR, pace: HOUR, limits }))]);
        let mut started: Vec<Duration> = Vec::new();
        for beat in &beats {
            ground.now += MINUTE * beat.minutes as u32;
            ground.wall += MINUTE * beat.minutes as u32;
            for (index, well) in beat.well.iter().enumerate() {
                let sample = if *well { Sample::pass(ms(1)) } else { Sample::fail(Reason::Refused, ms(1)) };
                ground.sample(0, index as u8 + 1, sample);
            }
            let before = started.iter().filter(|at| ground.now - **at < HOUR).count();
            let (turns, _) = ground.ward.look(ground.now, ground.wall, &ground.patients(), 1_000);
            let count = turns.iter().filter(|turn| matches!(turn, Turn::Start(_))).count();
            let due = count + ground.ward.waiting().len();
            prop_assert_eq!(count, due.min(per_hour as usize - before));
            started.extend(std::iter::repeat_n(ground.now, count));
        }
    }
}
