//! Tests that need a process of their own: a limit, a signal's disposition or a global subscriber is not for the others.

use std::env;
use std::io;
use std::process::{Command, Output};

const MARK: &str = "PULSEGATE_TEST_CHILD";

/// Whether this is the process that [`run`] started.
pub(super) fn is_here() -> bool {
    env::var_os(MARK).is_some()
}

/// Runs one test of this binary, named by its module's `module_path!` and its own name, in a shell that has run
/// `prelude`.
pub(super) fn run(module: &str, test: &str, prelude: &str) -> io::Result<Output> {
    let module = module.split_once("::").map_or(module, |(_, module)| module);
    let script = format!("{prelude} exec \"$0\" --exact \"$1\" --nocapture");
    Command::new("sh")
        .args(["-c", &script])
        .arg(env::current_exe()?)
        .arg(format!("{module}::{test}"))
        .env(MARK, "1")
        .output()
}
