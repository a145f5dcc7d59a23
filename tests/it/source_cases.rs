//! Members from services and from files (cases C39, C45).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::harness::dns::{NameServer, Said, records};
use crate::harness::dnsmasq::Dnsmasq;
use crate::harness::process::run;
use crate::harness::proxy::{PROBE, Proxy, config_of, write_config};
use crate::harness::tls::{Authority, TlsOrigin};
use crate::harness::{Line, Origin, Scrape, eventually};

const SERVICE: &str = "{ srv: _http._tcp.app.test }";

/// The members of pool `web` as `NAME@ADDRESS weight/tier standing`, sorted; ports are left out of addresses.
fn members(proxy: &Proxy) -> Vec<String> {
    let pool = proxy.pool("web");
    let shown = |member: &Value| {
        let text = |key: &str| member[key].as_str().unwrap_or_default().to_owned();
        let (name, address) = (text("name"), text("address"));
        let name = name.split(':').next().unwrap_or_default();
        let address = address.split(':').next().unwrap_or_default();
        format!("{name}@{address} {}/{} {}", member["weight"], member["tier"], text("standing"))
    };
    let mut shown: Vec<String> = pool["members"].as_array().expect("members").iter().map(shown).collect();
    shown.sort();
    shown
}

#[track_caller]
fn await_members(proxy: &Proxy, expected: &[&str]) {
    eventually(&format!("members are {expected:?}, not {:?}", members(proxy)), || members(proxy) == expected);
}

fn told(words: &'static str) -> impl Fn(&Line) -> bool {
    move |line| line.text("target") == "discovery" && line.raw.contains(words)
}

#[test]
fn a_service_brings_ports_weights_and_tiers() {
    let (one, other) = (Origin::start_everywhere(), Origin::start_everywhere());
    let hosts = "127.0.0.1 a.test\n127.0.0.2 b.test\n127.0.0.3 b.test\n127.0.0.4 c.test\n";
    let srv = |target: &str, port: u16, priority: u16, weight: u32| {
        format!("--srv-host=_http._tcp.app.test,{target},{port},{priority},{weight}")
    };
    let options =
        [srv("a.test", one.port(), 10, 60), srv("b.test", other.port(), 10, 40), srv("c.test", one.port(), 20, 0)];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut dnsmasq = Dnsmasq::start(hosts, &options);
    let config = format!("{}{}", dnsmasq.resolver(""), config_of(&[SERVICE.to_owned()], PROBE));
    let proxy = Proxy::start(&config);
    await_members(
        &proxy,
        &[
            "a.test@127.0.0.1 60/0 healthy",
            "b.test@127.0.0.2 40/0 healthy",
            "b.test@127.0.0.3 40/0 healthy",
            "c.test@127.0.0.4 1/1 standby",
        ],
    );
    let source = &proxy.pool("web")["members"][0]["source"];
    assert_eq!(*source, "srv _http._tcp.app.test");
    // 60 to 40, the 40 shared by two addresses.
    proxy.sample("/weighed", 50);
    let at =
        |ip: &str| one.traffic().iter().chain(&other.traffic()).filter(|seen| seen.local.to_string() == ip).count();
    assert_eq!([at("127.0.0.1"), at("127.0.0.2"), at("127.0.0.3"), at("127.0.0.4")], [30, 10, 10, 0]);
    // A target that leaves is gone at once, and the ranks of the others close up.
    dnsmasq.start_again(&[&srv("c.test", one.port(), 20, 7)]);
    await_members(&proxy, &["c.test@127.0.0.4 7/0 healthy"]);
}

#[test]
fn odd_weights_and_answers_of_a_service_do_no_harm() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    server.has("a.test", &["127.0.0.1"]);
    server.has("b.test", &["127.0.0.2"]);
    let srv = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| line.replace("PORT", &origin.port().to_string())).collect();
        server.says("_http._tcp.app.test", "SRV", Said::Records(0, lines));
    };
    srv(&["1 0 PORT a.test", "1 0 PORT b.test"]);
    let keys = format!("{PROBE}\nbalance: {{ consistent_hash: {{ key: path }} }}");
    let config = format!("{}{}", server.resolver(", grace: 1h"), config_of(&[SERVICE.to_owned()], &keys));
    let proxy = Proxy::start(&config);
    // Case C45: all 0, one 0, huge.
    await_members(&proxy, &["a.test@127.0.0.1 1/0 healthy", "b.test@127.0.0.2 1/0 healthy"]);
    srv(&["1 0 PORT a.test", "1 9 PORT b.test"]);
    await_members(&proxy, &["a.test@127.0.0.1 0/0 draining", "b.test@127.0.0.2 9/0 healthy"]);
    assert!(proxy.sample("/drained", 4).iter().all(|line| line.tried() == [format!("127.0.0.2:{}", origin.port())]));
    srv(&["1 65535 PORT a.test", "1 1 PORT b.test"]);
    await_members(&proxy, &["a.test@127.0.0.1 1000/0 healthy", "b.test@127.0.0.2 1/0 healthy"]);
    // By a reload as well.
    proxy.reload(&config.replace(SERVICE, "{ srv: _http._tcp.app.test, weight: 0, tier: 3 }"));
    await_members(&proxy, &["a.test@127.0.0.1 0/3 draining", "b.test@127.0.0.2 0/3 draining"]);
    assert_eq!(proxy.get("/all-drained").status, 503);
    proxy.reload(&config);
    await_members(&proxy, &["a.test@127.0.0.1 1000/0 healthy", "b.test@127.0.0.2 1/0 healthy"]);
    // Trouble, and no answer to show, erase nothing; the target `.` does, on purpose.
    for (trouble, words) in [(Said::Failure, "does not resolve now"), (Said::NoName, "does not resolve any more")] {
        let mark = proxy.mark();
        server.says("_http._tcp.app.test", "SRV", trouble);
        proxy.await_log("the trouble", mark, told(words));
        assert_eq!(members(&proxy).len(), 2);
    }
    server.says("_http._tcp.app.test", "SRV", records(&["0 0 0 ."]));
    await_members(&proxy, &["_http._tcp.app.test@_http._tcp.app.test 1/0 unknown"]);
    assert_eq!(proxy.get("/none").status, 503);
    srv(&["1 5 PORT a.test", "1 5 PORT nobody.test"]);
    await_members(&proxy, &["a.test@127.0.0.1 5/0 healthy", "nobody.test@nobody.test 5/0 unknown"]);
    assert_eq!(proxy.get("/one").status, 200);
}

/// A proxy whose members are in a file of this content.
fn filed(file: &Path, content: &str) -> Proxy {
    fs::write(file, content).expect("the folder is ours");
    Proxy::start(&config_of(&[format!("{{ file: \"{}\" }}", file.display())], PROBE))
}

#[test]
fn a_file_is_followed_however_it_is_written() {
    let origin = Origin::start_everywhere();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    let line = |n: u8| format!("- 127.0.0.{n}:{}\n", origin.port());
    let proxy = filed(&file, &line(1));
    await_members(&proxy, &["127.0.0.1@127.0.0.1 1/0 healthy"]);
    // In place.
    fs::write(&file, line(1) + &line(2)).expect("ours");
    await_members(&proxy, &["127.0.0.1@127.0.0.1 1/0 healthy", "127.0.0.2@127.0.0.2 1/0 healthy"]);
    // By a rename, as editors do, and as JSON.
    let part = folder.path().join(".members.yaml.swp");
    let json = format!(
        "[{{\"address\": \"127.0.0.3:{}\", \"weight\": 5, \"tier\": 1, \"state\": \"draining\"}}]",
        origin.port()
    );
    fs::write(&part, json).expect("ours");
    fs::rename(&part, &file).expect("ours");
    await_members(&proxy, &["127.0.0.3@127.0.0.3 5/1 draining"]);
    assert_eq!(proxy.pool("web")["members"][0]["source"], format!("file {}", file.display()));
    // Nobody, on purpose.
    fs::write(&file, "[]\n").expect("ours");
    await_members(&proxy, &[]);
    assert_eq!(proxy.get("/nobody").status, 503);
    fs::write(&file, line(2)).expect("ours");
    await_members(&proxy, &["127.0.0.2@127.0.0.2 1/0 healthy"]);
}

#[test]
fn a_volume_of_kubernetes_is_followed() {
    let origin = Origin::start_everywhere();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let volume = |name: &str, n: u8| {
        let directory = folder.path().join(name);
        fs::create_dir(&directory).expect("ours");
        fs::write(directory.join("members.yaml"), format!("- 127.0.0.{n}:{}\n", origin.port())).expect("ours");
    };
    volume("..one", 1);
    let (data, file) = (folder.path().join("..data"), folder.path().join("members.yaml"));
    symlink("..one", &data).expect("ours");
    symlink("..data/members.yaml", &file).expect("ours");
    let proxy = Proxy::start(&config_of(&[format!("{{ file: \"{}\" }}", file.display())], PROBE));
    await_members(&proxy, &["127.0.0.1@127.0.0.1 1/0 healthy"]);
    volume("..two", 2);
    symlink("..two", folder.path().join("..data_tmp")).expect("ours");
    fs::rename(folder.path().join("..data_tmp"), &data).expect("ours");
    fs::remove_dir_all(folder.path().join("..one")).expect("ours");
    await_members(&proxy, &["127.0.0.2@127.0.0.2 1/0 healthy"]);
    // What the system does not tell of is seen all the same: the volume's file is not beside the link.
    fs::write(folder.path().join("..two/members.yaml"), format!("- 127.0.0.3:{}\n", origin.port())).expect("ours");
    await_members(&proxy, &["127.0.0.3@127.0.0.3 1/0 healthy"]);
}

/// Members and sources in trouble, by the metrics.
fn troubles(proxy: &Proxy) -> [f64; 2] {
    let scrape = Scrape::of(proxy);
    ["pool_troubled_members", "pool_troubled_sources"].map(|name| {
        let series = format!("{name}{{pool=\"web\"}}");
        scrape.find(&series).expect("every pool has one")
    })
}

#[test]
fn a_list_of_nobody_shows_its_trouble_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    let proxy = filed(&file, "[]\n");
    assert_eq!(troubles(&proxy), [0.0, 0.0]);
    fs::remove_file(&file).expect("ours");
    eventually("the trouble shows", || troubles(&proxy) == [0.0, 1.0]);
}

#[test]
fn a_file_that_never_settles_is_taken_all_the_same() {
    let origin = Origin::start_everywhere();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    let line = |n: u8| format!("- 127.0.0.{n}:{}\n", origin.port());
    let proxy = filed(&file, &line(1));
    let (part, mut n) = (folder.path().join("part"), 0);
    eventually("it is taken", || {
        n += 1;
        fs::write(&part, format!("{}{}# {n}\n", line(1), line(2))).expect("ours");
        fs::rename(&part, &file).expect("ours");
        members(&proxy).len() == 2
    });
    proxy.await_log("the warning", 0, |line| line.text("message").contains("changes all the time"));
}

#[test]
fn a_file_with_a_mistake_changes_nothing_and_is_told_of_once() {
    let origin = Origin::start_everywhere();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    let good = format!("- 127.0.0.1:{}\n", origin.port());
    let proxy = filed(&file, &good);
    let settled = ["127.0.0.1@127.0.0.1 1/0 healthy"];
    await_members(&proxy, &settled);
    let place = format!("{}:2:3: error", file.display());
    for (content, words) in [(format!("{good}- 127.0.0.2\n"), place), (String::new(), "lists no members".to_owned())] {
        let mark = proxy.mark();
        fs::write(&file, content).expect("ours");
        let wanted = |line: &Line| line.is_error() && line.text("message").contains(&words);
        proxy.await_log("the mistake", mark, wanted);
        proxy.await_log("that it cannot be used", mark, told("cannot be used"));
        assert_eq!(members(&proxy), settled);
        let source = proxy.pool("web")["sources"][0].clone();
        assert_eq!((&source["kind"], &source["name"]), (&"file".into(), &file.display().to_string().into()));
        assert!(source["trouble"].as_str().is_some_and(|trouble| trouble.contains(&words)), "{source}");
        eventually("the trouble shows", || troubles(&proxy) == [1.0, 1.0]);
        // A reload of the other file falls over it.
        proxy.reload_is_refused();
    }
    let mark = proxy.mark();
    fs::remove_file(&file).expect("ours");
    proxy.await_log("that it is gone", mark, |line| line.is_error() && line.raw.contains("cannot be read"));
    eventually("the trouble shows", || troubles(&proxy) == [1.0, 1.0]);
    fs::write(&file, &good).expect("ours");
    proxy.await_log("that it is good again", mark, told("can be used again"));
    eventually("the trouble is over", || troubles(&proxy) == [0.0, 0.0]);
    assert!(proxy.pool("web")["sources"][0]["trouble"].is_null());
    assert_eq!(members(&proxy), settled);
    let errors = proxy.log().into_iter().skip(mark).filter(|line| line.raw.contains("cannot be read")).count();
    assert_eq!(errors, 1);
}

#[test]
fn a_member_that_a_file_loses_and_has_again_is_the_one_it_was() {
    let origin = Origin::start_everywhere();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    let line = |n: u8| format!("- 127.0.0.{n}:{}\n", origin.port());
    let config = config_of(&[format!("{{ file: \"{}\" }}", file.display())], PROBE);
    let proxy = filed(&file, &(line(1) + &line(2)));
    await_members(&proxy, &["127.0.0.1@127.0.0.1 1/0 healthy", "127.0.0.2@127.0.0.2 1/0 healthy"]);
    let drained = format!("127.0.0.2:{}", origin.port());
    assert_eq!(proxy.admin_post(&format!("/api/v1/pools/web/members/{drained}/drain"), &[]).status, 200);
    for less in [line(1), "[]\n".to_owned()] {
        // By a reload, which tells of it like the file itself.
        let mark = proxy.mark();
        fs::write(&file, less).expect("ours");
        proxy.reload(&config);
        proxy.await_log("the file's line", mark, told("lists"));
        proxy.await_log("the pool's line", mark, |line| line.text("removed").contains(&drained));
        proxy.await_event(mark, &[("kind", "member"), ("to", "removed"), ("member", &drained)]);
        fs::write(&file, line(1) + &line(2)).expect("ours");
        await_members(&proxy, &["127.0.0.1@127.0.0.1 1/0 healthy", "127.0.0.2@127.0.0.2 1/0 draining"]);
    }
}

#[test]
fn a_line_about_many_members_names_the_first_and_counts_them_all() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    fs::write(&file, "- 127.0.0.1:1\n").expect("ours");
    let proxy = Proxy::start(&config_of(&[format!("{{ file: \"{}\" }}", file.display())], "probe: off"));
    let mark = proxy.mark();
    let many: String = (0..2_000).map(|n| format!("- 127.1.{}.{}:1\n", n / 200, n % 200)).collect();
    fs::write(&file, many).expect("ours");
    let line = proxy.await_log("the pool's line", mark, |line| line.text("kind") == "pool");
    assert!(line.text("added").ends_with(" and 1990 more") && line.raw.len() < 2_000, "{}", line.raw);
    assert_eq!((&line.json["added_count"], &line.json["removed_count"]), (&2_000.into(), &1.into()));
    assert_eq!(line.text("removed"), "127.0.0.1:1");
}

#[test]
fn a_start_and_a_check_refuse_a_bad_file_with_its_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_config(folder.path(), &config_of(&["{ file: members.yaml }".to_owned()], PROBE));
    for (content, words) in [
        (None, "members.yaml:1:1: error: the file cannot be read"),
        (Some("- 10.0.0.1\n"), "members.yaml:1:3: error: `10.0.0.1` has no port"),
        (Some("- { file: more.yaml }\n- { address: \"a:80\", wieght: 2 }\n"), "members.yaml:2:22: error: unknown key"),
        (Some("# nobody yet\n"), "members.yaml:1:1: error: the file lists no members"),
        (Some("members: []\n"), "members.yaml:1:1: error: "),
    ] {
        if let Some(content) = content {
            fs::write(folder.path().join("members.yaml"), content).expect("ours");
        }
        let checked = run(folder.path(), &["check", "proxy.yaml"], &[]);
        assert!(checked.code == Some(1) && checked.stdout.contains(words), "no {words:?} in {checked:?}");
        assert_eq!(run(folder.path(), &["run", "-c", "proxy.yaml"], &[]).code, Some(1));
    }
    fs::write(folder.path().join("members.yaml"), "[]\n").expect("ours");
    assert_eq!(run(folder.path(), &["check", "proxy.yaml"], &[]).code, Some(0));
}

#[test]
fn names_in_a_file_are_resolved_like_others() {
    let (origin, server) = (Origin::start_everywhere(), NameServer::start());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    server.has("app.test", &["127.0.0.1"]);
    server.has("a.test", &["127.0.0.3"]);
    server.says("_http._tcp.app.test", "SRV", Said::Records(0, vec![format!("1 5 {} a.test", origin.port())]));
    fs::write(&file, format!("- app.test:{}\n", origin.port())).expect("ours");
    let members = [format!("{{ file: \"{}\" }}", file.display())];
    let proxy = Proxy::start(&format!("{}{}", server.resolver(""), config_of(&members, PROBE)));
    await_members(&proxy, &["app.test@127.0.0.1 1/0 healthy"]);
    server.has("app.test", &["127.0.0.2"]);
    await_members(&proxy, &["app.test@127.0.0.2 1/0 healthy"]);
    fs::write(&file, "- { srv: _http._tcp.app.test, tier: 1 }\n").expect("ours");
    await_members(&proxy, &["a.test@127.0.0.3 5/1 healthy"]);
}

#[test]
fn those_whom_a_source_names_are_asked_for_and_verified_by_their_own_names() {
    let (authority, server) = (Authority::named("Ours"), NameServer::start());
    let member = TlsOrigin::start(authority.paper(&["app1.test"]).server());
    let port = member.address().replace("127.0.0.1:", "");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    fs::write(&file, "[]").expect("ours");
    let members = [SERVICE.to_owned(), format!("{{ file: \"{}\" }}", file.display())];
    let keys = format!("{PROBE}\nupstream: {{ tls: {{ ca: {} }}, host: member }}", authority.ca());
    let proxy = Proxy::start(&format!("{}{}", server.resolver(""), config_of(&members, &keys)));
    await_members(&proxy, &["_http._tcp.app.test@_http._tcp.app.test 1/0 unknown"]);
    // Both come while it runs: a target, and then a member that a file gives its name.
    server.has("app1.test", &["127.0.0.1"]);
    server.says("_http._tcp.app.test", "SRV", Said::Records(0, vec![format!("1 5 {port} app1.test")]));
    await_members(&proxy, &["app1.test@127.0.0.1 5/0 healthy"]);
    assert_eq!(proxy.get("/target").status, 200);
    fs::write(&file, format!("- {{ address: \"127.0.0.1:{port}\", host: app1.test }}\n")).expect("ours");
    server.says("_http._tcp.app.test", "SRV", records(&["0 0 0 ."]));
    await_members(&proxy, &["127.0.0.1@127.0.0.1 1/0 healthy", "_http._tcp.app.test@_http._tcp.app.test 1/0 unknown"]);
    assert_eq!(proxy.get("/filed").status, 200);
    let host = format!("app1.test:{port}");
    let seen = [member.origin.traffic(), member.origin.probes()].concat();
    assert!(seen.iter().all(|seen| seen.field("host") == Some(&host)), "{seen:?}");
    let greetings = member.greetings();
    assert!(greetings.iter().all(|seen| seen.sni.as_deref() == Some("app1.test")), "{greetings:?}");
}
