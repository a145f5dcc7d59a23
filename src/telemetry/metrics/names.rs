//! Every metric: its name, what it is, its labels in their order, and what it says (docs/metrics.md has the same).
//!
//! A name is a contract: dashboards and alerts are written against it. Names and units are those of Prometheus's own
//! conventions: seconds and bytes, `_total` for what only grows, and `process_` for what every process has.

#![expect(missing_docs, reason = "the help of a metric is what there is to say of it")]

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// With its unit at the end.
    pub name: &'static str,
    /// What its values mean.
    pub kind: Kind,
    /// Names of its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// For people.
    pub help: &'static str,
}

/// What the values of a metric mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from the start of whom it is about.
    Counter,
    /// It is so now.
    Gauge,
    /// Times in buckets.
    Histogram,
}

impl Kind {
    /// The word of the text format.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

pub const REQUESTS: Metric = counter(
    "pulsegate_requests_total",
    &["listener", "route", "pool", "code"],
    "Requests that are over, one for each line of the access log, written or not. Code: the status, or none where the client got no answer.",
);

pub const REQUEST_DURATION: Metric = histogram(
    "pulsegate_request_duration_seconds",
    &["pool"],
    "From a request's first byte until it was over, of those that had a pool; without tunnels.",
);

pub const ATTEMPTS: Metric = counter(
    "pulsegate_upstream_attempts_total",
    &["pool", "member", "result"],
    "Attempts at a member that are over, by how they ended.",
);

pub const CONNECT_DURATION: Metric = histogram(
    "pulsegate_upstream_connect_seconds",
    &["pool"],
    "From an attempt's start until its new connection to a member stood, TLS and the wait for a place included.",
);

pub const RETRIES: Metric = counter(
    "pulsegate_retries_total",
    &["pool", "reason"],
    "Attempts that followed another of the same request, by how that one had ended.",
);

pub const STICKY_COOKIES: Metric = counter(
    "pulsegate_sticky_cookies_total",
    &["pool", "reason"],
    "Cookies set that bind a client to a member, by why; of pools with `sticky`.",
);

pub const CONNECTIONS: Metric = gauge(
    "pulsegate_connections",
    &["listener", "state"],
    "Connections of clients that are open: active with a request or as a tunnel, idle without.",
);

pub const CONNECTIONS_ACCEPTED: Metric =
    counter("pulsegate_connections_accepted_total", &["listener"], "Connections of clients that were taken.");

pub const CONNECTIONS_REFUSED: Metric =
    counter("pulsegate_connections_refused_total", &["listener"], "Connections closed at once, over a limit on them.");

pub const ROUTE_RANK: Metric =
    gauge("pulsegate_route_rank", &["route"], "Which of the route's pools serves, 0 first, where it has several.");

pub const ROUTE_ABLE_POOLS: Metric =
    gauge("pulsegate_route_able_pools", &["route"], "How many of the route's pools can serve, where it has several.");

pub const ROUTE_FAILOVERS: Metric = counter(
    "pulsegate_route_failovers_total",
    &["route", "reason"],
    "How often another pool of the route came to serve, by why, where it has several.",
);

pub const POOL_MODE: Metric =
    gauge("pulsegate_pool_mode", &["pool", "mode"], "1 for the mode that the pool is in, 0 for the others.");

pub const POOL_STATE: Metric = gauge(
    "pulsegate_pool_state",
    &["pool", "state"],
    "1 for the state that the pool is in as a whole, by its aggregate, 0 for the others.",
);

pub const COMPOSITE_STATE: Metric = gauge(
    "pulsegate_composite_state",
    &["name", "state"],
    "1 for the state that the composite is in, 0 for the others.",
);

pub const POOL_IN_ROTATION: Metric = gauge(
    "pulsegate_pool_in_rotation",
    &["pool"],
    "Members of the serving tier that take traffic; where no tier serves, members that do.",
);

pub const POOL_TIER_MEMBERS: Metric =
    gauge("pulsegate_pool_tier_members", &["pool"], "Members of the serving tier; where no tier serves, of the pool.");

pub const POOL_MEMBERS: Metric = gauge("pulsegate_pool_members", &["pool"], "Members of the pool, of all tiers.");

pub const POOL_UNRESOLVED: Metric =
    gauge("pulsegate_pool_unresolved_members", &["pool"], "Members whose name has no address.");

pub const POOL_TROUBLED: Metric = gauge(
    "pulsegate_pool_troubled_members",
    &["pool"],
    "Members whose name, service or file cannot be asked or read now; most keep what was known.",
);
pub const POOL_TROUBLED_SOURCES: Metric = gauge(
    "pulsegate_pool_troubled_sources",
    &["pool"],
    "Services and files of members that cannot be asked or read now, whoever they name.",
);

pub const POOL_EJECTABLE: Metric = gauge(
    "pulsegate_pool_ejectable",
    &["pool"],
    "Members of the serving tier that the cap allows to be ejected at once.",
);

pub const POOL_EJECTED: Metric =
    gauge("pulsegate_pool_ejected", &["pool"], "Members of the serving tier that are ejected.");

pub const POOL_FALLBACKS: Metric =
    counter("pulsegate_pool_fallback_total", &["pool"], "How often the pool entered the fallback.");

pub const POOL_IN_FLIGHT: Metric = gauge(
    "pulsegate_pool_in_flight",
    &["pool"],
    "Requests that members are serving, those that have left the pool included.",
);

pub const POOL_MAX_IN_FLIGHT: Metric =
    gauge("pulsegate_pool_max_in_flight", &["pool"], "The pool's limit on requests at once, where it has one.");

pub const POOL_CONNECTIONS: Metric =
    gauge("pulsegate_pool_connections", &["pool"], "Open connections to members, where the pool has a limit on them.");

pub const POOL_MAX_CONNECTIONS: Metric =
    gauge("pulsegate_pool_max_connections", &["pool"], "The pool's limit on connections at once, where it has one.");

pub const POOL_QUEUE_LENGTH: Metric =
    gauge("pulsegate_pool_queue_length", &["pool"], "Requests that wait for room, where the pool has a queue.");

pub const POOL_QUEUE_SIZE: Metric =
    gauge("pulsegate_pool_queue_size", &["pool"], "Requests that may wait for room, where the pool has a queue.");

pub const POOL_TURNED_AWAY: Metric = counter(
    "pulsegate_pool_turned_away_total",
    &["pool"],
    "Requests refused because they found no room, not even after a wait.",
);

pub const POOL_TUNNELS: Metric =
    gauge("pulsegate_pool_tunnels", &["pool"], "Open tunnels, such as WebSockets, on members.");

pub const MEMBER_UP: Metric = gauge(
    "pulsegate_member_up",
    &["pool", "member"],
    "1 while the member's verdict is healthy, whether it gets traffic or not; 0 otherwise.",
);

pub const MEMBER_STANDING: Metric = gauge(
    "pulsegate_member_standing",
    &["pool", "member", "standing"],
    "1 for the standing that the member has; the others are left out.",
);

pub const MEMBER_WEIGHT: Metric =
    gauge("pulsegate_member_weight", &["pool", "member"], "The member's configured weight.");

pub const MEMBER_RAMP: Metric = gauge(
    "pulsegate_member_ramp",
    &["pool", "member"],
    "The part of its weight that a member in its slow start has; others are left out.",
);

pub const MEMBER_TIER: Metric = gauge("pulsegate_member_tier", &["pool", "member"], "The member's tier, 0 first.");

pub const MEMBER_IN_FLIGHT: Metric =
    gauge("pulsegate_member_in_flight", &["pool", "member"], "Requests that the member is serving, tunnels included.");

pub const MEMBER_MAX_IN_FLIGHT: Metric = gauge(
    "pulsegate_member_max_in_flight",
    &["pool", "member"],
    "The member's limit on requests at once, where it has one.",
);

pub const MEMBER_CONNECTIONS: Metric = gauge(
    "pulsegate_member_connections",
    &["pool", "member"],
    "Open connections to the member, where it or its pool has a limit on them.",
);

pub const MEMBER_MAX_CONNECTIONS: Metric = gauge(
    "pulsegate_member_max_connections",
    &["pool", "member"],
    "The member's limit on connections at once, where it has one.",
);

pub const MEMBER_LATENCY: Metric = gauge(
    "pulsegate_member_latency_seconds",
    &["pool", "member"],
    "Median of what the member's last right answers to probes took.",
);

pub const MEMBER_PEAK: Metric = gauge(
    "pulsegate_member_peak_seconds",
    &["pool", "member"],
    "What the member's answers to requests took of late, where `peak_ewma` goes by it.",
);

pub const MEMBER_TRANSITIONS: Metric = counter(
    "pulsegate_member_transitions_total",
    &["pool", "member", "to", "reason"],
    "Changes of the member's verdict, by what it became and, where that is unhealthy, the reason of the fail that decided.",
);

pub const REMEDIATION: Metric = counter(
    "pulsegate_remediation_total",
    &["pool", "result"],
    "Decisions on replacing members, of pools that do. Deferred: a limit was used up, or it could not be noted down; spared: the machine serves another pool that does not fail there; refused: wanted by hand; queued: as many were under way as may be; dropped: given up before it began.",
);

pub const REMEDIATION_WAITING: Metric = gauge(
    "pulsegate_remediation_waiting",
    &["pool"],
    "Members that are due for replacement and wait, of pools that replace members.",
);

pub const REMEDIATION_RUNNING: Metric =
    gauge("pulsegate_remediation_running", &["pool"], "Replacements under way, of pools that replace members.");

pub const REMEDIATION_QUEUED: Metric = gauge(
    "pulsegate_remediation_queued",
    &["pool"],
    "Replacements that wait until fewer are under way, of pools that replace members.",
);

pub const REMEDIATION_USED: Metric = gauge(
    "pulsegate_remediation_used",
    &["pool", "limit"],
    "Replacements that count under the pool's limits, within the last hour and day; as many as they allow while an earlier record is lost.",
);

pub const REMEDIATION_LIMIT: Metric = gauge(
    "pulsegate_remediation_limit",
    &["pool", "limit"],
    "How many the pool's limits allow, within an hour and a day.",
);

pub const REMEDIATION_GLOBAL_USED: Metric =
    gauge("pulsegate_remediation_global_used", &[], "Replacements in all pools within the last 12 hours.");

pub const REMEDIATION_GLOBAL_LIMIT: Metric =
    gauge("pulsegate_remediation_global_limit", &[], "How many all pools together are allowed within 12 hours.");

pub const REMEDIATION_LOST: Metric = gauge(
    "pulsegate_remediation_record_lost",
    &[],
    "Whether an earlier record of what was replaced is lost, so that every limit counts as used up: 1 or 0.",
);

pub const ALERTS: Metric = counter(
    "pulsegate_alerts_total",
    &["alert", "result"],
    "What each alert has told: sent, failed (not taken after all its retries; tried again later, and counted again), dropped (given up: an end refused or not taken for a day, too much open, or the alert taken out).",
);

pub const ALERTS_OPEN: Metric = gauge(
    "pulsegate_alerts_open",
    &["alert"],
    "What each alert has told of, as far as that was taken and is not over.",
);

pub const ALERTS_WAITING: Metric =
    gauge("pulsegate_alerts_waiting", &["alert"], "What each alert has still to send, what is being tried included.");

pub const STATE_AGE: Metric = gauge(
    "pulsegate_state_age_seconds",
    &[],
    "How long ago it was written down what is known of members, where there is a state_dir; since the start where it never was.",
);

pub const STATE_FAILURES: Metric = counter(
    "pulsegate_state_write_failures_total",
    &[],
    "How often it could not be written down what is known of members, where there is a state_dir.",
);

pub const PROBES: Metric = counter(
    "pulsegate_probe_total",
    &["pool", "member", "result", "reason"],
    "Probes of the member that are over, by result and, of a fail, its reason.",
);

pub const PROBE_DURATION: Metric = gauge(
    "pulsegate_probe_duration_seconds",
    &["pool", "member", "phase"],
    "What the member's last probe took, by the phases it came to.",
);

pub const PROBE_AGE: Metric =
    gauge("pulsegate_probe_last_age_seconds", &["pool", "member"], "How long ago the member's last probe ended.");

pub const PASSIVE_EJECTIONS: Metric = counter(
    "pulsegate_passive_ejections_total",
    &["pool", "member"],
    "How often traffic has made the member unhealthy; whether it left the rotation was the cap's matter.",
);

pub const PROBES_HASTENED: Metric = counter(
    "pulsegate_probes_hastened_total",
    &["pool", "member"],
    "Probes that were made at once, since traffic had met the member failing.",
);

pub const PROBES_LATE: Metric =
    counter("pulsegate_probes_late_total", &[], "Probes that were due and had to wait for a place.");

pub const PROBES_IN_FLIGHT: Metric = gauge("pulsegate_probes_in_flight", &[], "Probes under way.");

pub const PROBE_LATENESS: Metric = histogram(
    "pulsegate_probe_lateness_seconds",
    &[],
    "From when a probe was due until it began, whatever it waited for; without the first of a member and those asked for.",
);

pub const PROBES_ASKED: Metric = gauge(
    "pulsegate_probes_per_second",
    &[],
    "Probes a second that are asked for now, in doubt and idle as members are; what pools share counts once.",
);

pub const PROBES_CEILING: Metric =
    gauge("pulsegate_probes_per_second_limit", &[], "The ceiling on probes a second, where there is one.");

pub const PROBES_STRETCH: Metric = gauge(
    "pulsegate_probe_interval_stretch",
    &[],
    "By what intervals are multiplied to stay under the ceiling; 1 where they are as written.",
);

pub const PROBE_PANICS: Metric =
    counter("pulsegate_probe_panics_total", &[], "Probes that ended in a fault of the proxy; each is made again.");

pub const EVENTS: Metric = counter(
    "pulsegate_events_total",
    &["kind"],
    "Changes of health that were announced, by kind; observed ones are apart.",
);

pub const OBSERVED_EVENTS: Metric = counter(
    "pulsegate_observed_events_total",
    &["kind"],
    "Changes that were announced as observed, by kind: what rules that are tried would have done.",
);

pub const OBSERVED_POOL_MODE: Metric = gauge(
    "pulsegate_observed_pool_mode",
    &["pool", "mode"],
    "1 for the mode that the pool would be in with the rules it tries, 0 for the others.",
);

pub const OBSERVED_POOL_STATE: Metric = gauge(
    "pulsegate_observed_pool_state",
    &["pool", "state"],
    "1 for the state that the pool would be in as a whole with the rules it tries, 0 for the others.",
);

pub const OBSERVED_POOL_IN_ROTATION: Metric = gauge(
    "pulsegate_observed_pool_in_rotation",
    &["pool"],
    "Members that would take traffic with the rules the pool tries, of the tier that would serve.",
);

pub const OBSERVED_POOL_EJECTABLE: Metric = gauge(
    "pulsegate_observed_pool_ejectable",
    &["pool"],
    "How many members of that tier the cap would allow to be ejected.",
);

pub const OBSERVED_POOL_EJECTED: Metric =
    gauge("pulsegate_observed_pool_ejected", &["pool"], "How many members of that tier would be ejected.");

pub const OBSERVED_COMPOSITE_STATE: Metric = gauge(
    "pulsegate_observed_composite_state",
    &["name", "state"],
    "1 for the state that the composite would be in, of those that only observe, 0 for the others.",
);

pub const OBSERVED_MEMBER_UP: Metric = gauge(
    "pulsegate_observed_member_up",
    &["pool", "member"],
    "1 where the member's verdict would be healthy with the rules its pool tries.",
);

pub const OBSERVED_MEMBER_STANDING: Metric = gauge(
    "pulsegate_observed_member_standing",
    &["pool", "member", "standing"],
    "1 for the standing that the member would have with the rules its pool tries; the others are left out.",
);

pub const DIAGNOSTICS: Metric = counter(
    "pulsegate_diagnostics_total",
    &["result"],
    "Falls of members, by whether what was seen is written, dropped since too many waited, or failed to be written; while it is kept.",
);

pub const CONFIG_GENERATION: Metric =
    gauge("pulsegate_config_generation", &[], "The generation of the configuration in force, 1 at the start.");

pub const CONFIG_RELOADS: Metric = counter(
    "pulsegate_config_reloads_total",
    &["result"],
    "Reloads, by whether they were taken, refused, or had nothing to change.",
);

pub const CONFIG_LAST_RELOAD_SUCCESS: Metric = gauge(
    "pulsegate_config_last_reload_success",
    &[],
    "1 where the file, as it was read last, is in force, 0 where it was refused.",
);

pub const DISCOVERY_RESTARTS: Metric = counter(
    "pulsegate_discovery_restarts_total",
    &[],
    "Tasks that follow names, services and files and ended in a fault of the proxy; each was started again.",
);

pub const LOG_DROPPED: Metric = counter(
    "pulsegate_log_dropped_total",
    &["log"],
    "Lines that were not and will not be written: of the access log, or of the program's own.",
);

pub const LOG_FILTERED: Metric =
    counter("pulsegate_log_filtered_total", &["log"], "Lines that the access log's filter left out.");

pub const PANICS: Metric =
    counter("pulsegate_panics_total", &[], "Panics, each contained to its request, probe or task.");

pub const READY: Metric = gauge("pulsegate_ready", &[], "1 while /readyz says 200, 0 otherwise.");

pub const BUILD_INFO: Metric = gauge("pulsegate_build_info", &["version"], "Always 1; the label says what runs.");

pub const PROCESS_START: Metric =
    gauge("process_start_time_seconds", &[], "When the process began, in seconds of Unix time.");

pub const PROCESS_CPU: Metric =
    counter("process_cpu_seconds_total", &[], "Processor time used, of user and system together.");

pub const PROCESS_RESIDENT: Metric = gauge("process_resident_memory_bytes", &[], "Memory that is resident.");

pub const PROCESS_VIRTUAL: Metric = gauge("process_virtual_memory_bytes", &[], "Virtual memory.");

pub const PROCESS_THREADS: Metric = gauge("process_threads", &[], "Threads.");

pub const PROCESS_OPEN_FDS: Metric = gauge("process_open_fds", &[], "Open file descriptors.");

pub const PROCESS_MAX_FDS: Metric = gauge("process_max_fds", &[], "The limit on open file descriptors.");

/// All of them, in the order of the page.
pub const ALL: &[Metric] = &[
    REQUESTS,
    REQUEST_DURATION,
    ATTEMPTS,
    CONNECT_DURATION,
    RETRIES,
    STICKY_COOKIES,
    CONNECTIONS,
    CONNECTIONS_ACCEPTED,
    CONNECTIONS_REFUSED,
    ROUTE_RANK,
    ROUTE_ABLE_POOLS,
    ROUTE_FAILOVERS,
    POOL_MODE,
    POOL_STATE,
    COMPOSITE_STATE,
    POOL_IN_ROTATION,
    POOL_TIER_MEMBERS,
    POOL_MEMBERS,
    POOL_UNRESOLVED,
    POOL_TROUBLED,
    POOL_TROUBLED_SOURCES,
    POOL_EJECTABLE,
    POOL_EJECTED,
    POOL_FALLBACKS,
    POOL_IN_FLIGHT,
    POOL_MAX_IN_FLIGHT,
    POOL_CONNECTIONS,
    POOL_MAX_CONNECTIONS,
    POOL_QUEUE_LENGTH,
    POOL_QUEUE_SIZE,
    POOL_TURNED_AWAY,
    POOL_TUNNELS,
    MEMBER_UP,
    MEMBER_STANDING,
    MEMBER_WEIGHT,
    MEMBER_RAMP,
    MEMBER_TIER,
    MEMBER_IN_FLIGHT,
    MEMBER_MAX_IN_FLIGHT,
    MEMBER_CONNECTIONS,
    MEMBER_MAX_CONNECTIONS,
    MEMBER_LATENCY,
    MEMBER_PEAK,
    MEMBER_TRANSITIONS,
    OBSERVED_EVENTS,
    OBSERVED_POOL_MODE,
    OBSERVED_POOL_STATE,
    OBSERVED_POOL_IN_ROTATION,
    OBSERVED_POOL_EJECTABLE,
    OBSERVED_POOL_EJECTED,
    OBSERVED_COMPOSITE_STATE,
    OBSERVED_MEMBER_UP,
    OBSERVED_MEMBER_STANDING,
    REMEDIATION,
    REMEDIATION_WAITING,
    REMEDIATION_RUNNING,
    REMEDIATION_QUEUED,
    REMEDIATION_USED,
    REMEDIATION_LIMIT,
    REMEDIATION_GLOBAL_USED,
    REMEDIATION_GLOBAL_LIMIT,
    REMEDIATION_LOST,
    ALERTS,
    ALERTS_OPEN,
    ALERTS_WAITING,
    STATE_AGE,
    STATE_FAILURES,
    PROBES,
    PROBE_DURATION,
    PROBE_AGE,
    PASSIVE_EJECTIONS,
    PROBES_HASTENED,
    PROBES_LATE,
    PROBES_IN_FLIGHT,
    PROBE_LATENESS,
    PROBES_ASKED,
    PROBES_CEILING,
    PROBES_STRETCH,
    PROBE_PANICS,
    EVENTS,
    DIAGNOSTICS,
    CONFIG_GENERATION,
    CONFIG_RELOADS,
    CONFIG_LAST_RELOAD_SUCCESS,
    DISCOVERY_RESTARTS,
    LOG_DROPPED,
    LOG_FILTERED,
    PANICS,
    READY,
    BUILD_INFO,
    PROCESS_START,
    PROCESS_CPU,
    PROCESS_RESIDENT,
    PROCESS_VIRTUAL,
    PROCESS_THREADS,
    PROCESS_OPEN_FDS,
    PROCESS_MAX_FDS,
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_as_prometheus_has_them() {
        let mut seen = HashSet::new();
        for metric in ALL {
            let name = metric.name;
            assert!(seen.insert(name), "{name} twice");
            assert!(name.starts_with("pulsegate_") || name.starts_with("process_"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            let is_histogram = metric.kind == Kind::Histogram;
            assert!(!is_histogram || name.ends_with("_seconds"), "{name}");
            assert!(is_histogram || !name.ends_with("_seconds") || metric.labels != ["pool"], "{name}");
            assert!(metric.help.ends_with('.') && metric.help.is_ascii(), "{name}");
        }
    }
}
