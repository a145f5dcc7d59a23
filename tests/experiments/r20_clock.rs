//! R20: the wall clock jumps two days ahead, five days back, and runs ten times as fast, while it serves.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::figures::{Figures, Scale};
use crate::harness::Origin;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::wait::{now, pause};
use crate::load::{Connections, Paced, Wish};
use crate::logged::Logged;
use crate::site::LogFile;

/// Debian's `faketime`, by machine.
const LIBRARIES: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1"];

const INTERVAL: Duration = Duration::from_millis(500);

#[test]
fn r20_wall_clock_jumps() {
    let library = LIBRARIES.into_iter().find(|path| Path::new(path).exists());
    let library = library.expect("libfaketime: scripts/test installs it (Debian: apt-get install faketime)");
    let scale = Scale::wanted();
    let (origin, log) = (Origin::start(), LogFile::new());
    let wall = log.folder().join("wall");
    // In one step: it is read all the time.
    let set = |text: &str| {
        let part = log.folder().join("wall.part");
        fs::write(&part, format!("{text}\n")).and_then(|()| fs::rename(&part, &wall)).expect("ours");
    };
    set("+0");
    let env = [
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", &wall.to_string_lossy()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ];
    let probe = "probe: { path: /up, interval: 500ms, timeout: 500ms, consecutive: { failures: 2, passes: 1 } }";
    let config = format!("{}{}", log.key(), config_of(&[origin.to_string()], probe));
    let mut proxy = Proxy::start_with(&config, &env);
    proxy.await_standing(&origin, "healthy");
    let wish =
        Wish { clients: 4, rate: scale.of(40, 200), connections: Connections::Kept, method: "GET", path: "/load" };
    let load = Paced::start(proxy.address(), wish);
    let mut figures = Figures::new("R20: the wall clock jumps", scale);
    for (name, text, days) in [
        ("as it is", "+0", 0.0),
        ("+ 2 days", "+2d", 2.0),
        ("− 5 days", "-5d", -5.0),
        ("ten times as fast", "+0 x10", 0.0),
    ] {
        set(text);
        load.fence();
        // The program's own log has the wall clock's time too.
        let first = last_time(&log);
        let off = first.map_or(f64::NAN, days_from_now);
        figures.must(
            &format!("{name}: the log's time is off by"),
            format!("{off:.1} days"),
            &format!("{days}"),
            (off - days).abs() < 0.2,
        );
        let (began, before) = (now(), origin.probe_count());
        origin.await_probes(scale.of(4, 20));
        pause(Duration::from_millis(100));
        let (count, took) = (origin.probe_count() - before, began.elapsed());
        let ran = last_time(&log).zip(first).map_or(f64::NAN, |(last, first)| seconds_since(last, first))
            / began.elapsed().as_secs_f64();
        let wanted = if text.ends_with("x10") { 5.0..15.0 } else { 0.3..3.0 };
        figures.must(
            &format!("{name}: the log's time runs"),
            format!("× {ran:.1}"),
            &format!("× {wanted:?}"),
            wanted.contains(&ran),
        );
        let most = took.as_secs_f64() / INTERVAL.as_secs_f64() + 2.0;
        figures.must(&format!("{name}: probes"), count, &format!("≤ {most:.1}"), count as f64 <= most);
        let mean = took.as_secs_f64() * 1_000.0 / count as f64;
        figures.judged(
            &format!("{name}: interval"),
            format!("{mean:.0} ms"),
            "500 ms ± 20 %",
            (400.0..=600.0).contains(&mean),
        );
    }
    let tally = load.finish();
    let transitions = proxy.events(&[("kind", "member"), ("to", "unhealthy")]).len();
    proxy.signal("INT");
    let exit = proxy.wait().code();
    let logged = Logged::read(&log.files(), "/load/");
    figures.must(
        "failed",
        format!("{} of {}: {}", tally.failed(), tally.total(), tally.reasons()),
        "0",
        tally.failed() == 0,
    );
    figures.none("times below zero in the log", logged.negative);
    figures.none("members judged unhealthy", transitions);
    figures.same("client, log", tally.total(), logged.lines);
    figures.same(
        "log, members",
        logged.lines,
        origin.traffic().iter().filter(|seen| seen.target.starts_with("/load/")).count(),
    );
    figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
    figures.finish();
}

/// Of the last line so far.
fn last_time(log: &LogFile) -> Option<SystemTime> {
    let text = fs::read_to_string(log.path()).ok()?;
    let (whole, _) = text.rsplit_once('\n')?;
    let line: serde_json::Value = serde_json::from_str(whole.lines().last()?).ok()?;
    humantime::parse_rfc3339(line["time"].as_str()?).ok()
}

#[expect(clippy::disallowed_methods, reason = "the wall clock as it is")]
fn days_from_now(time: SystemTime) -> f64 {
    seconds_since(time, SystemTime::now()) / 86_400.0
}

/// Negative where it was before.
fn seconds_since(time: SystemTime, since: SystemTime) -> f64 {
    time.duration_since(since).map_or_else(|before| -before.duration().as_secs_f64(), |after| after.as_secs_f64())
}
