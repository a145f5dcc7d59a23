//! The first steps of a request: its limits, who it is from, and where it goes.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::HOST;
use http::{HeaderMap, Method, Version};
use ipnet::IpNet;
use pingora::http::RequestHeader;
use pingora::protocols::http::authority::{RawTargetAuthority, is_http_family_scheme, raw_target_authority};

use super::ctx::Ctx;
use super::refusal::Refusal;
use super::{authority, framing, key, nominations, published, sticky};
use crate::composite::Door;
use crate::config::Limits;
use crate::snapshot::{Snapshot, Way};

/// A request id that a trusted proxy sent is kept up to this length.
const REQUEST_ID_LENGTH: usize = 128;

/// Where a request goes.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// To a composite that is published there.
    Door(&'a Arc<Door>),
    /// By the route at this place of the generation.
    Route(usize),
}

/// Admits a request: within its listener's limits, from somebody, to a composite that is published there, or else by a route
/// to a pool.
///
/// # Errors
/// The refusal that ends it here.
pub fn admit(ctx: &mut Ctx, request: &RequestHeader, limits: Limits) -> Result<(), Refusal> {
    let snapshot = ctx.snapshot.clone().ok_or(Refusal::Internal)?;
    let trusted = &snapshot.config.trusted_proxies;
    let peer = ctx.connection.client().ip();
    ctx.peer_is_trusted = is_trusted(peer, trusted);
    ctx.client = client(peer, &request.headers, trusted);
    ctx.request_id = request_id(&request.headers, ctx.peer_is_trusted);
    let listener = ctx.connection.listening().wanted();
    ctx.place = match place(&snapshot, &listener.name, request, &ctx.raw, limits)? {
        Place::Door(door) => {
            ctx.route = Some(door.counts.clone());
            ctx.door = Some(door.clone());
            if !published::may_ask(&request.method) {
                return Err(Refusal::OnlyReading);
            }
            door.mark_use();
            return Ok(());
        }
        Place::Route(place) => place,
    };
    let way = snapshot.ways.get(ctx.place).ok_or(Refusal::Internal)?;
    enter(ctx, request, way, way.rank())
}

/// Where a request to the listener of this name and these limits goes; `raw` is its header as it came.
///
/// # Errors
/// The refusal that ends it here.
pub fn place<'a>(
    snapshot: &'a Snapshot,
    listener: &str,
    request: &RequestHeader,
    raw: &[u8],
    limits: Limits,
) -> Result<Place<'a>, Refusal> {
    within_limits(request, raw, limits)?;
    let (host, path) = (host(request), path(request));
    if let Some(door) = snapshot.doors.find(listener, host, path) {
        return Ok(Place::Door(door));
    }
    snapshot.routes.find_place(host, path).map(Place::Route).ok_or(Refusal::NoRoute)
}

/// The path that it is for.
pub fn path(request: &RequestHeader) -> &str {
    // OPTIONS of everything is for who serves everything (RFC 9110 section 9.3.7).
    if request.raw_path() == b"*" { "/" } else { request.uri.path() }
}

/// The request goes to the pool of this rank, of a way of its generation.
///
/// # Errors
/// The refusal that ends it here.
pub(super) fn enter(ctx: &mut Ctx, request: &RequestHeader, way: &Way, rank: usize) -> Result<(), Refusal> {
    let stop = way.stop(rank).ok_or(Refusal::Internal)?;
    let pool = &stop.served;
    ctx.rank = rank;
    ctx.route = Some(stop.counts.clone());
    ctx.pool = Some(pool.clone());
    pool.live.budget().earn();
    way.mark_use();
    ctx.deadline = pool.config.deadline.map(|limit| ctx.connection.began() + limit);
    ctx.hash_key = pool.config.hash_key.as_ref().and_then(|wanted| key::key(wanted, request, ctx.client));
    ctx.claim = sticky::claim(pool, request);
    Ok(())
}

/// Whether the request is well formed and within its listener's limits; `raw` is its header as it came.
///
/// # Errors
/// The refusal that says which limit it is over.
fn within_limits(request: &RequestHeader, raw: &[u8], limits: Limits) -> Result<(), Refusal> {
    // Its target is none that anything else could have.
    if request.method == Method::CONNECT {
        return Err(Refusal::MethodNotAllowed);
    }
    if request.raw_path().len() > limits.max_uri_bytes {
        return Err(Refusal::UriTooLong);
    }
    if flaw(request, raw).is_some() {
        return Err(Refusal::BadRequest);
    }
    // It would show a client its own credentials, and those that proxies before us added (RFC 9110 section 9.3.8).
    if request.method == Method::TRACE {
        return Err(Refusal::MethodNotAllowed);
    }
    if raw.len() > limits.max_header_bytes || request.headers.len() > limits.max_header_fields {
        return Err(Refusal::HeaderTooLarge);
    }
    Ok(())
}

/// What is malformed or ambiguous in the request, for people; `None`: nothing.
pub fn flaw(request: &RequestHeader, raw: &[u8]) -> Option<&'static str> {
    // RFC 9112 section 3.2: one Host, and a real one; two are refused by Pingora.
    let named = whole_uri(request).is_some() || request.headers.contains_key(HOST);
    if request.version == Version::HTTP_11 && !named {
        return Some("it has no Host");
    }
    if !is_target(request) {
        return Some("its target is neither a path nor a whole URI");
    }
    if !framing::is_clear(request, raw) {
        return Some("its Content-Length and Transfer-Encoding can be read in two ways");
    }
    if !authority::is_valid(host(request)) {
        return Some("its Host is no host");
    }
    let may_be = nominations::may_be(&request.headers);
    (!may_be).then_some("its Connection names too many fields, or one that must not be taken out")
}

/// A target in absolute form (RFC 9112 section 3.2.2), taken apart.
#[derive(Debug, Clone, Copy)]
pub struct WholeUri<'a> {
    /// Host and port.
    pub authority: &'a str,
    /// Path and query as sent; the path may be missing.
    pub rest: &'a [u8],
}

/// The target, if it is a whole URI. Pingora keeps its authority out of `uri` and gives the bytes as they came.
pub fn whole_uri(request: &RequestHeader) -> Option<WholeUri<'_>> {
    match raw_target_authority(request.raw_path()) {
        RawTargetAuthority::Absolute { scheme, authority, path_and_query } if is_http_family_scheme(scheme) => {
            Some(WholeUri { authority: std::str::from_utf8(authority).ok()?, rest: path_and_query })
        }
        _ => None,
    }
}

/// The host the client asked for: the target's authority where it has one, else the Host field (RFC 9112 section 3.2).
pub fn host(request: &RequestHeader) -> &str {
    if let Some(WholeUri { authority, .. }) = whole_uri(request) {
        return authority;
    }
    // What is not ASCII is no host: the space says so to whoever asks.
    request.headers.get(HOST).map_or("", |host| host.to_str().unwrap_or(" "))
}

/// Whether the target has a form that a request through a proxy can have (RFC 9112 section 3.2): a path, a whole URI, or
/// the asterisk of OPTIONS.
fn is_target(request: &RequestHeader) -> bool {
    match request.raw_path() {
        [b'/', ..] => true,
        b"*" => request.method == Method::OPTIONS,
        _ => whole_uri(request).is_some(),
    }
}

/// Whether `address` belongs to a proxy that is trusted.
fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted.iter().any(|net| net.contains(&address))
}

/// Who the request is from: the peer, or behind trusted proxies the right-most address that is not one of theirs.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let mut client = peer.to_canonical();
    if !is_trusted(client, trusted) {
        return client;
    }
    for value in headers.get_all("x-forwarded-for").iter().rev() {
        for hop in value.to_str().unwrap_or("").rsplit(',') {
            let Some(address) = address(hop.trim()) else { return client };
            client = address;
            if !is_trusted(client, trusted) {
                return client;
            }
        }
    }
    client
}

/// The id a trusted proxy gave the request, or a new one: 32 hexadecimal digits.
fn request_id(headers: &HeaderMap, from_trusted: bool) -> String {
    let given = if from_trusted { headers.get("x-request-id").and_then(|id| id.to_str().ok()) } else { None };
    let fit = |id: &&str| {
        (1..=REQUEST_ID_LENGTH).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:+/=".contains(&b))
    };
    match given.filter(fit) {
        Some(id) => id.to_owned(),
        None => fresh_id(fastrand::u128(..)),
    }
}

/// A number as 32 digits, without the machinery of formatting.
fn fresh_id(number: u128) -> String {
    let digit = |place: u32| char::from(b"0123456789abcdef"[(number >> (4 * place)) as usize & 15]);
    let mut id = String::with_capacity(32);
    id.extend((0..32).rev().map(digit));
    id
}

/// An address as proxies write it: bare, with a port, or in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.parse().ok();
    let address = bare.or_else(|| text.parse::<std::net::SocketAddr>().ok().map(|a| a.ip()));
    address.or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()).map(|a: IpAddr| a.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_client_is_the_right_most_address_nobody_vouches_for() {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().expect("a net"), "fd00::/8".parse().expect("a net")];
        let rows: &[(&str, &[&str], &str)] = &[
            ("192.0.2.1", &[], "192.0.2.1"),
            ("192.0.2.1", &["203.0.113.9"], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["6.6.6.6, 203.0.113.9, 10.9.9.9"], "203.0.113.9"),
            ("10.0.0.1", &["6.6.6.6", "203.0.113.9, 10.9.9.9"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("10.0.0.1", &["[2001:db8::1]:80"], "2001:db8::1"),
            ("fd00::1", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.1", &["203.0.113.9, nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["10.2.2.2, 10.3.3.3"], "10.2.2.2"),
            ("::ffff:10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ];
        for (peer, forwarded, expected) in rows {
            let mut headers = HeaderMap::new();
            for value in *forwarded {
                headers.append("x-forwarded-for", value.parse().expect("a value"));
            }
            assert_eq!(client(ip(peer), &headers, &trusted), ip(expected), "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn a_request_id_is_kept_only_from_trusted_proxies_and_only_if_it_is_harmless() {
        let with = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", id.parse().expect("a value"));
            headers
        };
        assert_eq!(request_id(&with("abc-123"), true), "abc-123");
        for (headers, trusted) in [
            (with("abc-123"), false),
            (with("a b"), true),
            (with("\"x\""), true),
            (with(&"a".repeat(129)), true),
            (HeaderMap::new(), true),
        ] {
            let id = request_id(&headers, trusted);
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        }
        assert_eq!(fresh_id(0x0123_4567), format!("{:032x}", 0x0123_4567));
    }
}
