//! Cookies of a request: one is found, or taken out, and all others stay as they came (RFC 6265 section 4.2).
//!
//! Bytes are taken as they are: two spellings are two cookies, and what is none stays.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use pingora::http::RequestHeader;

/// The values of the cookies of this name, in their order.
pub fn values<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let fields = headers.get_all(COOKIE).into_iter();
    fields.flat_map(|field| field.as_bytes().split(|b| *b == b';')).filter_map(move |pair| value(pair, name))
}

/// Takes out the cookies of this name.
///
/// # Errors
/// A value that cannot be sent, which came as one.
pub fn remove(request: &mut RequestHeader, name: &str) -> pingora::Result<()> {
    if values(&request.headers, name).next().is_none() {
        return Ok(());
    }
    let kept: Vec<HeaderValue> = request.headers.get_all(COOKIE).into_iter().filter_map(|f| without(f, name)).collect();
    request.remove_header(&COOKIE);
    kept.into_iter().try_for_each(|field| request.append_header("Cookie", field).map(drop))
}

/// The value of `name=value`, if that is the name (RFC 6265 section 4.2.1 lets blanks stand around a cookie).
fn value<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// The field without the cookies of this name; `None`: nothing is left.
fn without(field: &HeaderValue, name: &str) -> Option<HeaderValue> {
    let pairs = || field.as_bytes().split(|b| *b == b';');
    if pairs().all(|pair| value(pair, name).is_none()) {
        return Some(field.clone());
    }
    let kept: Vec<&[u8]> = pairs().filter(|pair| value(pair, name).is_none()).map(<[u8]>::trim_ascii).collect();
    let line = kept.into_iter().filter(|pair| !pair.is_empty()).collect::<Vec<_>>().join(&b"; "[..]);
    // Of bytes that came in a value.
    HeaderValue::from_bytes(&line).ok().filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(fields: &[&[u8]]) -> RequestHeader {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        for field in fields {
            request.append_header(COOKIE, HeaderValue::from_bytes(field).expect("a value")).expect("a field");
        }
        request
    }

    fn left(fields: &[&[u8]], name: &str) -> Vec<Vec<u8>> {
        let mut request = request(fields);
        remove(&mut request, name).expect("it can be sent");
        request.headers.get_all(COOKIE).iter().map(|field| field.as_bytes().to_vec()).collect()
    }

    #[test]
    fn one_cookie_is_found_and_taken_out_and_the_others_stay_as_they_came() {
        type Row<'a> = (&'a [&'a [u8]], &'a [&'a [u8]], &'a [&'a [u8]]);
        let rows: [Row<'_>; 8] = [
            (&[b"a=1; s=x; b=2"], &[b"x"], &[b"a=1; b=2"]),
            (&[b"s=x"], &[b"x"], &[]),
            (&[b"a=1;b=2 ;  c", b" s=x=y ;;s="], &[b"x=y", b""], &[b"a=1;b=2 ;  c"]),
            (&[b"a=1;;\xff=\"\xfe\";s=x; S=1"], &[b"x"], &[b"a=1; \xff=\"\xfe\"; S=1"]),
            (&[b"sx=1; xs=2; s"], &[], &[b"sx=1; xs=2; s"]),
            (&[b"", b";"], &[], &[b"", b";"]),
            (&[b"s=\"x;y\""], &[b"\"x"], &[b"y\""]),
            (&[], &[], &[]),
        ];
        for (fields, found, kept) in rows {
            let request = request(fields);
            assert_eq!(values(&request.headers, "s").collect::<Vec<_>>(), found, "{fields:?}");
            assert_eq!(left(fields, "s"), kept, "{fields:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_nothing_but_the_cookie_is_lost(
            fields in prop::collection::vec("[ -~\u{80}-\u{ff}]{0,40}|[abs=; ]{0,20}", 0..4),
        ) {
            let fields: Vec<&[u8]> = fields.iter().map(String::as_bytes).collect();
            let pairs = |fields: &[Vec<u8>]| -> Vec<Vec<u8>> {
                let pairs = fields.iter().flat_map(|field| field.split(|b| *b == b';')).map(<[u8]>::trim_ascii);
                pairs.filter(|pair| !pair.is_empty() && !pair.starts_with(b"s=")).map(<[u8]>::to_vec).collect()
            };
            let kept = left(&fields, "s");
            let before: Vec<Vec<u8>> = fields.iter().map(|field| field.to_vec()).collect();
            prop_assert_eq!(pairs(&kept), pairs(&before));
            let kept: Vec<&[u8]> = kept.iter().map(Vec::as_slice).collect();
            let request = request(&kept);
            prop_assert_eq!(values(&request.headers, "s").next(), None);
        }
    }
}
