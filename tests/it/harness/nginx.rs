//! Real origins: nginx as one process each (a `kill -9` or SIGSTOP hits all of it), on ports that stay theirs.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use socket2::Socket;
use tempfile::TempDir;

use super::origin::hold_port;
use super::process::signal;
use super::tls::Paper;
use super::wait::eventually;

/// One nginx.
#[derive(Debug)]
pub struct Nginx {
    dir: TempDir,
    address: SocketAddr,
    child: Option<Child>,
    _holder: Socket,
}

impl Nginx {
    /// Starts one and waits until it accepts.
    #[track_caller]
    pub fn start() -> Nginx {
        Nginx::listening("", None)
    }

    /// One that speaks HTTP/2 and nothing else, without TLS.
    #[track_caller]
    pub fn start_http2() -> Nginx {
        Nginx::listening("http2", None)
    }

    /// One that speaks HTTP over TLS, and HTTP/2 with those who agree to it.
    #[track_caller]
    pub fn start_http2_tls(paper: &Paper) -> Nginx {
        Nginx::listening("ssl http2", Some(paper))
    }

    /// One that speaks HTTP/1.1 over TLS.
    #[track_caller]
    pub fn start_tls(paper: &Paper) -> Nginx {
        Nginx::listening("ssl", Some(paper))
    }

    #[track_caller]
    fn listening(words: &str, paper: Option<&Paper>) -> Nginx {
        let (holder, address) = hold_port(Ipv4Addr::LOCALHOST.into());
        let dir = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("the folder is ours");
        let mut secrets = "";
        if let Some((cert, key)) = paper.map(Paper::pem) {
            write("cert.pem", &cert);
            write("key.pem", &key);
            secrets = "ssl_certificate cert.pem; ssl_certificate_key key.pem;";
        }
        write("nginx.conf", &config(address, words, secrets));
        let mut nginx = Nginx { dir, address, child: None, _holder: holder };
        nginx.start_again();
        nginx
    }

    /// `127.0.0.1:41233`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Starts it on its port, where it must not be running.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "nginx runs already");
        let folder = self.dir.path().display().to_string();
        let child = Command::new(program())
            .args(["-p", &folder, "-c", "nginx.conf", "-e", "error.log"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx starts: scripts/test installs it (Debian: apt-get install nginx-light)");
        self.child = Some(child);
        eventually("nginx accepts", || TcpStream::connect(self.address).is_ok());
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal by its name: `STOP`, `CONT`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("nginx runs").id(), name);
    }

    /// How many lines its log has whose user agent is not a prober's: the requests that reached it.
    pub fn traffic_count(&self) -> usize {
        self.targets().len()
    }

    /// Of each probe, which protocol it came in, and as which request of its connection.
    pub fn probes(&self) -> Vec<(String, usize)> {
        let log = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
        let probes = log.lines().filter(|line| line.contains("pulsegate") && line.contains("probe"));
        let read = |line: &str| {
            let mut words = line.rsplit(' ');
            let nth = words.next()?.parse().ok()?;
            Some((words.next()?.to_owned(), nth))
        };
        probes.filter_map(read).collect()
    }

    /// What was asked for, probes left out, in the order of its log: that of the ends of its answers.
    pub fn targets(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap_or_default();
        let traffic = log.lines().filter(|line| !(line.contains("pulsegate") && line.contains("probe")));
        traffic.map(|line| line.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Debian puts it where a user's PATH may not look.
fn program() -> &'static str {
    let found = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
    found.into_iter().find(|path| std::path::Path::new(path).exists()).unwrap_or("nginx")
}

/// One process, no daemon; everything it writes stays in its folder. Unbuffered log: a killed process has told all.
fn config(address: SocketAddr, words: &str, secrets: &str) -> String {
    format!(
        "master_process off; daemon off; pid nginx.pid; error_log error.log; worker_rlimit_nofile 1024;
events {{ worker_connections 256; }}
http {{
  log_format who '$status $request_uri \"$http_user_agent\" $server_protocol $connection_requests';
  access_log access.log who;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{ listen {address} {words}; {secrets} location / {{ return 200 'nginx {address} $request_uri\\n'; }} }}
}}
"
    )
}
