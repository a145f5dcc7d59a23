//! What can fail when a configuration is taken, done before it is taken.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::{Config, Places, Pool, Problem, TlsOf};
use crate::probe::{Check, CheckError, Recipe};
use crate::proxy::Connector;
use crate::snapshot::{Addresses, Outfit};
use crate::tls::{Files, TlsError};

/// A configuration whose names are resolved, whose files are read and whose probes can be made.
#[derive(Debug)]
pub struct Prepared {
    /// What names mean.
    pub addresses: Addresses,
    /// What the probes of each pool share, by the pool's name.
    pub recipes: HashMap<String, Arc<Recipe>>,
    /// What was made of each pool's files, by the pool's name.
    pub outfits: HashMap<String, Outfit>,
}

impl Prepared {
    /// Tries whatever `config` needs from outside.
    ///
    /// # Errors
    /// Every connection that cannot be made: a file of authorities or of a certificate that cannot be read, a key that is
    /// not the certificate's, a name that no certificate can have.
    pub fn new(config: &Config, places: &Places, addresses: Addresses) -> Result<Prepared, Vec<Problem>> {
        let mut trial = Trial { places, files: Files::default(), problems: Vec::new() };
        let (mut recipes, mut outfits) = (HashMap::new(), HashMap::new());
        for (name, pool) in &config.pools {
            let recipe = trial.recipe(pool, &addresses);
            let outfit = trial.outfit(pool, recipe.as_deref());
            recipes.extend(recipe.map(|recipe| (name.clone(), recipe)));
            outfits.insert(name.clone(), outfit);
        }
        let mut problems = trial.problems;
        // What traffic and probe share is wrong in both, and mended once.
        problems.sort_by(|a, b| (a.line, a.column, &a.message).cmp(&(b.line, b.column, &b.message)));
        problems.dedup();
        if problems.is_empty() { Ok(Prepared { addresses, recipes, outfits }) } else { Err(problems) }
    }
}

/// Everything is tried, whatever fails.
struct Trial<'a> {
    places: &'a Places,
    files: Files,
    problems: Vec<Problem>,
}

impl Trial<'_> {
    fn recipe(&mut self, pool: &Pool, addresses: &Addresses) -> Option<Arc<Recipe>> {
        let probe = pool.probe.as_ref()?;
        let recipe = match Recipe::new(probe, &mut self.files) {
            Ok(recipe) => Arc::new(recipe),
            Err(error) => {
                self.refuse_probe(pool, &error);
                return None;
            }
        };
        let tried = pool.members.iter().filter_map(|member| {
            let ip = addresses.get(&member.host)?.first()?;
            let address = SocketAddr::new(*ip, probe.port.unwrap_or(member.port));
            Check::new(&recipe, member.own_name(), address).err()
        });
        tried.collect::<Vec<_>>().iter().for_each(|error| self.refuse_probe(pool, error));
        Some(recipe)
    }

    fn outfit(&mut self, pool: &Pool, recipe: Option<&Recipe>) -> Outfit {
        let probe = recipe.and_then(Recipe::seal);
        match pool.upstream.tls.as_ref().map(|tls| Connector::new(tls, &pool.members, &mut self.files)) {
            None => Outfit { probe, ..Outfit::default() },
            Some(Ok(connector)) => {
                Outfit { probe, traffic: Some(connector.seal()), connector: Some(Arc::new(connector)) }
            }
            Some(Err(errors)) => {
                errors.iter().for_each(|error| self.refuse(pool, TlsOf::Traffic, error));
                Outfit::default()
            }
        }
    }

    fn refuse_probe(&mut self, pool: &Pool, error: &CheckError) {
        match error {
            CheckError::Tls(error) => self.refuse(pool, TlsOf::Probe, error),
            other => {
                let message = format!("pool {:?}: its probe cannot be made: {other}", pool.name);
                self.problems.push(self.places.probe_error(&pool.name, message));
            }
        }
    }

    fn refuse(&mut self, pool: &Pool, of: TlsOf, error: &TlsError) {
        let message = format!("pool {:?}: {error}", pool.name);
        self.problems.push(self.places.tls_error(&pool.name, of, error.part(), message));
    }
}
