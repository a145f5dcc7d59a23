//! Who gets the next request, among the members that may.
//!
//! A [`Balancer`] is built when the candidates change and never altered: everything that can be worked out beforehand
//! is, so that a pick costs an atomic add or a binary search whatever the pool's size. A member that is out is not a
//! candidate at all, so its share goes to all the others by weight and never to its neighbour, and no pick searches
//! past unhealthy ones.
//! Pure: no clock, no lock, no randomness of its own (a draw is an argument), and no allocation in a pick.
//! Not here: who may (`health`, through `pool`).

mod consistent;
mod fastest;
mod form;
mod least_requests;
mod outlook;
mod peak_ewma;
mod random;
mod roster;
mod round_robin;
mod shares;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

pub use consistent::{Ring, Rings, Seat};
use fastest::Fastest;
pub use form::{Answered, AsOf, Form, Memory, Peak, failing_after};
use least_requests::LeastRequests;
use peak_ewma::PeakEwma;
use roster::Roster;
use round_robin::Order;

/// How requests are shared among the eligible members.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// Smooth weighted round-robin.
    RoundRobin,
    /// The least loaded of a few; load = (in flight + 1) / weight (health.md §7).
    LeastRequests {
        /// How many are looked at, 2 to 16 (what is outside counts as the nearer end). Up to 8 members all are.
        choices: u8,
    },
    /// Weighted at random.
    Random,
    /// Those nearly as fast as the fastest, shared by weight (health.md §5).
    Fastest {
        /// How much slower than the fastest still counts as fast. 0: the fastest alone, and who equals it.
        sensitivity: Duration,
    },
    /// By how fast their answers to requests were of late; those nearly as fast as the fastest share by weight.
    PeakEwma(Memory),
    /// By a key of the request, on a ring of the members; at random, by weight, for requests that have none.
    ConsistentHash {
        /// Nobody carries more than this percentage of the average, over 100; `None`: no bound.
        bounded_load_percent: Option<u32>,
    },
}

/// A member that may get traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its place in the pool's member list; what a pick returns.
    pub index: usize,
    /// At least 1. One of weight 0 is drained, and left out (health.md §7).
    pub weight: u32,
    /// The weight is divided by this: at least 1.
    pub split: u32,
    /// Unhealthy and in the rotation only by the cap: a retry prefers a healthy one.
    pub kept: bool,
    /// Probe latency, for `Fastest`.
    pub latency: Option<Duration>,
}

/// Picks members for requests: one policy over one set of candidates.
#[derive(Debug)]
pub struct Balancer {
    roster: Roster,
    way: Way,
    hashing: Option<Hashing>,
}

/// How keys find their members.
#[derive(Debug)]
struct Hashing {
    ring: Arc<Ring>,
    bound: Option<Bound>,
}

/// How much more than the average a member may carry.
#[derive(Debug)]
struct Bound {
    percent: u32,
    /// Weight, by place.
    units: Vec<u64>,
    all_units: u64,
}

/// What each policy has worked out beforehand.
#[derive(Debug)]
enum Way {
    RoundRobin(Order),
    LeastRequests(LeastRequests),
    Random,
    Fastest(Fastest),
    PeakEwma(PeakEwma),
}

impl Balancer {
    /// Builds for these candidates: under 5 ms for 10,000 of any weights.
    ///
    /// They are put in the order of their index. Of two with the same index the first counts.
    pub fn new(policy: &Policy, candidates: Vec<Candidate>) -> Balancer {
        let candidates = roster::tidy(candidates);
        let units = shares::units(&candidates);
        let roster = match policy {
            Policy::Fastest { .. } => Roster::new(candidates, &units, fastest::reckoned),
            _ => Roster::new(candidates, &units, |_, _| Duration::ZERO),
        };
        let way = match policy {
            Policy::RoundRobin => Way::RoundRobin(Order::new(&units)),
            Policy::LeastRequests { choices } => Way::LeastRequests(LeastRequests::new(*choices, &units)),
            Policy::Random | Policy::ConsistentHash { .. } => Way::Random,
            Policy::Fastest { sensitivity } => Way::Fastest(Fastest::new(*sensitivity, &roster, &units)),
            Policy::PeakEwma(memory) => Way::PeakEwma(PeakEwma::new(memory.sensitivity, &roster, &units)),
        };
        Balancer { roster, way, hashing: None }
    }

    /// Builds for [`Policy::ConsistentHash`] with the ring of the candidates' tier, which may hold others too.
    pub fn with_ring(ring: Arc<Ring>, bounded_load_percent: Option<u32>, candidates: Vec<Candidate>) -> Balancer {
        let balancer = Balancer::new(&Policy::ConsistentHash { bounded_load_percent }, candidates);
        let bound = bounded_load_percent.map(|percent| {
            let units = shares::units(balancer.candidates());
            Bound { percent, all_units: units.iter().sum(), units }
        });
        Balancer { hashing: Some(Hashing { ring, bound }), ..balancer }
    }

    /// Picks the member for a request: its [`Candidate::index`].
    ///
    /// `turn` is the pool's own counter; it survives rosters and reloads, and whoever starts one begins at a random
    /// number, or the first member would get the first request after every start. `draw` is a fresh random number.
    /// `load(index)` is the number of requests in flight on a member.
    ///
    /// `tried` are the indices this request has tried already (a handful at most): none of them is picked while
    /// another exists, and when `tried` is not empty a healthy one is picked before a kept one. A second attempt goes
    /// by `draw` and takes no turn: if it did, a failing member of two would be the first choice of *every* request,
    /// and if it took the next in order, the neighbour of a failing member would carry that one's share.
    ///
    /// `None` only when there are no candidates, or all of them are in `tried`.
    pub fn pick(&self, turn: &AtomicUsize, draw: u64, load: impl Fn(usize) -> u32, tried: &[usize]) -> Option<usize> {
        self.choose(turn, draw, load, |_| Form::default(), tried)
    }

    /// The same for [`Policy::PeakEwma`]: `form(index)` is how a member does of late.
    pub fn pick_by_form(
        &self,
        turn: &AtomicUsize,
        draw: u64,
        form: impl Fn(usize) -> Form,
        tried: &[usize],
    ) -> Option<usize> {
        self.choose(turn, draw, |_| 0, form, tried)
    }

    fn choose(
        &self,
        turn: &AtomicUsize,
        draw: u64,
        load: impl Fn(usize) -> u32,
        form: impl Fn(usize) -> Form,
        tried: &[usize],
    ) -> Option<usize> {
        if self.roster.is_empty() {
            return None;
        }
        let place = if tried.is_empty() {
            match &self.way {
                Way::RoundRobin(order) => order.next(turn),
                Way::LeastRequests(way) => way.first(&self.roster, turn, draw, load),
                Way::Random => self.roster.any(draw),
                Way::Fastest(way) => way.first(turn),
                Way::PeakEwma(way) => way.first(&self.roster, turn, draw, form),
            }
        } else if let Some(mut tried) = self.roster.ranks(tried) {
            match &self.way {
                Way::RoundRobin(_) | Way::Random => self.roster.other(draw, &tried)?,
                Way::LeastRequests(way) => way.other(&self.roster, draw, load, &mut tried)?,
                Way::Fastest(way) => way.other(&self.roster, draw, &tried)?,
                Way::PeakEwma(way) => way.other(&self.roster, draw, form, &mut tried)?,
            }
        } else {
            self.roster.first_untried(tried)?
        };
        Some(self.roster.candidates()[place].index)
    }

    /// Picks the member for a request with this `key`: the same each time, until that one may not serve.
    ///
    /// `total` is the number of requests in flight on all candidates together, asked only where load is bounded. `load` and
    /// `tried` are as in [`Balancer::pick`]. `None` only when there are no candidates, or all of them are in `tried`, or keys
    /// mean nothing to the policy.
    pub fn pick_for(
        &self,
        key: &[u8],
        load: impl Fn(usize) -> u32,
        total: impl FnOnce() -> u64,
        tried: &[usize],
    ) -> Option<usize> {
        let Hashing { ring, bound } = self.hashing.as_ref().filter(|_| !self.roster.is_empty())?;
        let candidates = self.candidates();
        let way = consistent::Way { ring, roster: &self.roster, tried };
        let place = match bound {
            None => way.pick(key, |_| true)?,
            Some(Bound { percent, units, all_units }) => {
                let total = total();
                let may_carry = |place: usize| consistent::capacity(*percent, total, units[place], *all_units);
                way.pick(key, |place| u64::from(load(candidates[place].index)) < may_carry(place))?
            }
        };
        Some(candidates[place].index)
    }

    /// Whether keys say where requests go.
    pub fn goes_by_key(&self) -> bool {
        self.hashing.is_some()
    }

    /// Whether it asks how members do of late ([`Balancer::pick_by_form`]).
    pub fn goes_by_form(&self) -> bool {
        matches!(self.way, Way::PeakEwma(_))
    }

    /// Whether it asks how many requests all candidates have together.
    pub fn bounds_load(&self) -> bool {
        self.hashing.as_ref().is_some_and(|hashing| hashing.bound.is_some())
    }

    /// Those it picks among, in the order of their index.
    pub fn candidates(&self) -> &[Candidate] {
        self.roster.candidates()
    }
}
