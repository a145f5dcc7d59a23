//! `Max-Forwards`: over how many hops an OPTIONS may still go (RFC 9110 section 7.6.2). TRACE, to which it also applies, is
//! refused; to other methods it means nothing.

use http::{Method, StatusCode, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::ServerSession;

use super::refusal::METHODS;

/// How many hops are left. What is no number says nothing.
pub fn left(request: &RequestHeader) -> Option<u64> {
    if request.method != Method::OPTIONS {
        return None;
    }
    let text = request.headers.get(header::MAX_FORWARDS)?.to_str().ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // More than can be counted is as good as the most that can.
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// One hop is this one.
///
/// # Errors
/// A value that cannot be sent.
pub fn upward(up: &mut RequestHeader) -> pingora::Result<()> {
    match left(up) {
        Some(left) => up.insert_header(header::MAX_FORWARDS, left.saturating_sub(1)),
        None => Ok(()),
    }
}

/// Answers as the last hop, with what we take.
///
/// # Errors
/// The client is gone.
pub async fn answer(session: &mut ServerSession, request_id: &str) -> pingora::Result<StatusCode> {
    let mut answer = ResponseHeader::build(StatusCode::OK, Some(4))?;
    answer.insert_header(header::ALLOW, METHODS)?;
    answer.insert_header(header::CONTENT_LENGTH, 0)?;
    answer.insert_header("X-Request-Id", request_id)?;
    session.write_response_header(Box::new(answer)).await?;
    Ok(StatusCode::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_counted_down_for_options_alone() {
        // (method, what came, what is left, what goes on)
        let rows = [
            ("OPTIONS", "0", Some(0), "0"),
            ("OPTIONS", "1", Some(1), "0"),
            ("OPTIONS", "010", Some(10), "9"),
            ("OPTIONS", "99999999999999999999", Some(u64::MAX), "18446744073709551614"),
            ("OPTIONS", "-1", None, "-1"),
            ("OPTIONS", "+1", None, "+1"),
            ("OPTIONS", "", None, ""),
            ("GET", "0", None, "0"),
        ];
        for (method, came, expected, goes) in rows {
            let mut request = RequestHeader::build(method, b"/", None).expect("a request");
            request.insert_header("max-forwards", came).expect("a field");
            assert_eq!(left(&request), expected, "{method} {came}");
            upward(&mut request).expect("it can be sent");
            assert_eq!(request.headers["max-forwards"], goes, "{method} {came}");
        }
    }
}
