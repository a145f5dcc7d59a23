//! Origins that do as they are told, byte by byte.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// One thing an origin does with a connection.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Reads to the end of the request's header.
    Read,
    /// Writes these bytes, apart from the next ones as far as one can tell TCP so.
    Write(Vec<u8>),
    /// Writes these bytes again and again for as long as anybody takes them.
    Flood(Vec<u8>),
    /// Does nothing until the other end closes.
    Hang,
    /// Resets the connection.
    Reset,
}

/// An origin on a port of its own; it plays its script on every connection and then closes it.
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    requests: mpsc::UnboundedReceiver<String>,
    task: JoinHandle<()>,
}

impl Origin {
    pub(super) async fn playing(script: Vec<Step>) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(play_tcp(stream, script.clone(), sender.clone()));
            }
        });
        Origin { address, requests, task }
    }

    /// Reads a request, answers with these pieces, closes.
    pub(super) async fn answering<P: AsRef<[u8]>>(pieces: &[P]) -> Origin {
        let writes = pieces.iter().map(|piece| Step::Write(piece.as_ref().to_vec()));
        Origin::playing(std::iter::once(Step::Read).chain(writes).collect()).await
    }

    /// The same, but leaves the connection open.
    pub(super) async fn answering_and_staying<P: AsRef<[u8]>>(pieces: &[P]) -> Origin {
        let writes = pieces.iter().map(|piece| Step::Write(piece.as_ref().to_vec()));
        Origin::playing(std::iter::once(Step::Read).chain(writes).chain([Step::Hang]).collect()).await
    }

    /// The next request's header, as it came.
    pub(super) async fn request(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn play_tcp(mut stream: TcpStream, script: Vec<Step>, requests: mpsc::UnboundedSender<String>) {
    if play(&mut stream, script, requests).await {
        stream.set_zero_linger().unwrap();
    }
}

/// Plays a script; true where it ends with a reset.
pub(super) async fn play<S>(stream: &mut S, script: Vec<Step>, requests: mpsc::UnboundedSender<String>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    for step in script {
        match step {
            Step::Read => {
                let Some(request) = read_header(stream).await else { return false };
                let _ = requests.send(request);
            }
            Step::Write(bytes) => {
                if write(stream, &bytes).await.is_err() {
                    return false;
                }
            }
            Step::Flood(bytes) => while write(stream, &bytes).await.is_ok() {},
            Step::Hang => while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {},
            Step::Reset => return true,
        }
    }
    let _ = stream.shutdown().await;
    // What was not read would turn the close into a reset that overtakes the answer.
    while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
    false
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await?;
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn read_header<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut header = Vec::new();
    while !header.ends_with(b"\r\n\r\n") {
        header.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(header).ok()
}

/// `HTTP/1.1 200 OK` with a Content-Length.
pub(super) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
