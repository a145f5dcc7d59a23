//! R6: one of four members is killed under load, and started again.

use std::time::Duration;

use crate::figures::{Figures, Scale, ms};
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::wait::{now, pause};
use crate::load::{Connections, Paced, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, members, quoted, reached, sample, twice};

/// One request at a time each, so that as many can be in flight.
const CLIENTS: usize = 8;

#[test]
fn r6_one_of_four_is_killed() {
    let scale = Scale::wanted();
    let (gets, posts, rounds) = (scale.of(100, 800), scale.of(40, 200), scale.of(1, 5));
    let settle = Duration::from_secs(scale.of(0, 5));
    let (mut nginx, log) = (members(4), LogFile::new());
    let mut proxy = Proxy::start(&format!("{}{}", log.key(), config_of(&quoted(&nginx), PROBE)));
    proxy.await_all_healthy();
    let wish = |rate, method, path| Wish { clients: CLIENTS, rate, connections: Connections::Kept, method, path };
    let get = Paced::start(proxy.address(), wish(gets, "GET", "/load/get"));
    let post = Paced::start(proxy.address(), wish(posts, "POST", "/load/post"));
    let name = nginx[1].address();
    let (mut detected, mut back, mut late) = (Duration::ZERO, Duration::ZERO, 0);
    for _ in 0..rounds {
        get.fence();
        pause(settle);
        let (mark, began) = (proxy.mark(), now());
        nginx[1].kill();
        proxy.await_event(mark, &[("kind", "member"), ("member", &name), ("to", "unhealthy")]);
        detected = detected.max(began.elapsed());
        get.fence();
        late += sample(&proxy, &log, "/after-kill", 40).sent.get(&name).copied().unwrap_or_default();
        pause(settle);
        let (mark, began) = (proxy.mark(), now());
        nginx[1].start_again();
        proxy.await_event(mark, &[("kind", "member"), ("member", &name), ("to", "healthy")]);
        back = back.max(began.elapsed());
        post.fence();
    }
    let share = sample(&proxy, &log, "/after-restart", 40).sent.get(&name).copied().unwrap_or_default();
    let (get, post) = (get.finish(), post.finish());
    proxy.signal("INT");
    let exit = proxy.wait().code();

    let mut figures = Figures::new("R6: one of four is killed", scale);
    let (logged, reached) = (Logged::read(&log.files(), "/load/"), reached(&nginx, "/load/"));
    let in_flight = CLIENTS * rounds;
    figures.told("kills and restarts", rounds);
    figures.told("load", format!("{gets} GET/s and {posts} POST/s on kept connections"));
    let broken = get.failures.iter().filter(|reason| reason.contains("broke off")).count();
    figures.must(
        "GET failed",
        format!("{} of {}: {}", get.failed(), get.total(), get.reasons()),
        "0",
        get.failed() == broken,
    );
    figures.must("GET cut in the middle of an answer", broken, "≤ those in flight there", broken <= in_flight);
    let failed = format!("{} of {}: {}", post.failed(), post.total(), post.reasons());
    figures.must("POST failed", failed, "≤ those in flight there", post.failed() <= in_flight);
    figures.none("requests delivered twice (POST)", twice(&nginx, "/load/post"));
    figures.none("requests to the dead one after its transition", late);
    figures.must("its requests of 40 once it is back", share, "> 0", share > 0);
    figures.same("client, log", get.total() + post.total(), logged.lines);
    // One that was killed has not written down what it was busy with.
    let lost = logged.attempts().abs_diff(reached);
    figures.must("log (attempts), members", format!("{}, {reached}", logged.attempts()), "but for those in flight", {
        lost <= 2 * in_flight
    });
    figures.judged("kill → detected, at most", ms(detected), "2 s", detected <= Duration::from_secs(2));
    figures.judged("restart → back, at most", ms(back), "3 s", back <= Duration::from_secs(3));
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.finish();
}
