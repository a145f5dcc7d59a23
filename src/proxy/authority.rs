//! Whether what a request names as its host is one. Pure.
//!
//! Pingora takes any text, and members differ in what they make of one that is no host: they must not be asked to.

use std::net::Ipv6Addr;

/// The largest port.
const LAST_PORT: u32 = 65_535;

/// Whether `authority` is a host, with or without a port (RFC 3986 sections 3.2.2 and 3.2.3; RFC 9110 section 7.2 allows an
/// empty one, and section 4.2.1 none without a host).
pub fn is_valid(authority: &str) -> bool {
    if authority.is_empty() {
        return true;
    }
    let (is_host, port) = match authority.strip_prefix('[').map(|literal| literal.split_once(']')) {
        Some(Some((literal, port))) => (is_literal(literal), port),
        Some(None) => return false,
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            (is_name(host), port)
        }
    };
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// A name, or an IPv4 address, which is spelt like one: its bytes as they are, or `%` and two digits.
fn is_name(host: &str) -> bool {
    let escaped = |rest: &[u8]| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit);
    let is_fit = |(at, byte): (usize, u8)| match byte {
        b'%' => escaped(&host.as_bytes()[at + 1..]),
        _ => is_plain(byte),
    };
    !host.is_empty() && host.bytes().enumerate().all(is_fit)
}

/// What may stand in brackets: an IPv6 address, or one of a version to come.
fn is_literal(literal: &str) -> bool {
    let future = |rest: &str| {
        rest.split_once('.').is_some_and(|(version, address)| {
            let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
            hex(version) && !address.is_empty() && address.bytes().all(|b| is_plain(b) || b == b':')
        })
    };
    literal.parse::<Ipv6Addr>().is_ok() || literal.strip_prefix(['v', 'V']).is_some_and(future)
}

/// Digits, or nothing at all.
fn is_port(port: &str) -> bool {
    port.is_empty()
        || port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u32>().is_ok_and(|port| port <= LAST_PORT)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_have_a_port_and_nothing_else() {
        let good = [
            "",
            "a",
            "A.test",
            "a.test.",
            "a_b",
            "a:80",
            "a:",
            "a:00080",
            "a:65535",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:80",
            "[::1]:",
            "[::ffff:1.2.3.4]",
            "[v1.a:b]",
            "a%2fb",
            "a,b;c",
            "1.2.3.4.5",
        ];
        for host in good {
            assert!(is_valid(host), "{host}");
        }
        let bad = [
            ":",
            ":80",
            "a:1:2",
            "a:99999",
            "a:65536",
            "a:8a",
            "a:+8",
            "a:-1",
            "a: 80",
            "a b",
            "a/b",
            "a@b",
            "a?b",
            "a#b",
            "a\\b",
            "a\"b",
            "a%",
            "a%2",
            "a%2g",
            "[zz",
            "[",
            "[]",
            "[]:80",
            "[zz]",
            "[::1",
            "[::1]a",
            "[::1]80",
            "[::1]:8a",
            "[::1]:99999",
            "[1.2.3.4]",
            "[v1]",
            "[v.a]",
            "[fe80::1%25eth0]",
            "::1",
            "a]",
            "a[0]",
            "a:4294967377",
            "\u{e4}",
        ];
        for host in bad {
            assert!(!is_valid(host), "{host}");
        }
    }
}
