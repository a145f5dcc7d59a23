//! `pulsegate probe`: each member asked once, from here, and all that passed between.
//!
//! The probe is the one the proxy makes, built by the same code: what an operator sees is what his members are judged
//! by. What an origin sent is shown with its control characters escaped, since a terminal obeys them.
//!
//! Not here: verdicts. They take more than one sample (`health`), so only what this one counts as is told.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::output::{self, Output};
use crate::config::{self, Config, Member, Pool, Probe, Problem};
use crate::control::Few;
use crate::discovery::Desk;
use crate::health::{Outcome, Reason, Sample};
use crate::probe::{Check, CheckError, Exchange, Recipe, Secured};
use crate::snapshot::{Found, Located};
use crate::telemetry::shown;
use crate::tls::Files;

/// Lines of an answer's header, and of its body, that are shown.
const LINES: usize = 40;
/// Characters of a line that are shown.
const COLUMNS: usize = 400;

/// Arguments of `pulsegate probe`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Whose members are asked.
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// Only this one: as configured (`host:port`), its host, or its address.
    #[arg(value_name = "MEMBER")]
    pub member: Option<String>,
    #[command(flatten)]
    pub(super) config: super::ConfigFile,
}

/// Why nobody was asked.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No such pool.
    #[error("no pool {pool:?}; {}", Few::of(known.iter()).there_are())]
    Pool {
        /// As given.
        pool: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// No such member.
    #[error("pool {pool:?} has no member {member:?}; {}", Few::of(known.iter()).there_are())]
    Member {
        /// Its name.
        pool: String,
        /// As given.
        member: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// `probe: off`.
    #[error("pool {0:?} has `probe: off`: there is no probe to run")]
    Off(String),
    /// The probe cannot be made.
    #[error("pool {pool:?}: {cause}")]
    Check {
        /// Its name.
        pool: String,
        /// What is wrong with its probe.
        cause: CheckError,
    },
    /// A file of members cannot be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Files(Vec<Problem>),
    /// What was seen cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
    /// The runtime cannot be had.
    #[error("no runtime: {0}")]
    Runtime(io::Error),
}

/// Asks and prints; succeeds when every member passed. Problems of the file go to stderr.
pub fn run(args: &Args) -> ExitCode {
    let config = match config::load(&args.config.path, &|name| std::env::var(name).ok()) {
        Ok(loaded) => loaded.config,
        Err(problems) => {
            problems.iter().for_each(output::tell);
            output::tell("pulsegate: the configuration has errors; nobody was asked");
            return ExitCode::FAILURE;
        }
    };
    match ask_all(config, args, &mut Output::new()) {
        Ok(tally) if tally.passed == tally.asked => ExitCode::SUCCESS,
        Ok(tally) => {
            output::tell(format_args!("pulsegate: {} of {} passed", tally.passed, tally.asked));
            ExitCode::FAILURE
        }
        Err(ProbeError::Output(error)) => output::unwritten(&error),
        Err(error) => super::fail(&error),
    }
}

/// How many were asked, and how many of them passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Members, each of their addresses counted.
    pub asked: usize,
    /// Of these, those whose sample counts as a pass.
    pub passed: usize,
}

fn ask_all(mut config: Config, args: &Args, out: &mut impl Write) -> Result<Tally, ProbeError> {
    // The names of other pools need not be resolved.
    if config.pools.contains_key(&args.pool) {
        config.pools.retain(|name, _| *name == args.pool);
    }
    let config = Arc::new(config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ProbeError::Runtime)?;
    let asked = runtime.block_on(async {
        super::outlive_rotations();
        let desk = Desk::new(&config);
        desk.prepare(&config).await.map_err(ProbeError::Files)?;
        probe(&config, &desk.found(&config).await, &args.pool, args.member.as_deref(), out).await
    });
    // A look-up that was given up is not waited for.
    runtime.shutdown_background();
    asked
}

/// Probes a pool's members, one after the other so that none is slow because of another, and prints what passed.
///
/// # Errors
/// A pool or member that is not there, a probe that cannot be made; `out` that cannot be written to.
pub async fn probe(
    config: &Config,
    found: &Found,
    pool: &str,
    member: Option<&str>,
    out: &mut impl Write,
) -> Result<Tally, ProbeError> {
    let known = || config.pools.keys().cloned().collect();
    let pool = config.pools.get(pool).ok_or_else(|| ProbeError::Pool { pool: pool.to_owned(), known: known() })?;
    let probe = pool.probe.as_ref().ok_or_else(|| ProbeError::Off(pool.name.clone()))?;
    let wrong = |cause| ProbeError::Check { pool: pool.name.clone(), cause };
    let recipe = Arc::new(Recipe::new(probe, &mut Files::default()).map_err(wrong)?);
    let mut tally = Tally::default();
    for (member, address) in chosen(pool, probe, found, member)? {
        let sample = match address {
            Some(address) => {
                writeln!(out, "{} {}, at {address}", pool.name, member.name)?;
                let (sample, exchange) = Check::new(&recipe, member.own_name(), address).map_err(wrong)?.record().await;
                show(&exchange, out)?;
                sample
            }
            None => {
                writeln!(out, "{} {}", pool.name, member.name)?;
                Sample { detail: "the name has no address".to_owned(), ..Sample::fail(Reason::Dns, Duration::ZERO) }
            }
        };
        tally.asked += 1;
        tally.passed += usize::from(conclude(&sample, pool, out)?);
    }
    out.flush()?;
    Ok(tally)
}

/// The members that `wanted` names, all without it, with each of their addresses; one without any stands for itself.
fn chosen<'a>(
    pool: &Pool,
    probe: &Probe,
    found: &'a Found,
    wanted: Option<&str>,
) -> Result<Vec<(&'a Member, Option<SocketAddr>)>, ProbeError> {
    let located = found.of(&pool.name);
    let is_wanted = |located: &&Located| {
        let (member, traffic) = (&located.member, located.address.map(|address| address.to_string()));
        wanted.is_none_or(|wanted| wanted == member.name || wanted == member.host || traffic.as_deref() == Some(wanted))
    };
    let target = |located: &'a Located| {
        let address = located.address.map(|a| SocketAddr::new(a.ip(), probe.port.unwrap_or(a.port())));
        (&located.member, address)
    };
    let chosen: Vec<_> = located.iter().filter(is_wanted).map(target).collect();
    match wanted {
        Some(wanted) if chosen.is_empty() => {
            let mut known: Vec<String> = located.iter().map(|located| located.member.name.clone()).collect();
            known.dedup();
            Err(ProbeError::Member { pool: pool.name.clone(), member: wanted.to_owned(), known })
        }
        _ => Ok(chosen),
    }
}

/// What was sent and what came, a mark before each line: `>` sent, `<` the answer's header, `|` its body, and `<` again what
/// comes after the body over HTTP/2.
fn show(exchange: &Exchange, out: &mut impl Write) -> io::Result<()> {
    if let Some(Secured { server_name, verified, client_certificate }) = &exchange.tls {
        let verified = if *verified { "to be verified for" } else { "not to be verified, asked for" };
        let own = if *client_certificate { ", with a client certificate at hand" } else { "" };
        writeln!(out, "* TLS, {verified} {server_name}{own}")?;
    }
    show_lines(">", &exchange.sent, usize::MAX, out)?;
    let head = exchange.answer_head();
    if head.is_empty() {
        // Whatever it is, it is what there is to see.
        return show_lines("<", &exchange.received, LINES, out);
    }
    show_lines("<", head, LINES, out)?;
    show_lines("|", &exchange.body, LINES, out)?;
    show_lines("<", &exchange.trailers, LINES, out)
}

fn show_lines(mark: &str, bytes: &[u8], most: usize, out: &mut impl Write) -> io::Result<()> {
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines().take(most) {
        let mut shown = output::lines(&line.chars().take(COLUMNS).collect::<String>());
        if line.chars().nth(COLUMNS).is_some() {
            shown.push('…');
        }
        writeln!(out, "{}", format!("{mark} {shown}").trim_end())?;
    }
    if text.lines().nth(most).is_some() {
        writeln!(out, "{mark} …")?;
    }
    Ok(())
}

/// Phase times and what the sample counts as; true: as a pass.
fn conclude(sample: &Sample, pool: &Pool, out: &mut impl Write) -> io::Result<bool> {
    let phases = &sample.phases;
    writeln!(
        out,
        "= connect {}, tls {}, first byte {}, total {}",
        ms(phases.connect),
        ms(phases.tls),
        ms(phases.first_byte),
        ms(Some(phases.total))
    )?;
    let outcome = gated(sample, pool);
    let words = match outcome {
        Outcome::Pass => "pass".to_owned(),
        Outcome::Fail(Reason::Slow) => {
            let gate = pool.rules.gates.max_latency.unwrap_or_default();
            format!("fail, slow: {} is over the gate of {}", ms(Some(phases.total)), ms(Some(gate)))
        }
        Outcome::Fail(reason) => format!("fail, {}: {}", reason.as_str(), sample.detail),
        Outcome::Inconclusive => format!("nothing, it would not be counted: {}", sample.detail),
    };
    writeln!(out, "= {}\n", shown(&words))?;
    Ok(outcome == Outcome::Pass)
}

/// The sample as the absolute gate makes it; a relative one needs the others' samples (health.md §5).
fn gated(sample: &Sample, pool: &Pool) -> Outcome {
    match (sample.outcome, pool.rules.gates.max_latency) {
        (Outcome::Pass, Some(gate)) if sample.phases.total > gate => Outcome::Fail(Reason::Slow),
        (outcome, _) => outcome,
    }
}

fn ms(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "-".to_owned(), |duration| format!("{:.2} ms", duration.as_secs_f64() * 1000.0))
}

#[cfg(test)]
mod tests;
