//! The prober's care for its members: who is probed, when, and what survives.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};

use tokio::runtime::Runtime;

use super::origin::{Origin, Step, ok};
use super::*;
use crate::health::{MemberId, Pace};
use crate::probe::{Prober, Report, Target};

/// Far longer than any test: a probe at this interval comes once.
const NEVER: Duration = Duration::from_secs(3600);

/// Reports as they come, and origins to probe.
struct Scene {
    runtime: Runtime,
    prober: Prober,
    reports: Receiver<(MemberId, u64, Duration, Sample)>,
    sender: std::sync::mpsc::Sender<(MemberId, u64, Duration, Sample)>,
    planned: Mutex<HashMap<MemberId, Arc<AtomicU64>>>,
}

impl Scene {
    fn new(places: usize) -> Scene {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (sender, reports) = channel();
        Scene { runtime, prober: Prober::start(places).unwrap(), reports, sender, planned: Mutex::default() }
    }

    fn origin(&self, script: Vec<Step>) -> Origin {
        self.runtime.block_on(Origin::playing(script))
    }

    fn healthy(&self) -> Origin {
        self.origin(vec![Step::Read, Step::Write(ok("fine").into_bytes())])
    }

    fn target(&self, member: u64, fingerprint: u64, origin: SocketAddr, interval: Duration) -> Target {
        let (member, sender) = (MemberId(member), self.sender.clone());
        let report: Report = Arc::new(move |now, sample| {
            sender.send((member, fingerprint, now, sample)).ok()?;
            Some(Pace::Steady)
        });
        self.reporting(member, fingerprint, origin, interval, report)
    }

    fn reporting(
        &self,
        member: MemberId,
        fingerprint: u64,
        origin: SocketAddr,
        interval: Duration,
        report: Report,
    ) -> Target {
        let name = format!("app{}.test", member.0);
        Target {
            pool: "web".into(),
            member,
            fingerprint,
            name: format!("{name}:80"),
            // A name of its own makes it a question of its own.
            check: Arc::new(Check::single(&probe(ProbeKind::Http(http_probe())), &name, origin).unwrap()),
            interval,
            fast_interval: interval,
            report,
            next_probe_at: self.planned.lock().unwrap().entry(member).or_default().clone(),
        }
    }

    #[track_caller]
    fn report(&self) -> (MemberId, u64, Duration, Sample) {
        self.reports.recv_timeout(PATIENCE).expect("a report")
    }

    /// Waits until `holds`.
    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, wait).await }).expect(what);
    }

    fn count(&self, counter: impl Fn(&crate::probe::Counters) -> &AtomicU64) -> u64 {
        counter(self.prober.counters()).load(Relaxed)
    }
}

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
fn another_interval_re_times_a_member_and_keeps_its_task() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    scene.prober.follow(vec![scene.target(1, 7, origin.address, NEVER)]);
    let first = scene.report();
    scene.prober.follow(vec![scene.target(1, 7, origin.address, Duration::from_millis(20))]);
    let (_, _, second, _) = scene.report();
    let (_, _, third, _) = scene.report();
    assert!(first.2 < second && second < third);
}

#[test]
fn a_member_whose_pool_does_not_know_it_any_more_is_left() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let report: Report = Arc::new(move |_, _| {
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
    assert!(scene.prober.hasten("web", MemberId(1)));
    scene.report();
    for _ in 0..100 {
        assert!(!scene.prober.hasten("web", MemberId(1)));
    }
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
fn a_member_whose_task_has_ended_is_taken_up_again() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let good = scene.target(1, 7, origin.address, NEVER);
    scene.prober.follow(vec![Target { report: Arc::new(|_, _| None), ..good.clone() }]);
    scene.until("nothing is planned", || {
        scene.count(|c| &c.passed) == 1 && scene.prober.next_probe_at("web", MemberId(1)).is_none()
    });
    scene.until("it is taken up again", || {
        scene.prober.follow(vec![good.clone()]);
        scene.reports.try_recv().is_ok()
    });
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
fn in_doubt_the_fast_interval_holds() {
    let scene = Scene::new(100);
    let origin = scene.healthy();
    let sender = scene.sender.clone();
    let report: Report = Arc::new(move |now, sample| {
        sender.send((MemberId(1), 7, now, sample)).ok()?;
        Some(Pace::Fast)
    });
    let target = scene.reporting(MemberId(1), 7, origin.address, NEVER, report);
    scene.prober.follow(vec![Target { fast_interval: Duration::from_millis(5), ..target }]);
    let times: Vec<Duration> = (0..5).map(|_| scene.report().2).collect();
    assert!(times.is_sorted() && times[4] < NEVER, "{times:?}");
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
