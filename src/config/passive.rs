//! What traffic may say of members: `passive` of a pool.

use std::time::Duration;

use super::domain::Passive;
use super::file::{EjectKeys, PassiveKeys};
use super::preset::Base;
use super::reading::{DAY, Reading, TICK};
use super::spelling::{Share, Spelled};
use super::words::{Or, PassiveWord};
use crate::health::Eject;

/// The longest window: its counts are kept for each member.
const WINDOW: Duration = Duration::from_secs(3600);

/// What may come of traffic, and the rules where it may eject.
pub(super) fn passive(
    keys: Option<&Or<PassiveWord, PassiveKeys>>,
    base: &Base,
    read: &mut Reading<'_>,
) -> (Passive, Option<Eject>) {
    match keys {
        None => (base.passive, None),
        Some(Or::Word(PassiveWord::Off)) => (Passive::Off, None),
        Some(Or::Word(PassiveWord::Hasten)) => (Passive::Hasten, None),
        Some(Or::Keys(keys)) => match ejecting(keys, read) {
            Some(eject) => (Passive::Eject, Some(eject)),
            None => (base.passive, None),
        },
    }
}

/// The rules by which traffic ejects, or would; `None`: what is written says nothing.
pub(super) fn ejecting(keys: &PassiveKeys, read: &mut Reading<'_>) -> Option<Eject> {
    let mut at = read.under("passive");
    let Some(written) = &keys.eject else {
        if !at.at.damaged() {
            at.problems.error(at.at, "`passive` says nothing; write `hasten`, or `{ eject: {} }`");
        }
        return None;
    };
    Some(eject(written, at.under("eject")))
}

fn eject(keys: &EjectKeys, mut read: Reading<'_>) -> Eject {
    let default = Eject::default();
    if keys.ratio == Some(Spelled(Share(0))) {
        read.error("ratio", "`ratio: 0%` would eject whoever is asked often enough; write at least 1%");
    }
    let (base, max) = (read.span("base", &keys.base, TICK..=DAY), read.span("max", &keys.max, TICK..=DAY));
    // Whoever writes one of them has the other follow.
    let term = base.unwrap_or(max.map_or(default.base, |max| max.min(default.base)));
    let most = max.unwrap_or(default.max.max(term));
    if term > most {
        read.error("max", "`max` is shorter than `base`, the shortest time out; write it as long or longer");
    }
    Eject {
        consecutive: read.count("consecutive", &keys.consecutive, 1..=1_000_000).unwrap_or(default.consecutive),
        ratio_percent: keys.ratio.map_or(default.ratio_percent, |Spelled(Share(percent))| percent.max(1)),
        window: read.span("window", &keys.window, Duration::from_millis(100)..=WINDOW).unwrap_or(default.window),
        min_requests: read.count("min_requests", &keys.min_requests, 1..=1_000_000).unwrap_or(default.min_requests),
        base: term,
        max: most,
        probe_clears: keys.probe_clears.is_some_and(|Spelled(clears)| clears),
    }
}
