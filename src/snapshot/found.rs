//! What the sources of a configuration say now: who is a member of each pool, and where.
//!
//! It is gathered at the edge (`discovery`), where names are asked for; here it is a value that can be compared.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::config;

/// The members of each pool, by its name.
#[derive(Debug, Clone, Default)]
pub struct Found(HashMap<String, Arc<[Located]>>);

/// A member and where it is; a name with three addresses is three of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The member, with what its source says of it.
    pub member: config::Member,
    /// Where traffic goes; `None` while its name has no address.
    pub address: Option<SocketAddr>,
    /// Among how many its weight is divided: at least 1.
    pub split: u32,
    /// Who says that it is a member.
    pub source: Source,
    /// Why there is no address, or what is wrong with the answer it still has.
    pub trouble: Option<Arc<str>>,
}

/// Who says that somebody is a member of a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The configuration itself: its place among the pool's members.
    Written(usize),
    /// The answer for a service: its place among the pool's services.
    Service(usize),
    /// A file: its place among the pool's files.
    File(usize),
}

impl Found {
    /// The members of `pool`; nobody for one that is not known.
    pub fn of(&self, pool: &str) -> &[Located] {
        self.0.get(pool).map_or(&[], |located| located)
    }

    /// The same, to be kept.
    pub fn shared(&self, pool: &str) -> Option<Arc<[Located]>> {
        self.0.get(pool).cloned()
    }

    /// Notes who is in `pool`. Of two that would be the same member the first counts.
    pub fn insert(&mut self, pool: &str, mut located: Vec<Located>) {
        let mut seen = HashSet::with_capacity(located.len());
        located.retain(|l| seen.insert((l.member.name.clone(), l.address)));
        self.0.insert(pool.to_owned(), located.into());
    }

    /// Takes from `other` what it says of `pool`.
    pub fn take_over(&mut self, pool: &str, other: &Found) {
        if let Some(located) = other.0.get(pool) {
            self.0.insert(pool.to_owned(), located.clone());
        }
    }

    /// The addresses of `pool` that several names lead to, each with these names in their order.
    pub fn shared_addresses(&self, pool: &str) -> Vec<(SocketAddr, Vec<&str>)> {
        let mut names: BTreeMap<SocketAddr, Vec<&str>> = BTreeMap::new();
        for located in self.of(pool) {
            let Some(address) = located.address else { continue };
            names.entry(address).or_default().push(&located.member.name);
        }
        names.into_iter().filter(|(_, names)| names.len() > 1).collect()
    }

    /// Whether `pool` has the same members by both, whatever is known of their sources.
    pub fn agrees(&self, other: &Found, pool: &str) -> bool {
        let (one, two) = (self.of(pool), other.of(pool));
        let same = |a: &Located, b: &Located| a.member == b.member && a.address == b.address && a.split == b.split;
        one.len() == two.len() && one.iter().zip(two).all(|(a, b)| same(a, b))
    }
}

impl Located {
    /// One for each address, or one without any.
    pub fn all(member: &config::Member, known: &[IpAddr], source: &Source, trouble: Option<Arc<str>>) -> Vec<Located> {
        let at = |address| Located {
            member: member.clone(),
            address,
            split: known.len().max(1) as u32,
            source: source.clone(),
            trouble: trouble.clone(),
        };
        match known {
            [] => vec![at(None)],
            known => known.iter().map(|ip| at(Some(SocketAddr::new(*ip, member.port)))).collect(),
        }
    }

    /// Its address for people: the name where there is none.
    pub fn label(&self) -> String {
        self.address.map_or_else(|| self.member.name.clone(), |address| address.to_string())
    }
}

impl Source {
    /// In words, for those who wonder where a member of `pool` comes from; `None` where the file names it.
    pub fn words(&self, pool: &config::Pool) -> Option<String> {
        match self {
            Source::Written(_) => None,
            Source::Service(index) => Some(format!("srv {}", pool.services.get(*index)?.name)),
            Source::File(index) => Some(format!("file {}", pool.files.get(*index)?.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Admin;

    fn member(name: &str) -> config::Member {
        let (host, port) = name.rsplit_once(':').expect("a port");
        let (host, port) = (host.to_owned(), port.parse().expect("a port"));
        config::Member {
            name: name.to_owned(),
            host,
            port,
            known_as: None,
            capacity: Default::default(),
            weight: 1,
            tier: 0,
            state: Admin::Enabled,
        }
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn a_name_is_as_many_members_as_it_has_addresses_and_one_without() {
        let app = member("app:80");
        let labels = |known: &[&str]| -> Vec<(String, u32)> {
            let located = Located::all(&app, &ips(known), &Source::Written(0), None);
            located.iter().map(|l| (l.label(), l.split)).collect()
        };
        assert_eq!(labels(&[]), [("app:80".to_owned(), 1)]);
        assert_eq!(labels(&["10.0.0.1"]), [("10.0.0.1:80".to_owned(), 1)]);
        assert_eq!(labels(&["10.0.0.1", "::1"]), [("10.0.0.1:80".to_owned(), 2), ("[::1]:80".to_owned(), 2)]);
    }

    #[test]
    fn of_two_that_are_the_same_member_the_first_counts() {
        let mut found = Found::default();
        let heavy = config::Member { weight: 9, ..member("app:80") };
        let of = |member: &config::Member, source| Located::all(member, &ips(&["10.0.0.1"]), &source, None);
        found.insert("web", [of(&heavy, Source::Written(0)), of(&member("app:80"), Source::File(0))].concat());
        assert_eq!(found.of("web"), of(&heavy, Source::Written(0)));
        assert_eq!(found.of("other"), []);
    }

    #[test]
    fn an_address_of_several_names_is_shared() {
        let mut found = Found::default();
        let of = |name, known: &[&str]| Located::all(&member(name), &ips(known), &Source::Written(0), None);
        let one = of("a:80", &["10.0.0.1", "10.0.0.2"]);
        found.insert(
            "web",
            [one, of("10.0.0.1:80", &["10.0.0.1"]), of("b:81", &["10.0.0.1"]), of("c:80", &[])].concat(),
        );
        assert_eq!(found.shared_addresses("web"), [(([10, 0, 0, 1], 80).into(), vec!["a:80", "10.0.0.1:80"])]);
    }

    #[test]
    fn a_trouble_alone_makes_no_difference() {
        let with = |trouble: Option<&str>, known: &[&str]| {
            let mut found = Found::default();
            let trouble = trouble.map(Arc::from);
            found.insert("web", Located::all(&member("app:80"), &ips(known), &Source::Written(0), trouble));
            found
        };
        let one = with(None, &["10.0.0.1"]);
        assert!(one.agrees(&with(Some("no answer"), &["10.0.0.1"]), "web"));
        assert!(!one.agrees(&with(None, &["10.0.0.2"]), "web"));
        assert!(!one.agrees(&with(None, &["10.0.0.1", "10.0.0.2"]), "web"));
    }
}
