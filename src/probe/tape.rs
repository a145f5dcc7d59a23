//! Listens in on a connection: when bytes came, and, when asked to, which.
//!
//! hyper tells when an answer's header is complete; the first *byte* (health.md §1) is known only to the one who reads
//! the socket. The same place can show an operator exactly what was sent and what came back.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::tls;

/// What passed over one connection; clones are the same tape.
#[derive(Debug, Clone)]
pub(super) struct Tape(Arc<Mutex<Recording>>);

#[derive(Debug, Default)]
struct Recording {
    keep: usize,
    sent: Vec<u8>,
    received: Vec<u8>,
    first_read: Option<Instant>,
    last_read: Option<Instant>,
    /// What TLS under the stream died of: HTTP/2 tells its own users only the words.
    tls: Option<rustls::Error>,
    /// Nothing was sent yet, and this reader waits for that.
    reader: Option<Waker>,
    has_sent: bool,
}

impl Tape {
    /// A tape that keeps at most `keep` bytes of each direction.
    pub(super) fn new(keep: usize) -> Tape {
        Tape(Arc::new(Mutex::new(Recording { keep, ..Recording::default() })))
    }

    /// When the first byte came since [`Tape::rewind`]; all of the answer may have come with what was read before it.
    pub(super) fn first_byte(&self) -> Option<Instant> {
        let recording = self.recording();
        recording.first_read.or(recording.last_read)
    }

    /// When anything came last.
    pub(super) fn last_read(&self) -> Option<Instant> {
        self.recording().last_read
    }

    /// What TLS failed of, where it did.
    pub(super) fn tls_error(&self) -> Option<rustls::Error> {
        self.recording().tls.clone()
    }

    /// Another request begins: nothing of it was sent and nothing came; so many bytes of it are kept.
    pub(super) fn restart(&self, keep: usize) {
        let mut recording = self.recording();
        recording.keep = keep;
        (recording.first_read, recording.last_read) = (None, None);
        recording.sent.clear();
        recording.received.clear();
    }

    /// An interim answer is over: the first byte of the final one is still to come.
    pub(super) fn rewind(&self) {
        self.recording().first_read = None;
    }

    /// The beginning of what was sent.
    pub(super) fn sent(&self) -> Vec<u8> {
        self.recording().sent.clone()
    }

    /// The beginning of what came.
    pub(super) fn received(&self) -> Vec<u8> {
        self.recording().received.clone()
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream with a tape on it.
///
/// It shows nothing to read before something was sent: an origin that answers at accept, as overloaded ones do, would
/// else be taken by hyper for one that speaks unasked, and its answer be lost.
#[derive(Debug)]
pub(super) struct Taped<S> {
    stream: S,
    tape: Tape,
}

impl<S> Taped<S> {
    pub(super) fn new(stream: S, tape: Tape) -> Taped<S> {
        Taped { stream, tape }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taped<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        {
            let mut recording = self.tape.recording();
            if !recording.has_sent {
                recording.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &polled {
            self.tape.recording().tls = tls::error_within(error).cloned();
        }
        let came = &buf.filled()[before..];
        if !came.is_empty() {
            let mut recording = self.tape.recording();
            let now = Instant::now();
            recording.first_read.get_or_insert(now);
            recording.last_read = Some(now);
            let keep = recording.keep;
            keep_some(&mut recording.received, came, keep);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taped<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            let mut recording = self.tape.recording();
            let keep = recording.keep;
            keep_some(&mut recording.sent, &bytes[..written], keep);
            recording.has_sent = true;
            if let Some(reader) = recording.reader.take() {
                reader.wake();
            }
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn keep_some(kept: &mut Vec<u8>, bytes: &[u8], limit: usize) {
    let room = limit.saturating_sub(kept.len());
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn the_first_byte_is_the_first_and_after_a_rewind_the_next() {
        let (mut far, near) = duplex(100);
        let tape = Tape::new(100);
        let mut near = Taped::new(near, tape.clone());
        near.write_all(b"ask").await.unwrap();
        assert_eq!(tape.first_byte(), None);
        let mut times = Vec::new();
        for _ in 0..2 {
            far.write_all(b"x").await.unwrap();
            near.read_u8().await.unwrap();
            times.push(Instant::now());
        }
        assert!(tape.first_byte().unwrap() <= times[0]);
        tape.rewind();
        assert!(tape.first_byte().unwrap() >= times[0], "nothing came since: the answer was in the last read");
        far.write_all(b"x").await.unwrap();
        near.read_u8().await.unwrap();
        assert!(tape.first_byte().unwrap() >= times[1]);
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let (mut far, near) = duplex(100);
        let tape = Tape::new(5);
        let mut near = Taped::new(near, tape.clone());
        near.write_all(b"question").await.unwrap();
        far.write_all(b"answer").await.unwrap();
        near.read_exact(&mut [0; 6]).await.unwrap();
        assert_eq!((tape.sent(), tape.received()), (b"quest".to_vec(), b"answe".to_vec()));
    }

    #[tokio::test]
    async fn an_answer_that_waits_already_is_not_taken_for_chatter() {
        let (mut far, near) = duplex(1000);
        far.write_all(b"HTTP/1.1 503 Overloaded\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let io = TokioIo::new(Taped::new(near, Tape::new(0)));
        let (mut sender, connection) = hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(http::Request::new(Empty::new())).await.unwrap();
        assert_eq!(answer.status(), 503);
        drop((sender, answer));
        connection.await.unwrap().unwrap();
    }
}
