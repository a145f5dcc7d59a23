//! What is tried again, what never is, and how the log tells of it.

use std::time::Duration;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Line, Origin, Step, When, eventually, eventually_some};

/// No probes, so that what traffic meets is decided by the case alone.
const UNPROBED: &str = "probe: off";

/// One pool of these, unprobed, with `more` keys.
fn proxy_of(members: &[&Origin], more: &str) -> Proxy {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    Proxy::start(&config_of(&members, &format!("{UNPROBED}\n{more}")))
}

/// Ways for a member to fail after it has read the whole request.
fn failures() -> [(&'static str, Answer); 3] {
    let garbage = Answer::raw(vec![Step::Bytes(b"%%% garbage %%%\r\n\r\n".to_vec()), Step::Close]);
    [("garbage", garbage), ("close", Answer::close()), ("reset", Answer::reset())]
}

#[test]
fn post_that_may_have_been_processed_is_never_sent_twice() {
    let (bad, good) = (Origin::start(), Origin::start());
    let proxy = proxy_of(&[&bad, &good], "retries: { attempts: 3, budget: 100% }");
    for (name, failure) in failures() {
        bad.answer(failure);
        for method in ["POST", "PATCH"] {
            let statuses: Vec<u16> =
                (0..4).map(|i| proxy.request(method, &format!("/{method}/{name}/{i}"), &[], "body").status).collect();
            let sent = |i: usize| -> usize {
                let path = format!("/{method}/{name}/{i}");
                [&bad, &good].iter().map(|o| o.traffic().iter().filter(|seen| seen.target == path).count()).sum()
            };
            assert!((0..4).all(|i| sent(i) == 1), "{method} after {name} was sent twice");
            let failed = statuses.iter().filter(|status| **status == 502).count();
            assert_eq!(
                (failed, statuses.iter().filter(|s| **s == 200).count()),
                (2, 2),
                "{method} {name}: {statuses:?}"
            );
        }
    }
    assert!(bad.traffic().iter().all(|seen| seen.complete && seen.body == b"body"), "it had read the whole body");
}

#[test]
fn idempotent_request_is_tried_on_another_member() {
    let (bad, good) = (Origin::start(), Origin::start());
    let proxy = proxy_of(&[&bad, &good], "retries: { attempts: 2, budget: 100% }");
    for (name, failure) in failures() {
        bad.answer(failure);
        for i in 0..4 {
            let path = format!("/get/{name}/{i}");
            assert_eq!(proxy.get(&path).status, 200, "{path}");
            let line = proxy.access(&path);
            let tried = line.tried();
            assert_eq!(tried.last(), Some(&good.address().as_str()), "{}", line.raw);
            assert!(tried.len() == 1 || tried == [bad.address(), good.address()], "{}", line.raw);
            if tried.len() == 2 {
                assert_eq!(
                    (line.attempts()[0]["status"].is_null(), &line.json["lb"]["reason"]),
                    (true, &"retry".into())
                );
            }
        }
        assert_eq!(proxy.request("DELETE", &format!("/delete/{name}"), &[], "").status, 200);
        let put = |i| proxy.request("PUT", &format!("/put/{name}/{i}"), &[], "small").status;
        assert_eq!([put(0), put(1)], [200, 200], "a small body can be sent again");
    }
    assert!(good.traffic().iter().filter(|seen| seen.method == "PUT").all(|seen| seen.body == b"small"));
}

#[test]
fn refused_connection_is_tried_elsewhere_whatever_the_method() {
    let (dead, good) = (Origin::stopped(), Origin::start());
    // Dials are outside the budget.
    let proxy = proxy_of(&[&dead, &good], "retries: { attempts: 1, budget: 0%, connect: 3 }");
    for i in 0..6 {
        assert_eq!(proxy.request("POST", &format!("/post/{i}"), &[], "body").status, 200);
        assert_eq!(proxy.get(&format!("/get/{i}")).status, 200);
    }
    let bodies = good.traffic();
    assert!(bodies.iter().filter(|seen| seen.method == "POST").all(|seen| seen.body == b"body"));
    let line = proxy.await_access("a request that met the dead one", |line| line.tried().len() == 2);
    assert_eq!(line.tried(), [dead.address(), good.address()]);
    let refused = &line.attempts()[0];
    assert_eq!((&refused["result"], refused["status"].is_null()), (&"connect_failed".into(), true), "{}", line.raw);
}

#[test]
fn every_member_refusing_is_a_502_with_all_attempts_in_the_log() {
    let dead = [Origin::stopped(), Origin::stopped(), Origin::stopped(), Origin::stopped()];
    let proxy = proxy_of(&dead.iter().collect::<Vec<_>>(), "retries: { connect: 3 }");
    assert_eq!(proxy.get("/refused").status, 502);
    let line = proxy.access("/refused");
    let mut tried = line.tried();
    assert_eq!(tried.len(), 3, "three dials in all: {}", line.raw);
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), 3, "never the same one while another exists: {}", line.raw);
    assert!(line.has(&[("outcome", "upstream_error")]), "{}", line.raw);
    assert!(["connect_failed", "retries_spent"].contains(&line.text("reason")), "{}", line.raw);
}

#[test]
fn connection_closed_when_it_is_reused_costs_a_get_nothing() {
    // Three shapes: closed as the request comes, closed right after the answer, reset as the request comes.
    for (shape, late) in
        [("read and close", Some(Answer::close())), ("close after", None), ("reset", Some(Answer::reset()))]
    {
        let origin = Origin::start();
        match late {
            Some(answer) => origin.when(When::reused(), answer),
            None => origin.close_after(1),
        }
        let proxy = proxy_of(&[&origin], "retries: { budget: 100% }");
        let mut client = proxy.connect();
        for i in 0..20 {
            assert_eq!(client.get(&format!("/get/{i}")).status, 200, "{shape}, request {i}");
        }
        for i in 0..10 {
            let path = format!("/post/{i}");
            let status = proxy.request("POST", &path, &[], "once").status;
            let delivered = origin.traffic().iter().filter(|seen| seen.target == path).count();
            assert!(delivered <= 1, "{shape}: a POST was delivered {delivered} times");
            assert!(status == 502 || (status, delivered) == (200, 1), "{shape}: {status}, delivered {delivered} times");
        }
        assert!(proxy.events(&[("to", "unhealthy")]).is_empty(), "{shape}: held against the member");
    }
}

#[test]
fn pooled_connection_that_went_dead_silently_ends_at_the_read_timeout_and_counts_once() {
    // What a firewall leaves behind that forgot the connection: it is open, and nothing comes.
    let origin = Origin::start();
    origin.when(When::reused(), Answer::hang());
    let proxy = proxy_of(&[&origin], "upstream: { read_timeout: 300ms }");
    let mut client = proxy.connect();
    // Requests with a body have connections of their own.
    client.send("POST /opens HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nonce");
    assert_eq!(client.reply().status, 200);
    client.send("POST /silent HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nonce");
    assert_eq!(client.reply().status, 504);
    let line = proxy.access("/silent");
    assert!(line.has(&[("outcome", "timeout"), ("reason", "upstream_timeout")]), "{}", line.raw);
    assert_eq!(line.attempts().len(), 1, "{}", line.raw);
    assert_eq!((&line.attempts()[0]["result"], &line.attempts()[0]["reused"]), (&"timeout".into(), &true.into()));
    assert_eq!(origin.traffic().iter().filter(|seen| seen.target == "/silent").count(), 1);
    // The next request has a connection of its own.
    assert_eq!(proxy.get("/after").status, 200);
    assert!(proxy.events(&[("to", "unhealthy")]).is_empty(), "held against the member");
}

#[test]
fn idle_race_dials_the_same_member_afresh() {
    let (racing, other) = (Origin::start(), Origin::start());
    [&racing, &other].iter().for_each(|origin| origin.when(When::reused(), Answer::close()));
    let proxy = proxy_of(&[&racing, &other], "retries: { budget: 100% }");
    let lines = proxy.sample("/race", 12);
    for line in &lines {
        assert_eq!(line.json["status"], 200);
        let tried = line.tried();
        assert!(tried.iter().all(|member| *member == tried[0]), "left a member over an idle race: {}", line.raw);
    }
}

#[test]
fn connection_idle_for_too_long_is_not_used_again() {
    let origin = Origin::start();
    let proxy = proxy_of(&[&origin], "upstream: { idle_timeout: 500ms }");
    let mut client = proxy.connect();
    client.get("/first");
    client.get("/second");
    assert_eq!(origin.traffic()[1].connection, 0, "kept and used again");
    eventually("an idle connection is given up", || {
        let before = origin.accepted();
        // Nothing is sent meanwhile: the client reads what does not come.
        client.stray(Duration::from_millis(700));
        client.get("/later");
        origin.accepted() > before
    });
}

#[test]
fn backpressure_is_passed_on_and_not_multiplied() {
    let busy = [Origin::start(), Origin::start(), Origin::start()];
    busy.iter().for_each(|origin| origin.answer(Answer::status(503).field("Retry-After: 7").body("busy")));
    let proxy = proxy_of(&busy.iter().collect::<Vec<_>>(), "retries: { attempts: 3, budget: 100% }");
    let mut client = proxy.connect();
    for _ in 0..30 {
        let reply = client.get("/busy");
        assert_eq!((reply.status, reply.field("retry-after"), reply.text().as_str()), (503, Some("7"), "busy"));
    }
    assert_eq!(busy.iter().map(Origin::traffic_count).sum::<usize>(), 30, "one attempt for each request");
}

#[test]
fn timeouts_are_retried_within_the_budget_and_never_on_the_same_member() {
    const REQUESTS: usize = 100;
    let stuck = [Origin::start(), Origin::start(), Origin::start()];
    stuck.iter().for_each(|origin| origin.answer(Answer::hang()));
    let proxy = proxy_of(
        &stuck.iter().collect::<Vec<_>>(),
        "upstream: { read_timeout: 200ms }\nretries: { attempts: 2, budget: 20% }",
    );
    let mut clients: Vec<_> = (0..REQUESTS).map(|_| proxy.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /stuck/{i} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    assert!(clients.iter_mut().all(|client| client.reply().status == 504));
    let attempts: usize = stuck.iter().map(Origin::traffic_count).sum();
    // A fifth of the requests, and the ten retries that are saved up at the start.
    assert!(
        (REQUESTS..=REQUESTS + REQUESTS / 5 + 10).contains(&attempts),
        "{attempts} attempts for {REQUESTS} requests"
    );
    for i in 0..REQUESTS {
        let line = proxy.access(&format!("/stuck/{i}"));
        let tried = line.tried();
        assert!(tried.len() <= 2 && (tried.len() < 2 || tried[0] != tried[1]), "{}", line.raw);
        assert!(line.has(&[("outcome", "timeout")]), "{}", line.raw);
    }
}

#[test]
fn deadline_ends_a_request_however_many_tries_are_left() {
    let stuck = [Origin::start(), Origin::start(), Origin::start()];
    stuck.iter().for_each(|origin| origin.answer(Answer::hang()));
    let proxy = proxy_of(
        &stuck.iter().collect::<Vec<_>>(),
        "deadline: 500ms\nretries: { attempts: 3, budget: 100%, per_try_timeout: 20s }",
    );
    assert_eq!(proxy.get("/deadline").status, 504);
    let line = proxy.access("/deadline");
    assert!(line.has(&[("outcome", "timeout"), ("reason", "deadline")]), "{}", line.raw);
    assert_eq!(stuck.iter().map(Origin::traffic_count).sum::<usize>(), 1);
}

#[test]
fn log_tells_every_attempt_of_a_request() {
    let (refuses, hangs, good) = (Origin::stopped(), Origin::start(), Origin::start());
    hangs.answer(Answer::hang());
    // Weights that make it likely to meet both bad ones first; the order is the balancer's business.
    let weighted = |origin: &Origin, weight: u32| format!("{{ address: {origin}, weight: {weight} }}");
    let members = [weighted(&refuses, 5), weighted(&hangs, 5), weighted(&good, 1)];
    let retries = "retries: { attempts: 3, connect: 3, budget: 100%, per_try_timeout: 300ms }";
    let proxy = Proxy::start(&config_of(&members, &format!("{UNPROBED}\n{retries}")));
    let mut round = 0;
    let lines = eventually_some("a request meets all three", || {
        round += 1;
        let lines = proxy.sample(&format!("/tries{round}"), 6);
        lines.iter().any(|line| line.attempts().len() == 3).then_some(lines)
    });
    let results = |line: &Line| -> Vec<String> {
        line.attempts().iter().map(|attempt| attempt["result"].as_str().unwrap_or_default().to_owned()).collect()
    };
    for line in &lines {
        assert_eq!(
            (&line.json["status"], line.text("reason"), line.text("outcome")),
            (&200.into(), "-", "ok"),
            "{}",
            line.raw
        );
        assert_eq!(line.tried().last(), Some(&good.address().as_str()), "{}", line.raw);
        let mut total = 0.0;
        for attempt in line.attempts() {
            let member = attempt["member"].as_str().unwrap_or_default();
            let (result, status) = if member == refuses.address() {
                ("connect_failed", serde_json::Value::Null)
            } else if member == hangs.address() {
                ("timeout", serde_json::Value::Null)
            } else {
                ("ok", 200.into())
            };
            assert_eq!((&attempt["result"], &attempt["status"]), (&result.into(), &status), "{}", line.raw);
            assert_eq!(attempt["standing"], "healthy", "{}", line.raw);
            total += attempt["duration_ms"].as_f64().expect("a duration");
        }
        let duration = line.json["duration_ms"].as_f64().expect("a duration");
        assert!(total <= duration + 1.0, "attempts took {total} ms of {duration} ms: {}", line.raw);
        assert_eq!(line.json["lb"]["reason"] == "retry", line.attempts().len() > 1, "{}", line.raw);
    }
    let three = lines.iter().filter(|line| results(line) == ["connect_failed", "timeout", "ok"]).count();
    let other = lines.iter().filter(|line| results(line) == ["timeout", "connect_failed", "ok"]).count();
    assert!(three + other > 0, "no request met all three: {:?}", lines.iter().map(results).collect::<Vec<_>>());
}

#[test]
fn client_that_leaves_between_attempts_ends_them() {
    let stuck = [Origin::start(), Origin::start()];
    stuck.iter().for_each(|origin| origin.answer(Answer::hang()));
    let proxy = proxy_of(
        &stuck.iter().collect::<Vec<_>>(),
        "retries: { attempts: 2, budget: 100%, per_try_timeout: 300ms }\nupstream: { read_timeout: 20s }",
    );
    let mut client = proxy.connect();
    client.send("GET /leaves HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the second attempt is under way", || stuck.iter().map(Origin::traffic_count).sum::<usize>() == 2);
    client.reset();
    let line = proxy.access("/leaves");
    // The second attempt may have been over, too, before the proxy saw the client go.
    assert!(["client_aborted", "timeout"].contains(&line.text("outcome")), "{}", line.raw);
    assert_eq!(line.attempts().len(), 2, "{}", line.raw);
    assert_eq!(line.attempts()[0]["result"], "timeout", "{}", line.raw);
}
