//! R5: SIGTERM under load, with downloads, uploads and WebSockets under way, behind a balancer that looks at readiness.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::figures::{Figures, Scale, ms};
use crate::harness::client::try_request;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::script::chunk_of;
use crate::harness::wait::{now, pause};
use crate::harness::{Answer, Connection, Echo, Origin, Step, WebSocket, When, eventually};
use crate::load::{Connections, Paced, Tally, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, members, quoted, reached};

/// Parts of a download or an upload.
const PARTS: usize = 20;

#[test]
fn r5_sigterm_under_load() {
    let scale = Scale::wanted();
    let (rate, downloads, uploads) = (scale.of(60, 250), scale.of(10, 50), scale.of(5, 20));
    let (part_down, part_up) = (scale.of(100, 500), scale.of(50, 250));
    let look = Duration::from_millis(scale.of(50, 1_000));
    let (nginx, slow, echo, log) = (members(4), Origin::start(), Echo::start(), LogFile::new());
    let parts = (0..PARTS).flat_map(|_| [Step::Bytes(chunk_of("part")), Step::Pause(Duration::from_millis(part_down))]);
    let steps = parts.chain([Step::Bytes(b"0\r\n\r\n".to_vec())]).collect();
    slow.when(When::path("/slow/down"), Answer::status(200).field("Transfer-Encoding: chunked").steps(steps));
    let pools = format!(
        "  slow: {{ members: [{slow}], probe: off }}\n  ws: {{ members: [\"{}\"], probe: off }}\nroutes:",
        echo.address()
    );
    let config = config_of(&quoted(&nginx), PROBE)
        .replace("routes:", &pools)
        .replace("[{ pool: web }]", "[{ pool: web }, { path: /slow, pool: slow }, { path: /ws, pool: ws }]");
    // Long enough for two looks of the balancer, even where one is late.
    let mut proxy = Proxy::start(&format!("lame_duck: 3s\ndrain_timeout: 60s\n{}{config}", log.key()));
    proxy.await_all_healthy();

    let wish = |connections, path| Wish { clients: 8, rate, connections, method: "GET", path };
    let loads = [
        Paced::start(proxy.address(), wish(Connections::Kept, "/load/kept")),
        Paced::start(proxy.address(), wish(Connections::New, "/load/new")),
    ];
    let mut idle: Vec<Connection> = (0..10).map(|_| proxy.connect()).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.get("/idle").status, 200));
    let mut socket = WebSocket::open(proxy.address(), "/ws");
    let down: Vec<JoinHandle<bool>> = (0..downloads).map(|_| download(proxy.connect())).collect();
    let up: Vec<JoinHandle<bool>> = (0..uploads).map(|_| upload(proxy.connect(), part_up)).collect();
    eventually("all are under way", || slow.traffic_count() == downloads + uploads);
    loads.iter().for_each(Paced::fence);

    let began = now();
    proxy.signal("TERM");
    let admin = proxy.admin();
    let readiness =
        || try_request(admin, "GET", "/readyz", &[&format!("Host: {admin}")], "").map_or(0, |reply| reply.status);
    // Its next look is as far away as can be.
    pause(look);
    while readiness() == 200 {
        pause(look);
    }
    let noticed = began.elapsed();
    // The balancer sends nobody any more; whoever has been sent is answered.
    loads.iter().for_each(Paced::stop);
    let [mut tally, new] = loads.map(Paced::finish);
    tally.add(new);
    let accepting = Connection::try_open(proxy.address()).is_ok();
    let mut not_ready = true;
    eventually("new connections are refused", || {
        not_ready &= readiness() == 503;
        Connection::try_open(proxy.address()).is_err()
    });
    let kept_for = began.elapsed();
    let in_order = idle.iter_mut().filter_map(|client| client.rest().ok()).count();
    drop(idle);
    let tunnel = socket.try_say("still").as_deref() == Some("still");
    let whole =
        |threads: Vec<JoinHandle<bool>>| threads.into_iter().filter_map(|t| t.join().ok()).filter(|w| *w).count();
    let (down, up) = (whole(down), whole(up));
    // Nothing but the WebSocket is left, and the process waits for it.
    not_ready &= readiness() == 503 && proxy.is_running();
    let last = now();
    socket.close();
    let exit = proxy.wait().code();
    let ended = last.elapsed();

    let (load, slowly) = (Logged::read(&log.files(), "/load/"), Logged::read(&log.files(), "/slow/"));
    let mut figures = Figures::new("R5: SIGTERM under load", scale);
    figures.told("load", format!("{rate} requests/s on kept and {rate} on new connections until readiness is 503"));
    figures.must(
        "failed",
        format!("{} of {}: {}", tally.failed(), tally.total(), tally.reasons()),
        "0",
        tally.failed() == 0,
    );
    figures.must("downloads whole", format!("{down} of {downloads}"), "all", down == downloads);
    figures.must("uploads whole", format!("{up} of {uploads}"), "all", up == uploads);
    figures.must("WebSocket after the listener has closed", tunnel, "true", tunnel);
    figures.must("still accepting once readiness is seen to be 503", accepting, "true", accepting);
    figures.must("readiness is 503 until the end", not_ready, "true", not_ready);
    figures.must("idle connections closed in order", format!("{in_order} of 10"), "all", in_order == 10);
    figures.told("signal → noticed in front", ms(noticed));
    figures.must("signal → refused", ms(kept_for), "≥ lame_duck, 3 s", kept_for >= Duration::from_secs(3));
    figures.judged("last tunnel closed → exit", ms(ended), "1 s", ended <= Duration::from_secs(1));
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.same("client, log", tally.total(), load.lines);
    figures.same("log (attempts), members", load.attempts(), reached(&nginx, "/load/"));
    figures.same("downloads and uploads, log", down + up, slowly.statuses.get(&200).copied().unwrap_or_default());
    figures.finish();
}

/// Without a lame duck nobody is warned: who comes too late is refused, and nobody who was let in goes without an answer.
#[test]
fn r5_sigint_under_load() {
    let scale = Scale::wanted();
    let (rate, rounds) = (scale.of(60, 500), scale.of(2, 20));
    let mut all = Tally::default();
    let (mut lines, mut attempts, mut ends, mut reached_them) = (0, 0, 0, 0);
    for _ in 0..rounds {
        let (nginx, log) = (members(2), LogFile::new());
        let mut proxy = Proxy::start(&format!("{}{}", log.key(), config_of(&quoted(&nginx), PROBE)));
        proxy.await_all_healthy();
        let wish = |connections, path| Wish { clients: 8, rate, connections, method: "GET", path };
        let loads = [
            Paced::start(proxy.address(), wish(Connections::Kept, "/load/kept")),
            Paced::start(proxy.address(), wish(Connections::New, "/load/new")),
        ];
        loads.iter().for_each(|load| load.await_each(5));
        proxy.signal("INT");
        ends += usize::from(proxy.wait().code() == Some(0));
        let [mut tally, new] = loads.map(Paced::finish);
        tally.add(new);
        let logged = Logged::read(&log.files(), "/load/");
        (lines, attempts) = (lines + logged.lines, attempts + logged.attempts());
        reached_them += reached(&nginx, "/load/");
        all.add(tally);
    }
    let answered: usize = all.statuses.values().sum();
    let refused = all.failures.iter().filter(|reason| reason.starts_with("connect: ")).count();
    let lost = all.failures.len() - refused;
    all.failures.retain(|reason| !reason.starts_with("connect: "));
    let mut figures = Figures::new("R5: SIGINT under load", scale);
    figures.told("rounds", format!("{rounds}, each {rate} requests/s on kept and {rate} on new connections"));
    figures.told("answered, refused", format!("{answered}, {refused}"));
    figures.none("answers that are no 200", answered - all.statuses.get(&200).copied().unwrap_or_default());
    // The kernel may take in one more between the last look into its queue and the close.
    figures.must("let in and not answered", format!("{lost}: {}", all.reasons()), "≤ 1 a round", lost <= rounds);
    figures.same("client (answered), log", answered, lines);
    figures.same("log (attempts), members", attempts, reached_them);
    figures.must("ended in order", ends, "all", ends == rounds);
    figures.finish();
}

/// Whether all of it comes.
fn download(mut client: Connection) -> JoinHandle<bool> {
    thread::spawn(move || {
        client.send("GET /slow/down HTTP/1.1\r\nHost: a\r\n\r\n");
        client.try_reply("GET").is_ok_and(|reply| reply.complete && reply.body.len() == PARTS * 4)
    })
}

/// Whether it is answered once all of it was sent.
fn upload(mut client: Connection, pace: u64) -> JoinHandle<bool> {
    thread::spawn(move || {
        let length = PARTS * 4;
        client.send(format!("POST /slow/up HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        for _ in 0..PARTS {
            pause(Duration::from_millis(pace));
            client.send("part");
        }
        client.try_reply("POST").is_ok_and(|reply| reply.status == 200 && reply.complete)
    })
}
