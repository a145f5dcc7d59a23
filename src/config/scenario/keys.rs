//! What can be written in a scenario and in a policy: every key optional, unknown keys refused.
//!
//! Nothing here has a meaning: the room above gives it. Pools and routes are those of proxy.yaml (`file`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::words::{Latency, Rate};
use crate::config::file::{CompositeKeys, PoolKeys, RouteKeys};
use crate::config::spelling::{Spelled, Text, Written};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping with `duration`, `pools`, `traffic` and `story`")]
pub(super) struct ScenarioKeys {
    pub(super) title: Written<Text>,
    pub(super) duration: Written<Duration>,
    pub(super) seed: Written<u64>,
    pub(super) latency: Written<Latency>,
    pub(super) policy: Written<Text>,
    pub(super) pools: Option<BTreeMap<String, PoolKeys>>,
    pub(super) composites: Option<BTreeMap<String, CompositeKeys>>,
    pub(super) routes: Option<Vec<RouteKeys>>,
    pub(super) traffic: Option<Vec<TrafficKeys>>,
    pub(super) story: Option<Vec<TurnKeys>>,
    pub(super) compare: Option<PolicyKeys>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ rate: 50/s }`")]
pub(super) struct TrafficKeys {
    pub(super) rate: Written<Rate>,
    pub(super) host: Written<Text>,
    pub(super) path: Written<Text>,
    pub(super) from: Written<Duration>,
    pub(super) until: Written<Duration>,
    pub(super) post_percent: Written<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a mapping such as `{ at: 10m, member: \"10.0.0.1:80\", does: refuse }`"
)]
pub(super) struct TurnKeys {
    pub(super) at: Written<Duration>,
    pub(super) pool: Written<Text>,
    pub(super) member: Written<Text>,
    pub(super) members: Option<Vec<Spelled<Text>>>,
    pub(super) does: Written<super::Deed>,
    #[serde(rename = "for")]
    pub(super) lasts: Written<Duration>,
    pub(super) every: Written<Duration>,
}

/// A policy to compare with: under `compare` in a scenario, or a file of its own.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as `{ name: no cap, pools: { web: { … } } }`")]
pub(super) struct PolicyKeys {
    pub(super) name: Written<Text>,
    /// Read with the scenario's own pools, over which they are laid.
    pub(super) pools: Option<BTreeMap<String, IgnoredAny>>,
}
