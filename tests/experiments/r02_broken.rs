//! R2: a hundred and more files that are wrong, one after the other, under load. The files are the goldens of tests/config,
//! which `check` is tested with, and such as are wrong by what is around them.

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::figures::{Figures, Scale};
use crate::harness::proxy::{Proxy, completed, config_of};
use crate::harness::{Line, Scrape};
use crate::load::{Connections, Paced, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, members, quoted, reached};
use crate::way::{Counted, Way};

#[test]
fn r2_broken_files_by_signal_under_load() {
    broken(Way::Signal, "R2: broken files by SIGHUP under load");
}

#[test]
fn r2_broken_files_by_api_under_load() {
    broken(Way::Api, "R2: broken files by the API under load");
}

#[test]
fn r2_broken_files_by_themselves_under_load() {
    broken(Way::File, "R2: broken files by the file alone under load");
}

fn broken(way: Way, title: &'static str) {
    let scale = Scale::wanted();
    // A file that is watched is taken when it has settled, which takes its time.
    let nth = scale.of(if way == Way::File { 15 } else { 5 }, 1);
    let rate = scale.of(100, 1_000);
    let (nginx, log) = (members(4), LogFile::new());
    let good = completed(&format!("{}{}{}", log.key(), way.key(), config_of(&quoted(&nginx), PROBE)));
    let mut proxy = Proxy::start(&good);
    proxy.await_all_healthy();
    let wish = Wish { clients: 8, rate, connections: Connections::Kept, method: "GET", path: "/load" };
    let load = Paced::start(proxy.address(), wish);
    load.fence();

    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let files = distinct(goldens().into_iter().step_by(nth).chain(around(&good, &taken, log.folder())));
    let (mut silent, mut unseen, before) = (Vec::new(), Vec::new(), in_force(&proxy));
    for (name, text) in &files {
        if way.refused(&proxy, text) == 0 {
            silent.push(name.as_str());
        }
        if is_good(&proxy) {
            unseen.push(name.as_str());
        }
        load.await_each(1);
    }
    let after = in_force(&proxy);
    let mut then = Vec::new();
    // What is in force already, and another.
    for text in [&good, &good.replace("lame_duck: 0s", "lame_duck: 1s")] {
        let line = way.take(&proxy, text);
        then.push(outcome(&line));
        then.push(if is_good(&proxy) { "good".to_owned() } else { "not good".to_owned() });
    }
    let reloads = Counted::of(&proxy);
    let tally = load.finish();
    proxy.signal("INT");
    let exit = proxy.wait().code();

    let log = Logged::read(&log.files(), "/load/");
    let mut figures = Figures::new(title, scale);
    figures.told("files", files.len());
    figures.told("requests", format!("{}, {rate} a second", tally.total()));
    figures.must("failed", format!("{}: {}", tally.failed(), tally.reasons()), "0", tally.failed() == 0);
    figures.must("refused without a line and a column", format!("{silent:?}"), "none", silent.is_empty());
    figures.must(
        "configuration, members and standings, before and after",
        if before == after { "the same" } else { "others" },
        "the same",
        before == after,
    );
    figures.must("`config_last_reload_success` not 0 after", format!("{unseen:?}"), "none", unseen.is_empty());
    let wanted = ["unchanged 1 → 1", "good", "taken 1 → 2", "good"];
    figures.must("the next good files", format!("{then:?}"), &format!("{wanted:?}"), then == wanted);
    let expected = Counted { taken: 1, refused: files.len(), unchanged: 1 };
    figures.must("reloads counted", format!("{reloads:?}"), &format!("{expected:?}"), reloads == expected);
    figures.none("kept connections closed", tally.closed);
    figures.same("client, log", tally.total(), log.lines);
    figures.same("log (attempts), members", log.attempts(), reached(&nginx, "/load/"));
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.finish();
}

/// Whether the file, as it was read last, is in force: so the metrics.
fn is_good(proxy: &Proxy) -> bool {
    Scrape::of(proxy).find("config_last_reload_success").expect("it is always there") != 0.0
}

/// `taken 1 → 2`.
fn outcome(line: &Line) -> String {
    format!("{} {} → {}", line.text("reason"), line.text("from"), line.text("to"))
}

/// Without those of which the content was there before: a file that is watched is told of once for each.
fn distinct(files: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut seen = HashSet::new();
    files.filter(|(_, text)| seen.insert(text.clone())).collect()
}

/// The configuration with its generation; addresses, verdicts and standings.
fn in_force(proxy: &Proxy) -> Vec<String> {
    let pool = proxy.pool("web");
    let members = pool["members"].as_array().expect("members").iter();
    let standings = members.map(|member| format!("{} {} {}", member["address"], member["verdict"], member["standing"]));
    standings.chain([proxy.admin_get("/api/v1/config").text()]).collect()
}

/// What `check` refuses.
fn goldens() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/bad");
    let entries = fs::read_dir(&folder).expect("the goldens");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a golden").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let named = |path: &std::path::PathBuf| {
        let text = fs::read(path).expect("a golden");
        // Some are no text at all, and are not what this is about.
        Some((path.file_name()?.to_string_lossy().into_owned(), String::from_utf8(text).ok()?))
    };
    paths.iter().filter_map(named).collect()
}

/// What is wrong by what is around it.
fn around(good: &str, taken: &TcpListener, folder: &Path) -> Vec<(String, String)> {
    let taken = taken.local_addr().expect("bound");
    let junk = folder.join("junk.pem");
    fs::write(&junk, "-----BEGIN CERTIFICATE-----\nnot base64\n").expect("ours");
    let tls = |keys: &str| good.replace("    probe:", &format!("    upstream: {{ tls: {{ {keys} }} }}\n    probe:"));
    let listeners = |more: &str| good.replace("listeners: [", &format!("listeners: [{more}, "));
    let junk = junk.display();
    [
        ("authorities that are none", tls(&format!("ca: {junk}"))),
        ("authorities that are missing", tls("ca: /nowhere/ca.pem")),
        ("a certificate without its key", tls(&format!("client_cert: {junk}, client_key: /nowhere/key.pem"))),
        ("a port in use", listeners(&format!("{{ address: \"{taken}\", name: other }}"))),
        (
            "the same listener twice",
            listeners("{ address: \"127.0.0.1:1\", name: a }, { address: \"127.0.0.1:1\", name: b }"),
        ),
        (
            "a log that cannot be",
            good.replace("access_log:", "#").replace("admin:", "access_log: { path: /nowhere/log }\nadmin:"),
        ),
        ("half a file", good[..good.len() / 2].to_owned()),
        ("an empty file", String::new()),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_owned(), text))
    .collect()
}
