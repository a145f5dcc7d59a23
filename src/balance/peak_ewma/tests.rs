//! The policy in a small world: members that answer after so long, and requests that come at an even pace.

use super::super::form::{Answered, Peak, failing_after};
use super::super::tests::{MEMORY, member, weighted};
use super::super::{Balancer, Candidate, Policy};
use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn balancer(candidates: Vec<Candidate>) -> Balancer {
    Balancer::new(&Policy::PeakEwma(MEMORY), candidates)
}

fn form(peak_ms: u64) -> Form {
    Form::new(Some(ms(peak_ms)), 0.0)
}

/// How often each is picked of 6,000 while members do so.
fn shares(balancer: &Balancer, forms: &[Form], tried: &[usize]) -> Vec<u32> {
    let (turn, mut draw, mut hits) = (AtomicUsize::new(0), 7, vec![0; forms.len()]);
    for _ in 0..6_000 {
        draw = again(draw);
        if let Some(index) = balancer.pick_by_form(&turn, draw, |index| forms[index], tried) {
            hits[index] += 1;
        }
    }
    hits
}

/// What a member does with a request that comes at this time.
type Story = fn(Duration) -> Reply;

/// When its first byte comes, and whether it is a success.
#[derive(Clone, Copy)]
struct Reply(u64, Answered);

fn well(ms: u64) -> Reply {
    Reply(ms, Answered::Well)
}

#[derive(Clone)]
struct Live {
    peak: Peak,
    failing: f32,
    /// When each began that is awaited, when it ends, and how.
    awaited: Vec<(Duration, Duration, Answered)>,
}

/// Whom each request went to, one every `pace`.
fn play(stories: &[Story], pace: Duration, requests: u32) -> Vec<usize> {
    let balancer = balancer((0..stories.len()).map(member).collect());
    let mut live = vec![Live { peak: Peak::NONE, failing: 0.0, awaited: Vec::new() }; stories.len()];
    let (turn, mut draw) = (AtomicUsize::new(0), 3);
    let request = |number: u32| {
        let now = pace * number;
        live.iter_mut().for_each(|one| one.go_on(now));
        draw = again(draw);
        let picked = balancer.pick_by_form(&turn, draw, |index| live[index].form(now), &[]);
        let picked = picked.expect("they are candidates");
        let Reply(took, answered) = stories[picked](now);
        live[picked].awaited.push((now, now + ms(took), answered));
        picked
    };
    (0..requests).map(request).collect()
}

impl Live {
    fn go_on(&mut self, now: Duration) {
        self.awaited.sort_by_key(|(_, end, _)| *end);
        while let Some((began, end, answered)) = self.awaited.first().copied().filter(|(_, end, _)| *end <= now) {
            self.awaited.remove(0);
            self.peak = match answered {
                Answered::Well => self.peak.answered(end, end - began, MEMORY),
                Answered::Badly => self.peak.gave_nothing(end, end - began, MEMORY),
            };
            self.failing = failing_after(self.failing, answered);
        }
    }

    fn form(&self, now: Duration) -> Form {
        let ages: Duration = self.awaited.iter().map(|(began, ..)| now - *began).sum();
        let age = ages.checked_div(self.awaited.len() as u32).map(|age| age.as_micros() as f32);
        Form::of(self.peak, age, self.failing, MEMORY.as_of(now))
    }
}

fn of(picks: &[usize], one: usize) -> f64 {
    picks.iter().filter(|picked| **picked == one).count() as f64 / picks.len() as f64
}

#[test]
fn those_within_the_sensitivity_take_turns_by_weight_and_the_slow_pass_theirs_on() {
    let equal = balancer(weighted(&[1; 3]));
    assert_eq!(shares(&equal, &[form(1), form(30), form(51)], &[]), [2_000; 3]);
    assert_eq!(shares(&balancer(weighted(&[1, 3])), &[form(9), form(1)], &[]), [1_500, 4_500]);
    // 500 ms against 50 ms and the sensitivity: a fifth of its turns, and the rest to both others.
    let hits = shares(&equal, &[form(50), form(500), form(60)], &[]);
    assert!(hits[1].abs_diff(400) < 60 && hits[0].abs_diff(2_800) < 90 && hits[2].abs_diff(2_800) < 90, "{hits:?}");
    // By weight, too.
    let hits = shares(&balancer(weighted(&[1, 4, 3])), &[form(50_000), form(1), form(1)], &[]);
    let heavy = f64::from(hits[1]) / f64::from(hits[2]);
    assert!(hits[0] < 10 && (1.2..1.5).contains(&heavy), "{hits:?}");
    // All alike slow is nobody slow.
    assert_eq!(shares(&equal, &[form(9_000), form(9_030), form(9_050)], &[]), [2_000; 3]);
}

#[test]
fn in_a_large_pool_the_slow_pass_their_turns_on_to_all_who_are_fast() {
    let forms: Vec<Form> = (0..40).map(|index| form(if index % 4 == 0 { 5_000 } else { 5 })).collect();
    let hits = shares(&balancer(weighted(&[1; 40])), &forms, &[]);
    for (index, hits) in hits.into_iter().enumerate() {
        let expected = if index % 4 == 0 { 0..20 } else { 150..250 };
        assert!(expected.contains(&hits), "{index}: {hits}");
    }
}

#[test]
fn without_a_peak_one_counts_as_the_slowest_and_so_does_one_that_fails() {
    let equal = balancer(weighted(&[1; 3]));
    let failing = |peak_ms: Option<u64>, failing| Form::new(peak_ms.map(ms), failing);
    assert_eq!(shares(&equal, &[Form::default(); 3], &[]), [2_000; 3], "nothing is known of anybody");
    assert_eq!(shares(&equal, &[Form::default(), form(30), form(40)], &[]), [2_000; 3]);
    // A fast one that fails is no better than any, and no reason to call the others slow.
    for fast in [failing(None, 1.0), failing(Some(1), 1.0), failing(Some(1), 0.2)] {
        assert_eq!(shares(&equal, &[fast, form(80), form(90)], &[]), [2_000; 3], "{fast:?}");
        let hits = shares(&equal, &[fast, form(80), form(900)], &[]);
        assert!(hits[0] < 2_000, "{hits:?}");
    }
    // A failure now and then costs a part of that only.
    let hits = shares(&equal, &[failing(Some(1), 0.01), form(400), form(400)], &[]);
    assert!(hits[0] > 4_000, "{hits:?}");
}

#[test]
fn a_kept_member_has_turns_only_when_nobody_is_healthy() {
    let mut candidates = weighted(&[1; 3]);
    candidates[1].kept = true;
    let forms = [form(800), form(1), form(900)];
    let hits = shares(&balancer(candidates.clone()), &forms, &[]);
    assert_eq!((hits[1], hits[0] > 2_500, hits[2] > 2_500), (0, true, true), "{hits:?}");
    assert_eq!(shares(&balancer(candidates.clone()), &forms, &[0, 2]), [0, 6_000, 0]);
    candidates.iter_mut().for_each(|one| one.kept = true);
    let hits = shares(&balancer(candidates), &forms, &[]);
    assert!(hits[1] > 5_000, "{hits:?}");
}

#[test]
fn a_retry_goes_to_any_of_the_fast_that_are_left() {
    for members in [4, 40] {
        let forms: Vec<Form> = (0..members).map(|index| form(if index == 1 { 900 } else { 5 })).collect();
        let hits = shares(&balancer(weighted(&vec![1; members])), &forms, &[0]);
        assert_eq!((hits[0], hits[1]), (0, 0), "{hits:?}");
        let even = 6_000 / (members as u32 - 2);
        assert!(hits[2..].iter().all(|hits| hits.abs_diff(even) < even / 3), "{hits:?}");
    }
    assert_eq!(shares(&balancer(weighted(&[1; 2])), &[form(5), form(900)], &[0]), [0, 6_000]);
}

/// Case C24: never more than its equal share, from the beginning or from some moment on, whole or in part.
#[test]
fn a_member_that_fails_fast_attracts_nothing() {
    let bad = |now: Duration| if now < ms(20_000) { well(1) } else { Reply(1, Answered::Badly) };
    let half =
        |now: Duration| if (now.as_millis() / 10).is_multiple_of(2) { well(1) } else { Reply(1, Answered::Badly) };
    let rows: [(Story, usize); 3] = [(|_| Reply(1, Answered::Badly), 0), (bad, 2_200), (half, 0)];
    for (number, (story, from)) in rows.into_iter().enumerate() {
        let picks = play(&[story, |_| well(80), |_| well(90)], ms(10), 6_000);
        let share = of(&picks[from..], 0);
        assert!(share <= 0.335, "row {number}: {share}");
    }
}

/// Case C46 a, and e: in a pool of two one hangs, and what nobody answers is seen by its age.
#[test]
fn a_member_that_hangs_is_left_before_anything_of_it_ends() {
    let hangs: Story = |now| if now < ms(2_000) { well(5) } else { well(3_600_000) };
    let picks = play(&[hangs, |_| well(5)], ms(5), 4_000);
    assert!((0.49..=0.51).contains(&of(&picks[..400], 0)));
    let left = of(&picks[450..], 0);
    assert!(left < 0.05, "{left} of the requests after a quarter of a second");
}

/// Case C46 b: found again by its few requests, or, where there are too few, by the decay alone.
#[test]
fn a_member_that_was_slow_and_recovers_shares_again() {
    let recovers: Story = |now| if now < ms(20_000) { well(5_000) } else { well(5) };
    for (pace, slow, well_again) in [(5, 1_000..4_000, 18_000..20_000), (500, 20..40, 220..260)] {
        let picks = play(&[recovers, |_| well(5)], ms(pace), well_again.end as u32);
        let (before, after) = (of(&picks[slow], 0), of(&picks[well_again], 0));
        assert!(before < 0.2 && (0.45..=0.55).contains(&after), "each {pace} ms: {before}, then {after}");
    }
}

/// Case C46 c: two equals share evenly in each 5 s, whatever step of 20 ms there is between them, and whatever stands out.
#[test]
fn two_equals_stay_between_40_and_60_percent() {
    let steady: Story = |_| well(10);
    let step: Story = |now| well(if now.as_secs() % 2 == 0 { 30 } else { 10 });
    let step_back: Story = |now| well(if now.as_secs() % 2 == 0 { 10 } else { 30 });
    // One answer in 500 or so takes 200 ms.
    let stands_out: Story = |now| well(if again(now.as_millis() as u64).is_multiple_of(500) { 200 } else { 10 });
    let worlds = [[steady, steady], [step, step_back], [step, steady], [stands_out, stands_out]];
    for (number, stories) in worlds.into_iter().enumerate() {
        for pace in [2, 20, 250] {
            let picks = play(&stories, ms(pace), (60_000 / pace) as u32);
            for (at, five_seconds) in picks.windows((5_000 / pace) as usize).enumerate() {
                let share = of(five_seconds, 0);
                assert!((0.4..=0.6).contains(&share), "world {number}, each {pace} ms, from {at} on: {share}");
            }
        }
    }
}

/// Case C46 d: it takes its turns, and has no other until something is known of it.
#[test]
fn a_newcomer_gets_its_turns_and_no_more() {
    let equal = balancer(weighted(&[1; 4]));
    assert_eq!(shares(&equal, &[form(20), form(30), form(25), Form::default()], &[]), [1_500; 4]);
    let hits = shares(&equal, &[form(5), form(5), form(900), Form::default()], &[]);
    assert!(hits[3] <= 1_500 && hits[3] > 0, "{hits:?}");
}
