//! The members of a pool.

use std::collections::HashMap;

use super::address::{Address, host_name};
use super::capacity::capacity;
use super::domain::{Capacity, Member};
use super::file::MemberKeys;
use super::reading::Reading;
use super::spelling::Spelled;
use super::words::Or;
use crate::health::Admin;

/// Most that a member can weigh (health.md §7).
const MAX_WEIGHT: u32 = 1000;

/// The members written in the pool that `read` stands on.
/// Each of them has the capacity `each`, but for what it has of its own.
pub(super) fn members(
    pool: &str,
    written: Option<&[Or<Address, MemberKeys>]>,
    each: Capacity,
    read: &mut Reading<'_>,
) -> Vec<Member> {
    let list = written.unwrap_or_default();
    if list.is_empty() && !read.at.key("members").damaged() {
        read.missing("members", format!("pool \"{pool}\" has no members; write `members: [\"10.0.0.1:8080\"]`"));
    }
    let mut members: Vec<Member> = Vec::with_capacity(list.len());
    let mut first_lines: HashMap<String, u32> = HashMap::with_capacity(list.len());
    for (index, written) in list.iter().enumerate() {
        let at = read.at.key("members").item(index);
        let Some(member) = member(written, each, Reading::new(at, read.problems)) else { continue };
        if let Some(line) = first_lines.get(&member.name) {
            let place = if at.key("address").exists() { at.key("address") } else { at };
            let message =
                format!("pool \"{pool}\": member {} is listed twice; the first is on line {line}", member.name);
            read.problems.error(place, message);
            continue;
        }
        first_lines.insert(member.name.clone(), at.mark().line);
        members.push(member);
    }
    members
}

fn member(written: &Or<Address, MemberKeys>, each: Capacity, mut read: Reading<'_>) -> Option<Member> {
    let plain = |address: &Address| Member {
        name: address.name.clone(),
        host: address.host.clone(),
        port: address.port,
        known_as: None,
        weight: 1,
        tier: 0,
        state: Admin::Enabled,
        capacity: each,
    };
    let keys = match written {
        Or::Word(address) => return Some(plain(address)),
        Or::Keys(keys) => keys,
    };
    let known_as = read.text("host", &keys.host, |text| {
        host_name(text).map_err(|e| format!("{e}; `host` is the name the member goes by, without a port"))
    });
    let weight = read.count("weight", &keys.weight, 0..=MAX_WEIGHT);
    let tier = read.count("tier", &keys.tier, 0..=u8::MAX);
    let own = capacity(&keys.max_in_flight, &keys.max_connections, &mut read);
    let Some(Spelled(address)) = &keys.address else {
        read.missing("address", "a member needs an address, such as `{ address: \"10.0.0.1:8080\" }`");
        return None;
    };
    Some(Member {
        known_as,
        weight: weight.unwrap_or(1),
        tier: tier.unwrap_or(0),
        state: keys.state.map_or(Admin::Enabled, |Spelled(state)| state),
        capacity: Capacity {
            max_in_flight: own.max_in_flight.or(each.max_in_flight),
            max_connections: own.max_connections.or(each.max_connections),
        },
        ..plain(address)
    })
}
