//! One generation: the routes and pools of one configuration, seen whole by every request that began under it.
//!
//! Pools outlive generations: the next one takes over those whose names stay, reshaped, with all they know (health.md §9).
//! Whatever can fail is done before (`reload`), so that a configuration is taken whole or not at all.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{self, Config};
use crate::health::{Key, Spec};
use crate::pool::{Plan, Pool};
use crate::route::Table;
use crate::telemetry::{EventLog, HEALTH};

/// What names mean now: host to addresses, none where it has none.
pub type Addresses = HashMap<String, Vec<IpAddr>>;

/// One generation.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts up from 1.
    pub generation: u64,
    /// What was configured.
    pub config: Arc<Config>,
    /// Where requests go.
    pub routes: Table,
    /// By name.
    pub pools: HashMap<String, Arc<Served>>,
}

/// A pool as one generation has it.
#[derive(Debug)]
pub struct Served {
    /// How it was configured.
    pub config: Arc<config::Pool>,
    /// The pool itself, older than this generation maybe.
    pub live: Arc<Pool>,
    /// Of its upstream connections: only a pool of the same name and the same settings shares them.
    pub group_key: u64,
}

impl Snapshot {
    /// The generation after `old`, by `config`, with names as in `addresses`. Cannot fail.
    pub fn next(
        old: Option<&Snapshot>,
        now: Duration,
        config: Arc<Config>,
        addresses: &Addresses,
        events: &Arc<EventLog>,
    ) -> Snapshot {
        let pools = config.pools.iter().map(|(name, pool)| {
            let plan = plan(pool, addresses);
            let live = match old.and_then(|old| old.pools.get(name)) {
                Some(served) => {
                    served.live.reshape(now, plan);
                    served.live.clone()
                }
                None => Arc::new(Pool::new(name, now, plan, events.clone())),
            };
            (name.clone(), Arc::new(Served { config: pool.clone(), live, group_key: group_key(pool) }))
        });
        let pools: HashMap<String, Arc<Served>> = pools.collect();
        for (pool, served) in old.iter().flat_map(|old| &old.pools).filter(|(pool, _)| !pools.contains_key(*pool)) {
            let from = served.live.roster().mode().as_str();
            tracing::info!(
                target: HEALTH, kind = "pool", pool, from, to = "removed", observed = false,
                "pool {pool} is no longer configured, it was {from}"
            );
        }
        Snapshot {
            generation: old.map_or(1, |old| old.generation + 1),
            pools,
            routes: Table::new(config.routes.clone()),
            config,
        }
    }
}

/// One member per address; a name without one is a member all the same, and says so (case C66).
fn plan(pool: &config::Pool, addresses: &Addresses) -> Plan {
    let fingerprint = pool.probe.as_ref().map_or(0, |probe| probe.fingerprint());
    let members = pool.members.iter().flat_map(|member| {
        let source = member.host.parse::<IpAddr>().is_err().then(|| Arc::from(member.name.as_str()));
        let known = addresses.get(&member.host).map_or(&[][..], Vec::as_slice);
        let spec = |address: Option<SocketAddr>| Spec {
            key: Key { name: member.name.clone(), address, tls: false },
            weight: member.weight,
            split: known.len().max(1) as u32,
            tier: member.tier,
            admin: member.state,
            source: source.clone(),
            fingerprint,
        };
        let mut specs: Vec<Spec> = known.iter().map(|ip| spec(Some(SocketAddr::new(*ip, member.port)))).collect();
        if specs.is_empty() {
            specs.push(spec(None));
        }
        specs
    });
    Plan {
        rules: pool.rules.clone(),
        policy: pool.balance.clone(),
        budget_percent: pool.retries.budget_percent,
        members: members.collect(),
    }
}

fn group_key(pool: &config::Pool) -> u64 {
    let mut hasher = DefaultHasher::new();
    pool.name.hash(&mut hasher);
    format!("{:?}", pool.upstream).hash(&mut hasher);
    hasher.finish()
}
