//! Requests that wait for a member which turns out not to answer (health.md §6, rescue).

use crate::harness::client::{Connection, Reply};
use crate::harness::nginx::Nginx;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Gate, Load, Origin, Step, When, eventually};
use crate::limit_cases::black_hole;

/// Nobody but a rescue ends the wait for a member within the patience of a case; two fails are enough.
const KEYS: &str = "probe: { path: /healthz, interval: 200ms, fast_interval: 100ms, timeout: 100ms, \
                    consecutive: { failures: 2, passes: 2 } }\nupstream: { read_timeout: 10m }\nretries: { budget: 0% }";

/// Two members; what asks for `/held` waits at the first, and is answered `stays` once the gate opens. The second answers
/// `good`.
struct Scene {
    held: Origin,
    good: Origin,
    gate: Gate,
    proxy: Proxy,
}

impl Scene {
    fn new(more: &str) -> Scene {
        let (held, good, gate) = (Origin::start(), Origin::start(), Gate::new());
        held.when(When::path("/held"), Answer::status(200).body("stays").held_by(&gate));
        good.answer(Answer::status(200).body("good"));
        let proxy = Proxy::start(&config_of(&[held.to_string(), good.to_string()], &format!("{KEYS}\n{more}")));
        proxy.await_all_healthy();
        Scene { held, good, gate, proxy }
    }

    /// Two requests in turn, one of which waits at the first member by now.
    fn two_sent(&self, request: &str) -> [Connection; 2] {
        let clients = [(); 2].map(|()| {
            let mut client = self.proxy.connect();
            client.send(request);
            client
        });
        eventually("one waits at the first member", || self.gate.waiting() == 1);
        clients
    }

    /// Probes of the first member find nobody from now on, until it is out.
    fn stops_answering_probes(&self) {
        self.held.when(When::probe(), Answer::hang());
        self.proxy.await_standing(&self.held, "ejected");
    }

    /// What both are answered, in the order of the alphabet, when the gate opens once the member is out.
    fn answers(&self, mut clients: [Connection; 2]) -> Vec<String> {
        self.stops_answering_probes();
        // Whoever was not rescued by its fall is not any more.
        self.gate.open();
        let mut bodies: Vec<_> = clients.iter_mut().map(|client| client.reply()).map(body).collect();
        bodies.sort_unstable();
        bodies
    }

    fn rescued(&self) -> usize {
        let is_rescued = |attempt: &serde_json::Value| attempt["result"] == "rescued";
        self.proxy.access_log().iter().flat_map(|line| line.attempts().to_vec()).filter(is_rescued).count()
    }
}

fn body(reply: Reply) -> String {
    assert_eq!((reply.status, reply.complete), (200, true), "{}", reply.text());
    reply.text()
}

const GET: &str = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn get_that_waits_for_a_member_that_falls_is_answered_by_another_at_once() {
    let scene = Scene::new("");
    let mut clients = scene.two_sent(GET);
    scene.stops_answering_probes();
    // The gate is shut: only the other member can have answered.
    for client in &mut clients {
        let reply = client.reply();
        assert_eq!((reply.status, reply.text().as_str()), (200, "good"));
        assert_eq!(client.get("/next").status, 200, "the client's connection goes on");
    }
    let line = scene.proxy.await_access("the rescued one", |line| line.attempts().len() == 2);
    assert_eq!(line.tried(), [scene.held.address(), scene.good.address()], "{}", line.raw);
    let results: Vec<_> = line.attempts().iter().map(|attempt| attempt["result"].as_str()).collect();
    assert_eq!(results, [Some("rescued"), Some("ok")], "{}", line.raw);
    assert!(line.has(&[("outcome", "ok"), ("reason", "-")]), "{}", line.raw);
    assert_eq!(line.json["lb"]["reason"], "retry", "{}", line.raw);
    let text = scene.proxy.admin_get("/metrics").text();
    assert!(text.contains("pulsegate_retries_total{pool=\"web\",reason=\"rescued\"} 1"), "{text}");
    scene.gate.open();
}

#[test]
fn small_body_goes_to_the_other_member_whole() {
    let scene = Scene::new("");
    let mut clients = scene.two_sent("PUT /held HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    scene.stops_answering_probes();
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "good"));
    assert!(scene.good.traffic().iter().all(|seen| seen.body == b"body" && seen.complete));
    assert_eq!(scene.good.traffic_count(), 2);
    scene.gate.open();
}

#[test]
fn what_must_not_be_sent_twice_stays_where_it_is() {
    let large = "x".repeat(100_000);
    let requests = [
        "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nonce".to_owned(),
        format!("PUT /held HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{large}", large.len()),
    ];
    for request in requests {
        let scene = Scene::new("");
        let clients = scene.two_sent(&request);
        assert_eq!(scene.answers(clients), ["good", "stays"], "{}", &request[..4]);
        assert_eq!((scene.held.traffic_count(), scene.good.traffic_count()), (1, 1));
    }
}

#[test]
fn it_can_be_switched_off_and_is_without_retries() {
    for keys in ["rescue: false", "retries: { attempts: 1 }"] {
        let scene = if keys.starts_with("retries") {
            let (held, good, gate) = (Origin::start(), Origin::start(), Gate::new());
            held.when(When::path("/held"), Answer::status(200).body("stays").held_by(&gate));
            good.answer(Answer::status(200).body("good"));
            let all = KEYS.replace("retries: { budget: 0% }", keys);
            let proxy = Proxy::start(&config_of(&[held.to_string(), good.to_string()], &all));
            proxy.await_all_healthy();
            Scene { held, good, gate, proxy }
        } else {
            Scene::new(keys)
        };
        let clients = scene.two_sent(GET);
        assert_eq!(scene.answers(clients), ["good", "stays"], "{keys}");
        assert_eq!(scene.rescued(), 0, "{keys}");
    }
}

#[test]
fn member_that_answers_wrongly_still_answers() {
    let scene = Scene::new("");
    let mut clients = scene.two_sent(GET);
    scene.held.when(When::probe(), Answer::status(500));
    scene.proxy.await_standing(&scene.held, "ejected");
    scene.gate.open();
    let mut bodies: Vec<_> = clients.iter_mut().map(|client| client.reply()).map(body).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, ["good", "stays"]);
}

#[test]
fn answer_that_has_begun_is_not_begun_again() {
    let scene = Scene::new("");
    let gate = Gate::new();
    let steps = vec![Step::Hold(gate.clone()), Step::Bytes(b"rest".to_vec())];
    scene.held.when(When::path("/begun"), Answer::status(200).field("Content-Length: 4").steps(steps));
    let mut clients = [(); 2].map(|()| {
        let mut client = scene.proxy.connect();
        client.send("GET /begun HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().expect("a header").status, 200);
        client
    });
    scene.stops_answering_probes();
    gate.open();
    let mut bodies: Vec<_> = clients.iter_mut().map(|client| client.take(4)).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, ["good", "rest"]);
}

#[test]
fn nobody_is_called_away_where_there_is_nowhere_to_go() {
    let (held, gate) = (Origin::start(), Gate::new());
    held.when(When::path("/held"), Answer::status(200).body("stays").held_by(&gate));
    let proxy = Proxy::start(&config_of(&[held.to_string()], KEYS));
    proxy.await_all_healthy();
    let mut client = proxy.connect();
    client.send(GET);
    eventually("it waits", || gate.waiting() == 1);
    held.when(When::probe(), Answer::hang());
    proxy.await_mode("fallback");
    gate.open();
    assert_eq!(client.reply().text(), "stays");
    assert_eq!(held.traffic_count(), 1);
}

#[test]
fn requests_that_had_nowhere_to_go_are_rescued_when_somebody_answers_again() {
    for keys in ["", "on_all_unhealthy: fail"] {
        let scene = Scene::new(keys);
        scene.good.when(When::probe(), Answer::hang());
        scene.proxy.await_standing(&scene.good, "ejected");
        let mut clients = both_sent(&scene.proxy);
        eventually("both wait where nobody else answers", || scene.gate.waiting() == 2);
        scene.held.when(When::probe(), Answer::hang());
        scene.proxy.await_mode(if keys.is_empty() { "fallback" } else { "down" });
        scene.good.when(When::probe(), Answer::status(200));
        // The gate is shut, and their member still does not answer.
        clients.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "good", "{keys}"));
        scene.proxy.settle_access_log("/sentinel");
        let lines: Vec<_> = scene.proxy.access_log().into_iter().filter(|line| line.text("path") == "/held").collect();
        assert_eq!(lines.len(), 2);
        for line in lines {
            assert_eq!(line.tried(), [scene.held.address(), scene.good.address()], "{}", line.raw);
            // Nobody was sent to the other one before it answered.
            let (first, second) = (&line.attempts()[0], &line.attempts()[1]);
            assert_eq!((&first["result"], &second["standing"]), (&"rescued".into(), &"healthy".into()), "{}", line.raw);
        }
        scene.gate.open();
    }
}

#[test]
fn requests_that_the_fallback_sent_to_the_dead_are_rescued_when_somebody_answers_again() {
    let ((dead, at_dead), (back, at_back)) = (holding(), holding());
    let proxy = Proxy::start(&config_of(&[dead.to_string(), back.to_string()], KEYS));
    proxy.await_all_healthy();
    [&dead, &back].iter().for_each(|origin| origin.when(When::probe(), Answer::hang()));
    proxy.await_mode("fallback");
    let mut clients = both_sent(&proxy);
    eventually("one waits at each", || (at_dead.waiting(), at_back.waiting()) == (1, 1));
    back.when(When::probe(), Answer::status(200));
    eventually("both wait at the one that is back", || at_back.waiting() == 2);
    at_back.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "stays"));
    at_dead.open();
}

/// A member in this tier.
fn in_tier(origin: &Origin, tier: u8) -> String {
    format!("{{ address: \"{}\", tier: {tier} }}", origin.address())
}

/// One that keeps what asks for `/held` until its gate opens.
fn holding() -> (Origin, Gate) {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/held"), Answer::status(200).body("stays").held_by(&gate));
    (origin, gate)
}

fn both_sent(proxy: &Proxy) -> [Connection; 2] {
    [(); 2].map(|()| {
        let mut client = proxy.connect();
        client.send(GET);
        client
    })
}

#[test]
fn request_at_the_last_of_its_tier_goes_to_the_next_tier_when_that_falls() {
    let ((held, gate), good) = (holding(), Origin::start());
    good.answer(Answer::status(200).body("good"));
    let proxy = Proxy::start(&config_of(&[in_tier(&held, 0), in_tier(&good, 1)], KEYS));
    proxy.await_standing(&held, "healthy");
    proxy.await_standing(&good, "standby");
    let mut client = proxy.connect();
    client.send(GET);
    eventually("it waits", || gate.waiting() == 1);
    held.when(When::probe(), Answer::hang());
    assert_eq!(client.reply().text(), "good");
    gate.open();
}

#[test]
fn request_goes_to_one_that_came_back_after_it_was_sent() {
    let scene = Scene::new("");
    scene.good.when(When::probe(), Answer::status(500));
    scene.proxy.await_standing(&scene.good, "ejected");
    let mut clients = both_sent(&scene.proxy);
    eventually("both wait where nobody else may serve", || scene.gate.waiting() == 2);
    scene.good.when(When::probe(), Answer::status(200));
    scene.proxy.await_standing(&scene.good, "healthy");
    scene.stops_answering_probes();
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "good"));
    scene.gate.open();
}

#[test]
fn request_goes_to_one_that_could_not_be_dialled_when_it_was_sent() {
    let scene = Scene::new("");
    scene.good.stop();
    let mut clients = both_sent(&scene.proxy);
    eventually("both wait where somebody takes them", || scene.gate.waiting() == 2);
    scene.proxy.await_standing(&scene.good, "ejected");
    scene.good.start_again();
    scene.proxy.await_standing(&scene.good, "healthy");
    scene.stops_answering_probes();
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "good"));
    scene.gate.open();
}

#[test]
fn request_is_rescued_again_from_the_next_one_that_falls() {
    let ((first, at_first), (second, at_second), good) = (holding(), holding(), Origin::start());
    good.answer(Answer::status(200).body("good"));
    let members = [in_tier(&first, 0), in_tier(&second, 0), in_tier(&good, 1)];
    let proxy = Proxy::start(&config_of(&members, KEYS));
    [&first, &second].iter().for_each(|origin| proxy.await_standing(origin, "healthy"));
    proxy.await_standing(&good, "standby");
    let mut clients = both_sent(&proxy);
    eventually("one waits at each", || (at_first.waiting(), at_second.waiting()) == (1, 1));
    first.when(When::probe(), Answer::hang());
    eventually("both wait at the second", || at_second.waiting() == 2);
    second.when(When::probe(), Answer::hang());
    clients.iter_mut().for_each(|client| assert_eq!(client.reply().text(), "good"));
    let line = proxy.await_access("the one that was rescued twice", |line| line.attempts().len() == 3);
    let results: Vec<_> = line.attempts().iter().map(|attempt| attempt["result"].as_str()).collect();
    assert_eq!(results, [Some("rescued"), Some("rescued"), Some("ok")], "{}", line.raw);
    [at_first, at_second].iter().for_each(Gate::open);
}

#[test]
fn one_that_falls_while_its_request_is_elsewhere_disturbs_nobody() {
    let scene = Scene::new("");
    scene.stops_answering_probes();
    let mut client = scene.proxy.connect();
    (0..50).for_each(|i| assert_eq!(client.get(&format!("/{i}")).text(), "good"));
    assert_eq!(scene.rescued(), 0);
}

/// Experiment R7 in short: one of three freezes under load, and no GET is lost for it, though nobody gives up on a read.
#[test]
fn frozen_member_under_load_costs_no_get() {
    let (frozen, good, other) = (Nginx::start(), Origin::start(), Origin::start());
    let members =
        [frozen.address(), good.to_string(), other.to_string()].map(|m| format!("\"{}\"", m.trim_matches('"')));
    let proxy = Proxy::start(&config_of(&members, KEYS));
    proxy.await_all_healthy();
    let load = Load::start(proxy.address(), 12, "/load");
    load.await_each(5);
    let mark = proxy.mark();
    frozen.signal("STOP");
    let event = proxy.await_event(mark, &[("member", &frozen.address()), ("to", "unhealthy")]);
    assert_eq!(event.text("reason"), "timeout", "{}", event.raw);
    // Everyone has been answered since: nobody waits for it any more.
    load.await_each(5);
    load.finish().assert_all_ok();
    frozen.signal("CONT");
    let rescued = |line: &crate::harness::Line| line.attempts().iter().any(|attempt| attempt["result"] == "rescued");
    let line = proxy.await_access("one that was rescued", rescued);
    assert!(line.has(&[("outcome", "ok")]), "{}", line.raw);
}

/// Probes are made when a case asks for one, and their `timeout` is beyond its patience.
const BY_HAND: &str = "probe: { path: /healthz, interval: 10m, fast_interval: 10m, timeout: 10m, \
                       consecutive: { failures: FAILURES, passes: 1 } }\n\
                       upstream: { read_timeout: 10m }\nretries: { budget: 0% }";

fn by_hand(failures: u32) -> String {
    BY_HAND.replace("FAILURES", &failures.to_string())
}

/// Has a member probed, which answers like this from now on.
fn probed(proxy: &Proxy, origin: &Origin, answer: Answer) {
    let last = || proxy.member("web", &origin.address())["last_probe"]["at"].clone();
    let before = last();
    origin.when(When::probe(), answer);
    let reply = proxy.admin_post(&action(origin, "probe"), &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    eventually("its probe is over", || last() != before);
}

fn action(origin: &Origin, action: &str) -> String {
    format!("/api/v1/pools/web/members/{}/{action}", origin.address())
}

/// Requests, one after another, until one waits at this gate; whoever does not has its answer.
fn sent_until_one_waits(proxy: &Proxy, gate: &Gate, request: &str) -> Connection {
    for _ in 0..20 {
        let mut client = proxy.connect();
        let came = gate.came();
        client.send(request);
        let mut is_answered = false;
        eventually("it waits there or is answered", || {
            is_answered = !client.stray(std::time::Duration::from_millis(10)).is_empty();
            is_answered || gate.came() > came
        });
        if !is_answered {
            return client;
        }
    }
    panic!("nobody was sent there");
}

const POST: &str = "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nonce";

#[test]
fn get_at_a_kept_member_that_does_not_answer_leaves_it_after_the_timeout_of_its_probe() {
    let ((one, at_one), (other, at_other), good) = (holding(), holding(), Origin::start());
    good.answer(Answer::status(200).body("good"));
    let served = Answer::status(200).body("kept");
    [&one, &other].iter().for_each(|origin| origin.when(When::path("/served"), served.clone()));
    let keys = "probe: { path: /healthz, interval: 1s, fast_interval: 1s, timeout: 1s, \
                consecutive: { failures: 2, passes: 2 } }\nupstream: { read_timeout: 10m }\nretries: { budget: 0% }\n\
                max_unhealthy_percent: 34";
    let members = [one.to_string(), other.to_string(), good.to_string()];
    let proxy = Proxy::start(&config_of(&members, keys));
    proxy.await_all_healthy();
    [&one, &other].iter().for_each(|origin| origin.when(When::probe(), Answer::reset()));
    let standing = |origin: &Origin| proxy.member("web", &origin.address())["standing"].clone();
    eventually("one is out, one is kept", || {
        let mut both = [standing(&one), standing(&other)].map(|standing| standing.as_str().unwrap_or("").to_owned());
        both.sort_unstable();
        both == ["ejected", "kept"]
    });
    let kept_is_one = standing(&one) == "kept";
    let (kept, gate) = if kept_is_one { (&one, &at_one) } else { (&other, &at_other) };
    let mut post = sent_until_one_waits(&proxy, gate, POST);
    let mut clients: Vec<_> = (0..4).flat_map(|_| both_sent(&proxy)).collect();
    // The gate is shut: only the healthy one can have answered.
    clients.iter_mut().for_each(|client| assert_eq!(body(client.reply()), "good"));
    proxy.settle_access_log("/sentinel");
    let lines = proxy.access_log();
    let left: Vec<_> = lines.iter().filter(|line| line.attempts().len() == 2).collect();
    assert!(!left.is_empty(), "the cap has sent some of them there");
    for line in left {
        assert_eq!(line.tried(), [kept.address(), good.address()], "{}", line.raw);
        let first = &line.attempts()[0];
        assert_eq!((&first["result"], &first["standing"]), (&"rescued".into(), &"kept".into()), "{}", line.raw);
        assert!(first["duration_ms"].as_f64() >= Some(1_000.0), "as long as its probe has: {}", line.raw);
    }
    // It is a member like any other to those whom it answers.
    eventually("it serves", || proxy.get("/served").text() == "kept");
    gate.open();
    assert_eq!(body(post.reply()), "stays", "what must not be sent twice");
}

#[test]
fn get_at_a_kept_member_leaves_it_at_once_when_that_is_ejected() {
    let ((out, at_out), (kept, at_kept), good) = (holding(), holding(), Origin::start());
    at_out.open();
    good.answer(Answer::status(200).body("good"));
    let members = [out.to_string(), kept.to_string(), good.to_string()];
    let proxy = Proxy::start(&config_of(&members, &format!("{}\nmax_unhealthy_percent: 34", by_hand(1))));
    proxy.await_all_healthy();
    probed(&proxy, &out, Answer::reset());
    proxy.await_standing(&out, "ejected");
    probed(&proxy, &kept, Answer::reset());
    proxy.await_standing(&kept, "kept");
    let mut client = sent_until_one_waits(&proxy, &at_kept, GET);
    probed(&proxy, &out, Answer::status(200));
    proxy.await_standing(&kept, "ejected");
    assert_eq!(client.reply().status, 200, "its gate is shut");
    let line = proxy.await_access("the rescued one", |line| line.attempts().len() == 2);
    assert_eq!(line.attempts()[0]["result"], "rescued", "{}", line.raw);
    at_kept.open();
}

#[test]
fn get_leaves_a_member_that_is_taken_out_by_hand_when_its_last_probe_had_no_answer() {
    for (last, rescued) in [(Answer::reset(), true), (Answer::status(500), false), (Answer::status(200), false)] {
        for how in ["disable", "disabled in the file", "removed"] {
            let ((held, gate), good) = (holding(), Origin::start());
            good.answer(Answer::status(200).body("good"));
            let both = config_of(&[held.to_string(), good.to_string()], &by_hand(3));
            let proxy = Proxy::start(&both);
            proxy.await_all_healthy();
            let mut client = sent_until_one_waits(&proxy, &gate, GET);
            probed(&proxy, &held, last.clone());
            proxy.await_standing(&held, "healthy");
            match how {
                "disable" => assert_eq!(proxy.admin_post(&action(&held, how), &[]).status, 200),
                "removed" => proxy.reload(&config_of(&[good.to_string()], &by_hand(3))),
                _ => {
                    let disabled = format!("{{ address: {held}, state: disabled }}");
                    proxy.reload(&config_of(&[disabled, good.to_string()], &by_hand(3)));
                }
            }
            if !rescued {
                gate.open();
            }
            let expected = if rescued { "good" } else { "stays" };
            assert_eq!(body(client.reply()), expected, "{how}");
            gate.open();
        }
    }
}

/// Both drivers; with connections counted and not, since those that are counted are dialled by a connector of our own.
#[test]
fn whatever_waits_for_a_dial_leaves_a_member_that_falls() {
    for counted in ["", "each_member: { max_connections: 8 }"] {
        let (good, (_hole, address)) = (Origin::start(), black_hole());
        good.answer(Answer::status(200).body("good"));
        let keys = format!(
            "initial: healthy\nprobe: {{ path: /healthz, interval: 1s, fast_interval: 1s, timeout: 1s, \
             consecutive: {{ failures: 5, passes: 1 }} }}\nupstream: {{ connect_timeout: 10m }}\n{counted}"
        );
        let hole = format!("{{ address: \"{address}\", tier: 0 }}");
        let proxy = Proxy::start(&config_of(&[hole, in_tier(&good, 1)], &keys));
        let requests = [
            "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /other HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n",
            "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            "POST /once HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nonce",
        ];
        let mut clients = requests.map(|request| {
            let mut client = proxy.connect();
            client.send(request);
            client
        });
        let in_flight = || proxy.member("web", &address.to_string())["in_flight"].clone();
        eventually("all are dialled for", || in_flight() == requests.len());
        clients.iter_mut().for_each(|client| assert_eq!(body(client.reply()), "good"));
        for path in ["/plain", "/other", "/tunnel", "/once"] {
            let line = proxy.access(path);
            assert_eq!(line.tried(), [address.to_string(), good.address()], "{}", line.raw);
            assert_eq!(line.attempts()[0]["result"], "rescued", "{}", line.raw);
        }
        assert_eq!(in_flight(), 0);
        assert!(good.traffic().iter().any(|seen| seen.body == b"once"));
    }
}
