//! When a pool counts as settled, over starts and reloads.

use super::*;
use crate::health::{Initial, Judge, Key, Mode, Reason, Rules, Spec};

const MS: Duration = Duration::from_millis(1);

/// Members by their ports; requests wait for a second.
fn plan(ports: &[u16]) -> Plan {
    let rules =
        Rules { judge: Judge::Consecutive { failures: 1, passes: 1 }, initial: Initial::Probe, ..Rules::default() };
    let spec = |port: &u16| {
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], *port));
        let key = Key { name: address.to_string(), address: Some(address), tls: false };
        Spec { key, weight: 1, split: 1, tier: 0, admin: Admin::Enabled, source: None, roll: None, fingerprint: 0 }
    };
    Plan {
        rules,
        observed: None,
        policy: Policy::RoundRobin,
        budget_percent: 20,
        members: ports.iter().map(spec).collect(),
        limits: Limits::default(),
    }
}

/// A pool that began at 0 and whose members have all answered.
fn settled(ports: &[u16], sample: &Sample) -> Pool {
    let pool = Pool::new("web", Duration::ZERO, plan(ports), Arc::default());
    assert!(!pool.is_settled(MS));
    for member in pool.roster().members() {
        pool.report(MS, member.id(), 0, sample.clone());
    }
    assert!(pool.is_settled(MS));
    pool
}

#[test]
fn pool_stays_settled_when_a_reload_adds_a_member() {
    for at in [100 * MS, 60_000 * MS] {
        let pool = settled(&[1, 2], &Sample::pass(MS));
        pool.reshape(at, plan(&[1, 2, 3]));
        assert!(pool.is_settled(at), "at {at:?}");
        pool.reshape(at, plan(&[2, 4]));
        assert!(pool.is_settled(at), "at {at:?}");
    }
}

#[test]
fn pool_is_unsettled_by_a_reload_that_makes_requests_wait_again() {
    let pool = settled(&[1, 2], &Sample::pass(MS));
    pool.reshape(60_000 * MS, plan(&[3, 4]));
    assert_eq!(pool.roster().mode(), Mode::Waiting);
    assert!(!pool.is_settled(60_999 * MS));
    assert!(pool.is_settled(61_000 * MS), "waited for long enough");

    let failing = settled(&[1], &Sample::fail(Reason::Refused, MS));
    failing.advance(1_000 * MS);
    failing.reshape(60_000 * MS, plan(&[1]));
    assert!(failing.is_settled(60_000 * MS), "nothing is new");
    failing.reshape(70_000 * MS, plan(&[1, 2]));
    assert_eq!(failing.roster().mode(), Mode::Waiting);
    assert!(!failing.is_settled(70_999 * MS));
}

#[test]
fn reload_during_a_cold_start_neither_ends_nor_prolongs_its_wait() {
    let pool = Pool::new("web", Duration::ZERO, plan(&[1, 2]), Arc::default());
    let first = pool.roster().members()[0].id();
    pool.report(MS, first, 0, Sample::pass(MS));
    pool.reshape(500 * MS, plan(&[1, 2, 3]));
    assert!(!pool.is_settled(999 * MS), "two of three have not answered");
    assert!(pool.is_settled(1_000 * MS));
}
