//! TLS towards members: what `upstream.tls` and `probe.tls` mean.
//!
//! A probe's connection is that of the traffic, but for what is written of it: what is learnt should be what requests
//! will meet.

use std::path::PathBuf;

use super::address::host_name;
use super::domain::{Alpn, ClientCertificate, Member, Tls};
use super::file::{ProbeKeys, TlsKeys};
use super::member::places;
use super::places::At;
use super::reading::Reading;
use super::spelling::{Spelled, Text, Written, shown};
use super::words::{Or, Scheme, TlsWord};

/// TLS of a pool's traffic, by the `tls` of the `upstream` that `read` stands on.
pub(super) fn of_traffic(
    written: Option<&Or<TlsWord, TlsKeys>>,
    members: &[Member],
    pool: At<'_>,
    read: &mut Reading<'_>,
) -> Option<Tls> {
    let tls = match written? {
        Or::Word(TlsWord(false)) => return None,
        Or::Word(TlsWord(true)) => Tls::default(),
        Or::Keys(keys) => merged(keys, Tls::default(), &mut read.under("tls")),
    };
    let at = read.at.key("tls");
    match tls.alpn {
        Alpn::Http1 => {}
        Alpn::Http2 => {
            let message = "`h2` towards members is not supported yet, but for probes; write `[http/1.1]`";
            read.problems.error(at.key("alpn"), message);
        }
        // Pingora has no way to leave it out.
        Alpn::Off => {
            let message = "towards members `http/1.1` is always offered; only a probe's `alpn` can be `off`; remove it";
            read.problems.error(at.key("alpn"), message);
        }
    }
    if tls.verify {
        refuse_rewritten(&tls, members, pool, at, read);
    }
    Some(tls)
}

/// TLS of a pool's probes, by the `probe` that `read` stands on: the traffic's, but for what is written here. `host` is the
/// probe's own, which is a name for TLS too; `spoken` is what goes over the connection, and is what is offered.
pub(super) fn of_probe(
    keys: &ProbeKeys,
    spoken: Alpn,
    host: Option<&str>,
    traffic: Option<&Tls>,
    read: &mut Reading<'_>,
) -> Option<Tls> {
    let scheme = keys.scheme.map(|Spelled(scheme)| scheme);
    let switch = match &keys.tls {
        Some(Or::Word(TlsWord(on))) => Some(*on),
        Some(Or::Keys(_)) => Some(true),
        None => None,
    };
    match (scheme, switch) {
        (Some(Scheme::Http), Some(true)) => {
            let place = read.at.key("tls").name();
            read.problems.error_at(place, "`tls` has no meaning with `scheme: http`; write `scheme: https`");
        }
        (Some(Scheme::Https), Some(false)) => {
            read.error("tls", "`scheme: https` is TLS; write `scheme: http`, or remove `tls`");
        }
        _ => {}
    }
    let on = switch.or(scheme.map(|scheme| scheme == Scheme::Https)).unwrap_or(traffic.is_some());
    if !on || scheme == Some(Scheme::Http) {
        return None;
    }
    let mut base = Tls { alpn: spoken, ..traffic.cloned().unwrap_or_default() };
    if let Some(host) = host {
        base.sni = Some(host.to_owned());
    }
    let tls = match &keys.tls {
        Some(Or::Keys(keys)) => merged(keys, base, &mut read.under("tls")),
        _ => base,
    };
    let message = match (spoken, tls.alpn) {
        (Alpn::Http2, Alpn::Http1 | Alpn::Off) => {
            "HTTP/2 over TLS is agreed on as `h2`; remove `alpn`, which is then `[h2]`"
        }
        (Alpn::Http1 | Alpn::Off, Alpn::Http2) => {
            "`h2` is offered where it is spoken; write `http2: true` in the probe"
        }
        _ => return Some(tls),
    };
    read.under("tls").error("alpn", message);
    Some(tls)
}

/// `base`, but for what is written in the mapping that `read` stands on.
fn merged(keys: &TlsKeys, base: Tls, read: &mut Reading<'_>) -> Tls {
    let sni = read.text("sni", &keys.sni, |text| match text {
        "member" => Ok(None),
        name => host_name(name).map(Some).map_err(|e| format!("{e}; `sni` is a name without a port, or `member`")),
    });
    let ca = read.text("ca", &keys.ca, |text| match text {
        "system" => Ok(None),
        path => pem_file("ca", path).map(Some),
    });
    Tls {
        sni: sni.unwrap_or(base.sni),
        verify: keys.verify.map_or(base.verify, |Spelled(verify)| verify),
        ca: ca.unwrap_or(base.ca),
        client: client(&keys.client_cert, &keys.client_key, base.client, read),
        alpn: keys.alpn.unwrap_or(base.alpn),
    }
}

/// Certificate and key come together; `off` is none, where the traffic has one.
fn client(
    cert: &Written<Text>,
    key: &Written<Text>,
    base: Option<ClientCertificate>,
    read: &mut Reading<'_>,
) -> Option<ClientCertificate> {
    let is_off = matches!(cert, Some(Spelled(Text(word))) if word == "off");
    if is_off && key.is_some() {
        read.error("client_key", "`client_key` has no meaning with `client_cert: off`; remove one of them");
    }
    if is_off {
        return None;
    }
    match (cert.is_some(), key.is_some()) {
        (true, false) => read.missing("client_key", "`client_cert` needs its `client_key`, a PEM file"),
        (false, true) => read.missing("client_cert", "`client_key` needs its `client_cert`, a PEM file"),
        _ => {}
    }
    let cert = read.text("client_cert", cert, |path| pem_file("client_cert", path));
    let key = read.text("client_key", key, |path| pem_file("client_key", path));
    match (cert, key) {
        (Some(cert), Some(key)) => Some(ClientCertificate { cert, key }),
        _ => base,
    }
}

fn pem_file(key: &str, path: &str) -> Result<PathBuf, String> {
    let fits = !path.is_empty() && !path.contains('\0');
    if fits { Ok(PathBuf::from(path)) } else { Err(format!("`{key}` is the path of a PEM file")) }
}

/// Pingora asks for `a-b.example.com` where `a_b.example.com` is meant, and verifies that.
fn refuse_rewritten(tls: &Tls, members: &[Member], pool: At<'_>, at: At<'_>, read: &mut Reading<'_>) {
    let rewritten =
        |name: &str| name.split_once('.').is_some_and(|(first, rest)| first.contains('_') && rest.contains('.'));
    let words = |name: &str| format!("`{}`: a name with `_` in its first part cannot be verified", shown(name));
    if let Some(name) = &tls.sni {
        if rewritten(name) {
            read.problems.error(at.key("sni"), words(name));
        }
        return;
    }
    for (member, item) in members.iter().zip(places(pool)).filter(|(member, _)| rewritten(member.own_name())) {
        let message = format!("{}; write `tls: {{ sni: … }}`, or the member's `host`", words(member.own_name()));
        read.problems.error(item, message);
    }
}
