//! What the running proxy says it would do with a request, and what it then does.

use serde_json::Value;

use crate::harness::process::{Ended, run};
use crate::harness::proxy::{PROBE, config_of};
use crate::harness::{Answer, Gate, Line, Origin, Proxy, When, eventually};

/// What would become of a request, by the API; `query` is what follows `explain?`.
#[track_caller]
fn explained(proxy: &Proxy, query: &str) -> Value {
    let reply = proxy.admin_get(&format!("/api/v1/explain?{query}"));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The same by the command line.
fn command(proxy: &Proxy, args: &[&str]) -> Ended {
    let admin = proxy.admin().to_string();
    run(proxy.dir(), &[&["explain", "--admin", &admin], args].concat(), &[])
}

/// What is said of one of the members.
#[track_caller]
fn of<'a>(explained: &'a Value, origin: &Origin) -> &'a Value {
    let members = explained["members"].as_array().expect("members");
    let found = members.iter().find(|member| member["address"] == *origin.address());
    found.unwrap_or_else(|| panic!("no {} in {explained}", origin.address()))
}

#[track_caller]
fn assert_why(explained: &Value, origin: &Origin, chance: &str, words: &[&str]) {
    let member = of(explained, origin);
    let why = member["why"].as_str().unwrap_or_default();
    assert_eq!(member["chance"], chance, "{member}");
    assert!(words.iter().all(|word| why.contains(word)), "{words:?} are not in {why:?}");
}

#[test]
fn each_member_that_is_out_is_told_with_why_in_a_sentence() {
    let origins: [Origin; 5] = std::array::from_fn(|_| Origin::start());
    let [good, ill, other, drained, off] = &origins;
    let proxy = Proxy::of(&[good, ill, other, drained, off], "");
    proxy.await_all_healthy();
    ill.when(When::probe(), Answer::status(503));
    proxy.await_standing(ill, "ejected");
    for (origin, word) in [(drained, "drain"), (off, "disable")] {
        let path = format!("/api/v1/pools/web/members/{}/{word}", origin.address());
        assert_eq!(proxy.admin_post(&path, &[]).status, 200);
    }
    let said = explained(&proxy, "url=http://a.test/x");
    assert_eq!((&said["end"], &said["pool"]["mode"]), (&"member".into(), &"normal".into()), "{said}");
    assert_why(
        &said,
        ill,
        "out",
        &["ejected, unhealthy since ", " of ", "last: 503, expected 200-299, after ", "out 1"],
    );
    assert_why(&said, drained, "out", &["draining since ", "0 in flight"]);
    assert_why(&said, off, "out", &["disabled since "]);
    let turns = [good, other].map(|origin| of(&said, origin)["chance"].as_str().unwrap_or_default().to_owned());
    assert!(turns.contains(&"picked".to_owned()) && turns.contains(&"not_now".to_owned()), "{said}");
    assert_eq!(of(&said, good)["share"], 0.5);

    let ended = command(&proxy, &["http://a.test/x"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for words in ["it would go to ", "route    /: ", "it is its turn", "50 %", "out    ", "draining since "] {
        assert!(ended.stdout.contains(words), "no {words:?} in {}", ended.stdout);
    }
}

#[test]
fn member_that_traffic_has_put_out_is_told_with_what_it_met_and_until_when() {
    let (ill, good) = (Origin::start(), Origin::start());
    let proxy = Proxy::of(&[&ill, &good], "passive: { eject: { consecutive: 3, base: 10m, max: 10m } }");
    proxy.await_all_healthy();
    ill.when(When::traffic(), Answer::status(503));
    (0..6).for_each(|_| drop(proxy.get("/x")));
    let said = explained(&proxy, "url=http://a.test/x");
    let words = [
        "ejected by traffic since ",
        " UTC: 3 failures in a row, last: 503; out until ",
        " UTC; offence 1; cap 1, out 1",
    ];
    assert_why(&said, &ill, "out", &words);
}

#[test]
fn a_look_takes_no_turn_and_no_seat_and_counts_nothing() {
    let origins: [Origin; 3] = std::array::from_fn(|_| Origin::start());
    let proxy = Proxy::of(&origins.each_ref(), "max_in_flight: 2\n");
    proxy.await_all_healthy();
    let first = explained(&proxy, "url=http://a.test/");
    for _ in 0..50 {
        assert_eq!(explained(&proxy, "url=http://a.test/")["member"], first["member"]);
    }
    assert_eq!(proxy.pool("web")["in_flight"], 0);
    assert!(proxy.access_log().is_empty());
    assert!(!proxy.admin_get("/metrics").text().contains("pulsegate_requests_total{"), "nothing was counted");
    proxy.get("/then");
    assert_eq!(proxy.access("/then").tried(), [first["member"].as_str().expect("a member")]);
}

#[test]
fn full_members_a_queue_and_its_end_are_told() {
    let (origin, gate) = (Origin::start(), Gate::new());
    let keys = "each_member: { max_in_flight: 1 }\nqueue: { size: 1, timeout: 20s }\n";
    let proxy = Proxy::of(&[&origin], keys);
    proxy.await_all_healthy();
    origin.when(When::traffic(), Answer::status(200).held_by(&gate));
    let mut held = proxy.connect();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is held", || gate.waiting() == 1);
    let said = explained(&proxy, "url=http://a.test/");
    assert_eq!(
        (&said["end"], &said["wait"]["for"], &said["wait"]["at_most_ms"]),
        (&"wait".into(), &"room".into(), &20_000.0.into())
    );
    assert_why(&said, &origin, "not_now", &["full: 1 of 1 requests"]);
    let mut waits = proxy.connect();
    waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it waits", || proxy.pool("web")["queue"]["length"] == 1);
    let said = explained(&proxy, "url=http://a.test/");
    assert_eq!((&said["answer"]["status"], &said["answer"]["reason"]), (&503.into(), &"overloaded".into()), "{said}");
    proxy.get("/refused");
    assert_eq!(proxy.access("/refused").text("reason"), "overloaded");
    gate.open();
    held.reply();
    waits.reply();
}

#[test]
fn answers_of_the_proxys_own_are_those_that_come() {
    let origin = Origin::start();
    let pools = format!("pools:\n  web: {{ members: [{origin}], {PROBE} }}\n");
    let text = format!(
        "{pools}composites: {{ shop: {{ of: [web], publish: {{ path: /health }} }} }}\nroutes: [{{ host: shop.test, pool: web }}]\n"
    );
    let proxy = Proxy::start(&text.replace("of: [web]", "sources: [web]"));
    proxy.await_all_healthy();
    let long = format!("/{}", "a".repeat(9_000));
    let many: Vec<String> = (0..120).map(|n| format!("X-{n}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    // (method, path, fields, status, reason)
    type Row<'a> = (&'a str, &'a str, &'a [&'a str], u16, &'a str);
    let rows: &[Row<'_>] = &[
        ("GET", "/", &["Host: other.test"], 404, "no_route"),
        ("GET", &long, &["Host: shop.test"], 414, "uri_too_long"),
        ("GET", "/", &["Host: shop test"], 400, "bad_request"),
        ("GET", "/", &["Host: shop.test:99999"], 400, "bad_request"),
        ("GET", "/", &[], 400, "bad_request"),
        ("GET", "/", &["Host: shop.test", "Host: shop.test"], 400, "bad_request"),
        ("GET", "/", &["Host: shop.test", "Connection: x-forwarded-for"], 400, "bad_request"),
        ("GET", "/", &[&["Host: shop.test"], many.as_slice()].concat(), 431, "header_too_large"),
        ("TRACE", "/", &["Host: shop.test"], 405, "denied"),
        ("POST", "/health", &["Host: shop.test", "Content-Length: 0"], 405, "denied"),
        ("GET", "/health", &["Host: shop.test"], 200, "-"),
        ("OPTIONS", "/", &["Host: shop.test", "Max-Forwards: 0"], 200, "-"),
        ("GET", "/x", &["Host: Shop.test.:80"], 200, "member"),
    ];
    for (method, path, fields, status, reason) in rows {
        let query: String = fields.iter().map(|field| format!("&header={}", field.replace(' ', "%20"))).collect();
        let said = explained(&proxy, &format!("url={path}&method={method}{query}"));
        let what = format!("{method} {:.40} {:?}", path, fields.first());
        if *reason == "member" {
            assert_eq!(
                (&said["end"], &said["route"]["name"]),
                (&"member".into(), &"shop.test/".into()),
                "{what} {said}"
            );
        } else {
            let expected = if *reason == "-" { Value::Null } else { (*reason).into() };
            assert_eq!(
                (&said["answer"]["status"], &said["answer"]["reason"]),
                (&(*status).into(), &expected),
                "{what}: {said}"
            );
            assert!(said["answer"]["because"].as_str().is_some_and(|because| !because.is_empty()), "{what}");
        }
        // And that is what comes.
        let before = proxy.access_log().len();
        let mut connection = proxy.connect();
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        connection.send(format!("{method} {path} HTTP/1.1\r\n{fields}\r\n"));
        assert_eq!(connection.try_reply(method).map(|reply| reply.status), Ok(*status), "{what}");
        eventually("its line is there", || proxy.access_log().len() > before);
        let line = proxy.access_log().pop().expect("a line");
        let logged = if *reason == "member" { "-" } else { *reason };
        assert_eq!(line.text("reason"), logged, "{what}: {}", line.raw);
    }
}

#[test]
fn what_cannot_be_asked_is_refused_and_the_command_fails() {
    let origin = Origin::start();
    let proxy = Proxy::of(&[&origin], "");
    for (query, words) in [
        ("", "url is missing"),
        ("url=/&header=nonsense", "Name: value"),
        ("url=/&client=me", "write an IP address"),
        ("url=/&listener=none", "no listener"),
        ("url=/&url=/", "given twice"),
        ("url=/&verbose=1", "unknown parameter"),
    ] {
        let reply = proxy.admin_get(&format!("/api/v1/explain?{query}"));
        assert!((400..500).contains(&reply.status) && reply.text().contains(words), "{query}: {}", reply.text());
    }
    let ended = command(&proxy, &["/", "--listener", "none"]);
    assert!(ended.code == Some(1) && ended.reason().contains("no listener"), "{ended:?}");
    let nobody = run(proxy.dir(), &["explain", "/", "--admin", "127.0.0.1:1"], &[]);
    assert!(nobody.code == Some(1) && nobody.reason().contains("is the proxy running"), "{nobody:?}");
    let ended = command(&proxy, &["/x", "-H", "Host: a.test", "-X", "POST", "--format", "json"]);
    let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((&said["request"]["method"], &said["request"]["host"]), (&"POST".into(), &"a.test".into()));
}

/// Two regions by rank, a hashed pool that fails when nobody is healthy, and a pool whose cap keeps members.
fn world(origins: &[Origin; 9], weight: u32) -> String {
    let [a, b, c, d, e, f, g, h, i] = origins;
    let probe = "probe: { path: /healthz, interval: 100ms, fast_interval: 50ms, timeout: 100ms, consecutive: { failures: 1, passes: 1 } }";
    format!(
        "pools:\n  eu: {{ members: [{{ address: {a}, weight: {weight} }}, {b}], {probe} }}\n  \
         us: {{ members: [{c}, {d}], balance: least_requests, {probe} }}\n  \
         hashed: {{ members: [{e}, {f}, {g}], balance: {{ consistent_hash: {{ key: \"header:x-user\" }} }}, on_all_unhealthy: fail, {probe} }}\n  \
         kept: {{ members: [{h}, {i}], balance: random, max_unhealthy_percent: 0, {probe} }}\n\
         routes:\n  - {{ path: /regions, pools: [eu, us], failback_delay: 100ms }}\n  - {{ path: /hashed, pool: hashed }}\n  - {{ path: /kept, pool: kept }}\n"
    )
}

/// A thousand times: it is asked, a request is sent, and it is asked again. Where nothing has changed between the two, the
/// request got what was said, to the letter.
#[test]
fn what_is_said_is_what_the_next_request_gets_a_thousand_times_under_change() {
    let origins: [Origin; 9] = std::array::from_fn(|_| Origin::start());
    let proxy = Proxy::start(&world(&origins, 1));
    let (mut compared, mut round, mut seen) = (0, 0_usize, [0; 6]);
    while compared < 1_000 {
        stir(&proxy, &origins, round);
        let path = match round % 8 {
            0 | 1 | 4 | 5 => format!("/regions/{round}"),
            2 | 6 => format!("/hashed/{round}"),
            3 => format!("/kept/{round}"),
            _ => format!("/none/{round}"),
        };
        let user = round % 17;
        let query = format!("url={path}&header=Host:a.test&header=X-User:{user}");
        let before = explained(&proxy, &query);
        proxy.request("GET", &path, &["Host: a.test", &format!("X-User: {user}")], "");
        let after = explained(&proxy, &query);
        if is_the_same(&before, &after) {
            seen[agrees(&before, &proxy.access(&path))] += 1;
            compared += 1;
        }
        round += 1;
        assert!(round < 20_000, "only {compared} of {round} could be compared");
    }
    assert!(seen.iter().all(|count| *count > 0), "of each kind there were some: {seen:?} in {round} rounds");
}

/// Members fail and recover, one now and then and all of a pool together; they are drained and enabled, and the file changes.
fn stir(proxy: &Proxy, origins: &[Origin; 9], round: usize) {
    let say = |index: usize, status: u16| origins[index].when(When::probe(), Answer::status(status));
    let order = |index: usize, word: &str| {
        let pool = ["eu", "eu", "us", "us", "hashed", "hashed", "hashed", "kept", "kept"][index];
        let path = format!("/api/v1/pools/{pool}/members/{}/{word}", origins[index].address());
        assert_eq!(proxy.admin_post(&path, &[]).status, 200);
    };
    let one = (round * 5 + round / 9) % 9;
    match round % 25 {
        // One flaps.
        7 => say(one, 503),
        19 => say(one, 200),
        _ => {}
    }
    if !round.is_multiple_of(50) {
        return;
    }
    match round / 50 % 12 {
        1 => say(7, 503),
        2 => say(0, 503),
        3 => (0..2).for_each(|index| say(index, 503)),
        4 => order(4, "drain"),
        5 => (4..7).for_each(|index| say(index, 503)),
        6 => (7..9).for_each(|index| say(index, 503)),
        7 => (0..4).for_each(|index| say(index, 503)),
        8 => proxy.reload(&world(origins, 1 + (round / 600 % 2) as u32 * 2)),
        9 => (7..9).for_each(|index| order(index, "disable")),
        10 => (7..9).for_each(|index| order(index, "enable")),
        0 | 11 => {
            (0..9).for_each(|index| say(index, 200));
            order(4, "enable");
        }
        _ => {}
    }
}

/// Whether nothing has happened between two looks, so that the first is what held at the request: by the events told, the
/// configuration, the rank and how every member stands.
fn is_the_same(before: &Value, after: &Value) -> bool {
    let standings = |said: &Value| {
        let members = said["members"].as_array().into_iter().flatten();
        members.map(|member| (member["address"].clone(), member["standing"].clone())).collect::<Vec<_>>()
    };
    let facts = |said: &Value| {
        let pool = &said["pool"];
        [
            said["event"].clone(),
            said["generation"].clone(),
            pool["name"].clone(),
            pool["mode"].clone(),
            pool["ejected"].clone(),
        ]
    };
    facts(before) == facts(after) && standings(before) == standings(after)
}

/// Asserts that the line is what was said; which kind of end it was.
#[track_caller]
fn agrees(said: &Value, line: &Line) -> usize {
    let words = || format!("{said}\n{}", line.raw);
    if said["end"] == "answer" {
        assert_eq!(line.json["status"], said["answer"]["status"], "{}", words());
        assert_eq!(line.json["reason"], said["answer"]["reason"], "{}", words());
        assert!(line.tried().is_empty(), "{}", words());
        return 0;
    }
    let pool = &said["pool"];
    assert_eq!((&line.json["route"], &line.json["pool"]), (&said["route"]["name"], &pool["name"]), "{}", words());
    let lb = &line.json["lb"];
    for fact in ["mode", "tier", "in_rotation", "total"] {
        assert_eq!(lb[fact], pool[fact], "{fact} {}", words());
    }
    let serving = said["pools"].as_array().into_iter().flatten().find(|pool| pool["serves"] == true);
    assert_eq!(Some(&lb["rank"]), serving.map(|pool| &pool["rank"]), "{}", words());
    let mut members = said["members"].as_array().into_iter().flatten();
    let picked = members.find(|member| line.tried() == [member["address"].as_str().unwrap_or_default()]);
    let picked = picked.unwrap_or_else(|| panic!("{}", words()));
    assert_eq!(
        (&picked["standing"], &picked["reason"]),
        (&line.attempts()[0]["standing"], &lb["reason"]),
        "{}",
        words()
    );
    let is_settled = said["end"] == "member";
    if is_settled {
        assert_eq!((&picked["chance"], &picked["address"]), (&"picked".into(), &said["member"]), "{}", words());
    } else {
        assert_eq!((&said["end"], &picked["chance"]), (&"one_of".into(), &"possible".into()), "{}", words());
    }
    match (lb["reason"].as_str(), is_settled) {
        (Some("failover"), _) => 1,
        (Some("kept"), _) => 2,
        (Some("fallback"), _) => 3,
        (_, true) => 4,
        (_, false) => 5,
    }
}

#[test]
fn by_the_latency_of_requests_the_turn_and_what_was_learnt_are_told() {
    let origins: [Origin; 2] = std::array::from_fn(|_| Origin::start());
    let proxy = Proxy::of(&origins.each_ref(), "balance: { peak_ewma: { latency_sensitivity: 10s } }");
    proxy.await_all_healthy();
    let said = explained(&proxy, "url=http://a.test/");
    assert!(
        said["pool"]["because"].as_str().is_some_and(|why| why.contains("slower than the fastest of late")),
        "{said}"
    );
    assert_eq!(said["pool"]["policy"], "peak_ewma");
    for number in 0..40 {
        let said = explained(&proxy, "url=http://a.test/");
        let member = said["member"].as_str().unwrap_or_else(|| panic!("it is settled: {said}")).to_owned();
        let path = format!("/number{number}");
        proxy.get(&path);
        assert_eq!(proxy.access(&path).tried(), [member]);
    }
    let said = explained(&proxy, "url=http://a.test/");
    let chances = origins.each_ref().map(|origin| of(&said, origin)["chance"].as_str().unwrap_or_default().to_owned());
    for (origin, chance) in origins.iter().zip(chances) {
        assert_why(&said, origin, &chance, &[" turn: ", " ms of late"]);
        assert!(of(&said, origin)["peak_ms"].is_number(), "{said}");
    }
}

/// U+009B is what some terminals take for ESC [, and U+202E turns the rest of the line around.
#[test]
fn words_of_a_member_are_not_obeyed_by_a_terminal() {
    let origin = Origin::start();
    origin.when(When::probe(), Answer::status(302).field("Location: /\u{9b}31m\u{202e}x"));
    let proxy = Proxy::start(&config_of(&[origin.to_string()], PROBE));
    proxy.await_standing(&origin, "fallback");
    let admin = proxy.admin().to_string();
    let wait = ["enable", "web", &origin.address(), "--wait", "1ms", "--admin", &admin];
    for ended in [command(&proxy, &["a.test/"]), run(proxy.dir(), &wait, &[])] {
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains("302 to /\\u{9b}31m\\u{202e}x, expected 200"), "{ended:?}");
        assert_eq!(said.find(['\u{9b}', '\u{202e}']), None, "{ended:?}");
    }
    let json = command(&proxy, &["a.test/", "--format", "json"]);
    assert!(json.stdout.contains("/\\u009b31m\\u202ex"), "{json:?}");
}
