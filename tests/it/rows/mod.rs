//! HTTP/1.1 that nobody should speak, byte by byte: what the client is answered, and what reaches the member.
//!
//! The names begin with the rows' numbers: A framing, B request line and host, C hop by hop, D what members answer. Rows that a
//! case of another file shows have their numbers there.

mod answers;
mod framing;
mod hops;
mod targets;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Connection, Line, Origin, eventually};

/// How a request with a body begins.
pub const POST: &str = "POST /x HTTP/1.1\r\nHost: a\r\n";

/// A proxy with one unprobed member.
pub struct Rig {
    pub origin: Origin,
    pub proxy: Proxy,
}

impl Rig {
    /// Over a member that is asked once.
    pub fn new() -> Rig {
        Rig::with("retries: { attempts: 1 }")
    }

    /// Over a member with these keys of its pool.
    pub fn with(keys: &str) -> Rig {
        let origin = Origin::start();
        let proxy = Proxy::start(&config_of(&[origin.to_string()], &format!("probe: off\n{keys}")));
        Rig { origin, proxy }
    }

    /// Sends these bytes on a connection of their own.
    pub fn send(&self, bytes: impl AsRef<[u8]>) -> Connection {
        let mut client = self.proxy.connect();
        client.send(bytes);
        client
    }

    /// These bytes are refused with this status, the member sees nothing of them, and one line says so. Over what is malformed
    /// the connection is closed.
    #[track_caller]
    pub fn refuses(&self, row: &str, bytes: impl AsRef<[u8]>, status: u16) {
        let (logged, asked) = (self.proxy.access_log().len(), self.origin.traffic_count());
        let mut client = self.send(bytes);
        let reply = client.try_reply("GET").unwrap_or_else(|e| panic!("{row}: no answer: {e}"));
        assert_eq!((reply.status, reply.complete), (status, true), "{row}: {:?}", reply.lines);
        assert!(reply.field("proxy-status").is_some(), "{row}: not our own: {:?}", reply.lines);
        let closes = reply.field("connection") == Some("close");
        assert!(closes || status != 400, "{row}: {:?}", reply.lines);
        assert!(!closes || client.rest().is_ok_and(|rest| rest.is_empty()), "{row}: more, or no end in order");
        // Whoever is refused may go on sending for a while; the line comes when that is over.
        drop(client);
        eventually(&format!("{row} has its line"), || self.proxy.access_log().len() > logged);
        let line: Line = self.proxy.access_log().swap_remove(logged);
        assert!(line.text("outcome") == "refused" && line.json["status"] == status, "{row}: {}", line.raw);
        assert!(line.attempts().is_empty(), "{row}: {}", line.raw);
        assert_eq!((self.origin.traffic_count(), self.proxy.access_log().len()), (asked, logged + 1), "{row}");
    }
}
