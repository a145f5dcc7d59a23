use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::config::{self, LogFormat};
use crate::health::{Mode, Standing, Window};
use crate::telemetry::{Attempt, AttemptResult, Outcome, Pick, PickReason, Text, Why};

/// The format as a file means it.
fn format(written: &str) -> LogFormat {
    let json = serde_json::json!({
        "listeners": [{ "address": "127.0.0.1:80" }],
        "access_log": { "format": written },
        "pools": { "web": { "members": ["10.0.0.1:80"], "probe": "off" } },
        "routes": [{ "pool": "web" }],
    });
    let loaded = config::parse("f", &json.to_string(), &|_| None);
    loaded.unwrap_or_else(|problems| panic!("{problems:?}")).config.access_log.format
}

fn line(format: &LogFormat, record: &Record<'_>) -> String {
    let mut line = Vec::new();
    record.render(format, &mut line);
    String::from_utf8(line).expect("it is text")
}

fn attempt(member: &str) -> Attempt {
    Attempt {
        member: member.into(),
        standing: Standing::Healthy,
        window: Some(Window { passes: 3, shown: 4, size: 4, required: Some(3) }),
        probe: Some(Duration::from_micros(12_400)),
        status: None,
        result: AttemptResult::ConnectFailed,
        connect: None,
        ttfb: None,
        duration: Duration::from_micros(212),
        bytes: 0,
        reused: false,
        observed: None,
    }
}

/// Refused, timed out, answered (field-cases.md, C68).
fn third_time() -> [Attempt; 3] {
    let ms = Duration::from_millis;
    [
        attempt("10.0.0.1:80"),
        Attempt {
            standing: Standing::Kept,
            window: None,
            probe: None,
            result: AttemptResult::Timeout,
            connect: Some(ms(1)),
            duration: ms(1_000),
            ..attempt("10.0.0.2:80")
        },
        Attempt {
            status: Some(200),
            result: AttemptResult::Ok,
            connect: Some(ms(2)),
            ttfb: Some(ms(3)),
            duration: ms(4),
            bytes: 1_234,
            reused: true,
            observed: Some(Standing::Ejected),
            ..attempt("[2001:db8::3]:80")
        },
    ]
}

fn whole(attempts: &[Attempt]) -> Record<'_> {
    Record {
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_323_199_123),
        request_id: Some("8f14e45fceea167a".into()),
        client: Some(IpAddr::V6(Ipv4Addr::new(192, 0, 2, 44).to_ipv6_mapped())),
        listener: "web \"one\"",
        proto: Some("HTTP/1.1"),
        tls: Some("TLSv1.3"),
        method: Some("GET".into()),
        scheme: Some("https"),
        host: Some("www.example.com".into()),
        path: Some("/items/7".into()),
        query: Some("page=2".into()),
        status: Some(200),
        request_bytes: 5,
        response_bytes: 1_234,
        duration: Duration::from_micros(1_006_500),
        ttfb: Some(Duration::from_micros(3_611)),
        grpc_status: Some(14),
        user_agent: Some("curl/8.5.0 (x; \"y\")".into()),
        referer: Some("https://www.example.com/".into()),
        route: Some("catalogue"),
        pool: Some("web"),
        outcome: Outcome::Ok,
        reason: None,
        upgraded: false,
        connection: 90_210,
        lb: Some(Pick {
            mode: Mode::Capped,
            reason: Some(PickReason::Retry),
            in_rotation: 2,
            total: 4,
            tier: Some(0),
            rank: 1,
            waited: Duration::ZERO,
        }),
        attempts,
    }
}

/// A line of which nothing is known.
fn unknown() -> Record<'static> {
    Record { status: Some(400), outcome: Outcome::Refused, reason: Some(Why::BadRequest), ..Record::default() }
}

#[test]
fn combined_is_the_line_of_ncsa_and_apache() {
    let combined = format("combined");
    assert_eq!(
        line(&combined, &whole(&third_time())),
        "192.0.2.44 - - [28/Feb/2026:23:59:59 +0000] \"GET /items/7?page=2 HTTP/1.1\" 200 1234 \
         \"https://www.example.com/\" \"curl/8.5.0 (x; \\x22y\\x22)\"\n"
    );
    assert_eq!(line(&combined, &unknown()), "- - - [01/Jan/1970:00:00:00 +0000] \"-\" 400 0 \"-\" \"-\"\n");
    let cut =
        Record { method: Some("GET".into()), path: Some("/".into()), query: Some("".into()), ..Record::default() };
    assert_eq!(line(&combined, &cut), "- - - [01/Jan/1970:00:00:00 +0000] \"GET /? -\" - 0 \"-\" \"-\"\n");
}

#[test]
fn a_template_can_be_the_combined_line_and_more() {
    let nginx = r#"$client - - [$time_local] "$request" $status $response_bytes "$referer" "$user_agent""#;
    let (combined, template) = (format("combined"), format(&format!("{nginx} $(duration_ms)")));
    let attempts = third_time();
    let cut =
        Record { method: Some("GET".into()), path: Some("/".into()), query: Some("".into()), ..Record::default() };
    let hostile = Record {
        path: Some("/a b\"\r\n".into()),
        query: Some("?c d".into()),
        proto: Some("HTTP/1.0"),
        ..Record::default()
    };
    for record in [whole(&attempts), unknown(), cut, hostile] {
        let (line, more) = (line(&combined, &record), line(&template, &record));
        assert_eq!(more.rsplit_once(' ').expect("a time").0, line.trim_end_matches('\n'));
    }
}

#[test]
fn a_target_is_the_path_and_the_query_where_there_is_one() {
    let record = |path: Option<&'static str>, query: Option<&'static str>| Record {
        method: Some("GET".into()),
        path: path.map(Into::into),
        query: query.map(Into::into),
        proto: Some("HTTP/1.1"),
        ..unknown()
    };
    for (path, query, target) in [
        (Some("/a"), None, "/a"),
        (Some("/a"), Some(""), "/a?"),
        (Some("/a"), Some("b=c?d"), "/a?b=c?d"),
        (Some("*"), None, "*"),
        (None, None, "-"),
    ] {
        let record = record(path, query);
        assert_eq!(line(&format("$target"), &record), format!("{target}\n"));
        assert_eq!(line(&format("\"$request\""), &record), format!("\"GET {target} HTTP/1.1\"\n"));
    }
    let record = record(Some("/a b|"), Some("c?d e"));
    for (template, expected) in [
        ("$target $status", "/a\\x20b|?c?d\\x20e 400"),
        ("$target|$status", "/a b\\x7C?c?d e|400"),
        ("$target?$status", "/a b|\\x3Fc\\x3Fd e?400"),
        ("$request|$status", "GET /a\\x20b\\x7C?c?d\\x20e HTTP/1.1|400"),
        ("$request $status", "GET\\x20/a\\x20b|?c?d\\x20e\\x20HTTP/1.1 400"),
    ] {
        assert_eq!(line(&format(template), &record), format!("{expected}\n"), "{template}");
    }
}

#[test]
fn a_template_shows_every_field_of_the_json_line_and_no_other() {
    let attempts = third_time();
    let record = whole(&attempts);
    let json: serde_json::Value = serde_json::from_str(&line(&LogFormat::Json, &record)).expect("json");
    let mut names = Vec::new();
    for (name, value) in json.as_object().expect("an object") {
        // The last attempt has them all.
        let nested = value.as_object().or_else(|| value.as_array().and_then(|items| items.last()?.as_object()));
        match nested {
            Some(parts) => names.extend(parts.keys().map(|part| format!("{name}.{part}"))),
            None => names.push(name.clone()),
        }
    }
    names.sort_unstable();
    let mut known: Vec<&str> = Field::ALL.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(names, known);
    for (name, _) in Field::ALL {
        let written = line(&format(&format!("$({name})")), &record);
        let wanted = match name.split_once('.') {
            Some(("attempts", part)) => {
                json["attempts"].as_array().expect("a list").iter().map(|attempt| shown(&attempt[part])).collect()
            }
            Some((outer, part)) => vec![shown(&json[outer][part])],
            None => vec![shown(&json[*name])],
        };
        assert_eq!(written.trim_end_matches('\n'), wanted.join(","), "{name}");
    }
}

/// What a template makes of a value of the JSON line.
fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "-".to_owned(),
        serde_json::Value::Number(number) if number.is_f64() => format!("{:.3}", number.as_f64().expect("a number")),
        serde_json::Value::String(text) => text.replace('"', "\\x22"),
        other => other.to_string(),
    }
}

#[test]
fn what_is_unknown_or_empty_is_a_dash() {
    let empty = Record { user_agent: Some("".into()), query: Some("".into()), ..unknown() };
    for (template, expected) in [
        ("$client $method $path $tls $lb.mode $ttfb_ms", "- - - - - -"),
        ("$request \"$request\" $target", "- \"-\" -"),
        ("$attempts.member $attempts.status $attempts.duration_ms", "- - -"),
        ("$query|$user_agent|$listener", "-|-|-"),
        ("$status $outcome $reason $upgraded $duration_ms $request_bytes", "400 refused bad_request false 0.000 0"),
    ] {
        assert_eq!(line(&format(template), &empty), format!("{expected}\n"), "{template}");
    }
}

#[test]
fn lists_of_attempts_are_of_equal_length() {
    let attempts = third_time();
    let template = format("$attempts.member $attempts.status $attempts.result $attempts.connect_ms $attempts.window");
    assert_eq!(
        line(&template, &whole(&attempts)),
        "10.0.0.1:80,10.0.0.2:80,[2001:db8::3]:80 -,-,200 connect_failed,timeout,ok -,1.000,2.000 3/4,-,3/4\n"
    );
}

#[test]
fn what_a_client_sends_ends_neither_the_line_nor_its_field() {
    let record = Record {
        path: Some("/a\r\n192.0.2.1 - - x\0\u{1b}[2J".into()),
        user_agent: Some(b"x\" 200 \"|]\t\xff\\x22".as_slice().into()),
        ..unknown()
    };
    let path = "/a\\x0D\\x0A192.0.2.1\\x20-\\x20-\\x20x\\x00\\x1B[2J";
    let combined = line(&format("combined"), &record);
    assert!(combined.contains(&format!("\"- {path} -\" 400 0 ")), "{combined}");
    assert!(combined.ends_with(" \"x\\x22 200 \\x22|]\\x09\\xFF\\x5Cx22\"\n"), "{combined}");
    for (template, expected) in [
        ("\"$user_agent\" $status", "\"x\\x22 200 \\x22|]\\x09\\xFF\\x5Cx22\" 400"),
        ("$user_agent $status", "x\\x22\\x20200\\x20\\x22|]\\x09\\xFF\\x5Cx22 400"),
        ("$user_agent|$status", "x\\x22 200 \\x22\\x7C]\\x09\\xFF\\x5Cx22|400"),
        ("[$user_agent]", "[x\\x22 200 \\x22|\\x5D\\x09\\xFF\\x5Cx22]"),
        ("$path", "/a\\x0D\\x0A192.0.2.1 - - x\\x00\\x1B[2J"),
    ] {
        assert_eq!(line(&format(template), &record), format!("{expected}\n"), "{template}");
    }
}

proptest! {
    #[test]
    fn any_bytes_come_out_as_one_line_whose_fields_can_be_told_apart(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        more in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let (raw, other) = (Some(Text::from(bytes.as_slice())), Some(Text::from(more.as_slice())));
        let record = Record {
            request_id: other, method: other, host: other, path: raw, query: other, referer: other, user_agent: raw, ..unknown()
        };
        let printable = |text: &str| text.trim_end_matches('\n').bytes().all(|b| (b' '..=b'~').contains(&b) || b == b'\t');
        let combined = line(&format("combined"), &record);
        prop_assert!(combined.find('\n') == Some(combined.len() - 1) && printable(&combined));
        prop_assert_eq!(combined.matches('"').count(), 6);
        let request = combined.split('"').nth(1).unwrap_or_default();
        prop_assert_eq!(request.split(' ').count(), 3);
        let asked = line(&format("$request|$target $status"), &record);
        let (request, rest) = asked.split_once('|').unwrap();
        prop_assert!(request.split(' ').count() == 3 && printable(&asked));
        prop_assert_eq!(rest.split(' ').count(), 2);
        let template = line(&format("$path $user_agent;$host\t\"$referer\" $query $status"), &record);
        prop_assert!(template.find('\n') == Some(template.len() - 1) && printable(&template));
        prop_assert_eq!(template.matches('"').count(), 2);
        let (path, rest) = template.split_once(' ').unwrap();
        let (agent, rest) = rest.split_once(';').unwrap();
        let (host, rest) = rest.split_once('\t').unwrap();
        let (referer, rest) = rest[1..].split_once("\" ").unwrap();
        prop_assert_eq!(rest.split(' ').count(), 2);
        let escaped = |text: &[u8], end: Option<u8>| {
            let mut line = Vec::new();
            super::super::escape::append(&mut line, text, end.as_slice());
            if text.is_empty() { "-".to_owned() } else { String::from_utf8(line).unwrap() }
        };
        prop_assert_eq!(path, escaped(&bytes, Some(b' ')));
        prop_assert_eq!(agent, escaped(&bytes, Some(b';')));
        prop_assert_eq!(host, escaped(&more, Some(b'\t')));
        prop_assert_eq!(referer, escaped(&more, Some(b'"')));
    }
}
