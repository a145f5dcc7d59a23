//! SIGHUP when things are odd: files that are none, a storm of signals, and listeners and members that only change a little.

use std::path::Path;
use std::process::Command;

use crate::harness::origin::hold_port;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Gate, Load, Origin, When, eventually};

fn unprobed(members: &[&Origin]) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    config_of(&members, "probe: off")
}

#[track_caller]
fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
    assert!(made.success(), "mkfifo: {made}");
}

#[test]
fn file_that_is_none_is_refused_and_stops_nothing() {
    let origin = Origin::start();
    let good = unprobed(&[&origin]);
    let proxy = Proxy::start(&good);
    let path = proxy.dir().join("proxy.yaml");
    for (round, what) in ["fifo", "folder", "fifo"].into_iter().enumerate() {
        std::fs::remove_file(&path).expect("ours");
        match what {
            "fifo" => make_fifo(&path),
            _ => std::fs::create_dir(&path).expect("ours"),
        }
        proxy.reload_is_refused();
        assert_eq!(proxy.admin_get("/livez").status, 200, "{what}");
        assert_eq!(proxy.admin_get("/api/v1/pools").status, 200, "{what}");
        assert_eq!(proxy.get("/still").status, 200, "{what}");
        match what {
            "fifo" => std::fs::remove_file(&path).expect("ours"),
            _ => std::fs::remove_dir(&path).expect("ours"),
        }
        let other = format!("[{{ pool: web }}, {{ path: /new{round}, pool: gone }}]");
        let gone = format!("  gone: {{ members: [{{ address: {origin}, state: disabled }}], probe: off }}\nroutes:");
        proxy.reload(&good.replace("routes:", &gone).replace("[{ pool: web }]", &other));
        assert_eq!(proxy.get(&format!("/new{round}")).status, 503, "a good file is taken after a {what}");
    }
}

#[test]
fn storm_of_hangups_ends_with_the_last_file() {
    const ROUNDS: usize = 20;
    let origin = Origin::start();
    // Nobody but the signals.
    let base = format!("reload: {{ watch: false }}\n{}", unprobed(&[&origin]));
    let proxy = Proxy::start(&base);
    let load = Load::start(proxy.address(), 3, "/steady");
    load.await_each(5);
    let mark = proxy.mark();
    // A file that takes a while to read, so that signals come while one is being served.
    let many: String = (0..1500).map(|i| format!("  other{i}: {{ members: [{origin}], probe: off }}\n")).collect();
    for round in 0..ROUNDS {
        let none = format!("  none: {{ members: [{{ address: {origin}, state: disabled }}], probe: off }}\n");
        let routes = format!("[{{ pool: web }}, {{ path: /round{round}, pool: none }}]");
        proxy.rewrite(&base.replace("routes:", &format!("{many}{none}routes:")).replace("[{ pool: web }]", &routes));
        proxy.signal("HUP");
    }
    let last = format!("/round{}", ROUNDS - 1);
    eventually("the last file is in force", || proxy.get(&last).status == 503);
    load.fence();
    let told: Vec<_> = proxy.log().into_iter().skip(mark).filter(|line| line.text("kind") == "reload").collect();
    assert!(told.iter().all(|line| !line.is_error()), "{:?}", told.last().map(|line| &line.raw));
    assert!((1..=ROUNDS).contains(&told.len()), "{} reloads for {ROUNDS} signals", told.len());
    load.finish().assert_all_ok();
    for round in 0..ROUNDS - 1 {
        assert_eq!(proxy.get(&format!("/round{round}")).status, 200, "an earlier file is in force");
    }
}

#[test]
fn renamed_listener_is_the_same_listener() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let (_ours, address) = hold_port("127.0.0.1".parse().expect("an address"));
    let config = |name: &str, more: &str| {
        format!("listeners: [{{ address: \"{address}\", name: {name}{more} }}]\n{}", unprobed(&[&origin]))
    };
    let proxy = Proxy::start(&config("first", ""));
    let mut kept = proxy.connect();
    assert_eq!(kept.get("/kept/before").status, 200);
    assert_eq!(proxy.access("/kept/before").text("listener"), "first");
    let mut held = proxy.connect();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("a request is in flight", || gate.waiting() == 1);
    let load = Load::start(proxy.address(), 2, "/steady");
    load.fence();
    let mark = proxy.mark();
    proxy.reload(&config("second", ", keepalive_requests: 100"));
    load.fence();
    assert_eq!((kept.get("/kept/after").status, proxy.get("/new").status), (200, 200));
    for path in ["/kept/after", "/new"] {
        assert_eq!(proxy.access(path).text("listener"), "second", "{path}");
    }
    gate.open();
    assert_eq!(held.reply().status, 200);
    load.finish().assert_all_ok();
    let opened = proxy.log().into_iter().skip(mark).filter(|line| line.text("message") == "listening").count();
    assert_eq!(opened, 0, "the socket was opened anew");
}

#[test]
fn weight_of_zero_takes_no_more_requests_and_ends_none() {
    let (leaving, staying, gate) = (Origin::start(), Origin::start(), Gate::new());
    leaving.when(When::path("/held"), Answer::status(200).body("whole").held_by(&gate));
    let config = |weight: u32| {
        let members = [format!("{{ address: {leaving}, weight: {weight} }}"), staying.to_string()];
        config_of(&members, "probe: off")
    };
    let proxy = Proxy::start(&config(1));
    let mut held: Vec<_> = (0..4).map(|_| proxy.connect()).collect();
    for client in &mut held {
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("both have theirs", || leaving.traffic_count() + staying.traffic_count() == 4);
    assert_eq!((gate.waiting(), staying.traffic_count()), (2, 2));
    let load = Load::start(proxy.address(), 2, "/steady");
    load.await_each(5);
    proxy.reload(&config(0));
    load.fence();
    let before = leaving.traffic_count();
    load.await_each(20);
    assert_eq!(leaving.traffic_count(), before, "a request came after the reload");
    load.finish().assert_all_ok();
    gate.open();
    assert!(held.iter_mut().all(|client| client.reply().status == 200));
    let whole = proxy.access_log().iter().filter(|line| line.text("path") == "/held").count();
    assert!(whole <= 4, "{whole} lines");
    // And back.
    proxy.reload(&config(1));
    proxy.sample("/back", 4);
    assert!(leaving.traffic_count() > before, "it has its share again");
}
