//! A dial that its request can be called away from, for Pingora's driver, which looks at nothing else meanwhile.
//!
//! The driver of plain requests watches the client's stream beside its dial, and is called away there, in the middle of a TLS
//! handshake too. Pingora's has the handshake to itself: only the connection under it is dialled here.
//!
//! Not here: who may be called away (`ctx`), and how else a member is dialled (`dial`, `member_end`).

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use pingora::connectors::L4Connect;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};

use super::dial;
use crate::listener::{Connection, Cut};

type Dialler = Arc<dyn L4Connect + Send + Sync>;

/// The request of `connection` can be called away while `peer` is dialled.
pub fn may_leave(peer: &mut HttpPeer, connection: &Arc<Connection>) {
    let by = peer.options.custom_l4.take();
    peer.options.custom_l4 = Some(Arc::new(Leaving { connection: connection.clone(), by }));
}

struct Leaving {
    connection: Arc<Connection>,
    /// Who dials; `None`: nobody in particular.
    by: Option<Dialler>,
}

#[async_trait]
impl L4Connect for Leaving {
    async fn connect(&self, address: &SocketAddr) -> Result<Stream> {
        let dialled = async {
            match &self.by {
                Some(by) => by.connect(address).await,
                None => dial::open(address).await.map(Stream::from),
            }
        };
        // Who calls wakes the connection's task, and with it all that the task waits for.
        let called = poll_fn(|_| if self.connection.wait().is_called_away() { Poll::Ready(()) } else { Poll::Pending });
        tokio::select! {
            biased;
            dialled = dialled => dialled,
            () = called => {
                self.connection.cut_short(Cut::CalledAway);
                Error::e_explain(ErrorType::ConnectTimedout, "called away")
            }
        }
    }
}

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaving").field("by", &self.by).finish_non_exhaustive()
    }
}
