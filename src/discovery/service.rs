//! From the answer for a service to members: ports, weights and tiers (RFC 2782). Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Member, Service};

/// Most that a member can weigh (health.md §7).
const MAX_WEIGHT: u64 = 1000;

/// One record of the answer for a service. The order is that of RFC 2782: by priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The lowest number comes first.
    pub priority: u16,
    /// Among those of the same priority.
    pub weight: u16,
    /// Where it serves.
    pub port: u16,
    /// Its name, in lower case, without the last dot.
    pub host: String,
}

/// The members that `targets` are. Of two records for the same target the one of lower priority number counts.
pub fn members(service: &Service, targets: &BTreeSet<Target>) -> Vec<Member> {
    let mut ranks: BTreeMap<u16, Vec<&Target>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for target in targets.iter().filter(|target| target.port != 0 && seen.insert((&target.host, target.port))) {
        ranks.entry(target.priority).or_default().push(target);
    }
    let mut members = Vec::with_capacity(targets.len());
    for (rank, targets) in ranks.values().enumerate() {
        let tier = u8::try_from(usize::from(service.tier) + rank).unwrap_or(u8::MAX);
        let weights = weights(targets, u64::from(service.weight));
        members.extend(targets.iter().zip(weights).map(|(target, weight)| Member {
            name: format!("{}:{}", target.host, target.port),
            host: target.host.clone(),
            port: target.port,
            known_as: service.known_as.clone(),
            capacity: service.capacity,
            weight,
            tier,
            state: service.state,
        }));
    }
    members
}

/// Weights of one priority, times `factor`, in proportion and within bounds.
fn weights(targets: &[&Target], factor: u64) -> Vec<u32> {
    let all_zero = targets.iter().all(|target| target.weight == 0);
    let wanted = |target: &&Target| if all_zero { factor } else { u64::from(target.weight) * factor };
    let most = targets.iter().map(wanted).max().unwrap_or_default().max(MAX_WEIGHT);
    let fitted = |wanted: u64| match wanted {
        0 => 0,
        // Rounded to the nearest: at most 1000 by the choice of `most`.
        wanted => ((wanted * MAX_WEIGHT + most / 2) / most).max(1) as u32,
    };
    targets.iter().map(|target| fitted(wanted(target))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Capacity;
    use crate::health::Admin;

    fn service(weight: u32, tier: u8) -> Service {
        Service {
            name: "_http._tcp.app".to_owned(),
            known_as: None,
            capacity: Capacity::default(),
            weight,
            tier,
            state: Admin::Enabled,
        }
    }

    fn shown(service: &Service, records: &[(u16, u16, u16, &str)]) -> Vec<(String, u32, u8)> {
        let target = |&(priority, weight, port, host): &(u16, u16, u16, &str)| Target {
            priority,
            weight,
            port,
            host: host.to_owned(),
        };
        let members = members(service, &records.iter().map(target).collect());
        members.into_iter().map(|m| (m.name, m.weight, m.tier)).collect()
    }

    fn weighed(factor: u32, weights: &[u16]) -> Vec<u32> {
        let records: Vec<_> = weights.iter().zip(1..).map(|(&weight, port)| (1, weight, port, "a")).collect();
        let mut shown = shown(&service(factor, 0), &records);
        shown.sort_by_key(|(name, ..)| name.rsplit_once(':').map(|(_, port)| port.parse::<u16>().unwrap_or(0)));
        shown.into_iter().map(|(_, weight, _)| weight).collect()
    }

    #[test]
    fn weights_keep_their_proportion_within_the_bounds() {
        // Case C45: zero, huge, all zero.
        assert_eq!(weighed(1, &[60, 40]), [60, 40]);
        assert_eq!(weighed(1, &[0, 40]), [0, 40], "0 beside others is drained");
        assert_eq!(weighed(1, &[0, 0, 0]), [1, 1, 1], "all 0 are equal");
        assert_eq!(weighed(1, &[65_535, 32_768, 1, 0]), [1000, 500, 1, 0]);
        assert_eq!(weighed(1, &[1000, 1]), [1000, 1]);
        assert_eq!(weighed(3, &[60, 40]), [180, 120]);
        assert_eq!(weighed(3, &[0, 0]), [3, 3]);
        assert_eq!(weighed(1000, &[65_535, 1]), [1000, 1]);
        assert_eq!(weighed(0, &[60, 40]), [0, 0], "a service of weight 0 is drained");
        assert_eq!(weighed(1, &[]), [0_u32; 0]);
    }

    #[test]
    fn priorities_are_ranks_below_the_services_own_tier() {
        let records = [(20, 0, 80, "late"), (10, 5, 80, "b"), (10, 7, 81, "a"), (65_535, 1, 80, "last")];
        let expected = [("b:80", 5, 1), ("a:81", 7, 1), ("late:80", 1, 2), ("last:80", 1, 3)];
        let expected: Vec<_> = expected.map(|(name, weight, tier)| (name.to_owned(), weight, tier)).to_vec();
        assert_eq!(shown(&service(1, 1), &records), expected);
        let ranks: Vec<_> = (0..5).map(|priority| (priority, 1, 80 + priority, "a")).collect();
        let tiers: Vec<u8> = shown(&service(1, 253), &ranks).into_iter().map(|(_, _, tier)| tier).collect();
        assert_eq!(tiers, [253, 254, 255, 255, 255]);
    }

    #[test]
    fn a_target_counts_once_and_port_0_is_nobodys() {
        let records = [(10, 5, 80, "a"), (20, 9, 80, "a"), (10, 5, 0, "b")];
        assert_eq!(shown(&service(1, 0), &records), [("a:80".to_owned(), 5, 0)]);
    }
}
