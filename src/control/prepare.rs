//! What can fail when a configuration is taken, done before it is taken.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::{Config, Places, Problem};
use crate::probe::{Check, Recipe};
use crate::snapshot::Addresses;

/// A configuration whose names are resolved and whose probes can be made.
#[derive(Debug)]
pub struct Prepared {
    /// What names mean.
    pub addresses: Addresses,
    /// What the probes of each pool share, by the pool's name.
    pub recipes: HashMap<String, Arc<Recipe>>,
}

impl Prepared {
    /// Tries whatever `config` needs from outside.
    ///
    /// # Errors
    /// Every probe that cannot be made: a file of authorities that cannot be read, a name that no certificate can have.
    pub fn new(config: &Config, places: &Places, addresses: Addresses) -> Result<Prepared, Vec<Problem>> {
        let mut recipes = HashMap::new();
        let mut problems = Vec::new();
        for (name, pool) in &config.pools {
            let Some(probe) = &pool.probe else { continue };
            let complain = |what: &dyn std::fmt::Display| {
                places.probe_error(name, format!("pool {name:?}: its probe cannot be made: {what}"))
            };
            let recipe = match Recipe::new(probe) {
                Ok(recipe) => Arc::new(recipe),
                Err(error) => {
                    problems.push(complain(&error));
                    continue;
                }
            };
            let tried = pool.members.iter().filter_map(|member| {
                let ip = addresses.get(&member.host)?.first()?;
                Check::new(&recipe, &member.host, SocketAddr::new(*ip, probe.port.unwrap_or(member.port))).err()
            });
            problems.extend(tried.map(|error| complain(&error)));
            recipes.insert(name.clone(), recipe);
        }
        if problems.is_empty() { Ok(Prepared { addresses, recipes }) } else { Err(problems) }
    }
}
