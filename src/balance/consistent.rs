//! Consistent hashing: a key goes to the same member for as long as that one may serve, on every proxy that has the pool.
//!
//! The ring is Pingora's ketama, with the points nginx gives them. It is built once for a set of members and shared by
//! the rosters over it: whoever may not serve just now is walked past, so only the keys of that one move, and they return
//! with it. Bounded load is the rule of Mirrokni, Thorup and Zadimoghaddam: nobody takes more than a factor of the
//! average, the rest walks on.
//!
//! The one room of the heart that names a crate (docs/architecture.md). Not here: what a request's key is (`proxy`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use pingora::lb::Backend;
use pingora::lb::selection::{BackendIter, BackendSelection, Consistent};

use super::random::again;
use super::roster::Roster;

/// A ring has points for at most so many units of weight (160 each), or for one of each member where there are more: about
/// 5 MB. Heavier sets are scaled down, by a power of two, so that a change of one weight does not scale all others anew.
const MOST_UNITS: u64 = 4_096;

/// Ketama numbers the members of a ring with 16 bits; who comes after that has no place on it.
const MOST_MEMBERS: usize = 65_535;

/// Where names have different numbers of addresses, a weight of 1 has so many units to divide.
const PARTS: u64 = 8;

/// Points walked past before the ring is left: it takes a pool in which one in hundreds may serve.
const MOST_STEPS: usize = 1_024;

/// A member's claim to a part of the ring.
#[derive(Debug, Clone, PartialEq)]
pub struct Seat {
    /// Its place in the pool's member list.
    pub index: usize,
    /// What its points are made from.
    pub address: SocketAddr,
    /// Its share; with 0 it has none.
    pub weight: u32,
    /// The weight is divided by this.
    pub split: u32,
    /// Each tier has a ring of its own.
    pub tier: u8,
    /// The name it is an address of, if it is.
    pub source: Option<Arc<str>>,
}

/// The rings of a pool, one for each tier.
pub struct Rings {
    seats: Vec<Seat>,
    tiers: BTreeMap<u8, Arc<Ring>>,
}

/// The ring of one tier.
pub struct Ring(Arc<Consistent>);

/// What a point of the ring stands for: the members at one address, which are nearly always one.
#[derive(Debug, Clone)]
struct Holders(Vec<usize>);

impl Rings {
    /// The rings for `seats`. Takes about a tenth of a second for 10,000 members.
    pub fn new(seats: Vec<Seat>) -> Rings {
        let parts = if have_equal_splits(&seats) { None } else { Some(PARTS) };
        let mut tiers: BTreeMap<u8, BTreeMap<SocketAddr, (u64, Vec<usize>)>> = BTreeMap::new();
        for seat in seats.iter().filter(|seat| seat.weight > 0) {
            let weight = u64::from(seat.weight);
            let split = u64::from(seat.split.max(1));
            let units = parts.map_or(weight, |parts| ((weight * parts + split / 2) / split).max(1));
            let holders = tiers.entry(seat.tier).or_default().entry(seat.address).or_default();
            holders.0 = holders.0.max(units);
            holders.1.push(seat.index);
        }
        let tiers = tiers.into_iter().map(|(tier, holders)| (tier, Arc::new(ring(holders)))).collect();
        Rings { seats, tiers }
    }

    /// Whether these are the rings for `seats`.
    pub fn are_for(&self, seats: &[Seat]) -> bool {
        self.seats == seats
    }

    /// The ring of `tier`.
    pub fn of(&self, tier: u8) -> Option<&Arc<Ring>> {
        self.tiers.get(&tier)
    }
}

/// Whether every member's weight is divided by the same number, whatever names resolve to: all addresses are the file's own,
/// or all are one name's.
fn have_equal_splits(seats: &[Seat]) -> bool {
    let first = seats.first().and_then(|seat| seat.source.as_ref());
    seats.iter().all(|seat| seat.source.as_ref() == first)
}

fn ring(holders: BTreeMap<SocketAddr, (u64, Vec<usize>)>) -> Ring {
    let room = MOST_UNITS.max(holders.len() as u64);
    let total: u64 = holders.values().map(|(units, _)| *units).sum();
    let shift = (0..u64::BITS).find(|shift| total >> shift <= room).unwrap_or(0);
    let backends = holders.into_iter().take(MOST_MEMBERS).filter_map(|(address, (units, indices))| {
        let mut backend = Backend::new_with_weight(&address.to_string(), (units >> shift).max(1) as usize).ok()?;
        backend.ext.insert(Holders(indices));
        Some(backend)
    });
    Ring(Arc::new(Consistent::build(&backends.collect::<BTreeSet<_>>())))
}

/// One request's way round a ring.
pub(super) struct Way<'a> {
    pub(super) ring: &'a Ring,
    pub(super) roster: &'a Roster,
    /// Members tried already, by index.
    pub(super) tried: &'a [usize],
}

impl Way<'_> {
    /// The place of the member for `key`: the first on the way round that may serve, was not tried, and `has_room`. A retry
    /// prefers a healthy one to one that is kept. `None` when all have been tried.
    pub(super) fn pick(&self, key: &[u8], has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let healthy = |place: usize| !self.roster.candidates()[place].kept;
        let found = if self.tried.is_empty() {
            self.walk(key, &has_room)
        } else {
            self.walk(key, |place| healthy(place) && has_room(place)).or_else(|| self.walk(key, &has_room))
        };
        found.or_else(|| self.walk(key, |_| true)).or_else(|| self.off_the_ring(key))
    }

    fn walk(&self, key: &[u8], fits: impl Fn(usize) -> bool) -> Option<usize> {
        let mut points = self.ring.0.iter(key);
        for _ in 0..MOST_STEPS {
            let holders = points.next()?.ext.get::<Holders>()?;
            let untried = holders.0.iter().filter(|index| !self.tried.contains(index));
            let mut places = untried.filter_map(|&index| self.roster.place_of(index));
            if let Some(place) = places.find(|place| fits(*place)) {
                return Some(place);
            }
        }
        None
    }

    /// Where next to nobody may serve the ring is no help; the key still says who it is, among those of now.
    fn off_the_ring(&self, key: &[u8]) -> Option<usize> {
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        let draw = again(hasher.finish());
        match self.roster.ranks(self.tried) {
            Some(tried) => self.roster.other(draw, &tried),
            None => self.roster.first_untried(self.tried),
        }
    }
}

/// How much each candidate may carry: `percent` of the average by weight, with this request, rounded up.
pub(super) fn capacity(percent: u32, total: u64, units: u64, all_units: u64) -> u64 {
    let wanted = u128::from(percent) * u128::from(total + 1) * u128::from(units);
    wanted.div_ceil(100 * u128::from(all_units.max(1))) as u64
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").field("seats", &self.seats.len()).field("tiers", &self.tiers.len()).finish()
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

#[cfg(test)]
mod tests;
