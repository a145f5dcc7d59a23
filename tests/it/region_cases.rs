//! Failover between regions, end to end (product.md C4): two regional pulsegates that publish how they are, and an edge that
//! follows them. Three real processes.

use std::time::Duration;

use serde_json::Value;

use crate::harness::proxy::PROBE;
use crate::harness::{Load, Origin, Proxy, eventually};

/// How long a region has to prove itself before the edge goes back to it.
const DELAY: Duration = Duration::from_millis(2000);

/// A region that is healthy while 60 % of these origins are.
fn region(origins: &[Origin]) -> Proxy {
    let members: Vec<String> = origins.iter().map(ToString::to_string).collect();
    let proxy = Proxy::start(&format!(
        "pools:\n  web:\n    members: [{}]\n    {PROBE}\n    aggregate: {{ min_healthy_percent: 60 }}\n\
         composites:\n  region: {{ sources: [web], publish: {{ path: /.well-known/region-health }} }}\n\
         routes: [{{ pool: web }}]\n",
        members.join(", ")
    ));
    proxy.await_all_healthy();
    proxy
}

/// An edge that prefers the first of two regions.
fn edge(one: &Proxy, two: &Proxy) -> Proxy {
    let probe = "probe: { path: /.well-known/region-health, interval: 1s, fast_interval: 100ms, timeout: 1s, expect: { status: \"200\" }, consecutive: { failures: 1, passes: 1 } }";
    let proxy = Proxy::start(&format!(
        "pools:\n  one:\n    members: [\"{}\"]\n    {probe}\n  two:\n    members: [\"{}\"]\n    {probe}\n\
         routes: [{{ pools: [one, two], failback_delay: {}ms }}]\n",
        one.address(),
        two.address(),
        DELAY.as_millis()
    ));
    eventually("the edge knows both regions", || {
        ["one", "two"].iter().all(|pool| proxy.pool(pool)["members"][0]["verdict"] == "healthy")
    });
    proxy
}

fn rank(edge: &Proxy) -> Value {
    edge.admin_get("/api/v1/routes").json()[0]["rank"].clone()
}

/// Requests that reached any of these origins.
fn served(origins: &[Origin]) -> usize {
    origins.iter().map(Origin::traffic_count).sum()
}

#[test]
fn an_edge_leaves_a_region_whose_aggregate_breaks_and_comes_back_after_the_delay() {
    let start = || (0..4).map(|_| Origin::start()).collect::<Vec<Origin>>();
    let (near, far) = (start(), start());
    let (one, two) = (region(&near), region(&far));
    let edge = edge(&one, &two);
    let load = Load::start(edge.address(), 4, "/steady");
    load.fence();
    assert!(served(&near) > 0 && served(&far) == 0, "the first region serves");

    // Three of four are 75 %: the region is healthy, and its own failover is its own business.
    near[0].stop();
    one.await_standing(&near[0], "ejected");
    load.fence();
    assert_eq!((rank(&edge), served(&far)), (Value::from(0), 0), "the edge stays");

    // Two are 50 %: the region says so of itself, and the edge leaves at its next look, though both would still serve.
    let mark = edge.mark();
    near[1].stop();
    let left = edge.await_event(mark, &[("kind", "failover"), ("from", "one"), ("to", "two"), ("reason", "unable")]);
    load.fence();
    let before = served(&near);
    load.fence();
    assert_eq!(served(&near), before, "region one gets nothing any more: {}", left.raw);
    near[2].stop();
    near[3].stop();
    one.await_mode("fallback");
    load.fence();

    // It comes back, and only then the delay begins.
    let mark = edge.mark();
    near.iter().for_each(Origin::start_again);
    let able = edge.await_event(mark, &[("kind", "member"), ("pool", "one"), ("to", "healthy")]);
    let back = edge.await_event(mark, &[("kind", "failover"), ("from", "two"), ("to", "one"), ("reason", "failback")]);
    // A tenth less: each line has the time at which it was told, and a busy machine tells one later than the other.
    assert!(back.millis() - able.millis() >= DELAY.as_secs_f64() * 900.0, "too soon: {} {}", able.raw, back.raw);
    load.fence();
    let before = served(&far);
    load.fence();
    assert_eq!(served(&far), before, "region one serves again");

    // What was in flight on an origin that was stopped is tried at another by its region; nothing else was at risk.
    load.finish().assert_all_ok();
    let moves = edge.events(&[("kind", "failover")]);
    assert_eq!(moves.len(), 2, "out and back, once each: {moves:?}");
    let state = |path: &str| one.get(path).field("x-health-state").map(str::to_owned);
    assert_eq!(state("/.well-known/region-health").as_deref(), Some("HEALTHY"));
}
