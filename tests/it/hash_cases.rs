//! Consistent hashing: the same member for the same key, and whose keys move when members come and go.

use std::collections::BTreeMap;

use crate::harness::proxy::{PROBE, config_of};
use crate::harness::{Answer, Gate, Line, Origin, Proxy, When, client, eventually};

/// As many clients, by the header they are told apart by.
const CLIENTS: usize = 60;

const BY_USER: &str = "balance: { consistent_hash: { key: \"header:x-user\" } }";

fn origins(count: usize) -> Vec<Origin> {
    (0..count).map(|_| Origin::start()).collect()
}

fn members(origins: &[&Origin]) -> Vec<String> {
    origins.iter().map(ToString::to_string).collect()
}

fn hashing(origins: &[&Origin], keys: &str) -> String {
    config_of(&members(origins), &format!("{PROBE}\n{keys}"))
}

/// Which member each client was sent to, with one request from each, all for the same `path`.
#[track_caller]
fn owners(proxy: &Proxy, path: &str) -> BTreeMap<usize, String> {
    let clients = (0..CLIENTS).map(|client| {
        let path = format!("{path}/{client}");
        assert_eq!(proxy.request("GET", &path, &[&format!("X-User: user-{client}")], "").status, 200);
        let line = proxy.access(&path);
        assert_eq!((line.tried().len(), line.json["lb"]["reason"].as_str()), (1, Some("hash")), "{}", line.raw);
        (client, line.tried()[0].to_owned())
    });
    clients.collect()
}

/// The clients whose member changed.
fn moved(before: &BTreeMap<usize, String>, after: &BTreeMap<usize, String>) -> Vec<usize> {
    before.iter().filter(|(client, member)| after[client] != **member).map(|(client, _)| *client).collect()
}

fn owned(owners: &BTreeMap<usize, String>, origin: &Origin) -> Vec<usize> {
    owners.iter().filter(|(_, member)| **member == origin.address()).map(|(client, _)| *client).collect()
}

#[test]
fn a_key_finds_its_member_again_and_a_restart_changes_nothing() {
    let origins = origins(4);
    let all: Vec<&Origin> = origins.iter().collect();
    let first = Proxy::start(&hashing(&all, BY_USER));
    first.await_all_healthy();
    let before = owners(&first, "/first");
    assert_eq!(owners(&first, "/again"), before);
    assert!(all.iter().all(|origin| !owned(&before, origin).is_empty()), "each has a part: {before:?}");
    // Another proxy with the same members, in another order.
    let turned: Vec<&Origin> = origins.iter().rev().collect();
    let second = Proxy::start(&hashing(&turned, BY_USER));
    second.await_all_healthy();
    assert_eq!(owners(&second, "/second"), before);
}

#[test]
fn a_removed_members_keys_move_alone_and_an_ejected_ones_return_with_it() {
    let origins = origins(5);
    let all: Vec<&Origin> = origins.iter().collect();
    let proxy = Proxy::start(&hashing(&all, BY_USER));
    proxy.await_all_healthy();
    let before = owners(&proxy, "/all");

    proxy.reload(&hashing(&all[..4], BY_USER));
    let removed = owners(&proxy, "/removed");
    assert_eq!(moved(&before, &removed), owned(&before, all[4]), "those of the one that went, and no others");
    proxy.reload(&hashing(&all, BY_USER));
    proxy.await_all_healthy();
    assert_eq!(owners(&proxy, "/back"), before);

    origins[2].when(When::probe(), Answer::status(503));
    proxy.await_standing(&origins[2], "ejected");
    let ejected = owners(&proxy, "/ejected");
    assert_eq!(moved(&before, &ejected), owned(&before, &origins[2]));
    origins[2].when(When::probe(), Answer::status(200));
    proxy.await_standing(&origins[2], "healthy");
    assert_eq!(owners(&proxy, "/recovered"), before);
}

/// One member for all requests of a key, and several for many keys; `request` sends one with the key of that number.
#[track_caller]
fn goes_by(key: &str, request: impl Fn(&Proxy, &str, usize) -> String) {
    let origins = origins(3);
    let all: Vec<&Origin> = origins.iter().collect();
    let keys = format!("balance: {{ consistent_hash: {{ key: {key} }} }}");
    let proxy = Proxy::start(&hashing(&all, &keys));
    proxy.await_all_healthy();
    let line = |round: &str, number: usize| -> Line { proxy.access(&request(&proxy, round, number)) };
    let firsts: Vec<String> = (0..20).map(|number| line("one", number).tried()[0].to_owned()).collect();
    assert!(firsts.iter().any(|member| *member != firsts[0]), "{key}: all keys went to {}", firsts[0]);
    for (number, member) in firsts.iter().enumerate() {
        let line = line("two", number);
        assert_eq!(line.tried(), [member], "{key} {number}: {}", line.raw);
        assert_eq!(line.json["lb"]["reason"], "hash");
    }
}

#[test]
fn keys_come_from_cookie_query_and_path() {
    goes_by("\"cookie:session\"", |proxy, round, number| {
        let path = format!("/cookie/{round}/{number}");
        proxy.request("GET", &path, &["Cookie: theme=dark", &format!("Cookie: a=1; session=s{number}")], "");
        path
    });
    goes_by("\"query:id\"", |proxy, round, number| {
        let path = format!("/query/{round}/{number}");
        proxy.get(&format!("{path}?x={round}&id={number}"));
        path
    });
    goes_by("path", |proxy, round, number| {
        let path = format!("/path/{number}");
        proxy.get(&format!("{path}?{round}"));
        path
    });
}

#[test]
fn clients_are_told_apart_by_address_and_behind_a_trusted_proxy_by_its_word() {
    let origins = origins(3);
    let all: Vec<&Origin> = origins.iter().collect();
    let config = hashing(&all, "balance: consistent_hash");
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    let forwarded = |base: &str, number: usize| {
        let path = format!("/{base}/{number}");
        proxy.request("GET", &path, &[&format!("X-Forwarded-For: 203.0.113.{number}")], "");
        proxy.access(&path).tried()[0].to_owned()
    };
    let mine = forwarded("stranger", 0);
    assert!((1..15).all(|number| forwarded("stranger", number) == mine), "a stranger's word moves nobody");
    proxy.reload(&format!("trusted_proxies: [127.0.0.1]\n{config}"));
    let trusted: Vec<String> = (0..15).map(|number| forwarded("trusted", number)).collect();
    assert!(trusted.iter().any(|member| *member != trusted[0]), "{trusted:?}");
}

#[test]
fn a_request_without_its_key_goes_to_anybody() {
    let origins = origins(3);
    let all: Vec<&Origin> = origins.iter().collect();
    let proxy = Proxy::start(&hashing(&all, BY_USER));
    proxy.await_all_healthy();
    let lines = proxy.sample("/nobody", 60);
    assert!(lines.iter().all(|line| line.json["lb"]["reason"] == "balanced"));
    let reached = origins.iter().filter(|origin| lines.iter().any(|line| line.tried() == [origin.address()])).count();
    assert_eq!(reached, 3);
}

#[test]
fn a_retry_goes_on_round_the_ring_to_the_same_next_one() {
    let origins = origins(4);
    let all: Vec<&Origin> = origins.iter().collect();
    let proxy = Proxy::start(&hashing(&all, &format!("{BY_USER}\nretries: {{ budget: 100% }}")));
    proxy.await_all_healthy();
    let before = owners(&proxy, "/before");
    let victim = &origins[0];
    victim.when(When::traffic(), Answer::close());
    let clients = owned(&before, victim);
    for client in &clients {
        let seconds: Vec<String> = (0..3)
            .map(|round| {
                let path = format!("/retried/{client}/{round}");
                assert_eq!(proxy.request("GET", &path, &[&format!("X-User: user-{client}")], "").status, 200);
                let line = proxy.access(&path);
                // A pooled connection that fails is dialled anew first.
                let mut tried = line.tried();
                tried.dedup();
                assert_eq!((tried.len(), tried[0]), (2, &*victim.address()), "{}", line.raw);
                tried[1].to_owned()
            })
            .collect();
        assert!(seconds.iter().all(|second| *second == seconds[0]), "{seconds:?}");
    }
    assert!(!clients.is_empty());
}

#[test]
fn a_hot_key_is_spread_where_load_is_bounded() {
    let (origins, gate) = (origins(4), Gate::new());
    let all: Vec<&Origin> = origins.iter().collect();
    origins.iter().for_each(|origin| origin.when(When::path("/hot"), Answer::status(200).held_by(&gate)));
    let bounded = "balance: { consistent_hash: { key: \"header:x-user\", bounded_load_percent: 125 } }";
    let proxy = Proxy::start(&hashing(&all, bounded));
    proxy.await_all_healthy();
    let mut held = Vec::new();
    for request in 1..=16 {
        let mut connection = client::Connection::open(proxy.address());
        connection.send("GET /hot HTTP/1.1\r\nHost: a\r\nX-User: star\r\n\r\n");
        held.push(connection);
        // One after another, so that each sees those before.
        eventually(&format!("request {request} is with a member"), || gate.waiting() == request);
    }
    let loads: Vec<usize> = origins.iter().map(Origin::traffic_count).collect();
    assert!(loads.iter().all(|load| *load <= 5), "125 % of an average of 4: {loads:?}");
    gate.open();
    assert!(held.iter_mut().all(|connection| connection.reply().status == 200));
}

/// Case C45: a weight of 0 is drained, all of 0 serve nobody, and the pool lives on.
#[test]
fn weight_zero_takes_a_member_off_the_ring_and_stops_nothing() {
    let origins = origins(3);
    let weighted = |weights: [u32; 3]| {
        let of = |(origin, weight): (&Origin, u32)| format!("{{ address: {origin}, weight: {weight} }}");
        config_of(&origins.iter().zip(weights).map(of).collect::<Vec<_>>(), &format!("{PROBE}\n{BY_USER}"))
    };
    let proxy = Proxy::start(&weighted([1, 1, 1]));
    proxy.await_all_healthy();
    let before = owners(&proxy, "/before");
    proxy.reload(&weighted([1, 0, 1]));
    let drained = owners(&proxy, "/drained");
    assert_eq!(moved(&before, &drained), owned(&before, &origins[1]));
    proxy.reload(&weighted([0, 0, 0]));
    assert_eq!(proxy.get("/nobody").status, 503);
    assert_eq!(proxy.access("/nobody").text("reason"), "no_member");
    proxy.reload(&weighted([1000, 1, 1000]));
    owners(&proxy, "/heavy");
    proxy.reload(&weighted([1, 1, 1]));
    assert_eq!(owners(&proxy, "/after"), before);
}
