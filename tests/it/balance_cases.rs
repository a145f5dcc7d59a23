//! Who gets the requests: shares, weights, tiers, policies, and the cold start.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::proxy::{PROBE, config_of, pool_config};
use crate::harness::{Answer, Gate, Line, Origin, Proxy, When, eventually};

fn origins(n: usize) -> Vec<Origin> {
    (0..n).map(|_| Origin::start()).collect()
}

fn names(origins: &[Origin]) -> Vec<String> {
    origins.iter().map(ToString::to_string).collect()
}

/// How many requests each member answered; every line must have one attempt.
#[track_caller]
fn shares(lines: &[Line]) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for line in lines {
        assert_eq!(line.attempts().len(), 1, "{}", line.raw);
        *shares.entry(line.tried()[0].to_owned()).or_default() += 1;
    }
    shares
}

#[test]
fn ejected_members_share_goes_to_all_others_alike() {
    let origins = origins(5);
    let proxy = Proxy::of(&origins.iter().collect::<Vec<_>>(), "");
    proxy.await_all_healthy();
    let even = shares(&proxy.sample("/five", 100));
    assert!(even.len() == 5 && even.values().all(|count| *count == 20), "{even:?}");
    origins[2].when(When::probe(), Answer::status(503));
    proxy.await_standing(&origins[2], "ejected");
    let four = shares(&proxy.sample("/four", 400));
    assert!(!four.contains_key(&origins[2].address()), "{four:?}");
    assert!(four.values().all(|count| count.abs_diff(100) <= 4), "25 % each, and no neighbour 40 %: {four:?}");
}

#[test]
fn reloads_do_not_favour_the_first_member() {
    let origins = origins(4);
    let members: Vec<&Origin> = origins.iter().collect();
    let proxy = Proxy::of(&members, "");
    proxy.await_all_healthy();
    for round in 0..10 {
        proxy.sample(&format!("/round{round}"), 6);
        proxy.reload(&format!("{}# {round}\n", pool_config(&members, "")));
    }
    let counts: Vec<usize> = origins.iter().map(Origin::traffic_count).collect();
    assert!(counts.iter().all(|count| count.abs_diff(15) <= 3), "60 requests over 10 reloads: {counts:?}");
}

#[test]
fn weighted_order_is_smooth_and_exact() {
    let origins = origins(3);
    let weighted = |weights: [u32; 3]| -> Vec<String> {
        let of = |(origin, weight): (&Origin, u32)| format!("{{ address: {origin}, weight: {weight} }}");
        origins.iter().zip(weights).map(of).collect()
    };
    let proxy = Proxy::start(&config_of(&weighted([5, 1, 1]), PROBE));
    proxy.await_all_healthy();
    let lines = proxy.sample("/smooth", 14);
    let letter =
        |line: &Line| origins.iter().position(|o| line.tried() == [o.address()]).map_or('?', |i| ['a', 'b', 'c'][i]);
    let order: String = lines.iter().map(letter).collect();
    let mut cycle = "aabacaa".to_owned();
    let rotations: Vec<String> = (0..7)
        .map(|_| {
            let first = cycle.remove(0);
            cycle.push(first);
            cycle.repeat(2)
        })
        .collect();
    assert!(rotations.contains(&order), "5:1:1 came as {order}");

    proxy.reload(&config_of(&weighted([21, 11, 0]), PROBE));
    let shares = shares(&proxy.sample("/shares", 64));
    let share = |i: usize| shares.get(&origins[i].address()).copied().unwrap_or(0);
    assert!(share(0).abs_diff(42) <= 1 && share(1).abs_diff(22) <= 1, "21:11 of 64 requests: {shares:?}");
    assert_eq!(share(2), 0, "weight 0 is drained");
    assert_eq!(proxy.member("web", &origins[2].address())["standing"], "draining");
}

#[test]
fn heavy_unhealthy_member_never_hides_the_healthy_one() {
    let (heavy, light) = (Origin::start(), Origin::start());
    let members = [format!("{{ address: {heavy}, weight: 100 }}"), format!("{{ address: {light}, weight: 1 }}")];
    let proxy = Proxy::start(&config_of(&members, PROBE));
    proxy.await_all_healthy();
    heavy.when(When::probe(), Answer::status(503));
    proxy.await_standing(&heavy, "ejected");
    let shares = shares(&proxy.sample("/light", 20));
    assert_eq!(shares, BTreeMap::from([(light.address(), 20)]));
}

#[test]
fn one_healthy_member_among_many_is_always_found() {
    const MEMBERS: u16 = 1000;
    // A machine that runs other cases too can ask so many once in a few seconds.
    let probe = "probe: { path: /healthz, interval: 4s, timeout: 4s, consecutive: { failures: 1 } }";
    let crowd = Origin::start_everywhere();
    let ip = |i: u16| format!("127.0.{}.{}", 5 + i / 200, 1 + i % 200);
    let members: Vec<String> = (0..MEMBERS).map(|i| format!("\"{}:{}\"", ip(i), crowd.port())).collect();
    let proxy = Proxy::start(&config_of(&members, &format!("max_unhealthy_percent: 100\n{probe}")));
    let healthy = || {
        let pool = proxy.pool("web");
        pool["members"].as_array().map_or(0, |all| all.iter().filter(|m| m["standing"] == "healthy").count())
    };
    eventually("all are proven", || healthy() == usize::from(MEMBERS));
    crowd.when(When::probe(), Answer::status(503));
    let one = format!("{}:{}", ip(137), crowd.port());
    crowd.when(When::local(&ip(137)), Answer::status(200));
    eventually("one is left", || healthy() == 1 && proxy.pool("web")["ejected"] == u64::from(MEMBERS) - 1);
    assert_eq!(shares(&proxy.sample("/one", 30)), BTreeMap::from([(one, 30)]));
}

#[test]
fn lower_tier_serves_before_unhealthy_members_of_a_higher_one() {
    let (high, low) = (origins(5), origins(5));
    let tier = |origins: &[Origin], tier: u8| -> Vec<String> {
        origins.iter().map(|origin| format!("{{ address: {origin}, tier: {tier} }}")).collect()
    };
    let members = [tier(&high, 0), tier(&low, 1)].concat();
    let proxy = Proxy::start(&config_of(&members, &format!("{PROBE}\nmax_unhealthy_percent: 50")));
    proxy.await_all_healthy();
    let served = |base: &str| -> (usize, usize) {
        let lines = proxy.sample(base, 20);
        let by =
            |origins: &[Origin]| lines.iter().filter(|l| origins.iter().any(|o| l.tried() == [o.address()])).count();
        (by(&high), by(&low))
    };
    assert_eq!((served("/all"), low.iter().map(Origin::traffic_count).sum::<usize>()), ((20, 0), 0));
    // (healthy in tier 0, healthy in tier 1) → mode, tier, ejected and in rotation of the serving tier. The cap is per tier.
    let rows = [
        ((4, 5), "normal", Some(0), 1, 4),
        ((3, 5), "normal", Some(0), 2, 3),
        ((2, 5), "failover", Some(1), 0, 5),
        ((0, 5), "failover", Some(1), 0, 5),
        ((0, 1), "failover", Some(1), 2, 3),
        ((0, 0), "fallback", None, 0, 10),
        ((1, 0), "capped", Some(0), 2, 3),
        ((5, 5), "normal", Some(0), 0, 5),
    ];
    for ((in_high, in_low), mode, tier, ejected, in_rotation) in rows {
        for (origins, healthy) in [(&high, in_high), (&low, in_low)] {
            for (i, origin) in origins.iter().enumerate() {
                origin.when(When::probe(), Answer::status(if i < healthy { 200 } else { 503 }));
            }
        }
        eventually(&format!("verdicts are {in_high} and {in_low}"), || {
            let pool = proxy.pool("web");
            let members = pool["members"].as_array().cloned().unwrap_or_default();
            let healthy = |tier: u8| members.iter().filter(|m| m["tier"] == tier && m["verdict"] == "healthy").count();
            (healthy(0), healthy(1)) == (in_high, in_low)
        });
        let pool = proxy.pool("web");
        let shown =
            (pool["mode"].as_str(), pool["tier"].as_u64(), pool["ejected"].as_u64(), pool["in_rotation"].as_u64());
        assert_eq!(shown, (Some(mode), tier, Some(ejected), Some(in_rotation)), "{in_high} and {in_low}: {pool}");
        let (by_high, by_low) = served(&format!("/{in_high}-{in_low}"));
        match tier {
            Some(0) => assert_eq!(by_low, 0, "{in_high} and {in_low}"),
            Some(_) => assert_eq!(by_high, 0, "{in_high} and {in_low}"),
            None => assert_eq!((by_high, by_low), (10, 10)),
        }
    }
}

#[test]
fn least_requests_avoids_the_busy_member() {
    let (busy, free, gate) = (Origin::start(), Origin::start(), Gate::new());
    let proxy = Proxy::of(&[&busy, &free], "balance: least_requests");
    proxy.await_all_healthy();
    [&busy, &free].iter().for_each(|origin| origin.when(When::path("/held"), Answer::status(200).held_by(&gate)));
    let mut held = proxy.connect();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("one is busy", || gate.waiting() == 1);
    let (busy, free) = if busy.traffic_count() == 1 { (busy, free) } else { (free, busy) };
    assert_eq!(shares(&proxy.sample("/free", 20)), BTreeMap::from([(free.address(), 20)]));
    assert_eq!(proxy.member("web", &busy.address())["in_flight"], 1);
    gate.open();
    assert_eq!(held.reply().status, 200);
    eventually("nothing is in flight", || proxy.member("web", &busy.address())["in_flight"] == 0);
}

#[test]
fn random_reaches_everyone() {
    let origins = origins(3);
    let proxy = Proxy::of(&origins.iter().collect::<Vec<_>>(), "balance: random");
    proxy.await_all_healthy();
    let shares = shares(&proxy.sample("/random", 120));
    assert!(shares.len() == 3 && shares.values().all(|count| *count >= 10), "{shares:?}");
}

#[test]
fn fastest_prefers_the_quick_and_is_not_drawn_to_quick_failures() {
    let origins = origins(4);
    let slow = Answer::status(200).after(Duration::from_millis(150));
    origins[3].when(When::probe(), slow);
    let probe = PROBE.replace("interval: 500ms", "interval: 1s").replace("timeout: 500ms", "timeout: 1s");
    let keys = format!("balance: {{ fastest: {{ latency_sensitivity: 60ms }} }}\n{probe}");
    let proxy = Proxy::start(&config_of(&names(&origins), &keys));
    proxy.await_all_healthy();
    origins.iter().for_each(|origin| origin.await_probes(2));
    let lines = proxy.sample("/quick", 30);
    assert!(!shares(&lines).contains_key(&origins[3].address()), "the slow one is outside the band");
    // Three fail at once and at speed: the kept one does not take the traffic of the healthy slow one.
    origins[..3].iter().for_each(|origin| origin.when(When::probe(), Answer::status(500)));
    proxy.await_mode("capped");
    eventually("three are unhealthy", || proxy.pool("web")["ejected"] == 2);
    assert_eq!(shares(&proxy.sample("/healthy", 20)), BTreeMap::from([(origins[3].address(), 20)]));
}

#[test]
fn cold_start_waits_for_the_first_verdict_and_asks_no_dead_member() {
    let (good, dead, gate) = (Origin::start(), Origin::stopped(), Gate::new());
    good.when(When::probe(), Answer::status(200).held_by(&gate));
    let probe = "probe: { path: /healthz, interval: 25s, fast_interval: 50ms, timeout: 25s }\ninitial_wait: 25s";
    let proxy = Proxy::start(&config_of(&[good.to_string(), dead.to_string()], probe));
    let mut clients: Vec<_> = (0..40).map(|_| proxy.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /cold/{i} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    eventually("the first probe is under way", || gate.waiting() == 1);
    eventually("the dead one has been probed", || {
        proxy.member("web", &dead.address())["last_probe"]["result"] == "fail"
    });
    assert_eq!((proxy.pool("web")["mode"].as_str(), good.traffic_count()), (Some("waiting"), 0));
    assert_eq!(proxy.admin_get("/readyz").status, 503);
    gate.open();
    assert!(clients.iter_mut().all(|client| client.reply().status == 200));
    assert_eq!(proxy.admin_get("/readyz").status, 200);
    for i in 0..40 {
        let line = proxy.access(&format!("/cold/{i}"));
        assert_eq!(line.tried(), [good.address()], "{}", line.raw);
        assert!(line.json["lb"]["waited_ms"].as_f64().is_some(), "{}", line.raw);
    }
}

#[test]
fn cold_start_serves_anyway_when_the_wait_is_over() {
    let (silent, gate) = (Origin::start(), Gate::new());
    silent.when(When::probe(), Answer::status(200).held_by(&gate));
    let probe = "probe: { path: /healthz, interval: 25s, timeout: 25s }\ninitial_wait: 300ms";
    let proxy = Proxy::start(&config_of(&[silent.to_string()], probe));
    assert_eq!(proxy.get("/after-the-wait").status, 200);
    assert_eq!(proxy.access("/after-the-wait").json["lb"]["mode"], "fallback");
    gate.open();
    proxy.await_all_healthy();
}

#[test]
fn initial_state_can_be_chosen() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::probe(), Answer::status(200).held_by(&gate));
    let keys = |initial: &str| {
        let judge = "consecutive: { failures: 2, passes: 3 }";
        format!(
            "initial: {initial}\nprobe: {{ path: /healthz, interval: 25s, fast_interval: 50ms, timeout: 25s, {judge} }}"
        )
    };
    let proxy = Proxy::start(&config_of(&[origin.to_string()], &keys("healthy")));
    assert_eq!(proxy.get("/at-once").status, 200);
    assert_eq!(proxy.member("web", &origin.address())["standing"], "healthy");
    drop(proxy);

    let (other, gate_of_third) = (Origin::start(), Gate::new());
    other.next_probes([Answer::status(503), Answer::status(200), Answer::status(200)]);
    other.when(When::probe(), Answer::status(200).held_by(&gate_of_third));
    let proxy = Proxy::start(&config_of(&[other.to_string()], &format!("{}\ninitial_wait: 25s", keys("unhealthy"))));
    eventually("two passes are in", || proxy.member("web", &other.address())["streak"] == 2);
    assert_ne!(proxy.member("web", &other.address())["verdict"], "healthy");
    eventually("the third is on its way", || gate_of_third.waiting() == 1);
    gate_of_third.open();
    proxy.await_standing(&other, "healthy");
}
