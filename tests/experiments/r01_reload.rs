//! R1: the configuration is read again and again under load, every fifth time with a mistake.

use std::time::Duration;

use crate::figures::{Figures, Scale, ms};
use crate::harness::nginx::Nginx;
use crate::harness::proxy::{Proxy, completed, config_of};
use crate::harness::wait::{Deadline, now, pause};
use crate::harness::{Answer, Echo, Origin, Scrape, WebSocket, When};
use crate::load::{Connections, Paced, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, Vitals, members, quoted, reached};
use crate::way::{Counted, Way};

/// Good files before it is measured, so that what is warm is compared: pools, allocator and all.
const WARM: usize = 4;

/// From one reload to the next, whatever of it the reload takes: settings are gone for as long in each way.
const PACE: Duration = Duration::from_millis(275);

#[test]
fn r1_reloads_by_signal_under_load() {
    reloads(Way::Signal, "R1: reloads by SIGHUP under load");
}

#[test]
fn r1_reloads_by_api_under_load() {
    reloads(Way::Api, "R1: reloads by the API under load");
}

#[test]
fn r1_reloads_by_file_under_load() {
    reloads(Way::File, "R1: reloads by the file alone under load");
}

fn reloads(way: Way, title: &'static str) {
    let scale = Scale::wanted();
    let (rounds, rate, sockets) = (scale.of(6, 200), scale.of(60, 1_000), scale.of(5, 20));
    let clients = scale.of(4, 12);
    let (nginx, echo, log) = (members(4), Echo::start(), LogFile::new());
    let sick = Origin::start();
    let site = |round| completed(&format!("{}{}{}", log.key(), way.key(), config(&nginx, &sick, &echo, round)));
    let mut proxy = Proxy::start(&site(0));
    proxy.await_all_healthy();
    sick.when(When::probe(), Answer::status(503));
    proxy.await_standing(&sick, "ejected");
    let before_all = sick.traffic_count();

    let mut tunnels: Vec<WebSocket> = (0..sockets).map(|_| WebSocket::open(proxy.address(), "/ws")).collect();
    let wish = |connections, path| Wish { clients, rate, connections, method: "GET", path };
    let loads = [
        Paced::start(proxy.address(), wish(Connections::Kept, "/load/kept")),
        Paced::start(proxy.address(), wish(Connections::New, "/load/new")),
    ];
    let past = Paced::past(&nginx[0]);
    let settle = |time: Duration| {
        loads.iter().for_each(Paced::fence);
        if scale.is_full() {
            pause(time);
        }
    };
    settle(Duration::from_secs(5));
    for round in 1..=WARM {
        way.take(&proxy, &site(round));
        settle(PACE);
    }
    let quiet = now();
    settle(Duration::from_secs(10));
    let (busy, vitals) = (now(), Vitals::of(&proxy));
    let (mut latest, mut open, mut threads, mut open_files) = (Duration::ZERO, sockets, [0; 2], [0; 2]);
    for round in WARM + 1..=WARM + rounds {
        let began = now();
        if round % 5 == 0 {
            way.refused(&proxy, &site(round).replace("routes:", "rutes:"));
        } else {
            way.take(&proxy, &site(round));
            latest = latest.max(began.elapsed());
            assert_eq!(proxy.get(&format!("/live{round}")).status, 200, "the new route is there");
        }
        open = alive(&mut tunnels);
        settle(PACE.saturating_sub(began.elapsed()));
        let present = Vitals::of(&proxy);
        let half = usize::from(round > WARM + rounds / 2);
        threads[half] = present.threads.max(threads[half]);
        open_files[half] = present.descriptors.max(open_files[half]);
    }
    let (over, after) = (now(), Vitals::of(&proxy));
    let [mut kept, new] = loads.map(Paced::finish);
    kept.add(new);
    let past = past.finish();
    let (counted, to_sick) = requests_counted(&proxy, kept.total(), &sick);
    let reloads = Counted::of(&proxy);
    drop(tunnels);
    proxy.signal("INT");
    let exit = proxy.wait().code();

    let log = Logged::read(&log.files(), "/load/");
    let mut figures = Figures::new(title, scale);
    figures.told("reloads", format!("{rounds}, every fifth refused"));
    let refused = (WARM + 1..=WARM + rounds).filter(|round| round % 5 == 0).count();
    let expected = Counted { taken: WARM + rounds - refused, refused, unchanged: 0 };
    figures.must("reloads counted", format!("{reloads:?}"), &format!("{expected:?}"), reloads == expected);
    figures.told("load", format!("{rate} requests/s on kept and {rate} on new connections, {sockets} WebSockets"));
    figures.told("requests", kept.total());
    figures.must("failed", format!("{}: {}", kept.failed(), kept.reasons()), "0", kept.failed() == 0);
    figures.none("kept connections closed", kept.closed);
    figures.none("WebSockets cut", sockets - open);
    figures.none("requests to the ejected member: what it got", sick.traffic_count() - before_all);
    figures.none("the same by the log", log.sent.get(&sick.address()).copied().unwrap_or_default());
    figures.none("the same by the metrics", to_sick);
    figures.same("client, log", kept.total(), log.lines);
    figures.same("client, metrics", kept.total(), counted);
    figures.same("log (attempts), members", log.attempts(), reached(&nginx, "/load/"));
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    let [first, second] = threads;
    let found = format!("{first}, {second}; {} before, {} after", vitals.threads, after.threads);
    figures.must("most threads in the first half, the second", found, "+ 2", second <= first + 2);
    let [first, second] = open_files;
    let found = format!("{first}, {second}; {} before, {} after", vitals.descriptors, after.descriptors);
    figures.judged("most descriptors in the first half, the second", found, "+ 20", second <= first + 20);
    let grown = after.kib as i64 - vitals.kib as i64;
    figures.judged("memory", format!("{} → {} KiB", vitals.kib, after.kib), "+ 10 MiB", grown <= 10 << 10);
    figures.judged(
        "asked for → new configuration in force, at most",
        ms(latest),
        "1 s",
        latest <= Duration::from_secs(1),
    );
    figures.slowest("quiet, while reloading", &kept, &past, [quiet..busy, busy..over]);
    figures.finish();
}

/// Three of the four in turn and the sick one; the balance, a timeout and a route change with them. Pooled connections of
/// settings that are gone wait for 10 s, so that descriptors have reached their level within the first half of it.
fn config(nginx: &[Nginx], sick: &Origin, echo: &Echo, round: usize) -> String {
    let left_out = round % nginx.len();
    let mut members = quoted(nginx);
    members.remove(left_out);
    members.push(sick.to_string());
    let balance = ["round_robin", "least_requests", "random"][round % 3];
    let timeout = 20 + round % 7;
    let keys = format!("{PROBE}\nbalance: {balance}\nupstream: {{ read_timeout: {timeout}s, idle_timeout: 10s }}");
    let ws = format!("  ws: {{ members: [\"{}\"], probe: off }}\nroutes:", echo.address());
    let routes = format!("[{{ pool: web }}, {{ path: /ws, pool: ws }}, {{ path: /live{round}, pool: web }}]");
    config_of(&members, &keys).replace("routes:", &ws).replace("[{ pool: web }]", &routes)
}

/// Requests of the load as the metrics have them, once they have all or patience is over, and attempts at the sick one. The
/// route that all of it takes is in every file; those to see a file by are not.
fn requests_counted(proxy: &Proxy, all: usize, sick: &Origin) -> (usize, usize) {
    let deadline = Deadline::new();
    loop {
        let scrape = Scrape::of(proxy);
        let sum = |start: &str, wanted: &dyn Fn(&str) -> bool| {
            scrape.beginning(start).iter().filter(|(series, _)| wanted(series)).map(|(_, value)| *value as usize).sum()
        };
        let counted = sum("requests_total{", &|series| series.contains("pool=\"web\"") && !series.contains("/live"));
        let to_sick = sum("upstream_attempts_total{", &|series| series.contains(&sick.address()));
        if counted >= all || deadline.left().is_none() {
            return (counted, to_sick);
        }
        pause(Duration::from_millis(20));
    }
}

/// How many are still there.
fn alive(tunnels: &mut [WebSocket]) -> usize {
    tunnels.iter_mut().filter_map(|socket| socket.try_say("there?")).filter(|said| said == "there?").count()
}
