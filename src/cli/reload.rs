//! `pulsegate reload`: the running proxy reads its configuration again, and says what came of it.

use std::process::ExitCode;

use http::Method;

use super::operator::{self, Format, Operator};
use crate::reload::{Changes, MemberChanges, Report};

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
        let answer = operator.ask(Method::POST, "/api/v1/reload").await?;
        match (operator.format(), serde_json::from_str::<Report>(&answer)) {
            (Format::Text, Ok(report)) => Ok(text(&report)),
            // A proxy of another release says more, or less.
            _ => Ok(answer),
        }
    })
}

/// Every name of the report, a line for each kind of change.
fn text(report: &Report) -> String {
    let mut lines = match report.unchanged {
        true => vec![format!("generation {}, unchanged", report.generation)],
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
    for (what, changes) in [("routes", &report.routes), ("listeners", &report.listeners)] {
        let Changes { added, removed, changed, kept: _ } = changes;
        list(&format!("{what} added"), added);
        list(&format!("{what} removed"), removed);
        list(&format!("{what} changed"), changed);
    }
    list("in force", &report.sections);
    list("only with a restart", &report.needs_restart);
    lines.extend(report.advice.iter().map(ToString::to_string));
    lines.join("\n")
}

fn members(changes: &MemberChanges) -> String {
    let MemberChanges { added, removed, new_identity, kept, unverified } = changes;
    let mut words: Vec<String> = [("added", added), ("removed", removed), ("new identity", new_identity)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(how, names)| format!("{how} {}", names.join(" ")))
        .collect();
    words.push(format!("{kept} members kept their state"));
    if *unverified > 0 {
        words.push(format!("{unverified} of them are unverified until the next probe"));
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
}
