//! Limits and deadlines: slow and greedy clients, slow and unreachable members.

use std::fs;
use std::time::Duration;

use crate::harness::client::try_request;
use crate::harness::origin::hold_port;
use crate::harness::proxy::{PROBE, Proxy, config_of, pool_config};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Connection, Origin, Step, When, eventually};

/// One unprobed pool `web` of this origin behind a listener with `limits`.
fn limited(origin: &Origin, limits: &str) -> Proxy {
    let listeners = format!("listeners: [{{ address: \"127.0.0.1:0\", name: web, {limits} }}]\n");
    Proxy::start(&(listeners + &config_of(&[origin.to_string()], "probe: off")))
}

#[test]
fn header_that_drips_is_cut_at_its_total_deadline() {
    let origin = Origin::start();
    let proxy = limited(&origin, "header_timeout: 700ms");
    let mut client = proxy.connect();
    // Byte by byte, each well within any timeout of a single read.
    client.send("GET /drip HTTP/1.1\r\nHost: a\r\nX-Drip: ");
    drip(&mut client);
    let line = proxy.await_access("the dripped request", |line| line.text("reason") == "header_timeout");
    assert!(line.has(&[("outcome", "timeout")]) && line.attempts().is_empty(), "{}", line.raw);

    // The same on a connection that has served a request.
    let mut client = proxy.connect();
    assert_eq!(client.get("/first").status, 200);
    client.send("GET /second HTTP/1.1\r\nHost: a\r\nX-Drip: ");
    drip(&mut client);
    assert_eq!(origin.traffic_count(), 1, "no half request reached the member");
}

/// Sends a byte now and then until the peer closes or answers; panics when it never does.
fn drip(client: &mut Connection) {
    eventually("the slow client is cut", || {
        let sent = client.try_send("x").is_ok();
        let answer = client.stray(Duration::from_millis(50));
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&answer));
        !sent || !answer.is_empty()
    });
}

#[test]
fn half_sent_header_and_idle_connections_are_closed() {
    let origin = Origin::start();
    let proxy = limited(&origin, "header_timeout: 500ms, keepalive_timeout: 500ms");
    let mut silent = proxy.connect();
    let mut half = proxy.connect();
    half.send("GET /half HTTP/1.1\r\nHo");
    let mut kept = proxy.connect();
    assert_eq!(kept.get("/kept").status, 200);
    let mut half_second = proxy.connect();
    assert_eq!(half_second.get("/kept").status, 200);
    half_second.send("GET /half-second HT");
    assert!(silent.is_closed(), "nothing was ever sent");
    assert!(half.is_closed(), "half a header");
    assert!(kept.is_closed(), "idle after a request");
    assert!(half_second.is_closed(), "half a second header");
    assert_eq!(origin.traffic_count(), 2);
}

#[test]
fn body_that_stops_coming_is_a_408_and_never_completed_at_the_member() {
    let origin = Origin::start();
    let proxy = limited(&origin, "body_timeout: 400ms");
    let mut client = proxy.connect();
    client.send("POST /stops HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n").send("some");
    if let Ok(reply) = client.try_reply("POST") {
        assert_eq!(reply.status, 408);
    }
    assert!(client.is_closed());
    let line = proxy.access("/stops");
    assert!(line.has(&[("reason", "body_timeout"), ("outcome", "timeout")]), "{}", line.raw);
    assert!(origin.traffic().iter().all(|seen| !seen.complete));
}

#[test]
fn connections_over_the_cap_are_turned_away_and_the_others_served() {
    let origin = Origin::start();
    let proxy = limited(&origin, "max_connections: 3");
    let mut inside: Vec<Connection> = (0..3).map(|_| proxy.connect()).collect();
    assert!(inside.iter_mut().all(|client| client.get("/in").status == 200));
    // One too many: accepted by the kernel and closed, or never served.
    let mut outside = Connection::open(proxy.address());
    outside.send("GET /out HTTP/1.1\r\nHost: a\r\n\r\n");
    match outside.try_reply("GET") {
        Ok(reply) => assert_eq!(reply.status, 503),
        Err(_) => assert!(outside.is_closed()),
    }
    assert!(inside.iter_mut().all(|client| client.get("/still-in").status == 200));
    drop(inside.pop());
    eventually("a place is free again", || {
        let reply = try_request(proxy.address(), "GET", "/next", &[], "");
        reply.is_ok_and(|reply| reply.status == 200)
    });
    assert!(origin.traffic().iter().all(|seen| seen.target != "/out"));
}

#[test]
fn running_out_of_descriptors_is_survived_and_blames_no_member() {
    let (origin, clock) = (Origin::start(), Origin::start());
    let _ticking = Proxy::of(&[&clock], "");
    let mut proxy = Proxy::start_with_descriptors(&pool_config(&[&origin], ""), 64);
    proxy.await_log("little room", 0, |line| line.text("message").contains("leaves room for 10 clients at once"));
    proxy.await_standing(&origin, "healthy");
    for round in 0..2 {
        // More clients than descriptors: the kernel accepts them all, the proxy cannot.
        let mut crowd: Vec<Connection> = (0..200).map(|_| proxy.connect()).collect();
        for client in &mut crowd {
            client.send("GET /crowd HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        clock.await_probes(4);
        assert!(proxy.is_running(), "round {round}");
        drop(crowd);
        eventually("it serves again", || {
            try_request(proxy.address(), "GET", "/again", &[], "").is_ok_and(|reply| reply.status == 200)
        });
    }
    assert!(proxy.events(&[("to", "unhealthy")]).is_empty(), "a local fault was held against the member");
    assert_eq!(proxy.admin_get("/livez").status, 200);
}

/// Each has a descriptor, one for its dial, and one by which its client is watched meanwhile.
#[test]
fn whoever_waits_for_a_dial_leaves_descriptors_for_probes_and_operators() {
    let (clock, (_hole, address)) = (Origin::start(), black_hole());
    let pools = format!(
        "pools:\n  silent: {{ members: [\"{address}\"], probe: off, upstream: {{ connect_timeout: 60s }} }}\n  \
         clock: {{ members: [{clock}], {PROBE} }}\nroutes: [{{ pool: silent }}]\n"
    );
    let proxy = Proxy::start_with_descriptors(&pools, 200);
    let mut crowd: Vec<Connection> = (0..100).map(|_| proxy.connect()).collect();
    for client in &mut crowd {
        client.send("POST /crowd HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    }
    eventually("all there is room for are dialled for", || proxy.pool("silent")["members"][0]["in_flight"] == 45);
    clock.await_probes(4);
    assert_eq!(proxy.admin_get("/livez").status, 200);
    let out = proxy.log().into_iter().find(|line| line.raw.contains("Too many open files"));
    assert!(out.is_none(), "{}", out.expect("a line").raw);
}

#[test]
fn connection_ends_after_its_number_of_requests() {
    let origin = Origin::start();
    let proxy = limited(&origin, "keepalive_requests: 3");
    let mut client = proxy.connect();
    assert!((0..2).all(|_| client.get("/n").field("connection") != Some("close")));
    assert_eq!(client.get("/n").field("connection").map(str::to_ascii_lowercase).as_deref(), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn oversized_headers_are_answered_and_logged() {
    let origin = Origin::start();
    let proxy = limited(&origin, "max_header_bytes: 8KiB, max_header_fields: 20, max_uri_bytes: 1KiB");
    let field = |bytes: usize| format!("X-Big: {}", "x".repeat(bytes));
    let fields: Vec<String> = (0..40).map(|i| format!("X-{i}: 1")).collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    assert_eq!(proxy.request("GET", "/fits", &[&field(4000)], "").status, 200);
    assert_eq!(proxy.request("GET", "/large", &[&field(16_000)], "").status, 431);
    assert_eq!(proxy.request("GET", "/huge", &[&field(256 * 1024)], "").status, 431);
    assert_eq!(proxy.request("GET", "/many", &fields, "").status, 431);
    assert_eq!(proxy.request("GET", &format!("/{}", "u".repeat(2000)), &[], "").status, 414);
    for reason in ["header_too_large", "uri_too_long"] {
        let line = proxy.await_access(reason, |line| line.text("reason") == reason);
        assert!(line.has(&[("outcome", "refused")]), "{}", line.raw);
    }
    assert_eq!(origin.traffic_count(), 1);
}

#[test]
fn unreachable_address_is_a_504_at_the_connect_timeout() {
    let (_hole, address) = black_hole();
    let keys = "probe: off\nupstream: { connect_timeout: 300ms }\nretries: { connect: 1 }";
    let proxy = Proxy::start(&config_of(&[format!("\"{address}\"")], keys));
    // Both drivers, and a body that nobody reads meanwhile.
    let rows = [
        ("/plain", "GET", "X-Own: 1", ""),
        ("/other", "GET", "TE: trailers", ""),
        ("/body", "POST", "X-Own: 1", "abc"),
    ];
    for (path, method, field, body) in rows {
        assert_eq!(proxy.request(method, path, &[field], body).status, 504, "{path}");
        let line = proxy.access(path);
        assert_eq!(line.attempts()[0]["result"], "connect_timeout", "{}", line.raw);
        assert!(line.has(&[("outcome", "timeout")]), "{}", line.raw);
    }
}

/// Both drivers; with connections counted and not, since those that are counted are dialled by a connector of our own.
#[test]
fn client_that_leaves_during_a_dial_is_no_longer_dialled_for() {
    // Were anything held against the member it would be out.
    const PASSIVE: &str = "passive: { eject: { consecutive: 1 } }";
    for counted in ["", "each_member: { max_connections: 1 }"] {
        let (origin, (_hole, address)) = (Origin::start(), black_hole());
        // Whoever is not answered by the first goes on to the second, unless it is seen to have left.
        let hole = format!("{{ address: \"{address}\", tier: 0 }}");
        let other = format!("{{ address: {origin}, tier: 1 }}");
        let keys = format!("probe: off\nupstream: {{ connect_timeout: 600s }}\n{PASSIVE}\n{counted}");
        let proxy = Proxy::start(&config_of(&[hole, other], &keys));
        let member = || proxy.member("web", &address.to_string());
        let open = || fs::read_dir(format!("/proc/{}/fd", proxy.id())).expect("it runs").count();
        let before = (member(), open()).1;
        let bodies = [("GET", ""), ("GET", "TE: trailers\r\n"), ("POST", "Content-Length: 3\r\n")];
        for (place, (method, field)) in bodies.into_iter().enumerate() {
            for leaves in ["closes", "resets", "ends"] {
                let path = format!("/{place}/{leaves}");
                let mut client = proxy.connect();
                let body = if method == "POST" { "abc" } else { "" };
                client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n{body}"));
                eventually("it is dialled for", || member()["in_flight"] == 1);
                let _half = left(client, leaves);
                let line = proxy.access(&path);
                assert!(line.has(&[("outcome", "client_aborted"), ("reason", "client_aborted")]), "{}", line.raw);
                assert_eq!((&line.json["status"], line.attempts().len()), (&499.into(), 1), "{}", line.raw);
                assert_eq!(line.attempts()[0]["result"], "client_aborted", "{}", line.raw);
                eventually("its seat is free", || member()["in_flight"] == 0);
                let connections = &member()["connections"];
                assert!(connections.is_null() || *connections == 0, "its place is free: {}", member());
            }
        }
        assert!(member()["passive"]["offences"].as_u64().unwrap_or(0) == 0, "{}", member());
        assert_eq!(origin.traffic_count(), 0, "nothing is tried elsewhere");
        eventually("no descriptor is left", || open() <= before);
    }
}

/// A client that leaves like this; who only ends its sending half is still there, and has left too.
fn left(mut client: Connection, how: &str) -> Option<Connection> {
    match how {
        "closes" => drop(client),
        "resets" => client.reset(),
        _ => {
            client.end();
            return Some(client);
        }
    }
    None
}

/// A listener with a full backlog drops what comes: nothing is refused and nothing is accepted.
pub fn black_hole() -> (Vec<socket2::Socket>, std::net::SocketAddr) {
    let (holder, address) = hold_port("127.0.0.1".parse().expect("an address"));
    holder.listen(0).expect("listens");
    let queue = (0..4).map(|_| begin_connect(address));
    (std::iter::once(holder).chain(queue).collect(), address)
}

/// Begins to connect and does not wait for it.
fn begin_connect(address: std::net::SocketAddr) -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_nonblocking(true).expect("nonblocking");
    let _ = socket.connect(&address.into());
    socket
}

#[test]
fn d23_slow_member_is_a_504_at_the_read_timeout_and_a_steady_one_is_not() {
    let origin = Origin::start();
    origin.when(When::path("/never"), Answer::hang());
    let bit = |text: &str| [Step::Bytes(chunk_of(text)), Step::Pause(Duration::from_millis(200))];
    let steps: Vec<Step> = ["a", "b", "c", "d", "e"].iter().flat_map(|text| bit(text)).collect();
    let steps = [steps, vec![Step::Bytes(b"0\r\n\r\n".to_vec())]].concat();
    origin.when(When::path("/steady"), Answer::status(200).field("Transfer-Encoding: chunked").steps(steps));
    let keys = "probe: off\nupstream: { read_timeout: 800ms }\nretries: { attempts: 1 }";
    let proxy = Proxy::start(&config_of(&[origin.to_string()], keys));
    assert_eq!(proxy.get("/never").status, 504);
    // A second in all, and never long between two reads.
    assert_eq!(proxy.get("/steady").text(), "abcde");
}
