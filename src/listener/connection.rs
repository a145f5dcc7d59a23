//! What is known of one client connection: where in its life it is, and by when it must move on.
//!
//! Pingora reads a request's header with a deadline per read, which a slow client can renew for ever, and its hooks
//! never see a request that ends before it was parsed. Both are seen from the stream, so they are kept here: the
//! [`Conduit`](super::stream::Conduit) tells of bytes, the proxy's hooks tell of requests, and whoever asks gets one
//! answer. Everything is an atomic: one task writes, nobody waits.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::tunnel::{Terms, Tunnel};
use super::{Listening, Wait};
use crate::clock;
use crate::telemetry::metrics::ListenerCounts;

tokio::task_local! {
    /// The connection whose task this is: Pingora's `new_ctx` has no other way to ask.
    pub static CONNECTION: Arc<Connection>;
}

/// A status and the whole answer.
type Answer = (u16, &'static str);

const BAD_REQUEST: Answer = (
    400,
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 16\r\n\
     Proxy-Status: pulsegate; error=http_request_error\r\nConnection: close\r\n\r\n400 Bad Request\n",
);
const REQUEST_TIMEOUT: Answer = (
    408,
    "HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 20\r\n\
     Proxy-Status: pulsegate; error=http_request_error\r\nConnection: close\r\n\r\n408 Request Timeout\n",
);
const HEADER_TOO_LARGE: Answer = (
    431,
    "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 36\r\n\
     Proxy-Status: pulsegate; error=http_request_error\r\nConnection: close\r\n\r\n\
     431 Request Header Fields Too Large\n",
);

/// A body's length is not known before its end.
const UNKNOWN: u64 = u64::MAX;

/// Nor is it now, but the stream sees where it ends: it comes in chunks.
const CHUNKED: u64 = UNKNOWN - 1;

/// A body of so many bytes may be more than a member takes at once; what is less goes into buffers on the way.
const UPLOAD: u64 = 16 << 10;

/// No deadline.
const NEVER: u64 = u64::MAX;

/// Where in its life a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Accepted; nothing has come yet.
    Fresh,
    /// Part of a request's header is here.
    Header,
    /// A request is being served.
    Request,
    /// Between requests.
    Idle,
}

/// Why the stream ended a request before Pingora could see it, or over its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    /// Nothing was cut.
    None,
    /// The header was not complete in time.
    HeaderTimeout,
    /// The header is larger than allowed.
    HeaderTooLarge,
    /// What came is no request's first line.
    Malformed,
    /// The request's own deadline is over.
    Deadline,
    /// The client took no byte of the answer for too long.
    WriteTimeout,
    /// Nothing passed through the tunnel for too long.
    TunnelIdle,
    /// The tunnel's member has left the pool, and its time is over.
    TunnelDrained,
    /// The client left while nobody read from it.
    Left,
    /// The member that was waited for does not answer, as is known by now.
    CalledAway,
}

/// One client connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    client: SocketAddr,
    /// The client's address as text: every request says it twice.
    peer: Box<str>,
    listening: Arc<Listening>,
    /// Among whose connections it counts: its listener's, by the name it had when this one came.
    counts: Arc<ListenerCounts>,
    phase: AtomicU8,
    /// Monotonic microseconds.
    deadline: AtomicU64,
    header_bytes: AtomicUsize,
    /// When the present request's first byte came, monotonic microseconds.
    began: AtomicU64,
    cut: AtomicU8,
    /// All of the present request is here: what comes now belongs to the next.
    whole: AtomicBool,
    /// Nothing is read: it is only watched for its end.
    watched: AtomicBool,
    /// Bytes of its body that have yet to come, where their number is known.
    body_left: AtomicU64,
    /// The status of an answer that was written while no request was being served.
    own_status: AtomicU16,
    /// Bytes of its body, and when it was given, monotonic microseconds.
    own_bytes: AtomicUsize,
    answered: AtomicU64,
    /// Bytes of the present request's body, as they came.
    upload: AtomicU64,
    /// Of a client that uploads, waits for a dial, or is let go: the socket, for whoever looks after it from outside.
    handle: ArcSwapOption<OwnedFd>,
    /// The stream was read from lately.
    read_from: AtomicBool,
    /// What the client is still to be told over a request that was given up.
    last_word: OnceLock<String>,
    /// Bytes of a write to the client that is done in part.
    part_written: AtomicU64,
    tunnel: Tunnel,
    wait: Wait,
    /// Its request has no connection to a member yet, and waits for one.
    dials: AtomicBool,
}

impl Connection {
    /// A connection accepted at `now`, which counts among `counts`.
    pub fn new(
        id: u64,
        client: SocketAddr,
        listening: Arc<Listening>,
        counts: Arc<ListenerCounts>,
        now: Duration,
    ) -> Connection {
        let deadline = micros(now + listening.limits().header_timeout);
        Connection {
            id,
            client,
            peer: client.ip().to_canonical().to_string().into(),
            listening,
            counts,
            phase: AtomicU8::new(Phase::Fresh as u8),
            deadline: AtomicU64::new(deadline),
            header_bytes: AtomicUsize::new(0),
            began: AtomicU64::new(micros(now)),
            cut: AtomicU8::new(Cut::None as u8),
            whole: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            body_left: AtomicU64::new(UNKNOWN),
            own_status: AtomicU16::new(0),
            own_bytes: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            upload: AtomicU64::new(0),
            handle: ArcSwapOption::empty(),
            read_from: AtomicBool::new(false),
            last_word: OnceLock::new(),
            part_written: AtomicU64::new(0),
            tunnel: Tunnel::default(),
            wait: Wait::default(),
            dials: AtomicBool::new(false),
        }
    }

    /// Unique in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The peer.
    pub fn client(&self) -> SocketAddr {
        self.client
    }

    /// Its address as text; an IPv4 client of a dual-stack listener as what it is.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The listener it came in by.
    pub fn listening(&self) -> &Arc<Listening> {
        &self.listening
    }

    /// Among whose connections it counts.
    pub fn counts(&self) -> &ListenerCounts {
        &self.counts
    }

    /// Where in its life it is.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Fresh,
            1 => Phase::Header,
            2 => Phase::Request,
            _ => Phase::Idle,
        }
    }

    /// What the stream cut short.
    pub fn cut(&self) -> Cut {
        match self.cut.load(Relaxed) {
            1 => Cut::HeaderTimeout,
            2 => Cut::HeaderTooLarge,
            3 => Cut::Malformed,
            4 => Cut::Deadline,
            5 => Cut::WriteTimeout,
            6 => Cut::TunnelIdle,
            7 => Cut::TunnelDrained,
            8 => Cut::Left,
            9 => Cut::CalledAway,
            _ => Cut::None,
        }
    }

    /// By when something must happen, in monotonic time.
    pub fn deadline(&self) -> Option<Duration> {
        match self.deadline.load(Relaxed) {
            NEVER => None,
            at => Some(Duration::from_micros(at)),
        }
    }

    /// When the present request's first byte came.
    pub fn began(&self) -> Duration {
        Duration::from_micros(self.began.load(Relaxed))
    }

    /// The status that was answered over a header that never became a request; 0 if none was.
    pub fn own_status(&self) -> u16 {
        self.own_status.load(Relaxed)
    }

    /// Bytes of the body of that answer.
    pub fn own_bytes(&self) -> u64 {
        self.own_bytes.load(Relaxed) as u64
    }

    /// When the present request was over: answered by us, or given up just now.
    pub fn over(&self) -> Duration {
        match self.answered.load(Relaxed) {
            0 => clock::monotonic(),
            at => Duration::from_micros(at),
        }
    }

    /// Whether the header that is being read has outgrown its limit.
    pub fn header_is_too_large(&self) -> bool {
        self.phase() == Phase::Header && self.header_bytes.load(Relaxed) > self.listening.limits().max_header_bytes
    }

    /// `bytes` came in at `now`. Empty lines before a request are none of it (RFC 9112 section 2.2).
    pub fn received(&self, bytes: &[u8], now: Duration) {
        let begun = self.phase() == Phase::Header;
        if !begun && bytes.iter().all(|b| matches!(b, b'\r' | b'\n')) {
            return;
        }
        let bytes = bytes.len();
        match self.phase() {
            Phase::Fresh => self.header_begins(bytes, now),
            Phase::Idle => {
                self.header_begins(bytes, now);
                self.deadline.store(micros(now + self.listening.limits().header_timeout), Relaxed);
            }
            Phase::Header => {
                self.header_bytes.fetch_add(bytes, Relaxed);
            }
            Phase::Request => {}
        }
    }

    /// The answer to a header that was cut short, once.
    pub fn take_answer(&self) -> Option<&'static str> {
        if self.phase() != Phase::Header || self.own_status() != 0 {
            return None;
        }
        match self.cut() {
            Cut::HeaderTimeout => Some(self.answer(REQUEST_TIMEOUT)),
            Cut::HeaderTooLarge => Some(self.answer(HEADER_TOO_LARGE)),
            Cut::Malformed => Some(self.answer(BAD_REQUEST)),
            Cut::None
            | Cut::Deadline
            | Cut::WriteTimeout
            | Cut::TunnelIdle
            | Cut::TunnelDrained
            | Cut::Left
            | Cut::CalledAway => None,
        }
    }

    /// Pingora answers something that never became a request: tells what to send in its stead, so that all answers of
    /// this proxy look alike; nothing for the rest of such an answer.
    pub fn sent_instead(&self) -> Option<&'static str> {
        if self.phase() == Phase::Request {
            return None;
        }
        if self.own_status() != 0 {
            return Some("");
        }
        Some(self.answer(BAD_REQUEST))
    }

    fn answer(&self, (status, answer): (u16, &'static str)) -> &'static str {
        self.own_status.store(status, Relaxed);
        self.own_bytes.store(answer.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len()), Relaxed);
        self.answered.store(micros(clock::monotonic()), Relaxed);
        answer
    }

    /// A request's header is complete.
    pub fn request_begins(&self) {
        if matches!(self.phase(), Phase::Fresh | Phase::Idle) {
            // It was pipelined: all of it came with the request before.
            self.began.store(micros(clock::monotonic()), Relaxed);
        }
        self.phase.store(Phase::Request as u8, Relaxed);
        self.dial_ends();
        self.whole.store(false, Relaxed);
        self.body_left.store(UNKNOWN, Relaxed);
        self.deadline.store(NEVER, Relaxed);
        if self.upload.swap(0, Relaxed) >= UPLOAD {
            self.let_go();
        }
    }

    /// So many bytes of a body came; true when it has just become an upload that a member may be slow to take.
    pub fn uploaded(&self, bytes: usize) -> bool {
        let before = self.upload.fetch_add(bytes as u64, Relaxed);
        before < UPLOAD && before + bytes as u64 >= UPLOAD
    }

    /// Keeps a handle of the client's socket until the upload, or the dial, is over, or beyond its stream.
    pub fn keep(&self, handle: OwnedFd) {
        self.handle.store(Some(Arc::new(handle)));
    }

    /// The client's socket, while it uploads or may be dialled for, or once it was let go.
    pub fn handle(&self) -> Option<Arc<OwnedFd>> {
        self.handle.load_full()
    }

    /// Its request is to get a connection to a member. Until that is there, or is known not to come, it has no limit but the
    /// dial's, and nothing is asked of the client's stream but whether the client is still there.
    pub fn dial_begins(&self) {
        self.dials.store(true, Relaxed);
    }

    /// The client's socket, for whoever watches the client during a dial; that of an upload is kept here as well.
    pub fn handle_for_dial(&self) -> Option<Arc<OwnedFd>> {
        if self.upload.load(Relaxed) < UPLOAD { self.let_go() } else { self.handle() }
    }

    /// The connection is there, or will not be.
    pub fn dial_ends(&self) {
        if self.dials.swap(false, Relaxed) && self.upload.load(Relaxed) < UPLOAD {
            self.let_go();
        }
    }

    /// Whether its request waits for a connection to a member.
    pub fn is_dialling(&self) -> bool {
        self.dials.load(Relaxed)
    }

    /// Gives up the client's socket.
    pub fn let_go(&self) -> Option<Arc<OwnedFd>> {
        self.handle.swap(None)
    }

    /// The stream is being read from.
    pub fn reads(&self) {
        self.read_from.store(true, Relaxed);
    }

    /// Whether the stream was read from since this was asked last.
    pub fn was_read_from(&self) -> bool {
        self.read_from.swap(false, Relaxed)
    }

    /// Leaves an answer, the connection's last, for a client whose request is given up.
    pub fn leave_word(&self, answer: String) {
        let _ = self.last_word.set(answer);
    }

    /// The answer that was left.
    pub fn last_word(&self) -> Option<&str> {
        self.last_word.get().map(String::as_str)
    }

    /// All of the request is here.
    pub fn request_is_whole(&self) -> bool {
        self.whole.load(Relaxed)
    }

    /// Says whether all of the request is here.
    pub fn set_request_whole(&self, whole: bool) {
        self.whole.store(whole, Relaxed);
    }

    /// The request has a body of so many bytes.
    pub fn expect_body(&self, bytes: u64) {
        self.body_left.store(bytes, Relaxed);
    }

    /// The connection becomes a tunnel: whatever comes belongs to it.
    pub fn become_tunnel(&self, terms: Terms) {
        self.set_request_whole(false);
        self.expect_body(UNKNOWN);
        self.tunnel.open(terms, clock::monotonic());
    }

    /// The request has a body in chunks: the stream finds its end, and says with [`Connection::expect_body`] that none is left.
    pub fn expect_chunks(&self) {
        self.expect_body(CHUNKED);
    }

    /// Whether a body in chunks has not come to its end.
    pub fn awaits_chunks(&self) -> bool {
        self.body_left.load(Relaxed) == CHUNKED
    }

    /// Bytes of a write to the client that is done in part, and counted by nobody yet.
    pub fn part_written(&self) -> u64 {
        self.part_written.load(Relaxed)
    }

    /// Says how much of a write is done; nothing once it is whole.
    pub fn set_part_written(&self, bytes: u64) {
        self.part_written.store(bytes, Relaxed);
    }

    /// What its request waits for.
    pub fn wait(&self) -> &Wait {
        &self.wait
    }

    /// What it is as a tunnel.
    pub fn tunnel(&self) -> &Tunnel {
        &self.tunnel
    }

    /// Of `bytes` that came while a request is served, how many are its own.
    pub fn own_share(&self, bytes: usize) -> usize {
        match self.body_left.load(Relaxed) {
            UNKNOWN | CHUNKED => bytes,
            left => {
                let own = left.min(bytes as u64);
                self.body_left.store(left - own, Relaxed);
                own as usize
            }
        }
    }

    /// From now on what comes is left in the kernel, and a read ends only when the client leaves; until what this returns is
    /// dropped.
    pub fn watch(&self) -> Watch<'_> {
        self.watched.store(true, Relaxed);
        // It has no limit in time of its own while it is watched.
        self.request_must_end_by(None);
        Watch(self)
    }

    /// Whether it is only watched.
    pub fn is_watched(&self) -> bool {
        self.watched.load(Relaxed)
    }

    /// Whether nothing more of the present request is to come.
    pub fn awaits_nothing(&self) -> bool {
        self.request_is_whole() || self.body_left.load(Relaxed) == 0
    }

    /// The request being served must be over by then; what was cut before is forgotten.
    pub fn request_must_end_by(&self, deadline: Option<Duration>) {
        self.cut.store(Cut::None as u8, Relaxed);
        self.deadline.store(deadline.map_or(NEVER, micros), Relaxed);
    }

    /// The request is answered and the next may come, but not for ever.
    pub fn request_ended(&self, now: Duration) {
        self.phase.store(Phase::Idle as u8, Relaxed);
        self.began.store(micros(now), Relaxed);
        self.header_bytes.store(0, Relaxed);
        self.own_status.store(0, Relaxed);
        self.own_bytes.store(0, Relaxed);
        self.answered.store(0, Relaxed);
        if self.upload.swap(0, Relaxed) >= UPLOAD {
            self.let_go();
        }
        self.deadline.store(micros(now + self.listening.limits().keepalive_timeout), Relaxed);
    }

    /// The deadline passed, or a limit was hit: says what that means where the connection stands.
    pub fn cut_short(&self, why: Cut) {
        self.cut.store(why as u8, Relaxed);
        self.deadline.store(NEVER, Relaxed);
    }

    /// What a deadline that passed in the present phase means.
    pub fn expire(&self) {
        self.cut_short(match self.phase() {
            Phase::Header => Cut::HeaderTimeout,
            Phase::Request => Cut::Deadline,
            Phase::Fresh | Phase::Idle => Cut::None,
        });
    }

    fn header_begins(&self, bytes: usize, now: Duration) {
        self.phase.store(Phase::Header as u8, Relaxed);
        self.header_bytes.store(bytes, Relaxed);
        self.began.store(micros(now), Relaxed);
    }
}

/// Nothing is read from a connection as long as this lives.
#[derive(Debug)]
pub struct Watch<'a>(&'a Connection);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.watched.store(false, Relaxed);
    }
}

fn micros(moment: Duration) -> u64 {
    moment.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canned_answers_are_as_long_as_they_say() {
        for (status, answer) in [BAD_REQUEST, REQUEST_TIMEOUT, HEADER_TOO_LARGE] {
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        }
    }
}
