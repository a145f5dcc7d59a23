//! Pools and members as the API shows them (interfaces.md, Admin listener).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use super::words;
use crate::clock;
use crate::control::Control;
use crate::discovery::SourceState;
use crate::health::{self, Aggregate, Census, MemberId, Outcome, Phases, PoolHealth, Ramp, Standing, Verdict};
use crate::pool::{self, Shadow};
use crate::snapshot::Served;

/// One pool.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// How it stands as a whole, by its `aggregate`.
    #[schema(schema_with = words::state)]
    state: &'static str,
    /// How it serves.
    #[schema(schema_with = words::mode)]
    mode: &'static str,
    /// The tier that serves; null where none does.
    tier: Option<u8>,
    /// Members of that tier that take traffic.
    in_rotation: usize,
    /// Members of that tier; of the pool, where no tier serves.
    total: usize,
    /// What its state is made of.
    aggregate: AggregateView,
    /// How many of that tier the cap allows to be out.
    ejectable: usize,
    /// How many of them are.
    ejected: usize,
    /// Open tunnels on its present members.
    tunnels: u32,
    /// The limit of all members together; null where there is none.
    max_in_flight: Option<u32>,
    /// The limit of all members together; null where there is none.
    max_connections: Option<u32>,
    /// Requests that its members are serving, those included that have left it.
    in_flight: u32,
    /// Open connections to its members; null where they are not counted.
    connections: Option<u32>,
    /// Requests that wait for room; null where there is no queue.
    queue: Option<QueueView>,
    /// Requests refused because they found no room.
    turned_away: u64,
    /// Services and files that say who is a member; none where proxy.yaml alone does.
    sources: Vec<SourceView>,
    /// How it would be with the rules that are tried; null where none is.
    observed: Option<ObservedView>,
    /// All of them.
    members: Vec<MemberView>,
}

/// How a pool would be if the rules that are tried were in force.
#[derive(Debug, Serialize, ToSchema)]
struct ObservedView {
    /// The rules, as they are written; `probe` is the whole probe.
    rules: Vec<&'static str>,
    /// How it would stand as a whole.
    #[schema(schema_with = words::state)]
    state: &'static str,
    /// How it would serve.
    #[schema(schema_with = words::mode)]
    mode: &'static str,
    /// The tier that would; null where none would.
    tier: Option<u8>,
    /// Members of that tier that would take traffic.
    in_rotation: usize,
    /// Members of that tier; of the pool, where no tier would serve.
    total: usize,
    /// How many of that tier the cap would allow to be out.
    ejectable: usize,
    /// How many of them would be.
    ejected: usize,
}

/// How a member would be if they were.
#[derive(Debug, Serialize, ToSchema)]
struct ObservedMemberView {
    /// What its judge would say.
    #[schema(schema_with = words::verdict)]
    verdict: &'static str,
    /// What would follow for traffic.
    #[schema(schema_with = words::standing)]
    standing: &'static str,
    /// Since when it would have this verdict.
    #[schema(format = DateTime)]
    since: String,
    /// The word of the fail that would have ejected it; null where it would not be ejected.
    ejected_because: Option<&'static str>,
    /// Its last samples, by the rules that are tried.
    window: WindowView,
    /// Passes in a row by them; negative: fails in a row.
    streak: i64,
}

/// What a pool's state is made of: both must hold.
#[derive(Debug, Serialize, ToSchema)]
struct AggregateView {
    /// So many in a hundred of the enabled ones have to be healthy.
    min_healthy_percent: u8,
    /// So many in all.
    min_healthy: u32,
    /// Members that are, in whichever tier.
    healthy: usize,
    /// Members of whom a first verdict is still to come.
    unknown: usize,
    /// Members that are asked for: enabled, of weight over 0.
    enabled: usize,
}

/// Who says that somebody is a member.
#[derive(Debug, Serialize, ToSchema)]
struct SourceView {
    /// `srv` or `file`.
    kind: &'static str,
    /// The service, or the file's path.
    name: String,
    /// Why it cannot be asked or read now; what it said before holds. Null where it can.
    trouble: Option<String>,
}

/// Requests that wait for room.
#[derive(Debug, Serialize, ToSchema)]
struct QueueView {
    /// How many wait.
    length: usize,
    /// 0 where a reload took the queue away and some still wait.
    size: usize,
    /// How long each may, in milliseconds.
    timeout_ms: f64,
}

/// One member.
#[derive(Debug, Serialize, ToSchema)]
pub struct MemberView {
    /// Where it is; its name, while that has no address.
    address: String,
    /// What its source calls it.
    name: String,
    /// Its rank, 0 first.
    tier: u8,
    /// Its share among its equals.
    weight: u32,
    /// The part of its weight that it has for now, 0.1 to 0.9, while it comes back; null where it has all of it.
    ramp: Option<f64>,
    /// What an operator wants of it.
    #[schema(schema_with = words::admin)]
    admin: &'static str,
    /// Until when it serves the clients that are bound to it, while it drains; null where it does not.
    #[schema(format = DateTime)]
    draining_until: Option<String>,
    /// For how much longer, in milliseconds; null where no client is bound to it: its pool is not `sticky`, it does not drain, or
    /// that time is over.
    drain_left_ms: Option<f64>,
    /// What its judge says.
    #[schema(schema_with = words::verdict)]
    verdict: &'static str,
    /// What follows for traffic.
    #[schema(schema_with = words::standing)]
    standing: &'static str,
    /// It has been healthy at least once.
    proven: bool,
    /// Its verdict is from before a reload that changed the probe.
    unverified: bool,
    /// Its name has an address.
    resolved: bool,
    /// Why it is not.
    unresolved_because: Option<String>,
    /// `srv …` or `file …`; null where the configuration itself names it.
    source: Option<String>,
    /// Its last samples.
    window: WindowView,
    /// Passes in a row; negative: fails in a row.
    streak: i64,
    /// Since when it has this verdict.
    #[schema(format = DateTime)]
    since: String,
    /// Median of its last right answers to probes, in milliseconds.
    latency_ms: Option<f64>,
    /// The same by phase; null before the first.
    phases: Option<PhasesView>,
    /// What its answers to requests took of late, in milliseconds: what `peak_ewma` goes by; null with another policy.
    peak_ms: Option<f64>,
    /// Requests that it is serving.
    in_flight: u32,
    /// Of those, the ones that became tunnels.
    tunnels: u32,
    /// Its limit; null where there is none.
    max_in_flight: Option<u32>,
    /// Open connections to it; null where they are not counted.
    connections: Option<u32>,
    /// Its limit; null where there is none.
    max_connections: Option<u32>,
    /// The word of the fail that ejected it, or `passive` where traffic alone did; null where it is not ejected.
    ejected_because: Option<&'static str>,
    /// The passive ejection in force; null where there is none.
    passive: Option<PassiveView>,
    /// When it is probed next; null where it is not.
    #[schema(format = DateTime)]
    next_probe_at: Option<String>,
    /// What its last probe taught.
    last_probe: Option<ProbeView>,
    /// How it would be with the rules that are tried; null where none is.
    observed: Option<ObservedMemberView>,
}

/// What traffic holds against a member.
#[derive(Debug, Serialize, ToSchema)]
struct PassiveView {
    /// The word of the last failure.
    reason: &'static str,
    /// The same for people, with what was counted.
    detail: String,
    /// Since when.
    #[schema(format = DateTime)]
    since: String,
    /// Offences that are remembered, this one included.
    offences: u32,
    /// When its time is over; in the fallback it then waits for a pass.
    #[schema(format = DateTime)]
    until: String,
}

/// A member's last samples, as many as its judge looks at.
#[derive(Debug, Serialize, ToSchema)]
struct WindowView {
    /// Of those shown, the ones that passed.
    passes: u32,
    /// Samples shown.
    shown: u32,
    /// Samples that are looked at.
    size: u32,
    /// Passes that make it healthy; null with the judge `consecutive`.
    required: Option<u32>,
}

/// Medians of a member's last right answers to probes, in milliseconds; each of the answers that came to that phase, null
/// where none did.
#[derive(Debug, Serialize, ToSchema)]
struct PhasesView {
    /// Until connected; null where the connection is kept from probe to probe.
    connect_ms: Option<f64>,
    /// Of the handshake; as above.
    tls_ms: Option<f64>,
    /// Until the first byte of the answer.
    first_byte_ms: Option<f64>,
    /// All of it: the member's latency.
    total_ms: f64,
}

/// What one probe taught, with its times in milliseconds, null where it did not come to that.
#[derive(Debug, Serialize, ToSchema)]
struct ProbeView {
    /// When it ended.
    #[schema(format = DateTime)]
    at: String,
    /// What it taught.
    #[schema(schema_with = words::result)]
    result: &'static str,
    /// The word of a fail.
    reason: Option<&'static str>,
    /// The same for people.
    detail: String,
    /// Of the answer.
    status: Option<u16>,
    /// Until connected; null too where the connection is kept from the probe before.
    connect_ms: Option<f64>,
    /// Of the handshake; as above.
    tls_ms: Option<f64>,
    /// Until the first byte of the answer.
    first_byte_ms: Option<f64>,
    /// All of it.
    total_ms: f64,
}

impl PoolView {
    /// The pool as it stands.
    pub fn new(control: &Control, pool: &Served) -> PoolView {
        pool.live.advance(clock::monotonic());
        let (next, origins) = (next_probes(control, pool), Origins::new(control, pool));
        let in_flight = pool.live.in_flight();
        let sources = control.desk().sources(&pool.config).into_iter().map(SourceView::new).collect();
        pool.live.read_both(|health, shadow, live| {
            let picture = health.picture();
            let members = (0..live.len()).map(|index| {
                MemberView::new(pool, (health, shadow), live, index, next.get(index).copied().flatten(), &origins)
            });
            PoolView {
                name: pool.config.name.clone(),
                state: picture.state.as_str(),
                mode: picture.mode.as_str(),
                tier: picture.tier,
                in_rotation: picture.in_rotation,
                total: picture.total,
                aggregate: AggregateView::new(health),
                ejectable: picture.ejectable,
                ejected: picture.ejected,
                tunnels: live.iter().map(|member| member.tunnels()).sum(),
                max_in_flight: pool.live.capacity().max_in_flight,
                max_connections: pool.live.capacity().max_connections,
                in_flight,
                connections: pool.live.connections(),
                queue: QueueView::new(pool.live.queue()),
                turned_away: pool.live.turned_away(),
                sources,
                observed: shadow.map(ObservedView::new),
                members: members.collect(),
            }
        })
    }
}

impl ObservedView {
    fn new(shadow: &Shadow) -> ObservedView {
        let picture = shadow.health().picture();
        ObservedView {
            rules: shadow.keys().to_vec(),
            state: picture.state.as_str(),
            mode: picture.mode.as_str(),
            tier: picture.tier,
            in_rotation: picture.in_rotation,
            total: picture.total,
            ejectable: picture.ejectable,
            ejected: picture.ejected,
        }
    }
}

impl ObservedMemberView {
    fn new(shadow: &Shadow, index: usize) -> Option<ObservedMemberView> {
        let health = shadow.health();
        let (member, standing) = (health.members().get(index)?, *health.picture().standings.get(index)?);
        Some(ObservedMemberView {
            verdict: member.verdict().as_str(),
            standing: standing.as_str(),
            since: time_of(member.since()),
            ejected_because: because(member, standing),
            window: WindowView::new(member.window()),
            streak: member.streak(),
        })
    }
}

impl WindowView {
    fn new(window: health::Window) -> WindowView {
        WindowView { passes: window.passes, shown: window.shown, size: window.size, required: window.required }
    }
}

impl AggregateView {
    fn new(health: &PoolHealth) -> AggregateView {
        let Aggregate { min_healthy_percent, min_healthy } = health.rules().aggregate.unwrap_or_default();
        let Census { enabled, healthy, unknown } = health.picture().census;
        AggregateView { min_healthy_percent, min_healthy, healthy, unknown, enabled }
    }
}

impl SourceView {
    fn new(source: SourceState) -> SourceView {
        let SourceState { kind, name, trouble } = source;
        SourceView { kind, name, trouble: trouble.map(|trouble| trouble.to_string()) }
    }
}

impl QueueView {
    fn new(queue: &pool::Queue) -> Option<QueueView> {
        let (length, size) = (queue.length(), queue.size());
        (size > 0 || length > 0).then(|| QueueView { length, size, timeout_ms: millis(queue.timeout()) })
    }
}

impl MemberView {
    /// The member of this id.
    pub fn find(control: &Control, pool: &Served, id: MemberId) -> Option<MemberView> {
        let (next, origins) = (next_probes(control, pool), Origins::new(control, pool));
        pool.live.read_both(|health, shadow, live| {
            let index = live.iter().position(|member| member.id() == id)?;
            Some(MemberView::new(pool, (health, shadow), live, index, next.get(index).copied().flatten(), &origins))
        })
    }

    fn new(
        pool: &Served,
        (health, shadow): (&PoolHealth, Option<&Shadow>),
        live: &[Arc<pool::Member>],
        index: usize,
        next: Option<Duration>,
        origins: &Origins,
    ) -> MemberView {
        let (member, live, standing) = (&health.members()[index], &live[index], health.picture().standings[index]);
        let (spec, shown) = (member.spec(), pool::shown(health, shadow, index));
        let origin = origins.of(&spec.key);
        let (now, drains_until) = (clock::monotonic(), health.drains_until(member));
        let drain_left = drains_until.map(|until| until.saturating_sub(now)).filter(|left| !left.is_zero());
        MemberView {
            address: live.label().to_string(),
            name: spec.key.name.clone(),
            tier: spec.tier,
            weight: spec.weight,
            ramp: health.picture().ramp(index).map(Ramp::part),
            admin: member.admin().as_str(),
            draining_until: drains_until.map(time_of),
            drain_left_ms: drain_left.filter(|_| pool.config.sticky.is_some()).map(millis),
            verdict: member.verdict().as_str(),
            standing: standing.as_str(),
            proven: member.proven(),
            unverified: member.unverified(),
            resolved: spec.key.address.is_some(),
            unresolved_because: origin.and_then(|o| o.trouble.clone()).filter(|_| spec.key.address.is_none()),
            source: origin.and_then(|o| o.source.clone()),
            window: WindowView::new(shown.window()),
            streak: shown.streak(),
            since: time_of(member.since()),
            latency_ms: shown.latency().map(millis),
            phases: shown.medians().map(PhasesView::new),
            peak_ms: live.form(now).and_then(|form| form.peak()).map(millis),
            in_flight: live.in_flight(),
            tunnels: live.tunnels(),
            max_in_flight: live.capacity().max_in_flight,
            connections: live.connections(),
            max_connections: live.capacity().max_connections,
            ejected_because: because(member, standing),
            passive: member.ban().map(PassiveView::new),
            next_probe_at: next.map(time_of),
            last_probe: shown.last_probe().map(|(sample, at)| ProbeView::new(sample, at)),
            observed: shadow.and_then(|shadow| ObservedMemberView::new(shadow, index)),
        }
    }
}

impl PhasesView {
    fn new(medians: Phases) -> PhasesView {
        let Phases { connect, tls, first_byte, total } = medians;
        PhasesView {
            connect_ms: connect.map(millis),
            tls_ms: tls.map(millis),
            first_byte_ms: first_byte.map(millis),
            total_ms: millis(total),
        }
    }
}

/// Where the members of a pool come from; only of those of whom there is something to say.
struct Origins(HashMap<(String, Option<SocketAddr>), Origin>);

struct Origin {
    source: Option<String>,
    trouble: Option<String>,
}

impl Origins {
    /// Asked for before the pool is read: what is followed has a lock of its own.
    fn new(control: &Control, pool: &Served) -> Origins {
        let origins = control.located(&pool.config.name);
        let origins = origins.iter().flat_map(|located| located.iter()).filter_map(|located| {
            let source = located.source.words(&pool.config);
            let trouble = located.trouble.as_ref().map(ToString::to_string);
            let says_something = source.is_some() || trouble.is_some();
            says_something.then(|| ((located.member.name.clone(), located.address), Origin { source, trouble }))
        });
        Origins(origins.collect())
    }

    fn of(&self, key: &health::Key) -> Option<&Origin> {
        // Most pools have nobody of whom there is something to say, and the name is copied for the look.
        if self.0.is_empty() { None } else { self.0.get(&(key.name.clone(), key.address)) }
    }
}

impl PassiveView {
    fn new(ban: &health::Ban) -> PassiveView {
        PassiveView {
            reason: ban.charge.last.reason.as_str(),
            detail: ban.charge.words(),
            since: time_of(ban.since),
            offences: ban.offences,
            until: time_of(ban.until),
        }
    }
}

impl ProbeView {
    fn new(sample: &health::Sample, at: Duration) -> ProbeView {
        let (result, reason) = match sample.outcome {
            Outcome::Pass => ("pass", None),
            Outcome::Fail(reason) => ("fail", Some(reason.as_str())),
            Outcome::Inconclusive => ("inconclusive", None),
        };
        ProbeView {
            at: time_of(at),
            result,
            reason,
            detail: sample.detail.clone(),
            status: sample.status,
            connect_ms: sample.phases.connect.map(millis),
            tls_ms: sample.phases.tls.map(millis),
            first_byte_ms: sample.phases.first_byte.map(millis),
            total_ms: millis(sample.phases.total),
        }
    }
}

fn because(member: &health::Member, standing: Standing) -> Option<&'static str> {
    if standing != Standing::Ejected || member.verdict() != Verdict::Unhealthy {
        return None;
    }
    if member.judged() == Verdict::Healthy { Some("passive") } else { member.cause().map(health::Reason::as_str) }
}

/// Asked for before the pool is read: the prober has a lock of its own.
fn next_probes(control: &Control, pool: &Served) -> Vec<Option<Duration>> {
    let members = pool.live.roster().members().to_vec();
    members.iter().map(|member| control.next_probe_at(&pool.live, member.id())).collect()
}

/// A moment of monotonic time, as RFC 3339.
pub fn time_of(moment: Duration) -> String {
    humantime::format_rfc3339_millis(clock::wall_at(moment)).to_string()
}

pub fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}
