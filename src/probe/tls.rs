//! TLS of probes: whom they trust, and in which words a handshake failed.
//!
//! Sessions are never resumed: a resumed one would skip the certificate, and flatter the member's latency.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};

use super::CheckError;
use super::issuer::issuer;
use crate::config::ProbeTls;

/// The client side of a probe's TLS; HTTP/1.1 is what it speaks inside.
pub(super) fn client(tls: &ProbeTls) -> Result<Arc<ClientConfig>, CheckError> {
    let wrong = |error: &dyn Error| CheckError::Tls(error.to_string());
    let provider = Arc::new(ring::default_provider());
    let trust = match (tls.verify, &tls.ca) {
        (false, _) => None,
        (true, Some(path)) => Some(Arc::new(roots_of(path)?)),
        (true, None) => Some(system_roots()?),
    };
    let webpki = trust.map(|roots| WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build());
    let webpki = webpki.transpose().map_err(|error| wrong(&error))?;
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { webpki, provider }))
        .with_no_client_auth();
    client.resumption = Resumption::disabled();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(client))
}

/// The TLS error behind an error of the stream.
pub(super) fn error_within(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// A handshake's failure in words: the name, date or issuer that failed, where there is one.
pub(super) fn explain(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => explain_certificate(error),
        rustls::Error::InvalidMessage(_) => "what came is not TLS".to_string(),
        rustls::Error::AlertReceived(alert) => format!("the member refused: {alert:?}"),
        other => other.to_string(),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::ExpiredContext { not_after, .. } => format!("certificate expired {}", date(*not_after)),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("certificate not valid before {}", date(*not_before))
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!("certificate is for {}, not for {}", names(presented), expected.to_str())
        }
        CertificateError::Other(other) => other.to_string(),
        other => format!("certificate: {other}"),
    }
}

/// What a certificate is for, at most a handful of names.
fn names(presented: &[String]) -> String {
    const SHOWN: usize = 5;
    match presented {
        [] => "no name".to_string(),
        few if few.len() <= SHOWN => few.join(", "),
        many => format!("{} and {} more", many[..SHOWN].join(", "), many.len() - SHOWN),
    }
}

fn date(time: UnixTime) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(time.as_secs())).to_string()
}

fn roots_of(path: &Path) -> Result<RootCertStore, CheckError> {
    let wrong = |cause: String| CheckError::Authorities { path: path.to_path_buf(), cause };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("no certificate in it".to_string())) } else { Ok(roots) }
}

/// The machine's authorities, read once: hundreds of pools may trust them.
fn system_roots() -> Result<Arc<RootCertStore>, CheckError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // A store may hold what nobody can read any more; the rest is still good.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() { Err(CheckError::NoSystemAuthorities) } else { Ok(roots.clone()) }
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
