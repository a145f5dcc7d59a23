//! In which words a handshake failed.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

/// The TLS error behind an error of the stream.
pub fn error_within(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// A handshake's failure in words: the name, date or issuer that failed, where there is one.
pub fn explain(error: &rustls::Error) -> String {
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
