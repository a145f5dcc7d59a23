//! Verdicts: what makes and unmakes them, as a client and a reader of the log see them.

use crate::harness::proxy::{PROBE, config_of, pool_config};
use crate::harness::{Answer, Connection, Gate, Load, Origin, Proxy, When, eventually};

/// As [`PROBE`] with another judge.
fn probe_judged(judge: &str) -> String {
    format!("probe: {{ path: /healthz, interval: 500ms, fast_interval: 50ms, timeout: 500ms, {judge} }}")
}

fn pass() -> Answer {
    Answer::status(200)
}

fn fail() -> Answer {
    Answer::status(503)
}

#[test]
fn only_fails_in_a_row_flip_a_member() {
    let (good, shaky) = (Origin::start(), Origin::start());
    let keys = probe_judged("consecutive: { failures: 3, passes: 2 }");
    let proxy = Proxy::start(&config_of(&[good.to_string(), shaky.to_string()], &keys));
    proxy.await_standing(&shaky, "healthy");
    shaky.next_probes([fail(), pass(), fail(), pass(), fail(), pass()]);
    shaky.next_probes([fail(), fail(), pass(), fail(), fail(), pass()]);
    shaky.await_next_probes();
    let member = shaky.address();
    assert!(proxy.events(&[("member", &member), ("to", "unhealthy")]).is_empty(), "mixed results flipped it");

    let (mark, before) = (proxy.mark(), shaky.probe_count());
    shaky.answer(fail());
    let event = proxy.await_event(mark, &[("kind", "member"), ("member", &member), ("to", "unhealthy")]);
    assert!(shaky.probe_count() >= before + 3, "flipped after fewer than three fails");
    assert!(event.has(&[("pool", "web"), ("from", "healthy"), ("reason", "status")]), "{}", event.raw);
    assert!(event.text("detail").contains("503"), "{}", event.raw);
}

#[test]
fn passes_in_a_row_bring_a_member_back() {
    let (good, shaky) = (Origin::start(), Origin::start());
    let keys = probe_judged("consecutive: { failures: 2, passes: 3 }");
    let proxy = Proxy::start(&config_of(&[good.to_string(), shaky.to_string()], &keys));
    proxy.await_standing(&shaky, "healthy");
    shaky.answer(fail());
    proxy.await_standing(&shaky, "ejected");
    let mark = proxy.mark();
    shaky.next_probes([pass(), pass(), fail(), pass(), pass(), fail()]);
    shaky.await_next_probes();
    let back = [("member", shaky.address()), ("to", "healthy".to_owned())];
    let back: Vec<(&str, &str)> = back.iter().map(|(key, value)| (*key, value.as_str())).collect();
    assert!(proxy.log().iter().skip(mark).all(|line| !line.has(&back)), "two passes were enough");
    shaky.answer(pass());
    proxy.await_event(mark, &back);
    proxy.await_standing(&shaky, "healthy");
}

#[test]
fn window_of_four_flips_exactly_at_the_second_fail() {
    let (good, shaky, gate) = (Origin::start(), Origin::start(), Gate::new());
    let keys = probe_judged("window: { size: 4, required: 3 }").replace("500ms", "25s");
    shaky.next_probes([pass(), pass(), pass(), fail(), fail().held_by(&gate)]);
    let proxy = Proxy::start(&config_of(&[good.to_string(), shaky.to_string()], &keys));
    // The interval is long: an operator brings on each probe.
    for streak in [1, 2, 3, -1] {
        eventually("the sample is in", || proxy.member("web", &shaky.address())["streak"] == streak);
        bring_on_a_probe(&proxy, &shaky);
    }
    eventually("the second fail is on its way", || gate.waiting() == 1);
    let shown = proxy.member("web", &shaky.address());
    assert_eq!((&shown["verdict"], &shown["window"]["passes"]), (&"healthy".into(), &3.into()), "{shown}");
    let mark = proxy.mark();
    gate.open();
    proxy.await_event(mark, &[("member", &shaky.address()), ("from", "healthy"), ("to", "unhealthy")]);
}

/// Asks for a probe of the member of pool `web` now, and does not wait for its end.
pub fn bring_on_a_probe(proxy: &Proxy, origin: &Origin) {
    let before = origin.probe_count();
    let path = format!("/api/v1/pools/web/members/{}/probe", origin.address());
    let mut admin = Connection::open(proxy.admin());
    admin.send(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
    eventually("the probe asked for came", || origin.probe_count() > before);
}

#[test]
fn probe_cancelled_by_a_reload_counts_as_nothing() {
    let (good, held, gate) = (Origin::start(), Origin::start(), Gate::new());
    let members = [good.to_string(), held.to_string()];
    let keys = probe_judged("consecutive: { failures: 1, passes: 1 }").replace("500ms", "25s");
    let proxy = Proxy::start(&config_of(&members, &keys));
    proxy.await_standing(&held, "healthy");
    held.when(When::path("/healthz"), fail().held_by(&gate));
    bring_on_a_probe(&proxy, &held);
    proxy.reload(&config_of(&members, &keys.replace("/healthz", "/new")));
    eventually("the new probe is used at once", || held.probes().iter().any(|seen| seen.target == "/new"));
    gate.open();
    eventually("the new probe's sample is in", || {
        let shown = proxy.member("web", &held.address());
        shown["unverified"] != true && shown["last_probe"]["result"] == "pass"
    });
    assert!(proxy.events(&[("member", &held.address()), ("to", "unhealthy")]).is_empty());
}

#[test]
fn broken_newcomer_gets_no_request_until_it_passes() {
    let (a, b, newcomer) = (Origin::start(), Origin::start(), Origin::stopped());
    let judge = |members: &[&Origin]| pool_config(members, "").replace("failures: 2", "failures: 3");
    let proxy = Proxy::start(&judge(&[&a, &b]));
    proxy.await_all_healthy();
    let load = Load::start(proxy.address(), 2, "/steady");
    proxy.reload(&judge(&[&a, &b, &newcomer]));
    let name = newcomer.address();
    eventually("it has failed enough", || proxy.member("web", &name)["verdict"] == "unhealthy");
    assert_eq!(proxy.member("web", &name)["standing"], "unknown", "not proven: neither in nor ejected");
    load.fence();
    proxy.settle_access_log("/sentinel");
    assert!(proxy.access_log().iter().all(|line| !line.tried().contains(&name.as_str())), "it got a request");
    assert!(proxy.events(&[("member", &name), ("to", "healthy")]).is_empty(), "promoted by a failure");
    newcomer.start_again();
    proxy.await_standing(&newcomer, "healthy");
    load.fence();
    eventually("it gets its share", || newcomer.traffic_count() > 0);
    load.finish().assert_all_ok();
}

#[test]
fn pool_of_one_that_is_late_is_never_emptied() {
    let (only, gate) = (Origin::start(), Gate::new());
    only.one_worker();
    let proxy = Proxy::of(&[&only], "");
    proxy.await_standing(&only, "healthy");
    only.when(When::path("/work"), Answer::status(200).held_by(&gate));
    let mut clients: Vec<_> = (0..5).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send("GET /work HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("the work is queued", || gate.waiting() == 1 && only.traffic_count() == 5);
    // Probes wait behind the work and time out.
    eventually("it is unhealthy", || proxy.member("web", &only.address())["verdict"] == "unhealthy");
    let shown = proxy.member("web", &only.address());
    assert_eq!(
        (&shown["standing"], &shown["last_probe"]["reason"]),
        (&"fallback".into(), &"timeout".into()),
        "{shown}"
    );
    let mut late = proxy.connect();
    late.send("GET /work HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it still gets requests", || only.traffic_count() == 6);
    gate.open();
    assert!(clients.iter_mut().all(|client| client.reply().status == 200));
    assert_eq!(late.reply().status, 200);
    proxy.await_standing(&only, "healthy");
}

#[test]
fn same_address_in_two_pools_is_judged_by_each_for_itself() {
    let origin = Origin::start();
    origin.when(When::path("/bad"), fail());
    let keys = |path: &str| PROBE.replace("/healthz", path);
    let config = format!(
        "pools:\n  a:\n    members: [{origin}]\n    {}\n  b:\n    members: [{origin}]\n    {}\nroutes: [{{ pool: a }}]\n",
        keys("/ok"),
        keys("/bad")
    );
    let proxy = Proxy::start(&config);
    let verdict = |pool: &str| proxy.member(pool, &origin.address())["verdict"].clone();
    let holds = || verdict("a") == "healthy" && verdict("b") == "unhealthy";
    eventually("each has its own verdict", holds);
    for round in 0..2 {
        let reload = format!("{config}# round {round}\n");
        proxy.reload(&reload);
        origin.await_probes(8);
        assert!(holds(), "after reload {round}");
    }
}
