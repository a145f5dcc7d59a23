//! The real program as a child process: its two streams line by line, signals, and its end.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::Value;

use super::wait::{Deadline, PATIENCE, eventually, eventually_some};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_pulsegate");

/// One line of output, with its JSON where it is JSON.
#[derive(Debug, Clone)]
pub struct Line {
    pub raw: String,
    /// `Null` where the line is not JSON.
    pub json: Value,
}

impl Line {
    /// The field's text; empty where there is none.
    pub fn text(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_default()
    }

    /// All these fields have these texts.
    pub fn has(&self, fields: &[(&str, &str)]) -> bool {
        fields.iter().all(|(field, text)| self.text(field) == *text)
    }

    /// When it was written, in milliseconds of the day; a case that runs over midnight is not worth a date.
    pub fn millis(&self) -> f64 {
        let time = self.text("time").split_once('T').map_or("", |(_, time)| time).trim_end_matches('Z');
        let parts: Vec<f64> = time.split(':').map(|part| part.parse().expect("a time")).collect();
        (parts[0] * 3600.0 + parts[1] * 60.0 + parts[2]) * 1000.0
    }

    /// Logged as an error.
    pub fn is_error(&self) -> bool {
        self.text("level").eq_ignore_ascii_case("error")
    }

    /// Which members a request of the access log was sent to, in order.
    pub fn tried(&self) -> Vec<&str> {
        self.attempts().iter().map(|attempt| attempt["member"].as_str().unwrap_or_default()).collect()
    }

    /// The attempts of a line of the access log.
    pub fn attempts(&self) -> &[Value] {
        self.json["attempts"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// A stream's lines, growing while the process lives.
#[derive(Debug, Default)]
pub struct Log {
    read: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<Line>,
    over: bool,
}

impl Log {
    fn reading(stream: impl Read + Send + 'static) -> Arc<Log> {
        let log = Arc::new(Log::default());
        let writer = Arc::clone(&log);
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut bytes = vec![];
            while stream.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
                let raw = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
                let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                writer.lock().lines.push(Line { raw, json });
                writer.changed.notify_all();
                bytes.clear();
            }
            writer.lock().over = true;
            writer.changed.notify_all();
        });
        log
    }

    /// Every line so far.
    pub fn lines(&self) -> Vec<Line> {
        self.lock().lines.clone()
    }

    /// How many lines so far.
    pub fn len(&self) -> usize {
        self.lock().lines.len()
    }

    /// Whether the stream is at its end.
    fn is_over(&self) -> bool {
        self.lock().over
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first line from `start` on that is `wanted`, waiting for it; panics with `what` when patience is over.
    #[track_caller]
    pub fn find(&self, what: &str, start: usize, wanted: impl Fn(&Line) -> bool) -> Line {
        let deadline = Deadline::new();
        let mut read = self.lock();
        let mut looked = start;
        loop {
            if let Some(found) = read.lines.iter().skip(looked).find(|line| wanted(line)) {
                return found.clone();
            }
            looked = read.lines.len().max(start);
            let Some(left) = deadline.left().filter(|_| !read.over) else { break };
            read = self.changed.wait_timeout(read, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(read);
        panic!("not logged within {PATIENCE:?}: {what}");
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// `None` where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The last line on stderr, which says why (interfaces.md, exit codes).
    pub fn reason(&self) -> &str {
        self.stderr.trim_end().lines().last().unwrap_or_default()
    }
}

/// A running `pulsegate`; killed when dropped, and its streams shown when the test fails.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pub stdout: Arc<Log>,
    pub stderr: Arc<Log>,
}

impl Process {
    /// Starts `pulsegate ARGS` in `dir`.
    pub fn start(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Process {
        Process::spawn(Command::new(PROGRAM), dir, args, env)
    }

    /// Starts it in a shell that has done something before; the shell may itself be started by another program.
    pub fn start_after(dir: &Path, args: &[&str], shell: &[&str], before: &str) -> Process {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).args(["-c", &format!("{before} && exec \"$0\" \"$@\""), PROGRAM]);
        Process::spawn(command, dir, args, &[])
    }

    /// Starts it with its standard output at this path: a FIFO whose reader is the case's own, say.
    pub fn start_with_stdout(dir: &Path, args: &[&str], stdout: &Path) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >\"$STDOUT\"", PROGRAM]);
        Process::spawn(command, dir, args, &[("STDOUT", &stdout.to_string_lossy())])
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn spawn(mut command: Command, dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Process {
        command.args(args).current_dir(dir);
        for name in ["CONFIG", "LOG", "ADMIN", "TOKEN"] {
            command.env_remove(format!("PULSEGATE_{name}"));
        }
        command.env("NO_COLOR", "1").envs(env.iter().copied());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = Log::reading(child.stdout.take().expect("piped"));
        let stderr = Log::reading(child.stderr.take().expect("piped"));
        Process { child, stdout, stderr }
    }

    /// Sends a signal by its name: `HUP`, `TERM`, `USR1`, `KILL`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child is ours")
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        eventually_some("the process ends", || self.ended())
    }

    fn show(&self) {
        for (name, log) in [("stderr", &self.stderr), ("stdout", &self.stdout)] {
            let lines = log.lines();
            let skipped = lines.len().saturating_sub(400);
            eprintln!("---- {name} of pulsegate ({skipped} lines before these)");
            lines.iter().skip(skipped).for_each(|line| eprintln!("{}", line.raw));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            self.show();
        }
    }
}

/// Runs `pulsegate ARGS` to its end; killed and panicked about when it has none within patience.
#[track_caller]
pub fn run(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Ended {
    let mut process = Process::start(dir, args, env);
    let status = process.wait();
    eventually("the streams end with the process", || process.stdout.is_over() && process.stderr.is_over());
    let text = |log: &Log| log.lines().iter().map(|line| format!("{}\n", line.raw)).collect();
    Ended { code: status.code(), stdout: text(&process.stdout), stderr: text(&process.stderr) }
}

/// Sends a signal to a process of ours by its id.
#[track_caller]
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().expect("sh runs");
    assert!(sent.success(), "kill -{name} {pid}: {sent}");
}
