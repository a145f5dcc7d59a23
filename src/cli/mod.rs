//! The command line: one file a command.

mod run;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::telemetry::{self, Logging};

/// How long the last lines of the log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A health-aware reverse proxy: traffic stays on members that are fit to serve, and the log says why.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve
    ///
    /// Signals: HUP reads the configuration again (all of it or nothing), TERM ends when the last request has (after
    /// `lame_duck`), INT likewise without lame duck and a second INT at once, USR1 opens the access log again.
    Run {
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        log: LogOptions,
    },
}

/// Which configuration.
#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration
    #[arg(long = "config", short, env = "PULSEGATE_CONFIG", default_value = "proxy.yaml", value_name = "FILE")]
    path: PathBuf,
}

/// How the program's own log looks, on standard error.
#[derive(Debug, Args)]
struct LogOptions {
    /// Lines for people or for programs; by default text on a terminal, JSON elsewhere
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// What is logged: `info`, `warn,health=info`, … (tracing filter)
    #[arg(long, env = "PULSEGATE_LOG", value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl Cli {
    /// Does what was asked for. 0: done; 1: failed, and the last line on stderr says why; 2: usage (clap's own exit).
    pub fn execute(self) -> ExitCode {
        match self.command {
            Command::Run { config, log } => logged(&log, || run::run(config.path)),
        }
    }
}

/// Runs `command` with the log set up, and writes the log's last lines before its verdict.
fn logged(options: &LogOptions, command: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    let logging = match options.start() {
        Ok(logging) => logging,
        Err(error) => return fail(&error),
    };
    let result = command();
    logging.close(LAST_LINES);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("pulsegate: {error}");
    ExitCode::FAILURE
}

impl LogOptions {
    fn start(&self) -> Result<Logging, telemetry::InitError> {
        let format = match self.log_format {
            Some(LogFormat::Text) => telemetry::Format::Text,
            Some(LogFormat::Json) => telemetry::Format::Json,
            None if io::stderr().is_terminal() => telemetry::Format::Text,
            None => telemetry::Format::Json,
        };
        let logging = telemetry::init(self.log.as_deref(), format)?;
        telemetry::log_panics();
        Ok(logging)
    }
}
