//! Probes that pools share, what they cost, and how many there may be (product.md F6, F8, F9, G2, A18).

use std::time::Duration;

use serde_json::Value;

use crate::harness::scrape::Scrape;
use crate::harness::{Answer, Gate, Origin, Proxy, When, eventually};

/// A pool of these members, with a probe of these keys.
fn pool(name: &str, members: &str, probe: &str) -> String {
    format!("  {name}:\n    members: [{members}]\n    probe: {{ {probe} }}\n")
}

fn config(pools: &[String], first: &str) -> String {
    format!("pools:\n{}routes: [{{ pool: {first} }}]\n", pools.concat())
}

fn probes(proxy: &Proxy) -> Value {
    let reply = proxy.admin_get("/api/v1/probes");
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_str(&reply.text()).expect("json")
}

/// What a query has in it for the probe alone is covered, as in the configuration.
#[test]
fn secrets_of_a_query_are_covered_in_the_list_of_probes() {
    let origin = Origin::start();
    let probe = "path: \"/h?api_key=QUERYsecret&x=1\"";
    let proxy = Proxy::start(&config(&[pool("web", &origin.to_string(), probe)], "web"));
    proxy.await_standing(&origin, "healthy");
    assert_eq!(probes(&proxy)["probes"][0]["path"], "/h?api_key=********&x=1");
}

/// The pools that share each probe, in the order of the list.
fn sharers(proxy: &Proxy) -> Vec<Vec<String>> {
    let listed = probes(proxy);
    let pools = |probe: &Value| {
        let members = probe["members"].as_array().expect("members");
        let mut pools: Vec<String> = members.iter().filter_map(|m| Some(m["pool"].as_str()?.to_owned())).collect();
        pools.sort();
        pools
    };
    listed["probes"].as_array().expect("probes").iter().map(pools).collect()
}

/// Front Door F6: one endpoint in several pools is probed once, at the shortest interval, and each judges by its own rule.
#[test]
fn endpoint_of_several_pools_is_probed_once_and_judged_by_each() {
    let origin = Origin::start();
    let member = origin.to_string();
    let often = "path: /, interval: 1h, timeout: 2s, consecutive: { failures: 1, passes: 1 }";
    let seldom = "path: /, interval: 24h, timeout: 2s, consecutive: { failures: 3, passes: 1 }";
    let proxy = Proxy::start(&config(&[pool("strict", &member, often), pool("lenient", &member, seldom)], "strict"));
    proxy.await_standing_of("strict", &origin, "healthy");
    proxy.await_standing_of("lenient", &origin, "healthy");
    assert_eq!((origin.probe_count(), sharers(&proxy)), (1, vec![vec!["lenient".to_owned(), "strict".to_owned()]]));
    let listed = &probes(&proxy)["probes"][0];
    assert_eq!((&listed["pace"], &listed["interval_ms"]), (&"steady".into(), &3_600_000.0.into()), "{listed}");
    let asked = ["kind", "scheme", "method", "host", "path", "service"].map(|key| listed[key].clone());
    let host = origin.address();
    assert_eq!(asked, ["http".into(), "http".into(), "GET".into(), host.into(), "/".into(), Value::Null]);
    // One fail, whoever asks for the probe: out for the one, not yet for the other.
    origin.answer(Answer::status(500));
    let asked = proxy.admin_post(&format!("/api/v1/pools/lenient/members/{}/probe", origin.address()), &[]);
    assert_eq!(asked.status, 200, "{}", asked.text());
    let verdict = |pool: &str| proxy.member(pool, &origin.address())["verdict"].clone();
    eventually("the strict one has judged", || verdict("strict") == "unhealthy");
    assert_eq!((verdict("lenient"), origin.probe_count()), ("healthy".into(), 2));
    assert_eq!(proxy.member("lenient", &origin.address())["streak"], -1);
}

/// Reloads that bring a pool to a shared probe, and take one away, cost one probe at most and no verdict.
#[test]
fn pools_join_and_leave_a_shared_probe_over_reloads() {
    let origin = Origin::start();
    let member = origin.to_string();
    let asked =
        |name: &str, interval: &str| pool(name, &member, &format!("path: /, interval: {interval}, timeout: 2s"));
    let one = config(&[asked("a", "1h")], "a");
    let two = config(&[asked("a", "1h"), asked("b", "2h")], "a");
    let proxy = Proxy::start(&one);
    proxy.await_standing_of("a", &origin, "healthy");
    proxy.reload(&two);
    proxy.await_standing_of("b", &origin, "healthy");
    assert_eq!(origin.probe_count(), 2, "one who joins has a sample at once");
    let next = probes(&proxy)["probes"][0]["next_probe_at"].clone();
    for (pools, text) in [(1, &one), (2, &two), (1, &one)] {
        proxy.reload(text);
        eventually("they share it", || sharers(&proxy)[0].len() == pools);
        assert_eq!(proxy.member("a", &origin.address())["standing"], "healthy");
    }
    // The other one's joining again was the only reason for a probe.
    eventually("its sample is in", || origin.probe_count() == 3);
    assert!(probes(&proxy)["probes"][0]["next_probe_at"].as_str() <= next.as_str(), "no later than it was planned");
    proxy.reload(&config(&[asked("b", "1h")], "b"));
    proxy.await_standing_of("b", &origin, "healthy");
    assert_eq!(sharers(&proxy), [["b"]]);
}

/// Application Gateway G2: one probe for each pair of member and settings, all of them listed. App Service A18: several
/// apps on one machine are judged each on its own.
#[test]
fn every_pair_of_member_and_settings_is_listed_and_judged_by_itself() {
    let origin = Origin::start_everywhere();
    origin.when(When::path("/b"), Answer::status(503));
    let members = format!("\"127.0.3.1:{0}\", \"127.0.3.2:{0}\"", origin.port());
    let asked = |path: &str| format!("path: {path}, interval: 1h, timeout: 2s");
    let pools = [
        pool("a", &members, &asked("/a")),
        pool("b", &members, &asked("/b")),
        pool("c", &members, "path: /a, interval: 1h, timeout: 1s"),
        pool("d", &members, "path: /a, interval: 1h, timeout: 2s, host: d.test"),
    ];
    let proxy = Proxy::start(&config(&pools, "a"));
    let verdict = |pool: &str| proxy.pool(pool)["members"][1]["last_probe"]["result"].clone();
    eventually("all are probed", || ["a", "b", "c", "d"].iter().all(|pool| !verdict(pool).is_null()));
    assert_eq!(["a", "b", "c", "d"].map(verdict), ["pass", "fail", "pass", "pass"]);
    let mut listed = sharers(&proxy);
    listed.sort();
    assert_eq!(listed, [["a"], ["a"], ["b"], ["b"], ["c"], ["c"], ["d"], ["d"]]);
    let shown = probes(&proxy);
    for probe in shown["probes"].as_array().expect("a list") {
        assert!(!probe["last_probe_at"].is_null() && probe["late"] == 0, "{probe}");
        let member = &probe["members"][0]["member"];
        assert_eq!(*member, probe["address"], "{probe}");
    }
    let scrape = Scrape::of(&proxy);
    let asked = scrape.value("probes_per_second");
    // Those in doubt have no fast interval shorter than theirs but the default's, 1 s.
    assert!(
        (asked - shown["probes_per_second"].as_f64().unwrap_or_default()).abs() < 5.0 && asked > 0.0,
        "{asked} {shown}"
    );
    assert_eq!((scrape.value("probe_interval_stretch"), scrape.find("probes_per_second_limit")), (1.0, None));
}

/// The ceiling holds from the first probe on, is felt by all alike, and goes with a reload.
#[test]
fn ceiling_on_probes_holds_until_a_reload_lifts_it() {
    let origin = Origin::start_everywhere();
    let members: Vec<String> = (1..=10).map(|n| format!("\"127.0.4.{n}:{}\"", origin.port())).collect();
    let free = config(&[pool("web", &members.join(", "), "path: /, interval: 50ms, timeout: 50ms")], "web");
    let held = format!("max_probes_per_second: 20\n{free}");
    let proxy = Proxy::start(&held);
    // 200 a second are asked for: without the ceiling these would take a quarter of a second.
    origin.await_probes(60);
    let seen = origin.probes();
    let (first, last) = (seen[0].at, seen[59].at);
    assert!(last - first >= Duration::from_secs(2), "60 probes within {:?}", last - first);
    for n in 1..=10 {
        let local: std::net::IpAddr = format!("127.0.4.{n}").parse().expect("an address");
        assert!(seen.iter().filter(|seen| seen.local == local).count() >= 3, "{local} starves");
    }
    let scrape = Scrape::of(&proxy);
    assert_eq!(scrape.value("probes_per_second_limit"), 20.0);
    assert!(scrape.value("probe_interval_stretch") > 5.0, "{}", scrape.value("probe_interval_stretch"));
    assert_eq!(probes(&proxy)["max_probes_per_second"], 20);
    proxy.await_log("a warning", 0, |line| line.raw.contains("probes are held back"));
    proxy.reload(&free);
    proxy.await_log("that it is over", 0, |line| line.raw.contains("no longer held back"));
    origin.await_probes(200);
    assert_eq!(Scrape::of(&proxy).value("probe_interval_stretch"), 1.0);
}

/// Front Door F9: an edge without traffic probes less often; to look at it is no traffic, and the request that wakes it does
/// not wait for a probe.
#[test]
fn idle_pool_is_woken_by_requests_alone_and_they_do_not_wait() {
    let (clock, quiet, gate) = (Origin::start(), Origin::start(), Gate::new());
    let busy = "path: /healthz, interval: 200ms, timeout: 200ms";
    let idle = "path: /healthz, interval: 20s, fast_interval: 200ms, timeout: 20s, idle: { after: 1s, interval: 24h }";
    let pools = [pool("clock", &clock.to_string(), busy), pool("quiet", &quiet.to_string(), idle)];
    let proxy = Proxy::start(&config(&pools, "quiet"));
    proxy.await_standing_of("quiet", &quiet, "healthy");
    let is_idle = || {
        let shown = probes(&proxy);
        shown["probes"].as_array().expect("a list").iter().any(|probe| probe["pace"] == "idle")
    };
    // Whether it is idle is seen when a probe ends.
    let ask = || {
        let before = quiet.probe_count();
        let asked = proxy.admin_post(&format!("/api/v1/pools/quiet/members/{}/probe", quiet.address()), &[]);
        assert_eq!(asked.status, 200, "{}", asked.text());
        eventually("it is probed", || quiet.probe_count() > before);
    };
    eventually("it is idle", || {
        ask();
        is_idle()
    });
    quiet.when(When::probe(), Answer::status(200).held_by(&gate));
    let before = quiet.probe_count();
    for path in ["/api/v1/pools", "/api/v1/pools/quiet", "/metrics", "/readyz", "/api/v1/probes"] {
        assert_eq!(proxy.admin_get(path).status, 200, "{path}");
    }
    clock.await_probes(5);
    assert!(is_idle() && quiet.probe_count() == before, "looking is no use");
    assert_eq!(proxy.get("/first").status, 200);
    eventually("it is woken, and its probe is held", || gate.waiting() == 1);
    assert_eq!(proxy.get("/second").status, 200);
    gate.open();
    eventually("it is probed as ever", || !is_idle());
}

#[test]
fn pool_that_stands_by_for_requests_is_as_much_in_use_as_the_one_that_serves() {
    let (serves, spare) = (Origin::start(), Origin::start());
    let probe = "path: /healthz, interval: 200ms, timeout: 200ms, idle: { after: 1s, interval: 24h }";
    let pools = [pool("web", &serves.to_string(), probe), pool("spare", &spare.to_string(), probe)];
    let proxy = Proxy::start(&format!("pools:\n{}routes: [{{ pools: [web, spare] }}]\n", pools.concat()));
    proxy.await_standing_of("spare", &spare, "healthy");
    // Two seconds and more of its probes; without the route's requests there would be no more than one.
    let before = spare.probe_count();
    eventually("it is probed as ever", || {
        assert_eq!(proxy.get("/").status, 200);
        spare.probe_count() > before + 15
    });
    assert_eq!(spare.traffic_count(), 0);
}

/// By their verdicts it is decided where the request goes, or what it is told.
#[test]
fn pools_beneath_a_composite_are_in_use_where_a_route_goes_by_it_and_where_it_is_asked_for() {
    let probe = "path: /healthz, interval: 200ms, timeout: 200ms, idle: { after: 1s, interval: 24h }";
    let rows = [("{ pools: [{ pool: web, when: region }, spare] }", "/"), ("{ pool: web }", "/region-health")];
    for (route, asked) in rows {
        let [web, spare, api] = [Origin::start(), Origin::start(), Origin::start()];
        let pools =
            [("web", &web), ("spare", &spare), ("api", &api)].map(|(name, o)| pool(name, &o.to_string(), probe));
        let composites =
            "  inner: { sources: [api] }\n  region: { sources: [web, inner], publish: { path: /region-health } }\n";
        let proxy = Proxy::start(&format!("pools:\n{}composites:\n{composites}routes: [{route}]\n", pools.concat()));
        proxy.await_standing_of("web", &web, "healthy");
        proxy.await_standing_of("api", &api, "healthy");
        // Two seconds and more of its probes; without these requests there would be no more than one.
        let before = api.probe_count();
        eventually("it is probed as ever", || {
            assert_eq!(proxy.get(asked).status, 200, "{asked}");
            api.probe_count() > before + 15
        });
        assert_eq!(api.traffic_count(), 0, "{asked}");
    }
}

/// What pools share is slowed only while none of them has traffic.
#[test]
fn pool_with_traffic_keeps_a_shared_probe_at_its_pace() {
    let (shared, clock) = (Origin::start(), Origin::start());
    let asked = "path: /, interval: 200ms, timeout: 200ms, idle: { after: 1s, interval: 24h }";
    let pools = [
        pool("used", &shared.to_string(), asked),
        pool("unused", &shared.to_string(), asked),
        pool("clock", &clock.to_string(), "path: /c, interval: 200ms, timeout: 200ms"),
    ];
    let proxy = Proxy::start(&config(&pools, "used"));
    proxy.await_standing_of("used", &shared, "healthy");
    for _ in 0..10 {
        assert_eq!(proxy.get("/").status, 200);
        let before = shared.probe_count();
        clock.await_probes(2);
        eventually("it is probed all along", || shared.probe_count() > before);
    }
    eventually("without traffic it is left in peace", || {
        let before = shared.probe_count();
        clock.await_probes(5);
        shared.probe_count() == before
    });
}
