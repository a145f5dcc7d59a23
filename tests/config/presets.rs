//! "The presets in one table" (product.md), row by row, read off what a bare pool of that preset means.

use std::time::Duration;

use pulsegate::balance::Policy;
use pulsegate::config::{HttpProbe, Idle, Passive, Pool, Probe, ProbeKind, ProbeMethod};
use pulsegate::health::{Gates, Initial, Judge, OnAllUnhealthy};

use super::{around, lines, parse, pool};

const MEMBERS: &str = r#"members: ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]"#;

fn app_service() -> Pool {
    pool(&format!("preset: app_service, {MEMBERS}, probe: {{ path: /health }}"))
}

fn front_door() -> Pool {
    pool(&format!("preset: front_door, {MEMBERS}"))
}

fn application_gateway() -> Pool {
    pool(&format!("preset: application_gateway, {MEMBERS}"))
}

fn all() -> [Pool; 3] {
    [app_service(), front_door(), application_gateway()]
}

fn probe(pool: &Pool) -> &Probe {
    pool.probe.as_ref().expect("a preset probes")
}

fn http(pool: &Pool) -> &HttpProbe {
    match &probe(pool).kind {
        ProbeKind::Http(http) => http,
        ProbeKind::Tcp | ProbeKind::Grpc(_) => panic!("a preset probes over http"),
    }
}

#[test]
fn row_idle_pools() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let rare = Some(Idle { after: minutes(5), interval: minutes(2) });
    assert_eq!(all().each_ref().map(|p| probe(p).idle), [None, rare, None]);
    let idle = |keys: &str| probe(&pool(&format!("preset: front_door, {MEMBERS}, probe: {{ {keys} }}"))).idle;
    assert_eq!(idle("idle: off"), None);
    assert_eq!(idle("idle: { after: 1m }"), Some(Idle { after: minutes(1), interval: minutes(2) }));
    assert_eq!(
        idle("interval: 3m"),
        Some(Idle { after: minutes(5), interval: minutes(3) }),
        "never more often than ever"
    );
}

/// All problems of a pool, as lines without file and place.
fn problems(keys: &str) -> String {
    parse(&around(keys)).map_or_else(|problems| lines(&problems), |loaded| panic!("taken: {:?}", loaded.advice))
}

#[test]
fn row_method_and_path() {
    let told = |p: &Pool| (http(p).method, http(p).path.clone());
    assert_eq!(
        all().each_ref().map(told),
        [
            (ProbeMethod::Get, "/health".to_owned()),
            (ProbeMethod::Head, "/".to_owned()),
            (ProbeMethod::Get, "/".to_owned()),
        ]
    );
    let missing = problems(&format!("preset: app_service, {MEMBERS}"));
    assert!(missing.contains("preset app_service has no default path"), "{missing}");
}

#[test]
fn row_host_sent() {
    let told = |p: &Pool| (http(p).host.clone(), http(p).host_header.clone());
    assert_eq!(all().each_ref().map(told), [(None, None), (None, None), (None, Some("127.0.0.1".to_owned()))]);
    // "unless set": then it is the SNI and the verified name as well.
    let set = pool(&format!("preset: application_gateway, {MEMBERS}, probe: {{ host: www.example.com }}"));
    assert_eq!(told(&set), (Some("www.example.com".to_owned()), None));
}

#[test]
fn row_interval_and_timeout() {
    let told = |p: &Pool| (probe(p).interval.as_secs(), probe(p).timeout.as_secs());
    assert_eq!(all().each_ref().map(told), [(60, 60), (30, 10), (30, 30)]);
}

#[test]
fn row_pass() {
    let told = |p: &Pool| http(p).expect.clone().status;
    assert_eq!(all().each_ref().map(told), [vec![(200, 299)], vec![(200, 200)], vec![(200, 399)]]);
    assert!(all().iter().all(|p| http(p).expect.body.is_none()));
}

#[test]
fn row_judge() {
    let told = |p: &Pool| p.rules.judge;
    assert_eq!(
        all().each_ref().map(told),
        [
            Judge::Consecutive { failures: 10, passes: 1 },
            Judge::Window { size: 4, required: 3 },
            Judge::Consecutive { failures: 3, passes: 1 },
        ]
    );
}

#[test]
fn row_new_member_waits_for_its_first_pass() {
    assert!(all().iter().all(|p| p.rules.initial == Initial::Probe && p.rules.probed));
}

#[test]
fn row_fast_interval_is_the_interval() {
    assert!(all().iter().all(|p| probe(p).fast_interval == probe(p).interval));
    let brisk = pool(&format!("preset: front_door, {MEMBERS}, probe: {{ interval: 12s }}"));
    assert_eq!(probe(&brisk).fast_interval, Duration::from_secs(12));
}

#[test]
fn row_cap() {
    assert_eq!(all().each_ref().map(|p| p.rules.max_unhealthy_percent), [50, 100, 100]);
    assert!(all().iter().all(|p| p.rules.min_ejected == 0));
}

#[test]
fn row_all_failing() {
    assert!(all().iter().all(|p| p.rules.on_all_unhealthy == OnAllUnhealthy::RoundRobin));
}

#[test]
fn row_ranges_checked() {
    let failures =
        |n: u32| format!("preset: app_service, {MEMBERS}, probe: {{ path: /, consecutive: {{ failures: {n} }} }}");
    let cap = |n: u32| format!("preset: app_service, {MEMBERS}, probe: {{ path: / }}, max_unhealthy_percent: {n}");
    let body = |n: usize| {
        let needle = "x".repeat(n);
        format!("preset: application_gateway, {MEMBERS}, probe: {{ expect: {{ body: {needle} }} }}")
    };
    let window =
        |required: u32| format!("preset: front_door, {MEMBERS}, probe: {{ window: {{ required: {required} }} }}");
    let off = |members: &str| format!("preset: front_door, members: [{members}], probe: off");
    let taken = [
        failures(2),
        failures(10),
        cap(1),
        cap(100),
        body(4090),
        window(4),
        off(r#""a:80""#),
        off(r#""a:80", { address: "b:80", state: disabled }"#),
    ];
    for keys in taken {
        pool(&keys);
    }
    let refused = [
        (failures(1), "`failures` cannot be 1; write 2 to 10"),
        (failures(11), "`failures` cannot be 11; write 2 to 10"),
        (cap(0), "`max_unhealthy_percent` cannot be 0; write 1 to 100"),
        (cap(101), "`max_unhealthy_percent` cannot be 101; write 1 to 100"),
        (body(4091), "at most 4090 characters"),
        (window(5), "5 passes cannot be required of the last 4"),
        (off(r#""a:80", "b:80""#), "preset front_door needs probes"),
        (format!("preset: app_service, {MEMBERS}, probe: {{ path: health }}"), "does not begin with `/`"),
        (format!("preset: application_gateway, {MEMBERS}, probe: {{ path: health }}"), "does not begin with `/`"),
    ];
    for (keys, message) in refused {
        let said = problems(&keys);
        assert!(said.contains(message), "{keys}: {said}");
    }
}

#[test]
fn row_gates_and_slow_start_none() {
    assert!(all().iter().all(|p| p.rules.gates == Gates::default() && p.rules.slow_start.is_zero()));
    let slow = pool(&format!("preset: front_door, {MEMBERS}, slow_start: 30s"));
    assert_eq!(slow.rules.slow_start, Duration::from_secs(30));
}

#[test]
fn row_passive_off() {
    assert_eq!(all().map(|p| p.passive), [Passive::Off; 3]);
    let hastens = pool(&format!("preset: front_door, {MEMBERS}, passive: hasten"));
    assert_eq!(hastens.passive, Passive::Hasten);
    assert_eq!(pool(MEMBERS).passive, Passive::Hasten);
}

#[test]
fn row_balance() {
    assert_eq!(
        all().map(|p| p.balance),
        [Policy::RoundRobin, Policy::Fastest { sensitivity: Duration::from_millis(50) }, Policy::RoundRobin,]
    );
}

#[test]
fn row_user_agent_is_the_probers_own() {
    // The prober names itself where no field replaces its own.
    assert!(all().iter().all(|p| http(p).headers.is_empty()));
}
