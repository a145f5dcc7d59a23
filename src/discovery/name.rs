//! A member by its name, as Pingora's `ServiceDiscovery`: what the other sources come down to.
//!
//! It looks into the book, in which one question has one answer however many pools ask it, and never waits for a server.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use pingora::lb::discovery::ServiceDiscovery;
use pingora::lb::{Backend, Extensions};

use super::Desk;
use crate::config;
use crate::health::Admin;
use crate::snapshot::{Located, Source};

/// What `discover` gives: who there is, and who of them may not serve.
pub(super) type Discovered = (BTreeSet<Backend>, HashMap<u64, bool>);

/// A member by its name, or by an address, which is its own.
#[derive(Debug, Clone)]
pub struct Name {
    /// The member.
    pub member: config::Member,
    /// What is known.
    pub desk: Arc<Desk>,
}

impl Name {
    /// The member at each of its addresses; one without any where it has none.
    pub async fn located(&self, source: &Source) -> Vec<Located> {
        // It never fails: what cannot be asked is what was known before.
        let backends = self.discover().await.map(|(backends, _)| backends).unwrap_or_default();
        let addresses: Vec<IpAddr> = backends.iter().filter_map(|b| Some(b.addr.as_inet()?.ip())).collect();
        Located::all(&self.member, &addresses, source, self.trouble())
    }

    fn trouble(&self) -> Option<Arc<str>> {
        match self.member.host.parse::<IpAddr>() {
            Ok(_) => None,
            Err(_) => self.desk.book().addresses(&self.member.host).trouble,
        }
    }
}

#[async_trait]
impl ServiceDiscovery for Name {
    async fn discover(&self) -> pingora::Result<Discovered> {
        let known = match self.member.host.parse::<IpAddr>() {
            Ok(ip) => vec![ip],
            Err(_) => self.desk.book().addresses(&self.member.host).records,
        };
        let backend = |ip: IpAddr| Backend {
            addr: pingora::protocols::l4::socket::SocketAddr::Inet(SocketAddr::new(ip, self.member.port)),
            weight: self.member.weight as usize,
            ext: Extensions::new(),
        };
        let backends: BTreeSet<Backend> = known.into_iter().map(backend).collect();
        let enabled = self.member.state == Admin::Enabled && self.member.weight > 0;
        let enablement = backends.iter().map(|backend| (hash(backend), enabled)).collect();
        Ok((backends, enablement))
    }
}

/// What several members are together.
pub(super) async fn merged(names: Vec<Name>) -> pingora::Result<Discovered> {
    let (mut backends, mut enablement) = Discovered::default();
    for name in names {
        let (more, enabled) = name.discover().await?;
        backends.extend(more);
        enablement.extend(enabled);
    }
    Ok((backends, enablement))
}

/// As Pingora's balancer keys its enablement.
pub(super) fn hash(backend: &Backend) -> u64 {
    let mut hasher = DefaultHasher::new();
    backend.hash(&mut hasher);
    hasher.finish()
}
