//! Whether to try again, and whom. Pure.
//!
//! The question is always "can it have been processed": a connect failure cannot, so any method goes to another member,
//! outside the budget. After something was sent only an idempotent request whose body can be sent again may be repeated,
//! within the budget, and never once an answer has begun (RFC 9110 section 9.2.2).

use super::blame::{Blame, Fault, Stage};
use crate::config::Retries;
use crate::telemetry::AttemptResult;

/// What is known of the request when an attempt has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// Its method may be repeated.
    pub idempotent: bool,
    /// All of its body that was read can be sent again.
    pub whole_body: bool,
    /// The client has got part of an answer.
    pub answer_begun: bool,
    /// All of the request has come. Who gives half of one up may have waited for its client for too long, and so would others.
    pub whole_request: bool,
    /// The attempt used a pooled connection that closed before any answer: it had gone stale (case C54).
    pub idle_race: bool,
}

/// What the request has used up, this attempt included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Attempts on which something was sent, idle races left out.
    pub attempts: u32,
    /// Dials that failed.
    pub dials: u32,
    /// Idle races lost.
    pub races: u32,
    /// Members left, which turned out not to answer.
    pub rescues: u32,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Give up.
    Stop,
    /// Another member, if there is one.
    Another,
    /// The same member over a new connection: it did nothing wrong.
    SameAfresh,
}

/// Idle races a request may lose before they count like any other failure: a fresh dial cannot lose one.
const RACES: u32 = 2;

/// Rescues of one request: whoever waits for the fourth member in a row that turns out dead may as well wait for it.
pub const RESCUES: u32 = 3;

/// Decides; `budget` takes one retry out of the pool's budget and says whether there was one.
pub fn decide(fault: Fault, replay: Replay, spent: Spent, limits: Retries, budget: impl FnOnce() -> bool) -> Next {
    if fault.blame != Blame::Member || replay.answer_begun {
        return Next::Stop;
    }
    if fault.stage == Stage::Connect {
        return if spent.dials < limits.connect { Next::Another } else { Next::Stop };
    }
    if !replay.idempotent || !replay.whole_body {
        return Next::Stop;
    }
    if fault.result == AttemptResult::Rescued {
        // Its load was the others' from the moment the member fell; no budget is to keep requests at a dead one.
        return if spent.rescues <= RESCUES { Next::Another } else { Next::Stop };
    }
    if replay.idle_race && spent.races <= RACES {
        return Next::SameAfresh;
    }
    if !replay.whole_request {
        return Next::Stop;
    }
    if spent.attempts < limits.attempts && budget() { Next::Another } else { Next::Stop }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Retries = Retries { attempts: 2, connect: 3, budget_percent: 20, per_try_timeout: None };
    const GET: Replay =
        Replay { idempotent: true, whole_body: true, answer_begun: false, whole_request: true, idle_race: false };
    const POST: Replay = Replay { idempotent: false, ..GET };

    fn fault(blame: Blame, stage: Stage) -> Fault {
        Fault { blame, stage, result: AttemptResult::Reset, refusal: None }
    }

    #[test]
    fn only_what_cannot_hurt_is_tried_again() {
        let (refused, reset) = (fault(Blame::Member, Stage::Connect), fault(Blame::Member, Stage::Exchange));
        let first = Spent { attempts: 1, ..Spent::default() };
        let dialled = |dials| Spent { dials, ..Spent::default() };
        let raced = |races| Spent { races, ..Spent::default() };
        let rescued = Fault { result: AttemptResult::Rescued, ..reset };
        let saved = |rescues| Spent { rescues, ..Spent::default() };
        let stale = Replay { idle_race: true, ..GET };
        let rows = [
            ("a refused GET goes elsewhere", refused, GET, dialled(1), true, Next::Another),
            ("a refused POST too: nothing was sent", refused, POST, dialled(1), true, Next::Another),
            ("connect failures need no budget", refused, POST, dialled(2), false, Next::Another),
            ("three dials are enough", refused, GET, dialled(3), true, Next::Stop),
            ("a reset GET goes elsewhere", reset, GET, first, true, Next::Another),
            ("without budget it does not", reset, GET, first, false, Next::Stop),
            ("two attempts in all", reset, GET, Spent { attempts: 2, ..first }, true, Next::Stop),
            ("a reset POST may have been processed", reset, POST, first, true, Next::Stop),
            ("a body that is not kept whole", reset, Replay { whole_body: false, ..GET }, first, true, Next::Stop),
            ("half a request", reset, Replay { whole_request: false, ..GET }, first, true, Next::Stop),
            (
                "half a request in a race",
                reset,
                Replay { whole_request: false, ..stale },
                raced(1),
                true,
                Next::SameAfresh,
            ),
            ("an answer has begun", reset, Replay { answer_begun: true, ..GET }, first, true, Next::Stop),
            ("a stale connection is nobody's fault", reset, stale, raced(1), false, Next::SameAfresh),
            ("but not for ever", reset, stale, Spent { races: 3, attempts: 2, ..Spent::default() }, true, Next::Stop),
            (
                "a stale POST may have been processed",
                reset,
                Replay { idle_race: true, ..POST },
                first,
                true,
                Next::Stop,
            ),
            ("a rescued GET goes elsewhere, budget or not", rescued, GET, saved(1), false, Next::Another),
            ("also after its attempts", rescued, GET, Spent { attempts: 2, ..saved(3) }, false, Next::Another),
            ("but not for ever", rescued, GET, saved(4), true, Next::Stop),
            ("a POST that waits stays", rescued, POST, saved(1), true, Next::Stop),
            ("the client left", fault(Blame::Client, Stage::Exchange), GET, first, true, Next::Stop),
            ("we are out of descriptors", fault(Blame::Proxy, Stage::Connect), GET, dialled(1), true, Next::Stop),
        ];
        for (what, fault, replay, spent, budget, next) in rows {
            assert_eq!(decide(fault, replay, spent, LIMITS, || budget), next, "{what}");
        }
    }

    #[test]
    fn the_budget_is_touched_only_when_it_decides() {
        let refused = fault(Blame::Member, Stage::Connect);
        let untouched = || -> bool { panic!("the budget was asked") };
        decide(refused, GET, Spent { dials: 1, ..Spent::default() }, LIMITS, untouched);
        decide(fault(Blame::Member, Stage::Exchange), POST, Spent::default(), LIMITS, untouched);
    }
}
