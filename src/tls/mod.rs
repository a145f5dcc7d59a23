//! TLS towards members, as far as traffic and probes have it in common: the files, whom to trust, and the words for what
//! failed.
//!
//! Both read the same files once a configuration ([`Material`]) and know members by the same name ([`server_name`]), so
//! that what a probe learns of a certificate holds for the requests that follow.
//!
//! Not here: how a connection is made (`probe` dials by itself, for `proxy` Pingora does).

mod issuer;
mod material;
mod trust;
mod words;

use std::path::PathBuf;

use rustls::pki_types::ServerName;

pub use material::{Client, Files, Material, try_system};
pub use trust::client;
pub use words::{error_within, explain};

use crate::config::TlsPart;

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The PEM file of authorities.
    #[error("`ca` {}: {cause}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The machine has no authorities.
    #[error("this machine has no certificate authorities; name some in `ca`")]
    NoSystemAuthorities,
    /// The machine's authorities cannot be read.
    #[error("the machine's certificate authorities cannot be read: {0}")]
    System(String),
    /// The PEM file of our own certificate.
    #[error("`client_cert` {}: {cause}", path.display())]
    ClientCert {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The PEM file of its key.
    #[error("`client_key` {}: {cause}", path.display())]
    ClientKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// Certificate and key are not each other's.
    #[error("`client_key` {} is not the key of the certificate in {}", key.display(), cert.display())]
    OtherKey {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Neither a name nor an address.
    #[error("`{0}` can be neither verified nor sent as a name")]
    Name(String),
    /// It cannot be set up.
    #[error("tls: {0}")]
    Setup(String),
}

impl TlsError {
    /// Which part of the configuration is to blame.
    pub fn part(&self) -> TlsPart {
        match self {
            TlsError::Authorities { .. } | TlsError::NoSystemAuthorities | TlsError::System(_) => TlsPart::Ca,
            TlsError::ClientCert { .. } => TlsPart::ClientCert,
            TlsError::ClientKey { .. } | TlsError::OtherKey { .. } => TlsPart::ClientKey,
            TlsError::Name(_) | TlsError::Setup(_) => TlsPart::Whole,
        }
    }
}

/// What a certificate is verified for; a name is sent, an address is not (RFC 6066 section 3). It is never empty: Pingora
/// would take that for a wish to verify nothing.
///
/// # Errors
/// What no certificate can be for.
pub fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    // The dot that makes a name absolute is no part of it here.
    let name = name.strip_suffix('.').unwrap_or(name);
    ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_can_be_verified_and_nothing_is_not_one() {
        let rows = [
            ("app1.test", Some("app1.test")),
            ("app1.test.", Some("app1.test")),
            ("app_1", Some("app_1")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("", None),
            (".", None),
            ("not a name", None),
            ("app1.test:443", None),
        ];
        for (name, expected) in rows {
            let read = server_name(name).ok();
            assert_eq!(read.as_ref().map(|name| name.to_str()).as_deref(), expected, "{name:?}");
            let is_address = name.parse::<std::net::IpAddr>().is_ok();
            assert_eq!(matches!(read, Some(ServerName::IpAddress(_))), is_address, "{name:?}");
        }
    }
}
