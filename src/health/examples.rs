//! The worked examples of health.md §11 and the field cases they come from, as rows.

use super::trial::{Act, Trial, admin, fail, fail_as, inconclusive, ms, pass, pass_in, rules, spec, specs};
use super::{Admin, Initial, Judge, Mode, OnAllUnhealthy, Reason, Rules, Sample, Spec};

fn new_members() -> Rules {
    Rules { initial: Initial::Probe, ..rules() }
}

#[test]
fn the_cap_keeps_one_and_the_last_failure_ejects_nobody() {
    // Example 1, cases C08 and C10.
    let mut trial = Trial::new(rules(), specs(4));
    trial.play([
        (1, fail(1), "EHHH m1 healthy -> unhealthy"),
        (2, fail(2), "EEHH m2 healthy -> unhealthy"),
        (3, fail(3), "EEKH m3 healthy -> unhealthy, normal -> capped"),
        (4, fail(4), "FFFF m4 healthy -> unhealthy, fallback begins, tier 0 -> none, capped -> fallback"),
        (5, pass(3), "EEHK m3 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> capped"),
        (6, pass(1), "HEHE m1 unhealthy -> healthy, m4 kept -> ejected, capped -> normal"),
        (7, pass(4), "HEHH m4 unhealthy -> healthy"),
        (8, pass(2), "HHHH m2 unhealthy -> healthy"),
    ]);
}

#[test]
fn places_do_not_move_while_nothing_changes() {
    // Example 16, and case C08: stable while the inputs are.
    let judge = Judge::Consecutive { failures: 2, passes: 1 };
    let mut trial = Trial::new(Rules { judge, max_unhealthy_percent: 34, ..rules() }, specs(3));
    trial.play([
        (1, fail_as(1, Reason::Status), "HHH"),
        (2, fail_as(2, Reason::Timeout), "HHH"),
        (3, fail_as(1, Reason::Status), "EHH m1 healthy -> unhealthy"),
        // m2 fell to a wrong status, though it timed out before
        (4, fail_as(2, Reason::Status), "EKH m2 healthy -> unhealthy, normal -> capped"),
    ]);
    for at in 5..50 {
        let (first, second) =
            if at % 2 == 0 { (Reason::Status, Reason::Timeout) } else { (Reason::Timeout, Reason::Status) };
        assert_eq!(trial.at(at, fail_as(1, first)), "EKH");
        assert_eq!(trial.at(at, fail_as(2, second)), "EKH");
    }
}

#[test]
fn newcomers_that_never_pass_get_nothing_and_cost_nobody_a_place() {
    // Example 11, case C09.
    let mut trial = Trial::new(rules(), specs(2));
    assert_eq!(trial.at(1, Act::Reload(new_members(), specs(5))), "HH???");
    trial.play([
        (2, fail(3), "HH??? m3 unknown -> unhealthy"),
        (3, fail(4), "HH??? m4 unknown -> unhealthy"),
        (4, fail(5), "HH??? m5 unknown -> unhealthy"),
        (5, fail(5), "HH???"),
    ]);
    assert_eq!((trial.pool.picture().ejectable, trial.pool.picture().mode), (1, Mode::Normal));
    trial.play([
        (2_006, fail(1), "EH??? m1 healthy -> unhealthy"),
        (2_007, fail(2), "FFFFF m2 healthy -> unhealthy, fallback begins, tier 0 -> none, normal -> fallback"),
        (2_008, pass(3), "EKH?? m3 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> capped"),
    ]);
}

#[test]
fn a_cold_start_waits_for_a_first_verdict_and_no_longer() {
    // Example 13, case C35.
    let mut trial =
        Trial::new(Rules { judge: Judge::Consecutive { failures: 3, passes: 1 }, ..new_members() }, specs(2));
    assert_eq!((trial.standings().as_str(), trial.pool.picture().mode), ("??", Mode::Waiting));
    assert_eq!(trial.pool.next_deadline(), Some(ms(1_000)));
    trial.play([
        (1, fail_as(1, Reason::Refused), "??"),
        (5, pass(2), "?H m2 unknown -> healthy, tier none -> 0, waiting -> normal"),
        (6, fail_as(1, Reason::Refused), "?H"),
        (7, fail_as(1, Reason::Refused), "?H m1 unknown -> unhealthy"),
        (1_000, Act::Wait, "?H"),
    ]);
    assert_eq!(trial.pool.next_deadline(), None);

    let mut trial = Trial::new(new_members(), specs(2));
    trial.play([
        (1, fail(1), "?? m1 unknown -> unhealthy"),
        (2, fail(2), "?? m2 unknown -> unhealthy"),
        (999, inconclusive(2), "??"),
        (1_000, Act::Wait, "FF fallback begins, waiting -> fallback"),
        (1_001, Act::Wait, "FF"),
        (1_002, pass(2), "?H m2 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> normal"),
    ]);

    // A sample that comes after the wait says so itself; the wait can be none at all.
    let mut trial =
        Trial::new(Rules { judge: Judge::Consecutive { failures: 3, passes: 1 }, ..new_members() }, specs(2));
    assert_eq!(trial.at(1_500, fail(1)), "FF fallback begins, waiting -> fallback");
    let trial = Trial::new(Rules { initial_wait: ms(0), ..new_members() }, specs(2));
    assert_eq!((trial.standings().as_str(), trial.pool.next_deadline()), ("FF", None));
}

#[test]
fn who_is_enabled_again_is_waited_for_where_nobody_else_is_healthy() {
    let mut trial = Trial::new(rules(), specs(2));
    let judge = Judge::Consecutive { failures: 1, passes: 1 };
    trial.at(5_000, Act::Reload(Rules { judge, ..rules() }, specs(2)));
    trial.play([
        (6_000, admin(1, Admin::Disabled), "XH m1 enabled -> disabled"),
        (6_001, admin(2, Admin::Disabled), "XX m2 enabled -> disabled, tier 0 -> none, normal -> down"),
        (6_002, admin(1, Admin::Enabled), "?X m1 healthy -> unknown, m1 disabled -> enabled, down -> waiting"),
        (6_900, admin(2, Admin::Enabled), "?? m2 healthy -> unknown, m2 disabled -> enabled"),
        (7_001, Act::Wait, "??"),
        // It fails, and is not waited for again: not for one that was never away, nor for one that was only drained.
        (7_100, fail(1), "?? m1 unknown -> unhealthy"),
        (7_900, Act::Wait, "FF fallback begins, waiting -> fallback"),
        (8_000, admin(1, Admin::Draining), "DF m1 enabled -> draining"),
        (8_001, admin(1, Admin::Enabled), "FF m1 draining -> enabled"),
        (8_002, admin(2, Admin::Enabled), "FF"),
        (8_003, pass(2), "?H m2 unknown -> healthy, fallback ends, tier none -> 0, fallback -> normal"),
        // Somebody is healthy: nobody waits.
        (8_004, admin(1, Admin::Disabled), "XH m1 enabled -> disabled"),
        (8_005, admin(1, Admin::Enabled), "?H m1 unhealthy -> unknown, m1 disabled -> enabled"),
    ]);
}

#[test]
fn the_dead_wait_for_the_unknown() {
    // Proven members turn unhealthy within the first second while another has no verdict yet.
    let mut trial = Trial::new(rules(), specs(1));
    assert_eq!(trial.at(1, Act::Reload(new_members(), specs(2))), "H?");
    trial.play([
        (2, fail(1), "S? m1 healthy -> unhealthy, tier 0 -> none, normal -> waiting"),
        (3, pass(2), "EH m2 unknown -> healthy, tier none -> 0, waiting -> normal"),
    ]);
}

#[test]
fn a_leader_pool_follows_its_leader_and_fails_at_once_without_one() {
    // Example 14.
    let leader = Rules { on_all_unhealthy: OnAllUnhealthy::Fail, max_unhealthy_percent: 100, ..rules() };
    let mut trial = Trial::new(leader.clone(), specs(3));
    trial.play([
        (1, fail(2), "HEH m2 healthy -> unhealthy"),
        (2, fail(3), "HEE m3 healthy -> unhealthy"),
        (3, fail(1), "EEE m1 healthy -> unhealthy, tier 0 -> none, normal -> down"),
        (4, pass(2), "EHE m2 unhealthy -> healthy, tier none -> 0, down -> normal"),
        (5, pass(3), "EHH m3 unhealthy -> healthy"),
        (6, fail(2), "EEH m2 healthy -> unhealthy"),
    ]);
    // A written cap keeps some beside the leader, and nobody without one.
    let capped = Rules { max_unhealthy_percent: 34, ..leader };
    let mut trial = Trial::new(capped, specs(3));
    trial.play([
        (1, fail(2), "HEH m2 healthy -> unhealthy"),
        (2, fail(3), "HEK m3 healthy -> unhealthy, normal -> capped"),
        (3, fail(1), "EEE m1 healthy -> unhealthy, m3 kept -> ejected, tier 0 -> none, capped -> down"),
        (4, pass(1), "HEK m1 unhealthy -> healthy, m3 ejected -> kept, tier none -> 0, down -> capped"),
    ]);
    assert_eq!(trial.pool.picture().ejected, 1);
}

#[test]
fn a_leader_pool_waits_for_its_first_verdict_like_any_other() {
    let leader = Rules { on_all_unhealthy: OnAllUnhealthy::Fail, max_unhealthy_percent: 100, ..new_members() };
    let mut trial = Trial::new(leader.clone(), specs(2));
    trial.play([
        (1, fail(1), "?? m1 unknown -> unhealthy"),
        (2, pass(2), "?H m2 unknown -> healthy, tier none -> 0, waiting -> normal"),
    ]);
    let mut trial = Trial::new(leader, specs(2));
    trial.play([(1_000, Act::Wait, "EE waiting -> down")]);
}

#[test]
fn a_member_that_fails_fast_is_not_a_fast_member() {
    // Examples 5 and 15 as far as health goes: a fail leaves the latency as it was.
    let mut trial = Trial::new(rules(), specs(4));
    for member in 1..=4 {
        trial.at(1, pass_in(member, 50));
    }
    for member in 1..=3 {
        trial.at(2, fail(member));
    }
    assert_eq!(trial.standings(), "EEKH");
    assert!((1..=4).all(|member| trial.member(member).latency() == Some(ms(50))));
}

#[test]
fn nobody_who_is_drained_or_disabled_joins_the_fallback() {
    // Case C10, health.md §4 and §7.
    let weightless = vec![spec(1), spec(2), spec(3), Spec { weight: 0, ..spec(4) }];
    let mut trial = Trial::new(rules(), weightless);
    trial.play([
        (1, admin(2, Admin::Draining), "HDHD m2 enabled -> draining"),
        (2, admin(3, Admin::Disabled), "HDXD m3 enabled -> disabled"),
        (3, fail(1), "FDXD m1 healthy -> unhealthy, fallback begins, tier 0 -> none, normal -> fallback"),
        // judged as ever while draining, and at once back in the rotation by an operator's word
        (4, fail(2), "FDXD m2 healthy -> unhealthy"),
        (5, pass(2), "FDXD m2 unhealthy -> healthy"),
        (6, fail(3), "FDXD"),
        (7, admin(2, Admin::Enabled), "EHXD m2 draining -> enabled, fallback ends, tier none -> 0, fallback -> normal"),
        (
            8,
            admin(2, Admin::Disabled),
            "FXXD m2 enabled -> disabled, fallback begins, tier 0 -> none, normal -> fallback",
        ),
        (9, admin(1, Admin::Draining), "DXXD m1 enabled -> draining, fallback ends, fallback -> down"),
    ]);
    assert_eq!(trial.pool.picture().in_rotation, 0);
}

#[test]
fn whoever_was_disabled_begins_again() {
    let mut trial = Trial::new(rules(), specs(3));
    trial.play([
        (1, fail(1), "EHH m1 healthy -> unhealthy"),
        (2, admin(1, Admin::Disabled), "XHH m1 enabled -> disabled"),
        (3, pass(1), "XHH"),
        (4, admin(1, Admin::Draining), "DHH m1 unhealthy -> unknown, m1 disabled -> draining"),
        (5, admin(1, Admin::Enabled), "?HH m1 draining -> enabled"),
        (6, pass(1), "HHH m1 unknown -> healthy"),
        (7, admin(1, Admin::Enabled), "HHH"),
    ]);
    // where a new one needs the judge's full number, so does this one
    let judge = Judge::Consecutive { failures: 1, passes: 2 };
    let mut trial = Trial::new(Rules { judge, ..rules() }, vec![spec(1), Spec { admin: Admin::Disabled, ..spec(2) }]);
    trial.at(1, Act::Reload(Rules { judge, initial: Initial::Unhealthy, ..rules() }, specs(2)));
    assert_eq!(trial.standings(), "H?");
    trial.play([(2, pass(2), "H?"), (3, pass(2), "HH m2 unhealthy -> healthy")]);
    let unprobed = Rules { probed: false, ..rules() };
    let mut trial = Trial::new(unprobed, specs(1));
    trial.play([
        (1, fail(1), "H"),
        (2, admin(1, Admin::Disabled), "X m1 enabled -> disabled, tier 0 -> none, normal -> down"),
        (3, admin(1, Admin::Enabled), "H m1 disabled -> enabled, tier none -> 0, down -> normal"),
    ]);
}

#[test]
fn a_member_without_an_address_is_nobody() {
    let mut nameless = spec(1);
    nameless.key.address = None;
    let mut trial = Trial::new(rules(), vec![nameless.clone(), spec(2)]);
    trial.play([
        (1, fail(2), "?F m2 healthy -> unhealthy, fallback begins, tier 0 -> none, normal -> fallback"),
        (2, pass(2), "?H m2 unhealthy -> healthy, fallback ends, tier none -> 0, fallback -> normal"),
    ]);
    let trial = Trial::new(rules(), vec![nameless]);
    assert_eq!((trial.standings().as_str(), trial.pool.picture().mode), ("?", Mode::Down));
    assert_eq!(Trial::new(rules(), Vec::new()).pool.picture().mode, Mode::Down);
}

#[test]
fn evidence_for_somebody_else_is_nothing() {
    let mut trial = Trial::new(rules(), specs(2));
    let (gone, stale) = (trial.member(2).id(), trial.member(1).id());
    trial.at(1, Act::Reload(rules(), specs(1)));
    let bad = || Sample::fail(Reason::Refused, ms(1));
    assert_eq!(trial.pool.observe(ms(2), gone, 7, bad()), []);
    assert_eq!(trial.pool.observe(ms(2), stale, 8, bad()), []);
    assert_eq!(trial.pool.administer(ms(2), gone, Admin::Disabled), []);
    assert_eq!(trial.standings(), "H");
    assert_eq!(trial.member(1).last_sample(), None);
}
