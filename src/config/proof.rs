//! How a probe proves who it is: what `probe.auth` means.
//!
//! The secret itself is never sent, only what is made of it (`probe`), and never shown: not in problems, not in the
//! effective configuration, not in debug output.

use std::fmt;
use std::path::{Path, PathBuf};

use super::file::AuthKeys;
use super::preset::Preset;
use super::probe::{is_token_byte, own_field};
use super::reading::Reading;
use super::spelling::{Spelling, shown};

/// The field of App Service (product.md A11).
const APP_SERVICE: &str = "x-ms-auth-internal-token";

/// A field whose value only who knows the secret can make: base64(SHA-256(secret)).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proof {
    /// The field's name.
    pub header: String,
    /// Whence the secret.
    pub secret: Secret,
}

/// Whence a secret; printed it is masked.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Secret {
    /// What the configuration says, mostly by the environment.
    Text(String),
    /// What this file holds, without the end of its last line.
    File(PathBuf),
}

impl Secret {
    /// The file that it is in; `None`: it is in none.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Secret::Text(_) => None,
            Secret::File(path) => Some(path),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::Text(_) => f.write_str("Text(********)"),
            Secret::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// A secret as written; no complaint quotes it.
#[derive(Clone)]
pub(super) struct Unquoted(String);

impl Unquoted {
    /// The secret.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl Spelling for Unquoted {
    const EXPECTED: &'static str = "text";

    fn read(text: &str) -> Result<Unquoted, String> {
        Ok(Unquoted(text.to_owned()))
    }

    fn read_unquoted(_: &str) -> Result<Unquoted, String> {
        Err("the secret is read as a number or a truth value; put it in quotes".to_owned())
    }
}

impl fmt::Debug for Unquoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("********")
    }
}

/// `probe.auth`, in the probe that `probe` stands on; `headers` are its other fields.
pub(super) fn proof(
    keys: &AuthKeys,
    preset: Option<Preset>,
    headers: &[(String, String)],
    probe: &mut Reading<'_>,
) -> Option<Proof> {
    let mut read = probe.under("auth");
    let taken = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let header = read.text("header", &keys.header, |name| match field(name) {
        Ok(name) if taken(&name) => Err(format!("field `{name}` is in `headers` too; remove it there")),
        other => other,
    });
    let header = match (header, &keys.header, preset) {
        (None, None, Some(Preset::AppService)) => Some(APP_SERVICE.to_owned()),
        (None, None, _) => {
            read.missing(
                "header",
                format!("name the field that the proof is sent in, such as `header: {APP_SERVICE}`"),
            );
            None
        }
        (header, ..) => header,
    };
    let secret = secret(keys, &mut read);
    Some(Proof { header: header?, secret: secret? })
}

fn secret(keys: &AuthKeys, read: &mut Reading<'_>) -> Option<Secret> {
    match (&keys.secret, &keys.secret_file) {
        (Some(_), Some(_)) => {
            read.error("secret_file", "`secret` and `secret_file` are two secrets; remove one of them");
            None
        }
        (None, None) => {
            if !read.at.lost("secret") && !read.at.lost("secret_file") {
                let message = "no secret; write `secret: \"${PROBE_SECRET}\"`, or `secret_file: FILE`";
                read.missing("secret", message);
            }
            None
        }
        (Some(secret), None) => {
            let Unquoted(text) = &secret.0;
            if text.is_empty() {
                read.error("secret", "the secret is empty, which everybody knows");
            }
            Some(Secret::Text(text.clone()))
        }
        (None, file) => read.text("secret_file", file, |path| {
            let fits = !path.is_empty() && !path.contains('\0');
            if fits {
                Ok(Secret::File(PathBuf::from(path)))
            } else {
                Err("`secret_file` is the path of a file".to_owned())
            }
        }),
    }
}

fn field(name: &str) -> Result<String, String> {
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return Err(format!("`{}` cannot be the name of a field; use letters, digits and `-`", shown(name)));
    }
    let lower = name.to_ascii_lowercase();
    if lower == "content-type" || lower.starts_with("grpc-") {
        return Err(format!("`{name}` is the probe's own: gRPC needs it"));
    }
    match own_field(name) {
        Some(why) => Err(format!("`{name}` is the probe's own: {why}")),
        None => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_does_not_show_a_secret() {
        let proof = Proof { header: "x-proof".to_owned(), secret: Secret::Text("letmein".to_owned()) };
        let shown = format!("{proof:?} {:?}", Unquoted("letmein".to_owned()));
        assert!(shown.contains("x-proof") && !shown.contains("letmein"), "{shown}");
    }
}
