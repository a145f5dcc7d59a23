//! The cap on ejection and the fallback, as a client and a reader of the log see them.

use crate::harness::proxy::{PROBE, config_of};
use crate::harness::{Answer, Line, Origin, Proxy, When, eventually};

/// `n` members `127.0.<net>.1` and on, at one origin.
fn crowd(origin: &Origin, net: u8, n: u8) -> Vec<String> {
    (1..=n).map(|i| format!("\"127.0.{net}.{i}:{}\"", origin.port())).collect()
}

fn pass() -> Answer {
    Answer::status(200)
}

fn fail() -> Answer {
    Answer::status(503)
}

/// health.md §3: rows of (cap in percent, extra keys, members, how many of them fail, how many are then ejected).
const CAP: &[(u8, &str, u8, u8, u64)] = &[
    (10, "", 1, 1, 0),
    (100, "", 1, 1, 0),
    (10, "", 2, 1, 0),
    (50, "", 2, 1, 1),
    (10, "", 3, 2, 0),
    (33, "", 3, 2, 0),
    (34, "", 3, 2, 1),
    (50, "", 3, 2, 1),
    (66, "", 3, 2, 1),
    (67, "", 3, 2, 2),
    (100, "", 3, 2, 2),
    (67, "", 3, 3, 0),
    (100, "", 3, 3, 0),
    (10, "min_ejected: 1", 3, 2, 1),
    (0, "", 3, 2, 0),
    (50, "", 4, 3, 2),
    (50, "", 4, 4, 0),
    (25, "", 10, 9, 2),
];

#[test]
fn cap_rounds_down_and_is_never_exceeded() {
    let origin = Origin::start_everywhere();
    let mut config = "pools:\n".to_owned();
    for (row, (cap, extra, n, _, _)) in CAP.iter().enumerate() {
        let net = u8::try_from(row + 10).expect("few rows");
        let members = crowd(&origin, net, *n).join(", ");
        config += &format!(
            "  row{row}:\n    members: [{members}]\n    max_unhealthy_percent: {cap}\n    {PROBE}\n    {extra}\n"
        );
    }
    config += "routes: [{ pool: row0 }]\n";
    let proxy = Proxy::start(&config);
    let pools = || proxy.admin_get("/api/v1/pools").json();
    let all = |look: &dyn Fn(&serde_json::Value) -> bool| {
        let pools = pools();
        let pools = pools["pools"].as_array().or(pools.as_array()).expect("a list of pools").clone();
        assert!(pools.iter().all(|pool| pool["ejected"].as_u64() <= pool["ejectable"].as_u64()), "over the cap");
        pools.iter().all(look)
    };
    eventually("everyone is healthy", || {
        all(&|pool| pool["members"].as_array().is_some_and(|all| all.iter().all(|m| m["standing"] == "healthy")))
    });
    for (row, (_, _, _, failing, _)) in CAP.iter().enumerate() {
        (1..=*failing).for_each(|i| origin.when(When::local(&format!("127.0.{}.{i}", row + 10)), fail()));
    }
    let verdicts = |pool: &serde_json::Value| {
        let members = pool["members"].as_array().cloned().unwrap_or_default();
        u8::try_from(members.iter().filter(|m| m["verdict"] == "unhealthy").count()).expect("few members")
    };
    for (row, (cap, extra, n, failing, ejected)) in CAP.iter().enumerate() {
        let name = format!("row{row}");
        eventually("those that fail are unhealthy", || {
            all(&|pool| pool["name"] != name.as_str() || verdicts(pool) == *failing)
        });
        let pool = proxy.pool(&name);
        assert_eq!(pool["ejected"], *ejected, "cap {cap} %, {extra}, {failing} of {n} failing: {pool}");
    }
}

#[test]
fn app_service_example_of_four() {
    let origins: Vec<Origin> = (0..4).map(|_| Origin::start()).collect();
    let members: Vec<&Origin> = origins.iter().collect();
    let proxy = Proxy::of(&members, "max_unhealthy_percent: 50");
    proxy.await_all_healthy();
    origins[..3].iter().for_each(|origin| origin.when(When::probe(), fail()));
    eventually("three are unhealthy", || proxy.events(&[("kind", "member"), ("to", "unhealthy")]).len() >= 3);
    proxy.await_mode("capped");
    let pool = proxy.pool("web");
    assert_eq!((&pool["ejected"], &pool["in_rotation"], &pool["total"]), (&2.into(), &2.into(), &4.into()), "{pool}");

    // The good one and the kept one share equally, and the log says which is which.
    let lines = proxy.sample("/three", 40);
    let count = |member: &str| lines.iter().filter(|line| line.tried() == [member]).count();
    let kept: Vec<&Origin> = origins[..3].iter().filter(|origin| count(&origin.address()) > 0).collect();
    assert_eq!(kept.len(), 1, "one of the three bad ones is kept");
    assert_eq!((count(&origins[3].address()), count(&kept[0].address())), (20, 20));
    for line in &lines {
        let bad = line.tried() == [kept[0].address()];
        let standing = if bad { "kept" } else { "healthy" };
        assert_eq!(line.attempts()[0]["standing"], standing, "{}", line.raw);
        assert_eq!((&line.json["lb"]["mode"], line.json["lb"]["reason"] == "kept"), (&"capped".into(), bad));
    }
    // The choice is stable while nothing changes.
    kept[0].await_probes(3);
    assert_eq!(proxy.member("web", &kept[0].address())["standing"], "kept");

    let mark = proxy.mark();
    origins[3].when(When::probe(), fail());
    proxy.await_event(mark, &[("kind", "fallback"), ("pool", "web")]);
    proxy.await_mode("fallback");
    let lines = proxy.sample("/none", 40);
    for origin in &origins {
        let served: Vec<_> = lines.iter().filter(|line| line.tried() == [origin.address()]).collect();
        assert_eq!(served.len(), 10, "all four take turns");
        let fallback = |line: &&&_| fallback_says(line);
        assert_eq!(served.iter().filter(fallback).count(), 10);
    }

    let mark = proxy.mark();
    origins[1].when(When::probe(), pass());
    proxy.await_event(mark, &[("member", &origins[1].address()), ("to", "healthy")]);
    eventually("the fallback is over", || proxy.pool("web")["mode"] == "capped");
    assert_eq!(proxy.pool("web")["ejected"], 2);
    let lines = proxy.sample("/one", 20);
    assert_eq!(lines.iter().filter(|line| line.tried() == [origins[1].address()]).count(), 10);
    assert!(lines.iter().all(|line| !fallback_says(line)));
}

fn fallback_says(line: &Line) -> bool {
    let lb = &line.json["lb"];
    lb["mode"] == "fallback" && lb["reason"] == "fallback" && line.attempts()[0]["standing"] == "fallback"
}

#[test]
fn recovered_members_place_passes_on_within_the_cap() {
    let origins: Vec<Origin> = (0..4).map(|_| Origin::start()).collect();
    let members: Vec<&Origin> = origins.iter().collect();
    let proxy = Proxy::of(&members, "");
    proxy.await_all_healthy();
    for origin in &origins[..3] {
        origin.when(When::probe(), fail());
        eventually("it is unhealthy", || proxy.member("web", &origin.address())["verdict"] == "unhealthy");
    }
    let standing = |origin: &Origin| proxy.member("web", &origin.address())["standing"].clone();
    assert_eq!([0, 1, 2].map(|i| standing(&origins[i])), ["ejected", "ejected", "kept"]);
    // One that was ejected recovers: the kept one takes its place.
    origins[0].when(When::probe(), pass());
    proxy.await_standing(&origins[0], "healthy");
    assert_eq!([1, 2].map(|i| standing(&origins[i])), ["ejected", "ejected"]);
    let lines = proxy.sample("/after", 10);
    assert!(
        lines.iter().all(|line| [origins[0].address(), origins[3].address()].contains(&line.tried()[0].to_owned()))
    );
}

#[test]
fn fallback_serves_all_enabled_and_ends_at_the_first_recovery() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::start()).collect();
    let (disabled, draining) = (Origin::start(), Origin::start());
    let mut members: Vec<String> = origins.iter().map(ToString::to_string).collect();
    members.push(format!("{{ address: {disabled}, state: disabled }}"));
    members.push(format!("{{ address: {draining}, state: draining }}"));
    let proxy = Proxy::start(&config_of(&members, &format!("{PROBE}\nmax_unhealthy_percent: 100")));
    origins.iter().for_each(|origin| proxy.await_standing(origin, "healthy"));
    origins.iter().for_each(|origin| origin.when(When::probe(), fail()));
    proxy.await_event(0, &[("kind", "fallback"), ("to", "fallback")]);
    let lines = proxy.sample("/fallback", 30);
    assert_eq!(proxy.events(&[("kind", "fallback")]).len(), 1, "one line for one transition");
    assert!(lines.iter().all(|line| line.json["status"] == 200));
    assert!(origins.iter().all(|origin| origin.traffic_count() == 10));

    // The data path fails as well: the client is told what really happened.
    origins.iter().for_each(|origin| origin.when(When::path("/broken"), Answer::status(500).body("mine")));
    assert_eq!((proxy.get("/broken").status, proxy.get("/broken").text().as_str()), (500, "mine"));

    let mark = proxy.mark();
    origins[1].when(When::probe(), pass());
    proxy.await_event(mark, &[("kind", "fallback")]);
    let lines = proxy.sample("/over", 10);
    assert!(lines.iter().all(|line| line.tried() == [origins[1].address()]), "only the one that is healthy");
    assert_eq!((disabled.traffic_count(), draining.traffic_count()), (0, 0), "drained and disabled never join");
    assert_eq!(disabled.probe_count(), 0, "disabled is not even probed");
    assert!(draining.probe_count() > 0);
}

#[test]
fn fail_mode_answers_503_at_once_and_asks_nobody() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::start()).collect();
    let members: Vec<&Origin> = origins.iter().collect();
    let proxy = Proxy::of(&members, "on_all_unhealthy: fail");
    proxy.await_all_healthy();
    origins.iter().for_each(|origin| origin.when(When::probe(), fail()));
    proxy.await_mode("down");
    let reply = proxy.get("/nobody");
    assert_eq!(reply.status, 503);
    assert!(reply.field("retry-after").is_some_and(|value| value.parse::<u32>().is_ok()), "{:?}", reply.lines);
    let line = proxy.access("/nobody");
    assert!(line.has(&[("reason", "all_unhealthy"), ("outcome", "refused"), ("pool", "web")]), "{}", line.raw);
    assert!(line.json["attempts"].as_array().is_some_and(Vec::is_empty), "{}", line.raw);
    assert!(origins.iter().all(|origin| origin.traffic_count() == 0));
    for origin in &origins {
        assert_eq!(proxy.member("web", &origin.address())["standing"], "ejected");
    }
    // A leader pool: the one that passes gets everything.
    origins[2].when(When::probe(), pass());
    proxy.await_standing(&origins[2], "healthy");
    assert!(proxy.sample("/leader", 6).iter().all(|line| line.tried() == [origins[2].address()]));
}
