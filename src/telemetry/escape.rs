//! Text of a line that is no JSON: nothing in it can end the line, leave its quotes or reach a terminal.
//!
//! As nginx does it: quotes, backslashes, control bytes and all that is not ASCII become `\xHH`. So do the signs by
//! which the text around it is read.

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Appends `text`, escaped, and each of `signs` in it too.
pub(super) fn append(line: &mut Vec<u8>, text: &[u8], signs: &[u8]) {
    let mut plain = 0;
    for (at, &byte) in text.iter().enumerate() {
        let stays = matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\' && !signs.contains(&byte);
        if stays {
            continue;
        }
        line.extend_from_slice(&text[plain..at]);
        line.extend_from_slice(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        plain = at + 1;
    }
    line.extend_from_slice(&text[plain..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped_and_the_rest_is_left_alone() {
        let rows: [(&[u8], &[u8], &str); 11] = [
            (b"plain /path?a=b %41 ~", b"", "plain /path?a=b %41 ~"),
            (b"", b"", ""),
            (b"a\r\nb\0c\td", b"", "a\\x0D\\x0Ab\\x00c\\x09d"),
            (b"\"quoted\\\"", b"", "\\x22quoted\\x5C\\x22"),
            (b"\x1b[31mred\x7f", b"", "\\x1B[31mred\\x7F"),
            (b"\xff\x9b", b"", "\\xFF\\x9B"),
            ("ü\u{2028}".as_bytes(), b"", "\\xC3\\xBC\\xE2\\x80\\xA8"),
            (b"a b|c", b" ", "a\\x20b|c"),
            (b"a b|c|", b"|", "a b\\x7Cc\\x7C"),
            (b"a b|c|", b" |", "a\\x20b\\x7Cc\\x7C"),
            (b"\\x22", b"", "\\x5Cx22"),
        ];
        for (text, signs, expected) in rows {
            let mut line = b"> ".to_vec();
            append(&mut line, text, signs);
            assert_eq!(String::from_utf8_lossy(&line), format!("> {expected}"), "{text:?}");
        }
    }
}
