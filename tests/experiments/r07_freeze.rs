//! R7: one of four members is frozen (SIGSTOP) under load: its kernel accepts, and nobody answers. It goes on later.

use std::time::Duration;

use crate::figures::{Figures, Scale, ms};
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::wait::{now, pause};
use crate::load::{Connections, Paced, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, members, quoted, sample, twice};

/// Requests that may not be sent twice wait this long for the frozen one; they are the only ones that may fail.
const KEYS: &str = "upstream: { read_timeout: 2s }";
/// Interval, fast interval and twice the timeout of [`PROBE`]: the second fail is there by then.
const DETECTED: Duration = Duration::from_millis(2_250);

#[test]
fn r7_one_of_four_freezes() {
    let scale = Scale::wanted();
    let (gets, posts, settle) = (scale.of(100, 800), scale.of(20, 100), Duration::from_secs(scale.of(1, 10)));
    let (nginx, log) = (members(4), LogFile::new());
    let mut proxy = Proxy::start(&format!("{}{}", log.key(), config_of(&quoted(&nginx), &format!("{PROBE}\n{KEYS}"))));
    proxy.await_all_healthy();
    // As many as wait for the frozen one until it is out, so that the others keep their pace.
    let wish = |rate, method, path| {
        let clients = rate * DETECTED.as_millis() as usize / 1_000 / 4 + 8;
        Wish { clients, rate, connections: Connections::Kept, method, path }
    };
    let get = Paced::start(proxy.address(), wish(gets, "GET", "/load/get"));
    let post = Paced::start(proxy.address(), wish(posts, "POST", "/load/post"));
    let past = Paced::past(&nginx[0]);
    get.fence();
    let quiet = now();
    pause(settle);
    let (mark, frozen, name) = (proxy.mark(), now(), nginx[1].address());
    nginx[1].signal("STOP");
    proxy.await_event(mark, &[("kind", "member"), ("member", &name), ("standing", "ejected")]);
    let (ejected, out) = (frozen.elapsed(), now());
    // Whoever was under way then is answered: rescued, or ended by its time.
    get.fence();
    post.fence();
    let late = sample(&proxy, &log, "/after-freeze", 40).sent.get(&name).copied().unwrap_or_default();
    pause(settle);
    let (mark, over) = (proxy.mark(), now());
    nginx[1].signal("CONT");
    proxy.await_event(mark, &[("kind", "member"), ("member", &name), ("to", "healthy")]);
    let share = sample(&proxy, &log, "/after-thaw", 40).sent.get(&name).copied().unwrap_or_default();
    let ([get, post], past) = ([get, post].map(Paced::finish), past.finish());
    proxy.signal("INT");
    let exit = proxy.wait().code();

    let mut figures = Figures::new("R7: one of four freezes", scale);
    let logged = Logged::read(&log.files(), "/load/");
    figures.told("load", format!("{gets} GET/s and {posts} POST/s on kept connections"));
    figures.must(
        "GET failed",
        format!("{} of {}: {}", get.failed(), get.total(), get.reasons()),
        "0",
        get.failed() == 0,
    );
    figures.must("GET called away from it", logged.rescued, "> 0", logged.rescued > 0);
    let longest = get.percentile(100, &(quiet..over));
    figures.judged("the longest GET", ms(longest), "time to eject + 100 ms", {
        longest <= ejected + Duration::from_millis(100)
    });
    let sent = (posts as f64 * ejected.as_secs_f64() / 4.0).ceil() as usize + 1;
    let failed = format!("{} of {}: {}", post.failed(), post.total(), post.reasons());
    figures.judged("POST failed", failed, &format!("≤ {sent}: those sent to it until then"), post.failed() <= sent);
    figures.none("requests delivered twice (POST)", twice(&nginx, "/load/post"));
    figures.none("requests to it once it was ejected", late);
    figures.must("its requests of 40 once it is back", share, "> 0", share > 0);
    figures.same("client, log", get.total() + post.total(), logged.lines);
    figures.judged("freeze → ejected", ms(ejected), "2.25 s", ejected <= DETECTED);
    figures.slowest("quiet, while it is out", &get, &past, [quiet..frozen, out..over]);
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.finish();
}
