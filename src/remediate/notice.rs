//! What whoever replaces a member is told of it: one JSON object.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::By;
use crate::clock;
use crate::config::Remediation;
use crate::health::replacement::Order;
use crate::health::{MemberId, Outcome};
use crate::pool::shown;
use crate::snapshot::Served;

/// The form of the object.
const VERSION: u32 = 1;

/// A member as it is when something is decided of it.
#[derive(Debug, Clone)]
pub struct Subject {
    pool: Arc<str>,
    /// As logs, API and metrics show it.
    member: Arc<str>,
    /// As the configuration or its source names it.
    name: String,
    host: Option<IpAddr>,
    port: Option<u16>,
    tls: bool,
    standing: &'static str,
    verdict: &'static str,
    window: Option<String>,
    last_probe: Option<Value>,
    fails: bool,
    mode: &'static str,
    in_rotation: usize,
    total: usize,
}

impl Subject {
    /// The member `id` as it stands; `None`: it is not there any more.
    pub fn of(served: &Served, id: MemberId) -> Option<Subject> {
        let pool = &served.live;
        pool.read_both(|health, shadow, members| {
            let index = health.index_of(id)?;
            let (member, picture) = (shown(health, shadow, index), health.picture());
            let (key, window) = (&member.spec().key, member.window());
            let last_probe = member.last_sample().map(|(sample, at)| {
                let (result, reason) = match sample.outcome {
                    Outcome::Pass => ("pass", None),
                    Outcome::Fail(reason) => ("fail", Some(reason.as_str())),
                    Outcome::Inconclusive => ("inconclusive", None),
                };
                json!({ "at": time_of(at), "result": result, "reason": reason, "detail": sample.detail })
            });
            Some(Subject {
                pool: pool.name().clone(),
                member: members[index].label().clone(),
                name: key.name.clone(),
                host: key.address.map(|address| address.ip()),
                port: key.address.map(|address| address.port()),
                tls: key.tls,
                standing: picture.standings.get(index)?.as_str(),
                verdict: health.members()[index].verdict().as_str(),
                window: (window.shown > 0).then(|| format!("{}/{}", window.passes, window.shown)),
                last_probe,
                fails: member.streak() < 0,
                mode: picture.mode.as_str(),
                in_rotation: picture.in_rotation,
                total: picture.total,
            })
        })
    }

    /// Its pool.
    pub fn pool(&self) -> &Arc<str> {
        &self.pool
    }

    /// As logs, API and metrics show it.
    pub fn member(&self) -> &Arc<str> {
        &self.member
    }

    /// How it and its pool stand, for an event.
    pub fn stand(&self, event: &mut crate::telemetry::Event) {
        event.standing = Some(self.standing);
        event.window.clone_from(&self.window);
        event.mode = Some(self.mode);
        (event.in_rotation, event.total) = (Some(self.in_rotation), Some(self.total));
    }
}

/// The object for `order`, whose id is `id`.
pub fn notice(id: &str, by: By, order: &Order, subject: &Subject, rule: &Remediation) -> Vec<u8> {
    let Subject { pool, member, name, host, port, tls, standing, verdict, window, last_probe, mode, .. } = subject;
    let names = |pools: &[Arc<str>]| pools.iter().map(|pool| json!(**pool)).collect::<Vec<Value>>();
    let told = json!({
        "version": VERSION,
        "id": id,
        "action": "replace",
        "by": by.as_str(),
        "decided_at": time_of(order.decided),
        "pool": **pool,
        "member": **member,
        "name": name,
        "host": host,
        "port": port,
        "tls": tls,
        // By hand it may be well.
        "failing_since": subject.fails.then(|| time_of(order.since)),
        "after": humantime::format_duration(rule.after).to_string(),
        "verdict": verdict,
        "standing": standing,
        "window": window,
        "last_probe": last_probe,
        "pool_mode": mode,
        "pool_in_rotation": subject.in_rotation,
        "pool_total": subject.total,
        "shared_with": names(&order.shared_with),
        "counts_for": names(&order.counts_for),
    });
    let mut bytes = serde_json::to_vec(&told).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn time_of(moment: Duration) -> String {
    humantime::format_rfc3339_millis(clock::wall_at(moment)).to_string()
}
