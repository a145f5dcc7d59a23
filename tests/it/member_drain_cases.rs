//! A member that drains, or is disabled (health.md §7; the member part of case C71): what runs there ends, and nothing new comes,
//! whatever its probes say and however often the file is read meanwhile.

use serde_json::Value;

use crate::harness::load::Load;
use crate::harness::proxy::pool_config;
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Connection, Gate, Origin, Proxy, Step, When, eventually};

const DOWNLOADS: usize = 10;

fn of(proxy: &Proxy, origin: &Origin, field: &str) -> Value {
    proxy.member("web", &origin.address())[field].clone()
}

fn order(proxy: &Proxy, origin: &Origin, word: &str) {
    let reply = proxy.admin_post(&format!("/api/v1/pools/web/members/{}/{word}", origin.address()), &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// A download of which the first part has come; the rest waits for the gate.
fn download(gate: &Gate) -> Answer {
    let steps = vec![
        Step::Bytes(chunk_of("the first part, ")),
        Step::Hold(gate.clone()),
        Step::Bytes(chunk_of("and the rest")),
        Step::Bytes(b"0\r\n\r\n".to_vec()),
    ];
    Answer::status(200).field("Transfer-Encoding: chunked").steps(steps)
}

#[test]
fn downloads_end_and_nothing_new_comes_over_flapping_probes_and_reloads() {
    let (drained, other, gate) = (Origin::start(), Origin::start(), Gate::new());
    for origin in [&drained, &other] {
        origin.when(When::path("/download"), download(&gate));
    }
    let config = pool_config(&[&drained, &other], "drain: 5m");
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    let mut clients: Vec<Connection> = (0..2 * DOWNLOADS).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send("GET /download HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("all of them run", || gate.waiting() == 2 * DOWNLOADS);
    let load = Load::start(proxy.address(), 2, "/steady");
    load.await_each(5);

    order(&proxy, &drained, "drain");
    load.fence();
    let (traffic, until) = (drained.traffic_count(), of(&proxy, &drained, "draining_until"));
    assert!(until.is_string() && of(&proxy, &other, "draining_until").is_null(), "{until}");
    let mut verdicts = Vec::new();
    for (round, status, verdict) in
        [(0, 503, "unhealthy"), (1, 200, "healthy"), (2, 503, "unhealthy"), (3, 200, "healthy")]
    {
        drained.when(When::probe(), Answer::status(status));
        eventually("its probes are heard", || of(&proxy, &drained, "verdict") == verdict);
        proxy.reload(&format!("{config}# {round}\n"));
        verdicts.push(of(&proxy, &drained, "standing"));
    }
    assert_eq!(verdicts, ["draining"; 4]);
    assert_eq!(of(&proxy, &drained, "draining_until"), until, "neither probes nor reloads begin its time anew");
    // Nor does a word to the same effect, and another time holds at once, from the same beginning.
    order(&proxy, &drained, "drain");
    assert_eq!(of(&proxy, &drained, "draining_until"), until);
    proxy.reload(&config.replace("drain: 5m", "drain: 1h"));
    assert!(of(&proxy, &drained, "draining_until").as_str() > until.as_str());

    // Both beat the fallback.
    other.when(When::probe(), Answer::status(503));
    proxy.await_mode("fallback");
    load.await_each(5);
    order(&proxy, &drained, "disable");
    assert_eq!(
        (of(&proxy, &drained, "draining_until"), of(&proxy, &drained, "in_flight")),
        (Value::Null, DOWNLOADS.into())
    );
    load.await_each(5);
    assert_eq!(drained.traffic_count(), traffic, "it got a new request");
    gate.open();
    for client in &mut clients {
        assert_eq!(client.reply().text(), "the first part, and the rest");
    }
    eventually("nothing runs there", || of(&proxy, &drained, "in_flight") == 0);
    load.finish().assert_all_ok();
}
