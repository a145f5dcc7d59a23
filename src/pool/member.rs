//! The live part of a member: what requests and the log read of it without a lock.

use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::calls::Doubt;
use super::form::LiveForm;
use super::hall::{Hall, PackedCapacity, requests};
use super::lately::Lately;
use super::seats::Seats;
use super::tally::MemberTally;
use super::testimony::Hearsay;
use crate::balance::Form;
use crate::config::Capacity;
use crate::health::{self, Key, MemberId};

/// No latency is known yet.
const NO_LATENCY: u64 = u64::MAX;

/// One member of a pool, for as long as its identity lasts.
///
/// What every pick touches comes first, beside the count of who holds it: in a large pool that is one look into memory.
#[derive(Debug)]
#[repr(C)]
pub struct Member {
    in_flight: Seats,
    /// Those that were this member before it left the configuration and came back, while anything of theirs goes on.
    before: Option<Box<[Weak<Member>]>>,
    pub(super) hall: Arc<Hall>,
    pub(super) form: LiveForm,
    id: MemberId,
    key: Key,
    /// `address` as text, for logs: `10.0.0.1:80`, or the name where it has no address.
    label: Arc<str>,
    aside: Box<Aside>,
    /// Passes in the upper half, places shown in the lower.
    window: AtomicU64,
    latency_us: AtomicU64,
    next_probe_at: Arc<AtomicU64>,
    pub(super) berths: Box<Berths>,
}

/// What only a member with a limit is asked for: apart, so that members that are picked lie close together.
#[derive(Debug)]
pub(super) struct Berths {
    /// Its limits, as configured.
    capacity: PackedCapacity,
    /// Its connections; counted while it has a limit, or its pool.
    pub(super) connections: Seats,
    /// One of them was closed, or is idle now; shared with those that were this member before.
    pub(super) freed: Arc<Notify>,
}

/// What no pick looks at: apart, so that members that are compared lie close together.
#[derive(Debug, Default)]
struct Aside {
    tunnels: AtomicU32,
    connections_left: AtomicU64,
    is_removed: AtomicBool,
    removal: Notify,
    tally: MemberTally,
    doubt: Doubt,
    has_fallen: AtomicBool,
    /// Only where traffic may eject.
    lately: OnceLock<Box<Lately>>,
    hearsay: Hearsay,
}

impl Member {
    /// The live part of `member` in the pool whose hall this is. What goes on at those that were the `same` before
    /// takes up its room too: it is one server, however often it left the configuration and came back.
    pub(super) fn new(member: &health::Member, hall: &Arc<Hall>, same: &[&Arc<Member>]) -> Member {
        let key = member.spec().key.clone();
        let label = key.address.map_or_else(|| key.name.clone(), |a| a.to_string());
        let freed = same.first().map_or_else(Arc::default, |former| former.berths.freed.clone());
        let before: Box<[Weak<Member>]> = same.iter().map(|former| Arc::downgrade(former)).collect();
        let live = Member {
            before: Some(before).filter(|before| !before.is_empty()),
            id: member.id(),
            key,
            label: label.into(),
            aside: Box::default(),
            in_flight: Seats::unlimited(),
            hall: hall.clone(),
            form: LiveForm::default(),
            window: AtomicU64::new(0),
            latency_us: AtomicU64::new(NO_LATENCY),
            next_probe_at: Arc::default(),
            berths: Box::new(Berths { capacity: PackedCapacity::default(), connections: Seats::unlimited(), freed }),
        };
        live.learn(member);
        live
    }

    /// Takes over what the log shows of `member`; true when its latency is another now.
    pub fn learn(&self, member: &health::Member) -> bool {
        let window = member.window();
        self.window.store(u64::from(window.passes) << 32 | u64::from(window.shown), Relaxed);
        let latency = member.latency().map_or(NO_LATENCY, |l| l.as_micros() as u64);
        self.latency_us.swap(latency, Relaxed) != latency
    }

    /// Its identity in the heart.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Its name, address and scheme.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Where traffic goes.
    pub fn address(&self) -> Option<SocketAddr> {
        self.key.address
    }

    /// Its address for people.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Requests on it now, those from before it left and came back included.
    pub fn in_flight(&self) -> u32 {
        self.own_in_flight() + self.before(Member::own_in_flight)
    }

    /// Of those, the ones that began since it came.
    pub(super) fn own_in_flight(&self) -> u32 {
        self.in_flight.taken()
    }

    /// Open connections to it, counted as [`Member::in_flight`]; `None` where they are not, for want of a limit.
    pub fn connections(&self) -> Option<u32> {
        self.counts_connections().then(|| self.own_connections() + self.before(Member::own_connections))
    }

    fn own_connections(&self) -> u32 {
        self.berths.connections.taken()
    }

    /// Those that were this member before count so many together.
    fn before(&self, count: impl Fn(&Member) -> u32) -> u32 {
        let Some(before) = &self.before else { return 0 };
        before.iter().filter_map(Weak::upgrade).map(|former| count(&former)).sum()
    }

    /// Its limits, as configured.
    pub fn capacity(&self) -> Capacity {
        self.berths.capacity.read()
    }

    /// New limits: what runs goes on.
    pub(super) fn set_capacity(&self, capacity: Capacity) {
        self.berths.capacity.set(capacity);
        self.in_flight.set_limit(requests(capacity));
        self.berths.connections.set_limit(capacity.max_connections);
    }

    /// Of the requests on it, those that became tunnels.
    pub fn tunnels(&self) -> u32 {
        self.own_tunnels() + self.before(Member::own_tunnels)
    }

    fn own_tunnels(&self) -> u32 {
        self.aside.tunnels.load(Relaxed)
    }

    /// What it has been through.
    pub fn tally(&self) -> &MemberTally {
        &self.aside.tally
    }

    /// What traffic has seen of it.
    pub(super) fn lately(&self) -> &Lately {
        self.aside.lately.get_or_init(Box::default)
    }

    /// The same for the rules that are tried.
    pub(super) fn hearsay(&self) -> &Hearsay {
        &self.aside.hearsay
    }

    /// Rules begin to be tried: by their count too, traffic has seen what it has seen.
    pub(super) fn begin_trial(&self) {
        self.aside.hearsay.begin(self.aside.lately.get().map(|lately| &**lately));
    }

    /// Whether it is unhealthy as one that does not answer.
    pub fn has_fallen(&self) -> bool {
        self.aside.has_fallen.load(SeqCst)
    }

    /// Says whether it is, and answers whether it was.
    pub(super) fn set_fallen(&self, fallen: bool) -> bool {
        self.aside.has_fallen.swap(fallen, SeqCst)
    }

    /// What traffic thinks of it.
    pub(super) fn doubt(&self) -> &Doubt {
        &self.aside.doubt
    }

    /// Whether anything of it goes on.
    pub(super) fn is_in_use(&self) -> bool {
        self.own_in_flight() > 0 || self.own_connections() > 0
    }

    /// How often its pooled connections were left behind; those of another count are not to be used.
    pub fn connections_left(&self) -> u64 {
        self.aside.connections_left.load(Relaxed)
    }

    /// Leaves its pooled connections behind: on one of them something may still come that nobody asked for.
    pub fn leave_connections(&self) {
        self.aside.connections_left.fetch_add(1, Relaxed);
    }

    /// Whether it is no longer configured.
    pub fn is_removed(&self) -> bool {
        self.aside.is_removed.load(Relaxed)
    }

    /// Resolves once the member is no longer configured: its tunnels are then to end within a bound (health.md §9).
    pub async fn removed(&self) {
        let mut told = std::pin::pin!(self.aside.removal.notified());
        // From here on the news is not missed.
        told.as_mut().enable();
        if !self.is_removed() {
            told.await;
        }
    }

    /// Passes and places of the shown window: real samples only.
    pub fn window(&self) -> (u32, u32) {
        let packed = self.window.load(Relaxed);
        ((packed >> 32) as u32, packed as u32)
    }

    /// Probe latency.
    pub fn latency(&self) -> Option<Duration> {
        match self.latency_us.load(Relaxed) {
            NO_LATENCY => None,
            us => Some(Duration::from_micros(us)),
        }
    }

    /// How it does of late by its requests, where the policy goes by that.
    pub fn form(&self, now: Duration) -> Option<Form> {
        self.hall.memory.read().map(|memory| self.form.at(memory.as_of(now)))
    }

    /// Where the prober writes when it will probe next, in microseconds of monotonic time; 0: no probe is planned.
    pub fn next_probe_at(&self) -> &Arc<AtomicU64> {
        &self.next_probe_at
    }

    /// Takes a seat for a request; false when it is full.
    pub(super) fn enter(&self) -> bool {
        self.in_flight.take_into(&self.hall.candidates, self.before(Member::own_in_flight))
    }

    /// Whether [`Member::enter`] would find a seat.
    pub fn has_room(&self) -> bool {
        self.in_flight.has_room_beside(self.before(Member::own_in_flight))
    }

    /// Takes a place for a connection; false when all are taken.
    pub(super) fn takes_connection(&self) -> bool {
        self.berths.connections.take_beside(self.before(Member::own_connections))
    }

    pub(super) fn leave(&self) {
        self.in_flight.give_back_from(&self.hall.candidates);
    }

    /// Its requests, those from before it left and came back included, are of one who may be picked.
    pub(super) fn join_candidates(&self) {
        self.in_flight.join(&self.hall.candidates);
        self.each_before(|former| former.in_flight.join(&self.hall.candidates));
    }

    /// They are not, or nobody asks.
    pub(super) fn part_from_candidates(&self) {
        self.in_flight.part_from(&self.hall.candidates);
        self.each_before(|former| former.in_flight.part_from(&self.hall.candidates));
    }

    fn each_before(&self, act: impl Fn(&Member)) {
        self.before.iter().flatten().filter_map(Weak::upgrade).for_each(|former| act(&former));
    }

    pub(super) fn tunnel_opens(&self) {
        self.aside.tunnels.fetch_add(1, Relaxed);
    }

    pub(super) fn tunnel_closes(&self) {
        self.aside.tunnels.fetch_sub(1, Relaxed);
    }

    /// It is no longer configured, for good: what comes back later is another member.
    pub(super) fn remove(&self) {
        self.part_from_candidates();
        self.aside.is_removed.store(true, Relaxed);
        self.aside.removal.notify_waiters();
    }
}
