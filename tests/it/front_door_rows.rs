//! What Azure Front Door's health probes do, rule by rule (F1 to F10 of docs/presets.md): each test's comment begins with its row.

use std::time::Duration;

use pulsegate::config::Idle;

use crate::harness::on_paper::{OnPaper, failed, passed, pool_of, problems};
use crate::harness::proxy::config_of;
use crate::harness::tls::{Authority, TlsOrigin};
use crate::harness::{Answer, Line, Origin, Proxy, Step, When, eventually};
use crate::probe_cases::samples;

/// The preset at a pace a test can wait for; all its rules are its own.
const PRESET: &str = "preset: front_door\nprobe: { interval: 500ms, timeout: 500ms }";
/// The preset's own numbers, to the last one.
const AS_IT_IS: &str = "preset: front_door";

fn fail() -> Answer {
    Answer::status(503)
}

fn pass() -> Answer {
    Answer::status(200)
}

fn of(members: &[&Origin], keys: &str) -> Proxy {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    Proxy::start(&config_of(&members, keys))
}

/// A pool on paper of members with these keys of their own.
fn on_paper(members: &[&str], keys: &str) -> OnPaper {
    let member = |(index, more): (usize, &&str)| format!("{{ address: \"10.0.0.{}:80\"{more} }}", index + 1);
    let members: Vec<String> = members.iter().enumerate().map(member).collect();
    OnPaper::of(&config_of(&members, keys))
}

fn count(lines: &[Line], origin: &Origin) -> usize {
    lines.iter().filter(|line| line.tried() == [origin.address()]).count()
}

/// F1: HEAD (default) or GET over HTTP or HTTPS, on the traffic port, with a User-Agent that names the prober.
#[test]
fn a_probe_is_head_or_get_on_the_port_of_the_traffic_and_names_its_sender() {
    let (authority, keys) = (Authority::named("Ours"), PRESET.replace('\n', "\n    "));
    let (head, get) = (Origin::start(), Origin::start());
    let secure = TlsOrigin::start(authority.paper(&["app.test"]).server());
    let pool = |name: &str, member: &str, keys: &str| format!("  {name}:\n    members: [{member}]\n    {keys}\n");
    let over_tls = format!("{keys}\n    upstream: {{ tls: {{ ca: {} }} }}", authority.ca());
    let config = [
        pool("head", &head.to_string(), &keys),
        pool("get", &get.to_string(), &keys.replace("probe: {", "probe: { method: GET,")),
        pool("secure", &secure.known_as("app.test"), &over_tls),
    ];
    let _proxy = Proxy::start(&format!("pools:\n{}routes: [{{ pool: head }}]\n", config.concat()));
    for (origin, method) in [(&head, "HEAD"), (&get, "GET"), (&*secure.origin, "HEAD")] {
        origin.await_probes(2);
        for seen in origin.probes() {
            assert_eq!((&*seen.method, &*seen.target), (method, "/"));
            let agent = seen.field("user-agent").unwrap_or_default();
            assert!(agent.starts_with("pulsegate/"), "{agent}");
        }
    }
    assert!(!secure.greetings().is_empty(), "it is asked over TLS");
}

/// F2: only 200 is a pass; any other status, or no valid HTTP answer for any reason, is a fail.
#[test]
fn nothing_but_200_passes() {
    let half = |then| Answer::status(200).field("Content-Length: 100").steps(vec![Step::Bytes(b"half".to_vec()), then]);
    let garbage = Answer::raw(vec![Step::Bytes(b"nonsense\r\n\r\n".to_vec()), Step::Close]);
    let moved = Answer::status(301).field("Location: /elsewhere");
    let mut rows = vec![("200", pass(), "-", ""), ("301", moved, "status", "/elsewhere")];
    for (name, status) in [("201", 201), ("204", 204), ("206", 206), ("403", 403), ("404", 404), ("500", 500)] {
        rows.push((name, Answer::status(status), "status", name));
    }
    rows.extend([
        ("garbage", garbage, "protocol", ""),
        ("closed", Answer::close(), "reset", ""),
        ("reset", Answer::reset(), "reset", ""),
        ("silence", Answer::hang(), "timeout", ""),
        ("half an answer, then an end", half(Step::Close), "reset", ""),
        ("half an answer, then a reset", half(Step::Reset), "reset", ""),
        ("half an answer, then nothing", half(Step::Hang), "timeout", ""),
    ]);
    samples("preset: front_door\nprobe: { method: GET, interval: 2s, timeout: 2s }", rows);

    // Nobody there, and nobody who can be trusted.
    let (ours, theirs, refuses) = (Authority::named("Ours"), Authority::named("Theirs"), Origin::stopped());
    let distrusted = TlsOrigin::start(theirs.paper(&["app.test"]).server());
    let keys = format!("{PRESET}\nupstream: {{ tls: {{ ca: {} }} }}", ours.ca());
    let proxy = Proxy::start(&config_of(&[distrusted.known_as("app.test"), refuses.to_string()], &keys));
    for (member, reason) in [(distrusted.address(), "tls"), (refuses.address(), "refused")] {
        eventually(&format!("the reason is {reason}"), || {
            let last = proxy.member("web", &member)["last_probe"].clone();
            last["result"] == "fail" && last["reason"] == reason
        });
    }
}

/// F3: latency is the wall-clock time from just before the probe is sent to its last byte, on a new TCP connection every time.
#[test]
fn latency_is_from_before_the_dial_to_the_last_byte_on_a_new_connection() {
    let authority = Authority::named("Ours");
    let member = TlsOrigin::start(authority.paper(&["app.test"]).server());
    let late = vec![Step::Bytes(b"ha".to_vec()), Step::Pause(Duration::from_millis(200)), Step::Bytes(b"lf".to_vec())];
    member.origin.answer(Answer::status(200).field("Content-Length: 4").steps(late));
    let probe = "preset: front_door\nprobe: { method: GET, interval: 2s, timeout: 2s }";
    let keys = format!("{probe}\nupstream: {{ tls: {{ ca: {} }} }}", authority.ca());
    let proxy = Proxy::start(&config_of(&[member.known_as("app.test")], &keys));
    member.origin.await_probes(3);
    let shown = proxy.member("web", &member.address());
    let ms = |key: &str| shown["last_probe"][key].as_f64().unwrap_or_else(|| panic!("no {key}: {shown}"));
    assert!(ms("total_ms") >= 200.0, "the body's end counts: {shown}");
    assert!(ms("total_ms") >= ms("connect_ms") + ms("tls_ms"), "dial and handshake count: {shown}");
    assert!(ms("connect_ms") > 0.0 && ms("tls_ms") > 0.0, "{shown}");
    assert!(shown["latency_ms"].as_f64().is_some_and(|ms| ms >= 200.0), "{shown}");
    let seen = member.origin.probes();
    assert!(seen.iter().all(|seen| seen.nth == 0), "a connection was used again");
    assert!(member.greetings().len() >= seen.len(), "one handshake each");
}

/// F4: disabled members are dropped, then those with fewer than `required` passes in their last `size` samples; latency is
/// kept for each of the rest.
#[test]
fn disabled_ones_are_dropped_then_those_with_too_few_passes_and_the_rest_keep_their_latency() {
    // By its own numbers, 3 of 4: out exactly at the second fail among four, back exactly at the third pass.
    let mut paper = on_paper(&["", "", ", state: disabled"], AS_IT_IS);
    let rows = [
        (passed(10), "healthy"),
        (passed(10), "healthy"),
        (failed(), "healthy"),
        (passed(10), "healthy"),
        (passed(10), "healthy"),
        (passed(10), "healthy"),
        (failed(), "healthy"),
        (passed(10), "healthy"),
        (failed(), "ejected"),
        (failed(), "ejected"),
        (passed(10), "ejected"),
        (passed(10), "ejected"),
        (passed(10), "healthy"),
    ];
    for (step, (sample, standing)) in rows.into_iter().enumerate() {
        assert_eq!(paper.round(&[passed(10), sample, passed(1)]), ["healthy", standing, "disabled"], "step {step}");
    }

    let [good, failing, disabled] = [Origin::start(), Origin::start(), Origin::start()];
    let members = [good.to_string(), failing.to_string(), format!("{{ address: {disabled}, state: disabled }}")];
    let proxy = Proxy::start(&config_of(&members, PRESET));
    proxy.await_standing(&failing, "healthy");
    proxy.await_standing(&good, "healthy");
    failing.when(When::probe(), fail());
    proxy.await_standing(&failing, "ejected");
    good.await_probes(3);
    let shown = [&good, &failing, &disabled].map(|origin| proxy.member("web", &origin.address()));
    assert!(shown[0]["latency_ms"].is_number(), "{}", shown[0]);
    assert!(shown[2]["latency_ms"].is_null() && disabled.probe_count() == 0, "{}", shown[2]);
    assert_eq!(shown[0]["window"]["size"], 4, "{}", shown[0]);
    assert_eq!(shown[0]["window"]["required"], 3, "{}", shown[0]);
    assert_eq!(count(&proxy.sample("/rest", 10), &good), 10);
}

/// F5: members within `latency_sensitivity` of the fastest share the traffic by weight; 0 always takes the fastest, which
/// always qualifies.
#[test]
fn members_within_the_sensitivity_of_the_fastest_share_by_weight() {
    let latencies = [passed(50), passed(60), passed(75), passed(400)];
    let at = |sensitivity: &str| {
        format!("preset: front_door\nbalance: {{ fastest: {{ latency_sensitivity: {sensitivity} }} }}")
    };
    let shares = |keys: &str, members: &[&str], requests: usize| {
        let mut paper = on_paper(members, keys);
        paper.round(&latencies[..members.len()]);
        paper.shares(requests)
    };
    assert_eq!(shares(AS_IT_IS, &["", "", "", ""], 30), [10, 10, 10, 0], "50 ms where none is written");
    assert_eq!(shares(&at("20ms"), &["", "", ""], 30), [15, 15, 0]);
    assert_eq!(shares(&at("5ms"), &["", "", ""], 30), [30, 0, 0], "the fastest qualifies by itself");
    assert_eq!(shares(&at("0s"), &["", "", ""], 30), [30, 0, 0]);
    assert_eq!(shares(&at("20ms"), &[", weight: 1", ", weight: 3", ", weight: 9"], 40), [10, 30, 0]);
    // The latency of a member is that of several probes: one slow answer moves nothing.
    let mut paper = on_paper(&["", ""], &at("0s"));
    (0..3).for_each(|_| drop(paper.round(&[passed(50), passed(60)])));
    paper.round(&[passed(900), passed(60)]);
    assert_eq!(paper.shares(10), [10, 0]);

    let (fast, slow) = (Origin::start(), Origin::start());
    slow.when(When::probe(), pass().after(Duration::from_millis(700)));
    let keys = "preset: front_door\nprobe: { interval: 1s, timeout: 1s }\nbalance: { fastest: { latency_sensitivity: 300ms } }";
    let proxy = of(&[&fast, &slow], keys);
    proxy.await_all_healthy();
    let known = || proxy.member("web", &slow.address())["latency_ms"].as_f64().is_some_and(|ms| ms >= 700.0);
    eventually("it is known to be slow", known);
    assert_eq!(count(&proxy.sample("/fast", 20), &fast), 20);
}

/// F5: under traffic, forty clients at once are shared by weight among the fast, and follow them; at sensitivity 0 all go to
/// the fastest, and nobody gets an error when another one becomes that.
#[test]
fn traffic_is_shared_by_weight_among_the_fast_and_follows_the_fastest() {
    let origins = [Origin::start(), Origin::start(), Origin::start()];
    let [light, heavy, slow] = &origins;
    let takes = |origin: &Origin, ms: u64| origin.when(When::probe(), pass().after(Duration::from_millis(ms)));
    let config = |sensitivity: &str| {
        let members = [light.to_string(), format!("{{ address: {heavy}, weight: 3 }}"), slow.to_string()];
        let pace = "probe: { interval: 1s, timeout: 1s }";
        let balance = format!("balance: {{ fastest: {{ latency_sensitivity: {sensitivity} }} }}");
        config_of(&members, &format!("preset: front_door\n{pace}\n{balance}"))
    };
    let known = |proxy: &Proxy, origin: &Origin, at_least: f64| {
        let latency = || proxy.member("web", &origin.address())["latency_ms"].as_f64();
        eventually("its latency is known", || latency().is_some_and(|ms| (at_least..at_least + 300.0).contains(&ms)));
    };
    let crowd = |proxy: &Proxy| {
        let before = origins.each_ref().map(Origin::traffic_count);
        let mut clients: Vec<_> = (0..40).map(|_| proxy.connect()).collect();
        for _ in 0..5 {
            for client in &mut clients {
                client.send("GET /crowd HTTP/1.1\r\nHost: a\r\n\r\n");
            }
            assert!(clients.iter_mut().all(|client| client.reply().status == 200));
        }
        let after = origins.each_ref().map(Origin::traffic_count);
        [0, 1, 2].map(|index| after[index] - before[index])
    };
    takes(slow, 700);
    let proxy = Proxy::start(&config("350ms"));
    proxy.await_all_healthy();
    known(&proxy, slow, 700.0);
    assert_eq!(crowd(&proxy), [50, 150, 0]);
    // The slowest of three, and the two that were fast are slow by now.
    [light, heavy].iter().for_each(|origin| takes(origin, 700));
    takes(slow, 0);
    known(&proxy, light, 700.0);
    known(&proxy, heavy, 700.0);
    known(&proxy, slow, 0.0);
    assert_eq!(crowd(&proxy), [0, 0, 200]);
    drop(proxy);

    takes(light, 350);
    takes(heavy, 0);
    takes(slow, 700);
    let proxy = Proxy::start(&config("0s"));
    proxy.await_all_healthy();
    known(&proxy, light, 350.0);
    assert_eq!(crowd(&proxy), [0, 200, 0]);
    takes(heavy, 700);
    known(&proxy, heavy, 700.0);
    assert_eq!(crowd(&proxy), [200, 0, 0]);
}

/// F6: one endpoint in several pools is probed once, at the shortest interval asked for, and all those pools judge by the
/// same samples, each with its own judge and gates.
#[test]
fn who_is_in_several_pools_is_probed_once_and_judged_by_each() {
    let (shared, clock) = (Origin::start(), Origin::start());
    shared.when(When::probe(), pass().after(Duration::from_millis(150)));
    let pool = |name: &str, origin: &Origin, interval: &str, more: &str| {
        format!(
            "  {name}: {{ members: [{origin}], preset: front_door, probe: {{ interval: {interval}, timeout: 500ms{more} }} }}\n"
        )
    };
    let pools = [
        pool("often", &shared, "500ms", ""),
        pool("seldom", &shared, "1h", ", window: { required: 1 }"),
        pool("gated", &shared, "24h", ", max_latency: 100ms"),
        pool("clock", &clock, "500ms", ""),
    ];
    let proxy = Proxy::start(&format!("pools:\n{}routes: [{{ pool: often }}]\n", pools.concat()));
    clock.await_probes(1);
    let (before, clock_before) = (shared.probe_count(), clock.probe_count());
    clock.await_probes(8);
    let (probes, ticks) = (shared.probe_count() - before, clock.probe_count() - clock_before);
    assert!(
        probes.abs_diff(ticks) <= 2,
        "{probes} probes at a pace of {ticks}: not once, or not at the shortest interval"
    );

    let member = |pool: &str| proxy.member(pool, &shared.address());
    eventually("each has judged", || {
        ["often", "seldom", "gated"].iter().all(|pool| member(pool)["verdict"] != "unknown")
    });
    assert_eq!(["often", "seldom"].map(|pool| member(pool)["verdict"].clone()), ["healthy", "healthy"]);
    let gated = member("gated");
    assert_eq!((&gated["verdict"], &gated["last_probe"]["reason"]), (&"unhealthy".into(), &"slow".into()), "{gated}");
    // Two fails of four are too many for the one pool, and not for the other.
    let mark = proxy.mark();
    shared.next_probes([fail(), fail()]);
    proxy.await_event(mark, &[("pool", "often"), ("kind", "member"), ("to", "unhealthy"), ("reason", "status")]);
    shared.await_next_probes();
    assert!(proxy.events(&[("pool", "seldom"), ("kind", "member"), ("to", "unhealthy")]).is_empty());
    assert_eq!(member("seldom")["verdict"], "healthy");
}

/// F7: every member failing: round-robin across all of them; as soon as one is healthy the normal algorithm resumes.
#[test]
fn when_all_fail_all_take_turns_and_the_first_healthy_one_ends_it() {
    let mut paper = on_paper(&["", "", ""], AS_IT_IS);
    assert_eq!(paper.round(&[passed(10), passed(200), passed(900)]), ["healthy"; 3]);
    assert_eq!(paper.shares(12), [12, 0, 0], "by latency, as ever");
    (0..4).for_each(|_| drop(paper.round(&[failed(), failed(), failed()])));
    assert_eq!((paper.standings(), paper.mode()), (vec!["fallback"; 3], "fallback"));
    assert_eq!(paper.shares(12), [4, 4, 4], "whatever their latency was");

    let origins = [Origin::start(), Origin::start(), Origin::start()];
    let proxy = of(&origins.each_ref(), PRESET);
    proxy.await_all_healthy();
    let mark = proxy.mark();
    origins.iter().for_each(|origin| origin.when(When::probe(), fail()));
    proxy.await_event(mark, &[("kind", "fallback"), ("to", "fallback")]);
    let lines = proxy.sample("/all", 30);
    assert_eq!(origins.each_ref().map(|origin| count(&lines, origin)), [10; 3]);
    let mark = proxy.mark();
    origins[1].when(When::probe(), pass());
    proxy.await_event(mark, &[("kind", "fallback")]);
    proxy.await_standing(&origins[1], "healthy");
    assert_eq!(count(&proxy.sample("/one", 10), &origins[1]), 10);
}

/// F8: probes may be switched off only where a pool has one enabled member.
#[test]
fn probes_are_off_only_where_one_member_is_enabled() {
    let off = "preset: front_door\nprobe: off";
    let (a, b) = ("\"10.0.0.1:80\"".to_owned(), "\"10.0.0.2:80\"".to_owned());
    let resting = "{ address: \"10.0.0.2:80\", state: disabled }".to_owned();
    let said = problems(&config_of(&[a.clone(), b], off));
    assert!(said.contains("preset front_door needs probes"), "{said}");
    assert!(pool_of(&config_of(&[a, resting], off)).probe.is_none());

    let only = Origin::start();
    let proxy = of(&[&only], off);
    proxy.await_standing(&only, "healthy");
    assert!(proxy.sample("/only", 5).iter().all(|line| line.json["status"] == 200));
    assert_eq!((only.accepted(), only.probe_count()), (1, 0), "traffic's connection alone");

    // Nor by hand.
    let other = Origin::start();
    let members = [only.to_string(), format!("{{ address: {other}, state: disabled }}")];
    let proxy = Proxy::start(&config_of(&members, off));
    let act = |member: &Origin, action: &str| {
        proxy.admin_post(&format!("/api/v1/pools/web/members/{}/{action}", member.address()), &[])
    };
    let refused = act(&other, "enable");
    assert!(refused.status == 409 && refused.text().contains("preset front_door"), "{}", refused.text());
    assert_eq!(act(&only, "enable").status, 200, "it is already");
    assert_eq!((act(&only, "disable").status, act(&other, "enable").status), (200, 200));
    assert_eq!(act(&only, "enable").status, 409);

    // Nor by a reload, with what operators have said of members: that one was probed until now.
    for before in ["preset: front_door\nprobe: { path: / }", "probe: off"] {
        let proxy = Proxy::start(&format!("reload: {{ watch: false }}\n{}", config_of(&members, before)));
        let act = |member: &Origin, action: &str| {
            let path = format!("/api/v1/pools/web/members/{}/{action}", member.address());
            assert_eq!(proxy.admin_post(&path, &[]).status, 200, "{before}");
        };
        act(&other, "enable");
        proxy.rewrite(&format!("reload: {{ watch: false }}\n{}", config_of(&members, off)));
        let refused = proxy.admin_post("/api/v1/reload", &[]);
        let words = format!("{only} and {other} would be enabled; disable or drain all but one first").replace('"', "");
        assert!(refused.status == 422 && refused.text().contains(&words), "{before}: {} {words}", refused.text());
        act(&only, "drain");
        let taken = proxy.admin_post("/api/v1/reload", &[]);
        assert_eq!(taken.status, 200, "{before}: {}", taken.text());
    }
}

/// F9: every edge machine probes on its own, 2 a minute at 30 s; one without real traffic probes less often.
#[test]
fn every_process_probes_for_itself_and_rarely_while_nobody_uses_the_pool() {
    let members = ["\"10.0.0.1:80\"".to_owned()];
    let pool = pool_of(&config_of(&members, AS_IT_IS));
    let probe = pool.probe.as_ref().expect("a probe");
    assert_eq!(Duration::from_secs(60).div_duration_f64(probe.interval), 2.0, "a minute");
    let (after, interval) = (Duration::from_secs(5 * 60), Duration::from_secs(2 * 60));
    assert_eq!(probe.idle, Some(Idle { after, interval }));

    let (shared, clock) = (Origin::start(), Origin::start());
    let pools = |idle: &str| {
        format!(
            "pools:\n  web: {{ members: [{shared}], preset: front_door, probe: {{ interval: 500ms, timeout: 500ms{idle} }} }}\n  \
             clock: {{ members: [{clock}], preset: front_door, probe: {{ interval: 500ms, timeout: 500ms, idle: off }} }}\n\
             routes: [{{ pool: web }}]\n"
        )
    };
    let quiet = ", idle: { after: 1s, interval: 24h }";
    let edge = Proxy::start(&pools(quiet));
    eventually("an edge that nobody uses leaves it in peace", || {
        let before = shared.probe_count();
        clock.await_probes(5);
        shared.probe_count() == before
    });
    let other = Proxy::start(&pools(quiet));
    shared.await_probes(1);
    let own = |proxy: &Proxy| proxy.member("web", &shared.address())["verdict"].clone();
    assert_eq!((own(&edge), own(&other)), ("healthy".into(), "healthy".into()));
    // The first request brings the usual pace back, at the edge that had it.
    assert_eq!(edge.get("/first").status, 200);
    shared.await_probes(3);
}

/// F10: priorities (a lower tier only when no higher one can serve) and weights.
#[test]
fn a_lower_tier_serves_only_when_the_higher_cannot_and_weights_share() {
    let [first, second, standby] = [Origin::start(), Origin::start(), Origin::start()];
    let members = [
        format!("{{ address: {first}, weight: 3 }}"),
        format!("{{ address: {second}, weight: 1 }}"),
        format!("{{ address: {standby}, tier: 1 }}"),
    ];
    let proxy = Proxy::start(&config_of(&members, &format!("{PRESET}\nbalance: round_robin")));
    eventually("the first tier serves", || {
        let standing = |origin: &Origin| proxy.member("web", &origin.address())["standing"].clone();
        [standing(&first), standing(&second), standing(&standby)] == ["healthy", "healthy", "standby"]
    });
    let lines = proxy.sample("/weighed", 40);
    assert_eq!([&first, &second, &standby].map(|origin| count(&lines, origin)), [30, 10, 0]);
    // One that is left is enough.
    first.when(When::probe(), fail());
    proxy.await_standing(&first, "ejected");
    assert_eq!(count(&proxy.sample("/one", 10), &second), 10);
    second.when(When::probe(), fail());
    proxy.await_mode("failover");
    assert_eq!(count(&proxy.sample("/standby", 10), &standby), 10);
    first.when(When::probe(), pass());
    proxy.await_standing(&standby, "standby");
    assert_eq!(count(&proxy.sample("/again", 10), &first), 10);
}

/// F10: session affinity.
#[test]
fn a_client_keeps_its_member_whatever_the_weights_until_that_is_out() {
    let [first, second, standby] = [Origin::start(), Origin::start(), Origin::start()];
    let members = [
        format!("{{ address: {first}, weight: 1 }}"),
        format!("{{ address: {second}, weight: 9 }}"),
        format!("{{ address: {standby}, tier: 1 }}"),
    ];
    let keys = format!("{PRESET}\nbalance: round_robin\nsticky: {{ secret: \"a secret of these tests\" }}");
    let proxy = Proxy::start(&config_of(&members, &keys));
    proxy.await_all_healthy();
    let lines = |base: &str, cookie: Option<&str>| -> (Vec<Line>, Option<String>) {
        let field = cookie.map(|cookie| format!("Cookie: {cookie}"));
        let fields: Vec<&str> = field.as_deref().into_iter().collect();
        let mut set = None;
        let lines = (0..20).map(|n| {
            let path = format!("{base}/{n}");
            let reply = proxy.request("GET", &path, &fields, "");
            let line = proxy.access(&path);
            if line.tried() == [first.address()] || cookie.is_some() {
                set = reply.field("set-cookie").and_then(|set| set.split(';').next()).map(str::to_owned).or(set.take());
            }
            line
        });
        (lines.collect(), set)
    };
    let (strangers, cookie) = lines("/strangers", None);
    assert_eq!([&first, &second].map(|origin| count(&strangers, origin)), [2, 18]);
    let cookie = cookie.expect("a client of the lighter one");
    let (bound, again) = lines("/bound", Some(&cookie));
    assert_eq!((count(&bound, &first), again), (20, None));
    first.when(When::probe(), fail());
    proxy.await_standing(&first, "ejected");
    let (moved, next) = lines("/moved", Some(&cookie));
    assert_eq!(count(&moved, &second), 20);
    // The tier below binds too, and hands its clients back as it does all others.
    second.when(When::probe(), fail());
    proxy.await_mode("failover");
    let (below, down) = lines("/below", next.as_deref());
    assert_eq!(count(&below, &standby), 20);
    second.when(When::probe(), pass());
    proxy.await_standing(&standby, "standby");
    assert_eq!(count(&lines("/above", down.as_deref()).0, &second), 20);
}
