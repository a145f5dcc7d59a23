//! Names and addresses: members, hosts of routes, the Host field.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::spelling::{Spelling, bracketed, shown};
use crate::route;

/// A member's `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// An IP literal without brackets, or a name in lower case.
    pub(super) host: String,
    pub(super) port: u16,
    /// `host:port`, IPv6 in brackets.
    pub(super) name: String,
}

impl Spelling for Address {
    const EXPECTED: &'static str = "a member such as `10.0.0.1:8080`, or `{ address: \"10.0.0.1:8080\", weight: 2 }`";

    fn read(text: &str) -> Result<Address, String> {
        if let Some((scheme, rest)) = text.split_once("://") {
            let rest = rest.split('/').next().unwrap_or_default();
            return Err(format!("a member is `host:port`; write `{}` without `{}://`", shown(rest), shown(scheme)));
        }
        if text.contains('/') {
            return Err(format!("a member is `host:port` without a path; shorten `{}`", shown(text)));
        }
        let (host, port) = split(text)?;
        let port = match port.parse::<u16>() {
            Ok(0) => return Err(format!("`{}`: port 0 is nobody's; write 1 to 65535", shown(text))),
            Ok(number) if port.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => return Err(format!("`{}`: `{}` is not a port; write 1 to 65535", shown(text), shown(port))),
        };
        let host = host_name(host)?;
        let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Address { host, port, name })
    }
}

/// Where DNS is spoken, if no port is written (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;

/// A server of names: an address, maybe with a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameServer(pub(super) SocketAddr);

impl Spelling for NameServer {
    const EXPECTED: &'static str = "a server such as `10.0.0.53` or `10.0.0.53:5353`";

    fn read(text: &str) -> Result<NameServer, String> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let address = match (bare.parse::<IpAddr>(), text.parse::<SocketAddr>()) {
            (Ok(ip), _) => SocketAddr::new(ip, DNS_PORT),
            (_, Ok(address)) => address,
            _ => {
                let shown = shown(text);
                return Err(format!(
                    "`{shown}` is no address; a server of names is written `10.0.0.53` or `10.0.0.53:5353`"
                ));
            }
        };
        if address.ip().is_unspecified() || address.ip().is_multicast() || address.port() == 0 {
            return Err(format!("`{}` is nobody who answers; write a server's own address", shown(text)));
        }
        Ok(NameServer(address))
    }
}

/// The name of a service, `_service._protocol.name` (RFC 2782).
pub(super) fn service_name(text: &str) -> Result<String, String> {
    if text.contains(':') || text.contains('/') {
        return Err(format!(
            "`{}`: the name of a service has no port and no scheme; its answer has the ports",
            shown(text)
        ));
    }
    let name = host_name(text)?;
    let labels: Vec<&str> = name.trim_end_matches('.').split('.').collect();
    let is_marked = |label: &&&str| label.len() > 1 && label.starts_with('_');
    match labels.iter().take(2).filter(is_marked).count() {
        2 if labels.len() > 2 => Ok(name),
        0 => Err(format!("`{0}` is not the name of a service; write one such as `_http._tcp.{0}`", shown(&name))),
        _ => Err(format!("`{}` is not the whole name of a service, as `_http._tcp.app.internal` is", shown(&name))),
    }
}

fn split(text: &str) -> Result<(&str, &str), String> {
    let no_port = || format!("`{0}` has no port; write `{0}:80`", shown(text));
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| format!("`{}` has no closing `]`", shown(text)))?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err(format!("`{}` is not an IPv6 address", shown(host)));
        }
        return Ok((host, rest.strip_prefix(':').ok_or_else(no_port)?));
    }
    match text.matches(':').count() {
        0 if text.parse::<u16>().is_ok() => {
            Err(format!("`{0}` is only a port; write a host too: `127.0.0.1:{0}`", text))
        }
        0 => Err(no_port()),
        1 => Ok(text.split_once(':').unwrap_or((text, ""))),
        _ if let Some(meant) = bracketed(text) => {
            Err(format!("`{}`: an IPv6 address stands in brackets; write `{meant}`", shown(text)))
        }
        _ if text.parse::<Ipv6Addr>().is_ok() => Err(format!("`{0}` has no port; write `[{0}]:80`", shown(text))),
        _ => Err(format!("`{}` has too many `:`; an IPv6 address stands in brackets: `[::1]:8080`", shown(text))),
    }
}

/// Host and port for the Host field: the port is left out where it is the scheme's own (RFC 9110 section 7.2), and an IPv6
/// literal stands in brackets.
pub fn authority(host: &str, port: u16, default: u16) -> String {
    let host = match host.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.to_owned(),
    };
    if port == default { host } else { format!("{host}:{port}") }
}

/// A name or an IP literal without brackets, in lower case.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(address.to_string());
    }
    let bad = |why: &str| Err(format!("`{}` is not a host: {why}", shown(text)));
    if text.is_empty() {
        return Err("the host is empty; write a name or an address".to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => bad("it looks like an IPv4 address and is none"),
        };
    }
    if !text.is_ascii() {
        return bad("write its ASCII form (`xn--…`)");
    }
    if let Some(c) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))) {
        return bad(&format!("`{}` cannot be in it", shown(&c.to_string())));
    }
    let labels = text.strip_suffix('.').unwrap_or(text);
    if text.len() > 253
        || labels.split('.').any(|l| l.is_empty() || l.len() > 63 || l.starts_with('-') || l.ends_with('-'))
    {
        return bad("each part between dots has 1 to 63 characters and no `-` at its ends");
    }
    Ok(text.to_ascii_lowercase())
}

/// The value of a Host field: a host, maybe with a port (RFC 9110 section 7.2).
pub(super) fn host_field(text: &str) -> Result<String, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("no port"))),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let host = host_name(host)?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    match port {
        None => Ok(host),
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0) => {
            Ok(format!("{host}:{port}"))
        }
        Some(_) => Err(format!("`{}` is not a host with a port; write one such as `api.internal:8080`", shown(text))),
    }
}

/// The hosts of a route, or of a place where a composite is published.
impl Spelling for route::Host {
    const EXPECTED: &'static str = "a host such as `shop.example.com` or `*.example.com`";

    fn read(text: &str) -> Result<route::Host, String> {
        if text == "*" {
            return Err("`*` is not needed; without `host` every host is meant".to_owned());
        }
        if text.contains("://") || text.contains('/') {
            return Err(format!("`{}` is not a host; write the name alone, and `path` for a path", shown(text)));
        }
        let bare = |name: &str| host_name(name).map(|n| n.strip_suffix('.').unwrap_or(&n).to_owned());
        if let Some(suffix) = text.strip_prefix("*.") {
            if suffix.contains('*') {
                return Err(format!("`{}`: `*` stands for the first part of a name only", shown(text)));
            }
            return bare(suffix).map(route::Host::Wildcard);
        }
        if text.contains('*') {
            return Err(format!(
                "`{}`: `*` stands for the first part of a name only, as in `*.example.com`",
                shown(text)
            ));
        }
        if let Some((name, port)) = text.rsplit_once(':')
            && !name.contains(':')
            && port.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(format!("a host has no port here; write `{}`", shown(name)));
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            return host_name(inner).map(|name| route::Host::Exact(format!("[{name}]")));
        }
        bare(text).map(route::Host::Exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemes_own_port_is_left_out() {
        let rows = [
            ("app1.test", 80, 80, "app1.test"),
            ("app1.test", 443, 80, "app1.test:443"),
            ("app1.test", 443, 443, "app1.test"),
            ("app1.test", 80, 443, "app1.test:80"),
            ("10.0.0.1", 8080, 80, "10.0.0.1:8080"),
            ("2001:db8::1", 80, 80, "[2001:db8::1]"),
            ("2001:db8::1", 8080, 80, "[2001:db8::1]:8080"),
        ];
        for (host, port, default, expected) in rows {
            assert_eq!(authority(host, port, default), expected);
        }
    }
}
