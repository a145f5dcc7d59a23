//! SIGHUP: what changed changes, what did not keeps its health, and a refused file changes nothing.

use std::net::{Ipv4Addr, TcpListener};

use crate::harness::client::get;
use crate::harness::proxy::{PROBE, Proxy, config_of, pool_config};
use crate::harness::{Answer, Connection, Gate, Line, Load, Origin, When, eventually};

/// No reload gives a member that was out an interval of traffic (case C03).
#[test]
fn twenty_reloads_under_load_fail_nothing_and_forget_nobody() {
    let origins: Vec<Origin> = (0..4).map(|_| Origin::start()).collect();
    let members: Vec<&Origin> = origins.iter().collect();
    let base = pool_config(&members, "");
    let proxy = Proxy::start(&base);
    proxy.await_all_healthy();
    let ejected = &origins[2];
    ejected.when(When::probe(), Answer::status(503));
    proxy.await_standing(ejected, "ejected");
    let load = Load::start(proxy.address(), 4, "/steady");
    load.fence();
    let (before, connections) = (ejected.traffic_count(), proxy.log().len());
    for round in 0..20 {
        let unrelated = format!("  other{round}: {{ members: [\"127.0.0.1:1\"], probe: off }}\n");
        let config = base.replace("routes:", &format!("{unrelated}routes:")).replace("[{ pool: web }]", &routes(round));
        proxy.reload(&config);
        load.fence();
    }
    let tally = load.finish();
    tally.assert_all_ok();
    assert_eq!(ejected.traffic_count(), before, "requests reached the member that was ejected");
    assert_eq!(proxy.member("web", &ejected.address())["standing"], "ejected");
    let forgot = proxy
        .log()
        .into_iter()
        .skip(connections)
        .filter(|line| line.has(&[("kind", "member"), ("pool", "web")]))
        .count();
    assert_eq!(forgot, 0, "a reload changed a member");
    assert_eq!(proxy.get("/other19").status, 502, "the last file is in force");
}

fn routes(round: usize) -> String {
    format!("[{{ pool: web }}, {{ path: /other{round}, pool: other{round} }}]")
}

#[test]
fn reload_closes_no_connection() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let config = config_of(&[origin.to_string()], "probe: off");
    let proxy = Proxy::start(&config);
    let mut idle = proxy.connect();
    idle.get("/before");
    let mut held = proxy.connect();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("a request is in flight", || gate.waiting() == 1);
    proxy.reload(&config.replace("[{ pool: web }]", "[{ path: /after, pool: web }]"));
    assert_eq!(idle.get("/after").status, 200, "the same connection, the new routes");
    assert_eq!(idle.get("/before").status, 404);
    gate.open();
    assert_eq!(held.reply().status, 200, "it keeps the routes it began with");
}

#[test]
fn refused_file_changes_nothing_and_the_next_good_one_is_taken() {
    let (a, b) = (Origin::start(), Origin::start());
    let good = pool_config(&[&a, &b], "");
    let proxy = Proxy::start(&good);
    proxy.await_all_healthy();
    let load = Load::start(proxy.address(), 2, "/steady");
    let broken = [
        "pools: [".to_owned(),
        String::new(),
        good.replace("{ pool: web }", "{ pool: gone }"),
        good.replace("members:", "membres:").replace("probe:", "prob:"),
    ];
    for text in &broken {
        std::fs::write(proxy.dir().join("proxy.yaml"), text).expect("ours");
        let mark = proxy.mark();
        proxy.reload_is_refused();
        let problems =
            proxy.log().into_iter().skip(mark).filter(|line| line.is_error() && line.raw.contains("proxy.yaml"));
        assert!(problems.count() > 0, "refused {text:?} without a place");
        load.fence();
        a.await_probes(1);
    }
    for key in ["membres", "prob"] {
        assert!(proxy.log().iter().any(|line| line.raw.contains(key)), "not every problem was told: {key}");
    }
    std::fs::remove_file(proxy.dir().join("proxy.yaml")).expect("ours");
    proxy.reload_is_refused();

    proxy.reload(&pool_config(&[&a], ""));
    load.fence();
    let before = b.traffic_count();
    load.await_each(5);
    assert_eq!(b.traffic_count(), before, "the good file is in force: b is gone");
    load.finish().assert_all_ok();
    eventually("one member is left", || proxy.pool("web")["total"] == 1);
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    taken.local_addr().expect("bound").port()
}

/// The configuration of one pool, with a listener `web` on a port of the kernel's, and these.
fn with_listeners(more: &[String]) -> String {
    let listeners = [&[r#"{ address: "127.0.0.1:0", name: web }"#.to_owned()], more].concat().join(", ");
    format!("listeners: [{listeners}]\n{}", config_of(&["\"127.0.0.1:1\"".to_owned()], "probe: off"))
}

fn listener(ip: &str, port: u16) -> String {
    format!(r#"{{ address: "{ip}:{port}", name: other }}"#)
}

/// The sockets of a listener that left were still open when the next reload wanted its address.
#[test]
fn listener_that_left_can_come_back_at_once() {
    let port = free_port();
    let (without, with) = (with_listeners(&[]), with_listeners(&[listener("127.0.0.1", port)]));
    let proxy = Proxy::start(&without);
    for _ in 0..10 {
        proxy.reload(&with);
        assert_eq!(get((Ipv4Addr::LOCALHOST, port).into(), "/").status, 502, "nobody is behind it");
        proxy.reload(&without);
        assert!(Connection::try_open((Ipv4Addr::LOCALHOST, port).into()).is_err());
    }
}

#[test]
fn listener_in_the_way_of_another_is_named() {
    let port = free_port();
    let proxy = Proxy::start(
        &with_listeners(&[listener("127.0.0.1", port)]).replace(r#"{ address: "127.0.0.1:0", name: web }, "#, ""),
    );
    proxy.rewrite(&with_listeners(&[listener("0.0.0.0", port)]));
    let mark = proxy.mark();
    proxy.signal("HUP");
    let refused =
        proxy.await_log("the refusal of a reload", mark, |line| line.is_error() && line.text("kind") == "reload");
    let told = format!("error: cannot listen on 0.0.0.0:{port} while 127.0.0.1:{port} is open");
    assert!(refused.text("detail").contains(&told), "{}", refused.raw);
    assert_eq!(proxy.get("/still-open").status, 502);
}

#[test]
fn removed_member_is_probed_no_more_and_comes_back_as_new() {
    let (a, b) = (Origin::start(), Origin::start());
    let both = pool_config(&[&a, &b], "");
    let proxy = Proxy::start(&both);
    proxy.await_all_healthy();
    proxy.reload(&pool_config(&[&a], ""));
    // A probe that was under way may still arrive.
    a.await_probes(2);
    let before = b.probe_count();
    a.await_probes(4);
    assert_eq!(b.probe_count(), before, "probed after its removal");
    b.answer(Answer::status(503));
    proxy.reload(&both);
    eventually("it is probed again", || b.probe_count() > before);
    let lines = proxy.sample("/after", 8);
    assert!(lines.iter().all(|line| line.tried() == [a.address()]), "the old verdict of a removed member was used");
}

#[test]
fn reloads_do_not_multiply_probes() {
    let (a, clock) = (Origin::start(), Origin::start());
    let config = |comment: &str| {
        let pool = |name: &str, origin: &Origin| format!("  {name}:\n    members: [{origin}]\n    {PROBE}\n");
        format!("pools:\n{}{}routes: [{{ pool: web }}] # {comment}\n", pool("web", &a), pool("clock", &clock))
    };
    let proxy = Proxy::start(&config("first"));
    proxy.await_standing(&a, "healthy");
    // Ten without a change, and ten with one elsewhere (case C16).
    for round in 0..10 {
        proxy.reload(&config(&round.to_string()));
    }
    let other = |round: usize| format!("  other: {{ members: [\"127.0.0.1:{}\"], probe: off }}\nroutes:", round + 1);
    for round in 0..10 {
        proxy.reload(&config("other").replace("routes:", &other(round)));
    }
    // A member added now has one checker for certain: it is what one interval looks like.
    let fresh = Origin::start();
    proxy
        .reload(&config("last").replace("routes:", &format!("  fresh:\n    members: [{fresh}]\n    {PROBE}\nroutes:")));
    fresh.await_probes(2);
    let (before, fresh_before) = (a.probe_count(), fresh.probe_count());
    fresh.await_probes(6);
    let (probes, intervals) = (a.probe_count() - before, fresh.probe_count() - fresh_before);
    assert!(probes <= intervals + 2, "{probes} probes in {intervals} intervals");
    assert!(probes + 2 >= intervals, "{probes} probes in {intervals} intervals");
    // Under another name it is another pool, and the one before asks no more.
    proxy.reload(
        &config("last")
            .replace("  web:", "  site:")
            .replace("pool: web", "pool: site")
            .replace("routes:", &format!("  fresh:\n    members: [{fresh}]\n    {PROBE}\nroutes:")),
    );
    a.await_probes(2);
    let (before, fresh_before) = (a.probe_count(), fresh.probe_count());
    fresh.await_probes(6);
    let (probes, intervals) = (a.probe_count() - before, fresh.probe_count() - fresh_before);
    assert!(probes <= intervals + 2 && probes + 2 >= intervals, "{probes} probes in {intervals} intervals");
}

/// Two pools that ask one address for different things know two things of it (case C01).
#[test]
fn pools_that_share_an_address_share_no_verdict_over_reloads() {
    let origin = Origin::start();
    origin.when(When::path("/bad"), Answer::status(503));
    let pool = |name: &str, path: &str| {
        let probe = format!("{{ path: {path}, interval: 250ms, fast_interval: 100ms, timeout: 250ms }}");
        format!("  {name}: {{ members: [{origin}], probe: {probe} }}\n")
    };
    let config = format!("pools:\n{}{}routes: [{{ pool: a }}]\n", pool("a", "/ok"), pool("b", "/bad"));
    let proxy = Proxy::start(&config);
    let verdict = |pool: &str| proxy.member(pool, &origin.address())["verdict"].clone();
    eventually("both are judged", || verdict("a") == "healthy" && verdict("b") == "unhealthy");
    // Their lines come after what the API shows.
    for (pool, verdict) in [("a", "healthy"), ("b", "unhealthy")] {
        proxy.await_event(0, &[("kind", "member"), ("pool", pool), ("to", verdict)]);
    }
    let (mark, before) = (proxy.mark(), origin.probe_count());
    for round in 0..3 {
        // Twenty intervals of both between them.
        origin.await_probes(14);
        assert_eq!((verdict("a"), verdict("b")), ("healthy".into(), "unhealthy".into()), "round {round}");
        proxy.reload(&config.replace("routes: [", &format!("routes: [{{ path: /r{round}, pool: b }}, ")));
        let samples = |pool: &str| proxy.member(pool, &origin.address())["window"]["passes"].clone();
        assert!(samples("a").as_u64() > Some(0) && samples("b") == 0, "{} {}", samples("a"), samples("b"));
    }
    assert!(origin.probe_count() >= before + 40);
    let told: Vec<_> = proxy.log().into_iter().skip(mark).filter(|line| line.text("kind") == "member").collect();
    assert!(told.is_empty(), "{}", told[0].raw);
}

/// Fifty clients that are idle when it happens use their connections afterwards (case C49).
#[test]
fn idle_connections_outlive_reloads_of_everything_around_them() {
    let origin = Origin::start();
    let config = |round: usize| {
        let listener = format!(r#"{{ address: "127.0.0.1:0", name: web, keepalive_timeout: {}s }}"#, 60 + round);
        let member = format!("{{ address: {origin}, weight: {} }}", round + 1);
        let log = if round.is_multiple_of(2) { "json" } else { "combined" };
        format!(
            "listeners: [{listener}]\naccess_log: {{ path: stdout, format: {log} }}\nlame_duck: {round}s\n{}",
            config_of(&[member], "probe: off")
        )
    };
    let proxy = Proxy::start(&config(0));
    let mut clients: Vec<Connection> = (0..50).map(|_| proxy.connect()).collect();
    for round in 1..=10 {
        for client in clients.iter_mut().skip(round % 2) {
            assert_eq!(client.get("/before").status, 200);
        }
        proxy.reload(&config(round));
    }
    for client in &mut clients {
        let reply = client.get("/after");
        assert_eq!((reply.status, reply.field("connection")), (200, Some("keep-alive")), "the same connection");
    }
}

/// What becomes of a member's health by what has changed (case C52).
#[test]
fn identity_and_probe_decide_what_a_reload_keeps() {
    let (good, bad) = (Origin::start(), Origin::start());
    let pool = format!("    members: [{good}, {{ address: {bad}, weight: 2 }}]\n    {PROBE}\n");
    let base = format!("pools:\n  web:\n{pool}routes: [{{ pool: web }}]\n");
    // What is written instead of what; then members kept, of them unverified, with a new identity, added, removed; and
    // whether there was anything to change.
    let elsewhere = Origin::start();
    let rows: [(&str, &str, &str, [u64; 5], bool); 9] = [
        ("another port", &bad.address(), &elsewhere.address(), [1, 0, 0, 1, 1], true),
        ("another scheme", "    probe:", "    upstream: { tls: true }\n    probe:", [0, 0, 2, 0, 0], true),
        ("another path of the probe", "path: /healthz", "path: /other", [2, 2, 0, 0, 0], true),
        ("another interval", "interval: 500ms", "interval: 700ms", [2, 0, 0, 0, 0], true),
        ("another weight", "weight: 2", "weight: 3", [2, 0, 0, 0, 0], true),
        ("another order", "", "", [2, 0, 0, 0, 0], true),
        ("another cap", "    probe:", "    max_unhealthy_percent: 60\n    probe:", [2, 0, 0, 0, 0], true),
        ("a comment", "pools:", "# what is here\npools:", [2, 0, 0, 0, 0], false),
        ("nothing", "pools:", "pools:", [2, 0, 0, 0, 0], false),
    ];
    for (what, from, to, expected, changes) in rows {
        bad.when(When::probe(), Answer::status(200));
        let proxy = Proxy::start(&base);
        proxy.await_all_healthy();
        bad.when(When::probe(), Answer::status(503));
        proxy.await_standing(&bad, "ejected");
        let before = bad.probe_count();
        let mut changed = base.replace(from, to);
        if what == "another order" {
            changed = base.replace(&format!("[{good}, "), "[").replace("weight: 2 }", &format!("weight: 2 }}, {good}"));
        }
        assert!(changed != base || what == "nothing", "{what}");
        let report = proxy.report(&changed);
        let members = &report["members"];
        let found = ["kept", "unverified", "new_identity", "added", "removed"].map(|key| members[key].as_u64());
        assert_eq!(found, expected.map(Some), "{what}: {report}");
        assert_eq!(report["unchanged"], !changes, "{what}");
        match what {
            "another port" => proxy.await_standing(&elsewhere, "healthy"),
            "another scheme" => eventually("what was known of it is gone", || {
                let shown = proxy.member("web", &good.address());
                shown["last_probe"]["result"] == "fail" && shown["proven"] == false
            }),
            // At once, and not after the interval that is left.
            "another path of the probe" => {
                eventually("the new probe", || bad.probes()[before..].iter().any(|p| p.target == "/other"))
            }
            _ => {
                assert_eq!(proxy.member("web", &bad.address())["verdict"], "unhealthy", "{what}");
                let lines = proxy.sample(&format!("/{}", what.replace(' ', "-")), 4);
                assert!(lines.iter().all(|line| line.tried() == [good.address()]), "{what}: {lines:?}");
            }
        }
    }
}

#[test]
fn what_a_reload_keeps_is_decided_by_identity() {
    let (good, bad) = (Origin::start(), Origin::start());
    let members = |origins: &[&Origin], more: &str| -> Vec<String> {
        origins.iter().map(|origin| format!("{{ address: {origin}{more} }}")).collect()
    };
    let proxy = Proxy::start(&config_of(&members(&[&good, &bad], ""), PROBE));
    proxy.await_all_healthy();
    bad.when(When::probe(), Answer::status(503));
    proxy.await_standing(&bad, "ejected");
    // Interval, weight, order, another cap: the verdict stays, and not one request reaches the member.
    let kept = [
        config_of(&members(&[&good, &bad], ""), &PROBE.replace("interval: 500ms", "interval: 700ms")),
        config_of(&members(&[&good, &bad], ", weight: 3"), PROBE),
        config_of(&members(&[&bad, &good], ""), PROBE),
        config_of(&members(&[&bad, &good], ""), &format!("{PROBE}\nmax_unhealthy_percent: 60")),
    ];
    for (i, config) in kept.iter().enumerate() {
        let before = bad.traffic_count();
        proxy.reload(config);
        proxy.sample(&format!("/kept{i}"), 6);
        assert_eq!(bad.traffic_count(), before, "change {i} made it forgotten");
    }
    // Another probe: the verdict is kept and checked at once.
    bad.when(When::path("/other"), Answer::status(200));
    good.when(When::path("/other"), Answer::status(200));
    proxy.reload(&config_of(&members(&[&good, &bad], ""), &PROBE.replace("/healthz", "/other")));
    proxy.await_standing(&bad, "healthy");
    assert!(bad.probes().iter().any(|seen| seen.target == "/other"));
}

#[test]
fn name_without_an_address_is_a_member_that_stops_nothing() {
    let (good, later) = (Origin::start(), "nobody.invalid:80");
    let config = config_of(&[good.to_string(), later.to_owned()], PROBE);
    let proxy = Proxy::start(&config);
    proxy.await_standing(&good, "healthy");
    let shown = |proxy: &Proxy| {
        let member = proxy.member("web", later);
        assert_eq!((&member["resolved"], &member["latency_ms"]), (&false.into(), &serde_json::Value::Null), "{member}");
    };
    shown(&proxy);
    let told = |line: &Line| line.text("host") == "nobody.invalid" && line.raw.contains("does not resolve");
    proxy.await_log("a warning with the name", 0, told);
    let lines = proxy.sample("/start", 4);
    assert!(lines.iter().all(|line| line.tried() == [good.address()]), "{lines:?}");
    // Nor does it at a reload, which keeps the other's verdict.
    proxy.reload(&config.replace("routes:", "  other: { members: [\"127.0.0.1:1\"], probe: off }\nroutes:"));
    shown(&proxy);
    assert_eq!(proxy.member("web", &good.address())["standing"], "healthy");
    let lines = proxy.sample("/after", 4);
    assert!(lines.iter().all(|line| line.tried() == [good.address()]), "{lines:?}");
}

#[test]
fn reload_that_adds_a_member_does_not_take_readiness_away() {
    let (a, late, gate) = (Origin::start(), Origin::start(), Gate::new());
    late.when(When::probe(), Answer::status(200).held_by(&gate));
    // As long as its first probe is out, the newcomer has no verdict.
    let probe = "probe: { path: /healthz, interval: 60s, timeout: 60s }\ninitial_wait: 60s";
    let proxy = Proxy::start(&config_of(&[a.to_string()], probe));
    proxy.await_all_healthy();
    assert_eq!(proxy.admin_get("/readyz").status, 200);
    proxy.reload(&config_of(&[a.to_string(), late.to_string()], probe));
    eventually("the newcomer is asked", || gate.waiting() == 1);
    assert_eq!(proxy.member("web", &late.address())["verdict"], "unknown");
    let ready = proxy.admin_get("/readyz");
    assert_eq!(ready.status, 200, "{}", ready.text());
    gate.open();
    proxy.await_standing(&late, "healthy");
}
