//! The cap: how many unhealthy members of a tier may be out of the rotation, and which (health.md §3).
//!
//! Integers only: 66.7 % of three is two. Not here: what makes a member unhealthy.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Duration;

use super::{Class, Key, Member, MemberId, Rules};

/// How many may be ejected of `n` members that are enabled, of weight > 0, proven and reachable, `unhealthy` of them so.
pub(super) fn ejectable(rules: &Rules, n: usize, unhealthy: usize) -> usize {
    if n == unhealthy || rules.max_unhealthy_percent == 0 {
        return 0;
    }
    let share = n * usize::from(rules.max_unhealthy_percent) / 100;
    share.max(usize::from(rules.min_ejected)).min(n - 1)
}

/// Puts the `places` worst of the `unhealthy` (indices into `members`) first.
///
/// Worst is by class; within a class those that are out already stay out, whatever has happened since; then the fewest
/// passes or the longest fail streak, the earliest to fail, the address. So nobody is moved unless a verdict, the cap
/// or a class demands it.
pub(super) fn worst_first(members: &[Member], unhealthy: &mut [usize], places: usize) {
    if 0 < places && places < unhealthy.len() {
        unhealthy.select_nth_unstable_by_key(places - 1, |index| Reverse(Rank::of(&members[*index])));
    }
}

/// Who goes first: the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    class: Option<Class>,
    out: bool,
    badness: u64,
    since: Reverse<Duration>,
    identity: Reverse<(Option<SocketAddr>, &'a Key, MemberId)>,
}

impl Rank<'_> {
    fn of(member: &Member) -> Rank<'_> {
        let key = &member.spec().key;
        Rank {
            class: member.class(),
            out: member.out,
            badness: member.badness(),
            since: Reverse(member.since()),
            identity: Reverse((key.address, key, member.id())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, fail_as, pass, rules, spec, specs};
    use super::super::{Admin, Judge, Mode, Reason, Spec, Standing};
    use super::*;

    fn at_most(percent: u8) -> Rules {
        Rules { max_unhealthy_percent: percent, ..rules() }
    }

    #[test]
    fn the_table_of_the_rules() {
        // health.md §3
        let percents = [10, 25, 33, 34, 50, 67, 100];
        let rows = [
            (1, [0, 0, 0, 0, 0, 0, 0]),
            (2, [0, 0, 0, 0, 1, 1, 1]),
            (3, [0, 0, 0, 1, 1, 2, 2]),
            (4, [0, 1, 1, 1, 2, 2, 3]),
            (10, [1, 2, 3, 3, 5, 6, 9]),
        ];
        for (n, row) in rows {
            for (percent, expected) in percents.into_iter().zip(row) {
                assert_eq!(ejectable(&at_most(percent), n, n - 1), expected, "{n} members, {percent} %");
                assert_eq!(ejectable(&at_most(percent), n, n), 0, "all of {n} failing, {percent} %");
            }
        }
        assert_eq!(ejectable(&at_most(100), 0, 0), 0);
        assert_eq!(ejectable(&at_most(0), 10, 9), 0);
    }

    #[test]
    fn min_ejected_lets_one_go_but_never_the_last_and_not_with_0_percent() {
        let rows = [(10, 3, 1), (10, 2, 1), (10, 1, 0), (0, 3, 0), (50, 10, 5)];
        for (percent, n, expected) in rows {
            let rules = Rules { min_ejected: 1, ..at_most(percent) };
            assert_eq!(ejectable(&rules, n, n - 1), expected, "{n} members, {percent} %");
            assert_eq!(ejectable(&rules, n, n), 0, "all of {n} failing, {percent} %");
        }
    }

    /// Every order of 1 to `n`.
    fn orders(n: usize) -> Vec<Vec<usize>> {
        let mut orders = vec![Vec::new()];
        for next in 1..=n {
            let grown = |order: &Vec<usize>| (0..=order.len()).map(|at| with(order, at, next)).collect::<Vec<_>>();
            orders = orders.iter().flat_map(grown).collect();
        }
        orders
    }

    fn with(order: &[usize], at: usize, next: usize) -> Vec<usize> {
        [&order[..at], &[next], &order[at..]].concat()
    }

    /// Lets all fail in this order, then pass again, and looks after each step.
    fn fail_and_recover(percent: u8, order: &[usize]) {
        let n = order.len();
        let mut trial = Trial::new(at_most(percent), specs(n));
        for (bad, member) in order.iter().enumerate() {
            trial.at(1, fail(*member));
            check(&trial, percent, bad + 1, order);
        }
        for (well, member) in order.iter().enumerate() {
            trial.at(2, pass(*member));
            check(&trial, percent, n - well - 1, order);
        }
    }

    fn check(trial: &Trial, percent: u8, bad: usize, order: &[usize]) {
        let n = order.len();
        let ejected = trial.standings().matches('E').count();
        assert!(ejected * 100 <= usize::from(percent) * n, "{ejected} of {n} ejected at {percent} %, {order:?}");
        let allowed = (n * usize::from(percent) / 100).min(n - 1);
        let expected = if bad == n { 0 } else { allowed.min(bad) };
        assert_eq!(ejected, expected, "{bad} of {n} failing at {percent} %, {order:?}");
    }

    #[test]
    fn the_cap_holds_whatever_fails_in_whatever_order() {
        // Case C06
        for percent in [0, 10, 33, 34, 50, 66, 67, 99, 100] {
            for n in 1..=10 {
                let forth: Vec<usize> = (1..=n).collect();
                let back: Vec<usize> = (1..=n).rev().collect();
                let all = if n <= 5 { orders(n) } else { vec![forth, back] };
                all.iter().for_each(|order| fail_and_recover(percent, order));
            }
        }
    }

    #[test]
    fn a_place_passes_on_by_class_then_to_the_worst() {
        let three = Judge::Consecutive { failures: 1, passes: 1 };
        let mut trial = Trial::new(Rules { judge: three, ..rules() }, specs(6));
        trial.play([
            (1, fail_as(1, Reason::Slow), "EHHHHH m1 healthy -> unhealthy"),
            (2, fail_as(2, Reason::Status), "EEHHHH m2 healthy -> unhealthy"),
            (3, fail_as(3, Reason::Slow), "EEEHHH m3 healthy -> unhealthy"),
            // both slow ones are as bad; m3 was the later to fail
            (4, fail_as(4, Reason::Refused), "EEKEHH m4 healthy -> unhealthy, m3 ejected -> kept, normal -> capped"),
            (5, fail_as(5, Reason::Timeout), "KEKEEH m5 healthy -> unhealthy, m1 ejected -> kept"),
            // the longer streak is worse, and moves nobody until a place frees
            (6, fail_as(3, Reason::Slow), "KEKEEH"),
            (7, pass(2), "KHEEEH m2 unhealthy -> healthy, m3 kept -> ejected"),
            // a class is that of the fail that made it unhealthy: m1 is still a slow one
            (8, fail_as(1, Reason::Refused), "KHEEEH"),
            (9, pass(5), "EHEEHH m5 unhealthy -> healthy, m1 kept -> ejected, capped -> normal"),
        ]);
    }

    #[test]
    fn the_window_judge_counts_passes_and_the_earliest_goes_first() {
        let judge = Judge::Window { size: 4, required: 3 };
        let mut trial = Trial::new(Rules { judge, ..at_most(40) }, specs(5));
        for (at, act) in [(1, fail(2)), (1, fail(3)), (2, fail(3)), (3, fail(2)), (4, fail(1)), (5, fail(1))] {
            trial.at(at, act);
        }
        assert_eq!(trial.standings(), "KEEHH");
        // m1 gets worse than m2, which keeps its place; then m3 frees one
        trial.play([
            (6, fail(1), "KEEHH"),
            (7, fail(4), "KEEHH"),
            (8, fail(4), "KEEKH m4 healthy -> unhealthy"),
            (9, pass(3), "KEEKH"),
            (10, pass(3), "KEEKH"),
            (11, pass(3), "EEHKH m3 unhealthy -> healthy, m1 kept -> ejected"),
        ]);
    }

    #[test]
    fn of_the_equally_bad_the_earliest_to_fail_goes_first() {
        let mut trial = Trial::new(Rules { max_unhealthy_percent: 25, ..rules() }, specs(4));
        trial.play([
            (1, fail_as(1, Reason::Refused), "EHHH m1 healthy -> unhealthy"),
            (2, fail(3), "EHKH m3 healthy -> unhealthy, normal -> capped"),
            (3, fail(2), "EKKH m2 healthy -> unhealthy"),
            (4, pass(1), "HKEH m1 unhealthy -> healthy, m3 kept -> ejected"),
        ]);
    }

    #[test]
    fn equally_bad_ones_go_by_address_as_a_number() {
        let mut trial = Trial::new(Rules { max_unhealthy_percent: 10, ..rules() }, specs(12));
        // 10.0.0.2 before 10.0.0.12, though "10.0.0.12:80" is the smaller text
        trial.at(1, fail(12));
        trial.at(1, fail_as(3, Reason::Refused));
        trial.at(1, fail(2));
        assert_eq!(trial.standings(), "HKEHHHHHHHHK");
        assert_eq!(trial.at(2, pass(3)), "HEHHHHHHHHHK m3 unhealthy -> healthy, m2 kept -> ejected");
    }

    #[test]
    fn when_n_shrinks_the_best_ejected_is_released_in_the_same_step() {
        let mut trial = Trial::new(rules(), specs(4));
        trial.play([
            (1, fail(1), "EHHH m1 healthy -> unhealthy"),
            (2, fail_as(2, Reason::Refused), "EEHH m2 healthy -> unhealthy"),
            (3, admin(4, Admin::Draining), "KEHD m4 enabled -> draining, m1 ejected -> kept, normal -> capped"),
            (4, admin(4, Admin::Enabled), "EEHH m4 draining -> enabled, m1 kept -> ejected, capped -> normal"),
            (5, admin(2, Admin::Disabled), "EXHH m2 enabled -> disabled"),
        ]);
        let reload = Act::Reload(rules(), specs(3).into_iter().map(|spec| Spec { weight: 1, ..spec }).collect());
        assert_eq!(trial.at(6, reload), "EXH");
        let lighter = Act::Reload(rules(), vec![spec(1), spec(2), spec(3), Spec { weight: 0, ..spec(4) }]);
        assert_eq!(trial.at(7, lighter), "EXHD");
        assert_eq!(trial.pool.picture().ejectable, 1);
    }

    #[test]
    fn a_pool_of_one_is_never_emptied() {
        // Case C18
        for percent in [1, 50, 100] {
            let mut trial = Trial::new(Rules { min_ejected: 1, ..at_most(percent) }, specs(1));
            trial.at(1, fail(1));
            let picture = trial.pool.picture();
            assert_eq!((picture.mode, picture.in_rotation), (Mode::Fallback, 1));
            assert_eq!(picture.standings, [Standing::Fallback]);
            assert_eq!(trial.member(1).cause(), Some(Reason::Status));
        }
    }
}
