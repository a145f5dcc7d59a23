//! gRPC's health protocol, asked of a server by gRPC's own authors.

use crate::harness::grpc::HealthServer;
use crate::harness::process;
use crate::harness::proxy::{completed, write_config};
use crate::harness::tls::Authority;
use crate::harness::{Origin, Proxy, eventually};

const PACE: &str = "interval: 500ms, fast_interval: 50ms, timeout: 500ms, consecutive: { failures: 2, passes: 1 }";

/// A pool `web` of these members, which is probed by gRPC with these keys.
fn config(members: &[&str], keys: &str) -> String {
    format!(
        "pools:\n  web:\n    members: [{}]\n    max_unhealthy_percent: 100\n    probe: {{ kind: grpc, {PACE}{keys} }}\nroutes: [{{ pool: web }}]\n",
        members.join(", ")
    )
}

fn quoted(server: &HealthServer) -> String {
    format!("\"{}\"", server.address())
}

/// Waits until the last probe of a member fails with this reason, in these words.
#[track_caller]
fn await_fail(proxy: &Proxy, address: &str, reason: &str, detail: &str) {
    eventually(&format!("{reason}: {detail}"), || {
        let last = proxy.member("web", address)["last_probe"].clone();
        last["reason"] == reason && last["detail"].as_str().is_some_and(|shown| shown.contains(detail))
    });
}

#[track_caller]
fn await_standing(proxy: &Proxy, address: &str, standing: &str) {
    eventually(standing, || proxy.member("web", address)["standing"] == standing);
}

#[test]
fn service_is_followed_from_serving_to_not_serving_and_back() {
    for keys in ["", ", reuse: true"] {
        let (mut server, mut other) = (HealthServer::start(), HealthServer::start());
        server.says("shop.Cart", "SERVING");
        other.says("shop.Cart", "SERVING");
        let (address, members) = (server.address(), [quoted(&server), quoted(&other)]);
        let proxy =
            Proxy::start(&config(&members.each_ref().map(String::as_str), &format!(", service: shop.Cart{keys}")));
        proxy.await_all_healthy();
        let last = proxy.member("web", &address)["last_probe"].clone();
        assert_eq!((&last["result"], &last["status"]), (&"pass".into(), &200.into()), "{last}");

        let mark = proxy.mark();
        // Another service, and the server as a whole, are none of this probe's business.
        server.says("-", "NOT_SERVING");
        server.says("shop.Other", "NOT_SERVING");
        server.says("shop.Cart", "NOT_SERVING");
        let event = proxy.await_event(mark, &[("kind", "member"), ("member", &address), ("to", "unhealthy")]);
        assert_eq!(event.text("reason"), "status", "{}", event.raw);
        await_fail(&proxy, &address, "status", "service \"shop.Cart\" is NOT_SERVING");
        await_standing(&proxy, &address, "ejected");

        let mark = proxy.mark();
        server.says("shop.Cart", "SERVING");
        proxy.await_event(mark, &[("kind", "member"), ("member", &address), ("to", "healthy")]);
    }
}

#[test]
fn service_that_the_server_does_not_know_is_a_fail_that_names_it() {
    let server = HealthServer::start();
    let proxy = Proxy::start(&config(&[&quoted(&server)], ", service: shop.Gone"));
    await_fail(&proxy, &server.address(), "status", "grpc-status 5 NOT_FOUND");
    await_fail(&proxy, &server.address(), "status", "service \"shop.Gone\" is not known to its health service");
}

#[test]
fn server_as_a_whole_is_asked_where_no_service_is_named() {
    let mut server = HealthServer::start();
    let written = config(&[&quoted(&server)], "");
    let short =
        format!("pools:\n  web:\n    members: [{}]\n    probe: grpc\nroutes: [{{ pool: web }}]\n", quoted(&server));
    for config in [written, short] {
        let proxy = Proxy::start(&config);
        await_standing(&proxy, &server.address(), "healthy");
    }
    let proxy = Proxy::start(&config(&[&quoted(&server)], ""));
    await_standing(&proxy, &server.address(), "healthy");
    server.says("-", "NOT_SERVING");
    await_fail(&proxy, &server.address(), "status", "the server is NOT_SERVING");
}

#[test]
fn over_tls_it_is_agreed_on_by_alpn_and_the_certificate_is_verified() {
    let authority = Authority::named("Test Authority");
    let server = HealthServer::start_tls(&authority.paper(&["app1.test"]));
    let known_as = |name: &str| format!("{{ address: \"{}\", host: {name} }}", server.address());
    let tls = format!(", tls: {{ ca: {} }}", authority.ca());
    let proxy = Proxy::start(&config(&[&known_as("app1.test")], &tls));
    await_standing(&proxy, &server.address(), "healthy");
    let proxy = Proxy::start(&config(&[&known_as("app2.test")], &tls));
    await_fail(&proxy, &server.address(), "tls", "not for app2.test");
}

#[test]
fn health_may_be_on_a_port_of_its_own_beside_traffic_of_http_1() {
    let (origin, server) = (Origin::start(), HealthServer::start());
    let port = server.address().rsplit_once(':').map(|(_, port)| port.to_owned()).expect("host:port");
    let proxy = Proxy::start(&config(&[&origin.to_string()], &format!(", port: {port}")));
    await_standing(&proxy, &origin.address(), "healthy");
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn member_that_speaks_no_grpc_is_a_fail_of_protocol() {
    let origin = Origin::start();
    let proxy = Proxy::start(&config(&[&origin.to_string()], ""));
    eventually("it fails", || proxy.member("web", &origin.address())["last_probe"]["result"] == "fail");
    let last = proxy.member("web", &origin.address())["last_probe"].clone();
    let reason = last["reason"].as_str().unwrap_or_default();
    assert!(["protocol", "reset"].contains(&reason), "{last}");
}

#[test]
fn probe_command_shows_headers_messages_and_trailers() {
    let mut server = HealthServer::start();
    server.says("shop.Cart", "NOT_SERVING");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let text = completed(&config(&[&quoted(&server)], ", service: shop.Cart, headers: { x-tenant: blue }"));
    let path = write_config(dir.path(), &text).display().to_string();
    let ended = process::run(dir.path(), &["probe", "web", "--config", &path], &[]);
    let shown = ended.stdout;
    for line in [
        "> POST /grpc.health.v1.Health/Check HTTP/2",
        "> :scheme: http",
        "> te: trailers",
        "> x-tenant: blue",
        "> service: \"shop.Cart\"",
        "< HTTP/2 200",
        "< content-type: application/grpc",
        "| status: NOT_SERVING",
        "< grpc-status: 0",
        "= fail, status: service \"shop.Cart\" is NOT_SERVING",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in\n{shown}");
    }
}
