//! What TLS decides: whom a probe trusts, and what it tells of those it does not.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::origin::{Origin, Step, ok, play};
use super::*;
use crate::config::{Alpn, ClientCertificate, Tls};

/// An authority and the file that names it.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
    file: tempfile::NamedTempFile,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        Authority::named("Test Authority")
    }

    fn named(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), certificate.pem()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        Authority { issuer: Issuer::new(params, key), certificate, file, folder }
    }

    /// TLS of an origin with a certificate for these names.
    fn server(&self, names: &[&str], shape: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        self.speaking(&rustls::version::TLS13, names, shape)
    }

    fn speaking(
        &self,
        version: &'static SupportedProtocolVersion,
        names: &[&str],
        shape: impl FnOnce(&mut CertificateParams),
    ) -> ServerConfig {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        shape(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }

    /// TLS of an origin for app1.test that asks for a certificate of this authority.
    fn asking(&self, version: &'static SupportedProtocolVersion) -> ServerConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["app1.test".to_string()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap()
    }

    /// Files of a certificate for us, and of its key.
    fn client(&self) -> ClientCertificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["us.test".to_string()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let at = |name: &str| self.folder.path().join(name);
        std::fs::write(at("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(at("key.pem"), key.serialize_pem()).unwrap();
        ClientCertificate { cert: at("cert.pem"), key: at("key.pem") }
    }

    fn ca(&self) -> Tls {
        trusting(self.file.path())
    }
}

fn trusting(ca: &Path) -> Tls {
    Tls { ca: Some(ca.to_path_buf()), ..Tls::default() }
}

/// A handshake as an origin saw it.
struct Greeting {
    sni: Option<String>,
    alpn: Option<Vec<u8>>,
    kind: HandshakeKind,
}

/// An HTTPS origin that plays a script and tells of every handshake that succeeds.
async fn https(server: ServerConfig, script: Vec<Step>) -> (SocketAddr, mpsc::UnboundedReceiver<Greeting>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (names, received) = mpsc::unbounded_channel();
    let (requests, _) = mpsc::unbounded_channel();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, names, script, requests) =
                (acceptor.clone(), names.clone(), script.clone(), requests.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let session = stream.get_ref().1;
                let kind = session.handshake_kind().unwrap();
                let alpn = session.alpn_protocol().map(<[u8]>::to_vec);
                let _ = names.send(Greeting { sni: session.server_name().map(str::to_string), alpn, kind });
                play(&mut stream, script, requests).await;
            });
        }
    });
    (address, received)
}

fn healthy() -> Vec<Step> {
    vec![Step::Read, Step::Write(ok("fine").into_bytes())]
}

/// Probes the member `name` at `address`.
async fn run(tls: Tls, name: &str, address: SocketAddr) -> Sample {
    let http = HttpProbe { tls: Some(tls), ..http_probe() };
    Check::single(&probe(ProbeKind::Http(http)), name, address).unwrap().run().await
}

#[tokio::test]
async fn a_good_certificate_passes_and_the_handshake_is_timed() {
    let authority = Authority::new();
    let (address, mut names) = https(authority.server(&["app1.test"], |_| {}), healthy()).await;
    let sample = run(authority.ca(), "app1.test", address).await;
    assert_pass(&sample);
    let phases = sample.phases;
    assert!(phases.connect.unwrap() + phases.tls.unwrap() <= phases.first_byte.unwrap(), "{phases:?}");
    assert!(phases.first_byte.unwrap() <= phases.total, "{phases:?}");
    assert_eq!(names.recv().await.unwrap().sni.as_deref(), Some("app1.test"));
}

#[tokio::test]
async fn the_written_name_is_sent_and_verified_and_is_no_host_field() {
    let authority = Authority::new();
    let (address, mut names) = https(authority.server(&["api.internal"], |_| {}), healthy()).await;
    for name in ["api.internal", "api.internal."] {
        let tls = Tls { sni: Some(name.to_string()), ..authority.ca() };
        let check =
            Check::single(&probe(ProbeKind::Http(HttpProbe { tls: Some(tls), ..http_probe() })), "10.9.9.9", address);
        let (sample, exchange) = check.unwrap().record().await;
        assert_pass(&sample);
        assert_eq!(names.recv().await.unwrap().sni.as_deref(), Some("api.internal"));
        assert!(String::from_utf8(exchange.sent).unwrap().contains("\r\nHost: 10.9.9.9:"));
    }
}

#[tokio::test]
async fn an_address_is_verified_and_never_sent_as_a_name() {
    let authority = Authority::new();
    let (address, mut names) = https(authority.server(&["127.0.0.1", "::1"], |_| {}), healthy()).await;
    for member in ["127.0.0.1", "::1"] {
        assert_pass(&run(authority.ca(), member, address).await);
        assert_eq!(names.recv().await.unwrap().sni, None);
    }
    let sample = run(authority.ca(), "127.0.0.2", address).await;
    assert_fail(&sample, Reason::Tls, "not for 127.0.0.2");
}

#[tokio::test]
async fn a_host_field_alone_changes_no_verified_name() {
    let authority = Authority::new();
    let (address, mut names) = https(authority.server(&["app1.test"], |_| {}), healthy()).await;
    let host_header = Some("127.0.0.1".to_string());
    let check = check(HttpProbe { tls: Some(authority.ca()), host_header, ..http_probe() }, address);
    let (sample, exchange) = check.record().await;
    assert_pass(&sample);
    assert_eq!(names.recv().await.unwrap().sni.as_deref(), Some("app1.test"));
    let secured = exchange.tls.unwrap();
    assert_eq!(
        (secured.server_name.as_str(), secured.verified, secured.client_certificate),
        ("app1.test", true, false)
    );
    assert!(String::from_utf8(exchange.sent).unwrap().contains("\r\nHost: 127.0.0.1\r\n"));
}

#[tokio::test]
async fn a_failed_handshake_names_what_failed() {
    let (authority, stranger, namesake) = (Authority::new(), Authority::named("Stranger"), Authority::new());
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 2);
    let future = |params: &mut CertificateParams| params.not_before = date_time_ymd(4000, 1, 2);
    let rows = [
        (authority.server(&["app2.test"], |_| {}), "certificate is for", "app2.test"),
        (authority.server(&["app2.test"], |_| {}), "not for app1.test", ""),
        (authority.server(&["app1.test"], expired), "certificate expired 2020-01-02T00:00:00Z", ""),
        (authority.server(&["app1.test"], future), "certificate not valid before 4000-01-02T00:00:00Z", ""),
        (stranger.server(&["app1.test"], |_| {}), "certificate of an unknown issuer, \"Stranger\"", ""),
        (
            namesake.server(&["app1.test"], |_| {}),
            "certificate not signed by the \"Test Authority\" that is trusted",
            "",
        ),
    ];
    for (server, detail, more) in rows {
        let (address, _names) = https(server, healthy()).await;
        let sample = run(authority.ca(), "app1.test", address).await;
        assert_fail(&sample, Reason::Tls, detail);
        assert_fail(&sample, Reason::Tls, more);
        assert!(sample.phases.connect.is_some() && sample.phases.tls.is_none() && sample.status.is_none());
    }
}

#[tokio::test]
async fn without_verification_any_certificate_will_do() {
    let stranger = Authority::new();
    let server = stranger.server(&["other.test"], |params| params.not_after = date_time_ymd(2020, 1, 2));
    let (address, _names) = https(server, healthy()).await;
    assert_pass(&run(Tls { verify: false, ..Tls::default() }, "app1.test", address).await);
}

#[tokio::test]
async fn a_certificate_asked_of_us_is_shown_or_is_a_tls_failure() {
    let (authority, stranger) = (Authority::new(), Authority::named("Stranger"));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (address, _names) = https(authority.asking(version), healthy()).await;
        for nobody in [authority.ca(), Tls { client: Some(stranger.client()), ..authority.ca() }] {
            let sample = run(nobody, "app1.test", address).await;
            assert_fail(&sample, Reason::Tls, "the member refused: ");
        }
        assert_pass(&run(Tls { client: Some(authority.client()), ..authority.ca() }, "app1.test", address).await);
    }
}

#[tokio::test]
async fn what_is_spoken_inside_is_offered_or_left_out() {
    let authority = Authority::new();
    let mut server = authority.server(&["app1.test"], |_| {});
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let (address, mut names) = https(server, healthy()).await;
    for (alpn, expected) in [(Alpn::Http1, Some(&b"http/1.1"[..])), (Alpn::Off, None)] {
        assert_pass(&run(Tls { alpn, ..authority.ca() }, "app1.test", address).await);
        assert_eq!(names.recv().await.unwrap().alpn.as_deref(), expected);
    }
}

/// A probe over HTTP/2, offered as the configuration does.
fn http2(tls: Tls, address: SocketAddr) -> Check {
    check(HttpProbe { tls: Some(Tls { alpn: Alpn::Http2, ..tls }), http2: true, ..http_probe() }, address)
}

#[tokio::test]
async fn http_2_that_is_not_agreed_to_is_told_as_that() {
    let authority = Authority::new();
    let protocols = [vec![], vec![b"http/1.1".to_vec()]];
    for spoken in protocols {
        let mut server = authority.server(&["app1.test"], |_| {});
        server.alpn_protocols = spoken;
        let (address, _names) = https(server, healthy()).await;
        let sample = http2(authority.ca(), address).run().await;
        assert_fail(&sample, Reason::Protocol, "the member does not agree to the protocol that TLS offers it (ALPN)");
    }
}

#[tokio::test]
async fn a_certificate_asked_of_us_is_a_tls_failure_over_http_2_too() {
    let authority = Authority::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut server = authority.asking(version);
        server.alpn_protocols = vec![b"h2".to_vec()];
        let (address, _names) = https(server, vec![Step::Hang]).await;
        assert_fail(&http2(authority.ca(), address).run().await, Reason::Tls, "the member refused: ");
    }
}

#[tokio::test]
async fn plain_http_on_the_port_is_a_tls_failure() {
    let authority = Authority::new();
    let answer = b"HTTP/1.1 400 The plain HTTP request was sent to HTTPS port\r\n\r\n".to_vec();
    let origin = Origin::playing(vec![Step::Write(answer), Step::Hang]).await;
    let sample = run(authority.ca(), "app1.test", origin.address).await;
    assert_fail(&sample, Reason::Tls, "what came is not TLS");
}

#[tokio::test]
async fn a_close_during_the_handshake_is_a_reset_and_silence_a_timeout() {
    let authority = Authority::new();
    for script in [vec![], vec![Step::Reset]] {
        let origin = Origin::playing(script).await;
        let sample = run(authority.ca(), "app1.test", origin.address).await;
        assert_fail(&sample, Reason::Reset, "closed during the TLS handshake");
    }
    let silent = Origin::playing(vec![Step::Hang]).await;
    let sample = impatient(HttpProbe { tls: Some(authority.ca()), ..http_probe() }, silent.address).run().await;
    assert_fail(&sample, Reason::Timeout, "TLS handshake not complete within 300ms");
}

/// TLS ends without a word then, which hyper takes for a fault of the stream.
#[tokio::test]
async fn a_close_within_the_header_is_told_as_over_plain_http() {
    let authority = Authority::new();
    let half = b"HTTP/1.1 200 OK\r\nContent-".to_vec();
    let rows = [
        (vec![Step::Read], "closed without an answer"),
        (vec![Step::Read, Step::Write(half)], "closed within the answer's header"),
    ];
    for (script, detail) in rows {
        let (address, _names) = https(authority.server(&["app1.test"], |_| {}), script).await;
        assert_fail(&run(authority.ca(), "app1.test", address).await, Reason::Reset, detail);
    }
}

#[tokio::test]
async fn every_probe_makes_a_whole_handshake() {
    let authority = Authority::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (address, mut greetings) = https(authority.speaking(version, &["app1.test"], |_| {}), healthy()).await;
        let check = check(HttpProbe { tls: Some(authority.ca()), ..http_probe() }, address);
        for _ in 0..3 {
            assert_pass(&check.run().await);
            let kind = greetings.recv().await.unwrap().kind;
            assert!(matches!(kind, HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest), "{kind:?}");
        }
    }
}

#[test]
fn a_file_without_authorities_is_refused_when_the_probe_is_built() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let broken = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(broken.path(), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let missing = empty.path().with_extension("gone");
    for (path, expected) in [(empty.path(), "no certificate in it"), (broken.path(), ""), (&*missing, "")] {
        let http = HttpProbe { tls: Some(trusting(path)), ..http_probe() };
        let error =
            Check::single(&probe(ProbeKind::Http(http)), "app1.test", "127.0.0.1:443".parse().unwrap()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("`ca` {}: ", path.display())) && text.contains(expected), "{text}");
    }
}

#[test]
fn a_name_that_cannot_be_verified_is_refused_when_the_probe_is_built() {
    let authority = Authority::new();
    let http = HttpProbe { tls: Some(authority.ca()), ..http_probe() };
    let error =
        Check::single(&probe(ProbeKind::Http(http)), "not a name", "127.0.0.1:443".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("`not a name`"), "{error}");
}
