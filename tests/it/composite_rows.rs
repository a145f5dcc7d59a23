//! What Google Cloud's composite health checks do, rule by rule (C1 to C7 of docs/presets.md): each test's comment begins with its row.

use serde_json::json;

use crate::harness::region::{PLACE, await_published, break_probe, mend_probe, pool};
use crate::harness::{Answer, Origin, Proxy, When, eventually};

fn origins(count: usize) -> Vec<Origin> {
    (0..count).map(|_| Origin::start()).collect()
}

fn config(pools: &[String], composites: &str) -> String {
    format!("pools:\n{}composites: {composites}\nroutes: [{{ pool: web }}]\n", pools.concat())
}

/// Of a pool as the API shows it, once every member has its first verdict.
fn await_state(proxy: &Proxy, pool: &str, state: &str) {
    eventually(&format!("pool {pool} is {state}"), || {
        let shown = proxy.pool(pool);
        shown["state"] == state && shown["aggregate"]["unknown"] == 0
    });
}

fn state(proxy: &Proxy, composite: &str) -> String {
    let shown = proxy.admin_get(&format!("/api/v1/composites/{composite}")).json();
    shown["state"].as_str().unwrap_or_default().to_owned()
}

/// C1: so many percent of the members, 60 unless set, and so many of them, 1 unless set.
#[test]
fn a_pool_is_healthy_by_a_share_and_a_number_of_its_members() {
    let web = origins(4);
    let strict = pool("strict", &web, "aggregate: { min_healthy_percent: 75, min_healthy: 3 }");
    let count = pool("count", &web, "aggregate: { min_healthy_percent: 0, min_healthy: 2 }");
    let proxy = Proxy::start(&config(&[pool("web", &web, ""), strict, count], "{}"));
    let rows = [
        (4, ["healthy", "healthy", "healthy"]),
        (3, ["healthy", "healthy", "healthy"]),
        (2, ["unhealthy", "unhealthy", "healthy"]),
        (1, ["unhealthy"; 3]),
    ];
    for (healthy, expected) in rows {
        web[healthy..].iter().for_each(break_probe);
        for (pool, state) in ["web", "strict", "count"].into_iter().zip(expected) {
            eventually(&format!("{healthy} healthy: {pool} {state}"), || {
                let shown = proxy.pool(pool);
                shown["state"] == state
                    && shown["aggregate"]["healthy"] == healthy
                    && shown["aggregate"]["unknown"] == 0
            });
        }
    }
    let shown = proxy.pool("web")["aggregate"].clone();
    assert_eq!(
        (&shown["min_healthy_percent"], &shown["min_healthy"], &shown["enabled"]),
        (&json!(60), &json!(1), &json!(4))
    );
}

/// C2: a source is one pool with its own policy, whoever else has the same members.
#[test]
fn a_source_is_a_pool_with_its_policy() {
    let web = origins(2);
    let lenient = pool("lenient", &web, "aggregate: { min_healthy_percent: 50 }");
    let composites = "{ strict: { sources: [web] }, lenient-one: { sources: [lenient] } }";
    let proxy = Proxy::start(&config(&[pool("web", &web, ""), lenient], composites));
    break_probe(&web[0]);
    await_state(&proxy, "web", "unhealthy");
    await_state(&proxy, "lenient", "healthy");
    assert_eq!((state(&proxy, "strict"), state(&proxy, "lenient-one")), ("UNHEALTHY".to_owned(), "HEALTHY".to_owned()));
}

/// C3: unhealthy if one source is, else unknown if one is, else healthy.
#[test]
fn a_composite_is_as_healthy_as_the_least_of_its_sources() {
    let (web, api, silent) = (origins(1), origins(1), Origin::start());
    silent.when(When::probe(), Answer::hang());
    let unknown = format!(
        "  silent: {{ members: [{silent}], initial_wait: 0s, probe: {{ path: /, interval: 10m, timeout: 10m }} }}\n"
    );
    let composites = "{ both: { sources: [web, api] }, three: { sources: [web, api, silent] } }";
    let proxy = Proxy::start(&config(&[pool("web", &web, ""), pool("api", &api, ""), unknown], composites));
    await_state(&proxy, "web", "healthy");
    await_state(&proxy, "api", "healthy");
    assert_eq!((state(&proxy, "both"), state(&proxy, "three")), ("HEALTHY".to_owned(), "UNKNOWN".to_owned()));
    break_probe(&api[0]);
    await_state(&proxy, "api", "unhealthy");
    assert_eq!((state(&proxy, "both"), state(&proxy, "three")), ("UNHEALTHY".to_owned(), "UNHEALTHY".to_owned()));
}

/// C4: what comes of it is published at the front door, and a balancer elsewhere that asks there leaves and comes back.
#[test]
fn what_is_published_moves_the_traffic_of_a_balancer_elsewhere() {
    let members = [origins(2), origins(2)];
    let composites = format!("{{ region: {{ sources: [web], publish: {{ path: {PLACE} }} }} }}");
    let regions = members.each_ref().map(|members| Proxy::start(&config(&[pool("web", members, "")], &composites)));
    regions.iter().for_each(|region| drop(await_published(region, "HEALTHY")));
    let addresses = regions.each_ref().map(|region| region.address().to_string());
    let [first, second] = &addresses;
    let edge = Proxy::start(&format!(
        "pools:\n  web:\n    members: [{{ address: \"{first}\" }}, {{ address: \"{second}\", tier: 1 }}]\n    \
         probe: {{ path: {PLACE}, expect: {{ status: \"200\" }}, interval: 500ms, fast_interval: 50ms, timeout: 500ms, \
         consecutive: {{ failures: 2, passes: 1 }} }}\nroutes: [{{ pool: web }}]\n"
    ));
    edge.await_all_healthy();
    let served = |path: &str| -> usize {
        assert_eq!(edge.get(path).status, 200);
        members
            .iter()
            .position(|members| members.iter().any(|m| m.traffic().iter().any(|seen| seen.target == path)))
            .expect("somebody")
    };
    assert_eq!(served("/at-first"), 0);
    // One of two still answers, and the region is not what it should be.
    break_probe(&members[0][0]);
    edge.await_mode("failover");
    assert_eq!(served("/after-it-broke"), 1);
    mend_probe(&members[0][0]);
    edge.await_mode("normal");
    assert_eq!(served("/healed"), 0);
}

/// C5: HEALTHY, UNHEALTHY and UNKNOWN; what is new is unknown, and what is only configured anew keeps its state.
#[test]
fn what_is_new_is_unknown_and_what_is_reconfigured_is_not() {
    let (web, silent) = (origins(1), Origin::start());
    silent.when(When::probe(), Answer::hang());
    let unknown = format!(
        "  silent: {{ members: [{silent}], initial_wait: 0s, probe: {{ path: /, interval: 10m, timeout: 10m }} }}\n"
    );
    let proxy = Proxy::start(&config(&[pool("web", &web, "")], "{ region: { sources: [web] } }"));
    await_state(&proxy, "web", "healthy");
    let before = proxy.admin_get("/api/v1/composites/region").json();
    let pools = [pool("web", &web, "aggregate: { min_healthy_percent: 100 }"), unknown];
    proxy.report(&config(&pools, "{ region: { sources: [web] }, new: { sources: [silent] } }"));
    assert_eq!(
        (state(&proxy, "new"), proxy.admin_get("/api/v1/composites/region").json()),
        ("UNKNOWN".to_owned(), before)
    );
    break_probe(&web[0]);
    await_state(&proxy, "web", "unhealthy");
    assert_eq!(state(&proxy, "region"), "UNHEALTHY");
}

/// C6: each change of a source and of a composite is a line of the log, with nothing to switch on.
#[test]
fn changes_of_sources_and_composites_are_logged_by_default() {
    let web = origins(1);
    let proxy = Proxy::start(&config(&[pool("web", &web, "")], "{ region: { sources: [web] } }"));
    await_state(&proxy, "web", "healthy");
    let mark = proxy.mark();
    break_probe(&web[0]);
    let change = [("kind", "composite"), ("from", "HEALTHY"), ("to", "UNHEALTHY")];
    let source = proxy.await_event(mark, &[&change[..], &[("pool", "web")]].concat());
    assert_eq!(source.text("detail"), "0 of 1 member healthy");
    let composite = proxy.await_event(mark, &[&change[..], &[("composite", "region")]].concat());
    assert_eq!(composite.text("detail"), "web UNHEALTHY (0 of 1 member healthy)");
}

/// C7: members are believed what they say of themselves: answers to requests make nobody less or more healthy than that.
#[test]
fn the_signal_is_the_producers_own() {
    let web = origins(1);
    web[0].when(When::traffic(), Answer::status(500));
    let composites = format!("{{ region: {{ sources: [web], publish: {{ path: {PLACE} }} }} }}");
    let proxy = Proxy::start(&config(&[pool("web", &web, "")], &composites));
    await_published(&proxy, "HEALTHY");
    (0..20).for_each(|n| assert_eq!(proxy.get(&format!("/{n}")).status, 500));
    assert_eq!(proxy.get(PLACE).status, 200);
    web[0].when(When::traffic(), Answer::status(200));
    break_probe(&web[0]);
    await_published(&proxy, "UNHEALTHY");
    assert_eq!(proxy.get("/served").status, 200);
    assert_eq!(proxy.get(PLACE).status, 503);
}

/// C7: outlier detection exists beside it: what traffic meets makes a member unhealthy however green its probes, and that
/// counts in the composite as any verdict does.
#[test]
fn outlier_detection_is_a_second_signal_beside_it() {
    let web = origins(2);
    web[0].when(When::traffic(), Answer::status(503));
    let passive = "passive: { eject: { consecutive: 3, base: 10m, max: 10m } }, aggregate: { min_healthy: 2 }";
    let composites = format!("{{ region: {{ sources: [web], publish: {{ path: {PLACE} }} }} }}");
    let proxy = Proxy::start(&config(&[pool("web", &web, passive)], &composites));
    await_published(&proxy, "HEALTHY");
    let probes = web[0].probe_count();
    (0..6).for_each(|n| drop(proxy.get(&format!("/{n}"))));
    await_published(&proxy, "UNHEALTHY");
    assert_eq!(proxy.member("web", &web[0].address())["ejected_because"], "passive");
    eventually("its probes go on and pass", || web[0].probe_count() > probes + 2);
    assert_eq!(proxy.member("web", &web[0].address())["standing"], "ejected");
    assert_eq!(proxy.get(PLACE).status, 503);
}
