//! Certificates, and members behind TLS: a terminator in front of an [`Origin`], which tells of every handshake.
//!
//! It shows whatever certificate the case gives it, and may ask for one; what is refused in the handshake never reaches
//! the origin behind it.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::origin::Origin;
use super::wait::PATIENCE;

/// One who issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
    dir: tempfile::TempDir,
}

/// A certificate with its key.
pub struct Paper {
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
    pem: String,
}

impl Authority {
    /// A new one; two of a name are strangers to each other all the same.
    pub fn named(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let dir = tempfile::tempdir().expect("a temporary folder");
        Authority { issuer: Issuer::new(params, key), certificate, dir }
    }

    /// Its own certificate as PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The file of its own certificate, for `ca`.
    pub fn ca(&self) -> String {
        let path = self.dir.path().join("ca.pem");
        std::fs::write(&path, self.pem()).expect("the folder is ours");
        path.display().to_string()
    }

    /// A certificate for these names and addresses.
    pub fn paper(&self, names: &[&str]) -> Paper {
        self.shaped(names, |_| {})
    }

    /// One whose time is over.
    pub fn expired(&self, names: &[&str]) -> Paper {
        self.shaped(names, |params| params.not_after = date_time_ymd(2020, 1, 2))
    }

    fn shaped(&self, names: &[&str], shape: impl FnOnce(&mut CertificateParams)) -> Paper {
        let mut params = params(names);
        shape(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Paper { chain: vec![certificate.der().clone()], key, pem: certificate.pem() }
    }

    /// Files of a certificate for clients, and of its key, as `client_cert: …, client_key: …`.
    pub fn client(&self, name: &str) -> String {
        let usage =
            |params: &mut CertificateParams| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let paper = self.shaped(&[name], usage);
        let write = |what: &str, text: String| {
            let path = self.dir.path().join(format!("{name}.{what}.pem"));
            std::fs::write(&path, text).expect("the folder is ours");
            path.display().to_string()
        };
        let (cert, key) = (write("cert", paper.pem.clone()), write("key", paper.key.serialize_pem()));
        format!("client_cert: {cert}, client_key: {key}")
    }
}

impl Paper {
    /// One that nobody issued.
    pub fn self_signed(names: &[&str]) -> Paper {
        let key = KeyPair::generate().expect("a key");
        let certificate = params(names).self_signed(&key).expect("a certificate");
        Paper { chain: vec![certificate.der().clone()], key, pem: certificate.pem() }
    }

    /// It and its key, in PEM.
    pub fn pem(&self) -> (String, String) {
        (self.pem.clone(), self.key.serialize_pem())
    }

    /// TLS of a server that shows it.
    pub fn server(&self) -> ServerConfig {
        self.serving(None, &[&rustls::version::TLS12, &rustls::version::TLS13])
    }

    /// The same, but it wants a certificate of `authority` from its clients.
    pub fn server_asking(&self, authority: &Authority, version: &'static SupportedProtocolVersion) -> ServerConfig {
        self.serving(Some(authority), &[version])
    }

    fn serving(&self, asking: Option<&Authority>, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let verifier = match asking {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.certificate.der().clone()).expect("a good certificate");
                let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
                builder.build().expect("a verifier")
            }
        };
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), key)
            .expect("they fit");
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        server
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("names")
}

/// What a client said in a handshake that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// The name it asked for.
    pub sni: Option<String>,
    /// What they agreed to speak.
    pub alpn: Option<String>,
    /// It has shown a certificate.
    pub client: bool,
}

/// An [`Origin`] behind TLS; stopped when dropped.
pub struct TlsOrigin {
    /// What is behind.
    pub origin: Arc<Origin>,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    runtime: Option<Runtime>,
}

struct State {
    server: Arc<ServerConfig>,
    next: VecDeque<Arc<ServerConfig>>,
    greetings: Vec<Greeting>,
    failed: usize,
}

impl TlsOrigin {
    /// On 127.0.0.1, in front of an origin of its own that answers 200.
    pub fn start(server: ServerConfig) -> TlsOrigin {
        TlsOrigin::in_front_of(Arc::new(Origin::start()), server)
    }

    /// On 127.0.0.1, in front of this one.
    pub fn in_front_of(origin: Arc<Origin>, server: ServerConfig) -> TlsOrigin {
        TlsOrigin::listening(Ipv4Addr::LOCALHOST.into(), origin, server)
    }

    /// On ::1, in front of an origin of its own that answers 200.
    pub fn start_v6(server: ServerConfig) -> TlsOrigin {
        TlsOrigin::listening(Ipv6Addr::LOCALHOST.into(), Arc::new(Origin::start()), server)
    }

    fn listening(ip: IpAddr, origin: Arc<Origin>, server: ServerConfig) -> TlsOrigin {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind((ip, 0))).expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = State { server: Arc::new(server), next: VecDeque::new(), greetings: vec![], failed: 0 };
        let state = Arc::new(Mutex::new(state));
        runtime.spawn(accept(listener, origin.address(), Arc::clone(&state)));
        TlsOrigin { origin, address, state, runtime: Some(runtime) }
    }

    /// `127.0.0.1:41233`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// As a member that goes by `host`.
    pub fn known_as(&self, host: &str) -> String {
        format!("{{ address: \"{}\", host: {host} }}", self.address)
    }

    /// What it shows and asks for in handshakes from now on.
    pub fn serve(&self, server: ServerConfig) {
        self.lock().server = Arc::new(server);
    }

    /// The same for the next handshakes, one each.
    pub fn serve_next(&self, servers: impl IntoIterator<Item = ServerConfig>) {
        self.lock().next.extend(servers.into_iter().map(Arc::new));
    }

    /// Handshakes so far that succeeded.
    pub fn greetings(&self) -> Vec<Greeting> {
        self.lock().greetings.clone()
    }

    /// How many did not.
    pub fn failed(&self) -> usize {
        self.lock().failed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for TlsOrigin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// As a member in YAML, quoted.
impl fmt::Display for TlsOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.address)
    }
}

/// Writes `text` into the file `name` of `dir`, in one step.
pub fn replace(dir: &Path, name: &str, text: &str) {
    let (path, part) = (dir.join(name), dir.join(format!("{name}.part")));
    std::fs::write(&part, text).expect("the folder is ours");
    std::fs::rename(&part, &path).expect("the folder is ours");
}

async fn accept(listener: TcpListener, behind: String, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let server = {
            let mut state = lock(&state);
            state.next.pop_front().unwrap_or_else(|| Arc::clone(&state.server))
        };
        tokio::spawn(serve(stream, server, behind.clone(), Arc::clone(&state)));
    }
}

async fn serve(stream: TcpStream, server: Arc<ServerConfig>, behind: String, state: Arc<Mutex<State>>) {
    let _ = stream.set_nodelay(true);
    match TlsAcceptor::from(server).accept(stream).into_fallible().await {
        Ok(mut stream) => {
            let session = stream.get_ref().1;
            let greeting = Greeting {
                sni: session.server_name().map(str::to_owned),
                alpn: session.alpn_protocol().map(|protocol| String::from_utf8_lossy(protocol).into_owned()),
                client: session.peer_certificates().is_some(),
            };
            lock(&state).greetings.push(greeting);
            let Ok(mut behind) = TcpStream::connect(behind).await else { return };
            let _ = copy_bidirectional(&mut stream, &mut behind).await;
        }
        Err((_, mut stream)) => {
            lock(&state).failed += 1;
            // What was not read would turn the close into a reset that overtakes the alert.
            let read_away = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {} };
            let _ = tokio::time::timeout(PATIENCE, read_away).await;
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
