//! What it costs to find a route among 1,000, and to build the table.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pulsegate::route::{Host, Rank, Route, Table};

fn main_benches(criterion: &mut Criterion) {
    let hosts = Table::new(many_hosts());
    for (name, host, path) in [
        ("exact", "shop-77.example.com", "/api/orders/17"),
        ("exact_capitals_port", "Shop-77.Example.com:8443", "/api/orders/17"),
        ("wildcard", "a.b.region-33.example.net", "/index.html"),
        ("any", "no.such.host.anywhere.test", "/index.html"),
        ("any_thousand_dots", &".x".repeat(1_000), "/index.html"),
    ] {
        bench_find(criterion, &format!("hosts/{name}"), &hosts, host, path);
    }
    let paths = Table::new(many_paths());
    for (name, path) in [
        ("hit", "/service-400/v2/items/17"),
        ("parent", "/service-400/other/items/17"),
        ("root", "/index.html"),
        ("thousand_segments", &"/service-500".repeat(1_000)),
    ] {
        bench_find(criterion, &format!("paths/{name}"), &paths, "shop.example.com", path);
    }
    criterion.bench_function("build/1000_paths", |bencher| {
        bencher.iter_batched(many_paths, Table::new, BatchSize::SmallInput);
    });
}

fn bench_find(criterion: &mut Criterion, name: &str, table: &Table, host: &str, path: &str) {
    assert!(table.find(host, path).is_some(), "{name} is to be found");
    criterion.bench_function(&format!("find/{name}"), |bencher| {
        bencher.iter(|| table.find(black_box(host), black_box(path)));
    });
}

/// 1,000 routes: 400 hosts with two paths each, 100 wildcards, 100 paths for any host.
fn many_hosts() -> Vec<Route> {
    let exact = (0..400).flat_map(|shop| {
        let host = Host::Exact(format!("shop-{shop}.example.com"));
        [route(host.clone(), "/"), route(host, "/api/")]
    });
    let wildcard = (0..100).map(|region| route(Host::Wildcard(format!("region-{region}.example.net")), "/"));
    let any = (0..99).map(|app| route(Host::Any, &format!("/app-{app}")));
    exact.chain(wildcard).chain(any).chain([route(Host::Any, "/")]).collect()
}

/// 1,000 routes of one host.
fn many_paths() -> Vec<Route> {
    let host = || Host::Exact("shop.example.com".into());
    let services = (0..500).flat_map(|service| ["", "/v2"].map(|version| format!("/service-{service}{version}")));
    services.take(999).chain(["/".into()]).map(|path| route(host(), &path)).collect()
}

fn route(host: Host, path: &str) -> Route {
    Route { name: path.into(), host, path: path.into(), pools: vec![Rank::of("pool")], failback: None }
}

criterion_group!(benches, main_benches);
criterion_main!(benches);
