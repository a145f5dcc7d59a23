//! Names that change while it runs, against dnsmasq and against a server that makes trouble (cases C39, C45, C65, C66).

use std::thread;

use serde_json::Value;

use crate::harness::dns::{self, NameServer, Said, records};
use crate::harness::dnsmasq::Dnsmasq;
use crate::harness::process::run;
use crate::harness::proxy::{PROBE, Proxy, config_of, write_config};
use crate::harness::wait::now;
use crate::harness::{Answer, Gate, Line, Origin, When, eventually};

/// One pool `web` of these members, that asks this server.
fn config(resolver: &str, members: &[String]) -> String {
    format!("{resolver}{}", config_of(members, PROBE))
}

/// `app.test` on the origin's port.
fn app(origin: &Origin) -> String {
    format!("\"app.test:{}\"", origin.port())
}

/// The addresses of pool `web` and their standings, `127.0.0.1 healthy, …`, sorted; ports are left out.
fn standings(proxy: &Proxy) -> String {
    let pool = proxy.pool("web");
    let members = pool["members"].as_array().expect("members").iter();
    let shown = |member: &Value| {
        let address = member["address"].as_str().unwrap_or_default();
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        format!("{host} {}", member["standing"].as_str().unwrap_or_default())
    };
    let mut shown: Vec<String> = members.map(shown).collect();
    shown.sort();
    shown.join(", ")
}

#[track_caller]
fn await_standings(proxy: &Proxy, expected: &str) {
    eventually(&format!("members are {expected}, not {}", standings(proxy)), || standings(proxy) == expected);
}

/// A line of the resolver with these words.
fn told(words: &'static str) -> impl Fn(&Line) -> bool {
    move |line| line.text("target") == "discovery" && line.raw.contains(words)
}

/// Every line about a member or a pool's members so far.
fn news(proxy: &Proxy) -> Vec<String> {
    let lines = proxy.log().into_iter();
    lines.filter(|l| matches!(l.text("kind"), "member" | "pool")).map(|line| line.raw).collect()
}

#[test]
fn a_name_follows_its_server_and_newcomers_are_probed() {
    let origin = Origin::start_everywhere();
    let dnsmasq = Dnsmasq::start("127.0.0.1 app.test\n", &[]);
    let proxy = Proxy::start(&config(&dnsmasq.resolver(""), &[app(&origin)]));
    await_standings(&proxy, "127.0.0.1 healthy");
    let mark = proxy.mark();
    dnsmasq.hosts("127.0.0.1 app.test\n127.0.0.2 app.test\n::1 app.test\n");
    // Nobody listens at ::1: it is a member all the same, and never gets traffic.
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 healthy, [::1] unknown");
    let its_members = |line: &Line| line.has(&[("target", "discovery"), ("kind", "pool"), ("pool", "web")]);
    let line = proxy.await_log("the pool's line", mark, its_members);
    assert!(line.text("added").contains("127.0.0.2"), "{}", line.raw);
    assert!(proxy.sample("/both", 8).iter().all(|line| line.json["status"] == 200));
    let at = |ip: &str| origin.traffic().iter().filter(|seen| seen.local.to_string() == ip).count();
    assert_eq!((at("127.0.0.1"), at("127.0.0.2")), (4, 4));
    // Probes go on at the newcomer (case C39), and end when it goes.
    let probes = |ip: &str| origin.probes().iter().filter(|seen| seen.local.to_string() == ip).count();
    let before = probes("127.0.0.2");
    eventually("four more probes at the newcomer", || probes("127.0.0.2") >= before + 4);
    // A request on the one that goes is finished there.
    let gate = Gate::new();
    origin.when(When::path("/held"), Answer::status(200).body("whole").held_by(&gate));
    let held: Vec<_> = (0..2).map(|_| proxy.connect()).collect();
    let held: Vec<_> = held.into_iter().map(|mut c| thread::spawn(move || c.get("/held"))).collect();
    eventually("one request at each", || gate.waiting() == 2);
    dnsmasq.hosts("127.0.0.1 app.test\n");
    await_standings(&proxy, "127.0.0.1 healthy");
    gate.open();
    for reply in held {
        let reply = reply.join().expect("an answer");
        assert_eq!((reply.status, reply.text()), (200, "whole".to_owned()));
    }
    proxy.await_event(
        mark,
        &[("kind", "member"), ("to", "removed"), ("member", &format!("127.0.0.2:{}", origin.port()))],
    );
}

#[test]
fn a_server_that_is_gone_takes_nobody_with_it() {
    let origin = Origin::start_everywhere();
    let hosts = "127.0.0.1 app.test\n127.0.0.2 app.test\n";
    let mut dnsmasq = Dnsmasq::start(hosts, &[]);
    let config = config(&dnsmasq.resolver(", grace: 0s"), &[app(&origin)]);
    let proxy = Proxy::start(&config);
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 healthy");
    let mark = proxy.mark();
    dnsmasq.stop();
    proxy.await_log("the trouble", mark, told("does not resolve now"));
    // Not even a reload that falls into it.
    proxy.reload(&config.replace("routes:", "  other: { members: [\"127.0.0.1:1\"], probe: off }\nroutes:"));
    assert_eq!(standings(&proxy), "127.0.0.1 healthy, 127.0.0.2 healthy");
    dnsmasq.start_again(&[]);
    proxy.await_log("the end of the trouble", mark, told("resolves again"));
    dnsmasq.hosts("127.0.0.2 app.test\n");
    await_standings(&proxy, "127.0.0.2 healthy");
}

#[test]
fn a_server_that_was_silent_for_a_while_is_followed_as_before() {
    let origin = Origin::start_everywhere();
    let dnsmasq = Dnsmasq::start("127.0.0.1 app.test\n", &[]);
    let proxy = Proxy::start(&config(&dnsmasq.resolver(""), &[app(&origin)]));
    await_standings(&proxy, "127.0.0.1 healthy");
    let mark = proxy.mark();
    dnsmasq.pauses();
    proxy.await_log("the trouble", mark, told("does not resolve now"));
    dnsmasq.goes_on();
    proxy.await_log("the end of the trouble", mark, told("resolves again"));
    // For TCP it makes a process of what it knows just then; one that is asked for ever never learns this.
    for address in ["127.0.0.2", "127.0.0.3"] {
        dnsmasq.hosts(&format!("{address} app.test\n"));
        await_standings(&proxy, &format!("{address} healthy"));
    }
}

#[test]
fn a_server_that_knows_nothing_hides_nothing_that_another_knows() {
    let (origin, lame, good) = (Origin::start_everywhere(), NameServer::start(), NameServer::start());
    good.has("app.test", &["127.0.0.1", "127.0.0.2"]);
    good.says("_http._tcp.app.test", "SRV", Said::Records(0, vec![format!("1 5 {} app.test", origin.port())]));
    for kind in ["A", "AAAA"] {
        lame.says("app.test", kind, Said::Referral);
    }
    lame.says("_http._tcp.app.test", "SRV", Said::Referral);
    let servers = format!("{}\", \"{}", lame.address(), good.address());
    for member in [app(&origin), "{ srv: _http._tcp.app.test }".to_owned()] {
        let proxy = Proxy::start(&config(&dns::resolver(&servers, ", grace: 0s"), &[member]));
        await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 healthy");
        // Where nobody knows it is trouble, which erases nothing.
        let mark = proxy.mark();
        good.says("app.test", "A", Said::Referral);
        good.says("app.test", "AAAA", Said::Referral);
        proxy.await_log("the trouble", mark, told("does not resolve now"));
        good.await_asked("app.test", "A", 2);
        assert_eq!(standings(&proxy), "127.0.0.1 healthy, 127.0.0.2 healthy");
        good.says("app.test", "AAAA", Said::Nothing);
        good.has("app.test", &["127.0.0.1", "127.0.0.2"]);
    }
}

#[test]
fn trouble_of_any_kind_erases_nothing() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    server.has("app.test", &["127.0.0.1", "127.0.0.2"]);
    origin.when(When::local("127.0.0.2"), Answer::status(503));
    let proxy = Proxy::start(&config(&server.resolver(", grace: 0s"), &[app(&origin)]));
    let settled = "127.0.0.1 healthy, 127.0.0.2 unknown";
    await_standings(&proxy, settled);
    for trouble in [Said::Failure, Said::Silence, Said::Refusal] {
        let mark = proxy.mark();
        server.says("app.test", "A", trouble);
        proxy.await_log("the trouble", mark, told("does not resolve now"));
        server.await_asked("app.test", "A", 2);
        assert_eq!(standings(&proxy), settled);
        server.has("app.test", &["127.0.0.1", "127.0.0.2"]);
        proxy.await_log("the end of the trouble", mark, told("resolves again"));
    }
    // One family in trouble is kept while the other one changes.
    let mark = proxy.mark();
    server.says("app.test", "A", Said::Failure);
    server.says("app.test", "AAAA", records(&["::1"]));
    await_standings(&proxy, &format!("{settled}, [::1] unknown"));
    proxy.await_log("what is in trouble", mark, told("has an answer for one family alone: IPv4: "));
}

#[test]
fn a_name_that_is_gone_keeps_its_addresses_for_the_grace() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    for gone in [Said::NoName, Said::Nothing] {
        server.has("app.test", &["127.0.0.1"]);
        let proxy = Proxy::start(&config(&server.resolver(", grace: 1h"), &[app(&origin)]));
        await_standings(&proxy, "127.0.0.1 healthy");
        let mark = proxy.mark();
        server.says("app.test", "A", gone);
        proxy.await_log("the beginning of the grace", mark, told("does not resolve any more"));
        server.await_asked("app.test", "A", 3);
        assert_eq!(standings(&proxy), "127.0.0.1 healthy");
        // The grace is cut short: it has been over for long.
        proxy.reload(&config(&server.resolver(", grace: 0s"), &[app(&origin)]));
        proxy.await_log("the end of the grace", mark, told("removed 127.0.0.1"));
        await_standings(&proxy, "app.test unknown");
        let member = proxy.member("web", &format!("app.test:{}", origin.port()));
        assert_eq!(member["resolved"], false);
        assert!(member["unresolved_because"].is_string(), "{member}");
        assert_eq!(proxy.get("/nobody").status, 503);
        server.has("app.test", &["127.0.0.1"]);
        await_standings(&proxy, "127.0.0.1 healthy");
    }
}

#[test]
fn order_and_ttl_0_change_nothing_and_ask_no_more_than_allowed() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    // The server turns the order with each answer.
    server.has("app.test", &["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let pools = "  more: { members: [MEMBER], probe: off }\n  most: { members: [MEMBER], probe: off }\nroutes:";
    let config =
        config(&server.resolver(""), &[app(&origin)]).replace("routes:", &pools.replace("MEMBER", &app(&origin)));
    let proxy = Proxy::start(&config);
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 healthy, 127.0.0.3 healthy");
    eventually("their lines are written", || news(&proxy).len() == 4);
    let (before, from) = (news(&proxy), now());
    let asked = server.asked("app.test", "A");
    server.await_asked("app.test", "A", 10);
    let (asked, time) = (server.asked("app.test", "A") - asked, from.elapsed());
    // One question for three pools, at most every 100 ms.
    assert!(asked as u128 <= time.as_millis() / 100 + 2, "{asked} times in {time:?}");
    assert_eq!(news(&proxy), before, "an order is no news");
}

#[test]
fn an_address_that_returns_keeps_its_verdict() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    server.has("app.test", &["127.0.0.1", "127.0.0.2"]);
    let proxy = Proxy::start(&config(&server.resolver(""), &[app(&origin)]));
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 healthy");
    origin.when(When::local("127.0.0.2"), Answer::status(503));
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 ejected");
    server.has("app.test", &["127.0.0.1"]);
    await_standings(&proxy, "127.0.0.1 healthy");
    let bad = || origin.traffic().iter().filter(|seen| seen.local.to_string() == "127.0.0.2").count();
    let before = bad();
    let mark = proxy.mark();
    server.has("app.test", &["127.0.0.1", "127.0.0.2"]);
    let member = format!("127.0.0.2:{}", origin.port());
    proxy.await_event(mark, &[("kind", "member"), ("from", "added"), ("to", "ejected"), ("member", &member)]);
    proxy.sample("/back", 6);
    assert_eq!(bad(), before, "the member that is known to be bad got traffic");
    origin.when(When::local("127.0.0.2"), Answer::status(200));
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 healthy");
}

#[test]
fn long_answers_and_servers_without_udp_are_asked_by_tcp() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    let many: Vec<String> = (1..=100).map(|n| format!("127.0.1.{n}")).collect();
    server.says("app.test", "A", Said::Long(0, many));
    let proxy = Proxy::start(&config(&server.resolver(""), &[app(&origin)]));
    eventually("a hundred members", || proxy.pool("web")["members"].as_array().is_some_and(|m| m.len() == 100));
    assert!(server.asked_by_tcp() > 0);
    server.answers_by_tcp_alone();
    server.has("app.test", &["127.0.0.1"]);
    await_standings(&proxy, "127.0.0.1 healthy");
}

#[test]
fn one_name_that_nobody_knows_stops_nothing() {
    let (origin, server) = (Origin::start(), NameServer::start());
    let pool = |n: usize| format!("  p{n}: {{ members: [{origin}], {PROBE} }}\n");
    let gone = format!("  gone: {{ members: [\"gone.test:{}\"], {PROBE} }}\n", origin.port());
    let nine: String = (0..9).map(pool).collect();
    let routes: Vec<String> = (0..9).map(|n| format!("{{ path: /p{n}, pool: p{n} }}")).collect();
    let with = |pools: &str| {
        let resolver = server.resolver("");
        format!("{resolver}pools:\n{nine}{pools}routes: [{}, {{ path: /gone, pool: gone }}]\n", routes.join(", "))
    };
    let serves = |proxy: &Proxy| {
        for n in 0..9 {
            eventually("the pool serves", || proxy.get(&format!("/p{n}")).status == 200);
        }
        assert_eq!(proxy.get("/gone").status, 503);
        let member = &proxy.pool("gone")["members"][0];
        assert_eq!((&member["resolved"], &member["unresolved_because"]), (&false.into(), &"no such name".into()));
    };
    // At a start, and at a reload.
    let proxy = Proxy::start(&with(&gone));
    serves(&proxy);
    let fixed = gone.replace("gone.test", "127.0.0.1");
    proxy.reload(&with(&fixed));
    eventually("the pool serves", || proxy.get("/gone").status == 200);
    proxy.reload(&with(&gone));
    serves(&proxy);
    // It is asked for again.
    server.has("gone.test", &["127.0.0.1"]);
    eventually("the name is resolved", || proxy.get("/gone").status == 200);
    // And before that `check` warns, or refuses.
    server.says("gone.test", "A", Said::NoName);
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_config(folder.path(), &with(&gone));
    let lax = run(folder.path(), &["check", "proxy.yaml"], &[]);
    assert!(lax.code == Some(0) && lax.stdout.contains("warning: `gone.test` does not resolve here"), "{lax:?}");
    assert_eq!(run(folder.path(), &["check", "--strict", "proxy.yaml"], &[]).code, Some(1));
}

#[test]
fn a_reload_can_bring_another_server() {
    let (origin, one, other) = (Origin::start_everywhere(), NameServer::start(), NameServer::start());
    one.has("app.test", &["127.0.0.1"]);
    other.has("app.test", &["127.0.0.2"]);
    let proxy = Proxy::start(&config(&one.resolver(""), &[app(&origin)]));
    await_standings(&proxy, "127.0.0.1 healthy");
    proxy.reload(&config(&other.resolver(""), &[app(&origin)]));
    await_standings(&proxy, "127.0.0.2 healthy");
    // A refused file brings nothing.
    proxy.rewrite(&config(&one.resolver(""), &[app(&origin), "{ file: no-such.yaml }".to_owned()]));
    proxy.reload_is_refused();
    other.await_asked("app.test", "A", 2);
    assert_eq!(standings(&proxy), "127.0.0.2 healthy");
}

/// Draining one of several by the name of all would leave the others to serve, behind the operator's back.
#[test]
fn operators_call_one_member_by_a_name_only_where_it_is_the_only_one() {
    let origin = Origin::start_everywhere();
    let dnsmasq = Dnsmasq::start("127.0.0.1 app.test\n127.0.0.2 app.test\n127.0.0.3 single.test\n", &[]);
    let members = [app(&origin), format!("\"single.test:{}\"", origin.port())];
    let proxy = Proxy::start(&config(&dnsmasq.resolver(""), &members));
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 healthy, 127.0.0.3 healthy");
    let port = origin.port();
    let drain = |member: &str| proxy.admin_post(&format!("/api/v1/pools/web/members/{member}:{port}/drain"), &[]);
    let refused = drain("app.test");
    assert_eq!(refused.status, 409);
    let told = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(told.contains(&format!("127.0.0.1:{port}, 127.0.0.2:{port}")), "{told}");
    assert_eq!(standings(&proxy), "127.0.0.1 healthy, 127.0.0.2 healthy, 127.0.0.3 healthy");
    assert_eq!((drain("127.0.0.2").status, drain("single.test").status, drain("none.test").status), (200, 200, 404));
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 draining, 127.0.0.3 draining");
}

/// The members of pool `web` as `name admin`.
fn words(proxy: &Proxy) -> Vec<String> {
    let pool = proxy.pool("web");
    let members = pool["members"].as_array().expect("members").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    members
        .map(|m| format!("{} {}", text(&m["name"]).split(':').next().unwrap_or_default(), text(&m["admin"])))
        .collect()
}

/// The first of two names of one address was acted on, whichever was meant.
#[test]
fn operators_act_on_the_name_they_say_though_another_has_its_address() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    server.has("one.test", &["127.0.0.1"]);
    server.has("two.test", &["127.0.0.1"]);
    let port = origin.port();
    let members = ["one.test", "two.test", "127.0.0.1"].map(|host| format!("\"{host}:{port}\""));
    let proxy = Proxy::start(&config(&server.resolver(""), &members));
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.1 healthy, 127.0.0.1 healthy");
    let act = |member: &str, word: &str| proxy.admin_post(&format!("/api/v1/pools/web/members/{member}/{word}"), &[]);
    for word in ["drain", "disable", "enable", "probe"] {
        let refused = act(&format!("127.0.0.1:{port}"), word);
        assert_eq!(refused.status, 409, "{word}");
        let told = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
        let names = format!("name one: one.test:{port}, two.test:{port}, 127.0.0.1:{port} 127.0.0.1:{port}");
        assert!(told.contains(&names), "{told}");
    }
    let answer = act(&format!("two.test:{port}"), "drain");
    assert_eq!((answer.status, &answer.json()["name"]), (200, &format!("two.test:{port}").into()));
    assert_eq!(words(&proxy), ["one.test enabled", "two.test draining", "127.0.0.1 enabled"]);
    let answer = act(&format!("127.0.0.1:{port}%20127.0.0.1:{port}"), "disable");
    assert_eq!((answer.status, &answer.json()["admin"]), (200, &"disabled".into()));
    assert_eq!(words(&proxy), ["one.test enabled", "two.test draining", "127.0.0.1 disabled"]);
    // One that is disabled is not probed: it is the one that is meant.
    assert_eq!(act(&format!("127.0.0.1:{port}%20127.0.0.1:{port}"), "probe").status, 409);
    assert_eq!(act(&format!("two.test:{port}"), "probe").json()["name"], format!("two.test:{port}"));
    assert_eq!(act(&format!("127.0.0.1:{port}%20one.test:{port}"), "disable").status, 200);
    assert_eq!(words(&proxy), ["one.test disabled", "two.test draining", "127.0.0.1 disabled"]);
}

#[test]
fn a_name_that_joins_another_at_its_address_is_told_of_as_what_it_is() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    server.has("one.test", &["127.0.0.1"]);
    server.has("two.test", &["127.0.0.2"]);
    let port = origin.port();
    let members = ["one.test", "two.test"].map(|host| format!("\"{host}:{port}\""));
    let proxy = Proxy::start(&config(&server.resolver(""), &members));
    await_standings(&proxy, "127.0.0.1 healthy, 127.0.0.2 healthy");
    let mark = proxy.mark();
    server.has("two.test", &["127.0.0.1"]);
    let line = proxy.await_log("the change", mark, told("members of web changed"));
    let texts = (line.text("added").to_owned(), line.text("removed").to_owned());
    assert_eq!(texts, (format!("127.0.0.1:{port} two.test:{port}"), format!("127.0.0.2:{port}")));
    let shared = proxy.await_log("the warning", mark, told("lead to the same address"));
    assert_eq!(shared.text("shared"), format!("127.0.0.1:{port} (one.test:{port} and two.test:{port})"));
    let mark = proxy.mark();
    server.has("one.test", &["127.0.0.3"]);
    let line = proxy.await_log("the change back", mark, told("members of web changed"));
    let texts = (line.text("added").to_owned(), line.text("removed").to_owned());
    assert_eq!(texts, (format!("127.0.0.3:{port}"), format!("127.0.0.1:{port} one.test:{port}")));
}
