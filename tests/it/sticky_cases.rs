//! Sticky sessions: a client stays with its member as long as that may serve, and with the next one when it may not.

use std::fs;

use serde_json::Value;

use crate::harness::client::{Reply, request};
use crate::harness::process::run;
use crate::harness::proxy::{PROBE, config_of, pool_config};
use crate::harness::{Answer, Gate, Line, Origin, Proxy, Scrape, When, eventually};

const SECRET: &str = "sticky: { cookie: seat, secret: \"a secret of these tests\" }";
/// No probe after the first finds anything out.
const BLIND: &str = "probe: { path: /healthz, interval: 1h, timeout: 500ms }";

/// What the answer has the client send from now on.
#[track_caller]
fn set(reply: &Reply) -> String {
    let set = reply.fields("set-cookie");
    assert_eq!(set.len(), 1, "not one Set-Cookie: {:?}", reply.lines);
    set[0].split(';').next().expect("a pair").to_owned()
}

/// One request with these cookies, which has to go well.
#[track_caller]
fn ask(proxy: &Proxy, path: &str, cookies: &str) -> (Reply, Line) {
    let field = format!("Cookie: {cookies}");
    let fields: &[&str] = if cookies.is_empty() { &[] } else { &[&field] };
    let reply = proxy.request("GET", path, fields, "");
    assert_eq!(reply.status, 200, "{path}: {:?}", reply.lines);
    (reply, proxy.access(path))
}

/// A client of this member, by its cookie.
#[track_caller]
fn client_of(proxy: &Proxy, origin: &Origin, base: &str) -> String {
    (0..100)
        .find_map(|n| {
            let (reply, line) = ask(proxy, &format!("{base}/{n}"), "");
            (line.tried() == [origin.address()]).then(|| set(&reply))
        })
        .expect("one of a hundred goes there")
}

/// The client goes on with this member, and needs no other cookie.
#[track_caller]
fn stays(proxy: &Proxy, path: &str, cookie: &str, origin: &Origin) {
    let (reply, line) = ask(proxy, path, cookie);
    assert_eq!(
        (line.tried(), line.json["lb"]["reason"].as_str()),
        (vec![&*origin.address()], Some("sticky")),
        "{}",
        line.raw
    );
    assert_eq!(reply.fields("set-cookie"), Vec::<&str>::new());
}

/// The client is told in this answer that it belongs to another member, after these were tried; its new cookie.
#[track_caller]
fn moves(proxy: &Proxy, path: &str, cookie: &str, tried: &[&Origin]) -> String {
    let (reply, line) = ask(proxy, path, cookie);
    let addresses: Vec<String> = tried.iter().map(|origin| origin.address()).collect();
    assert_eq!(line.tried(), addresses, "{}", line.raw);
    assert_ne!(line.json["lb"]["reason"], "sticky");
    let moved = set(&reply);
    assert_ne!(moved, cookie);
    moved
}

#[track_caller]
fn order(proxy: &Proxy, origin: &Origin, word: &str) {
    let path = format!("/api/v1/pools/web/members/{}/{word}", origin.address());
    assert_eq!(proxy.admin_post(&path, &[]).status, 200);
}

fn cookies_set(proxy: &Proxy, why: &str) -> f64 {
    Scrape::of(proxy).value(&format!("sticky_cookies_total{{pool=\"web\",reason=\"{why}\"}}"))
}

/// Case C29 (a): the member has died, and no probe has noticed yet.
#[test]
fn a_retry_elsewhere_binds_the_client_there_in_the_same_answer() {
    let [first, second] = [Origin::start(), Origin::start()];
    let members = [first.to_string(), second.to_string()];
    let proxy = Proxy::start(&config_of(&members, &format!("{BLIND}\n{SECRET}")));
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    stays(&proxy, "/before", &cookie, &first);
    first.stop();
    let moved = moves(&proxy, "/dead", &cookie, &[&first, &second]);
    assert_eq!(cookies_set(&proxy, "failed"), 1.0);
    stays(&proxy, "/after", &moved, &second);
    first.start_again();
    for n in 0..10 {
        stays(&proxy, &format!("/back/{n}"), &moved, &second);
    }
}

/// Case C29 (b), (d): it was ejected, and comes back.
#[test]
fn an_ejected_members_client_moves_without_an_attempt_and_does_not_move_back() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], SECRET);
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    first.when(When::probe(), Answer::status(503));
    proxy.await_standing(&first, "ejected");
    let moved = moves(&proxy, "/ejected", &cookie, &[&second]);
    assert_eq!(cookies_set(&proxy, "out"), 1.0);
    first.when(When::probe(), Answer::status(200));
    proxy.await_standing(&first, "healthy");
    for n in 0..10 {
        stays(&proxy, &format!("/stays/{n}"), &moved, &second);
    }
    // Whoever has slept through all of it finds its member again.
    stays(&proxy, "/slept", &cookie, &first);
}

/// Case C29 (c): it is no longer in the configuration.
#[test]
fn a_removed_members_client_moves_without_an_attempt_and_does_not_move_back() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], SECRET);
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    proxy.reload(&pool_config(&[&second], SECRET));
    let moved = moves(&proxy, "/removed", &cookie, &[&second]);
    assert_eq!(cookies_set(&proxy, "removed"), 1.0);
    proxy.reload(&pool_config(&[&first, &second], SECRET));
    proxy.await_all_healthy();
    for n in 0..10 {
        stays(&proxy, &format!("/stays/{n}"), &moved, &second);
    }
}

/// Case C29: a tampered cookie is no cookie, and neither is another pool's or one that is too old.
#[test]
fn a_cookie_that_is_not_ours_or_too_old_is_none() {
    let [first, second] = [Origin::start(), Origin::start()];
    let pool = |name: &str, keys: &str| format!("  {name}: {{ members: [{first}, {second}], {PROBE}, {keys} }}\n");
    let short = SECRET.replace("seat,", "seat, ttl: 1s,");
    let proxy = Proxy::start(&format!(
        "pools:\n{}{}{}routes: [{{ pool: web }}, {{ path: /other, pool: other }}, {{ path: /short, pool: short }}]\n",
        pool("web", SECRET),
        pool("other", SECRET),
        pool("short", &short),
    ));
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    let other = client_of(&proxy, &first, "/other");
    let last = if cookie.ends_with('A') { "B" } else { "A" };
    let tampered = format!("{}{last}", &cookie[..cookie.len() - 1]);
    let before = cookies_set(&proxy, "invalid");
    let odd = [tampered.as_str(), &other, "seat=", "seat=\u{fffd}%00\"", "seat=10.0.0.1:80"];
    for (n, odd) in odd.into_iter().enumerate() {
        let (reply, line) = ask(&proxy, &format!("/odd/{n}"), odd);
        assert_eq!(line.json["lb"]["reason"], "balanced", "{odd}");
        set(&reply);
    }
    assert_eq!(cookies_set(&proxy, "invalid") - before, odd.len() as f64);
    // Of two the one that is ours counts.
    stays(&proxy, "/both", &format!("{tampered}; {cookie}"), &first);

    let short = client_of(&proxy, &first, "/short");
    let mut n = 0;
    eventually("it is too old", || {
        n += 1;
        let (reply, line) = ask(&proxy, &format!("/short/old/{n}"), &short);
        line.json["lb"]["reason"] == "balanced" && reply.fields("set-cookie").len() == 1
    });
    let expired = Scrape::of(&proxy).value("sticky_cookies_total{pool=\"short\",reason=\"expired\"}");
    assert!(expired >= 1.0, "{expired}");
}

#[test]
fn a_client_that_comes_again_in_time_keeps_its_member_for_as_long_as_it_likes() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], &SECRET.replace("seat,", "seat, ttl: 4s,"));
    proxy.await_all_healthy();
    let mut cookie = client_of(&proxy, &first, "/find");
    let (mut n, mut renewed) = (0, 0);
    eventually("it was renewed twice", || {
        n += 1;
        let (reply, line) = ask(&proxy, &format!("/again/{n}"), &cookie);
        assert_eq!(line.json["lb"]["reason"], "sticky", "{}", line.raw);
        assert_eq!(line.tried(), [first.address()]);
        if !reply.fields("set-cookie").is_empty() {
            (cookie, renewed) = (set(&reply), renewed + 1);
        }
        renewed == 2
    });
    assert_eq!(cookies_set(&proxy, "renewed"), 2.0);
}

#[test]
fn the_cookie_is_between_the_client_and_us_and_no_cache_shares_its_answer() {
    let origin = Origin::start();
    origin.when(
        When::traffic(),
        Answer::status(200).field("Cache-Control: public, max-age=60").field("Set-Cookie: app=1"),
    );
    let config = pool_config(&[&origin], "sticky: { secret: \"a secret of these tests\" }");
    let proxy = Proxy::start(&format!("trusted_proxies: [\"127.0.0.0/8\"]\n{config}"));
    proxy.await_all_healthy();
    let reply = proxy.get("/first");
    let [app, ours] = reply.fields("set-cookie")[..] else { panic!("{:?}", reply.lines) };
    let value = ours.strip_prefix("pulsegate-web=").expect("the pool's own").split(';').next().expect("a value");
    assert_eq!((app, value.len()), ("app=1", 60));
    assert_eq!(&ours["pulsegate-web=".len() + 60..], "; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax");
    assert!(!ours.contains(&origin.port().to_string()) && !ours.contains("127"), "{ours}");
    assert_eq!(reply.fields("cache-control"), ["private, max-age=60"]);
    let secure = proxy.request("GET", "/secure", &["X-Forwarded-Proto: https"], "");
    assert!(secure.fields("set-cookie")[1].ends_with("; SameSite=Lax; Secure"), "{:?}", secure.lines);

    let cookies = format!("Cookie: a=1; pulsegate-web={value}; b=\"2\"");
    let reply = proxy.request("GET", "/second", &[&cookies, "Cookie: c=3"], "");
    assert_eq!(
        (reply.fields("set-cookie"), reply.fields("cache-control")),
        (vec!["app=1"], vec!["public, max-age=60"])
    );
    proxy.request("GET", "/third", &[&format!("Cookie: pulsegate-web={value}")], "");
    let seen = |target: &str| {
        let seen = origin.traffic().into_iter().find(|seen| seen.target == target).expect("it was asked");
        seen.lines.iter().filter(|line| line.to_ascii_lowercase().starts_with("cookie")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(seen("/second"), ["Cookie: a=1; b=\"2\"", "Cookie: c=3"]);
    assert_eq!(seen("/third"), Vec::<String>::new());
}

/// Case C71 (a), (b), of a member: drained it keeps its clients and gets no others, disabled it has none.
#[test]
fn a_drained_member_keeps_its_clients_and_a_disabled_one_loses_them() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], SECRET);
    proxy.await_all_healthy();
    let clients: Vec<String> = (0..100)
        .map(|n| ask(&proxy, &format!("/come/{n}"), ""))
        .filter_map(|(reply, line)| (line.tried() == [first.address()]).then(|| set(&reply)))
        .collect();
    assert_eq!(clients.len(), 50);
    let gate = Gate::new();
    first.when(When::path("/download"), Answer::status(200).body("whole").held_by(&gate));
    let downloads: Vec<_> = (0..10)
        .map(|n| {
            let (address, field) = (proxy.address(), format!("Cookie: {}", clients[n]));
            std::thread::spawn(move || request(address, "GET", "/download", &[&field], ""))
        })
        .collect();
    eventually("all of them run", || gate.waiting() == 10);

    order(&proxy, &first, "drain");
    let all_stay = |round: &str| {
        for (n, client) in clients.iter().enumerate() {
            stays(&proxy, &format!("/{round}/{n}"), client, &first);
        }
        for n in 0..10 {
            let (_, line) = ask(&proxy, &format!("/{round}/new/{n}"), "");
            assert_eq!(line.tried(), [second.address()], "{}", line.raw);
        }
    };
    all_stay("drained");
    assert_eq!(proxy.access("/drained/0").attempts()[0]["standing"], "draining");
    // A probe fails now and then, and the file is read again.
    first.next_probes([Answer::status(503)]);
    first.await_next_probes();
    proxy.reload(&pool_config(&[&first, &second], &format!("{SECRET}\ndeadline: 60s")));
    all_stay("flapped");
    // Nobody else is well: those who are not bound to it do not come all the same (case C10).
    second.when(When::probe(), Answer::status(503));
    proxy.await_mode("fallback");
    all_stay("fallback");
    second.when(When::probe(), Answer::status(200));
    proxy.await_mode("normal");

    order(&proxy, &first, "disable");
    let moved: Vec<String> = (0..50).map(|n| moves(&proxy, &format!("/moved/{n}"), &clients[n], &[&second])).collect();
    gate.open();
    for download in downloads {
        let reply = download.join().expect("an answer");
        assert_eq!((reply.text().as_str(), reply.complete), ("whole", true));
    }
    order(&proxy, &first, "enable");
    proxy.await_all_healthy();
    for (n, client) in moved.iter().enumerate() {
        stays(&proxy, &format!("/enabled/{n}"), client, &second);
    }
}

#[test]
fn a_drained_member_that_falls_ill_loses_its_clients() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], SECRET);
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    order(&proxy, &first, "drain");
    stays(&proxy, "/drained", &cookie, &first);
    first.when(When::probe(), Answer::status(503));
    eventually("it is found ill", || proxy.member("web", &first.address())["verdict"] == "unhealthy");
    let moved = moves(&proxy, "/ill", &cookie, &[&second]);
    stays(&proxy, "/after", &moved, &second);
}

#[test]
fn a_full_members_client_is_lent_to_another_and_comes_back() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], &format!("{SECRET}\neach_member: {{ max_in_flight: 1 }}"));
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    let gate = Gate::new();
    first.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let (address, field) = (proxy.address(), format!("Cookie: {cookie}"));
    let held = std::thread::spawn(move || request(address, "GET", "/held", &[&field], ""));
    eventually("it is held", || gate.waiting() == 1);
    let (reply, line) = ask(&proxy, "/lent", &cookie);
    assert_eq!(line.tried(), [second.address()], "{}", line.raw);
    assert_eq!((reply.fields("set-cookie"), &line.json["lb"]["reason"]), (vec![], &Value::from("balanced")));
    gate.open();
    assert_eq!(held.join().expect("an answer").status, 200);
    // The client has its answer a moment before the member has its seat back.
    eventually("it has room again", || proxy.member("web", &first.address())["in_flight"] == 0);
    stays(&proxy, "/back", &cookie, &first);
}

#[test]
fn each_pool_of_a_route_binds_its_own_clients_and_finds_them_again() {
    let origins: [Origin; 4] = std::array::from_fn(|_| Origin::start());
    let [a, b, c, d] = &origins;
    let sticky = "sticky: { secret: \"a secret of these tests\" }";
    let proxy = Proxy::start(&format!(
        "pools:\n  web: {{ members: [{a}, {b}], {PROBE}, {sticky} }}\n  us: {{ members: [{c}, {d}], {PROBE}, {sticky} }}\n\
         routes: [{{ pools: [web, us], failback_delay: 100ms }}]\n"
    ));
    proxy.await_all_healthy();
    let home = client_of(&proxy, b, "/find");
    [a, b].iter().for_each(|origin| origin.when(When::probe(), Answer::status(503)));
    let mut n = 0;
    let mut away = String::new();
    eventually("the other pool serves", || {
        n += 1;
        let (reply, line) = ask(&proxy, &format!("/away/{n}"), &home);
        let is_away = line.text("pool") == "us";
        if is_away {
            away = set(&reply);
        }
        is_away
    });
    assert!(home.starts_with("pulsegate-web=") && away.starts_with("pulsegate-us="), "{home} {away}");
    // As a browser does it.
    let both = format!("{home}; {away}");
    let (reply, line) = ask(&proxy, "/both", &both);
    assert_eq!((reply.fields("set-cookie"), &line.json["lb"]["reason"]), (vec![], &Value::from("sticky")));
    assert!(origins[2..].iter().flat_map(Origin::traffic).all(|seen| !seen.lines.concat().contains("pulsegate-us=")));
    [a, b].iter().for_each(|origin| origin.when(When::probe(), Answer::status(200)));
    eventually("it is back where it was", || {
        n += 1;
        let (_, line) = ask(&proxy, &format!("/back/{n}"), &both);
        line.text("pool") == "web" && line.tried() == [b.address()] && line.json["lb"]["reason"] == "sticky"
    });
}

#[test]
fn a_secret_outlives_the_process_and_changes_hands_and_is_shown_to_nobody() {
    const OLD: &str = "the-secret-of-yesterday";
    const NEW: &str = "the-secret-of-tomorrow";
    let [first, second] = [Origin::start(), Origin::start()];
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    fs::write(&file, format!("{OLD}\n")).expect("written");
    let config = |sticky: &str| pool_config(&[&first, &second], &format!("sticky: {{ cookie: seat, {sticky} }}"));
    let by_file = config(&format!("secret_file: {}", file.display()));
    let env = [("OLD", OLD), ("NEW", NEW), ("PULSEGATE_LOG", "trace")];
    let one = Proxy::start_with(&by_file, &env);
    one.await_all_healthy();
    let cookie = client_of(&one, &first, "/find");
    // Another process, with the same secret from elsewhere.
    let other = Proxy::start_with(&config("secret: \"${OLD}\""), &env);
    other.await_all_healthy();
    stays(&other, "/other", &cookie, &first);
    // A new secret beside the old one: the cookie holds, and is signed anew.
    other.reload(&config("secret: \"${NEW}\", previous_secret: \"${OLD}\""));
    let (reply, line) = ask(&other, "/turned", &cookie);
    assert_eq!((line.tried(), &line.json["lb"]["reason"]), (vec![&*first.address()], &Value::from("sticky")));
    let renewed = set(&reply);
    other.reload(&config("secret: \"${NEW}\""));
    stays(&other, "/new", &renewed, &first);
    let (reply, line) = ask(&other, "/old", &cookie);
    assert!(line.json["lb"]["reason"] == "balanced" && set(&reply) != cookie);
    // A file that changes is taken as the configuration is, and one that is no good is not.
    let mark = one.mark();
    fs::write(&file, NEW).expect("written");
    one.await_log("a reload", mark, |line| line.text("kind") == "reload");
    stays(&one, "/by_file", &renewed, &first);
    fs::write(&file, "\n").expect("written");
    one.reload_is_refused();
    stays(&one, "/as_before", &renewed, &first);

    let mut shown: Vec<String> = [&one, &other].iter().flat_map(|proxy| proxy.log()).map(|line| line.raw).collect();
    shown
        .extend(["config", "pools", "events", "reload"].map(|page| other.admin_get(&format!("/api/v1/{page}")).text()));
    let ended = run(other.dir(), &["check", "proxy.yaml", "--format", "json"], &env);
    shown.extend([ended.stdout, ended.stderr]);
    assert!(shown.iter().any(|text| text.contains("\"cookie\":\"seat\"")), "{shown:?}");
    assert!(shown.iter().all(|text| !text.contains(OLD) && !text.contains(NEW)), "{shown:?}");
}

#[test]
fn without_a_secret_a_cookie_holds_over_reloads() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], "sticky: {}");
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    proxy.reload(&pool_config(&[&second, &first], "sticky: { ttl: 2h }"));
    stays(&proxy, "/reloaded", &cookie, &first);
}

/// What is said of a request with these cookies, and what it then gets.
#[track_caller]
fn explained(proxy: &Proxy, path: &str, cookies: &str) -> (String, Line) {
    let query = format!("url={path}&header=Host:a.test&header=Cookie:{cookies}");
    let reply = proxy.admin_get(&format!("/api/v1/explain?{}", query.replace(' ', "%20")));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let said = reply.json();
    let (_, line) = ask(proxy, path, cookies);
    assert_eq!(line.tried()[0], said["member"], "{said}");
    let picked = said["members"].as_array().expect("members").iter().find(|member| member["chance"] == "picked");
    assert_eq!(line.json["lb"]["reason"], picked.expect("one")["reason"], "{said}");
    assert_eq!(said["sticky"]["cookie"], "seat");
    (said["sticky"]["state"].as_str().expect("a state").to_owned(), line)
}

#[test]
fn what_is_said_of_a_cookie_is_what_becomes_of_it() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], &format!("{SECRET}\neach_member: {{ max_in_flight: 1 }}"));
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    assert_eq!(explained(&proxy, "/new", "a=1").0, "new");
    assert_eq!(explained(&proxy, "/invalid", "seat=nonsense").0, "invalid");
    assert_eq!(explained(&proxy, "/bound", &cookie).0, "bound");
    let gate = Gate::new();
    first.when(When::path("/held"), Answer::status(200).held_by(&gate));
    let (address, field) = (proxy.address(), format!("Cookie: {cookie}"));
    let held = std::thread::spawn(move || request(address, "GET", "/held", &[&field], ""));
    eventually("it is held", || gate.waiting() == 1);
    assert_eq!(explained(&proxy, "/full", &cookie).0, "full");
    gate.open();
    assert_eq!(held.join().expect("an answer").status, 200);
    order(&proxy, &first, "drain");
    let (state, line) = explained(&proxy, "/drained", &cookie);
    assert_eq!((state.as_str(), line.tried()), ("bound", vec![&*first.address()]));
    let admin = proxy.admin().to_string();
    let told =
        run(proxy.dir(), &["explain", "--admin", &admin, "http://a.test/x", "-H", &format!("Cookie: {cookie}")], &[])
            .stdout;
    let words =
        [format!("cookie   seat, bound: the cookie leads to {}", first.address()), "keeps those it has".to_owned()];
    assert!(words.iter().all(|words| told.contains(words)), "{told}");
    order(&proxy, &first, "disable");
    assert_eq!(explained(&proxy, "/disabled", &cookie).0, "out");
    proxy.reload(&pool_config(&[&second], SECRET));
    assert_eq!(explained(&proxy, "/removed", &cookie).0, "removed");
}

/// Whoever restarts a member after `drain --wait` is to have nobody's session there.
#[test]
fn a_wait_for_a_drain_is_over_when_bound_clients_come_no_more() {
    let [first, second] = [Origin::start(), Origin::start()];
    let proxy = Proxy::of(&[&first, &second], &format!("{SECRET}\ndrain: 3s"));
    proxy.await_all_healthy();
    let cookie = client_of(&proxy, &first, "/find");
    let (address, admin) = (first.address(), proxy.admin().to_string());
    let drain = |more: &[&str]| {
        let words = [&["drain", "web", &address, "--admin", &admin][..], more].concat();
        run(proxy.dir(), &words, &[])
    };
    let ended = drain(&["--wait", "5m"]);
    assert!(ended.code == Some(0) && ended.stdout.contains("stands draining; 0 in flight\n"), "{ended:?}");
    assert!(
        ended.stderr.contains("clients bound to it may come for ") && ended.stderr.contains("; waiting"),
        "{ended:?}"
    );
    moves(&proxy, "/then", &cookie, &[&second]);

    // A wait that cannot end in time does not begin.
    order(&proxy, &first, "enable");
    proxy.reload(&pool_config(&[&first, &second], &format!("{SECRET}\ndrain: 1h")));
    let ended = drain(&["--wait", "1m", "--format", "json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let member: Value = serde_json::from_str(&ended.stdout).expect("json");
    let left = member["drain_left_ms"].as_f64().expect("it drains");
    assert!(left > 60_000.0 && left <= 3_600_000.0, "{member}");
    assert!(
        ended.reason().contains("by the pool's `drain`), so --wait 1m is too short; it stays drained"),
        "{ended:?}"
    );
    stays(&proxy, "/still", &cookie, &first);
    // What is said without a wait.
    let ended = drain(&[]);
    assert!(ended.code == Some(0) && ended.stdout.contains("; clients bound to it may come for "), "{ended:?}");
    // Nobody is bound where no cookie counts, nor to who is disabled.
    proxy.reload(&pool_config(&[&first, &second], "drain: 1h"));
    let ended = drain(&["--wait", "5m"]);
    assert!(ended.code == Some(0) && !ended.stdout.contains("bound"), "{ended:?}");
    let member = proxy.member("web", &address);
    assert!(member["draining_until"].is_string() && member["drain_left_ms"].is_null(), "{member}");
    proxy.reload(&pool_config(&[&first, &second], &format!("{SECRET}\ndrain: 1h")));
    assert!(proxy.member("web", &address)["drain_left_ms"].is_number());
    order(&proxy, &first, "disable");
    assert!(proxy.member("web", &address)["drain_left_ms"].is_null());
}
