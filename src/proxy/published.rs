//! The answer for a composite: what it stands for and how that stands, for whoever must decide by it (health.md §8).
//!
//! A balancer in another region looks at the status alone: 200 for healthy, 503 for everything else. While the process ends
//! it is 503 whatever the members say: the region is fine, and its front door is about to close.
//!
//! Not here: where it is asked for (`composite`).

use bytes::Bytes;
use http::{Method, StatusCode, header};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock;
use crate::composite::{Count, Report, SourceKind, SourceReport};
use crate::health::State;

/// The field that has the state in a word: `HEALTHY`, `UNHEALTHY` or `UNKNOWN`.
pub const HEALTH_STATE: &str = "x-health-state";

/// Methods that are answered.
pub const METHODS: &str = "GET, HEAD";

/// A composite, as it is published.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompositeView {
    /// Its name.
    name: String,
    /// UNHEALTHY if any source is, else UNKNOWN if any is, else HEALTHY; UNHEALTHY while the process ends.
    #[schema(pattern = "^(HEALTHY|UNHEALTHY|UNKNOWN)$")]
    state: &'static str,
    /// Since when its sources have added up to what they do.
    #[schema(format = DateTime)]
    since: String,
    /// The process ends: whatever the sources are, nobody should come here any more.
    draining: bool,
    /// What it stands for.
    sources: Vec<CompositeSourceView>,
}

/// A source of a composite.
#[derive(Debug, Serialize, ToSchema)]
struct CompositeSourceView {
    /// Its name.
    name: String,
    /// `pool` or `composite`.
    #[schema(pattern = "^(pool|composite)$")]
    kind: &'static str,
    /// How it stands: a pool by its `aggregate`.
    #[schema(pattern = "^(HEALTHY|UNHEALTHY|UNKNOWN)$")]
    state: &'static str,
    /// Since when.
    #[schema(format = DateTime)]
    since: String,
    /// Of a pool, enabled members of weight over 0 that are healthy; of a composite, sources that are.
    healthy: usize,
    /// Those of whom it is not known yet.
    unknown: usize,
    /// All of these members, or sources.
    total: usize,
}

impl CompositeView {
    /// As its sources stand.
    pub fn new(report: &Report) -> CompositeView {
        CompositeView {
            name: report.name.to_string(),
            state: report.state.published(),
            since: rfc3339(report.since),
            draining: false,
            sources: report.sources.iter().map(CompositeSourceView::new).collect(),
        }
    }

    /// The same of a process that ends.
    pub fn of_ending(report: &Report) -> CompositeView {
        CompositeView { state: State::Unhealthy.published(), draining: true, ..CompositeView::new(report) }
    }

    /// The word for the state.
    pub fn state(&self) -> &'static str {
        self.state
    }

    /// The status that says it: nobody is to come where it is not known whether they should.
    pub fn status(&self) -> StatusCode {
        let is_healthy = self.state == State::Healthy.published();
        if is_healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    }
}

impl CompositeSourceView {
    fn new(source: &SourceReport) -> CompositeSourceView {
        let SourceReport { name, kind, state, since, count: Count { healthy, unknown, total } } = source;
        CompositeSourceView {
            name: name.to_string(),
            kind: SourceKind::as_str(*kind),
            state: state.published(),
            since: rfc3339(*since),
            healthy: *healthy,
            unknown: *unknown,
            total: *total,
        }
    }
}

fn rfc3339(moment: std::time::Duration) -> String {
    humantime::format_rfc3339_millis(clock::wall_at(moment)).to_string()
}

/// Whether a request with this method is answered.
pub fn may_ask(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

/// Answers for the composite.
///
/// # Errors
/// The client is gone.
pub async fn answer(
    session: &mut ServerSession,
    view: &CompositeView,
    request_id: &str,
) -> pingora::Result<StatusCode> {
    // Names and numbers: there is nothing in it that could not be written.
    let mut body = serde_json::to_vec(view).unwrap_or_default();
    body.push(b'\n');
    let status = view.status();
    let mut answer = ResponseHeader::build(status, Some(8))?;
    answer.insert_header(header::CONTENT_TYPE, "application/json")?;
    answer.insert_header(header::CONTENT_LENGTH, body.len())?;
    answer.insert_header(header::CACHE_CONTROL, "no-store")?;
    answer.insert_header(HEALTH_STATE, view.state())?;
    answer.insert_header("X-Request-Id", request_id)?;
    let bodyless = session.req_header().method == Method::HEAD;
    session.write_response_header(Box::new(answer)).await?;
    if !bodyless {
        session.write_response_body(Bytes::from(body), true).await?;
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(state: State) -> Report {
        let count = Count { healthy: 1, unknown: 1, total: 4 };
        let source = SourceReport { name: "web".into(), kind: SourceKind::Pool, state, since: Duration::ZERO, count };
        Report { name: "region".into(), state, since: Duration::ZERO, sources: vec![source] }
    }

    #[test]
    fn only_healthy_is_200_and_nothing_is_while_the_process_ends() {
        let rows =
            [(State::Healthy, 200, "HEALTHY"), (State::Unhealthy, 503, "UNHEALTHY"), (State::Unknown, 503, "UNKNOWN")];
        for (state, status, word) in rows {
            let view = CompositeView::new(&report(state));
            assert_eq!((view.status().as_u16(), view.state(), view.draining), (status, word, false));
            let view = CompositeView::of_ending(&report(state));
            assert_eq!((view.status().as_u16(), view.state(), view.draining), (503, "UNHEALTHY", true));
            assert_eq!(view.sources[0].state, word, "what the sources are is said all the same");
        }
    }
}
