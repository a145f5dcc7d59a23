//! `pulsegate run`: serve until a signal ends it.

use std::path::Path;

use crate::control::SetupError;
use crate::server;

/// Serves by the file at `path`. Problems of the file go to stderr as `check` prints them.
pub fn run(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    server::run(path.to_owned(), None).map_err(|error| {
        if let SetupError::Config(problems) = &error {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
        }
        error.into()
    })
}
