//! Words a key may have for a value, and values that are a word or a mapping.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::domain::{Alpn, HashKey, ProbeMethod};
use super::probe::is_token_byte;
use super::spelling::{Spelled, Spelling, Text, shown, word};
use crate::balance::{Memory, Policy};
use crate::health::{Admin, Initial, OnAllUnhealthy};

/// The word that switches something off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Off;

impl Spelling for Off {
    const EXPECTED: &'static str = "`off` or a mapping";

    fn read(text: &str) -> Result<Off, String> {
        match text {
            "off" => Ok(Off),
            "false" | "no" | "none" => Err(format!("`{text}` is not known here; write `off`")),
            "stdout" => Err("write `{ path: stdout }`".to_owned()),
            "json" | "combined" => Err(format!("write `{{ format: {text} }}`")),
            address if address.parse::<SocketAddr>().is_ok() => Err(format!("write `{{ address: \"{address}\" }}`")),
            _ => Err(format!("`{}` is not known here; write `off` or a mapping", shown(text))),
        }
    }
}

/// One of the `pools` of a route, by its name alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolWord(pub(super) String);

impl Spelling for PoolWord {
    const EXPECTED: &'static str = "a pool's name, or a mapping such as `{ pool: web, when: region }`";

    fn read(text: &str) -> Result<PoolWord, String> {
        Ok(PoolWord(text.to_owned()))
    }

    fn read_unquoted(text: &str) -> Result<PoolWord, String> {
        Text::read_unquoted(text).map(|Text(text)| PoolWord(text))
    }
}

/// `probe: off`, `probe: tcp` and `probe: grpc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeWord {
    Off,
    Tcp,
    Grpc,
}

impl Spelling for ProbeWord {
    const EXPECTED: &'static str = "`off`, `tcp`, `grpc` or a mapping such as `{ path: /healthz }`";

    fn read(text: &str) -> Result<ProbeWord, String> {
        if text.starts_with('/') {
            return Err(format!("write `{{ path: {} }}`", shown(text)));
        }
        match text {
            "false" | "no" | "none" => Err(format!("`{text}` is not known here; write `off`")),
            "http" => Err("an http probe needs a path; write `{ path: /healthz }`".to_owned()),
            "http2" | "h2" => Err("an http probe needs a path; write `{ path: /healthz, http2: true }`".to_owned()),
            _ => word(text, &[("off", ProbeWord::Off), ("tcp", ProbeWord::Tcp), ("grpc", ProbeWord::Grpc)]),
        }
    }
}

/// `passive: off` and `passive: hasten`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassiveWord {
    Off,
    Hasten,
}

impl Spelling for PassiveWord {
    const EXPECTED: &'static str = "`off`, `hasten` or a mapping such as `{ eject: { consecutive: 5 } }`";

    fn read(text: &str) -> Result<PassiveWord, String> {
        match text {
            "false" | "no" | "none" => Err(format!("`{text}` is not known here; write `off`")),
            "true" | "on" | "yes" => Err(format!("`{text}` is not known here; write `hasten`")),
            "eject" => Err("write `{ eject: {} }` for the defaults, or what they are to be".to_owned()),
            _ => word(text, &[("off", PassiveWord::Off), ("hasten", PassiveWord::Hasten)]),
        }
    }
}

/// `probe.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Http,
    Tcp,
    Grpc,
}

impl Kind {
    /// As it is written.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Http => "http",
            Kind::Tcp => "tcp",
            Kind::Grpc => "grpc",
        }
    }
}

impl Spelling for Kind {
    const EXPECTED: &'static str = "`http`, `tcp` or `grpc`";

    fn read(text: &str) -> Result<Kind, String> {
        match text {
            "https" => Err("write `kind: http` and `scheme: https`".to_owned()),
            "http2" | "h2" | "h2c" => Err("write `kind: http` and `http2: true`".to_owned()),
            "grpcs" => Err("write `kind: grpc` and `scheme: https`".to_owned()),
            _ => word(text, &[("http", Kind::Http), ("tcp", Kind::Tcp), ("grpc", Kind::Grpc)]),
        }
    }
}

/// `probe.scheme`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Spelling for Scheme {
    const EXPECTED: &'static str = "`http` or `https`";

    fn read(text: &str) -> Result<Scheme, String> {
        word(text, &[("http", Scheme::Http), ("https", Scheme::Https)])
    }
}

/// `tls: true` and `tls: false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TlsWord(pub(super) bool);

impl Spelling for TlsWord {
    const EXPECTED: &'static str = "`true`, `false` or a mapping such as `{ ca: /etc/ssl/ca.pem }`";

    fn read(text: &str) -> Result<TlsWord, String> {
        match text {
            "https" | "tls" | "ssl" => Err(format!("`{text}` is not known here; write `true`")),
            "http" | "none" => Err(format!("`{text}` is not known here; write `false`")),
            "insecure" | "skip" | "skip-verify" | "skip_verify" => {
                Err(format!("`{text}` is not known here; write `{{ verify: false }}`, or better `{{ ca: FILE }}`"))
            }
            _ => bool::read(text).map(TlsWord),
        }
    }
}

/// `alpn: [http/1.1]`, `alpn: [h2]` and `alpn: off`.
impl<'de> Deserialize<'de> for Alpn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Alpn, D::Error> {
        deserializer.deserialize_any(AlpnVisitor)
    }
}

struct AlpnVisitor;

impl<'de> Visitor<'de> for AlpnVisitor {
    type Value = Alpn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list such as `[http/1.1]`, or `off`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Alpn, E> {
        match text {
            "off" => Ok(Alpn::Off),
            "none" | "no" => Err(E::custom(format!("`{text}` is not known here; write `off`"))),
            "http/1.1" | "h2" => Err(E::custom(format!("`alpn` is a list; write `[{text}]`"))),
            other => Err(E::custom(unknown_protocol(other))),
        }
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Alpn, E> {
        Err(E::custom(format!("`{value}` is not known here; write `[http/1.1]` or `off`")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Alpn, A::Error> {
        let mut offered = None;
        while let Some(Spelled(Text(protocol))) = list.next_element()? {
            let next = match protocol.as_str() {
                "http/1.1" => Alpn::Http1,
                "h2" => Alpn::Http2,
                other => return Err(de::Error::custom(unknown_protocol(other))),
            };
            if offered.replace(next).is_some_and(|before| before != next) {
                return Err(de::Error::custom(
                    "one protocol is spoken, so one is offered; write `[http/1.1]` or `[h2]`",
                ));
            }
        }
        offered.ok_or_else(|| de::Error::custom("the list is empty; write `[http/1.1]` or `off`"))
    }
}

fn unknown_protocol(name: &str) -> String {
    match name {
        "http/2" | "http2" | "h2c" => format!("`{name}` is not known here; write `[h2]`"),
        _ => format!("`{}` is not known here; write `[http/1.1]` or `off`", shown(name)),
    }
}

impl Spelling for ProbeMethod {
    const EXPECTED: &'static str = "`GET` or `HEAD`";

    fn read(text: &str) -> Result<ProbeMethod, String> {
        word(text, &[("GET", ProbeMethod::Get), ("HEAD", ProbeMethod::Head)])
    }
}

impl Spelling for Admin {
    const EXPECTED: &'static str = "`enabled`, `draining` or `disabled`";

    fn read(text: &str) -> Result<Admin, String> {
        if let "down" | "maint" | "maintenance" | "off" | "false" = text {
            return Err(format!("`{text}` is not known here; write `disabled`, or `draining` to finish what runs"));
        }
        word(text, &[("enabled", Admin::Enabled), ("draining", Admin::Draining), ("disabled", Admin::Disabled)])
    }
}

impl Spelling for Initial {
    const EXPECTED: &'static str = "`probe`, `healthy` or `unhealthy`";

    fn read(text: &str) -> Result<Initial, String> {
        word(text, &[("probe", Initial::Probe), ("healthy", Initial::Healthy), ("unhealthy", Initial::Unhealthy)])
    }
}

impl Spelling for OnAllUnhealthy {
    const EXPECTED: &'static str = "`round_robin` or `fail`";

    fn read(text: &str) -> Result<OnAllUnhealthy, String> {
        word(text, &[("round_robin", OnAllUnhealthy::RoundRobin), ("fail", OnAllUnhealthy::Fail)])
    }
}

/// A policy by its word, with its own defaults.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BalanceWord(pub(super) Policy);

impl Spelling for BalanceWord {
    const EXPECTED: &'static str = "a policy such as `round_robin` or `{ least_requests: { choices: 2 } }`";

    fn read(text: &str) -> Result<BalanceWord, String> {
        match text {
            "ip_hash" | "source" | "client_ip_hash" => {
                return Err(format!("`{text}` is not known here; write `{{ consistent_hash: {{ key: client }} }}`"));
            }
            "uri_hash" | "uri" => {
                return Err(format!("`{text}` is not known here; write `{{ consistent_hash: {{ key: path }} }}`"));
            }
            "hash" | "ring_hash" | "maglev" | "ketama" | "consistent" | "hashing" => {
                return Err(format!("`{text}` is not known here; did you mean `consistent_hash`?"));
            }
            "sticky" | "cookie" => {
                return Err(format!(
                    "`{text}` is not known here; write `sticky: {{ secret: \"${{STICKY_SECRET}}\" }}` beside `balance`, which \
                     binds each client to a member by a cookie"
                ));
            }
            "ewma" | "peakewma" | "p2c_ewma" | "least_time" | "least_response_time" | "response_time" => {
                return Err(format!("`{text}` is not known here; did you mean `peak_ewma`?"));
            }
            "least_conn" | "leastconn" | "least_connections" | "least_request" | "p2c" => {
                return Err(format!("`{text}` is not known here; did you mean `least_requests`?"));
            }
            "rr" | "wrr" | "weighted" | "weighted_round_robin" | "static-rr" => {
                return Err(format!("`{text}` is not known here; write `round_robin`, which goes by weight"));
            }
            _ => {}
        }
        let words = [
            ("round_robin", Policy::RoundRobin),
            ("least_requests", Policy::LeastRequests { choices: DEFAULT_CHOICES }),
            ("random", Policy::Random),
            ("fastest", Policy::Fastest { sensitivity: DEFAULT_SENSITIVITY }),
            ("peak_ewma", Policy::PeakEwma(DEFAULT_MEMORY)),
            ("consistent_hash", Policy::ConsistentHash { bounded_load_percent: None }),
        ];
        word(text, &words).map(BalanceWord)
    }
}

/// `consistent_hash.key`.
impl Spelling for HashKey {
    const EXPECTED: &'static str = "`client`, `path`, `header:NAME`, `cookie:NAME` or `query:NAME`";

    fn read(text: &str) -> Result<HashKey, String> {
        let Some((kind, name)) = text.split_once(':') else {
            return match text {
                "ip" | "source" | "client_ip" | "remote_addr" | "remote_ip" => {
                    Err(format!("`{text}` is not known here; write `client`"))
                }
                "uri" | "url" => Err(format!("`{text}` is not known here; write `path`")),
                "header" | "cookie" | "query" => Err(format!("`{text}` needs a name; write `{text}:NAME`")),
                "client" => Ok(HashKey::Client),
                "path" => Ok(HashKey::Path),
                _ => Err(format!("`{}` is not known here; write {}", shown(text), HashKey::EXPECTED)),
            };
        };
        let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
        let is_parameter = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && !b"&=#?".contains(&b));
        match kind {
            "header" if is_token => Ok(HashKey::Header(name.to_ascii_lowercase())),
            "cookie" if is_token => Ok(HashKey::Cookie(name.to_owned())),
            "query" if is_parameter => Ok(HashKey::Query(name.to_owned())),
            "header" | "cookie" | "query" => Err(format!("`{}` cannot be the name of a {kind}", shown(name))),
            _ => Err(format!("`{}` is not known here; write {}", shown(kind), HashKey::EXPECTED)),
        }
    }
}

/// Members compared by `least_requests` where `choices` is not written.
pub(super) const DEFAULT_CHOICES: u8 = 2;
/// `latency_sensitivity` where it is not written (health.md §5).
pub(super) const DEFAULT_SENSITIVITY: std::time::Duration = std::time::Duration::from_millis(50);
/// `peak_ewma` where nothing of it is written.
pub(super) const DEFAULT_MEMORY: Memory =
    Memory { decay: std::time::Duration::from_secs(10), sensitivity: DEFAULT_SENSITIVITY };

/// Fields of a probe, in the order written.
#[derive(Debug, Clone, Default)]
pub(super) struct Headers(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Headers, D::Error> {
        deserializer.deserialize_map(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping such as `{ X-Probe: pulsegate }`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, Spelled(Text(value)))) = map.next_entry()? {
            fields.push((name, value));
        }
        Ok(Headers(fields))
    }
}

/// A scalar, or a mapping that says more.
#[derive(Debug)]
pub(super) enum Or<W, K> {
    Word(W),
    Keys(K),
}

impl<'de, W: Spelling, K: Deserialize<'de>> Deserialize<'de> for Or<W, K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Or<W, K>, D::Error> {
        deserializer.deserialize_any(OrVisitor(PhantomData))
    }
}

struct OrVisitor<W, K>(PhantomData<(W, K)>);

impl<'de, W: Spelling, K: Deserialize<'de>> Visitor<'de> for OrVisitor<W, K> {
    type Value = Or<W, K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(W::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Or<W, K>, E> {
        W::read(text).map(Or::Word).map_err(E::custom)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Or<W, K>, E> {
        W::read_unquoted(&value.to_string()).map(Or::Word).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Or<W, K>, E> {
        W::read_unquoted(&value.to_string()).map(Or::Word).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Or<W, K>, E> {
        W::read_unquoted(&value.to_string()).map(Or::Word).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Or<W, K>, E> {
        W::read_unquoted(&value.to_string()).map(Or::Word).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Or<W, K>, A::Error> {
        K::deserialize(MapAccessDeserializer::new(map)).map(Or::Keys)
    }
}
