//! Answers on their way: what has come is passed on at once, and what breaks off ends as it broke.

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Gate, Origin, Step, When};

/// One unprobed pool `web` of this origin with `keys`.
fn unprobed(origin: &Origin, keys: &str) -> Proxy {
    Proxy::start(&config_of(&[origin.to_string()], &format!("probe: off\n{keys}")))
}

fn bytes(text: &str) -> Step {
    Step::Bytes(text.as_bytes().to_vec())
}

#[test]
fn answer_of_known_length_comes_as_the_member_sends_it() {
    let origin = Origin::start();
    let proxy = unprobed(&origin, "");
    let requests = [
        "GET /bits HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /bits HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /bits HTTP/1.0\r\nHost: a\r\n\r\n",
        "POST /bits HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
    ];
    for request in requests {
        let gates = [Gate::new(), Gate::new(), Gate::new()];
        let held = gates.iter().zip(["abc", "def", "ghi"]);
        let steps = held.flat_map(|(gate, text)| [Step::Hold(gate.clone()), bytes(text)]).collect();
        origin.answer(Answer::status(200).field("Content-Length: 9").steps(steps));
        let mut client = proxy.connect();
        // The origin sends a part only when the client has all before it: what is held back anywhere never comes.
        let head = client.send(request).head().expect("a header, while the member has sent no more");
        assert_eq!((head.status, head.field("content-length")), (200, Some("9")), "{request}");
        for (gate, text) in gates.iter().zip(["abc", "def", "ghi"]) {
            gate.open();
            assert_eq!(client.take(3), text, "{request}");
        }
    }
}

#[test]
fn what_came_of_an_answer_that_breaks_off_is_delivered_and_then_the_end() {
    let (origin, gate) = (Origin::start(), Gate::new());
    let answer = |after: Vec<Step>| {
        let steps = [vec![bytes("half")], after].concat();
        Answer::status(200).field("Content-Length: 100").steps(steps)
    };
    // A reset may overtake what was sent before it, so that one waits until the client has it.
    let reset = vec![Step::Hold(gate.clone()), Step::Reset];
    let rows = [
        ("/close", vec![Step::Close], "upstream_error", "upstream_reset", "reset"),
        ("/reset", reset, "upstream_error", "upstream_reset", "reset"),
        ("/stall", vec![Step::Hang], "timeout", "upstream_timeout", "timeout"),
    ];
    let proxy = unprobed(&origin, "upstream: { read_timeout: 400ms }\nretries: { attempts: 3, budget: 100% }");
    for (path, after, outcome, reason, result) in rows {
        origin.when(When::path(path), answer(after));
        let mut client = proxy.connect();
        let head = client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).head().expect(path);
        assert_eq!((head.status, head.field("content-length")), (200, Some("100")), "{path}");
        assert_eq!(client.take(4), "half", "{path}");
        gate.open();
        assert!(client.rest().is_ok_and(|rest| rest.is_empty()), "{path}: more, or no end");
        let line = proxy.access(path);
        assert!(line.has(&[("outcome", outcome), ("reason", reason)]), "{}", line.raw);
        assert_eq!((&line.json["status"], &line.json["response_bytes"]), (&200.into(), &4.into()), "{}", line.raw);
        let attempts: Vec<_> = line.attempts().iter().map(|a| (a["result"].as_str(), a["status"].as_u64())).collect();
        assert_eq!(attempts, [(Some(result), Some(200))], "{}", line.raw);
    }
}

#[test]
fn all_that_a_client_was_sent_is_logged_where_it_takes_no_more() {
    let origin = Origin::start();
    let body = "x".repeat(32 << 20);
    origin.when(When::path("/sized"), Answer::status(200).body(body.clone()));
    origin.when(When::path("/chunked"), Answer::chunked(&[&body]));
    let listener = "listeners: [{ address: \"127.0.0.1:0\", name: web, write_timeout: 1s }]\n";
    let proxy = Proxy::start(&(listener.to_owned() + &config_of(&[origin.to_string()], "probe: off")));
    for path in ["/sized", "/chunked"] {
        let mut client = proxy.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let line = proxy.access(path);
        assert_eq!(line.text("outcome"), "client_aborted", "{}", line.raw);
        assert_eq!(client.head().expect("a header").status, 200);
        let got = client.rest().expect("an end in order");
        let got = got.iter().filter(|byte| **byte == b'x').count();
        assert_eq!(line.json["response_bytes"], got, "{}", line.raw);
    }
}
