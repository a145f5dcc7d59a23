//! Transitions as they come, as server-sent events (WHATWG HTML, section 9.2).
//!
//! A stream keeps nothing but the id it has come to, and reads the list from there. So a slow reader holds nobody up and
//! takes no memory: what it was too slow for is told as `missed`. Whoever comes back with `Last-Event-ID` goes on where the
//! connection was cut.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

use super::accept::Stay;
use super::events::{EventView, Filter, Since};
use super::problem::Problem;
use super::query::{Query, bad};
use crate::control::Control;
use crate::telemetry::EventLog;

/// Streams at once: a quarter of the connections, so that others always find a place.
pub const STREAMS: usize = 32;

/// How often something is sent where nothing happens, so that nobody on the way takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events that are written at once.
const BATCH: usize = 64;

/// Transitions as they come: `text/event-stream`, each with its `id`.
#[utoipa::path(
    get, path = "/api/v1/events/stream", tag = "events",
    params(
        ("since" = Option<String>, Query, description = "Begin after this one: an `id`, or the `next` of an answer of \
            `/api/v1/events`; without it, with the next that comes", pattern = r"^([0-9a-f]{8}-)?[0-9]{1,15}$"),
        ("kind" = Option<String>, Query, description = "Only those of this kind"),
        ("pool" = Option<String>, Query, description = "Only those of this pool"),
        ("member" = Option<String>, Query, description = "Only those of this member, as its pool shows it"),
        ("Last-Event-ID" = Option<String>, Header, description = "Sent by clients that come back; counts before `since`",
            pattern = r"^([0-9a-f]{8}-)?[0-9]{1,15}$"),
    ),
    responses(
        (status = 200, description = "Each event's data is as in `/api/v1/events`; one of type `missed` says how many were \
            lost, and whether another process's were asked for", body = String, content_type = "text/event-stream"),
        (status = 400, description = "A parameter is unknown, or not what it should be", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "All streams are taken, or the process is ending", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn stream(
    State(control): State<Arc<Control>>,
    State(places): State<Arc<Semaphore>>,
    Extension(stay): Extension<Stay>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::of(&uri, &["since", "kind", "pool", "member"])?;
    let (filter, log) = (Filter::of(&query)?, control.events().clone());
    let resumed =
        headers.get("last-event-id").map(|value| value.to_str().map_err(|_| bad("no Last-Event-ID".to_owned())));
    let since = resumed.transpose()?.filter(|id| !id.is_empty()).or(query.text("since"));
    let since = since.map_or(Ok(Since { id: log.last_id(), restarted: false }), |text| Since::read(text, &log))?;
    let refused = |why: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why);
    if control.is_draining() {
        return Err(refused("the process is ending".to_owned()));
    }
    let place = places.try_acquire_owned().map_err(|_| refused(format!("all {STREAMS} streams are taken")))?;
    let reader = Reader::new(log, since, filter, control.ending(), KEEP_ALIVE);
    let kept = (place, stay);
    let chunks =
        stream::unfold((reader, kept), |(mut reader, kept): (Reader, (OwnedSemaphorePermit, Stay))| async move {
            let text = reader.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(text)), (reader, kept)))
        });
    let mut response = Body::from_stream(chunks).into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that hold answers back until they are whole (nginx) do not hold back this one.
    fields.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Where one stream has come to.
struct Reader {
    log: Arc<EventLog>,
    latest: watch::Receiver<u64>,
    ending: watch::Receiver<bool>,
    filter: Filter,
    /// What comes after it is not sent yet.
    id: u64,
    /// To be told first.
    greeting: Option<String>,
    keep_alive: Duration,
}

impl Reader {
    fn new(
        log: Arc<EventLog>,
        since: Since,
        filter: Filter,
        ending: watch::Receiver<bool>,
        keep_alive: Duration,
    ) -> Reader {
        // Something is sent at once, so that the client knows that it is connected.
        let mut greeting = ": transitions of pulsegate\nretry: 1000\n\n".to_owned();
        if since.restarted {
            let missed = log.glance(0, 0).missed;
            greeting += &missed_event(&log, missed, true);
        }
        let id = if since.restarted { log.glance(0, 0).first_id - 1 } else { since.id };
        Reader { latest: log.latest(), ending, filter, id, greeting: Some(greeting), keep_alive, log }
    }

    /// What is to be sent next, as soon as there is something; `None`: the process ends.
    async fn next(&mut self) -> Option<String> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        loop {
            self.latest.mark_unchanged();
            let text = self.batch();
            if !text.is_empty() {
                return Some(text);
            }
            // Whoever ends has said so before the last events; they were sent.
            tokio::select! {
                biased;
                alive = self.latest.changed() => alive.ok()?,
                _ = self.ending.wait_for(|ending| *ending) => return None,
                () = sleep(self.keep_alive) => {
                    // The id tells one who wants few of the events how far it has come.
                    return Some(format!(": keep-alive\nid: {}\n\n", self.log.cursor(self.id)));
                }
            }
        }
    }

    /// The next events that are wanted; empty where there are none.
    fn batch(&mut self) -> String {
        let mut text = String::new();
        while text.is_empty() {
            let glance = self.log.glance(self.id, BATCH);
            if glance.missed > 0 {
                text += &missed_event(&self.log, glance.missed, false);
                self.id = glance.first_id - 1;
            }
            let Some(last) = glance.events.last() else { break };
            self.id = last.id;
            for event in glance.events.iter().filter(|event| self.filter.wants(event)) {
                // Neither numbers and texts nor writing to memory can fail.
                let data = serde_json::to_string(&EventView::from(&**event)).unwrap_or_default();
                let _ = write!(text, "id: {}\ndata: {data}\n\n", self.log.cursor(event.id));
            }
        }
        text
    }
}

/// What the reader will not be told. Its id is the one before the oldest that is remembered.
fn missed_event(log: &EventLog, missed: u64, restarted: bool) -> String {
    let first_id = log.glance(0, 0).first_id;
    let data = json!({ "missed": missed, "restarted": restarted, "first_id": first_id });
    format!("event: missed\nid: {}\ndata: {data}\n\n", log.cursor(first_id - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Event, Kind, Severity};

    /// A log, a way to say that the process ends, and a runtime to wait on.
    struct Stage {
        log: Arc<EventLog>,
        ending: watch::Sender<bool>,
        runtime: tokio::runtime::Runtime,
    }

    impl Stage {
        fn new() -> Stage {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            Stage { log: Arc::default(), ending: watch::Sender::new(false), runtime }
        }

        fn publish(&self, count: usize) {
            for _ in 0..count {
                self.log.publish(Event::new(Kind::Reload, Severity::Info, "it happened".to_owned()));
            }
        }

        fn reader(&self, since: Since, filter: Filter) -> Reader {
            let keep_alive = Duration::from_millis(1);
            Reader::new(self.log.clone(), since, filter, self.ending.subscribe(), keep_alive)
        }

        fn next(&self, reader: &mut Reader) -> Option<String> {
            self.runtime.block_on(reader.next())
        }

        /// The ids of what comes until nothing more does.
        fn drained(&self, reader: &mut Reader) -> Vec<u64> {
            let mut ids = Vec::new();
            while let Some(text) = self.next(reader).filter(|text| !text.starts_with(": keep-alive")) {
                let instance = format!("id: {}-", self.log.instance());
                ids.extend(text.lines().filter_map(|l| l.strip_prefix(&instance)?.parse::<u64>().ok()));
            }
            ids
        }
    }

    #[test]
    fn a_reader_that_was_too_slow_is_told_what_it_missed_and_then_all_that_is_kept() {
        let stage = Stage::new();
        let mut reader = stage.reader(Since::default(), Filter::default());
        assert!(stage.next(&mut reader).is_some_and(|greeting| greeting.starts_with(':')));
        stage.publish(1700);
        let text = stage.next(&mut reader).expect("something");
        let (missed, rest) = text.split_once("\n\n").expect("an event");
        let cursor = stage.log.cursor(700);
        let expected =
            format!("event: missed\nid: {cursor}\ndata: {{\"first_id\":701,\"missed\":700,\"restarted\":false}}");
        assert_eq!(missed, expected);
        assert!(rest.starts_with(&format!("id: {}-701\ndata: {{", stage.log.instance())), "{rest}");
        let mut reader = stage.reader(Since::default(), Filter::default());
        assert_eq!(stage.drained(&mut reader), (700..=1700).collect::<Vec<_>>());
    }

    #[test]
    fn one_that_comes_back_goes_on_where_it_was_and_a_restart_is_told() {
        let stage = Stage::new();
        stage.publish(10);
        let since = |id, restarted| Since { id, restarted };
        assert_eq!(stage.drained(&mut stage.reader(since(7, false), Filter::default())), [8, 9, 10]);
        let mut reader = stage.reader(since(0, true), Filter::default());
        let greeting = stage.next(&mut reader).expect("a greeting");
        assert!(greeting.contains("event: missed\n") && greeting.contains("\"restarted\":true"), "{greeting}");
        assert_eq!(stage.drained(&mut reader), (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn one_that_wants_others_is_told_how_far_it_has_come() {
        let stage = Stage::new();
        let query = Query::of(&Uri::from_static("/?kind=member"), &["kind"]).expect("a query");
        let mut reader = stage.reader(Since::default(), Filter::of(&query).expect("a kind"));
        stage.next(&mut reader);
        stage.publish(200);
        assert_eq!(stage.next(&mut reader), Some(format!(": keep-alive\nid: {}\n\n", stage.log.cursor(200))));
    }

    #[test]
    fn the_end_of_the_process_ends_it_after_what_was_told() {
        let stage = Stage::new();
        let mut reader = stage.reader(Since::default(), Filter::default());
        stage.next(&mut reader);
        stage.publish(1);
        stage.ending.send_replace(true);
        assert!(stage.next(&mut reader).is_some_and(|text| text.contains("it happened")));
        assert_eq!(stage.next(&mut reader), None);
    }
}
