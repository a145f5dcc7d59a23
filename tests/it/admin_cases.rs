//! The admin listener: health of the proxy itself, the pools as they are, and an operator's hand on a member.

use crate::harness::proxy::{PROBE, Proxy, config_of, pool_config};
use crate::harness::{Answer, Connection, Gate, Load, Origin, When, client, eventually};

fn action(origin: &Origin, action: &str) -> String {
    format!("/api/v1/pools/web/members/{}/{action}", origin.address())
}

#[test]
fn pools_are_shown_as_the_contract_says() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::of(&[&a, &b], "");
    proxy.await_all_healthy();
    a.when(When::probe(), Answer::status(503));
    proxy.await_standing(&a, "ejected");
    let all = proxy.admin_get("/api/v1/pools");
    assert_eq!(all.status, 200);
    assert!(all.field("content-type").is_some_and(|value| value.starts_with("application/json")), "{:?}", all.lines);
    assert!(all.text().contains("\"web\""), "{}", all.text());
    let pool = proxy.pool("web");
    assert_eq!((&pool["name"], &pool["mode"]), (&"web".into(), &"normal".into()), "{pool}");
    let counts = [("tier", 0), ("in_rotation", 1), ("total", 2), ("ejectable", 1), ("ejected", 1)];
    assert!(counts.iter().all(|(key, count)| pool[key] == *count), "{pool}");
    assert!(pool["state"].is_string(), "{pool}");
    let member = proxy.member("web", &a.address());
    let texts = [("admin", "enabled"), ("verdict", "unhealthy"), ("standing", "ejected")];
    assert!(texts.iter().all(|(key, text)| member[key] == *text), "{member}");
    for key in [
        "tier",
        "weight",
        "window",
        "streak",
        "since",
        "latency_ms",
        "phases",
        "peak_ms",
        "in_flight",
        "tunnels",
        "last_probe",
        "proven",
        "unverified",
        "resolved",
        "ejected_because",
        "next_probe_at",
    ] {
        assert!(member.get(key).is_some(), "no {key}: {member}");
    }
    // Of a plain connection to it, from when it still passed.
    let phases = &member["phases"];
    let known = ["connect_ms", "first_byte_ms", "total_ms"].map(|phase| phases[phase].as_f64());
    assert!(
        matches!(known, [Some(connect), Some(first), Some(total)] if connect <= first && first <= total),
        "{phases}"
    );
    assert!(phases["tls_ms"].is_null() && phases["total_ms"] == member["latency_ms"], "{member}");
    for key in ["passes", "shown", "size", "required"] {
        assert!(member["window"].get(key).is_some(), "no {key}: {member}");
    }
    assert!(member["streak"].as_i64().is_some_and(|streak| streak <= -2), "{member}");
    let probe = &member["last_probe"];
    assert_eq!(
        (&probe["result"], &probe["reason"], &probe["status"]),
        (&"fail".into(), &"status".into(), &503.into()),
        "{probe}"
    );
    for key in ["at", "detail", "connect_ms", "tls_ms", "first_byte_ms", "total_ms"] {
        assert!(probe.get(key).is_some(), "no {key}: {probe}");
    }
}

#[test]
fn readiness_waits_for_required_pools_alone() {
    let (good, bad) = (Origin::start(), Origin::start());
    bad.answer(Answer::status(503));
    let pool = |name: &str, origin: &Origin, more: &str| {
        format!("  {name}:\n    members: [{origin}]\n    {PROBE}\n    initial_wait: 300ms\n{more}")
    };
    let config = |more: &str| {
        let fails = "    on_all_unhealthy: fail\n".to_owned() + more;
        format!("pools:\n{}{}routes: [{{ pool: good }}]\n", pool("good", &good, ""), pool("bad", &bad, &fails))
    };
    let proxy = Proxy::start(&config(""));
    eventually("ready without the pool nobody requires", || proxy.admin_get("/readyz").status == 200);
    proxy.reload(&config("    required: true\n"));
    eventually("not ready: a required pool cannot serve", || proxy.admin_get("/readyz").status == 503);
    assert_eq!(proxy.admin_get("/livez").status, 200);
    bad.answer(Answer::status(200));
    eventually("ready again", || proxy.admin_get("/readyz").status == 200);
}

#[test]
fn drain_and_disable_take_a_member_out_and_enable_brings_it_back() {
    let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
    a.when(When::path("/held"), Answer::status(200).held_by(&gate));
    b.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let proxy = Proxy::of(&[&a, &b], "");
    proxy.await_all_healthy();
    let mut held = [proxy.connect(), proxy.connect()];
    for client in &mut held {
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("each has one in flight", || gate.waiting() == 2);
    let load = Load::start(proxy.address(), 2, "/steady");

    let reply = proxy.admin_post(&action(&a, "drain"), &[]);
    assert_eq!((reply.status, &reply.json()["standing"]), (200, &"draining".into()), "{}", reply.text());
    load.fence();
    let (traffic, probes) = (a.traffic_count(), a.probe_count());
    load.await_each(10);
    eventually("a draining member is probed", || a.probe_count() > probes);
    assert_eq!(a.traffic_count(), traffic, "it got a new request");
    gate.open();
    assert!(held.iter_mut().all(|client| client.reply().status == 200), "what was in flight is finished");

    let reply = proxy.admin_post(&action(&a, "disable"), &[]);
    assert_eq!((reply.status, &reply.json()["standing"]), (200, &"disabled".into()), "{}", reply.text());
    b.await_probes(1);
    let probes = a.probe_count();
    b.await_probes(3);
    assert_eq!((a.probe_count(), a.traffic_count()), (probes, traffic), "a disabled member is left alone");

    // Both beat the fallback.
    b.when(When::probe(), Answer::status(503));
    proxy.await_mode("fallback");
    load.fence();
    assert_eq!(a.traffic_count(), traffic);
    b.when(When::probe(), Answer::status(200));
    proxy.await_standing(&b, "healthy");

    let reply = proxy.admin_post(&action(&a, "enable"), &[]);
    assert_eq!((reply.status, &reply.json()["admin"]), (200, &"enabled".into()), "{}", reply.text());
    proxy.await_standing(&a, "healthy");
    eventually("it serves again", || a.traffic_count() > traffic);
    load.finish().assert_all_ok();
}

#[test]
fn operators_word_survives_probes_and_unrelated_reloads() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::of(&[&a, &b], "");
    proxy.await_all_healthy();
    assert_eq!(proxy.admin_post(&action(&a, "drain"), &[]).status, 200);
    a.await_probes(2);
    a.when(When::probe(), Answer::status(503));
    a.await_probes(3);
    assert_eq!(proxy.member("web", &a.address())["standing"], "draining");
    proxy.reload(&format!("{}# a comment\n", pool_config(&[&a, &b], "")));
    assert_eq!(proxy.member("web", &a.address())["standing"], "draining");
    // The file changes that very key: the file is right again.
    let members = [format!("{{ address: {a}, state: disabled }}"), b.to_string()];
    proxy.reload(&config_of(&members, PROBE));
    assert_eq!(proxy.member("web", &a.address())["standing"], "disabled");
}

#[test]
fn members_are_found_however_their_address_is_spelt_in_the_path() {
    let members = ["\"[::1]:9000\"".to_owned(), "127.0.0.1:9000".to_owned(), "nobody.invalid:9000".to_owned()];
    let proxy = Proxy::start(&config_of(&members, "probe: off"));
    let spellings = [
        ("[::1]:9000", "[::1]:9000"),
        ("%5B::1%5D:9000", "[::1]:9000"),
        ("%5b%3A%3a1%5d%3A9000", "[::1]:9000"),
        ("127.0.0.1%3A9000", "127.0.0.1:9000"),
        ("nobody%2Einvalid:9000", "nobody.invalid:9000"),
    ];
    for (spelt, address) in spellings {
        for (word, admin) in [("drain", "draining"), ("enable", "enabled")] {
            let reply = proxy.admin_post(&format!("/api/v1/pools/web/members/{spelt}/{word}"), &[]);
            assert_eq!(reply.status, 200, "{spelt}: {}", reply.text());
            assert_eq!((&reply.json()["address"], &reply.json()["admin"]), (&address.into(), &admin.into()));
            assert_eq!(proxy.member("web", address)["admin"], admin);
        }
    }
    assert_eq!(proxy.admin_get("/api/v1/pools/%77eb").status, 200);
    assert_problem(&proxy.admin_post("/api/v1/pools/web/members/::1:9000/drain", &[]), 404);
}

#[test]
fn probe_on_demand_is_made_now() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config_of(&[a.to_string(), b.to_string()], &PROBE.replace("500ms", "25s")));
    proxy.await_all_healthy();
    let before = a.probe_count();
    let reply = proxy.admin_post(&action(&a, "probe"), &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["address"], a.address().as_str());
    eventually("it is probed long before its time", || a.probe_count() > before);
}

#[test]
fn probe_of_a_disabled_member_is_a_conflict() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::of(&[&a, &b], "");
    proxy.await_all_healthy();
    assert_eq!(proxy.admin_post(&action(&a, "disable"), &[]).status, 200);
    let reply = proxy.admin_post(&action(&a, "probe"), &[]);
    assert_problem(&reply, 409);
}

#[track_caller]
fn assert_problem(reply: &client::Reply, status: u16) {
    assert_eq!(reply.status, status, "{}", reply.text());
    let kind = reply.field("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/problem+json"), "{kind}");
    let problem = reply.json();
    assert_eq!(problem["status"], status, "{problem}");
    assert!(problem["title"].is_string() || problem["detail"].is_string(), "{problem}");
}

#[test]
fn errors_are_problems_with_their_status() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    assert_problem(&proxy.admin_get("/api/v1/pools/none"), 404);
    assert_problem(&proxy.admin_get("/api/v1/none"), 404);
    assert_problem(&proxy.admin_post("/api/v1/pools/web/members/127.0.0.1:1/drain", &[]), 404);
    assert_problem(&proxy.admin_post("/api/v1/pools/none/members/127.0.0.1:1/drain", &[]), 404);
    assert_problem(&proxy.admin_post(&action(&origin, "explode"), &[]), 404);
    assert_eq!(proxy.admin_get(&action(&origin, "drain")).status, 405, "reading changes nothing");
    assert_eq!(proxy.member("web", &origin.address())["admin"], "enabled");
}

#[test]
fn token_guards_what_writes() {
    let origin = Origin::start();
    let admin = "admin: { address: \"127.0.0.1:0\", token: \"${ADMIN_TOKEN}\" }\n";
    let config = format!("{admin}{}", pool_config(&[&origin], ""));
    let proxy = Proxy::start_with(&config, &[("ADMIN_TOKEN", "s3cret")]);
    proxy.await_standing(&origin, "healthy");
    let drain = action(&origin, "drain");
    let refused = proxy.admin_post(&drain, &[]);
    assert_problem(&refused, 401);
    assert_eq!(proxy.admin_post(&drain, &["Authorization: Bearer wrong"]).status, 401);
    assert_eq!(proxy.admin_post(&drain, &["Authorization: Bearer s3cre"]).status, 401);
    assert_eq!(proxy.member("web", &origin.address())["admin"], "enabled");
    assert_eq!(proxy.admin_post(&drain, &["Authorization: Bearer s3cret"]).status, 200);
    assert!(proxy.log().iter().all(|line| !line.raw.contains("s3cret")), "the token is in the log");
}

#[test]
fn page_whose_name_was_pointed_at_us_gets_nothing() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    proxy.await_standing(&origin, "healthy");
    let admin = proxy.admin();
    // After DNS rebinding the browser takes us for that very site: name and origin fit each other.
    let rebound = format!("Host: evil.test:{}", admin.port());
    let fields = [&rebound, &format!("Origin: http://evil.test:{}", admin.port()), "Sec-Fetch-Site: same-origin"];
    assert_problem(&client::request(admin, "GET", "/api/v1/pools", &fields, ""), 421);
    assert_problem(&client::request(admin, "POST", &action(&origin, "drain"), &fields, ""), 421);
    assert_eq!(proxy.member("web", &origin.address())["admin"], "enabled");
    for path in ["/livez", "/readyz"] {
        assert_eq!(client::request(admin, "GET", path, &fields, "").status, 200, "{path}");
    }
    let localhost = format!("Host: localhost:{}", admin.port());
    assert_eq!(client::request(admin, "GET", "/api/v1/pools", &[&localhost], "").status, 200);
}

#[test]
fn reload_does_not_open_a_public_listener() {
    let origin = Origin::start();
    let with = |admin: &str| format!("admin: {admin}\n{}", pool_config(&[&origin], ""));
    let public = |token: &str| with(&format!("{{ address: \"0.0.0.0:0\", token: {token} }}"));
    let proxy = Proxy::start(&public("first"));
    let drain = action(&origin, "drain");
    let bearing = |token: &str| {
        let field = format!("Authorization: Bearer {token}");
        client::request(proxy.admin(), "GET", "/api/v1/pools", &[&field], "").status
    };
    // The token of the last file that had one is the one that counts.
    proxy.reload(&public("last"));
    for file in [with("off"), with("{ address: \"127.0.0.1:0\" }"), with("off")] {
        proxy.reload(&file);
        assert_problem(&proxy.admin_get("/api/v1/pools"), 401);
        assert_problem(&proxy.admin_post(&drain, &[]), 401);
        assert_eq!((bearing("first"), bearing("last")), (401, 200), "{file}");
        assert_eq!(proxy.admin_get("/livez").status, 200);
    }
    let restart = proxy.log().into_iter().filter(|line| line.raw.contains("admin.address changes only with a restart"));
    assert_eq!(restart.count(), 3, "said at each reload that changes it");
}

#[test]
fn cross_site_writes_are_refused() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    proxy.await_standing(&origin, "healthy");
    let drain = action(&origin, "drain");
    for fields in [&["Origin: http://evil.example"][..], &["Sec-Fetch-Site: cross-site"][..]] {
        let reply = proxy.admin_post(&drain, fields);
        assert_eq!(reply.status, 403, "{fields:?}: {}", reply.text());
    }
    assert_eq!(proxy.member("web", &origin.address())["admin"], "enabled");
}

#[test]
fn slow_connections_neither_stay_nor_keep_others_out() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    // More than it serves at once: silent ones, and ones that never finish their header.
    let mut slow: Vec<_> = (0..200).map(|_| client::Connection::open(proxy.admin())).collect();
    for connection in slow.iter_mut().step_by(2) {
        connection.send("GET /livez HTTP/1.1\r\nHost: a\r\n");
    }
    assert_eq!(proxy.admin_get("/livez").status, 200, "it has to wait for a place, and gets one");
    assert!(slow.iter_mut().all(client::Connection::is_closed));
}

#[test]
fn admin_connections_are_kept_between_requests() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    let mut connection = client::Connection::open(proxy.admin());
    let statuses = ["/livez", "/api/v1/none", "/livez"].map(|path| connection.get(path).status);
    assert_eq!(statuses, [200, 421, 200], "the second calls it test.example");
}

#[test]
fn admin_requests_are_not_in_the_access_log_and_traffic_cannot_reach_it() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    proxy.await_standing(&origin, "healthy");
    assert_eq!(proxy.get("/livez").text(), "ok\n", "the member's answer, not the admin listener's");
    // Its line comes after its answer, and another thread's may overtake it.
    proxy.access("/livez");
    proxy.settle_access_log("/sentinel");
    let paths: Vec<String> = proxy.access_log().iter().map(|line| line.text("path").to_owned()).collect();
    assert_eq!(paths, ["/livez", "/sentinel"]);
}

#[test]
fn admin_can_be_switched_off() {
    let origin = Origin::start();
    let proxy = Proxy::start(&format!("admin: off\n{}", pool_config(&[&origin], "")));
    assert_eq!(proxy.get("/serves").status, 200);
    assert!(proxy.log().iter().all(|line| line.text("kind") != "admin"));
}

/// A dry run that is none would be the worst answer to a parameter that we do not know.
#[test]
fn parameters_that_are_not_known_change_nothing() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    let generation = proxy.reloads()["generation"].clone();
    proxy.rewrite(&pool_config(&[&origin], "required: false"));
    assert_problem(&proxy.admin_post("/api/v1/reload?dry_run=1", &[]), 400);
    assert_problem(&proxy.admin_post(&action(&origin, "drain?for=5m"), &[]), 400);
    for path in ["/api/v1/pools", "/api/v1/pools/web", "/api/v1/config", "/api/v1/reload", "/api/v1/openapi.json"] {
        assert_problem(&proxy.admin_get(&format!("{path}?a=1")), 400);
        assert_eq!(proxy.admin_get(&format!("{path}?")).status, 200, "{path}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(proxy.admin_get(&format!("{path}?verbose")).status, 200, "{path}");
    }
    assert_eq!(proxy.reloads()["generation"], generation);
    assert_eq!(proxy.member("web", &origin.address())["admin"], "enabled");
}

#[test]
fn a_large_body_is_refused_though_its_length_is_not_said() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    let post = |body: &str| {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
            action(&origin, "drain"),
            proxy.admin()
        );
        let mut client = Connection::open(proxy.admin());
        let _ = client.send(head).try_send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
        client.reply()
    };
    assert_problem(&post(&"x".repeat(64 * 1024 + 1)), 413);
    assert_eq!(proxy.member("web", &origin.address())["admin"], "enabled");
    assert_eq!(post(&"x".repeat(64 * 1024)).status, 200);
    assert_eq!(proxy.member("web", &origin.address())["admin"], "draining");
}

/// As many as there are places, that keep their connections: for one more the one goes that has asked for nothing longest.
#[test]
fn slow_pollers_keep_nobody_out() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    let livez = format!("GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.admin());
    let ask = |client: &mut Connection| client.send(&livez).try_reply("GET").map(|reply| reply.status);
    let mut pollers: Vec<Connection> = (0..128).map(|_| Connection::open(proxy.admin())).collect();
    for poller in &mut pollers {
        assert_eq!(ask(poller), Ok(200));
    }
    assert_eq!(ask(&mut pollers[0]), Ok(200));
    assert_eq!(proxy.admin_get("/livez").status, 200);
    assert!(pollers[1].is_closed(), "it waited longest");
    assert_eq!((ask(&mut pollers[0]), ask(&mut pollers[2])), (Ok(200), Ok(200)), "nobody else had to go");
}
