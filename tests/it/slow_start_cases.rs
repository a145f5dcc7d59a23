//! A member that comes back gets its share step by step (health.md §7). Shares are counted, not timed: where a step lasts for
//! hours, every request of a test falls into it.

use serde_json::Value;

use crate::harness::proxy::{PROBE, pool_config};
use crate::harness::scrape::Scrape;
use crate::harness::{Answer, Line, Origin, Proxy, When, eventually};

/// Everybody begins healthy, and of three one may be out.
const BEGUN: &str = "initial: healthy\nmax_unhealthy_percent: 34";

fn with(origins: &[Origin; 3], keys: &str) -> String {
    pool_config(&origins.each_ref(), &format!("{BEGUN}\n{keys}"))
}

fn of(proxy: &Proxy, origin: &Origin, field: &str) -> Value {
    proxy.member("web", &origin.address())[field].clone()
}

/// The member fails, and comes back.
#[track_caller]
fn falls_and_comes_back(proxy: &Proxy, origin: &Origin) {
    origin.when(When::probe(), Answer::status(503));
    proxy.await_standing(origin, "ejected");
    origin.when(When::probe(), Answer::status(200));
    proxy.await_standing(origin, "healthy");
}

/// How many of `count` requests each of them gets.
fn counts(proxy: &Proxy, origins: &[Origin; 3], base: &str, count: usize) -> [usize; 3] {
    let lines: Vec<Line> = proxy.sample(base, count);
    origins.each_ref().map(|origin| lines.iter().filter(|line| line.tried() == [origin.address()]).count())
}

#[test]
fn who_comes_back_begins_with_a_tenth_of_its_weight_and_everybody_tells() {
    let origins: [Origin; 3] = std::array::from_fn(|_| Origin::start());
    let [_, ill, back] = &origins;
    let proxy = Proxy::start(&with(&origins, "slow_start: 24h"));
    proxy.await_all_healthy();
    assert_eq!(counts(&proxy, &origins, "/begun", 30), [10, 10, 10], "who begins healthy has its share");
    falls_and_comes_back(&proxy, back);
    assert_eq!(counts(&proxy, &origins, "/cold", 210), [100, 100, 10], "1 of 10, beside two wholes");
    // Nothing but time moves it.
    for round in 0..3 {
        proxy.reload(&format!("{}# {round}\n", with(&origins, "slow_start: 24h")));
    }
    assert_eq!((counts(&proxy, &origins, "/again", 42), of(&proxy, back, "ramp")), ([20, 20, 2], 0.1.into()));
    assert_eq!((of(&proxy, ill, "ramp"), of(&proxy, back, "weight")), (Value::Null, 1.into()));

    let said = proxy.admin_get("/api/v1/explain?url=http://a.test/").json();
    let members = said["members"].as_array().expect("members");
    let member = members.iter().find(|member| member["address"] == *back.address()).expect("it is one");
    let share = member["share"].as_f64().expect("a share");
    assert!((share - 1.0 / 21.0).abs() < 1e-9 && member["ramp"] == 0.1, "{member}");
    let why = member["why"].as_str().unwrap_or_default();
    assert!(why.contains("slow start since ") && why.contains(": 0.1 of its weight"), "{why}");
    let scrape = Scrape::of(&proxy);
    let ramp = |origin: &Origin| scrape.find(&format!("member_ramp{{pool=\"web\",member=\"{}\"}}", origin.address()));
    assert_eq!((ramp(back), ramp(ill)), (Some(0.1), None));

    // Nobody ramps while somebody is kept: here the second that fails.
    ill.when(When::probe(), Answer::status(503));
    proxy.await_standing(ill, "ejected");
    assert_eq!(counts(&proxy, &origins, "/two", 110), [100, 0, 10]);
    origins[0].when(When::probe(), Answer::status(503));
    proxy.await_mode("capped");
    assert_eq!(of(&proxy, back, "ramp"), Value::Null);
    let kept = counts(&proxy, &origins, "/kept", 20);
    assert_eq!(kept[2], 10, "{kept:?}");
}

#[test]
fn every_policy_that_shares_goes_by_it_and_a_hash_does_not() {
    let origins: [Origin; 3] = std::array::from_fn(|_| Origin::start());
    let back = &origins[2];
    let proxy = Proxy::start(&with(&origins, "slow_start: 24h"));
    proxy.await_all_healthy();
    falls_and_comes_back(&proxy, back);
    let after = |balance: &str, base: &str, count: usize| {
        proxy.reload(&with(&origins, &format!("slow_start: 24h\nbalance: {balance}")));
        counts(&proxy, &origins, base, count)[2]
    };
    // One request at a time finds everybody idle, mostly: who is, serves when it is its turn.
    let idle = after("least_requests", "/least", 63);
    assert!((1..=9).contains(&idle), "about 3 of 63: {idle}");
    let drawn = after("random", "/random", 630);
    assert!((6..=60).contains(&drawn), "about 30 of 630: {drawn}");
    assert_eq!(after("{ fastest: { latency_sensitivity: 1h } }", "/fastest", 63), 3);
    let as_fast = after("peak_ewma", "/as-fast", 63);
    assert!((1..=9).contains(&as_fast), "about 3 of 63: {as_fast}");
    let hashed = after("{ consistent_hash: { key: path } }", "/hash", 300);
    assert!(hashed > 30, "a third of the keys, more or less: {hashed}");
    assert_eq!(of(&proxy, back, "ramp"), Value::Null);
}

#[test]
fn after_a_start_everybody_has_its_weight() {
    let origins: [Origin; 3] = std::array::from_fn(|_| Origin::start());
    let proxy = Proxy::start(&pool_config(&origins.each_ref(), "slow_start: 24h"));
    proxy.await_all_healthy();
    assert_eq!(counts(&proxy, &origins, "/start", 30), [10, 10, 10]);
}

#[test]
fn steps_are_taken_by_time_alone_until_the_weight_is_whole() {
    let origins: [Origin; 3] = std::array::from_fn(|_| Origin::start());
    let back = &origins[2];
    // Between the start and the end nobody is probed: nothing but time can take a step.
    let seldom = PROBE.replace("interval: 500ms, fast", "interval: 1h, fast");
    let config = with(&origins, "slow_start: 5s").replace(PROBE, &seldom);
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    back.when(When::probe(), Answer::status(503));
    let probe = || proxy.admin_post(&format!("/api/v1/pools/web/members/{}/probe", back.address()), &[]).status;
    assert_eq!(probe(), 200);
    proxy.await_standing(back, "ejected");
    back.when(When::probe(), Answer::status(200));
    assert_eq!(probe(), 200);
    proxy.await_standing(back, "healthy");
    let mut seen = Vec::new();
    eventually("its weight is whole", || {
        let ramp = of(&proxy, back, "ramp");
        seen.extend(ramp.as_f64());
        ramp.is_null()
    });
    seen.dedup();
    assert!(seen.len() > 1 && seen.is_sorted() && seen.iter().all(|ramp| (0.1..=0.9).contains(ramp)), "{seen:?}");
    assert_eq!(counts(&proxy, &origins, "/whole", 30), [10, 10, 10]);
}
