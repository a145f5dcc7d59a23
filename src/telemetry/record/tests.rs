use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn line(record: &Record<'_>) -> String {
    let mut line = Vec::new();
    record.render(&LogFormat::Json, &mut line);
    String::from_utf8(line).unwrap()
}

fn at(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn attempt(member: &str) -> Attempt {
    Attempt {
        member: member.into(),
        standing: Standing::Healthy,
        window: Some(Window { passes: 3, shown: 4, size: 4, required: Some(3) }),
        probe: Some(Duration::from_micros(12_400)),
        status: None,
        result: AttemptResult::Ok,
        connect: None,
        ttfb: None,
        duration: Duration::ZERO,
        bytes: 0,
        reused: false,
        observed: None,
    }
}

fn pick(reason: Option<PickReason>) -> Pick {
    Pick { mode: Mode::Normal, reason, in_rotation: 2, total: 4, tier: Some(0), rank: 0, waited: Duration::ZERO }
}

/// A request that went well.
fn plain(attempts: &[Attempt]) -> Record<'_> {
    Record {
        time: at(1_767_225_600_123),
        request_id: Some("8f14e45fceea167a".into()),
        client: Some(IpAddr::V6(Ipv4Addr::new(192, 0, 2, 44).to_ipv6_mapped())),
        listener: "0.0.0.0:8080",
        proto: Some("HTTP/1.1"),
        method: Some("GET".into()),
        scheme: Some("http"),
        host: Some("www.example.com".into()),
        path: Some("/items/7".into()),
        query: Some("page=2".into()),
        status: Some(200),
        response_bytes: 1_234,
        duration: Duration::from_micros(4_131),
        ttfb: Some(Duration::from_nanos(3_611_999)),
        user_agent: Some("curl/8.5.0".into()),
        route: Some("catalogue"),
        pool: Some("web"),
        connection: 90_210,
        lb: Some(pick(Some(PickReason::Balanced))),
        attempts,
        ..Record::default()
    }
}

#[test]
fn lines_are_as_in_the_golden_file() {
    let went_well = [Attempt {
        status: Some(200),
        ttfb: Some(Duration::from_micros(3_517)),
        duration: ms(4),
        bytes: 1_234,
        reused: true,
        ..attempt("10.0.0.1:80")
    }];
    // field-cases.md, C68: refused, timed out, answered.
    let third_time = [
        Attempt {
            result: AttemptResult::ConnectFailed,
            duration: Duration::from_micros(212),
            ..attempt("10.0.0.1:80")
        },
        Attempt {
            standing: Standing::Kept,
            window: Some(Window { passes: 0, shown: 1, size: 4, required: Some(3) }),
            result: AttemptResult::Timeout,
            connect: Some(ms(1)),
            duration: ms(1_000),
            ..attempt("10.0.0.2:80")
        },
        Attempt {
            window: Some(Window { passes: 0, shown: 0, size: 5, required: None }),
            probe: None,
            status: Some(200),
            connect: Some(ms(1)),
            ttfb: Some(ms(3)),
            duration: ms(4),
            bytes: 1_234,
            observed: Some(Standing::Ejected),
            ..attempt("[2001:db8::3]:80")
        },
    ];
    let nobody = Pick { mode: Mode::Down, in_rotation: 0, tier: None, waited: ms(1_000), ..pick(None) };
    let records = [
        plain(&went_well),
        Record {
            lb: Some(Pick { mode: Mode::Capped, rank: 1, ..pick(Some(PickReason::Retry)) }),
            duration: Duration::from_micros(1_006_500),
            grpc_status: Some(14),
            tls: Some("TLSv1.3"),
            referer: Some("https://www.example.com/".into()),
            ..plain(&third_time)
        },
        Record {
            status: Some(503),
            outcome: Outcome::Refused,
            reason: Some(Why::AllUnhealthy),
            lb: Some(nobody),
            ..plain(&[])
        },
        // What a listener knows of a request that it could not parse.
        Record {
            time: at(1_767_225_600_123),
            client: Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            listener: "public",
            status: Some(400),
            outcome: Outcome::Refused,
            reason: Some(Why::BadRequest),
            connection: 7,
            ..Record::default()
        },
    ];
    let lines: String = records.iter().map(line).collect();
    assert_eq!(lines, include_str!("golden.jsonl"));
}

#[test]
fn fields_are_those_of_the_interface_in_its_order() {
    let attempts = [attempt("10.0.0.1:80")];
    let line = line(&plain(&attempts));
    let top = "time request_id client listener proto tls method scheme host path query status request_bytes response_bytes \
               duration_ms ttfb_ms grpc_status user_agent referer route pool outcome reason upgraded connection lb attempts";
    let lb = "mode reason in_rotation total tier rank waited_ms";
    let attempt = "member standing window probe_ms status result connect_ms ttfb_ms duration_ms bytes reused";
    let mut rest = line.as_str();
    for name in top.replace(" lb ", &format!(" lb {lb} ")).split_whitespace().chain(attempt.split_whitespace()) {
        let key = format!("\"{name}\":");
        let found = rest.find(&key).unwrap_or_else(|| panic!("{name} is missing or out of order in {line}"));
        assert!(!rest[..found].contains("\":"), "an unexpected field before {name} in {line}");
        rest = &rest[found + key.len()..];
    }
    assert!(!rest.contains("\":"), "an unexpected field at the end of {line}");
}

#[test]
fn what_a_client_sends_stays_inside_its_string() {
    let record = Record {
        path: Some("/\"},\r\n{\"status\":200}\0\u{1b}[2J".into()),
        user_agent: Some(b"\xff\xfe\x9b31m".as_slice().into()),
        ..Record::default()
    };
    let line = line(&record);
    assert!(line.contains(r#""path":"/\"},\r\n{\"status\":200}\u0000\u001b[2J""#), "{line}");
    assert!(line.contains("\"user_agent\":\"\u{fffd}\u{fffd}\u{fffd}31m\""), "{line}");
    assert_eq!(line.matches('\n').count(), 1);
}

#[test]
fn a_clock_far_astray_still_gives_a_line() {
    let rows = [
        (SystemTime::UNIX_EPOCH - Duration::from_secs(1), "1970-01-01T00:00:00.000Z"),
        (SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40), "9999-12-31T23:59:59.000Z"),
    ];
    for (time, expected) in rows {
        assert!(line(&Record { time, ..Record::default() }).starts_with(&format!("{{\"time\":\"{expected}\"")));
    }
}

#[test]
fn every_day_has_its_date() {
    for day in (0..2_932_896).step_by(61).chain(11_010..11_030).chain(20_510..20_520) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(day * 86_400_000 + day * 86_399_999 / 2_932_896);
        assert_eq!(Rfc3339(time).to_string(), humantime::format_rfc3339_millis(time).to_string());
    }
}

proptest! {
    #[test]
    fn any_bytes_come_out_as_one_line_of_json_and_parse_back(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        text in "\\PC*|[\\x00-\\u{a0}\\u{2020}-\\u{2070}]*",
        micros in 0..1_000_000_000_000_u64,
    ) {
        let member = Attempt { member: text.as_str().into(), duration: Duration::from_micros(micros), ..attempt("") };
        let raw = Some(Text::from(bytes.as_slice()));
        let record = Record {
            request_id: raw, method: raw, host: raw, path: raw, query: Some(text.as_str().into()), user_agent: raw, referer: raw,
            listener: &text, route: Some(&text), pool: Some(&text), duration: Duration::from_micros(micros),
            attempts: std::slice::from_ref(&member),
            ..Record::default()
        };
        let line = line(&record);
        prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
        let deceptive = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202e}');
        prop_assert_eq!(line.trim_end_matches('\n').find(deceptive), None);
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        let lossy = String::from_utf8_lossy(&bytes);
        for name in ["request_id", "method", "host", "path", "user_agent", "referer"] {
            prop_assert_eq!(parsed[name].as_str(), Some(lossy.as_ref()));
        }
        for value in [&parsed["query"], &parsed["route"], &parsed["attempts"][0]["member"]] {
            prop_assert_eq!(value.as_str(), Some(text.as_str()));
        }
        prop_assert_eq!(parsed["duration_ms"].as_f64(), Some(micros as f64 / 1000.0));
    }
}
