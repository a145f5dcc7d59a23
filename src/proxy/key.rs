//! What of a request says which member it goes to, under `balance: consistent_hash`.
//!
//! Bytes are taken as they came: two spellings are two keys. A request without its key goes to any member.

use std::net::IpAddr;

use pingora::http::RequestHeader;

use super::cookies;
use crate::config::HashKey;

/// The key of a request from `client`; `None` where it has none, or an empty one.
pub fn key(wanted: &HashKey, request: &RequestHeader, client: IpAddr) -> Option<Vec<u8>> {
    let found = match wanted {
        HashKey::Client => client.to_string().into_bytes(),
        HashKey::Path => request.uri.path().as_bytes().to_vec(),
        HashKey::Header(name) => request.headers.get(name)?.as_bytes().to_vec(),
        HashKey::Cookie(name) => cookies::values(&request.headers, name).next()?.to_vec(),
        HashKey::Query(name) => {
            request.uri.query()?.as_bytes().split(|b| *b == b'&').find_map(|pair| value(pair, name))?.to_vec()
        }
    };
    (!found.is_empty()).then_some(found)
}

/// The value of `name=value`, if that is the name; blanks around it are no part of it.
fn value<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, fields: &[(&str, &str)]) -> RequestHeader {
        let mut request = RequestHeader::build("GET", target.as_bytes(), None).expect("a request");
        for (name, value) in fields {
            request.append_header((*name).to_owned(), *value).expect("a field");
        }
        request
    }

    #[test]
    fn each_kind_of_key_is_found_as_it_came() {
        let fields = &[
            ("X-User", "ann"),
            ("x-user", "bob"),
            ("cookie", "a=1; session=x=y ;b=2"),
            ("cookie", "session=later; other=z"),
            ("x-empty", ""),
        ];
        let request = request("/a/b%20c?id=&user=1&id=7&user=2", fields);
        let rows: &[(HashKey, Option<&str>)] = &[
            (HashKey::Client, Some("2001:db8::7")),
            (HashKey::Path, Some("/a/b%20c")),
            (HashKey::Header("x-user".into()), Some("ann")),
            (HashKey::Header("x-empty".into()), None),
            (HashKey::Header("x-none".into()), None),
            (HashKey::Cookie("session".into()), Some("x=y")),
            (HashKey::Cookie("other".into()), Some("z")),
            (HashKey::Cookie("sess".into()), None),
            (HashKey::Cookie("Session".into()), None),
            (HashKey::Query("user".into()), Some("1")),
            (HashKey::Query("id".into()), None),
            (HashKey::Query("us".into()), None),
        ];
        for (wanted, expected) in rows {
            let found = key(wanted, &request, "2001:db8::7".parse().expect("an address"));
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{wanted}");
        }
    }
}
