//! The access log as JSON, as a combined line and by a template: the same requests, and the same bytes of clients.

use serde_json::Value;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Gate, Load, Origin, When, eventually, eventually_some};

/// Everything that C68 asks a line of text for.
const TEMPLATE: &str = "\"$path\" $status $outcome $reason $attempts.member $attempts.status $attempts.result \
                        $attempts.standing $attempts.duration_ms $attempts.bytes \"$user_agent\"";

/// The three formats, as values of YAML.
const FORMATS: [&str; 3] = ["json", "combined", TEMPLATE];

fn proxy_of(format: &str, members: &[&Origin], keys: &str) -> Proxy {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    Proxy::start(&with_log(&format!("format: '{format}'"), &config_of(&members, &format!("probe: off\n{keys}"))))
}

fn with_log(keys: &str, config: &str) -> String {
    format!("access_log: {{ {keys} }}\n{config}")
}

/// The raw line of a request, by its path.
fn line_of(proxy: &Proxy, path: &str) -> String {
    proxy.await_access(path, |line| line.raw.contains(path)).raw
}

/// The columns of a template's line but the user agent, which is the last.
fn columns(line: &str) -> Vec<&str> {
    line.split_once(" \"").unwrap_or_else(|| panic!("no user agent: {line}")).0.split(' ').collect()
}

#[test]
fn every_attempt_is_told_in_columns_of_equal_length() {
    let (refuses, hangs, good) = (Origin::stopped(), Origin::start(), Origin::start());
    hangs.answer(Answer::hang());
    let retries = "retries: { attempts: 3, connect: 3, budget: 100%, per_try_timeout: 300ms }";
    let order = [refuses.address(), hangs.address(), good.address()];
    for format in FORMATS {
        let proxy = proxy_of(format, &[&refuses, &hangs, &good], retries);
        let mut round = 0;
        let line = eventually_some("a request meets all three in this order", || {
            round += 1;
            let path = format!("/tries/{round}");
            assert_eq!(proxy.get(&path).status, 200, "{format}");
            let line = line_of(&proxy, &path);
            // The combined line does not tell: whichever it was, the answer is the last member's.
            (format == "combined" || in_order(&line, &order)).then_some(line)
        });
        match format {
            "json" => assert_json_attempts(&line, &order),
            "combined" => {
                assert!(line.ends_with(" HTTP/1.1\" 200 3 \"-\" \"-\""), "{line}");
            }
            _ => assert_columns(&line, &order),
        }
    }
}

fn in_order(line: &str, order: &[String]) -> bool {
    let mut rest = line;
    order.iter().all(|member| match rest.split_once(member.as_str()) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

fn assert_json_attempts(line: &str, order: &[String]) {
    let json: Value = serde_json::from_str(line).expect("json");
    let attempts = json["attempts"].as_array().expect("attempts");
    let field = |name: &str| -> Vec<&Value> { attempts.iter().map(|attempt| &attempt[name]).collect() };
    assert_eq!(
        field("member"),
        order.iter().map(|m| Value::from(m.as_str())).collect::<Vec<_>>().iter().collect::<Vec<_>>()
    );
    assert_eq!(field("status"), [&Value::Null, &Value::Null, &200.into()], "{line}");
    assert_eq!(field("result"), [&Value::from("connect_failed"), &"timeout".into(), &"ok".into()], "{line}");
    let times: f64 = field("duration_ms").iter().filter_map(|ms| ms.as_f64()).sum();
    assert!(times <= json["duration_ms"].as_f64().expect("a time") + 0.01, "{line}");
}

fn assert_columns(line: &str, order: &[String]) {
    let (path, rest) = line[1..].split_once("\" ").expect("a quoted path");
    assert!(path.starts_with("/tries/"), "{line}");
    let columns = columns(rest);
    assert_eq!(columns[..3], ["200", "ok", "-"], "{line}");
    assert_eq!(columns[3], order.join(","), "{line}");
    assert_eq!(columns[4], "-,-,200", "{line}");
    assert_eq!(columns[5], "connect_failed,timeout,ok", "{line}");
    assert!(columns[6..].iter().all(|list| list.split(',').count() == 3), "{line}");
}

#[test]
fn own_answers_show_no_attempt_and_nothing_stale() {
    let origin = Origin::start();
    let pool =
        |name: &str, more: &str| format!("  {name}: {{ members: [{{ address: {origin}, {more} }}], probe: off }}\n");
    let pools = [pool("up", ""), pool("off", "state: disabled")].concat();
    let config = format!("pools:\n{pools}routes:\n  - {{ path: /up, pool: up }}\n  - {{ path: /off, pool: off }}\n");
    for format in FORMATS {
        let proxy = Proxy::start(&with_log(&format!("format: '{format}'"), &config));
        let mut kept = proxy.connect();
        // One that has attempts goes before, on the same connection.
        for (path, status, reason) in [("/up", 200, "-"), ("/off", 503, "no_member"), ("/none", 404, "no_route")] {
            assert_eq!(kept.get(path).status, status, "{format}");
            let line = line_of(&proxy, path);
            let own = status != 200;
            match format {
                "json" => {
                    let json: Value = serde_json::from_str(&line).expect("json");
                    assert_eq!(
                        (json["reason"].as_str(), json["attempts"] == Value::from(Vec::<Value>::new())),
                        (Some(reason), own),
                        "{line}"
                    );
                }
                "combined" => assert!(line.contains(&format!("\"GET {path} HTTP/1.1\" {status} ")), "{line}"),
                _ if own => {
                    let start = format!("\"{path}\" {status} refused {reason} ");
                    assert!(line.starts_with(&start) && line.ends_with(" - - - - - - \"-\""), "{line}");
                }
                _ => assert!(line.contains(&format!(" 200 ok - {} 200 ok healthy ", origin.address())), "{line}"),
            }
        }
    }
}

#[test]
fn client_that_leaves_between_attempts_has_one_line_with_them() {
    for format in FORMATS {
        let (one, gate) = (Origin::start(), Gate::new());
        let other = Origin::start();
        for origin in [&one, &other] {
            origin.when(When::path("/leaves"), Answer::status(200).held_by(&gate));
        }
        let retries = "retries: { attempts: 2, budget: 100%, per_try_timeout: 300ms }\nupstream: { read_timeout: 20s }";
        let proxy = proxy_of(format, &[&one, &other], retries);
        let mut client = proxy.connect();
        client.send("GET /leaves HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the second attempt is under way", || one.traffic_count() + other.traffic_count() == 2);
        client.reset();
        let line = line_of(&proxy, "/leaves");
        // The second attempt may have been over, too, before the proxy saw the client go.
        match format {
            "json" => {
                let json: Value = serde_json::from_str(&line).expect("json");
                let results: Vec<_> =
                    json["attempts"].as_array().expect("a list").iter().map(|a| &a["result"]).collect();
                assert_eq!((results.len(), results[0]), (2, &"timeout".into()), "{line}");
                assert!(json["status"] == 499 || json["status"] == 504, "{line}");
            }
            "combined" => assert!(line.contains("HTTP/1.1\" 499 0 ") || line.contains("HTTP/1.1\" 504 "), "{line}"),
            _ => {
                let columns = columns(&line["\"/leaves\" ".len()..]);
                assert!(["499", "504"].contains(&columns[0]), "{line}");
                assert!(columns[5].starts_with("timeout,") && columns[4] == "-,-", "{line}");
            }
        }
        gate.open();
        proxy.get("/sentinel");
        line_of(&proxy, "/sentinel");
        assert_eq!(proxy.access_log().len(), 2, "{format}");
    }
}

/// What an attacker puts where it will be logged (http-rows.md L01): in the target, in a field that is logged.
const HOSTILE: [&[u8]; 12] = [
    b"quote\"quote",
    b"back\\slash",
    b"\\\"\\",
    b"a\rb",
    b"a\nb",
    b"a\r\n192.0.2.1 - - [x] \"GET /forged HTTP/1.1\" 200 0",
    b"\x1b[31mred\x1b[0m",
    b"nul\x00nul",
    b"\x7f\x80\x9b\xff",
    "ünï\u{2028}\u{202e}".as_bytes(),
    b"tab\tand blank and more",
    b"%0d%0aSet-Cookie:%20x",
];

#[test]
fn no_bytes_of_a_client_forge_a_line_or_a_field() {
    let origin = Origin::start();
    for format in FORMATS {
        let proxy = proxy_of(format, &[&origin], "");
        for hostile in HOSTILE {
            for in_target in [true, false] {
                let (mut target, mut agent) = (b"/h/".to_vec(), b"agent ".to_vec());
                if in_target {
                    target.extend_from_slice(hostile)
                } else {
                    agent.extend_from_slice(hostile)
                }
                let parts = [
                    b"GET ",
                    &target[..],
                    b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nUser-Agent: ",
                    &agent,
                    b"\r\n\r\n",
                ];
                let mut client = proxy.connect();
                client.send(parts.concat());
                // Most of it is no request at all; the line is there all the same.
                let _ = client.try_reply("GET");
                assert!(client.is_closed(), "{format} {hostile:?}");
            }
        }
        let sent = 2 * HOSTILE.len();
        eventually(&format!("{format}: a line each"), || proxy.access_log().len() >= sent);
        proxy.get("/sentinel");
        line_of(&proxy, "/sentinel");
        let lines = proxy.access_log();
        assert_eq!(lines.len(), sent + 1, "{format}: {:?}", lines.iter().map(|line| &line.raw).collect::<Vec<_>>());
        for line in &lines {
            let raw = &line.raw;
            let deceptive = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}');
            assert!(!raw.contains(deceptive), "{format}: {raw:?}");
            match format {
                "json" => assert!(line.json.is_object(), "{raw}"),
                "combined" => {
                    assert!(raw.is_ascii() && raw.matches('"').count() == 6, "{raw}");
                    let request = raw.split('"').nth(1).unwrap_or_default();
                    assert!(request == "-" || request.split(' ').count() == 3, "{raw}");
                }
                _ => {
                    assert!(raw.is_ascii() && raw.matches('"').count() == 4, "{raw}");
                    assert_eq!(columns(raw.split_once("\" ").expect("a path").1).len(), 9, "{raw}");
                }
            }
        }
        // Some of them came through: it was no test of the parser alone.
        let through = lines.iter().filter(|line| line.raw.contains("\\x22") || line.raw.contains("\\\"")).count();
        assert!(through > 0, "{format}: nothing hostile reached the log");
    }
}

#[test]
fn a_template_can_write_what_nginx_writes() {
    let origin = Origin::start();
    let format =
        "$client - - [$time_local] \"$request\" $status $response_bytes \"$referer\" \"$user_agent\" $duration_ms";
    let proxy = proxy_of(format, &[&origin], "");
    for (asked, shown) in [("/plain", "/plain"), ("/query?a=b?c", "/query?a=b?c"), ("/empty?", "/empty?")] {
        assert_eq!(proxy.get(asked).status, 200);
        let line = line_of(&proxy, shown.split('?').next().unwrap_or_default());
        let (head, rest) = line.split_once('[').expect("a time");
        let (time, rest) = rest.split_once("] ").expect("a time");
        assert_eq!((head, time.len()), ("127.0.0.1 - - ", 26), "{line}");
        assert!(time.ends_with(" +0000"), "{line}");
        let millis = rest.strip_prefix(&format!("\"GET {shown} HTTP/1.1\" 200 3 \"-\" \"-\" ")).expect(&line);
        assert!(millis.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn every_answered_request_has_exactly_one_line_when_the_end_comes_under_load() {
    for format in ["json", "combined", "$request_id $path $status $outcome"] {
        let origin = Origin::start();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("access.log");
        let log = format!("path: \"{}\", format: '{format}'", path.display());
        let mut proxy = Proxy::start(&with_log(&log, &config_of(&[origin.to_string()], "probe: off")));
        let load = Load::start(proxy.address(), 4, "/load");
        load.await_each(20);
        proxy.signal("TERM");
        assert_eq!(proxy.wait().code(), Some(0), "{format}");
        let tally = load.finish();
        let answered: usize = tally.statuses.values().sum();
        assert!(answered >= 80, "{format}: {tally:?}");
        let text = std::fs::read_to_string(&path).expect("the log");
        assert!(text.ends_with('\n'), "{format}: torn");
        let good = text.lines().filter(|line| line.contains(" 200 ") || line.contains("\"status\":200,")).count();
        assert_eq!(good, answered, "{format}: answers and lines");
        // One that was being read at the end has its line as well, and no answer.
        let lines = text.lines().count();
        assert!(
            (answered..=tally.total()).contains(&lines),
            "{format}: {lines} lines, {answered} of {}",
            tally.total()
        );
        assert_eq!(origin.traffic_count(), answered, "{format}");
        let ended = proxy.await_log("the end", 0, |line| line.text("message") == "ended");
        assert_eq!(ended.json["log_lines_lost"], 0, "{}", ended.raw);
    }
}
