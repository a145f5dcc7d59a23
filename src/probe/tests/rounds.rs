//! What the members share: places, probes, and each other's misfortunes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::origin::Step;
use super::scene::{NEVER, Scene};
use super::*;
use crate::health::{MemberId, Pace};
use crate::probe::{Idle, Report, Target};

#[test]
fn what_waits_for_a_place_is_late_and_its_timeout_has_not_begun() {
    let scene = Scene::new(1);
    let mut silent = scene.origin(vec![Step::Read, Step::Hang]);
    let healthy = scene.healthy();
    // The one place is taken for longer than the other member's probe may take.
    let slow = Arc::new(giving_up_after(Duration::from_millis(1500), http_probe(), silent.address));
    scene.prober.follow(vec![Target { check: slow.clone(), ..scene.target(1, 7, silent.address, NEVER) }]);
    scene.runtime.block_on(silent.request());
    let quick = Arc::new(giving_up_after(Duration::from_secs(1), http_probe(), healthy.address));
    scene.prober.follow(vec![
        Target { check: slow, ..scene.target(1, 7, silent.address, NEVER) },
        Target { check: quick, ..scene.target(2, 7, healthy.address, NEVER) },
    ]);
    let (first, second) = (scene.report(), scene.report());
    assert_eq!((first.0, second.0), (MemberId(1), MemberId(2)));
    assert_fail(&first.3, Reason::Timeout, "");
    assert_pass(&second.3);
    assert_eq!(scene.count(|c| &c.late), 1);
}

#[test]
fn more_places_are_there_at_once() {
    let scene = Scene::new(1);
    let mut silent = scene.origin(vec![Step::Read, Step::Hang]);
    let healthy = scene.healthy();
    let held = scene.target(1, 7, silent.address, NEVER);
    scene.prober.follow(vec![held.clone()]);
    scene.runtime.block_on(silent.request());
    scene.prober.set_places(2);
    scene.prober.follow(vec![held, scene.target(2, 7, healthy.address, NEVER)]);
    assert_eq!(scene.report().0, MemberId(2));
    assert_eq!(scene.count(|c| &c.late), 0);
}

/// Each reload handed out as many places as there are, beside those that were taken.
#[test]
fn the_same_number_of_places_again_is_no_new_place() {
    let scene = Scene::new(1);
    let mut silent = scene.origin(vec![Step::Read, Step::Hang]);
    let healthy = scene.healthy();
    let held = scene.target(1, 7, silent.address, NEVER);
    scene.prober.follow(vec![held.clone()]);
    scene.runtime.block_on(silent.request());
    scene.prober.set_places(1);
    scene.prober.follow(vec![held, scene.target(2, 7, healthy.address, NEVER)]);
    scene.until("it waits", || scene.count(|c| &c.late) == 1);
    assert_eq!(scene.count(|c| &c.started), 1);
    scene.prober.follow(vec![scene.target(2, 7, healthy.address, NEVER)]);
    assert_eq!(scene.report().0, MemberId(2));
}

#[test]
fn the_first_round_is_bounded_and_everyone_gets_his_turn() {
    let scene = Scene::new(10_000);
    let mut origin = scene.origin(vec![Step::Read, Step::Hang]);
    scene.prober.follow((0..300).map(|member| scene.target(member, 7, origin.address, NEVER)).collect());
    scene.runtime.block_on(async {
        for _ in 0..256 {
            origin.request().await;
        }
    });
    assert_eq!(scene.count(|c| &c.started), 256);
    assert_eq!(scene.count(|c| &c.inconclusive), 0);
    // Those who leave give their turns to those who come.
    scene.prober.follow((300..400).map(|member| scene.target(member, 7, origin.address, NEVER)).collect());
    scene.until("all of the others are in flight", || {
        scene.count(|c| &c.inconclusive) >= 256 && scene.count(|c| &c.started) - scene.count(|c| &c.inconclusive) == 100
    });
    assert_eq!(scene.count(|c| &c.late), 0);
}

#[test]
fn a_panic_is_counted_and_the_member_is_probed_again() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let (sender, calls) = (scene.sender.clone(), AtomicUsize::new(0));
    let report: Report = Arc::new(move |now, sample, _| {
        if calls.fetch_add(1, Relaxed) < 2 {
            panic!("injected");
        }
        sender.send((MemberId(1), 7, now, sample)).ok()?;
        Some(Pace::Steady)
    });
    let broken = scene.reporting(MemberId(1), 7, origin.address, NEVER, report);
    scene.prober.follow(vec![broken, scene.target(2, 7, origin.address, NEVER)]);
    let mut members = [scene.report().0, scene.report().0];
    members.sort();
    assert_eq!(members, [MemberId(1), MemberId(2)]);
    assert_eq!((scene.count(|c| &c.panics), scene.count(|c| &c.started)), (2, 4));
}

/// A target of another pool that asks what `target` asks.
fn of_pool(pool: &str, target: Target) -> Target {
    Target { pool: pool.into(), next_probe_at: Arc::default(), ..target }
}

#[test]
fn pools_that_ask_the_same_share_their_probes() {
    let scene = Scene::new(100);
    let mut origin = scene.healthy();
    let shared = |member| scene.target(member, 7, origin.address, NEVER);
    let (web, api) = (shared(1), of_pool("api", shared(1)));
    let other = Target { definition: 8, ..of_pool("other", shared(1)) };
    let sooner = Target { interval: NEVER / 2, fast_interval: NEVER / 2, ..of_pool("sooner", shared(1)) };
    let targets = || vec![web.clone(), api.clone(), other.clone(), sooner.clone()];
    scene.prober.follow(targets());
    (0..4).for_each(|_| drop(scene.report()));
    assert_eq!(scene.count(|c| &c.started), 2, "one for three pools, whatever their pace; another probe has its own");
    for pool in ["web", "api", "sooner"] {
        assert!(scene.prober.next_probe_at(pool, MemberId(1)).is_some(), "{pool}");
        assert!(scene.prober.probe_now(pool, MemberId(1)));
        (0..3).for_each(|_| drop(scene.report()));
    }
    scene.prober.follow(targets());
    // One who joins wants a sample now; one who leaves takes nothing from those who stay.
    scene.prober.follow(vec![api.clone(), of_pool("late", shared(1))]);
    scene.report();
    scene.report();
    assert_eq!(scene.prober.next_probe_at("web", MemberId(1)), None);
    assert!(!scene.prober.probe_now("web", MemberId(1)));
    assert_eq!(scene.count(|c| &c.started), 6);
    assert_eq!(web.next_probe_at.load(Relaxed), 0);
    scene.runtime.block_on(async {
        for _ in 0..6 {
            origin.request().await;
        }
    });
}

#[test]
fn the_shortest_interval_holds_for_all_who_share() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let seldom = scene.target(1, 7, origin.address, NEVER);
    let often = Target { interval: Duration::from_millis(20), ..of_pool("often", seldom.clone()) };
    scene.prober.follow(vec![seldom.clone()]);
    scene.report();
    scene.prober.follow(vec![seldom.clone(), often]);
    // Each probe is told to both.
    (0..20).for_each(|_| drop(scene.report()));
    assert_eq!(
        scene.prober.listed().iter().map(|one| (one.interval, one.members.len())).collect::<Vec<_>>(),
        [(Duration::from_millis(20), 2)]
    );
    scene.prober.follow(vec![seldom.clone()]);
    // When its next probe is due is the grid's to say, whose next point may be near.
    let listed = || scene.prober.listed().iter().map(|one| (one.interval, one.members.len())).collect::<Vec<_>>();
    scene.until("alone it is probed as seldom as it asks", || listed() == [(NEVER, 1)]);
}

/// A timeout is part of the question: what takes long passes for one and fails for the other.
#[test]
fn pools_with_other_timeouts_share_nothing() {
    let scene = Scene::new(100);
    let silent = scene.origin(vec![Step::Read, Step::Hang]);
    let patient = scene.target(1, 7, silent.address, NEVER);
    let hasty = Arc::new(giving_up_after(Duration::from_millis(50), http_probe(), silent.address));
    let hasty = Target { check: hasty, ..of_pool("hasty", scene.target(1, 7, silent.address, NEVER)) };
    scene.prober.follow(vec![patient, hasty]);
    assert_fail(&scene.report().3, Reason::Timeout, "");
    assert_eq!(scene.prober.listed().len(), 2);
}

#[test]
fn what_pools_share_is_slowed_only_while_none_of_them_is_used() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let soon = Duration::from_millis(20);
    let used: [Arc<AtomicBool>; 2] = [true, false].map(|used| Arc::new(AtomicBool::new(used)));
    let idle = |used: &Arc<AtomicBool>, interval| {
        let used = used.clone();
        Some(Idle { interval, is_idle: Arc::new(move |_| !used.load(Relaxed)) })
    };
    let one = Target { idle: idle(&used[0], 2 * NEVER), ..scene.target(1, 7, origin.address, soon) };
    let other = Target { idle: idle(&used[1], NEVER), interval: 2 * soon, ..of_pool("other", one.clone()) };
    scene.prober.follow(vec![one, other]);
    // One is used: the shorter of their intervals.
    (0..10).for_each(|_| drop(scene.report()));
    let is_slow = || scene.prober.listed().iter().all(|one| one.idle && one.interval == NEVER);
    assert!(!is_slow());
    used[0].store(false, Relaxed);
    scene.until("none is used: the shorter of their idle intervals", is_slow);
    while scene.reports.try_recv().is_ok() {}
    used[1].store(true, Relaxed);
    scene.prober.wake("other");
    (0..8).for_each(|_| drop(scene.report()));
}

#[test]
fn no_second_sees_more_probes_than_the_ceiling_and_one_and_nobody_starves() {
    let scene = Scene::new(1000);
    let origin = scene.healthy();
    scene.prober.set_ceiling(Some(50));
    let often = Duration::from_millis(50);
    let targets: Vec<Target> = (0..20).map(|member| scene.target(member, 7, origin.address, often)).collect();
    // 400 a second are asked for.
    scene.prober.follow(targets.clone());
    assert!(scene.prober.stretch().steady > 8.0);
    let times: Vec<(MemberId, Duration)> = (0..150).map(|_| scene.report()).map(|(id, _, at, _)| (id, at)).collect();
    let starts = scene.count(|c| &c.started);
    let since = times[149].1 - times[0].1;
    assert!(starts as f64 <= 150.0 + 50.0 + 1.0 && since >= Duration::from_millis(2700), "150 within {since:?}");
    for member in 0..20 {
        let count = times.iter().filter(|(id, _)| *id == MemberId(member)).count();
        assert!((4..=11).contains(&count), "member {member} {count} times of 150 among 20");
    }
    scene.prober.set_ceiling(None);
    scene.prober.follow(targets);
    assert!(!scene.prober.stretch().is_felt());
    let before = scene.count(|c| &c.started);
    scene.until("all that is asked for is had", || scene.count(|c| &c.started) > before + 200);
}

#[test]
fn a_pool_that_panics_keeps_no_sample_from_another() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let good = scene.target(1, 7, origin.address, NEVER);
    let bad = Target { report: Arc::new(|_, _, _| panic!("injected")), ..of_pool("bad", good.clone()) };
    scene.prober.follow(vec![bad, good]);
    for _ in 0..3 {
        assert_pass(&scene.report().3);
    }
    assert!(scene.count(|c| &c.panics) >= 2);
}

#[test]
fn counters_tell_what_probes_found() {
    let scene = Scene::new(100);
    let healthy = scene.healthy();
    let wrong = scene.origin(vec![Step::Read, Step::Write(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n".to_vec())]);
    let closed = scene.origin(vec![]);
    let origins = [&healthy, &wrong, &closed];
    let targets = (1..).zip(origins).map(|(member, origin)| scene.target(member, 7, origin.address, NEVER)).collect();
    scene.prober.follow(targets);
    (0..3).for_each(|_| drop(scene.report()));
    let counts = [
        scene.count(|c| &c.started),
        scene.count(|c| &c.passed),
        scene.count(|c| &c.failed),
        scene.count(|c| &c.unreachable),
        scene.count(|c| &c.inconclusive),
    ];
    assert_eq!(counts, [3, 1, 2, 1, 0]);
}

#[test]
fn in_doubt_for_one_pool_the_fast_interval_holds_for_all() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let sender = scene.sender.clone();
    let report: Report = Arc::new(move |now, sample, _| {
        sender.send((MemberId(1), 7, now, sample)).ok()?;
        Some(Pace::Fast)
    });
    let fast = |target| Target { fast_interval: Duration::from_millis(5), ..target };
    let doubting = fast(scene.reporting(MemberId(1), 7, origin.address, NEVER, report));
    let sure = Target { report: Arc::new(|_, _, _| Some(Pace::Steady)), ..of_pool("sure", doubting.clone()) };
    for targets in [vec![doubting.clone()], vec![doubting.clone(), sure.clone()], vec![sure, doubting]] {
        scene.prober.follow(targets);
        let times: Vec<Duration> = (0..5).map(|_| scene.report().2).collect();
        assert!(times.is_sorted() && times[4] - times[0] < NEVER, "{times:?}");
    }
}
