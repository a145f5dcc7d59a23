//! Which driver serves a request: our own where it is plain or a CONNECT, Pingora's `HttpProxy` everywhere else.
//!
//! That is known once the header is read, and not before. Pingora reads the header of what it serves itself: so it is
//! given back the header as it came, and reads it once more, which it does from memory.
//!
//! Not here: what makes a request plain, and how it is served (`plain`).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use http::Method;
use pingora::ErrorType;
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::protocols::http::ServerSession;
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;
use pingora::server::configuration::ServerConf;

use super::{ATTEMPTS_CEILING, Hooks, Proxy, plain};

/// Pooled connections of one thread and one driver, to all members.
const KEEPALIVE_PER_THREAD: usize = 128;

/// Serves the connections of one thread.
///
/// Each thread has its own, and with it its own pooled connections. Where threads shared them, a connection was taken while
/// the thread that had watched it was still letting go, and the request dialled anew: one in five did, on two threads.
pub struct Engine {
    proxy: Proxy,
    /// Of plain requests alone: Pingora lends nobody its own.
    members: TransportConnector,
    general: Arc<HttpProxy<Hooks>>,
}

impl Engine {
    /// An engine for one thread.
    pub fn new(proxy: Proxy) -> Engine {
        let conf = ServerConf {
            threads: 1,
            max_retries: ATTEMPTS_CEILING,
            upstream_keepalive_pool_size: KEEPALIVE_PER_THREAD,
            ..ServerConf::default()
        };
        let members = TransportConnector::new(Some(ConnectorOptions::from_server_conf(&conf)));
        let general = pingora::proxy::http_proxy(&Arc::new(conf), Hooks::new(proxy.clone()));
        Engine { proxy, members, general: Arc::new(general) }
    }
}

#[async_trait]
impl HttpServerApp for Engine {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        ending: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let is_http1 = matches!(session, ServerSession::H1(_));
        if !is_http1 {
            return self.general.process_new_http(session, ending).await;
        }
        if !header_is_read(&mut session).await {
            return None;
        }
        // Pingora would refuse a CONNECT by itself, and nobody would learn what was asked for.
        let is_refused = session.req_header().method == Method::CONNECT;
        if !is_refused && !plain::is_plain(session.req_header()) {
            hand_back(&mut session);
            return self.general.process_new_http(session, ending).await;
        }
        if *ending.borrow() {
            session.set_keepalive(None);
        }
        plain::serve(&self.proxy, &self.members, session).await
    }
}

/// Reads a request's header, as Pingora does; false where none came, or one that is answered already.
async fn header_is_read(session: &mut ServerSession) -> bool {
    let error = match session.read_request().await {
        Ok(came) => return came,
        Err(error) => error,
    };
    if *error.etype() == ErrorType::InvalidHTTPHeader {
        // An error means that the client has gone. What is sent are the stream's words (`listener`).
        let _ = session.respond_error(400).await;
    }
    session.shutdown().await;
    false
}

/// Gives the session the header that it has read, to read it once more. Nothing else was: the stream gives a header alone.
fn hand_back(session: &mut ServerSession) {
    if let ServerSession::H1(h1) = session {
        h1.set_pipelined_prefix(BytesMut::from(&h1.get_headers_raw_bytes()[..]));
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
