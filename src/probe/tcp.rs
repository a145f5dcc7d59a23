//! Dials a member.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use tokio::net::{TcpSocket, TcpStream};

/// Whether connections can come from `source`: whether the machine has that address.
///
/// # Errors
/// It has not; what else may be in the way of a trial is told when a probe is made.
pub fn try_source(source: IpAddr) -> io::Result<()> {
    match UdpSocket::bind((source, 0)) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Err(error),
        _ => Ok(()),
    }
}

/// A new connection to `peer`, from `source` where one is given.
pub(super) async fn dial(peer: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let stream = match source {
        None => TcpStream::connect(peer).await?,
        Some(source) => connect_from(source, peer).await?,
    };
    refuse_itself(&stream)?;
    // Only a hint: where it cannot be given, the probe is a little slower and no less right.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// That an address is not ours, or has no way to the member's, is no fault of the member.
async fn connect_from(source: IpAddr, peer: SocketAddr) -> io::Result<TcpStream> {
    let ours = |why: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::AddrNotAvailable, format!("cannot probe from {source}: {why}"))
    };
    let socket = match (source, peer) {
        (IpAddr::V4(_), SocketAddr::V4(_)) => TcpSocket::new_v4()?,
        (IpAddr::V6(_), SocketAddr::V6(_)) => TcpSocket::new_v6()?,
        (IpAddr::V4(_), SocketAddr::V6(_)) => return Err(ours(&"the member's address is IPv6")),
        (IpAddr::V6(_), SocketAddr::V4(_)) => return Err(ours(&"the member's address is IPv4")),
    };
    // Or each connection, and each that has just ended, would have a port of its own, whoever it is to.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(source, 0)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => ours(&error),
        _ => error,
    })?;
    socket.connect(peer).await.map_err(|error| match error.kind() {
        // From a loopback address there is no way to another machine.
        io::ErrorKind::InvalidInput | io::ErrorKind::AddrNotAvailable => ours(&error),
        _ => error,
    })
}

/// On the own machine the kernel may pick, for the near end, the very port that nobody listens on: the two ends then meet
/// (RFC 9293 section 3.5, simultaneous open), and a dead member would pass.
fn refuse_itself(stream: &TcpStream) -> io::Result<()> {
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens: the connection met itself"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_met_itself_is_refused() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let itself = socket.local_addr().unwrap();
        let stream = socket.connect(itself).await.unwrap();
        assert_eq!(refuse_itself(&stream).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn a_connection_to_somebody_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert!(dial(listener.local_addr().unwrap(), None).await.is_ok());
    }

    #[tokio::test]
    async fn a_connection_comes_from_where_it_is_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = listener.local_addr().unwrap();
        let from = |text: &str| text.parse::<IpAddr>().unwrap();
        let stream = dial(peer, Some(from("127.0.0.9"))).await.unwrap();
        assert_eq!(stream.local_addr().unwrap().ip(), from("127.0.0.9"));
        assert_eq!(listener.accept().await.unwrap().1.ip(), from("127.0.0.9"));
        // TEST-NET-1 (RFC 5737) is no machine's; loopback leads to no other machine.
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        let rows = [(peer, "192.0.2.1"), (peer, "::1"), (elsewhere, "127.0.0.9")];
        for (peer, source) in rows {
            let error = dial(peer, Some(from(source))).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable, "{error}");
            assert!(error.to_string().starts_with(&format!("cannot probe from {source}: ")), "{error}");
        }
        assert!(try_source(from("192.0.2.1")).is_err() && try_source(from("127.0.0.9")).is_ok());
    }
}
