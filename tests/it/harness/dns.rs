//! A server of names that says what a case wants, over UDP and TCP: the trouble that dnsmasq cannot make, and the count of
//! what was asked. Records come in another order each time.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::wait::eventually;

/// What is said of one name and kind of record.
#[derive(Debug, Clone)]
pub enum Said {
    /// These, with this TTL in seconds: addresses, or `priority weight port target`.
    Records(u32, Vec<String>),
    /// The same, but by UDP only that it does not fit.
    Long(u32, Vec<String>),
    /// The name exists, without records of this kind.
    Nothing,
    /// NXDOMAIN.
    NoName,
    /// SERVFAIL.
    Failure,
    /// REFUSED.
    Refusal,
    /// No answer.
    Silence,
    /// An empty answer of a server that does not know and asks nobody.
    Referral,
}

/// A running server; stopped when dropped.
#[derive(Debug)]
pub struct NameServer {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    said: HashMap<(String, String), Said>,
    asked: HashMap<(String, String), usize>,
    by_tcp: usize,
    is_deaf_to_udp: bool,
    is_over: bool,
}

impl NameServer {
    /// Knows no name yet.
    pub fn start() -> NameServer {
        let (udp, tcp) = sockets();
        let address = udp.local_addr().expect("bound");
        let shared = Arc::new(Shared::default());
        let (one, other) = (shared.clone(), shared.clone());
        thread::spawn(move || serve_udp(&one, &udp));
        thread::spawn(move || serve_tcp(&other, &tcp));
        NameServer { shared, address }
    }

    /// `127.0.0.1:41233`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The top-level key `resolver` of a proxy that asks it often, and takes failures for what they are soon.
    pub fn resolver(&self, more: &str) -> String {
        resolver(&self.address(), more)
    }

    /// From now on this is said of a name: `A`, `AAAA` or `SRV`.
    pub fn says(&self, name: &str, kind: &str, said: Said) {
        self.shared.lock().said.insert((name.to_owned(), kind.to_owned()), said);
    }

    /// A name has these IPv4 addresses from now on, with a TTL of 0.
    pub fn has(&self, name: &str, addresses: &[&str]) {
        self.says(name, "A", records(addresses));
    }

    /// By UDP nothing is answered any more.
    pub fn answers_by_tcp_alone(&self) {
        self.shared.lock().is_deaf_to_udp = true;
    }

    /// How often a name was asked for.
    pub fn asked(&self, name: &str, kind: &str) -> usize {
        self.shared.lock().asked.get(&(name.to_owned(), kind.to_owned())).copied().unwrap_or_default()
    }

    /// How many questions came by TCP.
    pub fn asked_by_tcp(&self) -> usize {
        self.shared.lock().by_tcp
    }

    /// Waits until a name was asked for so many times more.
    #[track_caller]
    pub fn await_asked(&self, name: &str, kind: &str, more: usize) {
        let wanted = self.asked(name, kind) + more;
        eventually(&format!("{name} {kind} is asked for {more} times"), || self.asked(name, kind) >= wanted);
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        // Both threads look up.
        let _ = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.send_to(&[], self.address));
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With a TTL of 0.
pub fn records(texts: &[&str]) -> Said {
    Said::Records(0, texts.iter().map(ToString::to_string).collect())
}

/// The top-level key `resolver` of a proxy that asks this server often.
pub fn resolver(server: &str, more: &str) -> String {
    format!("resolver: {{ servers: [\"{server}\"], timeout: 2s, min_refresh: 100ms, max_refresh: 200ms{more} }}\n")
}

/// One free port for both.
fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().expect("bound")) {
            return (udp, tcp);
        }
    }
    panic!("no port is free for UDP and TCP");
}

fn serve_udp(shared: &Shared, socket: &UdpSocket) {
    let mut buffer = [0; 4096];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
        if shared.lock().is_over {
            return;
        }
        if let Some(answer) = answer(shared, &buffer[..length], Transport::Udp) {
            let _ = socket.send_to(&answer, peer);
        }
    }
}

fn serve_tcp(shared: &Arc<Shared>, listener: &TcpListener) {
    while let Ok((mut stream, _)) = listener.accept() {
        if shared.lock().is_over {
            return;
        }
        let shared = shared.clone();
        thread::spawn(move || {
            let mut length = [0; 2];
            while stream.read_exact(&mut length).is_ok() {
                let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                if stream.read_exact(&mut question).is_err() || shared.lock().is_over {
                    return;
                }
                let Some(answer) = answer(&shared, &question, Transport::Tcp) else { continue };
                let length = u16::try_from(answer.len()).expect("it fits").to_be_bytes();
                if stream.write_all(&[&length[..], &answer].concat()).is_err() {
                    return;
                }
            }
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

/// RFC 1035 section 4.1, as far as it is needed: one question, records that point to its name.
fn answer(shared: &Shared, message: &[u8], transport: Transport) -> Option<Vec<u8>> {
    let (name, kind, question) = question(message)?;
    let mut state = shared.lock();
    state.by_tcp += usize::from(transport == Transport::Tcp);
    let count = state.asked.entry((name.clone(), kind.to_owned())).or_default();
    *count += 1;
    let turn = *count;
    if state.is_deaf_to_udp && transport == Transport::Udp {
        return None;
    }
    let is_known = state.said.keys().any(|(known, _)| *known == name);
    let otherwise = if is_known { Said::Nothing } else { Said::NoName };
    let said = state.said.get(&(name, kind.to_owned())).cloned().unwrap_or(otherwise);
    let (flags, code, ttl, mut texts) = match said {
        Said::Long(..) if transport == Transport::Udp => (0x8380_u16, 0, 0, vec![]),
        Said::Records(ttl, texts) | Said::Long(ttl, texts) => (0x8180, 0, ttl, texts),
        Said::Nothing => (0x8180, 0, 0, vec![]),
        Said::NoName => (0x8180, 3, 0, vec![]),
        Said::Failure => (0x8180, 2, 0, vec![]),
        Said::Refusal => (0x8180, 5, 0, vec![]),
        Said::Referral => (0x8100, 0, 0, vec![]),
        Said::Silence => return None,
    };
    let shift = turn % texts.len().max(1);
    texts.rotate_left(shift);
    let counts = [1, u16::try_from(texts.len()).expect("few"), 0, 0];
    let mut answer = message[..2].to_vec();
    answer.extend((flags | code).to_be_bytes());
    counts.iter().for_each(|count| answer.extend(count.to_be_bytes()));
    answer.extend(question);
    for text in texts {
        let data = data(&text);
        // A pointer to the question's name, its type, class IN.
        answer.extend([0xc0, 12]);
        answer.extend(&question[question.len() - 4..question.len() - 2]);
        answer.extend([0, 1]);
        answer.extend(ttl.to_be_bytes());
        answer.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        answer.extend(data);
    }
    Some(answer)
}

/// The name in lower case, its kind, and the question's bytes.
fn question(message: &[u8]) -> Option<(String, &'static str, &[u8])> {
    let (mut labels, mut at) = (vec![], 12);
    loop {
        let length = usize::from(*message.get(at)?);
        let label = message.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).to_lowercase());
    }
    let kind = match message.get(at..at + 2)? {
        [0, 1] => "A",
        [0, 28] => "AAAA",
        [0, 33] => "SRV",
        _ => "other",
    };
    Some((labels.join("."), kind, message.get(12..at + 4)?))
}

/// An address, or `priority weight port target`.
fn data(text: &str) -> Vec<u8> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => return ip.octets().to_vec(),
        Ok(IpAddr::V6(ip)) => return ip.octets().to_vec(),
        Err(_) => {}
    }
    let mut parts = text.split(' ');
    let mut data: Vec<u8> =
        parts.by_ref().take(3).flat_map(|n| n.parse::<u16>().expect("a number").to_be_bytes()).collect();
    let target = parts.next().expect("a target");
    for label in target.split('.').filter(|label| !label.is_empty()) {
        data.push(u8::try_from(label.len()).expect("short"));
        data.extend(label.bytes());
    }
    data.push(0);
    data
}
