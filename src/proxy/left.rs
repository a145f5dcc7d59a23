//! The members that a request has left, and which of them may not be asked again. Pure.
//!
//! Not here: whether there is another attempt (`retry`), who can be picked (`pool`).

use super::blame::{Fault, Stage};
use crate::health::MemberId;
use crate::telemetry::AttemptResult;

/// Of one request.
#[derive(Debug, Default)]
pub struct Left {
    /// Members that failed it.
    all: Vec<MemberId>,
    /// Of those, the ones that could not be dialled, or were left as not answering.
    refused: Vec<MemberId>,
}

impl Left {
    /// It goes on elsewhere after this attempt.
    pub fn note(&mut self, member: MemberId, fault: Fault) {
        let is_rescued = fault.result == AttemptResult::Rescued;
        self.all.push(member);
        if is_rescued {
            // It has waited here for a while: who could not be dialled before may be there again, and this one is not.
            self.refused.clear();
        }
        if is_rescued || fault.stage == Stage::Connect {
            self.refused.push(member);
        }
    }

    /// Every member that failed it.
    pub fn all(&self) -> &[MemberId] {
        &self.all
    }

    /// Whom the next pick leaves out: those that failed it. Where they are all there is (`has_others` says whether anybody
    /// may serve beside them), one that answered badly may be asked again, since whether to was decided before; one that
    /// cannot be dialled may not: nothing changes so fast.
    pub fn avoided(&self, has_others: impl FnOnce(&[MemberId]) -> bool) -> &[MemberId] {
        if self.all.is_empty() || has_others(&self.all) { &self.all } else { &self.refused }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blame::Blame;
    use super::*;

    fn left(steps: &[(u64, Stage, AttemptResult)]) -> Left {
        let mut left = Left::default();
        for (member, stage, result) in steps {
            left.note(MemberId(*member), Fault { blame: Blame::Member, stage: *stage, result: *result, refusal: None });
        }
        left
    }

    #[test]
    fn whoever_answered_badly_is_asked_again_where_nobody_else_is_left_and_whoever_cannot_be_dialled_is_not() {
        let (dial, reset, rescue) = (
            |member| (member, Stage::Connect, AttemptResult::ConnectFailed),
            |member| (member, Stage::Exchange, AttemptResult::Reset),
            |member| (member, Stage::Exchange, AttemptResult::Rescued),
        );
        let rows: [(&[_], &[u64]); 5] = [
            (&[], &[]),
            (&[reset(1)], &[]),
            (&[dial(1), reset(2)], &[1]),
            (&[dial(1), rescue(2)], &[2]),
            (&[rescue(1), dial(2), rescue(3)], &[3]),
        ];
        for (steps, avoided) in rows {
            let left = left(steps);
            let ids = |members: &[MemberId]| members.iter().map(|member| member.0).collect::<Vec<_>>();
            assert_eq!(ids(left.avoided(|_| false)), avoided, "{steps:?}");
            assert_eq!(ids(left.avoided(|_| true)), ids(left.all()), "{steps:?}");
        }
    }
}
