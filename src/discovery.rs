//! From names to addresses, when a configuration is read.
//!
//! All names are asked for at once and none may take long; one that cannot be resolved is a member without an address,
//! which says so, and stops nothing else (case C66). Not here yet: asking again while the configuration stays.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::Config;
use crate::snapshot::Addresses;

/// How long one name may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The addresses of every member's host; an IP literal is its own. Names without one are logged.
pub async fn resolve(config: &Config) -> Addresses {
    let hosts: BTreeSet<&str> = config.pools.values().flat_map(|p| &p.members).map(|m| m.host.as_str()).collect();
    let mut addresses = Addresses::new();
    let mut asked = JoinSet::new();
    for host in hosts {
        match host.parse::<IpAddr>() {
            Ok(ip) => drop(addresses.insert(host.to_owned(), vec![ip])),
            Err(_) => drop(asked.spawn(look_up(host.to_owned()))),
        }
    }
    while let Some(answer) = asked.join_next().await {
        if let Ok((host, found)) = answer {
            addresses.insert(host, found);
        }
    }
    addresses
}

async fn look_up(host: String) -> (String, Vec<IpAddr>) {
    let found: Vec<IpAddr> = match timeout(PATIENCE, tokio::net::lookup_host((host.as_str(), 0))).await {
        // Sorted and each once: the order of an answer means nothing.
        Ok(Ok(found)) => found.map(|address| address.ip()).collect::<BTreeSet<_>>().into_iter().collect(),
        Ok(Err(error)) => {
            tracing::warn!(%host, %error, "a member's name does not resolve");
            Vec::new()
        }
        Err(_) => {
            tracing::warn!(%host, "a member's name does not resolve in time");
            Vec::new()
        }
    };
    (host, found)
}
