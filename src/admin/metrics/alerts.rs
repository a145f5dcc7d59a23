//! The families of alerts.

use super::count;
use crate::control::Control;
use crate::telemetry::metrics::{self, Page};

/// What is told, what waits, and what became of the rest.
pub fn alerts(page: &mut Page, control: &Control) {
    let alerter = control.alerter();
    let (alerts, former) = (alerter.overview(), alerter.former());
    page.family(&metrics::ALERTS, |series| {
        let present = alerts.iter().map(|alert| (&alert.name, &alert.tally));
        // What was dropped when they were taken out would be seen by nobody.
        for (name, tally) in present.chain(former.iter().map(|(name, tally)| (name, tally))) {
            let rows = [("sent", tally.sent()), ("failed", tally.failed()), ("dropped", tally.dropped())];
            rows.into_iter().for_each(|(result, value)| series.add(&[&**name, result], count(value)));
        }
    });
    page.family(&metrics::ALERTS_OPEN, |series| {
        alerts.iter().for_each(|alert| series.add(&[&*alert.name], alert.open.len() as f64));
    });
    page.family(&metrics::ALERTS_WAITING, |series| {
        alerts.iter().for_each(|alert| series.add(&[&*alert.name], count(alert.waiting)));
    });
}
