//! Which request is meant, and what members are told of where it came from.

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Origin, When};

/// One unprobed pool `web` of this origin.
fn unprobed(origin: &Origin) -> Proxy {
    Proxy::start(&config_of(&[origin.to_string()], "probe: off"))
}

#[test]
fn b01_b02_b03_request_without_a_right_host_or_target_is_a_400_and_never_sent() {
    let rows: [(&str, &[u8]); 16] = [
        ("no host", b"GET /x HTTP/1.1\r\n\r\n"),
        ("two hosts", b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        ("one host twice", b"GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        ("space", b"GET /x HTTP/1.1\r\nHost: a b\r\n\r\n"),
        ("slash", b"GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        ("user", b"GET /x HTTP/1.1\r\nHost: user@a\r\n\r\n"),
        ("quote", b"GET /x HTTP/1.1\r\nHost: a\"b\r\n\r\n"),
        ("list", b"GET /x HTTP/1.1\r\nHost: a?b#c\r\n\r\n"),
        ("not ascii", b"GET /x HTTP/1.1\r\nHost: \xc3\xbc.example\r\n\r\n"),
        ("bad host of 1.0", b"GET /x HTTP/1.0\r\nHost: a b\r\n\r\n"),
        ("no slash", b"GET x HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("query alone", b"GET ?x HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("authority", b"GET a.example:80 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("asterisk", b"GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("another scheme", b"GET ftp://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        ("dots", b"GET ../x HTTP/1.1\r\nHost: a\r\n\r\n"),
    ];
    let origin = Origin::start();
    let proxy = unprobed(&origin);
    for (name, bytes) in rows {
        let logged = proxy.access_log().len();
        let mut client = proxy.connect();
        let reply = client.send(bytes).reply();
        assert_eq!((reply.status, reply.complete), (400, true), "{name}");
        assert!(client.is_closed(), "{name}");
        drop(client);
        crate::harness::eventually(&format!("{name} has its line"), || proxy.access_log().len() > logged);
        let line = proxy.access_log().swap_remove(logged);
        assert!(line.has(&[("reason", "bad_request"), ("outcome", "refused")]), "{name}: {}", line.raw);
        assert!(line.json["status"] == 400 && line.attempts().is_empty(), "{name}: {}", line.raw);
    }
    proxy.settle_access_log("/sentinel");
    assert_eq!(proxy.access_log().len(), rows.len() + 1, "one line each");
    assert_eq!(origin.traffic_count(), 1, "the member was asked");
}

#[test]
fn whole_uri_decides_route_and_host_and_members_get_a_path() {
    let (shop, other) = (Origin::start(), Origin::start());
    shop.answer(Answer::status(200).body("shop"));
    other.answer(Answer::status(200).body("other"));
    let pool = |name: &str, origin: &Origin| format!("  {name}: {{ members: [{origin}], probe: off }}\n");
    let routes = "routes:\n  - { host: shop.example, path: /in, pool: shop }\n  - { pool: other }\n";
    let proxy = Proxy::start(&format!("pools:\n{}{}{routes}", pool("shop", &shop), pool("other", &other)));
    // (target, Host, member's target, member's Host)
    let rows = [
        ("http://shop.example/in/a?b=1", "shop.example", "/in/a?b=1", "shop.example"),
        ("HTTP://shop.example:8080/in/b", "shop.example:8080", "/in/b", "shop.example:8080"),
        ("http://shop.example/in", "shop.example", "/in", "shop.example"),
    ];
    for (target, host, path, named) in rows {
        let reply = proxy.request("GET", target, &[&format!("Host: {host}")], "");
        assert_eq!((reply.status, reply.text().as_str()), (200, "shop"), "{target}");
        let seen = shop.traffic().pop().expect("it was asked");
        assert_eq!((seen.target.as_str(), seen.fields("host")), (path, vec![named]), "{target}: {:?}", seen.lines);
        assert_eq!(seen.fields("x-forwarded-host"), [named], "{target}: {:?}", seen.lines);
    }
    let bare = proxy.request("GET", "http://else.example", &["Host: else.example"], "");
    assert_eq!(bare.text(), "other");
    assert_eq!(other.traffic()[0].target, "/");
    let line = proxy.access("/in/a");
    assert!(line.has(&[("query", "b=1"), ("host", "shop.example"), ("pool", "shop")]), "{}", line.raw);
}

#[test]
fn b05_whole_uri_overrides_the_host_however_it_comes() {
    let (shop, other) = (Origin::start(), Origin::start());
    let pool = |name: &str, origin: &Origin| format!("  {name}: {{ members: [{origin}], probe: off }}\n");
    let routes = "routes:\n  - { host: shop.example, pool: shop }\n  - { pool: other }\n";
    let proxy = Proxy::start(&format!("pools:\n{}{}{routes}", pool("shop", &shop), pool("other", &other)));
    // (authority of the target, Host)
    let rows = [
        ("shop.example", "else.example"),
        ("Shop.example", "shop.example"),
        ("shop.example:80", "shop.example"),
        ("shop.example", ""),
    ];
    let mut client = proxy.connect();
    for (authority, host) in rows {
        let request = format!("POST http://{authority}/a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody");
        // In one piece, and a byte at a time; then what is pipelined behind it.
        client.send(&request);
        assert_eq!(client.reply().status, 200, "{authority} and {host}");
        for byte in request.bytes() {
            client.send([byte]);
        }
        assert_eq!(client.reply().status, 200, "{authority} and {host}, slowly");
        client.send(format!("{request}{request}GET /else HTTP/1.1\r\nHost: else.example\r\n\r\n"));
        assert_eq!([client.reply().status, client.reply().status, client.reply().status], [200; 3]);
        let seen = shop.traffic().split_off(shop.traffic_count() - 4);
        for seen in seen {
            assert_eq!((seen.target.as_str(), seen.fields("host")), ("/a", vec![authority]), "{:?}", seen.lines);
            assert_eq!((seen.fields("x-forwarded-host"), seen.body.as_slice()), (vec![authority], &b"body"[..]));
        }
    }
    assert_eq!((shop.traffic_count(), other.traffic_count()), (4 * rows.len(), rows.len()));
    proxy.await_access("its line", |line| line.has(&[("host", "shop.example:80"), ("path", "/a"), ("outcome", "ok")]));
    // Two are two, whatever the target says, and what is too large or never ends is cut.
    let two = "GET http://shop.example/b HTTP/1.1\r\nHost: shop.example\r\nHost: shop.example\r\n\r\n";
    assert_eq!(proxy.connect().send(two).reply().status, 400);
    let large = format!("GET http://shop.example/{} HTTP/1.1\r\n", "x".repeat(64 << 10));
    assert_eq!(proxy.connect().send(large).reply().status, 431);
    assert_eq!(proxy.connect().send("GET http://shop.example/a b HTTP/1.1\r\nHost: a\r\n\r\n").reply().status, 400);
    assert_eq!(shop.traffic_count(), 4 * rows.len());
}

#[test]
fn http_1_0_request_without_a_host_is_sent_under_the_members_name() {
    let origin = Origin::start();
    let proxy = unprobed(&origin);
    let mut client = proxy.connect();
    assert_eq!(client.send("GET /nameless HTTP/1.0\r\nX-Forwarded-Host: evil.example\r\n\r\n").reply().status, 200);
    let seen = &origin.traffic()[0];
    assert_eq!((seen.version.as_str(), seen.fields("host")), ("HTTP/1.1", vec![origin.address().as_str()]));
    assert!(seen.fields("x-forwarded-host").is_empty(), "{:?}", seen.lines);
    assert!(!seen.field("forwarded").expect("one").contains("host="), "{:?}", seen.lines);
    assert!(proxy.access("/nameless").json["host"].is_null());
}

#[test]
fn trusted_proxys_word_is_the_same_in_both_spellings() {
    let origin = Origin::start();
    let config = config_of(&[origin.to_string()], "probe: off");
    let proxy = Proxy::start(&format!("trusted_proxies: [\"127.0.0.0/8\"]\n{config}"));
    // (what it says, Forwarded at the member, X-Forwarded-For, X-Forwarded-Proto)
    let rows: [(&[&str], &str, &str, &str); 4] = [
        (
            &["X-Forwarded-For: 203.0.113.9, 2001:db8::7", "X-Forwarded-Proto: https"],
            "for=203.0.113.9;proto=https, for=\"[2001:db8::7]\", for=127.0.0.1;host=shop.example;proto=http",
            "203.0.113.9, 2001:db8::7, 127.0.0.1",
            "https",
        ),
        (
            &["X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 198.51.100.7"],
            "for=203.0.113.9;proto=http, for=198.51.100.7, for=127.0.0.1;host=shop.example;proto=http",
            "203.0.113.9, 198.51.100.7, 127.0.0.1",
            "http",
        ),
        (&[], "for=127.0.0.1;host=shop.example;proto=http", "127.0.0.1", "http"),
        (
            &["Forwarded: for=203.0.113.9;proto=https", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https"],
            "for=203.0.113.9;proto=https, for=127.0.0.1;host=shop.example;proto=http",
            "203.0.113.9, 127.0.0.1",
            "https",
        ),
    ];
    for (nth, (says, forwarded, chain, proto)) in rows.into_iter().enumerate() {
        proxy.request("GET", "/told", &[says, &["Host: shop.example"]].concat(), "");
        let seen = &origin.traffic()[nth];
        assert_eq!(seen.fields("forwarded"), [forwarded], "{:?}", seen.lines);
        assert_eq!(seen.fields("x-forwarded-for"), [chain], "{:?}", seen.lines);
        assert_eq!(seen.fields("x-forwarded-proto"), [proto], "{:?}", seen.lines);
    }
}

#[test]
fn strangers_claims_under_other_names_are_gone() {
    let origin = Origin::start();
    let proxy = unprobed(&origin);
    let claims = [
        "X_Forwarded_For: 192.0.2.1",
        "X-Forwarded_Proto: https",
        "X-Forwarded-Port: 443",
        "X-Forwarded-Prefix: /admin",
        "X-Forwarded-Server: evil.example",
        "X_Real_IP: 192.0.2.1",
        "X-Real-IP: 192.0.2.1",
        "Proxy: http://evil.example",
        "X-Plain: 1",
    ];
    origin.when(When::path("/claims"), Answer::status(204));
    assert_eq!(proxy.request("GET", "/claims", &claims, "").status, 204);
    let seen = &origin.traffic()[0];
    let told = ["X_Forwarded_For", "X-Forwarded_Proto", "X_Real_IP", "Proxy"];
    let told = told.iter().chain(&["X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server"]);
    told.for_each(|name| assert_eq!(seen.field(name), None, "{:?}", seen.lines));
    assert!(
        !seen.lines.join("\n").contains("192.0.2.1") && seen.fields("x-real-ip") == ["127.0.0.1"],
        "{:?}",
        seen.lines
    );
    assert_eq!(seen.field("x-plain"), Some("1"));
}

/// Case C62: whatever a client says of where it comes from, members read one line, and it is true.
#[test]
fn exactly_one_forwarded_line_reaches_members_whatever_was_sent() {
    let origin = Origin::start();
    let config = config_of(&[origin.to_string()], "probe: off");
    let v6 = format!("listeners: [{{ address: \"[::1]:0\", name: web }}]\n{config}");
    let trusting = |config: &str| format!("trusted_proxies: [\"127.0.0.0/8\", \"::1\"]\n{config}");
    let sent: [&[&str]; 4] = [
        &[],
        &["X-Forwarded-For: 203.0.113.9"],
        &["X-Forwarded-For: 203.0.113.9, 2001:db8::7"],
        &["X-Forwarded-For: 203.0.113.9", "x-forwarded-for: 2001:db8::7"],
    ];
    // What members read of these from a peer that is believed, before the peer itself.
    let chains = ["", "203.0.113.9, ", "203.0.113.9, 2001:db8::7, ", "203.0.113.9, 2001:db8::7, "];
    let clients = [None, Some("203.0.113.9"), Some("2001:db8::7"), Some("2001:db8::7")];
    let proxies = [
        (Proxy::start(&config), "127.0.0.1", false),
        (Proxy::start(&trusting(&config)), "127.0.0.1", true),
        (Proxy::start(&v6), "::1", false),
        (Proxy::start(&trusting(&v6)), "::1", true),
    ];
    for (proxy, peer, trusted) in &proxies {
        for (nth, forwarded) in sent.iter().enumerate() {
            for more in [&[][..], &["Forwarded: for=198.51.100.1;proto=https", "Via: 1.0 far", "Via: 1.1 near"]] {
                let path = format!("/{nth}/{}", more.len());
                assert_eq!(proxy.request("GET", &path, &[forwarded, more].concat(), "").status, 200);
                let seen = origin.traffic().pop().expect("it was asked");
                let row = format!("{path} from {peer}, trusted: {trusted}: {:?}", seen.lines);
                let chain = if *trusted { chains[nth] } else { "" };
                assert_eq!(seen.fields("x-forwarded-for"), [format!("{chain}{peer}")], "{row}");
                let [told] = seen.fields("forwarded")[..] else { panic!("not one Forwarded: {row}") };
                let own = if *peer == "::1" { "for=\"[::1]\";" } else { "for=127.0.0.1;" };
                assert!(told.contains(own) && told.matches(own).count() == 1, "{row}");
                assert_eq!(told.contains("198.51.100.1"), *trusted && !more.is_empty(), "{row}");
                let via = if more.is_empty() { "1.1 pulsegate" } else { "1.0 far, 1.1 near, 1.1 pulsegate" };
                assert_eq!(seen.fields("via"), [via], "{row}");
                let client = clients[nth].filter(|_| *trusted).unwrap_or(peer);
                assert_eq!(proxy.access(&path).text("client"), client, "{row}");
            }
        }
    }
}

/// Case C62: what is too large is answered and logged, not met with silence.
#[test]
fn large_headers_pass_whole_and_larger_ones_are_431_and_logged() {
    let origin = Origin::start();
    let proxy = unprobed(&origin);
    for (kib, status) in [(8, 200), (16, 200), (64, 431), (256, 431)] {
        let logged = proxy.access_log().len();
        let value = "v".repeat(kib << 10);
        let reply = proxy.request("GET", &format!("/{kib}"), &[&format!("X-Big: {value}")], "");
        assert_eq!((reply.status, reply.complete), (status, true), "{kib} KiB");
        crate::harness::eventually(&format!("{kib} KiB have their line"), || proxy.access_log().len() > logged);
        let line = proxy.access_log().swap_remove(logged);
        assert_eq!(line.json["status"], status, "{}", line.raw);
        match status {
            200 => assert_eq!(origin.traffic().pop().expect("asked").field("x-big"), Some(value.as_str()), "{kib} KiB"),
            _ => assert!(line.has(&[("reason", "header_too_large"), ("outcome", "refused")]), "{}", line.raw),
        }
    }
    let cookies: Vec<String> = (0..200).map(|nth| format!("cookie{nth}={}", "x".repeat(40))).collect();
    let one = format!("Cookie: {}", cookies.join("; "));
    assert_eq!(proxy.request("GET", "/cookies", &[&one], "").status, 200);
    let seen = origin.traffic().pop().expect("it was asked");
    assert_eq!(seen.fields("cookie"), [one.trim_start_matches("Cookie: ")], "one line of 200");
    let lines: Vec<String> = cookies.iter().map(|cookie| format!("Cookie: {cookie}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(proxy.request("GET", "/lines", &lines, "").status, 431, "200 lines");
    assert!(proxy.access("/lines").has(&[("reason", "header_too_large")]));
    assert_eq!(origin.traffic_count(), 3);
}
