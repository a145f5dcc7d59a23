//! The query of a request: every parameter known, once, and decoded, or a problem that says which is not.

use std::ops::RangeInclusive;
use std::str::FromStr;

use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// Where the handler knows of parameters, and where those who ask are configured by others and may have one for us to ignore:
/// a restart by a supervisor would be too much for it.
const OTHERS: [&str; 7] = [
    "/livez",
    "/readyz",
    "/metrics",
    "/api/v1/explain",
    "/api/v1/events",
    "/api/v1/events/stream",
    "/api/v1/diagnostics",
];

/// Refuses parameters where there are none: whoever writes one means something by it.
pub async fn none(request: Request, next: Next) -> Response {
    let takes_others = OTHERS.contains(&request.uri().path());
    match Query::of(request.uri(), &[]) {
        Err(problem) if !takes_others => problem.into_response(),
        _ => next.run(request).await,
    }
}

/// The parameters of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// The query of `uri`, which may have the parameters `known` and no others.
    ///
    /// # Errors
    /// 400: another parameter, one that is there twice, or bytes that are no text.
    pub fn of(uri: &Uri, known: &[&str]) -> Result<Query, Problem> {
        Query::with_many(uri, known, "")
    }

    /// The same where the parameter `many` may be there more than once.
    ///
    /// # Errors
    /// As [`Query::of`].
    pub fn with_many(uri: &Uri, known: &[&str], many: &str) -> Result<Query, Problem> {
        let mut found: Vec<(String, String)> = Vec::new();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(bad(format!("unknown parameter {name:?}; there are: {known}")));
            }
            if name != many && found.iter().any(|(other, _)| *other == name) {
                return Err(bad(format!("{name} is given twice")));
            }
            found.push((name, value));
        }
        Ok(Query(found))
    }

    /// The parameter's value, where it is given.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// All of the parameter's values, in their order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The same as a number within `range`.
    ///
    /// # Errors
    /// 400: it is none.
    pub fn number<N>(&self, name: &str, range: RangeInclusive<N>) -> Result<Option<N>, Problem>
    where
        N: FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        match digits(text).filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (least, most) = (range.start(), range.end());
                Err(bad(format!("{name} is {text:?}; write a number from {least} to {most}")))
            }
        }
    }
}

/// A number that is nothing but digits.
pub fn digits<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// What is wrong with a parameter.
pub fn bad(detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// As HTML forms write it: `%XX`, and `+` for a blank.
fn decoded(text: &str) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => escaped(rest.next(), rest.next())
                .ok_or_else(|| bad(format!("`%` without two hexadecimal digits in {text:?}")))?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad(format!("{text:?} is not UTF-8")))
}

fn escaped(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high?)? * 16 + digit(low?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, Problem> {
        Query::of(&text.parse().expect("a URI"), &["since", "pool"])
    }

    #[test]
    fn parameters_are_decoded() {
        let found = query("/e?since=7&&pool=a%2Fb+c%C3%A9").expect("a good query");
        assert_eq!((found.text("since"), found.text("pool"), found.text("kind")), (Some("7"), Some("a/b cé"), None));
        assert_eq!(found.number("since", 0..=9), Ok(Some(7)));
        assert_eq!(query("/e").and_then(|none| none.number("since", 0..=9)), Ok(None));
        assert_eq!(query("/e?pool").expect("a good query").text("pool"), Some(""));
        let many = Query::with_many(&"/e?pool=b&since=1&pool=a".parse().expect("a URI"), &["since", "pool"], "pool");
        assert_eq!(many.expect("a good query").all("pool").collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn what_cannot_be_meant_is_a_problem() {
        for wrong in ["/e?limit=1", "/e?since=1&since=1", "/e?pool=%f", "/e?pool=%fg", "/e?pool=%ff", "/e?pool=%"] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
        for wrong in ["/e?since=10", "/e?since=-1", "/e?since=+1", "/e?since=x", "/e?since=", "/e?since"] {
            assert!(query(wrong).expect("a good query").number("since", 0_u64..=9).is_err(), "{wrong}");
        }
    }
}
