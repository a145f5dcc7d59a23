//! The command line: one file a command.

mod check;
pub mod demo;
mod enable;
mod explain;
mod member;
mod operator;
mod output;
mod outside;
mod probe;
mod reload;
mod replace;
mod run;
mod simulate;
mod standing;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::telemetry::{self, Logging};

/// How long the last lines of the log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The exit code of arguments that cannot be understood.
const USAGE: u8 = 2;

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
    /// The configuration is taken again when it changes, all of it or nothing (`reload: { watch: false }` leaves that out).
    ///
    /// Signals: HUP reads it again whether it has changed or not, TERM ends when the last request has (after
    /// `lame_duck`), INT likewise without lame duck and a second INT at once, USR1 opens the access log again.
    Run {
        #[command(flatten)]
        file: NamedFile,
        #[command(flatten)]
        log: LogOptions,
    },
    /// Say everything that is wrong with a configuration, and what it will cost
    ///
    /// Prints all problems and advice as `file:line:column: error|warning: …`; exits with 0, or with 1 on errors (with
    /// --strict on warnings too). Names are resolved, and files that the configuration names are looked for, as `run`
    /// would; --offline leaves that out.
    Check(check::Args),
    /// Run each probe of a pool once from here, and show what was sent, what came, and the sample
    ///
    /// Exits with 0 if every member that was asked has passed, and with 1 otherwise.
    Probe(probe::Args),
    /// Ask the running proxy where a request would go, and why not elsewhere
    ///
    /// The request is not sent, and asking changes nothing: no turn is taken and nothing is counted. Shown are the route,
    /// which of its pools serves, and of each member whether it would get the request, or why not.
    ///
    /// Exits with 0 whenever it is explained, whatever the request would get.
    Explain(explain::Args),
    /// Have the running proxy read its configuration again, and print what that has changed
    ///
    /// All of it or nothing: a file with errors changes nothing, every error is printed as `file:line:column: error: …`, and
    /// the exit code is 1.
    Reload(reload::Args),
    /// Give a member of the running proxy nothing new; what runs there may finish
    ///
    /// In a sticky pool clients that are bound to it still come until the pool's `drain` (10m) is over; the output says for how
    /// much longer, and --wait waits for that too.
    ///
    /// Holds until `enable`, until the file changes that member's `state`, until the member leaves the file (one that comes
    /// back with a later save is a new one), or, without a `state_dir`, until the proxy ends: with one it outlives a restart.
    ///
    /// Tunnels, such as WebSockets, go on as long as both sides like: a drain does not end them. To be rid of them take the
    /// member out of the file; they have the pool's `tunnels.drain` then.
    ///
    /// Where the pool is worse off for it, that is said on standard error; the exit code is 0 all the same.
    Drain(member::DrainArgs),
    /// Let a member of the running proxy take traffic again, if it is healthy
    ///
    /// It is healthy by the verdict it has: after a restart use --wait, which waits for a probe made since.
    Enable(enable::EnableArgs),
    /// Take a member of the running proxy out: no traffic and no probes
    ///
    /// Holds as long as `drain` does (with a `state_dir` over a restart), and says what `drain` does. What runs there may finish,
    /// and so may tunnels; clients that are bound to it go elsewhere at once.
    Disable(member::Args),
    /// Have a member of the running proxy replaced now, by its pool's `remediation`
    ///
    /// However it is: `after` does not matter. The limits hold, and it counts: within an hour, a day, and over all pools.
    /// For more than they allow, raise them in the file. The answer says that it has begun; how it ends is an event, and
    /// `GET /api/v1/remediation` has it too.
    Replace(replace::Args),
    /// Play a scenario in virtual time: what the pools of a configuration would do when members fail as it says
    ///
    /// Verdicts, the cap, balancing, failover and retries are the proxy's own; members, requests and time are made up. Prints
    /// what would be logged and when, and what it comes to; the same seed gives the same to the byte. Two policies on one
    /// scenario, by its own `compare` or by --compare, are shown side by side. Exits with 1 where the scenario has errors.
    Simulate(simulate::Args),
    /// Watch it work: the proxy with four embedded origins that misbehave in turn
    Demo {
        /// End after so many seconds
        #[arg(long, value_name = "N")]
        seconds: Option<u64>,
        /// Take free ports instead of those of the shipped proxy.yaml
        #[arg(long)]
        any_port: bool,
        /// How the proxy's own log looks between the lines of the demo
        #[arg(long, value_enum, default_value_t = LogFormat::Text)]
        log_format: LogFormat,
        #[command(flatten)]
        log: LogFilter,
    },
}

/// Which configuration.
#[derive(Debug, Clone, Args)]
struct ConfigFile {
    /// The configuration
    #[arg(
        long = "config",
        short = 'c',
        env = "PULSEGATE_CONFIG",
        default_value = "proxy.yaml",
        value_name = "FILE",
        value_parser = OsStringValueParser::new().try_map(path)
    )]
    path: PathBuf,
}

/// Which configuration, where no other argument stands alone.
#[derive(Debug, Clone, Args)]
struct NamedFile {
    #[command(flatten)]
    config: ConfigFile,
    /// The same as --config FILE, and before it where both are given
    #[arg(value_name = "FILE", value_parser = OsStringValueParser::new().try_map(path))]
    file: Option<PathBuf>,
}

impl NamedFile {
    fn path(&self) -> &Path {
        self.file.as_ref().unwrap_or(&self.config.path)
    }
}

/// A reload reads the file again, which standard input cannot be.
fn path(text: OsString) -> Result<PathBuf, String> {
    if text == "-" { Err("standard input is not read here; give a file".to_owned()) } else { Ok(text.into()) }
}

/// How the program's own log looks, on standard error.
#[derive(Debug, Args)]
struct LogOptions {
    /// Lines for people or for programs; by default text on a terminal, JSON elsewhere
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    #[command(flatten)]
    filter: LogFilter,
}

/// What of the program's own log is written.
#[derive(Debug, Args)]
struct LogFilter {
    /// What is logged: `info`, `warn,health=info`, … (tracing filter)
    #[arg(long, env = "PULSEGATE_LOG", value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Does what the program's arguments ask for. Help and the version are output like any other: where they cannot be written, that
/// is a failure.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => cli.execute(),
        Err(said) => {
            let printed = said.print().and_then(|()| io::stdout().flush());
            match printed {
                Err(error) if !said.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
                    output::unwritten(&error)
                }
                _ => ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(USAGE)),
            }
        }
    }
}

impl Cli {
    /// Does what was asked for. 0: done; 1: failed, and the last line on stderr says why; 2: usage (clap's own exit).
    pub fn execute(self) -> ExitCode {
        match self.command {
            Command::Run { file, log } => logged(&log, |logging| run::run(file.path(), logging)),
            Command::Check(args) => check::run(&args),
            Command::Probe(args) => probe::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Reload(args) => reload::run(&args),
            Command::Drain(args) => member::drain(&args),
            Command::Enable(args) => enable::run(&args),
            Command::Disable(args) => member::disable(&args),
            Command::Replace(args) => replace::run(&args),
            Command::Simulate(args) => simulate::run(&args),
            Command::Demo { seconds, any_port, log_format, log } => {
                let log = LogOptions { log_format: Some(log_format), filter: log };
                logged(&log, |logging| demo::run(seconds.map(Duration::from_secs), any_port, logging))
            }
        }
    }
}

/// Runs `command` with the log set up, and writes the log's last lines before its verdict.
fn logged(options: &LogOptions, command: impl FnOnce(&Logging) -> Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    let logging = match options.start() {
        Ok(logging) => logging,
        Err(error) => return fail(&error),
    };
    let result = command(&logging);
    logging.close(LAST_LINES);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&*error),
    }
}

/// Makes USR1 mean nothing to a command that serves nothing: a rotation that signals every process of this name would end
/// it. Within a runtime of tokio's.
fn outlive_rotations() {
    // What is registered stays so. Where that fails it is as without.
    drop(signal(SignalKind::user_defined1()));
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    output::tell(format_args!("pulsegate: {error}"));
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
        let logging = telemetry::init(self.filter.log.as_deref(), format)?;
        telemetry::log_panics();
        Ok(logging)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn file(arguments: &[&str]) -> Result<PathBuf, String> {
        let cli = Cli::try_parse_from([&["pulsegate"], arguments].concat()).map_err(|e| e.to_string())?;
        Ok(match cli.command {
            Command::Run { file, .. } => file.path().to_owned(),
            Command::Check(args) => args.file.path().to_owned(),
            Command::Probe(args) => args.config.path,
            _ => PathBuf::new(),
        })
    }

    #[test]
    fn the_file_is_named_in_the_same_way_everywhere() {
        Cli::command().debug_assert();
        let rows: [&[&str]; 7] = [
            &["run", "-c", "my.yaml"],
            &["run", "my.yaml"],
            &["check", "-c", "my.yaml"],
            &["check", "--config", "my.yaml", "--strict"],
            &["check", "my.yaml"],
            &["probe", "web", "-c", "my.yaml"],
            &["probe", "--config=my.yaml", "web", "10.0.0.1:80"],
        ];
        for row in rows {
            assert_eq!(file(row), Ok(PathBuf::from("my.yaml")), "{row:?}");
        }
        assert_eq!(file(&["check"]), Ok(PathBuf::from("proxy.yaml")));
        for row in [&["check", "-c", "-"][..], &["run", "--config", "-"], &["check", "-"]] {
            let error = file(row).expect_err("no file");
            assert!(error.contains("standard input is not read here; give a file"), "{row:?}: {error}");
        }
    }
}
