//! What proxy.yaml can say, and what it may not: golden files, presets, hostile input, and the page that documents it.

mod documented;
mod golden;
mod hostile;
mod meaning;
mod presets;

use std::path::{Path, PathBuf};

use pulsegate::config::{Config, Loaded, Pool, Problem};

/// The repository's root.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The environment of every test here.
fn env(name: &str) -> Option<String> {
    let value = match name {
        "ADMIN_TOKEN" => "s3cret-of-the-tests",
        "REPLACE_TOKEN" => "shown-all-the-same",
        "HOST" => "app.internal",
        "PORT" => "8081",
        "PROBE_SECRET" => "a-secret-of-the-tests-of-probes",
        "SHORT_SECRET" => "hush",
        "WEIGHT" => "7",
        _ => return None,
    };
    Some(value.to_owned())
}

fn parse(text: &str) -> Result<Loaded, Vec<Problem>> {
    pulsegate::config::parse("proxy.yaml", text, &env)
}

/// The meaning of a text that is right.
fn config(text: &str) -> Config {
    match parse(text) {
        Ok(loaded) => loaded.config,
        Err(problems) => panic!("{}\n{text}", lines(&problems)),
    }
}

/// A file around one pool, `web`, whose keys are `keys` in flow style.
fn around(keys: &str) -> String {
    format!("listeners: [{{ address: \"0.0.0.0:8080\" }}]\npools: {{ web: {{ {keys} }} }}\nroutes: [{{ pool: web }}]\n")
}

/// The pool of [`around`].
fn pool(keys: &str) -> Pool {
    Pool::clone(&config(&around(keys)).pools["web"])
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// The yaml files of a directory beside this file, by name.
fn files(directory: &str) -> Vec<PathBuf> {
    let path = root().join("tests/config").join(directory);
    let entries = std::fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a directory entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "yaml"));
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a file's name").to_string_lossy().into_owned()
}
