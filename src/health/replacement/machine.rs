//! Machines at one look: in which pools each is probed, in which of them it does not fail, and what keeps it from being replaced.
//!
//! A machine may serve hundreds of pools, and whoever is due there asks for the same. It is worked out once for all of them, and
//! anew when something was replaced meanwhile: a look takes about as many steps as there are members, once more for each that
//! it replaces, and those are as few as `max_global`.
//!
//! Not here: what comes of it (`mod`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::ledger::{Full, Ledger, Limits, longest};
use super::{Patient, step};

/// Those that somebody is due on, and what the limit of all pools says.
#[derive(Debug, Default)]
pub(super) struct Machines<'a> {
    by_address: HashMap<IpAddr, Machine<'a>>,
    for_all: Option<(usize, Option<Full>)>,
}

#[derive(Debug, Default)]
struct Machine<'a> {
    members: Vec<&'a Patient>,
    /// Each once, in the order in which they come.
    pools: Vec<Place<'a>>,
    places: HashMap<&'a str, usize>,
    /// The first two where it does not fail: one is another than whoever asks for it.
    well: [Option<&'a Arc<str>>; 2],
    kept: Option<Kept>,
}

/// A pool of a machine.
#[derive(Debug)]
struct Place<'a> {
    pool: &'a Arc<str>,
    limits: Option<Limits>,
    fails: bool,
}

/// What the pools' own limits say while the ledger has so many entries; within a look it only grows.
#[derive(Debug)]
struct Kept {
    entries: usize,
    of: Vec<Option<Full>>,
    /// The places of the two that last longest, the longest first.
    longest: [Option<usize>; 2],
}

impl<'a> Machines<'a> {
    /// Of these members, each with whoever else of them is on its machine.
    pub(super) fn of(members: impl Iterator<Item = &'a Patient>) -> Machines<'a> {
        let mut machines = Machines::default();
        members.for_each(|member| machines.by_address.entry(member.machine).or_default().add(member));
        machines.by_address.values_mut().for_each(Machine::settle);
        machines
    }

    /// A pool where the patient's machine does not fail, other than its own.
    pub(super) fn well_beside(&self, patient: &Patient) -> Option<&'a Arc<str>> {
        let well = self.by_address[&patient.machine].well;
        well.into_iter().flatten().find(|pool| **pool != patient.who.0)
    }

    /// What keeps the patient from being replaced: of the limits of its own pool, of its machine's others, and of all pools the
    /// one that lasts longest, and of several such the last in this order.
    pub(super) fn full(&mut self, patient: &Patient, ledger: &Ledger, max_global: u32) -> Option<Full> {
        let entries = ledger.entries().len();
        let for_all = match &self.for_all {
            Some((then, full)) if *then == entries => full.clone(),
            _ => {
                let full = ledger.full_for_all(max_global);
                self.for_all = Some((entries, full.clone()));
                full
            }
        };
        let machine = self.by_address.get_mut(&patient.machine)?;
        let [own, others] = machine.full(&patient.who.0, ledger);
        longest([own, others, for_all])
    }

    /// The pools that a replacement of the patient counts for, its own first, and all others where its machine is probed.
    pub(super) fn pools(&self, patient: &Patient) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let own = &patient.who.0;
        let others = || self.by_address[&patient.machine].pools.iter().filter(|place| place.pool != own);
        let counting = others().filter(|place| place.limits.is_some()).map(|place| place.pool);
        (std::iter::once(own).chain(counting).cloned().collect(), others().map(|place| place.pool.clone()).collect())
    }

    /// Whoever is on the patient's machine, itself too.
    pub(super) fn members(&self, patient: &Patient) -> &[&'a Patient] {
        &self.by_address[&patient.machine].members
    }
}

impl<'a> Machine<'a> {
    fn add(&mut self, member: &'a Patient) {
        step();
        self.members.push(member);
        let pool = &member.who.0;
        let place = *self.places.entry(pool).or_insert_with(|| {
            self.pools.push(Place { pool, limits: member.rule.map(|rule| rule.limits), fails: true });
            self.pools.len() - 1
        });
        self.pools[place].fails &= member.is_failing;
    }

    /// Everybody is there.
    fn settle(&mut self) {
        let mut well = self.pools.iter().filter(|place| !place.fails).map(|place| place.pool);
        self.well = [well.next(), well.next()];
    }

    /// What keeps the pool itself, and which of the other pools' limits lasts longest.
    fn full(&mut self, own: &Arc<str>, ledger: &Ledger) -> [Option<Full>; 2] {
        let entries = ledger.entries().len();
        let kept = match self.kept.take() {
            Some(kept) if kept.entries == entries => kept,
            _ => Kept::of(&self.pools, ledger),
        };
        let own = self.places.get(&**own).copied();
        let other = kept.longest.into_iter().flatten().find(|place| Some(*place) != own);
        let full = [own, other].map(|place| kept.of.get(place?).cloned().flatten());
        self.kept = Some(kept);
        full
    }
}

impl Kept {
    fn of(pools: &[Place<'_>], ledger: &Ledger) -> Kept {
        let full = |place: &Place<'_>| place.limits.and_then(|limits| ledger.full_for(place.pool, limits));
        let of: Vec<Option<Full>> = pools.iter().map(full).collect();
        let lasts = |place: Option<usize>| of.get(place?).and_then(Option::as_ref).map(Full::lasts);
        let mut longest = [None, None];
        for place in (0..of.len()).map(Some).filter(|place| lasts(*place).is_some()) {
            if lasts(place) >= lasts(longest[0]) {
                longest = [place, longest[0]];
            } else if lasts(place) >= lasts(longest[1]) {
                longest[1] = place;
            }
        }
        Kept { entries: ledger.entries().len(), of, longest }
    }
}
