//! What handlers take out of a request; where it cannot be had, the answer is a problem like any other.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// The parts of the path that the route leaves open, decoded.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(found)) => Ok(Path(found)),
            Err(refused) => Err(Problem::new(refused.status(), refused.body_text())),
        }
    }
}
