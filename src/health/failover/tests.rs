use super::*;
use proptest::prelude::*;

const DELAY: Duration = ms(100);
const WAIT: Duration = ms(10);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// `A` can serve, `?` is unknown, `h` cannot and has a healthy member, `-` cannot and tries, `d` cannot and is down.
fn reports(text: &str) -> Vec<Report> {
    let report = |letter| match letter {
        'A' => Report { ability: Ability::Able, resort: Resort::Healthy },
        '?' => Report { ability: Ability::Unknown, resort: Resort::Tries },
        'h' => Report { ability: Ability::Unable, resort: Resort::Healthy },
        '-' => Report { ability: Ability::Unable, resort: Resort::Tries },
        'd' => Report { ability: Ability::Unable, resort: Resort::Down },
        other => panic!("{other}"),
    };
    text.chars().map(report).collect()
}

fn switch(failback: Failback, ranks: usize) -> Switch {
    Switch::new(ms(0), failback, vec![WAIT; ranks])
}

/// What follows from a switch that is told these at these times; an empty text lets time pass.
fn play(switch: &mut Switch, rows: &[(u64, &str, &str)]) {
    for (at, told, expected) in rows {
        let step = match *told {
            "" => switch.advance(ms(*at)),
            told => switch.observe(ms(*at), reports(told)),
        };
        let words = match step {
            Some(Move { from, to, cause }) => format!("{from} -> {to} {}", cause.as_str()),
            None => format!("{}", switch.present()),
        };
        assert_eq!(words, *expected, "at {at} told {told:?}");
    }
}

#[test]
fn the_present_pool_is_left_at_once_and_gone_back_to_after_the_delay() {
    let mut switch = switch(Failback::After(DELAY), 2);
    play(
        &mut switch,
        &[
            (1, "AA", "0"),
            (2, "hA", "0 -> 1 unable"),
            (50, "AA", "1"),
            // A break: the delay begins anew.
            (120, "hA", "1"),
            (130, "AA", "1"),
            (229, "", "1"),
            (230, "", "1 -> 0 failback"),
            (231, "-A", "0 -> 1 unable"),
            // The present one cannot: no delay holds the better one back.
            (240, "AA", "1"),
            (241, "A-", "1 -> 0 unable"),
        ],
    );
}

#[test]
fn the_deadline_is_when_time_alone_would_change_something() {
    let mut switch = switch(Failback::After(DELAY), 3);
    assert_eq!(switch.next_deadline(), Some(WAIT), "of what is waited for");
    play(&mut switch, &[(1, "--A", "0 -> 2 start"), (5, "-AA", "2"), (7, "AAA", "2")]);
    assert_eq!(switch.next_deadline(), Some(ms(105)));
    assert_eq!(
        (switch.failback_at(0), switch.failback_at(1), switch.failback_at(2)),
        (Some(ms(107)), Some(ms(105)), None)
    );
    // The second has been able for long enough, the first not yet.
    play(&mut switch, &[(105, "", "2 -> 1 failback"), (107, "", "1 -> 0 failback")]);
    assert_eq!(switch.next_deadline(), None);
    play(&mut switch, &[(110, "?AA", "0")]);
    assert_eq!(switch.next_deadline(), Some(ms(120)));
}

#[test]
fn without_failback_it_stays_until_it_cannot() {
    let mut switch = switch(Failback::Never, 3);
    play(
        &mut switch,
        &[
            (1, "AAA", "0"),
            (2, "-AA", "0 -> 1 unable"),
            (3, "AAA", "1"),
            (1_000_000, "", "1"),
            (1_000_001, "A-A", "1 -> 0 unable"),
        ],
    );
    assert_eq!((switch.next_deadline(), switch.failback_at(0)), (None, None));
}

#[test]
fn at_the_start_a_better_one_is_waited_for_but_not_for_long() {
    for (rows, what) in [
        (&[(1, "?A", "0"), (5, "AA", "0")][..], "it comes in time"),
        (&[(1, "?A", "0"), (5, "-A", "0 -> 1 start")], "it turns out to be unable"),
        (
            &[(1, "?A", "0"), (9, "", "0"), (10, "", "0 -> 1 start"), (11, "AA", "1"), (111, "", "1 -> 0 failback")],
            "late",
        ),
        (&[(1, "-?A", "0 -> 1 start"), (3, "AAA", "1 -> 0 start")], "there is no delay at the start"),
        (
            &[(1, "???", "0"), (10, "", "0 -> 0 none_able"), (11, "--A", "0 -> 2 relief"), (12, "A-A", "2")],
            "nobody comes in time",
        ),
        (&[(1, "?-h", "0"), (10, "", "0 -> 2 none_able"), (11, "A-h", "2 -> 0 relief")], "the better of the bad"),
    ] {
        let ranks = rows[0].1.len();
        let mut switch = switch(Failback::After(DELAY), ranks);
        eprintln!("{what}");
        play(&mut switch, rows);
    }
}

#[test]
fn the_present_one_that_becomes_unknown_is_waited_for() {
    // As when a scale-out brings members that nobody has probed yet.
    let mut switch = switch(Failback::After(DELAY), 2);
    play(
        &mut switch,
        &[(1, "AA", "0"), (20, "?A", "0"), (25, "AA", "0"), (30, "?A", "0"), (39, "", "0"), (40, "", "0 -> 1 unable")],
    );
    // A better one that is unknown has a break.
    play(
        &mut switch,
        &[(50, "AA", "1"), (100, "?A", "1"), (110, "AA", "1"), (150, "", "1"), (210, "", "1 -> 0 failback")],
    );
}

#[test]
fn where_none_can_serve_the_first_with_a_healthy_member_does() {
    let mut switch = switch(Failback::After(DELAY), 3);
    play(
        &mut switch,
        &[
            (1, "AAA", "0"),
            (2, "-hh", "0 -> 1 none_able"),
            (3, "--h", "1 -> 2 none_able"),
            (4, "---", "2 -> 0 none_able"),
            (5, "-h-", "0 -> 1 none_able"),
            (6, "hh-", "1 -> 0 none_able"),
            // Whoever can serve does, at once, and from then on the delay holds.
            (7, "hhA", "0 -> 2 relief"),
            (8, "AhA", "2"),
            (107, "", "2"),
            (108, "", "2 -> 0 failback"),
        ],
    );
    // Even by a delay that never ends.
    let mut switch = self::switch(Failback::Never, 2);
    play(&mut switch, &[(1, "-A", "0 -> 1 start"), (2, "-h", "1 -> 1 none_able"), (3, "Ah", "1 -> 0 relief")]);
}

#[test]
fn where_nobody_is_healthy_either_a_pool_that_tries_is_better_than_one_that_is_down() {
    let mut switch = switch(Failback::After(DELAY), 3);
    play(
        &mut switch,
        &[
            (1, "AAA", "0"),
            (2, "dA-", "0 -> 1 unable"),
            (3, "d--", "1 -> 1 none_able"),
            (4, "dd-", "1 -> 2 none_able"),
            (5, "ddh", "2"),
            (6, "-dh", "2"),
            (7, "-dd", "2 -> 0 none_able"),
            (8, "dh-", "0 -> 1 none_able"),
            (9, "ddd", "1 -> 0 none_able"),
        ],
    );
}

#[test]
fn a_reload_keeps_what_stays() {
    let mut old = switch(Failback::After(DELAY), 2);
    play(&mut old, &[(1, "-A", "0 -> 1 start"), (20, "AA", "1")]);
    let next = |kept: &[Option<usize>], failback| {
        Switch::reshaped(&old, ms(30), failback, kept.iter().map(|was| (*was, WAIT)))
    };
    let same = [Some(0), Some(1)];
    play(&mut next(&same, Failback::After(DELAY)), &[(30, "AA", "1"), (119, "", "1"), (120, "", "1 -> 0 failback")]);
    // Another delay counts from when it was able.
    play(&mut next(&same, Failback::After(ms(5))), &[(30, "AA", "1 -> 0 failback")]);
    play(&mut next(&same, Failback::Never), &[(30, "AA", "1"), (10_000, "", "1")]);
    // Other places: the present one stays, wherever it is now.
    let mut swapped = next(&[Some(1), Some(0)], Failback::After(DELAY));
    assert_eq!(swapped.present(), 0);
    play(&mut swapped, &[(30, "AA", "0"), (40, "-A", "0 -> 1 unable")]);
    // One more before it: it has to prove itself.
    let mut grown = next(&[None, Some(0), Some(1)], Failback::After(DELAY));
    play(&mut grown, &[(30, "?AA", "2"), (40, "AAA", "2"), (120, "", "2 -> 1 failback"), (140, "", "1 -> 0 failback")]);
    // The present one is gone: a new start, in which what is new and better is waited for.
    let mut gone = next(&[None, Some(0)], Failback::After(DELAY));
    play(&mut gone, &[(30, "?A", "0"), (35, "AA", "0")]);
    let mut gone = next(&[None, Some(0)], Failback::After(DELAY));
    play(&mut gone, &[(30, "?A", "0"), (40, "", "0 -> 1 start")]);
}

#[test]
fn that_none_can_serve_is_said_once_and_so_is_its_end() {
    let mut switch = switch(Failback::After(DELAY), 2);
    play(
        &mut switch,
        &[
            (1, "AA", "0"),
            (2, "A-", "0"),
            (3, "--", "0 -> 0 none_able"),
            (4, "--", "0"),
            (5, "A-", "0 -> 0 relief"),
            (6, "AA", "0"),
        ],
    );
}

#[test]
fn a_pool_that_was_alone_serves_on_beside_better_ones() {
    for (rows, what) in [
        (
            &[(1, "?A", "1"), (50, "-A", "1"), (60, "AA", "1"), (160, "", "1 -> 0 failback")][..],
            "a new one proves itself",
        ),
        (&[(1, "AA", "1"), (100, "", "1"), (101, "", "1 -> 0 failback")], "so does one that is known"),
        (&[(1, "A-", "1 -> 0 unable")], "no delay where the present one cannot"),
    ] {
        eprintln!("{what}");
        play(&mut Switch::widened(ms(0), Failback::After(DELAY), [WAIT; 2], 1), rows);
    }
}

#[test]
fn time_does_not_go_back() {
    let mut switch = switch(Failback::After(DELAY), 2);
    play(&mut switch, &[(50, "-A", "0 -> 1 start"), (20, "AA", "1"), (120, "", "1"), (150, "", "1 -> 0 failback")]);
}

/// The rules, said as plainly as possible: one look a millisecond at all there was until then.
fn naive(history: &[Vec<Report>], failback: Failback, wait: usize) -> Vec<usize> {
    let (mut present, mut started, mut none_able) = (0, false, false);
    let mut all = Vec::new();
    for now in 0..history.len() {
        let as_it_is = |rank: usize| {
            let is = history[now][rank].ability;
            history[..=now].iter().rev().take_while(|reports| reports[rank].ability == is).count() - 1
        };
        let able = |rank: &usize| history[now][*rank].ability == Ability::Able;
        let awaited = |rank: &usize| history[now][*rank].ability == Ability::Unknown && as_it_is(*rank) < wait;
        let ranks = 0..history[now].len();
        let back = |rank: &usize| match failback {
            Failback::After(delay) => able(rank) && as_it_is(*rank) >= delay.as_millis() as usize,
            Failback::Never => false,
        };
        if !started
            && !none_able
            && let Some(first) = ranks.clone().find(|rank| able(rank) || awaited(rank))
        {
            (present, started) = (first, able(&first));
        } else if started && (able(&present) || awaited(&present)) {
            present = (0..present).find(back).unwrap_or(present);
        } else if let Some(first) = ranks.clone().find(able) {
            (present, started, none_able) = (first, true, false);
        } else {
            let first = |resort| ranks.clone().find(|rank| history[now][*rank].resort == resort);
            let best = first(Resort::Healthy).or_else(|| first(Resort::Tries));
            (present, started, none_able) = (best.unwrap_or(0), false, true);
        }
        all.push(present);
    }
    all
}

fn history() -> impl Strategy<Value = Vec<Vec<Report>>> {
    let letter = prop::sample::select(vec!['A', 'A', 'A', '?', 'h', '-', 'd']);
    let step = (1_usize..30, prop::collection::vec(letter, 3));
    prop::collection::vec(step, 1..40).prop_map(|steps| {
        let lasting = |(for_ms, letters): (usize, Vec<char>)| {
            std::iter::repeat_n(reports(&letters.into_iter().collect::<String>()), for_ms)
        };
        steps.into_iter().flat_map(lasting).collect()
    })
}

/// Told only of what changes, and woken only at its deadlines, as it lives.
fn lived(history: &[Vec<Report>], failback: Failback, wait: usize) -> Vec<usize> {
    let mut switch = Switch::new(ms(0), failback, vec![ms(wait as u64); 3]);
    let mut all = Vec::new();
    for (now, reports) in history.iter().enumerate() {
        let at = ms(now as u64);
        if now == 0 || history[now - 1] != *reports {
            switch.observe(at, reports.iter().copied());
        } else if switch.next_deadline().is_some_and(|deadline| deadline <= at) {
            switch.advance(at);
            assert!(switch.next_deadline().is_none_or(|deadline| deadline > at), "it would be woken for ever");
        }
        all.push(switch.present());
    }
    all
}

proptest! {
    #[test]
    fn it_does_what_the_rules_say(
        history in history(),
        failback in prop_oneof![Just(Failback::Never), (0_u64..60).prop_map(|delay| Failback::After(ms(delay)))],
        wait in 0_usize..40,
    ) {
        prop_assert_eq!(lived(&history, failback, wait), naive(&history, failback, wait));
    }

    #[test]
    fn it_is_never_where_it_should_not_be(history in history(), delay in 1_u64..60, wait in 0_usize..40) {
        let ranks = lived(&history, Failback::After(ms(delay)), wait);
        let able = |now: usize, rank: usize| history[now][rank].ability == Ability::Able;
        let since = |now: usize, rank: usize| (0..=now).rev().take_while(|at| able(*at, rank)).count();
        for now in 0..ranks.len() {
            let (rank, reports) = (ranks[now], &history[now]);
            // On one that cannot serve only while none can; an unknown one has its wait.
            if reports[rank].ability == Ability::Unable {
                prop_assert!((0..3).all(|other| !able(now, other)), "at {}: on {} that cannot", now, rank);
            }
            if reports[rank].ability == Ability::Unknown && (0..3).any(|other| able(now, other)) {
                let unknown = (0..=now).rev().take_while(|at| history[*at][rank].ability == Ability::Unknown).count();
                prop_assert!(unknown <= wait, "at {}: waits for {} for too long", now, rank);
            }
            // At a worse rank than needed no longer than the delay.
            for better in 0..rank {
                prop_assert!(since(now, better) <= delay as usize, "at {}: {} and not {}", now, rank, better);
            }
            // Back before the delay only from one that could not serve any more, or at the start.
            if now > 0 && rank < ranks[now - 1] && able(now, ranks[now - 1]) && able(now - 1, ranks[now - 1]) {
                prop_assert!(since(now, rank) > delay as usize, "at {}: back to {} too soon", now, rank);
            }
        }
    }
}
