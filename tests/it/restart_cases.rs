//! What is known of members outlives the process where there is a `state_dir`: verdicts, evidence, and operators' words.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::proxy::config_of;
use crate::harness::{Answer, Gate, Origin, Proxy, Scrape, When, eventually};

/// Three fails in a row, or passes; ten intervals are half a minute.
const PROBE: &str = "probe: { path: /healthz, interval: 3s, fast_interval: 100ms, timeout: 3s, consecutive: { failures: 3, passes: 3 } }";

/// A folder that outlives its proxies.
struct Kept(TempDir);

impl Kept {
    fn new() -> Kept {
        Kept(tempfile::tempdir().expect("a temporary folder"))
    }

    fn config(&self, members: &[&str], probe: &str) -> String {
        let members: Vec<String> = members.iter().map(|member| (*member).to_owned()).collect();
        format!("lame_duck: 0s\nstate_dir: {:?}\n{}", self.0.path(), config_of(&members, probe))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("health.json")
    }

    /// What is on the disk of the member with this name.
    fn record(&self, name: &str) -> Option<Value> {
        let file: Value = serde_json::from_slice(&fs::read(self.file()).ok()?).ok()?;
        file["pools"]["web"].as_array()?.iter().find(|member| member["name"] == name).cloned()
    }

    #[track_caller]
    fn await_record(&self, what: &str, origin: &Origin, is_so: impl Fn(&Value) -> bool) {
        eventually(what, || self.record(&origin.address()).is_some_and(|record| is_so(&record)));
    }
}

fn is_unhealthy(record: &Value) -> bool {
    record["evidence"]["verdict"] == "unhealthy"
}

/// A proxy of a member that is well and one that is ejected, which is on the disk.
fn with_one_ejected(kept: &Kept, probe: &str) -> (Proxy, Origin, Origin) {
    let (good, bad) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&kept.config(&[&good.to_string(), &bad.to_string()], probe));
    proxy.await_all_healthy();
    bad.when(When::probe(), Answer::status(503));
    let asked = proxy.admin_post(&format!("/api/v1/pools/web/members/{}/probe", bad.address()), &[]);
    assert_eq!(asked.status, 200, "{}", asked.text());
    proxy.await_standing(&bad, "ejected");
    kept.await_record("it is on the disk", &bad, is_unhealthy);
    (proxy, good, bad)
}

#[test]
fn a_member_that_was_ejected_gets_nothing_after_a_kill_before_it_passes() {
    let kept = Kept::new();
    let (mut before, good, bad) = with_one_ejected(&kept, PROBE);
    let since = before.member("web", &bad.address())["since"].clone();
    before.signal("KILL");
    before.wait();
    let (probed, served) = (Gate::new(), bad.traffic_count());
    // No probe is answered before this: what is known is what was known.
    [&good, &bad].iter().for_each(|origin| origin.when(When::probe(), Answer::status(200).held_by(&probed)));
    let proxy = Proxy::start(&kept.config(&[&good.to_string(), &bad.to_string()], PROBE));
    for number in 0..50 {
        assert_eq!(proxy.get(&format!("/{number}")).status, 200);
    }
    assert_eq!(bad.traffic_count(), served, "it is out from the first request on");
    let shown = proxy.member("web", &bad.address());
    assert_eq!(
        (&shown["standing"], &shown["verdict"], &shown["proven"]),
        (&"ejected".into(), &"unhealthy".into(), &true.into())
    );
    assert_eq!((&shown["ejected_because"], &shown["streak"]), (&"status".into(), &(-3).into()), "{shown}");
    let (was, is) = (since.as_str().expect("a time"), shown["since"].as_str().expect("a time"));
    let (was, is) = (humantime::parse_rfc3339(was).expect("a time"), humantime::parse_rfc3339(is).expect("a time"));
    let apart = was.duration_since(is).or_else(|_| is.duration_since(was)).expect("either way");
    assert!(apart.as_millis() < 500, "it has been out for as long: {was:?} {is:?}");
    assert_eq!(proxy.admin_get("/readyz").status, 200, "there is nothing to wait for");
    probed.open();
    proxy.await_standing(&bad, "healthy");
    let events = proxy.events(&[("kind", "member"), ("member", &bad.address())]);
    assert!(events.iter().all(|line| line.text("to") != "unhealthy"), "nobody is told again: {events:?}");
}

#[test]
fn an_end_in_order_leaves_the_last_word() {
    let kept = Kept::new();
    let (mut before, good, bad) = with_one_ejected(&kept, PROBE);
    bad.when(When::probe(), Answer::status(200));
    before.await_standing(&bad, "healthy");
    before.signal("TERM");
    assert!(before.wait().success());
    assert_eq!(kept.record(&bad.address()).expect("there")["evidence"]["verdict"], "healthy");
    let probed = Gate::new();
    [&good, &bad].iter().for_each(|origin| origin.when(When::probe(), Answer::status(200).held_by(&probed)));
    let proxy = Proxy::start(&kept.config(&[&good.to_string(), &bad.to_string()], PROBE));
    assert_eq!(proxy.member("web", &bad.address())["standing"], "healthy");
    probed.open();
}

#[test]
fn another_probe_keeps_the_verdict_unverified_and_another_identity_starts_fresh() {
    let kept = Kept::new();
    let (mut before, good, bad) = with_one_ejected(&kept, PROBE);
    before.signal("KILL");
    before.wait();
    let probed = Gate::new();
    [&good, &bad].iter().for_each(|origin| origin.when(When::probe(), Answer::status(503).held_by(&probed)));
    let other = PROBE.replace("/healthz", "/ready");
    let members = [good.to_string(), bad.to_string()];
    let named = format!("{{ address: {}, host: other.test }}", bad);
    let rows = [
        ("another path", kept.config(&[&members[0], &members[1]], &other), "unhealthy", true),
        ("another name to ask by", kept.config(&[&members[0], &named], &other), "unhealthy", true),
    ];
    for (what, config, verdict, unverified) in rows {
        let mut proxy = Proxy::start(&config);
        let shown = proxy.member("web", &bad.address());
        assert_eq!((&shown["verdict"], &shown["unverified"]), (&verdict.into(), &unverified.into()), "{what}: {shown}");
        assert_eq!(shown["window"]["size"], 5, "{what}");
        assert_eq!(shown["streak"], 0, "{what}: the window is empty");
        proxy.signal("KILL");
        proxy.wait();
    }
    // The pool is another one, and so are its members.
    let renamed =
        kept.config(&[&members[0], &members[1]], PROBE).replace("  web:", "  www:").replace("pool: web", "pool: www");
    let proxy = Proxy::start(&renamed);
    let shown = proxy.member("www", &bad.address());
    assert_eq!((&shown["verdict"], &shown["proven"]), (&"unknown".into(), &false.into()), "{shown}");
    probed.open();
}

#[test]
fn an_operators_word_outlives_a_restart_until_the_file_says_something_else() {
    let kept = Kept::new();
    let (a, b) = (Origin::start(), Origin::start());
    let (plain, members) = (PROBE, [a.to_string(), b.to_string()]);
    let mut before = Proxy::start(&kept.config(&[&members[0], &members[1]], plain));
    before.await_all_healthy();
    let drained = before.admin_post(&format!("/api/v1/pools/web/members/{}/drain", b.address()), &[]);
    assert_eq!(drained.status, 200, "{}", drained.text());
    kept.await_record("it is on the disk", &b, |record| record["admin"] == "draining");
    before.signal("KILL");
    before.wait();
    let mut again = Proxy::start(&kept.config(&[&members[0], &members[1]], plain));
    let shown = again.member("web", &b.address());
    assert_eq!((&shown["admin"], &shown["standing"]), (&"draining".into(), &"draining".into()), "{shown}");
    (0..10).for_each(|_| drop(again.get("/")));
    assert_eq!(b.traffic_count(), 0);
    kept.await_record("it is written on", &b, |record| record["admin"] == "draining");
    again.signal("TERM");
    again.wait();
    // The file says something of this member now: that is the later word.
    let disabled = format!("{{ address: {}, state: disabled }}", b);
    let proxy = Proxy::start(&kept.config(&[&members[0], &disabled], plain));
    assert_eq!(proxy.member("web", &b.address())["admin"], "disabled");
}

#[test]
fn what_is_damaged_too_old_or_of_another_time_costs_a_line_and_nothing_else() {
    let kept = Kept::new();
    let (mut before, good, bad) = with_one_ejected(&kept, PROBE);
    before.signal("KILL");
    before.wait();
    let whole: Value = serde_json::from_slice(&fs::read(kept.file()).expect("written")).expect("json");
    let config = kept.config(&[&good.to_string(), &bad.to_string()], PROBE);
    let aged = |change: &dyn Fn(&mut Value)| {
        let mut file = whole.clone();
        change(&mut file);
        file.to_string()
    };
    let hour = 3_600_000;
    let set = |file: &mut Value, by: i64| {
        file["left"]["boot"] = Value::Null;
        file["left"]["wall_ms"] = (file["left"]["wall_ms"].as_i64().unwrap_or_default() + by).into();
    };
    let rows = [
        ("half of it", aged(&|_| ())[..100].to_owned(), "cannot be read"),
        ("of a later release", aged(&|file| file["version"] = 2.into()), "of version 2"),
        ("an hour old", aged(&|file| set(file, -hour)), ""),
        ("of an hour to come", aged(&|file| set(file, hour)), "the clock was set back"),
    ];
    let probed = Gate::new();
    [&good, &bad].iter().for_each(|origin| origin.when(When::probe(), Answer::status(200).held_by(&probed)));
    for (what, text, said) in rows {
        fs::write(kept.file(), text).expect("ours");
        let mut proxy = Proxy::start(&config);
        assert_eq!(proxy.member("web", &bad.address())["verdict"], "unknown", "{what}");
        let lines = proxy.log();
        let warned = lines.iter().any(|line| line.text("target") == "state" && line.raw.contains(said));
        assert!(said.is_empty() || warned, "{what}: {lines:?}");
        proxy.signal("KILL");
        proxy.wait();
    }
    assert!(kept.0.path().join("health.json.damaged").exists());
    probed.open();
}

#[test]
fn a_disk_that_never_takes_anything_shows_as_an_age_that_grows() {
    let kept = Kept::new();
    let (mut before, good, bad) = with_one_ejected(&kept, PROBE);
    before.signal("KILL");
    before.wait();
    let mut file: Value = serde_json::from_slice(&fs::read(kept.file()).expect("written")).expect("json");
    file["left"]["boot"] = Value::Null;
    file["left"]["wall_ms"] = (file["left"]["wall_ms"].as_i64().unwrap_or_default() - 3_600_000).into();
    fs::write(kept.file(), file.to_string()).expect("ours");
    // What is written goes there first.
    let _ = fs::remove_file(kept.0.path().join("health.json.part"));
    fs::create_dir(kept.0.path().join("health.json.part")).expect("ours");
    let config = kept.config(&[&good.to_string(), &bad.to_string()], PROBE);
    let age = |proxy: &Proxy| Scrape::of(proxy).value("state_age_seconds");
    for (what, least) in [("what is there is an hour old", 3600.0), ("nothing is there", 0.0)] {
        let mut proxy = Proxy::start(&config);
        eventually("it cannot be written", || Scrape::of(&proxy).value("state_write_failures_total") > 0.0);
        let first = age(&proxy);
        assert!(first >= least && first < least + 1800.0, "{what}: {first}");
        eventually("it grows", || age(&proxy) > first + 0.2);
        proxy.signal("KILL");
        proxy.wait();
        let _ = fs::remove_file(kept.file());
    }
}

#[test]
fn a_file_far_too_large_is_put_aside_unread() {
    let kept = Kept::new();
    let origin = Origin::start();
    fs::File::create(kept.file()).and_then(|file| file.set_len(3 << 30)).expect("a sparse file");
    let proxy = Proxy::start(&kept.config(&[&origin.to_string()], PROBE));
    proxy.await_all_healthy();
    let lines = proxy.log();
    assert!(lines.iter().any(|line| line.raw.contains("has more than 64 MiB")), "{lines:?}");
    assert!(kept.0.path().join("health.json.damaged").exists());
}
