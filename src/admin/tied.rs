//! A body with something tied to it that is let go with it: when all of it was handed on, or nobody wants it any more.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// The same answer, with `tie` held until its body is over.
pub fn tied<T: Send + Unpin + 'static>(response: Response, tie: T) -> Response {
    response.map(|body| Body::new(Tied { body, _tie: tie }))
}

struct Tied<T> {
    body: Body,
    _tie: T,
}

impl<T: Unpin> HttpBody for Tied<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
