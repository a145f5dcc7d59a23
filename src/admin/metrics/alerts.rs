//! The families of alerts.

use super::count;
use crate::control::Control;
use crate::telemetry::metrics::{self, Page};

/// What is told, what waits, and what became of the rest.
pub fn alerts(page: &mut Page, control: &Control) {
    let alerts = control.alerter().overview();
    page.family(&metrics::ALERTS, |series| {
        for alert in &alerts {
            let rows =
                [("sent", alert.tally.sent()), ("failed", alert.tally.failed()), ("dropped", alert.tally.dropped())];
            rows.into_iter().for_each(|(result, value)| series.add(&[&*alert.name, result], count(value)));
        }
    });
    page.family(&metrics::ALERTS_OPEN, |series| {
        alerts.iter().for_each(|alert| series.add(&[&*alert.name], alert.open.len() as f64));
    });
    page.family(&metrics::ALERTS_WAITING, |series| {
        alerts.iter().for_each(|alert| series.add(&[&*alert.name], count(alert.tally.waiting())));
    });
}
