//! Which lines are written (docs/access-log.md, What is left out).
//!
//! Failures that nobody asked for are never left out, whatever the filter says: who is called at night must find them.

use super::record::Record;
use super::words::{Outcome, Why};
use crate::config::{LogFilter, Sample};

/// Whether the line of `record` is written. `draw` is asked for a number under a million, if it comes to that.
pub(super) fn passes(filter: &LogFilter, record: &Record<'_>, draw: impl FnOnce() -> u32) -> bool {
    is_failure(record)
        || record.status.is_some_and(|status| filter.status.iter().any(|(from, to)| (*from..=*to).contains(&status)))
        || filter.min_duration.is_some_and(|least| record.duration >= least)
        || (filter.sample > Sample::NONE && draw() < filter.sample.0)
}

/// A request that was not answered, that a member failed, or that we failed, though its answer may have begun. A member's own 503 is none, nor is a client
/// that left (499), was too slow (408) or asked for what is not there: those have a status to be filtered by, and anybody
/// can make any number of them.
fn is_failure(record: &Record<'_>) -> bool {
    match (record.outcome, record.status) {
        (_, None) | (Outcome::UpstreamError, _) => true,
        (Outcome::Timeout, Some(_)) => !matches!(record.reason, Some(Why::HeaderTimeout | Why::BodyTimeout)),
        (Outcome::Refused | Outcome::Limited, Some(status)) => {
            status >= 500 || matches!(record.reason, Some(Why::Shutdown | Why::Internal))
        }
        (Outcome::Ok | Outcome::ClientAborted, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn filter(status: &[(u16, u16)], min_duration: Option<u64>, sample: Sample) -> LogFilter {
        LogFilter { status: status.to_vec(), min_duration: min_duration.map(Duration::from_millis), sample }
    }

    fn record(status: Option<u16>, outcome: Outcome, millis: u64) -> Record<'static> {
        Record { status, outcome, duration: Duration::from_millis(millis), ..Record::default() }
    }

    #[test]
    fn a_line_is_written_for_its_status_its_time_or_as_a_sample() {
        use Outcome::{ClientAborted, Limited, Ok, Refused};
        let errors = filter(&[(400, 499), (503, 503)], None, Sample::NONE);
        let slow = filter(&[], Some(500), Sample::NONE);
        let both = filter(&[(500, 599)], Some(500), Sample::NONE);
        let sampled = filter(&[(500, 599)], None, Sample(10_000));
        let rows = [
            (&errors, Some(399), Ok, 0, false),
            (&errors, Some(400), Ok, 0, true),
            (&errors, Some(499), ClientAborted, 0, true),
            (&errors, Some(500), Ok, 0, false),
            (&errors, Some(503), Ok, 0, true),
            (&errors, Some(504), Ok, 0, false),
            (&slow, Some(503), Ok, 499, false),
            (&slow, Some(200), Ok, 500, true),
            (&slow, Some(499), ClientAborted, 499, false),
            (&both, Some(200), Ok, 500, true),
            (&both, Some(500), Ok, 0, true),
            (&both, Some(404), Refused, 0, false),
            (&both, Some(429), Limited, 0, false),
            (&both, Some(200), ClientAborted, 0, false),
            (&sampled, Some(500), Ok, 0, true),
        ];
        for (filter, status, outcome, millis, written) in rows {
            let highest = || 999_999;
            assert_eq!(
                passes(filter, &record(status, outcome, millis), highest),
                written,
                "{status:?} {outcome:?} {millis}"
            );
        }
    }

    #[test]
    fn failures_are_written_whatever_the_filter_says() {
        use Outcome::{ClientAborted, Limited, Ok, Refused, Timeout, UpstreamError};
        let nothing = filter(&[], None, Sample::NONE);
        let rows = [
            (Some(502), UpstreamError, true),
            // An answer that broke off in the middle has its status.
            (Some(200), UpstreamError, true),
            (Some(504), Timeout, true),
            (Some(408), Timeout, true),
            (Some(503), Refused, true),
            (Some(500), Refused, true),
            (Some(503), Limited, true),
            (None, Refused, true),
            (None, ClientAborted, true),
            (None, Ok, true),
            (Some(404), Refused, false),
            (Some(400), Refused, false),
            (Some(429), Limited, false),
            (Some(499), ClientAborted, false),
            (Some(503), Ok, false),
            (Some(200), Ok, false),
        ];
        for (status, outcome, written) in rows {
            let asked = || panic!("there is no sample to draw for");
            assert_eq!(passes(&nothing, &record(status, outcome, 0), asked), written, "{status:?} {outcome:?}");
        }
    }

    #[test]
    fn a_client_that_is_too_slow_is_no_failure_and_a_member_is() {
        let nothing = filter(&[], None, Sample::NONE);
        for (reason, status, written) in [
            (Why::HeaderTimeout, Some(408), false),
            (Why::BodyTimeout, Some(408), false),
            (Why::HeaderTimeout, None, true),
            (Why::UpstreamTimeout, Some(504), true),
            // The answer had begun.
            (Why::UpstreamTimeout, Some(404), true),
            (Why::Deadline, Some(504), true),
        ] {
            let record = Record { reason: Some(reason), ..record(status, Outcome::Timeout, 0) };
            assert_eq!(passes(&nothing, &record, || 0), written, "{reason:?} {status:?}");
        }
    }

    #[test]
    fn an_answer_that_we_break_off_is_a_failure() {
        let nothing = filter(&[], None, Sample::NONE);
        for (reason, status, written) in [
            (Why::Shutdown, 200, true),
            (Why::Shutdown, 101, true),
            (Why::Internal, 200, true),
            (Why::NoRoute, 404, false),
        ] {
            let record = Record { reason: Some(reason), ..record(Some(status), Outcome::Refused, 0) };
            assert_eq!(passes(&nothing, &record, || 0), written, "{reason:?} {status}");
        }
    }

    #[test]
    fn a_sample_is_the_share_that_it_says() {
        let plain = filter(&[], None, Sample(250_000));
        let written = |draw| passes(&plain, &record(Some(200), Outcome::Ok, 0), || draw);
        assert_eq!((0..1_000_000).filter(|draw| written(*draw)).count(), 250_000);
    }
}
