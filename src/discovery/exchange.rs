//! One question to one server, over sockets of its own: nothing of a question outlives it.
//!
//! A connection that is kept for later questions may be one to a process that knows only what was true when it was made
//! (dnsmasq forks for each), and it would be asked for ever. UDP is asked first; TCP is for an answer that does not fit,
//! or for a server that is silent by UDP.
//!
//! Not here: which server is asked (`ask`), what an answer means (`records`).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// What an answer by UDP may be long without being cut into fragments (the DNS flag day of 2020).
const PAYLOAD: u16 = 1232;

/// The longest datagram there is.
const DATAGRAM: usize = 65_535;

/// How often a question is sent by UDP before the server counts as silent: a single lost datagram is no silence.
const SENDS: u32 = 2;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Mute {
    /// By UDP, nothing came in time.
    #[error("no answer in time")]
    Silent,
    /// By TCP, nothing came in time.
    #[error("no answer in time, nor by TCP")]
    SilentByTcp,
    /// Nobody is there.
    #[error("nobody answers there ({0})")]
    Unreachable(&'static str),
    /// The connection ended early, or could not be used.
    #[error("asking failed: {0}")]
    Broken(#[from] io::Error),
    /// What came is no answer to what was asked.
    #[error("it answers something that was not asked")]
    Foreign,
    /// What came is no message of DNS.
    #[error("its answer cannot be read")]
    Unreadable,
}

/// Asks by UDP, and by TCP where the answer does not fit; each way takes so long at most. A server that stumbles over the
/// extension for long answers (RFC 6891) is asked without it.
pub async fn ask(server: SocketAddr, name: &Name, kind: RecordType, within: Duration) -> Result<Message, Mute> {
    let mut question = question(name, kind);
    question.set_edns(Edns::new().set_max_payload(PAYLOAD).set_version(0).clone());
    let mut answer = by_udp(server, &question, within).await?;
    if matches!(answer.metadata.response_code, ResponseCode::FormErr | ResponseCode::NotImp | ResponseCode::BADVERS) {
        question.edns = None;
        answer = by_udp(server, &question, within).await?;
    }
    if answer.metadata.truncation { by_tcp(server, &question, within).await } else { Ok(answer) }
}

/// Asks by TCP alone, without anything that a server could stumble over.
pub async fn ask_by_tcp(server: SocketAddr, name: &Name, kind: RecordType, within: Duration) -> Result<Message, Mute> {
    by_tcp(server, &question(name, kind), within).await
}

/// With an id of its own, which nobody can guess.
fn question(name: &Name, kind: RecordType) -> Message {
    let mut question = Message::query();
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(name.clone(), kind));
    question
}

/// From a port that the kernel chooses for this question. What another question was meant by is passed over: it is late, or
/// forged.
async fn by_udp(server: SocketAddr, question: &Message, within: Duration) -> Result<Message, Mute> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await.map_err(broken)?;
    let bytes = question.to_vec().map_err(|_| Mute::Foreign)?;
    let mut buffer = vec![0; DATAGRAM];
    for _ in 0..SENDS {
        socket.send(&bytes).await.map_err(broken)?;
        let answer = async {
            loop {
                let length = socket.recv(&mut buffer).await.map_err(broken)?;
                let datagram = &buffer[..length];
                if datagram.get(..2) != bytes.get(..2) {
                    continue;
                }
                let answer = Message::from_vec(datagram).map_err(|_| Mute::Unreadable)?;
                if is_answer(question, &answer) {
                    return Ok(answer);
                }
            }
        };
        if let Ok(answer) = timeout(within / SENDS, answer).await {
            return answer;
        }
    }
    Err(Mute::Silent)
}

/// Over a connection that is closed afterwards.
async fn by_tcp(server: SocketAddr, question: &Message, within: Duration) -> Result<Message, Mute> {
    let bytes = question.to_vec().map_err(|_| Mute::Foreign)?;
    let answer = async {
        let mut stream = TcpStream::connect(server).await.map_err(broken)?;
        let length = u16::try_from(bytes.len()).map_err(|_| Mute::Foreign)?;
        // In one piece: some servers read no further than the first segment.
        stream.write_all(&[&length.to_be_bytes(), bytes.as_slice()].concat()).await.map_err(broken)?;
        let mut answer = vec![0; usize::from(stream.read_u16().await.map_err(broken)?)];
        stream.read_exact(&mut answer).await.map_err(broken)?;
        let answer = Message::from_vec(&answer).map_err(|_| Mute::Unreadable)?;
        if is_answer(question, &answer) { Ok(answer) } else { Err(Mute::Foreign) }
    };
    timeout(within, answer).await.unwrap_or(Err(Mute::SilentByTcp))
}

/// Whether this answers that. A server that could not read the question may leave it out.
fn is_answer(question: &Message, answer: &Message) -> bool {
    let failed = answer.metadata.response_code != ResponseCode::NoError;
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && (answer.queries == question.queries || failed && answer.queries.is_empty())
}

/// In plain words where there are some.
fn broken(error: io::Error) -> Mute {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Mute::Unreachable("connection refused"),
        io::ErrorKind::HostUnreachable => Mute::Unreachable("host unreachable"),
        io::ErrorKind::NetworkUnreachable => Mute::Unreachable("network unreachable"),
        io::ErrorKind::ConnectionReset => Mute::Unreachable("connection reset"),
        io::ErrorKind::UnexpectedEof => Mute::Unreachable("it closes the connection without an answer"),
        _ => Mute::Broken(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_is_answered() {
        let name = |text: &str| Name::from_ascii(text).expect("a name");
        let asked = question(&name("app.test."), RecordType::A);
        let answer = |change: fn(&mut Message)| {
            let mut answer = asked.clone().into_response();
            answer.metadata.message_type = MessageType::Response;
            change(&mut answer);
            is_answer(&asked, &answer)
        };
        assert!(answer(|_| {}));
        assert!(answer(|m| m.queries[0].name = Name::from_ascii("APP.test.").expect("a name")), "case means nothing");
        assert!(answer(|m| {
            m.queries.clear();
            m.metadata.response_code = ResponseCode::Refused;
        }));
        assert!(!answer(|m| m.queries.clear()));
        assert!(!answer(|m| m.metadata.id = m.metadata.id.wrapping_add(1)));
        assert!(!answer(|m| m.metadata.message_type = MessageType::Query));
        assert!(!answer(|m| m.queries[0].query_type = RecordType::AAAA));
        assert!(!answer(|m| m.queries[0].name = Name::from_ascii("evil.test.").expect("a name")));
    }
}
