//! Who drains and still serves the clients that are bound to it, and until when (health.md §7).
//!
//! The time is the member's own: it begins when the member begins to drain, and neither probes nor reloads begin it anew.
//! Not here: which client is bound to whom (a matter of requests), and that nothing new comes (`picture`).

use std::time::Duration;

use super::{Member, Rules, Verdict};

/// Those who drain and serve on, by their place, each with the end of its time; `serving` is the tier that serves.
///
/// One serves on where it would serve if it did not drain: while it is healthy, and no other tier serves. That the others
/// may all be unfit changes nothing: it has no part in the fallback, neither as one who serves nor as one who is replaced.
pub(super) fn leaving(rules: &Rules, members: &[Member], serving: Option<usize>) -> Vec<(usize, Duration)> {
    let serves_on = |member: &Member| {
        let is_healthy = member.verdict() == Verdict::Healthy && member.spec().key.address.is_some();
        is_healthy && serving.is_none_or(|tier| usize::from(member.spec().tier) == tier)
    };
    let leaving = members.iter().enumerate().filter(|(_, member)| serves_on(member));
    leaving.filter_map(|(index, member)| Some((index, member.drains_until(rules)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, ms, pass, rules, spec, specs, tiers};
    use super::super::{Admin, OnAllUnhealthy, Rules, Spec};

    fn for_a_second() -> Rules {
        Rules { drain: ms(1_000), ..super::super::trial::rules() }
    }

    /// Whether clients that are bound to `m1`, `m2`, … may go there, a letter a member.
    fn bound(trial: &Trial, at: u64) -> String {
        let places = 0..trial.pool.members().len();
        places.map(|index| if trial.pool.picture().takes_bound(index, ms(at)) { 'y' } else { '-' }).collect()
    }

    #[test]
    fn bound_clients_are_served_until_the_time_of_the_drain_is_over() {
        let mut trial = Trial::new(for_a_second(), specs(3));
        trial.at(1, fail(3));
        assert_eq!(bound(&trial, 1), "yy-", "whoever serves, and nobody else");
        trial.at(10, admin(1, Admin::Draining));
        assert_eq!(
            (trial.standings(), bound(&trial, 1_009), bound(&trial, 1_010)),
            ("DHE".into(), "yy-".into(), "-y-".into())
        );
        assert_eq!(trial.pool.drains_until(trial.member(1)), Some(ms(1_010)));
        trial.at(20, admin(2, Admin::Disabled));
        assert_eq!(bound(&trial, 20), "y-y", "the third is the fallback, and a disabled one serves nobody");
        assert!(!trial.pool.picture().takes_bound(9, ms(20)));
    }

    #[test]
    fn the_time_goes_on_over_probes_reloads_and_another_word_to_the_same_effect() {
        let mut trial = Trial::new(for_a_second(), specs(2));
        trial.at(100, admin(1, Admin::Draining));
        let light = || vec![Spec { weight: 0, ..spec(1) }, spec(2)];
        let steps = [
            (200, fail(1), "-y"),
            (300, pass(1), "yy"),
            (400, Act::Reload(for_a_second(), specs(2)), "yy"),
            (500, admin(1, Admin::Draining), "yy"),
            (600, Act::Reload(for_a_second(), light()), "yy"),
            (700, admin(1, Admin::Enabled), "yy"),
            (1_099, Act::Wait, "yy"),
            (1_100, Act::Wait, "-y"),
        ];
        for (at, act, expected) in steps {
            trial.at(at, act);
            assert_eq!((trial.standings().as_str(), bound(&trial, at).as_str()), ("DH", expected), "at {at}");
            assert_eq!(trial.member(1).draining_since(), Some(ms(100)), "at {at}");
        }
        // What a reload says of the time holds at once, and whoever took part again drains from then on.
        trial.at(1_200, Act::Reload(Rules { drain: ms(1_200), ..rules() }, light()));
        assert_eq!((bound(&trial, 1_299), bound(&trial, 1_300)), ("yy".into(), "-y".into()));
        trial.at(1_400, Act::Reload(for_a_second(), specs(2)));
        assert_eq!((trial.standings().as_str(), trial.member(1).draining_since()), ("HH", None));
        trial.at(1_500, admin(1, Admin::Draining));
        assert_eq!((bound(&trial, 2_499), bound(&trial, 2_500)), ("yy".into(), "-y".into()));
    }

    #[test]
    fn whoever_drains_serves_its_own_also_where_nobody_else_is_fit() {
        let drained = |rules: Rules| {
            let mut trial = Trial::new(rules, specs(2));
            trial.at(1, admin(1, Admin::Draining));
            trial.at(2, fail(2));
            (trial.standings(), bound(&trial, 3))
        };
        assert_eq!(drained(for_a_second()), ("DF".into(), "yy".into()));
        let fails = Rules { on_all_unhealthy: OnAllUnhealthy::Fail, ..for_a_second() };
        assert_eq!(drained(fails), ("DE".into(), "y-".into()));
        let mut alone = Trial::new(for_a_second(), specs(1));
        alone.at(1, admin(1, Admin::Draining));
        assert_eq!(bound(&alone, 2), "y");
    }

    #[test]
    fn nobody_is_bound_to_a_tier_that_does_not_serve() {
        let mut trial = Trial::new(for_a_second(), tiers(&[3, 1]));
        trial.at(1, admin(1, Admin::Draining));
        assert_eq!((trial.standings().as_str(), bound(&trial, 2).as_str()), ("DHHS", "yyy-"));
        trial.at(3, fail(2));
        trial.at(4, fail(3));
        assert_eq!((trial.standings().as_str(), bound(&trial, 5).as_str()), ("DSSH", "---y"));
    }

    #[test]
    fn a_drain_of_no_time_keeps_nobody() {
        let mut trial = Trial::new(Rules { drain: ms(0), ..rules() }, specs(2));
        trial.at(5, admin(1, Admin::Draining));
        assert_eq!(bound(&trial, 5), "-y");
    }
}
