//! Where a chunked body ends, found as its bytes come (RFC 9112 section 7.1). Pure.
//!
//! Of a body that is none it finds no end, and Pingora, which gets all of it, refuses it. But Pingora takes a line without a
//! size for the last chunk, and a line feed within an extension for part of it, where others end the line: such a line says
//! two things of where the body ends (case C57), and it is for whoever reads here to refuse it.

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
    /// No chunked body, as Pingora knows itself.
    Broken,
    /// A line that has no size, or whose extension has a control character.
    NoSize,
}

/// What bytes of a chunked body are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It goes on behind them, or is none.
    NoEnd,
    /// So many of them belong to it, and the rest does not.
    End(usize),
    /// From this one on they are no chunked body, which only we know.
    NoSize(usize),
}

/// Digits of the largest size that is read.
const MAX_DIGITS: u8 = 16;

impl ChunkEnd {
    /// Looks at the next bytes.
    pub fn find(&mut self, bytes: &[u8]) -> Found {
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
                return Found::End(at);
            }
            self.at = self.behind(bytes[at - 1]);
            if self.at == At::NoSize {
                return Found::NoSize(at - 1);
            }
        }
        Found::NoEnd
    }

    fn behind(&mut self, byte: u8) -> At {
        match (self.at, byte) {
            (At::NoSize, _) => At::NoSize,
            (At::Size, b'\r' | b';' | b' ' | b'\t') if self.digits == 0 => At::NoSize,
            // RFC 9112 section 7.1.1 has tokens and quoted strings, and RFC 9110 section 5.5 the characters of these.
            (At::Extension, ..=0x08 | 0x0a..=0x0c | 0x0e..=0x1f | 0x7f) => At::NoSize,
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
    use super::Found::{End, NoEnd, NoSize};
    use super::*;

    #[test]
    fn a_chunked_body_ends_behind_its_last_line_however_it_comes() {
        let rows: &[(&str, Found)] = &[
            ("5\r\nhello\r\n0\r\n\r\n", End(15)),
            ("5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", End(15)),
            ("0\r\n\r\n0\r\n\r\n", End(5)),
            ("0A;a=\"b\"\r\n0\r\n\r\n67890\r\n000 ;x\r\n\r\nrest", End(32)),
            ("0\r\nA: b\r\nC: d\r\n\r\nrest", End(17)),
            ("1\t \r\nx\r\n0\r\n\r\nrest", End(13)),
            ("1;a=\"\t\u{e4}\"\r\nx\r\n0\r\n\r\nrest", End(19)),
            ("5\r\nhello\r\n0\r\n", NoEnd),
            ("5\r\nhello\r\n", NoEnd),
            ("", NoEnd),
            // None at all: an end that Pingora does not see would be one too many.
            ("x\r\n0\r\n\r\n", NoEnd),
            ("1 1\r\nx\r\n0\r\n\r\n", NoEnd),
            ("1\nx\n0\n\n", NoEnd),
            ("1\r\nxy\r\n0\r\n\r\n", NoEnd),
            ("0\r\n\n", NoEnd),
            ("0\r\nA: b\n\r\n", NoEnd),
            ("0\r\nA: b\r\r\n\r\n", NoEnd),
            ("00000000000000001\r\nx\r\n0\r\n\r\n", NoEnd),
            ("1;a\rb\r\nx\r\n0\r\n\r\n", NoEnd),
            // What Pingora takes for an end, or for no end, and others do not.
            ("\r\n\r\n", NoSize(0)),
            (";x\r\n\r\n", NoSize(0)),
            (" \r\n\r\n", NoSize(0)),
            ("5\r\nhello\r\n\r\n\r\n", NoSize(10)),
            ("2;\nxx\r\nAB\r\n0\r\n\r\n", NoSize(2)),
            ("2;a\0\r\nAB\r\n0\r\n\r\n", NoSize(3)),
        ];
        for (text, expected) in rows {
            assert_eq!(ChunkEnd::default().find(text.as_bytes()), *expected, "{text:?} at once");
            let mut bytewise = ChunkEnd::default();
            let found = text.bytes().enumerate().find_map(|(at, byte)| match bytewise.find(&[byte]) {
                NoEnd => None,
                End(bytes) => Some(End(at + bytes)),
                NoSize(_) => Some(NoSize(at)),
            });
            assert_eq!(found.unwrap_or(NoEnd), *expected, "{text:?} byte by byte");
        }
    }

    #[test]
    fn the_next_body_is_read_from_its_beginning() {
        let mut chunks = ChunkEnd::default();
        for _ in 0..2 {
            assert_eq!(chunks.find(b"2\r\nab\r\n0\r\n\r\n"), End(12));
        }
    }

    #[test]
    fn what_has_no_size_has_none_later() {
        let mut chunks = ChunkEnd::default();
        assert_eq!((chunks.find(b"\r"), chunks.find(b"\n0\r\n\r\n")), (NoSize(0), NoSize(0)));
    }
}
