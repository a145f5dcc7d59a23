//! Tunnels: WebSockets and whatever else a client asks for and a member switches to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::process::run;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::chunk_of;
use crate::harness::tls::{Authority, TlsOrigin};
use crate::harness::wait::pause;
use crate::harness::{Answer, Connection, Echo, Gate, Line, Origin, Step, Switcher, WebSocket, When, eventually};

/// One unprobed pool `web` of this member with `keys`.
fn config(member: &str, keys: &str) -> String {
    config_of(&[format!("\"{member}\"")], &format!("probe: off\n{keys}"))
}

/// Asks for a tunnel of this protocol at `path`, and gets it.
#[track_caller]
fn tunnel(proxy: &Proxy, path: &str, protocol: &str) -> Connection {
    let mut client = proxy.connect();
    let fields = format!("Host: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}");
    let head = client.send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n")).head().expect("a header");
    assert_eq!(head.status, 101, "{:?}", head.lines);
    client
}

#[track_caller]
fn bytes(line: &Line) -> (u64, u64) {
    let number = |field: &str| line.json[field].as_u64().unwrap_or_else(|| panic!("no {field}: {}", line.raw));
    (number("request_bytes"), number("response_bytes"))
}

#[test]
fn websocket_echoes_both_ways_through_ten_reloads() {
    let echo = Echo::start();
    let base = config(&echo.address(), "");
    let proxy = Proxy::start(&base);
    let mut socket = WebSocket::open(proxy.address(), "/socket");
    assert_eq!(socket.say("first"), "first");
    for round in 0..10_u8 {
        // Another pool comes and goes, and its own pool is another too.
        let other = format!("  other{round}: {{ members: [\"127.0.0.1:1\"], probe: off }}\nroutes:");
        let weight = format!("{{ address: \"{}\", weight: {} }}", echo.address(), round + 2);
        let member = format!("\"{}\"", echo.address());
        proxy.reload(&base.replace("routes:", &other).replace(&member, &weight));
        assert_eq!(socket.say(&format!("round {round}")), format!("round {round}"));
        let frame = vec![round; 1 << 20];
        assert!(socket.throw(frame.clone()) == frame, "a frame of a megabyte, round {round}");
        socket.ping();
    }
    assert_eq!(echo.open(), 1, "it was opened once");
    socket.close();
    let line = proxy.access("/socket");
    assert!(line.has(&[("outcome", "ok"), ("reason", "-"), ("pool", "web")]), "{}", line.raw);
    assert!(line.json["upgraded"] == true && line.json["status"] == 101, "{}", line.raw);
    let (up, down) = bytes(&line);
    assert!(up > 10 << 20 && down > 10 << 20, "{}", line.raw);
    assert_eq!(line.attempts().len(), 1, "{}", line.raw);
    assert_eq!((&line.attempts()[0]["result"], &line.attempts()[0]["bytes"]), (&"ok".into(), &down.into()));
    proxy.settle_access_log("/sentinel");
    assert_eq!(proxy.access_log().iter().filter(|line| line.text("path") == "/socket").count(), 1, "one line");
}

#[test]
fn member_that_closes_its_websocket_ends_it_as_well_as_a_client_does() {
    let echo = Echo::start();
    let proxy = Proxy::start(&config(&echo.address(), ""));
    let mut socket = WebSocket::open(proxy.address(), "/by-member");
    assert_eq!(socket.say("one"), "one");
    socket.say_nothing_but("close");
    socket.await_end();
    drop(socket);
    let line = proxy.access("/by-member");
    assert!(line.has(&[("outcome", "ok"), ("reason", "-")]) && line.json["upgraded"] == true, "{}", line.raw);
    assert_eq!(line.attempts()[0]["result"], "ok", "{}", line.raw);
}

#[test]
fn open_tunnels_are_counted_and_are_in_flight() {
    let echo = Echo::start();
    let proxy = Proxy::start(&config(&echo.address(), ""));
    let counts = || {
        let (pool, member) = (proxy.pool("web"), proxy.member("web", &echo.address()));
        (pool["tunnels"].clone(), member["tunnels"].clone(), member["in_flight"].clone())
    };
    assert_eq!(counts(), (0.into(), 0.into(), 0.into()));
    let mut sockets: Vec<WebSocket> = (0..3).map(|_| WebSocket::open(proxy.address(), "/counted")).collect();
    assert!(sockets.iter_mut().all(|socket| socket.say("here") == "here"));
    assert_eq!(counts(), (3.into(), 3.into(), 3.into()));
    sockets.drain(..).for_each(WebSocket::close);
    eventually("none is left", || counts() == (0.into(), 0.into(), 0.into()));
}

#[test]
fn drain_that_waits_for_a_tunnel_says_that_it_does_not_end_it() {
    let echo = Echo::start();
    let proxy = Proxy::start(&config(&echo.address(), ""));
    let mut socket = WebSocket::open(proxy.address(), "/drained");
    assert_eq!(socket.say("here"), "here");
    let (address, admin) = (echo.address(), proxy.admin().to_string());
    let ended = run(proxy.dir(), &["drain", "web", &address, "--wait", "10ms", "--admin", &admin], &[]);
    let expected = format!(
        "pulsegate: still 1 request on {address} after 10ms, of which 1 is a tunnel, which a drain does not end; it stays drained"
    );
    assert_eq!((ended.code, ended.reason()), (Some(1), expected.as_str()), "{ended:?}");
    assert!(ended.stderr.contains("warning: pool web is down now: nobody may serve"), "{ended:?}");
    assert_eq!(socket.say("still"), "still");
    let ended = run(proxy.dir(), &["disable", "web", &address, "--admin", &admin], &[]);
    assert!(ended.stdout.contains("; 1 in flight, of which 1 tunnel\n"), "{ended:?}");
    socket.close();
}

#[test]
fn client_that_has_said_all_still_hears_the_answer() {
    // The member answers only when it has seen the client's end, with more than any buffer holds.
    let answer = vec![b'a'; 3 << 20];
    let says = answer.clone();
    let switcher = Switcher::start(move |mut stream| {
        let mut heard = vec![];
        let _ = stream.read_to_end(&mut heard);
        let _ = stream.write_all(format!("{:>10}", heard.len()).as_bytes());
        let _ = stream.write_all(&says);
    });
    let proxy = Proxy::start(&config(&switcher.address(), ""));
    for (path, question) in [("/short", vec![b'q'; 9]), ("/long", vec![b'q'; 5 << 20]), ("/none", vec![])] {
        let mut client = tunnel(&proxy, path, "foo");
        client.send(&question).end();
        let heard = client.rest().expect("an end in order");
        assert_eq!(String::from_utf8_lossy(&heard[..10]).trim(), question.len().to_string(), "{path}");
        assert!(heard[10..] == answer, "{path}: {} bytes", heard.len());
        let line = proxy.access(path);
        assert!(line.has(&[("outcome", "ok"), ("reason", "-")]), "{}", line.raw);
        assert_eq!(bytes(&line), (question.len() as u64, heard.len() as u64), "{}", line.raw);
    }
}

#[test]
fn member_that_has_said_all_still_hears_the_client() {
    let heard = Arc::new(AtomicUsize::new(0));
    let counted = heard.clone();
    let switcher = Switcher::start(move |mut stream| {
        let _ = stream.write_all(b"bye");
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = vec![];
        let _ = stream.read_to_end(&mut rest);
        counted.fetch_add(rest.len(), Relaxed);
    });
    let proxy = Proxy::start(&config(&switcher.address(), ""));
    let mut client = tunnel(&proxy, "/bye", "foo");
    assert_eq!(client.rest().as_deref(), Ok(&b"bye"[..]), "what it said, and its end");
    client.send(vec![b'x'; 2 << 20]).send("late").end();
    eventually("the member has heard all of it", || heard.load(Relaxed) == (2 << 20) + 4);
    let line = proxy.access("/bye");
    assert!(line.has(&[("outcome", "ok"), ("reason", "-")]), "{}", line.raw);
    assert_eq!(bytes(&line), ((2 << 20) + 4, 3), "{}", line.raw);
}

#[test]
fn client_that_talks_on_to_a_member_that_is_gone_is_let_go_in_order() {
    let switcher = Switcher::start(|mut stream| {
        let _ = stream.write_all(b"bye");
    });
    let proxy = Proxy::start(&config(&switcher.address(), ""));
    let mut client = tunnel(&proxy, "/gone", "foo");
    assert_eq!(client.rest().as_deref(), Ok(&b"bye"[..]));
    eventually("it is let go", || client.try_send("is anybody there?").is_err());
    let line = proxy.access("/gone");
    assert!(line.has(&[("outcome", "ok"), ("reason", "-")]), "{}", line.raw);
}

#[test]
fn reset_in_a_tunnel_is_no_normal_end() {
    let switcher = Switcher::start(|mut stream| {
        let mut byte = [0];
        let _ = stream.read_exact(&mut byte);
        if byte == *b"r" {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            return;
        }
        let _ = stream.read_exact(&mut byte);
    });
    let proxy = Proxy::start(&config(&switcher.address(), ""));
    let mut client = tunnel(&proxy, "/by-member", "foo");
    assert!(client.send("r").is_closed());
    let line = proxy.access("/by-member");
    assert!(line.has(&[("outcome", "upstream_error"), ("reason", "upstream_reset")]), "{}", line.raw);
    assert_eq!((&line.json["status"], &line.json["upgraded"]), (&101.into(), &true.into()), "{}", line.raw);
    let mut client = tunnel(&proxy, "/by-client", "foo");
    client.send("x");
    client.reset();
    let line = proxy.access("/by-client");
    assert!(line.has(&[("outcome", "client_aborted"), ("reason", "client_aborted")]), "{}", line.raw);
}

#[test]
fn tunnels_of_a_member_that_leaves_the_file_end_within_their_time_and_no_others() {
    let (leaving, staying, gone) = (Echo::start(), Echo::start(), Echo::start());
    let keys = "probe: off, tunnels: { drain: 1s }";
    let pool = |name: &str, member: &Echo| format!("  {name}: {{ members: [\"{}\"], {keys} }}\n", member.address());
    let both = format!("  both: {{ members: [\"{}\", \"{}\"], {keys} }}\n", leaving.address(), staying.address());
    let before = format!(
        "pools:\n{both}{}routes: [{{ path: /both, pool: both }}, {{ path: /gone, pool: gone }}]\n",
        pool("gone", &gone)
    );
    let after = format!("pools:\n{}routes: [{{ path: /both, pool: both }}]\n", pool("both", &staying));
    let proxy = Proxy::start(&before);
    let mut sockets: Vec<WebSocket> = (0..4).map(|_| WebSocket::open(proxy.address(), "/both")).collect();
    sockets.push(WebSocket::open(proxy.address(), "/gone"));
    assert!(sockets.iter_mut().all(|socket| socket.say("before") == "before"));
    assert_eq!((leaving.open(), staying.open(), gone.open()), (2, 2, 1));
    proxy.reload(&after);
    eventually("the tunnels of what left are closed", || leaving.open() + gone.open() == 0);
    for path in ["/both", "/gone"] {
        let drained = |line: &Line| line.text("path") == path && line.text("reason") == "tunnel_drained";
        let line = proxy.await_access(path, drained);
        assert!(line.text("outcome") == "timeout" && line.json["upgraded"] == true, "{}", line.raw);
        assert!(line.json["duration_ms"].as_f64() >= Some(1000.0), "before its time: {}", line.raw);
        assert_eq!(line.attempts()[0]["result"], "abandoned", "{}", line.raw);
    }
    assert_eq!(staying.open(), 2);
    let alive = sockets.iter_mut().filter_map(|socket| socket.try_say("after")).count();
    assert_eq!(alive, 2, "the tunnels of the member that stays");
    assert_eq!(proxy.pool("both")["tunnels"], 2);
}

#[test]
fn tunnel_that_is_never_silent_is_drained_too() {
    let switcher = Switcher::start(|mut stream| {
        let mut scrap = [0; 65536];
        while stream.read(&mut scrap).is_ok_and(|read| read > 0) {}
    });
    let base = config(&switcher.address(), "tunnels: { drain: 300ms }");
    let proxy = Proxy::start(&base);
    let mut client = tunnel(&proxy, "/flood", "foo");
    let flood = vec![b'x'; 1 << 16];
    client.send(&flood);
    proxy.reload(&base.replace(&switcher.address(), "127.0.0.1:1"));
    eventually("the flood ends", || client.try_send(&flood).is_err());
    assert_eq!(proxy.access("/flood").text("reason"), "tunnel_drained");
}

#[test]
fn hundred_websockets_and_twenty_streams_outlive_reloads() {
    let (echo, events, other, gate) = (Echo::start(), Origin::start(), Origin::start(), Gate::new());
    let part = |text: &str| Step::Bytes(chunk_of(text));
    let steps = vec![part("one"), Step::Hold(gate.clone()), part("two"), Step::Bytes(b"0\r\n\r\n".to_vec())];
    events.answer(Answer::status(200).field("Transfer-Encoding: chunked").steps(steps));
    let file = |weight: u32, others: &str| {
        let member = format!("{{ address: \"{}\", weight: {weight} }}", echo.address());
        format!(
            "pools:\n  echo: {{ members: [{member}], probe: off }}\n  events: {{ members: [{events}], probe: off }}\n\
             {others}routes: [{{ path: /echo, pool: echo }}, {{ path: /events, pool: events }}]\n"
        )
    };
    let proxy = Proxy::start(&file(1, ""));
    let mut sockets: Vec<WebSocket> = (0..100).map(|_| WebSocket::open(proxy.address(), "/echo")).collect();
    let mut streams: Vec<Connection> = (0..20).map(|_| proxy.connect()).collect();
    for stream in &mut streams {
        stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(stream.head().expect("a header").status, 200);
    }
    for round in 0..10 {
        let others = format!("  other{round}: {{ members: [{other}], probe: off }}\n");
        proxy.reload(&file(if round % 2 == 0 { 1 } else { round }, &others));
    }
    assert!(sockets.iter_mut().all(|socket| socket.say("still here") == "still here"));
    gate.open();
    for stream in &mut streams {
        assert_eq!(stream.take("3\r\none\r\n3\r\ntwo\r\n".len()), "3\r\none\r\n3\r\ntwo\r\n");
    }
    assert_eq!((echo.open(), proxy.pool("echo")["tunnels"].clone()), (100, 100.into()));
}

#[test]
fn silent_tunnel_ends_and_one_in_which_anything_passes_does_not() {
    let talks = |for_long: usize| {
        move |mut stream: TcpStream| {
            for _ in 0..for_long {
                pause(Duration::from_millis(400));
                if stream.write_all(b".").is_err() {
                    return;
                }
            }
            let mut scrap = vec![];
            let _ = stream.read_to_end(&mut scrap);
        }
    };
    let (silent, talking) = (Switcher::start(talks(0)), Switcher::start(talks(8)));
    let proxy = Proxy::start(&config(&silent.address(), "tunnels: { idle: 2s }"));
    // Only the client talks, and then nobody.
    let mut client = tunnel(&proxy, "/client", "foo");
    for _ in 0..8 {
        pause(Duration::from_millis(400));
        client.try_send(".").expect("the tunnel is open");
    }
    assert_eq!(client.rest().as_deref(), Ok(&b""[..]), "closed in order");
    let line = proxy.access("/client");
    assert!(line.has(&[("outcome", "timeout"), ("reason", "tunnel_idle")]), "{}", line.raw);
    assert_eq!((&line.json["upgraded"], bytes(&line)), (&true.into(), (8, 0)), "{}", line.raw);
    // Only the member talks.
    let proxy = Proxy::start(&config(&talking.address(), "tunnels: { idle: 2s }"));
    let mut client = tunnel(&proxy, "/member", "foo");
    assert_eq!(client.take(8), "........");
    assert_eq!(client.rest().as_deref(), Ok(&b""[..]));
    let line = proxy.access("/member");
    assert!(line.text("reason") == "tunnel_idle" && bytes(&line) == (0, 8), "{}", line.raw);
}

#[test]
fn tunnels_at_the_end_of_the_process_may_finish_and_are_then_cut() {
    let echo = Echo::start();
    // One that finishes: the end comes with it, not after a fixed time.
    let mut proxy = Proxy::start(&format!("drain_timeout: 10m\n{}", config(&echo.address(), "")));
    let mut socket = WebSocket::open(proxy.address(), "/finishes");
    proxy.signal("TERM");
    eventually("new connections are refused", || Connection::try_open(proxy.address()).is_err());
    assert_eq!(socket.say("still here"), "still here");
    assert!(proxy.is_running());
    socket.close();
    assert_eq!(proxy.wait().code(), Some(0));
    let line = proxy.access("/finishes");
    assert!(line.has(&[("outcome", "ok")]) && line.json["upgraded"] == true, "{}", line.raw);
    // One that does not.
    let mut proxy = Proxy::start(&format!("drain_timeout: 500ms\n{}", config(&echo.address(), "")));
    let mut socket = WebSocket::open(proxy.address(), "/cut");
    assert_eq!(socket.say("here"), "here");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
    socket.await_end();
    let line = proxy.access("/cut");
    assert!(line.has(&[("outcome", "refused"), ("reason", "shutdown")]), "{}", line.raw);
    assert_eq!((&line.json["upgraded"], &line.json["status"]), (&true.into(), &101.into()), "{}", line.raw);
    // A frame of four bytes has a header of two, and a mask of four towards the member.
    assert_eq!(bytes(&line), (10, 6), "{}", line.raw);
}

#[test]
fn any_protocol_may_be_asked_for_but_http_itself() {
    let switcher = Switcher::start(|mut stream| {
        let _ = stream.write_all(b"switched");
    });
    let proxy = Proxy::start(&config(&switcher.address(), ""));
    for (path, asked, got) in [("/foo", "foo/2", "foo/2"), ("/list", "h2c, bar, TLS/1.0", "bar")] {
        let mut client = proxy.connect();
        let fields =
            format!("Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: {asked}");
        let head = client.send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n")).head().expect("a header");
        assert_eq!((head.status, head.field("upgrade"), head.field("connection")), (101, Some(got), Some("Upgrade")));
        assert_eq!(head.field("x-inner"), None, "what its Connection names: {:?}", head.lines);
        assert_eq!(client.take(8), "switched");
        let header = switcher.headers().pop().expect("it was asked");
        assert!(header.contains(&format!("\r\nupgrade: {got}\r\n")), "{header}");
        assert!(!header.contains("http2-settings"), "{header}");
    }
}

#[test]
fn upgrade_that_cannot_be_is_served_as_a_plain_request() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config(&origin.address(), ""));
    let rows = [
        ("h2c", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", ""),
        ("http", "Connection: Upgrade\r\nUpgrade: HTTP/2.0\r\n", ""),
        ("tls", "Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n", ""),
        ("body", "Connection: Upgrade\r\nUpgrade: foo\r\nContent-Length: 4\r\n", "body"),
        ("chunks", "Connection: Upgrade\r\nUpgrade: foo\r\nTransfer-Encoding: chunked\r\n", "4\r\nbody\r\n0\r\n\r\n"),
        ("not named", "Upgrade: websocket\r\n", ""),
    ];
    for (name, fields, body) in rows {
        let mut client = proxy.connect();
        client.send(format!("POST /plain HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}"));
        assert_eq!(client.reply().status, 200, "{name}");
        let seen = origin.traffic().pop().expect("it was asked");
        for gone in ["upgrade", "http2-settings"] {
            assert_eq!(seen.field(gone), None, "{name}: {:?}", seen.lines);
        }
        let told = seen.field("connection").unwrap_or_default().to_ascii_lowercase();
        assert!(!told.contains("upgrade"), "{name}: {:?}", seen.lines);
        if !body.is_empty() {
            assert_eq!(seen.body, b"body", "{name}");
        }
    }
}

#[test]
fn switch_to_what_was_not_asked_for_is_a_502() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config(&origin.address(), "retries: { attempts: 1 }"));
    for (path, field) in [("/other", "Upgrade: bar\r\n"), ("/http", "Upgrade: foo, h2c\r\n"), ("/none", "")] {
        let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{field}\r\n");
        origin.when(When::path(path), Answer::raw(vec![Step::Bytes(head.into_bytes()), Step::Hang]));
        let mut client = proxy.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n"));
        assert_eq!(client.reply().status, 502, "{path}");
        let line = proxy.access(path);
        assert!(line.text("reason") == "upstream_protocol" && line.json["upgraded"] == false, "{}", line.raw);
    }
}

#[test]
fn member_that_does_not_switch_is_held_to_its_limits_and_what_follows_is_a_request() {
    let origin = Origin::start();
    origin.when(When::path("/silent"), Answer::hang());
    let stall = vec![Step::Bytes(chunk_of("half")), Step::Hang];
    origin.when(When::path("/stalls"), Answer::status(200).field("Transfer-Encoding: chunked").steps(stall));
    let keys = "upstream: { read_timeout: 400ms }\nretries: { attempts: 1 }\ntunnels: { idle: 1h }";
    let proxy = Proxy::start(&config(&origin.address(), keys));
    let ask =
        |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut client = proxy.connect();
    assert_eq!(client.send(ask("/silent")).reply().status, 504);
    let mut client = proxy.connect();
    assert!(!client.send(ask("/stalls")).reply().complete);
    assert_eq!(proxy.access("/stalls").text("reason"), "upstream_timeout");
    // A 200 in place of the switch: the bytes behind the request are the next one, checked like any other.
    let mut client = proxy.connect();
    client.send(ask("/refused") + "GET /next HTTP/1.1\r\nHost: a b\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert_eq!(client.reply().status, 400);
    assert!(client.is_closed());
    let paths: Vec<String> = origin.traffic().into_iter().map(|seen| seen.target).collect();
    assert_eq!(paths, ["/silent", "/stalls", "/refused"]);
}

#[test]
fn tunnel_is_asked_of_another_member_where_the_first_cannot_be_dialled() {
    let (dead, echo) = (Origin::stopped(), Echo::start());
    let proxy = Proxy::start(&config_of(&[dead.to_string(), format!("\"{}\"", echo.address())], "probe: off"));
    for _ in 0..2 {
        let mut socket = WebSocket::open(proxy.address(), "/socket");
        assert_eq!(socket.say("here"), "here");
        socket.close();
    }
    let line = proxy.await_access("one that was tried twice", |line| line.attempts().len() == 2);
    assert_eq!(line.attempts()[0]["result"], "connect_failed", "{}", line.raw);
    assert!(line.text("outcome") == "ok" && line.json["upgraded"] == true, "{}", line.raw);
}

#[test]
fn tunnel_to_a_member_behind_tls_may_be_silent_and_ends_with_either_end() {
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["127.0.0.1"]).server());
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nhello";
    // Longer than a member may keep anybody waiting for an answer.
    let steps = vec![
        Step::Bytes(head.as_bytes().to_vec()),
        Step::Pause(Duration::from_millis(1200)),
        Step::Bytes(b"late".to_vec()),
    ];
    member.origin.when(When::path("/member"), Answer::raw([steps.clone(), vec![Step::Close]].concat()));
    member.origin.when(When::path("/client"), Answer::raw([steps, vec![Step::Hang]].concat()));
    let tls = format!("{{ ca: {} }}", authority.ca());
    let keys = format!("probe: off\nupstream: {{ tls: {tls}, read_timeout: 400ms }}");
    let proxy = Proxy::start(&config_of(&[member.to_string()], &keys));
    for path in ["/member", "/client"] {
        let mut client = tunnel(&proxy, path, "foo");
        assert_eq!(client.take(9), "hellolate", "{path}");
        if path == "/client" {
            client.send("bye").end();
        }
        assert_eq!(client.rest().as_deref(), Ok(&b""[..]), "{path}");
        drop(client);
        let line = proxy.access(path);
        assert!(line.has(&[("outcome", "ok"), ("reason", "-")]) && line.json["upgraded"] == true, "{}", line.raw);
    }
}

/// A tunnel takes the place of a connection that is idle, keeps it to its end, and ends apart in both directions like any.
#[test]
fn tunnel_to_a_member_of_one_connection_takes_that_and_gives_it_back() {
    let echo = Echo::start();
    let proxy = Proxy::start(&config(&echo.address(), "each_member: { max_connections: 1 }"));
    let connections = || proxy.member("web", &echo.address())["connections"].clone();
    for round in 0..3 {
        let mut socket = WebSocket::open(proxy.address(), &format!("/one/{round}"));
        assert_eq!(socket.say("here"), "here");
        assert_eq!(connections(), 1);
        assert_eq!(proxy.get("/full").status, 503);
        socket.close();
        eventually("its place is free", || connections() == 0);
    }
    let heard = Arc::new(AtomicUsize::new(0));
    let counted = heard.clone();
    let switcher = Switcher::start(move |mut stream| {
        let mut rest = vec![];
        let _ = stream.read_to_end(&mut rest);
        counted.fetch_add(rest.len(), Relaxed);
        let _ = stream.write_all(b"all heard");
    });
    let proxy = Proxy::start(&config(&switcher.address(), "each_member: { max_connections: 1 }"));
    let mut client = tunnel(&proxy, "/half", "foo");
    client.send(vec![b'x'; 2 << 20]).end();
    assert_eq!(client.rest().as_deref(), Ok(&b"all heard"[..]));
    assert_eq!(heard.load(Relaxed), 2 << 20);
    eventually("its place is free", || proxy.member("web", &switcher.address())["connections"] == 0);
}

/// A member that switches and then takes nothing, with its connections.
fn deaf() -> (Switcher, Arc<Mutex<Vec<TcpStream>>>) {
    let kept = Arc::new(Mutex::new(vec![]));
    let keeps = kept.clone();
    (Switcher::start(move |stream| keeps.lock().expect("no panic").push(stream)), kept)
}

/// Sends until nobody takes any more, for as long as the tunnel lasts.
fn flood(client: &mut Connection) {
    let flood = vec![b'x'; 1 << 16];
    eventually("the tunnel is ended", || client.try_send(&flood).is_err());
}

#[test]
fn tunnel_whose_member_takes_nothing_ends_by_the_first_limit_and_frees_its_seat() {
    let (member, _kept) = deaf();
    let rows = [
        ("write", "upstream: { write_timeout: 1s }", "upstream_timeout", "timeout"),
        ("idle", "upstream: { write_timeout: 1h }\ntunnels: { idle: 1s }", "tunnel_idle", "abandoned"),
        ("drain", "upstream: { write_timeout: 1h }\ntunnels: { drain: 1s }", "tunnel_drained", "abandoned"),
    ];
    for (limit, keys, reason, result) in rows {
        for counted in ["", "\neach_member: { max_connections: 1 }"] {
            let base = config(&member.address(), &format!("{keys}{counted}"));
            let proxy = Proxy::start(&base);
            let mut client = tunnel(&proxy, "/deaf", "foo");
            if limit == "drain" {
                proxy.reload(&base.replace(&member.address(), "127.0.0.1:1"));
            }
            flood(&mut client);
            let line = proxy.access("/deaf");
            assert!(line.has(&[("outcome", "timeout"), ("reason", reason)]), "{limit}: {}", line.raw);
            assert_eq!(line.attempts()[0]["result"], result, "{limit}: {}", line.raw);
            assert!(line.json["duration_ms"].as_f64() >= Some(1000.0), "before its time: {}", line.raw);
            let free = || proxy.pool("web")["tunnels"] == 0 && proxy.pool("web")["in_flight"] == 0;
            eventually("its seat is free", free);
            if limit != "drain" && !counted.is_empty() {
                tunnel(&proxy, "/next", "foo");
            }
        }
    }
}

#[test]
fn tunnel_whose_member_behind_tls_takes_nothing_ends_by_the_first_limit() {
    let (authority, gate) = (Authority::named("Ours"), Gate::new());
    let member = TlsOrigin::start(authority.paper(&["127.0.0.1"]).server());
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n";
    let steps = vec![Step::Bytes(head.as_bytes().to_vec()), Step::Hold(gate.clone()), Step::Close];
    member.origin.answer(Answer::raw(steps));
    let rows = [("write_timeout: 1s", "1h", "upstream_timeout"), ("write_timeout: 1h", "1s", "tunnel_idle")];
    for (write, idle, reason) in rows {
        let tls = format!("{{ ca: {} }}", authority.ca());
        let keys = format!("probe: off\nupstream: {{ tls: {tls}, {write} }}\ntunnels: {{ idle: {idle} }}");
        let proxy = Proxy::start(&config_of(&[member.to_string()], &keys));
        let mut client = tunnel(&proxy, "/deaf", "foo");
        flood(&mut client);
        let line = proxy.access("/deaf");
        assert!(line.has(&[("outcome", "timeout"), ("reason", reason)]), "{}", line.raw);
    }
    gate.open();
}

#[test]
fn tunnel_whose_client_takes_nothing_ends_by_the_first_limit() {
    let switcher = Switcher::start(|mut stream| {
        let flood = vec![b'x'; 1 << 16];
        while stream.write_all(&flood).is_ok() {}
    });
    let rows = [
        ("write_timeout: 1s", "idle: 1h", "client_aborted"),
        ("write_timeout: 1h", "idle: 1s", "tunnel_idle"),
        ("write_timeout: 1h", "drain: 1s", "tunnel_drained"),
    ];
    for (write, limit, reason) in rows {
        let listener = format!("listeners: [{{ address: \"127.0.0.1:0\", name: web, {write} }}]\n");
        let base = listener + &config(&switcher.address(), &format!("tunnels: {{ {limit} }}"));
        let proxy = Proxy::start(&base);
        let mut client = tunnel(&proxy, "/deaf", "foo");
        if limit.starts_with("drain") {
            proxy.reload(&base.replace(&switcher.address(), "127.0.0.1:1"));
        }
        let line = proxy.access("/deaf");
        assert_eq!(line.text("reason"), reason, "{}", line.raw);
        let got = client.rest().expect("an end in order");
        assert_eq!(bytes(&line).1, got.len() as u64, "what was sent and what is said of it: {}", line.raw);
    }
}
