//! A load of a fixed pace: requests start when they are due, whether or not those before were quick.
//!
//! Not here: `harness::Load`, which waits after each answer and is no rate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::harness::Connection;
use crate::harness::eventually;
use crate::harness::nginx::Nginx;
use crate::harness::wait::{now, pause};

/// What is asked, how often, and on what connections.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Each is a thread with one request at a time.
    pub clients: usize,
    /// Requests in a second, of all clients together.
    pub rate: usize,
    /// How connections are used.
    pub connections: Connections,
    pub method: &'static str,
    /// Each request's target is this and a number of its own.
    pub path: &'static str,
}

/// How connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Until the proxy says `Connection: close`.
    Kept,
    /// One for each request.
    New,
}

/// A running load; stopped when dropped.
#[derive(Debug)]
pub struct Paced {
    stop: Arc<AtomicBool>,
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    done: Arc<AtomicUsize>,
    thread: Option<JoinHandle<Tally>>,
}

/// What came back.
#[derive(Debug, Default)]
pub struct Tally {
    /// Complete answers by status.
    pub statuses: BTreeMap<u16, usize>,
    /// Requests without a complete answer, each with its reason.
    pub failures: Vec<String>,
    /// When a request was sent, and how long until its answer was whole.
    pub took: Vec<(Instant, Duration)>,
    /// Complete answers of 200 whose body does not carry the target that was asked for, as nginx's does here.
    pub strange: usize,
    /// Connections that were to be kept and that the proxy closed: with an answer, or later.
    pub closed: usize,
}

impl Tally {
    /// All requests.
    pub fn total(&self) -> usize {
        self.statuses.values().sum::<usize>() + self.failures.len()
    }

    /// Requests without a complete 200.
    pub fn failed(&self) -> usize {
        self.total() - self.statuses.get(&200).copied().unwrap_or_default()
    }

    /// Why requests failed, in a few words.
    pub fn reasons(&self) -> String {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        self.failures.iter().for_each(|reason| *reasons.entry(reason.clone()).or_default() += 1);
        let statuses = self.statuses.iter().filter(|(status, _)| **status != 200);
        statuses.for_each(|(status, count)| *reasons.entry(status.to_string()).or_default() += count);
        let shown: Vec<String> = reasons.iter().take(5).map(|(reason, count)| format!("{count} × {reason}")).collect();
        if shown.is_empty() { "none".to_owned() } else { shown.join("; ") }
    }

    /// That of which so many of a hundred took no longer, of those sent within this time.
    pub fn percentile(&self, percent: usize, when: &Range<Instant>) -> Duration {
        let mut took: Vec<Duration> =
            self.took.iter().filter(|(sent, _)| when.contains(sent)).map(|(_, took)| *took).collect();
        took.sort_unstable();
        took.get((took.len() * percent / 100).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// Takes another's into this one.
    pub fn add(&mut self, other: Tally) {
        other.statuses.into_iter().for_each(|(status, count)| *self.statuses.entry(status).or_default() += count);
        self.failures.extend(other.failures);
        self.took.extend(other.took);
        self.strange += other.strange;
        self.closed += other.closed;
    }
}

impl Paced {
    /// Starts what is wished for.
    pub fn start(address: SocketAddr, wish: Wish) -> Paced {
        let (stop, began) = (Arc::new(AtomicBool::new(false)), now());
        let every = Duration::from_secs_f64(wish.clients as f64 / wish.rate as f64);
        let client = |n: usize| {
            let done = Arc::new(AtomicUsize::new(0));
            let (stop, counted) = (stop.clone(), done.clone());
            let first = began + every * n as u32 / wish.clients as u32;
            let thread = thread::spawn(move || Caller { address, wish, n }.drive(first, every, &stop, &counted));
            Client { done, thread: Some(thread) }
        };
        let clients = (0..wish.clients).map(client).collect();
        Paced { stop, clients }
    }

    /// A small load on a member itself, past the proxy: what the machine alone does to requests meanwhile.
    pub fn past(member: &Nginx) -> Paced {
        let address = member.address().parse().expect("an address");
        let wish = Wish { clients: 4, rate: 100, connections: Connections::Kept, method: "GET", path: "/past" };
        Paced::start(address, wish)
    }

    /// Waits until every client has finished so many more requests; the first of them was begun before.
    #[track_caller]
    pub fn await_each(&self, more: usize) {
        let wanted: Vec<usize> = self.clients.iter().map(|client| client.done.load(SeqCst) + more).collect();
        eventually("every client of the load goes on", || {
            self.clients.iter().zip(&wanted).all(|(client, wanted)| client.done.load(SeqCst) >= *wanted)
        });
    }

    /// Waits until every request that is under way now is over.
    #[track_caller]
    pub fn fence(&self) {
        self.await_each(2);
    }

    /// No more requests are begun.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
    }

    /// Ends the load and says what came back.
    pub fn finish(mut self) -> Tally {
        self.stop();
        let mut all = Tally::default();
        for client in &mut self.clients {
            if let Some(thread) = client.thread.take() {
                all.add(thread.join().expect("a client does not panic"));
            }
        }
        all
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A complete answer.
struct Answered {
    status: u16,
    carries_target: bool,
    /// The proxy wants the connection to end.
    closes: bool,
}

/// One client.
struct Caller {
    address: SocketAddr,
    wish: Wish,
    n: usize,
}

impl Caller {
    fn drive(&self, first: Instant, every: Duration, stop: &AtomicBool, done: &AtomicUsize) -> Tally {
        let (mut tally, mut kept, mut due) = (Tally::default(), None, first);
        for i in 0_usize.. {
            pause(due.saturating_duration_since(now()));
            if stop.load(SeqCst) {
                break;
            }
            // A load that could not keep up does not make up for it with a burst.
            due = due.max(now().checked_sub(every).unwrap_or(due)) + every;
            let sent = now();
            tally.closed += usize::from(kept.take_if(|kept: &mut Connection| kept.has_ended()).is_some());
            match self.ask(&mut kept, i) {
                Ok(Answered { status, carries_target, closes }) => {
                    *tally.statuses.entry(status).or_default() += 1;
                    tally.strange += usize::from(status == 200 && !carries_target);
                    tally.closed += usize::from(closes && self.wish.connections == Connections::Kept);
                    tally.took.push((sent, now() - sent));
                }
                Err(reason) => tally.failures.push(reason),
            }
            done.fetch_add(1, SeqCst);
        }
        tally
    }

    fn ask(&self, kept: &mut Option<Connection>, i: usize) -> Result<Answered, String> {
        let Wish { method, path, connections, .. } = self.wish;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => Connection::try_open(self.address).map_err(|e| format!("connect: {e}"))?,
        };
        let close = if connections == Connections::New { "Connection: close\r\n" } else { "" };
        let length = if method == "POST" { "Content-Length: 4\r\n" } else { "" };
        let body = if method == "POST" { "body" } else { "" };
        let target = format!("{path}/{}-{i}", self.n);
        let request = format!("{method} {target} HTTP/1.1\r\nHost: test.example\r\n{close}{length}\r\n{body}");
        connection.try_send(request).map_err(|e| format!("send: {e}"))?;
        let reply = connection.try_reply(method)?;
        if !reply.complete {
            return Err(format!("{} broke off", reply.status));
        }
        let closes = reply.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if !closes {
            *kept = Some(connection);
        }
        let carries_target = reply.text().ends_with(&format!("{target}\n"));
        Ok(Answered { status: reply.status, carries_target, closes })
    }
}
