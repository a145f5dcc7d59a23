//! Dials a member.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

/// A new connection to `peer`.
pub(super) async fn dial(peer: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(peer).await?;
    refuse_itself(&stream)?;
    // Only a hint: where it cannot be given, the probe is a little slower and no less right.
    let _ = stream.set_nodelay(true);
    Ok(stream)
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
        assert!(dial(listener.local_addr().unwrap()).await.is_ok());
    }
}
