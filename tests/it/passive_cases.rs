//! What traffic says of members (health.md §6): what is evidence, what never is (case C12), and what comes of it.

use crate::harness::client::Connection;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::chunk_of;
use crate::harness::{Answer, Gate, Origin, Scrape, Step, When, eventually};

/// Probed once, then not for an hour unless somebody asks; one fail is enough.
const RARELY: &str = "probe: { path: /healthz, interval: 1h, timeout: 2s, consecutive: { failures: 1, passes: 1 } }\n\
                      retries: { attempts: 1, connect: 1 }";
/// A member that hangs is given up soon.
const SOON: &str = "upstream: { read_timeout: 300ms }";

/// One member whose probes always pass unless a case says otherwise.
struct Scene {
    origin: Origin,
    proxy: Proxy,
}

impl Scene {
    fn new(more: &str) -> Scene {
        let origin = Origin::start();
        let proxy = Proxy::start(&config_of(&[origin.to_string()], &format!("{RARELY}\n{more}")));
        proxy.await_all_healthy();
        Scene { origin, proxy }
    }

    fn hastened(&self) -> f64 {
        hastened(&self.proxy, &self.origin)
    }

    /// A request on its way, sent so far as `bytes`, that the member has and does not answer before the gate opens.
    fn held(&self, bytes: &str) -> (Connection, Gate) {
        let gate = Gate::new();
        self.origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
        let mut client = self.proxy.connect();
        client.send(bytes);
        eventually("it is with the member", || gate.waiting() == 1);
        (client, gate)
    }

    /// Nothing was held against the member so far; and a 503 would have been.
    #[track_caller]
    fn held_nothing_against_it(&self) {
        assert_eq!(self.hastened(), 0.0, "something was held against the member");
        self.origin.when(When::path("/proof"), Answer::status(503));
        assert_eq!(self.proxy.get("/proof").status, 503);
        eventually("what counts is counted", || self.hastened() == 1.0);
        assert!(self.proxy.events(&[("to", "unhealthy")]).is_empty());
    }
}

fn hastened(proxy: &Proxy, origin: &Origin) -> f64 {
    let series = format!("probes_hastened_total{{pool=\"web\",member=\"{}\"}}", origin.address());
    Scrape::of(proxy).value(&series)
}

#[test]
fn refused_connection_has_the_member_probed_and_its_probe_ejects_it() {
    let (dead, good) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&config_of(&[dead.to_string(), good.to_string()], RARELY));
    proxy.await_all_healthy();
    dead.stop();
    // Not for an hour, were it not for the traffic.
    eventually("the member is ejected", || {
        proxy.get("/");
        proxy.member("web", &dead.address())["standing"] == "ejected"
    });
    let event = proxy.await_event(0, &[("member", &dead.address()), ("to", "unhealthy")]);
    assert_eq!(event.text("reason"), "refused", "{}", event.raw);
    assert_eq!([hastened(&proxy, &dead), hastened(&proxy, &good)], [1.0, 0.0]);
}

#[test]
fn each_failure_of_a_member_before_its_answer_hastens_its_probe_and_ejects_no_one() {
    let garbage = Answer::raw(vec![Step::Bytes(b"%%% garbage %%%\r\n\r\n".to_vec()), Step::Close]);
    let ways = [
        ("reset", Answer::reset()),
        ("closed", Answer::close()),
        ("silent", Answer::hang()),
        ("garbage", garbage),
        ("502", Answer::status(502)),
        ("503", Answer::status(503)),
        ("504", Answer::status(504)),
    ];
    for (way, answer) in ways {
        let scene = Scene::new(SOON);
        scene.origin.when(When::path("/fails"), answer);
        let probes = scene.origin.probe_count();
        assert!(scene.proxy.get("/fails").status >= 500, "{way}");
        eventually(&format!("{way}: the member is probed"), || scene.origin.probe_count() > probes);
        assert_eq!(scene.hastened(), 1.0, "{way}");
        // Whatever comes in the same interval asks for no other.
        (0..5).for_each(|_| drop(scene.proxy.get("/fails")));
        assert_eq!(scene.hastened(), 1.0, "{way}");
        assert!(scene.proxy.events(&[("to", "unhealthy")]).is_empty(), "{way}");
        assert_eq!(scene.proxy.member("web", &scene.origin.address())["standing"], "healthy", "{way}");
    }
}

#[test]
fn another_probe_is_hastened_in_another_interval() {
    let origin = Origin::start();
    let keys = "probe: { path: /healthz, interval: 400ms, timeout: 400ms }";
    let proxy = Proxy::start(&config_of(&[origin.to_string()], keys));
    proxy.await_all_healthy();
    origin.when(When::path("/fails"), Answer::status(503));
    eventually("three intervals had one", || {
        proxy.get("/fails");
        hastened(&proxy, &origin) >= 3.0
    });
}

#[test]
fn nothing_is_hastened_where_it_is_off_as_in_the_presets() {
    for keys in ["passive: off", "preset: app_service", "preset: application_gateway", "preset: front_door"] {
        let origin = Origin::start();
        let probe = "probe: { path: /healthz, interval: 1h, timeout: 2s }";
        let proxy = Proxy::start(&config_of(&[origin.to_string()], &format!("{keys}\n{probe}")));
        proxy.await_all_healthy();
        origin.when(When::path("/fails"), Answer::status(503));
        (0..5).for_each(|_| drop(proxy.get("/fails")));
        assert_eq!(hastened(&proxy, &origin), 0.0, "{keys}");
        // Switched on by a reload it counts at once.
        let on = config_of(&[origin.to_string()], &format!("{}passive: hasten\n{probe}", preset(keys)));
        proxy.reload(&on);
        proxy.get("/fails");
        eventually(&format!("{keys}: it counts now"), || hastened(&proxy, &origin) == 1.0);
    }
}

fn preset(keys: &str) -> String {
    keys.strip_prefix("preset: ").map_or(String::new(), |name| format!("preset: {name}\n"))
}

/// Green probes at one that fails its traffic, and another member that does not.
fn failing_and_good(eject: &str) -> (Origin, Origin, Proxy) {
    let (bad, good) = (Origin::start(), Origin::start());
    let keys =
        format!("probe: {{ path: /healthz, interval: 100ms, timeout: 100ms }}\npassive: {{ eject: {{ {eject} }} }}");
    let proxy = Proxy::start(&config_of(&[bad.to_string(), good.to_string()], &keys));
    proxy.await_all_healthy();
    bad.when(When::path("/api"), Answer::status(503));
    (bad, good, proxy)
}

#[test]
fn member_that_fails_its_traffic_is_out_for_its_time_however_green_its_probes() {
    let (bad, good, proxy) = failing_and_good("consecutive: 3, base: 10m, max: 10m");
    (0..6).for_each(|_| drop(proxy.get("/api")));
    proxy.await_standing(&bad, "ejected");
    let event = proxy.await_event(0, &[("member", &bad.address()), ("to", "unhealthy")]);
    assert_eq!(event.text("reason"), "status", "{}", event.raw);
    assert_eq!(
        event.text("detail"),
        "traffic: 3 failures in a row, last: 503; offence 1, out for 600 s",
        "{}",
        event.raw
    );
    // Case C12: probes that pass do not bring it back, nor do those that fail.
    bad.await_probes(5);
    bad.next_probes((0..3).map(|_| Answer::status(500)));
    bad.await_next_probes();
    bad.await_probes(5);
    let before = bad.traffic_count();
    (0..20).for_each(|_| assert_eq!(proxy.get("/api").status, 200));
    assert_eq!(bad.traffic_count(), before);
    let member = proxy.member("web", &bad.address());
    assert_eq!(
        (&member["ejected_because"], &member["passive"]["offences"]),
        (&"passive".into(), &1.into()),
        "{member}"
    );
    assert_eq!(member["passive"]["detail"], "3 failures in a row, last: 503", "{member}");
    assert!(member["passive"]["until"].is_string() && member["passive"]["since"].is_string(), "{member}");
    assert!(proxy.member("web", &good.address())["passive"].is_null());
    let series = format!("passive_ejections_total{{pool=\"web\",member=\"{}\"}}", bad.address());
    assert_eq!(Scrape::of(&proxy).value(&series), 1.0);
}

#[test]
fn time_brings_it_back_without_a_request_or_a_reload() {
    let (bad, _good, proxy) = failing_and_good("consecutive: 3, base: 300ms, max: 1m");
    (0..6).for_each(|_| drop(proxy.get("/api")));
    let out = proxy.await_event(0, &[("member", &bad.address()), ("to", "unhealthy")]);
    assert_eq!(out.text("reason"), "status");
    proxy.await_event(0, &[("member", &bad.address()), ("to", "healthy"), ("from", "unhealthy")]);
    proxy.await_standing(&bad, "healthy");
    // A second offence is remembered.
    (0..6).for_each(|_| drop(proxy.get("/api")));
    eventually("it is out again, for longer", || {
        proxy.events(&[("detail", "traffic: 3 failures in a row, last: 503; offence 2, out for 0.6 s")]).len() == 1
    });
}

#[test]
fn share_of_failures_ejects_where_successes_are_between_them() {
    let (bad, _good, proxy) = failing_and_good("consecutive: 1000, ratio: 50%, min_requests: 10, base: 10m, max: 10m");
    for _ in 0..20 {
        proxy.get("/api");
        proxy.get("/api");
        proxy.get("/fine");
        proxy.get("/fine");
    }
    let event = proxy.await_event(0, &[("member", &bad.address()), ("to", "unhealthy")]);
    assert!(event.text("detail").contains(" failures of "), "{}", event.raw);
}

/// Pools that traffic alone judges.
const NO_JUDGE: [&str; 2] = ["probe: off", "probe: { path: /healthz, interval: 100ms, timeout: 100ms, observe: true }"];

/// Two members that fail all their traffic, until nobody is healthy.
fn fallen(probe: &str, base: &str) -> ([Origin; 2], Proxy) {
    let origins = [Origin::start(), Origin::start()];
    let eject = format!("passive: {{ eject: {{ consecutive: 2, base: {base}, max: 10m }} }}");
    let keys = format!("{probe}\nmax_unhealthy_percent: 100\n{eject}");
    let proxy = Proxy::start(&config_of(&origins.each_ref().map(Origin::to_string), &keys));
    origins.iter().for_each(|origin| origin.answer(Answer::status(503)));
    eventually("both are unhealthy", || {
        proxy.get("/");
        !proxy.events(&[("kind", "fallback"), ("to", "fallback")]).is_empty()
    });
    (origins, proxy)
}

#[test]
fn where_no_probe_judges_the_first_success_ends_the_fallback() {
    for probe in NO_JUDGE {
        let (origins, proxy) = fallen(probe, "10m");
        origins.iter().for_each(|origin| origin.answer(Answer::status(200)));
        assert_eq!(proxy.get("/").status, 200, "{probe}");
        proxy.await_mode("normal");
        proxy.await_event(0, &[("kind", "member"), ("to", "healthy"), ("from", "unhealthy")]);
        let mut standings = origins.map(|origin| proxy.member("web", &origin.address())["standing"].to_string());
        standings.sort();
        assert_eq!(standings, ["\"ejected\"", "\"healthy\""], "{probe}: the other's time still runs");
    }
}

#[test]
fn where_no_probe_judges_time_ends_the_fallback_without_a_request() {
    for probe in NO_JUDGE {
        let (origins, proxy) = fallen(probe, "400ms");
        let requests = || origins.iter().map(Origin::traffic_count).sum::<usize>();
        let before = requests();
        proxy.await_event(0, &[("kind", "fallback"), ("from", "fallback")]);
        origins.iter().for_each(|origin| proxy.await_standing(origin, "healthy"));
        assert_eq!(requests(), before, "{probe}");
    }
}

// Case C12: what is the client's doing, or ours, is never held against a member. One test a way.

const HELD: &str = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn client_that_leaves_before_the_answer_says_nothing_of_the_member() {
    let scene = Scene::new("");
    let (client, gate) = scene.held(HELD);
    drop(client);
    assert_eq!(scene.proxy.access("/held").text("outcome"), "client_aborted");
    gate.open();
    scene.held_nothing_against_it();
}

#[test]
fn client_that_resets_before_the_answer_says_nothing_of_the_member() {
    let scene = Scene::new("");
    let (client, gate) = scene.held(HELD);
    client.reset();
    assert_eq!(scene.proxy.access("/held").text("outcome"), "client_aborted");
    gate.open();
    scene.held_nothing_against_it();
}

#[test]
fn client_that_leaves_in_the_middle_of_an_answer_says_nothing_of_the_member() {
    let scene = Scene::new("");
    let endless = vec![Step::Bytes(chunk_of("some")), Step::Hang];
    scene.origin.when(When::path("/half"), Answer::status(200).field("Transfer-Encoding: chunked").steps(endless));
    for leave in [drop, Connection::reset] {
        let mut client = scene.proxy.connect();
        client.send("GET /half HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().expect("a header").status, 200);
        client.until("some");
        let before = scene.proxy.access_log().len();
        leave(client);
        eventually("the request is over", || scene.proxy.access_log().len() > before);
    }
    scene.held_nothing_against_it();
}

#[test]
fn client_that_leaves_during_its_upload_says_nothing_of_the_member() {
    let scene = Scene::new("");
    for (n, leave) in [drop, Connection::reset].into_iter().enumerate() {
        let path = format!("/upload{n}");
        let mut client = scene.proxy.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf"));
        let came = || scene.origin.traffic().iter().any(|seen| seen.target == path && seen.body == b"half");
        eventually("the first half is with the member", came);
        leave(client);
        assert_eq!(scene.proxy.access(&path).text("outcome"), "client_aborted");
    }
    scene.held_nothing_against_it();
}

#[test]
fn client_that_stalls_its_upload_says_nothing_of_the_member() {
    let scene = Scene::new(SOON);
    let mut client = scene.proxy.connect();
    client.send("PUT /stalls HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf");
    assert_eq!(client.reply().status, 408, "after the member's time, and yet it is the client who was waited for");
    scene.held_nothing_against_it();
}

/// Many a server gives a stalled upload up without an answer, nginx by `client_body_timeout`.
#[test]
fn member_that_gives_a_stalled_upload_up_has_shown_nothing() {
    let ends = [("close", Answer::close().early()), ("reset", Answer::reset().early())];
    let requests = [
        "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf".to_owned(),
        "PUT /held HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n".to_owned(),
        "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n".to_owned(),
    ];
    for (end, answer) in ends {
        let scene = Scene::new("passive: { eject: { consecutive: 1 } }");
        scene.origin.when(When::path("/held"), answer);
        for request in &requests {
            let mut client = scene.proxy.connect();
            client.send(request);
            assert_eq!(client.reply().status, 502, "{end}: {request}");
        }
        assert_eq!(scene.hastened(), 0.0, "{end}: something was held against the member");
        assert!(scene.proxy.events(&[("to", "unhealthy")]).is_empty(), "{end}");
        // A whole one that is given up is another matter.
        assert_eq!(scene.proxy.get("/held").status, 502);
        scene.proxy.await_event(0, &[("to", "unhealthy")]);
    }
}

#[test]
fn malformed_request_says_nothing_of_the_member() {
    let scene = Scene::new("");
    let malformed = [
        "GET /a HTTP/1.1\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    for request in malformed {
        assert_eq!(scene.proxy.connect().send(request).reply().status, 400, "{request}");
    }
    // Known to be wrong only when the member has half of it.
    let mut client = scene.proxy.connect();
    client.send("POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").send(chunk_of("some"));
    eventually("the first chunk is with the member", || {
        scene.origin.traffic().iter().any(|seen| seen.target == "/chunks" && seen.body == b"some")
    });
    client.send("this is no chunk\r\n");
    assert_eq!(client.reply().status, 400);
    scene.held_nothing_against_it();
}

#[test]
fn idle_connection_that_the_member_has_closed_says_nothing_of_it() {
    for (shape, late) in [("close", Answer::close()), ("reset", Answer::reset())] {
        let scene = Scene::new("");
        scene.origin.when(When::reused(), late);
        let mut client = scene.proxy.connect();
        for i in 0..6 {
            assert_eq!(client.get(&format!("/get/{i}")).status, 200, "{shape}");
        }
        let races = || scene.proxy.access_log().iter().filter(|line| line.attempts().len() > 1).count();
        eventually("races were lost", || races() > 0);
        // One that must not be sent again fails, and says as little.
        for i in 0..4 {
            scene.proxy.request("POST", &format!("/post/{i}"), &[], "once");
        }
        eventually("all is logged", || scene.proxy.access_log().len() == 10);
        scene.origin.answer(Answer::status(200));
        scene.held_nothing_against_it();
    }
}

#[test]
fn early_answer_of_4xx_says_nothing_against_the_member() {
    for (path, end) in [("/close", Step::Close), ("/reset", Step::Reset)] {
        let scene = Scene::new("");
        let steps = vec![Step::Bytes(b"too large".to_vec()), end];
        let early = Answer::status(413).field("Connection: close").field("Content-Length: 9").steps(steps);
        scene.origin.when(When::path(path), early.early());
        let mut client = scene.proxy.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")).send([b'x'; 1000]);
        assert_eq!(client.head().expect("an answer").status, 413, "{path}");
        drop(client);
        assert_eq!(scene.proxy.access(path).json["status"], 413);
        scene.held_nothing_against_it();
    }
}

#[test]
fn what_is_a_requests_own_doing_says_nothing_against_the_member() {
    let scene = Scene::new("");
    for status in [400, 404, 408, 429, 500, 501, 505] {
        scene.origin.when(When::path("/answers"), Answer::status(status));
        assert_eq!(scene.proxy.get("/answers").status, status);
    }
    scene.held_nothing_against_it();
}

#[test]
fn answer_that_breaks_off_says_nothing_more_than_it_did() {
    let scene = Scene::new(SOON);
    for (path, end) in [("/close", Step::Close), ("/reset", Step::Reset), ("/silent", Step::Hang)] {
        let steps = vec![Step::Bytes(b"half".to_vec()), end];
        scene.origin.when(When::path(path), Answer::status(200).field("Content-Length: 8").steps(steps));
        let mut client = scene.proxy.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.head().expect("a header").status, 200);
        assert_ne!(scene.proxy.access(path).text("outcome"), "ok", "{path}");
    }
    scene.held_nothing_against_it();
}

#[test]
fn limits_and_refusals_of_our_own_say_nothing_of_the_member() {
    let scene = Scene::new("deadline: 400ms\nmax_in_flight: 1");
    let (mut client, gate) = scene.held(HELD);
    assert_eq!(scene.proxy.get("/refused").status, 503, "one at a time");
    assert_eq!(client.reply().status, 504, "the request's own time is over");
    assert_eq!(scene.proxy.access("/held").text("reason"), "deadline");
    gate.open();
    scene.held_nothing_against_it();
}
