//! `pulsegate enable`: a member takes traffic again, and whoever restarts one after the other can wait until it does so rightly.
//!
//! A drained member keeps the verdict its probes gave it, and a quick restart leaves none behind: so `--wait` asks for a probe of
//! now. Not here: what is said on a member otherwise (`member`).

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::member::{Args, LONGEST, LOOK, late, raw};
use super::operator::{self, AskError, segment};
use super::standing::{Member, Probed, member_words};

/// From one probe that is asked for to the next, in looks.
const LOOKS_A_PROBE: u32 = 4;

/// Which member, and how long to wait.
#[derive(Debug, Clone, clap::Args)]
pub struct EnableArgs {
    #[command(flatten)]
    args: Args,
    /// Wait until a probe made since has passed and it takes traffic; fail if it does not within this time (such as 2m)
    ///
    /// It is probed at once, and every second meanwhile. Without this it takes traffic by the verdict it has, which soon after a
    /// restart is that of the program before. However it ends, the member stays enabled.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
}

/// Says `enable`, and waits.
pub fn run(args: &EnableArgs) -> ExitCode {
    let EnableArgs { args, wait } = args;
    operator::run(&args.operator, async {
        let answer = args.say("enable").await?;
        match wait {
            Some(wait) => passed(args, &answer.said, *wait).await,
            None => Ok(args.shown(&answer).await),
        }
    })
}

/// Looks until a probe of `enabled` has passed since, and it takes traffic.
async fn passed(args: &Args, enabled: &Member, wait: Duration) -> Result<String, AskError> {
    let until = Instant::now() + wait.min(LONGEST);
    let mut is_probed = true;
    for look in 0.. {
        if is_probed && look % LOOKS_A_PROBE == 0 {
            is_probed = probe(args, until).await?;
        }
        let pool = timeout_at(until + LOOK, args.look()).await.unwrap_or_else(|_| Err(silent()))?;
        let Some(member) = pool.said.members.iter().find(|member| member.is(enabled)) else {
            return Err(late(format!("{} is not in {} any more", enabled.address, args.pool), "null".to_owned()));
        };
        if member.admin != "enabled" {
            let words = format!("{}; somebody took it out meanwhile", member_words(&args.pool, member));
            return Err(late(words, raw(member, &pool)));
        }
        if serves(member) && (!is_probed || has_passed_since(enabled, member)) {
            return Ok(args.ended(member, &pool));
        }
        if Instant::now() >= until {
            let words = format!("{}; {}; it stays enabled", member_words(&args.pool, member), why(enabled, member));
            return Err(late(words, raw(member, &pool)));
        }
        sleep_until((Instant::now() + LOOK).min(until)).await;
    }
    Err(silent())
}

/// Has it probed now; says whether it is probed at all.
async fn probe(args: &Args, until: Instant) -> Result<bool, AskError> {
    let path = format!("/api/v1/pools/{}/members/{}/probe", segment(&args.pool), segment(&args.member));
    let asked = timeout_at(until + LOOK, args.operator.ask::<Value>(Method::POST, &path));
    match asked.await.unwrap_or_else(|_| Err(silent())) {
        Ok(_) => Ok(true),
        Err(AskError::Refused(refusal)) if refusal.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether it takes traffic: by its health, or because its pool has nobody better.
fn serves(member: &Member) -> bool {
    matches!(member.standing.as_str(), "healthy" | "standby")
}

fn has_passed_since(enabled: &Member, member: &Member) -> bool {
    let is_another = |probe: &&Probed| enabled.last_probe.as_ref().is_none_or(|before| before.at != probe.at);
    member.last_probe.as_ref().filter(is_another).is_some_and(|probe| probe.result == "pass")
}

/// What it lacks.
fn why(enabled: &Member, member: &Member) -> String {
    match &member.last_probe {
        Some(probe) if has_passed_since(enabled, member) => format!("its probe of {} passed", probe.at),
        Some(Probed { detail: Some(detail), .. }) if !detail.is_empty() => {
            format!("no probe has passed since, the last: {detail}")
        }
        _ => "no probe has passed since".to_owned(),
    }
}

fn silent() -> AskError {
    late("the proxy does not answer".to_owned(), "null".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(standing: &str, probe: Option<(&str, &str)>) -> Member {
        let probed = |(at, result): (&str, &str)| Probed { at: at.to_owned(), result: result.to_owned(), detail: None };
        Member { standing: standing.to_owned(), last_probe: probe.map(probed), ..Member::default() }
    }

    #[test]
    fn a_pass_counts_that_is_another_than_the_last_one_before() {
        let rows = [
            (None, None, false),
            (None, Some(("1", "pass")), true),
            (None, Some(("1", "fail")), false),
            (Some(("1", "pass")), Some(("1", "pass")), false),
            (Some(("1", "pass")), Some(("2", "fail")), false),
            (Some(("1", "pass")), Some(("2", "pass")), true),
            (Some(("1", "fail")), Some(("2", "pass")), true),
        ];
        for (before, now, passed) in rows {
            let (before, now) = (member("healthy", before), member("healthy", now));
            assert_eq!(has_passed_since(&before, &now), passed, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_probe_that_says_nothing_is_not_quoted() {
        let said = |detail: &str| {
            let mut now = member("ejected", Some(("2", "fail")));
            now.last_probe.iter_mut().for_each(|probe| probe.detail = Some(detail.to_owned()));
            why(&member("ejected", None), &now)
        };
        assert_eq!(said(""), "no probe has passed since");
        assert_eq!(said("503"), "no probe has passed since, the last: 503");
    }

    #[test]
    fn whoever_is_only_kept_or_serves_in_the_fallback_is_not_back() {
        for (standing, back) in [
            ("healthy", true),
            ("standby", true),
            ("kept", false),
            ("ejected", false),
            ("unknown", false),
            ("fallback", false),
        ] {
            assert_eq!(serves(&member(standing, None)), back, "{standing}");
        }
    }
}
