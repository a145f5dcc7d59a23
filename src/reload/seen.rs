//! What a reload reads: the file, and the files of authorities, certificates and keys that it names.
//!
//! Their contents are told by digests, so that it can be said whether there is anything new.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::config::{self, Loaded, Problem};
use crate::disk;
use crate::tls::Files;

/// Contents, by their digests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Of the file, or of why it cannot be read.
    text: u64,
    /// Of the files that it names. Those of members are not among them: they are followed by themselves.
    files: BTreeMap<PathBuf, u64>,
}

/// The file as it was read.
#[derive(Debug)]
pub(super) struct Read {
    /// By what it is known again.
    pub(super) seen: Seen,
    /// What it says.
    pub(super) loaded: Result<Loaded, Vec<Problem>>,
    /// What the files that it names hold.
    pub(super) files: Files,
}

impl Seen {
    /// What a start has read: a text, and the files that it names.
    pub fn at_start(loaded: &Loaded, files: &Files) -> Seen {
        Seen { text: loaded.digest, files: files.digests() }
    }

    /// The same files as they are now. Waits for the disk.
    pub(super) async fn again(&self, path: &Path) -> Seen {
        let text = text_of(path).await;
        Seen { text: digest(&text), files: Files::at(self.files.keys().cloned().collect()).await.digests() }
    }

    /// The files it was read from, besides the first.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.keys().cloned().collect()
    }
}

/// Reads the file at `path`, and what it names; `before` was read last. Waits for the disk.
pub(super) async fn read(path: &Path, before: &Seen) -> Read {
    let text = text_of(path).await;
    let digest = digest(&text);
    let loaded = match text {
        Ok(text) => parsed(path, text).await,
        Err(problems) => Err(problems),
    };
    let named: BTreeSet<PathBuf> = match &loaded {
        Ok(loaded) => loaded.config.named_files().into_iter().map(Path::to_owned).collect(),
        // It cannot be said which it means.
        Err(_) => before.files.keys().cloned().collect(),
    };
    let files = Files::at(named).await;
    Read { seen: Seen { text: digest, files: files.digests() }, loaded, files }
}

async fn text_of(path: &Path) -> Result<String, Vec<Problem>> {
    let owned = path.to_owned();
    let read = disk::read(path, move || config::text_of(&owned)).await;
    read.unwrap_or_else(|unread| Err(vec![Problem::of_file(path, format!("the file cannot be read: {unread}"))]))
}

/// Thousands of members take their time: not on the runtime that answers operators.
async fn parsed(path: &Path, text: String) -> Result<Loaded, Vec<Problem>> {
    let name = path.display().to_string();
    let parsing = tokio::task::spawn_blocking(move || config::parse(&name, &text, &config::environment));
    parsing.await.unwrap_or_else(|error| Err(vec![Problem::of_file(path, format!("a fault of ours: {error}"))]))
}

fn digest(text: &Result<String, Vec<Problem>>) -> u64 {
    match text {
        Ok(text) => config::digest(text),
        Err(problems) => config::digest(&problems.iter().map(ToString::to_string).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn the_same_contents_are_known_again_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let (path, ca) = (folder.path().join("proxy.yaml"), folder.path().join("ca.pem"));
        let text = format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\npools: {{ web: {{ members: [\"10.0.0.1:80\"], probe: tcp, upstream: {{ tls: {{ ca: {} }} }} }} }}\nroutes: [{{ pool: web }}]\n",
            ca.display()
        );
        fs::write(&path, &text).unwrap();
        fs::write(&ca, "one").unwrap();
        let first = read(&path, &Seen::default()).await;
        assert_eq!(first.seen, Seen::at_start(&first.loaded.unwrap(), &first.files), "a start sees what a reload sees");
        let first = first.seen;
        assert_eq!(first.files(), std::slice::from_ref(&ca));
        let changes: [(&str, &dyn Fn(), bool); 7] = [
            ("nothing", &|| {}, true),
            ("written again", &|| fs::write(&path, &text).unwrap(), true),
            ("its authority", &|| fs::write(&ca, "two").unwrap(), false),
            ("that is gone", &|| fs::remove_file(&ca).unwrap(), false),
            ("and back", &|| fs::write(&ca, "one").unwrap(), true),
            ("empty", &|| fs::write(&path, "").unwrap(), false),
            ("gone", &|| fs::remove_file(&path).unwrap(), false),
        ];
        for (what, change, same) in changes {
            change();
            assert_eq!(first.again(&path).await == first, same, "{what}");
            assert_eq!(read(&path, &first).await.seen == first, same, "{what}");
        }
    }
}
