//! The proof of a probe's identity: a field that only who knows the secret can make (product.md A11).
//!
//! The value is base64(SHA-256(secret)), and as good as the secret to whoever sees it: it is marked as sensitive, and
//! `mask` covers it wherever an exchange is shown.

use std::hash::{Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use ring::digest::{SHA256, digest};

use super::CheckError;
use crate::config::{self, Lasting, Secret};
use crate::tls::Files;

/// Longer secrets are a mistake: somebody has named another file.
const MAX_SECRET: usize = 4096;

/// A field to send with each probe.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    pub(super) name: HeaderName,
    /// Sensitive: debug output does not show it, HPACK does not index it.
    pub(super) value: HeaderValue,
}

impl Proof {
    /// Takes the secret, out of `files` where it is in one.
    pub(super) fn new(proof: &config::Proof, files: &mut Files) -> Result<Proof, CheckError> {
        let wrong = |why| CheckError::Header(proof.header.clone(), why);
        let name: HeaderName = proof.header.parse().map_err(|_| wrong("not a field name"))?;
        let value = match &proof.secret {
            Secret::Text(text) => value_of(text.as_bytes()),
            Secret::File(path) => {
                let refused = |cause: String| CheckError::Secret { path: path.clone(), cause };
                let bytes = files.read(path).map_err(refused)?;
                match line(&bytes) {
                    [] => return Err(refused("it is empty".to_owned())),
                    secret if secret.len() > MAX_SECRET => {
                        return Err(refused(format!("more than {MAX_SECRET} bytes are no secret")));
                    }
                    secret => value_of(secret),
                }
            }
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong("not a field value"))?;
        value.set_sensitive(true);
        Ok(Proof { name, value })
    }

    /// Another one where the secret is.
    pub(super) fn seal(&self) -> u64 {
        let mut hasher = Lasting::default();
        self.value.as_bytes().hash(&mut hasher);
        hasher.finish()
    }
}

fn value_of(secret: &[u8]) -> String {
    STANDARD.encode(digest(&SHA256, secret))
}

/// An editor ends the last line; that end is no part of a secret.
fn line(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/probe-identity.md has the same, for whoever writes the other side.
    #[test]
    fn known_secrets_have_known_proofs() {
        let rows = [
            ("correct horse battery staple", "xLvLH77JnWW/WdhcjLYu4tuWPw/hBvSD2a+nO9Tjmoo="),
            ("", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="),
        ];
        for (secret, proof) in rows {
            assert_eq!(value_of(secret.as_bytes()), proof, "{secret}");
        }
    }

    #[test]
    fn one_end_of_a_line_is_no_part_of_a_secret() {
        for (bytes, secret) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a \n", " a "), ("\n", "")]
        {
            assert_eq!(line(bytes.as_bytes()), secret.as_bytes(), "{bytes:?}");
        }
    }
}
