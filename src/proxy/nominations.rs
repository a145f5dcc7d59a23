//! What a client names in `Connection`, for the next hop not to see (RFC 9110 section 7.6.1). Pure.
//!
//! Pingora refuses what must not be taken out, but only when a member is picked and has a connection for it, which is lost with
//! the request. So the same is asked here, before anybody is picked; what passes here, passes there.

use http::HeaderMap;
use http::header::CONNECTION;

/// Names from which on there are too many: Pingora looks at no more.
const TOO_MANY: usize = 10;

/// Fields that members and proxies believe: whoever could have them taken out on the way could say who it is.
const PROTECTED: [&str; 5] = ["host", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];

/// Whether what `Connection` names, in all of its lines, may be taken out.
pub fn may_be(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|b| *b == b',')).map(<[u8]>::trim_ascii);
    let mut named = 0;
    names.filter(|name| !name.is_empty()).all(|name| {
        named += 1;
        named < TOO_MANY && is_token(name) && !is_protected(name)
    })
}

fn is_token(name: &[u8]) -> bool {
    name.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

fn is_protected(name: &[u8]) -> bool {
    PROTECTED.iter().any(|protected| name.eq_ignore_ascii_case(protected.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_nine_and_none_that_is_believed() {
        let nine = "a,b,c,d,e,f,g,h,i";
        let ten = "a,b,c,d,e,f,g,h,i,j";
        let rows: &[(&[&str], bool)] = &[
            (&[], true),
            (&[""], true),
            (&["close"], true),
            (&["keep-alive, Upgrade"], true),
            (&["x-forwarded"], true),
            (&[nine], true),
            (&[", ,", nine, ","], true),
            (&[ten], false),
            (&["a,b,c,d,e", "f,g,h,i,j"], false),
            (&["Host"], false),
            (&["close, X-Forwarded-For"], false),
            (&["close", "x-forwarded-host"], false),
            (&["x-forwarded-proto"], false),
            (&["forwarded"], false),
            (&[":authority"], false),
            (&["\"x-forwarded-for\""], false),
            (&["a b"], false),
        ];
        for (values, expected) in rows {
            let mut headers = HeaderMap::new();
            for value in *values {
                headers.append(CONNECTION, value.parse().expect("a value"));
            }
            assert_eq!(may_be(&headers), *expected, "{values:?}");
        }
    }
}
