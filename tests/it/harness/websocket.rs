//! WebSockets that are not ours: an echoing origin and a client, both tokio-tungstenite behind a blocking face.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use super::wait::PATIENCE;

/// Echoes every message; a text `close` it answers by closing. Ends when dropped.
#[derive(Debug)]
pub struct Echo {
    _runtime: Runtime,
    address: SocketAddr,
    open: Arc<AtomicUsize>,
}

/// A client's WebSocket.
#[derive(Debug)]
pub struct WebSocket {
    runtime: Runtime,
    stream: WebSocketStream<TcpStream>,
}

impl Echo {
    /// On a port of its own.
    pub fn start() -> Echo {
        let runtime = Runtime::new().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("bound");
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let open = counted.clone();
                tokio::spawn(async move {
                    let Ok(stream) = accept_async(stream).await else { return };
                    open.fetch_add(1, Relaxed);
                    echo(stream).await;
                    open.fetch_sub(1, Relaxed);
                });
            }
        });
        Echo { _runtime: runtime, address, open }
    }

    /// `127.0.0.1:41233`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// WebSockets that are open.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }
}

async fn echo(mut stream: WebSocketStream<TcpStream>) {
    while let Some(Ok(message)) = stream.next().await {
        let done = match message {
            Message::Text(text) if text.as_str() == "close" => stream.close(None).await,
            Message::Text(_) | Message::Binary(_) => stream.send(message).await,
            // Pings are answered underneath.
            _ => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}

impl WebSocket {
    /// Opens one at `path` of the proxy at `address`.
    #[track_caller]
    pub fn open(address: SocketAddr, path: &str) -> WebSocket {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let open = async {
            let stream = TcpStream::connect(address).await.expect("it connects");
            client_async(format!("ws://test.example{path}"), stream).await.expect("a handshake").0
        };
        let stream = runtime.block_on(within(open));
        WebSocket { runtime, stream }
    }

    /// Sends a text and returns what comes back.
    #[track_caller]
    pub fn say(&mut self, text: &str) -> String {
        self.send(Message::text(text));
        self.next().expect("an echo").into_text().expect("a text").to_string()
    }

    /// As [`WebSocket::say`]; `None` where it is no longer open.
    pub fn try_say(&mut self, text: &str) -> Option<String> {
        self.runtime.block_on(within(self.stream.send(Message::text(text)))).ok()?;
        self.next()?.into_text().ok().map(|text| text.to_string())
    }

    /// Sends a text that is not echoed.
    #[track_caller]
    pub fn say_nothing_but(&mut self, text: &str) {
        self.send(Message::text(text));
    }

    /// Sends so many bytes in one frame and returns what comes back.
    #[track_caller]
    pub fn throw(&mut self, bytes: Vec<u8>) -> Bytes {
        self.send(Message::binary(bytes));
        self.next().expect("an echo").into_data()
    }

    /// Sends a ping and waits for its pong.
    #[track_caller]
    pub fn ping(&mut self) {
        self.send(Message::Ping(Bytes::from_static(b"there?")));
        assert_eq!(self.next(), Some(Message::Pong(Bytes::from_static(b"there?"))));
    }

    /// Closes it as the protocol has it, and waits for the other end to do so too.
    #[track_caller]
    pub fn close(mut self) {
        self.send(Message::Close(None));
        while let Some(message) = self.next() {
            assert!(message.is_close(), "{message:?}");
        }
    }

    /// Waits until the other end closes it, in order or not.
    #[track_caller]
    pub fn await_end(&mut self) {
        while self.next().is_some() {}
    }

    #[track_caller]
    fn send(&mut self, message: Message) {
        self.runtime.block_on(within(self.stream.send(message))).expect("it can be sent");
    }

    #[track_caller]
    fn next(&mut self) -> Option<Message> {
        self.runtime.block_on(within(self.stream.next()))?.ok()
    }
}

async fn within<T>(doing: impl Future<Output = T>) -> T {
    let patience: Duration = PATIENCE;
    timeout(patience, doing).await.expect("it is done in time")
}
