//! One question to the servers of names, and its answer.
//!
//! Which server is asked, when the next is, and when a name is given up is decided here: an error of one server must not
//! hide what another knows.
//!
//! Not here: how one server is asked (`exchange`), what records and errors are to us (`records`), when a name is asked for (`pace`), what an answer means for what
//! was known (`meaning`).

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::time::{Instant, timeout, timeout_at};

use super::exchange::{self, Mute};
use super::meaning::Answer;
use super::records::{LATE, Picked, Said, address, said, target};
use super::service::Target;
use super::system::System;
use crate::{clock, config};

/// Aliases whose ends are asked for, one after the other.
const ALIASES: usize = 8;

/// A server that was silent is asked after the others for so long.
const SHUNNED: Duration = Duration::from_secs(60);

/// How long one family is waited for after the other has answered.
const SECOND_FAMILY: Duration = Duration::from_secs(2);

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// The addresses of a name.
    Host(String),
    /// The targets of a service.
    Service(String),
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// IPv4 and IPv6.
    Host(Answer<IpAddr>, Answer<IpAddr>),
    /// Targets.
    Service(Answer<Target>),
}

/// Who asks.
pub struct Asker {
    /// In the order in which they are asked.
    servers: Vec<Server>,
    timeout: Duration,
    /// `None` where the configuration names the servers.
    system: Option<System>,
    /// Why there are no servers.
    fault: Option<String>,
}

/// One server.
struct Server {
    address: SocketAddr,
    /// It was silent: until then, in milliseconds of monotonic time, others are asked first.
    shunned_until: AtomicU64,
}

impl Question {
    /// The name that is asked for.
    pub fn name(&self) -> &str {
        match self {
            Question::Host(name) | Question::Service(name) => name,
        }
    }
}

impl Asker {
    /// One that goes by these settings, and by the system's files where they name no servers.
    pub fn new(settings: &config::Resolver) -> Asker {
        let (servers, system, fault) = if settings.servers.is_empty() {
            let system = System::read();
            (system.servers.clone(), Some(system), None)
        } else {
            (settings.servers.clone(), None, None)
        };
        let fault = match &system {
            Some(system) if servers.is_empty() => Some(system.fault.clone().unwrap_or_default()),
            _ => fault,
        };
        let server = |address| Server { address, shunned_until: AtomicU64::new(0) };
        Asker { servers: servers.into_iter().map(server).collect(), timeout: settings.timeout, system, fault }
    }

    /// Whether the system's files have changed since.
    pub fn is_outdated(&self) -> bool {
        self.system.as_ref().is_some_and(System::has_changed)
    }

    /// Asks, within the time that a question may take.
    pub async fn ask(&self, question: &Question) -> Reply {
        let end = Instant::now() + self.timeout;
        match question {
            Question::Host(host) => {
                let (v4, v6) = self.addresses(host, end).await;
                Reply::Host(v4, v6)
            }
            Question::Service(name) => Reply::Service(self.targets(name, end).await),
        }
    }

    async fn addresses(&self, host: &str, end: Instant) -> (Answer<IpAddr>, Answer<IpAddr>) {
        if let Some(known) = self.system.as_ref().and_then(|system| system.host(host)) {
            return known;
        }
        let mut none = (Answer::Nothing("no such name", None), Answer::Nothing("no such name", None));
        for name in self.candidates(host) {
            let v4 = self.records(&name, RecordType::A, address, end);
            let v6 = self.records(&name, RecordType::AAAA, address, end);
            match both(v4, v6).await {
                nothing @ (Answer::Nothing(..), Answer::Nothing(..)) => none = nothing,
                // A name in trouble ends the search: another one that happens to exist is not it.
                answer => return answer,
            }
        }
        none
    }

    async fn targets(&self, service: &str, end: Instant) -> Answer<Target> {
        let mut none = Answer::Nothing("no such name", None);
        for name in self.candidates(service) {
            match self.records(&name, RecordType::SRV, target, end).await {
                nothing @ Answer::Nothing(..) => none = nothing,
                answer => return answer,
            }
        }
        none
    }

    fn candidates(&self, text: &str) -> Vec<Name> {
        let (search, ndots) = self.system.as_ref().map_or((&[][..], 1), |system| (&*system.search, system.ndots));
        candidates(text, search, ndots)
    }

    /// Records of one kind; where a server knows only that the name is an alias, those of its end.
    async fn records<T: Ord>(
        &self,
        name: &Name,
        kind: RecordType,
        pick: fn(&RData) -> Picked<T>,
        end: Instant,
    ) -> Answer<T> {
        let (mut name, mut most) = (name.clone(), None::<Duration>);
        for _ in 0..ALIASES {
            match self.first_answer(&name, kind, pick, end).await {
                Said::Alias(target, ttl) => {
                    most = Some(most.map_or(ttl, |most| most.min(ttl)));
                    name = target;
                }
                Said::Answer(Answer::Records(records, ttl)) => {
                    return Answer::Records(records, most.map_or(ttl, |most| most.min(ttl)));
                }
                Said::Answer(answer) => return answer,
            }
        }
        Answer::Trouble("its aliases lead nowhere".to_owned())
    }

    /// From the first server that says something: each in its turn, then those that were silent once more, by TCP.
    async fn first_answer<T: Ord>(
        &self,
        name: &Name,
        kind: RecordType,
        pick: fn(&RData) -> Picked<T>,
        end: Instant,
    ) -> Said<T> {
        // By UDP and by TCP.
        let each = self.timeout / u32::try_from(2 * self.servers.len().max(1)).unwrap_or(u32::MAX);
        let (mut troubles, mut silent) = (Troubles::default(), Vec::new());
        let mut hear = |server: &Server, result: Result<Message, Mute>| {
            let trouble = match result.map(|message| said(&message, name, kind, pick)) {
                Ok(Said::Answer(Answer::Trouble(trouble))) => trouble,
                Ok(answer) => return Some(answer),
                Err(mute) => mute.to_string(),
            };
            troubles.add(server.address, trouble);
            None
        };
        for server in self.in_turn() {
            let asked = timeout_at(end, exchange::ask(server.address, name, kind, each)).await;
            let result = asked.unwrap_or(Err(Mute::Silent));
            match result {
                Err(Mute::Silent) => {
                    server.shun();
                    silent.push(server);
                }
                result => {
                    if let Some(answer) = hear(server, result) {
                        return answer;
                    }
                }
            }
        }
        for server in silent {
            let asked = timeout_at(end, exchange::ask_by_tcp(server.address, name, kind, each)).await;
            if let Some(answer) = hear(server, asked.unwrap_or(Err(Mute::Silent))) {
                return answer;
            }
        }
        Said::Answer(Answer::Trouble(match (&self.fault, troubles.0.is_empty()) {
            (Some(fault), _) => fault.clone(),
            (None, true) => "there is no server to ask".to_owned(),
            (None, false) => troubles.0.join("; "),
        }))
    }

    /// The servers in the order they are listed, those that were silent lately after the others.
    fn in_turn(&self) -> Vec<&Server> {
        let now = clock::monotonic();
        let mut servers: Vec<&Server> = self.servers.iter().collect();
        servers.sort_by_key(|server| server.is_shunned(now));
        servers
    }
}

impl Server {
    fn shun(&self) {
        let until = clock::monotonic() + SHUNNED;
        self.shunned_until.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    fn is_shunned(&self, now: Duration) -> bool {
        now < Duration::from_millis(self.shunned_until.load(Relaxed))
    }
}

/// What each server had to say instead of an answer.
#[derive(Default)]
struct Troubles(Vec<String>);

impl Troubles {
    fn add(&mut self, server: SocketAddr, trouble: String) {
        let trouble = format!("{server}: {trouble}");
        if !self.0.contains(&trouble) {
            self.0.push(trouble);
        }
    }
}

/// The names that `text` may stand for, as glibc has it: with each search domain, and itself first if it has dots enough,
/// or else last.
fn candidates(text: &str, search: &[Name], ndots: usize) -> Vec<Name> {
    let Ok(mut name) = Name::from_utf8(text) else { return Vec::new() };
    let is_whole = name.is_fqdn();
    let searched = search.iter().filter(|_| !is_whole).filter_map(|domain| name.clone().append_domain(domain).ok());
    let mut names: Vec<Name> = searched.collect();
    name.set_fqdn(true);
    let place = if text.matches('.').count() >= ndots { 0 } else { names.len() };
    names.insert(place, name);
    names.iter_mut().for_each(|name| name.set_fqdn(true));
    names
}

/// Both families. The second one is not waited for as long as the first: there are servers that never answer for IPv6.
async fn both(
    v4: impl Future<Output = Answer<IpAddr>>,
    v6: impl Future<Output = Answer<IpAddr>>,
) -> (Answer<IpAddr>, Answer<IpAddr>) {
    let (mut v4, mut v6) = (std::pin::pin!(v4), std::pin::pin!(v6));
    let late = || Answer::Trouble(LATE.to_owned());
    tokio::select! {
        first = &mut v4 => (first, timeout(SECOND_FAMILY, v6).await.unwrap_or_else(|_| late())),
        first = &mut v6 => (timeout(SECOND_FAMILY, v4).await.unwrap_or_else(|_| late()), first),
    }
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).expect("a name")
    }

    #[test]
    fn a_name_is_looked_for_as_glibc_does_it() {
        let search = [name("ns.svc.local"), name("local")];
        let rows: [(&str, usize, &[&str]); 6] = [
            ("app", 1, &["app.ns.svc.local.", "app.local.", "app."]),
            ("app.other", 1, &["app.other.", "app.other.ns.svc.local.", "app.other.local."]),
            ("app.other", 5, &["app.other.ns.svc.local.", "app.other.local.", "app.other."]),
            ("app.other.", 5, &["app.other."]),
            ("_http._tcp.app", 5, &["_http._tcp.app.ns.svc.local.", "_http._tcp.app.local.", "_http._tcp.app."]),
            ("..", 1, &[]),
        ];
        for (text, ndots, expected) in rows {
            let names: Vec<String> = candidates(text, &search, ndots).iter().map(ToString::to_string).collect();
            assert_eq!(names, expected, "{text} {ndots}");
        }
        assert_eq!(candidates("app", &[], 1), [name("app.")]);
    }
}
