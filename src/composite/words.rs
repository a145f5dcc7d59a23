//! A state that changed, in words: one event each.

use super::tree::{Before, Change, Count, SourceKind, SourceReport};
use crate::health::State;
use crate::telemetry::{Event, Kind, Severity};

/// Of the sources that are not healthy so many are named; the rest are counted.
const NAMED: usize = 10;

/// The event of a change.
pub fn event(change: &Change) -> Event {
    let Change { kind, name, from, to, count, unfit } = change;
    let detail = match kind {
        SourceKind::Pool => of_all(*count, "member"),
        SourceKind::Composite if unfit.is_empty() && count.total == 1 => "its source is healthy".to_owned(),
        SourceKind::Composite if unfit.is_empty() => format!("all {} sources are healthy", count.total),
        SourceKind::Composite => of_sources(unfit),
    };
    let what = match kind {
        SourceKind::Pool => format!("pool {name} as a whole"),
        SourceKind::Composite => format!("composite {name}"),
    };
    let before = match from {
        Before::Was(from) => format!("was {}", from.published()),
        Before::Observed => "only observed until now".to_owned(),
        Before::New => "is new".to_owned(),
    };
    let message = format!("{what} is {}, {before}: {detail}", to.published());
    let name = Some(name.to_string());
    let (pool, composite) = match kind {
        SourceKind::Pool => (name, None),
        SourceKind::Composite => (None, name),
    };
    Event {
        pool,
        composite,
        from: Some(word(*from).to_owned()),
        to: Some(to.published().to_owned()),
        detail: Some(detail),
        ..Event::new(Kind::Composite, level(*from, *to), message)
    }
}

fn word(before: Before) -> &'static str {
    match before {
        Before::New => "added",
        Before::Observed => "observed",
        Before::Was(state) => state.published(),
    }
}

/// Whoever goes by it leaves when it is not healthy any more.
fn level(from: Before, to: State) -> Severity {
    match (from, to) {
        (_, State::Unhealthy) | (Before::Was(State::Healthy), State::Unknown) => Severity::Warn,
        _ => Severity::Info,
    }
}

fn of_all(count: Count, what: &str) -> String {
    let Count { healthy, unknown, total } = count;
    let several = if total == 1 { "" } else { "s" };
    let unknown = if unknown > 0 { format!(", {unknown} unknown") } else { String::new() };
    format!("{healthy} of {total} {what}{several} healthy{unknown}")
}

/// `api UNHEALTHY (1 of 4 members healthy), west UNKNOWN (0 of 2 sources healthy, 1 unknown)`.
fn of_sources(unfit: &[SourceReport]) -> String {
    let shown = |source: &SourceReport| {
        let what = of_all(source.count, if source.kind == SourceKind::Pool { "member" } else { "source" });
        format!("{} {} ({what})", source.name, source.state.published())
    };
    let shown: Vec<String> = unfit.iter().take(NAMED).map(shown).collect();
    match unfit.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
