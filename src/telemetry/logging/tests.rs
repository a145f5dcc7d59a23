use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tracing_log::log;

use super::super::child;
use super::*;

const LONG: Duration = Duration::from_secs(30);

/// What `speak` logs, line by line.
fn logged(style: Style, speak: impl FnOnce()) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("log");
    let lines = Arc::new(Lines::start(Output::file("log", path.clone()).unwrap(), CAPACITY).unwrap());
    let subscriber = Registry::default().with(ToLines { lines: Arc::clone(&lines), style });
    tracing::subscriber::with_default(subscriber, speak);
    assert_eq!(lines.close(LONG), 0);
    fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect()
}

/// What the only line says after its time.
fn without_time(lines: &[String]) -> &str {
    let [line] = lines else { panic!("not one line: {lines:?}") };
    let (time, rest) = line.split_once(' ').unwrap();
    humantime::parse_rfc3339(time).unwrap();
    rest
}

#[test]
fn json_lines_have_flat_fields_with_their_types() {
    let lines = logged(Style::Json, || {
        let absent: Option<u64> = None;
        tracing::warn!(
            target: "somewhere", count = 3_u64, below = -1_i64, ratio = 0.5, yes = true, text = "a\nb", shown = %"x=1",
            debugged = ?Some(1), nan = f64::NAN, absent, level = "its own", "hello {}", "world"
        );
    });
    let [line] = lines.as_slice() else { panic!("not one line: {lines:?}") };
    let mut parsed: Value = serde_json::from_str(line).unwrap();
    let time = parsed.as_object_mut().unwrap().remove("time").unwrap();
    humantime::parse_rfc3339(time.as_str().unwrap()).unwrap();
    let expected = json!({
        "level": "warn", "target": "somewhere", "message": "hello world", "count": 3, "below": -1, "ratio": 0.5, "yes": true,
        "text": "a\nb", "shown": "x=1", "debugged": "Some(1)", "nan": null, "event.level": "its own",
    });
    assert_eq!(parsed, expected);
    assert!(line.starts_with("{\"time\":\""), "{line}");
}

#[test]
fn text_lines_are_for_people() {
    let lines = logged(Style::Plain, || tracing::info!(target: "server", port = 80, name = "a b", "listening"));
    assert_eq!(without_time(&lines), " INFO server: listening port=80 name=\"a b\"");
    let lines = logged(Style::Colour, || tracing::error!(target: "server", "no"));
    assert!(lines[0].contains("\u{1b}[31mERROR\u{1b}[0m"), "{lines:?}");
}

#[test]
fn people_are_not_told_again_what_the_message_says() {
    let (pool, member, detail) = ("web", "10.0.0.1:80", "503, expected 200-299");
    let speak = || {
        tracing::info!(target: "probe", %pool, %member, reason = "status", detail, tries = 3, "pool {pool}, {member}: status: {detail}");
        tracing::info!(target: "probe", %member, detail = "", host = "web.test", "10.0.0.1:8080 of web, 3 times");
    };
    let lines = logged(Style::Plain, speak);
    let said = " INFO probe: pool web, 10.0.0.1:80: status: 503, expected 200-299 tries=3";
    assert_eq!(without_time(&lines[..1]), said, "a number is told, whatever the message says");
    let said = " INFO probe: 10.0.0.1:8080 of web, 3 times member=\"10.0.0.1:80\" detail=\"\" host=\"web.test\"";
    assert_eq!(without_time(&lines[1..]), said, "a part of a word is none");
    assert!(logged(Style::Json, speak)[0].contains("\"detail\":\"503, expected 200-299\""));
}

#[test]
fn health_events_are_their_message_alone_in_text() {
    let lines =
        logged(Style::Plain, || tracing::warn!(target: "health", kind = "member", pool = "web", "it is unhealthy"));
    assert_eq!(without_time(&lines), " WARN health: it is unhealthy");
}

#[test]
fn no_message_makes_a_second_line_or_moves_the_cursor() {
    for style in [Style::Plain, Style::Json] {
        let lines = logged(style, || {
            tracing::info!(detail = "\u{1b}[2J\n", "503\r\n2026-01-01 ERROR forged\u{1b}[31m");
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].find(char::is_control), None, "{lines:?}");
    }
}

#[test]
fn a_value_that_logs_while_it_is_logged_does_no_harm() {
    struct Talkative;
    impl fmt::Debug for Talkative {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            tracing::info!("from within");
            f.write_str("done")
        }
    }
    let lines = logged(Style::Plain, || tracing::info!(value = ?Talkative, "outer"));
    assert!(lines.iter().any(|line| line.ends_with("outer value=\"done\"")), "{lines:?}");
}

#[test]
fn the_default_filter_is_one_and_a_wrong_one_is_named() {
    assert!(parse_filter(None).is_ok());
    assert_eq!(parse_filter(Some(" ")).unwrap().to_string(), parse_filter(None).unwrap().to_string());
    let error = parse_filter(Some("pingora=loud")).unwrap_err().to_string();
    assert!(error.starts_with("log filter \"pingora=loud\": "), "{error}");
}

#[test]
fn libraries_that_use_log_are_heard_through_the_filter() {
    if !child::is_here() {
        let stderr = child::run(module_path!(), "libraries_that_use_log_are_heard_through_the_filter", "");
        let lines = stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")));
        let said: Vec<_> =
            lines.map(|line| format!("{} {} {}", line["level"], line["target"], line["message"])).collect();
        let expected = [
            r#""info" "pulsegate" "ours""#,
            r#""info" "other" "bridged""#,
            r#""error" "pingora_core::services" "accept failed""#,
        ];
        assert_eq!(said, expected);
        return;
    }
    let logging = init(None, Format::Json).unwrap();
    assert!(matches!(init(None, Format::Text), Err(InitError::Twice)));
    tracing::info!(target: "pulsegate", "ours");
    tracing::debug!(target: "pulsegate", "too quiet");
    log::info!(target: "other", "bridged");
    log::error!(target: "pingora_proxy", "Fail to proxy: one request");
    log::warn!(target: "pingora_core::services", "too quiet");
    log::error!(target: "pingora_core::services", "accept failed");
    log::error!(target: "pingora_core::apps::http_app", "one request");
    log::info!(target: "notify::inotify", "unable to remove watch descriptor from inotify");
    log::warn!(target: "notify::inotify", "Unable to remove the path from the watches");
    assert!(logging.flush(LONG));
    assert_eq!((logging.close(LONG), logging.dropped()), (0, 0));
}
