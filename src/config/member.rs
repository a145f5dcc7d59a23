//! The members of a pool, and where more of them come from.

use std::collections::HashMap;
use std::path::PathBuf;

use super::address::{Address, host_name, service_name};
use super::capacity::capacity;
use super::domain::{Capacity, Member, Service};
use super::file::MemberKeys;
use super::places::At;
use super::reading::Reading;
use super::spelling::Spelled;
use super::words::Or;
use crate::health::Admin;

/// Most that a member can weigh (health.md §7).
const MAX_WEIGHT: u32 = 1000;

/// What a list of members says.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) members: Vec<Member>,
    pub(super) services: Vec<Service>,
    pub(super) files: Vec<PathBuf>,
}

/// Which sources may stand in a list beside members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sources {
    All,
    /// A file of members names no further files.
    Services,
}

/// One item of a list.
enum Item {
    Member(Member),
    Service(Service),
    File(PathBuf),
}

/// The members written in the pool that `read` stands on. Each of them has the capacity `each`, but for what it has of its
/// own.
pub(super) fn listed(
    pool: &str,
    written: Option<&[Or<Address, MemberKeys>]>,
    each: Capacity,
    read: &mut Reading<'_>,
) -> Listed {
    let items = written.unwrap_or_default();
    if items.is_empty() && !read.at.key("members").damaged() {
        read.missing("members", format!("pool \"{pool}\" has no members; write `members: [\"10.0.0.1:8080\"]`"));
    }
    let mut listed = list(&format!("pool \"{pool}\""), items, Sources::All, &mut read.under("members"));
    listed.members.iter_mut().for_each(|member| member.capacity = member.capacity.or(each));
    listed
}

/// Where the members of the pool at `pool` are written, without the sources among them.
pub(super) fn places(pool: At<'_>) -> impl Iterator<Item = At<'_>> {
    let items = (0..).map(move |index| pool.key("members").item(index)).take_while(|item| item.exists());
    items.filter(|item| !item.key("srv").exists() && !item.key("file").exists())
}

/// The items of a list that `read` stands on; `whose` it is stands in problems.
pub(super) fn list(whose: &str, items: &[Or<Address, MemberKeys>], sources: Sources, read: &mut Reading<'_>) -> Listed {
    let mut listed = Listed::default();
    let mut first_lines: HashMap<String, u32> = HashMap::with_capacity(items.len());
    for (index, written) in items.iter().enumerate() {
        let at = read.at.item(index);
        let Some(item) = item(written, sources, Reading::new(at, read.problems)) else { continue };
        let (key, what) = match &item {
            Item::Member(member) => ("address", format!("member {}", member.name)),
            Item::Service(service) => ("srv", format!("service {}", service.name)),
            Item::File(path) => ("file", format!("file {}", path.display())),
        };
        if let Some(line) = first_lines.get(&what) {
            let place = if at.key(key).exists() { at.key(key) } else { at };
            read.problems.error(place, format!("{whose}: {what} is listed twice; the first is on line {line}"));
            continue;
        }
        first_lines.insert(what, at.mark().line);
        match item {
            Item::Member(member) => listed.members.push(member),
            Item::Service(service) => listed.services.push(service),
            Item::File(path) => listed.files.push(path),
        }
    }
    listed
}

fn item(written: &Or<Address, MemberKeys>, sources: Sources, mut read: Reading<'_>) -> Option<Item> {
    let keys = match written {
        Or::Word(address) => return Some(Item::Member(plain(address))),
        Or::Keys(keys) => keys,
    };
    match [keys.address.is_some(), keys.srv.is_some(), keys.file.is_some()] {
        [_, false, false] => member(keys, &mut read).map(Item::Member),
        [false, true, false] => service(keys, &mut read).map(Item::Service),
        [false, false, true] => file(keys, sources, &mut read).map(Item::File),
        _ => {
            let at = read.at;
            read.problems.error(at, "a member is one of `address`, `srv` and `file`; make an item of each");
            None
        }
    }
}

fn plain(address: &Address) -> Member {
    Member {
        name: address.name.clone(),
        host: address.host.clone(),
        port: address.port,
        known_as: None,
        weight: 1,
        tier: 0,
        state: Admin::Enabled,
        capacity: Capacity::default(),
    }
}

fn known_as(keys: &MemberKeys, read: &mut Reading<'_>) -> Option<String> {
    read.text("host", &keys.host, |text| {
        host_name(text).map_err(|e| format!("{e}; `host` is the name the member goes by, without a port"))
    })
}

fn member(keys: &MemberKeys, read: &mut Reading<'_>) -> Option<Member> {
    let known_as = known_as(keys, read);
    let weight = read.count("weight", &keys.weight, 0..=MAX_WEIGHT);
    let tier = read.count("tier", &keys.tier, 0..=u8::MAX);
    let own = capacity(&keys.max_in_flight, &keys.max_connections, read);
    let Some(Spelled(address)) = &keys.address else {
        if !["srv", "file"].iter().any(|key| read.at.may_have_lost(key)) {
            read.missing("address", "a member needs an address, such as `{ address: \"10.0.0.1:8080\" }`");
        }
        return None;
    };
    Some(Member {
        known_as,
        weight: weight.unwrap_or(1),
        tier: tier.unwrap_or(0),
        state: keys.state.map_or(Admin::Enabled, |Spelled(state)| state),
        capacity: own,
        ..plain(address)
    })
}

fn service(keys: &MemberKeys, read: &mut Reading<'_>) -> Option<Service> {
    let weight = read.count("weight", &keys.weight, 0..=MAX_WEIGHT);
    let tier = read.count("tier", &keys.tier, 0..=u8::MAX);
    Some(Service {
        name: read.text("srv", &keys.srv, service_name)?,
        known_as: known_as(keys, read),
        weight: weight.unwrap_or(1),
        tier: tier.unwrap_or(0),
        state: keys.state.map_or(Admin::Enabled, |Spelled(state)| state),
        capacity: capacity(&keys.max_in_flight, &keys.max_connections, read),
    })
}

fn file(keys: &MemberKeys, sources: Sources, read: &mut Reading<'_>) -> Option<PathBuf> {
    if sources == Sources::Services {
        read.error("file", "a file of members names no further file; list its members here");
        return None;
    }
    let beside = [
        ("host", keys.host.is_some()),
        ("weight", keys.weight.is_some()),
        ("tier", keys.tier.is_some()),
        ("state", keys.state.is_some()),
        ("max_in_flight", keys.max_in_flight.is_some()),
        ("max_connections", keys.max_connections.is_some()),
    ];
    for (key, _) in beside.iter().filter(|(_, written)| *written) {
        read.error(key, format!("`{key}` has no meaning beside `file`; write it with each member in that file"));
    }
    read.text("file", &keys.file, |path| match path {
        "" => Err("the path is empty; write a file such as `members.yaml`".to_owned()),
        path if path.contains('\0') => Err("the path holds a NUL character".to_owned()),
        path => Ok(PathBuf::from(path)),
    })
}
