//! The proxy that pulsegate is compared with: Pingora as it comes, on one thread, which forwards everything to one address.
//!
//! It has pulsegate's allocator and build, so that the difference between the two is what pulsegate does, and nothing
//! else. No health, no log, no choice, no limits; `benches/proxy/compare` starts it.
//!
//! `bare LISTEN ORIGIN`, for example `bare 127.0.0.1:8080 127.0.0.1:9000`

use std::error::Error;
use std::net::SocketAddr;

use async_trait::async_trait;
use pingora::prelude::{HttpPeer, Result};
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Made once and cloned for each request, as pulsegate does.
struct Bare(HttpPeer);

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Ok(Box::new(self.0.clone()))
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let (listen, origin) = addresses().ok_or("arguments: LISTEN ORIGIN, both as IP:PORT")?;
    let conf = ServerConf {
        threads: 1,
        // The stock server sleeps through the whole grace period when it is told to end.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Bare(HttpPeer::new(origin, false, String::new())));
    service.add_tcp(&listen.to_string());
    server.add_service(service);
    server.run_forever()
}

/// What the two arguments say, if they are two addresses and no more.
fn addresses() -> Option<(SocketAddr, SocketAddr)> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().ok());
    let (listen, origin) = (arguments.next()??, arguments.next()??);
    arguments.next().is_none().then_some((listen, origin))
}
