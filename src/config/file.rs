//! What can be written: one struct for each mapping of proxy.yaml, every key optional, unknown keys refused.
//!
//! Nothing here has a default or a meaning: `parse` and its neighbours give both. A new key is a line here, one in
//! its neighbour, and a row in docs/configuration.md, which a test watches.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::access_log::{LogFormat, Sample};
use super::address::{Address, NameServer};
use super::domain::{Alpn, HashKey, ProbeMethod};
use super::preset::Preset;
use super::proof::Unquoted;
use super::spelling::{Bytes, Share, Spelled, Statuses, Text, Written};
use super::sticky::{SameSite, Secure};
use super::words::{BalanceWord, Headers, Kind, Off, Or, PassiveWord, PoolWord, ProbeWord, Scheme, TlsWord};
use crate::health::{Admin, Initial, OnAllUnhealthy};
use crate::route::Host;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping with `listeners`, `pools` and `routes`")]
pub(super) struct File {
    pub(super) version: Written<u64>,
    pub(super) listeners: Option<Vec<ListenerKeys>>,
    pub(super) admin: Option<Or<Off, AdminKeys>>,
    pub(super) access_log: Option<Or<Off, AccessLogKeys>>,
    pub(super) trusted_proxies: Option<Vec<Spelled<IpNet>>>,
    pub(super) lame_duck: Written<Duration>,
    pub(super) drain_timeout: Written<Duration>,
    pub(super) max_concurrent_probes: Written<u64>,
    pub(super) max_probes_per_second: Written<u64>,
    pub(super) diagnostics: Option<Or<Off, DiagnosticsKeys>>,
    pub(super) threads: Written<u64>,
    pub(super) resolver: Option<ResolverKeys>,
    pub(super) reload: Option<ReloadKeys>,
    pub(super) state_dir: Written<Text>,
    pub(super) remediation: Option<AllRemediationKeys>,
    pub(super) alerts: Option<Vec<AlertKeys>>,
    pub(super) pools: Option<BTreeMap<String, PoolKeys>>,
    pub(super) composites: Option<BTreeMap<String, CompositeKeys>>,
    pub(super) routes: Option<Vec<RouteKeys>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a listener such as `{ address: \"0.0.0.0:8080\" }`")]
pub(super) struct ListenerKeys {
    pub(super) address: Written<SocketAddr>,
    pub(super) name: Written<Text>,
    pub(super) max_connections: Written<u64>,
    pub(super) header_timeout: Written<Duration>,
    pub(super) keepalive_timeout: Written<Duration>,
    pub(super) keepalive_requests: Written<u64>,
    pub(super) body_timeout: Written<Duration>,
    pub(super) write_timeout: Written<Duration>,
    pub(super) max_header_bytes: Written<Bytes>,
    pub(super) max_header_fields: Written<u64>,
    pub(super) max_uri_bytes: Written<Bytes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "`off`, or a mapping such as `{ address: \"127.0.0.1:9900\" }`")]
pub(super) struct AdminKeys {
    pub(super) address: Written<SocketAddr>,
    pub(super) token: Written<Unquoted>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "`off`, or a mapping such as `{ path: stdout }`")]
pub(super) struct AccessLogKeys {
    pub(super) path: Written<Text>,
    pub(super) format: Written<LogFormat>,
    pub(super) filter: Option<FilterKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ status: \"400-599\", sample: 1% }`")]
pub(super) struct FilterKeys {
    pub(super) status: Written<Statuses>,
    pub(super) min_duration: Written<Duration>,
    pub(super) sample: Written<Sample>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "`off`, or a mapping such as `{ path: /var/lib/pulsegate/diagnostics }`"
)]
pub(super) struct DiagnosticsKeys {
    pub(super) path: Written<Text>,
    pub(super) max_files: Written<u64>,
    pub(super) max_bytes: Written<Bytes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ servers: [\"10.0.0.53\"] }`")]
pub(super) struct ResolverKeys {
    pub(super) servers: Option<Vec<Spelled<NameServer>>>,
    pub(super) timeout: Written<Duration>,
    pub(super) min_refresh: Written<Duration>,
    pub(super) max_refresh: Written<Duration>,
    pub(super) grace: Written<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ watch: true, every: 10s }`")]
pub(super) struct ReloadKeys {
    pub(super) watch: Written<bool>,
    pub(super) every: Written<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ max_global: 10 }`")]
pub(super) struct AllRemediationKeys {
    pub(super) max_global: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "an alert such as `{ webhook: { url: …, secret: … }, on: [fallback] }`"
)]
pub(super) struct AlertKeys {
    pub(super) name: Written<Text>,
    pub(super) webhook: Option<WebhookKeys>,
    pub(super) on: Option<Vec<Spelled<Text>>>,
    pub(super) pools: Option<Vec<Spelled<Text>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a pool such as `{ members: [\"10.0.0.1:8080\"] }`")]
pub(super) struct PoolKeys {
    pub(super) preset: Written<Preset>,
    pub(super) members: Option<Vec<Or<Address, MemberKeys>>>,
    pub(super) balance: Option<Or<BalanceWord, BalanceKeys>>,
    pub(super) max_unhealthy_percent: Written<u64>,
    pub(super) min_ejected: Written<u64>,
    pub(super) on_all_unhealthy: Written<OnAllUnhealthy>,
    pub(super) tier_min_healthy_percent: Written<u64>,
    pub(super) aggregate: Option<AggregateKeys>,
    pub(super) initial: Written<Initial>,
    pub(super) initial_wait: Written<Duration>,
    pub(super) slow_start: Written<Duration>,
    pub(super) drain: Written<Duration>,
    pub(super) probe: Option<Or<ProbeWord, ProbeKeys>>,
    pub(super) upstream: Option<UpstreamKeys>,
    pub(super) retries: Option<RetryKeys>,
    pub(super) passive: Option<Or<PassiveWord, PassiveKeys>>,
    pub(super) rescue: Written<bool>,
    pub(super) tunnels: Option<TunnelKeys>,
    pub(super) deadline: Written<Duration>,
    pub(super) required: Written<bool>,
    pub(super) max_in_flight: Written<u64>,
    pub(super) max_connections: Written<u64>,
    pub(super) each_member: Option<CapacityKeys>,
    pub(super) queue: Option<QueueKeys>,
    pub(super) remediation: Option<Or<Off, RemediationKeys>>,
    pub(super) sticky: Option<Or<Off, StickyKeys>>,
    pub(super) observe: Option<ObserveKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "the rules to try, as in `{ max_latency: 500ms }`")]
pub(super) struct ObserveKeys {
    pub(super) max_unhealthy_percent: Written<u64>,
    pub(super) min_ejected: Written<u64>,
    pub(super) on_all_unhealthy: Written<OnAllUnhealthy>,
    pub(super) tier_min_healthy_percent: Written<u64>,
    pub(super) aggregate: Option<AggregateKeys>,
    pub(super) window: Option<WindowKeys>,
    pub(super) consecutive: Option<ConsecutiveKeys>,
    pub(super) max_latency: Written<Duration>,
    pub(super) max_latency_ratio: Written<f64>,
    pub(super) latency_floor: Written<Duration>,
    pub(super) passive: Option<PassiveKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "`off`, or a mapping such as `{ cookie: shop-member, secret: \"${STICKY_SECRET}\" }`"
)]
pub(super) struct StickyKeys {
    pub(super) cookie: Written<Text>,
    pub(super) ttl: Written<Duration>,
    pub(super) secret: Written<Unquoted>,
    pub(super) secret_file: Written<Text>,
    pub(super) previous_secret: Written<Unquoted>,
    pub(super) previous_secret_file: Written<Text>,
    pub(super) same_site: Written<SameSite>,
    pub(super) secure: Written<Secure>,
    pub(super) http_only: Written<bool>,
    pub(super) path: Written<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ min_healthy_percent: 60, min_healthy: 1 }`")]
pub(super) struct AggregateKeys {
    pub(super) min_healthy_percent: Written<u64>,
    pub(super) min_healthy: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ eject: { consecutive: 5 } }`")]
pub(super) struct PassiveKeys {
    pub(super) eject: Option<EjectKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ consecutive: 5, ratio: 50% }`")]
pub(super) struct EjectKeys {
    pub(super) consecutive: Written<u64>,
    pub(super) ratio: Written<Share>,
    pub(super) window: Written<Duration>,
    pub(super) min_requests: Written<u64>,
    pub(super) base: Written<Duration>,
    pub(super) max: Written<Duration>,
    pub(super) probe_clears: Written<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ max_in_flight: 100 }`")]
pub(super) struct CapacityKeys {
    pub(super) max_in_flight: Written<u64>,
    pub(super) max_connections: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ size: 100, timeout: 5s }`")]
pub(super) struct QueueKeys {
    pub(super) size: Written<u64>,
    pub(super) timeout: Written<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "`off`, or a mapping such as `{ after: 1h, command: [\"/usr/local/bin/replace\"] }`"
)]
pub(super) struct RemediationKeys {
    pub(super) after: Written<Duration>,
    pub(super) command: Option<Vec<Spelled<Text>>>,
    pub(super) timeout: Written<Duration>,
    pub(super) webhook: Option<WebhookKeys>,
    pub(super) max_per_hour: Written<u64>,
    pub(super) max_per_day: Written<u64>,
    pub(super) observe: Written<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a mapping such as `{ url: \"https://ops.example/replace\", secret: \"${WEBHOOK_SECRET}\" }`"
)]
pub(super) struct WebhookKeys {
    pub(super) url: Written<Text>,
    pub(super) secret: Written<Unquoted>,
    pub(super) secret_file: Written<Text>,
    pub(super) timeout: Written<Duration>,
    pub(super) retries: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a member such as `{ address: \"10.0.0.1:8080\", weight: 2 }`")]
pub(super) struct MemberKeys {
    pub(super) address: Written<Address>,
    pub(super) srv: Written<Text>,
    pub(super) file: Written<Text>,
    pub(super) host: Written<Text>,
    pub(super) weight: Written<u64>,
    pub(super) tier: Written<u64>,
    pub(super) state: Written<Admin>,
    pub(super) max_in_flight: Written<u64>,
    pub(super) max_connections: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a policy such as `round_robin` or `{ least_requests: { choices: 2 } }`"
)]
pub(super) struct BalanceKeys {
    pub(super) least_requests: Option<LeastRequestsKeys>,
    pub(super) fastest: Option<FastestKeys>,
    pub(super) peak_ewma: Option<PeakEwmaKeys>,
    pub(super) consistent_hash: Option<ConsistentHashKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ choices: 2 }`")]
pub(super) struct LeastRequestsKeys {
    pub(super) choices: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ key: client }`")]
pub(super) struct ConsistentHashKeys {
    pub(super) key: Written<HashKey>,
    pub(super) bounded_load_percent: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ latency_sensitivity: 50ms }`")]
pub(super) struct FastestKeys {
    pub(super) latency_sensitivity: Written<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ decay: 10s }`")]
pub(super) struct PeakEwmaKeys {
    pub(super) decay: Written<Duration>,
    pub(super) latency_sensitivity: Written<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a probe such as `{ path: /healthz }`, or `tcp` or `off`")]
pub(super) struct ProbeKeys {
    pub(super) kind: Written<Kind>,
    pub(super) service: Written<Text>,
    pub(super) method: Written<ProbeMethod>,
    pub(super) path: Written<Text>,
    pub(super) host: Written<Text>,
    pub(super) host_header: Written<Text>,
    pub(super) scheme: Written<Scheme>,
    pub(super) tls: Option<Or<TlsWord, TlsKeys>>,
    pub(super) http2: Written<bool>,
    pub(super) reuse: Written<bool>,
    pub(super) port: Written<u64>,
    pub(super) bind: Written<IpAddr>,
    pub(super) auth: Option<AuthKeys>,
    pub(super) interval: Written<Duration>,
    pub(super) fast_interval: Written<Duration>,
    pub(super) timeout: Written<Duration>,
    pub(super) idle: Option<Or<Off, IdleKeys>>,
    pub(super) headers: Option<Headers>,
    pub(super) expect: Option<ExpectKeys>,
    pub(super) max_body: Written<Bytes>,
    pub(super) window: Option<WindowKeys>,
    pub(super) consecutive: Option<ConsecutiveKeys>,
    pub(super) max_latency: Written<Duration>,
    pub(super) max_latency_ratio: Written<f64>,
    pub(super) latency_floor: Written<Duration>,
    pub(super) observe: Written<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a mapping such as `{ header: x-probe-auth, secret: \"${PROBE_SECRET}\" }`"
)]
pub(super) struct AuthKeys {
    pub(super) header: Written<Text>,
    pub(super) secret: Written<Unquoted>,
    pub(super) secret_file: Written<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "`off`, or a mapping such as `{ after: 5m, interval: 2m }`")]
pub(super) struct IdleKeys {
    pub(super) after: Written<Duration>,
    pub(super) interval: Written<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ ca: /etc/ssl/ca.pem }`")]
pub(super) struct TlsKeys {
    pub(super) sni: Written<Text>,
    pub(super) verify: Written<bool>,
    pub(super) ca: Written<Text>,
    pub(super) client_cert: Written<Text>,
    pub(super) client_key: Written<Text>,
    pub(super) alpn: Option<Alpn>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ status: \"200-299\" }`")]
pub(super) struct ExpectKeys {
    pub(super) status: Written<Statuses>,
    pub(super) headers: Option<Headers>,
    pub(super) body: Written<Text>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ size: 5, required: 3 }`")]
pub(super) struct WindowKeys {
    pub(super) size: Written<u64>,
    pub(super) required: Written<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ failures: 3, passes: 1 }`")]
pub(super) struct ConsecutiveKeys {
    pub(super) failures: Written<u64>,
    pub(super) passes: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ connect_timeout: 3s }`")]
pub(super) struct UpstreamKeys {
    pub(super) connect_timeout: Written<Duration>,
    pub(super) read_timeout: Written<Duration>,
    pub(super) write_timeout: Written<Duration>,
    pub(super) idle_timeout: Written<Duration>,
    pub(super) host: Written<Text>,
    pub(super) tls: Option<Or<TlsWord, TlsKeys>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ attempts: 2 }`")]
pub(super) struct RetryKeys {
    pub(super) attempts: Written<u64>,
    pub(super) connect: Written<u64>,
    pub(super) budget: Written<Share>,
    pub(super) per_try_timeout: Written<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ idle: 1h, drain: 30s }`")]
pub(super) struct TunnelKeys {
    pub(super) idle: Written<Duration>,
    pub(super) drain: Written<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a composite such as `{ sources: [api, web] }`")]
pub(super) struct CompositeKeys {
    pub(super) sources: Option<Vec<Spelled<Text>>>,
    pub(super) publish: Option<PublishKeys>,
    pub(super) observe: Written<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ path: /.well-known/region-health }`")]
pub(super) struct PublishKeys {
    pub(super) path: Written<Text>,
    pub(super) host: Written<Host>,
    pub(super) listener: Written<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a route such as `{ path: /, pool: web }`")]
pub(super) struct RouteKeys {
    pub(super) host: Written<Host>,
    pub(super) path: Written<Text>,
    pub(super) pool: Written<Text>,
    pub(super) pools: Option<Vec<Or<PoolWord, RankKeys>>>,
    pub(super) failback_delay: Written<Duration>,
    pub(super) no_failback: Written<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a pool's name, or a mapping such as `{ pool: web, when: region }`")]
pub(super) struct RankKeys {
    pub(super) pool: Written<Text>,
    pub(super) when: Written<Text>,
}
