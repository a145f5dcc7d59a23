use std::time::Duration;

use super::*;
use crate::health::{Admin, Initial, Judge, Key, MemberId, OnAllUnhealthy, PoolHealth, Reason, Rules, Sample, Spec};

const STEP: Duration = Duration::from_secs(1);

/// A pool on paper, and everything it has announced.
struct Stage {
    events: EventLog,
    health: PoolHealth,
    now: Duration,
}

/// Members that start healthy, one for each tier given; one fail is enough, and so is one pass.
fn rules() -> Rules {
    Rules { judge: Judge::Consecutive { failures: 1, passes: 1 }, initial: Initial::Healthy, ..Rules::default() }
}

impl Stage {
    fn new(rules: Rules, tiers: &[u8]) -> Stage {
        let spec = |(n, &tier): (usize, &u8)| Spec {
            key: Key {
                name: format!("host{}:80", n + 1),
                address: Some(([10, 0, 0, n as u8 + 1], 80).into()),
                tls: false,
            },
            weight: 1,
            split: 1,
            tier,
            admin: Admin::Enabled,
            source: None,
            roll: None,
            fingerprint: 0,
        };
        let specs = tiers.iter().enumerate().map(spec).collect();
        Stage {
            events: EventLog::default(),
            health: PoolHealth::new(Duration::ZERO, rules, specs),
            now: Duration::ZERO,
        }
    }

    /// A step in which the nth member, counted from 1, answers; returns what is said of it.
    fn sample(&mut self, member: usize, sample: Sample) -> Vec<String> {
        self.now += STEP;
        let id = self.health.members()[member - 1].id();
        let changes = self.health.observe(self.now, id, 0, sample);
        self.announce(&changes)
    }

    fn pass(&mut self, member: usize) -> Vec<String> {
        self.sample(member, Sample::pass(Duration::from_micros(12_400)))
    }

    fn fail(&mut self, member: usize) -> Vec<String> {
        let detail = "503, expected 200-299".to_owned();
        self.sample(member, Sample { detail, status: Some(503), ..Sample::fail(Reason::Status, STEP) })
    }

    /// A reload that gives the members, in order, these tiers.
    fn retier(&mut self, tiers: &[u8]) -> Vec<String> {
        let specs = self.health.members().iter().zip(tiers).map(|(m, &tier)| Spec { tier, ..m.spec().clone() });
        let (specs, rules) = (specs.collect(), self.health.rules().clone());
        self.now += STEP;
        let changes = self.health.reshape(self.now, rules, specs);
        self.announce(&changes)
    }

    fn announce(&self, changes: &[Change]) -> Vec<String> {
        let events = self.events.announce("web", &self.health, changes);
        events
            .iter()
            .map(|event| format!("{} {}: {}", event.level.as_str(), event.kind.as_str(), event.message))
            .collect()
    }

    fn last(&self) -> Arc<Event> {
        self.events.since(self.events.last_id() - 1, 1).remove(0)
    }

    /// From what to what the last event was.
    fn turn(&self) -> String {
        let last = self.last();
        [last.from.as_deref(), last.to.as_deref()].map(|word| word.unwrap_or("-")).join(" -> ")
    }

    /// A reload or a name that leaves these members in; returns what is said of who has come and gone.
    fn move_to(&mut self, specs: Vec<Spec>) -> Vec<String> {
        self.now += STEP;
        let standings = &self.health.picture().standings;
        let before: Vec<_> =
            self.health.members().iter().zip(standings).map(|(m, s)| (m.id(), m.spec().key.clone(), *s)).collect();
        let rules = self.health.rules().clone();
        self.health.reshape(self.now, rules, specs);
        let joined =
            self.health.members().iter().map(|m| m.id()).filter(|id| before.iter().all(|(known, ..)| known != id));
        let left = before.iter().filter(|(id, ..)| self.health.index_of(*id).is_none());
        let moves =
            Moves { left: left.map(|(_, key, standing)| (key.clone(), *standing)).collect(), joined: joined.collect() };
        let seen = self.events.last_id();
        self.events.announce_moves("web", &self.health, &moves);
        let count = |event: &Event| event.count.map_or(String::new(), |count| format!("({count}) "));
        let events = self.events.since(seen, usize::MAX);
        events.iter().map(|event| format!("{}{}", count(event), event.message)).collect()
    }
}

#[test]
fn a_pool_of_four_falls_and_recovers_in_one_line_a_flip() {
    let mut stage = Stage::new(rules(), &[0; 4]);
    let steps = [
        (
            1,
            false,
            "warn member: member 10.0.0.1:80 of web is unhealthy: 503, expected 200-299; ejected (1 of 2 allowed)",
        ),
        (
            2,
            false,
            "warn member: member 10.0.0.2:80 of web is unhealthy: 503, expected 200-299; ejected (2 of 2 allowed)",
        ),
        (
            3,
            false,
            "warn member: member 10.0.0.3:80 of web is unhealthy: 503, expected 200-299; \
             kept in rotation by the cap (2 of 2 allowed are ejected)",
        ),
        (
            4,
            false,
            "warn member: member 10.0.0.4:80 of web is unhealthy: 503, expected 200-299; \
             serving all the same, nobody is healthy | \
             warn fallback: pool web: fallback: nobody is healthy, round-robin over 4 members",
        ),
        (
            4,
            true,
            "info member: member 10.0.0.4:80 of web is healthy; in rotation (2 of 4 members) | \
             info fallback: pool web: fallback over; 2 of 4 members in rotation",
        ),
        (3, true, "info member: member 10.0.0.3:80 of web is healthy; in rotation (2 of 4 members)"),
        (1, true, "info member: member 10.0.0.1:80 of web is healthy; in rotation (3 of 4 members)"),
    ];
    for (member, passes, said) in steps {
        let lines = if passes { stage.pass(member) } else { stage.fail(member) };
        assert_eq!(lines.join(" | "), said);
    }
    assert_eq!(stage.events.counters().fallbacks(), 1);
    assert_eq!(stage.events.counters().of(Kind::Fallback), 2);
    assert_eq!(stage.events.counters().of(Kind::Member), 7);
    assert_eq!(stage.events.counters().total(), 9);
}

#[test]
fn an_event_has_what_explains_it() {
    let mut stage = Stage::new(rules(), &[0; 4]);
    stage.pass(1);
    stage.fail(1);
    let event = stage.last();
    let expected = Event {
        id: 1,
        time: event.time,
        pool: Some("web".to_owned()),
        member: Some("10.0.0.1:80".to_owned()),
        from: Some("healthy".to_owned()),
        to: Some("unhealthy".to_owned()),
        reason: Some("status"),
        detail: Some("503, expected 200-299".to_owned()),
        standing: Some("ejected"),
        window: Some("1/2".to_owned()),
        latency_ms: Some(12.4),
        in_rotation: Some(3),
        total: Some(4),
        mode: Some("normal"),
        ..Event::new(Kind::Member, Severity::Warn, event.message.clone())
    };
    assert_eq!(*event, expected);
}

#[test]
fn a_place_that_passes_on_is_told_with_the_members_that_swapped() {
    // 34 % of 3 is one place, and who does not answer goes before who answers wrongly.
    let mut stage = Stage::new(Rules { max_unhealthy_percent: 34, ..rules() }, &[0; 3]);
    stage.fail(1);
    let lines = stage.sample(2, Sample::fail(Reason::Refused, STEP));
    assert_eq!(
        lines,
        [
            "warn member: member 10.0.0.2:80 of web is unhealthy: refused; ejected (1 of 1 allowed)",
            "warn cap: member 10.0.0.1:80 of web, unhealthy as before, is now kept in rotation by the cap (1 of 1 allowed are ejected)",
        ]
    );
    assert_eq!(stage.turn(), "ejected -> kept");
    assert_eq!(stage.last().reason, Some("status"));
    let lines = stage.pass(2);
    assert_eq!(
        lines,
        [
            "info member: member 10.0.0.2:80 of web is healthy; in rotation (2 of 3 members)",
            "info cap: member 10.0.0.1:80 of web, unhealthy as before, is now ejected (1 of 1 allowed)",
        ]
    );
}

#[test]
fn another_tier_is_a_failover_and_the_way_back_a_failback() {
    let mut stage = Stage::new(rules(), &[0, 1]);
    assert_eq!(
        stage.fail(1),
        [
            "warn member: member 10.0.0.1:80 of web is unhealthy: 503, expected 200-299; its tier stands by",
            "warn failover: pool web: failover: tier 1 serves, before it was tier 0; 1 of 1 member in rotation",
        ]
    );
    assert_eq!(stage.last().mode, Some("failover"));
    assert_eq!(
        stage.pass(1),
        [
            "info member: member 10.0.0.1:80 of web is healthy; in rotation (1 of 1 member)",
            "info failover: pool web: failback: tier 0 serves again, before it was tier 1; 1 of 1 member in rotation",
        ]
    );
}

#[test]
fn a_failover_out_of_the_fallback_is_told_too() {
    let mut stage = Stage::new(rules(), &[0, 1]);
    stage.fail(1);
    stage.fail(2);
    assert_eq!(
        stage.pass(2),
        [
            "info member: member 10.0.0.2:80 of web is healthy; in rotation (1 of 1 member)",
            "info fallback: pool web: fallback over; 1 of 1 member in rotation",
            "warn failover: pool web: failover: tier 1 serves, before it was none; 1 of 1 member in rotation",
        ]
    );
}

#[test]
fn other_ranks_for_the_same_tiers_are_no_failover() {
    let mut stage = Stage::new(rules(), &[0, 0]);
    assert_eq!(
        stage.retier(&[1, 1]),
        ["info failover: pool web: its first tier is 1 now, before it was tier 0; 2 of 2 members in rotation"]
    );
    stage.fail(1);
    assert_eq!(
        stage.retier(&[0, 1]),
        ["warn failover: pool web: failover: a better tier cannot serve; 1 of 1 member in rotation"]
    );
}

#[test]
fn a_pool_that_fails_when_nobody_is_healthy_says_that_it_is_down() {
    let mut stage = Stage::new(Rules { on_all_unhealthy: OnAllUnhealthy::Fail, ..rules() }, &[0]);
    assert_eq!(
        stage.fail(1),
        [
            "warn member: member 10.0.0.1:80 of web is unhealthy: 503, expected 200-299; ejected, nobody is left",
            "warn pool: pool web is down: nobody may serve, requests that come to it are answered 503",
        ]
    );
    assert_eq!(
        stage.pass(1),
        [
            "info member: member 10.0.0.1:80 of web is healthy; in rotation (1 of 1 member)",
            "info pool: pool web is normal now, it was down; 1 of 1 member in rotation",
        ]
    );
}

#[test]
fn the_end_of_a_wait_is_told_whatever_else_is() {
    let cold = Rules { initial: Initial::Probe, ..rules() };
    let mut stage = Stage::new(cold.clone(), &[0, 0]);
    stage.health =
        PoolHealth::new(STEP, cold.clone(), stage.health.members().iter().map(|m| m.spec().clone()).collect());
    assert_eq!(
        stage.pass(1),
        [
            "info member: member 10.0.0.1:80 of web is healthy; in rotation (1 of 2 members)",
            "info pool: pool web is normal now, it was waiting; 1 of 2 members in rotation",
        ]
    );

    let mut stage = Stage::new(cold, &[0, 0]);
    let changes = stage.health.advance(2 * STEP);
    assert_eq!(
        stage.announce(&changes),
        [
            "warn fallback: pool web: fallback: nobody is healthy, round-robin over 2 members",
            "info pool: pool web is fallback now, it was waiting; 2 of 2 members in rotation",
        ]
    );
    assert_eq!(stage.turn(), "waiting -> fallback");
}

#[test]
fn an_operators_word_is_told() {
    let mut stage = Stage::new(rules(), &[0; 2]);
    let changes = stage.health.administer(STEP, MemberId(0), Admin::Draining);
    assert_eq!(
        stage.announce(&changes),
        ["info member: member 10.0.0.1:80 of web is draining now, it was enabled; 1 of 2 members in rotation"]
    );
}

#[test]
fn who_comes_and_goes_is_told_and_of_many_the_first_and_how_many_more() {
    let mut stage = Stage::new(Rules { initial: Initial::Probe, ..rules() }, &[0; 2]);
    stage.pass(1);
    let first: Vec<Spec> = stage.health.members().iter().map(|m| m.spec().clone()).collect();
    let another = |n: u8| Spec {
        key: Key { address: Some(([10, 0, 1, n], 80).into()), ..first[0].key.clone() },
        ..first[0].clone()
    };
    let nameless = Spec { key: Key { address: None, ..first[0].key.clone() }, ..first[0].clone() };
    let said = stage.move_to(vec![another(1), first[1].clone()]);
    assert_eq!(
        said,
        [
            "member 10.0.0.1:80 of web has left, it was healthy",
            "member 10.0.1.1:80 of web joins, its health is not known yet"
        ]
    );
    assert_eq!(stage.turn(), "added -> unknown");
    let said = stage.move_to(vec![nameless.clone(), first[1].clone()]);
    assert_eq!(said[1], "host1:80 of web has no address any more; it gets nothing");
    let said = stage.move_to(vec![another(1), first[1].clone()]);
    assert_eq!(said[0], "host1:80 of web has an address now");
    let many: Vec<Spec> = (1..=200).map(another).chain([first[1].clone()]).collect();
    let said = stage.move_to(many);
    assert_eq!(said.len(), 11);
    assert!(said[9].starts_with("member 10.0.1.11:80"), "{said:?}");
    assert_eq!(said[10], "(189) 189 more members joined web, unknown now; 0 of 201 members in rotation");
    let said = stage.move_to(vec![another(200)]);
    assert_eq!(said.len(), 11, "all of them unknown");
    assert_eq!(said[10], "(190) 190 more members left web, unknown before; 1 of 1 member in rotation");
}

#[test]
fn of_many_that_change_alike_in_one_step_the_first_are_named() {
    let mut stage = Stage::new(rules(), &[0; 30]);
    let specs = stage.health.members().iter().map(|m| Spec { admin: Admin::Draining, ..m.spec().clone() }).collect();
    let changes = stage.health.reshape(STEP, rules(), specs);
    let said = stage.announce(&changes);
    assert_eq!(said.len(), 12, "{said:?}");
    assert!(said[9].starts_with("info member: member 10.0.0.10:80 of web is draining now"), "{said:?}");
    assert!(said[10].starts_with("info member: 20 more members of web turned from enabled to draining;"), "{said:?}");
    assert!(said[11].starts_with("warn pool: pool web is down"), "{said:?}");
}

#[test]
fn what_a_member_answers_cannot_forge_a_line() {
    let mut stage = Stage::new(rules(), &[0; 2]);
    let detail = "302 to http://x/\r\n\u{1b}[2J".to_owned();
    let lines = stage.sample(1, Sample { detail, ..Sample::fail(Reason::Status, STEP) });
    assert_eq!(
        lines,
        [
            r"warn member: member 10.0.0.1:80 of web is unhealthy: 302 to http://x/\r\n\u{1b}[2J; ejected (1 of 1 allowed)"
        ]
    );
}

#[test]
fn events_are_numbered_and_the_latest_are_kept() {
    let mut stage = Stage::new(rules(), &[0; 2]);
    for _ in 0..KEPT {
        stage.fail(1);
        stage.pass(1);
    }
    let last = stage.events.last_id();
    assert_eq!(last, 2 * KEPT as u64);
    let ids = |since, limit| stage.events.since(since, limit).iter().map(|event| event.id).collect::<Vec<_>>();
    assert_eq!(ids(0, usize::MAX), (last - KEPT as u64 + 1..=last).collect::<Vec<_>>());
    assert_eq!(ids(last - 3, 2), [last - 2, last - 1]);
    assert_eq!(ids(last, 10), [0_u64; 0]);
    let glance = |since| {
        let glance = stage.events.glance(since, 1);
        (glance.missed, glance.first_id, glance.last_id)
    };
    let first = last - KEPT as u64 + 1;
    let rows = [(0, first - 1), (first - 2, 1), (first - 1, 0), (last, 0), (last + 7, 0)];
    for (since, missed) in rows {
        assert_eq!(glance(since), (missed, first, last), "{since}");
    }
    let nothing = EventLog::default().glance(0, 10);
    assert_eq!((nothing.events.len(), nothing.missed, nothing.first_id, nothing.last_id), (0, 0, 1, 0));
}

#[test]
fn who_waits_for_the_latest_is_woken_by_it() {
    let mut stage = Stage::new(rules(), &[0; 2]);
    let mut latest = stage.events.latest();
    assert!(latest.has_changed().is_ok_and(|changed| !changed));
    stage.fail(1);
    assert!(latest.has_changed().is_ok_and(|changed| changed));
    assert_eq!(*latest.borrow_and_update(), 1);
}
