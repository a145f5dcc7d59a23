//! Members behind TLS: who is trusted by which name, and what becomes of those who are not, in probes and in traffic.

use std::sync::Arc;

use rustls::ServerConfig;

use crate::harness::process::run;
use crate::harness::proxy::{PROBE, Proxy, config_of, write_config};
use crate::harness::script::Accept;
use crate::harness::tls::{Authority, Greeting, Paper, TlsOrigin, replace};
use crate::harness::{Answer, Origin, When, eventually};

/// Probes that judge at the second fail, and a pool that does not let anybody wait.
const AT_ONCE: &str = "initial_wait: 0s";

fn greeting(sni: Option<&str>) -> Greeting {
    Greeting { sni: sni.map(str::to_owned), alpn: Some("http/1.1".to_owned()), client: false }
}

/// One pool `web` of these members with [`PROBE`], reached by `tls`, with `more` keys.
fn config(members: &[String], tls: &str, more: &str) -> String {
    config_of(members, &format!("{PROBE}\nupstream: {{ tls: {tls}, host: member }}\n{more}"))
}

#[track_caller]
fn await_last_probe(proxy: &Proxy, pool: &str, member: &str) -> serde_json::Value {
    let shown = || proxy.member(pool, member)["last_probe"].clone();
    eventually("a probe has an answer", || !shown()["result"].is_null());
    shown()
}

#[test]
fn the_right_name_is_asked_for_and_served_by_probe_and_traffic() {
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["app1.test"]).server());
    let proxy = Proxy::start(&config(&[member.known_as("app1.test")], &format!("{{ ca: {} }}", authority.ca()), ""));
    proxy.await_all_healthy();
    let reply = proxy.get("/served");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let port = member.address().replace("127.0.0.1:", "");
    let host = format!("app1.test:{port}");
    let (traffic, probes) = (member.origin.traffic(), member.origin.probes());
    assert_eq!((traffic[0].field("host"), probes[0].field("host")), (Some(&*host), Some(&*host)));
    assert_eq!(traffic[0].field("x-forwarded-proto"), Some("http"), "that of the client");
    let greetings = member.greetings();
    assert!(greetings.iter().all(|seen| *seen == greeting(Some("app1.test"))), "{greetings:?}");
    let last = await_last_probe(&proxy, "web", &member.address());
    assert!(last["tls_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{last}");
    let line = proxy.access("/served");
    assert_eq!(line.attempts()[0]["result"], "ok", "{}", line.raw);
}

#[test]
fn an_address_is_verified_and_not_asked_for() {
    let authority = Authority::named("Ours");
    let server = || authority.paper(&["127.0.0.1", "::1"]).server();
    for member in [TlsOrigin::start(server()), TlsOrigin::start_v6(server())] {
        let proxy = Proxy::start(&config(&[member.to_string()], &format!("{{ ca: {} }}", authority.ca()), ""));
        proxy.await_all_healthy();
        assert_eq!(proxy.get("/").status, 200);
        let greetings = member.greetings();
        assert!(greetings.iter().all(|seen| *seen == greeting(None)), "{greetings:?}");
    }
}

#[test]
fn large_messages_and_connections_that_close_go_through_tls_as_through_none() {
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["app1.test"]).server());
    let keys = format!("probe: off\nupstream: {{ tls: {{ ca: {} }} }}", authority.ca());
    let proxy = Proxy::start(&config_of(&[member.known_as("app1.test")], &keys));
    let large = "0123456789abcdef".repeat(1 << 16);
    member.origin.answer(Answer::status(200).body(large.as_bytes()));
    for _ in 0..3 {
        let reply = proxy.request("POST", "/large", &[], &large);
        assert!(reply.complete && reply.body == large.as_bytes(), "{} of {}", reply.body.len(), large.len());
    }
    assert!(member.origin.traffic().iter().all(|seen| seen.complete && seen.body == large.as_bytes()));
    member.origin.answer(Answer::status(200).body("short"));
    member.origin.close_after(1);
    let mut client = proxy.connect();
    for i in 0..20 {
        assert_eq!(client.get(&format!("/closing/{i}")).status, 200);
    }
}

#[test]
fn a_handshake_that_does_not_end_is_a_connection_that_does_not_stand() {
    let authority = Authority::named("Ours");
    let (silent, good) = (Origin::start(), TlsOrigin::start(authority.paper(&["app1.test"]).server()));
    silent.accept(Accept::Ignore);
    let members = [silent.to_string(), good.known_as("app1.test")];
    let tls = format!("{{ ca: {}, sni: app1.test }}", authority.ca());
    let keys = format!("probe: off\nupstream: {{ tls: {tls}, connect_timeout: 300ms }}");
    let proxy = Proxy::start(&config_of(&members, &keys));
    for i in 0..2 {
        assert_eq!(proxy.request("POST", &format!("/{i}"), &[], "once").status, 200);
    }
    let tried = proxy.await_access("a request that was tried twice", |line| line.attempts().len() == 2);
    assert_eq!(tried.attempts()[0]["result"], "connect_timeout", "{}", tried.raw);
}

/// The request began when the pool was plain; its member is not.
#[test]
fn a_request_that_waits_over_a_reload_goes_by_tls_to_a_member_that_has_it() {
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["app1.test"]).server());
    let members = [member.known_as("app1.test")];
    let probe = "probe: { path: /healthz, interval: 500ms, fast_interval: 50ms, timeout: 500ms }\ninitial_wait: 10m";
    let proxy = Proxy::start(&config_of(&members, probe));
    let mut client = proxy.connect();
    client.send("POST /waits HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nonce");
    eventually("a request waits", || proxy.pool("web")["mode"] == "waiting" && member.failed() > 0);
    let tls = format!("{probe}\nupstream: {{ tls: {{ ca: {} }} }}", authority.ca());
    proxy.reload(&config_of(&members, &tls));
    assert_eq!(client.reply().status, 200);
    assert_eq!(member.origin.traffic()[0].body, b"once");
}

/// What is wrong, what the member shows, what is written of it, and what the probe says.
type Bad<'a> = (&'a str, ServerConfig, Option<&'a str>, String, &'a str);

#[test]
fn whoever_cannot_be_trusted_gets_no_request_and_passes_no_probe() {
    let (ours, stranger) = (Authority::named("Ours"), Authority::named("Stranger"));
    let good = ours.paper(&["app1.test"]);
    let asking = |version| good.server_asking(&ours, version);
    let (tls12, tls13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    let ca = ours.ca();
    let by_ca = || format!("{{ ca: {ca} }}");
    let by_stranger = || format!("{{ ca: {ca}, {} }}", stranger.client("us"));
    let app1 = Some("app1.test");
    let rows: Vec<Bad<'_>> = vec![
        ("name", ours.paper(&["app2.test"]).server(), app1, by_ca(), "certificate is for app2.test, not for app1.test"),
        ("expired", ours.expired(&["app1.test"]).server(), app1, by_ca(), "certificate expired 2020-01-02"),
        ("self-signed", Paper::self_signed(&["app1.test"]).server(), app1, by_ca(), "certificate"),
        ("address", ours.paper(&["127.0.0.2"]).server(), None, by_ca(), "not for 127.0.0.1"),
        ("no-address", good.server(), None, by_ca(), "not for 127.0.0.1"),
        ("unknown", stranger.paper(&["app1.test"]).server(), app1, by_ca(), "unknown issuer, \"Stranger\""),
        ("system", good.server(), app1, "true".to_owned(), "unknown issuer, \"Ours\""),
        ("sni", good.server(), app1, format!("{{ ca: {ca}, sni: app9.test }}"), "not for app9.test"),
        ("none-12", asking(tls12), app1, by_ca(), "the member refused"),
        ("none-13", asking(tls13), app1, by_ca(), "the member refused: CertificateRequired"),
        ("wrong-12", asking(tls12), app1, by_stranger(), "the member refused"),
        ("wrong-13", asking(tls13), app1, by_stranger(), "the member refused"),
    ];
    let (mut pools, mut routes, mut members) = (String::new(), Vec::new(), Vec::new());
    for (name, server, host, tls, detail) in rows {
        let member = TlsOrigin::start(server);
        let written = host.map_or_else(|| member.to_string(), |host| member.known_as(host));
        pools.push_str(&format!(
            "  {name}:\n    members: [{written}]\n    {PROBE}\n    {AT_ONCE}\n    upstream: {{ tls: {tls} }}\n"
        ));
        routes.push(format!("{{ path: /{name}, pool: {name} }}"));
        members.push((name.to_owned(), member, detail));
    }
    let proxy = Proxy::start(&format!("pools:\n{pools}routes: [{}]\n", routes.join(", ")));
    for (name, member, detail) in &members {
        let last = await_last_probe(&proxy, name, &member.address());
        assert_eq!(last["reason"], "tls", "{name}: {last}");
        assert!(last["detail"].as_str().is_some_and(|text| text.contains(detail)), "{name}: {last}");
        let failed = member.failed();
        let reply = proxy.get(&format!("/{name}"));
        assert_eq!(
            (reply.status, reply.field("proxy-status")),
            (502, Some("pulsegate; error=tls_protocol_error")),
            "{name}"
        );
        let line = proxy.access(&format!("/{name}"));
        assert_eq!(
            (line.text("outcome"), line.text("reason")),
            ("upstream_error", "upstream_tls"),
            "{name}: {}",
            line.raw
        );
        assert_eq!(line.attempts()[0]["result"], "tls", "{name}: {}", line.raw);
        eventually("the member has seen the traffic's handshake fail too", || member.failed() > failed);
        assert_eq!(member.origin.seen().len(), 0, "{name}: something reached the member");
    }
}

#[test]
fn our_certificate_is_shown_to_members_that_ask() {
    let (ours, clients) = (Authority::named("Ours"), Authority::named("Clients"));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let member = TlsOrigin::start(ours.paper(&["app1.test"]).server_asking(&clients, version));
        let tls = format!("{{ ca: {}, {} }}", ours.ca(), clients.client("us"));
        let proxy = Proxy::start(&config(&[member.known_as("app1.test")], &tls, ""));
        proxy.await_all_healthy();
        assert_eq!(proxy.request("POST", "/", &[], "a body").status, 200);
        let shown = Greeting { client: true, ..greeting(Some("app1.test")) };
        assert!(member.greetings().iter().all(|seen| *seen == shown), "{:?}", member.greetings());
    }
}

#[test]
fn a_probe_goes_its_own_way_on_another_port_whatever_the_traffic_does() {
    let (ours, clients) = (Authority::named("Ours"), Authority::named("Clients"));
    let paper = ours.paper(&["health.internal"]);
    let (plain, secure) = (Origin::start(), TlsOrigin::start(paper.server_asking(&clients, &rustls::version::TLS13)));
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned()).expect("host:port");
    // Over TLS beside traffic that is plain, with names, fields, an authority and a certificate of its own.
    let tls = format!("{{ ca: {}, {} }}", ours.ca(), clients.client("us"));
    let keys = format!(
        "probe: {{ method: HEAD, path: /ready, host: health.internal, headers: {{ X-Token: abc }}, scheme: https, port: {}, tls: {tls}, interval: 500ms }}",
        port(&secure.address())
    );
    let proxy = Proxy::start(&config_of(&[plain.to_string()], &keys));
    proxy.await_all_healthy();
    assert_eq!((proxy.get("/").status, plain.probe_count()), (200, 0));
    let shown = Greeting { client: true, ..greeting(Some("health.internal")) };
    assert!(secure.greetings().iter().all(|seen| *seen == shown), "{:?}", secure.greetings());
    let probe = &secure.origin.probes()[0];
    assert_eq!((probe.method.as_str(), probe.target.as_str()), ("HEAD", "/ready"));
    assert_eq!((probe.field("host"), probe.field("x-token")), (Some("health.internal"), Some("abc")));
    assert_eq!(secure.origin.traffic_count(), 0);

    // And plainly beside traffic over TLS.
    let (plain, secure) = (Origin::start(), TlsOrigin::start(paper.server()));
    let keys = format!(
        "probe: {{ path: /ready, scheme: http, port: {}, interval: 500ms }}\nupstream: {{ tls: {{ ca: {} }} }}",
        plain.port(),
        ours.ca()
    );
    let proxy = Proxy::start(&config_of(&[secure.known_as("health.internal")], &keys));
    proxy.await_all_healthy();
    assert_eq!((proxy.get("/").status, plain.traffic_count(), secure.origin.probe_count()), (200, 0, 0));
}

#[test]
fn nothing_is_verified_where_that_is_written_and_check_warns() {
    let member = TlsOrigin::start(Authority::named("Stranger").expired(&["other.test"]).server());
    let config = config(&[member.known_as("app1.test")], "{ verify: false }", "");
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    assert_eq!(proxy.get("/").status, 200);
    assert_eq!(member.greetings()[0].sni.as_deref(), Some("app1.test"), "the name is asked for all the same");
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_config(folder.path(), &config);
    let checked = run(folder.path(), &["check", "proxy.yaml"], &[]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("warning: `verify: false` takes any certificate"), "{checked:?}");
}

/// Case C02: the probe asked every node by its address, so that strict ones were down for ever.
#[test]
fn each_member_is_asked_by_its_own_name() {
    let authority = Authority::named("Ours");
    let strict = |name: &str| {
        let origin = Origin::start();
        origin.answer(Answer::status(421));
        (origin, authority.paper(&[name]).server())
    };
    let members: Vec<TlsOrigin> = ["app1.test", "app2.test"]
        .into_iter()
        .map(|name| {
            let (origin, server) = strict(name);
            let member = TlsOrigin::in_front_of(Arc::new(origin), server);
            let port = member.address().replace("127.0.0.1:", "");
            member.origin.when(When::host(&format!("{name}:{port}")), Answer::status(200));
            member.origin.when(When::host("test.example"), Answer::status(200));
            member
        })
        .collect();
    let written = [members[0].known_as("app1.test"), members[1].known_as("app2.test")];
    let tls = format!("upstream: {{ tls: {{ ca: {} }} }}", authority.ca());
    let proxy = Proxy::start(&config_of(&written, &format!("{PROBE}\n{tls}")));
    proxy.await_all_healthy();
    for reply in [proxy.get("/1"), proxy.get("/2")] {
        assert_eq!(reply.status, 200, "the client's Host is passed on, whatever the certificate is for");
    }
    for (member, name) in members.iter().zip(["app1.test", "app2.test"]) {
        assert_eq!(member.origin.traffic_count(), 1);
        assert!(member.greetings().iter().all(|seen| *seen == greeting(Some(name))), "{:?}", member.greetings());
    }
}

#[test]
fn the_names_of_host_and_of_tls_are_set_apart_for_probe_and_traffic() {
    let authority = Authority::named("Ours");
    let paper = authority.paper(&["pool.test", "probe.test", "host.test"]);
    let ca = authority.ca();
    let rows = [
        // The pool's name in TLS changes no Host; the probe takes it over.
        (
            format!("tls: {{ ca: {ca}, sni: pool.test }}, host: fixed.test"),
            "",
            "fixed.test",
            "pool.test",
            None,
            "pool.test",
        ),
        // A probe's host is its name in TLS too, unless that is written.
        (
            format!("tls: {{ ca: {ca}, sni: pool.test }}"),
            "host: host.test",
            "test.example",
            "pool.test",
            Some("host.test"),
            "host.test",
        ),
        (
            format!("tls: {{ ca: {ca}, sni: pool.test }}"),
            "host: host.test, tls: { sni: probe.test }",
            "test.example",
            "pool.test",
            Some("host.test"),
            "probe.test",
        ),
    ];
    for (upstream, probe, host, sni, probe_host, probe_sni) in rows {
        let member = TlsOrigin::start(paper.server());
        let probe =
            if probe.is_empty() { PROBE.to_owned() } else { PROBE.replace("path:", &format!("{probe}, path:")) };
        let proxy = Proxy::start(&config_of(&[member.to_string()], &format!("{probe}\nupstream: {{ {upstream} }}")));
        proxy.await_all_healthy();
        let probed = member.greetings();
        assert!(probed.iter().all(|seen| *seen == greeting(Some(probe_sni))), "{probed:?}");
        let address = member.address();
        assert_eq!(member.origin.probes()[0].field("host"), Some(probe_host.unwrap_or(&address)));
        assert_eq!(proxy.get("/").status, 200);
        assert!(member.greetings().contains(&greeting(Some(sni))), "{:?}", member.greetings());
        assert_eq!(member.origin.traffic()[0].field("host"), Some(host));
    }
}

#[test]
fn a_member_that_refuses_or_is_refused_is_left_for_another_whatever_the_method() {
    let (ours, stranger) = (Authority::named("Ours"), Authority::named("Stranger"));
    let good = ours.paper(&["app1.test"]);
    let bad = [
        stranger.paper(&["app1.test"]).server(),
        good.server_asking(&stranger, &rustls::version::TLS12),
        good.server_asking(&stranger, &rustls::version::TLS13),
    ];
    for server in bad {
        let (bad, good) = (TlsOrigin::start(server), TlsOrigin::start(good.server()));
        let members = [bad.known_as("app1.test"), good.known_as("app1.test")];
        let keys = format!("probe: off\nupstream: {{ tls: {{ ca: {} }} }}", ours.ca());
        let proxy = Proxy::start(&config_of(&members, &keys));
        for i in 0..2 {
            assert_eq!(proxy.request("POST", &format!("/{i}"), &[], "once").status, 200);
        }
        let tried = proxy.await_access("a request that was tried twice", |line| line.attempts().len() == 2);
        let results: Vec<_> = tried.attempts().iter().map(|attempt| attempt["result"].clone()).collect();
        assert_eq!(results, ["tls", "ok"], "{}", tried.raw);
        assert_eq!((bad.origin.traffic_count(), good.origin.traffic_count()), (0, 2));
        assert!(good.origin.traffic().iter().all(|seen| seen.body == b"once"));
    }
}

#[test]
fn another_authority_in_the_same_file_ends_the_trust_in_connections_that_stand() {
    let (old, new) = (Authority::named("Old"), Authority::named("New"));
    let member = TlsOrigin::start(old.paper(&["app1.test"]).server());
    let folder = tempfile::tempdir().expect("a temporary folder");
    replace(folder.path(), "ca.pem", &old.pem());
    let ca = folder.path().join("ca.pem");
    let config = config(&[member.known_as("app1.test")], &format!("{{ ca: {} }}", ca.display()), "threads: 1");
    let config = config.replace("    threads: 1\n", "") + "threads: 1\n";
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    let reused = |path: &str| {
        assert_eq!(proxy.get(path).status, 200);
        proxy.access(path).attempts()[0]["reused"] == true
    };
    reused("/warm");
    assert!(reused("/kept"), "a pooled connection is used again");
    proxy.reload(&config);
    assert!(reused("/still"), "a reload that changes nothing keeps it");
    replace(folder.path(), "ca.pem", &new.pem());
    proxy.reload(&config);
    assert_eq!(proxy.get("/refused").status, 502, "the old connection was used again");
    assert_eq!(proxy.access("/refused").text("reason"), "upstream_tls");
    eventually("the member is probed by the new authority", || {
        proxy.member("web", &member.address())["last_probe"]["reason"] == "tls"
    });
    member.serve(new.paper(&["app1.test"]).server());
    proxy.await_all_healthy();
    assert!(!reused("/again"), "and a new one is made");
}

#[test]
fn another_certificate_of_ours_is_shown_on_new_connections_and_the_probe_goes_first() {
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["app1.test"]).server_asking(&authority, &rustls::version::TLS13));
    let tls = format!("{{ ca: {}, {} }}", authority.ca(), authority.client("us"));
    // No probe comes by itself before the test is over.
    let probe = "probe: { path: /healthz, interval: 1h, timeout: 10s }";
    let config =
        config_of(&[member.known_as("app1.test")], &format!("{probe}\nupstream: {{ tls: {tls} }}")) + "threads: 1\n";
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    proxy.get("/1");
    let (probes, greetings) = (member.origin.probe_count(), member.greetings().len());
    proxy.reload(&config);
    proxy.get("/2");
    assert_eq!((member.origin.probe_count(), member.greetings().len()), (probes, greetings), "nothing has changed");
    authority.client("us");
    proxy.reload(&config);
    eventually("a probe with the new certificate", || member.origin.probe_count() > probes);
    eventually("it has verified the member", || proxy.member("web", &member.address())["unverified"] == false);
    assert_eq!(proxy.member("web", &member.address())["verdict"], "healthy");
    proxy.get("/3");
    assert_eq!(member.greetings().len(), greetings + 2, "one for the probe, one for the traffic");
}

#[test]
fn a_file_that_cannot_be_read_refuses_the_reload_at_its_place_and_changes_nothing() {
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["app1.test"]).server());
    let config = |tls: &str| config(&[member.known_as("app1.test")], tls, "");
    let good = format!("{{ ca: {} }}", authority.ca());
    let proxy = Proxy::start(&config(&good));
    proxy.await_all_healthy();
    let (ours, other) = (authority.client("us"), authority.client("them"));
    let key_of_other = other.split("client_key: ").nth(1).expect("a key").to_owned();
    let cert_of_ours = ours.split(", ").next().expect("a certificate").to_owned();
    let rows = [
        ("{ ca: no-such.pem }".to_owned(), "`ca` no-such.pem: cannot be read: No such file"),
        ("{ client_cert: no-such.pem, client_key: no-such.key }".to_owned(), "`client_cert` no-such.pem"),
        (format!("{{ {cert_of_ours}, client_key: {key_of_other} }}"), "is not the key of the certificate in"),
    ];
    for (tls, words) in rows {
        let (mark, text) = (proxy.mark(), config(&tls));
        proxy.rewrite(&text);
        proxy.reload_is_refused();
        let problems: Vec<_> =
            proxy.log().into_iter().skip(mark).filter(|line| line.text("message").contains("pool \"web\": ")).collect();
        assert_eq!(problems.len(), 1, "traffic and probe share it, so it is said once: {problems:?}");
        let message = problems[0].text("message");
        let line = std::fs::read_to_string(proxy.dir().join("proxy.yaml")).expect("ours");
        let line = 1 + line.lines().position(|line| line.contains("upstream:")).expect("it is there");
        assert!(message.contains(words) && message.contains(&format!("proxy.yaml:{line}:")), "{message}");
        assert_eq!(proxy.get("/").status, 200);
        assert_eq!(proxy.member("web", &member.address())["standing"], "healthy");
    }
}

/// Case C22: handshakes that failed were counted where nobody looked, so a member never went down, or never came back.
#[test]
fn every_failed_handshake_counts_in_the_one_streak_and_says_why() {
    let (ours, stranger) = (Authority::named("Ours"), Authority::named("Stranger"));
    let good = ours.paper(&["app1.test"]);
    let member = TlsOrigin::start(good.server());
    let probe = "probe: { path: /healthz, interval: 1s, fast_interval: 50ms, timeout: 1s, consecutive: { failures: 4, passes: 2 } }";
    let keys = format!(
        "{probe}
upstream: {{ tls: {{ ca: {} }} }}",
        ours.ca()
    );
    let proxy = Proxy::start(&config_of(&[member.known_as("app1.test")], &keys));
    proxy.await_all_healthy();
    let mark = proxy.mark();
    let unknown = || stranger.paper(&["app1.test"]).server();
    let asking = || good.server_asking(&ours, &rustls::version::TLS13);
    // Were one of them not counted, the good ones that follow would keep it up.
    member.serve_next([unknown(), asking(), unknown(), asking()]);
    let told = proxy.await_event(mark, &[("kind", "member"), ("to", "unhealthy"), ("reason", "tls")]);
    assert!(told.text("detail").contains("CertificateRequired"), "{}", told.raw);
    let first = proxy.await_log("the first failure", mark, |line| line.text("target") == "probe");
    assert_eq!(first.text("reason"), "tls", "{}", first.raw);
    assert!(first.text("detail").contains("unknown issuer, \"Stranger\""), "{}", first.raw);
    proxy.await_event(mark, &[("kind", "member"), ("from", "unhealthy"), ("to", "healthy")]);
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn the_command_probe_shows_how_a_member_is_secured() {
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["app1.test"]).server());
    let asked = |tls: &str, name: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write_config(folder.path(), &config(&[member.known_as(name)], tls, ""));
        run(folder.path(), &["probe", "web", "-c", "proxy.yaml"], &[])
    };
    let ca = format!("ca: {}", authority.ca());
    let good = asked(&format!("{{ {ca}, {} }}", authority.client("us")), "app1.test");
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(
        good.stdout.contains("* TLS, to be verified for app1.test, with a client certificate at hand\n"),
        "{good:?}"
    );
    let any = asked("{ verify: false }", "app2.test");
    assert!(any.stdout.contains("* TLS, not to be verified, asked for app2.test\n"), "{any:?}");
    let bad = asked(&format!("{{ {ca} }}"), "app2.test");
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert!(bad.stdout.contains("= fail, tls: certificate is for"), "{bad:?}");
}

/// Pingora would panic over it.
#[test]
fn authorities_of_the_machine_that_cannot_be_read_end_the_start_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_config(
        folder.path(),
        "pools: { web: { members: [\"127.0.0.1:1\"], probe: off } }\nroutes: [{ pool: web }]\n",
    );
    let missing = folder.path().join("nowhere.pem");
    let missing = missing.to_str().expect("text");
    let ended = run(folder.path(), &["run", "-c", "proxy.yaml"], &[("SSL_CERT_FILE", missing)]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("SSL_CERT_FILE") && ended.stderr.contains("nowhere.pem"), "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
}
