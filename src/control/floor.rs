//! Threads that serve, one accept loop of each listener on each.
//!
//! Each thread has a runtime and an engine of its own: a connection stays where it was accepted, and so do those to members
//! that its requests dialled. Threads outlive listeners, and with them those pooled connections.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::SetupError;
use crate::config;
use crate::listener::{self, LastCall, Listening, Lobby};
use crate::proxy::Engine;

/// How long a closed listener's sockets are waited for.
const CLOSING: Duration = Duration::from_secs(1);

/// A bound listener and its sockets, one for each thread.
pub type Bound = (Arc<Listening>, Vec<TcpListener>);

/// How many threads serve: as many as `wanted`, or one for each processor.
pub fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Binds every listener for `threads`, or none.
pub fn bind(listeners: &[config::Listener], threads: usize) -> Result<Vec<Bound>, SetupError> {
    listeners.iter().map(|listener| bind_one(listener, threads)).collect()
}

fn bind_one(wanted: &config::Listener, threads: usize) -> Result<Bound, SetupError> {
    let address = wanted.address;
    let sockets = listener::bind(address, threads).map_err(|cause| SetupError::Bind { address, cause })?;
    let bound = sockets.first().and_then(|socket| socket.local_addr().ok());
    Ok((Arc::new(Listening::new(wanted, bound.unwrap_or(address))), sockets))
}

/// The threads, and what they serve.
#[derive(Debug)]
pub struct Floor {
    workers: Mutex<Vec<Worker>>,
    doors: Mutex<Doors>,
}

#[derive(Debug, Default)]
struct Doors {
    open: Vec<Door>,
    /// The process is ending: none opens any more, not even for a reload that was under way.
    closed_for_good: bool,
}

/// A listener that is open.
#[derive(Debug)]
struct Door {
    listening: Arc<Listening>,
    /// Ends when all its accept loops have.
    loops: mpsc::Receiver<Infallible>,
}

/// An accept loop holds it for as long as it has its socket.
type Looping = mpsc::Sender<Infallible>;

struct Worker {
    orders: UnboundedSender<Order>,
    thread: JoinHandle<()>,
    last_call: Arc<LastCall>,
}

#[derive(Debug)]
enum Order {
    Accept(Arc<Listening>, TcpListener, Looping),
    Stop,
}

impl Floor {
    /// Starts `threads`, each with a lobby of its own; they accept nothing yet.
    pub fn start(threads: usize, lobby: impl Fn() -> Lobby<Engine>) -> io::Result<Floor> {
        let workers = (0..threads).map(|n| Worker::start(n, lobby())).collect::<io::Result<_>>()?;
        Ok(Floor { workers: Mutex::new(workers), doors: Mutex::default() })
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        lock(&self.workers).len()
    }

    /// Ends connections that are between requests; those with one end with its answer.
    pub fn end_idle(&self) {
        lock(&self.workers).iter().for_each(|worker| worker.last_call.give());
    }

    /// Accepts on `sockets` from now on, unless every listener was closed.
    pub fn open(&self, listening: Arc<Listening>, sockets: Vec<TcpListener>) {
        let mut doors = lock(&self.doors);
        if doors.closed_for_good {
            return;
        }
        tracing::info!(
            target: "server", kind = "http", listener = %listening.wanted().name, address = %listening.address(), "listening"
        );
        let (looping, loops) = mpsc::channel(1);
        for (worker, socket) in lock(&self.workers).iter().zip(sockets) {
            // A thread that is gone has said why.
            let _ = worker.orders.send(Order::Accept(listening.clone(), socket, looping.clone()));
        }
        doors.open.push(Door { listening, loops });
    }

    /// Listeners that are open.
    pub fn listening(&self) -> Vec<Arc<Listening>> {
        lock(&self.doors).open.iter().map(|door| door.listening.clone()).collect()
    }

    /// Closes these listeners; their connections go on. It waits for their sockets, though not for ever, so that the next
    /// reload can have the addresses.
    pub async fn close(&self, leaving: &[Arc<Listening>]) {
        let among = |door: &mut Door| leaving.iter().any(|listening| Arc::ptr_eq(listening, &door.listening));
        let mut closing: Vec<Door> = lock(&self.doors).open.extract_if(.., among).collect();
        closing.iter().for_each(|door| door.listening.close());
        let closed = async {
            for door in &mut closing {
                door.loops.recv().await;
            }
        };
        // Sockets that take longer are on a thread that is busy; they close all the same.
        let _ = timeout(CLOSING, closed).await;
    }

    /// Closes every listener, and opens none from here on.
    pub fn close_all(&self) {
        let mut doors = lock(&self.doors);
        doors.closed_for_good = true;
        doors.open.drain(..).for_each(|door| door.listening.close());
    }

    /// Ends the threads and with them whatever they still serve.
    pub fn stop(&self) {
        let workers: Vec<Worker> = lock(&self.workers).drain(..).collect();
        for worker in &workers {
            let _ = worker.orders.send(Order::Stop);
        }
        for worker in workers {
            let _ = worker.thread.join();
        }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("thread", &self.thread.thread().name()).finish_non_exhaustive()
    }
}

impl Worker {
    fn start(n: usize, lobby: Lobby<Engine>) -> io::Result<Worker> {
        let (last_call, lobby) = (lobby.last_call.clone(), Arc::new(lobby));
        let (orders, inbox) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let name = format!("serve-{n}");
        let thread = thread::Builder::new().name(name).spawn(move || runtime.block_on(work(lobby, inbox)))?;
        Ok(Worker { orders, thread, last_call })
    }
}

async fn work(lobby: Arc<Lobby<Engine>>, mut inbox: UnboundedReceiver<Order>) {
    while let Some(Order::Accept(listening, socket, looping)) = inbox.recv().await {
        match tokio::net::TcpListener::from_std(socket) {
            Ok(socket) => {
                let accepting = listener::accept(lobby.clone(), listening, socket);
                tokio::spawn(async move {
                    accepting.await;
                    drop(looping);
                });
            }
            Err(error) => {
                tracing::error!(target: "server", listener = %listening.wanted().name, %error, "cannot accept")
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;

    fn any() -> config::Listener {
        config::Listener { address: ([127, 0, 0, 1], 0).into(), name: "web".to_owned(), limits: Limits::default() }
    }

    fn floor() -> Floor {
        Floor { workers: Mutex::default(), doors: Mutex::default() }
    }

    /// A reload that was resolving names when the end began opened its listeners after all had been closed.
    #[test]
    fn nothing_opens_after_everything_was_closed() {
        let floor = floor();
        let (first, late) = (bind_one(&any(), 1).expect("loopback"), bind_one(&any(), 1).expect("loopback"));
        floor.open(first.0, first.1);
        floor.close_all();
        let address = late.0.address();
        floor.open(late.0, late.1);
        assert!(floor.listening().is_empty());
        assert!(TcpListener::bind(address).is_ok(), "the socket is still there");
    }

    #[tokio::test]
    async fn only_those_that_leave_are_closed() {
        let floor = floor();
        for _ in 0..3 {
            let (listening, sockets) = bind_one(&any(), 1).expect("loopback");
            floor.open(listening, sockets);
        }
        let open = floor.listening();
        floor.close(&open[1..2]).await;
        let left = floor.listening();
        assert!(left.len() == 2 && Arc::ptr_eq(&left[0], &open[0]) && Arc::ptr_eq(&left[1], &open[2]));
    }
}
