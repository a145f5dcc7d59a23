//! What can be said of the next first pick without making it: for people, never for a request.

use std::sync::atomic::AtomicUsize;

use super::{Balancer, Form, Way};

impl Balancer {
    /// Whether turns, loads and how members do alone say who is picked first for a request without a key; else a draw does
    /// too.
    pub fn is_settled(&self, turn: &AtomicUsize, form: impl Fn(usize) -> Form) -> bool {
        let all = self.candidates().len();
        match &self.way {
            Way::RoundRobin(_) | Way::Fastest(_) => true,
            Way::LeastRequests(way) => way.looks_at_all(all),
            Way::PeakEwma(way) => all <= 1 || way.is_settled(&self.roster, turn, form),
            Way::Random => all <= 1,
        }
    }

    /// Whether the candidate at this place has first picks at all, as far as that does not go by loads.
    pub fn may_be_first(&self, place: usize) -> bool {
        match &self.way {
            Way::Fastest(way) => way.places().binary_search(&(place as u32)).is_ok(),
            Way::PeakEwma(way) => way.places().binary_search(&(place as u32)).is_ok(),
            Way::RoundRobin(_) | Way::LeastRequests(_) | Way::Random => true,
        }
    }

    /// The part of the first picks for requests without a key that each candidate gets in the long run, in their order, as
    /// long as nothing changes; `None` where that goes by the requests they have, and no share is anybody's.
    pub fn shares(&self) -> Option<Vec<f64>> {
        let units = |place: usize| self.roster.wheel().width(self.roster.rank(place)) as f64;
        let mut shares: Vec<f64> = (0..self.candidates().len()).map(units).collect();
        match &self.way {
            Way::LeastRequests(_) | Way::PeakEwma(_) => return None,
            Way::Fastest(_) => {
                (0..shares.len()).filter(|place| !self.may_be_first(*place)).for_each(|place| shares[place] = 0.0);
            }
            Way::RoundRobin(_) | Way::Random => {}
        }
        let all: f64 = shares.iter().sum();
        Some(shares.into_iter().map(|share| share / all).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::Form;
    use crate::balance::tests::{MEMORY, member, weighted};
    use crate::balance::{Balancer, Candidate, Policy};

    fn timed(index: usize, ms: u64) -> Candidate {
        Candidate { latency: Some(Duration::from_millis(ms)), ..member(index) }
    }

    #[test]
    fn shares_are_what_many_picks_come_to() {
        let fastest = Policy::Fastest { sensitivity: Duration::from_millis(20) };
        let rows = [
            (Policy::RoundRobin, weighted(&[5, 1, 1])),
            (Policy::Random, weighted(&[2, 1])),
            (fastest, vec![timed(0, 50), timed(1, 75), timed(2, 60)]),
        ];
        for (policy, candidates) in rows {
            let balancer = Balancer::new(&policy, candidates);
            let (turn, mut hits) = (AtomicUsize::new(0), vec![0.0; balancer.candidates().len()]);
            for step in 0..8_400_u64 {
                let draw = (u64::MAX / 8_400) * step;
                let picked = balancer.pick(&turn, draw, |_| 0, &[]).expect("somebody");
                hits[picked] += 1.0 / 8_400.0;
            }
            let shares = balancer.shares().expect("shares");
            let near = shares.iter().zip(&hits).all(|(share, hit)| (share - hit).abs() < 0.01);
            assert!(near, "{policy:?}: {shares:?} {hits:?}");
        }
        assert_eq!(Balancer::new(&Policy::LeastRequests { choices: 2 }, weighted(&[1, 1])).shares(), None);
    }

    /// Who is fast takes its turn; a slow one may keep its own or not.
    #[test]
    fn by_form_it_is_settled_while_it_is_the_turn_of_a_fast_one() {
        let of = |members| Balancer::new(&Policy::PeakEwma(MEMORY), (0..members).map(member).collect());
        let form = |index: usize| Form::new(Some(Duration::from_millis(1 + 499 * (index as u64 % 2))), 0.0);
        for (members, turn) in [(2, 0), (2, 1), (8, 4), (8, 5), (9, 4), (1, 0)] {
            let (balancer, turns) = (of(members), || AtomicUsize::new(turn));
            let expected = members == 1 || members <= 8 && turn % 2 == 0;
            assert_eq!(balancer.is_settled(&turns(), form), expected, "{members} {turn}");
            let draws = (0..64_u64).map(|step| balancer.pick_by_form(&turns(), step << 58, form, &[]));
            let picked: std::collections::BTreeSet<_> = draws.collect();
            assert!(picked.len() == 1 || !expected, "{members} {turn}: {picked:?}");
        }
        assert_eq!(of(2).shares(), None);
    }

    #[test]
    fn what_is_settled_is_the_same_whatever_is_drawn() {
        let fastest = Policy::Fastest { sensitivity: Duration::ZERO };
        let rows = [
            (Policy::RoundRobin, 9, true),
            (fastest, 9, true),
            (Policy::LeastRequests { choices: 2 }, 8, true),
            (Policy::LeastRequests { choices: 2 }, 9, false),
            (Policy::Random, 9, false),
            (Policy::Random, 1, true),
        ];
        for (policy, members, expected) in rows {
            let balancer = Balancer::new(&policy, (0..members).map(member).collect());
            let form = |_| Form::default();
            assert_eq!(balancer.is_settled(&AtomicUsize::new(3), form), expected, "{policy:?} {members}");
            let load = |index: usize| if index == 3 { 5 } else { 0 };
            let pick = |draw| balancer.pick(&AtomicUsize::new(3), draw, load, &[]);
            let draws = (0..64_u64).map(|step| pick((u64::MAX / 64) * step));
            let picked: std::collections::BTreeSet<_> = draws.collect();
            assert_eq!(picked.len() == 1, expected, "{policy:?} {members}: {picked:?}");
        }
    }
}
