//! What Azure Application Gateway's probes do, rule by rule (G1 to G10 of docs/presets.md): each test's comment begins with its row.

use std::time::Duration;

use crate::harness::on_paper::{OnPaper, failed, http_probe, passed, pool_of, problems};
use crate::harness::proxy::config_of;
use crate::harness::tls::{Authority, TlsOrigin};
use crate::harness::{Answer, Gate, Line, Origin, Proxy, When, eventually};
use crate::health_cases::bring_on_a_probe;
use crate::probe_cases::samples;

/// The preset at a pace a test can wait for; all its rules are its own.
const PRESET: &str = "preset: application_gateway\nprobe: { interval: 500ms, timeout: 500ms }";
/// The same where each probe but the first is brought on by hand.
const BY_HAND: &str = "preset: application_gateway\nprobe: { interval: 24h, timeout: 20s }";
/// The preset's own numbers, to the last one: no probe is written.
const AS_IT_IS: &str = "preset: application_gateway";

fn fail() -> Answer {
    Answer::status(503)
}

fn pass() -> Answer {
    Answer::status(200)
}

fn of(members: &[&Origin], keys: &str) -> Proxy {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    Proxy::start(&config_of(&members, keys))
}

/// The preset with these keys of the probe.
fn probe(keys: &str) -> String {
    format!("{AS_IT_IS}\nprobe: {{ {keys} }}")
}

fn count(lines: &[Line], origin: &Origin) -> usize {
    lines.iter().filter(|line| line.tried() == [origin.address()]).count()
}

/// G1: probing starts as soon as the pool is used, each member independently; a member is unhealthy until its first pass.
#[test]
fn each_member_is_probed_at_once_and_gets_nothing_until_its_first_pass() {
    let (quick, late, first) = (Origin::start(), Origin::start(), Gate::new());
    late.when(When::probe(), pass().held_by(&first));
    // No probe is written, and nobody has asked for anything.
    let proxy = of(&[&late, &quick], AS_IT_IS);
    eventually("the one is asked while the other passes", || {
        first.waiting() == 1 && proxy.member("web", &quick.address())["standing"] == "healthy"
    });
    assert_eq!(proxy.member("web", &late.address())["standing"], "unknown");
    assert_eq!(count(&proxy.sample("/one", 10), &quick), 10);
    assert_eq!(late.traffic_count(), 0);
    first.open();
    proxy.await_standing(&late, "healthy");
    assert_eq!(count(&proxy.sample("/both", 10), &late), 5);
}

/// G2: one probe for each (member, backend settings) pair; all of them are listed on a page.
#[test]
fn each_pair_of_member_and_settings_has_its_probe_and_all_are_listed() {
    let (one, other) = (Origin::start(), Origin::start());
    one.when(When::path("/b"), fail());
    let pool = |name: &str, members: &str| {
        format!(
            "  {name}: {{ members: [{members}], {}, probe: {{ path: /{name}, interval: 500ms, timeout: 500ms }} }}\n",
            AS_IT_IS
        )
    };
    let both = format!("{one}, {other}");
    let proxy = Proxy::start(&format!("pools:\n{}{}routes: [{{ pool: a }}]\n", pool("a", &both), pool("b", &both)));
    let listed = || {
        let page = proxy.admin_get("/api/v1/pools").json();
        let pools = page["pools"].as_array().or(page.as_array()).expect("a list of pools").clone();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let members = |pool: &serde_json::Value| {
            let members = pool["members"].as_array().expect("members").clone();
            let name = text(&pool["name"]);
            members.into_iter().map(move |m| (name.clone(), text(&m["address"]), text(&m["last_probe"]["result"])))
        };
        pools.iter().flat_map(members).collect::<Vec<_>>()
    };
    let pair = |pool: &str, origin: &Origin, result: &str| (pool.to_owned(), origin.address(), result.to_owned());
    let all = [pair("a", &one, "pass"), pair("a", &other, "pass"), pair("b", &one, "fail"), pair("b", &other, "pass")];
    eventually("each pair has its own result", || listed() == all);
    let probes = proxy.admin_get("/api/v1/probes").json();
    let address = |probe: &serde_json::Value| probe["address"].as_str().unwrap_or_default().to_owned();
    let mut listed: Vec<String> = probes["probes"].as_array().expect("a list").iter().map(address).collect();
    let mut pairs: Vec<String> = all.iter().map(|(_, address, _)| address.clone()).collect();
    listed.sort();
    pairs.sort();
    assert_eq!(listed, pairs, "a probe for each pair");
    // One probe each: neither settings are asked for more often than the other.
    one.await_probes(12);
    let asked = |path: &str| one.probes().iter().filter(|seen| seen.target == path).count();
    let (a, b) = (asked("/a"), asked("/b"));
    assert!(a.abs_diff(b) <= 3 && a + b == one.probe_count(), "{a} of /a and {b} of /b");
}

/// G3: every gateway instance probes on its own.
#[test]
fn every_process_probes_and_judges_for_itself() {
    let (origin, spare) = (Origin::start(), Origin::start());
    let [one, other] = [of(&[&origin, &spare], BY_HAND), of(&[&origin, &spare], BY_HAND)];
    one.await_all_healthy();
    other.await_all_healthy();
    assert_eq!(origin.probe_count(), 2, "the first probe of each");
    origin.when(When::probe(), fail());
    for fails in 1..=3 {
        bring_on_a_probe(&one, &origin);
        eventually("it is in", || one.member("web", &origin.address())["streak"] == -fails);
    }
    one.await_standing(&origin, "ejected");
    assert_eq!(other.member("web", &origin.address())["standing"], "healthy", "it has not asked since");
}

/// G4: `threshold` consecutive fails (default 3) make a member unhealthy, from its death at most interval + threshold ×
/// interval later; one pass brings it back at once.
#[test]
fn three_fails_in_a_row_make_a_member_unhealthy_in_time_and_one_pass_healthy() {
    // By its own numbers. The worst that can be: it dies when it has just passed, and each fail takes the whole timeout.
    let members = ["\"10.0.0.1:80\"".to_owned(), "\"10.0.0.2:80\"".to_owned()];
    let mut paper = OnPaper::of(&config_of(&members, AS_IT_IS));
    let timing = pool_of(&config_of(&members, AS_IT_IS)).probe.clone().expect("a probe");
    let (good, bad) = ([passed(5), passed(5)], [passed(5), failed()]);
    assert_eq!(paper.round(&good), ["healthy", "healthy"]);
    let death = paper.now;
    assert_eq!(paper.round(&bad), ["healthy", "healthy"]);
    assert_eq!(paper.round(&bad), ["healthy", "healthy"]);
    assert_eq!(paper.round(&bad), ["healthy", "ejected"]);
    let threshold = 3;
    let found = paper.now + timing.timeout - death;
    assert!(found <= timing.interval + timing.interval * threshold, "{found:?}");
    assert_eq!(found, Duration::from_secs(120));
    assert_eq!(paper.round(&good), ["healthy", "healthy"], "one pass");
    assert_eq!(paper.round(&bad), ["healthy", "healthy"]);
    assert_eq!(paper.round(&bad), ["healthy", "healthy"]);
    assert_eq!(paper.round(&good), ["healthy", "healthy"]);
    assert_eq!(paper.round(&bad), ["healthy", "healthy"], "the count begins again");

    // As it is seen from outside: on its grid, without a pace of its own while in doubt.
    let (good, shaky, third, back) = (Origin::start(), Origin::start(), Gate::new(), Gate::new());
    let proxy = of(&[&good, &shaky], BY_HAND);
    proxy.await_all_healthy();
    shaky.next_probes([fail(), fail(), fail().held_by(&third), pass().held_by(&back)]);
    for fails in 1..=2 {
        bring_on_a_probe(&proxy, &shaky);
        eventually("it is in", || proxy.member("web", &shaky.address())["streak"] == -fails);
    }
    bring_on_a_probe(&proxy, &shaky);
    assert_eq!(proxy.member("web", &shaky.address())["standing"], "healthy");
    let mark = proxy.mark();
    third.open();
    proxy.await_event(mark, &[("member", &shaky.address()), ("to", "unhealthy")]);
    assert_eq!(proxy.member("web", &shaky.address())["standing"], "ejected");
    bring_on_a_probe(&proxy, &shaky);
    let mark = proxy.mark();
    back.open();
    proxy.await_event(mark, &[("member", &shaky.address()), ("to", "healthy")]);
    proxy.await_standing(&shaky, "healthy");
}

/// G5: the default probe, when none is written: `GET <protocol>://127.0.0.1:<port>/` (Host 127.0.0.1), every 30 s, timeout
/// 30 s, threshold 3, 200–399 passes.
#[test]
fn without_a_probe_the_default_probe_asks_for_the_root_of_127_0_0_1() {
    let pool = pool_of(&config_of(&["\"10.0.0.1:80\"".to_owned()], AS_IT_IS));
    let probe = pool.probe.as_ref().expect("a probe");
    let seconds = [probe.interval, probe.fast_interval, probe.timeout].map(|time| time.as_secs());
    assert_eq!((seconds, &*http_probe(&pool).expect.status), ([30, 30, 30], &[(200, 399)][..]));

    let moved = Answer::status(302).field("Location: /login");
    let rows = vec![
        ("200", pass(), "-", ""),
        ("302", moved, "-", ""),
        ("399", Answer::status(399), "-", ""),
        ("400", Answer::status(400), "status", "400"),
        ("404", Answer::status(404), "status", "404"),
        ("500", Answer::status(500), "status", "500"),
        ("no answer", Answer::close(), "reset", ""),
    ];
    let origin = samples(AS_IT_IS, rows);
    for seen in origin.probes() {
        assert_eq!((&*seen.method, &*seen.target, seen.field("host")), ("GET", "/", Some("127.0.0.1")));
    }
    // Over TLS 127.0.0.1 is the Host field alone: who is asked for and verified is the member.
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["app.test"]).server());
    let keys = format!("{AS_IT_IS}\nupstream: {{ tls: {{ ca: {} }} }}", authority.ca());
    let proxy = Proxy::start(&config_of(&[member.known_as("app.test")], &keys));
    proxy.await_all_healthy();
    assert_eq!(member.origin.probes()[0].field("host"), Some("127.0.0.1"));
    assert_eq!(member.greetings()[0].sni.as_deref(), Some("app.test"));
}

/// G6: a custom probe sets protocol, host (both Host header and SNI), path (must begin with `/`), port (else the traffic
/// port), interval, timeout, threshold.
#[test]
fn a_written_probe_sets_protocol_host_path_port_times_and_threshold() {
    let authority = Authority::named("Ours");
    let (traffic, health) = (Origin::start(), TlsOrigin::start(authority.paper(&["probe.test"]).server()));
    let port = health.address().rsplit_once(':').map(|(_, port)| port.to_owned()).expect("a port");
    let keys = format!(
        "scheme: https, host: probe.test, path: /ready, port: {port}, interval: 500ms, timeout: 400ms, \
         consecutive: {{ failures: 2 }}, tls: {{ ca: {} }}",
        authority.ca()
    );
    let config = config_of(&[traffic.to_string()], &probe(&keys));
    let timing = pool_of(&config).probe.clone().expect("a probe");
    assert_eq!([timing.interval, timing.timeout].map(|time| time.as_millis()), [500, 400]);
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    let seen = &health.origin.probes()[0];
    assert_eq!((&*seen.target, seen.field("host").unwrap_or_default()), ("/ready", "probe.test"));
    assert_eq!(health.greetings()[0].sni.as_deref(), Some("probe.test"));
    assert_eq!(proxy.get("/page").status, 200);
    assert_eq!((traffic.probe_count(), traffic.traffic_count()), (0, 1), "traffic goes to its own port");
    health.origin.next_probes([fail(), fail(), pass()]);
    let mark = proxy.mark();
    proxy.await_event(mark, &[("kind", "member"), ("to", "unhealthy")]);
    let said = problems(&config_of(&[traffic.to_string()], &probe("path: ready")));
    assert!(said.contains("does not begin with `/`"), "{said}");
    // Without a port it asks where the traffic goes.
    let alone = of(&[&traffic], &probe("path: /here, interval: 500ms, timeout: 500ms"));
    traffic.await_probes(1);
    assert_eq!(traffic.probes()[0].target, "/here");
    drop(alone);
}

/// G7: match on status codes (single codes and ranges, comma-separated) and on a substring of the body, at most 4090
/// characters, no regular expression.
#[test]
fn codes_and_ranges_and_a_text_in_the_body_are_expected() {
    let at_once = "interval: 2s, timeout: 2s";
    let rows = vec![
        ("one of the codes", Answer::status(200), "-", ""),
        ("another code", Answer::status(418), "-", ""),
        ("in the range", Answer::status(302), "-", ""),
        ("the range's end", Answer::status(303), "-", ""),
        ("behind the range", Answer::status(304), "status", "304"),
        ("beside a code", Answer::status(201), "status", "201"),
    ];
    samples(&probe(&format!("{at_once}, expect: {{ status: \"200,418,301-303\" }}")), rows);

    let rows = vec![
        ("alone", pass().body("a.*z"), "-", ""),
        ("in the middle", pass().body("<p>a.*z</p>"), "-", ""),
        ("in two chunks", Answer::chunked(&["a.", "*z"]), "-", ""),
        ("no pattern", pass().body("abcz"), "body", ""),
        ("another case", pass().body("A.*Z"), "body", ""),
        ("nothing", pass().body(""), "body", ""),
        ("another status", Answer::status(500).body("a.*z"), "status", "500"),
    ];
    samples(&probe(&format!("{at_once}, expect: {{ body: \"a.*z\" }}")), rows);

    let expecting = |length: usize| probe(&format!("expect: {{ body: \"{}\" }}", "x".repeat(length)));
    let member = ["\"10.0.0.1:80\"".to_owned()];
    let pool = pool_of(&config_of(&member, &expecting(4090)));
    assert_eq!(http_probe(&pool).expect.body.as_ref().map(|body| body.len()), Some(4090));
    let said = problems(&config_of(&member, &expecting(4091)));
    assert!(said.contains("at most 4090 characters"), "{said}");
}

/// G8: 403 can be accepted as a pass; a wildcard certificate needs its own probe host and SNI; the Host sent upstream can be
/// overridden or passed through.
#[test]
fn a_403_can_pass_a_wildcard_needs_a_host_and_the_hosts_of_traffic_are_chosen() {
    let rows = vec![("403", Answer::status(403), "-", ""), ("401", Answer::status(401), "status", "401")];
    samples(&probe("interval: 2s, timeout: 2s, expect: { status: \"200-399,403\" }"), rows);

    let authority = Authority::named("Ours");
    let wildcard = TlsOrigin::start(authority.paper(&["*.shop.test"]).server());
    let pool = |name: &str, keys: &str| {
        let tls = format!("upstream: {{ tls: {{ ca: {} }} }}", authority.ca());
        format!("  {name}: {{ members: [{wildcard}], {AS_IT_IS}, {tls}, probe: {{ {keys} }} }}\n")
    };
    let at_once = "interval: 2s, timeout: 2s";
    let pools = pool("named", &format!("host: a.shop.test, {at_once}")) + &pool("nameless", at_once);
    let proxy = Proxy::start(&format!("pools:\n{pools}routes: [{{ pool: named }}]\n"));
    let last = |pool: &str| proxy.member(pool, &wildcard.address())["last_probe"].clone();
    eventually("both are probed", || !last("named").is_null() && !last("nameless").is_null());
    assert_eq!(last("named")["result"], "pass", "{}", last("named"));
    assert_eq!(last("nameless")["reason"], "tls", "{}", last("nameless"));

    let origin = Origin::start();
    for (host, seen) in [("pass", "client.test"), ("inner.test", "inner.test"), ("member", &*origin.address())] {
        let proxy = of(&[&origin], &format!("{PRESET}\nupstream: {{ host: {host} }}"));
        proxy.await_all_healthy();
        assert_eq!(proxy.request("GET", "/page", &["Host: client.test"], "").status, 200);
        let asked = origin.traffic().pop().expect("it was asked");
        assert_eq!(asked.field("host"), Some(seen), "host: {host}");
    }
}

/// G9: the health report is refreshed by probes, never by requests.
#[test]
fn requests_change_nothing_in_the_report() {
    let (good, bad) = (Origin::start(), Origin::start());
    let proxy = of(&[&good, &bad], BY_HAND);
    proxy.await_all_healthy();
    let report = || {
        let shown = proxy.member("web", &bad.address());
        ["verdict", "standing", "window", "streak", "since", "latency_ms", "last_probe"].map(|key| shown[key].clone())
    };
    let before = report();
    for answer in [Answer::status(500), Answer::status(503), Answer::reset(), Answer::close()] {
        bad.when(When::traffic(), answer);
        proxy.sample(&format!("/{}", bad.traffic_count()), 10);
        assert_eq!(report(), before);
    }
    assert!(bad.traffic_count() >= 20, "it got its share of requests and failed them");
    bad.when(When::probe(), fail());
    bring_on_a_probe(&proxy, &bad);
    eventually("a probe changes it", || report()[6]["result"] == "fail");
}

/// G10: the source address of probes is that of the gateway, and can be set.
#[test]
fn probes_come_from_the_gateways_address_or_the_one_that_is_set() {
    let (plain, bound) = (Origin::start(), Origin::start());
    let pool = |name: &str, origin: &Origin, more: &str| {
        format!("  {name}: {{ members: [{origin}], {AS_IT_IS}, probe: {{ interval: 500ms, timeout: 500ms{more} }} }}\n")
    };
    let pools = pool("plain", &plain, "") + &pool("bound", &bound, ", bind: 127.0.0.7");
    let proxy = Proxy::start(&format!("pools:\n{pools}routes: [{{ pool: bound }}]\n"));
    for (origin, address) in [(&plain, "127.0.0.1"), (&bound, "127.0.0.7")] {
        origin.await_probes(2);
        let peers: Vec<String> = origin.probes().iter().map(|seen| seen.peer.to_string()).collect();
        assert!(peers.iter().all(|peer| peer == address), "{peers:?}");
    }
    assert_eq!(proxy.get("/traffic").status, 200);
    assert_eq!(bound.traffic()[0].peer.to_string(), "127.0.0.1", "it is the probes' alone");
}
