//! What a reload says it has done, by the API and by the command line, and an operator's word from there.

use serde_json::{Value, json};

use crate::harness::process::{Ended, run};
use crate::harness::proxy::{Proxy, config_of, pool_config};
use crate::harness::{Answer, Gate, Origin, When, eventually};

/// A configuration of two pools, two listeners and two routes.
fn base(a: &Origin, b: &Origin) -> String {
    format!(
        "listeners: [{{ address: \"127.0.0.1:0\", name: one }}, {{ address: \"127.0.0.1:0\", name: two }}]\nthreads: 1\n\
         pools:\n  web: {{ members: [{a}], probe: off }}\n  api: {{ members: [{b}], probe: off }}\n\
         routes: [{{ pool: web }}, {{ path: /api, pool: api }}]\n"
    )
}

#[test]
fn the_report_names_what_has_changed_and_what_needs_a_restart() {
    let (a, b, c) = (Origin::start(), Origin::start(), Origin::start());
    let base = base(&a, &b);
    let proxy = Proxy::start(&base);
    let changed = base
        .replace(&format!("web: {{ members: [{a}]"), &format!("web: {{ balance: random, members: [{a}, {c}]"))
        .replace("  api:", "  new:")
        .replace("pool: api", "pool: new")
        .replace("name: two", "name: three")
        .replace("name: one", "name: one, keepalive_timeout: 5s")
        .replace("threads: 1", "threads: 2\nlame_duck: 1s\nadmin: { address: \"127.0.0.1:1\" }");
    let report = proxy.report(&changed);
    let expected = json!({
        "generation": 2,
        "unchanged": false, "last_change": null,
        "pools": {
            "added": ["new"],
            "removed": ["api"],
            "changed": [{
                "name": "web",
                "keys": ["balance", "members"],
                "members": { "added": [c.address()], "removed": [], "new_identity": [], "kept": 1, "unverified": 0 },
            }],
            "kept": [],
        },
        "members": { "added": 1, "removed": 0, "new_identity": 0, "kept": 1, "unverified": 0 },
        "composites": { "added": [], "removed": [], "changed": [], "kept": 0 },
        "routes": { "added": [], "removed": [], "changed": ["/api"], "kept": 1 },
        "listeners": { "added": ["three"], "removed": ["two"], "changed": ["one"], "kept": 0 },
        "sections": ["lame_duck"],
        "needs_restart": ["admin.address", "threads"],
        "advice": [report["advice"][0]],
    });
    assert!(report["advice"][0]["message"].as_str().is_some_and(|told| told.contains("not probed")), "{report:#}");
    assert_eq!(report, expected, "{report:#}");
    // It is said each time, until there is a restart.
    let again = proxy.report(&changed);
    assert_eq!((&again["unchanged"], &again["needs_restart"]), (&json!(true), &expected["needs_restart"]), "{again}");
    let shown = proxy.reloads();
    assert_eq!(
        (&shown["taken"], &shown["unchanged"], &shown["generation"]),
        (&json!(1), &json!(1), &json!(2)),
        "{shown}"
    );
    assert_eq!(shown["last"]["report"], again);
}

#[test]
fn a_refused_reload_answers_with_every_problem_at_its_place() {
    let origin = Origin::start();
    let good = pool_config(&[&origin], "");
    let proxy = Proxy::start(&good);
    proxy.rewrite(&good.replace("probe:", "prob:").replace("{ pool: web }", "{ pool: gone }"));
    let reply = proxy.admin_post("/api/v1/reload", &[]);
    assert_eq!((reply.status, reply.field("content-type")), (422, Some("application/problem+json")));
    let problem = reply.json();
    let problems = problem["problems"].as_array().expect("problems").clone();
    assert_eq!(problems.len(), 2, "{problem}");
    for (problem, word) in problems.iter().zip(["prob", "gone"]) {
        assert!(problem["message"].as_str().is_some_and(|message| message.contains(word)), "{problem}");
        assert!(problem["line"].as_u64() > Some(1) && problem["column"].as_u64() > Some(1), "{problem}");
        assert_eq!(problem["severity"], "error");
    }
    let shown = proxy.reloads();
    assert_eq!((&shown["good"], &shown["last"]["result"]), (&json!(false), &json!("refused")), "{shown}");
    assert_eq!(shown["last"]["problems"], Value::Array(problems));
    let report = proxy.report(&good);
    assert_eq!((&report["unchanged"], &proxy.reloads()["good"]), (&json!(true), &json!(true)));
}

#[test]
fn a_process_that_ends_takes_nothing_new() {
    let proxy = Proxy::start(&format!("lame_duck: 60s\n{}", config_of(&["\"127.0.0.1:1\"".to_owned()], "probe: off")));
    proxy.signal("TERM");
    eventually("it is ending", || proxy.admin_get("/readyz").status == 503);
    assert_eq!(proxy.admin_post("/api/v1/reload", &[]).status, 503);
}

/// `pulsegate ARGS --admin …`.
fn operate(proxy: &Proxy, args: &[&str], env: &[(&str, &str)]) -> Ended {
    let admin = proxy.admin().to_string();
    run(proxy.dir(), &[args, &["--admin", &admin]].concat(), env)
}

#[test]
fn the_command_line_reloads_and_says_what_has_changed_or_what_is_wrong() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&base(&a, &b));
    proxy.rewrite(&base(&a, &b).replace("  api:", "  new:").replace("pool: api", "pool: new"));
    let ended = operate(&proxy, &["reload"], &[]);
    let expected =
        "generation 2\npools added: new\npools removed: api\npools kept as they were: web\nroutes changed: /api\n";
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), expected), "{ended:?}");
    let ended = operate(&proxy, &["reload", "--format", "json"], &[]);
    let report: Value = serde_json::from_str(&ended.stdout).expect("json");
    assert_eq!((ended.code, &report["unchanged"]), (Some(0), &json!(true)), "{ended:?}");
    proxy.rewrite("pools: {}\n");
    let ended = operate(&proxy, &["reload"], &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.lines().filter(|line| line.contains("proxy.yaml:") && line.contains("error:")).count() > 1,
        "{ended:?}"
    );
    assert!(ended.reason().contains("reload refused"), "{ended:?}");
}

#[test]
fn an_operators_word_is_given_from_the_command_line() {
    let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
    b.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let proxy = Proxy::of(&[&a, &b], "");
    proxy.await_all_healthy();
    let (address, admin) = (b.address(), |proxy: &Proxy| proxy.member("web", &b.address())["admin"].clone());
    let ended = operate(&proxy, &["disable", "web", &address], &[]);
    assert_eq!((ended.code, admin(&proxy)), (Some(0), json!("disabled")), "{ended:?}");
    assert!(
        ended.stdout.starts_with(&format!("{address} of web: disabled, stands disabled; 0 in flight")),
        "{ended:?}"
    );
    assert_eq!(operate(&proxy, &["enable", "web", &address], &[]).code, Some(0));
    proxy.await_standing(&b, "healthy");
    let mut held: Vec<_> = (0..2).map(|_| proxy.connect()).collect();
    for client in &mut held {
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("a request is at the member", || gate.waiting() == 1);
    // Somebody who does not wait as long as it takes.
    let ended = operate(&proxy, &["drain", "web", &address, "--wait", "10ms"], &[]);
    assert_eq!((ended.code, admin(&proxy)), (Some(1), json!("draining")), "{ended:?}");
    assert!(
        ended.reason().contains(&format!("still 1 request on {address} after 10ms; it stays drained")),
        "{ended:?}"
    );
    gate.open();
    let ended = operate(&proxy, &["drain", "web", &address, "--wait", "30s"], &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("draining; 0 in flight\npool web: 1 of 2 in rotation\n"), "{ended:?}");
    assert!(!ended.stderr.contains("warning"), "the pool is no worse than before: {ended:?}");
    let known = format!("has no member \"127.0.0.1:1\"; there are {}, {address}", a.address());
    let rows = [
        (["drain", "web", "127.0.0.1:1"], known.as_str()),
        (["enable", "gone", &address], "no pool \"gone\"; there is web"),
    ];
    for (args, words) in rows {
        let ended = operate(&proxy, &args, &[]);
        assert!(ended.code == Some(1) && ended.reason().contains(words), "{ended:?}");
    }
}

#[test]
fn who_takes_the_last_member_out_is_told_what_that_means() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::of(&[&a, &b], "");
    proxy.await_all_healthy();
    a.when(When::probe(), Answer::status(503));
    proxy.await_standing(&a, "ejected");
    // Who passes no probe is all that is left.
    let ended = operate(&proxy, &["drain", "web", &b.address()], &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("warning: pool web is in the fallback now: nobody is healthy; 1 of 2"), "{ended:?}");
    let ended = operate(&proxy, &["disable", "web", &a.address()], &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.reason(), "pulsegate: warning: pool web is down now: nobody may serve", "{ended:?}");
    assert!(ended.stdout.ends_with("pool web: down, nobody may serve\n"), "{ended:?}");
    // It is no worse than before.
    let ended = operate(&proxy, &["disable", "web", &b.address()], &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let ended = operate(&proxy, &["enable", "web", &b.address(), "--format", "json"], &[]);
    let member: Value = serde_json::from_str(&ended.stdout).expect("json alone");
    assert_eq!(member["admin"], "enabled", "{ended:?}");
}

#[test]
fn a_reload_that_comes_after_the_file_was_taken_says_so() {
    let (a, b) = (Origin::start(), Origin::start());
    let base = format!("reload: {{ every: 1h }}\n{}", base(&a, &b));
    let proxy = Proxy::start(&base);
    let ended = operate(&proxy, &["reload"], &[]);
    assert_eq!(ended.stdout, "generation 1, unchanged\n", "{ended:?}");
    proxy.rewrite(&base.replace("  web: {", "  web: { balance: random,"));
    eventually("it is taken", || proxy.reloads()["generation"] == 2);
    let ended = operate(&proxy, &["reload"], &[]);
    let said = ended.stdout.trim_end();
    assert!(said.starts_with("generation 2, unchanged; taken "), "{ended:?}");
    assert!(said.ends_with(" ago when the file changed: pools: 1 changed (web)"), "{ended:?}");
    let report = proxy.admin_post("/api/v1/reload", &[]).json();
    assert_eq!(report["last_change"]["cause"], "file", "{report}");
    assert!(!proxy.log().iter().any(|line| line.text("target").starts_with("notify")), "{:?}", proxy.log());
}

#[test]
fn the_token_comes_from_a_file_or_the_environment_and_its_absence_is_explained() {
    let config = config_of(&["\"127.0.0.1:1\"".to_owned()], "probe: off");
    let proxy = Proxy::start(&format!("admin: {{ address: \"127.0.0.1:0\", token: s3cret }}\n{config}"));
    std::fs::write(proxy.dir().join("token"), "s3cret\n").expect("ours");
    type Row = (&'static [&'static str], &'static [(&'static str, &'static str)], i32, &'static str);
    let rows: [Row; 6] = [
        (&["reload"], &[], 1, "--token-file"),
        (&["reload"], &[("PULSEGATE_TOKEN", "s3cret")], 0, ""),
        (&["reload"], &[("PULSEGATE_TOKEN", "wrong")], 1, "the token in $PULSEGATE_TOKEN is not the proxy's"),
        (&["reload", "--token-file", "token"], &[], 0, ""),
        (&["reload", "--token-file", "none"], &[], 1, "cannot be read"),
        (&["reload", "--token", "s3cret"], &[], 2, ""),
    ];
    for (args, env, code, words) in rows {
        let ended = operate(&proxy, args, env);
        assert_eq!(ended.code, Some(code), "{args:?} {ended:?}");
        assert!(code == 2 || ended.reason().contains(words), "{args:?} {ended:?}");
    }
}

/// Runs `drain --wait` on `b`, which has a request that `meanwhile` is called with, and gives what it says in the end.
#[track_caller]
fn drained(more: &str, format: &str, meanwhile: impl FnOnce(&Proxy, &Origin, &Origin)) -> Ended {
    let (a, b, gate) = (Origin::start(), Origin::start(), Gate::new());
    b.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let proxy = Proxy::of(&[&a, &b], more);
    proxy.await_all_healthy();
    let mut held: Vec<_> = (0..2).map(|_| proxy.connect()).collect();
    for client in &mut held {
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("a request is at the member", || gate.waiting() == 1);
    let address = b.address();
    std::thread::scope(|scope| {
        let draining =
            scope.spawn(|| operate(&proxy, &["drain", "web", &address, "--wait", "2s", "--format", format], &[]));
        eventually("it drains", || proxy.member("web", &address)["admin"] == "draining");
        meanwhile(&proxy, &a, &b);
        draining.join().expect("it ends")
    })
}

#[test]
fn a_wait_for_a_drain_that_did_not_happen_fails() {
    let ended = drained("", "text", |proxy, a, _| proxy.reload(&pool_config(&[a], "")));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.reason().contains("is not in web any more; 1 in flight in the whole pool"), "{ended:?}");
    let enable = |proxy: &Proxy, _: &Origin, b: &Origin| {
        let path = format!("/api/v1/pools/web/members/{}/enable", b.address());
        assert_eq!(proxy.admin_post(&path, &[]).status, 200);
    };
    let ended = drained("", "json", enable);
    assert!(ended.code == Some(1) && ended.reason().contains("it was enabled meanwhile"), "{ended:?}");
    let member: Value = serde_json::from_str(&ended.stdout).expect("json");
    assert_eq!((&member["admin"], &member["in_flight"]), (&json!("enabled"), &json!(1)), "{member}");
}

#[test]
fn a_member_that_leaves_and_has_nothing_left_is_drained_and_a_wait_may_be_as_long_as_it_likes() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::of(&[&a, &b], "");
    proxy.await_all_healthy();
    let ended = operate(&proxy, &["drain", "web", &b.address(), "--wait", "500000000000years"], &[]);
    assert!(ended.code == Some(0) && ended.stdout.contains("draining; 0 in flight"), "{ended:?}");
    let json = ["drain", "web", &b.address(), "--wait", "1s", "--format", "json"];
    let member: Value = serde_json::from_str(&operate(&proxy, &json, &[]).stdout).expect("json");
    assert_eq!(member["admin"], "draining");
}

/// As in a restart of members one after the other: what is healthy by its verdict need not listen yet.
#[test]
fn whoever_waits_for_a_member_to_be_back_waits_for_a_probe_made_since() {
    let (a, b) = (Origin::start(), Origin::start());
    let keys = "probe: { path: /healthz, interval: 60s, timeout: 5s, consecutive: { failures: 10, passes: 1 } }";
    let proxy = Proxy::start(&config_of(&[a.to_string(), b.to_string()], keys));
    proxy.await_all_healthy();
    let address = b.address();
    assert_eq!(operate(&proxy, &["drain", "web", &address, "--wait", "30s"], &[]).code, Some(0));
    b.when(When::probe(), Answer::status(503));
    let ended = operate(&proxy, &["enable", "web", &address, "--wait", "100ms"], &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.reason().contains("no probe has passed since"), "{ended:?}");
    assert_eq!(proxy.member("web", &address)["admin"], "enabled", "it stays so");
    let before = b.probe_count();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| operate(&proxy, &["enable", "web", &address, "--wait", "10m"], &[]));
        eventually("it is probed again and again", || b.probe_count() > before + 2);
        assert!(!waiting.is_finished());
        b.when(When::probe(), Answer::status(200));
        let ended = waiting.join().expect("it ends");
        assert!(ended.code == Some(0) && ended.stdout.contains("stands healthy"), "{ended:?}");
    });
    let last = &proxy.member("web", &address)["last_probe"];
    assert_eq!(last["result"], "pass", "{last}");
    // Nobody asks members without a probe.
    proxy.reload(&config_of(&[a.to_string(), b.to_string()], "probe: off"));
    assert_eq!(operate(&proxy, &["enable", "web", &address, "--wait", "10m"], &[]).code, Some(0));
}

#[test]
fn a_token_from_a_pipe_is_read_once() {
    let origin = Origin::start();
    let config = config_of(&[origin.to_string()], "probe: off");
    let proxy = Proxy::start(&format!("admin: {{ address: \"127.0.0.1:0\", token: s3cret }}\n{config}"));
    let pipe = proxy.dir().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&pipe, "s3cret\n").expect("it is read"));
        let words = ["drain", "web", &origin.address(), "--wait", "1s", "--token-file", "pipe"];
        let ended = operate(&proxy, &words, &[]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    });
}

/// A traffic listener is as good as anybody's application.
#[test]
fn whoever_is_not_the_admin_api_is_asked_for_nothing_and_believed_nothing() {
    let origin = Origin::start();
    origin.answer(Answer::status(200).body("{}"));
    let proxy = Proxy::start(&config_of(&[origin.to_string()], "probe: off"));
    let admin = proxy.address().to_string();
    let member = origin.address();
    let rows: [&[&str]; 4] = [
        &["reload"],
        &["reload", "--format", "json"],
        &["drain", "web", &member, "--wait", "1s"],
        &["enable", "web", &member],
    ];
    for args in rows {
        let ended = run(proxy.dir(), &[args, &["--admin", &admin]].concat(), &[("PULSEGATE_TOKEN", "s3cret")]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{args:?} {ended:?}");
        assert!(ended.reason().contains("does not answer as the admin API does"), "{args:?} {ended:?}");
    }
    let asked = origin.seen();
    assert_eq!(asked.len(), rows.len());
    assert!(asked.iter().all(|seen| seen.target == "/livez" && seen.field("authorization").is_none()), "{asked:?}");
}

#[test]
fn an_admin_address_with_an_impossible_port_is_a_wrong_use() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for admin in ["127.0.0.1:99009", "127.0.0.1:", "localhost:65536"] {
        assert_eq!(run(folder.path(), &["reload", "--admin", admin], &[]).code, Some(2), "{admin}");
    }
}

#[test]
fn nobody_there_or_somebody_else_is_told_apart() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ended = run(folder.path(), &["reload", "--admin", "127.0.0.1:1"], &[]);
    assert!(ended.code == Some(1) && ended.reason().contains("no answer from 127.0.0.1:1"), "{ended:?}");
    origin.answer(Answer::status(404).body("not here"));
    let ended = run(folder.path(), &["reload"], &[("PULSEGATE_ADMIN", &format!("http://{}/", origin.address()))]);
    assert!(ended.code == Some(1) && ended.reason().contains("is it another listener?"), "{ended:?}");
    assert_eq!(run(folder.path(), &["reload", "--admin", "https://127.0.0.1:1"], &[]).code, Some(2));
}
