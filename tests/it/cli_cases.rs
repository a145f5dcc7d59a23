//! What the command line says before anything is served.

use std::net::TcpListener;

use crate::harness::process::{Process, run};
use crate::harness::proxy::{config_of, write_config};
use crate::harness::{Answer, Gate, Origin, Proxy, eventually};

#[test]
fn taken_admin_port_is_named_as_what_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    let config = config_of(&["\"127.0.0.1:1\"".to_owned()], "probe: off");
    write_config(folder.path(), &format!("admin: {{ address: \"{address}\" }}\n{config}"));
    let ended = run(folder.path(), &["run", "proxy.yaml"], &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for words in [format!("cannot listen on {address}"), "the admin listener".to_owned(), "`admin: off`".to_owned()] {
        assert!(ended.reason().contains(&words), "no {words:?} in {ended:?}");
    }
}

#[test]
fn check_refuses_what_run_cannot_start_unless_it_is_offline() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let probe = "probe: { path: /, tls: { ca: no-such.pem } }";
    let config = config_of(&["\"127.0.0.1:1\"".to_owned()], probe);
    write_config(folder.path(), &format!("access_log: {{ path: no/such/access.log }}\n{config}"));
    let started = run(folder.path(), &["run", "-c", "proxy.yaml"], &[]);
    assert_eq!(started.code, Some(1), "{started:?}");
    let checked = run(folder.path(), &["check", "proxy.yaml"], &[]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    for words in ["no-such.pem", "there is no directory `no/such`"] {
        let found = checked.stdout.lines().find(|line| line.contains(words));
        assert!(found.is_some_and(|line| line.starts_with("proxy.yaml:")), "no {words:?} in {checked:?}");
    }
    assert_eq!(run(folder.path(), &["check", "--offline", "proxy.yaml"], &[]).code, Some(0));
}

#[test]
fn probe_outlives_a_rotation_that_signals_every_process_of_the_name() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.answer(Answer::status(200).held_by(&gate));
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_config(folder.path(), &config_of(&[origin.to_string()], "probe: { path: /, timeout: 30s, interval: 60s }"));
    let mut probe = Process::start(folder.path(), &["probe", "web"], &[]);
    eventually("the origin is asked", || gate.waiting() == 1);
    probe.signal("USR1");
    gate.open();
    assert_eq!(probe.wait().code(), Some(0));
}

#[test]
fn simulate_draws_what_it_plays_and_says_what_it_cannot_play() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    let good = "duration: 2m\npools: { web: { members: [\"10.0.0.1:80\", \"10.0.0.2:80\"], probe: { path: / } } }\n\
                traffic: [{ rate: 5/s }]\nstory: [{ at: 1m, member: \"10.0.0.2:80\", does: refuse }]\n";
    write("good.yaml", good);
    write("bad.yaml", &good.replace("refuse", "refused"));
    write("policy.yaml", "pools: { web: { max_unhealthy_percent: 100 } }\n");
    let ask = |arguments: &[&str]| run(folder.path(), &[&["simulate"], arguments].concat(), &[]);

    let played = ask(&["good.yaml", "--svg", "good.svg", "--compare", "policy.yaml"]);
    assert_eq!(played.code, Some(0), "{played:?}");
    assert!(played.stdout.contains("member 10.0.0.2:80 of web is unhealthy: Connection refused"), "{played:?}");
    let picture = std::fs::read_to_string(folder.path().join("good.svg")).expect("a picture");
    assert!(picture.starts_with("<svg ") && picture.contains("10.0.0.2:80"), "{picture}");
    let json = ask(&["good.yaml", "--format", "json", "--seed", "9"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("json");
    assert_eq!((&json["seed"], &json["policies"][0]["totals"]["failed"]), (&9.into(), &0.into()));

    let said = "bad.yaml:4:48: error: `refused` is not known here; did you mean `refuse`?";
    let refused = ask(&["bad.yaml"]);
    assert!(refused.code == Some(1) && refused.stderr.contains(said) && refused.stdout.is_empty(), "{refused:?}");
    let checked = ask(&["bad.yaml", "--check"]);
    assert!(checked.code == Some(1) && checked.stdout.contains(said), "{checked:?}");
    assert_eq!(checked.reason(), "bad.yaml: 1 error");
    let checked = ask(&["good.yaml", "--check"]);
    assert_eq!((checked.code, &*checked.stdout), (Some(0), "good.yaml: ok, 2m, 1 pool, 1 turn, 1 policy\n"));
}

/// A script that looks at the code alone must not take half a result for a whole one; `… | head` is none of its business.
#[test]
fn a_result_that_cannot_be_written_is_a_failure_and_a_reader_that_has_gone_is_none() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config_of(&[origin.to_string()], "probe: { path: / }"));
    proxy.await_standing(&origin, "healthy");
    let (admin, member) = (proxy.admin().to_string(), origin.address());
    let scenario = "duration: 1m\npools: { web: { members: [\"10.0.0.1:80\"], probe: { path: / } } }\n";
    std::fs::write(proxy.dir().join("calm.yaml"), scenario).expect("written");
    let rows: [&[&str]; 10] = [
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["check", "proxy.yaml"],
        &["probe", "web"],
        &["simulate", "calm.yaml"],
        &["simulate", "calm.yaml", "--check"],
        &["explain", "/", "--admin", &admin],
        &["enable", "web", &member, "--admin", &admin],
        &["reload", "--admin", &admin],
    ];
    for row in rows {
        let mut full = Process::start_after(proxy.dir(), row, &["sh"], "exec >/dev/full");
        assert_eq!(full.wait().code(), Some(1), "{row:?}");
        full.stderr.find("why", 0, |line| line.raw.contains("the output cannot be written: No space left on device"));
        let gone = "mkfifo gone && exec 3<>gone && exec >gone && exec 3<&- && rm gone";
        let mut gone = Process::start_after(proxy.dir(), row, &["sh"], gone);
        assert_eq!(gone.wait().code(), Some(0), "{row:?}");
        assert_eq!(gone.stderr.lines().iter().filter(|line| line.raw.contains("written")).count(), 0, "{row:?}");
    }
}
