//! Members that fail for long are replaced: by a program or a webhook, within limits that nothing gets round.

use std::fs;
use std::path::{Path, PathBuf};

use ring::hmac;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::process::run;
use crate::harness::proxy::{completed, config_of};
use crate::harness::tls::{Authority, TlsOrigin};
use crate::harness::{Answer, Origin, Proxy, Scrape, When, eventually, eventually_some};

/// A member that fails is due two seconds later.
const PROBE: &str = "probe: { path: /healthz, interval: 500ms, fast_interval: 100ms, timeout: 500ms, consecutive: { failures: 2, passes: 1 } }";
const AFTER: &str = "after: 2s";

/// A folder for what a command is told, and for what outlives a proxy.
struct Desk(TempDir);

impl Desk {
    fn new() -> Desk {
        Desk(tempfile::tempdir().expect("a temporary folder"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command that appends what it is told to a file, and does this after it.
    fn command(&self, then: &str) -> String {
        let script = format!("cat >> \"$0\"; {then}");
        format!("command: [/bin/sh, -c, {script:?}, {:?}]", self.at("told"))
    }

    /// What commands were told so far.
    fn told(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.at("told")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
    }

    fn state_dir(&self) -> String {
        format!("state_dir: {:?}\n", self.at("state"))
    }
}

fn web(members: &[&Origin], remediation: &str) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    config_of(&members, &format!("{PROBE}\nremediation: {{ {remediation} }}"))
}

fn broken() -> Origin {
    let origin = Origin::start();
    origin.answer(Answer::status(503));
    origin
}

fn remediation(proxy: &Proxy) -> Value {
    let reply = proxy.admin_get("/api/v1/remediation");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// Waits for the event of a decision on the member, and returns it.
#[track_caller]
fn await_decision(proxy: &Proxy, origin: &Origin, to: &str) -> crate::harness::Line {
    proxy.await_event(0, &[("kind", "remediation"), ("member", &origin.address()), ("to", to)])
}

#[track_caller]
fn decisions(proxy: &Proxy, to: &str) -> usize {
    proxy.events(&[("kind", "remediation"), ("to", to)]).len()
}

/// Long enough for a member that fails to be due, were it not for what keeps it: three more probes of it fail first, and a
/// look comes at least each second.
fn let_it_be_due(origin: &Origin) {
    origin.await_probes(6);
}

#[test]
fn a_member_that_fails_for_long_is_replaced_by_the_command_and_the_next_one_waits() {
    let desk = Desk::new();
    let (first, second) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&web(&[&first, &second], &format!("{AFTER}, {}", desk.command("echo replaced; env >&2"))));
    proxy.await_all_healthy();
    first.answer(Answer::status(503));
    let started = await_decision(&proxy, &first, "started");
    assert_eq!((started.text("reason"), started.text("level")), ("rule", "warn"), "{}", started.raw);
    let done = await_decision(&proxy, &first, "done");
    // Two streams of one command come in any order.
    assert!(done.text("detail").contains("replaced"), "{}", done.raw);
    assert!(!done.text("detail").contains("CARGO"), "our environment is none of its business: {}", done.raw);
    let told = desk.told();
    assert_eq!(told.len(), 1, "{told:?}");
    let notice = &told[0];
    let expected = [
        ("action", "replace".to_owned()),
        ("by", "rule".to_owned()),
        ("pool", "web".to_owned()),
        ("member", first.address()),
        ("name", first.address()),
        ("host", "127.0.0.1".to_owned()),
        ("after", "2s".to_owned()),
        ("verdict", "unhealthy".to_owned()),
        ("standing", "ejected".to_owned()),
    ];
    for (field, value) in expected {
        assert_eq!(notice[field], value, "{field} of {notice}");
    }
    assert!(notice["failing_since"].is_string(), "{notice}");
    assert_eq!(
        (&notice["port"], &notice["last_probe"]["reason"]),
        (&first.port().into(), &"status".into()),
        "{notice}"
    );

    second.answer(Answer::status(503));
    let deferred = await_decision(&proxy, &second, "deferred");
    assert_eq!(deferred.text("reason"), "hour", "{}", deferred.raw);
    let view = remediation(&proxy);
    let pool = &view["pools"][0];
    assert_eq!((&pool["hour"]["used"], &pool["hour"]["limit"]), (&1.into(), &1.into()), "{view}");
    assert!(pool["hour"]["room_at"].is_string(), "{view}");
    let waits = |address: &str| {
        let pool = remediation(&proxy)["pools"][0].clone();
        pool["waiting"]
            .as_array()
            .is_some_and(|all| all.iter().any(|w| w["member"] == address && w["reason"] == "hour"))
    };
    assert!(waits(&second.address()), "{view}");
    assert_eq!(
        (&view["finished"][0]["result"], &view["finished"][0]["by"]),
        (&"done".into(), &"rule".into()),
        "{view}"
    );
    // The first one goes on failing: it was given as long again, and waits then.
    eventually("the first one waits too", || waits(&first.address()));
    let scrape = Scrape::of(&proxy);
    assert_eq!(scrape.value("remediation_total{pool=\"web\",result=\"done\"}"), 1.0);
    assert_eq!(scrape.value("remediation_waiting{pool=\"web\"}"), 2.0);
    assert_eq!(scrape.value("remediation_used{pool=\"web\",limit=\"hour\"}"), 1.0);

    second.answer(Answer::status(200));
    await_decision(&proxy, &second, "over");
    assert_eq!((desk.told().len(), decisions(&proxy, "started")), (1, 1));
    let told_once = proxy.events(&[("kind", "remediation"), ("member", &second.address()), ("to", "deferred")]);
    assert_eq!(told_once.len(), 1, "a decision is told when it is another one");
}

#[test]
fn a_command_that_fails_or_does_not_end_has_failed_and_counts() {
    let desk = Desk::new();
    let (first, second) = (broken(), broken());
    let limits = "max_per_hour: 2, timeout: 300ms";
    // Whoever comes first hangs, in one step: both may begin at once.
    let sleeps = "mkdir \"$0.first\" 2>/dev/null && sleep 600; echo no such machine; exit 3";
    let proxy = Proxy::start(&web(&[&first, &second], &format!("{AFTER}, {limits}, {}", desk.command(sleeps))));
    let failed = |reason: &str| proxy.await_event(0, &[("kind", "remediation"), ("to", "failed"), ("reason", reason)]);
    let late = failed("timeout");
    assert!(late.is_error() && late.text("detail").contains("no end within 300ms"), "{}", late.raw);
    let code = failed("exit");
    assert!(code.text("detail").contains("exit status: 3: no such machine"), "{}", code.raw);
    await_decision(&proxy, &first, "deferred");
    assert_eq!(remediation(&proxy)["pools"][0]["hour"]["used"], 2);
}

/// What `X-Pulsegate-Signature` has to be, by the page that says how to verify it.
fn signature(secret: &str, field: &str, body: &[u8]) -> String {
    let seconds = field.strip_prefix("t=").and_then(|rest| rest.split_once(',')).expect("a time").0;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = hmac::sign(&key, &[format!("{seconds}.").as_bytes(), body].concat());
    let hex: String = signed.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

#[test]
fn a_webhook_is_signed_and_tried_again_as_the_same_request() {
    let (member, hook) = (broken(), Origin::start());
    hook.answer(Answer::status(503));
    let url = format!("http://localhost:{}/replace?now", hook.port());
    let keys = format!("{AFTER}, webhook: {{ url: \"{url}\", secret: \"${{HOOK_SECRET}}\" }}");
    let proxy = Proxy::start_with(&web(&[&member], &keys), &[("HOOK_SECRET", "open sesame")]);
    eventually("the first try", || hook.seen().len() == 1);
    hook.answer(Answer::status(202).body("on its way"));
    let done = await_decision(&proxy, &member, "done");
    assert_eq!(done.text("detail"), "202 Accepted: on its way", "{}", done.raw);
    let seen = hook.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    for request in &seen {
        assert_eq!((&*request.method, &*request.target), ("POST", "/replace?now"));
        assert_eq!(request.field("content-type"), Some("application/json"));
        let field = request.field("x-pulsegate-signature").expect("signed");
        assert_eq!(field, signature("open sesame", field, &request.body));
        let notice: Value = serde_json::from_slice(&request.body).expect("json");
        assert_eq!(request.field("idempotency-key"), notice["id"].as_str(), "{notice}");
        assert_eq!(notice["member"], member.address(), "{notice}");
    }
    assert_eq!(seen[0].body, seen[1].body, "it is the same request");
    assert!(!proxy.admin_get("/api/v1/config").text().contains("sesame"), "a secret is masked");
    assert!(proxy.log().iter().all(|line| !line.raw.contains("sesame")), "a secret is never logged");
}

/// Whoever switches it off, or has mended the member, expects no further request; whoever mends a wrong URL expects the next one
/// there.
#[test]
fn a_further_try_is_made_only_while_somebody_wants_it_and_where_the_file_says_by_then() {
    let config = |member: &Origin, hook: &Origin| {
        let url = format!("http://127.0.0.1:{}/", hook.port());
        web(&[member], &format!("{AFTER}, webhook: {{ url: \"{url}\", secret: \"${{HOOK_SECRET}}\" }}"))
    };
    let begun = || {
        let (member, hook) = (broken(), Origin::start());
        hook.answer(Answer::status(503));
        let proxy = Proxy::start_with(&config(&member, &hook), &[("HOOK_SECRET", "open sesame")]);
        eventually("the first try", || hook.seen().len() == 1);
        (member, hook, proxy)
    };
    let (member, hook, proxy) = begun();
    proxy.reload(&web(&[&member], "").replace("remediation: {  }", "remediation: off"));
    let failed = await_decision(&proxy, &member, "failed");
    assert!(failed.text("detail").ends_with("; not tried again: its pool replaces nobody any more"), "{}", failed.raw);

    let (mended, other, second) = begun();
    mended.answer(Answer::status(200));
    second.await_standing(&mended, "healthy");
    let failed = await_decision(&second, &mended, "failed");
    assert!(failed.text("detail").ends_with("; not tried again: it is not due any more"), "{}", failed.raw);

    let (third, wrong, moved) = begun();
    let right = Origin::start();
    moved.reload(&config(&third, &right));
    await_decision(&moved, &third, "done");
    assert_eq!(right.seen().len(), 1);
    // Each may have been tried once more before it was known, and no more than that.
    for (tried, of) in [(&hook, &member), (&other, &mended), (&wrong, &third)] {
        assert!(tried.seen().len() <= 2, "{of}: {:?}", tried.seen());
    }
}

#[test]
fn a_webhook_that_is_redirected_or_refused_is_not_tried_again() {
    for (status, field) in [(307, "Location: /elsewhere"), (403, "X-Why: no")] {
        let (member, hook) = (broken(), Origin::start());
        hook.answer(Answer::status(status).field(field));
        let keys = format!("{AFTER}, webhook: {{ url: \"http://{}\", secret: open-sesame }}", hook.address());
        let proxy = Proxy::start(&web(&[&member], &keys));
        let failed = await_decision(&proxy, &member, "failed");
        assert!(
            failed.text("reason") == "status" && failed.text("detail").starts_with(&status.to_string()),
            "{}",
            failed.raw
        );
        assert_eq!(hook.seen().len(), 1, "{status}");
    }
}

#[test]
fn a_webhook_over_https_is_verified_by_the_systems_authorities() {
    let desk = Desk::new();
    let authority = Authority::named("ops");
    let (member, hook) = (broken(), TlsOrigin::start(authority.paper(&["localhost"]).server()));
    fs::write(desk.at("ca.pem"), authority.pem()).expect("ours");
    let ca = desk.at("ca.pem");
    fs::write(desk.at("secret"), "open sesame\n").expect("ours");
    let url = format!("https://localhost:{}/", hook.address().rsplit(':').next().unwrap_or_default());
    let keys = format!("{AFTER}, webhook: {{ url: \"{url}\", secret_file: {:?}, retries: 0 }}", desk.at("secret"));
    let trusting = Proxy::start_with(&web(&[&member], &keys), &[("SSL_CERT_FILE", &ca.to_string_lossy())]);
    await_decision(&trusting, &member, "done");
    drop(trusting);
    let strict = Proxy::start(&web(&[&member], &keys));
    let failed = await_decision(&strict, &member, "failed");
    assert!(failed.text("reason") == "tls" && failed.text("detail").contains("ops"), "{}", failed.raw);
}

#[test]
fn limits_survive_reloads_kills_and_restarts_and_a_state_dir_has_one_owner() {
    let desk = Desk::new();
    let (first, second) = (broken(), broken());
    let pool = web(&[&first, &second], &format!("{AFTER}, {}", desk.command("true")));
    let config = format!("{}{pool}", desk.state_dir());
    let mut proxy = Proxy::start(&config);
    proxy.await_event(0, &[("kind", "remediation"), ("to", "done")]);
    proxy.await_event(0, &[("kind", "remediation"), ("to", "deferred"), ("reason", "hour")]);
    proxy.reload(&config.replace("    remediation:", "    deadline: 30s\n    remediation:"));
    let_it_be_due(&second);
    assert_eq!(decisions(&proxy, "started"), 1, "after a reload");

    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("proxy.yaml"), completed(&config)).expect("ours");
    let ended = run(folder.path(), &["run"], &[]);
    assert!(ended.code == Some(1) && ended.reason().contains("belongs to another running pulsegate"), "{ended:?}");

    proxy.signal("KILL");
    proxy.wait();
    let again = Proxy::start(&config);
    for origin in [&first, &second] {
        let deferred = await_decision(&again, origin, "deferred");
        assert_eq!(deferred.text("reason"), "hour", "{}", deferred.raw);
    }
    assert_eq!((decisions(&again, "started"), desk.told().len()), (0, 1), "after a kill");
    let view = remediation(&again);
    assert_eq!((&view["global"]["used"], &view["pools"][0]["day"]["used"]), (&1.into(), &1.into()), "{view}");
}

#[test]
fn a_record_that_is_damaged_counts_as_used_up() {
    let desk = Desk::new();
    fs::create_dir(desk.at("state")).expect("ours");
    fs::write(desk.at("state/remediation.json"), "{ half of it").expect("ours");
    let member = broken();
    let pool = web(&[&member], &format!("{AFTER}, {}", desk.command("true")));
    let proxy = Proxy::start(&format!("{}{pool}", desk.state_dir()));
    let said = proxy.await_log("that it is damaged", 0, |line| line.text("target") == "remediate");
    assert!(said.is_error() && said.text("message").contains("remediation.json.damaged"), "{}", said.raw);
    let deferred = await_decision(&proxy, &member, "deferred");
    assert_eq!(deferred.text("reason"), "lost", "{}", deferred.raw);
    assert!(deferred.text("message").contains("an earlier record of what was replaced is lost"), "{}", deferred.raw);
    let asked = proxy.admin_post(&format!("/api/v1/pools/web/members/{}/replace", member.address()), &[]);
    assert!(asked.status == 409 && asked.text().contains("is lost"), "{}", asked.text());
    let view = remediation(&proxy);
    let pool = &view["pools"][0];
    assert!(view["lost_at"].is_string());
    assert_eq!(
        (&pool["hour"]["used"], &pool["day"]["used"], &view["global"]["used"]),
        (&1.into(), &3.into(), &10.into()),
        "{view}"
    );
    assert_eq!((&pool["waiting"][0]["reason"], &pool["waiting"][0]["of"]), (&"lost".into(), &Value::Null), "{view}");
    let scrape = Scrape::of(&proxy);
    assert_eq!(scrape.value("remediation_used{pool=\"web\",limit=\"day\"}"), 3.0);
    assert_eq!(scrape.value("remediation_record_lost"), 1.0);
    assert_eq!(fs::read_to_string(desk.at("state/remediation.json.damaged")).expect("kept"), "{ half of it");
}

#[test]
fn what_cannot_be_noted_down_is_not_done() {
    let desk = Desk::new();
    let member = broken();
    let pool = web(&[&member], &format!("{AFTER}, {}", desk.command("true")));
    let proxy = Proxy::start(&format!("{}{pool}", desk.state_dir()));
    // Nothing can be written where the next record would be.
    fs::create_dir_all(desk.at("state/remediation.json.part/in the way")).expect("ours");
    let deferred = await_decision(&proxy, &member, "deferred");
    assert!(deferred.is_error() && deferred.text("reason") == "unnoted", "{}", deferred.raw);
    let asked = proxy.admin_post(&format!("/api/v1/pools/web/members/{}/replace", member.address()), &[]);
    assert_eq!(asked.status, 503, "{}", asked.text());
    let refused = await_decision(&proxy, &member, "refused");
    assert!(refused.is_error() && refused.text("reason") == "unnoted", "{}", refused.raw);
    assert!(refused.text("message").contains("though an operator wants it"), "{}", refused.raw);
    let scrape = Scrape::of(&proxy);
    let counted = |result| scrape.value(&format!("remediation_total{{pool=\"web\",result=\"{result}\"}}"));
    assert_eq!((counted("refused"), counted("deferred")), (1.0, 1.0));
    assert_eq!((decisions(&proxy, "started"), desk.told().len()), (0, 0));
    fs::remove_dir_all(desk.at("state/remediation.json.part")).expect("ours");
    await_decision(&proxy, &member, "done");
    let shown = proxy.events(&[("kind", "remediation"), ("to", "deferred")]);
    assert_eq!(shown.len(), 1, "told once: {shown:?}");
}

#[test]
fn a_machine_of_two_pools_is_replaced_once_it_fails_in_both() {
    let desk = Desk::new();
    let origin = Origin::start_everywhere();
    let (here, port) = ("127.0.77.1", origin.port());
    let action = desk.command("true");
    let pool = |name: &str, remediation: &str| {
        let probe = PROBE.replace("/healthz", &format!("/{name}"));
        format!("  {name}:\n    members: [\"{here}:{port}\"]\n    {probe}\n{remediation}")
    };
    let rule = format!("    remediation: {{ {AFTER}, {action} }}\n");
    let config =
        format!("pools:\n{}{}{}routes: [{{ pool: web }}]\n", pool("api", &rule), pool("old", ""), pool("web", &rule));
    origin.when(When::path("/web"), Answer::status(503));
    origin.when(When::path("/api"), Answer::status(503));
    let proxy = Proxy::start(&config);
    let member = format!("{here}:{port}");
    for pool in ["web", "api"] {
        let spared =
            proxy.await_event(0, &[("kind", "remediation"), ("pool", pool), ("member", &member), ("to", "spared")]);
        assert_eq!(spared.text("reason"), "shared", "{}", spared.raw);
    }
    assert_eq!(decisions(&proxy, "started"), 0);
    origin.when(When::path("/old"), Answer::status(503));
    proxy.await_event(0, &[("kind", "remediation"), ("member", &member), ("to", "done")]);
    let notice = eventually_some("the notice", || desk.told().pop());
    assert_eq!(notice["counts_for"].as_array().map(Vec::len), Some(2), "{notice}");
    assert_eq!(notice["shared_with"].as_array().map(Vec::len), Some(2), "{notice}");
    let view = remediation(&proxy);
    let used: Vec<&Value> = view["pools"].as_array().into_iter().flatten().map(|pool| &pool["day"]["used"]).collect();
    assert_eq!((used, &view["global"]["used"]), (vec![&1.into(), &1.into()], &1.into()), "{view}");
    // It fails on, in all three; the limits of both pools are used up.
    proxy.await_event(0, &[("kind", "remediation"), ("member", &member), ("to", "deferred")]);
    assert_eq!(desk.told().len(), 1);
}

#[test]
fn a_remediation_that_only_observes_tells_what_it_would_do_and_does_nothing() {
    let desk = Desk::new();
    let (first, second) = (Origin::start(), Origin::start());
    let tried = format!("{AFTER}, {}, observe: true", desk.command("true"));
    let config = desk.state_dir() + &web(&[&first, &second], &tried);
    let proxy = Proxy::start(&config);
    proxy.await_all_healthy();
    first.answer(Answer::status(503));
    proxy.await_standing(&first, "ejected");
    // Its last pass is later than the first one's, so that it is due later.
    second.await_probes(2);
    second.answer(Answer::status(503));
    let started = await_decision(&proxy, &first, "started");
    assert_eq!(started.text("level"), "info", "{}", started.raw);
    for words in ["\"observed\":true", "observed (remediation): member", "is being replaced", "1 of 1 within an hour"] {
        assert!(started.raw.contains(words), "no {words} in {}", started.raw);
    }
    // The limits hold for what would be, too.
    let deferred = await_decision(&proxy, &second, "deferred");
    assert!(deferred.raw.contains("\"observed\":true") && deferred.text("reason") == "hour", "{}", deferred.raw);
    let stands = remediation(&proxy);
    assert_eq!((&stands["pools"], &stands["global"]["used"]), (&serde_json::json!([]), &0.into()), "{stands}");
    let observed = &stands["observed"][0];
    assert_eq!((&observed["pool"], &observed["hour"]["used"]), (&"web".into(), &1.into()), "{observed}");
    assert_eq!(observed["waiting"][0]["member"], *second.address(), "{observed}");
    let path = format!("/api/v1/pools/web/members/{}/replace", first.address());
    let refused = proxy.admin_post(&path, &[]);
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("only observes"), "{}", refused.text());
    let scrape = Scrape::of(&proxy);
    assert_eq!(scrape.value("remediation_global_used"), 0.0);
    assert!(scrape.value("observed_events_total{kind=\"remediation\"}") >= 2.0);
    // Put in force, it has used nothing up.
    proxy.reload(&config.replace(", observe: true", ""));
    await_decision(&proxy, &first, "done");
    assert_eq!(desk.told().len(), 1, "{:?}", desk.told());
}

#[test]
fn by_hand_a_member_is_replaced_within_the_limits() {
    let desk = Desk::new();
    let (first, second, other) = (Origin::start(), Origin::start(), Origin::start());
    let pool = web(&[&first, &second], &format!("after: 1h, {}", desk.command("true")));
    let bare = format!("  bare:\n    members: [{other}]\n    {PROBE}\nroutes:");
    let proxy = Proxy::start(&pool.replace("routes:", &bare));
    proxy.await_all_healthy();
    let replace =
        |pool: &str, member: &str| proxy.admin_post(&format!("/api/v1/pools/{pool}/members/{member}/replace"), &[]);
    let disabled = proxy.admin_post(&format!("/api/v1/pools/web/members/{}/disable", first.address()), &[]);
    assert_eq!(disabled.status, 200, "{}", disabled.text());
    let begun = replace("web", &first.address());
    assert_eq!((begun.status, &begun.json()["decision"]), (200, &"started".into()), "{}", begun.text());
    let done = await_decision(&proxy, &first, "done");
    assert_eq!((desk.told()[0]["by"].as_str(), done.text("standing")), (Some("hand"), "disabled"), "{}", done.raw);
    assert_eq!(desk.told()[0]["id"], begun.json()["id"]);
    assert_eq!(desk.told()[0].get("failing_since"), Some(&Value::Null), "it is well");
    let full = replace("web", &second.address());
    assert!(full.status == 409 && full.text().contains("within an hour"), "{}", full.text());
    assert_eq!(await_decision(&proxy, &second, "refused").text("reason"), "hour");
    let nobody = replace("bare", &other.address());
    assert!(nobody.status == 409 && nobody.text().contains("no `remediation`"), "{}", nobody.text());
    assert_eq!((replace("web", "10.0.0.1:80").status, replace("wbe", "10.0.0.1:80").status), (404, 404));

    // The file has the last word on limits, and the command asks for the same.
    proxy.reload(&pool.replace("after: 1h", "after: 1h, max_per_hour: 2").replace("routes:", &bare));
    let admin = proxy.admin().to_string();
    let asked = run(proxy.dir(), &["replace", "web", &second.address(), "--admin", &admin], &[]);
    assert!(asked.code == Some(0) && asked.stdout.contains("is being replaced"), "{asked:?}");
    await_decision(&proxy, &second, "done");
    let refused = run(proxy.dir(), &["replace", "web", &second.address(), "--admin", &admin], &[]);
    assert!(refused.code == Some(1) && refused.reason().contains("within an hour"), "{refused:?}");
}

#[test]
fn a_command_outlives_the_proxy_and_nothing_new_is_begun_at_the_end() {
    let desk = Desk::new();
    let (first, gate) = (broken(), desk.at("gate"));
    let script = format!("while [ ! -e {gate:?} ]; do sleep 0.05; done; echo over > \"$0.over\"");
    let mut proxy = Proxy::start(&web(&[&first], &format!("{AFTER}, {}", desk.command(&script))));
    await_decision(&proxy, &first, "started");
    eventually("it is told", || desk.told().len() == 1);
    assert_eq!(proxy.admin_post(&format!("/api/v1/pools/web/members/{}/replace", first.address()), &[]).status, 409);
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    fs::write(&gate, "").expect("ours");
    eventually("it goes on", || desk.at("told.over").exists());
}

/// Eleven members that fail, of whom eight are being replaced for as long as `gate` is not there, and three wait.
fn crowd(desk: &Desk) -> (Vec<Origin>, Proxy, String) {
    let origins: Vec<Origin> = (0..11).map(|_| broken()).collect();
    let gate = desk.at("gate");
    let wait = desk.command(&format!("while [ ! -e {gate:?} ]; do sleep 0.05; done"));
    let pool = web(&origins.iter().collect::<Vec<_>>(), &format!("{AFTER}, max_per_hour: 20, max_per_day: 20, {wait}"));
    let config = format!("remediation: {{ max_global: 50 }}\n{}{pool}", desk.state_dir());
    let proxy = Proxy::start(&config);
    eventually("three wait", || queued(&proxy).len() == 3 && desk.told().len() == 8);
    (origins, proxy, config)
}

/// Whose replacement waits for its turn.
fn queued(proxy: &Proxy) -> Vec<String> {
    let view = remediation(proxy);
    let all = view["queued"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one["member"].as_str().expect("an address").to_owned()).collect()
}

#[test]
fn who_waits_for_a_turn_is_replaced_only_while_somebody_wants_it() {
    let desk = Desk::new();
    let (origins, proxy, _) = crowd(&desk);
    assert_eq!(decisions(&proxy, "queued"), 3);
    let scrape = Scrape::of(&proxy);
    assert_eq!(scrape.value("remediation_queued{pool=\"web\"}"), 3.0);
    assert_eq!(scrape.value("remediation_running{pool=\"web\"}"), 8.0);
    let waiting = queued(&proxy);
    let well = origins.iter().find(|origin| origin.address() == waiting[0]).expect("one of them");
    well.answer(Answer::status(200));
    proxy.await_event(0, &[("member", &well.address()), ("from", "unhealthy"), ("to", "healthy")]);
    let drained = proxy.admin_post(&format!("/api/v1/pools/web/members/{}/drain", waiting[1]), &[]);
    assert_eq!(drained.status, 200, "{}", drained.text());
    fs::write(desk.at("gate"), "").expect("ours");
    for member in &waiting[..2] {
        let dropped = proxy.await_event(0, &[("kind", "remediation"), ("member", member), ("to", "dropped")]);
        assert_eq!(dropped.text("reason"), "over", "{}", dropped.raw);
    }
    proxy.await_event(0, &[("kind", "remediation"), ("member", &waiting[2]), ("to", "done")]);
    assert_eq!(desk.told().len(), 9);
    eventually("what was dropped does not count", || remediation(&proxy)["pools"][0]["hour"]["used"] == 9);
    eventually("nor for the next process", || {
        let kept = fs::read_to_string(desk.at("state/remediation.json")).expect("a record");
        let kept: Value = serde_json::from_str(&kept).expect("json");
        kept["replacements"].as_array().map(Vec::len) == Some(9)
    });
}

#[test]
fn whom_an_operator_wants_replaced_while_it_waits_is_replaced_even_if_it_recovers() {
    let desk = Desk::new();
    let (origins, proxy, _) = crowd(&desk);
    let waiting = queued(&proxy);
    let of = |member: &str| origins.iter().find(|origin| origin.address() == *member).expect("one of them");
    let (wanted, unwanted) = (of(&waiting[0]), of(&waiting[1]));
    let path = format!("/api/v1/pools/web/members/{}/replace", wanted.address());
    let asked = proxy.admin_post(&path, &[]);
    assert!(asked.status < 300 && asked.json()["decision"] == "queued", "{}", asked.text());
    for origin in [wanted, unwanted] {
        origin.answer(Answer::status(200));
        proxy.await_standing(origin, "healthy");
    }
    fs::write(desk.at("gate"), "").expect("ours");
    await_decision(&proxy, wanted, "done");
    await_decision(&proxy, unwanted, "dropped");
    assert_eq!(await_decision(&proxy, wanted, "started").text("reason"), "hand");
}

#[test]
fn who_waits_for_a_turn_is_not_replaced_once_the_file_forbids_it() {
    for (now, reason) in [("max_per_hour: 0", "hour"), ("max_per_hour: 9", "hour"), ("off", "off")] {
        let desk = Desk::new();
        let (_origins, proxy, config) = crowd(&desk);
        let (before, rule) = config.split_once("\n    remediation: {").expect("a rule");
        let (_, after) = rule.split_once('\n').expect("more lines");
        let reloaded = match now {
            "off" => format!("{before}\n    remediation: off\n{after}"),
            limit => config.replace("max_per_hour: 20", limit),
        };
        proxy.reload(&reloaded);
        fs::write(desk.at("gate"), "").expect("ours");
        let done = if now == "max_per_hour: 9" { 9 } else { 8 };
        eventually("all are over", || decisions(&proxy, "done") == done && decisions(&proxy, "dropped") == 11 - done);
        let dropped = proxy.await_event(0, &[("kind", "remediation"), ("to", "dropped")]);
        assert_eq!(dropped.text("reason"), reason, "{now}: {}", dropped.raw);
        assert_eq!(desk.told().len(), done, "{now}");
    }
}

#[test]
fn at_the_end_who_waits_for_a_turn_is_not_replaced_and_named() {
    let desk = Desk::new();
    let (_origins, mut proxy, _) = crowd(&desk);
    let waiting = queued(&proxy);
    proxy.signal("TERM");
    let said = proxy.await_log("who never began", 0, |line| line.text("message").contains("never began"));
    assert!(waiting.iter().all(|member| said.text("message").contains(member)), "{}", said.raw);
    let said =
        proxy.await_log("who is under way", 0, |line| line.text("message").contains("8 replacements are not over"));
    assert!(waiting.iter().all(|member| !said.text("message").contains(member)), "{}", said.raw);
    fs::write(desk.at("gate"), "").expect("ours");
    assert!(proxy.wait().success());
    eventually("the last lines are read", || decisions(&proxy, "dropped") == 3);
    assert_eq!(desk.told().len(), 8);
}

/// Debian's `faketime`, by machine.
const LIBRARIES: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1"];

/// A proxy whose wall clock, and no other, is what stands in the file `wall`.
fn by_the_clock(config: &str, wall: &Path) -> Proxy {
    let library = LIBRARIES.into_iter().find(|path| Path::new(path).exists());
    let library = library.expect("libfaketime: scripts/test installs it (Debian: apt-get install faketime)");
    let env = [
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", &wall.to_string_lossy()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ];
    Proxy::start_with(config, &env)
}

#[test]
fn a_wall_clock_that_jumps_makes_no_room_and_hours_between_two_processes_do() {
    let desk = Desk::new();
    let wall = desk.at("wall");
    // In one step: it is read all the time.
    let set = |text: &str| {
        let part = desk.at("wall.part");
        fs::write(&part, format!("{text}\n")).and_then(|()| fs::rename(&part, &wall)).expect("ours");
    };
    set("+0");
    let (first, second) = (broken(), broken());
    let pool = web(&[&first, &second], &format!("{AFTER}, max_per_day: 2, {}", desk.command("true")));
    let config = format!("{}{pool}", desk.state_dir());
    let proxy = by_the_clock(&config, &wall);
    proxy.await_event(0, &[("kind", "remediation"), ("to", "done")]);
    proxy.await_event(0, &[("kind", "remediation"), ("to", "deferred")]);
    for text in ["+2d", "-5d", "+0"] {
        set(text);
        let_it_be_due(&first);
        assert_eq!(decisions(&proxy, "started"), 1, "{text}");
    }
    drop(proxy);
    // The next process sees what the wall clock says has gone by: the hour is over, the day is not.
    set("+2h");
    let proxy = by_the_clock(&config, &wall);
    proxy.await_event(0, &[("kind", "remediation"), ("to", "done")]);
    let day = proxy.await_event(0, &[("kind", "remediation"), ("to", "deferred"), ("reason", "day")]);
    assert_eq!(desk.told().len(), 2, "{}", day.raw);
    drop(proxy);
    set("+25h");
    let proxy = by_the_clock(&config, &wall);
    proxy.await_event(0, &[("kind", "remediation"), ("to", "done")]);
    assert_eq!(desk.told().len(), 3);
}

#[test]
fn a_wall_clock_that_is_set_ahead_makes_no_room_for_the_next_process() {
    for end in ["TERM", "KILL"] {
        let desk = Desk::new();
        let wall = desk.at("wall");
        fs::write(&wall, "+0\n").expect("ours");
        let (first, second) = (broken(), broken());
        let pool = web(&[&first, &second], &format!("{AFTER}, {}", desk.command("true")));
        let config = format!("{}{pool}", desk.state_dir());
        let mut proxy = by_the_clock(&config, &wall);
        proxy.await_event(0, &[("kind", "remediation"), ("to", "deferred")]);
        let record = || fs::read_to_string(desk.at("state/remediation.json")).unwrap_or_default();
        let before = record();
        let part = desk.at("wall.part");
        fs::write(&part, "+3d\n").and_then(|()| fs::rename(&part, &wall)).expect("ours");
        if end == "KILL" {
            eventually("it is written down", || record() != before);
        }
        proxy.signal(end);
        proxy.wait();
        let again = by_the_clock(&config, &wall);
        for origin in [&first, &second] {
            assert_eq!(await_decision(&again, origin, "deferred").text("reason"), "hour", "{end}");
        }
        assert_eq!((decisions(&again, "started"), desk.told().len()), (0, 1), "{end}");
    }
}
