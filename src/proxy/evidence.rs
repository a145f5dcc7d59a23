//! What an attempt says of its member: the one match that decides it (health.md §6, case C12), and the pool that is told.
//!
//! An attempt says one thing: when its answer's header comes, or when it fails before that. What breaks later says
//! nothing: a stream that ends is as often its client's doing, and the answer itself was one.
//!
//! Not here: whose fault a failure was ([`blame`](super::blame)), and what comes of evidence (`pool`, `health`).

use std::time::Duration;

use super::blame::{Blame, Fault};
use crate::config::Passive;
use crate::health::{Failure, Reason};
use crate::pool::{Judged, Lease};
use crate::snapshot::Served;
use crate::telemetry::AttemptResult;

/// What an attempt says of its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It answered.
    Success,
    /// It failed.
    Failure(Failure),
    /// Nothing: it was not the member's doing, or not known to be.
    Nothing,
}

/// How far an attempt had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// The header of its answer is here: all was said then.
    ToAnswer,
    /// Nothing has come on a connection that may have gone stale before.
    ToIdleRace,
    /// The member has not got the whole request: who gives it up may have waited for its client for too long. Many a server
    /// does so without an answer, and a client must not be able to turn that against it.
    ToHalfRequest,
    /// None of these.
    Short,
}

/// Of an answer's final status. 502, 503 and 504 say that a server cannot serve. A 500 may be the request's doing, as a 4xx
/// is: a client that has found one must not be able to turn it against every member.
pub fn of_answer(status: u16) -> Evidence {
    match status {
        502..=504 => Evidence::Failure(Failure { reason: Reason::Status, status: Some(status) }),
        _ => Evidence::Success,
    }
}

/// Of a failure.
pub fn of_failure(fault: Fault, came: Came) -> Evidence {
    match (fault.blame, came) {
        (Blame::Client | Blame::Proxy, _)
        | (Blame::Member, Came::ToAnswer | Came::ToIdleRace | Came::ToHalfRequest) => Evidence::Nothing,
        (Blame::Member, Came::Short) => {
            reason(fault.result).map_or(Evidence::Nothing, |reason| Evidence::Failure(Failure { reason, status: None }))
        }
    }
}

/// Tells `pool` what the attempt that has `lease` says of its member: to whoever ejects or would, and, unless `passive` is
/// off, to whoever probes.
pub fn testify(now: Duration, pool: &Served, lease: &Lease, evidence: Evidence) {
    let judged = Judged::of(&pool.config);
    match evidence {
        Evidence::Failure(failure) => {
            if pool.config.passive != Passive::Off {
                pool.live.doubt(now, lease.member());
            }
            pool.live.fails(now, lease, failure, judged);
        }
        Evidence::Success => pool.live.succeeds(now, lease, judged),
        Evidence::Nothing => {}
    }
}

/// What a probe would have called it.
fn reason(result: AttemptResult) -> Option<Reason> {
    match result {
        AttemptResult::ConnectFailed => Some(Reason::Refused),
        AttemptResult::ConnectTimeout => Some(Reason::ConnectTimeout),
        AttemptResult::Tls => Some(Reason::Tls),
        AttemptResult::Reset => Some(Reason::Reset),
        AttemptResult::Timeout => Some(Reason::Timeout),
        AttemptResult::Protocol => Some(Reason::Protocol),
        // Its probe has said it already, or nobody knows.
        AttemptResult::Rescued | AttemptResult::Ok | AttemptResult::ClientAborted | AttemptResult::Abandoned => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::blame::Stage;
    use super::*;

    #[test]
    fn three_statuses_are_evidence_and_every_other_answer_a_success() {
        let failed: Vec<u16> = (100..=599).filter(|status| of_answer(*status) != Evidence::Success).collect();
        assert_eq!(failed, [502, 503, 504]);
        assert_eq!(of_answer(503), Evidence::Failure(Failure { reason: Reason::Status, status: Some(503) }));
    }

    #[test]
    fn only_what_the_member_did_before_it_answered_counts() {
        let members = [
            (AttemptResult::ConnectFailed, Reason::Refused),
            (AttemptResult::ConnectTimeout, Reason::ConnectTimeout),
            (AttemptResult::Tls, Reason::Tls),
            (AttemptResult::Reset, Reason::Reset),
            (AttemptResult::Timeout, Reason::Timeout),
            (AttemptResult::Protocol, Reason::Protocol),
        ];
        for result in AttemptResult::ALL {
            for blame in [Blame::Client, Blame::Member, Blame::Proxy] {
                for came in [Came::ToAnswer, Came::ToIdleRace, Came::ToHalfRequest, Came::Short] {
                    let fault = Fault { blame, stage: Stage::Exchange, result, refusal: None };
                    let reason = members.iter().find(|(word, _)| *word == result).map(|(_, reason)| *reason);
                    let counts = blame == Blame::Member && came == Came::Short;
                    let failure = |reason| Evidence::Failure(Failure { reason, status: None });
                    let expected = reason.filter(|_| counts).map_or(Evidence::Nothing, failure);
                    assert_eq!(of_failure(fault, came), expected, "{fault:?} {came:?}");
                }
            }
        }
    }
}
