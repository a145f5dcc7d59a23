//! R14: many more clients than descriptors.

use std::thread;
use std::time::Duration;

use crate::figures::{Figures, Scale, ms};
use crate::harness::client::try_request;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::wait::{now, pause};
use crate::harness::{Connection, eventually};
use crate::site::{LogFile, PROBE, Vitals, members, quoted};

/// Threads that open them.
const HANDS: usize = 20;

#[test]
fn r14_more_clients_than_descriptors() {
    let scale = Scale::wanted();
    let (descriptors, clients, hold) = (scale.of(128, 512), scale.of(400, 2_000), scale.of(0, 20));
    let (nginx, log) = (members(4), LogFile::new());
    let config = format!("{}{}", log.key(), config_of(&quoted(&nginx), PROBE));
    let mut proxy = Proxy::start_with_descriptors(&config, descriptors);
    proxy.await_all_healthy();
    let address = proxy.address();
    let crowd = |_| {
        thread::spawn(move || -> Vec<Connection> {
            let open = (0..clients / HANDS).filter_map(|_| Connection::try_open(address).ok());
            let mut open: Vec<Connection> = open.collect();
            open.iter_mut().for_each(|client| drop(client.try_send("GET /crowd HTTP/1.1\r\nHost: a\r\n\r\n")));
            open
        })
    };
    let threads: Vec<_> = (0..HANDS).map(crowd).collect();
    let crowd: Vec<Connection> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    let connected = crowd.len();
    let admin = |path: &str| try_request(proxy.admin(), "GET", path, &[&format!("Host: {}", proxy.admin())], "");
    let answers = |path: &str| admin(path).map_or(0, |reply| reply.status);
    let (livez, readyz, pool) = (answers("/livez"), answers("/readyz"), answers("/api/v1/pools/web"));
    let (began, before) = (now(), Vitals::of(&proxy));
    pause(Duration::from_secs(hold));
    let (held, after) = (began.elapsed(), Vitals::of(&proxy));
    let percent = (after.ticks - before.ticks) as f64 / held.as_secs_f64().max(0.01);
    // Of those who are still there, the ones that were admitted have their answer.
    let mut crowd = crowd;
    let served =
        crowd.iter_mut().filter_map(|client| client.try_reply("GET").ok()).filter(|reply| reply.status == 200).count();
    drop(crowd);
    let gone = now();
    eventually("it serves again", || {
        try_request(address, "GET", "/again", &[], "").is_ok_and(|reply| reply.status == 200)
    });
    let again = gone.elapsed();
    let mut good = 0;
    eventually("twenty in a row are served", || {
        good = if try_request(address, "GET", "/row", &[], "").is_ok_and(|reply| reply.status == 200) {
            good + 1
        } else {
            0
        };
        good == 20
    });
    let (running, blamed) = (proxy.is_running(), proxy.events(&[("to", "unhealthy")]).len());
    proxy.signal("INT");
    let exit = proxy.wait().code();

    let mut figures = Figures::new("R14: more clients than descriptors", scale);
    figures.told("descriptors, clients", format!("{descriptors}, {clients}"));
    figures.told("connected, and answered 200", format!("{connected}, {served}"));
    figures.must("answered 200", served, "> 0", served > 0);
    figures.must("it runs on", running, "true", running);
    figures.must("admin: /livez, /readyz, a pool", format!("{livez}, {readyz}, {pool}"), "200", {
        [livez, readyz, pool] == [200, 200, 200]
    });
    figures.none("members held responsible", blamed);
    figures.must("descriptors used", after.descriptors, "≤ the limit", after.descriptors <= descriptors as usize);
    figures.judged("processor while they stay", format!("{percent:.1} % of one core"), "≤ 20 %", percent <= 20.0);
    figures.judged("they leave → 200", ms(again), "2 s", again <= Duration::from_secs(2));
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.finish();
}
