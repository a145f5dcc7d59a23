//! A scriptable HTTP/1 origin on a port of its own: what it answers can be changed while it runs, it can be stopped and
//! started again on the same port, and it remembers every request as it came.

use std::collections::VecDeque;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use socket2::{Domain, SockRef, Socket, Type};

use super::reading::Reader;
pub use super::reading::Seen;
use super::script::{Accept, Answer, Step, Then, When};
use super::wait::{Deadline, now};

/// An origin; stopped when dropped.
#[derive(Debug)]
pub struct Origin {
    shared: Arc<Shared>,
    /// Keeps the port ours while the origin is stopped: bound, never listening, so that connections are refused.
    _holder: Socket,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
    worker: Mutex<()>,
}

#[derive(Debug)]
struct State {
    rules: Vec<(When, Answer)>,
    otherwise: Answer,
    /// Answers of the next probes, one each, before any rule.
    next_probes: VecDeque<Answer>,
    accept: Accept,
    close_after: Option<usize>,
    one_worker: bool,
    seen: Vec<Seen>,
    accepted: usize,
    /// Connections that are open, as this process sees it: from accept until it has seen their end, and before it closes.
    now_open: usize,
    most_open: usize,
    open: Vec<Weak<TcpStream>>,
    acceptor: Option<JoinHandle<()>>,
    /// Counts stops: a thread of an earlier life does not serve on.
    life: usize,
}

impl Origin {
    /// On 127.0.0.1, answering 200 to everything.
    pub fn start() -> Origin {
        let origin = Origin::stopped();
        origin.start_again();
        origin
    }

    /// On ::1.
    pub fn start_v6() -> Origin {
        let origin = Origin::bound(Ipv6Addr::LOCALHOST.into());
        origin.start_again();
        origin
    }

    /// On one port of every IPv4 address: 127.0.0.2, 127.0.0.3 and so on are members of a big pool in one process.
    pub fn start_everywhere() -> Origin {
        let origin = Origin::bound(Ipv4Addr::UNSPECIFIED.into());
        origin.start_again();
        origin
    }

    /// On 127.0.0.1 and not listening: connections are refused until [`Origin::start_again`].
    pub fn stopped() -> Origin {
        Origin::bound(Ipv4Addr::LOCALHOST.into())
    }

    fn bound(ip: IpAddr) -> Origin {
        let (holder, address) = hold_port(ip);
        let state = State {
            rules: vec![],
            otherwise: Answer::status(200),
            next_probes: VecDeque::new(),
            accept: Accept::Serve,
            close_after: None,
            one_worker: false,
            seen: vec![],
            accepted: 0,
            now_open: 0,
            most_open: 0,
            open: vec![],
            acceptor: None,
            life: 0,
        };
        let shared = Shared { address, state: Mutex::new(state), changed: Condvar::new(), worker: Mutex::new(()) };
        Origin { shared: Arc::new(shared), _holder: holder }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.shared.address.port()
    }

    /// `127.0.0.1:41233`: how the configuration and the logs name it.
    pub fn address(&self) -> String {
        self.shared.address.to_string()
    }

    /// What is answered where no rule applies; forgets all rules.
    pub fn answer(&self, answer: Answer) {
        let mut state = self.shared.lock();
        state.rules.clear();
        state.otherwise = answer;
    }

    /// Adds a rule before all others, or replaces the one with the same `when`.
    pub fn when(&self, when: When, answer: Answer) {
        let mut state = self.shared.lock();
        state.rules.retain(|(other, _)| *other != when);
        state.rules.insert(0, (when, answer));
    }

    /// The next probes get these answers, one each, before any rule applies again.
    pub fn next_probes(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.lock().next_probes.extend(answers);
    }

    /// Waits until every answer of [`Origin::next_probes`] was given and one more probe has come.
    #[track_caller]
    pub fn await_next_probes(&self) {
        super::eventually("the scripted probes came", || self.shared.lock().next_probes.is_empty());
        self.await_probes(1);
    }

    /// What is done at accept.
    pub fn accept(&self, accept: Accept) {
        self.shared.lock().accept = accept;
    }

    /// Closes each connection in silence after this many answers.
    pub fn close_after(&self, answers: usize) {
        self.shared.lock().close_after = Some(answers);
    }

    /// From now on one request at a time is worked on, the others wait their turn.
    pub fn one_worker(&self) {
        self.shared.lock().one_worker = true;
    }

    /// Every request so far, in the order their headers were complete.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// Requests that are not the prober's.
    pub fn traffic(&self) -> Vec<Seen> {
        self.shared.lock().seen.iter().filter(|seen| !seen.probe).cloned().collect()
    }

    /// How many requests are not the prober's.
    pub fn traffic_count(&self) -> usize {
        self.shared.lock().seen.iter().filter(|seen| !seen.probe).count()
    }

    /// Requests of the prober.
    pub fn probes(&self) -> Vec<Seen> {
        self.shared.lock().seen.iter().filter(|seen| seen.probe).cloned().collect()
    }

    /// How many requests are the prober's.
    pub fn probe_count(&self) -> usize {
        self.shared.lock().seen.iter().filter(|seen| seen.probe).count()
    }

    /// Waits until the prober has sent `more` requests from now on.
    #[track_caller]
    pub fn await_probes(&self, more: usize) {
        let wanted = self.probe_count() + more;
        super::eventually(&format!("{more} more probes at {}", self.address()), || self.probe_count() >= wanted);
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.lock().accepted
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.shared.lock().now_open
    }

    /// The most connections that were open at once.
    pub fn most_open(&self) -> usize {
        self.shared.lock().most_open
    }

    /// Stops as a killed process does: connections end, new ones are refused.
    pub fn stop(&self) {
        let (acceptor, open) = {
            let mut state = self.shared.lock();
            state.life += 1;
            (state.acceptor.take(), std::mem::take(&mut state.open))
        };
        self.shared.changed.notify_all();
        if let Some(acceptor) = acceptor {
            // Wakes the acceptor, which sees that its life is over and drops the listener.
            let _ = TcpStream::connect((self.knock(), self.port()));
            acceptor.join().expect("the acceptor does not panic");
        }
        for stream in open.iter().filter_map(Weak::upgrade) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens again on the same port.
    pub fn start_again(&self) {
        let mut state = self.shared.lock();
        assert!(state.acceptor.is_none(), "the origin runs already");
        let listener = TcpListener::bind(self.shared.address).expect("the port is ours");
        let (shared, life) = (Arc::clone(&self.shared), state.life);
        state.acceptor = Some(thread::spawn(move || accept_loop(&shared, &listener, life)));
    }

    fn knock(&self) -> IpAddr {
        match self.shared.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            ip => ip,
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop();
    }
}

/// As a member in YAML, quoted.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.shared.address)
    }
}

/// A free port that stays ours: the socket is bound and never listens. With SO_REUSEADDR on both, another socket can
/// listen on it, while the kernel gives it to nobody who asks for any port.
pub fn hold_port(ip: IpAddr) -> (Socket, SocketAddr) {
    let any = SocketAddr::new(ip, 0);
    let holder = Socket::new(Domain::for_address(any), Type::STREAM, None).expect("a socket");
    holder.set_reuse_address(true).expect("SO_REUSEADDR");
    holder.bind(&any.into()).unwrap_or_else(|e| panic!("cannot bind {ip}: {e}"));
    let address = holder.local_addr().expect("bound").as_socket().expect("an IP address");
    (holder, address)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn answer_to(&mut self, seen: &Seen) -> Answer {
        if let Some(next) = seen.probe.then(|| self.next_probes.pop_front()).flatten() {
            return next;
        }
        let rule = self.rules.iter().find(|(when, _)| when.holds(seen));
        rule.map_or(&self.otherwise, |(_, answer)| answer).clone()
    }
}

fn accept_loop(shared: &Arc<Shared>, listener: &TcpListener, life: usize) {
    while let Ok((stream, _)) = listener.accept() {
        let mut state = shared.lock();
        if state.life != life {
            return;
        }
        let connection = state.accepted;
        state.accepted += 1;
        state.now_open += 1;
        state.open.retain(|other| other.strong_count() > 0);
        // Whose thread has not come to see its end yet is over all the same.
        let over = state.open.iter().filter_map(Weak::upgrade).filter(|other| has_ended(other)).count();
        state.most_open = state.most_open.max(state.now_open.saturating_sub(over));
        let stream = Arc::new(stream);
        state.open.push(Arc::downgrade(&stream));
        let accept = state.accept;
        drop(state);
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            match accept {
                Accept::Serve => serve(&shared, &stream, connection, life),
                Accept::Reset => drop(Step::Reset.run(&stream, || {})),
                Accept::Ignore => shared.until_over(life),
            }
            shared.lock().now_open -= 1;
            drop(stream);
        });
    }
}

/// Whether the peer has closed it, and nothing it sent is left to read.
fn has_ended(stream: &TcpStream) -> bool {
    /// MSG_PEEK and MSG_DONTWAIT: the stream is another thread's, which blocks on it.
    const GLANCE: i32 = 0x02 | 0x40;
    let mut byte = [std::mem::MaybeUninit::uninit()];
    SockRef::from(stream).recv_with_flags(&mut byte, GLANCE).is_ok_and(|count| count == 0)
}

fn serve(shared: &Shared, stream: &TcpStream, connection: usize, life: usize) {
    let _ = stream.set_nodelay(true);
    let mut reader = Reader::new(stream);
    let mut nth = 0;
    while let Some(mut seen) = reader.head(connection, nth) {
        let (answer, index, one_worker, close_after) = {
            let mut state = shared.lock();
            if state.life != life {
                return;
            }
            let answer = state.answer_to(&seen);
            seen.at = now();
            state.seen.push(seen.clone());
            (answer, state.seen.len() - 1, state.one_worker, state.close_after)
        };
        shared.changed.notify_all();
        if answer.reads_body && !reader.body(&seen, |part, complete| shared.record(index, part, complete)) {
            return;
        }
        let _turn = one_worker.then(|| shared.worker.lock().unwrap_or_else(PoisonError::into_inner));
        if answer
            .steps_for(&seen.method)
            .into_iter()
            .any(|step| step.run(stream, || shared.until_closed(stream, life)) == Then::End)
        {
            return;
        }
        nth += 1;
        let wants_close = seen.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if wants_close || !answer.reads_body || close_after.is_some_and(|answers| nth >= answers) {
            let _ = stream.shutdown(Shutdown::Write);
            return;
        }
    }
}

impl Shared {
    fn record(&self, index: usize, part: &[u8], complete: bool) {
        let mut state = self.lock();
        let seen = &mut state.seen[index];
        seen.body.extend_from_slice(part);
        seen.complete |= complete;
        drop(state);
        self.changed.notify_all();
    }

    /// Until the origin stops.
    fn until_over(&self, life: usize) {
        let deadline = Deadline::new();
        let mut state = self.lock();
        while state.life == life {
            let Some(left) = deadline.left() else { return };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Until the peer closes (or the origin stops, which shuts the stream down).
    fn until_closed(&self, mut stream: &TcpStream, life: usize) {
        let mut scratch = [0; 1024];
        while self.lock().life == life {
            match stream.read(&mut scratch) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}
