//! Host names as HTTP writes them.
//!
//! PURE.

use std::net::{IpAddr, Ipv6Addr};

/// Host and port for the Host field: the port is left out where it is the scheme's own (RFC 9110 section 7.2), and an IPv6
/// literal stands in brackets.
pub(super) fn authority(host: &str, port: u16, default: u16) -> String {
    let host = match host.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.to_owned(),
    };
    if port == default { host } else { format!("{host}:{port}") }
}

/// The host of `host` or `host:port`, without the brackets of an IPv6 literal.
pub(super) fn host_of(written: &str) -> &str {
    if written.parse::<Ipv6Addr>().is_ok() {
        return written;
    }
    let host = match written.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => written,
    };
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
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

    #[test]
    fn the_host_is_what_stands_before_a_port() {
        let rows = [
            ("app1.test", "app1.test"),
            ("app1.test:8443", "app1.test"),
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("app1.test:x", "app1.test:x"),
        ];
        for (written, expected) in rows {
            assert_eq!(host_of(written), expected);
        }
    }
}
