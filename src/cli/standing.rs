//! A pool and a member of it in words, as the API shows them: what an operator wants to know after a step.

use std::time::Duration;

use serde::Deserialize;

/// What is read of the API's member.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Member {
    /// Its address.
    pub address: String,
    /// What the configuration calls it. A proxy of another release may not say it.
    #[serde(default)]
    pub name: String,
    /// What is wanted of it.
    pub admin: String,
    /// What follows for traffic.
    pub standing: String,
    /// Requests that run on it, tunnels among them.
    pub in_flight: u32,
    /// Tunnels that run on it.
    pub tunnels: u32,
    /// For how much longer clients that are bound to it may come while it drains, in milliseconds; `None` where none do. A
    /// proxy of another release may not say it.
    #[serde(default)]
    pub drain_left_ms: Option<f64>,
    /// What the last probe of it taught.
    #[serde(default)]
    pub last_probe: Option<Probed>,
}

/// What is read of a probe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Probed {
    /// When.
    pub at: String,
    /// `pass`, `fail` or `inconclusive`.
    pub result: String,
    /// Of a fail.
    pub detail: Option<String>,
}

/// What is read of the API's pool.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Pool {
    /// How it serves.
    pub mode: String,
    /// The tier that serves.
    pub tier: Option<u8>,
    /// Members that take traffic.
    pub in_rotation: usize,
    /// Of how many.
    pub total: usize,
    /// Requests that all members serve, those included that have left.
    pub in_flight: u32,
    /// All of them.
    pub members: Vec<Member>,
}

impl Member {
    /// Whether that is the same one: another name may have its address.
    pub fn is(&self, other: &Member) -> bool {
        self.address == other.address && self.name == other.name
    }

    /// For how much longer clients that are bound to it may come.
    pub fn drain_left(&self) -> Option<Duration> {
        self.drain_left_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok())
    }
}

/// How bad a mode is, for comparison; a word that is not known is as good as any.
pub fn rank(mode: &str) -> u8 {
    match mode {
        "down" => 5,
        "fallback" => 4,
        "waiting" => 3,
        "failover" => 2,
        "capped" => 1,
        _ => 0,
    }
}

/// What an operator's step has made of the pool.
pub fn warning(name: &str, pool: &Pool) -> String {
    match pool.mode.as_str() {
        "down" => format!("pool {name} is down now: {}", about(pool)),
        "waiting" => format!("pool {name} waits now: {}", about(pool)),
        "fallback" => format!("pool {name} is in the fallback now: {}", about(pool)),
        _ => format!("pool {name} serves with less now: {}", about(pool)),
    }
}

/// `pool web: 3 of 4 in rotation`.
pub fn pool_words(name: &str, pool: &Pool) -> String {
    match pool.mode.as_str() {
        "normal" => format!("pool {name}: {}", about(pool)),
        mode => format!("pool {name}: {mode}, {}", about(pool)),
    }
}

/// `127.0.0.1:80 of web: draining, stands draining; 1 in flight, of which 1 tunnel; clients bound to it may come for 10m more`.
pub fn member_words(pool: &str, member: &Member) -> String {
    let Member { address, admin, standing, in_flight, tunnels, .. } = member;
    let of_which = match tunnels {
        0 => String::new(),
        _ => format!(", of which {}", count(*tunnels, "tunnel")),
    };
    let bound = bound(member).map_or_else(String::new, |words| format!("; {words}"));
    format!("{address} of {pool}: {admin}, stands {standing}; {in_flight} in flight{of_which}{bound}")
}

/// `clients bound to it may come for 9m 58s more`, in whole seconds and none too few; `None` where none do.
pub fn bound(member: &Member) -> Option<String> {
    let left = member.drain_left()?.as_nanos().div_ceil(1_000_000_000);
    let left = Duration::from_secs(u64::try_from(left).unwrap_or(u64::MAX));
    Some(format!("clients bound to it may come for {} more", humantime::format_duration(left)))
}

/// `1 request on 127.0.0.1:9001 after 2s, of which 1 is a tunnel, which a drain does not end`.
pub fn running(member: &Member, after: Duration) -> String {
    let requests = count(member.in_flight, "request");
    let tunnels = match member.tunnels {
        0 => String::new(),
        1 => ", of which 1 is a tunnel, which a drain does not end".to_owned(),
        many => format!(", of which {many} are tunnels, which a drain does not end"),
    };
    format!("{requests} on {} after {}{tunnels}", member.address, humantime::format_duration(after))
}

fn about(pool: &Pool) -> String {
    let Pool { mode, tier, in_rotation, total, .. } = pool;
    let rotation = format!("{in_rotation} of {total} in rotation");
    match (mode.as_str(), tier) {
        ("down", _) => "nobody may serve".to_owned(),
        ("waiting", _) => "requests wait for first verdicts".to_owned(),
        ("fallback", _) => format!("nobody is healthy; {rotation}, whatever their health"),
        ("failover", Some(tier)) => format!("tier {tier} serves; {rotation}"),
        ("capped", _) => format!("{rotation}, unhealthy ones among them, which the cap keeps there"),
        _ => rotation,
    }
}

fn count(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(mode: &str) -> Pool {
        Pool { mode: mode.to_owned(), tier: Some(1), in_rotation: 1, total: 4, in_flight: 0, members: Vec::new() }
    }

    #[test]
    fn each_mode_is_put_in_words() {
        let rows = [
            ("normal", "pool w: 1 of 4 in rotation", "pool w serves with less now: 1 of 4 in rotation"),
            (
                "capped",
                "pool w: capped, 1 of 4 in rotation, unhealthy ones among them, which the cap keeps there",
                "pool w serves with less now: 1 of 4 in rotation, unhealthy ones among them, which the cap keeps there",
            ),
            (
                "failover",
                "pool w: failover, tier 1 serves; 1 of 4 in rotation",
                "pool w serves with less now: tier 1 serves; 1 of 4 in rotation",
            ),
            (
                "waiting",
                "pool w: waiting, requests wait for first verdicts",
                "pool w waits now: requests wait for first verdicts",
            ),
            (
                "fallback",
                "pool w: fallback, nobody is healthy; 1 of 4 in rotation, whatever their health",
                "pool w is in the fallback now: nobody is healthy; 1 of 4 in rotation, whatever their health",
            ),
            ("down", "pool w: down, nobody may serve", "pool w is down now: nobody may serve"),
        ];
        for (worse, (mode, said, warned)) in rows.into_iter().enumerate() {
            assert_eq!(
                (pool_words("w", &pool(mode)).as_str(), warning("w", &pool(mode)).as_str()),
                (said, warned),
                "{mode}"
            );
            assert_eq!(usize::from(rank(mode)), worse, "{mode}");
        }
    }

    #[test]
    fn tunnels_are_counted_among_what_runs() {
        let rows = [
            (0, 0, "0 in flight", "0 requests on a:80 after 2s"),
            (1, 0, "1 in flight", "1 request on a:80 after 2s"),
            (
                1,
                1,
                "1 in flight, of which 1 tunnel",
                "1 request on a:80 after 2s, of which 1 is a tunnel, which a drain does not end",
            ),
            (
                3,
                2,
                "3 in flight, of which 2 tunnels",
                "3 requests on a:80 after 2s, of which 2 are tunnels, which a drain does not end",
            ),
        ];
        for (in_flight, tunnels, shown, still) in rows {
            let member = Member { address: "a:80".to_owned(), in_flight, tunnels, ..Member::default() };
            assert!(member_words("w", &member).ends_with(&format!("; {shown}")), "{}", member_words("w", &member));
            assert_eq!(running(&member, Duration::from_secs(2)), still);
        }
    }

    #[test]
    fn clients_that_may_still_come_are_told_of_in_whole_seconds() {
        for (left, expected) in [
            (None, None),
            (Some(0.4), Some("clients bound to it may come for 1s more")),
            (Some(599_000.1), Some("clients bound to it may come for 10m more")),
            (Some(-1.0), None),
            (Some(1e300), None),
        ] {
            let member = Member { address: "a:80".to_owned(), drain_left_ms: left, ..Member::default() };
            assert_eq!(bound(&member).as_deref(), expected);
            let ending = expected.map_or_else(|| "0 in flight".to_owned(), |words| format!("0 in flight; {words}"));
            assert!(member_words("w", &member).ends_with(&ending), "{}", member_words("w", &member));
        }
    }
}
