//! Whether a request's first line is one, seen as its bytes come. Pure.
//!
//! Pingora repairs a target that holds a blank or a control character, by percent-encoding it, and drops a fragment.
//! Then what is routed and logged is not what was sent, and another proxy on the way may have understood it otherwise; so
//! such a line is refused here (RFC 9112 section 3: no repair), before Pingora has it. What the words of the line mean is
//! Pingora's to judge.

/// How far the line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestLine {
    /// Empty lines may come before it (RFC 9112 section 2.2).
    #[default]
    Before,
    /// In the method.
    Method,
    /// Behind the blank that ends the method.
    TargetBegins,
    /// In the target.
    Target,
    /// In the version.
    Version,
    /// Behind a carriage return, which only the end of the line may follow.
    Return,
    /// Over, and well formed.
    Over,
    /// It cannot be a request's.
    Malformed,
}

impl RequestLine {
    /// Looks at the next bytes; false once the line cannot be a request's.
    pub fn may_be(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let [byte, behind @ ..] = rest
            && !matches!(self, RequestLine::Over | RequestLine::Malformed)
        {
            *self = self.after(*byte);
            // A target may be long: what only continues it is passed over.
            let goes_on = if *self == RequestLine::Target { continued(behind) } else { 0 };
            rest = &behind[goes_on..];
        }
        *self != RequestLine::Malformed
    }

    /// Where in the next bytes a target begins that is neither a path nor the asterisk.
    pub fn whole_target_in(self, bytes: &[u8]) -> Option<usize> {
        let mut line = self;
        for (at, byte) in bytes.iter().enumerate() {
            line = match (line, line.after(*byte)) {
                (RequestLine::TargetBegins, _) => return (!matches!(byte, b'/' | b'*')).then_some(at),
                (_, next @ (RequestLine::Before | RequestLine::Method | RequestLine::TargetBegins)) => next,
                _ => return None,
            };
        }
        None
    }

    fn after(self, byte: u8) -> RequestLine {
        use RequestLine as R;
        match (self, byte) {
            (R::Before, b'\r' | b'\n') => R::Before,
            (R::Method, b' ') => R::TargetBegins,
            (R::Target, b' ') => R::Version,
            (R::Version, b'\r') => R::Return,
            // A bare line feed ends a line too, as the parser has it.
            (R::Version | R::Return, b'\n') => R::Over,
            (R::Return, _) | (_, 0..=b' ' | 0x7f) => R::Malformed,
            // A fragment is the client's own; one that is dropped on the way is seen by some and not by others.
            (R::TargetBegins | R::Target, b'#') => R::Malformed,
            (R::Before | R::Method, _) => R::Method,
            (R::TargetBegins | R::Target, _) => R::Target,
            (state, _) => state,
        }
    }
}

/// How many bytes only continue a target.
fn continued(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| ends_target(*byte)).unwrap_or(bytes.len())
}

/// Whether a target that has begun does not go on with this byte: it is over, or malformed.
fn ends_target(byte: u8) -> bool {
    matches!(byte, 0..=b' ' | 0x7f | b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_no_path_is_found_where_it_begins() {
        let rows: &[(&[u8], Option<usize>)] = &[
            (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Some(4)),
            (b"\r\nGET a", Some(6)),
            (b"GET /http://a HTTP/1.1\r\nX: GET http://a", None),
            (b"OPTIONS * HTTP/1.1\r\n", None),
            (b"GET ", None),
        ];
        for (bytes, expected) in rows {
            assert_eq!(RequestLine::default().whole_target_in(bytes), *expected);
            for cut in 0..bytes.len() {
                let (first, second) = bytes.split_at(cut);
                let mut line = RequestLine::default();
                line.may_be(first);
                let found = RequestLine::default().whole_target_in(first);
                let found = found.or_else(|| line.whole_target_in(second).map(|at| at + cut));
                assert_eq!(found, *expected, "{:?} cut at {cut}", String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn a_target_goes_on_with_what_it_is_passed_over_for() {
        for byte in 0..=u8::MAX {
            assert_eq!(RequestLine::Target.after(byte) != RequestLine::Target, ends_target(byte), "{byte:#x}");
        }
    }

    #[test]
    fn a_line_has_three_words_and_one_blank_between_them() {
        let rows: &[(&[u8], bool)] = &[
            (b"GET / HTTP/1.1\r\nHost: a\0b\r\n", true),
            (b"\r\n\r\nGET /?a=b HTTP/1.1\r\n", true),
            (b"GET / HTTP/1.1\nX", true),
            (b"GET /\xff\xc3\xbc HTTP/1.1\r\n", true),
            (b"GET /\"<>{}|\\^` HTTP/1.1\r\n", true),
            (b"GET /a", true),
            (b"GET /a b HTTP/1.1\r\n", false),
            (b"GET /a\0b HTTP/1.1\r\n", false),
            (b"GET /a\x7fb HTTP/1.1\r\n", false),
            (b"GET /a\tb HTTP/1.1\r\n", false),
            (b"GET /a\rb HTTP/1.1\r\n", false),
            (b"GET /a#b HTTP/1.1\r\n", false),
            (b"GET # HTTP/1.1\r\n", false),
            (b"GET\t/ HTTP/1.1\r\n", false),
            (b"GET  / HTTP/1.1\r\n", false),
            (b"GET /  HTTP/1.1\r\n", false),
            (b"GET / HTTP/1.1 \r\n", false),
            (b"GET / HTTP/1.1\r\r\n", false),
            (b"GET / HTTP/1.1\rX\n", false),
            (b"GET /\r\n", false),
            (b"GET\r\n", false),
            (b" GET / HTTP/1.1\r\n", false),
            (b"\x16\x03\x01", false),
        ];
        for (bytes, expected) in rows {
            for cut in 0..bytes.len() {
                let mut line = RequestLine::default();
                let (first, second) = bytes.split_at(cut);
                let found = line.may_be(first) && line.may_be(second);
                assert_eq!(found, *expected, "{:?} cut at {cut}", String::from_utf8_lossy(bytes));
            }
        }
    }
}
