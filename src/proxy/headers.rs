//! What goes up and what comes down.
//!
//! Forwarded fields say what we know of the connection; what a client says of itself is believed only from trusted
//! proxies. Pingora strips the request's hop-by-hop fields before our hook; the answer's are stripped here.

use std::fmt::Write;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{ErrorType, OrErr};

use super::admit::{self, WholeUri};
use super::{framing, max_forwards, upgrade};
use crate::config::UpstreamHost;

/// Fields that belong to one hop, beside those that `Connection` names (RFC 9110 section 7.6.1). `Transfer-Encoding`
/// is Pingora's to keep: it frames the answer. Trailers are discarded on the way, so none is announced.
static HOP_BY_HOP: [HeaderName; 6] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What we know of the client's side.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    /// The connection's other end, as text.
    pub peer_text: &'a str,
    /// Whether it is a trusted proxy.
    pub peer_is_trusted: bool,
    /// Who the request is from.
    pub client: IpAddr,
    /// Our side's scheme.
    pub scheme: &'static str,
    /// As the client sent it.
    pub host: &'a str,
    /// The request's id.
    pub request_id: &'a str,
}

/// Completes the request for a member: forwarded fields, `Via`, id, Host. `member` is the member's configured name.
///
/// # Errors
/// A value that cannot be sent.
pub fn upward<M: AsRef<str>>(
    up: &mut RequestHeader,
    client: &RequestHeader,
    hop: Hop<'_>,
    host: &UpstreamHost,
    member: impl FnOnce() -> M,
) -> pingora::Result<()> {
    let met = Met::among(&up.headers);
    forwarded(up, client, hop, met)?;
    up.insert_header("Via", via(up, client.version, met))?;
    up.insert_header("X-Request-Id", hop.request_id)?;
    upgrade::upward(up, client)?;
    max_forwards::upward(up)?;
    // Trailers are asked for only by who can use them; Pingora strips the field for every kind of upstream.
    if names(&client.headers, &header::TE, "trailers") && is_grpc(&client.headers) {
        up.insert_header("TE", "trailers")?;
    }
    if let Some(WholeUri { authority, rest }) = admit::whole_uri(client) {
        // Members are origins: the target's authority goes into Host, its path alone is asked for (RFC 9112 section 3.2.1).
        let path = if rest.starts_with(b"/") { rest.to_vec() } else { [b"/", rest].concat() };
        up.set_raw_path(&path)?;
        up.insert_header(header::HOST, authority)?;
    }
    // No field of this name is a request's own, and CGI makes an environment variable of it that clients obey.
    if met.proxy {
        up.remove_header("proxy");
    }
    match host {
        // An HTTP/1.0 client need not name a host; we, in HTTP/1.1, must.
        UpstreamHost::PassThrough if hop.host.is_empty() => up.insert_header(header::HOST, member().as_ref()),
        UpstreamHost::PassThrough => Ok(()),
        UpstreamHost::Member => up.insert_header(header::HOST, member().as_ref()),
        UpstreamHost::Fixed(fixed) => up.insert_header(header::HOST, fixed.as_str()),
    }
}

/// The length of a request's body, where it is known beforehand (RFC 9112 section 6.3).
pub fn body_length(request: &RequestHeader) -> Option<u64> {
    if request.headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    request.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Whether a client wants its connection closed after this request. `close` counts in whatever line it stands, and beside whatever
/// else (RFC 9110 section 7.6.1, RFC 9112 section 9.6); Pingora looks at the first line alone.
pub fn asks_to_close(request: &RequestHeader) -> bool {
    tokens(&request.headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("close"))
}

/// Takes out of an answer what belongs to the hop between us and the member.
///
/// # Errors
/// A value that cannot be sent; an answer that does not say clearly where it ends.
pub fn downward(answer: &mut ResponseHeader) -> pingora::Result<()> {
    // The version is this hop's, whatever the member speaks (RFC 9110 section 6.2).
    answer.set_version(http::Version::HTTP_11);
    let switch = upgrade::switch(answer);
    if answer.headers.contains_key(header::CONNECTION) {
        // Most name the one that goes anyway, and nothing else.
        let nominated: Vec<HeaderName> = tokens(&answer.headers, &header::CONNECTION)
            .filter(|token| !token.eq_ignore_ascii_case("keep-alive"))
            .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
            .filter(may_be_nominated)
            .collect();
        nominated.iter().for_each(|name| drop(answer.remove_header(name)));
    }
    // One look over the names that are there costs less than to ask for each.
    if answer.headers.keys().any(is_hop_by_hop) {
        HOP_BY_HOP.iter().for_each(|name| drop(answer.remove_header(name)));
    }
    if answer.status.is_informational() {
        // Of a final answer Pingora replaces it by our own.
        answer.remove_header(&header::CONNECTION);
    }
    if answer.status.is_informational() || answer.status == StatusCode::NO_CONTENT {
        // Neither has a body nor stands for one, so neither may speak of its length (RFC 9110 section 8.6).
        answer.remove_header(&header::CONTENT_LENGTH);
    }
    if answer.status.is_informational() || matches!(answer.status.as_u16(), 204 | 304) {
        // Nor of its coding (RFC 9112 section 6.1).
        answer.remove_header(&header::TRANSFER_ENCODING);
    }
    framing::settle(answer)?;
    switch.map_or(Ok(()), |protocol| upgrade::downward(answer, protocol))
}

/// Whether the answer to this method has a body, be it an empty one (RFC 9112 section 6.3).
pub fn has_body(answer: &ResponseHeader, method: &Method) -> bool {
    *method != Method::HEAD
        && !answer.status.is_informational()
        && !matches!(answer.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Whether an answer that has no body speaks of one (RFC 9110 section 15.3.5). One may follow, later than anybody looks, and
/// would be read as the next answer.
pub fn promises_what_cannot_be(answer: &ResponseHeader) -> bool {
    let length = answer.headers.get(header::CONTENT_LENGTH);
    answer.status == StatusCode::NO_CONTENT
        && (answer.headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|length| length != "0"))
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// A field that frames the message or routes it is not for a peer to remove by naming it.
fn may_be_nominated(name: &HeaderName) -> bool {
    ![header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::DATE].contains(name)
}

/// Which fields a request has that we have a say in, seen in one look over their names: most requests have none, and to
/// ask for each by its name costs more.
#[derive(Debug, Clone, Copy, Default)]
struct Met {
    via: bool,
    proxy: bool,
    real_ip: bool,
    /// Some that may be claims under other names.
    suspects: bool,
}

impl Met {
    fn among(headers: &HeaderMap) -> Met {
        let mut met = Met::default();
        for name in headers.keys() {
            match name.as_str().as_bytes() {
                b"via" => met.via = true,
                b"proxy" => met.proxy = true,
                b"x-real-ip" => (met.real_ip, met.suspects) = (true, true),
                [b'x' | b'f', rest @ ..] if rest.len() >= 6 => met.suspects = true,
                _ => {}
            }
        }
        met
    }
}

/// What strangers say of the connection under other names: further fields of the family, and spellings that CGI and its
/// heirs cannot tell from ours, since they fold `-` and `_` together.
fn forget_claims(up: &mut RequestHeader) {
    const OURS: [&str; 4] = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip"];
    let claims = |name: &&HeaderName| {
        let plain = name.as_str().replace('_', "-");
        let family = plain.starts_with("x-forwarded-") || matches!(plain.as_str(), "x-real-ip" | "forwarded");
        family && (plain != name.as_str() || plain.starts_with("x-forwarded-") && !OURS.contains(&plain.as_str()))
    };
    let suspect = |name: &HeaderName| name.as_str().starts_with(['x', 'f']) && name.as_str().len() > 6;
    let claimed: Vec<HeaderName> = up.headers.keys().filter(|name| suspect(name)).filter(claims).cloned().collect();
    claimed.iter().for_each(|name| drop(up.remove_header(name)));
}

/// Everyone the request came through, and us (RFC 9110 section 7.6.3).
fn via(up: &RequestHeader, version: http::Version, met: Met) -> HeaderValue {
    let (own, alone) = match version {
        http::Version::HTTP_10 => ("1.0 pulsegate", HeaderValue::from_static("1.0 pulsegate")),
        _ => ("1.1 pulsegate", HeaderValue::from_static("1.1 pulsegate")),
    };
    if !met.via {
        return alone;
    }
    // Values that came, blanks and commas make a value.
    HeaderValue::from_maybe_shared(Bytes::from(joined(&up.headers, &header::VIA, own))).unwrap_or(alone)
}

fn forwarded(up: &mut RequestHeader, client: &RequestHeader, hop: Hop<'_>, met: Met) -> pingora::Result<()> {
    let peer = hop.peer_text;
    let element = element(hop);
    if hop.peer_is_trusted {
        let chain = joined(&up.headers, &X_FORWARDED_FOR, peer);
        up.insert_header("X-Forwarded-For", chain)?;
        keep_or_set(up, "X-Forwarded-Proto", hop.scheme)?;
        keep_or_set(up, "X-Forwarded-Host", hop.host)?;
        let told = up.headers.contains_key(header::FORWARDED);
        let chain =
            if told { joined(&up.headers, &header::FORWARDED, &element) } else { translated(&up.headers, &element) };
        return up.insert_header("Forwarded", chain);
    }
    if met.suspects {
        forget_claims(up);
    }
    up.insert_header("X-Forwarded-For", peer)?;
    up.insert_header("X-Forwarded-Proto", HeaderValue::from_static(hop.scheme))?;
    up.insert_header("Forwarded", element)?;
    match hop.host {
        "" => drop(up.remove_header("x-forwarded-host")),
        host => up.insert_header("X-Forwarded-Host", host_value(client, host)?)?,
    }
    if met.real_ip {
        // Not a field of ours, but a widely believed one: never a stranger's word.
        up.insert_header("X-Real-IP", hop.client.to_string())?;
    }
    Ok(())
}

/// The host as a value; where it came as one, that one.
fn host_value(client: &RequestHeader, host: &str) -> pingora::Result<HeaderValue> {
    let came = client.headers.get(header::HOST).filter(|came| came.as_bytes() == host.as_bytes());
    came.cloned().map_or_else(|| HeaderValue::from_str(host).or_err(ErrorType::InvalidHTTPHeader, "a host"), Ok)
}

/// What a trusted proxy says in `X-Forwarded-*` alone, as `Forwarded`, and our own element: the two must not contradict
/// each other. `X-Forwarded-For` ends with our peer, whom our own element names.
fn translated(headers: &HeaderMap, own: &str) -> Vec<u8> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let hops: Vec<&str> = text("x-forwarded-for").split(',').map(str::trim).filter(|hop| !hop.is_empty()).collect();
    let mut line = String::new();
    for (nth, hop) in hops.iter().take(hops.len().saturating_sub(1)).enumerate() {
        let bare = hop.parse::<std::net::Ipv4Addr>().is_ok();
        let v6 = hop.parse::<std::net::Ipv6Addr>().is_ok();
        let _ = match hop {
            _ if bare => write!(line, "for={hop}"),
            _ if v6 => write!(line, "for=\"[{hop}]\""),
            _ if hop.contains(['"', '\\']) => write!(line, "for=unknown"),
            _ => write!(line, "for=\"{hop}\""),
        };
        if nth == 0 && matches!(text("x-forwarded-proto"), "http" | "https") {
            let _ = write!(line, ";proto={}", text("x-forwarded-proto"));
        }
        line.push_str(", ");
    }
    line.push_str(own);
    line.into_bytes()
}

/// Our element of `Forwarded` (RFC 7239 section 4): an IPv6 address in brackets and quotes, a host with a port in quotes.
fn element(hop: Hop<'_>) -> String {
    let mut element = String::with_capacity(hop.peer_text.len() + hop.host.len() + 32);
    let is_v6 = hop.peer_text.contains(':');
    push(&mut element, if is_v6 { ["for=\"[", hop.peer_text, "]\""] } else { ["for=", hop.peer_text, ""] });
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !hop.host.is_empty() && hop.host.bytes().all(is_token) {
        push(&mut element, [";host=", hop.host, ""]);
    } else if !hop.host.is_empty() && !hop.host.contains(['"', '\\']) {
        push(&mut element, [";host=\"", hop.host, "\""]);
    }
    push(&mut element, [";proto=", hop.scheme, ""]);
    element
}

fn push(text: &mut String, parts: [&str; 3]) {
    parts.iter().for_each(|part| text.push_str(part));
}

fn keep_or_set(up: &mut RequestHeader, name: &'static str, value: &str) -> pingora::Result<()> {
    if up.headers.contains_key(name) { Ok(()) } else { up.insert_header(name, value) }
}

/// All values of `name` and `last`, as one line.
fn joined(headers: &HeaderMap, name: &HeaderName, last: &str) -> Vec<u8> {
    let mut line = Vec::new();
    for value in headers.get_all(name) {
        line.extend_from_slice(value.as_bytes());
        line.extend_from_slice(b", ");
    }
    line.extend_from_slice(last.as_bytes());
    line
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/grpc"))
}

pub(super) fn names(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|t| t.eq_ignore_ascii_case(token))
}

pub(super) fn tokens<'a>(headers: &'a HeaderMap<HeaderValue>, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_counts_in_every_line() {
        let rows: [(&[&str], bool); 8] = [
            (&[], false),
            (&["keep-alive"], false),
            (&["x-close"], false),
            (&["close"], true),
            (&["x-foo, Close"], true),
            (&["x-foo", "close"], true),
            (&["keep-alive", "x-foo , close"], true),
            (&["close, keep-alive"], true),
        ];
        for (lines, expected) in rows {
            let fields: Vec<_> = lines.iter().map(|line| ("connection", *line)).collect();
            assert_eq!(asks_to_close(&request(&fields)), expected, "{lines:?}");
        }
    }

    fn request(fields: &[(&'static str, &str)]) -> RequestHeader {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        for (name, value) in fields {
            request.append_header(*name, *value).expect("a field");
        }
        request
    }

    fn hop(peer: &'static str, trusted: bool, host: &'static str) -> Hop<'static> {
        let client = peer.parse().expect("an address");
        Hop { peer_text: peer, peer_is_trusted: trusted, client, scheme: "http", host, request_id: "id" }
    }

    fn sent(hop: Hop<'_>, fields: &[(&'static str, &str)], host: &UpstreamHost) -> Vec<(String, String)> {
        let client = request(fields);
        let mut up = client.clone();
        upward(&mut up, &client, hop, host, || "app:9000").expect("it can be sent");
        let text = |v: &HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned();
        let mut fields: Vec<_> = up.headers.iter().map(|(n, v)| (n.to_string(), text(v))).collect();
        fields.sort();
        fields
    }

    fn value<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
        fields.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect()
    }

    const FORGED: &[(&str, &str)] = &[
        ("host", "shop.example.com"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-for", "7.7.7.7"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil"),
        ("forwarded", "for=6.6.6.6"),
        ("x-real-ip", "6.6.6.6"),
        ("via", "1.1 far"),
    ];

    #[test]
    fn a_strangers_word_is_replaced_and_a_trusted_proxys_kept() {
        let stranger = sent(hop("192.0.2.1", false, "shop.example.com"), FORGED, &UpstreamHost::PassThrough);
        assert_eq!(value(&stranger, "x-forwarded-for"), ["192.0.2.1"]);
        assert_eq!(value(&stranger, "x-forwarded-proto"), ["http"]);
        assert_eq!(value(&stranger, "x-forwarded-host"), ["shop.example.com"]);
        assert_eq!(value(&stranger, "forwarded"), ["for=192.0.2.1;host=shop.example.com;proto=http"]);
        assert_eq!(value(&stranger, "x-real-ip"), ["192.0.2.1"]);
        let trusted = sent(hop("10.0.0.1", true, "shop.example.com"), FORGED, &UpstreamHost::PassThrough);
        assert_eq!(value(&trusted, "x-forwarded-for"), ["6.6.6.6, 7.7.7.7, 10.0.0.1"]);
        assert_eq!(value(&trusted, "x-forwarded-proto"), ["https"]);
        assert_eq!(value(&trusted, "x-forwarded-host"), ["evil"]);
        assert_eq!(value(&trusted, "forwarded"), ["for=6.6.6.6, for=10.0.0.1;host=shop.example.com;proto=http"]);
        assert_eq!(value(&trusted, "via"), ["1.1 far, 1.1 pulsegate"]);
    }

    #[test]
    fn what_a_trusted_proxy_says_in_one_way_is_said_in_the_other() {
        let told = &[("x-forwarded-for", "203.0.113.9, 2001:db8::7"), ("x-forwarded-proto", "https")];
        let fields = sent(hop("10.0.0.1", true, "shop.test"), told, &UpstreamHost::PassThrough);
        assert_eq!(
            value(&fields, "forwarded"),
            ["for=203.0.113.9;proto=https, for=\"[2001:db8::7]\", for=10.0.0.1;host=shop.test;proto=http"]
        );
    }

    #[test]
    fn claims_under_other_names_are_forgotten() {
        let claims = &[
            ("x_forwarded_for", "6.6.6.6"),
            ("x-forwarded_proto", "https"),
            ("x-forwarded-port", "443"),
            ("proxy", "http://evil"),
            ("x-forward", "kept"),
        ];
        let fields = sent(hop("192.0.2.1", false, "a"), claims, &UpstreamHost::PassThrough);
        let names: Vec<_> =
            fields.iter().map(|(name, _)| name.as_str()).filter(|n| !n.starts_with("x-request")).collect();
        let own = ["forwarded", "host", "via", "x-forward", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
        assert_eq!(names.iter().filter(|n| own.contains(n)).count(), names.len(), "{names:?}");
    }

    #[test]
    fn a_whole_uri_becomes_a_path_for_a_member() {
        let mut client = request(&[("host", "shop.test")]);
        client.set_raw_path(b"http://shop.test/a?b=1").expect("a target");
        client.set_uri("http://shop.test/a?b=1".parse().expect("a uri"));
        let mut up = client.clone();
        upward(&mut up, &client, hop("192.0.2.1", false, "shop.test"), &UpstreamHost::PassThrough, || "m:1")
            .expect("sent");
        assert_eq!(up.raw_path(), b"/a?b=1");
    }

    #[test]
    fn an_ipv6_client_and_a_host_with_a_port_are_quoted() {
        let fields = sent(hop("2001:db8::1", false, "shop.test:8080"), &[], &UpstreamHost::PassThrough);
        assert_eq!(value(&fields, "forwarded"), ["for=\"[2001:db8::1]\";host=\"shop.test:8080\";proto=http"]);
        assert_eq!(value(&fields, "x-forwarded-for"), ["2001:db8::1"]);
    }

    #[test]
    fn the_host_is_passed_through_or_overridden() {
        let fields = &[("host", "shop.test")];
        for (rule, expected) in [
            (UpstreamHost::PassThrough, "shop.test"),
            (UpstreamHost::Member, "app:9000"),
            (UpstreamHost::Fixed("api.internal".into()), "api.internal"),
        ] {
            assert_eq!(value(&sent(hop("192.0.2.1", false, "shop.test"), fields, &rule), "host"), [expected]);
        }
    }

    #[test]
    fn an_answers_hop_by_hop_fields_stay_here() {
        let mut answer = ResponseHeader::build(200, None).expect("an answer");
        for (name, value) in [
            ("connection", "close, X-Secret, Content-Length"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("content-length", "3"),
            ("x-kept", "1"),
        ] {
            answer.append_header(name, value).expect("a field");
        }
        downward(&mut answer).expect("it can be sent");
        let mut names: Vec<_> = answer.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["connection", "content-length", "x-kept"]);
    }
}
