//! The rules a pool is judged by: what the configuration means, as plain values.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Aggregate, Eject};

/// Everything that decides verdicts and standings in one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// How samples become a verdict.
    pub judge: Judge,
    /// What a new member is before its first sample.
    pub initial: Initial,
    /// How long requests wait for a first healthy member at a cold start (health.md §2).
    pub initial_wait: Duration,
    /// The cap, in percent of N: 0 to 100 (health.md §3).
    pub max_unhealthy_percent: u8,
    /// Members that may go although the percentage rounds to none: 0 or 1.
    pub min_ejected: u8,
    /// What the pool does when nobody is healthy.
    pub on_all_unhealthy: OnAllUnhealthy,
    /// The share of healthy members a tier needs to serve; `None` for the rule's own default (health.md §4).
    pub tier_min_healthy_percent: Option<u8>,
    /// How many have to be healthy for the pool as a whole to be (health.md §8). `None`: nobody has written it, and it is
    /// [`Aggregate::default`].
    pub aggregate: Option<Aggregate>,
    /// Latency gates.
    pub gates: Gates,
    /// How long a member that comes back takes to have its whole weight again (health.md §7); zero: it has it at once.
    pub slow_start: Duration,
    /// How long a member that drains goes on serving clients that are bound to it (health.md §7).
    pub drain: Duration,
    /// When traffic ejects; `None`: it never does.
    pub eject: Option<Eject>,
    /// False with `probe: off`: nobody is ever probed, and members start healthy.
    pub probed: bool,
    /// How long a member that its name or its file has lost is remembered: it returns with what was known of it
    /// (health.md §9).
    pub memory: Duration,
    /// The files of members that the pool has, also while they list nobody.
    pub rolls: Vec<Arc<str>>,
}

impl Default for Rules {
    /// What holds in a pool that writes none of them.
    fn default() -> Rules {
        Rules {
            judge: Judge::Window { size: 5, required: 3 },
            initial: Initial::Probe,
            initial_wait: Duration::from_secs(1),
            max_unhealthy_percent: 50,
            min_ejected: 0,
            on_all_unhealthy: OnAllUnhealthy::RoundRobin,
            tier_min_healthy_percent: None,
            aggregate: None,
            gates: Gates::default(),
            slow_start: Duration::ZERO,
            drain: Duration::from_secs(600),
            eject: None,
            probed: true,
            memory: Duration::from_secs(300),
            rolls: Vec::new(),
        }
    }
}

/// How samples become a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// `failures` fails in a row make a member unhealthy, `passes` passes in a row healthy. Both ≥ 1.
    Consecutive {
        /// Fails in a row.
        failures: u32,
        /// Passes in a row.
        passes: u32,
    },
    /// Healthy exactly when at least `required` of the last `size` places passed. 1 ≤ required ≤ size ≤ 64.
    Window {
        /// Places.
        size: u32,
        /// Passes among them.
        required: u32,
    },
}

impl Judge {
    /// How many samples are shown, and how many latencies remembered: the window's size, or 5 (health.md §5).
    pub(super) fn span(self) -> u32 {
        match self {
            Judge::Window { size, .. } => size.clamp(1, 64),
            Judge::Consecutive { .. } => 5,
        }
    }
}

/// What a new member is before its first sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// Unknown until a probe decides; the first pass decides alone.
    Probe,
    /// Proven and healthy from the start.
    Healthy,
    /// Needs the judge's full number of passes.
    Unhealthy,
}

/// What a pool does when nobody is healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAllUnhealthy {
    /// Round-robin over every enabled member.
    RoundRobin,
    /// 503 at once.
    Fail,
}

/// Latency gates (health.md §5); a right answer over a gate is a fail for [`super::Reason::Slow`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gates {
    /// Absolute gate on `total`.
    pub max_latency: Option<Duration>,
    /// Gate relative to the median of the others.
    pub max_latency_ratio: Option<f64>,
    /// The relative gate never bites under this.
    pub latency_floor: Duration,
}

impl Default for Gates {
    fn default() -> Gates {
        Gates { max_latency: None, max_latency_ratio: None, latency_floor: Duration::from_millis(50) }
    }
}

/// What an operator wants of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admin {
    /// Takes traffic as its health allows.
    Enabled,
    /// No new requests; those in flight finish; still probed.
    Draining,
    /// No traffic and no probes.
    Disabled,
}

impl Admin {
    /// Every state.
    pub const ALL: [Admin; 3] = [Admin::Enabled, Admin::Draining, Admin::Disabled];

    /// The word used in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Admin::Enabled => "enabled",
            Admin::Draining => "draining",
            Admin::Disabled => "disabled",
        }
    }
}

/// Who a member is: its health belongs to this and to nothing else (health.md §9).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// As the configuration names it: `host:port`.
    pub name: String,
    /// The address traffic goes to; `None` while the name has none.
    pub address: Option<SocketAddr>,
    /// Whether traffic goes over TLS.
    pub tls: bool,
}

/// A member as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Its identity.
    pub key: Key,
    /// 0 to 1000; 0 stands as draining.
    pub weight: u32,
    /// Among how many addresses of one name the weight is divided: at least 1.
    pub split: u32,
    /// Failover rank, 0 first.
    pub tier: u8,
    /// The state written in the file.
    pub admin: Admin,
    /// The name whose answer has brought it; `None` where the file itself says the address.
    pub source: Option<Arc<str>>,
    /// The file of members that lists it, or whatever has brought it.
    pub roll: Option<Arc<str>>,
    /// Of everything that shapes the probe's request, connection and expectation.
    pub fingerprint: u64,
}
