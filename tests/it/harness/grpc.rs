//! A real server of gRPC's health protocol: that of Python, by gRPC's own authors.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::tls::Paper;

/// Where scripts/grpc.sh puts it.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/grpc/bin/python");

/// One server; stopped when dropped.
#[derive(Debug)]
pub struct HealthServer {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    port: u16,
}

impl HealthServer {
    /// Starts one in the clear: it serves as a whole, and knows no service.
    #[track_caller]
    pub fn start() -> HealthServer {
        HealthServer::launch(&[])
    }

    /// The same behind TLS.
    #[track_caller]
    pub fn start_tls(paper: &Paper) -> HealthServer {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: String| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("the folder is ours");
            path.display().to_string()
        };
        let (cert, key) = paper.pem();
        // It has read them when it tells its port.
        HealthServer::launch(&[write("cert.pem", cert), write("key.pem", key)])
    }

    /// `127.0.0.1:41233`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What it says of a service from now on; `-` is the server as a whole.
    #[track_caller]
    pub fn says(&mut self, service: &str, status: &str) {
        let commands = self.commands.as_mut().expect("it runs");
        writeln!(commands, "{service} {status}").and_then(|()| commands.flush()).expect("the server reads");
        assert_eq!(self.line(), "done");
    }

    #[track_caller]
    fn launch(arguments: &[String]) -> HealthServer {
        assert!(
            Path::new(PYTHON).exists(),
            "grpcio is not installed: run scripts/test, which puts it into target/grpc (scripts/grpc.sh)"
        );
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/harness/grpc/health.py");
        let mut child = Command::new(PYTHON)
            .arg(script)
            .args(arguments)
            // It tells of every client that does not like its certificate.
            .env("GRPC_VERBOSITY", "NONE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the server of gRPC's health starts: scripts/test installs it into target/grpc");
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut server = HealthServer { child, commands, answers, port: 0 };
        server.port = server.line().parse().expect("it tells its port");
        server
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the server answers");
        line.trim_end().to_owned()
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
