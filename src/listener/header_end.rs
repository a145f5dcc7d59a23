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
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.begun && !self.in_line => {
                    *self = HeaderEnd::default();
                    return Some(at + 1);
                }
                b'\n' => self.in_line = false,
                b'\r' => {}
                _ => (self.begun, self.in_line) = (true, true),
            }
        }
        None
    }
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
