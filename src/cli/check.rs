//! `pulsegate check`: everything that is wrong with a file, advice on the rest, and what it will cost.

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::{NamedFile, output, outside};
use crate::config::{self, Config, Cost, Loaded, Member, PoolCost, Problem, Severity};
use crate::snapshot::Found;

/// Arguments of `pulsegate check`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) file: NamedFile,
    /// Look at the file alone: resolve no names, open no other files.
    #[arg(long)]
    pub offline: bool,
    /// Fail on warnings too.
    #[arg(long)]
    pub strict: bool,
    /// `json` has the effective configuration too, every default written out.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// How the findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One line each, `file:line:column: error|warning: …`, and a summary.
    Text,
    /// One object.
    Json,
}

/// Checks the file. Problems go to stdout, and so does the summary of a file that passes; that of one that fails goes
/// to stderr, whose last line says why.
pub fn run(args: &Args) -> ExitCode {
    let path = args.file.path();
    let read = config::load(path, &config::environment);
    let report = match args.offline {
        true => Report::new(path, read),
        false => Report::of(path, read.and_then(outside::tried)),
    };
    let passes = report.errors() == 0 && !(args.strict && report.warnings() > 0);
    let summary = format!("{}\n", report.summary());
    let (text, failure) = match (args.format, passes) {
        (Format::Text, true) => (output::lines(&(report.text() + &summary)), String::new()),
        (Format::Text, false) => (output::lines(&report.text()), summary),
        (Format::Json, true) => (output::json(&report.json()), String::new()),
        (Format::Json, false) => (output::json(&report.json()), summary),
    };
    let code = output::end(&text, if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    if !failure.is_empty() {
        output::tell(failure.trim_end());
    }
    code
}

/// What `check` found in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    file: String,
    problems: Vec<Problem>,
    config: Option<Config>,
    cost: Option<Cost>,
    /// Members that were found; `None`: nobody was asked, and only the file is known.
    found: Option<usize>,
}

impl Report {
    /// The outcome of loading the file at `path`.
    pub fn new(path: &Path, outcome: Result<Loaded, Vec<Problem>>) -> Report {
        Report::of(path, outcome.map(|loaded| (loaded, None)))
    }

    /// The same, with the members that were found.
    fn of(path: &Path, outcome: Result<(Loaded, Option<Found>), Vec<Problem>>) -> Report {
        let file = path.display().to_string();
        let (loaded, found) = match outcome {
            Ok(read) => read,
            Err(problems) => return Report { file, problems, config: None, cost: None, found: None },
        };
        let Loaded { config, advice, .. } = loaded;
        let cost = found.as_ref().map_or_else(|| config.cost(), |found| outside::cost(&config, found));
        let found = found.map(|found| config.pools.keys().map(|pool| found.of(pool).len()).sum());
        Report { file, problems: advice, config: Some(config), cost: Some(cost), found }
    }

    /// How many problems refuse the file.
    pub fn errors(&self) -> usize {
        self.problems.iter().filter(|p| p.severity == Severity::Error).count()
    }

    /// How many problems are advice.
    pub fn warnings(&self) -> usize {
        self.problems.len() - self.errors()
    }

    /// A line for each problem.
    pub fn text(&self) -> String {
        self.problems.iter().map(|problem| format!("{problem}\n")).collect()
    }

    /// The same for programs, with the effective configuration.
    pub fn json(&self) -> String {
        let report = json!({
            "file": self.file,
            "errors": self.errors(),
            "warnings": self.warnings(),
            "problems": self.problems,
            "probes_per_second": self.cost.as_ref().map(|cost| cost.probes_per_second),
            "probes": self.cost.as_ref().map(|cost| probes(cost, self.found.is_some())),
            "effective": self.config.as_ref().map(Config::effective),
        });
        format!("{report:#}\n")
    }

    /// `proxy.yaml: ok, 2 pools, 8 members, 6.0 probes/s (0.2 to 1.0 a member)`, or how much is wrong.
    pub fn summary(&self) -> String {
        let warnings = count(self.warnings(), "warning");
        let (Some(config), Some(cost)) = (&self.config, &self.cost) else {
            return format!("{}: {}, {warnings}", self.file, count(self.errors(), "error"));
        };
        let written = || config.pools.values().map(|pool| pool.members.len()).sum();
        let members = self.found.unwrap_or_else(written);
        let sources = config.pools.values().map(|pool| pool.services.len() + pool.files.len()).sum();
        let sources = if sources == 0 { String::new() } else { format!(" and {}", count(sources, "source")) };
        let ok = if self.warnings() == 0 { "ok" } else { &warnings };
        let unknown = if self.found.is_some() { None } else { unknown(config) };
        format!(
            "{}: {ok}, {}, {}{sources}, {:.1} probes/s{}",
            self.file,
            count(config.pools.len(), "pool"),
            count(members, "member"),
            cost.probes_per_second,
            more_of(cost, unknown)
        )
    }
}

/// What there is to say of the probes beside how many they are a second; without it, each member has a probe of its own, at
/// one pace.
fn more_of(cost: &Cost, unknown: Option<&str>) -> String {
    let mut parts = Vec::new();
    let rates = cost.pools.iter().filter(|pool| pool.members > 0).map(|pool| pool.per_member);
    let (least, most) = rates.fold((f64::MAX, 0.0_f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    if most > least {
        parts.push(format!("{} to {} a member", rounded(least), rounded(most)));
    } else if most > 0.0 {
        parts.push(format!("{} a member", rounded(most)));
    }
    if cost.shared > 0 {
        parts.push(format!("{} of {} shared", cost.shared, count(cost.probes, "probe")));
    }
    if cost.idle_probes_per_second < cost.probes_per_second {
        parts.push(format!("{} without traffic", rounded(cost.idle_probes_per_second)));
    }
    if cost.stretch > 1.0 {
        parts.push(format!("held back: intervals are {:.1} times as long", cost.stretch));
    }
    parts.extend(unknown.map(|what| format!("without those that {what} add")));
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// What may lead to more members than the file writes.
fn unknown(config: &Config) -> Option<&'static str> {
    let mut pools = config.pools.values().filter(|pool| pool.probe.is_some());
    let is_named = |member: &Member| member.host.parse::<IpAddr>().is_err();
    let names = pools.clone().any(|pool| pool.members.iter().any(is_named));
    let sources = pools.any(|pool| pool.is_discovered());
    match (names, sources) {
        (true, true) => Some("names and sources"),
        (true, false) => Some("names"),
        (false, true) => Some("sources"),
        (false, false) => None,
    }
}

/// A rate in as few digits as tell it from nothing.
fn rounded(rate: f64) -> String {
    let digits = if rate >= 0.1 { 1 } else { 3 };
    format!("{rate:.digits$}")
}

fn probes(cost: &Cost, found: bool) -> Value {
    let pool = |pool: &PoolCost| {
        let keys = json!({
            "members": pool.members,
            "shared": pool.shared,
            "interval_ms": pool.interval.map(|interval| interval.as_secs_f64() * 1000.0),
            "probes_per_second": pool.probes_per_second,
            "per_member": pool.per_member,
        });
        (pool.name.clone(), keys)
    };
    json!({
        "per_second": cost.probes_per_second,
        "per_second_idle": cost.idle_probes_per_second,
        "count": cost.probes,
        "shared": cost.shared,
        "kept": cost.kept,
        // Whether names and sources count by the members that they have here.
        "found": found,
        "stretch": cost.stretch,
        "pools": cost.pools.iter().map(pool).collect::<Map<String, Value>>(),
    })
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        Report::new(Path::new("a.yaml"), config::parse("a.yaml", text, &|_| None))
    }

    const GOOD: &str = "listeners: [{ address: \"0.0.0.0:80\" }]\npools: { web: { members: [\"a:80\", \"b:80\"], probe: { path: / } } }\nroutes: [{ pool: web }]\n";

    #[test]
    fn the_summary_counts_what_there_is_or_what_is_wrong() {
        let unprobed = GOOD.replace("probe: { path: / }", "required: true");
        let rows = [
            (
                GOOD.to_owned(),
                "a.yaml: ok, 1 pool, 2 members, 0.4 probes/s (0.2 a member, without those that names add)",
            ),
            (
                GOOD.replace("\"a:80\", \"b:80\"", "\"10.0.0.1:80\", \"[::1]:80\""),
                "a.yaml: ok, 1 pool, 2 members, 0.4 probes/s (0.2 a member)",
            ),
            (
                unprobed,
                "a.yaml: 1 warning, 1 pool, 2 members, 0.4 probes/s (0.2 a member, without those that names add)",
            ),
            (GOOD.replace("probe: { path: / }", "probe: off"), "a.yaml: 1 warning, 1 pool, 2 members, 0.0 probes/s"),
            (
                GOOD.replace("\"a:80\"", "{ srv: _a._tcp.b }"),
                "a.yaml: ok, 1 pool, 1 member and 1 source, 0.2 probes/s (0.2 a member, without those that names and \
                 sources add)",
            ),
            (
                GOOD.replace(
                    "web: {",
                    "api: { members: [\"b:80\"], probe: { path: /, interval: 20s, timeout: 2s, idle: {} } }, web: {",
                )
                .replace("routes: [", "max_probes_per_second: 1\nroutes: [{ path: /a, pool: api }, "),
                "a.yaml: ok, 2 pools, 3 members, 0.4 probes/s (0.050 to 0.2 a member, 1 of 2 probes shared, without \
                 those that names add)",
            ),
            (
                GOOD.replace("path: / }", "path: /, interval: 100ms, idle: {} }")
                    .replace("routes", "max_probes_per_second: 10\nroutes"),
                "a.yaml: 1 warning, 1 pool, 2 members, 20.0 probes/s (10.0 a member, 0.017 without traffic, held back: \
                 intervals are 2.1 times as long, without those that names add)",
            ),
            (GOOD.replace("path: /", "path: /, interval: 5"), "a.yaml: 1 error, 0 warnings"),
            (GOOD.replace("web", "we b"), "a.yaml: 1 error, 0 warnings"),
            ("version: 1\n".to_owned(), "a.yaml: 3 errors, 0 warnings"),
        ];
        for (text, summary) in rows {
            assert_eq!(report(&text).summary(), summary, "{text}");
        }
    }

    #[test]
    fn json_has_the_problems_and_the_effective_file() {
        let good: serde_json::Value = serde_json::from_str(&report(GOOD).json()).expect("json");
        assert_eq!(
            (&good["errors"], &good["warnings"], &good["probes_per_second"]),
            (&json!(0), &json!(0), &json!(0.4))
        );
        assert_eq!(
            (&good["probes"]["per_second"], &good["probes"]["pools"]["web"]["members"]),
            (&json!(0.4), &json!(2))
        );
        assert_eq!(good["effective"]["pools"]["web"]["max_unhealthy_percent"], json!(50));
        let bad: serde_json::Value = serde_json::from_str(&report("version: 2\n").json()).expect("json");
        assert_eq!(bad["effective"], json!(null));
        let first = &bad["problems"].as_array().expect("a list")[0];
        assert_eq!(
            (&first["file"], &first["line"], &first["severity"]),
            (&json!("a.yaml"), &json!(1), &json!("error"))
        );
    }

    #[test]
    fn text_is_a_line_for_each_problem() {
        let text = report("version: 2\nlisteners: 5\n").text();
        assert!(text.contains("a.yaml:1:10: error: version 2 is not known; this is version 1\n"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
