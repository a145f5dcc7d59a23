//! Balancing by latency when latencies move (case C46): nobody is left for ever, nobody is chased.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::proxy::config_of;
use crate::harness::{Answer, Line, Origin, Proxy, When, eventually, eventually_some};

/// Slow probes are asked for: an interval that leaves room for them.
fn fastest(members: &[&Origin], sensitivity: &str) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    let probe = "probe: { path: /healthz, interval: 900ms, timeout: 900ms, window: { size: 1, required: 1 } }";
    config_of(&members, &format!("balance: {{ fastest: {{ latency_sensitivity: {sensitivity} }} }}\n{probe}"))
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
