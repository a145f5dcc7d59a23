//! Whether a request says one thing of where it ends.
//!
//! Pingora accepts what RFC 9112 section 6.3 lets a server accept: equal lengths, a length beside a coding, codings before
//! the last. Whoever else is on the way may read it otherwise, so what has two readings is refused (case C57).

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora::http::RequestHeader;

/// Whether it has one length of digits alone, or the one coding `chunked`, or neither. `raw` is the header as it came:
/// Pingora has taken out a length that stood beside a coding.
pub fn is_clear(request: &RequestHeader, raw: &[u8]) -> bool {
    let mut codings = request.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let is_chunked = coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        return is_chunked && codings.next().is_none() && !has_field(raw, CONTENT_LENGTH.as_str());
    }
    let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
    let is_number = lengths.next().is_none_or(|length| length.as_bytes().iter().all(u8::is_ascii_digit));
    is_number && lengths.next().is_none()
}

fn has_field(raw: &[u8], name: &str) -> bool {
    let is_it = |line: &[u8]| {
        let (field, rest) = line.split_at(name.len().min(line.len()));
        field.eq_ignore_ascii_case(name.as_bytes()) && rest.trim_ascii_start().starts_with(b":")
    };
    raw.split(|b| *b == b'\n').any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_two_readings_is_not_clear() {
        type Row<'a> = (&'a [(&'static str, &'a str)], bool);
        let rows: &[Row<'_>] = &[
            (&[], true),
            (&[("content-length", "5")], true),
            (&[("transfer-encoding", "chunked")], true),
            (&[("transfer-encoding", "Chunked")], true),
            (&[("content-length", "5"), ("content-length", "5")], false),
            (&[("content-length", "5, 5")], false),
            (&[("content-length", "5,")], false),
            (&[("transfer-encoding", "chunked, chunked")], false),
            (&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], false),
            (&[("transfer-encoding", "identity, chunked")], false),
            (&[("transfer-encoding", "gzip, chunked")], false),
            (&[("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")], false),
            (&[("transfer-encoding", "chunked;q=1")], false),
            (&[("transfer-encoding", ",chunked")], false),
            (&[("transfer-encoding", "chunked"), ("content-length", "5")], false),
        ];
        for (fields, expected) in rows {
            let mut request = RequestHeader::build("POST", b"/", None).expect("a request");
            let mut raw = b"POST / HTTP/1.1\r\n".to_vec();
            for (name, value) in *fields {
                request.append_header(*name, *value).expect("a field");
                raw.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            assert_eq!(is_clear(&request, &raw), *expected, "{fields:?}");
        }
        let mut request = RequestHeader::build("POST", b"/", None).expect("a request");
        request.append_header("transfer-encoding", "chunked").expect("a field");
        assert!(!is_clear(&request, b"POST / HTTP/1.1\r\ncONTENT-lENGTH:5\r\nTransfer-Encoding: chunked\r\n\r\n"));
        assert!(is_clear(&request, b"POST / HTTP/1.1\r\nX-Content-Length: 5\r\nContent-Length-X: 5\r\n\r\n"));
    }
}
