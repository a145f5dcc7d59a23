//! Origins of HTTP/2 that answer frame by frame, rightly or not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// A frame, or what an origin does instead of sending one.
#[derive(Debug, Clone)]
pub(super) enum Frame {
    /// On the stream of the request.
    Stream(u8, u8, Vec<u8>),
    /// Of the connection.
    Connection(u8, u8, Vec<u8>),
    /// Bytes that are no frame.
    Bytes(Vec<u8>),
    /// The connection is closed.
    Close,
    /// Waits until somebody has closed it.
    Hang,
}

/// The header of an answer, after which more comes.
pub(super) fn head(fields: &[(&str, &str)]) -> Frame {
    Frame::Stream(HEADERS, END_HEADERS, packed(fields))
}

/// A header with which the answer ends: all of it, or its trailers.
pub(super) fn last(fields: &[(&str, &str)]) -> Frame {
    Frame::Stream(HEADERS, END_HEADERS | END_STREAM, packed(fields))
}

/// A piece of the body, after which more comes.
pub(super) fn data(bytes: &[u8]) -> Frame {
    Frame::Stream(DATA, 0, bytes.to_vec())
}

/// The last piece.
pub(super) fn end(bytes: &[u8]) -> Frame {
    Frame::Stream(DATA, END_STREAM, bytes.to_vec())
}

/// RST_STREAM.
pub(super) fn reset(code: u32) -> Frame {
    Frame::Stream(3, 0, code.to_be_bytes().to_vec())
}

/// GOAWAY: `seen` is the last stream that was looked at.
pub(super) fn goaway(seen: u32, code: u32) -> Frame {
    Frame::Connection(7, 0, [seen.to_be_bytes(), code.to_be_bytes()].concat())
}

/// Fields without compression (RFC 7541 section 6.2.2).
fn packed(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// An origin that answers the requests of each connection in order, the later ones like the last.
pub(super) struct Frames {
    pub(super) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Frames {
    /// `answers[n]` is what the n-th request of a connection gets.
    pub(super) async fn answering(answers: Vec<Vec<Frame>>) -> Frames {
        Frames::each(move |_| answers.clone()).await
    }

    /// The same, by the number of the connection.
    pub(super) async fn each(answers: impl Fn(usize) -> Vec<Vec<Frame>> + Send + 'static) -> Frames {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answers = answers(count.fetch_add(1, Relaxed));
                tokio::spawn(async move {
                    let _ = play(&mut stream, &answers).await;
                    let _ = stream.shutdown().await;
                    // What was not read would turn the close into a reset that overtakes the answer.
                    while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
                });
            }
        });
        Frames { address, accepted, task }
    }

    /// Connections so far.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Relaxed)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn play<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, answers: &[Vec<Frame>]) -> std::io::Result<()> {
    stream.read_exact(&mut [0; PREFACE]).await?;
    stream.write_all(&bytes(SETTINGS, 0, 0, &[])).await?;
    let mut nth = 0;
    loop {
        let (kind, flags, id, payload) = read(stream).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&bytes(SETTINGS, ACK, 0, &[])).await?,
            PING if flags & ACK == 0 => stream.write_all(&bytes(PING, ACK, 0, &payload)).await?,
            HEADERS | DATA if flags & END_STREAM != 0 => {
                let Some(answer) = answers.get(nth).or(answers.last()) else { return Ok(()) };
                nth += 1;
                for frame in answer {
                    match frame {
                        Frame::Stream(kind, flags, payload) => {
                            stream.write_all(&bytes(*kind, *flags, id, payload)).await?;
                        }
                        Frame::Connection(kind, flags, payload) => {
                            stream.write_all(&bytes(*kind, *flags, 0, payload)).await?;
                        }
                        Frame::Bytes(bytes) => stream.write_all(bytes).await?,
                        Frame::Close => return Ok(()),
                        Frame::Hang => while stream.read(&mut [0; 1024]).await? > 0 {},
                    }
                }
            }
            _ => {}
        }
    }
}

fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<(u8, u8, u32, Vec<u8>)> {
    let mut header = [0; 9];
    stream.read_exact(&mut header).await?;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await?;
    let id = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
    Ok((header[3], header[4], id, payload))
}
