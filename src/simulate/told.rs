//! What came of it, for people and for programs.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::totals::{Totals, names};
use super::{Entry, PoolRun, Run};
use crate::config::scenario::Scenario;
use crate::health::{Mode, Standing};
use crate::telemetry::Severity;

/// So many lines of a timeline are shown at its beginning and at its end.
const SHOWN: usize = 100;

/// For people: what happened, then the numbers, those of two policies side by side.
pub fn text(scenario: &Scenario, runs: &[Run]) -> String {
    let mut text = format!("{}\n{}, seed {}\n", scenario.title, spelt(scenario.duration), scenario.seed);
    let is_long = scenario.duration >= Duration::from_secs(24 * 3600);
    for run in runs {
        match runs {
            [_] => text.push('\n'),
            _ => drop(write!(text, "\n{}\n", run.policy)),
        }
        let hidden = run.timeline.len().saturating_sub(2 * SHOWN);
        for (index, entry) in run.timeline.iter().enumerate() {
            if hidden > 0 && index == SHOWN {
                let _ = writeln!(text, "  … {hidden} more, which `--format json` has");
            }
            if index < SHOWN || index >= SHOWN + hidden {
                let _ = writeln!(text, "  {}", line(entry, is_long));
            }
        }
        if run.timeline.is_empty() {
            text.push_str("  nothing changed\n");
        }
    }
    text.push('\n');
    text.push_str(&table(scenario, runs));
    text
}

/// For programs.
pub fn json(scenario: &Scenario, runs: &[Run]) -> String {
    let report = json!({
        "title": scenario.title,
        "duration_ms": ms(scenario.duration),
        "seed": scenario.seed,
        "policies": runs.iter().map(|run| policy(run, scenario.duration)).collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

/// In days where it is long: a month is no length of time.
pub fn in_days(time: Duration) -> String {
    const DAY: u64 = 24 * 3600;
    let days = time.as_secs() / DAY;
    let rest = time - Duration::from_secs(days * DAY);
    let rest = || humantime::format_duration(rest).to_string();
    match (days, time.as_nanos().is_multiple_of(u128::from(DAY) * 1_000_000_000)) {
        (0, _) => rest(),
        (1, true) => "1day".to_owned(),
        (1, false) => format!("1day {}", rest()),
        (_, true) => format!("{days}days"),
        (_, false) => format!("{days}days {}", rest()),
    }
}

/// A time from the beginning: `01:05.250`, `1:01:05.250`, of a scenario that lasts for days `1 02:01:05.250`.
pub(super) fn clock(at: Duration, is_long: bool) -> String {
    let ms = at.as_millis();
    let (hours, minutes, seconds, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
    match is_long {
        true => format!("{} {:02}:{minutes:02}:{seconds:02}.{ms:03}", hours / 24, hours % 24),
        false => format!("{hours}:{minutes:02}:{seconds:02}.{ms:03}"),
    }
}

fn line(entry: &Entry, is_long: bool) -> String {
    let level = match entry.event.level {
        Severity::Info => "info",
        Severity::Warn => "warn",
        Severity::Error => "error",
    };
    format!("{}  {level}  {}", clock(entry.at, is_long), entry.event.message)
}

/// A row for each number, a column for each policy.
fn table(scenario: &Scenario, runs: &[Run]) -> String {
    let columns: Vec<Vec<(&str, String)>> =
        runs.iter().map(|run| rows(&Totals::of(run.pools.iter().map(|pool| &pool.totals)))).collect();
    let heads = names(&scenario.policies);
    let width = |column: usize| {
        let cells = columns[column].iter().map(|(_, cell)| cell.chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or_default()
    };
    let labels = columns.first().map_or(0, |rows| rows.iter().map(|(label, _)| label.len()).max().unwrap_or_default());
    let mut text = String::new();
    if runs.len() > 1 {
        let heads: String = heads.iter().enumerate().map(|(n, head)| format!("  {head:>0$}", width(n))).collect();
        let _ = writeln!(text, "{:labels$}{heads}", "");
    }
    for row in 0..columns.first().map_or(0, Vec::len) {
        let cells: String =
            columns.iter().enumerate().map(|(n, rows)| format!("  {:>1$}", rows[row].1, width(n))).collect();
        let _ = writeln!(text, "{:labels$}{cells}", columns[0][row].0);
    }
    text
}

fn rows(totals: &Totals) -> Vec<(&'static str, String)> {
    let time = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), |time| format!("{:.1} ms", ms(time)));
    let lasting = |times: u64, time: Duration| match times {
        0 => "0".to_owned(),
        times => format!("{times}, {} in all", spelt(time)),
    };
    vec![
        ("requests", totals.requests.to_string()),
        ("  failed", totals.failed.to_string()),
        ("  waited for a first verdict", totals.waited.to_string()),
        ("  half of them took at most", time(totals.times.quantile(500))),
        ("  99 of 100 took at most", time(totals.times.quantile(990))),
        ("  the slowest took at most", time(totals.times.quantile(1000))),
        ("attempts on ill members", totals.to_ill.to_string()),
        ("retries", totals.retries.to_string()),
        ("probes", totals.probes.to_string()),
        ("ejections", totals.ejections.to_string()),
        ("somebody kept by the cap", lasting(totals.capped, totals.capped_time)),
        ("fallback", lasting(totals.fallbacks, totals.fallback_time)),
        ("failovers", totals.failovers.to_string()),
        ("ill members served for", spelt(totals.ill_serving)),
        ("well members were ejected for", spelt(totals.well_ejected)),
    ]
}

fn policy(run: &Run, end: Duration) -> Value {
    json!({
        "name": run.policy,
        "totals": totals(&Totals::of(run.pools.iter().map(|pool| &pool.totals))),
        "pools": run.pools.iter().map(|one| (one.name.clone(), pool(one, end))).collect::<serde_json::Map<_, _>>(),
        "timeline": run.timeline.iter().map(entry).collect::<Vec<_>>(),
    })
}

fn pool(pool: &PoolRun, end: Duration) -> Value {
    let modes =
        Mode::ALL.into_iter().map(|mode| (mode.as_str().to_owned(), json!(ms(pool.modes.time(end, |m| m == mode)))));
    let member = |member: &super::MemberRun| {
        let standing = member.standings.last().map(Standing::as_str);
        let spans =
            member.standings.spans(end).map(|(from, _, standing)| json!([ms(from), standing.map(Standing::as_str)]));
        json!({ "member": member.label, "standing": standing, "standings": spans.collect::<Vec<_>>() })
    };
    json!({
        "totals": totals(&pool.totals),
        "mode_ms": modes.collect::<serde_json::Map<_, _>>(),
        "members": pool.members.iter().map(member).collect::<Vec<_>>(),
    })
}

fn totals(totals: &Totals) -> Value {
    json!({
        "requests": totals.requests,
        "failed": totals.failed,
        "waited": totals.waited,
        "p50_ms": totals.times.quantile(500).map(ms),
        "p99_ms": totals.times.quantile(990).map(ms),
        "slowest_ms": totals.times.quantile(1000).map(ms),
        "attempts_on_ill": totals.to_ill,
        "retries": totals.retries,
        "probes": totals.probes,
        "ejections": totals.ejections,
        "capped": totals.capped,
        "capped_ms": ms(totals.capped_time),
        "fallbacks": totals.fallbacks,
        "fallback_ms": ms(totals.fallback_time),
        "failovers": totals.failovers,
        "ill_serving_ms": ms(totals.ill_serving),
        "well_ejected_ms": ms(totals.well_ejected),
    })
}

fn entry(entry: &Entry) -> Value {
    let event = &entry.event;
    json!({
        "at_ms": ms(entry.at),
        "level": event.level.as_str(),
        "kind": event.kind.as_str(),
        "route": event.route,
        "pool": event.pool,
        "member": event.member,
        "from": event.from,
        "to": event.to,
        "reason": event.reason,
        "detail": event.detail,
        "standing": event.standing,
        "window": event.window,
        "latency_ms": event.latency_ms,
        "in_rotation": event.in_rotation,
        "total": event.total,
        "mode": event.mode,
        "observed": event.observed,
        "message": event.message,
    })
}

/// To the microsecond.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// A duration to the millisecond, or, where it is long, to the second.
fn spelt(time: Duration) -> String {
    let time = match time >= Duration::from_secs(60) {
        true => Duration::from_secs(time.as_secs()),
        false => Duration::from_millis(time.as_millis() as u64),
    };
    in_days(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_told_in_days() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let rows = [
            (Duration::from_secs(90), "1m 30s"),
            (DAY, "1day"),
            (DAY * 31, "31days"),
            (DAY * 31 + Duration::from_millis(3_600_500), "31days 1h 500ms"),
        ];
        for (time, words) in rows {
            assert_eq!(in_days(time), words);
        }
    }
}
