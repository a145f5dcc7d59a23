//! The scenarios of examples/scenarios/ as they are played, what is said of wrong ones, and the pictures of docs/simulate.md.
//!
//! `PULSEGATE_BLESS=1 cargo test --test scenarios` writes the golden files and the pictures anew; the reviewer reads the
//! difference.

mod xml;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use pulsegate::config::Problem;
use pulsegate::config::scenario::{self, Scenario};
use pulsegate::health::{Mode, Standing};
use pulsegate::simulate::{self, Run, Totals};

/// Pictures that docs/simulate.md shows.
const SHOWN: [&str; 2] = ["app_service", "slowdown"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = root().join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn stem(file: &Path) -> String {
    file.file_stem().expect("a file's name").to_string_lossy().into_owned()
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn load(file: &Path) -> Scenario {
    scenario::load(file, None, &|_| None).unwrap_or_else(|problems| panic!("{}", lines(&problems)))
}

fn read(text: &str) -> Scenario {
    scenario::read("a.yaml", text, &|_| None).unwrap_or_else(|problems| panic!("{}", lines(&problems)))
}

/// What is wrong with a text that is not taken.
fn refused(text: &str) -> String {
    scenario::read("a.yaml", text, &|_| None).map_or_else(|problems| lines(&problems), |_| panic!("taken: {text}"))
}

fn compare(golden: &Path, text: &str, differing: &mut String) {
    if std::env::var_os("PULSEGATE_BLESS").is_some() {
        fs::write(golden, text).unwrap_or_else(|e| panic!("{}: {e}", golden.display()));
        return;
    }
    let wanted = fs::read_to_string(golden).unwrap_or_default();
    if wanted != text {
        let differs = wanted.lines().zip(text.lines()).find(|(wanted, is)| wanted != is);
        let _ = writeln!(differing, "{}: {differs:?}", golden.display());
    }
}

fn sum(run: &Run) -> Totals {
    Totals::of(run.pools.iter().map(|pool| &pool.totals))
}

#[test]
fn rules_that_are_tried_are_told_and_nothing_goes_by_them() {
    let text = fs::read_to_string(root().join("examples/scenarios/trial.yaml")).expect("the example");
    let without: String =
        text.lines().filter(|line| !line.contains("observe:")).map(|line| format!("{line}\n")).collect();
    let (tried, plain) = (simulate::run(&read(&text)), simulate::run(&read(&without)));
    let (tried, plain) = (&tried[0], &plain[0]);
    let observed = tried.timeline.iter().filter(|entry| entry.event.observed);
    let told: Vec<&str> = observed.map(|entry| entry.event.message.as_str()).collect();
    assert!(told.iter().all(|words| words.starts_with("observed (max_latency): ")), "{told:#?}");
    let ejects = |words: &&&str| words.contains("10.0.0.4:80 of web is unhealthy") && words.contains("; ejected");
    assert!(told.iter().any(|words| words.contains("fallback: nobody is healthy")), "{told:#?}");
    assert!(told.iter().filter(ejects).count() >= 1, "{told:#?}");
    assert_eq!(tried.timeline.len() - told.len(), plain.timeline.len());
    for (tried, plain) in tried.pools.iter().zip(&plain.pools) {
        assert_eq!((&tried.modes, sum_of(tried)), (&plain.modes, sum_of(plain)));
        let standings = |run: &simulate::PoolRun| run.members.iter().map(|m| m.standings.clone()).collect::<Vec<_>>();
        assert_eq!(standings(tried), standings(plain));
    }
}

/// What requests and probes came to.
fn sum_of(pool: &simulate::PoolRun) -> [u64; 6] {
    let Totals { requests, failed, probes, ejections, fallbacks, failovers, .. } = pool.totals;
    [requests, failed, probes, ejections, fallbacks, failovers]
}

#[test]
fn the_examples_go_as_they_went() {
    let mut differing = String::new();
    let examples = files("examples/scenarios");
    assert!(examples.len() >= 8, "{examples:?}");
    for file in examples {
        let scenario = load(&file);
        assert!(scenario.advice.is_empty(), "{}", lines(&scenario.advice));
        let runs = simulate::run(&scenario);
        let golden = root().join("tests/scenarios/golden").join(stem(&file));
        compare(&golden.with_extension("txt"), &simulate::text(&scenario, &runs), &mut differing);
        let picture = simulate::picture(&scenario, &runs);
        xml::check(&picture).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if SHOWN.contains(&stem(&file).as_str()) {
            compare(&root().join("docs/img").join(stem(&file)).with_extension("svg"), &picture, &mut differing);
        }
        let json: serde_json::Value = serde_json::from_str(&simulate::json(&scenario, &runs)).expect("JSON");
        let told = json["policies"][0]["timeline"].as_array().map_or(0, Vec::len);
        assert_eq!(told, runs[0].timeline.len(), "{}", file.display());
        assert_eq!(json["policies"][0]["totals"]["requests"], sum(&runs[0]).requests, "{}", file.display());
    }
    assert!(differing.is_empty(), "{differing}");
}

#[test]
fn wrong_scenarios_are_refused_with_every_problem_at_its_place() {
    let mut differing = String::new();
    for file in files("tests/scenarios/bad") {
        let problems = scenario::load(&file, None, &|_| None).expect_err("a wrong scenario");
        let text: String = problems
            .iter()
            .map(|p| format!("{}.yaml:{}:{}: {}: {}\n", stem(&file), p.line, p.column, p.severity, p.message))
            .collect();
        compare(&file.with_extension("problems"), &text, &mut differing);
    }
    assert!(differing.is_empty(), "{differing}");
}

const FOUR: &str = "duration: 5m\npools: { web: { members: [\"10.0.0.1:80\", \"10.0.0.2:80\", \"10.0.0.3:80\", \"10.0.0.4:80\"], \
                    probe: { path: /, interval: 2s, timeout: 1s, consecutive: { failures: 2, passes: 1 } } } }\n\
                    traffic: [{ rate: 40/s }]\n";

fn four(story: &str) -> Run {
    simulate::run(&read(&format!("{FOUR}story: [{story}]\n"))).remove(0)
}

/// The same with more keys of the pool.
fn four_with(keys: &str, story: &str) -> Run {
    let text = FOUR.replace("probe:", &format!("{keys}, probe:"));
    simulate::run(&read(&format!("{text}story: [{story}]\n"))).remove(0)
}

#[test]
fn the_same_seed_gives_the_same_to_the_byte_and_another_does_not() {
    let scenario = read(&format!("{FOUR}story: [{{ at: 1m, member: \"10.0.0.2:80\", does: flap 3s/4s }}]\n"));
    let told = |scenario: &Scenario| simulate::json(scenario, &simulate::run(scenario));
    assert_eq!(told(&scenario), told(&scenario));
    assert_ne!(told(&scenario), told(&Scenario { seed: 2, ..scenario.clone() }));
}

#[test]
fn a_dead_member_is_out_within_the_time_that_its_probe_promises_and_nobody_notices_afterwards() {
    // health.md, section 2: interval + (k - 1) × max(fast, d) + d; the fast interval is 1 s, or a tenth less. Traffic takes the
    // first interval out of it: every fourth of 40 a second meets the member.
    for (passive, least, most) in [("off", 1.0, 3.1), ("hasten", 0.9, 1.11)] {
        let run = four_with(&format!("passive: {passive}"), "{ at: 1m, member: \"10.0.0.2:80\", does: refuse }");
        let totals = sum(&run);
        let told = run.timeline.iter().find(|entry| entry.event.to.as_deref() == Some("unhealthy")).expect("it fell");
        let after = told.at.as_secs_f64() - 60.0;
        assert!((least..=most).contains(&after), "{passive}: {after}");
        // Every fourth of 40 a second until then, each of which goes elsewhere.
        let expected = (after * 10.0) as u64;
        assert!(totals.to_ill.abs_diff(expected) <= 1 && totals.failed == 0, "{totals:?}, not {expected}");
        assert_eq!((totals.retries, totals.ejections, totals.capped), (totals.to_ill, 1, 0));
        assert!(totals.ill_serving.as_secs_f64() - after < 0.001 && totals.well_ejected.is_zero());
    }
}

/// Four whose ports stay open whatever they answer: probes by TCP pass.
fn open_ports(keys: &str, story: &str) -> Run {
    let text = FOUR.replace("probe: { path: /,", &format!("{keys}, probe: {{ kind: tcp,"));
    simulate::run(&read(&format!("{text}story: [{story}]\n"))).remove(0)
}

#[test]
fn traffic_has_a_member_probed_once_in_each_interval_and_where_it_may_ejects_it() {
    let story = "{ at: 1m, member: \"10.0.0.2:80\", does: status 503 }";
    let [off, hasten, eject] = ["off", "hasten", "{ eject: { consecutive: 3, base: 1h, max: 1h } }"]
        .map(|passive| open_ports(&format!("passive: {passive}"), story));
    let totals = [&off, &hasten, &eject].map(sum);
    // Four minutes of it, and an interval of 2 s; the request after that meets the member up to 0.1 s later.
    assert!((114..=120).contains(&(totals[1].probes - totals[0].probes)), "{totals:?}");
    // A probe that passes ejects nobody, however soon it is made; whoever is out is asked for no more.
    assert_eq!(totals.clone().map(|totals| totals.ejections), [0, 0, 1]);
    assert_eq!([totals[0].failed, totals[2].failed], [totals[1].failed, 3], "{totals:?}");
    assert_eq!(eject.pools[0].members[1].standings.last(), Some(Standing::Ejected));
    // A 500 may be the request's doing.
    let answers_500 = "{ at: 1m, member: \"10.0.0.2:80\", does: status 500 }";
    assert_eq!(sum(&open_ports("passive: { eject: { consecutive: 1 } }", answers_500)).ejections, 0);
    // One cap for all, and in the fallback nobody is charged.
    let all =
        open_ports("passive: { eject: { consecutive: 2, base: 10s } }", "{ at: 1m, member: all, does: status 503 }");
    assert!(all.pools[0].modes.times(|mode| mode == Mode::Capped) > 0, "{:?}", all.pools[0].totals);
    assert!(all.pools[0].modes.times(|mode| mode == Mode::Fallback) > 0, "{:?}", all.pools[0].totals);
}

#[test]
fn an_ejection_by_traffic_ends_when_its_time_is_over_and_the_next_is_longer() {
    let run = open_ports(
        "passive: { eject: { consecutive: 2, base: 10s } }",
        "{ at: 1m, member: \"10.0.0.2:80\", does: status 503 }",
    );
    let spans = run.pools[0].members[1].standings.spans(std::time::Duration::from_secs(300));
    let out: Vec<u64> = spans
        .filter(|(.., stood)| *stood == Some(Standing::Ejected))
        .map(|(from, to, _)| (to - from).as_secs())
        .collect();
    assert_eq!(out[..4], [10, 20, 30, 40], "{out:?}");
    // Nobody probes: the first success ends the fallback, as with the proxy.
    let text = FOUR.replace(
        "probe: { path: /, interval: 2s, timeout: 1s, consecutive: { failures: 2, passes: 1 } }",
        "passive: { eject: { consecutive: 2, base: 1s } }",
    );
    let story = "story: [{ at: 1m, member: all, does: refuse, for: 30s }]\n";
    let run = simulate::run(&read(&format!("{text}{story}"))).remove(0);
    let pool = &run.pools[0];
    assert!(
        pool.modes.times(|mode| mode == Mode::Fallback) > 0 && pool.modes.last() == Mode::Normal,
        "{:?}",
        pool.totals
    );
}

#[test]
fn whoever_waits_for_a_member_that_falls_goes_elsewhere_unless_rescue_is_off() {
    let story = "{ at: 1m, member: \"10.0.0.2:80\", does: freeze, for: 2m }";
    let slowest = |totals: &Totals| totals.times.quantile(1000).expect("requests").as_secs();
    let (rescued, stays) = (sum(&four(story)), sum(&four_with("rescue: false", story)));
    // health.md, section 2, with a timeout of 1 s: 2 + 1 + 1 and what an answer takes.
    assert!(rescued.failed == 0 && slowest(&rescued) <= 4, "{rescued:?}");
    assert!(slowest(&stays) >= 60, "{stays:?}");
    // Nobody else answers: they stay until somebody does again.
    let first = "{ at: 1m, member: \"10.0.0.1:80\", does: freeze, for: 20s }";
    let rest = "{ at: 1m, member: \"10.0.0.2:80\", does: freeze }, \
                { at: 0s, members: [\"10.0.0.3:80\", \"10.0.0.4:80\"], does: disable }";
    let all_out = "max_unhealthy_percent: 100, on_all_unhealthy: fail";
    let stranded = slowest(&sum(&four_with(all_out, &format!("{first}, {rest}"))));
    assert!((15..=30).contains(&stranded), "{stranded} s");
    // A POST was sent, and may have been taken.
    let posts = FOUR.replace("rate: 40/s", "rate: 40/s, post_percent: 100");
    let posts = sum(&simulate::run(&read(&format!("{posts}story: [{story}]\n"))).remove(0));
    assert!(posts.failed > 0 && slowest(&posts) >= 60, "{posts:?}");
}

#[test]
fn where_nobody_else_may_serve_one_stays_or_asks_again_as_in_the_proxy() {
    let alone = |does: &str| {
        let one = FOUR.replace(", \"10.0.0.2:80\", \"10.0.0.3:80\", \"10.0.0.4:80\"", "");
        let story = format!("story: [{{ at: 1m, member: all, does: {does}, for: 1m }}]\n");
        sum(&simulate::run(&read(&format!("{one}{story}"))).remove(0))
    };
    // Nobody to be rescued to; who refused is not dialled again; who answered badly is.
    let (frozen, refusing, resetting) = (alone("freeze"), alone("refuse"), alone("reset"));
    assert!(frozen.times.quantile(1000).expect("requests") >= std::time::Duration::from_secs(60), "{frozen:?}");
    assert!(refusing.retries == 0 && refusing.failed >= 2390, "{refusing:?}");
    assert!(resetting.retries > 0 && resetting.to_ill == resetting.failed + resetting.retries, "{resetting:?}");
}

#[test]
fn ejection_by_traffic_that_is_tried_is_told_and_ejects_nobody() {
    let story = "{ at: 1m, member: \"10.0.0.2:80\", does: status 503, for: 2m }";
    let [tried, off] = ["observe: { passive: { eject: { consecutive: 2, base: 10s } } }, passive: off", "passive: off"]
        .map(|keys| open_ports(keys, story));
    assert_eq!((sum(&tried).failed, sum(&tried).ejections), (sum(&off).failed, 0));
    let told: Vec<_> = tried.timeline.iter().filter(|entry| entry.event.observed).collect();
    let first = told.first().expect("it is told");
    assert!(first.event.message.contains("traffic: 2 failures in a row"), "{}", first.event.message);
    // The second request that meets it, and no sooner.
    assert!((60..61).contains(&first.at.as_secs()), "{:?}", first.at);
}

#[test]
fn the_cap_and_the_fallback_are_those_of_the_pool() {
    let run = four("{ at: 1m, member: all, does: status 503, every: 30s }");
    let pool = &run.pools[0];
    let stood: Vec<Option<Standing>> = pool.members.iter().map(|member| member.standings.last()).collect();
    assert_eq!(stood, [Some(Standing::Fallback); 4]);
    assert_eq!(pool.modes.times(|mode| mode == Mode::Capped), 1);
    assert!(pool.totals.ejections == 2 && pool.totals.fallbacks == 1, "{:?}", pool.totals);
}

#[test]
fn whoever_is_drained_disabled_or_gone_gets_nothing_and_is_probed_as_such() {
    let gone = sum(&four("{ at: 1m, member: \"10.0.0.2:80\", does: leave }"));
    let drained = sum(&four("{ at: 1m, member: \"10.0.0.2:80\", does: drain }"));
    let disabled = sum(&four("{ at: 1m, member: \"10.0.0.2:80\", does: disable }"));
    let as_ever = sum(&four(""));
    assert_eq!(as_ever.probes, drained.probes);
    // Every 2 s, for four of five minutes.
    assert_eq!([gone.probes, disabled.probes], [as_ever.probes - 120; 2]);
    assert_eq!([&gone, &drained, &disabled].map(|totals| totals.failed), [0; 3]);
    let late =
        four("{ at: 2m, member: \"10.0.0.3:80\", does: join }, { at: 2m, member: \"10.0.0.3:80\", does: status 500 }");
    assert_eq!(late.pools[0].members[2].standings.last(), Some(Standing::Unknown), "it never passed");
    assert_eq!(sum(&late).to_ill, 0);
}

#[test]
fn a_cold_start_waits_for_the_first_verdict_and_no_longer_than_allowed() {
    let all = |does: &str| sum(&four(&format!("{{ at: 0s, member: all, does: {does} }}")));
    let slow = all("latency 400ms");
    assert!(slow.waited > 10 && slow.failed == 0, "{slow:?}");
    let dead = all("status 503");
    assert!(dead.waited > 30 && dead.failed == dead.requests, "a second, then everybody: {dead:?}");
}

#[test]
fn a_policy_is_laid_over_the_pools_and_its_problems_stand_in_its_own_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (scenario, policy) = (folder.path().join("scenario.yaml"), folder.path().join("policy.yaml"));
    fs::write(&scenario, FOUR).expect("written");
    let tried = |text: &str| {
        fs::write(&policy, text).expect("written");
        scenario::load(&scenario, Some(&policy), &|_| None)
    };
    let taken = tried(
        "name: calm\npools:\n  web: { probe: { window: { size: 9, required: 2 } }, max_unhealthy_percent: 75 }\n",
    )
    .unwrap_or_else(|problems| panic!("{}", lines(&problems)));
    let [first, second] = &taken.policies[..] else { panic!("two policies") };
    let (first, second) = (&first.config.pools["web"], &second.config.pools["web"]);
    assert_eq!(taken.policies[1].name, "calm");
    assert_eq!((first.rules.max_unhealthy_percent, second.rules.max_unhealthy_percent), (50, 75));
    assert!(first.rules.judge != second.rules.judge && first.members == second.members);
    assert_eq!(first.probe.as_ref().map(|p| p.interval), second.probe.as_ref().map(|p| p.interval));

    let rows = [
        (
            "pools:\n  wbe: { max_unhealthy_percent: 75 }\n",
            ":2:3: error: the scenario has no pool \"wbe\"; did you mean \"web\"?",
        ),
        ("pools:\n  web: { max_unhealthy_percent: 175 }\n", ":2:33: error: `max_unhealthy_percent` cannot be 175"),
        ("pools:\n  web: { probe: { timeout: 9s } }\n", ":2:28: error: "),
        ("pools:\n  web: { members: [\"10.0.0.1:80\"] }\n", ":2:10: error: both policies have the same members"),
        ("pools:\n  web: { ejects: 3 }\n", ":2:10: error: unknown key `ejects`"),
        ("name: nothing\n", ":1:1: error: a policy says what is other"),
    ];
    for (text, said) in rows {
        let problems = lines(&tried(text).expect_err(text));
        assert!(problems.contains(&format!("policy.yaml{said}")), "{text}: {problems}");
    }
}

#[test]
fn what_it_cannot_play_is_said() {
    let rows = [
        ("", "a.yaml:1:1: error: "),
        (
            "duration: 5m\npools: { a: { members: [\"a:80\"] }, b: { members: [\"b:80\"] } }\n",
            "`routes` says where requests go",
        ),
        ("duration: 5m\npools: { a: { members: [{ srv: _h._tcp.x }] } }\n", "in a scenario no name is asked for"),
    ];
    for (text, said) in rows {
        assert!(refused(text).contains(said), "{text}: {}", refused(text));
    }
    let many = FOUR.replace("duration: 5m", "duration: 1d").replace("40/s", "90000/s");
    assert!(refused(&many).contains("requests; at most"), "{}", refused(&many));
    let often = FOUR.replace("duration: 5m", "duration: 31d").replace("interval: 2s, timeout: 1s", "interval: 50ms");
    assert!(refused(&often).contains("a.yaml:2:1: error: that is 214272000 probes; at most"), "{}", refused(&often));
    let seldom = format!("{}compare: {{ pools: {{ web: {{ probe: {{ interval: 50ms, timeout: 50ms }} }} }} }}\n", FOUR);
    let seldom = seldom.replace("duration: 5m", "duration: 31d").replace("40/s", "1/s");
    assert!(refused(&seldom).contains("that is 214272000 probes"), "{}", refused(&seldom));
    let long = format!("{FOUR}latency: 400y ± 400y\n");
    assert!(refused(&long).contains("is longer than any scenario; write at most `31days`"), "{}", refused(&long));
}

#[test]
fn what_lasts_for_a_time_is_followed_by_what_was_before() {
    let member = |story: &str| {
        let story: Vec<String> =
            story.split("; ").map(|turn| format!("{{ member: \"10.0.0.2:80\", {turn} }}")).collect();
        let run = four(&story.join(", "));
        run.pools[0].members[1].clone()
    };
    let end = std::time::Duration::from_secs(300);
    let refuses = "at: 1m, does: status 500; at: 2m, does: refuse, for: 1m";
    assert_eq!(member(refuses).ills.time(end, |truth| truth == simulate::Truth::Ill).as_secs(), 240);
    let disabled = "at: 1m, does: disable; at: 2m, does: enable, for: 1m";
    assert_eq!(member(disabled).standings.last(), Some(Standing::Disabled));
    // Only what lasts: the first is over, so it is well.
    let again = "at: 1m, does: status 500, for: 30s; at: 2m, does: refuse, for: 1m";
    assert_eq!(member(again).ills.time(end, |truth| truth == simulate::Truth::Ill).as_secs(), 90);
}

#[test]
fn so_many_are_under_way_and_the_next_is_turned_away_at_once() {
    let text = FOUR.replace("duration: 5m", "duration: 10s").replace("40/s", "10000/s");
    let totals =
        sum(&simulate::run(&read(&format!("{text}story: [{{ at: 0s, member: all, does: freeze }}]\n"))).remove(0));
    // 100,000 come, and nobody is answered within `read_timeout`.
    assert_eq!((totals.requests, totals.failed), (100_000 - 65_536, 100_000 - 65_536), "{totals:?}");
}

#[test]
fn what_is_not_played_is_warned_of_once_where_it_is_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("policy.yaml");
    let warned = |scenario: &Scenario| lines(&scenario.advice).lines().map(str::to_owned).collect::<Vec<_>>();
    let queues = FOUR.replace("probe:", "max_in_flight: 9, queue: { size: 3 }, probe:");
    let remedied = "remediation: { command: [/bin/true] }";
    let compared = format!("{queues}compare:\n  pools:\n    web: {{ queue: {{ size: 4 }}, {remedied} }}\n");
    let scenario = read(&compared);
    let said = warned(&scenario);
    assert!(
        said.len() == 2 && said[0].starts_with("a.yaml:2:") && said[0].contains("`queue` is not played"),
        "{said:?}"
    );
    assert!(said[1].starts_with("a.yaml:6:") && said[1].contains("`remediation` is not played"), "{said:?}");

    let path = folder.path().join("scenario.yaml");
    fs::write(&path, &queues).expect("written");
    fs::write(&file, format!("pools:\n  web:\n    {remedied}\n")).expect("written");
    let said = warned(&scenario::load(&path, Some(&file), &|_| None).unwrap_or_else(|p| panic!("{}", lines(&p))));
    assert!(said.len() == 2 && said[1].contains("policy.yaml:3:"), "{said:?}");
    fs::write(&file, "pools:\n  web:\n    sticky: {}\n").expect("written");
    let said = lines(&scenario::load(&path, Some(&file), &|_| None).expect_err("nobody is bound"));
    assert!(said.contains("policy.yaml:3:5: error: in a scenario no client keeps a cookie"), "{said}");
}
