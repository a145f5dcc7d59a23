//! Rules that are tried (`observe`): what they would have done is told, shown and counted, and nothing goes by them.

use std::time::Duration;

use serde_json::Value;

use crate::harness::proxy::config_of;
use crate::harness::{Answer, Line, Origin, Proxy, When, eventually};

const QUICK: &str = "path: /healthz, interval: 900ms, fast_interval: 100ms, timeout: 900ms";

fn config(origins: &[&Origin], keys: &str) -> String {
    let members: Vec<String> = origins.iter().map(ToString::to_string).collect();
    config_of(&members, keys)
}

/// A gate that only slow answers are over, whatever the machine is at.
fn gated() -> String {
    format!("probe: {{ {QUICK}, consecutive: {{ failures: 1 }} }}\nobserve: {{ max_latency: 400ms }}")
}

fn slow() -> Answer {
    Answer::status(200).after(Duration::from_millis(600))
}

fn observed<'a>(line: &'a Line, pairs: &[(&str, &str)]) -> Option<&'a Line> {
    (line.has(pairs) && line.raw.contains("observed\":true")).then_some(line)
}

fn would_stand(proxy: &Proxy, origin: &Origin, standing: &str) {
    eventually("it would stand so", || proxy.member("web", &origin.address())["observed"]["standing"] == standing);
}

/// Of these requests, those on a member that would have been ejected.
fn of_the_trial(lines: &[Line], origin: &Origin) -> usize {
    let attempts = lines.iter().flat_map(|line| line.json["attempts"].as_array().into_iter().flatten());
    attempts.filter(|attempt| attempt["member"] == *origin.address() && attempt["observed"] == "ejected").count()
}

fn events(proxy: &Proxy) -> Vec<Value> {
    proxy.admin_get("/api/v1/events?limit=1000").json()["events"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_gate_that_is_tried_is_told_shown_and_counted_and_the_member_serves() {
    let (good, late) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config(&[&good, &late], &gated()));
    proxy.await_all_healthy();
    would_stand(&proxy, &late, "healthy");
    let mark = proxy.mark();
    late.when(When::probe(), slow());
    let address = late.address();
    let event = proxy.await_event(mark, &[("kind", "member"), ("member", &address), ("to", "unhealthy")]);
    assert!(observed(&event, &[("reason", "slow"), ("standing", "ejected")]).is_some(), "{}", event.raw);
    assert!(event.raw.contains("observed (max_latency): member") && event.text("level") == "info", "{}", event.raw);
    would_stand(&proxy, &late, "ejected");
    let member = proxy.member("web", &address);
    assert_eq!((&member["standing"], &member["verdict"]), (&"healthy".into(), &"healthy".into()), "{member}");
    assert_eq!(member["observed"]["ejected_because"], "slow", "{member}");
    let pool = proxy.pool("web");
    assert_eq!((&pool["mode"], &pool["ejected"], &pool["in_rotation"]), (&"normal".into(), &0.into(), &2.into()));
    assert_eq!(pool["observed"]["rules"], serde_json::json!(["max_latency"]));
    assert_eq!((&pool["observed"]["ejected"], &pool["observed"]["in_rotation"]), (&1.into(), &1.into()), "{pool}");

    let lines = proxy.sample("/shared", 20);
    assert_eq!((late.traffic_count(), of_the_trial(&lines, &late)), (10, 10));
    assert_eq!(of_the_trial(&lines, &good), 0);

    let scrape = proxy.admin_get("/metrics").text();
    let has = |series: &str| assert!(scrape.contains(series), "no {series:?} in {scrape}");
    has(&format!("pulsegate_member_up{{pool=\"web\",member=\"{address}\"}} 1"));
    has(&format!("pulsegate_observed_member_up{{pool=\"web\",member=\"{address}\"}} 0"));
    has(&format!("pulsegate_observed_member_standing{{pool=\"web\",member=\"{address}\",standing=\"ejected\"}} 1"));
    has("pulsegate_pool_ejected{pool=\"web\"} 0");
    has("pulsegate_observed_pool_ejected{pool=\"web\"} 1");
    assert!(!scrape.contains(&format!("member_transitions_total{{pool=\"web\",member=\"{address}\",to=\"unhealthy\"")));

    let said = proxy.admin_get("/api/v1/explain?url=http://a.test/x").json();
    let of_late = said["members"].as_array().and_then(|all| all.iter().find(|member| member["address"] == *address));
    let why = of_late.map(|member| member["why"].to_string()).unwrap_or_default();
    assert!(why.contains("would be ejected (observed: max_latency), unhealthy since"), "{said}");

    late.when(When::probe(), Answer::status(200));
    would_stand(&proxy, &late, "healthy");
    let of_member = |event: &&Value| event["member"] == *address && event["observed"] == true;
    assert!(events(&proxy).iter().filter(of_member).count() >= 2, "{:?}", events(&proxy));
}

#[test]
fn a_rule_that_is_tried_is_put_in_force_by_a_reload_and_tried_again_by_another() {
    let (good, late) = (Origin::start(), Origin::start());
    let tried = gated();
    let in_force = format!("probe: {{ {QUICK}, consecutive: {{ failures: 1 }}, max_latency: 400ms }}");
    let proxy = Proxy::start(&config(&[&good, &late], &tried));
    proxy.await_all_healthy();
    late.when(When::probe(), slow());
    would_stand(&proxy, &late, "ejected");
    // What has nothing to do with it leaves both as they are.
    proxy.reload(&config(&[&good, &late], &format!("{tried}\nretries: {{ attempts: 1 }}")));
    assert_eq!(proxy.member("web", &late.address())["observed"]["standing"], "ejected");
    proxy.reload(&config(&[&good, &late], &in_force));
    assert!(proxy.member("web", &late.address())["observed"].is_null());
    proxy.await_standing(&late, "ejected");
    // It keeps the verdict it has until its next probe, which no gate fails.
    proxy.reload(&config(&[&good, &late], &tried));
    proxy.await_standing(&late, "healthy");
    assert_eq!(proxy.member("web", &late.address())["observed"]["standing"], "ejected");
    assert_eq!(of_the_trial(&proxy.sample("/tried", 10), &late), 5);
    // What was tried last is no trial's any more.
    proxy.reload(&config(&[&good, &late], &tried.replace("observe: { max_latency: 400ms }", "")));
    assert_eq!(of_the_trial(&proxy.sample("/over", 10), &late), 0);
}

#[test]
fn a_cap_that_is_tried_moves_nobody() {
    let origins: [Origin; 4] = std::array::from_fn(|_| Origin::start());
    let [one, two, ..] = &origins;
    let keys =
        format!("probe: {{ {QUICK}, consecutive: {{ failures: 1 }} }}\nobserve: {{ max_unhealthy_percent: 25 }}");
    let proxy = Proxy::start(&config(&origins.each_ref(), &keys));
    proxy.await_all_healthy();
    let mark = proxy.mark();
    for origin in [one, two] {
        origin.when(When::probe(), Answer::status(503));
        proxy.await_standing(origin, "ejected");
    }
    let kept = proxy.await_event(mark, &[("standing", "kept"), ("member", &two.address())]);
    assert!(kept.raw.contains("observed (max_unhealthy_percent)"), "{}", kept.raw);
    let pool = proxy.pool("web");
    assert_eq!((&pool["mode"], &pool["observed"]["mode"]), (&"normal".into(), &"capped".into()), "{pool}");
    proxy.sample("/two", 12);
    assert!([one, two].iter().all(|origin| origin.traffic_count() == 0));
}

#[test]
fn a_fallback_that_comes_whatever_is_tried_is_told_once() {
    let (one, two) = (Origin::start(), Origin::start());
    let keys = format!(
        "probe: {{ {QUICK}, consecutive: {{ failures: 1 }} }}\nmax_unhealthy_percent: 100\nobserve: {{ max_unhealthy_percent: 0 }}"
    );
    let proxy = Proxy::start(&config(&[&one, &two], &keys));
    proxy.await_all_healthy();
    one.when(When::probe(), Answer::status(503));
    proxy.await_standing(&one, "ejected");
    assert_eq!(proxy.pool("web")["observed"]["mode"], "capped");
    two.when(When::probe(), Answer::status(503));
    proxy.await_mode("fallback");
    two.when(When::probe(), Answer::status(200));
    // Behind which all has been told.
    proxy.await_event(0, &[("kind", "fallback"), ("from", "fallback"), ("to", "capped")]);
    let falls = proxy.events(&[("kind", "fallback"), ("to", "fallback")]);
    assert_eq!(falls.len(), 1, "{falls:?}");
    assert_eq!(falls[0].text("from"), "normal", "{}", falls[0].raw);
}

#[test]
fn a_probe_that_only_observes_is_shown_and_judges_nobody() {
    let (good, dead) = (Origin::start(), Origin::start());
    dead.when(When::probe(), Answer::status(503));
    let keys = format!("probe: {{ {QUICK}, consecutive: {{ failures: 2 }}, observe: true }}");
    let proxy = Proxy::start(&config(&[&good, &dead], &keys));
    let address = dead.address();
    would_stand(&proxy, &good, "healthy");
    eventually("it would be unhealthy", || proxy.member("web", &address)["observed"]["verdict"] == "unhealthy");
    let member = proxy.member("web", &address);
    assert_eq!((&member["verdict"], &member["standing"]), (&"healthy".into(), &"healthy".into()), "{member}");
    assert_eq!((&member["last_probe"]["status"], &member["window"]["passes"]), (&503.into(), &0.into()), "{member}");
    assert!(member["streak"].as_i64().is_some_and(|streak| streak <= -2), "{member}");
    proxy.sample("/both", 10);
    assert_eq!(dead.traffic_count(), 5);
    let lines = proxy.access_log();
    let window = |line: &Line| line.raw.contains(&format!("\"member\":\"{address}\"")) && line.raw.contains("\"0/");
    assert!(lines.iter().any(window), "its samples are in the access log");
    let told = events(&proxy);
    let of_health = |event: &&Value| matches!(event["kind"].as_str(), Some("member" | "pool" | "fallback" | "cap"));
    assert!(told.iter().filter(of_health).all(|event| event["observed"] == true), "{told:?}");
}

#[test]
fn ejection_by_traffic_that_is_tried_is_told_and_the_member_keeps_its_traffic() {
    let (good, bad) = (Origin::start(), Origin::start());
    let tried = "rescue: false\nobserve: { passive: { eject: { consecutive: 3, base: 300ms, max: 300ms } } }";
    // In the presets traffic says nothing, and still it can be tried.
    let keys = format!("probe: {{ {QUICK} }}\npassive: off\n{tried}");
    let proxy = Proxy::start(&config(&[&good, &bad], &keys));
    proxy.await_all_healthy();
    let (mark, address) = (proxy.mark(), bad.address());
    bad.when(When::path("/api"), Answer::status(503));
    (0..6).for_each(|_| drop(proxy.get("/api")));
    let event = proxy.await_event(mark, &[("kind", "member"), ("member", &address), ("to", "unhealthy")]);
    assert!(observed(&event, &[("reason", "status"), ("standing", "ejected")]).is_some(), "{}", event.raw);
    assert!(event.raw.contains("observed (passive): member"), "{}", event.raw);
    assert!(event.text("detail").contains("3 failures in a row, last: 503"), "{}", event.raw);
    // Its time is over without a request, a probe that says so or a reload.
    let back = proxy.await_event(mark, &[("kind", "member"), ("member", &address), ("to", "healthy")]);
    assert!(observed(&back, &[("from", "unhealthy")]).is_some(), "{}", back.raw);

    let forever = keys.replace("300ms, max: 300ms", "10m, max: 10m");
    proxy.reload(&config(&[&good, &bad], &forever));
    eventually("it would be out again", || {
        proxy.get("/api");
        proxy.member("web", &address)["observed"]["standing"] == "ejected"
    });
    let member = proxy.member("web", &address);
    assert_eq!((&member["standing"], &member["passive"]), (&"healthy".into(), &Value::Null), "{member}");
    assert_eq!(member["observed"]["ejected_because"], "passive", "{member}");
    let before = bad.traffic_count();
    proxy.sample("/shared", 20);
    assert_eq!(bad.traffic_count() - before, 10);
    let scrape = proxy.admin_get("/metrics").text();
    let has = |series: &str| assert!(scrape.contains(series), "no {series:?} in {scrape}");
    assert!(!scrape.contains("pulsegate_passive_ejections_total{"), "nothing of that kind has happened");
    has(&format!("pulsegate_observed_member_standing{{pool=\"web\",member=\"{address}\",standing=\"ejected\"}} 1"));
    let said = proxy.admin_get("/api/v1/explain?url=http://a.test/x").json();
    let of_bad = said["members"].as_array().and_then(|all| all.iter().find(|member| member["address"] == *address));
    let why = of_bad.map(|member| member["why"].to_string()).unwrap_or_default();
    assert!(why.contains("would be ejected (observed: passive)") && why.contains("3 failures in a row"), "{said}");

    // Moved into force, its next failures put it out.
    let in_force = "passive: { eject: { consecutive: 3, base: 10m, max: 10m } }";
    proxy.reload(&config(&[&good, &bad], &format!("probe: {{ {QUICK} }}\n{in_force}")));
    eventually("it is out", || {
        proxy.get("/api");
        proxy.member("web", &address)["standing"] == "ejected"
    });
}
