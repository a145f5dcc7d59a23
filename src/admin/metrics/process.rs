//! The process as the kernel sees it, from `/proc`. Elsewhere than on Linux there is nothing to tell.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use crate::clock;
use crate::telemetry::metrics::{self, Page};

/// Ticks of a second in `/proc/self/stat`: the kernel shows 100 to every program, whatever it counts in itself.
const TICKS: f64 = 100.0;

/// What `/proc/self/status` counts memory in.
const KIB: f64 = 1024.0;

/// When the process began: worked out once, since both clocks go on between two readings and a start that moves would look
/// like a restart.
static START: OnceLock<Option<f64>> = OnceLock::new();

/// The families of the process.
pub fn process(page: &mut Page) {
    let (stat, status) = (read("stat"), read("status"));
    if let Some(stat) = Stat::parse(&stat) {
        if let Some(start) = *START.get_or_init(|| started_at(stat.started)) {
            page.single(&metrics::PROCESS_START, start);
        }
        page.single(&metrics::PROCESS_CPU, stat.cpu);
    }
    let kib = |field| of_status(&status, field).map(|number| number * KIB);
    for (metric, value) in [
        (&metrics::PROCESS_RESIDENT, kib("VmRSS:")),
        (&metrics::PROCESS_VIRTUAL, kib("VmSize:")),
        (&metrics::PROCESS_THREADS, of_status(&status, "Threads:")),
        (&metrics::PROCESS_OPEN_FDS, open_descriptors()),
        (&metrics::PROCESS_MAX_FDS, max_descriptors(&read("limits"))),
    ] {
        if let Some(value) = value {
            page.single(metric, value);
        }
    }
}

fn read(file: &str) -> String {
    fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default()
}

/// What is needed of `/proc/self/stat`, in seconds.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu: f64,
    /// Since the kernel began.
    started: f64,
}

impl Stat {
    fn parse(stat: &str) -> Option<Stat> {
        // The name may have blanks and brackets of its own; what follows the last one is the third field.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let seconds = |field: usize| Some(fields.get(field - 3)?.parse::<f64>().ok()? / TICKS);
        Some(Stat { cpu: seconds(14)? + seconds(15)?, started: seconds(22)? })
    }
}

/// In seconds of Unix time, of what began so long after the kernel.
fn started_at(started: f64) -> Option<f64> {
    let up: f64 = fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    let age = Duration::try_from_secs_f64(up - started).ok()?;
    let at = clock::wall().checked_sub(age)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(at.as_secs_f64())
}

fn of_status(status: &str, field: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}

fn open_descriptors() -> Option<f64> {
    // The one that looks is not counted.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

/// The soft limit; `None` where there is none.
fn max_descriptors(limits: &str) -> Option<f64> {
    of_status(limits, "Max open files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let numbers: Vec<String> = (4..=52).map(|n| (n * 100).to_string()).collect();
        let stat = format!("77 (a) b (c)) S {}\n", numbers.join(" "));
        assert_eq!(Stat::parse(&stat), Some(Stat { cpu: 29.0, started: 22.0 }));
        assert_eq!([Stat::parse(""), Stat::parse("77 (a) S 1 2")], [None, None]);
    }

    #[test]
    fn limits_are_read_where_there_are_any() {
        let limits = "Limit   Soft Limit   Hard Limit   Units\nMax open files            1024                 524288               files\n";
        assert_eq!(max_descriptors(limits), Some(1024.0));
        assert_eq!(
            max_descriptors("Max open files            unlimited            unlimited            files\n"),
            None
        );
    }

    #[test]
    fn this_process_shows_everything() {
        let mut page = Page::default();
        process(&mut page);
        let text = page.into_text();
        let value = |metric: &metrics::Metric| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{} ", metric.name)));
            line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {} in {text}", metric.name))
        };
        let all = metrics::ALL.iter().filter(|metric| metric.name.starts_with("process_"));
        // The limit may be none.
        for metric in all.filter(|metric| **metric != metrics::PROCESS_MAX_FDS) {
            assert!(value(metric) >= 0.0, "{}", metric.name);
        }
        let age = clock::wall().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let began = value(&metrics::PROCESS_START);
        assert!(began <= age && began > age - 86_400.0, "{began} {age}");
    }
}
