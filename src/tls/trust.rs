//! Whom a connection of ours trusts.
//!
//! Sessions are never resumed: a resumed one would skip the certificate, and flatter the member's latency.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, SignatureScheme};

use super::issuer::issuer;
use super::{Material, TlsError};
use crate::config::{Alpn, Tls};

/// The client side of a connection by `tls`, whose files are `material`.
///
/// # Errors
/// The machine has no authorities where none are named; otherwise none that `material` would not have met.
pub fn client(tls: &Tls, material: &Material) -> Result<Arc<ClientConfig>, TlsError> {
    let wrong = |error: &dyn Error| TlsError::Setup(error.to_string());
    let provider = Arc::new(ring::default_provider());
    let trust = if tls.verify { Some(material.roots()?) } else { None };
    let webpki = trust.map(|roots| WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build());
    let webpki = webpki.transpose().map_err(|error| wrong(&error))?;
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { webpki, provider }));
    let mut client = match &material.client {
        Some(own) => {
            builder.with_client_auth_cert(own.chain.clone(), own.key.clone_key()).map_err(|error| wrong(&error))?
        }
        None => builder.with_no_client_auth(),
    };
    client.resumption = Resumption::disabled();
    client.alpn_protocols = match tls.alpn {
        Alpn::Http1 => vec![b"http/1.1".to_vec()],
        Alpn::Http2 => vec![b"h2".to_vec()],
        Alpn::Off => Vec::new(),
    };
    Ok(Arc::new(client))
}

/// What a certificate must be: by the rules of the web, or (`verify: false`) anything; that its holder has the key is
/// checked in either case.
#[derive(Debug)]
struct Verifier {
    webpki: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(webpki) = &self.webpki else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // The end of what was presented is where the chain goes on to somebody who has not signed it, or whom we do not know.
        let name = || issuer(intermediates.last().unwrap_or(end_entity));
        verified.map_err(|error| match error {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => IssuerError::Unknown(name()).into(),
            rustls::Error::InvalidCertificate(CertificateError::BadSignature) => IssuerError::Namesake(name()).into(),
            other => other,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Nobody we trust issued it; with the name of who says he did.
#[derive(Debug)]
enum IssuerError {
    Unknown(Option<String>),
    /// One of that name is trusted, with another key.
    Namesake(Option<String>),
}

impl fmt::Display for IssuerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IssuerError::Unknown(Some(name)) => write!(f, "certificate of an unknown issuer, {name:?}"),
            IssuerError::Unknown(None) => f.write_str("certificate of an unknown issuer"),
            IssuerError::Namesake(Some(name)) => write!(f, "certificate not signed by the {name:?} that is trusted"),
            IssuerError::Namesake(None) => f.write_str("certificate not signed by its issuer"),
        }
    }
}

impl Error for IssuerError {}

impl From<IssuerError> for rustls::Error {
    fn from(error: IssuerError) -> rustls::Error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
    }
}
