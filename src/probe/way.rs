//! The way to a member: by which name, over which TLS, and in which HTTP.

use std::sync::Arc;

use http::HeaderValue;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::CheckError;
use crate::config::{Tls, authority};
use crate::tls::{self, Files, Material, TlsError};

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    /// Over TLS agreed on by ALPN, else by prior knowledge (RFC 9113 section 3.3).
    Http2,
}

/// TLS of the probes of a pool.
#[derive(Debug)]
pub(super) struct Security {
    pub(super) client: Arc<ClientConfig>,
    /// Of the files' contents.
    pub(super) seal: u64,
    pub(super) verified: bool,
    pub(super) client_certificate: bool,
    /// Else the member's own name.
    sni: Option<String>,
}

impl Security {
    fn new(tls: &Tls, files: &mut Files) -> Result<Security, TlsError> {
        let material = Material::read(tls, files)?;
        Ok(Security {
            client: tls::client(tls, &material)?,
            seal: material.seal(),
            verified: tls.verify,
            client_certificate: material.client.is_some(),
            sni: tls.sni.clone(),
        })
    }
}

/// The way to every member of a pool.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) version: Version,
    /// `None`: in the clear.
    pub(super) tls: Option<Security>,
    host: Option<String>,
    host_header: Option<String>,
}

/// What is particular to one member.
#[derive(Debug)]
pub(super) struct Request {
    /// The Host field, which HTTP/2 calls the authority.
    pub(super) host: HeaderValue,
    authority: Option<Authority>,
    server_name: Option<ServerName<'static>>,
}

impl Request {
    /// The name or address the certificate is verified for; an address is not sent (RFC 6066 section 3).
    pub(super) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }
}

impl Way {
    pub(super) fn new(
        version: Version,
        tls: Option<&Tls>,
        (host, host_header): (&Option<String>, &Option<String>),
        files: &mut Files,
    ) -> Result<Way, CheckError> {
        let tls = tls.map(|tls| Security::new(tls, files)).transpose()?;
        Ok(Way { version, tls, host: host.clone(), host_header: host_header.clone() })
    }

    /// Host field and server name for the member whose own name is `member` and that is probed on `port`.
    pub(super) fn to_member(&self, member: &str, port: u16) -> Result<Request, CheckError> {
        let host = match (&self.host_header, &self.host) {
            (Some(written), _) | (None, Some(written)) => written.clone(),
            (None, None) => authority(member, port, if self.tls.is_some() { 443 } else { 80 }),
        };
        let wrong = || CheckError::Host(host.clone());
        let server_name = self.tls.as_ref().map(|tls| tls::server_name(tls.sni.as_deref().unwrap_or(member)));
        let authority = match self.version {
            Version::Http1 => None,
            Version::Http2 => Some(host.parse().map_err(|_| wrong())?),
        };
        let server_name = server_name.transpose()?;
        Ok(Request { host: HeaderValue::from_str(&host).map_err(|_| wrong())?, authority, server_name })
    }

    /// The target of a request: with scheme and authority where the version has no Host field.
    pub(super) fn target(&self, request: &Request, path: &PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(path.clone());
        parts.scheme = Some(if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = request.authority.clone();
        let whole = parts.authority.is_some().then(|| Uri::from_parts(parts).ok()).flatten();
        whole.unwrap_or_else(|| path.clone().into())
    }
}
