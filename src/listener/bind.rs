//! Sockets that are bound before anything is served.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel holds for us until we accept them; it caps this at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Binds `address` once for each of `shards` accept loops; port 0 takes one free port for all.
///
/// The first socket is bound without `SO_REUSEPORT`: with it, a port that another process of the same user holds (another
/// pulsegate, say) would be shared with that process instead of refused. Once it is bound the option is set, and our
/// own further sockets may join.
///
/// # Errors
/// What the kernel says: the port is in use, the address is not ours, the port needs a privilege.
pub fn bind(address: SocketAddr, shards: usize) -> io::Result<Vec<TcpListener>> {
    let first = socket(address)?;
    first.bind(&address.into())?;
    first.set_reuse_port(true)?;
    let address = first.local_addr()?.as_socket().unwrap_or(address);
    let mut sockets = vec![first];
    for _ in 1..shards {
        let socket = socket(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        sockets.push(socket);
    }
    // Only now: while a socket is not listening no connection can land on it.
    for socket in &sockets {
        socket.listen(BACKLOG)?;
    }
    Ok(sockets.into_iter().map(TcpListener::from).collect())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A restart must not wait for the old connections' TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // So that `0.0.0.0:80` and `[::]:80` can both be written, as in nginx.
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    #[test]
    fn shards_share_one_free_port() {
        let sockets = bind(any(), 3).expect("loopback can be bound");
        let ports: Vec<_> = sockets.iter().map(|s| s.local_addr().expect("bound").port()).collect();
        assert!(ports[0] != 0 && ports.iter().all(|p| *p == ports[0]), "{ports:?}");
    }

    #[test]
    fn a_port_we_hold_ourselves_is_refused() {
        let held = bind(any(), 2).expect("loopback can be bound");
        let again = bind(held[0].local_addr().expect("bound"), 2);
        assert_eq!(again.expect_err("the port is held").kind(), io::ErrorKind::AddrInUse);
    }
}
