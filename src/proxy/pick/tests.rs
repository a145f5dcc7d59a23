//! The queue: who is served when, and that nobody is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use super::*;
use crate::balance::Policy;
use crate::config::{Capacity, Queue};
use crate::health::{Admin, Initial, Judge, Key, Rules, Spec};
use crate::pool::{Limits, Plan};

const LONG: Duration = Duration::from_secs(30);
const WISH: Wish<'static> =
    Wish { avoided: &[], key: None, bound_to: None, limit: None, queued: Duration::ZERO, when_full: WhenFull::Queue };

/// One member for each of these limits on its requests, healthy from the start.
fn plan(in_flight: &[u32], queue: Option<Queue>) -> Plan {
    let rules =
        Rules { judge: Judge::Consecutive { failures: 1, passes: 1 }, initial: Initial::Healthy, ..Rules::default() };
    let spec = |number: usize| {
        let address = std::net::SocketAddr::from(([10, 0, 0, number as u8], 80));
        let key = Key { name: address.to_string(), address: Some(address), tls: false };
        Spec { key, weight: 1, split: 1, tier: 0, admin: Admin::Enabled, source: None, roll: None, fingerprint: 0 }
    };
    let capacity = |most: &u32| Capacity { max_in_flight: Some(*most), max_connections: None };
    let limits = Limits { members: in_flight.iter().map(capacity).collect(), queue, ..Limits::default() };
    let members = (0..in_flight.len()).map(spec).collect();
    Plan { rules, observed: None, policy: Policy::RoundRobin, budget_percent: 20, members, limits }
}

fn pool(in_flight: &[u32], size: usize) -> Arc<Pool> {
    let queue = Some(Queue { size, timeout: LONG });
    Arc::new(Pool::new("web", Duration::ZERO, plan(in_flight, queue), Arc::default()))
}

/// Its tasks run one at a time, each until it waits: what comes first is known.
fn orderly() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("a runtime")
}

async fn pick(pool: &Pool, wish: Wish<'_>) -> Result<Picked, Nobody> {
    match now(pool, wish) {
        Some(picked) => picked,
        None => later(pool, wish).await,
    }
}

fn seat(pool: &Pool) -> Lease {
    now(pool, WISH).expect("no wait").expect("a seat").lease
}

/// Until `length` requests wait.
async fn await_length(pool: &Pool, length: usize) {
    let reached = async {
        while pool.queue().length() != length {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, reached).await.expect("so many wait");
}

#[test]
fn those_who_wait_are_served_in_the_order_they_came() {
    orderly().block_on(async {
        let (pool, (tell, mut told)) = (pool(&[1], 50), mpsc::unbounded_channel());
        let held = seat(&pool);
        for number in 0..50 {
            let (pool, tell) = (pool.clone(), tell.clone());
            tokio::spawn(async move {
                let picked = pick(&pool, WISH).await.expect("a seat");
                assert!(picked.waited > Duration::ZERO);
                tell.send(number).expect("somebody listens");
                tokio::task::yield_now().await;
            });
        }
        await_length(&pool, 50).await;
        assert_eq!(pick(&pool, WISH).await.expect_err("no place").refusal, Refusal::Overloaded);
        drop(held);
        for number in 0..50 {
            let served = timeout(LONG, told.recv()).await.expect("the next is served");
            assert_eq!(served, Some(number));
        }
        await_length(&pool, 0).await;
    });
}

/// Every seat is taken: the lease on the first member, and the others.
fn taken(pool: &Pool) -> (Lease, Vec<Lease>) {
    let first = pool.roster().members()[0].id();
    let mut leases: Vec<Lease> = Vec::new();
    while let Some(Ok(picked)) = now(pool, Wish { when_full: WhenFull::GiveUp, ..WISH }) {
        leases.push(picked.lease);
    }
    let at = leases.iter().position(|lease| lease.member().id() == first).expect("its seat is taken");
    (leases.swap_remove(at), leases)
}

/// A retry waits for the one member that has not failed it.
#[test]
fn who_cannot_use_a_free_seat_keeps_it_from_nobody() {
    orderly().block_on(async {
        let pool = pool(&[1, 1], 50);
        let (on_first, on_second) = taken(&pool);
        let first = on_first.member().id();
        let wait = |avoided: Vec<MemberId>| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let wish = Wish { avoided: &avoided, ..WISH };
                pick(&pool, wish).await.map(|picked| picked.lease)
            })
        };
        let retries: Vec<_> = (0..5).map(|_| wait(vec![first])).collect();
        await_length(&pool, 5).await;
        let easy = wait(Vec::new());
        await_length(&pool, 6).await;
        // The first comes free: the one behind them all may have it.
        drop(on_first);
        let lease = timeout(LONG, easy).await.expect("it is served").expect("no panic").expect("a seat");
        assert!(lease.member().id() == first && pool.queue().length() == 5);
        // Also for one who comes when they have looked, and would not wait.
        drop(lease);
        let at_once = async {
            loop {
                if let Some(Ok(picked)) = now(&pool, Wish { when_full: WhenFull::GiveUp, ..WISH }) {
                    return picked.lease;
                }
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(timeout(LONG, at_once).await.expect("a seat").member().id(), first);
        // The second comes free: they have it one after another, in the order they came.
        drop(on_second);
        for retry in retries {
            let lease = timeout(LONG, retry).await.expect("its turn").expect("no panic").expect("a seat");
            assert_ne!(lease.member().id(), first);
        }
    });
}

/// Whatever some avoid, in whatever order they come and leave.
#[test]
fn nobody_is_forgotten_among_those_who_avoid_others() {
    const REQUESTS: usize = 3_000;
    threads().block_on(async {
        let pool = pool(&[1, 1, 1], REQUESTS);
        let ids: Vec<MemberId> = pool.roster().members().iter().map(|member| member.id()).collect();
        let tasks: Vec<_> = (0..REQUESTS)
            .map(|number| {
                let (pool, ids) = (pool.clone(), ids.clone());
                tokio::spawn(async move {
                    let avoided = match number % 7 {
                        0 => vec![ids[0]],
                        1 => vec![ids[1], ids[0]],
                        2 => vec![ids[2]],
                        3 => vec![ids[0], ids[1]],
                        _ => Vec::new(),
                    };
                    let wish = Wish { avoided: &avoided, ..WISH };
                    if number % 5 == 4 {
                        let _ = timeout(Duration::from_micros(number as u64 % 700), pick(&pool, wish)).await;
                        return;
                    }
                    let picked = pick(&pool, wish).await.expect("a seat");
                    assert!(!avoided.contains(&picked.lease.member().id()));
                    if number % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            timeout(LONG, task).await.expect("it is served").expect("no panic");
        }
        let members = pool.roster().members().to_vec();
        assert!(members.iter().all(|member| member.in_flight() == 0) && pool.queue().length() == 0);
    });
}

/// A wake-up that is lost would never come: in tests nobody has patience.
#[test]
fn nobody_is_forgotten_and_nobody_comes_in_over_the_limit() {
    const REQUESTS: usize = 4_000;
    threads().block_on(async {
        let (pool, inside, most) =
            (pool(&[1, 2], REQUESTS), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..REQUESTS)
            .map(|number| {
                let (pool, inside, most) = (pool.clone(), inside.clone(), most.clone());
                tokio::spawn(async move {
                    if number % 5 == 4 {
                        // Some do not wait for long.
                        let _ = timeout(Duration::from_micros(number as u64 % 700), pick(&pool, WISH)).await;
                        return;
                    }
                    let picked = pick(&pool, WISH).await.expect("a seat");
                    most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                    if number % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    inside.fetch_sub(1, SeqCst);
                    drop(picked);
                })
            })
            .collect();
        for task in tasks {
            timeout(LONG, task).await.expect("it is served").expect("no panic");
        }
        assert!((1..=3).contains(&most.load(SeqCst)), "{} at once", most.load(SeqCst));
        let members = pool.roster().members().to_vec();
        assert!(members.iter().all(|member| member.in_flight() == 0));
        assert_eq!(pool.queue().length(), 0);
    });
}

#[test]
fn a_place_that_is_left_goes_to_the_next() {
    orderly().block_on(async {
        let pool = pool(&[1], 3);
        let held = seat(&pool);
        let wait = |pool: &Arc<Pool>| {
            let pool = pool.clone();
            tokio::spawn(async move { pick(&pool, WISH).await.map(|picked| picked.lease) })
        };
        let (first, second, third) = (wait(&pool), wait(&pool), wait(&pool));
        await_length(&pool, 3).await;
        // The first in line, and one behind it.
        first.abort();
        third.abort();
        await_length(&pool, 1).await;
        let fourth = wait(&pool);
        await_length(&pool, 2).await;
        drop(held);
        let lease = timeout(LONG, second).await.expect("its turn").expect("no panic").expect("a seat");
        assert!(!fourth.is_finished() && pool.queue().length() == 1);
        drop(lease);
        timeout(LONG, fourth).await.expect("its turn").expect("no panic").expect("a seat");
    });
}

#[test]
fn nobody_waits_for_longer_than_the_queue_and_the_request_allow() {
    orderly().block_on(async {
        let short = Duration::from_millis(20);
        for (queue, limit, refusal) in [
            (short, None, Refusal::Overloaded),
            (short, Some(LONG), Refusal::Overloaded),
            (LONG, Some(short), Refusal::Deadline),
        ] {
            let queue = Some(Queue { size: 1, timeout: queue });
            let pool = Pool::new("web", Duration::ZERO, plan(&[1], queue), Arc::default());
            let _held = seat(&pool);
            let nobody = pick(&pool, Wish { limit, ..WISH }).await.expect_err("no seat comes free");
            assert_eq!(nobody.refusal, refusal);
            assert!(nobody.waited >= short, "{nobody:?}");
            assert_eq!(pool.queue().length(), 0);
        }
        // A dial that was refused sends a request back into the line; its patience is not new.
        let pool = pool(&[1], 9);
        let _held = seat(&pool);
        let nobody = pick(&pool, Wish { queued: LONG - short, ..WISH }).await.expect_err("no seat comes free");
        assert!(nobody.refusal == Refusal::Overloaded && nobody.waited < LONG, "{nobody:?}");
    });
}

#[test]
fn without_a_queue_or_the_wish_to_wait_the_answer_is_no() {
    orderly().block_on(async {
        let closed = Pool::new("web", Duration::ZERO, plan(&[1], None), Arc::default());
        let open = pool(&[1], 9);
        for (pool, when_full) in [(&closed, WhenFull::Queue), (&*open, WhenFull::GiveUp)] {
            let _held = seat(pool);
            let nobody = pick(pool, Wish { when_full, ..WISH }).await.expect_err("no seat");
            assert_eq!(nobody.refusal, Refusal::Overloaded);
        }
    });
}

/// What a reload, or a member that comes back, gives those who wait.
#[test]
fn whatever_makes_room_wakes_those_who_wait() {
    type Change = fn(&Pool);
    let queue = Some(Queue { size: 9, timeout: LONG });
    let changes: [(&str, Change); 4] = [
        ("a higher limit", |pool| pool.reshape(Duration::ZERO, plan(&[3, 2], Some(Queue { size: 9, timeout: LONG })))),
        ("no queue any more", |pool| pool.reshape(Duration::ZERO, plan(&[9, 9], None))),
        ("another member", |pool| pool.reshape(Duration::ZERO, plan(&[1, 1, 2], None))),
        ("a member enabled", |pool| {
            let id = pool.roster().members()[1].id();
            assert!(pool.administer(Duration::ZERO, id, Admin::Enabled));
        }),
    ];
    for (what, change) in changes {
        orderly().block_on(async {
            let pool = Arc::new(Pool::new("web", Duration::ZERO, plan(&[1, 2], queue), Arc::default()));
            let second = pool.roster().members()[1].id();
            assert!(pool.administer(Duration::ZERO, second, Admin::Draining));
            let _held = seat(&pool);
            let wait = |pool: Arc<Pool>| async move { pick(&pool, WISH).await.map(|picked| picked.lease) };
            let waiters = [tokio::spawn(wait(pool.clone())), tokio::spawn(wait(pool.clone()))];
            await_length(&pool, 2).await;
            change(&pool);
            let mut leases = Vec::new();
            for waiter in waiters {
                let served = timeout(LONG, waiter).await.unwrap_or_else(|_| panic!("{what}: they sleep on"));
                leases.push(served.expect("no panic").expect("a seat"));
            }
        });
    }
}

#[test]
fn those_who_wait_are_told_when_nobody_may_serve() {
    orderly().block_on(async {
        let pool = pool(&[1], 9);
        let _held = seat(&pool);
        let waiter = tokio::spawn({
            let pool = pool.clone();
            async move { pick(&pool, WISH).await.map(|picked| picked.lease) }
        });
        await_length(&pool, 1).await;
        let id = pool.roster().members()[0].id();
        pool.administer(Duration::ZERO, id, Admin::Disabled);
        let nobody = timeout(LONG, waiter).await.expect("it is told").expect("no panic").expect_err("nobody");
        assert_eq!(nobody.refusal, Refusal::NoMember);
    });
}
