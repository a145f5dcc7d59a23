//! A steady load: a few keep-alive clients that send GETs at a modest pace until told to stop, and count what comes back.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::client::Connection;
use super::wait::{eventually, pause};

/// Time between a client's answer and its next request: the load must not starve the probes on a small machine.
const PACE: Duration = Duration::from_millis(2);

/// A running load.
#[derive(Debug)]
pub struct Load {
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
    /// Answers by status.
    pub statuses: BTreeMap<u16, usize>,
    /// Requests without a complete answer, each with its reason.
    pub failures: Vec<String>,
}

impl Tally {
    /// All requests.
    pub fn total(&self) -> usize {
        self.statuses.values().sum::<usize>() + self.failures.len()
    }

    /// Panics unless every request got a complete 200.
    #[track_caller]
    pub fn assert_all_ok(&self) {
        assert!(self.failures.is_empty(), "failed requests: {:?}", self.failures);
        assert!(self.statuses.keys().all(|status| *status == 200), "not all 200: {:?}", self.statuses);
        assert!(self.total() > 0, "the load sent nothing");
    }
}

impl Load {
    /// Starts `clients` clients that GET `path`.
    pub fn start(address: SocketAddr, clients: usize, path: &str) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let done = Arc::new(AtomicUsize::new(0));
            let (stop, counter, path) = (Arc::clone(&stop), Arc::clone(&done), path.to_owned());
            let thread = thread::spawn(move || drive(address, &path, &stop, &counter));
            Client { done, thread: Some(thread) }
        };
        let clients = (0..clients).map(client).collect();
        Load { stop, clients }
    }

    /// Waits until every request that is under way now is over.
    #[track_caller]
    pub fn fence(&self) {
        self.await_each(2);
    }

    /// Waits until every client has finished `more` requests from now on (the first of them was begun before).
    #[track_caller]
    pub fn await_each(&self, more: usize) {
        let wanted: Vec<usize> = self.clients.iter().map(|c| c.done.load(Ordering::SeqCst) + more).collect();
        eventually("every client of the load goes on", || {
            self.clients.iter().zip(&wanted).all(|(c, wanted)| c.done.load(Ordering::SeqCst) >= *wanted)
        });
    }

    /// Ends the load and says what came back.
    pub fn finish(mut self) -> Tally {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Tally::default();
        for client in &mut self.clients {
            let Some(thread) = client.thread.take() else { continue };
            let tally = thread.join().expect("a client does not panic");
            tally.statuses.into_iter().for_each(|(status, count)| *all.statuses.entry(status).or_default() += count);
            all.failures.extend(tally.failures);
        }
        all
    }
}

/// A case that fails leaves no clients behind.
impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

fn drive(address: SocketAddr, path: &str, stop: &AtomicBool, done: &AtomicUsize) -> Tally {
    let mut tally = Tally::default();
    let mut kept: Option<Connection> = None;
    while !stop.load(Ordering::SeqCst) {
        let mut connection = match kept.take().map_or_else(|| Connection::try_open(address), Ok) {
            Ok(connection) => connection,
            Err(e) => {
                tally.failures.push(format!("connect: {e}"));
                done.fetch_add(1, Ordering::SeqCst);
                pause(PACE);
                continue;
            }
        };
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
        match connection.try_reply("GET") {
            Ok(reply) if reply.complete => {
                *tally.statuses.entry(reply.status).or_default() += 1;
                if reply.field("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")) {
                    kept = Some(connection);
                }
            }
            Ok(reply) => tally.failures.push(format!("{} broke off after {} bytes", reply.status, reply.body.len())),
            Err(e) => tally.failures.push(e),
        }
        done.fetch_add(1, Ordering::SeqCst);
        pause(PACE);
    }
    tally
}
