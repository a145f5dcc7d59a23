//! Transitions: each told exactly once, alike in the log and in the list of the admin API.

use std::fs;

use serde_json::Value;

use crate::harness::client::{self, Connection};
use crate::harness::dnsmasq::Dnsmasq;
use crate::harness::proxy::{PROBE, Proxy, config_of, pool_config};
use crate::harness::{Answer, Origin, When, eventually};

/// The list as the admin API answers with this query.
#[track_caller]
fn list(proxy: &Proxy, query: &str) -> Value {
    let reply = proxy.admin_get(&format!("/api/v1/events{query}"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

fn events(proxy: &Proxy, query: &str) -> Vec<Value> {
    list(proxy, query)["events"].as_array().expect("a list").clone()
}

/// Every transition since `mark`, `kind [member] from -> to`, after waiting for the last of them; the list has what the log
/// has, and in the same order.
#[track_caller]
fn told(proxy: &Proxy, since: u64, until: &str) -> Vec<String> {
    let word = |event: &Value, key: &str| event[key].as_str().unwrap_or("-").to_owned();
    let line = |event: &Value| {
        let member = word(event, "member");
        let member = if member == "-" { String::new() } else { format!("{member} ") };
        format!("{} {member}{} -> {}", word(event, "kind"), word(event, "from"), word(event, "to"))
    };
    let listed = || events(proxy, &format!("?since={since}&limit=1000"));
    eventually(&format!("{until:?} is told"), || listed().iter().any(|event| line(event) == until));
    let listed: Vec<Value> = listed().into_iter().filter(|event| event["kind"] != "reload").collect();
    let messages: Vec<String> = listed.iter().map(|event| word(event, "message")).collect();
    let logged = || -> Vec<String> {
        let health = proxy.log().into_iter().filter(|l| l.text("target") == "health" && l.text("kind") != "reload");
        health.map(|line| line.text("message").to_owned()).collect()
    };
    // A line is written a little later.
    eventually(&format!("the log ends with {messages:#?}"), || logged().ends_with(&messages));
    listed.iter().map(line).collect()
}

fn last_id(proxy: &Proxy) -> u64 {
    list(proxy, "")["last_id"].as_u64().expect("a number")
}

#[test]
fn ejection_cap_fallback_and_recovery_are_each_told_once() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::start()).collect();
    let [a, b, c] = &origins[..] else { panic!("three") };
    let proxy = Proxy::of(&[a, b, c], "max_unhealthy_percent: 34");
    proxy.await_all_healthy();
    let since = last_id(&proxy);
    a.when(When::probe(), Answer::status(503));
    proxy.await_standing(a, "ejected");
    // Who does not answer goes before who answers wrongly.
    b.when(When::probe(), Answer::reset());
    proxy.await_standing(b, "ejected");
    c.when(When::probe(), Answer::status(503));
    proxy.await_mode("fallback");
    c.when(When::probe(), Answer::status(200));
    proxy.await_standing(c, "healthy");
    b.when(When::probe(), Answer::status(200));
    proxy.await_standing(b, "healthy");
    let [a, b, c] = [a, b, c].map(Origin::address);
    let expected = [
        format!("member {a} healthy -> unhealthy"),
        format!("member {b} healthy -> unhealthy"),
        format!("cap {a} ejected -> kept"),
        format!("member {c} healthy -> unhealthy"),
        "fallback capped -> fallback".to_owned(),
        format!("member {c} unhealthy -> healthy"),
        "fallback fallback -> capped".to_owned(),
        format!("member {b} unhealthy -> healthy"),
        format!("cap {a} kept -> ejected"),
    ];
    assert_eq!(told(&proxy, since, &expected[8]), expected);
}

#[test]
fn failover_and_failback_are_each_told_once() {
    let (first, second) = (Origin::start(), Origin::start());
    let members = [format!("{{ address: {first}, tier: 0 }}"), format!("{{ address: {second}, tier: 1 }}")];
    let proxy = Proxy::start(&config_of(&members, PROBE));
    proxy.await_all_healthy();
    let since = last_id(&proxy);
    first.when(When::probe(), Answer::status(503));
    proxy.await_mode("failover");
    first.when(When::probe(), Answer::status(200));
    proxy.await_mode("normal");
    let first = first.address();
    let expected = [
        format!("member {first} healthy -> unhealthy"),
        "failover tier 0 -> tier 1".to_owned(),
        format!("member {first} unhealthy -> healthy"),
        "failover tier 1 -> tier 0".to_owned(),
    ];
    assert_eq!(told(&proxy, since, &expected[3]), expected);
}

#[test]
fn operators_words_and_reloads_are_each_told_once() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config_of(&[a.to_string()], "probe: off"));
    let since = last_id(&proxy);
    for _ in 0..2 {
        let drain = format!("/api/v1/pools/web/members/{}/drain", a.address());
        assert_eq!(proxy.admin_post(&drain, &[]).status, 200);
    }
    let both = config_of(&[a.to_string(), b.to_string()], "probe: off");
    let other = "  other: { members: [\"127.0.0.1:1\"], probe: off }\nroutes:";
    proxy.reload(&both.replace("routes:", other));
    proxy.reload(&both.replace("routes:", other));
    proxy.reload(&config_of(&[b.to_string()], "probe: off"));
    let (a, b) = (a.address(), b.address());
    let mut told = told(&proxy, since, "pool normal -> removed");
    let mut expected = [
        format!("member {a} enabled -> draining"),
        "pool normal -> down".to_owned(),
        format!("member {b} added -> healthy"),
        "pool down -> normal".to_owned(),
        "pool added -> normal".to_owned(),
        format!("member {a} draining -> removed"),
        "pool normal -> removed".to_owned(),
    ];
    // Pools have no order among each other.
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
    assert_eq!(events(&proxy, "?kind=pool&pool=other").len(), 2);
}

#[test]
fn members_of_names_and_files_that_come_and_go_are_each_told_once() {
    let origin = Origin::start_everywhere();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    fs::write(&file, "[]\n").expect("ours");
    let dnsmasq = Dnsmasq::start("127.0.0.1 app.test\n", &[]);
    let members = [format!("app.test:{}", origin.port()), format!("{{ file: \"{}\" }}", file.display())];
    let proxy = Proxy::start(&(dnsmasq.resolver("") + &config_of(&members, "probe: off")));
    let port = origin.port();
    let since = last_id(&proxy);
    dnsmasq.hosts("127.0.0.1 app.test\n127.0.0.2 app.test\n");
    let came = format!("member 127.0.0.2:{port} added -> healthy");
    assert_eq!(told(&proxy, since, &came), [came]);
    let since = last_id(&proxy);
    dnsmasq.hosts("127.0.0.1 app.test\n");
    let went = format!("member 127.0.0.2:{port} healthy -> removed");
    assert_eq!(told(&proxy, since, &went), [went]);
    let since = last_id(&proxy);
    let many: String = (0..2_000).map(|n| format!("- 127.1.{}.{}:1\n", n / 200, n % 200)).collect();
    fs::write(&file, many).expect("ours");
    eventually("the file's members are told", || last_id(&proxy) > since);
    let events = events(&proxy, &format!("?since={since}"));
    let counts: Vec<u64> = events.iter().map(|event| event["count"].as_u64().unwrap_or(1)).collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (11, 2_000), "the first ten by name, the others by number");
    assert_eq!((&events[10]["member"], &events[10]["from"]), (&Value::Null, &"added".into()));
}

/// So many transitions, one after the other; an even number leaves the member as it was.
pub fn turn(proxy: &Proxy, member: &str, times: usize) {
    let mut connection = Connection::open(proxy.admin());
    for n in 0..times {
        let word = if n % 2 == 0 { "drain" } else { "enable" };
        let post = format!("POST /api/v1/pools/web/members/{member}/{word} HTTP/1.1\r\nHost: {}\r\n", proxy.admin());
        connection.send(format!("{post}Content-Length: 0\r\n\r\n"));
        assert_eq!(connection.reply().status, 200);
    }
}

#[test]
fn the_list_is_read_on_from_where_it_was_and_says_what_is_lost() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config_of(&[a.to_string(), b.to_string()], "probe: off"));
    turn(&proxy, &a.address(), 7);
    let ids = |list: &Value| -> Vec<u64> {
        list["events"].as_array().expect("a list").iter().filter_map(|event| event["id"].as_u64()).collect()
    };
    let latest = list(&proxy, "?limit=2");
    let last = latest["last_id"].as_u64().expect("a number");
    assert_eq!(ids(&latest), [last - 1, last], "the latest, newest last");
    let page = list(&proxy, "?since=0&limit=3");
    assert_eq!((ids(&page), &page["missed"], &page["restarted"]), (vec![1, 2, 3], &0.into(), &false.into()));
    let next = page["next"].as_str().expect("a cursor");
    assert_eq!(ids(&list(&proxy, &format!("?since={next}&limit=2"))), [4, 5]);
    assert_eq!(ids(&list(&proxy, &format!("?since={last}"))), [0_u64; 0]);
    // Of another process: everything is new, and that is said.
    for other in ["00000000-3".to_owned(), (last + 1).to_string()] {
        let list = list(&proxy, &format!("?since={other}&limit=1"));
        assert_eq!((ids(&list), &list["restarted"]), (vec![1], &true.into()), "{other}");
    }
    assert_eq!(events(&proxy, &format!("?member={}", b.address())).len(), 0);
    assert_eq!(events(&proxy, &format!("?pool=web&kind=member&member={}", a.address())).len(), 7);
    turn(&proxy, &b.address(), 1_000);
    let list = list(&proxy, "?since=2&limit=1000");
    let last = list["last_id"].as_u64().expect("a number");
    assert_eq!(ids(&list), (last - 999..=last).collect::<Vec<_>>(), "the last thousand are kept");
    assert_eq!((&list["first_id"], &list["missed"]), (&(last - 999).into(), &(last - 1_000 - 2).into()));
}

#[test]
fn a_question_that_cannot_be_meant_is_a_problem() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config_of(&[origin.to_string()], "probe: off"));
    for query in ["limit=0", "limit=1001", "since=-1", "since=x", "kind=bogus", "sinc=1", "limit=1&limit=2", "pool=%ff"]
    {
        for path in ["/api/v1/events", "/api/v1/events/stream"] {
            let reply = proxy.admin_get(&format!("{path}?{query}"));
            assert_eq!((reply.status, reply.field("content-type")), (400, Some("application/problem+json")), "{query}");
            let problem = reply.json();
            assert_eq!((&problem["type"], &problem["title"]), (&"about:blank".into(), &"Bad Request".into()));
        }
    }
}

#[test]
fn every_answer_has_its_manners() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    let host = format!("Host: {}", proxy.admin());
    let ask = |method: &str, path: &str, fields: &[&str]| {
        client::request(proxy.admin(), method, path, &[&[host.as_str()], fields].concat(), "")
    };
    let act = format!("/api/v1/pools/web/members/{}/drain", origin.address());
    let rows = [
        ("GET", "/livez", 200, None),
        ("HEAD", "/api/v1/pools", 200, None),
        ("HEAD", "/api/v1/events/stream", 200, None),
        ("GET", "/api/v1/openapi.json", 200, None),
        ("GET", "/nothing", 404, None),
        ("GET", "/api/v1/pools/%ff", 400, None),
        ("DELETE", "/api/v1/pools", 405, Some("GET,HEAD")),
        ("TRACE", "/api/v1/events/stream", 405, Some("GET,HEAD")),
        ("GET", act.as_str(), 405, Some("POST")),
    ];
    for (method, path, status, allow) in rows {
        let reply = ask(method, path, &[]);
        let fields = ["cache-control", "x-content-type-options", "allow"].map(|name| reply.field(name));
        assert_eq!((reply.status, fields), (status, [Some("no-store"), Some("nosniff"), allow]), "{method} {path}");
        let kind = reply.field("content-type").unwrap_or_default();
        assert_eq!(kind == "application/problem+json", status >= 400, "{method} {path}: {kind}");
        assert_eq!(reply.body.is_empty(), method == "HEAD", "{method} {path}");
    }
    let mut large = Connection::open(proxy.admin());
    let large = large.send(format!("POST {act} HTTP/1.1\r\n{host}\r\nContent-Length: 100000\r\n\r\n")).reply();
    assert_eq!((large.status, &large.json()["status"]), (413, &413.into()));
    for kind in ["application/json", "text/plain", "application/x-www-form-urlencoded; charset=\"", "nonsense"] {
        let field = format!("Content-Type: {kind}");
        let reply = client::request(proxy.admin(), "POST", &act, &[&host, &field], "{\"a\": 1}");
        assert_eq!((reply.status, &reply.json()["admin"]), (200, &"draining".into()), "{kind}");
    }
}

#[test]
fn the_configuration_in_force_is_shown_without_its_secrets() {
    let origin = Origin::start();
    let admin = "admin: { address: \"127.0.0.1:0\", token: \"${ADMIN_TOKEN}\" }\n";
    let probe = PROBE.replace(
        "path: /healthz",
        "path: \"/healthz?api_key=${PROBE_KEY}&deep=1\", headers: { X-Api-Token: \"${PROBE_KEY}\", X-Plain: shown }",
    );
    let config = |more: &str| format!("{admin}{}", config_of(&[origin.to_string()], &format!("{probe}\n{more}")));
    let proxy = Proxy::start_with(&config(""), &[("ADMIN_TOKEN", "hid1den"), ("PROBE_KEY", "hid2den")]);
    let reply = proxy.admin_get("/api/v1/config");
    let (text, shown) = (reply.text(), reply.json());
    assert_eq!((reply.status, &shown["generation"]), (200, &1.into()), "{text}");
    assert!(!text.contains("hid1den") && !text.contains("hid2den"), "{text}");
    assert_eq!(shown["config"]["admin"]["token"], "********");
    let probe = &shown["config"]["pools"]["web"]["probe"];
    assert_eq!(probe["path"], "/healthz?api_key=********&deep=1");
    assert_eq!(probe["headers"], serde_json::json!({ "X-Api-Token": "********", "X-Plain": "shown" }));
    assert!(shown["path"].as_str().is_some_and(|path| path.ends_with("proxy.yaml")), "{text}");
    proxy.reload(&config("required: true"));
    let after = proxy.admin_get("/api/v1/config").json();
    assert_eq!((&after["generation"], &after["config"]["pools"]["web"]["required"]), (&2.into(), &true.into()));
    assert!(after["since"].as_str() > shown["since"].as_str(), "{after}");
}

/// What the document says is there, is there, with those methods and no others.
#[test]
fn the_document_and_the_listener_agree_on_paths_and_methods() {
    let origin = Origin::start();
    let proxy = Proxy::start(&pool_config(&[&origin], ""));
    let document = proxy.admin_get("/api/v1/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 8, "{:?}", paths.keys());
    let host = format!("Host: {}", proxy.admin());
    for (path, operations) in paths {
        let mut documented: Vec<String> =
            operations.as_object().expect("operations").keys().map(|method| method.to_uppercase()).collect();
        if documented.contains(&"GET".to_owned()) {
            documented.push("HEAD".to_owned());
        }
        documented.sort();
        let path = path.replace(['{', '}'], "");
        let reply = client::request(proxy.admin(), "PATCH", &path, &[&host], "");
        let mut allowed: Vec<&str> = reply.field("allow").unwrap_or_default().split(',').collect();
        allowed.sort_unstable();
        assert_eq!((reply.status, allowed), (405, documented.iter().map(String::as_str).collect()), "{path}");
    }
}

#[test]
fn new_endpoints_are_guarded_like_the_others() {
    let origin = Origin::start();
    let pools = config_of(&[origin.to_string()], "probe: off");
    let public = Proxy::start(&format!("admin: {{ address: \"0.0.0.0:0\", token: s3cret }}\n{pools}"));
    let local = Proxy::start(&pools);
    for path in ["/api/v1/events", "/api/v1/events/stream", "/api/v1/config", "/api/v1/openapi.json"] {
        let refused = public.admin_get(path);
        assert_eq!((refused.status, refused.field("www-authenticate")), (401, Some("Bearer")), "{path}");
        assert_eq!(refused.field("cache-control"), Some("no-store"), "{path}");
        let bearing = ["Host: a", "Authorization: Bearer s3cret"];
        assert_eq!(client::request(public.admin(), "HEAD", path, &bearing, "").status, 200, "{path}");
        let rebound = client::request(local.admin(), "GET", path, &["Host: evil.test"], "");
        assert_eq!((rebound.status, &rebound.json()["status"]), (421, &421.into()), "{path}");
    }
}
