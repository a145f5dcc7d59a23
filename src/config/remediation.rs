//! Who replaces the members of a pool, when, and how many (health.md §10); and where a process keeps what the next one has
//! to know.

use std::path::PathBuf;
use std::time::Duration;

use super::address::host_name;
use super::domain::{Action, Probe, Remediation, Webhook};
use super::file::{AllRemediationKeys, RemediationKeys, WebhookKeys};
use super::proof::Secret;
use super::reading::{DAY, Reading, TICK};
use super::spelling::{Spelled, Text, shown, spell_duration};
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
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);
const RETRIES: u32 = 3;

/// How many members of all pools may be replaced within 12 hours.
pub(super) fn max_global(keys: Option<&AllRemediationKeys>, top: &mut Reading<'_>) -> u32 {
    let count = keys.and_then(|keys| top.under("remediation").count("max_global", &keys.max_global, 0..=MOST));
    count.unwrap_or(GLOBAL)
}

/// The whole path of a directory: a relative one would be another one after a change of directory.
pub(super) fn state_dir(text: &str) -> Result<PathBuf, String> {
    whole_path("state_dir", text)
}

/// What `remediation:` means in the pool that `pool` stands on.
pub(super) fn remediation(
    name: &str,
    written: Option<&Or<Off, RemediationKeys>>,
    probe: Option<&Probe>,
    pool: &mut Reading<'_>,
) -> Option<Remediation> {
    let Some(Or::Keys(keys)) = written else { return None };
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

fn webhook(keys: &WebhookKeys, read: &mut Reading<'_>) -> Option<Webhook> {
    if keys.url.is_none() {
        read.missing("url", "a webhook needs a `url`, such as `https://ops.example/replace`");
    }
    let url = read.text("url", &keys.url, url);
    let timeout = read.span("timeout", &keys.timeout, TICK..=Duration::from_secs(300));
    let retries = read.count("retries", &keys.retries, 0..=10);
    let text = match keys.secret.as_ref().map(|Spelled(secret)| secret.text()) {
        Some("") => {
            read.error("secret", "the secret is empty; whoever knows it can have members replaced");
            None
        }
        text => text.map(|text| Secret::Text(text.to_owned())),
    };
    let file = read.text("secret_file", &keys.secret_file, |path| whole_path("secret_file", path).map(Secret::File));
    match (keys.secret.is_some(), keys.secret_file.is_some()) {
        (true, true) => read.error("secret_file", "`secret` and `secret_file` are two secrets; keep one"),
        (false, false) if !read.at.may_have_lost("secret_file") => {
            read.missing("secret", "a webhook is signed; write `secret: \"${WEBHOOK_SECRET}\"`, or a `secret_file`");
        }
        _ => {}
    }
    Some(Webhook {
        url: url?,
        secret: text.or(file)?,
        timeout: timeout.unwrap_or(WEBHOOK_TIMEOUT),
        retries: retries.unwrap_or(RETRIES),
    })
}

fn url(text: &str) -> Result<http::Uri, String> {
    let shown = shown(text);
    if text.contains('#') {
        return Err(format!("`{shown}`: what follows `#` is never sent; remove it"));
    }
    let url: http::Uri = text.parse().map_err(|_| format!("`{shown}` is not a URL"))?;
    let scheme = url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
    match (scheme, url.authority()) {
        (None, _) => Err(format!("`{shown}`: write a URL that begins with `https://` or `http://`")),
        (Some(_), Some(authority)) if authority.as_str().contains('@') => {
            Err(format!("`{shown}`: name and password have no place here; the request is signed with `secret`"))
        }
        (Some(_), Some(authority)) if !authority.host().is_empty() => {
            let host = authority.host();
            let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            host_name(name)?;
            match authority.as_str()[host.len()..].strip_prefix(':') {
                None | Some("") => Ok(url),
                Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(url),
                Some(port) => Err(format!("`{shown}`: `{port}` is not a port; write 1 to 65535")),
            }
        }
        _ => Err(format!("`{shown}` names no host")),
    }
}

fn whole_path(key: &str, text: &str) -> Result<PathBuf, String> {
    match text.starts_with('/') && !text.contains('\0') {
        true => Ok(PathBuf::from(text)),
        false => Err(format!("`{key}` is a whole path, such as `/var/lib/pulsegate`, not `{}`", shown(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_work_is_refused() {
        let rows = [
            ("https://ops.example", None),
            ("https://ops.example:8443/replace?now", None),
            ("http://ops.example?now", None),
            ("http://[::1]:80/", None),
            ("http://ops.example:/", None),
            ("http://ops.example:0/", Some("`0` is not a port; write 1 to 65535")),
            ("http://ops.example:99999/", Some("`99999` is not a port; write 1 to 65535")),
            ("http://[::1]:65536", Some("`65536` is not a port; write 1 to 65535")),
            ("http://10.0.0.256/", Some("it looks like an IPv4 address and is none")),
            ("http://-ops.example/", Some("no `-` at its ends")),
            ("ops.example", Some("begins with `https://`")),
            ("ops.example/replace", Some("is not a URL")),
            ("http:///replace", Some("")),
        ];
        for (text, expected) in rows {
            match (url(text), expected) {
                (Ok(_), None) => {}
                (Err(message), Some(words)) => assert!(message.contains(words), "{text}: {message}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }
}
