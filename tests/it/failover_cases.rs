//! Routes with several pools (health.md §8): the first that can serve is used, left at once, and gone back to late.

use std::time::Duration;

use serde_json::Value;

use crate::harness::proxy::PROBE;
use crate::harness::wait::now;
use crate::harness::{Answer, Gate, Line, Load, Origin, Proxy, Scrape, When, eventually};

/// How long a region has to prove itself in these cases.
const DELAY: Duration = Duration::from_millis(1500);

/// Pools `web` and `web-us` of these members, and the keys of the route to both.
fn config(web: &[&Origin], web_us: &[&Origin], route: &str) -> String {
    config_with(web, "", web_us, route)
}

/// The same with more keys of `web`.
fn config_with(web: &[&Origin], more: &str, web_us: &[&Origin], route: &str) -> String {
    let list = |origins: &[&Origin]| origins.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "pools:\n  web:\n    members: [{}]\n    {PROBE}\n{more}  web-us:\n    members: [{}]\n    {PROBE}\nroutes: [{{ pools: [web, web-us], {route} }}]\n",
        list(web),
        list(web_us)
    )
}

/// The first route as the API shows it.
#[track_caller]
fn route(proxy: &Proxy) -> Value {
    let reply = proxy.admin_get("/api/v1/routes");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()[0].clone()
}

#[track_caller]
fn await_rank(proxy: &Proxy, rank: u64) {
    eventually(&format!("rank {rank} serves"), || route(proxy)["rank"] == rank);
}

/// Waits until every member of both pools is judged healthy.
#[track_caller]
fn await_both_able(proxy: &Proxy) {
    eventually("both pools can serve", || {
        ["web", "web-us"].iter().all(|pool| {
            proxy.pool(pool)["members"].as_array().is_some_and(|all| all.iter().all(|m| m["verdict"] == "healthy"))
        })
    });
}

/// Waits for this verdict on the first member of `web-us`.
#[track_caller]
fn await_us(proxy: &Proxy, verdict: &str) {
    eventually(&format!("web-us is {verdict}"), || proxy.pool("web-us")["members"][0]["verdict"] == verdict);
}

/// The failovers told so far, as `from -> to reason`.
fn told(proxy: &Proxy) -> Vec<String> {
    let told = |line: &Line| format!("{} -> {} {}", line.text("from"), line.text("to"), line.text("reason"));
    proxy.events(&[("kind", "failover"), ("route", "/")]).iter().map(told).collect()
}

/// Waits for as many failovers, and asserts that these were told, each once.
#[track_caller]
fn assert_told(proxy: &Proxy, expected: &[&str]) {
    // Requests see a move before it is told.
    eventually("all failovers are told", || told(proxy).len() >= expected.len());
    assert_eq!(told(proxy), expected);
}

fn ill(origin: &Origin) {
    origin.when(When::probe(), Answer::status(503));
}

fn well(origin: &Origin) {
    origin.when(When::probe(), Answer::status(200));
}

#[test]
fn a_pool_with_nobody_healthy_is_left_at_once_and_gone_back_to_after_the_delay() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config(&[&a], &[&b], &format!("failback_delay: {}ms", DELAY.as_millis())));
    await_both_able(&proxy);
    proxy.get("/first");
    let line = proxy.access("/first");
    assert_eq!((&line.json["lb"]["rank"], line.text("pool")), (&Value::from(0), "web"));
    assert_eq!(line.json["lb"]["reason"], "balanced");

    let load = Load::start(proxy.address(), 4, "/steady");
    load.fence();
    let mark = proxy.mark();
    ill(&a);
    let left =
        proxy.await_event(mark, &[("kind", "failover"), ("from", "web"), ("to", "web-us"), ("reason", "unable")]);
    assert!(left.text("message").contains("0 of 1 member healthy"), "{}", left.raw);
    assert_eq!((left.text("level"), left.text("pool")), ("warn", "web-us"));
    load.fence();
    let before = a.traffic_count();
    load.fence();
    assert_eq!(a.traffic_count(), before, "it was left at once");
    proxy.get("/second");
    let line = proxy.access("/second");
    assert_eq!((&line.json["lb"]["rank"], line.text("pool")), (&Value::from(1), "web-us"));
    assert_eq!(line.json["lb"]["reason"], "failover");
    let shown = route(&proxy);
    assert_eq!((&shown["rank"], &shown["pool"]), (&Value::from(1), &Value::from("web-us")));
    assert_eq!((&shown["pools"][0]["ability"], &shown["pools"][1]["ability"]), (&"unable".into(), &"able".into()));
    let page = Scrape::of(&proxy);
    assert_eq!(page.value("route_rank{route=\"/\"}"), 1.0);
    assert_eq!(page.value("route_able_pools{route=\"/\"}"), 1.0);
    assert_eq!(page.value("route_failovers_total{route=\"/\",reason=\"unable\"}"), 1.0);

    let mark = proxy.mark();
    well(&a);
    let able = proxy.await_event(mark, &[("kind", "member"), ("pool", "web"), ("to", "healthy")]);
    eventually("it is announced", || route(&proxy)["pools"][0]["failback_at"].is_string());
    let back =
        proxy.await_event(mark, &[("kind", "failover"), ("from", "web-us"), ("to", "web"), ("reason", "failback")]);
    // A tenth less: each line has the time at which it was told, and a busy machine tells one later than the other.
    assert!(back.millis() - able.millis() >= DELAY.as_secs_f64() * 900.0, "too soon: {} {}", able.raw, back.raw);
    load.fence();
    let before = b.traffic_count();
    load.fence();
    assert_eq!(b.traffic_count(), before, "it was gone back to");
    load.finish().assert_all_ok();
    assert_told(&proxy, &["web -> web-us unable", "web-us -> web failback"]);
    assert_eq!(Scrape::of(&proxy).value("route_rank{route=\"/\"}"), 0.0);
}

#[test]
fn a_break_begins_the_delay_anew() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config(&[&a], &[&b], &format!("failback_delay: {}ms", DELAY.as_millis())));
    await_both_able(&proxy);
    ill(&a);
    await_rank(&proxy, 1);
    // Its line comes after what the API shows, and must not be taken for the first of those below.
    proxy.await_event(0, &[("kind", "member"), ("pool", "web"), ("to", "unhealthy")]);
    let began = now();
    while now() - began < 2 * DELAY {
        let mark = proxy.mark();
        well(&a);
        proxy.await_event(mark, &[("kind", "member"), ("pool", "web"), ("to", "healthy")]);
        ill(&a);
        proxy.await_event(mark, &[("kind", "member"), ("pool", "web"), ("to", "unhealthy")]);
    }
    assert_told(&proxy, &["web -> web-us unable"]);
}

#[test]
fn a_written_aggregate_decides_before_the_last_member_is_gone() {
    let origins: Vec<Origin> = (0..5).map(|_| Origin::start()).collect();
    let web: Vec<&Origin> = origins[..4].iter().collect();
    let aggregate = "    aggregate: { min_healthy_percent: 60 }\n";
    let proxy = Proxy::start(&config_with(&web, aggregate, &[&origins[4]], "failback_delay: 0s"));
    await_both_able(&proxy);
    let load = Load::start(proxy.address(), 4, "/steady");
    ill(web[0]);
    proxy.await_standing(web[0], "ejected");
    assert_eq!(route(&proxy)["rank"], 0, "three of four are 75 %");
    ill(web[1]);
    await_rank(&proxy, 1);
    let because = route(&proxy)["pools"][0]["because"].as_str().unwrap_or_default().to_owned();
    assert_eq!(because, "2 of 4 members healthy; its aggregate wants 60 % and 1");
    well(web[0]);
    // A delay of nothing: as soon as it can.
    await_rank(&proxy, 0);
    load.finish().assert_all_ok();
    assert_told(&proxy, &["web -> web-us unable", "web-us -> web failback"]);
}

/// A region is more than the pool that a route leads to: what is behind it counts too.
#[test]
fn a_pool_with_a_composite_serves_only_while_that_is_healthy() {
    let (web, api, us) = (Origin::start(), Origin::start(), Origin::start());
    let text = config(&[&web], &[&us], "failback_delay: 0s")
        .replace("  web-us:", &format!("  api:\n    members: [{api}]\n    {PROBE}\n  web-us:"))
        .replace("routes:", "composites: { region: { sources: [web, api] } }\nroutes:")
        .replace("[web, web-us]", "[{ pool: web, when: region }, web-us]");
    let proxy = Proxy::start(&text);
    await_both_able(&proxy);
    eventually("the composite is healthy", || route(&proxy)["pools"][0]["ability"] == "able");
    assert_eq!((&route(&proxy)["rank"], &route(&proxy)["pools"][0]["when"]), (&Value::from(0), &"region".into()));
    let load = Load::start(proxy.address(), 4, "/steady");
    let mark = proxy.mark();
    ill(&api);
    let left = proxy.await_event(mark, &[("kind", "failover"), ("route", "/"), ("to", "web-us")]);
    assert!(left.text("detail").contains("composite region is unhealthy"), "{}", left.raw);
    assert_eq!(proxy.pool("web")["members"][0]["verdict"], "healthy", "the pool itself could");
    well(&api);
    await_rank(&proxy, 0);
    load.finish().assert_all_ok();
    assert_told(&proxy, &["web -> web-us unable", "web-us -> web failback"]);
}

#[test]
fn without_failback_it_stays_until_that_pool_cannot() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config(&[&a], &[&b], "no_failback: true"));
    await_both_able(&proxy);
    ill(&a);
    await_rank(&proxy, 1);
    well(&a);
    proxy.await_standing(&a, "healthy");
    let shown = route(&proxy);
    assert_eq!((&shown["rank"], &shown["pools"][0]["failback_at"]), (&Value::from(1), &Value::Null));
    assert_eq!(shown["failback_delay_ms"], Value::Null);
    b.await_probes(3);
    assert_eq!(route(&proxy)["rank"], 1, "nothing brings it back");
    ill(&b);
    await_rank(&proxy, 0);
    assert_told(&proxy, &["web -> web-us unable", "web-us -> web unable"]);
}

#[test]
fn where_none_can_serve_the_first_serves_by_its_own_rules() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config(&[&a], &[&b], "failback_delay: 1h"));
    await_both_able(&proxy);
    ill(&a);
    await_rank(&proxy, 1);
    ill(&b);
    await_rank(&proxy, 0);
    // Its fallback: everyone serves, and this one answers well.
    proxy.get("/none");
    let line = proxy.access("/none");
    assert_eq!((&line.json["status"], line.text("pool")), (&Value::from(200), "web"));
    assert_eq!((&line.json["lb"]["reason"], &line.json["lb"]["mode"]), (&"fallback".into(), &"fallback".into()));
    // Whoever comes first serves, at once: nobody could.
    well(&b);
    await_rank(&proxy, 1);
    assert_told(&proxy, &["web -> web-us unable", "web-us -> web none_able", "web -> web-us relief"]);
}

/// Whoever watches events is told that everyone is left with the better of the bad, and when that is over.
#[test]
fn that_none_can_serve_is_a_warning_wherever_the_route_is() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config(&[&a], &[&b], "failback_delay: 1h"));
    await_both_able(&proxy);
    ill(&b);
    await_us(&proxy, "unhealthy");
    let mark = proxy.mark();
    ill(&a);
    let none = proxy.await_event(mark, &[("kind", "failover"), ("route", "/"), ("reason", "none_able")]);
    assert_eq!((none.text("level"), none.text("from"), none.text("to")), ("warn", "web", "web"), "{}", none.raw);
    assert_eq!(Scrape::of(&proxy).value("route_failovers_total{route=\"/\",reason=\"none_able\"}"), 0.0);
    well(&b);
    let relief = proxy.await_event(mark, &[("kind", "failover"), ("route", "/"), ("reason", "relief")]);
    assert_eq!((relief.text("from"), relief.text("to")), ("web", "web-us"));
    ill(&b);
    // To a better rank, which makes nothing better.
    let none = proxy.await_event(mark, &[("kind", "failover"), ("from", "web-us"), ("reason", "none_able")]);
    assert_eq!((none.text("level"), none.text("to")), ("warn", "web"));
}

/// What is new has to prove itself like any other, and nobody waits for it.
#[test]
fn a_route_that_gets_a_better_pool_stays_with_the_one_it_had() {
    let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
    a.when(When::probe(), Answer::status(200).held_by(&gate));
    let text = config_with(&[&a], "    initial_wait: 10m\n", &[&b], "failback_delay: 1h");
    let proxy = Proxy::start(&text.replace("{ pools: [web, web-us], failback_delay: 1h }", "{ pool: web-us }"));
    await_us(&proxy, "healthy");
    proxy.reload(&text);
    assert_eq!(route(&proxy)["rank"], 1);
    assert_eq!(proxy.get("/one").status, 200);
    assert_eq!(proxy.access("/one").text("pool"), "web-us");
    assert_told(&proxy, &[]);
    gate.open();
}

/// A pool that refuses everything is of no use while another one tries: drained by hand, or down by its own rule.
#[test]
fn where_none_can_serve_a_pool_in_fallback_serves_before_one_that_is_down() {
    let (a, b) = (Origin::start(), Origin::start());
    let fails = "    on_all_unhealthy: fail\n";
    let proxy = Proxy::start(&config_with(&[&a], fails, &[&b], "failback_delay: 1h"));
    await_both_able(&proxy);
    ill(&a);
    await_rank(&proxy, 1);
    let mark = proxy.mark();
    ill(&b);
    proxy.await_event(mark, &[("kind", "fallback"), ("pool", "web-us")]);
    assert_eq!(proxy.get("/tried").status, 200);
    let line = proxy.access("/tried");
    assert_eq!((line.text("pool"), &line.json["lb"]["mode"]), ("web-us", &"fallback".into()));
    // It is drained, and both are down: the first again.
    let drain = format!("/api/v1/pools/web-us/members/{}/drain", b.address());
    assert_eq!(proxy.admin_post(&drain, &[]).status, 200);
    await_rank(&proxy, 0);
    assert_eq!(proxy.get("/refused").status, 503);
}

#[test]
fn at_a_cold_start_a_dead_first_pool_costs_nobody_an_error() {
    let (a, b) = (Origin::stopped(), Origin::start());
    let gate = Gate::new();
    b.when(When::probe(), Answer::status(200).held_by(&gate));
    let proxy = Proxy::start(&config(&[&a], &[&b], "failback_delay: 1h"));
    let mut waits = proxy.connect();
    waits.send("GET /early HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.open();
    assert_eq!(waits.reply().status, 200);
    let line = proxy.access("/early");
    assert_eq!((line.text("pool"), &line.json["lb"]["rank"], line.attempts().len()), ("web-us", &Value::from(1), 1));
    assert_told(&proxy, &["web -> web-us start"]);
}

/// A pool of which nothing is known yet is waited for, and not for ever; who waits there goes where the route leads.
#[test]
fn a_request_that_waits_follows_its_route() {
    let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
    a.when(When::probe(), Answer::status(200).held_by(&gate));
    // Both pools would have it wait for an hour; the second is known at once.
    let text = config(&[&a], &[&b], "failback_delay: 1h").replace("    probe:", "    initial_wait: 1s\n    probe:");
    let proxy = Proxy::start(&text);
    let mut waits = proxy.connect();
    waits.send("GET /early HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(waits.reply().status, 200);
    let line = proxy.access("/early");
    assert_eq!((line.text("pool"), &line.json["lb"]["reason"]), ("web-us", &"failover".into()));
    assert_eq!((line.attempts().len(), a.traffic_count()), (1, 0));
    assert!(line.json["lb"]["waited_ms"].as_f64().is_some_and(|waited| waited > 0.0), "{}", line.raw);
    gate.open();
    proxy.await_standing(&a, "healthy");
    assert_eq!(route(&proxy)["rank"], 1, "it comes too late for the first election");
}

/// `web` has room for one request and a queue, and answers 503 where nobody is healthy; the one request is held by `gate`.
fn with_a_queue(a: &Origin, b: &Origin, gate: &Gate) -> (Proxy, String) {
    a.when(When::path("/held"), Answer::status(200).held_by(gate));
    let room = "    max_in_flight: 1\n    queue: { size: 9, timeout: 60s }\n    on_all_unhealthy: fail\n";
    let text = config_with(&[a], room, &[b], "failback_delay: 1h");
    let proxy = Proxy::start(&text);
    await_both_able(&proxy);
    (proxy, text)
}

#[track_caller]
fn await_queue(proxy: &Proxy, length: u64) {
    eventually(&format!("{length} requests wait"), || proxy.pool("web")["queue"]["length"] == length);
}

/// A pool that nobody has heard of before, whose only purpose is that something changes.
fn unrelated(text: &str) -> String {
    text.replace("routes:", "  other: { members: [\"127.0.0.1:1\"], probe: off }\nroutes:")
}

#[test]
fn a_request_in_a_queue_follows_its_route_over_a_reload() {
    let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
    let (proxy, text) = with_a_queue(&a, &b, &gate);
    let (mut held, mut waits) = (proxy.connect(), proxy.connect());
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is with a member", || gate.waiting() == 1);
    waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    await_queue(&proxy, 1);
    proxy.reload(&unrelated(&text));
    await_queue(&proxy, 1);
    ill(&a);
    assert_eq!(waits.reply().status, 200);
    let line = proxy.access("/waits");
    assert_eq!((line.text("pool"), &line.json["lb"]["rank"], line.attempts().len()), ("web-us", &Value::from(1), 1));
    gate.open();
    assert_eq!(held.reply().status, 200);
}

/// What it has waited for in one pool does not count against the other one's deadline: that has time to answer.
#[test]
fn a_request_that_has_waited_for_longer_than_its_next_pools_deadline_is_served_there() {
    const DEADLINE: Duration = Duration::from_secs(2);
    let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
    a.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let room = "    max_in_flight: 1\n    queue: { size: 9, timeout: 60s }\n";
    let text = config_with(&[&a], room, &[&b], "failback_delay: 1h");
    let proxy = Proxy::start(&text.replace("  web-us:\n", "  web-us:\n    deadline: 2s\n"));
    await_both_able(&proxy);
    let (mut held, mut waits) = (proxy.connect(), proxy.connect());
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is with a member", || gate.waiting() == 1);
    waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    await_queue(&proxy, 1);
    let began = now();
    eventually("it has waited for longer", || now() - began > DEADLINE);
    ill(&a);
    assert_eq!(waits.reply().status, 200);
    let line = proxy.access("/waits");
    assert_eq!((line.text("pool"), line.attempts().len()), ("web-us", 1));
    gate.open();
    held.reply();
}

/// Its pool is none of the route's any more, and what comes now goes elsewhere; so does what waits.
#[test]
fn a_request_in_a_queue_leaves_a_pool_that_a_reload_takes_from_its_route() {
    for (pools, served_by) in [("[web-us, web]", "web"), ("[web-us]", "web-us"), ("[new]", "new")] {
        let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
        let (proxy, text) = with_a_queue(&a, &b, &gate);
        let (mut held, mut waits) = (proxy.connect(), proxy.connect());
        held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("it is with a member", || gate.waiting() == 1);
        waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
        await_queue(&proxy, 1);
        let new = format!("  new: {{ members: [{b}], probe: off }}\nroutes:");
        proxy.reload(&text.replace("routes:", &new).replace("[web, web-us]", pools));
        if served_by == "web" {
            // It serves on, at another place.
            gate.open();
        }
        assert_eq!(waits.reply().status, 200);
        assert_eq!(proxy.access("/waits").text("pool"), served_by, "{pools}");
        gate.open();
        held.reply();
    }
}

#[test]
fn a_request_that_waits_for_first_verdicts_follows_its_route_over_a_reload() {
    let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
    a.when(When::probe(), Answer::status(503).held_by(&gate));
    let wait = "    initial_wait: 10m\n    on_all_unhealthy: fail\n";
    let text = config_with(&[&a], wait, &[&b], "failback_delay: 1h");
    let proxy = Proxy::start(&text);
    await_us(&proxy, "healthy");
    let mut waits = proxy.connect();
    waits.send("GET /early HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.reload(&unrelated(&text));
    gate.open();
    assert_eq!(waits.reply().status, 200);
    let line = proxy.access("/early");
    assert_eq!((line.text("pool"), line.attempts().len(), a.traffic_count()), ("web-us", 1, 0));
}

#[test]
fn a_retry_stays_in_its_pool_and_the_next_request_goes_elsewhere() {
    let (a, b, us) = (Origin::start(), Origin::start(), Origin::start());
    let gate = Gate::new();
    for origin in [&a, &b] {
        origin.when(When::path("/held"), Answer::reset().held_by(&gate));
    }
    let proxy = Proxy::start(&config(&[&a, &b], &[&us], "failback_delay: 1h"));
    await_both_able(&proxy);
    let mut held = proxy.connect();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is with a member", || gate.waiting() == 1);
    ill(&a);
    ill(&b);
    await_rank(&proxy, 1);
    proxy.get("/next");
    assert_eq!(proxy.access("/next").text("pool"), "web-us");
    gate.open();
    held.reply();
    let line = proxy.access("/held");
    let tried = line.tried();
    assert_eq!((line.text("pool"), tried.len(), us.traffic_count()), ("web", 2, 1), "{}", line.raw);
}

#[test]
fn a_reload_keeps_where_a_route_is_and_leaves_a_pool_that_goes() {
    let (a, b) = (Origin::start(), Origin::start());
    let base = config(&[&a], &[&b], "failback_delay: 1h");
    let proxy = Proxy::start(&base);
    await_both_able(&proxy);
    ill(&a);
    await_rank(&proxy, 1);
    let since = route(&proxy)["since"].clone();
    well(&a);
    proxy.await_standing(&a, "healthy");
    let load = Load::start(proxy.address(), 4, "/steady");
    for round in 0..5 {
        let unrelated = format!("  other{round}: {{ members: [\"127.0.0.1:1\"], probe: off }}\n");
        proxy.reload(&base.replace("routes:", &format!("{unrelated}routes:")));
        let shown = route(&proxy);
        assert_eq!((&shown["rank"], &shown["since"]), (&Value::from(1), &since), "an unrelated reload");
    }
    // Another order: the same pool serves, as the first one now.
    proxy.reload(&base.replace("[web, web-us]", "[web-us, web]"));
    let shown = route(&proxy);
    assert_eq!((&shown["rank"], &shown["pool"], &shown["since"]), (&Value::from(0), &Value::from("web-us"), &since));
    proxy.reload(&base);
    assert_eq!(route(&proxy)["rank"], 1);
    // Another delay counts from when the better one became able.
    proxy.reload(&base.replace("failback_delay: 1h", "failback_delay: 0s"));
    await_rank(&proxy, 0);
    ill(&a);
    await_rank(&proxy, 1);
    // The pool that serves goes: the other one does, whatever its state.
    well(&a);
    proxy.await_standing(&a, "healthy");
    proxy.reload(&base.replace("[web, web-us]", "[web]"));
    load.fence();
    let before = b.traffic_count();
    load.fence();
    assert_eq!(b.traffic_count(), before);
    load.finish().assert_all_ok();
    assert_eq!(Scrape::of(&proxy).find("route_rank{route=\"/\"}"), None, "one pool has no rank");
}

#[test]
fn a_route_with_one_pool_is_as_it_was() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    proxy.await_all_healthy();
    ill(&origin);
    proxy.await_mode("fallback");
    proxy.get("/one");
    let line = proxy.access("/one");
    assert_eq!((&line.json["lb"]["rank"], &line.json["lb"]["reason"]), (&Value::from(0), &"fallback".into()));
    assert_told(&proxy, &[]);
    let shown = route(&proxy);
    assert_eq!((&shown["name"], &shown["pool"], &shown["rank"]), (&"/".into(), &"web".into(), &Value::from(0)));
    assert_eq!((&shown["pools"][0]["ability"], &shown["failback_delay_ms"]), (&"unable".into(), &Value::Null));
    assert_eq!(Scrape::of(&proxy).find("route_rank{route=\"/\"}"), None);
}
