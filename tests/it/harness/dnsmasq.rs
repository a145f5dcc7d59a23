//! A real server of names: dnsmasq as one process, on a port the kernel chose.

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::dns;
use super::process::signal;
use super::wait::eventually_some;

/// One dnsmasq, which knows names below `test` and nobody to ask for others.
#[derive(Debug)]
pub struct Dnsmasq {
    dir: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Dnsmasq {
    /// Starts one with these lines of a hosts file and these options, and waits until it answers.
    #[track_caller]
    pub fn start(hosts: &str, options: &[&str]) -> Dnsmasq {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut dnsmasq = Dnsmasq { dir, port: 0, child: None };
        dnsmasq.write(hosts);
        // Somebody may take the port between the look and the start.
        let started = (0..10).any(|_| {
            dnsmasq.port = free_port();
            dnsmasq.launch(options)
        });
        assert!(started, "dnsmasq does not start");
        dnsmasq
    }

    /// The top-level key `resolver` of a proxy that asks it often.
    pub fn resolver(&self, more: &str) -> String {
        dns::resolver(&format!("127.0.0.1:{}", self.port), more)
    }

    /// Other lines of its hosts file, which it reads again at SIGHUP.
    #[track_caller]
    pub fn hosts(&self, hosts: &str) {
        self.write(hosts);
        signal(self.child.as_ref().expect("it runs").id(), "HUP");
    }

    /// Holds it up: it takes what comes, and answers nothing until [`Dnsmasq::goes_on`].
    #[track_caller]
    pub fn pauses(&self) {
        signal(self.child.as_ref().expect("it runs").id(), "STOP");
    }

    /// Ends a pause.
    #[track_caller]
    pub fn goes_on(&self) {
        signal(self.child.as_ref().expect("it runs").id(), "CONT");
    }

    /// Ends it: nobody answers any more.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on its port, with other options.
    #[track_caller]
    pub fn start_again(&mut self, options: &[&str]) {
        self.stop();
        assert!(self.launch(options), "dnsmasq does not start again");
    }

    fn launch(&mut self, options: &[&str]) -> bool {
        let mut child = Command::new(program())
            .args(["--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--no-poll", "--local=/test/"])
            .args(["--listen-address=127.0.0.1", "--bind-interfaces", "--local-ttl=0", "--cache-size=0"])
            .arg(format!("--port={}", self.port))
            .arg(format!("--addn-hosts={}", self.file().display()))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dnsmasq starts: scripts/test installs it (Debian: apt-get install dnsmasq-base)");
        let runs = eventually_some("dnsmasq accepts or ends", || match child.try_wait() {
            Ok(None) => TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok().then_some(true),
            _ => Some(false),
        });
        self.child = Some(child);
        runs
    }

    fn write(&self, hosts: &str) {
        let part = self.dir.path().join("part");
        std::fs::write(&part, hosts).expect("the folder is ours");
        std::fs::rename(&part, self.file()).expect("the folder is ours");
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("hosts")
    }
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Free for UDP and TCP just now.
fn free_port() -> u16 {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = tcp.local_addr().expect("bound").port();
        if UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Debian puts it where a user's PATH may not look.
fn program() -> &'static str {
    let found = ["/usr/sbin/dnsmasq", "/usr/local/sbin/dnsmasq", "/usr/bin/dnsmasq"];
    found.into_iter().find(|path| std::path::Path::new(path).exists()).unwrap_or("dnsmasq")
}
