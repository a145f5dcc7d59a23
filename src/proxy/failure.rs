//! An attempt has failed: whose fault it was, what the log will say, and what follows.
//!
//! Here the facts of one request meet the rules of [`blame`] and [`retry`].

use pingora::{Error, ErrorSource, ErrorType, RetryType};

use super::blame::{self, Blame, Fault, Stage};
use super::ctx::Ctx;
use super::evidence::{self, Came, Evidence};
use super::refusal::Refusal;
use super::retry::{self, Next, Replay};
use crate::clock;
use crate::listener::Cut;
use crate::telemetry::AttemptResult;

/// No connection came about, or its client has not waited for it: nothing was sent.
pub fn connecting(ctx: &mut Ctx, error: Box<Error>) -> Box<Error> {
    ctx.connection.dial_ends();
    ctx.spent.dials += 1;
    let fault = judge(ctx, &error, Stage::Connect);
    let replay =
        Replay { idempotent: false, whole_body: true, answer_begun: false, whole_request: true, idle_race: false };
    settle(ctx, error, fault, replay, 0)
}

/// What is known of an exchange that broke off.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// The request's method may be repeated.
    pub idempotent: bool,
    /// All of its body that was read can be sent again.
    pub whole_body: bool,
    /// Bytes of the answer's body that came.
    pub received: u64,
}

/// The exchange broke off; `reused` is whether it was on a pooled connection.
pub fn exchanging(ctx: &mut Ctx, sent: Sent, mut error: Box<Error>, reused: bool) -> Box<Error> {
    let writing = matches!(error.etype(), ErrorType::WriteError | ErrorType::WriteTimedout);
    if ctx.answer_is_whole && !writing && ctx.connection.cut() != Cut::WriteTimeout {
        // The client has what it asked for; that it never sent the rest of its request is nobody's failure.
        ctx.attempt_ended(AttemptResult::Ok, sent.received);
        error.set_retry(false);
        return error;
    }
    if ctx.tunnel_cut().is_some() {
        // Its limit ended it while an end took nothing: the line says which.
        ctx.attempt_ended(AttemptResult::Abandoned, sent.received);
        error.set_retry(false);
        return error;
    }
    if std::mem::take(&mut ctx.link_was_given_up) {
        // Another request needed its place, and nothing was sent: no race was lost, and nobody is to blame.
        ctx.again = ctx.attempt_ended(AttemptResult::Reset, 0);
        error.set_retry(true);
        return error;
    }
    // Pingora marks what failed while an answer was awaited; a connection that had gone stale may refuse the request first.
    let unsent = *error.esource() == ErrorSource::Upstream && *error.etype() == ErrorType::WriteError;
    let stale = matches!(error.retry, RetryType::ReusedOnly) || unsent;
    // A member that says something has taken the connection up: what breaks it off then is no race.
    let heard = ctx.attempt_is_heard || blame::breaks_off_in_a_header(&error);
    let idle_race = reused && stale && !heard;
    let unheard = !reused && !ctx.attempt_has_answer() && blame::refuses_certificate(&error);
    match (idle_race, unheard) {
        _ if ctx.connection.cut() == Cut::CalledAway => ctx.spent.rescues += 1,
        (true, _) => ctx.spent.races += 1,
        (_, true) => ctx.spent.dials += 1,
        _ => ctx.spent.attempts += 1,
    }
    let mut fault = judge(ctx, &error, Stage::Exchange);
    let replay = Replay {
        idempotent: sent.idempotent,
        whole_body: sent.whole_body,
        answer_begun: ctx.answer_has_begun(),
        whole_request: ctx.connection.request_is_whole(),
        idle_race,
    };
    if unheard && replay.whole_body {
        // The handshake has failed: as good as no connection.
        fault.stage = Stage::Connect;
    }
    settle(ctx, error, fault, replay, sent.received)
}

/// A filter, or Pingora itself, gave up outside an attempt.
pub fn elsewhere(ctx: &mut Ctx, error: &Error) {
    if ctx.refusal.is_none() && ctx.fault.is_none() {
        let fault = judge(ctx, error, Stage::Exchange);
        ctx.fault = Some(fault);
        ctx.refusal = fault.refusal;
    }
}

fn judge(ctx: &Ctx, error: &Error, stage: Stage) -> Fault {
    if ctx.is_over() {
        return blame::judge(error, stage, Cut::Deadline);
    }
    let fault = match ctx.connection.cut() {
        // The alarm rang for this attempt alone.
        Cut::Deadline => Fault {
            blame: Blame::Member,
            stage,
            result: AttemptResult::Timeout,
            refusal: Some(Refusal::UpstreamTimeout),
        },
        Cut::CalledAway => Fault {
            blame: Blame::Member,
            stage,
            result: AttemptResult::Rescued,
            refusal: Some(Refusal::UpstreamTimeout),
        },
        cut => blame::judge(error, stage, cut),
    };
    let awaited = matches!(error.etype(), ErrorType::ReadError | ErrorType::ReadTimedout);
    let timed_out = fault.blame == Blame::Member && fault.result == AttemptResult::Timeout;
    if timed_out && awaited && !ctx.connection.request_is_whole() {
        // The member has nothing to answer yet: it is the client who keeps us waiting. Not where the member takes nothing.
        return Fault {
            blame: Blame::Client,
            result: AttemptResult::Abandoned,
            refusal: Some(Refusal::BodyTimeout),
            ..fault
        };
    }
    fault
}

fn settle(ctx: &mut Ctx, mut error: Box<Error>, fault: Fault, replay: Replay, bytes: u64) -> Box<Error> {
    let came = match replay.idle_race {
        _ if ctx.attempt_has_answer() => Came::ToAnswer,
        true => Came::ToIdleRace,
        false if fault.stage == Stage::Exchange && !replay.whole_request => Came::ToHalfRequest,
        false => Came::Short,
    };
    let now = clock::monotonic();
    // What came without a head, or behind an interim answer, is no body; not everybody who reads counts it alike.
    let bytes = if ctx.attempt_has_answer() { bytes } else { 0 };
    let lease = ctx.attempt_ended_at(now, fault.result, bytes);
    let said = evidence::of_failure(fault, came);
    lease.iter().for_each(|lease| ctx.testify(now, lease, said));
    if let (Evidence::Failure(_), Some(lease)) = (said, &lease) {
        lease.fails();
    }
    let next = match &ctx.pool {
        Some(pool) => {
            let budget = || pool.live.budget().spend();
            retry::decide(fault, replay, ctx.spent, pool.config.retries, budget)
        }
        None => Next::Stop,
    };
    ctx.fault = Some(fault);
    ctx.refusal = fault.refusal.filter(|_| !ctx.answer_has_begun());
    match (next, lease) {
        (Next::Another, Some(lease)) => ctx.left.note(lease.member().id(), fault),
        (Next::SameAfresh, lease) => ctx.again = lease,
        (Next::Stop, _) | (Next::Another, None) => {}
    }
    error.set_retry(next != Next::Stop);
    error
}
