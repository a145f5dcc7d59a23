//! Where a chunked body ends, found as its bytes come (RFC 9112 section 7.1). Pure.
//!
//! It reads what Pingora's parser reads, and refuses nothing: of a body that is none it finds no end, and Pingora, which
//! gets all of it, refuses it.

/// What was seen of a chunked body so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkEnd {
    at: At,
    /// Of the present chunk, as far as its digits came; then what is left of its data.
    size: u64,
    digits: u8,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    Size,
    /// White space before an extension, or the end of the line.
    BehindSize,
    Extension,
    SizeFeed,
    Data,
    DataReturn,
    DataFeed,
    /// A trailer, or the empty line that ends the body.
    LineStart,
    Trailer,
    TrailerFeed,
    LastFeed,
    /// No chunked body.
    Broken,
}

/// Digits of the largest size that is read.
const MAX_DIGITS: u8 = 16;

impl ChunkEnd {
    /// Looks at the next bytes; how many of them belong to the body, if it ends among them.
    pub fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            if self.at == At::Data {
                let data = self.size.min((bytes.len() - at) as u64);
                self.size -= data;
                at += data as usize;
                if self.size == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            let last = self.at == At::LastFeed && bytes[at] == b'\n';
            at += 1;
            if last {
                *self = ChunkEnd::default();
                return Some(at);
            }
            self.at = self.behind(bytes[at - 1]);
        }
        None
    }

    fn behind(&mut self, byte: u8) -> At {
        match (self.at, byte) {
            (At::Size | At::BehindSize | At::Extension, b'\r') => At::SizeFeed,
            (At::Size, b';') | (At::BehindSize, b';') | (At::Extension, _) => At::Extension,
            (At::Size | At::BehindSize, b' ' | b'\t') => At::BehindSize,
            (At::Size, _) => self.behind_digit(byte),
            (At::SizeFeed, b'\n') => {
                self.digits = 0;
                if self.size == 0 { At::LineStart } else { At::Data }
            }
            (At::DataReturn, b'\r') => At::DataFeed,
            (At::DataFeed, b'\n') => At::Size,
            (At::LineStart, b'\r') => At::LastFeed,
            (At::Trailer, b'\r') => At::TrailerFeed,
            (At::TrailerFeed, b'\n') => At::LineStart,
            (At::LineStart | At::Trailer, byte) if byte != b'\n' => At::Trailer,
            _ => At::Broken,
        }
    }

    fn behind_digit(&mut self, byte: u8) -> At {
        let digit = char::from(byte).to_digit(16);
        let Some(digit) = digit.filter(|_| self.digits < MAX_DIGITS) else { return At::Broken };
        self.digits += 1;
        self.size = self.size << 4 | u64::from(digit);
        At::Size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_ends_behind_its_last_line_however_it_comes() {
        let rows: &[(&str, Option<usize>)] = &[
            ("5\r\nhello\r\n0\r\n\r\n", Some(15)),
            ("5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", Some(15)),
            ("0\r\n\r\n0\r\n\r\n", Some(5)),
            ("0A;a=\"b\"\r\n0\r\n\r\n67890\r\n000 ;x\r\n\r\nrest", Some(32)),
            ("0\r\nA: b\r\nC: d\r\n\r\nrest", Some(17)),
            ("1\t \r\nx\r\n0\r\n\r\nrest", Some(13)),
            ("5\r\nhello\r\n0\r\n", None),
            ("5\r\nhello\r\n", None),
            ("", None),
            // None at all: an end that Pingora does not see would be one too many.
            ("x\r\n0\r\n\r\n", None),
            ("1 1\r\nx\r\n0\r\n\r\n", None),
            ("1\nx\n0\n\n", None),
            ("1\r\nxy\r\n0\r\n\r\n", None),
            ("0\r\n\n", None),
            ("0\r\nA: b\n\r\n", None),
            ("0\r\nA: b\r\r\n\r\n", None),
            ("00000000000000001\r\nx\r\n0\r\n\r\n", None),
            ("1;a\rb\r\nx\r\n0\r\n\r\n", None),
        ];
        for (text, expected) in rows {
            assert_eq!(ChunkEnd::default().find(text.as_bytes()), *expected, "{text:?} at once");
            let mut bytewise = ChunkEnd::default();
            let end = text.bytes().position(|byte| bytewise.find(&[byte]).is_some()).map(|at| at + 1);
            assert_eq!(end, *expected, "{text:?} byte by byte");
        }
    }

    #[test]
    fn the_next_body_is_read_from_its_beginning() {
        let mut chunks = ChunkEnd::default();
        for _ in 0..2 {
            assert_eq!(chunks.find(b"2\r\nab\r\n0\r\n\r\n"), Some(12));
        }
    }
}
