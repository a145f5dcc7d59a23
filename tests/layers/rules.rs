//! The import table, and what a file that breaks it is told. What changes with the project is the tables.

use crate::scan;

/// The layers, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    Heart,
    Meaning,
    Live,
    Edges,
    Assembly,
}
use Layer::{Assembly, Edges, Heart, Live, Meaning};

/// Each room, that is each module at the top of src/, and its layer.
pub const ROOMS: &[(&str, Layer)] = &[
    ("health", Heart),
    ("balance", Heart),
    ("route", Heart),
    ("config", Meaning),
    ("pool", Live),
    ("composite", Live),
    ("failover", Live),
    ("snapshot", Live),
    ("telemetry", Live),
    ("clock", Live),
    ("listener", Edges),
    ("proxy", Edges),
    ("probe", Edges),
    ("tls", Edges),
    ("discovery", Edges),
    ("watch", Edges),
    ("disk", Edges),
    ("diagnostics", Edges),
    ("control", Edges),
    ("admin", Edges),
    ("reload", Edges),
    ("webhook", Edges),
    ("remediate", Edges),
    ("alert", Edges),
    ("state_dir", Edges),
    ("carry", Edges),
    ("simulate", Edges),
    ("server", Assembly),
    ("cli", Assembly),
    ("lib", Assembly),
    ("main", Assembly),
];

/// Rooms of one layer that do not know each other: what they share, they share through a room below or above.
const STRANGERS: &[(&str, &str, &str)] = &[
    ("health", "balance", "`pool` turns standings into a roster"),
    ("health", "route", "they share nothing"),
    ("balance", "route", "they share nothing"),
    ("proxy", "probe", "they meet in `pool`"),
    ("pool", "clock", "time is an argument"),
    ("composite", "clock", "time is an argument"),
    ("snapshot", "clock", "time is an argument"),
    ("failover", "clock", "time is an argument"),
    ("alert", "remediate", "they share the webhook, and meet in the events"),
    ("simulate", "clock", "its time is its own"),
    ("simulate", "listener", "nothing is served in it"),
    ("simulate", "discovery", "nobody is asked"),
    ("simulate", "disk", "what it needs is given to it"),
];

/// The lowest layer that may name a path, the longest match deciding. Every dependency of Cargo.toml is here.
pub const PATHS: &[(&str, Layer, &str)] = &[
    // Values and the making of values.
    ("serde", Meaning, "the heart is plain Rust"),
    ("serde_json", Meaning, "the heart is plain Rust"),
    ("serde_yaml", Meaning, "the heart is plain Rust"),
    ("serde_path_to_error", Meaning, "the heart is plain Rust"),
    ("saphyr_parser", Meaning, "the heart is plain Rust"),
    ("strsim", Meaning, "the heart is plain Rust"),
    ("humantime", Meaning, "the heart is plain Rust"),
    ("bytesize", Meaning, "the heart is plain Rust"),
    ("ipnet", Meaning, "the heart is plain Rust"),
    ("thiserror", Meaning, "the heart cannot fail"),
    ("http", Meaning, "the heart is plain Rust"),
    // What is shared between threads, and what is told to people.
    ("prometheus", Live, "below, what happened is a return value"),
    ("arc_swap", Live, "state that is shared is kept in the live layer"),
    ("fastrand", Live, "below, a random number is an argument"),
    ("tracing", Live, "below, what happened is a return value"),
    ("tracing_subscriber", Live, "below, what happened is a return value"),
    ("log", Live, "below, what happened is a return value"),
    ("tracing_log", Live, "below, what happened is a return value"),
    ("tokio::sync", Live, "below there is nobody to wait for"),
    // Sockets, the runtime and the engine.
    ("tokio", Edges, "only the edges know the runtime"),
    ("pingora", Edges, "no Pingora name below the edges"),
    // The one exception: the ring is Pingora's, and only one file of the heart names it (below).
    ("pingora::lb::selection", Heart, "the ring"),
    ("pingora::lb::Backend", Heart, "the ring"),
    ("async_trait", Edges, "only Pingora's hooks need it"),
    ("bytes", Edges, "bodies are the edges' business"),
    ("httparse", Edges, "only the edges speak HTTP"),
    ("hyper", Edges, "only the edges speak HTTP"),
    ("hyper_util", Edges, "only the edges speak HTTP"),
    ("http_body_util", Edges, "only the edges speak HTTP"),
    ("axum", Edges, "only the edges speak HTTP"),
    ("utoipa", Edges, "only the edges speak HTTP"),
    ("futures_util", Edges, "only the edges know the runtime"),
    ("hickory_resolver", Edges, "names are resolved at the edges"),
    ("notify", Edges, "files are watched at the edges"),
    ("prost", Edges, "only the edges speak gRPC"),
    ("ring", Edges, "only the edges sign and prove"),
    ("base64", Edges, "only the edges sign and prove"),
    ("rustls", Edges, "only the edges speak TLS"),
    ("tokio_rustls", Edges, "only the edges speak TLS"),
    ("rustls_native_certs", Edges, "only the edges speak TLS"),
    ("socket2", Edges, "only the edges have sockets"),
    ("rustix", Edges, "only the edges talk to the system"),
    ("rustix::process", Assembly, "limits of the process are the program's business"),
    ("rustix::process::Pid", Edges, "a command is ended with all it has started"),
    ("rustix::process::Signal", Edges, "a command is ended with all it has started"),
    ("rustix::process::kill_process_group", Edges, "a command is ended with all it has started"),
    ("clap", Assembly, "only the command line knows its arguments"),
    ("mimalloc", Assembly, "the allocator is the program's choice"),
    // The standard library, where it can do what a layer must not.
    ("std::fs", Meaning, "the heart has no files"),
    ("std::io", Meaning, "the heart has no input or output"),
    ("std::env", Meaning, "the heart has no environment"),
    ("std::time::Instant", Meaning, "in the heart time is a `Duration` and an argument"),
    ("std::time::SystemTime", Meaning, "in the heart time is a `Duration` and an argument"),
    ("std::sync::Mutex", Live, "locks belong to the live layer"),
    ("std::sync::RwLock", Live, "locks belong to the live layer"),
    ("std::sync::Condvar", Live, "locks belong to the live layer"),
    ("std::sync::mpsc", Live, "channels belong to the live layer"),
    ("std::thread", Live, "threads belong to the live layer"),
    ("std::net::TcpListener", Edges, "only the edges have sockets"),
    ("std::net::TcpStream", Edges, "only the edges have sockets"),
    ("std::net::UdpSocket", Edges, "only the edges have sockets"),
    ("std::net::ToSocketAddrs", Edges, "names are resolved at the edges"),
    ("std::process", Edges, "only the edges know that there is a process"),
];

/// Words that a room's own code does not use (its tests may).
const WORDS: &[(&[&str], &str, &str)] = &[
    (&["health", "balance", "route"], "async", "the heart is not asynchronous"),
    (&["health", "balance", "route"], "await", "the heart is not asynchronous"),
    (&["health", "balance", "route"], "println", "what happened is a return value"),
    (&["health", "balance", "route"], "eprintln", "what happened is a return value"),
    (&["simulate"], "async", "it waits for nothing: the next thing is the next time"),
    (&["simulate"], "await", "it waits for nothing: the next thing is the next time"),
    (&["health", "balance"], "Result", "the heart cannot fail"),
];

/// Paths that only the files named may use, tests included.
const ONLY_IN: &[(&str, &[&str], &str)] = &[
    (
        "clippy::disallowed_methods",
        &["clock.rs", "main.rs"],
        "everyone else takes `now` as an argument or asks `clock`",
    ),
    ("serde_yaml", &["config/yaml.rs"], "serde_yaml is archived and must stay easy to replace"),
    ("pingora::lb::selection", &["balance/consistent.rs"], "Pingora's other policies are not ours (pingora-notes)"),
    (
        "pingora::lb::Backend",
        &["balance/consistent.rs", "discovery/name.rs", "discovery/srv.rs", "discovery/file.rs"],
        "below the edges only the ring needs it",
    ),
];

/// What the check of one file has to know of the others.
#[derive(Debug, Default)]
pub struct Project {
    /// The names of the `[dependencies]`, as code spells them.
    pub dependencies: Vec<String>,
    /// The modules that exist for tests alone: `health::properties`.
    pub test_modules: Vec<String>,
}

/// What is wrong with the file `file` (its path below src/): `src/FILE:LINE: what, and why`.
pub fn violations(file: &str, source: &str, project: &Project) -> Vec<String> {
    let module = module_of(file);
    let room = module.first().copied().unwrap_or(file.trim_end_matches(".rs"));
    let Some(layer) = layer_of(room) else {
        return vec![format!(
            "src/{file}:1: `{room}` has no layer: give it one in tests/layers and docs/architecture.md"
        )];
    };
    let test_file = (1..=module.len()).any(|length| project.test_modules.contains(&module[..length].join("::")));
    let mut found = Vec::new();
    for mention in &scan::scan(source, &module).mentions {
        let test = mention.test || test_file;
        let path: Vec<&str> = mention.path.iter().map(String::as_str).collect();
        let reason = match path.as_slice() {
            ["crate" | "pulsegate", other, ..] => wrong_room(room, layer, other),
            [word] if !test => forbidden_word(room, word),
            _ => None,
        }
        .or_else(|| wrong_file(file, &path))
        .or_else(|| if test { None } else { wrong_path(layer, &path, &project.dependencies) });
        found.extend(reason.map(|reason| format!("src/{file}:{}: {reason}", mention.line)));
    }
    found.dedup();
    found
}

/// `health/pool.rs` is `["health", "pool"]`; the crate's roots are the empty path.
fn module_of(file: &str) -> Vec<&str> {
    let stem = file.trim_end_matches(".rs");
    if matches!(stem, "lib" | "main") { Vec::new() } else { stem.trim_end_matches("/mod").split('/').collect() }
}

/// The modules that files bring in for tests alone, by the module's path.
pub fn test_modules<'a>(sources: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    sources.flat_map(|(file, source)| scan::scan(source, &module_of(file)).test_modules).collect()
}

fn layer_of(room: &str) -> Option<Layer> {
    ROOMS.iter().find(|(name, _)| *name == room).map(|(_, layer)| *layer)
}

/// Why `room` must not name the room `other`.
fn wrong_room(room: &str, layer: Layer, other: &str) -> Option<String> {
    if other == room || other == "*" {
        return None;
    }
    let Some(others) = layer_of(other) else {
        return Some(format!("`crate::{other}` is no room: name the room that `{other}` is in"));
    };
    if others > layer {
        return Some(format!("{room} ({layer:?}) names {other} ({others:?}): imports only point down"));
    }
    let pair = |a: &str, b: &str| (a == room && b == other) || (b == room && a == other);
    let (_, _, reason) = STRANGERS.iter().find(|(a, b, _)| pair(a, b))?;
    Some(format!("{room} and {other} do not know each other: {reason}"))
}

fn forbidden_word(room: &str, word: &str) -> Option<String> {
    let (_, _, reason) = WORDS.iter().find(|(rooms, banned, _)| *banned == word && rooms.contains(&room))?;
    Some(format!("`{word}` in {room}: {reason}"))
}

fn wrong_file(file: &str, path: &[&str]) -> Option<String> {
    let (rule, files, reason) = ONLY_IN.iter().find(|(rule, files, _)| begins(path, rule) && !files.contains(&file))?;
    Some(format!("`{rule}` belongs in {} alone: {reason}", files.join(" or ")))
}

/// Why `layer` must not name a path outside this crate.
fn wrong_path(layer: Layer, path: &[&str], dependencies: &[String]) -> Option<String> {
    let rules = || PATHS.iter().filter(|(rule, _, _)| begins(path, rule) || glob_covers(path, rule));
    let Some((rule, lowest, reason)) = rules().max_by_key(|(rule, _, _)| rule.len()) else {
        let is_dependency = path.len() > 1 && dependencies.iter().any(|name| name == path[0]);
        return is_dependency.then(|| format!("`{}` has no layer: give it one in tests/layers", path[0]));
    };
    (layer < *lowest).then(|| format!("`{rule}` in {layer:?}, its lowest layer is {lowest:?}: {reason}"))
}

/// `path` is `rule` or something in it. A crate's name alone says nothing: it may be a variable.
fn begins(path: &[&str], rule: &str) -> bool {
    let rule: Vec<&str> = rule.split("::").collect();
    path.len() > 1 && path.starts_with(&rule)
}

/// `std::sync::*` brings in `std::sync::Mutex`.
fn glob_covers(path: &[&str], rule: &str) -> bool {
    match path {
        [prefix @ .., "*"] if prefix.len() > 1 => rule.split("::").collect::<Vec<_>>().starts_with(prefix),
        _ => false,
    }
}
