//! `pulsegate run`: serve until a signal ends it.

use std::path::Path;

use super::output;
use crate::config;
use crate::control::SetupError;
use crate::server;
use crate::telemetry::Logging;

/// Serves by the file at `path`. Problems of the file go to stderr as `check` prints them.
pub fn run(path: &Path, logging: &Logging) -> Result<(), Box<dyn std::error::Error>> {
    server::run(path.to_owned(), None, logging).map_err(|error| match &error {
        SetupError::Config(problems) => {
            problems.iter().for_each(output::tell);
            error.into()
        }
        // Nobody need have written this address.
        SetupError::Bind { address, .. } if admin(path).is_some_and(|admin| admin == *address) => {
            format!("{error}; this is the admin listener: set `admin: {{ address: … }}`, or `admin: off`").into()
        }
        _ => error.into(),
    })
}

fn admin(path: &Path) -> Option<std::net::SocketAddr> {
    Some(config::load(path, &config::environment).ok()?.config.admin?.address)
}
