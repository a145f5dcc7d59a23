//! What is asked for now, and the tasks that ask: one for each question, one for each file.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::ask::{Asker, Question};
use super::{Desk, supervised};
use crate::clock;
use crate::config::{self, Config};

/// What is asked for now.
#[derive(Default)]
pub(super) struct Followed {
    /// Of the present generation, and of the one that is being prepared.
    pub(super) configs: Vec<Arc<Config>>,
    questions: HashMap<Question, Task>,
    files: HashMap<PathBuf, AbortHandle>,
}

/// Asks one question, again and again.
struct Task {
    /// Have it asked now.
    wake: Arc<Notify>,
    handle: AbortHandle,
}

impl Followed {
    /// Has everything asked for now.
    pub(super) fn ask_all(&self) {
        self.questions.values().for_each(|task| task.wake.notify_one());
    }

    /// Ends all tasks.
    pub(super) fn stop(&mut self) {
        self.configs.clear();
        self.questions.drain().for_each(|(_, task)| task.handle.abort());
        self.files.drain().for_each(|(_, handle)| handle.abort());
    }
}

impl Desk {
    /// What these configurations want to know, by what is known now.
    pub(super) fn questions(&self, configs: &[Arc<Config>]) -> HashSet<Question> {
        let mut questions = HashSet::new();
        let service = |service: &config::Service, questions: &mut HashSet<Question>| {
            questions.insert(Question::Service(service.name.clone()));
            let targets = self.book.targets(&service.name).records;
            questions.extend(targets.into_iter().filter_map(|target| host(&target.host)));
        };
        for pool in configs.iter().flat_map(|config| config.pools.values()) {
            questions.extend(pool.members.iter().filter_map(|member| host(&member.host)));
            pool.services.iter().for_each(|s| service(s, &mut questions));
            for path in &pool.files {
                let (roll, _) = self.rolls.roll(path);
                questions.extend(roll.members.iter().filter_map(|member| host(&member.host)));
                roll.services.iter().for_each(|s| service(s, &mut questions));
            }
        }
        questions
    }

    /// Asks what is wanted now and nothing else.
    pub(super) fn refollow(self: &Arc<Desk>) {
        let mut followed = self.followed();
        let questions = self.questions(&followed.configs);
        self.book.keep(clock::monotonic(), &questions, self.settings.load().grace);
        let files: HashSet<PathBuf> =
            followed.configs.iter().flat_map(|c| c.pools.values()).flat_map(|pool| pool.files.clone()).collect();
        followed.questions.retain(|question, task| {
            let is_wanted = questions.contains(question);
            if !is_wanted {
                task.handle.abort();
            }
            is_wanted
        });
        followed.files.retain(|path, handle| {
            let is_wanted = files.contains(path);
            if !is_wanted {
                handle.abort();
            }
            is_wanted
        });
        for question in questions {
            followed.questions.entry(question).or_insert_with_key(|question| self.attend(question.clone()));
        }
        self.rolls.keep(&files.iter().cloned().collect::<Vec<_>>());
        for path in files {
            followed.files.entry(path).or_insert_with_key(|path| self.watch(path.clone()));
        }
    }

    /// Begins to ask a question.
    fn attend(self: &Arc<Desk>, question: Question) -> Task {
        let wake = Arc::new(Notify::new());
        let (desk, woken, what) = (Arc::downgrade(self), wake.clone(), question.name().to_owned());
        let handle = supervised(what, self.restarts.clone(), move || {
            let (desk, question, woken) = (desk.clone(), question.clone(), woken.clone());
            async move {
                while let Some(desk) = desk.upgrade() {
                    let wait = desk.ask(&question).await;
                    drop(desk);
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = woken.notified() => {}
                    }
                }
            }
        });
        Task { wake, handle }
    }

    /// Asks a question once, and says how long to wait before the next time.
    async fn ask(self: &Arc<Desk>, question: &Question) -> Duration {
        // The semaphore is never closed; and who asks one question too many does no harm.
        let place = self.places.acquire().await;
        if self.asker.load().is_outdated() {
            self.asker.store(Arc::new(Asker::new(&self.settings.load())));
        }
        let asker = self.asker.load_full();
        let reply = asker.ask(question).await;
        drop(place);
        let settings = self.settings.load_full();
        let next = self.book.learn(clock::monotonic(), question, reply, &settings, fastrand::f64());
        if next.changed && matches!(question, Question::Service(_)) {
            self.refollow();
        }
        // Also where nothing is new: somebody may wait for the first answer.
        self.answered.send_modify(|count| *count = count.wrapping_add(1));
        if next.changed {
            self.tell();
        }
        next.wait
    }

    /// Begins to follow a file.
    fn watch(self: &Arc<Desk>, path: PathBuf) -> AbortHandle {
        let (desk, what) = (Arc::downgrade(self), path.display().to_string());
        supervised(what, self.restarts.clone(), move || {
            let (desk, path) = (desk.clone(), path.clone());
            async move {
                let Some(desk) = desk.upgrade() else { return };
                let changed = || {
                    desk.refollow();
                    desk.tell();
                };
                desk.rolls.follow(path, changed).await;
            }
        })
    }

    pub(super) fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The question for a host; none for an address.
fn host(host: &str) -> Option<Question> {
    host.parse::<IpAddr>().is_err().then(|| Question::Host(host.to_owned()))
}
