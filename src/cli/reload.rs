//! `pulsegate reload`: the running proxy reads its configuration again, and says what came of it.

use std::process::ExitCode;
use std::time::Duration;

use http::Method;

use super::operator::{self, Format, Operator};
use crate::reload::{Changes, LastChange, MemberChanges, Report};

/// Arguments of `pulsegate reload`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    operator: Operator,
}

/// Has the proxy reload. Problems of the file go to stderr as `check` prints them.
pub fn run(args: &Args) -> ExitCode {
    let operator = &args.operator;
    operator::run(operator, async {
        let answer = operator.ask::<Report>(Method::POST, "/api/v1/reload").await?;
        match operator.format() {
            Format::Text => Ok(text(&answer.said)),
            Format::Json => Ok(answer.body),
        }
    })
}

/// Every name of the report, a line for each kind of change.
fn text(report: &Report) -> String {
    let mut lines = match report.unchanged {
        true => vec![format!("generation {}, unchanged{}", report.generation, taken_before(report))],
        false => vec![format!("generation {}", report.generation)],
    };
    let mut list = |what: &str, names: &[String]| {
        if !names.is_empty() {
            lines.push(format!("{what}: {}", names.join(", ")));
        }
    };
    list("pools added", &report.pools.added);
    list("pools removed", &report.pools.removed);
    for pool in &report.pools.changed {
        let keys = if pool.keys.is_empty() { String::new() } else { format!(" ({})", pool.keys.join(", ")) };
        list(&format!("pool {} changed{keys}", pool.name), &[members(&pool.members)]);
    }
    if !report.unchanged {
        list("pools kept as they were", &report.pools.kept);
    }
    let named = [("composites", &report.composites), ("routes", &report.routes), ("listeners", &report.listeners)];
    for (what, changes) in named {
        let Changes { added, removed, changed, kept: _ } = changes;
        list(&format!("{what} added"), added);
        list(&format!("{what} removed"), removed);
        list(&format!("{what} changed"), changed);
    }
    list("in force", &report.sections);
    let with_restart = format!("only with a restart: {}", report.needs_restart.join(", "));
    // The reload that came first may have said it in the first line.
    if !report.needs_restart.is_empty() && !lines[0].contains(&with_restart) {
        lines.push(with_restart);
    }
    lines.extend(report.advice.iter().map(ToString::to_string));
    lines.join("\n")
}

/// `; taken 0.8 s ago when the file changed: pools: 1 changed (web)`: who saves a file and asks for a reload often comes
/// second.
fn taken_before(report: &Report) -> String {
    let Some(LastChange { ago_ms, cause, detail }) = &report.last_change else { return String::new() };
    let how = match cause.as_str() {
        "file" => "when the file changed",
        "api" => "by the admin API",
        "signal" => "by a signal",
        // Of another release.
        other => other,
    };
    format!("; taken {} ago {how}: {detail}", ago(*ago_ms))
}

/// A span for people: tenths of seconds where it matters, whole units where it is long.
fn ago(ms: f64) -> String {
    let seconds = ms / 1e3;
    match seconds {
        ..60.0 => format!("{seconds:.1} s"),
        _ => humantime::format_duration(Duration::from_secs(seconds as u64)).to_string(),
    }
}

fn members(changes: &MemberChanges) -> String {
    let MemberChanges { added, removed, new_identity, kept, unverified } = changes;
    let mut words: Vec<String> = [("added", added), ("removed", removed), ("new identity", new_identity)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(how, names)| format!("{how} {}", names.join(" ")))
        .collect();
    words.push(match kept {
        1 => "1 member kept its state".to_owned(),
        many => format!("{many} members kept their state"),
    });
    match (unverified, kept) {
        (0, _) => {}
        (1, 1) => words.push("it is unverified until the next probe".to_owned()),
        (1, _) => words.push("1 of them is unverified until the next probe".to_owned()),
        (many, _) => words.push(format!("{many} of them are unverified until the next probe")),
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reload::{ChangedPool, Pools};

    #[test]
    fn the_text_names_everything() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let report = Report {
            generation: 4,
            pools: Pools {
                added: names(&["new"]),
                removed: names(&["old"]),
                changed: vec![ChangedPool {
                    name: "web".to_owned(),
                    keys: names(&["members", "probe"]),
                    members: MemberChanges {
                        added: names(&["10.0.0.3:80"]),
                        kept: 2,
                        unverified: 2,
                        ..MemberChanges::default()
                    },
                }],
                kept: names(&["a", "b"]),
            },
            listeners: Changes { removed: names(&["other"]), kept: 1, ..Changes::default() },
            sections: names(&["access_log"]),
            needs_restart: names(&["threads"]),
            ..Report::default()
        };
        let expected = "generation 4\npools added: new\npools removed: old\npool web changed (members, probe): added \
                        10.0.0.3:80; 2 members kept their state; 2 of them are unverified until the next probe\npools kept \
                        as they were: a, b\nlisteners removed: other\nin force: access_log\nonly with a restart: threads";
        assert_eq!(text(&report), expected);
        let nothing = Report { generation: 4, unchanged: true, ..Report::default() };
        assert_eq!(text(&nothing), "generation 4, unchanged");
    }

    #[test]
    fn a_reload_that_comes_second_says_what_came_first() {
        let rows = [
            (812.0, "file", "generation 2, unchanged; taken 0.8 s ago when the file changed: pools: 1 changed (w)"),
            (61_000.0, "api", "generation 2, unchanged; taken 1m 1s ago by the admin API: pools: 1 changed (w)"),
            (7.2e6, "signal", "generation 2, unchanged; taken 2h ago by a signal: pools: 1 changed (w)"),
        ];
        for (ago_ms, cause, expected) in rows {
            let last_change = LastChange { ago_ms, cause: cause.to_owned(), detail: "pools: 1 changed (w)".to_owned() };
            let report = Report { generation: 2, unchanged: true, last_change: Some(last_change), ..Report::default() };
            assert_eq!(text(&report), expected);
        }
    }

    #[test]
    fn what_waits_for_a_restart_is_said_once() {
        let detail = "pools: 1 changed (w); only with a restart: state_dir, threads".to_owned();
        let last_change = LastChange { ago_ms: 800.0, cause: "file".to_owned(), detail };
        let needs_restart = vec!["state_dir".to_owned(), "threads".to_owned()];
        let report = Report {
            generation: 2,
            unchanged: true,
            last_change: Some(last_change),
            needs_restart,
            ..Report::default()
        };
        let taken = "generation 2, unchanged; taken 0.8 s ago when the file changed: pools: 1 changed (w); only with a \
                     restart: state_dir, threads";
        assert_eq!(text(&report), taken);
        let another = Report { needs_restart: vec!["threads".to_owned()], ..report };
        assert_eq!(text(&another), format!("{taken}\nonly with a restart: threads"));
    }

    #[test]
    fn one_is_no_plural() {
        let said = |kept, unverified| members(&MemberChanges { kept, unverified, ..MemberChanges::default() });
        assert_eq!(said(1, 0), "1 member kept its state");
        assert_eq!(said(1, 1), "1 member kept its state; it is unverified until the next probe");
        assert_eq!(said(2, 1), "2 members kept their state; 1 of them is unverified until the next probe");
        assert_eq!(said(0, 0), "0 members kept their state");
    }
}
