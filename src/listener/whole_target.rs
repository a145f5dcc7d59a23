//! Requests for a whole URI: their `Host` gives way to the target's authority. Pure.
//!
//! So a server must have it (RFC 9112 section 3.2.2), and some clients do leave out of one what they say in the other: a port,
//! a letter's case. Pingora refuses the request over any difference, before a hook of ours sees it; so the header of such
//! a request, and of no other, is held back here until it is complete, and what is said in `Host` is made the same.

/// The header of such a request, from its target on, as far as it has come.
#[derive(Debug, Default)]
pub struct WholeTarget {
    held: Vec<u8>,
}

impl WholeTarget {
    /// Whether a header is held back.
    pub fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Holds back what comes next of a header.
    pub fn hold(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The header is complete: what it is to be read as, from its target on.
    pub fn take(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        rewritten(&held).unwrap_or(held)
    }
}

/// With the target's authority for its one `Host`; `None`: it stays as it is, for others to refuse.
fn rewritten(header: &[u8]) -> Option<Vec<u8>> {
    let target = header.split(|b| *b == b' ').next()?;
    let begins = target.windows(3).position(|three| three == b"://")? + 3;
    let authority = target[begins..].split(|b| matches!(b, b'/' | b'?' | b'\\')).next()?;
    let lines = || header.split_inclusive(|b| *b == b'\n').enumerate();
    let mut hosts = lines().skip(1).filter(|(_, line)| is_host(line));
    let (Some((host, _)), None) = (hosts.next(), hosts.next()) else { return None };
    let mut rewritten = Vec::with_capacity(header.len() + authority.len());
    for (nth, line) in lines() {
        if nth != host {
            rewritten.extend_from_slice(line);
            continue;
        }
        rewritten.extend_from_slice(b"Host: ");
        rewritten.extend_from_slice(authority);
        rewritten.extend_from_slice(if line.ends_with(b"\r\n") { b"\r\n" } else { b"\n" });
    }
    Some(rewritten)
}

fn is_host(line: &[u8]) -> bool {
    line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"host:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_gives_way_to_the_targets_authority() {
        let rows = [
            ("http://y/a HTTP/1.1\r\nHost: x\r\n\r\n", "http://y/a HTTP/1.1\r\nHost: y\r\n\r\n"),
            (
                "http://y/a HTTP/1.1\r\nA: b\r\nhOST:x\r\nB: c\r\n\r\n",
                "http://y/a HTTP/1.1\r\nA: b\r\nHost: y\r\nB: c\r\n\r\n",
            ),
            ("http://y:80?q=://z HTTP/1.1\nHost: y\n\n", "http://y:80?q=://z HTTP/1.1\nHost: y:80\n\n"),
            ("http://y HTTP/1.1\r\nHost:\r\n\r\n", "http://y HTTP/1.1\r\nHost: y\r\n\r\n"),
            // For others to judge.
            ("http://y/ HTTP/1.1\r\n\r\n", "http://y/ HTTP/1.1\r\n\r\n"),
            ("http://y/ HTTP/1.1\r\nHost: y\r\nHost: y\r\n\r\n", "http://y/ HTTP/1.1\r\nHost: y\r\nHost: y\r\n\r\n"),
            ("http://y/ HTTP/1.1\r\nHost : x\r\n\r\n", "http://y/ HTTP/1.1\r\nHost : x\r\n\r\n"),
            ("http://y/ HTTP/1.1\r\nX-Host: x\r\n\r\n", "http://y/ HTTP/1.1\r\nX-Host: x\r\n\r\n"),
            ("b:443 HTTP/1.1\r\nHost: x\r\n\r\n", "b:443 HTTP/1.1\r\nHost: x\r\n\r\n"),
        ];
        for (came, expected) in rows {
            let mut target = WholeTarget::default();
            let (first, second) = came.as_bytes().split_at(came.len() / 2);
            target.hold(first);
            target.hold(second);
            assert_eq!(String::from_utf8_lossy(&target.take()), expected, "{came:?}");
            assert!(!target.is_held());
        }
    }
}
