//! Clients that are bound to a member: by which number it is told, who it is, and why one is bound.
//!
//! The number has to find its member again in another process, so it is made of what the configuration and names say of the
//! member, and of nothing that a process counts. Not here: how it is kept secret and sent (`proxy`).

use std::net::IpAddr;
use std::time::Duration;

use super::{Member, Pool};
use crate::health::{Key, MemberId};

/// A client's bond, at the moment of a pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bond {
    /// Whom it is bound to.
    pub member: MemberId,
    /// That moment: a member that drains keeps its clients for a time.
    pub now: Duration,
}

/// Why a client was told whom it is bound to from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// It had no cookie.
    New,
    /// Its cookie was none of ours: changed, or of another pool or secret.
    Invalid,
    /// Its cookie was too old.
    Expired,
    /// Its member is no longer in the pool.
    Removed,
    /// Its member may not serve: ejected, disabled, drained, of a tier that does not serve, or not known to be well.
    Out,
    /// Its member has failed this very request.
    Failed,
    /// It stays where it is: its cookie was getting old, or was signed with the previous secret.
    Renewed,
}

impl Binding {
    /// Every one.
    pub const ALL: [Binding; 7] = [
        Binding::New,
        Binding::Invalid,
        Binding::Expired,
        Binding::Removed,
        Binding::Out,
        Binding::Failed,
        Binding::Renewed,
    ];

    /// The word in metrics and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Binding::New => "new",
            Binding::Invalid => "invalid",
            Binding::Expired => "expired",
            Binding::Removed => "removed",
            Binding::Out => "out",
            Binding::Failed => "failed",
            Binding::Renewed => "renewed",
        }
    }
}

/// The members of a pool by their numbers.
#[derive(Debug, Default)]
pub(super) struct Badges(Box<[(u64, MemberId)]>);

impl Badges {
    /// Of these members.
    pub(super) fn new<'a>(members: impl Iterator<Item = (&'a Key, MemberId)>) -> Badges {
        let mut badges: Box<[_]> = members.map(|(key, id)| (badge(key), id)).collect();
        badges.sort_unstable();
        Badges(badges)
    }

    fn find(&self, badge: u64) -> Option<MemberId> {
        let found = self.0.partition_point(|(other, _)| *other < badge);
        self.0.get(found).filter(|(other, _)| *other == badge).map(|(_, id)| *id)
    }
}

impl Member {
    /// Its number in cookies: of its name, its address and its scheme, the same in every process.
    pub fn badge(&self) -> u64 {
        badge(self.key())
    }
}

impl Pool {
    /// The member with this number, however it stands; `None`: there is none in the pool now.
    pub fn badged(&self, badge: u64) -> Option<MemberId> {
        self.badges.load().find(badge)
    }
}

/// FNV-1a: written out, since it must never become another one.
fn badge(key: &Key) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = BASIS;
    let mut take = |bytes: &[u8]| bytes.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    take(key.name.as_bytes());
    // No name has one.
    take(&[0, u8::from(key.tls)]);
    if let Some(address) = key.address {
        match address.ip() {
            IpAddr::V4(ip) => take(&ip.octets()),
            IpAddr::V6(ip) => take(&ip.octets()),
        }
        take(&address.port().to_be_bytes());
    }
    hash
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::{ids, plan, pool};
    use super::super::{Choice, Foreseen, Limits, Pick, Plan};
    use super::*;
    use crate::config::Capacity;
    use crate::health::{Admin, OnAllUnhealthy, Reason, Sample};

    const NOW: Duration = Duration::ZERO;

    fn key(name: &str, address: Option<&str>, tls: bool) -> Key {
        let address = address.map(|address| address.parse().expect("an address"));
        Key { name: name.to_owned(), address, tls }
    }

    #[test]
    fn a_number_is_the_same_for_ever_and_another_ones_is_another() {
        let keys = [
            key("10.0.0.1:80", Some("10.0.0.1:80"), false),
            key("10.0.0.1:80", Some("10.0.0.1:80"), true),
            key("app:80", Some("10.0.0.1:80"), false),
            key("app:80", Some("10.0.0.2:80"), false),
            key("app:80", Some("[2001:db8::1]:80"), false),
            key("app:80", None, false),
        ];
        // By another program; cookies that clients have would lead nowhere.
        assert_eq!(badge(&keys[0]), 0x77ee_3795_ea49_e314);
        assert_eq!(keys.iter().map(badge).collect::<BTreeSet<_>>().len(), keys.len());
        let badges = Badges::new(keys.iter().zip(0..).map(|(key, id)| (key, MemberId(id))));
        for (id, key) in (0..).zip(&keys) {
            assert_eq!(badges.find(badge(key)), Some(MemberId(id)));
        }
        assert_eq!((badges.find(7), Badges::default().find(7)), (None, None));
    }

    /// Whom a request that is bound to this member gets, which is what was foreseen; the seat is kept.
    fn asks(pool: &Pool, member: MemberId, held: &mut Vec<super::super::Lease>) -> Option<(MemberId, Choice)> {
        let bond = Bond { member, now: NOW };
        let foreseen = pool.foresee_bound(None, Some(bond)).foreseen;
        match (pool.pick_bound(&[], None, Some(bond)), foreseen) {
            (Pick::Member(lease), Foreseen::Member(index, choice)) => {
                assert_eq!((ids(pool)[index], choice), (lease.member().id(), lease.choice()));
                let got = (lease.member().id(), lease.choice());
                held.push(lease);
                Some(got)
            }
            (Pick::Member(_), other) => panic!("{other:?} was foreseen"),
            _ => None,
        }
    }

    fn to(member: MemberId) -> Option<Bond> {
        Some(Bond { member, now: NOW })
    }

    fn keeps(pool: &Pool, member: MemberId) -> bool {
        pool.foresee_bound(None, to(member)).bond_holds
    }

    #[test]
    fn a_bound_client_is_served_by_its_member_while_that_may_and_by_another_when_not() {
        let pool = pool(plan(3));
        let (everyone, mut held) = (ids(&pool), Vec::new());
        let [bond, ..] = everyone[..] else { panic!("three") };
        assert_eq!(pool.badged(pool.roster().members()[0].badge()), Some(bond));
        for _ in 0..9 {
            assert_eq!(asks(&pool, bond, &mut held), Some((bond, Choice::ByCookie)));
        }
        assert!(pool.administer(NOW, bond, Admin::Draining));
        assert_eq!(asks(&pool, bond, &mut held), Some((bond, Choice::ByCookie)), "those it has stay");
        assert!(
            matches!(pool.pick(&[], None), Pick::Member(lease) if lease.member().id() != bond),
            "and no others come"
        );
        assert!(pool.administer(NOW, bond, Admin::Disabled));
        let (other, choice) = asks(&pool, bond, &mut held).expect("somebody");
        assert!(other != bond && choice == Choice::ByPolicy && !keeps(&pool, bond));
        assert!(
            matches!(pool.pick_bound(&[other], None, to(other)), Pick::Member(lease) if lease.member().id() != other)
        );
        assert!(matches!(pool.pick_bound(&[], None, to(MemberId(u64::MAX))), Pick::Member(_)), "nobody of that name");
    }

    #[test]
    fn an_ejected_one_keeps_nobody_and_neither_does_an_ill_one_that_is_drained() {
        let pool = pool(plan(3));
        let (everyone, mut held) = (ids(&pool), Vec::new());
        let (first, second) = (everyone[0], everyone[1]);
        pool.report(NOW, first, 7, Sample::fail(Reason::Refused, NOW));
        assert!(
            asks(&pool, first, &mut held).is_some_and(|(other, choice)| other != first && choice == Choice::ByPolicy)
        );
        assert!(pool.administer(NOW, second, Admin::Draining) && keeps(&pool, second));
        pool.report(NOW, second, 7, Sample::fail(Reason::Refused, NOW));
        assert!(!keeps(&pool, second));
    }

    #[test]
    fn whoever_is_drained_serves_those_bound_to_it_also_where_nobody_else_may_serve() {
        let mut plan = plan(2);
        plan.rules.on_all_unhealthy = OnAllUnhealthy::Fail;
        let pool = pool(plan);
        let (everyone, mut held) = (ids(&pool), Vec::new());
        assert!(pool.administer(NOW, everyone[0], Admin::Draining));
        pool.report(NOW, everyone[1], 7, Sample::fail(Reason::Refused, NOW));
        assert!(matches!(pool.pick(&[], None), Pick::AllUnhealthy));
        assert_eq!(asks(&pool, everyone[0], &mut held), Some((everyone[0], Choice::ByCookie)));
        assert!(matches!(pool.pick_bound(&[], None, to(everyone[1])), Pick::AllUnhealthy));
        assert!(pool.administer(NOW, everyone[1], Admin::Draining));
        assert!(matches!(pool.pick(&[], None), Pick::AllUnhealthy));
        assert_eq!(asks(&pool, everyone[0], &mut held), Some((everyone[0], Choice::ByCookie)));
    }

    #[test]
    fn whoever_is_drained_gives_its_clients_to_the_tier_that_serves_and_to_all_when_its_time_is_over() {
        let mut plan = plan(3);
        plan.members[1].tier = 1;
        plan.rules.drain = Duration::from_secs(1);
        let pool = pool(plan);
        let everyone = ids(&pool);
        assert!(pool.administer(NOW, everyone[1], Admin::Draining) && !keeps(&pool, everyone[1]));
        assert!(pool.administer(NOW, everyone[0], Admin::Draining) && keeps(&pool, everyone[0]));
        let goes = |ms| {
            let bond = Bond { member: everyone[0], now: Duration::from_millis(ms) };
            matches!(pool.pick_bound(&[], None, Some(bond)), Pick::Member(lease) if lease.choice() == Choice::ByCookie)
        };
        assert!(goes(999) && !goes(1_000));
    }

    #[test]
    fn a_member_that_is_full_lends_its_clients_to_another() {
        let most = Capacity { max_in_flight: Some(1), max_connections: None };
        let limits = Limits { members: vec![most; 2], ..Limits::default() };
        let pool = pool(Plan { limits, ..plan(2) });
        let (everyone, mut held) = (ids(&pool), Vec::new());
        let (first, second) = (everyone[0], everyone[1]);
        assert_eq!(asks(&pool, first, &mut held), Some((first, Choice::ByCookie)));
        assert_eq!(asks(&pool, first, &mut held), Some((second, Choice::Instead)));
        assert!(matches!(pool.pick_bound(&[], None, to(first)), Pick::Full));
        held.remove(0);
        assert_eq!(asks(&pool, first, &mut held), Some((first, Choice::ByCookie)));
        assert!(pool.administer(NOW, second, Admin::Draining));
        assert!(matches!(pool.pick_bound(&[], None, to(second)), Pick::Full), "its one seat is taken");
        held.clear();
        assert!(pool.administer(NOW, first, Admin::Draining));
        assert_eq!(asks(&pool, first, &mut held), Some((first, Choice::ByCookie)));
        assert!(matches!(pool.pick_bound(&[], None, to(first)), Pick::Full), "it is full, and there is nobody else");
    }
}
