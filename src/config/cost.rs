//! What the probes of a configuration cost: how many a second, of whom, and what a ceiling makes of it.
//!
//! What several pools ask in the same words is one probe (product.md F6) and counts once, at the shortest interval.
//!
//! Not here: whom names and sources lead to, which has to be asked for; it is counted where it is given.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use super::domain::{Config, Member, Pool};
use crate::health::Admin;

/// Of a ceiling, what probes are planned for. The rest is for what nobody plans: first probes of new members, and those
/// that are asked for.
pub const PLANNED: f64 = 0.95;

/// By what intervals are multiplied where `asked` probes a second meet a ceiling: 1 where there is room.
pub fn stretch(asked: f64, ceiling: Option<u32>) -> f64 {
    ceiling.map_or(1.0, |ceiling| (asked / (f64::from(ceiling) * PLANNED)).max(1.0))
}

/// What the probes of a file cost while every member is steady.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Probes a second, each that pools share once.
    pub probes_per_second: f64,
    /// The same while no pool has traffic.
    pub idle_probes_per_second: f64,
    /// Different probes.
    pub probes: usize,
    /// Of them, those that several members share, of different pools or of one.
    pub shared: usize,
    /// Of them, those that keep their connection.
    pub kept: usize,
    /// By what intervals are multiplied to stay under `max_probes_per_second`; 1: they stay as they are.
    pub stretch: f64,
    /// In the order of their names.
    pub pools: Vec<PoolCost>,
}

/// What one pool asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolCost {
    /// Its name.
    pub name: String,
    /// Members that are probed.
    pub members: usize,
    /// Of them, those whose probes are shared with others.
    pub shared: usize,
    /// The interval of its probe, as written; `None` where it has none.
    pub interval: Option<Duration>,
    /// Probes a second of each member, were the pool alone.
    pub per_member: f64,
    /// Of all its members, were the pool alone.
    pub probes_per_second: f64,
}

/// A member and where it is, as far as that is known.
#[derive(Debug, Clone)]
pub struct Placed<'a> {
    /// The member.
    pub member: &'a Member,
    /// Its address; `None`: it is known by its name alone.
    pub address: Option<IpAddr>,
}

/// Who is a member of a pool, for those who count.
pub type Members<'a> = dyn Fn(&'a Pool) -> Vec<Placed<'a>> + 'a;

/// Where a member is, for the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Host<'a> {
    At(IpAddr),
    Named(&'a str),
}

/// A probe of a member: two that are equal are made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Words<'a> {
    host: Host<'a>,
    port: u16,
    known_as: &'a str,
    definition: u64,
    timeout: Duration,
}

/// What several pools ask of one probe.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// How many members ask for it.
    times: usize,
    interval: Duration,
    /// The longest that none of them minds while nobody uses it.
    idle: Duration,
    /// Somebody probes it as ever, used or not.
    always: bool,
    keeps: bool,
}

impl Config {
    /// What its probes cost by the file alone: a name is one member, and a source none.
    pub fn cost(&self) -> Cost {
        self.cost_of(&|pool| pool.members.iter().map(|member| Placed { member, address: None }).collect())
    }

    /// What they cost where `members` says who is a member.
    pub fn cost_of<'a>(&'a self, members: &Members<'a>) -> Cost {
        let pools: Vec<_> = self.pools.values().map(|pool| (&**pool, words(pool, members))).collect();
        let mut asked: HashMap<Words<'_>, Asked> = HashMap::new();
        for (pool, words) in &pools {
            let Some(probe) = &pool.probe else { continue };
            for &words in words {
                let one = asked.entry(words).or_insert(Asked {
                    times: 0,
                    interval: probe.interval,
                    idle: Duration::MAX,
                    always: false,
                    keeps: probe.reuse,
                });
                one.times += 1;
                one.interval = one.interval.min(probe.interval);
                one.idle = one.idle.min(probe.idle.map_or(Duration::MAX, |idle| idle.interval));
                one.always |= probe.idle.is_none();
            }
        }
        let rate = |of: fn(&Asked) -> Duration| {
            // Counted before they are divided: in whatever order they come the sum is the same.
            let mut intervals: BTreeMap<Duration, usize> = BTreeMap::new();
            asked.values().for_each(|one| *intervals.entry(of(one)).or_default() += 1);
            let rates = intervals.iter().map(|(interval, count)| *count as f64 / interval.as_secs_f64());
            // The sum of no numbers is -0.0, which is shown as such.
            rates.fold(0.0, |sum, rate| sum + rate)
        };
        let probes_per_second = rate(|one| one.interval);
        Cost {
            probes_per_second,
            idle_probes_per_second: rate(|one| if one.always { one.interval } else { one.idle }),
            probes: asked.len(),
            shared: asked.values().filter(|one| one.times > 1).count(),
            kept: asked.values().filter(|one| one.keeps).count(),
            stretch: stretch(probes_per_second, self.max_probes_per_second),
            pools: pools.iter().map(|(pool, words)| PoolCost::of(pool, words, &asked)).collect(),
        }
    }

    /// Probes a second that the file costs while every member is steady and in use: each member that is not disabled once
    /// in its pool's interval, and what is shared once.
    pub fn probes_per_second(&self) -> f64 {
        self.cost().probes_per_second
    }
}

impl PoolCost {
    fn of(pool: &Pool, words: &[Words<'_>], asked: &HashMap<Words<'_>, Asked>) -> PoolCost {
        let Some(probe) = &pool.probe else {
            let name = pool.name.clone();
            return PoolCost { name, members: 0, shared: 0, interval: None, per_member: 0.0, probes_per_second: 0.0 };
        };
        let members = words.len();
        let is_shared = |words: &&Words<'_>| asked.get(*words).is_some_and(|one| one.times > 1);
        let per_member = a_second(probe.interval);
        PoolCost {
            name: pool.name.clone(),
            members,
            shared: words.iter().filter(is_shared).count(),
            interval: Some(probe.interval),
            per_member,
            probes_per_second: per_member * members as f64,
        }
    }
}

/// The probes of everybody but the disabled: also of those that drain, whatever their tier.
fn words<'a>(pool: &'a Pool, members: &Members<'a>) -> Vec<Words<'a>> {
    let Some(probe) = &pool.probe else { return Vec::new() };
    let definition = probe.definition();
    let words = |Placed { member, address }| {
        let address = address.or_else(|| member.host.parse().ok());
        Words {
            host: address.map_or(Host::Named(&member.host), Host::At),
            port: probe.port.unwrap_or(member.port),
            known_as: member.own_name(),
            definition,
            timeout: probe.timeout,
        }
    };
    let probed = members(pool).into_iter().filter(|placed| placed.member.state != Admin::Disabled);
    probed.map(words).collect()
}

fn a_second(interval: Duration) -> f64 {
    1.0 / interval.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(pools: &str, more: &str) -> Cost {
        let text = format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\n{more}\npools: {{ {pools} }}\nroutes: [{{ pool: a }}]\n"
        );
        crate::config::parse("a.yaml", &text, &|_| None).expect("a good file").config.cost()
    }

    #[test]
    fn what_pools_share_counts_once_at_the_shortest_interval() {
        let two = |one: &str, other: &str| {
            let pool = |name: &str, probe: &str| {
                format!("{name}: {{ members: [\"10.0.0.1:80\", \"10.0.0.2:80\"], probe: {{ {probe} }} }}")
            };
            cost(&format!("{}, {}", pool("a", one), pool("b", other)), "")
        };
        let alone = "path: /, interval: 10s, timeout: 1s";
        // The other pool's probe, probes, shared ones, a second, and a second without traffic.
        let rows = [
            (alone, 2, 2, 0.2, 0.2),
            ("path: /, interval: 5s, timeout: 1s", 2, 2, 0.4, 0.4),
            (
                "path: /, interval: 20s, timeout: 1s, fast_interval: 3s, window: { size: 3, required: 1 }",
                2,
                2,
                0.2,
                0.2,
            ),
            ("path: /b, interval: 10s, timeout: 1s", 4, 0, 0.4, 0.4),
            ("path: /, interval: 10s, timeout: 2s", 4, 0, 0.4, 0.4),
            ("path: /, interval: 10s, timeout: 1s, port: 81", 4, 0, 0.4, 0.4),
            ("path: /, interval: 10s, timeout: 1s, port: 80", 2, 2, 0.2, 0.2),
            ("path: /b, interval: 10s, timeout: 1s, idle: { interval: 40s }", 4, 0, 0.4, 0.25),
            ("path: /, interval: 10s, timeout: 1s, idle: { interval: 40s }", 2, 2, 0.2, 0.2),
        ];
        for (other, probes, shared, busy, idle) in rows {
            let cost = two(alone, other);
            assert_eq!((cost.probes, cost.shared), (probes, shared), "{other}");
            assert!((cost.probes_per_second - busy).abs() < 1e-9, "{other}: {cost:?}");
            assert!((cost.idle_probes_per_second - idle).abs() < 1e-9, "{other}: {cost:?}");
        }
    }

    #[test]
    fn whoever_is_probed_counts_whatever_the_weight_or_tier() {
        let members = r#"["10.0.0.1:80", { address: "10.0.0.2:80", weight: 0 }, { address: "10.0.0.3:80", tier: 1 },
            { address: "10.0.0.4:80", state: draining }, { address: "10.0.0.5:80", state: disabled }]"#;
        let pools = format!(
            "a: {{ members: {members}, probe: {{ path: /, interval: 2s }} }}, b: {{ members: [\"c:80\"], probe: off }}"
        );
        let cost = cost(&pools, "");
        let pool = |name: &str| cost.pools.iter().find(|pool| pool.name == name).expect("it is there");
        assert_eq!((pool("a").members, pool("a").per_member, pool("a").probes_per_second), (4, 0.5, 2.0));
        assert_eq!((pool("b").members, pool("b").interval), (0, None));
        assert_eq!(cost.probes_per_second, 2.0);
    }

    #[test]
    fn names_count_by_their_addresses_where_these_are_known() {
        let text = r#"
listeners: [{ address: "127.0.0.1:0" }]
pools:
  a: { members: ["app.test:80"], probe: { path: /, interval: 1s, reuse: true } }
  b: { members: ["app.test:80", "10.0.0.1:80"], probe: { path: /, interval: 1s, reuse: true } }
routes: [{ pool: a }, { path: /b, pool: b }]
"#;
        let config = crate::config::parse("a.yaml", text, &|_| None).expect("a good file").config;
        let three: Vec<IpAddr> = (1..=3).map(|n| IpAddr::from([10, 1, 0, n])).collect();
        let placed = |member| {
            let one = |address| Placed { member, address };
            if member.host == "app.test" { three.iter().map(|ip| one(Some(*ip))).collect() } else { vec![one(None)] }
        };
        let cost = config.cost_of(&|pool| pool.members.iter().flat_map(placed).collect());
        let counts = |cost: &Cost| (cost.probes, cost.shared, cost.kept, cost.pools[0].members, cost.pools[1].members);
        assert_eq!((counts(&cost), cost.probes_per_second), ((4, 3, 4, 3, 4), 4.0));
        let alone = config.cost();
        assert_eq!((counts(&alone), alone.probes_per_second), ((2, 1, 2, 1, 2), 2.0));
    }

    #[test]
    fn a_ceiling_stretches_what_is_over_it() {
        let pools = "a: { members: [\"10.0.0.1:80\", \"10.0.0.2:80\"], probe: { path: /, interval: 10ms } }";
        for (ceiling, expected) in
            [("", 1.0), ("max_probes_per_second: 1000", 1.0), ("max_probes_per_second: 95", 200.0 / 90.25)]
        {
            let stretch = cost(pools, ceiling).stretch;
            assert!((stretch - expected).abs() < 1e-9, "{ceiling}: {stretch}");
        }
    }
}
