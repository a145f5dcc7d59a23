//! Dials a member.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

/// A new connection to `peer`.
pub(super) async fn dial(peer: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(peer).await?;
    if stream.local_addr()? == peer {
        // On the own machine the kernel may pick, for the near end, the very port that nobody listens on: the two ends
        // then meet (RFC 9293 section 3.5, simultaneous open), and a dead member would pass.
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens: the connection met itself"));
    }
    // Only a hint: where it cannot be given, the probe is a little slower and no less right.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}
