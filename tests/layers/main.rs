//! Keeps the import table of docs/architecture.md: imports only point down, and what a layer must not have it does not
//! name. Every failure says which line and why. The table is in `rules`, the reading of source in `scan`.

mod rules;
mod scan;
mod tokens;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rules::{PATHS, Project, ROOMS, test_modules, violations};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below src/, by its path there.
fn sources() -> BTreeMap<String, String> {
    let source = root().join("src");
    let mut files = BTreeMap::new();
    let mut folders: Vec<PathBuf> = vec![source.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("src is readable") {
            let path = entry.expect("src is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&source).expect("below src").to_string_lossy().into_owned();
                files.insert(name, fs::read_to_string(&path).expect("a source file is UTF-8"));
            }
        }
    }
    files
}

/// The names, as code spells them, of the `[dependencies]` in a Cargo.toml.
fn dependencies(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().trim_end_matches(".workspace").replace('-', "_"))
        .filter(|name| !name.starts_with('#'))
        .collect()
}

fn own_dependencies() -> Vec<String> {
    dependencies(&fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml is readable"))
}

#[test]
fn imports_only_point_down() {
    let sources = sources();
    let project = Project { dependencies: own_dependencies(), test_modules: test_modules(sources.iter()) };
    assert!(sources.contains_key("lib.rs") && sources.len() > 10, "src was not found: {:?}", sources.keys());
    let found: Vec<String> = sources.iter().flat_map(|(file, source)| violations(file, source, &project)).collect();
    assert!(found.is_empty(), "the layers of docs/architecture.md are broken:\n{}", found.join("\n"));
}

#[test]
fn every_dependency_has_a_layer_and_every_layered_one_is_a_dependency() {
    let dependencies = own_dependencies();
    assert!(dependencies.len() > 10, "[dependencies] was not found: {dependencies:?}");
    for name in &dependencies {
        assert!(PATHS.iter().any(|(rule, _, _)| rule == name), "give `{name}` a layer in tests/layers");
    }
    for (rule, _, _) in PATHS.iter().filter(|(rule, _, _)| !rule.starts_with("std::")) {
        let name = rule.split("::").next().expect("a path has a first word").to_owned();
        assert!(dependencies.contains(&name), "`{name}` is no dependency any more: drop its row in tests/layers");
    }
}

#[test]
fn every_room_exists() {
    let sources = sources();
    for (room, _) in ROOMS {
        let exists = sources.contains_key(&format!("{room}.rs")) || sources.contains_key(&format!("{room}/mod.rs"));
        assert!(exists, "there is no room `{room}` in src: drop its row in tests/layers");
    }
}

/// What `violations` says of one file; rows of the tests below.
fn said(file: &str, source: &str) -> Vec<String> {
    let names = ["pingora", "tokio", "serde", "tracing", "http", "hyper", "unheard_of"];
    let test_modules =
        test_modules(std::iter::once((&"health/mod.rs".to_owned(), &"#[cfg(test)]\nmod trial;".to_owned())));
    violations(file, source, &Project { dependencies: names.map(str::to_owned).to_vec(), test_modules })
}

#[test]
fn what_points_down_is_accepted() {
    for (file, source) in [
        ("health/pool.rs", "use std::collections::HashMap;\nuse std::net::SocketAddr;\nuse super::rules::Rules;"),
        ("health/pool.rs", "use crate::health::{Verdict, rules::{self, Rules}};"),
        ("balance/mod.rs", "use std::sync::atomic::{AtomicUsize, Ordering};\nuse std::sync::Arc;"),
        ("config/parse.rs", "use crate::health::Rules;\nuse serde::Deserialize;\nfn f() -> Result<(), E> { g() }"),
        ("pool/board.rs", "use std::sync::Mutex;\nuse tokio::sync::Notify;\nuse crate::{balance, health::Verdict};"),
        (
            "probe/http.rs",
            "use pingora::proxy::Session;\nuse crate::pool::Pool;\nasync fn f() { crate::clock::monotonic(); g().await }",
        ),
        ("probe/mod.rs", "mod http;\nmod tokio { }\nfn f() { http::ask(); }"),
        ("main.rs", "use pulsegate::cli;\n#[expect(clippy::disallowed_methods)]\nfn main() { cli::run() }"),
        // Comments, strings and characters are no code, and a lifetime opens no character.
        (
            "health/pool.rs",
            "//! crate::proxy\n/* tokio::net /* nested */ pingora::x */ const A: &str = \"crate::proxy::x\";",
        ),
        ("health/pool.rs", "const A: &str = r#\"a \" use tokio::net; \"#; const B: &[u8] = b\"crate::cli::x\";"),
        ("health/pool.rs", "fn f<'a>(a: &'a str) -> char { let q = '\"'; let t = '\\''; q } // tokio::x"),
        // A variable with a crate's name, and a function that ends in one.
        ("health/pool.rs", "fn f(http: u8) { let tokio = http; my_tokio::run(tokio) }"),
        // Tests may use what only development needs, and may fail.
        (
            "health/pool.rs",
            "#[cfg(test)]\nmod tests {\n use super::*;\n use proptest::prelude::*;\n fn f() -> Result<(), ()> {}\n}",
        ),
        ("health/trial.rs", "use std::fs;\nuse crate::health::Verdict;"),
        ("health/rules.rs", "#[cfg(test)]\nuse std::fs;\n#[cfg(test)]\nfn f() { std::env::var(\"SEED\"); }"),
    ] {
        assert_eq!(said(file, source), Vec::<String>::new(), "{file}: {source}");
    }
}

#[test]
fn what_points_up_or_reaches_out_is_refused_with_line_and_reason() {
    for (file, source, expected) in [
        (
            "health/pool.rs",
            "\nuse crate::config::Config;",
            "src/health/pool.rs:2: health (Heart) names config (Meaning)",
        ),
        (
            "health/pool.rs",
            "fn f() {\n crate::pool::Board::new();\n}",
            "src/health/pool.rs:2: health (Heart) names pool",
        ),
        ("health/pool.rs", "use super::super::proxy::Ctx;", "src/health/pool.rs:1: health (Heart) names proxy"),
        ("route.rs", "use super::{\n  config::Config,\n};", "src/route.rs:2: route (Heart) names config"),
        ("health/pool.rs", "use crate::balance;", "health and balance do not know each other: `pool` turns"),
        (
            "probe/http.rs",
            "use crate::{clock, proxy::Ctx as C};",
            "probe and proxy do not know each other: they meet in",
        ),
        ("pool/mod.rs", "use crate::clock;", "pool and clock do not know each other: time is an argument"),
        (
            "pool/mod.rs",
            "#[cfg(test)]\nmod tests {\n  use crate::server::run;\n}",
            "src/pool/mod.rs:3: pool (Live) names server",
        ),
        ("pool/mod.rs", "use crate::Thing;", "`crate::Thing` is no room"),
        ("cellar/mod.rs", "", "src/cellar/mod.rs:1: `cellar` has no layer"),
        ("health/mod.rs", "#[derive(Debug, serde::Serialize)]\nstruct A;", "src/health/mod.rs:1: `serde` in Heart"),
        ("health/mod.rs", "use ::tokio::time::sleep;", "`tokio` in Heart, its lowest layer is Edges"),
        ("pool/mod.rs", "use tokio::net::TcpStream;", "`tokio` in Live, its lowest layer is Edges"),
        ("pool/mod.rs", "use tokio::*;", "`tokio` in Live"),
        ("pool/mod.rs", "fn f() {\n  pingora::x!();\n}", "src/pool/mod.rs:2: `pingora` in Live"),
        ("config/parse.rs", "fn f() { tracing::warn!(\"{}\", 1) }", "`tracing` in Meaning"),
        ("balance/mod.rs", "use std::sync::{Arc, Mutex};", "`std::sync::Mutex` in Heart"),
        ("balance/mod.rs", "use std::sync::*;", "in Heart, its lowest layer is Live"),
        (
            "balance/mod.rs",
            "use std::time;\nfn f(a: time::Instant) {}",
            "src/balance/mod.rs:2: `std::time::Instant` in Heart",
        ),
        (
            "balance/mod.rs",
            "use std::time as t;\nfn f(a: t::Instant) {}",
            "src/balance/mod.rs:2: `std::time::Instant` in Heart",
        ),
        ("health/mod.rs", "async fn f() {}", "`async` in health: the heart is not asynchronous"),
        ("health/mod.rs", "fn f() -> Result<(), ()> {}", "`Result` in health: the heart cannot fail"),
        ("proxy/mod.rs", "use unheard_of::x;", "`unheard_of` has no layer"),
        ("proxy/mod.rs", "#[expect(clippy::disallowed_methods)]\nfn f() {}", "belongs in clock.rs or main.rs alone"),
        ("config/mod.rs", "use serde_yaml::Value;", "`serde_yaml` belongs in config/yaml.rs alone"),
        // What follows a block of tests is code again.
        (
            "health/mod.rs",
            "#[cfg(test)]\nmod tests { fn f() {} }\nuse std::fs;",
            "src/health/mod.rs:3: `std::fs` in Heart",
        ),
        ("health/mod.rs", "const A: char = '\"';\nuse std::fs;", "src/health/mod.rs:2: `std::fs` in Heart"),
        ("health/mod.rs", "const A: &str = \"a\nb\";\nuse std::fs;", "src/health/mod.rs:3: `std::fs` in Heart"),
    ] {
        let said = said(file, source);
        assert!(
            said.iter().any(|line| line.contains(expected)),
            "{file}: {source}\nsaid {said:?}, expected {expected}"
        );
    }
}

#[test]
fn dependencies_are_read_from_a_manifest() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\n# a reason\ntokio-rustls = \"1\"\nserde = { version = \"1\" }\n\n[dev-dependencies]\ninsta = \"1\"\n";
    assert_eq!(dependencies(manifest), ["tokio_rustls", "serde"]);
}
