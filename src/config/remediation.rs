//! Who replaces the members of a pool, when, and how many (health.md §10); and where a process keeps what the next one has
//! to know.

use std::path::PathBuf;
use std::time::Duration;

use super::domain::{Action, Probe, Remediation};
use super::file::{AllRemediationKeys, RemediationKeys};
use super::probe::Probing;
use super::reading::{DAY, Reading, TICK};
use super::spelling::{Spelled, Text, shown, spell_duration};
use super::webhook::webhook;
use super::words::{Off, Or};
use crate::health::replacement::Limits;

/// Where nothing is written: App Service's (product.md A10).
const AFTER: Duration = Duration::from_secs(3600);
const PER_HOUR: u32 = 1;
const PER_DAY: u32 = 3;
const GLOBAL: u32 = 10;

/// More than anybody wants to lose.
const MOST: u32 = 1000;
/// Shorter, and a start would be taken for a failure.
const SOON: Duration = Duration::from_secs(1);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// How many members of all pools may be replaced within 12 hours.
pub(super) fn max_global(keys: Option<&AllRemediationKeys>, top: &mut Reading<'_>) -> u32 {
    let count = keys.and_then(|keys| top.under("remediation").count("max_global", &keys.max_global, 0..=MOST));
    count.unwrap_or(GLOBAL)
}

/// The whole path of a directory: a relative one would be another one after a change of directory.
pub(super) fn state_dir(text: &str) -> Result<PathBuf, String> {
    whole_path("state_dir", text)
}

/// What `remediation:` means in the pool that `pool` stands on: what is done, and what is only observed.
pub(super) fn remediation(
    name: &str,
    written: Option<&Or<Off, RemediationKeys>>,
    probing: &Probing,
    pool: &mut Reading<'_>,
) -> (Option<Remediation>, Option<Remediation>) {
    let Some(Or::Keys(keys)) = written else { return (None, None) };
    let only_observes = keys.observe.is_some_and(|Spelled(observe)| observe);
    if probing.only_observes && !only_observes {
        let message = "the probe only observes, so nobody is ever due; write `observe: true` here too";
        let place = pool.at.key("remediation").name();
        pool.problems.error_at(place, message);
    }
    let meant = meant(name, keys, probing.probe.as_ref(), pool);
    if only_observes { (None, meant) } else { (meant, None) }
}

fn meant(name: &str, keys: &RemediationKeys, probe: Option<&Probe>, pool: &mut Reading<'_>) -> Option<Remediation> {
    let probe_is_lost = pool.at.lost("probe");
    let mut read = pool.under("remediation");
    let after = read.span("after", &keys.after, SOON..=DAY);
    match probe {
        Some(probe) => refuse_hasty(after.unwrap_or(AFTER), probe, &mut read),
        None if probe_is_lost => {}
        None => {
            let message = format!("pool \"{name}\" has no probes, so nobody is ever due; remove `remediation`");
            let place = read.at.name();
            read.problems.error_at(place, message);
        }
    }
    let limits = Limits {
        per_hour: read.count("max_per_hour", &keys.max_per_hour, 0..=MOST).unwrap_or(PER_HOUR),
        per_day: read.count("max_per_day", &keys.max_per_day, 0..=MOST).unwrap_or(PER_DAY),
    };
    Some(Remediation { after: after.unwrap_or(AFTER), action: action(keys, &mut read)?, limits })
}

/// A single fail between two passes is no outage.
fn refuse_hasty(after: Duration, probe: &Probe, read: &mut Reading<'_>) {
    let least = pace(probe) * 2;
    if after < least {
        let least = spell_duration(least);
        read.error("after", format!("`after` is shorter than two probes take; write at least `{least}`"));
    }
}

/// The longest between the ends of two probes, by plan.
fn pace(probe: &Probe) -> Duration {
    probe.idle.map_or(probe.interval, |idle| idle.interval) + probe.timeout
}

impl Probe {
    /// The longest between the ends of two probes of a member, by plan.
    pub fn pace(&self) -> Duration {
        pace(self)
    }
}

fn action(keys: &RemediationKeys, read: &mut Reading<'_>) -> Option<Action> {
    let timeout = read.span("timeout", &keys.timeout, TICK..=Duration::from_secs(3600));
    match (&keys.command, &keys.webhook) {
        (Some(_), Some(_)) => {
            let place = read.at.key("webhook").name();
            read.problems.error_at(place, "`command` and `webhook` are two actions; keep one");
            None
        }
        (Some(argv), None) => {
            let argv = argv_of(argv, read)?;
            Some(Action::Command { argv, timeout: timeout.unwrap_or(COMMAND_TIMEOUT) })
        }
        (None, Some(keys)) => {
            if timeout.is_some() {
                read.error("timeout", "this is the time limit of a `command`; write `timeout` under `webhook`");
            }
            webhook(keys, &mut read.under("webhook")).map(Action::Webhook)
        }
        (None, None) => {
            if !read.at.may_have_lost("command") && !read.at.may_have_lost("webhook") {
                let message = "`remediation` has nothing to do; write `command: [\"/usr/local/bin/replace\"]` or \
                               `webhook: { url: …, secret: … }`";
                let place = read.at;
                read.problems.error(place, message);
            }
            None
        }
    }
}

fn argv_of(written: &[Spelled<Text>], read: &mut Reading<'_>) -> Option<Vec<String>> {
    let argv: Vec<String> = written.iter().map(|Spelled(Text(argument))| argument.clone()).collect();
    let problem = match argv.first() {
        None => Some("`command` is empty; write the whole path of a program".to_owned()),
        Some(program) if !program.starts_with('/') => {
            let program = shown(program);
            Some(format!("`{program}` is not a whole path; no shell runs it and nothing is searched for"))
        }
        Some(_) if argv.iter().any(|argument| argument.contains('\0')) => {
            Some("an argument holds a NUL, which nobody can be given".to_owned())
        }
        Some(_) => None,
    };
    match problem {
        Some(message) => {
            if !read.at.key("command").damaged() {
                read.error("command", message);
            }
            None
        }
        None => Some(argv),
    }
}

/// A path that means the same wherever it is read from.
pub(super) fn whole_path(key: &str, text: &str) -> Result<PathBuf, String> {
    match text.starts_with('/') && !text.contains('\0') {
        true => Ok(PathBuf::from(text)),
        false => Err(format!("`{key}` is a whole path, such as `/var/lib/pulsegate`, not `{}`", shown(text))),
    }
}
