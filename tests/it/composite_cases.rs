//! Composites by the running program: what is published and when, and that each change is told once.

use serde_json::{Value, json};

use crate::harness::client;
use crate::harness::region::{PLACE, await_published, break_probe, mend_probe, pool};
use crate::harness::{Answer, Line, Load, Origin, Proxy, Scrape, When, eventually};

fn origins(count: usize) -> Vec<Origin> {
    (0..count).map(|_| Origin::start()).collect()
}

/// Pools `web` of these members and `api` of those; the composite `region` over both is published.
fn region(web: &[Origin], api: &[Origin], composites: &str) -> String {
    let pools = [pool("web", web, ""), pool("api", api, "")].concat();
    let region = format!("  region: {{ sources: [web, api], publish: {{ path: {PLACE} }} }}\n");
    format!("pools:\n{pools}composites:\n{region}{composites}routes: [{{ pool: web }}]\n")
}

fn composite(proxy: &Proxy, name: &str) -> (u16, Value) {
    let reply = proxy.admin_get(&format!("/api/v1/composites/{name}"));
    (reply.status, reply.json())
}

/// What was told of composites and their sources, as `name from -> to`, in the log.
fn told(proxy: &Proxy) -> Vec<String> {
    let name = |line: &Line| [line.text("pool"), line.text("composite")].concat();
    let line = |line: &Line| format!("{} {} -> {}", name(line), line.text("from"), line.text("to"));
    proxy.events(&[("kind", "composite")]).iter().map(line).collect()
}

/// A line comes a little later than the change.
fn await_told(proxy: &Proxy, change: &str) {
    eventually(&format!("{change} is told last"), || told(proxy).last().is_some_and(|last| last == change));
}

#[test]
fn a_region_says_503_when_too_few_are_healthy_and_200_when_enough_are_again() {
    let (web, api) = (origins(4), origins(1));
    let proxy = Proxy::start(&region(&web, &api, ""));
    let reply = await_published(&proxy, "HEALTHY");
    assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
    assert_eq!((reply.field("cache-control"), reply.fields("x-request-id").len()), (Some("no-store"), 1));
    let json = reply.json();
    assert_eq!(
        (&json["name"], &json["state"], &json["draining"]),
        (&json!("region"), &json!("HEALTHY"), &json!(false))
    );
    web[..2].iter().for_each(Origin::stop);
    let reply = await_published(&proxy, "UNHEALTHY");
    assert_eq!(reply.status, 503);
    let source = reply.json()["sources"][0].clone();
    for (key, expected) in [
        ("name", json!("web")),
        ("kind", json!("pool")),
        ("state", json!("UNHEALTHY")),
        ("healthy", json!(2)),
        ("unknown", json!(0)),
        ("total", json!(4)),
    ] {
        assert_eq!(source[key], expected, "{source}");
    }
    assert_eq!(proxy.pool("web")["state"], "unhealthy");
    assert_eq!(proxy.get("/").status, 200, "and serves all the same");
    web[0].start_again();
    assert_eq!(await_published(&proxy, "HEALTHY").status, 200);
    assert_eq!(
        (&proxy.pool("web")["state"], &proxy.pool("web")["aggregate"]["healthy"]),
        (&json!("healthy"), &json!(3))
    );
}

#[test]
fn it_is_unknown_while_first_verdicts_are_missing() {
    let (web, api) = (origins(2), origins(1));
    api[0].when(When::probe(), Answer::hang());
    let hanging = |origin: &Origin| {
        format!(
            "  api: {{ members: [{origin}], initial_wait: 0s, probe: {{ path: /, interval: 10m, timeout: 10m }} }}\n"
        )
    };
    let pools = [pool("web", &web, ""), hanging(&api[0])].concat();
    let config = format!(
        "pools:\n{pools}composites: {{ region: {{ sources: [web, api], publish: {{ path: {PLACE} }} }} }}\nroutes: [{{ pool: web }}]\n"
    );
    let proxy = Proxy::start(&config);
    assert_eq!(await_published(&proxy, "UNKNOWN").status, 503);
    let (status, shown) = composite(&proxy, "region");
    assert_eq!((status, &shown["state"], &shown["sources"][1]["unknown"]), (503, &json!("UNKNOWN"), &json!(1)));
    assert_eq!(proxy.pool("api")["state"], "unknown");
}

#[test]
fn it_is_read_and_nothing_else_before_any_route_and_has_its_line() {
    let (web, api) = (origins(1), origins(1));
    let config = region(&web, &api, "").replace("routes: [", &format!("routes: [{{ path: {PLACE}, pool: api }}, "));
    let proxy = Proxy::start(&config);
    await_published(&proxy, "HEALTHY");
    let mut connection = proxy.connect();
    connection.send(format!("HEAD {PLACE}?head HTTP/1.1\r\nHost: a\r\n\r\n"));
    let head = connection.try_reply("HEAD").expect("an answer");
    assert_eq!((head.status, head.field("x-health-state")), (200, Some("HEALTHY")));
    assert_eq!(connection.get(PLACE).status, 200, "on the same connection, and no body came in between");
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let reply = proxy.request(method, PLACE, &["Host: a"], "");
        assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    assert_eq!(proxy.get(&format!("{PLACE}/below")).status, 200, "what lies under it is the route's");
    assert_eq!((api[0].traffic_count(), web[0].traffic_count()), (1, 0));
    let line = proxy.await_access("the HEAD", |line| line.text("query") == "head");
    for (field, expected) in [
        ("route", json!(PLACE)),
        ("pool", Value::Null),
        ("outcome", json!("ok")),
        ("status", json!(200)),
        ("attempts", json!([])),
    ] {
        assert_eq!(line.json[field], expected, "{}", line.raw);
    }
    let refused = proxy.await_access("the POST", |line| line.text("method") == "POST");
    assert_eq!((refused.text("outcome"), refused.text("reason")), ("refused", "denied"));
    let series = |code: u16| format!("requests_total{{listener=\"web\",route=\"{PLACE}\",pool=\"\",code=\"{code}\"}}");
    eventually("they are counted", || Scrape::of(&proxy).value(&series(405)) == 4.0);
}

#[test]
fn composites_of_composites_follow_and_are_published_by_listener_and_host() {
    let (web, api) = (origins(1), origins(1));
    let more = "  world: { sources: [region], publish: { path: /world, listener: inside } }\n  \
                named: { sources: [world], publish: { path: /world, host: a.test, listener: web } }\n";
    let config = region(&web, &api, more);
    let listeners = r#"listeners: [{ address: "127.0.0.1:0", name: web }, { address: "127.0.0.1:0", name: inside }]"#;
    let proxy = Proxy::start(&format!("{listeners}\n{config}"));
    let ask = |listener: &str, host: &str| {
        client::request(proxy.listener(listener), "GET", "/world", &[&format!("Host: {host}")], "")
    };
    eventually("all of them are healthy", || ask("inside", "b.test").field("x-health-state") == Some("HEALTHY"));
    assert_eq!(ask("inside", "b.test").json()["name"], "world");
    assert_eq!(ask("web", "A.test:80").json()["name"], "named");
    assert_eq!(ask("web", "b.test").field("x-health-state"), None, "a route's");
    break_probe(&api[0]);
    eventually("it is seen at the top", || ask("web", "a.test").status == 503);
    let shown = ask("inside", "b.test").json();
    assert_eq!(
        (&shown["sources"][0]["kind"], &shown["sources"][0]["healthy"], &shown["sources"][0]["total"]),
        (&json!("composite"), &json!(1), &json!(2))
    );
    let all = proxy.admin_get("/api/v1/composites").json();
    let states: Vec<_> =
        all.as_array().expect("a list").iter().map(|one| (one["name"].clone(), one["state"].clone())).collect();
    let expected = ["named", "region", "world"].map(|name| (json!(name), json!("UNHEALTHY")));
    assert_eq!(states, expected);
}

/// A page with a series twice is refused whole by whoever scrapes it.
#[test]
fn requests_for_a_published_place_add_up_whichever_composites_are_there() {
    let (web, api) = (origins(1), origins(1));
    let pools = [pool("web", &web, ""), pool("api", &api, "")].concat();
    let listeners = r#"listeners: [{ address: "127.0.0.1:0", name: one }, { address: "127.0.0.1:0", name: two }]"#;
    let config = |[first, second]: [&str; 2]| {
        let at = |listener: &str| format!("publish: {{ path: {PLACE}, listener: {listener} }}");
        let front = format!("  front: {{ sources: [web], {} }}\n", at(first));
        let back = format!("  back: {{ sources: [api], {} }}\n", at(second));
        format!("{listeners}\npools:\n{pools}composites:\n{front}{back}routes: [{{ pool: web }}]\n")
    };
    let proxy = Proxy::start(&config(["one", "two"]));
    let counted = |listener: &str| {
        let start = format!("requests_total{{listener=\"{listener}\",route=\"{PLACE}\"");
        Scrape::of(&proxy).beginning(&start).values().sum::<f64>()
    };
    for (asked, order) in [["one", "two"], ["two", "one"], ["one", "two"]].into_iter().enumerate() {
        proxy.reload(&config(order));
        for (listener, name) in order.into_iter().zip(["front", "back"]) {
            let reply = client::request(proxy.listener(listener), "GET", PLACE, &[], "");
            assert_eq!(reply.json()["name"], name, "by {listener}");
            let expected = (asked + 1) as f64;
            eventually("it is counted with those before", || counted(listener) == expected);
        }
    }
}

#[test]
fn every_change_is_told_once_however_it_flaps() {
    let (web, api) = (origins(2), origins(1));
    let proxy = Proxy::start(&region(&web, &api, ""));
    await_published(&proxy, "HEALTHY");
    eventually("everyone has answered", || proxy.pool("web")["aggregate"]["unknown"] == 0);
    await_told(&proxy, "region UNKNOWN -> HEALTHY");
    let before = told(&proxy).len();
    const ROUNDS: usize = 4;
    for _ in 0..ROUNDS {
        break_probe(&web[0]);
        await_published(&proxy, "UNHEALTHY");
        mend_probe(&web[0]);
        await_published(&proxy, "HEALTHY");
    }
    let round = [
        "web HEALTHY -> UNHEALTHY",
        "region HEALTHY -> UNHEALTHY",
        "web UNHEALTHY -> HEALTHY",
        "region UNHEALTHY -> HEALTHY",
    ];
    let expected: Vec<&str> = round.iter().copied().cycle().take(4 * ROUNDS).collect();
    eventually("all is told", || told(&proxy).len() >= before + expected.len());
    assert_eq!(told(&proxy)[before..], expected);
    let listed = proxy.admin_get("/api/v1/events?kind=composite&limit=1000").json();
    let listed = listed["events"].as_array().expect("a list");
    assert_eq!(listed.len(), before + expected.len());
    let last = listed.last().expect("one");
    assert_eq!((&last["composite"], &last["pool"], &last["level"]), (&json!("region"), &Value::Null, &json!("info")));
    let broken = &listed[listed.len() - 3];
    assert_eq!(
        (&broken["level"], &broken["detail"]),
        (&json!("warn"), &json!("web UNHEALTHY (1 of 2 members healthy)"))
    );
    let scrape = Scrape::of(&proxy);
    let state = |state: &str| scrape.value(&format!("composite_state{{name=\"region\",state=\"{state}\"}}"));
    assert_eq!((state("healthy"), state("unhealthy"), state("unknown")), (1.0, 0.0, 0.0));
    assert_eq!(scrape.value("events_total{kind=\"composite\"}"), (before + expected.len()) as f64);
    assert_eq!(scrape.value("pool_state{pool=\"web\",state=\"healthy\"}"), 1.0);
}

#[test]
fn a_reload_keeps_the_state_and_what_is_taken_out_leaves_nothing() {
    let (web, api) = (origins(2), origins(1));
    let proxy = Proxy::start(&region(&web, &api, "  other: { sources: [api], publish: { path: /other } }\n"));
    await_published(&proxy, "HEALTHY");
    eventually("everyone has answered", || proxy.pool("web")["aggregate"]["unknown"] == 0);
    break_probe(&web[0]);
    await_published(&proxy, "UNHEALTHY");
    await_told(&proxy, "region HEALTHY -> UNHEALTHY");
    let (told_before, before) = (told(&proxy), composite(&proxy, "region").1);
    let report = proxy.report(&region(&web, &api, "").replace("routes: [", "routes: [{ path: /x, pool: api }, "));
    assert_eq!((&report["composites"]["removed"], &report["composites"]["kept"]), (&json!(["other"]), &json!(1)));
    assert_eq!(
        (composite(&proxy, "region"), told(&proxy)),
        ((503, before), told_before),
        "and nobody was told anything"
    );
    assert_eq!(composite(&proxy, "other").0, 404);
    assert_eq!(proxy.get("/other").field("x-health-state"), None);
    let scrape = Scrape::of(&proxy);
    assert!(scrape.beginning("composite_state{name=\"other\"").is_empty());
    assert_eq!(scrape.value("composite_state{name=\"region\",state=\"unhealthy\"}"), 1.0);
    // Other sources are looked at at once.
    proxy.report(&region(&web, &api, "").replace("[web, api], publish", "[api], publish"));
    assert_eq!(proxy.get(PLACE).field("x-health-state"), Some("HEALTHY"));
    await_told(&proxy, "region UNHEALTHY -> HEALTHY");
}

#[test]
fn a_process_that_ends_sends_everybody_away_while_it_still_answers() {
    let (web, api) = (origins(1), origins(1));
    let mut proxy = Proxy::start(&format!("lame_duck: 10m\n{}", region(&web, &api, "")));
    await_published(&proxy, "HEALTHY");
    proxy.signal("TERM");
    let reply = await_published(&proxy, "UNHEALTHY");
    assert_eq!((reply.status, &reply.json()["draining"]), (503, &json!(true)));
    assert_eq!(reply.json()["sources"][0]["state"], "HEALTHY", "what the sources are is said all the same");
    assert_eq!(composite(&proxy, "region").0, 503);
    assert_eq!(proxy.get("/").status, 200, "who comes all the same is served");
    proxy.signal("INT");
    proxy.wait();
}

#[test]
fn a_route_leaves_a_pool_at_once_whose_composite_is_not_healthy_any_more() {
    let (web, api, spare) = (origins(1), origins(1), origins(1));
    let config =
        region(&web, &api, "").replace("composites:", &format!("{}composites:", pool("spare", &spare, ""))).replace(
            "routes: [{ pool: web }]",
            "routes: [{ pools: [{ pool: web, when: region }, spare], failback_delay: 0s }]",
        );
    let proxy = Proxy::start(&config);
    await_published(&proxy, "HEALTHY");
    eventually("the better pool serves", || proxy.get("/before").status == 200 && web[0].traffic_count() > 0);
    // Its own member is as healthy as ever.
    break_probe(&api[0]);
    // What is published is seen a moment before it is acted on.
    eventually("the spare serves", || proxy.get("/after").status == 200 && spare[0].traffic_count() > 0);
    let served = web[0].traffic_count();
    assert_eq!((proxy.get("/after").status, web[0].traffic_count()), (200, served));
    assert_eq!(proxy.pool("web")["state"], "healthy");
    mend_probe(&api[0]);
    await_published(&proxy, "HEALTHY");
    eventually("it serves again", || proxy.get("/again").status == 200 && web[0].traffic_count() > served);
}

fn listed(proxy: &Proxy, name: &str) -> Value {
    let all = proxy.admin_get("/api/v1/composites").json();
    all.as_array().into_iter().flatten().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

/// Pool `web` serves while `region` is healthy, else `spare`; `region` is about a third pool, `gate`.
fn behind_a_gate([web, spare, gate, pager]: &[Origin; 4], observe: &str) -> String {
    let one = |name: &str, origin: &Origin| pool(name, std::slice::from_ref(origin), "");
    let pools = [one("web", web), one("spare", spare), one("gate", gate)].concat();
    let hook = pager.address();
    format!(
        "alerts: [{{ name: pager, webhook: {{ url: \"http://{hook}\", secret: open-sesame }}, on: [composite] }}]\n\
         pools:\n{pools}composites:\n  region: {{ sources: [gate], publish: {{ path: {PLACE} }}{observe} }}\n  all: {{ sources: [region, web] }}\n\
         routes:\n  - {{ pools: [{{ pool: web, when: region }}, spare], failback_delay: 0s }}\n"
    )
}

#[test]
fn one_that_only_observes_is_told_and_listed_and_neither_answered_nor_gone_by() {
    let all = std::array::from_fn(|_| Origin::start());
    let [web, spare, gate, _] = &all;
    let proxy = Proxy::start(&behind_a_gate(&all, ", observe: true"));
    eventually("it would be healthy", || listed(&proxy, "region")["state"] == "HEALTHY");
    eventually("the other one is healthy", || listed(&proxy, "all")["state"] == "HEALTHY");
    eventually("web serves", || proxy.admin_get("/api/v1/routes").json()[0]["pool"] == "web");
    let mark = proxy.mark();
    break_probe(gate);
    for name in ["region", "all"] {
        let event = proxy.await_event(mark, &[("kind", "composite"), ("composite", name), ("to", "UNHEALTHY")]);
        assert!(event.raw.contains("observed\":true") && event.text("level") == "info", "{}", event.raw);
        assert!(event.raw.contains(&format!("observed (region): composite {name} is UNHEALTHY")), "{}", event.raw);
    }
    let region = listed(&proxy, "region");
    assert_eq!((&region["state"], &region["observed"]), (&json!("UNHEALTHY"), &json!(true)), "{region}");
    let all = listed(&proxy, "all");
    assert_eq!(
        (&all["state"], &all["observed"], &all["sources"][0]["name"]),
        (&json!("HEALTHY"), &json!(false), &json!("web"))
    );
    assert_eq!(all["sources"].as_array().map(Vec::len), Some(1), "{all}");
    let (status, problem) = composite(&proxy, "region");
    assert!(status == 404 && problem["detail"].to_string().contains("only observes"), "{problem}");

    // The route stays with its first pool, and where it would be published is a path like any other.
    for path in ["/", PLACE] {
        let reply = proxy.get(path);
        assert_eq!((reply.status, reply.field("x-health-state")), (200, None), "{path}");
    }
    assert_eq!((web.traffic_count(), spare.traffic_count()), (2, 0));

    let rank = proxy.admin_get("/api/v1/explain?url=http://a.test/").json()["pools"][0].clone();
    assert_eq!((&rank["when"], &rank["observed_when"]), (&Value::Null, &json!("region")), "{rank}");
    let why = "serves: 1 of 1 member healthy; composite region only observes, so its `when` is not looked at (it is unhealthy)";
    assert_eq!(rank["why"], why);
    assert_eq!(proxy.admin_get("/api/v1/routes").json()[0]["pools"][0]["observed_when"], "region");

    let scrape = Scrape::of(&proxy);
    assert_eq!(scrape.value("observed_composite_state{name=\"region\",state=\"unhealthy\"}"), 1.0);
    assert!(scrape.beginning("composite_state{name=\"region\"").is_empty());
    assert!(scrape.beginning("observed_composite_state{name=\"all\"").is_empty());
    assert_eq!(scrape.find("events_total{kind=\"composite\"}").unwrap_or_default(), told_in_force(&proxy));
    assert!(scrape.value("observed_events_total{kind=\"composite\"}") >= 3.0, "gate, region, all");
    assert_eq!(alerts_open(&proxy), json!([]));
}

/// What the pager has been told of and is not over.
fn alerts_open(proxy: &Proxy) -> Value {
    proxy.admin_get("/api/v1/alerts").json()["alerts"][0]["open"].clone()
}

/// Events of composites that are no trial's.
fn told_in_force(proxy: &Proxy) -> f64 {
    let events = proxy.admin_get("/api/v1/events?limit=1000").json();
    let counts = |event: &&Value| event["kind"] == "composite" && event["observed"] == false;
    events["events"].as_array().map_or(0, |all| all.iter().filter(counts).count()) as f64
}

#[test]
fn one_that_begins_to_count_under_load_is_what_it_would_have_been_from_the_first_request_on() {
    let all = std::array::from_fn(|_| Origin::start());
    let [web, spare, gate, _] = &all;
    let config = |observe: &str| behind_a_gate(&all, observe);
    let (tried, in_force) = (config(", observe: true"), config(""));
    let proxy = Proxy::start(&tried);
    eventually("it would be healthy", || listed(&proxy, "region")["state"] == "HEALTHY");
    eventually("web serves", || proxy.admin_get("/api/v1/routes").json()[0]["pool"] == "web");
    let since = listed(&proxy, "region")["since"].clone();
    let load = Load::start(proxy.address(), 2, "/steady");
    for round in 0..10 {
        for (config, state) in [(&in_force, Some("HEALTHY")), (&tried, None)] {
            proxy.reload(config);
            assert_eq!(proxy.get(PLACE).field("x-health-state"), state, "round {round}");
            load.fence();
            assert_eq!(listed(&proxy, "region")["since"], since, "round {round}");
        }
    }
    assert_eq!(spare.traffic_count(), 0, "it was unknown for a moment, and the route left");

    break_probe(gate);
    eventually("it would be unhealthy", || listed(&proxy, "region")["state"] == "UNHEALTHY");
    let since = listed(&proxy, "region")["since"].clone();
    load.fence();
    assert_eq!(spare.traffic_count(), 0);
    let mark = proxy.mark();
    proxy.reload(&in_force);
    load.fence();
    let served = web.traffic_count();
    load.fence();
    assert_eq!(web.traffic_count(), served, "the route leaves with the reload");
    assert_eq!((proxy.get(PLACE).status, &listed(&proxy, "region")["since"]), (503, &since));
    let event = proxy.await_event(mark, &[("composite", "region"), ("from", "observed"), ("to", "UNHEALTHY")]);
    assert_eq!(event.text("level"), "warn", "{}", event.raw);
    eventually("who is to be told is", || alerts_open(&proxy)[0]["key"].is_string());

    proxy.reload(&tried);
    eventually("web serves again", || web.traffic_count() > served);
    eventually("nobody is told of it any more", || alerts_open(&proxy) == json!([]));
    load.finish().assert_all_ok();
}
