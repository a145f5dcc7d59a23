//! The file is taken when it changes, as long as the configuration in force wants it so.
//!
//! The same goes for the files of authorities, certificates and keys that it names. A change is taken once everything has
//! settled; a look every now and then is the guarantee, and finds out whether what was missing has come.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::AbortHandle;

use super::{Cause, Reloader, Seen};
use crate::discovery::supervised;
use crate::watch::{self, Watch};

/// Follows the file for as long as the process serves.
pub fn follow(reloader: &Arc<Reloader>) -> AbortHandle {
    let what = reloader.control.path().display().to_string();
    let (reloader, restarts) = (reloader.clone(), reloader.control.desk().restarts().clone());
    supervised(what, restarts, move || {
        let reloader = reloader.clone();
        async move { reloader.follow().await }
    })
}

impl Reloader {
    async fn follow(&self) {
        let watch = Watch::new();
        let (mut told, mut ended) = (watch.told(), self.control.reloads().ended());
        while !self.control.is_draining() {
            let settings = self.control.snapshot().config.reload;
            if !settings.watch {
                watch.keep(&[]);
                if ended.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let files = self.files();
            watch.keep(&files);
            for file in &files {
                watch.listen_to(file).await;
            }
            // Only once all are listened to: what changes later is told of.
            self.look(false).await;
            tokio::select! {
                is_told = watch.stirred(&mut told, settings.every) => if !is_told {
                    self.look(true).await;
                },
                // Other files may matter now.
                _ = ended.changed() => {}
            }
        }
    }

    /// The file, and those it names.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = self.lock().seen.files();
        files.push(self.control.path().to_owned());
        files
    }

    /// Takes the file if it says something else than the last time, or, where `all`, if that could not be had then.
    async fn look(&self, all: bool) {
        let last = self.lock().seen.clone();
        let now = self.again(&last).await;
        if now == last {
            if all && self.lock().may_mend {
                self.turn(Cause::File).await;
            }
            return;
        }
        if watch::settled(self.control.path(), now, || self.again(&last)).await != last {
            self.turn(Cause::File).await;
        }
    }

    /// The files of `last` as they are now.
    async fn again(&self, last: &Seen) -> Seen {
        last.again(self.control.path()).await
    }
}
