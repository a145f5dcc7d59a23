//! What a probe saw when a member became unhealthy: kept within its bound, listed, and never at a probe's cost.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::proxy::{PROBE, Proxy, config_of, pool_config};
use crate::harness::scrape::Scrape;
use crate::harness::{Answer, Origin, Step, When, eventually, eventually_some};

/// A pool of this origin whose falls are kept in `path`.
fn kept_in(path: &Path, more: &str, origin: &Origin) -> String {
    format!("diagnostics: {{ path: {}{more} }}\n{}", path.display(), pool_config(&[origin], ""))
}

/// The list, once it has this many.
#[track_caller]
fn listed(proxy: &Proxy, query: &str, count: usize) -> Vec<Value> {
    eventually_some(&format!("{count} falls are listed"), || {
        let shown = proxy.admin_get(&format!("/api/v1/diagnostics{query}")).json();
        shown["diagnostics"].as_array().filter(|all| all.len() == count).cloned()
    })
}

/// What is kept of one.
#[track_caller]
fn case(proxy: &Proxy, id: &Value) -> Value {
    let reply = proxy.admin_get(&format!("/api/v1/diagnostics/{}", id.as_str().expect("an id")));
    assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")), "{}", reply.text());
    reply.json()
}

fn files(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Makes the member unhealthy, and healthy again.
#[track_caller]
fn fall_and_rise(proxy: &Proxy, origin: &Origin) {
    let verdict = |wanted: &str| {
        eventually(wanted, || proxy.member("web", &origin.address())["verdict"] == wanted);
    };
    origin.when(When::probe(), Answer::status(503));
    verdict("unhealthy");
    origin.when(When::probe(), Answer::status(200));
    verdict("healthy");
}

#[test]
fn what_the_probe_that_decided_saw_is_kept_and_listed() {
    let (bad, good) = (Origin::start(), Origin::start());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("made/on/demand");
    let config = format!("diagnostics: {{ path: {} }}\n{}", path.display(), pool_config(&[&bad, &good], ""));
    let config = config.replace(
        "path: /healthz",
        "path: '/healthz?deep=1&sig=SeCrEt-Of-Query', headers: { Authorization: Bearer-123 }",
    );
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    bad.when(When::probe(), Answer::status(503).field("X-Seen: Bearer-123").body("database: timeout"));
    let event = proxy.await_event(0, &[("member", &bad.address()), ("to", "unhealthy")]);
    let [short] = <[Value; 1]>::try_from(listed(&proxy, "", 1)).expect("one");
    assert_eq!((&short["pool"], &short["member"]), (&"web".into(), &bad.address().into()), "{short}");
    let whole = case(&proxy, &short["id"]);
    let words = |key: &str| whole[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(words("detail"), "503, expected 200-299", "{whole}");
    assert_eq!(
        (words("from"), words("reason"), words("window")),
        ("healthy".into(), "status".into(), event.text("window").into())
    );
    assert_eq!((&whole["status"], &whole["probe"]["peer"]), (&503.into(), &bad.address().into()), "{whole}");
    assert!(whole["probe"]["total_ms"].as_f64() > Some(0.0) && whole["probe"]["tls_ms"].is_null(), "{whole}");
    let text = |key: &str| whole[key]["text"].as_str().unwrap_or_default().to_owned();
    assert!(text("request").starts_with("GET /healthz?deep=1&sig=******** HTTP/1.1\r\nHost: "), "{whole}");
    assert!(text("request").contains("Authorization: ********\r\n"), "{whole}");
    assert!(text("head").starts_with("HTTP/1.1 503 Scripted\r\nX-Seen: ********\r\n"), "{whole}");
    assert_eq!(text("body"), "database: timeout");
    let events = proxy.admin_get("/api/v1/events?kind=member").json();
    let told = events["events"].as_array().expect("a list").iter().find(|event| event["to"] == "unhealthy").cloned();
    let told = told.expect("the event");
    assert_eq!(words("event"), format!("{}-{}", events["instance"].as_str().unwrap_or_default(), told["id"]));
    assert_eq!(words("time"), told["time"].as_str().unwrap_or_default());
    let names = files(&path);
    assert_eq!(names, [format!("{}.json", short["id"].as_str().unwrap_or_default())]);
    let on_disk: Value = serde_json::from_slice(&fs::read(path.join(&names[0])).expect("ours")).expect("json");
    assert_eq!(on_disk, whole);
    for (query, count) in [("?pool=web", 1), ("?pool=api", 0), (&format!("?member={}", good.address()), 0)] {
        listed(&proxy, query, count);
    }
    assert_eq!(proxy.admin_get("/api/v1/diagnostics?limit=0").status, 400);
    for id in ["none", "..%2f..%2fproxy.yaml", "20260101T000000.000Z-00000000-00000001"] {
        assert_eq!(proxy.admin_get(&format!("/api/v1/diagnostics/{id}")).status, 404, "{id}");
    }
    assert_eq!(Scrape::of(&proxy).value("diagnostics_total{result=\"written\"}"), 1.0);
}

#[test]
fn whatever_came_is_kept_to_the_byte() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let proxy = Proxy::start(&kept_in(folder.path(), "", &origin));
    // Not UTF-8; no answer at all; an answer that does not end.
    let binary = Answer::status(500).body(b"\xff\x00\xfe".to_vec());
    let other = Answer::raw(vec![Step::Bytes(b"SSH-2.0-\xffx\r\n\r\n".to_vec()), Step::Close]);
    let endless =
        Answer::status(503).field("Content-Length: 100").steps(vec![Step::Bytes(b"begun".to_vec()), Step::Hang]);
    for (fell, answer) in [binary, other, endless].into_iter().enumerate() {
        proxy.await_all_healthy();
        origin.when(When::probe(), answer);
        let newest = listed(&proxy, "", fell + 1)[0].clone();
        let whole = case(&proxy, &newest["id"]);
        match fell {
            0 => assert_eq!(whole["body"], serde_json::json!({ "text": null, "base64": "/wD+" })),
            1 => assert_eq!(whole["head"]["base64"], "U1NILTIuMC3/eA0KDQo=", "{whole}"),
            _ => assert_eq!(whole["body"]["text"], "begun", "{whole}"),
        }
        origin.when(When::probe(), Answer::status(200));
    }
}

#[test]
fn what_a_clock_that_was_ahead_has_dated_goes_first_and_a_directory_stays() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ahead = |number: u64| format!("29990101T000000.000Z-1a2b3c4d-{number:08}");
    let summary = |id: &str| {
        let time = "2999-01-01T00:00:00.000Z";
        serde_json::json!({ "id": id, "time": time, "event": "1a2b3c4d-1", "pool": "web", "member": "gone" })
            .to_string()
    };
    for id in [ahead(1), ahead(2)] {
        fs::write(folder.path().join(format!("{id}.json")), summary(&id)).expect("ours");
    }
    let old = folder.path().join("20010101T000000.000Z-1a2b3c4d-00000001.json");
    fs::create_dir(&old).expect("ours");
    let proxy = Proxy::start(&kept_in(folder.path(), ", max_files: 2", &origin));
    proxy.await_all_healthy();
    fall_and_rise(&proxy, &origin);
    eventually("the fall is kept", || listed(&proxy, "", 2)[0]["id"] != ahead(2).as_str());
    assert_eq!(listed(&proxy, "", 2)[1]["id"], ahead(2).as_str(), "what was written last comes first");
    fall_and_rise(&proxy, &origin);
    eventually("the next one too", || listed(&proxy, "", 2)[1]["id"] != ahead(2).as_str());
    assert!(old.is_dir() && files(folder.path()).len() == 3, "{:?}", files(folder.path()));
}

#[test]
fn the_bound_holds_over_restarts_and_reloads() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("notes.json"), "mine").expect("ours");
    let first = Proxy::start(&kept_in(folder.path(), "", &origin));
    (1..=3).for_each(|fell| {
        fall_and_rise(&first, &origin);
        listed(&first, "", fell);
    });
    let before = files(folder.path());
    drop(first);
    let second = Proxy::start(&kept_in(folder.path(), ", max_files: 3", &origin));
    let found = listed(&second, "", 3);
    second.await_all_healthy();
    fall_and_rise(&second, &origin);
    eventually("the newest is another one", || listed(&second, "", 3)[0]["id"] != found[0]["id"]);
    let after = files(folder.path());
    assert_eq!((after.len(), &after[..2]), (4, &before[1..3]), "the oldest is gone, and nobody else's");
    assert!(after.contains(&"notes.json".to_owned()));
    second.reload(&kept_in(folder.path(), ", max_files: 1", &origin));
    eventually("a lower bound drops at once", || files(folder.path()).len() == 2);
    second.reload(&pool_config(&[&origin], ""));
    listed(&second, "", 0);
    fall_and_rise(&second, &origin);
    assert_eq!(files(folder.path()).len(), 2, "nothing is kept, and what is there stays");
    let id = found[0]["id"].as_str().expect("an id");
    let reply = second.admin_get(&format!("/api/v1/diagnostics/{id}"));
    assert!(reply.status == 404 && reply.text().contains("`diagnostics: { path: DIRECTORY }`"), "{}", reply.text());
}

#[test]
fn a_directory_that_cannot_be_had_costs_a_line_and_a_count() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file/in-the-way");
    fs::write(folder.path().join("file"), "").expect("ours");
    let proxy = Proxy::start(&kept_in(&path, "", &origin));
    proxy.await_all_healthy();
    let line = proxy.await_log("it is told of", 0, |line| line.text("target") == "diagnostics");
    assert!(line.raw.contains("cannot be kept") && line.raw.contains("in-the-way"), "{}", line.raw);
    let failed = || Scrape::of(&proxy).value("diagnostics_total{result=\"failed\"}");
    for fell in 1..=2 {
        fall_and_rise(&proxy, &origin);
        eventually("it is counted", || failed() == f64::from(fell));
    }
    let told = proxy.log().into_iter().filter(|line| line.text("target") == "diagnostics").count();
    assert_eq!(told, 1, "it is told of once");
    fs::remove_file(folder.path().join("file")).expect("ours");
    fall_and_rise(&proxy, &origin);
    listed(&proxy, "", 1);
}

#[test]
fn all_members_falling_at_once_stay_within_the_bound() {
    const MEMBERS: usize = 400;
    let origin = Origin::start_everywhere();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let members: Vec<String> =
        (0..MEMBERS).map(|n| format!("\"127.0.{}.{}:{}\"", 3 + n / 200, 1 + n % 200, origin.port())).collect();
    let config =
        format!("diagnostics: {{ path: {}, max_files: 20 }}\n{}", folder.path().display(), config_of(&members, PROBE));
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    origin.when(When::probe(), Answer::status(503));
    let unhealthy =
        || proxy.pool("web")["members"].as_array().is_some_and(|all| all.iter().all(|m| m["verdict"] == "unhealthy"));
    eventually("all have fallen", unhealthy);
    eventually("all are accounted for", || {
        let scrape = Scrape::of(&proxy);
        let count = |result: &str| scrape.value(&format!("diagnostics_total{{result=\"{result}\"}}"));
        assert_eq!(count("failed"), 0.0);
        count("written") + count("dropped") >= MEMBERS as f64
    });
    assert_eq!(files(folder.path()).len(), 20);
    listed(&proxy, "", 20);
}
