//! B: what is asked for, and of whom.

use super::Rig;
use crate::harness::Origin;
use crate::harness::proxy::Proxy;

#[test]
fn b08_connect_is_405() {
    Rig::new().refuses("B08", "CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n", 405);
}

#[test]
fn what_no_host_and_port_can_be_is_400() {
    let rig = Rig::new();
    for host in ["a:1:2", "a:99999", "a:8a", "[zz", "[::1", "::1", ":80", "a%zz"] {
        rig.refuses(host, format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
        rig.refuses(host, format!("GET http://{host}/x HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
    }
    for host in ["", "a:", "a:65535", "[::1]:80", "a_b.test."] {
        assert_eq!(rig.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n")).reply().status, 200, "{host}");
    }
}

#[test]
fn b09_options_of_everything_is_sent_as_it_came() {
    let rig = Rig::new();
    assert_eq!(rig.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").reply().status, 200);
    assert_eq!(rig.origin.traffic()[0].target, "*");
}

#[test]
fn b11_raw_blank_in_the_target_is_400() {
    let rig = Rig::new();
    for target in ["/a b", "/a\tb", " /a", "/a ", "/a  b", "/?q=a b"] {
        rig.refuses(target, format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    }
    // As the second of a connection too, and a byte at a time.
    let mut client = rig.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /a b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.reply().status, client.reply().status), (200, 400));
    assert!(client.is_closed());
    let mut client = rig.proxy.connect();
    for byte in "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n".bytes() {
        client.send([byte]);
    }
    assert_eq!(client.reply().status, 400);
    assert_eq!(rig.origin.traffic_count(), 1);
}

#[test]
fn b12_control_character_in_the_target_is_400() {
    let rig = Rig::new();
    for byte in (0..0x20).chain([0x7f]).filter(|byte| *byte != b'\n') {
        let bytes = [b"GET /a", &[byte][..], b"b HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        rig.refuses(&format!("{byte:#x}"), bytes, 400);
    }
    rig.refuses("a line feed", "GET /a\nb HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn b14_target_goes_on_byte_for_byte_or_not_at_all() {
    let rig = Rig::new();
    let odd = (0x21..=0xff).filter(|byte| *byte != 0x7f).flat_map(|byte: u8| [vec![byte], vec![b'?', byte]]);
    let words = ["\u{fc}/\u{20ac}", "a?q=\u{20ac}", "%61/%2e%2e/%2F%00", "{a|b}\\^[]?x={\"y\":1}|`"];
    for raw in odd.chain(words.map(|word| word.as_bytes().to_vec())) {
        let mut client = rig.send([b"GET /", raw.as_slice(), b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        let shown = raw.escape_ascii().to_string();
        match client.reply().status {
            200 => {
                let seen = rig.origin.traffic().pop().expect("it was asked");
                assert_eq!(seen.target, format!("/{}", String::from_utf8_lossy(&raw)), "{shown} was repaired");
            }
            400 => assert!(!raw.is_ascii() || raw.iter().any(|b| b"#<>`\"".contains(b)), "{shown}"),
            other => panic!("{shown}: {other}"),
        }
    }
    for word in words.iter().take(3) {
        let sent = rig.origin.traffic().iter().any(|seen| seen.target == format!("/{word}"));
        assert!(sent, "{word} was refused");
    }
    // What is behind it would be dropped on the way.
    for target in ["/a#b", "/#", "/?#", "http://a/#x"] {
        assert_eq!(rig.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).reply().status, 400, "{target}");
    }
}

#[test]
fn b16_dot_segments_go_on_as_they_were_routed() {
    let (inside, outside) = (Origin::start(), Origin::start());
    let pool = |name: &str, origin: &Origin| format!("  {name}: {{ members: [{origin}], probe: off }}\n");
    let routes = "routes: [{ path: /b, pool: inside }, { pool: outside }]\n";
    let proxy = Proxy::start(&format!("pools:\n{}{}{routes}", pool("inside", &inside), pool("outside", &outside)));
    let mut client = proxy.connect();
    assert_eq!(client.get("/x/../b/ok").status, 200);
    assert_eq!((outside.traffic()[0].target.as_str(), inside.traffic_count()), ("/x/../b/ok", 0));
}

#[test]
fn b17_b18_methods_nobody_knows_go_on_and_what_is_none_is_400() {
    let rig = Rig::new();
    assert_eq!(rig.send("FOO /x HTTP/1.1\r\nHost: a\r\n\r\n").reply().status, 200);
    assert_eq!(rig.origin.traffic()[0].method, "FOO");
    rig.proxy.access("/x");
    rig.refuses("B18", "G@T /x HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    rig.refuses("none", " /x HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn b20_b21_other_versions_are_never_sent() {
    let rig = Rig::new();
    rig.refuses("B20", "GET /b/ok HTTP/2.0\r\nHost: a\r\n\r\n", 400);
    rig.refuses("preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400);
    rig.refuses("B21", "GET /b/ok\r\n", 400);
    rig.refuses("lower case", "GET /b/ok http/1.1\r\nHost: a\r\n\r\n", 400);
    rig.refuses("a third digit", "GET /b/ok HTTP/1.10\r\nHost: a\r\n\r\n", 400);
    rig.refuses("a TLS client", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400);
}

#[test]
fn b22_target_of_64_kib_is_414_or_431() {
    let rig = Rig::new();
    rig.refuses("over the target's limit", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "u".repeat(16 << 10)), 414);
    rig.refuses("over the header's too", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "u".repeat(64 << 10)), 431);
}

#[test]
fn b23_b24_b26_headers_without_measure_are_431() {
    let rig = Rig::new();
    let field = |bytes: usize| format!("GET /x HTTP/1.1\r\nHost: a\r\nX-Big: {}\r\n\r\n", "x".repeat(bytes));
    rig.refuses("B23", field(256 << 10), 431);
    let many: String = (0..200).map(|i| format!("X-{i}: 1\r\n")).collect();
    rig.refuses("B24", format!("GET /x HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431);
    // Without an end: cut long before all of it is here.
    let mut client = rig.send("GET /x HTTP/1.1\r\nHost: a\r\nX-Big: ");
    let mut sent = 0;
    while sent < 2 << 20 && client.try_send(vec![b'x'; 1 << 14]).is_ok() {
        sent += 1 << 14;
    }
    if let Ok(reply) = client.try_reply("GET") {
        assert_eq!(reply.status, 431);
    }
    assert!(client.is_closed() && rig.origin.traffic_count() == 0, "B26");
}
