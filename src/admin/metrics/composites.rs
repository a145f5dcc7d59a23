//! The family of composites.

use super::flag;
use crate::composite::Report;
use crate::health::State;
use crate::telemetry::metrics::{Metric, Page};

/// How they stand, or would.
pub fn states<'a>(page: &mut Page, metric: &Metric, composites: impl Iterator<Item = &'a Report>) {
    page.family(metric, |series| {
        for composite in composites {
            for state in State::ALL {
                series.add(&[&composite.name, state.as_str()], flag(composite.state == state));
            }
        }
    });
}
