//! HTTP between a client, the proxy and a member: fields, framing, own answers, limits and deadlines.

use std::time::Duration;

use crate::harness::proxy::{Proxy, config_of, pool_config};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Gate, Origin, Step, When, eventually};

/// One unprobed pool `web` of this origin with `keys`.
fn unprobed(origin: &Origin, keys: &str) -> Proxy {
    Proxy::start(&config_of(&[origin.to_string()], &format!("probe: off\n{keys}")))
}

#[test]
fn c01_c02_c04_c06_c07_hop_by_hop_fields_end_at_the_proxy_in_both_directions() {
    let origin = Origin::start();
    let answer = Answer::status(200).field("Connection: X-Inner").field("X-Inner: 1").field("Keep-Alive: timeout=9");
    origin.answer(answer.field("Proxy-Authenticate: Basic").field("X-End: 1"));
    // Each thread has connections of its own.
    let proxy = Proxy::start(&format!("threads: 1\n{}", config_of(&[origin.to_string()], "probe: off")));
    let fields = [
        "Connection: close, X-Secret",
        "X-Secret: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "TE: gzip",
        "Upgrade: websocket",
        "Proxy-Authorization: Basic x",
        "X-Plain: 1",
    ];
    for _ in 0..5 {
        let reply = proxy.request("GET", "/hops", &fields, "");
        assert_eq!(reply.status, 200);
        for gone in ["x-inner", "keep-alive"] {
            assert_eq!(reply.field(gone), None, "{:?}", reply.lines);
        }
        assert_eq!(reply.field("x-end"), Some("1"));
        assert_eq!(reply.field("connection"), Some("close"), "the client asked for it: {:?}", reply.lines);
    }
    for seen in origin.traffic() {
        for gone in ["x-secret", "keep-alive", "proxy-connection", "te", "upgrade"] {
            assert_eq!(seen.field(gone), None, "{:?}", seen.lines);
        }
        assert!(
            seen.field("connection").is_none_or(|value| !value.to_lowercase().contains("close")),
            "{:?}",
            seen.lines
        );
        assert_eq!((seen.field("x-plain"), seen.connection), (Some("1"), 0), "the pooled connection is used again");
    }
}

#[test]
fn real_upgrade_is_passed_on_and_becomes_a_tunnel() {
    let origin = Origin::start();
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    origin.answer(Answer::raw(vec![Step::Bytes(format!("{head}hello").into_bytes()), Step::Close]));
    let proxy = unprobed(&origin, "");
    let mut client = proxy.connect();
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==";
    client.send(format!("GET /socket HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
    let reply = client.head().expect("an answer");
    assert_eq!((reply.status, reply.field("upgrade")), (101, Some("websocket")), "{:?}", reply.lines);
    assert_eq!(client.stray(Duration::from_secs(20)), b"hello");
    let seen = &origin.traffic()[0];
    assert_eq!(seen.field("upgrade"), Some("websocket"));
    assert!(seen.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")), "{:?}", seen.lines);
    drop(client);
    assert_eq!(proxy.access("/socket").json["upgraded"], true);
}

#[test]
fn client_that_nominates_forwarded_fields_hurts_nobody_but_itself() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::of(&[&a, &b], "");
    proxy.await_all_healthy();
    let many: Vec<String> = (0..20).map(|i| format!("x-{i}")).collect();
    for connection in ["Connection: x-forwarded-for".to_owned(), format!("Connection: {}", many.join(", "))] {
        for _ in 0..4 {
            let status = proxy.request("GET", "/nominated", &[&connection], "").status;
            assert!([200, 400].contains(&status), "{connection}: {status}");
        }
    }
    for origin in [&a, &b] {
        assert!(origin.traffic().iter().all(|seen| seen.fields("x-forwarded-for").len() == 1), "the field was lost");
        assert_eq!(proxy.member("web", &origin.address())["standing"], "healthy");
    }
}

#[test]
fn forwarded_fields_say_what_the_connection_says() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    let forged = [
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-For: 192.0.2.2",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.example",
        "Forwarded: for=192.0.2.3;proto=https",
        "Host: shop.example",
    ];
    proxy.request("GET", "/forged", &forged, "");
    proxy.request("GET", "/plain", &["Host: shop.example"], "");
    for seen in origin.traffic() {
        assert_eq!(seen.fields("x-forwarded-for"), ["127.0.0.1"], "{:?}", seen.lines);
        assert_eq!(seen.fields("x-forwarded-proto"), ["http"], "{:?}", seen.lines);
        assert_eq!(seen.fields("x-forwarded-host"), ["shop.example"], "{:?}", seen.lines);
        let forwarded = seen.fields("forwarded");
        assert!(forwarded.len() == 1 && forwarded[0].contains("for=127.0.0.1"), "{:?}", seen.lines);
        assert!(!forwarded[0].contains("192.0.2.3"), "{:?}", seen.lines);
        assert_eq!(seen.field("host"), Some("shop.example"), "passed through");
        assert!(seen.field("via").is_some_and(|via| via.starts_with("1.1 ")), "{:?}", seen.lines);
    }
    assert_eq!(proxy.access("/forged").json["client"], "127.0.0.1");
}

#[test]
fn trusted_peers_are_believed_and_appended_to() {
    let origin = Origin::start();
    let config = config_of(&[origin.to_string()], "probe: off");
    let proxy = Proxy::start(&format!("trusted_proxies: [\"127.0.0.0/8\"]\n{config}"));
    let fields = ["X-Forwarded-For: 192.0.2.1, 198.51.100.7", "X-Forwarded-Proto: https"];
    proxy.request("GET", "/trusted", &fields, "");
    let seen = &origin.traffic()[0];
    let chain: String = seen.fields("x-forwarded-for").join(", ");
    assert_eq!(chain, "192.0.2.1, 198.51.100.7, 127.0.0.1");
    assert_eq!(seen.fields("x-forwarded-for").len(), 1, "one line: {:?}", seen.lines);
    assert_eq!(seen.fields("x-forwarded-proto"), ["https"]);
    assert_eq!(proxy.access("/trusted").json["client"], "198.51.100.7", "the right-most that is not trusted");
}

#[test]
fn request_id_is_the_same_for_member_client_and_log() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    proxy.get("/one");
    proxy.get("/two");
    let seen = origin.traffic();
    let ids: Vec<&str> = seen.iter().filter_map(|seen| seen.field("x-request-id")).collect();
    assert!(ids.len() == 2 && ids[0] != ids[1] && ids[0].len() >= 16, "{ids:?}");
    assert_eq!(proxy.access("/one").text("request_id"), ids[0]);
    assert_eq!(proxy.access("/two").text("request_id"), ids[1]);
}

#[test]
fn host_can_be_overridden_for_a_pool() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "upstream: { host: inner.example }");
    proxy.request("GET", "/", &["Host: outer.example"], "");
    let seen = &origin.traffic()[0];
    assert_eq!((seen.field("host"), seen.field("x-forwarded-host")), (Some("inner.example"), Some("outer.example")));
}

#[test]
fn routes_decide_by_host_and_path_and_the_rest_is_404() {
    let (shop, api, any) = (Origin::start(), Origin::start(), Origin::start());
    [(&shop, "shop"), (&api, "api"), (&any, "wild")]
        .iter()
        .for_each(|(o, name)| o.answer(Answer::status(200).body(*name)));
    let pool = |name: &str, origin: &Origin| format!("  {name}: {{ members: [{origin}], probe: off }}\n");
    let pools = [pool("shop", &shop), pool("api", &api), pool("wild", &any)].concat();
    let routes = "routes:\n  - { host: shop.example, pool: shop }\n  - { host: shop.example, path: /api, pool: api }\n  - { host: \"*.example\", pool: wild }\n";
    let proxy = Proxy::start(&format!("pools:\n{pools}{routes}"));
    let ask = |host: &str, path: &str| {
        let reply = proxy.request("GET", path, &[&format!("Host: {host}")], "");
        (reply.status, reply.text())
    };
    assert_eq!(ask("shop.example", "/x"), (200, "shop".into()));
    assert_eq!(ask("SHOP.example:8080", "/api/x"), (200, "api".into()));
    assert_eq!(ask("shop.example", "/apis"), (200, "shop".into()), "segments, not characters");
    assert_eq!(ask("a.b.example", "/"), (200, "wild".into()));
    assert_eq!(ask("other.test", "/none").0, 404);
    let line = proxy.access("/none");
    assert!(line.has(&[("reason", "no_route"), ("outcome", "refused")]), "{}", line.raw);
    assert!(line.attempts().is_empty() && line.json["pool"].is_null(), "{}", line.raw);
}

#[test]
fn own_answers_to_head_carry_no_body_and_keep_the_connection() {
    let (dead, broken, stuck) = (Origin::stopped(), Origin::start(), Origin::start());
    broken.answer(Answer::close());
    stuck.answer(Answer::hang());
    let pool =
        |name: &str, member: &Origin, more: &str| format!("  {name}: {{ members: [{member}], probe: off, {more} }}\n");
    let nobody = format!("{{ address: {dead}, state: disabled }}");
    let pools = [
        pool("dead", &dead, ""),
        pool("broken", &broken, ""),
        pool("stuck", &stuck, "upstream: { read_timeout: 200ms }, retries: { attempts: 1 }"),
        format!("  nobody: {{ members: [{nobody}], probe: off }}\n"),
    ];
    let route = |name: &str| format!("  - {{ path: /{name}, pool: {name} }}\n");
    let routes = ["dead", "broken", "stuck", "nobody"].map(route).concat();
    let proxy = Proxy::start(&format!("pools:\n{}routes:\n{routes}", pools.concat()));
    let rows = [("/dead", 502), ("/broken", 502), ("/stuck", 504), ("/nobody", 503), ("/elsewhere", 404)];
    for (path, status) in rows {
        let mut client = proxy.connect();
        let head = client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n")).try_reply("HEAD").expect(path);
        assert_eq!(head.status, status, "HEAD {path}");
        // What follows must be the next answer, not a body.
        if head.field("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")) {
            let get = client.get(&format!("{path}/again"));
            assert_eq!(get.status, status, "GET {path}");
            assert!(!get.body.is_empty() && get.complete, "GET {path} says something");
        } else {
            assert!(client.stray(Duration::from_millis(200)).is_empty(), "HEAD {path} got a body");
        }
        let reply = proxy.get(&format!("{path}/alone"));
        assert_eq!(reply.status, status, "{path}");
        assert_eq!(reply.field("retry-after").is_some(), status == 503, "{path}: {:?}", reply.lines);
    }
    assert!(proxy.access("/nobody/alone").has(&[("reason", "no_member")]));
    assert!(proxy.access("/stuck/alone").has(&[("reason", "upstream_timeout"), ("outcome", "timeout")]));
}

#[test]
fn c15_head_with_a_promised_length_leaves_the_connection_usable() {
    let origin = Origin::start();
    origin.answer(Answer::status(200).body(vec![b'x'; 1000]));
    let proxy = unprobed(&origin, "");
    let mut client = proxy.connect();
    let head = client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n").try_reply("HEAD").expect("an answer");
    assert_eq!((head.status, head.field("content-length")), (200, Some("1000")));
    assert_eq!(client.get("/g").body.len(), 1000);
    assert_eq!(origin.traffic().iter().map(|seen| seen.connection).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn bodies_stream_in_both_directions() {
    let (origin, gate) = (Origin::start(), Gate::new());
    let chunk = |text: &str| Step::Bytes(chunk_of(text));
    let steps = vec![chunk("first"), Step::Hold(gate.clone()), chunk("second"), Step::Bytes(b"0\r\n\r\n".to_vec())];
    origin.when(When::path("/down"), Answer::status(200).field("Transfer-Encoding: chunked").steps(steps));
    let proxy = unprobed(&origin, "");
    let mut client = proxy.connect();
    client.send("GET /down HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().expect("a header").status, 200);
    let first = client.stray(Duration::from_secs(20));
    assert!(String::from_utf8_lossy(&first).contains("first") && gate.waiting() == 1, "held back: {first:?}");
    gate.open();
    eventually("the rest comes", || String::from_utf8_lossy(&client.stray(Duration::from_secs(1))).contains("second"));

    let mut client = proxy.connect();
    client.send("POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").send("5\r\nfirst\r\n");
    let came =
        || origin.traffic().iter().find(|seen| seen.target == "/up").map(|seen| (seen.body.clone(), seen.complete));
    eventually("the first part is through", || came() == Some((b"first".to_vec(), false)));
    assert_eq!(client.send("6\r\nsecond\r\n0\r\n\r\n").reply().status, 200);
    assert_eq!(came(), Some((b"firstsecond".to_vec(), true)));
}

#[test]
fn large_bodies_arrive_whole() {
    let origin = Origin::start();
    let body: String = (0..200_000).map(|i| char::from(b'a' + u8::try_from(i % 26).expect("small"))).collect();
    origin.answer(Answer::status(200).body(body.repeat(10)));
    let proxy = unprobed(&origin, "");
    let reply = proxy.request("POST", "/large", &[], &body);
    assert!(reply.complete && reply.body == body.repeat(10).into_bytes());
    assert_eq!(origin.traffic()[0].body, body.as_bytes());
    let line = proxy.access("/large");
    assert_eq!((&line.json["request_bytes"], &line.json["response_bytes"]), (&200_000.into(), &2_000_000.into()));
}

#[test]
fn c11_expectation_is_met_before_the_body_is_sent() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    let mut client = proxy.connect();
    client.send("POST /expect HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().expect("an interim answer").status, 100);
    assert_eq!(client.send("body").reply().status, 200);
    assert_eq!(origin.traffic()[0].body, b"body");
    assert_eq!(client.get("/next").status, 200, "the connection is kept");
    assert_eq!(proxy.access("/expect").json["connection"], proxy.access("/next").json["connection"]);
}

#[test]
fn d01_d02_answer_that_breaks_off_is_never_shown_as_whole() {
    let origin = Origin::start();
    let half = || Step::Bytes(b"half".to_vec());
    for end in [Step::Close, Step::Reset] {
        let sized = Answer::status(200).field("Content-Length: 100").steps(vec![half(), end.clone()]);
        let part = Step::Bytes(chunk_of("half"));
        let chunked = Answer::status(200).field("Transfer-Encoding: chunked").steps(vec![part, end.clone()]);
        origin.when(When::path("/sized"), sized);
        origin.when(When::path("/chunked"), chunked);
        let proxy = unprobed(&origin, "");
        for path in ["/sized", "/chunked"] {
            let reply = crate::harness::client::try_request(proxy.address(), "GET", path, &[], "");
            // A reset may overtake what was sent before it; then there is no answer at all.
            assert!(!reply.is_ok_and(|reply| reply.complete), "{path} after {end:?}");
            let line = proxy.access(path);
            assert!(line.has(&[("outcome", "upstream_error"), ("reason", "upstream_reset")]), "{}", line.raw);
        }
    }
}

#[test]
fn member_over_ipv6_serves() {
    let origin = Origin::start_v6();
    let proxy = Proxy::of(&[&origin], "");
    proxy.await_standing(&origin, "healthy");
    assert_eq!(proxy.get("/six").status, 200);
    assert_eq!(proxy.access("/six").tried(), [origin.address()]);
}

#[test]
fn http_1_0_client_gets_its_answer_and_the_end_of_the_connection() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    let mut client = proxy.connect();
    let reply = client.send("GET /old HTTP/1.0\r\nHost: a\r\n\r\n").reply();
    assert_eq!((reply.status, reply.text().as_str()), (200, "ok\n"));
    assert!(client.is_closed());
}

#[test]
fn close_is_heard_in_every_line_of_connection() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    for lines in ["Connection: x-foo\r\nConnection: close", "Connection: keep-alive\r\nConnection: x-foo, close"] {
        let mut client = proxy.connect();
        let reply = client.send(format!("GET /close HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n")).reply();
        assert_eq!((reply.status, reply.field("connection")), (200, Some("close")), "{lines}");
        assert!(client.is_closed(), "{lines}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_or_not_at_all() {
    let origin = Origin::start();
    origin.when(When::path("/1"), Answer::status(200).body("one"));
    origin.when(When::path("/2"), Answer::status(200).body("two"));
    let proxy = unprobed(&origin, "");
    let mut client = proxy.connect();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().text(), "one");
    if let Ok(second) = client.try_reply("GET") {
        assert_eq!(second.text(), "two");
    }
}

#[test]
fn probed_pool_serves_while_its_probe_and_its_traffic_differ() {
    let origin = Origin::start();
    origin.when(When::probe(), Answer::status(200));
    origin.when(When::traffic(), Answer::status(418).body("teapot"));
    let proxy = Proxy::start(&pool_config(&[&origin], ""));
    proxy.await_standing(&origin, "healthy");
    assert_eq!(proxy.get("/any").status, 418);
    origin.await_probes(3);
    assert_eq!(proxy.member("web", &origin.address())["standing"], "healthy", "health is refreshed by probes alone");
}
