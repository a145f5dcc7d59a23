//! Metrics: that they say what the log says, whose series there are, and that Prometheus can read them.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::proxy::{PROBE, Proxy, config_of, pool_config};
use crate::harness::{Answer, Connection, Echo, Gate, Origin, Scrape, Step, WebSocket, When, client, eventually};

/// A listener for the cases that want to see every kind of end soon.
const LISTENERS: &str = "listeners: [{ address: \"127.0.0.1:0\", name: web, header_timeout: 1s, body_timeout: 1s }]\n";

/// Waits until the page and the log agree on `lines` requests.
#[track_caller]
fn agree(proxy: &Proxy, lines: usize) -> Scrape {
    eventually(&format!("{lines} lines"), || proxy.access_log().len() >= lines);
    // A line is written after it is counted.
    let scrape = Scrape::of(proxy);
    let log = proxy.access_log();
    assert_eq!(log.len(), lines);
    scrape.agrees_with(&log);
    scrape
}

#[test]
fn whatever_ends_a_request_it_is_counted_as_it_is_logged() {
    let (a, b, echo, gate) = (Origin::start(), Origin::start(), Echo::start(), Gate::new());
    for origin in [&a, &b] {
        origin.when(When::path("/teapot"), Answer::status(418));
        origin.when(When::path("/resets"), Answer::reset());
        origin.when(
            When::path("/breaks"),
            Answer::raw(vec![Step::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec()), Step::Reset]),
        );
        origin.when(When::path("/held"), Answer::status(200).held_by(&gate));
        origin.when(When::path("/late"), Answer::hang());
    }
    let dead = "127.0.0.1:1";
    let pools = format!(
        "pools:\n  web: {{ members: [{a}, {b}], probe: off, retries: {{ attempts: 2 }}, deadline: 2s }}\n  \
         tunnel: {{ members: [\"{}\"], probe: off }}\n  dead: {{ members: [\"{dead}\"], probe: off }}\n  \
         off: {{ members: [{{ address: {a}, state: disabled }}], probe: off }}\n",
        echo.address()
    );
    let routes = ["web", "tunnel", "dead", "off"].map(|pool| format!("  - {{ path: /{pool}, pool: {pool} }}\n"));
    let more = "  - { path: /teapot, pool: web }\n  - { path: '/odd\"\\x', pool: web }\n  - { path: /resets, pool: web }\n  \
                - { path: /breaks, pool: web }\n  - { path: /held, pool: web }\n  - { path: /late, pool: web }\n";
    let proxy = Proxy::start(&format!("{LISTENERS}{pools}routes:\n{}{more}", routes.concat()));

    for (path, status) in [
        ("/web", 200),
        ("/web/x", 200),
        ("/teapot", 418),
        ("/odd\"\\x", 200),
        ("/nowhere", 404),
        ("/dead", 502),
        ("/off", 503),
    ] {
        assert_eq!(proxy.get(path).status, status, "{path}");
    }
    assert_eq!(proxy.get("/resets").status, 502, "both were tried");
    assert!(!proxy.get("/breaks").complete);
    assert_eq!(proxy.get("/late").status, 504, "the deadline");
    for unread in ["\x16\x03\r\n\r\n", "GET / HTTP/1.1\r\nHo", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"] {
        assert!((400..=408).contains(&proxy.connect().send(unread).reply().status), "{unread:?}");
    }
    let half = "POST /web HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf";
    assert_eq!(proxy.connect().send(half).reply().status, 408);
    // A client that leaves while it waits, and one before its header is whole.
    let mut leaver = proxy.connect();
    leaver.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it waits", || gate.waiting() == 1);
    drop(leaver);
    let mut early = proxy.connect();
    early.send("GET /we");
    drop(early);
    let mut socket = WebSocket::open(proxy.address(), "/tunnel");
    socket.say("hello");
    eventually("the tunnel is seen", || Scrape::of(&proxy).value("pool_tunnels{pool=\"tunnel\"}") == 1.0);
    // Those who left may take a moment to be seen off.
    let active = |scrape: &Scrape| scrape.value("connections{listener=\"web\",state=\"active\"}");
    eventually("the tunnel is active, and alone", || active(&Scrape::of(&proxy)) == 1.0);
    socket.close();
    let mut kept = proxy.connect();
    (0..3).for_each(|_| drop(kept.get("/web")));
    let scrape = agree(&proxy, 20);
    gate.open();
    assert_eq!(scrape.value("requests_total{listener=\"web\",route=\"\",pool=\"\",code=\"404\"}"), 1.0);
    assert!(scrape.value("retries_total{pool=\"web\",reason=\"reset\"}") >= 1.0);
    assert_eq!(scrape.value("request_duration_seconds_count{pool=\"tunnel\"}"), 0.0, "a tunnel's time is its own");
    let odd = "requests_total{listener=\"web\",route=\"/odd\\\"\\\\x\",pool=\"web\",code=\"200\"}";
    assert_eq!(scrape.value(odd), 1.0, "{:#?}", scrape.beginning("requests_total"));
    eventually("only the kept one is open", || {
        let scrape = Scrape::of(&proxy);
        scrape.value("connections{listener=\"web\",state=\"idle\"}") == 1.0
            && scrape.value("connections{listener=\"web\",state=\"active\"}") == 0.0
    });
}

#[test]
fn requests_are_counted_whatever_the_log_leaves_out() {
    let origin = Origin::start();
    for log in ["access_log: off\n", "access_log: { path: stdout, filter: { status: \"599\" } }\n"] {
        let proxy = Proxy::start(&(log.to_owned() + LISTENERS + &config_of(&[origin.to_string()], "probe: off")));
        (0..3).for_each(|n| assert_eq!(proxy.get(&format!("/{n}")).status, 200));
        assert_eq!(proxy.connect().send("\x16\x03\r\n\r\n").reply().status, 400);
        let ok = "requests_total{listener=\"web\",route=\"/\",pool=\"web\",code=\"200\"}";
        let bad = "requests_total{listener=\"web\",route=\"\",pool=\"\",code=\"400\"}";
        let filtered = if log.contains("filter") { 4.0 } else { 0.0 };
        eventually(&format!("all are counted with {log}"), || {
            let scrape = Scrape::of(&proxy);
            let seen = [scrape.value(ok), scrape.value(bad), scrape.value("log_filtered_total{log=\"access\"}")];
            seen == [3.0, 1.0, filtered]
        });
        assert!(proxy.access_log().is_empty());
    }
}

#[test]
fn series_go_with_whom_they_are_about_and_counters_never_back() {
    let (a, b, c) = (Origin::start(), Origin::start(), Origin::start());
    let config = |members: &[&Origin], more: &str| {
        let members: Vec<String> = members.iter().map(ToString::to_string).collect();
        format!("{LISTENERS}pools:\n  web:\n    members: [{}]\n    {PROBE}\n{more}", members.join(", "))
    };
    let other = format!(
        "  spare: {{ members: [{c}], probe: off }}\nroutes: [{{ path: /spare, pool: spare }}, {{ pool: web }}]\n"
    );
    let proxy = Proxy::start(&config(&[&a, &b], &other));
    proxy.await_all_healthy();
    for path in ["/", "/", "/", "/", "/spare"] {
        assert_eq!(proxy.get(path).status, 200);
    }
    let before = agree(&proxy, 5);
    let about = |scrape: &Scrape, word: &str| scrape.text.lines().filter(|line| line.contains(word)).count();
    assert!(about(&before, &b.address()) > 0 && about(&before, "spare") > 0);
    assert_eq!(about(&before, &a.address()), about(&before, &b.address()));

    proxy.reload(&config(&[&a], "routes: [{ pool: web }]\n"));
    let after = Scrape::of(&proxy);
    assert_eq!((about(&after, &b.address()), about(&after, "spare")), (0, 0), "{}", after.text);
    let now = after.counters();
    let goes_back = |(name, value): &(String, f64)| {
        let is_gone = name.contains(&b.address()) || name.contains("spare");
        !is_gone && now.get(name).is_none_or(|now| now < value)
    };
    let backward: Vec<_> = before.counters().into_iter().filter(goes_back).collect();
    assert!(backward.is_empty(), "{backward:?}");
    let reloads = |scrape: &Scrape| {
        ["taken", "refused"].map(|result| scrape.value(&format!("config_reloads_total{{result=\"{result}\"}}")))
    };
    let state = |scrape: &Scrape| [scrape.value("config_generation"), scrape.value("config_last_reload_success")];
    assert_eq!((reloads(&before), state(&before)), ([0.0, 0.0], [1.0, 1.0]));
    assert_eq!((reloads(&after), state(&after)), ([1.0, 0.0], [2.0, 1.0]));
    proxy.rewrite("nonsense: here\n");
    proxy.reload_is_refused();
    eventually("the refusal shows", || reloads(&Scrape::of(&proxy)) == [1.0, 1.0]);
    assert_eq!(state(&Scrape::of(&proxy)), [2.0, 0.0]);

    // One that comes back is another.
    proxy.reload(&config(&[&a, &b], &other));
    let again = Scrape::of(&proxy);
    assert_eq!(
        again.value(&format!("upstream_attempts_total{{pool=\"web\",member=\"{}\",result=\"ok\"}}", b.address())),
        0.0
    );
    assert_eq!(state(&again), [3.0, 1.0]);
}

#[test]
fn listener_that_moves_or_is_renamed_is_shown_as_it_is_called() {
    let origin = Origin::start();
    let config = |name: &str, address: &str| {
        format!("listeners: [{{ address: \"{address}\", name: {name} }}]\n")
            + &config_of(&[origin.to_string()], "probe: off")
    };
    let proxy = Proxy::start(&config("web", "127.0.0.1:0"));
    let mut kept = proxy.connect();
    assert_eq!(kept.get("/").status, 200);
    let mark = proxy.mark();
    proxy.reload(&config("web", "127.0.0.2:0"));
    let line = proxy.await_log("the new address", mark, |line| line.text("message") == "listening");
    let moved = line.text("address").parse().expect("an address");
    assert_eq!(client::get(moved, "/").status, 200);
    assert_eq!(kept.get("/").status, 200, "old connections go on");
    agree(&proxy, 3);
    let open = |scrape: &Scrape| scrape.value("connections{listener=\"web\",state=\"idle\"}");
    eventually("the old one is still there", || open(&Scrape::of(&proxy)) == 1.0);
    drop(kept);
    eventually("it is gone", || open(&Scrape::of(&proxy)) == 0.0);
    let scrape = agree(&proxy, 3);
    assert_eq!(scrape.value("connections_accepted_total{listener=\"web\"}"), 2.0);
}

#[test]
fn health_of_members_and_pools_shows() {
    let (a, b) = (Origin::start(), Origin::start());
    let proxy = Proxy::start(&pool_config(&[&a, &b], "max_unhealthy_percent: 50"));
    proxy.await_all_healthy();
    let of = |origin: &Origin, metric: &str, more: &str| {
        format!("{metric}{{pool=\"web\",member=\"{}\"{more}}}", origin.address())
    };
    let first = Scrape::of(&proxy);
    assert_eq!(first.value(&of(&a, "member_up", "")), 1.0);
    assert_eq!(first.value("pool_mode{pool=\"web\",mode=\"normal\"}"), 1.0);
    assert_eq!(first.find("pool_mode{pool=\"web\",mode=\"fallback\"}"), Some(0.0));
    assert_eq!(first.value(&of(&a, "member_transitions_total", ",to=\"healthy\",reason=\"\"")), 1.0);
    assert!(first.find(&of(&a, "probe_duration_seconds", ",phase=\"total\"")).is_some_and(|took| took > 0.0));
    assert_eq!(first.find(&of(&a, "probe_duration_seconds", ",phase=\"tls\"")), None, "it has none");
    assert!(first.find(&of(&a, "member_latency_seconds", "")).is_some_and(|latency| latency > 0.0));
    a.when(When::probe(), Answer::status(503));
    proxy.await_standing(&a, "ejected");
    let second = Scrape::of(&proxy);
    let standings = second.beginning(&format!("member_standing{{pool=\"web\",member=\"{}\"", a.address()));
    assert_eq!(standings.into_iter().collect::<Vec<_>>(), [(of(&a, "member_standing", ",standing=\"ejected\""), 1.0)]);
    assert_eq!(second.find(&of(&a, "member_up", "")), Some(0.0));
    assert_eq!(second.value(&of(&a, "member_transitions_total", ",to=\"unhealthy\",reason=\"status\"")), 1.0);
    assert!(second.value(&of(&a, "probe_total", ",result=\"fail\",reason=\"status\"")) >= 2.0);
    assert_eq!(
        [second.value("pool_in_rotation{pool=\"web\"}"), second.value("pool_ejected{pool=\"web\"}")],
        [1.0, 1.0]
    );
    b.when(When::probe(), Answer::status(503));
    proxy.await_mode("fallback");
    let third = Scrape::of(&proxy);
    assert_eq!(third.value("pool_fallback_total{pool=\"web\"}"), 1.0);
    assert_eq!(third.value("pool_mode{pool=\"web\",mode=\"fallback\"}"), 1.0);
    assert_eq!(third.value("pool_mode{pool=\"web\",mode=\"normal\"}"), 0.0);
    assert_eq!(third.value(&of(&b, "member_standing", ",standing=\"fallback\"")), 1.0);
}

#[test]
fn promtool_finds_nothing_to_say() {
    let origin = Origin::start();
    let keys = "max_in_flight: 100, max_connections: 100, queue: { size: 10, timeout: 1s }";
    let keys = keys.replace(", ", "\n").replace("size: 10\ntimeout", "size: 10, timeout");
    let proxy = Proxy::start(&(LISTENERS.to_owned() + &pool_config(&[&origin], &keys)));
    proxy.await_all_healthy();
    proxy.get("/");
    let scrape = Scrape::of(&proxy);
    promtool(&["check", "metrics"], &scrape.text);
}

/// Runs promtool, with this on its standard input, and asserts that it finds nothing to say.
#[track_caller]
fn promtool(args: &[&str], input: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool (scripts/test installs it)");
    let mut stdin = promtool.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let said = promtool.wait_with_output().expect("it ends");
    let words = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let heads = ["Checking", "Unit Testing", "SUCCESS"];
    let is_fine = |line: &str| line.is_empty() || heads.iter().any(|head| line.trim().starts_with(head));
    assert!(said.status.success() && words.lines().all(is_fine), "promtool {args:?}: {words}");
}

#[test]
fn page_is_for_who_may_read_and_head_gets_none() {
    let origin = Origin::start();
    let token = "admin: { address: \"127.0.0.1:0\", token: \"s3cret-s3cret-s3cret\" }\n";
    let proxy = Proxy::start(&(token.to_owned() + &config_of(&[origin.to_string()], "probe: off")));
    let ask = |method: &str, fields: &[&str]| client::request(proxy.admin(), method, "/metrics", fields, "");
    let page = ask("GET", &["Host: 127.0.0.1"]);
    assert_eq!(page.status, 200);
    assert_eq!(page.field("content-type"), Some("text/plain; version=0.0.4"), "{:?}", page.lines);
    let head = ask("HEAD", &["Host: 127.0.0.1"]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(ask("GET", &["Host: proxy.internal:9900"]).status, 421);
    assert_eq!(ask("GET", &["Host: proxy.internal:9900", "Authorization: Bearer s3cret-s3cret-s3cret"]).status, 200);
    assert_eq!(ask("POST", &["Host: 127.0.0.1"]).status, 405);
}

#[test]
fn what_the_page_on_metrics_gives_to_prometheus_it_takes() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).expect("a page");
    let dir = tempfile::tempdir().expect("a folder");
    for what in ["config", "rules"] {
        let (_, rest) = page.split_once(&format!("```yaml prometheus {what}\n")).expect(what);
        let (text, _) = rest.split_once("\n```").expect("an end");
        let path = dir.path().join(what);
        std::fs::write(&path, text).expect("the folder is ours");
        promtool(&["check", what, &path.to_string_lossy()], "");
    }
}

/// A list of nobody has no member that could be in trouble.
#[test]
fn the_alert_on_sources_rings_for_each_pool_in_trouble_once() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).expect("a page");
    let (_, rest) = page.split_once("```yaml prometheus rules\n").expect("rules");
    let (rules, _) = rest.split_once("\n```").expect("an end");
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("rules"), rules).expect("the folder is ours");
    let series = |what: &str, pool: &str, value: u32| {
        format!("{{ series: 'pulsegate_pool_troubled_{what}{{pool=\"{pool}\"}}', values: '{value}+0x30' }}")
    };
    let pools = [("both", 2, 1), ("names", 1, 0), ("nobody", 0, 1), ("fine", 0, 0)];
    let input = pools
        .iter()
        .flat_map(|(pool, members, sources)| [series("members", pool, *members), series("sources", pool, *sources)]);
    let alerts = pools[..3].iter().map(|(pool, ..)| {
        format!(
            "{{ exp_labels: {{ severity: ticket, pool: {pool} }}, exp_annotations: {{ summary: \"names, services or files \
             of pool {pool} cannot be asked\" }} }}"
        )
    });
    let test = format!(
        "rule_files: [rules]\ntests:\n- interval: 1m\n  input_series: [{}]\n  alert_rule_test:\n  - {{ eval_time: 20m, \
         alertname: PulsegateSourceInTrouble, exp_alerts: [{}] }}\n",
        input.collect::<Vec<_>>().join(", "),
        alerts.collect::<Vec<_>>().join(", ")
    );
    let path = dir.path().join("test.yaml");
    std::fs::write(&path, test).expect("the folder is ours");
    promtool(&["test", "rules", &path.to_string_lossy()], "");
}

#[test]
fn every_metric_of_a_live_page_is_documented() {
    let origin = Origin::start();
    let proxy = Proxy::start(&(LISTENERS.to_owned() + &pool_config(&[&origin], "")));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).expect("a page");
    let scrape = Scrape::of(&proxy);
    let unknown: Vec<_> =
        scrape.families().into_iter().filter(|name| !page.contains(&format!("| `{name}` |"))).collect();
    assert!(unknown.is_empty() && scrape.families().len() > 40, "{unknown:?}");
}

#[test]
fn names_that_lead_to_one_address_have_series_of_their_own() {
    let origin = Origin::start();
    let port = origin.address().rsplit_once(':').map(|(_, port)| port.to_owned()).expect("a port");
    let members = [origin.to_string(), format!("\"localhost:{port}\"")];
    let proxy = Proxy::start(&config_of(&members, "probe: off"));
    let up = |scrape: &Scrape| scrape.beginning("member_up").into_keys().collect::<Vec<_>>();
    let named = format!("member_up{{pool=\"web\",member=\"127.0.0.1:{port} localhost:{port}\"}}");
    // A scrape with a series twice fails by itself.
    eventually("both are shown", || up(&Scrape::of(&proxy)).contains(&named));
    assert!(up(&Scrape::of(&proxy)).contains(&format!("member_up{{pool=\"web\",member=\"127.0.0.1:{port}\"}}")));
}

#[test]
#[ignore = "a measurement: what a page of 10,000 members costs"]
fn page_of_ten_thousand_members() {
    const SCRAPES: u32 = 20;
    let members: Vec<String> = (0..10_000).map(|n| format!("\"127.1.{}.{}:1\"", n / 250, 1 + n % 250)).collect();
    let proxy = Proxy::start(&config_of(&members, "probe: { path: /healthz, interval: 10s }"));
    eventually("all are judged", || Scrape::of(&proxy).value("pool_mode{pool=\"web\",mode=\"fallback\"}") == 1.0);
    let cpu = |scrape: &Scrape| {
        let line = scrape.text.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
        line.and_then(|seconds| seconds.parse::<f64>().ok()).expect("a number")
    };
    let before = Scrape::of(&proxy);
    (1..SCRAPES).for_each(|_| drop(proxy.admin_get("/metrics")));
    let after = Scrape::of(&proxy);
    let each = (cpu(&after) - cpu(&before)) / f64::from(SCRAPES);
    eprintln!("{} bytes, {} lines, {each:.3} s of a processor", after.text.len(), after.text.lines().count());
    let late = |scrape: &Scrape| scrape.value("probes_late_total");
    assert!(late(&after) - late(&before) < 1000.0, "probes were kept waiting");
}

/// Readers that take nothing must not take the page from others.
#[test]
fn readers_that_stall_keep_nobody_from_a_page() {
    // Their pages are more than kernels hold.
    let members: Vec<String> = (1..3000).map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let proxy = Proxy::start(&config_of(&members, "probe: off"));
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.admin());
    let stalled: Vec<Connection> = (0..8)
        .map(|_| {
            let mut reader = Connection::open(proxy.admin());
            assert_eq!(reader.send(&ask).head().map(|head| head.status), Ok(200));
            reader
        })
        .collect();
    let page = proxy.admin_get("/metrics");
    assert_eq!((page.status, page.text().contains("127.0.0.1:2999")), (200, true));
    drop(stalled);
}
