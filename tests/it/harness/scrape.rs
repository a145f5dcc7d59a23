//! One scrape of `/metrics`, and what the access log says that it must show.

use std::collections::BTreeMap;

use super::process::Line;
use super::proxy::Proxy;

/// Series and values.
type Series = BTreeMap<String, f64>;

/// One scrape.
#[derive(Debug, Clone)]
pub struct Scrape {
    pub text: String,
    series: Series,
}

impl Scrape {
    /// What the proxy shows now.
    #[track_caller]
    pub fn of(proxy: &Proxy) -> Scrape {
        let reply = proxy.admin_get("/metrics");
        assert_eq!((reply.status, reply.complete), (200, true), "{}", reply.text());
        let text = reply.text();
        let mut series = Series::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
            let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(series.insert(name.to_owned(), value).is_none(), "twice: {line}");
        }
        Scrape { text, series }
    }

    /// The value of a series, written as on the page without the prefix; 0 for one that is not there.
    pub fn value(&self, series: &str) -> f64 {
        self.find(series).unwrap_or(0.0)
    }

    /// The same, if it is there.
    pub fn find(&self, series: &str) -> Option<f64> {
        self.series.get(&format!("pulsegate_{series}")).copied()
    }

    /// Names of all families.
    pub fn families(&self) -> Vec<&str> {
        self.text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
    }

    /// Everything that begins so, as the page has it without the prefix.
    pub fn beginning(&self, start: &str) -> Series {
        let named = |(name, value): (&String, &f64)| Some((name.strip_prefix("pulsegate_")?.to_owned(), *value));
        self.series.iter().filter_map(named).filter(|(name, _)| name.starts_with(start)).collect()
    }

    /// Counters, by series.
    pub fn counters(&self) -> Series {
        let is_counter =
            |name: &str| name.split('{').next().is_some_and(|n| n.ends_with("_total") || n.ends_with("_count"));
        self.series.iter().filter(|(name, _)| is_counter(name)).map(|(name, value)| (name.clone(), *value)).collect()
    }

    /// Asserts that requests, attempts, retries, dials and times are those of these lines.
    #[track_caller]
    pub fn agrees_with(&self, lines: &[Line]) {
        let expected = told(lines);
        let counted = ["requests_total", "upstream_attempts_total", "retries_total", "upstream_connect_seconds_count"];
        let counted = counted.iter().chain(&["request_duration_seconds_count"]);
        let found: Series = counted.flat_map(|name| self.beginning(name)).filter(|(_, value)| *value != 0.0).collect();
        let raw = || lines.iter().map(|line| line.raw.as_str()).collect::<Vec<_>>().join("\n");
        assert_eq!(found, expected, "the page, and what the log tells:\n{}", raw());
    }
}

/// What a page must show by these lines.
fn told(lines: &[Line]) -> Series {
    let mut series = Series::new();
    let mut count = |name: String| *series.entry(name).or_insert(0.0) += 1.0;
    for line in lines {
        let [listener, route, pool] = ["listener", "route", "pool"].map(|field| escaped(line.text(field)));
        let code = line.json["status"].as_u64().map_or("none".to_owned(), |status| status.to_string());
        count(format!("requests_total{{listener=\"{listener}\",route=\"{route}\",pool=\"{pool}\",code=\"{code}\"}}"));
        let mut before: Option<&str> = None;
        for attempt in line.attempts() {
            let word = |key: &str| attempt[key].as_str().unwrap_or_default();
            let (member, result) = (word("member"), word("result"));
            count(format!("upstream_attempts_total{{pool=\"{pool}\",member=\"{member}\",result=\"{result}\"}}"));
            if let Some(before) = before {
                count(format!("retries_total{{pool=\"{pool}\",reason=\"{before}\"}}"));
            }
            if attempt["connect_ms"].is_number() {
                count(format!("upstream_connect_seconds_count{{pool=\"{pool}\"}}"));
            }
            before = Some(result);
        }
        if !pool.is_empty() && line.json["upgraded"] != true {
            count(format!("request_duration_seconds_count{{pool=\"{pool}\"}}"));
        }
    }
    series
}

/// As a label's value is written (text format 0.0.4).
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
