//! One question to the servers of names, and its answer.
//!
//! hickory speaks to one server; which one is asked, when the next is, and when a name is given up is decided here: an
//! error of one server must not hide what another knows.
//!
//! Not here: what records and errors are to us (`records`), when a name is asked for (`pace`), what an answer means for what
//! was known (`meaning`).

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts,
    ServerOrderingStrategy,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use tokio::time::{Instant, timeout, timeout_at};

use super::PLACES;
use super::meaning::Answer;
use super::records::{LATE, Picked, address, meant, picked, target};
use super::service::Target;
use super::system::System;
use crate::config;

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
    /// UDP and TCP to each server in order, then TCP alone: for those that UDP does not reach.
    ways: Vec<(String, TokioResolver)>,
    /// The way that brought the last answer.
    preferred: AtomicUsize,
    timeout: Duration,
    /// `None` where the configuration names the servers.
    system: Option<System>,
    /// Why there are no ways.
    fault: Option<String>,
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
        let each = settings.timeout / u32::try_from(2 * servers.len().max(1)).unwrap_or(u32::MAX);
        let both =
            |server: &SocketAddr| [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|c| on(server, c)).into();
        let tcp = |server: &SocketAddr| vec![on(server, ConnectionConfig::tcp())];
        let way = |server: &SocketAddr, connections| Some((server.to_string(), way(server.ip(), connections, each)?));
        let ways = servers.iter().filter_map(|server| way(server, both(server)));
        let ways = ways.chain(servers.iter().filter_map(|server| way(server, tcp(server))));
        Asker { ways: ways.collect(), preferred: AtomicUsize::new(0), timeout: settings.timeout, system, fault }
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

    /// Records of one kind: from the first way that brings an answer, beginning with the one that did last.
    async fn records<T: Ord>(
        &self,
        name: &Name,
        kind: RecordType,
        pick: fn(&RData) -> Picked<T>,
        end: Instant,
    ) -> Answer<T> {
        let mut troubles = Vec::new();
        let first = self.preferred.load(Relaxed);
        for n in 0..self.ways.len() {
            let index = (first + n) % self.ways.len();
            let (server, way) = &self.ways[index];
            let answer = match timeout_at(end, way.lookup(name.clone(), kind)).await {
                Ok(Ok(lookup)) => picked(lookup.answers(), kind, pick),
                Ok(Err(error)) => meant(&error),
                Err(_) => Answer::Trouble(LATE.to_owned()),
            };
            match answer {
                Answer::Trouble(trouble) => {
                    let trouble = format!("{server}: {trouble}");
                    if !troubles.contains(&trouble) {
                        troubles.push(trouble);
                    }
                }
                answer => {
                    self.preferred.store(index, Relaxed);
                    return answer;
                }
            }
        }
        Answer::Trouble(match (&self.fault, troubles.is_empty()) {
            (Some(fault), _) => fault.clone(),
            (None, true) => "there is no server to ask".to_owned(),
            (None, false) => troubles.join("; "),
        })
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

fn on(server: &SocketAddr, mut connection: ConnectionConfig) -> ConnectionConfig {
    connection.port = server.port();
    connection
}

/// A resolver of hickory's that knows one server, tries once, and remembers nothing: when to ask again is ours to say.
fn way(ip: IpAddr, connections: Vec<ConnectionConfig>, time: Duration) -> Option<TokioResolver> {
    let mut options = ResolverOpts::default();
    options.timeout = time;
    options.attempts = 0;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.num_concurrent_reqs = 1;
    // The way without UDP is the last one, also for servers that stumble over EDNS.
    options.edns0 = connections.iter().any(|connection| matches!(connection.protocol, ProtocolConfig::Udp));
    options.max_active_requests = 2 * PLACES;
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    let server = NameServerConfig::new(ip, true, connections);
    let config = ResolverConfig::from_name_servers(vec![server]);
    Resolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options).build().ok()
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker").field("ways", &self.ways.len()).finish_non_exhaustive()
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
