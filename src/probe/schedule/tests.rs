//! When probes start, over many draws, and what pools that share one may count on.

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn took(started: Duration, took: Duration) -> Last {
    Last { planned: started, started, ended: started + took }
}

fn last(started: u64, ended: u64) -> Last {
    took(ms(started), ms(ended - started))
}

#[test]
fn next_start() {
    use Pace::{Fast, Steady};
    // Interval 10 s at a phase of 3 s, fast 1 s: the points are 3, 13, 23 ...
    let grid = Grid::new(ms(10_000), ms(1000), 0.3);
    let rows = [
        ("from the first probe to the first point", last(0, 5), Steady, 0.0, 3000),
        ("from a point to the next", last(3000, 3005), Steady, 0.9, 13_000),
        ("a late start does not move the grid", last(3900, 3950), Steady, 0.0, 13_000),
        ("an answer takes as long as it takes", last(3000, 9999), Steady, 0.0, 13_000),
        ("a frozen member, timeout equal to interval", last(3001, 13_001), Steady, 0.0, 13_001),
        ("the point passed while the first probe waited", last(0, 4000), Steady, 0.0, 4000),
        ("in doubt, soon after the last start", last(3000, 3005), Fast, 0.0, 4000),
        ("in doubt, with a draw", last(3000, 3005), Fast, 0.5, 3950),
        ("in doubt and slower than the fast interval", last(3000, 4600), Fast, 0.5, 4600),
        ("back on the grid", last(14_700, 14_705), Steady, 0.0, 23_000),
    ];
    for (name, last, pace, draw, expected) in rows {
        assert_eq!(grid.next(last, pace, draw), ms(expected), "{name}");
    }
}

#[test]
fn without_a_fast_interval_doubt_changes_nothing() {
    let grid = Grid::new(ms(60_000), ms(60_000), 0.5);
    for at in [0, 29_999, 30_000, 45_000] {
        let last = last(at, at + 5);
        assert_eq!(grid.next(last, Pace::Fast, 0.7), grid.next(last, Pace::Steady, 0.0));
    }
}

#[test]
fn a_probe_never_starts_before_the_last_has_ended() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..10_000 {
        let interval = random.u64(1..60_000);
        let grid = Grid::new(ms(interval), ms(random.u64(1..=interval)), random.f64());
        let started = random.u64(0..1_000_000);
        let last = last(started, started + random.u64(0..2 * interval));
        let pace = if random.bool() { Pace::Fast } else { Pace::Steady };
        let next = grid.next(last, pace, random.f64());
        assert!(next >= last.ended && next > last.started, "{grid:?} {last:?} {pace:?}");
    }
}

#[test]
fn the_rate_is_one_over_the_interval_whatever_the_answers_take() {
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..100 {
        let interval = random.u64(100..20_000);
        let grid = Grid::new(ms(interval), ms(interval.min(50)), random.f64());
        let cells = 10_000;
        let end = ms(interval) * cells;
        let (mut start, mut count) = (Duration::ZERO, 0);
        while start < end {
            count += 1;
            let late = ms(random.u64(0..2));
            let answer = ms(random.u64(0..=interval)).min(ms(interval) - ms(2));
            start = grid.next(took(start + late, answer), Pace::Steady, random.f64());
        }
        assert!((cells..=cells + 1).contains(&count), "{count} probes in {cells} intervals of {interval} ms");
    }
}

/// From a death at any moment to the end of the k-th fail: at most interval + (k - 1) x max(fast, d) + d.
#[test]
fn a_death_is_found_within_the_promised_time() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..2000 {
        let interval = random.u64(10..30_000);
        let fast = random.u64(1..=interval);
        let fail = ms(random.u64(0..=interval));
        let needed = random.u32(1..=10);
        let grid = Grid::new(ms(interval), ms(fast), random.f64());
        let death = ms(random.u64(0..10 * interval));
        let mut start = Duration::ZERO;
        while start < death {
            start = grid.next(took(start, ms(random.u64(0..=interval))), Pace::Steady, random.f64());
        }
        for _ in 1..needed {
            start = grid.next(took(start, fail), Pace::Fast, random.f64());
        }
        let found = start + fail - death;
        let promised = ms(interval) + ms(fast).max(fail) * (needed - 1) + fail;
        assert!(
            found <= promised,
            "{found:?} > {promised:?}: {grid:?}, {needed} fails of {fail:?}, death at {death:?}"
        );
    }
}

#[test]
fn two_hundred_members_of_three_pools_do_not_probe_in_step() {
    let interval = ms(10_000);
    for offset in [0.0, 0.123, 0.777] {
        let mut seconds = [0; 60];
        for nth in 0..600 {
            let grid = Grid::new(interval, ms(1000), share(offset, nth));
            let mut start = Duration::ZERO;
            while start < ms(60_000) {
                start = grid.next(took(start, ms(5)), Pace::Steady, 0.0);
                if start < ms(60_000) {
                    seconds[start.as_secs() as usize] += 1;
                }
            }
        }
        assert!(seconds.iter().all(|count| (55..=65).contains(count)), "60 a second on average: {seconds:?}");
    }
}

#[test]
fn the_members_of_one_pool_are_spread_whichever_they_are() {
    for first in [0, 17, 999_990, 123_456_789] {
        let mut shares: Vec<f64> = (first..first + 10).map(|nth| share(0.4, nth)).collect();
        shares.sort_by(f64::total_cmp);
        let gap = shares.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MAX, f64::min);
        assert!(gap > 0.03, "the nearest two of ten are {gap} of an interval apart");
    }
}

#[test]
fn what_is_asked_together() {
    let ask = |interval, fast, idle: Option<u64>, doubts| Ask {
        interval: ms(interval),
        fast: ms(fast),
        idle: idle.map(ms),
        doubts,
    };
    let tempo =
        |every, fast: Option<u64>, in_doubt, idle| Tempo { every: ms(every), fast: fast.map(ms), in_doubt, idle };
    let rows = [
        (vec![ask(5000, 1000, None, false)], tempo(5000, None, false, false)),
        (vec![ask(5000, 1000, None, false), ask(3000, 2000, None, false)], tempo(3000, None, false, false)),
        // Only who doubts has a say in how quick.
        (vec![ask(5000, 1000, None, false), ask(6000, 2000, None, true)], tempo(5000, Some(2000), true, false)),
        (vec![ask(5000, 1000, None, true), ask(6000, 2000, None, true)], tempo(5000, Some(1000), true, false)),
        // A fast interval that is no faster than another's usual one changes nothing.
        (vec![ask(1000, 1000, None, false), ask(6000, 2000, None, true)], tempo(1000, None, true, false)),
        // Slow where nobody uses any, and settled first.
        (
            vec![ask(5000, 1000, Some(60_000), false), ask(6000, 1000, Some(30_000), false)],
            tempo(30_000, None, false, true),
        ),
        (vec![ask(5000, 1000, Some(60_000), false), ask(6000, 1000, None, false)], tempo(5000, None, false, false)),
        (vec![ask(5000, 1000, Some(60_000), true)], tempo(5000, Some(1000), true, false)),
    ];
    for (asks, expected) in rows {
        assert_eq!(Tempo::of(asks.iter().copied()), Some(expected), "{asks:?}");
    }
    assert_eq!(Tempo::of([].iter().copied()), None);
}

#[test]
fn an_interval_that_is_shortened_brings_no_burst_and_one_that_is_lengthened_no_gap() {
    let mut random = fastrand::Rng::with_seed(7);
    let asked = |interval: Duration| {
        let ask = Ask { interval, fast: interval, idle: None, doubts: false };
        Tempo::of([ask].into_iter()).unwrap()
    };
    let now = ms(1_000_000);
    let mut seconds = [0; 5];
    for nth in 0..1000 {
        let timetable = Timetable::new(share(0.3, nth));
        // Some time within the last minute.
        let mut last = took(ms(random.u64(940_000..=950_000)), ms(1));
        let mut due = timetable.next(asked(ms(60_000)), last, 1.0, 0.0);
        while due <= now {
            last = took(due, ms(1));
            due = timetable.next(asked(ms(60_000)), last, 1.0, 0.0);
        }
        let sooner = timetable.again(asked(ms(5_000)), last, 1.0, now, due);
        assert!(sooner >= now && sooner <= now + ms(5_000) && sooner <= due);
        if sooner < now + ms(5_000) {
            seconds[(sooner - now).as_secs() as usize] += 1;
        }
        assert!(timetable.again(asked(ms(600_000)), last, 1.0, now, due) <= due);
    }
    assert!(seconds.iter().all(|count| (150..=280).contains(count)), "200 a second on average: {seconds:?}");
}

#[test]
fn what_is_stretched_keeps_its_proportions() {
    let mut random = fastrand::Rng::with_seed(8);
    for factor in [1.1, 2.0, 7.3] {
        for interval in [ms(100), ms(1000), ms(5000)] {
            let tempo = Tempo { every: interval, fast: None, in_doubt: false, idle: false };
            let timetable = Timetable::new(random.f64());
            let (mut start, mut due) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..1000 {
                // It waits for its turn.
                start = due + interval.mul_f64(random.f64() / 3.0);
                due = timetable.next(tempo, Last { planned: due, started: start, ended: start }, factor, 0.0);
            }
            let mean = start.as_secs_f64() / 1000.0;
            let asked = interval.as_secs_f64() * factor;
            assert!((mean / asked - 1.0).abs() < 0.01, "{mean} instead of {asked}");
        }
    }
}

/// One who shares a probe: as in the heart, so many fails in a row turn its verdict, and it doubts in between.
#[derive(Debug, Clone, Copy)]
struct Sharer {
    interval: Duration,
    fast: Duration,
    needs: u32,
    fails: u32,
    since: Duration,
}

/// Pools join and leave a probe, change their intervals and have their doubts: from a death at any moment each that was
/// there, or has come since, finds it out as soon as health.md promises it alone.
#[test]
fn every_pool_finds_a_death_in_time_whoever_joins_and_leaves() {
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..3000 {
        let timetable = Timetable::new(random.f64());
        let sharer = |random: &mut fastrand::Rng, since| {
            let interval = random.u64(10..30_000);
            let (fast, needs) = (random.u64(1..=interval), random.u32(1..=5));
            Sharer { interval: ms(interval), fast: ms(fast), needs, fails: 0, since }
        };
        let asked = |sharers: &[Sharer]| {
            let ask = |s: &Sharer| Ask {
                interval: s.interval,
                fast: s.fast,
                idle: None,
                doubts: (1..s.needs).contains(&s.fails),
            };
            Tempo::of(sharers.iter().map(ask))
        };
        let mut sharers = vec![sharer(&mut random, Duration::ZERO)];
        let death = ms(random.u64(0..60_000));
        let fail = ms(random.u64(0..500));
        let (mut due, mut last) = (Duration::ZERO, None::<Last>);
        let mut found = 0;
        for _ in 0..400 {
            // Something happens before the probe is due, now and then.
            let now = last.map_or(Duration::ZERO, |last| last.ended);
            if random.u8(..3) == 0 && due > now {
                let at = now + (due - now).mul_f64(random.f64());
                let joins = random.bool();
                match sharers.len() {
                    2.. if !joins => drop(sharers.remove(random.usize(..sharers.len()))),
                    ..=4 => sharers.push(sharer(&mut random, at)),
                    _ => {}
                }
                if let (Some(last), Some(tempo)) = (last, asked(&sharers)) {
                    due = timetable.again(tempo, last, 1.0, at, due);
                }
                // Who is new is probed at once.
                if sharers.iter().any(|s| s.since == at) {
                    due = due.min(at);
                }
            }
            let started = due;
            let ended = started + if started >= death { fail } else { ms(1) };
            for s in &mut sharers {
                s.fails = if started >= death { s.fails + 1 } else { 0 };
                if s.fails == s.needs {
                    let from = death.max(s.since);
                    let promised = s.interval + s.fast.max(fail) * (s.needs - 1) + fail;
                    assert!(ended - from <= promised, "round {round}: {:?} > {promised:?}, {s:?}", ended - from);
                    found += 1;
                }
            }
            let known = took(started, ended - started);
            last = Some(known);
            due = asked(&sharers).map_or(ended, |tempo| timetable.next(tempo, known, 1.0, random.f64()));
            assert!(due >= ended);
        }
        assert!(found > 0, "round {round}");
    }
}
