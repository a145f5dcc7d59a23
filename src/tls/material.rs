//! What the files of a configuration hold: authorities, our own certificate and its key.
//!
//! Everything that can be wrong with them is found here, when a configuration is read, so that a dial finds them good.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures_util::{StreamExt, stream};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::{TlsError, explain};
use crate::config::{ClientCertificate, Lasting, Tls, open_regular};
use crate::disk;

/// A larger file is not one of ours.
const MAX_BYTES: u64 = 8 << 20;

/// Files that are read at once.
const AT_ONCE: usize = 32;

/// Files read for one configuration, each once, so that all who name one see the same.
#[derive(Debug, Default)]
pub struct Files {
    read: HashMap<PathBuf, Result<Arc<[u8]>, String>>,
}

/// What a pool's TLS is made of.
#[derive(Debug, Clone)]
pub struct Material {
    /// The authorities of `ca`; `None`: the system's.
    pub authorities: Option<Arc<[CertificateDer<'static>]>>,
    /// Our own certificate.
    pub client: Option<Arc<Client>>,
}

/// Our own certificate and its key, which fit.
#[derive(Debug)]
pub struct Client {
    /// The certificate first, then what leads to its authority.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key; printed it is masked.
    pub key: PrivateKeyDer<'static>,
}

impl Files {
    /// Reads all of `paths`, without keeping the runtime waiting, and none of them for ever. What is wrong with one is told
    /// where it is used.
    pub async fn at(paths: BTreeSet<PathBuf>) -> Files {
        Files { read: stream::iter(paths.into_iter().map(content)).buffer_unordered(AT_ONCE).collect().await }
    }

    /// Of what each holds, or of why it cannot be read: another one when that changes.
    pub fn digests(&self) -> BTreeMap<PathBuf, u64> {
        let digest = |content: &Result<Arc<[u8]>, String>| {
            let mut hasher = DefaultHasher::new();
            content.hash(&mut hasher);
            hasher.finish()
        };
        self.read.iter().map(|(path, content)| (path.clone(), digest(content))).collect()
    }

    /// What the file at `path` holds.
    ///
    /// # Errors
    /// Why that cannot be had.
    pub fn read(&mut self, path: &Path) -> Result<Arc<[u8]>, String> {
        self.read.entry(path.to_path_buf()).or_insert_with(|| read(path).map(Arc::from)).clone()
    }
}

impl Material {
    /// Reads what `tls` names.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else; a key that is not the certificate's; a machine without
    /// authorities where none are named.
    pub fn read(tls: &Tls, files: &mut Files) -> Result<Material, TlsError> {
        let authorities = match &tls.ca {
            Some(path) => Some(authorities(path, files)?.into()),
            None if tls.verify => system_roots().map(|_| None)?,
            None => None,
        };
        let client = tls.client.as_ref().map(|client| self::client(client, files)).transpose()?.map(Arc::new);
        Ok(Material { authorities, client })
    }

    /// Whom to trust.
    ///
    /// # Errors
    /// The machine has no authorities, and none are named.
    pub fn roots(&self) -> Result<Arc<RootCertStore>, TlsError> {
        let Some(authorities) = &self.authorities else { return system_roots() };
        let mut roots = RootCertStore::empty();
        // Each was taken when it was read.
        roots.add_parsable_certificates(authorities.iter().cloned());
        Ok(Arc::new(roots))
    }

    /// Of the certificates: another one when a file holds others. The key is told by its certificate.
    pub fn seal(&self) -> u64 {
        let mut hasher = Lasting::default();
        self.authorities.as_ref().map(|all| all.iter().map(|one| one.as_ref()).collect::<Vec<_>>()).hash(&mut hasher);
        let chain = self.client.as_ref().map(|client| &client.chain);
        chain.map(|all| all.iter().map(|one| one.as_ref()).collect::<Vec<_>>()).hash(&mut hasher);
        hasher.finish()
    }
}

/// The machine's authorities, read once: hundreds of pools may trust them.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // A store may hold what nobody can read any more; the rest is still good.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() { Err(TlsError::NoSystemAuthorities) } else { Ok(roots.clone()) }
}

/// Whether the machine's authorities can be read, be there any or none. Pingora reads them whenever it begins, needed or not,
/// and panics over one that it cannot take.
///
/// # Errors
/// What stands in the way.
pub fn try_system() -> Result<(), TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let is_told_where = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
    if let Some(error) = found.errors.first().filter(|_| is_told_where) {
        return Err(TlsError::System(format!("SSL_CERT_FILE or SSL_CERT_DIR: {error}")));
    }
    let mut roots = RootCertStore::empty();
    found.certs.into_iter().try_for_each(|one| roots.add(one).map_err(|error| TlsError::System(error.to_string())))
}

fn authorities(path: &Path, files: &mut Files) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |cause| TlsError::Authorities { path: path.to_path_buf(), cause };
    let certificates = files.read(path).and_then(|bytes| certificates(&bytes)).map_err(wrong)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(certificates)
}

fn client(files_of: &ClientCertificate, files: &mut Files) -> Result<Client, TlsError> {
    let ClientCertificate { cert, key } = files_of;
    let wrong_cert = |cause| TlsError::ClientCert { path: cert.clone(), cause };
    let wrong_key = |cause| TlsError::ClientKey { path: key.clone(), cause };
    let chain = files.read(cert).and_then(|bytes| certificates(&bytes)).map_err(wrong_cert)?;
    let private = files.read(key).and_then(|bytes| private_key(&bytes)).map_err(wrong_key)?;
    let provider = ring::default_provider();
    let signing = provider.key_provider.load_private_key(private.clone_key());
    let signing = signing.map_err(|error| wrong_key(error.to_string()))?;
    match CertifiedKey::new(chain.clone(), signing).keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            return Err(TlsError::OtherKey { cert: cert.clone(), key: key.clone() });
        }
        Err(error) => return Err(wrong_cert(explain(&error))),
    }
    Ok(Client { chain, key: private })
}

fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(bytes).collect();
    match all {
        Ok(all) if all.is_empty() => Err("no certificate in it".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(not_pem(error)),
    }
}

fn private_key(bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound if is_encrypted(bytes) => {
            "the key is encrypted; store it without a passphrase".to_owned()
        }
        pem::Error::NoItemsFound => "no private key in it".to_owned(),
        other => not_pem(other),
    })
}

/// PEM's own words would show bytes of the file, which may be those of a key.
fn not_pem(error: pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section of it has no end".to_owned(),
        _ => "it is not PEM".to_owned(),
    }
}

fn is_encrypted(bytes: &[u8]) -> bool {
    bytes.windows(b"ENCRYPTED".len()).any(|word| word == b"ENCRYPTED")
}

/// What the file at `path` holds, or why that cannot be had in time.
async fn content(path: PathBuf) -> (PathBuf, Result<Arc<[u8]>, String>) {
    let owned = path.clone();
    let found = disk::read(&path, move || read(&owned)).await;
    let bytes = found.unwrap_or_else(|unread| Err(format!("cannot be read: {unread}")));
    (path, bytes.map(Arc::from))
}

/// Reads a regular file of a sensible size.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let words = |error: std::io::Error| format!("cannot be read: {error}");
    let Some(file) = open_regular(path).map_err(words)? else { return Err("not a regular file".to_owned()) };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(words)?;
    if bytes.len() as u64 > MAX_BYTES { Err(format!("more than {MAX_BYTES} bytes")) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::config::TlsPart;

    /// A certificate and its key, in PEM.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["a.test".to_string()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A folder with files of these contents, by name.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn with(files: &[(&str, &str)]) -> Folder {
            let folder = Folder(tempfile::tempdir().unwrap());
            files.iter().for_each(|(name, text)| folder.write(name, text));
            folder
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.path().join(name), text).unwrap();
        }

        fn read(&self, ca: Option<&str>, client: Option<(&str, &str)>) -> Result<Material, TlsError> {
            let at = |name: &str| self.0.path().join(name);
            let client = client.map(|(cert, key)| ClientCertificate { cert: at(cert), key: at(key) });
            Material::read(&Tls { ca: ca.map(at), client, ..Tls::default() }, &mut Files::default())
        }
    }

    #[test]
    fn a_file_that_is_not_what_it_should_be_is_refused_with_the_reason() {
        let ((cert, key), (_, other)) = (pair(), pair());
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let torn = cert.split("-----END").next().unwrap_or_default();
        let folder = Folder::with(&[
            ("cert", &cert),
            ("key", &key),
            ("other", &other),
            ("empty", ""),
            ("encrypted", encrypted),
            ("torn", torn),
            ("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            ("both", &format!("{key}{cert}")),
        ]);
        let pipe = Command::new("mkfifo").arg(folder.0.path().join("pipe")).status();
        assert!(pipe.expect("mkfifo runs").success());
        type Row<'a> = (Option<&'a str>, Option<(&'a str, &'a str)>, &'a str, TlsPart);
        let rows: &[Row<'_>] = &[
            (Some("gone"), None, "gone: cannot be read: No such file", TlsPart::Ca),
            (Some("empty"), None, "empty: no certificate in it", TlsPart::Ca),
            (Some("key"), None, "key: no certificate in it", TlsPart::Ca),
            (Some("broken"), None, "broken: ", TlsPart::Ca),
            (Some("torn"), None, "torn: a section of it has no end", TlsPart::Ca),
            (Some("."), None, "not a regular file", TlsPart::Ca),
            // Or this test hangs.
            (Some("pipe"), None, "not a regular file", TlsPart::Ca),
            (None, Some(("cert", "pipe")), "not a regular file", TlsPart::ClientKey),
            (None, Some(("gone", "key")), "`client_cert`", TlsPart::ClientCert),
            (None, Some(("cert", "gone")), "gone: cannot be read", TlsPart::ClientKey),
            (None, Some(("cert", "cert")), "cert: no private key in it", TlsPart::ClientKey),
            (None, Some(("cert", "encrypted")), "the key is encrypted", TlsPart::ClientKey),
            (None, Some(("cert", "other")), "is not the key of the certificate in", TlsPart::ClientKey),
            (None, Some(("broken", "key")), "broken: ", TlsPart::ClientCert),
        ];
        for (ca, client, words, part) in rows {
            let error = folder.read(ca.or(Some("cert")), *client).expect_err("it is refused");
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.part(), *part, "{error}");
        }
        for (cert, key) in [("cert", "key"), ("both", "both")] {
            let material = folder.read(Some("cert"), Some((cert, key))).expect("they fit");
            assert!(!format!("{material:?}").contains("PRIVATE"), "{material:?}");
        }
    }

    #[test]
    fn a_seal_is_of_the_contents_and_of_nothing_else() {
        let ((cert, key), (cert2, key2)) = (pair(), pair());
        let folder = Folder::with(&[("a", &cert), ("b", &cert), ("c", &cert2), ("key", &key), ("key2", &key2)]);
        let seal = |ca, client| folder.read(ca, client).expect("good files").seal();
        let plain = seal(Some("a"), None);
        assert_eq!(plain, seal(Some("b"), None), "another path, the same contents");
        let others =
            [plain, seal(Some("c"), None), seal(Some("a"), Some(("a", "key"))), seal(Some("a"), Some(("c", "key2")))];
        assert!((1..others.len()).all(|at| !others[..at].contains(&others[at])), "{others:?}");
        folder.write("a", &cert2);
        assert_eq!(seal(Some("a"), None), others[1]);
    }

    #[test]
    fn a_file_that_many_name_is_read_once() {
        let (cert, _) = pair();
        let folder = Folder::with(&[("a", &cert)]);
        let tls = Tls { ca: Some(folder.0.path().join("a")), ..Tls::default() };
        let mut files = Files::default();
        let first = Material::read(&tls, &mut files).expect("a good file");
        folder.write("a", "");
        let second = Material::read(&tls, &mut files).expect("as it was");
        assert_eq!(first.seal(), second.seal());
        assert!(Material::read(&tls, &mut Files::default()).is_err(), "the next configuration looks again");
    }
}
