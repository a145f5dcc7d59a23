//! What an origin does: answers as lists of steps, when each applies, and gates that hold a request until a case opens them.

use std::io::Write;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::SockRef;

use super::origin::Seen;
use super::wait::{Deadline, pause};

/// One thing done on a connection.
#[derive(Debug, Clone)]
pub enum Step {
    /// Write these bytes, as one segment where the kernel lets us.
    Bytes(Vec<u8>),
    /// Wait until the gate is open.
    Hold(Gate),
    /// Take this long: what a slow origin does, never a way to wait for something.
    Pause(Duration),
    /// Write no more and keep the connection until the peer closes it or the origin stops.
    Hang,
    /// Close in order (FIN).
    Close,
    /// Close at once (RST).
    Reset,
}

/// Whether the connection goes on after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Next,
    End,
}

impl Step {
    /// Does it; `hang` returns when the connection is over.
    pub(super) fn run(self, mut stream: &TcpStream, hang: impl FnOnce()) -> Then {
        match self {
            Step::Bytes(bytes) if stream.write_all(&bytes).is_err() => return Then::End,
            Step::Bytes(_) => {}
            Step::Hold(gate) => gate.pass(),
            Step::Pause(time) => pause(time),
            Step::Hang => {
                hang();
                return Then::End;
            }
            Step::Close => {
                let _ = stream.shutdown(Shutdown::Write);
                return Then::End;
            }
            Step::Reset => {
                // The RST goes out when the last handle is dropped, which the caller does next.
                let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                return Then::End;
            }
        }
        Then::Next
    }
}

/// What is done at accept, before any request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// Serve the connection.
    Serve,
    /// RST.
    Reset,
    /// Read nothing and write nothing: a process that is stopped, with a kernel that still accepts.
    Ignore,
}

/// How an answer's body is framed.
#[derive(Debug, Clone)]
enum Body {
    /// With Content-Length.
    Sized(Vec<u8>),
    /// Exactly these steps after the head; the fields say how it is framed.
    Steps(Vec<Step>),
    /// Exactly these steps and no head of ours.
    Raw(Vec<Step>),
}

/// An answer, as it will be given to any number of requests.
#[derive(Debug, Clone)]
pub struct Answer {
    before: Vec<Step>,
    status: u16,
    fields: Vec<String>,
    body: Body,
    /// False: answered as soon as the header is read.
    pub reads_body: bool,
}

impl Answer {
    /// `status` with a small sized body.
    pub fn status(status: u16) -> Answer {
        Answer { before: vec![], status, fields: vec![], body: Body::Sized(b"ok\n".to_vec()), reads_body: true }
    }

    /// Exactly these steps, whatever was asked.
    pub fn raw(steps: Vec<Step>) -> Answer {
        Answer { before: vec![], status: 0, fields: vec![], body: Body::Raw(steps), reads_body: true }
    }

    /// Exactly these bytes; the connection stays open.
    pub fn bytes(bytes: &str) -> Answer {
        Answer::raw(vec![Step::Bytes(bytes.as_bytes().to_vec())])
    }

    /// No answer and FIN.
    pub fn close() -> Answer {
        Answer::raw(vec![Step::Close])
    }

    /// No answer and RST.
    pub fn reset() -> Answer {
        Answer::raw(vec![Step::Reset])
    }

    /// No answer at all.
    pub fn hang() -> Answer {
        Answer::raw(vec![Step::Hang])
    }

    /// A 200 in chunks, each written on its own.
    pub fn chunked(chunks: &[&str]) -> Answer {
        let mut steps: Vec<Step> = chunks.iter().map(|chunk| Step::Bytes(chunk_of(chunk))).collect();
        steps.push(Step::Bytes(b"0\r\n\r\n".to_vec()));
        Answer::status(200).field("Transfer-Encoding: chunked").steps(steps)
    }

    /// With this sized body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Answer {
        self.body = Body::Sized(body.into());
        self
    }

    /// With these steps in place of a sized body; the fields must say how they are framed.
    pub fn steps(mut self, steps: Vec<Step>) -> Answer {
        self.body = Body::Steps(steps);
        self
    }

    /// With one more field line.
    pub fn field(mut self, line: &str) -> Answer {
        self.fields.push(line.to_owned());
        self
    }

    /// After this long.
    pub fn after(mut self, time: Duration) -> Answer {
        self.before.push(Step::Pause(time));
        self
    }

    /// Once the gate is open.
    pub fn held_by(mut self, gate: &Gate) -> Answer {
        self.before.push(Step::Hold(gate.clone()));
        self
    }

    /// Before the request's body is read.
    pub fn early(mut self) -> Answer {
        self.reads_body = false;
        self
    }

    /// All steps for a request of this method: a HEAD gets the head alone.
    pub(super) fn steps_for(&self, method: &str) -> Vec<Step> {
        let mut steps = self.before.clone();
        let head = |extra: String| {
            let fields: String = self.fields.iter().map(|line| format!("{line}\r\n")).collect();
            format!("HTTP/1.1 {} Scripted\r\n{fields}{extra}\r\n", self.status)
        };
        match &self.body {
            Body::Raw(raw) => steps.extend(raw.iter().cloned()),
            Body::Sized(body) => {
                let bodyless = self.status == 204 || self.status == 304;
                let length = if bodyless { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
                let mut bytes = head(length).into_bytes();
                if method != "HEAD" && !bodyless {
                    bytes.extend_from_slice(body);
                }
                steps.push(Step::Bytes(bytes));
            }
            Body::Steps(body) => {
                steps.push(Step::Bytes(head(String::new()).into_bytes()));
                if method != "HEAD" {
                    steps.extend(body.iter().cloned());
                }
            }
        }
        steps
    }
}

/// One chunk of the chunked coding.
pub fn chunk_of(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

/// Which requests an answer is for; what is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct When {
    probe: Option<bool>,
    path: Option<String>,
    method: Option<String>,
    host: Option<String>,
    local: Option<IpAddr>,
    reused: Option<bool>,
}

impl When {
    /// Requests of the prober.
    pub fn probe() -> When {
        When { probe: Some(true), ..When::default() }
    }

    /// Requests that are not the prober's.
    pub fn traffic() -> When {
        When { probe: Some(false), ..When::default() }
    }

    /// Requests whose target begins with `path`.
    pub fn path(path: &str) -> When {
        When { path: Some(path.to_owned()), ..When::default() }
    }

    /// Requests with this Host.
    pub fn host(host: &str) -> When {
        When { host: Some(host.to_owned()), ..When::default() }
    }

    /// Requests that came to this address.
    pub fn local(address: &str) -> When {
        When { local: Some(address.parse().expect("an IP address")), ..When::default() }
    }

    /// Requests that are not the first of their connection.
    pub fn reused() -> When {
        When { reused: Some(true), ..When::default() }
    }

    /// And only with this method.
    pub fn method(mut self, method: &str) -> When {
        self.method = Some(method.to_owned());
        self
    }

    pub(super) fn holds(&self, seen: &Seen) -> bool {
        self.probe.is_none_or(|probe| probe == seen.probe)
            && self.path.as_ref().is_none_or(|path| seen.target.starts_with(path))
            && self.method.as_ref().is_none_or(|method| *method == seen.method)
            && self.host.as_deref().is_none_or(|host| seen.field("host") == Some(host))
            && self.local.is_none_or(|local| local == seen.local)
            && self.reused.is_none_or(|reused| reused == (seen.nth > 0))
    }
}

/// Holds whoever comes until it is opened. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    open: bool,
    waiting: usize,
    came: usize,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets everyone through, now and later.
    pub fn open(&self) {
        self.lock().open = true;
        self.0.1.notify_all();
    }

    /// How many it holds now.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// How many ever came to it, held or not.
    pub fn came(&self) -> usize {
        self.lock().came
    }

    /// Returns when the gate is open, or when patience is over so that no thread stays for ever.
    pub(super) fn pass(&self) {
        let deadline = Deadline::new();
        let mut state = self.lock();
        state.waiting += 1;
        state.came += 1;
        while !state.open {
            let Some(left) = deadline.left() else { break };
            state = self.0.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
