//! A little traffic through the proxy, and every few seconds who answered it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval};

/// Between two requests.
const PACE: Duration = Duration::from_millis(50);
/// Requests told of in one line.
const CHAPTER: usize = 60;

/// Asks the proxy at `address` for ever, and says what came.
pub async fn flow(address: SocketAddr) {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut connection = None;
    let mut seen = BTreeMap::<String, usize>::new();
    // The curtain rises when the proxy answers.
    while ask(address, &mut connection).await.is_none() {
        ticks.tick().await;
    }
    loop {
        for _ in 0..CHAPTER {
            ticks.tick().await;
            let what = ask(address, &mut connection).await.unwrap_or_else(|| "no answer".to_owned());
            *seen.entry(what).or_default() += 1;
        }
        let mut line = String::new();
        for (what, count) in std::mem::take(&mut seen) {
            let _ = write!(line, "  {count} × {what}");
        }
        super::say(&format!("     traffic:{line}"));
    }
}

/// One request; the connection is kept while it can be.
async fn ask(address: SocketAddr, connection: &mut Option<SendRequest<Empty<Bytes>>>) -> Option<String> {
    let mut sender = match connection.take() {
        Some(sender) if !sender.is_closed() => sender,
        _ => {
            let stream = TcpStream::connect(address).await.ok()?;
            let (sender, driver) = handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(driver);
            sender
        }
    };
    sender.ready().await.ok()?;
    let request = Request::get("/").header("host", "demo").header("user-agent", "pulsegate-demo");
    let response = sender.send_request(request.body(Empty::new()).ok()?).await.ok()?;
    let status = response.status().as_u16();
    let origin = response.headers().get("x-origin").and_then(|o| o.to_str().ok()).unwrap_or("the proxy itself");
    let what = format!("{status} from {origin}");
    response.into_body().collect().await.ok()?;
    *connection = Some(sender);
    Some(what)
}
