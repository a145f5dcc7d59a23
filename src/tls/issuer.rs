//! Reads one thing of a certificate: who says he issued it.
//!
//! PURE. rustls says that an issuer is unknown and not which, and that is what the operator needs. Only so much of DER is
//! read as leads there (RFC 5280 section 4.1); anything unexpected is no name, since the certificate has failed anyway.

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTF16: u8 = 0x1e;
const LONGEST: usize = 100;

/// The issuer's common name, else its organization, else its unit.
pub(super) fn issuer(certificate: &[u8]) -> Option<String> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        (_, _, fields) = element(fields)?;
    }
    let (_, _, fields) = element(fields)?; // serial number
    let (_, _, fields) = element(fields)?; // signature algorithm
    let (SEQUENCE, name, _) = element(fields)? else { return None };
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    const ORGANIZATION: &[u8] = &[0x55, 4, 10];
    const UNIT: &[u8] = &[0x55, 4, 11];
    [COMMON_NAME, ORGANIZATION, UNIT].into_iter().find_map(|kind| attribute(name, kind))
}

/// The value of a kind of attribute in a name: a sequence of sets of pairs.
fn attribute(mut name: &[u8], kind: &[u8]) -> Option<String> {
    while !name.is_empty() {
        let (_, mut set, rest) = element(name)?;
        name = rest;
        while !set.is_empty() {
            let (_, pair, rest) = element(set)?;
            set = rest;
            let (_, this, value) = element(pair)?;
            if this == kind {
                let (tag, text, _) = element(value)?;
                return Some(decode(tag, text).chars().take(LONGEST).collect());
            }
        }
    }
    None
}

fn decode(tag: u8, text: &[u8]) -> String {
    if tag != UTF16 {
        return String::from_utf8_lossy(text).into_owned();
    }
    let units: Vec<u16> = text.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

/// Tag, content and what follows of the first element.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(short - 0x80))?;
            (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, Issuer, KeyPair};

    use super::*;

    /// A certificate issued by one of this name.
    fn issued_by(name: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        name.iter().for_each(|(kind, value)| params.distinguished_name.push(kind.clone(), value.clone()));
        let issuer = Issuer::new(params, KeyPair::generate().unwrap());
        let key = KeyPair::generate().unwrap();
        CertificateParams::new(vec!["a.test".to_string()]).unwrap().signed_by(&key, &issuer).unwrap().der().to_vec()
    }

    #[test]
    fn the_most_telling_name_is_told() {
        let long = "x".repeat(300);
        let utf8 = |text: &str| DnValue::Utf8String(text.to_string());
        let rows = [
            (vec![(DnType::OrganizationName, utf8("Acme")), (DnType::CommonName, utf8("Acme Root 1"))], "Acme Root 1"),
            (vec![(DnType::OrganizationalUnitName, utf8("Ops")), (DnType::OrganizationName, utf8("Ümläut"))], "Ümläut"),
            (vec![(DnType::OrganizationalUnitName, utf8("Ops"))], "Ops"),
            (vec![(DnType::CommonName, DnValue::BmpString("Acmé".try_into().unwrap()))], "Acmé"),
            (vec![(DnType::CommonName, utf8(&long))], &long[..100]),
        ];
        for (name, expected) in rows {
            assert_eq!(issuer(&issued_by(&name)).as_deref(), Some(expected));
        }
        assert_eq!(issuer(&issued_by(&[(DnType::CountryName, utf8("AQ"))])), None);
    }

    #[test]
    fn no_bytes_can_harm() {
        let good = issued_by(&[(DnType::CommonName, DnValue::Utf8String("Acme".to_string()))]);
        for end in 0..good.len() {
            assert!(issuer(&good[..end]).is_none_or(|name| name == "Acme"));
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bad = good.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bad.len().min(120));
                bad[at] = random.u8(..);
            }
            let _ = issuer(&bad);
        }
    }
}
