//! Rules that are tried: what is told of them, and that nothing goes by them.

use super::tests::{ids, ms, plan, report};
use super::*;
use crate::config::Observed;
use crate::health::{Aggregate, Eject, Failure, Gates, Judge, Mode, Reason, Rules, Standing};

fn tried(key: &'static str, rules: Rules) -> Option<Arc<Observed>> {
    Some(Arc::new(Observed { rules, keys: vec![key] }))
}

/// Of `count` members, with a gate of 100 ms that is tried.
fn gated(count: u8) -> Plan {
    let plan = plan(count);
    let gates = Gates { max_latency: Some(ms(100)), ..Gates::default() };
    Plan { observed: tried("max_latency", Rules { gates, ..plan.rules.clone() }), ..plan }
}

fn stage(plan: Plan) -> (Pool, Arc<Audience>) {
    let audience = Arc::new(Audience::default());
    (Pool::new("web", Duration::ZERO, plan, audience.clone()), audience)
}

/// What was told since, those observed marked with `~`.
fn told(audience: &Audience, since: &mut u64) -> Vec<String> {
    let events = audience.events.since(*since, usize::MAX);
    *since = audience.events.last_id();
    let words = |event: &Arc<Event>| format!("{}{}", if event.observed { "~" } else { "" }, event.message);
    events.iter().map(words).collect()
}

fn would(pool: &Pool) -> (Mode, Vec<Standing>) {
    pool.read_both(|_, shadow, _| {
        let picture = shadow.expect("something is tried").health().picture();
        (picture.mode, picture.standings.clone())
    })
}

#[test]
fn a_gate_that_is_tried_tells_whom_it_would_eject_and_ejects_nobody() {
    let (pool, audience) = stage(gated(4));
    let (ids, mut since) = (ids(&pool), 0);
    report(&pool, ms(1), ids[1], Sample::pass(ms(300)));
    assert_eq!(
        told(&audience, &mut since),
        [
            "~observed (max_latency): member 10.0.0.2:80 of web is unhealthy: answered in 300 ms, max_latency allows 100 ms; \
             ejected (1 of 2 allowed)"
        ]
    );
    let roster = pool.roster();
    assert!(roster.picture().standings.iter().all(|standing| *standing == Standing::Healthy));
    assert_eq!(would(&pool).1[1], Standing::Ejected);
    assert_eq!(pool.read(|health, _| health.members()[1].streak()), 1, "a pass is a pass");
    report(&pool, ms(2), ids[1], Sample::pass(ms(30)));
    assert_eq!(
        told(&audience, &mut since),
        ["~observed (max_latency): member 10.0.0.2:80 of web is healthy; in rotation (4 of 4 members)"]
    );
    assert_eq!((audience.events.counters().total(), audience.events.counters().observed(Kind::Member)), (0, 2));
}

#[test]
fn what_would_be_all_the_same_is_told_once() {
    let (pool, audience) = stage(gated(4));
    let (ids, mut since) = (ids(&pool), 0);
    for id in &ids {
        report(&pool, ms(1), *id, Sample::fail(Reason::Refused, ms(1)));
        report(&pool, ms(2), *id, Sample::fail(Reason::Refused, ms(1)));
    }
    pool.administer(ms(3), ids[0], Admin::Draining);
    pool.administer(ms(4), ids[0], Admin::Enabled);
    ids.iter().for_each(|id| report(&pool, ms(5), *id, Sample::pass(ms(1))));
    let events = told(&audience, &mut since);
    assert!(events.len() > 8 && !events.iter().any(|event| event.starts_with('~')), "{events:#?}");
}

#[test]
fn a_cap_that_is_tried_tells_who_would_be_kept() {
    let plan = plan(4);
    let observed = tried("max_unhealthy_percent", Rules { max_unhealthy_percent: 25, ..plan.rules.clone() });
    let (pool, audience) = stage(Plan { observed, ..plan });
    let (ids, mut since) = (ids(&pool), 0);
    report(&pool, ms(1), ids[0], Sample::fail(Reason::Status, ms(1)));
    assert_eq!(told(&audience, &mut since).len(), 1, "both would eject it");
    report(&pool, ms(2), ids[1], Sample::fail(Reason::Refused, ms(1)));
    let events = told(&audience, &mut since);
    let observed: Vec<_> = events.iter().filter(|event| event.starts_with('~')).collect();
    // the one that refuses is the worse of the two
    assert_eq!(
        observed,
        [
            "~observed (max_unhealthy_percent): member 10.0.0.1:80 of web, unhealthy as before, is now kept in rotation by \
             the cap (1 of 1 allowed are ejected)"
        ]
    );
    assert_eq!((pool.roster().mode(), would(&pool).0), (Mode::Normal, Mode::Capped));
}

#[test]
fn a_fallback_that_would_be_is_not_entered() {
    let (pool, audience) = stage(gated(2));
    let mut since = 0;
    for id in ids(&pool) {
        report(&pool, ms(1), id, Sample::pass(ms(500)));
    }
    let events = told(&audience, &mut since);
    assert!(events.iter().any(|event| event.contains("fallback: nobody is healthy")), "{events:#?}");
    assert!(events.iter().all(|event| event.starts_with('~')), "{events:#?}");
    assert_eq!((pool.roster().mode(), would(&pool).0), (Mode::Normal, Mode::Fallback));
    assert_eq!((pool.tally().fallbacks(), audience.events.counters().fallbacks()), (0, 0));
}

#[test]
fn an_aggregate_that_is_tried_tells_how_the_pool_would_stand_as_a_whole() {
    let plan = plan(4);
    let all = Some(Aggregate { min_healthy_percent: 100, min_healthy: 1 });
    let (pool, audience) =
        stage(Plan { observed: tried("aggregate", Rules { aggregate: all, ..plan.rules.clone() }), ..plan });
    let mut since = 0;
    report(&pool, ms(1), ids(&pool)[0], Sample::fail(Reason::Status, ms(1)));
    let events = told(&audience, &mut since);
    assert_eq!(events[1..], ["~observed (aggregate): pool web as a whole is unhealthy: 3 of 4 are healthy"]);
    assert_eq!(pool.roster().state(), State::Healthy);
}

#[test]
fn a_probe_that_only_observes_shows_its_samples_and_judges_nobody() {
    let judged = Rules { judge: Judge::Consecutive { failures: 2, passes: 1 }, ..plan(3).rules };
    let rules = Rules { probed: false, ..judged.clone() };
    let (pool, audience) = stage(Plan { rules, observed: tried(Observed::PROBE, judged), ..plan(3) });
    let (ids, mut since) = (ids(&pool), 0);
    for at in 1..=2 {
        ids.iter().for_each(|id| report(&pool, ms(at), *id, Sample::fail(Reason::Refused, ms(1))));
    }
    let events = told(&audience, &mut since);
    assert!(!events.is_empty() && events.iter().all(|event| event.starts_with("~observed (probe)")), "{events:#?}");
    assert_eq!((pool.roster().mode(), would(&pool).0), (Mode::Normal, Mode::Fallback));
    assert_eq!(pool.roster().members()[0].window(), (0, 2), "the access log shows its samples");
    let streak = pool.read_both(|health, shadow, _| shown(health, shadow, 0).streak());
    assert_eq!((streak, pool.read(|health, _| health.members()[0].streak())), (-2, 0));
    // Doubt quickens the probes that only observe too: they find out as soon.
    let heard = pool.report(ms(3), ids[0], 7, Sample::pass(ms(1))).expect("it is a member");
    assert!(heard.fall.is_none());
    let heard = pool.report(ms(4), ids[0], 7, Sample::fail(Reason::Refused, ms(1))).expect("it is a member");
    assert_eq!(heard.pace, Pace::Fast);
}

#[test]
fn what_is_tried_from_a_reload_on_knows_what_was_seen_before() {
    let (pool, audience) = stage(plan(4));
    let (ids, mut since) = (ids(&pool), 0);
    report(&pool, ms(1), ids[0], Sample::fail(Reason::Status, ms(1)));
    report(&pool, ms(1), ids[1], Sample::fail(Reason::Status, ms(1)));
    told(&audience, &mut since);
    let less = tried("max_unhealthy_percent", Rules { max_unhealthy_percent: 25, ..plan(4).rules });
    pool.reshape(ms(2), Plan { observed: less, ..plan(4) });
    let events = told(&audience, &mut since);
    assert!(events.len() == 1 && events[0].contains("is now kept in rotation by the cap"), "{events:#?}");
    // a reload of something else changes nothing, one that ends it is silent
    pool.reshape(ms(3), Plan { budget_percent: 30, ..gated(4) });
    told(&audience, &mut since);
    pool.reshape(ms(4), gated(4));
    pool.reshape(ms(5), plan(4));
    assert!(told(&audience, &mut since).is_empty());
    assert!(pool.read_both(|_, shadow, _| shadow.is_none()));
}

/// Of `count` members that traffic would eject after two failures in a row.
fn ejecting(count: u8, rules: Rules) -> Plan {
    let eject = Some(Eject { consecutive: 2, base: ms(100), max: ms(100), ..Eject::default() });
    let tried = tried("passive", Rules { eject, ..rules.clone() });
    Plan { rules, observed: tried, ..plan(count) }
}

/// A request to that member ends so.
fn request(pool: &Pool, now: Duration, id: MemberId, status: u16) {
    let others: Vec<MemberId> = ids(pool).into_iter().filter(|other| *other != id).collect();
    let Pick::Member(lease) = pool.pick(&others, None) else { panic!("it is in rotation") };
    let (in_force, tried) =
        pool.read_both(|real, shadow, _| (real.rules().clone(), shadow.map(|shadow| shadow.health().rules().clone())));
    let judged = Judged { in_force: &in_force, tried: tried.as_ref() };
    match status {
        200 => pool.succeeds(now, &lease, judged),
        status => pool.fails(now, &lease, Failure { reason: Reason::Status, status: Some(status) }, judged),
    }
}

#[test]
fn traffic_that_would_eject_ejects_nobody_and_time_would_bring_it_back() {
    let (pool, audience) = stage(ejecting(4, plan(4).rules));
    let (ids, mut since) = (ids(&pool), 0);
    ids.iter().for_each(|id| report(&pool, ms(1), *id, Sample::pass(ms(1))));
    told(&audience, &mut since);
    for (at, status) in [(2, 503), (3, 200), (4, 503), (5, 503)] {
        assert!(told(&audience, &mut since).is_empty());
        request(&pool, ms(at), ids[1], status);
    }
    let events = told(&audience, &mut since);
    assert!(
        events.len() == 1 && events[0].starts_with("~observed (passive): member 10.0.0.2:80 of web"),
        "{events:#?}"
    );
    assert!(events[0].contains("2 failures in a row, last: 503"), "{events:#?}");
    assert_eq!((pool.roster().standing(1), would(&pool).1[1]), (Standing::Healthy, Standing::Ejected));
    assert_eq!((pool.roster().members()[1].tally().bans(), pool.next_deadline()), (0, Some(ms(105))));
    // It would have had none of these.
    (6..50).for_each(|at| request(&pool, ms(at), ids[1], 503));
    assert_eq!(pool.next_deadline(), Some(ms(105)));
    pool.advance(ms(105));
    assert_eq!(would(&pool).1[1], Standing::Healthy);
    request(&pool, ms(106), ids[1], 503);
    assert_eq!(would(&pool).1[1], Standing::Healthy, "the first of a new row");
    request(&pool, ms(107), ids[1], 503);
    assert_eq!(would(&pool).1[1], Standing::Ejected);
}

#[test]
fn a_fallback_that_traffic_would_bring_ends_with_its_first_success_where_nobody_probes() {
    let rules = Rules { probed: false, initial: crate::health::Initial::Healthy, ..plan(2).rules };
    let (pool, _) = stage(ejecting(2, rules));
    let ids = ids(&pool);
    ids.iter().for_each(|id| (1..=2).for_each(|at| request(&pool, ms(at), *id, 503)));
    assert_eq!((pool.roster().mode(), would(&pool).0), (Mode::Normal, Mode::Fallback));
    // There nobody is charged.
    (3..9).for_each(|at| request(&pool, ms(at), ids[0], 503));
    pool.advance(ms(50));
    assert_eq!(would(&pool).0, Mode::Fallback);
    request(&pool, ms(51), ids[0], 200);
    assert_eq!((pool.roster().mode(), would(&pool).0), (Mode::Normal, Mode::Normal));
    // Without a success the first time that runs out ends it.
    (52..54).for_each(|at| request(&pool, ms(at), ids[0], 503));
    assert_eq!((would(&pool).0, pool.next_deadline()), (Mode::Fallback, Some(ms(102))));
    pool.advance(ms(102));
    assert_eq!((pool.roster().mode(), would(&pool).0), (Mode::Normal, Mode::Normal));
}

#[test]
fn traffic_that_is_counted_already_counts_for_rules_that_begin_to_be_tried() {
    let eject = |consecutive| Some(Eject { consecutive, ..Eject::default() });
    let in_force = Rules { eject: eject(5), ..plan(4).rules };
    let (pool, _) = stage(Plan { rules: in_force.clone(), ..plan(4) });
    let ids = ids(&pool);
    ids.iter().for_each(|id| report(&pool, ms(1), *id, Sample::pass(ms(1))));
    (2..4).for_each(|at| request(&pool, ms(at), ids[0], 503));
    let tried = |eject| tried("passive", Rules { eject, ..in_force.clone() });
    pool.reshape(ms(5), Plan { rules: in_force.clone(), observed: tried(eject(3)), ..plan(4) });
    request(&pool, ms(6), ids[0], 503);
    assert_eq!((pool.roster().standing(0), would(&pool).1[0]), (Standing::Healthy, Standing::Ejected));
}
