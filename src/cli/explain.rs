//! `pulsegate explain`: what the running proxy would do with a request, and why.
//!
//! Not here: who says so (`admin`); this only asks, and sets the answer in lines.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

use http::Method;
use serde::Deserialize;

use super::operator::{self, Format, Operator, segment};

/// Which request.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What a client would ask for, such as shop.example.com/api/x; or /api/x with -H 'Host: shop.example.com'
    #[arg(value_name = "URL")]
    url: String,
    /// A field of the request, as 'Name: value'; may be given many times
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    headers: Vec<String>,
    /// Its method
    #[arg(long = "method", short = 'X', value_name = "METHOD", default_value = "GET")]
    method: String,
    /// The address that its connection comes from, where requests go by that; by default 127.0.0.1
    #[arg(long, value_name = "IP")]
    client: Option<IpAddr>,
    /// The name of the listener it comes to; by default the one of the URL's port, or else the first
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    #[command(flatten)]
    operator: Operator,
}

/// What is read of the API's explanation.
#[derive(Debug, Default, Deserialize)]
struct Explanation {
    summary: String,
    request: Request,
    route: Option<Route>,
    pools: Vec<Ranked>,
    pool: Option<Pool>,
    sticky: Option<Sticky>,
    members: Vec<Member>,
}

#[derive(Debug, Default, Deserialize)]
struct Request {
    method: String,
    host: String,
    path: String,
    client: String,
    listener: String,
}

#[derive(Debug, Deserialize)]
struct Route {
    name: String,
    because: String,
}

#[derive(Debug, Deserialize)]
struct Ranked {
    rank: usize,
    pool: String,
    why: String,
}

#[derive(Debug, Deserialize)]
struct Pool {
    name: String,
    policy: String,
    hash_key: Option<String>,
    hash_value: Option<String>,
    because: String,
}

#[derive(Debug, Deserialize)]
struct Sticky {
    cookie: String,
    state: String,
    because: String,
}

#[derive(Debug, Deserialize)]
struct Member {
    address: String,
    chance: String,
    share: Option<f64>,
    why: String,
}

/// Asks, and prints the answer.
pub fn run(args: &Args) -> ExitCode {
    operator::run(&args.operator, async {
        let answer = args.operator.ask::<Explanation>(Method::GET, &path(args)).await?;
        Ok(match args.operator.format() {
            Format::Json => answer.body,
            Format::Text => words(&answer.said),
        })
    })
}

fn path(args: &Args) -> String {
    let mut path = format!("/api/v1/explain?url={}&method={}", segment(&args.url), segment(&args.method));
    let (client, listener) = (args.client.map(|client| client.to_string()), args.listener.clone());
    let headers = args.headers.iter().map(|header| ("header", header.clone()));
    let others = [("client", client), ("listener", listener)].into_iter().filter_map(|(name, v)| Some((name, v?)));
    for (name, value) in headers.chain(others) {
        // Writing to a string does not fail.
        let _ = write!(path, "&{name}={}", segment(&value));
    }
    path
}

/// The answer in lines: what comes of it first, then from the route to each member.
fn words(explanation: &Explanation) -> String {
    let Explanation { summary, request, route, pools, pool, sticky, members } = explanation;
    let Request { method, host, path, client, listener } = request;
    let mut lines = vec![summary.clone()];
    lines.push(format!("request  {method} {host}{path} from {client}, to listener {listener}"));
    lines.extend(route.iter().map(|route| format!("route    {}: {}", route.name, route.because)));
    if let [_, _, ..] = pools.as_slice() {
        lines.extend(pools.iter().map(|Ranked { rank, pool, why }| format!("rank {rank:<3} {pool}: {why}")));
    }
    lines.extend(pool.iter().map(|pool| format!("pool     {}, {}: {}", pool.name, shares(pool), pool.because)));
    lines.extend(
        sticky.iter().map(|Sticky { cookie, state, because }| format!("cookie   {cookie}, {state}: {because}")),
    );
    let width = members.iter().map(|member| member.address.chars().count()).max().unwrap_or_default();
    lines.extend(members.iter().map(|member| {
        let Member { address, chance, why, .. } = member;
        let share = member.share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
        format!("{}{address:<width$}  {share:>5}  {why}", mark(chance))
    }));
    lines.join("\n")
}

fn shares(pool: &Pool) -> String {
    match (&pool.hash_key, &pool.hash_value) {
        (Some(key), Some(value)) => format!("{} by {key}, here {value:?}", pool.policy),
        (Some(key), None) => format!("{} by {key}, here none", pool.policy),
        (None, _) => pool.policy.clone(),
    }
}

/// What stands before a member.
fn mark(chance: &str) -> &'static str {
    match chance {
        "picked" => "  ->     ",
        "possible" => "  ?      ",
        "out" => "  out    ",
        _ => "         ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_is_set_in_lines_with_what_comes_of_it_first() {
        let explanation: Explanation = serde_json::from_value(serde_json::json!({
            "summary": "it would go to 10.0.0.1:80 of pool web, by route /", "end": "member",
            "request": { "method": "GET", "host": "a.test", "path": "/x", "client": "127.0.0.1", "listener": "main" },
            "route": { "name": "/", "because": "it is for every host" },
            "pools": [{ "rank": 0, "pool": "web", "why": "serves" }],
            "pool": {
                "name": "web", "policy": "consistent_hash", "hash_key": "path", "hash_value": "/x", "because": "normal"
            },
            "sticky": { "cookie": "shop", "state": "new", "because": "it has no such cookie" },
            "members": [
                { "address": "10.0.0.1:80", "chance": "picked", "share": 0.5, "why": "the hash key leads to it" },
                { "address": "10.0.0.10:80", "chance": "out", "share": null, "why": "disabled since 12:03:11 UTC" },
            ],
        }))
        .expect("as the API has it");
        let expected = "it would go to 10.0.0.1:80 of pool web, by route /\n\
            request  GET a.test/x from 127.0.0.1, to listener main\n\
            route    /: it is for every host\n\
            pool     web, consistent_hash by path, here \"/x\": normal\n\
            cookie   shop, new: it has no such cookie\n  \
            ->     10.0.0.1:80    50 %  the hash key leads to it\n  \
            out    10.0.0.10:80         disabled since 12:03:11 UTC";
        assert_eq!(words(&explanation), expected);
    }
}
