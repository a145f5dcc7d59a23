//! The list of transitions: what is remembered of them, from one of them on.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::query::{Query, bad, digits};
use super::words;
use crate::control::Control;
use crate::telemetry::{Event, EventLog, Kind};

/// The most events in an answer: all that are remembered.
const MOST: usize = 1000;
/// How many there are where the request does not say.
const USUAL: usize = 100;

/// Transitions, and where they stand among all of them.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventsView {
    /// Of this process: another one counts its events anew.
    instance: String,
    /// Of the oldest event that is remembered; the next one's where there is none.
    first_id: u64,
    /// Of the latest event; 0 before the first.
    last_id: u64,
    /// Events after `since` that are not remembered any more.
    missed: u64,
    /// `since` is from another process: everything of this one is new.
    restarted: bool,
    /// The `since` that what follows is asked for with.
    next: String,
    /// Newest last.
    events: Vec<EventView>,
}

/// One transition.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventView {
    /// Counts up from 1 in one process.
    id: u64,
    /// When it was announced.
    #[schema(format = DateTime)]
    time: String,
    /// What it is about.
    #[schema(schema_with = words::kind)]
    kind: &'static str,
    /// How loud it is.
    #[schema(schema_with = words::level)]
    level: &'static str,
    /// Whose route.
    route: Option<String>,
    /// Whose pool; of a route's failover the one that serves now.
    pool: Option<String>,
    /// Whose composite.
    composite: Option<String>,
    /// The member as its pool shows it.
    member: Option<String>,
    /// How many further members it is about, where it names none.
    count: Option<usize>,
    /// What it was; `added` of what was not there, `observed` of a composite that only observed until now.
    from: Option<String>,
    /// What it is now; `removed` of what is not there any more.
    to: Option<String>,
    /// The word of the fail that made a member unhealthy.
    reason: Option<&'static str>,
    /// Why, for people.
    detail: Option<String>,
    /// How the member stands after it.
    #[schema(schema_with = words::standing_or_null)]
    standing: Option<&'static str>,
    /// The member's last samples, as passes of samples shown.
    window: Option<String>,
    /// The member's probe latency, in milliseconds.
    latency_ms: Option<f64>,
    /// Members of the serving tier that take traffic.
    in_rotation: Option<usize>,
    /// Members of the serving tier.
    total: Option<usize>,
    /// The pool's mode after it.
    #[schema(schema_with = words::mode_or_null)]
    mode: Option<&'static str>,
    /// Nothing was done: it is what would have been.
    observed: bool,
    /// The whole of it in a sentence.
    message: String,
}

/// Transitions that are remembered, newest last.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "events",
    params(
        ("since" = Option<String>, Query, description = "Only those after this one: an `id`, or the `next` of an earlier \
            answer, which is told from another process's; without it, the latest", pattern = r"^([0-9a-f]{8}-)?[0-9]{1,15}$"),
        ("limit" = Option<u64>, Query, description = "At most so many: the oldest after `since`, or the latest; 100 where \
            it is not given", minimum = 1, maximum = 1000),
        ("kind" = Option<String>, Query, description = "Only those of this kind"),
        ("pool" = Option<String>, Query, description = "Only those of this pool"),
        ("member" = Option<String>, Query, description = "Only those of this member, as its pool shows it"),
    ),
    responses(
        (status = 200, description = "What is remembered", body = EventsView),
        (status = 400, description = "A parameter is unknown, or not what it should be", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub async fn events(State(control): State<Arc<Control>>, uri: Uri) -> Result<Json<EventsView>, Problem> {
    let query = Query::of(&uri, &["since", "limit", "kind", "pool", "member"])?;
    let limit = query.number("limit", 1..=MOST)?.unwrap_or(USUAL);
    let (filter, log) = (Filter::of(&query)?, control.events());
    let since = query.text("since").map(|text| Since::read(text, log)).transpose()?;
    let Since { id, restarted } = since.unwrap_or_default();
    let glance = log.glance(id, MOST);
    let mut events: Vec<&Arc<Event>> = glance.events.iter().filter(|event| filter.wants(event)).collect();
    let mut seen = glance.last_id;
    if since.is_none() {
        events.drain(..events.len().saturating_sub(limit));
    } else if events.len() > limit {
        events.truncate(limit);
        seen = events.last().map_or(seen, |last| last.id);
    }
    Ok(Json(EventsView {
        instance: log.instance().to_owned(),
        first_id: glance.first_id,
        last_id: glance.last_id,
        missed: if since.is_some() { glance.missed } else { 0 },
        restarted,
        next: log.cursor(seen),
        events: events.into_iter().map(|event| EventView::from(&**event)).collect(),
    }))
}

/// From where on events are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Since {
    /// After this one.
    pub id: u64,
    /// What was asked for is another process's, so that everything is after it.
    pub restarted: bool,
}

impl Since {
    /// An id, or a cursor. An id that we have not given yet is another process's.
    ///
    /// # Errors
    /// 400: it is neither.
    pub fn read(text: &str, log: &EventLog) -> Result<Since, Problem> {
        let (instance, id) = text.split_once('-').map_or((None, text), |(instance, id)| (Some(instance), id));
        let is_instance = |name: &str| name.len() == 8 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let id: u64 = digits(id).filter(|_| instance.is_none_or(is_instance)).ok_or_else(|| {
            bad(format!("since is {text:?}; write the id of an event, or the `next` of an earlier answer"))
        })?;
        let is_ours = instance.is_none_or(|instance| instance == log.instance()) && id <= log.last_id();
        Ok(if is_ours { Since { id, restarted: false } } else { Since { id: 0, restarted: true } })
    }
}

/// Which events are wanted.
#[derive(Debug, Default)]
pub struct Filter {
    kind: Option<Kind>,
    pool: Option<String>,
    member: Option<String>,
}

impl Filter {
    /// The query's `kind`, `pool` and `member`.
    ///
    /// # Errors
    /// 400: there is no such kind.
    pub fn of(query: &Query) -> Result<Filter, Problem> {
        let kind = query.text("kind").map(|word| {
            let found = Kind::ALL.into_iter().find(|kind| kind.as_str() == word);
            let known = || Kind::ALL.map(Kind::as_str).join(", ");
            found.ok_or_else(|| bad(format!("no kind {word:?}; there are: {}", known())))
        });
        let owned = |name: &str| query.text(name).map(str::to_owned);
        Ok(Filter { kind: kind.transpose()?, pool: owned("pool"), member: owned("member") })
    }

    /// Whether this one is.
    pub fn wants(&self, event: &Event) -> bool {
        let is = |wanted: &Option<String>, is: &Option<String>| wanted.is_none() || wanted == is;
        self.kind.is_none_or(|kind| kind == event.kind)
            && is(&self.pool, &event.pool)
            && is(&self.member, &event.member)
    }
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> EventView {
        EventView {
            id: event.id,
            time: event.rfc3339(),
            kind: event.kind.as_str(),
            level: event.level.as_str(),
            route: event.route.clone(),
            pool: event.pool.clone(),
            composite: event.composite.clone(),
            member: event.member.clone(),
            count: event.count,
            from: event.from.clone(),
            to: event.to.clone(),
            reason: event.reason,
            detail: event.detail.clone(),
            standing: event.standing,
            window: event.window.clone(),
            latency_ms: event.latency_ms,
            in_rotation: event.in_rotation,
            total: event.total,
            mode: event.mode,
            observed: event.observed,
            message: event.message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Severity;

    #[test]
    fn an_id_of_another_process_is_noticed() {
        let log = EventLog::default();
        for _ in 0..5 {
            log.publish(Event::new(Kind::Reload, Severity::Info, String::new()));
        }
        let other = if log.instance() == "00000000" { "00000001-3" } else { "00000000-3" };
        let (ours, start) = (|id| Since { id, restarted: false }, Since { id: 0, restarted: true });
        let rows = [
            ("0".to_owned(), Some(ours(0))),
            ("5".to_owned(), Some(ours(5))),
            ("6".to_owned(), Some(start)),
            (log.cursor(3), Some(ours(3))),
            (log.cursor(6), Some(start)),
            (other.to_owned(), Some(start)),
            ("x-3".to_owned(), None),
            (format!("{}-", log.instance()), None),
            ("-3".to_owned(), None),
            ("+3".to_owned(), None),
            (String::new(), None),
        ];
        for (text, expected) in rows {
            assert_eq!(Since::read(&text, &log).ok(), expected, "{text}");
        }
    }

    #[test]
    fn an_event_has_the_fields_of_the_interface() {
        let event = Event {
            id: 7,
            pool: Some("web".to_owned()),
            in_rotation: Some(3),
            mode: Some("normal"),
            ..Event::new(Kind::Pool, Severity::Warn, "it happened".to_owned())
        };
        let json = serde_json::to_value(EventView::from(&event)).expect("json");
        let expected = serde_json::json!({
            "id": 7, "time": json["time"], "kind": "pool", "level": "warn", "route": null, "pool": "web",
            "composite": null, "member": null,
            "count": null, "from": null, "to": null, "reason": null, "detail": null, "standing": null, "window": null,
            "latency_ms": null, "in_rotation": 3, "total": null, "mode": "normal", "observed": false,
            "message": "it happened",
        });
        assert_eq!(json, expected);
    }
}
