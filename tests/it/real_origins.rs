//! Members that are real: nginx from Debian, killed, frozen and brought back under a steady load.

use crate::harness::nginx::Nginx;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Line, Load, eventually};

/// Four nginx behind a proxy under load.
struct Site {
    proxy: Proxy,
    members: Vec<Nginx>,
    load: Load,
}

fn site(keys: &str) -> Site {
    let members: Vec<Nginx> = (0..4).map(|_| Nginx::start()).collect();
    let quoted: Vec<String> = members.iter().map(|member| format!("\"{}\"", member.address())).collect();
    let probe = "probe: { path: /, interval: 1s, fast_interval: 250ms, timeout: 500ms, consecutive: { failures: 2, passes: 1 } }";
    let proxy = Proxy::start(&config_of(&quoted, &format!("{probe}\n{keys}")));
    proxy.await_all_healthy();
    let load = Load::start(proxy.address(), 4, "/steady");
    load.await_each(10);
    Site { proxy, members, load }
}

impl Site {
    /// Waits for the member's transition after `mark`, and until no request from before it is under way.
    #[track_caller]
    fn await_transition(&self, mark: usize, member: &str, to: &str) {
        self.proxy.await_event(mark, &[("kind", "member"), ("member", member), ("to", to)]);
        self.load.fence();
    }

    /// Whether any of these requests of ours was sent to the member.
    #[track_caller]
    fn reaches(&self, base: &str, member: &str) -> bool {
        self.proxy.sample(base, 40).iter().any(|line| line.tried().contains(&member))
    }
}

#[test]
fn killed_member_costs_no_request_and_is_back_after_its_restart() {
    let mut site = site("");
    let name = site.members[1].address();
    let mark = site.proxy.mark();
    site.members[1].kill();
    site.await_transition(mark, &name, "unhealthy");
    let event = site.proxy.events(&[("member", &name), ("to", "unhealthy")]).remove(0);
    assert!(["refused", "reset"].contains(&event.text("reason")), "{}", event.raw);
    assert!(!site.reaches("/after-kill", &name), "a request was sent to a member after its transition");

    let mark = site.proxy.mark();
    site.members[1].start_again();
    site.await_transition(mark, &name, "healthy");
    assert!(site.reaches("/after-restart", &name), "it gets its share again");
    eventually("nginx itself says so", || site.members[1].traffic_count() > 0);
    let Site { proxy, members, load } = site;
    let tally = load.finish();
    // An answer already begun at the moment of the kill cannot be saved; these answers are tiny, so it is one at most a client.
    let begun = tally.failures.iter().filter(|why| why.contains("broke off")).count();
    assert!(begun <= 4 && begun == tally.failures.len(), "{:?}", tally.failures);
    assert!(tally.statuses.keys().all(|status| *status == 200), "failed requests: {:?}", tally.statuses);
    drop((proxy, members));
}

#[test]
fn frozen_member_costs_only_what_was_sent_before_its_ejection() {
    let site = site("upstream: { read_timeout: 3s }\nretries: { attempts: 2, budget: 20% }");
    let name = site.members[2].address();
    let mark = site.proxy.mark();
    site.members[2].signal("STOP");
    let event = site.proxy.await_event(mark, &[("kind", "member"), ("member", &name), ("to", "unhealthy")]);
    assert_eq!(event.text("reason"), "timeout", "{}", event.raw);
    // From here on nobody is sent there, and nobody fails who was not sent there before.
    let lines = site.proxy.sample("/after-freeze", 40);
    assert!(lines.iter().all(|line| line.json["status"] == 200 && !line.tried().contains(&name.as_str())));
    site.load.fence();
    let frozen = |line: &Line| line.tried().contains(&name.as_str());
    let failed: Vec<Line> = site.proxy.access_log().into_iter().filter(|line| line.json["status"] != 200).collect();
    assert!(failed.iter().all(frozen), "a request failed that never met the frozen member");
    let failures = failed.len();

    let mark = site.proxy.mark();
    site.members[2].signal("CONT");
    site.await_transition(mark, &name, "healthy");
    assert!(site.reaches("/after-thaw", &name));
    let Site { proxy, load, .. } = site;
    let tally = load.finish();
    let lost: usize = tally.statuses.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum();
    assert_eq!((lost, tally.failures.len()), (failures, 0), "failed later: {:?} {:?}", tally.statuses, tally.failures);
    assert!(tally.statuses.keys().all(|status| [200, 504].contains(status)), "{:?}", tally.statuses);
    drop(proxy);
}

#[test]
fn log_tells_the_story_of_a_death() {
    let mut site = site("");
    let name = site.members[0].address();
    site.members[0].kill();
    site.await_transition(0, &name, "unhealthy");
    let event = site.proxy.events(&[("member", &name), ("to", "unhealthy")]).remove(0);
    assert!(
        event.has(&[("target", "health"), ("pool", "web"), ("from", "healthy"), ("mode", "normal")]),
        "{}",
        event.raw
    );
    let numbers = (&event.json["in_rotation"], &event.json["total"]);
    assert_eq!(numbers, (&3.into(), &4.into()), "{}", event.raw);
    // Requests that met it before say so: an attempt that failed, and one that did not.
    let met = site.proxy.access_log().into_iter().filter(|line| line.attempts().len() == 2);
    for line in met {
        assert!(line.tried()[0] == name && line.tried()[1] != name, "{}", line.raw);
        assert_eq!((&line.json["status"], &line.json["lb"]["reason"]), (&200.into(), &"retry".into()), "{}", line.raw);
    }
    site.load.finish().assert_all_ok();
}
