//! R8: four members, each up for a while and down for as long, out of phase: of four two are down at any time.

use std::time::Duration;

use crate::figures::{Figures, Scale};
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::wait::{now, pause};
use crate::load::{Connections, Paced, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, Vitals, members, quoted, reached};

/// Between two steps, each of which takes one down and brings another back: up for two, down for two.
const STEP: Duration = Duration::from_secs(1);

/// As many may be out as are down together, before the prober has seen that one is back.
const KEYS: &str = "max_unhealthy_percent: 75";

#[test]
fn r8_four_members_flap() {
    let scale = Scale::wanted();
    let (rate, steps) = (scale.of(200, 1_000), scale.of(8, 300));
    let (mut nginx, log) = (members(4), LogFile::new());
    let mut proxy = Proxy::start(&format!("{}{}", log.key(), config_of(&quoted(&nginx), &format!("{PROBE}\n{KEYS}"))));
    proxy.await_all_healthy();
    let wish = Wish { clients: 8, rate, connections: Connections::Kept, method: "GET", path: "/load/get" };
    let load = Paced::start(proxy.address(), wish);
    let (mut flips, mut halves) = (0, [Vitals::of(&proxy); 2]);
    let mark = proxy.mark();
    let mut due = now();
    for step in 0..steps {
        nginx[step % 4].kill();
        flips += 1;
        // The first two steps take two down and bring nobody back.
        if step >= 2 {
            nginx[(step + 2) % 4].start_again();
            flips += 1;
        }
        let present = Vitals::of(&proxy);
        let half = &mut halves[2 * step / steps];
        half.descriptors = half.descriptors.max(present.descriptors);
        half.kib = half.kib.max(present.kib);
        due += STEP;
        pause(due.saturating_duration_since(now()));
    }
    for down in [(steps + 2) % 4, (steps + 3) % 4] {
        nginx[down].start_again();
        flips += 1;
    }
    proxy.await_all_healthy();
    load.fence();
    let load = load.finish();
    let told = proxy.mark();
    let told = proxy.log()[mark..told].iter().filter(|line| line.text("target") == "health").count();
    proxy.signal("INT");
    let exit = proxy.wait().code();

    let mut figures = Figures::new("R8: four members flap", scale);
    let logged = Logged::read(&log.files(), "/load/");
    figures.told("load", format!("{rate} GET/s"));
    figures.told("times a member went or came", flips);
    let failed = format!("{} of {}: {}", load.failed(), load.total(), load.reasons());
    figures.must("GET failed", failed, "≤ 0.1 %", load.failed() * 1_000 <= load.total());
    figures.must("lines of the event log", told, "≤ one each", told <= flips);
    figures.same("client, log", load.total(), logged.lines);
    let lost = logged.attempts().abs_diff(reached(&nginx, "/load/"));
    figures.must("attempts that no member has in its log", lost, "≤ those in flight", lost <= 8 * flips);
    let [first, second] = halves;
    let found = format!("{}, {}", first.descriptors, second.descriptors);
    figures.judged("most descriptors in the first half, the second", found, "+ 20", {
        second.descriptors <= first.descriptors + 20
    });
    let found = format!("{} → {} KiB", first.kib, second.kib);
    figures.judged(
        "most memory in the first half, the second",
        found,
        "+ 10 MiB",
        second.kib <= first.kib + (10 << 10),
    );
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.finish();
}
