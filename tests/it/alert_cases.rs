//! Alerts: who is to know is told what is wrong, once, and that it is over; whatever is reloaded, refused or slow meanwhile.

use ring::hmac;
use serde_json::Value;

use crate::harness::proxy::config_of;
use crate::harness::{Answer, Gate, Origin, Proxy, Scrape, eventually, eventually_some};

/// One fail is enough, and so is one pass.
const PROBE: &str = "probe: { path: /healthz, interval: 1s, fast_interval: 100ms, timeout: 1s, consecutive: { failures: 1, passes: 1 } }";

/// A proxy's file with these alerts, each a pager and its further keys.
fn file(alerts: &[(&str, &Origin, &str)], members: &[&Origin], keys: &str) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    let alert = |(name, pager, more): &(&str, &Origin, &str)| {
        let hook = format!("{{ url: \"http://{}/hook?token=letmein\", secret: \"${{SECRET}}\" }}", pager.address());
        format!("  - {{ name: {name}, webhook: {hook}, {more} }}\n")
    };
    let alerts: String = alerts.iter().map(alert).collect();
    format!("alerts:\n{alerts}{}", config_of(&members, &format!("{PROBE}\n{keys}")))
}

fn start(config: &str) -> Proxy {
    Proxy::start_with(config, &[("SECRET", "open sesame")])
}

/// What a pager was told so far, as `fallback/pool/web firing`.
fn told(pager: &Origin) -> Vec<String> {
    let brief = |notice: &Value| {
        let text = |field: &str| notice[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("key"), text("status"))
    };
    notices(pager).iter().map(brief).collect()
}

fn notices(pager: &Origin) -> Vec<Value> {
    let whole = pager.seen().into_iter().filter(|seen| seen.complete);
    whole.map(|seen| serde_json::from_slice(&seen.body).expect("json")).collect()
}

#[track_caller]
fn await_told(pager: &Origin, expected: &[&str]) {
    eventually(&format!("{expected:?} is told"), || told(pager).len() >= expected.len());
    assert_eq!(told(pager), expected);
}

/// The one alert, as the API shows it.
fn shown(proxy: &Proxy) -> Value {
    let reply = proxy.admin_get("/api/v1/alerts");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["alerts"][0].clone()
}

#[test]
fn an_alert_is_signed_says_what_is_wrong_and_shows_no_secret() {
    let (a, b, pager) = (Origin::start(), Origin::start(), Origin::start());
    let proxy = start(&file(&[("pager", &pager, "on: [fallback]")], &[&a, &b], ""));
    proxy.await_all_healthy();
    [&a, &b].iter().for_each(|origin| origin.answer(Answer::status(503)));
    await_told(&pager, &["fallback/pool/web firing"]);
    let seen = pager.seen().remove(0);
    assert_eq!((&*seen.method, &*seen.target), ("POST", "/hook?token=letmein"));
    let field = seen.field("x-pulsegate-signature").expect("signed");
    let seconds = field.strip_prefix("t=").and_then(|rest| rest.split_once(',')).expect("a time").0;
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"open sesame");
    let signed = hmac::sign(&key, &[format!("{seconds}.").as_bytes(), &seen.body].concat());
    let hex: String = signed.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(field, format!("t={seconds},v1={hex}"));
    let notice = notices(&pager).remove(0);
    assert_eq!(seen.field("idempotency-key"), notice["id"].as_str());
    let expected = [
        ("name", "pager"),
        ("alert", "fallback"),
        ("pool", "web"),
        ("pool_mode", "fallback"),
        ("message", "pool web is in fallback: nobody is healthy"),
    ];
    for (field, value) in expected {
        assert_eq!(notice[field], value, "{field} of {notice}");
    }
    assert!(notice["because"].as_str().is_some_and(|why| why.contains("503")), "{notice}");
    assert!(notice["since"].is_string() && notice["ended_at"].is_null() && notice["member"].is_null(), "{notice}");
    eventually("it is open", || shown(&proxy)["open"][0]["episode"] == notice["episode"]);
    a.answer(Answer::status(200));
    await_told(&pager, &["fallback/pool/web firing", "fallback/pool/web resolved"]);
    let over = notices(&pager).remove(1);
    assert!(over["episode"] == notice["episode"] && over["id"] != notice["id"], "{over}");
    assert!(over["since"] == notice["since"] && over["ended_at"].is_string(), "{over}");
    eventually("it is counted", || shown(&proxy)["sent"] == 2);
    let view = shown(&proxy);
    assert_eq!((&view["open"], &view["failed"], &view["dropped"]), (&Value::Array(vec![]), &0.into(), &0.into()));
    let scrape = Scrape::of(&proxy);
    assert_eq!(scrape.value("alerts_total{alert=\"pager\",result=\"sent\"}"), 2.0);
    assert_eq!(
        (scrape.value("alerts_open{alert=\"pager\"}"), scrape.value("alerts_waiting{alert=\"pager\"}")),
        (0.0, 0.0)
    );
    let config = proxy.admin_get("/api/v1/config").text();
    assert!(config.contains("fallback for 0s"), "{config}");
    for secret in ["sesame", "letmein"] {
        assert!(!config.contains(secret), "{config}");
        assert!(proxy.log().iter().all(|line| !line.raw.contains(secret)), "a secret is never logged");
    }
}

#[test]
fn each_is_told_what_it_asked_for_and_about_the_pools_it_asked_for() {
    let (good, bad, capped, all, other) =
        (Origin::start(), Origin::start(), Origin::start(), Origin::start(), Origin::start());
    let alerts =
        [("capped", &capped, "on: [capped for 2s]"), ("all", &all, "pools: [web]"), ("other", &other, "pools: [api]")];
    let api = "  api: { members: [\"127.0.0.1:9\"], probe: off }\nroutes:";
    let config = file(&alerts, &[&good, &bad], "max_unhealthy_percent: 0").replace("routes:", api);
    let proxy = start(&config);
    proxy.await_all_healthy();
    bad.answer(Answer::status(503));
    await_told(&capped, &["capped/pool/web firing"]);
    let notice = notices(&capped).remove(0);
    let time = |field: &str| humantime::parse_rfc3339(notice[field].as_str().expect("a time")).expect("a time");
    let lasted = time("at").duration_since(time("since")).expect("in this order");
    // Each is read beside the clock that counts, and a little later where the machine is busy.
    assert!(lasted.as_millis() >= 1_000, "it had to last: {notice}");
    good.answer(Answer::status(503));
    await_told(&all, &["fallback/pool/web firing"]);
    await_told(&capped, &["capped/pool/web firing", "capped/pool/web resolved"]);
    assert_eq!(told(&other), [""; 0]);
}

#[test]
fn an_episode_goes_on_over_reloads_and_ends_with_its_pool() {
    let (a, pager, second) = (Origin::start(), Origin::start(), Origin::start());
    let (on, more) = ("on: [fallback, down]", "on_all_unhealthy: round_robin");
    let config = file(&[("pager", &pager, on)], &[&a], more);
    a.answer(Answer::status(503));
    let proxy = start(&config);
    await_told(&pager, &["fallback/pool/web firing"]);
    proxy.reload(&config.replace("path: /healthz", "path: /healthz, method: GET"));
    // Another one is told of what it finds, and the first one nothing new; by then it would have been.
    let both = file(&[("pager", &pager, on), ("second", &second, on)], &[&a], more);
    proxy.reload(&both);
    await_told(&second, &["fallback/pool/web firing"]);
    assert_eq!(told(&pager), ["fallback/pool/web firing"]);
    assert_ne!(notices(&second)[0]["episode"], notices(&pager)[0]["episode"]);
    // It is called otherwise now, which is another pool.
    proxy.reload(&both.replace("  web:", "  www:").replace("pool: web", "pool: www"));
    eventually("its end is told", || told(&pager).contains(&"fallback/pool/web resolved".to_owned()));
    eventually("the new one is told of", || told(&pager).contains(&"fallback/pool/www firing".to_owned()));
    assert_eq!(told(&pager).len(), 3, "{:?}", told(&pager));
    // Who is not configured any more is told nothing more.
    await_told(&second, &["fallback/pool/web firing", "fallback/pool/web resolved", "fallback/pool/www firing"]);
    proxy.reload(&config.replace("  web:", "  www:").replace("pool: web", "pool: www"));
    let count = told(&second).len();
    a.answer(Answer::status(200));
    eventually("the first one is told", || told(&pager).contains(&"fallback/pool/www resolved".to_owned()));
    assert_eq!(told(&second).len(), count);
}

#[test]
fn what_is_not_taken_is_tried_again_and_counted_and_keeps_nobody() {
    let (a, pager) = (Origin::start(), Origin::start());
    let config = file(&[("pager", &pager, "on: [fallback]")], &[&a], "").replace(", secret:", ", retries: 1, secret:");
    let proxy = start(&config);
    proxy.await_all_healthy();
    // It is certain that this is not taken.
    pager.answer(Answer::status(429));
    a.answer(Answer::status(503));
    let line = proxy.await_log("it could not be told", 0, |line| line.text("target") == "alert" && line.is_error());
    assert!(line.text("detail").contains("after 2 tries") && !line.raw.contains("letmein"), "{}", line.raw);
    assert_eq!(told(&pager).len(), 2);
    assert_eq!(pager.seen()[0].body, pager.seen()[1].body, "it is the same request");
    assert_eq!((&shown(&proxy)["failed"], &shown(&proxy)["waiting"]), (&1.into(), &1.into()));
    // What nobody was told of need not be over.
    a.answer(Answer::status(200));
    eventually("nothing is owed", || shown(&proxy)["waiting"] == 0);
    a.answer(Answer::status(503));
    eventually("the next one is given up", || shown(&proxy)["failed"] == 2);
    assert_eq!(told(&pager), ["fallback/pool/web firing"; 4]);
    // It is still so when somebody listens.
    pager.answer(Answer::status(200));
    proxy.reload(&config.replace("retries: 1", "retries: 2"));
    eventually("it is told all the same", || shown(&proxy)["sent"] == 1);
    assert_eq!(pager.seen()[4].body, pager.seen()[3].body, "it is the same request");
    // One that never answers keeps what comes after it, and nobody else.
    pager.answer(Answer::hang());
    a.answer(Answer::status(200));
    eventually("it is asked", || pager.seen().len() == 6);
    a.answer(Answer::status(503));
    eventually("the next one waits", || shown(&proxy)["waiting"] == 2);
    assert_eq!(proxy.get("/").status, 503, "the member's own answer");
}

#[test]
fn an_end_that_is_refused_keeps_no_next_beginning_back() {
    let (a, pager) = (Origin::start(), Origin::start());
    let config = file(&[("pager", &pager, "on: [fallback]")], &[&a], "").replace(", secret:", ", retries: 0, secret:");
    let proxy = start(&config);
    proxy.await_all_healthy();
    let outage = |told_before: usize| {
        a.answer(Answer::status(503));
        eventually("it has begun", || told(&pager).len() > told_before);
        eventually("it is taken", || shown(&proxy)["open"][0]["key"] == "fallback/pool/web");
    };
    outage(0);
    // Who does not know it any more says so, and is not asked again.
    pager.answer(Answer::status(404));
    a.answer(Answer::status(200));
    eventually("it is given up", || shown(&proxy)["dropped"] == 1);
    assert_eq!(shown(&proxy)["waiting"], 0);
    proxy.await_log("it is said", 0, |line| line.text("message").contains("is not told any more") && line.is_error());
    pager.answer(Answer::status(200));
    outage(2);
    assert_eq!(told(&pager)[2..], ["fallback/pool/web firing"]);
    // One that may be taken later is not waited for either, and comes with the next end: not between.
    pager.answer(Answer::status(429));
    a.answer(Answer::status(200));
    eventually("the end is refused", || shown(&proxy)["failed"] == 2);
    let gate = Gate::new();
    pager.answer(Answer::status(429).held_by(&gate));
    a.answer(Answer::status(503));
    eventually("the end is tried once more", || gate.waiting() == 1);
    pager.answer(Answer::status(200));
    gate.open();
    outage(5);
    assert_eq!(told(&pager)[5..], ["fallback/pool/web firing"]);
    assert_eq!(shown(&proxy)["waiting"], 1);
    a.answer(Answer::status(200));
    eventually("nothing is owed", || told(&pager).len() == 8 && shown(&proxy)["waiting"] == 0);
    assert_eq!(told(&pager)[6..], ["fallback/pool/web resolved"; 2]);
    let episode = |at: usize| notices(&pager)[at]["episode"].clone();
    assert!(episode(6) == episode(3) && episode(7) == episode(5), "each of its own");
}

#[test]
fn what_one_try_may_have_brought_is_told_to_be_over_whatever_the_last_one_did() {
    let (a, pager, gate) = (Origin::start(), Origin::start(), Gate::new());
    let config = file(&[("pager", &pager, "on: [fallback]")], &[&a], "").replace(", secret:", ", retries: 1, secret:");
    let proxy = start(&config);
    proxy.await_all_healthy();
    pager.answer(Answer::close().held_by(&gate));
    a.answer(Answer::status(503));
    eventually("the first try is there", || gate.waiting() == 1);
    pager.answer(Answer::status(429));
    gate.open();
    eventually("the last one is refused", || shown(&proxy)["failed"] == 1);
    assert_eq!((told(&pager).len(), &shown(&proxy)["open"]), (2, &Value::Array(vec![])), "nobody has taken it");
    pager.answer(Answer::status(200));
    a.answer(Answer::status(200));
    await_told(&pager, &["fallback/pool/web firing", "fallback/pool/web firing", "fallback/pool/web resolved"]);
}

#[test]
fn what_was_refused_keeps_no_news_and_is_not_sent_all_again_for_one_that_is_taken() {
    const POOLS: usize = 30;
    let (a, b, pager) = (Origin::start(), Origin::start(), Origin::start());
    let pool = |name: &str, origin: &Origin| format!("  {name}: {{ members: [{origin}], {PROBE} }}\n");
    let pools: String = (0..POOLS).map(|number| pool(&format!("p{number}"), &a)).collect();
    let routes: Vec<String> = (0..POOLS).map(|number| format!("{{ path: /p{number}, pool: p{number} }}")).collect();
    let hook = format!("{{ url: \"http://{}\", secret: open-sesame, retries: 0 }}", pager.address());
    pager.answer(Answer::status(404));
    a.answer(Answer::status(503));
    let proxy = Proxy::start(&format!(
        "alerts: [{{ name: pager, webhook: {hook}, on: [fallback] }}]\npools:\n{pools}{}routes: [{}, {{ pool: news }}]\n",
        pool("news", &b),
        routes.join(", ")
    ));
    eventually("all are refused", || shown(&proxy)["failed"] == POOLS);
    // Of what was refused only one is tried for the one that is taken, and is refused too.
    let (gate, second) = (Gate::new(), Gate::new());
    pager.answer(Answer::status(200).held_by(&gate));
    b.answer(Answer::status(503));
    eventually("the news is on its way", || gate.waiting() == 1);
    pager.answer(Answer::status(404).held_by(&second));
    gate.open();
    eventually("one of the others is tried", || second.waiting() == 1);
    pager.answer(Answer::status(200));
    b.answer(Answer::status(200));
    eventually("its end waits", || shown(&proxy)["waiting"] == POOLS + 1);
    second.open();
    // The end is next, though the others have waited for longer.
    eventually("all the rest is taken", || shown(&proxy)["waiting"] == 0);
    let all = told(&pager);
    assert_eq!(all[POOLS], "fallback/pool/news firing");
    assert_eq!(all[POOLS + 2], "fallback/pool/news resolved", "{all:?}");
    assert_eq!(all.len(), 2 * POOLS + 3, "each taken one has the next tried");
}

#[test]
fn whatever_happens_at_once_each_is_told_and_what_is_over_unheard_is_not() {
    const POOLS: usize = 150;
    let (a, pager) = (Origin::start(), Origin::start());
    let probe = PROBE.replace("fast_interval: 100ms, ", "");
    let pools: String = (0..POOLS).map(|number| format!("  p{number}: {{ members: [{a}], {probe} }}\n")).collect();
    let routes: Vec<String> = (0..POOLS).map(|number| format!("{{ path: /p{number}, pool: p{number} }}")).collect();
    let hook = format!("{{ url: \"http://{}\", secret: open-sesame, timeout: 30s }}", pager.address());
    let proxy = Proxy::start(&format!(
        "alerts: [{{ name: pager, webhook: {hook}, on: [fallback] }}]\npools:\n{pools}routes: [{}]\n",
        routes.join(", ")
    ));
    // What is told only once the gate is open: until then one is under way, and all of them wait.
    let turn = |status: u16, waiting: usize| {
        let gate = Gate::new();
        pager.answer(Answer::status(200).held_by(&gate));
        a.answer(Answer::status(status));
        eventually(&format!("{waiting} wait"), || shown(&proxy)["waiting"] == waiting);
        gate
    };
    let of = |status: &str| told(&pager).iter().filter(|brief| brief.ends_with(status)).count();
    turn(503, POOLS).open();
    eventually("each beginning is told", || of("firing") == POOLS);
    eventually("nothing is left", || shown(&proxy)["waiting"] == 0);
    turn(200, POOLS).open();
    eventually("each end is told", || of("resolved") == POOLS);
    eventually("nothing is left", || shown(&proxy)["waiting"] == 0);
    let gate = turn(503, POOLS);
    a.answer(Answer::status(200));
    eventually("of one it may be known", || shown(&proxy)["waiting"] == 2);
    gate.open();
    eventually("that one is told to be over", || shown(&proxy)["waiting"] == 0);
    assert_eq!((of("firing"), of("resolved")), (POOLS + 1, POOLS + 1));
    assert_eq!((&shown(&proxy)["open"], &shown(&proxy)["dropped"]), (&Value::Array(vec![]), &0.into()));
}

#[test]
fn what_waits_is_told_at_the_end_and_the_end_is_not_kept_for_ever() {
    let (a, pager, silent, gate) = (Origin::start(), Origin::start(), Origin::start(), Gate::new());
    let alerts = [("pager", &pager, "on: [fallback]"), ("silent", &silent, "on: [fallback]")];
    let config = format!("lame_duck: 0s\n{}", file(&alerts, &[&a], ""));
    let mut proxy = start(&config);
    proxy.await_all_healthy();
    pager.answer(Answer::status(200).held_by(&gate));
    silent.answer(Answer::hang());
    a.answer(Answer::status(503));
    eventually("both are asked", || gate.waiting() == 1 && silent.seen().len() == 1);
    a.answer(Answer::status(200));
    eventually("the end of it waits", || shown(&proxy)["waiting"] == 2);
    proxy.signal("TERM");
    proxy.await_log("the end began", 0, |line| line.text("message") == "ending");
    gate.open();
    await_told(&pager, &["fallback/pool/web firing", "fallback/pool/web resolved"]);
    assert!(proxy.wait().success());
    let said = eventually_some("what was left is told", || {
        proxy.log().into_iter().find(|line| line.text("message").contains("the end came before"))
    });
    assert_eq!(said.json["left"], 2, "{}", said.raw);
}

#[test]
fn what_was_refused_has_one_more_chance_at_the_end_and_what_is_left_is_said() {
    let (a, pager, deaf) = (Origin::start(), Origin::start(), Origin::start());
    let alerts = [("pager", &pager, "on: [fallback]"), ("deaf", &deaf, "on: [fallback]")];
    let config = format!("lame_duck: 0s\n{}", file(&alerts, &[&a], "")).replace(", secret:", ", retries: 0, secret:");
    let mut proxy = start(&config);
    proxy.await_all_healthy();
    a.answer(Answer::status(503));
    eventually("both are told", || told(&pager).len() == 1 && told(&deaf).len() == 1);
    [&pager, &deaf].iter().for_each(|pager| pager.answer(Answer::status(503)));
    a.answer(Answer::status(200));
    let all = || proxy.admin_get("/api/v1/alerts").json()["alerts"].clone();
    eventually("its end is refused", || all()[0]["failed"] == 1 && all()[1]["failed"] == 1);
    pager.answer(Answer::status(200));
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    assert_eq!(told(&pager)[1..], ["fallback/pool/web resolved"; 2]);
    assert_eq!(told(&deaf).len(), 3, "it had its chance");
    let said: Vec<_> = proxy.log().into_iter().filter(|line| line.text("message").contains("the end came")).collect();
    assert_eq!(said.len(), 1);
    assert!(said[0].text("name") == "deaf" && said[0].json["left"] == 1, "{}", said[0].raw);
    assert!(said[0].raw.contains("fallback/pool/web resolved"), "{}", said[0].raw);
}

#[test]
fn what_an_alert_that_is_taken_out_still_owed_is_said_and_counted() {
    let (a, pager, chat) = (Origin::start(), Origin::start(), Origin::start());
    let on = "on: [fallback]";
    let config = file(&[("pager", &pager, on), ("chat", &chat, on)], &[&a], "");
    let proxy = start(&config.replace(", secret:", ", retries: 0, secret:"));
    proxy.await_all_healthy();
    chat.answer(Answer::status(404));
    a.answer(Answer::status(503));
    eventually("it is refused", || proxy.admin_get("/api/v1/alerts").json()["alerts"][1]["failed"] == 1);
    proxy.reload(&file(&[("pager", &pager, on)], &[&a], ""));
    let said = proxy.await_log("it is said", 0, |line| line.text("message").contains("chat is taken out"));
    assert!(said.is_error() && said.raw.contains("fallback/pool/web firing"), "{}", said.raw);
    eventually("it is counted", || Scrape::of(&proxy).value("alerts_total{alert=\"chat\",result=\"dropped\"}") == 1.0);
    assert_eq!(Scrape::of(&proxy).value("alerts_total{alert=\"chat\",result=\"failed\"}"), 1.0);
}

#[test]
fn a_member_that_flaps_and_one_that_is_due_are_told_of() {
    let (good, bad, pager) = (Origin::start(), Origin::start(), Origin::start());
    let keys = "remediation: { after: 4s, command: [/bin/cat], max_per_hour: 0 }";
    let config = file(&[("pager", &pager, "on: [\"flapping 3 in 1h\", replacement]")], &[&good, &bad], keys);
    let proxy = start(&config);
    proxy.await_all_healthy();
    for round in 0..2 {
        bad.answer(Answer::status(503));
        proxy.await_standing(&bad, "ejected");
        if round == 0 {
            bad.answer(Answer::status(200));
            proxy.await_standing(&bad, "healthy");
        }
    }
    let of_it = |occasion: &str, status: &str| format!("{occasion}/member/web/{} {status}", bad.address());
    await_told(&pager, &[&of_it("flapping", "firing"), &of_it("replacement", "firing")]);
    assert_eq!(notices(&pager)[1]["member"], bad.address());
    bad.answer(Answer::status(200));
    eventually("it is due no more", || told(&pager).contains(&of_it("replacement", "resolved")));
    assert_eq!(told(&pager).len(), 3, "it may flap for an hour yet");
}

#[test]
fn however_many_are_due_each_is_told_of_by_whoever_is_asked_for_later_and_over_when_nobody_is() {
    const MEMBERS: usize = 15;
    let (all, pager) = (Origin::start_everywhere(), Origin::start());
    all.answer(Answer::status(503));
    let member = |number: usize| format!("127.0.1.{number}:{}", all.port());
    let with = |from: usize, remediation: &str| {
        let members: Vec<String> = (from..from + MEMBERS).map(member).collect();
        config_of(&members, &format!("{PROBE}\n{remediation}"))
    };
    let hook = format!("{{ url: \"http://{}\", secret: open-sesame }}", pager.address());
    let asked = |config: &str| format!("alerts: [{{ name: pager, webhook: {hook}, on: [replacement] }}]\n{config}");
    let remediation = "remediation: { after: 4s, command: [/bin/cat], max_per_hour: 0 }";
    let proxy = start(&with(1, remediation));
    let waiting = || proxy.admin_get("/api/v1/remediation").json()["pools"][0]["waiting"].clone();
    eventually("all are due", || waiting().as_array().is_some_and(|all| all.len() == MEMBERS));
    // Nobody was told when that began.
    proxy.reload(&asked(&with(1, remediation)));
    let of = |status: &str| {
        let told = told(&pager).into_iter().filter(|brief| brief.ends_with(status));
        told.collect::<std::collections::BTreeSet<_>>()
    };
    eventually("each is told of", || of("firing").len() == MEMBERS);
    // Five are there no more, and five others not due yet; ten are what they were.
    proxy.reload(&asked(&with(6, remediation)));
    eventually("who is gone is over", || of("resolved").len() == 5);
    let gone = (1..6).map(|number| format!("replacement/member/web/{} resolved", member(number)));
    assert_eq!(of("resolved"), gone.collect());
    eventually("the others are due too", || of("firing").len() == MEMBERS + 5);
    proxy.reload(&asked(&with(6, "")));
    eventually("nobody is due", || of("resolved").len() == MEMBERS + 5);
    assert_eq!(told(&pager).len(), 2 * (MEMBERS + 5), "each once");
    eventually("nothing is open", || shown(&proxy)["open"] == Value::Array(vec![]));
}

#[test]
fn a_member_that_recovers_while_nobody_is_asked_for_is_not_due_afterwards() {
    let (good, bad, pager) = (Origin::start(), Origin::start(), Origin::start());
    let keys = "remediation: { after: 4s, command: [/bin/cat], max_per_hour: 0 }";
    let config = file(&[("pager", &pager, "on: [replacement]")], &[&good, &bad], keys);
    bad.answer(Answer::status(503));
    let proxy = start(&config);
    let due = format!("replacement/member/web/{}", bad.address());
    await_told(&pager, &[&format!("{due} firing")]);
    proxy.reload(&config[config.find("pools:").expect("the rest")..]);
    bad.answer(Answer::status(200));
    proxy.await_standing(&bad, "healthy");
    proxy.reload(&config.replace("[replacement]", "[replacement, fallback]"));
    // What is told of the next thing is told after it.
    [&good, &bad].iter().for_each(|origin| origin.answer(Answer::status(503)));
    await_told(&pager, &[&format!("{due} firing"), "fallback/pool/web firing"]);
}

#[test]
fn a_route_that_fails_over_and_a_composite_that_is_not_healthy_are_told_of() {
    let (home, away, pager) = (Origin::start(), Origin::start(), Origin::start());
    let pool = |name: &str, origin: &Origin| format!("  {name}: {{ members: [{origin}], {PROBE} }}\n");
    let hook = format!("{{ url: \"http://{}\", secret: open-sesame }}", pager.address());
    let config = format!(
        "alerts: [{{ name: pager, webhook: {hook}, on: [failover, composite], pools: [home] }}]\npools:\n{}{}\
         composites: {{ region: {{ sources: [home] }} }}\n\
         routes: [{{ pools: [{{ pool: home, when: region }}, away], failback_delay: 0s }}]\n",
        pool("home", &home),
        pool("away", &away)
    );
    let proxy = Proxy::start(&config);
    eventually("home serves", || proxy.get("/").status == 200 && home.traffic_count() > 0);
    home.answer(Answer::status(503));
    eventually("both are told", || told(&pager).len() == 2);
    home.answer(Answer::status(200));
    eventually("both are over", || told(&pager).len() == 4);
    let mut all = told(&pager);
    all.sort();
    let expected = ["composite/composite/region", "failover/route//"];
    let expected: Vec<String> =
        expected.iter().flat_map(|key| ["firing", "resolved"].map(|status| format!("{key} {status}"))).collect();
    assert_eq!(all, expected);
}
