//! Balancing by latency, of probes and of requests, when latencies move (cases C24 and C46): nobody is left for ever, nobody
//! is chased, and failing fast attracts nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::proxy::{PROBE, config_of};
use crate::harness::{Answer, Gate, Line, Origin, Proxy, Step, When, eventually, eventually_some};

/// Slow probes are asked for: an interval that leaves room for them.
fn fastest(members: &[&Origin], sensitivity: &str) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    let probe = "probe: { path: /healthz, interval: 900ms, timeout: 900ms, window: { size: 1, required: 1 } }";
    config_of(&members, &format!("balance: {{ fastest: {{ latency_sensitivity: {sensitivity} }} }}\n{probe}"))
}

/// By the latency of requests.
fn peak_ewma(members: &[&Origin], keys: &str) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    config_of(&members, &format!("balance: {{ peak_ewma: {{ {keys} }} }}\n{PROBE}"))
}

fn ok_after(ms: u64) -> Answer {
    Answer::status(200).after(Duration::from_millis(ms))
}

fn shares(lines: &[Line]) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    lines.iter().for_each(|line| *shares.entry(line.tried()[0].to_owned()).or_default() += 1);
    shares
}

/// Waits until each origin has been probed, so that what was slow or fast before has been seen.
fn learnt(proxy: &Proxy, origin: &Origin, what: &str, is: impl Fn(f64) -> bool) {
    eventually(what, || proxy.member("web", &origin.address())["latency_ms"].as_f64().is_some_and(&is));
}

/// C46 b: one that was slow gets traffic again without having had any.
#[test]
fn who_was_slow_and_recovers_is_found_without_traffic() {
    let (one, other) = (Origin::start(), Origin::start());
    one.when(When::probe(), ok_after(600));
    let proxy = Proxy::start(&fastest(&[&one, &other], "200ms"));
    proxy.await_all_healthy();
    learnt(&proxy, &one, "it is known to be slow", |ms| ms > 500.0);
    assert_eq!(shares(&proxy.sample("/slow", 20)), BTreeMap::from([(other.address(), 20)]));
    one.when(When::probe(), ok_after(0));
    learnt(&proxy, &one, "it is known to be fast", |ms| ms < 200.0);
    let both = shares(&proxy.sample("/fast", 20));
    assert_eq!(both, BTreeMap::from([(one.address(), 10), (other.address(), 10)]));
}

/// C46 c: two equals of which now one, now the other is 20 ms slower share all the time, with 200 clients at once.
#[test]
fn a_small_step_sends_nobody_to_and_fro() {
    let (one, other) = (Origin::start(), Origin::start());
    // A probe on a busy machine may take long: what matters is that a step within the band moves nothing.
    let proxy = Proxy::start(&fastest(&[&one, &other], "500ms"));
    proxy.await_all_healthy();
    for round in 0..4 {
        let (slow, fast) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        slow.when(When::probe(), ok_after(20));
        fast.when(When::probe(), ok_after(0));
        learnt(&proxy, slow, "the step is known", |ms| ms >= 20.0);
        let base = format!("/round{round}");
        let mut clients: Vec<_> = (0..200).map(|_| proxy.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(format!("GET {base}/{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
        assert!(clients.iter_mut().all(|client| client.reply().status == 200));
        let prefix = format!("{base}/");
        let lines = eventually_some("all lines", || {
            let lines = proxy.access_log().into_iter().filter(|line| line.text("path").starts_with(&prefix));
            let lines: Vec<Line> = lines.collect();
            (lines.len() == 200).then_some(lines)
        });
        let shares = shares(&lines);
        let of_one = shares.get(&one.address()).copied().unwrap_or(0);
        assert!((80..=120).contains(&of_one), "round {round}: {shares:?}");
    }
}

/// C46 e: in a pool of two one that is far slower rests, a uniform slowdown moves nothing and ejects nobody.
#[test]
fn a_pool_of_two_leaves_the_slow_one_and_bears_a_slowdown_of_both() {
    let (one, other) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&fastest(&[&one, &other], "200ms"));
    proxy.await_all_healthy();
    one.when(When::probe(), ok_after(600));
    learnt(&proxy, &one, "one is slow", |ms| ms > 500.0);
    assert_eq!(shares(&proxy.sample("/one", 10)), BTreeMap::from([(other.address(), 10)]));
    other.when(When::probe(), ok_after(600));
    learnt(&proxy, &other, "both are slow", |ms| ms > 500.0);
    assert_eq!(shares(&proxy.sample("/both", 10)), BTreeMap::from([(one.address(), 5), (other.address(), 5)]));
    let pool = proxy.pool("web");
    assert_eq!((pool["mode"].as_str(), pool["ejected"].as_u64()), (Some("normal"), Some(0)));
    // The last one that is fit serves however slow it is.
    other.when(When::probe(), Answer::status(503));
    proxy.await_standing(&other, "ejected");
    assert_eq!(shares(&proxy.sample("/left", 10)), BTreeMap::from([(one.address(), 10)]));
}

/// Its peak by now, in milliseconds.
fn peak(proxy: &Proxy, origin: &Origin) -> Option<f64> {
    proxy.member("web", &origin.address())["peak_ms"].as_f64()
}

/// C46 a and b, by requests: one that hangs is left before anything of it ends, and once it answers again it is found by the
/// decay alone.
#[test]
fn by_requests_who_hangs_is_left_and_who_recovers_is_found() {
    let (one, other, gate) = (Origin::start(), Origin::start(), Gate::new());
    let proxy = Proxy::start(&peak_ewma(&[&one, &other], "decay: 500ms, latency_sensitivity: 100ms"));
    proxy.await_all_healthy();
    assert_eq!((peak(&proxy, &one), peak(&proxy, &other)), (None, None), "nothing is known yet");
    one.when(When::traffic(), Answer::status(200).held_by(&gate));
    let ask = |path: &str| {
        let mut client = proxy.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    };
    let mut held: Vec<_> = (0..4).map(|number| ask(&format!("/first/{number}"))).collect();
    eventually("one is asked", || gate.waiting() >= 2);
    eventually("it is known to hang", || peak(&proxy, &one).is_some_and(|ms| ms > 3_000.0));
    let before = one.traffic_count();
    let mut clients: Vec<_> = (0..40).map(|number| ask(&format!("/later/{number}"))).collect();
    eventually("all have been sent", || one.traffic_count() + other.traffic_count() == 44);
    let more = one.traffic_count() - before;
    assert!(more <= 8, "{more} of 40 to who hangs");
    gate.open();
    assert!(held.iter_mut().chain(&mut clients).all(|client| client.reply().status == 200));
    eventually("it is forgotten", || peak(&proxy, &one).is_some_and(|ms| ms < 20.0));
    let both = shares(&proxy.sample("/both", 20));
    assert!((8..=12).contains(&both[&one.address()]), "{both:?}");
}

/// C24: one that answers 500 at once, and later one that refuses, beside two that take their time. Neither its share at first
/// nor one that it had earned grows by it.
#[test]
fn by_requests_who_fails_fast_attracts_nothing() {
    let origins = [Origin::start(), Origin::start(), Origin::start()];
    let [bad, ..] = &origins;
    origins[1..].iter().for_each(|good| good.when(When::traffic(), ok_after(60)));
    bad.when(When::traffic(), Answer::status(500));
    // Verdicts come of probes alone, and none comes: who refuses stays.
    let probe = "probe: { path: /healthz, interval: 24h, timeout: 5s }\nretries: { budget: 100% }";
    let members: Vec<String> = origins.iter().map(ToString::to_string).collect();
    let keys = format!("balance: {{ peak_ewma: {{ latency_sensitivity: 5ms }} }}\n{probe}");
    let proxy = Proxy::start(&config_of(&members, &keys));
    proxy.await_all_healthy();
    let share = |base: &str, count: usize| {
        let lines = proxy.sample(base, count);
        lines.iter().filter(|line| line.tried()[0] == bad.address()).count()
    };
    let failing = share("/failing", 30);
    assert!(failing <= 10, "{failing} of 30");
    assert_eq!(peak(&proxy, bad), None, "a failure is no time");
    // It was well and fast, and earned more than its share.
    bad.when(When::traffic(), ok_after(0));
    share("/well", 100);
    let well = share("/known", 30);
    assert!(well > 15, "{well} of 30");
    bad.when(When::traffic(), Answer::status(500));
    share("/turns", 12);
    let failing = share("/failing-again", 30);
    assert!(failing <= 10, "{failing} of 30");
    bad.stop();
    let refusing = share("/refusing", 30);
    assert!(refusing <= 10, "{refusing} of 30");
}

/// Two equals share evenly in any stretch of the traffic, by requests and by probes.
#[test]
fn two_equals_stay_between_40_and_60_percent_of_any_stretch() {
    let probe = "probe: { path: /healthz, interval: 500ms, timeout: 500ms }";
    for policy in ["peak_ewma: { latency_sensitivity: 300ms }", "fastest: { latency_sensitivity: 300ms }"] {
        let origins = [Origin::start(), Origin::start()];
        let members: Vec<String> = origins.iter().map(ToString::to_string).collect();
        let proxy = Proxy::start(&config_of(&members, &format!("balance: {{ {policy} }}\n{probe}")));
        proxy.await_all_healthy();
        let of_one = |lines: &[Line]| lines.iter().filter(|line| line.tried()[0] == origins[0].address()).count();
        let lines = proxy.sample("/equal", 600);
        for stretch in lines.windows(50) {
            let share = of_one(stretch);
            assert!((20..=30).contains(&share), "{policy}: {share} of 50");
        }
    }
}

/// What is the client's, and what comes after the first byte, says nothing of how fast a member is.
#[test]
fn only_the_first_byte_of_what_succeeded_is_learnt() {
    let origin = Origin::start();
    let proxy = Proxy::start(&peak_ewma(&[&origin], "latency_sensitivity: 1h"));
    proxy.await_all_healthy();
    origin.when(When::path("/absent"), Answer::status(404));
    assert_eq!(proxy.get("/absent").status, 404);
    let switches = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    origin.when(When::path("/tunnel"), Answer::raw(vec![Step::Bytes(switches.into()), Step::Close]));
    let mut client = proxy.connect();
    client.send("GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.head().map(|head| head.status), Ok(101));
    client.end();
    assert_eq!(proxy.access("/tunnel").json["status"], 101);
    assert_eq!(peak(&proxy, &origin), None);

    // A client that takes its time over its body.
    let mut client = proxy.connect();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    eventually("it is under way", || proxy.member("web", &origin.address())["in_flight"] == 1);
    origin.await_probes(2);
    assert_eq!(client.send("cd").reply().status, 200);
    let ttfb = proxy.access("/upload").json["attempts"][0]["ttfb_ms"].as_f64().expect("an answer");
    let learnt = peak(&proxy, &origin).expect("an answer");
    assert!(learnt < ttfb - 400.0, "{learnt} of {ttfb} ms");

    // A body that takes its time.
    let begin = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na";
    let slow_body = vec![Step::Bytes(begin.into()), Step::Pause(Duration::from_millis(900)), Step::Bytes("b".into())];
    origin.when(When::path("/stream"), Answer::raw(slow_body));
    assert_eq!(proxy.get("/stream").body.len(), 2);
    let learnt = peak(&proxy, &origin).expect("an answer");
    assert!(learnt < 800.0, "{learnt} ms");
    // And what is shown is measured, too.
    let metrics = proxy.admin_get("/metrics").text();
    assert!(
        metrics.contains(&format!("pulsegate_member_peak_seconds{{pool=\"web\",member=\"{}\"}}", origin.address()))
    );
}
