//! JSON on one line that neither a parser nor a terminal can be fooled by.
//!
//! JSON itself escapes quotes, backslashes and the C0 controls. What clients send may also hold DEL and the C1 controls
//! (some terminals obey U+009B like ESC [), the Unicode line separators (some tools break lines there) and the marks
//! that reorder text on screen or are not seen. They are legal JSON, so they are escaped too and parse back unchanged (CWE-117, CWE-150).

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// Appends `value` to `buffer`.
///
/// An error is one of `value`'s own; the buffer is then as it was before.
pub(super) fn append(buffer: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
    let start = buffer.len();
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut *buffer, OneLine));
    if written.is_err() {
        buffer.truncate(start);
    }
    written
}

/// Bytes that should be UTF-8 and may be anything: what is invalid becomes U+FFFD.
pub(super) struct Lossy<'a>(pub &'a [u8]);

impl Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

impl Serialize for Lossy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_str(self),
        }
    }
}

/// Text for a terminal or a message: every deceptive character escaped as in Rust source.
pub(super) struct Shown<'a>(pub &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_deceptive(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// Whether `c` moves a cursor, ends a line, reorders what is shown or is not seen at all: the controls, the two separators of
/// lines and the format characters of Unicode (general categories Cc, Zl, Zp and Cf).
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}')
        || matches!(c, '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}')
        || matches!(c, '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

/// Compact JSON with every deceptive character escaped.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if fragment.bytes().all(|byte| byte < 0x7f) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut plain = 0;
        for (at, c) in fragment.char_indices().filter(|&(_, c)| is_deceptive(c)) {
            writer.write_all(&fragment.as_bytes()[plain..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            plain = at + c.len_utf8();
        }
        writer.write_all(&fragment.as_bytes()[plain..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(bytes: &[u8]) -> String {
        let mut buffer = Vec::new();
        append(&mut buffer, &Lossy(bytes)).unwrap();
        String::from_utf8(buffer).unwrap()
    }

    #[test]
    fn hostile_text_is_escaped_and_the_rest_is_left_alone() {
        let rows: [(&[u8], &str); 10] = [
            (b"plain /path?a=b", r#""plain /path?a=b""#),
            (b"a\r\nb\0c", r#""a\r\nb\u0000c""#),
            (b"\"quoted\\", r#""\"quoted\\""#),
            (b"\x1b[31mred\x7f", r#""\u001b[31mred\u007f""#),
            ("\u{9b}31m".as_bytes(), r#""\u009b31m""#),
            ("a\u{2028}b\u{2029}c\u{85}d".as_bytes(), r#""a\u2028b\u2029c\u0085d""#),
            ("\u{202e}gpj.exe\u{2066}".as_bytes(), r#""\u202egpj.exe\u2066""#),
            ("a\u{200f}b\u{feff}c\u{e0041}".as_bytes(), r#""a\u200fb\ufeffc\udb40\udc41""#),
            ("grüße 日本 🦀".as_bytes(), r#""grüße 日本 🦀""#),
            (b"\xff\xc3(\xe2\x80", "\"\u{fffd}\u{fffd}(\u{fffd}\""),
        ];
        for (bytes, expected) in rows {
            assert_eq!(rendered(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_failing_value_leaves_no_half_line() {
        struct Broken;
        impl Serialize for Broken {
            fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("broken"))
            }
        }
        let mut buffer = b"before".to_vec();
        append(&mut buffer, &("half", Broken)).unwrap_err();
        assert_eq!(buffer, b"before");
    }
}
