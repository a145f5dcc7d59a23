//! Tests that need a process of their own: a limit, a signal's disposition or a global subscriber is not for the others.

use std::env;
use std::process::Command;

const MARK: &str = "PULSEGATE_TEST_CHILD";

/// Whether this is the process that [`run`] started.
pub(super) fn is_here() -> bool {
    env::var_os(MARK).is_some()
}

/// Runs one test of this binary, named by its module's `module_path!` and its own name, in a shell that has run
/// `prelude`; it must pass. Returns what it wrote to standard error.
pub(super) fn run(module: &str, test: &str, prelude: &str) -> String {
    let module = module.split_once("::").map_or(module, |(_, module)| module);
    let script = format!("{prelude} exec \"$0\" --exact \"$1\" --nocapture");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(env::current_exe().expect("this binary has a path"))
        .arg(format!("{module}::{test}"))
        .env(MARK, "1")
        .output()
        .expect("sh runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}
