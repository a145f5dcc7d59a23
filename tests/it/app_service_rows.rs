//! What Azure App Service's health check does, rule by rule (A1 to A18 of docs/presets.md): each test's comment begins with its row.

use std::time::Duration;

use pulsegate::health::replacement::{Ledger, Turn, Ward};

use crate::harness::dns::NameServer;
use crate::harness::on_paper::{OnPaper, failed, http_probe, passed, pool_of, problems, understood};
use crate::harness::proxy::config_of;
use crate::harness::tls::{Authority, TlsOrigin};
use crate::harness::{Answer, Gate, Line, Load, Origin, Proxy, Scrape, Step, When, eventually};
use crate::health_cases::bring_on_a_probe;
use crate::probe_cases::samples;

/// The preset at a pace a test can wait for; all its rules are its own.
const PRESET: &str = "preset: app_service\nprobe: { path: /healthz, interval: 300ms, timeout: 300ms }";
/// The same where the number of fails is not what is shown.
const SOON: &str =
    "preset: app_service\nprobe: { path: /healthz, interval: 500ms, timeout: 500ms, consecutive: { failures: 2 } }";
/// The preset's own numbers, to the last one.
const AS_IT_IS: &str = "preset: app_service\nprobe: { path: /healthz }";

/// The same where each probe is brought on by hand.
const BY_HAND: &str = "preset: app_service\nprobe: { path: /healthz, interval: 24h, timeout: 20s }";

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

/// So many members for a pool on paper.
fn on_paper(members: usize, keys: &str) -> OnPaper {
    let members: Vec<String> = (1..=members).map(|number| format!("\"10.0.0.{number}:80\"")).collect();
    OnPaper::of(&config_of(&members, keys))
}

fn count(lines: &[Line], origin: &Origin) -> usize {
    lines.iter().filter(|line| line.tried() == [origin.address()]).count()
}

/// Brings on probes until nine in a row have failed and a tenth is held.
fn nine_fails_and_a_tenth(proxy: &Proxy, bad: &Origin, tenth: &Gate) {
    proxy.await_all_healthy();
    bad.next_probes((0..9).map(|_| fail()).chain([fail().held_by(tenth)]));
    for fails in 1..=9 {
        bring_on_a_probe(proxy, bad);
        eventually("the fail is in", || proxy.member("web", &bad.address())["streak"] == -fails);
    }
    bring_on_a_probe(proxy, bad);
    eventually("the tenth is on its way", || tenth.waiting() == 1);
}

/// A1: GET on one configured path, which has no default, at every member, every 60 s.
#[test]
fn every_member_is_asked_by_get_for_the_one_path_that_is_written() {
    let member = ["\"10.0.0.1:80\"".to_owned()];
    let said = problems(&config_of(&member, "preset: app_service"));
    assert!(said.contains("preset app_service has no default path"), "{said}");
    let pool = pool_of(&config_of(&member, AS_IT_IS));
    let probe = pool.probe.as_ref().expect("a probe");
    assert_eq!((probe.interval, probe.fast_interval), (Duration::from_secs(60), Duration::from_secs(60)));

    let origins = [Origin::start(), Origin::start(), Origin::start()];
    let proxy = of(&origins.each_ref(), PRESET);
    // Whatever traffic does, and whatever they answer.
    origins[1].answer(fail());
    origins.iter().for_each(|origin| origin.await_probes(3));
    proxy.sample("/traffic", 6);
    origins.iter().for_each(|origin| origin.await_probes(3));
    for origin in &origins {
        assert!(origin.probes().iter().all(|seen| (&*seen.method, &*seen.target) == ("GET", "/healthz")));
    }
}

/// A2: 200 to 299 is a pass; anything else, or no complete answer within 60 s, is a fail.
#[test]
fn only_a_complete_answer_of_200_to_299_in_time_passes() {
    let pool = pool_of(&config_of(&["\"10.0.0.1:80\"".to_owned()], AS_IT_IS));
    assert_eq!(pool.probe.as_ref().map(|probe| probe.timeout), Some(Duration::from_secs(60)));
    assert_eq!(http_probe(&pool).expect.status, [(200, 299)]);

    let half = || Answer::status(200).field("Content-Length: 100");
    let begun = || Step::Bytes(b"half".to_vec());
    let rows = vec![
        ("200", Answer::status(200), "-", ""),
        ("204", Answer::status(204), "-", ""),
        ("299", Answer::status(299), "-", ""),
        ("300", Answer::status(300), "status", "300"),
        ("401", Answer::status(401), "status", "401"),
        ("404", Answer::status(404), "status", "404"),
        ("500", Answer::status(500), "status", "500"),
        ("no answer", Answer::hang(), "timeout", ""),
        ("half an answer", half().steps(vec![begun(), Step::Hang]), "timeout", ""),
        ("an answer that breaks off", half().steps(vec![begun(), Step::Close]), "reset", ""),
        ("no answer and an end", Answer::close(), "reset", ""),
        ("no HTTP", Answer::raw(vec![Step::Bytes(b"nonsense\r\n\r\n".to_vec()), Step::Close]), "protocol", ""),
    ];
    samples("preset: app_service\nprobe: { path: /healthz, interval: 2s, timeout: 2s }", rows);
}

/// A3: after N consecutive fails, 2 to 10 and 10 by default, the member leaves the rotation.
#[test]
fn a_member_is_out_at_its_tenth_fail_in_a_row_and_not_before() {
    let failures = |count: u32| AS_IT_IS.replace("/healthz", &format!("/, consecutive: {{ failures: {count} }}"));
    let member = ["\"10.0.0.1:80\"".to_owned()];
    for count in [2, 10] {
        pool_of(&config_of(&member, &failures(count)));
    }
    for count in [1, 11] {
        let said = problems(&config_of(&member, &failures(count)));
        assert!(said.contains(&format!("`failures` cannot be {count}; write 2 to 10")), "{said}");
    }
    // By its own numbers: nine minutes of fails are not enough, and one pass in between begins the count again.
    let mut paper = on_paper(2, AS_IT_IS);
    let (good, bad) = ([passed(5), passed(5)], [passed(5), failed()]);
    assert_eq!(paper.round(&good), ["healthy", "healthy"]);
    assert!((0..9).all(|_| paper.round(&bad) == ["healthy", "healthy"]));
    assert_eq!(paper.round(&good), ["healthy", "healthy"]);
    assert!((0..9).all(|_| paper.round(&bad) == ["healthy", "healthy"]));
    let begun = paper.now;
    assert_eq!(paper.round(&bad), ["healthy", "ejected"]);
    assert_eq!(paper.now - begun, Duration::from_secs(60));
    assert_eq!(paper.shares(10), [10, 0]);

    // And as it is seen from outside.
    let (good, bad, tenth) = (Origin::start(), Origin::start(), Gate::new());
    let proxy = of(&[&good, &bad], BY_HAND);
    nine_fails_and_a_tenth(&proxy, &bad, &tenth);
    let shown = proxy.member("web", &bad.address());
    assert_eq!((&shown["verdict"], &shown["streak"]), (&"healthy".into(), &(-9).into()), "{shown}");
    let mark = proxy.mark();
    tenth.open();
    proxy.await_event(mark, &[("kind", "member"), ("member", &bad.address()), ("to", "unhealthy")]);
    assert_eq!(proxy.member("web", &bad.address())["standing"], "ejected");
    let lines = proxy.sample("/out", 10);
    assert_eq!(count(&lines, &good), 10);
}

/// A4: who is out is still probed, and one pass brings it back.
#[test]
fn whoever_is_out_is_probed_on_and_comes_back_with_one_pass() {
    let (good, bad, next) = (Origin::start(), Origin::start(), Gate::new());
    let proxy = of(&[&good, &bad], SOON);
    proxy.await_all_healthy();
    bad.when(When::probe(), fail());
    proxy.await_standing(&bad, "ejected");
    bad.await_probes(3);
    let mark = proxy.mark();
    // Whatever comes after the one pass comes later.
    bad.next_probes([pass(), fail().held_by(&next)]);
    proxy.await_event(mark, &[("member", &bad.address()), ("from", "unhealthy"), ("to", "healthy")]);
    proxy.await_standing(&bad, "healthy");
    assert_eq!(count(&proxy.sample("/back", 10), &bad), 5);
    next.open();
}

/// A5: a member that joins is probed before it gets traffic, by whatever way it comes: a reload, a name, a file.
#[test]
fn whoever_joins_gets_no_traffic_before_its_first_pass() {
    let (origin, first_answer, server) = (Origin::start_everywhere(), Gate::new(), NameServer::start());
    let at = |number: u8| format!("127.0.0.{number}:{}", origin.port());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("members.yaml");
    let list = |numbers: &[u8]| -> String { numbers.iter().map(|number| format!("- {}\n", at(*number))).collect() };
    std::fs::write(&file, list(&[2])).expect("the folder is ours");
    server.has("app.test", &["127.0.0.3"]);
    let name = format!("\"app.test:{}\"", origin.port());
    let config = |fixed: &[u8]| {
        let mut members: Vec<String> = fixed.iter().map(|number| format!("\"{}\"", at(*number))).collect();
        members.extend([format!("{{ file: \"{}\" }}", file.display()), name.clone()]);
        format!("{}{}", server.resolver(""), config_of(&members, &PRESET.replace("300ms", "20s")))
    };
    let proxy = Proxy::start(&config(&[1]));
    proxy.await_all_healthy();
    let load = Load::start(proxy.address(), 2, "/steady");

    let newcomers = [4, 5, 6];
    newcomers.iter().for_each(|n| origin.when(When::local(&format!("127.0.0.{n}")), pass().held_by(&first_answer)));
    std::fs::write(&file, list(&[2, 5])).expect("the folder is ours");
    server.has("app.test", &["127.0.0.3", "127.0.0.6"]);
    proxy.reload(&config(&[1, 4]));
    eventually("each is asked for the first time", || first_answer.waiting() == 3);
    for number in newcomers {
        let shown = proxy.member("web", &at(number));
        assert_eq!((&shown["verdict"], &shown["standing"]), (&"unknown".into(), &"unknown".into()), "{shown}");
    }
    load.await_each(20);
    assert_eq!(first_answer.came(), 3, "one of them got a request, or a second probe");
    first_answer.open();
    for number in newcomers {
        let ip = format!("127.0.0.{number}");
        eventually("it has its share once it passed", || {
            origin.traffic().iter().any(|seen| seen.local.to_string() == ip)
        });
    }
    load.finish().assert_all_ok();
}

/// A6: redirects are not followed, and 301, 302 and 307 are fails.
#[test]
fn a_redirect_is_a_fail_and_is_not_followed() {
    let moved = |status, to: &str| Answer::status(status).field(&format!("Location: {to}"));
    let rows = vec![
        ("301", moved(301, "https://same.example/healthz"), "status", "301"),
        ("302", moved(302, "/login"), "status", "/login"),
        ("307", moved(307, "/"), "status", "307"),
        ("308", moved(308, "/"), "status", "308"),
    ];
    let origin = samples("preset: app_service\nprobe: { path: /healthz, interval: 2s, timeout: 2s }", rows);
    assert!(origin.seen().iter().all(|seen| seen.target == "/healthz"), "somebody went after a redirect");
}

/// A7: `max_unhealthy_percent` is 1 to 100 and 50 by default: of 4 members with 3 failing 2 are out, and the other two, a
/// good one and a bad one, both serve.
#[test]
fn of_four_with_three_failing_two_are_out_and_two_serve() {
    let cap = |percent: u32| format!("{AS_IT_IS}\nmax_unhealthy_percent: {percent}");
    let member = ["\"10.0.0.1:80\"".to_owned()];
    assert_eq!(pool_of(&config_of(&member, AS_IT_IS)).rules.max_unhealthy_percent, 50);
    assert_eq!(
        [1, 100].map(|percent| pool_of(&config_of(&member, &cap(percent))).rules.max_unhealthy_percent),
        [1, 100]
    );
    for percent in [0, 101] {
        let said = problems(&config_of(&member, &cap(percent)));
        assert!(said.contains("write 1 to 100"), "{said}");
    }
    let origins = [Origin::start(), Origin::start(), Origin::start(), Origin::start()];
    let proxy = of(&origins.each_ref(), SOON);
    proxy.await_all_healthy();
    origins[..3].iter().for_each(|origin| origin.when(When::probe(), fail()));
    eventually("three are unhealthy", || proxy.events(&[("kind", "member"), ("to", "unhealthy")]).len() >= 3);
    proxy.await_mode("capped");
    let pool = proxy.pool("web");
    assert_eq!((&pool["ejected"], &pool["in_rotation"]), (&2.into(), &2.into()), "{pool}");
    let lines = proxy.sample("/two", 40);
    assert_eq!(count(&lines, &origins[3]), 20, "the good one");
    let mut bad: Vec<usize> = origins[..3].iter().map(|origin| count(&lines, origin)).collect();
    bad.sort_unstable();
    assert_eq!(bad, [0, 0, 20], "one of the bad ones");
}

/// A8: when all fail none is out.
#[test]
fn nobody_is_out_when_all_fail() {
    let origins = [Origin::start(), Origin::start(), Origin::start(), Origin::start()];
    let proxy = of(&origins.each_ref(), SOON);
    proxy.await_all_healthy();
    origins.iter().for_each(|origin| origin.when(When::probe(), fail()));
    proxy.await_mode("fallback");
    let pool = proxy.pool("web");
    assert_eq!((&pool["ejected"], &pool["in_rotation"]), (&0.into(), &4.into()), "{pool}");
    let lines = proxy.sample("/all", 40);
    assert_eq!(origins.each_ref().map(|origin| count(&lines, origin)), [10; 4]);
}

/// A9: a pool of one is never emptied, yet its health is tracked.
#[test]
fn a_pool_of_one_is_never_emptied_and_its_health_is_told() {
    let only = Origin::start();
    let proxy = of(&[&only], SOON);
    proxy.await_standing(&only, "healthy");
    let mark = proxy.mark();
    only.when(When::probe(), fail());
    proxy.await_event(mark, &[("member", &only.address()), ("to", "unhealthy"), ("reason", "status")]);
    let shown = proxy.member("web", &only.address());
    assert_eq!((&shown["verdict"], &shown["last_probe"]["result"]), (&"unhealthy".into(), &"fail".into()), "{shown}");
    assert_eq!(proxy.pool("web")["ejected"], 0);
    let lines = proxy.sample("/only", 5);
    assert!(lines.iter().all(|line| line.json["status"] == 200 && line.tried() == [only.address()]));
    let mark = proxy.mark();
    only.when(When::probe(), pass());
    proxy.await_event(mark, &[("member", &only.address()), ("to", "healthy")]);
}

/// A10: a cap over all pools per 12 hours, ten unless written.
#[test]
fn twelve_pools_together_lose_ten_members_within_twelve_hours() {
    let keys = format!("{AS_IT_IS}\n    remediation: {{ command: [/bin/true] }}").replace("\nprobe", "\n    probe");
    let pool = |n: u8| format!("  p{n}:\n    members: [\"10.0.{n}.1:80\", \"10.0.{n}.2:80\"]\n    {keys}\n");
    let pools: String = (1..=12).map(pool).collect();
    let config = understood(&format!("pools:\n{pools}routes: [{{ pool: p1 }}]\n"));
    let mut papers: Vec<OnPaper> = config.pools.values().cloned().map(OnPaper::of_pool).collect();
    let (hour, noon) = (Duration::from_secs(3600), Duration::from_secs(1_800_000_000));
    let (mut ward, mut replaced) = (Ward::new(Ledger::new(Duration::ZERO, noon)), Vec::new());
    papers.iter_mut().for_each(|paper| drop(paper.round(&[passed(1), passed(1)])));
    let last_pass = papers[0].now;
    while papers[0].now < last_pass + hour * 24 {
        papers.iter_mut().for_each(|paper| drop(paper.round(&[failed(), failed()])));
        let (now, patients): (_, Vec<_>) = (papers[0].now, papers.iter().flat_map(OnPaper::patients).collect());
        let (turns, _) = ward.look(now, noon + now, &patients, config.max_global);
        let starts = turns.iter().filter(|turn| matches!(turn, Turn::Start(_)));
        replaced.extend(starts.map(|_| now - last_pass));
    }
    // Each pool has a member that is due after the first hour, and room for it.
    assert_eq!(replaced, [vec![hour; 10], vec![hour * 13; 10]].concat());
}

/// A10: pools without probes do not count.
#[test]
fn a_pool_without_probes_keeps_no_machine_from_being_replaced() {
    let machine = Origin::start();
    let keys = SOON.replace('\n', "\n    ");
    let probed = format!(
        "  web:\n    members: [{machine}]\n    {keys}\n    remediation: {{ after: 3s, command: [/bin/cat] }}\n"
    );
    let unprobed = format!("  other:\n    members: [{machine}]\n    probe: off\n");
    let proxy = Proxy::start(&format!("pools:\n{probed}{unprobed}routes: [{{ pool: web }}]\n"));
    machine.when(When::probe(), fail());
    proxy.await_event(0, &[("kind", "remediation"), ("member", &machine.address()), ("to", "done")]);
    assert!(proxy.events(&[("kind", "remediation"), ("to", "spared")]).is_empty());
}

/// A11: the probe can prove who it is: a header, `x-ms-auth-internal-token`, whose value is base64(SHA-256(secret)).
#[test]
fn a_probe_proves_who_it_is_by_the_hash_of_a_secret() {
    let (app, stranger) = (Origin::start(), Origin::start());
    let keys = SOON.replace("probe: {", "probe: { auth: { secret: \"${HEALTH_SECRET}\" },");
    let config = config_of(&[app.to_string(), stranger.to_string()], &keys);
    let proxy = Proxy::start_with(&config, &[("HEALTH_SECRET", "correct horse battery staple")]);
    proxy.await_all_healthy();
    // As `printf %s "$SECRET" | openssl dgst -sha256 -binary | base64` has it.
    let proof = "xLvLH77JnWW/WdhcjLYu4tuWPw/hBvSD2a+nO9Tjmoo=";
    for seen in app.probes() {
        assert_eq!(seen.fields("x-ms-auth-internal-token"), [proof], "{:?}", seen.lines);
    }
    // It is the prober's alone.
    proxy.sample("/traffic", 4);
    assert!(app.traffic().iter().all(|seen| seen.field("x-ms-auth-internal-token").is_none()));
}

/// A12: probes go over HTTPS where the pool is HTTPS, else over HTTP.
#[test]
fn probes_go_over_https_where_the_pool_does_and_else_over_http() {
    let authority = Authority::named("Ours");
    let (secure, plain) = (TlsOrigin::start(authority.paper(&["app.test"]).server()), Origin::start());
    let keys = PRESET.replace('\n', "\n    ");
    let config = format!(
        "pools:\n  web:\n    members: [{}]\n    upstream: {{ tls: {{ ca: {} }} }}\n    {keys}\n  plain:\n    members: [{plain}]\n    {keys}\nroutes: [{{ pool: web }}]\n",
        secure.known_as("app.test"),
        authority.ca(),
    );
    let proxy = Proxy::start(&config);
    eventually("both pass", || {
        let verdict = |pool: &str, member: &str| proxy.member(pool, member)["verdict"] == "healthy";
        verdict("web", &secure.address()) && verdict("plain", &plain.address())
    });
    assert_eq!(secure.greetings()[0].sni.as_deref(), Some("app.test"));
    assert!(secure.origin.probe_count() >= 1 && plain.probe_count() >= 1);
    assert!(proxy.member("web", &secure.address())["last_probe"]["tls_ms"].is_number());
    assert!(proxy.member("plain", &plain.address())["last_probe"]["tls_ms"].is_null());
}

/// A10: a member failing for 1 hour without a break is replaced: at most 1 an hour and 3 a day; if all members fail none leaves
/// the rotation, but replacement still happens.
#[test]
fn whoever_fails_for_an_hour_is_replaced_once_an_hour_and_three_times_a_day() {
    let mut pool = on_paper(4, &format!("{AS_IT_IS}\nremediation: {{ command: [/bin/true] }}"));
    let noon = Duration::from_secs(1_800_000_000);
    let mut ward = Ward::new(Ledger::new(Duration::ZERO, noon));
    let mut started = Vec::new();
    pool.round(&[passed(1), passed(1), passed(1), passed(1)]);
    for _ in 0..26 * 60 {
        let standings = pool.round(&[failed(), failed(), failed(), failed()]);
        let minute = pool.now.as_secs() / 60;
        assert!(minute < 11 || standings == ["fallback"; 4], "none leaves the rotation: {standings:?}");
        let (turns, _) = ward.look(pool.now, noon + pool.now, &pool.patients(), 10);
        let starts = turns.iter().filter(|turn| matches!(turn, Turn::Start(_)));
        started.extend(starts.map(|_| minute));
    }
    // Everybody passed last in the first minute. 24 hours after the first replacement there is room for one more.
    assert_eq!(started, [61, 121, 181, 61 + 24 * 60, 121 + 24 * 60]);
}

/// A10: and a cap over all pools; a machine that serves several probed pools is replaced only when it fails in all of them.
#[test]
fn a_machine_is_replaced_only_when_it_fails_in_all_its_pools_and_within_a_cap_over_all() {
    let origin = Origin::start();
    let pool = |name: &str, member: &str| {
        let keys = SOON.replace("/healthz", &format!("/{name}")).replace('\n', "\n    ");
        let rule = "remediation: { after: 3s, command: [/bin/cat] }";
        format!("  {name}:\n    members: [{member}]\n    {keys}\n    {rule}\n")
    };
    let (alone, shared) = (Origin::start(), origin.to_string());
    let pools = pool("api", &shared) + &pool("jobs", &alone.to_string()) + &pool("web", &shared);
    let proxy = Proxy::start(&format!("remediation: {{ max_global: 1 }}\npools:\n{pools}routes: [{{ pool: web }}]\n"));
    // Both are on 127.0.0.1, which is one machine.
    for name in ["/web", "/api"] {
        origin.when(When::path(name), fail());
    }
    let of_web = |to| [("kind", "remediation"), ("pool", "web"), ("to", to)];
    let spared = proxy.await_event(0, &of_web("spared"));
    assert!(spared.text("message").contains("serves pool jobs too"), "{}", spared.raw);
    alone.answer(fail());
    let done = proxy.await_event(0, &[("kind", "remediation"), ("to", "done")]);
    assert!(done.text("detail").contains("\"shared_with\":["), "{}", done.raw);
    // It is replaced once for all three, which is all that the cap allows.
    let full = proxy.await_event(0, &[("kind", "remediation"), ("to", "deferred")]);
    assert!(["global", "day", "hour"].contains(&full.text("reason")), "{}", full.raw);
    let view = proxy.admin_get("/api/v1/remediation").json();
    assert_eq!((&view["global"]["used"], &view["global"]["limit"]), (&1.into(), &1.into()), "{view}");
    assert_eq!(proxy.events(&[("kind", "remediation"), ("to", "started")]).len(), 1);
}

/// A13: a list of instances with their status, and by hand on one: take out, bring back.
#[test]
fn members_are_listed_with_their_status_and_taken_out_and_brought_back_by_hand() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = of(&[&a, &b], SOON);
    proxy.await_all_healthy();
    b.when(When::probe(), fail());
    proxy.await_standing(&b, "ejected");
    let listed = proxy.pool("web")["members"].clone();
    let listed: Vec<(&str, &str)> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|member| (member["address"].as_str().unwrap_or_default(), member["standing"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(listed, [(&*a.address(), "healthy"), (&*b.address(), "ejected")]);
    b.when(When::probe(), pass());
    proxy.await_all_healthy();

    let say = |word: &str| {
        let reply = proxy.admin_post(&format!("/api/v1/pools/web/members/{}/{word}", a.address()), &[]);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["standing"].clone()
    };
    assert_eq!(say("drain"), "draining");
    assert_eq!(count(&proxy.sample("/drained", 10), &b), 10);
    assert_eq!(say("disable"), "disabled");
    assert_eq!(count(&proxy.sample("/disabled", 10), &b), 10);
    say("enable");
    proxy.await_standing(&a, "healthy");
    assert_eq!(count(&proxy.sample("/enabled", 10), &a), 5);
}

/// A13: by hand on one: replace.
#[test]
fn a_member_is_replaced_by_hand() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = of(&[&a, &b], &format!("{SOON}\nremediation: {{ command: [/bin/cat] }}"));
    proxy.await_all_healthy();
    let begun = proxy.admin_post(&format!("/api/v1/pools/web/members/{}/replace", a.address()), &[]);
    assert_eq!(begun.status, 200, "{}", begun.text());
    let done = proxy.await_event(0, &[("kind", "remediation"), ("member", &a.address()), ("to", "done")]);
    assert!(done.text("detail").contains("\"by\":\"hand\""), "the command says what it was told: {}", done.raw);
}

/// A14: on becoming unhealthy, diagnostics can be collected and kept.
#[test]
fn what_was_wrong_when_a_member_became_unhealthy_is_kept() {
    let (good, bad) = (Origin::start(), Origin::start());
    let config = config_of(&[good.to_string(), bad.to_string()], SOON);
    let proxy = Proxy::start(&format!("diagnostics: {{ path: kept }}\n{config}"));
    proxy.await_all_healthy();
    bad.when(When::probe(), Answer::status(500).body("database: no route to host"));
    proxy.await_standing(&bad, "ejected");
    let listed = || proxy.admin_get("/api/v1/diagnostics").json()["diagnostics"].clone();
    eventually("one is kept", || listed().as_array().is_some_and(|kept| kept.len() == 1));
    let id = listed()[0]["id"].as_str().expect("an id").to_owned();
    let kept = proxy.admin_get(&format!("/api/v1/diagnostics/{id}")).json();
    assert_eq!((&kept["member"], &kept["status"]), (&bad.address().into(), &500.into()), "{kept}");
    assert_eq!(kept["body"]["text"], "database: no route to host", "{kept}");
    assert!(kept["request"]["text"].as_str().is_some_and(|text| text.starts_with("GET /healthz HTTP/1.1")), "{kept}");
    let files = std::fs::read_dir(proxy.dir().join("kept")).expect("the folder is there");
    assert_eq!(files.count(), 1);
}

/// A15: health over time, as metrics; an instance shows as failing only once the rule says that it is unhealthy.
#[test]
fn metrics_show_a_member_as_failing_only_once_the_rule_says_so() {
    let (good, bad, tenth) = (Origin::start(), Origin::start(), Gate::new());
    let proxy = of(&[&good, &bad], BY_HAND);
    nine_fails_and_a_tenth(&proxy, &bad, &tenth);
    let of_bad = |metric: &str, more: &str| format!("{metric}{{pool=\"web\",member=\"{}\"{more}}}", bad.address());
    let turned = || of_bad("member_transitions_total", ",to=\"unhealthy\",reason=\"status\"");
    let nine = Scrape::of(&proxy);
    assert_eq!(nine.find(&of_bad("member_up", "")), Some(1.0));
    assert_eq!(nine.value(&of_bad("member_standing", ",standing=\"healthy\"")), 1.0);
    assert_eq!((nine.value(&turned()), nine.value("pool_ejected{pool=\"web\"}")), (0.0, 0.0));
    assert_eq!(nine.value(&of_bad("probe_total", ",result=\"fail\",reason=\"status\"")), 9.0, "each is counted");
    tenth.open();
    proxy.await_standing(&bad, "ejected");
    let ten = Scrape::of(&proxy);
    assert_eq!(ten.find(&of_bad("member_up", "")), Some(0.0));
    assert_eq!((ten.value(&turned()), ten.value("pool_ejected{pool=\"web\"}")), (1.0, 1.0));
    let others = |scrape: &Scrape| scrape.value(&format!("member_up{{pool=\"web\",member=\"{}\"}}", good.address()));
    assert_eq!((others(&nine), others(&ten)), (1.0, 1.0));
}

/// A15: alerts. Told when nobody is healthy, and when that is over.
#[test]
fn who_is_to_be_alerted_is_told_of_a_fallback_and_of_its_end() {
    let (a, b, pager) = (Origin::start(), Origin::start(), Origin::start());
    let config = config_of(&[a.to_string(), b.to_string()], SOON);
    let hook = format!("{{ url: \"http://{}/hook\", secret: open-sesame }}", pager.address());
    let proxy = Proxy::start(&format!("alerts: [{{ name: pager, webhook: {hook}, on: [fallback] }}]\n{config}"));
    proxy.await_all_healthy();
    assert_eq!(pager.seen().len(), 0, "nothing is wrong");
    [&a, &b].iter().for_each(|origin| origin.answer(fail()));
    let heard = || pager.seen().iter().filter(|seen| seen.complete).count();
    eventually("it is told of", || heard() == 1);
    a.answer(pass());
    eventually("its end is told", || heard() == 2);
    let told = |at: usize| serde_json::from_slice::<serde_json::Value>(&pager.seen()[at].body).expect("json");
    for (at, status) in ["firing", "resolved"].into_iter().enumerate() {
        let notice = told(at);
        assert_eq!((&notice["status"], &notice["key"]), (&status.into(), &"fallback/pool/web".into()), "{notice}");
    }
    assert_eq!(told(0)["episode"], told(1)["episode"]);
}

/// A16: probes never appear in the access log, whatever they are answered.
#[test]
fn probes_are_never_in_the_access_log() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = of(&[&a, &b], PRESET);
    proxy.await_all_healthy();
    b.next_probes([
        fail(),
        Answer::close(),
        Answer::reset(),
        Answer::hang(),
        Answer::status(302),
        Answer::bytes("?\r\n\r\n"),
    ]);
    b.await_next_probes();
    assert_eq!(proxy.admin_post(&format!("/api/v1/pools/web/members/{}/probe", a.address()), &[]).status, 200);
    // A client may ask for the very same path, in the prober's name: that is a request.
    let agent = a.probes()[0].field("user-agent").expect("it names itself").to_owned();
    proxy.request("GET", "/healthz", &[&format!("User-Agent: {agent}")], "");
    a.await_probes(3);
    proxy.settle_access_log("/sentinel");
    let paths: Vec<String> = proxy.access_log().iter().map(|line| line.text("path").to_owned()).collect();
    assert_eq!(paths, ["/healthz", "/sentinel"]);
}

/// A17: "waiting for a health response" is a state of its own.
#[test]
fn to_wait_for_a_first_answer_is_a_state_of_its_own() {
    let (a, b, first) = (Origin::start(), Origin::start(), Gate::new());
    [&a, &b].iter().for_each(|origin| origin.answer(pass().held_by(&first)));
    let keys = format!("{}\ninitial_wait: 20s", PRESET.replace("300ms", "20s"));
    let proxy = of(&[&a, &b], &keys);
    eventually("both are being asked", || first.waiting() == 2);
    let pool = proxy.pool("web");
    assert_eq!(pool["mode"], "waiting", "{pool}");
    for origin in [&a, &b] {
        let shown = proxy.member("web", &origin.address());
        assert_eq!((&shown["verdict"], &shown["standing"]), (&"unknown".into(), &"unknown".into()), "{shown}");
        assert!(shown["last_probe"].is_null() && shown["proven"] == false, "{shown}");
        let waits = format!("member_standing{{pool=\"web\",member=\"{}\",standing=\"unknown\"}}", origin.address());
        assert_eq!(Scrape::of(&proxy).value(&waits), 1.0);
    }
    first.open();
    proxy.await_all_healthy();
    assert_eq!(proxy.pool("web")["mode"], "normal");
}

/// A18: several applications on one machine are judged each on its own.
#[test]
fn applications_on_one_machine_are_judged_each_for_itself() {
    let (machine, other) = (Origin::start(), Origin::start());
    let pool = |name: &str| {
        let keys = SOON.replace("/healthz", &format!("/{name}")).replace('\n', "\n    ");
        format!("  {name}:\n    members: [{machine}, {other}]\n    {keys}\n")
    };
    let routes = "routes: [{ path: /shop, pool: shop }, { path: /blog, pool: blog }]\n";
    let proxy = Proxy::start(&format!("pools:\n{}{}{routes}", pool("shop"), pool("blog")));
    let verdict = |pool: &str| proxy.member(pool, &machine.address())["verdict"].clone();
    eventually("both are healthy there", || verdict("shop") == "healthy" && verdict("blog") == "healthy");
    machine.when(When::path("/blog"), fail());
    eventually("one fails", || verdict("blog") == "unhealthy");
    assert_eq!(proxy.member("blog", &machine.address())["standing"], "ejected");
    machine.await_probes(6);
    let shown = proxy.member("shop", &machine.address());
    assert_eq!((&shown["verdict"], &shown["standing"]), (&"healthy".into(), &"healthy".into()), "{shown}");
    assert!(shown["streak"].as_i64().is_some_and(|streak| streak > 1), "{shown}");
    assert_eq!(count(&proxy.sample("/shop", 10), &machine), 5);
    assert_eq!(count(&proxy.sample("/blog", 10), &machine), 0);
}
