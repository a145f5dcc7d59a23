//! What an access log says, read line by line: a full experiment's does not belong into memory.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A log's sums.
#[derive(Debug, Default)]
pub struct Logged {
    /// Lines.
    pub lines: usize,
    pub statuses: BTreeMap<u64, usize>,
    /// Of those that did not go well.
    pub reasons: BTreeMap<String, usize>,
    /// Attempts that reached a member, by its address.
    pub sent: BTreeMap<String, usize>,
    /// Attempts that were called away from their member.
    pub rescued: usize,
    /// Lines of which a time is below zero.
    pub negative: usize,
    /// Lines that are no JSON.
    pub torn: usize,
    /// Lines whose request has one already.
    pub double: usize,
    ids: HashSet<String>,
}

impl Logged {
    /// Reads these files, and in them the requests below `path`.
    pub fn read(files: &[PathBuf], path: &str) -> Logged {
        let mut logged = Logged::default();
        files.iter().for_each(|file| logged.take_in(file, path));
        logged
    }

    fn take_in(&mut self, file: &Path, path: &str) {
        let Ok(file) = File::open(file) else { return };
        for line in BufReader::new(file).split(b'\n') {
            let line = line.expect("a log that can be read");
            match serde_json::from_slice::<Value>(&line) {
                Ok(line) if line["path"].as_str().is_some_and(|asked| asked.starts_with(path)) => self.count(&line),
                Ok(_) => {}
                Err(_) => self.torn += 1,
            }
        }
    }

    fn count(&mut self, line: &Value) {
        self.lines += 1;
        *self.statuses.entry(line["status"].as_u64().unwrap_or_default()).or_default() += 1;
        let reason = line["reason"].as_str().unwrap_or("-");
        if reason != "-" {
            *self.reasons.entry(reason.to_owned()).or_default() += 1;
        }
        let id = line["request_id"].as_str().unwrap_or_default();
        self.double += usize::from(!self.ids.insert(id.to_owned()));
        let mut times = vec![&line["duration_ms"], &line["ttfb_ms"], &line["lb"]["waited_ms"]];
        for attempt in line["attempts"].as_array().map_or(&[][..], Vec::as_slice) {
            times.extend([&attempt["connect_ms"], &attempt["ttfb_ms"], &attempt["duration_ms"]]);
            self.rescued += usize::from(attempt["result"] == "rescued");
            if attempt["result"] != "connect_failed" {
                let member = attempt["member"].as_str().unwrap_or_default();
                *self.sent.entry(member.to_owned()).or_default() += 1;
            }
        }
        self.negative += usize::from(times.iter().any(|time| time.as_f64().is_some_and(|ms| ms < 0.0)));
    }

    /// Attempts that reached a member.
    pub fn attempts(&self) -> usize {
        self.sent.values().sum()
    }
}
