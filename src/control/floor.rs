//! Threads that serve, one accept loop of each listener on each.
//!
//! Each thread has a runtime of its own: a connection stays where it was accepted. Threads outlive listeners, since
//! pooled upstream connections live on the runtime that dialled them.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::SetupError;
use crate::config;
use crate::listener::{self, Listening, Lobby};
use crate::proxy::Engine;

/// A bound listener and its sockets, one for each thread.
pub type Bound = (Arc<Listening>, Vec<TcpListener>);

/// How many threads serve.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Binds every listener, or none.
pub fn bind(listeners: &[config::Listener]) -> Result<Vec<Bound>, SetupError> {
    listeners.iter().map(bind_one).collect()
}

fn bind_one(wanted: &config::Listener) -> Result<Bound, SetupError> {
    let address = wanted.address;
    let sockets = listener::bind(address, threads()).map_err(|cause| SetupError::Bind { address, cause })?;
    let bound = sockets.first().and_then(|socket| socket.local_addr().ok());
    Ok((Arc::new(Listening::new(wanted, bound.unwrap_or(address))), sockets))
}

/// The threads, and what they serve.
#[derive(Debug)]
pub struct Floor {
    workers: Mutex<Vec<Worker>>,
    listening: Mutex<Vec<Arc<Listening>>>,
}

#[derive(Debug)]
struct Worker {
    orders: UnboundedSender<Order>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Order {
    Accept(Arc<Listening>, TcpListener),
    Stop,
}

impl Floor {
    /// Starts the threads; they accept nothing yet.
    pub fn start(lobby: Arc<Lobby<Engine>>) -> io::Result<Floor> {
        let workers = (0..threads()).map(|n| Worker::start(n, lobby.clone())).collect::<io::Result<_>>()?;
        Ok(Floor { workers: Mutex::new(workers), listening: Mutex::default() })
    }

    /// Accepts on `sockets` from now on.
    pub fn open(&self, listening: Arc<Listening>, sockets: Vec<TcpListener>) {
        tracing::info!(
            target: "server", kind = "http", listener = %listening.wanted().name, address = %listening.address(), "listening"
        );
        for (worker, socket) in lock(&self.workers).iter().zip(sockets) {
            // A thread that is gone has said why.
            let _ = worker.orders.send(Order::Accept(listening.clone(), socket));
        }
        lock(&self.listening).push(listening);
    }

    /// Listeners that are open.
    pub fn listening(&self) -> Vec<Arc<Listening>> {
        lock(&self.listening).clone()
    }

    /// Closes one listener; its connections go on.
    pub fn close(&self, listening: &Arc<Listening>) {
        listening.close();
        lock(&self.listening).retain(|open| !Arc::ptr_eq(open, listening));
    }

    /// Closes every listener.
    pub fn close_all(&self) {
        lock(&self.listening).drain(..).for_each(|listening| listening.close());
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

impl Worker {
    fn start(n: usize, lobby: Arc<Lobby<Engine>>) -> io::Result<Worker> {
        let (orders, inbox) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let name = format!("serve-{n}");
        let thread = thread::Builder::new().name(name).spawn(move || runtime.block_on(work(lobby, inbox)))?;
        Ok(Worker { orders, thread })
    }
}

async fn work(lobby: Arc<Lobby<Engine>>, mut inbox: UnboundedReceiver<Order>) {
    while let Some(Order::Accept(listening, socket)) = inbox.recv().await {
        match tokio::net::TcpListener::from_std(socket) {
            Ok(socket) => drop(tokio::spawn(listener::accept(lobby.clone(), listening, socket))),
            Err(error) => {
                tracing::error!(target: "server", listener = %listening.wanted().name, %error, "cannot accept")
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
