//! Who is a member, from names, services and files: asked for off the way of requests, and again while it runs.
//!
//! One [`Desk`] for the whole process. Each question has a task of its own that asks when it is due; whatever many pools
//! want to know is one question. What was learnt is in a book; sources look into it, and who follows the desk is told when
//! something has changed. A name that cannot be resolved is a member without an address, which says so, and stops nothing
//! else (case C66); trouble erases nothing (case C65).
//!
//! Not here: what members that come and go mean for a pool (`control`, `health`).

mod ask;
mod book;
mod exchange;
mod file;
mod follow;
mod meaning;
mod name;
mod pace;
mod records;
mod roll;
mod service;
mod sources;
mod srv;
mod supervise;
mod system;

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};

pub use file::MembersFile;
pub use name::Name;
pub use sources::SourceState;
pub use srv::Service;
pub use supervise::supervised;

use crate::config::{self, Config, Pool, Problem};
use crate::snapshot::{Found, Located, Source};
use ask::Asker;
use book::Book;
use follow::Followed;
use roll::Rolls;

/// How long first answers are waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks whether all first answers are there.
const CROWD: Duration = Duration::from_millis(5);

/// Questions that are out at once.
const PLACES: usize = 64;

/// Who asks, and what is known.
pub struct Desk {
    book: Book,
    rolls: Rolls,
    asker: ArcSwap<Asker>,
    settings: ArcSwap<config::Resolver>,
    places: Semaphore,
    followed: Mutex<Followed>,
    /// Counts answers.
    answered: watch::Sender<u64>,
    /// Counts answers that say something else than before.
    learnt: watch::Sender<u64>,
    restarts: Arc<AtomicU64>,
}

impl Desk {
    /// Nobody asks for anything yet. To be made on the runtime that will ask.
    pub fn new(config: &Config) -> Arc<Desk> {
        Arc::new(Desk {
            book: Book::default(),
            rolls: Rolls::new(),
            asker: ArcSwap::from_pointee(Asker::new(&config.resolver)),
            settings: ArcSwap::from_pointee(config.resolver.clone()),
            places: Semaphore::new(PLACES),
            followed: Mutex::default(),
            answered: watch::Sender::new(0),
            learnt: watch::Sender::new(0),
            restarts: Arc::default(),
        })
    }

    /// What is known of names.
    fn book(&self) -> &Book {
        &self.book
    }

    /// What is known of files.
    fn rolls(&self) -> &Rolls {
        &self.rolls
    }

    /// Begins to follow what `config` names besides what is followed already, and waits a while for first answers. Who
    /// does not take the configuration in the end says so by [`Desk::follow`], with another one.
    ///
    /// # Errors
    /// Everything that is wrong with its files of members.
    pub async fn prepare(self: &Arc<Desk>, config: &Arc<Config>) -> Result<(), Vec<Problem>> {
        // Before its files are read: what nobody wants is forgotten.
        self.followed().configs.push(config.clone());
        let files: HashSet<&Path> = config.pools.values().flat_map(|pool| &pool.files).map(PathBuf::as_path).collect();
        self.rolls.read(&files.into_iter().collect::<Vec<_>>()).await?;
        self.set(&config.resolver);
        self.refollow();
        let mut answers = self.answered.subscribe();
        let all = async {
            while !self.book.has_asked(self.questions(std::slice::from_ref(config)).iter()) {
                if answers.changed().await.is_err() {
                    return;
                }
                // With many names answers come in crowds, and each look goes over all of them.
                tokio::time::sleep(CROWD).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, all).await;
        Ok(())
    }

    /// Follows exactly what `config` names from now on.
    pub fn follow(self: &Arc<Desk>, config: &Arc<Config>) {
        self.set(&config.resolver);
        self.followed().configs = vec![config.clone()];
        self.refollow();
        self.tell();
    }

    /// Who is a member of each pool now.
    pub async fn found(self: &Arc<Desk>, config: &Config) -> Found {
        let mut found = Found::default();
        for (name, pool) in &config.pools {
            found.insert(name, self.members(pool).await);
        }
        found
    }

    /// The same for pools whose members may have changed, what was found before for all others.
    pub async fn found_again(self: &Arc<Desk>, config: &Config, before: &Found) -> Found {
        let mut found = Found::default();
        for (name, pool) in &config.pools {
            let is_fixed = !pool.is_discovered() && pool.members.iter().all(|m| m.host.parse::<IpAddr>().is_ok());
            match is_fixed {
                true => found.take_over(name, before),
                false => found.insert(name, self.members(pool).await),
            }
        }
        found
    }

    /// Told of whatever is learnt from now on.
    pub fn learnt(&self) -> watch::Receiver<u64> {
        self.learnt.subscribe()
    }

    /// Tasks that had to be started again.
    pub fn restarts(&self) -> &Arc<AtomicU64> {
        &self.restarts
    }

    /// How many that were.
    pub fn restarted(&self) -> u64 {
        self.restarts.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Asks for every name now, before its time.
    pub fn ask_again(&self) {
        self.followed().ask_all();
    }

    /// Asks for nothing any more.
    pub fn stop(&self) {
        self.followed().stop();
    }

    async fn members(self: &Arc<Desk>, pool: &Pool) -> Vec<Located> {
        let desk = || self.clone();
        let mut located = Vec::with_capacity(pool.members.len());
        for (index, member) in pool.members.iter().enumerate() {
            let name = Name { member: member.clone(), desk: desk() };
            located.extend(name.located(&Source::Written(index)).await);
        }
        for (index, service) in pool.services.iter().enumerate() {
            let service = Service { service: service.clone(), desk: desk() };
            located.extend(service.located(&Source::Service(index)).await);
        }
        for (index, path) in pool.files.iter().enumerate() {
            let file = MembersFile { path: path.clone(), desk: desk() };
            located.extend(file.located(&Source::File(index)).await);
        }
        located
    }

    /// Other servers may give other answers: everything is asked for anew.
    fn set(&self, settings: &config::Resolver) {
        let before = self.settings.load();
        if **before == *settings {
            return;
        }
        let others = before.servers != settings.servers;
        self.settings.store(Arc::new(settings.clone()));
        self.asker.store(Arc::new(Asker::new(settings)));
        if others {
            self.followed().ask_all();
        }
    }

    /// Something else is known now.
    fn tell(&self) {
        self.learnt.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("asker", &self.asker.load()).finish_non_exhaustive()
    }
}
