//! What can fail when a configuration is taken, done before it is taken.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::{Config, Places, Pool, Probe, Problem, StickySecret, TlsOf};
use crate::probe::{self, Check, CheckError, Recipe};
use crate::proxy::{Connector, Signer, SignerError};
use crate::snapshot::{Found, Located, Outfit, Source};
use crate::tls::{Files, TlsError};

/// A configuration whose names are resolved, whose files are read and whose probes can be made.
#[derive(Debug)]
pub struct Prepared {
    /// Who is a member of each pool.
    pub found: Found,
    /// What the probes of each pool share, by the pool's name.
    pub recipes: HashMap<String, Arc<Recipe>>,
    /// What was made of each pool's files, by the pool's name.
    pub outfits: HashMap<String, Outfit>,
}

impl Prepared {
    /// Tries whatever `config` needs from outside, with what its `files` hold; one that is not among them is read.
    ///
    /// # Errors
    /// Every connection that cannot be made: a file of authorities or of a certificate that cannot be read, a key that is
    /// not the certificate's, a name that no certificate can have. A name that a source has brought is no reason to refuse
    /// anything.
    pub fn new(config: &Config, places: &Places, found: Found, files: Files) -> Result<Prepared, Vec<Problem>> {
        let mut trial = Trial { places, files, problems: Vec::new() };
        let (mut recipes, mut outfits) = (HashMap::new(), HashMap::new());
        for (name, pool) in &config.pools {
            let recipe = trial.recipe(pool, &found);
            let outfit = trial.outfit(pool, recipe.as_deref());
            recipes.extend(recipe.map(|recipe| (name.clone(), recipe)));
            outfits.insert(name.clone(), outfit);
        }
        let mut problems = trial.problems;
        // What traffic and probe share is wrong in both, and mended once.
        problems.sort_by(|a, b| (a.line, a.column, &a.message).cmp(&(b.line, b.column, &b.message)));
        problems.dedup();
        if problems.is_empty() { Ok(Prepared { found, recipes, outfits }) } else { Err(problems) }
    }
}

/// Everything is tried, whatever fails.
struct Trial<'a> {
    places: &'a Places,
    files: Files,
    problems: Vec<Problem>,
}

impl Trial<'_> {
    fn recipe(&mut self, pool: &Pool, found: &Found) -> Option<Arc<Recipe>> {
        let probe = pool.probe.as_ref()?;
        if let Some(Err(error)) = probe.bind.map(probe::try_source) {
            let message = format!("pool {:?}: probes cannot come from there: {error}", pool.name);
            self.problems.push(self.places.bind_error(&pool.name, message));
        }
        let recipe = match Recipe::new(probe, &mut self.files) {
            Ok(recipe) => Arc::new(recipe),
            Err(error) => {
                self.refuse_probe(pool, &error);
                return None;
            }
        };
        for located in found.of(&pool.name) {
            let Some(Err(error)) = check(&recipe, probe, located) else { continue };
            // Whom a source has brought is told of when it is taken.
            if matches!(located.source, Source::Written(_)) {
                self.refuse_probe(pool, &error);
            }
        }
        Some(recipe)
    }

    fn outfit(&mut self, pool: &Pool, recipe: Option<&Recipe>) -> Outfit {
        let (signer, connector) = (self.signer(pool), self.connector(pool));
        Outfit {
            probe: recipe.and_then(Recipe::seal),
            traffic: connector.as_ref().map(Connector::seal),
            connector: connector.map(|connector| Arc::new(connector) as _),
            sticky: signer.as_ref().map(Signer::seal),
            signer: signer.map(|signer| Arc::new(signer) as _),
        }
    }

    fn connector(&mut self, pool: &Pool) -> Option<Connector> {
        match Connector::new(pool.upstream.tls.as_ref()?, &pool.members, &mut self.files) {
            Ok(connector) => Some(connector),
            Err(errors) => {
                errors.iter().for_each(|error| self.refuse(pool, TlsOf::Traffic, error));
                None
            }
        }
    }

    fn signer(&mut self, pool: &Pool) -> Option<Signer> {
        let error = match Signer::new(&pool.name, pool.sticky.as_ref()?, &mut self.files) {
            Ok(signer) => return Some(signer),
            Err(error) => error,
        };
        let (of, key) = match &error {
            SignerError::File { of: StickySecret::Previous, .. } => (StickySecret::Previous, "previous_secret_file"),
            SignerError::File { .. } => (StickySecret::Present, "secret_file"),
            SignerError::NoRandomNumbers => (StickySecret::Present, "sticky"),
        };
        let message = format!("pool {:?}: `{key}`: {error}", pool.name);
        self.problems.push(self.places.sticky_error(&pool.name, of, message));
        None
    }

    fn refuse_probe(&mut self, pool: &Pool, error: &CheckError) {
        match error {
            CheckError::Tls(error) => self.refuse(pool, TlsOf::Probe, error),
            CheckError::Secret { .. } => {
                let message = format!("pool {:?}: `secret_file`: {error}", pool.name);
                self.problems.push(self.places.secret_error(&pool.name, message));
            }
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

/// The probe of a member; `None` while it has no address.
fn check(recipe: &Arc<Recipe>, probe: &Probe, located: &Located) -> Option<Result<Check, CheckError>> {
    let mut address = located.address?;
    address.set_port(probe.port.unwrap_or(address.port()));
    Some(Check::new(recipe, located.member.own_name(), address))
}

/// Tells of members that cannot be probed, or not be reached over TLS, of those that are not in `before`.
pub(super) fn tell_of_odd(pool: &Pool, prepared: &Prepared, before: &Found) {
    let (recipe, outfit) = (prepared.recipes.get(&pool.name), prepared.outfits.get(&pool.name));
    let connector = outfit.and_then(|outfit| outfit.connector.as_ref()?.downcast_ref::<Connector>());
    fn key(located: &Located) -> (&str, Option<SocketAddr>) {
        (&located.member.name, located.address)
    }
    let known: HashMap<_, _> = before.of(&pool.name).iter().map(|located| (key(located), located)).collect();
    let is_new = |located: &&Located| known.get(&key(located)).is_none_or(|known| known != located);
    for located in prepared.found.of(&pool.name).iter().filter(is_new) {
        if let (Some(recipe), Some(probe)) = (recipe, &pool.probe)
            && let Some(Err(error)) = check(recipe, probe, located)
        {
            tell(&pool.name, located, &error);
        }
        let is_written = matches!(located.source, Source::Written(_));
        if connector.is_some_and(|connector| !is_written && connector.name_for(located.member.own_name()).is_none()) {
            tell(&pool.name, located, &"no certificate can be verified for its name");
        }
    }
}

fn tell(pool: &str, located: &Located, error: &dyn std::fmt::Display) {
    let member = located.label();
    tracing::warn!(
        target: "discovery", pool, member, %error,
        "member {member} of {pool} cannot be probed or reached: {error}"
    );
}
