//! What Pingora needs to know of a pool's TLS, made when a configuration is read: a dial reads no file and parses none.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::Arc;

use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};

use crate::config::{Member, Tls};
use crate::tls::{self, Files, Material, TlsError};

/// TLS towards the members of one pool.
#[derive(Debug)]
pub struct Connector {
    seal: u64,
    verify: bool,
    /// What all are verified for; `None`: each for its own name.
    sni: Option<String>,
    /// `None`: those of the system, which Pingora read when it began.
    authorities: Option<Arc<CaType>>,
    client: Option<Arc<CertKey>>,
    /// What the members are verified for, by their configured name. An address stands here as text: it is verified and, by
    /// rustls, not sent. None is empty: that would switch every check off.
    names: HashMap<String, String>,
}

impl Connector {
    /// TLS by `tls` towards `members`.
    ///
    /// # Errors
    /// Everything that is wrong with its files and with the names of the members.
    pub fn new(tls: &Tls, members: &[Member], files: &mut Files) -> Result<Connector, Vec<TlsError>> {
        let mut errors = Vec::new();
        let mut names = HashMap::new();
        for member in members {
            match tls::server_name(tls.sni.as_deref().unwrap_or(member.own_name())) {
                Ok(name) => drop(names.insert(member.name.clone(), name.to_str().into_owned())),
                Err(error) => errors.push(error),
            }
        }
        let made = Material::read(tls, files).and_then(|material| {
            // Pingora makes a verifier of them even where nothing is verified.
            material.roots()?;
            let authorities = material.authorities.as_ref().map(|all| authorities(all)).transpose()?;
            let client = material.client.as_ref().map(|client| certificate(client)).transpose()?;
            Ok(Connector {
                seal: material.seal(),
                verify: tls.verify,
                sni: tls.sni.clone(),
                authorities: authorities.map(Arc::from),
                client: client.map(Arc::new),
                names,
            })
        });
        match made {
            Ok(connector) if errors.is_empty() => Ok(connector),
            Ok(_) => Err(errors),
            Err(error) => {
                errors.push(error);
                Err(errors)
            }
        }
    }

    /// Of the files' contents: connections made by others are not reused.
    pub fn seal(&self) -> u64 {
        self.seal
    }

    /// What the member of this configured name is verified for; `None`: it is not of this generation.
    pub fn name_of(&self, member: &str) -> Option<&str> {
        self.names.get(member).map(String::as_str)
    }

    /// What a member of this own name is verified for, whom a source has named since; `None`: it cannot be, for what a name
    /// is, or since Pingora would ask for another one (it takes `_` for `-`).
    pub fn name_for(&self, own_name: &str) -> Option<String> {
        if let Some(sni) = &self.sni {
            return Some(sni.clone());
        }
        let name = tls::server_name(own_name).ok()?;
        let first = own_name.split('.').next().unwrap_or_default();
        (!first.contains('_')).then(|| name.to_str().into_owned())
    }

    /// Gives `peer`, which has its name, the rest.
    pub fn equip(&self, peer: &mut HttpPeer) {
        peer.options.verify_cert = self.verify;
        peer.options.verify_hostname = self.verify;
        peer.options.ca.clone_from(&self.authorities);
        peer.client_cert_key.clone_from(&self.client);
    }
}

fn authorities(all: &[rustls::pki_types::CertificateDer<'_>]) -> Result<Vec<WrappedX509>, TlsError> {
    let parse = || all.iter().map(|one| WrappedX509::new(one.to_vec(), parse_x509)).collect();
    parsed("ca", parse)
}

fn certificate(client: &tls::Client) -> Result<CertKey, TlsError> {
    let chain: Vec<Vec<u8>> = client.chain.iter().map(|one| one.to_vec()).collect();
    let key = client.key.secret_der().to_vec();
    parsed("client_cert", || CertKey::new(chain, key))
}

/// What rustls has taken, Pingora parses once more with another parser, and panics where that one is stricter.
fn parsed<T>(what: &str, parse: impl FnOnce() -> T + std::panic::UnwindSafe) -> Result<T, TlsError> {
    catch_unwind(parse).map_err(|_| TlsError::Setup(format!("a certificate of `{what}` cannot be used")))
}
