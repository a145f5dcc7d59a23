//! How long something took, in buckets.

use std::fmt;
use std::time::Duration;

use prometheus::core::Metric;
use prometheus::{Histogram, HistogramOpts, proto};

/// Upper bounds of the buckets of whole requests, in seconds: the objectives people have lie between 10 ms and 5 s, three
/// to a decade is a quantile to within a factor of about two, and the timeouts of most clients are 10, 30 and 60 s.
pub const REQUEST_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The same of dials: from another machine of the rack to a handshake over an ocean; 1 and 3 s are where lost packets of
/// a dial show, which the kernel sends again after 1 s and then 2 s.
pub const DIAL_BUCKETS: &[f64] =
    &[0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.9, 1.5, 3.5, 10.0];

/// The same of probes that begin late: timers are late by milliseconds, and a quarter of a second is what counts as late.
pub const LATENESS_BUCKETS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// A histogram. Adding to it takes no lock.
pub struct Times(Histogram);

impl Times {
    /// None so far; the bounds are in seconds and ascend.
    pub fn new(bounds: &[f64]) -> Times {
        // On the page it has the name of its family.
        let options = HistogramOpts::new("times", "times").buckets(bounds.to_vec());
        Times(Histogram::with_opts(options).expect("bounds ascend"))
    }

    /// It took so long.
    pub fn add(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }

    /// All so far.
    pub fn read(&self) -> proto::Histogram {
        self.0.metric().get_histogram().clone()
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Times").field(&self.read().get_sample_count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_every_bucket_that_it_is_not_over() {
        for bounds in [REQUEST_BUCKETS, DIAL_BUCKETS, LATENESS_BUCKETS] {
            let times = Times::new(bounds);
            let last = Duration::from_secs_f64(bounds[bounds.len() - 1]);
            [Duration::ZERO, Duration::from_secs_f64(bounds[0]), last, last * 2].into_iter().for_each(|t| times.add(t));
            let read = times.read();
            let counts: Vec<u64> = read.get_bucket().iter().map(|bucket| bucket.cumulative_count()).collect();
            assert_eq!((counts[0], counts[1], counts[bounds.len() - 1]), (2, 2, 3), "{bounds:?}");
            assert_eq!(read.get_sample_count(), 4);
            assert!((read.get_sample_sum() - (bounds[0] + 3.0 * last.as_secs_f64())).abs() < 1e-6);
        }
    }
}
