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
        // The error's own type is of a crate below rustls.
        CertificateError::Other(other) if other.to_string() == "UnsupportedCertVersion" => {
            "certificate of X.509 version 1; it must be of version 3 (with openssl x509: `-extfile`)".to_owned()
        }
        CertificateError::Other(other) => other.to_string(),
        other => format!("certificate: {other}"),
    }
}

/// What a certificate is for, at most a handful of names.
fn names(presented: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = presented.iter().take(SHOWN).map(|name| plain(name)).collect::<Vec<_>>().join(", ");
    match presented.len().saturating_sub(SHOWN) {
        _ if presented.is_empty() => "no name".to_string(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `a.test` of what rustls writes as `DnsName("a.test")`.
fn plain(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, inner)| inner.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

fn date(time: UnixTime) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(time.as_secs())).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_certificates_names_are_told_as_people_write_them() {
        let presented = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let many: Vec<String> = (1..=7).map(|at| format!("DnsName(\"a{at}.test\")")).collect();
        let rows = [
            (presented(&[]), "no name"),
            (presented(&["DnsName(\"a.test\")", "IpAddress(10.0.0.1)"]), "a.test, 10.0.0.1"),
            (presented(&["a.test"]), "a.test"),
            (many, "a1.test, a2.test, a3.test, a4.test, a5.test and 2 more"),
        ];
        for (names, expected) in rows {
            assert_eq!(super::names(&names), expected);
        }
    }
}
