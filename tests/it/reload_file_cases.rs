//! proxy.yaml is taken when it changes, however it is written, and a bad one is told of once.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::process::run;
use crate::harness::proxy::{Proxy, completed, config_of, pool_config};
use crate::harness::tls::{Authority, TlsOrigin};
use crate::harness::wait::now;
use crate::harness::{Answer, Load, Origin, When, eventually};

/// A pool without probes whose only route is `path`.
fn routed(path: &str) -> String {
    config_of(&["\"127.0.0.1:1\"".to_owned()], "probe: off")
        .replace("{ pool: web }", &format!("{{ path: {path}, pool: web }}"))
}

/// Waits until `path` is routed, and to a member that nobody is.
#[track_caller]
fn await_route(proxy: &Proxy, path: &str) {
    eventually(&format!("{path} is routed"), || proxy.get(path).status == 502);
}

/// Reloads told of after `mark`.
fn told(proxy: &Proxy, mark: usize) -> Vec<String> {
    let reloads = proxy.log().into_iter().skip(mark).filter(|line| line.text("kind") == "reload");
    reloads.map(|line| line.text("reason").to_owned()).collect()
}

/// One reload for each change, whatever way it comes (case C51).
#[test]
fn the_file_is_taken_when_it_changes_in_whatever_way() {
    // Nothing is left to the look.
    let config = |route: &str| format!("reload: {{ every: 1h }}\n{}", routed(route));
    let proxy = Proxy::start(&config("/start"));
    let file = proxy.dir().join("proxy.yaml");
    let at = |name: &str| proxy.dir().join(name);
    let write = |path: &Path, route: &str| fs::write(path, completed(&config(route))).expect("ours");
    // What becomes a symbolic link comes first: what follows is written through it.
    type Way<'a> = (&'static str, &'a dyn Fn(&str));
    let ways: [Way<'_>; 7] = [
        ("in-place", &|route| write(&file, route)),
        // As one that is mounted alone is: no directory here hears of it.
        ("under-another-name", &|route| {
            fs::create_dir(at("elsewhere")).expect("ours");
            fs::hard_link(&file, at("elsewhere/its-name")).expect("ours");
            write(&at("elsewhere/its-name"), route);
        }),
        ("rename", &|route| {
            write(&at(".proxy.yaml.swp"), route);
            fs::rename(at(".proxy.yaml.swp"), &file).expect("ours");
        }),
        ("backup-and-new", &|route| {
            fs::rename(&file, at("proxy.yaml~")).expect("ours");
            write(&file, route);
        }),
        ("link", &|route| {
            fs::create_dir(at("..one")).expect("ours");
            write(&at("..one/proxy.yaml"), route);
            symlink("..one", at("..data")).expect("ours");
            symlink("..data/proxy.yaml", at("link")).expect("ours");
            fs::rename(at("link"), &file).expect("ours");
        }),
        ("volume-of-kubernetes", &|route| {
            fs::create_dir(at("..two")).expect("ours");
            write(&at("..two/proxy.yaml"), route);
            symlink("..two", at("..data_tmp")).expect("ours");
            fs::rename(at("..data_tmp"), at("..data")).expect("ours");
            fs::remove_dir_all(at("..one")).expect("ours");
        }),
        ("through-the-link", &|route| write(&file, route)),
    ];
    for (way, change) in ways {
        let mark = proxy.mark();
        change(&format!("/{way}"));
        await_route(&proxy, &format!("/{way}"));
        eventually("it is told of", || !told(&proxy, mark).is_empty());
        assert_eq!(told(&proxy, mark), ["taken"], "{way}");
        assert_eq!(proxy.reloads()["last"]["cause"], "file");
    }
}

#[test]
fn twenty_writes_in_a_row_are_one_reload() {
    let proxy = Proxy::start(&routed("/start"));
    // Where the machine pauses between two writes they are not in a row.
    let (mark, last) = (0..)
        .find_map(|go: u32| {
            let (mark, began) = (proxy.mark(), now());
            (0..20).for_each(|n| proxy.rewrite(&routed(&format!("/go{go}/n{n}"))));
            let was_quick = now() - began < Duration::from_millis(50);
            let last = format!("/go{go}/n19");
            await_route(&proxy, &last);
            was_quick.then_some((mark, last))
        })
        .expect("one of them");
    // It has settled; whatever else was on its way is over when a further one is taken.
    proxy.rewrite(&routed("/done"));
    await_route(&proxy, "/done");
    eventually(&format!("{last} and the further one are told"), || told(&proxy, mark).len() >= 2);
    assert_eq!(told(&proxy, mark), ["taken", "taken"]);
}

#[test]
fn content_that_means_the_same_is_no_new_generation_and_the_same_content_is_nothing() {
    let config = routed("/start");
    let proxy = Proxy::start(&config);
    let mark = proxy.mark();
    // Touched: nothing.
    proxy.rewrite(&config);
    proxy.rewrite(&format!("{config}# a comment\n"));
    eventually("the comment is read", || told(&proxy, mark) == ["unchanged"]);
    assert_eq!(proxy.reloads()["generation"], 1);
}

/// A file that no directory has, as on a system that tells of nothing: the look finds it out.
#[test]
fn a_silent_file_system_is_looked_at() {
    let held = std::cell::RefCell::new(None);
    let config = format!("reload: {{ every: 1s }}\n{}", routed("/start"));
    let proxy = Proxy::start_at(&config, |dir| {
        let path = dir.join("proxy.yaml");
        let file = File::options().read(true).write(true).open(&path).expect("ours");
        fs::remove_file(&path).expect("ours");
        let place = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        held.replace(Some(file));
        place.into()
    });
    let mut file = held.take().expect("it was opened");
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text)).expect("ours");
    let text = text.replace("/start", "/later");
    file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(text.as_bytes())).expect("ours");
    await_route(&proxy, "/later");
}

#[test]
fn a_file_that_is_not_watched_is_taken_by_hand_and_may_be_watched_again() {
    let unwatched = |path: &str| format!("reload: {{ watch: false, every: 1s }}\n{}", routed(path));
    let proxy = Proxy::start(&unwatched("/start"));
    let origin = Origin::start();
    proxy.rewrite(&unwatched("/one"));
    // Long enough for a look, by somebody else's clock.
    let clock = Proxy::of(&[&origin], "");
    origin.await_probes(5);
    drop(clock);
    assert_eq!(proxy.get("/one").status, 404, "it was taken though it is not watched");
    assert_eq!(proxy.reloads()["watch"], false);
    proxy.reload(&unwatched("/two"));
    proxy.reload(&routed("/three"));
    proxy.rewrite(&routed("/four"));
    await_route(&proxy, "/four");
}

/// Every bad content is refused once, with its place, while the last good one serves on (case C50).
#[test]
fn each_bad_content_is_refused_once_and_the_next_good_one_is_taken() {
    let origin = Origin::start();
    let good = format!("reload: {{ every: 1s }}\n{}", pool_config(&[&origin], ""));
    let proxy = Proxy::start(&good);
    proxy.await_all_healthy();
    let file = proxy.dir().join("proxy.yaml");
    let whole = completed(&good);
    let load = Load::start(proxy.address(), 2, "/steady");
    let key = "upstream: { tls: { client_cert: no.pem, client_key: no.key } }\n    probe:";
    // What is wrong; its content, none where the file is removed; words of the refusal.
    let rows: [(&str, Option<String>, &str); 7] = [
        ("syntax", Some(whole.replace("pools:", "pools: [")), "error"),
        ("meaning", Some(whole.replace("{ pool: web }", "{ pool: gone }")), "gone"),
        ("a missing key", Some(whole.replace("    probe:", &format!("    {key}"))), "no.pem"),
        ("an unknown key", Some(whole.replace("probe:", "prob:")), "prob"),
        ("half of it", Some(whole[..whole.len() / 2].to_owned()), "error"),
        ("nothing in it", Some(String::new()), "error"),
        ("no file", None, "cannot be read"),
    ];
    for (what, content, words) in &rows {
        let mark = proxy.mark();
        match content {
            Some(content) => fs::write(&file, content).expect("ours"),
            None => fs::remove_file(&file).expect("ours"),
        }
        let refused = proxy.await_log(&format!("the refusal of {what}"), mark, |line| line.text("kind") == "reload");
        assert!(refused.is_error() && refused.text("detail").contains(words), "{what}: {}", refused.raw);
        assert!(refused.text("detail").contains("proxy.yaml:"), "{what} has no place: {}", refused.raw);
        assert_eq!(proxy.reloads()["good"], false, "{what}");
        // Some looks later.
        origin.await_probes(5);
        assert_eq!(told(&proxy, mark), ["refused"], "{what}");
        load.fence();
        // By hand it answers each time.
        assert_eq!(proxy.admin_post("/api/v1/reload", &[]).status, 422, "{what}");
        proxy.signal("HUP");
        eventually("each of them is told of", || told(&proxy, mark) == ["refused"; 3]);
    }
    // What is in force is good again, and no new generation.
    let mark = proxy.mark();
    fs::write(&file, &whole).expect("ours");
    proxy.await_event(mark, &[("kind", "reload"), ("reason", "unchanged"), ("to", "1")]);
    assert_eq!(proxy.reloads()["good"], true);
    let mark = proxy.mark();
    fs::write(&file, whole.replace("{ pool: web }", "{ path: /, pool: web }, { path: /next, pool: web }"))
        .expect("ours");
    proxy.await_event(mark, &[("kind", "reload"), ("reason", "taken"), ("to", "2")]);
    load.fence();
    load.finish().assert_all_ok();
    assert_eq!(proxy.reloads()["refused"], 3 * rows.len());
}

#[test]
fn what_was_missing_is_taken_when_it_comes_though_the_file_stays() {
    let origin = Origin::start();
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = held.local_addr().expect("bound").port();
    let proxy = Proxy::start(&format!("reload: {{ every: 1s }}\n{}", pool_config(&[&origin], "")));
    let mark = proxy.mark();
    let listeners =
        format!(r#"listeners: [{{ address: "127.0.0.1:0", name: web }}, {{ address: "127.0.0.1:{port}" }}]"#);
    proxy.rewrite(&format!("{listeners}\nreload: {{ every: 1s }}\n{}", pool_config(&[&origin], "")));
    let refused = proxy.await_log("the refusal", mark, |line| line.text("kind") == "reload");
    let text = fs::read_to_string(proxy.dir().join("proxy.yaml")).expect("ours");
    let wanted = format!("\"127.0.0.1:{port}\"");
    let (line, column) =
        text.lines().enumerate().find_map(|(n, line)| Some((n + 1, line.find(&wanted)? + 1))).expect("it is there");
    let place = format!("proxy.yaml:{line}:{column}: error: cannot listen on 127.0.0.1:{port}");
    assert!(refused.text("detail").contains(&place), "{}", refused.raw);
    origin.await_probes(5);
    assert_eq!(told(&proxy, mark), ["refused"], "told of at each look");
    drop(held);
    proxy.await_event(mark, &[("kind", "reload"), ("reason", "taken")]);
}

#[test]
fn a_new_authority_is_taken_as_soon_as_its_file_changes() {
    let (ours, theirs) = (Authority::named("Ours"), Authority::named("Theirs"));
    let member = TlsOrigin::start(theirs.paper(&["app1.test"]).server());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, ours.pem()).expect("ours");
    let keys =
        format!("probe: off\nretries: {{ attempts: 1, connect: 1 }}\nupstream: {{ tls: {{ ca: {} }} }}", ca.display());
    let proxy = Proxy::start(&config_of(&[member.known_as("app1.test")], &keys));
    assert_eq!(proxy.get("/").status, 502, "it is not trusted");
    let mark = proxy.mark();
    fs::write(&ca, theirs.pem()).expect("ours");
    proxy.await_event(mark, &[("kind", "reload"), ("reason", "taken")]);
    assert_eq!(proxy.get("/").status, 200);
    // One that cannot be used changes nothing.
    let mark = proxy.mark();
    fs::write(&ca, "no certificate").expect("ours");
    proxy.await_event(mark, &[("kind", "reload"), ("reason", "refused")]);
    assert_eq!(proxy.get("/").status, 200);
}

/// Opened to be read, a pipe waits for somebody who writes.
#[test]
fn a_pipe_in_place_of_a_file_refuses_the_reload_and_ends_no_other() {
    let ours = Authority::named("Ours");
    let member = TlsOrigin::start(ours.paper(&["app1.test"]).server());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, ours.pem()).expect("ours");
    let config = |route: &str| {
        let keys = format!("probe: off\nupstream: {{ tls: {{ ca: {} }} }}", ca.display());
        let all = config_of(&[member.known_as("app1.test")], &keys);
        all.replace("{ pool: web }", &format!("{{ path: {route}, pool: web }}"))
    };
    let proxy = Proxy::start(&config("/one"));
    let mark = proxy.mark();
    fs::remove_file(&ca).expect("ours");
    assert!(Command::new("mkfifo").arg(&ca).status().expect("mkfifo runs").success());
    let refused = proxy.await_log("the refusal", mark, |line| line.raw.contains("not a regular file"));
    assert!(refused.is_error(), "{}", refused.raw);
    proxy.reload_is_refused();
    // A start says so too.
    let path = proxy.dir().join("proxy.yaml");
    let started = run(folder.path(), &["run", "-c", &path.to_string_lossy()], &[]);
    assert!(started.code == Some(1) && started.stderr.contains("not a regular file"), "{started:?}");
    fs::remove_file(&ca).expect("ours");
    fs::write(&ca, ours.pem()).expect("ours");
    proxy.reload(&config("/two"));
    assert_eq!(proxy.get("/two").status, 200);
}

#[test]
fn a_reload_that_is_refused_leaves_no_log_behind() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = Proxy::start(&routed("/one"));
    let log = proxy.dir().join("new.log");
    let listeners = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", name: web }}, {{ address: \"{}\" }}]",
        held.local_addr().expect("bound")
    );
    proxy.rewrite(&format!("{listeners}\naccess_log: {{ path: {} }}\n{}", log.display(), routed("/two")));
    proxy.reload_is_refused();
    assert!(!log.exists());
}

#[test]
fn a_member_keeps_its_verdict_when_the_file_changes_under_it() {
    let (good, bad) = (Origin::start(), Origin::start());
    let config = pool_config(&[&good, &bad], "");
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    bad.when(When::probe(), Answer::status(503));
    proxy.await_standing(&bad, "ejected");
    let before = bad.traffic_count();
    for round in 0..5 {
        let mark = proxy.mark();
        let route = format!("{{ path: /r{round}, pool: web }}, {{ pool: web }}");
        proxy.rewrite(&config.replace("{ pool: web }", &route));
        proxy.await_event(mark, &[("kind", "reload"), ("reason", "taken")]);
        proxy.sample(&format!("/round{round}"), 4);
    }
    assert_eq!(bad.traffic_count(), before);
}
