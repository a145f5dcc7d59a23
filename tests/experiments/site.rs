//! What the experiments stand on: members that are real processes, a log in a file, and what the kernel says of the proxy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::harness::eventually_some;
use crate::harness::nginx::Nginx;
use crate::harness::proxy::Proxy;
use crate::logged::Logged;

/// As experiments.md has it where a time to detect is asked for.
pub const PROBE: &str =
    "probe: { path: /, interval: 1s, fast_interval: 250ms, timeout: 500ms, consecutive: { failures: 2, passes: 1 } }";

/// So many nginx.
pub fn members(count: usize) -> Vec<Nginx> {
    (0..count).map(|_| Nginx::start()).collect()
}

/// Their addresses as YAML has them.
pub fn quoted(members: &[Nginx]) -> Vec<String> {
    members.iter().map(|member| format!("\"{}\"", member.address())).collect()
}

/// Requests below `path` that reached any of them.
pub fn reached(members: &[Nginx], path: &str) -> usize {
    let below = |member: &Nginx| member.targets().iter().filter(|target| target.starts_with(path)).count();
    members.iter().map(below).sum()
}

/// Targets that any member has in its log more than once.
pub fn twice(members: &[Nginx], path: &str) -> usize {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    let targets = members.iter().flat_map(Nginx::targets).filter(|target| target.starts_with(path));
    targets.for_each(|target| *count.entry(target).or_default() += 1);
    count.values().filter(|count| **count > 1).count()
}

/// A folder for an access log.
#[derive(Debug)]
pub struct LogFile(TempDir);

impl LogFile {
    /// Nothing is in it.
    pub fn new() -> LogFile {
        LogFile(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.0.path().join("access.log")
    }

    /// The key of the configuration.
    pub fn key(&self) -> String {
        format!("access_log: {{ path: \"{}\" }}\n", self.path().display())
    }

    /// Everything that was written here, however often it was moved.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.path()).expect("ours");
        entries.map(|entry| entry.expect("ours").path()).collect()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }
}

/// Sends `count` GETs below `path` and says what the log has of them.
#[track_caller]
pub fn sample(proxy: &Proxy, log: &LogFile, path: &str, count: usize) -> Logged {
    let already = Logged::read(&log.files(), path).lines;
    let mut client = proxy.connect();
    (0..count).for_each(|i| assert_eq!(client.get(&format!("{path}/{already}-{i}")).status, 200));
    let path = format!("{path}/{already}-");
    eventually_some("their lines are in the log", || {
        Some(Logged::read(&log.files(), &path)).filter(|logged| logged.lines == count)
    })
}

/// What the kernel says of a process.
#[derive(Debug, Clone, Copy)]
pub struct Vitals {
    /// In memory.
    pub kib: u64,
    pub threads: usize,
    pub descriptors: usize,
    /// Processor time so far, in hundredths of a second.
    pub ticks: u64,
}

impl Vitals {
    /// As they are now.
    pub fn of(proxy: &Proxy) -> Vitals {
        let process = PathBuf::from(format!("/proc/{}", proxy.id()));
        let status = fs::read_to_string(process.join("status")).expect("it runs");
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
        };
        let stat = fs::read_to_string(process.join("stat")).expect("it runs");
        // Behind the name, which is in brackets and may be anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        Vitals {
            kib: number("VmRSS:"),
            threads: number("Threads:") as usize,
            descriptors: fs::read_dir(process.join("fd")).map_or(0, Iterator::count),
            ticks: ticks(11) + ticks(12),
        }
    }
}
