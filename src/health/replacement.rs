//! Replacement: which members are due, and which of them may be replaced now (health.md §10).
//!
//! A member is due when no probe of it has passed for `after`, however it stands, and its last sample is a fail that is
//! fresh: whoever cannot probe does not conclude. One that is disabled is not probed; one that drains is in somebody's
//! hands; neither is due. A machine, which is an address, may serve several pools: it is replaced only when it fails in all
//! that probe it, and what is done counts for each of them that replaces members.
//!
//! The oldest comes first. What a limit keeps waiting is deferred, and each decision is told when it becomes another one.
//!
//! Not here: what is done (`remediate`), how many may be (`ledger`), what the pools of a machine have to say (`machine`).

mod ledger;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use ledger::{Entry, Full, Ledger, Limit, Limits, Stamp};

use super::{Admin, Member, MemberId};
use machine::Machines;

/// Between two looks at those who wait for something that nobody announces.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A member, over all pools.
pub type Who = (Arc<str>, MemberId);

/// When a pool's members are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Without a pass for so long.
    pub after: Duration,
    /// The longest between the ends of two of its probes, by plan.
    pub pace: Duration,
    /// How many may be.
    pub limits: Limits,
}

/// A member of a pool with probes, as far as its replacement goes.
#[derive(Debug, Clone)]
pub struct Patient {
    /// Who it is.
    pub who: Who,
    /// Where it runs.
    pub machine: IpAddr,
    /// Since when no probe of it has passed.
    pub unpassed_since: Duration,
    /// When its last sample came, where that is a fail.
    pub failed_at: Option<Duration>,
    /// Its last sample is a fail, and it is not healthy.
    pub is_failing: bool,
    /// Somebody is busy with it: it drains, is disabled or being replaced.
    pub is_in_hand: bool,
    /// It is not disabled.
    pub is_probed: bool,
    /// Of its pool, the same for all of its members; `None`: nobody is replaced there.
    pub rule: Option<Rule>,
}

impl Patient {
    /// A member of a pool with probes; `None`: it has no address.
    pub fn of(pool: &Arc<str>, member: &Member, rule: Option<Rule>) -> Option<Patient> {
        Some(Patient {
            who: (pool.clone(), member.id()),
            machine: member.spec().key.address?.ip(),
            unpassed_since: member.unpassed_since(),
            failed_at: member.last_sample().map(|(_, at)| at).filter(|_| member.streak() < 0),
            is_failing: member.is_failing(),
            is_in_hand: member.admin() != Admin::Enabled,
            is_probed: member.admin() != Admin::Disabled,
            rule,
        })
    }
}

impl Turn {
    /// Whom it is about.
    pub fn who(&self) -> &Who {
        match self {
            Turn::Start(order) => &order.who,
            Turn::Wait(who, _) | Turn::Over(who) => who,
        }
    }
}

/// What keeps a member waiting that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// A limit.
    Full(Full),
    /// Its machine serves this pool too, and does not fail there.
    Shared(Arc<str>),
    /// What would be done cannot be noted down, and what is not noted down might be done again and again.
    Unnoted,
}

impl Wait {
    /// The word used in logs and API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Wait::Full(full) if full.is_lost => "lost",
            Wait::Full(full) => full.limit.as_str(),
            Wait::Shared(_) => "shared",
            Wait::Unnoted => "unnoted",
        }
    }

    /// Whether it is the same reason, though it may last longer or shorter.
    fn is_like(&self, other: &Wait) -> bool {
        match (self, other) {
            (Wait::Full(one), Wait::Full(other)) if one.is_lost && other.is_lost => true,
            (Wait::Full(one), Wait::Full(other)) => {
                (one.limit, &one.pool, one.is_lost) == (other.limit, &other.pool, other.is_lost)
            }
            (one, other) => one == other,
        }
    }
}

/// Something to replace: it is in the ledger already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Whom.
    pub who: Who,
    /// Where it runs.
    pub machine: IpAddr,
    /// Since when no probe of it has passed; later where it was replaced meanwhile.
    pub since: Duration,
    /// The pools it counts for: its own first.
    pub counts_for: Vec<Arc<str>>,
    /// Other probed pools that its machine serves.
    pub shared_with: Vec<Arc<str>>,
    /// When it was decided.
    pub decided: Duration,
    /// It was due; otherwise somebody wants it however it is.
    is_due: bool,
    /// For who takes it back.
    entry: Entry,
    before: Vec<(Who, Option<Duration>)>,
    was_unnoted: bool,
}

impl Order {
    /// Somebody wants it carried out however the member is by then.
    pub fn insist(&mut self) {
        self.is_due = false;
    }
}

/// What speaks against an order that has not begun yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Against {
    /// The member is not there any more, or not where it was, or not probed.
    Gone,
    /// Nobody is replaced in its pool any more.
    Off,
    /// It is not due any more.
    Over,
    /// It would have to wait if it was decided now.
    Wait(Wait),
}

impl Against {
    /// The word used in logs and API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Against::Gone => "gone",
            Against::Off => "off",
            Against::Over => "over",
            Against::Wait(wait) => wait.as_str(),
        }
    }
}

/// A decision that is another one than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// It is to be replaced.
    Start(Order),
    /// It waits.
    Wait(Who, Wait),
    /// It waited, and is not due any more.
    Over(Who),
}

/// Everything that is decided.
#[derive(Debug, Clone)]
pub struct Ward {
    ledger: Ledger,
    /// When members were replaced that still are: they are given as long as everybody.
    replaced: HashMap<Who, Duration>,
    waiting: BTreeMap<Who, Wait>,
}

impl Ward {
    /// Nobody waits.
    pub fn new(ledger: Ledger) -> Ward {
        Ward { ledger, replaced: HashMap::new(), waiting: BTreeMap::new() }
    }

    /// What was done.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Who waits, and for what.
    pub fn waiting(&self) -> &BTreeMap<Who, Wait> {
        &self.waiting
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Duration, wall: Duration) {
        self.ledger.advance(now, wall);
    }

    /// Looks at everyone: what is decided otherwise than before, and when to look again (at the latest).
    pub fn look(
        &mut self,
        now: Duration,
        wall: Duration,
        patients: &[Patient],
        max_global: u32,
    ) -> (Vec<Turn>, Option<Duration>) {
        self.ledger.advance(now, wall);
        self.forget(now, patients);
        let mut due: Vec<(Duration, &Patient, Rule)> = Vec::new();
        for patient in patients {
            let Some(rule) = patient.rule else { continue };
            let since = self.since(patient);
            if is_due(now, since, patient, rule) {
                due.push((since, patient, rule));
            }
        }
        due.sort_by(|(one, a, _), (other, b, _)| one.cmp(other).then_with(|| a.who.cmp(&b.who)));
        let asked: HashSet<IpAddr> = due.iter().map(|(_, patient, _)| patient.machine).collect();
        let there = |patient: &&Patient| patient.is_probed && asked.contains(&patient.machine);
        let mut machines = Machines::of(patients.iter().filter(there));
        let (mut turns, mut waiting) = (Vec::new(), BTreeMap::new());
        for (_, patient, rule) in due {
            // An older one on its machine may just have been chosen.
            if now < self.since(patient).saturating_add(rule.after) {
                continue;
            }
            match self.decide(now, patient, &mut machines, max_global) {
                Answer::Start(order) => turns.push(Turn::Start(order)),
                Answer::Wait(wait) => {
                    let told = self.waiting.get(&patient.who).is_some_and(|before| before.is_like(&wait));
                    if !told {
                        turns.push(Turn::Wait(patient.who.clone(), wait.clone()));
                    }
                    waiting.insert(patient.who.clone(), wait);
                }
            }
        }
        let started: BTreeSet<&Who> =
            turns.iter().filter(|turn| matches!(turn, Turn::Start(_))).map(Turn::who).collect();
        let over = self.waiting.keys().filter(|who| !waiting.contains_key(*who) && !started.contains(who));
        let over: Vec<Turn> = over.cloned().map(Turn::Over).collect();
        turns.extend(over);
        self.waiting = waiting;
        let next = patients.iter().filter_map(|patient| self.next_look(now, patient)).min();
        (turns, next)
    }

    /// Somebody wants this one replaced now, however it is: the limits hold all the same.
    pub fn by_hand(
        &mut self,
        now: Duration,
        wall: Duration,
        patients: &[Patient],
        who: &Who,
        max_global: u32,
    ) -> Option<Answer> {
        self.ledger.advance(now, wall);
        let patient = patients.iter().find(|patient| patient.who == *who)?;
        patient.rule?;
        let is_there = |other: &&Patient| other.machine == patient.machine && other.is_probed;
        let mut machines = Machines::of(patients.iter().filter(|other| other.who == *who || is_there(other)));
        let answer = self.admit(now, patient, &mut machines, max_global);
        let Answer::Start(order) = answer else { return Some(answer) };
        self.waiting.remove(who);
        Some(Answer::Start(Order { is_due: false, ..order }))
    }

    /// What speaks by now against an order that has not begun; `None`: it is to be carried out.
    pub fn against(
        &mut self,
        now: Duration,
        wall: Duration,
        patients: &[Patient],
        order: &Order,
        max_global: u32,
    ) -> Option<Against> {
        self.ledger.advance(now, wall);
        let Some(patient) = patients.iter().find(|p| p.who == order.who && p.machine == order.machine) else {
            return Some(Against::Gone);
        };
        let Some(rule) = patient.rule else { return Some(Against::Off) };
        if order.is_due {
            let has_passed = patient.unpassed_since > order.since;
            if has_passed || !is_due(now, order.since, patient, rule) {
                return Some(Against::Over);
            }
            let others = patients.iter().filter(|other| other.machine == order.machine && other.is_probed);
            let well = others.filter(|other| other.who.0 != order.who.0).find(|other| !other.is_failing);
            if let Some(other) = well {
                return Some(Against::Wait(Wait::Shared(other.who.0.clone())));
            }
        }
        // It is in the ledger already, and does not stand in its own way.
        let mut without = self.ledger.clone();
        without.strike(&order.entry);
        let rules = patients.iter().filter_map(|patient| Some((&patient.who.0, patient.rule?)));
        let rules: HashMap<&Arc<str>, Rule> = rules.collect();
        let counts_for = order.counts_for.iter().filter_map(|pool| Some((pool.clone(), rules.get(pool)?.limits)));
        without.full(&counts_for.collect::<Vec<_>>(), max_global).map(|full| Against::Wait(Wait::Full(full)))
    }

    /// Takes an order back that could not be noted down; true: it is told for the first time.
    pub fn take_back(&mut self, order: &Order) -> bool {
        self.give_up(order);
        // By hand nobody waits who did not.
        if order.is_due || order.was_unnoted {
            self.waiting.insert(order.who.clone(), Wait::Unnoted);
        }
        !order.is_due || !order.was_unnoted
    }

    /// Nothing came of an order: it does not count, and is no chance given.
    pub fn give_up(&mut self, order: &Order) {
        self.ledger.strike(&order.entry);
        for (who, replaced) in order.before.iter().cloned() {
            // A later order may have been about it.
            if self.replaced.get(&who) != Some(&order.decided) {
                continue;
            }
            match replaced {
                Some(at) => drop(self.replaced.insert(who, at)),
                None => drop(self.replaced.remove(&who)),
            }
        }
    }

    fn decide(&mut self, now: Duration, patient: &Patient, machines: &mut Machines<'_>, max_global: u32) -> Answer {
        match machines.well_beside(patient) {
            Some(other) => Answer::Wait(Wait::Shared(other.clone())),
            None => self.admit(now, patient, machines, max_global),
        }
    }

    /// Replaces it if the limits have room.
    fn admit(&mut self, now: Duration, patient: &Patient, machines: &mut Machines<'_>, max_global: u32) -> Answer {
        if let Some(full) = machines.full(patient, &self.ledger, max_global) {
            return Answer::Wait(Wait::Full(full));
        }
        let pool = &patient.who.0;
        let since = self.since(patient);
        let (counts_for, shared_with) = machines.pools(patient);
        let entry = self.ledger.enter(counts_for.clone());
        // Whoever else is on the machine is replaced with it; its neighbours in its own pool are members by themselves.
        let there = machines.members(patient).iter();
        let replaced = there.filter(|other| other.who.0 != *pool || other.who == patient.who);
        let before = replaced.map(|other| (other.who.clone(), self.replaced.insert(other.who.clone(), now))).collect();
        let was_unnoted = self.waiting.get(&patient.who) == Some(&Wait::Unnoted);
        let (who, machine) = (patient.who.clone(), patient.machine);
        let (decided, is_due) = (now, true);
        Answer::Start(Order {
            who,
            machine,
            since,
            counts_for,
            shared_with,
            decided,
            is_due,
            entry,
            before,
            was_unnoted,
        })
    }

    /// Since when it has had its chance.
    fn since(&self, patient: &Patient) -> Duration {
        let replaced = self.replaced.get(&patient.who).copied().unwrap_or_default();
        patient.unpassed_since.max(replaced)
    }

    /// Who has passed since was worth replacing; who is away may be back, and no better.
    fn forget(&mut self, now: Duration, patients: &[Patient]) {
        if self.replaced.is_empty() {
            return;
        }
        let there: HashMap<&Who, Duration> = patients.iter().map(|p| (&p.who, p.unpassed_since)).collect();
        self.replaced.retain(|who, at| match there.get(who) {
            Some(since) => since < at,
            None => now.saturating_sub(*at) < Limit::Day.span(),
        });
    }

    /// When it may be decided otherwise than now.
    fn next_look(&self, now: Duration, patient: &Patient) -> Option<Duration> {
        let rule = patient.rule?;
        if patient.is_in_hand {
            // Whoever lets go of it has us look again.
            return None;
        }
        let due_at = self.since(patient).saturating_add(rule.after);
        let look = now + rule.pace.clamp(LOOK.0, LOOK.1);
        match self.waiting.get(&patient.who) {
            Some(Wait::Full(Full { free_in: Some(free_in), .. })) => Some(look.min(now + *free_in)),
            Some(_) => Some(look),
            // It is, but for a fresh sample.
            None if due_at <= now => Some(look),
            None => Some(due_at),
        }
    }
}

/// What is decided of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is to be replaced.
    Start(Order),
    /// Not now.
    Wait(Wait),
}

fn is_due(now: Duration, since: Duration, patient: &Patient, rule: Rule) -> bool {
    let fresh = |at: Duration| at.saturating_add(rule.pace * 2) >= now;
    !patient.is_in_hand && patient.failed_at.is_some_and(fresh) && now >= since.saturating_add(rule.after)
}

/// One step of a look: its tests count them, since no clock says on another machine that there are too many.
fn step() {
    #[cfg(test)]
    tests::STEPS.set(tests::STEPS.get() + 1);
}
