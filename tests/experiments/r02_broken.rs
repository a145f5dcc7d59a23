//! R2: a hundred and more files that are wrong, one after the other, under load. The files are the goldens of tests/config,
//! which `check` is tested with, and such as are wrong by what is around them.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::figures::{Figures, Scale};
use crate::harness::proxy::{Proxy, config_of};
use crate::load::{Connections, Paced, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, members, quoted, reached};

#[test]
fn r2_broken_files_by_signal_under_load() {
    let scale = Scale::wanted();
    let (rate, nth) = (scale.of(100, 1_000), scale.of(5, 1));
    let (nginx, log) = (members(4), LogFile::new());
    let good = format!("{}{}", log.key(), config_of(&quoted(&nginx), PROBE));
    let mut proxy = Proxy::start(&good);
    proxy.await_all_healthy();
    let wish = Wish { clients: 8, rate, connections: Connections::Kept, method: "GET", path: "/load" };
    let load = Paced::start(proxy.address(), wish);
    load.fence();

    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let files: Vec<(String, String)> =
        goldens().into_iter().step_by(nth).chain(around(&good, &taken, log.folder())).collect();
    let (mut silent, before) = (Vec::new(), in_force(&proxy));
    for (name, text) in &files {
        fs::write(proxy.dir().join("proxy.yaml"), text).expect("the folder is ours");
        let mark = proxy.mark();
        proxy.reload_is_refused();
        let told = |line: &crate::harness::Line| {
            line.is_error() && line.text("target") == "config" && has_place(line.text("message"))
        };
        if !proxy.log()[mark..].iter().any(told) {
            silent.push(name.as_str());
        }
        load.await_each(1);
    }
    let after = in_force(&proxy);
    // The next generation is the second: none of them has become one.
    let mark = proxy.mark();
    proxy.reload(&good);
    let line = proxy.await_log("the reload", mark, |line| line.text("kind") == "reload");
    let tally = load.finish();
    proxy.signal("INT");
    let exit = proxy.wait().code();

    let log = Logged::read(&log.files(), "/load/");
    let mut figures = Figures::new("R2: broken files under load", scale);
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
    figures.must(
        "generation of the next good file",
        &line.json["to"],
        "2",
        line.json["from"] == 1 && line.json["to"] == 2,
    );
    figures.none("kept connections closed", tally.closed);
    figures.same("client, log", tally.total(), log.lines);
    figures.same("log (attempts), members", log.attempts(), reached(&nginx, "/load/"));
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.finish();
}

/// `proxy.yaml:LINE:COLUMN:`.
fn has_place(message: &str) -> bool {
    let Some((_, behind)) = message.split_once("proxy.yaml:") else { return false };
    let mut numbers = behind.split(':').map(|part| part.parse::<u32>().is_ok());
    numbers.next() == Some(true) && numbers.next() == Some(true)
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
    let good = crate::harness::proxy::completed(good);
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
