//! Limits, over picks, threads and reloads.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;

use super::tests::{ids, ms, picked, plan, pool, report};
use super::*;
use crate::config;
use crate::health::{Mode, Reason, Rules, Standing};

fn at_most(in_flight: u32) -> Capacity {
    Capacity { max_in_flight: Some(in_flight), max_connections: None }
}

fn connections(most: u32) -> Capacity {
    Capacity { max_in_flight: None, max_connections: Some(most) }
}

/// `count` members of whom each takes so many requests.
fn each(count: u8, in_flight: u32) -> Plan {
    let members = vec![at_most(in_flight); count.into()];
    Plan { limits: Limits { members, ..Limits::default() }, ..plan(count) }
}

fn with_queue(plan: Plan, size: usize) -> Plan {
    let queue = Some(config::Queue { size, timeout: ms(1_000) });
    Plan { limits: Limits { queue, ..plan.limits.clone() }, ..plan }
}

fn whole(plan: Plan, capacity: Capacity) -> Plan {
    Plan { limits: Limits { capacity, ..plan.limits.clone() }, ..plan }
}

/// Picks until nobody is picked any more.
fn fill(pool: &Pool) -> (Vec<Lease>, Pick) {
    let mut leases = Vec::new();
    loop {
        match pool.pick(&[], None) {
            Pick::Member(lease) => leases.push(lease),
            end => return (leases, end),
        }
    }
}

fn in_flight(pool: &Pool) -> Vec<u32> {
    pool.roster().members().iter().map(|member| member.in_flight()).collect()
}

#[test]
fn a_full_member_is_left_out_and_is_as_healthy_as_before() {
    for policy in [
        Policy::RoundRobin,
        Policy::Random,
        Policy::LeastRequests { choices: 2 },
        Policy::Fastest { sensitivity: Duration::ZERO },
    ] {
        let pool = pool(Plan { policy: policy.clone(), ..each(3, 2) });
        let (mut leases, end) = fill(&pool);
        assert_eq!(in_flight(&pool), [2, 2, 2], "{policy:?}");
        assert!(matches!(end, Pick::Full));
        assert_eq!(pool.roster().mode(), Mode::Normal);
        assert!((0..3).all(|index| pool.roster().standing(index) == Standing::Healthy));
        let freed = leases.pop().expect("a lease");
        let id = freed.member().id();
        drop(freed);
        assert_eq!(picked(&pool), id, "{policy:?}: the one with room");
    }
}

#[test]
fn a_key_whose_member_is_full_goes_to_another_and_comes_back() {
    let pool = pool(Plan { policy: Policy::ConsistentHash { bounded_load_percent: None }, ..each(3, 1) });
    let pick = || match pool.pick(&[], Some(b"key")) {
        Pick::Member(lease) => lease,
        _ => panic!("there is room"),
    };
    let (first, second) = (pick(), pick());
    let (home, other) = (first.member().id(), second.member().id());
    assert_ne!(home, other);
    drop(second);
    assert_eq!(pick().member().id(), other, "always the same one");
    drop(first);
    assert_eq!(pick().member().id(), home);
}

#[test]
fn the_last_seat_of_many_members_is_found_and_no_other_is_given() {
    let pool = pool(each(200, 1));
    let (mut leases, _) = fill(&pool);
    assert_eq!(leases.len(), 200);
    let id = leases.remove(77).member().id();
    assert!(matches!(pool.pick(&[id], None), Pick::Full), "the free one has been tried");
    let Pick::Member(lease) = pool.pick(&[], None) else { panic!("one seat was free") };
    assert_eq!(lease.member().id(), id);
    let everyone = ids(&pool);
    assert!(matches!(pool.pick(&everyone, None), Pick::Nobody), "nobody is left to be full");
}

#[test]
fn a_healthy_member_with_room_comes_before_a_kept_one() {
    let rules = Rules { max_unhealthy_percent: 0, ..plan(0).rules };
    let limits = Limits { members: vec![at_most(1), at_most(100), at_most(100)], ..Limits::default() };
    let pool = pool(Plan { rules, limits, ..plan(3) });
    let sick = ids(&pool)[1];
    report(&pool, ms(1), sick, Sample::fail(Reason::Status, ms(1)));
    assert_eq!(pool.roster().standing(1), Standing::Kept);
    let leases: Vec<Lease> = (0..90)
        .map(|_| match pool.pick(&[], None) {
            Pick::Member(lease) => lease,
            _ => panic!("there is room"),
        })
        .collect();
    assert_eq!(leases.len(), 90);
    // Turns are plain: a third is the kept one's, and what the full one cannot take is the healthy one's.
    let counts = in_flight(&pool);
    assert_eq!(counts[0], 1);
    assert!(counts[1].abs_diff(30) <= 1, "{counts:?}");
}

#[test]
fn in_the_fallback_limits_hold_too() {
    let pool = pool(each(2, 1));
    ids(&pool).into_iter().for_each(|id| report(&pool, ms(1), id, Sample::fail(Reason::Refused, ms(1))));
    assert_eq!(pool.roster().mode(), Mode::Fallback);
    let (leases, end) = fill(&pool);
    assert!(leases.len() == 2 && matches!(end, Pick::Full));
    assert_eq!(pool.roster().mode(), Mode::Fallback);
}

#[test]
fn no_limit_is_ever_passed_and_every_seat_comes_back() {
    let plan = whole(each(3, 2), at_most(5));
    let pool = pool(plan);
    let (over, served) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut held = Vec::new();
                for round in 0..10_000 {
                    match pool.pick(&[], None) {
                        Pick::Member(lease) => held.push(lease),
                        Pick::Full => held.clear(),
                        _ => panic!("they are healthy"),
                    }
                    served.fetch_add(1, SeqCst);
                    over.fetch_or(in_flight(&pool).into_iter().any(|count| count > 2), SeqCst);
                    over.fetch_or(pool.hall.in_flight.taken() > 5, SeqCst);
                    if round % 3 == 0 {
                        held.pop();
                    }
                }
            });
        }
    });
    assert!(!over.load(SeqCst) && served.load(SeqCst) == 40_000);
    assert_eq!((in_flight(&pool), pool.hall.in_flight.taken()), (vec![0; 3], 0));
    assert_eq!(fill(&pool).0.len(), 5);
}

#[test]
fn a_limit_on_connections_is_one_on_requests() {
    let members = vec![connections(2), Capacity { max_in_flight: Some(1), max_connections: Some(9) }];
    let pool = pool(Plan { limits: Limits { members, ..Limits::default() }, ..plan(2) });
    let _leases = fill(&pool);
    assert_eq!(in_flight(&pool), [2, 1]);
    assert_eq!(pool.roster().members()[0].capacity(), connections(2), "shown as it was written");
}

#[test]
fn a_new_limit_counts_those_who_are_there_already() {
    let pool = pool(plan(2));
    let mut before: Vec<Lease> = (0..5)
        .map(|_| match pool.pick(&[], None) {
            Pick::Member(lease) => lease,
            _ => panic!("there is no limit"),
        })
        .collect();
    pool.reshape(ms(1), whole(plan(2), at_most(4)));
    assert!(matches!(pool.pick(&[], None), Pick::Full), "five are there");
    before.pop();
    assert!(matches!(pool.pick(&[], None), Pick::Full), "four are there");
    before.pop();
    let (now, _) = fill(&pool);
    assert_eq!(now.len(), 1);
    // Lower: nobody is cut. Higher, none, and again: nobody is counted twice.
    pool.reshape(ms(2), whole(plan(2), at_most(1)));
    assert_eq!(in_flight(&pool).iter().sum::<u32>(), 4);
    pool.reshape(ms(3), plan(2));
    pool.reshape(ms(4), whole(plan(2), at_most(6)));
    assert_eq!(fill(&pool).0.len(), 2);
    drop((before, now));
    assert_eq!(fill(&pool).0.len(), 6);
}

#[test]
fn a_new_limit_counts_those_whose_member_has_left() {
    let pool = pool(plan(2));
    let _leases: Vec<Lease> = (0..4)
        .map(|_| match pool.pick(&[], None) {
            Pick::Member(lease) => lease,
            _ => panic!("there is no limit"),
        })
        .collect();
    pool.reshape(ms(1), plan(1));
    pool.reshape(ms(2), whole(plan(1), at_most(5)));
    assert_eq!(pool.in_flight(), 4);
    assert_eq!(fill(&pool).0.len(), 1);
}

/// An address that its name loses and gets back, as DNS does it.
#[test]
fn a_member_that_returns_has_the_requests_that_it_had() {
    let mut plan = each(2, 1);
    plan.members[0].source = Some("app.internal:80".into());
    let lost = |plan: &Plan| {
        let mut plan = plan.clone();
        plan.members[0].key.address = None;
        plan
    };
    let pool = pool(plan.clone());
    let (mut leases, _) = fill(&pool);
    pool.reshape(ms(1), lost(&plan));
    pool.reshape(ms(2), lost(&plan));
    pool.reshape(ms(3), plan.clone());
    assert_eq!(in_flight(&pool), [1, 1]);
    assert!(!pool.roster().members()[0].is_removed(), "its tunnels may last");
    leases.clear();
    assert_eq!(in_flight(&pool), [0, 0]);
    pool.reshape(ms(4), lost(&plan));
    assert!(pool.board().former.iter().all(|member| member.strong_count() == 0), "nobody holds it any more");
}

/// A written one that leaves the file and is written in again is another member, and the same server.
#[test]
fn what_goes_on_at_a_member_takes_up_its_room_however_often_it_returns() {
    let both = Plan { limits: Limits { members: vec![connections(2); 2], ..Limits::default() }, ..plan(2) };
    let mut without = both.clone();
    without.members.remove(0);
    let pool = pool(both.clone());
    let mut held = Vec::new();
    for round in 1..=3 {
        let Pick::Member(mut lease) = pool.pick(&[ids(&pool)[1]], None) else { break };
        lease.becomes_tunnel();
        held.push((lease, connect(&pool).expect("a berth")));
        pool.reshape(ms(2 * round), without.clone());
        assert_eq!(pool.in_flight(), round as u32, "the pool has them still");
        pool.reshape(ms(2 * round + 1), both.clone());
    }
    assert_eq!(held.len(), 2, "there is no room for a third");
    let member = pool.roster().members()[0].clone();
    assert_eq!((member.in_flight(), member.tunnels(), member.connections()), (2, 2, Some(2)));
    assert_eq!((pool.in_flight(), member.berth().err()), (2, Some(Crowded::Member)));
    // One of them ends: whoever waits for its place is told, and may also have one that is idle.
    let mut freed = std::pin::pin!(member.freed(Crowded::Member));
    freed.as_mut().enable();
    let (lease, (berth, ..)) = held.remove(0);
    drop((lease, berth));
    assert!(freed.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready());
    assert!(member.in_flight() == 1 && matches!(pool.pick(&[ids(&pool)[1]], None), Pick::Member(_)));
    drop(held[0].1.1.take_up());
    assert!(member.make_room(Crowded::Member).is_some());
}

#[test]
fn newcomers_stand_behind_those_who_wait() {
    let pool = pool(with_queue(each(1, 1), 2));
    let (mut leases, _) = fill(&pool);
    let first = pool.join_queue(&[]).expect("a place");
    let second = pool.join_queue(&[]).expect("a place");
    assert!(pool.join_queue(&[]).is_none(), "two places");
    leases.clear();
    assert!(matches!(pool.pick(&[], None), Pick::Full), "the seat is for those who wait");
    let Pick::Member(lease) = pool.pick_in_turn(&first, &[], None, None) else { panic!("its turn") };
    drop((first, second));
    assert!(matches!(pool.pick(&[], None), Pick::Full), "the seat is taken");
    drop(lease);
    assert!(matches!(pool.pick(&[], None), Pick::Member(_)), "nobody waits any more");
    assert_eq!(pool.queue().length(), 0);
}

#[test]
fn at_the_end_a_seat_that_is_given_back_is_nobody_s() {
    let pool = pool(with_queue(each(1, 1), 3));
    let (mut leases, _) = fill(&pool);
    let first = pool.join_queue(&[]).expect("a place");
    let second = pool.join_queue(&[]).expect("a place");
    pool.queue().close();
    leases.clear();
    first.look_again();
    drop(first);
    let third = pool.join_queue(&[]).expect("a place");
    assert_eq!((second.turn(), third.turn()), (Turn::First, Turn::Behind));
}

/// Its place, itself, and how it was ended.
type Connected = (Berth, Arc<Link>, Arc<[AtomicBool; 2]>);

/// A connection to the first member whose end is told by the flags: asked politely, hung up.
fn connect(pool: &Pool) -> Result<Connected, Crowded> {
    let mut berth = pool.roster().members()[0].berth()?;
    let ended: Arc<[AtomicBool; 2]> = Arc::default();
    let told = ended.clone();
    let link = berth.dialled(Box::new(move |manner| told[(manner == Manner::AtOnce) as usize].store(true, SeqCst)));
    Ok((berth, link, ended))
}

#[test]
fn connections_are_counted_from_the_dial_to_the_close() {
    let limits = Limits { members: vec![connections(2)], ..Limits::default() };
    let pool = pool(Plan { limits, ..plan(1) });
    let member = pool.roster().members()[0].clone();
    let dialling = member.berth().expect("a berth");
    let open = connect(&pool).expect("a berth");
    assert_eq!((member.connections(), member.berth().err()), (Some(2), Some(Crowded::Member)));
    drop(dialling);
    assert_eq!(member.connections(), Some(1), "the dial failed");
    let (berth, link, ended) = open;
    drop(berth);
    assert!(ended[1].load(SeqCst) && !link.is_open());
    assert_eq!((member.connections(), pool.hall.links().len()), (Some(0), 0));
    assert_eq!(pool.connections(), None, "the pool has no limit");
}

#[test]
fn an_idle_connection_is_given_up_and_one_in_use_is_not() {
    let limits = Limits { members: vec![connections(1)], ..Limits::default() };
    let pool = pool(Plan { limits, ..plan(1) });
    let member = pool.roster().members()[0].clone();
    let (berth, link, ended) = connect(&pool).expect("a berth");
    assert!(member.make_room(Crowded::Member).is_none(), "it has just been dialled");
    let first = link.take_up().expect("open");
    // The next request on the same connection may take it up before the first has laid it down.
    let second = link.take_up().expect("open");
    drop(first);
    assert!(member.make_room(Crowded::Member).is_none(), "the second uses it");
    drop(second);
    assert!(member.make_room(Crowded::Member).is_some());
    assert!(ended[0].load(SeqCst) && !ended[1].load(SeqCst), "politely first");
    assert!(link.take_up().is_none() && link.is_open(), "given up, and not closed yet");
    assert_eq!(member.berth().err(), Some(Crowded::Member), "its place is taken until it is closed");
    drop(berth);
    assert!(member.berth().is_ok());
}

#[test]
fn where_the_pool_is_crowded_any_member_makes_room() {
    let pool = pool(whole(plan(2), connections(1)));
    let members = pool.roster().members().to_vec();
    let (_berth, link, _) = connect(&pool).expect("a berth");
    drop(link.take_up());
    assert_eq!(members[1].berth().err(), Some(Crowded::Pool));
    assert_eq!((members[1].connections(), pool.connections()), (Some(0), Some(1)), "half a berth is none");
    assert!(members[1].make_room(Crowded::Member).is_none(), "it has none of its own");
    assert!(members[1].make_room(Crowded::Pool).is_some());
}

#[test]
fn a_lower_limit_gives_up_a_connection_once_it_is_idle() {
    let of = |most| Plan { limits: Limits { members: vec![connections(most)], ..Limits::default() }, ..plan(1) };
    let pool = pool(of(2));
    let (_one, one, _) = connect(&pool).expect("a berth");
    let (_other, other, _) = connect(&pool).expect("a berth");
    let (first, second) = (one.take_up(), other.take_up());
    pool.reshape(ms(1), of(1));
    drop(first);
    assert!(one.take_up().is_none(), "one too many");
    drop((_one, second));
    assert!(other.take_up().is_some(), "the other may stay");
}

#[test]
fn taking_up_and_giving_up_never_both_succeed() {
    let limits = Limits { members: vec![connections(1)], ..Limits::default() };
    let pool = pool(Plan { limits, ..plan(1) });
    let member = pool.roster().members()[0].clone();
    for _ in 0..2_000 {
        let (berth, link, _) = connect(&pool).expect("a berth");
        drop(link.take_up());
        let (taken, given_up) = thread::scope(|scope| {
            let taking = scope.spawn(|| link.take_up());
            let giving = scope.spawn(|| member.make_room(Crowded::Member));
            (taking.join().expect("no panic"), giving.join().expect("no panic"))
        });
        assert!(taken.is_some() != given_up.is_some(), "{taken:?} {given_up:?}");
        drop(berth);
    }
}
