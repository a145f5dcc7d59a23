//! What the audience has done meanwhile: the story counts on four members, and an operator's word takes one out of it.
//!
//! The proxy itself is asked, as any operator asks it. Not here: the story.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

/// How many members the story has.
const CAST: usize = 4;

/// What is read of the API's pool.
#[derive(Debug, Deserialize)]
struct Pool {
    members: Vec<Member>,
}

/// What is read of a member.
#[derive(Debug, Deserialize)]
struct Member {
    address: String,
    admin: String,
}

/// Why the story does not hold for now; `None` where it does, or the proxy does not say.
pub async fn meanwhile(admin: SocketAddr) -> Option<String> {
    let stream = TcpStream::connect(admin).await.ok()?;
    let (mut sender, driver) = handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(driver);
    let request = Request::get("/api/v1/pools/web").header("host", admin.to_string()).body(Empty::<Bytes>::new());
    let answer = sender.send_request(request.ok()?).await.ok()?;
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    words(&serde_json::from_slice(&body).ok()?)
}

fn words(pool: &Pool) -> Option<String> {
    let out: Vec<String> = pool
        .members
        .iter()
        .filter(|member| member.admin != "enabled")
        .map(|member| format!("{} is {}", member.address, member.admin))
        .collect();
    match out.as_slice() {
        [] if pool.members.len() == CAST => None,
        [] => Some(format!("the story counts on four members, and the pool has {} now", pool.members.len())),
        _ => Some(format!("the story counts on all four, and {} by your word; `enable` ends that", out.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_out_by_a_word_is_named_with_the_way_back() {
        let pool = |admin: &[&str]| {
            let member = |(n, admin): (usize, &&str)| Member { address: format!("a:{n}"), admin: (*admin).to_owned() };
            words(&Pool { members: admin.iter().enumerate().map(member).collect() })
        };
        assert_eq!(pool(&["enabled"; 4]), None);
        let said = pool(&["draining", "enabled", "disabled", "enabled"]).expect("words");
        assert_eq!(
            said,
            "the story counts on all four, and a:0 is draining, a:2 is disabled by your word; `enable` ends that"
        );
        assert_eq!(pool(&["enabled"; 3]).expect("words"), "the story counts on four members, and the pool has 3 now");
    }
}
