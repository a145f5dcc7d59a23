//! `pulsegate simulate`: a scenario played in virtual time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::output;
use crate::config::scenario::{self, Scenario};
use crate::config::{Problem, Severity, environment};
use crate::simulate;

/// Arguments of `pulsegate simulate`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The scenario
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Draw it as SVG into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Play it with another policy too, whose keys are laid over those of the scenario; instead of its own `compare`
    #[arg(long, value_name = "POLICY")]
    pub compare: Option<PathBuf>,
    /// What chance begins with; else the scenario's own
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Only say what is wrong with the scenario
    #[arg(long)]
    pub check: bool,
}

/// How what was played is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// What would be logged and when, and tables of what it comes to; problems as lines
    Text,
    /// Every transition and every number of each pool, or the problems, as one object
    Json,
}

/// Plays the scenario, or says what is wrong with it: all problems, on stdout with --check and else on stderr.
pub fn run(args: &Args) -> ExitCode {
    let read = scenario::load(&args.scenario, args.compare.as_deref(), &environment);
    if args.check {
        return check(&args.scenario, &read, args.format);
    }
    let mut scenario = match read {
        Ok(scenario) => scenario,
        Err(problems) => {
            output::tell((lines(&problems) + &verdict(&args.scenario, &problems)).trim_end());
            return ExitCode::FAILURE;
        }
    };
    scenario.advice.iter().for_each(output::tell);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let runs = simulate::run(&scenario);
    if let Some(path) = &args.svg
        && let Err(error) = std::fs::write(path, simulate::picture(&scenario, &runs))
    {
        output::tell(format_args!("pulsegate: {} cannot be written: {error}", path.display()));
        return ExitCode::FAILURE;
    }
    let told = match args.format {
        Format::Text => output::lines(&simulate::text(&scenario, &runs)),
        Format::Json => output::json(&simulate::json(&scenario, &runs)),
    };
    output::end(&told, ExitCode::SUCCESS)
}

fn check(path: &Path, read: &Result<Scenario, Vec<Problem>>, format: Format) -> ExitCode {
    let problems = read.as_ref().map_or_else(|problems| problems, |scenario| &scenario.advice);
    let summary = match read {
        Ok(scenario) => format!("{}: {}\n", path.display(), summary(scenario)),
        Err(problems) => verdict(path, problems),
    };
    let text = match format {
        Format::Text if read.is_ok() => output::lines(&(lines(problems) + &summary)),
        Format::Text => output::lines(&lines(problems)),
        Format::Json => {
            let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
            let warnings = problems.len() - errors;
            let file = path.display().to_string();
            let found = json!({ "file": file, "errors": errors, "warnings": warnings, "problems": problems });
            output::json(&format!("{found:#}\n"))
        }
    };
    let code = output::end(&text, if read.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    if read.is_err() {
        output::tell(summary.trim_end());
    }
    code
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn verdict(path: &Path, problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    format!("{}: {errors} error{}\n", path.display(), if errors == 1 { "" } else { "s" })
}

fn summary(scenario: &Scenario) -> String {
    let pools = scenario.policies.first().map_or(0, |policy| policy.config.pools.len());
    let duration = simulate::in_days(scenario.duration);
    let (turns, policies) = (scenario.story.len(), scenario.policies.len());
    let plural = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    format!(
        "ok, {duration}, {}, {}, {}",
        plural(pools, "pool", "pools"),
        plural(turns, "turn", "turns"),
        plural(policies, "policy", "policies")
    )
}
