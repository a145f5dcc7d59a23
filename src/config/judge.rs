//! How a pool's samples become verdicts: the judge and the latency gates, written beside the probe.

use std::time::Duration;

use super::file::ProbeKeys;
use super::preset::{Base, CONSECUTIVE, Preset, WINDOW};
use super::reading::{DAY, Reading, TICK};
use super::spelling::Spelled;
use crate::health::{Gates, Judge};

/// Largest window (health.md §2).
const MAX_WINDOW: u32 = 64;
/// Most fails or passes in a row that a judge can ask for.
const MAX_STREAK: u32 = 1000;

/// The judge of the pool's samples: a number that is not written is the preset's, or the default.
pub(super) fn judge(keys: &ProbeKeys, preset: Option<Preset>, base: &Base, read: &mut Reading<'_>) -> Judge {
    if let (Some(_), Some(_)) = (&keys.window, &keys.consecutive) {
        let place = read.at.key("consecutive").name();
        read.problems.error_at(place, "`window` and `consecutive` are two judges; keep one");
    }
    if let Some(written) = &keys.window {
        let (size, required) = match base.judge {
            Judge::Window { size, required } => (size, required),
            Judge::Consecutive { .. } => WINDOW,
        };
        let mut read = read.under("window");
        let size_read = read.count("size", &written.size, 1..=MAX_WINDOW);
        let required_read = read.count("required", &written.required, 1..=MAX_WINDOW);
        let wrong = read.at.damaged() || (written.size.is_some() && size_read.is_none());
        let (size, required) = (size_read.unwrap_or(size), required_read.unwrap_or(required));
        if required > size && !wrong {
            let place = if written.required.is_some() { "required" } else { "size" };
            let remedy = format!("write `required: {size}` or less, or `size: {required}` or more");
            read.error(place, format!("{required} passes cannot be required of the last {size}; {remedy}"));
        }
        return Judge::Window { size, required };
    }
    let Some(written) = &keys.consecutive else { return base.judge };
    let (failures, passes) = match base.judge {
        Judge::Consecutive { failures, passes } => (failures, passes),
        Judge::Window { .. } => CONSECUTIVE,
    };
    let range = if preset == Some(Preset::AppService) { 2..=10 } else { 1..=MAX_STREAK };
    let mut read = read.under("consecutive");
    Judge::Consecutive {
        failures: read.count("failures", &written.failures, range).unwrap_or(failures),
        passes: read.count("passes", &written.passes, 1..=MAX_STREAK).unwrap_or(passes),
    }
}

/// Why the relative gate cannot go with `judge`; `None`: it can.
pub(super) fn hasty(judge: Judge) -> Option<String> {
    let remedy = match judge {
        Judge::Consecutive { failures: 1, .. } => "write `failures: 2` or more".to_owned(),
        Judge::Window { size: 1, .. } => "write a window such as `{ size: 5, required: 3 }`".to_owned(),
        Judge::Window { size, required } if size == required => format!("write `required: {}` or less", size - 1),
        Judge::Consecutive { .. } | Judge::Window { .. } => return None,
    };
    Some(format!(
        "`max_latency_ratio` needs a judge that takes two fails or more to eject: one slow answer proves nothing; {remedy}, or \
         leave it out"
    ))
}

/// The latency gates.
pub(super) fn gates(keys: &ProbeKeys, judge: Judge, read: &mut Reading<'_>) -> Gates {
    let ratio = keys.max_latency_ratio.map(|Spelled(ratio)| ratio);
    if let Some(ratio) = ratio {
        if ratio <= 1.0 || ratio > 1000.0 {
            read.error(
                "max_latency_ratio",
                format!("`max_latency_ratio` cannot be {ratio}; write more than 1, up to 1000"),
            );
        } else if let Some(why) = hasty(judge) {
            read.error("max_latency_ratio", why);
        }
    }
    Gates {
        max_latency: read.span("max_latency", &keys.max_latency, TICK..=DAY),
        max_latency_ratio: ratio,
        latency_floor: read
            .span("latency_floor", &keys.latency_floor, Duration::ZERO..=DAY)
            .unwrap_or(Gates::default().latency_floor),
    }
}
