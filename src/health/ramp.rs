//! Slow start: a member that comes back has a part of its weight at first, and more of it step by step (health.md §7).
//!
//! A ramp is its member's own: it runs by time, whatever becomes of the others, and no reload begins it anew. Whether it
//! counts is a matter of all of them: not while somebody is kept, nor where everybody who serves came up together, when
//! nobody had been healthy for long. Else each has its part of what they have together, even if all have one: of three that are
//! restarted one after the other the last is as cold as the first was.
//!
//! Not here: what a part of a weight means for a pick (`balance`, through `pool`).

use std::time::Duration;

use super::{Member, Rules, Standing, Verdict};

/// So many steps, all of one length: the first has a tenth of the weight, the last all of it.
const STEPS: u32 = 10;

/// The part of its weight that a member has while it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ramp {
    step: u32,
}

impl Ramp {
    /// The whole weight, in tenths.
    pub const WHOLE: u32 = STEPS;

    /// At `now`, of one that began at `begun` and takes `whole`; `None` where it is over.
    fn at(begun: Duration, now: Duration, whole: Duration) -> Option<Ramp> {
        let passed = now.saturating_sub(begun).as_nanos().saturating_mul(u128::from(STEPS));
        let step = passed.checked_div(whole.as_nanos())?.saturating_add(1);
        (step < u128::from(STEPS)).then_some(Ramp { step: step as u32 })
    }

    /// When the step after this one begins.
    fn ends(self, begun: Duration, whole: Duration) -> Duration {
        let passed = (whole.as_nanos() * u128::from(self.step)).div_ceil(u128::from(STEPS));
        begun.saturating_add(Duration::from_nanos(passed as u64))
    }

    /// The part in tenths, 1 to 9.
    pub fn tenths(self) -> u32 {
        self.step
    }

    /// The part, over 0 and under 1.
    pub fn part(self) -> f64 {
        f64::from(self.step) / f64::from(STEPS)
    }
}

/// Begins the ramps of those who have just turned healthy, by how each stood `before`, and ends those that are over.
///
/// Only who was out ramps. Who served all the same, kept or in the fallback, has no need of it; nor who turns healthy by
/// nothing but an operator's word, nor a newcomer that the configuration calls healthy.
pub(super) fn follow(rules: &Rules, members: &mut [Member], before: &[Standing], now: Duration) {
    // Whoever comes so long after another has not come up with it: that one is warm.
    let is_warm = |member: &Member| {
        let is_young = |begun: Duration| now.saturating_sub(begun) <= rules.initial_wait;
        member.was_healthy && member.healthy() && !member.back_since.is_some_and(is_young)
    };
    let somebody_is_warm = members.iter().any(is_warm);
    for (index, member) in members.iter_mut().enumerate() {
        let is_healthy = member.healthy();
        let was_healthy = std::mem::replace(&mut member.was_healthy, is_healthy);
        let was_out = matches!(before.get(index), Some(Standing::Ejected | Standing::Unknown));
        if is_healthy && !was_healthy && was_out {
            member.back_since = Some(now);
            member.is_of_the_start &= !somebody_is_warm;
        }
        member.is_of_the_start &= is_healthy || !was_healthy;
        let is_fit = member.verdict() == Verdict::Healthy;
        member.back_since =
            member.back_since.filter(|begun| is_fit && Ramp::at(*begun, now, rules.slow_start).is_some());
    }
}

/// The ramps that count, parallel to `members`; nothing where none does. Then the next moment at which a step begins.
pub(super) fn ramps(
    rules: &Rules,
    members: &[Member],
    standings: &[Standing],
    now: Duration,
) -> (Vec<Option<Ramp>>, Option<Duration>) {
    let of = |member: &Member| Ramp::at(member.back_since?, now, rules.slow_start);
    let end = |member: &Member| Some(of(member)?.ends(member.back_since?, rules.slow_start));
    let Some(next) = members.iter().filter_map(end).min() else { return (Vec::new(), None) };
    let ramp = |(member, standing): (&Member, &Standing)| of(member).filter(|_| *standing == Standing::Healthy);
    let ramps: Vec<Option<Ramp>> = members.iter().zip(standings).map(ramp).collect();
    let serving = || members.iter().zip(standings).zip(&ramps).filter(|((_, standing), _)| standing.takes_traffic());
    let came_up_together = serving().all(|((member, _), ramp)| ramp.is_some() && member.is_of_the_start);
    // A part is one of what others have: alone nobody has less than all.
    let counts = !standings.contains(&Standing::Kept) && !came_up_together && serving().nth(1).is_some();
    let some = counts && ramps.iter().any(Option::is_some);
    (if some { ramps } else { Vec::new() }, Some(next))
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Act, Trial, admin, fail, ms, pass, rules, spec, specs, tiers};
    use super::super::{Admin, Initial, Spec};
    use super::*;

    fn slow() -> Rules {
        Rules { slow_start: ms(1_000), ..rules() }
    }

    /// Who stands how, with the tenths of those who ramp: `H3` has three.
    fn shown(trial: &Trial) -> String {
        let letters = trial.standings();
        let ramp = |index| trial.pool.picture().ramp(index).map_or(String::new(), |ramp| ramp.tenths().to_string());
        letters.chars().enumerate().map(|(index, letter)| format!("{letter}{}", ramp(index))).collect()
    }

    /// Plays rows of (when in ms, what happens, who stands how after it).
    fn play<const N: usize>(trial: &mut Trial, rows: [(u64, Act, &str); N]) {
        for (row, (at, act, expected)) in rows.into_iter().enumerate() {
            let said = format!("row {row} at {at}: {act:?}");
            trial.at(at, act);
            assert_eq!(shown(trial), expected, "{said}");
        }
    }

    #[test]
    fn a_member_that_comes_back_has_its_weight_in_ten_steps() {
        let mut trial = Trial::new(slow(), specs(3));
        play(&mut trial, [(5, fail(1), "EHH"), (1_000, pass(1), "H1HH")]);
        for step in 1..10 {
            let (at, before) = (1_000 + step * 100, shown(&trial));
            assert_eq!(trial.pool.next_deadline(), Some(ms(at)));
            assert_eq!(trial.at(at - 1, Act::Wait), "HHH");
            assert_eq!(shown(&trial), before, "not before its time");
            assert_eq!(trial.at(at, Act::Wait), "HHH", "a step is no change that is told");
            assert_eq!(shown(&trial), if step == 9 { "HHH".to_owned() } else { format!("H{}HH", step + 1) });
        }
        assert_eq!((trial.pool.next_deadline(), trial.member(1).back_since()), (None, None));
    }

    #[test]
    fn whatever_happens_to_others_a_ramp_goes_by_its_own_time() {
        let mut trial = Trial::new(slow(), specs(5));
        let other = || Rules { max_unhealthy_percent: 60, ..slow() };
        let steps = [
            (0, fail(1), "EHHHH"),
            (0, fail(2), "EEHHH"),
            (100, pass(1), "H1EHHH"),
            (350, pass(2), "H3H1HHH"),
            (500, fail(3), "H5H2EHH"),
            (600, Act::Reload(slow(), specs(5)), "H6H3EHH"),
            (650, Act::Reload(other(), specs(5)), "H6H4EHH"),
            // A late step is the one that it is time for.
            (890, pass(4), "H8H6EHH"),
            (950, pass(3), "H9H7H1HH"),
            (1_000, admin(5, Admin::Disabled), "HH7H1HX"),
            // Who fails again begins again.
            (1_010, fail(2), "HEH1HX"),
            (1_100, pass(2), "HH1H2HX"),
        ];
        play(&mut trial, steps);
    }

    #[test]
    fn nobody_ramps_who_served_all_the_same_and_nobody_while_somebody_does() {
        let mut trial = Trial::new(slow(), specs(4));
        let steps = [
            (0, fail(1), "EHHH"),
            (0, fail(2), "EEHH"),
            (0, fail(3), "EEKH"),
            (100, pass(3), "EEHH"),
            (200, pass(2), "EH1HH"),
            (300, fail(3), "EH2EH"),
            // The third one out is kept, and the second has all of its share beside it, as long as that lasts.
            (400, fail(4), "EHEK"),
            (500, pass(4), "EH4EH"),
            (600, fail(4), "EHEK"),
            // Nobody is healthy, and everybody serves: whoever is the first again has served.
            (600, fail(2), "FFFF"),
            (700, pass(2), "EHEK"),
            (800, pass(1), "H1HEE"),
        ];
        play(&mut trial, steps);
    }

    #[test]
    fn where_everybody_came_up_with_the_pool_everybody_has_its_weight() {
        let mut trial = Trial::new(Rules { initial: Initial::Probe, ..slow() }, specs(3));
        let steps = [
            (10, pass(1), "H??"),
            (210, pass(2), "HH?"),
            (910, Act::Wait, "HH8?"),
            (920, pass(3), "HH8H1"),
            // It came when the first was warm: it has not come up with the others.
            (930, fail(1), "EH8H1"),
            (1_110, Act::Wait, "EHH2"),
        ];
        play(&mut trial, steps);

        let mut trial = Trial::new(Rules { initial: Initial::Probe, initial_wait: ms(100), ..slow() }, specs(3));
        let steps = [(10, pass(1), "H??"), (110, pass(2), "HH?"), (400, fail(3), "HH?"), (411, pass(3), "H5H4H1")];
        play(&mut trial, steps);
    }

    #[test]
    fn where_all_are_restarted_one_after_the_other_each_comes_back_cold() {
        let rolling = || Rules { max_unhealthy_percent: 100, ..slow() };
        let mut trial = Trial::new(rolling(), specs(3));
        let steps = [
            (0, fail(1), "EHH"),
            (100, pass(1), "H1HH"),
            (200, fail(2), "H2EH"),
            (300, pass(2), "H3H1H"),
            (400, fail(3), "H4H2E"),
            (500, pass(3), "H5H3H1"),
            (600, fail(1), "EH4H2"),
            // Alone nobody has less than all.
            (700, fail(2), "EEH"),
            // A newcomer is as cold, whoever else comes back.
            (800, Act::Reload(Rules { initial: Initial::Probe, ..rolling() }, specs(4)), "EEH?"),
            (900, pass(4), "EEH5H1"),
        ];
        play(&mut trial, steps);
    }

    #[test]
    fn who_begins_healthy_returns_or_is_let_in_by_hand_has_not_come_back() {
        let mut trial = Trial::new(slow(), vec![spec(1), spec(2), Spec { weight: 0, ..spec(3) }]);
        let steps = [
            (10, admin(1, Admin::Draining), "DHD"),
            (20, admin(1, Admin::Enabled), "HHD"),
            (30, Act::Reload(slow(), specs(4)), "HHHH"),
            // One that was disabled is unknown, and its first pass brings it back.
            (40, admin(1, Admin::Disabled), "XHHH"),
            (50, admin(1, Admin::Enabled), "?HHH"),
            (60, pass(1), "H1HHH"),
            (150, admin(1, Admin::Draining), "DHHH"),
            (160, admin(1, Admin::Enabled), "H2HHH"),
            // Its time is another, or none at all.
            (170, Act::Reload(Rules { slow_start: ms(200), ..rules() }, specs(4)), "H6HHH"),
            (180, Act::Reload(rules(), specs(4)), "HHHH"),
            (190, Act::Reload(slow(), specs(4)), "HHHH"),
        ];
        play(&mut trial, steps);
    }

    #[test]
    fn a_tier_that_takes_over_does_so_with_all_its_weight() {
        let mut trial = Trial::new(slow(), tiers(&[2, 2]));
        let steps = [
            (0, fail(1), "EHSS"),
            (0, fail(2), "SSHH"),
            (100, fail(3), "SSEH"),
            (200, pass(3), "SSH1H"),
            (300, pass(1), "HESS"),
            (400, fail(1), "SSH3H"),
        ];
        play(&mut trial, steps);
    }

    #[test]
    fn steps_are_a_tenth_of_the_time_each_however_odd_that_is() {
        for whole in [1, 9, 10, 1_000_003, 30_000_000_000, u64::MAX / 2].map(Duration::from_nanos) {
            let begun = Duration::from_secs(7);
            let (mut now, mut tenths) = (begun, Vec::new());
            while let Some(ramp) = Ramp::at(begun, now, whole) {
                tenths.push(ramp.tenths());
                let next = ramp.ends(begun, whole);
                assert!(next > now && next <= begun + whole, "{whole:?}");
                assert_eq!(Ramp::at(begun, next - Duration::from_nanos(1), whole), Some(ramp), "{whole:?}");
                now = next;
            }
            assert!(tenths.is_sorted() && tenths[0] == 1, "{tenths:?}");
            assert!(whole < Duration::from_nanos(10) || tenths == (1..10).collect::<Vec<_>>(), "{whole:?}: {tenths:?}");
        }
        assert_eq!(Ramp::at(Duration::ZERO, Duration::ZERO, Duration::ZERO), None);
    }
}
