//! R3: starts that cannot be. What each says is a case of tests/it (`lifecycle_cases`); here they are counted, and nothing
//! may be left of them.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use crate::figures::{Figures, Scale, ms};
use crate::harness::process::Process;
use crate::harness::proxy::{config_of, write_config};
use crate::harness::wait::now;

#[test]
fn r3_starts_that_cannot_be() {
    let scale = Scale::wanted();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    std::fs::write(folder.path().join("junk.pem"), "junk").expect("ours");
    let right = config_of(&["\"127.0.0.1:1\"".to_owned()], "probe: off");
    let tls = |keys: &str| {
        config_of(&["\"127.0.0.1:1\"".to_owned()], &format!("probe: off\nupstream: {{ tls: {{ {keys} }} }}"))
    };
    // (what is wrong, the file, a word of the reason)
    let rows = [
        ("port in use", format!("listeners: [{{ address: \"127.0.0.1:{port}\" }}]\n{right}"), "in use"),
        ("admin port in use", format!("admin: {{ address: \"127.0.0.1:{port}\" }}\n{right}"), "in use"),
        ("not YAML", "pools: [".to_owned(), "yaml"),
        ("unknown key", right.replace("probe", "prob"), "prob"),
        ("authorities that are none", tls("ca: junk.pem"), "junk.pem"),
        ("certificate that is missing", tls("client_cert: no.pem, client_key: no.pem"), "no.pem"),
        ("log that cannot be opened", format!("access_log: {{ path: /nowhere/log }}\n{right}"), "/nowhere/log"),
    ];
    let mut figures = Figures::new("R3: starts that cannot be", scale);
    for (what, config, word) in rows {
        let path = write_config(folder.path(), &config);
        let began = now();
        let mut process = Process::start(folder.path(), &["run", "--config", &path.to_string_lossy()], &[]);
        let code = process.wait().code();
        let took = began.elapsed();
        process.stderr.find("the reason", 0, |line| line.raw.contains(word));
        let served = process.stderr.lines().iter().any(|line| line.text("message") == "serving");
        figures.must(&format!("{what}: exit code"), format!("{code:?}"), "1", code == Some(1) && !served);
        figures.judged(&format!("{what}: time"), ms(took), "2 s", took <= Duration::from_secs(2));
    }
    figures.finish();
}
