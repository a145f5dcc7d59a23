//! An origin that switches to whatever it is asked for and then does what the case says with the bare stream.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::wait::PATIENCE;

/// The origin; its threads end with their connections.
#[derive(Debug)]
pub struct Switcher {
    address: SocketAddr,
    headers: Arc<Mutex<Vec<String>>>,
}

impl Switcher {
    /// On a port of its own: answers 101 with the protocol that was asked for, then runs `inside`.
    pub fn start(inside: impl Fn(TcpStream) + Send + Sync + 'static) -> Switcher {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let headers = Arc::new(Mutex::new(vec![]));
        let (seen, inside) = (headers.clone(), Arc::new(inside));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), seen, inside) = (stream, seen.clone(), inside.clone()) else { return };
                thread::spawn(move || {
                    let Some(header) = switch(&stream) else { return };
                    seen.lock().expect("no panic").push(header);
                    inside(stream);
                });
            }
        });
        Switcher { address, headers }
    }

    /// `127.0.0.1:41233`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The headers of all requests so far, in lower case.
    pub fn headers(&self) -> Vec<String> {
        self.headers.lock().expect("no panic").clone()
    }
}

fn switch(mut stream: &TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(2 * PATIENCE)).ok()?;
    stream.set_nodelay(true).ok()?;
    let (mut header, mut byte) = (vec![], [0]);
    while !header.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        header.push(byte[0]);
    }
    let header = String::from_utf8_lossy(&header).to_ascii_lowercase();
    let protocol = header.split("\r\n").find_map(|line| line.strip_prefix("upgrade: "))?;
    let protocol = protocol.split(',').next()?.trim();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade, X-Inner\r\nX-Inner: 1\r\nUpgrade: {protocol}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).ok()?;
    Some(header)
}
