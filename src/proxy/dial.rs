//! Dialling a member that may have only so many connections: a place for one first, then the connection.
//!
//! Pingora dials when none of its thread's idle connections fits. It would do so at any time; here the dial waits for a
//! berth, and where idle connections have them all, one of those is given up, whichever thread keeps it. The berth belongs
//! to the stream from then on, and comes back when the stream is closed on both sides: a member that counts for itself sees
//! one go before it sees the next come.
//!
//! The wait for a berth has a bound of its own: until there is one nothing has been asked of the member, and nothing is held
//! against it. Whoever waits may be gone at any moment; what it has set going comes to its end without it.
//!
//! Not here: the counting (`pool`), who gets a request at all (`pick`).

use std::fmt;
use std::io;
use std::net::{self, Shutdown};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::connectors::L4Connect;
use pingora::http::ResponseHeader;
use pingora::protocols::GetProxyDigest;
use pingora::protocols::l4::ext;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::upstreams::peer::{Tracer, Tracing};
use pingora::{Error, ErrorType, OrErr, Result};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::member_end::Switchable;
use crate::pool::{Berth, HangUp, Link, Manner, Member};

/// How long a member has to close a connection that we are done with, until we end it.
const COURTESY: Duration = Duration::from_millis(100);

/// How long a dial waits for its place: a member that is asked to close has [`COURTESY`], the rest is for a busy machine.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// Dials one member.
#[derive(Debug)]
pub struct Dial {
    /// Whom.
    pub member: Arc<Member>,
    /// How long the connection may take to stand, once it has its place.
    pub within: Duration,
    /// What the stream is to become, where that may be a tunnel.
    pub switchable: Option<Switchable>,
}

#[async_trait]
impl L4Connect for Dial {
    async fn connect(&self, address: &SocketAddr) -> Result<Stream> {
        let (mut berth, has_waited) = match self.member.berth() {
            Ok(berth) => (berth, false),
            Err(_) => {
                (timeout(PATIENCE, berth(&self.member)).await.or_err(NO_PLACE, "no connection was closed")?, true)
            }
        };
        let socket = timeout(self.within, open(address)).await.or_err(ErrorType::ConnectTimedout, "dialling")??;
        let twin = socket.as_fd().try_clone_to_owned().or_err(ErrorType::InternalError, "cannot keep a connection")?;
        let twin = Arc::new(net::TcpStream::from(twin));
        let link = berth.dialled(hang_up(twin.clone()));
        let mut stream = match &self.switchable {
            Some(switchable) => switchable.over(socket),
            None => Stream::from(socket),
        };
        // Whatever ends the stream drops this, after the socket.
        stream.tracer = Some(Tracer(Box::new(Moored(Some((berth, twin))))));
        // The one thing of ours that Pingora hands out with a connection, be it new or pooled.
        let counted = Counted { link, has_waited };
        stream.set_proxy_digest(ProxyDigest::new(Box::new(ResponseHeader::build(200, None)?), Some(Box::new(counted))));
        Ok(stream)
    }
}

/// A connection to a member, without a bound.
///
/// # Errors
/// There is none, by the member's doing or for want of something here.
pub async fn open(address: &SocketAddr) -> Result<TcpStream> {
    let Some(address) = address.as_inet() else {
        return Error::e_explain(ErrorType::InternalError, "a member without an IP address");
    };
    ext::connect(address, None).await.map_err(|error| match error.etype() {
        // As Pingora's own dial has it: it is not the member that failed.
        ErrorType::SocketError | ErrorType::BindError => Error::because(ErrorType::InternalError, "cannot dial", error),
        _ => error,
    })
}

/// The dial never began, for want of a place: a limit of ours, as far as blame goes.
const NO_PLACE: ErrorType = ErrorType::InternalError;

/// A connection that is counted.
#[derive(Debug)]
pub struct Counted {
    /// Whether it is in use.
    pub link: Arc<Link>,
    /// Its dial had to wait for a place.
    pub has_waited: bool,
}

/// What is kept of a connection, if it is counted.
pub fn counted(digest: &ProxyDigest) -> Option<&Counted> {
    digest.user_data.as_ref()?.downcast_ref()
}

/// Waits for a place for one more connection. There is one before long: nobody dials without a seat for a request, and there
/// are no more of those than places, so whatever is over is idle, or closing.
async fn berth(member: &Arc<Member>) -> Berth {
    let mut asked: Option<Arc<Link>> = None;
    loop {
        let crowded = match member.berth() {
            Ok(berth) => return berth,
            Err(crowded) => crowded,
        };
        let mut freed = pin!(member.freed(crowded));
        freed.as_mut().enable();
        // From here on no place is missed; one may have come just before.
        match member.berth() {
            Ok(berth) => return berth,
            Err(now) if now != crowded => continue,
            Err(_) => {}
        }
        if asked.as_ref().is_none_or(|link| !link.is_open()) {
            asked = member.make_room(crowded);
        }
        // Nothing is missed; but what is freed may be another limit's.
        let _ = timeout(COURTESY, freed).await;
    }
}

/// Hangs up by a descriptor of its own: the stream itself is Pingora's.
fn hang_up(twin: Arc<net::TcpStream>) -> HangUp {
    Box::new(move |manner| {
        // An error means that it is closed already.
        let _ = match manner {
            Manner::Politely => {
                end_before_long(&twin);
                twin.shutdown(Shutdown::Write)
            }
            Manner::AtOnce => twin.shutdown(Shutdown::Both),
        };
    })
}

/// Ends it when the member has had its time. A task of its own does it: whoever needed the place may be gone by then, and
/// the connection is nobody's any more.
fn end_before_long(twin: &Arc<net::TcpStream>) {
    let twin = Arc::downgrade(twin);
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            sleep(COURTESY).await;
            if let Some(twin) = twin.upgrade() {
                let _ = twin.shutdown(Shutdown::Both);
            }
        });
    }
}

/// Rides on a stream, and keeps its berth until that is dropped and the member has seen it.
struct Moored(Option<(Berth, Arc<net::TcpStream>)>);

impl Tracing for Moored {
    fn on_connected(&self) {}

    /// Too early: the socket is still open.
    fn on_disconnected(&self) {}

    fn boxed_clone(&self) -> Box<dyn Tracing> {
        Box::new(Moored(None))
    }
}

impl Drop for Moored {
    fn drop(&mut self) {
        // Without a runtime the process ends, and its connections with it.
        if let (Some((berth, twin)), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                let _ = timeout(COURTESY, last_words(&twin)).await;
                drop(berth);
            });
        }
    }
}

/// Says that we are done, and waits until the member is. What it still sends is nobody's.
async fn last_words(twin: &net::TcpStream) -> io::Result<()> {
    twin.shutdown(Shutdown::Write)?;
    let mut stream = TcpStream::from_std(twin.try_clone()?)?;
    let mut scrap = [0; 4096];
    while stream.read(&mut scrap).await? > 0 {}
    Ok(())
}

impl fmt::Debug for Moored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moored").field(&self.0).finish()
    }
}
