//! Decisions as they were first written: each of a machine's members looks at all others there, and each limit at all entries.
//! They are plain, and take far too long where a machine serves hundreds of pools.

use super::super::ledger::left_of;
use super::*;

/// What a look decides, with the ward as it is afterwards.
fn look(
    ward: &mut Ward,
    now: Duration,
    wall: Duration,
    patients: &[Patient],
    max_global: u32,
) -> (Vec<Turn>, Option<Duration>) {
    ward.ledger.advance(now, wall);
    ward.forget(now, patients);
    let mut due: Vec<(Duration, &Patient, Rule)> = Vec::new();
    for patient in patients {
        let Some(rule) = patient.rule else { continue };
        let since = ward.since(patient);
        if is_due(now, since, patient, rule) {
            due.push((since, patient, rule));
        }
    }
    due.sort_by(|(one, a, _), (other, b, _)| one.cmp(other).then_with(|| a.who.cmp(&b.who)));
    let (mut turns, mut waiting) = (Vec::new(), BTreeMap::new());
    for (_, patient, rule) in due {
        if now < ward.since(patient).saturating_add(rule.after) {
            continue;
        }
        let others = patients.iter().filter(|other| other.is_probed && other.machine == patient.machine);
        match decide(ward, now, patient, rule, &others.collect::<Vec<_>>(), max_global) {
            Answer::Start(order) => turns.push(Turn::Start(order)),
            Answer::Wait(wait) => {
                if !ward.waiting.get(&patient.who).is_some_and(|before| before.is_like(&wait)) {
                    turns.push(Turn::Wait(patient.who.clone(), wait.clone()));
                }
                waiting.insert(patient.who.clone(), wait);
            }
        }
    }
    let started = |who: &Who| turns.iter().any(|turn| matches!(turn, Turn::Start(order) if order.who == *who));
    let over = ward.waiting.keys().filter(|who| !waiting.contains_key(*who) && !started(who));
    let over: Vec<Turn> = over.cloned().map(Turn::Over).collect();
    turns.extend(over);
    ward.waiting = waiting;
    let next = patients.iter().filter_map(|patient| ward.next_look(now, patient)).min();
    (turns, next)
}

fn decide(
    ward: &mut Ward,
    now: Duration,
    patient: &Patient,
    rule: Rule,
    others: &[&Patient],
    max_global: u32,
) -> Answer {
    let (pool, _) = &patient.who;
    let fails_in = |pool: &Arc<str>| others.iter().filter(|p| p.who.0 == *pool).all(|p| p.is_failing);
    if let Some(other) = others.iter().map(|other| &other.who.0).find(|other| *other != pool && !fails_in(other)) {
        return Answer::Wait(Wait::Shared(other.clone()));
    }
    let mut counts_for = vec![(pool.clone(), rule.limits)];
    let mut shared_with: Vec<Arc<str>> = Vec::new();
    for other in others.iter().filter(|other| other.who.0 != *pool) {
        if !shared_with.contains(&other.who.0) {
            shared_with.push(other.who.0.clone());
            counts_for.extend(other.rule.map(|rule| (other.who.0.clone(), rule.limits)));
        }
    }
    if let Some(full) = full(&ward.ledger, &counts_for, max_global) {
        return Answer::Wait(Wait::Full(full));
    }
    let since = ward.since(patient);
    let counts_for: Vec<Arc<str>> = counts_for.into_iter().map(|(pool, _)| pool).collect();
    let entry = ward.ledger.enter(counts_for.clone());
    let replaced = others.iter().filter(|other| other.who.0 != *pool || other.who == patient.who);
    let before = replaced.map(|other| (other.who.clone(), ward.replaced.insert(other.who.clone(), now))).collect();
    let was_unnoted = ward.waiting.get(&patient.who) == Some(&Wait::Unnoted);
    let (who, machine, decided, is_due) = (patient.who.clone(), patient.machine, now, true);
    Answer::Start(Order { who, machine, since, counts_for, shared_with, decided, is_due, entry, before, was_unnoted })
}

fn full(ledger: &Ledger, pools: &[(Arc<str>, Limits)], max_global: u32) -> Option<Full> {
    let of_pools = pools.iter().flat_map(|(pool, limits)| {
        [(Limit::Hour, pool.clone(), limits.per_hour), (Limit::Day, pool.clone(), limits.per_day)]
    });
    let all = of_pools.chain([(Limit::Global, Arc::from(""), max_global)]);
    let full = all.filter_map(|(limit, pool, most)| {
        let filled = filled_for(ledger, limit, &pool, most);
        let lost = ledger.lost_at().and_then(|at| left_of(at, ledger.now(), limit.span())).unwrap_or_default();
        let free_in = (most > 0).then(|| filled.max(lost));
        let is_lost = most > 0 && lost > filled;
        (free_in != Some(Duration::ZERO)).then_some(Full { limit, pool, most, free_in, is_lost })
    });
    full.max_by_key(|full| full.free_in.unwrap_or(Duration::MAX))
}

fn filled_for(ledger: &Ledger, limit: Limit, pool: &str, most: u32) -> Duration {
    let counts = |entry: &&Entry| limit == Limit::Global || entry.pools.iter().any(|of| **of == *pool);
    let left = ledger.entries().iter().filter(counts);
    let mut left: Vec<Duration> = left.filter_map(|entry| left_of(entry.at, ledger.now(), limit.span())).collect();
    left.sort_unstable();
    let over = (left.len() + 1).saturating_sub(most.max(1) as usize);
    over.checked_sub(1).map_or(Duration::ZERO, |last| left[last])
}

/// A member of any pool on any machine, as it is at one look.
#[derive(Debug, Clone)]
struct Seen {
    pool: usize,
    machine: u8,
    unpassed_for: u64,
    fails: bool,
    admin: Admin,
}

fn seen() -> impl Strategy<Value = Seen> {
    let admin = prop_oneof![8 => Just(Admin::Enabled), 1 => Just(Admin::Draining), 1 => Just(Admin::Disabled)];
    let fails = proptest::bool::weighted(0.9);
    (0..5_usize, 1..5_u8, 0..400_u64, fails, admin).prop_map(|(pool, machine, unpassed_for, fails, admin)| Seen {
        pool,
        machine,
        unpassed_for,
        fails,
        admin,
    })
}

/// Each pool's rule: after how many minutes, and how many within an hour and a day.
fn some_rules() -> impl Strategy<Value = Vec<Option<Rule>>> {
    let rule = (1..120_u32, 0..3_u32, 0..4_u32).prop_map(|(after, per_hour, per_day)| Rule {
        after: MINUTE * after,
        pace: MINUTE,
        limits: Limits { per_hour, per_day },
    });
    proptest::collection::vec(proptest::option::weighted(0.8, rule), 5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_worked_out_once_for_a_machine_decides_as_if_everyone_had_looked_around(
        looks in proptest::collection::vec((proptest::collection::vec(seen(), 0..14), 1..90_u32, any::<bool>()), 1..8),
        rules in some_rules(), max_global in 0..6_u32, is_lost in proptest::bool::weighted(0.1),
    ) {
        let pools: Vec<Arc<str>> = ["e", "b", "d", "a", "c"].map(Arc::from).to_vec();
        let mut now = HOUR * 100;
        let ledger = if is_lost { Ledger::lost(now, NOON) } else { Ledger::new(now, NOON) };
        let mut ward = Ward::new(ledger);
        for (all, minutes, takes_back) in looks {
            now += MINUTE * minutes;
            let patient = |(id, seen): (usize, &Seen)| Patient {
                who: (pools[seen.pool].clone(), MemberId(id as u64)),
                machine: IpAddr::from([10, 0, 0, seen.machine]),
                unpassed_since: now.saturating_sub(MINUTE * seen.unpassed_for as u32),
                failed_at: seen.fails.then_some(now),
                is_failing: seen.fails,
                is_in_hand: seen.admin != Admin::Enabled,
                is_probed: seen.admin != Admin::Disabled,
                rule: rules[seen.pool],
            };
            let patients: Vec<Patient> = all.iter().enumerate().map(patient).collect();
            let mut plain = ward.clone();
            let wall = NOON + now;
            let expected = look(&mut plain, now, wall, &patients, max_global);
            let decided = ward.look(now, wall, &patients, max_global);
            prop_assert_eq!(&decided, &expected);
            prop_assert_eq!(&ward.waiting, &plain.waiting);
            prop_assert_eq!(&ward.replaced, &plain.replaced);
            prop_assert_eq!(&ward.ledger, &plain.ledger);
            let mut orders = decided.0.iter().filter_map(|turn| if let Turn::Start(order) = turn { Some(order) } else { None });
            if let Some(order) = orders.next_back().filter(|_| takes_back) {
                ward.take_back(order);
            }
        }
    }
}

/// Machines that all serve all pools and fail there, with a ledger that holds some replacements.
fn crowded(pools: u32, machines: u8, limits: Limits) -> (Ward, Vec<Patient>) {
    let names: Vec<Arc<str>> = (0..pools).map(|pool| Arc::from(format!("p{pool:05}"))).collect();
    let mut ledger = Ledger::new(HOUR, NOON);
    (0..5).for_each(|_| drop(ledger.enter(names.clone())));
    let member = |(pool, machine): (&Arc<str>, u8)| Patient {
        who: (pool.clone(), MemberId(machine.into())),
        machine: IpAddr::from([10, 0, 0, machine]),
        unpassed_since: Duration::ZERO,
        failed_at: Some(HOUR),
        is_failing: true,
        is_in_hand: false,
        is_probed: true,
        rule: Some(Rule { limits, ..RULE }),
    };
    let patients = names.iter().flat_map(|pool| (0..machines).map(move |machine| member((pool, machine))));
    (Ward::new(ledger), patients.collect())
}

#[test]
fn a_look_takes_a_few_steps_for_each_member_however_many_pools_a_machine_serves() {
    let none = Limits { per_hour: 0, per_day: 0 };
    let some = Limits { per_hour: 7, per_day: 7 };
    for (limits, what) in [(none, "nobody is replaced"), (some, "two are, and the rest waits")] {
        let steps = |pools: u32| {
            let (mut ward, patients) = crowded(pools, 5, limits);
            let before = STEPS.get();
            ward.look(HOUR, NOON, &patients, 7);
            (STEPS.get() - before) as f64 / patients.len() as f64
        };
        let (few, many) = (steps(50), steps(1_000));
        assert!(many > 0.0 && many < few * 1.2, "{what}: {few} steps a member of 50 pools, {many} of 1,000");
        assert!(many < 100.0, "{what}: {many} steps a member");
    }
}
