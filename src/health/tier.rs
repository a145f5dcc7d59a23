//! Which tier serves (health.md §4).
//!
//! Not here: what the members of a tier that serves, or does not, stand as (`picture`).

use super::{Member, Rules};

/// What one tier has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    /// Members, whatever is wanted of them.
    pub(super) members: usize,
    /// Enabled, of weight > 0.
    pub(super) counting: usize,
    /// Of those, with an address.
    pub(super) reachable: usize,
    /// Of those, healthy.
    pub(super) healthy: usize,
    /// Of those that count, never been healthy.
    pub(super) unproven: usize,
}

/// One tally a tier, by its rank; ranks nobody has are empty.
pub(super) fn tally(members: &[Member]) -> Vec<Tally> {
    let mut tallies = Vec::new();
    for member in members {
        let tier = usize::from(member.spec().tier);
        if tallies.len() <= tier {
            tallies.resize(tier + 1, Tally::default());
        }
        let tally: &mut Tally = &mut tallies[tier];
        tally.members += 1;
        tally.counting += usize::from(member.counts());
        tally.reachable += usize::from(member.reachable());
        tally.healthy += usize::from(member.healthy());
        tally.unproven += usize::from(member.counts() && !member.proven());
    }
    tallies
}

/// The tier that serves: the first with enough healthy members, or else the first with any.
pub(super) fn elect(rules: &Rules, tallies: &[Tally]) -> Option<usize> {
    let enough = |tier: usize| meets(rules, tallies, tier, tallies[tier].healthy);
    (0..tallies.len()).find(|tier| enough(*tier)).or_else(|| tallies.iter().position(|tally| tally.healthy > 0))
}

/// Whether a first verdict yet to come could put a better tier in the place of the `elected` one.
pub(super) fn undecided(rules: &Rules, tallies: &[Tally], elected: Option<usize>) -> bool {
    let could_be_enough = |tier: usize| {
        let Tally { healthy, unproven, .. } = tallies[tier];
        unproven > 0 && meets(rules, tallies, tier, healthy + unproven)
    };
    let nobody_has_enough = |elected: usize| !meets(rules, tallies, elected, tallies[elected].healthy);
    match elected {
        None => tallies.iter().any(|tally| tally.unproven > 0),
        Some(elected) => {
            (0..elected).any(|tier| could_be_enough(tier) || tallies[tier].unproven > 0 && nobody_has_enough(elected))
        }
    }
}

/// A share of 0 % is not enough where nobody is healthy: a dead tier must not serve while a lower one could (case C31).
fn meets(rules: &Rules, tallies: &[Tally], tier: usize, healthy: usize) -> bool {
    let is_lowest = tier + 1 == tallies.len();
    let percent = match rules.tier_min_healthy_percent {
        Some(percent) => percent,
        None if is_lowest => 0,
        None => 100_u8.saturating_sub(rules.max_unhealthy_percent),
    };
    healthy > 0 && healthy * 100 >= usize::from(percent) * tallies[tier].counting
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, ms, pass, rules, spec, tiers};
    use super::super::{Admin, Initial, Mode, Spec};
    use super::*;

    /// Two tiers of five with the last ones healthy, as `mode: standings`.
    fn two_tiers(rules: &Rules, healthy: [usize; 2]) -> String {
        let mut trial = Trial::new(rules.clone(), tiers(&[5, 5]));
        for (tier, healthy) in healthy.into_iter().enumerate() {
            for member in 1..=5 - healthy {
                trial.at(1, fail(5 * tier + member));
            }
        }
        let standings = trial.standings();
        let (upper, lower) = standings.split_at(5);
        format!("{} {upper} {lower}", trial.pool.picture().mode.as_str())
    }

    #[test]
    fn a_dead_tier_gets_nothing_while_another_has_some_health() {
        // Case C31, golden: cap 50 %, so that tier 0 serves with 3 of 5.
        let expected = [
            ["fallback FFFFF FFFFF", "failover SSSSS EEKKH", "failover SSSSS EEKHH"],
            ["capped EEKKH SSSSS", "failover SSSSS EEKKH", "failover SSSSS EEKHH"],
            ["capped EEKHH SSSSS", "failover SSSSS EEKKH", "failover SSSSS EEKHH"],
            ["normal EEHHH SSSSS", "normal EEHHH SSSSS", "normal EEHHH SSSSS"],
            ["normal EHHHH SSSSS", "normal EHHHH SSSSS", "normal EHHHH SSSSS"],
            ["normal HHHHH SSSSS", "normal HHHHH SSSSS", "normal HHHHH SSSSS"],
        ];
        let lower = ["EEHHH", "EHHHH", "HHHHH"];
        for (upper_healthy, row) in expected.into_iter().enumerate() {
            for (lower_healthy, expected) in row.into_iter().enumerate() {
                assert_eq!(two_tiers(&rules(), [upper_healthy, lower_healthy]), expected);
            }
            for (lower_healthy, lower) in (3..).zip(lower) {
                let expected = if upper_healthy < 3 { format!("failover SSSSS {lower}") } else { row[2].to_owned() };
                assert_eq!(two_tiers(&rules(), [upper_healthy, lower_healthy]), expected);
            }
        }
    }

    #[test]
    fn a_tier_of_a_pool_that_may_eject_all_serves_with_its_last() {
        let all = Rules { max_unhealthy_percent: 100, ..rules() };
        let rows = [([0, 1], "failover SSSSS EEEEH"), ([1, 5], "normal EEEEH SSSSS"), ([0, 0], "fallback FFFFF FFFFF")];
        for (healthy, expected) in rows {
            assert_eq!(two_tiers(&all, healthy), expected);
        }
    }

    #[test]
    fn a_written_share_holds_for_the_lowest_tier_too() {
        let written = |percent| Rules { tier_min_healthy_percent: Some(percent), ..rules() };
        let rows = [
            (80, [4, 5], "normal EHHHH SSSSS"),
            (80, [3, 4], "failover SSSSS EHHHH"),
            // neither has enough: the first that has any
            (80, [3, 3], "normal EEHHH SSSSS"),
            (80, [0, 1], "failover SSSSS EEKKH"),
            (0, [0, 5], "failover SSSSS HHHHH"),
            (0, [1, 5], "capped EEKKH SSSSS"),
        ];
        for (percent, healthy, expected) in rows {
            assert_eq!(two_tiers(&written(percent), healthy), expected, "{percent} %");
        }
    }

    #[test]
    fn without_enough_anywhere_the_first_with_any_serves_until_a_lower_one_has_enough() {
        // Example 7 with a third tier.
        let mut trial = Trial::new(rules(), tiers(&[5, 5, 1]));
        for member in [6, 7, 8, 9, 1, 2, 3, 4, 5] {
            trial.at(member as u64, fail(member));
        }
        assert_eq!(trial.standings(), "SSSSSSSSSSH");
        trial.play([
            (20, fail(11), "SSSSSEEKKHS m11 healthy -> unhealthy, tier 2 -> 1"),
            (21, pass(11), "SSSSSSSSSSH m11 unhealthy -> healthy, tier 1 -> 2"),
            (22, pass(1), "SSSSSSSSSSH m1 unhealthy -> healthy"),
            (23, pass(2), "SSSSSSSSSSH m2 unhealthy -> healthy"),
            (24, pass(3), "HHHEESSSSSS m3 unhealthy -> healthy, tier 2 -> 0, failover -> normal"),
        ]);
    }

    #[test]
    fn the_first_tier_is_the_first_written_even_when_nobody_there_may_serve() {
        let mut trial = Trial::new(rules(), vec![Spec { tier: 3, ..spec(1) }, Spec { tier: 7, ..spec(2) }]);
        assert_eq!(trial.pool.picture().tier, Some(3));
        assert_eq!(trial.pool.picture().mode, Mode::Normal);
        assert_eq!(
            trial.at(1, admin(1, Admin::Draining)),
            "DH m1 enabled -> draining, tier 3 -> 7, normal -> failover"
        );
    }

    #[test]
    fn a_better_tier_is_waited_for_only_while_it_could_serve() {
        let probe = Rules { initial: Initial::Probe, ..rules() };
        let mut trial = Trial::new(probe.clone(), tiers(&[2, 1]));
        trial.play([
            (1, pass(3), "??S m3 unknown -> healthy"),
            (2, fail(1), "??S m1 unknown -> unhealthy"),
            (3, pass(2), "?HS m2 unknown -> healthy, tier none -> 0, waiting -> normal"),
        ]);
        let mut trial = Trial::new(probe.clone(), tiers(&[2, 1]));
        trial.play([
            (1, pass(3), "??S m3 unknown -> healthy"),
            (999, Act::Wait, "??S"),
            (1_000, Act::Wait, "??H tier none -> 1, waiting -> failover"),
        ]);
        // half of tier 0 is enough, and all of it may come
        let mut trial = Trial::new(probe.clone(), tiers(&[4, 1]));
        trial.play([
            (1, pass(5), "????S m5 unknown -> healthy"),
            (2, pass(1), "S???S m1 unknown -> healthy"),
            (3, pass(4), "H??HS m4 unknown -> healthy, tier none -> 0, waiting -> normal"),
        ]);
        // nobody waits for one that is not to serve
        let aside = vec![Spec { admin: Admin::Draining, ..spec(1) }, Spec { tier: 1, ..spec(2) }];
        let mut trial = Trial::new(probe.clone(), aside);
        assert_eq!(trial.at(1, pass(2)), "DH m2 unknown -> healthy, tier none -> 1, waiting -> failover");
        // tier 0 has three proven ones, and a fourth cannot make half of it healthy
        let mut trial = Trial::new(Rules { initial: Initial::Healthy, ..probe.clone() }, tiers(&[3, 1]));
        (1..=3).for_each(|member| drop(trial.at(1, fail(member))));
        let grown = vec![spec(1), spec(2), spec(3), Spec { tier: 1, ..spec(4) }, spec(5)];
        assert_eq!(trial.at(2, Act::Reload(probe.clone(), grown)), "SSSH?");
        assert!(trial.pool.rules().initial_wait > ms(2), "within the first wait");
        // but it is waited for where no tier has enough, and any health would make the better one serve
        let healthy = Rules { initial: Initial::Healthy, ..probe.clone() };
        let mut trial = Trial::new(healthy, tiers(&[3, 3, 1]));
        [1, 2, 3, 4, 5, 7].iter().for_each(|member| drop(trial.at(1, fail(*member))));
        assert_eq!(trial.standings(), "SSSEKHS");
        let grown = tiers(&[3, 3, 1]).into_iter().chain([spec(8)]).collect();
        assert_eq!(trial.at(2, Act::Reload(probe, grown)), "SSSSSSS? tier 1 -> none, failover -> waiting");
        assert_eq!(trial.at(3, pass(8)), "EEKSSSSH m8 unknown -> healthy, tier none -> 0, waiting -> capped");
    }
}
