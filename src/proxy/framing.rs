//! Whether a message says one thing of where it ends.
//!
//! Pingora accepts what RFC 9112 section 6.3 lets a recipient accept: equal lengths, a length beside a coding, codings before
//! the last, and of an answer any coding at all. Whoever else is on the way may read it otherwise, so what has two readings
//! is not passed on (case C57).

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorType};

/// Whether it has one length of digits alone, or the one coding `chunked`, or neither. `raw` is the header as it came:
/// Pingora has taken out a length that stood beside a coding.
pub fn is_clear(request: &RequestHeader, raw: &[u8]) -> bool {
    if let Some(is_chunked) = is_chunked(&request.headers) {
        return is_chunked && !has_field(raw, CONTENT_LENGTH.as_str());
    }
    let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
    let is_number = lengths.next().is_none_or(|length| length.as_bytes().iter().all(u8::is_ascii_digit));
    is_number && lengths.next().is_none()
}

/// Makes an answer say once where it ends. Equal lengths become one, as RFC 9110 section 8.6 allows; that they are equal, and
/// which of a length and a coding holds, Pingora has seen to.
///
/// # Errors
/// It is coded otherwise than by the one coding `chunked`: whoever does not know the coding cannot tell its end.
pub fn settle(answer: &mut ResponseHeader) -> pingora::Result<()> {
    if is_chunked(&answer.headers) == Some(false) {
        return Err(Error::explain(ErrorType::InvalidHTTPHeader, "a coding other than chunked").into_up());
    }
    let mut lengths = answer.headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(()) };
    let length = first.as_bytes().split(|b| *b == b',').next().unwrap_or_default().trim_ascii();
    if lengths.next().is_none() && length.len() == first.len() {
        return Ok(());
    }
    let length = length.to_vec();
    answer.insert_header(CONTENT_LENGTH, length)
}

/// Whether the body comes in the one coding `chunked`; `None`: in none.
fn is_chunked(headers: &HeaderMap) -> Option<bool> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next()?;
    Some(coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") && codings.next().is_none())
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
    fn an_answer_has_one_length_or_one_coding_or_goes_no_further() {
        type Row<'a> = (&'a [(&'static str, &'a str)], Option<&'a [&'a str]>);
        let rows: &[Row<'_>] = &[
            (&[], Some(&[])),
            (&[("content-length", "3")], Some(&["3"])),
            (&[("content-length", "3"), ("content-length", "3")], Some(&["3"])),
            (&[("content-length", "3, 3")], Some(&["3"])),
            (&[("content-length", "3 ,3"), ("content-length", "3")], Some(&["3"])),
            (&[("transfer-encoding", "Chunked")], Some(&[])),
            (&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], None),
            (&[("transfer-encoding", "chunked, chunked")], None),
            (&[("transfer-encoding", "chunked, identity")], None),
            (&[("transfer-encoding", "gzip, chunked")], None),
            (&[("transfer-encoding", "xchunked")], None),
            (&[("transfer-encoding", "")], None),
        ];
        for (fields, lengths) in rows {
            let mut answer = ResponseHeader::build(200, None).expect("an answer");
            for (name, value) in *fields {
                answer.append_header(*name, *value).expect("a field");
            }
            let settled = settle(&mut answer).is_ok();
            assert_eq!(settled, lengths.is_some(), "{fields:?}");
            let left: Vec<_> =
                answer.headers.get_all(CONTENT_LENGTH).iter().map(|v| v.to_str().expect("ASCII")).collect();
            assert!(lengths.is_none_or(|lengths| left == lengths), "{fields:?}: {left:?}");
        }
    }

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
