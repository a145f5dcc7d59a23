//! A service's targets as members, as Pingora's `ServiceDiscovery`.
//!
//! Not here: which ports, weights and tiers they have (`service`).

use std::sync::Arc;

use async_trait::async_trait;
use pingora::lb::discovery::ServiceDiscovery;

use super::name::{Discovered, Name, merged};
use super::{Desk, service};
use crate::config;
use crate::snapshot::{Located, Source};

/// A service's targets.
#[derive(Debug, Clone)]
pub struct Service {
    /// The service.
    pub service: config::Service,
    /// What is known.
    pub desk: Arc<Desk>,
}

impl Service {
    /// Its targets, each a name.
    pub fn names(&self) -> Vec<Name> {
        let targets = self.desk.book().targets(&self.service.name).records;
        let members = service::members(&self.service, &targets.into_iter().collect());
        members.into_iter().map(|member| Name { member, desk: self.desk.clone() }).collect()
    }

    /// Its targets where they are; one without an address where there are none.
    pub async fn located(&self, source: &Source) -> Vec<Located> {
        let mut located = Vec::new();
        for name in self.names() {
            located.extend(name.located(source).await);
        }
        if let Some(trouble) = self.desk.book().targets(&self.service.name).trouble {
            located.iter_mut().for_each(|located| located.trouble = located.trouble.take().or(Some(trouble.clone())));
        }
        if located.is_empty() {
            let config::Service { name, known_as, weight, tier, state, capacity } = self.service.clone();
            let nobody =
                config::Member { name: name.clone(), host: name, port: 0, known_as, capacity, weight, tier, state };
            let trouble = self.desk.book().targets(&nobody.host).trouble;
            let trouble = trouble.unwrap_or_else(|| "the service has no targets".into());
            located = Located::all(&nobody, &[], source, Some(trouble));
        }
        located
    }
}

#[async_trait]
impl ServiceDiscovery for Service {
    async fn discover(&self) -> pingora::Result<Discovered> {
        merged(self.names()).await
    }
}
