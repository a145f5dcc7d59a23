//! A client of raw bytes: what is sent is what the case wrote, what comes back is parsed strictly.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::wait::PATIENCE;

/// Why a read ended when nothing came in time.
const TIMED_OUT: &str = "timed out";
/// How the reason begins when an answer's framing is wrong.
const BAD_FRAMING: &str = "bad framing";

/// An answer as the client got it.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// `HTTP/1.1`.
    pub version: String,
    /// The field lines, raw and in order.
    pub lines: Vec<String>,
    /// Decoded; of an answer that broke off, what came.
    pub body: Vec<u8>,
    /// The body ended as its framing says.
    pub complete: bool,
    /// Statuses of the interim answers before it.
    pub interim: Vec<u16>,
}

impl Reply {
    /// The values of all lines of this name.
    pub fn fields(&self, name: &str) -> Vec<&str> {
        let named = |line: &&str| line.split_once(':').is_some_and(|(n, _)| n.eq_ignore_ascii_case(name));
        self.lines.iter().map(String::as_str).filter(named).map(|line| line[name.len() + 1..].trim()).collect()
    }

    /// The value of the first line of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields(name).first().copied()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.text()))
    }
}

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects; no single read waits for longer than the suite's patience.
    #[track_caller]
    pub fn open(address: SocketAddr) -> Connection {
        Connection::try_open(address).unwrap_or_else(|e| panic!("cannot connect to {address}: {e}"))
    }

    /// Connects, or says why not.
    pub fn try_open(address: SocketAddr) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, buffer: vec![] })
    }

    /// Sends these bytes; an error is not one here, since the peer may have closed rightly: the answer tells.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Connection {
        let _ = self.try_send(bytes);
        self
    }

    /// Sends these bytes, or says why not.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// GET on this connection, which is kept.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n\r\n")).reply()
    }

    /// The answer to a request that was no HEAD; panics when there is none.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.try_reply("GET").unwrap_or_else(|e| panic!("no answer: {e}"))
    }

    /// The final answer to a request of this method, or why there is none.
    pub fn try_reply(&mut self, method: &str) -> Result<Reply, String> {
        let mut interim = vec![];
        loop {
            let mut reply = self.head()?;
            if (100..200).contains(&reply.status) && reply.status != 101 {
                interim.push(reply.status);
                continue;
            }
            reply.interim = interim;
            match self.body(method, &mut reply) {
                Err(error) if error == TIMED_OUT || error.starts_with(BAD_FRAMING) => return Err(error),
                // A reset inside the body: what came is kept, and is not complete.
                Ok(()) | Err(_) => return Ok(reply),
            }
        }
    }

    /// The next header alone, interim or final.
    pub fn head(&mut self) -> Result<Reply, String> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more()? {
                return Err(format!("closed after {:?}", String::from_utf8_lossy(&self.buffer)));
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.trim_end_matches("\r\n").split("\r\n").map(str::to_owned);
        let first = lines.next().unwrap_or_default();
        let mut words = first.splitn(3, ' ');
        let version = words.next().unwrap_or_default().to_owned();
        let status = words.next().and_then(|word| word.parse().ok()).ok_or(format!("no status line: {first:?}"))?;
        let (lines, body, interim) = (lines.collect(), vec![], vec![]);
        Ok(Reply { status, version, lines, body, complete: false, interim })
    }

    fn body(&mut self, method: &str, reply: &mut Reply) -> Result<(), String> {
        if method == "HEAD" || reply.status == 204 || reply.status == 304 || reply.status == 101 {
            reply.complete = true;
            return Ok(());
        }
        if reply.field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return self.chunks(reply);
        }
        let length = reply.field("content-length").map(|value| value.parse::<usize>());
        let length = length.transpose().map_err(|e| format!("{BAD_FRAMING}: length: {e}"))?;
        match length {
            Some(length) => reply.complete = self.exactly(length, &mut reply.body)?,
            None => {
                while self.more()? {}
                reply.body = std::mem::take(&mut self.buffer);
                reply.complete = true;
            }
        }
        Ok(())
    }

    fn chunks(&mut self, reply: &mut Reply) -> Result<(), String> {
        loop {
            let Some(line) = self.line()? else { return Ok(()) };
            let size = usize::from_str_radix(&line, 16).map_err(|e| format!("{BAD_FRAMING}: chunk {line:?}: {e}"))?;
            if size == 0 {
                while let Some(line) = self.line()? {
                    if line.is_empty() {
                        reply.complete = true;
                        return Ok(());
                    }
                }
                return Ok(());
            }
            if !self.exactly(size, &mut reply.body)? {
                return Ok(());
            }
            if self.line()?.is_none() {
                return Ok(());
            }
        }
    }

    fn exactly(&mut self, length: usize, into: &mut Vec<u8>) -> Result<bool, String> {
        while self.buffer.len() < length {
            if !self.more()? {
                into.append(&mut self.buffer);
                return Ok(false);
            }
        }
        into.extend(self.buffer.drain(..length));
        Ok(true)
    }

    fn line(&mut self) -> Result<Option<String>, String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..at]).into_owned()));
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// True when the peer has ended the connection, in order or not, within the suite's patience; what it sent before is read away.
    pub fn is_closed(&mut self) -> bool {
        loop {
            match self.more() {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => return error != TIMED_OUT,
            }
        }
    }

    /// The next `count` bytes, as they come; panics when the connection ends before.
    #[track_caller]
    pub fn take(&mut self, count: usize) -> String {
        let mut bytes = vec![];
        let whole = self.exactly(count, &mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(whole, Ok(true), "instead of {count} bytes: {text:?}");
        text
    }

    /// What comes up to and with `end`; panics when the connection ends before.
    #[track_caller]
    pub fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end.as_bytes()) {
                let text: Vec<u8> = self.buffer.drain(..at + end.len()).collect();
                return String::from_utf8_lossy(&text).into_owned();
            }
            let more = self.more();
            assert_eq!(more, Ok(true), "no {end:?} after {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    /// What comes until the peer ends the connection in order (FIN), or why it does not: a reset is no order.
    pub fn rest(&mut self) -> Result<Vec<u8>, String> {
        while self.more()? {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Bytes that came and belong to no answer yet; waits at most `time` for one.
    pub fn stray(&mut self, time: Duration) -> Vec<u8> {
        let _ = self.stream.set_read_timeout(Some(time));
        let _ = self.more();
        let _ = self.stream.set_read_timeout(Some(PATIENCE));
        std::mem::take(&mut self.buffer)
    }

    /// Whether the peer has ended it by now, as far as has been heard: what a pool of connections looks at before it uses one.
    pub fn has_ended(&self) -> bool {
        let _ = self.stream.set_nonblocking(true);
        let seen = self.stream.peek(&mut [0]);
        let _ = self.stream.set_nonblocking(false);
        match seen {
            Ok(bytes) => bytes == 0,
            Err(e) => e.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Sends no more (FIN), and goes on reading.
    pub fn end(&mut self) -> &mut Connection {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        self
    }

    /// Ends the connection with RST instead of FIN.
    pub fn reset(self) {
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// True when bytes came, false at the end of the connection.
    fn more(&mut self) -> Result<bool, String> {
        let mut scratch = [0; 16 * 1024];
        match self.stream.read(&mut scratch) {
            Ok(0) => Ok(false),
            Ok(read) => {
                self.buffer.extend_from_slice(&scratch[..read]);
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(TIMED_OUT.into()),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// GET on a connection of its own.
#[track_caller]
pub fn get(address: SocketAddr, path: &str) -> Reply {
    request(address, "GET", path, &[], "")
}

/// One request on a connection of its own; a body is sent with its Content-Length.
#[track_caller]
pub fn request(address: SocketAddr, method: &str, path: &str, fields: &[&str], body: &str) -> Reply {
    try_request(address, method, path, fields, body).unwrap_or_else(|e| panic!("{method} {path}: {e}"))
}

/// As [`request`], or why there is no answer.
pub fn try_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[&str],
    body: &str,
) -> Result<Reply, String> {
    let mut connection = Connection::try_open(address).map_err(|e| e.to_string())?;
    connection.send(head_of(method, path, fields, body)).send(body).try_reply(method)
}

/// A request's header, asking for the connection to be closed.
fn head_of(method: &str, path: &str, fields: &[&str], body: &str) -> String {
    let named = |name: &str| fields.iter().any(|line| line.to_ascii_lowercase().starts_with(name));
    let mut lines: Vec<String> = fields.iter().map(|line| (*line).to_owned()).collect();
    if !named("host:") {
        lines.insert(0, "Host: test.example".to_owned());
    }
    if !named("connection:") {
        lines.push("Connection: close".to_owned());
    }
    if !body.is_empty() || !matches!(method, "GET" | "HEAD") {
        lines.push(format!("Content-Length: {}", body.len()));
    }
    format!("{method} {path} HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"))
}
