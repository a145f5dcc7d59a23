//! `pulsegate probe` against origins over real sockets.

use std::collections::HashMap;
use std::net::IpAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::snapshot::Source;

/// An origin that gives this answer to every connection, whatever it is asked.
async fn origin(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    port
}

fn config(members: &str, probe: &str) -> Config {
    let text = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}]\npools:\n  web: {{ members: [{members}], probe: {probe} }}\n  \
             api: {{ members: [\"10.0.0.1:80\"], probe: {{ path: / }} }}\nroutes: [{{ pool: web }}]\n"
    );
    config::parse("proxy.yaml", &text, &|_| None).unwrap().config
}

type Addresses = HashMap<String, Vec<IpAddr>>;

fn addresses(known: &[(&str, &str)]) -> Addresses {
    known.iter().map(|(name, ip)| (name.to_string(), vec![ip.parse::<IpAddr>().unwrap()])).collect()
}

/// Who is a member, with these addresses of names.
fn found(config: &Config, addresses: &Addresses) -> Found {
    let mut found = Found::default();
    for (name, pool) in &config.pools {
        let located = pool.members.iter().enumerate().flat_map(|(index, member)| {
            let literal = member.host.parse().ok().map(|ip| vec![ip]);
            let known = literal.or_else(|| addresses.get(&member.host).cloned()).unwrap_or_default();
            Located::all(member, &known, &Source::Written(index), None)
        });
        found.insert(name, located.collect());
    }
    found
}

/// What is printed of probing pool `web`, times and ports made equal.
async fn printed(config: &Config, addresses: &Addresses, member: Option<&str>, port: u16) -> (String, Tally) {
    let mut out = Vec::new();
    let tally = probe(config, &found(config, addresses), "web", member, &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap().replace(&format!(":{port}"), ":PORT");
    let lines = text.lines().map(|line| match line.strip_prefix("= connect ") {
        Some(times) if times.ends_with(" ms") => "= connect TIMES",
        _ => line,
    });
    (lines.collect::<Vec<_>>().join("\n"), tally)
}

#[tokio::test]
async fn the_whole_exchange_is_printed() {
    let port = origin(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nbad\n\x1b[2Jx").await;
    let config = config(&format!("\"app1.test:{port}\""), "{ path: /healthz }");
    let (text, tally) = printed(&config, &addresses(&[("app1.test", "127.0.0.1")]), None, port).await;
    let expected = format!(
        "web app1.test:PORT, at 127.0.0.1:PORT
> GET /healthz HTTP/1.1
> Host: app1.test:PORT
> User-Agent: pulsegate/{} (health probe)
> Accept: */*
> Accept-Encoding: identity
> Connection: close
>
< HTTP/1.1 503 No
< Content-Length: 9
<
| bad
| \\u{{1b}}[2Jx
= connect TIMES
= fail, status: 503, expected 200-299
",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text, expected);
    assert_eq!(tally, Tally { asked: 1, passed: 0 });
}

#[tokio::test]
async fn every_member_is_asked_and_those_without_address_fail() {
    let port = origin(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 x\r\n\r\n").await;
    let config = config(&format!("\"127.0.0.1:{port}\", \"gone.test:80\""), "{ path: / }");
    let addresses = addresses(&[("127.0.0.1", "127.0.0.1")]);
    let (text, tally) = printed(&config, &addresses, None, port).await;
    assert_eq!(tally, Tally { asked: 2, passed: 1 });
    assert!(text.contains("< HTTP/1.1 100 Continue\n<\n< HTTP/1.1 204 x\n<\n= connect TIMES\n= pass"), "{text}");
    assert!(text.contains("web gone.test:80\n= connect TIMES\n= fail, dns: the name has no address"), "{text}");
    for name in ["127.0.0.1", &format!("127.0.0.1:{port}")] {
        let (_, tally) = printed(&config, &addresses, Some(name), port).await;
        assert_eq!(tally, Tally { asked: 1, passed: 1 }, "{name}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_shown_as_it_came() {
    let port = origin(b"220 mail ESMTP\r\n").await;
    let config = config(&format!("\"127.0.0.1:{port}\""), "{ path: / }");
    let (text, _) = printed(&config, &addresses(&[("127.0.0.1", "127.0.0.1")]), None, port).await;
    assert!(text.contains("\n< 220 mail ESMTP\n"), "{text}");
    assert!(text.contains("\n= fail, protocol: "), "{text}");
}

#[tokio::test]
async fn a_right_answer_over_the_gate_counts_as_slow() {
    let port = origin(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let mut config = config(&format!("\"127.0.0.1:{port}\""), "{ path: / }");
    let web = Arc::make_mut(config.pools.get_mut("web").unwrap());
    web.rules.gates.max_latency = Some(Duration::from_nanos(1));
    let (text, tally) = printed(&config, &addresses(&[("127.0.0.1", "127.0.0.1")]), None, port).await;
    assert_eq!(tally.passed, 0);
    assert!(text.contains("= fail, slow: ") && text.contains("over the gate of 0.00 ms"), "{text}");
}

#[tokio::test]
async fn what_is_not_there_is_answered_with_what_is() {
    let rows = [
        ("wab", None, "{ path: / }", "no pool \"wab\"; there are api, web"),
        ("web", Some("b:80"), "{ path: / }", "pool \"web\" has no member \"b:80\"; there is a.test:80"),
        ("web", None, "off", "pool \"web\" has `probe: off`: there is no probe to run"),
    ];
    for (pool, member, keys, expected) in rows {
        let config = config("\"a.test:80\"", keys);
        let error =
            probe(&config, &found(&config, &Addresses::new()), pool, member, &mut Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
