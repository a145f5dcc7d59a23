//! Who signs the cookies of a pool: with the secret that its configuration names, or with what the process has made for itself.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use super::token::{Keys, Token};
use crate::config::{Secret, Sticky, StickySecret, line};
use crate::tls::Files;

/// Longer secrets are a mistake: somebody has named another file.
const MAX_SECRET: usize = 4096;

/// The keys of a pool's cookies.
#[derive(Debug)]
pub struct Signer {
    present: Keys,
    previous: Option<Keys>,
    seal: u64,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// A file is not as it should be.
    #[error("{}: {cause}", path.display())]
    File {
        /// Which of them.
        of: StickySecret,
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        cause: String,
    },
    /// There is no secret, and none can be made.
    #[error("the system gives no random numbers; write a `secret`")]
    NoRandomNumbers,
}

/// A cookie that we have set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// What it says.
    pub token: Token,
    /// Whether it is signed as new ones are.
    pub is_present: bool,
}

impl Signer {
    /// Takes the secrets, out of `files` where they are in one.
    ///
    /// # Errors
    /// A file that cannot be read, or has none in it.
    pub fn new(pool: &str, sticky: &Sticky, files: &mut Files) -> Result<Signer, SignerError> {
        let mut hasher = DefaultHasher::new();
        let mut keys = |secret: &[u8]| {
            secret.hash(&mut hasher);
            Keys::new(secret, pool)
        };
        let present = match &sticky.secret {
            Some(secret) => keys(&bytes(secret, StickySecret::Present, files)?),
            None => keys(own()?),
        };
        let previous =
            sticky.previous.as_ref().map(|secret| bytes(secret, StickySecret::Previous, files)).transpose()?;
        let previous = previous.map(|secret| keys(&secret));
        Ok(Signer { present, previous, seal: hasher.finish() })
    }

    /// Another one where a secret is.
    pub fn seal(&self) -> u64 {
        self.seal
    }

    /// The value of a cookie for the member with this number, set at this time since 1970.
    pub(super) fn sign(&self, badge: u64, set_at: Duration) -> String {
        self.present.seal(Token { badge, set_at })
    }

    /// What a value says; `None`: it is none of ours.
    pub(super) fn read(&self, value: &[u8]) -> Option<Read> {
        let present = self.present.open(value).map(|token| Read { token, is_present: true });
        present.or_else(|| self.previous.as_ref()?.open(value).map(|token| Read { token, is_present: false }))
    }
}

fn bytes(secret: &Secret, of: StickySecret, files: &mut Files) -> Result<Vec<u8>, SignerError> {
    let path = match secret {
        Secret::Text(text) => return Ok(text.as_bytes().to_vec()),
        Secret::File(path) => path,
    };
    content(path, files).map_err(|cause| SignerError::File { of, path: path.clone(), cause })
}

fn content(path: &Path, files: &mut Files) -> Result<Vec<u8>, String> {
    let content = files.read(path)?;
    match line(&content) {
        [] => Err("it is empty".to_owned()),
        secret if secret.len() > MAX_SECRET => Err(format!("more than {MAX_SECRET} bytes are no secret")),
        secret => Ok(secret.to_vec()),
    }
}

/// One for the process: it outlives every reload, and nothing else.
fn own() -> Result<&'static [u8], SignerError> {
    static OWN: OnceLock<[u8; 32]> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(own);
    }
    let mut fresh = [0; 32];
    SystemRandom::new().fill(&mut fresh).map_err(|_| SignerError::NoRandomNumbers)?;
    Ok(OWN.get_or_init(|| fresh))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config;

    /// The signer of the only pool of a file with this `sticky`.
    pub fn signer(sticky: &str) -> Result<Signer, SignerError> {
        let text = format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\npools: {{ web: {{ members: [\"10.0.0.1:80\"], sticky: {sticky} }} }}\nroutes: [{{ pool: web }}]\n"
        );
        let loaded = config::parse("a.yaml", &text, &|_| None).expect("a good file");
        let sticky = loaded.config.pools["web"].sticky.clone().expect("it is sticky");
        Signer::new("web", &sticky, &mut Files::default())
    }

    fn set(signer: &Signer) -> Vec<u8> {
        signer.sign(7, Duration::from_secs(100)).into_bytes()
    }

    #[test]
    fn secrets_change_hands_without_a_cookie_lost() {
        let step = |sticky: &str| signer(sticky).expect("a signer");
        let old = step("{ secret: the-old-one }");
        let both = step("{ secret: the-old-one, previous_secret: the-new-one }");
        let turned = step("{ secret: the-new-one, previous_secret: the-old-one }");
        let new = step("{ secret: the-new-one }");
        // Of several instances some are a step ahead.
        for (one, other) in [(&old, &both), (&both, &turned), (&turned, &new)] {
            for (signs, reads) in [(one, other), (other, one)] {
                assert_eq!(reads.read(&set(signs)).map(|read| read.token.badge), Some(7));
            }
        }
        assert_eq!((old.read(&set(&new)), new.read(&set(&old))), (None, None));
        assert_eq!(turned.read(&set(&old)).map(|read| read.is_present), Some(false));
        assert_eq!(turned.read(&set(&new)).map(|read| read.is_present), Some(true));
        let seals = [&old, &both, &turned, &new].map(Signer::seal);
        assert!(seals.windows(2).all(|two| two[0] != two[1]));
    }

    #[test]
    fn without_a_secret_a_process_has_one_for_as_long_as_it_lasts() {
        let (one, other) = (signer("{}").expect("a signer"), signer("{ ttl: 5m }").expect("a signer"));
        assert!(other.read(&set(&one)).is_some() && one.seal() == other.seal());
    }

    #[test]
    fn a_file_holds_the_secret_or_is_refused_with_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).expect("written");
            path.display().to_string()
        };
        let (same, empty, long) = (file("same", b"the-secret\r\n"), file("empty", b"\n"), file("long", &[b'a'; 5000]));
        let gone = folder.path().join("gone").display().to_string();
        let by_file = signer(&format!("{{ secret_file: {same} }}")).expect("a signer");
        assert!(signer("{ secret: the-secret }").expect("a signer").read(&set(&by_file)).is_some());
        for (path, words) in [(empty, "it is empty"), (long, "more than 4096 bytes"), (gone, "No such file")] {
            for (key, part) in [("secret", StickySecret::Present), ("previous_secret", StickySecret::Previous)] {
                let secret = if part == StickySecret::Previous { "secret: a-secret, " } else { "" };
                let refused = signer(&format!("{{ {secret}{key}_file: {path} }}")).expect_err("refused");
                assert!(matches!(&refused, SignerError::File { of, .. } if *of == part), "{refused:?}");
                assert!(refused.to_string().contains(words), "{refused}");
            }
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let shown = format!("{:?}", signer("{ secret: letmein-please }").expect("a signer"));
        assert!(!shown.contains("letmein"), "{shown}");
    }
}
