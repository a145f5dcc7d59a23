//! The family of composites.

use super::flag;
use crate::composite::Report;
use crate::health::State;
use crate::telemetry::metrics::{self, Page};

/// How they stand.
pub fn states<'a>(page: &mut Page, composites: impl Iterator<Item = &'a Report>) {
    page.family(&metrics::COMPOSITE_STATE, |series| {
        for composite in composites {
            for state in State::ALL {
                series.add(&[&composite.name, state.as_str()], flag(composite.state == state));
            }
        }
    });
}
