//! `pulsegate check`: everything that is wrong with a file, advice on the rest, and what it will cost.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::config::{self, Config, Loaded, Problem, Severity};

/// Arguments of `pulsegate check`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The file to check.
    #[arg(long, env = "PULSEGATE_CONFIG", default_value = "proxy.yaml", value_name = "FILE")]
    pub config: PathBuf,
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

/// Checks the file. Problems go to stdout; what made it fail, in a word, to stderr.
pub fn run(args: &Args) -> ExitCode {
    let report = Report::new(&args.config, config::load(&args.config, &|name| std::env::var(name).ok()));
    let text = match args.format {
        Format::Text => report.text(),
        Format::Json => report.json(),
    };
    // A reader that has gone away, as in `check | head`, is no failure of the file.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let acceptable = report.errors() == 0 && !(args.strict && report.warnings() > 0);
    if acceptable {
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(std::io::stderr(), "{}", report.summary());
    ExitCode::FAILURE
}

/// What `check` found in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    file: String,
    problems: Vec<Problem>,
    config: Option<Config>,
}

impl Report {
    /// The outcome of loading the file at `path`.
    pub fn new(path: &Path, outcome: Result<Loaded, Vec<Problem>>) -> Report {
        let (problems, config) = match outcome {
            Ok(loaded) => (loaded.advice, Some(loaded.config)),
            Err(problems) => (problems, None),
        };
        Report { file: path.display().to_string(), problems, config }
    }

    /// How many problems refuse the file.
    pub fn errors(&self) -> usize {
        self.problems.iter().filter(|p| p.severity == Severity::Error).count()
    }

    /// How many problems are advice.
    pub fn warnings(&self) -> usize {
        self.problems.len() - self.errors()
    }

    /// A line for each problem; for a file that can be used, the summary too.
    pub fn text(&self) -> String {
        let mut text: String = self.problems.iter().map(|problem| format!("{problem}\n")).collect();
        if self.config.is_some() {
            text.push_str(&self.summary());
            text.push('\n');
        }
        text
    }

    /// The same for programs, with the effective configuration.
    pub fn json(&self) -> String {
        let report = json!({
            "file": self.file,
            "errors": self.errors(),
            "warnings": self.warnings(),
            "problems": self.problems,
            "probes_per_second": self.config.as_ref().map(Config::probes_per_second),
            "effective": self.config.as_ref().map(Config::effective),
        });
        format!("{report:#}\n")
    }

    /// `proxy.yaml: ok, 2 pools, 8 members, 6.0 probes/s`, or how much is wrong.
    pub fn summary(&self) -> String {
        let warnings = count(self.warnings(), "warning");
        let Some(config) = &self.config else {
            return format!("{}: {}, {warnings}", self.file, count(self.errors(), "error"));
        };
        let members = config.pools.values().map(|pool| pool.members.len()).sum();
        let ok = if self.warnings() == 0 { "ok" } else { &warnings };
        format!(
            "{}: {ok}, {}, {}, {:.1} probes/s",
            self.file,
            count(config.pools.len(), "pool"),
            count(members, "member"),
            config.probes_per_second()
        )
    }
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
