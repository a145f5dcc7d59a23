//! Who is probed, when, and what survives.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};

use super::origin::Step;
use super::scene::{NEVER, Scene};
use super::*;
use crate::health::MemberId;
use crate::probe::{Haste, Idle, Report, Target};

#[test]
fn a_new_member_is_probed_at_once_and_then_in_its_interval() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let interval = Duration::from_millis(40);
    scene.prober.follow(vec![scene.target(1, 7, origin.address, interval)]);
    let times: Vec<Duration> = (0..6)
        .map(|_| {
            let (member, fingerprint, now, sample) = scene.report();
            assert_pass(&sample);
            assert_eq!((member, fingerprint), (MemberId(1), 7));
            now
        })
        .collect();
    // The second falls on the first point of the grid, anywhere in the interval; from there on it is kept.
    assert!(times[5] - times[0] >= interval * 3, "{times:?}");
    assert_eq!(scene.count(|c| &c.inconclusive), 0);
    let next = scene.prober.next_probe_at("web", MemberId(1)).unwrap();
    assert!(next > times[4], "{next:?} after {times:?}");
}

#[test]
fn following_the_same_members_again_adds_no_probe() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    for _ in 0..10 {
        scene.prober.follow(vec![scene.target(1, 7, origin.address, NEVER), scene.target(2, 7, origin.address, NEVER)]);
    }
    let mut members = [scene.report().0, scene.report().0];
    members.sort();
    assert_eq!(members, [MemberId(1), MemberId(2)]);
    scene.prober.follow(vec![scene.target(1, 7, origin.address, NEVER), scene.target(3, 7, origin.address, NEVER)]);
    assert_eq!(scene.report().0, MemberId(3), "only who is new is probed");
    assert_eq!(scene.count(|c| &c.started), 3);
}

#[test]
fn a_member_that_left_is_not_probed_and_what_was_in_flight_is_not_reported() {
    let scene = Scene::new(100);
    let mut silent = scene.origin(vec![Step::Read, Step::Hang]);
    scene.prober.follow(vec![scene.target(1, 7, silent.address, Duration::from_millis(10))]);
    scene.runtime.block_on(silent.request());
    scene.prober.follow(vec![]);
    scene.until("the probe is cancelled", || scene.count(|c| &c.inconclusive) == 1);
    assert!(!scene.prober.probe_now("web", MemberId(1)));
    assert_eq!(scene.prober.next_probe_at("web", MemberId(1)), None);
    assert_eq!(scene.reports.try_iter().count(), 0);
    assert_eq!(scene.count(|c| &c.started), 1);
}

#[test]
fn another_probe_of_a_member_starts_at_once_and_ends_the_old_one() {
    let scene = Scene::new(100);
    let mut silent = scene.origin(vec![Step::Read, Step::Hang]);
    let healthy = scene.healthy();
    scene.prober.follow(vec![scene.target(1, 7, silent.address, NEVER)]);
    scene.runtime.block_on(silent.request());
    scene.prober.follow(vec![scene.target(1, 8, healthy.address, NEVER)]);
    let (member, fingerprint, _, sample) = scene.report();
    assert_eq!((member, fingerprint), (MemberId(1), 8));
    assert_pass(&sample);
    scene.until("the old one is cancelled", || scene.count(|c| &c.inconclusive) == 1);
}

#[test]
fn another_interval_or_timeout_re_times_a_member_and_asks_nothing_by_itself() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let timed = |interval, timeout| {
        let target = scene.target(1, 7, origin.address, interval);
        let probe = Probe { timeout, ..probe(ProbeKind::Http(http_probe())) };
        Target { check: Arc::new(Check::single(&probe, "app1.test", origin.address).unwrap()), ..target }
    };
    scene.prober.follow(vec![timed(NEVER, PATIENCE)]);
    let (_, _, first, _) = scene.report();
    scene.prober.follow(vec![timed(NEVER / 2, PATIENCE / 2)]);
    scene.prober.follow(vec![timed(NEVER / 2, PATIENCE / 2), scene.target(2, 7, origin.address, NEVER)]);
    assert_eq!(scene.report().0, MemberId(2));
    assert_eq!(scene.count(|c| &c.started), 2);
    scene.prober.follow(vec![timed(Duration::from_millis(20), PATIENCE)]);
    let (_, _, second, _) = scene.report();
    let (_, _, third, _) = scene.report();
    assert!(first < second && second < third);
}

#[test]
fn a_member_whose_pool_does_not_know_it_any_more_is_left() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let report: Report = Arc::new(move |_, _, _| {
        counted.fetch_add(1, Relaxed);
        None
    });
    scene.prober.follow(vec![scene.reporting(MemberId(1), 7, origin.address, Duration::from_millis(1), report)]);
    scene.until("it was reported", || asked.load(Relaxed) == 1);
    scene.until("nothing is planned", || scene.prober.next_probe_at("web", MemberId(1)).is_none());
    scene.prober.follow(vec![scene.target(2, 7, origin.address, NEVER)]);
    scene.report();
    assert_eq!((asked.load(Relaxed), scene.count(|c| &c.started)), (1, 2));
}

#[test]
fn a_probe_is_made_now_on_demand() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    scene.prober.follow(vec![scene.target(1, 7, origin.address, NEVER)]);
    scene.report();
    for _ in 0..3 {
        assert!(scene.prober.probe_now("web", MemberId(1)));
        assert_pass(&scene.report().3);
    }
    assert!(!scene.prober.probe_now("web", MemberId(2)));
    assert!(!scene.prober.probe_now("api", MemberId(1)));
}

#[test]
fn probes_are_hastened_once_per_interval() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    scene.prober.follow(vec![scene.target(1, 7, origin.address, NEVER)]);
    scene.report();
    let made = scene.prober.hasten("web", MemberId(1));
    let Some(Haste::Made { next }) = made else { panic!("{made:?}") };
    scene.report();
    for _ in 0..100 {
        assert_eq!(scene.prober.hasten("web", MemberId(1)), Some(Haste::TooSoon { before: next }));
    }
    assert_eq!(scene.prober.hasten("web", MemberId(2)), None);
    assert!(scene.prober.probe_now("web", MemberId(1)), "an operator is not held to that");
    scene.report();
    assert_eq!(scene.count(|c| &c.started), 3);
}

#[test]
fn a_member_has_one_probe_in_flight_at_most() {
    let scene = Scene::new(100);
    let mut silent = scene.origin(vec![Step::Read, Step::Hang]);
    let other = scene.healthy();
    scene.prober.follow(vec![
        scene.target(1, 7, silent.address, Duration::from_millis(1)),
        scene.target(2, 7, other.address, Duration::from_millis(1)),
    ]);
    scene.runtime.block_on(silent.request());
    for _ in 0..20 {
        scene.prober.probe_now("web", MemberId(1));
        assert_eq!(scene.report().0, MemberId(2));
    }
    // All that was started but this one belongs to the other member.
    let others = scene.count(|c| &c.passed);
    assert!(scene.count(|c| &c.started) <= others + 2, "started, but for the one in flight of each member");
}

/// Between a report that found its member gone and the end of its task, others were handed to a task that then ended.
#[test]
fn members_handed_over_while_a_report_finds_the_member_gone_are_probed() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let ((told, is_told), (go_on, may_go_on)) = (channel(), channel::<()>());
    let may_go_on = Mutex::new(may_go_on);
    let gone: Report = Arc::new(move |_, _, _| {
        told.send(()).ok()?;
        may_go_on.lock().unwrap().recv().ok()?;
        None
    });
    let mine = scene.target(1, 7, origin.address, NEVER);
    scene.prober.follow(vec![Target { report: gone, ..mine.clone() }]);
    is_told.recv_timeout(PATIENCE).expect("the report");
    // The same as before: no newcomer, who would ask for a probe of its own.
    scene.prober.follow(vec![mine]);
    go_on.send(()).unwrap();
    assert_pass(&scene.report().3);
    scene.until("another is planned", || scene.prober.next_probe_at("web", MemberId(1)).is_some());
}

#[test]
fn a_member_that_was_gone_is_taken_up_again() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let good = scene.target(1, 7, origin.address, NEVER);
    scene.prober.follow(vec![Target { report: Arc::new(|_, _, _| None), ..good.clone() }]);
    scene.until("nothing is planned", || {
        scene.count(|c| &c.passed) == 1 && scene.prober.next_probe_at("web", MemberId(1)).is_none()
    });
    scene.until("it is taken up again", || {
        scene.prober.follow(vec![good.clone()]);
        scene.reports.try_recv().is_ok()
    });
}

#[test]
fn after_stop_nothing_is_probed() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    scene.prober.follow(vec![scene.target(1, 7, origin.address, Duration::from_millis(1))]);
    scene.report();
    scene.prober.stop();
    scene.prober.follow(vec![scene.target(2, 7, origin.address, Duration::from_millis(1))]);
    let Scene { prober, reports, sender, .. } = scene;
    drop((prober, sender));
    // Every task is gone when nobody is left who could report.
    let last = std::iter::repeat_with(|| reports.recv_timeout(PATIENCE)).find(Result::is_err).unwrap();
    assert!(matches!(last, Err(RecvTimeoutError::Disconnected)));
}

#[test]
fn what_nobody_uses_is_probed_rarely_until_somebody_does() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let is_idle = Arc::new(AtomicBool::new(true));
    let asked = is_idle.clone();
    let idle = Idle { interval: NEVER, is_idle: Arc::new(move |_| asked.load(Relaxed)) };
    let soon = Duration::from_millis(20);
    scene.prober.follow(vec![Target { idle: Some(idle), ..scene.target(1, 7, origin.address, soon) }]);
    let planned = || scene.prober.next_probe_at("web", MemberId(1)).unwrap_or_default();
    scene.report();
    // The phase on a grid of such cells is anywhere in one; only a wake-up or that point brings another probe.
    scene.until("the next probe is planned on the wide grid", || planned() > crate::clock::monotonic() + 10 * soon);
    is_idle.store(false, Relaxed);
    scene.prober.wake("api");
    scene.prober.wake("web");
    // The one that was asked for, and those at the pace of use.
    (0..4).for_each(|_| drop(scene.report()));
}
