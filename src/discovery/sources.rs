//! How the services and files of a pool stand, whoever they name: one that has never said anything has no member to show it.

use std::sync::Arc;

use super::Desk;
use crate::config::Pool;

/// A service or a file that says who is a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState {
    /// What it is: `srv` or `file`.
    pub kind: &'static str,
    /// The service's name, or the file's path.
    pub name: String,
    /// Why it cannot be asked or read now; what it said before still holds.
    pub trouble: Option<Arc<str>>,
}

impl Desk {
    /// The services and files of `pool`, and the services that its files list, each once.
    pub fn sources(&self, pool: &Pool) -> Vec<SourceState> {
        let mut services: Vec<String> = pool.services.iter().map(|service| service.name.clone()).collect();
        let mut files = Vec::with_capacity(pool.files.len());
        for path in &pool.files {
            let (roll, trouble) = self.rolls().roll(path);
            services.extend(roll.services.iter().map(|service| service.name.clone()));
            files.push(SourceState { kind: "file", name: path.display().to_string(), trouble });
        }
        let of_service = |name: String| {
            let trouble = self.book().targets(&name).trouble;
            SourceState { kind: "srv", name, trouble }
        };
        let mut sources: Vec<SourceState> = Vec::with_capacity(services.len() + files.len());
        for source in services.into_iter().map(of_service).chain(files) {
            let is_known = |known: &SourceState| known.kind == source.kind && known.name == source.name;
            if !sources.iter().any(is_known) {
                sources.push(source);
            }
        }
        sources
    }
}
