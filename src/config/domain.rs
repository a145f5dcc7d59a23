//! What a configuration means: checked, complete, in the types the rest of the program works with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::access_log::AccessLog;
use super::alert::Alert;
use super::diagnostics::Diagnostics;
use super::lasting::Lasting;
use super::proof::{Proof, Secret};
use super::sticky::Sticky;
use crate::balance::Policy;
use crate::health::{Admin, Rules, replacement};
use crate::route::{Host, Route};

/// A whole proxy.yaml.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where clients come in; at least one.
    pub listeners: Vec<Listener>,
    /// The admin listener; `None` where it is switched off (`admin: off`).
    pub admin: Option<AdminListener>,
    /// Where and how requests are logged.
    pub access_log: AccessLog,
    /// Peers whose forwarded fields are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// SIGTERM: how long to keep accepting after readiness went down.
    pub lame_duck: Duration,
    /// SIGTERM: how long requests in flight may take to finish.
    pub drain_timeout: Duration,
    /// By name.
    pub pools: BTreeMap<String, Arc<Pool>>,
    /// Each behind those that are its sources.
    pub composites: Vec<Composite>,
    /// All of them as they are written, likewise, where one only observes; else none.
    pub tried_composites: Vec<Composite>,
    /// In the order written; each names a pool that exists.
    pub routes: Vec<Route>,
    /// `max_concurrent_probes`, default 8,192.
    pub max_concurrent_probes: usize,
    /// Probes a second, over all pools; `None`: as many as the intervals come to.
    pub max_probes_per_second: Option<u32>,
    /// What is kept of members that become unhealthy; `None`: nothing.
    pub diagnostics: Option<Diagnostics>,
    /// Threads that serve clients; `None`: one for each processor.
    pub threads: Option<usize>,
    /// How names are resolved.
    pub resolver: Resolver,
    /// How the file is followed while it is in force.
    pub reload: Reload,
    /// Where a process keeps what the next one has to know; `None`: nowhere.
    pub state_dir: Option<PathBuf>,
    /// How many members of all pools may be replaced within 12 hours. Default 10.
    pub max_global: u32,
    /// Who is told that something is wrong.
    pub alerts: Vec<Alert>,
}

impl Config {
    /// The files of authorities, certificates, keys and secrets that it names.
    pub fn named_files(&self) -> BTreeSet<&Path> {
        let mut files = BTreeSet::new();
        for pool in self.pools.values() {
            if let Some(Proof { secret: Secret::File(path), .. }) = pool.probe.as_ref().and_then(|p| p.auth.as_ref()) {
                files.insert(path.as_path());
            }
            let of_sticky = pool.sticky.iter().flat_map(|sticky| sticky.secret.iter().chain(&sticky.previous));
            files.extend(of_sticky.filter_map(Secret::file));
            let probe = pool.probe.as_ref().and_then(|probe| probe.kind.tls());
            for tls in pool.upstream.tls.iter().chain(probe) {
                files.extend(tls.ca.as_deref());
                files.extend(tls.client.iter().flat_map(|client| [client.cert.as_path(), client.key.as_path()]));
            }
        }
        files
    }
}

/// How names are resolved, and how often they are asked for again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// Who is asked, in this order; none: those of `/etc/resolv.conf`, and `/etc/hosts` before them.
    pub servers: Vec<SocketAddr>,
    /// For one question in all, every server and every try. Default 5 s.
    pub timeout: Duration,
    /// A name is not asked for again earlier, whatever its TTL says. Default 1 s.
    pub min_refresh: Duration,
    /// Nor later. Default 5 min.
    pub max_refresh: Duration,
    /// How long addresses outlive the name's own disappearance, and verdicts their addresses'. Default 5 min.
    pub grace: Duration,
}

impl Default for Resolver {
    fn default() -> Resolver {
        Resolver {
            servers: Vec::new(),
            timeout: Duration::from_secs(5),
            min_refresh: Duration::from_secs(1),
            max_refresh: Duration::from_secs(300),
            grace: Duration::from_secs(300),
        }
    }
}

/// How the file is followed while it is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reload {
    /// Whether it is taken when it changes. Default: yes.
    pub watch: bool,
    /// How often it is looked at, whatever the system tells of. Default 10 s.
    pub every: Duration,
}

impl Default for Reload {
    fn default() -> Reload {
        Reload { watch: true, every: Duration::from_secs(10) }
    }
}

/// One listening address and its limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// Port 0 takes a free one.
    pub address: SocketAddr,
    /// For the access log: the address as written, unless `name` is given.
    pub name: String,
    /// What a connection here may cost.
    pub limits: Limits,
}

/// What one client connection may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Connections at once on this listener; more are closed at accept. Default 65,536.
    pub max_connections: usize,
    /// Total time for a request's header, from its first byte (on a new connection: from accept). Default 10 s.
    pub header_timeout: Duration,
    /// Idle time between requests. Default 60 s.
    pub keepalive_timeout: Duration,
    /// Requests on one connection. Default 10,000.
    pub keepalive_requests: u32,
    /// Idle time between reads of a request body. Default 60 s.
    pub body_timeout: Duration,
    /// Idle time between writes of an answer. Default 60 s.
    pub write_timeout: Duration,
    /// Bytes of a header, request line included. Default 32 KiB.
    pub max_header_bytes: usize,
    /// Fields of a header. Default 100.
    pub max_header_fields: usize,
    /// Bytes of a request target. Default 8 KiB.
    pub max_uri_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_connections: 65_536,
            header_timeout: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(60),
            keepalive_requests: 10_000,
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            max_header_bytes: 32 << 10,
            max_header_fields: 100,
            max_uri_bytes: 8 << 10,
        }
    }
}

/// The admin listener.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminListener {
    /// Default 127.0.0.1:9900.
    pub address: SocketAddr,
    /// Needed by writing endpoints where set, and by any address that is not loopback.
    pub token: Option<String>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// As written: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// As written, before names are resolved.
    pub members: Vec<Member>,
    /// What each member takes on at once that has nothing of its own.
    pub each_member: Capacity,
    /// Services whose targets are members too.
    pub services: Vec<Service>,
    /// Files whose members are members too.
    pub files: Vec<PathBuf>,
    /// Verdicts and standings.
    pub rules: Rules,
    /// Rules that are only tried; `None`: none is.
    pub observed: Option<Arc<Observed>>,
    /// `None` with `probe: off`.
    pub probe: Option<Arc<Probe>>,
    /// Who gets the next request.
    pub balance: Policy,
    /// What of a request `balance: consistent_hash` goes by; `None` with any other policy.
    pub hash_key: Option<HashKey>,
    /// The way to the members.
    pub upstream: Upstream,
    /// When a request is tried again.
    pub retries: Retries,
    /// Whether requests that wait for a member leave it when it turns unhealthy as unreachable. Default true.
    pub rescue: bool,
    /// What traffic may say of its members.
    pub passive: Passive,
    /// How long tunnels may last.
    pub tunnels: Tunnels,
    /// `/readyz` waits for it.
    pub required: bool,
    /// For a whole request, retries included; `None`: no limit but the others.
    pub deadline: Option<Duration>,
    /// What all members together take on at once.
    pub capacity: Capacity,
    /// Where requests wait for room; `None`: they are refused at once.
    pub queue: Option<Queue>,
    /// Who replaces its members; `None`: nobody.
    pub remediation: Option<Remediation>,
    /// Who would, if it did more than observe; `None`: nothing of the kind is tried.
    pub observed_remediation: Option<Remediation>,
    /// How clients are bound to its members; `None`: they are not.
    pub sticky: Option<Sticky>,
    /// Only one of its members may be enabled: it has no probes, and is to be as Front Door's pools are (case F8).
    pub only_one_enabled: bool,
}

/// Rules that are tried beside those in force, and change nothing (health.md §10).
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// What the pool would be judged by if they were in force.
    pub rules: Rules,
    /// Which of the rules they are, as they are written: `max_latency`; `probe` where the whole probe is.
    pub keys: Vec<&'static str>,
}

impl Observed {
    /// What stands for the whole probe.
    pub const PROBE: &'static str = "probe";

    /// Whether the whole probe only observes.
    pub fn has_probe(&self) -> bool {
        self.keys.contains(&Observed::PROBE)
    }
}

/// When and how members are replaced (health.md §10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remediation {
    /// Without a passing probe for so long. Default 1 h.
    pub after: Duration,
    /// What is done.
    pub action: Action,
    /// How many may be. Default 1 within an hour, 3 within a day.
    pub limits: replacement::Limits,
}

/// What replaces a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A program of this machine.
    Command {
        /// Its whole path, and its arguments.
        argv: Vec<String>,
        /// How long it may take. Default 30 s.
        timeout: Duration,
    },
    /// A request to somebody else.
    Webhook(Webhook),
}

/// A signed POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// `http` or `https`, with a host.
    pub url: http::Uri,
    /// What it is signed with.
    pub secret: Secret,
    /// For one try. Default 10 s.
    pub timeout: Duration,
    /// Tries after the first. Default 3.
    pub retries: u32,
}

/// How much may go on at once. Default: as much as comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacity {
    /// Requests, tunnels included; at least 1.
    pub max_in_flight: Option<u32>,
    /// Open connections, in use and idle ones; at least 1.
    pub max_connections: Option<u32>,
}

impl Capacity {
    /// These limits, and those of `other` where there are none.
    pub fn or(self, other: Capacity) -> Capacity {
        Capacity {
            max_in_flight: self.max_in_flight.or(other.max_in_flight),
            max_connections: self.max_connections.or(other.max_connections),
        }
    }
}

/// Requests that wait while everyone is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// How many may wait at once; at least 1.
    pub size: usize,
    /// How long each may. Default 5 s.
    pub timeout: Duration,
}

/// What of a request says which member it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address, behind trusted proxies the one they vouch for.
    Client,
    /// The path, without the query.
    Path,
    /// The first field of this name, in lower case.
    Header(String),
    /// The cookie of this name.
    Cookie(String),
    /// The first parameter of this name in the query, as it is spelt there.
    Query(String),
}

impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashKey::Client => f.write_str("client"),
            HashKey::Path => f.write_str("path"),
            HashKey::Header(name) => write!(f, "header:{name}"),
            HashKey::Cookie(name) => write!(f, "cookie:{name}"),
            HashKey::Query(name) => write!(f, "query:{name}"),
        }
    }
}

/// One member as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// `host:port` as written (IPv6 in brackets, name in lower case).
    pub name: String,
    /// Of the address: an IP literal without brackets, or a name.
    pub host: String,
    /// 1 to 65535.
    pub port: u16,
    /// The name it goes by, where that is not the address's.
    pub known_as: Option<String>,
    /// 0 to 1000, default 1.
    pub weight: u32,
    /// Default 0.
    pub tier: u8,
    /// Default enabled.
    pub state: Admin,
    /// What it takes on at once: its own, else the pool's `each_member`.
    pub capacity: Capacity,
}

impl Member {
    /// The name it goes by in Host fields and in TLS, without port; an IP literal without brackets.
    pub fn own_name(&self) -> &str {
        self.known_as.as_deref().unwrap_or(&self.host)
    }
}

/// A service by its SRV name: its targets are members (RFC 2782).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// `_http._tcp.app.internal`, in lower case.
    pub name: String,
    /// The name that all its targets go by, without port; `None`: each by its own.
    pub known_as: Option<String>,
    /// The weights of its answer are multiplied by it: 0 to 1000, default 1.
    pub weight: u32,
    /// Of the targets with the lowest priority number; each further number is a tier more. Default 0.
    pub tier: u8,
    /// Of all its targets. Default enabled.
    pub state: Admin,
    /// What each of them takes on at once, where it is not the pool's `each_member`.
    pub capacity: Capacity,
}

/// What a file of members says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roll {
    /// Members, before names are resolved.
    pub members: Vec<Member>,
    /// Services whose targets are members too.
    pub services: Vec<Service>,
}

impl Pool {
    /// Whether only the running proxy knows how many members there are.
    pub fn is_discovered(&self) -> bool {
        !self.services.is_empty() || !self.files.is_empty()
    }
}

impl Config {
    /// The composites as they are written, those included that only observe.
    pub fn written_composites(&self) -> &[Composite] {
        if self.tried_composites.is_empty() { &self.composites } else { &self.tried_composites }
    }
}

/// What several pools add up to, for whoever must not look at each of them (health.md §8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composite {
    /// As written: letters, digits, `-`, `_`, `.`; no pool has it.
    pub name: Arc<str>,
    /// At least one, none twice.
    pub sources: Vec<Source>,
    /// Where clients may ask for it; `None`: the admin API alone tells.
    pub publish: Option<Publish>,
    /// Nothing goes by it, and what it would be is told.
    pub only_observes: bool,
}

/// One of the things a composite stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A pool, by its aggregate.
    Pool(Arc<str>),
    /// Another composite.
    Composite(Arc<str>),
}

impl Source {
    /// Its name, which no other pool or composite has.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Source::Pool(name) | Source::Composite(name) => name,
        }
    }
}

/// Where a composite is answered for, before any route is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// All of it: what lies under it is not meant.
    pub path: String,
    /// For which hosts.
    pub host: Host,
    /// By which listener; `None`: by every one.
    pub listener: Option<String>,
}

impl Publish {
    /// What was written, for logs: `shop.example.com/health`.
    pub fn place(&self) -> String {
        super::route::name(&self.host, &self.path)
    }
}

/// How members are probed.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// What is asked, and what is expected.
    pub kind: ProbeKind,
    /// Else the traffic port.
    pub port: Option<u16>,
    /// The connection is kept for the next probe; never that of a TCP probe.
    pub reuse: bool,
    /// The address that it comes from; `None`: the system chooses.
    pub bind: Option<IpAddr>,
    /// How it proves who it is.
    pub auth: Option<Proof>,
    /// Between the starts of two probes of a member.
    pub interval: Duration,
    /// The interval while a verdict is in doubt; at most `interval`.
    pub fast_interval: Duration,
    /// From the dial to the last byte; at most `interval`.
    pub timeout: Duration,
    /// How a pool without traffic is probed; `None`: as ever.
    pub idle: Option<Idle>,
}

/// Probing a pool that nobody uses (product.md F9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Idle {
    /// Without a request for so long it is idle.
    pub after: Duration,
    /// The interval while it is; at least the pool's own.
    pub interval: Duration,
}

impl Probe {
    /// Of everything that shapes the probe's request, its connection and its expectation (health.md §9), and of
    /// nothing else: interval and timeouts may change without a doubt about what was learnt. The same for the life of
    /// a process, over all reloads; not to be kept on disk.
    pub fn fingerprint(&self) -> u64 {
        let Probe { kind, port, reuse, bind, auth, interval: _, fast_interval: _, timeout: _, idle: _ } = self;
        let mut hasher = Lasting::default();
        (kind, port, reuse, bind, auth).hash(&mut hasher);
        hasher.finish()
    }

    /// Of what is asked and expected, wherever that is: who asks the same of the same address, port and name, and gives it
    /// the same time, can take the same answer (product.md F6).
    pub fn definition(&self) -> u64 {
        Probe { port: None, ..self.clone() }.fingerprint()
    }
}

/// What a probe speaks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    /// A connection and nothing more.
    Tcp,
    /// A request and its answer.
    Http(HttpProbe),
    /// A question of gRPC's health protocol.
    Grpc(GrpcProbe),
}

impl ProbeKind {
    /// How the connection is secured; `None`: it is not.
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            ProbeKind::Tcp => None,
            ProbeKind::Http(http) => http.tls.as_ref(),
            ProbeKind::Grpc(grpc) => grpc.tls.as_ref(),
        }
    }
}

/// An HTTP or HTTPS probe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpProbe {
    /// HTTPS.
    pub tls: Option<Tls>,
    /// HTTP/2: over TLS by its ALPN, which is then `h2`; else by prior knowledge (RFC 9113 section 3.3). False: HTTP/1.1.
    pub http2: bool,
    /// GET or HEAD.
    pub method: ProbeMethod,
    /// Begins with `/`; may carry a query.
    pub path: String,
    /// The Host field when written; else the member's own name.
    pub host: Option<String>,
    /// The Host field alone (the preset `application_gateway` sends 127.0.0.1); wins over `host` for the field only.
    pub host_header: Option<String>,
    /// Further fields, in order; they may replace `User-Agent` and `Accept`.
    pub headers: Vec<(String, String)>,
    /// What makes an answer right.
    pub expect: Expect,
    /// Bytes of the body that are kept and searched. Default 64 KiB.
    pub max_body: usize,
}

/// A probe by gRPC's health protocol, `grpc.health.v1`, over HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrpcProbe {
    /// With `h2` for its ALPN; `None`: by prior knowledge.
    pub tls: Option<Tls>,
    /// The service asked for; empty: the server as a whole.
    pub service: String,
    /// The authority when written; else the member's own name.
    pub host: Option<String>,
    /// The authority alone; wins over `host` for it.
    pub host_header: Option<String>,
    /// Metadata, in order; it may replace `User-Agent`.
    pub headers: Vec<(String, String)>,
}

/// TLS towards members, of traffic or of probes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tls {
    /// The name that is asked for and verified; else the member's own. An address is verified and not sent (RFC 6066
    /// section 3).
    pub sni: Option<String>,
    /// False: any certificate will do (the checker warns).
    pub verify: bool,
    /// PEM file of the authorities that are trusted; else the system's.
    pub ca: Option<PathBuf>,
    /// What is shown to members that ask who we are.
    pub client: Option<ClientCertificate>,
    /// What is offered to be spoken inside.
    pub alpn: Alpn,
}

impl Default for Tls {
    fn default() -> Tls {
        Tls { sni: None, verify: true, ca: None, client: None, alpn: Alpn::Http1 }
    }
}

/// PEM files of a certificate, with what leads to its authority, and of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificate {
    /// The certificate first.
    pub cert: PathBuf,
    /// Of the first certificate.
    pub key: PathBuf,
}

/// The protocols offered in a handshake (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// `http/1.1`.
    Http1,
    /// `h2`; only of probes that speak it.
    Http2,
    /// None, as before there was such an offer.
    Off,
}

/// GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProbeMethod {
    /// The whole answer.
    Get,
    /// Its header alone.
    Head,
}

/// What makes an answer right.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Expect {
    /// Inclusive ranges of status codes, sorted, not overlapping, not empty.
    pub status: Vec<(u16, u16)>,
    /// Fields that its header must have, by names in lower case: this value, or any where there is none.
    pub headers: Vec<(String, Option<String>)>,
    /// Must occur in the body.
    pub body: Option<String>,
}

/// The way to the members.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// Default 3 s.
    pub connect_timeout: Duration,
    /// Between reads of an answer. Default 60 s.
    pub read_timeout: Duration,
    /// Between writes of a request. Default 30 s.
    pub write_timeout: Duration,
    /// A pooled connection idle for longer is not used again. Default 55 s.
    pub idle_timeout: Duration,
    /// The Host that members see.
    pub host: UpstreamHost,
    /// `None`: plain.
    pub tls: Option<Tls>,
}

impl Default for Upstream {
    fn default() -> Upstream {
        Upstream {
            connect_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(55),
            host: UpstreamHost::PassThrough,
            tls: None,
        }
    }
}

/// The Host that members see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamHost {
    /// The client's (default).
    PassThrough,
    /// The member's own name.
    Member,
    /// This one.
    Fixed(String),
}

/// When a request is tried again (never when it may have been processed and must not be twice).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Attempts in all after bytes were sent. Default 2; 1 switches retries off.
    pub attempts: u32,
    /// Dials in all. Default 3.
    pub connect: u32,
    /// Retries after bytes were sent, as a share of requests, in percent. Default 20.
    pub budget_percent: u32,
    /// For one attempt, until its answer's header; `None`: `read_timeout` alone.
    pub per_try_timeout: Option<Duration>,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { attempts: 2, connect: 3, budget_percent: 20, per_try_timeout: None }
    }
}

/// What may come of traffic that meets a failing member (health.md §6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Passive {
    /// Nothing: probes alone decide.
    Off,
    /// The member is probed at once. The default.
    Hasten,
    /// That, and too many failures eject it: [`Rules::eject`] says how many.
    Eject,
}

/// How long tunnels may last: connections that were switched to another protocol, such as WebSockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnels {
    /// One in which nothing passes either way for so long ends. Default 1 h.
    pub idle: Duration,
    /// What those of a member that left the pool still have. Default 30 s.
    pub drain: Duration,
}

impl Default for Tunnels {
    fn default() -> Tunnels {
        Tunnels { idle: Duration::from_secs(60 * 60), drain: Duration::from_secs(30) }
    }
}
