//! Probes that prove who they are, and that nobody is shown how (docs/probe-identity.md); where probes come from.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::process::run;
use crate::harness::proxy::{Proxy, config_of, write_config};
use crate::harness::{Answer, Origin, Step, eventually};

const SECRET: &str = "correct horse battery staple";
/// base64(SHA-256([`SECRET`])), by another program.
const PROOF: &str = "xLvLH77JnWW/WdhcjLYu4tuWPw/hBvSD2a+nO9Tjmoo=";
/// The same of `the next one`.
const NEXT: &str = "SbQhqETbfTfgGwEBW/RLAbMnXOZ/CHLmalkP0S/SYTw=";

fn probe(auth: &str) -> String {
    format!("probe: {{ path: /healthz, interval: 200ms, fast_interval: 50ms, timeout: 200ms, auth: {auth} }}")
}

/// The proofs of the probes so far.
fn proofs(origin: &Origin, field: &str) -> Vec<Option<String>> {
    origin.probes().iter().map(|seen| seen.field(field).map(str::to_owned)).collect()
}

#[test]
fn a_probe_proves_who_it_is_and_nobody_else_learns_how() {
    let origin = Origin::start();
    // An application that shows what it was sent, in its error.
    origin.answer(Answer::status(500).field(&format!("X-You-Sent: {PROOF}")).body(format!("{{\"got\":\"{PROOF}\"}}")));
    let members = [origin.to_string()];
    let preset = "preset: app_service\nprobe: { path: /healthz, interval: 200ms, timeout: 200ms, consecutive: { failures: 2 }, \
                  auth: { secret: \"${HEALTH_SECRET}\" }, expect: { headers: { x-you-sent: \"-\" }, status: \"200-599\" } }";
    let config = format!("diagnostics: {{ path: diagnostics }}\n{}", config_of(&members, preset));
    let env = [("HEALTH_SECRET", SECRET), ("PULSEGATE_LOG", "trace")];
    let proxy = Proxy::start_with(&config, &env);
    eventually("it is asked and judged", || proxy.member("web", &origin.address())["verdict"] == "unhealthy");
    assert!(proofs(&origin, "x-ms-auth-internal-token").iter().all(|proof| proof.as_deref() == Some(PROOF)));
    let listed = || proxy.admin_get("/api/v1/diagnostics").json();
    eventually("what was seen is kept", || listed()["diagnostics"].as_array().is_some_and(|all| !all.is_empty()));
    let id = listed()["diagnostics"][0]["id"].as_str().expect("an id").to_owned();
    let pages = ["config", "pools", "events", "diagnostics", &format!("diagnostics/{id}")];
    let mut shown: Vec<String> = pages.iter().map(|page| proxy.admin_get(&format!("/api/v1/{page}")).text()).collect();
    shown.push(proxy.admin_get("/metrics").text());
    shown.extend(proxy.log().into_iter().map(|line| line.raw));
    for args in [&["check", "proxy.yaml", "--format", "json"][..], &["check", "proxy.yaml"], &["probe", "web"]] {
        let ended = run(proxy.dir(), args, &env);
        shown.extend([ended.stdout, ended.stderr]);
    }
    for text in &shown {
        assert!(!text.contains(SECRET) && !text.contains(PROOF), "{text}");
    }
    assert!(shown.iter().any(|text| text.contains("X-Ms-Auth-Internal-Token: ********")), "{shown:?}");
    assert!(shown[0].contains("\"secret\":\"********\""), "{}", shown[0]);
    assert!(shown[4].contains("********") && shown[4].contains("got"), "{}", shown[4]);
}

#[test]
fn an_answer_that_repeats_the_proof_shows_it_to_nobody() {
    let origin = Origin::start();
    let auth = "{ header: x-proof, secret: \"${HEALTH_SECRET}\" }, expect: { headers: { x-state: ready } }";
    nothing_is_shown_of(&origin, auth, Answer::status(200).field("X-State: ready"), "= pass");
    let raw = |head: String| Answer::raw(vec![Step::Bytes(head.into_bytes()), Step::Close]);
    let written = [
        PROOF.to_owned(),
        PROOF.replace('/', "%2f").replace('+', "%2b").replace('=', "%3d"),
        PROOF.replace('/', "%2F"),
        PROOF.replace('=', "\\u003d"),
        PROOF.replace('+', "&#43;"),
        PROOF.replace('/', "&#x2F;").replace('=', "&#x3D;"),
        PROOF.trim_end_matches('=').to_owned(),
    ];
    for proof in written {
        // Wherever a line is cut.
        for before in [0, 5, 26, 170, 190] {
            let before = "y".repeat(before);
            let answers = [
                raw(format!("{before}{proof}\r\n\r\n")),
                raw(format!("HTTP/1.1 302 F\r\nLocation: /{before}{proof}\r\nContent-Length: 0\r\n\r\n")),
                Answer::status(200).field(&format!("X-State: {before}{proof}")).body(format!("<{before}{proof}>")),
            ];
            for answer in answers {
                nothing_is_shown_of(&origin, auth, answer, "= fail");
            }
        }
    }
}

/// Asks once, and finds the words but nothing of the proof.
#[track_caller]
fn nothing_is_shown_of(origin: &Origin, auth: &str, answer: Answer, words: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_config(folder.path(), &config_of(&[origin.to_string()], &probe(auth)));
    origin.answer(answer);
    let asked = run(folder.path(), &["probe", "web"], &[("HEALTH_SECRET", SECRET)]);
    let shown = format!("{}{}", asked.stdout, asked.stderr);
    assert!(shown.contains("X-Proof: ********") && shown.contains(words), "{shown}");
    assert!(!shown.contains(&PROOF[..4]), "{shown}");
}

#[test]
fn a_secret_that_an_answer_must_have_is_shown_no_more_than_one_that_is_sent() {
    const TOKEN: &str = "SECRETexpected1";
    let origin = Origin::start();
    origin.answer(Answer::status(500).field(&format!("X-Token: {TOKEN}")).body(format!("<{TOKEN}>")));
    let keys = format!(
        "probe: {{ path: /healthz, interval: 200ms, timeout: 200ms, expect: {{ headers: {{ x-token: {TOKEN} }} }} }}"
    );
    let config = format!("diagnostics: {{ path: diagnostics }}\n{}", config_of(&[origin.to_string()], &keys));
    let proxy = Proxy::start(&config);
    let listed = || proxy.admin_get("/api/v1/diagnostics").json();
    eventually("what was seen is kept", || listed()["diagnostics"].as_array().is_some_and(|all| !all.is_empty()));
    let id = listed()["diagnostics"][0]["id"].as_str().expect("an id").to_owned();
    let probed = run(proxy.dir(), &["probe", "web"], &[]);
    for shown in [proxy.admin_get(&format!("/api/v1/diagnostics/{id}")).text(), probed.stdout] {
        assert!(shown.contains("X-Token: ********") && shown.contains("<********>"), "{shown}");
        assert!(!shown.contains(TOKEN), "{shown}");
    }
}

#[test]
fn a_secret_in_a_file_is_followed_and_a_new_one_is_another_probe() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("secret");
    let write = |secret: &str| {
        fs::write(folder.path().join("part"), secret).expect("ours");
        fs::rename(folder.path().join("part"), &file).expect("ours");
    };
    write(&format!("{SECRET}\n"));
    let auth = format!("{{ header: x-proof, secret_file: {} }}", file.display());
    let proxy = Proxy::start(&config_of(&[origin.to_string()], &probe(&auth)));
    proxy.await_all_healthy();
    assert!(proofs(&origin, "x-proof").iter().all(|proof| proof.as_deref() == Some(PROOF)));
    write("the next one");
    eventually("the next one is proven", || proofs(&origin, "x-proof").last() == Some(&Some(NEXT.to_owned())));
    assert_eq!(proxy.member("web", &origin.address())["verdict"], "healthy", "the verdict is kept");
    let mark = proxy.mark();
    write("");
    let refused =
        proxy.await_log("an empty file is refused", mark, |line| line.text("message").contains("secret_file"));
    assert!(refused.raw.contains("it is empty"), "{}", refused.raw);
    eventually("the one before is still proven", || proofs(&origin, "x-proof").last() == Some(&Some(NEXT.to_owned())));
}

#[test]
fn a_secret_that_cannot_be_had_is_an_error_at_its_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("empty"), "\n").expect("ours");
    fs::write(folder.path().join("large"), vec![b'x'; 5000]).expect("ours");
    for (file, words) in [("gone", "cannot be read"), ("empty", "it is empty"), ("large", "more than 4096 bytes")] {
        let auth = format!("{{ header: x-proof, secret_file: {file} }}");
        write_config(folder.path(), &config_of(&["\"127.0.0.1:1\"".to_owned()], &probe(&auth)));
        let checked = run(folder.path(), &["check", "proxy.yaml"], &[]);
        assert_eq!(checked.code, Some(1), "{checked:?}");
        let line = checked.stdout.lines().find(|line| line.contains(words)).unwrap_or_default();
        assert!(line.starts_with("proxy.yaml:8:") && line.contains("`secret_file`"), "{checked:?}");
    }
}

#[test]
fn probes_come_from_the_address_they_are_bound_to() {
    let (plain, six) = (Origin::start(), Origin::start_v6());
    let bound = |members: &str, bind: &str| {
        format!(
            "{{ members: [{members}], probe: {{ path: /healthz, interval: 200ms, timeout: 200ms, bind: \"{bind}\" }} }}"
        )
    };
    let config = format!(
        "pools:\n  web: {}\n  six: {}\nroutes: [{{ pool: web }}]\n",
        bound(&plain.to_string(), "127.0.0.7"),
        bound(&six.to_string(), "::1")
    );
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    assert!(plain.probes().iter().all(|seen| seen.peer.to_string() == "127.0.0.7"), "{:?}", plain.probes());
    eventually("over IPv6 too", || proxy.member("six", &six.address())["verdict"] == "healthy");
    // TEST-NET-1 (RFC 5737) is no machine's.
    proxy.rewrite(&config.replace("127.0.0.7", "192.0.2.1"));
    let mark = proxy.mark();
    proxy.reload_is_refused();
    proxy.await_log("it says why", mark, |line| line.raw.contains("probes cannot come from there"));
}

#[test]
fn an_address_that_leads_to_no_member_is_no_member_s_fault() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // From loopback there is no way to another machine.
    let members = ["\"192.0.2.1:80\"".to_owned()];
    let keys = "probe: { path: /, interval: 200ms, timeout: 200ms, bind: 127.0.0.7 }";
    write_config(folder.path(), &config_of(&members, keys));
    let probed = run(folder.path(), &["probe", "web"], &[]);
    assert!(probed.stdout.contains("it would not be counted: local fault: cannot probe from 127.0.0.7"), "{probed:?}");
    let proxy = Proxy::start(&config_of(&members, keys));
    let line = proxy.await_log("it is told of", 0, |line| line.raw.contains("a probe taught nothing"));
    assert!(line.raw.contains("cannot probe from 127.0.0.7"), "{}", line.raw);
    assert_eq!(proxy.member("web", "192.0.2.1:80")["verdict"], "unknown");
}

/// The first example in this language of docs/probe-identity.md.
fn example(language: &str) -> String {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/probe-identity.md")).expect("the page");
    assert!(page.contains(&format!("| `{SECRET}` | `{PROOF}` |")), "the page has the known secret");
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("an example");
    rest.split("```").next().unwrap_or_default().to_owned()
}

/// Where there is no interpreter of a language there is nothing to show; the digests are compared in any case.
#[test]
fn the_examples_of_the_page_tell_a_probe_from_others() {
    let rows = [
        (
            "python",
            "python3",
            "-c",
            format!("print([is_probe(f) for f in ['{PROOF}', '{PROOF}x', 'é', '', None]])"),
            "[True, False, False, False, False]",
        ),
        (
            "js",
            "node",
            "-e",
            format!("console.log(['{PROOF}', '{PROOF}x', 'é', '', undefined].map(isProbe).join())"),
            "true,false,false,false,false",
        ),
    ];
    for (language, program, flag, question, answer) in rows {
        let text = format!("{}\n{question}\n", example(language));
        let asked = |secret: &str| Command::new(program).args([flag, &text]).env("PROBE_SECRET", secret).output();
        let Ok(output) = asked(SECRET) else { continue };
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), answer, "{output:?}");
        assert!(!asked("").expect("it runs").status.success(), "{language}: an empty secret is refused");
    }
    for language in ["go", "csharp"] {
        assert!(example(language).contains("PROBE_SECRET is empty"));
    }
}

#[test]
fn probe_that_cannot_reach_a_member_of_the_other_family_says_so_in_the_api() {
    let origin = Origin::start();
    let keys = "initial_wait: 100ms\nprobe: { path: /, interval: 200ms, timeout: 200ms, bind: \"::1\" }";
    let proxy = Proxy::start(&config_of(&[format!("\"localhost:{}\"", origin.port())], keys));
    let last = || proxy.pool("web")["members"][0]["last_probe"].clone();
    eventually("it is told", || last()["result"] == "inconclusive");
    assert!(last()["detail"].as_str().is_some_and(|detail| detail.contains("cannot probe from ::1")), "{}", last());
    let member = proxy.pool("web")["members"][0].clone();
    assert_eq!((&member["verdict"], &member["streak"]), (&"unknown".into(), &0.into()), "{member}");
}
