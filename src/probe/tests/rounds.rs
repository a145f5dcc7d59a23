//! What the members share: places, probes, and each other's misfortunes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::origin::Step;
use super::scene::{NEVER, Scene};
use super::*;
use crate::health::{MemberId, Pace};
use crate::probe::{Report, Target};

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
    let report: Report = Arc::new(move |now, sample| {
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
    let other = Target { fingerprint: 8, ..of_pool("other", shared(1)) };
    let sooner = Target { interval: NEVER / 2, fast_interval: NEVER / 2, ..of_pool("sooner", shared(1)) };
    let targets = || vec![web.clone(), api.clone(), other.clone(), sooner.clone()];
    scene.prober.follow(targets());
    (0..4).for_each(|_| drop(scene.report()));
    assert_eq!(scene.count(|c| &c.started), 3, "one for two pools; another probe and another pace have their own");
    for pool in ["web", "api"] {
        assert!(scene.prober.next_probe_at(pool, MemberId(1)).is_some(), "{pool}");
        assert!(scene.prober.probe_now(pool, MemberId(1)));
        scene.report();
        scene.report();
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
fn a_pool_that_panics_keeps_no_sample_from_another() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let good = scene.target(1, 7, origin.address, NEVER);
    let bad = Target { report: Arc::new(|_, _| panic!("injected")), ..of_pool("bad", good.clone()) };
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
    let report: Report = Arc::new(move |now, sample| {
        sender.send((MemberId(1), 7, now, sample)).ok()?;
        Some(Pace::Fast)
    });
    let fast = |target| Target { fast_interval: Duration::from_millis(5), ..target };
    let doubting = fast(scene.reporting(MemberId(1), 7, origin.address, NEVER, report));
    let sure = Target { report: Arc::new(|_, _| Some(Pace::Steady)), ..of_pool("sure", doubting.clone()) };
    for targets in [vec![doubting.clone()], vec![doubting.clone(), sure.clone()], vec![sure, doubting]] {
        scene.prober.follow(targets);
        let times: Vec<Duration> = (0..5).map(|_| scene.report().2).collect();
        assert!(times.is_sorted() && times[4] < NEVER, "{times:?}");
    }
}
