//! Requests as they came off the wire, for the origin that answers them.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

use super::wait::{PATIENCE, now};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Which connection of this origin, from 0.
    pub connection: usize,
    /// Which request of its connection, from 0.
    pub nth: usize,
    /// The address it was sent to.
    pub local: IpAddr,
    /// The address it came from.
    pub peer: IpAddr,
    /// When its header was complete.
    pub at: Instant,
    pub method: String,
    pub target: String,
    pub version: String,
    /// The field lines, raw and in order.
    pub lines: Vec<String>,
    /// The decoded body as far as it came.
    pub body: Vec<u8>,
    /// The whole body came.
    pub complete: bool,
    /// It is the prober's, by its User-Agent.
    pub probe: bool,
}

impl Seen {
    /// The values of all lines of this name.
    pub fn fields(&self, name: &str) -> Vec<&str> {
        let named = |line: &&str| line.split_once(':').is_some_and(|(n, _)| n.eq_ignore_ascii_case(name));
        self.lines.iter().map(String::as_str).filter(named).map(|line| line[name.len() + 1..].trim()).collect()
    }

    /// The value of the first line of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields(name).first().copied()
    }
}

/// Reads requests off a connection.
pub(super) struct Reader<'a> {
    stream: &'a TcpStream,
    buffer: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(stream: &'a TcpStream) -> Reader<'a> {
        Reader { stream, buffer: vec![] }
    }

    /// The next header; `None` when the connection ends or what comes is no request.
    pub(super) fn head(&mut self, connection: usize, nth: usize) -> Option<Seen> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let text = String::from_utf8_lossy(&head);
        let mut lines = text.trim_end().split("\r\n");
        let mut first = lines.next()?.splitn(3, ' ').map(str::to_owned);
        let (method, target, version) = (first.next()?, first.next()?, first.next()?);
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        let (local, peer) = (self.stream.local_addr().ok()?.ip(), self.stream.peer_addr().ok()?.ip());
        let (body, complete, probe, at) = (vec![], false, false, now());
        let mut seen = Seen { connection, nth, local, peer, at, method, target, version, lines, body, complete, probe };
        let agent = seen.field("user-agent").unwrap_or_default();
        seen.probe = agent.starts_with("pulsegate") && agent.contains("probe");
        Some(seen)
    }

    /// Reads the body, handing out its parts; false when the connection ended before it did.
    pub(super) fn body(&mut self, seen: &Seen, mut part: impl FnMut(&[u8], bool)) -> bool {
        if seen.field("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            let mut stream = self.stream;
            let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        if seen.field("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked")) {
            return self.chunks(&mut part).is_some();
        }
        let length = seen.field("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        self.exactly(length, &mut part).map(|()| part(&[], true)).is_some()
    }

    fn chunks(&mut self, part: &mut impl FnMut(&[u8], bool)) -> Option<()> {
        loop {
            let line = self.line()?;
            let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                part(&[], true);
                return Some(());
            }
            self.exactly(size, part)?;
            self.line()?;
        }
    }

    fn exactly(&mut self, mut length: usize, part: &mut impl FnMut(&[u8], bool)) -> Option<()> {
        while length > 0 {
            if self.buffer.is_empty() {
                self.more()?;
            }
            let take = length.min(self.buffer.len());
            let bytes: Vec<u8> = self.buffer.drain(..take).collect();
            part(&bytes, false);
            length -= take;
        }
        Some(())
    }

    fn line(&mut self) -> Option<String> {
        let end = loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                break at;
            }
            self.more()?;
        };
        let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    fn more(&mut self) -> Option<()> {
        let mut scratch = [0; 16 * 1024];
        let _ = self.stream.set_read_timeout(Some(2 * PATIENCE));
        let mut stream = self.stream;
        let read = stream.read(&mut scratch).ok().filter(|read| *read > 0)?;
        self.buffer.extend_from_slice(&scratch[..read]);
        Some(())
    }
}
