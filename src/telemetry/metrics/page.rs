//! The page that Prometheus reads: the text format 0.0.4.
//!
//! One family after another goes into the text, and its values are dropped: of ten thousand members there is never more
//! than one family at once beside it.

use prometheus::proto::{self, MetricType};
use prometheus::{TEXT_FORMAT, TextEncoder};

use super::names::{Kind, Metric};
use super::times::Times;

/// What the page is, for its reader.
pub const CONTENT_TYPE: &str = TEXT_FORMAT;

/// A page that is being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Adds a family with the series that `fill` gives it; without any it is left out.
    pub fn family(&mut self, metric: &Metric, fill: impl FnOnce(&mut Series<'_>)) {
        let mut series = Series { metric, all: Vec::new() };
        fill(&mut series);
        if series.all.is_empty() {
            return;
        }
        let mut family = proto::MetricFamily::default();
        family.set_name(metric.name.to_owned());
        family.set_help(metric.help.to_owned());
        family.set_field_type(match metric.kind {
            Kind::Counter => MetricType::COUNTER,
            Kind::Gauge => MetricType::GAUGE,
            Kind::Histogram => MetricType::HISTOGRAM,
        });
        family.set_metric(series.all);
        let before = self.text.len();
        if let Err(error) = TextEncoder::new().encode_utf8(&[family], &mut self.text) {
            // A family is whole or not there: half a page would be refused as a whole.
            self.text.truncate(before);
            tracing::error!(target: "server", metric = metric.name, %error, "a metric cannot be shown");
        }
    }

    /// Adds a family of one series without labels.
    pub fn single(&mut self, metric: &Metric, value: f64) {
        self.family(metric, |series| series.add(&[], value));
    }

    /// The text so far.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// The series of one family.
#[derive(Debug)]
pub struct Series<'a> {
    metric: &'a Metric,
    all: Vec<proto::Metric>,
}

impl Series<'_> {
    /// One series, of these values of the metric's labels in their order.
    pub fn add(&mut self, labels: &[&str], value: f64) {
        let mut one = self.labelled(labels);
        match self.metric.kind {
            Kind::Counter => {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                one.set_counter(counter);
            }
            Kind::Gauge | Kind::Histogram => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                one.set_gauge(gauge);
            }
        }
        self.all.push(one);
    }

    /// The series of a histogram.
    pub fn add_times(&mut self, labels: &[&str], times: &Times) {
        let mut one = self.labelled(labels);
        one.set_histogram(times.read());
        self.all.push(one);
    }

    fn labelled(&self, values: &[&str]) -> proto::Metric {
        debug_assert_eq!(values.len(), self.metric.labels.len(), "{}", self.metric.name);
        let pairs = self.metric.labels.iter().zip(values).map(|(name, value)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        });
        proto::Metric::from_label(pairs.collect())
    }
}
