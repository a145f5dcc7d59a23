//! Why a request would go where it would: asked of the running proxy, answered by the functions that requests run, with no
//! request made (interfaces.md, explain).
//!
//! Nothing is moved by the question: no turn is taken, no seat, no use is marked, nothing is counted.
//! Not here: what would become of the request (`proxy`).

mod facts;
mod views;
mod why;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::problem::Problem;
use super::query::{Query, bad};
use crate::config::{Config, Listener};
use crate::control::{Control, Few};
use crate::proxy::{self, Described};
use views::Explanation;

/// What would become of a request, and why.
///
/// It is not sent, and asking changes nothing.
#[utoipa::path(
    get, path = "/api/v1/explain", tag = "explain",
    params(
        ("url" = String, Query, description = "What a client would ask for; without a scheme it begins with the host, or with \
            `/` where `header` has the host", example = "http://shop.example.com/api/x?user=7"),
        ("header" = Option<Vec<String>>, Query, description = "A field, as `Name: value`; may be there many times, and `Host` \
            comes before that of the URL"),
        ("method" = Option<String>, Query, description = "GET where it is not given"),
        ("client" = Option<String>, Query, description = "The address the connection comes from; 127.0.0.1 where it is not \
            given. Behind trusted proxies `X-Forwarded-For` counts, as ever"),
        ("listener" = Option<String>, Query, description = "The name of the listener; where it is not given the one of the \
            URL's port, or else the first. Limits and published composites go by it, routes do not"),
    ),
    responses(
        (status = 200, description = "What the next such request would get", body = Explanation),
        (status = 404, description = "There is no listener of that name", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub async fn explain(State(control): State<Arc<Control>>, uri: Uri) -> Result<Json<Explanation>, Problem> {
    let query = Query::with_many(&uri, &["url", "header", "method", "client", "listener"], "header")?;
    let url = query.text("url").filter(|url| !url.is_empty());
    let url = url.ok_or_else(|| bad("url is missing; write what a client would ask for".to_owned()))?;
    if let Some(scheme) = foreign_scheme(url) {
        return Err(bad(format!("url is of scheme {scheme:?}; write http://, https://, or none")));
    }
    let url = Url::read(url);
    let described = described(&query, &url)?;
    // What is seen is never older than this.
    let event = control.events().last_id();
    let snapshot = control.snapshot();
    let listener = listener(&snapshot.config, query.text("listener"), url.port)?;
    let fate = proxy::foresee(&snapshot, listener, &described);
    Ok(Json(Explanation::new(&control, &snapshot, listener, &described, &fate, event)))
}

fn described(query: &Query, url: &Url) -> Result<Described, Problem> {
    let mut fields = Vec::new();
    for header in query.all("header") {
        let Some((name, value)) = header.split_once(':') else {
            return Err(bad(format!("header is {header:?}; write `Name: value`")));
        };
        fields.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    if let Some(host) = url.host
        && !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        fields.insert(0, ("Host".to_owned(), host.to_owned()));
    }
    let peer = match query.text("client") {
        Some(client) => {
            let address = client.parse::<IpAddr>();
            address.map_err(|_| bad(format!("client is {client:?}; write an IP address")))?
        }
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let method = query.text("method").unwrap_or("GET").to_owned();
    Ok(Described { method, target: url.target.clone(), fields, peer })
}

/// The listener that is meant.
fn listener<'a>(config: &'a Config, name: Option<&str>, port: Option<u16>) -> Result<&'a Listener, Problem> {
    let all = &config.listeners;
    let Some(name) = name else {
        let of_port = all.iter().find(|listener| port == Some(listener.address.port()));
        let none = || Problem::new(StatusCode::CONFLICT, "there is no listener");
        return of_port.or_else(|| all.first()).ok_or_else(none);
    };
    all.iter().find(|listener| listener.name == name).ok_or_else(|| {
        let known: Vec<String> = all.iter().map(|listener| listener.name.clone()).collect();
        Problem::new(StatusCode::NOT_FOUND, format!("no listener {name:?}; {}", Few::of(known.iter()).there_are()))
    })
}

/// The scheme of a URL that nobody would send here; a host with its port is none.
fn foreign_scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let is_ours = ["http", "https"].iter().any(|ours| scheme.eq_ignore_ascii_case(ours));
    (is_scheme && !is_ours).then_some(scheme)
}

/// A URL, taken apart as a client does it.
#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    /// What `Host` would say; `None` where there is none.
    host: Option<&'a str>,
    port: Option<u16>,
    /// Path and query, without the fragment, which is nobody's but the client's.
    target: String,
}

impl<'a> Url<'a> {
    fn read(text: &'a str) -> Url<'a> {
        let text = text.split('#').next().unwrap_or_default();
        if text.starts_with('/') || text == "*" {
            return Url { host: None, port: None, target: text.to_owned() };
        }
        let rest = ["http://", "https://"].iter().find_map(|scheme| {
            let (head, rest) = text.split_at_checked(scheme.len())?;
            head.eq_ignore_ascii_case(scheme).then_some(rest)
        });
        let default = if text.get(..6).is_some_and(|head| head.eq_ignore_ascii_case("https:")) { 443 } else { 80 };
        let rest = rest.unwrap_or(text);
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let digits = host.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        let port = digits.map_or(Some(default), |(_, port)| port.parse().ok());
        let slash = if target.starts_with('/') { "" } else { "/" };
        Url { host: Some(host), port, target: format!("{slash}{target}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_that_no_listener_speaks_is_told_from_a_host() {
        let foreign = ["ftp://a/", "WS://a", "svn+ssh://a", "file:///etc"];
        assert_eq!(foreign.map(foreign_scheme), [Some("ftp"), Some("WS"), Some("svn+ssh"), Some("file")]);
        for text in ["http://a/", "HTTPS://a", "a:80/", "a/x?to=ftp://b", "/x?to=ftp://b", "?to=ftp://b", "*", "a"] {
            assert_eq!(foreign_scheme(text), None, "{text}");
        }
    }

    #[test]
    fn a_url_is_what_a_client_would_make_of_it() {
        let rows = [
            ("http://shop.test/api?x=/1#top", Some("shop.test"), Some(80), "/api?x=/1"),
            ("HTTPS://Shop.test", Some("Shop.test"), Some(443), "/"),
            ("shop.test:8080?q", Some("shop.test:8080"), Some(8080), "/?q"),
            ("http://user:secret@[::1]:81/a@b", Some("[::1]:81"), Some(81), "/a@b"),
            ("[::1]/", Some("[::1]"), Some(80), "/"),
            ("http://a:b:1/", Some("a:b:1"), Some(80), "/"),
            ("/api/x", None, None, "/api/x"),
            ("*", None, None, "*"),
        ];
        for (text, host, port, target) in rows {
            assert_eq!(Url::read(text), Url { host, port, target: target.to_owned() }, "{text}");
        }
    }
}
