//! What somebody is told of an episode: one JSON object.

use serde_json::{Value, json};

use super::conditions::{Key, Subject};
use super::episodes::{Phase, Telling};
use crate::config::Occasion;

/// The form of the object.
const VERSION: u32 = 1;

/// How a pool stands when something is told of it.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// Its mode.
    pub mode: Option<&'static str>,
    /// Members of the serving tier that take traffic.
    pub in_rotation: Option<usize>,
    /// Members of the serving tier.
    pub total: Option<usize>,
}

impl Phase {
    /// The word in what is told, and in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Firing => "firing",
            Phase::Resolved => "resolved",
        }
    }
}

/// Of this end of this episode alone: whoever hears it twice knows by this.
pub fn id_of(telling: &Telling) -> String {
    format!("{}-{}", telling.episode.id, telling.phase.as_str())
}

/// The same for every episode of this occasion and subject, in every process: `fallback/pool/web`.
pub fn key_of((occasion, subject): &Key) -> String {
    let occasion = occasion.as_str();
    match subject {
        Subject::Pool(pool) => format!("{occasion}/pool/{pool}"),
        Subject::Route(route) => format!("{occasion}/route/{route}"),
        Subject::Composite(composite) => format!("{occasion}/composite/{composite}"),
        Subject::Member(pool, member) => format!("{occasion}/member/{pool}/{member}"),
    }
}

/// What is wrong, in a sentence.
pub fn sentence((occasion, subject): &Key) -> String {
    match (occasion, subject) {
        (Occasion::Down, Subject::Pool(pool)) => format!("pool {pool} is down: nobody may serve"),
        (Occasion::Fallback, Subject::Pool(pool)) => format!("pool {pool} is in fallback: nobody is healthy"),
        (Occasion::Capped, Subject::Pool(pool)) => {
            format!("pool {pool} is capped: unhealthy members serve, for want of others")
        }
        (Occasion::Failover, Subject::Pool(pool)) => format!("pool {pool} is served by another tier than its first"),
        (Occasion::Failover, Subject::Route(route)) => {
            format!("route {route} is served by another pool than its first")
        }
        (_, Subject::Composite(composite)) => format!("composite {composite} is not healthy"),
        (Occasion::Flapping, Subject::Member(pool, member)) => {
            format!("member {member} of {pool} flaps: its verdict changes again and again")
        }
        (_, Subject::Member(pool, member)) => format!("member {member} of {pool} is due for replacement"),
        (occasion, Subject::Pool(name) | Subject::Route(name)) => format!("{} of {name}", occasion.as_str()),
    }
}

/// The object; `instance` is the process that tells.
pub fn notice(telling: &Telling, standing: &Standing, instance: &str) -> Vec<u8> {
    let Telling { alert, phase, episode, at } = telling;
    let (mut pool, mut route, mut composite, mut member) = (None, None, None, None);
    match &episode.key.1 {
        Subject::Pool(name) => pool = Some(name),
        Subject::Route(name) => route = Some(name),
        Subject::Composite(name) => composite = Some(name),
        Subject::Member(of, name) => (pool, member) = (Some(of), Some(name)),
    }
    let time = |at: std::time::SystemTime| Value::from(humantime::format_rfc3339_millis(at).to_string());
    let sentence = sentence(&episode.key);
    let message = match phase {
        Phase::Firing => sentence,
        Phase::Resolved => format!("over: {sentence}"),
    };
    let told = json!({
        "version": VERSION,
        "id": id_of(telling),
        "episode": episode.id,
        "key": key_of(&episode.key),
        "name": **alert,
        "alert": episode.key.0.as_str(),
        "status": phase.as_str(),
        "since": time(episode.since.wall),
        "ended_at": (*phase == Phase::Resolved).then(|| time(*at)),
        "at": time(*at),
        "pool": pool,
        "member": member,
        "route": route,
        "composite": composite,
        "message": message,
        "because": crate::telemetry::shown(&episode.because),
        "pool_mode": standing.mode,
        "pool_in_rotation": standing.in_rotation,
        "pool_total": standing.total,
        "instance": instance,
    });
    let mut bytes = serde_json::to_vec(&told).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
