//! What would become of a request that nobody has sent: the steps of a request up to its first pick, none of which happens.
//!
//! The same functions in the same order as for a request; no id is given, no use marked, nothing counted, no seat taken.
//! Not here: what an attempt at a member would come to, and how this is told (`admin`).

use std::net::IpAddr;
use std::sync::Arc;

use http::header::HOST;
use http::{Method, StatusCode};
use pingora::http::RequestHeader;

use super::admit::Place;
use super::refusal::Refusal;
use super::sticky::{self, Claim};
use super::{admit, key, max_forwards, pick, published};
use crate::clock;
use crate::config::Listener;
use crate::pool::{Bond, Choice, Foreseen, Outlook};
use crate::snapshot::{Served, Snapshot};
use crate::telemetry::{PickReason, Why};

/// A request as somebody describes it.
#[derive(Debug, Clone)]
pub struct Described {
    /// Its method.
    pub method: String,
    /// Its target, as the request line has it.
    pub target: String,
    /// Its fields, `Host` among them, in their order.
    pub fields: Vec<(String, String)>,
    /// The address its connection comes from.
    pub peer: IpAddr,
}

/// What would become of it.
#[derive(Debug)]
pub struct Fate {
    /// Who it would be from: the peer, or whom trusted proxies vouch for.
    pub client: IpAddr,
    /// The host it asks for, as sent.
    pub host: String,
    /// The path it is for.
    pub path: String,
    /// Bytes and fields of its header.
    pub size: (usize, usize),
    /// Where it would be led; `None` where it ends before.
    pub led: Option<Led>,
    /// How it would end, or go on.
    pub end: End,
}

/// The pool it would be led to.
#[derive(Debug)]
pub struct Led {
    /// Its route's place in the generation.
    pub place: usize,
    /// Which of the route's pools serves, 0 first.
    pub rank: usize,
    /// The pool.
    pub served: Arc<Served>,
    /// What it goes by, where keys count.
    pub key: Option<Vec<u8>>,
    /// What its cookie says, where clients are bound.
    pub claim: Claim,
    /// The pool as it would find it.
    pub outlook: Outlook,
}

/// How it would end, or go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// At a member, or one of several: the outlook says which.
    Member,
    /// It would wait for a first verdict.
    WaitsForVerdict,
    /// It would wait in the queue.
    WaitsForRoom,
    /// With the state of a composite that is published there.
    Composite(Arc<str>),
    /// At this proxy, as the last hop that it may take.
    LastHop,
    /// With an answer of our own.
    Refused {
        /// Its status.
        status: StatusCode,
        /// The log's `reason`.
        why: Why,
        /// What is malformed, where something is.
        flaw: Option<&'static str>,
    },
}

/// What would become of a request to this listener.
pub fn foresee(snapshot: &Snapshot, listener: &Listener, described: &Described) -> Fate {
    let raw = raw(described);
    let fate = |client: IpAddr, host: &str, path: &str, led: Option<Led>, end: End| {
        let size = (raw.len(), described.fields.len());
        Fate { client, host: host.to_owned(), path: path.to_owned(), size, led, end }
    };
    let request = match header(described) {
        Ok(request) => request,
        // A limit is looked at first, as for every request.
        Err(flaw) => {
            let is_long = described.target.len() > listener.limits.max_uri_bytes;
            let end = if is_long { refused(Refusal::UriTooLong) } else { malformed(flaw) };
            return fate(described.peer.to_canonical(), "", &described.target, None, end);
        }
    };
    let client = admit::client(described.peer, &request.headers, &snapshot.config.trusted_proxies);
    let fate = |led, end| fate(client, admit::host(&request), admit::path(&request), led, end);
    let place = match admit::place(snapshot, &listener.name, &request, &raw, listener.limits) {
        Ok(Place::Door(_)) if !published::may_ask(&request.method) => return fate(None, refused(Refusal::OnlyReading)),
        Ok(Place::Door(door)) => return fate(None, End::Composite(door.composite.clone())),
        Ok(Place::Route(place)) => place,
        Err(Refusal::BadRequest) => return fate(None, malformed(admit::flaw(&request, &raw).unwrap_or_default())),
        Err(refusal) => return fate(None, refused(refusal)),
    };
    let Some(led) = led(snapshot, place, &request, client) else { return fate(None, refused(Refusal::Internal)) };
    let end = if max_forwards::left(&request) == Some(0) { End::LastHop } else { end(&led) };
    fate(Some(led), end)
}

/// What the log would say of a pick of the member at `index`.
pub fn reason(led: &Led, index: usize) -> PickReason {
    let roster = &led.outlook.roster;
    let choice = match led.outlook.foreseen {
        Foreseen::Member(picked, choice) if picked == index => choice,
        _ if led.key.is_some() && roster.goes_by_key() => Choice::ByKey,
        _ => Choice::ByPolicy,
    };
    pick::first_reason(roster.mode(), roster.standing(index), choice, led.rank)
}

fn led(snapshot: &Snapshot, place: usize, request: &RequestHeader, client: IpAddr) -> Option<Led> {
    let way = snapshot.ways.get(place)?;
    let rank = way.rank();
    let served = way.stop(rank)?.served.clone();
    let key = served.config.hash_key.as_ref().and_then(|wanted| key::key(wanted, request, client));
    let claim = sticky::claim(&served, request);
    served.live.tell_time(clock::monotonic);
    let bond = claim.member().map(|member| Bond { member, now: clock::monotonic() });
    let outlook = served.live.foresee_bound(key.as_deref(), bond);
    Some(Led { place, rank, served, key, claim, outlook })
}

fn end(led: &Led) -> End {
    let queue = led.served.live.queue();
    match led.outlook.foreseen {
        Foreseen::Member(..) | Foreseen::OneOf(_) => End::Member,
        Foreseen::Wait => End::WaitsForVerdict,
        Foreseen::Full if queue.length() < queue.size() => End::WaitsForRoom,
        Foreseen::Full | Foreseen::Crowded => refused(Refusal::Overloaded),
        Foreseen::AllUnhealthy => refused(Refusal::AllUnhealthy),
        Foreseen::Nobody => refused(Refusal::NoMember),
    }
}

fn refused(refusal: Refusal) -> End {
    End::Refused { status: refusal.status(), why: refusal.why(), flaw: None }
}

fn malformed(flaw: &'static str) -> End {
    End::Refused { status: Refusal::BadRequest.status(), why: Refusal::BadRequest.why(), flaw: Some(flaw) }
}

/// The header as it would come.
fn raw(described: &Described) -> Vec<u8> {
    let Described { method, target, fields, .. } = described;
    let mut raw = format!("{method} {target} HTTP/1.1\r\n");
    fields.iter().for_each(|(name, value)| raw.extend([name, ": ", value, "\r\n"]));
    raw.push_str("\r\n");
    raw.into_bytes()
}

/// The same as Pingora reads it.
///
/// # Errors
/// What would be refused of it before a hook of ours is asked, for people.
fn header(described: &Described) -> Result<RequestHeader, &'static str> {
    let Described { method, target, fields, .. } = described;
    if target.bytes().any(|byte| matches!(byte, 0..=b' ' | 0x7f)) {
        return Err("its target has a blank or a control character");
    }
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| "its method is none")?;
    let mut request = RequestHeader::build(method, target.as_bytes(), None).map_err(|_| "its target is none")?;
    for (name, value) in fields {
        let added = request.append_header(name.clone(), value.as_bytes());
        added.map_err(|_| "a field has a name or a value that cannot be sent")?;
    }
    if request.headers.get_all(HOST).iter().count() > 1 {
        return Err("it has more than one Host");
    }
    Ok(request)
}
