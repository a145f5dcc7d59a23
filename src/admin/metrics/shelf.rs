//! Pages that are being read: the latest few, whoever reads them and however slowly.
//!
//! A page of a large pool has megabytes, and a reader may stall. So when one page too many was made the oldest is thrown away
//! and its answer breaks off: who stalls keeps nobody else from a page, and memory stays bounded.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// Handed to a connection at once, in bytes: what it holds does not hold the page.
const PART: usize = 16 * 1024;

/// The pages that are being read; shared.
#[derive(Debug)]
pub struct Shelf {
    room: usize,
    pages: Mutex<VecDeque<Arc<Page>>>,
}

/// `None` once it was thrown away.
type Page = Mutex<Option<String>>;

/// So many newer pages were made that this one was thrown away.
#[derive(Debug, thiserror::Error)]
#[error("newer pages have taken the place of this one, which was read too slowly")]
struct Overtaken;

impl Shelf {
    /// One for `room` pages.
    pub fn new(room: usize) -> Arc<Shelf> {
        Arc::new(Shelf { room, pages: Mutex::default() })
    }

    /// The page as a body. Where there is no room the oldest page goes for it.
    pub fn body(self: &Arc<Shelf>, text: String) -> Body {
        let length = text.len();
        let page = Arc::new(Mutex::new(Some(text)));
        let mut pages = lock(&self.pages);
        if pages.len() >= self.room
            && let Some(oldest) = pages.pop_front()
        {
            *lock(&oldest) = None;
        }
        pages.push_back(page.clone());
        drop(pages);
        Body::new(Reading { shelf: self.clone(), page, at: 0, length })
    }
}

/// A page as far as it was read.
struct Reading {
    shelf: Arc<Shelf>,
    page: Arc<Page>,
    at: usize,
    length: usize,
}

impl HttpBody for Reading {
    type Data = Bytes;
    type Error = Overtaken;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Overtaken>>> {
        let (at, end) = (self.at, self.length.min(self.at + PART));
        if at == end {
            return Poll::Ready(None);
        }
        let part = lock(&self.page).as_ref().map(|text| Bytes::copy_from_slice(&text.as_bytes()[at..end]));
        self.at = end;
        Poll::Ready(Some(part.map(Frame::data).ok_or(Overtaken)))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.length - self.at) as u64)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        lock(&self.shelf.pages).retain(|page| !Arc::ptr_eq(page, &self.page));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_latest_pages_are_whole_and_an_older_one_breaks_off() {
        let shelf = Shelf::new(2);
        let text = |letter: &str| letter.repeat(PART * 3 + 1);
        let read = |body| to_bytes(body, usize::MAX).now_or_never().expect("nothing is waited for").ok();
        let [a, b, c] = ["a", "b", "c"].map(|letter| shelf.body(text(letter)));
        assert_eq!(read(a), None);
        assert_eq!(read(b), Some(text("b").into()));
        // Who has read makes room.
        let [d, e] = ["d", "e"].map(|letter| shelf.body(text(letter)));
        assert_eq!((read(c), read(d), read(e)), (None, Some(text("d").into()), Some(text("e").into())));
        assert_eq!(lock(&shelf.pages).len(), 0);
    }
}
