//! Probes over HTTP/2, asked of nginx.

use crate::harness::nginx::Nginx;
use crate::harness::proxy::config_of;
use crate::harness::tls::{Authority, Paper};
use crate::harness::{Origin, Proxy, eventually};

const PACE: &str = "interval: 300ms, fast_interval: 50ms, timeout: 300ms";

#[track_caller]
fn await_reason(proxy: &Proxy, address: &str, reason: &str, detail: &str) {
    eventually(&format!("{reason}: {detail}"), || {
        let last = proxy.member("web", address)["last_probe"].clone();
        last["reason"] == reason && last["detail"].as_str().is_some_and(|shown| shown.contains(detail))
    });
}

#[track_caller]
fn await_healthy(proxy: &Proxy, nginx: &Nginx) {
    eventually("it is healthy", || proxy.member("web", &nginx.address())["standing"] == "healthy");
    eventually("three probes came", || nginx.probes().len() >= 3);
}

fn known_as(nginx: &Nginx, name: &str) -> String {
    format!("{{ address: \"{}\", host: {name} }}", nginx.address())
}

fn probe(keys: &str) -> String {
    format!("probe: {{ path: /, {PACE}, expect: {{ body: nginx }}, {keys} }}")
}

#[test]
fn over_tls_http_2_is_agreed_on_and_traffic_stays_with_http_1() {
    let authority = Authority::named("Test Authority");
    let nginx = Nginx::start_http2_tls(&authority.paper(&["app1.test"]));
    let keys = format!("{}\nupstream: {{ tls: {{ ca: {} }} }}", probe("http2: true"), authority.ca());
    let proxy = Proxy::start(&config_of(&[known_as(&nginx, "app1.test")], &keys));
    await_healthy(&proxy, &nginx);
    assert!(nginx.probes().iter().all(|(protocol, nth)| protocol == "HTTP/2.0" && *nth == 1), "{:?}", nginx.probes());
    assert_eq!(proxy.get("/as-ever").status, 200);
}

#[test]
fn without_tls_it_is_spoken_at_once() {
    let nginx = Nginx::start_http2();
    let proxy = Proxy::start(&config_of(&[format!("\"{}\"", nginx.address())], &probe("http2: true")));
    await_healthy(&proxy, &nginx);
    assert!(nginx.probes().iter().all(|(protocol, nth)| protocol == "HTTP/2.0" && *nth == 1), "{:?}", nginx.probes());
}

#[test]
fn member_that_does_not_agree_to_it_is_told_so() {
    let paper = Paper::self_signed(&["app1.test"]);
    let (nginx, plain) = (Nginx::start_tls(&paper), Origin::start());
    let keys = probe("http2: true, tls: { verify: false }");
    let proxy = Proxy::start(&config_of(&[known_as(&nginx, "app1.test")], &keys));
    await_reason(&proxy, &nginx.address(), "protocol", "does not agree to the protocol");
    let proxy = Proxy::start(&config_of(&[plain.to_string()], &probe("http2: true")));
    eventually("it fails", || proxy.member("web", &plain.address())["last_probe"]["result"] == "fail");
}

#[test]
fn kept_connections_carry_one_probe_after_the_other_in_both_versions() {
    let authority = Authority::named("Test Authority");
    let paper = authority.paper(&["app1.test"]);
    let ca = format!("reuse: true, tls: {{ ca: {} }}", authority.ca());
    let rows = [
        (Nginx::start(), "reuse: true".to_owned(), "HTTP/1.1"),
        (Nginx::start_tls(&paper), ca.clone(), "HTTP/1.1"),
        (Nginx::start_http2(), "reuse: true, http2: true".to_owned(), "HTTP/2.0"),
        (Nginx::start_http2_tls(&paper), format!("{ca}, http2: true"), "HTTP/2.0"),
    ];
    for (nginx, keys, protocol) in rows {
        let proxy = Proxy::start(&config_of(&[known_as(&nginx, "app1.test")], &probe(&keys)));
        eventually("four probes of one connection", || nginx.probes().iter().any(|(_, nth)| *nth >= 4));
        assert!(nginx.probes().iter().all(|(spoken, _)| spoken == protocol), "{:?}", nginx.probes());
        assert_eq!(nginx.probes().iter().filter(|(_, nth)| *nth == 1).count(), 1, "{:?}", nginx.probes());
        let phases = proxy.member("web", &nginx.address())["last_probe"].clone();
        assert_eq!(phases["result"], "pass", "{phases}");
    }
}
