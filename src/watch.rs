//! Files that are followed: told of a change by the system, and looked at every now and then all the same.
//!
//! The system tells of changes in directories, so each directory in which a name leads to the file is listened to: its own,
//! and that of every symbolic link on the way (Kubernetes exchanges such a link, and removes what it led to). The file
//! itself is listened to as well: one that is mounted alone is written from a directory nobody here can see. None of it is
//! a guarantee: network file systems are silent. The look is (case C51).
//!
//! Not here: what a file says (`discovery`, `reload`).

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

use crate::disk;

/// Content must stay the same for so long before it is taken: writers in place take their time, and one change of a file is
/// told of many times.
pub const SETTLE: Duration = Duration::from_millis(100);

/// What does not settle is taken as it is after so many looks, 10 s: else one writer without rest could keep a change out for
/// ever.
const RESTLESS: usize = 100;

/// As many symbolic links does the system follow in one path.
const LINKS: usize = 40;

/// Follows files. One for each that wants to know: it is told of changes of any of its files.
#[derive(Debug, Clone)]
pub struct Watch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The names that lead to each file.
    names: Arc<Mutex<HashMap<PathBuf, BTreeSet<OsString>>>>,
    ears: Mutex<Ears>,
    /// Counts what the system tells of.
    told: watch::Sender<u64>,
}

/// Who listens to the system; nobody until a file is followed, or where the system has no ears left.
#[derive(Debug, Default)]
struct Ears {
    watcher: Option<RecommendedWatcher>,
    places: HashMap<PathBuf, Place>,
    complained: bool,
}

/// A directory or a file that is listened to.
#[derive(Debug)]
struct Place {
    /// Device and inode: another one may have come under the same name.
    identity: (u64, u64),
    /// The files on whose way it is.
    followers: BTreeSet<PathBuf>,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
struct Trail {
    /// What is to be listened to.
    places: BTreeSet<PathBuf>,
    /// The names in them that matter.
    names: BTreeSet<OsString>,
}

impl Watch {
    /// Of no file yet.
    pub fn new() -> Watch {
        Watch(Arc::new(Shared { names: Arc::default(), ears: Mutex::default(), told: watch::Sender::new(0) }))
    }

    /// Told of whatever may concern a file that is followed, from now on.
    pub fn told(&self) -> watch::Receiver<u64> {
        self.0.told.subscribe()
    }

    /// Has the system tell of changes of the file at `path`. Where it will not, the look is left. To be called again after
    /// each change: the way to the file may be another.
    pub async fn listen_to(&self, path: &Path) {
        let (shared, owned) = (self.0.clone(), path.to_owned());
        // Where the disk keeps it waiting there is still the look.
        let _ = disk::read(path, move || shared.listen_to(&owned)).await;
    }

    /// Waits until the system tells of something and that has settled, or until a look is due after `every`; true: told.
    pub async fn stirred(&self, told: &mut watch::Receiver<u64>, every: Duration) -> bool {
        let is_told = tokio::time::timeout(every, told.changed()).await.is_ok();
        if is_told {
            tokio::time::sleep(SETTLE).await;
            told.mark_unchanged();
        }
        is_told
    }

    /// Forgets the files that are not among `wanted`.
    pub fn keep(&self, wanted: &[PathBuf]) {
        let mut gone = Vec::new();
        lock(&self.0.names).retain(|path, _| {
            let is_wanted = wanted.contains(path);
            if !is_wanted {
                gone.push(path.clone());
            }
            is_wanted
        });
        let mut ears = lock(&self.0.ears);
        gone.iter().for_each(|path| ears.leave(path, &BTreeSet::new()));
    }
}

impl Default for Watch {
    fn default() -> Watch {
        Watch::new()
    }
}

/// What `read` finds of the file at `path` once it finds the same twice, or has looked for long enough; `now` is what it has
/// found already.
pub async fn settled<T, F>(path: &Path, mut now: T, read: impl Fn() -> F) -> T
where
    T: PartialEq,
    F: Future<Output = T>,
{
    for _ in 0..RESTLESS {
        tokio::time::sleep(SETTLE).await;
        let again = read().await;
        if again == now {
            return again;
        }
        now = again;
    }
    let (file, seconds) = (path.display(), (SETTLE * RESTLESS as u32).as_secs());
    tracing::warn!(target: "watch", %file, "{file} changes all the time; after {seconds} s it is taken as it is");
    now
}

impl Shared {
    fn listen_to(&self, path: &Path) {
        let Trail { places, names } = trail(path);
        // Before anything is locked: a disk may keep us waiting.
        let places: Vec<_> = places.into_iter().map(|place| (std::fs::metadata(&place), place)).collect();
        lock(&self.names).insert(path.to_owned(), names);
        let mut ears = lock(&self.ears);
        ears.leave(path, &places.iter().map(|(_, place)| place.clone()).collect());
        for (meta, place) in places {
            // What is not there cannot be listened to; its directory can.
            let Ok(meta) = meta else {
                ears.forget(&place);
                continue;
            };
            let Err(error) = ears.add(&place, (meta.dev(), meta.ino()), path, self) else { continue };
            let is_gone = matches!(&error.kind, notify::ErrorKind::PathNotFound)
                || matches!(&error.kind, notify::ErrorKind::Io(error) if error.kind() == ErrorKind::NotFound);
            if !is_gone && !std::mem::replace(&mut ears.complained, true) {
                let (file, place) = (path.display(), place.display());
                tracing::warn!(
                    target: "watch", %file, %place, %error,
                    "the system does not tell of changes in {place}: {error}; files there are only looked at now and then"
                );
            }
        }
    }
}

impl Ears {
    fn add(&mut self, place: &Path, identity: (u64, u64), follower: &Path, shared: &Shared) -> notify::Result<()> {
        if let Some(known) = self.places.get_mut(place) {
            known.followers.insert(follower.to_owned());
            if known.identity == identity {
                return Ok(());
            }
        }
        if self.watcher.is_none() {
            let (names, told) = (shared.names.clone(), shared.told.clone());
            self.watcher = Some(notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                // Of an error nobody can say what it hides.
                if event.is_ok_and(|event| !may_concern(&event, &lock(&names))) {
                    return;
                }
                told.send_modify(|count| *count = count.wrapping_add(1));
            })?);
        }
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        let mut followers = BTreeSet::from([follower.to_owned()]);
        if let Some(before) = self.places.remove(place) {
            // The system let go of it when it was removed, or listens to what lies under another name now.
            let _ = watcher.unwatch(place);
            followers.extend(before.followers);
        }
        watcher.watch(place, RecursiveMode::NonRecursive)?;
        self.places.insert(place.to_owned(), Place { identity, followers });
        Ok(())
    }

    /// It is not there any more, and what comes in its place is another.
    fn forget(&mut self, place: &Path) {
        if self.places.remove(place).is_some()
            && let Some(watcher) = &mut self.watcher
        {
            let _ = watcher.unwatch(place);
        }
    }

    /// `follower` is not interested in any place any more but those `still` on its way.
    fn leave(&mut self, follower: &Path, still: &BTreeSet<PathBuf>) {
        let Ears { watcher, places, .. } = self;
        places.retain(|place, known| {
            if !still.contains(place) {
                known.followers.remove(follower);
            }
            let is_wanted = !known.followers.is_empty();
            if !is_wanted && let Some(watcher) = watcher {
                let _ = watcher.unwatch(place);
            }
            is_wanted
        });
    }
}

/// Whether an event may be about one of the files. Our own reading is not news, nor is a log in the same directory.
fn may_concern(event: &notify::Event, names: &HashMap<PathBuf, BTreeSet<OsString>>) -> bool {
    let is_name = |name: &OsStr| names.values().any(|names| names.contains(name));
    let concerns = |path: &PathBuf| path.file_name().is_none_or(is_name);
    !event.kind.is_access() && (event.paths.is_empty() || event.paths.iter().any(concerns))
}

/// Every directory in which a name leads to the file at `path`, with that name, and the file.
fn trail(path: &Path) -> Trail {
    let mut trail = Trail { places: BTreeSet::new(), names: BTreeSet::new() };
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (mut ahead, mut at, mut links) = (steps(&whole), PathBuf::from("/"), 0);
    while let Some(name) = ahead.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        match std::fs::read_link(&next) {
            Ok(target) if links < LINKS => {
                links += 1;
                trail.places.insert(at.clone());
                trail.names.insert(name);
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                ahead.extend(steps(&target));
            }
            _ => {
                if ahead.is_empty() {
                    trail.places.extend([at.clone(), next.clone()]);
                    trail.names.insert(name);
                }
                at = next;
            }
        }
    }
    trail
}

/// The names of a path, the last first.
fn steps(path: &Path) -> Vec<OsString> {
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(named).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_way_to_a_file_leads_through_every_link() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("..1")).unwrap();
        fs::create_dir_all(at("far/away")).unwrap();
        fs::write(at("..1/a.yaml"), "").unwrap();
        fs::write(at("far/b.yaml"), "").unwrap();
        symlink("..1", at("..data")).unwrap();
        symlink("..data/a.yaml", at("a.yaml")).unwrap();
        symlink(at("far"), at("current")).unwrap();
        symlink("../b.yaml", at("far/away/c.yaml")).unwrap();
        symlink("loop", at("loop")).unwrap();
        // The path; places and names on the way to it.
        let rows: [(&str, &[&str], &[&str]); 5] = [
            ("far/b.yaml", &["far", "far/b.yaml"], &["b.yaml"]),
            ("a.yaml", &["", "..1", "..1/a.yaml"], &["..data", "a.yaml"]),
            ("current/b.yaml", &["", "far", "far/b.yaml"], &["b.yaml", "current"]),
            ("current/away/c.yaml", &["", "far/away", "far", "far/b.yaml"], &["b.yaml", "c.yaml", "current"]),
            ("far/none.yaml", &["far", "far/none.yaml"], &["none.yaml"]),
        ];
        for (path, places, names) in rows {
            let expected = Trail {
                places: places.iter().map(|place| if place.is_empty() { root.clone() } else { at(place) }).collect(),
                names: names.iter().map(OsString::from).collect(),
            };
            assert_eq!(trail(&at(path)), expected, "{path}");
        }
        assert!(trail(&at("loop/x.yaml")).places.contains(&root), "it ends");
    }

    #[tokio::test]
    async fn told_of_the_file_in_every_way_it_can_change_and_of_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("one")).unwrap();
        fs::create_dir(at("two")).unwrap();
        fs::write(at("one/a.yaml"), "1").unwrap();
        fs::write(at("two/a.yaml"), "2").unwrap();
        symlink("one", at("now")).unwrap();
        let (watch, path) = (Watch::new(), at("now/a.yaml"));
        let mut told = watch.told();
        watch.listen_to(&path).await;
        let ways: [(&str, &dyn Fn()); 6] = [
            ("written in place", &|| fs::write(at("one/a.yaml"), "3").unwrap()),
            ("renamed over", &|| {
                fs::write(at("one/a.part"), "4").unwrap();
                fs::rename(at("one/a.part"), at("one/a.yaml")).unwrap();
            }),
            ("another directory", &|| {
                symlink("two", at("next")).unwrap();
                fs::rename(at("next"), at("now")).unwrap();
                fs::remove_dir_all(at("one")).unwrap();
            }),
            ("written there", &|| fs::write(at("two/a.yaml"), "5").unwrap()),
            ("removed", &|| fs::remove_file(at("two/a.yaml")).unwrap()),
            ("back", &|| fs::write(at("two/a.yaml"), "6").unwrap()),
        ];
        for (way, change) in ways {
            change();
            assert!(watch.stirred(&mut told, Duration::from_secs(20)).await, "{way}");
            watch.listen_to(&path).await;
            // What was still on its way.
            while watch.stirred(&mut told, SETTLE).await {}
        }
        fs::write(at("two/other.log"), "").unwrap();
        assert!(!watch.stirred(&mut told, 3 * SETTLE).await, "of another file");
        watch.keep(&[]);
        fs::write(at("two/a.yaml"), "7").unwrap();
        assert!(!watch.stirred(&mut told, 3 * SETTLE).await, "nobody wants to know");
    }
}
