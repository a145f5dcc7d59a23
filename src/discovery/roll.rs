//! Files of members: read at once where something has to come of it, and looked at again for as long as they are followed.
//!
//! Not here: how a change is noticed (`watch`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};

use crate::config::{self, Problem, Roll};
use crate::disk;
use crate::watch::{self, SETTLE, Watch};

/// How often a file is looked at without being told to.
const LOOK: Duration = Duration::from_secs(5);

/// How often a file that changes all the time is looked at, at a start and at a reload.
const LOOKS: usize = 20;

/// Files that are read at once.
const AT_ONCE: usize = 32;

/// What the files of members say.
pub struct Rolls {
    files: Mutex<HashMap<PathBuf, Page>>,
    watch: Watch,
}

/// One file.
#[derive(Debug, Clone, Default)]
struct Page {
    /// What it said when it last said something that can be used.
    roll: Arc<Roll>,
    /// Of the content seen last, whatever it was worth.
    seen: Option<u64>,
    /// What is wrong with that content.
    trouble: Option<Arc<str>>,
}

/// A file's content, or why there is none.
type Content = Result<String, Vec<Problem>>;

impl Rolls {
    /// Of no file yet.
    pub fn new() -> Rolls {
        Rolls { files: Mutex::default(), watch: Watch::new() }
    }

    /// What a file says, and what is wrong with what it says now.
    pub fn roll(&self, path: &Path) -> (Arc<Roll>, Option<Arc<str>>) {
        self.files().get(path).map_or_else(Default::default, |page| (page.roll.clone(), page.trouble.clone()))
    }

    /// Reads files now, once they have settled: at a start and at a reload, where a mistake is somebody's to mend.
    ///
    /// # Errors
    /// All their problems; what a file said before stays, where something is wrong with it.
    pub async fn read(&self, paths: &[&Path]) -> Result<(), Vec<Problem>> {
        let mut problems = Vec::new();
        for (path, content) in settled(paths).await {
            let seen = fingerprint(&content);
            match content.and_then(|text| understood(path, &text)) {
                Ok(roll) => self.put(path, seen, roll),
                Err(wrong) => problems.extend(wrong),
            }
        }
        problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Takes what was read: as news where the file was read before.
    fn put(&self, path: &Path, seen: u64, roll: Roll) {
        if !self.files().contains_key(path) {
            let page = Page { roll: Arc::new(roll), seen: Some(seen), trouble: None };
            self.files().insert(path.to_owned(), page);
            return;
        }
        self.take(path, seen, Ok(roll));
    }

    /// Forgets the files that are not among `wanted`.
    pub fn keep(&self, wanted: &[PathBuf]) {
        self.files().retain(|path, _| wanted.contains(path));
        self.watch.keep(wanted);
    }

    /// Follows a file for ever, and calls `changed` whenever it says something else.
    pub async fn follow(&self, path: PathBuf, changed: impl Fn()) {
        let mut told = self.watch.told();
        self.watch.listen_to(&path).await;
        loop {
            self.watch.stirred(&mut told, LOOK).await;
            // Before the look: what changes later is told of.
            self.watch.listen_to(&path).await;
            if self.look(&path).await {
                changed();
            }
        }
    }

    /// Looks at a file, and takes what it says once it has settled; true: that is something else, or in another state.
    async fn look(&self, path: &Path) -> bool {
        let now = content(path).await;
        let is_known = |now: &Content| self.files().get(path).is_none_or(|page| page.seen == Some(fingerprint(now)));
        if is_known(&now) {
            return false;
        }
        let settled = watch::settled(path, now, || content(path)).await;
        if is_known(&settled) {
            return false;
        }
        let seen = fingerprint(&settled);
        self.take(path, seen, settled.and_then(|text| understood(path, &text)))
    }

    /// Takes what a file says now. A mistake in it is told of once for each content.
    fn take(&self, path: &Path, seen: u64, roll: Result<Roll, Vec<Problem>>) -> bool {
        let (mut files, file) = (self.files(), path.display());
        let Some(page) = files.get_mut(path) else { return false };
        page.seen = Some(seen);
        let before = page.clone();
        match roll {
            Ok(roll) => {
                let members = roll.members.len() + roll.services.len();
                if roll != *page.roll {
                    tracing::info!(target: "discovery", %file, members, "{file} lists {members} now");
                    page.roll = Arc::new(roll);
                } else if page.trouble.is_some() {
                    tracing::info!(target: "discovery", %file, members, "{file} can be used again");
                }
                page.trouble = None;
            }
            Err(problems) => {
                problems.iter().for_each(|problem| tracing::error!(target: "discovery", %file, "{problem}"));
                let kept = page.roll.members.len() + page.roll.services.len();
                tracing::error!(
                    target: "discovery", %file, kept, errors = problems.len(),
                    "{file} cannot be used; the {kept} it listed before stay"
                );
                page.trouble = problems.first().map(|problem| problem.to_string().into());
            }
        }
        before.trouble != page.trouble || before.roll != page.roll
    }

    fn files(&self) -> MutexGuard<'_, HashMap<PathBuf, Page>> {
        lock(&self.files)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What files hold once each has stayed the same for a while: all are waited for together, and not for ever.
async fn settled<'a>(paths: &[&'a Path]) -> Vec<(&'a Path, Content)> {
    let mut unsettled = all(paths.to_vec()).await;
    let mut settled = Vec::with_capacity(paths.len());
    for _ in 0..LOOKS {
        if unsettled.is_empty() {
            break;
        }
        tokio::time::sleep(SETTLE).await;
        let before = std::mem::take(&mut unsettled);
        let now = all(before.iter().map(|(path, _)| *path).collect()).await;
        for ((path, now), (_, before)) in now.into_iter().zip(before) {
            let is_settled = fingerprint(&now) == fingerprint(&before);
            if is_settled { &mut settled } else { &mut unsettled }.push((path, now));
        }
    }
    let restless = unsettled.into_iter().map(|(path, _)| {
        let message = format!("the file changes all the time; it did not stay the same for {} ms", SETTLE.as_millis());
        (path, Err(vec![Problem::of_file(path, message)]))
    });
    settled.into_iter().chain(restless).collect()
}

/// What each holds now, in this order.
async fn all(paths: Vec<&Path>) -> Vec<(&Path, Content)> {
    let owned = paths.iter().map(|path| path.to_path_buf()).collect::<Vec<_>>();
    let contents: Vec<Content> = stream::iter(owned.into_iter().map(owned_content)).buffered(AT_ONCE).collect().await;
    paths.into_iter().zip(contents).collect()
}

async fn owned_content(path: PathBuf) -> Content {
    content(&path).await
}

async fn content(path: &Path) -> Content {
    let owned = path.to_owned();
    let read = disk::read(path, move || config::text_of(&owned)).await;
    read.unwrap_or_else(|unread| Err(vec![Problem::of_file(path, format!("the file cannot be read: {unread}"))]))
}

fn understood(path: &Path, text: &str) -> Result<Roll, Vec<Problem>> {
    config::read_roll(&path.display().to_string(), text, &config::environment)
}

fn fingerprint(content: &Content) -> u64 {
    let mut hasher = DefaultHasher::new();
    match content {
        Ok(text) => text.hash(&mut hasher),
        Err(problems) => problems.iter().for_each(|problem| problem.message.hash(&mut hasher)),
    }
    hasher.finish()
}

impl std::fmt::Debug for Rolls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rolls").field("files", &self.files().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rolls: &Rolls, path: &Path) -> Vec<String> {
        rolls.roll(path).0.members.iter().map(|member| member.name.clone()).collect()
    }

    #[tokio::test]
    async fn only_other_members_are_a_change_and_mistakes_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members.yaml");
        let rolls = Rolls::new();
        assert!(rolls.read(&[&path]).await.is_err(), "a file that is not there");
        std::fs::write(&path, "[\"10.0.0.1:80\"]").unwrap();
        rolls.read(&[&path]).await.unwrap();
        // What is written, whether that is a change, who is a member then, and whether something is wrong.
        let rows = [
            ("[\"10.0.0.1:80\"]", false, "10.0.0.1:80", false),
            ("# the same\n- 10.0.0.1:80\n", false, "10.0.0.1:80", false),
            ("- 10.0.0.1:80\n- 10.0.0.2:80\n", true, "10.0.0.1:80 10.0.0.2:80", false),
            ("- 10.0.0.1:80\n- 10.0.0.2\n", true, "10.0.0.1:80 10.0.0.2:80", true),
            ("", true, "10.0.0.1:80 10.0.0.2:80", true),
            ("- 10.0.0.1:80\n- 10.0.0.2:80\n", true, "10.0.0.1:80 10.0.0.2:80", false),
            ("[]", true, "", false),
        ];
        for (text, changed, members, is_wrong) in rows {
            std::fs::write(&path, text).unwrap();
            assert_eq!(rolls.look(&path).await, changed, "{text}");
            assert_eq!(names(&rolls, &path).join(" "), members, "{text}");
            assert_eq!(rolls.roll(&path).1.is_some(), is_wrong, "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(rolls.look(&path).await && rolls.roll(&path).1.is_some());
        assert!(!rolls.look(&path).await, "told of once");
        assert!(rolls.read(&[&path]).await.is_err());
        rolls.keep(&[]);
        assert!(!rolls.look(&path).await);
    }

    #[tokio::test]
    async fn a_file_that_is_being_written_is_read_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members.yaml");
        let rolls = Rolls::new();
        let line = |n: usize| format!("- 10.0.0.{n}:80\n");
        let paths = [path.as_path()];
        for _ in ["at a start", "at a reload"] {
            std::fs::write(&path, line(1)).unwrap();
            let write = async {
                for n in 2..=6 {
                    tokio::time::sleep(SETTLE / 2).await;
                    std::fs::write(&path, (1..=n).map(line).collect::<String>()).unwrap();
                }
            };
            // The writer first: where the machine stalls, it has written before the reader looks.
            let ((), read) = tokio::join!(write, rolls.read(&paths));
            read.unwrap();
            assert_eq!(names(&rolls, &path).len(), 6);
        }
    }
}
