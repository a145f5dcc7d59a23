//! Where a request's header ends, found as its bytes come. Pure.

/// What was seen of a header so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderEnd {
    /// More than empty lines, which may come before a request and are none of it (RFC 9112 section 2.2).
    begun: bool,
    /// More than an empty line since the last line ended.
    in_line: bool,
}

impl HeaderEnd {
    /// Looks at the next bytes; how many of them belong to the header, if it ends among them. Lines may end in a bare LF,
    /// as the parser has it.
    pub fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let feed = line_feed(rest);
            // Of a line that says anything nearly always the first byte tells.
            if rest[..feed.unwrap_or(rest.len())].iter().any(|byte| *byte != b'\r') {
                (self.begun, self.in_line) = (true, true);
            }
            at += feed? + 1;
            if self.begun && !self.in_line {
                *self = HeaderEnd::default();
                return Some(at);
            }
            self.in_line = false;
        }
    }
}

/// Where the first line feed is. A cookie may have thousands of bytes: whole blocks are passed over at once, since a
/// processor compares all bytes of one in a step or two where nothing leaves off among them.
fn line_feed(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 32;
    let has_feed = |block: &[u8; BLOCK]| block.iter().fold(false, |seen, byte| seen | (*byte == b'\n'));
    let passed = bytes.as_chunks().0.iter().take_while(|block| !has_feed(block)).count() * BLOCK;
    Some(passed + bytes[passed..].iter().position(|byte| *byte == b'\n')?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_ends_at_its_empty_line_however_it_comes() {
        let rows: &[(&str, Option<usize>)] = &[
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Some(27)),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /next", Some(27)),
            ("\r\n\r\nGET / HTTP/1.1\r\n\r\nrest", Some(22)),
            ("GET / HTTP/1.1\nHost: a\n\nrest", Some(24)),
            ("GET / HTTP/1.1\r\nHost: a\r\n", None),
            ("GET / HTTP/1.1\r\nA: a line that is longer than a block of bytes\r\nB: b\r\n\r\nrest", Some(72)),
            ("GET / HTTP/1.1\r\nA: its end is at a block's edg\r\n\r\nrest", Some(50)),
            ("GET / HTTP/1.1\r\nA: its end is at a block's edge\r\n\r\nrest", Some(51)),
            ("\r\n\r\n\r\n", None),
            ("", None),
        ];
        for (bytes, end) in rows {
            assert_eq!(HeaderEnd::default().find(bytes.as_bytes()), *end, "{bytes:?}");
            for cut in 0..bytes.len() {
                let mut seen = HeaderEnd::default();
                let (first, second) = bytes.as_bytes().split_at(cut);
                let found = seen.find(first).or_else(|| seen.find(second).map(|at| at + cut));
                assert_eq!(found, *end, "{bytes:?} cut at {cut}");
            }
        }
    }
}
